//! The data of etcd's first member out of a snapshot. What was there is set aside, and nothing of it is deleted. Torn
//! anywhere it is done again: the folders say how far it came.

use std::time::Duration;

use super::{
    helper::{node_error, run_helper, succeeded},
    member::mounted,
};
use crate::{
    apply::{
        executor::failed,
        step::{Done, StepError},
    },
    host::{Host, Program},
    model::{ClusterId, path},
    plan::EtcdRestore,
    state::SnapshotRef,
};

const SCRIPT: &str = include_str!("restore.sh");

/// For a rename, or to read a snapshot of some gigabytes once.
const SHORT: Duration = Duration::from_secs(170);
/// For a snapshot of 8 GiB on a slow disk.
const RESTORES: Duration = Duration::from_secs(25 * 60);

/// Moves what the member's folder has aside.
pub(in crate::apply) async fn set_aside(
    host: &Host,
    id: &ClusterId,
    epoch: u32,
) -> Result<Done, StepError> {
    let said = script(host, id, epoch, "aside", &[]).await?;
    match said.first().map(String::as_str) {
        Some("below") => Err(mounted(host, said.get(1).map_or("", String::as_str))),
        Some(_) | None => Ok(Done::default()),
    }
}

/// Moves what was set aside back.
pub(in crate::apply) async fn put_back(
    host: &Host,
    id: &ClusterId,
    epoch: u32,
) -> Result<Done, StepError> {
    script(host, id, epoch, "back", &[]).await?;
    Ok(Done::default())
}

/// Makes the data of the first member.
pub(in crate::apply) async fn restore(
    host: &Host,
    id: &ClusterId,
    restore: &EtcdRestore,
) -> Result<Done, StepError> {
    let epoch = restore.epoch;
    let (snapshot, said) = match &restore.snapshot {
        Some(SnapshotRef { name, sha256, .. }) => {
            let file = format!("{}/{name}", path::SNAPSHOTS);
            let said = script(host, id, epoch, "ready", &[file.as_str(), sha256.as_str()]).await?;
            (file, said)
        }
        None => (
            path::ETCD_MEMBER.to_owned(),
            script(host, id, epoch, "own", &[]).await?,
        ),
    };
    let words: Vec<&str> = said.iter().map(String::as_str).collect();
    let mebibytes = |kibibytes: &str| kibibytes.parse::<u64>().unwrap_or_default() / 1024;
    let (folder, database) = match words.as_slice() {
        ["done"] => return Ok(Done::default()),
        ["ready", folder] => (*folder, snapshot.as_str()),
        ["ready", folder, database] => (*folder, *database),
        ["gone"] if restore.snapshot.is_none() => {
            let what = format!("there is no database of etcd in `{snapshot}`");
            return Err(node_error(host, &what, &["restore a snapshot"]));
        }
        ["gone"] => {
            let what = format!("`{snapshot}` is no longer there");
            return Err(node_error(host, &what, &["copy it there again"]));
        }
        ["another"] => {
            let what =
                format!("`{snapshot}` is not the file that was looked at before, or is damaged");
            return Err(node_error(host, &what, &[]));
        }
        ["full", free, needed] => {
            let (free, needed) = (mebibytes(free), mebibytes(needed));
            let what = format!(
                "{free} MiB are left for `{}`, and the restored data may need {needed}",
                path::ETCD
            );
            let cure = "make room there: what is of the time before a restore is in folders `member.before-…`";
            return Err(node_error(host, &what, &[cure]));
        }
        _ => return Err(node_error(host, "the snapshot cannot be looked at", &[])),
    };
    let program = etcdutl(restore, database, folder);
    let output = host.run_program(&program, id).await.map_err(failed)?;
    succeeded(host, &output, "etcdutl did not restore the snapshot", &[])?;
    set_aside(host, id, epoch).await?;
    script(host, id, epoch, "place", &[]).await?;
    Ok(Done::default())
}

/// What it writes is only this member's: the others join it.
fn etcdutl(restore: &EtcdRestore, database: &str, folder: &str) -> Program {
    let EtcdRestore {
        epoch: _,
        image,
        snapshot,
        member,
        peer_url,
        token,
        bump,
    } = restore;
    // Only a snapshot has its hash behind it.
    let unhashed = snapshot
        .is_none()
        .then(|| "--skip-hash-check=true".to_owned());
    let command = [
        "etcdutl".to_owned(),
        "snapshot".to_owned(),
        "restore".to_owned(),
        database.to_owned(),
        format!("--name={member}"),
        format!("--initial-cluster={member}={peer_url}"),
        format!("--initial-advertise-peer-urls={peer_url}"),
        format!("--initial-cluster-token={token}"),
        format!("--data-dir={folder}"),
        format!("--bump-revision={bump}"),
        // A watch from an old revision fails with "compacted", and its client lists again.
        "--mark-compacted".to_owned(),
    ];
    Program {
        image: image.clone(),
        command: command.into_iter().chain(unhashed).collect(),
        binds: vec![
            format!("{}:{}:ro", path::SNAPSHOTS, path::SNAPSHOTS),
            format!("{}:{}", path::ETCD, path::ETCD),
        ],
        limit: RESTORES,
    }
}

/// The words that a script answered.
async fn script(
    host: &Host,
    id: &ClusterId,
    epoch: u32,
    what: &str,
    more: &[&str],
) -> Result<Vec<String>, StepError> {
    let epoch = epoch.to_string();
    let arguments: Vec<&str> = [path::ETCD_MEMBER, &epoch, what]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    let output = run_helper(host, id, SCRIPT, &arguments, SHORT).await?;
    succeeded(host, &output, "the folders of etcd's data", &[])?;
    let line = output
        .log
        .lines()
        .find_map(|line| line.strip_prefix("rke-operator: "));
    let words = line.unwrap_or_default().split_whitespace();
    Ok(words.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, process::Command};

    use sha2::{Digest, Sha256};

    use super::*;

    fn run(member: &Path, words: &[&str]) -> String {
        let output = Command::new("sh")
            .args(["-c", SCRIPT, "rke-operator"])
            .arg(member)
            .arg("1")
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Their lengths tell which is which.
    const OLD: u64 = 3;
    const NEW: u64 = 5;

    fn length(file: &Path) -> u64 {
        fs::metadata(file).unwrap().len()
    }

    /// What etcdutl makes.
    fn made(folder: &str) {
        let member = Path::new(folder).join("member");
        write(&member.join("snap/db"), "newer");
        write(&member.join("wal/0"), "newer");
    }

    /// A snapshot, with the words that lead to it.
    fn snapshot(root: &Path) -> [String; 2] {
        let pages = [7; 4096];
        let hash = Sha256::digest(pages);
        let file = root.join("s1");
        fs::write(&file, [&pages[..], &hash].concat()).unwrap();
        [file.display().to_string(), hex::encode(hash)]
    }

    /// Rule 18: what was there is kept through everything, and comes back whole; every part may be done twice.
    #[test]
    fn data_are_set_aside_replaced_and_put_back() {
        let root = tempfile::tempdir().unwrap();
        let member = root.path().join("member");
        let db = |folder: &str| length(&root.path().join(folder).join("snap/db"));
        write(&member.join("snap/db"), "old");
        write(&member.join("wal/0"), "old");
        let [file, hash] = snapshot(root.path());
        let ready = ["ready", file.as_str(), hash.as_str()];

        let said = run(&member, &ready);
        let new = said.strip_prefix("rke-operator: ready ").unwrap();
        assert_eq!(
            db("member"),
            OLD,
            "nothing is moved before the new data are made"
        );
        made(new);
        // Of a run that was ended here: what it made is made again.
        assert_eq!(run(&member, &ready), said);
        made(new);
        for _ in 0..2 {
            run(&member, &["aside"]);
            assert_eq!(db("member.before-1"), OLD);
        }
        for _ in 0..2 {
            run(&member, &["place"]);
            assert_eq!((db("member"), db("member.before-1")), (NEW, OLD));
        }
        assert_eq!(run(&member, &ready), "rke-operator: done");
        for _ in 0..2 {
            run(&member, &["back"]);
            assert_eq!(db("member"), OLD);
            assert_eq!(length(&member.join("wal/0")), OLD);
        }
        let kept = fs::read_dir(root.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let kept: Vec<String> = kept
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        let torn = kept.iter().find(|name| name.starts_with("member.torn-1-"));
        assert_eq!(db(torn.unwrap()), NEW, "{kept:?}");
        assert_eq!(kept.len(), 3, "{kept:?}");
    }

    #[test]
    fn half_of_a_move_is_finished_in_either_direction() {
        let root = tempfile::tempdir().unwrap();
        let member = root.path().join("member");
        let begin = || {
            drop(fs::remove_dir_all(&member));
            drop(fs::remove_dir_all(root.path().join("member.before-1")));
            write(&member.join("wal/0"), "old");
            write(&root.path().join("member.before-1.part/snap/db"), "old");
        };
        begin();
        run(&member, &["aside"]);
        for file in ["snap/db", "wal/0"] {
            assert!(
                root.path().join("member.before-1").join(file).exists(),
                "{file}"
            );
        }
        begin();
        run(&member, &["back"]);
        for file in ["snap/db", "wal/0"] {
            assert!(member.join(file).exists(), "{file}");
        }
        // Put back by half.
        fs::create_dir(root.path().join("member.back-1")).unwrap();
        fs::rename(member.join("snap"), root.path().join("member.back-1/snap")).unwrap();
        run(&member, &["back"]);
        assert_eq!(length(&member.join("snap/db")), OLD);
        assert!(member.join("wal/0").exists());
    }

    /// Of the last member: its database is read where it is, or where a run that was ended has moved it.
    #[test]
    fn a_members_own_data_are_read_also_after_they_were_set_aside() {
        let root = tempfile::tempdir().unwrap();
        let member = root.path().join("member");
        assert_eq!(run(&member, &["own"]), "rke-operator: gone");
        write(&member.join("snap/db"), "old");
        let new = root.path().join("member.restore-1").display().to_string();
        let ready = |folder: &str| {
            let database = root.path().join(folder).join("snap/db");
            format!("rke-operator: ready {new} {}", database.display())
        };
        assert_eq!(run(&member, &["own"]), ready("member"));
        made(&new);
        run(&member, &["aside"]);
        assert_eq!(run(&member, &["own"]), ready("member.before-1"));
        made(&new);
        run(&member, &["place"]);
        assert_eq!(run(&member, &["own"]), "rke-operator: done");
        assert_eq!(length(&member.join("snap/db")), NEW);
        let before = root.path().join("member.before-1/snap/db");
        assert_eq!(length(&before), OLD);
    }

    #[test]
    fn another_file_or_none_is_not_restored() {
        let root = tempfile::tempdir().unwrap();
        let member = root.path().join("member");
        let [file, hash] = snapshot(root.path());
        assert_eq!(
            run(&member, &["ready", &file, &"0".repeat(64)]),
            "rke-operator: another"
        );
        assert_eq!(
            run(&member, &["ready", "/none", &hash]),
            "rke-operator: gone"
        );
    }
}

//! A snapshot of a member's data, once, on its own node: where RKE puts it, verified by the hash that
//! etcd writes into it, and never in the place of another one.
//!
//! etcd's own client takes it, in a container of the image that the member runs: whatever that etcd's
//! version is, they fit. Its certificates are named by paths; nothing secret is in an argument.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::zip::{self, Packed};
use crate::{
    error::{ErrorClass, Explain, Passing},
    host::{HelperContainer, HelperOutput, Host, HostError, Program},
    model::{ClusterId, Component, ContainerSpec, label, path},
};

const SCRIPT: &str = include_str!("snapshot.sh");

/// For the scripts before and after.
const SHORT: Duration = Duration::from_secs(120);
/// RKE's `backup_config.timeout`.
const TAKES: Duration = Duration::from_secs(300);
/// To read a snapshot of some gigabytes twice.
const READS: Duration = Duration::from_secs(300);
/// Where the folder is in the container.
const INSIDE: &str = "/snapshots";

/// So far a restored etcd's revision is beyond every one that was handed out before: more than a week of 1500 writes a
/// second, as etcd's own documentation has it.
pub const BEYOND: u64 = 1_000_000_000;

/// A name that is one file's in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotName(String);

impl SnapshotName {
    /// As RKE names a snapshot that is given no name.
    pub fn of_time(now: jiff::Timestamp) -> Self {
        let text = now.strftime("rke_etcd_snapshot_%Y-%m-%dT%H:%M:%SZ");
        Self(text.to_string())
    }

    /// The name, for messages.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no name of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a snapshot's name has letters, digits, `.`, `-`, `_`, `:` and `+`, and begins with a letter or digit"
)]
pub struct NotAName;

impl std::str::FromStr for SnapshotName {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '+');
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins && text.len() <= 200 && text.chars().all(inner) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAName)
        }
    }
}

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// On the node.
    pub path: String,
    /// Of the file.
    pub bytes: u64,
    /// Of etcd's data in it, as etcd has written it behind them.
    pub sha256: String,
}

/// Why no snapshot was taken on a node.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Something on the node.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No member of this cluster runs there.
    #[error("no etcd of this cluster runs on node `{node}`")]
    NoMember {
        /// Which.
        node: String,
    },
    /// A snapshot of that name is there.
    #[error("`{path}` is on node `{node}` already")]
    Taken {
        /// Which.
        node: String,
        /// Where.
        path: String,
    },
    /// There is no room.
    #[error("node `{node}` has {free} MiB left for `{folder}`, and the snapshot may need {needed}")]
    Full {
        /// Which.
        node: String,
        /// Where.
        folder: &'static str,
        /// In MiB.
        free: u64,
        /// In MiB.
        needed: u64,
    },
    /// etcdctl failed.
    #[error("etcdctl on node `{node}` did not save a snapshot: {said}")]
    Etcdctl {
        /// Which.
        node: String,
        /// Its words.
        said: String,
    },
    /// etcdutl failed.
    #[error("etcdutl on node `{node}` cannot read the snapshot: {said}")]
    Etcdutl {
        /// Which.
        node: String,
        /// Its words.
        said: String,
    },
    /// The hash in the file is not that of the file.
    #[error("the snapshot on node `{node}` is damaged: its hash is another one; it was deleted")]
    Damaged {
        /// Which.
        node: String,
    },
    /// A script failed.
    #[error("the snapshot on node `{node}` could not be put in its place: {said}")]
    Script {
        /// Which.
        node: String,
        /// Its words.
        said: String,
    },
}

impl Explain for SnapshotError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Host(error) => error.class(),
            Self::Taken { .. } => ErrorClass::User,
            Self::NoMember { .. }
            | Self::Full { .. }
            | Self::Script { .. }
            | Self::Etcdutl { .. } => ErrorClass::Host,
            Self::Etcdctl { .. } | Self::Damaged { .. } => ErrorClass::Transient,
        }
    }

    fn passing(&self) -> Option<Passing> {
        match self {
            Self::Host(error) => error.passing(),
            Self::NoMember { .. }
            | Self::Taken { .. }
            | Self::Full { .. }
            | Self::Etcdctl { .. }
            | Self::Etcdutl { .. }
            | Self::Damaged { .. }
            | Self::Script { .. } => None,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Host(error) => error.hints(),
            Self::NoMember { .. } => {
                vec!["`rke-operator status` shows the health of the cluster".into()]
            }
            Self::Taken { .. } => vec!["take another name with `--name`".into()],
            Self::Full { .. } => vec!["make room there, or move older snapshots away".into()],
            Self::Etcdctl { .. } | Self::Damaged { .. } => {
                vec!["look at `docker logs etcd` on the node, and try again".into()]
            }
            Self::Script { .. } | Self::Etcdutl { .. } => Vec::new(),
        }
    }
}

/// Where one of that name is on its node.
pub fn place(name: &SnapshotName) -> String {
    format!("{}/{}", path::SNAPSHOTS, name.0)
}

/// Takes it on a node.
pub async fn save(
    host: &Host,
    id: &ClusterId,
    name: &SnapshotName,
) -> Result<Snapshot, SnapshotError> {
    let node = || host.name.0.clone();
    let no_member = || SnapshotError::NoMember { node: node() };
    let member = host
        .container(Component::Etcd.container())
        .await?
        .filter(|there| there.labels.get(label::CLUSTER_ID) == Some(&id.0))
        .and_then(|there| there.runs)
        .ok_or_else(no_member)?;
    let place = place(name);
    let taken = || SnapshotError::Taken {
        node: node(),
        path: place.clone(),
    };
    let database = || [format!("{}/snap/db", path::ETCD_MEMBER)];
    let before = script(host, id, name, "before", database(), SHORT).await?;
    match words(&before).as_slice() {
        ["ready"] => {}
        ["taken"] => return Err(taken()),
        ["full", free, needed] => {
            return Err(SnapshotError::Full {
                node: node(),
                folder: path::SNAPSHOTS,
                free: mebibytes(free),
                needed: mebibytes(needed),
            });
        }
        _ => return Err(failed(host, &before)),
    }
    let said = host.run_program(&etcdctl(&member), id).await?;
    if said.status != 0 {
        return Err(SnapshotError::Etcdctl {
            node: node(),
            said: last_line(&said.log),
        });
    }
    let after = script(host, id, name, "after", database(), SHORT).await?;
    match words(&after).as_slice() {
        ["saved", bytes, sha256] => Ok(Snapshot {
            path: place,
            bytes: bytes.parse().unwrap_or_default(),
            sha256: (*sha256).to_owned(),
        }),
        ["taken"] => Err(taken()),
        ["torn"] => Err(SnapshotError::Damaged { node: node() }),
        _ => Err(failed(host, &after)),
    }
}

/// What a folder of snapshots has under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A snapshot whose hash is right.
    Whole {
        /// The hash.
        sha256: String,
        /// The cluster's id is in it.
        names_cluster: bool,
        /// Objects in it are encrypted.
        encrypted: bool,
    },
    /// A zip, which [`unpack`] may make a snapshot of.
    Zipped,
    /// Something else, or nothing: what, as a sentence about it.
    Not(&'static str),
}

/// Looks for a snapshot on a node and verifies it. Changes nothing.
pub async fn look(
    host: &Host,
    id: &ClusterId,
    name: &SnapshotName,
) -> Result<Found, SnapshotError> {
    let more = [id.0.clone(), path::ETCD.to_owned()];
    let output = script(host, id, name, "look", more, READS).await?;
    Ok(match words(&output).as_slice() {
        ["whole", sha256, names, how] => Found::Whole {
            sha256: (*sha256).to_owned(),
            names_cluster: *names == "own",
            encrypted: *how == "encrypted",
        },
        ["full", free, needed] => {
            return Err(SnapshotError::Full {
                node: host.name.0.clone(),
                folder: path::ETCD,
                free: mebibytes(free),
                needed: mebibytes(needed),
            });
        }
        ["zip"] => Found::Zipped,
        ["gone"] => Found::Not("is not there"),
        ["torn"] => Found::Not("is there and damaged: its hash is another one"),
        _ => return Err(failed(host, &output)),
    })
}

/// Unpacks a snapshot from the zip of its name, as RKE writes them, next to it. Nothing is replaced. The inner error says
/// what there is instead.
pub async fn unpack(
    host: &Host,
    id: &ClusterId,
    name: &SnapshotName,
) -> Result<Result<(), &'static str>, SnapshotError> {
    const NONE: &str = "is there as a zip that cannot be read";
    let end = script(host, id, name, "end", [zip::END.to_string()], READS).await?;
    let ["end", size, end @ ..] = &words(&end)[..] else {
        return Err(failed(host, &end));
    };
    // An empty file has no end.
    let (Ok(size), Ok(end)) = (size.parse::<u64>(), STANDARD.decode(end.concat())) else {
        return Ok(Err(NONE));
    };
    let packed = match zip::snapshot(&end, size, &name.0) {
        Ok(packed) => packed,
        Err(why) => return Ok(Err(why)),
    };
    let unpacked = script(host, id, name, "unpack", unpacking(packed), READS).await?;
    match words(&unpacked).as_slice() {
        ["unpacked"] => Ok(Ok(())),
        ["torn"] => Ok(Err("is there as a zip, and damaged")),
        ["full", free, needed] => Err(SnapshotError::Full {
            node: host.name.0.clone(),
            folder: path::SNAPSHOTS,
            free: mebibytes(free),
            needed: mebibytes(needed),
        }),
        _ => Err(failed(host, &unpacked)),
    }
}

/// The arguments of the script for that.
fn unpacking(packed: Packed) -> [String; 5] {
    let Packed {
        header,
        length,
        bytes,
        crc32,
        deflated,
    } = packed;
    let octal = |bytes: &[u8]| {
        let each = bytes.iter().map(|byte| format!("\\0{byte:03o}"));
        each.collect::<Vec<_>>().concat()
    };
    // What gzip has behind its data: the same as a zip, in its own order.
    let size = u32::try_from(bytes % (1 << 32)).unwrap_or_default();
    [
        header.to_string(),
        length.to_string(),
        bytes.to_string(),
        octal(&crc32.to_le_bytes()) + &octal(&size.to_le_bytes()),
        if deflated { "deflated" } else { "stored" }.to_owned(),
    ]
}

/// The files in a node's folder of snapshots, by name, with their sizes in bytes.
pub async fn list(host: &Host, id: &ClusterId) -> Result<BTreeMap<String, u64>, SnapshotError> {
    let none = SnapshotName(String::new());
    let output = script(host, id, &none, "list", [], SHORT).await?;
    let ["list", encoded @ ..] = &words(&output)[..] else {
        return Err(failed(host, &output));
    };
    let text = STANDARD.decode(encoded.concat()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let files = text.lines().filter_map(|line| {
        let (size, file) = line.split_once(' ')?;
        Some((file.to_owned(), size.parse().ok()?))
    });
    Ok(files.collect())
}

/// etcd's revision in a snapshot on a node, as etcdutl of this image reads it.
pub async fn revision(
    host: &Host,
    id: &ClusterId,
    name: &SnapshotName,
    image: &str,
) -> Result<u64, SnapshotError> {
    #[derive(serde::Deserialize)]
    struct Status {
        revision: u64,
    }
    let file = format!("{INSIDE}/{}", name.0);
    let words = ["etcdutl", "snapshot", "status", &file, "--write-out=json"];
    let program = Program {
        image: image.to_owned(),
        command: words.map(str::to_owned).to_vec(),
        binds: vec![format!("{}:{INSIDE}:ro", path::SNAPSHOTS)],
        limit: TAKES,
    };
    let output = host.run_program(&program, id).await?;
    let mut lines = output.log.lines().filter(|_| output.status == 0);
    let status = lines.find_map(|line| serde_json::from_str::<Status>(line.trim()).ok());
    status
        .map(|status| status.revision)
        .ok_or_else(|| SnapshotError::Etcdutl {
            node: host.name.0.clone(),
            said: last_line(&output.log),
        })
}

/// `more`: the arguments after these, as the script has them.
async fn script(
    host: &Host,
    id: &ClusterId,
    name: &SnapshotName,
    what: &str,
    more: impl IntoIterator<Item = String>,
    limit: Duration,
) -> Result<HelperOutput, HostError> {
    let arguments = [path::SNAPSHOTS.to_owned(), name.0.clone(), what.to_owned()];
    let helper = HelperContainer {
        script: SCRIPT.to_owned(),
        arguments: arguments.into_iter().chain(more).collect(),
        limit,
    };
    host.run_helper(&helper, id).await
}

fn mebibytes(kibibytes: &str) -> u64 {
    kibibytes.parse::<u64>().unwrap_or_default() / 1024
}

/// What a script answered.
fn words(output: &HelperOutput) -> Vec<&str> {
    let line = output
        .log
        .lines()
        .filter(|_| output.status == 0)
        .find_map(|line| line.strip_prefix("rke-operator: "));
    line.unwrap_or_default().split_whitespace().collect()
}

fn failed(host: &Host, output: &HelperOutput) -> SnapshotError {
    SnapshotError::Script {
        node: host.name.0.clone(),
        said: last_line(&output.log),
    }
}

fn last_line(log: &str) -> String {
    let line = log.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or("it said nothing").trim().to_owned()
}

/// The member's own client, with the member's own certificates, by the paths that its flags name.
fn etcdctl(member: &ContainerSpec) -> Program {
    let flag = |name: &str| {
        let value = |word: &String| {
            word.strip_prefix(name)?
                .strip_prefix('=')
                .map(str::to_owned)
        };
        member.command.iter().find_map(value)
    };
    let certificates = [
        ("cacert", flag("--trusted-ca-file")),
        ("cert", flag("--cert-file")),
        ("key", flag("--key-file")),
    ];
    let certificates = certificates
        .into_iter()
        .filter_map(|(name, path)| Some(format!("--{name}={}", path?)));
    let words = [
        "etcdctl",
        "snapshot",
        "save",
        "/snapshots/.rke-operator-new",
    ];
    let binds = member
        .binds
        .iter()
        .filter(|bind| bind.target.starts_with(path::KUBERNETES))
        .map(|bind| format!("{}:{}:ro", bind.source, bind.target));
    let folder = format!("{}:{INSIDE}", path::SNAPSHOTS);
    Program {
        image: member.image.clone(),
        command: words
            .into_iter()
            .map(str::to_owned)
            .chain(["--endpoints=https://127.0.0.1:2379".to_owned()])
            .chain(certificates)
            .collect(),
        binds: binds.chain([folder]).collect(),
        limit: TAKES,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
        process::Command,
    };

    use sha2::{Digest, Sha256};

    use super::*;
    use crate::model::Owner;

    #[test]
    fn a_name_leads_to_one_file_in_the_folder() {
        for good in ["s1", "rke_etcd_snapshot_2026-11-24T21:00:00+01:00", "a.b-c"] {
            assert!(good.parse::<SnapshotName>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "../x",
            "a/b",
            ".hidden",
            "-f",
            "a b",
            "a\n",
            &"a".repeat(201),
        ] {
            assert_eq!(bad.parse::<SnapshotName>(), Err(NotAName), "{bad:?}");
        }
    }

    fn run(folder: &Path, when: &str, bytes: u64) -> String {
        // A file of that size that takes no room.
        let database = folder.with_extension("db");
        fs::File::create(&database).unwrap().set_len(bytes).unwrap();
        let output = Command::new("sh")
            .args(["-c", SCRIPT, "rke-operator"])
            .arg(folder)
            .args(["s1", when])
            .arg(&database)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// As etcd writes one: pages, and their hash.
    fn written(folder: &Path, damage: bool) {
        let mut bytes = vec![7; 4096];
        let hash = Sha256::digest(&bytes);
        bytes[9] = if damage { 8 } else { 7 };
        bytes.extend_from_slice(&hash);
        fs::write(folder.join(".rke-operator-new"), bytes).unwrap();
    }

    fn names(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into())
            .collect()
    }

    #[test]
    fn the_client_has_the_members_certificates_and_nothing_of_its_data() {
        let bind = |text: &str| text.to_owned().try_into().unwrap();
        let member = ContainerSpec {
            image: "etcd:1".to_owned(),
            entrypoint: vec!["etcd".to_owned()],
            command: [
                "--cert-file=/etc/kubernetes/ssl/c.pem",
                "--key-file=/etc/kubernetes/ssl/k.pem",
                "--peer-cert-file=/p",
                "--trusted-ca-file=/etc/kubernetes/ssl/ca.pem",
            ]
            .map(str::to_owned)
            .to_vec(),
            bootstrap_args: Vec::new(),
            env: Vec::new(),
            binds: vec![
                bind("/etc/kubernetes/ssl/c.pem:/etc/kubernetes/ssl/c.pem"),
                bind("/var/lib/etcd:/var/lib/rancher/etcd"),
            ],
            mounts: Vec::new(),
            user: Owner::ROOT,
            privileged: false,
            host_pid: false,
            host_cgroupns: false,
            security_opts: Vec::new(),
            tmpfs: Vec::new(),
            cap_drop: Vec::new(),
            log_limit: None,
            files: [].into(),
            certificates: [].into(),
        };
        let program = etcdctl(&member);
        insta::assert_snapshot!(program.command.join("\n"), @"
        etcdctl
        snapshot
        save
        /snapshots/.rke-operator-new
        --endpoints=https://127.0.0.1:2379
        --cacert=/etc/kubernetes/ssl/ca.pem
        --cert=/etc/kubernetes/ssl/c.pem
        --key=/etc/kubernetes/ssl/k.pem
        ");
        assert_eq!(
            program.binds,
            [
                "/etc/kubernetes/ssl/c.pem:/etc/kubernetes/ssl/c.pem:ro",
                "/opt/rke/etcd-snapshots:/snapshots"
            ]
        );
    }

    #[test]
    fn a_snapshot_is_verified_and_never_replaces_another() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("snapshots");
        assert_eq!(run(&folder, "before", 1), "rke-operator: ready");
        written(&folder, false);
        let said = run(&folder, "after", 0);
        let hash = hex::encode(Sha256::digest([7; 4096]));
        assert_eq!(said, format!("rke-operator: saved 4128 {hash}"));
        assert_eq!(names(&folder), [PathBuf::from("s1")]);
        let kept = fs::read(folder.join("s1")).unwrap();

        assert_eq!(run(&folder, "before", 1), "rke-operator: taken");
        written(&folder, false);
        assert_eq!(run(&folder, "after", 0), "rke-operator: taken");
        assert_eq!(fs::read(folder.join("s1")).unwrap(), kept);
        assert_eq!(names(&folder), [PathBuf::from("s1")]);
    }

    /// Whose it is, and whether a cluster without encryption could read it.
    #[test]
    fn a_look_tells_whose_a_snapshot_is_and_whether_its_objects_are_encrypted() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("snapshots");
        fs::create_dir(&folder).unwrap();
        let look = |text: &str, id: &str| {
            let mut page = vec![0xff; 4096];
            page[100..100 + text.len()].copy_from_slice(text.as_bytes());
            let hash = Sha256::digest(&page);
            fs::write(folder.join("s1"), [&page[..], &hash].concat()).unwrap();
            let output = Command::new("sh")
                .args(["-c", SCRIPT, "rke-operator"])
                .arg(&folder)
                .args(["s1", "look", id, "/"])
                .output()
                .unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            let words: Vec<&str> = said.split_whitespace().collect();
            (
                words[1].to_owned(),
                words[3].to_owned(),
                words[4].to_owned(),
            )
        };
        let is = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        let id = "0123456789abcdef";
        assert_eq!(look(id, id), is("whole", "own", "plain"));
        assert_eq!(look("another", id), is("whole", "other", "plain"));
        let both = format!("{id} k8s:enc:secretbox:v1:key-1:");
        assert_eq!(look(&both, id), is("whole", "own", "encrypted"));
    }

    #[test]
    fn what_is_damaged_is_no_snapshot() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("snapshots");
        run(&folder, "before", 1);
        written(&folder, true);
        assert_eq!(run(&folder, "after", 0), "rke-operator: torn");
        fs::write(folder.join(".rke-operator-new"), [7; 100]).unwrap();
        assert_eq!(run(&folder, "after", 0), "rke-operator: torn");
        assert_eq!(names(&folder), Vec::<PathBuf>::new());
    }

    /// In a zip as RKE writes it, and in one that was changed: with a test of what `unpack` hands to the script.
    #[test]
    fn a_snapshot_comes_out_of_a_zip_as_rke_writes_it() {
        const RKE: &[u8] = include_bytes!("rke.zip");
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("snapshots");
        fs::create_dir(&folder).unwrap();
        let unpack = |zip: &[u8]| {
            fs::write(folder.join("s1.zip"), zip).unwrap();
            let packed = zip::snapshot(zip, zip.len() as u64, "s1").unwrap();
            let output = Command::new("sh")
                .args(["-c", SCRIPT, "rke-operator"])
                .arg(&folder)
                .args(["s1", "unpack"])
                .args(unpacking(packed))
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        // A byte of what is packed: what comes out is not what the zip's sum tells, or as long.
        for at in [50, 90, 130] {
            let mut damaged = RKE.to_vec();
            damaged[at] ^= 0x10;
            assert_eq!(unpack(&damaged), "rke-operator: torn", "{at}");
            assert_eq!(names(&folder), [PathBuf::from("s1.zip")]);
        }
        assert_eq!(unpack(RKE), "rke-operator: unpacked");
        let page: Vec<u8> = (0..4096_u16)
            .map(|at| u8::try_from(at / 64).unwrap())
            .collect();
        let there = fs::read(folder.join("s1")).unwrap();
        assert_eq!(there, [&page[..], &Sha256::digest(&page)].concat());
        assert_eq!(names(&folder).len(), 2);
    }

    #[test]
    fn a_full_disk_is_seen_before() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("snapshots");
        let said = run(&folder, "before", 1 << 42);
        assert!(said.starts_with("rke-operator: full "), "{said}");
    }
}

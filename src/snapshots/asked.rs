//! What a person asks for: a snapshot now; another look into one that is in the folder; its end.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    archive,
    bucket::{self, Store},
    folder::{ASKED, Folder, kept},
    memory,
    prove::prove,
    prune::is_last_proven,
    record::{Cause, Grade, Listed, Meta, Proof},
    run::{Programs, RunError, opened, read, save_and_prove},
    save::{Asked, SaveError, Saved, blocking, private, room},
    settings::Settings,
};
use crate::{
    environment::Clock,
    error::{ErrorClass, Explain},
    etcd::snapshot::SnapshotName,
    model::{Bucket, path, printable},
};

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum AskedError {
    /// The program cannot work.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The snapshot.
    #[error(transparent)]
    Save(#[from] SaveError),
    /// A file.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Explain for AskedError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Host
    }
}

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taken {
    /// The file.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// The hash of the database, as etcd wrote it behind it.
    pub sha256: String,
    /// How far it was looked into.
    pub grade: Grade,
    /// Why it came no further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The bucket that has a copy, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<String>,
    /// Why it was not copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_copied: Option<String>,
}

/// Takes one snapshot now, proves it and copies it to the bucket, where one is given. The schedule goes on meanwhile.
/// `again`: one of that name and cause is the same one, of a request that was cut off.
pub async fn take(
    settings: &Path,
    programs: &Programs,
    clock: &Clock,
    name: &SnapshotName,
    (cause, again): (Cause, bool),
    bucket: Option<&Bucket>,
) -> Result<Taken, AskedError> {
    let _ = rustix::process::nice(10);
    let settings = read(settings)?;
    let folder = opened(&settings, programs, ASKED)?;
    let former = match find(&folder.list()?, name.as_str()) {
        Found::Own(meta, grade) if again && meta.cause == cause => Some((*meta, grade)),
        Found::Own(..) | Found::Another | Found::Nothing => None,
    };
    let now = clock.now();
    let (meta, proof) = if let Some((meta, grade)) = former {
        let (name, found) = (name.as_str(), meta.clone());
        let proof = look_into(&settings, programs, &folder, name, found, grade, now);
        (meta, Box::pin(proof).await?)
    } else {
        let asked = Asked {
            name: name.as_str().to_owned(),
            cause,
            now,
        };
        let saving = save_and_prove(&settings, programs, &folder, asked);
        let (saved, proof) = Box::pin(saving).await?;
        (saved.meta, proof)
    };
    let zip = folder.zip(name.as_str());
    let bytes = fs::metadata(&zip)?.len();
    let listed = Listed {
        file: bucket::object(name.as_str()),
        bytes,
        meta: Some(meta.clone()),
        proof: Some(proof.clone()),
    };
    let copied = match bucket {
        None => Ok(None),
        Some(_) if proof.grade == Grade::Failed => Err("it cannot be restored".to_owned()),
        Some(bucket) => copied(bucket, &listed, &zip).await.map(Some),
    };
    let (copied, not_copied) = match copied {
        Ok(copied) => (copied, None),
        Err(why) => (None, Some(why)),
    };
    Ok(Taken {
        path: zip.display().to_string(),
        bytes,
        sha256: meta.sha256,
        grade: proof.grade,
        why: proof.why,
        copied,
        not_copied,
    })
}

async fn copied(bucket: &Bucket, listed: &Listed, zip: &Path) -> Result<String, String> {
    let store = Store::open(bucket).map_err(|error| error.line())?;
    let copied = store.copy(listed, zip).await;
    copied.map_err(|error| error.line())?;
    Ok(store.place().to_owned())
}

/// What is done with a snapshot of some name on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It is looked into once more.
    Verify,
    /// It is deleted.
    Delete,
}

/// The result for a snapshot on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "outcome")]
pub enum Answer {
    /// The node has none of that name.
    Absent,
    /// A file of that name is there that is not a snapshot of this cluster that rke-operator wrote. It was left alone.
    Foreign,
    /// It was verified.
    Verified(Proof),
    /// It was deleted.
    Deleted,
    /// It stays: the node has no other that was restored for trial.
    LastProven,
}

impl Answer {
    /// True when the snapshot is proven, deleted, or not on this node.
    pub fn is_well(&self) -> bool {
        match self {
            Self::Absent | Self::Deleted => true,
            Self::Verified(proof) => proof.grade == Grade::Proven,
            Self::Foreign | Self::LastProven => false,
        }
    }

    /// For people; `name` is the snapshot's.
    pub fn line(&self, name: &str) -> String {
        match self {
            Self::Absent => format!("has no `{name}`"),
            Self::Foreign => format!(
                "`{name}` was left alone: rke-operator did not write it for this cluster (it is in `{}`)",
                path::SNAPSHOTS
            ),
            Self::Deleted => format!("deleted `{name}`"),
            Self::LastProven => format!(
                "`{name}` stays: the node has no other proven snapshot; `rke-operator etcd snapshot-save` takes one"
            ),
            Self::Verified(proof) => format!("`{name}` {}", found_out(proof)),
        }
    }
}

fn found_out(proof: &Proof) -> String {
    let mut text = match proof.grade {
        Grade::Proven => "is proven",
        Grade::Checked => "is checked, and was not restored for trial",
        Grade::Saved => "was not looked into",
        Grade::Failed => "cannot be restored",
    }
    .to_owned();
    let known = [
        proof.keys.map(|keys| format!("{keys} keys")),
        proof
            .revision
            .map(|revision| format!("revision {revision}")),
        proof
            .etcd_version
            .as_ref()
            .map(|it| format!("etcd {}", printable(it))),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    if !known.is_empty() {
        let _ = write!(text, " ({})", known.join(", "));
    }
    if let Some(why) = &proof.why {
        let _ = write!(text, ": {}", printable(why));
    }
    text
}

/// What is in the folder under that name.
enum Found {
    Nothing,
    Another,
    Own(Box<Meta>, Option<Grade>),
}

fn find(listed: &[Listed], name: &str) -> Found {
    let own = listed.iter().find(|one| one.file == format!("{name}.zip"));
    match own.and_then(|one| Some((one.meta.clone()?, one.grade()))) {
        Some((meta, grade)) => Found::Own(Box::new(meta), grade),
        None if listed.iter().any(|one| one.name() == name) => Found::Another,
        None => Found::Nothing,
    }
}

/// Restores it for trial, as when it was taken. What is found out takes the place of what was on record, unless this could
/// only not be done as far now.
pub async fn verify(
    settings: &Path,
    programs: &Programs,
    clock: &Clock,
    name: &SnapshotName,
) -> Result<Answer, AskedError> {
    let _ = rustix::process::nice(10);
    let settings = read(settings)?;
    let folder = opened(&settings, programs, ASKED)?;
    let (meta, before) = match find(&folder.list()?, name.as_str()) {
        Found::Nothing => return Ok(Answer::Absent),
        Found::Another => return Ok(Answer::Foreign),
        Found::Own(meta, grade) => (*meta, grade),
    };
    let now = clock.now();
    let proof = look_into(
        &settings,
        programs,
        &folder,
        name.as_str(),
        meta,
        before,
        now,
    );
    Ok(Answer::Verified(proof.await?))
}

/// Looks into a snapshot that lies in the folder, and notes what is found out, unless this could only not be done as far
/// as before.
pub(super) async fn look_into(
    settings: &Settings,
    programs: &Programs,
    folder: &Folder,
    name: &str,
    meta: Meta,
    before: Option<Grade>,
    now: Timestamp,
) -> Result<Proof, SaveError> {
    room(folder, meta.bytes)?;
    let work = folder.work()?;
    let bytes = meta.bytes;
    let database = memory::or_disk(&work, bytes).join("database");
    remove(&database)?;
    let unpacked = unpack(folder.zip(name), name.to_owned(), database.clone(), bytes).await;
    let saved = Saved {
        name: name.to_owned(),
        meta,
        database,
    };
    let proof = match unpacked {
        Ok(()) => prove(settings, programs, folder, &work, &saved, now).await,
        Err(error) => damaged(settings, &error, now),
    };
    remove(&saved.database)?;
    if proof.grade == Grade::Failed || Some(proof.grade) >= before {
        folder.prove(&work, name, &proof)?;
    }
    folder.clear()?;
    Ok(proof)
}

/// Of this look, or of one that was cut short.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

async fn unpack(zip: PathBuf, name: String, to: PathBuf, bytes: u64) -> io::Result<()> {
    blocking(move || archive::database(File::open(zip)?, &name, &mut private(&to)?, bytes)).await
}

fn damaged(settings: &Settings, error: &io::Error, now: Timestamp) -> Proof {
    Proof {
        grade: Grade::Failed,
        at: now,
        by: settings.node.clone(),
        etcd_version: None,
        revision: None,
        keys: None,
        seconds: 0,
        why: Some(format!("its zip cannot be read: {error}")),
    }
}

/// Deletes it, unless it is the only one of the node that was restored for trial.
pub fn delete(
    settings: &Path,
    programs: &Programs,
    name: &SnapshotName,
) -> Result<Answer, AskedError> {
    let settings = read(settings)?;
    let folder = opened(&settings, programs, ASKED)?;
    let listed = folder.list()?;
    match find(&listed, name.as_str()) {
        Found::Nothing => return Ok(Answer::Absent),
        Found::Another => return Ok(Answer::Foreign),
        Found::Own(..) => {}
    }
    if is_last_proven(name.as_str(), &kept(&listed)) {
        return Ok(Answer::LastProven);
    }
    folder.delete(name.as_str())?;
    Ok(Answer::Deleted)
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Duration};

    use super::*;
    use crate::{
        model::{ClusterId, NodeName, Retention, SnapshotPolicy},
        snapshots::{folder::Folder, record::tests::meta as example},
    };

    /// A folder, and what the program on a node works with.
    struct Node {
        at: tempfile::TempDir,
        programs: Programs,
    }

    impl Node {
        fn new() -> Self {
            let at = tempfile::tempdir().unwrap();
            let settings = Settings {
                cluster_id: ClusterId("c-1".to_owned()),
                cluster_name: "prod".to_owned(),
                node: NodeName::from("n1"),
                kubernetes_version: "v1.34.4".to_owned(),
                ca: String::new(),
                cert: String::new(),
                key: String::new(),
                policy: SnapshotPolicy {
                    interval: 3600,
                    retention: Retention::Newest(3),
                    timeout: 60,
                    safe_timestamp: false,
                },
                bucket: None,
            };
            let text = serde_json::to_vec(&settings).unwrap();
            fs::write(at.path().join("settings"), text).unwrap();
            let programs = Programs {
                etcd: "/no-etcd".into(),
                etcdutl: "/no-etcdutl".into(),
                folder: at.path().join("snapshots"),
                member: SocketAddr::from(([127, 0, 0, 1], 1)),
                port: 0,
                looks: Duration::from_secs(1),
            };
            Self { at, programs }
        }

        fn folder(&self) -> Folder {
            opened(&read(&self.settings()).unwrap(), &self.programs, ASKED).unwrap()
        }

        fn settings(&self) -> PathBuf {
            self.at.path().join("settings")
        }

        fn save(&self, name: &str, grade: Grade) {
            let folder = self.folder();
            let work = folder.work().unwrap();
            let (database, zip) = (work.join("db"), work.join("zip"));
            fs::write(&database, b"data").unwrap();
            let meta = Meta {
                bytes: 4,
                ..example()
            };
            archive::write(File::create(&zip).unwrap(), name, &database, &meta).unwrap();
            folder.keep(&zip, name).unwrap();
            let proof = Proof {
                grade,
                ..damaged(
                    &read(&self.settings()).unwrap(),
                    &io::Error::other("x"),
                    example().taken_at,
                )
            };
            folder.prove(&work, name, &proof).unwrap();
            folder.clear().unwrap();
        }

        fn delete(&self, name: &str) -> Answer {
            delete(&self.settings(), &self.programs, &name.parse().unwrap()).unwrap()
        }

        async fn verify(&self, name: &str) -> Answer {
            let (settings, name) = (self.settings(), name.parse().unwrap());
            let clock = Clock::new(|| Timestamp::UNIX_EPOCH);
            verify(&settings, &self.programs, &clock, &name)
                .await
                .unwrap()
        }

        fn names(&self) -> Vec<String> {
            let listed = self.folder().list().unwrap();
            listed.into_iter().map(|one| one.file).collect()
        }
    }

    #[test]
    fn the_last_proven_one_and_the_files_of_others_stay() {
        let node = Node::new();
        node.save("good", Grade::Proven);
        node.save("better", Grade::Proven);
        node.save("bad", Grade::Failed);
        fs::write(node.programs.folder.join("plain"), b"of a person").unwrap();
        assert_eq!(node.delete("none"), Answer::Absent);
        assert_eq!(node.delete("plain"), Answer::Foreign);
        assert_eq!(node.delete("bad"), Answer::Deleted);
        assert_eq!(node.delete("good"), Answer::Deleted);
        assert_eq!(node.delete("better"), Answer::LastProven);
        assert_eq!(node.names(), ["better.zip", "plain"]);
    }

    #[tokio::test]
    async fn only_an_error_of_the_snapshot_takes_a_proof_away() {
        let node = Node::new();
        node.save("one", Grade::Proven);
        assert_eq!(node.verify("none").await, Answer::Absent);
        // No program of etcd is there: that is no error of the snapshot.
        let Answer::Verified(proof) = node.verify("one").await else {
            panic!("it is there");
        };
        assert_eq!(proof.grade, Grade::Saved, "{proof:?}");
        assert!(proof.why.unwrap().contains("cannot run etcdutl"));
        assert_eq!(
            node.folder().list().unwrap()[0].grade(),
            Some(Grade::Proven)
        );

        let zip = node.folder().zip("one");
        let mut bytes = fs::read(&zip).unwrap();
        let at = bytes
            .windows(11)
            .position(|it| it == b"/backup/one")
            .unwrap()
            + 12;
        bytes[at] ^= 0x40;
        fs::write(&zip, bytes).unwrap();
        let Answer::Verified(proof) = node.verify("one").await else {
            panic!("it is there");
        };
        assert_eq!(proof.grade, Grade::Failed, "{proof:?}");
        assert_eq!(node.folder().list().unwrap()[0].proof, Some(proof));
        assert_eq!(node.names(), ["one.zip"]);
    }
}

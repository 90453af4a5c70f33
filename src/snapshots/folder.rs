//! The folder of a node's snapshots: what is in it, and the files of this program. Other files are listed, and never
//! touched.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::{
    archive,
    prune::Kept,
    record::{Cause, Grade, Listed, Meta, Proof},
};
use crate::model::ClusterId;

/// Where the schedule works. All that is in it is of a run that was ended.
pub(super) const WORK: &str = ".rke-operator-agent";
/// Where what a person asks for is made: both may work at a time.
pub(super) const ASKED: &str = ".rke-operator-asked";
/// The end of the name of what was found out about a snapshot.
const PROOF: &str = ".proof.json";
/// The end of the name of a snapshot's zip.
const ZIP: &str = ".zip";

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
    cluster: ClusterId,
    work: &'static str,
}

impl Folder {
    /// A folder, for snapshots of a cluster. Makes it root's alone: snapshots have every secret.
    pub(super) fn open(path: PathBuf, cluster: ClusterId, work: &'static str) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        Ok(Self {
            path,
            cluster,
            work,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True where a snapshot of that name is there, in either form.
    pub(super) fn has(&self, name: &str) -> bool {
        self.path.join(name).exists() || self.zip(name).exists()
    }

    /// The file of a snapshot.
    pub(super) fn zip(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{ZIP}"))
    }

    /// An empty folder to work in, on the same disk.
    pub(super) fn work(&self) -> io::Result<PathBuf> {
        self.clear()?;
        let work = self.path.join(self.work);
        fs::create_dir(&work)?;
        fs::set_permissions(&work, Permissions::from_mode(0o700))?;
        Ok(work)
    }

    /// Deletes the folder that was worked in.
    pub(super) fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.path.join(self.work)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// The bytes that are free on its disk, for root.
    pub(super) fn free(&self) -> io::Result<u64> {
        free(&self.path)
    }

    /// The regular files in it, by name. Files that belong to a snapshot are with it.
    pub(super) fn list(&self) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(file) = entry.file_name().into_string() else {
                continue;
            };
            // Neither a folder nor a link; one that was deleted meanwhile is none either.
            let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_file) else {
                continue;
            };
            if file.starts_with('.') || file.ends_with(PROOF) {
                continue;
            }
            let meta = self.meta(&file);
            let proof = meta.as_ref().and_then(|_| self.proof(&file));
            listed.push(Listed {
                file,
                bytes: metadata.len(),
                meta,
                proof,
            });
        }
        listed.sort_by(|one, other| one.file.cmp(&other.file));
        Ok(listed)
    }

    /// What a file says about itself, where it is this program's and of this cluster.
    fn meta(&self, file: &str) -> Option<Meta> {
        file.strip_suffix(ZIP)?;
        let meta = archive::meta(File::open(self.path.join(file)).ok()?)?;
        (meta.cluster_id == self.cluster).then_some(meta)
    }

    fn proof(&self, file: &str) -> Option<Proof> {
        let name = file.strip_suffix(ZIP)?;
        let text = fs::read(self.path.join(format!("{name}{PROOF}"))).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Puts a zip in its place. The error `AlreadyExists`: nothing is ever replaced.
    pub(super) fn keep(&self, zip: &Path, name: &str) -> io::Result<()> {
        if self.has(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::hard_link(zip, self.zip(name))?;
        File::open(&self.path)?.sync_all()
    }

    /// Writes down what was found out about a snapshot, in place of what was there.
    pub(super) fn prove(&self, work: &Path, name: &str, proof: &Proof) -> io::Result<()> {
        let new = work.join("proof.json");
        fs::write(&new, serde_json::to_vec_pretty(proof)?)?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        fs::rename(new, self.path.join(format!("{name}{PROOF}")))
    }

    /// Deletes a snapshot of this cluster that this program wrote. Its record is read once more first.
    pub(super) fn delete(&self, name: &str) -> io::Result<()> {
        let file = format!("{name}{ZIP}");
        if self.meta(&file).is_none() {
            return Ok(());
        }
        match fs::remove_file(self.path.join(format!("{name}{PROOF}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::remove_file(self.path.join(file))
    }
}

/// The bytes that are free on the disk of a folder, for root.
pub(super) fn free(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Those of this cluster, for whatever decides which stay.
pub(super) fn kept(listed: &[Listed]) -> Vec<Kept> {
    let each = listed.iter().filter_map(|one| {
        let meta = one.meta.as_ref()?;
        Some(Kept {
            name: one.name().to_owned(),
            taken: meta.taken_at,
            recurring: meta.cause == Cause::Scheduled,
            proven: one.grade() == Some(Grade::Proven),
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::record::tests::meta as example;

    fn save(folder: &Folder, name: &str, meta: &Meta) {
        let work = folder.work().unwrap();
        let (database, zip) = (work.join("db"), work.join("zip"));
        fs::write(&database, b"data").unwrap();
        archive::write(File::create(&zip).unwrap(), name, &database, meta).unwrap();
        folder.keep(&zip, name).unwrap();
        folder.clear().unwrap();
    }

    fn opened(at: &Path) -> Folder {
        Folder::open(at.join("snapshots"), ClusterId("c-1".to_owned()), WORK).unwrap()
    }

    #[test]
    fn only_what_says_that_it_is_of_this_cluster_is_deleted() {
        let at = tempfile::tempdir().unwrap();
        let folder = opened(at.path());
        save(&folder, "own", &example());
        let other = Meta {
            cluster_id: ClusterId("c-2".to_owned()),
            ..example()
        };
        save(&folder, "other", &other);
        for (file, content) in [
            ("2026-11-28T10:00:00Z_etcd", &b"plain"[..]),
            ("rke.zip", include_bytes!("../etcd/rke.zip")),
            ("torn.zip", b"PK"),
        ] {
            fs::write(folder.path().join(file), content).unwrap();
        }
        std::os::unix::fs::symlink(
            folder.path().join("own.zip"),
            folder.path().join("link.zip"),
        )
        .unwrap();
        let listed = folder.list().unwrap();
        let files: Vec<(&str, bool)> = listed
            .iter()
            .map(|one| (one.file.as_str(), one.meta.is_some()))
            .collect();
        assert_eq!(
            files,
            [
                ("2026-11-28T10:00:00Z_etcd", false),
                ("other.zip", false),
                ("own.zip", true),
                ("rke.zip", false),
                ("torn.zip", false),
            ]
        );
        for one in &listed {
            folder.delete(one.name()).unwrap();
        }
        let left: Vec<String> = folder
            .list()
            .unwrap()
            .into_iter()
            .map(|it| it.file)
            .collect();
        assert_eq!(left.len(), 4, "{left:?}");
        assert!(!left.contains(&"own.zip".to_owned()));
    }

    #[test]
    fn nothing_is_replaced_and_nothing_is_left_of_a_run_that_was_ended() {
        let at = tempfile::tempdir().unwrap();
        let folder = opened(at.path());
        save(&folder, "own", &example());
        let work = folder.work().unwrap();
        fs::write(work.join("zip"), b"another").unwrap();
        let again = folder.keep(&work.join("zip"), "own").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        fs::write(folder.path().join("plain"), b"of a person").unwrap();
        let plain = folder.keep(&work.join("zip"), "plain").unwrap_err();
        assert_eq!(plain.kind(), io::ErrorKind::AlreadyExists);
        // As after a kill.
        let work = folder.work().unwrap();
        assert_eq!(fs::read_dir(work).unwrap().count(), 0);
        let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_proof_belongs_to_its_snapshot() {
        let at = tempfile::tempdir().unwrap();
        let folder = opened(at.path());
        save(&folder, "own", &example());
        assert_eq!(folder.list().unwrap()[0].grade(), Some(Grade::Saved));
        let proof = Proof {
            grade: Grade::Proven,
            at: example().taken_at,
            by: example().node,
            etcd_version: None,
            revision: Some(101),
            keys: Some(50),
            seconds: 1,
            why: None,
        };
        let work = folder.work().unwrap();
        folder.prove(&work, "own", &proof).unwrap();
        let listed = folder.list().unwrap();
        assert_eq!(listed[0].proof, Some(proof));
        assert!(kept(&listed)[0].proven);
        folder.delete("own").unwrap();
        folder.clear().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

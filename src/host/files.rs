//! Files on the node, as root, without a process: archives into and out of the claim.
//!
//! The claim is created and never started. It binds the node's folders at neutral paths below
//! [`ROOT`], where Docker itself puts nothing; dockerd mounts the binds for an archive call.
//! Bound are folders that every node has: dockerd would make a missing one.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    sync::Arc,
};

use bollard::query_parameters::{
    DownloadFromContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use bytes::Bytes;
use futures::{StreamExt, future::try_join_all};
use http_body_util::{Either, Full};
use tar::{Archive, Builder, EntryType, Header};
use zeroize::Zeroizing;

use super::{
    error::HostError,
    machine::Host,
    sieve::{Bounds, Refused, Sieve},
};
use crate::{
    facts::FileFact,
    model::{CLAIM, CLAIM_DIRS, Owner, Secret},
};

/// Where the claim sees the node.
const ROOT: &str = "/host";

/// No file of rke-operator is larger than `FILE`, nor all together than `FILES`: larger ones are another owner's.
const FILE: usize = 1 << 20;
const FILES: usize = 8 << 20;
/// What a helper leaves behind.
const OUTPUT: usize = 64 << 20;

/// The length of what ends an archive.
const END: usize = 2 * BLOCK;
const BLOCK: usize = 512;

/// Every file gets this time, so that equal contents make equal archives.
const MTIME: u64 = 0;

/// The claim's binds: `/etc`, which every node has, and the folders that a claim makes. Not all
/// of `/var/lib`: dockerd would bind every container's file system along with it, each time.
pub(super) fn claim_binds() -> Vec<String> {
    let folders = CLAIM_DIRS.iter().map(|(folder, _)| *folder);
    folders
        .chain(["/etc"])
        .map(|folder| format!("{folder}:{ROOT}{folder}"))
        .collect()
}

/// A file to be written.
#[derive(Clone, Copy)]
pub struct NewFile<'a> {
    /// Permission bits.
    pub mode: u32,
    /// Whose it is.
    pub owner: Owner,
    /// The bytes.
    pub content: &'a Secret<Vec<u8>>,
}

impl Host {
    /// Reads the files and directories at and below some paths of `/etc`, through the claim. A
    /// path that is not there has no entry; links and devices have none either.
    pub async fn read_files(
        &self,
        roots: &[&str],
    ) -> Result<BTreeMap<String, FileFact>, HostError> {
        let bounds = Bounds::new(FILE, FILES);
        let read = roots
            .iter()
            .map(|root| self.read_within(&bounds, CLAIM, ROOT, root));
        let read = try_join_all(read).await?;
        let files: BTreeMap<String, FileFact> = read.into_iter().flatten().collect();
        if files.is_empty() && !roots.is_empty() && self.inspected(CLAIM).await?.is_none() {
            // Docker answers the same for a missing path and a missing container.
            return Err(HostError::Docker {
                at: self.session.place(),
                doing: "read files".to_owned(),
                status: 404,
                message: format!("there is no container `{CLAIM}`"),
            });
        }
        Ok(files)
    }

    /// One file of the node, through the claim; `None`: there is none, or no claim.
    pub async fn read_file(&self, path: &str) -> Result<Option<FileFact>, HostError> {
        let mut found = self.read_below(CLAIM, ROOT, path).await?;
        Ok(found.remove(path))
    }

    /// The files at and below a path of a container, which need not run; nothing where it has no such
    /// path.
    pub(super) async fn read_below(
        &self,
        container: &str,
        prefix: &str,
        root: &str,
    ) -> Result<BTreeMap<String, FileFact>, HostError> {
        let bounds = Bounds::new(OUTPUT, OUTPUT);
        self.read_within(&bounds, container, prefix, root).await
    }

    /// The same within bounds, which may be those of other paths as well.
    async fn read_within(
        &self,
        bounds: &Bounds,
        container: &str,
        prefix: &str,
        root: &str,
    ) -> Result<BTreeMap<String, FileFact>, HostError> {
        match self.get(container, prefix, root, bounds).await? {
            Some(archive) => unpack(&archive, root).map_err(|source| self.archive(source)),
            None => Ok(BTreeMap::new()),
        }
    }

    /// Writes directories (path → mode) and files through the claim, owned by root, in one
    /// archive, and reads the files back. Not atomic.
    pub async fn write_files(
        &self,
        dirs: &BTreeMap<String, u32>,
        files: &BTreeMap<&str, NewFile<'_>>,
    ) -> Result<(), HostError> {
        self.put(CLAIM, ROOT, dirs, files).await?;
        self.check(files).await
    }

    /// As [`Self::write_files`], for what checks its own contents: they are not read back.
    pub async fn put_files(
        &self,
        dirs: &BTreeMap<String, u32>,
        files: &BTreeMap<&str, NewFile<'_>>,
    ) -> Result<(), HostError> {
        self.put(CLAIM, ROOT, dirs, files).await
    }

    /// Puts directories and files below `prefix` into a container.
    pub(super) async fn put(
        &self,
        container: &str,
        prefix: &str,
        dirs: &BTreeMap<String, u32>,
        files: &BTreeMap<&str, NewFile<'_>>,
    ) -> Result<(), HostError> {
        let archive = pack(prefix, dirs, files).map_err(|source| self.archive(source))?;
        let options = UploadToContainerOptionsBuilder::new().path("/").build();
        let body = Either::Left(Full::new(Bytes::copy_from_slice(&archive)));
        let put = self
            .docker()
            .upload_to_container(container, Some(options), body)
            .await;
        let Err(error) = self.done("write files", put).await else {
            return Ok(());
        };
        if error.docker_status().is_none() {
            return Err(error);
        }
        let paths: BTreeSet<&str> = dirs
            .keys()
            .map(String::as_str)
            .chain(files.keys().copied())
            .collect();
        match self.full(&paths).await {
            Some(path) => Err(HostError::DiskFull {
                at: self.session.place(),
                doing: "write files".to_owned(),
                path,
            }),
            None => Err(error),
        }
    }

    /// Compares what is on the node with what was written.
    async fn check(&self, wanted: &BTreeMap<&str, NewFile<'_>>) -> Result<(), HostError> {
        let found = self.read_files(&places(wanted.keys().copied())).await?;
        for (path, new) in wanted {
            let what = match found.get(*path) {
                None => "it is not there",
                Some(fact) if *fact.content != *new.content => "the content differs",
                Some(fact) if fact.mode != new.mode => "the mode differs",
                Some(fact) if !fact.is_of(new.owner) => "the owner differs",
                Some(_) => continue,
            };
            return Err(HostError::ReadBack {
                at: self.session.place(),
                path: (*path).to_owned(),
                what,
            });
        }
        Ok(())
    }

    async fn get(
        &self,
        container: &str,
        prefix: &str,
        path: &str,
        bounds: &Bounds,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, HostError> {
        let options = DownloadFromContainerOptionsBuilder::new()
            .path(&format!("{prefix}{path}"))
            .build();
        let docker = self.docker();
        let mut stream = Box::pin(docker.download_from_container(container, Some(options)));
        let mut archive = Sieve::new(bounds.clone());
        let mut failure = None;
        while let Some(chunk) = stream.next().await {
            match chunk {
                Ok(chunk) => archive.feed(&chunk).map_err(|refused| {
                    self.archive(match refused {
                        Refused::TooLarge => io::Error::new(
                            io::ErrorKind::FileTooLarge,
                            format!(
                                "the files at and below `{path}` are too large to be this cluster's"
                            ),
                        ),
                        Refused::NoArchive => io::ErrorKind::InvalidData.into(),
                    })
                })?,
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        let result = failure.map_or(Ok(()), Err);
        match self.done(format!("read `{path}`"), result).await {
            Ok(()) => Ok(Some(archive.end())),
            Err(error) if error.docker_status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn archive(&self, source: io::Error) -> HostError {
        HostError::Archive {
            at: self.session.place(),
            source,
        }
    }
}

/// What to read to see these files: folders of `/etc`, which are small, and single files
/// elsewhere.
fn places<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut places = BTreeSet::new();
    for path in paths {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let small = folder.starts_with("/etc/");
        places.insert(if small { folder } else { path });
    }
    let inside = |place: &str| {
        places.iter().any(|other| {
            place
                .strip_prefix(other)
                .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    places
        .iter()
        .copied()
        .filter(|place| !inside(place))
        .collect()
}

fn pack(
    prefix: &str,
    dirs: &BTreeMap<String, u32>,
    files: &BTreeMap<&str, NewFile<'_>>,
) -> io::Result<Zeroizing<Vec<u8>>> {
    // Room for everything at once: growing would leave copies of keys behind.
    let size: usize = files
        .iter()
        .map(|(path, file)| file.content.expose().len() + path.len() + 2048)
        .sum();
    let mut archive = Zeroizing::new(Vec::with_capacity(size + dirs.len() * 2048 + 2048));
    let mut builder = Builder::new(&mut *archive);
    let inside = |path: &str| format!("{prefix}{path}").trim_start_matches('/').to_owned();
    for (path, mode) in dirs {
        let mut header = header(EntryType::Directory, *mode, 0);
        builder.append_data(&mut header, inside(path) + "/", io::empty())?;
    }
    for (path, file) in files {
        let content = file.content.expose();
        let mut header = header(EntryType::Regular, file.mode, content.len() as u64);
        header.set_uid(file.owner.uid.into());
        header.set_gid(file.owner.gid.into());
        builder.append_data(&mut header, inside(path), content.as_slice())?;
    }
    builder.finish()?;
    drop(builder);
    Ok(archive)
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(MTIME);
    header.set_size(size);
    header
}

/// The files of an archive of `root`: Docker names its entries from the last part of the path on.
fn unpack(archive: &[u8], root: &str) -> io::Result<BTreeMap<String, FileFact>> {
    // Two empty blocks end an archive: without them it was cut, and what is missing is not known.
    let end = archive
        .len()
        .checked_sub(END)
        .map(|start| &archive[start..]);
    if !archive.len().is_multiple_of(BLOCK)
        || end.is_none_or(|end| end.iter().any(|byte| *byte != 0))
    {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let parent = root.rsplit_once('/').map_or("", |(parent, _)| parent);
    let mut files = BTreeMap::new();
    for entry in Archive::new(archive).entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let is_dir = kind.is_dir();
        if !is_dir && !kind.is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes())
            .trim_end_matches('/')
            .to_owned();
        let path = format!("{parent}/{name}");
        if path != root
            && !path
                .strip_prefix(root)
                .is_some_and(|rest| rest.starts_with('/'))
        {
            continue;
        }
        let size = usize::try_from(entry.size()).unwrap_or_default();
        let mut content = Vec::with_capacity(size.min(archive.len()));
        entry.read_to_end(&mut content)?;
        let header = entry.header();
        files.insert(
            path,
            FileFact {
                content: Arc::new(Secret::new(content)),
                mode: header.mode()? & 0o7777,
                uid: header.uid()?,
                gid: header.gid()?,
                is_dir,
            },
        );
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_comes_back_as_it_was() {
        let content = Secret::new(b"secret".to_vec());
        let new = NewFile {
            mode: 0o600,
            owner: Owner::ROOT,
            content: &content,
        };
        let long = format!("/etc/kubernetes/{}/x", "d".repeat(120));
        let files = BTreeMap::from([("/etc/kubernetes/ssl/key.pem", new), (&long, new)]);
        let dirs = BTreeMap::from([("/etc/kubernetes/ssl".to_owned(), 0o700)]);
        // As dockerd answers for `/host/etc`: names from `etc` on.
        let archive = pack("", &dirs, &files).unwrap();
        let found = unpack(&archive, "/etc").unwrap();
        let paths: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            [
                long.as_str(),
                "/etc/kubernetes/ssl",
                "/etc/kubernetes/ssl/key.pem"
            ]
        );
        let key = &found["/etc/kubernetes/ssl/key.pem"];
        assert_eq!((key.mode, key.uid, key.gid), (0o600, 0, 0));
        assert_eq!(*key.content, content);
        assert!(found["/etc/kubernetes/ssl"].is_dir);
        assert_eq!(pack("", &dirs, &files).unwrap(), archive);
    }

    #[test]
    fn an_archive_that_was_cut_is_an_error_wherever_it_was_cut() {
        let content = Secret::new(vec![7; 600]);
        let new = NewFile {
            mode: 0o600,
            owner: Owner::ROOT,
            content: &content,
        };
        let files = BTreeMap::from([("/etc/a", new), ("/etc/b", new)]);
        let archive = pack("", &BTreeMap::new(), &files).unwrap();
        for length in 0..archive.len() {
            assert!(unpack(&archive[..length], "/etc").is_err(), "{length}");
        }
        assert_eq!(unpack(&archive, "/etc").unwrap().len(), 2);
    }

    #[test]
    fn only_what_lies_under_the_root_is_taken() {
        let content = Secret::new(Vec::new());
        let new = NewFile {
            mode: 0o644,
            owner: Owner::ROOT,
            content: &content,
        };
        let files = BTreeMap::from(["/cni/a", "/cnixx/b", "/other"].map(|path| (path, new)));
        let archive = pack("", &BTreeMap::new(), &files).unwrap();
        let found = unpack(&archive, "/etc/cni").unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["/etc/cni/a"]);
    }

    #[test]
    fn small_folders_are_read_whole_and_large_ones_are_not() {
        let paths = [
            "/etc/kubernetes/admin.conf",
            "/etc/kubernetes/ssl/a.pem",
            "/etc/sysctl.d/99-rke-operator.conf",
            "/var/lib/kubelet/config.json",
        ];
        assert_eq!(
            places(paths.into_iter()),
            [
                "/etc/kubernetes",
                "/etc/sysctl.d",
                "/var/lib/kubelet/config.json"
            ]
        );
    }
}

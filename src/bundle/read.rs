//! Reading: where each file of the archive is, which images there are, and whether all of it is what its digests say.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use tar::EntryType;

use super::{BLOBS, BundleError, DOCUMENT, ImageConfig, MANIFEST, ManifestEntry};
use crate::{catalog::familiar, model::ImagePlatform};

/// No bundle has more files.
const ENTRIES: usize = 100_000;
/// How much is read at once.
const PIECE: usize = 256 << 10;
/// How a gzip stream begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A bundle whose images are all there, and as their digests say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    path: PathBuf,
    images: BTreeMap<String, Image>,
}

/// One image of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The name that Docker lists.
    pub name: String,
    /// For which machines it is.
    pub platform: ImagePlatform,
    /// Its configuration.
    pub(super) config: Part,
    /// Its layers, in order.
    pub(super) layers: Vec<Part>,
}

/// Where a file of the archive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// SHA-256 of its bytes, in hexadecimal.
    pub(super) digest: String,
    /// Where it begins.
    pub(super) offset: u64,
    /// Its length.
    pub(super) length: u64,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    offset: u64,
    length: u64,
}

impl Bundle {
    /// Reads and verifies a bundle. It blocks for as long as the disk takes to read the whole file.
    pub fn open(path: &Path) -> Result<Self, BundleError> {
        Reader::open(path)?.bundle()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its images, by the names that Docker lists.
    pub const fn images(&self) -> &BTreeMap<String, Image> {
        &self.images
    }

    /// The image of that reference, in whichever form it is written.
    pub fn image(&self, reference: &str) -> Option<&Image> {
        self.images.get(&familiar(reference))
    }
}

impl Image {
    /// Bytes of its configuration and its layers; one that is used twice counts once.
    pub fn bytes(&self) -> u64 {
        self.parts().map(|part| part.length).sum()
    }

    /// Its files, each once.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        let mut seen = BTreeSet::new();
        let parts = self.layers.iter().chain([&self.config]);
        parts.filter(move |part| seen.insert(&part.digest))
    }
}

struct Reader {
    path: PathBuf,
    file: File,
    entries: BTreeMap<String, Span>,
    /// By entry: the SHA-256 of its bytes.
    digests: BTreeMap<String, String>,
}

impl Reader {
    fn open(path: &Path) -> Result<Self, BundleError> {
        let failed = |source| BundleError::Read {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let entries = entries(&file, metadata.len()).map_err(|source| BundleError::NotTar {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            entries,
            digests: BTreeMap::new(),
        })
    }

    fn bundle(mut self) -> Result<Bundle, BundleError> {
        let Some(span) = self.entries.get(MANIFEST).copied() else {
            let path = self.path;
            return Err(BundleError::NoManifest { path });
        };
        let text = self.document(MANIFEST, span)?;
        let manifest: Vec<ManifestEntry> =
            serde_json::from_slice(&text).map_err(|error| self.unreadable(MANIFEST, &error))?;
        let mut images = BTreeMap::new();
        for entry in manifest {
            let names: Vec<String> = entry.repo_tags.clone().unwrap_or_default();
            let first = names.first().map_or("without a name", String::as_str);
            let (platform, config, layers) = self.image(&entry, first)?;
            for name in &names {
                let name = familiar(name);
                let image = Image {
                    name: name.clone(),
                    platform: platform.clone(),
                    config: config.clone(),
                    layers: layers.clone(),
                };
                images.insert(name, image);
            }
        }
        Ok(Bundle {
            path: self.path,
            images,
        })
    }

    fn image(
        &mut self,
        entry: &ManifestEntry,
        image: &str,
    ) -> Result<(ImagePlatform, Part, Vec<Part>), BundleError> {
        let span = self.span(&entry.config, image)?;
        let text = self.document(&entry.config, span)?;
        let config: ImageConfig = serde_json::from_slice(&text)
            .map_err(|error| self.unreadable(&entry.config, &error))?;
        let digest = hex::encode(Sha256::digest(&text));
        let name = entry.config.strip_suffix(".json");
        let name = name.or_else(|| entry.config.strip_prefix(BLOBS));
        if name.is_some_and(|name| name.len() == digest.len() && name != digest) {
            return Err(self.damaged(&entry.config, image));
        }
        let ids = &config.rootfs.diff_ids;
        if ids.len() != entry.layers.len() {
            let why = format!(
                "it names {} layers, and `{MANIFEST}` {}",
                ids.len(),
                entry.layers.len()
            );
            return Err(self.unreadable(&entry.config, &why));
        }
        let mut layers = Vec::new();
        for (layer, id) in entry.layers.iter().zip(ids) {
            layers.push(self.layer(layer, id, image)?);
        }
        let platform = ImagePlatform {
            os: config.os,
            architecture: config.architecture,
        };
        let config = Part {
            digest,
            offset: span.offset,
            length: span.length,
        };
        Ok((platform, config, layers))
    }

    /// A layer, verified by the digest in its name, else by that of its content in the configuration.
    fn layer(&mut self, entry: &str, id: &str, image: &str) -> Result<Part, BundleError> {
        let span = self.span(entry, image)?;
        let digest = if let Some(known) = self.digests.get(entry) {
            known.clone()
        } else {
            let read = self.digest(span, false);
            let digest = read.map_err(|source| self.failed(source))?;
            self.digests.insert(entry.to_owned(), digest.clone());
            digest
        };
        let is_it = if let Some(name) = entry.strip_prefix(BLOBS) {
            name == digest
        } else {
            let wanted = id.strip_prefix("sha256:").unwrap_or(id);
            wanted == digest || {
                let inner = self.digest(span, true);
                inner.is_ok_and(|inner| inner == wanted)
            }
        };
        if !is_it {
            return Err(self.damaged(entry, image));
        }
        Ok(Part {
            digest,
            offset: span.offset,
            length: span.length,
        })
    }

    /// Of the bytes as they are, or of what they are the compressed form of.
    fn digest(&mut self, span: Span, unpacked: bool) -> io::Result<String> {
        self.file.seek(SeekFrom::Start(span.offset))?;
        let mut start = [0; 2];
        let mut part = (&self.file).take(span.length);
        if unpacked {
            part.read_exact(&mut start)?;
            if start != GZIP {
                return Err(io::ErrorKind::InvalidData.into());
            }
            return hashed(MultiGzDecoder::new(start.chain(part)));
        }
        hashed(part)
    }

    fn span(&self, entry: &str, image: &str) -> Result<Span, BundleError> {
        let found = self.entries.get(clean(entry).as_str()).copied();
        found.ok_or_else(|| BundleError::Missing {
            path: self.path.clone(),
            entry: entry.to_owned(),
            image: image.to_owned(),
        })
    }

    fn document(&mut self, entry: &str, span: Span) -> Result<Vec<u8>, BundleError> {
        if span.length > DOCUMENT {
            return Err(self.unreadable(entry, &"it is too large"));
        }
        let mut text = Vec::new();
        let mut read = || {
            self.file.seek(SeekFrom::Start(span.offset))?;
            (&self.file).take(span.length).read_to_end(&mut text)
        };
        match read() {
            Ok(_) => Ok(text),
            Err(source) => Err(self.failed(source)),
        }
    }

    fn failed(&self, source: io::Error) -> BundleError {
        BundleError::Read {
            path: self.path.clone(),
            source,
        }
    }

    fn unreadable(&self, entry: &str, why: &dyn std::fmt::Display) -> BundleError {
        BundleError::Document {
            path: self.path.clone(),
            entry: entry.to_owned(),
            why: why.to_string(),
        }
    }

    fn damaged(&self, entry: &str, image: &str) -> BundleError {
        BundleError::Damaged {
            path: self.path.clone(),
            entry: entry.to_owned(),
            image: image.to_owned(),
        }
    }
}

fn hashed(mut part: impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match part.read(&mut piece)? {
            0 => return Ok(hex::encode(hash.finalize())),
            count => hash.update(&piece[..count]),
        }
    }
}

/// Where the files of an archive are. Nothing is unpacked: a name that leads out of the archive is only a name.
fn entries(file: &File, length: u64) -> io::Result<BTreeMap<String, Span>> {
    let mut spans = BTreeMap::new();
    let mut links = Vec::new();
    let mut archive = tar::Archive::new(file);
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let name = clean(&String::from_utf8_lossy(&entry.path_bytes()));
        let kind = entry.header().entry_type();
        if kind == EntryType::Regular || kind == EntryType::Continuous {
            let span = Span {
                offset: entry.raw_file_position(),
                length: entry.size(),
            };
            if span
                .offset
                .checked_add(span.length)
                .is_none_or(|end| end > length)
            {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            spans.insert(name, span);
        } else if (kind == EntryType::Symlink || kind == EntryType::Link)
            && let Some(to) = entry.link_name_bytes()
        {
            let to = String::from_utf8_lossy(&to).into_owned();
            let from = if kind == EntryType::Link {
                ""
            } else {
                name.as_str()
            };
            links.push((name.clone(), link_target(from, &to)));
        }
        if spans.len() + links.len() > ENTRIES {
            return Err(io::Error::other("it has too many files"));
        }
    }
    if spans.is_empty() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Old archives have a layer that is used twice as a link to the first one.
    for (name, to) in links {
        if let Some(span) = spans.get(&to).copied() {
            spans.entry(name).or_insert(span);
        }
    }
    Ok(spans)
}

/// A name without `.` and empty parts.
fn clean(name: &str) -> String {
    let parts = name
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".");
    parts.collect::<Vec<_>>().join("/")
}

/// Where a link in the place of `name` leads to.
fn link_target(name: &str, to: &str) -> String {
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
pub(super) mod tests {
    use tar::{Builder, Header};

    use super::*;

    /// An archive of these files, in order.
    pub(in crate::bundle) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, name, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    pub(in crate::bundle) fn sha(bytes: &[u8]) -> String {
        hex::encode(Sha256::digest(bytes))
    }

    pub(in crate::bundle) fn config(layers: &[&[u8]]) -> Vec<u8> {
        let ids: Vec<String> = layers
            .iter()
            .map(|it| format!("sha256:{}", sha(it)))
            .collect();
        let config = serde_json::json!({
            "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ids},
        });
        config.to_string().into_bytes()
    }

    #[expect(clippy::unwrap_in_result, reason = "the error is of the bundle")]
    fn read(bytes: &[u8]) -> Result<Bundle, BundleError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle.tar");
        std::fs::write(&path, bytes).unwrap();
        Bundle::open(&path)
    }

    /// As Docker before 25 writes it, with a layer that two images have.
    fn old() -> Vec<(String, Vec<u8>)> {
        let (base, top): (&[u8], &[u8]) = (b"the base", b"the top");
        let (one, two) = (config(&[base]), config(&[base, top]));
        let (first, second) = (format!("{}.json", sha(&one)), format!("{}.json", sha(&two)));
        let manifest = serde_json::json!([
            {"Config": first, "RepoTags": ["a/one:1"], "Layers": ["aa/layer.tar"]},
            {"Config": second, "RepoTags": ["docker.io/a/two:2"], "Layers": ["aa/layer.tar", "bb/layer.tar"]},
        ]);
        [
            (first, one),
            (second, two),
            ("aa/layer.tar".to_owned(), base.to_vec()),
            ("bb/layer.tar".to_owned(), top.to_vec()),
            (MANIFEST.to_owned(), manifest.to_string().into_bytes()),
        ]
        .into()
    }

    fn packed(files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let files: Vec<(&str, &[u8])> = files
            .iter()
            .map(|(name, it)| (name.as_str(), it.as_slice()))
            .collect();
        archive(&files)
    }

    #[test]
    fn an_old_archive_is_read() {
        let bundle = read(&packed(&old())).unwrap();
        let names: Vec<_> = bundle.images().keys().map(String::as_str).collect();
        assert_eq!(names, ["a/one:1", "a/two:2"]);
        let two = bundle.image("docker.io/a/two:2").unwrap();
        assert_eq!(two.layers.len(), 2);
        assert_eq!(two.platform.to_string(), "linux/amd64");
    }

    #[test]
    fn every_damaged_file_is_named() {
        for index in 0..4 {
            let mut files = old();
            let last = files[index].1.len() - 2;
            files[index].1[last] ^= 1;
            let error = read(&packed(&files)).unwrap_err().to_string();
            let name = &files[index].0;
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_missing_layer_is_named() {
        let mut files = old();
        files.remove(3);
        let error = read(&packed(&files)).unwrap_err();
        let BundleError::Missing { entry, image, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(
            (entry.as_str(), image.as_str()),
            ("bb/layer.tar", "docker.io/a/two:2")
        );
    }

    #[test]
    fn a_file_that_is_cut_off_or_something_else_is_refused() {
        let whole = packed(&old());
        let layers = whole.windows(8).position(|it| it == b"the base").unwrap();
        assert!(matches!(
            read(&whole[..layers + 4]),
            Err(BundleError::NotTar { .. })
        ));
        assert!(matches!(
            read(b"PK\x03\x04 a zip"),
            Err(BundleError::NotTar { .. })
        ));
        assert!(matches!(read(b""), Err(BundleError::NotTar { .. })));
        let other = archive(&[("a.txt", b"text")]);
        assert!(matches!(read(&other), Err(BundleError::NoManifest { .. })));
        let broken = archive(&[(MANIFEST, b"{")]);
        assert!(matches!(read(&broken), Err(BundleError::Document { .. })));
    }

    /// Nothing outside of the archive is read, whatever its manifest says.
    #[test]
    fn a_manifest_that_leads_out_of_the_archive_finds_nothing() {
        let manifest = br#"[{"Config": "../../etc/passwd", "RepoTags": ["a:1"], "Layers": []}]"#;
        let error = read(&archive(&[(MANIFEST, manifest)])).unwrap_err();
        assert!(matches!(error, BundleError::Missing { .. }), "{error}");
        assert_eq!(
            link_target("aa/layer.tar", "../bb/layer.tar"),
            "bb/layer.tar"
        );
        assert_eq!(
            link_target("aa/layer.tar", "../../../etc/passwd"),
            "etc/passwd"
        );
        assert_eq!(clean("./a//b/."), "a/b");
    }
}

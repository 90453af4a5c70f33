//! Writing. The file that grows is the archive itself, next to its place under another name: each blob is a file of it, so
//! what an interrupted run has is found again, a blob that was cut off is continued, and nothing is on the disk twice.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::Header;

use super::{
    BLOBS, BundleError, DOCUMENT, ImageConfig, MANIFEST, ManifestEntry,
    archive::{head, pad},
};
use crate::{
    catalog::{canonical, familiar},
    model::{ImagePlatform, path},
};

/// The unit of a tar archive.
const BLOCK: u64 = 512;
const PIECE: usize = 256 << 10;
/// What the name of an unfinished file ends with.
const UNFINISHED: &str = ".part";
/// How a gzip stream begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";

/// A bundle that is being written.
#[derive(Debug)]
pub struct BundleWriter {
    target: PathBuf,
    part: PathBuf,
    file: File,
    /// Those that are complete, by their digests.
    blobs: BTreeMap<String, Span>,
    /// Where the next file begins.
    end: u64,
    torn: Option<Torn>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    /// Of the content.
    offset: u64,
    length: u64,
}

/// A blob at the end whose last bytes are missing.
#[derive(Clone, Debug)]
struct Torn {
    digest: String,
    length: u64,
    have: u64,
}

/// Where an image comes from, as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The digest of its manifest.
    pub digest: String,
    /// What kind of manifest that is.
    pub media_type: String,
}

/// An image whose blobs are all in the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedImage {
    /// The reference under which it is loaded.
    pub name: String,
    /// The digest of its configuration.
    pub config: String,
    /// The digests of its layers, in order.
    pub layers: Vec<String>,
    /// Its manifest, where it has one already.
    pub source: Option<Source>,
}

impl BundleWriter {
    /// Goes on with what an earlier run has left, or begins. Another run that writes the same file is an error.
    pub fn begin(target: &Path) -> Result<Self, BundleError> {
        let mut part = target.as_os_str().to_owned();
        part.push(UNFINISHED);
        let part = PathBuf::from(part);
        let opened = || {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false);
            let file = options.open(&part)?;
            file.try_lock().map_err(io::Error::from)?;
            Ok(file)
        };
        let file = opened().map_err(|source| BundleError::Write {
            path: part.clone(),
            source,
        })?;
        let mut writer = Self {
            target: target.to_owned(),
            part,
            file,
            blobs: BTreeMap::new(),
            end: 0,
            torn: None,
        };
        let scanned = writer.scan();
        scanned.map_err(|source| writer.failed(source))?;
        Ok(writer)
    }

    /// Bytes that an earlier run, or this one, has.
    pub fn bytes(&self) -> u64 {
        let torn = self.torn.as_ref().map_or(0, |torn| torn.have);
        self.end + torn
    }

    /// True where it is complete.
    pub fn has(&self, digest: &str) -> bool {
        self.blobs.contains_key(digest)
    }

    /// A small blob that is complete.
    pub fn read(&mut self, digest: &str) -> Result<Vec<u8>, BundleError> {
        let read = self.content(digest, DOCUMENT);
        read.map_err(|source| self.failed(source))
    }

    fn content(&mut self, digest: &str, most: u64) -> io::Result<Vec<u8>> {
        let span = self.blobs.get(digest).copied();
        let span = span.ok_or(io::ErrorKind::NotFound)?;
        self.file.seek(SeekFrom::Start(span.offset))?;
        let mut content = Vec::new();
        (&self.file)
            .take(span.length.min(most))
            .read_to_end(&mut content)?;
        Ok(content)
    }

    /// Begins a blob, or goes on with it: [`Blob::have`] says from where.
    pub fn blob(
        &mut self,
        image: &str,
        digest: &str,
        length: u64,
    ) -> Result<Blob<'_>, BundleError> {
        let begun = self.begun(digest, length);
        let (hash, have) = begun.map_err(|source| self.failed(source))?;
        Ok(Blob {
            image: image.to_owned(),
            digest: digest.to_owned(),
            length,
            have,
            hash,
            writer: self,
        })
    }

    fn begun(&mut self, digest: &str, length: u64) -> io::Result<(Sha256, u64)> {
        let start = self.end + BLOCK;
        let mut hash = Sha256::new();
        if let Some(torn) = &self.torn
            && torn.digest == digest
            && torn.length == length
        {
            let have = torn.have;
            self.file.seek(SeekFrom::Start(start))?;
            let copied = io::copy(&mut (&self.file).take(have), &mut hash)?;
            if copied == have {
                return Ok((hash, have));
            }
        }
        self.cut()?;
        self.file
            .write_all(head(&format!("{BLOBS}{digest}"), length)?.as_bytes())?;
        self.torn = Some(Torn {
            digest: digest.to_owned(),
            length,
            have: 0,
        });
        Ok((Sha256::new(), 0))
    }

    /// A small blob in one.
    pub fn put(&mut self, image: &str, content: &[u8]) -> Result<String, BundleError> {
        let digest = hex::encode(Sha256::digest(content));
        if !self.has(&digest) {
            let mut blob = self.blob(image, &digest, content.len() as u64)?;
            let have = usize::try_from(blob.have()).unwrap_or_default();
            blob.write(content.get(have..).unwrap_or_default())?;
            blob.finish()?;
        }
        Ok(digest)
    }

    /// Takes an image out of an archive as `docker save` writes it. Blobs that are there are read and not written again.
    pub fn image_of(
        &mut self,
        name: &str,
        archive: &mut dyn Read,
    ) -> Result<SavedImage, BundleError> {
        let export = |why: &dyn std::fmt::Display| BundleError::Export {
            image: name.to_owned(),
            why: why.to_string(),
        };
        let mut parts: BTreeMap<String, String> = BTreeMap::new();
        let mut links = Vec::new();
        let mut manifest = None;
        let mut archive = tar::Archive::new(archive);
        for entry in archive.entries().map_err(|error| export(&error))? {
            let mut entry = entry.map_err(|error| export(&error))?;
            let place = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let kind = entry.header().entry_type();
            if kind.is_file() && place == path::IMAGE_ARCHIVE {
                return self.image_of(name, &mut entry);
            }
            if kind.is_symlink() || kind.is_hard_link() {
                if let Some(to) = entry.link_name_bytes() {
                    links.push((place, String::from_utf8_lossy(&to).into_owned()));
                }
            } else if !kind.is_file() {
            } else if place == MANIFEST {
                let mut text = Vec::new();
                let read = (&mut entry).take(DOCUMENT).read_to_end(&mut text);
                read.map_err(|error| export(&error))?;
                let read: Vec<ManifestEntry> =
                    serde_json::from_slice(&text).map_err(|error| export(&error))?;
                manifest = read.into_iter().next();
            } else if is_part(&place) {
                let length = entry.size();
                let digest = self.copied(name, &place, length, &mut entry)?;
                parts.insert(place, digest);
            }
        }
        let manifest = manifest.ok_or_else(|| export(&"it has no `manifest.json`"))?;
        let found = |place: &String| {
            let link = links.iter().find(|(from, _)| from == place);
            let ends = |(known, _): &(&String, &String)| {
                link.is_some_and(|(_, to)| known.ends_with(to.trim_start_matches("../")))
            };
            let digest = parts.get(place);
            let digest = digest.or_else(|| parts.iter().find(ends).map(|(_, digest)| digest));
            digest
                .cloned()
                .ok_or_else(|| export(&format_args!("`{place}` is missing")))
        };
        Ok(SavedImage {
            name: name.to_owned(),
            config: found(&manifest.config)?,
            layers: manifest
                .layers
                .iter()
                .map(found)
                .collect::<Result<_, _>>()?,
            source: None,
        })
    }

    /// Copies a file of an archive. Its digest is known when it is read, and is its name then.
    fn copied(
        &mut self,
        image: &str,
        place: &str,
        length: u64,
        content: &mut impl Read,
    ) -> Result<String, BundleError> {
        let export = |error: io::Error| BundleError::Export {
            image: image.to_owned(),
            why: format!("`{place}`: {error}"),
        };
        let named = place.strip_prefix(BLOBS);
        let mut content = content.take(length);
        if let Some(digest) = named.filter(|digest| self.has(digest)) {
            io::copy(&mut content, &mut io::sink()).map_err(export)?;
            return Ok(digest.to_owned());
        }
        let (start, mut hash, mut copied) = (self.end, Sha256::new(), 0);
        // A name that no later run takes for a blob.
        let begun = self
            .cut()
            .and_then(|()| self.file.write_all(head("unfinished", length)?.as_bytes()));
        begun.map_err(|source| self.failed(source))?;
        let mut piece = vec![0; PIECE];
        loop {
            let count = content.read(&mut piece).map_err(export)?;
            if count == 0 {
                break;
            }
            hash.update(&piece[..count]);
            copied += count as u64;
            let written = self.file.write_all(&piece[..count]);
            written.map_err(|source| self.failed(source))?;
        }
        if copied != length {
            return Err(export(io::ErrorKind::UnexpectedEof.into()));
        }
        let digest = hex::encode(hash.finalize());
        if named.is_some_and(|named| named != digest) {
            let cut = self.cut();
            cut.map_err(|source| self.failed(source))?;
            return Err(BundleError::Digest {
                image: image.to_owned(),
                digest: named.unwrap_or_default().to_owned(),
            });
        }
        let done = if self.has(&digest) {
            self.cut()
        } else {
            self.name(start, &digest, length)
        };
        done.map_err(|source| self.failed(source))?;
        Ok(digest)
    }

    /// Gives the last file its name.
    fn name(&mut self, start: u64, digest: &str, length: u64) -> io::Result<()> {
        let zeros = vec![0; usize::try_from(pad(length)).unwrap_or_default()];
        self.file.write_all(&zeros)?;
        self.file.seek(SeekFrom::Start(start))?;
        self.file
            .write_all(head(&format!("{BLOBS}{digest}"), length)?.as_bytes())?;
        self.complete(digest, length);
        self.file.seek(SeekFrom::Start(self.end))?;
        Ok(())
    }

    fn complete(&mut self, digest: &str, length: u64) {
        let offset = self.end + BLOCK;
        self.blobs
            .insert(digest.to_owned(), Span { offset, length });
        self.end = offset + length + pad(length);
        self.torn = None;
    }

    /// Removes what is not complete.
    fn cut(&mut self) -> io::Result<()> {
        self.torn = None;
        self.file.set_len(self.end)?;
        self.file.seek(SeekFrom::Start(self.end))?;
        Ok(())
    }

    /// For which machines an image is, by its configuration.
    pub fn platform(&mut self, image: &SavedImage) -> Result<ImagePlatform, BundleError> {
        let text = self.read(&image.config)?;
        let config: ImageConfig =
            serde_json::from_slice(&text).map_err(|error| BundleError::Export {
                image: image.name.clone(),
                why: format!("its configuration: {error}"),
            })?;
        Ok(ImagePlatform {
            os: config.os,
            architecture: config.architecture,
        })
    }

    /// Writes what lists these images, and gives the file its name. Returns its length.
    pub fn finish(mut self, images: &[SavedImage]) -> Result<u64, BundleError> {
        let mut index = Vec::new();
        for image in images {
            index.push(self.descriptor(image)?);
        }
        let ended = self.ended(&index, images);
        ended.map_err(|source| self.failed(source))
    }

    fn ended(&mut self, index: &[Value], images: &[SavedImage]) -> io::Result<u64> {
        self.cut()?;
        let place = |digest: &String| format!("{BLOBS}{digest}");
        let manifest = images.iter().map(|image| ManifestEntry {
            config: place(&image.config),
            repo_tags: Some(vec![familiar(&image.name)]),
            layers: image.layers.iter().map(place).collect(),
        });
        let manifest: Vec<ManifestEntry> = manifest.collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": index});
        let layout = json!({"imageLayoutVersion": "1.0.0"});
        for (name, text) in [
            ("index.json", serde_json::to_vec(&index)?),
            (MANIFEST, serde_json::to_vec(&manifest)?),
            ("oci-layout", serde_json::to_vec(&layout)?),
        ] {
            let length = text.len() as u64;
            self.file.write_all(head(name, length)?.as_bytes())?;
            self.file.write_all(&text)?;
            let zeros = vec![0; usize::try_from(pad(length)).unwrap_or_default()];
            self.file.write_all(&zeros)?;
        }
        self.file.write_all(&[0; 1024])?;
        let length = self.file.stream_position()?;
        self.file.set_len(length)?;
        self.file.sync_all()?;
        std::fs::rename(&self.part, &self.target)?;
        if let Some(folder) = self.target.parent() {
            let folder = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            File::open(folder)?.sync_all()?;
        }
        Ok(length)
    }

    /// The image in the index of the layout.
    fn descriptor(&mut self, image: &SavedImage) -> Result<Value, BundleError> {
        let platform = self.platform(image)?;
        let (digest, media_type) = match &image.source {
            Some(source) => (source.digest.clone(), source.media_type.clone()),
            None => (self.manifest(image)?, MANIFEST_TYPE.to_owned()),
        };
        let size = self.blobs.get(&digest).map_or(0, |span| span.length);
        let full = canonical(&image.name);
        let tag = full.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        Ok(json!({
            "mediaType": media_type,
            "digest": format!("sha256:{digest}"),
            "size": size,
            "platform": {"os": platform.os, "architecture": platform.architecture},
            "annotations": {
                "io.containerd.image.name": full,
                "org.opencontainers.image.ref.name": tag,
            },
        }))
    }

    /// A manifest for an image that Docker exported without one.
    fn manifest(&mut self, image: &SavedImage) -> Result<String, BundleError> {
        let mut layers = Vec::new();
        for digest in &image.layers {
            let start = self.content(digest, GZIP.len() as u64);
            let start = start.map_err(|source| self.failed(source))?;
            let kind = if start == GZIP {
                format!("{LAYER_TYPE}+gzip")
            } else {
                LAYER_TYPE.to_owned()
            };
            layers.push(self.part_of(digest, &kind));
        }
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": self.part_of(&image.config, CONFIG_TYPE),
            "layers": layers,
        });
        self.put(&image.name, manifest.to_string().as_bytes())
    }

    fn part_of(&self, digest: &str, media_type: &str) -> Value {
        let size = self.blobs.get(digest).map_or(0, |span| span.length);
        json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size})
    }

    /// Finds what an earlier run has written: everything up to the first thing that is not a blob, or is not what its name
    /// says.
    fn scan(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        while self.end + BLOCK <= length {
            self.file.seek(SeekFrom::Start(self.end))?;
            let mut block = Header::new_gnu();
            self.file.read_exact(block.as_mut_bytes())?;
            let Some((digest, size)) = blob_of(&block) else {
                break;
            };
            let have = size.min(length - self.end - BLOCK);
            if self.end + BLOCK + size + pad(size) > length {
                self.torn = Some(Torn {
                    digest,
                    length: size,
                    have,
                });
                break;
            }
            let mut hash = Sha256::new();
            io::copy(&mut (&self.file).take(size), &mut hash)?;
            if hex::encode(hash.finalize()) != digest {
                break;
            }
            self.complete(&digest, size);
        }
        let kept = self.torn.as_ref().map_or(0, |torn| BLOCK + torn.have);
        self.file.set_len(self.end + kept)?;
        self.file.seek(SeekFrom::End(0))?;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> BundleError {
        BundleError::Write {
            path: self.part.clone(),
            source,
        }
    }
}

/// The blob that a head is of.
fn blob_of(header: &Header) -> Option<(String, u64)> {
    let mut again = header.clone();
    again.set_cksum();
    if again.as_bytes() != header.as_bytes() {
        return None;
    }
    let name = String::from_utf8_lossy(&header.path_bytes()).into_owned();
    let digest = name.strip_prefix(BLOBS)?.to_owned();
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((digest, header.size().ok()?)).filter(|_| is_digest)
}

/// True for what an image is made of in an archive of Docker: not for its lists, and not for what is there for Docker before
/// 1.10.
fn is_part(place: &str) -> bool {
    let in_root = !place.contains('/');
    let lists = ["index.json", MANIFEST, "repositories"];
    place.starts_with(BLOBS)
        || place.ends_with("/layer.tar")
        || in_root && is_json(place) && !lists.contains(&place)
}

/// As Docker names its files: in small letters.
fn is_json(place: &str) -> bool {
    place
        .rsplit_once('.')
        .is_some_and(|(_, kind)| kind == "json")
}

/// A blob that is being written. Dropped before its end, it stays and can be continued.
#[derive(Debug)]
pub struct Blob<'w> {
    writer: &'w mut BundleWriter,
    image: String,
    digest: String,
    length: u64,
    have: u64,
    hash: Sha256,
}

impl Blob<'_> {
    /// How many bytes of it are there.
    pub const fn have(&self) -> u64 {
        self.have
    }

    /// The next bytes. More than it has are an error.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        let have = self.have + bytes.len() as u64;
        if have > self.length {
            return Err(self.wrong());
        }
        let place = self.writer.end + BLOCK + self.have;
        let file = &mut self.writer.file;
        let written = file
            .seek(SeekFrom::Start(place))
            .and_then(|_| file.write_all(bytes));
        written.map_err(|source| self.writer.failed(source))?;
        self.hash.update(bytes);
        self.have = have;
        if let Some(torn) = &mut self.writer.torn {
            torn.have = have;
        }
        Ok(())
    }

    /// Verifies it. One that is not what its digest says is removed.
    pub fn finish(mut self) -> Result<(), BundleError> {
        let digest = hex::encode(self.hash.clone().finalize());
        if self.have != self.length || digest != self.digest {
            return Err(self.wrong());
        }
        let zeros = vec![0; usize::try_from(pad(self.length)).unwrap_or_default()];
        let written = self.writer.file.write_all(&zeros);
        written.map_err(|source| self.writer.failed(source))?;
        self.writer.complete(&self.digest, self.length);
        Ok(())
    }

    fn wrong(&mut self) -> BundleError {
        if let Err(source) = self.writer.cut() {
            return self.writer.failed(source);
        }
        self.have = 0;
        BundleError::Digest {
            image: self.image.clone(),
            digest: self.digest.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{
        super::{
            Bundle,
            read::tests::{archive, config, sha},
        },
        *,
    };

    /// The digests that images are made of, each once.
    fn parts(images: &[SavedImage]) -> BTreeSet<&String> {
        let each = images.iter();
        each.flat_map(|image| image.layers.iter().chain([&image.config]))
            .collect()
    }

    fn exported(old: bool, name: &str, layers: &[&[u8]]) -> Vec<u8> {
        let config = config(layers);
        let place = |content: &[u8]| {
            let digest = sha(content);
            if old {
                format!("{digest}/layer.tar")
            } else {
                format!("{BLOBS}{digest}")
            }
        };
        let of_config = if old {
            format!("{}.json", sha(&config))
        } else {
            format!("{BLOBS}{}", sha(&config))
        };
        let layer_names: Vec<String> = layers.iter().map(|it| place(it)).collect();
        let manifest =
            json!([{"Config": of_config, "RepoTags": [name], "Layers": layer_names}]).to_string();
        let mut files: Vec<(&str, &[u8])> = vec![(&of_config, &config)];
        files.extend(
            layer_names
                .iter()
                .map(String::as_str)
                .zip(layers.iter().copied()),
        );
        files.extend([
            (MANIFEST, manifest.as_bytes()),
            ("repositories", b"{}".as_slice()),
        ]);
        archive(&files)
    }

    #[test]
    fn what_docker_exports_becomes_a_bundle_with_each_layer_once() {
        for old in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("bundle.tar");
            let base = vec![1; 100_000];
            let mut writer = BundleWriter::begin(&target).unwrap();
            let one = exported(old, "a/one:1", &[&base]);
            let two = exported(old, "a/two:1", &[&base, b"the top"]);
            let images = [
                writer.image_of("a/one:1", &mut one.as_slice()).unwrap(),
                writer.image_of("a/two:1", &mut two.as_slice()).unwrap(),
            ];
            assert_eq!(parts(&images).len(), 4);
            let length = writer.finish(&images).unwrap();
            assert_eq!(std::fs::metadata(&target).unwrap().len(), length);
            assert!(length < 130_000, "the base is there once: {length}");
            let bundle = Bundle::open(&target).unwrap();
            let names: Vec<&String> = bundle.images().keys().collect();
            assert_eq!(names, ["a/one:1", "a/two:1"]);
            assert!(!folder.path().join("bundle.tar.part").exists());
        }
    }

    /// A run that is cut off at any byte is continued, and the file is the same as without.
    #[test]
    fn what_was_cut_off_is_continued() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, cut) = (
            folder.path().join("whole.tar"),
            folder.path().join("cut.tar"),
        );
        let layers: [&[u8]; 2] = [&[1; 1500], &[2; 700]];
        let config = config(&layers);
        let image = |writer: &mut BundleWriter| {
            let mut fetched = 0;
            for content in layers.iter().copied().chain([config.as_slice()]) {
                let digest = sha(content);
                if writer.has(&digest) {
                    continue;
                }
                let mut blob = writer.blob("a:1", &digest, content.len() as u64).unwrap();
                let rest = &content[usize::try_from(blob.have()).unwrap()..];
                fetched += rest.len();
                blob.write(rest).unwrap();
                blob.finish().unwrap();
            }
            let image = SavedImage {
                name: "a:1".to_owned(),
                config: sha(&config),
                layers: layers.iter().map(|it| sha(it)).collect(),
                source: None,
            };
            (image, fetched)
        };
        let mut writer = BundleWriter::begin(&whole).unwrap();
        let (saved, all) = image(&mut writer);
        writer.finish(&[saved]).unwrap();
        let bytes = std::fs::read(&whole).unwrap();
        for length in (0..bytes.len()).step_by(97) {
            std::fs::write(folder.path().join("cut.tar.part"), &bytes[..length]).unwrap();
            let mut writer = BundleWriter::begin(&cut).unwrap();
            let (saved, fetched) = image(&mut writer);
            assert!(fetched <= all, "{length}: {fetched}");
            if length > 1024 {
                assert!(fetched < all, "{length}: {fetched}");
            }
            writer.finish(&[saved]).unwrap();
            assert!(std::fs::read(&cut).unwrap() == bytes, "cut at {length}");
        }
    }

    #[test]
    fn what_has_another_content_is_refused_and_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("bundle.tar");
        let mut writer = BundleWriter::begin(&target).unwrap();
        let digest = sha(b"right");
        let mut blob = writer.blob("a:1", &digest, 5).unwrap();
        blob.write(b"wrong").unwrap();
        assert!(matches!(blob.finish(), Err(BundleError::Digest { .. })));
        let mut blob = writer.blob("a:1", &digest, 5).unwrap();
        assert_eq!(blob.have(), 0);
        assert!(blob.write(b"too much").is_err());
        drop(writer);
        let part = folder.path().join("bundle.tar.part");
        assert_eq!(std::fs::metadata(part).unwrap().len(), 0);
    }

    #[test]
    fn one_run_at_a_time_writes_a_bundle() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("bundle.tar");
        let first = BundleWriter::begin(&target).unwrap();
        assert!(BundleWriter::begin(&target).is_err());
        drop(first);
        BundleWriter::begin(&target).unwrap();
    }
}

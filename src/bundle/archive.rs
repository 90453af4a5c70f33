//! The archive of one image out of a bundle, as Docker and containerd load it. It is streamed, and never held whole in
//! memory.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
    sync::Arc,
};

use bytes::Bytes;
use futures::{Stream, stream};
use tar::{EntryType, Header};

use super::{BLOBS, Bundle, Image, MANIFEST, ManifestEntry};

/// The unit of a tar archive.
const BLOCK: u64 = 512;
/// How much is sent at once.
const PIECE: u64 = 256 << 10;

/// What is streamed, in order.
#[derive(Clone, Debug)]
enum Segment {
    /// These bytes.
    Bytes(Bytes),
    /// A part of the bundle.
    Part { offset: u64, length: u64 },
}

impl Segment {
    const fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Part { length, .. } => *length,
        }
    }
}

/// The archive of one image: `docker load` tags it with exactly the requested name.
#[derive(Clone, Debug)]
pub struct Archive {
    path: PathBuf,
    segments: Vec<Segment>,
}

impl Archive {
    /// Of this image, under that name.
    pub fn of(bundle: &Bundle, image: &Image, name: &str) -> io::Result<Self> {
        let mut segments = Vec::new();
        for part in image.parts() {
            segments.push(header(&format!("{BLOBS}{}", part.digest), part.length)?);
            segments.push(Segment::Part {
                offset: part.offset,
                length: part.length,
            });
            segments.extend(padding(part.length));
        }
        let place = |digest: &str| format!("{BLOBS}{digest}");
        let entry = ManifestEntry {
            config: place(&image.config.digest),
            repo_tags: Some(vec![name.to_owned()]),
            layers: image
                .layers
                .iter()
                .map(|part| place(&part.digest))
                .collect(),
        };
        let manifest = serde_json::to_vec(&[entry]).map_err(io::Error::other)?;
        let length = manifest.len() as u64;
        segments.push(header(MANIFEST, length)?);
        segments.push(Segment::Bytes(manifest.into()));
        segments.extend(padding(length));
        segments.push(zeros(2 * BLOCK));
        Ok(Self {
            path: bundle.path().to_owned(),
            segments,
        })
    }

    /// An archive with the whole of this one as its only file.
    pub fn within(mut self, name: &str) -> io::Result<Self> {
        let length = self.bytes();
        self.segments.insert(0, header(name, length)?);
        self.segments.extend(padding(length));
        self.segments.push(zeros(2 * BLOCK));
        Ok(self)
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(Segment::length).sum()
    }

    /// Its bytes, and how many of them were taken before each piece.
    pub fn stream(
        self,
        taken: impl Fn(u64) + Send + 'static,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let begun = Reading {
            path: Arc::new(self.path),
            file: None,
            segments: self.segments.into(),
            taken: 0,
        };
        stream::try_unfold(begun, move |mut reading| {
            taken(reading.taken);
            async move {
                // Disks may take their time, and others wait on this thread.
                let read = tokio::task::spawn_blocking(move || {
                    let piece = reading.next()?;
                    io::Result::Ok((piece, reading))
                });
                let (piece, reading) = read.await.map_err(io::Error::other)??;
                Ok(piece.map(|piece| (piece, reading)))
            }
        })
    }
}

struct Reading {
    path: Arc<PathBuf>,
    file: Option<File>,
    segments: std::collections::VecDeque<Segment>,
    taken: u64,
}

impl Reading {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let piece = match self.segments.pop_front() {
            None => return Ok(None),
            Some(Segment::Bytes(bytes)) => bytes,
            Some(Segment::Part { offset, length }) => {
                let now = length.min(PIECE);
                if now < length {
                    self.segments.push_front(Segment::Part {
                        offset: offset + now,
                        length: length - now,
                    });
                }
                self.part(offset, now)?
            }
        };
        self.taken += piece.len() as u64;
        Ok(Some(piece))
    }

    fn part(&mut self, offset: u64, length: u64) -> io::Result<Bytes> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => File::open(&*self.path)?,
        };
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact(&mut bytes)?;
        self.file = Some(file);
        Ok(bytes.into())
    }
}

fn header(name: &str, length: u64) -> io::Result<Segment> {
    Ok(Segment::Bytes(Bytes::copy_from_slice(
        head(name, length)?.as_bytes(),
    )))
}

/// The head of a file of root's.
pub(super) fn head(name: &str, length: u64) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(length);
    header.set_cksum();
    Ok(header)
}

/// How many bytes follow a file of that length up to the next block.
pub(super) const fn pad(length: u64) -> u64 {
    (BLOCK - length % BLOCK) % BLOCK
}

fn padding(length: u64) -> Option<Segment> {
    let bytes = pad(length);
    (bytes > 0).then(|| zeros(bytes))
}

fn zeros(length: u64) -> Segment {
    let length = usize::try_from(length).unwrap_or_default();
    Segment::Bytes(vec![0; length].into())
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::{
        super::read::tests::{archive, config, sha},
        *,
    };

    async fn all(archive: Archive) -> Vec<u8> {
        let bytes: Vec<Bytes> = archive.stream(|_| ()).try_collect().await.unwrap();
        bytes.concat()
    }

    /// What is sent to a node is a bundle of one image, whatever the form of the one that it is from.
    #[tokio::test]
    async fn one_image_out_of_an_old_archive_is_a_bundle_again() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (base, top) = (vec![7; 700_000], b"the top".to_vec());
        let config = config(&[&base, &top, &base]);
        let manifest = format!(
            r#"[{{"Config": "{0}.json", "RepoTags": ["reg.example/a:1", "b:2"], "Layers": ["x/layer.tar", "y/layer.tar", "x/layer.tar"]}}]"#,
            sha(&config)
        );
        let name = format!("{}.json", sha(&config));
        let files = [
            (name.as_str(), config.as_slice()),
            ("x/layer.tar", &base),
            ("y/layer.tar", &top),
            ("manifest.json", manifest.as_bytes()),
        ];
        std::fs::write(at("old.tar"), archive(&files)).unwrap();
        let bundle = Bundle::open(&at("old.tar")).unwrap();
        let image = bundle.image("b:2").unwrap();
        let one = Archive::of(&bundle, image, "b:2").unwrap();
        let length = one.bytes();
        let bytes = all(one.clone()).await;
        assert_eq!(bytes.len() as u64, length);
        std::fs::write(at("new.tar"), &bytes).unwrap();
        let again = Bundle::open(&at("new.tar")).unwrap();
        let names: Vec<&String> = again.images().keys().collect();
        assert_eq!(names, ["b:2"]);
        assert_eq!(again.image("b:2").unwrap().bytes(), image.bytes());

        let within = one.within("image.tar").unwrap();
        let length = within.bytes();
        let outer = all(within).await;
        assert_eq!(outer.len() as u64, length);
        let mut outer = tar::Archive::new(outer.as_slice());
        let mut entry = outer.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.path_bytes().as_ref(), b"image.tar");
        let mut inner = Vec::new();
        entry.read_to_end(&mut inner).unwrap();
        assert_eq!(inner, bytes);
    }
}

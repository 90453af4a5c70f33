//! A tar stream as it arrives, without files that are too large to be rke-operator's. A user's backup below
//! `/etc/kubernetes` of five nodes would fill the memory of a process that reads all of them. Pure.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tar::{EntryType, Header};
use zeroize::Zeroizing;

const BLOCK: usize = 512;

/// What is kept of archives; clones have one bound together.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// Of a file: the contents of a larger one are left out, and it looks empty.
    file: usize,
    /// Of all that is kept: with more an archive is an error.
    left: Arc<AtomicUsize>,
}

impl Bounds {
    pub(super) fn new(file: usize, all: usize) -> Self {
        let left = Arc::new(AtomicUsize::new(all));
        Self { file, left }
    }

    fn takes(&self, bytes: usize) -> bool {
        let take = |left: usize| left.checked_sub(bytes);
        let order = Ordering::Relaxed;
        self.left.fetch_update(order, order, take).is_ok()
    }
}

/// Why an archive is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// More than the bound is left.
    TooLarge,
    /// It is no archive.
    NoArchive,
}

/// What has come through so far.
pub(super) struct Sieve {
    bounds: Bounds,
    out: Zeroizing<Vec<u8>>,
    header: Zeroizing<Vec<u8>>,
    /// Bytes of the entry that are to come, and whether they are kept.
    rest: (u64, bool),
}

impl Sieve {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            out: Zeroizing::new(Vec::new()),
            header: Zeroizing::new(Vec::new()),
            rest: (0, false),
        }
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Refused> {
        while !bytes.is_empty() {
            let (left, keep) = self.rest;
            if left > 0 {
                let now = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                if keep {
                    self.keep(&bytes[..now])?;
                }
                self.rest.0 = left - now as u64;
                bytes = &bytes[now..];
                continue;
            }
            let now = (BLOCK - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..now]);
            bytes = &bytes[now..];
            if self.header.len() == BLOCK {
                self.entry()?;
            }
        }
        Ok(())
    }

    /// The archive, as far as it came.
    pub(super) fn end(mut self) -> Zeroizing<Vec<u8>> {
        let rest = std::mem::take(&mut *self.header);
        self.out.extend_from_slice(&rest);
        self.out
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        if !self.bounds.takes(bytes.len()) {
            return Err(Refused::TooLarge);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// A whole header is there.
    fn entry(&mut self) -> Result<(), Refused> {
        let block = std::mem::take(&mut *self.header);
        if block.iter().all(|byte| *byte == 0) {
            return self.keep(&block);
        }
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(&block);
        let size = header.entry_size().map_err(|_| Refused::NoArchive)?;
        let padded = size.checked_next_multiple_of(BLOCK as u64);
        let padded = padded.ok_or(Refused::NoArchive)?;
        let is_file = matches!(
            header.entry_type(),
            EntryType::Regular | EntryType::Continuous
        );
        let large = usize::try_from(size).map_or(true, |size| size > self.bounds.file);
        if is_file && large {
            header.set_size(0);
            header.set_cksum();
            self.rest = (padded, false);
            return self.keep(header.as_bytes());
        }
        self.rest = (padded, true);
        self.keep(&block)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use tar::{Archive, Builder};

    use super::*;

    fn bounds() -> Bounds {
        Bounds::new(1000, 20_000)
    }

    fn archive(files: &[(&str, usize)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (path, size) in files {
            let mut header = Header::new_gnu();
            header.set_size(*size as u64);
            header.set_mode(0o600);
            let content = vec![b'x'; *size];
            builder
                .append_data(&mut header, path, content.as_slice())
                .unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn through(archive: &[u8], step: usize) -> Result<Vec<u8>, Refused> {
        let mut sieve = Sieve::new(bounds());
        for chunk in archive.chunks(step) {
            sieve.feed(chunk)?;
        }
        Ok(sieve.end().to_vec())
    }

    /// Paths and sizes.
    fn listed(archive: &[u8]) -> Vec<(String, usize)> {
        let mut reader = Archive::new(archive);
        let entries = reader.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let path = entry.path().unwrap().display().to_string();
            (path, content.len())
        });
        entries.collect()
    }

    #[test]
    fn large_files_lose_their_contents_and_nothing_else_changes() {
        let long = format!("{}/backup", "d".repeat(150));
        let files = [
            ("a", 10),
            ("b", 64 << 20),
            (long.as_str(), 5000),
            ("c", 1000),
            ("d", 0),
        ];
        let whole = archive(&files);
        for step in [1 << 20, 4096, 513] {
            let kept = listed(&through(&whole, step).unwrap());
            let sizes: Vec<usize> = kept.iter().map(|(_, size)| *size).collect();
            assert_eq!(sizes, [10, 0, 0, 1000, 0], "{step}");
            assert_eq!(kept[2].0, long);
        }
        let small = archive(&[("a", 10), ("c", 999)]);
        let mut sieve = Sieve::new(bounds());
        for byte in &small {
            sieve.feed(&[*byte]).unwrap();
        }
        assert_eq!(*sieve.end(), small);
    }

    #[test]
    fn too_many_small_files_are_an_error_and_so_is_what_is_no_archive() {
        let names: Vec<String> = (0..100).map(|at| format!("f{at}")).collect();
        let files: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 900)).collect();
        assert_eq!(through(&archive(&files), 4096), Err(Refused::TooLarge));
        let mut sieve = Sieve::new(bounds());
        assert_eq!(sieve.feed(&[b'z'; 1024]), Err(Refused::NoArchive));
    }
}

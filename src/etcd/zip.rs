//! Where a snapshot lies in a zip of RKE: told from the end of the file, so that the rest stays on its node. Pure.

use std::io;

use rawzip::{CompressionMethod, ReaderAt, ZipLocator};

/// So much of the end of a zip has the directory of its two entries.
pub(super) const END: u64 = 32 << 10;

/// A snapshot in a zip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    /// Where its local header begins.
    pub(super) header: u64,
    /// The bytes that are packed, and those that come out.
    pub(super) length: u64,
    pub(super) bytes: u64,
    /// Of those that come out.
    pub(super) crc32: u32,
    /// Packed by deflate; else they lie there as they are.
    pub(super) deflated: bool,
}

/// The end of a file of that size.
struct Tail<'b> {
    bytes: &'b [u8],
    size: u64,
}

impl ReaderAt for Tail<'_> {
    /// Bytes before the end that was read are zeros, which are no valid directory.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let begins = self.size.saturating_sub(self.bytes.len() as u64);
        let count = self.size.saturating_sub(offset).min(buffer.len() as u64);
        let count = usize::try_from(count).unwrap_or(buffer.len());
        for (at, byte) in (offset..).zip(&mut buffer[..count]) {
            let at = at
                .checked_sub(begins)
                .and_then(|at| usize::try_from(at).ok());
            *byte = at.and_then(|at| self.bytes.get(at).copied()).unwrap_or(0);
        }
        Ok(count)
    }
}

/// The entry of the snapshot, by the exact name that RKE gives it. `end`: the end of a file of `size` bytes.
pub(super) fn snapshot(end: &[u8], size: u64, name: &str) -> Result<Packed, &'static str> {
    const NONE: &str = "is there as a zip that cannot be read";
    let tail = Tail { bytes: end, size };
    let mut buffer = vec![0; rawzip::RECOMMENDED_BUFFER_SIZE];
    let archive = ZipLocator::new()
        .locate_in_reader(tail, &mut buffer, size)
        .map_err(|_| NONE)?;
    let wanted = format!("/backup/{name}");
    let mut entries = archive.entries(&mut buffer);
    while let Some(entry) = entries.next_entry().map_err(|_| NONE)? {
        if entry.file_path().as_bytes() != wanted.as_bytes() {
            continue;
        }
        let method = entry.compression_method();
        let packed = Packed {
            header: entry.local_header_offset(),
            length: entry.compressed_size_hint(),
            bytes: entry.uncompressed_size_hint(),
            crc32: entry.crc32(),
            deflated: method == CompressionMethod::DEFLATE,
        };
        let ends = packed.header.checked_add(packed.length);
        let fits = ends.is_some_and(|ends| ends < size);
        return if fits && (packed.deflated || method == CompressionMethod::STORE) {
            Ok(packed)
        } else {
            Err(NONE)
        };
    }
    Err("is there as a zip without a snapshot of that name")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by Go's `archive/zip` as RKE's tools do it: absolute names, deflate, sizes behind the data.
    const RKE: &[u8] = include_bytes!("rke.zip");

    #[test]
    fn a_snapshot_is_found_in_a_zip_as_rke_writes_it() {
        let size = RKE.len() as u64;
        let whole = snapshot(RKE, size, "s1").unwrap();
        assert_eq!((whole.header, whole.bytes, whole.deflated), (0, 4128, true));
        // As long as the directory is in it, the end is enough.
        assert_eq!(snapshot(&RKE[200..], size, "s1"), Ok(whole));
        assert!(snapshot(RKE, size, "s2").unwrap_err().contains("without"));
        assert!(
            snapshot(RKE, size, "../s1")
                .unwrap_err()
                .contains("without")
        );
        for cut in [0, 1, 22, 100, 300, RKE.len() - 1] {
            assert!(snapshot(&RKE[..cut], cut as u64, "s1").is_err(), "{cut}");
        }
    }

    #[test]
    fn a_directory_that_lies_leads_nowhere_outside_of_the_file() {
        let size = RKE.len() as u64;
        for at in 0..RKE.len() {
            for bit in 0..8 {
                let mut bytes = RKE.to_vec();
                bytes[at] ^= 1 << bit;
                if let Ok(packed) = snapshot(&bytes, size, "s1") {
                    assert!(packed.header + packed.length < size, "{at} {bit}");
                }
            }
        }
    }
}

//! A snapshot's zip: RKE's own entry, and what is on record about it.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use rawzip::{CompressionMethod, ZipArchive, ZipArchiveWriter, path::EntryPath};

use super::record::Meta;

/// Where the record is in the zip.
const META: &str = "rke-operator/meta.json";
/// A record is no longer, by far.
const LONGEST: u64 = 64 << 10;
/// Readable by the owner alone.
const PRIVATE: u32 = 0o600;

/// Writes the zip of the database at `database` under the name that RKE gives its entry.
pub(super) fn write(to: File, name: &str, database: &Path, meta: &Meta) -> io::Result<()> {
    let record = serde_json::to_vec(meta)?;
    let mut archive = ZipArchiveWriter::new(io::BufWriter::new(to));
    entry(
        &mut archive,
        &format!("/backup/{name}"),
        &mut File::open(database)?,
    )?;
    entry(&mut archive, META, &mut record.as_slice())?;
    let mut buffered = archive.finish().map_err(io::Error::other)?;
    buffered.flush()?;
    buffered.get_ref().sync_all()
}

fn entry(
    archive: &mut ZipArchiveWriter<io::BufWriter<File>>,
    path: &str,
    from: &mut impl Read,
) -> io::Result<()> {
    // RKE's name begins with `/`, which a zip should not have: it is written as it is.
    let (mut entry, config) = archive
        .new_file(EntryPath::verbatim(path.as_bytes()))
        .compression_method(CompressionMethod::DEFLATE)
        .unix_permissions(PRIVATE)
        .start()
        .map_err(io::Error::other)?;
    let encoder = DeflateEncoder::new(&mut entry, Compression::fast());
    let mut writer = config.wrap(encoder);
    io::copy(from, &mut writer)?;
    let (encoder, descriptor) = writer.finish().map_err(io::Error::other)?;
    encoder.finish()?;
    entry.finish(descriptor).map_err(io::Error::other)?;
    Ok(())
}

/// What a zip says about the snapshot in it; `None`: it is not one that this program wrote.
pub(super) fn meta(file: File) -> Option<Meta> {
    let mut buffer = vec![0; rawzip::RECOMMENDED_BUFFER_SIZE];
    let archive = ZipArchive::from_file(file, &mut buffer).ok()?;
    let found = {
        let mut entries = archive.entries(&mut buffer);
        loop {
            let entry = entries.next_entry().ok()??;
            let is_record = entry.file_path().as_bytes() == META.as_bytes();
            if is_record && entry.uncompressed_size_hint() <= LONGEST {
                break entry.wayfinder();
            }
        }
    };
    let entry = archive.get_entry(found).ok()?;
    let inflated = DeflateDecoder::new(entry.reader()).take(LONGEST);
    let mut text = Vec::new();
    entry
        .verifying_reader(inflated)
        .read_to_end(&mut text)
        .ok()?;
    serde_json::from_slice(&text).ok()
}

/// Writes the database in a zip of this program to a file. It has so many bytes, as the record says; the zip's own
/// checksum is compared.
pub(super) fn database(zip: File, name: &str, to: &mut File, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; rawzip::RECOMMENDED_BUFFER_SIZE];
    let archive = ZipArchive::from_file(zip, &mut buffer).map_err(io::Error::other)?;
    let path = format!("/backup/{name}");
    let found = {
        let mut entries = archive.entries(&mut buffer);
        loop {
            let entry = entries.next_entry().map_err(io::Error::other)?;
            let entry = entry.ok_or_else(|| io::Error::other(format!("it has no `{path}`")))?;
            if entry.file_path().as_bytes() == path.as_bytes() {
                break entry.wayfinder();
            }
        }
    };
    let entry = archive.get_entry(found).map_err(io::Error::other)?;
    let inflated = DeflateDecoder::new(entry.reader()).take(bytes + 1);
    let written = io::copy(&mut entry.verifying_reader(inflated), to)?;
    if written == bytes {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "it has {written} bytes or more, and had {bytes}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::record::tests::meta as example;

    #[test]
    fn what_is_written_is_read_and_rke_finds_its_entry() {
        let folder = tempfile::tempdir().unwrap();
        let (database, zip) = (folder.path().join("db"), folder.path().join("s.zip"));
        std::fs::write(&database, vec![b'x'; 40_000]).unwrap();
        write(File::create(&zip).unwrap(), "s", &database, &example()).unwrap();
        assert_eq!(meta(File::open(&zip).unwrap()), Some(example()));
        let bytes = std::fs::read(&zip).unwrap();
        let archive = ZipArchive::from_slice(&bytes).unwrap();
        let mut entries = archive.entries();
        let first = entries.next_entry().unwrap().unwrap();
        assert_eq!(first.file_path().as_bytes(), b"/backup/s");
        assert_eq!(first.uncompressed_size_hint(), 40_000);
        let second = entries.next_entry().unwrap().unwrap();
        assert_eq!(second.file_path().as_bytes(), META.as_bytes());
        assert!(entries.next_entry().unwrap().is_none());
    }

    #[test]
    fn a_zip_of_another_is_none_of_this_program() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.zip");
        let rke: &[u8] = include_bytes!("../etcd/rke.zip");
        for other in [rke, b"", b"PK", &rke[..rke.len() - 1]] {
            std::fs::write(&path, other).unwrap();
            assert_eq!(meta(File::open(&path).unwrap()), None);
        }
    }

    #[test]
    fn a_damaged_zip_says_nothing_or_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let (database, zip) = (folder.path().join("db"), folder.path().join("s.zip"));
        std::fs::write(&database, b"data").unwrap();
        write(File::create(&zip).unwrap(), "s", &database, &example()).unwrap();
        let whole = std::fs::read(&zip).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&zip, &bytes).unwrap();
            let read = meta(File::open(&zip).unwrap());
            assert!(read.is_none() || read == Some(example()), "byte {at}");
        }
    }
}

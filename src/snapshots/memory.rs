//! Whether there is memory for the data of a throw-away etcd.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::fs::statfs;

use crate::model::path;

/// What `statfs` says of a file system in memory.
const TMPFS: u64 = 0x0102_1994;
/// What is used is at most this part of what is free: the rest is the members' and the pods'.
const PART: u64 = 4;

/// Where a file of so many bytes is put for a trial: in memory if there is plenty of it, else in this folder.
pub(super) fn or_disk(disk: &Path, bytes: u64) -> PathBuf {
    let memory = Path::new(path::PROOF);
    let is_plenty = has_plenty(memory, bytes);
    if is_plenty { memory } else { disk }.to_owned()
}

/// True where this folder is in memory, and has room for so many bytes and the machine for many times more.
fn has_plenty(folder: &Path, bytes: u64) -> bool {
    let Ok(system) = statfs(folder) else {
        return false;
    };
    let is_memory = u64::try_from(system.f_type).is_ok_and(|kind| kind == TMPFS);
    let block = u64::try_from(system.f_bsize).unwrap_or(0);
    let room = system.f_bavail.saturating_mul(block);
    let available = fs::read("/proc/meminfo").ok();
    let available = available.and_then(|text| available_bytes(&String::from_utf8_lossy(&text)));
    let enough = |free: u64| free / PART >= bytes;
    is_memory && room >= bytes && available.is_some_and(enough)
}

fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_in_bytes() {
        let text = "MemTotal:       24689752 kB\nMemFree:  1 kB\nMemAvailable:   20480 kB\n";
        assert_eq!(available_bytes(text), Some(20 << 20));
        assert_eq!(available_bytes("MemTotal: 1 kB\n"), None);
        assert_eq!(available_bytes("MemAvailable: many\n"), None);
    }

    #[test]
    fn a_disk_is_no_memory_and_memory_is_not_used_up() {
        assert!(!has_plenty(Path::new("/proc"), 1));
        assert!(!has_plenty(Path::new("/nowhere"), 1));
        let shared = Path::new("/dev/shm");
        assert!(has_plenty(shared, 1));
        assert!(!has_plenty(shared, u64::MAX));
    }
}

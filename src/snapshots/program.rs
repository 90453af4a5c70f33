//! This program, as nodes with etcd are given it.

use std::{fs::File, io, path::PathBuf};

use object::{
    Endianness, elf,
    read::{
        ReadCache,
        elf::{FileHeader as _, ProgramHeader as _},
    },
};
use sha2::{Digest as _, Sha256};

use crate::model::AgentProgram;

/// The file of a process's own program, whatever became of its name.
const OWN: &str = "/proc/self/exe";

/// This program; `None` where it needs libraries, which a node's container does not have, or is none of Linux.
pub fn own() -> io::Result<Option<AgentProgram>> {
    of(PathBuf::from(OWN))
}

fn of(file: PathBuf) -> io::Result<Option<AgentProgram>> {
    let mut opened = match File::open(&file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !is_static(&opened) {
        return Ok(None);
    }
    let mut hasher = Sha256::new();
    io::copy(&mut opened, &mut hasher)?;
    Ok(Some(AgentProgram {
        file,
        sha256: hex::encode(hasher.finalize()),
        architecture: std::env::consts::ARCH.to_owned(),
    }))
}

/// True for a program that names no loader of libraries.
fn is_static(file: &File) -> bool {
    let data = ReadCache::new(file);
    let Ok(head) = elf::FileHeader64::<Endianness>::parse(&data) else {
        return false;
    };
    let Ok(endian) = head.endian() else {
        return false;
    };
    let Ok(parts) = head.program_headers(endian, &data) else {
        return false;
    };
    !parts.is_empty()
        && parts
            .iter()
            .all(|part| part.p_type(endian) != elf::PT_INTERP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_libraries_is_none_for_a_node() {
        // Tests are linked dynamically.
        assert_eq!(own().unwrap(), None);
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(of(script).unwrap(), None);
        assert_eq!(of(folder.path().join("none")).unwrap(), None);
    }
}

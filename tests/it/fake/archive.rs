//! Archives into and out of containers.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use tar::{Archive, Builder, EntryType, Header};

use super::state::{DockerState, FakeContainer, NodeFile, below, make_dirs};

/// Why an archive was not taken.
pub(super) enum Refusal {
    /// The container or the path is not there.
    Missing(String),
    /// It is no archive.
    Bad(String),
    /// The disk is full.
    Full(String),
}

/// Where a path of a container leads.
fn files<'a>(
    state: &'a mut DockerState,
    name: &str,
    path: &str,
) -> Option<(&'a mut BTreeMap<String, NodeFile>, String)> {
    let container = state.containers.get_mut(name)?;
    match container.on_node(path) {
        Some(path) => Some((&mut state.files, path)),
        None => Some((&mut container.files, path.to_owned())),
    }
}

pub(super) fn get(state: &mut DockerState, name: &str, path: &str) -> Option<Vec<u8>> {
    state.mount(name);
    let cut = state.cut_archives;
    let path = path.trim_end_matches('/');
    let (files, root) = files(state, name, path)?;
    files.get(&root)?;
    let base = path.rsplit_once('/')?.1;
    let mut builder = Builder::new(Vec::new());
    for (path, file) in files.iter().filter(|(path, _)| below(path, &root)) {
        let mut header = Header::new_gnu();
        header.set_mode(file.mode);
        header.set_uid(file.uid);
        header.set_gid(file.gid);
        header.set_size(file.content.len() as u64);
        let mut name = format!("{base}{}", &path[root.len()..]);
        if file.is_dir {
            header.set_entry_type(EntryType::Directory);
            name.push('/');
        }
        builder
            .append_data(&mut header, name, file.content.as_slice())
            .ok()?;
    }
    let mut archive = builder.into_inner().ok()?;
    if cut {
        archive.truncate(archive.len() - 1024);
    }
    Some(archive)
}

pub(super) fn put(
    state: &mut DockerState,
    name: &str,
    path: &str,
    archive: &[u8],
    full: bool,
) -> Result<(), Refusal> {
    state.mount(name);
    let missing = || {
        Refusal::Missing(format!(
            "Could not find the file {path} in container {name}"
        ))
    };
    if path != "/" {
        let (files, root) = files(state, name, path).ok_or_else(missing)?;
        files
            .get(&root)
            .filter(|file| file.is_dir)
            .ok_or_else(missing)?;
    }
    let bad = |error: io::Error| Refusal::Bad(error.to_string());
    for (count, entry) in Archive::new(archive).entries().map_err(bad)?.enumerate() {
        let mut entry = entry.map_err(bad)?;
        let inside = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let target = format!(
            "{}/{}",
            path.trim_end_matches('/'),
            inside.trim_end_matches('/')
        );
        // A full disk is noticed in the middle, and what was written stays.
        if full && count > 0 {
            return Err(Refusal::Full(format!(
                "Error processing tar file(exit status 1): write {target}: no space left on device"
            )));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(bad)?;
        let header = entry.header();
        let mut file = NodeFile {
            mode: header.mode().map_err(bad)? & 0o7777,
            uid: header.uid().map_err(bad)?,
            gid: header.gid().map_err(bad)?,
            content,
            is_dir: header.entry_type().is_dir(),
        };
        if let Some(tamper) = state.tamper.filter(|_| !file.is_dir) {
            tamper(&mut file);
        }
        let (files, at) = files(state, name, &target).ok_or_else(missing)?;
        if let Some((parent, _)) = at.rsplit_once('/') {
            make_dirs(files, parent);
        }
        files.insert(at, file);
    }
    Ok(())
}

/// For a started container whose script the fake carries out.
pub(super) fn script(container: &FakeContainer) -> String {
    let words: Vec<String> =
        serde_json::from_value(container.body["Cmd"].clone()).unwrap_or_default();
    // `sh -c SCRIPT NAME ARGUMENTS`
    let script = words.iter().skip_while(|word| *word != "-c").nth(1);
    script.or(words.last()).cloned().unwrap_or_default()
}

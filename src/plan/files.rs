//! The files and directories that a node lacks or that differ. Pure.

use std::collections::BTreeMap;

use super::{Action, FieldChange, FileRef, Stage, Step, hosts};
use crate::{
    actual::{Actual, FileFact, HostFacts},
    desired::{Desired, DesiredFile, DesiredHost, path},
};

/// One archive a node, with everything that differs.
pub(super) fn write(want: &Desired, have: &Actual) -> Stage {
    hosts::stage("files", want, have, |name, host, facts| {
        let Some((action, changes)) = difference(host, facts) else {
            return Vec::new();
        };
        let why = if changes.iter().all(|change| change.from.is_none()) {
            "certificates and configuration that the components read"
        } else {
            "differ from what the components must read"
        };
        let step = Step::on(name, why, action).changing(changes);
        vec![step.guarded(&want.cluster_id)]
    })
}

fn difference(host: &DesiredHost, facts: &HostFacts) -> Option<(Action, Vec<FieldChange>)> {
    let nothing = BTreeMap::new();
    let seen = facts.files.as_ref().unwrap_or(&nothing);
    let mut changes = Vec::new();
    let mut dirs = BTreeMap::new();
    for (path, mode) in &host.dirs {
        if let Some(change) = directory(path, *mode, seen, facts) {
            dirs.insert(path.clone(), *mode);
            changes.push(change);
        }
    }
    let mut files = BTreeMap::new();
    for (path, file) in &host.files {
        if let Some(change) = content(path, file, seen) {
            let reference = FileRef {
                digest: file.digest.clone(),
                mode: file.mode,
            };
            files.insert(path.clone(), reference);
            changes.push(change);
        }
    }
    if changes.is_empty() {
        return None;
    }
    // What no survey can see comes along whenever something is written.
    for (path, mode) in &host.dirs {
        if !readable(path) {
            dirs.insert(path.clone(), *mode);
        }
    }
    for (path, file) in &host.files {
        if !readable(path) {
            let reference = FileRef {
                digest: file.digest.clone(),
                mode: file.mode,
            };
            files.insert(path.clone(), reference);
        }
    }
    Some((Action::WriteFiles { dirs, files }, changes))
}

fn directory(
    path: &str,
    mode: u32,
    seen: &BTreeMap<String, FileFact>,
    facts: &HostFacts,
) -> Option<FieldChange> {
    let change = |from| {
        Some(FieldChange {
            field: format!("directory {path}"),
            from,
            to: Some(format!("{mode:04o}")),
        })
    };
    match seen.get(path) {
        Some(fact) if fact.is_dir && fact.mode == mode && root(fact) => None,
        Some(fact) => change(Some(shape(fact))),
        None if !readable(path) => {
            let watched = crate::actual::Before::PATHS.contains(&path);
            if watched && !facts.system.paths.contains(path) {
                change(None)
            } else {
                None
            }
        }
        // The archive of a folder may leave its root out.
        None if seen.keys().any(|below| is_below(below, path)) => None,
        None => change(None),
    }
}

fn content(
    path: &str,
    file: &DesiredFile,
    seen: &BTreeMap<String, FileFact>,
) -> Option<FieldChange> {
    let from = match seen.get(path) {
        Some(fact) if !fact.is_dir && fact.content == file.content => {
            if fact.mode == file.mode && root(fact) {
                return None;
            }
            Some(format!("the same content, {}", shape(fact)))
        }
        Some(fact) => Some(format!("another content, {}", shape(fact))),
        None if readable(path) => None,
        None => return None,
    };
    Some(FieldChange {
        field: format!("file {path}"),
        from,
        to: Some(format!("{} {:04o}", file.digest.0, file.mode)),
    })
}

/// True for the paths that a survey reads through the claim.
pub(super) fn readable(path: &str) -> bool {
    path == path::KUBERNETES
        || is_below(path, path::KUBERNETES)
        || [
            path::CONTAINERD_CONFIG,
            path::CONTAINERD_DROP_IN,
            path::MODULES_LOAD,
            path::SYSCTL,
        ]
        .contains(&path)
}

/// Files outside the folders that go away as a whole.
pub(super) const LOOSE_FILES: [&str; 2] = [path::MODULES_LOAD, path::SYSCTL];

pub(super) fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

const fn root(fact: &FileFact) -> bool {
    fact.uid == 0 && fact.gid == 0
}

fn shape(fact: &FileFact) -> String {
    let kind = if fact.is_dir { "directory " } else { "" };
    let owner = if root(fact) {
        String::new()
    } else {
        format!(" of {}:{}", fact.uid, fact.gid)
    };
    format!("{kind}{:04o}{owner}", fact.mode)
}

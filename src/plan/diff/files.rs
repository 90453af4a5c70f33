//! The files and directories that a node lacks or that differ. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::components::{self, Need};
use crate::{
    desired::{DesiredFile, DesiredHost},
    facts::{FileFact, HostFacts},
    model::{Component, Field, Owner, path},
    plan::{Cause, FieldChange, FileRef},
};

/// What one archive writes.
pub(in crate::plan) struct FilesDiff {
    pub(in crate::plan) dirs: BTreeMap<String, u32>,
    pub(in crate::plan) files: BTreeMap<String, FileRef>,
    pub(in crate::plan) changes: Vec<FieldChange>,
    pub(in crate::plan) cause: Cause,
}

/// One archive a node with everything that differs. Requested changes and automatic repairs
/// are in separate archives, since the operator leaves out changes that were not requested.
pub(super) fn differences(
    host: &DesiredHost,
    facts: &HostFacts,
    components: &BTreeMap<Component, Need>,
    renewed: Option<&BTreeSet<String>>,
) -> Vec<FilesDiff> {
    let why_now = WhyNow {
        host,
        facts,
        components,
        renewed,
    };
    let parts = [false, true].map(|asked| difference(&why_now, asked));
    parts.into_iter().flatten().collect()
}

/// What tells why a file of a node differs.
struct WhyNow<'a> {
    host: &'a DesiredHost,
    facts: &'a HostFacts,
    components: &'a BTreeMap<Component, Need>,
    renewed: Option<&'a BTreeSet<String>>,
}

impl WhyNow<'_> {
    fn cause(&self, path: &str, file: &DesiredFile, from: Option<&str>) -> Cause {
        let renewed = |path| self.renewed.is_some_and(|paths| paths.contains(path));
        // The copy of the state follows the state.
        if from.is_none() || path == path::STATE {
            return Cause::New;
        }
        if renewed(path) {
            return Cause::Expiry;
        }
        // nginx-proxy has read the wanted file, and it was overwritten since.
        if path == path::PROXY_CONFIG && proxy_has_read(self.host, self.facts) {
            return Cause::Drift;
        }
        let readers = self.host.containers.iter();
        let mut readers = readers.filter(|(_, spec)| spec.files.contains_key(path));
        let recorded = |component: Component| {
            let applied = components::applied(self.facts.container(component)?)?;
            applied.files.get(path).cloned()
        };
        readers
            .find_map(|(component, _)| {
                if recorded(*component).as_ref() == Some(&file.digest) {
                    return Some(Cause::Drift);
                }
                // A component that is replaced now reads it as its definition says.
                match self.components.get(component)?.cause()? {
                    Cause::Change => None,
                    cause @ (Cause::New
                    | Cause::Drift
                    | Cause::Expiry
                    | Cause::Leave
                    | Cause::Replace) => Some(cause),
                }
            })
            .unwrap_or(Cause::Change)
    }
}

/// The archive of what was asked for, or of the rest.
fn difference(why_now: &WhyNow<'_>, asked: bool) -> Option<FilesDiff> {
    let (host, facts) = (why_now.host, why_now.facts);
    let nothing = BTreeMap::new();
    let seen = facts.files.as_ref().unwrap_or(&nothing);
    let mut changes = Vec::new();
    let mut causes = BTreeSet::new();
    let mut dirs = BTreeMap::new();
    for (path, mode) in host.dirs.iter().filter(|_| !asked) {
        if let Some(change) = directory(path, *mode, seen, facts) {
            dirs.insert(path.clone(), *mode);
            causes.insert(change.from.as_ref().map_or(Cause::New, |_| Cause::Drift));
            changes.push(change);
        }
    }
    let mut files = BTreeMap::new();
    for (path, file) in &host.files {
        if path == path::PROXY_READ && proxy_stays(why_now.components) {
            continue;
        }
        if let Some(change) = content(path, file, seen) {
            let cause = why_now.cause(path, file, change.from.as_deref());
            if (cause == Cause::Change) != asked {
                continue;
            }
            let reference = FileRef {
                digest: file.digest.clone(),
                mode: file.mode,
            };
            files.insert(path.clone(), reference);
            causes.insert(cause);
            changes.push(change);
        }
    }
    // The one that says most; in the order of the enum.
    let cause = causes.into_iter().next_back()?;
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
    Some(FilesDiff {
        dirs,
        files,
        changes,
        cause,
    })
}

/// Why nginx-proxy must reload its servers, if it must.
pub(super) fn reload(
    host: &DesiredHost,
    facts: &HostFacts,
    components: &BTreeMap<Component, Need>,
    files: &[FilesDiff],
) -> Option<(Cause, FileRef)> {
    let read = host.files.get(path::PROXY_READ)?;
    let mut writes = files.iter();
    let writes = writes.find(|files| files.files.contains_key(path::PROXY_CONFIG));
    let cause = match writes {
        _ if !proxy_stays(components) => return None,
        Some(files) => files.cause,
        None if proxy_has_read(host, facts) => return None,
        // The run that wrote it was interrupted before the reload.
        None => Cause::Drift,
    };
    let read = FileRef {
        digest: read.digest.clone(),
        mode: read.mode,
    };
    Some((cause, read))
}

/// It runs and is not replaced: it does not reload its configuration automatically.
fn proxy_stays(components: &BTreeMap<Component, Need>) -> bool {
    components.get(&Component::NginxProxy) == Some(&Need::Nothing)
}

fn proxy_has_read(host: &DesiredHost, facts: &HostFacts) -> bool {
    let seen = facts.files.as_ref();
    let seen = seen.and_then(|files| files.get(path::PROXY_READ));
    let wanted = host.files.get(path::PROXY_READ);
    seen.is_some_and(|seen| wanted.is_some_and(|wanted| *seen.content == wanted.content))
}

fn directory(
    path: &str,
    mode: u32,
    seen: &BTreeMap<String, FileFact>,
    facts: &HostFacts,
) -> Option<FieldChange> {
    let change = |from| {
        Some(FieldChange {
            field: Field::Directory(path.to_owned()),
            from,
            to: Some(format!("{mode:04o}")),
        })
    };
    match seen.get(path) {
        Some(fact) if fact.is_dir && fact.mode == mode && fact.is_of(Owner::ROOT) => None,
        Some(fact) => change(Some(shape(fact))),
        None if !readable(path) => {
            let watched = crate::facts::Baseline::PATHS.contains(&path);
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
        Some(fact) if !fact.is_dir && *fact.content == file.content => {
            if fact.mode == file.mode && fact.is_of(file.owner) {
                return None;
            }
            Some(format!("the same content, {}", shape(fact)))
        }
        Some(fact) => Some(format!("another content, {}", shape(fact))),
        None if readable(path) => None,
        None => return None,
    };
    Some(FieldChange {
        field: Field::File(path.to_owned()),
        from,
        to: Some(format!("{} {:04o}", file.digest.0, file.mode)),
    })
}

/// True for the paths that a survey reads through the claim.
fn readable(path: &str) -> bool {
    path == path::KUBERNETES
        || is_below(path, path::KUBERNETES)
        || is_below(path, path::CERTS_D)
        || path::is_docker_authority(path)
        || [
            path::CONTAINERD_CONFIG,
            path::CONTAINERD_DROP_IN,
            path::FORMER_DROP_IN,
            path::MODULES_LOAD,
            path::SYSCTL,
        ]
        .contains(&path)
}

/// Files outside the folders that go away as a whole.
pub(in crate::plan) const LOOSE_FILES: [&str; 2] = [path::MODULES_LOAD, path::SYSCTL];

pub(in crate::plan) fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn shape(fact: &FileFact) -> String {
    let kind = if fact.is_dir { "directory " } else { "" };
    let owner = if fact.is_of(Owner::ROOT) {
        String::new()
    } else {
        format!(" of {}:{}", fact.uid, fact.gid)
    };
    format!("{kind}{:04o}{owner}", fact.mode)
}

//! What has to be done about each container of a node. Pure.
//!
//! World against label is drift, and is healed; label against desired is a change. Both replace
//! the container, and the reason says which it is (invariant 7).

use std::collections::{BTreeMap, BTreeSet};

use super::specs;
use crate::{
    desired::{DesiredHost, pki::Certificates},
    facts::{ContainerFact, ContainerState, HostFacts},
    model::{Component, ContainerSpec, Field, NodeName, path},
    plan::{Cause, FieldChange},
};

/// What has to be done about one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::plan) enum Need {
    /// It runs as defined.
    Nothing,
    /// It is not there.
    Run,
    /// It is there as defined and does not run; why.
    Start(String),
    /// It differs; why, and in what.
    Replace(Cause, String, Vec<FieldChange>),
}

impl Need {
    /// Why something has to be done, as data.
    pub(in crate::plan) const fn cause(&self) -> Option<Cause> {
        match self {
            Self::Nothing => None,
            Self::Run => Some(Cause::New),
            Self::Start(_) => Some(Cause::Drift),
            Self::Replace(cause, ..) => Some(*cause),
        }
    }
}

/// What has to be done about one wanted container of a host that is ours or free. One that reads a certificate that is
/// renewed is replaced for that reason, whatever else changes with it: an expiring certificate does not wait until a
/// user asks for a change.
pub(super) fn need(
    component: Component,
    host: &DesiredHost,
    facts: &HostFacts,
    name: &NodeName,
    certificates: &Certificates,
) -> Need {
    let Some(spec) = host.containers.get(&component) else {
        return Need::Nothing;
    };
    let is_in = |change: &FieldChange, of: &BTreeMap<NodeName, BTreeSet<String>>| {
        let (path, paths) = (change.field.path(), of.get(name));
        path.is_some_and(|path| paths.is_some_and(|paths| paths.contains(path)))
    };
    let reads = |change: &FieldChange| is_in(change, &certificates.renewed);
    match compared(component, spec, facts) {
        Need::Replace(Cause::Change, why, changes)
            if !changes.iter().any(reads) && is_renewal(component, &changes, host, facts) =>
        {
            let why = format!("its certificates were renewed since it was started; {why}");
            Need::Replace(Cause::Expiry, why, changes)
        }
        Need::Replace(_, why, changes) if changes.iter().any(reads) => {
            let any = |of| changes.iter().any(|change| is_in(change, of));
            let are = if any(&certificates.ended) {
                "have ended"
            } else if any(&certificates.rotated) {
                "are rotated"
            } else {
                "end soon"
            };
            let why = format!("its certificates {are}; {why}");
            Need::Replace(Cause::Expiry, why, changes)
        }
        need @ (Need::Nothing | Need::Run | Need::Start(_) | Need::Replace(..)) => need,
    }
}

/// True where only certificates for the same names, and their keys, differ: whatever wrote the files, the process
/// keeps using the former ones until it is replaced.
fn is_renewal(
    component: Component,
    changes: &[FieldChange],
    host: &DesiredHost,
    facts: &HostFacts,
) -> bool {
    let Some(applied) = facts.container(component).and_then(applied) else {
        return false;
    };
    let spec = host.containers.get(&component);
    let says = |path: &str| {
        let was = applied.certificates.get(path)?;
        let is = spec?.certificates.get(path)?;
        Some(was.is_renewed_by(is))
    };
    // An earlier release wrote no record: if the file is the wanted one, it was renewed.
    let is_written = |path: &str| {
        let files = facts.files.as_ref();
        let there = files.and_then(|files| files.get(path));
        let wanted = host.files.get(path);
        there.is_some_and(|there| wanted.is_some_and(|file| *there.content == file.content))
    };
    let renewed = |change: &FieldChange| {
        let Field::File(path) = &change.field else {
            return false;
        };
        let certificate = path.replace("-key.pem", ".pem");
        path::is_certificate(path) && says(&certificate).unwrap_or_else(|| is_written(path))
    };
    !changes.is_empty() && changes.iter().all(renewed)
}

/// World against label, and label against desired.
fn compared(component: Component, spec: &ContainerSpec, facts: &HostFacts) -> Need {
    let Some(fact) = facts.container(component) else {
        return Need::Run;
    };
    let Some(applied) = applied(fact) else {
        let why = "its definition is not on record".to_owned();
        return Need::Replace(Cause::Drift, why, Vec::new());
    };
    let drift = fact
        .runs
        .as_ref()
        .map(|runs| specs::differences(runs, &applied))
        .unwrap_or_default();
    let change = specs::differences(&applied, spec);
    match (drift.is_empty(), change.is_empty()) {
        (true, true) => state(fact.state),
        (false, true) => Need::Replace(
            Cause::Drift,
            format!("was changed on the node: {}", specs::names(&drift)),
            drift,
        ),
        (true, false) => {
            let (cause, why) = unless_it_runs(fact.state);
            let names = specs::names(&change);
            Need::Replace(cause, format!("{why}definition changed: {names}"), change)
        }
        (false, false) => {
            let (cause, why) = unless_it_runs(fact.state);
            let why = format!(
                "{why}definition changed: {}; and was changed on the node: {}",
                specs::names(&change),
                specs::names(&drift)
            );
            let runs = fact.runs.as_ref().unwrap_or(&applied);
            Need::Replace(cause, why, specs::differences(runs, spec))
        }
    }
}

/// What does not run is healed, whatever else differs: the definition that is wanted now disturbs
/// nothing there, and the former may be what ended it.
fn unless_it_runs(now: ContainerState) -> (Cause, String) {
    match state(now) {
        Need::Start(why) | Need::Replace(_, why, _) => (Cause::Drift, format!("{why}, and its ")),
        Need::Nothing | Need::Run => (Cause::Change, String::new()),
    }
}

/// The definition that was applied, as the label records it.
pub(in crate::plan) fn applied(fact: &ContainerFact) -> Option<ContainerSpec> {
    fact.applied()
}

fn state(state: ContainerState) -> Need {
    match state {
        ContainerState::Running | ContainerState::Restarting(_) => Need::Nothing,
        ContainerState::Created => Need::Start("was created but never started".to_owned()),
        ContainerState::Exited(code) => Need::Start(format!("exited with code {code}")),
        ContainerState::Other => {
            Need::Replace(Cause::Drift, "is paused or dead".to_owned(), Vec::new())
        }
    }
}

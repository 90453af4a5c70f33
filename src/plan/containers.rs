//! The components of a node: run what is missing, start what stands still, replace what differs.
//! Pure.
//!
//! World against label is drift, and is healed; label against desired is a change. Both replace
//! the container, and the reason says which it is (invariant 7).

use std::collections::BTreeSet;

use super::{Cause, FieldChange, HostAction, Note, Stage, Step, Target, diff, hosts};
use crate::{
    actual::{Actual, ContainerFact, ContainerState, HostFacts},
    desired::{Desired, DesiredHost},
    model::{ContainerSpec, NodeName, START_ORDER, label},
};

/// What has to be done about one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
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
    pub(super) const fn cause(&self) -> Option<Cause> {
        match self {
            Self::Nothing => None,
            Self::Run => Some(Cause::New),
            Self::Start(_) => Some(Cause::Drift),
            Self::Replace(cause, ..) => Some(*cause),
        }
    }
}

/// What waits for the API before it does anything: started too early it takes its lease seconds
/// late, and the controller manager exits.
const CONTROLLERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// What is missing or stands still, on all hosts side by side: all of a fresh cluster are started
/// before any is awaited. What differs is replaced in a roll.
pub(super) fn start(want: &Desired, have: &Actual) -> Stage {
    hosts::preparing("start", want, have, |name, host, facts| {
        let mut steps = Vec::new();
        for (component, spec) in in_order(host) {
            if CONTROLLERS.contains(&component) {
                continue;
            }
            if component == "kubelet" && need(component, spec, facts) == Need::Run {
                steps.push(import_pause(name, host, Cause::New));
            }
            steps.extend(step(name, component, spec, facts));
        }
        steps
    })
}

/// Started when the API answers.
pub(super) fn controllers(want: &Desired, have: &Actual) -> Stage {
    hosts::preparing("controllers", want, have, |name, host, facts| {
        let controllers = in_order(host).filter(|(name, _)| CONTROLLERS.contains(name));
        controllers
            .filter_map(|(component, spec)| step(name, component, spec, facts))
            .collect()
    })
}

/// The components of a host in the order in which they start.
pub(super) fn in_order(host: &DesiredHost) -> impl Iterator<Item = (&str, &ContainerSpec)> {
    let known = START_ORDER
        .into_iter()
        .filter_map(|name| host.containers.get_key_value(name));
    let others = host
        .containers
        .iter()
        .filter(|(name, _)| !START_ORDER.contains(&name.as_str()));
    known
        .chain(others)
        .map(|(name, spec)| (name.as_str(), spec))
}

/// What has to be done about one wanted container of a host that is ours or free.
pub(super) fn need(component: &str, spec: &ContainerSpec, facts: &HostFacts) -> Need {
    let Some(fact) = facts.containers.get(component) else {
        return Need::Run;
    };
    let Some(applied) = applied(fact) else {
        let why = "its definition is not on record".to_owned();
        return Need::Replace(Cause::Drift, why, Vec::new());
    };
    let drift = fact
        .runs
        .as_ref()
        .map(|runs| diff::specs(runs, &applied))
        .unwrap_or_default();
    let change = diff::specs(&applied, spec);
    match (drift.is_empty(), change.is_empty()) {
        (true, true) => state(fact.state),
        (false, true) => Need::Replace(
            Cause::Drift,
            format!("was changed on the node: {}", diff::names(&drift)),
            drift,
        ),
        (true, false) => Need::Replace(
            Cause::Change,
            format!("definition changed: {}", diff::names(&change)),
            change,
        ),
        (false, false) => {
            let why = format!(
                "definition changed: {}; and was changed on the node: {}",
                diff::names(&change),
                diff::names(&drift)
            );
            let runs = fact.runs.as_ref().unwrap_or(&applied);
            Need::Replace(Cause::Change, why, diff::specs(runs, spec))
        }
    }
}

/// As [`need`]; a component that reads a certificate that is renewed is replaced for that, whatever
/// else changes with it: a certificate that ends does not wait until somebody asks for a change.
pub(super) fn need_now(
    component: &str,
    spec: &ContainerSpec,
    facts: &HostFacts,
    renewed: Option<&BTreeSet<String>>,
) -> Need {
    let reads = |change: &FieldChange| {
        let path = change.field.strip_prefix("file ");
        path.is_some_and(|path| renewed.is_some_and(|paths| paths.contains(path)))
    };
    match need(component, spec, facts) {
        Need::Replace(_, why, changes) if changes.iter().any(reads) => Need::Replace(
            Cause::Expiry,
            format!("its certificates end soon; {why}"),
            changes,
        ),
        need @ (Need::Nothing | Need::Run | Need::Start(_) | Need::Replace(..)) => need,
    }
}

/// The definition that was applied, as the label records it.
pub(super) fn applied(fact: &ContainerFact) -> Option<ContainerSpec> {
    serde_json::from_str(fact.labels.get(label::SPEC)?).ok()
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

fn step(name: &NodeName, component: &str, spec: &ContainerSpec, facts: &HostFacts) -> Option<Step> {
    let container = component.to_owned();
    match need(component, spec, facts) {
        Need::Nothing | Need::Replace(..) => None,
        Need::Run => Some(Step::on(
            name,
            Cause::New,
            format!("this node has no `{component}` yet"),
            HostAction::RunContainer {
                name: container,
                spec: Box::new(spec.clone()),
            },
        )),
        Need::Start(why) => {
            let action = HostAction::StartContainer { name: container };
            Some(Step::on(name, Cause::Drift, why, action))
        }
    }
}

/// The pause image goes in before the kubelet that needs it: a run that is cut off between the
/// two is seen, because kubelet is still missing.
pub(super) fn pause_comes_with_kubelet(host: &DesiredHost, facts: &HostFacts) -> bool {
    host.containers
        .get("kubelet")
        .is_some_and(|spec| match need("kubelet", spec, facts) {
            Need::Run => true,
            // A roll that puts it off would put the image off, too.
            Need::Replace(..) | Need::Nothing | Need::Start(_) => false,
        })
}

/// Into containerd's own namespace, where kubelet's sandboxes look for it.
pub(super) fn import_pause(name: &NodeName, host: &DesiredHost, cause: Cause) -> Step {
    let action = HostAction::ImportPause {
        image: host.containerd.sandbox_image.clone(),
    };
    Step::on(name, cause, "containerd starts every pod from it", action)
}

/// What keeps restarting is left to Docker and awaited; the reader is told.
pub(super) fn notes(want: &Desired, have: &Actual) -> Vec<Note> {
    hosts::each(want, have)
        .flat_map(|(name, host, facts)| {
            host.containers.keys().filter_map(move |component| {
                let fact = facts.containers.get(component)?;
                match fact.state {
                    ContainerState::Restarting(code) => Some(Note {
                        target: Some(Target::Host(name.clone())),
                        text: format!(
                            "`{component}` keeps exiting with code {code} and Docker restarts \
                             it: `docker logs {component}` says why"
                        ),
                    }),
                    ContainerState::Created
                    | ContainerState::Running
                    | ContainerState::Exited(_)
                    | ContainerState::Other => None,
                }
            })
        })
        .collect()
}

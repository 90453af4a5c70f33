//! What differs, host by host, and why: new, drifted, changed, about to expire. Pure. Worked out
//! once for a plan; in which order it is mended is [`schedule`](super::schedule)'s business.

use std::collections::BTreeMap;

use super::{
    Cause, FieldChange, FileRef, Guard, PreflightError, back,
    held::{Held, Replacement, Turn},
};
use crate::{
    desired::{Desired, DesiredHost},
    facts::{Actual, ApiView, ContainerState, HostFacts},
    model::{Component, NodeName},
};

mod addons;
mod charts;
mod components;
mod containerd;
mod files;
mod images;
mod kernel;
mod specs;

pub use containerd::config_digest;

pub(super) use self::{
    addons::{AddonDiff, NETWORK, network, same_applied},
    charts::ChartDiff,
    components::{Need, applied},
    containerd::ContainerdDiff,
    files::{FilesDiff, LOOSE_FILES, is_below},
    images::MissingImage,
};
pub(crate) use images::present;

/// What differs between what must be and what is.
pub(super) struct Diff<'a> {
    pub(super) want: &'a Desired,
    pub(super) have: &'a Actual,
    /// The wanted hosts that answered.
    pub(super) hosts: BTreeMap<&'a NodeName, HostDiff<'a>>,
    /// When kubelets and kube-proxies of the wanted release may start.
    pub(super) turn: Turn,
    /// In the order in which they are applied.
    pub(super) addons: Vec<AddonDiff<'a>>,
    /// The charts that are to be rendered and applied, in order.
    pub(super) charts: Vec<ChartDiff<'a>>,
}

impl Diff<'_> {
    /// True where a component is replaced, and a certificate that it reads has ended.
    pub(super) fn has_ended(&self, component: Component, name: &NodeName) -> bool {
        let host = self.hosts.get(name);
        let Some(Need::Replace(_, _, changes)) = host.map(|host| host.need(component)) else {
            return false;
        };
        let ended = self.want.certificates.ended.get(name);
        let mut paths = changes.iter().filter_map(|change| change.field.path());
        ended.is_some_and(|ended| paths.any(|path| ended.contains(path)))
    }
}

/// What differs on one host.
pub(super) struct HostDiff<'a> {
    pub(super) want: &'a DesiredHost,
    pub(super) facts: &'a HostFacts,
    /// Images that its Docker lacks.
    pub(super) images: Vec<MissingImage<'a>>,
    /// Modules and sysctls.
    pub(super) kernel: Vec<FieldChange>,
    /// An archive for each part that is written for itself.
    pub(super) files: Vec<FilesDiff>,
    /// Why nginx-proxy must reload its servers, and the file that records the reload.
    pub(super) reload: Option<(Cause, FileRef)>,
    /// `Ok(None)`: as it must be. The error says why its file cannot be worked out.
    pub(super) containerd: Result<Option<ContainerdDiff>, Box<PreflightError>>,
    /// What has to be done about each wanted container.
    components: BTreeMap<Component, Need>,
    /// What was worked out of those that are to be replaced.
    replacements: BTreeMap<Component, Replacement>,
}

impl HostDiff<'_> {
    /// What has to be done about a component: nothing, where it is not wanted.
    pub(super) fn need(&self, component: Component) -> &Need {
        self.components.get(&component).unwrap_or(&Need::Nothing)
    }

    /// True when this host must have the component.
    pub(super) fn has(&self, component: Component) -> bool {
        self.components.contains_key(&component)
    }

    /// Why a component that is to be replaced is left as it is for now, if it is.
    pub(super) fn held(&self, component: Component) -> Option<&Held> {
        self.replacements.get(&component)?.held.as_ref()
    }

    /// Why a component is replaced in this plan, if it is.
    pub(super) fn replaces(&self, component: Component) -> Option<Cause> {
        match self.need(component) {
            Need::Replace(cause, ..) => self.held(component).is_none().then_some(*cause),
            Need::Nothing | Need::Run | Need::Start(_) => None,
        }
    }

    /// What must hold just before a component is replaced.
    pub(super) fn guards(&self, component: Component) -> &[Guard] {
        let replacement = self.replacements.get(&component);
        replacement.map_or(&[], |replacement| &replacement.guards)
    }

    /// Records what was decided about a component that is to be replaced.
    pub(super) fn set_replacement(&mut self, component: Component, replacement: Replacement) {
        self.replacements.insert(component, replacement);
    }

    /// What restarts containerd, if it is to be restarted.
    pub(super) fn containerd(&self) -> Option<&ContainerdDiff> {
        self.containerd.as_ref().ok()?.as_ref()
    }
}

/// A kubelet registers its Node when it starts, and never again: if the Node of a running kubelet was deleted,
/// only a restart brings it back. A restart is harmless to one that is about to register.
fn unless_it_is_missed(
    name: &NodeName,
    component: Component,
    facts: &HostFacts,
    need: Need,
    have: &Actual,
) -> Need {
    let kubelet = component == Component::Kubelet;
    let fact = facts.container(component);
    let runs = fact.is_some_and(|fact| fact.state == ContainerState::Running);
    let missed = match have.api() {
        ApiView::Up(api) => !api.nodes.contains_key(name),
        ApiView::Unknown | ApiView::Unreachable(_) => false,
    };
    if missed && kubelet && runs && need == Need::Nothing {
        let why = "its Node object is gone, and it makes one only when it starts";
        return Need::Replace(Cause::Drift, why.to_owned(), Vec::new());
    }
    need
}

/// Where the new definition is refused the former goes on: one that has exited is started again as it is.
fn unless_refused(
    component: Component,
    facts: &HostFacts,
    need: Need,
    want: &Desired,
    have: &Actual,
) -> Need {
    let fact = facts.container(component);
    let exited = fact.is_some_and(|fact| {
        matches!(
            fact.state,
            ContainerState::Created | ContainerState::Exited(_)
        )
    });
    if matches!(need, Need::Replace(..)) && exited && back::refused(component, want, have).is_some()
    {
        return Need::Start("does not run, and its new definition is refused".to_owned());
    }
    need
}

/// Compares.
pub(super) fn diff<'a>(want: &'a Desired, have: &'a Actual) -> Diff<'a> {
    let charts = charts::differences(want, have);
    let hosts = want.hosts.iter().filter_map(|(name, host)| {
        // What is left of a node that was given up goes first; then this one joins.
        if want.saved.is_lost(name) {
            return None;
        }
        let facts = have.up(name)?;
        let renewed = want.certificates.renewed.get(name);
        let components: BTreeMap<Component, Need> = host
            .containers
            .keys()
            .map(|component| {
                let need = components::need(*component, host, facts, name, &want.certificates);
                let need = unless_it_is_missed(name, *component, facts, need, have);
                let need = unless_refused(*component, facts, need, want, have);
                (*component, need)
            })
            .collect();
        let files = files::differences(host, facts, &components, renewed);
        let diff = HostDiff {
            want: host,
            facts,
            images: images::missing(host, facts, &components)
                .into_iter()
                .chain(charts::images(name, facts, &charts))
                .collect(),
            kernel: kernel::differences(&host.kernel, &facts.system),
            reload: files::reload(host, facts, &components, &files),
            files,
            containerd: containerd::difference(name, host, facts),
            components,
            replacements: BTreeMap::new(),
        };
        Some((name, diff))
    });
    Diff {
        want,
        have,
        hosts: hosts.collect(),
        turn: Turn::Now,
        addons: want
            .addons
            .iter()
            .map(|addon| addons::difference(addon, have))
            .collect(),
        charts,
    }
}

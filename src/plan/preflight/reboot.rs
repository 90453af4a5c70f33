//! What prevents a reboot of nodes. Pure.

use super::{PreflightError, PreflightErrors, lost::meant};
use crate::{
    desired::Desired,
    error::ErrorClass,
    facts::{Actual, ApiView, HostView},
    model::NodeName,
    plan::Reboot,
};

/// Everything at once: before the first machine is rebooted all of them are known.
pub(in crate::plan) fn reboot(
    want: &Desired,
    have: &Actual,
    request: &Reboot,
) -> Result<(), PreflightErrors> {
    let errors = request.nodes.iter();
    let errors = errors.filter_map(|name| cannot(name, want, have));
    PreflightErrors::unless_empty(errors.collect())
}

fn cannot(name: &NodeName, want: &Desired, have: &Actual) -> Option<PreflightError> {
    let saved = have.saved.as_ref();
    let is_known = saved.is_some_and(|saved| {
        saved.inventory.contains_key(name) && !saved.is_lost(name) && want.hosts.contains_key(name)
    });
    if !is_known {
        return Some(PreflightError {
            node: Some(name.clone()),
            message: format!("node `{name}` is not in the cluster"),
            hints: meant(
                name,
                saved.into_iter().flat_map(|saved| saved.inventory.keys()),
            ),
            class: ErrorClass::User,
        });
    }
    let facts = match have.hosts.get(name) {
        Some(HostView::Reachable(facts)) => facts,
        Some(HostView::Unreachable(down)) => {
            let message = format!("node `{name}` cannot be rebooted over SSH: {}", down.why);
            return Some(PreflightError::host(name, message, down.hints.clone()));
        }
        None => {
            let message = format!("node `{name}` was not looked at");
            return Some(PreflightError::host(name, message, []));
        }
    };
    let ApiView::Up(api) = have.api() else {
        let message = format!(
            "node `{name}` is not rebooted: no API server answers, and what is done is recorded there"
        );
        let hint =
            "`rke-operator up` (of a `Cluster`: the next reconcile) repairs what prevents it";
        return Some(PreflightError::host(name, message, [hint.to_owned()]));
    };
    let message = if !api.nodes.contains_key(name) {
        format!("the API has no Node `{name}`")
    } else if !facts.is_of(&want.cluster_id) {
        format!("the machine of node `{name}` has nothing of this cluster")
    } else if facts.system.boot.is_none() {
        format!(
            "node `{name}` does not show which boot of the machine runs: `/proc/sys/kernel/random/boot_id` \
             cannot be read"
        )
    } else {
        return None;
    };
    Some(PreflightError::host(name, message, []))
}

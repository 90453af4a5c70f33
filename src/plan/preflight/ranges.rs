//! The ranges of pods and Services and the network plugin stay. Pure. What has an address of the old range
//! keeps it: nodes their part of the pods' range, Services theirs, and the controllers end at what lies
//! outside of the new one; and every pod has its interface from the plugin that was there when it started.

use std::collections::BTreeSet;

use super::PreflightError;
use crate::{
    actual::{Actual, ApiView},
    desired::Desired,
    error::ErrorClass,
    model::{Component, ContainerSpec, label},
    plan::diff::{self, NETWORK, applied},
};

/// Who has a range, as which flag, what it is for, and the key that says so.
const RANGES: [(Component, &str, &str, &str); 2] = [
    (
        Component::ControllerManager,
        "--cluster-cidr=",
        "pods",
        "services.kube-controller.cluster_cidr",
    ),
    (
        Component::ApiServer,
        "--service-cluster-ip-range=",
        "Services",
        "services.kube-api.service_cluster_ip_range",
    ),
];

/// Refuses a range that differs from the one that some node of this cluster runs with.
pub(super) fn errors(want: &Desired, have: &Actual) -> Vec<PreflightError> {
    let mut errors = Vec::new();
    for (component, flag, what, key) in RANGES {
        let container = component.container();
        let changes: BTreeSet<(String, String)> = want
            .hosts
            .iter()
            .filter_map(|(name, host)| {
                let fact = have.up(name)?.containers.get(container)?;
                let ours = fact.labels.get(label::CLUSTER_ID) == Some(&want.cluster_id.0);
                let was = range(&applied(fact).filter(|_| ours)?, flag)?;
                let is = range(host.containers.get(container)?, flag)?;
                (was != is).then_some((was, is))
            })
            .collect();
        errors.extend(changes.into_iter().map(|(was, is)| PreflightError {
            node: None,
            message: format!(
                "the {what} of cluster `{}` have addresses of {was}: the range cannot be changed to {is}",
                want.saved.cluster_name
            ),
            hints: vec![format!(
                "write {was} as `{key}` again; another range needs another cluster"
            )],
            class: ErrorClass::User,
        }));
    }
    errors
}

/// Refuses another network plugin than the one that the cluster has. One that was never wholly applied
/// may be exchanged: nothing works with it yet.
pub(super) fn network(want: &Desired, have: &Actual) -> Option<PreflightError> {
    let (Some(saved), ApiView::Up(api)) = (&have.saved, have.api()) else {
        return None;
    };
    if !saved.memory.populated {
        return None;
    }
    let runs = |plugin: &str| {
        let chart = api.charts.get(plugin);
        let applied = chart.is_some_and(|fact| fact.record.digest.is_some());
        let of = |value: &serde_json::Value| value["metadata"]["labels"][label::ADDON] == plugin;
        let mut objects = api.objects.iter();
        applied || objects.any(|(object, value)| object.kind == "DaemonSet" && of(value))
    };
    let was = NETWORK.into_iter().find(|plugin| runs(plugin))?;
    let is = diff::network(want).unwrap_or("none");
    (is != was).then(|| PreflightError {
        node: None,
        message: format!(
            "the network plugin of cluster `{}` is `{was}`: it cannot be changed to `{is}`",
            want.saved.cluster_name
        ),
        hints: vec![format!(
            "write `plugin: {was}` under `network` again; another plugin needs another cluster"
        )],
        class: ErrorClass::User,
    })
}

fn range(spec: &ContainerSpec, flag: &str) -> Option<String> {
    let mut words = spec.command.iter();
    words.find_map(|word| word.strip_prefix(flag).map(str::to_owned))
}

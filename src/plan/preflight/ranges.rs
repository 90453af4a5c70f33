//! The ranges of pods and Services, the domain and the network plugin stay. Pure. What has an address of the
//! old range keeps it: nodes their part of the pods' range, Services theirs, and the controllers end at what
//! lies outside of the new one; pods look for names in the domain that their kubelet had when they started, and
//! have their interface from the plugin that was there.

use std::collections::BTreeSet;

use super::PreflightError;
use crate::{
    desired::Desired,
    error::ErrorClass,
    facts::{Actual, ApiView},
    model::{Component, ContainerSpec, label},
    plan::diff::{self, NETWORK, applied},
};

/// What stays as it is.
struct Stays {
    /// Who has it, as which flag, and how it begins there.
    component: Component,
    flag: &'static str,
    /// What of its value comes before that.
    before: &'static str,
    /// Whose it is.
    of: &'static str,
    /// What they have of it.
    have: &'static str,
    what: &'static str,
    /// The key that says so.
    key: &'static str,
}

const STAYS: [Stays; 3] = [
    Stays {
        component: Component::ControllerManager,
        flag: "cluster-cidr",
        before: "",
        of: "pods",
        have: "addresses of",
        what: "range",
        key: "services.kube-controller.cluster_cidr",
    },
    Stays {
        component: Component::ApiServer,
        flag: "service-cluster-ip-range",
        before: "",
        of: "Services",
        have: "addresses of",
        what: "range",
        key: "services.kube-api.service_cluster_ip_range",
    },
    // The domain has no dedicated flag. An issuer that the config gives is another one, and tells nothing.
    Stays {
        component: Component::ApiServer,
        flag: "service-account-issuer",
        before: "https://kubernetes.default.svc.",
        of: "Services",
        have: "names in",
        what: "domain",
        key: "services.kubelet.cluster_domain",
    },
];

/// Refuses a range or a domain that differs from the one that some node of this cluster runs with.
pub(super) fn errors(want: &Desired, have: &Actual) -> Vec<PreflightError> {
    let mut errors = Vec::new();
    for stays in STAYS {
        let Stays {
            component,
            flag,
            before,
            of,
            have: has,
            what,
            key,
        } = stays;
        let changes: BTreeSet<(String, String)> = want
            .hosts
            .iter()
            .filter_map(|(name, host)| {
                let fact = have.up(name)?.container(component)?;
                let ours = fact.labels.get(label::CLUSTER_ID) == Some(&want.cluster_id.0);
                let was = value(&applied(fact).filter(|_| ours)?, flag, before)?;
                let is = value(host.containers.get(&component)?, flag, before)?;
                (was != is).then_some((was, is))
            })
            .collect();
        errors.extend(changes.into_iter().map(|(was, is)| PreflightError {
            node: None,
            message: format!(
                "the {of} of cluster `{}` have {has} {was}: the {what} cannot be changed to {is}",
                want.saved.cluster_name
            ),
            hints: vec![format!(
                "set `{key}` to {was} again; another {what} needs another cluster"
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
            "set `plugin: {was}` under `network` again; another plugin needs another cluster"
        )],
        class: ErrorClass::User,
    })
}

fn value(spec: &ContainerSpec, flag: &str, before: &str) -> Option<String> {
    let mut values = spec.flag(flag);
    values.find_map(|value| value.strip_prefix(before).map(str::to_owned))
}

//! From one release to another: never back, and one minor at a time. Pure.
//!
//! Patches of one minor of etcd may be exchanged in either direction: neighbouring releases of
//! Kubernetes come with them in any order (1.33.13 has 3.6.14, 1.34.4 has 3.6.7).

use super::PreflightError;
use crate::{
    catalog::Catalogue,
    desired::{Desired, DesiredHost},
    error::ErrorClass,
    facts::{Actual, ApiView, HostFacts},
    model::{Component, ImageVersion, NodeName, image_version, label, label::LOSE},
    plan::release::{self, text},
};

/// Components that go from one minor release of Kubernetes to the next. A kubelet, and kube-proxy with
/// it, may skip some: the API servers serve older ones, and a node that was away comes back with one.
const STEPWISE: [Component; 3] = [
    Component::ApiServer,
    Component::ControllerManager,
    Component::Scheduler,
];

/// What keeps nothing that an older release could not read, and serves no newer one.
const UNORDERED: [Component; 2] = [Component::NginxProxy, Component::Snapshots];

/// How many minor releases a kubelet may be older than an API server.
const SKEW: u32 = 3;

/// The running components of a node, compared with those that are wanted there.
pub(super) fn errors(
    want: &Desired,
    have: &Actual,
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Vec<PreflightError> {
    let mut errors = Vec::new();
    for (component, spec) in &host.containers {
        let Some(fact) = facts.container(*component) else {
            continue;
        };
        let ours = fact.labels.get(label::CLUSTER_ID) == Some(&want.cluster_id.0);
        let runs = release::runs(*component, name, have);
        let wanted = release::wanted(*component, spec, want);
        let (Some(runs), Some(wanted)) = (runs, wanted) else {
            continue;
        };
        if !ours || runs == wanted {
            continue;
        }
        if UNORDERED.contains(component) {
            continue;
        }
        if *component == Component::Etcd {
            errors.extend(etcd(name, runs, wanted));
        } else if wanted < runs {
            errors.push(back(name, *component, runs, wanted));
        } else if STEPWISE.contains(component) && !one_minor(runs, wanted) {
            errors.push(too_far(name, *component, runs, wanted));
        }
    }
    // One cause: every component says the same.
    errors.dedup_by(|a, b| a.hints == b.hints);
    errors
}

/// Kubelets that the API servers of the wanted release would no longer serve, those of nodes that do not
/// answer among them.
pub(super) fn left_behind(want: &Desired, have: &Actual) -> Vec<PreflightError> {
    let component = Component::ApiServer;
    let mut next = want.hosts.iter().filter_map(|(name, host)| {
        let wanted = release::wanted(component, host.containers.get(&component)?, want)?;
        let runs = release::runs(component, name, have)?;
        (wanted.1 > runs.1).then_some(wanted)
    });
    let (Some(wanted), ApiView::Up(api)) = (next.next(), have.api()) else {
        return Vec::new();
    };
    let behind = api.nodes.iter().filter_map(|(name, node)| {
        let (_, minor, _) = image_version(&format!("kubelet:{}", node.kubelet_version))?;
        (minor + SKEW < wanted.1).then(|| left(name, &node.kubelet_version, wanted))
    });
    behind.collect()
}

fn left(name: &NodeName, runs: &str, wanted: ImageVersion) -> PreflightError {
    PreflightError {
        node: Some(name.clone()),
        message: format!(
            "the kubelet of node `{name}` has {runs}: an API server of {} serves none that is more than \
             {SKEW} minor releases older",
            text(wanted)
        ),
        hints: vec![format!(
            "bring the node back and run `up` with the release that the cluster has: its kubelet is replaced; or \
            remove `{name}` from the config, with `--lose {name}` (a `Cluster` has the \
             annotation `{LOSE}: {name}`) if it is gone for good"
        )],
        class: ErrorClass::User,
    }
}

/// etcd's data moves to the next minor from the newest patch of the present one, and to no older minor.
fn etcd(name: &NodeName, runs: ImageVersion, wanted: ImageVersion) -> Option<PreflightError> {
    let minor = |(major, minor, _): ImageVersion| (major, minor);
    if minor(runs) == minor(wanted) {
        return None;
    }
    if wanted < runs {
        return Some(back(name, Component::Etcd, runs, wanted));
    }
    let known = Catalogue::builtin().map(|catalogue| {
        let images = catalogue.etcd_images();
        let versions = images.filter_map(|(release, image)| Some((image_version(image)?, release)));
        versions
            .filter(|(etcd, _)| minor(*etcd) == minor(runs))
            .max()
    });
    let (newest, release) = known.ok().flatten()?;
    if runs >= newest && one_minor(runs, wanted) {
        return None;
    }
    let (runs, wanted, newest) = (text(runs), text(wanted), text(newest));
    Some(PreflightError {
        node: Some(name.clone()),
        message: format!(
            "node `{name}` runs etcd {runs}, and the config wants {wanted}: every member has to run \
             {newest} before the first one of the next minor release"
        ),
        hints: vec![format!(
            "set a `kubernetes_version` that comes with etcd {newest} first, as {release} does; when that is up, \
            continue from there"
        )],
        class: ErrorClass::User,
    })
}

const fn one_minor(runs: ImageVersion, wanted: ImageVersion) -> bool {
    runs.0 == wanted.0 && wanted.1 <= runs.1 + 1
}

fn back(
    name: &NodeName,
    component: Component,
    runs: ImageVersion,
    wanted: ImageVersion,
) -> PreflightError {
    let (runs, wanted) = (text(runs), text(wanted));
    PreflightError {
        node: Some(name.clone()),
        message: format!(
            "node `{name}` runs {component} {runs}, and the config wants {wanted}: going back is \
             not supported by Kubernetes or etcd"
        ),
        hints: vec![
            "set the `kubernetes_version` (and `system_images`, if there are any) that the cluster runs, or a newer one"
                .to_owned(),
        ],
        class: ErrorClass::User,
    }
}

fn too_far(
    name: &NodeName,
    component: Component,
    runs: ImageVersion,
    wanted: ImageVersion,
) -> PreflightError {
    let (major, minor, _) = runs;
    let next = format!("v{major}.{}", minor + 1);
    let (runs, wanted) = (text(runs), text(wanted));
    PreflightError {
        node: Some(name.clone()),
        message: format!(
            "node `{name}` runs {component} {runs}, and the config wants {wanted}: Kubernetes is \
             upgraded one minor release at a time"
        ),
        hints: vec![format!(
            "set a `kubernetes_version` of {next} first; when that is up, continue from there"
        )],
        class: ErrorClass::User,
    }
}

#[cfg(test)]
mod tests {
    use super::{etcd, one_minor};

    #[test]
    fn etcd_goes_to_the_next_minor_from_any_patch() {
        let said = |runs, wanted| etcd(&"n1".into(), runs, wanted).map(|error| error.message);
        assert_eq!(
            said((3, 6, 14), (3, 6, 7)),
            None,
            "patches in either direction"
        );
        assert_eq!(said((3, 5, 21), (3, 5, 26)), None);
        assert_eq!(said((3, 5, 26), (3, 6, 14)), None);
        let first = said((3, 5, 21), (3, 6, 14)).unwrap();
        assert!(first.contains("v3.5.26 before the first"), "{first}");
        let back = said((3, 6, 7), (3, 5, 26)).unwrap();
        assert!(back.contains("going back"), "{back}");
        assert!(said((3, 5, 26), (3, 7, 0)).is_some(), "one is left out");
        let error = etcd(&"n1".into(), (3, 5, 21), (3, 6, 14)).unwrap();
        assert!(error.hints[0].contains("as v1."), "{:?}", error.hints);
    }

    #[test]
    fn one_minor_at_a_time() {
        assert!(one_minor((1, 34, 4), (1, 34, 9)));
        assert!(one_minor((1, 34, 9), (1, 35, 0)));
        assert!(!one_minor((1, 34, 4), (1, 36, 0)));
        assert!(!one_minor((1, 34, 4), (2, 0, 0)));
    }
}

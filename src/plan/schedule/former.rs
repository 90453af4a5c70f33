//! What is left of a life of etcd's data before the present one is stopped, before anything else is done. Pure.

use crate::{
    desired::Desired,
    facts::Actual,
    model::{Component, NodeName},
    plan::{Cause, Guard, HostAction, OnFailure, Stage, Step, former},
};

/// First kubelets: pods go on without them, and none is started or ended. Then what gives them orders, and etcd last.
pub(super) fn stop(want: &Desired, have: &Actual, cause: Cause, why: &'static str) -> Vec<Stage> {
    let stage = |name: &'static str, of: &dyn Fn(Component) -> bool| {
        let all = former::containers(want, have).filter(|(_, component)| of(*component));
        let steps = all.map(|(node, component)| one(node, component, cause, why, want));
        Stage::of(name, want.hosts.len(), steps).on_failure(OnFailure::EndRun)
    };
    vec![
        stage("kubelets", &|component| component == Component::Kubelet),
        stage("former", &|component| component != Component::Kubelet),
    ]
}

fn one(
    node: &NodeName,
    component: Component,
    cause: Cause,
    why: &'static str,
    want: &Desired,
) -> Step {
    let name = component.container().to_owned();
    let guard = Guard::IsFormer {
        node: node.clone(),
        name: name.clone(),
        epoch: want.saved.epoch(),
    };
    Step::on(node, cause, why, HostAction::RemoveContainer { name })
        .guarded(&want.cluster_id)
        .only_if(guard)
}

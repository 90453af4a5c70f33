//! A restore that was cut off is taken back, as long as no API server of it has served: what was there before goes on.
//! Pure.

use super::state;
use crate::{
    desired::Desired,
    facts::Actual,
    model::{Component, NodeName},
    plan::{
        Cause, Guard, HostAction, OnFailure, Plan, Stage, Step,
        former::{self, LIVES},
        schedule::{part::Part, plan},
    },
    state::EtcdEpoch,
};

/// Containers of the restore are stopped, and the data are put back. Then, and not before, the state says so.
pub(in crate::plan) fn take_back(want: &Desired, have: &Actual, epoch: &EtcdEpoch) -> Plan {
    // Data are moved only where the former member was stopped.
    let members = want.with(Component::Etcd).filter(|name| {
        let facts = have.up(name);
        facts.is_some_and(|facts| !former::is_former(Component::Etcd, facts, epoch.number, want))
    });
    let stop = have
        .hosts
        .keys()
        .flat_map(|name| stops(name, want, have, epoch));
    let back = members.map(|name| {
        let action = HostAction::PutEtcdBack {
            epoch: epoch.number,
        };
        let why = "the restore is taken back";
        Step::on(name, Cause::Change, why, action).guarded(&want.cluster_id)
    });
    let width = want.hosts.len();
    let stages = [
        Stage::of("former", width, stop),
        Stage::of("data", width, back),
    ];
    let stages = stages.map(|stage| stage.on_failure(OnFailure::EndRun));
    plan([
        Part {
            stages: stages.into(),
            notes: Vec::new(),
        },
        state::save(want, have),
    ])
}

fn stops(name: &NodeName, want: &Desired, have: &Actual, epoch: &EtcdEpoch) -> Vec<Step> {
    let Some(facts) = have.up(name) else {
        return Vec::new();
    };
    let new = LIVES.into_iter().filter_map(|component| {
        let fact = facts.container(component)?;
        let is_new = fact.is_of(&want.cluster_id) && fact.epoch() == epoch.number;
        is_new.then_some((component.container(), fact))
    });
    let steps = new.map(|(component, fact)| {
        let guard = Guard::ContainerIs {
            node: name.clone(),
            name: component.to_owned(),
            id: fact.id.clone(),
        };
        let action = HostAction::RemoveContainer {
            name: component.to_owned(),
        };
        let why = "it is of the restore that is taken back";
        Step::on(name, Cause::Change, why, action)
            .guarded(&want.cluster_id)
            .only_if(guard)
    });
    steps.collect()
}

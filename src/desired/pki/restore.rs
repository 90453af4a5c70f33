//! A restore of etcd's data, in the state: what is begun, and when it is done. Pure.

use std::collections::BTreeMap;

use crate::{
    config::{Intent, NodeIntent},
    facts::{Actual, ContainerFact},
    model::{Component, NodeName, Role},
    state::{ClusterState, EtcdEpoch, Reached, SnapshotRef},
};

/// What a person asks for about etcd's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreRequest {
    /// To replace them by a snapshot.
    Begin(Restore),
    /// To go on with those of before a restore that was cut off.
    TakeBack,
}

/// A request to restore etcd's data. A run begins it once, however often it plans: `number` says which restore it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// One more than the restores before.
    pub number: u32,
    /// The snapshot; `None`: the first member's own data.
    pub from: Option<SnapshotRef>,
    /// The revision at which etcd begins: see [`EtcdEpoch::begins`].
    pub begins: u64,
    /// The node that has it; its member is made of it.
    pub first: NodeName,
}

impl Restore {
    /// The request that began this one: a restore that was cut off goes on with it.
    pub fn of(epoch: &EtcdEpoch) -> Self {
        Self {
            number: epoch.number,
            from: epoch.from.clone(),
            begins: epoch.begins,
            first: epoch.first.clone(),
        }
    }

    /// Takes it down in the state: a new life of etcd's data, whose only member so far is the first one. `peer`: where its
    /// peers find it.
    pub(super) fn begin(&self, state: &mut ClusterState, peer: Option<String>) {
        if state.restores() >= self.number {
            return;
        }
        let Self {
            number,
            from,
            begins,
            first,
        } = self.clone();
        // Who joins the restored etcd is not one of those that it was made with.
        state.etcd_bootstrap = peer.map(|peer| (first.clone(), peer)).into_iter().collect();
        state.etcd_epoch = Some(EtcdEpoch {
            number,
            from,
            begins,
            first,
            reached: Reached::Chosen,
        });
        // It does not hold a new cluster, even where the state was recovered from a copy.
        state.memory.populated = true;
    }
}

/// What was there before a restore that was cut off goes on: its members are those of the config. `peers`: where each is
/// found.
pub(super) fn take_back(state: &mut ClusterState, peers: BTreeMap<NodeName, String>) {
    if state.restoring().is_none() {
        return;
    }
    state.etcd_bootstrap = peers;
    if let Some(epoch) = &mut state.etcd_epoch {
        epoch.reached = Reached::TakenBack;
    }
}

/// Where nothing of a restore is left to be done but what every run does, the state says so.
pub(super) fn end(state: &mut ClusterState, intent: &Intent, have: &Actual) {
    let is_done = state.restoring().is_some() && is_done(state, intent, have);
    if let Some(epoch) = state.etcd_epoch.as_mut().filter(|_| is_done) {
        epoch.reached = Reached::Done;
    }
}

/// Every component that acts by etcd's data is of this life, on every node that answers; of etcd, the first member.
fn is_done(state: &ClusterState, intent: &Intent, have: &Actual) -> bool {
    let Some(epoch) = &state.etcd_epoch else {
        return true;
    };
    let is_new =
        |fact: &ContainerFact| fact.is_of(&state.cluster_id) && fact.epoch() == epoch.number;
    let nodes = intent.nodes.iter();
    let nodes = nodes.filter_map(|(name, node)| Some((name, node, have.up(name)?)));
    // What is no part of the cluster yet joins when it serves.
    let nodes = nodes.filter(|(_, _, facts)| facts.is_of(&state.cluster_id));
    let nodes: Vec<_> = nodes.collect();
    let is_plane = |node: &NodeIntent| node.roles.contains(&Role::ControlPlane);
    let has_first = nodes.iter().any(|(name, ..)| **name == epoch.first);
    let has_plane = nodes.iter().any(|(_, node, _)| is_plane(node));
    has_first
        && has_plane
        && nodes.iter().all(|(name, node, facts)| {
            let runs = |component| facts.container(component).is_some_and(is_new);
            let plane = is_plane(node);
            let planes = [
                Component::ApiServer,
                Component::ControllerManager,
                Component::Scheduler,
            ];
            let etcd = facts.container(Component::Etcd);
            let etcd_is_new = etcd.map_or(**name != epoch.first, is_new);
            etcd_is_new && runs(Component::Kubelet) && (!plane || planes.into_iter().all(runs))
        })
}

//! Members that join a running etcd: one after the other, before any API server is configured with them.
//! Pure.
//!
//! The members that bootstrap etcd start together and are in `initial-cluster`; every other one
//! is added to the etcd that serves. An API server on the node of a member that joins starts after it.

use super::{hosts, part::Part, roles};
use crate::{
    desired::Desired,
    etcd::{Member, MemberId},
    model::{Component, NodeName, Role},
    plan::{
        Cause, ClusterAction, Guard, HostAction, Note, Queue, Stage, Step,
        diff::{Diff, HostDiff, Need},
        held::{Held, Waits},
        hold, lost,
    },
};

/// What starts after its member has joined: the member itself, and what needs it or the API server.
pub(super) const STARTS: [Component; 3] =
    [Component::Etcd, Component::ApiServer, Component::Kubelet];

/// True when this host's member has yet to join, or has not come to its vote. Where etcd tells
/// nothing, a container that is there is taken for a member, and so is one that is gone from a node of an etcd that has held
/// a cluster and that had the role before this change: without it the others may never have a quorum again. It starts only
/// with its data.
pub(super) fn joins(name: &NodeName, host: &HostDiff<'_>, diff: &Diff<'_>) -> bool {
    let etcd = &diff.have.etcd;
    let votes = etcd.of_node(name).any(|(_, member)| !member.is_learner);
    let new = *host.need(Component::Etcd) == Need::Run;
    let was_there = diff.want.saved.etcd_bootstrap.contains_key(name);
    let known = etcd.voters().next().is_some();
    let had_one = !known && had_a_member(name, diff);
    host.has(Component::Etcd) && !was_there && !had_one && !votes && (new || known)
}

/// True for a node that had the role when the state was saved, in an etcd that has held a cluster.
fn had_a_member(name: &NodeName, diff: &Diff<'_>) -> bool {
    diff.have
        .saved
        .as_ref()
        .is_some_and(|saved| saved.memory.populated && saved.has_role(name, Role::Etcd))
}

/// Adds etcd members one at a time, then starts the API servers on their nodes. A failure ends the run before an API
/// server connects to the new member.
pub(super) fn members(diff: &Diff<'_>) -> Part {
    let hosts = diff.hosts.iter().map(|(name, host)| (*name, host));
    let mut joining: Vec<_> = hosts
        .filter(|(name, host)| joins(name, host, diff))
        .collect();
    if let Some(why) = held_back(diff) {
        let late = joining.iter().map(|(name, _)| {
            let text = format!("its member of etcd does not join yet: {why}");
            Note::left(name, text, Waits::Member, why.clone())
        });
        return late.collect();
    }
    // A member that was added before and has no vote yet keeps the others out until it has one.
    joining.sort_by_key(|(name, _)| !was_added(name, diff));
    let queues = joining
        .into_iter()
        .enumerate()
        .filter_map(|(number, (name, host))| {
            let spec = host.want.containers.get(&Component::Etcd)?;
            let action = HostAction::JoinEtcd {
                spec: Box::new(spec.clone()),
            };
            let why = "its member has no vote yet";
            let step = Step::on(name, Cause::New, why, action)
                .guarded(&diff.want.cluster_id)
                .only_if(Guard::EtcdStable);
            let strays = strays(diff).filter(|_| number == 0);
            let strays = strays.map(|member| makes_way(name, member));
            Some(Queue {
                node: Some(name.clone()),
                steps: strays.chain([step]).collect(),
            })
        });
    let members = Stage {
        queues: queues.collect(),
        ..Stage::of("members", 1, [])
    };
    Part {
        stages: vec![members, api_servers(diff)],
        notes: Vec::new(),
    }
}

/// Learners that belong to no node of the config: etcd accepts one learner at a time, and one that never starts
/// would keep all others out for ever. None of them counts for the quorum.
fn strays<'d>(diff: &'d Diff<'_>) -> impl Iterator<Item = MemberId> + 'd {
    let (want, have) = (diff.want, diff.have);
    let owned = move |id: MemberId, member: &Member| {
        let mut nodes = want.with(Component::Etcd);
        nodes.any(|name| {
            lost::member(name, have) == Some(id)
                || member
                    .peer_urls
                    .iter()
                    .any(|url| advertises(name, url, want))
        })
    };
    let learners = have
        .etcd
        .members
        .iter()
        .filter(|(_, member)| member.is_learner);
    learners
        .filter(move |(id, member)| !owned(**id, member))
        .map(|(id, _)| *id)
}

/// True where etcd has a member of this node already. If no survey has seen the member on its node, it is recognised
/// by the address that it is to have.
fn was_added(name: &NodeName, diff: &Diff<'_>) -> bool {
    let (want, have) = (diff.want, diff.have);
    let members = have.etcd.members.values();
    let mut learners = members.filter(|member| member.is_learner);
    lost::member(name, have).is_some()
        || learners.any(|member| {
            let mut urls = member.peer_urls.iter();
            urls.any(|url| advertises(name, url, want))
        })
}

/// True where the wanted member of this node is reached there.
fn advertises(name: &NodeName, url: &str, want: &Desired) -> bool {
    let host = want.hosts.get(name);
    let spec = host.and_then(|host| host.containers.get(&Component::Etcd));
    spec.is_some_and(|spec| {
        let mut urls = spec.flag("initial-advertise-peer-urls");
        urls.any(|own| own == url)
    })
}

fn makes_way(joining: &NodeName, member: MemberId) -> Step {
    let action = ClusterAction::RemoveMember {
        node: joining.clone(),
        member,
    };
    let why =
        "it is a learner and belongs to no node of the config, and etcd accepts no second learner";
    Step::cluster(Cause::Leave, why, action).only_if(Guard::ServesAfterRemoval(member))
}

/// API servers that start only when the member on their node has joined.
fn api_servers(diff: &Diff<'_>) -> Stage {
    hosts::preparing("members", diff, |name, host| {
        let component = Component::ApiServer;
        let wanted = host.want.containers.get(&component);
        let (Some(spec), true) = (wanted, joins(name, host, diff)) else {
            return Vec::new();
        };
        let Some(mut run) = hosts::step(name, component, spec, host) else {
            return Vec::new();
        };
        if run.cause == Cause::New {
            run.why = "its member has joined".into();
        }
        let wait = HostAction::AwaitHealthy { component };
        let wait = Step::on(name, run.cause, "it was just started", wait);
        let room = roles::makes_room(name, component, host, diff);
        room.into_iter().chain([run, wait]).collect()
    })
}

/// Why etcd takes no member now, if it does not: it would refuse, or be worse off.
fn held_back(diff: &Diff<'_>) -> Option<Held> {
    hold::first_broken(&[Guard::EtcdStable], diff)
}

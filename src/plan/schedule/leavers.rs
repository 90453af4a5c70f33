//! Nodes that the config no longer names and that answer: drained, removed from etcd, cleaned and
//! removed from the cluster. So is a machine that was given up, came back and is to join again: what is
//! left on it belongs to a node that no longer exists. Pure.
//!
//! They go last, and a member only when those that replace it vote and every API server knows of
//! them: no proxy and no API server relies on those that leave any more. Each part is seen by the next
//! survey, so a run that was cut off goes on. A machine that another Kubernetes is on, or that nothing proves
//! to be this cluster's, is left alone unless a person names it.

use super::{
    leave,
    part::Part,
    remove::{self, Standing},
};
use crate::{
    etcd::MemberId,
    facts::{ApiHealth, ApiView, ClusterFacts, HostFacts, HostView},
    model::{Component, NodeName, Role},
    plan::{
        Cause, ClusterAction, Guard, Held, HostAction, Note, Stage, Step, Target, Waits,
        diff::Diff, hold, lost, roles::none_that_stays_serves,
    },
};

/// A node that leaves.
struct Leaver<'a> {
    name: &'a NodeName,
    facts: &'a HostFacts,
    standing: Standing<'a>,
    /// Its member of etcd, if it still has one.
    member: Option<MemberId>,
    /// Why it cannot go now, if it cannot.
    held: Option<Held>,
    /// Why its copy of etcd's data is kept for now, if it is.
    spare: Option<Held>,
}

/// In order; nothing while the API does not answer.
pub(super) fn clean(diff: &Diff<'_>) -> Part {
    let leavers: Vec<Leaver<'_>> = leavers(diff).collect();
    let ApiView::Up(api) = diff.have.api() else {
        let leavers = leavers.iter();
        return leavers
            .filter_map(|leaver| stays(leaver, Some(&Held::NoApi)))
            .collect();
    };
    let notes = leavers
        .iter()
        .filter_map(|leaver| stays(leaver, leaver.held.as_ref().or(leaver.spare.as_ref())));
    let going: Vec<&Leaver<'_>> = leavers
        .iter()
        .filter(|leaver| leaver.held.is_none())
        .collect();
    let claims = going.iter().filter_map(|leaver| claimed(leaver, diff));
    let claims: Vec<Step> = claims.collect();
    if !claims.is_empty() {
        // The others wait for that.
        let others = going.iter().filter_map(|leaver| {
            leaves_later(leaver, diff, "the claims are back", &Held::ClaimFirst)
        });
        return Part::from(Stage::of("leavers", 1, claims)).with_notes(notes.chain(others));
    }
    let voters = going.iter().filter_map(|leaver| cleaned_later(leaver));
    Part {
        stages: stages(&going, api, diff),
        notes: notes.chain(voters).collect(),
    }
}

/// What follows in the same run, and is no step of this plan.
fn cleaned_later(leaver: &Leaver<'_>) -> Option<Note> {
    let ours = matches!(leaver.standing, Standing::Ours(_));
    (ours && leaver.member.is_some()).then(|| {
        let text = "leaves etcd first, and is cleaned in the same run when etcd is well without it";
        Note::of(Some(Target::Host(leaver.name.clone())), text.to_owned())
    })
}

/// What is done about those that go now.
fn stages(going: &[&Leaver<'_>], api: &ClusterFacts, diff: &Diff<'_>) -> Vec<Stage> {
    let id = &diff.want.cluster_id;
    let ours: Vec<&Leaver<'_>> = going
        .iter()
        .copied()
        .filter(|leaver| matches!(leaver.standing, Standing::Ours(_)))
        .collect();
    let drains = ours.iter().filter_map(|leaver| drain(leaver, diff, api));
    let members = going.iter().filter_map(|leaver| leaves_etcd(leaver, diff));
    let mut stages = vec![
        Stage::of("drain", 1, drains),
        Stage::of("members", 1, members),
    ];
    let why = leave::Why("the config no longer names this node");
    for (number, (name, steps)) in leave::STAGES.into_iter().enumerate() {
        let steps = ours.iter().flat_map(|leaver| {
            // What a voter had is deleted after another look, which sees that the others are well.
            let waits = number > 0 && (leaver.member.is_some() || leaver.spare.is_some());
            let steps = if waits {
                Vec::new()
            } else {
                steps(id, leaver.name, leaver.facts, diff.have, why)
            };
            let steps = steps
                .into_iter()
                .map(|step| with_guards(step, leaver, diff));
            steps.collect::<Vec<_>>()
        });
        let stage = Stage::of(name, ours.len(), steps);
        if number > 0 {
            stages.push(stage);
        } else {
            stages.extend(leave::side_by_side(stage));
            // Without its kubelet it does not register itself again.
            let objects = going.iter().filter_map(|leaver| delete(leaver, api));
            stages.push(Stage::of("nodes", 1, objects));
        }
    }
    stages
}

/// Says what comes of nodes that leave in a later plan of the same run.
pub(super) fn later(diff: &Diff<'_>, when: &str, why: &Held) -> Vec<Note> {
    let going = leavers(diff).filter(|leaver| leaver.held.is_none());
    going
        .filter_map(|leaver| leaves_later(&leaver, diff, when, why))
        .collect()
}

fn leaves_later(leaver: &Leaver<'_>, diff: &Diff<'_>, when: &str, why: &Held) -> Option<Note> {
    let ours = matches!(leaver.standing, Standing::Ours(_) | Standing::Torn(_));
    ours.then(|| {
        let loss = leave::loss(leaver.name, diff.have);
        let text = format!("is no longer in the config, and leaves when {when}: {loss}");
        Note::left(leaver.name, text, Waits::Leaver, why.clone())
    })
}

/// Why a node that left the config is still here.
fn stays(leaver: &Leaver<'_>, why: Option<&Held>) -> Option<Note> {
    if let Standing::Stranger { why, ours: false } = &leaver.standing {
        // No run ever saw this machine: there is nothing of the cluster that could stay.
        let text = remove::left_alone(leaver.name, why, false);
        return Some(Note::of(Some(Target::Host(leaver.name.clone())), text));
    }
    let why = why?;
    let text = format!("is no longer in the config, and stays for now: {why}");
    Some(Note::left(leaver.name, text, Waits::Leaver, why.clone()))
}

fn leavers<'d>(diff: &'d Diff<'_>) -> impl Iterator<Item = Leaver<'d>> {
    let (want, have) = (diff.want, diff.have);
    let hosts = have.hosts.iter();
    let gone = hosts.filter(move |(name, _)| {
        let ours = |facts: &HostFacts| facts.is_of(&want.cluster_id);
        match (want.hosts.contains_key(*name), want.saved.is_lost(name)) {
            (false, lost) => !lost,
            (true, lost) => lost && have.up(name).is_some_and(ours),
        }
    });
    gone.filter_map(move |(name, view)| {
        let HostView::Reachable(facts) = view else {
            return None;
        };
        let mut leaver = Leaver {
            name,
            facts,
            standing: remove::standing(&want.cluster_id, name, facts, have, &want.clean),
            member: lost::member(name, have),
            held: None,
            spare: None,
        };
        leaver.held = held_back(&leaver, diff);
        leaver.spare = spare(&leaver, diff);
        Some(leaver)
    })
}

/// Why it cannot go now, if it cannot.
fn held_back(leaver: &Leaver<'_>, diff: &Diff<'_>) -> Option<Held> {
    if let Standing::Stranger { why, ours: true } = &leaver.standing {
        return Some(Held::Stranger(remove::left_alone(leaver.name, why, true)));
    }
    let serves = diff.have.apis.get(leaver.name) == Some(&ApiHealth::Serving);
    if serves && none_that_stays_serves(diff.want, diff.have) {
        return Some(Held::NoApiServerStays);
    }
    let guards = [Guard::ServesAfterRemoval(leaver.member?)];
    hold::first_broken(&guards, diff)
        .or_else(|| hold::missed(leaver.name, diff))
        .or_else(|| hold::untold(diff))
}

/// Why the data of one that was a member of etcd are kept for now: they are a spare copy until the others are
/// well without it. Only said of one that has left etcd.
fn spare(leaver: &Leaver<'_>, diff: &Diff<'_>) -> Option<Held> {
    if leaver.member.is_some() || !had_data(leaver, diff) {
        return None;
    }
    let why = hold::first_broken(&[Guard::EtcdStable], diff)?;
    Some(Held::SpareCopy(Box::new(why)))
}

/// True for a node that had a member of etcd: the state has the role until the node is gone.
fn had_data(leaver: &Leaver<'_>, diff: &Diff<'_>) -> bool {
    let saved = diff.have.saved.as_ref();
    let entry = saved.and_then(|saved| saved.inventory.get(leaver.name));
    entry.is_some_and(|entry| entry.roles.contains(&Role::Etcd))
}

/// Its API server is stopped only while another one serves, and a copy of etcd's data is deleted only while etcd is
/// healthy.
fn with_guards(step: Step, leaver: &Leaver<'_>, diff: &Diff<'_>) -> Step {
    let server = Component::ApiServer.container();
    match step.action.on_host() {
        Some((_, HostAction::RemoveContainer { name: ends })) if ends == server => {
            step.only_if(Guard::ApiServesWithout(leaver.name.clone()))
        }
        Some((_, HostAction::CleanHost { .. })) if had_data(leaver, diff) => {
            step.only_if(Guard::EtcdStable)
        }
        _ => step,
    }
}

/// One without its claim is claimed again before anything is taken from it.
fn claimed(leaver: &Leaver<'_>, diff: &Diff<'_>) -> Option<Step> {
    let (want, have) = (diff.want, diff.have);
    let (id, name) = (&want.cluster_id, &want.saved.cluster_name);
    let torn = matches!(leaver.standing, Standing::Torn(_));
    torn.then(|| remove::reclaim(id, name, leaver.name, leaver.facts, have))
}

fn drain(leaver: &Leaver<'_>, diff: &Diff<'_>, api: &ClusterFacts) -> Option<Step> {
    api.nodes.get(leaver.name)?;
    let action = ClusterAction::Drain {
        node: leaver.name.clone(),
        rules: None,
    };
    let why = "the config no longer names it: its pods go elsewhere first";
    let step = Step::cluster(Cause::Leave, why, action)
        .guarded(&diff.want.cluster_id)
        .disturbing(
            "the node leaves: its pods are evicted, and what they keep in an emptyDir is gone",
        );
    Some(step)
}

fn leaves_etcd(leaver: &Leaver<'_>, diff: &Diff<'_>) -> Option<Step> {
    let member = leaver.member?;
    let action = ClusterAction::RemoveMember {
        node: leaver.name.clone(),
        member,
    };
    let why = "the others serve without it";
    let step = Step::cluster(Cause::Leave, why, action);
    let step = step.only_if(Guard::ServesAfterRemoval(member));
    // The cleaning comes after another look, and is announced here.
    let cleaned = matches!(leaver.standing, Standing::Ours(_));
    Some(if cleaned {
        step.disturbing(leave::loss(leaver.name, diff.have))
    } else {
        step
    })
}

fn delete(leaver: &Leaver<'_>, api: &ClusterFacts) -> Option<Step> {
    let node = api.nodes.get(leaver.name)?;
    let action = ClusterAction::DeleteNode {
        node: leaver.name.clone(),
        uid: node.uid.clone(),
    };
    Some(Step::cluster(Cause::Leave, "its kubelet is gone", action))
}

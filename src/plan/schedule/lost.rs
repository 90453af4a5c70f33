//! Nodes that were given up: their members leave etcd, their volumes are released, their Node objects are deleted.
//! Pure.
//!
//! Nothing is done on the machine: it does not answer, or another one is in its place. They go before
//! any member joins, because etcd accepts no new member while one of its members is dead. Each step checks
//! again whether the node is alive. The state records that they are lost before anything is done about it,
//! so an interrupted run continues without asking again.

use super::part::Part;
use crate::{
    etcd::MemberId,
    facts::{ApiView, Bound, ClusterFacts, HostFacts, NodeFact},
    model::{NodeName, quoted_first},
    plan::{Cause, ClusterAction, Guard, Held, Note, Stage, Step, Waits, diff::Diff, hold, lost},
    state::Membership,
};

/// How many names of a kind a plan has.
const NAMED: usize = 10;

/// A node that was given up, and what is left of it in the cluster.
struct Lost<'a> {
    name: &'a NodeName,
    member: Option<MemberId>,
    node: Option<&'a NodeFact>,
    /// The config names it again.
    wanted: bool,
}

impl Lost<'_> {
    fn cause(&self) -> Cause {
        if self.wanted {
            Cause::Replace
        } else {
            Cause::Leave
        }
    }
}

/// In order; nothing while the API does not answer.
pub(super) fn forget(diff: &Diff<'_>) -> Part {
    let (mut going, mut notes) = (Vec::new(), Vec::new());
    for lost in all(diff) {
        let held = held_back(&lost, diff);
        notes.extend(note(&lost, held.as_ref()));
        if held.is_none() {
            going.push(lost);
        }
    }
    let ApiView::Up(api) = diff.have.api() else {
        return notes.into_iter().collect();
    };
    let members = going.iter().filter_map(|lost| leaves_etcd(lost, diff));
    let nodes = going
        .iter()
        .flat_map(|lost| forgotten(lost, diff, api).into_iter().flatten());
    let stages = vec![
        Stage::of("lost", 1, members),
        Stage::of("lost", going.len(), nodes),
    ];
    Part { stages, notes }
}

/// What is left of it, and why.
fn note(lost: &Lost<'_>, held: Option<&Held>) -> Option<Note> {
    let (text, why) = match (held, lost.node) {
        (Some(_), Some(node)) if node.ready => (back(lost.name), Held::Back),
        (Some(why), _) => {
            let text = format!("was given up, and is still there for now: {why}");
            (text, why.clone())
        }
        (None, _) if lost.wanted => (
            "was given up: it joins as a new node when nothing of the old one is left".to_owned(),
            Held::RemainsFirst,
        ),
        (None, _) => return None,
    };
    Some(Note::kept(lost.name, text, Waits::Lost, why))
}

fn back(name: &NodeName) -> String {
    format!(
        "was given up and is back: its kubelet has registered it again, and pods run there. It is \
         left as it is. Write `{name}` into the config again and run `up`: it is cleaned first, and \
         then joins as a new node, or can be taken out of the config like any other"
    )
}

/// Those whose machine has nothing of this cluster, or does not answer. What is left on one that
/// does is cleaned as that of any other leaver.
fn all<'d>(diff: &'d Diff<'_>) -> impl Iterator<Item = Lost<'d>> {
    let (want, have) = (diff.want, diff.have);
    let entries = want.saved.inventory.iter();
    let lost = entries.filter(|(_, entry)| entry.membership == Membership::Lost);
    let ours = |facts: &HostFacts| facts.is_of(&want.cluster_id);
    lost.filter(move |(name, _)| !have.up(name).is_some_and(ours))
        .map(move |(name, _)| Lost {
            name,
            member: lost::member(name, have),
            node: lost::node(name, have),
            wanted: want.hosts.contains_key(name),
        })
}

/// Why what is left of it stays for now, if it does.
fn held_back(lost: &Lost<'_>, diff: &Diff<'_>) -> Option<Held> {
    hold::first_broken(&lost::guards(lost.name, diff.have), diff)
}

fn leaves_etcd(lost: &Lost<'_>, diff: &Diff<'_>) -> Option<Step> {
    let action = ClusterAction::RemoveMember {
        node: lost.name.clone(),
        member: lost.member?,
    };
    let why = "it was given up, neither the API nor etcd hears from it, and the other members serve without it";
    let step = Step::cluster(lost.cause(), why, action);
    let guards = lost::guards(lost.name, diff.have);
    Some(guards.into_iter().fold(step, Step::only_if))
}

fn forgotten(lost: &Lost<'_>, diff: &Diff<'_>, api: &ClusterFacts) -> Option<[Step; 2]> {
    let (node, uid) = (lost.name.clone(), lost.node?.uid.clone());
    let is_down = || -> Guard { lost::is_down(lost.name, diff.have) };
    let taint = ClusterAction::OutOfService {
        node: node.clone(),
        uid: uid.clone(),
    };
    let why = "its pods and volumes are to come up elsewhere";
    let taint = Step::cluster(lost.cause(), why, taint)
        .only_if(is_down())
        .disturbing(goes_with_it(api.bound.get(lost.name)));
    let delete = ClusterAction::DeleteNode { node, uid };
    let why = "it was given up, and its kubelet does not report";
    let delete = Step::cluster(lost.cause(), why, delete).only_if(is_down());
    Some([taint, delete])
}

/// What is known of what goes with it, in words.
fn goes_with_it(bound: Option<&Bound>) -> String {
    let mut text = "the node is given up: its pods are ended without it".to_owned();
    let Some(bound) = bound else {
        return text + ", and what only it had is gone";
    };
    let Bound {
        volumes,
        attached,
        bare_pods,
        empty_dirs,
    } = bound;
    for (what, names) in [
        ("volumes that only it can have", volumes),
        ("volumes that are detached from it", attached),
        ("pods that no controller re-creates", bare_pods),
        ("pods whose emptyDir is gone", empty_dirs),
    ] {
        if names.is_empty() {
            continue;
        }
        text = format!("{text}; {what}: {}", quoted_first(NAMED, names));
    }
    text
}

//! Make the world as the intent says: the table of contents. Pure.
//!
//! Each row gives its stages with their notes, and the notes of a plan are in the order of its rows.

use super::{
    addons, charts, claim, containerd, flags, former, health, hosts, join, kept, leavers, lost,
    nodes, part::Part, plan, prepare, prune, roles, roll, snapshot_before, snapshots, start, state,
    warnings,
};
use crate::{
    facts::{Actual, ApiView},
    plan::{self as planning, Cause, Held, Note, Plan, diff::Diff},
};

/// The plan that mends what differs; empty when nothing does.
pub(in crate::plan) fn up(diff: &Diff<'_>) -> Plan {
    let (want, have) = (diff.want, diff.have);
    if claim::have_lost_it(diff).next().is_some() {
        return claims_only(diff);
    }
    if planning::former::containers(want, have).next().is_some() {
        return former_only(diff);
    }
    let control_planes = roll::control_planes(diff);
    let first = [
        snapshot_before::save(diff, &control_planes), // before the state says that a change has begun
        state::save(want, have),                      // keys are saved before they are used
        warnings::nodes(diff),                        // to be read before anything is done
        hosts::silent(diff),                          // nothing is done on these
        claim::claim(diff),                           // a node belongs to one cluster
        prepare::images(diff),
        prepare::kernel(diff),
        flags::tries(diff), // nothing that runs is touched before
        prepare::files(diff),
        kept::running(diff), // nothing is started next to them
        containerd::fresh(diff),
        containerd::without_kubelet(diff),
        prepare::pod_images(diff), // before a kubelet asks for them
        start::start(diff),        // what is missing: together, and only then awaited
        roll::etcd(diff),          // what differs: one host after the other
        health::api(diff),         // etcd and the API servers answer
        start::proxies(diff),
    ];
    // An API server that is paused or differs answers when it is replaced, and not before.
    let differs = control_planes.has_steps() || first.iter().any(Part::has_steps);
    if must_see_the_api(have) && differs {
        let first = first.into_iter().chain([control_planes]);
        return until_the_api_answers(first, diff);
    }
    let kubelets = roll::nodes(diff);
    let controllers = roll::controllers(diff);
    let left_cordoned = nodes::left_cordoned(diff, &kubelets);
    let [addons, addons_spread, addons_of_user] = addons::apply(diff);
    let [network_chart, charts] = charts::apply(diff);
    let then = [
        lost::forget(diff),  // etcd takes no member while one of its members is dead
        join::members(diff), // one at a time, caught up before it votes
        state::forget_written(want), // before anything is written otherwise
        control_planes,      // no kubelet and no controller is newer than an API server
        start::clients(diff),
        left_cordoned, // pods need somewhere to go
        containerd::living(diff),
        kubelets,
        controllers,   // who declares a node lost begins when all report
        network_chart, // the network first; no node is Ready without
        addons,
        state::kubeconfig(want, have),
        state::copy(want, have),
        state::rewrite(want), // the mark is on the copy
        state::handover(want),
        addons::restart(diff), // they find the new authorities now
        nodes::ready(diff),    // the other components, labels and taints, Ready
        addons_spread,         // where there are nodes for it
        charts::prune(diff),   // two have the same ports
        charts,                // their hooks are pods
        addons_of_user,        // of kinds that these may define
        addons::spread(diff),  // one node less takes not all of it
        addons::wait(diff),    // bounded, then a warning
        charts::wait(diff),
        kept::former(diff),         // nothing goes back any more
        roles::give_up(diff),       // what takes their place is there
        leavers::clean(diff),       // as it is for these
        prune::leftovers(diff),     // ours, there, and no longer wanted
        snapshots::snapshots(diff), // whatever becomes of them, all else is done
    ];
    plan(first.into_iter().chain(then))
}

/// True while it is not known whether etcd has its data, of a cluster that had some: nothing is
/// written to an API that has not been looked into.
fn must_see_the_api(have: &Actual) -> bool {
    let saved = have.saved.as_ref();
    let populated = saved.is_some_and(|saved| saved.memory.populated);
    populated && !matches!(have.api(), ApiView::Up(_))
}

fn until_the_api_answers(parts: impl IntoIterator<Item = Part>, diff: &Diff<'_>) -> Plan {
    let text = "what the cluster holds is looked at before anything is written to it: what else \
               differs is known after its API answers";
    let mut notes = state::notes(diff.want, diff.have);
    notes.push(Note::left_anywhere(text.to_owned(), Held::ApiFirst));
    notes.extend(leavers::later(diff, "the API answers", &Held::ApiFirst));
    only(parts, notes)
}

/// A node that was away during a restore comes back with data of before it.
fn former_only(diff: &Diff<'_>) -> Plan {
    let (want, have) = (diff.want, diff.have);
    let why = "it is of the time before the restore";
    let stop = Part {
        stages: former::stop(want, have, Cause::Drift, why),
        notes: Vec::new(),
    };
    let held = Held::FormerFirst;
    let text =
        "what else differs is known after nothing of the time before the restore runs any more";
    let mut notes = vec![Note::left_anywhere(text.to_owned(), held.clone())];
    notes.extend(leavers::later(diff, "that is done", &held));
    only([state::save(want, have), stop], notes)
}

fn claims_only(diff: &Diff<'_>) -> Plan {
    let parts = [state::save_for_claims(diff), claim::lost(diff)];
    let why = Held::ClaimFirst;
    let text = "files of a node are read through its claim: what else differs is known after \
               the claim is back";
    let mut notes = vec![Note::left_anywhere(text.to_owned(), why.clone())];
    notes.extend(leavers::later(diff, "the claims are back", &why));
    only(parts, notes)
}

/// These parts alone. What they hold back has no note: one note says it of everything.
fn only(parts: impl IntoIterator<Item = Part>, notes: Vec<Note>) -> Plan {
    let stages = parts.into_iter().flat_map(|part| part.stages).collect();
    plan([Part { stages, notes }])
}

//! The snapshot of etcd before a removal: whether one is needed, which member it is taken from, and what happens if none
//! can be saved. Pure.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::part::Part;
use crate::{
    api::LastSnapshot,
    error::ErrorClass,
    etcd::{MemberId, Quorum},
    facts::{Actual, ApiView, ContainerState, HostFacts, HostView},
    model::{ClusterId, Component, NodeName},
    plan::{
        Cause, HostAction, Note, OnFailure, PreflightError, PreflightErrors, RemovalRequest, Stage,
        Step,
    },
    snapshots::record,
    state::{ClusterState, RemovalSnapshot},
};

/// What was stored since then may be missing in it.
const GOOD_FOR: SignedDuration = SignedDuration::from_hours(1);

/// The step that saves it; nothing where it is saved, or none is needed. `ours`: the nodes that are cleaned. The error
/// keeps everything as it is.
pub(super) fn save(
    id: &ClusterId,
    ours: &[(&NodeName, &HostFacts)],
    have: &Actual,
    request: &RemovalRequest,
) -> Result<Part, PreflightErrors> {
    let RemovalRequest {
        named: _,
        last_snapshot: policy,
        now,
    } = *request;
    let saved = have
        .saved
        .as_deref()
        .filter(|saved| has_stored(saved, have));
    let (Some(saved), false) = (saved, policy == LastSnapshot::Skip) else {
        return Ok(Part::default());
    };
    let former = saved.memory.last_snapshot.as_ref();
    if former.is_some_and(|former| former.saved.is_some() && is_good(former, ours, now)) {
        return Ok(Part::default());
    }
    let required = policy == LastSnapshot::Required;
    let Some(node) = source(ours, have, former) else {
        // There will be no newer one.
        let has_one = former.is_some_and(|former| former.saved.is_some());
        return if has_one {
            Ok(Part::default())
        } else {
            without(have, required)
        };
    };
    let begun = former.filter(|former| former.saved.is_none() && is_recent(former, now));
    let action = HostAction::SaveSnapshot {
        name: begun.map_or_else(|| name(now), |begun| begun.name.clone()),
        cause: record::Cause::BeforeDelete,
        begun_at: Some(begun.map_or(now, |begun| begun.begun_at)),
        required,
    };
    let why = "the cluster is removed: what it stores is saved before anything of it is stopped";
    let step = Step::on(node, Cause::Leave, why, action).guarded(id);
    let stage = Stage::of("snapshot", 1, [step]).on_failure(OnFailure::EndRun);
    let part = Part::from(stage);
    Ok(part.with_notes(keys_go(saved)))
}

/// What is encrypted in it is read with keys that only the state has.
fn keys_go(saved: &ClusterState) -> Option<Note> {
    let text = "objects in the snapshot are encrypted with keys of the state, which the removal deletes: keep a copy of the \
                state as well";
    (!saved.encryption.is_empty()).then(|| Note::of(None, text.to_owned()))
}

/// It has no character that a file system or a bucket refuses.
fn name(now: Timestamp) -> String {
    now.strftime("before-removal_%Y-%m-%dT%H-%M-%SZ")
        .to_string()
}

/// False where the cluster never served, and where its data are not on its nodes.
fn has_stored(saved: &ClusterState, have: &Actual) -> bool {
    let external = saved.external_etcd.is_some() || have.etcd.external().is_some();
    let serves = matches!(have.api(), ApiView::Up(api) if !api.is_bare());
    !external && (saved.memory.populated || serves)
}

fn is_recent(former: &RemovalSnapshot, now: Timestamp) -> bool {
    now.duration_since(former.begun_at).abs() < GOOD_FOR
}

/// Where no API server runs, nothing was stored since.
fn is_good(former: &RemovalSnapshot, ours: &[(&NodeName, &HostFacts)], now: Timestamp) -> bool {
    is_recent(former, now)
        || !ours
            .iter()
            .any(|(_, facts)| runs(Component::ApiServer, facts))
}

fn runs(component: Component, facts: &HostFacts) -> bool {
    let fact = facts.container(component);
    fact.is_some_and(|fact| fact.state == ContainerState::Running)
}

/// The node that saves it: that of the attempt that was cut off, else one whose program proves and copies it. One that has
/// failed is the last.
pub(super) fn source<'a>(
    ours: &[(&'a NodeName, &HostFacts)],
    have: &Actual,
    former: Option<&RemovalSnapshot>,
) -> Option<&'a NodeName> {
    let healthy: BTreeSet<MemberId> = have.etcd.healthy();
    let corrupt = |member: &MemberId| {
        let mut alarms = have.etcd.alarms.iter();
        alarms.any(|alarm| alarm.member == *member && alarm.is_corrupt())
    };
    let serves = |node: &NodeName| {
        let member = have.etcd.on(node);
        member.is_some_and(|member| healthy.contains(&member) && !corrupt(&member))
    };
    let serving = ours
        .iter()
        .filter(|(node, facts)| serves(node) && runs(Component::Etcd, facts));
    serving
        .min_by_key(|(node, facts)| {
            let former = former.filter(|former| former.node == **node);
            let failed = former.is_some_and(|former| former.failed);
            (failed, former.is_none(), !runs(Component::Snapshots, facts))
        })
        .map(|(node, _)| *node)
}

/// None can be saved. Where every node was seen, and nothing of the cluster is left on any, there is nothing to save.
fn without(have: &Actual, required: bool) -> Result<Part, PreflightErrors> {
    let saved = have.saved.as_deref();
    let id = saved.map(|saved| &saved.cluster_id);
    let is_left = |view: &HostView| match view {
        HostView::Reachable(facts) => id.is_some_and(|id| facts.is_of(id)),
        HostView::Unreachable(_) => true,
    };
    if !have.hosts.values().any(is_left) {
        return Ok(Part::default());
    }
    let why = why_none(have);
    if required {
        PreflightErrors::unless_empty(vec![PreflightError {
            node: None,
            message: format!(
                "the cluster is removed only after a snapshot of etcd was saved, and none can be saved: {why}"
            ),
            hints: vec![
                "repair what prevents it: `rke-operator status` (a `Cluster` has `status.conditions`) shows how etcd is"
                    .to_owned(),
                "`--no-snapshot` (a `Cluster` has `spec.deletion.lastSnapshot: Skip`) removes the cluster without one"
                    .to_owned(),
            ],
            class: ErrorClass::Host,
        }])?;
    }
    let failed = saved.and_then(|saved| saved.memory.last_snapshot.as_ref());
    // Then a warning has said so.
    let notes = failed.is_none().then(|| {
        let text = format!("no snapshot of etcd is saved before the removal: {why}");
        Note::of(None, text)
    });
    Ok(notes.into_iter().collect())
}

fn why_none(have: &Actual) -> String {
    let down = have.unreachable();
    let mut down = down.map(|(name, down)| format!("node `{name}` does not answer: {}", down.why));
    match (&have.etcd.quorum, down.next()) {
        (Quorum::Serving { .. }, _) => {
            "no healthy member of etcd is on a node that is removed".to_owned()
        }
        (_, Some(why)) => format!("no member of etcd serves, and {why}"),
        (Quorum::Lost, None) => "etcd has lost its quorum".to_owned(),
        (Quorum::Disagree, None) => "the members of etcd contradict one another".to_owned(),
        (Quorum::Unknown | Quorum::External(_), None) => "no member of etcd serves".to_owned(),
    }
}

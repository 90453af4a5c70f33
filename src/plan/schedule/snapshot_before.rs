//! The snapshot of etcd before a change that is hard to take back: another minor release, other keys. Until something of the
//! change is done, each plan has it; one that is there under its name is not taken again. Pure.

use jiff::Timestamp;

use super::{last_snapshot, part::Part};
use crate::{
    facts::Actual,
    model::{Component, ImageVersion, NodeName},
    plan::{Cause, HostAction, Stage, Step, diff::Diff, hold::versions},
    snapshots::record,
    state::ClusterState,
};

/// What begins.
struct Beginning {
    cause: record::Cause,
    /// The name of the snapshot.
    name: String,
    why: &'static str,
}

/// The step that saves it; nothing where no such change begins, and where no member can be asked. `control_planes`: what is
/// done to them.
pub(super) fn save(diff: &Diff<'_>, control_planes: &Part) -> Part {
    let (want, have) = (diff.want, diff.have);
    let Some((saved, node)) = have.saved.as_deref().zip(source(diff, have)) else {
        return Part::default();
    };
    let begins = upgrade(diff, node).filter(|_| replaces_a_server(control_planes));
    let begins = begins.or_else(|| rotation(saved, &want.saved));
    let Some(Beginning { cause, name, why }) = begins else {
        return Part::default();
    };
    let action = HostAction::SaveSnapshot {
        name,
        cause,
        begun_at: None,
        required: false,
    };
    let step = Step::on(node, Cause::Change, why, action).guarded(&want.cluster_id);
    Stage::of("snapshot", 1, [step]).into()
}

/// An upgrade that waits begins later.
fn replaces_a_server(control_planes: &Part) -> bool {
    let mut steps = control_planes.stages.iter().flat_map(Stage::steps);
    let server = Component::ApiServer;
    steps.any(|step| {
        let action = step.action.on_host();
        action.is_some_and(|(_, action)| {
            matches!(action, HostAction::ReplaceContainer { component, .. } if *component == server)
        })
    })
}

/// Every API server that runs is of an earlier minor release. One that failed and is tried again later has another snapshot:
/// each is good for the hour in which it was taken.
fn upgrade(diff: &Diff<'_>, node: &NodeName) -> Option<Beginning> {
    let hosts = diff.hosts.iter();
    let known = hosts.filter_map(|(name, host)| versions(Component::ApiServer, name, host, diff));
    let mut known = known.peekable();
    known.peek()?;
    let minor = |(major, minor, _): ImageVersion| (major, minor);
    let is_earlier = known.all(|(runs, wanted)| minor(runs) < minor(wanted));
    let release = diff.want.saved.kubernetes_version.filter(|_| is_earlier)?;
    // A cluster that was restored may go the same way again.
    let restores = match &diff.want.saved.etcd_epoch {
        Some(epoch) => format!("_restored-{}", epoch.number),
        None => String::new(),
    };
    let clock = diff.have.up(node).and_then(|facts| facts.clock.as_ref());
    let now = clock.and_then(|clock| Timestamp::from_second(clock.unix_seconds).ok());
    let hour = now.map(|now| now.strftime("_%Y-%m-%dT%H").to_string());
    let hour = hour.unwrap_or_default();
    Some(Beginning {
        cause: record::Cause::BeforeUpgrade,
        name: format!("before-{release}{restores}{hour}"),
        why: "Kubernetes gets another minor release: what etcd has is saved before",
    })
}

/// The state is about to get other keys.
fn rotation(is: &ClusterState, next: &ClusterState) -> Option<Beginning> {
    let key = |state: &ClusterState| state.encryption.first().map(|key| key.name.clone());
    let (what, why) = if is.cluster_ca.next.is_none() && next.cluster_ca.next.is_some() {
        (
            "authorities",
            "the authorities are replaced: what etcd has is saved before",
        )
    } else if is.service_accounts.next.is_none() && next.service_accounts.next.is_some() {
        (
            "service-account-key",
            "the key of service accounts is replaced: what etcd has is saved before",
        )
    } else if key(is).is_some() && key(next).is_some() && key(is) != key(next) {
        (
            "encryption-key",
            "the key that encrypts what is stored is replaced: what etcd has is saved before",
        )
    } else {
        return None;
    };
    Some(Beginning {
        cause: record::Cause::BeforeRotation,
        // The serial makes it another one for the next rotation.
        name: format!("before-new-{what}_{}", next.serial),
        why,
    })
}

fn source<'a>(diff: &Diff<'a>, have: &Actual) -> Option<&'a NodeName> {
    let hosts = diff.hosts.iter().map(|(name, host)| (*name, host.facts));
    let ours: Vec<_> = hosts
        .filter(|(_, facts)| facts.is_of(&diff.want.cluster_id))
        .collect();
    last_snapshot::source(&ours, have, None)
}

//! Operations that take no run: nothing that the config asks for is changed by them. Each may be begun again where it was
//! cut off.

use crate::{
    config::Intent,
    converge::{self, Answers, AskedSnapshot, MaintenanceError, RestoreError, SavedSnapshots},
    environment::Environment,
    error::{ErrorClass, Explain},
    etcd::{defrag::Shrunk, snapshot::SnapshotName},
    facts::Unreachable,
    model::{NodeName, quoted},
    operator::{context::explained, operation::AtOnce},
    snapshots::{Answer, Doing, SavedOnce, record::Grade},
    state::ClusterState,
};

/// Why one did not succeed.
pub(super) enum NotDone {
    /// It is tried again.
    Yet(String, ErrorClass),
    /// A snapshot was looked into, and not proven.
    Proven(String),
}

impl NotDone {
    fn of(error: &(impl Explain + 'static)) -> Self {
        Self::Yet(explained(error), error.class())
    }
}

impl From<RestoreError> for NotDone {
    fn from(error: RestoreError) -> Self {
        Self::of(&error)
    }
}

impl From<MaintenanceError> for NotDone {
    fn from(error: MaintenanceError) -> Self {
        Self::of(&error)
    }
}

/// Does it, and gives what is reported of it. `again`: it was begun before.
pub(super) async fn done(
    doing: &AtOnce,
    again: bool,
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
) -> Result<String, NotDone> {
    match doing {
        AtOnce::Snapshot(name) => save(name, again, intent, saved, environment).await,
        AtOnce::Verification(name) => verify(name, intent, saved, environment).await,
        AtOnce::Defragmentation => {
            let defragmenting = converge::defragment(intent, saved, environment, &|_| ());
            let done = Box::pin(defragmenting).await?;
            let members = done.members.iter().map(Shrunk::line);
            let disarmed = (done.disarmed > 0).then(|| "the alarm NOSPACE has ended".to_owned());
            Ok(lines(members.chain(disarmed)))
        }
        AtOnce::Drain(nodes, rules) => {
            let draining = converge::drain(nodes, *rules, saved, environment, &|_, _| ());
            Box::pin(draining).await?;
            Ok(format!(
                "drained: {}; `kubectl uncordon` has them take pods again",
                quoted(nodes)
            ))
        }
    }
}

async fn save(
    name: &SnapshotName,
    again: bool,
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
) -> Result<String, NotDone> {
    let asked = AskedSnapshot {
        name,
        bucket: intent.services.snapshot_bucket.as_deref(),
        again,
    };
    let saving = converge::save_snapshots(asked, intent, saved, environment, |_, _| ());
    let SavedSnapshots { saved, failed } = Box::pin(saving).await?;
    if saved.is_empty() {
        return Err(not_yet(failed));
    }
    let saved = saved.iter().map(|(node, one)| said(node, one));
    Ok(lines(saved.chain(failed.iter().map(down))))
}

async fn verify(
    name: &SnapshotName,
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
) -> Result<String, NotDone> {
    let asked = (Doing::Verify, name);
    let asking = converge::named_snapshot(asked, intent, saved, environment);
    let Answers { nodes, failed } = match Box::pin(asking).await {
        Err(MaintenanceError::Etcd(none @ RestoreError::NoSuchSnapshot { .. })) => {
            return Err(NotDone::Proven(explained(&none)));
        }
        answers => answers?,
    };
    if nodes.is_empty() {
        return Err(not_yet(failed));
    }
    let answers = nodes.iter();
    let answers = answers.map(|(node, it)| format!("{node}: {}", it.line(name.as_str())));
    let text = lines(answers.chain(failed.iter().map(down)));
    if nodes.values().all(Answer::is_well) {
        Ok(text)
    } else {
        Err(NotDone::Proven(text))
    }
}

/// No node has done it.
fn not_yet(failed: impl IntoIterator<Item = (NodeName, Unreachable)>) -> NotDone {
    let failed: Vec<_> = failed.into_iter().collect();
    let class = failed.first().map(|(_, why)| why.class);
    let text = lines(failed.iter().map(|(node, why)| down((node, why))));
    NotDone::Yet(text, class.unwrap_or(ErrorClass::Host))
}

fn down((node, why): (&NodeName, &Unreachable)) -> String {
    format!("{node}: {}", why.why)
}

fn lines(each: impl Iterator<Item = String>) -> String {
    each.collect::<Vec<_>>().join("\n")
}

/// `n1: /opt/rke/etcd-snapshots/s1.zip (proven), copied to …`
fn said(node: &NodeName, one: &SavedOnce) -> String {
    let grade = match one.grade {
        None => "",
        Some(Grade::Proven) => " (proven)",
        Some(Grade::Checked) => " (not restored for trial)",
        Some(Grade::Saved) => " (not looked into)",
        Some(Grade::Failed) => " (which cannot be restored)",
    };
    let copied = one.copied.as_ref().map(|to| format!(", copied to {to}"));
    let not = one
        .not_copied
        .as_ref()
        .map(|why| format!(", not copied: {why}"));
    let copy = copied.or(not).unwrap_or_default();
    format!("{node}: `{}`{grade}{copy}", one.path)
}

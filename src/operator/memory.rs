//! What the operator remembers about a cluster: in its state ([`OperatorMemory`]), which object the
//! state belongs to, and which config was applied last. Never read from a status: a status may be
//! lost, restored from elsewhere, or written by others.
//!
//! [`OperatorMemory`]: crate::state::OperatorMemory

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    applied,
    cluster_object::ClusterObject,
    context::Context,
    events::{Notice, publish},
    ready::Stage,
    reasons::Reasoned,
};
use crate::{
    api::{
        ACCEPT_ETCD, APPROVE, APPROVED_BY, CLEAN, LOSE, RECOVER, RETRY, TAKE_OVER,
        conditions::{ConditionType, Reason},
    },
    error::{ErrorClass, Explain, with_causes},
    model::{ClusterId, Digest},
    state::{
        Applied, BegunOperation, ClusterState, Loaded, StateError, Store, secret::SecretStore,
    },
};

/// What is kept under an object's name.
pub(super) enum Kept {
    /// Nothing.
    Absent,
    /// The state of this object's cluster.
    Ours(Box<ClusterState>),
    /// That of an earlier object of the same name.
    Anothers(NotOurs),
}

/// The state under an object's name is an earlier object's.
#[derive(Debug, thiserror::Error)]
#[error("the state in the {place} belongs to an earlier Cluster of this name (cluster id {id})")]
pub(super) struct NotOurs {
    place: String,
    id: ClusterId,
}

/// The state of a cluster that was there is gone.
#[derive(Debug, thiserror::Error)]
#[error("the state of cluster {id} is lost: there is none in the {place}")]
pub(super) struct StateLost {
    place: String,
    id: ClusterId,
}

/// Why there is nothing to go by.
#[derive(Debug, thiserror::Error)]
pub(super) enum MemoryError {
    #[error(transparent)]
    NotOurs(#[from] NotOurs),
    #[error(transparent)]
    Lost(#[from] StateLost),
    #[error(transparent)]
    State(#[from] StateError),
}

impl Explain for StateLost {
    fn class(&self) -> ErrorClass {
        ErrorClass::User
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        vec![
            format!(
                "to read its keys back from its nodes, annotate this object with `{RECOVER}: {}`",
                self.id
            )
            .into(),
            "to build another cluster, delete this object and create it again".into(),
        ]
    }
}

impl Reasoned for StateLost {
    fn condition(&self) -> (ConditionType, Reason) {
        (ConditionType::Stalled, Reason::StateMissing)
    }
}

impl Explain for NotOurs {
    fn class(&self) -> ErrorClass {
        ErrorClass::User
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        vec![
            format!(
                "to go on with that cluster, annotate this object with `{TAKE_OVER}: {}`",
                self.id
            )
            .into(),
            "to build another one, give it another name".into(),
        ]
    }
}

impl Reasoned for NotOurs {
    fn condition(&self) -> (ConditionType, Reason) {
        (ConditionType::Stalled, Reason::StateConflict)
    }
}

impl Explain for MemoryError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotOurs(error) => error.class(),
            Self::Lost(error) => error.class(),
            Self::State(error) => error.class(),
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::NotOurs(error) => error.hints(),
            Self::Lost(error) => error.hints(),
            Self::State(error) => error.hints(),
        }
    }
}

impl Reasoned for MemoryError {
    fn condition(&self) -> (ConditionType, Reason) {
        match self {
            Self::NotOurs(error) => error.condition(),
            Self::Lost(error) => error.condition(),
            Self::State(error) => error.condition(),
        }
    }
}

/// Reads the state that is stored under the object's name, and determines its owner: it is the object's if it has the
/// object's uid, or if a user named its cluster in `take-over`.
pub(super) async fn read(ctx: &Context, view: &ClusterObject) -> Result<Kept, StateError> {
    let store = OwnedStore::new(ctx, view);
    let Loaded::Present { saved, .. } = store.inner.load().await? else {
        return Ok(Kept::Absent);
    };
    let ours = match &saved.memory.uid {
        Some(_) => store.admits(&saved),
        None => store.is_named(&saved) || may_be_ours(view, &saved, made(ctx, &store).await?),
    };
    Ok(if ours {
        Kept::Ours(saved)
    } else {
        Kept::Anothers(NotOurs {
            place: store.place(),
            id: saved.cluster_id,
        })
    })
}

/// True if a state exists under that name, of any owner.
pub(super) async fn has_state(ctx: &Context, cluster: &str) -> kube::Result<bool> {
    let secrets: Api<KubeSecret> = Api::namespaced(ctx.client.clone(), &ctx.options.namespace);
    let name = SecretStore::name_of(cluster);
    Ok(secrets.get_metadata_opt(&name).await?.is_some())
}

/// As [`read`]; what a person asked for once is done and forgotten.
pub(super) async fn recollect(
    ctx: &Context,
    view: &ClusterObject,
) -> kube::Result<Result<Option<Box<ClusterState>>, MemoryError>> {
    let saved = match read(ctx, view).await {
        Ok(Kept::Absent) => {
            return Ok(match lost(ctx, view) {
                Some(error) => Err(error.into()),
                None => Ok(None),
            });
        }
        Ok(Kept::Anothers(error)) => return Ok(Err(error.into())),
        Err(error) => return Ok(Err(error.into())),
        Ok(Kept::Ours(saved)) => saved,
    };
    // A state of the first format has no room for an owner: the run that migrates it binds it.
    if !saved.is_of_first_format() {
        let taken = saved
            .memory
            .uid
            .as_ref()
            .is_some_and(|uid| *uid != view.uid());
        if let Err(error) = bind(ctx, view).await {
            return Ok(Err(error.into()));
        }
        if taken {
            let note = format!(
                "goes on with the cluster `{}` of an earlier object",
                saved.cluster_id.0
            );
            publish(ctx, view, &Notice::normal("TookOver", "TakeOver", &note)).await;
        }
        // What is to be cleaned was asked of a run, and is forgotten when that has ended.
        let lost = view.clean().is_empty() && view.lose().iter().all(|name| saved.is_lost(name));
        forget_requests(ctx, view, lost, false).await?;
    }
    Ok(Ok(Some(saved)))
}

/// The object had a cluster, or is to take one over, and its state is not there: no other cluster is created for it.
fn lost(ctx: &Context, view: &ClusterObject) -> Option<StateLost> {
    if view.recover().is_some() {
        return None;
    }
    let id = view.known_id().or_else(|| view.take_over())?;
    let place = store(ctx, view).place();
    Some(StateLost { place, id })
}

/// How far the object's present config is: its text, if it can be understood. `last`: as the status has it, for a state
/// that was written by a release that remembered nothing.
pub(super) fn stage(saved: &ClusterState, config: Option<&str>, last: Stage) -> Stage {
    let is = |applied: &Applied| config.is_some_and(|text| applied.digest == digest(saved, text));
    match &saved.memory.applied {
        Some(applied) if is(applied) => Stage::Applied,
        Some(_) => Stage::Changed,
        None if !saved.is_of_first_format() => Stage::New,
        None if config.is_none() && last == Stage::Applied => Stage::Changed,
        None => last,
    }
}

/// Remembers that the object's present config was applied from end to end, and keeps it. The answer is the digest of
/// one that was not the last one before.
pub(super) async fn remember(
    ctx: &Context,
    view: &ClusterObject,
    config: &str,
) -> Result<Option<Digest>, StateError> {
    let store = OwnedStore::new(ctx, view);
    let Loaded::Present { saved, revision } = store.load().await? else {
        return Ok(None);
    };
    let digest = digest(&saved, config);
    let same = |applied: &Applied| applied.digest == digest;
    if saved.is_of_first_format() || saved.memory.applied.as_ref().is_some_and(same) {
        return Ok(None);
    }
    let mut saved = *saved;
    saved.memory.applied = Some(Applied {
        digest: digest.clone(),
        generation: view.generation(),
    });
    store.save(&saved, Some(&revision)).await?;
    // Without it nothing is healed while the next change waits for a person; nothing else depends on it.
    if let Err(error) = applied::keep(ctx, view, config).await {
        let error = with_causes(&error);
        tracing::warn!(error, "cannot keep the applied config");
    }
    Ok(Some(digest))
}

/// Remembers that an operation was begun, or has ended: in the state, so that no other object of its name is begun.
pub(super) async fn remember_operation(
    ctx: &Context,
    view: &ClusterObject,
    name: &str,
    operation: BegunOperation,
) -> Result<(), StateError> {
    let store = OwnedStore::new(ctx, view);
    let Loaded::Present { saved, revision } = store.load().await? else {
        let place = store.place();
        return Err(StateError::Conflict { place });
    };
    let mut saved = *saved;
    saved.memory.remember(name, operation);
    store.save(&saved, Some(&revision)).await
}

/// The store of an object's state, for a run.
pub(super) fn store(ctx: &Context, view: &ClusterObject) -> Arc<dyn Store> {
    Arc::new(OwnedStore::new(ctx, view))
}

/// The state of one object: every state that is saved gets the object's uid, and one with another
/// uid is not returned.
struct OwnedStore {
    inner: SecretStore,
    uid: String,
    /// The cluster that a person named.
    named: Option<ClusterId>,
}

impl OwnedStore {
    fn new(ctx: &Context, view: &ClusterObject) -> Self {
        Self {
            inner: SecretStore::new(ctx.client.clone(), &ctx.options.namespace, &view.name()),
            uid: view.uid(),
            named: view.take_over(),
        }
    }

    fn is_named(&self, saved: &ClusterState) -> bool {
        self.named.as_ref() == Some(&saved.cluster_id)
    }

    fn admits(&self, saved: &ClusterState) -> bool {
        let owner = &saved.memory.uid;
        owner.as_ref().is_none_or(|uid| *uid == self.uid) || self.is_named(saved)
    }
}

impl Store for OwnedStore {
    fn load(&self) -> BoxFuture<'_, Result<Loaded, StateError>> {
        async {
            match self.inner.load().await? {
                // The pass that uses this store has seen another: it was replaced since.
                Loaded::Present { saved, .. } if !self.admits(&saved) => {
                    Err(StateError::Conflict {
                        place: self.place(),
                    })
                }
                loaded @ (Loaded::Absent | Loaded::Present { .. }) => Ok(loaded),
            }
        }
        .boxed()
    }

    fn save<'a>(
        &'a self,
        saved: &'a ClusterState,
        revision: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        async move {
            let mut ours = saved.clone();
            ours.memory.uid = Some(self.uid.clone());
            self.inner.save(&ours, revision).await
        }
        .boxed()
    }

    fn delete(&self) -> BoxFuture<'_, Result<(), StateError>> {
        async {
            match self.load().await? {
                Loaded::Absent => Ok(()),
                Loaded::Present { revision, .. } => self.inner.delete_revision(&revision).await,
            }
        }
        .boxed()
    }

    fn place(&self) -> String {
        self.inner.place()
    }
}

/// True for a state that names no owner and yet is this object's: this object knows its id, or is
/// not younger than it. Releases that wrote no owner made it.
fn may_be_ours(view: &ClusterObject, saved: &ClusterState, made: Option<Timestamp>) -> bool {
    let created = view.meta().creation_timestamp.as_ref().map(|time| time.0);
    view.known_id().as_ref() == Some(&saved.cluster_id) || (created.is_some() && made >= created)
}

/// When the Secret with the state was made.
async fn made(ctx: &Context, store: &OwnedStore) -> Result<Option<Timestamp>, StateError> {
    let secrets: Api<KubeSecret> = Api::namespaced(ctx.client.clone(), &ctx.options.namespace);
    let secret = secrets
        .get_metadata_opt(store.inner.name())
        .await
        .map_err(|source| StateError::Io {
            place: store.place(),
            source: Box::new(source),
        })?;
    Ok(secret.and_then(|secret| secret.creation_timestamp().map(|time| time.0)))
}

/// Writes the object's uid into its state. Taking over counts as a change of the state: the copies on the nodes follow
/// it, and refuse a former owner: a state file, or an object of another management cluster.
async fn bind(ctx: &Context, view: &ClusterObject) -> Result<(), StateError> {
    let store = OwnedStore::new(ctx, view);
    match store.load().await? {
        Loaded::Present { saved, revision } if saved.memory.uid.as_ref() != Some(&store.uid) => {
            let mut saved = *saved;
            if saved.memory.uid.is_some() || store.is_named(&saved) {
                saved.serial = saved.serial.saturating_add(1);
            }
            store.save(&saved, Some(&revision)).await
        }
        Loaded::Present { .. } | Loaded::Absent => Ok(()),
    }
}

/// The annotations by which a person names a cluster, or nodes that it gives up, are used once: with
/// the state there and this object's, and the nodes lost in it (`lost`) or the run for them ended, they
/// have done what they were for. Others than this pass has read are left for the next pass, which the
/// edit wakes.
pub(super) async fn forget_requests(
    ctx: &Context,
    view: &ClusterObject,
    lost: bool,
    ended: bool,
) -> kube::Result<()> {
    let used = [
        // A state that is there and outdated is recovered by the run that follows.
        (RECOVER, ended && view.recover().is_some()),
        (ACCEPT_ETCD, ended && view.accept_etcd().is_some()),
        (RETRY, ended && view.retry()),
        (TAKE_OVER, view.take_over().is_some()),
        (LOSE, lost && !view.lose().is_empty()),
        (CLEAN, lost && !view.clean().is_empty()),
    ];
    forget(ctx, view, &used).await
}

/// The approval of a plan that is carried out from end to end, or of one that waits no more.
pub(super) async fn forget_approval(ctx: &Context, view: &ClusterObject) -> kube::Result<()> {
    let used = [
        (APPROVE, view.approved().is_some()),
        (APPROVED_BY, view.approved_by().is_some()),
    ];
    forget(ctx, view, &used).await
}

/// Removes those annotations, unless a user has written others since this reconcile read them.
async fn forget(ctx: &Context, view: &ClusterObject, used: &[(&str, bool)]) -> kube::Result<()> {
    let used = used.iter().filter(|(_, used)| *used);
    let used: BTreeMap<&str, Value> = used.map(|(key, _)| (*key, Value::Null)).collect();
    if used.is_empty() {
        return Ok(());
    }
    // Our own writes of the status have moved the version that the pass began with.
    let Some(live) = ctx.clusters.get_opt(&view.name()).await? else {
        return Ok(());
    };
    let live = ClusterObject::new(live);
    if live.uid() != view.uid() || live.requests() != view.requests() {
        return Ok(());
    }
    let patch = json!({"metadata": {
        "uid": view.uid(),
        "resourceVersion": live.meta().resource_version,
        "annotations": used,
    }});
    let params = PatchParams::default();
    let patched = ctx
        .clusters
        .patch(&view.name(), &params, &Patch::Merge(&patch))
        .await;
    match patched {
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
        patched => patched.map(drop),
    }
}

/// A digest of what the user asked for: the config as it was written, so that another release of
/// rke-operator, which has other defaults, does not change it.
fn digest(saved: &ClusterState, config: &str) -> Digest {
    saved.digest_key.digest(config.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::saved;

    fn view(created: &str, known: Option<&ClusterId>) -> ClusterObject {
        let annotations = known.map(|id| json!({"clusterprovisioner.rke.io/cluster-id": id.0}));
        let object = json!({
            "metadata": {
                "name": "a", "uid": "1", "creationTimestamp": created, "annotations": annotations,
            },
        });
        ClusterObject::new(serde_json::from_value(object).unwrap())
    }

    /// A state without an owner is an earlier release's, not a namesake's (O2).
    #[test]
    fn a_state_without_an_owner_is_not_a_namesakes() {
        let saved = saved("a");
        let made = Some("2030-01-02T00:00:00Z".parse().unwrap());
        let (before, after) = ("2030-01-01T00:00:00Z", "2030-01-03T00:00:00Z");
        let other = ClusterId("9".repeat(32));
        for (created, known, ours) in [
            (before, None, true),
            (after, None, false),
            (after, Some(&saved.cluster_id), true),
            (after, Some(&other), false),
        ] {
            let view = view(created, known);
            assert_eq!(
                may_be_ours(&view, &saved, made),
                ours,
                "{created} {known:?}"
            );
        }
        let unknown = view(before, None);
        assert!(!may_be_ours(&unknown, &saved, None), "no time is no proof");
    }

    /// Only the content of the config determines what was applied, and nothing in a status does.
    #[test]
    fn the_stage_follows_from_the_state() {
        let mut saved = saved("a");
        let config = Some("a: 1");
        assert_eq!(stage(&saved, config, Stage::Applied), Stage::New);
        saved.memory.applied = Some(Applied {
            digest: digest(&saved, "a: 1"),
            generation: 1,
        });
        assert_eq!(stage(&saved, config, Stage::New), Stage::Applied);
        let edited = Some("a: 2");
        assert_eq!(stage(&saved, edited, Stage::Applied), Stage::Changed);
        assert_eq!(stage(&saved, None, Stage::Applied), Stage::Changed);
        // A first format remembers nothing.
        saved.memory.applied = None;
        saved.serial = 0;
        assert_eq!(stage(&saved, config, Stage::Applied), Stage::Applied);
        assert_eq!(stage(&saved, None, Stage::Applied), Stage::Changed);
    }
}

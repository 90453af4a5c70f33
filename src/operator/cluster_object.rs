//! A `Cluster` as it comes from the API, read as far as it can be read. Metadata is always
//! there; what is wrong with the spec hides neither it nor the deletion (invariant 11).

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject, ObjectMeta},
    runtime::reflector::ObjectRef,
};
use serde_json::Value;

use super::shallow::{CONFIG, depth};
use crate::{
    api::{
        ACCEPT_ETCD, APPROVE, APPROVED_BY, CLEAN, CLUSTER_ID, CONFIRM_DELETION, Cluster,
        ClusterSpec, ClusterStatus, Deletion, FINALIZER, GROUP, KUBERNETES_VERSION, LOSE,
        LenientDeletion, RECONCILE_AT, RECOVER, REMOVAL_BEGAN, REQUESTS, RETRY, TAKE_OVER, VERSION,
        conditions::{ConditionStatus, ConditionType, shorten},
    },
    config::referred_secrets,
    model::{ClusterId, NodeName, printable_lines},
};

/// What is watched: any object of our kind, whatever is in it.
pub(super) fn cluster_resource() -> ApiResource {
    ApiResource::erase::<Cluster>(&())
}

/// The parts of a spec that a run is about: an edit of another part ends none.
const WANTED: [&str; 5] = [
    "/spec/config",
    "/spec/configFrom",
    "/spec/configPath",
    "/spec/ssh",
    "/spec/paused",
];

/// The requests that are gone when they are done.
const ONCE: [&str; 7] = [RECOVER, TAKE_OVER, LOSE, CLEAN, ACCEPT_ETCD, RETRY, APPROVE];

/// One version of one object.
#[derive(Clone, Debug)]
pub(super) struct ClusterObject {
    object: DynamicObject,
}

impl ClusterObject {
    pub(super) const fn new(object: DynamicObject) -> Self {
        Self { object }
    }

    pub(super) fn name(&self) -> String {
        self.object.name_any()
    }

    pub(super) const fn meta(&self) -> &ObjectMeta {
        &self.object.metadata
    }

    pub(super) fn uid(&self) -> String {
        self.object.uid().unwrap_or_default()
    }

    pub(super) fn generation(&self) -> i64 {
        self.object.metadata.generation.unwrap_or_default()
    }

    pub(super) fn object_ref(&self) -> ObjectRef<DynamicObject> {
        ObjectRef::from_obj_with(&self.object, cluster_resource())
    }

    /// What makes the garbage collector take another object with this one.
    pub(super) fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: "Cluster".to_owned(),
            name: self.name(),
            uid: self.uid(),
            controller: Some(true),
            ..OwnerReference::default()
        }
    }

    pub(super) fn deleted_at(&self) -> Option<Timestamp> {
        self.object
            .metadata
            .deletion_timestamp
            .as_ref()
            .map(|time| time.0)
    }

    pub(super) fn has_finalizer(&self) -> bool {
        self.object.finalizers().iter().any(|f| f == FINALIZER)
    }

    /// What people request by annotations.
    pub(super) fn requests(&self) -> [Option<&String>; REQUESTS.len()] {
        REQUESTS.map(|annotation| self.object.annotations().get(annotation))
    }

    /// What [`RECONCILE_AT`] is set to.
    pub(super) fn reconcile_at(&self) -> Option<String> {
        let value = self.object.annotations().get(RECONCILE_AT)?;
        Some(shorten(&printable_lines(value), 256))
    }

    /// The value of an annotation that names a cluster.
    fn id_in(&self, annotation: &str) -> Option<ClusterId> {
        self.object.annotations().get(annotation)?.parse().ok()
    }

    /// The cluster whose lost keys are to be read back: its id, written by a person.
    pub(super) fn recover(&self) -> Option<ClusterId> {
        self.id_in(RECOVER)
    }

    /// The external etcd that the cluster goes on with: its cluster id, written by a person.
    pub(super) fn accept_etcd(&self) -> Option<String> {
        self.object.annotations().get(ACCEPT_ETCD).cloned()
    }

    /// A person wants what has failed to be tried again.
    pub(super) fn retry(&self) -> bool {
        self.object.annotations().contains_key(RETRY)
    }

    /// The cluster whose state is to become this object's: its id, written by a person.
    pub(super) fn take_over(&self) -> Option<ClusterId> {
        self.id_in(TAKE_OVER)
    }

    /// The nodes that a person gives up by name.
    pub(super) fn lose(&self) -> BTreeSet<NodeName> {
        self.nodes_in(LOSE)
    }

    /// The nodes that a person has cleaned by name.
    pub(super) fn clean(&self) -> BTreeSet<NodeName> {
        self.nodes_in(CLEAN)
    }

    /// The digest of the plan that a person approves.
    pub(super) fn approved(&self) -> Option<&str> {
        self.object
            .annotations()
            .get(APPROVE)
            .map(|digest| digest.trim())
    }

    /// True where a person approves the plan with that digest.
    pub(super) fn approves(&self, digest: &str) -> bool {
        self.approved() == Some(digest)
    }

    /// Who that is, as the annotation says.
    pub(super) fn approved_by(&self) -> Option<&str> {
        self.object
            .annotations()
            .get(APPROVED_BY)
            .map(|name| name.trim())
    }

    /// The nodes that an annotation names.
    fn nodes_in(&self, annotation: &str) -> BTreeSet<NodeName> {
        let value = self.object.annotations().get(annotation);
        let names = value.into_iter().flat_map(|names| names.split(','));
        let names = names.map(str::trim).filter(|name| !name.is_empty());
        names.map(NodeName::from).collect()
    }

    /// The id that we noted in the object's metadata.
    pub(super) fn annotated_id(&self) -> Option<ClusterId> {
        self.id_in(CLUSTER_ID)
    }

    /// The Kubernetes version that we noted in the object's metadata.
    pub(super) fn annotated_version(&self) -> Option<&String> {
        self.object.annotations().get(KUBERNETES_VERSION)
    }

    /// When the first attempt to remove the cluster began.
    pub(super) fn removal_began(&self) -> Option<Timestamp> {
        self.object.annotations().get(REMOVAL_BEGAN)?.parse().ok()
    }

    /// The cluster that this object has or had, as far as the object itself knows: each place is
    /// read independently of the others.
    pub(super) fn known_id(&self) -> Option<ClusterId> {
        let status = || {
            let id = self.object.data.pointer("/status/clusterID")?.as_str()?;
            id.parse().ok()
        };
        self.annotated_id().or_else(status)
    }

    pub(super) fn raw_spec(&self) -> Option<&Value> {
        self.object.data.get("spec")
    }

    /// How many nodes it may be about: those that the config names, or those that were counted last.
    pub(super) fn node_count(&self) -> usize {
        let named = self
            .raw_spec()
            .and_then(|spec| spec.pointer("/config/nodes"));
        let named = named.and_then(Value::as_array).map_or(0, Vec::len);
        let counted = self.object.data.pointer("/status/nodes/total");
        let counted = counted.and_then(Value::as_u64).unwrap_or(0);
        named.max(usize::try_from(counted).unwrap_or(usize::MAX))
    }

    /// The spec, or the path at which it cannot be understood. Never a value: what stands there
    /// may be a password in the wrong place.
    pub(super) fn spec(&self) -> Result<ClusterSpec, String> {
        let raw = self.raw_spec().ok_or_else(|| "spec".to_owned())?;
        if raw
            .get("config")
            .is_some_and(|config| depth(config) > CONFIG)
        {
            return Err(format!("spec.config, which has more than {CONFIG} levels"));
        }
        serde_path_to_error::deserialize(raw).map_err(|error| format!("spec.{}", error.path()))
    }

    /// The object's status; one that cannot be read is replaced.
    pub(super) fn status(&self) -> ClusterStatus {
        self.object
            .data
            .get("status")
            .and_then(|status| serde_json::from_value(status.clone()).ok())
            .unwrap_or_default()
    }

    /// The names of the fields in its status.
    pub(super) fn status_fields(&self) -> impl Iterator<Item = &String> {
        let status = self.object.data.get("status").and_then(Value::as_object);
        status.into_iter().flat_map(serde_json::Map::keys)
    }

    /// What a deletion is to do and when it ends, whatever is in the spec.
    pub(super) fn deletion(&self) -> LenientDeletion {
        Deletion::lenient(self.raw_spec())
    }

    /// True while nothing is to be changed.
    pub(super) fn is_paused(&self) -> bool {
        self.says("paused")
    }

    /// True where a deletion is not to be carried out: protected, and not confirmed by name.
    pub(super) fn is_protected(&self) -> bool {
        let confirmed = self.object.annotations().get(CONFIRM_DELETION);
        self.says("deletionProtection") && confirmed != Some(&self.name())
    }

    /// What holds a hand back counts as said unless it is plainly not.
    fn says(&self, field: &str) -> bool {
        let value = self.raw_spec().and_then(|spec| spec.get(field));
        !matches!(value, None | Some(Value::Null | Value::Bool(false)))
    }

    /// True when `now` is no longer the object that a run was started for: replaced, gone, edited in what the run is
    /// about, or deleted since (invariant 9). An older copy of the same is not a change.
    pub(super) fn outdated_by(&self, now: Option<&DynamicObject>) -> bool {
        let Some(now) = now else {
            return true;
        };
        let is_newer = now.metadata.generation.unwrap_or_default() > self.generation();
        let differs = |place: &str| now.data.pointer(place) != self.object.data.pointer(place);
        now.metadata.uid != self.object.metadata.uid
            || (is_newer && WANTED.into_iter().any(differs))
            || (now.metadata.deletion_timestamp.is_some() && self.deleted_at().is_none())
    }

    /// True for a cluster whose present spec was applied, and of which nothing is requested.
    pub(super) fn is_settled(&self) -> bool {
        let status = self.status();
        let generation = Some(self.generation());
        let provisioned = status.conditions.iter().any(|condition| {
            condition.type_ == ConditionType::Provisioned.name()
                && condition.status == ConditionStatus::True.name()
                && condition.observed_generation == generation
        });
        let requested = ONCE
            .into_iter()
            .any(|annotation| self.object.annotations().contains_key(annotation));
        provisioned
            && !requested
            && status.observed_generation == generation
            && self
                .reconcile_at()
                .is_none_or(|at| Some(at) == status.last_handled_reconcile_at)
    }

    /// True where the status says that some of its nodes do not answer.
    pub(super) fn has_silent_nodes(&self) -> bool {
        self.status().conditions.iter().any(|condition| {
            condition.type_ == ConditionType::NodesReachable.name()
                && condition.status == ConditionStatus::False.name()
        })
    }

    /// True for an edit that no status is about yet; the first version of an object is none.
    pub(super) fn is_edited(&self) -> bool {
        let observed = self.object.data.pointer("/status/observedGeneration");
        let observed = observed.and_then(Value::as_i64);
        observed.is_some_and(|observed| observed < self.generation())
    }
}

/// The names of the Secrets that any object of our kind refers to: with the SSH key, the config, its secrets, and the
/// host keys.
pub(super) fn secrets_of(object: &DynamicObject) -> impl Iterator<Item = &str> {
    let places = [
        "/spec/ssh/keySecretRef/name",
        "/spec/configFrom/secretKeyRef/name",
        "/spec/ssh/knownHostsFrom/secretKeyRef/name",
    ];
    let config = object.data.pointer("/spec/config");
    texts(object, places).chain(config.map(referred_secrets).unwrap_or_default())
}

/// The names of the ConfigMaps that it refers to.
pub(super) fn config_maps_of(object: &DynamicObject) -> impl Iterator<Item = &str> {
    let places = [
        "/spec/configFrom/configMapKeyRef/name",
        "/spec/ssh/knownHostsFrom/configMapKeyRef/name",
    ];
    texts(object, places)
}

/// The file that it refers to.
pub(super) fn file_of(object: &DynamicObject) -> Option<&str> {
    texts(object, ["/spec/configPath"]).next()
}

fn texts<'o, const N: usize>(
    object: &'o DynamicObject,
    places: [&'static str; N],
) -> impl Iterator<Item = &'o str> {
    let values = places.into_iter();
    let values = values.filter_map(|place| object.data.pointer(place));
    values.filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn cluster(uid: &str, generation: i64) -> DynamicObject {
        object(json!({
            "metadata": {"name": "a", "uid": uid, "generation": generation},
            "spec": {"config": {"x": generation}},
        }))
    }

    /// Only what a run is about ends it.
    #[test]
    fn an_edit_of_another_part_outdates_nothing() {
        let with = |generation: i64, field: &str, value: &Value| {
            let mut object = cluster("1", 2);
            object.metadata.generation = Some(generation);
            object.data["spec"][field] = value.clone();
            object
        };
        let view = ClusterObject::new(cluster("1", 2));
        for (field, value) in [
            ("deletionProtection", json!(true)),
            ("deletion", json!({"policy": "Orphan"})),
            ("changes", json!("Approve")),
            ("drift", json!("Report")),
        ] {
            assert!(!view.outdated_by(Some(&with(3, field, &value))), "{field}");
        }
        for (field, value) in [
            ("config", json!({"x": 3})),
            ("configFrom", json!({"secretKeyRef": {"name": "a"}})),
            ("configPath", json!("a")),
            ("ssh", json!({"knownHosts": "a"})),
            ("paused", json!(true)),
        ] {
            assert!(view.outdated_by(Some(&with(3, field, &value))), "{field}");
            assert!(!view.outdated_by(Some(&with(1, field, &value))), "{field}");
        }
    }

    #[test]
    fn edits_replacement_and_deletion_outdate_and_older_copies_do_not() {
        let view = ClusterObject::new(cluster("1", 2));
        assert!(!view.outdated_by(Some(&cluster("1", 2))));
        assert!(!view.outdated_by(Some(&cluster("1", 1))));
        assert!(view.outdated_by(Some(&cluster("1", 3))));
        assert!(view.outdated_by(Some(&cluster("2", 2))));
        assert!(view.outdated_by(None));
        let mut deleted = cluster("1", 2);
        deleted.metadata.deletion_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH),
        );
        assert!(view.outdated_by(Some(&deleted)));
        assert!(!ClusterObject::new(deleted.clone()).outdated_by(Some(&deleted)));
    }

    #[test]
    fn a_broken_spec_is_reported_by_its_path_only() {
        let view = ClusterObject::new(object(json!({
            "metadata": {"name": "a"},
            "spec": {"config": {}, "ssh": {"keySecretRef": "hunter2"}},
        })));
        assert_eq!(view.spec().unwrap_err(), "spec.ssh.keySecretRef");
    }
}

//! Which kinds the server has, by discovery: asked once for each group and version.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use futures::future::try_join_all;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::GroupVersion,
    discovery::{self, Scope},
};

use serde_json::Value;

use super::{WorkloadError, objects::patiently};
use crate::model::{ObjectKind, ObjectRef};

/// What is known about a kind.
#[derive(Clone, Debug)]
pub(super) struct Known {
    resource: ApiResource,
    namespaced: bool,
}

/// The kinds of one server, as far as they were asked for.
#[derive(Debug, Default)]
pub struct Kinds(Mutex<BTreeMap<ObjectKind, Known>>);

impl Kinds {
    /// What is known about a kind; `None`: the server does not have it, or was not asked.
    pub(super) fn get(&self, kind: &ObjectKind) -> Option<Known> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(kind).cloned()
    }

    /// Asks for the groups and versions of these kinds, side by side. One that the server does
    /// not have is no error: its definition may come with an add-on.
    pub(super) async fn learn(
        &self,
        client: &Client,
        kinds: impl IntoIterator<Item = &ObjectKind>,
    ) -> kube::Result<()> {
        let versions: BTreeSet<&String> = kinds
            .into_iter()
            .filter(|kind| self.get(kind).is_none())
            .map(|kind| &kind.api_version)
            .collect();
        let asked = versions.into_iter().map(|version| of(client, version));
        let found = try_join_all(asked).await?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(found.into_iter().flatten());
        Ok(())
    }
}

async fn of(client: &Client, api_version: &str) -> kube::Result<Vec<(ObjectKind, Known)>> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let group = match discovery::pinned_group(client, &GroupVersion::gv(group, version)).await {
        Ok(group) => group,
        // The server has no words of the API for a group that it does not know.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let resources = group.versioned_resources(version).into_iter();
    Ok(resources
        .map(|(resource, capabilities)| {
            let kind = ObjectKind {
                api_version: api_version.to_owned(),
                kind: resource.kind.clone(),
            };
            let namespaced = capabilities.scope == Scope::Namespaced;
            (
                kind,
                Known {
                    resource,
                    namespaced,
                },
            )
        })
        .collect())
}

impl Known {
    /// Whether its objects are in namespaces.
    pub(super) const fn has_namespace(&self) -> bool {
        self.namespaced
    }

    /// All objects of the kind.
    pub(super) fn all(&self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource)
    }

    /// Where an object of the kind is.
    pub(super) fn place(&self, client: &Client, object: &ObjectRef) -> Api<DynamicObject> {
        if self.namespaced {
            Api::namespaced_with(client.clone(), &object.namespace, &self.resource)
        } else {
            self.all(client)
        }
    }
}

/// The order in which objects are applied: what others need comes first.
pub(super) fn rank(object: &ObjectRef) -> usize {
    const FIRST: [&str; 9] = [
        "Namespace",
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Secret",
        "ConfigMap",
    ];
    const LAST: [&str; 6] = [
        "Service",
        "DaemonSet",
        "Deployment",
        "StatefulSet",
        "Job",
        "CronJob",
    ];
    let at = |kinds: &[&str]| kinds.iter().position(|kind| *kind == object.kind);
    let others = FIRST.len();
    at(&FIRST)
        .or_else(|| at(&LAST).map(|place| others + 1 + place))
        .unwrap_or(others)
}

/// Objects that are written side by side, one wave after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wave {
    /// What others are in, or are of.
    Foundation,
    /// What workloads name.
    Named,
    /// Kinds of which nothing is known here.
    Others,
    /// Workloads, and how they are reached.
    Running,
}

pub(super) fn wave(object: &ObjectRef, value: &Value) -> Wave {
    match object.kind.as_str() {
        "Namespace" | "CustomResourceDefinition" => Wave::Foundation,
        // Without its account it would be deleted at once.
        "Secret" if value["type"] == "kubernetes.io/service-account-token" => Wave::Others,
        "ServiceAccount" | "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding"
        | "Secret" | "ConfigMap" => Wave::Named,
        "Service"
        | "DaemonSet"
        | "Deployment"
        | "StatefulSet"
        | "Job"
        | "CronJob"
        | "Pod"
        | "ReplicaSet"
        | "ReplicationController" => Wave::Running,
        _ => Wave::Others,
    }
}

/// Where an object is, of a kind that the server has or is about to have: a definition that was
/// just applied takes a moment.
pub(super) async fn locate(
    client: &Client,
    kinds: &Kinds,
    object: &ObjectRef,
) -> Result<Api<DynamicObject>, WorkloadError> {
    let kind = object.kind();
    let doing = format!("look up the kind of {object}");
    patiently(&doing, || async {
        kinds.learn(client, [&kind]).await?;
        let known = kinds.get(&kind).ok_or_else(|| unknown(&kind))?;
        Ok(known.place(client, object))
    })
    .await
}

/// As discovery says it, and repeated like it.
fn unknown(kind: &ObjectKind) -> kube::Error {
    let ObjectKind { api_version, kind } = kind;
    let error = format!("the server has no kind {kind} in {api_version}");
    kube::Error::Discovery(kube::error::DiscoveryError::MissingKind(error))
}

//! The objects of add-ons: server-side apply and pruning.

use std::{future::Future, time::Duration};

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
    core::GroupVersionKind,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::WorkloadError;
use crate::desired::{ObjectRef, label};

/// A kind of object that add-ons are made of.
pub(super) struct Kind {
    pub(super) api_version: &'static str,
    pub(super) name: &'static str,
    pub(super) plural: &'static str,
}

const fn kind(api_version: &'static str, name: &'static str, plural: &'static str) -> Kind {
    Kind {
        api_version,
        name,
        plural,
    }
}

/// Every kind that add-ons may have, in the order in which they are applied; each is one request
/// of a survey. What is not here cannot be seen again, so it is not applied either.
pub(super) const KINDS: [Kind; 8] = [
    kind("v1", "Namespace", "namespaces"),
    kind("v1", "ServiceAccount", "serviceaccounts"),
    kind(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "clusterroles",
    ),
    kind(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
    ),
    kind("v1", "ConfigMap", "configmaps"),
    kind("v1", "Service", "services"),
    kind("apps/v1", "DaemonSet", "daemonsets"),
    kind("apps/v1", "Deployment", "deployments"),
];

impl Kind {
    pub(super) fn resource(&self) -> ApiResource {
        let (group, version) = self
            .api_version
            .split_once('/')
            .unwrap_or(("", self.api_version));
        let gvk = GroupVersionKind::gvk(group, version, self.name);
        ApiResource::from_gvk_with_plural(&gvk, self.plural)
    }
}

/// The object's place in the order of application.
fn rank(object: &ObjectRef) -> Result<usize, WorkloadError> {
    KINDS
        .iter()
        .position(|kind| kind.api_version == object.api_version && kind.name == object.kind)
        .ok_or_else(|| WorkloadError::UnknownKind(object.clone()))
}

fn api(client: &Client, object: &ObjectRef, rank: usize) -> Api<DynamicObject> {
    let resource = KINDS[rank].resource();
    if object.namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &object.namespace, &resource)
    }
}

/// Applies objects, namespaces and accounts before what uses them. Server-side apply, forced:
/// the fields that we name are ours. Waits for a namespace that the server is still creating.
pub async fn apply_objects<'a>(
    client: &Client,
    objects: impl IntoIterator<Item = (&'a ObjectRef, &'a Value)>,
) -> Result<(), WorkloadError> {
    let mut ranked = Vec::new();
    for (object, value) in objects {
        ranked.push((rank(object)?, object, value));
    }
    ranked.sort_by_key(|(rank, object, _)| (*rank, *object));
    let params = PatchParams::apply(super::FIELD_MANAGER).force();
    for (rank, object, value) in ranked {
        let api = api(client, object, rank);
        let patch = Patch::Apply(value);
        patiently(&format!("apply {object}"), || {
            api.patch(&object.name, &params, &patch)
        })
        .await?;
    }
    Ok(())
}

/// Deletes objects, in the opposite order. One that is gone is success; one that does not bear
/// our label any more is somebody else's and stays.
pub async fn prune(client: &Client, objects: &[ObjectRef]) -> Result<(), WorkloadError> {
    let mut ranked = Vec::new();
    for object in objects {
        ranked.push((rank(object)?, object));
    }
    ranked.sort_by(|a, b| b.cmp(a));
    for (rank, object) in ranked {
        let api = api(client, object, rank);
        let doing = format!("delete {object}");
        let Some(live) = patiently(&doing, || api.get_opt(&object.name)).await? else {
            continue;
        };
        if !live.labels().contains_key(label::ADDON) {
            continue;
        }
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: live.uid(),
            resource_version: None,
        });
        patiently(&doing, || async {
            match api.delete(&object.name, &params).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await?;
    }
    Ok(())
}

/// How long a request is repeated.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long one try may take.
const TRY: Duration = Duration::from_secs(15);

/// Repeats a request that is harmless to repeat, as long as the reason may pass by itself: the
/// server is overloaded or starting, a connection was lost, a namespace is not there yet.
pub(super) async fn patiently<T, F>(
    doing: &str,
    request: impl Fn() -> F,
) -> Result<T, WorkloadError>
where
    F: Future<Output = kube::Result<T>>,
{
    let begun = Instant::now();
    let mut pause = Duration::from_millis(50);
    loop {
        let error = match tokio::time::timeout(TRY, request()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) if !may_pass(&error) => return Err(WorkloadError::api(doing, error)),
            Ok(Err(error)) => error,
            Err(_elapsed) => kube::Error::Service("no answer within 15 s".into()),
        };
        if begun.elapsed() >= PATIENCE {
            return Err(WorkloadError::api(doing, error));
        }
        sleep(pause.mul_f64(rand::random_range(0.75..1.25))).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

fn may_pass(error: &kube::Error) -> bool {
    let lost = matches!(
        error,
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_)
    );
    lost || matches!(error, kube::Error::Api(status)
        if matches!(status.code, 404 | 409 | 429 | 500..))
}

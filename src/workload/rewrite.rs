//! Rewrites stored objects as the API servers now write them, and sets the mark that says so.
//!
//! When a patch does not change an object, an API server writes it only if it is stored in another form than it would
//! be now: so objects that are done are not written again, and an interrupted rewrite can start over. Only names and
//! versions come to us, never the content of an object. The mark is an annotation of the copy of the state: when etcd
//! is restored from an older snapshot, the mark is restored with it.

use std::collections::BTreeSet;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{WorkloadError, copy, objects::patiently, stored};

/// Objects of one answer.
const PAGE: u32 = 250;
/// Objects that are written at once.
const WIDTH: usize = 5;
/// How often a list is restarted whose continuation the server no longer has.
const LISTS: usize = 5;

const MARK: &str = "clusterprovisioner.rke.io/written-with";

/// What the mark says.
pub(super) fn mark(copy: &KubeSecret) -> Option<String> {
    copy.annotations().get(MARK).cloned()
}

/// Takes the mark away.
pub async fn forget(client: &Client) -> Result<(), WorkloadError> {
    set(client, &Value::Null).await
}

async fn set(client: &Client, mark: &Value) -> Result<(), WorkloadError> {
    let secrets: Api<KubeSecret> = Api::namespaced(client.clone(), copy::NAMESPACE);
    // Not the field manager that applies the copy: the mark stays when the copy is applied again.
    let params = PatchParams {
        field_manager: Some(format!("{}-encryption", super::FIELD_MANAGER)),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {MARK: mark}}}));
    let mark = || secrets.patch_metadata(copy::NAME, &params, &patch);
    patiently("mark what stored objects are encrypted with", mark)
        .await
        .map(|_| ())
}

/// Has every object of these resources written again, and marks it. Patterns are what the server has of them.
pub async fn rewrite(
    client: &Client,
    resources: &BTreeSet<String>,
    with: &str,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<(), WorkloadError> {
    let mut done = 0;
    for kind in stored::kinds(client, resources).await? {
        all_of(client, &kind, &mut done, progress).await?;
    }
    set(client, &with.into()).await
}

async fn all_of(
    client: &Client,
    kind: &ApiResource,
    done: &mut u64,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<(), WorkloadError> {
    let resource = stored::name(kind);
    let all: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    let mut from: Option<String> = None;
    let mut lists = 0;
    loop {
        let params = ListParams {
            limit: Some(PAGE),
            continue_token: from.clone(),
            ..ListParams::default()
        };
        let doing = format!("list {resource}");
        let list = patiently(&doing, || async {
            match all.list_metadata(&params).await {
                // It took too long: the rest is not remembered any more.
                Err(kube::Error::Api(status)) if status.code == 410 => Ok(None),
                answer => answer.map(Some),
            }
        });
        let Some(list) = list.await? else {
            lists += 1;
            if lists >= LISTS {
                let why = format!("the server forgot its list of {resource} {LISTS} times");
                return Err(WorkloadError::api(
                    format!("list {resource}"),
                    kube::Error::Service(why.into()),
                ));
            }
            from = None;
            continue;
        };
        let left = list.metadata.remaining_item_count.unwrap_or(0);
        let count = u64::try_from(list.items.len()).unwrap_or(0);
        let objects: Vec<(Api<DynamicObject>, String)> = list
            .items
            .iter()
            .map(|object| {
                let api = match object.namespace() {
                    Some(namespace) => Api::namespaced_with(client.clone(), &namespace, kind),
                    None => all.clone(),
                };
                (api, object.name_any())
            })
            .collect();
        stream::iter(objects)
            .map(|(api, name)| again(api, name, resource.clone()))
            .buffer_unordered(WIDTH)
            .try_collect::<()>()
            .boxed()
            .await?;
        *done += count;
        progress(*done, *done + u64::try_from(left).unwrap_or(0));
        from = list.metadata.continue_.filter(|token| !token.is_empty());
        if from.is_none() {
            return Ok(());
        }
    }
}

/// One that is gone is not stored any more.
async fn again(
    api: Api<DynamicObject>,
    name: String,
    resource: String,
) -> Result<(), WorkloadError> {
    let params = PatchParams::default();
    let nothing = Patch::Merge(json!({}));
    patiently(&format!("write {resource} `{name}` again"), || async {
        match api.patch_metadata(&name, &params, &nothing).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    })
    .await
}

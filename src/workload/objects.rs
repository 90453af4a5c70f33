//! The objects of add-ons: server-side apply and pruning.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    time::Duration,
};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    WorkloadError,
    kinds::{Kinds, Wave, locate, rank, wave},
    service_address,
};
use crate::model::{ObjectRef, label};

/// How many objects are applied at once.
const WIDTH: usize = 16;

/// Applies objects, namespaces and accounts before what uses them, each wave side by side. Server-side
/// apply, forced: the fields that we name are ours. Waits for a namespace that the server is still
/// creating.
pub async fn apply_objects<'a>(
    client: &Client,
    kinds: &Kinds,
    objects: impl IntoIterator<Item = (&'a ObjectRef, &'a Value)>,
) -> Result<(), WorkloadError> {
    let mut waves: BTreeMap<Wave, Vec<(&ObjectRef, &Value)>> = BTreeMap::new();
    let mut ranked: Vec<_> = objects.into_iter().collect();
    // They are sent in this order, and answered in any.
    ranked.sort_by_key(|(object, _)| (rank(object), *object));
    for (object, value) in ranked {
        let wave = waves.entry(wave(object, value)).or_default();
        wave.push((object, value));
    }
    let all: BTreeSet<_> = waves
        .values()
        .flatten()
        .map(|(object, _)| object.kind())
        .collect();
    let learned = || kinds.learn(client, &all);
    patiently("look up the kinds of objects", learned).await?;
    for (_, objects) in waves {
        let objects = objects.into_iter();
        let applied: Vec<_> = objects
            .map(|(object, value)| apply(client, kinds, object, value).boxed())
            .collect();
        let applied = stream::iter(applied).buffer_unordered(WIDTH);
        applied.try_collect::<()>().await?;
    }
    Ok(())
}

async fn apply(
    client: &Client,
    kinds: &Kinds,
    object: &ObjectRef,
    value: &Value,
) -> Result<(), WorkloadError> {
    let api = locate(client, kinds, object).await?;
    if value["metadata"]["labels"][label::ADDON] == label::USER_ADDONS {
        mark_found(&api, object).await?;
    }
    let params = PatchParams::apply(super::FIELD_MANAGER).force();
    let patch = Patch::Apply(value);
    let doing = format!("apply {object}");
    let applied = patiently(&doing, || api.patch(&object.name, &params, &patch));
    if let Err(error) = applied.await {
        return Err(service_address::explain(client, object, value, error).await);
    }
    Ok(())
}

/// Marks an object that exists and belongs to no add-on: it is changed, but others created it. The mark has another
/// field manager, because otherwise the next apply would remove it.
async fn mark_found(api: &Api<DynamicObject>, object: &ObjectRef) -> Result<(), WorkloadError> {
    let doing = format!("read {object}");
    let live = patiently(&doing, || api.get_opt(&object.name)).await?;
    if live.is_none_or(|live| live.labels().contains_key(label::ADDON)) {
        return Ok(());
    }
    let mark = json!({"metadata": {"annotations": {label::FOUND: "true"}}});
    let (params, mark) = (PatchParams::default(), Patch::Merge(&mark));
    let doing = format!("mark {object} as found");
    patiently(&doing, || api.patch(&object.name, &params, &mark)).await?;
    Ok(())
}

/// One object, if it is there.
pub async fn read_object(
    client: &Client,
    kinds: &Kinds,
    object: &ObjectRef,
) -> Result<Option<Value>, WorkloadError> {
    let api = locate(client, kinds, object).await?;
    let doing = format!("read {object}");
    let live = patiently(&doing, || api.get_opt(&object.name)).await?;
    let value = live.map(serde_json::to_value).transpose();
    value.map_err(|error| WorkloadError::api(doing, kube::Error::SerdeError(error)))
}

/// Deletes objects, in the opposite order. One that is gone is success; one that no longer has
/// rke-operator's label belongs to others and stays.
pub async fn prune(
    client: &Client,
    kinds: &Kinds,
    objects: &[ObjectRef],
) -> Result<(), WorkloadError> {
    let mut ranked: Vec<_> = objects
        .iter()
        .map(|object| (rank(object), object))
        .collect();
    ranked.sort_by(|a, b| b.cmp(a));
    for (_, object) in ranked {
        let api = locate(client, kinds, object).await?;
        let doing = format!("delete {object}");
        let Some(live) = patiently(&doing, || api.get_opt(&object.name)).await? else {
            continue;
        };
        if !live.labels().contains_key(label::ADDON) {
            continue;
        }
        delete(&api, object, &live.uid().unwrap_or_default()).await?;
    }
    Ok(())
}

/// Deletes an object while it is the one of that uid. Gone is success.
pub(super) async fn delete(
    api: &Api<DynamicObject>,
    object: &ObjectRef,
    uid: &str,
) -> Result<(), WorkloadError> {
    let params = DeleteParams::background().preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    });
    patiently(&format!("delete {object}"), || async {
        match api.delete(&object.name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    })
    .await
}

/// How long a request is repeated.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long one try may take.
const TRY: Duration = Duration::from_secs(15);

/// One try.
pub(super) async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    let late = || {
        let why = format!("no answer within {} s", TRY.as_secs());
        Err(kube::Error::Service(why.into()))
    };
    tokio::time::timeout(TRY, request)
        .await
        .unwrap_or_else(|_elapsed| late())
}

/// Repeats a request that is harmless to repeat, as long as the error may be temporary: the
/// server is overloaded or starting, a connection was lost, a namespace does not exist yet.
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
        let error = match within(request()).await {
            Ok(done) => return Ok(done),
            Err(error) if !may_pass(&error) => return Err(WorkloadError::api(doing, error)),
            Err(error) => error,
        };
        if begun.elapsed() >= PATIENCE {
            return Err(WorkloadError::api(doing, error));
        }
        sleep(pause.mul_f64(rand::random_range(0.75..1.25))).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

pub(super) fn may_pass(error: &kube::Error) -> bool {
    let lost = matches!(
        error,
        kube::Error::HyperError(_)
            | kube::Error::Service(_)
            | kube::Error::ReadEvents(_)
            | kube::Error::Discovery(_)
    );
    lost || matches!(error, kube::Error::Api(status)
        if matches!(status.code, 404 | 409 | 429 | 500..))
}

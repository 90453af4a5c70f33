//! The present state of the objects that the records list.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use kube::{Client, api::ListParams, core::ObjectMeta};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    facts::{ChartFact, LiveObject, is_workload},
    model::{ChartRecord, ObjectKind, ObjectRef, label},
    workload::{FIELD_MANAGER, Kinds, pages},
};

/// The charts whose records are among these objects. Of what they list only metadata is read, and all of
/// it for what has pods.
pub(in crate::workload) async fn charts(
    client: &Client,
    kinds: &Kinds,
    objects: &BTreeMap<ObjectRef, Value>,
) -> kube::Result<BTreeMap<String, ChartFact>> {
    let records: BTreeMap<String, (String, ChartRecord)> = objects
        .iter()
        .filter_map(|(object, value)| {
            let chart = ChartRecord::chart_of(object, value)?;
            let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
            Some((chart, (uid.to_owned(), ChartRecord::from_value(value))))
        })
        .collect();
    let listed = records.values().flat_map(|(_, record)| &record.objects);
    let of_kinds: BTreeSet<ObjectKind> = listed.map(|applied| applied.object.kind()).collect();
    kinds.learn(client, &of_kinds).await?;
    let lists = of_kinds.iter().map(|kind| live(client, kinds, kind));
    let lists = try_join_all(lists).await?;
    let mut found = BTreeMap::new();
    let mut workloads = BTreeMap::new();
    for (object, live, value) in lists.into_iter().flatten() {
        workloads.extend(value.map(|value| (object.clone(), value)));
        found.insert(object, live);
    }
    let facts = records.into_iter().map(|(chart, (uid, record))| {
        let own = record.objects.iter().filter_map(|applied| {
            let (object, value) = workloads.get_key_value(&applied.object)?;
            Some((object.clone(), value.clone()))
        });
        let own = own.collect();
        (chart, ChartFact::new(uid, record, &found, own))
    });
    Ok(facts.collect())
}

/// The objects of one kind that belong to charts.
async fn live(
    client: &Client,
    kinds: &Kinds,
    kind: &ObjectKind,
) -> kube::Result<Vec<(ObjectRef, LiveObject, Option<Value>)>> {
    // No such kind, no such objects.
    let Some(known) = kinds.get(kind) else {
        return Ok(Vec::new());
    };
    let api = known.all(client);
    let params = ListParams::default().labels(label::CHART);
    let reference = |metadata: &ObjectMeta| ObjectRef {
        api_version: kind.api_version.clone(),
        kind: kind.kind.clone(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    };
    if is_workload(&reference(&ObjectMeta::default())) {
        let mut list = Vec::new();
        pages::each(&api, &params, |object| list.push(object)).await?;
        return list
            .into_iter()
            .map(|object| {
                let reference = reference(&object.metadata);
                let live = of(&object.metadata);
                let value = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
                Ok((reference, live, Some(value)))
            })
            .collect();
    }
    let mut found = Vec::new();
    let metadata = |page: ListParams| {
        let api = &api;
        async move { api.list_metadata(&page).await }
    };
    pages::of(&params, metadata, |object| {
        found.push((reference(&object.metadata), of(&object.metadata), None));
    })
    .await?;
    Ok(found)
}

/// An object as it is compared.
pub(super) fn of(metadata: &ObjectMeta) -> LiveObject {
    LiveObject {
        uid: metadata.uid.clone().unwrap_or_default(),
        fields: fields(metadata),
    }
}

/// Digest of the names of the fields that rke-operator owns. Any client that changes one of them, other than by
/// rke-operator's apply, takes it over.
fn fields(metadata: &ObjectMeta) -> String {
    let mut managed = metadata.managed_fields.iter().flatten();
    let ours = managed.find(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    });
    let Some(fields) = ours.and_then(|entry| entry.fields_v1.as_ref()) else {
        return String::new();
    };
    let digest = hex::encode(Sha256::digest(fields.0.to_string()));
    digest.chars().take(16).collect()
}

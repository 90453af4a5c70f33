//! Objects of a chart that are not wanted any more, and nothing else: each is in the chart's record, and
//! has the chart's label and the uid that it was applied with.

use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
};

use super::record;
use crate::{
    model::{AppliedObject, ChartRecord, ObjectKind, label},
    workload::{
        Kinds, WorkloadError,
        kinds::{locate, rank},
        objects::{delete, patiently},
    },
};

/// Deletes everything that a chart's record lists, in the opposite order, and the record last. Gives what
/// stays: namespaces, and definitions of kinds of which there are objects.
pub async fn prune_chart(
    client: &Client,
    kinds: &Kinds,
    chart: &str,
) -> Result<Vec<AppliedObject>, WorkloadError> {
    let Some((record, uid)) = record::read(client, kinds, chart).await? else {
        return Ok(Vec::new());
    };
    let stay = objects(client, kinds, chart, &record.objects).await?;
    let own = ChartRecord::object(chart);
    let api = locate(client, kinds, &own).await?;
    delete(&api, &own, &uid).await?;
    Ok(stay)
}

/// Deletes these, in the opposite order. A namespace stays, because others may have created something in it; so
/// does the definition of a kind that has objects, because they would be deleted with it. Those are returned.
pub(super) async fn objects(
    client: &Client,
    kinds: &Kinds,
    chart: &str,
    objects: &[AppliedObject],
) -> Result<Vec<AppliedObject>, WorkloadError> {
    let mut ranked: Vec<&AppliedObject> = objects.iter().collect();
    ranked.sort_by_key(|applied| std::cmp::Reverse((rank(&applied.object), &applied.object)));
    let mut stay = Vec::new();
    for applied in ranked {
        let object = &applied.object;
        kinds
            .learn(client, [&object.kind()])
            .await
            .map_err(|error| WorkloadError::api(format!("look up the kind of {object}"), error))?;
        // No such kind, no such object.
        let Some(known) = kinds.get(&object.kind()) else {
            continue;
        };
        let api = known.place(client, object);
        let doing = format!("look at {object}");
        let Some(live) = patiently(&doing, || api.get_opt(&object.name)).await? else {
            continue;
        };
        let uid = live.uid().unwrap_or_default();
        let ours = live
            .labels()
            .get(label::CHART)
            .is_some_and(|of| of == chart);
        if !ours || !(applied.uid.is_empty() || applied.uid == uid) {
            continue;
        }
        if object.kind == "Namespace" || is_in_use(client, kinds, &live).await? {
            stay.push(applied.clone());
            continue;
        }
        delete(&api, object, &uid).await?;
    }
    Ok(stay)
}

/// True for the definition of a kind of which there are objects.
async fn is_in_use(
    client: &Client,
    kinds: &Kinds,
    live: &DynamicObject,
) -> Result<bool, WorkloadError> {
    let is_definition = live
        .types
        .as_ref()
        .is_some_and(|types| types.kind == "CustomResourceDefinition");
    let spec = &live.data["spec"];
    if !is_definition {
        return Ok(false);
    }
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let versions = spec["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|version| version["served"] == true);
    let kinds_of: Vec<ObjectKind> = served
        .map(|version| ObjectKind {
            api_version: format!("{}/{}", text(&spec["group"]), text(&version["name"])),
            kind: text(&spec["names"]["kind"]),
        })
        .collect();
    let doing = format!("list {}", live.name_any());
    let failed = |error| WorkloadError::api(doing.clone(), error);
    kinds.learn(client, &kinds_of).await.map_err(failed)?;
    // One version tells of all objects.
    let Some(known) = kinds_of.iter().find_map(|kind| kinds.get(kind)) else {
        return Ok(false);
    };
    let api: Api<DynamicObject> = known.all(client);
    let one = ListParams::default().limit(1);
    let list = patiently(&doing, || async {
        match api.list_metadata(&one).await {
            Ok(list) => Ok(!list.items.is_empty()),
            // The kind is about to go.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    });
    list.await
}

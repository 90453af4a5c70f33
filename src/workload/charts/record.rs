//! The record of a chart in the cluster.

use kube::{Client, api::Patch};

use crate::{
    facts::is_workload,
    model::{ChartRecord, ObjectRef},
    workload::{
        FIELD_MANAGER, Kinds, WorkloadError,
        kinds::locate,
        objects::{patiently, read_object},
    },
};

/// The record and its uid, if the chart was ever applied.
pub(super) async fn read(
    client: &Client,
    kinds: &Kinds,
    chart: &str,
) -> Result<Option<(ChartRecord, String)>, WorkloadError> {
    let found = read_object(client, kinds, &ChartRecord::object(chart)).await?;
    Ok(found.map(|value| {
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
        (ChartRecord::from_value(&value), uid.to_owned())
    }))
}

pub(super) async fn write(
    client: &Client,
    kinds: &Kinds,
    chart: &str,
    record: &ChartRecord,
) -> Result<(), WorkloadError> {
    let object = ChartRecord::object(chart);
    let api = locate(client, kinds, &object).await?;
    let value = record.to_value(chart);
    let patch = Patch::Apply(&value);
    let params = kube::api::PatchParams::apply(FIELD_MANAGER).force();
    patiently(&format!("write {object}"), || {
        api.patch(&object.name, &params, &patch)
    })
    .await?;
    Ok(())
}

/// The `DaemonSet`s and `Deployment`s that a chart has.
pub async fn chart_workloads(
    client: &Client,
    kinds: &Kinds,
    chart: &str,
) -> Result<Vec<ObjectRef>, WorkloadError> {
    let (record, _) = read(client, kinds, chart).await?.unwrap_or_default();
    let objects = record.objects.into_iter().map(|applied| applied.object);
    Ok(objects.filter(is_workload).collect())
}

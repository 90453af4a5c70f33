//! Objects that have a name of a chart's object and belong to another owner.

use futures::{StreamExt, TryStreamExt, stream};
use kube::{Client, ResourceExt};

use crate::{
    model::{ChartRecord, ObjectRef, label},
    workload::{Kinds, WorkloadError, objects::patiently},
};

/// How many are looked at at once.
const WIDTH: usize = 8;

/// Refuses to take over objects that this chart did not create: they would be changed now, and deleted with the chart.
/// An object is the chart's if the record lists it or it has the chart's label, which anyone may set. A namespace is
/// shared: it is never deleted.
pub(super) async fn refuse(
    client: &Client,
    kinds: &Kinds,
    chart: &str,
    record: &ChartRecord,
    wanted: impl Iterator<Item = &ObjectRef>,
) -> Result<(), WorkloadError> {
    let new = wanted.filter(|object| record.applied(object).is_none());
    let new: Vec<ObjectRef> = new
        .filter(|object| object.kind != "Namespace")
        .cloned()
        .collect();
    let looks = stream::iter(new).map(|object| async move {
        let there = is_of_others(client, kinds, chart, &object).await?;
        Ok::<_, WorkloadError>(there.then(|| object.to_string()))
    });
    let looks = looks.buffered(WIDTH);
    let found: Vec<Option<String>> = looks.try_collect().await?;
    let objects: Vec<String> = found.into_iter().flatten().collect();
    if objects.is_empty() {
        return Ok(());
    }
    Err(WorkloadError::Foreign {
        chart: chart.to_owned(),
        objects,
    })
}

async fn is_of_others(
    client: &Client,
    kinds: &Kinds,
    chart: &str,
    object: &ObjectRef,
) -> Result<bool, WorkloadError> {
    // Of a kind that comes with the chart there is nothing yet.
    let Some(known) = kinds.get(&object.kind()) else {
        return Ok(false);
    };
    let api = known.place(client, object);
    let doing = format!("look at {object}");
    let live = patiently(&doing, || api.get_metadata_opt(&object.name)).await?;
    Ok(live.is_some_and(|live| live.labels().get(label::CHART).is_none_or(|of| of != chart)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{ChartApply, apply_chart, prune_chart};
    use crate::{
        error::{ErrorClass, Explain},
        model::{Digest, label},
        workload::{Kinds, WorkloadError, fake::FakeApi},
    };

    const MAP: &str = "/api/v1/namespaces/ingress/configmaps/controller";
    const RENDERED: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: controller}
data: {theirs: no}
---
apiVersion: v1
kind: Service
metadata: {name: controller}
";

    async fn apply(api: &FakeApi) -> Result<(), WorkloadError> {
        let chart = ChartApply {
            name: "nginx",
            namespace: "ingress",
            digest: &Digest("1".to_owned()),
            outputs: &[RENDERED],
        };
        apply_chart(&api.client(), &Kinds::default(), &chart, &|_, _| ())
            .await
            .map(|_stay| ())
    }

    fn written(api: &FakeApi) -> Vec<String> {
        let writes = ["PATCH ", "POST ", "PUT ", "DELETE "];
        let log = api.log().into_iter();
        log.filter(|line| writes.iter().any(|write| line.starts_with(write)))
            .collect()
    }

    /// Somebody's object; `of` is the chart whose label it has.
    fn theirs(of: Option<&str>) -> Value {
        let labels = of.map_or_else(|| json!({}), |of| json!({ label::CHART: of }));
        json!({"metadata": {"labels": labels}, "data": {"theirs": "yes"}})
    }

    #[tokio::test(start_paused = true)]
    async fn objects_of_others_are_neither_changed_nor_deleted() {
        for of in [None, Some("traefik")] {
            let api = FakeApi::new();
            api.put(MAP, theirs(of));
            let error = apply(&api).await.unwrap_err();
            assert_eq!(error.class(), ErrorClass::User);
            assert!(error.to_string().contains("ingress/controller"), "{error}");
            assert!(!error.to_string().contains("Service"), "{error}");
            assert_eq!(written(&api), Vec::<String>::new());
            // Nor is it listed as something that may be ours.
            prune_chart(&api.client(), &Kinds::default(), "nginx")
                .await
                .unwrap();
            assert_eq!(api.get(MAP).unwrap()["data"]["theirs"], "yes");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_with_the_charts_label_is_the_charts() {
        let api = FakeApi::new();
        api.put(MAP, theirs(Some("nginx")));
        apply(&api).await.unwrap();
        // Removing the label later does not make the object another owner's.
        let mut live = api.get(MAP).unwrap();
        live["metadata"]["labels"] = json!({});
        api.put(MAP, live);
        apply(&api).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_looked_at_is_not_taken() {
        let api = FakeApi::new();
        api.refuse(&format!("GET {MAP}"), &[403]);
        apply(&api).await.unwrap_err();
        assert_eq!(written(&api), Vec::<String>::new());
    }
}

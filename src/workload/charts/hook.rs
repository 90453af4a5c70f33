//! Hooks of a chart that are Jobs: run to their end, one after the other.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, Client, ResourceExt,
    runtime::wait::{await_condition, conditions},
};

use crate::{
    model::{ObjectRef, label},
    workload::{
        Waiting, WorkloadError,
        objects::{delete, patiently},
    },
};

/// How long a hook may take, and the one of an earlier run to go.
const PATIENCE: Duration = Duration::from_secs(180);

/// True for a hook that runs.
pub(super) fn is_job(object: &ObjectRef) -> bool {
    object.api_version == "batch/v1" && object.kind == "Job"
}

/// Deletes the Job that an earlier run left: a Job runs once.
pub(super) async fn clear(
    client: &Client,
    chart: &str,
    object: &ObjectRef,
    waiting: Waiting<'_>,
) -> Result<(), WorkloadError> {
    let api = Api::<Job>::namespaced(client.clone(), &object.namespace);
    let doing = format!("look at {object}");
    let Some(live) = patiently(&doing, || api.get_opt(&object.name)).await? else {
        return Ok(());
    };
    let uid = live.uid().unwrap_or_default();
    if live.labels().get(label::CHART).is_none_or(|of| of != chart) {
        return Ok(());
    }
    let dynamic = super::apply::place(client, object);
    delete(&dynamic, object, &uid).await?;
    waiting(format!("the end of an earlier {object}"), 0);
    let gone = await_condition(api, &object.name, conditions::is_deleted(&uid));
    within(&format!("the end of an earlier {object}"), Box::pin(gone)).await?;
    Ok(())
}

/// Waits until the Job has finished, and deletes it. A failed one stays, for its log.
pub(super) async fn finish(
    client: &Client,
    chart: &str,
    object: &ObjectRef,
    waiting: Waiting<'_>,
) -> Result<(), WorkloadError> {
    let api = Api::<Job>::namespaced(client.clone(), &object.namespace);
    let what = format!("{object}, a hook of chart {chart}");
    waiting(what.clone(), 0);
    let ended = |job: Option<&Job>| job.is_some_and(|job| end(job).is_some());
    let awaited = Box::pin(await_condition(api, &object.name, ended));
    let job = within(&what, awaited).await?;
    match job.as_ref().and_then(end) {
        Some(Ok(())) => Box::pin(clear(client, chart, object, waiting)).await,
        Some(Err(why)) => Err(WorkloadError::Hook {
            chart: chart.to_owned(),
            job: object.to_string(),
            log: log(object),
            why,
        }),
        None => Err(WorkloadError::Hook {
            chart: chart.to_owned(),
            job: object.to_string(),
            log: log(object),
            why: "it was deleted".to_owned(),
        }),
    }
}

/// Where to look why it failed.
fn log(object: &ObjectRef) -> String {
    let (namespace, name) = (&object.namespace, &object.name);
    format!("kubectl logs --namespace {namespace} job/{name}")
}

async fn within<T>(
    what: &str,
    wait: impl Future<Output = Result<T, kube::runtime::wait::Error>>,
) -> Result<T, WorkloadError> {
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) | Err(_) => Err(WorkloadError::Overdue {
            waiting_for: what.to_owned(),
            after: PATIENCE,
        }),
    }
}

/// How it ended, if it did.
fn end(job: &Job) -> Option<Result<(), String>> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let is = |kind: &str| {
        let mut conditions = conditions.iter();
        conditions.find(|one| one.type_ == kind && one.status == "True")
    };
    if is("Complete").is_some() {
        return Some(Ok(()));
    }
    let failed = is("Failed")?;
    let why = failed.message.clone().or_else(|| failed.reason.clone());
    Some(Err(why.unwrap_or_else(|| "it failed".to_owned())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_end_of_a_job_is_in_its_conditions() {
        let job = |kind: &str, status: &str| {
            let condition = json!({"type": kind, "status": status, "message": "too often"});
            let job = json!({"status": {"active": 1, "conditions": [condition]}});
            end(&serde_json::from_value(job).unwrap())
        };
        assert_eq!(job("Complete", "True"), Some(Ok(())));
        assert_eq!(job("Failed", "True"), Some(Err("too often".to_owned())));
        assert_eq!(job("Failed", "False"), None);
        assert_eq!(job("Suspended", "True"), None);
    }
}

//! Scripts as root on the node.

use std::time::Duration;

use crate::{
    apply::{
        effects::{EffectError, failed},
        step::StepError,
    },
    error::Blame,
    host::{Host, Job, JobOutput},
    state::ClusterId,
};

/// Runs a script as root on the node; a status other than 0 is an error with its output.
pub(super) async fn job(
    host: &Host,
    id: &ClusterId,
    script: &str,
    limit: Duration,
) -> Result<(), StepError> {
    let output = run_job(host, id, script, limit).await?;
    let what = format!("a job exited with {}", output.status);
    succeeded(host, &output, &what, &[])
}

pub(super) async fn run_job(
    host: &Host,
    id: &ClusterId,
    script: &str,
    limit: Duration,
) -> Result<JobOutput, StepError> {
    let job = Job {
        script: script.to_owned(),
        limit,
    };
    host.run_job(&job, id).await.map_err(failed)
}

/// A status other than 0 is an error: `what`, and the job's output.
pub(super) fn succeeded(
    host: &Host,
    output: &JobOutput,
    what: &str,
    hints: &[&str],
) -> Result<(), StepError> {
    if output.status == 0 {
        return Ok(());
    }
    let message = format!("{what}: {}", output.log.trim());
    Err(node_error(host, &message, hints))
}

pub(super) fn node_error(host: &Host, what: &str, hints: &[&str]) -> StepError {
    failed(EffectError::Node {
        message: format!("node `{}`: {what}", host.name),
        hints: hints.iter().map(|hint| (*hint).to_owned()).collect(),
        blame: Blame::Host,
    })
}

//! Scripts as root on the node.

use std::{collections::BTreeMap, time::Duration};

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
    if output.status == 0 {
        return Ok(());
    }
    let message = format!("a job exited with {}: {}", output.status, output.log.trim());
    Err(node_error(host, &message, &[]))
}

pub(super) async fn run_job(
    host: &Host,
    id: &ClusterId,
    script: &str,
    limit: Duration,
) -> Result<JobOutput, StepError> {
    host.run_job(
        &Job {
            script: script.to_owned(),
            limit,
        },
        id,
    )
    .await
    .map_err(failed)
}

pub(super) fn node_error(host: &Host, what: &str, hints: &[&str]) -> StepError {
    failed(EffectError::Node {
        message: format!("node `{}`: {what}", host.name),
        hints: hints.iter().map(|hint| (*hint).to_owned()).collect(),
        blame: Blame::Host,
    })
}

/// Fills the lists in capitals of a script in. Their words are ours, or quoted.
pub(super) fn with_lists(script: &str, lists: &[(&str, &str)]) -> String {
    lists
        .iter()
        .fold(script.to_owned(), |script, (name, words)| {
            script.replace(&format!("in {name};"), &format!("in {words};"))
        })
}

pub(super) fn settings(sysctls: &BTreeMap<String, String>) -> String {
    sysctls
        .iter()
        .filter(|(name, value)| {
            !name.contains(char::is_whitespace) && !value.contains(char::is_whitespace)
        })
        .map(|(name, value)| quoted(&format!("{name}={value}")))
        .collect::<Vec<_>>()
        .join(" ")
}

/// One word for `sh`.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

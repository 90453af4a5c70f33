//! Scripts as root on the node.

use std::time::Duration;

use crate::{
    apply::{
        executor::{ExecutorError, bug, failed},
        step::StepError,
    },
    error::ErrorClass,
    host::{HelperContainer, HelperOutput, Host},
    model::ClusterId,
};

/// Runs a script as root on the node; a status other than 0 is an error with its output. Data goes
/// into the arguments, never into the script.
pub(super) async fn helper<A: AsRef<str> + Sync>(
    host: &Host,
    id: &ClusterId,
    script: &str,
    arguments: &[A],
    limit: Duration,
) -> Result<(), StepError> {
    let output = run_helper(host, id, script, arguments, limit).await?;
    let what = format!("a helper exited with {}", output.status);
    succeeded(host, &output, &what, &[])
}

/// The same; while its container is removed, `next` is done.
pub(super) async fn helper_then<A: AsRef<str> + Sync, T>(
    host: &Host,
    id: &ClusterId,
    script: &str,
    arguments: &[A],
    limit: Duration,
    next: impl Future<Output = T> + Send,
) -> Result<T, StepError> {
    let helper = of(script, arguments, limit);
    let ran = Box::pin(host.run_helper_then(&helper, id, next)).await;
    let (output, next) = ran.map_err(failed)?;
    let what = format!("a helper exited with {}", output.status);
    succeeded(host, &output, &what, &[])?;
    next.ok_or_else(|| bug("a helper that succeeded is followed by what comes next"))
}

fn of<A: AsRef<str>>(script: &str, arguments: &[A], limit: Duration) -> HelperContainer {
    let arguments = arguments.iter().map(|word| word.as_ref().to_owned());
    HelperContainer {
        script: script.to_owned(),
        arguments: arguments.collect(),
        limit,
    }
}

pub(super) async fn run_helper<A: AsRef<str> + Sync>(
    host: &Host,
    id: &ClusterId,
    script: &str,
    arguments: &[A],
    limit: Duration,
) -> Result<HelperOutput, StepError> {
    let helper = of(script, arguments, limit);
    host.run_helper(&helper, id).await.map_err(failed)
}

/// A status other than 0 is an error: `what`, and the helper's output.
pub(super) fn succeeded(
    host: &Host,
    output: &HelperOutput,
    what: &str,
    hints: &[&str],
) -> Result<(), StepError> {
    if output.status == 0 {
        return Ok(());
    }
    let message = format!("{what}: {}", output.log.trim());
    Err(node_error(host, &message, hints))
}

pub(in crate::apply) fn node_error(host: &Host, what: &str, hints: &[&str]) -> StepError {
    failed(ExecutorError::Node {
        message: format!("node `{}`: {what}", host.name),
        hints: hints.iter().map(|hint| (*hint).to_owned()).collect(),
        class: ErrorClass::Host,
    })
}

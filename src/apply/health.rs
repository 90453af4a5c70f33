//! Asks a component on a node how it is, through the node's SSH connection.

use super::{
    act::{Effects, failed},
    run::StepError,
};
use crate::{host::Host, plan::Component, workload};

/// The inner error says why it is not healthy yet; the outer one ends the wait.
pub(super) async fn probe(
    run: &Effects<'_>,
    host: &Host,
    component: Component,
) -> Result<Result<(), String>, StepError> {
    let engine = run.engine()?;
    if let Some(lost) = host.lost() {
        // The next step dials again; this wait cannot.
        return Err(failed(lost));
    }
    match host.local_port(component.health_port()).await {
        Ok(stream) => Ok(workload::probe(component, stream, engine).await),
        Err(error) => Ok(Err(error.to_string())),
    }
}

//! Asks a component on a node how it is, through the node's SSH connection.

use super::{
    act::{Effects, bug, failed},
    run::StepError,
};
use crate::{
    host::Host,
    plan::Component,
    workload::{Access, health},
};

/// `Err` inside says why it is not healthy yet; the outer error ends the wait.
pub(super) async fn probe(
    run: &Effects<'_>,
    host: &Host,
    component: Component,
) -> Result<Result<(), String>, StepError> {
    let saved = run.saved()?;
    let engine = run
        .engine
        .ok_or_else(|| bug("this step needs the engine's certificate"))?;
    if let Some(lost) = host.lost() {
        // The next step dials again; this wait cannot.
        return Err(failed(lost));
    }
    let stream = match host.local_port(health::port(component)).await {
        Ok(stream) => stream,
        Err(error) => return Ok(Err(error.to_string())),
    };
    Ok(health::probe(component, stream, &Access::new(host, saved, engine)).await)
}

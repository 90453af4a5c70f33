//! `util get-state-file`: the state, written next to the config from the copy on a control plane. Changes nothing on the
//! nodes, and never replaces a state that is there.

use super::{
    args::GetStateFile,
    environment, intent,
    report::{CliError, Failure},
    rke_state,
    session::{STOPPED, Session},
    status::opening,
    stream::shown,
};
use crate::{
    config::Intent,
    converge::inspect,
    desired::pki,
    facts::{Actual, HostView},
    model::Role,
    state::Loaded,
};

/// Runs it.
pub(super) async fn get(args: &GetStateFile, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    let environment = environment::open(file, opening(args.accept_new_host_keys), session)?;
    let store = &environment.store;
    let place = store.place();
    if let Loaded::Present { .. } = store.load().await? {
        let text = format!("the state is in {place} already; it was not changed");
        session.screen.print_unless_quiet(&text);
        return Ok(0);
    }
    rke_state::refuse(file, &environment).await?;
    let seen = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(STOPPED),
        seen = shown(session, inspect(&intent, &environment)) => seen?,
    };
    let copy = pki::copy_on_nodes(&intent, &seen.actual)?;
    let (state, note) = copy.ok_or_else(|| Failure::NoStateCopy {
        found: found(&intent, &seen.actual),
    })?;
    store.save(&state, None).await?;
    let text = format!("wrote the state {place}: {note}");
    session.screen.print_unless_quiet(&text);
    Ok(0)
}

/// What is the matter with each control plane.
fn found(intent: &Intent, actual: &Actual) -> Vec<String> {
    let planes = intent.with_role(Role::ControlPlane);
    planes
        .map(|(name, _)| match actual.hosts.get(name) {
            Some(HostView::Unreachable(down)) => down.why.clone(),
            Some(HostView::Reachable(_)) | None => {
                format!("node `{name}` does not belong to a cluster")
            }
        })
        .collect()
}

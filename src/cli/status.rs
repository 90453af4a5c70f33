//! `status`: shows how the cluster is. Writes nothing anywhere.

use std::path::Path;

use super::{
    args::{Output, Status as Args},
    dispatch::DEGRADED,
    environment::{self, Opening},
    intent,
    output::{Page, status::render},
    print,
    report::CliError,
    session::{STOPPED, Session},
    stream::shown,
};
use crate::{
    converge::inspect,
    status::{Health, Status},
};

/// Runs it. What differs from the config is no reason for another exit code than 0.
pub(super) async fn status(args: &Args, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let Some(status) = look(file, args.accept_new_host_keys, session).await? else {
        return Ok(STOPPED);
    };
    match args.output {
        Output::Text => print::data(&render(
            &status,
            &file.display().to_string(),
            Page::stdout(),
        ))?,
        Output::Json => print::json(&status)?,
    }
    Ok(match status.cluster.health {
        Health::Healthy => 0,
        Health::Degraded | Health::Unavailable | Health::Absent => DEGRADED,
    })
}

/// How the cluster is; `None`: stopped. Nothing is written, so there is nothing to finish.
pub(super) async fn look(
    file: &Path,
    accept_new_host_keys: bool,
    session: &Session,
) -> Result<Option<Status>, CliError> {
    let intent = intent::load(file, session)?;
    let environment = environment::open(file, opening(accept_new_host_keys), session)?;
    let seen = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(None),
        seen = shown(session, inspect(&intent, &environment)) => seen?,
    };
    Ok(Some(Status::of(&seen.seen())))
}

/// For what only reads.
pub(super) fn opening(accept_new_host_keys: bool) -> Opening {
    Opening {
        accept_new_host_keys,
        ..Opening::default()
    }
}

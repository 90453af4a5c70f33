//! `status`: shows how the cluster is. Writes nothing anywhere.

use std::{
    io::{IsTerminal as _, stdout},
    path::Path,
    time::Duration,
};

use tokio::time::sleep;

use super::{
    args::{Output, Status as Args},
    dispatch::DEGRADED,
    environment::{self, Opening},
    intent,
    output::{Page, status::render},
    print,
    report::CliError,
    rke_state,
    session::{STOPPED, Session},
    stream::shown,
};
use crate::{
    config::Intent,
    converge::{Inspector, inspect},
    environment::Environment,
    status::{Health, Status},
};

/// Clears a terminal, and what was scrolled out of it stays.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Runs it. What differs from the config is no reason for another exit code than 0.
pub(super) async fn status(args: &Args, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    if let Some(seconds) = args.watch {
        let intent = intent::load(file, session).await?;
        let environment = environment::open(file, opening(args.accept_new_host_keys), session)?;
        let every = Duration::from_secs(seconds.into());
        return tokio::select! {
            biased;
            _ = session.stop.stopped() => Ok(STOPPED),
            ended = watch(args, &intent, &environment, every, session) => ended,
        };
    }
    let Some(status) = look(file, args.accept_new_host_keys, session).await? else {
        return Ok(STOPPED);
    };
    match args.output {
        Output::Text => print::data(&text(&status, file))?,
        Output::Json => print::json(&status)?,
    }
    Ok(match status.cluster.health {
        Health::Healthy => 0,
        Health::Degraded | Health::Unavailable | Health::Absent => DEGRADED,
    })
}

/// Shows it again and again, each time in the place of the last one where that is a terminal. Ends with an error, or when
/// the reader is gone.
async fn watch(
    args: &Args,
    intent: &Intent,
    environment: &Environment,
    every: Duration,
    session: &Session,
) -> Result<u8, CliError> {
    let mut inspector = Inspector::of(environment);
    loop {
        let seen = shown(session, inspector.inspect(intent)).await?;
        let status = Status::of(&seen.seen());
        let is_read = match args.output {
            Output::Json => print::line(&status)?,
            Output::Text => {
                let head = if stdout().is_terminal() { CLEAR } else { "" };
                let time = environment.clock.now().strftime("%Y-%m-%d %H:%M:%SZ");
                let text = text(&status, &args.config.config);
                print::reaches(&format!("{head}{time}\n{text}"))?
            }
        };
        if !is_read {
            return Ok(0);
        }
        sleep(every).await;
    }
}

fn text(status: &Status, file: &Path) -> String {
    render(status, &file.display().to_string(), Page::stdout())
}

/// How the cluster is; `None`: stopped. Nothing is written, so there is nothing to finish.
pub(super) async fn look(
    file: &Path,
    accept_new_host_keys: bool,
    session: &Session,
) -> Result<Option<Status>, CliError> {
    let intent = intent::load(file, session).await?;
    let environment = environment::open(file, opening(accept_new_host_keys), session)?;
    rke_state::refuse(file, &environment).await?;
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

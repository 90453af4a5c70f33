//! `etcd defrag`: gives unused space of etcd's databases back to the disks, of one member after the other.

use super::{
    args::{Defrag, Output},
    environment::Opening,
    intent, owner, print,
    report::CliError,
    session::{STOPPED, Session},
};
use crate::{converge, etcd::defrag::Shrunk};

/// Runs it.
pub(super) async fn defrag(args: &Defrag, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    let opening = Opening::to_change(&args.trust);
    let (environment, saved) = owner::open(file, opening, session).await?;
    let told = |member: &Shrunk| {
        if args.output == Output::Text {
            // Without a reader, etcd is defragmented all the same.
            drop(print::data(&member.line()));
        }
    };
    let done = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(STOPPED),
        done = Box::pin(converge::defragment(&intent, &saved, &environment, &told)) => done?,
    };
    match args.output {
        Output::Json => print::json(&done)?,
        Output::Text if done.disarmed > 0 => print::data("the alarm NOSPACE has ended")?,
        Output::Text => {}
    }
    Ok(0)
}

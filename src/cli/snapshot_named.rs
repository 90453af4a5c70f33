//! `etcd verify` and `etcd snapshot-delete`: one snapshot, on every node with etcd that has it, one node after the other.

use super::{
    args::{NamedSnapshot, Output},
    dispatch::DEGRADED,
    environment::{self, Opening},
    intent,
    kubeconfig::state,
    output::results::NamedResult,
    print,
    report::CliError,
    session::{STOPPED, Session},
    snapshot::{lines, none_was},
};
use crate::{
    converge::{self, Answers},
    snapshots::{Answer, Doing},
};

/// Runs it. Exits with 0 where it was proven or deleted on every node that has it.
pub(super) async fn named(
    doing: Doing,
    args: &NamedSnapshot,
    session: &Session,
) -> Result<u8, CliError> {
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    let environment = environment::open(file, Opening::to_change(&args.trust), session)?;
    let saved = state(file, &environment).await?;
    let asked = (doing, &args.name);
    let Answers { nodes, failed } = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(STOPPED),
        answers = Box::pin(converge::named_snapshot(asked, &intent, &saved, &environment)) => answers?,
    };
    let name = args.name.as_str();
    let done = NamedResult {
        name,
        nodes,
        failed,
    };
    if done.nodes.is_empty() {
        let what = match doing {
            Doing::Verify => "verified",
            Doing::Delete => "deleted",
        };
        return Err(none_was(what, &done.failed));
    }
    match args.output {
        Output::Json => print::json(&done)?,
        Output::Text => {
            let answers = done.nodes.iter();
            let answers = answers.map(|(node, answer)| format!("{node}: {}", answer.line(name)));
            let all: Vec<String> = answers.chain(lines(&done.failed)).collect();
            print::data(&all.join("\n"))?;
        }
    }
    let well = done.nodes.values().all(Answer::is_well);
    Ok(if well && done.failed.is_empty() {
        0
    } else {
        DEGRADED
    })
}

//! `etcd defrag`: gives unused space of etcd's databases back to the disks, of one member after the other.

use serde::Serialize;

use super::{
    args::{Defrag, Output},
    environment::Opening,
    intent, owner, print,
    report::CliError,
    session::{STOPPED, Session},
    snapshot::with_etcd,
};
use crate::{
    converge::RestoreError,
    desired::pki::{self, Seed},
    etcd::{
        Client,
        defrag::{DefragError, Defragmentation, Shrunk},
    },
    model::NodeName,
};

/// What became of it, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Done {
    members: Vec<Shrunk>,
    /// How many alarms NOSPACE have ended.
    disarmed: usize,
}

/// Runs it.
pub(super) async fn defrag(args: &Defrag, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let intent = intent::load(file, session)?;
    if intent.etcd.external().is_some() {
        return Err(RestoreError::ExternalEtcd.into());
    }
    let opening = Opening::to_change(&args.trust);
    let (environment, saved) = owner::open(file, opening, session).await?;
    let (hosts, nodes) = with_etcd(&intent, &saved, &environment).await;
    let now = environment.clock.now();
    let seed = Seed::new((environment.entropy)());
    let engine = pki::engine_clients(&saved, now, &seed)?.etcd;
    let client = |node: NodeName| match Client::through(&hosts, &node, &engine) {
        Ok(client) => Ok((node, client)),
        Err(source) => Err(DefragError::Member { node, source }),
    };
    let clients = nodes.into_iter().map(client);
    let etcd = Defragmentation::of(clients.collect::<Result<_, _>>()?);
    let mut done = Done {
        members: Vec::new(),
        disarmed: 0,
    };
    for (node, id) in etcd.members().await? {
        // etcd finishes one that was begun, also when nothing waits for it.
        let member = tokio::select! {
            biased;
            _ = session.stop.stopped() => return Ok(STOPPED),
            member = etcd.member(&node, id) => member?,
        };
        if args.output == Output::Text {
            print::data(&said(&member))?;
        }
        done.members.push(member);
    }
    done.disarmed = etcd.disarm().await?;
    match args.output {
        Output::Json => print::json(&done)?,
        Output::Text if done.disarmed > 0 => print::data("the alarm NOSPACE has ended")?,
        Output::Text => {}
    }
    Ok(0)
}

fn said(member: &Shrunk) -> String {
    let Shrunk {
        node,
        before,
        after,
    } = member;
    format!(
        "{node}: {} KiB before, {} KiB after",
        before >> 10,
        after >> 10
    )
}

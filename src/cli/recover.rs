//! `etcd recover`: the majority of etcd's members is lost, and one that is left goes on with its data.

use tokio::time::Instant;

use super::{
    args::Recover,
    environment::Opening,
    intent,
    output::json::Ended,
    owner,
    report::{CliError, Failure},
    session::Session,
    snapshot_restore::with_etcd,
    up::Run,
};
use crate::{
    config::Intent,
    converge::{self, Goal, RestoreError},
    desired::pki::{Restore, RestoreRequest},
    environment::Environment,
    error::distinct,
    etcd::snapshot::BEYOND,
    facts::{UnreachableNodes, by_cause},
    model::{NodeName, quoted},
    state::ClusterState,
};

/// Runs it. One that was cut off goes on where it was.
pub(super) async fn recover(args: &Recover, session: &Session) -> Result<Ended, CliError> {
    let begun = Instant::now();
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    if intent.etcd.external().is_some() {
        return Err(RestoreError::ExternalEtcd.into());
    }
    let opening = Opening {
        lose: args.lose.iter().cloned().collect(),
        ..Opening::to_change(&args.trust)
    };
    let (mut environment, saved) = owner::open(file, opening, session).await?;
    converge::may_restore(&saved, &intent)?;
    let restore = match saved.restoring() {
        Some(epoch) if epoch.from.is_some() => return Err(converge::another(epoch).into()),
        Some(epoch) => Restore::of(epoch),
        None => {
            let first = survivor(args.node.as_ref(), &intent, &saved, &environment).await?;
            let before = saved.etcd_epoch.as_ref().map_or(0, |epoch| epoch.begins);
            Restore {
                number: saved.restores() + 1,
                from: None,
                begins: before + BEYOND,
                first,
            }
        }
    };
    environment.restore = Some(RestoreRequest::Begin(restore));
    let run = Run {
        goal: Goal::Restore(&intent),
        file,
        yes: args.yes,
        output: args.output,
        again: "rke-operator etcd recover",
        begun,
    };
    run.to_its_end(&environment, session).await
}

/// The node that a person names, or the only one of the cluster's nodes with etcd that answers.
async fn survivor(
    named: Option<&NodeName>,
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
) -> Result<NodeName, CliError> {
    if let Some(named) = named {
        return Ok(named.clone());
    }
    let (hosts, nodes) = with_etcd(intent, Some(saved), environment).await;
    let (mut answer, mut silent) = (Vec::new(), Vec::new());
    for node in nodes
        .iter()
        .filter(|node| saved.inventory.contains_key(*node))
    {
        match hosts.get(node).await {
            Ok(_) => answer.push(node),
            Err(why) => silent.push((node, why)),
        }
    }
    match answer.as_slice() {
        [only] => Ok((*only).clone()),
        [] => {
            let down = by_cause(silent.iter().map(|(node, why)| (*node, why)));
            let hints = down.iter().flat_map(|group| group.hints.clone());
            let restore = "restore a snapshot: `rke-operator etcd snapshot-restore --name NAME`";
            let hints = distinct(hints.chain([restore.to_owned()]));
            let found = down.iter().map(UnreachableNodes::named).collect();
            Err(Failure::NoSurvivor { found, hints }.into())
        }
        several => {
            let nodes = quoted(several.iter().copied());
            Err(Failure::Survivors { nodes }.into())
        }
    }
}

//! `etcd snapshot-restore`: replaces what the cluster holds by a snapshot.

use tokio::time::Instant;

use super::{
    args::SnapshotRestore,
    environment::{self, Opening},
    intent,
    output::json::Ended,
    owner,
    report::{CliError, Failure},
    session::Session,
    snapshot::{bucket, reached},
    snapshot_state,
    up::Run,
};
use crate::{
    config::Intent,
    converge::{self, Goal, Named, RestoreError},
    desired::pki::RestoreRequest,
    environment::Environment,
    host::pool::Hosts,
    model::{AgentProgram, NodeName},
    state::{ClusterState, Loaded},
};

/// Runs it. One that was cut off goes on where it was.
pub(super) async fn restore(args: &SnapshotRestore, session: &Session) -> Result<Ended, CliError> {
    let begun = Instant::now();
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    let bucket = bucket(&args.s3, &intent)?;
    if intent.etcd.external().is_some() {
        return Err(RestoreError::ExternalEtcd.into());
    }
    let agent = bucket.as_ref().map(|_| agent(&intent)).transpose()?;
    let say = |said: &str| session.screen.print_unless_quiet(said);
    let named = args.name.as_ref().map(|name| Named {
        name,
        bucket: bucket.as_ref(),
        agent: agent.as_ref(),
        say: &say,
    });
    let opening = Opening {
        lose: args.lose.iter().cloned().collect(),
        ..Opening::to_change(&args.trust)
    };
    let mut environment = environment::open(file, opening, session)?;
    let saved = match environment.store.load().await? {
        Loaded::Present { saved, revision: _ } => *saved,
        Loaded::Absent => {
            let place = environment.store.place();
            let named = named.ok_or(Failure::NoState { place })?;
            converge::fetch(named, &intent, None, &environment).await?;
            let saved = snapshot_state::held(named.name, &intent, &environment, session).await?;
            environment.store = snapshot_state::until_saved(environment.store, saved.clone());
            saved
        }
    };
    owner::refuse_others(&environment).await?;
    environment.restore = Some(match named {
        Some(named) => converge::restore_of(named, &intent, &saved, &environment).await?,
        None if saved.restoring().is_some() => RestoreRequest::TakeBack,
        None => return Err(Failure::NoRestore.into()),
    });
    let run = Run {
        goal: Goal::Restore(&intent),
        file,
        yes: args.yes,
        output: args.output,
        again: "rke-operator etcd snapshot-restore",
        begun,
    };
    run.to_its_end(&environment, session).await
}

/// The nodes with etcd in the config, and the way to them.
pub(super) async fn with_etcd(
    intent: &Intent,
    saved: Option<&ClusterState>,
    environment: &Environment,
) -> (Hosts, Vec<NodeName>) {
    let nodes = converge::with_etcd(intent, saved);
    let has_etcd = |node: &NodeName| nodes.contains(node);
    let (hosts, _) = reached(intent, saved, environment, has_etcd).await;
    (hosts, nodes)
}

/// The program for nodes. It is needed here whether or not recurring snapshots are wanted.
pub(super) fn agent(intent: &Intent) -> Result<AgentProgram, CliError> {
    let agent = match &intent.agent {
        Some(agent) => Some(agent.clone()),
        None => intent::own_program()?,
    };
    agent.ok_or_else(|| RestoreError::NotStatic.into())
}

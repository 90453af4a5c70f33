//! `kubeconfig`: the administrator's kubeconfig, generated again from the state. No node is contacted.

use std::path::Path;

use super::{
    args::Kubeconfig,
    environment, print,
    report::{CliError, Failure},
    rke_state,
    session::Session,
    status::opening,
};
use crate::{
    apply::local,
    desired::pki::{self, Seed},
    environment::Environment,
    state::{ClusterState, Loaded},
};

/// Runs it. Private keys go to stdout because the command is asked for nothing else.
pub(super) async fn kubeconfig(args: &Kubeconfig, session: &Session) -> Result<u8, CliError> {
    let environment = environment::open(&args.config.config, opening(false), session)?;
    let saved = state(&args.config.config, &environment).await?;
    let store = &environment.kubeconfig;
    // The server that the kubeconfig names is kept; an unreadable kubeconfig is replaced all the same.
    let before = store.load().await.ok().flatten();
    let now = environment.clock.now();
    let seed = Seed::new((environment.entropy)());
    let kubeconfig = pki::admin_kubeconfig(&saved, before.as_ref(), now, &seed)?;
    if !args.write {
        print::data(kubeconfig.expose())?;
        return Ok(0);
    }
    let place = store.place();
    let failed = |source| Failure::Write {
        what: format!("the kubeconfig {place}"),
        source,
    };
    let kept = local::set_aside(store.as_ref(), &saved).await;
    let kept = kept.map_err(&failed)?.as_deref().map(local::kept_as);
    store.save(&kubeconfig).await.map_err(&failed)?;
    let kept = kept.unwrap_or_default();
    session
        .screen
        .print_unless_quiet(&format!("wrote the kubeconfig {place}{kept}"));
    Ok(0)
}

/// The state, without which there is nothing to show.
pub(super) async fn state(
    config: &Path,
    environment: &Environment,
) -> Result<ClusterState, CliError> {
    match environment.store.load().await? {
        Loaded::Present { saved, revision: _ } => Ok(*saved),
        Loaded::Absent => {
            rke_state::refuse(config, environment).await?;
            let place = environment.store.place();
            Err(Failure::NoState { place }.into())
        }
    }
}

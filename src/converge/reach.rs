//! The API of a cluster, reached by its saved state alone: no config is read, and no node is surveyed.

use kube::Client;

use super::{AnyPurpose, Removal, look};
use crate::{
    apply::{remote::RemoteSession, step::StepError},
    desired::pki::{self, Seed},
    environment::Environment,
    state::ClusterState,
};

/// A cluster's API, for as long as this is kept.
pub struct Reached {
    /// Asks whichever control plane answers.
    pub client: Client,
    _session: Box<dyn RemoteSession>,
}

/// Reaches the API of that state's cluster. It must prove with the cluster's CA that it is that.
pub async fn reach(saved: &ClusterState, environment: &Environment) -> Result<Reached, StepError> {
    let failed = |error| StepError::Failed(Box::new(error));
    let seed = Seed::new((environment.entropy)());
    let engine = pki::engine_clients(saved, environment.clock.now(), &seed).map_err(failed)?;
    let mut session = look::open(environment);
    let purpose = AnyPurpose::Removal(Removal(None));
    session.aim(look::targets(purpose, Some(saved), environment).await);
    let client = session.reach(saved, &engine).await?;
    Ok(Reached {
        client,
        _session: session,
    })
}

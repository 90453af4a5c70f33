//! What every effect works with: the run's connections and stores, what the survey saw and what
//! must be; and how an effect waits and fails.

use std::{borrow::Cow, io, sync::Arc, time::Duration};

use super::{
    step::{Reporter, StepError},
    stop::Stop,
};
use crate::{
    actual::{Actual, Down, HostFacts},
    config::NodeName,
    desired::{CLAIM, Desired, pki::EngineClient},
    error::{Blame, Explain},
    host::{Host, pool::Hosts},
    plan::{self, Guard},
    state::{ClusterId, Saved},
    world::World,
};

/// What the steps of one plan are carried out with; `act.rs` does it.
pub struct Effects<'a> {
    /// Stores and settings.
    pub world: &'a World,
    /// The connections of this run.
    pub hosts: &'a Hosts<'a>,
    /// What the survey saw.
    pub actual: &'a Actual,
    /// What must be; a removal has none.
    pub desired: Option<&'a Desired>,
    /// The state that steps act under: the desired one, or for a removal the saved one.
    pub saved: Option<&'a Saved>,
    /// The revision that the survey loaded.
    pub revision: Option<&'a str>,
    /// The engine's own client certificate.
    pub engine: Option<&'a EngineClient>,
}

impl Effects<'_> {
    /// The connection to a node.
    pub(super) async fn host(&self, name: &NodeName) -> Result<Arc<Host>, StepError> {
        self.hosts
            .get(name)
            .await
            .map_err(|down| failed(EffectError::Down(down)))
    }

    /// Evaluates a guard on the live world.
    pub(super) async fn check(&self, wanted: Option<&Guard>, host: &Host) -> Result<(), StepError> {
        let Some(wanted) = wanted else { return Ok(()) };
        let claim = host.container(CLAIM).await.map_err(failed)?;
        plan::holds(wanted, claim.as_ref()).map_err(StepError::Guard)
    }

    /// What must be.
    pub(super) fn desired(&self) -> Result<&Desired, StepError> {
        self.desired
            .ok_or_else(|| bug("this step needs a desired world"))
    }

    /// The state that steps act under.
    pub(super) fn saved(&self) -> Result<&Saved, StepError> {
        self.saved.ok_or_else(|| bug("this step needs a state"))
    }

    /// The engine's own certificate.
    pub(super) fn engine(&self) -> Result<&EngineClient, StepError> {
        self.engine
            .ok_or_else(|| bug("this step needs the engine's certificate"))
    }

    /// Whose steps these are.
    pub(super) fn id(&self) -> Result<&ClusterId, StepError> {
        self.saved().map(|saved| &saved.cluster_id)
    }

    /// What the survey saw of a node.
    pub(super) fn facts(&self, host: &Host) -> Result<&HostFacts, StepError> {
        self.actual
            .up(&host.name)
            .ok_or_else(|| bug("this step needs the host's facts"))
    }
}

/// Asks `probe` until it has an answer or the stop signal is given; the scheduler's bound ends
/// it otherwise. The inner error says what it waits for, and is reported.
pub(super) async fn until<T, F>(
    what: &str,
    every: Duration,
    reporter: &Reporter,
    stop: &Stop,
    mut probe: impl FnMut(u64) -> F,
) -> Result<T, StepError>
where
    F: Future<Output = Result<Result<T, String>, StepError>>,
{
    let mut tries = 0;
    loop {
        let waiting_for = match probe(tries).await? {
            Ok(answer) => return Ok(answer),
            Err(waiting_for) => waiting_for,
        };
        tries += 1;
        reporter.waiting(format!("{what}: {waiting_for}"), tries);
        tokio::select! {
            _ = stop.stopped() => return Err(StepError::Stopped),
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// An error of an effect as the scheduler takes it.
pub(super) fn failed(error: impl Explain + Send + Sync + 'static) -> StepError {
    StepError::Failed(Box::new(error))
}

/// A plan that its effects cannot serve: ours.
pub(super) fn bug(what: &'static str) -> StepError {
    failed(EffectError::Bug(what))
}

/// Errors of effects that no layer below names.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// The node cannot be reached any more.
    #[error("{}", .0.why)]
    Down(Down),
    /// Something on the node did not do what it was told.
    #[error("{message}")]
    Node {
        /// What, with the node's name.
        message: String,
        /// Cures.
        hints: Vec<String>,
        /// Whose turn it is.
        blame: Blame,
    },
    /// The kubeconfig.
    #[error("cannot write the kubeconfig {place}")]
    Kubeconfig {
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Ours.
    #[error("{0}")]
    Bug(&'static str),
}

impl Explain for EffectError {
    fn blame(&self) -> Blame {
        match self {
            Self::Down(down) => down.blame,
            Self::Node { blame, .. } => *blame,
            Self::Kubeconfig { .. } => Blame::User,
            Self::Bug(_) => Blame::Bug,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Down(down) => down.hints.iter().cloned().map(Into::into).collect(),
            Self::Node { hints, .. } => hints.iter().cloned().map(Into::into).collect(),
            Self::Kubeconfig { .. } | Self::Bug(_) => vec![],
        }
    }
}

//! Joins the halves: survey (read → draw → plan), then run, and again until the plan is empty.
//! Both shells call this and have no provisioning logic of their own.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;

use crate::{
    actual::{Actual, Down},
    apply::{
        run::{Events, Warning},
        stop::{Stop, StopCause},
    },
    config::{Intent, NodeName},
    desired::{ClusterId, Desired},
    error::{Blame, Explain},
    host::{Dial, HostKeys},
    plan::Plan,
    secret::Secret,
    state::Store,
};

/// What a run is for, with what it needs to know.
pub enum Goal<'a> {
    /// Make the world as the intent says.
    Up(&'a Intent),
    /// Give every node of the saved inventory (and of the intent, if there still is one) back.
    Remove(Option<&'a Intent>),
}

/// Finds the private key that an inventory entry's `key_source` names, when no intent does.
pub trait KeyRing: Send + Sync {
    /// The key, PEM. The error says what is missing.
    fn key<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Secret<String>, String>>;
}

/// Where the administrator's kubeconfig is kept.
pub trait KubeconfigStore: Send + Sync {
    /// What is there.
    fn load(&self) -> BoxFuture<'_, std::io::Result<Option<Secret<String>>>>;
    /// Writes it, 0600 or a Secret.
    fn save<'a>(&'a self, kubeconfig: &'a Secret<String>) -> BoxFuture<'a, std::io::Result<()>>;
    /// Removes it; nothing there is success.
    fn remove(&self) -> BoxFuture<'_, std::io::Result<()>>;
    /// Where, for messages.
    fn place(&self) -> String;
}

/// Asked once before a plan with disruptive steps runs.
pub trait Consent: Send + Sync {
    /// True to go on. Sees the plan that will run.
    fn ask<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, bool>;
}

/// Everything outside, and the settings of a run.
pub struct World {
    /// How a TCP stream to a node is opened.
    pub dial: Arc<dyn Dial>,
    /// Whose host keys are trusted.
    pub host_keys: Arc<dyn HostKeys>,
    /// The state.
    pub store: Arc<dyn Store>,
    /// The kubeconfig.
    pub kubeconfig: Arc<dyn KubeconfigStore>,
    /// Keys for a removal without a config.
    pub key_ring: Arc<dyn KeyRing>,
    /// Read lost keys back from the nodes (invariant 2).
    pub recover: bool,
    /// Cluster ids that other `Cluster` objects hold (operator only).
    pub held_elsewhere: BTreeSet<ClusterId>,
    /// The time.
    pub now: fn() -> jiff::Timestamp,
    /// Fresh randomness.
    pub entropy: fn() -> [u8; 32],
}

/// What a survey found and what would be done about it.
pub struct Survey {
    /// What is.
    pub actual: Actual,
    /// What must be; `None` for a removal.
    pub desired: Option<Desired>,
    /// The difference.
    pub plan: Plan,
}

/// How a convergence ended well, or ended for now.
#[derive(Debug)]
pub enum Outcome {
    /// The last survey's plan was empty.
    Converged {
        /// False: nothing was done at all.
        changed: bool,
        /// Said on the way.
        warnings: Vec<Warning>,
    },
    /// The plan disturbs what runs, and consent was not given; nothing was done.
    ConsentRefused {
        /// What it would disturb.
        disruptions: Vec<String>,
    },
    /// A removal that gave back every node that answers; these did not.
    RemovalIncomplete {
        /// The nodes, and why.
        left: Vec<(NodeName, Down)>,
    },
    /// The stop signal was given.
    Stopped(StopCause),
}

/// Reads the world and works out what to do. Writes nothing, anywhere.
pub async fn survey(goal: &Goal<'_>, world: &World) -> Result<Survey, Error> {
    let _ = (goal, world);
    std::future::pending().await
}

/// Survey, run, and again until the plan is empty; at most five rounds.
pub async fn converge(
    goal: &Goal<'_>,
    world: &World,
    consent: &dyn Consent,
    events: &Events,
    stop: &Stop,
) -> Result<Outcome, Error> {
    let _ = (goal, world, consent, events, stop);
    std::future::pending().await
}

/// Why a convergence failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The state.
    #[error(transparent)]
    State(#[from] crate::state::StateError),
    /// Placeholder of the skeleton; the integrator completes this tree.
    #[error("{0}")]
    Other(String),
}

impl Explain for Error {
    fn blame(&self) -> Blame {
        Blame::Bug
    }
}

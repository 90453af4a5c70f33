//! What is done to etcd, its snapshots and nodes at once, without a plan: nothing that the config asks for is changed by it.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Goal, Purpose, Reached, RestoreError, reach, restore::list, targets};
use crate::{
    apply::{limit::drain_patience, remote::RemoteSession, step::StepError},
    config::Intent,
    desired::pki::{self, PkiError, Seed},
    environment::Environment,
    error::{ErrorClass, Explain, Obstacle},
    etcd::{
        defrag::{DefragError, Defragmented, Shrunk},
        snapshot::SnapshotName,
    },
    facts::Unreachable,
    model::{DrainRules, NodeName, Role, known_names},
    snapshots::{Answer, Doing},
    state::ClusterState,
    workload::{self, Waiting, WorkloadError},
};

/// Why it is not done.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// It cannot be done to this cluster.
    #[error(transparent)]
    Etcd(#[from] RestoreError),
    /// Nothing on the nodes can do it.
    #[error(
        "the config wants no recurring snapshots, and it is their program on the nodes that verifies and deletes"
    )]
    NoRecurring,
    /// No node that answers has the snapshot.
    #[error("no node that answers has the snapshot:{}", list(found))]
    NotSeen {
        /// What each node says, or why it does not answer.
        found: Vec<String>,
    },
    /// The members cannot be asked.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A member.
    #[error(transparent)]
    Defrag(#[from] DefragError),
    /// A node that the cluster does not have.
    #[error("the cluster has no node `{node}`")]
    NoNode {
        /// As given.
        node: NodeName,
        /// The nodes that it has.
        hints: Vec<String>,
    },
    /// No API server was reached.
    #[error("{}", .0.why)]
    Api(Unreachable),
    /// A Node or its pods.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

impl Explain for MaintenanceError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Etcd(error) => error.class(),
            Self::NoRecurring | Self::NoNode { .. } => ErrorClass::User,
            Self::NotSeen { .. } => ErrorClass::Host,
            Self::Api(down) => down.class,
            Self::Workload(error) => error.class(),
            Self::Pki(error) => error.class(),
            Self::Defrag(error) => error.class(),
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Etcd(error) => error.hints(),
            Self::NoRecurring => vec![
                "take `snapshot: false` out of `services.etcd`, and apply that; a snapshot can also be deleted as a file in \
                 `/opt/rke/etcd-snapshots` of its node"
                    .into(),
            ],
            Self::NotSeen { .. } => vec![
                "bring back the nodes that do not answer, and run the same command again".into(),
            ],
            Self::Pki(error) => error.hints(),
            Self::Defrag(error) => error.hints(),
            Self::NoNode { hints, .. } => hints.iter().cloned().map(Cow::Owned).collect(),
            Self::Api(down) => down.hints.iter().cloned().map(Cow::Owned).collect(),
            Self::Workload(error) => error.hints(),
        }
    }
}

impl From<StepError> for MaintenanceError {
    fn from(error: StepError) -> Self {
        match error {
            StepError::Failed(error) => Self::Api(Unreachable::of(&*error)),
            StepError::Guard(why) => Self::Api(unreached(why)),
            StepError::Stopped => Self::Api(unreached("it was stopped".to_owned())),
        }
    }
}

fn unreached(why: String) -> Unreachable {
    Unreachable {
        alike: None,
        class: ErrorClass::Host,
        why,
        hints: Vec::new(),
        obstacle: Obstacle::Other,
    }
}

/// What the nodes say of a snapshot.
#[derive(Debug, Default)]
pub struct Answers {
    /// By node.
    pub nodes: BTreeMap<NodeName, Answer>,
    /// The nodes that did not answer, and why.
    pub failed: BTreeMap<NodeName, Unreachable>,
}

/// The nodes with etcd, and connections to them.
pub(super) async fn members(
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
) -> Result<(Box<dyn RemoteSession>, Vec<NodeName>), RestoreError> {
    if intent.etcd.external().is_some() {
        return Err(RestoreError::ExternalEtcd);
    }
    let mut targets = targets(Goal::Up(intent).any(), Some(saved), environment).await;
    targets.retain(|node, _| saved.has_role(node, Role::Etcd));
    let nodes = targets.keys().cloned().collect();
    let keys = environment.host_keys.clone();
    let mut session = environment.remote.session(keys);
    session.aim(targets);
    Ok((session, nodes))
}

/// Defragments the members' databases, which frees their unused space on the disks; calls `told` with each member as
/// soon as it is done. When this is dropped, etcd still finishes the member that was begun.
pub async fn defragment(
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
    told: &(dyn Fn(&Shrunk) + Send + Sync),
) -> Result<Defragmented, MaintenanceError> {
    let (session, nodes) = members(intent, saved, environment).await?;
    let now = environment.clock.now();
    let seed = Seed::new((environment.entropy)());
    let engine = pki::engine_clients(saved, now, &seed)?.etcd;
    Ok(session.defragment(&nodes, &engine, told).await?)
}

/// Looks into a snapshot once more, or deletes it, on every node with etcd that has it, one node after the other.
pub async fn named_snapshot(
    (doing, name): (Doing, &SnapshotName),
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
) -> Result<Answers, MaintenanceError> {
    let (session, nodes) = members(intent, saved, environment).await?;
    if intent.services.snapshots.is_none() {
        return Err(MaintenanceError::NoRecurring);
    }
    let agent = intent.agent.as_ref().ok_or(RestoreError::NotStatic)?;
    let files = session.files();
    let mut answers = Answers::default();
    for node in nodes {
        let named = files.named(&node, &saved.cluster_id, (doing, name), agent);
        match named.await {
            Ok(answer) => drop(answers.nodes.insert(node, answer)),
            Err(why) => drop(answers.failed.insert(node, why)),
        }
    }
    if !answers.nodes.is_empty() && answers.nodes.values().all(|it| *it == Answer::Absent) {
        let nodes = answers.nodes.keys();
        let absent = nodes.map(|node| format!("{node}: it is not there"));
        let failed = answers.failed.iter();
        let failed = failed.map(|(node, why)| format!("{node}: {}", why.why));
        let found = absent.chain(failed).collect();
        return Err(if answers.failed.is_empty() {
            RestoreError::NoSuchSnapshot { found }.into()
        } else {
            MaintenanceError::NotSeen { found }
        });
    }
    Ok(answers)
}

/// Nodes of the cluster, and its API. Each is looked for before anything is done.
async fn nodes(
    named: &[NodeName],
    saved: &ClusterState,
    environment: &Environment,
) -> Result<Reached, MaintenanceError> {
    let unknown = named
        .iter()
        .find(|node| !saved.inventory.contains_key(*node));
    if let Some(node) = unknown {
        let names = saved.inventory.keys().map(|name| name.0.as_str());
        return Err(MaintenanceError::NoNode {
            node: node.clone(),
            hints: known_names(&node.0, "the nodes of the cluster are", names),
        });
    }
    Ok(Box::pin(reach(saved, environment)).await?)
}

/// Evicts the pods of these nodes, one node after the other. They stay cordoned until [`uncordon`]: a run leaves them so. A
/// node that cannot be emptied takes pods again, and those after it are left as they are.
pub async fn drain(
    named: &[NodeName],
    rules: DrainRules,
    saved: &ClusterState,
    environment: &Environment,
    waiting: Waiting<'_>,
) -> Result<(), MaintenanceError> {
    let api = nodes(named, saved, environment).await?;
    let patience = drain_patience(Some(&rules));
    for node in named {
        let drained = workload::drain(&api.client, node, Some(&rules), patience, waiting);
        Box::pin(drained).await?;
        workload::keep_cordoned(&api.client, node).await?;
    }
    Ok(())
}

/// Lets new pods onto these nodes again.
pub async fn uncordon(
    named: &[NodeName],
    saved: &ClusterState,
    environment: &Environment,
) -> Result<(), MaintenanceError> {
    let api = nodes(named, saved, environment).await?;
    for node in named {
        workload::let_pods_in(&api.client, node).await?;
    }
    Ok(())
}

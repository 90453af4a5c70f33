//! What a restore begins with: the snapshot that a person names, as the first node has it.

use std::borrow::Cow;

use futures::future::join_all;

use super::{Goal, Purpose, targets};
use crate::{
    apply::remote::RemoteSession,
    config::{Intent, SecretsEncryption},
    desired::{
        self,
        pki::{Restore, RestoreRequest},
    },
    environment::Environment,
    error::{ErrorClass, Explain, distinct},
    etcd::snapshot::{BEYOND, Found, SnapshotName},
    facts::{Unreachable, UnreachableNodes, by_cause},
    model::{AgentProgram, Bucket, ClusterId, KubernetesVersion, NodeName, Role},
    snapshots::seek::{SnapshotFiles, Sought},
    state::{ClusterState, EtcdEpoch, SnapshotRef},
};

/// Why no restore begins.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// No node has the snapshot.
    #[error("there is no snapshot to restore:{}", list(found))]
    NoSuchSnapshot {
        /// What was found, or why nothing could be looked at.
        found: Vec<String>,
    },
    /// Nodes that may have the snapshot are not reachable.
    #[error("{}", not_seen(found, down))]
    NotSeen {
        /// What the others have.
        found: Vec<String>,
        /// The nodes, and why.
        down: Vec<(NodeName, Unreachable)>,
    },
    /// The snapshot cannot be read.
    #[error("snapshot `{name}` on node `{node}` cannot be read: {why}")]
    Unreadable {
        /// Which.
        name: String,
        /// Where.
        node: String,
        /// Why.
        why: String,
    },
    /// Another restore was cut off.
    #[error("a restore of {made_of} was started and is not finished")]
    Another {
        /// Of what.
        made_of: String,
        /// The command that goes on with it.
        command: String,
    },
    /// A restore and a change of the release at once.
    #[error("the cluster has Kubernetes {has}, and the config asks for {wants}")]
    AndUpgrade {
        /// What the state says.
        has: KubernetesVersion,
        /// What the config says.
        wants: KubernetesVersion,
    },
    /// The cluster's etcd is outside of it.
    #[error(
        "there is no etcd on the cluster's nodes: its etcd is external (`services.etcd.external_urls`), and who runs that takes its snapshots"
    )]
    ExternalEtcd,
    /// Only this program itself can do it on a node.
    #[error(
        "nodes cannot be given this rke-operator, which copies snapshots between them and a bucket: it is not linked statically"
    )]
    NotStatic,
}

pub(super) fn list(lines: &[String]) -> String {
    let each = lines.iter().flat_map(|line| ["\n  - ", line]);
    each.collect()
}

fn not_seen(found: &[String], down: &[(NodeName, Unreachable)]) -> String {
    let groups = by_cause(down.iter().map(|(node, why)| (node, why)));
    let lines: Vec<String> = groups.iter().map(UnreachableNodes::named).collect();
    let lines = list(&[found, lines.as_slice()].concat());
    if found.is_empty() {
        format!("cannot look for the snapshot: no node with etcd can be used:{lines}")
    } else {
        format!("the snapshot is on no node that can be used:{lines}")
    }
}

impl RestoreError {
    /// No node has it: those that are reachable have `found`, and the others may have it.
    pub fn on_none(found: Vec<String>, down: Vec<(NodeName, Unreachable)>) -> Self {
        if down.is_empty() {
            Self::NoSuchSnapshot { found }
        } else {
            Self::NotSeen { found, down }
        }
    }
}

impl Explain for RestoreError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotSeen { down, .. } => {
                let classes = down.iter().map(|(_, why)| why.class);
                ErrorClass::first(classes).unwrap_or(ErrorClass::Host)
            }
            Self::NoSuchSnapshot { .. }
            | Self::Another { .. }
            | Self::AndUpgrade { .. }
            | Self::ExternalEtcd
            | Self::NotStatic => ErrorClass::User,
            Self::Unreadable { .. } => ErrorClass::Host,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::NoSuchSnapshot { .. } => vec![
                "`rke-operator etcd snapshot-list` shows those that can be restored".into(),
                "copy the file there (`scp`, then `sudo mv`) on a node with etcd, and name it"
                    .into(),
            ],
            Self::NotSeen { down, .. } => {
                let groups = by_cause(down.iter().map(|(node, why)| (node, why)));
                let hints = groups.into_iter().flat_map(|group| group.hints);
                distinct(hints).into_iter().map(Cow::Owned).collect()
            }
            Self::Unreadable { .. } => {
                vec!["take another snapshot, or copy this one there again".into()]
            }
            Self::Another { command, .. } => vec![
                format!("to continue it: `{command}`").into(),
                "to return to the previous state: `rke-operator etcd snapshot-restore --back`"
                    .into(),
            ],
            Self::AndUpgrade { has, .. } => vec![
                format!("write `kubernetes_version: {has}`, restore, and upgrade afterwards")
                    .into(),
            ],
            Self::ExternalEtcd => {
                vec![
                    "`etcdctl snapshot save FILE` on one of its members saves all that is in it"
                        .into(),
                ]
            }
            Self::NotStatic => vec![
                "use a program that `make dist` built; or copy the file yourself: snapshots are in \
                 `/opt/rke/etcd-snapshots` of the nodes"
                    .into(),
            ],
        }
    }
}

/// What a person names.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    /// The snapshot.
    pub name: &'a SnapshotName,
    /// A bucket that may have it, where no node has.
    pub bucket: Option<&'a Bucket>,
    /// What copies it from there.
    pub agent: Option<&'a AgentProgram>,
    /// Told what takes time.
    pub say: &'a (dyn Fn(&str) + Send + Sync),
}

/// The request for a run: to begin with that snapshot, or to go on with the restore that was begun with it.
pub async fn restore_of(
    named: Named<'_>,
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
) -> Result<RestoreRequest, RestoreError> {
    may_restore(saved, intent)?;
    if let Some(epoch) = saved.restoring() {
        let is_this = |from: &SnapshotRef| from.name == named.name.as_str();
        if epoch.from.as_ref().is_none_or(|from| !is_this(from)) {
            return Err(another(epoch));
        }
        return Ok(RestoreRequest::Begin(Restore::of(epoch)));
    }
    let session = session(intent, Some(saved), environment).await;
    let nodes = dial_all(session.files(), with_etcd(intent, Some(saved))).await;
    fetch_by(&*session, named, &nodes, intent, Some(saved)).await?;
    let found = find(&*session, named, nodes, intent, saved).await?;
    Ok(RestoreRequest::Begin(found))
}

/// Data of another minor release are not read while the release changes.
pub fn may_restore(saved: &ClusterState, intent: &Intent) -> Result<(), RestoreError> {
    let minor = |version: KubernetesVersion| (version.major, version.minor);
    match saved.kubernetes_version {
        _ if intent.etcd.external().is_some() => Err(RestoreError::ExternalEtcd),
        Some(has) if minor(has) != minor(intent.version) => {
            let wants = intent.version;
            Err(RestoreError::AndUpgrade { has, wants })
        }
        Some(_) | None => Ok(()),
    }
}

/// One thing is restored at a time.
pub fn another(epoch: &EtcdEpoch) -> RestoreError {
    let (made_of, command) = (epoch.made_of(), epoch.command());
    RestoreError::Another { made_of, command }
}

/// The label of helper containers, before it is known whose they are.
pub fn id_of(saved: Option<&ClusterState>) -> ClusterId {
    let unknown = || ClusterId("unknown".to_owned());
    saved.map_or_else(unknown, |saved| saved.cluster_id.clone())
}

/// The nodes with etcd in the config, those that are members already first: where the machines of before are gone, it is
/// the others.
pub fn with_etcd(intent: &Intent, saved: Option<&ClusterState>) -> Vec<NodeName> {
    let nodes = intent.nodes.iter();
    let nodes = nodes.filter(|(_, node)| node.roles.contains(&Role::Etcd));
    let mut nodes: Vec<NodeName> = nodes.map(|(name, _)| name.clone()).collect();
    nodes.sort_by_key(|node| saved.is_none_or(|saved| !saved.inventory.contains_key(node)));
    nodes
}

async fn session(
    intent: &Intent,
    saved: Option<&ClusterState>,
    environment: &Environment,
) -> Box<dyn RemoteSession> {
    let keys = environment.host_keys.clone();
    let mut session = environment.remote.session(keys);
    session.aim(targets(Goal::Up(intent).any(), saved, environment).await);
    session
}

/// Copies it from the bucket to the first node that answers, unless a node has it already.
pub async fn fetch(
    named: Named<'_>,
    intent: &Intent,
    saved: Option<&ClusterState>,
    environment: &Environment,
) -> Result<(), RestoreError> {
    let session = session(intent, saved, environment).await;
    let nodes = dial_all(session.files(), with_etcd(intent, saved)).await;
    fetch_by(&*session, named, &nodes, intent, saved).await
}

/// Nodes with etcd, each of which was dialled once.
pub struct Dialled {
    /// Those that answer, in the order in which they are asked.
    pub up: Vec<NodeName>,
    /// Those that do not, and why. None is dialled again.
    pub down: Vec<(NodeName, Unreachable)>,
}

/// Dials all of them at once.
pub async fn dial_all(files: &dyn SnapshotFiles, nodes: Vec<NodeName>) -> Dialled {
    let dialled = join_all(nodes.iter().map(|node| files.reach(node))).await;
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for (node, result) in nodes.into_iter().zip(dialled) {
        match result {
            Ok(()) => up.push(node),
            Err(why) => down.push((node, why)),
        }
    }
    Dialled { up, down }
}

async fn fetch_by(
    session: &dyn RemoteSession,
    named: Named<'_>,
    nodes: &Dialled,
    intent: &Intent,
    saved: Option<&ClusterState>,
) -> Result<(), RestoreError> {
    let Some(bucket) = named.bucket else {
        return Ok(());
    };
    let agent = named.agent.ok_or(RestoreError::NotStatic)?;
    let (id, image) = (id_of(saved), desired::etcd_tools(intent));
    let sought = sought(&named, intent, &id, &image);
    let files = session.files();
    let Dialled { up, down } = nodes;
    if up.is_empty() {
        return Err(RestoreError::on_none(Vec::new(), down.clone()));
    }
    for node in up {
        let found = files.look(node, sought).await;
        if matches!(found, Ok(Found::Whole { .. })) {
            return Ok(());
        }
    }
    let mut failed = Vec::new();
    for node in up {
        match files.fetch(node, sought, bucket, agent).await {
            Ok(()) => {
                let name = named.name.as_str();
                (named.say)(&format!("{node}: copied `{name}` from the bucket"));
                return Ok(());
            }
            Err(why) => failed.push(format!("{node}: {}", why.why)),
        }
    }
    Err(RestoreError::NoSuchSnapshot { found: failed })
}

fn sought<'a>(
    named: &Named<'a>,
    intent: &'a Intent,
    id: &'a ClusterId,
    image: &'a str,
) -> Sought<'a> {
    Sought {
        name: named.name,
        id,
        image,
        login: intent.registries.login(image),
        say: named.say,
    }
}

/// The first node that has the snapshot whole.
async fn find(
    session: &dyn RemoteSession,
    named: Named<'_>,
    nodes: Dialled,
    intent: &Intent,
    saved: &ClusterState,
) -> Result<Restore, RestoreError> {
    let name = named.name.as_str();
    let image = desired::etcd_tools(intent);
    let sought = sought(&named, intent, &saved.cluster_id, &image);
    let files = session.files();
    let mut found = Vec::new();
    let Dialled { up, mut down } = nodes;
    for node in &up {
        match files.look(node, sought).await {
            Ok(Found::Whole {
                encrypted: true, ..
            }) if intent.services.secrets_encryption == SecretsEncryption::Off => {
                found.push(format!(
                    "{node}: objects in `{name}` are encrypted, and the config asks for no encryption: switch \
                     `secrets_encryption_config` on, run `up`, restore, and switch it off again"
                ));
            }
            Ok(Found::Whole {
                sha256,
                names_cluster,
                encrypted,
            }) if names_cluster || encrypted && !saved.encryption.is_empty() => {
                let revision = files.revision(node, sought).await;
                let revision = revision.map_err(|why| RestoreError::Unreadable {
                    name: name.to_owned(),
                    node: node.0.clone(),
                    why: why.why,
                })?;
                let before = saved.etcd_epoch.as_ref().map_or(0, |epoch| epoch.begins);
                return Ok(Restore {
                    number: saved.restores() + 1,
                    from: Some(SnapshotRef {
                        name: name.to_owned(),
                        sha256,
                        revision,
                    }),
                    begins: before.max(revision) + BEYOND,
                    first: node.clone(),
                });
            }
            Ok(Found::Whole { .. }) => {
                found.push(format!("{node}: `{name}` is not of this cluster"));
            }
            Ok(Found::Zipped) => found.push(format!("{node}: `{name}` is there as a zip")),
            Ok(Found::Not(what)) => found.push(format!("{node}: `{name}` {what}")),
            Err(why) => down.push((node.clone(), why)),
        }
    }
    Err(RestoreError::on_none(found, down))
}

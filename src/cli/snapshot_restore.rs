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
    config::{Intent, SecretsEncryption},
    converge::Goal,
    desired::{
        self,
        pki::{Restore, RestoreRequest},
    },
    environment::Environment,
    etcd::snapshot::{self, Found, SnapshotName},
    facts::Unreachable,
    host::{Host, pool::Hosts},
    model::{AgentProgram, Bucket, ClusterId, KubernetesVersion, NodeName, Role},
    snapshots::OnNode,
    state::{ClusterState, EtcdEpoch, Loaded, SnapshotRef},
};

/// Runs it. One that was cut off goes on where it was.
pub(super) async fn restore(args: &SnapshotRestore, session: &Session) -> Result<Ended, CliError> {
    let begun = Instant::now();
    let file = &args.config.config;
    let intent = intent::load_whole(file, session)?.intent;
    let bucket = bucket(&args.s3, &intent)?;
    if intent.etcd.external().is_some() {
        return Err(Failure::ExternalEtcd.into());
    }
    let opening = Opening {
        lose: args.lose.iter().cloned().collect(),
        ..Opening::to_change(&args.trust)
    };
    let mut environment = environment::open(file, opening, session)?;
    let saved = match environment.store.load().await? {
        Loaded::Present { saved, revision: _ } => *saved,
        Loaded::Absent => {
            let place = environment.store.place();
            let name = args.name.as_ref().ok_or(Failure::NoState { place })?;
            if let Some(bucket) = &bucket {
                fetch(name, bucket, &intent, Whose::UNKNOWN, &environment, session).await?;
            }
            let saved = snapshot_state::held(name, &intent, &environment, session).await?;
            environment.store = snapshot_state::until_saved(environment.store, saved.clone());
            saved
        }
    };
    owner::refuse_others(&environment).await?;
    is_no_upgrade(&saved, &intent)?;
    environment.restore = Some(match (&args.name, saved.restoring()) {
        (None, None) => return Err(Failure::NoRestore.into()),
        (None, Some(_)) => RestoreRequest::TakeBack,
        (Some(name), Some(epoch))
            if epoch
                .from
                .as_ref()
                .is_none_or(|from| from.name != name.as_str()) =>
        {
            return Err(another(epoch));
        }
        (Some(_), Some(epoch)) => RestoreRequest::Begin(Restore::of(epoch)),
        (Some(name), None) => {
            if let Some(bucket) = &bucket {
                let whose = Whose::of(&saved);
                fetch(name, bucket, &intent, whose, &environment, session).await?;
            }
            let found = find(name, &intent, &saved, &environment, session).await?;
            RestoreRequest::Begin(found)
        }
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

/// Data of another minor release are not read while the release changes.
pub(super) fn is_no_upgrade(saved: &ClusterState, intent: &Intent) -> Result<(), Failure> {
    let minor = |version: KubernetesVersion| (version.major, version.minor);
    match saved.kubernetes_version {
        Some(has) if minor(has) != minor(intent.version) => {
            let wants = intent.version;
            Err(Failure::RestoresAndUpgrades { has, wants })
        }
        Some(_) | None => Ok(()),
    }
}

/// One thing is restored at a time.
pub(super) fn another(epoch: &EtcdEpoch) -> CliError {
    let (made_of, command) = (epoch.made_of(), epoch.command());
    Failure::AnotherRestore { made_of, command }.into()
}

/// Whose snapshot it is, as far as that is known before the state is.
#[derive(Clone, Copy)]
pub(super) struct Whose<'a> {
    saved: Option<&'a ClusterState>,
}

impl<'a> Whose<'a> {
    pub(super) const UNKNOWN: Self = Self { saved: None };

    pub(super) const fn of(saved: &'a ClusterState) -> Self {
        Self { saved: Some(saved) }
    }

    /// The cluster's id, as the label of the helper containers has it.
    pub(super) fn id(self) -> ClusterId {
        let unknown = || ClusterId("unknown".to_owned());
        self.saved
            .map_or_else(unknown, |saved| saved.cluster_id.clone())
    }
}

/// The nodes with etcd in the config, those that are members already first: where the machines of before are gone, it is
/// the others.
pub(super) async fn with_etcd(
    intent: &Intent,
    whose: Whose<'_>,
    environment: &Environment,
) -> (Hosts, Vec<NodeName>) {
    let has_etcd = |node: &NodeName| {
        let node = intent.nodes.get(node);
        node.is_some_and(|node| node.roles.contains(&Role::Etcd))
    };
    let (hosts, mut nodes) = reached(intent, whose.saved, environment, has_etcd).await;
    let is_new = |node: &NodeName| {
        let saved = whose.saved;
        saved.is_none_or(|saved| !saved.inventory.contains_key(node))
    };
    nodes.sort_by_key(is_new);
    (hosts, nodes)
}

/// The first node that has the snapshot whole.
async fn find(
    name: &SnapshotName,
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
    session: &Session,
) -> Result<Restore, CliError> {
    let (hosts, nodes) = with_etcd(intent, Whose::of(saved), environment).await;
    let id = &saved.cluster_id;
    let mut found = Vec::new();
    for node in &nodes {
        match looked(&hosts, node, id, name).await {
            Ok(Found::Whole {
                encrypted: true, ..
            }) if intent.services.secrets_encryption == SecretsEncryption::Off => {
                found.push(format!(
                    "{node}: objects in `{}` are encrypted, and the config asks for no encryption: switch \
                     `secrets_encryption_config` on, run `up`, restore, and switch it off again",
                    name.as_str()
                ));
            }
            Ok(Found::Whole {
                sha256,
                names_cluster,
                encrypted,
            }) if names_cluster || encrypted && !saved.encryption.is_empty() => {
                let host = hosts.get(node).await;
                let host = host.map_err(|why| unreadable(name, node, &why))?;
                let revision = revision(&host, name, intent, id, session).await;
                let revision = revision.map_err(|why| unreadable(name, node, &why))?;
                let before = saved.etcd_epoch.as_ref().map_or(0, |epoch| epoch.begins);
                return Ok(Restore {
                    number: saved.restores() + 1,
                    from: Some(SnapshotRef {
                        name: name.as_str().to_owned(),
                        sha256,
                        revision,
                    }),
                    begins: revision.max(before) + snapshot::BEYOND,
                    first: node.clone(),
                });
            }
            Ok(Found::Whole { .. }) => {
                found.push(format!(
                    "{node}: `{}` is not of this cluster",
                    name.as_str()
                ));
            }
            Ok(Found::Zipped) => {
                found.push(format!("{node}: `{}` is there as a zip", name.as_str()));
            }
            Ok(Found::Not(what)) => found.push(format!("{node}: `{}` {what}", name.as_str())),
            Err(why) => found.push(format!("{node}: {}", why.why)),
        }
    }
    Err(Failure::NoSuchSnapshot { found }.into())
}

fn unreadable(name: &SnapshotName, node: &NodeName, why: &Unreachable) -> Failure {
    Failure::Unreadable {
        name: name.as_str().to_owned(),
        node: node.0.clone(),
        why: why.why.clone(),
    }
}

/// What there is; a zip of RKE is unpacked next to it.
pub(super) async fn looked(
    hosts: &Hosts,
    node: &NodeName,
    id: &ClusterId,
    name: &SnapshotName,
) -> Result<Found, Unreachable> {
    let found = look(hosts, node, id, name).await?;
    if found != Found::Zipped {
        return Ok(found);
    }
    let host = hosts.get(node).await?;
    let unpacked = snapshot::unpack(&host, id, name).await;
    match unpacked.map_err(|error| Unreachable::of(&error))? {
        Ok(()) => look(hosts, node, id, name).await,
        Err(what) => Ok(Found::Not(what)),
    }
}

async fn look(
    hosts: &Hosts,
    node: &NodeName,
    id: &ClusterId,
    name: &SnapshotName,
) -> Result<Found, Unreachable> {
    let host = hosts.get(node).await?;
    let found = snapshot::look(&host, id, name).await;
    found.map_err(|error| Unreachable::of(&error))
}

/// Copies it from the bucket to the first node that answers, unless a node has it already.
async fn fetch(
    name: &SnapshotName,
    bucket: &Bucket,
    intent: &Intent,
    whose: Whose<'_>,
    environment: &Environment,
    session: &Session,
) -> Result<(), CliError> {
    let agent = &agent(intent)?;
    let id = &whose.id();
    let (hosts, nodes) = with_etcd(intent, whose, environment).await;
    for node in &nodes {
        let found = look(&hosts, node, id, name).await;
        if matches!(found, Ok(Found::Whole { .. } | Found::Zipped)) {
            return Ok(());
        }
    }
    let mut failed = Vec::new();
    for node in &nodes {
        let copied = async {
            let host = hosts.get(node).await?;
            let image = tools(&host, intent, session).await?;
            let on_node = OnNode {
                host: &host,
                id,
                image: &image,
                agent,
            };
            let fetched = on_node.fetch(bucket, name).await;
            fetched.map_err(|error| Unreachable::of(&error))
        };
        match copied.await {
            Ok(()) => {
                let said = format!("{node}: copied `{}` from the bucket", name.as_str());
                session.screen.print_unless_quiet(&said);
                return Ok(());
            }
            Err(why) => failed.push(format!("{node}: {}", why.why)),
        }
    }
    Err(Failure::NoSuchSnapshot { found: failed }.into())
}

/// It is needed here whether or not recurring snapshots are wanted.
pub(super) fn agent(intent: &Intent) -> Result<AgentProgram, CliError> {
    let agent = match &intent.agent {
        Some(agent) => Some(agent.clone()),
        None => intent::own_program()?,
    };
    agent.ok_or_else(|| Failure::NotStatic.into())
}

/// The image that has etcdutl; it is pulled where the node lacks it, which changes nothing in the cluster.
pub(super) async fn tools(
    host: &Host,
    intent: &Intent,
    session: &Session,
) -> Result<String, Unreachable> {
    let image = desired::etcd_tools(intent);
    let there = host.images().await;
    if !there
        .map_err(|error| Unreachable::of(&error))?
        .contains(&image)
    {
        let node = &host.name;
        let said = format!("{node}: pulls {image}, which reads the snapshot");
        session.screen.print_unless_quiet(&said);
        let login = intent.registries.login(&image);
        let pulled = host.pull(&image, login, &|_, _| ()).await;
        pulled.map_err(|error| Unreachable::of(&error))?;
    }
    Ok(image)
}

/// As etcdutl reads it.
async fn revision(
    host: &Host,
    name: &SnapshotName,
    intent: &Intent,
    id: &ClusterId,
    session: &Session,
) -> Result<u64, Unreachable> {
    let image = &tools(host, intent, session).await?;
    let revision = snapshot::revision(host, id, name, image).await;
    revision.map_err(|error| Unreachable::of(&error))
}

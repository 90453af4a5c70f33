//! How etcd is read: through every member that runs on a host that answered. What does not answer
//! is a fact.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;

use crate::{
    error::with_causes,
    etcd::{self, Asked, EtcdView, ExternalView, Quorum, Since},
    facts::{HostFacts, HostView},
    host::pool::Hosts,
    model::{ClientIdentity, Component, EtcdLook, NodeName, Role, label},
    state::ClusterState,
};

/// How many control planes are tried, to reach an etcd outside of the cluster.
const WAYS: usize = 3;

/// Looks at an etcd outside of the cluster, through the first of the control planes from where one of its members
/// answers.
pub(crate) async fn external(
    hosts: &Hosts,
    look: &EtcdLook,
    views: &BTreeMap<NodeName, HostView>,
) -> EtcdView {
    let answers = |name: &&NodeName| matches!(views.get(*name), Some(HostView::Reachable(_)));
    let mut found = ExternalView::NotAsked;
    for name in look.through.iter().filter(answers).take(WAYS) {
        // A connection that was lost meanwhile: another one may lead there.
        let Ok(host) = hosts.get(name).await else {
            continue;
        };
        let told = etcd::external::look(&host, &look.etcd).await;
        let seen = etcd::external::combine(name, told);
        let answered = matches!(seen, ExternalView::Answered { .. });
        if answered || found == ExternalView::NotAsked {
            found = seen;
        }
        if answered {
            break;
        }
    }
    EtcdView::of_external(found)
}

/// What the members of the inventory said, before it was known which of its nodes have one.
#[derive(Default)]
pub(crate) struct Early {
    view: EtcdView,
    /// The nodes whose members gave an answer.
    answered: BTreeSet<NodeName>,
    /// The nodes that could not be reached then.
    unreached: BTreeSet<NodeName>,
}

/// Asks the members of etcd, of those hosts that answered and have one of this cluster; `or_new`,
/// too, which had none when they were looked at.
pub(crate) async fn etcd(
    hosts: &Hosts,
    saved: &ClusterState,
    engine: &ClientIdentity,
    views: &BTreeMap<NodeName, HostView>,
    or_new: &BTreeSet<NodeName>,
) -> EtcdView {
    let has_one = |name: &NodeName| match views.get(name) {
        Some(HostView::Reachable(facts)) => has_member(facts, saved) || or_new.contains(name),
        Some(HostView::Unreachable(_)) | None => false,
    };
    let mut etcd = ask(hosts, saved, engine, has_one).await.view;
    add_quotas(&mut etcd, views);
    etcd
}

/// Asks the members of the inventory.
pub(crate) async fn early(hosts: &Hosts, saved: &ClusterState, engine: &ClientIdentity) -> Early {
    let aimed: BTreeSet<NodeName> = hosts.names().into_iter().collect();
    ask(hosts, saved, engine, |name| aimed.contains(name)).await
}

/// Keeps of the early answers those of nodes that answered and have a member of this cluster. Asks all of these
/// again if any other member answered, or if one of them could not be reached yet.
pub(crate) async fn checked(
    early: Early,
    hosts: &Hosts,
    saved: &ClusterState,
    engine: &ClientIdentity,
    views: &BTreeMap<NodeName, HostView>,
) -> EtcdView {
    let counts = |name: &NodeName| match views.get(name) {
        Some(HostView::Reachable(facts)) => has_member(facts, saved),
        Some(HostView::Unreachable(_)) | None => false,
    };
    let Early {
        view: mut etcd,
        answered,
        unreached,
    } = early;
    if !answered.iter().all(counts) || unreached.iter().any(counts) {
        return self::etcd(hosts, saved, engine, views, &BTreeSet::new()).await;
    }
    etcd.silent.retain(|name, _| counts(name));
    add_quotas(&mut etcd, views);
    etcd
}

async fn ask(
    hosts: &Hosts,
    saved: &ClusterState,
    engine: &ClientIdentity,
    has_one: impl Fn(&NodeName) -> bool,
) -> Early {
    if saved.external_etcd.is_some() {
        return Early {
            view: EtcdView::of_external(ExternalView::NotAsked),
            ..Early::default()
        };
    }
    let members = saved.inventory.iter();
    let members = members.filter(|(_, entry)| entry.roles.contains(&Role::Etcd));
    let members = members.map(|(name, _)| name).filter(|name| has_one(name));
    let asked = members.map(|name| async move {
        let client = match hosts.get(name).await {
            Ok(_) => {
                let client = etcd::Client::through(hosts, name, engine);
                client.map_err(|error| with_causes(&error))
            }
            Err(unreachable) => Err(unreachable.why),
        };
        Asked {
            node: name.clone(),
            client,
            quota: None,
        }
    });
    let asked = join_all(asked).await;
    let failed = asked.iter().filter(|asked| asked.client.is_err());
    let unreached = failed.map(|asked| asked.node.clone()).collect();
    let (view, answered) = etcd::read_and_tell(asked).await;
    Early {
        view,
        answered,
        unreached,
    }
}

/// What was made since that revision. Where no member serves, or none answers, it is not known.
pub(super) async fn since(
    hosts: &Hosts,
    etcd: &EtcdView,
    engine: &ClientIdentity,
    revision: u64,
) -> Option<Since> {
    let Quorum::Serving { leader } = etcd.quorum else {
        return None;
    };
    let (node, _) = etcd.members.get(&leader)?.status.as_ref()?;
    let member = etcd::Client::through(hosts, node, engine).ok()?;
    member.since(revision).await.ok()
}

/// What the containers say that members do not.
fn add_quotas(etcd: &mut EtcdView, views: &BTreeMap<NodeName, HostView>) {
    for member in etcd.members.values_mut() {
        let Some((name, status)) = &mut member.status else {
            continue;
        };
        if let Some(HostView::Reachable(facts)) = views.get(name) {
            status.quota = status.quota.or_else(|| quota(facts));
        }
    }
}

fn has_member(facts: &HostFacts, saved: &ClusterState) -> bool {
    let container = facts.container(Component::Etcd);
    container.is_some_and(|container| {
        container.labels.get(label::CLUSTER_ID) == Some(&saved.cluster_id.0)
    })
}

/// Its quota, as the member runs with it.
fn quota(facts: &HostFacts) -> Option<u64> {
    let container = facts.container(Component::Etcd)?;
    etcd::view::quota(container.runs.as_ref()?)
}

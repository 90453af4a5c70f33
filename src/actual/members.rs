//! How etcd is read: through every member that runs on a host that answered. What does not answer
//! is a fact.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{HostFacts, HostView};
use crate::{
    error::with_causes,
    etcd::{self, Asked, EtcdView, ExternalView},
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

/// Asks the members of etcd, of those hosts that answered and have one of this cluster; `or_new`,
/// too, which had none when they were looked at.
pub(crate) async fn etcd(
    hosts: &Hosts,
    saved: &ClusterState,
    engine: &ClientIdentity,
    views: &BTreeMap<NodeName, HostView>,
    or_new: &BTreeSet<NodeName>,
) -> EtcdView {
    if saved.external_etcd.is_some() {
        return EtcdView::of_external(ExternalView::NotAsked);
    }
    let mut asked = Vec::new();
    for (name, entry) in &saved.inventory {
        let Some(HostView::Reachable(facts)) = views.get(name) else {
            continue;
        };
        let has_one = has_member(facts, saved) || or_new.contains(name);
        if !entry.roles.contains(&Role::Etcd) || !has_one {
            continue;
        }
        let client = match hosts.get(name).await {
            Ok(host) => etcd::Client::through(host, engine).map_err(|error| with_causes(&error)),
            Err(unreachable) => Err(unreachable.why),
        };
        asked.push(Asked {
            node: name.clone(),
            client,
            quota: quota(facts),
        });
    }
    etcd::read(asked).await
}

fn has_member(facts: &HostFacts, saved: &ClusterState) -> bool {
    let container = facts.containers.get(Component::Etcd.container());
    container.is_some_and(|container| {
        container.labels.get(label::CLUSTER_ID) == Some(&saved.cluster_id.0)
    })
}

/// `--quota-backend-bytes`, as the member runs with it.
fn quota(facts: &HostFacts) -> Option<u64> {
    let container = facts.containers.get(Component::Etcd.container())?;
    let mut flags = container.runs.as_ref()?.command.iter();
    flags.find_map(|flag| flag.strip_prefix("--quota-backend-bytes=")?.parse().ok())
}

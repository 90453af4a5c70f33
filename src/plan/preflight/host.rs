//! What on one node prevents `up`: someone else's claim, containers, folders or ports, and a
//! machine that cannot carry a node. Pure. Each error names the owner as far as it can be known;
//! nothing is changed on the node.

use super::{
    super::{
        folders,
        ownership::{self, Unclaimed},
    },
    PreflightError, machine, network,
};
use crate::{
    desired::{Desired, DesiredHost},
    error::ErrorClass,
    facts::{Actual, ContainerFact, HostFacts, is_rke},
    model::{CLAIM, ClusterId, Component, NodeName, label, path, quoted},
    state::codec,
};

/// Everything on this node that prevents `up`.
pub(super) fn errors(
    want: &Desired,
    have: &Actual,
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Vec<PreflightError> {
    let id = want.cluster_id.0.as_str();
    if let Some(claim) = facts.claim()
        && claim
            .labels
            .get(label::CLUSTER_ID)
            .is_none_or(|found| found != id)
    {
        // Nothing else on a node of someone else's is our business.
        return vec![foreign_claim(name, claim, &want.saved.cluster_name)];
    }
    if let Some(other) = facts.system.cluster_id.as_ref()
        && other.0 != id
        && !facts
            .containers
            .values()
            .any(|fact| fact.labels.contains_key(label::CLUSTER_ID))
    {
        return vec![foreign_mark(name, &other.0)];
    }
    if let Some(other) = claimed_as(name, facts, have)
        && other != name.0
    {
        return vec![another_node(name, other)];
    }
    let mut errors = machine::errors(name, facts);
    errors.extend(names(id, name, host, facts));
    errors.extend(ports(&want.cluster_id, name, host, facts));
    errors.extend(network::address(name, host, facts));
    if let Some(other) = state_of_another(&want.cluster_id, facts) {
        return vec![foreign_state(name, &other)];
    }
    let unclaimed = Unclaimed::of(&want.cluster_id, name, facts, have);
    if facts.claim().is_none() {
        if unclaimed == Unclaimed::New {
            errors.extend(folders(name, facts));
            errors.extend(machine::space(name, facts));
            errors.extend(machine::lacking(name, host, facts));
            errors.extend(network::ranges(name, host, facts));
        } else {
            errors.extend(others_moved_in(name, facts));
        }
    }
    errors
}

/// The id in the copy of the state that a control plane carries, where it is not ours: the machine
/// that had this name before is another cluster's by now.
pub(in crate::plan) fn state_of_another(ours: &ClusterId, facts: &HostFacts) -> Option<ClusterId> {
    let file = facts.files.as_ref()?.get(path::STATE)?;
    let text = std::str::from_utf8(file.content.expose()).ok()?;
    let id = codec::decode(text).ok()?.cluster_id;
    (id != *ours).then_some(id)
}

fn foreign_state(name: &NodeName, other: &ClusterId) -> PreflightError {
    PreflightError::host(
        name,
        format!(
            "node `{name}` carries the state of another cluster (id `{other}`): `{}`",
            path::STATE
        ),
        [
            "check the node's address in this config".to_owned(),
            "remove that cluster from the node first, with its config and `rke-operator remove` (of a `Cluster`: the \
            deletion of that object)".to_owned(),
        ],
    )
}

/// `ours`: the name of the cluster that is to have the node.
fn foreign_claim(name: &NodeName, claim: &ContainerFact, ours: &str) -> PreflightError {
    let text = |key| claim.labels.get(key).map_or("unknown", String::as_str);
    let (owner, id) = (text(label::CLUSTER_NAME), text(label::CLUSTER_ID));
    // Two runs that create the same cluster: one of them has the state.
    let twin = (owner == ours).then(|| {
        "it has the same name: if it was created from another folder or machine, continue there, with the state file of that \
         place"
            .to_owned()
    });
    let hints = [
        format!(
            "remove that cluster from the node first, with the config of `{owner}` and `rke-operator remove` (of a \
                `Cluster`: the deletion of that object)"
        ),
        "or check the node's address in this config".to_owned(),
    ];
    PreflightError::host(
        name,
        format!("node `{name}` belongs to another cluster: `{owner}` (id `{id}`)"),
        twin.into_iter().chain(hints).collect::<Vec<_>>(),
    )
}

/// The name under which this cluster claimed the node. Older claims do not have it: then its machine
/// tells, and so it does where there is no claim.
fn claimed_as<'a>(name: &NodeName, facts: &'a HostFacts, have: &'a Actual) -> Option<&'a str> {
    let claim = facts.claim();
    let claimed = claim.and_then(|claim| claim.labels.get(label::NODE));
    let known = || have.other_name(name).map(|other| other.0.as_str());
    claimed.map(String::as_str).or_else(known)
}

/// Its certificates and its member of etcd are those of the other name.
fn another_node(name: &NodeName, other: &str) -> PreflightError {
    PreflightError {
        node: Some(name.clone()),
        message: format!("the machine of node `{name}` is node `{other}` of this cluster"),
        hints: vec![
            "check whether the addresses of these nodes are swapped in the config".to_owned(),
            format!(
                "or use the name `{other}` in the config again: renaming a node is not supported yet"
            ),
        ],
        class: ErrorClass::User,
    }
}

/// Docker lost the claim, and the file that it wrote names its cluster.
fn foreign_mark(name: &NodeName, id: &str) -> PreflightError {
    PreflightError::host(
        name,
        format!(
            "node `{name}` belongs to another cluster (id `{id}`, according to `{}`), whose containers Docker has lost",
            path::CLUSTER_ID
        ),
        [
            "with that cluster's config, they are restored by `rke-operator up` (of a `Cluster`: its next \
            reconcile), and the node is cleaned by `rke-operator remove` (of a `Cluster`: the deletion of that object)"
                .to_owned(),
            "or check the node's address in this config".to_owned(),
        ],
    )
}

/// Containers whose names we need and that are not this cluster's.
fn names(id: &str, name: &NodeName, host: &DesiredHost, facts: &HostFacts) -> Vec<PreflightError> {
    let ours = |fact: &ContainerFact| {
        fact.labels
            .get(label::CLUSTER_ID)
            .is_some_and(|it| it == id)
    };
    let foreign = facts.containers.iter().filter(|(_, fact)| !ours(fact));
    let (rke, others): (Vec<_>, Vec<_>) = foreign
        .filter(|(container, fact)| {
            // A name that is used for nothing else, or one that this node needs.
            let component = Component::named(container);
            let kubernetes = component.is_some_and(|named| named != Component::NginxProxy);
            let needed = component.is_some_and(|named| host.containers.contains_key(&named));
            kubernetes || needed || is_rke(container, fact) || has_an_owner(container, fact)
        })
        .partition(|(container, fact)| is_rke(container, fact));
    let mut errors = Vec::new();
    if !rke.is_empty() {
        errors.push(rke_cluster(name, rke.iter().map(|(name, _)| name.as_str())));
    }
    for (container, fact) in others {
        errors.push(foreign_container(name, container, fact));
    }
    errors
}

/// Another Kubernetes is there, or what it left. Nothing, where anything at all says that a cluster
/// of this program was here: that is for the keys to tell.
pub(super) fn stranger(name: &NodeName, facts: &HostFacts) -> Vec<PreflightError> {
    let mut labels = facts.containers.values().map(|fact| &fact.labels);
    let mine = labels.any(|labels| labels.contains_key(label::CLUSTER_ID));
    if mine || facts.claim().is_some() || facts.system.cluster_id.is_some() {
        return Vec::new();
    }
    let mut rke = ownership::rke_containers(facts).peekable();
    if rke.peek().is_some() {
        return vec![rke_cluster(name, rke)];
    }
    folders(name, facts)
}

/// RKE's own cluster lives here.
pub(in crate::plan) fn rke_cluster<'a>(
    name: &NodeName,
    containers: impl Iterator<Item = &'a str>,
) -> PreflightError {
    PreflightError::host(
        name,
        format!(
            "node `{name}` is part of a cluster of RKE v1: {}",
            quoted(containers)
        ),
        [
            "rke-operator cannot adopt RKE clusters yet: keep using `rke` for this cluster, and keep its \
            `cluster.rkestate`, which contains its keys"
                .to_owned(),
            "to use the node for a new cluster, run `rke remove` with its old cluster.yml and \
             that `cluster.rkestate`"
                .to_owned(),
        ],
    )
}

/// A cluster whose claim is gone still owns what carries its id.
fn has_an_owner(container: &str, fact: &ContainerFact) -> bool {
    container != CLAIM && fact.labels.contains_key(label::CLUSTER_ID)
}

fn foreign_container(name: &NodeName, container: &str, fact: &ContainerFact) -> PreflightError {
    let short: String = fact.id.chars().take(12).collect();
    let owner = if let Some(id) = fact.labels.get(label::CLUSTER_ID) {
        let cluster = fact
            .labels
            .get(label::CLUSTER_NAME)
            .map_or("unknown", String::as_str);
        format!("cluster `{cluster}` (id `{id}`)")
    } else if let Some(project) = fact.labels.get("com.docker.compose.project") {
        format!("the compose project `{project}`")
    } else {
        "someone else".to_owned()
    };
    PreflightError::host(
        name,
        format!(
            "node `{name}` has a container `{container}` of {owner} (image `{}`, id `{short}`)",
            fact.image
        ),
        [
            format!("`docker inspect {short}` on the node shows what it is"),
            format!("if you do not need it, remove it: `docker rm -f {short}`"),
        ],
    )
}

/// Someone listens on a port whose component does not run here.
fn ports(
    id: &ClusterId,
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Vec<PreflightError> {
    let wanted: Vec<Component> = Component::ALL
        .into_iter()
        .filter(|component| host.containers.contains_key(component))
        .collect();
    facts
        .taken_ports(id, &wanted)
        .into_iter()
        .map(|(component, port)| {
            let (owner, cure) = listener(port, facts);
            PreflightError::host(
                name,
                format!(
                    "port {port} on node `{name}`, which {component} needs, is taken by {owner}",
                ),
                [cure],
            )
        })
        .collect()
}

/// Who listens, as far as the node told it to a user without rights, and how to learn more.
pub(in crate::plan) fn listener(port: u16, facts: &HostFacts) -> (String, String) {
    let Some(owner) = facts.system.listeners.get(&port) else {
        return (
            "a process that is not this cluster's".to_owned(),
            format!("`sudo ss -ltnp 'sport = :{port}'` on the node names the process"),
        );
    };
    let id = owner
        .trim_start_matches("docker-")
        .trim_end_matches(".scope");
    let container = facts.containers.iter().find(|(_, fact)| fact.id == id);
    if let Some((container, fact)) = container {
        return (
            format!("the container `{container}` (image `{}`)", fact.image),
            format!("`docker inspect {container}` on the node shows what it is"),
        );
    }
    if owner == "docker.service" {
        return (
            "a container that publishes it".to_owned(),
            format!("`docker ps --filter publish={port}` on the node names it"),
        );
    }
    (
        format!("`{owner}`, which is not this cluster's"),
        format!("`systemctl status {owner}` on the node shows what it is"),
    )
}

/// Kubernetes lived here, or lives here without us.
fn folders(name: &NodeName, facts: &HostFacts) -> Vec<PreflightError> {
    let (closed, full): (Vec<&str>, Vec<&str>) = folders::filled(facts)
        .partition(|folder| *folder != folders::NET_D && facts.system.unreadable.contains(*folder));
    let mut errors = Vec::new();
    if !full.is_empty() {
        errors.push(another_kubernetes(name, facts, &full));
    }
    for folder in closed {
        errors.push(PreflightError::host(
            name,
            format!(
                "`{folder}` exists on node `{name}`, and only root can read it: it may hold the data of another \
                Kubernetes"
            ),
            [
                format!("`sudo find {folder} -type f` on the node shows what is in it"),
                format!(
                    "if that shows nothing: `sudo rmdir {folder}`, or, if it holds the mount points of empty disks, \
                     `sudo find {folder} -type d -exec chmod a+rx '{{}}' +`"
                ),
            ],
        ));
    }
    errors
}

/// The claim is gone, something of this cluster is left, and another Kubernetes has written its files.
fn others_moved_in(name: &NodeName, facts: &HostFacts) -> Option<PreflightError> {
    let files: Vec<String> = facts
        .system
        .foreign
        .iter()
        .map(|file| format!("`{file}`"))
        .collect();
    (!files.is_empty()).then(|| {
        PreflightError::host(
            name,
            format!(
                "the claim of this cluster on node `{name}` is gone, and another Kubernetes is or was on it: {}",
                files.join(", ")
            ),
            [
                "to return the node to this cluster, remove the other Kubernetes first with its own tool: `kubeadm \
                reset`, `k3s-uninstall.sh`"
                    .to_owned(),
                format!("otherwise remove `{name}` from the config"),
            ],
        )
    })
}

/// What is left of whom, and the commands that clear it, in the order in which they work.
fn another_kubernetes(name: &NodeName, facts: &HostFacts, full: &[&str]) -> PreflightError {
    let pods = facts
        .containers
        .keys()
        .filter(|container| container.starts_with("k8s_"))
        .count();
    let mounts = facts.system.mounts.len();
    let mut left: Vec<String> = full.iter().map(|folder| format!("`{folder}`")).collect();
    if pods > 0 {
        left.push(format!("{pods} containers of pods in Docker (`k8s_…`)"));
    }
    if facts.system.pods > 0 {
        left.push(format!("{} pods in containerd", facts.system.pods));
    }
    if mounts > 0 {
        left.push(format!("{mounts} mounts below its folders"));
    }
    let message = format!(
        "another Kubernetes is or was on node `{name}`, which no rke-operator cluster has claimed: {}",
        left.join(", ")
    );
    let mut hints = vec![
        "if it still runs, remove it with its own tool first: `rke remove`, `kubeadm reset`, \
         `k3s-uninstall.sh`"
            .to_owned(),
        format!(
            "`sudo find {} -maxdepth 3 -type f` on the node shows what they contain; rke-operator deletes none of it",
            full.join(" ")
        ),
        "to move aside what you no longer need, run these in this order:".to_owned(),
    ];
    if pods > 0 {
        hints.push("`docker rm -f $(docker ps -aq --filter name=^/k8s_)`".to_owned());
    }
    let kubelets = format!("{}/", path::KUBELET);
    if facts
        .system
        .mounts
        .iter()
        .any(|it| it.starts_with(&kubelets))
    {
        hints.push(
            "`awk '$5 ~ \"^/var/lib/kubelet/\" { print $5 }' /proc/self/mountinfo | sort -r | xargs -r sudo \
             umount`"
                .to_owned(),
        );
    }
    for folder in full {
        let below = format!("{folder}/");
        let disk = |at: &String| at == folder || at.starts_with(&below);
        let disks = facts.system.mounts.iter().filter(|at| disk(at));
        let disks: Vec<&String> = disks.filter(|at| !at.starts_with(&kubelets)).collect();
        hints.push(if disks.is_empty() {
            format!("`sudo mv {folder} {folder}.old`")
        } else {
            format!(
                "move the content of the disks at {} to another place by hand; the empty disks may stay where they are",
                quoted(disks)
            )
        });
    }
    PreflightError::host(name, message, hints)
}

//! What on one node stands in the way of a cluster: someone else's claim, containers, folders or
//! ports, and a system that cannot carry one. Pure. Each refusal names the owner as far as it can be
//! known; nothing is changed on the node.

use super::{Component, Refusal};
use crate::{
    actual::{ContainerFact, ContainerState, HostFacts},
    config::NodeName,
    desired::{CLAIM, Desired, DesiredHost, RKE_ONLY, START_ORDER, label, path},
};

/// RKE v1's label on every container of its own.
const RKE_LABEL: &str = "io.rancher.rke.container.name";

/// Folders that a node without a claim must not have, unless they are empty (a disk that is
/// mounted there for etcd).
pub(super) const FOLDERS: [&str; 4] = [path::KUBERNETES, NET_D, path::ETCD, path::KUBELET];

const NET_D: &str = "/etc/cni/net.d";

/// Free space that a fresh node needs at each place where much is written.
const FLOOR: u64 = 2 << 30;

/// Everything that stands in the way on this node.
pub(super) fn of(
    want: &Desired,
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Vec<Refusal> {
    let id = want.cluster_id.0.as_str();
    if let Some(claim) = facts.claim()
        && claim
            .labels
            .get(label::CLUSTER_ID)
            .is_none_or(|found| found != id)
    {
        // Nothing else on a node of someone else's is our business.
        return vec![foreign_claim(name, claim)];
    }
    let mut refusals = docker(name, facts);
    refusals.extend(system(name, facts));
    refusals.extend(names(id, name, host, facts));
    refusals.extend(ports(id, name, host, facts));
    let fresh = facts.claim().is_none() && !super::hosts::bears(facts, id);
    if fresh {
        refusals.extend(folders(name, facts));
        refusals.extend(space(name, facts));
    }
    refusals
}

fn foreign_claim(name: &NodeName, claim: &ContainerFact) -> Refusal {
    let text = |key| claim.labels.get(key).map_or("unknown", String::as_str);
    let (owner, id) = (text(label::CLUSTER_NAME), text(label::CLUSTER_ID));
    Refusal::host(
        name,
        format!("node `{name}` belongs to another cluster: `{owner}` (id `{id}`)"),
        [
            format!("give it back first: `rke-operator remove` with the config of `{owner}`"),
            "or check the node's address in this config".to_owned(),
        ],
    )
}

/// Containers whose names we need and that are not this cluster's.
fn names(id: &str, name: &NodeName, host: &DesiredHost, facts: &HostFacts) -> Vec<Refusal> {
    let ours = |fact: &ContainerFact| {
        fact.labels
            .get(label::CLUSTER_ID)
            .is_some_and(|it| it == id)
    };
    let foreign = facts.containers.iter().filter(|(_, fact)| !ours(fact));
    let (rke, others): (Vec<_>, Vec<_>) = foreign
        .filter(|(container, fact)| {
            let needed = host.containers.contains_key(*container)
                || START_ORDER.contains(&container.as_str());
            needed || is_rke(container, fact) || bears_an_id(container, fact)
        })
        .partition(|(container, fact)| is_rke(container, fact));
    let mut refusals = Vec::new();
    if !rke.is_empty() {
        let list: Vec<String> = rke.iter().map(|(name, _)| format!("`{name}`")).collect();
        refusals.push(Refusal::host(
            name,
            format!(
                "node `{name}` is part of a cluster of RKE v1: {}",
                list.join(", ")
            ),
            [
                "taking over a cluster of RKE is not supported yet".to_owned(),
                "to use the node for a new cluster, run `rke remove` with its old cluster.yml"
                    .to_owned(),
            ],
        ));
    }
    for (container, fact) in others {
        refusals.push(foreign_container(name, container, fact));
    }
    refusals
}

fn is_rke(container: &str, fact: &ContainerFact) -> bool {
    // `nginx-proxy` is a name that others like too.
    let named = RKE_ONLY.contains(&container)
        && (container != "nginx-proxy" || fact.image.contains("rke-tools"));
    fact.labels.contains_key(RKE_LABEL) || named
}

/// A cluster of ours whose claim is gone still owns what bears its id.
fn bears_an_id(container: &str, fact: &ContainerFact) -> bool {
    container != CLAIM && fact.labels.contains_key(label::CLUSTER_ID)
}

fn foreign_container(name: &NodeName, container: &str, fact: &ContainerFact) -> Refusal {
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
    Refusal::host(
        name,
        format!(
            "node `{name}` has a container `{container}` of {owner} (image `{}`, id `{short}`)",
            fact.image
        ),
        [
            format!("`docker inspect {short}` on the node tells what it is"),
            format!("if nobody needs it: `docker rm -f {short}`"),
        ],
    )
}

/// Someone listens on a port whose component does not run here.
fn ports(id: &str, name: &NodeName, host: &DesiredHost, facts: &HostFacts) -> Vec<Refusal> {
    let runs = |component: &str| {
        facts.containers.get(component).is_some_and(|fact| {
            let ours = fact
                .labels
                .get(label::CLUSTER_ID)
                .is_some_and(|it| it == id);
            ours && matches!(
                fact.state,
                ContainerState::Running | ContainerState::Restarting(_)
            )
        })
    };
    let wanted = Component::ALL
        .into_iter()
        .filter(|component| host.containers.contains_key(component.container()));
    wanted
        .filter(|component| !runs(component.container()))
        .flat_map(|component| component.ports().iter().map(move |port| (component, *port)))
        .filter(|(_, port)| facts.system.listening.contains(port))
        .map(|(component, port)| {
            let (owner, cure) = listener(port, facts);
            Refusal::host(
                name,
                format!(
                    "port {port} on node `{name}`, which {} needs, is taken by {owner}",
                    component.container()
                ),
                [cure],
            )
        })
        .collect()
}

/// Who listens, as far as the node told it to a user without rights, and how to learn more.
fn listener(port: u16, facts: &HostFacts) -> (String, String) {
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
            format!("`docker inspect {container}` on the node tells what it is"),
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
        format!("`systemctl status {owner}` on the node tells what it is"),
    )
}

/// Kubernetes lived here, or lives here without us.
fn folders(name: &NodeName, facts: &HostFacts) -> Vec<Refusal> {
    FOLDERS
        .into_iter()
        .filter(|folder| {
            let inside = format!("{folder}/");
            let paths = &facts.system.paths;
            // containerd makes an empty `net.d` that only root may look into: a file in it counts.
            let there = match *folder {
                NET_D => paths.iter().any(|path| path.starts_with(&inside)),
                _ => paths.contains(*folder),
            };
            there && !facts.system.empty.contains(*folder)
        })
        .map(|folder| {
            Refusal::host(
                name,
                format!(
                    "`{folder}` exists on node `{name}`, which no cluster of ours has claimed: \
                     another Kubernetes is or was here"
                ),
                [
                    "remove that Kubernetes with its own tool (`rke remove`, `kubeadm reset`, \
                     `k3s-uninstall.sh`)"
                        .to_owned(),
                    format!(
                        "if only the folder is left and nobody needs it: `sudo rm -r {folder}`"
                    ),
                ],
            )
        })
        .collect()
}

/// Free space where images and data go.
fn space(name: &NodeName, facts: &HostFacts) -> Vec<Refusal> {
    facts
        .system
        .free
        .iter()
        .filter(|(_, free)| **free < FLOOR)
        .map(|(place, free)| {
            Refusal::host(
                name,
                format!(
                    "node `{name}` has {} MiB free at `{place}`; a new node needs {} MiB",
                    free >> 20,
                    FLOOR >> 20
                ),
                [
                    format!(
                        "`df -h {place}` and `docker system df` on the node show what takes it"
                    ),
                    "`docker image prune -a` frees what no container uses".to_owned(),
                ],
            )
        })
        .collect()
}

/// A Docker that cannot carry a node.
fn docker(name: &NodeName, facts: &HostFacts) -> Vec<Refusal> {
    let docker = &facts.docker;
    let mut refusals = Vec::new();
    if older(&docker.api_version, (1, 41)) {
        refusals.push(Refusal::host(
            name,
            format!(
                "Docker {} on node `{name}` is too old (API {}); 20.10 (API 1.41) is the least",
                docker.version, docker.api_version
            ),
            ["upgrade Docker on the node".to_owned()],
        ));
    }
    let option = |key: &str| {
        docker.security_options.iter().any(|option| {
            option == key || option.split(',').any(|part| part == format!("name={key}"))
        })
    };
    if option("rootless") {
        refusals.push(Refusal::host(
            name,
            format!("Docker on node `{name}` is rootless and cannot run kubelet"),
            [
                "use the node's system-wide Docker (`docker_socket: /var/run/docker.sock`)"
                    .to_owned(),
            ],
        ));
    }
    if option("userns") {
        refusals.push(Refusal::host(
            name,
            format!(
                "Docker on node `{name}` remaps users (`userns-remap`): kubelet cannot be root"
            ),
            ["take `userns-remap` out of /etc/docker/daemon.json and restart Docker".to_owned()],
        ));
    }
    if !["x86_64", "amd64", "aarch64", "arm64"].contains(&docker.architecture.as_str()) {
        refusals.push(Refusal::host(
            name,
            format!(
                "node `{name}` is `{}`; Kubernetes images exist for x86_64 and aarch64",
                docker.architecture
            ),
            ["use another machine".to_owned()],
        ));
    }
    refusals
}

/// A system that cannot carry a node.
fn system(name: &NodeName, facts: &HostFacts) -> Vec<Refusal> {
    let system = &facts.system;
    if !system.systemd {
        return vec![Refusal::host(
            name,
            format!("node `{name}` does not run systemd, which starts its containerd"),
            ["use a distribution with systemd".to_owned()],
        )];
    }
    let containerd = &system.containerd;
    let lacks = match (containerd.socket, containerd.unit) {
        (true, true) => return Vec::new(),
        (false, true) => "its `containerd.service` does not run",
        (true, false) => "its containerd is not a systemd unit",
        (false, false) => "its Docker brings a containerd of its own",
    };
    vec![Refusal::host(
        name,
        format!(
            "node `{name}` has no containerd that pods could run on: {lacks} \
             (`/run/containerd/containerd.sock` and `containerd.service` are needed)"
        ),
        [
            "`sudo systemctl enable --now containerd` where the package is installed".to_owned(),
            "else replace the static or snap Docker by the distribution's or Docker's packages"
                .to_owned(),
        ],
    )]
}

/// `1.45` against a least version; what cannot be read is taken as new enough.
fn older(version: &str, least: (u32, u32)) -> bool {
    let mut parts = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => (major, minor) < least,
        (_, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::older;

    #[test]
    fn versions_are_numbers() {
        assert!(older("1.40", (1, 41)));
        assert!(!older("1.41", (1, 41)));
        assert!(!older("1.100", (1, 41)));
        assert!(!older("", (1, 41)));
    }
}

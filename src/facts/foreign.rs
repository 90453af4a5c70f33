//! What on a machine tells of a Kubernetes that is not this cluster's. Pure.
//!
//! Folders prove nothing: they may be this cluster's or another's, and are not among the signs. The same signs
//! count where a node joins, leaves, or is cleaned for a removal.

use std::collections::BTreeSet;

use super::{Actual, ContainerFact, ContainerState, HostFacts};
use crate::model::{ClusterId, Component, NodeName, RKE_ONLY, Role, label, path};

/// RKE v1's label on every container that it creates.
const RKE_LABEL: &str = "io.rancher.rke.container.name";

impl HostFacts {
    /// Another cluster of this program to which the machine belongs as far as what is on it tells: a container
    /// has its id, or the file that a claim writes has it.
    pub fn another_cluster(&self, id: &ClusterId) -> Option<&str> {
        let mark = self.system.cluster_id.as_ref().map(|mark| mark.0.as_str());
        let labels = self.containers.values().map(|fact| &fact.labels);
        let owners = labels.filter_map(|labels| labels.get(label::CLUSTER_ID));
        let mut owners = owners.map(String::as_str).chain(mark);
        owners.find(|owner| *owner != id.0)
    }

    /// The signs of another Kubernetes, each as a fragment of a sentence. `roles`: those that the node has
    /// in this cluster; no other program may listen on their ports.
    pub fn foreign(&self, id: &ClusterId, roles: &[Role]) -> Vec<String> {
        let mut signs = self.foreign_containers(id);
        let files = self.files.iter().flat_map(|files| files.keys());
        let files = files.filter(|file| is_of_another(file));
        let files: BTreeSet<&String> = self.system.foreign.iter().chain(files).collect();
        signs.extend(files.into_iter().map(|file| format!("`{file}`")));
        let ports = self.taken_ports(id, &components(roles));
        signs.extend(ports.into_iter().map(|(component, port)| {
            format!(
                "port {port} of {} is taken by {}",
                component.container(),
                self.listener(port)
            )
        }));
        signs
    }

    /// Containers that only a Kubernetes has, and that are not this cluster's.
    fn foreign_containers(&self, id: &ClusterId) -> Vec<String> {
        let all = self.containers.iter();
        let others = all.filter(|(_, fact)| fact.labels.get(label::CLUSTER_ID) != Some(&id.0));
        let mut signs = Vec::new();
        let mut pods = 0;
        for (name, fact) in others {
            if name.starts_with("k8s_") {
                pods += 1;
            } else if is_kubernetes(name, fact) {
                signs.push(format!("the container `{name}` (image `{}`)", fact.image));
            }
        }
        if pods > 0 {
            signs.push(format!("{pods} containers of pods in Docker (`k8s_…`)"));
        }
        signs
    }

    /// The names of those containers.
    pub fn foreign_container_names(&self, id: &ClusterId) -> impl Iterator<Item = &String> {
        let all = self.containers.iter();
        let others = all.filter(|(name, fact)| {
            let ours = fact.labels.get(label::CLUSTER_ID) == Some(&id.0);
            !ours && (name.starts_with("k8s_") || is_kubernetes(name, fact))
        });
        others.map(|(name, _)| name)
    }

    /// The ports of these components on which another program listens.
    pub fn taken_ports(&self, id: &ClusterId, components: &[Component]) -> Vec<(Component, u16)> {
        let runs = |component: Component| {
            let fact = self.containers.get(component.container());
            fact.is_some_and(|fact| {
                fact.labels.get(label::CLUSTER_ID) == Some(&id.0) && listens(fact.state)
            })
        };
        // What gives the port up before it is taken: a proxy to an API server, and the other way round.
        let own = |port: u16| {
            let mut all = Component::ALL.into_iter();
            all.any(|other| other.ports().contains(&port) && runs(other))
        };
        let idle = components
            .iter()
            .copied()
            .filter(|component| !runs(*component));
        let ports =
            idle.flat_map(|component| component.ports().iter().map(move |port| (component, *port)));
        let taken = ports.filter(|(_, port)| self.system.listening.contains(port) && !own(*port));
        taken.collect()
    }

    fn listener(&self, port: u16) -> String {
        let owner = self.system.listeners.get(&port);
        owner.map_or_else(
            || "another process".to_owned(),
            |owner| format!("`{owner}`"),
        )
    }
}

impl Actual {
    /// True where a run saw the very machine that answers under this name. What is on any other one is not of
    /// this cluster.
    pub fn is_known_machine(&self, name: &NodeName) -> bool {
        let (Some(saved), Some(facts)) = (&self.saved, self.up(name)) else {
            return false;
        };
        let entry = saved.inventory.get(name);
        let was = entry.and_then(|entry| entry.machine_id.as_ref());
        was.is_some_and(|was| !was.is_empty() && *was == facts.system.machine_id)
    }

    /// The signs of another Kubernetes on a node of the inventory; none on one that does not answer.
    pub fn foreign_on(&self, name: &NodeName) -> Vec<String> {
        let (Some(saved), Some(facts)) = (&self.saved, self.up(name)) else {
            return Vec::new();
        };
        let entry = saved.inventory.get(name);
        let roles = entry
            .map(|entry| entry.roles.as_slice())
            .unwrap_or_default();
        facts.foreign(&saved.cluster_id, roles)
    }

    /// True when a machine that was a node of this cluster shows no trace of it and runs another Kubernetes:
    /// it was reset by hand and is used elsewhere.
    pub fn is_taken_by_others(&self, name: &NodeName) -> bool {
        let (Some(saved), Some(facts)) = (&self.saved, self.up(name)) else {
            return false;
        };
        let known = saved.inventory.contains_key(name);
        known && !facts.is_of(&saved.cluster_id) && !self.foreign_on(name).is_empty()
    }
}

/// The components of a node with these roles that listen on ports.
fn components(roles: &[Role]) -> Vec<Component> {
    let of_role = |component: &Component| match component {
        Component::Etcd | Component::Snapshots => roles.contains(&Role::Etcd),
        Component::ApiServer | Component::ControllerManager | Component::Scheduler => {
            roles.contains(&Role::ControlPlane)
        }
        Component::NginxProxy => !roles.contains(&Role::ControlPlane),
        Component::Kubelet | Component::KubeProxy => true,
    };
    Component::ALL.into_iter().filter(of_role).collect()
}

/// One that is paused still listens.
const fn listens(state: ContainerState) -> bool {
    match state {
        ContainerState::Running | ContainerState::Restarting(_) | ContainerState::Other => true,
        ContainerState::Created | ContainerState::Exited(_) => false,
    }
}

/// True for a component of Kubernetes by its name, and for a container of RKE or of an rke-operator cluster.
fn is_kubernetes(name: &str, fact: &ContainerFact) -> bool {
    let part = Component::named(name).is_some_and(|named| named != Component::NginxProxy);
    part || is_rke(name, fact) || fact.labels.contains_key(label::CLUSTER_ID)
}

/// True for a container of RKE's own.
pub fn is_rke(container: &str, fact: &ContainerFact) -> bool {
    // `nginx-proxy` is a name that others like too.
    let proxy = container == "nginx-proxy" && fact.image.contains("rke-tools");
    fact.labels.contains_key(RKE_LABEL) || RKE_ONLY.contains(&container) || proxy
}

/// A file that another distribution of Kubernetes writes, and we never do.
fn is_of_another(file: &str) -> bool {
    path::OF_ANOTHER_KUBERNETES.contains(&file)
        || file
            .strip_prefix(path::STATIC_MANIFESTS)
            .is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_write_is_of_another() {
        assert!(is_of_another("/etc/kubernetes/admin.conf"));
        assert!(is_of_another("/etc/kubernetes/manifests/etcd.yaml"));
        assert!(!is_of_another("/etc/kubernetes/manifests"));
        assert!(!is_of_another("/etc/kubernetes/manifests/"));
        assert!(!is_of_another(path::STATE));
    }

    #[test]
    fn the_ports_are_those_of_the_roles() {
        assert!(!components(&[Role::Worker]).contains(&Component::Etcd));
        assert!(components(&[Role::Worker]).contains(&Component::NginxProxy));
        assert!(!components(&[Role::ControlPlane]).contains(&Component::NginxProxy));
        assert!(components(&[]).contains(&Component::Kubelet));
    }
}

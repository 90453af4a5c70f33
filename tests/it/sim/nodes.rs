//! Single nodes of a simulated world: what a test looks at, and what it does to them.

use std::collections::BTreeMap;

use rke_operator::{
    error::{ErrorClass, Obstacle},
    facts::{ContainerFact, ContainerState, HostFacts, HostView, Unreachable},
    model::{ContainerSpec, NodeName, label},
};

use super::{World, bare_host, remote::SimRemote};

impl SimRemote {
    /// Those nodes, bare.
    pub(crate) fn bare(nodes: &[&str]) -> Self {
        let hosts = nodes.iter().map(|name| {
            let name = NodeName::from(*name);
            let facts = bare_host(&name);
            (name, facts)
        });
        Self::new(World::new(hosts))
    }

    pub(crate) fn kill(&self, node: &str) {
        let down = Unreachable {
            alike: None,
            obstacle: Obstacle::Silence,
            class: ErrorClass::Host,
            why: format!("cannot reach node `{node}`: no route to host"),
            hints: vec!["is it switched on?".to_owned()],
        };
        self.world(|world| world.down.insert(NodeName::from(node), down));
    }

    pub(crate) fn revive(&self, node: &str) {
        self.world(|world| world.down.remove(&NodeName::from(node)));
    }

    /// What is on a node, whether it answers or not.
    pub(crate) fn host<T>(&self, node: &str, of: impl FnOnce(&mut HostFacts) -> T) -> T {
        self.world(
            |world| match world.truth.hosts.get_mut(&NodeName::from(node)) {
                Some(HostView::Reachable(facts)) => of(facts),
                Some(HostView::Unreachable(_)) | None => panic!("there is no {node}"),
            },
        )
    }

    /// Somebody resets a node by hand and joins it to another Kubernetes.
    pub(crate) fn joins_another(&self, node: &str) {
        self.host(node, |facts| {
            facts.containers.clear();
            facts.images.clear();
            facts.files = Some(BTreeMap::new());
            facts.system.cluster_id = None;
            facts.system.ours.clear();
            facts.system.paths.extend(
                ["/etc/kubernetes", "/var/lib/etcd", "/var/lib/kubelet"].map(str::to_owned),
            );
            facts.system.foreign = ["/etc/kubernetes/admin.conf", "/etc/kubernetes/pki"]
                .map(str::to_owned)
                .into();
            facts.system.listening.extend([6443, 10250]);
        });
    }

    /// Everything that is on a node.
    pub(crate) fn whole(&self, node: &str) -> HostFacts {
        self.host(node, |facts| facts.clone())
    }

    /// Who holds a node.
    pub(crate) fn claimed_by(&self, node: &str) -> Option<String> {
        let name = NodeName::from(node);
        self.world(|world| world.truth.claimed_by(&name).map(|id| id.0))
    }

    /// How many containers of ours a node has.
    pub(crate) fn containers(&self, node: &str) -> usize {
        let ours = |fact: &&ContainerFact| fact.labels.contains_key(label::CLUSTER_ID);
        self.host(node, |facts| facts.containers.values().filter(ours).count())
    }

    pub(crate) fn has(&self, node: &str, container: &str) -> bool {
        self.host(node, |facts| facts.containers.contains_key(container))
    }

    /// Takes a container away behind the operator's back.
    pub(crate) fn take(&self, node: &str, container: &str) {
        self.host(node, |facts| facts.containers.remove(container).unwrap());
    }

    /// Whether that container of the node is running.
    pub(crate) fn runs(&self, node: &str, container: &str) -> bool {
        self.host(node, |facts| {
            facts.containers[container].state == ContainerState::Running
        })
    }

    /// Ends a container.
    pub(crate) fn end(&self, node: &str, container: &str) {
        self.host(node, |facts| {
            let fact = facts.containers.get_mut(container).unwrap();
            fact.state = ContainerState::Exited(1);
        });
    }

    /// How a container was defined when it was applied.
    pub(crate) fn definition(&self, node: &str, container: &str) -> ContainerSpec {
        self.host(node, |facts| {
            let text = &facts.containers[container].labels[label::SPEC];
            serde_json::from_str(text).unwrap()
        })
    }

    /// As if it had been applied with another definition.
    pub(crate) fn applied_otherwise(
        &self,
        node: &str,
        container: &str,
        edit: impl FnOnce(&mut ContainerSpec),
    ) {
        self.host(node, |facts| {
            let fact = facts.containers.get_mut(container).unwrap();
            let spec = fact.runs.as_mut().unwrap();
            edit(spec);
            let text = serde_json::to_string(spec).unwrap();
            fact.labels.insert(label::SPEC.to_owned(), text);
        });
    }

    /// The containers of a node whose definition names a file.
    pub(crate) fn readers(&self, node: &str, path: &str) -> Vec<String> {
        self.host(node, |facts| {
            let reads = |fact: &ContainerFact| {
                let spec = fact.runs.as_ref();
                spec.is_some_and(|spec| spec.files.contains_key(path))
            };
            let all = facts.containers.iter();
            let readers = all.filter(|(_, fact)| reads(fact));
            readers.map(|(name, _)| name.clone()).collect()
        })
    }

    /// What stands in a file of a node.
    pub(crate) fn file(&self, node: &str, path: &str) -> String {
        self.host(node, |facts| {
            let file = &facts.files.as_ref().unwrap()[path];
            String::from_utf8(file.content.expose().clone()).unwrap()
        })
    }

    /// The text of every file of a node.
    pub(crate) fn files(&self, node: &str) -> Vec<String> {
        self.host(node, |facts| {
            let files = facts.files.iter().flatten();
            let texts = files.map(|(_, file)| file.content.expose());
            texts
                .map(|text| String::from_utf8_lossy(text).into_owned())
                .collect()
        })
    }
}

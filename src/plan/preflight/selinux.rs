//! What SELinux forbids where it is enforced. Pure.
//!
//! Docker and containerd label containers only where they are set to (`selinux-enabled`, `enable_selinux`). Without that
//! containers run in the unconfined domain `spc_t`, and so do rke-operator's with it (`label=disable`), and privileged
//! pods: nothing is forbidden to them.

use super::packages::{self, Package};
use crate::{
    desired::containerd,
    facts::{HostFacts, SelinuxPolicy},
    model::{HostNetwork, Plugin},
};

/// A policy without the types of containers, where something labels with them; with its cure.
pub(super) fn lacks(facts: &HostFacts) -> Option<(String, String)> {
    let labels = labelling(facts);
    let system = &facts.system;
    let fails = system.selinux == Some(SelinuxPolicy::WithoutContainers) && !labels.is_empty();
    fails.then(|| {
        let verb = if labels.len() > 1 { "label" } else { "labels" };
        let labels = labels.join(" and ");
        (
            format!(
                "enforces SELinux with a policy that has no types for containers, and {labels} {verb} containers with \
                 them: these cannot start"
            ),
            format!(
                "{}, and restart Docker and containerd",
                packages::install(Package::ContainerSelinux, system)
            ),
        )
    })
}

/// Pods of the network plugin that are confined, and write to folders of the node.
pub(super) fn doubts(network: &HostNetwork, facts: &HostFacts) -> Option<String> {
    let enforced = facts.system.selinux == Some(SelinuxPolicy::WithContainers);
    let confined = containerd::labels_containers(&facts.system.containerd.dump);
    let flannel = network.plugin == Some(Plugin::Flannel);
    (enforced && confined && flannel).then(|| {
        "SELinux is enforced, and containerd labels containers (`enable_selinux`): it may forbid the pods of flannel, \
         which are not privileged, to write to /opt/cni/bin, /etc/cni/net.d and /run/flannel. `plugin: canal` under \
         `network` has privileged pods; or set `enable_selinux = false` in containerd's configuration and restart it"
            .to_owned()
    })
}

/// What is set to label containers.
fn labelling(facts: &HostFacts) -> Vec<&'static str> {
    let docker = facts.docker.labels_containers().then_some("Docker");
    let dump = &facts.system.containerd.dump;
    let containerd = containerd::labels_containers(dump).then_some("containerd");
    docker.into_iter().chain(containerd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::fixture::facts;

    const LABELS: &str =
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_selinux = true\n";

    fn node(selinux: Option<SelinuxPolicy>, docker: bool, dump: &str) -> HostFacts {
        let mut facts = facts();
        facts.system.selinux = selinux;
        dump.clone_into(&mut facts.system.containerd.dump);
        if docker {
            let options = &mut facts.docker.security_options;
            options.push("name=selinux".to_owned());
        }
        facts
    }

    #[test]
    fn a_policy_without_types_matters_where_something_labels_with_them() {
        let without = Some(SelinuxPolicy::WithoutContainers);
        let with = Some(SelinuxPolicy::WithContainers);
        let told = |selinux, docker, dump| lacks(&node(selinux, docker, dump)).map(|it| it.0);
        assert_eq!(told(without, false, "version = 2"), None);
        assert_eq!(told(with, true, LABELS), None);
        assert_eq!(told(None, true, LABELS), None, "permissive, or off");
        let both = told(without, true, LABELS).unwrap();
        assert!(
            both.contains("and Docker and containerd label containers"),
            "{both}"
        );
        let one = told(without, false, LABELS).unwrap();
        assert!(one.contains("and containerd labels containers"), "{one}");
    }

    #[test]
    fn confined_pods_of_flannel_are_worth_a_word_and_privileged_ones_not() {
        let with = Some(SelinuxPolicy::WithContainers);
        let told = |plugin, selinux, dump| {
            let network = HostNetwork {
                plugin,
                ..HostNetwork::default()
            };
            doubts(&network, &node(selinux, false, dump)).is_some()
        };
        assert!(told(Some(Plugin::Flannel), with, LABELS));
        assert!(!told(Some(Plugin::Flannel), with, "version = 2"));
        assert!(!told(Some(Plugin::Flannel), None, LABELS));
        assert!(!told(Some(Plugin::Canal), with, LABELS));
        assert!(!told(None, with, LABELS));
    }
}

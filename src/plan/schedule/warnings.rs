//! What a person should know about a node before it is used. Pure.

use crate::{
    actual::HostFacts,
    desired::{self, DesiredHost},
    plan::{Note, Target, diff::Diff},
};

/// What a person should know about a node before it is used.
pub(super) fn notes(diff: &Diff<'_>) -> Vec<Note> {
    let hosts = diff.hosts.iter();
    hosts
        .filter(|(_, host)| host.facts.claim().is_none())
        .flat_map(|(name, host)| {
            let facts = host.facts;
            let note = |text| Note::of(Some(Target::Host((*name).clone())), text);
            let runtime = facts.docker.default_runtime.as_str();
            let runtime = (!runtime.is_empty() && runtime != "runc").then(|| {
                note(format!(
                    "Docker's default runtime is `{runtime}`; pods run on containerd and need \
                     its equivalent there"
                ))
            });
            let proxy = facts.docker.proxy.as_ref().filter(|(http, https, _)| {
                desired::containerd::masked(http) || desired::containerd::masked(https)
            });
            let proxy = proxy.map(|_| {
                note(
                    "Docker uses an HTTP proxy with a login, which Docker does not tell; \
                     containerd, which pulls the images of pods, needs it in a drop-in of its own \
                     (`systemctl edit containerd`)"
                        .to_owned(),
                )
            });
            let firewall = facts.system.firewalld.then(|| note(firewalld(host.want)));
            let others = services(facts).into_iter().map(note);
            let fixed = [runtime, proxy, firewall].into_iter().flatten();
            fixed.chain(others).collect::<Vec<_>>()
        })
        .collect()
}

/// What else works on the node's network, and how it leaves that of pods alone.
fn services(facts: &HostFacts) -> Vec<String> {
    let has = |name: &str| facts.system.services.contains(name);
    let mut texts = Vec::new();
    if has("ufw") {
        texts.push(
            "ufw is active and rejects the traffic of pods: `sudo ufw default allow routed`, \
             `sudo ufw allow in on cni0`, `sudo ufw allow 6443/tcp`"
                .to_owned(),
        );
    }
    if has("NetworkManager") {
        texts.push(
            "NetworkManager may take over the links of pods: \
             `unmanaged-devices=interface-name:cni0;interface-name:flannel*;interface-name:veth*` \
             below `[keyfile]` in /etc/NetworkManager/conf.d/pods.conf keeps it away"
                .to_owned(),
        );
    }
    if has("nm-cloud-setup") {
        texts.push(
            "nm-cloud-setup changes routes and takes those of pods away: `sudo systemctl disable \
             --now nm-cloud-setup.timer nm-cloud-setup.service`"
                .to_owned(),
        );
    }
    if facts.system.resolv_loops {
        texts.push(format!(
            "every name server in `{}` is on the node's own loopback, where pods cannot ask it, and \
             CoreDNS would ask itself: name reachable ones in `dns.upstreamnameservers`, or in a \
             file that kubelet's `resolv-conf` names",
            facts.system.resolv_conf
        ));
    }
    texts
}

fn firewalld(host: &DesiredHost) -> String {
    let range = |component: &str, flag: &str| {
        let command = &host.containers.get(component)?.command;
        command
            .iter()
            .find_map(|word| word.strip_prefix(flag)?.strip_prefix('='))
    };
    let ranges = [
        range("kube-controller-manager", "--cluster-cidr"),
        range("kube-apiserver", "--service-cluster-ip-range"),
    ];
    let mut commands: Vec<String> = ranges
        .into_iter()
        .flatten()
        .flat_map(|ranges| ranges.split(','))
        .map(|range| format!("`sudo firewall-cmd --permanent --zone=trusted --add-source={range}`"))
        .collect();
    commands.push("`sudo firewall-cmd --permanent --add-port=6443/tcp`".to_owned());
    commands.push("`sudo firewall-cmd --reload`".to_owned());
    format!(
        "firewalld is active and rejects the traffic of pods: {}",
        commands.join(", ")
    )
}

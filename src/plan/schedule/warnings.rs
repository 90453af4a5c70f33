//! What a person should know about a node before it is used. Pure.

use super::part::Part;
use crate::{
    desired::{self, DesiredHost},
    facts::HostFacts,
    model::{Component, Field, NodeName, quoted},
    plan::{
        Note, Target,
        diff::{Diff, HostDiff, Need},
        preflight, release,
    },
};

/// What a person should know about a node before it is used, and what ends a node that is used.
pub(super) fn nodes(diff: &Diff<'_>) -> Part {
    let hosts = diff.hosts.iter();
    hosts
        .flat_map(|(name, host)| {
            let (want, facts) = (host.want, host.facts);
            let mut texts = always(want, facts);
            texts.extend(etcd_image(name, host, diff));
            if facts.claim().is_none() {
                texts.extend(before_use(want, facts));
            } else {
                let lacks = preflight::lacks(want, facts).into_iter();
                texts.extend(lacks.map(|(what, hint)| format!("this node {what}: {hint}")));
            }
            let target = Target::Host((*name).clone());
            let note = move |text| Note::of(Some(target.clone()), text);
            texts.into_iter().map(note)
        })
        .collect()
}

/// Where another image of etcd comes and its tag is no version: what is known of releases cannot be checked.
fn etcd_image(name: &NodeName, host: &HostDiff<'_>, diff: &Diff<'_>) -> Option<String> {
    let spec = host.want.containers.get(&Component::Etcd)?;
    let Need::Replace(_, _, changes) = host.need(Component::Etcd) else {
        return None;
    };
    let another = changes.iter().any(|change| change.field == Field::Image);
    if !another || release::wanted(Component::Etcd, spec, diff.want).is_some() {
        return None;
    }
    let runs = release::runs(Component::Etcd, name, diff.have)?;
    Some(format!(
        "the tag of etcd's image `{}` is no version, so it is not checked that this etcd can read the data of {}: it \
         must be of the same minor release or of the next one",
        spec.image,
        release::text(runs)
    ))
}

/// Of every node, at every run.
fn always(want: &DesiredHost, facts: &HostFacts) -> Vec<String> {
    let mut texts = Vec::new();
    let unbooted = &facts.system.unbooted;
    if !unbooted.is_empty() {
        let units: Vec<&str> = unbooted.iter().map(String::as_str).collect();
        texts.push(format!(
            "nothing starts {} when this node restarts, and no component of the cluster would run: `sudo systemctl \
             enable {}`",
            quoted(unbooted),
            units.join(" ")
        ));
    }
    texts.extend(ingress(want, facts));
    texts
}

/// Who listens where the ingress controller takes the ports of the node.
fn ingress(want: &DesiredHost, facts: &HostFacts) -> Vec<String> {
    let system = &facts.system;
    let listens = |port: &&u16| system.listening.contains(port);
    // On a node of a cluster an unknown listener is the controller itself, as a rule.
    let foreign = |port: &&u16| match system.listeners.get(port) {
        Some(owner) => owner.ends_with(".service") || is_of_docker(owner, facts),
        None => facts.claim().is_none(),
    };
    let ports = want.network.ingress.iter().filter(listens).filter(foreign);
    ports
        .map(|port| {
            let (owner, cure) = preflight::listener(*port, facts);
            format!(
                "the ingress controller takes port {port} of this node from {owner}: requests no longer reach that. \
                 {cure}; `http_port` and `https_port` under `ingress` name other ports"
            )
        })
        .collect()
}

fn is_of_docker(owner: &str, facts: &HostFacts) -> bool {
    let id = owner
        .trim_start_matches("docker-")
        .trim_end_matches(".scope");
    facts.containers.values().any(|fact| fact.id == id)
}

/// Before the first component runs there.
fn before_use(want: &DesiredHost, facts: &HostFacts) -> Vec<String> {
    let runtime = facts.docker.default_runtime.as_str();
    let runtime = (!runtime.is_empty() && runtime != "runc").then(|| {
        format!(
            "Docker's default runtime is `{runtime}`; pods run on containerd and need its equivalent there"
        )
    });
    let proxy = facts.docker.proxy.as_ref().filter(|(http, https, _)| {
        desired::containerd::masked(http) || desired::containerd::masked(https)
    });
    let proxy = proxy.map(|_| {
        "Docker uses an HTTP proxy with a login, which Docker does not show; containerd, which pulls the images of \
         pods, needs it in a separate drop-in (`systemctl edit containerd`)"
            .to_owned()
    });
    let firewalls = facts.system.firewalls().map(|firewall| {
        let (name, rules) = (firewall.name(), want.network.rules(firewall).join(", "));
        format!("{name} is active and rejects the traffic of the cluster: {rules}")
    });
    [runtime, proxy]
        .into_iter()
        .flatten()
        .chain(firewalls)
        .chain(services(facts))
        .chain(preflight::doubts(want, facts))
        .collect()
}

/// What else works on the node's network, and how it leaves that of pods alone.
fn services(facts: &HostFacts) -> Vec<String> {
    let has = |name: &str| facts.system.services.contains(name);
    let mut texts = Vec::new();
    if has("NetworkManager") {
        texts.push(
            "NetworkManager may take over the links of pods: \
             `unmanaged-devices=interface-name:cni0;interface-name:flannel*;interface-name:cali*;\
             interface-name:tunl*;interface-name:vxlan.calico;interface-name:veth*` below `[keyfile]` in \
             /etc/NetworkManager/conf.d/pods.conf keeps it away"
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

//! What a person should know about a node before it is used. Pure.

use super::{Note, Target, hosts::each};
use crate::{
    actual::Actual,
    desired::{Desired, DesiredHost},
};

/// What a person should know about a node before it is used.
pub(super) fn notes(want: &Desired, have: &Actual) -> Vec<Note> {
    each(want, have)
        .filter(|(_, _, facts)| facts.claim().is_none())
        .flat_map(|(name, host, facts)| {
            let note = |text| Note {
                target: Some(Target::Host(name.clone())),
                text,
            };
            let runtime = facts.docker.default_runtime.as_str();
            let runtime = (!runtime.is_empty() && runtime != "runc").then(|| {
                note(format!(
                    "Docker's default runtime is `{runtime}`; pods run on containerd and need \
                     its equivalent there"
                ))
            });
            let proxy = facts.docker.proxy.as_ref().map(|_| {
                note(
                    "Docker uses an HTTP proxy; containerd, which pulls the images of pods, is \
                     not told of it yet: set it in a drop-in of containerd.service"
                        .to_owned(),
                )
            });
            let firewall = facts.system.firewalld.then(|| note(firewalld(host)));
            [runtime, proxy, firewall].into_iter().flatten()
        })
        .collect()
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

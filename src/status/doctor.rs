//! What prevents a cluster, and what will trouble it: all that was found on its nodes, each with its cure. Pure. What
//! prevents it is found by `up`'s own preflight; what was measured comes on top.

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr, time::Duration};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{datagrams, forwarding};
use crate::{
    config::{Intent, NodeIntent},
    desired::{Desired, DesiredHost},
    error::{ErrorClass, Explain, distinct, with_causes},
    facts::{
        Actual, HostFacts, HostView, ReachedBy, Unreachable,
        measured::{LostPackets, MeasureRequest, Measured},
    },
    model::{
        Component, HostAddress, NodeName, RegistryLogin, Role, path, quoted_first, registry_of,
    },
    plan::{self, Examination, Target},
};

/// Slower than this a disk makes etcd lose its leader now and then: etcd's own documentation asks for it of the 99th
/// percentile of `fsync`.
const SLOW_DISK: Duration = Duration::from_millis(10);
/// How many other nodes each tries long packets and datagrams to.
pub(super) const PEERS: usize = 8;
/// What kubeadm asks of a control plane.
const MEMORY: u64 = 1700 << 20;
const PROCESSORS: u32 = 2;
/// Clocks so many seconds apart make logs and leases hard to understand. From five minutes on nothing is done: that is
/// an error, or the node is left out.
const CLOCKS: std::ops::RangeInclusive<i64> = 2..=300;

/// What is found, and about which nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// The nodes of the config, by name.
    pub nodes: Vec<NodeDiagnosis>,
    /// What prevents `up` first, then what will trouble the cluster; by node.
    pub findings: Vec<Finding>,
}

/// A node as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeDiagnosis {
    /// Its name.
    pub name: NodeName,
    /// Where its sshd is.
    pub address: String,
    /// The bastion hosts on the way there.
    pub bastions: Vec<String>,
    /// What of the login comes from the configuration of OpenSSH's client, by its keyword.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ssh_config: BTreeMap<&'static str, String>,
    /// The same of the bastion hosts, as `bastions` names them; only those of which something comes from there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bastion_ssh_config: BTreeMap<String, BTreeMap<&'static str, String>>,
    /// Its roles in the config.
    pub roles: Vec<Role>,
    /// It answered, and so did its Docker. If not, there are no fields about its machine.
    pub reachable: bool,
    /// What it reported; none if it does not answer.
    #[serde(flatten)]
    pub machine: Option<Machine>,
}

/// What a node told of itself, and what was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// The name and version of its operating system.
    pub os: String,
    /// The release of its kernel.
    pub kernel: String,
    /// As Docker names it: `x86_64`.
    pub architecture: String,
    /// How many processors it has; null if Docker does not report it.
    pub processors: Option<u32>,
    /// Its memory; null if Docker does not report it.
    pub memory_bytes: Option<u64>,
    /// The version of Docker.
    pub docker_version: String,
    /// How it is reached: through the `socket` if sshd forwards to it, else by the Docker command line on the node
    /// (`program`), or by that with `sudo`.
    pub docker_reached_by: ReachedBy,
    /// The version of containerd.
    pub containerd_version: String,
    /// Approximate round-trip time of a request over SSH.
    pub round_trip_microseconds: Option<u64>,
    /// The bastion hosts on the way and, last, the node, each with its round-trip time; left out where there is no
    /// bastion host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<HopTime>,
    /// By how much its clock is ahead; null if unknown.
    pub clock_ahead_seconds: Option<i64>,
    /// 99th percentile of the duration of a write of etcd to its disk; null if it was not measured.
    pub fsync_p99_microseconds: Option<u64>,
    /// Free space in bytes, by path.
    pub free_bytes: BTreeMap<String, u64>,
}

/// A machine on the way to a node, or the node itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HopTime {
    /// Where its sshd is.
    pub address: String,
    /// Approximate round-trip time from here, through the hops before it.
    pub round_trip_microseconds: u64,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// It prevents `up`, or pods from reaching pods.
    Error,
    /// The node does not answer; `up` does what it can without it.
    Unreachable,
    /// It does not prevent `up`, and will cause trouble later.
    Warning,
}

/// A problem that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The node; null if it is about the whole cluster.
    pub node: Option<NodeName>,
    /// How much it matters.
    pub severity: Severity,
    /// Who has to act.
    #[serde(skip)]
    pub class: ErrorClass,
    /// The problem.
    pub message: String,
    /// What to do about it, most likely cure first.
    pub hints: Vec<String>,
    /// Why the node does not answer, if it is that: people read one cause of several nodes once.
    #[serde(skip)]
    pub down: Option<Unreachable>,
}

/// What a diagnosis is made of.
pub struct Examined<'a> {
    /// When.
    pub now: Timestamp,
    /// What the user wants.
    pub intent: &'a Intent,
    /// What is.
    pub actual: &'a Actual,
    /// What was found on the nodes that answer.
    pub found: &'a Examination,
    /// Why nothing is planned, where the nodes alone do not say it.
    pub refusal: Option<&'a (dyn Explain + 'static)>,
    /// What was measured, by node.
    pub measured: &'a BTreeMap<NodeName, Measured>,
}

impl Diagnosis {
    /// What there is to say.
    pub fn of(examined: &Examined<'_>) -> Self {
        let nodes = examined.intent.nodes.iter();
        let nodes = nodes.map(|(name, node)| diagnosis(examined, name, node));
        let mut findings: Vec<Finding> = unreachable(examined)
            .chain(errors(examined))
            .chain(refusal(examined))
            .chain(notes(examined))
            .collect();
        for (name, measured) in examined.measured {
            findings.extend(of_measured(examined, name, measured));
        }
        findings.extend(datagrams::findings(examined));
        findings.extend(forwarding::findings(examined));
        let hosts = examined.actual.hosts.iter();
        findings.extend(
            hosts
                .filter_map(|(name, view)| match view {
                    HostView::Reachable(facts) => Some((name, &**facts)),
                    HostView::Unreachable(_) => None,
                })
                .flat_map(|(name, facts)| small(examined, name, facts)),
        );
        let mut findings = distinct(findings);
        findings.sort_by(|one, other| {
            let order = |it: &Finding| (it.severity, it.node.clone());
            order(one).cmp(&order(other))
        });
        Self {
            nodes: nodes.collect(),
            findings,
        }
    }

    /// How many findings there are of that kind.
    pub fn count(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings.filter(|it| it.severity == severity).count()
    }

    /// Who has to act before `up` can go on; `None`: nothing prevents it.
    pub fn prevents(&self) -> Option<ErrorClass> {
        let errors = self.findings.iter();
        let errors = errors.filter(|it| it.severity == Severity::Error);
        ErrorClass::first(errors.map(|it| it.class))
    }
}

fn diagnosis(examined: &Examined<'_>, name: &NodeName, node: &NodeIntent) -> NodeDiagnosis {
    let facts = examined.actual.up(name);
    let bastions = node.bastions.iter();
    let measured = examined.measured.get(name);
    NodeDiagnosis {
        name: name.clone(),
        address: node.endpoint.to_string(),
        bastions: bastions
            .map(|bastion| bastion.endpoint.to_string())
            .collect(),
        ssh_config: node.ssh_config.clone(),
        bastion_ssh_config: node
            .bastions
            .iter()
            .filter(|bastion| !bastion.ssh_config.is_empty())
            .map(|bastion| (bastion.endpoint.to_string(), bastion.ssh_config.clone()))
            .collect(),
        roles: node.roles.iter().copied().collect(),
        reachable: facts.is_some(),
        machine: facts.map(|facts| Machine {
            hops: hops(node, measured),
            ..machine(facts, measured, examined.now)
        }),
    }
}

fn machine(facts: &HostFacts, measured: Option<&Measured>, now: Timestamp) -> Machine {
    let (docker, system) = (&facts.docker, &facts.system);
    Machine {
        os: system.os.clone(),
        kernel: system.kernel.clone(),
        architecture: docker.architecture.clone(),
        processors: (docker.processors > 0).then_some(docker.processors),
        memory_bytes: (docker.memory > 0).then_some(docker.memory),
        docker_version: docker.version.clone(),
        docker_reached_by: docker.reached,
        containerd_version: system.containerd.version.clone(),
        round_trip_microseconds: measured.map(|it| micros(it.trip)),
        hops: Vec::new(),
        clock_ahead_seconds: ahead(facts, now),
        fsync_p99_microseconds: measured.and_then(|it| it.disk).map(micros),
        free_bytes: system.free.clone(),
    }
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// The way to a node in its hops; none where it leads there directly.
fn hops(node: &NodeIntent, measured: Option<&Measured>) -> Vec<HopTime> {
    let Some(measured) = measured.filter(|it| !it.bastion_trips.is_empty()) else {
        return Vec::new();
    };
    let bastions = node.bastions.iter().map(|bastion| &bastion.endpoint);
    let trips = measured.bastion_trips.iter().chain([&measured.trip]);
    bastions
        .chain([&node.endpoint])
        .zip(trips)
        .map(|(endpoint, trip)| HopTime {
            address: HostAddress::from(endpoint.address.as_str()).with_port(endpoint.port),
            round_trip_microseconds: micros(*trip),
        })
        .collect()
}

/// By how many seconds the node's clock is ahead of this machine's; 0 where that is within what the question took.
fn ahead(facts: &HostFacts, now: Timestamp) -> Option<i64> {
    let clock = facts.clock?;
    let ahead = clock.unix_seconds.saturating_sub(now.as_second());
    let uncertain = i64::from(clock.uncertainty_ms).div_euclid(1000) + 1;
    Some(if ahead.saturating_abs() <= uncertain {
        0
    } else {
        ahead
    })
}

fn unreachable<'a>(examined: &'a Examined<'_>) -> impl Iterator<Item = Finding> + 'a {
    let of_config = |name: &NodeName| examined.intent.nodes.contains_key(name);
    let silent = examined.actual.unreachable();
    let silent = silent.filter(move |(name, _)| of_config(name));
    silent.map(|(name, why)| of_unreachable(name, why, Severity::Unreachable))
}

fn of_unreachable(name: &NodeName, why: &Unreachable, severity: Severity) -> Finding {
    Finding {
        node: Some(name.clone()),
        severity,
        class: why.class,
        message: why.why.clone(),
        hints: why.hints.clone(),
        down: (severity == Severity::Unreachable).then(|| why.clone()),
    }
}

fn errors<'a>(examined: &'a Examined<'_>) -> impl Iterator<Item = Finding> + 'a {
    let errors = examined.found.errors.iter();
    errors.map(|error| Finding {
        node: error.node.clone(),
        severity: Severity::Error,
        class: error.class,
        message: error.message.clone(),
        hints: error.hints.clone(),
        down: None,
    })
}

fn refusal(examined: &Examined<'_>) -> Option<Finding> {
    let error = examined.refusal?;
    let apart = error.apart_from_nodes();
    // What is the matter with nodes is a finding about each.
    let hints = if apart.is_none() {
        error.hints()
    } else {
        Vec::new()
    };
    Some(Finding {
        node: None,
        severity: Severity::Error,
        class: error.class(),
        message: apart.unwrap_or_else(|| with_causes(error)),
        hints: hints.into_iter().map(Cow::into_owned).collect(),
        down: None,
    })
}

fn notes<'a>(examined: &'a Examined<'_>) -> impl Iterator<Item = Finding> + 'a {
    examined.found.notes.iter().map(|note| Finding {
        node: match &note.target {
            Some(Target::Host(name)) => Some(name.clone()),
            Some(Target::Cluster | Target::Local) | None => None,
        },
        ..warning(note.text.clone(), Vec::new())
    })
}

pub(super) fn warning(message: String, hints: Vec<String>) -> Finding {
    Finding {
        node: None,
        severity: Severity::Warning,
        class: ErrorClass::Host,
        message,
        hints,
        down: None,
    }
}

/// A machine that is small, or whose clock goes wrong.
fn small(examined: &Examined<'_>, name: &NodeName, facts: &HostFacts) -> Vec<Finding> {
    let Some(node) = examined.intent.nodes.get(name) else {
        return Vec::new();
    };
    let docker = &facts.docker;
    let mut findings = Vec::new();
    let mut say = |message: String, hint: &str| {
        findings.push(Finding {
            node: Some(name.clone()),
            ..warning(message, vec![hint.to_owned()])
        });
    };
    if node.roles.contains(&Role::ControlPlane) {
        if (1..MEMORY).contains(&docker.memory) {
            say(
                format!(
                    "has {} MiB of memory; a control plane needs {} MiB",
                    docker.memory >> 20,
                    MEMORY >> 20
                ),
                "give the machine more memory, or make it a worker only",
            );
        }
        if (1..PROCESSORS).contains(&docker.processors) {
            say(
                format!(
                    "has {} processor; a control plane needs {PROCESSORS}",
                    docker.processors
                ),
                "give the machine more processors, or make it a worker only",
            );
        }
    }
    let ahead = ahead(facts, examined.now).unwrap_or(0);
    if CLOCKS.contains(&ahead.saturating_abs()) {
        let way = if ahead < 0 { "behind" } else { "ahead of" };
        say(
            format!(
                "its clock is {} s {way} this machine's",
                ahead.saturating_abs()
            ),
            "use a time service on both machines: `timedatectl status` shows whether one is active",
        );
    }
    findings
}

fn of_measured(examined: &Examined<'_>, name: &NodeName, measured: &Measured) -> Vec<Finding> {
    let mut findings = Vec::new();
    let refused = measured.refused.values();
    findings.extend(refused.map(|why| of_unreachable(name, why, Severity::Error)));
    let mut warn = |message: String, hints: Vec<String>| {
        findings.push(Finding {
            node: Some(name.clone()),
            ..warning(message, hints)
        });
    };
    if let Some(took) = measured.disk.filter(|took| *took > SLOW_DISK) {
        warn(
            format!(
                "its disk with {} is slow: 99 of 100 writes took up to {} ms, and etcd needs {} ms",
                path::ETCD,
                took.as_millis(),
                SLOW_DISK.as_millis()
            ),
            vec![
                format!(
                    "mount an SSD or NVMe at {}, with nothing else on it",
                    path::ETCD
                ),
                "`iostat -x 5` on the node shows what else writes to the disk".to_owned(),
            ],
        );
    }
    let mut by_length: BTreeMap<(u32, Option<u32>), Vec<&NodeName>> = BTreeMap::new();
    for LostPackets {
        address,
        bytes,
        fits,
    } in &measured.lost
    {
        let to = examined.intent.nodes.iter();
        let mut to = to.filter(|(_, node)| node.internal_address.ip() == Some(*address));
        if let Some((to, _)) = to.next() {
            by_length.entry((*bytes, *fits)).or_default().push(to);
        }
    }
    for ((bytes, fits), to) in by_length {
        let arrives = fits.map_or_else(
            || "shorter ones arrive".to_owned(),
            |fits| format!("of {fits} bytes they arrive"),
        );
        let least = fits.map_or_else(String::new, |fits| {
            format!("set the MTU of the interface to {fits} on all nodes (`ip link set dev … mtu {fits}`, and where the \
                     distribution keeps it), or ")
        });
        warn(
            format!(
                "packets of {bytes} bytes to {} are lost on the way, and {arrives}: connections between pods hang when \
                 they send much data",
                quoted_first(5, &to)
            ),
            vec![format!(
                "{least}let the network between the nodes carry {bytes} bytes"
            )],
        );
    }
    if let Some(why) = &measured.untold {
        warn(format!("was not measured: {why}"), Vec::new());
    }
    findings
}

/// What is measured on each node that answers; by a container only where the node may be written to.
pub fn requests(want: &Desired, have: &Actual, writes: bool) -> BTreeMap<NodeName, MeasureRequest> {
    let hosts = want.hosts.iter();
    hosts
        .filter_map(|(name, host)| {
            let facts = have.up(name)?;
            let etcd = host.containers.contains_key(&Component::Etcd);
            let request = MeasureRequest {
                disk: (etcd && writes).then_some(path::ETCD),
                packets: packets(want, have, name),
                datagrams: datagrams::to_others(want, have, name),
                ports: datagrams::ports(host).collect(),
                pods: forwarding::pods(host).filter(|_| writes),
                images: images(want, name, facts),
            };
            Some((name.clone(), request))
        })
        .collect()
}

/// To the nodes after this one, and how long those packets are that must arrive there.
fn packets(want: &Desired, have: &Actual, name: &NodeName) -> BTreeMap<IpAddr, u32> {
    let Some((host, facts)) = want.hosts.get(name).zip(have.up(name)) else {
        return BTreeMap::new();
    };
    let network = &host.network;
    let own = network.address.as_ref().and_then(HostAddress::ip);
    let Some((_, mtu)) = facts.system.way_out(own) else {
        return BTreeMap::new();
    };
    let longest = network.packets.map_or(mtu, |packets| {
        mtu.min(packets.mtu.saturating_add(packets.tunnel))
    });
    let addresses =
        others(want, have, name).filter_map(|(_, host)| host.network.address.as_ref()?.ip());
    addresses.take(PEERS).map(|to| (to, longest)).collect()
}

/// The other nodes that answer, beginning with the one after this.
pub(super) fn others<'a>(
    want: &'a Desired,
    have: &'a Actual,
    name: &'a NodeName,
) -> impl Iterator<Item = (&'a NodeName, &'a DesiredHost)> {
    let after = want
        .hosts
        .iter()
        .skip_while(move |(it, _)| *it != name)
        .skip(1);
    let before = want.hosts.iter().take_while(move |(it, _)| *it != name);
    after.chain(before).filter(|(it, _)| have.up(it).is_some())
}

/// Of those that the node lacks one for each registry.
fn images(
    want: &Desired,
    name: &NodeName,
    facts: &HostFacts,
) -> BTreeMap<String, Option<RegistryLogin>> {
    let images = want
        .hosts
        .get(name)
        .into_iter()
        .flat_map(|host| &host.images);
    let lacking = images.filter(|image| !plan::has_image(image, facts));
    let by_registry: BTreeMap<String, &String> =
        lacking.map(|image| (registry_of(image), image)).collect();
    let images = by_registry.into_values();
    images
        .map(|image| (image.clone(), want.registries.login(image).cloned()))
        .collect()
}

#[cfg(test)]
#[path = "doctor_tests.rs"]
mod tests;

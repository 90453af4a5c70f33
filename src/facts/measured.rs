//! What a node is measured for before a cluster is made of it, and how its answer is understood. Pure. How it is
//! measured: [`crate::survey`].

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use ipnet::IpNet;

use super::{
    Barrier, Unreachable,
    system::{sections, unreached},
};
use crate::model::{NodeName, PeerPort, RegistryLogin};

/// The script for the network: unprivileged, one round trip; it writes nothing.
pub const SCRIPT: &str = concat!(
    include_str!("each.sh"),
    include_str!("udp.sh"),
    include_str!("measure.sh")
);

/// The script for [`MeasureRequest::disk`] and [`MeasureRequest::pods`], for root: it writes next to the folder, where the
/// user may have none, and reads rules of the kernel.
pub const ROOT_SCRIPT: &str = concat!(
    include_str!("each.sh"),
    include_str!("disk.sh"),
    include_str!("forward.sh")
);

/// The script for a [`ProofRequest`]: unprivileged, about 8 s.
pub const PROOF: &str = concat!(
    include_str!("each.sh"),
    include_str!("udp.sh"),
    include_str!("prove.sh")
);

/// What is measured on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasureRequest {
    /// The disk with this folder is written to.
    pub disk: Option<&'static str>,
    /// Addresses of other nodes, and how long packets to them are, in bytes.
    pub packets: BTreeMap<IpAddr, u32>,
    /// UDP ports of other nodes that datagrams are sent to, and whose they are.
    pub datagrams: BTreeMap<PeerPort, NodeName>,
    /// UDP ports of this node that others send datagrams to.
    pub ports: BTreeSet<u16>,
    /// The range of pods, whose packets the node's rules must let through; read by root.
    pub pods: Option<IpNet>,
    /// Images that the node's Docker asks their registries for, with the login for each.
    pub images: BTreeMap<String, Option<RegistryLogin>>,
}

impl MeasureRequest {
    /// The arguments of [`SCRIPT`]; empty where it has nothing to do.
    pub fn arguments(&self) -> Vec<String> {
        let packets = self.packets.iter();
        let packets = packets.map(|(address, bytes)| format!("packets={address}/{bytes}"));
        let datagrams = self.datagrams.keys();
        let datagrams = datagrams.map(|peer| format!("datagram={peer}"));
        let ports = self.ports.iter().map(|port| format!("port={port}"));
        packets.chain(datagrams).chain(ports).collect()
    }

    /// The arguments of [`ROOT_SCRIPT`]; empty where it has nothing to do.
    pub fn root_arguments(&self) -> Vec<String> {
        let disk = self.disk.iter().map(|folder| format!("disk={folder}"));
        let pods = self.pods.iter().map(|range| format!("range={range}"));
        disk.chain(pods).collect()
    }
}

/// What was measured on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// About how long a question and its answer are under way.
    pub trip: Duration,
    /// The same of each bastion host on the way, in the order of the connection.
    pub bastion_trips: Vec<Duration>,
    /// The disk of [`MeasureRequest::disk`]: of a hundred writes of 2300 bytes, each waited for, 99 took no longer. `None`
    /// where it was not measured.
    pub disk: Option<Duration>,
    /// Packets that were lost because they are too long.
    pub lost: BTreeSet<LostPackets>,
    /// UDP ports of other nodes from which nothing came back.
    pub unanswered: BTreeSet<Unanswered>,
    /// Those of [`MeasureRequest::ports`] that something listens on: it need not answer.
    pub taken: BTreeSet<u16>,
    /// Which rules drop what the node forwards; `None` where that was not read.
    pub forwarding: Option<Forwarding>,
    /// Images that a registry does not give out, and why.
    pub refused: BTreeMap<String, Unreachable>,
    /// Why part of it is not known.
    pub untold: Option<String>,
}

/// What a node does with packets that it forwards, as those of pods are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// What the node's `iptables` writes to. kubelet and the programs of network plugins call it, and kube-proxy's
    /// image chooses the same by what kubelet wrote.
    pub written: Option<RuleBackend>,
    /// Chains that drop unless one of their rules accepts, and whose rules know nothing of pods.
    pub dropping: BTreeSet<DroppingChain>,
}

/// Where `iptables` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleBackend {
    /// The tables of iptables itself.
    Legacy,
    /// Tables of nftables.
    Nft,
}

/// A chain for what is forwarded, with the policy to drop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DroppingChain {
    /// Whose.
    pub backend: RuleBackend,
    /// `ip`, `ip6` or `inet`.
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub chain: String,
}

impl Forwarding {
    /// What [`ROOT_SCRIPT`] printed. `None` when it was cut off, or had no range.
    pub fn parse(output: &str) -> Option<Self> {
        let sections = sections(output);
        sections.get("end")?;
        sections.get("dropping")?;
        let text = |name: &str| sections.get(name).map_or("", String::as_str);
        let version = text("iptables").trim();
        // Releases before there was a choice do not say which.
        let written = if version.contains("nf_tables") {
            Some(RuleBackend::Nft)
        } else {
            (!version.is_empty()).then_some(RuleBackend::Legacy)
        };
        Some(Self {
            written,
            dropping: text("dropping").lines().filter_map(dropping).collect(),
        })
    }
}

/// `nft inet filter forward`.
fn dropping(line: &str) -> Option<DroppingChain> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [backend, family, table, chain] = words.as_slice() else {
        return None;
    };
    Some(DroppingChain {
        backend: match *backend {
            "legacy" => RuleBackend::Legacy,
            "nft" => RuleBackend::Nft,
            _ => return None,
        },
        family: (*family).to_owned(),
        table: (*table).to_owned(),
        chain: (*chain).to_owned(),
    })
}

/// Packets to another node that do not arrive, while short ones do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostPackets {
    /// Where to.
    pub address: IpAddr,
    /// How long they were, in bytes.
    pub bytes: u32,
    /// How long they may be; `None` where none of those that were tried arrived.
    pub fits: Option<u32>,
}

/// A UDP port of another node from which nothing came back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unanswered {
    /// Which.
    pub peer: PeerPort,
    /// What stands between.
    pub how: Barrier,
    /// Datagrams do not arrive. Otherwise only their answers are missing, which a kernel need not send.
    pub proven: bool,
}

impl Measured {
    /// What [`SCRIPT`] printed. `None` when it was cut off.
    pub fn parse(output: &str) -> Option<Self> {
        let sections = sections(output);
        sections.get("end")?;
        let lines = |name: &str| {
            let text = sections.get(name).map_or("", String::as_str);
            text.lines().map(str::trim)
        };
        Some(Self {
            lost: lines("packets").filter_map(lost).collect(),
            unanswered: lines("unanswered").filter_map(unanswered).collect(),
            taken: lines("taken")
                .filter_map(|line| line.parse().ok())
                .collect(),
            ..Self::default()
        })
    }
}

/// How long the disk took, of what [`ROOT_SCRIPT`] printed. `None` when it was cut off.
pub fn disk(output: &str) -> Option<Duration> {
    let sections = sections(output);
    sections.get("end")?;
    let lines = sections.get("disk")?.lines().map(str::trim);
    let took = lines.filter_map(|line| Duration::try_from_secs_f64(line.parse().ok()?).ok());
    let mut took: Vec<Duration> = took.collect();
    took.sort_unstable();
    let place = (took.len() * 99).div_ceil(100).saturating_sub(1);
    took.get(place).copied()
}

/// `192.0.2.7/8472 silent`.
fn unanswered(line: &str) -> Option<Unanswered> {
    let found = unreached(line)?;
    Some(Unanswered {
        peer: found.peer,
        how: found.how,
        proven: found.how != Barrier::Silent,
    })
}

/// What a node does to prove whether datagrams arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProofRequest {
    /// UDP ports that a program listens on meanwhile.
    pub listens: BTreeSet<u16>,
    /// UDP ports of other nodes that it sends datagrams to.
    pub sends: BTreeSet<PeerPort>,
}

impl ProofRequest {
    /// The arguments of [`PROOF`] on this node.
    pub fn arguments(&self, name: &NodeName) -> Vec<String> {
        let listens = self.listens.iter().map(|port| format!("listen={port}"));
        let sends = self.sends.iter().map(|peer| format!("datagram={peer}"));
        let name = std::iter::once(format!("name={name}"));
        name.chain(listens).chain(sends).collect()
    }
}

/// What a node printed for a [`ProofRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// The ports that a program listened on, and the nodes that it heard there.
    pub heard: BTreeMap<u16, BTreeSet<NodeName>>,
    /// As [`Measured::unanswered`], while programs listened.
    pub unanswered: BTreeSet<Unanswered>,
}

impl Proof {
    /// What [`PROOF`] printed. `None` when it was cut off.
    pub fn parse(output: &str) -> Option<Self> {
        let sections = sections(output);
        sections.get("end")?;
        let lines = |name: &str| sections.get(name).map_or("", String::as_str).lines();
        let mut heard: BTreeMap<u16, BTreeSet<NodeName>> = BTreeMap::new();
        for line in lines("heard") {
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some(port) = words.first().and_then(|port| port.parse().ok()) else {
                continue;
            };
            let names = heard.entry(port).or_default();
            if let [_, "heard", name] = words.as_slice() {
                names.insert((*name).into());
            }
        }
        Some(Self {
            heard,
            unanswered: lines("unanswered").filter_map(unanswered).collect(),
        })
    }
}

/// What has to be proven, by node: each silence of a port that nothing listens on, as far as is known.
pub fn proofs(
    requests: &BTreeMap<NodeName, MeasureRequest>,
    measured: &BTreeMap<NodeName, Measured>,
) -> BTreeMap<NodeName, ProofRequest> {
    let mut proofs: BTreeMap<NodeName, ProofRequest> = BTreeMap::new();
    for (from, found) in measured {
        for silent in found.unanswered.iter().filter(|it| !it.proven) {
            let port = silent.peer.port;
            let to = requests
                .get(from)
                .and_then(|request| request.datagrams.get(&silent.peer));
            let Some(to) = to.filter(|to| is_free(measured, to, port)) else {
                continue;
            };
            let sender = proofs.entry(from.clone()).or_default();
            sender.sends.insert(silent.peer.clone());
            proofs.entry(to.clone()).or_default().listens.insert(port);
        }
    }
    proofs
}

/// The node was measured, and nothing listens on that UDP port.
fn is_free(measured: &BTreeMap<NodeName, Measured>, node: &NodeName, port: u16) -> bool {
    measured
        .get(node)
        .is_some_and(|its| its.untold.is_none() && !its.taken.contains(&port))
}

/// Adds what was proven to what was measured. Where a datagram arrived or an answer came there is no silence, and none
/// counts where something listens on the port.
pub fn proven(
    requests: &BTreeMap<NodeName, MeasureRequest>,
    measured: &mut BTreeMap<NodeName, Measured>,
    proofs: &BTreeMap<NodeName, Proof>,
) {
    let mut all: BTreeMap<NodeName, BTreeSet<Unanswered>> = BTreeMap::new();
    for (from, found) in measured.iter() {
        let whose = requests.get(from).map(|request| &request.datagrams);
        let stays = |it: &Unanswered| {
            let to = whose.and_then(|whose| whose.get(&it.peer))?;
            if it.proven {
                return Some(it.clone());
            }
            if !is_free(measured, to, it.peer.port) {
                return None;
            }
            let Some(again) = proofs.get(from) else {
                return Some(it.clone());
            };
            let again = again.unanswered.iter().find(|now| now.peer == it.peer)?;
            let heard = proofs
                .get(to)
                .and_then(|proof| proof.heard.get(&it.peer.port));
            match heard {
                Some(heard) if heard.contains(from) => None,
                heard => Some(Unanswered {
                    proven: again.proven || heard.is_some(),
                    ..again.clone()
                }),
            }
        };
        let stay: BTreeSet<Unanswered> = found.unanswered.iter().filter_map(stays).collect();
        all.insert(from.clone(), stay);
    }
    for (from, found) in measured.iter_mut() {
        found.unanswered = all.remove(from).unwrap_or_default();
    }
}

/// `192.0.2.7/1500 1400`.
fn lost(line: &str) -> Option<LostPackets> {
    let (packet, fits) = line.split_once(' ')?;
    let (address, bytes) = packet.split_once('/')?;
    let fits: u32 = fits.parse().ok()?;
    Some(LostPackets {
        address: address.parse().ok()?,
        bytes: bytes.parse().ok()?,
        fits: (fits > 0).then_some(fits),
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn on_this_machine(request: &MeasureRequest) -> Measured {
        let output = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .args(request.arguments())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let text = String::from_utf8(output.stdout).unwrap();
        Measured::parse(&text).expect("a whole answer")
    }

    /// A folder that does not exist yet is on the disk of the one above it; nothing stays there.
    #[test]
    fn the_disk_is_measured_next_to_the_folder_and_nothing_stays() {
        let disk = tempfile::tempdir().unwrap();
        let folder = format!("disk={}/lib/etcd", disk.path().display());
        let output = Command::new("sh")
            .args(["-c", ROOT_SCRIPT, "sh", &folder])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            super::disk(&text).is_some_and(|took| !took.is_zero()),
            "{text}"
        );
        assert_eq!(Forwarding::parse(&text), None);
        assert_eq!(disk.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_disk_that_cannot_be_written_to_is_not_measured() {
        let output = Command::new("sh")
            .args(["-c", ROOT_SCRIPT, "sh", "disk=/proc/is-not-there/etcd"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            (super::disk(&text), text.as_str()),
            (None, "@@disk\n@@end\n")
        );
    }

    #[test]
    fn nothing_is_measured_that_was_not_asked_for() {
        let nothing = on_this_machine(&MeasureRequest::default());
        assert_eq!(nothing, Measured::default());
    }

    #[test]
    fn the_slowest_of_a_hundred_does_not_count_and_the_next_does() {
        let told = |slow: usize| {
            let fast = std::iter::repeat_n("0.001", 100 - slow);
            let lines: Vec<&str> = fast.chain(std::iter::repeat_n("0.5", slow)).collect();
            super::disk(&format!("@@disk\n{}\n@@end\n", lines.join("\n")))
        };
        assert_eq!(told(0), Some(Duration::from_millis(1)));
        assert_eq!(told(1), Some(Duration::from_millis(1)));
        assert_eq!(told(2), Some(Duration::from_millis(500)));
    }

    fn peer(address: &str) -> PeerPort {
        let address = address.to_owned();
        PeerPort {
            address,
            port: 8472,
        }
    }

    /// `n1` and `n2` send datagrams to each other.
    fn two() -> BTreeMap<NodeName, MeasureRequest> {
        let request = |to: &str, address: &str| MeasureRequest {
            datagrams: [(peer(address), to.into())].into(),
            ports: [8472].into(),
            ..MeasureRequest::default()
        };
        let requests = [
            ("n1".into(), request("n2", "192.0.2.2")),
            ("n2".into(), request("n1", "192.0.2.1")),
        ];
        requests.into()
    }

    /// What `n1` and `n2` say.
    fn said(n1: &str, n2: &str) -> BTreeMap<NodeName, Measured> {
        let measured = |text: &str| Measured::parse(&format!("{text}\n@@end\n")).unwrap();
        [("n1".into(), measured(n1)), ("n2".into(), measured(n2))].into()
    }

    const SILENT: &str = "@@unanswered\n192.0.2.2/8472 silent";

    /// What is left of the silence of `n2`'s port after both said that.
    fn left(n2: &str, again: &str, heard: &str) -> Vec<bool> {
        let requests = two();
        let mut measured = said(SILENT, n2);
        let proof = |text: &str| Proof::parse(&format!("{text}\n@@end\n")).unwrap();
        let mut proofs = BTreeMap::new();
        if !proofs_wanted(&requests, &measured).is_empty() {
            proofs.insert("n1".into(), proof(again));
            proofs.insert("n2".into(), proof(heard));
        }
        proven(&requests, &mut measured, &proofs);
        let left = measured[&"n1".into()].unanswered.iter();
        left.map(|it| it.proven).collect()
    }

    fn proofs_wanted(
        requests: &BTreeMap<NodeName, MeasureRequest>,
        measured: &BTreeMap<NodeName, Measured>,
    ) -> Vec<String> {
        let proofs = super::proofs(requests, measured).into_iter();
        let words = |(name, request): (NodeName, ProofRequest)| request.arguments(&name).join(" ");
        proofs.map(words).collect()
    }

    #[test]
    fn a_silent_port_is_listened_on_unless_it_is_in_use() {
        let wanted = |n1, n2| proofs_wanted(&two(), &said(n1, n2));
        let both = ["name=n1 datagram=192.0.2.2/8472", "name=n2 listen=8472"];
        assert_eq!(wanted(SILENT, ""), both);
        assert_eq!(wanted(SILENT, "@@taken\n8472"), [""; 0]);
        assert_eq!(wanted("@@unanswered\n192.0.2.2/8472 rejected", ""), [""; 0]);
    }

    #[test]
    fn silence_is_proven_by_a_program_that_listens() {
        let silent = "@@unanswered\n192.0.2.2/8472 silent";
        let listening = "@@heard\n8472 listening";
        assert_eq!(left("", silent, listening), [true]);
        // The node has no program that listens, or it could not.
        assert_eq!(left("", silent, ""), [false]);
        // It arrived, and its answer did not come back; or that came, too.
        let heard = "@@heard\n8472 listening\n8472 heard n1";
        assert_eq!(left("", silent, heard), [false; 0]);
        assert_eq!(left("", "", heard), [false; 0]);
        // Another one was heard.
        let other = "@@heard\n8472 listening\n8472 heard n3";
        assert_eq!(left("", silent, other), [true]);
        // A tunnel has it, which answers nothing.
        assert_eq!(left("@@taken\n8472", silent, listening), [false; 0]);
    }

    #[test]
    fn what_is_not_allowed_is_proven_at_once() {
        let mut measured = said("@@unanswered\n192.0.2.2/8472 forbidden", "");
        proven(&two(), &mut measured, &BTreeMap::new());
        let found = measured[&"n1".into()].unanswered.first().unwrap();
        assert_eq!((found.how, found.proven), (Barrier::Forbidden, true));
        let mut silent = said(SILENT, "");
        proven(&two(), &mut silent, &BTreeMap::new());
        assert!(!silent[&"n1".into()].unanswered.first().unwrap().proven);
    }

    /// A port of this machine that nothing listens on refuses; one that is in use says nothing, and is listed.
    #[test]
    fn datagrams_to_this_machine_are_answered_where_nothing_listens() {
        let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let taken = socket.local_addr().unwrap().port();
        // Closed at once.
        let free = {
            let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
            socket.local_addr().unwrap().port()
        };
        let peer = |port| PeerPort {
            address: "127.0.0.1".to_owned(),
            port,
        };
        let request = MeasureRequest {
            datagrams: [(peer(taken), "n2".into()), (peer(free), "n2".into())].into(),
            ports: [taken, free].into(),
            ..MeasureRequest::default()
        };
        let measured = on_this_machine(&request);
        assert_eq!(measured.taken, [taken].into());
        let silent: Vec<u16> = measured.unanswered.iter().map(|it| it.peer.port).collect();
        assert_eq!(silent, [taken]);
    }

    /// What the script for root says of a node with these programs and this list of legacy tables.
    fn forwarding(programs: &[(&str, &str)], tables: &str) -> Forwarding {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display().to_string();
        for (name, text) in programs {
            let program = folder.path().join(name);
            std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::fs::write(folder.path().join("ip_tables_names"), tables).unwrap();
        std::fs::create_dir(folder.path().join("nf_tables")).unwrap();
        let script = ROOT_SCRIPT
            .replace("/proc/net", &root)
            .replace("/sys/module", &root)
            .replace("PATH=$PATH:", &format!("PATH={root}:$PATH:"));
        let output = Command::new("sh")
            .args(["-c", &script, "sh", "range=10.42.0.0/16"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        Forwarding::parse(&String::from_utf8(output.stdout).unwrap()).expect("a whole answer")
    }

    const DOCKERS: &str = "echo ':FORWARD DROP [0:0]'; echo '-A FORWARD -o docker0 -j DOCKER'";

    fn chains(forwarding: &Forwarding) -> Vec<String> {
        let chains = forwarding.dropping.iter();
        chains
            .map(|it| format!("{:?} {} {} {}", it.backend, it.family, it.table, it.chain))
            .collect()
    }

    #[test]
    fn chains_that_drop_are_listed_with_their_tables() {
        let lists = "case $* in\n\
            'list chains') printf 'table %s {\\n\\tchain %s {\\n\\t\\ttype filter hook %s priority filter; policy %s;\\n\\t}\\n}\\n' \
            'ip filter' FORWARD forward drop 'inet filter' input input drop 'inet own' forward forward drop \
            'bridge filter' FORWARD forward drop 'inet open' forward forward accept 'inet knows' forward forward drop ;;\n\
            *knows) echo 'ip saddr 10.42.0.0/16 accept' ;;\n\
            esac";
        let nft = ("nft", lists);
        let of_nft = ("iptables", "echo 'iptables v1.8.9 (nf_tables)'");
        let legacy = ("iptables-legacy-save", DOCKERS);
        let found = forwarding(&[nft, of_nft, legacy], "nat\nfilter\n");
        assert_eq!(found.written, Some(RuleBackend::Nft));
        assert_eq!(
            chains(&found),
            [
                "Legacy ip filter FORWARD",
                "Nft inet own forward",
                "Nft ip filter FORWARD"
            ]
        );
        // A table that the kernel does not have is not asked for: it would come with the question.
        let found = forwarding(&[of_nft, legacy, ("nft", "exit 1")], "nat\n");
        assert_eq!(chains(&found), [""; 0]);
    }

    #[test]
    fn rules_that_know_pods_are_made_for_them() {
        let none = ("nft", "exit 1");
        let old = ("iptables", "echo 'iptables v1.6.1'");
        let rules = |more: &str| format!("{DOCKERS}; echo '{more}'");
        for (more, count) in [
            ("-A FORWARD -i eth1 -j ACCEPT", 1),
            ("-A FORWARD -s 10.42.0.0/16 -j ACCEPT", 0),
            ("-A FORWARD -j KUBE-FORWARD", 0),
        ] {
            let rules = rules(more);
            let save = ("iptables-legacy-save", rules.as_str());
            let found = forwarding(&[none, old, save], "filter\n");
            assert_eq!(found.written, Some(RuleBackend::Legacy));
            assert_eq!(found.dropping.len(), count, "{more}");
        }
        assert_eq!(Forwarding::parse("@@iptables\n"), None);
    }

    #[test]
    fn half_an_answer_is_none() {
        assert_eq!(Measured::parse("@@packets\n@@taken\n"), None);
        assert_eq!(super::disk("@@disk\n0.001\n"), None);
        let disk = super::disk("@@disk\n4.1e-05\nno number\n-1\n@@end\n");
        assert_eq!(disk, Some(Duration::from_micros(41)));
        let odd = "@@packets\n192.0.2.7/1500 1400\n192.0.2.8/1500 0\nhello\n@@end\n";
        let measured = Measured::parse(odd).unwrap();
        let lost: Vec<_> = measured.lost.iter().map(|it| it.fits).collect();
        assert_eq!(lost, [Some(1400), None]);
    }
}

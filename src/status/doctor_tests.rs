//! Faults that are planted one at a time into nodes that have none. Each has to be found, with the words that lead to it
//! and to its cure; `docs/doctor.md` lists them. `UPDATE_DOCTOR=1` writes that list.

use std::{fmt::Write as _, io, sync::Arc};

use super::*;
use crate::{
    config::{Bastion, Canal, Ingress, IngressOptions, Network, NetworkMode},
    desired::fixture::{blank, claim, facts, intent_of, now, reuse_or_issue, up},
    facts::{
        Barrier, ClockFact, Interface, Route, SelinuxPolicy, SystemFacts, Unreached,
        measured::{Forwarding, Unanswered},
    },
    host::{HostError, Place, Tried},
    model::{ClusterId, Endpoint, PeerPort},
};

/// Three nodes; the first is the only control plane.
struct World {
    intent: Intent,
    have: Actual,
    measured: BTreeMap<NodeName, Measured>,
}

const NODES: [(&str, &str, &[Role]); 3] = [
    (
        "n1",
        "10.0.0.1",
        &[Role::Etcd, Role::ControlPlane, Role::Worker],
    ),
    ("n2", "10.0.0.2", &[Role::Worker]),
    ("n3", "10.0.0.3", &[Role::Worker]),
];

impl World {
    /// Without any fault.
    fn healthy() -> Self {
        let intent = intent_of(&NODES);
        let mut have = blank(&intent);
        for (name, address, _) in NODES {
            let mut facts = facts();
            let system = &mut facts.system;
            system.hostname = name.to_owned();
            system.os = "Debian GNU/Linux 12 (bookworm)".to_owned();
            system.distribution = ["debian".to_owned()].into();
            system.kernel = "6.1.0-28-amd64".to_owned();
            system.machine_id = format!("machine of {name}");
            system.boot = Some(format!("boot of {name}"));
            // Neither does any harm: nothing labels containers, and overlayfs mounts each container again.
            system.selinux = Some(SelinuxPolicy::WithContainers);
            system.no_exec = on_one_mount("/var/lib/docker", &["/var/lib/docker"]);
            system.addresses = [address.to_owned()].into();
            system.route_address = Some(address.to_owned());
            let ens3 = Interface {
                mtu: Some(1500),
                addresses: [address.parse().unwrap()].into(),
            };
            system.interfaces = [("ens3".to_owned(), ens3)].into();
            system.free = [
                ("/".to_owned(), 80 << 30),
                ("/var/lib".to_owned(), 80 << 30),
            ]
            .into();
            system.containerd.version = "1.7.24".to_owned();
            facts.clock = Some(ClockFact {
                unix_seconds: now().as_second(),
                uncertainty_ms: 20,
            });
            have.hosts.insert(name.into(), up(facts));
        }
        let measured = |(name, _, _): (&str, _, _)| {
            let measured = Measured {
                trip: Duration::from_micros(700),
                disk: Some(Duration::from_millis(2)),
                forwarding: Some(forwarding("nft ip filter FORWARD")),
                ..Measured::default()
            };
            (name.into(), measured)
        };
        Self {
            intent,
            have,
            measured: NODES.map(measured).into(),
        }
    }

    fn on(&mut self, name: &str) -> &mut HostFacts {
        match self.have.hosts.get_mut(&name.into()) {
            Some(HostView::Reachable(facts)) => facts,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn fails(&mut self, name: &str, error: &HostError) {
        let down = HostView::Unreachable(Unreachable::of(error));
        self.have.hosts.insert(name.into(), down);
    }

    /// `n2` gets no answer from the port of `n1` by which the packets of pods travel.
    fn unanswered(&mut self, how: Barrier, proven: bool) {
        let measured = self.measured.get_mut(&"n2".into()).unwrap();
        let address = "10.0.0.1".to_owned();
        measured.unanswered.insert(Unanswered {
            peer: PeerPort {
                address,
                port: 8472,
            },
            how,
            proven,
        });
    }

    /// What is to be measured, and what is found.
    fn examined(&self) -> (BTreeMap<NodeName, MeasureRequest>, Diagnosis) {
        let keys = reuse_or_issue(&self.intent, &self.have, 7);
        let wanted = keys.map(|keys| Desired::from_intent(&self.intent, &keys, &self.have));
        let (found, requests, refusal) = match &wanted {
            Ok(wanted) => {
                let wanted = wanted.as_ref().unwrap();
                (
                    plan::examine(wanted, &self.have),
                    requests(wanted, &self.have, true),
                    None,
                )
            }
            Err(error) => (Examination::default(), BTreeMap::new(), Some(error)),
        };
        let diagnosis = Diagnosis::of(&Examined {
            now: now(),
            intent: &self.intent,
            actual: &self.have,
            found: &found,
            refusal: refusal.map(|error| error as &(dyn Explain + 'static)),
            measured: &self.measured,
        });
        (requests, diagnosis)
    }
}

fn at(node: &str) -> Arc<Place> {
    Arc::new(Place {
        node: node.into(),
        endpoint: Endpoint {
            address: "10.0.0.2".to_owned(),
            port: 22,
        },
        user: "rke".to_owned(),
        hop: crate::host::Hop::Direct,
    })
}

/// Folders that one mount point has.
fn on_one_mount(at: &str, folders: &[&str]) -> BTreeMap<String, String> {
    let folders = folders.iter();
    folders
        .map(|folder| ((*folder).to_owned(), at.to_owned()))
        .collect()
}

/// Of a node whose `iptables` writes to nftables, and of which this chain drops.
fn forwarding(chain: &str) -> Forwarding {
    let output = format!("@@iptables\niptables v1.8.9 (nf_tables)\n@@dropping\n{chain}\n@@end\n");
    Forwarding::parse(&output).unwrap()
}

const SOCKET: &str = "/var/run/docker.sock";

fn route(to: &str, via: &str, device: &str) -> Route {
    Route {
        to: to.parse().unwrap(),
        via: via.parse().ok(),
        device: device.to_owned(),
        of_interface: false,
    }
}

fn unreached(port: u16, how: Barrier) -> Unreached {
    let address = "10.0.0.1".to_owned();
    Unreached {
        peer: PeerPort { address, port },
        how,
    }
}

fn refused(status: u16, message: &str) -> Unreachable {
    Unreachable::of(&HostError::Pull {
        at: at("n2"),
        image: "registry.example.com/rancher/mirrored-pause:3.6".to_owned(),
        status: Some(status),
        message: message.to_owned(),
    })
}

fn ingress() -> IngressOptions {
    IngressOptions {
        options: BTreeMap::new(),
        extra_args: BTreeMap::new(),
        node_selector: BTreeMap::new(),
        dns_policy: None,
        extra_envs: None,
        extra_volumes: Vec::new(),
        extra_volume_mounts: Vec::new(),
        update_strategy: None,
        http_port: 80,
        https_port: 443,
        network_mode: NetworkMode::HostPort,
        tolerations: Vec::new(),
        default_backend: false,
        backend_priority_class: None,
        priority_class: None,
        default_class: true,
        values: None,
    }
}

/// A fault, how it is planted, how much it matters, what `doctor` reports of it, and of its cure.
type Fault = (
    &'static str,
    fn(&mut World),
    Severity,
    &'static str,
    &'static str,
);

const FAULTS: [Fault; 67] = [
    (
        "The node is switched off",
        |it| {
            let source = io::Error::from(io::ErrorKind::HostUnreachable);
            it.fails(
                "n2",
                &HostError::Unreachable {
                    at: at("n2"),
                    source,
                },
            );
        },
        Severity::Unreachable,
        "cannot reach node `n2`",
        "is the node up",
    ),
    (
        "Nothing listens on the SSH port",
        |it| {
            let source = io::Error::from(io::ErrorKind::ConnectionRefused);
            it.fails(
                "n2",
                &HostError::Unreachable {
                    at: at("n2"),
                    source,
                },
            );
        },
        Severity::Unreachable,
        "cannot reach node `n2`",
        "port 22",
    ),
    (
        "The node's host key is not known",
        |it| {
            it.fails(
                "n2",
                &HostError::HostKeyUnknown {
                    at: at("n2"),
                    algorithm: "ssh-ed25519".to_owned(),
                    fingerprint: "SHA256:abc".to_owned(),
                },
            );
        },
        Severity::Unreachable,
        "the host key of node `n2` (10.0.0.2) is not known",
        "`--accept-new-host-keys`",
    ),
    (
        "The node's host key has changed",
        |it| {
            it.fails(
                "n2",
                &HostError::HostKeyChanged {
                    at: at("n2"),
                    algorithm: "ssh-ed25519".to_owned(),
                    fingerprint: "SHA256:abc".to_owned(),
                    place: "~/.ssh/known_hosts line 3".to_owned(),
                },
            );
        },
        Severity::Unreachable,
        "has changed or is revoked",
        "~/.ssh/known_hosts line 3",
    ),
    (
        "sshd does not accept the key",
        |it| {
            it.fails(
                "n2",
                &HostError::LoginRefused {
                    at: at("n2"),
                    key_source: "~/.ssh/id_ed25519".to_owned(),
                    tried: Tried::default(),
                    hung_up: false,
                    said: None,
                },
            );
        },
        Severity::Unreachable,
        "refuses the login of `rke`",
        "authorized_keys",
    ),
    (
        "The account has no shell",
        |it| {
            it.fails(
                "n2",
                &HostError::Shell {
                    at: at("n2"),
                    status: Some(1),
                    limit: Duration::from_secs(30),
                    said: Some("This account is currently not available.".to_owned()),
                },
            );
        },
        Severity::Unreachable,
        "This account is currently not available",
        "sudo usermod -s /bin/sh rke",
    ),
    (
        "Docker is not installed",
        |it| {
            let socket = SOCKET.to_owned();
            it.fails(
                "n2",
                &HostError::NoDocker {
                    at: at("n2"),
                    socket,
                },
            );
        },
        Severity::Unreachable,
        "there is no `/var/run/docker.sock`",
        "install Docker",
    ),
    (
        "Docker is stopped",
        |it| {
            let socket = SOCKET.to_owned();
            it.fails(
                "n2",
                &HostError::DockerNotRunning {
                    at: at("n2"),
                    socket,
                },
            );
        },
        Severity::Unreachable,
        "nothing listens on `/var/run/docker.sock`",
        "systemctl",
    ),
    (
        "The user may not use Docker",
        |it| {
            it.fails(
                "n2",
                &HostError::SocketDenied {
                    at: at("n2"),
                    socket: SOCKET.to_owned(),
                    sudo: false,
                },
            );
        },
        Severity::Unreachable,
        "user `rke` may not use",
        "usermod -aG docker rke",
    ),
    (
        "sshd does not forward to sockets",
        |it| {
            let socket = SOCKET.to_owned();
            it.fails(
                "n2",
                &HostError::ForwardingForbidden {
                    at: at("n2"),
                    socket,
                },
            );
        },
        Severity::Unreachable,
        "sshd forbids connections to `/var/run/docker.sock`",
        "AllowStreamLocalForwarding",
    ),
    (
        "sshd does not forward to ports",
        |it| it.on("n2").system.no_port_forwarding = true,
        Severity::Error,
        "forbids connections to the node's own ports",
        "AllowTcpForwarding local",
    ),
    (
        "Docker is rootless",
        |it| {
            it.on("n2")
                .docker
                .security_options
                .push("name=rootless".to_owned());
        },
        Severity::Error,
        "rootless",
        "docker_socket: /var/run/docker.sock",
    ),
    (
        "Docker maps users (`userns-remap`)",
        |it| {
            it.on("n2")
                .docker
                .security_options
                .push("name=userns".to_owned());
        },
        Severity::Error,
        "remaps users",
        "/etc/docker/daemon.json",
    ),
    (
        "Docker is older than 20.10",
        |it| it.on("n2").docker.api_version = "1.40".to_owned(),
        Severity::Error,
        "is too old",
        "upgrade Docker",
    ),
    (
        "The machine is of an architecture without images",
        |it| it.on("n2").docker.architecture = "riscv64".to_owned(),
        Severity::Error,
        "is `riscv64`",
        "another machine",
    ),
    (
        "The machine does not run systemd",
        |it| it.on("n2").system.systemd = false,
        Severity::Error,
        "does not run systemd",
        "a distribution with systemd",
    ),
    (
        "Docker is a snap or static programs, with another containerd",
        |it| {
            it.on("n2").system.containerd.socket = false;
            it.on("n2").system.containerd.unit = false;
        },
        Severity::Error,
        "its Docker comes with another containerd",
        "replace the static or snap Docker",
    ),
    (
        "containerd is stopped",
        |it| it.on("n2").system.containerd.socket = false,
        Severity::Error,
        "`containerd.service` does not run",
        "systemctl enable --now containerd",
    ),
    (
        "containerd is older than 1.6",
        |it| it.on("n2").system.containerd.version = "1.5.13".to_owned(),
        Severity::Error,
        "containerd 1.5.13 on node `n2` is too old",
        "upgrade containerd",
    ),
    (
        "There is no `ctr`",
        |it| it.on("n2").system.containerd.ctr = false,
        Severity::Error,
        "has no `ctr`",
        "containerd-ctr",
    ),
    (
        "containerd is started with flags that are not known",
        |it| {
            it.on("n2").system.containerd.command.odd = Some("/opt/containerd --nri".to_owned());
        },
        Severity::Error,
        "`/opt/containerd --nri`",
        "systemctl edit containerd",
    ),
    (
        "The disk is full",
        |it| {
            it.on("n2")
                .system
                .free
                .insert("/var/lib".to_owned(), 300 << 20);
        },
        Severity::Error,
        "has 300 MiB free at `/var/lib`",
        "docker image prune -a",
    ),
    (
        "A file system that must be written to is mounted read-only",
        |it| {
            let folders = ["/etc/containerd", "/etc/kubernetes"];
            it.on("n2").system.read_only = on_one_mount("/", &folders);
        },
        Severity::Error,
        "cannot write to `/etc/containerd`, `/etc/kubernetes`: the file system at `/` is mounted read-only",
        "sudo mount -o remount,rw /",
    ),
    (
        "The programs of network plugins are on a file system with `noexec`",
        |it| it.on("n2").system.no_exec = on_one_mount("/opt", &["/opt/cni/bin"]),
        Severity::Error,
        "cannot execute what is in `/opt/cni/bin`: the file system at `/opt` is mounted with `noexec`",
        "sudo mount -o remount,exec /opt",
    ),
    (
        "The volumes of pods are on a file system with `noexec`",
        |it| it.on("n2").system.no_exec = on_one_mount("/var", &["/var/lib/kubelet"]),
        Severity::Warning,
        "the file system of `/var/lib/kubelet` is mounted with `noexec`",
        "sudo mount -o remount,exec /var",
    ),
    (
        "SELinux is enforced, Docker or containerd labels containers, and `container-selinux` is not installed",
        |it| {
            let facts = it.on("n2");
            facts.system.distribution = ["rocky".to_owned(), "rhel".to_owned()].into();
            facts.system.selinux = Some(SelinuxPolicy::WithoutContainers);
            facts
                .docker
                .security_options
                .push("name=selinux".to_owned());
        },
        Severity::Error,
        "enforces SELinux with a policy that has no types for containers, and Docker labels containers",
        "sudo dnf install container-selinux",
    ),
    (
        "SELinux is enforced, and containerd confines the pods of flannel (`enable_selinux`)",
        |it| {
            let dump = &mut it.on("n2").system.containerd.dump;
            dump.push_str("[plugins.'io.containerd.grpc.v1.cri']\nenable_selinux = true\n");
        },
        Severity::Warning,
        "containerd labels containers (`enable_selinux`)",
        "`plugin: canal` under `network`",
    ),
    (
        "There is no `iptables`",
        |it| {
            it.on("n2")
                .system
                .lacking_tools
                .insert("iptables".to_owned());
        },
        Severity::Error,
        "has no `iptables`",
        "sudo apt install iptables",
    ),
    (
        "There is no `ip`",
        |it| {
            it.on("n2").system.lacking_tools.insert("ip".to_owned());
        },
        Severity::Error,
        "has no `ip`",
        "sudo apt install iproute2",
    ),
    (
        "Memory cgroups are off (Raspberry Pi)",
        |it| {
            it.on("n2").docker.lacking_cgroups = ["memory".to_owned()].into();
            it.on("n2").system.kernel_words = Some("/boot/firmware/cmdline.txt".to_owned());
        },
        Severity::Error,
        "has cgroups without `memory`",
        "`cgroup_enable=memory cgroup_memory=1` to the end of the one line of /boot/firmware/cmdline.txt",
    ),
    (
        "The kernel has no module for the tunnel between pods",
        |it| {
            it.on("n2").system.absent_modules = ["vxlan".to_owned()].into();
            it.on("n2").system.lacking_modules = ["vxlan".to_owned()].into();
        },
        Severity::Error,
        "has no `vxlan`",
        "a kernel of the distribution that has these modules",
    ),
    (
        "The kernel was updated, and the machine not restarted",
        |it| {
            it.on("n2").system.absent_modules = ["vxlan".to_owned()].into();
            it.on("n2").system.kernel_gone = true;
        },
        Severity::Error,
        "whose modules are no longer in /lib/modules",
        "restart the node",
    ),
    (
        "There is swap, and kubelet refuses it (`fail_swap_on: true`)",
        |it| {
            it.intent.services.fail_swap_on = true;
            it.on("n2").system.swap = true;
        },
        Severity::Error,
        "has swap in use",
        "sudo swapoff -a",
    ),
    (
        "The clock of a control plane is wrong by an hour",
        |it| {
            let clock = it.on("n1").clock.as_mut().unwrap();
            clock.unix_seconds -= 3600;
        },
        Severity::Error,
        "that of node `n1` is 60 minutes behind",
        "chrony",
    ),
    (
        "A clock is a minute ahead",
        |it| {
            let clock = it.on("n2").clock.as_mut().unwrap();
            clock.unix_seconds += 60;
        },
        Severity::Warning,
        "its clock is 60 s ahead",
        "timedatectl status",
    ),
    (
        "The `internal_address` is not one of the node's",
        |it| {
            let node = it.intent.nodes.get_mut(&"n2".into()).unwrap();
            node.internal_address = "10.9.9.9".into();
            node.has_internal_address = true;
        },
        Severity::Error,
        "node `n2` does not have 10.9.9.9",
        "the address of the node's own",
    ),
    (
        "A node's network lies in the range of pods",
        |it| {
            let tunnel = Interface {
                mtu: Some(1500),
                addresses: ["10.42.7.1".parse().unwrap()].into(),
            };
            it.on("n2")
                .system
                .interfaces
                .insert("wg0".to_owned(), tunnel);
        },
        Severity::Error,
        "has the address 10.42.7.1 (`wg0`), which lies in 10.42.0.0/16",
        "`services.kube-controller.cluster_cidr`",
    ),
    (
        "A node has a route into the range of Services",
        |it| {
            let routes = &mut it.on("n2").system.routes;
            routes.push(route("10.43.7.0/24", "10.0.0.254", "ens3"));
        },
        Severity::Error,
        "has a route to 10.43.7.0/24",
        "`services.kube-api.service_cluster_ip_range`",
    ),
    (
        "Another Kubernetes is on the node (k3s, kubeadm)",
        |it| {
            it.on("n2")
                .system
                .paths
                .insert("/var/lib/kubelet".to_owned());
        },
        Severity::Error,
        "another Kubernetes is or was on node `n2`",
        "k3s-uninstall.sh",
    ),
    (
        "The node belongs to another cluster",
        |it| {
            let other = ClusterId("0f1e2d3c".to_owned());
            let claim = claim(&other);
            let containers = &mut it.on("n2").containers;
            containers.insert(crate::model::CLAIM.to_owned(), claim);
        },
        Severity::Error,
        "belongs to another cluster: `theirs` (id `0f1e2d3c`)",
        "remove that cluster from the node first",
    ),
    (
        "Another program listens on a port that a component needs",
        |it| {
            let system = &mut it.on("n2").system;
            system.listening.insert(10250);
            system.listeners.insert(10250, "agent.service".to_owned());
        },
        Severity::Error,
        "port 10250 on node `n2`",
        "systemctl status agent.service",
    ),
    (
        "A firewall between the nodes drops packets",
        |it| {
            it.on("n2")
                .system
                .unreached
                .insert(unreached(6443, Barrier::Silent));
        },
        Severity::Error,
        "TCP port 6443 (the API server) of node `n1` at 10.0.0.1: nothing answers",
        "let 6443/tcp in from the other nodes",
    ),
    (
        "The network says that there is no way",
        |it| {
            it.on("n2")
                .system
                .unreached
                .insert(unreached(10250, Barrier::Rejected));
        },
        Severity::Error,
        "TCP port 10250 (kubelet) of node `n1`",
        "security groups",
    ),
    (
        "The node's own firewall does not let packets out",
        |it| {
            it.on("n2")
                .system
                .unreached
                .insert(unreached(6443, Barrier::Forbidden));
        },
        Severity::Error,
        "the node's own firewall forbids it",
        "sudo nft list ruleset",
    ),
    (
        "A firewall between the nodes drops calico's routes (BGP)",
        |it| {
            it.intent.network = Network::Calico(Box::default());
            let unreached = unreached(179, Barrier::Silent);
            it.on("n2").system.unreached.insert(unreached);
        },
        Severity::Error,
        "TCP port 179 (calico's routes (BGP)) of node `n1` at 10.0.0.1: nothing answers",
        "let 179/tcp in from the other nodes",
    ),
    (
        "A firewall drops the packets of pods (UDP)",
        |it| it.unanswered(Barrier::Silent, true),
        Severity::Error,
        "UDP port 8472 (traffic of pods) of node `n1` at 10.0.0.1: nothing arrived at a program that listened there",
        "let 8472/udp in from the other nodes",
    ),
    (
        "Nothing answers datagrams, which may be a firewall or not",
        |it| it.unanswered(Barrier::Silent, false),
        Severity::Warning,
        "no answer from UDP port 8472 (traffic of pods) of node `n1`",
        "whether their packets arrive",
    ),
    (
        "The network refuses the packets of pods (UDP)",
        |it| it.unanswered(Barrier::Rejected, true),
        Severity::Error,
        "UDP port 8472 (traffic of pods) of node `n1` at 10.0.0.1: the network says that there is no way",
        "security groups",
    ),
    (
        "The node's own firewall does not let the packets of pods out (UDP)",
        |it| it.unanswered(Barrier::Forbidden, true),
        Severity::Error,
        "UDP port 8472 (traffic of pods) of node `n1` at 10.0.0.1: the node's own firewall forbids it",
        "let 8472/udp out on `n2`",
    ),
    (
        "Two addresses lead to one machine",
        |it| {
            let SystemFacts {
                machine_id, boot, ..
            } = it.on("n1").system.clone();
            let system = &mut it.on("n2").system;
            (system.machine_id, system.boot) = (machine_id, boot);
        },
        Severity::Error,
        "are one machine",
        "name each machine once",
    ),
    (
        "Two machines are clones with one machine-id",
        |it| {
            let id = it.on("n1").system.machine_id.clone();
            it.on("n2").system.machine_id = id;
        },
        Severity::Error,
        "are two machines with the same machine-id",
        "systemd-machine-id-setup",
    ),
    (
        "A registry refuses the login",
        |it| {
            let why = refused(401, "unauthorized: authentication required");
            let measured = it.measured.get_mut(&"n2".into()).unwrap();
            measured.refused.insert("pause".to_owned(), why);
        },
        Severity::Error,
        "unauthorized: authentication required",
        "private_registries",
    ),
    (
        "A registry is not reached",
        |it| {
            let why = refused(500, "dial tcp: lookup registry.example.com: no such host");
            let measured = it.measured.get_mut(&"n2".into()).unwrap();
            measured.refused.insert("pause".to_owned(), why);
        },
        Severity::Error,
        "no such host",
        "can the node reach the image's registry",
    ),
    (
        "Nothing starts Docker after a restart",
        |it| {
            it.on("n2")
                .system
                .unbooted
                .insert("docker.service".to_owned());
        },
        Severity::Warning,
        "nothing starts `docker.service` when this node restarts",
        "sudo systemctl enable docker.service",
    ),
    (
        "firewalld is active",
        |it| it.on("n2").system.firewalld = true,
        Severity::Warning,
        "firewalld is active",
        "sudo firewall-cmd --permanent --add-port=10250/tcp",
    ),
    (
        "ufw is active",
        |it| {
            it.on("n2").system.services.insert("ufw".to_owned());
        },
        Severity::Warning,
        "ufw is active",
        "sudo ufw allow 10250/tcp",
    ),
    (
        "NetworkManager takes over the links of pods",
        |it| {
            it.on("n2")
                .system
                .services
                .insert("NetworkManager".to_owned());
        },
        Severity::Warning,
        "NetworkManager may take over",
        "unmanaged-devices=",
    ),
    (
        "A cloud's program changes the node's routes",
        |it| {
            let services = &mut it.on("n2").system.services;
            services.insert("nm-cloud-setup".to_owned());
        },
        Severity::Warning,
        "nm-cloud-setup changes routes",
        "sudo systemctl disable --now nm-cloud-setup.timer",
    ),
    (
        "Every name server is on the node's loopback",
        |it| it.on("n2").system.resolv_loops = true,
        Severity::Warning,
        "on the node's own loopback",
        "dns.upstreamnameservers",
    ),
    (
        "A web server has the ports of the ingress controller",
        |it| {
            it.intent.ingress = Ingress::Nginx(Box::new(ingress()));
            let system = &mut it.on("n2").system;
            system.listening.insert(80);
            system.listeners.insert(80, "nginx.service".to_owned());
        },
        Severity::Warning,
        "takes port 80 of this node from `nginx.service`",
        "`http_port` and `https_port`",
    ),
    (
        "The node's MTU is too small for the tunnel of canal",
        |it| {
            it.intent.network = Network::Canal(Box::<Canal>::default());
            let interface = it.on("n2").system.interfaces.get_mut("ens3").unwrap();
            interface.mtu = Some(1400);
        },
        Severity::Warning,
        "whose MTU is 1400",
        "`mtu: 1350` under `network`",
    ),
    (
        "The way between nodes drops long packets",
        |it| {
            let measured = it.measured.get_mut(&"n2".into()).unwrap();
            measured.lost.insert(LostPackets {
                address: "10.0.0.1".parse().unwrap(),
                bytes: 1500,
                fits: Some(1400),
            });
        },
        Severity::Warning,
        "packets of 1500 bytes to `n1` are lost on the way",
        "set the MTU of the interface to 1400",
    ),
    (
        "A table of nftables drops what the node forwards",
        |it| {
            let measured = it.measured.get_mut(&"n2".into()).unwrap();
            measured.forwarding = Some(forwarding("nft inet filter forward"));
        },
        Severity::Warning,
        "the chain `forward` of nftables' table `inet filter` drops what the node forwards",
        "`sudo nft insert rule inet filter forward ip saddr 10.42.0.0/16 accept`",
    ),
    (
        "Docker wrote to iptables-legacy, and the node's `iptables` writes to nftables",
        |it| {
            let measured = it.measured.get_mut(&"n2".into()).unwrap();
            measured.forwarding = Some(forwarding("legacy ip filter FORWARD"));
        },
        Severity::Warning,
        "the chain `FORWARD` of iptables-legacy drops what the node forwards",
        "`sudo iptables-legacy -P FORWARD ACCEPT`",
    ),
    (
        "The disk of etcd is slow",
        |it| {
            let measured = it.measured.get_mut(&"n1".into()).unwrap();
            measured.disk = Some(Duration::from_millis(48));
        },
        Severity::Warning,
        "99 of 100 writes took up to 48 ms",
        "mount an SSD or NVMe at /var/lib/etcd",
    ),
    (
        "A control plane has little memory",
        |it| it.on("n1").docker.memory = 1 << 30,
        Severity::Warning,
        "has 1024 MiB of memory",
        "more memory",
    ),
    (
        "A control plane has one processor",
        |it| it.on("n1").docker.processors = 1,
        Severity::Warning,
        "has 1 processor",
        "more processors",
    ),
];

#[test]
fn nothing_is_found_on_healthy_nodes() {
    let (requests, diagnosis) = World::healthy().examined();
    assert_eq!(diagnosis.findings, []);
    assert_eq!(diagnosis.prevents(), None);
    assert!(diagnosis.nodes.iter().all(|node| node.reachable));
    let disks = requests.values().map(|it| it.disk.is_some());
    assert_eq!(disks.collect::<Vec<_>>(), [true, false, false]);
    let packets = requests.get(&"n2".into()).unwrap().packets.clone();
    let to = |address: &str| (address.parse().unwrap(), 1500);
    assert_eq!(packets, [to("10.0.0.1"), to("10.0.0.3")].into());
    let request = requests.get(&"n2".into()).unwrap();
    let datagrams = request.datagrams.iter();
    let datagrams: Vec<_> = datagrams
        .map(|(peer, node)| format!("{peer} {node}"))
        .collect();
    assert_eq!(datagrams, ["10.0.0.1/8472 n1", "10.0.0.3/8472 n3"]);
    assert_eq!(request.ports, [8472].into());
    let pods = requests
        .values()
        .map(|it| it.pods.map(|net| net.to_string()));
    assert!(
        pods.into_iter()
            .all(|pods| pods.as_deref() == Some("10.42.0.0/16"))
    );
}

#[test]
fn each_planted_fault_is_found_with_its_cure_and_nothing_else() {
    let mut missed = Vec::new();
    for (what, plant, severity, says, cure) in FAULTS {
        let mut world = World::healthy();
        plant(&mut world);
        let (_, diagnosis) = world.examined();
        let [found] = diagnosis.findings.as_slice() else {
            missed.push(format!("{what}: {:#?}", diagnosis.findings));
            continue;
        };
        let whole = format!("{} {}", found.message, found.hints.join(" "));
        let is_found = found.message.contains(says) && whole.contains(cure);
        let prevents = diagnosis.prevents().is_some();
        let is_graded = found.severity == severity && prevents == (severity == Severity::Error);
        if !is_found || !is_graded {
            missed.push(format!("{what}: no `{says}` with `{cure}` in {found:#?}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Docker asks each registry for one image that the node lacks.
#[test]
fn a_registry_is_asked_for_what_the_node_lacks() {
    let mut world = World::healthy();
    let (requests, _) = world.examined();
    let images = |requests: &BTreeMap<NodeName, MeasureRequest>| {
        let request = requests.get(&"n2".into()).unwrap();
        request.images.keys().cloned().collect::<Vec<_>>()
    };
    let asked = images(&requests);
    assert_eq!(asked.len(), 1, "{asked:?}");
    let wanted = Desired::from_intent(
        &world.intent,
        &reuse_or_issue(&world.intent, &world.have, 7).unwrap(),
        &world.have,
    );
    let host = wanted.unwrap().hosts.get(&"n2".into()).unwrap().clone();
    world.on("n2").images = host.images;
    let (requests, _) = world.examined();
    assert_eq!(images(&requests), [""; 0]);
}

#[test]
fn several_faults_stand_in_order_and_a_node_that_is_away_is_named_once() {
    let mut world = World::healthy();
    world.on("n2").system.resolv_loops = true;
    world.on("n2").system.systemd = false;
    let source = io::Error::from(io::ErrorKind::HostUnreachable);
    world.fails(
        "n3",
        &HostError::Unreachable {
            at: at("n3"),
            source,
        },
    );
    let (_, diagnosis) = world.examined();
    let order: Vec<_> = diagnosis.findings.iter().map(|it| it.severity).collect();
    let (error, away, warning) = (Severity::Error, Severity::Unreachable, Severity::Warning);
    assert_eq!(order, [error, away, warning], "{:#?}", diagnosis.findings);
    assert_eq!(diagnosis.prevents(), Some(ErrorClass::Host));
}

/// Where the cluster cannot be made at all without them.
#[test]
fn too_few_nodes_prevent_it() {
    let mut world = World::healthy();
    let source = io::Error::from(io::ErrorKind::HostUnreachable);
    world.fails(
        "n1",
        &HostError::Unreachable {
            at: at("n1"),
            source,
        },
    );
    let (_, diagnosis) = world.examined();
    assert!(diagnosis.prevents().is_some(), "{:#?}", diagnosis.findings);
}

#[test]
fn a_way_through_bastion_hosts_has_the_time_of_each_hop() {
    let mut world = World::healthy();
    let name = NodeName::from("n2");
    let node = world.intent.nodes.get_mut(&name).unwrap();
    node.bastions = vec![Bastion {
        endpoint: Endpoint {
            address: "192.0.2.9".to_owned(),
            port: 2200,
        },
        login: node.login.clone(),
        ssh_config: [].into(),
    }];
    let measured = world.measured.get_mut(&name).unwrap();
    measured.bastion_trips = vec![Duration::from_micros(300)];
    let (_, diagnosis) = world.examined();
    let json = serde_json::to_value(&diagnosis.nodes).unwrap();
    assert_eq!(json[0].get("hops"), None, "{json}");
    let hops = serde_json::json!([
        { "address": "192.0.2.9:2200", "roundTripMicroseconds": 300 },
        { "address": "10.0.0.2:22", "roundTripMicroseconds": 700 },
    ]);
    assert_eq!(json[1]["hops"], hops);
}

/// The list of the documentation.
#[test]
fn the_documents_list_what_is_found() {
    const BEGIN: &str = "<!-- Generated by a test, `UPDATE_DOCTOR=1`. -->\n";
    let mut table = format!("{BEGIN}\n| | what `doctor` says | |\n|---|---|---|\n");
    for (what, _, severity, says, cure) in FAULTS {
        let matters = match severity {
            Severity::Error => "prevents `up`",
            Severity::Unreachable => "the node is left out",
            Severity::Warning => "warning",
        };
        let says = says.replace("n1", "NODE").replace("n2", "NODE");
        let _ = writeln!(table, "| {what} ({matters}) | … {says} … | … {cure} … |");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/doctor.md");
    let text = String::from_utf8(std::fs::read(path).unwrap()).unwrap();
    let (before, _) = text.split_once(BEGIN).expect("where the list begins");
    let now = format!("{before}{table}");
    if std::env::var_os("UPDATE_DOCTOR").is_some() {
        std::fs::write(path, now).unwrap();
    } else {
        assert_eq!(text, now, "UPDATE_DOCTOR=1 writes docs/doctor.md");
    }
}

//! `doctor` finds what is wrong with real machines, one fault at a time, and what it says cures it. Nothing stays on them.

use std::time::{Duration, Instant};

use lab::{LabSpec, Node, Profile};

use crate::{
    lab_many::{ALL, WORKER},
    real::{Run, Site, snapshot, tell},
};

/// What mends a fault.
enum Cure {
    /// This command, which the output has; `sudo` is left out.
    Said(&'static str),
    /// What the output says without a command: these words, and how it is done here.
    Done(&'static str, &'static str),
}

/// A fault of `n2`: how it is planted, the exit code of `doctor`, and what it reports.
struct Fault {
    what: &'static str,
    plant: &'static str,
    code: i32,
    says: &'static str,
    cure: Cure,
}

const FAULTS: [Fault; 36] = [
    Fault {
        what: "sshd does not run",
        plant: "systemctl stop ssh.socket ssh 2>/dev/null; systemctl stop ssh",
        code: 3,
        says: "cannot reach node `n2`",
        cure: Cure::Done("is sshd running", "systemctl start ssh"),
    },
    Fault {
        what: "another host key",
        plant: "mkdir /root/keys && mv /etc/ssh/ssh_host_* /root/keys && ssh-keygen -A && systemctl restart ssh",
        code: 3,
        says: "has changed or is revoked",
        cure: Cure::Done(
            "a different key is recorded in",
            "rm /etc/ssh/ssh_host_* && mv /root/keys/* /etc/ssh/ && rmdir /root/keys && systemctl restart ssh",
        ),
    },
    Fault {
        what: "the key is not authorized",
        plant: "mv ~USER/.ssh/authorized_keys /root/",
        code: 3,
        says: "refuses the login of `USER`",
        cure: Cure::Done("authorized_keys", "mv /root/authorized_keys ~USER/.ssh/"),
    },
    Fault {
        what: "Docker does not run",
        plant: "systemctl stop docker.socket docker",
        code: 3,
        says: "cannot reach Docker on node `n2`",
        cure: Cure::Said("sudo systemctl enable --now docker"),
    },
    Fault {
        what: "the user may not use Docker",
        plant: "gpasswd -d USER docker",
        code: 3,
        says: "user `USER` may not use `/var/run/docker.sock`",
        cure: Cure::Said("sudo usermod -aG docker USER"),
    },
    Fault {
        what: "no ctr",
        plant: "mv \"$(command -v ctr)\" /root/ctr",
        code: 2,
        says: "has no `ctr`",
        cure: Cure::Done(
            "install the package that has it",
            "mv /root/ctr /usr/bin/ctr",
        ),
    },
    Fault {
        what: "no iptables",
        plant: "mv /usr/sbin/iptables /root/",
        code: 2,
        says: "has no `iptables`",
        cure: Cure::Done("sudo apt install iptables", "mv /root/iptables /usr/sbin/"),
    },
    Fault {
        what: "kubeadm was here",
        plant: "mkdir -p /var/lib/kubelet && echo 'kind: KubeletConfiguration' >/var/lib/kubelet/config.yaml",
        code: 2,
        says: "another Kubernetes is or was on node `n2`",
        cure: Cure::Said("sudo mv /var/lib/kubelet /var/lib/kubelet.old"),
    },
    Fault {
        what: "a container has a name that is needed",
        plant: "rm -r /var/lib/kubelet.old; tar c --files-from /dev/null | docker import - empty:1 >/dev/null && \
                docker create --name kubelet empty:1 nothing >/dev/null",
        code: 2,
        says: "has a container `kubelet` of someone else",
        cure: Cure::Done("docker rm -f", "docker rm kubelet && docker rmi empty:1"),
    },
    Fault {
        what: "a port is taken",
        plant: "systemd-run --quiet --unit agent socat TCP-LISTEN:10250,fork /dev/null && sleep 1",
        code: 2,
        says: "port 10250 on node `n2`",
        cure: Cure::Done("systemctl status agent.service", "systemctl stop agent"),
    },
    Fault {
        what: "packets are dropped",
        plant: "iptables -w -I INPUT -s N1 -p tcp --dport 10250 -j DROP",
        code: 2,
        says: "nothing answers",
        cure: Cure::Done(
            "let 10250/tcp in from the other nodes",
            "iptables -w -D INPUT -s N1 -p tcp --dport 10250 -j DROP",
        ),
    },
    Fault {
        what: "packets are refused by a router",
        plant: "iptables -w -I INPUT -s N1 -p tcp --dport 10250 -j REJECT --reject-with icmp-host-prohibited",
        code: 2,
        says: "the network says that there is no way",
        cure: Cure::Done(
            "sudo nft list ruleset",
            "iptables -w -D INPUT -s N1 -p tcp --dport 10250 -j REJECT --reject-with icmp-host-prohibited",
        ),
    },
    Fault {
        what: "packets do not leave the node",
        plant: "iptables -w -I OUTPUT -d N1 -p tcp --dport 6443 -j DROP",
        code: 2,
        says: "TCP port 6443 (the API server) of node `n1`",
        cure: Cure::Done(
            "6443/tcp",
            "iptables -w -D OUTPUT -d N1 -p tcp --dport 6443 -j DROP",
        ),
    },
    Fault {
        what: "long packets are lost",
        plant: "iptables -w -I INPUT -s N1 -p icmp -m length --length 1401: -j DROP",
        code: 0,
        says: "packets of 1500 bytes to `n2` are lost on the way, and of 1400 bytes they arrive",
        cure: Cure::Done(
            "let the network between the nodes carry 1500 bytes",
            "iptables -w -D INPUT -s N1 -p icmp -m length --length 1401: -j DROP",
        ),
    },
    Fault {
        what: "a network in the range of pods",
        plant: "ip link add wg0 type bridge && ip addr add 10.42.7.1/24 dev wg0 && ip link set wg0 up",
        code: 1,
        says: "which lies in 10.42.0.0/16, the range of pods",
        cure: Cure::Done("write another range as", "ip link del wg0"),
    },
    Fault {
        what: "a route into the range of Services",
        plant: "ip route add 10.43.7.0/24 via N1",
        code: 1,
        says: "node `n2` has a route to 10.43.7.0/24",
        cure: Cure::Done("write another range as", "ip route del 10.43.7.0/24"),
    },
    Fault {
        what: "a clone of the other machine",
        plant: "cp /etc/machine-id /root/; echo ID1 >/etc/machine-id",
        code: 2,
        says: "are two machines with the same machine-id",
        cure: Cure::Done(
            "sudo rm /etc/machine-id && sudo systemd-machine-id-setup",
            "cp /root/machine-id /etc/machine-id; rm /root/machine-id",
        ),
    },
    Fault {
        what: "a folder is on a file system that is mounted read-only",
        plant: "mount -t tmpfs -o ro tmpfs /etc/modules-load.d",
        code: 2,
        says: "cannot write to `/etc/modules-load.d`: the file system at `/etc/modules-load.d` is mounted read-only",
        cure: Cure::Done(
            "sudo mount -o remount,rw /etc/modules-load.d",
            "umount /etc/modules-load.d",
        ),
    },
    Fault {
        what: "programs of network plugins may not be executed",
        plant: "mkdir -p /opt/cni/bin && mount -t tmpfs -o noexec tmpfs /opt/cni/bin",
        code: 2,
        says: "cannot execute what is in `/opt/cni/bin`",
        cure: Cure::Done(
            "sudo mount -o remount,exec /opt/cni/bin",
            "umount /opt/cni/bin && rmdir --ignore-fail-on-non-empty /opt/cni/bin",
        ),
    },
    Fault {
        what: "what is in the volumes of pods may not be executed",
        plant: "mkdir -p /var/lib/kubelet && mount -t tmpfs -o noexec tmpfs /var/lib/kubelet",
        code: 0,
        says: "the file system of `/var/lib/kubelet` is mounted with `noexec`",
        cure: Cure::Done(
            "sudo mount -o remount,exec /var/lib/kubelet",
            "umount /var/lib/kubelet && rmdir /var/lib/kubelet",
        ),
    },
    Fault {
        what: "nothing starts Docker",
        plant: "systemctl --quiet disable docker.service docker.socket",
        code: 0,
        says: "nothing starts `docker.service` when this node restarts",
        cure: Cure::Said("sudo systemctl enable docker.service"),
    },
    Fault {
        what: "ufw is on",
        plant: "mkdir -p /etc/ufw && echo ENABLED=yes >/etc/ufw/ufw.conf",
        code: 0,
        says: "ufw is active",
        cure: Cure::Done("sudo ufw allow 10250/tcp", "rm -r /etc/ufw"),
    },
    Fault {
        what: "a resolver of the node's own",
        plant: "cp /etc/resolv.conf /root/; echo 'nameserver 127.0.0.53' >/etc/resolv.conf",
        code: 0,
        says: "is on the node's own loopback",
        cure: Cure::Done(
            "dns.upstreamnameservers",
            "cat /root/resolv.conf >/etc/resolv.conf; rm /root/resolv.conf",
        ),
    },
    Fault {
        what: "users are mapped",
        plant: "cp -p /etc/docker/daemon.json /root/ && sed -i 's/^{/{\"userns-remap\": \"default\",/' /etc/docker/daemon.json && \
                systemctl restart docker",
        code: 2,
        says: "remaps users",
        cure: Cure::Done(
            "remove `userns-remap` from /etc/docker/daemon.json and restart Docker",
            "mv /root/daemon.json /etc/docker/daemon.json && systemctl restart docker",
        ),
    },
    Fault {
        what: "the account has no shell",
        plant: "usermod -s /usr/sbin/nologin USER",
        code: 3,
        says: "This account is currently not available",
        cure: Cure::Done("sudo usermod -s /bin/sh USER", "usermod -s /bin/bash USER"),
    },
    Fault {
        what: "containerd does not run",
        plant: "systemctl stop containerd; rm -f /run/containerd/containerd.sock",
        code: 2,
        says: "its `containerd.service` does not run",
        cure: Cure::Said("sudo systemctl enable --now containerd"),
    },
    Fault {
        what: "containerd is too old",
        plant: "mv /usr/bin/containerd /usr/bin/containerd.real && cat >/usr/bin/containerd <<'END' && chmod 755 /usr/bin/containerd\n\
                #!/bin/sh\n\
                [ \"$1\" = --version ] && echo 'containerd github.com/containerd/containerd 1.5.13 0' && exit\n\
                exec /usr/bin/containerd.real \"$@\"\n\
                END",
        code: 2,
        says: "containerd 1.5.13 on node `n2` is too old",
        cure: Cure::Done(
            "upgrade containerd on the node",
            "mv /usr/bin/containerd.real /usr/bin/containerd",
        ),
    },
    Fault {
        what: "containerd is started in a way that is not known",
        plant: "mkdir /etc/systemd/system/containerd.service.d && \
                printf '[Service]\\nExecStart=\\nExecStart=/usr/bin/containerd --address /run/other.sock\\n' \
                >/etc/systemd/system/containerd.service.d/other.conf && systemctl daemon-reload",
        code: 2,
        says: "started with flags that rke-operator does not know",
        cure: Cure::Done(
            "systemctl edit containerd",
            "rm -r /etc/systemd/system/containerd.service.d && systemctl daemon-reload",
        ),
    },
    Fault {
        what: "the disk is almost full",
        plant: "grep -qx capped /run/lab/disk && \
                fallocate -l $(($(df --output=avail -B1 /var/lib | tail -n 1) - 1073741824)) /var/lib/lab-fill",
        code: 2,
        says: "MiB free at `/var/lib`",
        cure: Cure::Done("docker image prune -a", "rm /var/lib/lab-fill"),
    },
    Fault {
        what: "datagrams are dropped",
        plant: "iptables -w -I INPUT -s N1 -p udp --dport 8472 -j DROP",
        code: 2,
        says: "UDP port 8472 (traffic of pods) of node `n2` at N2: nothing arrived at a program that listened there",
        cure: Cure::Done(
            "let 8472/udp in from the other nodes",
            "iptables -w -D INPUT -s N1 -p udp --dport 8472 -j DROP",
        ),
    },
    Fault {
        what: "datagrams are refused by a router",
        plant: "iptables -w -I INPUT -s N1 -p udp --dport 8472 -j REJECT --reject-with icmp-host-prohibited",
        code: 2,
        says: "UDP port 8472 (traffic of pods) of node `n2` at N2: the network says that there is no way",
        cure: Cure::Done(
            "sudo nft list ruleset",
            "iptables -w -D INPUT -s N1 -p udp --dport 8472 -j REJECT --reject-with icmp-host-prohibited",
        ),
    },
    Fault {
        what: "datagrams do not leave the node",
        plant: "iptables -w -I OUTPUT -d N1 -p udp --dport 8472 -j DROP",
        code: 2,
        says: "UDP port 8472 (traffic of pods) of node `n1` at N1: the node's own firewall forbids it",
        cure: Cure::Done(
            "let 8472/udp out on `n2`",
            "iptables -w -D OUTPUT -d N1 -p udp --dport 8472 -j DROP",
        ),
    },
    Fault {
        what: "firewalld is on",
        plant: "systemd-run --quiet --unit firewalld sleep infinity",
        code: 0,
        says: "firewalld is active",
        cure: Cure::Done(
            "sudo firewall-cmd --permanent --add-port=10250/tcp",
            "systemctl stop firewalld",
        ),
    },
    Fault {
        what: "NetworkManager is on",
        plant: "systemd-run --quiet --unit NetworkManager sleep infinity",
        code: 0,
        says: "NetworkManager may take over the links of pods",
        cure: Cure::Done("unmanaged-devices=", "systemctl stop NetworkManager"),
    },
    Fault {
        what: "a cloud's program changes routes",
        plant: "systemd-run --quiet --unit nm-cloud-setup sleep infinity",
        code: 0,
        says: "nm-cloud-setup changes routes",
        cure: Cure::Done(
            "sudo systemctl disable --now nm-cloud-setup.timer",
            "systemctl stop nm-cloud-setup",
        ),
    },
    Fault {
        what: "the registry's authority is not known",
        plant: "mv /etc/docker/certs.d /root/",
        code: 2,
        says: "the image's registry",
        cure: Cure::Done("private_registries", "mv /root/certs.d /etc/docker/"),
    },
];

/// A service that was just told to read its configuration again needs a moment.
const MOMENT: Duration = Duration::from_secs(30);

fn doctor(site: &Site) -> Run {
    site.run(&["doctor", "--no-write"])
}

/// With that exit code, and all of these words.
#[track_caller]
fn finds(site: &Site, code: i32, words: &[&str]) {
    let mut last = None;
    let begun = Instant::now();
    while begun.elapsed() < MOMENT {
        let run = doctor(site);
        let said = format!("{}{}", run.stdout, run.stderr);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        if run.status == code && words.iter().all(|word| said.contains(word)) {
            return;
        }
        last = Some(run);
    }
    panic!("not {code} with {words:?}: {last:?}");
}

/// A script with what it is about.
fn filled(script: &str, n1: &Node, n2: &Node) -> String {
    let id = n1.sh("cat /etc/machine-id").expect("an id");
    script
        .replace("USER", n2.user())
        .replace("ID1", id.trim())
        .replace("N1", &n1.address().to_string())
        .replace("N2", &n2.address().to_string())
}

/// What Docker leaves of the first container in the host's network, by which a disk is measured that only root may write to.
const OF_DOCKER: [snapshot::Allowed; 2] = [
    (
        "mounts",
        snapshot::CAME,
        "/run/docker/netns/default",
        "Docker's own, since the first container in the host's network",
    ),
    (
        "pods",
        snapshot::CAME,
        "moby",
        "Docker's own namespace in containerd, since the first container",
    ),
];

#[test]
fn each_fault_of_a_machine_is_found_and_what_is_said_cures_it() {
    let spec = ["n1", "n2"]
        .iter()
        .fold(LabSpec::own("doctor"), |spec, name| {
            spec.node(name, Profile::Plain)
        });
    let site = Site::of(&spec);
    site.names(&[("n1", ALL), ("n2", WORKER)]);
    let (n1, n2) = (site.lab.node("n1"), site.lab.node("n2"));
    // What iptables makes when it is first used is there before, too.
    n2.sh("iptables -w -L >/dev/null").expect("iptables");
    let before = [n1, n2].map(|node| (node, snapshot::take(node)));
    let healthy = "every node answers, and nothing prevents `up`";
    let begun = Instant::now();
    let run = site.run(&["doctor"]);
    let took = begun.elapsed();
    tell(&run.stdout);
    // How fast the disk is here does not matter.
    assert!(run.status == 0 && run.stdout.contains(healthy), "{run:?}");
    tell(&format!("doctor of two nodes: {:.1} s", took.as_secs_f64()));
    for (node, before) in &before {
        snapshot::unchanged(node, before, &OF_DOCKER);
    }

    for fault in &FAULTS {
        tell(fault.what);
        let plant = filled(fault.plant, n1, n2);
        n2.sh(&plant).expect(fault.what);
        let (words, cure) = match fault.cure {
            Cure::Said(command) => (command, command.replace("sudo ", "")),
            Cure::Done(words, script) => (words, script.to_owned()),
        };
        let what = [fault.says, words].map(|text| filled(text, n1, n2));
        finds(&site, fault.code, &what.each_ref().map(String::as_str));
        n2.sh(&filled(&cure, n1, n2)).expect(fault.what);
        Site::eventually("it is cured", MOMENT, || {
            let run = doctor(&site);
            run.status == 0 && run.stdout.trim_end().ends_with(healthy)
        });
    }

    // What nothing prevents is no fault: kernels need not say that nothing listens on a port.
    tell("the answers of closed ports are dropped");
    let silent = "iptables -w -I OUTPUT -p icmp --icmp-type destination-unreachable -j DROP";
    n2.sh(silent).expect("a rule");
    let run = doctor(&site).well();
    assert!(run.stdout.trim_end().ends_with(healthy), "{run:?}");
    n2.sh(&silent.replace("-I", "-D")).expect("no rule");

    // Root reads the rules, in a container: where nothing may be written, nothing is read. Not every lab has `nft`.
    if n2.sh("command -v nft").is_ok() {
        tell("a table of nftables drops what is forwarded");
        let table = "nft add table inet lab && \
                     nft add chain inet lab forward '{ type filter hook forward priority 0; policy drop; }'";
        n2.sh(table).expect("a table");
        let run = site.run(&["doctor"]).well();
        let said = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let cure = "sudo nft insert rule inet lab forward ip saddr 10.42.0.0/16 accept";
        assert!(said.contains(cure), "{run:?}");
        n2.sh(cure.trim_start_matches("sudo ")).expect("a rule");
        let run = site.run(&["doctor"]).well();
        assert!(!run.stdout.contains("inet lab"), "{run:?}");
        n2.sh("nft delete table inet lab").expect("no table");
    }

    tell("a node is off");
    n2.stop().expect("it is off");
    finds(&site, 3, &["is the node up", "1 node cannot be used"]);
    n2.start().expect("it is on");
    n2.wait_ssh(Duration::from_secs(60)).expect("it answers");
    tell("the registry is off");
    site.lab.registry().stop().expect("it stops");
    finds(&site, 2, &["the image's registry"]);
    site.lab.registry().start().expect("it starts");
    finds(&site, 0, &[healthy]);
    // `n2` has marks of what was planted there.
    let [(node, before), _] = &before;
    snapshot::unchanged(node, before, &OF_DOCKER);
}

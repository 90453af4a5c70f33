//! The lab keeps its word: images with the published images' files, nodes that behave as servers,
//! and nothing left afterwards.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use lab::{Fault, Lab, LabSpec, Node, NodeSpec, NodeState, Profile, Store, Suite};

/// How long a node may take until its user can log in.
const SOON: Duration = Duration::from_secs(60);

fn up(spec: &LabSpec) -> Lab {
    Lab::up(spec, &mut std::io::stderr()).expect("a lab")
}

fn docker(args: &[&str]) -> String {
    let output = Command::new("docker")
        .args(args)
        .output()
        .expect("docker runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// What in this machine's Docker bears a lab's name.
fn labelled(lab: &str) -> Vec<String> {
    let filter = format!("label=io.rke.lab={lab}");
    [
        ["container", "ls", "--all"].as_slice(),
        &["network", "ls"],
        &["volume", "ls"],
    ]
    .into_iter()
    .flat_map(|kind| {
        let list = docker(&[kind, &["--quiet", "--filter", &filter]].concat());
        list.lines().map(str::to_owned).collect::<Vec<_>>()
    })
    .collect()
}

/// Whether a node's disk is attached to a loop device of this machine.
fn is_attached(inode: u64) -> bool {
    let list = Command::new("losetup")
        .args(["--noheadings", "--output", "BACK-INO"])
        .output();
    let list = String::from_utf8_lossy(&list.expect("losetup runs").stdout).into_owned();
    list.lines().any(|line| line.trim() == inode.to_string())
}

#[test]
fn images_have_exactly_the_files_of_the_published_ones() {
    let images = lab::images(&mut std::io::stderr()).expect("the images");
    let files = |program: &str| images.program(program).unwrap().files().unwrap();

    assert_eq!(
        files("etcd"),
        ["/usr/local/bin/etcd", "/usr/local/bin/etcdctl"]
    );
    assert_eq!(files("pause"), ["/pause"]);

    // What the published images have beside busybox.
    let own = |program: &str| -> Vec<String> {
        let base = [
            "/bin",
            "/sbin",
            "/lib",
            "/lib64",
            "/etc/passwd",
            "/etc/group",
        ];
        files(program)
            .into_iter()
            .filter(|file| !file.starts_with("/usr/") && !base.contains(&file.as_str()))
            .collect()
    };
    assert_eq!(own("coredns"), ["/coredns"]);
    assert_eq!(own("flannel"), ["/opt/bin/flanneld"]);
    let mut plugins: Vec<String> = [
        "bandwidth",
        "bridge",
        "dhcp",
        "dummy",
        "firewall",
        "flannel",
        "host-device",
        "host-local",
        "ipvlan",
        "loopback",
        "macvlan",
        "portmap",
        "ptp",
        "sbr",
        "static",
        "tap",
        "tuning",
        "vlan",
        "vrf",
    ]
    .map(|plugin| format!("/opt/cni/bin/{plugin}"))
    .to_vec();
    plugins.insert(0, "/install-cnis.sh".to_owned());
    assert_eq!(own("cni-plugins"), plugins);

    let kubernetes = files("kubernetes");
    let programs: Vec<&String> = kubernetes
        .iter()
        .filter(|file| file.starts_with("/usr/local/bin/"))
        .collect();
    assert_eq!(
        programs,
        [
            "/usr/local/bin/kube-apiserver",
            "/usr/local/bin/kube-controller-manager",
            "/usr/local/bin/kube-proxy",
            "/usr/local/bin/kube-scheduler",
            "/usr/local/bin/kubectl",
            "/usr/local/bin/kubelet",
        ]
    );
    for needed in [
        "bash",
        "cat",
        "chroot",
        "iptables",
        "nft",
        "ipset",
        "conntrack",
        "modprobe",
    ] {
        let there = |dir: &str| kubernetes.contains(&format!("/usr/{dir}/{needed}"));
        assert!(
            there("bin") || there("sbin"),
            "the Kubernetes image has no {needed}"
        );
    }
    for image in images.published() {
        // Docker makes these; in an image they would be those of the machine that built it.
        for trace in ["/etc/hostname", "/etc/resolv.conf", "/etc/hosts"] {
            assert!(
                !files(&image.program).contains(&trace.to_owned()),
                "{}",
                image.program
            );
        }
        let version = &image.config().unwrap()["Labels"]["io.rke.lab.version"];
        assert_eq!(version.as_str(), Some(image.version.as_str()));
    }
}

#[test]
fn a_build_that_was_cut_is_not_taken_as_whole() {
    let root = tempfile::tempdir().unwrap();
    let making = root.path().join("images/.pause-making/image");
    fs::create_dir_all(&making).unwrap();
    fs::write(making.join("layer.tar"), "half").unwrap();

    let store = Store::new(root.path(), None);
    let mut log = Vec::new();
    let image = store.image("pause", &mut log).unwrap();
    assert_eq!(image.files().unwrap(), ["/pause"]);
    let log = String::from_utf8(log).unwrap();
    assert!(
        log.starts_with("[1/1] pause 3.6 …") && log.ends_with(" s\n"),
        "{log}"
    );

    let mut again = Vec::new();
    store.image("pause", &mut again).unwrap();
    assert!(again.is_empty(), "it was built a second time");
}

#[test]
fn kubectl_runs_on_this_machine() {
    let kubectl = lab::kubectl().unwrap();
    assert_eq!(kubectl.file_name().unwrap(), "kubectl");
    let output = Command::new(kubectl)
        .args(["version", "--client"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(lab::KUBERNETES_VERSION), "{said}");
}

/// OpenSSH with an option, as the lab's user.
fn ssh_with(lab: &Lab, node: &Node, options: &[&str]) -> Output {
    Command::new("ssh")
        .args(["-F", "none", "-o", "BatchMode=yes", "-i"])
        .arg(lab.ssh_key())
        .arg("-o")
        .arg(format!(
            "UserKnownHostsFile={}",
            lab.known_hosts().display()
        ))
        .args(options)
        .arg(format!("{}@{}", node.user(), node.address()))
        .output()
        .expect("ssh runs")
}

#[test]
fn nodes_are_servers_set_up_as_their_profiles_say() {
    let mut spec = LabSpec::new("self-nodes")
        .node("cri-off", Profile::CriOff)
        .node("no-forwarding", Profile::NoForwarding)
        .node("sudo-only", Profile::SudoOnly);
    let disk = 3 << 30;
    spec.nodes.push(NodeSpec {
        name: "plain".to_owned(),
        profile: Profile::Plain,
        suite: Suite::default(),
        disk,
    });
    let lab = up(&spec);

    for node in lab.nodes() {
        let name = node.name();
        assert_eq!(
            node.sh("systemctl is-system-running").unwrap(),
            "running",
            "{name}"
        );
        assert_eq!(
            node.sh("systemctl is-active ssh docker containerd")
                .unwrap()
                .lines()
                .count(),
            3
        );
        assert_eq!(node.ssh("hostname").unwrap().stdout.trim(), name);
        let plain_user = node.profile() != Profile::SudoOnly;
        assert_eq!(node.ssh("docker ps").unwrap().ok(), plain_user, "{name}");
        assert_eq!(
            node.ssh("sudo -n docker ps").unwrap().ok(),
            !plain_user,
            "{name}"
        );
        // The product makes and removes these as on a server: nothing is mounted there.
        let mounts = node.sh("cat /proc/self/mounts").unwrap();
        for product in [
            "/var/lib/etcd",
            "/var/lib/kubelet",
            "/etc/kubernetes",
            "/opt/cni",
        ] {
            assert!(
                !node.exec(&format!("test -e {product}")).unwrap().ok(),
                "{name}: {product}"
            );
            assert!(!mounts.contains(product));
        }
    }

    let cri_off = lab.node("cri-off");
    assert_eq!(
        cri_off
            .exec("cat /etc/containerd/config.toml")
            .unwrap()
            .stdout,
        include_str!("../lab/profiles/containerd-of-docker.toml")
    );
    assert!(
        !cri_off
            .exec("ctr plugin ls | grep -w cri | grep -w ok")
            .unwrap()
            .ok()
    );

    let plain = lab.node("plain");
    plain
        .sh("ctr plugin ls | grep -w cri | grep -w ok")
        .expect("CRI is on");
    let as_shipped = "dpkg-query --show --showformat '${Conffiles}' containerd \
        | awk '/config.toml/ {print $2 \"  \" $1}' | md5sum --check";
    plain
        .sh(as_shipped)
        .expect("containerd's configuration is the package's");
    if plain.sh("cat /run/lab/disk").unwrap() == "capped" {
        let size: u64 = plain
            .sh("df --output=size -B1 /var/lib | tail -n 1")
            .unwrap()
            .parse()
            .unwrap();
        assert!((disk - (disk >> 4)..=disk).contains(&size), "{size}");
    }

    let forward = ["-W", "127.0.0.1:22"];
    let denied = ssh_with(&lab, lab.node("no-forwarding"), &forward);
    assert!(!denied.stdout.starts_with(b"SSH-2.0"), "it forwards");
    assert!(
        ssh_with(&lab, plain, &forward)
            .stdout
            .starts_with(b"SSH-2.0"),
        "it does not forward"
    );

    // A first login leaves one of the server's keys in known_hosts.
    let known = fs::read_to_string(lab.known_hosts()).unwrap();
    assert_eq!(known.lines().count(), lab.nodes().len());
    assert_eq!(
        plain
            .sh("ls /etc/ssh/ssh_host_*_key")
            .unwrap()
            .lines()
            .count(),
        2
    );

    pulls_are_pulls(&lab, plain);
    images_can_be_put_onto_a_node(plain);
}

/// Docker and containerd take images from the lab's registry, under the published names.
fn pulls_are_pulls(lab: &Lab, node: &Node) {
    let asked = |who: &str| {
        let log = lab.registry().log().unwrap();
        log.lines()
            .filter(|line| line.starts_with(&node.address().to_string()))
            .filter(|line| line.contains("/v2/rancher/mirrored-pause/") && line.contains(who))
            .count()
    };
    assert_eq!(asked(""), 0);
    let pull = node
        .ssh("docker pull --quiet rancher/mirrored-pause:3.6")
        .unwrap();
    assert!(pull.ok(), "{}", pull.stderr);
    assert!(
        asked("docker/") >= 2,
        "Docker asked for neither manifest nor layer"
    );
    node.sh(
        "ctr images pull --hosts-dir /etc/containerd/certs.d docker.io/rancher/mirrored-pause:3.6",
    )
    .unwrap();
    assert!(
        asked("containerd/") >= 2,
        "containerd asked for neither manifest nor layer"
    );
}

/// For the benchmark: no pull is left to do.
fn images_can_be_put_onto_a_node(node: &Node) {
    let images = lab::images(&mut std::io::sink()).unwrap();
    node.load_images(&images).unwrap();
    let docker = node
        .sh("docker image ls --format '{{.Repository}}:{{.Tag}}'")
        .unwrap();
    let containerd = node.sh("ctr --namespace k8s.io images ls --quiet").unwrap();
    for image in images.published() {
        for name in &image.names {
            // Docker shows its own library's images without it.
            let short = name.trim_start_matches("library/");
            assert!(
                docker.lines().any(|line| line == short),
                "{name} is not in Docker: {docker}"
            );
        }
    }
    for pod in [
        "mirrored-pause",
        "hardened-coredns",
        "hardened-flannel",
        "hardened-cni-plugins",
    ] {
        assert!(
            containerd.contains(&format!("docker.io/rancher/{pod}:")),
            "{containerd}"
        );
    }
}

#[test]
fn what_happens_to_servers_happens_to_nodes() {
    let lab = up(&LabSpec::new("self-events").node("n1", Profile::Plain));
    let node = lab.node("n1");
    node.sh("docker run -d --name keeper --restart always rancher/mirrored-pause:3.6")
        .unwrap();
    node.sh("touch /run/marker /var/lib/marker").unwrap();

    node.reboot().unwrap();
    node.wait_ssh(SOON).unwrap();
    assert_eq!(node.wait_started(SOON).unwrap(), Vec::<String>::new());
    assert!(
        node.exec("test -e /var/lib/marker && ! test -e /run/marker")
            .unwrap()
            .ok()
    );
    assert_eq!(
        node.sh("docker inspect --format '{{.State.Running}}' keeper")
            .unwrap(),
        "true"
    );

    node.stop().unwrap();
    assert_eq!(node.state().unwrap(), NodeState::Stopped);
    assert!(!node.ssh("true").unwrap().ok());
    node.start().unwrap();
    node.wait_ssh(SOON).unwrap();
    assert!(node.exec("test -e /var/lib/marker").unwrap().ok());

    node.pause().unwrap();
    assert_eq!(node.state().unwrap(), NodeState::Paused);
    assert!(!node.ssh("true").unwrap().ok());
    node.resume().unwrap();
    node.wait_ssh(SOON).unwrap();

    node.cut().unwrap();
    assert!(!node.ssh("true").unwrap().ok());
    assert_eq!(node.sh("cat /sys/class/net/eth0/carrier").unwrap(), "0");
    node.heal().unwrap();
    node.wait_ssh(SOON).unwrap();
    node.sh("ip route show default | grep -q eth0")
        .expect("it kept its routes");

    node.wait_started(SOON).unwrap();
    if node.sh("cat /run/lab/disk").unwrap() == "capped" {
        node.fill_disk().unwrap();
        let write = node
            .exec("head -c 100000 /dev/zero > /var/lib/more")
            .unwrap();
        assert!(
            write.stderr.contains("No space left on device"),
            "{}",
            write.stderr
        );
        node.free_disk().unwrap();
        node.sh("head -c 100000 /dev/zero > /var/lib/more").unwrap();
    }

    node.break_cri().unwrap();
    let restart = node
        .exec("timeout 20 systemctl restart containerd")
        .unwrap();
    assert!(!restart.ok(), "containerd runs with CRI");
    node.sh("echo 'disabled_plugins = [\"cri\"]' > /etc/containerd/config.toml")
        .unwrap();
    node.sh("systemctl restart containerd")
        .expect("without CRI it runs");

    let logs = tempfile::tempdir().unwrap();
    node.logs(logs.path()).unwrap();
    let journal = fs::read_to_string(logs.path().join("n1/journal.log")).unwrap();
    assert!(journal.contains("containerd"), "the journal is empty");
    assert!(logs.path().join("n1/container-keeper.log").exists());
}

/// Whether a node reaches an address.
fn reaches(node: &Node, other: &Node) -> bool {
    let ping = format!("ping -c 1 -W 1 {}", other.address());
    node.exec(&ping).unwrap().ok()
}

/// Bytes a second that come from one node to another.
fn speed(from: &Node, to: &Node) -> u64 {
    let bytes = 3_000_000;
    from.sh(&format!(
        "head -c {bytes} /dev/zero | setsid socat -u - TCP-LISTEN:7777,reuseaddr > /dev/null 2>&1 &"
    ))
    .unwrap();
    let begun = Instant::now();
    let got = to
        .sh(&format!(
            "socat -u TCP:{}:7777,retry=50,interval=0.1 - | wc -c",
            from.address()
        ))
        .unwrap();
    assert_eq!(got, bytes.to_string());
    bytes * 1000 / u64::try_from(begun.elapsed().as_millis()).unwrap().max(1)
}

#[test]
fn faults_do_what_they_say_once_or_twice_and_are_healed() {
    let spec = ["n1", "n2", "n3"]
        .iter()
        .fold(LabSpec::new("self-faults"), |spec, name| {
            spec.node(name, Profile::Plain)
        });
    let lab = up(&spec);
    let [n1, n2, n3] = ["n1", "n2", "n3"].map(|name| lab.node(name));
    let rules = "iptables --table mangle --list-rules";
    let before = n1.sh(rules).unwrap();

    for _ in 0..2 {
        n1.cut_from(n2).unwrap();
    }
    assert!(!reaches(n1, n2) && !reaches(n2, n1), "they hear each other");
    assert!(reaches(n1, n3) && reaches(n3, n2), "the others are cut too");
    assert!(n1.ssh("true").unwrap().ok(), "the tool is cut too");
    lab.heal().unwrap();
    assert!(reaches(n1, n2) && reaches(n2, n1), "they are still cut");
    assert_eq!(n1.sh(rules).unwrap(), before, "something is left");

    for _ in 0..2 {
        n1.suffer(Fault::NoTool).unwrap();
    }
    assert!(!n1.ssh("true").unwrap().ok(), "the tool still reaches it");
    assert!(reaches(n2, n1) && reaches(n1, n2));
    n1.heal().unwrap();
    assert!(n1.ssh("true").unwrap().ok());

    for _ in 0..2 {
        n1.suffer(Fault::Slow).unwrap();
    }
    for (from, to) in [(n1, n2), (n2, n1)] {
        let slow = speed(from, to);
        assert!(
            (500_000..1_300_000).contains(&slow),
            "{slow} bytes a second"
        );
    }
    n1.heal().unwrap();
    assert!(speed(n1, n2) > 2_000_000 && speed(n2, n1) > 2_000_000);

    for (fault, state) in [
        (Fault::Off, NodeState::Stopped),
        (Fault::Hang, NodeState::Paused),
    ] {
        for _ in 0..2 {
            n1.suffer(fault).unwrap();
        }
        assert_eq!(n1.state().unwrap(), state);
        lab.heal().unwrap();
        assert_eq!(n1.state().unwrap(), NodeState::Running);
    }
    for fault in [Fault::Unplugged, Fault::Hang, Fault::Off] {
        n1.suffer(fault).unwrap();
    }
    lab.heal().unwrap();
    assert!(reaches(n2, n1));
}

#[test]
fn two_labs_stand_side_by_side_and_leave_nothing() {
    let names = ["self-left", "self-right"];
    let labs: Vec<Lab> = std::thread::scope(|scope| {
        let threads = names
            .map(|name| scope.spawn(move || up(&LabSpec::new(name).node("n1", Profile::Plain))));
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a lab"))
            .collect()
    });
    let addresses: Vec<_> = labs.iter().map(|lab| lab.node("n1").address()).collect();
    assert_ne!(addresses[0], addresses[1]);

    let mut labs = labs.into_iter();
    let (left, right) = (labs.next().unwrap(), labs.next().unwrap());
    images_come_from_a_registry_if_asked(&left);
    let folder = left.dir().to_owned();
    let disk = fs::metadata(folder.join("nodes/n1/host/disk.img"))
        .unwrap()
        .ino();
    let capped = left.node("n1").sh("cat /run/lab/disk").unwrap() == "capped";
    assert_eq!(is_attached(disk), capped);
    left.destroy().unwrap();
    assert!(!is_attached(disk), "the disk is still attached");
    assert_eq!(labelled(names[0]), Vec::<String>::new());
    assert!(!folder.exists());
    assert!(
        right.node("n1").ssh("docker ps").unwrap().ok(),
        "the other lab suffered"
    );
    drop(right);
    assert_eq!(labelled(names[1]), Vec::<String>::new());
}

/// What `LAB_REGISTRY` does, against the lab's own registry.
fn images_come_from_a_registry_if_asked(lab: &Lab) {
    let address = lab.registry().address();
    // The machine's Docker has to trust the lab's authority for this long.
    let trust = Path::new("/etc/docker/certs.d").join(&address);
    fs::create_dir_all(&trust).unwrap();
    fs::copy(lab.registry().ca(), trust.join("ca.crt")).unwrap();
    let root = tempfile::tempdir().unwrap();
    let mut log = Vec::new();
    let pulled = Store::new(root.path(), Some(&address)).image("pause", &mut log);
    fs::remove_dir_all(&trust).unwrap();

    let pulled = pulled.unwrap();
    let log = String::from_utf8(log).unwrap();
    let seconds = log
        .strip_prefix("[1/1] pulls pause 3.6 … ")
        .and_then(|rest| rest.strip_suffix(" s\n"));
    assert!(seconds.is_some_and(|it| it.parse::<u64>().is_ok()), "{log}");
    assert_eq!(pulled.files().unwrap(), ["/pause"]);
    assert_eq!(pulled.version, "3.6");
    assert!(
        lab.registry()
            .log()
            .unwrap()
            .contains("/v2/rancher/mirrored-pause/manifests/3.6")
    );
}

#[test]
fn what_an_interrupted_run_left_is_cleaned_by_the_next() {
    let spec = LabSpec::new("self-cut").node("n1", Profile::Plain);
    std::mem::forget(up(&spec));
    // The same name again: the node is another one, and there is one of it.
    let first = docker(&["inspect", "--format", "{{.Id}}", "rke-lab-self-cut-n1"]);
    let lab = up(&spec);
    assert_ne!(
        docker(&["inspect", "--format", "{{.Id}}", "rke-lab-self-cut-n1"]),
        first
    );
    assert!(lab.node("n1").ssh("true").unwrap().ok());

    // Another name: what belongs to a process that is gone goes too.
    let state = lab.dir().join("lab.json");
    std::mem::forget(lab);
    let mut said: serde_json::Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    said["owner"]["started"] = "long ago".into();
    fs::write(&state, said.to_string()).unwrap();
    let other = up(&LabSpec::new("self-other"));
    assert!(Lab::open("self-cut").is_err());
    assert_eq!(labelled("self-cut"), Vec::<String>::new());

    // Even without its folder a lab is found by its label.
    fs::remove_dir_all(other.dir()).unwrap();
    std::mem::forget(other);
    assert!(Lab::names().unwrap().contains(&"self-other".to_owned()));
    Lab::destroy_named("self-other").unwrap();
    assert_eq!(labelled("self-other"), Vec::<String>::new());
}

//! Bad nodes, end to end: the binary against a fake server on 127.0.0.1. Each is an error that
//! names the node, the cause and the cure, has the right exit code, and changes nothing on the
//! node or here.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::{
    fmt::Write as _,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rke_operator::model::Endpoint;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    cli_support::{Context, LOGS, Ran},
    fake::{Access, FakeContainer, FakeHost, FakeNet, Said},
};

/// A healthy node's answer to the script that reads its system.
pub(crate) const SYSTEM: &str = "\
@@hostname
n1
@@kernel
6.1.0
@@os
Debian GNU/Linux 12
@@machine-id
0123456789abcdef0123456789abcdef
@@init
systemd
@@containerd-socket
yes
@@ctr
/usr/bin/ctr
@@containerd-unit
LoadState=loaded
ExecMainStartTimestampMonotonic=1
@@containerd-version
containerd github.com/containerd/containerd 1.7.24 abc
@@containerd-dump
version = 2
@@docker-unit
Requires=docker.socket
@@resolv-conf
/etc/resolv.conf
@@listening
0016
@@paths
@@empty
@@modules
overlay
br_netfilter
@@sysctls
net.ipv4.ip_forward 1
@@free
/ 50000000
/var/lib 50000000
/var/lib/docker 50000000
/var/lib/containerd 50000000
@@firewalld
@@end
";

/// A fake node, and a folder with a config for it.
pub(crate) struct Site {
    pub(crate) node: FakeHost,
    pub(crate) context: Context,
    pub(crate) port: u16,
}

impl Site {
    pub(crate) async fn new() -> Self {
        let node = FakeHost::new();
        node.on_exec("@@hostname", |_| Said::out(SYSTEM));
        let port = node.listen().await.port();
        let context = Context::new();
        context.write("home/.ssh/id_rsa", &node.private_key());
        context.write(
            "cluster.yml",
            &format!(
                "nodes:\n  - address: 127.0.0.1\n    port: {port}\n    user: rke\n    \
                 hostname_override: n1\n    role: [controlplane, etcd, worker]\n\
                 ssh_key_path: ~/.ssh/id_rsa\nnetwork: {{plugin: flannel}}\n\
                 ingress: {{provider: none}}\nmonitoring: {{provider: none}}\n\
                 services: {{etcd: {{snapshot: false}}}}\n"
            ),
        );
        let site = Self {
            node,
            context,
            port,
        };
        site.trust();
        site
    }

    /// Its host key is known.
    pub(crate) fn trust(&self) {
        let endpoint = Endpoint {
            address: "127.0.0.1".to_owned(),
            port: self.port,
        };
        let known = self.node.known_hosts(&endpoint);
        self.context.write("home/.ssh/known_hosts", &known);
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Ran {
        let mut command = tokio::process::Command::from(self.context.command(args));
        let output = command.output().await.unwrap();
        Ran::from(&self.context, output)
    }

    /// What must not change: here, and on the node.
    pub(crate) fn state(&self) -> String {
        let docker = self.node.docker();
        let mut state = format!("{:?}\n{:?}\n", self.context.files(), docker.paths());
        for (name, container) in &docker.containers {
            let _ = writeln!(state, "{name} {} {}", container.id, container.state);
        }
        let _ = writeln!(state, "{:?}", docker.images.keys());
        state
    }
}

/// A run leaves a log, which its error names: what `--debug` would have said and what was printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_fails_names_its_log() {
    let site = Site::new().await;
    site.node.docker().info["SecurityOptions"] = json!(["name=rootless"]);
    assert!(!site.context.path(LOGS).exists());
    for (read, is_error) in [("plan", true), ("doctor", false), ("status", false)] {
        let ran = site.run(&[read]).await;
        let names_it = ran.log.as_ref().map(|log| log.contains(read));
        assert_eq!(names_it, is_error.then_some(true), "{ran}");
        let mut logs = std::fs::read_dir(site.context.path(LOGS)).unwrap();
        let part = format!("Z-{read}-");
        let name = |log: std::io::Result<std::fs::DirEntry>| log.unwrap().file_name();
        assert!(
            logs.any(|log| name(log).to_string_lossy().contains(&part)),
            "{read}"
        );
    }
    let ran = site.run(&["up", "--yes"]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    let log = ran.log.as_ref().expect("it is named");
    assert!(log.contains("Z-up-"), "{log}");
    let text = std::fs::read_to_string(site.context.path(LOGS).join(log)).unwrap();
    for words in [
        "connecting to=node `n1`",
        "logged in",
        "error: Docker on node `n1` is rootless",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Nothing about a node was begun.
    site.context.write("cluster.yml", "nodes: none\n");
    assert_eq!(site.run(&["up"]).await.log, None);
}

/// Nothing is written where there is no copy, and nothing over a state that is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_is_fetched_only_from_a_cluster_and_only_if_it_is_missing() {
    let site = Site::new().await;
    let before = site.state();
    let ran = site.run(&["util", "get-state-file"]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(
        ran.stderr.contains(
            "error: no control plane of the config has a copy of the cluster's state:\n  - node `n1` does not belong to a \
             cluster\n"
        ),
        "{ran}"
    );
    assert!(ran.log.is_some_and(|log| log.contains("get-state-file")));
    assert_eq!(site.state(), before);
    site.context.write("cluster.rke-operator.json", "{");
    let ran = site.run(&["util", "get-state-file"]).await;
    assert_eq!(ran.code, Some(1), "{ran}");
    assert_eq!(
        site.context.files()[&site.context.path("cluster.rke-operator.json")],
        b"{"
    );
}

/// What `--debug` promises: each request, with how it ended, and nothing that was in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_logged_when_asked_for_and_nothing_secret_is_in_them() {
    let site = Site::new().await;
    let ran = site.run(&["plan", "--debug"]).await;
    for word in [
        "logged in to=node `n1`",
        "a script ended",
        "/info to=Docker on node `n1`",
    ] {
        assert!(ran.stderr.contains(word), "{word}: {ran}");
    }
    let key = site.node.private_key();
    let secret = key.lines().find(|line| !line.starts_with('-')).unwrap();
    assert!(!ran.stderr.contains(secret), "{ran}");
    let quiet = site.run(&["plan"]).await;
    assert!(!quiet.stderr.contains("status="), "{quiet}");
}

struct Case {
    name: &'static str,
    breaks: fn(&Site),
    code: i32,
    says: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "an unknown host key",
        breaks: |site| site.context.write("home/.ssh/known_hosts", ""),
        code: 1,
        says: &["`n1`", "is not known", "SHA256:", "--accept-new-host-keys"],
    },
    Case {
        name: "a changed host key",
        breaks: |site| site.node.change_host_key(),
        code: 2,
        says: &["`n1`", "has changed", "SHA256:", "known_hosts line 1"],
    },
    Case {
        name: "a user or key that is not accepted",
        breaks: |site| site.node.faults(|faults| faults.refuse_auth = true),
        code: 2,
        says: &["`n1`", "`rke`", "authorized_keys"],
    },
    Case {
        name: "a login that requires more than a key",
        breaks: |site| site.node.faults(|faults| faults.second_factor = true),
        code: 2,
        says: &[
            "`n1`",
            "requires another authentication factor: keyboard-interactive",
            "AuthenticationMethods publickey",
        ],
    },
    Case {
        name: "no Docker",
        breaks: |site| site.node.faults(|faults| faults.access = Access::NoDocker),
        code: 2,
        says: &["`n1`", "install Docker"],
    },
    Case {
        name: "a Docker that does not run",
        breaks: |site| {
            site.node
                .faults(|faults| faults.access = Access::NotRunning);
        },
        code: 2,
        says: &["`n1`", "systemctl enable --now docker"],
    },
    Case {
        name: "a socket that is forbidden",
        breaks: |site| site.node.faults(|faults| faults.access = Access::Denied),
        code: 2,
        says: &["`n1`", "usermod -aG docker rke"],
    },
    Case {
        name: "a user who needs sudo for Docker",
        breaks: |site| site.node.faults(|faults| faults.access = Access::SudoOnly),
        code: 2,
        says: &[
            "`n1`",
            "usermod -aG docker rke",
            "NOPASSWD: /usr/bin/docker",
        ],
    },
    Case {
        name: "forwarding that is forbidden",
        breaks: |site| {
            site.node
                .faults(|faults| faults.access = Access::NoForwarding);
        },
        code: 2,
        says: &["`n1`", "AllowStreamLocalForwarding", "DisableForwarding"],
    },
    Case {
        name: "userns-remap",
        breaks: |site| {
            site.node.docker().info["SecurityOptions"] = json!(["name=userns"]);
        },
        code: 2,
        says: &["`n1`", "userns-remap", "/etc/docker/daemon.json"],
    },
    Case {
        name: "a disk that is full",
        breaks: |site| {
            let full = SYSTEM.replace(" 50000000", " 1000");
            site.node
                .on_exec("@@hostname", move |_| Said::out(full.clone()));
        },
        code: 2,
        says: &["`n1`", "MiB free", "df -h"],
    },
    Case {
        name: "a disk of Docker's own that is full",
        breaks: |site| {
            site.node.docker().info["DockerRootDir"] = json!("/data/docker");
            site.node.on_exec("df -Pk", |script| {
                let its_own = "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                               /dev/sdb 20000000 19998976 1024 100% /data\n";
                let survey = script.contains("@@hostname");
                Said::out(if survey { SYSTEM } else { its_own })
            });
        },
        code: 2,
        says: &["`n1`", "has 1 MiB free at `/data/docker`", "df -h /data"],
    },
    Case {
        name: "somebody else's container named etcd",
        breaks: |site| {
            let foreign = FakeContainer::foreign("quay.io/coreos/etcd:v3.5.0");
            site.node
                .docker()
                .containers
                .insert("etcd".to_owned(), foreign);
        },
        code: 2,
        says: &["`n1`", "etcd", "quay.io/coreos/etcd:v3.5.0"],
    },
    Case {
        name: "a foreign process on 6443",
        breaks: |site| {
            let taken = SYSTEM.replace("\n0016\n", "\n0016\n192B\n");
            site.node
                .on_exec("@@hostname", move |_| Said::out(taken.clone()));
        },
        code: 2,
        says: &["`n1`", "6443"],
    },
    Case {
        name: "a cluster of RKE",
        breaks: living_rke,
        code: 2,
        says: &["`n1`", "RKE v1: `etcd`, `kubelet`", "cluster.rkestate"],
    },
    Case {
        name: "no systemd",
        breaks: |site| {
            let other = SYSTEM.replace("@@init\nsystemd", "@@init\ninit");
            site.node
                .on_exec("@@hostname", move |_| Said::out(other.clone()));
        },
        code: 2,
        says: &["`n1`", "systemd"],
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_node_is_named_with_cause_and_cure_and_nothing_changes() {
    for case in CASES {
        let site = Site::new().await;
        (case.breaks)(&site);
        let before = site.state();
        for command in [&["plan"][..], &["up", "--yes"]] {
            let ran = site.run(command).await;
            assert_eq!(ran.code, Some(case.code), "{}: {ran}", case.name);
            assert_eq!(ran.stdout, "", "{}", case.name);
            assert!(ran.stderr.contains("\nhint: "), "{}: {ran}", case.name);
            for word in case.says {
                assert!(
                    ran.stderr.contains(word),
                    "{} does not say {word:?}: {ran}",
                    case.name
                );
            }
        }
        assert_eq!(site.state(), before, "{}: something changed", case.name);
        let wrote = site
            .node
            .requests()
            .into_iter()
            .find(|asked| !matches!(asked.method.as_str(), "GET" | "HEAD"));
        assert_eq!(wrote, None, "{}", case.name);
    }
}

/// Of an image that only charts want it is said what it is for, and how to do without; nothing is started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_of_charts_that_cannot_be_had_is_to_be_mirrored() {
    let all = Context::new().run(&["config", "--system-images"]);
    for (image, what, key) in [
        ("rancher/rke2-runtime", "has the charts", "`runtime`"),
        (
            "rancher/klipper-helm",
            "renders the charts",
            "`klipper_helm`",
        ),
    ] {
        let site = Site::new().await;
        let config = std::fs::read_to_string(site.context.path("cluster.yml")).unwrap();
        let config = config.replace("{plugin: flannel}", "{plugin: canal}");
        site.context.write("cluster.yml", &config);
        let others = all.stdout.lines().filter(|line| !line.starts_with(image));
        let others = others.map(|line| (line.to_owned(), 1));
        site.node.docker().images.extend(others);
        let ran = site.run(&["up", "--yes"]).await;
        assert_eq!(ran.code, Some(1), "{ran}");
        for word in ["`n1`", image, what, "mirror it", key, "`system_images`"] {
            assert!(ran.stderr.contains(word), "no {word:?}: {ran}");
        }
        let docker = site.node.docker();
        let started = ["etcd", "kubelet"].map(|name| docker.containers.contains_key(name));
        assert_eq!(started, [false, false], "{image}");
    }
}

/// Its containers run, and its certificates and its etcd are on the node.
fn living_rke(site: &Site) {
    for (number, name) in ["etcd", "kubelet"].into_iter().enumerate() {
        let mut container = FakeContainer::foreign("rancher/hyperkube:v1.32.6-rancher1");
        container.id = format!("{number:064x}");
        container.body["Labels"] = json!({ "io.rancher.rke.container.name": name });
        let mut docker = site.node.docker();
        docker.containers.insert(name.to_owned(), container);
    }
    let there = "@@paths\n/etc/kubernetes\n/etc/kubernetes/ssl\n/var/lib/etcd\n";
    let system = SYSTEM.replace("@@paths\n", there);
    site.node
        .on_exec("@@hostname", move |_| Said::out(system.clone()));
}

/// R41: `remove` does not say that there is no cluster while one of RKE runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_rke_is_not_removed_and_not_called_gone() {
    let site = Site::new().await;
    living_rke(&site);
    let before = site.state();
    let ran = site.run(&["remove", "--force"]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(
        ran.stderr.contains("`n1` is part of a cluster of RKE v1"),
        "{ran}"
    );
    assert!(ran.stderr.contains("rke remove"), "{ran}");
    assert_eq!(site.state(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_containerd_is_being_switched_is_asked_again() {
    let site = Site::new().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let times = Arc::clone(&asked);
    site.node.on_exec("@@hostname", move |_| {
        if times.fetch_add(1, Ordering::SeqCst) == 0 {
            let without = SYSTEM.replace("@@containerd-socket\nyes", "@@containerd-socket");
            Said::out(format!("@@switching\nyes\n{without}"))
        } else {
            Said::out(SYSTEM)
        }
    });
    let ran = site.run(&["plan"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_reads_and_writes_nothing_anywhere() {
    let site = Site::new().await;
    let before = site.state();
    let ran = site.run(&["plan"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
    assert!(ran.stdout.contains("kube-apiserver"), "{ran}");
    let json = site.run(&["plan", "-o", "json"]).await;
    let plan: rke_operator::plan::Plan = serde_json::from_str(&json.stdout).unwrap();
    assert!(!plan.is_empty());
    assert_eq!(site.state(), before);
    // Not even a host key that it was told to take.
    site.context.write("home/.ssh/known_hosts", "");
    let taken = site.run(&["plan", "--accept-new-host-keys"]).await;
    assert_eq!(taken.code, Some(0), "{taken}");
    let recorded = std::fs::read(site.context.path("home/.ssh/known_hosts")).unwrap();
    assert!(recorded.is_empty(), "a plan recorded a host key");
    assert_eq!(site.node.connections(), 3, "one connection a run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_host_key_is_refused_whatever_was_asked_for() {
    let site = Site::new().await;
    site.node.change_host_key();
    let before = site.state();
    let ran = site.run(&["up", "--yes", "--accept-new-host-keys"]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains("has changed"), "{ran}");
    assert_eq!(site.state(), before);
}

/// Starts a command, sends SIGINT when the node was asked something, and gives its exit code.
pub(crate) async fn interrupted(site: &Site, args: &[&str]) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::from(site.context.command(args));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let asked = site.node.requests().len();
    while site.node.requests().len() == asked {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let pid = child.id().unwrap().to_string();
    let sent = tokio::process::Command::new("kill")
        .args(["-INT", &pid])
        .status()
        .await
        .unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().await.unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_a_look_at_once_with_130_and_changes_nothing() {
    let site = Site::new().await;
    // Longer than the test may take: it is not waited for.
    site.node
        .faults(|faults| faults.slow = Some(Duration::from_secs(60)));
    let before = site.state();
    for command in [&["plan"][..], &["up", "--yes"], &["remove", "--force"]] {
        let (code, stderr) = interrupted(&site, command).await;
        assert_eq!(code, Some(130), "{command:?}: {stderr}");
        assert!(stderr.contains("stopping: "), "{command:?}: {stderr}");
    }
    assert_eq!(site.state(), before);
}

/// Each look is a line; all go over one connection, until Ctrl-C or the reader's end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_is_watched_over_one_connection() {
    let site = Site::new().await;
    let watch = ["status", "--watch", "1", "-o", "json"];
    let before = site.state();
    for by_the_reader in [false, true] {
        let connections = site.node.connections();
        let mut command = tokio::process::Command::from(site.context.command(&watch));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..2 {
            let line = lines.next_line().await.unwrap().unwrap();
            let told: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(told["cluster"]["health"], "absent", "{line}");
        }
        assert_eq!(site.node.connections(), connections + 1);
        if by_the_reader {
            drop(lines);
        } else {
            let pid = child.id().unwrap().to_string();
            let mut kill = tokio::process::Command::new("kill");
            assert!(kill.args(["-INT", &pid]).status().await.unwrap().success());
        }
        let code = child.wait().await.unwrap().code();
        assert_eq!(code, Some(if by_the_reader { 0 } else { 130 }));
    }
    assert_eq!(site.state(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_disturbs_wants_consent_and_nothing_is_done_without() {
    let site = Site::new().await;
    let off = SYSTEM.replace(
        "version = 2\n",
        "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n",
    );
    site.node
        .on_exec("@@hostname", move |_| Said::out(off.clone()));
    let before = site.state();
    let ran = site.run(&["up"]).await;
    assert_eq!(ran.code, Some(1), "{ran}");
    for word in ["containerd", "n1", "--yes", "nothing was changed"] {
        assert!(ran.stderr.contains(word), "it does not say {word:?}: {ran}");
    }
    assert_eq!(site.state(), before);
}

/// R14: certificates by a clock that the nodes contradict are accepted by nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_contradicts_ours_gets_no_certificates() {
    let site = Site::new().await;
    let of_2001 = SYSTEM.replace("@@end", "@@clock\n1000000000\n@@end");
    site.node
        .on_exec("@@hostname", move |_| Said::out(of_2001.clone()));
    let before = site.state();
    for command in [&["plan"][..], &["up", "--yes"]] {
        let ran = site.run(command).await;
        assert_eq!(ran.code, Some(1), "{ran}");
        for word in ["clock", "n1", "timedatectl"] {
            assert!(ran.stderr.contains(word), "it does not say {word:?}: {ran}");
        }
    }
    assert_eq!(site.state(), before);
}

/// Whoever mistypes a name has given no consent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_no_node_is_not_given_up() {
    let site = Site::new().await;
    let before = site.state();
    for command in [&["plan"][..], &["up", "--yes"]] {
        let ran = site.run(&[command, &["--lose", "n9"]].concat()).await;
        assert_eq!(ran.code, Some(1), "{ran}");
        let why = "the cluster has no node `n9`";
        assert!(ran.stderr.contains(why), "{ran}");
    }
    assert_eq!(site.state(), before);
    assert_eq!(site.node.connections(), 0, "the node was dialled");
}

/// The node answers the bastion only; the agent is the person's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_reached_through_a_bastion() {
    let site = Site::new().await;
    let node = FakeHost::new();
    node.on_exec("@@hostname", |_| Said::out(SYSTEM));
    let inside = FakeHost::endpoint();
    let behind = FakeNet([(inside.clone(), node.clone())].into());
    site.node.leads_to(behind);
    let bastion = format!(
        "nodes: [{{address: {}, user: rke, hostname_override: n1}}]\n\
         bastion_host: {{address: 127.0.0.1, port: {}, user: rke}}\n\
         network: {{plugin: flannel}}\ningress: {{provider: none}}\n\
         services: {{etcd: {{snapshot: false}}}}\n",
        inside.address, site.port
    );
    site.context.write("cluster.yml", &bastion);
    let ran = site.run(&["plan"]).await;
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(
        ran.stderr.contains(
            "the host key of node `n1` (10.0.0.2, through the bastion host 127.0.0.1) is not known"
        ),
        "{ran}"
    );
    let known = std::fs::read_to_string(site.context.path("home/.ssh/known_hosts")).unwrap();
    let both = known + &node.known_hosts(&inside);
    site.context.write("home/.ssh/known_hosts", &both);
    let ran = site.run(&["plan"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
    assert!(ran.stdout.contains("kube-apiserver"), "{ran}");
    node.docker().has_every_image = Some(1);
    let ran = site.run(&["validate", "--connect"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stdout.contains("every node answers"), "{ran}");
    assert_eq!(site.node.asked(), 0, "nothing is asked of the bastion");
    assert_eq!(site.node.connections(), 3);
}

/// Preflight's problems, without a plan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn validate_tells_what_prevents_up_and_writes_nothing() {
    let site = Site::new().await;
    living_rke(&site);
    site.node.docker().has_every_image = Some(1);
    let before = site.state();
    let ran = site.run(&["validate", "--connect"]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stdout.contains("RKE v1: `etcd`, `kubelet`"), "{ran}");
    assert!(ran.stdout.ends_with("1 problem prevents `up`\n"), "{ran}");
    assert_eq!(site.run(&["validate"]).await.code, Some(0));
    assert_eq!(site.state(), before);
}

/// Only root may write to the disk of etcd: a container measures it, and is gone afterwards with its image.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_measures_the_disk_of_etcd() {
    let site = Site::new().await;
    site.node.docker().has_every_image = Some(1);
    let before = site.state();
    let images = site.node.docker().images.clone();
    let ran = site.run(&["doctor", "--no-write"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(!ran.stdout.contains("of 100 writes"), "{ran}");

    site.node.docker().work = Box::new(|script, _| {
        let writes = "0.0234\n".repeat(100);
        let measured = format!("@@disk\n{writes}@@end\n");
        let asked = script.contains("@@disk");
        (0, if asked { measured } else { String::new() })
    });
    let ran = site.run(&["doctor"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    let slow = "99 of 100 writes took up to 23 ms";
    assert!(ran.stdout.contains(slow), "{ran}");
    assert_eq!(site.node.docker().containers.len(), 0);
    assert_eq!(site.node.docker().images, images);
    assert_eq!(site.state(), before);
}

/// Only root may read the rules of a node: a container does, and is gone afterwards. Nothing runs with `--no-write`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_reads_which_rules_drop_the_packets_of_pods() {
    let site = Site::new().await;
    site.node.docker().has_every_image = Some(1);
    site.node.docker().work = Box::new(|script, _| {
        let dropping =
            "@@iptables\niptables v1.8.9 (nf_tables)\n@@dropping\nnft inet filter forward\n@@end\n";
        let asked = script.contains("@@dropping");
        (
            0,
            if asked {
                dropping.to_owned()
            } else {
                String::new()
            },
        )
    });
    let before = site.state();
    let warning = "`sudo nft insert rule inet filter forward ip saddr 10.42.0.0/16 accept`";
    let told = |ran: &Ran| {
        let words = ran.stdout.split_whitespace();
        words.collect::<Vec<_>>().join(" ").contains(warning)
    };
    let ran = site.run(&["doctor"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(told(&ran), "{ran}");
    let ran = site.run(&["doctor", "--no-write"]).await;
    assert!(!told(&ran), "{ran}");
    assert_eq!(site.node.docker().containers.len(), 0);
    assert_eq!(site.state(), before);
}

/// What `up` would meet on its way: found before anything is written, with the same words as by `doctor`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_stops_where_a_file_system_or_selinux_prevents_it() {
    let site = Site::new().await;
    site.node.docker().has_every_image = Some(1);
    site.node.docker().info["SecurityOptions"] = json!(["name=selinux"]);
    let answer = SYSTEM.replace(
        "@@end",
        "@@restricted\nro /etc/kubernetes /\nnoexec /opt/cni/bin /opt\nnoexec /var/lib/docker /var\n\
         @@selinux\nenforcing\nno-container-types\n@@end",
    );
    site.node
        .on_exec("@@hostname", move |_| Said::out(answer.clone()));
    let before = site.state();
    for command in [&["up", "--yes"][..], &["doctor", "--no-write"]] {
        let ran = site.run(command).await;
        assert_eq!(ran.code, Some(2), "{ran}");
        let told = format!("{} {}", ran.stdout, ran.stderr);
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "cannot write to `/etc/kubernetes`: the file system at `/` is mounted read-only",
            "cannot execute what is in `/opt/cni/bin`: the file system at `/opt` is mounted with `noexec`",
            "Docker labels containers with them: these cannot start",
        ] {
            assert!(told.contains(words), "{words}: {ran}");
        }
        assert!(!told.contains("/var/lib/docker`: the file system"), "{ran}");
    }
    assert_eq!(site.state(), before);
}

/// What is measured stands in the table; a registry that lacks an image prevents `up`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_measures_what_a_survey_does_not_tell() {
    let site = Site::new().await;
    let writes = "0.0123 \n".repeat(100);
    let measured = format!("@@disk\n{writes}@@end\n");
    site.node.docker().work = Box::new(move |_, _| (0, measured.clone()));
    let before = site.state();
    let ran = site.run(&["doctor"]).await;
    assert_eq!(ran.code, Some(1), "{ran}");
    for words in [
        "`cluster.yml` is valid: 1 node, Kubernetes",
        "n1    ",
        "12 ms",
        "Debian GNU/Linux 12",
        "prevents `up`\n  - ",
        "manifest unknown",
        "\n    hint: ",
        "99 of 100 writes took up to 12 ms",
        "1 problem prevents `up`; 1 warning",
    ] {
        assert!(ran.stdout.contains(words), "{words}: {ran}");
    }
    site.node.docker().has_every_image = Some(1);
    let ran = site.run(&["doctor", "-o", "json"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    let told = crate::cli_json::checked("doctor", &ran).remove(0);
    assert_eq!(told["ready"], true, "{told}");
    assert_eq!(told["nodes"][0]["fsyncP99Microseconds"], 12_300, "{told}");
    assert_eq!(told["findings"][0]["severity"], "warning", "{told}");
    assert_eq!(told["findings"][0]["node"], "n1", "{told}");

    let config = std::fs::read_to_string(site.context.path("cluster.yml")).unwrap();
    let recurring = config.replace("services: {etcd: {snapshot: false}}\n", "");
    site.context.write("cluster.yml", &recurring);
    let ran = site.run(&["doctor", "--no-write", "-o", "json"]).await;
    let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let warning = &told["warnings"][0];
    assert_eq!(warning["path"], "services.etcd.snapshot", "{told}");
    site.context.write("cluster.yml", &config);

    let ran = site.run(&["doctor", "--no-write"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(
        ran.stdout
            .ends_with("every node answers, and nothing prevents `up`\n"),
        "{ran}"
    );
    assert!(!ran.stdout.contains("12 ms"), "{ran}");
    site.node.docker().info["MemTotal"] = json!(1 << 30);
    site.node.docker().info["NCPU"] = json!(1);
    let ran = site.run(&["doctor", "--no-write"]).await;
    assert!(ran.stdout.contains("1.0 GiB"), "{ran}");
    assert!(ran.stdout.contains("prevents `up`; 2 warnings"), "{ran}");
    assert_eq!(site.state(), before);
}

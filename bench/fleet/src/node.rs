//! The nodes of a fleet: fakes with what a real node would have besides Docker and files.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use rke_operator::model::{CLAIM_DIRS, path};

use crate::{
    Fallible, about, config, control, etcd,
    fake::{FakeHost, NodeFile, Said},
    fake_api::FakeApi,
    server,
};

/// Bytes of an image: a pull is one line of progress.
const IMAGE: u64 = 5_000_000;
/// What the switch of containerd's configuration leaves.
const VERDICT: &str = "/run/rke-operator-containerd.result";

/// What tells a machine from others.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) id: String,
    /// What the files for the next boot said when it booted.
    pub(crate) booted: BTreeMap<String, NodeFile>,
}

/// A node.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) machine: Machine,
    pub(crate) host: FakeHost,
}

/// How much a node was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Connections to sshd, scripts, streams to ports, and requests to Docker.
    pub(crate) all: usize,
}

/// How long programs take that a real node would start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Until an API server serves.
    pub(crate) api: Duration,
    /// Until a Node is Ready once there is a network.
    pub(crate) ready: Duration,
}

/// All nodes, and their cluster's API.
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Node>,
    pub(crate) api: FakeApi,
    pub(crate) port: u16,
    pub(crate) pace: Pace,
    pub(crate) tls: server::Own,
    api_since: Mutex<Option<Instant>>,
    requests: AtomicUsize,
}

impl Fleet {
    /// So many bare nodes, and none of them in a cluster.
    pub(crate) async fn start(nodes: usize) -> Fallible<Arc<Self>> {
        let made: Vec<Node> = (0..nodes).map(bare).collect();
        // The first finds a port that is free, and the others have addresses of their own.
        let mut port = 0;
        for (number, node) in made.iter().enumerate() {
            let address = SocketAddr::from((config::address(number), port));
            port = node.host.listen_at(address).await.port();
        }
        Self::of(made, port, Pace::default())
    }

    /// So many bare nodes, from this number on, whose sshd listens on that port of addresses as a client sees them that
    /// takes them for other machines.
    pub(crate) async fn outside(first: usize, nodes: usize, port: u16) -> Fallible<Arc<Self>> {
        let made = (first..first + nodes)
            .map(|number| machine(number, config::outside(number), BTreeMap::new()));
        let made: Vec<Node> = made.collect();
        for node in &made {
            let at = SocketAddr::from((node.machine.address, port));
            node.host.listen_at(at).await;
        }
        Self::of(made, port, Pace::default())
    }

    /// These nodes, whose sshd somebody leads to.
    pub(crate) fn of(nodes: Vec<Node>, port: u16, pace: Pace) -> Fallible<Arc<Self>> {
        let fleet = Arc::new(Self {
            nodes,
            api: FakeApi::new(jiff::Timestamp::now),
            port,
            pace,
            api_since: Mutex::default(),
            tls: server::Own::new()?,
            requests: AtomicUsize::new(0),
        });
        for node in &fleet.nodes {
            server::open_ports(&fleet, node);
        }
        tokio::spawn(control::run(Arc::clone(&fleet)));
        Ok(fleet)
    }

    /// Those that may have etcd.
    pub(crate) fn central(&self) -> &[Node] {
        &self.nodes[..config::CENTRAL.min(self.nodes.len())]
    }

    /// True while an API server runs that has an etcd, and had its time to start.
    pub(crate) fn serves(&self) -> bool {
        let runs = self
            .central()
            .iter()
            .any(|node| node.host.runs("kube-apiserver"));
        let runs = runs && etcd::has_quorum(&etcd::members(self.central()));
        let mut since = self
            .api_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !runs {
            *since = None;
            return false;
        }
        since.get_or_insert_with(Instant::now).elapsed() >= self.pace.api
    }

    /// True when the program of an API server is there to be started.
    pub(crate) fn is_begun(&self) -> bool {
        let begun = |node: &Node| node.host.runs("etcd");
        self.central().iter().any(begun)
    }

    /// A request to the API came.
    pub(crate) fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests to the API there were.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// How much each node was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let asked = self.nodes.iter().map(|Node { host, .. }| Asked {
            all: host.connections() + host.asked() + host.forwarded(),
        });
        asked.collect()
    }
}

/// A machine that is in no cluster.
pub(crate) fn bare(number: usize) -> Node {
    booted(number, BTreeMap::new())
}

/// The same, whose kernel is as these files say.
pub(crate) fn booted(number: usize, booted: BTreeMap<String, NodeFile>) -> Node {
    machine(number, config::internal_address(number), booted)
}

fn machine(number: usize, address: Ipv4Addr, booted: BTreeMap<String, NodeFile>) -> Node {
    let machine = Machine {
        name: config::name(number),
        address,
        id: format!("{number:032x}"),
        booted,
    };
    let host = FakeHost::new();
    let mut docker = host.docker();
    docker.has_every_image = Some(IMAGE);
    for folder in [
        "/etc/containerd",
        "/etc/modules-load.d",
        "/etc/sysctl.d",
        "/opt/cni",
    ] {
        docker.files.insert(folder.to_owned(), NodeFile::dir(0o755));
    }
    docker.work = Box::new(|script, files| {
        if script.contains("systemd-run") {
            switch(files);
        } else if script.contains("left_of_folders") {
            return (0, clean(files));
        } else if script.contains("rmdir \"$folder\"") {
            release(files);
        } else if script.contains("images import") {
            files.remove("/etc/containerd/rke-operator-pause.tar");
            files.insert(path::K8S_IMAGES.to_owned(), NodeFile::file(0o600, ""));
        }
        (0, String::new())
    });
    drop(docker);
    // Two that know each other: the fake's own handle would keep it alive for ever.
    let itself: Arc<OnceLock<FakeHost>> = Arc::default();
    let (of, about) = (Arc::clone(&itself), machine.clone());
    host.on_exec("@@hostname", move |script| {
        Said::out(
            of.get()
                .map(|host| about::system(host, &about, script))
                .unwrap_or_default(),
        )
    });
    let of = Arc::clone(&itself);
    host.on_exec(VERDICT, move |_| {
        let host = of.get();
        let verdict = host.and_then(|host| host.docker().files.get(VERDICT).cloned());
        Said::out(
            verdict
                .map(|file| String::from_utf8_lossy(&file.content).into_owned())
                .unwrap_or_default(),
        )
    });
    let _ = itself.set(host.clone());
    Node { machine, host }
}

/// What systemd does with containerd's configuration when a helper tells it to.
fn switch(files: &mut BTreeMap<String, NodeFile>) {
    if !files.contains_key("/etc/containerd/rke-operator.toml.new") {
        files.remove(path::CONTAINERD_CONFIG);
        files.remove(path::CONTAINERD_DROP_IN);
    }
    let mut put = |from: &str, to: &str, mode| {
        if let Some(mut file) = files.remove(from) {
            file.mode = mode;
            if let Some((folder, _)) = to.rsplit_once('/') {
                files
                    .entry(folder.to_owned())
                    .or_insert_with(|| NodeFile::dir(0o755));
            }
            files.insert(to.to_owned(), file);
        }
    };
    put(
        "/etc/containerd/rke-operator.toml.new",
        path::CONTAINERD_CONFIG,
        0o600,
    );
    put(
        "/etc/containerd/rke-operator-drop-in.new",
        path::CONTAINERD_DROP_IN,
        0o644,
    );
    files.remove("/etc/containerd/rke-operator-switch.sh");
    let verdict = NodeFile::file(0o644, "@@rke-operator containerd ok\n");
    files.insert(VERDICT.to_owned(), verdict);
}

/// What a helper leaves that cleans a node.
fn clean(files: &mut BTreeMap<String, NodeFile>) -> String {
    let ours = [
        path::KUBERNETES,
        path::ETCD,
        path::KUBELET,
        path::CERTS_D,
        path::MODULES_LOAD,
        path::SYSCTL,
        "/etc/cni",
    ];
    files.retain(|path, _| {
        !ours
            .iter()
            .any(|ours| path == ours || path.starts_with(&format!("{ours}/")))
    });
    "@@rke-operator done\n".to_owned()
}

/// What a helper leaves that releases a node: what it has not had before, as far as it is empty.
fn release(files: &mut BTreeMap<String, NodeFile>) {
    files.retain(|path, _| !path.contains("/rke-operator"));
    for (folder, _) in CLAIM_DIRS {
        let below = format!("{folder}/");
        if !files.keys().any(|path| path.starts_with(&below)) {
            files.remove(folder);
        }
    }
}

/// The value of a flag of a container, as it was created.
pub(crate) fn flag(host: &FakeHost, container: &str, name: &str) -> Option<String> {
    let docker = host.docker();
    let body = &docker.containers.get(container)?.body;
    let words = ["Entrypoint", "Cmd"]
        .into_iter()
        .filter_map(|part| body[part].as_array())
        .flatten();
    let prefix = format!("--{name}=");
    let mut words = words.filter_map(|word| word.as_str()?.strip_prefix(&prefix));
    words.next_back().map(str::to_owned)
}

/// A file of a node.
pub(crate) fn file(host: &FakeHost, path: &str) -> Option<Vec<u8>> {
    host.docker()
        .files
        .get(path)
        .map(|file| file.content.clone())
}

#![expect(
    clippy::disallowed_methods,
    reason = "it reads credentials off the node's disk"
)]
//! Looks at a cluster from outside while it comes up, in the same way whoever makes it: when the
//! API is ready, controllers run, all nodes are Ready, CoreDNS is available. Watches are streams, so
//! looking costs next to nothing once the API answers.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use tempfile::TempDir;

use crate::Fallible;

/// A cluster that takes longer has failed.
const LIMIT: Duration = Duration::from_mins(4);
/// How often is asked where nothing can be watched yet.
const POLL: Duration = Duration::from_millis(50);

/// Points in the life of a cluster, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// `/readyz` of the first node says so.
    Api,
    /// A controller did its work: `kube-system` has its default service account. None works before
    /// kube-controller-manager has started all.
    Controllers,
    /// Every node is Ready.
    Nodes,
    /// A replica of CoreDNS is available.
    Dns,
}

impl Phase {
    pub(crate) const ALL: [Self; 4] = [Self::Api, Self::Controllers, Self::Nodes, Self::Dns];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Api => "API ready",
            Self::Controllers => "controllers run",
            Self::Nodes => "nodes Ready",
            Self::Dns => "CoreDNS available",
        }
    }

    /// What is watched for it; nothing for what is asked.
    fn path(self) -> &'static str {
        match self {
            Self::Api => "/readyz",
            Self::Controllers => {
                "/api/v1/namespaces/kube-system/serviceaccounts?watch=1&fieldSelector=metadata.name%3Ddefault"
            }
            Self::Nodes => "/api/v1/nodes?watch=1",
            Self::Dns => {
                "/apis/apps/v1/namespaces/kube-system/deployments?watch=1&fieldSelector=metadata.name%3Dcoredns"
            }
        }
    }

    /// Whether the point is reached after an event of the watch, which changes what was seen.
    fn is_reached(self, event: &Value, seen: &mut Seen) -> bool {
        let object = &event["object"];
        match self {
            Self::Api => false,
            Self::Controllers => event["type"] == "ADDED",
            Self::Nodes => {
                let all = object["status"]["conditions"].as_array();
                let ready = |condition: &Value| {
                    condition["type"] == "Ready" && condition["status"] == "True"
                };
                let name = object["metadata"]["name"].to_string();
                if all.into_iter().flatten().any(ready) {
                    seen.ready.insert(name);
                } else {
                    seen.ready.remove(&name);
                }
                seen.ready.len() == seen.nodes
            }
            Self::Dns => object["status"]["availableReplicas"].as_u64() > Some(0),
        }
    }
}

/// What a watch knows: how many nodes there are to be, and which are Ready.
struct Seen {
    nodes: usize,
    ready: BTreeSet<String>,
}

/// When each point was reached, since the start.
pub(crate) type Phases = Vec<(Phase, Duration)>;

/// What the API server lets somebody in with who may read everything.
struct Credentials {
    ca: Vec<u8>,
    cert: Vec<u8>,
    key: Vec<u8>,
}

/// Where a node has such credentials: the same folder for every way of making a cluster.
fn credentials(root: &Path) -> Option<Credentials> {
    let ssl = root.join("etc/kubernetes/ssl");
    let file = |name: &str| {
        fs::read(ssl.join(name))
            .ok()
            .filter(|bytes| !bytes.is_empty())
    };
    let of_ours = || {
        Some(Credentials {
            ca: file("kube-ca.pem")?,
            cert: file("kube-controller-manager.pem")?,
            key: file("kube-controller-manager-key.pem")?,
        })
    };
    let of_kubeadm = || {
        let text = fs::read_to_string(root.join("etc/kubernetes/super-admin.conf")).ok()?;
        let config: Value = serde_saphyr::from_str(&text).ok()?;
        let decoded = |value: &Value| STANDARD.decode(value.as_str()?).ok();
        let user = &config["users"][0]["user"];
        Some(Credentials {
            ca: decoded(&config["clusters"][0]["cluster"]["certificate-authority-data"])?,
            cert: decoded(&user["client-certificate-data"])?,
            key: decoded(&user["client-key-data"])?,
        })
    };
    of_ours().or_else(of_kubeadm)
}

/// A look at one cluster that is under way.
pub(crate) struct Probe(JoinHandle<Result<Phases, String>>);

impl Probe {
    /// Begins to look at a cluster of so many nodes by its first one, whose root folder is there.
    pub(crate) fn start(begun: Instant, root: PathBuf, address: Ipv4Addr, nodes: usize) -> Self {
        Self(thread::spawn(move || {
            look(begun, &root, address, nodes).map_err(|error| error.to_string())
        }))
    }

    /// Waits until everything is reached.
    pub(crate) fn end(self) -> Fallible<Phases> {
        let ended = self
            .0
            .join()
            .map_err(|_| "the look at the cluster failed")?;
        Ok(ended?)
    }
}

fn look(begun: Instant, root: &Path, address: Ipv4Addr, nodes: usize) -> Fallible<Phases> {
    let folder = tempfile::tempdir()?;
    let found = wait(begun, "credentials", || credentials(root))?;
    for (name, bytes) in [
        ("ca", &found.ca),
        ("cert", &found.cert),
        ("key", &found.key),
    ] {
        fs::write(folder.path().join(name), bytes)?;
    }
    let curl = Curl {
        folder: Arc::new(folder),
        server: format!("https://{address}:6443"),
    };
    wait(begun, "the API", || curl.is_ready().then_some(()))?;
    let reached = Arc::new(Mutex::new(vec![(Phase::Api, begun.elapsed())]));
    for phase in [Phase::Controllers, Phase::Nodes, Phase::Dns] {
        let (curl, reached) = (curl.clone(), Arc::clone(&reached));
        thread::spawn(move || {
            while begun.elapsed() < LIMIT && !curl.watch(phase, nodes) {
                thread::sleep(POLL);
            }
            let took = begun.elapsed();
            let mut reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
            reached.push((phase, took));
        });
    }
    wait(begun, "CoreDNS or a node", || {
        let reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
        (reached.len() == Phase::ALL.len()).then(|| reached.clone())
    })
}

fn wait<T>(begun: Instant, what: &str, mut found: impl FnMut() -> Option<T>) -> Fallible<T> {
    while begun.elapsed() < LIMIT {
        if let Some(found) = found() {
            return Ok(found);
        }
        thread::sleep(POLL);
    }
    Err(format!("not there after {} s: {what}", LIMIT.as_secs()).into())
}

#[derive(Clone)]
struct Curl {
    folder: Arc<TempDir>,
    server: String,
}

impl Curl {
    fn command(&self, phase: Phase) -> Command {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--no-buffer", "--noproxy", "*"])
            .arg(format!("{}{}", self.server, phase.path()))
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        for (option, file) in [("--cacert", "ca"), ("--cert", "cert"), ("--key", "key")] {
            command.arg(option).arg(self.folder.path().join(file));
        }
        command
    }

    fn is_ready(&self) -> bool {
        let asked = self.command(Phase::Api).args(["--max-time", "1"]).output();
        asked.is_ok_and(|output| output.stdout == b"ok")
    }

    /// Watches until the point is reached, which is `true`, or the stream ends.
    fn watch(&self, phase: Phase, nodes: usize) -> bool {
        let limit = LIMIT.as_secs().to_string();
        let spawned = self
            .command(phase)
            .args(["--max-time", &limit])
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else {
            return false;
        };
        let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
        let mut seen = Seen {
            nodes,
            ready: BTreeSet::new(),
        };
        let reached = lines
            .into_iter()
            .flatten()
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
            .any(|event| phase.is_reached(&event, &mut seen));
        let _ = child.kill();
        let _ = child.wait();
        reached
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn two() -> Seen {
        Seen {
            nodes: 2,
            ready: BTreeSet::new(),
        }
    }

    #[test]
    fn a_deployment_that_may_have_none_is_available_with_one() {
        let event = |replicas: Value| json!({"type": "MODIFIED", "object": {"status": replicas}});
        let none = json!({"conditions": [{"type": "Available", "status": "True"}]});
        assert!(!Phase::Dns.is_reached(&event(none), &mut two()));
        assert!(Phase::Dns.is_reached(&event(json!({"availableReplicas": 1})), &mut two()));
    }

    #[test]
    fn nodes_are_ready_when_the_condition_of_each_is_true() {
        let event = |name: &str, status: &str| {
            json!({"type": "MODIFIED", "object": {"metadata": {"name": name}, "status": {
            "conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": status}]}}})
        };
        let mut seen = two();
        let mut after = |name, status| Phase::Nodes.is_reached(&event(name, status), &mut seen);
        assert!(!after("n1", "True"));
        assert!(!after("n1", "True"));
        assert!(!after("n2", "False"));
        assert!(!after("n1", "False"));
        assert!(!after("n2", "True"));
        assert!(after("n1", "True"));
    }

    #[test]
    fn credentials_are_found_wherever_the_cluster_comes_from() {
        let root = tempfile::tempdir().unwrap();
        assert!(credentials(root.path()).is_none());
        let kubernetes = root.path().join("etc/kubernetes");
        fs::create_dir_all(&kubernetes).unwrap();
        let data = |text: &str| STANDARD.encode(text);
        let config = format!(
            "clusters: [{{cluster: {{certificate-authority-data: {}}}}}]\n\
             users: [{{user: {{client-certificate-data: {}, client-key-data: {}}}}}]\n",
            data("a"),
            data("b"),
            data("c")
        );
        fs::write(kubernetes.join("super-admin.conf"), config).unwrap();
        let found = credentials(root.path()).unwrap();
        assert_eq!(
            (found.ca, found.cert, found.key),
            (b"a".to_vec(), b"b".to_vec(), b"c".to_vec())
        );
    }
}

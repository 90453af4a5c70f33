//! The operator against a real API server: a management cluster on `n1` that our own `up` made,
//! the definitions as they are checked in, and the operator as a process whose log is read.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use base64::Engine as _;
use lab::{LabSpec, Node, Profile};
use serde_json::{Value, json};

use super::{Run, Site, kubectl, tell};

/// The operator's own namespace.
pub(crate) const NAMESPACE: &str = "rke-operator";

/// Where keys and kubeconfigs are.
pub(crate) const CREDENTIALS: &str = "rke-operator-credentials";

/// The sample that a user would copy.
const SAMPLE: &str = include_str!("../../../samples/cluster-minimal.yaml");

/// The definitions as they are checked in.
const DEFINITIONS: [&str; 3] = [
    "crds/clusters.yaml",
    "crds/kubeconfigs.yaml",
    "crds/clusteroperations.yaml",
];

/// How long the API server may take for something small.
const SOON: Duration = Duration::from_secs(60);

/// A management cluster on `n1`, and `n2` (and more) for clusters that are objects.
pub(crate) struct Management {
    site: Site,
}

impl Management {
    /// A lab of its own; the definitions are installed and served.
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, &["n2"])
    }

    /// The same with these nodes for clusters that are objects.
    pub(crate) fn with(name: &str, nodes: &[&str]) -> Self {
        let spec = LabSpec::own(name).node("n1", Profile::Plain);
        let spec = nodes
            .iter()
            .fold(spec, |spec, node| spec.node(node, Profile::Plain));
        let site = Site::of(&spec);
        site.run(&["up", "--yes"]).well();
        let management = Self { site };
        for file in DEFINITIONS {
            management.kubectl(&["create", "-f", file]).well();
        }
        let mut wait = vec!["wait", "--for=condition=Established", "--timeout=60s"];
        wait.extend(DEFINITIONS.iter().flat_map(|file| ["-f", file]));
        management.kubectl(&wait).well();
        for namespace in [NAMESPACE, CREDENTIALS] {
            management
                .kubectl(&["create", "namespace", namespace])
                .well();
        }
        management.give_key();
        management
    }

    /// The management cluster's own node.
    pub(crate) fn first(&self) -> &Node {
        self.site.lab.node("n1")
    }

    /// The node of the clusters that are objects.
    pub(crate) fn second(&self) -> &Node {
        self.site.lab.node("n2")
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> Run {
        self.site.kubectl(args)
    }

    /// `kubectl -o json` of something that is there.
    pub(crate) fn get(&self, args: &[&str]) -> Value {
        self.find(args)
            .unwrap_or_else(|| panic!("there is no {}", args.join(" ")))
    }

    /// `kubectl -o json` of something that may be there.
    pub(crate) fn find(&self, args: &[&str]) -> Option<Value> {
        let mut get = vec!["get", "--ignore-not-found", "-o", "json"];
        get.extend(args);
        let run = self.kubectl(&get).well();
        (!run.stdout.trim().is_empty()).then(|| serde_json::from_str(&run.stdout).expect("JSON"))
    }

    /// What there is of a namespaced kind in the operator's namespace.
    pub(crate) fn own(&self, kind: &str, name: &str) -> Option<Value> {
        self.find(&["-n", NAMESPACE, kind, name])
    }

    /// A Secret with a key or a kubeconfig.
    pub(crate) fn credential(&self, name: &str) -> Option<Value> {
        self.find(&["-n", CREDENTIALS, "secret", name])
    }

    /// `kubectl apply`, or another verb that takes an object from a file.
    pub(crate) fn send(&self, verb: &[&str], object: &Value) -> Run {
        let path = self.site.path("object.json");
        fs::write(&path, object.to_string()).expect("the object is written");
        let path = path.to_string_lossy().into_owned();
        let mut args = verb.to_vec();
        args.extend(["-f", &path]);
        self.kubectl(&args)
    }

    /// The Secret with the key to the nodes, where the sample has it.
    pub(crate) fn give_key(&self) {
        let (name, key) = key_of_sample();
        let file = format!("--from-file={key}={}", self.site.lab.ssh_key().display());
        self.kubectl(&[
            "-n",
            CREDENTIALS,
            "create",
            "secret",
            "generic",
            &name,
            &file,
        ])
        .well();
        let grant = "clusterprovisioner.rke.io/clusters=*";
        self.kubectl(&["-n", CREDENTIALS, "annotate", "secret", &name, grant])
            .well();
    }

    /// Takes that Secret away.
    pub(crate) fn take_key(&self) {
        let (name, _) = key_of_sample();
        self.kubectl(&["-n", CREDENTIALS, "delete", "secret", &name])
            .well();
    }

    /// Touches that Secret: whoever uses it is looked at again.
    pub(crate) fn touch_key(&self, word: &str) {
        let (name, _) = key_of_sample();
        let label = format!("touched={word}");
        self.kubectl(&[
            "-n",
            CREDENTIALS,
            "label",
            "--overwrite",
            "secret",
            &name,
            &label,
        ])
        .well();
    }

    /// The sample under a name, with the lab's node for the documentation's.
    pub(crate) fn sample(&self, name: &str, node: &Node) -> Value {
        let mut object = sample();
        let config = Self::config(name, node);
        let known_hosts = fs::read_to_string(self.site.lab.known_hosts()).expect("known hosts");
        merge(
            &mut object,
            &json!({
                "metadata": {"name": name},
                "spec": {"config": config, "ssh": {"knownHosts": known_hosts}},
            }),
        );
        object
    }

    /// The config for a node.
    pub(crate) fn config(name: &str, node: &Node) -> Value {
        Self::inline(&node.cluster_yml(name).expect("a config"))
    }

    /// The config for several nodes with their roles.
    pub(crate) fn config_of(&self, name: &str, nodes: &[(&str, &[&str])]) -> Value {
        let nodes = nodes
            .iter()
            .map(|(node, roles)| (*node, self.site.lab.node(node), roles.to_vec()));
        let yaml = Node::common_yml(name, &nodes.collect::<Vec<_>>());
        Self::inline(&yaml.expect("a config"))
    }

    /// A `Cluster` cannot name files: its key is in the Secret.
    fn inline(yaml: &str) -> Value {
        let mut config: Value = serde_saphyr::from_str(yaml).expect("YAML");
        let nodes = config["nodes"].as_array_mut().expect("nodes");
        for node in nodes {
            node.as_object_mut().expect("a node").remove("ssh_key_path");
        }
        config
    }

    pub(crate) fn cluster(&self, name: &str) -> Option<Value> {
        self.find(&["rkec", name])
    }

    /// Waits for a `Cluster` that is as it must be, and gives it.
    #[track_caller]
    pub(crate) fn until(
        &self,
        name: &str,
        what: &str,
        limit: Duration,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let end = Instant::now() + limit;
        loop {
            let now = self.cluster(name);
            if let Some(cluster) = now.as_ref().filter(|cluster| holds(cluster)) {
                return cluster.clone();
            }
            assert!(
                Instant::now() < end,
                "not within {} s: {what}; it is {}",
                limit.as_secs(),
                now.map_or_else(
                    || "not there".to_owned(),
                    |cluster| format!("{:#}", cluster["status"])
                )
            );
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Waits for a `Cluster` whose present generation is applied, that is Ready and has nothing
    /// under way.
    #[track_caller]
    pub(crate) fn settled(&self, name: &str, limit: Duration) -> Value {
        self.until(name, "it is Ready and settled", limit, is_settled)
    }

    #[track_caller]
    pub(crate) fn gone(&self, name: &str, limit: Duration) {
        let end = Instant::now() + limit;
        while let Some(cluster) = self.cluster(name) {
            assert!(
                Instant::now() < end,
                "`{name}` is not gone within {} s; it is {:#}",
                limit.as_secs(),
                cluster["status"]
            );
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Asks for the deletion; does not wait for it.
    pub(crate) fn delete(&self, name: &str) {
        self.kubectl(&["delete", "rkec", name, "--wait=false"])
            .well();
    }

    /// Edits a `Cluster` by a merge patch.
    pub(crate) fn edit(&self, name: &str, patch: &Value) {
        let patch = patch.to_string();
        self.kubectl(&["patch", "rkec", name, "--type=merge", "-p", &patch])
            .well();
    }

    /// The kubeconfig that its Secret has.
    pub(crate) fn kubeconfig(&self, name: &str) -> String {
        let secret = self
            .credential(&format!("{name}-kubeconfig"))
            .expect("its Secret");
        let value = secret["data"]["value"].as_str().expect("the key `value`");
        let kubeconfig = base64::engine::general_purpose::STANDARD
            .decode(value)
            .expect("base64");
        String::from_utf8(kubeconfig).expect("text")
    }

    /// `kubectl` of a cluster that is an object, by the kubeconfig in its Secret.
    pub(crate) fn inside(&self, name: &str, args: &[&str]) -> Run {
        let path = self.site.path(&format!("{name}.kubeconfig"));
        fs::write(&path, self.kubeconfig(name)).expect("the kubeconfig is written");
        kubectl(&path, args)
    }

    /// Starts the operator as a user would outside the cluster, with its whole log.
    pub(crate) fn operator(&self) -> Operator {
        self.operator_with(&[])
    }

    /// The same with more flags.
    pub(crate) fn operator_with(&self, flags: &[&str]) -> Operator {
        let kubeconfig = self.site.path("kube_config_cluster.yml");
        let mut child = self
            .site
            .command(&[
                "run",
                "--debug",
                "--namespace",
                NAMESPACE,
                "--identity",
                "a",
            ])
            .args(flags)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the operator starts");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let (say, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                // Shown when the test fails.
                tell(&format!("operator: {line}"));
                if say.send(line).is_err() {
                    break;
                }
            }
        });
        Operator { child, lines }
    }
}

/// The process; killed when it goes out of scope.
pub(crate) struct Operator {
    child: Child,
    lines: Receiver<String>,
}

impl Operator {
    /// Reads on in the log until `found` says something; `None` when `limit` is over first.
    pub(crate) fn hear<T>(
        &mut self,
        limit: Duration,
        mut found: impl FnMut(&str) -> Option<T>,
    ) -> Option<T> {
        let end = Instant::now() + limit;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => {
                    if let Some(found) = found(&line) {
                        return Some(found);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the operator ended: {:?}", self.child.wait())
                }
            }
        }
    }

    /// Waits for the end of `passes` passes over `Cluster`s that begin after everything that it
    /// said so far.
    #[track_caller]
    pub(crate) fn passes(&mut self, passes: usize) {
        let mut left = passes;
        let heard = self.hear(SOON, |line| {
            left -= usize::from(is_pass(line));
            (left == 0).then_some(())
        });
        assert!(heard.is_some(), "{left} of {passes} passes are missing");
    }

    /// Forgets what it said so far.
    pub(crate) fn skip(&mut self) {
        while self.lines.try_recv().is_ok() {}
    }

    /// SIGKILL: nothing is finished, nothing is told.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the signal is sent");
        let status = self.child.wait().expect("it is gone");
        assert_eq!(status.signal(), Some(9), "it had ended by itself: {status}");
    }

    /// SIGTERM, as a kubelet does; it must end by itself, and well.
    pub(crate) fn stop(mut self) {
        let told = Command::new("kill")
            .arg(self.child.id().to_string())
            .status()
            .expect("kill runs");
        assert!(told.success());
        let mut ended = None;
        Site::eventually("the operator ends when told to", SOON, || {
            ended = self.child.try_wait().expect("its state");
            ended.is_some()
        });
        assert!(
            ended.is_some_and(|status| status.success()),
            "{ended:?} after SIGTERM"
        );
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The title of the step that starts with this line of the log.
pub(crate) fn step(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("a step starts ")?;
    let (_, title) = rest.split_once("step=\"")?;
    title.split('"').next()
}

fn is_pass(line: &str) -> bool {
    line.contains("a pass ended") && line.contains("kind=\"Cluster\"")
}

fn sample() -> Value {
    serde_saphyr::from_str(SAMPLE).expect("YAML")
}

fn key_of_sample() -> (String, String) {
    let reference = &sample()["spec"]["ssh"]["keySecretRef"];
    let text = |field: &str| reference[field].as_str().expect(field).to_owned();
    (text("name"), text("key"))
}

/// As `kubectl patch --type=merge` does.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// The condition of a type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = object["status"]["conditions"].as_array()?;
    all.iter().find(|condition| condition["type"] == kind)
}

/// True when a condition has that status.
pub(crate) fn is(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == status)
}

/// Its present generation is applied from end to end, it is Ready, and nothing is under way.
pub(crate) fn is_settled(cluster: &Value) -> bool {
    let generation = &cluster["metadata"]["generation"];
    cluster["status"]["observedGeneration"] == *generation
        && ["Ready", "Provisioned", "UpToDate"].iter().all(|kind| {
            is(cluster, kind, "True")
                && condition(cluster, kind)
                    .is_some_and(|condition| condition["observedGeneration"] == *generation)
        })
        && condition(cluster, "Reconciling").is_none()
        && cluster["status"]["progress"].is_null()
}

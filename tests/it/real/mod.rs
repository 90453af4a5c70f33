//! What the lab's tests share: a cluster on a lab node, driven through the binary as a user
//! would, and the state of a node as data.

pub(crate) mod beside;
pub(crate) mod chance;
pub(crate) mod informer;
pub(crate) mod operator;
mod pods;
pub(crate) mod reader;
pub(crate) mod snapshot;
pub(crate) mod tokens;
pub(crate) mod watch;
mod whole;
pub(crate) mod writer;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use lab::{Lab, LabSpec, Node, Profile, Sweep};
use rke_operator::plan::Plan;
use serde_json::Value;
use tempfile::TempDir;

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_rke-operator");

/// What one run of the binary said.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Fails the test with everything that was said unless the run ended well.
    #[track_caller]
    pub(crate) fn well(self) -> Self {
        assert_eq!(
            self.status, 0,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        self
    }

    /// The events of an `-o json` run.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

/// A lab, and a folder with a `cluster.yml` for its first node.
pub(crate) struct Site {
    pub(crate) lab: Lab,
    folder: PathBuf,
    /// The folder goes with the site, unless the lab has it.
    _own: Option<TempDir>,
}

impl Site {
    /// A fresh lab of its own with one node for this test; taken down when the test ends.
    pub(crate) fn new(name: &str, profile: Profile) -> Self {
        Self::of(&LabSpec::own(name).node("n1", profile))
    }

    /// The same with more nodes than the config names; the config is for `n1`.
    pub(crate) fn of(spec: &LabSpec) -> Self {
        let lab = Lab::up(spec, &mut std::io::stderr()).expect("a lab");
        let folder = tempfile::tempdir().expect("a folder");
        let site = Self {
            lab,
            folder: folder.path().to_owned(),
            _own: Some(folder),
        };
        site.write_config(
            "cluster.yml",
            &site.node().cluster_yml("lab").expect("a config"),
        );
        site
    }

    /// The lab of that name with all that an earlier test left in it, or a fresh one: it stands when the
    /// test ends, and so does the folder.
    pub(crate) fn standing(spec: &LabSpec) -> Self {
        Lab::sweep(Sweep::Abandoned).expect("labs without a process go");
        let lab = Lab::open(&spec.name).unwrap_or_else(|_| {
            let mut lab = Lab::up(spec, &mut std::io::stderr()).expect("a lab");
            lab.keep().expect("it stands");
            lab
        });
        let folder = lab.dir().join("site");
        fs::create_dir_all(&folder).expect("a folder");
        Self {
            lab,
            folder,
            _own: None,
        }
    }

    pub(crate) fn node(&self) -> &Node {
        self.lab.node("n1")
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What a client of its API needs.
    pub(crate) async fn api(&self) -> Config {
        let file = self.path("kube_config_cluster.yml");
        let kubeconfig = Kubeconfig::read_from(file).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.expect("a config")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn write_config(&self, name: &str, yaml: &str) {
        fs::write(self.path(name), yaml).expect("the config is written");
    }

    /// The binary, in this site's folder, with a home of its own that trusts the lab's nodes.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(BINARY), args)
    }

    fn command_of(&self, binary: &Path, args: &[&str]) -> Command {
        let ssh = self.path("home/.ssh");
        fs::create_dir_all(&ssh).expect("a home");
        fs::copy(self.lab.known_hosts(), ssh.join("known_hosts")).expect("known hosts");
        let mut command = Command::new(binary);
        command
            .args(args)
            .current_dir(self.folder())
            .env("HOME", self.path("home"))
            .env_remove("RKE_CONFIG")
            // That of whoever runs the tests is none of theirs.
            .env("RKE_OPERATOR_NO_SSH_CONFIG", "1")
            .stdin(Stdio::null());
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Run {
        Self::ended(self.command(args))
    }

    /// Runs the binary that is linked statically, as released ones are, to its end.
    pub(crate) fn run_static(&self, args: &[&str]) -> Run {
        Self::ended(self.command_of(statically_linked(), args))
    }

    fn ended(mut command: Command) -> Run {
        let output = command.output().expect("the binary runs");
        Run {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The state file, as data.
    pub(crate) fn state(&self) -> Value {
        let text = fs::read(self.path("cluster.rke-operator.json")).expect("the state");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// The cluster's id, from the state file.
    pub(crate) fn cluster_id(&self) -> String {
        let state = self.state();
        state["clusterId"].as_str().expect("an id").to_owned()
    }

    /// OpenSSH's client for a node, as its user; what it is to do there is added.
    pub(crate) fn ssh(&self, node: &Node) -> Command {
        let known_hosts = self.lab.known_hosts().display().to_string();
        let mut command = Command::new("ssh");
        command
            .arg(format!("{}@{}", node.user(), node.address()))
            .args(["-o", &format!("UserKnownHostsFile={known_hosts}"), "-i"])
            .arg(self.lab.ssh_key())
            .stdin(Stdio::null());
        command
    }

    /// `kubectl` with the kubeconfig that `up` wrote.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Run {
        kubectl(&self.path("kube_config_cluster.yml"), args)
    }

    /// Asks until `probe` says yes, at most `limit`; then the test fails with `what`.
    #[track_caller]
    pub(crate) fn eventually(what: &str, limit: Duration, mut probe: impl FnMut() -> bool) {
        let end = Instant::now() + limit;
        while !probe() {
            assert!(
                Instant::now() < end,
                "not within {} s: {what}",
                limit.as_secs()
            );
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// `plan` finds nothing to do. All nodes share one machine. If it is slow, etcd may elect a new leader at
    /// any moment, and API servers are not ready during the election. So a plan that only waits is requested
    /// again, for a minute at most. Any other step fails the test at once.
    #[track_caller]
    pub(crate) fn has_nothing_to_do(&self) {
        Self::eventually("there is nothing to do", Duration::from_secs(60), || {
            let said = self.run(&["plan", "-o", "json"]).well().stdout;
            let plan: Plan = serde_json::from_str(&said).expect("a plan");
            assert!(plan.only_waits(), "there is something to do: {said}");
            if !plan.is_empty() {
                tell(&format!("only waits: {said}"));
            }
            plan.is_empty()
        });
    }

    /// True when the API says that the node is Ready.
    pub(crate) fn is_ready(&self) -> bool {
        let path = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
        self.kubectl(&["get", "nodes", "-o", path]).stdout == "True"
    }

    /// How often somebody has logged in to a node.
    pub(crate) fn logins(node: &Node) -> u32 {
        let count = "journalctl -u ssh -o cat | grep -c '^Accepted publickey' || true";
        let said = node.sh(count).expect("sshd's log");
        said.trim().parse().expect("a number")
    }

    /// The ids of the node's containers by name.
    pub(crate) fn containers(&self) -> BTreeMap<String, String> {
        containers(self.node())
    }
}

/// The binary, linked statically: nodes with etcd are given it.
fn statically_linked() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let built = Command::new("deploy/program.sh")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("PROFILE", "dev")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .expect("the script runs");
        assert!(
            built.status.success(),
            "a program that is linked statically"
        );
        let said = String::from_utf8(built.stdout).expect("a path");
        Path::new(env!("CARGO_MANIFEST_DIR")).join(said.trim())
    })
}

/// `kubectl` with a kubeconfig.
pub(crate) fn kubectl(kubeconfig: &Path, args: &[&str]) -> Run {
    let output = Command::new(lab::kubectl().expect("a kubectl"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(args)
        .output()
        .expect("kubectl runs");
    Run {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Says what happens, for whoever reads the output of a test that failed.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Adds to the table of whoever runs the tests, where this variable names a file for it.
pub(crate) fn publish(variable: &str, text: &str) {
    if let Ok(table) = std::env::var(variable) {
        let file = fs::OpenOptions::new().append(true).create(true).open(table);
        let written = file.and_then(|mut file| writeln!(file, "{text}"));
        written.expect("the table is written");
    }
}

/// The ids of a node's containers by name.
pub(crate) fn containers(node: &Node) -> BTreeMap<String, String> {
    let listed = node
        .sh("docker ps -a --no-trunc --format '{{.Names}} {{.ID}}'")
        .expect("docker ps");
    listed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, id)| (name.to_owned(), id.to_owned()))
        .collect()
}

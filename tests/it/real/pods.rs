//! The operator as its pods: an image in the lab's registry, the manifests as they are shipped.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    BINARY, Run, Site,
    operator::{Management, NAMESPACE},
    tell,
};

/// How long a pod may take to come or go.
const MINUTES: Duration = Duration::from_secs(180);

impl Management {
    /// An image of the binary under test, pushed; as the nodes name it. The shipped one is linked
    /// statically, and `make demo` runs it; this one has its libraries beside it.
    pub(crate) fn image(&self, tag: &str) -> String {
        self.image_of(tag, Path::new(BINARY))
    }

    /// The same of another binary.
    pub(crate) fn image_of(&self, tag: &str, binary: &Path) -> String {
        let binary = binary.display();
        let registry = self.site().lab.registry();
        let pushed = format!(
            "{}/rke-operator:{tag}",
            registry.push_address().expect("an address")
        );
        let script = format!(
            "set -eu; rm -rf image; mkdir -p image/root; cd image
             strip -o root/rke-operator {binary}
             ldd {binary} | grep -o '/[^ ]*' | xargs -I FILE cp --parents -L FILE root
             printf 'FROM scratch\\nCOPY root/ /\\nLABEL tag={tag}\\nUSER 65532:65532\\nENTRYPOINT [\"/rke-operator\"]\\n' >Dockerfile
             docker build --quiet --tag {pushed} . && docker push --quiet {pushed}
             docker image rm {pushed}"
        );
        self.shell(&script, &[]).well();
        format!("{}/rke-operator:{tag}", registry.name())
    }

    /// `make deploy`.
    pub(crate) fn deploy(&self, image: &str) {
        self.deploy_from(Path::new(env!("CARGO_MANIFEST_DIR")), image);
    }

    /// `make deploy` of another tree.
    pub(crate) fn deploy_from(&self, root: &Path, image: &str) {
        self.make_in(root, &format!("deploy {image}")).well();
        self.leader();
    }

    /// `make install`, `uninstall`, `deploy …` or `undeploy`.
    pub(crate) fn make(&self, verb: &str) -> Run {
        self.make_in(Path::new(env!("CARGO_MANIFEST_DIR")), verb)
    }

    fn make_in(&self, root: &Path, verb: &str) -> Run {
        let kubectl = format!(
            "{} --kubeconfig {}",
            lab::kubectl().expect("a kubectl").display(),
            self.site().path("kube_config_cluster.yml").display()
        );
        let script = format!("{}/deploy/cluster.sh {verb}", root.display());
        self.shell(&script, &[("KUBECTL", &kubectl)])
    }

    fn shell(&self, script: &str, environment: &[(&str, &str)]) -> Run {
        let output = Command::new("bash")
            .args(["-c", script])
            .current_dir(self.site().folder())
            .envs(environment.iter().copied())
            .output()
            .expect("bash runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Run {
            status: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// The pod that holds the lease.
    pub(crate) fn leader(&self) -> String {
        self.next_leader("", MINUTES).0
    }

    /// The pod that holds the lease after `last`, and how long that took.
    #[track_caller]
    pub(crate) fn next_leader(&self, last: &str, limit: Duration) -> (String, Duration) {
        let begun = Instant::now();
        let mut holder = String::new();
        Site::eventually("a pod holds the lease", limit, || {
            let lease = self.own("lease", "rke-operator").unwrap_or(Value::Null);
            let now = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            now.clone_into(&mut holder);
            !now.is_empty() && now != last
        });
        let took = begun.elapsed();
        tell(&format!("{holder} leads after {:.1} s", took.as_secs_f64()));
        (holder, took)
    }

    /// The names of the operator's pods.
    pub(crate) fn pods(&self) -> Vec<String> {
        let label = "app.kubernetes.io/name=rke-operator";
        let pods = self.find(&["-n", NAMESPACE, "pods", "--selector", label]);
        let items = pods.as_ref().and_then(|pods| pods["items"].as_array());
        items
            .into_iter()
            .flatten()
            .map(|pod| pod["metadata"]["name"].as_str().expect("a name").to_owned())
            .collect()
    }

    /// Sends a signal to a pod's process; nobody else is told. An error when there is none.
    pub(crate) fn signal(&self, pod: &str, signal: &str) {
        // The brackets keep the shell that runs this out of what it finds.
        let script = format!("pkill -{signal} -f -- '[-]-identity={pod}'");
        self.first().sh(&script).expect("the process is there");
    }

    /// Whether a pod's process is there.
    pub(crate) fn lives(&self, pod: &str) -> bool {
        let script = format!("pgrep -f -- '[-]-identity={pod}' || true");
        let found = self.first().sh(&script).expect("pgrep runs");
        !found.trim().is_empty()
    }

    /// Nobody starts what ends on the management cluster's node from now on.
    pub(crate) fn without_kubelet(&self) {
        self.first().sh("docker stop kubelet").expect("it stops");
    }

    pub(crate) fn with_kubelet(&self) {
        self.first().sh("docker start kubelet").expect("it starts");
    }
}

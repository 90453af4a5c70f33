//! Releases of Kubernetes on real nodes: each is made, left alone, used and removed; and one cluster
//! goes through them. `make test-versions` runs these, for their images take long to build.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use lab::{LabSpec, Profile};
use serde_json::{Value, json};

use crate::{
    lab_accepts::are_what_the_programs_take,
    lab_remove::ALLOWED,
    real::{Site, publish, snapshot, tell},
};

const MINUTES: Duration = Duration::from_secs(240);

/// The demo's pod.
const POD: &str = include_str!("../demo-pod.yaml");

/// The objects that must outlive every upgrade.
const OBJECTS: usize = 50;

impl Site {
    /// A lab of one node whose registry has these releases; nothing runs on it.
    fn with_releases(name: &str, profile: Profile, releases: &[&str]) -> Self {
        let spec = LabSpec::own(name).node("n1", profile);
        let spec = releases
            .iter()
            .fold(spec, |spec, release| spec.release(release));
        Self::of(&spec)
    }

    /// The config with another `kubernetes_version`.
    fn wants_release(&self, release: &str) {
        let yaml = self.node().cluster_yml("versions").expect("a config");
        let mut config: Value = serde_saphyr::from_str(&yaml).expect("a document");
        config["kubernetes_version"] = json!(release);
        self.write_config("cluster.yml", &config.to_string());
    }

    /// Runs `up` and says how long it took.
    fn up_takes(&self) -> Duration {
        let begun = Instant::now();
        self.run(&["up", "--yes"]).well();
        begun.elapsed()
    }

    /// There is nothing to do: neither the plan nor `up` has a step.
    fn up_is_a_no_op(&self) -> Duration {
        self.has_nothing_to_do();
        let containers = self.containers();
        let took = self.up_takes();
        assert_eq!(self.containers(), containers, "a second `up` replaced one");
        took
    }

    /// What the API server, the kubelet, etcd and containerd say that they are.
    fn observed(&self) -> Versions {
        let version = self.kubectl(&["get", "--raw", "/version"]).well().stdout;
        let version: Value = serde_json::from_str(&version).expect("JSON");
        let info = |field: &str| {
            let path = format!("jsonpath={{.items[0].status.nodeInfo.{field}}}");
            let said = self.kubectl(&["get", "nodes", "-o", &path]).well();
            said.stdout
        };
        let etcd = "curl -sf http://127.0.0.1:2381/metrics | sed -n 's/^etcd_server_version{.*\"\\(.*\\)\"} 1$/\\1/p'";
        Versions {
            api: version["gitVersion"].as_str().expect("it").to_owned(),
            kubelet: info("kubeletVersion"),
            runtime: info("containerRuntimeVersion"),
            etcd: self.node().sh(etcd).expect("etcd's metrics"),
        }
    }

    /// A pod runs and is gone again.
    fn a_pod_runs(&self) {
        self.write_config("pod.yml", POD);
        let pod = self.path("pod.yml").to_string_lossy().into_owned();
        Self::eventually("the default service account", MINUTES, || {
            self.kubectl(&["get", "serviceaccount", "default"]).status == 0
        });
        self.kubectl(&["apply", "-f", &pod]).well();
        let wait = [
            "wait",
            "--for=condition=Ready",
            "pod/hello",
            "--timeout=180s",
        ];
        self.kubectl(&wait).well();
        self.kubectl(&["delete", "-f", &pod, "--wait=true"]).well();
    }

    /// The names of the objects that upgrades must not lose.
    fn kept(&self) -> BTreeSet<String> {
        let path = "jsonpath={range .items[*]}{.metadata.name} {.data.value}{\"\\n\"}{end}";
        let listed = self.kubectl(&["get", "configmaps", "-l", "kept=yes", "-o", path]);
        listed.well().stdout.lines().map(str::to_owned).collect()
    }
}

/// What runs, as it says itself.
struct Versions {
    api: String,
    kubelet: String,
    runtime: String,
    etcd: String,
}

/// A row of the table that `make test-versions` prints.
fn row(what: &str, versions: &Versions, up: Duration, no_op: Duration, remove: Option<Duration>) {
    let Versions {
        api,
        kubelet: _,
        runtime,
        etcd,
    } = versions;
    let seconds = |took: Duration| format!("{:.1} s", took.as_secs_f64());
    let remove = remove.map_or_else(|| "–".to_owned(), seconds);
    let (up, no_op) = (seconds(up), seconds(no_op));
    let row = format!("| {what} | {api} | {etcd} | {runtime} | {up} | {no_op} | {remove} |");
    tell(&row);
    publish("VERSIONS_TABLE", &row);
}

/// `up`, nothing to do, a pod, `remove`, and nothing is left.
fn is_made_used_and_removed(name: &str, profile: Profile, release: &str) -> Versions {
    let site = Site::with_releases(name, profile, &[release]);
    let before = snapshot::take(site.node());
    site.wants_release(release);
    let up = site.up_takes();
    assert!(site.is_ready());
    let no_op = site.up_is_a_no_op();
    let versions = site.observed();
    assert_eq!(versions.api, release);
    assert_eq!(versions.kubelet, release);
    site.a_pod_runs();
    let begun = Instant::now();
    site.run(&["remove", "--force"]).well();
    let remove = begun.elapsed();
    snapshot::unchanged(site.node(), &before, ALLOWED);
    row("made", &versions, up, no_op, Some(remove));
    are_what_the_programs_take(&site, release);
    versions
}

#[test]
fn release_1_32_is_made_used_and_removed() {
    let versions = is_made_used_and_removed("v1-32", Profile::Plain, "v1.32.13");
    assert!(versions.etcd.starts_with("3.5."), "{}", versions.etcd);
}

#[test]
fn release_1_33_is_made_used_and_removed() {
    let versions = is_made_used_and_removed("v1-33", Profile::Plain, "v1.33.13");
    assert_eq!(versions.etcd, "3.6.14");
}

#[test]
fn release_1_34_is_made_used_and_removed() {
    let versions = is_made_used_and_removed("v1-34", Profile::Plain, "v1.34.4");
    assert_eq!(versions.etcd, "3.6.7");
}

#[test]
fn release_1_35_on_containerd_2_is_made_used_and_removed() {
    let versions = is_made_used_and_removed("v1-35", Profile::Containerd2, "v1.35.4");
    assert!(
        versions.runtime.starts_with("containerd://2."),
        "{}",
        versions.runtime
    );
}

/// Old and new servers in one cluster: containerd 1.7 and 2, each told in its own configuration's format.
#[test]
fn one_cluster_has_containerd_1_and_2() {
    let spec = LabSpec::own("runtimes")
        .node("n1", Profile::Plain)
        .node("n2", Profile::Containerd2);
    let site = Site::of(&spec);
    let nodes = ["n1", "n2"];
    let before = nodes.map(|name| snapshot::take(site.lab.node(name)));
    let yaml = site.node().cluster_yml("runtimes").expect("a config");
    let mut config: Value = serde_saphyr::from_str(&yaml).expect("a document");
    let mut second = config["nodes"][0].clone();
    second["address"] = json!(site.lab.node("n2").address().to_string());
    second["hostname_override"] = json!("n2");
    second["role"] = json!(["worker"]);
    config["nodes"].as_array_mut().expect("nodes").push(second);
    site.write_config("cluster.yml", &config.to_string());

    site.up_takes();
    site.up_is_a_no_op();
    let path = "jsonpath={.items[*].status.nodeInfo.containerRuntimeVersion}";
    let runtimes = site.kubectl(&["get", "nodes", "-o", path]).well().stdout;
    assert!(runtimes.contains("containerd://1.7."), "{runtimes}");
    assert!(runtimes.contains("containerd://2."), "{runtimes}");
    for name in nodes {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": format!("on-{name}")},
            "spec": {
                "nodeName": name,
                "containers": [{"name": "nginx", "image": "nginx:1.26.3"}],
            },
        });
        let file = format!("{name}.json");
        site.write_config(&file, &pod.to_string());
        let file = site.path(&file).to_string_lossy().into_owned();
        site.kubectl(&["apply", "-f", &file]).well();
    }
    let wait = [
        "wait",
        "--for=condition=Ready",
        "pods",
        "--all",
        "--timeout=180s",
    ];
    site.kubectl(&wait).well();
    site.run(&["remove", "--force"]).well();
    for (name, before) in nodes.iter().zip(&before) {
        snapshot::unchanged(site.lab.node(name), before, ALLOWED);
    }
}

/// One node, and each release after the one before it: no object is lost, what is left out is refused.
#[test]
fn a_cluster_goes_from_1_32_to_1_34() {
    let releases = ["v1.32.13", "v1.33.13", "v1.34.4"];
    let site = Site::with_releases("upgrade", Profile::Plain, &releases);
    let before = snapshot::take(site.node());
    site.wants_release(releases[0]);
    site.up_takes();
    let objects: Vec<Value> = (0..OBJECTS)
        .map(|number| {
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": format!("kept-{number}"), "labels": {"kept": "yes"}},
                "data": {"value": format!("{}", number * 7)},
            })
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    site.write_config("kept.json", &list.to_string());
    let file = site.path("kept.json").to_string_lossy().into_owned();
    site.kubectl(&["create", "-f", &file]).well();
    let kept = site.kept();
    assert_eq!(kept.len(), OBJECTS);

    // A minor may not be left out, and nothing is touched by asking.
    let containers = site.containers();
    site.wants_release(releases[2]);
    let refused = site.run(&["up", "--yes"]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.stderr.contains("v1.33"), "{}", refused.stderr);
    assert_eq!(site.containers(), containers);

    for release in &releases[1..] {
        let from = site.observed().api;
        site.wants_release(release);
        let up = site.up_takes();
        let no_op = site.up_is_a_no_op();
        let versions = site.observed();
        assert_eq!(versions.api, *release);
        assert_eq!(versions.kubelet, *release);
        assert!(versions.etcd.starts_with("3.6."), "{}", versions.etcd);
        assert_eq!(site.kept(), kept, "objects were lost or changed");
        assert!(site.is_ready());
        site.a_pod_runs();
        row(&format!("from {from}"), &versions, up, no_op, None);
    }
    // And not back.
    site.wants_release(releases[1]);
    let back = site.run(&["up", "--yes"]);
    assert_eq!(back.status, 1, "{back:?}");
    assert!(back.stderr.contains("going back"), "{}", back.stderr);

    site.wants_release(releases[2]);
    site.run(&["remove", "--force"]).well();
    snapshot::unchanged(site.node(), &before, ALLOWED);
}

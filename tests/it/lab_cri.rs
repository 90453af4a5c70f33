//! containerd's CRI on a node whose package leaves it off: switched on with consent only, beside
//! whatever runs there, and switched back where containerd does not come up with it.

use lab::Profile;
use serde_json::Value;

use crate::{
    lab_remove::ALLOWED,
    real::{Run, Site, snapshot},
};

/// The package's own file, which is never ours to write.
const PACKAGES_OWN: &str = "/etc/containerd/config.toml";

/// Somebody's container that ran on the node before us.
struct Theirs<'a>(&'a Site);

impl<'a> Theirs<'a> {
    fn start(site: &'a Site) -> Self {
        let run = "docker run -d --name theirs library/nginx:1.26.3";
        site.node().sh(run).expect("someone else's container");
        Self(site)
    }

    /// Its id, and its process with the time when that started: numbers are used again.
    fn process(&self) -> String {
        let script = "set -e; docker inspect -f '{{.Id}} {{.State.StartedAt}} {{.State.Pid}}' theirs; \
                      pid=$(docker inspect -f '{{.State.Pid}}' theirs); \
                      sed 's/.*) //' /proc/$pid/stat | cut -d ' ' -f 20";
        self.0.node().sh(script).expect("its container runs")
    }
}

fn contents(site: &Site, path: &str) -> String {
    let script = format!("base64 -w 0 {path}");
    site.node().sh(&script).expect("the file is there")
}

/// How containerd starts, and everything that it could be told in.
fn containerd(site: &Site) -> String {
    let script = "systemctl cat containerd.service; \
                  find /etc/containerd /etc/systemd/system -printf '%p %y %m\\n' | sort; \
                  find /etc/containerd -type f -exec sha256sum {} + | sort; \
                  containerd config dump | grep ^disabled_plugins; \
                  systemctl is-active containerd docker";
    site.node().sh(script).expect("containerd is looked at")
}

#[track_caller]
fn says(run: &Run, words: &[&str]) {
    for word in words {
        assert!(
            run.stderr.contains(word) || run.stdout.contains(word),
            "no {word:?} in:\n{}\n{}",
            run.stdout,
            run.stderr
        );
    }
}

/// The step that configures containerd is there, says why, and asks for consent.
fn plan_says_why(site: &Site) {
    let plan = site.run(&["plan"]).well();
    says(
        &plan,
        &[
            "configure containerd",
            "kubelet runs pods on this node's containerd",
            "1 disruptive step\n",
            "restarts containerd; running containers keep running",
        ],
    );
    let plan: Value =
        serde_json::from_str(&site.run(&["plan", "-o", "json"]).well().stdout).expect("a plan");
    let all = |value: &Value, of: &str| value[of].as_array().cloned().unwrap_or_default();
    let steps = all(&plan, "stages")
        .into_iter()
        .flat_map(move |stage| all(&stage, "queues"))
        .flat_map(move |queue| all(&queue, "steps"));
    let disturbing: Vec<Value> = steps.filter(|step| !step["disturbs"].is_null()).collect();
    let [step] = disturbing.as_slice() else {
        panic!("one step disturbs: {disturbing:?}");
    };
    assert!(
        step["action"]["Host"][1]["ConfigureContainerd"].is_object(),
        "{step}"
    );
    assert!(step["guards"][0].is_object(), "{step}");
}

/// What root alone may read cannot be kept: nothing is put in its place.
fn an_unreadable_file_is_refused(site: &Site) {
    let chmod = |mode: &str| {
        let script = format!("chmod {mode} {PACKAGES_OWN}");
        site.node().sh(&script).expect("another mode");
    };
    chmod("0600");
    let refused = site.run(&["up", "--yes"]);
    assert_eq!(refused.status, 2, "{refused:?}");
    let words = [
        "cannot read containerd's configuration on node `n1`",
        "chmod",
    ];
    says(&refused, &words);
    chmod("0644");
}

#[test]
fn cri_is_switched_on_with_consent_and_the_packages_file_comes_back() {
    let site = Site::new("cri-off", Profile::CriOff);
    let theirs = Theirs::start(&site);
    let process = theirs.process();
    let own = contents(&site, PACKAGES_OWN);
    let told = containerd(&site);
    let before = snapshot::take(site.node());
    assert!(told.contains("disabled_plugins = [\"cri\"]"), "{told}");

    an_unreadable_file_is_refused(&site);
    plan_says_why(&site);
    let refused = site.run(&["up"]);
    assert_eq!(refused.status, 1, "no terminal, no --yes: {refused:?}");
    says(
        &refused,
        &["consent", "n1: ", "restarts containerd", "--yes"],
    );
    snapshot::unchanged(site.node(), &before, &[]);
    assert!(!site.path("cluster.rke-operator.json").exists());

    site.run(&["up", "--yes"]).well();
    assert!(site.is_ready(), "{:?}", site.kubectl(&["get", "nodes"]));
    assert_eq!(theirs.process(), process, "it went on running");
    assert_eq!(contents(&site, PACKAGES_OWN), own, "not ours to write");
    assert_ne!(containerd(&site), told);

    site.run(&["remove", "--force"]).well();
    assert_eq!(contents(&site, PACKAGES_OWN), own);
    assert_eq!(containerd(&site), told);
    assert_eq!(theirs.process(), process, "it went on running");
    snapshot::unchanged(site.node(), &before, ALLOWED);
}

#[test]
fn a_containerd_that_does_not_come_up_with_cri_is_switched_back() {
    let site = Site::new("cri-broken", Profile::CriOff);
    let theirs = Theirs::start(&site);
    site.node().break_cri().expect("a broken containerd");
    // It runs as it will after every restart from now on.
    site.node()
        .sh("systemctl restart containerd && docker ps")
        .expect("containerd runs without CRI");
    let process = theirs.process();
    let told = containerd(&site);
    let before = snapshot::take(site.node());

    // Tried again it fails again in the same way, and does no more harm.
    for _ in 0..2 {
        let failed = site.run(&["up", "--yes"]);
        assert_eq!(failed.status, 2, "a node's fault: {failed:?}");
        says(
            &failed,
            &[
                "node `n1`",
                "containerd did not start with CRI on",
                "the node runs its former configuration again",
                "failed to load plugin io.containerd.grpc.v1.cri: broken by the lab",
                "journalctl -u containerd",
            ],
        );
        let ssh = site.node().ssh("docker ps").expect("a login");
        assert!(ssh.ok() && ssh.stdout.contains("theirs"), "{ssh:?}");
        assert_eq!(containerd(&site), told);
        assert_eq!(theirs.process(), process, "it went on running");
    }

    site.run(&["remove", "--force"]).well();
    assert_eq!(containerd(&site), told);
    assert_eq!(theirs.process(), process, "it went on running");
    snapshot::unchanged(site.node(), &before, ALLOWED);
}

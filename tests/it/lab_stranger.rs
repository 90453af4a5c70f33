//! A machine that no run has ever seen and that holds another Kubernetes: it is left as it is when it leaves the config
//! and when the cluster is removed, compared by content; and it is cleaned when a person names it.

use std::{fs, time::Duration};

use lab::{LabSpec, Node, Profile};

use crate::{
    lab_many::{ALL, WORKER},
    real::Site,
};

const MINUTE: Duration = Duration::from_secs(60);

/// What kubeadm leaves, with content.
const THEIRS: &str = "set -e
    mkdir -p /etc/kubernetes/manifests /etc/kubernetes/pki /var/lib/etcd/member/wal /var/lib/kubelet/pods/1
    echo admin > /etc/kubernetes/admin.conf; echo ca > /etc/kubernetes/pki/ca.key
    echo etcd > /etc/kubernetes/manifests/etcd.yaml
    head -c 100000 /dev/urandom > /var/lib/etcd/member/wal/0.wal
    echo volume > /var/lib/kubelet/pods/1/volume";

const LOOK: &str = "find /etc/kubernetes /var/lib/etcd /var/lib/kubelet -type f 2> /dev/null | sort | xargs -r sha256sum
    docker ps --all --format '{{.Names}}'";

fn content(node: &Node) -> String {
    node.sh(LOOK).expect("it can be looked at")
}

#[test]
fn another_kubernetes_on_a_machine_that_was_never_seen_is_left_alone() {
    let machines = ["n1", "n2", "n3"];
    let spec = machines
        .iter()
        .fold(LabSpec::own("stranger"), |spec, name| {
            spec.node(name, Profile::Plain)
        });
    let site = Site::of(&spec);
    let all = [
        ("n1", "n1", ALL),
        ("n2", "n2", WORKER),
        ("n3", "n3", WORKER),
    ];
    site.names_at(&all);
    for name in ["n2", "n3"] {
        site.lab.node(name).stop().expect("its plug is pulled");
    }
    let up = site.run(&["up", "--yes"]);
    assert_eq!(up.status, 3, "two workers do not answer: {up:?}");
    let another = |name: &str| {
        site.lab.node(name).start().expect("it is switched on");
        Site::eventually("its Docker answers", MINUTE, || {
            site.lab.node(name).sh("docker info").is_ok()
        });
        site.lab.node(name).sh(THEIRS).expect("another Kubernetes");
        content(site.lab.node(name))
    };

    // It leaves the config.
    let n2 = another("n2");
    let state = site.path("cluster.rke-operator.json");
    let before = fs::read(&state).expect("a state");
    site.names_at(&[all[0], all[2]]);
    let plan = site.run(&["plan"]).well();
    assert!(
        plan.stdout
            .contains("n2: another Kubernetes is or was on it"),
        "{plan:?}"
    );
    let up = site.run(&["up", "--yes"]);
    assert_eq!(up.status, 3, "only n3 is missing: {up:?}");
    assert_eq!(content(site.lab.node("n2")), n2);

    // A removal by id, with the older state that still has both.
    fs::write(&state, &before).expect("the state of before");
    let n3 = another("n3");
    assert_ne!(n3, "");
    let id = site.cluster_id();
    let older = ["plan", "--remove", "--recover", &id, "--clean", "n3"];
    let plan = site.run(&older).well();
    assert!(
        plan.stdout.contains("n3") && plan.stdout.contains("/etc/kubernetes/admin.conf"),
        "{plan:?}"
    );
    let older = ["remove", "--force", "--recover", &id, "--clean", "n3"];
    site.run(&older).well();
    assert_eq!(content(site.lab.node("n2")), n2);
    assert_eq!(
        content(site.lab.node("n3")),
        "",
        "consent by name: it is clean"
    );
}

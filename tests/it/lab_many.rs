//! Several real nodes: a cluster that grows, loses a node for a while, and gives one back, while it is
//! written to through a worker's own proxy.

use std::{collections::BTreeSet, fs, time::Duration};

use lab::{LabSpec, Node, Profile};
use serde_json::{Value, json};

use crate::{
    lab_remove::ALLOWED,
    real::{Site, snapshot, writer::Writer},
};

pub(crate) const ALL: &[&str] = &["controlplane", "etcd", "worker"];
pub(crate) const CENTRAL: &[&str] = &["controlplane", "etcd"];
pub(crate) const WORKER: &[&str] = &["worker"];

impl Site {
    /// A `cluster.yml` with these nodes.
    pub(crate) fn names(&self, nodes: &[(&str, &[&str])]) {
        let nodes = nodes.iter().map(|(name, roles)| (*name, *name, *roles));
        self.names_at(&nodes.collect::<Vec<_>>());
    }

    /// The same, each on a machine of the lab: `(name, machine, roles)`.
    pub(crate) fn names_at(&self, nodes: &[(&str, &str, &[&str])]) {
        let nodes = nodes.iter().map(|(name, machine, roles)| {
            let machine = self.lab.node(machine);
            (*name, machine, roles.to_vec())
        });
        let yaml = Node::common_yml("many", &nodes.collect::<Vec<_>>()).expect("a config");
        self.write_config("cluster.yml", &yaml);
    }

    /// Edits `cluster.yml`.
    pub(crate) fn edits(&self, edit: impl FnOnce(&mut Value)) {
        let yaml = fs::read_to_string(self.path("cluster.yml")).expect("a config");
        let mut config: Value = serde_saphyr::from_str(&yaml).expect("a document");
        edit(&mut config);
        self.write_config("cluster.yml", &config.to_string());
    }

    /// The members of etcd, as one of them tells.
    pub(crate) fn members(&self, node: &str) -> BTreeSet<String> {
        let list = "docker exec etcd etcdctl member list | cut -d, -f3";
        let said = self.lab.node(node).sh(list).expect("etcd answers");
        said.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// The nodes that CoreDNS is on.
    pub(crate) fn dns(&self) -> BTreeSet<String> {
        let path = "jsonpath={range .items[*]}{.spec.nodeName}{\"\\n\"}{end}";
        let pods = [
            "-n",
            "kube-system",
            "get",
            "pods",
            "-l",
            "k8s-app=kube-dns",
            "-o",
            path,
        ];
        let said = self.kubectl(&pods).well().stdout;
        said.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// The names of the Nodes that are Ready.
    pub(crate) fn ready(&self) -> BTreeSet<String> {
        let path = "jsonpath={range .items[*]}{.metadata.name} \
                    {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
        let said = self.kubectl(&["get", "nodes", "-o", path]).well().stdout;
        let ready = said.lines().filter_map(|line| line.strip_suffix(" True"));
        ready.map(|name| name.trim().to_owned()).collect()
    }

    /// Every node takes pods.
    pub(crate) fn nobody_is_cordoned(&self) -> bool {
        let path = "jsonpath={.items[*].spec.unschedulable}";
        let said = self.kubectl(&["get", "nodes", "-o", path]).well().stdout;
        said.trim().is_empty()
    }
}

/// Nodes are drained before their kubelets change. A run that is killed while it evicts leaves the pod in
/// the status of its `PodDisruptionBudget`, and Kubernetes waits two minutes for it to go before it lets
/// another one go.
pub(crate) fn drains(config: &mut Value) {
    let input = json!({
        "ignore_daemonsets": true, "delete_local_data": true, "force": true, "timeout": 300,
    });
    config["upgrade_strategy"] = json!({"drain": true, "node_drain_input": input});
}

pub(crate) fn names(nodes: &[&str]) -> BTreeSet<String> {
    nodes.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_cluster_grows_and_shrinks_while_it_is_written_to() {
    let nodes = ["n1", "n2", "n3", "n4", "n5"];
    let spec = nodes.iter().fold(LabSpec::own("many"), |spec, name| {
        spec.node(name, Profile::Plain)
    });
    let site = Site::of(&spec);
    let before = nodes.map(|name| snapshot::take(site.lab.node(name)));
    let up = &["up", "--yes"];

    site.names(&[("n1", ALL), ("n4", WORKER)]);
    site.run(up).well();
    assert_eq!(site.ready(), names(&["n1", "n4"]));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let writer = Writer::start(&site, site.lab.node("n4"), &runtime);

    // One becomes three, and a worker comes.
    let grown = [
        ("n1", ALL),
        ("n2", CENTRAL),
        ("n3", CENTRAL),
        ("n4", WORKER),
        ("n5", WORKER),
    ];
    site.names(&grown);
    site.run(up).well();
    assert_eq!(site.ready(), names(&nodes));
    assert_eq!(
        site.members("n1"),
        names(&["etcd-n1", "etcd-n2", "etcd-n3"])
    );
    site.has_nothing_to_do();

    // One of three is off: the others serve, and what was left of it is done when it is back.
    site.lab.node("n3").stop().expect("it stops");
    let degraded = site.run(up);
    assert_eq!(degraded.status, 3, "{degraded:?}");
    assert!(degraded.stderr.contains("n3"), "{degraded:?}");
    site.lab.node("n3").start().expect("it starts");
    Site::eventually("`n3` is back", Duration::from_secs(180), || {
        site.run(up).status == 0
    });

    // The one that it began with goes, and it may be the one that leads.
    site.names(&grown[1..]);
    site.run(up).well();
    assert_eq!(site.ready(), names(&["n2", "n3", "n4", "n5"]));
    assert_eq!(site.members("n2"), names(&["etcd-n2", "etcd-n3"]));
    let [n1, ..] = &before;
    snapshot::unchanged(site.node(), n1, ALLOWED);
    site.has_nothing_to_do();

    // A worker becomes a control plane with a member, and one of those that were there a worker.
    let promoted = [
        ("n2", CENTRAL),
        ("n3", CENTRAL),
        ("n4", WORKER),
        ("n5", ALL),
    ];
    site.names(&promoted);
    site.run(up).well();
    assert_eq!(
        site.members("n3"),
        names(&["etcd-n2", "etcd-n3", "etcd-n5"])
    );
    let [_, stay @ ..] = promoted;
    site.names(&[&[("n2", WORKER)], &stay[..]].concat());
    site.run(up).well();
    assert_eq!(site.ready(), names(&["n2", "n3", "n4", "n5"]));
    assert_eq!(site.members("n3"), names(&["etcd-n3", "etcd-n5"]));
    let kept = "ls /etc/kubernetes /etc/kubernetes/ssl; docker ps --format '{{.Names}}'";
    let kept = site.lab.node("n2").sh(kept).expect("it answers");
    for gone in [
        "state.json",
        "service-account",
        "etcd",
        "apiserver",
        "scheduler",
    ] {
        assert!(!kept.contains(gone), "{kept}");
    }
    site.has_nothing_to_do();

    writer.nothing_is_lost(&runtime);
    site.run(&["remove", "--force"]).well();
    for (name, before) in nodes.iter().zip(&before) {
        // What Docker of a node that was off has made anew since is not as it was.
        if *name != "n3" {
            snapshot::unchanged(site.lab.node(name), before, ALLOWED);
        }
    }
    Site::nothing_is_left(site.lab.node("n3"));
}

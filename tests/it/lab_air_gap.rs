//! Nodes that reach no registry, for real: what one cluster has is saved from its node, and another cluster is created from
//! the file. Its pods run, a second run does nothing, and a removal leaves the nodes as they were.

use std::time::Duration;

use lab::{LabSpec, Profile};

use crate::{
    lab_many::{ALL, WORKER},
    lab_remove::ALLOWED,
    real::{Site, snapshot, tell},
};

const MINUTE: Duration = Duration::from_secs(60);
const NODES: [(&str, &str, &[&str]); 3] = [
    ("n1", "n1", ALL),
    ("n2", "n2", WORKER),
    ("n3", "n3", WORKER),
];

#[test]
fn a_cluster_is_created_without_a_registry() {
    let spec = NODES
        .iter()
        .fold(LabSpec::own("air-gap"), |spec, (_, machine, _)| {
            spec.node(machine, Profile::Plain)
        });
    let site = Site::of(&spec);
    site.names_at(&NODES);
    let each = |script: &str| {
        for (_, machine, _) in NODES {
            site.lab.node(machine).sh(script).expect(script);
        }
    };

    // Workers have nginx, and control planes the rest.
    site.run_static(&["up", "--yes"]).well();
    let saved = site
        .run(&["images", "save", "--from-node", "n1,n2", "-o", "images.tar"])
        .well();
    tell(&saved.stdout);
    let listed = site.run(&["images", "list"]).well();
    let count = format!("{} images", listed.stdout.lines().count());
    assert!(saved.stdout.contains(&count), "{saved:?}");
    site.run(&["remove", "--force"]).well();
    each(
        "docker image prune --all --force >/dev/null; ctr --namespace k8s.io images ls -q | grep . && exit 1; true",
    );

    site.lab.registry().stop().expect("the registry stops");
    assert!(
        site.node()
            .sh("docker pull rancher/mirrored-pause:3.6")
            .is_err()
    );
    let before: Vec<_> = NODES
        .iter()
        .map(|(_, it, _)| snapshot::take(site.lab.node(it)))
        .collect();
    let plan = site
        .run_static(&["plan", "--full", "--image-bundle", "images.tar"])
        .well();
    assert!(!plan.stdout.contains("  pull "), "{plan:?}");
    site.run_static(&["up", "--yes", "--image-bundle", "images.tar"])
        .well();
    assert_eq!(site.ready().len(), NODES.len());
    Site::eventually("CoreDNS runs", 3 * MINUTE, || {
        let ready = "-o=jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}";
        let pods = [
            "get",
            "pods",
            "-n",
            "kube-system",
            "-l",
            "k8s-app=kube-dns",
            ready,
        ];
        let ready = site.kubectl(&pods).stdout;
        !ready.is_empty() && ready.split(' ').all(|ready| ready == "True")
    });
    let pinned = "ctr --namespace k8s.io images ls | grep hardened-coredns | grep pinned";
    each(pinned);
    for again in [
        &["up"][..],
        &["up", "--image-bundle", "images.tar"],
        &["images", "load", "images.tar"],
    ] {
        let again = site.run_static(again).well();
        assert!(again.stderr.contains("nothing to do"), "{again:?}");
    }

    site.run(&["remove", "--force"]).well();
    each("docker image prune --all --force >/dev/null");
    for ((_, machine, _), before) in NODES.iter().zip(&before) {
        snapshot::unchanged(site.lab.node(machine), before, ALLOWED);
    }

    // Before there is a cluster: what is cut off is continued, and nothing but images comes.
    let loaded = site.run(&["images", "load", "images.tar"]).well();
    tell(&loaded.stderr);
    each("! docker ps --all --format '{{.Names}}' | grep rke-operator");
    each("ctr --namespace k8s.io images ls -q | grep -q hardened-coredns");
    let again = site.run(&["images", "load", "images.tar"]).well();
    assert!(again.stderr.contains("nothing to do"), "{again:?}");
}

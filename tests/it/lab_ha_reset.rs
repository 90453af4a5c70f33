//! `node drain`, `node uncordon` and `node reset` on real nodes.

use std::time::Duration;

use lab::{LabSpec, Profile};

use crate::{
    lab_many::{ALL, CENTRAL, WORKER},
    real::Site,
};

const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: &str = "rancher/mirrored-pause:3.6";

/// No run takes the cordon of a person back, `node drain`'s included.
#[test]
fn a_node_that_is_drained_stays_so_until_a_person_ends_it() {
    let spec = ["n1", "n2"]
        .iter()
        .fold(LabSpec::own("drained"), |spec, name| {
            spec.node(name, Profile::Plain)
        });
    let site = Site::of(&spec);
    site.names(&[("n1", ALL), ("n2", WORKER)]);
    site.run(&["up", "--yes"]).well();
    let deploy = [
        "create",
        "deployment",
        "web",
        "--image",
        PAUSE,
        "--replicas=6",
    ];
    site.kubectl(&deploy).well();
    let on_n2 = || {
        let select = [
            "get",
            "pods",
            "-l",
            "app=web",
            "--field-selector",
            "spec.nodeName=n2",
            "-o",
            "name",
        ];
        site.kubectl(&select).well().stdout.lines().count()
    };
    Site::eventually("both have pods", LIMIT, || on_n2() > 0);

    let unknown = site.run(&["node", "drain", "n9"]);
    assert_eq!(unknown.status, 1, "{unknown:?}");
    assert!(unknown.stderr.contains("has no node `n9`"), "{unknown:?}");
    site.run(&["node", "drain", "n2"]).well();
    assert_eq!(on_n2(), 0);
    assert!(!site.nobody_is_cordoned());
    site.run(&["up", "--yes"]).well();
    assert!(!site.nobody_is_cordoned(), "a person's cordon");

    site.run(&["node", "uncordon", "n2"]).well();
    assert!(site.nobody_is_cordoned());

    // A pod that nothing would start again keeps its node, which takes pods again.
    let pin = r#"{"spec": {"nodeName": "n2"}}"#;
    let bare = [
        "run",
        "bare",
        "--image",
        PAUSE,
        "--restart=Never",
        "--overrides",
        pin,
    ];
    site.kubectl(&bare).well();
    let kept = site.run(&["node", "drain", "n2"]);
    assert_eq!(kept.status, 1, "{kept:?}");
    assert!(kept.stderr.contains("default/bare"), "{kept:?}");
    assert!(site.nobody_is_cordoned());
    site.run(&["node", "drain", "n2", "--force"]).well();
    assert!(!site.nobody_is_cordoned());
}

/// A control plane with a member of etcd leaves, is clean, and joins again.
#[test]
fn a_node_is_reset_and_joins_again_as_a_new_one() {
    let spec = ["n1", "n2", "n3"]
        .iter()
        .fold(LabSpec::own("reset"), |spec, name| {
            spec.node(name, Profile::Plain)
        });
    let site = Site::of(&spec);
    site.names(&[("n1", ALL), ("n2", CENTRAL), ("n3", &["etcd", "worker"])]);
    site.run(&["up", "--yes"]).well();
    let uid = |node: &str| {
        let path = "jsonpath={.metadata.uid}";
        site.kubectl(&["get", "node", node, "-o", path])
            .well()
            .stdout
    };
    let before = [uid("n1"), uid("n2"), uid("n3")];
    let n2 = site.lab.node("n2");
    n2.sh("touch /var/lib/kubelet/of-before").expect("a file");

    let unknown = site.run(&["node", "reset", "n9", "--yes"]);
    assert_eq!(unknown.status, 1, "{unknown:?}");
    assert!(
        unknown.stderr.contains("the config does not name it"),
        "{unknown:?}"
    );

    site.run(&["node", "reset", "n2", "--rejoin", "--yes"])
        .well();
    n2.sh("test ! -e /var/lib/kubelet/of-before")
        .expect("a clean node");
    assert_eq!(uid("n1"), before[0]);
    assert_ne!(uid("n2"), before[1], "a new Node");
    assert_eq!(uid("n3"), before[2]);
    assert_eq!(site.members("n1").len(), 3);
    assert_eq!(site.ready(), ["n1", "n2", "n3"].map(str::to_owned).into());
    site.has_nothing_to_do();

    // Without another word it is out, until the next `up`.
    let said = site.run(&["node", "reset", "n3", "--yes"]).well();
    assert!(said.stderr.contains("joins it again"), "{said:?}");
    assert_eq!(site.ready(), ["n1", "n2"].map(str::to_owned).into());
    assert!(crate::real::containers(site.lab.node("n3")).is_empty());
    site.run(&["up", "--yes"]).well();
    assert_ne!(uid("n3"), before[2], "a new Node");
}

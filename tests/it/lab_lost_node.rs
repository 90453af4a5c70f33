//! A real node that is gone for good: the cluster goes on without it, and another machine joins under its
//! name.

use std::{fs, time::Duration};

use lab::{LabSpec, Profile};

use crate::{
    lab_many::{CENTRAL, WORKER, names},
    real::Site,
};

const NAMED: [(&str, &str, &[&str]); 4] = [
    ("n1", "n1", CENTRAL),
    ("n2", "n2", CENTRAL),
    ("n3", "n3", CENTRAL),
    ("n4", "n4", WORKER),
];

impl Site {
    /// Whatever was written before is there.
    fn has_objects(&self) {
        let list = self.kubectl(&["get", "configmaps", "-o", "name"]).well();
        for number in 0..20 {
            let name = format!("configmap/object-{number}\n");
            assert!(list.stdout.contains(&name), "{name} is not in {list:?}");
        }
    }
}

#[test]
fn a_member_that_is_gone_is_given_up_and_another_machine_takes_its_name() {
    let machines = ["n1", "n2", "n3", "n4", "spare"];
    let spec = machines
        .iter()
        .fold(LabSpec::own("lost-node"), |spec, name| {
            spec.node(name, Profile::Plain)
        });
    let site = Site::of(&spec);
    site.names_at(&NAMED);
    site.run(&["up", "--yes"]).well();
    for number in 0..20 {
        let name = format!("object-{number}");
        let literal = ["create", "configmap", &name, "--from-literal=a=b"];
        site.kubectl(&literal).well();
    }

    site.lab.node("n3").stop().expect("its plug is pulled");
    let less = [NAMED[0], NAMED[1], NAMED[3]];
    site.names_at(&less);
    let state = site.path("cluster.rke-operator.json");
    let before = fs::read(&state).expect("a state");
    let refused = site.run(&["up", "--yes"]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("does not answer") && refused.stderr.contains("--lose n3"),
        "{refused:?}"
    );
    // Until its kubelet is missed it may be alive.
    let early = site.run(&["plan", "--lose", "n3"]);
    assert!(
        early.status == 0 || early.stderr.contains("its kubelet runs"),
        "{early:?}"
    );
    let missed = Duration::from_secs(180);
    Site::eventually("`n3` is missed", missed, || {
        site.run(&["plan", "--lose", "n3"]).status == 0
    });
    assert_eq!(
        fs::read(&state).expect("a state"),
        before,
        "nothing was written"
    );

    site.run(&["up", "--yes", "--lose", "n3"]).well();
    assert_eq!(site.members("n1"), names(&["etcd-n1", "etcd-n2"]));
    assert_eq!(site.ready(), names(&["n1", "n2", "n4"]));
    let all = site.kubectl(&["get", "nodes", "-o", "name"]).well();
    assert!(!all.stdout.contains("node/n3"), "{all:?}");
    let kept = fs::read_to_string(&state).expect("a state");
    assert!(kept.contains("\"lost\"") && kept.contains("\"lostAt\""));
    site.has_objects();
    site.has_nothing_to_do();

    let fresh = [NAMED[0], NAMED[1], ("n3", "spare", CENTRAL), NAMED[3]];
    site.names_at(&fresh);
    site.run(&["up", "--yes"]).well();
    assert_eq!(
        site.members("n1"),
        names(&["etcd-n1", "etcd-n2", "etcd-n3"])
    );
    assert_eq!(site.ready(), names(&["n1", "n2", "n3", "n4"]));
    site.has_objects();
    site.has_nothing_to_do();
    site.run(&["remove", "--force"]).well();
}

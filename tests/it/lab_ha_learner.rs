//! A member of etcd that was added and never started: it leaves with its node, and later members join.

use std::time::Duration;

use lab::{LabSpec, Profile};

use crate::{
    lab_many::{ALL, CENTRAL, WORKER, names},
    real::Site,
};

const UP: &[&str] = &["up", "--yes"];
/// Long enough for a member to be added, and much less than a run waits for one that does not come.
const ADDED: Duration = Duration::from_secs(30);

#[test]
fn a_learner_that_never_started_leaves_and_later_members_join() {
    let nodes = ["n1", "n2", "n3", "n4"];
    let spec = nodes.iter().fold(LabSpec::own("ha-learner"), |spec, name| {
        spec.node(name, Profile::Plain)
    });
    let site = Site::of(&spec);
    let small = [("n1", ALL), ("n4", WORKER)];
    site.names(&small);
    site.run(UP).well();

    // From the moment in which it joins it does not reach the member that is there.
    site.names(&[&small[..], &[("n2", CENTRAL)]].concat());
    let (first, second) = (site.lab.node("n1"), site.lab.node("n2"));
    let shut = format!(
        "iptables --insert INPUT --source {} --protocol tcp --dport 2380 --jump DROP",
        second.address()
    );
    let kill = site.kill_when(UP, |title| {
        (title == "join etcd").then(|| {
            first.sh(&shut).expect("a firewall");
            ADDED
        })
    });
    assert!(
        kill.is_some_and(|kill| kill.within),
        "it waits for the member"
    );
    let list = "docker exec etcd etcdctl member list";
    let list = first.sh(list).expect("etcd answers");
    let learner = list.lines().find(|line| line.contains("unstarted"));
    let learner = learner.unwrap_or_else(|| panic!("a member without a name: {list}"));
    assert!(learner.contains(&second.address().to_string()), "{list}");

    // Its node goes again, and takes it along.
    site.names(&small);
    site.run(UP).well();
    assert_eq!(site.members("n1"), names(&["etcd-n1"]));
    Site::nothing_is_left(second);
    site.has_nothing_to_do();

    // Others join.
    site.names(&[&small[..], &[("n3", CENTRAL)]].concat());
    site.run(UP).well();
    assert_eq!(site.members("n1"), names(&["etcd-n1", "etcd-n3"]));
    assert_eq!(site.ready(), names(&["n1", "n3", "n4"]));
    site.run(&["remove", "--force"]).well();
}

//! `kill -9` at each kind of step while a cluster of several nodes is made, grown, rolled and shrunk, and
//! while it is written to: started again it converges, etcd's members are the config's, and nothing that was
//! acknowledged is gone.

use std::{collections::BTreeSet, time::Duration};

use lab::{LabSpec, Profile};
use serde_json::json;

use crate::{
    lab_many::{ALL, CENTRAL, WORKER, drains, names},
    real::{Site, tell, watch::kind, writer::Writer},
};

pub(crate) const UP: &[&str] = &["up", "--yes"];

/// Every other kill comes this long after its step has begun.
const WITHIN: Duration = Duration::from_millis(300);

/// Kills `args` once at each kind of step, a run a kill, until a run gets through. Gives the kinds, and those of
/// steps that began just before a kill: where one of these was done by then, no later run has it.
pub(crate) fn killed(site: &Site, args: &[&str]) -> BTreeSet<String> {
    let (mut kinds, mut begun, mut within) = (BTreeSet::new(), BTreeSet::new(), 0);
    while let Some(kill) = site.kill_when(args, |title| {
        let delay = if kinds.len() % 2 == 0 {
            Duration::ZERO
        } else {
            WITHIN
        };
        (!kinds.contains(&kind(title))).then_some(delay)
    }) {
        within += usize::from(kill.within);
        tell(&format!("killed: {}", kill.title));
        begun.extend(kill.begun.iter().map(|title| kind(title)));
        assert!(kinds.insert(kind(&kill.title)), "{kill:?} of {kinds:?}");
    }
    tell(&format!("{} kills, {within} within a step", kinds.len()));
    kinds.union(&begun).cloned().collect()
}

/// Who is there is as the config says, and there is nothing left to do.
pub(crate) fn converged(site: &Site, from: &str, ready: &[&str], members: &[&str], dns: usize) {
    assert_eq!(site.ready(), names(ready));
    assert_eq!(site.members(from), names(members));
    site.has_nothing_to_do();
    assert_eq!(site.dns().len(), dns, "nodes with a replica of CoreDNS");
}

/// Each of these kinds was met.
pub(crate) fn met(kinds: &BTreeSet<String>, wanted: &[&str]) {
    for wanted in wanted {
        let mut all = kinds.iter();
        assert!(all.any(|kind| kind.contains(wanted)), "{wanted}: {kinds:?}");
    }
}

impl Site {
    /// Other flags of kubelets and API servers, which are drained before.
    fn wants_flags(&self) {
        self.edits(|config| {
            config["services"]["kube-api"]["extra_args"] = json!({"max-requests-inflight": "500"});
            config["services"]["kubelet"]["extra_args"]["max-pods"] = json!("100");
            drains(config);
        });
    }
}

#[test]
fn several_nodes_converge_wherever_a_run_is_killed() {
    let nodes = ["n1", "n2", "n3", "n4"];
    let spec = nodes
        .iter()
        .fold(LabSpec::own("many-killed"), |spec, name| {
            spec.node(name, Profile::Plain)
        });
    let site = Site::of(&spec);

    site.names(&[("n1", ALL), ("n4", WORKER)]);
    met(&killed(&site, UP), &["claim", "run etcd", "run kubelet"]);
    converged(&site, "n1", &["n1", "n4"], &["etcd-n1"], 2);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let writer = Writer::start(&site, site.lab.node("n4"), &runtime);

    let all = [
        ("n1", ALL),
        ("n2", CENTRAL),
        ("n3", CENTRAL),
        ("n4", WORKER),
    ];
    let members = ["etcd-n1", "etcd-n2", "etcd-n3"];
    site.names(&all);
    met(&killed(&site, UP), &["join etcd", "kube-apiserver"]);
    converged(&site, "n1", &nodes, &members, 2);

    site.wants_flags();
    let rolled = ["replace kube-apiserver", "replace kubelet", "drain"];
    met(&killed(&site, UP), &rolled);
    converged(&site, "n1", &nodes, &members, 2);
    assert!(site.nobody_is_cordoned());

    site.names(&all[1..]);
    let kinds = killed(&site, UP);
    met(
        &kinds,
        &[
            "drain",
            "remove member",
            "remove kubelet",
            "delete the Node",
            "release",
        ],
    );
    // `n4` alone takes pods that tolerate nothing.
    converged(&site, "n2", &nodes[1..], &members[1..], 1);

    writer.nothing_is_lost(&runtime);
    site.run(&["remove", "--force"]).well();
}

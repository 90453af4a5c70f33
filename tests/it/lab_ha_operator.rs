//! `kill -9` of the operator at one step of each kind while it makes a cluster of several nodes from an object,
//! adds to it, rolls it, takes a node away, and takes it down.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    lab_kill_operator::{CLUSTER, EveryKind, has_its_finalizer, killed_until},
    lab_many::{ALL, CENTRAL, WORKER},
    lab_remove::ALLOWED,
    real::{
        operator::{Management, is_settled},
        snapshot, tell,
    },
};

const LIMIT: Duration = Duration::from_secs(900);

type Nodes<'a> = &'a [(&'a str, &'a [&'a str])];

struct Killed {
    management: Management,
}

impl Killed {
    /// Kills it until the object is settled; each of these kinds of steps was met. Its nodes are Ready and are
    /// those of the config.
    fn until_settled(&self, nodes: Nodes<'_>, wanted: &[&str]) {
        let mut every = EveryKind::default();
        let settled = |now: Option<&Value>| now.is_some_and(is_settled);
        let kills = killed_until(
            &self.management,
            &mut every,
            LIMIT,
            settled,
            has_its_finalizer,
        );
        tell(&format!("{kills} kills: {:?}", every.0));
        for kind in wanted {
            assert!(every.0.contains(*kind), "{kind}: {:?}", every.0);
        }
        let path = "jsonpath={range .items[*]}{.metadata.name} \
                    {.status.conditions[?(@.type==\"Ready\")].status} {.spec.unschedulable}{\"\\n\"}{end}";
        let said = self
            .management
            .inside(CLUSTER, &["get", "nodes", "-o", path]);
        let there: Vec<&str> = said.stdout.lines().map(str::trim).collect();
        let ready = nodes.iter().map(|(name, _)| format!("{name} True"));
        assert_eq!(there, ready.collect::<Vec<_>>());
    }

    fn edit(&self, config: &Value) {
        let patch = json!({"spec": {"config": config}});
        self.management.edit(CLUSTER, &patch);
    }
}

#[test]
fn an_operator_that_is_killed_makes_changes_and_takes_down_a_cluster_of_several_nodes() {
    let names = ["n2", "n3", "n4", "n5"];
    let management = Management::with("ha-operator", &names);
    let node = |name: &str| management.site().lab.node(name);
    let before = names.map(|name| snapshot::take(node(name)));
    let few: Nodes<'_> = &[("n2", ALL), ("n5", WORKER)];
    let all: Nodes<'_> = &[
        ("n2", ALL),
        ("n3", CENTRAL),
        ("n4", CENTRAL),
        ("n5", WORKER),
    ];

    let mut sample = management.sample(CLUSTER, management.second());
    sample["spec"]["config"] = management.config_of(CLUSTER, few);
    management.send(&["create"], &sample).well();
    let killed = Killed { management };
    killed.until_settled(few, &["claim", "run"]);

    killed.edit(&killed.management.config_of(CLUSTER, all));
    killed.until_settled(all, &["join", "replace"]);

    killed.edit(&json!({"services": {"kubelet": {"extra_args": {"max-pods": "100"}}}}));
    killed.until_settled(all, &["cordon", "replace", "uncordon"]);

    let left = &all[1..];
    let mut config = killed.management.config_of(CLUSTER, left);
    config["services"] = json!({"kubelet": {"extra_args": {"max-pods": "100"}}});
    killed.edit(&config);
    killed.until_settled(left, &["drain", "clean", "release", "delete"]);

    killed.management.delete(CLUSTER);
    let mut every = EveryKind::default();
    let gone = |now: Option<&Value>| now.is_none();
    killed_until(
        &killed.management,
        &mut every,
        LIMIT,
        gone,
        has_its_finalizer,
    );
    for (name, before) in names.iter().zip(&before) {
        let node = killed.management.site().lab.node(name);
        snapshot::unchanged(node, before, ALLOWED);
    }
}

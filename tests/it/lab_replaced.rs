//! `make test-replaced FROM=<commit>`: the operator of an earlier commit makes clusters; the present one takes its place
//! under them, and no container is restarted.

use std::{path::PathBuf, time::Duration};

use serde_json::{Value, json};

use crate::{
    lab_many::{ALL, WORKER},
    real::operator::{Management, is},
};

const MINUTES: Duration = Duration::from_secs(300);

/// When each container of a node was started, by its id and name.
fn started(management: &Management, node: &str) -> String {
    let node = management.site().lab.node(node);
    node.sh("docker ps -aq | xargs docker inspect --format '{{.Id}} {{.Name}} {{.State.StartedAt}} {{.RestartCount}}' | sort")
        .expect("docker inspect")
}

/// It was looked at since, by the operator that leads now.
fn looked_at(management: &Management, name: &str, value: &str) -> Value {
    management.edit(
        name,
        &json!({"metadata": {"annotations": {"clusterprovisioner.rke.io/reconcile-at": value}}}),
    );
    management.until(name, "it was looked at", MINUTES, |cluster| {
        cluster["status"]["lastHandledReconcileAt"] == value && is(cluster, "Ready", "True")
    })
}

#[test]
fn the_operator_of_an_earlier_commit_is_replaced_under_living_clusters() {
    let from =
        std::env::var("REPLACED").expect("REPLACED names the tree of the earlier commit, built");
    let from = PathBuf::from(from);
    let management = Management::with("replaced", &["n2", "n3", "n4"]);
    let old = management.image_of("old", &from.join("target/debug/rke-operator"));
    // The definitions are its own, too.
    management.make("uninstall").well();
    management.deploy_from(&from, &old);
    let one = management.sample("one", management.second());
    management.send(&["create"], &one).well();
    let third = management.site().lab.node("n3");
    let mut two = management.sample("two", third);
    two["spec"]["config"] = management.config_of("two", &[("n3", ALL), ("n4", WORKER)]);
    management.send(&["create"], &two).well();
    for name in ["one", "two"] {
        management.settled(name, MINUTES);
    }
    let nodes = ["n2", "n3", "n4"];
    let before = nodes.map(|node| started(&management, node));

    management.deploy(&management.image("new"));
    for name in ["one", "two"] {
        looked_at(&management, name, "replaced");
    }
    assert_eq!(nodes.map(|node| started(&management, node)), before);

    // It is theirs: a change is carried out, and both are taken down.
    let edit = json!({"spec": {"config": {"services": {"scheduler": {"extra_args": {"v": "3"}}}}}});
    management.edit("one", &edit);
    management.settled("one", MINUTES);
    for name in ["one", "two"] {
        management.delete(name);
    }
    for name in ["one", "two"] {
        management.gone(name, MINUTES);
    }
}

//! The moves of `docs/moving.md` with its commands, on real nodes and a real API server: command line, object, command
//! line; and the management cluster as an object in itself. Every container keeps its id.

use std::{collections::BTreeMap, fs, time::Duration};

use lab::Node;
use serde_json::{Value, json};

use crate::real::{
    Run, containers,
    operator::{Management, NAMESPACE, condition},
};

/// One pass of the operator.
const SOON: Duration = Duration::from_secs(60);
/// A cluster taken over or let go.
const MINUTES: Duration = Duration::from_secs(240);

/// `rke-operator init | kubectl apply --server-side -f -`, by a file.
fn handed_over(management: &Management, args: &[&str]) -> Run {
    let printed = management.site().run(&[&["init"], args].concat()).well();
    let path = management.site().path("objects.yaml");
    fs::write(&path, printed.stdout).expect("the objects are written");
    let path = path.to_string_lossy().into_owned();
    management.kubectl(&["apply", "--server-side", "-f", &path])
}

fn is_stalled(cluster: &Value, reason: &str) -> bool {
    condition(cluster, "Stalled").is_some_and(|stalled| stalled["reason"] == reason)
}

fn is_as_it_was(node: &Node, ids: &BTreeMap<String, String>) {
    assert_eq!(&containers(node), ids, "no container is another one");
}

#[test]
fn a_cluster_moves_and_nothing_restarts() {
    let management = Management::new("moves");
    let (site, node) = (management.site(), management.second());
    site.write_config("moved.yml", &node.cluster_yml("moved").expect("a config"));
    let config = ["--config", "moved.yml"];
    site.run(&[&["up", "--yes"][..], &config].concat()).well();
    let ids = containers(node);
    let operator = management.operator();

    // Command line → object. Applied again it conflicts with what the operator wrote since.
    handed_over(&management, &config).well();
    let owned = management.settled("moved", MINUTES);
    is_as_it_was(node, &ids);
    let id = owned["status"]["clusterID"]
        .as_str()
        .expect("an id")
        .to_owned();
    let again = handed_over(&management, &config);
    assert_ne!(again.status, 0, "{again:?}");
    assert!(again.stderr.contains("conflict"), "{again:?}");
    for command in [&["up", "--yes"][..], &["remove", "--force"]] {
        let refused = site.run(&[command, &config].concat());
        assert_eq!(refused.status, 1, "{refused:?}");
        assert!(refused.stderr.contains("not the newest"), "{refused:?}");
    }
    management.settled("moved", MINUTES);
    is_as_it_was(node, &ids);

    // Object → command line.
    management.edit(
        "moved",
        &json!({"spec": {"deletion": {"policy": "Orphan"}}}),
    );
    management.delete("moved");
    management.gone("moved", SOON);
    is_as_it_was(node, &ids);
    fs::remove_file(site.path("moved.rke-operator.json")).expect("the state file");
    site.run(&[&["up", "--yes", "--recover", &id][..], &config].concat())
        .well();
    is_as_it_was(node, &ids);

    // The state that the object left is older by now.
    let stale = management.own("secret", "moved-state").expect("it stays");
    assert!(stale["data"].is_object());
    let mut object = management.sample("moved", node);
    object["metadata"]["annotations"] = json!({"clusterprovisioner.rke.io/take-over": id});
    management.send(&["create"], &object).well();
    management.until("moved", "it is refused", SOON, |cluster| {
        is_stalled(cluster, "StateConflict")
    });
    management.delete("moved");
    management.edit("moved", &json!({"spec": {"deletion": {"timeout": "20s"}}}));
    management.gone("moved", MINUTES);
    is_as_it_was(node, &ids);
    site.run(&[&["remove", "--force"][..], &config].concat())
        .well();
    operator.stop();
}

/// It is handed over as any other cluster, and no deletion removes it.
#[test]
fn the_management_cluster_becomes_an_object_and_is_never_removed() {
    let management = Management::new("home");
    let ids = containers(management.first());
    let operator = management.operator();
    handed_over(&management, &["--name", "home"]).well();
    management.settled("home", MINUTES);
    is_as_it_was(management.first(), &ids);
    assert!(
        management.own("secret", "home-state").is_some(),
        "in {NAMESPACE}"
    );
    management.edit("home", &json!({"spec": {"deletion": {"timeout": "30s"}}}));
    management.delete("home");
    management.until("home", "it refuses", SOON, |cluster| {
        is_stalled(cluster, "SelfManaged")
    });
    management.gone("home", MINUTES);
    is_as_it_was(management.first(), &ids);
    management.kubectl(&["get", "nodes"]).well();
    operator.stop();
}

//! `ClusterOperation`s on a real node: a snapshot, a reboot during which the operator is killed, a drain, a restore that waits for
//! approval, and new authorities.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    lab_ha_reboot::{PROCESS, switched_on},
    real::{
        Site,
        operator::{Management, condition, step},
    },
};

const CLUSTER: &str = "minimal";
const MINUTES: Duration = Duration::from_secs(300);

fn operation(name: &str, kind: &str, more: &Value) -> Value {
    let mut spec = json!({"clusterRef": {"name": CLUSTER}, "type": kind});
    for (key, value) in more.as_object().expect("a mapping") {
        spec[key] = value.clone();
    }
    json!({
        "apiVersion": "clusterprovisioner.rke.io/v1alpha1",
        "kind": "ClusterOperation",
        "metadata": {"name": name},
        "spec": spec,
    })
}

impl Management {
    fn asks(&self, name: &str, kind: &str, more: &Value) {
        let object = operation(name, kind, more);
        self.send(&["create"], &object).well();
    }

    fn operation_is(&self, name: &str, reason: &str) -> Value {
        let what = format!("operation {name} is {reason}");
        let mut last = Value::Null;
        Site::eventually(&what, MINUTES, || {
            last = self.get(&["rkeo", name]);
            let complete = condition(&last, "Complete");
            complete.is_some_and(|complete| complete["reason"] == reason)
        });
        last
    }
}

/// Its boot: in a system container, that of its first process.
fn booted(management: &Management) -> String {
    management.second().sh(PROCESS).expect("process 1")
}

#[test]
fn operations_are_carried_out_on_a_real_node() {
    let management = Management::new("operations");
    let sample = management.sample(CLUSTER, management.second());
    management.send(&["create"], &sample).well();
    let mut operator = management.operator();
    management.settled(CLUSTER, MINUTES);
    let inside = |args: &[&str]| management.inside(CLUSTER, args);
    inside(&["create", "configmap", "before", "--from-literal=a=1"]).well();

    management.asks("save", "Snapshot", &json!({"snapshot": {"name": "s1"}}));
    management.operation_is("save", "Succeeded");
    inside(&["delete", "configmap", "before"]).well();
    inside(&["create", "configmap", "after", "--from-literal=a=1"]).well();

    let before = booted(&management);
    management.asks("reboot", "Reboot", &json!({"reboot": {"nodes": ["n2"]}}));
    let operator = switched_on(management.second(), || {
        let reboots = |line: &str| step(line).filter(|title| *title == "reboot").map(drop);
        let begun = Instant::now();
        while operator.hear(Duration::from_secs(5), reboots).is_none() {
            assert!(begun.elapsed() < MINUTES, "no reboot");
        }
        operator.kill();
        let operator = management.operator();
        management.operation_is("reboot", "Succeeded");
        operator
    });
    let after = booted(&management);
    assert_ne!(after, before);
    management.settled(CLUSTER, MINUTES);
    assert_eq!(booted(&management), after, "once");

    management.asks("empty", "Drain", &json!({"drain": {"nodes": ["n2"]}}));
    management.operation_is("empty", "Succeeded");
    let cordoned = inside(&["get", "node", "n2", "-o", "jsonpath={.spec.unschedulable}"]);
    assert_eq!(cordoned.well().stdout, "true");
    inside(&["uncordon", "n2"]).well();
    management.settled(CLUSTER, MINUTES);

    management.asks("back", "Restore", &json!({"restore": {"snapshot": "s1"}}));
    let waits = management.operation_is("back", "AwaitingApproval");
    inside(&["get", "configmap", "after"]).well();
    let approve = json!({"spec": {"approve": waits["status"]["plan"]["digest"]}}).to_string();
    let patch = ["patch", "rkeo", "back", "--type=merge", "-p", &approve];
    management.kubectl(&patch).well();
    management.operation_is("back", "Succeeded");
    management.settled(CLUSTER, MINUTES);
    inside(&["get", "configmap", "before"]).well();
    assert_ne!(inside(&["get", "configmap", "after"]).status, 0);

    let stage = json!({"rotateCA": {"stage": "Start"}});
    management.asks("authorities", "RotateCA", &stage);
    management.operation_is("authorities", "Succeeded");
    management.settled(CLUSTER, MINUTES);
    inside(&["get", "nodes"]).well();

    management.delete(CLUSTER);
    management.gone(CLUSTER, MINUTES);
    Site::eventually("the operations go with their Cluster", MINUTES, || {
        management
            .find(&["rkeo"])
            .is_none_or(|all| all["items"].as_array().is_none_or(Vec::is_empty))
    });
    operator.stop();
}

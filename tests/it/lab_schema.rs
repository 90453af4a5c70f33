//! The definition of `Cluster` at a real API server, which alone can tell: what it refuses, what becomes of objects that an
//! earlier definition took, and whether two clients can own a node each.

use std::{fs, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    operator_bad::{Bad, By},
    real::{
        Site, kubectl,
        operator::{CREDENTIALS, Management, condition, is_settled},
    },
};

const SOON: Duration = Duration::from_secs(60);
const MINUTES: Duration = Duration::from_secs(240);

/// How often the two clients apply.
const TIMES: usize = 100;

fn policies(management: &Management) {
    management
        .kubectl(&["create", "-f", "deploy/policies/policies.yaml"])
        .well();
    let all = Bad::all();
    let refused = all.iter().find(|bad| bad.by == By::Policy);
    let refused = refused.expect("a policy refuses something").object("early");
    // The API server reads new policies now and then.
    Site::eventually("the policies are in force", SOON, || {
        let dry = ["create", "--dry-run=server"];
        management.send(&dry, &refused).status != 0
    });
}

/// Each is refused where the table says, and with its words; what comes past admission, `operator_bad` gives to the
/// operator.
fn each_bad_object_is_refused_where_the_table_says(management: &Management) {
    for bad in Bad::all() {
        let dry = ["create", "--dry-run=server", "-o", "name"];
        let run = management.send(&dry, &bad.object("bad"));
        let by_policy = run.stderr.contains("ValidatingAdmissionPolicy");
        let as_told = match bad.by {
            By::Schema => run.status != 0 && !by_policy && run.stderr.contains(&bad.says),
            By::Policy => run.status != 0 && by_policy && run.stderr.contains(&bad.says),
            By::Operator => run.status == 0,
        };
        assert!(as_told, "{} ({:?}): {run:?}", bad.what, bad.by);
    }
}

/// What a cluster keeps for good cannot be edited once there is one, and an edit of the rest can.
fn what_a_cluster_keeps_is_kept(management: &Management) {
    let bad = Bad::all();
    let mut good = bad.first().expect("a row").object("kept");
    good["spec"]["config"]["nodes"] = json!([{
        "address": "192.0.2.10", "user": "core", "role": ["controlplane", "etcd", "worker"],
    }]);
    management.send(&["create"], &good).well();
    let patch = |more: &[&str], patch: &Value| {
        let patch = patch.to_string();
        let patch = ["patch", "rkec", "kept", "--type=merge", "-p", &patch];
        management.kubectl(&[&patch[..], more].concat())
    };
    let edit = |config: Value| patch(&[], &json!({"spec": {"config": config}}));
    edit(json!({"network": {"plugin": "calico"}})).well();
    let status = json!({"status": {"clusterID": "0123456789abcdef0123456789abcdef"}});
    patch(&["--subresource=status"], &status).well();
    for (config, says) in [
        (json!({"network": {"plugin": "canal"}}), "network plugin"),
        (json!({"network": null}), "network plugin"),
        (
            json!({"services": {"kube-controller": {"cluster_cidr": "10.44.0.0/16"}}}),
            "range of the pods",
        ),
        (
            json!({"services": {"kube-api": {"service_cluster_ip_range": "10.44.0.0/16"}}}),
            "range of the Services",
        ),
        (
            json!({"services": {"kubelet": {"cluster_domain": "example.com"}}}),
            "domain of a cluster",
        ),
    ] {
        let run = edit(config.clone());
        assert!(
            run.status != 0 && run.stderr.contains(says),
            "{config}: {run:?}"
        );
    }
    // The default may be written.
    edit(json!({"services": {
        "kubelet": {"cluster_domain": "cluster.local"},
        "kube-controller": {"cluster_cidr": "10.42.0.0/16"},
    }}))
    .well();
    management.kubectl(&["delete", "rkec", "kept"]).well();
}

#[derive(Deserialize)]
struct Former {
    name: String,
    config: Value,
}

/// Under a definition whose `config` had no schema anything could be written. All of it is served, reported and deleted
/// under the present one.
fn objects_of_an_earlier_definition_are_served_reported_and_deleted(management: &Management) {
    let former = "tests/fixtures/schema-7/clusters.yaml";
    management.kubectl(&["replace", "-f", former]).well();
    let objects = include_str!("../fixtures/schema-7/objects.yaml");
    let objects: Vec<Former> = serde_saphyr::from_str(objects).expect("a table");
    for Former { name, config } in &objects {
        let object = json!({
            "apiVersion": "clusterprovisioner.rke.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name, "finalizers": ["clusterprovisioner.rke.io/cleanup"]},
            "spec": {"config": config, "ssh": {"keySecretRef": {"name": "minimal-ssh", "key": "id_ed25519"}}},
        });
        // The definition that was replaced may be served for some seconds.
        Site::eventually("the former definition is served", SOON, || {
            management.send(&["create"], &object).status == 0
        });
    }
    let present = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        "crds/clusters.yaml",
    ];
    management.kubectl(&present).well();
    policies(management);

    let operator = management.operator();
    for Former { name, .. } in &objects {
        let served = management.until(name, "it is reported", MINUTES, |cluster| {
            condition(cluster, "ConfigValid").is_some_and(|found| found["status"] != "Unknown")
        });
        let valid = condition(&served, "ConfigValid").expect("it is there");
        let reason = valid["reason"].as_str().expect("a reason");
        let wanted = match name.as_str() {
            "minimal" | "scalars" => "Valid",
            "password" => "InlineSecret",
            _ => "InvalidConfig",
        };
        assert_eq!(reason, wanted, "{name}: {valid}");
    }
    for Former { name, .. } in &objects {
        management.delete(name);
    }
    for Former { name, .. } in &objects {
        management.gone(name, MINUTES);
    }
    operator.stop();
}

#[test]
fn the_definition_refuses_keeps_and_lets_go() {
    let management = Management::with("schema", &[]);
    objects_of_an_earlier_definition_are_served_reported_and_deleted(&management);
    each_bad_object_is_refused_where_the_table_says(&management);
    what_a_cluster_keeps_is_kept(&management);
}

/// One client applies `n2`, the other `n3`, at the same time and a hundred times. Neither loses a field, and what both
/// wished for last is in the cluster.
#[test]
fn two_clients_own_a_node_each() {
    let management = Management::with("owners", &["n2", "n3"]);
    let all = management.config_of(
        "owners",
        &[
            ("n2", &["controlplane", "etcd", "worker"]),
            ("n3", &["worker"]),
        ],
    );
    let known_hosts = fs::read_to_string(management.site().lab.known_hosts()).expect("known hosts");
    let sample = management.sample("owners", management.second());
    let ssh = json!({
        "keySecretRef": sample["spec"]["ssh"]["keySecretRef"], "knownHosts": known_hosts,
    });
    // The first has the rest of the config, too.
    let wish = |of: usize, wish: usize| {
        let mut config = all.clone();
        let mut node = all["nodes"][of].clone();
        node["labels"] =
            json!({"example.com/wish": format!("w{wish}"), format!("example.com/of-{of}"): "yes"});
        if of == 0 {
            config["nodes"] = json!([node]);
        } else {
            config = json!({"nodes": [node]});
        }
        json!({
            "apiVersion": "clusterprovisioner.rke.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "owners"},
            "spec": {"config": config, "ssh": ssh},
        })
    };
    let apply = |of: usize, number: usize| {
        let file = management.site().path(&format!("owner-{of}.json"));
        fs::write(&file, wish(of, number).to_string()).expect("it is written");
        let (manager, file) = (
            format!("--field-manager=owner-{of}"),
            file.display().to_string(),
        );
        let kubeconfig = management.site().path("kube_config_cluster.yml");
        kubectl(
            &kubeconfig,
            &["apply", "--server-side", &manager, "-f", &file],
        )
    };
    apply(0, 0).well();
    apply(1, 0).well();
    let operator = management.operator();
    for number in 1..=TIMES {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| apply(1, number));
            apply(0, number).well();
            other.join().expect("it ends").well();
        });
        let nodes = management.get(&["rkec", "owners"])["spec"]["config"]["nodes"].clone();
        for of in [0, 1] {
            let node = &nodes[of];
            let wish = format!("w{number}");
            assert_eq!(node["address"], all["nodes"][of]["address"], "{nodes}");
            assert_eq!(
                node["labels"]["example.com/wish"], wish,
                "time {number}: {nodes}"
            );
            assert_eq!(
                node["labels"][format!("example.com/of-{of}")],
                "yes",
                "{nodes}"
            );
            assert_eq!(node["role"], all["nodes"][of]["role"], "{nodes}");
        }
    }
    let last = format!("w{TIMES}");
    management.until(
        "owners",
        "the last wish is applied",
        MINUTES * 2,
        is_settled,
    );
    for node in ["n2", "n3"] {
        let found = management
            .inside("owners", &["get", "node", node, "-o", "json"])
            .well();
        let found: Value = serde_json::from_str(&found.stdout).expect("JSON");
        assert_eq!(
            found["metadata"]["labels"]["example.com/wish"], last,
            "{node}"
        );
    }
    // Neither client takes the other's node away with its own.
    let owners = management.get(&["rkec", "owners", "--show-managed-fields"]);
    let managers = owners["metadata"]["managedFields"]
        .as_array()
        .expect("managers");
    for of in ["owner-0", "owner-1"] {
        assert!(
            managers.iter().any(|manager| manager["manager"] == of),
            "{of}: {managers:?}"
        );
    }
    operator.stop();
    assert!(
        management.credential("owners-kubeconfig").is_some(),
        "in {CREDENTIALS}"
    );
}

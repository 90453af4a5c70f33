//! The operator against a real API server and real nodes: what only they can tell. The schema with
//! its rules is accepted, one object lives from `create` to `delete`, others can harm neither it
//! nor its node, and a deletion ends whatever is broken.

use std::time::Duration;

use lab::Node;
use serde_json::{Value, json};

use crate::{
    lab_remove::ALLOWED,
    real::{
        containers,
        operator::{CREDENTIALS, Management, NAMESPACE, Operator, condition, is, is_settled},
        snapshot::{self, Snapshot},
    },
};

/// One pass of the operator, and the API server's part in it.
const SOON: Duration = Duration::from_secs(60);
/// A cluster built or taken down.
const MINUTES: Duration = Duration::from_secs(240);

const CLUSTER: &str = "minimal";

/// An object of ours, and what the API server says against it.
struct Refused {
    kind: &'static str,
    name: String,
    spec: Value,
    message: &'static str,
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "clusterprovisioner.rke.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// The smallest config that the definition takes.
fn config() -> Value {
    json!({"nodes": [{"address": "192.0.2.10"}]})
}

fn spec(deletion: &Value) -> Value {
    json!({"config": config(), "ssh": {"keySecretRef": {"name": "nodes"}}, "deletion": deletion})
}

/// What a Kubeconfig of a user of the cluster asks for.
fn request(more: &Value) -> Value {
    let mut spec = json!({"clusterRef": {"name": CLUSTER}, "user": "jane", "clusterRole": "view"});
    for (key, value) in more.as_object().expect("fields") {
        if value.is_null() {
            spec.as_object_mut().expect("fields").remove(key);
        } else {
            spec[key] = value.clone();
        }
    }
    spec
}

/// Every rule of `src/api`, and the schema beside them.
fn refused() -> Vec<Refused> {
    let long = "x".repeat(53);
    let cluster = |spec: Value, message| Refused {
        kind: "Cluster",
        name: "refused".to_owned(),
        spec,
        message,
    };
    let kubeconfig = |more: &Value, message| Refused {
        kind: "Kubeconfig",
        name: "mine".to_owned(),
        spec: request(more),
        message,
    };
    vec![
        Refused {
            kind: "Cluster",
            name: long.clone(),
            spec: spec(&json!({})),
            message: "a Cluster's name has at most 52 characters",
        },
        Refused {
            kind: "Kubeconfig",
            name: long,
            spec: json!({"clusterRef": {"name": "a"}}),
            message: "a Kubeconfig's name has at most 52 characters",
        },
        kubeconfig(&json!({"user": null}), "needs a user and a clusterRole"),
        kubeconfig(&json!({"clusterRef": null}), "spec.clusterRef"),
        kubeconfig(
            &json!({"clusterRef": {"name": "mine"}}),
            "is the administrator's",
        ),
        kubeconfig(&json!({"user": "system:admin"}), "Kubernetes' own"),
        kubeconfig(&json!({"user": "a\tb"}), "spec.user"),
        kubeconfig(&json!({"groups": ["system:masters"]}), "Kubernetes' own"),
        kubeconfig(&json!({"ttl": "9m"}), "between 10m and 8760h"),
        kubeconfig(&json!({"server": "http://lb"}), "spec.server"),
        kubeconfig(&json!({"secret": {"name": "b-kubeconfig"}}), "-kubeconfig"),
        kubeconfig(&json!({"secret": {"format": "Helm"}}), "secret.format"),
        cluster(
            spec(&json!({"timeout": "721h"})),
            "the time for a deletion is between 1s and 720h",
        ),
        cluster(
            spec(&json!({"timeout": "0s"})),
            "the time for a deletion is between 1s and 720h",
        ),
        cluster(spec(&json!({"timeout": "soon"})), "spec.deletion.timeout"),
        cluster(
            json!({"config": config(), "ssh": {"keySecretRef": {"name": "a"}, "hostKeys": "Ignore"}}),
            "spec.ssh.hostKeys",
        ),
        cluster(
            spec(&json!({"onTimeout": "Forget"})),
            "spec.deletion.onTimeout",
        ),
        cluster(spec(&json!({"policy": "Forget"})), "spec.deletion.policy"),
        cluster(
            json!({"config": config(), "ssh": {"keySecretRef": {"name": "a"}}, "paused": "yes"}),
            "spec.paused",
        ),
        cluster(
            json!({"config": config(), "ssh": {"keySecretRef": {"name": "a"}}, "deletionProtection": 1}),
            "spec.deletionProtection",
        ),
        cluster(json!({"config": config()}), "spec.ssh"),
        cluster(
            json!({"ssh": {"keySecretRef": {"name": "a"}}}),
            "exactly one of spec.config, spec.configFrom and spec.configPath",
        ),
        cluster(
            json!({
                "config": config(), "configFrom": {"secretKeyRef": {"name": "b"}},
                "ssh": {"keySecretRef": {"name": "a"}},
            }),
            "exactly one of spec.config, spec.configFrom and spec.configPath",
        ),
        cluster(
            json!({"configFrom": {}, "ssh": {"keySecretRef": {"name": "a"}}}),
            "exactly one of secretKeyRef and configMapKeyRef",
        ),
        cluster(
            json!({
                "configFrom": {"secretKeyRef": {"name": "b"}, "configMapKeyRef": {"name": "b"}},
                "ssh": {"keySecretRef": {"name": "a"}},
            }),
            "exactly one of secretKeyRef and configMapKeyRef",
        ),
        cluster(
            json!({"configPath": "../a", "ssh": {"keySecretRef": {"name": "a"}}}),
            "relative to --config-root",
        ),
        cluster(
            json!({"configPath": "/a", "ssh": {"keySecretRef": {"name": "a"}}}),
            "relative to --config-root",
        ),
        cluster(
            json!({
                "config": config(),
                "ssh": {
                    "keySecretRef": {"name": "a"}, "knownHosts": "",
                    "knownHostsFrom": {"configMapKeyRef": {"name": "b"}},
                },
            }),
            "at most one of knownHosts and knownHostsFrom",
        ),
        cluster(
            json!({"config": config(), "ssh": {"keySecretRef": {"name": "../etc"}}}),
            "spec.ssh.keySecretRef.name",
        ),
        cluster(
            json!({"config": config(), "ssh": {"keySecretRef": {"name": "a", "namespace": "kube-system"}}}),
            "namespace",
        ),
        cluster(
            json!({"config": config(), "ssh": {"keySecretRef": {"name": "a"}}, "changes": "Never"}),
            "spec.changes",
        ),
    ]
}

/// The definitions are structural, the API server affords the rules, and it keeps them.
fn the_schema_is_accepted_and_kept(management: &Management) {
    for plural in ["clusters", "kubeconfigs", "clusteroperations"] {
        let name = format!("{plural}.clusterprovisioner.rke.io");
        let definition = management.get(&["crd", &name]);
        assert!(is(&definition, "Established", "True"), "{definition:#}");
        assert_eq!(
            condition(&definition, "NonStructuralSchema"),
            None,
            "{name} is structural"
        );
    }
    let dry = ["create", "--dry-run=server", "-o", "json"];
    for Refused {
        kind,
        name,
        spec,
        message,
    } in refused()
    {
        let run = management.send(&dry, &object(kind, &name, &spec));
        assert!(
            run.status != 0 && run.stderr.contains(message),
            "{kind} with {spec}: {run:?}"
        );
    }
    // The rules about an edit.
    let kubeconfig = |more: &Value| object("Kubeconfig", "edited", &request(more));
    management.send(&["create"], &kubeconfig(&json!({}))).well();
    for (field, value) in [
        ("clusterRef", json!({"name": "b"})),
        ("user", json!("joe")),
        ("groups", json!(["dev"])),
        ("secret", json!({"name": "x"})),
    ] {
        let edited = management.send(&["replace"], &kubeconfig(&json!({field: value})));
        let why = format!("{field} is immutable");
        assert!(edited.stderr.contains(&why), "{edited:?}");
    }
    let allowed = json!({"ttl": "1h", "clusterRole": "edit", "server": "https://lb"});
    management.send(&["replace"], &kubeconfig(&allowed)).well();
    let selector = format!("--field-selector=spec.clusterRef.name={CLUSTER}");
    let listed = management
        .kubectl(&["get", "rkek", &selector, "-o", "name"])
        .well();
    assert!(listed.stdout.contains("/edited"), "{listed:?}");
    management.kubectl(&["delete", "rkek", "edited"]).well();

    let bare = json!({"config": {"nodes": [{"address": "192.0.2.10", "any": "thing"}]}, "ssh": {"keySecretRef": {"name": "nodes"}}});
    let filled = management
        .send(&dry, &object("Cluster", "bare", &bare))
        .well();
    let filled: Value = serde_json::from_str(&filled.stdout).expect("JSON");
    assert_eq!(
        filled["spec"],
        json!({
            "config": {"nodes": [{"address": "192.0.2.10", "any": "thing"}]},
            "ssh": {"keySecretRef": {"name": "nodes"}},
        }),
        "no default is written into an object, and the config is kept as it is"
    );
}

/// Both objects' versions, which move with every write, and what tells what was written.
fn versions(management: &Management) -> [Value; 2] {
    ["rkec", "rkek"].map(|kind| {
        let object = management.get(&[kind, CLUSTER]);
        let metadata = &object["metadata"];
        json!({
            "resourceVersion": metadata["resourceVersion"],
            "annotations": metadata["annotations"],
            "status": object["status"],
        })
    })
}

/// Nothing was written but the time of the last survey, which moves every ten minutes of the clock: a test that runs
/// across the end of ten minutes sees that write.
fn assert_unwritten(management: &Management, before: &mut [Value; 2], when: &str) {
    let now = versions(management);
    for (before, now) in before.iter_mut().zip(now) {
        let survey = now.pointer("/status/lastSurvey");
        if before.pointer("/status/lastSurvey") != survey {
            before["status"]["lastSurvey"] = json!(survey);
            before["resourceVersion"] = now["resourceVersion"].clone();
        }
        assert_eq!(&now, &*before, "{when}");
    }
}

/// Wakes the operator, and waits until it has looked.
fn look(management: &Management, operator: &mut Operator, word: &str) {
    operator.skip();
    management.touch_key(word);
    operator.passes(1);
}

fn has_all_it_says(management: &Management) {
    let cluster = management.until(CLUSTER, "everything is true", MINUTES, |cluster| {
        let all = cluster["status"]["conditions"].as_array();
        is_settled(cluster)
            && all.is_some_and(|all| {
                all.len() == 14
                    && all.iter().all(|condition| {
                        // This operator is not linked statically: it gives nodes no program that takes snapshots.
                        let not = ["Deleting", "Paused", "BackedUp"];
                        let want = !not.iter().any(|kind| condition["type"] == *kind);
                        condition["status"] == if want { "True" } else { "False" }
                    })
            })
    });
    let status = &cluster["status"];
    assert_eq!(status["nodeSummary"], "1/1");
    assert_eq!(status["version"], "v1.34.4");
    let noted = &cluster["metadata"]["annotations"]["clusterprovisioner.rke.io/kubernetes-version"];
    assert_eq!(noted, "v1.34.4");
    assert_eq!(status["kubeconfigRef"]["name"], CLUSTER);
    let endpoint = format!("https://{}:6443", management.second().address());
    assert_eq!(status["endpoints"][0]["url"], endpoint);
    assert_eq!(
        cluster["metadata"]["finalizers"],
        json!(["clusterprovisioner.rke.io/cleanup"])
    );

    management
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            "--timeout=60s",
            "rkek/minimal",
        ])
        .well();
    let kubeconfig = management.get(&["rkek", CLUSTER]);
    let owner = &kubeconfig["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], cluster["metadata"]["uid"]);
    assert_eq!(
        kubeconfig["status"]["secretRef"]["name"],
        format!("{CLUSTER}-kubeconfig")
    );
    let nodes = management
        .inside(CLUSTER, &["get", "nodes", "-o", "name"])
        .well();
    assert_eq!(nodes.stdout.trim(), "node/n2");
    a_user_gets_in_until_the_object_is_deleted(management);
}

/// A certificate of the cluster's CA, and a binding that the deletion removes.
fn a_user_gets_in_until_the_object_is_deleted(management: &Management) {
    let jane = object("Kubeconfig", "jane", &request(&json!({"ttl": "1h"})));
    management.send(&["create"], &jane).well();
    let ready = ["--for=condition=Ready", "--timeout=60s", "rkek/jane"];
    management.kubectl(&[&["wait"][..], &ready].concat()).well();
    let path = "jane-kubeconfig";
    let secret = management.credential(path).expect("its Secret");
    let pods = ["-n", "kube-system", "get", "pods"];
    management.inside("jane", &pods).well();
    let may = |verb: &str| {
        let run = management.inside("jane", &["auth", "can-i", verb, "pods"]);
        run.status == 0
    };
    assert!(may("list") && !may("delete"));
    let edit = json!({"spec": {"clusterRole": "edit"}}).to_string();
    let patch = ["patch", "rkek", "jane", "--type=merge", "-p", &edit];
    management.kubectl(&patch).well();
    crate::real::Site::eventually("the user is bound to the other role", SOON, || {
        may("delete")
    });

    // What was handed out is worth nothing afterwards.
    management.inside("jane", &pods).well();
    management.kubectl(&["delete", "rkek", "jane"]).well();
    assert_eq!(management.credential(path), None);
    let binding = ["get", "clusterrolebinding", "rke-operator-kubeconfig-jane"];
    let gone = management.inside(CLUSTER, &binding);
    assert!(gone.stderr.contains("NotFound"), "{gone:?}");
    assert!(secret["data"]["value"].is_string());
}

/// Looks without news write nothing but their time, and neither does an operator that starts.
fn the_steady_state_writes_nothing(management: &Management, mut operator: Operator) -> Operator {
    let mut before = versions(management);
    for round in ["1", "2", "3"] {
        look(management, &mut operator, round);
        assert_unwritten(management, &mut before, &format!("round {round}"));
    }
    operator.stop();
    let mut operator = management.operator();
    operator.passes(1);
    look(management, &mut operator, "4");
    assert_unwritten(management, &mut before, "after a start");
    operator
}

/// What others write is kept where it is theirs, and mended where it is ours.
fn others_may_write_too(management: &Management, operator: &mut Operator) {
    management
        .kubectl(&["label", "rkec", CLUSTER, "team=blue"])
        .well();
    let at = "2026-01-01T00:00:00Z";
    let foreign = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "Because", "message": "says another",
            "lastTransitionTime": at,
        })
    };
    // The whole list at once, as a client does that knows no server-side apply.
    let patch = json!({"status": {
        "version": "v0.0.0",
        "nodeSummary": "9/9",
        "conditions": [
            foreign("Ready", "False"),
            foreign("Stalled", "True"),
            foreign("example.com/Audited", "True"),
        ],
    }});
    management
        .kubectl(&[
            "patch",
            "rkec",
            CLUSTER,
            "--subresource=status",
            "--type=merge",
            "--field-manager=another",
            "-p",
            &patch.to_string(),
        ])
        .well();
    look(management, operator, "others");
    let cluster = management.settled(CLUSTER, SOON);
    assert_eq!(cluster["metadata"]["labels"]["team"], "blue");
    assert_eq!(cluster["status"]["version"], "v1.34.4");
    assert_eq!(cluster["status"]["nodeSummary"], "1/1");
    assert!(is(&cluster, "example.com/Audited", "True"), "it is theirs");
    assert_eq!(condition(&cluster, "Stalled"), None, "it is ours");

    let mut before = versions(management);
    look(management, operator, "others-again");
    assert_unwritten(management, &mut before, "no write is reverted again");
}

/// An edit of the spec reaches the node, and `observedGeneration` follows.
fn an_edit_is_applied(management: &Management) {
    let before = management.settled(CLUSTER, SOON);
    let ids = containers(management.second());
    let mut nodes = before["spec"]["config"]["nodes"].clone();
    nodes[0]["labels"] = json!({"example.com/rack": "r1"});
    let config =
        json!({"nodes": nodes, "services": {"kubelet": {"extra_args": {"max-pods": "99"}}}});
    management.edit(CLUSTER, &json!({"spec": {"config": config}}));
    let generation = before["metadata"]["generation"].as_i64().expect("a number") + 1;
    let after = management.settled(CLUSTER, MINUTES);
    assert_eq!(after["status"]["observedGeneration"], generation);
    let node = || -> Value {
        let node = management.inside(CLUSTER, &["get", "node", "n2", "-o", "json"]);
        serde_json::from_str(&node.well().stdout).expect("JSON")
    };
    assert_eq!(node()["metadata"]["labels"]["example.com/rack"], "r1");
    // A kubelet that is healthy has not yet said so of its node.
    crate::real::Site::eventually("the node has the kubelet's limit of pods", SOON, || {
        node()["status"]["capacity"]["pods"] == "99"
    });
    let changed: Vec<String> = containers(management.second())
        .into_iter()
        .filter(|(name, id)| ids.get(name) != Some(id))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(changed, ["kubelet"], "only what the edit is about");
}

/// A second object for the same node is refused, says so, and goes without a trace.
fn a_second_cluster_on_the_node_is_refused_and_harmless(management: &Management) {
    let node = management.second();
    let ids = containers(node);
    let clash = management.sample("clash", node);
    management.send(&["create"], &clash).well();
    let told = management.until("clash", "it is refused", SOON, |cluster| {
        is(cluster, "Stalled", "True")
    });
    for (kind, status) in [
        ("Ready", "False"),
        ("Provisioned", "False"),
        ("UpToDate", "False"),
        ("ConfigValid", "True"),
    ] {
        assert!(is(&told, kind, status), "{kind}: {:#}", told["status"]);
    }
    let message = condition(&told, "Ready").expect("it")["message"].clone();
    let message = message.as_str().expect("text");
    assert!(
        message.contains("n2") && message.contains(CLUSTER),
        "{message}"
    );
    assert_eq!(told["status"]["clusterID"], Value::Null);
    assert_eq!(management.own("secret", "clash-state"), None);

    management.delete("clash");
    management.gone("clash", SOON);
    assert_eq!(containers(node), ids, "the first cluster is unharmed");
    management.settled(CLUSTER, SOON);
    management.inside(CLUSTER, &["get", "nodes"]).well();
}

/// The state is lost and read back from the node, when the object says so and not before.
fn lost_keys_are_read_back_when_asked_for(management: &Management, operator: &mut Operator) {
    let before = management.settled(CLUSTER, SOON);
    let ids = containers(management.second());
    let authority = |management: &Management| {
        let kubeconfig: Value =
            serde_saphyr::from_str(&management.kubeconfig(CLUSTER)).expect("YAML");
        kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"].clone()
    };
    let ca = authority(management);
    assert!(ca.is_string());
    management
        .kubectl(&["-n", NAMESPACE, "delete", "secret", "minimal-state"])
        .well();
    look(management, operator, "lost");
    let told = management.until(CLUSTER, "it says what is lost", SOON, |cluster| {
        is(cluster, "Ready", "False")
    });
    let message = condition(&told, "Stalled").expect("it")["message"].to_string();
    assert!(
        message.contains("clusterprovisioner.rke.io/recover"),
        "it names the cure: {message}"
    );
    assert_eq!(management.own("secret", "minimal-state"), None);

    let recover = "clusterprovisioner.rke.io/recover";
    management
        .kubectl(&[
            "annotate",
            "rkec",
            CLUSTER,
            &format!(
                "{recover}={}",
                before["status"]["clusterID"].as_str().expect("an id")
            ),
        ])
        .well();
    let after = management.settled(CLUSTER, MINUTES);
    assert_eq!(after["status"]["clusterID"], before["status"]["clusterID"]);
    assert!(management.own("secret", "minimal-state").is_some());
    assert_eq!(authority(management), ca, "the same CA");
    assert_eq!(
        containers(management.second()),
        ids,
        "nothing was restarted"
    );
    let annotations = &management.get(&["rkec", CLUSTER])["metadata"]["annotations"];
    assert_eq!(annotations[recover], Value::Null, "it is used once");
}

/// A cluster that is edited onto another's node is refused, and its deletion gives back its own
/// node and nothing else.
fn edited_onto_anothers_node_and_deleted(management: &Management, before: &Snapshot) {
    let others = containers(management.first());
    let ids = containers(management.second());
    let config = Management::config(CLUSTER, management.first());
    management.edit(
        CLUSTER,
        &json!({"spec": {"config": {"nodes": config["nodes"]}}}),
    );
    let told = management.until(CLUSTER, "the edit is refused", SOON, |cluster| {
        is(cluster, "Stalled", "True")
    });
    let message = condition(&told, "Stalled").expect("it")["message"].to_string();
    assert!(
        message.contains("n1") && message.contains("lab"),
        "{message}"
    );
    assert_eq!(containers(management.first()), others);
    assert_eq!(containers(management.second()), ids);

    management.delete(CLUSTER);
    management.gone(CLUSTER, MINUTES);
    assert_eq!(containers(management.first()), others);
    assert!(management.site().is_ready(), "the other cluster serves");
    is_given_back(management, before);
}

/// The node is as it was, and nothing is kept about the cluster.
fn is_given_back(management: &Management, before: &Snapshot) {
    snapshot::unchanged(management.second(), before, ALLOWED);
    assert_eq!(management.own("secret", "minimal-state"), None);
    management
        .kubectl(&[
            "-n",
            CREDENTIALS,
            "wait",
            "--for=delete",
            "--timeout=60s",
            "secret/minimal-kubeconfig",
        ])
        .well();
}

#[test]
fn an_object_is_a_cluster_until_it_is_deleted() {
    let management = Management::new("operator");
    the_schema_is_accepted_and_kept(&management);
    let before = snapshot::take(management.second());
    let operator = management.operator();
    let mut sample = management.sample(CLUSTER, management.second());
    // The host key is taken at the first connection.
    let ssh = sample["spec"]["ssh"].as_object_mut().expect("a mapping");
    ssh.remove("knownHosts").expect("host keys");
    ssh.insert("hostKeys".to_owned(), json!("AcceptNew"));
    management.send(&["create"], &sample).well();

    has_all_it_says(&management);
    let mut operator = the_steady_state_writes_nothing(&management, operator);
    others_may_write_too(&management, &mut operator);
    an_edit_is_applied(&management);
    a_second_cluster_on_the_node_is_refused_and_harmless(&management);
    lost_keys_are_read_back_when_asked_for(&management, &mut operator);
    edited_onto_anothers_node_and_deleted(&management, &before);
    operator.stop();
}

/// Deletes a cluster that cannot be cleaned; the object goes when its time is over, and a record
/// names the node.
fn is_orphaned(management: &Management, node: &Node, within: &str, why: &str) {
    let patch = json!({"spec": {"deletion": {"timeout": within, "onTimeout": "Orphan"}}});
    management.edit(CLUSTER, &patch);
    let uid = management.cluster(CLUSTER).expect("it is there")["metadata"]["uid"].clone();
    let uid = uid.as_str().expect("a uid");
    management.delete(CLUSTER);
    let told = management.until(CLUSTER, "it says why it is not gone", SOON, |cluster| {
        condition(cluster, "Deleting").is_some_and(|deleting| {
            deleting["message"]
                .as_str()
                .is_some_and(|text| text.contains(why))
        })
    });
    assert_eq!(
        told["metadata"]["finalizers"],
        json!(["clusterprovisioner.rke.io/cleanup"])
    );
    management.gone(CLUSTER, MINUTES);
    let map = management
        .own("configmap", "minimal-orphaned")
        .expect("the record");
    let record = map["data"][format!("{uid}.json")]
        .as_str()
        .expect("its entry");
    let record: Value = serde_json::from_str(record).expect("JSON");
    assert_eq!(record["nodes"][0]["name"], "n2", "{record:#}");
    assert_eq!(record["nodes"][0]["address"], node.address().to_string());
    assert!(record["clusterId"].is_string(), "{record:#}");
    let remaining = record["remaining"][0]["message"]
        .as_str()
        .unwrap_or_default();
    assert!(remaining.contains(why), "{record:#}");
    let events = management.get(&["events", "-A", "--field-selector", "reason=Orphaned"]);
    let told = events["items"].as_array().expect("a list").iter();
    let mut told = told.filter(|event| event["involvedObject"]["uid"] == uid);
    let event = told.next().expect("an event");
    assert_eq!(event["type"], "Warning");
    assert!(
        management.own("secret", "minimal-state").is_some(),
        "whoever comes back to the node needs the keys"
    );
}

/// The namesake of an orphan has no part in its nodes until a person names the cluster.
fn taken_over(management: &Management, id: &Value) -> Value {
    let id = id.as_str().expect("an id");
    let told = management.until(CLUSTER, "it refuses the state", SOON, |cluster| {
        condition(cluster, "Stalled").is_some_and(|stalled| stalled["reason"] == "StateConflict")
    });
    let take_over = "clusterprovisioner.rke.io/take-over";
    let message = condition(&told, "Stalled").expect("it")["message"].to_string();
    let cure = format!("{take_over}: {id}");
    assert!(message.contains(&cure), "it names the cure: {message}");
    management
        .kubectl(&["annotate", "rkec", CLUSTER, &format!("{take_over}={id}")])
        .well();
    let settled = management.settled(CLUSTER, MINUTES);
    let annotations = &management.get(&["rkec", CLUSTER])["metadata"]["annotations"];
    assert_eq!(annotations[take_over], Value::Null, "it is used once");
    settled
}

#[test]
fn a_deletion_ends_whatever_is_broken() {
    let management = Management::new("deletion");
    let node = management.second();
    let before = snapshot::take(node);
    let operator = management.operator();
    let sample = management.sample(CLUSTER, node);
    let create = || management.send(&["create"], &sample).well();

    // The key to the node is lost, in the middle of a run.
    create();
    management.until(CLUSTER, "it is being built", MINUTES, |cluster| {
        cluster["status"]["clusterID"].is_string()
            && cluster["status"]["progress"]["stage"] == "images"
    });
    let id = management.cluster(CLUSTER).expect("it")["status"]["clusterID"].clone();
    management.take_key();
    is_orphaned(&management, node, "15s", "minimal-ssh");

    // An object of the same name goes on where that one ended, when a person says so.
    management.give_key();
    create();
    let again = taken_over(&management, &id);
    assert_eq!(again["status"]["clusterID"], id);

    // The node is dead to the world.
    let ids = containers(node);
    node.cut().expect("the node is cut off");
    // Time for a connection that is lost to be noticed, and for another one to be tried.
    is_orphaned(&management, node, "45s", "n2");
    node.heal().expect("the node is back");
    node.wait_ssh(SOON).expect("it answers");
    create();
    taken_over(&management, &id);
    assert_eq!(containers(node), ids, "there was nothing to do");

    // The spec cannot be understood: the inventory knows the node.
    management.edit(CLUSTER, &json!({"spec": {"config": {"nodse": "none"}}}));
    let told = management.until(CLUSTER, "the spec is refused", SOON, |cluster| {
        is(cluster, "ConfigValid", "False")
    });
    assert!(is(&told, "Stalled", "True"));
    management.delete(CLUSTER);
    management.gone(CLUSTER, MINUTES);
    is_given_back(&management, &before);
    operator.stop();
}

use serde_json::{Value, json};

use super::{super::Paint, *};

fn now() -> Timestamp {
    "2030-01-01T12:00:00Z".parse().unwrap()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2030-01-01T11:48:00Z"})
}

fn event(minute: u32, kind: &str, reason: &str, note: &str) -> ObservedEvent {
    ObservedEvent::read(&json!({
        "eventTime": format!("2030-01-01T11:{minute:02}:00.000000Z"), "type": kind, "reason": reason, "note": note,
        "series": {"count": 3, "lastObservedTime": format!("2030-01-01T11:{minute:02}:30.000000Z")},
    }))
}

fn described(
    object: &Value,
    events: Result<&[ObservedEvent], &str>,
    columns: Option<usize>,
) -> String {
    let cluster = ObservedCluster::read(object, now());
    let page = Page {
        paint: Paint::OFF,
        columns,
    };
    let all = Description {
        cluster: &cluster,
        events,
        kubeconfig: cluster.version.as_ref().map(|_| "second-kubeconfig"),
        credentials: "rke-operator-credentials",
        namespace: "rke-operator",
        now: now(),
    };
    render(&all, page)
}

/// A node is down, a change waits for approval, and drift is healed.
fn troubled() -> Value {
    let down = "n3: cannot reach node `n3` at 10.0.0.3:22 as `core`: no route to host\n\
                n4: cannot reach node `n4` at 10.0.0.4:22 as `core`: no route to host";
    json!({
        "metadata": {"name": "second", "uid": "u", "generation": 4, "creationTimestamp": "2029-12-20T12:00:00Z"},
        "spec": {
            "changes": "Approve", "deletionProtection": true, "deletion": {"onTimeout": "Keep"},
            "ssh": {"keySecretRef": {"name": "nodes"}},
        },
        "status": {
            "observedGeneration": 4, "clusterID": "id-of-the-cluster",
            "version": "v1.34.4", "desiredVersion": "v1.35.1", "lastSurvey": "2030-01-01T11:50:00Z",
            "nodes": {"total": 5, "ready": 3, "upToDate": 3, "unreachable": 2},
            "endpoints": [{"url": "https://10.0.0.1:6443", "node": "n1"}, {"url": "https://10.0.0.2:6443", "node": "n2"}],
            "certificates": {"earliestExpiry": "2030-12-01T12:00:00Z", "component": "kube-node of node `n2`"},
            "appliedConfig": {"digest": "d", "observedGeneration": 3, "time": "2029-12-30T12:00:00Z"},
            "pendingPlan": {
                "digest": "digest-of-the-plan", "reason": "Approval", "steps": 4,
                "createdAt": "2030-01-01T10:00:00Z", "disruptions": [{"node": "n1", "what": "restarts kubelet"}],
            },
            "progress": {"stage": "start", "done": 3, "total": 12, "current": "run kubelet on n1"},
            "warnings": ["`services.etcd.snapshot` is not done yet"],
            "nodeDetails": [
                {"name": "n1", "roles": ["controlplane", "etcd"], "state": "Ready", "version": "v1.34.4"},
                {"name": "n3", "roles": ["worker"], "state": "Unreachable", "message": "no route to host"},
            ],
            "conditions": [
                condition("Available", "True", "Available", "the API answers"),
                condition("Ready", "False", "NodesNotReady", &format!("NodesReachable is False: {down}")),
                condition("NodesReachable", "False", "Unreachable", down),
                condition("NodesHealthy", "False", "NodesNotReady", down),
                condition("UpToDate", "False", "AwaitingApproval", "the change of the config waits for approval"),
                condition("EtcdHealthy", "Unknown", "NotYetKnown", "not checked yet"),
                condition("Reconciling", "True", "Healing", "start: 3 of 12 steps"),
            ],
        },
    })
}

fn two_events() -> [ObservedEvent; 2] {
    [
        event(
            30,
            "Normal",
            "Healed",
            "what differed from the spec was put right",
        ),
        event(
            49,
            "Warning",
            "Degraded",
            "n3: no route to host\nn4: the same",
        ),
    ]
}

#[test]
fn what_is_wrong_comes_with_its_cause_and_the_next_command() {
    insta::assert_snapshot!(described(&troubled(), Ok(&two_events()), Some(80)));
}

#[test]
fn a_wide_terminal_has_whole_sentences() {
    insta::assert_snapshot!(described(&troubled(), Ok(&two_events()), Some(200)));
}

/// A Stalled one says what a person has to do; one without a status what it is.
#[test]
fn what_waits_for_a_person_has_the_command() {
    let mut object = troubled();
    object["status"] = json!({"observedGeneration": 4, "conditions": [
        condition("Stalled", "True", "SecretNotGranted", "the Secret `nodes` does not name this Cluster"),
        condition("Ready", "False", "NotProvisioned", "the Secret `nodes` does not name this Cluster"),
    ]});
    insta::assert_snapshot!(described(&object, Err("events is forbidden"), Some(80)));
}

#[test]
fn a_new_object_says_that_it_was_not_seen_yet() {
    let object = json!({"metadata": {"name": "new", "generation": 1},
        "spec": {"config": {"nodes": [{"address": "10.0.0.1", "role": ["etcd", "worker"]}]}}});
    insta::assert_snapshot!(described(&object, Ok(&[]), Some(80)));
}

/// Whatever an object holds, a description is at most 50 lines, and nothing in it moves the cursor.
#[test]
fn a_description_has_50_lines_at_most() {
    let long = "\u{1b}[2Ja word and another\r ".repeat(60);
    let lines = [long.as_str(); 30].join("\n");
    let mut object = troubled();
    let all = crate::api::conditions::ConditionType::TABLE.map(|row| {
        let status = if row.kind.name() == "Deleting" {
            "True"
        } else {
            "False"
        };
        condition(row.kind.name(), status, "InvalidConfig", &lines)
    });
    let status = &mut object["status"];
    status["conditions"] = json!(all);
    status["conditions"].as_array_mut().unwrap().push(condition(
        "Stalled",
        "True",
        "InvalidConfig",
        &lines,
    ));
    let warnings = [lines.as_str(); 20];
    status["warnings"] = json!(warnings);
    status["endpoints"] = json!(vec![json!({"url": long}); 10]);
    status["nodeDetails"] = json!(vec![
        json!({"name": long, "state": long, "message": lines});
        20
    ]);
    status["progress"] = json!({"stage": lines, "current": lines});
    status["pendingPlan"]["disruptions"] = json!(vec![json!({"node": long, "what": lines}); 20]);
    let events: Vec<ObservedEvent> = (0..40)
        .map(|minute| event(minute, "Warning", "Long", &lines))
        .collect();
    for columns in [Some(80), Some(200), None] {
        for remaining in [
            json!([]),
            json!(vec![json!({"name": "n1", "message": lines}); 20]),
        ] {
            object["status"]["remaining"] = remaining;
            let text = described(&object, Ok(&events), columns);
            let count = text.lines().count();
            assert!((40..=50).contains(&count), "{count} lines:\n{text}");
            assert!(
                text.chars()
                    .all(|c| c == '\n' || crate::model::is_printable(c)),
                "{text}"
            );
            assert!(text.contains("next: kubectl edit rkec second"), "{text}");
            let ends =
                text.contains("approve=digest-of-the-plan") || text.contains("not cleaned yet");
            assert!(ends, "{text}");
        }
    }
}

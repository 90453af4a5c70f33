use jiff::Timestamp;
use serde_json::{Value, json};

use super::{super::Paint, *};
use crate::api::conditions::ConditionType;

fn now() -> Timestamp {
    "2030-01-01T12:00:00Z".parse().unwrap()
}

fn page(columns: Option<usize>) -> Page {
    Page {
        paint: Paint::OFF,
        columns,
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

/// A cluster that is healthy but for those conditions.
fn cluster(name: &str, status: &Value, conditions: &[Value]) -> ObservedCluster {
    let mut all = conditions.to_vec();
    let good = ConditionType::HEALTH.map(ConditionType::name);
    for kind in ["Ready"].into_iter().chain(good) {
        if !all.iter().any(|one| one["type"] == kind) {
            all.push(condition(kind, "True", "Good", ""));
        }
    }
    let mut object = json!({
        "metadata": {"name": name, "generation": 1},
        "status": {
            "observedGeneration": 1, "version": "v1.34.4", "desiredVersion": "v1.34.4",
            "lastSurvey": "2030-01-01T11:50:00Z", "nodes": {"total": 5, "ready": 5},
        },
    });
    for (field, value) in status.as_object().unwrap() {
        object["status"][field] = value.clone();
    }
    object["status"]["conditions"] = all.into();
    ObservedCluster::read(&object, now())
}

/// One of each kind that a reader must tell from the others.
fn fleet() -> Vec<ObservedCluster> {
    let down = "n3: cannot reach node `n3` at 10.0.0.3: no route to host\nn4: the same";
    let asks =
        "the change of the config waits for approval: 4 steps, 1 disruption (`status.pendingPlan`)";
    let plan = json!({"digest": "00ff", "reason": "Approval", "steps": 4});
    let update = json!({"digest": "11ff", "reason": "Update", "steps": 2});
    let gone = ObservedCluster::read(
        &json!({"metadata": {"name": "leaving", "deletionTimestamp": "2030-01-01T11:00:00Z"},
            "status": {"conditions": [condition("Deleting", "True", "Removing", "clean: 3 of 9 steps")]}}),
        now(),
    );
    let new = json!({"metadata": {"name": "new", "generation": 1},
        "spec": {"config": {"nodes": [{}, {}]}}});
    vec![
        cluster(
            "down",
            &json!({"nodes": {"total": 5, "ready": 3}}),
            &[
                condition("Ready", "False", "NodesNotReady", down),
                condition("NodesReachable", "False", "Unreachable", down),
            ],
        ),
        cluster(
            "hostile",
            &json!({"version": "\u{1b}[31mred"}),
            &[condition(
                "Stalled",
                "True",
                "PreflightFailed",
                "a\u{1b}]0;b\u{7}\u{202e}c",
            )],
        ),
        gone,
        ObservedCluster::read(&new, now()),
        cluster("prod", &json!({}), &[]),
        cluster(
            "quiet-for-three-hours-with-a-name-of-52-characters-x",
            &json!({"lastSurvey": "2030-01-01T09:00:00Z"}),
            &[],
        ),
        cluster(
            "updates",
            &json!({"pendingPlan": update}),
            &[condition(
                "UpToDate",
                "False",
                "UpdateAvailable",
                "n1: the image",
            )],
        ),
        cluster(
            "upgrade",
            &json!({"pendingPlan": plan, "desiredVersion": "v1.35.1"}),
            &[condition("Ready", "False", "SpecNotApplied", asks)],
        ),
    ]
}

#[test]
fn the_list_fits_a_terminal_of_80_columns() {
    let text = render(&fleet(), page(Some(80)));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert_eq!(text.lines().count(), fleet().len() + 1);
    insta::assert_snapshot!(text);
}

#[test]
fn a_wide_terminal_has_room_for_every_column() {
    let text = render(&fleet(), page(Some(200)));
    assert!(
        text.lines().all(|line| line.chars().count() <= 200),
        "{text}"
    );
    insta::assert_snapshot!(text);
}

/// Programs cut columns at spaces: all but the last have none, and nothing is clipped.
#[test]
fn a_pipe_gets_every_word_and_no_colour() {
    let text = render(&fleet(), page(None));
    assert!(!text.contains(['\u{1b}', '\u{202e}', '…']), "{text}");
    assert!(text.contains("no route to host"), "{text}");
    assert!(!text.contains("n4: the same"), "one line a cluster: {text}");
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert!(["True", "False", "-"].contains(&cells[3]), "{line}");
    }
}

#[test]
fn colour_moves_nothing() {
    let plain = render(&fleet(), page(Some(80)));
    let painted = render(
        &fleet(),
        Page {
            paint: Paint::ON,
            columns: Some(80),
        },
    );
    assert_ne!(painted, plain);
    let codes = ["\u{1b}[1;31m", "\u{1b}[1;33m", "\u{1b}[0m"];
    let bare = codes
        .iter()
        .fold(painted, |text, code| text.replace(code, ""));
    assert_eq!(bare, plain);
}

#[test]
fn the_sum_counts_each_kind() {
    assert_eq!(
        sum(&fleet()),
        "8 clusters: 3 healthy, 3 degraded, 1 not built yet, 1 being deleted"
    );
    assert_eq!(sum(&fleet()[4..5]), "1 cluster: 1 healthy");
}

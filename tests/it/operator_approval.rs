//! Changes that wait for a person: `changes: Approve`, what a new release would change, and drift that is only reported.

use std::time::Duration;

use rke_operator::facts::ContainerState;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    fake_api::FakeApi,
    operator_rig::{
        NAMESPACE, Rig, clock, cluster, is, message, minutes, reason, settled, the_scheduler_is,
    },
    sim::remote::{Purpose, SimRemote},
};

const PREFIX: &str = "clusterprovisioner.rke.io";

fn patch(rig: &Rig, patch: &Value) {
    rig.api.patch("clusters", "", "a", patch);
}

fn asks_for_verbosity(rig: &Rig, level: &str) {
    let edit = json!({"services": {"kubelet": {"extra_args": {"v": level}}}});
    patch(rig, &json!({"spec": {"config": edit}}));
}

fn approve(rig: &Rig, digest: &str) {
    let by = json!({
        format!("{PREFIX}/approve"): digest, format!("{PREFIX}/approved-by"): "jane",
    });
    patch(rig, &json!({"metadata": {"annotations": by}}));
}

/// True when neither annotation of an approval is set.
fn is_not_approved(cluster: &Value) -> bool {
    let annotations = &cluster["metadata"]["annotations"];
    ["approve", "approved-by"]
        .iter()
        .all(|name| annotations[format!("{PREFIX}/{name}")].is_null())
}

/// The arguments of kubelet on the node.
fn has_verbosity(rig: &Rig, level: &str) -> bool {
    let kubelet = rig.nodes.definition("n1", "kubelet").command;
    kubelet.contains(&format!("--v={level}"))
}

/// Ready, with these fields in its spec.
async fn ready_with(spec: &Value) -> Rig {
    let rig = Rig::start(&["n1"]);
    let mut asked = cluster("a", "n1");
    for (key, value) in spec.as_object().unwrap() {
        asked["spec"][key] = value.clone();
    }
    rig.create(&asked).await;
    rig.ready("a").await;
    rig
}

/// As [`ready_with`] `changes: Approve`, after an edit that waits; the digest of its plan.
async fn waiting() -> (Rig, String) {
    let rig = ready_with(&json!({"changes": "Approve"})).await;
    asks_for_verbosity(&rig, "4");
    let told = rig
        .until("a", |cluster| {
            reason(cluster, "UpToDate") == "AwaitingApproval"
        })
        .await;
    let digest = told["status"]["pendingPlan"]["digest"].as_str().unwrap();
    (rig, digest.to_owned())
}

fn the_scheduler_runs(rig: &Rig) -> bool {
    rig.nodes.runs("n1", "kube-scheduler")
}

/// A new cluster is built without approval. A change of its config waits, and the status shows its plan and how to approve
/// it; meanwhile the cluster is kept, and healed, as it was applied last.
#[tokio::test(start_paused = true)]
async fn a_change_waits_and_the_cluster_is_kept_as_it_was_applied() {
    let (rig, digest) = waiting().await;
    let told = rig.cluster("a");
    let pending = &told["status"]["pendingPlan"];
    assert_eq!(pending["reason"], "Approval");
    assert!(pending["steps"].as_i64().unwrap() > 0, "{pending}");
    assert!(pending["plan"].as_str().unwrap().contains("kubelet"));
    assert_eq!(pending["disruptions"][0]["node"], "n1");
    let text = message(&told, "UpToDate");
    assert!(
        text.contains(&format!("{PREFIX}/approve={digest}")),
        "{text}"
    );
    assert_eq!(reason(&told, "Ready"), "SpecNotApplied");
    assert!(message(&told, "Ready").contains("waits for approval"));
    assert!(is(&told, "Available", "True"));
    the_scheduler_is(ContainerState::Exited(1), &rig);
    rig.event("Healed").await;
    assert!(the_scheduler_runs(&rig));
    minutes(60).await;
    assert!(!has_verbosity(&rig, "4"));
    let still = rig.cluster("a");
    assert_eq!(still["status"]["pendingPlan"]["digest"], *digest);
    assert_eq!(
        still["status"]["pendingPlan"]["createdAt"],
        pending["createdAt"]
    );
    assert_eq!(reason(&still, "Provisioned"), "Provisioned");
    assert_eq!(
        still["status"]["appliedConfig"]["observedGeneration"],
        json!(1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_approved_change_is_applied_once() {
    let (rig, digest) = waiting().await;
    approve(&rig, &digest);
    let ready = rig.ready("a").await;
    assert!(has_verbosity(&rig, "4"));
    assert!(ready["status"]["pendingPlan"].is_null());
    assert_eq!(
        ready["status"]["appliedConfig"]["observedGeneration"],
        ready["metadata"]["generation"]
    );
    assert!(rig.events("PlanApproved")[0].contains("jane"));
    rig.until("a", is_not_approved).await;
    // The next one waits again, and so does the way back.
    for level in ["6", "4"] {
        asks_for_verbosity(&rig, level);
        let told = rig
            .until("a", |cluster| {
                reason(cluster, "UpToDate") == "AwaitingApproval"
            })
            .await;
        assert_ne!(told["status"]["pendingPlan"]["digest"], *digest);
        minutes(30).await;
        assert!(has_verbosity(&rig, "4"));
    }
}

/// A person who approves, or requests a look, does not wait for the next look at a cluster that is well.
#[tokio::test(start_paused = true)]
async fn a_request_by_annotation_is_seen_at_once() {
    let nodes = SimRemote::bare(&["n1"]);
    let rig = Rig::with(nodes, FakeApi::new(clock()), |options| {
        options.resync = Duration::from_secs(24 * 3600);
    });
    let mut asked = cluster("a", "n1");
    asked["spec"]["changes"] = json!("Approve");
    rig.create(&asked).await;
    rig.ready("a").await;
    let begun = Instant::now();
    for value in ["2030-01-01T00:00:00Z", "once more"] {
        let at = json!({format!("{PREFIX}/reconcile-at"): value});
        patch(&rig, &json!({"metadata": {"annotations": at}}));
        let handled = |cluster: &Value| cluster["status"]["lastHandledReconcileAt"] == value;
        rig.until("a", handled).await;
    }
    asks_for_verbosity(&rig, "4");
    let waits = |cluster: &Value| reason(cluster, "UpToDate") == "AwaitingApproval";
    let told = rig.until("a", waits).await;
    approve(
        &rig,
        told["status"]["pendingPlan"]["digest"].as_str().unwrap(),
    );
    rig.event("PlanApproved").await;
    rig.until("a", is_not_approved).await;
    assert!(
        begun.elapsed() < Duration::from_secs(3600),
        "{:?}",
        begun.elapsed()
    );
}

/// An approval is of one change: another edit takes it back, and so does any other digest.
#[tokio::test(start_paused = true)]
async fn an_approval_of_another_plan_does_nothing() {
    let (rig, digest) = waiting().await;
    approve(&rig, "0123456789abcdef0123456789abcdef");
    rig.event("ApprovalOutdated").await;
    rig.until("a", is_not_approved).await;
    patch(&rig, &json!({"spec": {"paused": true}}));
    rig.until("a", |cluster| is(cluster, "Paused", "True"))
        .await;
    approve(&rig, &digest);
    minutes(30).await;
    assert!(!has_verbosity(&rig, "4"), "it is paused");
    asks_for_verbosity(&rig, "5");
    rig.until("a", is_not_approved).await;
    patch(&rig, &json!({"spec": {"paused": false}}));
    minutes(60).await;
    assert!(!has_verbosity(&rig, "4") && !has_verbosity(&rig, "5"));
    assert_eq!(reason(&rig.cluster("a"), "UpToDate"), "AwaitingApproval");
}

/// An operator that ends in the middle of an approved change goes on with it when it starts again, whatever is done by
/// then.
#[tokio::test(start_paused = true)]
async fn an_approved_change_goes_on_after_it_was_cut_off() {
    for step in 0..3 {
        let (rig, digest) = waiting().await;
        let halt = rig.nodes.halt(Purpose::Up, step);
        approve(&rig, &digest);
        halt.reached().await;
        halt.lift();
        let (api, nodes) = rig.stop().await;
        let rig = Rig::with(nodes, api, |_| {});
        rig.ready("a").await;
        assert!(has_verbosity(&rig, "4"), "cut off at step {step}");
        rig.until("a", is_not_approved).await;
    }
}

/// `changes: Automatic` in the place of an approval.
#[tokio::test(start_paused = true)]
async fn what_waits_is_applied_when_the_spec_no_longer_asks_for_approval() {
    let (rig, _) = waiting().await;
    patch(&rig, &json!({"spec": {"changes": "Automatic"}}));
    let ready = rig.ready("a").await;
    assert!(has_verbosity(&rig, "4"));
    assert!(ready["status"]["pendingPlan"].is_null());
}

/// Without the Secret that holds the applied config nothing is healed while a change waits; the status still shows the plan.
#[tokio::test(start_paused = true)]
async fn without_the_applied_config_nothing_is_done_until_the_approval() {
    let (rig, digest) = waiting().await;
    rig.api.delete("secrets", NAMESPACE, "a-applied");
    the_scheduler_is(ContainerState::Exited(1), &rig);
    minutes(60).await;
    assert!(!the_scheduler_runs(&rig));
    let told = rig.cluster("a");
    assert!(is(&told, "ControlPlaneHealthy", "False"));
    assert_eq!(reason(&told, "UpToDate"), "AwaitingApproval");
    approve(&rig, &digest);
    rig.ready("a").await;
    assert!(the_scheduler_runs(&rig) && has_verbosity(&rig, "4"));
}

/// What a new release of rke-operator would change waits for approval, also with `changes: Automatic`.
#[tokio::test(start_paused = true)]
async fn what_another_release_changes_may_be_approved() {
    let rig = ready_with(&json!({})).await;
    rig.nodes.applied_otherwise("n1", "kube-scheduler", |spec| {
        spec.command.push("--old".to_owned());
    });
    let told = rig
        .until("a", |cluster| {
            reason(cluster, "UpToDate") == "UpdateAvailable"
        })
        .await;
    let pending = &told["status"]["pendingPlan"];
    assert_eq!(pending["reason"], "Update");
    assert!(message(&told, "UpToDate").contains("approve="));
    approve(&rig, pending["digest"].as_str().unwrap());
    let ready = rig
        .until("a", |cluster| {
            settled(cluster) && is(cluster, "UpToDate", "True")
        })
        .await;
    assert!(ready["status"]["pendingPlan"].is_null());
    let scheduler = rig.nodes.definition("n1", "kube-scheduler").command;
    assert!(!scheduler.contains(&"--old".to_owned()));
    rig.until("a", is_not_approved).await;
}

/// Drift is reported in `UpToDate` and left as it is; an edit of the config puts it right, too.
#[tokio::test(start_paused = true)]
async fn drift_that_is_reported_is_not_healed() {
    let rig = ready_with(&json!({"drift": "Report"})).await;
    the_scheduler_is(ContainerState::Exited(1), &rig);
    let told = rig
        .until("a", |cluster| reason(cluster, "UpToDate") == "Drifted")
        .await;
    let text = message(&told, "UpToDate");
    assert!(text.starts_with("n1: "), "{text}");
    minutes(60).await;
    assert!(!the_scheduler_runs(&rig));
    assert!(rig.events("Healed").is_empty());
    asks_for_verbosity(&rig, "4");
    rig.ready("a").await;
    assert!(the_scheduler_runs(&rig));
}

/// Certificates end whatever a person thinks of drift.
#[tokio::test(start_paused = true)]
async fn certificates_are_renewed_where_drift_is_only_reported() {
    let rig = ready_with(&json!({"drift": "Report"})).await;
    rig.nodes.take("n1", "kube-proxy");
    let before = rig.cluster("a")["status"]["certificates"]["earliestExpiry"].clone();
    tokio::time::advance(Duration::from_secs(300 * 24 * 3600)).await;
    rig.event("Renewed").await;
    let renewed = rig
        .until("a", |cluster| {
            settled(cluster) && reason(cluster, "CertificatesValid") == "Valid"
        })
        .await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    assert!(text(&renewed["status"]["certificates"]["earliestExpiry"]) > text(&before));
    assert!(!rig.nodes.has("n1", "kube-proxy"), "that is only reported");
}

//! Tables: facts on the left, conditions on the right.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::{
    actual::{ApiHealth, ContainerFact, NodeFact},
    desired::fixture,
    error::ErrorClass,
    etcd::{EtcdView, ExternalFault, ExternalView},
    plan::{Action, Cause, HostAction, OnFailure, Queue, Stage as PlanStage, Step},
};

/// Three nodes with etcd and the control plane, one worker.
fn members() -> Members {
    let member = |address: &str, roles: &[Role]| Member {
        address: address.to_owned(),
        roles: roles.iter().copied().collect(),
    };
    let plane = [Role::Etcd, Role::ControlPlane];
    Members(BTreeMap::from([
        ("n1".into(), member("10.0.0.1", &plane)),
        ("n2".into(), member("fd00::2", &plane)),
        ("n3".into(), member("10.0.0.3", &plane)),
        ("w1".into(), member("10.0.0.9", &[Role::Worker])),
    ]))
}

fn container(state: ContainerState) -> ContainerFact {
    ContainerFact {
        id: "1".to_owned(),
        labels: BTreeMap::new(),
        state,
        runs: None,
        image: "an image".to_owned(),
        started: None,
    }
}

fn host() -> HostView {
    let names = [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ];
    let running = |name: &str| (name.to_owned(), container(ContainerState::Running));
    let mut facts = fixture::facts();
    facts.containers = names.into_iter().map(running).collect();
    HostView::Reachable(Box::new(facts))
}

fn silent() -> HostView {
    HostView::Unreachable(Unreachable {
        class: ErrorClass::Host,
        why: "no route to host".to_owned(),
        hints: vec!["is it switched on?".to_owned()],
    })
}

/// Everything is well.
fn well() -> Actual {
    let members = members();
    let node = NodeFact {
        ready: true,
        ..NodeFact::default()
    };
    Actual {
        hosts: members
            .0
            .keys()
            .map(|name| (name.clone(), host()))
            .collect(),
        etcd: EtcdView::default(),
        apis: BTreeMap::new(),
        cluster: Some(Box::new(ClusterFacts {
            version: "v1.34.4".to_owned(),
            nodes: members
                .0
                .keys()
                .map(|name| (name.clone(), node.clone()))
                .collect(),
            ..ClusterFacts::default()
        })),
        untold: None,
        kubeconfig: None,
        saved: None,
    }
}

fn a_step(node: &str, why: &'static str, action: HostAction) -> Step {
    Step {
        cause: Cause::Drift,
        why: why.into(),
        changes: Vec::new(),
        guards: Vec::new(),
        disturbs: None,
        action: Action::Host(node.into(), action),
    }
}

fn set(actual: &mut Actual, node: &str, name: &str, state: Option<ContainerState>) {
    let Some(HostView::Reachable(facts)) = actual.hosts.get_mut(&node.into()) else {
        panic!("{node} answers")
    };
    match state {
        Some(state) => {
            facts.containers.insert(name.to_owned(), container(state));
        }
        None => {
            facts.containers.remove(name);
        }
    }
}

fn api(actual: &mut Actual) -> &mut ClusterFacts {
    actual.cluster.as_mut().unwrap()
}

fn down(actual: &mut Actual, nodes: &[&str]) {
    for node in nodes {
        actual.hosts.insert((*node).into(), silent());
    }
}

fn no_api(actual: &mut Actual) {
    actual.cluster = None;
    let down = ApiHealth::Unreachable("connection refused".to_owned());
    actual.apis.insert("n1".into(), down);
}

fn no_control_plane(actual: &mut Actual) {
    down(actual, &["n1", "n2", "n3"]);
    actual.cluster = None;
}

/// What a change of a well cluster makes of one condition.
type Case = (
    &'static str,
    fn(&mut Actual),
    ConditionType,
    Reason,
    &'static str,
);

#[test]
#[expect(clippy::too_many_lines, reason = "a table is read from top to bottom")]
fn each_fact_has_its_reason() {
    use ConditionType as T;
    let cases: &[Case] = &[
        ("well", |_| {}, T::Available, Reason::Available, ""),
        ("well", |_| {}, T::NodesReachable, Reason::Reachable, ""),
        ("well", |_| {}, T::EtcdHealthy, Reason::Healthy, ""),
        ("well", |_| {}, T::ControlPlaneHealthy, Reason::Healthy, ""),
        ("well", |_| {}, T::NodesHealthy, Reason::Healthy, ""),
        (
            "a worker is dead: it serves",
            |a| down(a, &["w1"]),
            T::Available,
            Reason::Available,
            "",
        ),
        (
            "a worker is dead",
            |a| down(a, &["w1"]),
            T::NodesReachable,
            Reason::Unreachable,
            "`w1`: no route to host; hint: is it switched on?",
        ),
        (
            "a node was not looked at",
            |a| {
                a.hosts.remove(&"w1".into());
            },
            T::NodesReachable,
            Reason::NotYetKnown,
            "`w1`",
        ),
        (
            "one member is dead, and the API answers",
            |a| down(a, &["n2"]),
            T::EtcdHealthy,
            Reason::MembersDown,
            "`n2`: does not answer",
        ),
        (
            "etcd is external: no member is missed",
            |a| {
                a.etcd = EtcdView::of_external(ExternalView::NotAsked);
                set(a, "n3", "etcd", None);
            },
            T::EtcdHealthy,
            Reason::External,
            "those who run it",
        ),
        (
            "etcd is external and cannot be used, and the API does not answer",
            |a| {
                let fault = ExternalFault {
                    class: ErrorClass::Host,
                    why: "the external etcd is away".to_owned(),
                    hints: Vec::new(),
                };
                a.etcd = EtcdView::of_external(ExternalView::Faulty(fault));
                no_api(a);
            },
            T::EtcdHealthy,
            Reason::Unreachable,
            "the external etcd is away",
        ),
        (
            "one member's etcd is not there",
            |a| set(a, "n3", "etcd", None),
            T::EtcdHealthy,
            Reason::MembersDown,
            "`n3`: etcd is not there",
        ),
        (
            "one member's etcd keeps ending",
            |a| set(a, "n3", "etcd", Some(ContainerState::Restarting(2))),
            T::EtcdHealthy,
            Reason::MembersDown,
            "keeps ending with code 2",
        ),
        (
            "two of three have ended",
            |a| {
                set(a, "n1", "etcd", Some(ContainerState::Exited(1)));
                set(a, "n2", "etcd", Some(ContainerState::Created));
                no_api(a);
            },
            T::EtcdHealthy,
            Reason::QuorumLost,
            "`n1`: etcd ended with code 1\n`n2`: etcd was never started",
        ),
        (
            "two of three have ended",
            |a| {
                set(a, "n1", "etcd", Some(ContainerState::Exited(1)));
                set(a, "n2", "etcd", Some(ContainerState::Other));
                no_api(a);
            },
            T::Available,
            Reason::QuorumLost,
            "`n2`: etcd is paused or being removed",
        ),
        (
            "two of three are silent, which is not two that ended",
            |a| {
                down(a, &["n1", "n2"]);
                no_api(a);
            },
            T::EtcdHealthy,
            Reason::Unreachable,
            "",
        ),
        (
            "the API does not answer",
            no_api,
            T::Available,
            Reason::APIServerDown,
            "connection refused",
        ),
        (
            "the API does not answer",
            no_api,
            T::ControlPlaneHealthy,
            Reason::APIServerDown,
            "connection refused",
        ),
        (
            "the API does not answer",
            no_api,
            T::NodesHealthy,
            Reason::Unreachable,
            "",
        ),
        (
            "no control plane answers",
            no_control_plane,
            T::Available,
            Reason::Unreachable,
            "",
        ),
        (
            "no control plane answers",
            no_control_plane,
            T::ControlPlaneHealthy,
            Reason::Unreachable,
            "",
        ),
        (
            "no API server runs",
            |a| {
                for node in ["n1", "n2", "n3"] {
                    set(a, node, "kube-apiserver", None);
                }
                a.cluster = None;
            },
            T::Available,
            Reason::APIServerDown,
            "kube-apiserver is not there",
        ),
        (
            "a scheduler has ended",
            |a| set(a, "n1", "kube-scheduler", Some(ContainerState::Exited(1))),
            T::ControlPlaneHealthy,
            Reason::ComponentDown,
            "`n1`: kube-scheduler ended with code 1",
        ),
        (
            "a node is not Ready",
            |a| {
                let node = api(a).nodes.get_mut(&"w1".into()).unwrap();
                node.ready = false;
                node.message = "PLEG is not healthy".to_owned();
            },
            T::NodesHealthy,
            Reason::NodesNotReady,
            "`w1`: not Ready: PLEG is not healthy",
        ),
        (
            "a node has not joined",
            |a| {
                api(a).nodes.remove(&"w1".into());
            },
            T::NodesHealthy,
            Reason::NodesNotReady,
            "`w1`: is not in the cluster",
        ),
    ];
    for (what, change, kind, reason, message) in cases {
        let mut actual = well();
        change(&mut actual);
        let (conditions, _) = probe(&members(), &actual, None, Some(&Plan::default()));
        let state = conditions.get(*kind).unwrap();
        assert_eq!(state.reason, *reason, "{what}: {kind}: {}", state.message);
        assert!(state.message.contains(message), "{what}: {}", state.message);
    }
}

#[test]
fn nodes_are_counted_and_api_servers_named() {
    let mut actual = well();
    down(&mut actual, &["w1"]);
    api(&mut actual).nodes.get_mut(&"w1".into()).unwrap().ready = false;
    let step = |action| a_step("n3", "it changed", action);
    let plan = |step| Plan {
        stages: vec![PlanStage {
            name: "start".into(),
            width: 1,
            on_failure: OnFailure::EndRun,
            queues: vec![Queue {
                node: Some("n3".into()),
                steps: vec![step],
            }],
        }],
        notes: Vec::new(),
    };
    let start = plan(step(HostAction::StartContainer {
        name: "etcd".to_owned(),
    }));
    let (_, facts) = probe(&members(), &actual, None, Some(&start));
    let counts = NodeCounts {
        total: 4,
        ready: 3,
        up_to_date: 2,
        unreachable: 1,
    };
    assert_eq!(facts.nodes, Some(counts));
    assert_eq!(node_summary(counts), "3/4");
    assert_eq!(facts.version.as_deref(), Some("v1.34.4"));
    let endpoints: Vec<_> = facts
        .endpoints
        .iter()
        .map(|endpoint| (endpoint.node.as_str(), endpoint.url.as_str()))
        .collect();
    assert_eq!(
        endpoints,
        [
            ("n1", "https://10.0.0.1:6443"),
            ("n2", "https://[fd00::2]:6443"),
            ("n3", "https://10.0.0.3:6443"),
        ]
    );
    // Waiting is no difference.
    let wait = plan(step(HostAction::AwaitHealthy {
        component: crate::model::Component::Etcd,
    }));
    let (conditions, facts) = probe(&members(), &actual, None, Some(&wait));
    assert_eq!(facts.nodes.unwrap().up_to_date, 3);
    assert!(conditions.get(ConditionType::UpToDate).is_some());
}

#[test]
fn differences_are_told_once_and_not_without_end() {
    let steps = (0..30).flat_map(|n| {
        let step = a_step(
            &format!("n{n}"),
            "kubelet is not there",
            HostAction::StartContainer {
                name: "kubelet".to_owned(),
            },
        );
        [step.clone(), step]
    });
    let plan = Plan {
        stages: vec![PlanStage {
            name: "start".into(),
            width: 1,
            on_failure: OnFailure::EndRun,
            queues: vec![Queue {
                node: None,
                steps: steps.collect(),
            }],
        }],
        notes: Vec::new(),
    };
    let text = differences(plan.steps());
    assert_eq!(text.lines().count(), 21, "{text}");
    assert!(text.starts_with("n0: kubelet is not there\nn1: "), "{text}");
    assert!(text.ends_with("and 10 more"), "{text}");
}

#[test]
fn a_workload_serves_when_all_of_it_is_available() {
    let of = |kind: &str| ObjectRef {
        kind: kind.to_owned(),
        ..object()
    };
    let cases = [
        (
            "DaemonSet",
            json!({"status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}}),
            true,
        ),
        (
            "DaemonSet",
            json!({"status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1}}),
            false,
        ),
        (
            "DaemonSet",
            json!({"status": {"desiredNumberScheduled": 2}}),
            false,
        ),
        ("DaemonSet", json!({}), false),
        (
            "Deployment",
            json!({"spec": {"replicas": 2}, "status": {"updatedReplicas": 2, "availableReplicas": 2}}),
            true,
        ),
        (
            "Deployment",
            json!({"spec": {"replicas": 2}, "status": {"updatedReplicas": 2, "availableReplicas": 1}}),
            false,
        ),
        (
            "Deployment",
            json!({"spec": {}, "status": {"updatedReplicas": 2, "availableReplicas": 1}}),
            true,
        ),
        ("Deployment", json!({"spec": {}}), false),
    ];
    for (kind, object, want) in cases {
        let workload = of(kind);
        let mut api = ClusterFacts::default();
        assert!(!serves(&api, &workload), "it is not there");
        api.objects.insert(workload.clone(), object.clone());
        assert_eq!(serves(&api, &workload), want, "{kind}: {object}");
    }
}

fn object() -> ObjectRef {
    ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: String::new(),
        namespace: "kube-system".to_owned(),
        name: "coredns".to_owned(),
    }
}

/// The summary, by what the others say and how far the spec is.
#[test]
fn ready_is_the_first_thing_that_is_missing() {
    use ConditionStatus::{False, True, Unknown};
    for (stage, available, reachable, healthy, want) in [
        (Stage::New, True, True, True, Reason::NotProvisioned),
        (Stage::Applied, True, True, True, Reason::Ready),
        (Stage::Changed, True, True, True, Reason::SpecNotApplied),
        (Stage::Applied, Unknown, True, True, Reason::NotAvailable),
        (Stage::Applied, False, True, True, Reason::NotAvailable),
        (Stage::Applied, True, False, True, Reason::NodesNotReady),
        (Stage::Applied, True, True, False, Reason::NodesNotReady),
        (Stage::Applied, True, True, Unknown, Reason::NodesNotReady),
        (Stage::Changed, False, True, True, Reason::NotAvailable),
    ] {
        let status = |kind: ConditionType| {
            let status = if kind == ConditionType::Available {
                available
            } else if kind == ConditionType::NodesReachable {
                reachable
            } else if kind == ConditionType::NodesHealthy {
                healthy
            } else {
                assert_eq!(kind, ConditionType::ControlPlaneHealthy);
                True
            };
            (status, "the reason why".to_owned())
        };
        let (reason, message) = ready(&status, stage);
        assert_eq!(reason, want, "{stage:?}");
        let named = matches!(reason, Reason::NotAvailable | Reason::NodesNotReady);
        assert_eq!(message.contains("the reason why"), named, "{message}");
    }
}

/// A message has an end, whatever has happened to how many nodes.
#[test]
fn the_first_nodes_are_named_and_the_rest_is_counted() {
    let silent = |number: usize| -> BTreeMap<NodeName, Unreachable> {
        let down = Unreachable {
            class: ErrorClass::Host,
            why: "it is off".to_owned(),
            hints: vec!["turn it on".to_owned()],
        };
        let names = (1..=number).map(|at| NodeName(format!("n{at:03}")));
        names.map(|name| (name, down.clone())).collect()
    };
    let all = cases(&silent(NAMED));
    assert_eq!(all.lines().count(), NAMED);
    assert_eq!(
        all.lines().next(),
        Some("`n001`: it is off; hint: turn it on")
    );
    let some = cases(&silent(NAMED + 2));
    assert_eq!(some.lines().count(), NAMED + 1);
    assert_eq!(some.lines().last(), Some("and 2 more"));
}

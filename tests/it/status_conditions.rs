//! A status and the conditions of an object are two views of one judgement: of clusters of the
//! simulated world to which something has happened.

use std::sync::LazyLock;

use jiff::SignedDuration;
use proptest::prelude::*;
use rke_operator::{
    api::conditions::{ConditionSet, ConditionStatus, ConditionType, Reason},
    converge::{Inspection, inspect},
    error::{ErrorClass, Obstacle},
    etcd::{Alarm, AlarmKind, EtcdView, ExternalFault, ExternalView, MemberId, Quorum},
    facts::{Actual, ApiHealth, ContainerState, HostView, Unreachable},
    model::{ContainerSpec, NodeName, label},
    plan::render,
    status::{Health, Seen, Status, conditions},
};

use crate::{
    joint_properties::{block_on, runner, settle},
    sim::{
        Shell, World,
        mishap::{OnNode, happen_on, mishap},
        remote::SimRemote,
        runner::Runner,
        world::plan_up,
    },
    status::{five, made, seen},
};

fn silent() -> HostView {
    HostView::Unreachable(Unreachable {
        alike: None,
        obstacle: Obstacle::Silence,
        class: ErrorClass::Host,
        why: "no route to host".to_owned(),
        hints: vec!["is it switched on?".to_owned()],
    })
}

fn down(actual: &mut Actual, nodes: &[&str]) {
    for node in nodes {
        let name = NodeName::from(*node);
        actual.hosts.insert(name.clone(), silent());
        actual.apis.remove(&name);
        quiet(actual, node);
    }
    if !serves(actual) {
        actual.cluster = None;
    }
}

fn serves(actual: &Actual) -> bool {
    actual.apis.values().any(|api| *api == ApiHealth::Serving)
}

/// The member of that node does not answer.
fn quiet(actual: &mut Actual, node: &str) {
    let name = NodeName::from(node);
    let members = actual.etcd.members.values_mut();
    for member in members {
        if member.status.as_ref().is_some_and(|(on, _)| *on == name) {
            member.status = None;
            let why = "no answer within 5 s".to_owned();
            actual.etcd.silent.insert(name.clone(), why);
        }
    }
    let answers = actual
        .etcd
        .members
        .values()
        .filter(|one| one.status.is_some());
    let (answers, all) = (answers.count(), actual.etcd.members.len());
    if answers == 0 {
        actual.etcd.quorum = Quorum::Unknown;
    } else if answers <= all / 2 {
        actual.etcd.quorum = Quorum::Lost;
    }
}

fn ends(actual: &mut Actual, node: &str, name: &str, state: Option<ContainerState>) {
    let Some(HostView::Reachable(facts)) = actual.hosts.get_mut(&node.into()) else {
        return;
    };
    match state {
        Some(state) => {
            if let Some(fact) = facts.containers.get_mut(name) {
                fact.state = state;
            }
        }
        None => {
            facts.containers.remove(name);
        }
    }
}

/// It was applied with another flag, and runs with it.
fn other_flag(actual: &mut Actual, node: &str, name: &str) {
    let Some(HostView::Reachable(facts)) = actual.hosts.get_mut(&node.into()) else {
        panic!("it answers");
    };
    let fact = facts.containers.get_mut(name).expect("it is there");
    let text = &fact.labels[label::SPEC];
    let mut spec: ContainerSpec = serde_json::from_str(text).expect("a definition");
    spec.command.push("--other=1".to_owned());
    let text = serde_json::to_string(&spec).expect("a definition");
    fact.labels.insert(label::SPEC.to_owned(), text);
    if let Some(runs) = &mut fact.runs {
        runs.command.push("--other=1".to_owned());
    }
}

/// An API server that takes connections and says nothing: its container runs.
fn hangs(actual: &mut Actual, node: &str) {
    let why = format!("node `{node}`: no complete answer within 20 s");
    let down = ApiHealth::Unreachable(why);
    if let Some(api) = actual.apis.get_mut(&node.into()) {
        *api = down;
    }
    if !serves(actual) {
        actual.cluster = None;
    }
}

fn alarm(actual: &mut Actual, kind: AlarmKind) {
    let member = *actual.etcd.members.keys().next().unwrap_or(&MemberId(0));
    actual.etcd.alarms.insert(Alarm { member, kind });
}

fn not_ready(actual: &mut Actual, node: &str) {
    if let Some(api) = &mut actual.cluster
        && let Some(fact) = api.nodes.get_mut(&node.into())
    {
        fact.ready = false;
        "PLEG is not healthy".clone_into(&mut fact.message);
    }
}

/// What happened, and how a cluster looks after it.
type Happening = (&'static str, fn(&mut Actual));

/// What may have happened to a well cluster, alone or with others.
const HAPPENINGS: &[Happening] = &[
    ("a worker is dead", |a| down(a, &["n4"])),
    ("a control plane is dead", |a| down(a, &["n2"])),
    ("another control plane is dead", |a| down(a, &["n3"])),
    ("a member hangs", |a| quiet(a, "n2")),
    ("another member hangs", |a| quiet(a, "n1")),
    ("NOSPACE", |a| alarm(a, AlarmKind::NoSpace)),
    ("CORRUPT", |a| alarm(a, AlarmKind::Corrupt)),
    ("an API server hangs", |a| hangs(a, "n1")),
    ("another API server hangs", |a| hangs(a, "n2")),
    ("the third API server hangs", |a| hangs(a, "n3")),
    ("a scheduler has ended", |a| {
        ends(a, "n1", "kube-scheduler", Some(ContainerState::Exited(1)));
    }),
    ("a controller manager is not there", |a| {
        ends(a, "n3", "kube-controller-manager", None);
    }),
    ("a kubelet has ended", |a| {
        ends(a, "n5", "kubelet", Some(ContainerState::Exited(137)));
    }),
    ("a proxy is restarted again and again", |a| {
        ends(a, "n4", "kube-proxy", Some(ContainerState::Restarting(1)));
    }),
    ("a node is not Ready", |a| not_ready(a, "n5")),
    ("a Node object is gone", |a| {
        if let Some(api) = &mut a.cluster {
            api.nodes.remove(&"n4".into());
        }
    }),
    ("no API server reports what the cluster has", |a| {
        a.cluster = None;
        a.untold = Some("node `n1`: no complete answer within 20 s".to_owned());
    }),
    ("a node was not looked at", |a| {
        a.hosts.remove(&"n5".into());
    }),
    ("an object of an add-on is gone", |a| {
        if let Some(api) = &mut a.cluster
            && let Some(object) = api.objects.keys().next().cloned()
        {
            api.objects.remove(&object);
        }
    }),
];

struct Made {
    inspection: Inspection,
}

impl Made {
    fn status(&self, actual: &Actual, later: SignedDuration) -> Status {
        let Inspection {
            now,
            intent,
            actual: _,
            snapshots,
            desired,
            plan,
        } = &self.inspection;
        Status::of(&Seen {
            now: now.checked_add(later).unwrap(),
            intent: Some(intent),
            actual,
            snapshots,
            desired: desired.as_ref(),
            plan: Ok(plan.as_ref().unwrap()),
        })
    }

    fn now(&self, actual: &Actual) -> Status {
        self.status(actual, SignedDuration::ZERO)
    }
}

/// Five nodes that are well, made once.
static WELL: LazyLock<(World, Shell)> = LazyLock::new(|| {
    block_on(async {
        let runner = made(&five(), 5).await;
        let world = runner.remote.world(|world| world.clone());
        (world, runner.memory.shell())
    })
});

/// What is seen of them after these mishaps.
fn after(befalls: &[OnNode]) -> Result<Inspection, rke_operator::converge::Error> {
    let (mut world, mut shell) = WELL.clone();
    for one in befalls {
        happen_on(*one, &mut world, &mut shell);
    }
    let runner = Runner::new(&SimRemote::new(world), || [1; 32]);
    runner.memory.keep(shell);
    block_on(async { inspect(&five().intent(), &runner.environment()).await })
}

fn five_made() -> Made {
    Made {
        inspection: after(&[]).unwrap(),
    }
}

/// No problem, exactly where every condition about health is True; and `Ready` is told by them.
pub(crate) fn agree(status: &Status) -> Result<(), String> {
    let set = conditions(status);
    let untrue: Vec<_> = ConditionType::HEALTH
        .into_iter()
        .filter(|kind| set.status(*kind) != Some(ConditionStatus::True))
        .collect();
    let well = status.problems.is_empty();
    if well != untrue.is_empty() || well != (status.cluster.health == Health::Healthy) {
        return Err(format!(
            "{:?}: {:#?}\nbut not True: {untrue:?}\n{set:#?}",
            status.cluster.health, status.problems
        ));
    }
    Ok(())
}

#[test]
fn a_well_cluster_has_no_problem_and_every_condition_true() {
    let made = five_made();
    let status = made.now(&made.inspection.actual);
    agree(&status).unwrap();
    assert_eq!(
        status.cluster.health,
        Health::Healthy,
        "{:#?}",
        status.problems
    );
}

#[test]
fn each_happening_is_a_problem_and_takes_a_condition_away() {
    let made = five_made();
    for (what, happens) in HAPPENINGS {
        let mut actual = made.inspection.actual.clone();
        happens(&mut actual);
        let status = made.now(&actual);
        assert_ne!(status.cluster.health, Health::Healthy, "{what}");
        agree(&status).unwrap_or_else(|why| panic!("{what}: {why}"));
    }
}

proptest! {
    /// Whatever comes together: the object and the command line say the same.
    #[test]
    fn problems_and_conditions_agree(
        happens in proptest::collection::vec(0..HAPPENINGS.len(), 0..5),
        befalls in proptest::collection::vec(mishap(), 0..4),
        years in 0_i64..12,
    ) {
        // What no plan is made for has no wanted add-ons to be judged by.
        if let Ok(inspection) = after(&befalls)
            && inspection.plan.is_ok()
         {
            let made = Made { inspection };
            let mut actual = made.inspection.actual.clone();
            for at in happens {
                HAPPENINGS[at].1(&mut actual);
            }
            let later = SignedDuration::from_hours(24 * 365 * years);
            for later in [SignedDuration::ZERO, later] {
                let status = made.status(&actual, later);
                if let Err(why) = agree(&status) {
                    prop_assert!(false, "{why}");
                }
            }
        }
    }
}

type Case = (
    &'static str,
    fn(&mut Actual),
    ConditionType,
    Reason,
    &'static str,
);

fn no_api(actual: &mut Actual) {
    for node in ["n1", "n2", "n3"] {
        hangs(actual, node);
    }
}

fn external(actual: &mut Actual, view: ExternalView) {
    actual.etcd = EtcdView::of_external(view);
    for node in ["n1", "n2", "n3"] {
        ends(actual, node, "etcd", None);
    }
}

fn faulty() -> ExternalView {
    ExternalView::Faulty(ExternalFault {
        class: ErrorClass::Host,
        why: "the external etcd is away".to_owned(),
        hints: Vec::new(),
    })
}

/// Nothing is done, and yet the nodes are not as the spec says: both views name what waits, and for what.
#[test]
fn what_is_held_back_is_named() {
    let Made { inspection } = five_made();
    let mut actual = inspection.actual.clone();
    alarm(&mut actual, AlarmKind::NoSpace);
    other_flag(&mut actual, "n4", "kubelet");
    let plan = plan_up(inspection.desired.as_ref().unwrap(), &actual).unwrap();
    assert!(plan.is_empty(), "{}", render(&plan));
    let made = Made {
        inspection: Inspection {
            plan: Ok(plan),
            ..inspection
        },
    };
    let status = made.now(&actual);
    let held = serde_json::to_value(&status.differences.held).unwrap();
    assert_eq!(held[0]["node"], "n4", "{held}");
    assert_eq!(held[0]["what"], "kubelet", "{held}");
    assert_eq!(held[0]["reason"], "EtcdProblem", "{held}");
    let set = conditions(&status);
    let state = set.get(ConditionType::UpToDate).unwrap();
    assert_eq!(state.reason, Reason::HeldBack, "{}", state.message);
    let told = "n4: `kubelet` is not replaced yet: member";
    assert!(state.message.contains(told), "{}", state.message);
    let set = conditions(&five_made().now(&five_made().inspection.actual));
    let state = set.get(ConditionType::UpToDate).unwrap();
    assert_eq!(state.reason, Reason::UpToDate, "{}", state.message);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table is read from top to bottom")]
fn each_fact_has_its_reason() {
    use ConditionType as T;
    let cases: &[Case] = &[
        ("well", |_| {}, T::Available, Reason::Available, ""),
        ("well", |_| {}, T::NodesReachable, Reason::Reachable, ""),
        (
            "well",
            |_| {},
            T::EtcdHealthy,
            Reason::Healthy,
            "every member serves",
        ),
        ("well", |_| {}, T::ControlPlaneHealthy, Reason::Healthy, ""),
        ("well", |_| {}, T::NodesHealthy, Reason::Healthy, ""),
        ("well", |_| {}, T::AddonsApplied, Reason::Applied, ""),
        ("well", |_| {}, T::CertificatesValid, Reason::Valid, "in "),
        ("well", |_| {}, T::UpToDate, Reason::UpToDate, ""),
        (
            "NOSPACE: the commands that end it",
            |a| alarm(a, AlarmKind::NoSpace),
            T::EtcdHealthy,
            Reason::AlarmRaised,
            "`sudo docker exec etcd etcdctl alarm disarm`",
        ),
        (
            "a worker is dead: it serves",
            |a| down(a, &["n4"]),
            T::Available,
            Reason::Available,
            "",
        ),
        (
            "a worker is dead",
            |a| down(a, &["n4"]),
            T::NodesReachable,
            Reason::Unreachable,
            "`n4`: no route to host; hint: is it switched on?",
        ),
        (
            "a node was not looked at",
            |a| {
                a.hosts.remove(&"n4".into());
            },
            T::NodesReachable,
            Reason::NotYetKnown,
            "`n4`",
        ),
        (
            "one member is dead, and the API answers",
            |a| down(a, &["n2"]),
            T::EtcdHealthy,
            Reason::MembersDown,
            "`n2`",
        ),
        (
            "a member hangs: its container runs, and /readyz answers",
            |a| quiet(a, "n2"),
            T::EtcdHealthy,
            Reason::MembersDown,
            "`n2`: its member of etcd does not follow the leader: no answer within 5 s",
        ),
        (
            "NOSPACE: nothing is written, and /readyz answers",
            |a| alarm(a, AlarmKind::NoSpace),
            T::EtcdHealthy,
            Reason::AlarmRaised,
            "has raised the alarm NOSPACE",
        ),
        (
            "etcd is external: no member is missed",
            |a| external(a, ExternalView::NotAsked),
            T::EtcdHealthy,
            Reason::External,
            "its owner knows its health",
        ),
        (
            "etcd is external and cannot be used, and the API does not answer",
            |a| {
                external(a, faulty());
                no_api(a);
            },
            T::EtcdHealthy,
            Reason::Unreachable,
            "the external etcd is away",
        ),
        (
            "etcd is external and cannot be used by us, and the API answers",
            |a| external(a, faulty()),
            T::EtcdHealthy,
            Reason::MembersDown,
            "the external etcd is away",
        ),
        (
            "one member's etcd is not there",
            |a| {
                ends(a, "n3", "etcd", None);
                quiet(a, "n3");
            },
            T::EtcdHealthy,
            Reason::MembersDown,
            "`n3`: container `etcd` is missing",
        ),
        (
            "one member's etcd keeps ending",
            |a| {
                ends(a, "n3", "etcd", Some(ContainerState::Restarting(2)));
                quiet(a, "n3");
            },
            T::EtcdHealthy,
            Reason::MembersDown,
            "its last exit code is 2",
        ),
        (
            "two of three have ended",
            |a| {
                ends(a, "n1", "etcd", Some(ContainerState::Exited(1)));
                ends(a, "n2", "etcd", Some(ContainerState::Created));
                quiet(a, "n1");
                quiet(a, "n2");
                no_api(a);
            },
            T::EtcdHealthy,
            Reason::QuorumLost,
            "`n2`: container `etcd` was never started",
        ),
        (
            "all have ended, so that none can be asked",
            |a| {
                for node in ["n1", "n2", "n3"] {
                    ends(a, node, "etcd", Some(ContainerState::Exited(1)));
                    quiet(a, node);
                }
                no_api(a);
            },
            T::Available,
            Reason::QuorumLost,
            "`n2`: container `etcd` has exited with code 1",
        ),
        (
            "all are silent, which is not all that ended",
            |a| down(a, &["n1", "n2", "n3"]),
            T::EtcdHealthy,
            Reason::Unreachable,
            "",
        ),
        (
            "the API does not answer",
            no_api,
            T::Available,
            Reason::APIServerDown,
            "no complete answer within 20 s",
        ),
        (
            "the API does not answer",
            no_api,
            T::ControlPlaneHealthy,
            Reason::APIServerDown,
            "no complete answer within 20 s",
        ),
        (
            "the API does not answer",
            no_api,
            T::NodesHealthy,
            Reason::Unreachable,
            "",
        ),
        (
            "one of three API servers hangs",
            |a| hangs(a, "n2"),
            T::ControlPlaneHealthy,
            Reason::ComponentDown,
            "`n2`: its API server does not serve",
        ),
        (
            "no control plane answers",
            |a| down(a, &["n1", "n2", "n3"]),
            T::Available,
            Reason::Unreachable,
            "",
        ),
        (
            "no control plane answers",
            |a| down(a, &["n1", "n2", "n3"]),
            T::ControlPlaneHealthy,
            Reason::Unreachable,
            "",
        ),
        (
            "no API server is there",
            |a| {
                for node in ["n1", "n2", "n3"] {
                    ends(a, node, "kube-apiserver", None);
                }
                a.apis.clear();
                a.cluster = None;
            },
            T::Available,
            Reason::APIServerDown,
            "container `kube-apiserver` is missing",
        ),
        (
            "a scheduler has ended",
            |a| ends(a, "n1", "kube-scheduler", Some(ContainerState::Exited(1))),
            T::ControlPlaneHealthy,
            Reason::ComponentDown,
            "`n1`: container `kube-scheduler` has exited with code 1",
        ),
        (
            "a node is not Ready",
            |a| not_ready(a, "n5"),
            T::NodesHealthy,
            Reason::NodesNotReady,
            "`n5`: is not Ready: PLEG is not healthy",
        ),
        (
            "a Node object is gone",
            |a| {
                a.cluster.as_mut().unwrap().nodes.remove(&"n4".into());
            },
            T::NodesHealthy,
            Reason::NodesNotReady,
            "`n4`: has no Node object",
        ),
    ];
    let made = five_made();
    for (what, change, kind, reason, message) in cases {
        let mut actual = made.inspection.actual.clone();
        change(&mut actual);
        let set: ConditionSet = conditions(&made.now(&actual));
        let state = set.get(*kind).unwrap();
        assert_eq!(state.reason, *reason, "{what}: {kind}: {}", state.message);
        assert!(state.message.contains(message), "{what}: {}", state.message);
    }
}

/// Days that are left, and what is done about it.
#[test]
fn what_expires_is_shown_in_days() {
    let made = five_made();
    for (days, reason) in [
        (0, Reason::Valid),
        (300, Reason::ExpiringSoon),
        (366, Reason::Expired),
        (3580, Reason::Expired),
    ] {
        let later = SignedDuration::from_hours(24 * days);
        let status = made.status(&made.inspection.actual, later);
        let set = conditions(&status);
        let state = set.get(ConditionType::CertificatesValid).unwrap();
        assert_eq!(state.reason, reason, "day {days}: {}", state.message);
        agree(&status).unwrap();
    }
}

/// An authority that ends is told by both, long before: nothing makes it anew by itself.
#[test]
fn an_authority_that_ends_soon_is_a_problem() {
    let mut made = five_made();
    let desired = made.inspection.desired.as_mut().unwrap();
    let first = desired.certificates.earliest.as_mut().unwrap();
    first.at = "2044-01-01T00:00:00Z".parse().unwrap();
    for host in made.inspection.actual.hosts.values_mut() {
        if let HostView::Reachable(facts) = host {
            facts.files = None;
        }
    }
    let later = SignedDuration::from_hours(24 * 3600);
    let status = made.status(&made.inspection.actual, later);
    let set = conditions(&status);
    let state = set.get(ConditionType::CertificatesValid).unwrap();
    assert_eq!(state.reason, Reason::AuthorityEnding, "{}", state.message);
    agree(&status).unwrap();
}

/// A node that was given up is looked for by nobody, and missed by nobody.
#[test]
fn what_was_given_up_is_no_problem() {
    let mut made = five_made();
    let actual = &mut made.inspection.actual;
    let saved = actual.saved.as_mut().unwrap();
    let entry = saved.inventory.get_mut(&"n5".into()).unwrap();
    entry.membership = rke_operator::state::Membership::Lost;
    actual.hosts.remove(&"n5".into());
    actual.cluster.as_mut().unwrap().nodes.remove(&"n5".into());
    made.inspection.intent.nodes.remove(&"n5".into());
    let status = made.now(&made.inspection.actual);
    assert_eq!(status.problems, []);
    agree(&status).unwrap();
}

/// Also of a cluster of one node that was just made.
#[test]
fn a_new_cluster_is_well() {
    let wish = crate::sim::wish::Wish::plain();
    let inspection = block_on(async {
        let runner = runner(1);
        settle(&runner, &wish.intent()).await;
        seen(&runner, &wish).await
    });
    let made = Made { inspection };
    agree(&made.now(&made.inspection.actual)).unwrap();
}

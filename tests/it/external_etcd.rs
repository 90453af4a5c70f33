//! Clusters whose etcd is outside of them: the product's own `converge` on a simulated world.

use std::collections::{BTreeMap, BTreeSet};

use rke_operator::{
    config::Intent,
    converge::{Error, Goal, Outcome, Removal, RemovalOutcome},
    error::{ErrorClass, Explain, Obstacle},
    etcd::{ExternalFault, ExternalView},
    model::{EtcdKeyspace, NodeName},
    plan::{Action, HostAction, Plan, render},
    status::{QuorumState, Status},
};
use serde_json::{Value, json};

use crate::{
    plan_properties::fresh,
    sim::{World, remote::SimRemote, runner::Runner, wish::Wish},
};

const CERT: &str = "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----";

/// Two control planes and a worker.
fn config(config: &mut Value) {
    for (node, roles) in [
        (0, json!(["controlplane"])),
        (1, json!(["controlplane"])),
        (2, json!(["worker"])),
    ] {
        config["nodes"][node]["role"] = roles;
    }
    config["services"]["etcd"] = json!({
        "external_urls": ["https://etcd.example.com:2379"],
        "path": "/production",
        "ca_cert": CERT,
        "cert": CERT,
        "key": "hunter2",
    });
}

fn with(more: impl FnOnce(&mut Value)) -> Intent {
    let wish = Wish {
        masks: vec![3, 0],
        ..Wish::plain()
    };
    wish.intent_with(|document| {
        config(document);
        more(document);
    })
}

fn external() -> Intent {
    with(|_| {})
}

/// Members on the same nodes.
fn members() -> Intent {
    let wish = Wish {
        masks: vec![3, 0],
        ..Wish::plain()
    };
    wish.intent()
}

fn answers(cluster: &str, holds_keys: bool) -> ExternalView {
    ExternalView::Answered {
        cluster: cluster.to_owned(),
        holds_keys,
        silent: BTreeMap::new(),
    }
}

fn runner(external: Option<ExternalView>) -> Runner {
    let world = World {
        external,
        ..fresh(3)
    };
    Runner::new(&SimRemote::new(world), || [1; 32])
}

async fn settled(intent: &Intent, external: Option<ExternalView>) -> Runner {
    let runner = runner(external);
    let outcome = runner
        .converge(&Goal::Up(intent))
        .await
        .expect("it goes up");
    assert!(
        matches!(outcome, Outcome::Converged { changed: true, .. }),
        "{outcome:?}"
    );
    runner
}

fn containers(runner: &Runner) -> BTreeMap<NodeName, BTreeMap<String, String>> {
    runner.remote.world(|world| {
        let hosts = world.truth.hosts.keys();
        let hosts = hosts.filter_map(|name| Some((name, world.truth.up(name)?)));
        let ids = hosts.map(|(name, facts)| {
            let all = facts.containers.iter();
            let all = all.map(|(container, fact)| (container.clone(), fact.id.clone()));
            (name.clone(), all.collect())
        });
        ids.collect()
    })
}

fn replaced(plan: &Plan) -> BTreeSet<&str> {
    let actions = plan.steps().map(|step| &step.action);
    let names = actions.filter_map(|action| match action {
        Action::Host(_, HostAction::ReplaceContainer { component, .. }) => {
            Some(component.container())
        }
        Action::Host(..) | Action::Cluster(_) | Action::Local(_) => None,
    });
    names.collect()
}

#[tokio::test]
async fn it_goes_up_without_a_member_and_is_settled() {
    let intent = external();
    let runner = settled(&intent, Some(answers("cafe", false))).await;
    for (node, containers) in containers(&runner) {
        assert!(!containers.contains_key("etcd"), "{node}");
    }
    // Its own keys are there now.
    runner
        .remote
        .world(|world| world.external = Some(answers("cafe", true)));
    let plan = runner.plan(&Goal::Up(&intent)).await.expect("a plan");
    assert!(plan.is_empty(), "{}", render(&plan));
    let saved = runner.memory.shell().saved.expect("a state");
    let keyspace = EtcdKeyspace {
        etcd_cluster: "cafe".to_owned(),
        prefix: "/production".to_owned(),
    };
    assert_eq!(saved.external_etcd, Some(keyspace));
    let environment = runner.environment();
    let seen = rke_operator::converge::inspect(&intent, &environment)
        .await
        .expect("a look");
    let status = Status::of(&seen.seen());
    assert_eq!(status.etcd.quorum, QuorumState::External);
    assert_eq!(status.problems, []);
}

/// Nothing is written, not even the state.
#[tokio::test]
async fn what_is_wrong_with_it_is_told_before_anything_is_written() {
    let fault = ExternalFault {
        class: ErrorClass::User,
        why: "etcd refused the client certificate".to_owned(),
        hints: vec!["another certificate".to_owned()],
    };
    for (view, said, class) in [
        (
            answers("cafe", true),
            "holds keys below `/production/` already",
            ErrorClass::User,
        ),
        (
            ExternalView::Faulty(fault),
            "etcd refused the client certificate",
            ErrorClass::User,
        ),
        (
            ExternalView::NotAsked,
            "was not looked at",
            ErrorClass::Host,
        ),
    ] {
        let runner = runner(Some(view));
        let before = containers(&runner);
        let error = runner
            .converge(&Goal::Up(&external()))
            .await
            .expect_err(said);
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.class(), class, "{error}");
        assert!(!error.hints().is_empty() || class == ErrorClass::Host);
        assert_eq!(runner.memory.shell().saved, None);
        assert_eq!(containers(&runner), before);
        assert_eq!(runner.remote.steps(), 0);
    }
}

#[tokio::test]
async fn another_certificate_or_url_rolls_the_api_servers_and_nothing_else() {
    let runner = settled(&external(), Some(answers("cafe", false))).await;
    let urls = json!([
        "https://etcd.example.com:2379",
        "https://etcd2.example.com:2379"
    ]);
    for (key, value) in [
        ("external_urls", urls),
        ("cert", json!(format!("{CERT}\n{CERT}"))),
    ] {
        let changed = with(|config| config["services"]["etcd"][key] = value);
        let plan = runner.plan(&Goal::Up(&changed)).await.expect("a plan");
        assert_eq!(
            replaced(&plan),
            ["kube-apiserver"].into(),
            "{}",
            render(&plan)
        );
        // One after the other, each while the other serves.
        let rolls = |step: &&rke_operator::plan::Step| {
            matches!(
                &step.action,
                Action::Host(_, HostAction::ReplaceContainer { .. })
            )
        };
        let stage = plan
            .stages
            .iter()
            .find(|stage| stage.steps().any(|step| rolls(&step)));
        let stage = stage.expect("a roll");
        assert_eq!(
            (stage.width, stage.queues.len()),
            (1, 2),
            "{}",
            render(&plan)
        );
        let mut steps = stage.steps().filter(rolls);
        assert!(steps.all(|step| step.guards.len() > 1), "{}", render(&plan));
        runner
            .converge(&Goal::Up(&external()))
            .await
            .expect("it goes on");
    }
}

/// Neither from members to an external etcd, nor back, nor to another one.
#[tokio::test]
async fn data_does_not_move() {
    let elsewhere = with(|config| config["services"]["etcd"]["path"] = json!("/staging"));
    let other = Some(answers("beef", false));
    for (first, was, then, is) in [
        (members(), None, external(), Some(answers("cafe", false))),
        (
            external(),
            Some(answers("cafe", false)),
            members(),
            Some(ExternalView::NotAsked),
        ),
        (
            external(),
            Some(answers("cafe", false)),
            elsewhere,
            Some(answers("cafe", false)),
        ),
        (external(), Some(answers("cafe", false)), external(), other),
    ] {
        let runner = settled(&first, was).await;
        let saved = runner.memory.shell().saved;
        let before = (containers(&runner), runner.remote.steps());
        runner.remote.world(|world| world.external = is);
        let error = runner
            .converge(&Goal::Up(&then))
            .await
            .expect_err("data stays");
        assert!(matches!(error, Error::Plan(_)), "{error:?}");
        assert!(
            error.to_string().contains("its data would stay behind"),
            "{error}"
        );
        assert_eq!((containers(&runner), runner.remote.steps()), before);
        assert_eq!(runner.memory.shell().saved, saved);
    }
}

/// What is said about members and quorum holds nobody back.
#[tokio::test]
async fn nodes_come_and_go() {
    let runner = settled(&external(), Some(answers("cafe", false))).await;
    runner
        .remote
        .world(|world| world.external = Some(answers("cafe", true)));
    let one = with(|config| drop(config["nodes"].as_array_mut().map(|nodes| nodes.remove(1))));
    let outcome = runner.converge(&Goal::Up(&one)).await.expect("it leaves");
    assert!(
        matches!(outcome, Outcome::Converged { changed: true, .. }),
        "{outcome:?}"
    );
    assert!(!containers(&runner)[&NodeName::from("n2")].contains_key("kube-apiserver"));
    let outcome = runner
        .converge(&Goal::Up(&external()))
        .await
        .expect("it comes");
    assert!(
        matches!(outcome, Outcome::Converged { changed: true, .. }),
        "{outcome:?}"
    );

    // A control plane that is gone for good.
    runner.remote.world(|world| {
        let down = rke_operator::facts::Unreachable {
            alike: None,
            obstacle: Obstacle::Silence,
            class: ErrorClass::Host,
            why: "no route to host".to_owned(),
            hints: Vec::new(),
        };
        world.down.insert("n2".into(), down);
    });
    let losing = runner.losing(&["n2"]);
    let outcome = losing
        .converge(&Goal::Up(&one))
        .await
        .expect("it is given up");
    assert!(
        matches!(outcome, Outcome::Converged { changed: true, .. }),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_removal_leaves_the_data_and_says_so() {
    let runner = settled(&external(), Some(answers("cafe", false))).await;
    let plan = runner.plan(&Removal(None)).await.expect("a plan");
    let notes: Vec<_> = plan.notes.iter().map(|note| note.text.as_str()).collect();
    let said = |text: &&&str| text.contains("keeps the data of this cluster, below `/production/`");
    assert_eq!(notes.iter().filter(said).count(), 1, "{notes:?}");
    let outcome = runner.converge(&Removal(None)).await.expect("it goes");
    assert!(
        matches!(
            outcome,
            RemovalOutcome::Removed {
                changed: true,
                last_snapshot: None
            }
        ),
        "{outcome:?}"
    );
    assert_eq!(runner.memory.shell().saved, None);
}

/// E20: an etcd that was restored has another cluster id. It is refused with the consent that there is, and goes on with
/// it; another id is no consent, nor is an etcd without any keys.
#[tokio::test]
async fn an_etcd_that_was_restored_goes_on_when_its_id_is_accepted() {
    let runner = settled(&external(), Some(answers("cafe", false))).await;
    let becomes = |cluster: &str, holds_keys| {
        let view = answers(cluster, holds_keys);
        runner.remote.world(|world| world.external = Some(view));
    };
    let intent = external();
    let goal = Goal::Up(&intent);
    becomes("beef", false);
    let error = runner
        .accepting("beef")
        .converge(&goal)
        .await
        .expect_err("nothing is there");
    assert!(
        error.hints()[0].contains("holds no keys"),
        "{:?}",
        error.hints()
    );
    becomes("beef", true);
    let before = runner.memory.shell();
    for runner in [runner.clone(), runner.accepting("f00d")] {
        let error = runner.converge(&goal).await.expect_err("another etcd");
        assert!(
            error.to_string().contains("its data would stay behind"),
            "{error}"
        );
        assert!(
            error.hints()[0].contains("--accept-etcd beef"),
            "{:?}",
            error.hints()
        );
    }
    assert_eq!(runner.memory.shell(), before);
    runner
        .accepting("beef")
        .converge(&goal)
        .await
        .expect("it goes on");
    let saved = runner.memory.shell().saved.expect("a state");
    let keyspace = saved.external_etcd.expect("it is outside");
    assert_eq!(keyspace.etcd_cluster, "beef");
    let plan = runner.plan(&goal).await.expect("a plan");
    assert!(plan.is_empty(), "{}", rke_operator::plan::render(&plan));
}

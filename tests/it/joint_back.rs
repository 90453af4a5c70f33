//! Changes that fail on one node go back there: the former container runs again, no other node is touched, the run ends
//! as degraded, and what has failed is not tried again until it is another definition or a person asks for it.

use std::sync::{Arc, Mutex, OnceLock};

use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};
use rke_operator::{
    api::conditions::{ConditionType, Reason},
    config::Intent,
    converge::{Error, Goal, Outcome, inspect},
    error::Explain,
    facts::{Actual, ContainerState, HostFacts, HostView},
    model::{Component, NodeName},
    plan::{Action, HostAction, Step, render},
    status::{Status, conditions},
};
use serde_json::json;

use crate::{
    joint_properties::{block_on, cut, order, runner},
    joint_watch::holds,
    sim::{
        Cut, Shell, World,
        remote::SimRemote,
        runner::Runner,
        wish::Wish,
        world::{Fails, Sign},
    },
};

/// Three nodes with every role, and a worker.
fn wish() -> Wish {
    Wish {
        masks: vec![3, 3, 0],
        ..Wish::plain()
    }
}

const NODES: usize = 4;

/// Every component has another image with another build.
fn intent(build: u8) -> Intent {
    let wish = Wish { build, ..wish() };
    wish.intent_with(|config| {
        let images = &mut config["system_images"];
        images["etcd"] = json!(format!("registry.example.com/etcd:v3.6.7-build{build}"));
        images["nginx_proxy"] = json!(format!("registry.example.com/nginx:v1.29.1-build{build}"));
    })
}

/// The second node that has the component.
fn second(component: Component) -> NodeName {
    let node = if component == Component::NginxProxy {
        "n4"
    } else {
        "n2"
    };
    node.into()
}

const ROLLED: [Component; 7] = [
    Component::Etcd,
    Component::ApiServer,
    Component::ControllerManager,
    Component::Scheduler,
    Component::NginxProxy,
    Component::Kubelet,
    Component::KubeProxy,
];

/// On `node` the component does not work with such an image.
fn fails(runner: &Runner, node: &NodeName, component: Component, image: &str, sign: Sign) {
    let fails = Fails {
        node: node.clone(),
        component,
        image: image.to_owned(),
        sign,
    };
    runner.remote.world(|world| world.fails.push(fails));
}

fn host<'w>(world: &'w World, node: &NodeName) -> &'w HostFacts {
    world.truth.up(node).unwrap()
}

fn image(world: &World, node: &NodeName, component: Component) -> String {
    let fact = host(world, node).container(component);
    fact.map(|fact| fact.image.clone()).unwrap_or_default()
}

/// No two containers of a component run on a node, and what is kept does not start with it.
fn one_of_each(world: &World) {
    for (name, view) in &world.truth.hosts {
        let HostView::Reachable(facts) = view else {
            continue;
        };
        for component in Component::ALL {
            if let Some(kept) = facts.containers.get(component.kept()) {
                let runs = kept.state == ContainerState::Running;
                assert!(!runs && kept.runs.is_none(), "{name}: {kept:?}");
            }
        }
    }
}

/// The steps that run from now on.
fn record(runner: &Runner) -> Arc<Mutex<Vec<Step>>> {
    let steps: Arc<Mutex<Vec<Step>>> = Arc::default();
    let record = Arc::clone(&steps);
    runner.remote.watch(move |world, step| {
        one_of_each(world);
        record.lock().unwrap().push(step.clone());
    });
    steps
}

async fn up(runner: &Runner, intent: &Intent) -> Result<Outcome, Error> {
    runner.converge(&Goal::Up(intent)).await
}

async fn converges(runner: &Runner, intent: &Intent) {
    let outcome = up(runner, intent).await.unwrap();
    assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
    let plan = runner.would(&Goal::Up(intent)).await.unwrap();
    assert!(plan.is_empty(), "{}", render(&plan));
    runner.remote.world(|world| {
        one_of_each(world);
        assert_eq!(kept(world), [""; 0]);
    });
}

/// The containers that changes have kept.
fn kept(world: &World) -> Vec<String> {
    let hosts = world.truth.hosts.keys();
    let all = hosts.flat_map(|name| {
        let names = host(world, name).containers.keys();
        let kept = names.filter(|name| Component::of_kept(name).is_some());
        kept.map(move |kept| format!("{name}: {kept}"))
    });
    all.collect()
}

fn refused(runner: &Runner) -> Vec<(Component, NodeName)> {
    let saved = runner.memory.shell().saved.unwrap();
    let refused = saved.memory.refused.into_iter();
    refused.map(|it| (it.component, it.node)).collect()
}

/// A cluster with the first build, made once.
async fn made() -> Runner {
    static MADE: OnceLock<(World, Shell)> = OnceLock::new();
    if let Some((world, shell)) = MADE.get() {
        let runner = Runner::new(&SimRemote::new(world.clone()), || [1; 32]);
        return runner.for_user("a test", shell.clone());
    }
    let runner = runner(NODES);
    converges(&runner, &intent(0)).await;
    let world = runner.remote.world(|world| world.clone());
    MADE.get_or_init(|| (world, runner.memory.shell()));
    runner
}

/// There the second build fails.
async fn broken(component: Component, sign: Sign) -> (Runner, NodeName, Intent) {
    let runner = made().await;
    let node = second(component);
    fails(&runner, &node, component, "build1", sign);
    (runner, node, intent(1))
}

fn signs(component: Component) -> Vec<Sign> {
    let mut signs = vec![Sign::DoesNotStart, Sign::Unhealthy];
    signs.extend((component == Component::Kubelet).then_some(Sign::NotReady));
    signs
}

/// What a run says at its end.
fn said(outcome: &Outcome) -> Vec<String> {
    let (Outcome::Degraded { warnings, .. } | Outcome::Converged { warnings, .. }) = outcome;
    let degrades = warnings.iter().filter(|warning| warning.degrades);
    degrades.map(|warning| warning.message.clone()).collect()
}

#[test]
fn what_fails_on_the_second_node_goes_back_there_and_nobody_else_is_touched() {
    for component in ROLLED {
        for sign in signs(component) {
            block_on(goes_back(component, sign));
        }
    }
}

async fn goes_back(component: Component, sign: Sign) {
    let case = format!("{component} {sign:?}");
    let (runner, node, wanted) = broken(component, sign).await;
    let steps = record(&runner);
    let outcome = up(&runner, &wanted).await.unwrap();
    let Outcome::Degraded { left, .. } = &outcome else {
        panic!("{case}: {outcome:?}");
    };
    let told = said(&outcome);
    let expected = format!("`{component}` failed with its new definition on node `{node}`");
    assert!(
        told.iter().any(|told| told.starts_with(&expected)),
        "{case}: {told:?}"
    );
    assert!(left.contains_key(&node), "{case}: {left:?}");
    runner.remote.world(|world| {
        let fact = host(world, &node).container(component).unwrap();
        assert!(fact.image.ends_with("build0"), "{case}: {}", fact.image);
        assert_eq!(fact.state, ContainerState::Running, "{case}");
        assert!(fact.runs.is_some(), "{case}: it starts with the node");
        assert!(
            !host(world, &node).containers.contains_key(component.kept()),
            "{case}"
        );
        let api = world.truth.cluster.as_ref().unwrap();
        let cordoned = api.nodes.iter().filter(|(_, node)| node.unschedulable);
        let cordoned: Vec<_> = cordoned.map(|(name, _)| name).collect();
        assert!(cordoned.is_empty(), "{case}: {cordoned:?}");
        // It goes on where the roll has not come yet.
        for other in ["n3", "n4"].map(NodeName::from) {
            let there = image(world, &other, component);
            assert!(
                !there.ends_with("build1") || other == node,
                "{case}: {other}"
            );
        }
    });
    let steps = std::mem::take(&mut *steps.lock().unwrap());
    let back = |step: &Step| matches!(step.action, Action::Host(_, HostAction::PutBack { .. }));
    let at = steps.iter().position(back).unwrap();
    let after = steps[at..].iter().filter_map(Step::node);
    assert!(
        after.clone().all(|on| *on == node),
        "{case}: {:?}",
        after.collect::<Vec<_>>()
    );
    assert_eq!(refused(&runner), [(component, node.clone())], "{case}");

    not_tried_again(&runner, &wanted, component, &case).await;
    // Asked for, it is tried, and fails again.
    let steps = record(&runner);
    let outcome = up(&runner.retrying(), &wanted).await.unwrap();
    assert_eq!(said(&outcome).len(), 1, "{case}: {outcome:?}");
    assert!(steps.lock().unwrap().iter().any(back), "{case}");
    // The node is mended.
    runner.remote.world(|world| world.fails.clear());
    not_tried_again(&runner, &wanted, component, &case).await;
    runner.remote.watch(|world, _| one_of_each(world));
    converges(&runner.retrying(), &wanted).await;
    assert_eq!(refused(&runner), [], "{case}");
}

/// Other things are done, and the component stays as it is on every node.
async fn not_tried_again(runner: &Runner, wanted: &Intent, component: Component, case: &str) {
    let steps = record(runner);
    let before = runner.remote.world(|world| world.clone());
    for _ in 0..2 {
        let outcome = up(runner, wanted).await.unwrap();
        assert!(
            matches!(outcome, Outcome::Degraded { .. }),
            "{case}: {outcome:?}"
        );
    }
    let of_it = |step: &Step| matches!(&step.action, Action::Host(_, HostAction::ReplaceContainer { component: is, .. } | HostAction::PutBack { component: is }) if *is == component);
    assert!(!steps.lock().unwrap().iter().any(of_it), "{case}");
    runner.remote.world(|world| {
        for name in world.truth.hosts.keys() {
            let was = image(&before, name, component);
            assert_eq!(image(world, name, component), was, "{case}: {name}");
        }
    });
    let plan = runner.would(&Goal::Up(wanted)).await.unwrap();
    let held = plan.notes.iter().filter_map(|note| note.held.as_ref());
    let mut reasons = held.map(|left| left.why.reason());
    assert!(
        reasons.any(|reason| reason == "Refused"),
        "{case}: {}",
        render(&plan)
    );
}

#[test]
fn a_cluster_says_that_a_change_was_rolled_back() {
    block_on(async {
        let (runner, node, wanted) = broken(Component::Kubelet, Sign::NotReady).await;
        up(&runner, &wanted).await.unwrap();
        let inspection = inspect(&wanted, &runner.environment()).await.unwrap();
        let set = conditions(&Status::of(&inspection.seen()));
        let state = set.get(ConditionType::UpToDate).unwrap();
        assert_eq!(state.reason, Reason::RolledBack, "{}", state.message);
        for told in ["`kubelet`", node.0.as_str(), "does not work", "up --retry"] {
            assert!(state.message.contains(told), "{}", state.message);
        }
    });
}

#[test]
fn another_definition_is_tried() {
    block_on(async {
        let (runner, node, wanted) = broken(Component::KubeProxy, Sign::Unhealthy).await;
        up(&runner, &wanted).await.unwrap();
        assert_eq!(refused(&runner), [(Component::KubeProxy, node)]);
        converges(&runner, &intent(2)).await;
        assert_eq!(refused(&runner), []);
    });
}

/// Whatever was there before it is wanted again.
#[test]
fn the_former_definition_is_no_change() {
    block_on(async {
        let (runner, _, wanted) = broken(Component::Kubelet, Sign::Unhealthy).await;
        up(&runner, &wanted).await.unwrap();
        converges(&runner, &intent(0)).await;
        assert_eq!(refused(&runner), []);
    });
}

#[test]
fn where_the_former_one_fails_too_everything_stands() {
    for component in ROLLED {
        block_on(async {
            let (runner, node, wanted) = broken(component, Sign::Unhealthy).await;
            fails(&runner, &node, component, "build0", Sign::Unhealthy);
            let steps = record(&runner);
            let error = up(&runner, &wanted).await.unwrap_err();
            assert!(
                matches!(error, Error::Step { .. }),
                "{component}: {error:?}"
            );
            let steps = std::mem::take(&mut *steps.lock().unwrap());
            let last = steps.last().and_then(Step::node);
            assert_eq!(last, Some(&node), "{component}");
        });
    }
}

/// A release of Kubernetes. etcd's minor changes between the two that are used here.
fn release(version: &str) -> Intent {
    Wish {
        masks: vec![3, 3],
        ..Wish::plain()
    }
    .intent_of(Some(version))
}

async fn crossing(
    fails_on: &str,
    component: Component,
    image: &str,
) -> (Runner, Result<Outcome, Error>) {
    let runner = runner(3);
    converges(&runner, &release("v1.32.13")).await;
    fails(&runner, &fails_on.into(), component, image, Sign::Unhealthy);
    let outcome = up(&runner, &release("v1.33.13")).await;
    (runner, outcome)
}

#[test]
fn a_minor_of_etcd_goes_back_while_another_member_has_the_former() {
    block_on(async {
        // The leader is the last.
        for node in ["n2", "n3"] {
            let (runner, outcome) = crossing(node, Component::Etcd, ":v3.6").await;
            assert!(
                matches!(outcome, Ok(Outcome::Degraded { .. })),
                "{node}: {outcome:?}"
            );
            let has = runner
                .remote
                .world(|world| image(world, &node.into(), Component::Etcd));
            assert!(has.contains(":v3.5"), "{node}: {has}");
        }
        let (runner, outcome) = crossing("n1", Component::Etcd, ":v3.6").await;
        let error = outcome.unwrap_err();
        let hints = error.hints().join("\n");
        assert!(hints.contains("etcdctl downgrade enable"), "{hints}");
        let has = runner
            .remote
            .world(|world| image(world, &"n1".into(), Component::Etcd));
        assert!(has.contains(":v3.6"), "{has}");
        assert_eq!(refused(&runner), []);
    });
}

#[test]
fn a_minor_of_the_api_server_goes_back_until_the_last_has_it() {
    block_on(async {
        let planes = ["n1", "n2", "n3"];
        let mut back = 0;
        for node in planes {
            let (runner, outcome) = crossing(node, Component::ApiServer, "v1.33").await;
            let has = runner
                .remote
                .world(|world| image(world, &node.into(), Component::ApiServer));
            match outcome {
                Ok(Outcome::Degraded { .. }) => {
                    assert!(has.contains("v1.32"), "{node}: {has}");
                    back += 1;
                }
                Err(error) => {
                    assert!(has.contains("v1.33"), "{node}: {has}");
                    let hints = error.hints().join("\n");
                    assert!(hints.contains("objects may be stored"), "{hints}");
                }
                Ok(outcome @ Outcome::Converged { .. }) => panic!("{outcome:?}"),
            }
        }
        assert_eq!(back, 2);
    });
}

/// A run that was cut off, and what it left.
#[derive(Clone, Debug)]
struct Case {
    component: Component,
    sign: Sign,
    /// What was before does not work either.
    former_fails: bool,
    cuts: Vec<Cut>,
    order: Vec<u8>,
}

fn case() -> impl Strategy<Value = Case> {
    let component = prop::sample::select(ROLLED.to_vec());
    let sign = prop::sample::select(vec![Sign::DoesNotStart, Sign::Unhealthy, Sign::NotReady]);
    let cuts = prop::collection::vec(cut(), 1..4);
    (component, sign, prop::bool::weighted(0.2), cuts, order()).prop_map(
        |(component, sign, former_fails, cuts, order)| Case {
            component,
            sign,
            former_fails,
            cuts,
            order,
        },
    )
}

/// The data of etcd stay where they are.
fn data(world: &World) -> (usize, usize) {
    let members = world.members.values().map(std::collections::BTreeSet::len);
    (members.sum(), world.aside.len())
}

async fn killed_anywhere(case: Case) -> Result<(), TestCaseError> {
    let Case {
        component,
        sign,
        former_fails,
        cuts,
        order,
    } = case;
    let (runner, node, wanted) = broken(component, sign).await;
    if former_fails {
        fails(&runner, &node, component, "build0", Sign::Unhealthy);
    }
    runner.remote.order(&order);
    let before = runner.remote.world(|world| data(world));
    runner.remote.watch(move |world, _| {
        one_of_each(world);
        assert_eq!(data(world), before);
    });
    for Cut { after, torn } in cuts {
        let after = after % 90;
        runner.remote.cut(Some(Cut { after, torn }));
        drop(up(&runner, &wanted).await);
        runner.remote.cut(None);
        runner.remote.world(|world| one_of_each(world));
    }
    // The same command once more.
    let mut outcome = holds(&runner, &Goal::Up(&wanted), &[].into(), None).await;
    if former_fails || !signs(component).contains(&sign) {
        prop_assert!(former_fails || outcome.is_ok(), "{outcome:?}");
        runner.remote.world(|world| world.fails.clear());
        for _ in 0..2 {
            outcome = up(&runner.retrying(), &wanted).await;
        }
        prop_assert!(
            matches!(outcome, Ok(Outcome::Converged { .. })),
            "{outcome:?}"
        );
        return Ok(());
    }
    prop_assert!(
        matches!(outcome, Ok(Outcome::Degraded { .. })),
        "{outcome:?}"
    );
    let seen: Actual = runner
        .remote
        .world(|world| world.observe(&runner.memory.shell()));
    let works = seen.up(&node).and_then(|facts| facts.container(component));
    let works = works.is_some_and(|fact| {
        fact.state == ContainerState::Running && fact.image.ends_with("build0")
    });
    prop_assert!(works, "the former one runs: {outcome:?}");
    runner.remote.world(|world| world.fails.clear());
    let outcome = up(&runner.retrying(), &wanted).await;
    prop_assert!(
        matches!(outcome, Ok(Outcome::Converged { .. })),
        "{outcome:?}"
    );
    prop_assert_eq!(
        runner.remote.world(|world| kept(world)),
        Vec::<String>::new()
    );
    Ok(())
}

#[test]
fn a_run_that_is_killed_anywhere_leaves_what_the_next_one_puts_right() {
    let regressions = FileFailurePersistence::Direct("tests/it/joint_back.regressions");
    let config = ProptestConfig {
        cases: (ProptestConfig::default().cases / 16).max(1),
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::default()
    };
    let run = |case: Case| block_on(killed_anywhere(case));
    TestRunner::new(config).run(&case(), run).unwrap();
}

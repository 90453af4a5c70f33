//! What nobody asked for is not done: a config that names no release moves no cluster (R20), and
//! facts of a node that change make no steps of a run that only heals (R21). The product's own
//! `converge` on a simulated node.

use rke_operator::{
    config::Intent,
    converge::{Error, Goal, Outcome, Removal, RemovalOutcome},
    error::{ErrorClass, Explain},
    facts::{ContainerState, HostFacts, HostView},
    model::{KubernetesVersion, path},
    plan::{HostAction, Plan, render},
};

use crate::{
    plan_properties::fresh,
    sim::{World, generate::names, remote::SimRemote, runner::Runner, wish::Wish},
};

/// In the catalogue, and older than what a config without a release gets.
const OLD: &str = "v1.33.12";

async fn settled(intent: &Intent) -> Runner {
    let runner = Runner::new(&SimRemote::new(fresh(1)), || [1; 32]);
    let goal = Goal::Up(intent);
    let outcome = runner.converge(&goal).await.unwrap();
    assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
    assert!(runner.plan(&goal).await.unwrap().is_empty());
    runner
}

/// The same cluster on nodes and with a memory of its own.
fn copy(runner: &Runner) -> Runner {
    let world = runner.remote.world(|world| world.clone());
    let copy = Runner::new(&SimRemote::new(world), || [1; 32]);
    copy.memory.keep(runner.memory.shell());
    copy
}

fn says(plan: &Plan, text: &str) -> bool {
    plan.notes.iter().any(|note| note.text.contains(text))
}

fn replaces(plan: &Plan) -> bool {
    plan.steps().any(|step| {
        let action = step.action.on_host();
        matches!(action, Some((_, HostAction::ReplaceContainer { .. })))
    })
}

#[tokio::test]
async fn a_cluster_keeps_its_release_where_the_config_names_none() {
    let runner = settled(&Wish::plain().intent_of(Some(OLD))).await;
    let unnamed = Wish::plain().intent_of(None);
    assert!(unnamed.version.to_string() != OLD);
    for goal in [Goal::Up(&unnamed), Goal::Heal(&unnamed)] {
        let plan = runner.plan(&goal).await.unwrap();
        assert!(plan.is_empty(), "{}", render(&plan));
        let keeps = format!("keeps {OLD}; `{}` is the newest", unnamed.version);
        assert!(says(&plan, &keeps), "{:?}", plan.notes);
        let outcome = runner.converge(&goal).await.unwrap();
        assert!(
            matches!(outcome, Outcome::Converged { changed: false, .. }),
            "{outcome:?}"
        );
    }
    // One that is named is asked for.
    let newest = unnamed.version.to_string();
    let named = Wish::plain().intent_of(Some(&newest));
    let plan = runner.plan(&Goal::Up(&named)).await.unwrap();
    assert!(replaces(&plan), "{}", render(&plan));
    assert!(!says(&plan, "is the newest"), "{:?}", plan.notes);
    // And where nothing is kept back, nothing is said of it.
    let runner = settled(&unnamed).await;
    let plan = runner.plan(&Goal::Up(&unnamed)).await.unwrap();
    assert!(!says(&plan, "is the newest"), "{:?}", plan.notes);
}

#[tokio::test]
async fn a_release_that_is_not_known_is_an_error_where_the_config_names_none() {
    let unnamed = Wish::plain().intent_of(None);
    let runner = settled(&unnamed).await;
    let unknown = KubernetesVersion {
        major: 1,
        minor: 99,
        patch: 0,
    };
    let mut shell = runner.memory.shell();
    let saved = shell.saved.as_mut().unwrap();
    saved.kubernetes_version = Some(unknown);
    // The copies on the nodes are older.
    saved.serial += 1;
    runner.memory.keep(shell.clone());
    let before = runner.remote.world(|world| world.clone());
    for goal in [Goal::Up(&unnamed), Goal::Heal(&unnamed)] {
        let error = runner.converge(&goal).await.unwrap_err();
        assert!(
            matches!(error, Error::UnknownRelease { has } if has == unknown),
            "{error:?}"
        );
        assert_eq!(error.class(), ErrorClass::User);
        let hints = error.hints().join("\n");
        assert!(hints.contains("kubernetes_version"), "{hints}");
    }
    assert_eq!(runner.memory.shell(), shell);
    assert!(runner.remote.world(|world| *world == before));
    // A release that is named is no question of what the cluster has.
    let newest = unnamed.version.to_string();
    let named = Wish::plain().intent_of(Some(&newest));
    let plan = runner.plan(&Goal::Up(&named)).await;
    assert!(!matches!(plan, Err(Error::UnknownRelease { .. })));
    // Neither is it one for a removal.
    let outcome = runner.converge(&Removal(None)).await.unwrap();
    let removed = matches!(outcome, RemovalOutcome::Removed { .. });
    assert!(removed, "{outcome:?}");
}

/// A fact of a node that definitions depend on, and how it changes without us.
type Fact = (&'static str, fn(&mut HostFacts));

const FACTS: [Fact; 5] = [
    ("Docker bounds logs by itself", |facts| {
        facts.docker.logs_bounded = true;
    }),
    ("Docker confines with SELinux", |facts| {
        facts
            .docker
            .security_options
            .push("name=selinux".to_owned());
    }),
    ("containerd's own configuration", |facts| {
        "version = 2\nroot = \"/r\"\n".clone_into(&mut facts.system.containerd.dump);
    }),
    ("the node's resolv.conf", |facts| {
        "/run/systemd/resolve/resolv.conf".clone_into(&mut facts.system.resolv_conf);
    }),
    ("the node's address", |facts| {
        facts.system.route_address = Some("192.0.2.99".to_owned());
    }),
];

fn node(world: &mut World) -> &mut HostFacts {
    match world.truth.hosts.get_mut(&names(1)[0]) {
        Some(HostView::Reachable(facts)) => facts,
        Some(HostView::Unreachable(_)) | None => panic!("the node is there"),
    }
}

/// Any of the facts may change, together: a run that only heals does nothing. Each of them alone
/// is something to do for `up`, so that the facts are those that matter.
#[tokio::test]
async fn a_run_that_only_heals_follows_no_fact_of_a_node() {
    let intent = Wish::plain().intent();
    let cluster = settled(&intent).await;
    for some in 1_usize..1 << FACTS.len() {
        let changed = FACTS.iter().enumerate();
        let changed = changed.filter(|(at, _)| some >> at & 1 == 1);
        let (names, changes): (Vec<_>, Vec<_>) = changed.map(|(_, fact)| *fact).unzip();
        let runner = copy(&cluster);
        runner.remote.world(|world| {
            for change in changes {
                change(node(world));
            }
        });
        let before = runner.remote.world(|world| world.clone());
        let asked = runner.plan(&Goal::Up(&intent)).await.unwrap();
        assert!(!asked.is_empty(), "{names:?} is not looked at");
        let plan = runner.plan(&Goal::Heal(&intent)).await.unwrap();
        assert!(plan.is_empty(), "{names:?}: {}", render(&plan));
        let outcome = runner.converge(&Goal::Heal(&intent)).await.unwrap();
        assert!(
            matches!(outcome, Outcome::Converged { changed: false, .. }),
            "{names:?}: {outcome:?}"
        );
        assert!(runner.remote.world(|world| *world == before), "{names:?}");
    }
}

/// `up` follows a package of containerd that was upgraded: its file has the format and the plugins of what that
/// containerd prints, and nothing of the one before.
#[tokio::test]
async fn up_follows_a_containerd_that_was_upgraded() {
    let intent = Wish::plain().intent();
    let runner = copy(&settled(&intent).await);
    let file = |runner: &Runner| {
        runner.remote.world(|world| {
            let files = node(world).files.as_ref().expect("they can be read");
            let file = files.get(path::CONTAINERD_CONFIG).expect("it is there");
            String::from_utf8(file.content.expose().clone()).expect("it is text")
        })
    };
    let before = file(&runner);
    assert!(before.contains("version = 2"), "{before}");
    assert!(before.contains("io.containerd.grpc.v1.cri"), "{before}");
    runner.remote.world(|world| {
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n"
            .clone_into(&mut node(world).system.containerd.dump);
    });
    let outcome = runner.converge(&Goal::Up(&intent)).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Converged { changed: true, .. }),
        "{outcome:?}"
    );
    let after = file(&runner);
    assert!(after.contains("version = 3"), "{after}");
    assert!(after.contains("io.containerd.cri.v1.images"), "{after}");
    assert!(!after.contains("io.containerd.grpc.v1.cri"), "{after}");
}

/// What is broken is healed all the same, and nothing else with it.
#[tokio::test]
async fn a_run_that_only_heals_heals_despite_changed_facts() {
    let intent = Wish::plain().intent();
    let cluster = settled(&intent).await;
    let broken = [
        None,
        Some(ContainerState::Exited(2)),
        Some(ContainerState::Other),
    ];
    let cases = FACTS
        .into_iter()
        .flat_map(|fact| broken.map(|broken| (fact, broken)));
    for ((name, change), broken) in cases {
        let runner = copy(&cluster);
        runner.remote.world(|world| {
            let facts = node(world);
            change(facts);
            match broken {
                None => drop(facts.containers.remove("kube-proxy").unwrap()),
                Some(state) => facts.containers.get_mut("kube-proxy").unwrap().state = state,
            }
        });
        let applied = |runner: &Runner| {
            runner.remote.world(|world| {
                let containers = node(world).containers.iter();
                let containers = containers.filter(|(name, _)| *name != "kube-proxy");
                let labels = containers.map(|(name, fact)| (name.clone(), fact.labels.clone()));
                labels.collect::<Vec<_>>()
            })
        };
        let before = applied(&runner);
        let goal = Goal::Heal(&intent);
        let outcome = runner.converge(&goal).await.unwrap();
        assert!(
            matches!(outcome, Outcome::Converged { changed: true, .. }),
            "{name}: {outcome:?}"
        );
        assert_eq!(applied(&runner), before, "{name}: definitions stay");
        let state = runner
            .remote
            .world(|world| node(world).containers["kube-proxy"].state);
        assert_eq!(state, ContainerState::Running, "{name}");
        let plan = runner.plan(&goal).await.unwrap();
        assert!(plan.is_empty(), "{name}: {}", render(&plan));
    }
}

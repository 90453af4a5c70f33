//! A run looks again after its steps, and asks only those nodes again that it may have changed.

use rke_operator::{
    converge::{Error, Goal, Outcome, Removal},
    error::{ErrorClass, Obstacle},
    facts::{ContainerState, HostView, Unreachable},
    model::{CLAIM, Component, NodeName},
    plan::{Action, ClusterAction, HostAction, Step},
};

use crate::{
    joint_nodes::of,
    joint_properties::{block_on, no_longer_watched, runner, settle},
    sim::{
        World,
        api::{ApiFault, How, Verb},
        remote::Turn,
        runner::Runner,
    },
};

fn name(number: usize) -> NodeName {
    NodeName(format!("n{number}"))
}

#[test]
fn a_worker_joins_and_the_others_are_asked_as_often_as_by_a_run_that_has_nothing_to_do() {
    block_on(async {
        let runner = runner(4);
        settle(&runner, &of(&[0, 0]).intent()).await;
        let small = of(&[0, 0]).intent();
        runner.remote.asked();
        runner.converge(&Goal::Up(&small)).await.unwrap();
        let idle = runner.remote.asked();
        let large = of(&[0, 0, 0]).intent();
        runner.converge(&Goal::Up(&large)).await.unwrap();
        let asked = runner.remote.asked();
        for untouched in [2, 3].map(name) {
            assert_eq!((asked[&untouched], idle[&untouched]), (1, 1));
        }
        assert_eq!(asked[&name(4)], 2, "{asked:?}");
        settle(&runner, &large).await;
    });
}

#[test]
fn a_removal_looks_at_all_of_them_each_time() {
    block_on(async {
        let runner = runner(3);
        settle(&runner, &of(&[0, 0]).intent()).await;
        runner.remote.asked();
        runner.converge(&Removal(None)).await.unwrap();
        let asked = runner.remote.asked();
        assert!(asked[&name(1)] > 1, "{asked:?}");
        assert!(
            asked.values().all(|times| *times == asked[&name(1)]),
            "{asked:?}"
        );
    });
}

/// No step is decided on facts of an earlier look.
#[test]
fn a_node_that_there_is_something_to_do_for_is_looked_at_first() {
    block_on(async {
        let runner = runner(3);
        settle(&runner, &of(&[0]).intent()).await;
        // While `n3` joins, somebody takes the labels off the Node of `n2`: the API tells of it.
        runner.remote.watch(|world, step| {
            if step.node() == Some(&name(3))
                && let Some(cluster) = world.truth.cluster.as_mut()
                && let Some(node) = cluster.nodes.get_mut(&name(2))
            {
                node.labels.clear();
            }
        });
        runner.remote.asked();
        runner
            .converge(&Goal::Up(&of(&[0, 0]).intent()))
            .await
            .unwrap();
        let asked = runner.remote.asked();
        assert!(asked[&name(2)] > 1, "{asked:?}");
        let healed = |facts: &HostView| matches!(facts, HostView::Reachable(_));
        runner.remote.world(|world| {
            assert!(world.truth.hosts.values().all(healed));
            let cluster = world.truth.cluster.as_ref().unwrap();
            assert!(!cluster.nodes[&name(2)].labels.is_empty());
        });
    });
}

/// A cluster in which the labels of `n1` are set again, and this happens meanwhile.
async fn changing(workers: &[u8], happens: fn(&mut World)) -> Runner {
    let runner = runner(workers.len() + 1);
    settle(&runner, &of(workers).intent()).await;
    runner.remote.world(|world| {
        let cluster = world.truth.cluster.as_mut().unwrap();
        cluster.nodes.get_mut(&name(1)).unwrap().labels.clear();
    });
    runner.remote.watch(move |world, step: &Step| {
        if let Action::Cluster(ClusterAction::SetNodeMeta { .. }) = step.action {
            happens(world);
        }
    });
    runner
}

/// Its only control plane cannot be left alone and the cluster worked on: the run ends, and says what it has left.
#[test]
fn what_was_not_announced_on_the_only_control_plane_is_left_to_the_next_run() {
    block_on(async {
        for workers in [&[][..], &[0]] {
            let pauses = |world: &mut World| {
                let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&name(1)) else {
                    panic!("it answers");
                };
                facts.containers.get_mut("kubelet").unwrap().state = ContainerState::Other;
            };
            let runner = changing(workers, pauses).await;
            let intent = of(workers).intent();
            let outcome = runner.converge(&Goal::Up(&intent)).await.unwrap();
            let Outcome::Degraded {
                left,
                changed: true,
                ..
            } = &outcome
            else {
                panic!("{outcome:?}");
            };
            let why = &left[&name(1)].why;
            assert!(
                why.contains("was not in the plan with which this run began"),
                "{why}"
            );
            assert_eq!(left.len(), 1, "{left:?}");
            no_longer_watched(&runner);
            settle(&runner, &intent).await;
        }
    });
}

/// Nobody is told that nothing was changed by a run that has changed something.
#[test]
fn a_run_that_cannot_go_on_says_that_what_it_has_done_stays() {
    block_on(async {
        let dies = |world: &mut World| {
            let down = Unreachable {
                alike: None,
                obstacle: Obstacle::Silence,
                class: ErrorClass::Host,
                why: "it is off".to_owned(),
                hints: Vec::new(),
            };
            world.down.insert(name(1), down);
        };
        let runner = changing(&[0], dies).await;
        let intent = of(&[0]).intent();
        let error = runner.converge(&Goal::Up(&intent)).await.unwrap_err();
        assert!(
            matches!(error, Error::HostsUnreachable { changed: true, .. }),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.starts_with("nothing more is changed, and what this run has done stays: "),
            "{text}"
        );
        // A run that begins so has done nothing.
        let error = runner.converge(&Goal::Up(&intent)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("nothing is changed: "), "{text}");
    });
}

/// The first API server is replaced when others serve. They do, but at the one look that it goes by.
#[test]
fn an_api_server_that_did_not_answer_once_is_waited_for_again() {
    block_on(async {
        let runner = runner(3);
        settle(&runner, &of(&[]).intent()).await;
        let hangs = |server| ApiFault {
            server: Some(name(server)),
            client: None,
            verb: Verb::Ready,
            how: How::Hangs,
        };
        let others = vec![hangs(2), hangs(3)];
        let remote = runner.remote.clone();
        runner.remote.script(move |_, _, step| {
            match &step.action {
                Action::Cluster(ClusterAction::AwaitNodeReady { node }) if *node == name(3) => {
                    remote.world(|world| world.faults.clone_from(&others));
                }
                Action::Host(_, HostAction::AwaitHealthy { component })
                    if *component == Component::ApiServer =>
                {
                    remote.world(|world| world.faults.clear());
                }
                _ => {}
            }
            Turn::Go
        });
        settle(&runner, &of(&[3, 3]).intent()).await;
    });
}

/// A copy of the state is read through the claim of its node.
#[test]
fn an_older_state_does_not_change_before_the_copies_are_seen() {
    block_on(async {
        let runner = runner(3);
        settle(&runner, &of(&[]).intent()).await;
        let former = runner.memory.shell();
        settle(&runner, &of(&[0]).intent()).await;
        runner
            .remote
            .host("n1", |facts| facts.containers.remove(CLAIM));
        runner.remote.world(|world| {
            world.faults.push(ApiFault {
                server: None,
                client: None,
                verb: Verb::Ready,
                how: How::Hangs,
            });
        });
        let another = runner.for_user("another", former.clone());
        let ended = another.converge(&Goal::Up(&of(&[0, 0]).intent())).await;
        let error = ended.expect_err("there is a newer copy");
        assert!(error.to_string().contains("serial 2"), "{error}");
        assert_eq!(another.memory.shell().saved, former.saved);
    });
}

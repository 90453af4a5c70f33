//! A run looks again after its steps, and asks only those nodes again that it may have changed.

use rke_operator::{actual::HostView, converge::Goal, model::NodeName};

use crate::{
    joint_nodes::of,
    joint_properties::{block_on, runner, settle},
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
        runner.converge(&Goal::Remove(None)).await.unwrap();
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

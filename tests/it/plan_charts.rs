//! Charts in plans: rendered once and on one node, again when what they are rendered from differs or their
//! objects do, pruned before what takes their place.

use rke_operator::{
    desired::Desired,
    facts::Actual,
    model::{AppliedObject, ChartRecord, NodeName},
    plan::{self, Action, Cause, ClusterAction, Guard, HostAction, Plan, Step},
};

use crate::sim::{
    Knobs, Shell, World, bare_host, desired,
    generate::names,
    world::{converge_up, plan_up},
};

fn want(charts: u8) -> Desired {
    let knobs = Knobs {
        charts,
        ..Knobs::default()
    };
    desired("a", &names(3), &knobs)
}

fn fresh() -> World {
    World::new(
        names(3)
            .into_iter()
            .map(|name| (name.clone(), bare_host(&name))),
    )
}

fn settled() -> (World, Shell) {
    let (mut world, mut shell) = (fresh(), Shell::default());
    converge_up(&mut world, &want(1), &mut shell);
    (world, shell)
}

fn plan(want: &Desired, have: &Actual) -> Plan {
    let plan = plan_up(want, have).unwrap();
    assert_eq!(plan::check(&plan, have, &want.cluster_id), []);
    plan
}

/// The steps that apply or prune a chart, each with the stage that it is in.
fn of_charts(plan: &Plan) -> Vec<(usize, &Step)> {
    let stages = plan.stages.iter().enumerate();
    let steps = stages.flat_map(|(at, stage)| stage.steps().map(move |step| (at, step)));
    let is_one = |step: &Step| {
        matches!(
            step.action,
            Action::Cluster(ClusterAction::ApplyChart { .. } | ClusterAction::PruneChart { .. })
        )
    };
    steps.filter(|(_, step)| is_one(step)).collect()
}

fn causes(plan: &Plan) -> Vec<(String, Cause)> {
    let steps = of_charts(plan).into_iter();
    steps
        .map(|(_, step)| (plan::title(step), step.cause))
        .collect()
}

const CANAL: &str = "render and apply canal (chart rke2-canal of rke2-runtime:1)";
const NGINX: &str = "render and apply nginx (chart rke2-nginx of rke2-runtime:1)";

#[test]
fn a_fresh_cluster_renders_on_one_node() {
    let plan = plan(&want(1), &fresh().observe(&Shell::default()));
    let pulls = |image: &str| -> Vec<&NodeName> {
        let steps = plan.steps().filter_map(|step| step.action.on_host());
        let of = |action: &HostAction| matches!(action, HostAction::PullImage { image: pulled } if pulled == image);
        steps
            .filter(|(_, action)| of(action))
            .map(|(node, _)| node)
            .collect()
    };
    let first = NodeName("n1".to_owned());
    assert_eq!(pulls("rke2-runtime:1"), [&first]);
    assert_eq!(pulls("klipper-helm:1"), [&first]);
    let steps = of_charts(&plan);
    assert!(steps.iter().all(|(_, step)| step.node() == Some(&first)));
    assert_eq!(
        causes(&plan),
        [
            (CANAL.to_owned(), Cause::New),
            (NGINX.to_owned(), Cause::New)
        ]
    );
    // No node is Ready without the network, and hooks of the others are pods.
    let ready = plan.stages.iter().position(|stage| {
        let mut steps = stage.steps();
        steps.any(|step| {
            matches!(
                step.action,
                Action::Cluster(ClusterAction::AwaitNodeReady { .. })
            )
        })
    });
    assert!(Some(steps[0].0) < ready && ready < Some(steps[1].0));
}

#[test]
fn other_values_are_a_change_that_somebody_asks_for() {
    let (world, shell) = settled();
    let have = world.observe(&shell);
    assert!(plan(&want(1), &have).is_empty());
    let changed = plan(&want(2), &have);
    let change = |title: &str| (title.to_owned(), Cause::Change);
    assert_eq!(causes(&changed), [change(CANAL), change(NGINX)]);
    assert_eq!(causes(&changed.unasked()), []);
}

#[test]
fn what_is_gone_or_was_cut_off_is_mended_unasked() {
    let (mut world, shell) = settled();
    let charts = &mut world.etcd().charts;
    let canal = charts.get_mut("canal").unwrap();
    let objects = canal.record.objects.iter();
    canal.gone = objects
        .map(|applied: &AppliedObject| applied.object.clone())
        .collect();
    charts.get_mut("nginx").unwrap().record.digest = None;
    let plan = plan(&want(1), &world.observe(&shell));
    let wanted = [
        (CANAL.to_owned(), Cause::Drift),
        (NGINX.to_owned(), Cause::New),
    ];
    assert_eq!(causes(&plan), wanted);
    assert_eq!(causes(&plan.unasked()), wanted);
    assert!(plan::render(&plan).contains("ConfigMap `kube-system/rke2-canal`"));
}

#[test]
fn what_nothing_wants_is_pruned_by_its_record_and_only_while_the_api_tells() {
    let (mut world, shell) = settled();
    let mut have = world.observe(&shell);
    let without = plan(&want(0), &have);
    let steps = of_charts(&without);
    assert_eq!(causes(&without).len(), 2, "{:?}", causes(&without));
    for (_, step) in &steps {
        let Action::Cluster(ClusterAction::PruneChart { chart, uid }) = &step.action else {
            panic!("{step:?}");
        };
        let (object, uid) = (ChartRecord::object(chart), uid.clone());
        assert_eq!(step.guards, [Guard::ObjectIs { object, uid }]);
        // Without its guard no plan with it runs.
        let mut unguarded = without.clone();
        for stage in &mut unguarded.stages {
            for queue in &mut stage.queues {
                queue.steps.retain(|other| other == *step);
                queue.steps.iter_mut().for_each(|step| step.guards.clear());
            }
        }
        assert_eq!(plan::check(&unguarded, &have, &want(0).cluster_id).len(), 1);
    }
    // One that takes a place comes after the one that had it.
    let mut other = want(1);
    other.charts[1].chart.name = "traefik".to_owned();
    let steps = plan(&other, &have);
    let titles: Vec<String> = causes(&steps).into_iter().map(|(title, _)| title).collect();
    assert_eq!(
        titles,
        [
            "delete nginx",
            "render and apply traefik (chart rke2-nginx of rke2-runtime:1)"
        ]
    );

    world.etcd().charts.clear();
    have.cluster = None;
    have.apis.clear();
    let blind = plan_up(&want(0), &have).unwrap();
    assert_eq!(causes(&blind), []);
}

//! The text of a plan grows with what is different, not with the number of nodes.

use std::collections::BTreeSet;

use rke_operator::{
    config::{Intent, RkeConfig},
    plan::{self, Plan},
};

use crate::{
    any_file::AnyFile,
    config_golden::drawn,
    sim::{
        Knobs, Shell, World, bare_host, desired,
        generate::{names, with_roles},
        world::{converge_up, plan_up},
    },
};

const NODES: usize = 100;

/// What a person reads of a plan for a hundred nodes.
const LINES: usize = 150;

fn lines(plan: &Plan) -> usize {
    let text = plan::render(plan);
    let lines = text.lines().count();
    assert!(lines <= LINES, "{lines} lines:\n{text}");
    lines
}

/// A config of three control planes and workers, whose names count on or do not.
fn config(name: impl Fn(usize) -> String) -> Intent {
    let nodes = (1..=NODES).map(|number| {
        let roles = if number <= 3 {
            "[etcd, controlplane]"
        } else {
            "[worker]"
        };
        let name = name(number);
        format!(
            "  - {{address: 10.1.1.{number}, user: u, role: {roles}, hostname_override: {name}}}\n"
        )
    });
    let yaml = format!("nodes:\n{}", nodes.collect::<String>());
    let config = RkeConfig::parse(&yaml).unwrap();
    Intent::from_config(&config, &AnyFile::new())
        .unwrap()
        .intent
}

#[test]
fn a_fresh_cluster_of_a_hundred_nodes_is_a_page() {
    let letters = |number: usize| {
        let letter = |at: usize| char::from(b'a' + u8::try_from(at % 26).unwrap());
        format!("{}{}", letter(number), letter(number / 26))
    };
    for intent in [config(|number| format!("node-{number}")), config(letters)] {
        let (want, have) = drawn(&intent);
        let plan = plan::up(&want, &have).unwrap();
        assert_eq!(
            plan.steps()
                .filter_map(plan::Step::node)
                .collect::<BTreeSet<_>>()
                .len(),
            NODES
        );
        lines(&plan);
        // In full, everything is there, and a digest for each file.
        let full = plan::render_on(&plan, plan::Detail::Full, None);
        for node in intent.nodes.keys() {
            assert!(full.contains(&node.0) || full.contains(" … "), "{node}");
        }
        assert!(
            full.contains("+ file /etc/kubernetes/ssl/kube-ca.pem: "),
            "{full}"
        );
        assert!(!plan::render(&plan).contains("kube-ca.pem"));
    }
}

#[test]
fn a_flag_and_a_release_of_a_hundred_nodes_are_a_page_and_the_question_names_all() {
    let all = names(NODES);
    let hosts = all.iter().map(|name| (name.clone(), bare_host(name)));
    let (mut world, mut shell) = (World::new(hosts), Shell::default());
    let masks: Vec<u8> = (1..NODES).map(|at| if at < 3 { 3 } else { 0 }).collect();
    let want = |knobs: &Knobs| with_roles(desired("a", &all, knobs), &masks);
    converge_up(&mut world, &want(&Knobs::default()), &mut shell);

    let edits = [
        Knobs {
            verbosity: 3,
            ..Knobs::default()
        },
        Knobs {
            tag: 1,
            labelled: true,
            ..Knobs::default()
        },
        Knobs {
            certificate: 1,
            ..Knobs::default()
        },
    ];
    for edit in edits {
        let plan = plan_up(&want(&edit), &world.observe(&shell)).unwrap();
        assert!(plan.disruptions().count() > 0);
        lines(&plan);
        let disruptions = plan::disruptions(&plan);
        assert!(disruptions.len() <= 10, "{disruptions:#?}");
        for (step, what) in plan.disruptions() {
            let node = step.node().unwrap();
            let of_node = |line: &String| {
                let (names, text) = line.split_once(": ").unwrap();
                let range = names.contains(" … ");
                text == what && (range || names.split(", ").any(|name| name == node.0))
            };
            assert!(
                disruptions.iter().any(of_node),
                "{node}: {what}: {disruptions:#?}"
            );
        }
        // They are what the text begins with.
        let text = plan::render(&plan);
        let first = text.lines().nth(1).unwrap();
        assert_eq!(first.trim(), disruptions[0]);
    }
}

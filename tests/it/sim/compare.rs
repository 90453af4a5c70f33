//! Whether the world became what the model says: only what steps decide is compared, not what
//! lives by itself (container ids, ports, free space, status of objects).

use std::collections::{BTreeMap, BTreeSet};

use rke_operator::{
    facts::{Actual, ContainerState, HostFacts, HostView},
    model::label,
};

/// Where `seen` is not what the model expected; empty when the model is true.
pub(crate) fn differences(expected: &Actual, seen: &Actual) -> Vec<String> {
    let mut found = Vec::new();
    for (name, view) in &expected.hosts {
        match (view, seen.hosts.get(name)) {
            (HostView::Reachable(expected), Some(HostView::Reachable(seen))) => {
                host(&name.0, expected, seen, &mut found);
            }
            (HostView::Unreachable(_), Some(HostView::Unreachable(_))) => {}
            (_, _) => found.push(format!("{name}: one is up and one is not")),
        }
    }
    same("state", &expected.saved, &seen.saved, &mut found);
    same(
        "kubeconfig",
        &expected.kubeconfig,
        &seen.kubeconfig,
        &mut found,
    );
    if let (Some(expected), Some(seen)) = (&expected.cluster, &seen.cluster) {
        same(
            "state copy",
            &expected.state_copy,
            &seen.state_copy,
            &mut found,
        );
        same(
            "what is stored was written with",
            &expected.written_with,
            &seen.written_with,
            &mut found,
        );
        same("mark", &expected.marked, &seen.marked, &mut found);
        let objects: BTreeSet<_> = expected.objects.keys().collect();
        same(
            "objects",
            &objects,
            &seen.objects.keys().collect(),
            &mut found,
        );
        for (name, node) in &expected.nodes {
            let labels = seen.nodes.get(name).map(|node| &node.labels);
            for (key, value) in &node.labels {
                let there = labels.and_then(|labels| labels.get(key));
                same(
                    &format!("{name} label {key}"),
                    &Some(value),
                    &there,
                    &mut found,
                );
            }
        }
    }
    found
}

fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: &T,
    seen: &T,
    found: &mut Vec<String>,
) {
    if expected != seen {
        found.push(format!(
            "{what}: the model says {expected:?}, the world {seen:?}"
        ));
    }
}

type Container<'a> = (bool, Option<&'a String>, Option<&'a String>, Option<String>);

fn host(name: &str, expected: &HostFacts, seen: &HostFacts, found: &mut Vec<String>) {
    let containers = |facts: &'_ HostFacts| -> BTreeMap<String, String> {
        facts
            .containers
            .iter()
            .map(|(name, fact)| {
                let created = fact.state == ContainerState::Created;
                let shape: Container<'_> = (
                    created,
                    fact.labels.get(label::CLUSTER_ID),
                    fact.labels.get(label::SPEC),
                    // As the label has it: a value of a variable is known by its digest only.
                    fact.runs
                        .as_ref()
                        .map(|runs| serde_json::to_string(runs).expect("a definition")),
                );
                (name.clone(), format!("{shape:?}"))
            })
            .collect()
    };
    same(
        &format!("{name}: containers"),
        &containers(expected),
        &containers(seen),
        found,
    );
    // A pull brings the image's digest along as one more reference.
    let tags = |facts: &HostFacts| -> BTreeSet<String> {
        let references = facts.images.iter();
        references
            .filter(|reference| !reference.contains('@'))
            .cloned()
            .collect()
    };
    same(
        &format!("{name}: images"),
        &tags(expected),
        &tags(seen),
        found,
    );
    let files = |facts: &HostFacts| -> Option<BTreeMap<String, (Vec<u8>, u32)>> {
        let files = facts.files.as_ref()?.iter();
        let files = files.filter(|(_, fact)| !fact.is_dir);
        Some(
            files
                .filter(|(path, _)| super::effect::read_through_claim(path))
                .map(|(path, fact)| (path.clone(), (fact.content.expose().clone(), fact.mode)))
                .collect(),
        )
    };
    let (expected_files, seen_files) = (files(expected), files(seen));
    if expected_files != seen_files {
        // Contents are secret: only the paths are said.
        let (a, b) = (
            expected_files.unwrap_or_default(),
            seen_files.unwrap_or_default(),
        );
        let paths: BTreeSet<_> = a
            .keys()
            .chain(b.keys())
            .filter(|path| a.get(*path) != b.get(*path))
            .collect();
        found.push(format!(
            "{name}: these files are not what the model says: {paths:?}"
        ));
    }
    // kubelet and kube-proxy set sysctls by themselves, as long as they run.
    let lives = ["kubelet", "kube-proxy"].iter().any(|name| {
        let fact = expected.containers.get(*name);
        fact.is_some_and(|fact| fact.state == ContainerState::Running)
    });
    // Those of the network are each node's own; all others are the machine's, where the kubelet of a node in
    // another lab may set them at any time.
    let own = expected.system.sysctls.iter();
    let decided = own.filter(|(key, _)| !lives && key.starts_with("net."));
    for (key, value) in decided {
        let there = seen.system.sysctls.get(key);
        same(
            &format!("{name}: sysctl {key}"),
            &Some(value),
            &there,
            found,
        );
    }
}

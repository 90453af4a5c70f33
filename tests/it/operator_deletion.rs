//! How a deletion ends: each way to ask for it, in each situation, by the operator's own reconcile. The table of
//! `docs/deletion.md` is written by this test and by nothing else: `UPDATE_DELETION=1 cargo test --test it deletion_matrix`.

#![expect(
    clippy::disallowed_methods,
    reason = "the document is compared with what was computed"
)]

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf, time::Duration};

use rke_operator::facts::HostFacts;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    fake_api::FakeApi,
    operator_rig::{CREDENTIALS, NAMESPACE, Rig, clock, cluster, is, reason, settled},
    sim::remote::SimRemote,
};

const FINALIZER: &str = "clusterprovisioner.rke.io/cleanup";
const DEFINITION: &str = "clusters.clusterprovisioner.rke.io";

/// The time that the object gives its deletion.
const TIMEOUT: Duration = Duration::from_secs(600);
/// What is over by then is over at once: no step takes longer here, and a node that does not answer is known to be silent.
const AT_ONCE: Duration = Duration::from_secs(60);
/// How far the end may be behind the deadline.
const LATE: Duration = Duration::from_secs(5);
/// What is still there then stays until a user acts.
const FOR_GOOD: Duration = Duration::from_secs(3000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Situation {
    NodesUp,
    SomeDead,
    AllDead,
    KeyGone,
    ConfigUnreadable,
    Foreground,
    DefinitionDeleted,
    NamespaceLost,
    NoRecord,
    Paused,
    Protected,
}

impl Situation {
    const ALL: [(Self, &'static str); 11] = [
        (Self::NodesUp, "every node answers"),
        (Self::SomeDead, "one of two nodes does not answer"),
        (Self::AllDead, "no node answers"),
        (Self::KeyGone, "the Secret with the SSH key is deleted"),
        (Self::ConfigUnreadable, "the config cannot be understood"),
        (Self::Foreground, "`kubectl delete --cascade=foreground`"),
        (
            Self::DefinitionDeleted,
            "the definition is deleted, and the object with it",
        ),
        (
            Self::NamespaceLost,
            "the namespace with the states is deleted",
        ),
        (
            Self::NoRecord,
            "no node answers, and the record may not be written (403)",
        ),
        (Self::Paused, "`paused: true`"),
        (
            Self::Protected,
            "`deletionProtection: true`, past the admission policy",
        ),
    ];

    /// Before the object is deleted.
    fn arrange(self, rig: &Rig) {
        let spec = |spec: Value| {
            rig.api.patch("clusters", "", "a", &json!({ "spec": spec }));
        };
        match self {
            Self::NodesUp => {}
            Self::SomeDead => rig.nodes.kill("n2"),
            Self::AllDead => kill_all(rig),
            Self::KeyGone => rig.api.delete("secrets", CREDENTIALS, "nodes"),
            Self::ConfigUnreadable => spec(json!({"config": {"nodes": "none"}})),
            Self::Foreground => {
                let object = rig.cluster("a");
                let mut finalizers = object["metadata"]["finalizers"].clone();
                let waits = json!("foregroundDeletion");
                finalizers.as_array_mut().unwrap().push(waits);
                let patch = json!({"metadata": {"finalizers": finalizers}});
                rig.api.patch("clusters", "", "a", &patch);
            }
            Self::DefinitionDeleted => {
                let held = ["customresourcecleanup.apiextensions.k8s.io"];
                let held = json!({"metadata": {"finalizers": held}});
                let definitions = "customresourcedefinitions";
                rig.api.patch(definitions, "", DEFINITION, &held);
                rig.api.delete(definitions, "", DEFINITION);
            }
            Self::NamespaceLost => {
                for kind in ["secrets", "configmaps"] {
                    for object in rig.api.objects(kind) {
                        let name = object["metadata"]["name"].as_str().unwrap();
                        if object["metadata"]["namespace"] == NAMESPACE {
                            rig.api.delete(kind, NAMESPACE, name);
                        }
                    }
                }
                // As of a namespace that is being terminated.
                no_writes(rig, "");
            }
            Self::NoRecord => {
                kill_all(rig);
                no_writes(rig, "configmaps");
            }
            Self::Paused => spec(json!({"paused": true})),
            Self::Protected => spec(json!({"deletionProtection": true})),
        }
    }
}

fn kill_all(rig: &Rig) {
    rig.nodes.kill("n1");
    rig.nodes.kill("n2");
}

/// Nothing of that kind may be written in the operator's namespace.
fn no_writes(rig: &Rig, kind: &'static str) {
    rig.api.fault(move |method, path| {
        let is_there = path.contains(&format!("/namespaces/{NAMESPACE}/{kind}"));
        (is_there && method.as_str() != "GET").then_some(403)
    });
}

/// A cluster of two nodes.
fn of_two(policy: &str, on_timeout: &str) -> Value {
    let mut object = cluster("a", "n1");
    let worker = json!({
        "address": "10.0.0.2", "hostname_override": "n2", "user": "core", "role": ["worker"],
    });
    let nodes = object["spec"]["config"]["nodes"].as_array_mut().unwrap();
    nodes.push(worker);
    object["spec"]["deletion"] = json!({
        "policy": policy, "timeout": format!("{}s", TIMEOUT.as_secs()), "onTimeout": on_timeout,
    });
    object
}

/// What became of it.
struct Outcome {
    /// When the object was let go; `None`: it was not.
    after: Option<Duration>,
    /// The nodes that were cleaned, and those that are as they were.
    cleaned: BTreeSet<&'static str>,
    untouched: BTreeSet<&'static str>,
    /// What says which nodes are left.
    record: bool,
    event: bool,
    /// Why it is still there.
    held: String,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.after {
            None => write!(f, "held (`{}`)", self.held)?,
            Some(_) if self.event => f.write_str("orphaned")?,
            Some(_) => f.write_str("removed")?,
        }
        match self.after {
            None => {}
            Some(after) if after < AT_ONCE => f.write_str(" at once")?,
            Some(after) if after >= TIMEOUT && after <= TIMEOUT + LATE => {
                f.write_str(" at the deadline")?;
            }
            Some(after) => write!(f, " after {} s", after.as_secs())?,
        }
        let some = ["n1", "n2"]
            .into_iter()
            .filter(|node| !self.cleaned.contains(node) && !self.untouched.contains(node));
        let some: Vec<_> = some.collect();
        assert!(some.is_empty(), "neither clean nor as they were: {some:?}");
        match (self.cleaned.len(), self.untouched.len()) {
            (0, _) => f.write_str("; nodes as they were")?,
            (_, 0) => f.write_str("; nodes clean")?,
            _ => write!(
                f,
                "; {} clean, {} as it was",
                list(&self.cleaned),
                list(&self.untouched)
            )?,
        }
        match (self.record, self.event) {
            (true, true) => f.write_str("; record and Event"),
            (false, true) => f.write_str("; Event"),
            (true, false) => f.write_str("; record"),
            (false, false) => Ok(()),
        }
    }
}

fn list(nodes: &BTreeSet<&str>) -> String {
    let nodes: Vec<_> = nodes.iter().map(|node| format!("`{node}`")).collect();
    nodes.join(", ")
}

fn whole(rig: &Rig) -> [(&'static str, HostFacts); 2] {
    ["n1", "n2"].map(|node| (node, rig.nodes.whole(node)))
}

/// One cell: the object is there, something happens, and it is deleted.
async fn deleted(policy: &str, on_timeout: &str, situation: Situation) -> Outcome {
    let nodes = SimRemote::bare(&["n1", "n2"]);
    let rig = Rig::with(nodes, FakeApi::new(clock()), |_| {});
    rig.create(&of_two(policy, on_timeout)).await;
    rig.ready("a").await;
    rig.until("a", settled).await;
    // No pass is under way.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let before = whole(&rig);
    situation.arrange(&rig);
    rig.api.delete("clusters", "", "a");
    let begun = Instant::now();
    let is_let_go = |object: Option<&Value>| {
        let finalizers = object.and_then(|object| object["metadata"]["finalizers"].as_array());
        !finalizers.is_some_and(|finalizers| finalizers.contains(&json!(FINALIZER)))
    };
    let ended = rig.api.until("clusters", "", "a", is_let_go);
    let ended = tokio::time::timeout(FOR_GOOD, ended).await;
    let after = ended.is_ok().then(|| begun.elapsed());
    let held = rig.api.object("clusters", "", "a");
    let held = held.map_or_else(String::new, |object| {
        assert!(is(&object, "Deleting", "True"), "{object}");
        reason(&object, "Deleting")
    });
    let now = whole(&rig);
    let same = |(name, facts): &(&'static str, HostFacts)| {
        let there = now.iter().find(|(node, _)| node == name).unwrap();
        there.1.containers == facts.containers && there.1.files == facts.files
    };
    Outcome {
        after,
        cleaned: ["n1", "n2"]
            .into_iter()
            .filter(|node| rig.nodes.containers(node) == 0 && rig.nodes.claimed_by(node).is_none())
            .collect(),
        untouched: before
            .iter()
            .filter(|node| same(node))
            .map(|(name, _)| *name)
            .collect(),
        record: rig
            .api
            .object("configmaps", NAMESPACE, "a-orphaned")
            .is_some(),
        event: !rig.events("Orphaned").is_empty(),
        held,
    }
}

/// The columns of the table.
const WAYS: [(&str, &str); 3] = [
    ("Remove", "Orphan"),
    ("Remove", "Keep"),
    ("Orphan", "Orphan"),
];

/// What holds of every cell, whatever it says.
fn is_sound(outcome: &Outcome, policy: &str, on_timeout: &str, situation: Situation) {
    let place = format!("{policy}, {on_timeout}, {situation:?}");
    if let Some(after) = outcome.after {
        assert!(after <= TIMEOUT + LATE, "{place}: {after:?}");
        let nodes_left = !outcome.untouched.is_empty();
        assert_eq!(
            outcome.event, nodes_left,
            "{place}: an Event names what is left"
        );
    } else {
        let waits = situation == Situation::Protected || on_timeout == "Keep";
        assert!(waits, "{place}: it does not end");
    }
    let means_the_nodes = policy == "Remove"
        && !matches!(
            situation,
            Situation::DefinitionDeleted
                | Situation::NamespaceLost
                | Situation::Paused
                | Situation::Protected
        );
    assert!(
        means_the_nodes || outcome.cleaned.is_empty(),
        "{place}: it cleans a node"
    );
}

/// With `policy: Orphan` nothing is waited for, so that `onTimeout` means nothing.
#[tokio::test(start_paused = true)]
async fn the_deletion_matrix_is_that_of_the_document() {
    let mut table =
        "| | `Remove`, `onTimeout: Orphan` (default) | `Remove`, `onTimeout: Keep` | `Orphan` |\n\
                     |---|---|---|---|\n"
            .to_owned();
    for (situation, name) in Situation::ALL {
        let _ = write!(table, "| {name} |");
        for (policy, on_timeout) in WAYS {
            let outcome = deleted(policy, on_timeout, situation).await;
            is_sound(&outcome, policy, on_timeout, situation);
            let _ = write!(table, " {outcome} |");
            if policy == "Orphan" {
                let kept = deleted(policy, "Keep", situation).await;
                assert_eq!(kept.to_string(), outcome.to_string(), "{situation:?}");
            }
        }
        table.push('\n');
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/deletion.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the table begins");
    let (there, after) = rest.split_once(END).expect("the table ends");
    if std::env::var_os("UPDATE_DELETION").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        there, table,
        "docs/deletion.md is stale: run `UPDATE_DELETION=1 cargo test --test it deletion_matrix`"
    );
}

const BEGIN: &str = "<!-- computed by tests/it/operator_deletion.rs -->\n";
const END: &str = "<!-- end -->";

//! What an object is against what an apply would make of it, and whether a workload is
//! available. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::model::FieldChange;

/// How much of a value is shown.
const SHOWN: usize = 60;

/// What the server counts for itself with every write.
const COUNTED: [&str; 3] = ["managedFields", "resourceVersion", "generation"];

/// The fields in which a live object differs from what the server says an apply would make of
/// it. Values of Secrets are not shown.
pub fn object_changes(live: &Value, would: &Value) -> Vec<FieldChange> {
    let mut found = Found {
        changes: Vec::new(),
        hidden: would["kind"] == "Secret",
    };
    compare(Some(live), Some(would), &Path::Root, &mut found);
    found.changes
}

struct Found {
    changes: Vec<FieldChange>,
    hidden: bool,
}

impl Found {
    fn push(&mut self, path: &Path<'_>, from: Option<&Value>, to: Option<&Value>) {
        let show = |value: &Value| {
            if self.hidden {
                "(not shown)".to_owned()
            } else {
                shown(value)
            }
        };
        self.changes.push(FieldChange {
            field: path.to_string().into(),
            from: from.map(show),
            to: to.map(show),
        });
    }
}

/// Where in an object, as a chain back to its root.
enum Path<'a> {
    Root,
    Field(&'a Self, &'a str),
    Item(&'a Self, String),
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name) => f.write_str(name),
            Self::Field(above, name) => write!(f, "{above}.{name}"),
            Self::Item(above, item) => write!(f, "{above}[{item}]"),
        }
    }
}

impl Path<'_> {
    /// True for what is not ours to compare.
    fn is_counted(&self) -> bool {
        match self {
            Self::Field(Path::Field(Path::Root, "metadata"), name) => COUNTED.contains(name),
            // Controllers go on writing it between one request and the next.
            Self::Field(Path::Root, name) => *name == "status",
            Self::Root | Self::Field(..) | Self::Item(..) => false,
        }
    }
}

fn compare(live: Option<&Value>, would: Option<&Value>, path: &Path<'_>, found: &mut Found) {
    if live == would || path.is_counted() {
        return;
    }
    match (live, would) {
        (Some(Value::Object(live)), Some(Value::Object(would))) => {
            let keys: BTreeSet<&String> = live.keys().chain(would.keys()).collect();
            for key in keys {
                let path = Path::Field(path, key);
                compare(live.get(key), would.get(key), &path, found);
            }
        }
        (Some(Value::Array(live)), Some(Value::Array(would))) => {
            compare_lists(live, would, path, found);
        }
        (live, would) => found.push(path, live, would),
    }
}

fn compare_lists(live: &[Value], would: &[Value], path: &Path<'_>, found: &mut Found) {
    if let (Some(live), Some(would)) = (by_name(live), by_name(would)) {
        let names: BTreeSet<&str> = live.keys().chain(would.keys()).copied().collect();
        for name in names {
            let path = Path::Item(path, name.to_owned());
            compare(
                live.get(name).copied(),
                would.get(name).copied(),
                &path,
                found,
            );
        }
    } else if live.len() == would.len() && live.iter().chain(would).all(Value::is_object) {
        for (index, (live, would)) in live.iter().zip(would).enumerate() {
            let path = Path::Item(path, index.to_string());
            compare(Some(live), Some(would), &path, found);
        }
    } else {
        let whole = |items: &[Value]| Value::Array(items.to_vec());
        found.push(path, Some(&whole(live)), Some(&whole(would)));
    }
}

/// The items by name, if every item has one and no two share it.
fn by_name(items: &[Value]) -> Option<BTreeMap<&str, &Value>> {
    let named = items
        .iter()
        .map(|item| Some((item.get("name")?.as_str()?, item)))
        .collect::<Option<BTreeMap<_, _>>>()?;
    (named.len() == items.len()).then_some(named)
}

fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    let first: String = text
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(SHOWN)
        .collect();
    if first.len() < text.len() {
        format!("{first}…")
    } else {
        first
    }
}

/// How far the controller of a `DaemonSet` or `Deployment` has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollout {
    /// All that is wanted serves, in its newest shape.
    Available,
    /// The controller has not seen the object, or its newest shape, yet.
    Unseen(&'static str),
    /// Fewer serve than are wanted.
    Short {
        /// How many serve.
        available: i64,
        /// How many must.
        wanted: i64,
    },
}

/// Reads the object's own status; every other kind is available as soon as it is there.
pub fn rollout(kind: &str, object: &Value) -> Rollout {
    let status = &object["status"];
    // Zero is left out.
    let count = |field: &str| status[field].as_i64().unwrap_or(0);
    let (wanted, updated, available) = match kind {
        "DaemonSet" => (
            status["desiredNumberScheduled"].as_i64(),
            count("updatedNumberScheduled"),
            count("numberAvailable"),
        ),
        "Deployment" => (
            Some(object["spec"]["replicas"].as_i64().unwrap_or(1)),
            count("updatedReplicas"),
            count("availableReplicas"),
        ),
        _ => return Rollout::Available,
    };
    let (Some(wanted), true) = (wanted, status.is_object()) else {
        return Rollout::Unseen("its controller has not seen it yet");
    };
    if count("observedGeneration") < object["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Rollout::Unseen("its controller has not seen its change yet");
    }
    let available = available.min(updated);
    if available >= wanted {
        Rollout::Available
    } else {
        Rollout::Short { available, wanted }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(live: &Value, would: &Value) -> String {
        let lines = object_changes(live, would).into_iter().map(|change| {
            let side = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            format!(
                "{}: {} → {}",
                change.field,
                side(change.from),
                side(change.to)
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn live() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {
                "name": "flannel", "labels": { "app": "flannel" }, "resourceVersion": "7",
                "generation": 1, "managedFields": [{ "manager": "rke-operator", "time": "1" }],
            },
            "spec": { "template": { "spec": {
                "containers": [{
                    "name": "flannel", "image": "flannel:0", "args": ["--a"],
                    "ports": [{ "containerPort": 53, "protocol": "UDP" }],
                    "env": [{ "name": "OLD", "value": "1" }],
                }],
                "tolerations": [{ "operator": "Exists" }],
            } } },
        })
    }

    #[test]
    fn what_the_server_counts_is_no_difference() {
        let mut would = live();
        would["metadata"]["resourceVersion"] = "8".into();
        would["metadata"]["generation"] = 2.into();
        would["metadata"]["managedFields"] = json!([]);
        would["status"] = json!({ "numberReady": 1 });
        assert_eq!(fields(&live(), &would), "");
        // Elsewhere the same words are a user's own fields.
        would["spec"]["generation"] = 2.into();
        assert_eq!(fields(&live(), &would), "spec.generation: - → 2");
    }

    #[test]
    fn what_differs_is_named() {
        let mut would = live();
        would["metadata"]["labels"] = json!({ "app": "flannel", "new": "1" });
        let spec = &mut would["spec"]["template"]["spec"];
        spec["tolerations"][0]["operator"] = "Equal".into();
        spec["volumes"] = json!([{ "name": "run" }]);
        let container = &mut spec["containers"][0];
        container["image"] = "flannel:1".into();
        container["args"] = json!(["--a", "--b"]);
        container["env"] = json!([{ "name": "A", "value": "1" }]);
        container["ports"][0]["protocol"] = "TCP".into();
        insta::assert_snapshot!(fields(&live(), &would), @r#"
        metadata.labels.new: - → 1
        spec.template.spec.containers[flannel].args: ["--a"] → ["--a","--b"]
        spec.template.spec.containers[flannel].env[A]: - → {"name":"A","value":"1"}
        spec.template.spec.containers[flannel].env[OLD]: {"name":"OLD","value":"1"} → -
        spec.template.spec.containers[flannel].image: flannel:0 → flannel:1
        spec.template.spec.containers[flannel].ports[0].protocol: UDP → TCP
        spec.template.spec.tolerations[0].operator: Exists → Equal
        spec.template.spec.volumes: - → [{"name":"run"}]
        "#);
    }

    #[test]
    fn values_of_secrets_are_not_shown_and_long_ones_are_cut() {
        let secret = |text: &str| json!({ "kind": "Secret", "data": { "a": text } });
        assert_eq!(
            fields(&secret("eA=="), &secret("eQ==")),
            "data.a: (not shown) → (not shown)"
        );
        let config = |text: &str| json!({ "kind": "ConfigMap", "data": { "a": text } });
        let long = fields(&config("x\ny"), &config(&"z".repeat(100)));
        assert_eq!(long, format!("data.a: x… → {}…", "z".repeat(60)));
    }

    #[test]
    fn a_rollout_is_read_from_the_status() {
        let set = |generation: i64, status: Value| {
            let object = json!({
                "metadata": { "generation": generation }, "status": status,
            });
            rollout("DaemonSet", &object)
        };
        let status = |updated: i64, available: i64| {
            json!({
                "observedGeneration": 2, "desiredNumberScheduled": 2,
                "updatedNumberScheduled": updated, "numberAvailable": available,
            })
        };
        let unseen = |rollout: Rollout| matches!(rollout, Rollout::Unseen(_));
        assert!(unseen(set(1, Value::Null)));
        assert!(unseen(set(3, status(2, 2))), "an older shape");
        assert_eq!(set(2, status(2, 2)), Rollout::Available);
        let short = Rollout::Short {
            available: 1,
            wanted: 2,
        };
        assert_eq!(set(2, status(2, 1)), short);
        assert_eq!(set(2, status(1, 2)), short, "one of the old shape is left");
        let nothing = json!({ "observedGeneration": 1, "desiredNumberScheduled": 0 });
        assert_eq!(set(1, nothing), Rollout::Available, "no node takes it");

        let deployment = |replicas: Value, available: i64| {
            let object = json!({
                "spec": { "replicas": replicas },
                "status": { "updatedReplicas": available, "availableReplicas": available },
            });
            rollout("Deployment", &object)
        };
        assert_eq!(deployment(json!(2), 2), Rollout::Available);
        assert_eq!(deployment(Value::Null, 1), Rollout::Available);
        let none = Rollout::Short {
            available: 0,
            wanted: 1,
        };
        assert_eq!(deployment(Value::Null, 0), none);
        assert_eq!(rollout("ConfigMap", &json!({})), Rollout::Available);
    }
}

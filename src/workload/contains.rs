//! Does a live object carry what we want? A comparison of subsets, as server-side apply sees it.
//! Pure.
//!
//! What the server and others add is theirs. What we once applied and no longer want is known
//! from `managedFields`: it shows as a field that goes away.

use serde_json::{Map, Value};

use super::FIELD_MANAGER;
use crate::plan::FieldChange;

/// How much of a value is shown.
const SHOWN: usize = 60;

/// The fields in which a live object differs from what is wanted. Values of Secrets are not
/// shown.
pub fn contains(live: &Value, desired: &Value) -> Vec<FieldChange> {
    let mut found = Found {
        changes: Vec::new(),
        hidden: desired["kind"] == "Secret",
    };
    compare(Some(live), desired, &Path::Root, &mut found);
    let ours = live["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|entry| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply")
        .filter(|entry| entry.get("subresource").is_none());
    for entry in ours {
        if let Some(fields) = entry["fieldsV1"].as_object() {
            no_longer_wanted(fields, live, desired, &Path::Root, &mut found);
        }
    }
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
            field: path.to_string(),
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
    /// The field's own name, of an item the name of its list.
    fn name(&self) -> &str {
        match self {
            Self::Root => "",
            Self::Field(_, name) => name,
            Self::Item(above, _) => above.name(),
        }
    }

    /// Below `requests` and `limits` stand quantities.
    fn is_quantity(&self) -> bool {
        match self {
            Self::Root | Self::Item(..) => false,
            Self::Field(above, name) => {
                matches!(above.name(), "requests" | "limits") || *name == "sizeLimit"
            }
        }
    }
}

fn compare(live: Option<&Value>, desired: &Value, path: &Path<'_>, found: &mut Found) {
    match (live, desired) {
        (_, Value::Null) => {}
        (None | Some(Value::Null), desired) => {
            if !is_empty(desired) {
                found.push(path, None, Some(desired));
            }
        }
        (Some(Value::Object(live)), Value::Object(desired)) => {
            for (key, value) in desired {
                compare(live.get(key), value, &Path::Field(path, key), found);
            }
        }
        (Some(Value::Array(live)), Value::Array(desired)) => {
            compare_lists(live, desired, path, found);
        }
        (Some(live), desired) if same(live, desired, path) => {}
        (Some(live), desired) => found.push(path, Some(live), Some(desired)),
    }
}

fn compare_lists(live: &[Value], desired: &[Value], path: &Path<'_>, found: &mut Found) {
    let Some(key) = merge_key(path.name(), desired) else {
        let lengths_differ = live.len() != desired.len();
        let scalars = desired.iter().all(|item| !item.is_object());
        if lengths_differ || (scalars && live != desired) {
            let whole = |items: &[Value]| Value::Array(items.to_vec());
            found.push(path, Some(&whole(live)), Some(&whole(desired)));
        } else {
            for (index, (live, desired)) in live.iter().zip(desired).enumerate() {
                let path = Path::Item(path, index.to_string());
                compare(Some(live), desired, &path, found);
            }
        }
        return;
    };
    for desired in desired {
        let live = live.iter().find(|live| names(live, desired, key));
        let path = Path::Item(path, shown(&desired[key]));
        compare(live, desired, &path, found);
    }
}

/// What tells the items of a list apart, for the lists that are maps in truth.
fn merge_key(list: &str, items: &[Value]) -> Option<&'static str> {
    let key = match list {
        "containers" | "initContainers" | "volumes" | "env" | "imagePullSecrets" | "secrets" => {
            "name"
        }
        "volumeMounts" => "mountPath",
        "ports" if items.iter().any(|item| item.get("containerPort").is_some()) => "containerPort",
        "ports" => "port",
        _ => return None,
    };
    items
        .iter()
        .all(|item| item.get(key).is_some())
        .then_some(key)
}

/// Same key and, for ports, same protocol (TCP when it is not said).
fn names(live: &Value, desired: &Value, key: &str) -> bool {
    let protocol = |item: &Value| {
        item.get("protocol")
            .and_then(Value::as_str)
            .unwrap_or("TCP")
            .to_owned()
    };
    live[key] == desired[key] && protocol(live) == protocol(desired)
}

fn same(live: &Value, desired: &Value, path: &Path<'_>) -> bool {
    if live == desired {
        return true;
    }
    match (live, desired) {
        (Value::Number(live), Value::Number(desired)) => live.as_f64() == desired.as_f64(),
        _ if path.is_quantity() => match (quantity(live), quantity(desired)) {
            (Some(live), Some(desired)) => (live - desired).abs() <= desired.abs() * 1e-12,
            _ => false,
        },
        _ => false,
    }
}

/// `100m`, `0.1`, `64Mi` as a number: the server writes them in its own way.
fn quantity(value: &Value) -> Option<f64> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    digits.parse::<f64>().ok().map(|number| number * factor)
}

/// What the server leaves out: absent is the same.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

/// The fields that `managedFields` says we applied and that are not wanted any more.
fn no_longer_wanted(
    owned: &Map<String, Value>,
    live: &Value,
    desired: &Value,
    path: &Path<'_>,
    found: &mut Found,
) {
    for (key, below) in owned {
        let (live, wanted, path) = if let Some(name) = key.strip_prefix("f:") {
            (live.get(name), desired.get(name), Path::Field(path, name))
        } else if let Some(item) = key.strip_prefix("k:") {
            let Ok(item) = serde_json::from_str::<Map<String, Value>>(item) else {
                continue;
            };
            let in_list = |list: &'_ Value| {
                let items = list.as_array()?;
                items.iter().position(|one| is_item(one, &item))
            };
            let (there, wanted) = (in_list(live), in_list(desired));
            let name = item.values().next().map(shown).unwrap_or_default();
            (
                there.map(|index| &live[index]),
                wanted.map(|index| &desired[index]),
                Path::Item(path, name),
            )
        } else {
            // `.` is the item itself, `v:` and `i:` are items of lists that are compared whole.
            continue;
        };
        // Gone already: managedFields of a moment ago.
        let Some(live) = live else { continue };
        match (wanted, below.as_object()) {
            (None | Some(Value::Null), _) => found.push(&path, Some(live), None),
            (Some(wanted), Some(below)) => no_longer_wanted(below, live, wanted, &path, found),
            (Some(_), None) => {}
        }
    }
}

/// An item of a list that is a map: every key that is written must agree; `protocol` has a
/// default.
fn is_item(one: &Value, keys: &Map<String, Value>) -> bool {
    keys.iter().all(|(key, value)| match one.get(key) {
        Some(there) => there == value,
        None => key == "protocol" && value == "TCP",
    })
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(live: &Value, desired: &Value) -> Vec<String> {
        contains(live, desired)
            .into_iter()
            .map(|change| {
                format!(
                    "{}: {} → {}",
                    change.field,
                    change.from.as_deref().unwrap_or("-"),
                    change.to.as_deref().unwrap_or("-")
                )
            })
            .collect()
    }

    fn wanted() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": "flannel", "labels": { "app": "flannel" } },
            "spec": { "template": { "spec": {
                "hostNetwork": true, "hostIPC": false,
                "containers": [{
                    "name": "flannel", "image": "flannel:1", "args": ["--a", "--b"],
                    "resources": { "requests": { "cpu": "0.1", "memory": "1024Ki" } },
                    "ports": [{ "containerPort": 53, "protocol": "UDP" }, { "containerPort": 53 }],
                    "env": [{ "name": "A", "value": "1" }],
                }],
                "volumes": [{ "name": "run", "emptyDir": {} }],
                "tolerations": [{ "operator": "Exists" }],
            } } },
        })
    }

    /// The wanted object as a server shows it: with defaults, in its own spelling.
    fn stored() -> Value {
        let mut live = wanted();
        live["metadata"]["uid"] = "1".into();
        live["status"] = json!({ "numberAvailable": 1 });
        let spec = &mut live["spec"]["template"]["spec"];
        spec["dnsPolicy"] = "ClusterFirst".into();
        spec.as_object_mut().unwrap().remove("hostIPC");
        let container = &mut spec["containers"][0];
        container["resources"]["requests"] = json!({ "cpu": "100m", "memory": "1Mi" });
        container["terminationMessagePath"] = "/dev/termination-log".into();
        container["ports"] = json!([
            { "containerPort": 53, "protocol": "TCP" },
            { "containerPort": 53, "protocol": "UDP" },
        ]);
        live
    }

    #[test]
    fn defaults_spellings_and_what_others_add_are_no_difference() {
        assert_eq!(fields(&stored(), &wanted()), [""; 0]);
        let mut live = stored();
        live["metadata"]["labels"]["theirs"] = "1".into();
        live["spec"]["template"]["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "name": "injected" }));
        assert_eq!(fields(&live, &wanted()), [""; 0]);
    }

    #[test]
    fn what_differs_is_named() {
        let mut live = stored();
        live["metadata"]["labels"] = Value::Null;
        let spec = &mut live["spec"]["template"]["spec"];
        spec["volumes"] = json!([]);
        spec["tolerations"] = json!([]);
        let container = &mut spec["containers"][0];
        container["image"] = "flannel:0".into();
        container["args"] = json!(["--b", "--a"]);
        container["resources"]["requests"]["cpu"] = "200m".into();
        container["env"][0]["value"] = "2".into();
        insta::assert_snapshot!(fields(&live, &wanted()).join("\n"), @r#"
        metadata.labels: - → {"app":"flannel"}
        spec.template.spec.containers[flannel].args: ["--b","--a"] → ["--a","--b"]
        spec.template.spec.containers[flannel].env[A].value: 2 → 1
        spec.template.spec.containers[flannel].image: flannel:0 → flannel:1
        spec.template.spec.containers[flannel].resources.requests.cpu: 200m → 0.1
        spec.template.spec.tolerations: [] → [{"operator":"Exists"}]
        spec.template.spec.volumes[run]: - → {"emptyDir":{},"name":"run"}
        "#);
    }

    #[test]
    fn what_we_applied_and_no_longer_want_goes_away() {
        let mut live = stored();
        live["metadata"]["labels"]["old"] = "1".into();
        live["spec"]["template"]["spec"]["containers"][0]["env"] =
            json!([{ "name": "A", "value": "1" }, { "name": "OLD", "value": "1" }]);
        live["metadata"]["managedFields"] = json!([
            { "manager": "rke-operator", "operation": "Apply", "fieldsV1": {
                "f:metadata": { "f:labels": { "f:app": {}, "f:old": {}, "f:gone": {} } },
                "f:spec": { "f:template": { "f:spec": { "f:containers": {
                    "k:{\"name\":\"flannel\"}": { ".": {}, "f:name": {}, "f:env": {
                        "k:{\"name\":\"A\"}": { ".": {}, "f:value": {} },
                        "k:{\"name\":\"OLD\"}": { ".": {}, "f:value": {} },
                    }, "f:ports": {
                        "k:{\"containerPort\":53,\"protocol\":\"TCP\"}": { "f:containerPort": {} },
                    } },
                } } } },
            } },
            { "manager": "kubectl", "operation": "Apply", "fieldsV1": {
                "f:metadata": { "f:labels": { "f:theirs": {} } },
            } },
        ]);
        live["metadata"]["labels"]["theirs"] = "1".into();
        insta::assert_snapshot!(fields(&live, &wanted()).join("\n"), @r#"
        metadata.labels.old: 1 → -
        spec.template.spec.containers[flannel].env[OLD]: {"name":"OLD","value":"1"} → -
        "#);
    }

    #[test]
    fn values_of_secrets_are_not_shown() {
        let live = json!({ "kind": "Secret", "data": { "k": "b2xk" } });
        let desired = json!({ "kind": "Secret", "data": { "k": "bmV3" } });
        assert_eq!(
            fields(&live, &desired),
            ["data.k: (not shown) → (not shown)"]
        );
    }
}

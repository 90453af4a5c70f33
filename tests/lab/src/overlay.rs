//! What Kubernetes needs only on machines such as the lab's, and how it gets into a `cluster.yml`.
//!
//! Each part has a condition that is tested in a node; where none holds, the overlay is empty.

use serde_json::{Map, Value};

use crate::LabError;

/// Says on a node which conditions hold, one word a line.
pub(crate) const PROBE: &str = r#"
limit=/proc/sys/net/netfilter/nf_conntrack_max
{ value=$(cat $limit) && echo "$value" > $limit; } 2> /dev/null || echo conntrack-read-only
[ "$(wc -l < /proc/swaps)" -le 1 ] || echo swap-is-on
"#;

/// The overlay for what [`PROBE`] said.
pub(crate) fn overlay(conditions: &str) -> Result<String, LabError> {
    let mut services = Map::new();
    let mut arg = |service: &str, name: &str, value: &str| {
        let args = services
            .entry(service)
            .or_insert_with(|| serde_json::json!({"extra_args": {}}));
        args["extra_args"][name] = value.into();
    };
    for condition in conditions.lines() {
        match condition.trim() {
            // Only the machine's own network namespace may set it.
            "conntrack-read-only" => arg("kubeproxy", "conntrack-max-per-core", "0"),
            "swap-is-on" => arg("kubelet", "fail-swap-on", "false"),
            _ => {}
        }
    }
    if services.is_empty() {
        return Ok(String::new());
    }
    written(&serde_json::json!({"services": services}))
}

/// Merges an overlay into a `cluster.yml`: maps key by key, and everything else is replaced.
pub fn merge(cluster_yml: &str, overlay: &str) -> Result<String, LabError> {
    if overlay.trim().is_empty() {
        return Ok(cluster_yml.to_owned());
    }
    let mut document = parsed("cluster.yml", cluster_yml)?;
    merge_value(&mut document, parsed("the overlay", overlay)?);
    written(&document)
}

fn merge_value(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match into.get_mut(&key) {
                    Some(old) => merge_value(old, value),
                    None => {
                        into.insert(key, value);
                    }
                }
            }
        }
        (into, from) => *into = from,
    }
}

/// YAML as a document.
pub(crate) fn parsed(name: &str, text: &str) -> Result<Value, LabError> {
    serde_saphyr::from_str(text).map_err(|e| LabError::Content {
        path: name.into(),
        why: e.to_string(),
    })
}

/// A document as YAML.
pub(crate) fn written(document: &Value) -> Result<String, LabError> {
    serde_saphyr::to_string(document).map_err(|e| LabError::Content {
        path: "cluster.yml".into(),
        why: e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_machine_needs_no_overlay() {
        assert_eq!(overlay("").unwrap(), "");
        assert_eq!(merge("a: 1 # kept\n", "").unwrap(), "a: 1 # kept\n");
    }

    #[test]
    fn each_condition_brings_its_argument() {
        let overlay = parsed(
            "overlay",
            &overlay("conntrack-read-only\nswap-is-on\n").unwrap(),
        );
        assert_eq!(
            overlay.unwrap(),
            serde_json::json!({"services": {
                "kubelet": {"extra_args": {"fail-swap-on": "false"}},
                "kubeproxy": {"extra_args": {"conntrack-max-per-core": "0"}},
            }})
        );
    }

    #[test]
    fn what_the_document_says_elsewhere_stays() {
        let document =
            "nodes: [{address: 10.0.0.1}]\nservices: {kubelet: {extra_args: {v: '2'}}}\n";
        let merged = merge(document, &overlay("swap-is-on").unwrap()).unwrap();
        assert_eq!(
            parsed("merged", &merged).unwrap(),
            serde_json::json!({
                "nodes": [{"address": "10.0.0.1"}],
                "services": {"kubelet": {"extra_args": {"v": "2", "fail-swap-on": "false"}}},
            })
        );
    }

    #[test]
    fn a_text_that_looks_like_another_type_stays_a_text() {
        let merged = merge("a: {b: 'true', c: '0'}\n", "a: {d: '1'}\n").unwrap();
        assert_eq!(
            parsed("merged", &merged).unwrap(),
            serde_json::json!({"a": {"b": "true", "c": "0", "d": "1"}})
        );
    }
}

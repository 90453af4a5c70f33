//! What helm rendered, as objects in the order in which they are applied. Pure.

use serde_json::Value;

/// Helm's annotations.
const HOOK: &str = "helm.sh/hook";
const WEIGHT: &str = "helm.sh/hook-weight";

/// The objects of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rendered {
    /// Hooks that run before the others, in order.
    pub(super) before: Vec<Value>,
    /// All that is no hook.
    pub(super) objects: Vec<Value>,
    /// Hooks that run when the others are there, in order.
    pub(super) after: Vec<Value>,
}

/// Why what helm wrote is not understood.
#[derive(Debug, thiserror::Error)]
pub enum RenderedError {
    /// No YAML.
    #[error("what helm rendered is not YAML")]
    Syntax(#[source] Box<serde_saphyr::Error>),
    /// No object.
    #[error("what helm rendered has a document without `apiVersion`, `kind` or `metadata.name`")]
    NoObject,
}

/// When an object comes.
enum When {
    Before,
    Among,
    After,
    Never,
}

impl Rendered {
    /// Reads the documents that helm wrote, one output after the other. Tests and hooks that belong to
    /// the end of a release are left out; those of a first installation come `first` only, those of an
    /// upgrade later only.
    pub(super) fn read(outputs: &[&str], first: bool) -> Result<Self, RenderedError> {
        let mut rendered = Self::default();
        for output in outputs {
            for document in documents(output)? {
                for object in flat(document) {
                    rendered.sort(as_it_is_served(object), first)?;
                }
            }
        }
        let weight = |object: &Value| {
            let weight = annotation(object, WEIGHT).and_then(|weight| weight.parse::<i64>().ok());
            weight.unwrap_or_default()
        };
        // Stable: those of one weight stay in helm's order, accounts before their users.
        rendered.before.sort_by_key(weight);
        rendered.after.sort_by_key(weight);
        Ok(rendered)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Value> {
        let objects = self.before.iter().chain(&self.objects);
        objects.chain(&self.after)
    }

    fn sort(&mut self, object: Value, first: bool) -> Result<(), RenderedError> {
        let is_text = |pointer: &str| object.pointer(pointer).is_some_and(Value::is_string);
        if !["/apiVersion", "/kind", "/metadata/name"]
            .into_iter()
            .all(is_text)
        {
            return Err(RenderedError::NoObject);
        }
        match when(&object, first) {
            When::Before => self.before.push(object),
            When::Among => self.objects.push(object),
            When::After => self.after.push(object),
            When::Never => {}
        }
        Ok(())
    }
}

/// In the words that an API server of today takes. A null says that a field is not set, which custom resources do not take
/// as a value (calico's of 1.28); budgets left `policy/v1beta1` in 1.25, and canal's charts of 1.28.1 still say it.
fn as_it_is_served(mut object: Value) -> Value {
    without_nulls(&mut object);
    if object["kind"] == "PodDisruptionBudget" && object["apiVersion"] == "policy/v1beta1" {
        object["apiVersion"] = "policy/v1".into();
    }
    object
}

/// Items of lists have their place, so they stay.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

fn when(object: &Value, first: bool) -> When {
    let Some(hooks) = annotation(object, HOOK) else {
        return When::Among;
    };
    let mut hooks = hooks.split(',').map(str::trim);
    let (before, after) = if first {
        ("pre-install", "post-install")
    } else {
        ("pre-upgrade", "post-upgrade")
    };
    let found = hooks.find_map(|hook| match hook {
        // Of helm 2: it is applied like any other definition.
        "crd-install" => Some(When::Among),
        hook if hook == before => Some(When::Before),
        hook if hook == after => Some(When::After),
        _ => None,
    });
    found.unwrap_or(When::Never)
}

/// Kubernetes reads YAML 1.1: `0644` is octal.
fn documents(output: &str) -> Result<Vec<Value>, RenderedError> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        // It comes from a chart of the release; its size is bounded where it is read.
        budget: None,
    };
    serde_saphyr::from_multiple_with_options(output, options)
        .map_err(|error| RenderedError::Syntax(Box::new(error)))
}

/// The items of a list; nothing of an empty document.
fn flat(document: Value) -> Vec<Value> {
    match document {
        Value::Null => Vec::new(),
        Value::Object(mut list) if list.get("kind").is_some_and(|kind| kind == "List") => {
            match list.remove("items") {
                Some(Value::Array(items)) => items.into_iter().flat_map(flat).collect(),
                Some(_) | None => Vec::new(),
            }
        }
        document @ (Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_)) => vec![document],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Vec<&'a str> {
        let names = objects
            .into_iter()
            .map(|object| object["metadata"]["name"].as_str());
        names.map(Option::unwrap).collect()
    }

    fn object(name: &str, hook: &str, weight: i64) -> String {
        let hook = match hook {
            "" => String::new(),
            hook => format!(
                ", annotations: {{helm.sh/hook: '{hook}', helm.sh/hook-weight: '{weight}'}}"
            ),
        };
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}{hook}}}\n")
    }

    #[test]
    fn hooks_come_in_their_place_and_order() {
        let output = [
            object("plain", "", 0),
            object("late", "pre-install,pre-upgrade", 5),
            object("early", "pre-install, pre-upgrade", -1),
            object("done", "post-install", 0),
            object("upgraded", "post-upgrade", 0),
            object("tested", "test", 0),
            object("end", "pre-delete", 0),
        ]
        .concat();
        let first = Rendered::read(&[&output], true).unwrap();
        assert_eq!(names(&first.before), ["early", "late"]);
        assert_eq!(names(&first.objects), ["plain"]);
        assert_eq!(names(&first.after), ["done"]);
        let later = Rendered::read(&[&output], false).unwrap();
        assert_eq!(names(&later.after), ["upgraded"]);
        assert_eq!(names(later.all()), ["early", "late", "plain", "upgraded"]);
    }

    #[test]
    fn lists_are_their_items_and_empty_documents_are_nothing() {
        let list = "---\n# Source: a.yaml\n---\nkind: List\napiVersion: v1\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n---\n";
        let rendered = Rendered::read(&["", list], true).unwrap();
        assert_eq!(names(&rendered.objects), ["a", "b"]);
    }

    #[test]
    fn modes_are_octal_as_kubernetes_reads_them() {
        let output = "{apiVersion: v1, kind: Pod, metadata: {name: a}, mode: 0644, on: \"on\"}";
        let rendered = Rendered::read(&[output], true).unwrap();
        assert_eq!(rendered.objects[0]["mode"], 0o644);
        assert_eq!(rendered.objects[0]["on"], "on");
    }

    #[test]
    fn what_api_servers_no_longer_accept_is_rewritten() {
        let output = "---\n{apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: a}, \
                      spec: {maxUnavailable: 1, selector: null}}\n---\n\
                      {apiVersion: policy/v1beta1, kind: Other, metadata: {name: b}, \
                      spec: {list: [null, {a: null, b: 1}], registry: ~}}";
        let rendered = Rendered::read(&[output], true).unwrap();
        assert_eq!(
            rendered.objects,
            [
                serde_json::json!({
                    "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
                    "spec": {"maxUnavailable": 1},
                }),
                serde_json::json!({
                    "apiVersion": "policy/v1beta1", "kind": "Other", "metadata": {"name": "b"},
                    "spec": {"list": [null, {"b": 1}]},
                }),
            ]
        );
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for output in ["a: b", "- 1", "{kind: Pod, apiVersion: v1}", "a: ["] {
            assert!(Rendered::read(&[output], true).is_err(), "{output}");
        }
    }
}

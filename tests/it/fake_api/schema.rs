//! What a real API server does with our schemas: defaults, nulls, types, bounds, lists by key, unknown fields, rules.

use std::collections::BTreeSet;

use kube::core::cel;
use serde_json::Value;

/// Fills in defaults, then judges what changed: since 1.30 a part that is wrong already does not
/// keep the rest from being written. The error is the message of a 422.
#[expect(
    clippy::needless_pass_by_value,
    reason = "it gives back what it was given, defaulted"
)]
pub(super) fn admit(schema: &Value, object: Value, old: Option<&Value>) -> Result<Value, String> {
    let mut object = cel::apply_defaults(schema, &object);
    without_nulls(schema, &mut object);
    let mut problems = Vec::new();
    // What is read back from storage has the defaults, too.
    let old = old.map(|old| cel::apply_defaults(schema, old));
    let old = old.as_ref();
    let changed = |part: &str| old.is_none_or(|old| old.get(part) != object.get(part));
    for part in ["spec", "status"] {
        if let Some(value) = object.get(part).filter(|_| changed(part)) {
            verify(&schema["properties"][part], value, part, &mut problems);
        }
    }
    if changed("spec") {
        if object.get("spec").is_none() {
            problems.push("spec: Required value".to_owned());
        }
        if let Err(error) = cel::Validator::new().validate(schema, &object, old) {
            problems.push(error.to_string());
        }
    }
    if problems.is_empty() {
        Ok(object)
    } else {
        Err(problems.join(", "))
    }
}

/// A null where there may be none is as good as nothing.
fn without_nulls(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            let properties = &schema["properties"];
            map.retain(|key, value| {
                let property = &properties[key];
                !(value.is_null() && property.is_object() && property["nullable"] != true)
            });
            for (key, value) in map {
                without_nulls(&properties[key], value);
            }
        }
        Value::Array(items) => {
            for item in items {
                without_nulls(&schema["items"], item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn verify(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    // Below what has no schema, anything is kept.
    if schema.is_null() {
        return;
    }
    if value.is_null() {
        if schema["nullable"] != true {
            problems.push(format!("{path}: must not be null"));
        }
        return;
    }
    let matches = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        _ if schema["x-kubernetes-int-or-string"] == true => value.is_i64() || value.is_string(),
        _ => true,
    };
    if !matches {
        problems.push(format!("{path}: must be of type {}", schema["type"]));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        problems.push(format!("{path}: Unsupported value"));
    }
    bounded(schema, value, path, problems);
    for required in schema["required"].as_array().into_iter().flatten() {
        let key = required.as_str().unwrap();
        if value.is_object() && value.get(key).is_none() {
            problems.push(format!("{path}.{key}: Required value"));
        }
    }
    if let Some(map) = value.as_object() {
        for (key, value) in map {
            let path = format!("{path}.{key}");
            let property = &schema["properties"][key];
            let additional = &schema["additionalProperties"];
            if !property.is_null() {
                verify(property, value, &path, problems);
            } else if additional.is_object() {
                verify(additional, value, &path, problems);
            } else if schema["x-kubernetes-preserve-unknown-fields"] != true {
                problems.push(format!("{path}: unknown field"));
            }
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        verify(
            &schema["items"],
            item,
            &format!("{path}[{index}]"),
            problems,
        );
    }
}

/// How long it may be, what a text looks like, and what tells the items of a list apart.
fn bounded(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    let (least, most, length) = match value {
        Value::String(text) => ("minLength", "maxLength", text.chars().count()),
        Value::Array(items) => ("minItems", "maxItems", items.len()),
        Value::Object(map) => ("minProperties", "maxProperties", map.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => return,
    };
    let bound = |name: &str| {
        schema[name]
            .as_u64()
            .map(|bound| usize::try_from(bound).unwrap())
    };
    if bound(least).is_some_and(|least| length < least) {
        problems.push(format!("{path}: Too short"));
    }
    if bound(most).is_some_and(|most| length > most) {
        problems.push(format!("{path}: Too long"));
    }
    if let Some(pattern) = schema["pattern"].as_str().filter(|_| value.is_string()) {
        let pattern = pattern.replace('\\', "\\\\");
        let rule = serde_json::json!({
            "type": "string",
            "x-kubernetes-validations": [{"rule": format!("self.matches('{pattern}')")}],
        });
        if cel::Validator::new().validate(&rule, value, None).is_err() {
            problems.push(format!("{path}: does not match the pattern"));
        }
    }
    if let (Some(keys), Some(items)) = (
        schema["x-kubernetes-list-map-keys"].as_array(),
        value.as_array(),
    ) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let key: Vec<String> = keys
                .iter()
                .map(|key| item[key.as_str().unwrap()].to_string())
                .collect();
            if !seen.insert(key) {
                problems.push(format!("{path}[{index}]: Duplicate value"));
            }
        }
    }
}

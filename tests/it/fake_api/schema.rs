//! What a real API server does with our schemas: defaults, types, unknown fields, rules.

use kube::core::cel;
use serde_json::Value;

/// Fills in defaults, then judges what changed: since 1.30 a part that is wrong already does not
/// keep the rest from being written. The error is the message of a 422.
#[expect(
    clippy::needless_pass_by_value,
    reason = "it gives back what it was given, defaulted"
)]
pub(super) fn admit(schema: &Value, object: Value, old: Option<&Value>) -> Result<Value, String> {
    let object = cel::apply_defaults(schema, &object);
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

fn verify(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
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
    for required in schema["required"].as_array().into_iter().flatten() {
        let key = required.as_str().unwrap();
        if value.get(key).is_none() {
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

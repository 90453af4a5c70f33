//! The schema of `spec.config` in the definition of `Cluster`, written from the table of keys. Pure.
//!
//! It takes what the table takes, in every form that one value may have: a number may be in quotes, and
//! so may a bool. A key that takes any text has no type, because `true` and `1.5` are texts there. What
//! the table does not know is kept at each level, so that `validate` can name it with its path; the API
//! server would drop it silently. Everything may be null but what tells the items of a list apart.
//!
//! A secret has no type either: it is a reference to a Secret, or, in objects of before, the text.

use serde_json::{Map, Value, json};

use super::{
    json_schema::{description, properties},
    schema::{Answer, Key, Kind, ROOT},
};
use crate::error::on_object;

/// How many items a list of texts has at most, and how many entries a mapping whose names are the user's.
const MOST: u32 = 1024;
/// The longest text that a number or a duration may be.
const LONGEST: u32 = 64;

const BOOLS: &str =
    "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[Yy][Ee][Ss]|[Nn][Oo]|[Oo][Nn]|[Oo][Ff][Ff]|[YyNn])?$";
const NUMBERS: &str = "^([-+]?[0-9]+)?$";

/// The login to a machine, which an object names elsewhere.
const LOGIN: &str = "ssh_key";

/// Without description and rules, which are the object's.
pub fn structural_schema() -> Value {
    let mut schema = mapping(ROOT);
    schema.insert("required".to_owned(), json!(["nodes"]));
    Value::Object(schema)
}

fn mapping(keys: &[Key]) -> Map<String, Value> {
    let properties = properties(keys, property);
    object(json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": properties,
    }))
}

fn property(key: &Key) -> Value {
    let mut schema = if is_looked_into(key) {
        typed(key)
    } else {
        anything()
    };
    if key.bounds.by.is_empty() {
        schema.insert("nullable".to_owned(), true.into());
    }
    schema.insert("description".to_owned(), explained(key).into());
    Value::Object(schema)
}

/// For `kubectl explain`, which has no type to show where there are several.
fn explained(key: &Key) -> String {
    let mut text = on_object(&description(key));
    if key.by_reference && key.name != LOGIN {
        text.push_str(" It is in a Secret: `secretKeyRef: {name, key}`.");
    } else if key.secret && !key.by_reference {
        text.push_str(" `secretKeyRef: {name, key}` may stand in its place.");
    } else if is_looked_into(key) && matches!(key.kind, Kind::Bool) {
        text.push_str(" `true` or `false`.");
    }
    text
}

/// Whether the value is read by its type. A secret is not: a reference may stand in its place.
const fn is_looked_into(key: &Key) -> bool {
    matches!(key.answer, Answer::Used) && !key.secret
}

fn typed(key: &Key) -> Map<String, Value> {
    let most = |otherwise: u32| match key.bounds.most {
        0 => otherwise,
        most => most,
    };
    match (key.kind, key.words) {
        (Kind::Text, [_, ..]) => object(json!({"type": "string", "enum": words(key.words)})),
        (Kind::Text, []) if key.bounds.most > 0 => text(key),
        (Kind::Bool, _) => object(json!({
            "x-kubernetes-preserve-unknown-fields": true, "pattern": BOOLS,
        })),
        // One that may be a fraction.
        (Kind::Number, _) if !key.bounds.pattern.is_empty() => object(json!({
            "x-kubernetes-preserve-unknown-fields": true, "pattern": key.bounds.pattern,
        })),
        (Kind::Number, _) => object(json!({
            "x-kubernetes-int-or-string": true, "pattern": NUMBERS, "maxLength": LONGEST,
        })),
        (Kind::Duration, _) => object(json!({
            "x-kubernetes-int-or-string": true, "maxLength": LONGEST,
        })),
        (Kind::List, [_, ..]) => list(most(MOST), &json!({"type": "string", "enum": key.words})),
        (Kind::List, []) => list(most(MOST), &item()),
        (Kind::Map, _) => object(json!({
            "type": "object", "maxProperties": most(MOST), "additionalProperties": item(),
        })),
        (Kind::Text | Kind::Any, _) => anything(),
        (Kind::Section(keys), _) => mapping(keys),
        (Kind::Each(keys), _) => each(key, keys, most(MOST)),
    }
}

/// A text that no number and no bool can be.
fn text(key: &Key) -> Map<String, Value> {
    let mut schema = object(json!({"type": "string", "maxLength": key.bounds.most}));
    if !key.bounds.pattern.is_empty() {
        schema.insert("pattern".to_owned(), key.bounds.pattern.into());
    }
    schema
}

fn words(words: &[&str]) -> Vec<Value> {
    let words = words.iter().map(|word| Value::from(*word));
    words.chain(["".into(), Value::Null]).collect()
}

fn list(most: u32, items: &Value) -> Map<String, Value> {
    object(json!({
        "type": "array", "x-kubernetes-list-type": "atomic", "maxItems": most, "items": items,
    }))
}

/// A list of mappings: as a whole, or by the key that tells them apart, so that several clients may each apply their own.
fn each(key: &Key, keys: &[Key], most: u32) -> Map<String, Value> {
    let mut items = mapping(keys);
    let by = key.bounds.by;
    if by.is_empty() {
        return list(most, &Value::Object(items));
    }
    items.insert("required".to_owned(), json!([by]));
    let known_by = items
        .get_mut("properties")
        .and_then(|keys| keys.get_mut(by));
    if let Some(known_by) = known_by.and_then(Value::as_object_mut) {
        known_by.remove("nullable");
        known_by.insert("minLength".to_owned(), 1.into());
    }
    object(json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [by],
        "minItems": key.bounds.least,
        "maxItems": most,
        "items": items,
    }))
}

/// An item of a list, or a value under a name of the user's.
fn item() -> Value {
    let mut item = anything();
    item.insert("nullable".to_owned(), true.into());
    Value::Object(item)
}

fn anything() -> Map<String, Value> {
    object(json!({"x-kubernetes-preserve-unknown-fields": true}))
}

fn object(schema: Value) -> Map<String, Value> {
    match schema {
        Value::Object(schema) => schema,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema::Below;

    /// The schema of each key of the table that is looked into, by its path.
    fn walk(keys: &[Key], schema: &Value, path: &str, visit: &mut impl FnMut(&str, &Key, &Value)) {
        assert_eq!(
            schema["x-kubernetes-preserve-unknown-fields"], true,
            "{path}"
        );
        for key in keys {
            let path = format!("{path}.{}", key.name);
            let of_key = &schema["properties"][key.name];
            visit(&path, key, of_key);
            if !is_looked_into(key) {
                continue;
            }
            match key.kind.below() {
                Below::Section(keys) => walk(keys, of_key, &path, visit),
                Below::Each(keys) => walk(keys, &of_key["items"], &path, visit),
                Below::Nothing => {}
            }
        }
    }

    #[test]
    fn every_key_is_described_and_may_be_null() {
        let mut seen = 0;
        walk(ROOT, &structural_schema(), "", &mut |path, key, schema| {
            seen += 1;
            let description = schema["description"].as_str().unwrap();
            assert!(description.contains(key.doc), "{path}");
            let tells_apart = matches!(path, ".nodes" | ".nodes.address");
            assert_eq!(schema["nullable"] == true, !tells_apart, "{path}");
            let secret = key.secret.then_some(&schema["type"]);
            assert!(
                secret.is_none_or(Value::is_null),
                "{path} is a secret with a type"
            );
        });
        assert!(seen > 200, "{seen}");
    }

    #[test]
    fn two_clients_may_apply_a_node_each() {
        let nodes = &structural_schema()["properties"]["nodes"];
        assert_eq!(nodes["x-kubernetes-list-map-keys"], json!(["address"]));
        assert_eq!(
            (&nodes["minItems"], &nodes["maxItems"]),
            (&json!(1), &json!(1000))
        );
        assert_eq!(nodes["items"]["required"], json!(["address"]));
        let role = &nodes["items"]["properties"]["role"];
        assert_eq!(role["x-kubernetes-list-type"], "atomic");
        assert_eq!(
            (&role["maxItems"], &role["items"]["enum"][1]),
            (&json!(3), &json!("etcd"))
        );
    }

    /// What the API server says of a value, as far as these schemas go.
    fn takes(schema: &Value, value: &Value) -> bool {
        if value.is_null() {
            return schema["nullable"] == true;
        }
        let is = match schema["type"].as_str() {
            Some("string") => value.is_string(),
            Some("array") => value.is_array(),
            Some("object") => value.is_object(),
            _ if schema["x-kubernetes-int-or-string"] == true => {
                value.is_i64() || value.is_string()
            }
            _ => true,
        };
        let mut words = schema["enum"].as_array().into_iter().flatten();
        let no_words = schema["enum"].is_null();
        let pattern = json!({"pattern": schema["pattern"].as_str().unwrap_or_default()});
        is && (no_words || words.any(|word| word == value))
            && jsonschema::validator_for(&pattern).unwrap().is_valid(value)
    }

    /// Every form of one value that the table takes, a definition takes, but for one: a number or a bool where only a text
    /// can be a value.
    #[test]
    fn what_the_command_line_takes_an_object_may_have() {
        let forms = [
            json!(null),
            json!(""),
            json!(true),
            json!(false),
            json!("yes"),
            json!("No"),
            json!("off"),
            json!("Y"),
            json!("TRUE"),
            json!(0),
            json!(-1),
            json!(22),
            json!("22"),
            json!("-1"),
            json!("+5"),
            json!(1.5),
            json!("1.5"),
            json!("12h"),
            json!("1h30m"),
            json!("0"),
            json!("a text"),
        ];
        let mut tried = 0;
        walk(ROOT, &structural_schema(), "", &mut |path, key, schema| {
            let is_one = matches!(
                key.kind,
                Kind::Text | Kind::Bool | Kind::Number | Kind::Duration
            );
            if !is_one || !matches!(key.answer, Answer::Used) {
                return;
            }
            for form in &forms {
                let text = form
                    .as_str()
                    .map_or_else(|| form.to_string(), str::to_owned);
                let text = if form.is_null() { String::new() } else { text };
                let is_text = form.is_string() || form.is_null();
                let only_text = schema["type"] == "string";
                let word =
                    key.words.is_empty() || text.is_empty() || key.words.contains(&text.as_str());
                let shaped = key.bounds.pattern.is_empty() || text.is_empty();
                let read = text.is_empty() || key.kind.reads(&text);
                let empty_key = path == ".nodes.address" && form.is_null();
                if read && word && shaped && (is_text || !only_text) && !empty_key {
                    assert!(takes(schema, form), "{path}: {form}");
                    tried += 1;
                }
                if !read
                    && key.bounds.pattern.is_empty()
                    && !matches!(key.kind, Kind::Duration)
                    && !key.secret
                {
                    assert!(!takes(schema, form) || !form.is_string(), "{path}: {form}");
                }
            }
        });
        assert!(tried > 1000, "{tried}");
    }
}

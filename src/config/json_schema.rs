//! The schema of `cluster.yml` for editors (JSON Schema), written from the table of keys. Pure.
//!
//! It takes what the table takes: numbers and flags may stand in quotes, everything may be null,
//! as `rke config` writes it. What only `up` can tell, it leaves to `validate`.

use serde_json::{Map, Value, json};

use super::{
    keys::{Support, row},
    schema::{Answer, Key, Kind, ROOT},
};

/// The name of the schema. An editor needs a copy of the schema: this address may not answer.
const SCHEMA_URL: &str = "https://raw.githubusercontent.com/rke-operator/rke-operator/main/docs/reference/cluster.schema.json";

/// The document.
pub fn json_schema() -> Value {
    let mut schema = mapping(ROOT);
    schema.insert(
        "$schema".to_owned(),
        "http://json-schema.org/draft-07/schema#".into(),
    );
    schema.insert("$id".to_owned(), SCHEMA_URL.into());
    schema.insert("title".to_owned(), "cluster.yml of rke-operator".into());
    schema.insert("type".to_owned(), "object".into());
    schema.insert("required".to_owned(), json!(["nodes"]));
    Value::Object(schema)
}

fn mapping(keys: &[Key]) -> Map<String, Value> {
    let properties = properties(keys, property);
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!(["object", "null"]));
    schema.insert("properties".to_owned(), properties.into());
    schema.insert("additionalProperties".to_owned(), false.into());
    schema
}

/// The keys of a mapping, each with its schema.
pub(super) fn properties(keys: &[Key], schema: fn(&Key) -> Value) -> Map<String, Value> {
    let named = keys.iter().map(|key| (key.name.to_owned(), schema(key)));
    named.collect()
}

fn property(key: &Key) -> Value {
    let mut schema = match (key.kind, key.words) {
        (Kind::Text, [_, ..]) => one_of(key.words),
        (Kind::List, [_, ..]) => list_of(&json!({"enum": key.words})),
        (kind, _) => match key.as_list {
            Some(keys) => either(&of_kind(kind), keys),
            None => of_kind(kind),
        },
    };
    schema.insert("description".to_owned(), description(key).into());
    if !key.default.is_empty() {
        schema.insert("default".to_owned(), default(key));
    }
    if key.secret {
        schema.insert("writeOnly".to_owned(), true.into());
    }
    if matches!(
        key.answer,
        Answer::Ignored(_) | Answer::Refused(_) | Answer::Never(_)
    ) {
        schema.insert("deprecated".to_owned(), true.into());
    }
    Value::Object(schema)
}

/// A section, or a list of sections with these keys.
fn either(section: &Map<String, Value>, keys: &[Key]) -> Map<String, Value> {
    let list = json!({"type": "array", "items": mapping(keys)});
    let forms = json!([section, list]);
    Map::from_iter([("anyOf".to_owned(), forms)])
}

/// One of a few words, or nothing.
fn one_of(words: &[&str]) -> Map<String, Value> {
    let words = words.iter().map(|word| Value::from(*word));
    let all: Vec<Value> = words.chain(["".into(), Value::Null]).collect();
    Map::from_iter([("enum".to_owned(), all.into())])
}

fn list_of(items: &Value) -> Map<String, Value> {
    let forms = json!([{"type": ["array", "null"], "items": items}, {"const": ""}]);
    Map::from_iter([("anyOf".to_owned(), forms)])
}

fn of_kind(kind: Kind) -> Map<String, Value> {
    let schema = match kind {
        Kind::Text => json!({"type": ["string", "number", "boolean", "null"]}),
        Kind::Duration => json!({"type": ["string", "null"], "pattern": "^([0-9]+(h|m|s))*$"}),
        Kind::Bool => json!({"anyOf": [
            {"type": ["boolean", "null"]},
            {"type": "string", "pattern": "^([Tt]rue|TRUE|[Ff]alse|FALSE|[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF|[YyNn]|)$"},
        ]}),
        Kind::Number => json!({"anyOf": [
            {"type": ["integer", "null"]},
            {"type": "string", "pattern": "^-?[0-9]*$"},
        ]}),
        Kind::List => return list_of(&json!({"type": ["string", "number", "boolean"]})),
        Kind::Map => json!({"anyOf": [
            {"type": ["object", "null"], "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
            {"const": ""},
        ]}),
        Kind::Any => json!({}),
        Kind::Section(keys) => return mapping(keys),
        Kind::Each(keys) => json!({"type": ["array", "null"], "items": mapping(keys)}),
    };
    schema.as_object().cloned().unwrap_or_default()
}

/// As its type has it.
fn default(key: &Key) -> Value {
    match key.kind {
        Kind::Bool => super::schema::boolean(key.default).map_or(Value::Null, Value::Bool),
        Kind::Number => key.default.parse::<i64>().map_or(Value::Null, Value::from),
        Kind::Text
        | Kind::Duration
        | Kind::List
        | Kind::Map
        | Kind::Any
        | Kind::Section(_)
        | Kind::Each(_) => key.default.into(),
    }
}

/// What it is for, and what of it does not work.
pub(super) fn description(key: &Key) -> String {
    let doc = key.doc;
    match row("", key).support {
        Support::Works => doc.to_owned(),
        Support::Same(why) => format!("{doc} Any value: {why}."),
        Support::Ignored(instead) => format!("{doc} No effect: {instead}."),
        Support::Later => format!("{doc} Only the default so far."),
        Support::Refused(instead) => format!("{doc} Only the default: {instead}."),
        Support::Never(instead) => format!("{doc} Not supported: {instead}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_it_with_its_type() {
        let schema = json_schema();
        assert_eq!(schema["additionalProperties"], false);
        let node = &schema["properties"]["nodes"]["items"]["properties"];
        assert_eq!(node["ssh_key"]["writeOnly"], true);
        assert_eq!(node["port"]["default"], 22);
        let api = &schema["properties"]["services"]["properties"]["kube-api"]["properties"];
        assert!(api["extra_args"]["anyOf"].is_array());
        assert_eq!(api["image"]["deprecated"], true);
        let plugin = &schema["properties"]["network"]["properties"]["plugin"]["enum"];
        assert_eq!(
            *plugin,
            json!(["canal", "flannel", "calico", "none", "", null])
        );
        assert_eq!(node["role"]["anyOf"][0]["items"]["enum"][1], "etcd");
    }
}

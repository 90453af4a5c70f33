//! Secrets of a config that is part of an object: each may be a reference, `{secretKeyRef: {name, key}}`, in the
//! place of its value, and a password or a private key must be one. Pure: another module reads what they refer to.

use serde::Deserialize;
use serde_json::Value;

use super::{
    problem::{Problem, Problems},
    schema::{Answer, Below, Key, Kind, ROOT},
    tree::Node,
};
use crate::model::Secret;

/// The only entry of a value that is a reference.
pub(super) const REFERENCE: &str = "secretKeyRef";

/// Keys whose value is a text that holds YAML; the value of another key of no type is YAML itself.
const TEXTS: [&str; 2] = ["addons", "config_file"];

/// A value of a config that is in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretReference {
    /// Where it stands, for people: `private_registries[0].password`.
    pub path: String,
    /// The name of the Secret.
    pub secret: String,
    /// The key of it: the key of the config where the reference names none.
    pub key: String,
    pointer: String,
    reads: Reads,
}

/// What becomes of the text of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// The line end of a single line is not part of it.
    Text,
    Lines,
    Yaml,
}

/// What a config has of secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigSecrets {
    /// Those that are references.
    pub references: Vec<SecretReference>,
    /// The paths of passwords and private keys that are in the config.
    pub inline: Vec<String>,
}

impl ConfigSecrets {
    /// Finds them in the config of an object. `Err`: references that name no Secret.
    pub fn of(config: &Value) -> Result<Self, Problems> {
        let mut found = Self::default();
        let mut problems = Vec::new();
        visit(config, &mut |place, key, value| {
            if let Some(reference) = reference(value) {
                match KeyRef::deserialize(reference) {
                    Ok(named) => found.references.push(SecretReference {
                        path: place.path.clone(),
                        secret: named.name,
                        key: named.key.unwrap_or_else(|| key.name.to_owned()),
                        pointer: place.pointer.clone(),
                        reads: place.reads(key),
                    }),
                    Err(_) => problems.push(
                        Problem::new(place.path.clone(), "is not a reference to a Secret")
                            .hint(format!("write `{REFERENCE}: {{name: NAME, key: KEY}}`")),
                    ),
                }
            } else if key.by_reference && !is_nothing(value) {
                found.inline.push(place.path.clone());
            }
        });
        match Problems::new(problems) {
            Some(problems) => Err(problems),
            None => Ok(found),
        }
    }
}

/// The names of the Secrets that a config refers to.
pub fn referred_secrets(config: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    visit(config, &mut |_, _, value| {
        let name = reference(value).and_then(|reference| reference.get("name"));
        names.extend(name.and_then(Value::as_str));
    });
    names
}

impl SecretReference {
    /// Puts the text of the Secret in the place of the reference.
    pub fn put(&self, config: &mut Value, text: &Secret<String>) {
        let Some(place) = config.pointer_mut(&self.pointer) else {
            return;
        };
        let text = text.expose();
        let line = text.strip_suffix('\n').unwrap_or(text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        // The last line of a file ends like the others.
        let line = if line.contains('\n') { text } else { line };
        *place = match self.reads {
            Reads::Text => line.into(),
            Reads::Lines => text.lines().filter(|line| !line.is_empty()).collect(),
            Reads::Yaml => match Node::from_yaml(text) {
                Ok(yaml) => yaml.to_json(),
                // The reader of the key reports that this is not what belongs there.
                Err(_) => line.into(),
            },
        };
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRef {
    name: String,
    #[serde(default)]
    key: Option<String>,
}

fn reference(value: &Value) -> Option<&Value> {
    let map = value.as_object().filter(|map| map.len() == 1);
    map.and_then(|map| map.get(REFERENCE))
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

/// Where a value stands.
#[derive(Clone, Default)]
struct Place {
    path: String,
    pointer: String,
    /// It is an item of the list of its key.
    is_item: bool,
}

impl Place {
    fn key(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            path: format!("{}{dot}{name}", self.path),
            pointer: format!("{}/{name}", self.pointer),
            is_item: false,
        }
    }

    fn item(&self, index: usize) -> Self {
        Self {
            path: format!("{}[{index}]", self.path),
            pointer: format!("{}/{index}", self.pointer),
            is_item: true,
        }
    }

    fn reads(&self, key: &Key) -> Reads {
        match key.kind {
            Kind::List if !self.is_item => Reads::Lines,
            Kind::Any | Kind::Map if !TEXTS.contains(&key.name) => Reads::Yaml,
            Kind::Text
            | Kind::Bool
            | Kind::Number
            | Kind::Duration
            | Kind::List
            | Kind::Map
            | Kind::Any
            | Kind::Section(_)
            | Kind::Each(_) => Reads::Text,
        }
    }
}

/// Every value that the table calls secret, and each item of a list of them.
fn visit<'v>(config: &'v Value, visitor: &mut impl FnMut(&Place, &Key, &'v Value)) {
    section(&Place::default(), ROOT, config, visitor);
}

fn section<'v>(
    at: &Place,
    keys: &[Key],
    value: &'v Value,
    visitor: &mut impl FnMut(&Place, &Key, &'v Value),
) {
    let read = |key: &&Key| matches!(key.answer, Answer::Used);
    for key in keys.iter().filter(read) {
        let Some(value) = value.get(key.name) else {
            continue;
        };
        let at = at.key(key.name);
        match (key.secret, key.kind.below()) {
            (true, _) => {
                visitor(&at, key, value);
                if let (Kind::List, Some(items)) = (key.kind, value.as_array()) {
                    for (index, item) in items.iter().enumerate() {
                        visitor(&at.item(index), key, item);
                    }
                }
            }
            (false, Below::Section(keys)) => section(&at, keys, value, visitor),
            (false, Below::Each(keys)) => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    section(&at.item(index), keys, item, visitor);
                }
            }
            (false, Below::Nothing) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> Value {
        json!({
            "nodes": [{"address": "192.0.2.1", "ssh_key": "PEM"}, {"address": "192.0.2.2", "ssh_key": ""}],
            "private_registries": [
                {"url": "a.example", "user": "me", "password": {"secretKeyRef": {"name": "registry"}}},
                {"url": "b.example", "user": "me", "password": "hunter2"},
            ],
            "addons": {"secretKeyRef": {"name": "addons", "key": "all.yaml"}},
            "network": {"values": {"secretKeyRef": {"name": "values"}}},
            "services": {
                "kubelet": {"extra_env": ["A=b", {"secretKeyRef": {"name": "proxy"}}]},
                "kube-api": {
                    "extra_env": {"secretKeyRef": {"name": "lines"}},
                    "secrets_encryption_config": {"enabled": true, "custom_config": {"kind": "EncryptionConfiguration"}},
                },
            },
        })
    }

    #[test]
    fn passwords_and_keys_are_found_and_what_may_hold_one_is_not() {
        let found = ConfigSecrets::of(&config()).unwrap();
        assert_eq!(
            found.inline,
            [
                "nodes[0].ssh_key",
                "services.kube-api.secrets_encryption_config.custom_config",
                "private_registries[1].password",
            ]
        );
        let references: Vec<_> = found
            .references
            .iter()
            .map(|at| (at.path.as_str(), at.secret.as_str(), at.key.as_str()))
            .collect();
        assert_eq!(
            references,
            [
                ("services.kube-api.extra_env", "lines", "extra_env"),
                ("services.kubelet.extra_env[1]", "proxy", "extra_env"),
                ("network.values", "values", "values"),
                ("addons", "addons", "all.yaml"),
                ("private_registries[0].password", "registry", "password"),
            ]
        );
        let config = config();
        let mut names = referred_secrets(&config);
        names.sort_unstable();
        assert_eq!(names, ["addons", "lines", "proxy", "registry", "values"]);
    }

    #[test]
    fn what_a_secret_has_takes_the_place_of_the_reference() {
        let mut config = config();
        for reference in ConfigSecrets::of(&config).unwrap().references {
            let text = match reference.secret.as_str() {
                "registry" => "hunter2\n",
                "lines" => "A=1\n\nB=2\n",
                "values" => "a: {b: 1}\n",
                _ => "kind: X",
            };
            reference.put(&mut config, &Secret::new(text.to_owned()));
        }
        assert_eq!(config["private_registries"][0]["password"], "hunter2");
        assert_eq!(config["network"]["values"], json!({"a": {"b": 1}}));
        assert_eq!(
            config["addons"], "kind: X",
            "several documents are no YAML value"
        );
        let services = &config["services"];
        assert_eq!(services["kube-api"]["extra_env"], json!(["A=1", "B=2"]));
        assert_eq!(services["kubelet"]["extra_env"], json!(["A=b", "kind: X"]));
        let found = ConfigSecrets::of(&config).unwrap();
        assert!(found.references.is_empty() && found.inline.len() == 4);
    }

    #[test]
    fn a_reference_of_another_form_is_named_and_not_quoted() {
        for torn in [
            json!({"secretKeyRef": "hunter2"}),
            json!({"secretKeyRef": {"key": "hunter2"}}),
            json!({"secretKeyRef": {"name": "a", "namespace": "hunter2"}}),
        ] {
            let config = json!({"private_registries": [{"password": torn}]});
            let problems = ConfigSecrets::of(&config).unwrap_err();
            let text = problems.to_string();
            assert!(text.contains("private_registries[0].password"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
        for strange in [
            json!(null),
            json!(7),
            json!([1]),
            json!({"nodes": "x", "services": [{}]}),
        ] {
            assert_eq!(
                ConfigSecrets::of(&strange),
                Ok(ConfigSecrets::default()),
                "{strange}"
            );
        }
    }
}

//! A config without the machine of its user: what it names by path stands in it, and who logs in is written. A `Cluster`
//! object or another machine reads the same out of it. The private keys are left out. Pure.

use serde_json::{Map, Value};

use crate::config::{
    Credential, Intent, Refusal, RkeConfig, Sources,
    problem::{Problem, Problems},
};

/// What logs in, wherever it stands in a config.
const KEYS: [&str; 3] = ["ssh_key", "ssh_key_path", "ssh_agent_auth"];

/// The config as a document that names no file. `intent`: what the config means here.
pub fn portable(
    config: &RkeConfig,
    intent: &Intent,
    sources: &dyn Sources,
) -> Result<Value, Problems> {
    let mut document = config.to_json();
    without_nulls(&mut document);
    let mut problems = Vec::new();
    if let Some(root) = document.as_object_mut() {
        let mut rewriting = Rewriting {
            sources,
            problems: &mut problems,
        };
        rewriting.root(root);
        root.entry("cluster_name")
            .or_insert_with(|| intent.cluster_name.clone().into());
    }
    Problems::new(problems).map_or(Ok(document), Err)
}

/// Whether two intents are the same, but for what logs in.
pub fn means_the_same(one: &Intent, other: &Intent) -> bool {
    let plain = |intent: &Intent| {
        let mut intent = intent.clone();
        let nodes = intent.nodes.values_mut().map(|node| &mut node.login);
        let bastion = intent.bastions.iter_mut().map(|bastion| &mut bastion.login);
        for login in nodes.chain(bastion) {
            login.key_source.clear();
            login.credential = Credential::Key(String::new().into(), None);
        }
        intent
    };
    plain(one) == plain(other)
}

struct Rewriting<'a> {
    sources: &'a dyn Sources,
    problems: &'a mut Vec<Problem>,
}

impl Rewriting<'_> {
    fn root(&mut self, root: &mut Map<String, Value>) {
        self.login("", root);
        self.machines("nodes", root.get_mut("nodes"));
        if let Some(bastion) = root.get_mut("bastion_host").and_then(Value::as_object_mut) {
            self.login("bastion_host.", bastion);
            if bastion.contains_key("address") {
                self.user("bastion_host.", bastion);
            }
            self.machines("bastion_host.through", bastion.get_mut("through"));
        }
        let registries = root
            .get_mut("private_registries")
            .and_then(Value::as_array_mut);
        for (index, registry) in registries.into_iter().flatten().enumerate() {
            if let Some(registry) = registry.as_object_mut() {
                let path = format!("private_registries[{index}].ca_path");
                let read = |sources: &dyn Sources, place: &str| sources.authority_at(place);
                self.inlined(&path, registry, ("ca_path", "ca"), read);
            }
        }
        self.manifests(root);
    }

    /// Each machine of a list at this path.
    fn machines(&mut self, path: &str, list: Option<&mut Value>) {
        let list = list.and_then(Value::as_array_mut);
        for (index, machine) in list.into_iter().flatten().enumerate() {
            if let Some(machine) = machine.as_object_mut() {
                let path = format!("{path}[{index}].");
                self.login(&path, machine);
                self.user(&path, machine);
            }
        }
    }

    /// Keys are left out, and a certificate of one stands in the config.
    fn login(&mut self, path: &str, of: &mut Map<String, Value>) {
        for key in KEYS {
            of.remove(key);
        }
        let path = format!("{path}ssh_cert_path");
        let read = |sources: &dyn Sources, place: &str| {
            sources
                .certificate_at(place)
                .map(|certificate| certificate.text)
        };
        self.inlined(&path, of, ("ssh_cert_path", "ssh_cert"), read);
    }

    /// Who runs this is another user elsewhere.
    fn user(&mut self, path: &str, of: &mut Map<String, Value>) {
        let written = of.get("user").and_then(Value::as_str);
        if written.is_some_and(|user| !user.is_empty()) {
            return;
        }
        match self.sources.default_user() {
            Ok(user) => {
                of.insert("user".to_owned(), user.into());
            }
            Err(refusal) => self.refused(&format!("{path}user"), refusal),
        }
    }

    /// A text in the place of its path.
    fn inlined(
        &mut self,
        path: &str,
        of: &mut Map<String, Value>,
        (from, to): (&str, &str),
        read: impl Fn(&dyn Sources, &str) -> Result<String, Refusal>,
    ) {
        let Some(place) = of.remove(from) else { return };
        let Some(place) = place.as_str().filter(|place| !place.is_empty()) else {
            return;
        };
        match read(self.sources, place) {
            Ok(text) => {
                of.insert(to.to_owned(), text.into());
            }
            Err(refusal) => self.refused(path, refusal),
        }
    }

    /// Manifests of files and URLs follow those of the config, as they are applied.
    fn manifests(&mut self, root: &mut Map<String, Value>) {
        let Some(places) = root.remove("addons_include") else {
            return;
        };
        let places: Vec<&str> = places
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let written = root.get("addons").and_then(Value::as_str);
        let mut texts: Vec<String> = written.map(str::to_owned).into_iter().collect();
        for (index, place) in places.iter().enumerate() {
            match self.sources.manifest_at(place) {
                Ok(text) => texts.push(text),
                Err(refusal) => self.refused(&format!("addons_include[{index}]"), refusal),
            }
        }
        let texts = texts.iter().map(|text| text.trim_end_matches('\n'));
        let text = texts.collect::<Vec<_>>().join("\n---\n");
        if !text.is_empty() {
            root.insert("addons".to_owned(), text.into());
        }
    }

    fn refused(&mut self, path: &str, refusal: Refusal) {
        let Refusal {
            message,
            detail,
            hint,
        } = refusal;
        self.problems.push(Problem {
            detail,
            hint,
            ..Problem::new(path, message)
        });
    }
}

/// A key without a value is a key that is not there.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            entries.retain(|_, value| !value.is_null());
            entries.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::config::resolve::tests::{Files, and};

    #[test]
    fn no_file_is_named() {
        let yaml = and("\
ssh_key_path: ~/.ssh/id_rsa
addons: |-
  {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
addons_include: [more.yaml]
services:
  kube-api:
bastion_host: {address: 192.0.2.9, ssh_key_path: ~/.ssh/id_rsa}
private_registries: [{url: reg.example, ca_path: ca.pem}]
");
        let sources = Files::new();
        let understood = |config: &RkeConfig| Intent::from_config(config, &sources).unwrap().intent;
        let config = RkeConfig::parse(&yaml).unwrap();
        let intent = understood(&config);
        let document = portable(&config, &intent, &sources).unwrap();
        assert_snapshot!(serde_json::to_string_pretty(&document).unwrap());
        // The command line reads the same out of it, wherever it runs.
        let again = understood(&RkeConfig::from_json(&document).unwrap());
        assert!(means_the_same(&intent, &again));
        let others = and("ssh_key_path: ~/.ssh/id_rsa\ncluster_name: other");
        let other = understood(&RkeConfig::parse(&others).unwrap());
        assert!(!means_the_same(&intent, &other));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let good = RkeConfig::parse(&and("")).unwrap();
        let sources = Files::new();
        let intent = Intent::from_config(&good, &sources).unwrap().intent;
        let config = RkeConfig::parse(&and("addons_include: [a.yaml, missing.yaml]")).unwrap();
        let problems = portable(&config, &intent, &sources).unwrap_err();
        assert_eq!(
            problems.to_string(),
            "the config is not valid: `addons_include[1]`: the manifest does not exist"
        );
    }
}

//! A config without the machine of its user: what it names by path stands in it, and who logs in is written. A `Cluster`
//! object or another machine reads the same out of it. The private keys are left out. Pure.

use serde_json::{Map, Value};

use crate::{
    config::{
        Bastion, Credential, Intent, NodeIntent, Refusal, RkeConfig, Sources,
        problem::{Problem, Problems},
    },
    model::{Endpoint, NodeName},
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
            intent,
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
        for node in intent.nodes.values_mut() {
            node.ssh_config.clear();
            let bastions = node.bastions.iter_mut().map(|bastion| &mut bastion.login);
            for login in std::iter::once(&mut node.login).chain(bastions) {
                login.key_source.clear();
                login.credential = Credential::Key(String::new().into(), None);
            }
        }
        intent
    };
    plain(one) == plain(other)
}

struct Rewriting<'a> {
    intent: &'a Intent,
    sources: &'a dyn Sources,
    problems: &'a mut Vec<Problem>,
}

impl Rewriting<'_> {
    fn root(&mut self, root: &mut Map<String, Value>) {
        self.login("", root);
        self.nodes(root.get_mut("nodes"));
        self.bastions(root);
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

    /// Each node, and what of it is elsewhere another one: who runs this, and what the SSH config says.
    fn nodes(&mut self, list: Option<&mut Value>) {
        let list = list.and_then(Value::as_array_mut);
        for (index, machine) in list.into_iter().flatten().enumerate() {
            if let Some(machine) = machine.as_object_mut() {
                let path = format!("nodes[{index}].");
                self.login(&path, machine);
                match self.node(machine) {
                    Some(node) => placed(machine, node),
                    None => self.user(&path, machine),
                }
            }
        }
    }

    /// As it is understood here.
    fn node(&self, machine: &Map<String, Value>) -> Option<(&NodeName, &NodeIntent)> {
        let text = |key: &str| machine.get(key).and_then(Value::as_str);
        let name = text("hostname_override").filter(|name| !name.is_empty());
        let name = name.or_else(|| {
            let address = text("address")?;
            Some(address.strip_suffix('.').unwrap_or(address))
        });
        let name = name?.to_lowercase();
        self.intent.nodes.get_key_value(&NodeName(name))
    }

    /// The way to the nodes: an object has one for all of them.
    fn bastions(&mut self, root: &mut Map<String, Value>) {
        let mut ways = self.intent.nodes.values().map(|node| &*node.bastions);
        let way = ways.next().unwrap_or_default();
        if ways.any(|other| other != way) {
            let problem = Problem::new(
                "nodes",
                "the nodes are reached through different machines (`ProxyJump` of the SSH config), and a `Cluster` \
                 object has one way to all",
            );
            let hint = "make one machine reach all of them, and write it as `bastion_host`";
            self.problems.push(problem.hint(hint));
            return;
        }
        if let Some((last, before)) = way.split_last() {
            let mut document = jump(last);
            if !before.is_empty() {
                let before = before.iter().map(|one| Value::Object(jump(one)));
                document.insert("through".to_owned(), before.collect());
            }
            root.insert("bastion_host".to_owned(), document.into());
            return;
        }
        // Without an address there is none, whatever stands there; an object has no list.
        if root.get("bastion_host").is_some_and(Value::is_array) {
            root.remove("bastion_host");
        }
        if let Some(bastion) = root.get_mut("bastion_host").and_then(Value::as_object_mut) {
            self.login("bastion_host.", bastion);
            let through = bastion.get_mut("through").and_then(Value::as_array_mut);
            for (index, machine) in through.into_iter().flatten().enumerate() {
                if let Some(machine) = machine.as_object_mut() {
                    self.login(&format!("bastion_host.through[{index}]."), machine);
                }
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

/// Where the node is and who logs in, as they are understood here.
fn placed(machine: &mut Map<String, Value>, (name, node): (&NodeName, &NodeIntent)) {
    let Endpoint { address, port } = &node.endpoint;
    let is_empty = |machine: &Map<String, Value>, key: &str| {
        let value = machine.get(key);
        value.is_none_or(|value| value.as_str() == Some(""))
    };
    if machine.get("address").and_then(Value::as_str) != Some(address.as_str()) {
        machine.insert("address".to_owned(), address.clone().into());
        if is_empty(machine, "hostname_override") {
            machine.insert("hostname_override".to_owned(), name.0.clone().into());
        }
    }
    if is_empty(machine, "port") && *port != DEFAULT_PORT {
        machine.insert("port".to_owned(), (*port).into());
    }
    if is_empty(machine, "user") {
        machine.insert("user".to_owned(), node.login.user.clone().into());
    }
    let adjacent = format!("{}-cert.pub", node.login.key_source);
    let is_adjacent = node.login.credential.certificate_source() == Some(adjacent);
    // It is named nowhere.
    if node.ssh_config.contains_key("CertificateFile") || is_adjacent {
        certified(machine, &node.login.credential);
    }
}

/// A machine on the way to the nodes.
fn jump(
    Bastion {
        endpoint,
        login,
        ssh_config: _,
    }: &Bastion,
) -> Map<String, Value> {
    let mut machine = Map::new();
    machine.insert("address".to_owned(), endpoint.address.clone().into());
    if endpoint.port != DEFAULT_PORT {
        machine.insert("port".to_owned(), endpoint.port.into());
    }
    machine.insert("user".to_owned(), login.user.clone().into());
    certified(&mut machine, &login.credential);
    machine
}

const DEFAULT_PORT: u16 = 22;

/// The certificate of the key, as text.
fn certified(machine: &mut Map<String, Value>, credential: &Credential) {
    if let Credential::Key(_, Some(certificate)) = credential {
        machine.insert("ssh_cert".to_owned(), certificate.text.clone().into());
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

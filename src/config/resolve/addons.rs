//! `addons` and `addons_include`: manifests of the user's own. Each document is read like the config itself;
//! a problem says in which document it is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use super::{Found, fits::Serving, values};
use crate::{
    catalog::accepts,
    config::{
        cursor::Cursor, manifest::Manifest, problem::Problem, sources::Sources, tree::Node,
        tree::Value,
    },
    model::{ObjectRef, Secret},
};

/// In the order of the config, of objects that stand there twice the last.
pub(super) fn read(
    root: &Cursor<'_>,
    sources: &dyn Sources,
    serving: Option<&Serving>,
    found: &mut Found,
) -> Vec<Manifest> {
    let mut objects = Vec::new();
    let at = root.get("addons");
    match at.value() {
        None | Some(Value::Null) => {}
        Some(Value::Scalar(text)) => {
            documents(&at, "", text.expose(), serving, &mut objects, found);
        }
        Some(other @ (Value::List(_) | Value::Map(_))) => {
            let problem = at.problem(format!("must be a text, not {}", other.kind()));
            found.problem(problem.hint("write `addons: |-`, and the manifests indented below it"));
        }
    }
    for (at, place) in values::texts(&root.get("addons_include"), found) {
        match sources.manifest_at(place) {
            Ok(text) => documents(&at, place, &text, serving, &mut objects, found),
            Err(refusal) => {
                let problem = Problem {
                    detail: refusal.detail,
                    hint: refusal.hint,
                    ..at.problem(refusal.message)
                };
                found.problem(problem);
            }
        }
    }
    let cluster_wide = defined_cluster_wide(&objects);
    let named: BTreeMap<ObjectRef, (usize, Map<String, Json>)> = objects
        .into_iter()
        .enumerate()
        .map(|(place, object)| {
            let (reference, object) = named(object, &cluster_wide);
            (reference, (place, object))
        })
        .collect();
    let mut named: Vec<_> = named.into_iter().collect();
    named.sort_by_key(|(_, (place, _))| *place);
    named
        .into_iter()
        .map(|(object, (_, text))| Manifest {
            object,
            text: Secret::new(Json::Object(text).to_string()),
        })
        .collect()
}

/// Group and kind of those that have no namespace.
type ClusterWide = BTreeSet<(String, String)>;

/// A line that ends a document, wherever it stands.
fn is_end(line: &str) -> bool {
    let rest = line
        .strip_prefix("---")
        .or_else(|| line.strip_prefix("..."));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r']))
}

fn documents(
    at: &Cursor<'_>,
    file: &str,
    text: &str,
    serving: Option<&Serving>,
    objects: &mut Vec<Map<String, Json>>,
    found: &mut Found,
) {
    let mut document = String::new();
    let mut number = 1;
    let mut begun = 1;
    let mut read = |number: usize, begun: usize, document: &str, found: &mut Found| {
        let place = Place {
            at,
            file,
            number,
            begun,
            serving,
        };
        place.read(document, objects, found);
    };
    for (index, line) in text.lines().enumerate() {
        if is_end(line) {
            let has_text = !document.trim().is_empty();
            read(number, begun, &document, found);
            number += usize::from(has_text);
            document.clear();
            begun = index + 2;
            // What follows on the same line belongs to the next document.
            let rest = line.strip_prefix("---").map_or("", str::trim);
            if !rest.is_empty() && !rest.starts_with('#') {
                document.push_str(rest);
                document.push('\n');
                begun = index + 1;
            }
        } else {
            document.push_str(line);
            document.push('\n');
        }
    }
    read(number, begun, &document, found);
}

/// Where a document stands.
struct Place<'a> {
    at: &'a Cursor<'a>,
    /// Empty for the config itself.
    file: &'a str,
    number: usize,
    /// Its first line in its text.
    begun: usize,
    serving: Option<&'a Serving>,
}

impl Place<'_> {
    /// Quotes neither values of a manifest nor the path of a file, because problems may be copied into a status.
    fn problem(&self, line: Option<usize>, what: &str) -> Problem {
        let line = line.map(|line| format!(", line {}", self.begun + line - 1));
        let line = line.unwrap_or_default();
        let problem = self
            .at
            .problem(format!("document {}{line}: {what}", self.number));
        if self.file.is_empty() {
            problem
        } else {
            problem.detail(self.file)
        }
    }

    fn read(&self, text: &str, objects: &mut Vec<Map<String, Json>>, found: &mut Found) {
        let node = match Node::from_yaml(text) {
            Ok(node) => node,
            Err(problems) => {
                for problem in &problems {
                    found.problem(self.problem(problem.line(), &problem.message));
                }
                return;
            }
        };
        self.object(&node, objects, found);
    }

    /// An object, or a list of objects.
    fn object(&self, node: &Node, objects: &mut Vec<Map<String, Json>>, found: &mut Found) {
        let line = node.place.as_ref().map(|place| place.line);
        let before = found.problems.len();
        match &node.value {
            Value::Null => return,
            Value::Map(_) => {}
            other @ (Value::Scalar(_) | Value::List(_)) => {
                let what = format!("must be an object of Kubernetes, not {}", other.kind());
                found.problem(self.problem(line, &what));
                return;
            }
        }
        let at = Cursor::root(node);
        let text = |at: Cursor<'_>| at.scalar().is_some_and(|text| !text.is_empty());
        for key in ["apiVersion", "kind"] {
            if !text(at.get(key)) {
                found.problem(self.problem(line, &format!("has no `{key}`")));
            }
        }
        if at
            .get("kind")
            .scalar()
            .is_some_and(|kind| kind.ends_with("List"))
            && let Some(Value::List(items)) = at.get("items").value()
        {
            for item in items {
                self.object(item, objects, found);
            }
            return;
        }
        self.served(&at, line, found);
        let metadata = at.get("metadata");
        if !text(metadata.get("name")) {
            let what = if text(metadata.get("generateName")) {
                "has a `generateName`: each run would create another object"
            } else {
                "has no `metadata.name`"
            };
            found.problem(self.problem(line, what));
        }
        let group = at.get("apiVersion").scalar().map(group_of);
        let name = metadata.get("name");
        if let (Some(group), Some(name)) = (group, name.scalar())
            && !name.is_empty()
            && !may_be_named(group, name)
        {
            let what = "`metadata.name` is not a name that Kubernetes takes";
            found.problem(self.problem(line, what));
        }
        let namespace = metadata.get("namespace");
        if namespace
            .scalar()
            .is_some_and(|text| !text.is_empty() && !values::is_dns_label(text))
        {
            let what = "`metadata.namespace` is not the name of a namespace";
            found.problem(self.problem(line, what));
        }
        for key in ["labels", "annotations"] {
            let at = metadata.get(key);
            let is_map = matches!(at.value(), None | Some(Value::Null | Value::Map(_)));
            if !is_map {
                found.problem(self.problem(line, &format!("`metadata.{key}` must be a mapping")));
            }
        }
        if found.problems.len() == before
            && let Json::Object(object) = at.json()
        {
            objects.push(object);
        }
    }
}

/// The group of `apps/v1`; that of `v1` has no name.
fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Whether an object of this group may have the name. Of groups that are not Kubernetes' own, an aggregated API server
/// decides.
fn may_be_named(group: &str, name: &str) -> bool {
    if group == "rbac.authorization.k8s.io" {
        return !matches!(name, "." | "..") && !name.contains(['/', '%']);
    }
    !accepts::is_own_group(group) || values::is_dns_name(name)
}

impl Place<'_> {
    /// Whether the API server of the release would take it.
    fn served(&self, at: &Cursor<'_>, line: Option<usize>, found: &mut Found) {
        let (version, kind) = (at.get("apiVersion"), at.get("kind"));
        let (Some(serving), Some(version), Some(kind)) =
            (self.serving, version.scalar(), kind.scalar())
        else {
            return;
        };
        if let Some(refusal) = serving.refuses(version, kind) {
            let problem = Problem {
                hint: refusal.hint,
                ..self.problem(line, &refusal.what)
            };
            serving.runs().say(problem, found);
        }
    }
}

fn text_of<'a>(object: &'a Map<String, Json>, pointer: &[&str]) -> &'a str {
    let Some((last, above)) = pointer.split_last() else {
        return "";
    };
    let mut at = Some(object);
    for key in above {
        at = at.and_then(|map| map.get(*key)?.as_object());
    }
    let text = at.and_then(|map| map.get(*last)?.as_str());
    text.unwrap_or_default()
}

/// The kinds that the manifests themselves define.
fn defined_cluster_wide(objects: &[Map<String, Json>]) -> ClusterWide {
    let definitions = objects.iter().filter(|object| {
        text_of(object, &["kind"]) == "CustomResourceDefinition"
            && text_of(object, &["spec", "scope"]) == "Cluster"
    });
    let kinds = definitions.map(|object| {
        (
            text_of(object, &["spec", "group"]).to_owned(),
            text_of(object, &["spec", "names", "kind"]).to_owned(),
        )
    });
    kinds.collect()
}

/// The kinds of Kubernetes itself that have no namespace. A group alone: all of its kinds.
const CLUSTER_WIDE: &[(&str, &[&str])] = &[
    ("", &["Namespace", "Node", "PersistentVolume"]),
    ("admissionregistration.k8s.io", &[]),
    ("apiextensions.k8s.io", &[]),
    ("apiregistration.k8s.io", &[]),
    (
        "certificates.k8s.io",
        &["CertificateSigningRequest", "ClusterTrustBundle"],
    ),
    ("flowcontrol.apiserver.k8s.io", &[]),
    (
        "networking.k8s.io",
        &["IngressClass", "IPAddress", "ServiceCIDR"],
    ),
    ("node.k8s.io", &[]),
    (
        "rbac.authorization.k8s.io",
        &["ClusterRole", "ClusterRoleBinding"],
    ),
    ("resource.k8s.io", &["DeviceClass", "ResourceSlice"]),
    ("scheduling.k8s.io", &["PriorityClass"]),
    (
        "storage.k8s.io",
        &[
            "CSIDriver",
            "CSINode",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
];

fn named(
    mut object: Map<String, Json>,
    cluster_wide: &ClusterWide,
) -> (ObjectRef, Map<String, Json>) {
    let text = |pointer: &[&str]| text_of(&object, pointer).to_owned();
    let (api_version, kind, name) = (
        text(&["apiVersion"]),
        text(&["kind"]),
        text(&["metadata", "name"]),
    );
    let namespace = text(&["metadata", "namespace"]);
    let group = group_of(&api_version);
    let of_kubernetes = CLUSTER_WIDE
        .iter()
        .any(|(of, kinds)| *of == group && (kinds.is_empty() || kinds.contains(&kind.as_str())));
    let wide = of_kubernetes || cluster_wide.contains(&(group.to_owned(), kind.clone()));
    if wide && let Some(Json::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("namespace");
    }
    // The manifest may have been exported from another cluster.
    object.remove("status");
    let namespace = match (wide, namespace.as_str()) {
        (true, _) => String::new(),
        (false, "") => "default".to_owned(),
        (false, _) => namespace,
    };
    let reference = ObjectRef {
        api_version,
        kind,
        namespace,
        name,
    };
    (reference, object)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use crate::config::resolve::tests::{and, bad, good};

    fn objects(manifests: &str) -> String {
        let indented = format!("  {}\n", manifests.replace('\n', "\n  "));
        let intent = good(&and(&format!("addons: |-\n{indented}"))).intent;
        let lines = intent
            .manifests
            .iter()
            .map(|manifest| format!("{} {}", manifest.object.namespace, manifest.text.expose()));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn manifests_are_read_as_kubectl_reads_them() {
        assert_snapshot!(objects("\
# A comment, and nothing else.
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: wide}
---
apiVersion: example.com/v1
kind: Part
metadata: {name: part}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec: {group: example.com, scope: Cluster, names: {kind: Widget}}
--- # more
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: 'yes', b: \"1\"}}
  - apiVersion: v1
    kind: ConfigMap
    metadata: {name: a, namespace: b}
    data:
      text: |-
        it is not
        --- the end
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r, namespace: default}, rules: []}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec: {replicas: 2, paused: no}
status: {replicas: 1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {last: wins}
"));
    }

    #[test]
    fn a_problem_says_in_which_document_it_is() {
        assert_snapshot!(bad(&and("\
addons: |-
  ---
  apiVersion: v1
  kind: ConfigMap
  metadata: {generateName: a}
  ---
  apiVersion: v1
  metadata: {name: hunter2, labels: hunter2}
  ---
  - hunter2
  ---
  a: [hunter2
  ---
  apiVersion: v1
  kind: List
  items: [{kind: ConfigMap, metadata: {}}]
addons_include: [missing.yaml, '']
")));
        assert_snapshot!(bad(&and("addons: [{kind: ConfigMap}]")));
    }

    #[test]
    fn names_that_no_api_server_takes_are_refused() {
        let object = |version: &str, kind: &str, metadata: &str| {
            let object =
                format!("{{apiVersion: {version}, kind: {kind}, metadata: {{{metadata}}}}}");
            and(&format!("addons: '{object}'"))
        };
        for (version, kind, metadata) in [
            ("v1", "ConfigMap", "name: A_B"),
            ("apps/v1", "Deployment", "name: a/b"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", "name: a/b"),
        ] {
            let told = bad(&object(version, kind, metadata));
            assert!(
                told.contains("is not a name that Kubernetes takes"),
                "{told}"
            );
        }
        let told = bad(&object("v1", "ConfigMap", "name: a, namespace: B"));
        assert!(told.contains("is not the name of a namespace"), "{told}");
        for (version, kind, metadata) in [
            (
                "v1",
                "ConfigMap",
                "name: kube-root-ca.crt, namespace: default",
            ),
            (
                "rbac.authorization.k8s.io/v1",
                "ClusterRole",
                "name: \"system:Mine_too\"",
            ),
            ("example.com/v1", "Part", "name: A_B"),
        ] {
            good(&object(version, kind, metadata));
        }
    }
}

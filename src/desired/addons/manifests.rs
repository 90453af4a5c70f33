//! The user's own manifests, and a record of the kinds that they have or had: objects that were removed from the
//! config are looked for among these kinds. A run does not wait for their workloads.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    config::{Intent, Manifest},
    desired::Addon,
    facts::{Actual, ApiView, ClusterFacts},
    model::{
        KINDS_RECORD, ObjectKind, ObjectRef, label, outlives_its_manifest, recorded_kinds, stamp,
    },
};

/// The add-on's name.
pub(super) const NAME: &str = label::USER_ADDONS;
/// The name of the record. It is a separate add-on, which is applied first: a run that is interrupted between
/// the two leaves no object that a later run would not find.
pub(super) const RECORD: &str = "user-addons-kinds";

/// The objects, with our label.
pub(super) fn addon(intent: &Intent) -> Option<Addon> {
    let objects = intent.manifests.iter().filter_map(object);
    let addon = Addon {
        name: NAME.to_owned(),
        objects: objects.collect(),
        workloads: Vec::new(),
    };
    (!addon.objects.is_empty()).then_some(addon)
}

fn object(manifest: &Manifest) -> Option<(ObjectRef, Value)> {
    let mut object: Value = serde_json::from_str(manifest.text.expose()).ok()?;
    object["metadata"]["labels"][label::ADDON] = NAME.into();
    stamp(&mut object);
    Some((manifest.object.clone(), object))
}

/// Every kind that an object of the user may have, as far as the config tells.
pub(super) fn kinds(intent: &Intent) -> BTreeSet<ObjectKind> {
    let kinds = intent
        .manifests
        .iter()
        .map(|manifest| manifest.object.kind());
    kinds.collect()
}

/// Wanted as long as there is an object of the user.
pub(super) fn record(intent: &Intent, have: &Actual) -> Option<Addon> {
    let mut kinds = kinds(intent);
    if let ApiView::Up(api) = have.api()
        && (!kinds.is_empty() || has_some(api))
        && let Some(record) = api.objects.get(&record_ref())
    {
        kinds.extend(recorded_kinds(record));
    }
    if kinds.is_empty() {
        return None;
    }
    let lines: Vec<_> = kinds
        .iter()
        .map(|kind| format!("{} {}\n", kind.api_version, kind.kind))
        .collect();
    let (namespace, name) = KINDS_RECORD;
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {label::ADDON: RECORD, "app.kubernetes.io/managed-by": "rke-operator"},
        },
        "data": {"kinds": lines.concat()},
    });
    stamp(&mut object);
    Some(Addon {
        name: RECORD.to_owned(),
        objects: [(record_ref(), object)].into(),
        workloads: Vec::new(),
    })
}

fn has_some(api: &ClusterFacts) -> bool {
    let mut objects = api.objects.iter();
    objects.any(|(reference, object)| {
        object["metadata"]["labels"][label::ADDON] == NAME
            && !outlives_its_manifest(reference, object)
    })
}

fn record_ref() -> ObjectRef {
    let (namespace, name) = KINDS_RECORD;
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        desired::{Desired, fixture},
        facts::ApiHealth,
        model::NodeName,
    };

    fn manifest(api_version: &str, kind: &str) -> Manifest {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
        Manifest {
            object: ObjectRef {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                namespace: "default".to_owned(),
                name: "a".to_owned(),
            },
            text: object.to_string().into(),
        }
    }

    fn have(addons: &[Addon]) -> Actual {
        let objects = addons.iter().flat_map(|addon| addon.objects.clone());
        let facts = ClusterFacts {
            objects: objects.collect(),
            ..ClusterFacts::default()
        };
        Actual {
            apis: [(NodeName::from("n1"), ApiHealth::Serving)].into(),
            cluster: Some(Box::new(facts)),
            ..Actual::default()
        }
    }

    fn told(record: Option<&Addon>) -> String {
        let objects = record
            .into_iter()
            .flat_map(|record| record.objects.values());
        let kinds = objects.map(|object| object["data"]["kinds"].as_str().unwrap_or_default());
        kinds.collect()
    }

    /// Two add-ons that keep changing the same object would never converge.
    #[test]
    fn an_object_of_a_built_in_add_on_is_refused() {
        let mut intent = fixture::intent();
        let mut own = manifest("v1", "ConfigMap");
        own.object.namespace = "kube-system".to_owned();
        own.object.name = "coredns".to_owned();
        intent.manifests = vec![manifest("v1", "Service"), own];
        let have = fixture::blank(&intent);
        let keys = fixture::reuse_or_issue(&intent, &have, 7).unwrap();
        let error = Desired::from_intent(&intent, &keys, &have).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`addons`: ConfigMap `kube-system/coredns` is an object of the add-on coredns, which would change it back"
        );
    }

    /// Until the last object is gone: a kind that is forgotten is never looked for again.
    #[test]
    fn a_kind_is_remembered_while_there_is_an_object_of_the_user() {
        let mut intent = fixture::intent();
        intent.manifests = vec![
            manifest("v1", "Service"),
            manifest("example.com/v1", "Color"),
        ];
        let applied = [
            record(&intent, &Actual::default()).unwrap(),
            addon(&intent).unwrap(),
        ];
        assert_eq!(told(applied.first()), "example.com/v1 Color\nv1 Service\n");

        intent.manifests.truncate(1);
        let both = "example.com/v1 Color\nv1 Service\n";
        assert_eq!(told(record(&intent, &have(&applied)).as_ref()), both);
        intent.manifests.clear();
        assert_eq!(addon(&intent), None);
        assert_eq!(told(record(&intent, &have(&applied)).as_ref()), both);
        assert_eq!(record(&intent, &have(&applied[..1])), None);
        assert_eq!(record(&intent, &Actual::default()), None);
    }
}

//! Applies what helm rendered.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Rendered, foreign, hook, prune, read, record};
use crate::{
    model::{AppliedObject, ChartRecord, Digest, ObjectKind, ObjectRef, label},
    workload::{
        FIELD_MANAGER, Kinds, Waiting, WorkloadError,
        kinds::{Wave, locate, wave},
        objects::patiently,
    },
};

/// How many objects of one rank are applied at once.
const WIDTH: usize = 8;

/// Namespaces that every cluster has.
const GIVEN: [&str; 2] = ["default", "kube-system"];

/// A chart that was rendered.
pub struct ChartApply<'a> {
    /// The add-on.
    pub name: &'a str,
    /// The namespace of objects that name none.
    pub namespace: &'a str,
    /// Of all that it was rendered from.
    pub digest: &'a Digest,
    /// What helm wrote, in the order in which it is applied.
    pub outputs: &'a [&'a str],
}

/// Applies a chart's objects: namespaces and definitions first, hooks in their place. Server-side apply,
/// forced: rke-operator owns the rendered fields. If another owner's object has one of the names, the chart is refused
/// before anything is written. Objects of an earlier rendering that this one does not have are pruned; those that stay
/// are returned. The record lists all objects before the first is applied, and gets the digest when all is done:
/// wherever this is interrupted, it can be repeated.
pub async fn apply_chart(
    client: &Client,
    kinds: &Kinds,
    chart: &ChartApply<'_>,
    waiting: Waiting<'_>,
) -> Result<Vec<AppliedObject>, WorkloadError> {
    let (before, _) = record::read(client, kinds, chart.name)
        .await?
        .unwrap_or_default();
    let first = before.digest.is_none();
    let rendered =
        Rendered::read(chart.outputs, first).map_err(|source| WorkloadError::Rendered {
            chart: chart.name.to_owned(),
            source,
        })?;
    let scopes = Scopes::learn(client, kinds, &rendered).await?;
    let named = |values: &[Value]| -> Vec<(ObjectRef, Value)> {
        let values = values.iter().cloned();
        values.map(|value| scopes.named(value, chart)).collect()
    };
    let namespace = (!GIVEN.contains(&chart.namespace)).then(|| namespace(chart));
    let mut objects = named(&rendered.objects);
    let namespace = namespace.map(|value| scopes.named(value, chart));
    // Some charts bring their own.
    objects.extend(namespace.filter(|(own, _)| !objects.iter().any(|(object, _)| object == own)));
    let (pre, post) = (named(&rendered.before), named(&rendered.after));

    let all = || {
        pre.iter()
            .chain(&objects)
            .chain(&post)
            .map(|(object, _)| object)
    };
    foreign::refuse(client, kinds, chart.name, &before, all()).await?;
    record::write(client, kinds, chart.name, &begun(&before, all())).await?;

    let mut applied = BTreeMap::new();
    let (foundation, others): (Vec<_>, Vec<_>) = objects.iter().cloned().partition(is_foundation);
    together(client, kinds, foundation, &mut applied).await?;
    let hooked = hooks(client, kinds, chart, &pre, &mut applied, waiting);
    Box::pin(hooked).await?;
    together(client, kinds, others, &mut applied).await?;
    let hooked = hooks(client, kinds, chart, &post, &mut applied, waiting);
    Box::pin(hooked).await?;

    let unwanted = |old: &&AppliedObject| !all().any(|object| *object == old.object);
    let unwanted: Vec<AppliedObject> = before.objects.iter().filter(unwanted).cloned().collect();
    let stay = prune::objects(client, kinds, chart.name, &unwanted).await?;
    // A hook that ran is gone again.
    let objects = all().filter(|object| !hook::is_job(object) || applied.contains_key(*object));
    let done = ChartRecord {
        digest: Some(chart.digest.clone()),
        objects: objects
            .filter_map(|object| applied.get(object).cloned())
            .collect(),
    };
    record::write(client, kinds, chart.name, &done).await?;
    Ok(stay)
}

/// What the record says while objects are applied: all that may be there.
fn begun<'a>(before: &ChartRecord, wanted: impl Iterator<Item = &'a ObjectRef>) -> ChartRecord {
    let mut objects = before.objects.clone();
    for object in wanted {
        if before.applied(object).is_none() {
            objects.push(AppliedObject {
                object: object.clone(),
                uid: String::new(),
                fields: String::new(),
            });
        }
    }
    for applied in &mut objects {
        // Whatever comes of it, it is not as it was recorded.
        applied.fields.clear();
        applied.uid.clear();
    }
    ChartRecord {
        digest: None,
        objects,
    }
}

/// What the chart's own namespace is applied as.
fn namespace(chart: &ChartApply<'_>) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chart.namespace}})
}

fn is_foundation((object, _): &(ObjectRef, Value)) -> bool {
    matches!(
        object.kind.as_str(),
        "Namespace" | "CustomResourceDefinition"
    )
}

/// Those of one wave side by side, one wave after the other.
async fn together(
    client: &Client,
    kinds: &Kinds,
    objects: Vec<(ObjectRef, Value)>,
    applied: &mut BTreeMap<ObjectRef, AppliedObject>,
) -> Result<(), WorkloadError> {
    let mut waves: BTreeMap<Wave, Vec<(ObjectRef, Value)>> = BTreeMap::new();
    for (object, value) in objects {
        let wave = waves.entry(wave(&object, &value)).or_default();
        wave.push((object, value));
    }
    for (_, objects) in waves {
        let done: Vec<AppliedObject> = stream::iter(objects)
            .map(|(object, value)| one(client, kinds, object, value))
            .buffer_unordered(WIDTH)
            .try_collect()
            .await?;
        applied.extend(done.into_iter().map(|done| (done.object.clone(), done)));
    }
    Ok(())
}

async fn one(
    client: &Client,
    kinds: &Kinds,
    object: ObjectRef,
    value: Value,
) -> Result<AppliedObject, WorkloadError> {
    let api = locate(client, kinds, &object).await?;
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&value);
    let doing = format!("apply {object}");
    let live = patiently(&doing, || api.patch(&object.name, &params, &patch)).await?;
    let live = read::of(&live.metadata);
    Ok(AppliedObject {
        object,
        uid: live.uid,
        fields: live.fields,
    })
}

async fn hooks(
    client: &Client,
    kinds: &Kinds,
    chart: &ChartApply<'_>,
    hooks: &[(ObjectRef, Value)],
    applied: &mut BTreeMap<ObjectRef, AppliedObject>,
    waiting: Waiting<'_>,
) -> Result<(), WorkloadError> {
    for (object, value) in hooks {
        let runs = hook::is_job(object);
        if runs {
            Box::pin(hook::clear(client, chart.name, object, waiting)).await?;
        }
        let done = one(client, kinds, object.clone(), value.clone()).await?;
        if runs {
            Box::pin(hook::finish(client, chart.name, object, waiting)).await?;
        } else {
            applied.insert(object.clone(), done);
        }
    }
    Ok(())
}

/// Where a Job is.
pub(super) fn place(client: &Client, object: &ObjectRef) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<Job>(&());
    Api::namespaced_with(client.clone(), &object.namespace, &resource)
}

/// Which kinds have a namespace.
struct Scopes<'a> {
    kinds: &'a Kinds,
    /// Those whose definitions are applied along with them.
    defined: BTreeMap<ObjectKind, bool>,
}

impl<'a> Scopes<'a> {
    async fn learn(
        client: &Client,
        kinds: &'a Kinds,
        rendered: &Rendered,
    ) -> Result<Self, WorkloadError> {
        let mut defined = BTreeMap::new();
        for object in rendered.all() {
            defined.extend(definition(object));
        }
        let asked: Vec<ObjectKind> = rendered
            .all()
            .map(kind)
            .filter(|kind| !defined.contains_key(kind))
            .collect();
        patiently("look up the kinds of a chart", || {
            kinds.learn(client, &asked)
        })
        .await?;
        Ok(Self { kinds, defined })
    }

    /// An object under its name, with our label. What helm renders for a namespace often does not name
    /// it.
    fn named(&self, mut value: Value, chart: &ChartApply<'_>) -> (ObjectRef, Value) {
        let kind = kind(&value);
        let defined = self.defined.get(&kind).copied();
        let namespaced =
            defined.or_else(|| self.kinds.get(&kind).map(|known| known.has_namespace()));
        let metadata = &mut value["metadata"];
        metadata["labels"][label::CHART] = chart.name.into();
        // An unknown kind is refused when it is applied.
        if namespaced.unwrap_or(true) {
            let own = metadata["namespace"].as_str().unwrap_or_default();
            if own.is_empty() {
                metadata["namespace"] = chart.namespace.into();
            }
        } else if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("namespace");
        }
        let text = |name: &str| metadata_text(&value, name);
        let object = ObjectRef {
            namespace: text("namespace"),
            name: text("name"),
            api_version: kind.api_version,
            kind: kind.kind,
        };
        (object, value)
    }
}

fn metadata_text(value: &Value, name: &str) -> String {
    value["metadata"][name]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn kind(object: &Value) -> ObjectKind {
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    ObjectKind {
        api_version: text("apiVersion"),
        kind: text("kind"),
    }
}

/// The kinds that a definition brings, and whether they have a namespace.
fn definition(object: &Value) -> Vec<(ObjectKind, bool)> {
    if object["kind"] != "CustomResourceDefinition" {
        return Vec::new();
    }
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions
        .map(|version| {
            let kind = ObjectKind {
                api_version: format!("{}/{}", text(&spec["group"]), text(&version["name"])),
                kind: text(&spec["names"]["kind"]),
            };
            (kind, spec["scope"] == "Namespaced")
        })
        .collect()
}

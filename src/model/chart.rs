//! What is kept in the cluster about a chart: what it was rendered from, and what was applied. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Digest, ObjectRef, label};

/// Where the records are.
const NAMESPACE: &str = "kube-system";

/// An object of a chart, as it was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedObject {
    /// Which.
    #[serde(flatten)]
    pub object: ObjectRef,
    /// Its uid; empty while it is only about to be applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Digest of the names of the fields that rke-operator owns, from the object's managed fields: another client
    /// that changes one of these fields takes it over. Empty where the server did not report them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fields: String,
}

/// A chart's record: a `ConfigMap`. It lists objects before they are applied, so that none can be
/// forgotten, and has a digest when all of them were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartRecord {
    /// Of everything that the objects were rendered from; `None` while they are being applied.
    pub digest: Option<Digest>,
    /// What is or may be in the cluster, in the order in which it is applied.
    pub objects: Vec<AppliedObject>,
}

impl ChartRecord {
    /// The record's own object.
    pub fn object(chart: &str) -> ObjectRef {
        ObjectRef {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: NAMESPACE.to_owned(),
            name: format!("rke-operator-chart-{chart}"),
        }
    }

    /// The chart whose record an object is, if it is one.
    pub fn chart_of(object: &ObjectRef, value: &Value) -> Option<String> {
        let chart = value["metadata"]["labels"][label::CHART].as_str()?;
        (*object == Self::object(chart)).then(|| chart.to_owned())
    }

    /// As the cluster keeps it.
    pub fn to_value(&self, chart: &str) -> Value {
        let ObjectRef {
            api_version,
            kind,
            namespace,
            name,
        } = Self::object(chart);
        let objects = serde_json::to_string(&self.objects).unwrap_or_default();
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {
                    (label::ADDON): chart,
                    (label::CHART): chart,
                    "app.kubernetes.io/managed-by": "rke-operator",
                },
            },
            "data": {
                "digest": self.digest.as_ref().map_or("", |digest| &digest.0),
                "objects": objects,
            },
        })
    }

    /// As it was kept. One that cannot be read says nothing of what was applied.
    pub fn from_value(value: &Value) -> Self {
        let text = |field: &str| value["data"][field].as_str().unwrap_or_default();
        let Ok(objects) = serde_json::from_str(text("objects")) else {
            return Self::default();
        };
        let digest = Some(text("digest")).filter(|digest| !digest.is_empty());
        Self {
            digest: digest.map(|digest| Digest(digest.to_owned())),
            objects,
        }
    }

    /// What is in the cluster under this name, as it was applied.
    pub fn applied(&self, object: &ObjectRef) -> Option<&AppliedObject> {
        self.objects
            .iter()
            .find(|applied| applied.object == *object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> ChartRecord {
        let object = |name: &str, uid: &str| AppliedObject {
            object: ObjectRef {
                name: name.to_owned(),
                ..ChartRecord::object("other")
            },
            uid: uid.to_owned(),
            fields: String::new(),
        };
        ChartRecord {
            digest: Some(Digest("abc".to_owned())),
            objects: vec![object("b", "1"), object("a", "")],
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let unfinished = ChartRecord {
            digest: None,
            ..record()
        };
        for record in [record(), unfinished, ChartRecord::default()] {
            let value = record.to_value("canal");
            assert_eq!(ChartRecord::from_value(&value), record);
            let own = ChartRecord::object("canal");
            assert_eq!(
                ChartRecord::chart_of(&own, &value).as_deref(),
                Some("canal")
            );
            let other = ChartRecord::object("nginx");
            assert_eq!(ChartRecord::chart_of(&other, &value), None);
        }
    }

    #[test]
    fn a_record_that_cannot_be_read_is_none() {
        let mut value = record().to_value("canal");
        value["data"]["objects"] = "[{".into();
        assert_eq!(ChartRecord::from_value(&value), ChartRecord::default());
    }
}

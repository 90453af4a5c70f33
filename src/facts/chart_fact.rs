//! A chart as the cluster has it: its record, and what became of the objects that it lists. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::model::{ChartRecord, ObjectRef};

/// What the API says of an object of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveObject {
    /// Its uid.
    pub uid: String,
    /// See [`AppliedObject::fields`](crate::model::AppliedObject::fields).
    pub fields: String,
}

/// A chart that was applied, to its end or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartFact {
    /// The record's own uid.
    pub uid: String,
    /// What was applied.
    pub record: ChartRecord,
    /// Recorded objects that are missing, or that others re-created.
    pub gone: BTreeSet<ObjectRef>,
    /// Recorded objects with fields that we set and another client has taken over.
    pub changed: BTreeSet<ObjectRef>,
    /// The `DaemonSet`s and `Deployment`s, as they are.
    pub workloads: BTreeMap<ObjectRef, Value>,
}

impl ChartFact {
    /// Compares what was recorded with what is there. What the server does not tell is no difference.
    pub fn new(
        uid: String,
        record: ChartRecord,
        live: &BTreeMap<ObjectRef, LiveObject>,
        workloads: BTreeMap<ObjectRef, Value>,
    ) -> Self {
        let mut gone = BTreeSet::new();
        let mut changed = BTreeSet::new();
        for applied in &record.objects {
            let told = |is: &str, was: &str| !was.is_empty() && !is.is_empty() && is != was;
            match live.get(&applied.object) {
                None => {
                    gone.insert(applied.object.clone());
                }
                Some(live) if told(&live.uid, &applied.uid) => {
                    gone.insert(applied.object.clone());
                }
                // Where nothing is ours any more, others have taken all of it.
                Some(live) if !applied.fields.is_empty() && live.fields != applied.fields => {
                    changed.insert(applied.object.clone());
                }
                Some(_) => {}
            }
        }
        Self {
            uid,
            record,
            gone,
            changed,
            workloads,
        }
    }
}

/// True for what has pods that are waited for.
pub fn is_workload(object: &ObjectRef) -> bool {
    object.api_version == "apps/v1" && matches!(object.kind.as_str(), "DaemonSet" | "Deployment")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AppliedObject;

    #[test]
    fn missing_re_created_and_taken_over_objects_are_found() {
        let object = |name: &str| ObjectRef {
            name: name.to_owned(),
            ..ChartRecord::object("x")
        };
        let applied = |name: &str| AppliedObject {
            object: object(name),
            uid: "1".to_owned(),
            fields: "f".to_owned(),
        };
        let live = |name: &str, uid: &str, fields: &str| {
            let (uid, fields) = (uid.to_owned(), fields.to_owned());
            (object(name), LiveObject { uid, fields })
        };
        let record = ChartRecord {
            digest: None,
            objects: ["same", "gone", "recreated", "taken"].map(applied).to_vec(),
        };
        let live = [
            live("same", "1", "f"),
            live("recreated", "2", "f"),
            live("taken", "1", ""),
            live("others", "1", "f"),
        ];
        let fact = ChartFact::new("0".to_owned(), record, &live.into(), [].into());
        assert_eq!(fact.gone, ["gone", "recreated"].map(object).into());
        assert_eq!(fact.changed, ["taken"].map(object).into());
    }
}

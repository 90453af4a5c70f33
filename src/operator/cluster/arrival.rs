//! What a `Cluster` that changed, or whose time has come, needs first: by what the watch knows of it.

use std::time::Duration;

use kube::api::DynamicObject;

use crate::operator::{
    cluster_object::ClusterObject,
    queue::{Arrival, Cause, Class},
};

/// How long nothing more is written to an edited object before it is reconciled.
const COALESCED: Duration = Duration::from_secs(2);

/// An object that is edited again and again is reconciled all the same.
const COALESCED_AT_MOST: Duration = Duration::from_secs(10);

/// What the object needs.
pub(in crate::operator) fn arrival(object: &DynamicObject, cause: Cause) -> Arrival {
    let view = ClusterObject::new(object.clone());
    let is_deleted = view.deleted_at().is_some();
    // All else begins with what it can do without a slot: to validate, to wait, to let go.
    let class = if is_deleted || cause == Cause::Reference || !view.is_settled() {
        Class::Brief
    } else {
        Class::Look
    };
    let settles = cause == Cause::Changed && view.is_edited() && !is_deleted;
    Arrival {
        class,
        nodes: view.node_count(),
        hangs: view.has_silent_nodes(),
        settles: settles.then_some((COALESCED, COALESCED_AT_MOST)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::RECONCILE_AT;

    fn settled() -> Value {
        json!({
            "metadata": {"name": "a", "generation": 2},
            "spec": {"config": {"nodes": [{}, {}]}},
            "status": {
                "observedGeneration": 2,
                "lastHandledReconcileAt": "1",
                "conditions": [{
                    "type": "Provisioned", "status": "True", "reason": "Provisioned", "message": "",
                    "lastTransitionTime": "2030-01-01T00:00:00Z", "observedGeneration": 2,
                }],
            },
        })
    }

    fn of(object: Value, cause: Cause) -> Arrival {
        arrival(&serde_json::from_value(object).unwrap(), cause)
    }

    #[test]
    fn only_a_settled_cluster_is_looked_at_without_more() {
        let with = |edit: &dyn Fn(&mut Value)| {
            let mut object = settled();
            edit(&mut object);
            object
        };
        let annotated = |value: &str| {
            let value = json!({ RECONCILE_AT: value });
            with(&|object| object["metadata"]["annotations"] = value.clone())
        };
        for cause in [Cause::Changed, Cause::Due] {
            let now = of(settled(), cause);
            assert_eq!((now.class, now.nodes), (Class::Look, 2));
            assert!(!now.hangs && now.settles.is_none());
            assert_eq!(of(annotated("1"), cause).class, Class::Look);
            for other in [
                with(&|object| object["metadata"]["generation"] = json!(3)),
                with(&|object| object["status"] = Value::Null),
                with(&|object| object["status"]["conditions"] = json!([])),
                with(&|object| {
                    object["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
                }),
                annotated("2"),
            ] {
                assert_eq!(of(other.clone(), cause).class, Class::Brief, "{other}");
            }
        }
        assert_eq!(of(settled(), Cause::Reference).class, Class::Brief);
    }

    /// The first version of an object and a deletion begin at once.
    #[test]
    fn an_edit_is_waited_for_the_end_of() {
        let mut edited = settled();
        edited["metadata"]["generation"] = json!(3);
        let settles = |object: &Value, cause| of(object.clone(), cause).settles.is_some();
        assert!(settles(&edited, Cause::Changed));
        assert!(!settles(&edited, Cause::Due), "it was waited for");
        edited["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        assert!(!settles(&edited, Cause::Changed));
        assert!(!settles(
            &json!({"metadata": {"generation": 1}}),
            Cause::Changed
        ));
    }
}

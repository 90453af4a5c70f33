//! Merge patches and server-side apply, as far as field ownership matters to us.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// A field, by its keys from the root.
pub(super) type Path = Vec<String>;

/// RFC 7386.
pub(super) fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let map = into.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The fields that an applied body owns: everything but what names the object. Lists are owned
/// as a whole.
pub(super) fn fields(body: &Value) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    leaves(body, &mut Vec::new(), &mut found);
    found.retain(|path| {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        !matches!(
            path.as_slice(),
            ["apiVersion" | "kind" | "metadata"]
                | ["metadata", "name" | "namespace" | "uid" | "resourceVersion"]
        )
    });
    found
}

fn leaves(value: &Value, at: &mut Path, found: &mut BTreeSet<Path>) {
    match value.as_object() {
        Some(map) if !map.is_empty() => {
            for (key, value) in map {
                at.push(key.clone());
                leaves(value, at, found);
                at.pop();
            }
        }
        _ => {
            found.insert(at.clone());
        }
    }
}

/// What stands at a path.
pub(super) fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// Sets what a body has, field by field.
pub(super) fn apply(object: &mut Value, body: &Value, fields: &BTreeSet<Path>) {
    for path in fields {
        let value = at(body, path).unwrap().clone();
        let mut place = &mut *object;
        for key in path {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            let map = place.as_object_mut().unwrap();
            place = map.entry(key.clone()).or_insert(Value::Null);
        }
        // An empty map is owned, and does not take away what others have in it.
        if !(value.as_object().is_some_and(Map::is_empty) && place.is_object()) {
            *place = value;
        }
    }
}

/// Takes a field away, and the maps that are empty without it.
pub(super) fn remove(object: &mut Value, path: &[String]) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    match path {
        [] => {}
        [last] => {
            map.remove(last);
        }
        [first, rest @ ..] => {
            if let Some(inner) = map.get_mut(first) {
                remove(inner, rest);
                if inner.as_object().is_some_and(Map::is_empty) {
                    map.remove(first);
                }
            }
        }
    }
}

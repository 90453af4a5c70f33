//! The state of the fake: objects, their versions, who owns which field, and what happened.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    kinds::{Kind, kinds},
    patch::{self, Path},
    schema,
};

/// Names an object: index of its kind, namespace (empty: none), name.
pub(super) type Key = (usize, String, String);

/// A refusal, as the API tells it.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

pub(super) fn refused(code: u16, message: impl Into<String>) -> Refused {
    let reason = match code {
        400 => "BadRequest",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    Refused {
        code,
        reason,
        message: message.into(),
    }
}

/// Something that a watch tells.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) key: Key,
    pub(super) what: &'static str,
    pub(super) object: Value,
    pub(super) at: tokio::time::Instant,
}

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Main,
    Status,
}

/// How an object is written.
pub(super) enum Write {
    /// PUT.
    Replace(Value),
    /// A merge patch.
    Merge(Value),
    /// A merge patch that the schema does not see.
    Past(Value),
    /// Server-side apply.
    Apply {
        body: Value,
        manager: String,
        force: bool,
    },
}

#[derive(Default)]
pub(super) struct State {
    pub(super) kinds: Vec<Kind>,
    pub(super) version: u64,
    pub(super) objects: BTreeMap<Key, Value>,
    pub(super) log: Vec<Change>,
    /// Fields by object, manager and part.
    owned: BTreeMap<(Key, String, Part), BTreeSet<Path>>,
    made: u64,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            kinds: kinds(),
            ..Self::default()
        }
    }

    pub(super) fn get(&self, key: &Key) -> Result<&Value, Refused> {
        self.objects.get(key).ok_or_else(|| {
            let plural = self.kinds[key.0].plural;
            refused(404, format!("{plural} \"{}\" not found", key.2))
        })
    }

    /// Puts an object there as it is, whatever the schema says: one that an older definition
    /// let in.
    pub(super) fn plant(&mut self, key: Key, mut object: Value, now: Timestamp) -> Value {
        self.birth(&key, &mut object, now);
        self.commit(key, object, "ADDED")
    }

    pub(super) fn create(
        &mut self,
        key: Key,
        mut object: Value,
        now: Timestamp,
    ) -> Result<Value, Refused> {
        if self.objects.contains_key(&key) {
            let mut conflict = refused(409, format!("\"{}\" already exists", key.2));
            conflict.reason = "AlreadyExists";
            return Err(conflict);
        }
        if self.kinds[key.0].has_status
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        self.birth(&key, &mut object, now);
        let object = self.admit(&key, object, None)?;
        Ok(self.commit(key, object, "ADDED"))
    }

    fn birth(&mut self, key: &Key, object: &mut Value, now: Timestamp) {
        self.made += 1;
        let kind = &self.kinds[key.0];
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.kind.into();
        let meta = &mut object["metadata"];
        meta["name"] = key.2.clone().into();
        if kind.namespaced {
            meta["namespace"] = key.1.clone().into();
        }
        meta["uid"] = format!("00000000-0000-4000-8000-{:012x}", self.made).into();
        meta["creationTimestamp"] = format!("{now:.0}").into();
        meta["generation"] = 1.into();
        if let Some(strings) = object.as_object_mut().and_then(|o| o.remove("stringData")) {
            for (name, text) in strings.as_object().unwrap() {
                use base64::Engine;
                let data = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap());
                object["data"][name] = data.into();
            }
        }
    }

    fn admit(&self, key: &Key, object: Value, old: Option<&Value>) -> Result<Value, Refused> {
        match &self.kinds[key.0].schema {
            // What the server lets a ConfigMap or Secret hold.
            None if object["data"].to_string().len() > 1024 * 1024 => Err(refused(
                422,
                "data: Too long: must have at most 1048576 bytes",
            )),
            None => Ok(object),
            Some(schema) => {
                schema::admit(schema, object, old).map_err(|message| refused(422, message))
            }
        }
    }

    pub(super) fn write(
        &mut self,
        key: &Key,
        part: Part,
        write: Write,
        now: Timestamp,
        dry_run: bool,
    ) -> Result<Value, Refused> {
        let old = match (self.objects.get(key), &write) {
            (Some(old), _) => old.clone(),
            (None, Write::Apply { .. }) if part == Part::Main && !dry_run => {
                return self.apply_new(key, write, now);
            }
            (None, _) => return Err(self.get(key).unwrap_err()),
        };
        let mut next = old.clone();
        let mut owns = None;
        let judged = !matches!(write, Write::Past(_));
        match write {
            Write::Replace(body) => next = body,
            Write::Merge(body) | Write::Past(body) => patch::merge(&mut next, &body),
            Write::Apply {
                body,
                manager,
                force,
            } => {
                Self::identity(&old, &body)?;
                owns = Some(self.apply(key, part, &mut next, &body, manager, force)?);
            }
        }
        Self::identity(&old, &next)?;
        let next = self.settle(key, part, &old, next, judged)?;
        if dry_run {
            return Ok(next);
        }
        if let Some((owner, fields)) = owns {
            self.owned.insert(owner, fields);
        }
        if next == old {
            return Ok(old);
        }
        let gone = !next["metadata"]["deletionTimestamp"].is_null()
            && next["metadata"]["finalizers"]
                .as_array()
                .is_none_or(Vec::is_empty);
        if gone {
            self.objects.insert(key.clone(), next);
            return Ok(self.erase(key));
        }
        Ok(self.commit(key.clone(), next, "MODIFIED"))
    }

    fn apply_new(&mut self, key: &Key, write: Write, now: Timestamp) -> Result<Value, Refused> {
        let Write::Apply { body, manager, .. } = write else {
            unreachable!("only applies create")
        };
        let mut fields = patch::fields(&body);
        fields.retain(|path| path[0] != "status");
        let made = self.create(key.clone(), body, now)?;
        self.owned
            .insert((key.clone(), manager, Part::Main), fields);
        Ok(made)
    }

    /// A write for another object of the same name, or for an older version, is a conflict.
    pub(super) fn identity(old: &Value, next: &Value) -> Result<(), Refused> {
        for field in ["uid", "resourceVersion"] {
            let (old, next) = (&old["metadata"][field], &next["metadata"][field]);
            if !next.is_null() && next != old {
                let message = format!("the object has been modified: {field} is {old}, not {next}");
                return Err(refused(409, message));
            }
        }
        Ok(())
    }

    #[expect(clippy::type_complexity, reason = "used once")]
    fn apply(
        &self,
        key: &Key,
        part: Part,
        next: &mut Value,
        body: &Value,
        manager: String,
        force: bool,
    ) -> Result<((Key, String, Part), BTreeSet<Path>), Refused> {
        let mut fields = patch::fields(body);
        if self.kinds[key.0].has_status {
            fields.retain(|path| (path[0] == "status") == (part == Part::Status));
        }
        if !force {
            for ((of, other, _), theirs) in &self.owned {
                let clash = fields.intersection(theirs).find(|path| {
                    of == key && *other != manager && patch::at(next, path) != patch::at(body, path)
                });
                if let Some(path) = clash {
                    let message = format!("conflict with \"{other}\": .{}", path.join("."));
                    return Err(refused(409, message));
                }
            }
        }
        let owner = (key.clone(), manager, part);
        for path in self.owned.get(&owner).into_iter().flatten() {
            if !fields.contains(path) {
                patch::remove(next, path);
            }
        }
        patch::apply(next, body, &fields);
        Ok((owner, fields))
    }

    /// What a write cannot change, and what follows from it.
    fn settle(
        &self,
        key: &Key,
        part: Part,
        old: &Value,
        mut next: Value,
        judged: bool,
    ) -> Result<Value, Refused> {
        let kind = &self.kinds[key.0];
        let mut object = old.clone();
        match part {
            Part::Status => put(&mut object, "status", next.get("status").cloned()),
            Part::Main => {
                let status = old.get("status").cloned();
                for field in [
                    "uid",
                    "creationTimestamp",
                    "generation",
                    "name",
                    "namespace",
                    "deletionTimestamp",
                    "deletionGracePeriodSeconds",
                    "resourceVersion",
                ] {
                    let was = old["metadata"].get(field).cloned();
                    put(&mut next["metadata"], field, was);
                }
                next["apiVersion"] = old["apiVersion"].clone();
                next["kind"] = old["kind"].clone();
                if kind.has_status {
                    put(&mut next, "status", status);
                }
                object = next;
            }
        }
        let mut object = if judged {
            self.admit(key, object, Some(old))?
        } else {
            object
        };
        prune_empty_meta(&mut object);
        if !old["metadata"]["deletionTimestamp"].is_null() {
            let had = old["metadata"]["finalizers"].as_array();
            let has = object["metadata"]["finalizers"].as_array();
            let added = has
                .into_iter()
                .flatten()
                .any(|finalizer| had.is_none_or(|had| !had.contains(finalizer)));
            if added {
                return Err(refused(
                    422,
                    "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted",
                ));
            }
        }
        if part == Part::Main && body(&object) != body(old) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            object["metadata"]["generation"] = (generation + 1).into();
        }
        Ok(object)
    }

    /// DELETE: marks what has finalizers, erases the rest, and what it owns.
    pub(super) fn delete(&mut self, key: &Key, now: Timestamp) -> Result<Value, Refused> {
        let mut object = self.get(key)?.clone();
        let held = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|f| !f.is_empty());
        if !held {
            return Ok(self.erase(key));
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            let generation = object["metadata"]["generation"]
                .as_i64()
                .unwrap_or_default();
            object["metadata"]["deletionTimestamp"] = format!("{now:.0}").into();
            object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            object["metadata"]["generation"] = (generation + 1).into();
            object = self.commit(key.clone(), object, "MODIFIED");
        }
        Ok(object)
    }

    /// The object is gone, and with it what no other owner holds: the garbage collector is
    /// immediate here.
    fn erase(&mut self, key: &Key) -> Value {
        let object = self.objects.remove(key).unwrap();
        self.owned.retain(|(of, _, _), _| of != key);
        let object = self.note(key.clone(), object, "DELETED");
        let uid = &object["metadata"]["uid"];
        let orphans: Vec<Key> = self
            .objects
            .iter()
            .filter(|(_, other)| {
                other["metadata"]["ownerReferences"]
                    .as_array()
                    .is_some_and(|owners| owners.len() == 1 && owners[0]["uid"] == *uid)
            })
            .map(|(key, _)| key.clone())
            .collect();
        for orphan in orphans {
            // A refusal is impossible: it was there a moment ago.
            let _ = self.delete(&orphan, Timestamp::UNIX_EPOCH);
        }
        object
    }

    fn commit(&mut self, key: Key, object: Value, what: &'static str) -> Value {
        let object = self.note(key.clone(), object, what);
        self.objects.insert(key, object.clone());
        object
    }

    fn note(&mut self, key: Key, mut object: Value, what: &'static str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.log.push(Change {
            version: self.version,
            key,
            what,
            object: object.clone(),
            at: tokio::time::Instant::now(),
        });
        object
    }
}

fn put(object: &mut Value, field: &str, value: Option<Value>) {
    if !object.is_object() {
        *object = json!({});
    }
    let map = object.as_object_mut().unwrap();
    match value {
        Some(value) => {
            map.insert(field.to_owned(), value);
        }
        None => {
            map.remove(field);
        }
    }
}

/// Everything whose change is a new generation.
fn body(object: &Value) -> Map<String, Value> {
    let mut map = object.as_object().unwrap().clone();
    map.remove("metadata");
    map.remove("status");
    map
}

fn prune_empty_meta(object: &mut Value) {
    let meta = object["metadata"].as_object_mut().unwrap();
    meta.retain(|_, value| {
        !value.as_array().is_some_and(Vec::is_empty)
            && !value.as_object().is_some_and(Map::is_empty)
    });
}

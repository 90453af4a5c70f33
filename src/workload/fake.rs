//! A small API server for tests: objects by path, resourceVersions, conflicts, server-side apply
//! as a merge, watches. Strict where our code could cheat: an old resourceVersion is 409, an
//! unknown path is 404.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use tokio::sync::broadcast;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The server.
#[derive(Clone)]
pub(crate) struct FakeApi {
    inner: Arc<Mutex<Inner>>,
    changes: broadcast::Sender<(String, Value)>,
}

struct Inner {
    objects: BTreeMap<String, Value>,
    version: u64,
    log: Vec<String>,
    ready: Result<(), String>,
    refusals: BTreeMap<String, Vec<u16>>,
    namespaces: Option<BTreeSet<String>>,
    noted: BTreeSet<String>,
    delays: BTreeMap<String, Duration>,
    logs: BTreeMap<String, String>,
    /// What changed, and at which version: a watch begins where its list ended.
    history: Vec<(u64, String, Value)>,
}

impl FakeApi {
    pub(crate) fn new() -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                objects: BTreeMap::new(),
                version: 1,
                log: Vec::new(),
                ready: Ok(()),
                refusals: BTreeMap::new(),
                namespaces: None,
                noted: BTreeSet::new(),
                delays: BTreeMap::new(),
                logs: BTreeMap::new(),
                history: Vec::new(),
            })),
            changes: broadcast::channel(64).0,
        }
    }

    /// A client without a transport.
    pub(crate) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Puts an object at a path, as its controller would.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut inner = self.inner.lock().unwrap();
        inner.version += 1;
        object["metadata"]["resourceVersion"] = inner.version.to_string().into();
        let name = path.rsplit('/').next().unwrap();
        object["metadata"]["name"] = name.into();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = format!("uid-{}", inner.version).into();
        }
        if let Some((_, rest)) = path.split_once("/namespaces/")
            && let Some((namespace, _)) = rest.split_once('/')
        {
            object["metadata"]["namespace"] = namespace.into();
        }
        let known = inner.objects.insert(path.to_owned(), object.clone());
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        let event = json!({ "type": kind, "object": object });
        self.tell(&mut inner, path, event);
    }

    /// Deletes an object, and reports it to the watches.
    fn delete(&self, path: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.version += 1;
        if let Some(mut object) = inner.objects.remove(path) {
            object["metadata"]["resourceVersion"] = inner.version.to_string().into();
            let event = json!({ "type": "DELETED", "object": object });
            self.tell(&mut inner, path, event);
        }
    }

    fn tell(&self, inner: &mut Inner, path: &str, event: Value) {
        let change = (inner.version, path.to_owned(), event.clone());
        inner.history.push(change);
        let _ = self.changes.send((path.to_owned(), event));
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.inner.lock().unwrap().objects.get(path).cloned()
    }

    /// Takes an object away without telling anybody.
    pub(crate) fn forget(&self, path: &str) {
        self.inner.lock().unwrap().objects.remove(path);
    }

    /// The next answers to requests of this method and path are these codes.
    pub(crate) fn refuse(&self, request: &str, codes: &[u16]) {
        let mut inner = self.inner.lock().unwrap();
        inner.refusals.insert(request.to_owned(), codes.to_vec());
    }

    /// What the containers of a pod have written.
    pub(crate) fn log_of(&self, pod: &str, text: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.logs.insert(format!("{pod}/log"), text.to_owned());
    }

    /// Requests whose path ends so are answered after this time.
    pub(crate) fn delay(&self, path_end: &str, by: Duration) {
        let mut inner = self.inner.lock().unwrap();
        inner.delays.insert(path_end.to_owned(), by);
    }

    pub(crate) fn not_ready(&self, why: &str) {
        self.inner.lock().unwrap().ready = Err(why.to_owned());
    }

    /// What was asked: `GET /path`.
    pub(crate) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.inner.lock().unwrap().log)
    }

    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Answer
    where
        B: Body,
        B::Error: std::fmt::Debug,
    {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = parts.uri.path().to_owned();
        let delays = self.inner.lock().unwrap().delays.clone();
        if let Some((_, by)) = delays.iter().find(|(end, _)| path.ends_with(*end)) {
            tokio::time::sleep(*by).await;
        }
        let query: BTreeMap<String, String> = parts
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| {
                (
                    key.to_owned(),
                    value.replace("%3D", "=").replace("%2F", "/"),
                )
            })
            .collect();
        let mut inner = self.inner.lock().unwrap();
        let line = format!("{} {path}", parts.method);
        inner.log.push(line.clone());
        if let Some(codes) = inner.refusals.get_mut(&line)
            && !codes.is_empty()
        {
            return status(codes.remove(0), "refused by the test");
        }
        match (&parts.method, path.as_str()) {
            (_, "/readyz") => match &inner.ready {
                Ok(()) => text(StatusCode::OK, "ok"),
                Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, why),
            },
            (_, "/version") => ok(&json!({
                "major": "1", "minor": "34", "gitVersion": "v1.34.4", "gitCommit": "",
                "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "",
                "platform": "",
            })),
            (&Method::GET, path) if inner.logs.contains_key(path) => {
                text(StatusCode::OK, &inner.logs[path])
            }
            (&Method::GET, path) if resources(path).is_some() => {
                ok(&resources(path).unwrap_or_default())
            }
            (&Method::GET, path) if query.contains_key("watch") => self.watch(&inner, path, &query),
            (&Method::GET, path) if is_collection(path) => ok(&inner.list(path, &query)),
            (&Method::GET, path) => match inner.objects.get(path) {
                Some(object) => ok(object),
                None => status(404, "not found"),
            },
            (method, path) => {
                let method = method.clone();
                let path = path.strip_suffix("/status").unwrap_or(path).to_owned();
                drop(inner);
                let media = parts.headers.get("content-type");
                let media = media.map(|media| media.to_str().unwrap().to_owned());
                let media = media.unwrap_or_default();
                if query.contains_key("dryRun") {
                    let live = self.get(&path).unwrap_or_default();
                    let patch = serde_json::from_slice(&body).unwrap_or_default();
                    return ok(&merged(live, &patch));
                }
                self.write(&method, &path, &media, &body)
            }
        }
    }

    fn write(&self, method: &Method, path: &str, media: &str, body: &[u8]) -> Answer {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if let Some(pod) = path.strip_suffix("/eviction") {
            self.delete(pod);
            return ok(&json!({ "kind": "Status", "status": "Success" }));
        }
        let path = if *method == Method::POST {
            format!("{path}/{}", body["metadata"]["name"].as_str().unwrap())
        } else {
            path.to_owned()
        };
        let live = self.get(&path);
        let expected = &body["metadata"]["resourceVersion"];
        let stale =
            |live: &Value| !expected.is_null() && *expected != live["metadata"]["resourceVersion"];
        let next = match (method.as_str(), live) {
            ("POST", Some(_)) => return status(409, "AlreadyExists"),
            ("PUT" | "PATCH" | "DELETE", Some(live)) if stale(&live) => {
                return status(409, "Conflict");
            }
            ("PUT" | "DELETE", None) => return status(404, "not found"),
            ("DELETE", Some(live)) => {
                let differs = ["uid", "resourceVersion"].into_iter().any(|field| {
                    let wanted = &body["preconditions"][field];
                    !wanted.is_null() && *wanted != live["metadata"][field]
                });
                if differs {
                    return status(409, "Conflict");
                }
                self.delete(&path);
                return ok(&json!({ "kind": "Status", "status": "Success" }));
            }
            ("PATCH", None) if !media.contains("apply-patch") => return status(404, "not found"),
            ("PATCH", None) if !self.namespace_is_there(&path) => {
                return status(404, "namespace not found");
            }
            ("PATCH", None) if self.address_is_taken(&body) => return address_taken(&body),
            ("PATCH", live) => merged(live.unwrap_or(Value::Null), &body),
            (_, _) => body,
        };
        self.put(&path, next);
        ok(&self.get(&path).unwrap())
    }

    fn namespace_is_there(&self, path: &str) -> bool {
        let inner = self.inner.lock().unwrap();
        let namespace = path
            .split_once("/namespaces/")
            .and_then(|(_, rest)| rest.split_once('/'));
        match (&inner.namespaces, namespace) {
            (Some(there), Some((namespace, _))) => there.contains(namespace),
            _ => true,
        }
    }

    fn address_is_taken(&self, wanted: &Value) -> bool {
        let inner = self.inner.lock().unwrap();
        let address = |object: &Value| object["spec"]["clusterIP"].as_str().map(str::to_owned);
        let Some(wanted) = address(wanted) else {
            return false;
        };
        let services = inner.objects.values();
        inner.noted.contains(&wanted) || services.filter_map(address).any(|taken| taken == wanted)
    }

    /// Takes note of a Service's address, as for a request that is cut off before it is stored.
    pub(crate) fn note_address(&self, address: &str) {
        self.inner.lock().unwrap().noted.insert(address.to_owned());
    }

    /// Repairs what such requests left.
    pub(crate) fn free_addresses(&self) {
        self.inner.lock().unwrap().noted.clear();
    }

    /// From now on, namespaces must be on this list.
    pub(crate) fn only_namespaces(&self, namespaces: &[&str]) {
        let there = namespaces.iter().map(|name| (*name).to_owned()).collect();
        self.inner.lock().unwrap().namespaces = Some(there);
    }

    fn watch(&self, inner: &Inner, path: &str, query: &BTreeMap<String, String>) -> Answer {
        let collection = path.rsplit('/').next().unwrap_or_default().to_owned();
        let group = path
            .strip_suffix(&*collection)
            .unwrap_or_default()
            .to_owned();
        let folder = path.to_owned();
        let query = query.clone();
        let since = query.get("resourceVersion").and_then(|it| it.parse().ok());
        let missed = inner.history.iter();
        let missed =
            missed.filter(|(version, ..)| since.is_some_and(|since: u64| *version > since));
        let missed: Vec<_> = missed
            .map(|(_, path, event)| (path.clone(), event.clone()))
            .collect();
        let changes = stream::unfold(self.changes.subscribe(), |mut changes| async move {
            let change = changes.recv().await.ok()?;
            Some((change, changes))
        });
        let frames = stream::iter(missed)
            .chain(changes)
            .filter(move |(path, event)| {
                // A cluster-wide watch sees the objects of every namespace.
                let at = path.rsplit_once('/').map_or("", |(at, _)| at);
                let below = at.starts_with(&group) && at.ends_with(&collection);
                let wanted = (at == folder || below) && selected(&event["object"], &query);
                std::future::ready(wanted)
            })
            .map(|(_, event)| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}

impl Inner {
    fn list(&self, path: &str, query: &BTreeMap<String, String>) -> Value {
        let collection = path.rsplit('/').next().unwrap_or_default();
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(at, _)| {
                // The cluster-wide list holds the objects of every namespace.
                let (folder, _) = at.rsplit_once('/').unwrap();
                let group = path.strip_suffix(collection).unwrap();
                folder == path || (folder.starts_with(group) && folder.ends_with(collection))
            })
            .map(|(_, object)| object)
            .filter(|object| selected(object, query))
            .collect();
        json!({
            "kind": "List", "apiVersion": "v1", "items": items,
            "metadata": { "resourceVersion": self.version.to_string() },
        })
    }
}

/// The answer of discovery for a group and version.
fn resources(path: &str) -> Option<Value> {
    let kinds: &[(&str, &str, bool)] = match path {
        "/api/v1" => &[
            ("namespaces", "Namespace", false),
            ("serviceaccounts", "ServiceAccount", true),
            ("configmaps", "ConfigMap", true),
            ("services", "Service", true),
            ("secrets", "Secret", true),
        ],
        "/apis/apps/v1" => &[
            ("daemonsets", "DaemonSet", true),
            ("deployments", "Deployment", true),
        ],
        "/apis/example.com/v1" => &[
            ("widgets", "Widget", true),
            ("widgets/status", "Widget", true),
        ],
        "/apis/example.com/v1beta1" => &[("widgets", "Widget", true), ("old", "Old", false)],
        "/apis/rbac.authorization.k8s.io/v1" => &[
            ("clusterroles", "ClusterRole", false),
            ("clusterrolebindings", "ClusterRoleBinding", false),
        ],
        _ => return None,
    };
    let version = path
        .trim_start_matches("/apis/")
        .trim_start_matches("/api/");
    let resources = kinds.iter().map(|(plural, kind, namespaced)| {
        json!({
            "name": plural, "singularName": "", "namespaced": namespaced, "kind": kind,
            "verbs": ["get", "list", "patch", "delete"],
        })
    });
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version,
        "resources": resources.collect::<Vec<_>>(),
    }))
}

fn is_collection(path: &str) -> bool {
    let parts = path.trim_matches('/').split('/').collect::<Vec<_>>();
    let rest = if parts[0] == "api" {
        &parts[2..]
    } else {
        &parts[3..]
    };
    match rest {
        [] | ["namespaces", _] => false,
        ["namespaces", _, rest @ ..] | rest => rest.len() == 1,
    }
}

fn selected(object: &Value, query: &BTreeMap<String, String>) -> bool {
    let label = query.get("labelSelector").is_none_or(|wanted| {
        let labels = &object["metadata"]["labels"];
        wanted.split("%2C").all(|one| match one.split_once('=') {
            Some((key, value)) => labels[key] == value,
            None => labels.get(one).is_some(),
        })
    });
    let field = query.get("fieldSelector").is_none_or(|field| {
        let (path, value) = field.split_once('=').unwrap_or_default();
        let pointer = format!("/{}", path.replace('.', "/"));
        object.pointer(&pointer).and_then(Value::as_str) == Some(value)
    });
    label && field
}

fn merged(mut live: Value, patch: &Value) -> Value {
    let Some(fields) = patch.as_object() else {
        return patch.clone();
    };
    if !live.is_object() {
        live = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            live.as_object_mut().unwrap().remove(key);
        } else {
            live[key] = merged(live[key].take(), value);
        }
    }
    live
}

fn ok(value: &Value) -> Answer {
    text(StatusCode::OK, &value.to_string())
}

fn status(code: u16, message: &str) -> Answer {
    let reason = match (code, message) {
        (404, _) => "NotFound",
        (409, "AlreadyExists") => "AlreadyExists",
        (409, _) => "Conflict",
        (403, _) => "Forbidden",
        (_, _) => "InternalError",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    text(StatusCode::from_u16(code).unwrap(), &body.to_string())
}

/// The refusal of kube-apiserver 1.34.
fn address_taken(wanted: &Value) -> Answer {
    let address = wanted["spec"]["clusterIP"].as_str().unwrap();
    let why = format!("failed to allocate IP {address}: provided IP is already allocated");
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("Service is invalid: spec.clusterIPs: Invalid value: [\"{address}\"]: {why}"),
        "reason": "Invalid", "code": 422,
        "details": { "kind": "Service", "causes": [{
            "reason": "FieldValueInvalid", "field": "spec.clusterIPs",
            "message": format!("Invalid value: [\"{address}\"]: {why}"),
        }] },
    });
    text(StatusCode::UNPROCESSABLE_ENTITY, &body.to_string())
}

fn text(status: StatusCode, body: &str) -> Answer {
    let body = Full::new(Bytes::from(body.to_owned()));
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = status;
    answer
}

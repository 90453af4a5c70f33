//! A Kubernetes API server in memory: a tower service behind a real [`kube::Client`]. It keeps
//! what a real one keeps: resourceVersions and 409s, a status apart from the rest, generations,
//! finalizers, field ownership of server-side apply, defaults, rules and unknown fields of our
//! definitions, garbage collection by owner, and watches that list and stream.
//!
//! What it has not: authentication, strategic merge and JSON patches, conversion.

mod kinds;
mod patch;
mod schema;
mod store;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

use self::store::{Key, Part, Refused, State, Write, refused};

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;
/// Verb, resource with its group, namespace.
type Right = [String; 3];
type Fault = Box<dyn FnMut(&Asked<'_>) -> Option<u16> + Send>;

/// A fault: the request is never answered.
pub(crate) const HANGS: u16 = 0;

/// A request as a fault sees it.
pub(crate) struct Asked<'a> {
    /// Who asks; empty for a client without a name.
    pub(crate) client: &'a str,
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub(crate) verb: &'static str,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
}

/// The server. Clones are the same server.
#[derive(Clone)]
pub(crate) struct FakeApi(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    version: watch::Sender<u64>,
    faults: Mutex<Vec<Fault>>,
    writes: Mutex<Vec<String>>,
    silent: AtomicBool,
    /// Watches from an earlier version have expired.
    expired: AtomicU64,
    tells_the_time: AtomicBool,
    denied: Mutex<Option<Right>>,
    git_version: Mutex<String>,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

impl FakeApi {
    /// One with our definitions and nothing else, whose time that function tells.
    pub(crate) fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let server = Self(Arc::new(Inner {
            state: Mutex::new(State::new()),
            version: watch::channel(0).0,
            faults: Mutex::default(),
            writes: Mutex::default(),
            silent: AtomicBool::new(false),
            expired: AtomicU64::new(0),
            tells_the_time: AtomicBool::new(false),
            denied: Mutex::default(),
            git_version: Mutex::new("v1.34.4".to_owned()),
            now: Box::new(now),
        }));
        let system = json!({"metadata": {"name": "kube-system"}});
        server.plant("namespaces", &system);
        for (_, definition) in rke_operator::api::definitions() {
            let mut definition = serde_json::to_value(definition).unwrap();
            definition["status"] = json!({
                "conditions": [{"type": "Established", "status": "True"}],
                "acceptedNames": definition["spec"]["names"],
                "storedVersions": [rke_operator::api::VERSION],
            });
            server.plant("customresourcedefinitions", &definition);
        }
        server
    }

    /// Whether the definition takes an object that is new.
    pub(crate) fn admits(kind: &str, object: &Value) -> Result<(), String> {
        let kinds = kinds::kinds();
        let kind = kinds.iter().find(|known| known.kind == kind).unwrap();
        let schema = kind.schema.as_ref().unwrap();
        schema::admit(schema, object.clone(), None).map(drop)
    }

    /// A client of it, without a name.
    pub(crate) fn client(&self) -> kube::Client {
        self.client_of("")
    }

    /// A client of it whose requests say whose they are.
    pub(crate) fn client_of(&self, name: &'static str) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let server = server.clone();
            let name = header::HeaderValue::from_static(name);
            request.headers_mut().insert(header::USER_AGENT, name);
            async move { Ok::<_, Infallible>(server.serve(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// From now on its answers have a date.
    pub(crate) fn tells_the_time(&self) {
        self.0.tells_the_time.store(true, Ordering::SeqCst);
    }

    /// Its time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.0.now)()
    }

    /// From now on, requests may be refused with a code: method and path are told.
    pub(crate) fn fault(
        &self,
        mut fault: impl FnMut(&Method, &str) -> Option<u16> + Send + 'static,
    ) {
        self.fault_of(move |asked| fault(asked.method, asked.path));
    }

    /// The same, by client and verb as well: [`HANGS`], 403, 429, 5xx.
    pub(crate) fn fault_of(&self, fault: impl FnMut(&Asked<'_>) -> Option<u16> + Send + 'static) {
        self.0.faults.lock().unwrap().push(Box::new(fault));
    }

    /// Takes a right away: verb, resource with its group, namespace.
    pub(crate) fn deny(&self, verb: &str, resource: &str, namespace: &str) {
        let right = [verb, resource, namespace].map(str::to_owned);
        *self.0.denied.lock().unwrap() = Some(right);
    }

    /// Every fault is over.
    pub(crate) fn mend(&self) {
        self.0.faults.lock().unwrap().clear();
    }

    /// Watches tell nothing while this is so, as behind a slow network.
    pub(crate) fn silence_watches(&self, silent: bool) {
        self.0.silent.store(silent, Ordering::SeqCst);
        self.0.version.send_modify(|_| {});
    }

    /// Every watch ends: what happened since is in no log any more.
    pub(crate) fn expire_watches(&self) {
        let version = self.0.state.lock().unwrap().version;
        self.0.expired.store(version, Ordering::SeqCst);
        self.0.version.send_modify(|_| {});
    }

    /// Every write that was asked for: `PATCH /api/v1/…`.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.0.writes.lock().unwrap().clone()
    }

    /// An object, if it is there. The namespace is empty for kinds without.
    pub(crate) fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.0.state.lock().unwrap();
        let key = key(&state, plural, namespace, name);
        state.objects.get(&key).cloned()
    }

    /// Every version of every object of a kind that there ever was.
    pub(crate) fn history(&self, plural: &str) -> Vec<Value> {
        let state = self.0.state.lock().unwrap();
        let kind = kind(&state, plural);
        let of_kind = state.log.iter().filter(|change| change.key.0 == kind);
        of_kind.map(|change| change.object.clone()).collect()
    }

    /// When an object was erased.
    pub(crate) fn deleted_at(&self, plural: &str, name: &str) -> Option<tokio::time::Instant> {
        let state = self.0.state.lock().unwrap();
        let kind = kind(&state, plural);
        let of = |change: &&store::Change| {
            change.key.0 == kind && change.key.2 == name && change.what == "DELETED"
        };
        state.log.iter().rfind(of).map(|change| change.at)
    }

    /// Every object of a kind.
    pub(crate) fn objects(&self, plural: &str) -> Vec<Value> {
        let state = self.0.state.lock().unwrap();
        let kind = kind(&state, plural);
        let of_kind = state.objects.iter().filter(|(key, _)| key.0 == kind);
        of_kind.map(|(_, object)| object.clone()).collect()
    }

    /// Puts an object there without asking the schema.
    pub(crate) fn plant(&self, plural: &str, object: &Value) -> Value {
        self.edit(|state, now| {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let name = object["metadata"]["name"].as_str().unwrap();
            let key = key(state, plural, namespace, name);
            state.plant(key, object.clone(), now)
        })
    }

    /// A merge patch of an object, as a user's `kubectl patch`; past the schema.
    pub(crate) fn patch(&self, plural: &str, namespace: &str, name: &str, patch: &Value) -> Value {
        self.edit(|state, now| {
            let key = key(state, plural, namespace, name);
            let write = Write::Past(patch.clone());
            state.write(&key, Part::Main, write, now, false).unwrap()
        })
    }

    /// The same for the status.
    pub(crate) fn patch_status(&self, plural: &str, namespace: &str, name: &str, patch: &Value) {
        self.edit(|state, now| {
            let key = key(state, plural, namespace, name);
            let write = Write::Past(patch.clone());
            state.write(&key, Part::Status, write, now, false).unwrap();
        });
    }

    /// `kubectl delete`.
    pub(crate) fn delete(&self, plural: &str, namespace: &str, name: &str) {
        self.edit(|state, now| {
            let key = key(state, plural, namespace, name);
            state.delete(&key, now).unwrap();
        });
    }

    fn edit<T>(&self, edit: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.0.state.lock().unwrap();
        let result = edit(&mut state, (self.0.now)());
        self.0.version.send_replace(state.version);
        result
    }

    /// Waits until something holds of an object (`None`: it is gone), an hour at most.
    pub(crate) async fn until(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        holds: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        let mut version = self.0.version.subscribe();
        let wait = async {
            loop {
                version.mark_unchanged();
                let object = self.object(plural, namespace, name);
                if holds(object.as_ref()) {
                    return object;
                }
                version.changed().await.unwrap();
            }
        };
        if let Ok(object) = tokio::time::timeout(Duration::from_secs(3600), wait).await {
            object
        } else {
            let object = self.object(plural, namespace, name);
            let object = serde_json::to_string_pretty(&object).unwrap();
            panic!("waited for an hour; {plural}/{name} is {object}")
        }
    }

    /// Answers a request, wherever it came from.
    pub(crate) async fn serve<B>(&self, request: Request<B>) -> Answer
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let mut answer = self.answer_to(request).await;
        if self.0.tells_the_time.load(Ordering::SeqCst) {
            let now = self.now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            let date = header::HeaderValue::from_str(&now).unwrap();
            answer.headers_mut().insert(header::DATE, date);
        }
        answer
    }

    async fn answer_to<B>(&self, request: Request<B>) -> Answer
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = parts.uri.path().to_owned();
        if parts.method != Method::GET {
            let line = format!("{} {path}", parts.method);
            self.0.writes.lock().unwrap().push(line);
        }
        let fault = {
            let client = parts.headers.get(header::USER_AGENT);
            let name = self.target(&path).ok().and_then(|target| target.name);
            let asked = Asked {
                client: client.and_then(|name| name.to_str().ok()).unwrap_or(""),
                verb: verb(&parts, name.is_some()),
                method: &parts.method,
                path: &path,
            };
            let mut faults = self.0.faults.lock().unwrap();
            faults.iter_mut().find_map(|fault| fault(&asked))
        };
        if fault == Some(HANGS) {
            std::future::pending::<()>().await;
        }
        if let Some(code) = fault {
            let told = match code {
                403 => forbidden(&parts.method, &path),
                _ => "told to refuse".to_owned(),
            };
            return refusal(&refused(code, told));
        }
        let denied = self.0.denied.lock().unwrap().clone();
        if let Some(right) = self
            .rights(&parts)
            .into_iter()
            .find(|right| Some(right) == denied.as_ref())
        {
            let [verb, resource, namespace] = right;
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace \"{namespace}\"")
            };
            let (resource, group) = resource.split_once('.').unwrap_or((&resource, ""));
            let told = format!(
                "User \"operator\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}"
            );
            return refusal(&refused(403, told));
        }
        self.route(&parts, &body)
            .unwrap_or_else(|error| refusal(&error))
    }

    /// The rights that a request needs.
    fn rights(&self, parts: &http::request::Parts) -> Vec<Right> {
        let Ok(target) = self.target(parts.uri.path()) else {
            return Vec::new();
        };
        let state = self.0.state.lock().unwrap();
        let kind = &state.kinds[target.kind];
        let sub = match target.part {
            Part::Main => "",
            Part::Status => "/status",
        };
        let resource = if kind.group.is_empty() {
            format!("{}{sub}", kind.plural)
        } else {
            format!("{}{sub}.{}", kind.plural, kind.group)
        };
        let mut verbs = vec![verb(parts, target.name.is_some())];
        // An apply of what is not there creates it.
        if let (&Method::PATCH, Some(name), Part::Main) = (&parts.method, &target.name, target.part)
        {
            let key = (target.kind, target.namespace.clone(), name.clone());
            if state.get(&key).is_err() {
                verbs.push("create");
            }
        }
        let right = |verb: &str| [verb.to_owned(), resource.clone(), target.namespace.clone()];
        verbs.into_iter().map(right).collect()
    }

    fn route(&self, parts: &http::request::Parts, body: &Bytes) -> Result<Answer, Refused> {
        let query: BTreeMap<String, String> = parts
            .uri
            .query()
            .map(|query| form(query).collect())
            .unwrap_or_default();
        let metadata_only = parts
            .headers
            .get(header::ACCEPT)
            .and_then(|accept| accept.to_str().ok())
            .is_some_and(|accept| accept.contains("as=PartialObjectMetadata"));
        if let Some(about) = self.about(parts.uri.path()) {
            return Ok(about);
        }
        let target = self.target(parts.uri.path())?;
        let json = || {
            serde_json::from_slice::<Value>(body).map_err(|error| refused(400, error.to_string()))
        };
        let Target {
            kind,
            namespace,
            name,
            part,
        } = target;
        let shape = |object: Value| {
            if metadata_only {
                partial(&object)
            } else {
                object
            }
        };
        let Some(name) = name else {
            return match &parts.method {
                &Method::GET if query.get("watch").is_some_and(|w| w == "true") => {
                    Ok(self.watch(kind, namespace, &query, metadata_only))
                }
                &Method::GET => Ok(self.list(kind, &namespace, &query, metadata_only)),
                &Method::POST => {
                    let object = json()?;
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    let key = (kind, namespace, name.to_owned());
                    let made = self.edit(|state, now| state.create(key, object, now))?;
                    Ok(answer(StatusCode::CREATED, &made))
                }
                method => Err(refused(405, format!("{method} of a collection"))),
            };
        };
        let key = (kind, namespace, name);
        let dry_run = query.get("dryRun").is_some_and(|mode| mode == "All");
        let object = match &parts.method {
            &Method::GET => shape(self.0.state.lock().unwrap().get(&key)?.clone()),
            &Method::PUT => {
                let write = Write::Replace(json()?);
                self.edit(|state, now| state.write(&key, part, write, now, dry_run))?
            }
            &Method::PATCH => {
                let write = patch_of(parts, &query, json()?)?;
                self.edit(|state, now| state.write(&key, part, write, now, dry_run))?
            }
            &Method::DELETE => {
                let wants = json().unwrap_or_default()["preconditions"].clone();
                self.edit(|state, now| {
                    State::identity(state.get(&key)?, &json!({ "metadata": wants }))?;
                    state.delete(&key, now)
                })?
            }
            method => return Err(refused(405, format!("{method} of an object"))),
        };
        Ok(answer(StatusCode::OK, &object))
    }

    /// What the server says about itself: that it is ready, its version, and which kinds a group has.
    fn about(&self, path: &str) -> Option<Answer> {
        match path {
            "/readyz" => {
                let body = UnsyncBoxBody::new(Full::new(Bytes::from("ok")));
                return Some(Response::new(body));
            }
            "/version" => {
                let version = self.0.git_version.lock().unwrap().clone();
                let version = json!({
                    "major": "1", "minor": "", "gitVersion": version, "gitCommit": "",
                    "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "gc",
                    "platform": "linux/amd64",
                });
                return Some(answer(StatusCode::OK, &version));
            }
            _ => {}
        }
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version) = match segments.as_slice() {
            ["api", version] => ("", *version),
            ["apis", group, version] => (*group, *version),
            _ => return None,
        };
        let state = self.0.state.lock().unwrap();
        let kinds = state.kinds.iter();
        let kinds: Vec<&kinds::Kind> = kinds
            .filter(|kind| (kind.group, kind.version) == (group, version))
            .collect();
        let resources: Vec<Value> = kinds
            .iter()
            .map(|kind| {
                json!({
                    "name": kind.plural, "singularName": "", "namespaced": kind.namespaced,
                    "kind": kind.kind,
                    "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
                })
            })
            .collect();
        let list = json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": kinds.first()?.api_version(), "resources": resources,
        });
        Some(answer(StatusCode::OK, &list))
    }

    /// The version of Kubernetes that it says it is, `v1.34.4`.
    pub(crate) fn says_it_is(&self, version: &str) {
        version.clone_into(&mut self.0.git_version.lock().unwrap());
    }

    fn target(&self, path: &str) -> Result<Target, Refused> {
        let unknown = || refused(404, format!("the server could not find {path}"));
        let mut segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
        let root = if segments.is_empty() {
            ""
        } else {
            segments.remove(0)
        };
        let prefix = if root == "api" { 1 } else { 2 };
        if !matches!(root, "api" | "apis") || segments.len() <= prefix {
            return Err(unknown());
        }
        let rest = segments.split_off(prefix);
        let (group, version) = match segments.as_slice() {
            [version] => ("", *version),
            [group, version] => (*group, *version),
            _ => return Err(unknown()),
        };
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && rest[0] != "status" => {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let (plural, name, sub) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some((*name).to_owned()), None),
            [plural, name, sub] => (*plural, Some((*name).to_owned()), Some(*sub)),
            _ => return Err(unknown()),
        };
        let state = self.0.state.lock().unwrap();
        let index = state
            .kinds
            .iter()
            .position(|k| (k.group, k.version, k.plural) == (group, version, plural))
            .ok_or_else(unknown)?;
        let kind = &state.kinds[index];
        let part = match sub {
            None => Part::Main,
            Some("status") if kind.has_status => Part::Status,
            Some(_) => return Err(unknown()),
        };
        if name.is_some() && kind.namespaced == namespace.is_empty() {
            return Err(unknown());
        }
        Ok(Target {
            kind: index,
            namespace: namespace.to_owned(),
            name,
            part,
        })
    }

    fn list(
        &self,
        kind: usize,
        namespace: &str,
        query: &BTreeMap<String, String>,
        metadata_only: bool,
    ) -> Answer {
        let state = self.0.state.lock().unwrap();
        let of = &state.kinds[kind];
        // A page ends where the next one begins: at the namespace and name of its last object.
        let after = query
            .get("continue")
            .and_then(|token| token.split_once('/'));
        let after = after.map(|(namespace, name)| (kind, namespace.to_owned(), name.to_owned()));
        let limit = query.get("limit").and_then(|limit| limit.parse().ok());
        let limit = limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let rest: Vec<(&Key, &Value)> = state
            .objects
            .iter()
            .filter(|(key, object)| selected(key, object, kind, namespace, query))
            .filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after))
            .collect();
        let left = rest.len().saturating_sub(limit);
        let last = rest.get(limit.wrapping_sub(1)).filter(|_| left > 0);
        let token = last.map(|(key, _)| format!("{}/{}", key.1, key.2));
        let items: Vec<Value> = rest
            .into_iter()
            .take(limit)
            .map(|(_, object)| {
                let mut object = if metadata_only {
                    partial(object)
                } else {
                    object.clone()
                };
                // As a real server: items of built-in lists do not say what they are.
                if of.schema.is_none() && !metadata_only {
                    let map = object.as_object_mut().unwrap();
                    map.remove("kind");
                    map.remove("apiVersion");
                }
                object
            })
            .collect();
        let mut metadata = json!({ "resourceVersion": state.version.to_string() });
        if let Some(token) = token {
            metadata["continue"] = token.into();
            metadata["remainingItemCount"] = left.into();
        }
        let (api_version, list) = if metadata_only {
            (
                "meta.k8s.io/v1".to_owned(),
                "PartialObjectMetadataList".to_owned(),
            )
        } else {
            (of.api_version(), format!("{}List", of.kind))
        };
        let body = json!({
            "apiVersion": api_version,
            "kind": list,
            "metadata": metadata,
            "items": items,
        });
        answer(StatusCode::OK, &body)
    }

    fn watch(
        &self,
        kind: usize,
        namespace: String,
        query: &BTreeMap<String, String>,
        metadata_only: bool,
    ) -> Answer {
        let from = query
            .get("resourceVersion")
            .and_then(|v| v.parse().ok())
            .unwrap_or(0_u64);
        let limit = query
            .get("timeoutSeconds")
            .and_then(|s| s.parse().ok())
            .unwrap_or(290);
        let end = tokio::time::Instant::now() + Duration::from_secs(limit);
        let query = query.clone();
        let server = self.clone();
        let version = self.0.version.subscribe();
        let lines = stream::unfold((from, version), move |(mut from, mut version)| {
            let (server, query, namespace) = (server.clone(), query.clone(), namespace.clone());
            async move {
                loop {
                    if from == ENDED {
                        return None;
                    }
                    if from < server.0.expired.load(Ordering::SeqCst) {
                        return Some((format!("{}\n", expired()), (ENDED, version)));
                    }
                    version.mark_unchanged();
                    let next = server.next_after(from);
                    if let Some(change) = next {
                        from = change.version;
                        let (key, object) = (&change.key, &change.object);
                        if selected(key, object, kind, &namespace, &query) {
                            let object = if metadata_only {
                                partial(object)
                            } else {
                                object.clone()
                            };
                            let line = json!({"type": change.what, "object": object});
                            return Some((format!("{line}\n"), (from, version)));
                        }
                    } else {
                        let changed = tokio::time::timeout_at(end, version.changed()).await;
                        if !matches!(changed, Ok(Ok(()))) {
                            return None;
                        }
                    }
                }
            }
            .boxed()
        });
        let frames = lines.map(|line| Ok(http_body::Frame::data(Bytes::from(line))));
        Response::builder()
            .header(header::CONTENT_TYPE, "application/json")
            .body(UnsyncBoxBody::new(StreamBody::new(frames)))
            .unwrap()
    }

    fn next_after(&self, version: u64) -> Option<store::Change> {
        if self.0.silent.load(Ordering::SeqCst) {
            return None;
        }
        let state = self.0.state.lock().unwrap();
        let index = state
            .log
            .partition_point(|change| change.version <= version);
        state.log.get(index).cloned()
    }
}

/// The version of a watch that has ended.
const ENDED: u64 = u64::MAX;

/// What a watch says whose version is too old.
fn expired() -> Value {
    json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
        "code": 410, "reason": "Expired", "message": "too old resource version",
    }})
}

/// What a request does, in the words of the rights.
fn verb(parts: &http::request::Parts, is_named: bool) -> &'static str {
    let watches = parts
        .uri
        .query()
        .is_some_and(|query| query.contains("watch=true"));
    match (&parts.method, is_named) {
        (&Method::GET, false) if watches => "watch",
        (&Method::GET, false) => "list",
        (&Method::GET, true) => "get",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (_, _) => "delete",
    }
}

/// As a real server says it: the verb, the resource and the namespace.
fn forbidden(method: &Method, path: &str) -> String {
    let verb = match *method {
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        _ => "delete",
    };
    let resource = path.trim_start_matches('/');
    format!("User \"operator\" cannot {verb} resource \"{resource}\"")
}

struct Target {
    kind: usize,
    namespace: String,
    name: Option<String>,
    part: Part,
}

fn patch_of(
    parts: &http::request::Parts,
    query: &BTreeMap<String, String>,
    body: Value,
) -> Result<Write, Refused> {
    let kind = parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    match kind {
        // A strategic merge of maps, which is all that we send, is a merge.
        Some("application/merge-patch+json" | "application/strategic-merge-patch+json") => {
            Ok(Write::Merge(body))
        }
        Some("application/apply-patch+yaml") => Ok(Write::Apply {
            body,
            manager: query
                .get("fieldManager")
                .cloned()
                .ok_or_else(|| refused(400, "fieldManager is required"))?,
            force: query.get("force").is_some_and(|force| force == "true"),
        }),
        other => Err(refused(415, format!("{other:?}"))),
    }
}

fn kind(state: &State, plural: &str) -> usize {
    state
        .kinds
        .iter()
        .position(|kind| kind.plural == plural)
        .unwrap()
}

fn key(state: &State, plural: &str, namespace: &str, name: &str) -> Key {
    (kind(state, plural), namespace.to_owned(), name.to_owned())
}

fn selected(
    key: &Key,
    object: &Value,
    kind: usize,
    namespace: &str,
    query: &BTreeMap<String, String>,
) -> bool {
    let labels = &object["metadata"]["labels"];
    let by_label = query.get("labelSelector").is_none_or(|selector| {
        selector.split(',').all(|term| match term.split_once('=') {
            Some((label, value)) => labels[label] == value.trim_start_matches('='),
            None => !labels[term].is_null(),
        })
    });
    let by_field = query.get("fieldSelector").is_none_or(|selector| {
        selector.split(',').all(|term| {
            let (path, value) = term.split_once('=').unwrap();
            let path = format!("/{}", path.replace('.', "/"));
            object.pointer(&path).and_then(Value::as_str) == Some(value)
        })
    });
    key.0 == kind && (namespace.is_empty() || key.1 == namespace) && by_label && by_field
}

fn partial(object: &Value) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": object["metadata"],
    })
}

fn form(query: &str) -> impl Iterator<Item = (String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key.to_owned(), unescape(value))
        })
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = text
            .get(at + 1..at + 3)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8(out).unwrap()
}

fn answer(code: StatusCode, body: &Value) -> Answer {
    Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json")
        .body(UnsyncBoxBody::new(Full::new(Bytes::from(body.to_string()))))
        .unwrap()
}

fn refusal(refused: &Refused) -> Answer {
    let body = json!({
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": refused.code,
        "reason": refused.reason,
        "message": refused.message,
    });
    answer(StatusCode::from_u16(refused.code).unwrap(), &body)
}

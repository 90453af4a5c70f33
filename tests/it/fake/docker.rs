//! The Docker Engine API, as far as the product uses it, with dockerd's status codes.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use russh::{ChannelStream, server::Msg};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    Asked, FakeHost, Faults,
    archive::{self, Refusal},
    lock,
    state::{DockerState, FakeContainer},
};

/// Docker 26.1: as the lab's.
pub(super) const VERSION: &str = "26.1.5";
const API: (u16, u16) = (1, 45);

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

pub(super) async fn serve(host: FakeHost, io: TokioIo<ChannelStream<Msg>>, cut: CancellationToken) {
    let service = service_fn(move |request| answer(host.clone(), request, cut.clone()));
    let _ = http1::Builder::new().serve_connection(io, service).await;
}

/// A request, read.
struct Call {
    method: Method,
    /// Without the version.
    path: String,
    query: BTreeMap<String, String>,
    content_type: String,
    body: Bytes,
}

async fn answer(
    host: FakeHost,
    request: Request<Incoming>,
    cut: CancellationToken,
) -> Result<Response<Body>, Infallible> {
    let faults = host.fault();
    let (head, body) = request.into_parts();
    let (path, supported) = unversioned(head.uri.path());
    let count = {
        let mut asked = lock(&host.0.asked);
        asked.push(Asked {
            method: head.method.to_string(),
            path: path.clone(),
            target: head.uri.to_string(),
        });
        asked.len()
    };
    if faults.cut_at_request == Some(count) {
        cut.cancel();
        std::future::pending::<()>().await;
    }
    if let Some(pause) = faults.slow {
        tokio::time::sleep(pause).await;
    }
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => std::future::pending().await,
    };
    if !supported {
        return Ok(refuse(
            400,
            "client version is too new. Maximum supported API version is 1.45",
        ));
    }
    if faults.internal_errors {
        return Ok(refuse(500, "something is broken"));
    }
    if let Some(path) = &faults.unreadable
        && head.method == Method::GET
        && head
            .uri
            .query()
            .is_some_and(|query| query.ends_with(path.as_str()))
    {
        return Ok(refuse(500, "input/output error"));
    }
    let call = Call {
        method: head.method,
        path,
        query: query(head.uri.query().unwrap_or_default()),
        content_type: head
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned(),
        body,
    };
    Ok(route(&host, &call, &faults, &cut).await)
}

/// Takes `/v1.NN` away; false if that version is not spoken.
fn unversioned(path: &str) -> (String, bool) {
    let Some((version, rest)) = path
        .strip_prefix("/v")
        .and_then(|path| path.split_once('/'))
    else {
        return (path.to_owned(), true);
    };
    let spoken = version.split_once('.').is_some_and(|(major, minor)| {
        let number = |text: &str| text.parse().unwrap_or(u16::MAX);
        (number(major), number(minor)) <= API
    });
    (format!("/{rest}"), spoken)
}

fn query(text: &str) -> BTreeMap<String, String> {
    text.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), decode(value)))
        .collect()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let hex: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&hex, 16).unwrap_or(b'?'));
            }
            b'+' => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn full(status: u16, content_type: &str, body: impl Into<Bytes>) -> Response<Body> {
    Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header(CONTENT_TYPE, content_type)
        .body(
            Full::new(body.into())
                .map_err(|never| match never {})
                .boxed_unsync(),
        )
        .unwrap()
}

fn ok(status: u16, value: &Value) -> Response<Body> {
    full(status, "application/json", value.to_string())
}

fn empty(status: u16) -> Response<Body> {
    full(status, "text/plain", "")
}

fn refuse(status: u16, message: &str) -> Response<Body> {
    ok(status, &json!({ "message": message }))
}

fn no_container(name: &str) -> Response<Body> {
    refuse(404, &format!("No such container: {name}"))
}

async fn route(
    host: &FakeHost,
    call: &Call,
    faults: &Faults,
    cut: &CancellationToken,
) -> Response<Body> {
    let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
    let get = call.method == Method::GET;
    let post = call.method == Method::POST;
    match parts.as_slice() {
        ["_ping"] => ping(),
        ["version"] => ok(
            200,
            &json!({ "Version": VERSION, "ApiVersion": format!("{}.{}", API.0, API.1), "MinAPIVersion": "1.24" }),
        ),
        ["info"] => ok(200, &host.docker().info),
        ["events"] => events(host.clone(), labelled(call)),
        ["distribution", image @ .., "json"] if get => distribution(host, &image.join("/")),
        ["containers", "json"] => ok(200, &list(&host.docker(), labelled(call).as_deref())),
        ["containers", "create"] if post => create(&mut host.docker(), call),
        ["containers", name, "json"] if get => inspect(&host.docker(), name),
        ["containers", name, "start"] if post => start(&mut host.docker(), name, faults),
        ["containers", name, "stop"] if post => stop(&mut host.docker(), name),
        ["containers", name, "update"] if post => update(&mut host.docker(), name, call),
        ["containers", name, "rename"] if post => rename(&mut host.docker(), name, call),
        ["containers", name, "wait"] if post => wait(host, name, faults).await,
        ["containers", name, "logs"] if get => logs(&host.docker(), name, call),
        ["containers", name, "archive"] if get => read(&mut host.docker(), name, call),
        ["containers", name, "archive"] if call.method == Method::PUT => {
            write(&mut host.docker(), name, call, faults)
        }
        ["containers", name] if call.method == Method::DELETE => {
            remove(&mut host.docker(), name, call)
        }
        ["images", "json"] => ok(200, &images(&host.docker())),
        ["images", "create"] if post && call.query.contains_key("fromSrc") => {
            import(&mut host.docker(), call)
        }
        ["images", "load"] if post => load(&mut host.docker(), call),
        ["images", "create"] if post => pull(host, call, faults, cut),
        ["images", name @ .., "get"] if get => export(&host.docker(), &name.join("/")),
        ["images", name @ ..] if call.method == Method::DELETE => {
            remove_image(&mut host.docker(), &decode(&name.join("/")))
        }
        _ => refuse(404, "page not found"),
    }
}

fn ping() -> Response<Body> {
    let mut response = full(200, "text/plain", "OK");
    let version = format!("{}.{}", API.0, API.1).parse().unwrap();
    response.headers_mut().insert("Api-Version", version);
    response
}

/// The label that a filter asks for.
fn labelled(call: &Call) -> Option<String> {
    let filters: Value = serde_json::from_str(call.query.get("filters")?).unwrap();
    Some(filters["label"][0].as_str()?.to_owned())
}

fn has(container: &FakeContainer, label: Option<&str>) -> bool {
    let has = |label: &str| {
        let mut labels = container.labels().into_iter();
        labels.any(|(key, value)| label == format!("{key}={value}"))
    };
    label.is_none_or(has)
}

/// What becomes of containers, without an end.
fn events(host: FakeHost, label: Option<String>) -> Response<Body> {
    type States = BTreeMap<String, (String, String)>;
    let states = move |host: &FakeHost| -> States {
        let docker = host.docker();
        let all = docker.containers.iter();
        let all = all.filter(|(_, container)| has(container, label.as_deref()));
        all.map(|(name, one)| (name.clone(), (one.id.clone(), one.state.clone())))
            .collect()
    };
    let before = states(&host);
    let lines = stream::unfold(
        (host, states, before),
        |(host, states, before)| async move {
            loop {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let now = states(&host);
                let moved = |(name, one): (&String, &(String, String))| {
                    (now.get(name) != Some(one)).then(|| name.clone())
                };
                let was = before.iter().find_map(moved);
                let is = || now.keys().find(|name| !before.contains_key(*name)).cloned();
                if let Some(name) = was.or_else(is) {
                    let action = if now.contains_key(&name) {
                        "start"
                    } else {
                        "destroy"
                    };
                    let event = json!({
                        "Type": "container", "Action": action, "scope": "local", "time": 0, "timeNano": 0,
                        "Actor": { "ID": "", "Attributes": { "name": name } },
                    });
                    return Some((event, (host, states, now)));
                }
            }
        },
    );
    Response::builder()
        .header(CONTENT_TYPE, "application/json")
        .body(StreamBody::new(lines.map(|line| Ok(frame(&line)))).boxed_unsync())
        .unwrap()
}

fn list(state: &DockerState, label: Option<&str>) -> Value {
    state
        .containers
        .iter()
        .filter(|(_, container)| has(container, label))
        .map(|(name, container)| {
            json!({
                "Id": container.id,
                "Names": [format!("/{name}")],
                "Image": container.image(),
                "Labels": container.labels(),
                "State": container.state,
                "Status": "words for people",
            })
        })
        .collect()
}

fn create(state: &mut DockerState, call: &Call) -> Response<Body> {
    if call.content_type != "application/json" {
        return refuse(
            400,
            "unsupported Content-Type header: must be 'application/json'",
        );
    }
    let Ok(mut body) = serde_json::from_slice::<Value>(&call.body) else {
        return refuse(400, "invalid JSON");
    };
    let image = body["Image"].as_str().unwrap_or_default().to_owned();
    if !state.images.contains_key(&image) {
        return refuse(404, &format!("No such image: {image}"));
    }
    let name = call.query.get("name").cloned().unwrap_or_default();
    if let Some(other) = state.containers.get(&name) {
        return refuse(
            409,
            &format!(
                "Conflict. The container name \"/{name}\" is already in use by container \"{}\". You have to remove (or rename) that container to be able to reuse that name.",
                other.id
            ),
        );
    }
    adapt(&mut body);
    let id = state.new_id();
    let container = FakeContainer {
        id: id.clone(),
        body,
        state: "created".to_owned(),
        exit_code: 0,
        restarts: 0,
        log: String::new(),
        files: BTreeMap::new(),
    };
    state.containers.insert(name, container);
    ok(201, &json!({ "Id": id, "Warnings": [] }))
}

/// What dockerd adds to a request.
fn adapt(body: &mut Value) {
    let host = &mut body["HostConfig"];
    let opens = host["Privileged"] == true || host["PidMode"] == "host";
    let opts = host["SecurityOpt"].as_array().cloned().unwrap_or_default();
    let labelled = opts
        .iter()
        .any(|opt| opt.as_str().is_some_and(|opt| opt.starts_with("label")));
    if opens && !labelled {
        let mut opts = opts;
        opts.push("label=disable".into());
        host["SecurityOpt"] = opts.into();
    }
    if host["LogConfig"].is_null() {
        host["LogConfig"] = json!({ "Type": "json-file", "Config": {} });
    }
    let mut env = body["Env"].as_array().cloned().unwrap_or_default();
    env.push("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
    body["Env"] = env.into();
}

fn inspect(state: &DockerState, key: &str) -> Response<Body> {
    let Some(name) = state.name_of(key) else {
        return no_container(key);
    };
    let container = &state.containers[&name];
    let mut config = container.body.clone();
    if let Some(config) = config.as_object_mut() {
        config.remove("HostConfig");
    }
    ok(
        200,
        &json!({
            "Id": container.id,
            "Name": format!("/{name}"),
            "RestartCount": container.restarts,
            "State": { "Status": container.state, "ExitCode": container.exit_code },
            "Config": config,
            "HostConfig": container.body["HostConfig"],
        }),
    )
}

fn start(state: &mut DockerState, key: &str, faults: &Faults) -> Response<Body> {
    let Some(name) = state.name_of(key) else {
        return no_container(key);
    };
    if faults.broken.contains(&name) {
        return refuse(500, "OCI runtime create failed: no such program");
    }
    if state.containers[&name].state == "running" {
        return empty(304);
    }
    state.mount(&name);
    let container = state.containers[&name].clone();
    let stays = container.body["HostConfig"]["RestartPolicy"]["Name"] == "always";
    let (now, code, log) = if stays {
        ("running", 0, String::new())
    } else {
        let script = archive::script(&container);
        let (code, log) = (state.work)(&script, &mut state.files);
        ("exited", code, log)
    };
    if let Some(container) = state.containers.get_mut(&name) {
        now.clone_into(&mut container.state);
        container.exit_code = code;
        container.log.push_str(&log);
    }
    empty(204)
}

fn stop(state: &mut DockerState, key: &str) -> Response<Body> {
    let Some(name) = state.name_of(key) else {
        return no_container(key);
    };
    match state.containers.get_mut(&name) {
        Some(container) if container.state == "running" => {
            "exited".clone_into(&mut container.state);
            empty(204)
        }
        _ => empty(304),
    }
}

/// Only the restart policy.
fn update(state: &mut DockerState, key: &str, call: &Call) -> Response<Body> {
    let Some(name) = state.name_of(key) else {
        return no_container(key);
    };
    let Ok(body) = serde_json::from_slice::<Value>(&call.body) else {
        return refuse(400, "invalid JSON");
    };
    if let Some(container) = state.containers.get_mut(&name) {
        container.body["HostConfig"]["RestartPolicy"] = body["RestartPolicy"].clone();
    }
    ok(200, &json!({ "Warnings": [] }))
}

fn rename(state: &mut DockerState, key: &str, call: &Call) -> Response<Body> {
    let Some(name) = state.name_of(key) else {
        return no_container(key);
    };
    let to = call.query.get("name").cloned().unwrap_or_default();
    if state.containers.contains_key(&to) {
        return refuse(
            409,
            &format!("Conflict. The container name \"/{to}\" is already in use"),
        );
    }
    if let Some(container) = state.containers.remove(&name) {
        state.containers.insert(to, container);
    }
    empty(204)
}

async fn wait(host: &FakeHost, key: &str, faults: &Faults) -> Response<Body> {
    if faults.wait_hangs {
        std::future::pending::<()>().await;
    }
    loop {
        {
            let state = host.docker();
            let Some(name) = state.name_of(key) else {
                return no_container(key);
            };
            let container = &state.containers[&name];
            if container.state == "exited" {
                return ok(200, &json!({ "StatusCode": container.exit_code }));
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn logs(state: &DockerState, key: &str, call: &Call) -> Response<Body> {
    let Some(name) = state.name_of(key) else {
        return no_container(key);
    };
    let lines: Vec<&str> = state.containers[&name].log.lines().collect();
    let tail = call
        .query
        .get("tail")
        .and_then(|tail| tail.parse().ok())
        .unwrap_or(lines.len());
    let mut frames = Vec::new();
    for line in &lines[lines.len().saturating_sub(tail)..] {
        let line = format!("{line}\n");
        frames.extend_from_slice(&[1, 0, 0, 0]);
        frames.extend_from_slice(&u32::try_from(line.len()).unwrap().to_be_bytes());
        frames.extend_from_slice(line.as_bytes());
    }
    full(200, "application/vnd.docker.raw-stream", frames)
}

fn read(state: &mut DockerState, key: &str, call: &Call) -> Response<Body> {
    let Some(name) = state.name_of(key) else {
        return no_container(key);
    };
    let path = call.query.get("path").cloned().unwrap_or_default();
    match archive::get(state, &name, &path) {
        Some(archive) => full(200, "application/x-tar", archive),
        None => refuse(
            404,
            &format!("Could not find the file {path} in container {key}"),
        ),
    }
}

fn write(state: &mut DockerState, key: &str, call: &Call, faults: &Faults) -> Response<Body> {
    let Some(name) = state.name_of(key) else {
        return no_container(key);
    };
    if call.content_type != "application/x-tar" {
        // dockerd swallows the body and says nothing.
        return empty(200);
    }
    let path = call.query.get("path").cloned().unwrap_or_default();
    match archive::put(state, &name, &path, &call.body, faults.disk_full) {
        Ok(()) => empty(200),
        Err(Refusal::Missing(why)) => refuse(404, &why),
        Err(Refusal::Bad(why)) => refuse(400, &why),
        Err(Refusal::Full(why)) => refuse(500, &why),
    }
}

fn remove(state: &mut DockerState, key: &str, call: &Call) -> Response<Body> {
    let Some(name) = state.name_of(key) else {
        return no_container(key);
    };
    let force = call.query.get("force").is_some_and(|force| force == "true");
    if state.containers[&name].state == "running" && !force {
        return refuse(
            409,
            "You cannot remove a running container. Stop the container before attempting removal or force remove",
        );
    }
    state.containers.remove(&name);
    empty(204)
}

fn images(state: &DockerState) -> Value {
    state
        .images
        .iter()
        .map(|(name, size)| {
            json!({
                "Id": format!("sha256:{name}"), "ParentId": "", "RepoTags": [name],
                "RepoDigests": [], "Created": 0, "Size": size, "SharedSize": -1,
                "Labels": {}, "Containers": -1,
            })
        })
        .collect()
}

/// Loads the images of an archive under the names that its manifest gives them.
fn load(state: &mut DockerState, call: &Call) -> Response<Body> {
    if call.content_type != "application/x-tar" {
        return refuse(
            400,
            "unsupported Content-Type header: must be 'application/x-tar'",
        );
    }
    let broken = |why: &str| {
        let error = json!({ "errorDetail": { "message": why }, "error": why });
        full(200, "application/json", format!("{error}\n"))
    };
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(&call.body[..]);
    for entry in archive.entries().into_iter().flatten() {
        let Ok(mut entry) = entry else {
            return broken("unexpected EOF");
        };
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mut content = Vec::new();
        if std::io::Read::read_to_end(&mut entry, &mut content).is_err() {
            return broken("unexpected EOF");
        }
        files.insert(name, content);
    }
    let manifest = files
        .get("manifest.json")
        .map(Vec::as_slice)
        .unwrap_or_default();
    let Ok(manifest) = serde_json::from_slice::<Value>(manifest) else {
        return broken("invalid manifest");
    };
    let mut said = String::new();
    for image in manifest.as_array().into_iter().flatten() {
        let parts = image["Layers"].as_array().into_iter().flatten();
        let mut parts = parts.chain([&image["Config"]]);
        if !parts.all(|part| files.contains_key(part.as_str().unwrap_or_default())) {
            return broken("no such file or directory");
        }
        for name in image["RepoTags"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap_or_default().to_owned();
            let line = json!({ "stream": format!("Loaded image: {name}\n") });
            said.push_str(&line.to_string());
            said.push('\n');
            state.archives.insert(name.clone(), call.body.to_vec());
            state.images.insert(name, call.body.len() as u64);
        }
    }
    full(200, "application/json", said)
}

fn import(state: &mut DockerState, call: &Call) -> Response<Body> {
    if call.content_type != "application/x-tar" {
        return refuse(
            400,
            "unsupported Content-Type header: must be 'application/x-tar'",
        );
    }
    if tar::Archive::new(&call.body[..]).entries().is_err() {
        return refuse(500, "invalid tar header");
    }
    let part = |name: &str| call.query.get(name).cloned().unwrap_or_default();
    state
        .images
        .insert(format!("{}:{}", part("repo"), part("tag")), 0);
    full(200, "application/json", "{\"status\":\"sha256:0000\"}\n")
}

/// What its registry says of an image.
fn distribution(host: &FakeHost, image: &str) -> Response<Body> {
    let state = host.docker();
    if state.registry.contains_key(image) || state.has_every_image.is_some() {
        let digest = format!("sha256:{:064x}", 1);
        let descriptor = json!({ "digest": digest, "size": 1, "mediaType": "application/json" });
        return ok(200, &json!({ "Descriptor": descriptor, "Platforms": [] }));
    }
    refuse(404, &format!("errors:\nmanifest unknown: {image}\n"))
}

fn pull(host: &FakeHost, call: &Call, faults: &Faults, cut: &CancellationToken) -> Response<Body> {
    let image = call.query.get("fromImage").cloned().unwrap_or_default();
    let layers = {
        let state = host.docker();
        let every = || state.has_every_image.map(|size| vec![size]);
        state.registry.get(&image).cloned().or_else(every)
    };
    let Some(layers) = layers else {
        return refuse(
            404,
            &format!(
                "pull access denied for {image}, repository does not exist or may require 'docker login'"
            ),
        );
    };
    let size: u64 = layers.iter().sum();
    let mut lines = Vec::new();
    for (index, total) in layers.iter().enumerate() {
        let id = format!("{index:012x}");
        lines.push(json!({ "status": "Pulling fs layer", "id": id, "progressDetail": {} }));
        for part in [total / 2, *total] {
            lines.push(json!({
                "status": "Downloading", "id": id,
                "progressDetail": { "current": part, "total": total },
            }));
        }
    }
    let mut end: Vec<Value> = vec![];
    let broken = faults.pull_error.clone();
    match &broken {
        Some(words) => end.push(json!({ "errorDetail": { "message": words }, "error": words })),
        None => {
            end.push(json!({ "status": format!("Status: Downloaded newer image for {image}") }));
        }
    }
    let (host, cut) = (host.clone(), faults.cut_in_pull.then(|| cut.clone()));
    let frames = stream::iter(lines).chain(
        stream::once(async move {
            if let Some(cut) = cut {
                cut.cancel();
                std::future::pending::<()>().await;
            }
            if broken.is_none() {
                host.docker().images.insert(image, size);
            }
            stream::iter(end)
        })
        .flatten(),
    );
    Response::builder()
        .header(CONTENT_TYPE, "application/json")
        .body(StreamBody::new(frames.map(|line| Ok(frame(&line)))).boxed_unsync())
        .unwrap()
}

fn frame(line: &Value) -> Frame<Bytes> {
    Frame::data(format!("{line}\r\n").into())
}

fn export(state: &DockerState, name: &str) -> Response<Body> {
    let name = decode(name);
    if let Some(archive) = state.archives.get(&name) {
        full(200, "application/x-tar", archive.clone())
    } else if state.images.contains_key(&name) {
        full(200, "application/x-tar", format!("the layers of {name}"))
    } else {
        refuse(404, &format!("reference does not exist: {name}"))
    }
}

fn remove_image(state: &mut DockerState, name: &str) -> Response<Body> {
    if !state.images.contains_key(name) {
        return refuse(404, &format!("No such image: {name}"));
    }
    if let Some(container) = state
        .containers
        .values()
        .find(|container| container.image() == name)
    {
        return refuse(
            409,
            &format!(
                "conflict: unable to remove repository reference \"{name}\" (must force) - container {} is using its referenced image",
                &container.id[..12]
            ),
        );
    }
    state.images.remove(name);
    ok(200, &json!([{ "Untagged": name }]))
}

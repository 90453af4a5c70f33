//! The workload's API against an in-process TLS server and a state-based fake.
#![expect(
    clippy::disallowed_methods,
    reason = "the in-process servers run concurrently with the test"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::Client;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio_rustls::TlsAcceptor;

use super::{fake::FakeApi, *};
use crate::{
    error::{ErrorClass, Explain, with_causes},
    facts::{ClusterFacts, DryRun, NODE_META, object_changes},
    host::{Stream, https::OpenStream},
    model::{
        ClientIdentity, Component, DrainRules, NodeMeta, ObjectRef, Secret, WantedObjects, label,
    },
    state::tests::saved,
};

// ---- TLS

struct Pki {
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self {
            ca: CertifiedIssuer::self_signed(params, key).unwrap(),
        }
    }

    fn leaf(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec![name.to_owned()])
            .unwrap()
            .signed_by(&key, &self.ca)
            .unwrap();
        (cert.pem(), key.serialize_pem())
    }

    fn admin(&self) -> ClientIdentity {
        let (cert, key) = self.leaf("admin");
        ClientIdentity {
            ca: self.ca.pem(),
            cert,
            key: Secret::new(key),
        }
    }

    /// A server whose certificate has `name`, and that asks for a certificate of this CA if `mutual`.
    fn server(&self, name: &str, mutual: bool) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (cert, key) = self.leaf(name);
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(self.ca.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
    }
}

async fn serve_api(tls: TlsAcceptor, io: DuplexStream, api: FakeApi) {
    let Ok(io) = tls.accept(io).await else { return };
    let service = service_fn(move |request| {
        let api = api.clone();
        async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
    });
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(io), service)
        .await;
}

/// Opens streams to the fake behind TLS and counts them.
fn tunnel(tls: TlsAcceptor, api: &FakeApi) -> (OpenStream, Arc<AtomicUsize>) {
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    let api = api.clone();
    let open: OpenStream = Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        let (near, far) = tokio::io::duplex(64 * 1024);
        tokio::spawn(serve_api(tls.clone(), far, api.clone()));
        async move { Ok(Box::new(near) as Box<dyn Stream>) }.boxed()
    });
    (open, opened)
}

#[tokio::test]
async fn the_client_speaks_mutual_tls_through_streams_that_it_keeps() {
    let pki = Pki::new();
    let api = FakeApi::new();
    let (open, opened) = tunnel(pki.server("kubernetes", true), &api);
    let client = connect(open, &pki.admin()).unwrap();
    for _ in 0..5 {
        let version = client.apiserver_version().await.unwrap();
        assert_eq!(version.git_version, "v1.34.4");
    }
    assert_eq!(
        opened.load(Ordering::Relaxed),
        1,
        "one connection is reused"
    );
    read(&client, &of_flannel()).await.unwrap();
}

#[tokio::test]
async fn a_server_with_another_name_or_ca_and_a_client_of_another_ca_are_refused() {
    let (pki, other) = (Pki::new(), Pki::new());
    let api = FakeApi::new();
    let stranger = ClientIdentity {
        ca: pki.ca.pem(),
        ..other.admin()
    };
    let cases = [
        (
            pki.server("another", true),
            pki.admin(),
            "invalid peer certificate",
        ),
        (
            other.server("kubernetes", false),
            pki.admin(),
            "invalid peer certificate",
        ),
        (pki.server("kubernetes", true), stranger, ""),
    ];
    for (server, admin, why) in cases {
        let (open, _) = tunnel(server, &api);
        let client = connect(open, &admin).unwrap();
        let error = client.apiserver_version().await.unwrap_err();
        let message = with_causes(&error);
        assert!(message.contains(why), "{message}");
        read(&client, &of_flannel()).await.unwrap_err();
    }
    assert_eq!(api.log(), [""; 0], "nothing was asked");
}

#[tokio::test]
async fn a_stream_that_cannot_be_opened_says_why() {
    let open: OpenStream =
        Arc::new(|| async { Err(io::Error::other("no port 6443 on node `n1`")) }.boxed());
    let client = connect(open, &Pki::new().admin()).unwrap();
    let why = read(&client, &of_flannel()).await.unwrap_err();
    assert!(why.contains("no port 6443 on node `n1`"), "{why}");
}

#[test]
fn keys_that_are_none_are_an_error_that_does_not_show_them() {
    let open: OpenStream = Arc::new(|| std::future::pending().boxed());
    let mut admin = Pki::new().admin();
    admin.key = Secret::new("not a key".to_owned());
    let error = connect(open, &admin).err().unwrap();
    assert_eq!(error.class(), ErrorClass::Bug);
    assert!(!format!("{error:?} {error} {admin:?}").contains("not a key"));
}

// ---- health

/// Asks once, over this stream.
async fn probe(
    component: Component,
    stream: Box<dyn Stream>,
    engine: &ClientIdentity,
) -> Result<(), String> {
    let open = std::future::ready(Ok(stream));
    Probe::new(component, engine).ask(open).await
}

/// What is asked again and again is asked over one connection, until that is gone.
#[tokio::test]
async fn a_question_that_is_repeated_keeps_its_connection() {
    let admin = Pki::new().admin();
    let probe = Probe::new(Component::Kubelet, &admin);
    let opened = AtomicUsize::new(0);
    let servers = std::sync::Mutex::new(Vec::new());
    let ask = || {
        probe.ask(async {
            opened.fetch_add(1, Ordering::Relaxed);
            let (near, far) = tokio::io::duplex(64 * 1024);
            let server = tokio::spawn(component(far, 200, "ok"));
            servers.lock().unwrap().push(server.abort_handle());
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    };
    for _ in 0..3 {
        assert_eq!(ask().await, Ok(()));
    }
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    servers.lock().unwrap()[0].abort();
    tokio::task::yield_now().await;
    assert_eq!(ask().await, Ok(()), "by the one that is there now");
    assert_eq!(opened.load(Ordering::Relaxed), 2);
}

/// A component that answers every request like this.
async fn component(
    io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    status: u16,
    body: &'static str,
) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| async move {
        assert!(matches!(
            request.uri().path(),
            "/health" | "/healthz" | "/readyz"
        ));
        Response::builder()
            .status(status)
            .body(Full::new(Bytes::from_static(body.as_bytes())))
    });
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(io), service)
        .await;
}

#[tokio::test]
async fn components_are_asked_in_plain_with_tls_and_with_our_certificate() {
    let (pki, other) = (Pki::new(), Pki::new());
    let admin = pki.admin();
    for (which, tls) in [
        (Component::Etcd, None),
        (Component::Kubelet, None),
        (Component::KubeProxy, None),
        (
            Component::ControllerManager,
            Some(other.server("localhost", false)),
        ),
        (Component::Scheduler, Some(other.server("localhost", false))),
        (Component::ApiServer, Some(pki.server("kubernetes", true))),
    ] {
        let ask = |status, body| {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let tls = tls.clone();
            tokio::spawn(async move {
                match tls {
                    None => component(far, status, body).await,
                    Some(tls) => component(tls.accept(far).await.unwrap(), status, body).await,
                }
            });
            probe(which, Box::new(near), &admin)
        };
        assert_eq!(ask(200, "ok").await, Ok(()), "{which:?}");
        let sick = ask(500, "[+]ping ok\n[-]etcd failed: reason withheld\nfailed").await;
        assert_eq!(
            sick,
            Err("HTTP 500: [-]etcd failed: reason withheld".to_owned()),
            "{which:?}"
        );
        assert_eq!(ask(503, "").await, Err("HTTP 503".to_owned()));
    }
}

#[tokio::test]
async fn a_foreign_server_on_the_api_port_is_not_healthy() {
    let (pki, other) = (Pki::new(), Pki::new());
    let tls = other.server("kubernetes", false);
    let (near, far) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move {
        let _ = tls.accept(far).await;
    });
    let error = probe(Component::ApiServer, Box::new(near), &pki.admin()).await;
    assert!(error.unwrap_err().starts_with("TLS: "));
}

#[tokio::test(start_paused = true)]
async fn a_component_that_hangs_or_hangs_up_is_not_healthy() {
    let admin = Pki::new().admin();
    let (near, far) = tokio::io::duplex(64);
    let hung = probe(Component::Kubelet, Box::new(near), &admin).await;
    assert_eq!(hung, Err("no answer within 10 s".to_owned()));
    drop(far);
    let (near, far) = tokio::io::duplex(64);
    drop(far);
    assert!(
        probe(Component::Kubelet, Box::new(near), &admin)
            .await
            .is_err()
    );
}

// ---- reading

/// What a survey learns of a server that serves.
async fn read(client: &Client, wanted: &WantedObjects) -> Result<ClusterFacts, String> {
    serves(client).await?;
    held(client, wanted).await
}

/// Whose every answer takes so long.
fn slow(api: &FakeApi, answer: Duration) -> Client {
    let client = api.client();
    let service = tower::service_fn(move |request| {
        let client = client.clone();
        async move {
            tokio::time::sleep(answer).await;
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

/// E19: with webhooks on everything each dry run takes seconds, and there may be hundreds.
#[tokio::test(start_paused = true)]
async fn a_slow_server_is_read_to_the_end_whatever_there_is_to_read() {
    let api = FakeApi::new();
    let mut wanted = of_flannel();
    let (object, value) = wanted
        .objects
        .first_key_value()
        .map(|(a, b)| (a.clone(), b.clone()))
        .unwrap();
    for number in 0..300 {
        let name = format!("flannel-{number}");
        api.put(
            &DAEMON_SET.replace("/flannel", &format!("/{name}")),
            daemon_set(1),
        );
        wanted.objects.insert(
            ObjectRef {
                name,
                ..object.clone()
            },
            value.clone(),
        );
    }
    let client = slow(&api, Duration::from_secs(5));
    let begun = tokio::time::Instant::now();
    let facts = read(&client, &wanted).await.unwrap();
    assert_eq!(facts.dry_runs.len(), 300);
    assert!(begun.elapsed() > Duration::from_secs(40));
    // One answer that does not come is an error, in its own time.
    let hung = slow(&api, Duration::from_secs(3600));
    let begun = tokio::time::Instant::now();
    assert!(held(&hung, &wanted).await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(30));
}

const NODE: &str = "/api/v1/nodes/n1";
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets/flannel";

fn node(ready: &str) -> Value {
    json!({
        "metadata": { "labels": { "a": "b" } },
        "spec": { "taints": [{ "key": "t", "effect": "NoSchedule" }] },
        "status": {
            "conditions": [{
                "type": "Ready", "status": ready, "message": "container runtime is down",
                "reason": "x", "lastHeartbeatTime": null, "lastTransitionTime": null,
            }],
            "nodeInfo": {
                "kubeletVersion": "v1.34.4", "architecture": "", "bootID": "", "kernelVersion": "",
                "containerRuntimeVersion": "", "kubeProxyVersion": "", "machineID": "",
                "operatingSystem": "", "osImage": "", "systemUUID": "",
            },
        },
    })
}

fn daemon_set(available: i64) -> Value {
    json!({
        "metadata": { "generation": 1, "labels": { label::ADDON: "flannel" } },
        "spec": {
            "selector": { "matchLabels": { "app": "flannel" } },
            "template": { "metadata": { "labels": { "app": "flannel" } } },
        },
        "status": {
            "observedGeneration": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 1,
            "numberMisscheduled": 0, "numberReady": available, "updatedNumberScheduled": 1,
            "numberAvailable": available,
        },
    })
}

fn flannel() -> ObjectRef {
    object("apps/v1", "DaemonSet", "kube-system", "flannel")
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[tokio::test]
async fn facts_are_read_in_three_rounds_of_requests() {
    let api = FakeApi::new();
    let client = api.client();
    let wanted = of_flannel();
    api.put(NODE, node("True"));
    api.put("/api/v1/nodes/n2", node("False"));
    api.put(DAEMON_SET, daemon_set(1));
    api.put(
        "/apis/apps/v1/namespaces/default/daemonsets/theirs",
        json!({ "metadata": {} }),
    );
    let before = saved("a");
    save_state_copy(&client, &before).await.unwrap();
    api.log();

    let facts = read(&client, &wanted).await.unwrap();
    insta::assert_snapshot!(api.log().join("\n"), @r"
    GET /readyz
    GET /version
    GET /api/v1/namespaces/kube-system/configmaps/rke-operator-user-addons
    GET /api/v1/nodes
    GET /api/v1/namespaces/kube-system/secrets/rke-operator-state
    GET /apis/apps/v1
    GET /apis/apps/v1/daemonsets
    PATCH /apis/apps/v1/namespaces/kube-system/daemonsets/flannel
    ");
    assert_eq!(facts.version, "v1.34.4");
    assert_eq!(facts.state_copy.state(), Some(&before.copy()));
    let nodes: Vec<_> = facts
        .nodes
        .iter()
        .map(|(name, node)| (name.0.as_str(), node.ready, node.message.as_str()))
        .collect();
    assert_eq!(
        nodes,
        [("n1", true, ""), ("n2", false, "container runtime is down")]
    );
    let objects: Vec<_> = facts.objects.keys().collect();
    assert_eq!(objects, [&flannel()]);
    assert_eq!(facts.objects[&flannel()]["kind"], "DaemonSet");
    assert_eq!(facts.objects[&flannel()]["apiVersion"], "apps/v1");
}

#[tokio::test(start_paused = true)]
async fn not_ready_and_half_an_answer_are_down() {
    let api = FakeApi::new();
    let client = api.client();
    for code in [403, 500] {
        api.refuse("GET /apis/apps/v1/daemonsets", &[code]);
        assert!(read(&client, &of_flannel()).await.is_err(), "{code}");
    }
    api.not_ready("[-]etcd failed");
    read(&client, &of_flannel()).await.unwrap_err();
}

// ---- writing

/// What is gone meanwhile is not stored any more.
#[tokio::test]
async fn what_is_stored_is_written_again_and_then_marked() {
    let api = FakeApi::new();
    let client = api.client();
    let state = saved("a");
    save_state_copy(&client, &state).await.unwrap();
    for path in [
        "default/secrets/a",
        "default/secrets/gone",
        "other/secrets/b",
    ] {
        let path = format!("/api/v1/namespaces/{path}");
        let (rest, name) = path.rsplit_once('/').unwrap();
        let namespace = rest.split('/').nth(4).unwrap();
        api.put(
            &path,
            json!({"metadata": {"name": name, "namespace": namespace}}),
        );
    }
    api.refuse("PATCH /api/v1/namespaces/default/secrets/gone", &[404]);
    api.refuse("PATCH /api/v1/namespaces/other/secrets/b", &[500, 409]);
    api.log();
    let resources = ["secrets", "widgets.example.com"].map(str::to_owned).into();
    let told = std::sync::Mutex::new(Vec::new());
    let progress = |done, total| told.lock().unwrap().push((done, total));
    rewrite(&client, &resources, "key-1", &progress)
        .await
        .unwrap();
    assert_eq!(*told.lock().unwrap(), [(4, 4)]);
    let log = api.log();
    assert_eq!(
        log[..2],
        [
            "GET /api/v1",
            "GET /apis/apiregistration.k8s.io/v1/apiservices"
        ]
    );
    let mark = "PATCH /api/v1/namespaces/kube-system/secrets/rke-operator-state";
    assert_eq!(log.last().unwrap(), mark);
    let again = "PATCH /api/v1/namespaces/other/secrets/b";
    assert_eq!(log.iter().filter(|line| *line == again).count(), 3);
    let wanted = WantedObjects::default();
    let facts = read(&client, &wanted).await.unwrap();
    assert_eq!(facts.written_with.as_deref(), Some("key-1"));
    assert_eq!(facts.state_copy.state(), Some(&state.copy()));
    forget(&client).await.unwrap();
    let facts = read(&client, &wanted).await.unwrap();
    assert_eq!(facts.written_with, None);
}

/// What is not of Kubernetes' core is found by discovery, in every group of this server, each kind once. Another server's
/// kinds are not stored here, and are not asked for.
#[tokio::test]
async fn whatever_a_configuration_names_is_written_again() {
    let group = |name: &str, version: &str, priority: i32, service: Value| {
        let spec = json!({
            "group": name, "version": version, "versionPriority": priority,
            "groupPriorityMinimum": 1, "service": service,
        });
        let object = format!("{version}.{name}");
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{object}");
        (path, json!({"metadata": {"name": object}, "spec": spec}))
    };
    let written = |names: &[&str]| {
        let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        async move {
            let api = FakeApi::new();
            let client = api.client();
            save_state_copy(&client, &saved("a")).await.unwrap();
            let theirs = json!({"name": "metrics-server", "namespace": "kube-system"});
            for (path, object) in [
                group("", "v1", 1, Value::Null),
                group("example.com", "v1", 100, Value::Null),
                group("example.com", "v1beta1", 9, Value::Null),
                group("apps", "v1", 15, Value::Null),
                group("metrics.k8s.io", "v1beta1", 100, theirs),
            ] {
                api.put(&path, object);
            }
            for (path, namespace) in [
                ("/api/v1/namespaces/default/secrets/s", "default"),
                (
                    "/apis/example.com/v1/namespaces/default/widgets/w",
                    "default",
                ),
                ("/apis/example.com/v1beta1/old/o", ""),
                ("/apis/apps/v1/namespaces/default/deployments/d", "default"),
            ] {
                let name = path.rsplit('/').next().unwrap();
                let mut metadata = json!({"name": name});
                if !namespace.is_empty() {
                    metadata["namespace"] = namespace.into();
                }
                api.put(path, json!({"metadata": metadata}));
            }
            api.log();
            rewrite(&client, &names, "b/all", &|_, _| ()).await.unwrap();
            let log = api.log();
            assert!(!log.iter().any(|line| line.contains("metrics")), "{log:?}");
            let patches = log.iter().filter_map(|line| line.strip_prefix("PATCH "));
            let names = patches.filter_map(|path| path.rsplit('/').next().map(str::to_owned));
            names.filter(|name| name.len() == 1).collect::<String>()
        }
    };
    assert_eq!(written(&["widgets.example.com"]).await, "w");
    assert_eq!(written(&["secrets", "widgets.example.com"]).await, "sw");
    assert_eq!(written(&["*.apps"]).await, "d");
    assert_eq!(written(&["*."]).await, "s");
    assert_eq!(written(&["*.*"]).await, "sdwo");
    assert_eq!(
        written(&["things.gone.example.com"]).await,
        "",
        "no server has them"
    );
}

fn labelled() -> Value {
    json!({ "metadata": { "labels": { label::ADDON: "flannel" } } })
}

fn flannel_objects() -> BTreeMap<ObjectRef, Value> {
    let rbac = "rbac.authorization.k8s.io/v1";
    [
        flannel(),
        object("v1", "Namespace", "", "flannel"),
        object("v1", "ServiceAccount", "kube-system", "flannel"),
        object(rbac, "ClusterRole", "", "flannel"),
        object("v1", "ConfigMap", "kube-system", "flannel"),
    ]
    .map(|object| (object, labelled()))
    .into_iter()
    .collect()
}

#[tokio::test(start_paused = true)]
async fn objects_are_applied_in_order_and_pruned_backwards() {
    let api = FakeApi::new();
    let client = api.client();
    let objects = flannel_objects();
    apply_objects(&client, &Kinds::default(), &objects)
        .await
        .unwrap();
    let mut applied = api.log();
    applied.retain(|line| line.starts_with("PATCH"));
    insta::assert_snapshot!(applied.join("\n"), @r"
    PATCH /api/v1/namespaces/flannel
    PATCH /api/v1/namespaces/kube-system/serviceaccounts/flannel
    PATCH /apis/rbac.authorization.k8s.io/v1/clusterroles/flannel
    PATCH /api/v1/namespaces/kube-system/configmaps/flannel
    PATCH /apis/apps/v1/namespaces/kube-system/daemonsets/flannel
    ");
    let all: Vec<_> = objects.into_keys().collect();
    prune(&client, &Kinds::default(), &all).await.unwrap();
    let deleted: Vec<_> = api
        .log()
        .into_iter()
        .filter_map(|line| line.strip_prefix("DELETE ").map(str::to_owned))
        .collect();
    let applied = applied
        .iter()
        .rev()
        .map(|line| line.trim_start_matches("PATCH "));
    assert!(
        applied.eq(deleted.iter().map(String::as_str)),
        "{deleted:?}"
    );
    prune(&client, &Kinds::default(), &all).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_object_is_read_as_it_is_or_as_missing() {
    let api = FakeApi::new();
    let read = async || read_object(&api.client(), &Kinds::default(), &flannel()).await;
    assert_eq!(read().await.unwrap(), None);
    api.put(DAEMON_SET, json!({ "metadata": { "uid": "1" } }));
    assert_eq!(read().await.unwrap().unwrap()["metadata"]["uid"], "1");
    // What could not be read is not missing.
    api.refuse(&format!("GET {DAEMON_SET}"), &[403]);
    read().await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn an_object_that_no_longer_has_our_label_is_not_pruned() {
    let api = FakeApi::new();
    api.put(DAEMON_SET, json!({ "metadata": { "labels": {} } }));
    prune(&api.client(), &Kinds::default(), &[flannel()])
        .await
        .unwrap();
    assert!(api.get(DAEMON_SET).is_some());
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_and_what_may_not_is_an_error() {
    let api = FakeApi::new();
    let client = api.client();
    let request = format!("PATCH {DAEMON_SET}");
    let objects = BTreeMap::from([(flannel(), labelled())]);
    api.refuse(&request, &[500, 503, 429]);
    let patches = || {
        let log = api.log().into_iter();
        log.filter(|line| line.starts_with("PATCH")).count()
    };
    apply_objects(&client, &Kinds::default(), &objects)
        .await
        .unwrap();
    assert_eq!(patches(), 4);

    api.refuse(&request, &[403]);
    let error = apply_objects(&client, &Kinds::default(), &objects)
        .await
        .unwrap_err();
    assert_eq!(error.class(), ErrorClass::Bug);
    assert_eq!(patches(), 1);

    // A namespace that never comes.
    api.only_namespaces(&["default"]);
    api.forget(DAEMON_SET);
    let begun = tokio::time::Instant::now();
    let error = apply_objects(&client, &Kinds::default(), &objects)
        .await
        .unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient);
    assert!((30..40).contains(&begun.elapsed().as_secs()));
    assert!(
        error
            .to_string()
            .contains("apply DaemonSet `kube-system/flannel`"),
        "{error}"
    );
}

/// A run that is killed while a Service is made leaves its address noted by the API server.
#[tokio::test(start_paused = true)]
async fn an_address_that_no_service_has_is_waited_for_and_one_that_another_has_is_named() {
    let api = FakeApi::new();
    let client = api.client();
    let dns = object("v1", "Service", "kube-system", "kube-dns");
    let wanted = json!({ "spec": { "clusterIP": "10.43.0.10" } });
    let kinds = Kinds::default();
    let apply = async || apply_objects(&client, &kinds, [(&dns, &wanted)]).await;

    api.note_address("10.43.0.10");
    let error = apply().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient);
    insta::assert_snapshot!(error, @"Service `kube-system/kube-dns` cannot have the address 10.43.0.10: no Service has it, and the API server still keeps it for a request that was cut off");
    assert!(with_causes(&error).contains("already allocated"), "{error}");
    api.free_addresses();
    apply().await.unwrap();

    api.forget("/api/v1/namespaces/kube-system/services/kube-dns");
    let other = json!({ "spec": { "clusterIP": "10.43.0.10", "clusterIPs": ["10.43.0.10"] } });
    api.put("/api/v1/namespaces/shop/services/web", other);
    let error = apply().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::User);
    insta::assert_snapshot!(error, @"Service `kube-system/kube-dns` cannot have the address 10.43.0.10: Service shop/web has it");
    assert!(error.hints()[0].contains("shop/web"), "{:?}", error.hints());
}

/// What others made is changed as the user's manifest says, and not pruned later.
#[tokio::test(start_paused = true)]
async fn an_object_that_was_there_before_the_users_manifest_is_marked() {
    let api = FakeApi::new();
    let (client, kinds) = (api.client(), Kinds::default());
    let found = object("v1", "ConfigMap", "default", "found");
    let new = object("v1", "ConfigMap", "default", "new");
    let path = "/api/v1/namespaces/default/configmaps/found";
    api.put(
        path,
        json!({"metadata": {"name": "found", "namespace": "default"}}),
    );
    let wanted =
        json!({"metadata": {"labels": {label::ADDON: label::USER_ADDONS}}, "data": {"a": "b"}});
    let wanted = &wanted;
    for _ in 0..2 {
        let objects = [(&found, wanted), (&new, wanted)];
        apply_objects(&client, &kinds, objects).await.unwrap();
    }
    let mut marks = Vec::new();
    for object in [&found, &new] {
        let live = read_object(&client, &kinds, object).await.unwrap().unwrap();
        assert_eq!(live["data"]["a"], "b", "{live}");
        marks.push(crate::model::outlives_its_manifest(object, &live));
    }
    assert_eq!(marks, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_server_does_not_have_is_waited_for_and_then_an_error() {
    let api = FakeApi::new();
    let (client, kinds) = (api.client(), Kinds::default());
    let foreign = object("example.com/v1", "Thing", "default", "x");
    let begun = tokio::time::Instant::now();
    let error = apply_objects(&client, &kinds, [(&foreign, &labelled())]).await;
    let error = error.unwrap_err();
    assert!((30..40).contains(&begun.elapsed().as_secs()), "{error}");
    assert!(
        with_causes(&error).contains("no kind Thing in example.com/v1"),
        "{error}"
    );

    // Looking for it is no error.
    let mut wanted = of_flannel();
    wanted.kinds.insert(foreign.kind());
    wanted.objects.insert(foreign, labelled());
    read(&client, &wanted).await.unwrap();
}

// ---- what an apply would do

/// What a survey looks for when flannel's one object is wanted.
fn of_flannel() -> WantedObjects {
    WantedObjects {
        objects: BTreeMap::from([(flannel(), labelled())]),
        kinds: [flannel().kind()].into(),
        ..WantedObjects::default()
    }
}

async fn dry_run(api: &FakeApi) -> DryRun {
    let facts = read(&api.client(), &of_flannel()).await.unwrap();
    facts.dry_runs[&flannel()].clone()
}

#[tokio::test]
async fn the_server_says_what_an_apply_would_change_and_changes_nothing() {
    let api = FakeApi::new();
    api.put(DAEMON_SET, daemon_set(1));
    let live = api.get(DAEMON_SET).unwrap();
    let DryRun::Would(would) = dry_run(&api).await else {
        panic!("it was tried");
    };
    assert_eq!(object_changes(&live, &would), []);

    let mut edited = daemon_set(1);
    edited["metadata"]["labels"][label::ADDON] = "flannel2".into();
    api.put(DAEMON_SET, edited);
    let live = api.get(DAEMON_SET).unwrap();
    let DryRun::Would(would) = dry_run(&api).await else {
        panic!("it was tried");
    };
    let changes = object_changes(&live, &would);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0].to.as_deref(), Some("flannel"));
    assert_eq!(api.get(DAEMON_SET).unwrap(), live, "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_refuses_dry_runs_is_known_after_apply_and_the_look_goes_on() {
    let api = FakeApi::new();
    api.put(NODE, node("True"));
    api.put(DAEMON_SET, daemon_set(1));
    let patch = format!("PATCH {DAEMON_SET}");
    for code in [400, 403, 404, 422] {
        api.refuse(&patch, &[code]);
        let DryRun::KnownAfterApply(why) = dry_run(&api).await else {
            panic!("it was refused");
        };
        assert_eq!(why, "refused by the test");
    }
    // E25: a server that has too much to do for a moment has not said what it would do.
    for code in [429, 500, 503, 504] {
        api.refuse(&patch, &[code, code]);
        assert!(matches!(dry_run(&api).await, DryRun::Would(_)), "{code}");
        api.refuse(&patch, &[code; 100]);
        let DryRun::KnownAfterApply(why) = dry_run(&api).await else {
            panic!("it was refused");
        };
        assert_eq!(why, "refused by the test");
        api.refuse(&patch, &[]);
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_tried() {
    let api = FakeApi::new();
    let facts = read(&api.client(), &of_flannel()).await.unwrap();
    assert!(facts.objects.is_empty() && facts.dry_runs.is_empty());
    assert!(!api.log().iter().any(|line| line.starts_with("PATCH")));
}

// ---- waiting

/// What the wait reported that it waits for.
#[derive(Default, Debug)]
struct Heard(std::sync::Mutex<Vec<String>>);

impl Heard {
    fn ear(&self) -> impl Fn(String, u64) + Send + Sync + '_ {
        |what, _tries| self.0.lock().unwrap().push(what)
    }

    fn last(&self) -> Option<String> {
        std::mem::take(&mut *self.0.lock().unwrap()).pop()
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_node_is_watched_until_it_is_ready() {
    let api = FakeApi::new();
    let client = api.client();
    let heard = Heard::default();
    let ear = heard.ear();
    let name = "n1".into();
    let mut wait = std::pin::pin!(await_node_ready(&client, &name, PATIENCE, &ear));
    let mut later = async |state: Option<Value>| {
        if let Some(state) = state {
            api.put(NODE, state);
        }
        tokio::time::timeout(Duration::from_secs(2), wait.as_mut()).await
    };
    assert!(later(None).await.is_err());
    assert!(later(Some(node("False"))).await.is_err());
    assert!(matches!(later(Some(node("True"))).await, Ok(Ok(()))));
    let last = heard.last().unwrap();
    assert_eq!(last, "node `n1`: container runtime is down");
    // Watched: no request each second.
    assert!(api.log().len() <= 3);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_bound() {
    let api = FakeApi::new();
    let client = api.client();
    let heard = Heard::default();
    let ear = heard.ear();
    let name = "n1".into();
    let error = await_node_ready(&client, &name, PATIENCE, &ear)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "waited 60 s for node `n1`: kubelet has not registered it yet"
    );
}

fn pod(state: &Value, conditions: &Value) -> Value {
    json!({
        "metadata": { "labels": { "app": "flannel" } },
        "spec": { "containers": [] },
        "status": {
            "phase": "Pending", "conditions": conditions,
            "containerStatuses": [{
                "name": "flannel", "ready": false, "image": "", "imageID": "", "restartCount": 0,
                "state": state,
            }],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn workloads_are_watched_and_the_reason_is_the_pods_own() {
    let api = FakeApi::new();
    let client = api.client();
    let heard = Heard::default();
    let ear = heard.ear();
    let path = "/api/v1/namespaces/kube-system/pods/flannel-1";
    let workloads = [flannel()];
    let all_answer = BTreeSet::new();
    let mut wait = std::pin::pin!(await_workloads(
        &client,
        &workloads,
        &all_answer,
        PATIENCE,
        &ear
    ));
    let mut said = Vec::new();
    let waiting = json!({ "waiting": {
        "reason": "ImagePullBackOff", "message": "Back-off pulling image \"flannel:9\"",
    } });
    let unscheduled =
        json!([{ "type": "PodScheduled", "status": "False", "message": "0/1 nodes" }]);
    for (path, state) in [
        ("", Value::Null),
        (DAEMON_SET, daemon_set(0)),
        (path, pod(&json!({}), &unscheduled)),
        (path, pod(&waiting, &json!([]))),
        (
            path,
            pod(
                &json!({ "terminated": { "exitCode": 1, "reason": "Error" } }),
                &json!([]),
            ),
        ),
    ] {
        if !path.is_empty() {
            api.put(path, state);
        }
        let wait = tokio::time::timeout(Duration::from_secs(2), wait.as_mut());
        assert!(wait.await.is_err());
        said.extend(heard.last());
    }
    insta::assert_snapshot!(said.join("\n"), @r#"
    DaemonSet `kube-system/flannel`: it is not there yet
    DaemonSet `kube-system/flannel`: 0 of 1 available: no pod was created yet
    DaemonSet `kube-system/flannel`: 0 of 1 available: pod `flannel-1`: not scheduled: 0/1 nodes
    DaemonSet `kube-system/flannel`: 0 of 1 available: pod `flannel-1`: ImagePullBackOff: Back-off pulling image "flannel:9"
    DaemonSet `kube-system/flannel`: 0 of 1 available: pod `flannel-1`: container `flannel` ended with 1: Error
    "#);
    api.put(DAEMON_SET, daemon_set(1));
    assert_eq!(wait.await, Waited::Ready);
}

/// A container that exits again and again, as kubelet reports it.
fn crashing(restarts: i32) -> Value {
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let mut pod = pod(&waiting, &json!([]));
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "flannel", "uid": "u"}]);
    pod["spec"]["nodeName"] = json!("n1");
    let status = &mut pod["status"]["containerStatuses"][0];
    status["restartCount"] = json!(restarts);
    status["lastState"] = json!({ "terminated": { "exitCode": 1, "reason": "Error" } });
    pod
}

const FLANNEL_POD: &str = "/api/v1/namespaces/kube-system/pods/flannel-1";
const FLANNEL_LOG: &str = "I1125 10:11:12.131415       1 main.go:1] starting\n\
    E1125 10:11:12.231415       1 main.go:2] Failed to find interface eth7\n";

#[tokio::test(start_paused = true)]
async fn a_crash_loop_ends_the_wait_with_what_the_container_said() {
    let api = FakeApi::new();
    let client = api.client();
    let heard = Heard::default();
    let ear = heard.ear();
    api.put(DAEMON_SET, daemon_set(0));
    api.put(FLANNEL_POD, crashing(5));
    api.log_of(FLANNEL_POD, FLANNEL_LOG);
    let (workloads, all_answer) = ([flannel()], BTreeSet::new());
    let wait = await_workloads(&client, &workloads, &all_answer, PATIENCE, &ear);
    let mut wait = std::pin::pin!(wait);
    let begun = tokio::time::Instant::now();
    for restarts in [5, 6] {
        api.put(FLANNEL_POD, crashing(restarts));
        let early = tokio::time::timeout(Duration::from_secs(2), wait.as_mut());
        assert!(early.await.is_err(), "it may have been another's fault");
    }
    api.put(FLANNEL_POD, crashing(7));
    let Waited::StillWaiting(why) = wait.await else {
        panic!("it is not available");
    };
    insta::assert_snapshot!(why, @"DaemonSet `kube-system/flannel`: 0 of 1 available: pod `flannel-1`: CrashLoopBackOff; container `flannel` of pod `kube-system/flannel-1` keeps exiting with code 1: Failed to find interface eth7");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    let logs = api.log().into_iter().filter(|line| line.ends_with("/log"));
    assert_eq!(logs.count(), 6, "two for each time that it exited");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_no_node_takes_is_not_waited_for_all_the_time() {
    let api = FakeApi::new();
    let client = api.client();
    let heard = Heard::default();
    let ear = heard.ear();
    let message = "0/3 nodes are available: 3 node(s) had untolerated taint(s)";
    let unscheduled = json!([{ "type": "PodScheduled", "status": "False", "message": message }]);
    let starting = json!({ "waiting": { "reason": "ContainerCreating" } });
    api.put(DAEMON_SET, daemon_set(0));
    api.put(FLANNEL_POD, pod(&json!({}), &unscheduled));
    let (workloads, silent) = ([flannel()], BTreeSet::new());
    let minute = Duration::from_secs(60);
    let wait = await_workloads(&client, &workloads, &silent, 5 * minute, &ear);
    let mut wait = std::pin::pin!(wait);
    let early = tokio::time::timeout(minute, wait.as_mut());
    assert!(early.await.is_err(), "a node may come");
    // One came and went: time begins again.
    api.put(FLANNEL_POD, pod(&starting, &json!([])));
    let early = tokio::time::timeout(minute, wait.as_mut());
    assert!(early.await.is_err(), "it starts");
    api.put(FLANNEL_POD, pod(&json!({}), &unscheduled));
    let begun = tokio::time::Instant::now();
    let Waited::StillWaiting(why) = wait.await else {
        panic!("it is not available");
    };
    insta::assert_snapshot!(why, @"DaemonSet `kube-system/flannel`: 0 of 1 available: pod `flannel-1`: not scheduled: 0/3 nodes are available: 3 node(s) had untolerated taint(s)");
    let took = begun.elapsed();
    assert!(took >= 2 * minute && took < 3 * minute, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn of_a_node_that_is_not_ready_the_daemons_tell_why() {
    let api = FakeApi::new();
    let client = api.client();
    let name = "n1".into();
    assert_eq!(crash_on_node(&client, &name).await, None);
    // Another's pod does not keep a node from being Ready.
    let mut theirs = crashing(9);
    theirs["metadata"]["ownerReferences"] = json!([]);
    api.put("/api/v1/namespaces/kube-system/pods/theirs", theirs);
    assert_eq!(crash_on_node(&client, &name).await, None);
    api.put(FLANNEL_POD, crashing(2));
    api.log_of(FLANNEL_POD, FLANNEL_LOG);
    let found = crash_on_node(&client, &name).await.unwrap();
    let mut crashes = Crashes::default();
    let why = crashes.explain(&client, &found).await;
    assert!(why.ends_with("Failed to find interface eth7"), "{why}");
    assert!(!crashes.is_over(), "it may come up yet");
}

#[tokio::test(start_paused = true)]
async fn workloads_that_are_late_are_no_failure() {
    let api = FakeApi::new();
    api.put(DAEMON_SET, daemon_set(0));
    let heard = Heard::default();
    let ear = heard.ear();
    let all_answer = BTreeSet::new();
    let waited = await_workloads(&api.client(), &[flannel()], &all_answer, PATIENCE, &ear).await;
    assert_eq!(
        waited,
        Waited::StillWaiting(
            "DaemonSet `kube-system/flannel`: 0 of 1 available: no pod was created yet".to_owned()
        )
    );
}

#[tokio::test(start_paused = true)]
async fn pods_of_silent_nodes_are_not_waited_for() {
    let api = FakeApi::new();
    let mut one_short = daemon_set(1);
    one_short["status"]["desiredNumberScheduled"] = json!(2);
    api.put(DAEMON_SET, one_short);
    let pod = |node: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "flannel-2", "namespace": "kube-system",
                "labels": api.get(DAEMON_SET).unwrap()["spec"]["selector"]["matchLabels"],
            },
            "spec": { "nodeName": node, "containers": [] },
        })
    };
    let heard = Heard::default();
    let ear = heard.ear();
    let silent = BTreeSet::from(["n2".into()]);
    for (node, ready) in [("n2", true), ("n1", false)] {
        api.put("/api/v1/namespaces/kube-system/pods/flannel-2", pod(node));
        let waited = await_workloads(&api.client(), &[flannel()], &silent, PATIENCE, &ear).await;
        assert_eq!(waited == Waited::Ready, ready, "{node}: {waited:?}");
    }
}

/// A Deployment whose replicas keep apart finds no other node for one, perhaps; while another serves that
/// is no reason to wait.
#[tokio::test(start_paused = true)]
async fn a_replica_that_finds_no_node_is_not_waited_for_while_another_serves() {
    let api = FakeApi::new();
    let heard = Heard::default();
    let ear = heard.ear();
    let all_answer = BTreeSet::new();
    let silent = BTreeSet::from(["n2".into()]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "coredns-2", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"},
        },
        "spec": { "containers": [] },
    });
    api.put("/api/v1/namespaces/kube-system/pods/coredns-2", pod);
    for (available, silent, ready) in [
        (1, &silent, true),
        (0, &silent, false),
        (1, &all_answer, false),
    ] {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "coredns", "namespace": "kube-system", "generation": 1},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"k8s-app": "kube-dns"}}, "template": {}},
            "status": {
                "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2,
                "availableReplicas": available,
            },
        });
        api.put(
            "/apis/apps/v1/namespaces/kube-system/deployments/coredns",
            deployment,
        );
        let coredns = object("apps/v1", "Deployment", "kube-system", "coredns");
        let waited = await_workloads(&api.client(), &[coredns], silent, PATIENCE, &ear).await;
        assert_eq!(
            waited == Waited::Ready,
            ready,
            "{available} {silent:?}: {waited:?}"
        );
    }
}

/// Kubernetes makes another after minutes. One that it has made already is waited for.
#[tokio::test(start_paused = true)]
async fn what_is_on_silent_nodes_alone_is_reported_and_not_waited_for() {
    let api = FakeApi::new();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "metrics", "namespace": "kube-system", "generation": 1},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "metrics"}}, "template": {}},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1},
    });
    let path = "/apis/apps/v1/namespaces/kube-system/deployments/metrics";
    api.put(path, deployment);
    let pod = |name: &str, node: Option<&str>| {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "kube-system", "labels": {"app": "metrics"}},
            "spec": {"nodeName": node, "containers": []},
        });
        let path = format!("/api/v1/namespaces/kube-system/pods/{name}");
        api.put(&path, pod);
    };
    let silent = BTreeSet::from(["n2".into()]);
    let heard = Heard::default();
    let ear = heard.ear();
    let client = api.client();
    let metrics = [object("apps/v1", "Deployment", "kube-system", "metrics")];
    let wait = async || {
        let from = tokio::time::Instant::now();
        let waited = await_workloads(&client, &metrics, &silent, PATIENCE, &ear).await;
        let Waited::StillWaiting(why) = waited else {
            panic!("it is not available");
        };
        (why, from.elapsed() >= PATIENCE)
    };
    pod("one", Some("n2"));
    let (why, waited) = wait().await;
    assert!(!waited, "{why}");
    let begins = "Deployment `kube-system/metrics`: 0 of 1 available: its pods are on `n2`";
    assert!(why.starts_with(begins), "{why}");
    for at in [None, Some("n1")] {
        pod("two", at);
        let (why, waited) = wait().await;
        assert!(waited, "{why}");
    }
}

// ---- node metadata

#[tokio::test(start_paused = true)]
async fn labels_are_set_on_a_node_that_registers_late_and_conflicts_are_tried_again() {
    let api = FakeApi::new();
    let client = api.client();
    let heard = Heard::default();
    let ear = heard.ear();
    let name = "n1".into();
    let meta = NodeMeta {
        labels: BTreeMap::from([("role".to_owned(), "a".to_owned())]),
        ..NodeMeta::default()
    };
    api.refuse(&format!("PATCH {NODE}"), &[409, 409]);
    let set = async {
        await_registered(&client, &name, PATIENCE, &ear).await?;
        set_node_meta(&client, &name, &meta).await
    };
    let register = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        api.put(NODE, node("False"));
    };
    let (set, ()) = tokio::join!(set, register);
    set.unwrap();
    let live = api.get(NODE).unwrap();
    assert_eq!(live["metadata"]["labels"], json!({ "a": "b", "role": "a" }));
    assert!(live["metadata"]["annotations"][NODE_META].is_string());

    // Again: nothing is written.
    api.log();
    set_node_meta(&client, &name, &meta).await.unwrap();
    assert!(!api.log().iter().any(|line| line.starts_with("PATCH")));

    let nothing = NodeMeta::default();
    set_node_meta(&client, &name, &nothing).await.unwrap();
    let live = api.get(NODE).unwrap();
    assert_eq!(live["metadata"]["labels"], json!({ "a": "b" }));
    assert_eq!(live["metadata"]["annotations"], json!({}));
}

// ---- cordon and drain

const POD: &str = "/api/v1/namespaces/default/pods/web-1";

/// A pod of a `ReplicaSet` on the node.
fn web() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-1", "namespace": "default",
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
                "controller": true,
            }],
        },
        "spec": { "nodeName": "n1", "containers": [] },
    })
}

#[tokio::test(start_paused = true)]
async fn a_cordon_has_our_annotation_and_only_such_a_cordon_is_removed() {
    let api = FakeApi::new();
    let (client, name) = (api.client(), "n1".into());
    api.put(NODE, node("True"));
    api.refuse(&format!("PATCH {NODE}"), &[409]);
    cordon(&client, &name).await.unwrap();
    let live = api.get(NODE).unwrap();
    assert_eq!(live["spec"]["unschedulable"], true);
    assert_eq!(live["metadata"]["annotations"][label::CORDONED], "true");
    uncordon(&client, &name).await.unwrap();
    let live = api.get(NODE).unwrap();
    assert_eq!(live["spec"]["unschedulable"], Value::Null);
    assert_eq!(live["metadata"]["annotations"], json!({}));

    // One that was made to stay is a person's, also where it was ours before.
    for before in [cordon(&client, &name).await, Ok(())] {
        before.unwrap();
        keep_cordoned(&client, &name).await.unwrap();
        uncordon(&client, &name).await.unwrap();
        let live = api.get(NODE).unwrap();
        assert_eq!(live["spec"]["unschedulable"], true);
        assert_eq!(live["metadata"]["annotations"], json!({}));
        let_pods_in(&client, &name).await.unwrap();
        assert_eq!(api.get(NODE).unwrap()["spec"]["unschedulable"], Value::Null);
    }

    // A person's.
    let mut theirs = node("True");
    theirs["spec"]["unschedulable"] = json!(true);
    api.put(NODE, theirs);
    api.log();
    cordon(&client, &name).await.unwrap();
    uncordon(&client, &name).await.unwrap();
    assert!(!api.log().iter().any(|line| line.starts_with("PATCH")));
    assert_eq!(api.get(NODE).unwrap()["spec"]["unschedulable"], true);
}

#[tokio::test(start_paused = true)]
async fn a_drain_asks_again_while_a_budget_says_no() {
    let api = FakeApi::new();
    let name = "n1".into();
    api.put(NODE, node("True"));
    api.put(POD, web());
    api.refuse(&format!("POST {POD}/eviction"), &[429, 500]);
    let heard = Heard::default();
    let ear = heard.ear();
    let rules = DrainRules::default();
    drain(&api.client(), &name, Some(&rules), PATIENCE, &ear)
        .await
        .unwrap();
    assert_eq!(api.get(POD), None);
    let live = api.get(NODE).unwrap();
    assert_eq!(
        live["spec"]["unschedulable"], true,
        "until its kubelet is back"
    );
}

#[tokio::test(start_paused = true)]
async fn a_drain_in_vain_leaves_the_node_as_it_was() {
    let api = FakeApi::new();
    let (client, name) = (api.client(), "n1".into());
    api.put(NODE, node("True"));
    api.put(POD, web());
    api.refuse(&format!("POST {POD}/eviction"), &[429; 1000]);
    let heard = Heard::default();
    let ear = heard.ear();
    let rules = DrainRules::default();
    let late = drain(&client, &name, Some(&rules), PATIENCE, &ear).await;
    let said = late.unwrap_err().to_string();
    assert!(
        said.contains("`default/web-1` may not be evicted yet"),
        "{said}"
    );
    assert_eq!(api.get(NODE).unwrap()["spec"]["unschedulable"], Value::Null);

    // A pod that nothing would start again: nothing is evicted at all.
    let mut bare = web();
    bare["metadata"]["name"] = json!("bare");
    bare["metadata"]["ownerReferences"] = json!([]);
    api.put("/api/v1/namespaces/default/pods/bare", bare);
    api.log();
    let kept = drain(&client, &name, Some(&rules), PATIENCE, &ear).await;
    let kept = kept.unwrap_err();
    assert!(kept.to_string().contains("`default/bare`"), "{kept}");
    assert_eq!(kept.class(), ErrorClass::User);
    assert!(!api.log().iter().any(|line| line.contains("eviction")));
    assert_eq!(api.get(NODE).unwrap()["spec"]["unschedulable"], Value::Null);

    // A node that leaves is not asked.
    api.refuse(&format!("POST {POD}/eviction"), &[]);
    drain(&client, &name, None, PATIENCE, &ear).await.unwrap();
    assert_eq!(api.get(NODE).unwrap()["spec"]["unschedulable"], true);
}

#[tokio::test(start_paused = true)]
async fn seventy_slow_evictions_fit_into_the_default_time() {
    let api = FakeApi::new();
    api.put(NODE, node("True"));
    for number in 0..70 {
        let path = format!("/api/v1/namespaces/default/pods/web-{number}");
        api.put(&path, web());
    }
    api.delay("/eviction", Duration::from_secs(2));
    let heard = Heard::default();
    let ear = heard.ear();
    let rules = DrainRules::default();
    let patience = Duration::from_secs(rules.timeout.into());
    let begun = tokio::time::Instant::now();
    drain(&api.client(), &"n1".into(), Some(&rules), patience, &ear)
        .await
        .unwrap();
    let took = begun.elapsed();
    assert!(took <= Duration::from_secs(10), "{took:?}");
    let log = api.log();
    let evictions = log.iter().filter(|line| line.ends_with("/eviction"));
    assert_eq!(evictions.count(), 70, "each is asked once");
    let lists = log.iter().filter(|line| line.ends_with("/api/v1/pods"));
    assert!(lists.count() <= 4, "a watch, not a list a second: {log:?}");
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_is_not_answered_is_asked_again() {
    let api = FakeApi::new();
    api.put(NODE, node("True"));
    api.put(POD, web());
    api.refuse(&format!("POST {POD}/eviction"), &[503, 504]);
    let heard = Heard::default();
    let ear = heard.ear();
    let rules = DrainRules::default();
    drain(&api.client(), &"n1".into(), Some(&rules), PATIENCE, &ear)
        .await
        .unwrap();
    assert_eq!(api.get(POD), None);
}

/// A Deployment whose pods belong on several nodes, as an add-on has it.
fn spread() -> (ObjectRef, Value) {
    let value = json!({"spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"spec": {"topologySpreadConstraints": [{"maxSkew": 1}]}},
    }});
    (object("apps/v1", "Deployment", "default", "web"), value)
}

#[tokio::test(start_paused = true)]
async fn pods_that_belong_on_several_nodes_are_read_and_those_that_end_are_not() {
    let api = FakeApi::new();
    api.put(NODE, node("True"));
    let pod = |app: &str, node: &str| json!({"metadata": {"labels": {"app": app}}, "spec": {"nodeName": node, "containers": []}});
    let path = |name: &str| format!("/api/v1/namespaces/default/pods/{name}");
    api.put(&path("one"), pod("web", "n1"));
    api.put(&path("theirs"), pod("other", "n1"));
    let mut ends = pod("web", "n1");
    ends["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    api.put(&path("ends"), ends);
    let mut nowhere = pod("web", "n1");
    nowhere["spec"]["nodeName"] = Value::Null;
    api.put(&path("two"), nowhere);
    let (deployment, value) = spread();
    let mut wanted = of_flannel();
    wanted.objects.insert(deployment.clone(), value);
    let facts = read(&api.client(), &wanted).await.unwrap();
    let pods = &facts.replicas[&deployment];
    let pods: Vec<_> = pods
        .iter()
        .map(|pod| {
            (
                pod.name.as_str(),
                pod.node.as_ref().map(|node| node.0.as_str()),
            )
        })
        .collect();
    assert_eq!(pods, [("one", Some("n1")), ("two", None)]);
    let without = read(&api.client(), &of_flannel()).await.unwrap();
    assert!(
        without.replicas.is_empty(),
        "no other replicas are asked for"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_moves_when_its_budget_allows_it_and_only_that_one() {
    let api = FakeApi::new();
    let client = api.client();
    api.put(POD, web());
    let uid = api.get(POD).unwrap()["metadata"]["uid"].clone();
    let uid = uid.as_str().unwrap();
    api.refuse(&format!("POST {POD}/eviction"), &[429; 2]);
    let heard = Heard::default();
    let ear = heard.ear();
    let another = ("default", "web-1", "another");
    evict_one(&client, another, PATIENCE, &ear).await.unwrap();
    assert!(api.get(POD).is_some(), "it is not that one");
    let this = ("default", "web-1", uid);
    evict_one(&client, this, PATIENCE, &ear).await.unwrap();
    assert_eq!(api.get(POD), None);
    assert!(heard.last().unwrap().contains("ends"), "{heard:?}");

    api.put(POD, web());
    let uid = api.get(POD).unwrap()["metadata"]["uid"].clone();
    api.refuse(&format!("POST {POD}/eviction"), &[429; 1000]);
    let kept = ("default", "web-1", uid.as_str().unwrap());
    let late = evict_one(&client, kept, PATIENCE, &ear).await;
    let said = late.unwrap_err().to_string();
    assert!(said.contains("may not be evicted yet"), "{said}");
}

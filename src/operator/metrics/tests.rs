//! The port of the metrics against an API server that reviews tokens, and what a scrape reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::{
    Client,
    api::{ApiResource, DynamicObject},
    client::Body,
    runtime::{reflector::store::Writer, watcher},
};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::TlsConnector;

use super::{
    access::{Access, Guard},
    families::tests::{ALL, status},
    identity::{CertificateFiles, Identity},
    server::{BOUNDS, Bounds},
    *,
};
use crate::api::Cluster;

/// How the API server answers reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reviews {
    Answer,
    Fail,
    Hang,
}

/// An API server that knows the tokens `good`, whose user may read the metrics, and `other`, whose user may not. Counts
/// what it is asked.
fn api(reviews: Reviews) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            if reviews == Reviews::Hang {
                std::future::pending::<()>().await;
            }
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            review["status"] = match path.as_str() {
                "/apis/authentication.k8s.io/v1/tokenreviews" => match &review["spec"]["token"] {
                    token if token == "good" => json!({
                        "authenticated": true,
                        "user": { "username": "scraper", "groups": ["scrapers"], "uid": "1" },
                    }),
                    token if token == "other" => {
                        json!({ "authenticated": true, "user": { "username": "other" } })
                    }
                    _ => json!({ "authenticated": false, "error": "unknown" }),
                },
                "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                    let spec = &review["spec"];
                    let about = json!({ "path": "/metrics", "verb": "get" });
                    assert_eq!(spec["nonResourceAttributes"], about);
                    json!({ "allowed": spec["groups"] == json!(["scrapers"]) })
                }
                other => panic!("{other}"),
            };
            let code = if reviews == Reviews::Fail { 500 } else { 201 };
            Ok::<_, std::convert::Infallible>(
                Response::builder()
                    .status(code)
                    .body(Full::new(Bytes::from(review.to_string())))
                    .unwrap(),
            )
        }
    });
    (Client::new(service, "default"), asked)
}

/// Takes any certificate, and keeps it.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<u8>>);

impl ServerCertVerifier for Kept {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = certificate.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// A request over HTTPS: the answer, and the server's certificate.
async fn get(address: SocketAddr, path: &str, head: &str) -> std::io::Result<(String, Vec<u8>)> {
    let kept = Arc::new(Kept::default());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&kept) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let tls = TlsConnector::from(Arc::new(config));
    let mut stream = tls.connect(name, stream).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{head}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let certificate = kept.0.lock().unwrap().clone();
    Ok((answer, certificate))
}

fn with_token(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// Serves meanwhile.
async fn meanwhile<T>(
    client: Client,
    bounds: Bounds,
    client_side: impl AsyncFnOnce(SocketAddr) -> T,
) -> T {
    let options = MetricsOptions {
        address: ([127, 0, 0, 1], 0).into(),
        certificate: None,
    };
    let now = "2030-01-01T00:00:00Z".parse().unwrap();
    let metrics = Metrics::new();
    let served = metrics.server(options, "rke-system", client, now).await;
    let (listener, server) = served.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server { bounds, ..server };
    tokio::select! {
        done = client_side(address) => done,
        never = serve(listener, server) => match never {},
    }
}

#[tokio::test]
async fn only_who_may_reads_the_metrics() {
    let (client, _) = api(Reviews::Answer);
    meanwhile(client, BOUNDS, async |address| {
        for (path, head, code) in [
            ("/metrics", String::new(), "401"),
            ("/metrics", with_token("unknown"), "401"),
            ("/metrics", with_token(""), "401"),
            (
                "/metrics",
                "Authorization: Basic good\r\n".to_owned(),
                "401",
            ),
            ("/metrics", with_token("other"), "403"),
            ("/metrics", with_token("good"), "200"),
            ("/healthz", with_token("good"), "404"),
        ] {
            let (answer, _) = get(address, path, &head).await.unwrap();
            let wanted = format!("HTTP/1.1 {code} ");
            assert!(answer.starts_with(&wanted), "{path} {head}: {answer}");
            let has = answer.contains("rke_leader 0");
            assert_eq!(has, code == "200", "{path} {head}: {answer}");
        }
        let long = with_token(&"x".repeat(100_000));
        let refused = get(address, "/metrics", &long).await;
        let refused = refused.map_or(true, |(answer, _)| answer.starts_with("HTTP/1.1 431 "));
        assert!(refused, "a head of 100 kB was read");
    })
    .await;
}

#[tokio::test]
async fn the_certificate_that_it_makes_is_for_its_service() {
    let (client, _) = api(Reviews::Answer);
    let (_, certificate) = meanwhile(client, BOUNDS, async |address| {
        get(address, "/metrics", "").await.unwrap()
    })
    .await;
    let (_, read) = x509_parser::parse_x509_certificate(&certificate).unwrap();
    let names = format!("{:?}", read.subject_alternative_name().unwrap());
    let service = "DNSName(\"rke-operator-metrics.rke-system.svc\")";
    assert!(names.contains(service), "{names}");
    let now = x509_parser::time::ASN1Time::from_timestamp(1_893_456_000).unwrap();
    assert!(read.validity().is_valid_at(now));
}

/// Without an answer of the API server there are no metrics, and the client reads why.
#[tokio::test]
async fn an_api_that_fails_gives_no_access() {
    let (client, _) = api(Reviews::Fail);
    meanwhile(client, BOUNDS, async |address| {
        let (answer, _) = get(address, "/metrics", &with_token("good")).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(!answer.contains("rke_leader"), "{answer}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_silent_gives_no_access() {
    let (client, asked) = api(Reviews::Hang);
    let guard = Guard::new(client);
    let begun = Instant::now();
    assert_eq!(guard.access(Some("good")).await, Access::Unknown);
    assert!(begun.elapsed() <= Duration::from_secs(6));
    // It is asked again the next time, and no more than a few are asked about at once.
    let many: Vec<String> = (0..20).map(|number| format!("token-{number}")).collect();
    let many = many.iter().map(|token| guard.access(Some(token)));
    let all = futures::future::join_all(many).await;
    assert!(all.iter().all(|access| *access == Access::Unknown));
    assert_eq!(asked.load(Ordering::SeqCst), 1 + 4);
}

#[tokio::test(start_paused = true)]
async fn a_review_counts_for_a_short_time() {
    let (client, asked) = api(Reviews::Answer);
    let guard = Guard::new(client);
    let asked = || asked.swap(0, Ordering::SeqCst);
    for (token, access, requests, seconds) in [
        ("good", Access::Allowed, 2, 60),
        ("other", Access::Denied, 2, 10),
        ("unknown", Access::Unauthenticated, 1, 10),
    ] {
        for _ in 0..3 {
            assert_eq!(guard.access(Some(token)).await, access);
        }
        assert_eq!(asked(), requests, "{token}");
        tokio::time::advance(Duration::from_secs(seconds)).await;
        assert_eq!(guard.access(Some(token)).await, access);
        assert_eq!(asked(), requests, "{token}");
    }
    assert_eq!(guard.access(None).await, Access::Unauthenticated);
    assert_eq!(asked(), 0);
}

/// Unknown tokens fill no memory, and an allowed one is not forgotten for them.
#[tokio::test(start_paused = true)]
async fn unknown_tokens_are_not_kept_without_end() {
    let (client, asked) = api(Reviews::Answer);
    let guard = Guard::new(client);
    assert_eq!(guard.access(Some("good")).await, Access::Allowed);
    for number in 0..1000 {
        guard.access(Some(&number.to_string())).await;
        assert!(guard.kept() <= 256);
    }
    asked.store(0, Ordering::SeqCst);
    assert_eq!(guard.access(Some("good")).await, Access::Allowed);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

/// One that says nothing keeps its place for a short time; until then others wait.
#[tokio::test]
async fn a_slow_client_is_dropped_and_few_are_served_at_once() {
    let (client, _) = api(Reviews::Answer);
    let bounds = Bounds {
        connections: 1,
        time: Duration::from_millis(300),
    };
    meanwhile(client, bounds, async |address| {
        let begun = Instant::now();
        let mut slow = TcpStream::connect(address).await.unwrap();
        let head = with_token("good");
        let (dropped, served) = tokio::join!(
            async {
                let mut rest = Vec::new();
                // Closed or reset.
                let _ = slow.read_to_end(&mut rest).await;
                begun.elapsed()
            },
            async {
                let (answer, _) = get(address, "/metrics", &head).await.unwrap();
                (answer, begun.elapsed())
            }
        );
        assert!(
            dropped >= bounds.time && dropped < BOUNDS.time,
            "{dropped:?}"
        );
        assert!(served.0.starts_with("HTTP/1.1 200 "), "{}", served.0);
        assert!(served.1 >= bounds.time, "{:?}", served.1);
    })
    .await;
}

/// Writes a new pair.
async fn renew(files: &CertificateFiles) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    tokio::fs::write(&files.cert, own.cert.pem()).await.unwrap();
    let key = own.signing_key.serialize_pem();
    tokio::fs::write(&files.key, key).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn files_are_read_again_when_they_change() {
    let folder = tempfile::tempdir().unwrap();
    let files = CertificateFiles {
        cert: folder.path().join("tls.crt"),
        key: folder.path().join("tls.key"),
    };
    let now = Timestamp::UNIX_EPOCH;
    let missing = Identity::new(Some(files.clone()), "a", now).await;
    let missing = missing.map(drop).unwrap_err().to_string();
    assert!(missing.contains("tls.crt"), "{missing}");
    renew(&files).await;
    let identity = Identity::new(Some(files.clone()), "a", now).await.unwrap();
    let later = || tokio::time::advance(Duration::from_secs(10));
    let first = identity.config().await;
    later().await;
    assert!(Arc::ptr_eq(&first, &identity.config().await));
    // A key without its certificate: half of a change.
    let before = tokio::fs::read(&files.cert).await.unwrap();
    renew(&files).await;
    let after = tokio::fs::read(&files.cert).await.unwrap();
    tokio::fs::write(&files.cert, before).await.unwrap();
    later().await;
    assert!(Arc::ptr_eq(&first, &identity.config().await));
    tokio::fs::write(&files.cert, after).await.unwrap();
    later().await;
    let second = identity.config().await;
    assert!(!Arc::ptr_eq(&first, &second));
    tokio::fs::remove_file(&files.key).await.unwrap();
    later().await;
    assert!(Arc::ptr_eq(&second, &identity.config().await));
}

/// No word of a key is in the error about it.
#[tokio::test]
async fn a_key_that_cannot_be_used_is_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let files = CertificateFiles {
        cert: folder.path().join("tls.crt"),
        key: folder.path().join("tls.key"),
    };
    renew(&files).await;
    let broken = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n";
    for text in [broken, "hunter2", ""] {
        tokio::fs::write(&files.key, text).await.unwrap();
        let error = Identity::new(Some(files.clone()), "a", Timestamp::UNIX_EPOCH).await;
        let error = crate::error::with_causes(&error.map(drop).unwrap_err());
        assert!(
            error.contains("tls.key") && !error.contains("hunter2"),
            "{error}"
        );
    }
}

fn object(name: &str) -> DynamicObject {
    let resource = ApiResource::erase::<Cluster>(&());
    let mut object = DynamicObject::new(name, &resource);
    object.data = json!({ "spec": {}, "status": status() });
    object
}

/// A process that has everything to show, and the cache that it shows.
fn shown() -> (Arc<Metrics>, Writer<DynamicObject>) {
    let writer = Writer::new(ApiResource::erase::<Cluster>(&()));
    let reader = writer.as_reader();
    let metrics = Metrics::new();
    metrics.read_from(move || {
        let slots = queue::Slots {
            total: 16,
            used: 2,
            waiting: 1,
        };
        let queue = |controller, slots| queue::Seen {
            controller,
            depth: 3,
            running: vec![Duration::from_secs(4), Duration::from_secs(5)],
            most: 112,
            slots: ["deletes", "changes", "checks"].map(|class| (class, slots)),
        };
        Some(Seen {
            clusters: reader.state(),
            queues: vec![
                queue(Controller::Cluster, slots),
                queue(Controller::Kubeconfig, queue::Slots::default()),
            ],
            connections: 3,
        })
    });
    (metrics, writer)
}

/// The series of a Cluster end with it, and only the process that leads has any.
#[test]
fn the_series_of_a_cluster_end_with_it() {
    let (metrics, mut writer) = shown();
    for name in ["a", "b"] {
        writer.apply_watcher_event(&watcher::Event::Apply(object(name)));
    }
    let has = |text: &str| metrics.text().contains(text);
    assert!(has("rke_leader 0") && !has("rke_cluster_") && !has("rke_slots"));
    metrics.leads(true);
    for name in ["a", "b"] {
        assert!(has(&format!(
            "{{name=\"{name}\",type=\"Ready\",status=\"False\"}} 1"
        )));
    }
    assert!(has("rke_leader 1"));
    assert!(has("rke_slots{class=\"changes\",state=\"waiting\"} 1"));
    assert!(has("rke_probe_connections 3"));
    writer.apply_watcher_event(&watcher::Event::Delete(object("a")));
    assert!(!has("name=\"a\"") && has("name=\"b\""));
    metrics.read_from(|| None);
    assert!(!has("name=\"b\"") && !has("rke_slots"));
}

/// The type of each family in a scrape, and the labels of its series.
fn families(text: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut all: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    let mut name = "";
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (of, kind) = kind.split_once(' ').unwrap();
            name = of;
            all.insert(of.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if !line.starts_with('#') {
            assert!(line.starts_with(name), "{line} is below {name}");
            let labels = line.split_once('{').map_or("", |(_, labels)| labels);
            for pair in labels.split("\",") {
                let key = pair.split('=').next().unwrap_or_default();
                if pair.contains('=') && key != "le" {
                    let (_, labels) = all.get_mut(name).unwrap();
                    labels.insert(key.to_owned());
                }
            }
        }
    }
    all
}

/// What the documentation lists is what a scrape has, with these labels and no others.
#[test]
fn a_scrape_has_the_families_of_the_table() {
    let (metrics, mut writer) = shown();
    metrics.leads(true);
    writer.apply_watcher_event(&watcher::Event::Apply(object("a")));
    metrics
        .begins(Controller::Cluster)
        .ended(Reconciled::Success);
    metrics
        .begins(Controller::Kubeconfig)
        .ended(Reconciled::Error);
    metrics.queued(Controller::Cluster);
    metrics.retried(Controller::Cluster);
    metrics.waited(Controller::Cluster, Duration::from_secs(3));
    metrics.worked(Controller::Cluster, Duration::from_secs(3));
    let failed = StepOutcome::Failed {
        message: "hunter2".to_owned(),
        hints: Vec::new(),
        class: crate::error::ErrorClass::Host,
    };
    metrics.step("pull-image", &failed, Duration::from_secs(3));
    metrics.step("pull-image", &StepOutcome::Skipped, Duration::ZERO);
    metrics.orphaned();
    let text = metrics.text();
    let table: BTreeMap<_, _> = ALL
        .iter()
        .map(|family| {
            let kind = format!("{:?}", family.kind).to_lowercase();
            let labels = family.labels.iter().map(|label| (*label).to_owned());
            (family.shown(), (kind, labels.collect()))
        })
        .collect();
    assert_eq!(families(&text), table);
    for line in [
        "controller_runtime_reconcile_total{controller=\"cluster\",result=\"success\"} 1",
        "controller_runtime_active_workers{controller=\"cluster\"} 0",
        "controller_runtime_reconcile_errors_total{controller=\"kubeconfig\"} 1",
        "controller_runtime_max_concurrent_reconciles{controller=\"cluster\"} 112.0",
        "workqueue_depth{name=\"cluster\"} 3.0",
        "workqueue_adds_total{name=\"cluster\"} 1",
        "workqueue_retries_total{name=\"cluster\"} 1",
        "workqueue_queue_duration_seconds_sum{name=\"cluster\"} 3.0",
        "workqueue_work_duration_seconds_sum{name=\"cluster\"} 3.0",
        "workqueue_unfinished_work_seconds{name=\"cluster\"} 9.0",
        "workqueue_longest_running_processor_seconds{name=\"cluster\"} 5.0",
        "rke_slots{class=\"checks\",state=\"total\"} 16.0",
        "rke_step_failures_total{kind=\"pull-image\"} 1",
        "rke_step_duration_seconds_count{kind=\"pull-image\",outcome=\"failed\"} 1",
        "rke_step_duration_seconds_bucket{kind=\"pull-image\",outcome=\"failed\",le=\"5\"} 1",
        "rke_clusters_orphaned_total 1",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

/// The names and labels that an expression uses: each a family of the table with its labels, or the test fails.
fn used(expression: &str) -> BTreeSet<String> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut used = BTreeSet::new();
    let mut rest = expression;
    while let Some(at) = rest.find(is_word) {
        let (_, from) = rest.split_at(at);
        let end = from.find(|letter| !is_word(letter)).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        rest = after;
        let ours = ["rke_", "controller_runtime_", "workqueue_"];
        if !ours.iter().any(|start| word.starts_with(start)) {
            continue;
        }
        let named = |family: &&&Family| {
            ["", "_bucket", "_sum", "_count"]
                .iter()
                .any(|end| format!("{}{end}", family.shown()) == word)
        };
        let family = ALL.iter().find(named);
        let family = family.unwrap_or_else(|| panic!("no family `{word}`: {expression}"));
        used.extend(family.labels.iter().map(|label| (*label).to_owned()));
        let Some(labels) = after.strip_prefix('{') else {
            continue;
        };
        let (labels, after) = labels.split_once('}').unwrap();
        rest = after;
        for pair in labels.split(',') {
            let (label, value) = pair.split_once('=').unwrap();
            assert!(family.labels.contains(&label), "{label}: {expression}");
            let value = value.trim_matches(['~', '"']);
            let mut words = crate::api::conditions::REASONS.iter();
            let is_known = match label {
                "type" => words.any(|row| row.kind.name() == value),
                "reason" => words.any(|row| row.reason.name() == value),
                "status" => ["True", "False", "Unknown"].contains(&value),
                "state" => [
                    "total",
                    "used",
                    "waiting",
                    "ready",
                    "up_to_date",
                    "unreachable",
                ]
                .contains(&value),
                _ => true,
            };
            assert!(is_known, "{label}={value}: {expression}");
        }
    }
    used
}

/// Each alert is about what the operator has, and has a runbook.
#[test]
fn alerts_use_the_families_of_the_table() {
    let rule: Value =
        serde_saphyr::from_str(include_str!("../../../deploy/monitoring/alerts.yaml")).unwrap();
    let runbooks = include_str!("../../../docs/runbooks.md");
    let rules = rule["spec"]["groups"][0]["rules"].as_array().unwrap();
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        let labels = used(rule["expr"].as_str().unwrap());
        let text = rule["annotations"].to_string();
        for label in text.split("$labels.").skip(1) {
            let label = label.split(' ').next().unwrap();
            assert!(labels.contains(label), "{name}: no label {label}");
        }
        let anchor = format!("#{}", name.to_lowercase());
        assert!(text.contains(&anchor), "{name}: {text}");
        assert!(runbooks.contains(&format!("\n## {name}\n")), "{name}");
    }
    let names: Vec<_> = rules.iter().map(|rule| &rule["alert"]).collect();
    assert_eq!(names.len(), 9, "{names:?}");
    assert_eq!(runbooks.matches("\n## ").count(), names.len());
}

/// Each panel of the dashboard is about what the operator has.
#[test]
fn panels_use_the_families_of_the_table() {
    let board: Value =
        serde_json::from_str(include_str!("../../../deploy/monitoring/dashboard.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let mut expressions = String::new();
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let labels = used(expression);
            let legend = target["legendFormat"].as_str().unwrap();
            for label in legend.split("{{").skip(1) {
                let label = label.split("}}").next().unwrap();
                assert!(labels.contains(label), "{legend}: {expression}");
            }
            expressions.push_str(expression);
        }
    }
    let shown = |family: &&&Family| !expressions.contains(&family.shown());
    let without: Vec<_> = ALL
        .iter()
        .filter(shown)
        .map(|family| family.shown())
        .collect();
    let known = [
        "controller_runtime_reconcile_errors_total",
        "controller_runtime_reconcile_time_seconds",
        "controller_runtime_max_concurrent_reconciles",
        "workqueue_adds_total",
        "workqueue_work_duration_seconds",
        "workqueue_unfinished_work_seconds",
        "workqueue_longest_running_processor_seconds",
        "workqueue_retries_total",
    ];
    assert_eq!(without, known);
}

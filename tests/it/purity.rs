//! Pure modules import no impure one: no clock, no randomness, no file, no network, and nothing of
//! this crate that has them. What is pure is listed here; a file whose documentation says so and
//! is not listed fails too.

mod imports;

use imports::{Tree, parse, segments};

/// Rooms, and files of mixed rooms, that are pure.
const PURE: [&str; 49] = [
    "api",
    "apply::limit",
    "apply::progress",
    "catalog",
    "config",
    "converge::announced",
    "converge::purpose",
    "desired",
    "error",
    "etcd::external_view",
    "etcd::grpc",
    "etcd::room",
    "etcd::since",
    "etcd::view",
    "etcd::zip",
    "etcd::wire",
    "facts",
    "host::create_body",
    "host::explain",
    "host::host_certificate",
    "host::sieve",
    "host::words",
    "model",
    "plan",
    "snapshots::copies",
    "snapshots::prune",
    "snapshots::record",
    "snapshots::schedule",
    "snapshots::settings",
    "state::cluster",
    "state::codec",
    "state::digest_key",
    "state::given",
    "status",
    "operator::approval",
    "operator::cluster::details",
    "operator::kubeconfig::content",
    "operator::kubeconfig::request",
    "operator::last_run",
    "operator::metrics::families",
    "operator::prober::hints",
    "operator::prober::sight",
    "operator::prober::state",
    "operator::queue::budget",
    "operator::queue::order",
    "operator::ready",
    "operator::shallow",
    "workload::available",
    "workload::charts::rendered",
];

/// The rooms, each above those that it takes from. Files that stand lower than their room are named.
const ORDER: [&str; 30] = [
    "model",
    "error",
    "catalog",
    "config",
    "api",
    "state",
    "etcd::external_view",
    "etcd::view",
    "etcd::since",
    "etcd::room",
    "facts",
    "host",
    "bundle",
    "etcd",
    "workload",
    "snapshots::record",
    "snapshots::settings",
    "desired",
    "plan",
    "survey",
    "apply::event",
    "apply::stop",
    "environment",
    "lease",
    "snapshots",
    "apply",
    "status",
    "converge",
    "operator",
    "cli",
];

/// The one way up: an environment has the seam to the nodes, whose context has the environment.
const UPWARD: (&str, &str) = ("environment", "apply::remote");

/// What pure modules take from the standard library and from other crates never reads nor writes,
/// but for these: a path, and what may be taken below it all the same.
const IMPURE: [(&str, &[&str]); 9] = [
    ("std::env", &[]),
    ("std::fs", &[]),
    (
        "std::io",
        &["Error", "ErrorKind", "Cursor", "Read", "Write", "Result"],
    ),
    (
        "std::net",
        &[
            "IpAddr",
            "Ipv4Addr",
            "Ipv6Addr",
            "SocketAddr",
            "AddrParseError",
        ],
    ),
    ("std::os", &[]),
    ("std::process", &["ExitCode"]),
    ("std::thread", &[]),
    ("std::time", &["Duration"]),
    ("jiff::Timestamp::now", &[]),
];

/// The crates that pure modules may use, and what of them when it is not everything.
const CRATES: [(&str, &[&str]); 38] = [
    ("aes", &[]),
    ("annotate_snippets", &[]),
    ("base64", &[]),
    // Types of requests that are built here and sent elsewhere.
    ("bollard", &["models"]),
    ("bytes", &[]),
    ("cbc", &[]),
    ("des", &[]),
    ("hex", &[]),
    ("hmac", &[]),
    // An error is recognised.
    ("hyper_util", &["client::legacy::Error"]),
    ("ipnet", &[]),
    (
        "jiff",
        &["Error", "Timestamp", "SignedDuration", "tz", "civil", "fmt"],
    ),
    ("k8s_openapi", &[]),
    // Derives, and types of the API.
    (
        "kube",
        &[
            "CustomResource",
            "CustomResourceExt",
            "KubeSchema",
            "core",
            "Error",
            "Resource",
        ],
    ),
    ("md5", &[]),
    ("p256", &[]),
    ("percent_encoding", &[]),
    ("prost", &[]),
    ("rawzip", &[]),
    ("rcgen", &[]),
    // RSA asks for a source of randomness that its signatures of this kind do not use.
    ("ring", &["rand::SystemRandom", "signature"]),
    // Keys are parsed with it, and its errors are told apart.
    ("russh", &["keys", "Error"]),
    ("schemars", &[]),
    ("serde", &[]),
    ("serde_json", &[]),
    ("serde_path_to_error", &[]),
    ("serde_saphyr", &[]),
    ("sha1", &[]),
    ("sha2", &[]),
    ("strsim", &[]),
    ("tar", &[]),
    ("thiserror", &[]),
    ("time", &["OffsetDateTime", "Duration"]),
    ("toml", &[]),
    ("tracing", &[]),
    ("x509_parser", &[]),
    ("yasna", &[]),
    ("zeroize", &[]),
];

/// Types, mere values, of modules that are not pure.
const VALUES: [(&str, &[&str]); 6] = [
    (
        "apply::event",
        &["Event", "RunOutcome", "StepId", "StepOutcome"],
    ),
    ("apply::step", &["Warning"]),
    ("apply::stop", &["StopCause"]),
    ("converge", &["Survey"]),
    (
        "host::error",
        &[
            "FEWEST_SESSIONS",
            "Hop",
            "HostError",
            "KeyProblem",
            "NOT_ALLOWED",
            "Phase",
            "Place",
            "Tried",
        ],
    ),
    ("workload::crash", &["CrashLoop"]),
];

#[test]
fn pure_modules_import_nothing_impure() {
    let faults = Tree::read().faults();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn what_says_that_it_is_pure_is_looked_at() {
    let tree = Tree::read();
    let silent: Vec<String> = tree
        .files
        .iter()
        .filter(|(module, source)| source.says_so && !Tree::is_pure(module))
        .map(|(module, _)| module.join("::"))
        .collect();
    assert!(
        silent.is_empty(),
        "not in the list of this test: {silent:?}"
    );
    for pure in PURE {
        let is_there = tree
            .files
            .keys()
            .any(|module| module.starts_with(&segments(pure)));
        assert!(is_there, "{pure} is not there any more");
    }
}

/// Where something belongs is answered by what it may take from.
#[test]
fn rooms_take_only_from_rooms_below_them() {
    let upward = Tree::read().upward();
    assert!(upward.is_empty(), "{}", upward.join("\n"));
}

/// Each import that is planted in `plan/schedule/up.rs` is found.
#[test]
fn a_planted_import_is_found() {
    let mut tree = Tree::read();
    let clean = tree.faults();
    for planted in [
        "use crate::host::Host;",
        "use crate::{model, host::Host};",
        "use crate::workload; fn f() { workload::read() }",
        "use crate::survey::read;",
        "use crate::state::{ClusterState, file::FileStore};",
        "use crate::state::Store;",
        "use crate::etcd::Client;",
        "use super::super::super::converge::survey;",
        "use crate::survey; fn f() { survey::read::read(); }",
        "fn f() { crate::apply::run::run() }",
        "fn f() { println!(\"{}\", crate::converge::survey()) }",
        "use russh::client;",
        "use kube::Client;",
        "use tokio::fs;",
        "use std::fs;",
        "fn f() { std::env::var(\"A\"); }",
        "use std::time::Instant;",
        "use std::time; fn f() { time::SystemTime::now(); }",
        "fn f() { jiff::Timestamp::now(); }",
        "use jiff::Timestamp; fn f() { Timestamp::now(); }",
        "fn f() { rand::random() }",
        "async fn f() {}",
    ] {
        let up = segments("plan::schedule::up");
        let before = tree.files.remove(&up).expect("it is there");
        let mut source = parse(planted);
        source.uses.extend(before.uses.iter().cloned());
        source.paths.extend(before.paths.iter().cloned());
        tree.files.insert(up.clone(), source);
        let found = tree.faults();
        tree.files.insert(up, before);
        assert!(found.len() > clean.len(), "{planted}: not found");
    }
}
/// A file of the planner can be read after those that it takes from.
#[test]
fn the_planner_has_no_circle() {
    let circles = Tree::read().circles("plan");
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

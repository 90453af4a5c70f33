//! `status -A` and `describe` as a user runs them: the binary against the fake API server, which answers HTTP on
//! 127.0.0.1. They only read, and one object that cannot be read hides no other.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rke_operator::api::conditions::ConditionType;
use serde_json::{Value, json};

use crate::{
    cli_support::{Context, Ran},
    fake_api::FakeApi,
    operator_rig::clock,
};

/// Must appear in no output.
const PLANTED: &str = "planted-password";

/// A management cluster, and a folder with a kubeconfig whose context `here` leads to it and whose current one leads
/// nowhere.
struct Site {
    api: FakeApi,
    context: Context,
}

impl Site {
    async fn new() -> Self {
        let api = FakeApi::new(clock());
        let here = listen(&api).await;
        let context = Context::new();
        let cluster = |name: &str, address: SocketAddr| {
            format!("- {{name: {name}, cluster: {{server: \"http://{address}\"}}}}\n")
        };
        let entry =
            |name: &str| format!("- {{name: {name}, context: {{cluster: {name}, user: u}}}}\n");
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\nusers: [{{name: u, user: {{}}}}]\ncurrent-context: nowhere\n\
             clusters:\n{}{}contexts:\n{}{}",
            cluster("here", here),
            cluster("nowhere", nowhere),
            entry("here"),
            entry("nowhere"),
        );
        context.write("kubeconfig", &kubeconfig);
        let current = kubeconfig.replace("current-context: nowhere", "current-context: here");
        context.write("current", &current);
        Self { api, context }
    }

    /// With that kubeconfig in the environment.
    async fn run_with(&self, kubeconfig: &str, args: &[&str]) -> Ran {
        let mut command = self.context.command(args);
        command.env("KUBECONFIG", self.context.path(kubeconfig));
        let output = tokio::process::Command::from(command)
            .output()
            .await
            .unwrap();
        let ran = Ran::from(&self.context, output);
        assert!(!ran.stdout.contains(PLANTED), "{ran}");
        ran
    }

    async fn run(&self, args: &[&str]) -> Ran {
        self.run_with("current", args).await
    }

    /// Counts the lists of Clusters; the answer to each is refused with what `refuse` gives.
    fn lists(&self, refuse: impl Fn(usize) -> Option<u16> + Send + 'static) -> Arc<AtomicUsize> {
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lists);
        self.api.fault_of(move |asked| {
            if asked.verb != "list" || !asked.path.ends_with("/clusters") {
                return None;
            }
            refuse(counted.fetch_add(1, Ordering::SeqCst))
        });
        lists
    }
}

/// Serves on a port of its own until the test ends.
async fn listen(api: &FakeApi) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let address = listener.local_addr().unwrap();
    let api = api.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let api = api.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let api = api.clone();
                    async move { Ok::<_, Infallible>(api.serve(request).await) }
                });
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

/// A healthy cluster, whose spec has a password.
pub(crate) fn healthy(name: &str) -> Value {
    let good = ConditionType::HEALTH.map(ConditionType::name);
    let conditions: Vec<Value> = ["Ready", "Provisioned"]
        .into_iter()
        .chain(good)
        .map(
            |kind| json!({"type": kind, "status": "True", "reason": "Good", "message": "it is so"}),
        )
        .collect();
    json!({
        "metadata": {"name": name},
        "spec": {
            "config": {"nodes": [{"address": "10.0.0.1", "role": ["etcd"]}],
                "private_registries": [{"url": "r", "password": PLANTED}]},
            "ssh": {"keySecretRef": {"name": "nodes"}},
        },
        "status": {
            "observedGeneration": 1, "version": "v1.34.4", "desiredVersion": "v1.34.4",
            "nodes": {"total": 1, "ready": 1, "upToDate": 1, "unreachable": 0},
            "conditions": conditions,
        },
    })
}

fn plant(site: &Site, object: &Value) -> Value {
    site.api.plant("clusters", object)
}

fn broken(name: &str) -> Value {
    let mut object = healthy(name);
    object["status"]["conditions"].as_array_mut().unwrap().push(json!({
        "type": "Stalled", "status": "True", "reason": "InvalidConfig", "message": "spec.config.nodes[0].role: missing",
    }));
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exit_code_says_whether_all_are_healthy() {
    let site = Site::new().await;
    let none = site.run(&["status", "-A"]).await;
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{none}");
    assert!(none.stderr.contains("there is no Cluster"), "{none}");
    plant(&site, &healthy("first"));
    let ran = site.run(&["status", "-A"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_eq!(ran.stderr, "1 cluster: 1 healthy\n");
    plant(&site, &broken("second"));
    let ran = site.run(&["status", "--all"]).await;
    assert_eq!(ran.code, Some(3), "{ran}");
    assert!(
        ran.stdout
            .contains("InvalidConfig: spec.config.nodes[0].role: missing\n"),
        "{ran}"
    );
    assert!(!ran.stdout.contains('\u{1b}'), "colours in a pipe: {ran}");
    let json = site.run(&["status", "-A", "-o", "json", "--quiet"]).await;
    assert_eq!((json.code, json.stderr.as_str()), (Some(3), ""), "{json}");
    let list = crate::cli_json::checked("status --all", &json).remove(0);
    assert_eq!(list["clusters"][0]["health"], "healthy");
    assert_eq!(list["clusters"][1]["reason"], "InvalidConfig");
    assert!(site.api.writes().is_empty(), "they only read");
}

/// Five pages; among them an object that is too deep for a parser, and one without anything that is expected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_clusters_are_read_in_pages_whatever_one_of_them_holds() {
    let site = Site::new().await;
    for number in 0..498 {
        plant(&site, &healthy(&format!("c{number:03}")));
    }
    let deep = (0..300).fold(json!(1), |inner, _| json!([inner]));
    let mut object = healthy("deep");
    object["spec"]["config"]["services"] = deep;
    plant(&site, &object);
    plant(
        &site,
        &json!({"metadata": {"name": "empty"}, "spec": 7, "status": "broken"}),
    );
    let lists = site.lists(|_| None);
    let ran = site.run(&["status", "-A"]).await;
    assert_eq!(ran.code, Some(3), "{ran}");
    assert_eq!(ran.stderr, "500 clusters: 499 healthy, 1 not built yet\n");
    assert_eq!(lists.load(Ordering::SeqCst), 5);
    let names: Vec<&str> = ran
        .stdout
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names.len(), 500);
    assert!(names.is_sorted(), "{ran}");
    assert!(names.contains(&"deep") && names.contains(&"empty"));
}

/// A list whose version is forgotten between two pages begins again, and not for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_outrun_begins_again() {
    let site = Site::new().await;
    for number in 0..150 {
        plant(&site, &healthy(&format!("c{number:03}")));
    }
    let lists = site.lists(|number| (number == 1).then_some(410));
    let ran = site.run(&["status", "-A"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_eq!(
        (ran.stdout.lines().count(), lists.load(Ordering::SeqCst)),
        (151, 4)
    );
    site.api.mend();
    let lists = site.lists(|number| (number % 2 == 1).then_some(410));
    let ran = site.run(&["status", "-A"]).await;
    assert_eq!(
        (ran.code, lists.load(Ordering::SeqCst)),
        (Some(2), 6),
        "{ran}"
    );
    assert!(ran.stderr.contains("changed faster"), "{ran}");
}

/// Hop, cause and cure, and whether trying again may help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_management_cluster_refuses_has_a_cause_and_a_cure() {
    let site = Site::new().await;
    for (code, exit, cause, cure) in [
        (401, 1, "refuses the login", "kubectl auth whoami"),
        (
            403,
            1,
            "cannot get resource",
            "kubectl auth can-i list clusters.clusterprovisioner.rke.io",
        ),
        (
            404,
            1,
            "does not know this kind",
            "rke-operator crd | kubectl apply -f -",
        ),
        (500, 2, "answers with an error", "kubectl get --raw /readyz"),
    ] {
        site.lists(move |_| Some(code));
        let ran = site.run(&["status", "-A"]).await;
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(exit), ""),
            "{code}: {ran}"
        );
        for word in [
            "management cluster at http://127.0.0.1:",
            cause,
            cure,
            "hint: ",
        ] {
            assert!(ran.stderr.contains(word), "{code} without {word:?}: {ran}");
        }
        let json = site.run(&["status", "-A", "-o", "json"]).await;
        let ended = crate::cli_json::checked("status --all", &json).remove(0);
        assert!(ended.to_string().contains(cause), "{json}");
        site.api.mend();
    }
    let nowhere = site.run_with("kubeconfig", &["status", "-A"]).await;
    assert_eq!(
        (nowhere.code, nowhere.stdout.as_str()),
        (Some(2), ""),
        "{nowhere}"
    );
    assert!(
        nowhere.stderr.contains("at http://127.0.0.1:1"),
        "{nowhere}"
    );
    assert!(
        nowhere
            .stderr
            .contains("hint: does `kubectl version` answer"),
        "{nowhere}"
    );
    let none = site.run_with("missing", &["describe", "a"]).await;
    assert_eq!(none.code, Some(1), "{none}");
    let why = "error: no kubeconfig for the management cluster: `[DIR]/missing` does not exist, and rke-operator does not run in a pod\n";
    assert!(none.stderr.contains(why), "{none}");
    let none = site.run(&["status", "-A", "--kubeconfig", "nowhere"]).await;
    assert_eq!(none.code, Some(1), "{none}");
    let why = "error: no kubeconfig for the management cluster: `nowhere` does not exist\n";
    assert!(none.stderr.contains(why), "{none}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_name_the_management_cluster() {
    let site = Site::new().await;
    plant(&site, &healthy("first"));
    let file = site.context.path("kubeconfig").display().to_string();
    for args in [
        &["status", "-A", "--context", "here"][..],
        &["status", "-A", "--kubeconfig", &file, "--context", "here"],
        &["describe", "first", "--context", "here"],
    ] {
        let ran = site.run_with("kubeconfig", args).await;
        assert_eq!(ran.code, Some(0), "{args:?}: {ran}");
        assert!(ran.stdout.contains("first"), "{ran}");
    }
    let alone = site.run(&["status", "--context", "here"]).await;
    assert_eq!(alone.code, Some(1), "{alone}");
    assert!(alone.stderr.contains("--all"), "{alone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_described_with_its_events_and_the_way_to_its_kubeconfig() {
    let site = Site::new().await;
    let uid = plant(&site, &broken("second"))["metadata"]["uid"].clone();
    for (name, uid, note) in [
        ("a", &uid, "its own"),
        ("b", &json!("another"), "a namesake's"),
    ] {
        site.api.plant("events", &json!({
            "metadata": {"name": name, "namespace": "default"},
            "regarding": {"kind": "Cluster", "name": "second", "uid": uid},
            "type": "Warning", "reason": "Degraded", "note": note, "eventTime": "2030-01-01T11:00:00.000000Z",
        }));
    }
    let ran = site.run(&["describe", "second"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""), "{ran}");
    for word in [
        "cluster `second` is degraded\n",
        "  Stalled=True InvalidConfig: spec.config.nodes[0].role: missing\n",
        "    next: kubectl edit rkec second\n",
        "Degraded: its own\n",
        "kubectl -n rke-operator-credentials get secret second-kubeconfig -o jsonpath=",
    ] {
        assert!(ran.stdout.contains(word), "without {word:?}: {ran}");
    }
    assert!(!ran.stdout.contains("namesake"), "{ran}");
    assert!(ran.stdout.lines().count() <= 50);
    // As the operator was installed elsewhere.
    let elsewhere = site.run(&["describe", "second", "-n", "fleet"]).await;
    assert!(
        elsewhere
            .stdout
            .contains("kubectl -n fleet-credentials get"),
        "{elsewhere}"
    );
    // The Kubeconfig knows better; one that is not Ready has no Secret yet.
    for (ready, word) in [
        ("False", "none yet"),
        ("True", "kubectl -n theirs get secret x -o"),
    ] {
        site.api.plant(
            "kubeconfigs",
            &json!({
                "metadata": {"name": "second"},
                "status": {"secretRef": {"name": "x", "namespace": "theirs"},
                    "conditions": [{"type": "Ready", "status": ready}]},
            }),
        );
        let ran = site.run(&["describe", "second"]).await;
        assert!(ran.stdout.contains(word), "{ready}: {ran}");
    }
    assert!(site.api.writes().is_empty(), "it only reads");
}

/// Events and the Kubeconfig are extras: without a right to them the rest is shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_description_needs_no_more_than_the_object() {
    let site = Site::new().await;
    plant(&site, &healthy("first"));
    site.api
        .fault(|_, path| (!path.contains("/clusters")).then_some(403));
    let ran = site.run(&["describe", "first"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stdout.contains("cannot be read: "), "{ran}");
    assert!(ran.stdout.contains("get secret first-kubeconfig"), "{ran}");
    let other = site.run(&["describe", "other"]).await;
    assert_eq!(
        (other.code, other.stdout.as_str()),
        (Some(1), ""),
        "{other}"
    );
    assert!(
        other.stderr.contains("there is no Cluster `other`"),
        "{other}"
    );
    assert!(other.stderr.contains("`rke-operator status -A`"), "{other}");
    site.api
        .fault(|_, path| path.contains("/clusters").then_some(404));
    let unknown = site.run(&["describe", "first"]).await;
    assert!(
        unknown.stderr.contains("does not know this kind"),
        "{unknown}"
    );
}

//! A `Kubeconfig` as a request: a user is bound in the Cluster and gets a certificate of its CA; renewed, edited,
//! refused, and revoked.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    fake_api::{FakeApi, HANGS},
    operator_rig::{CREDENTIALS, NAMESPACE, Rig, clock, cluster, is, message, minutes, reason},
    sim::remote::SimRemote,
};

/// The name of the binding of the user of the Kubeconfig `jane`.
const BINDING: &str = "rke-operator-kubeconfig-jane";

fn jane(more: &Value) -> Value {
    let mut spec = json!({
        "clusterRef": {"name": "a"}, "user": "jane@example.com", "clusterRole": "view",
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": "jane"}, "spec": spec})
}

/// The operator with the cluster `a`, whose own API is another server.
struct Two {
    rig: Rig,
    target: FakeApi,
}

impl Two {
    async fn start() -> Self {
        let two = Self::without_a_cluster();
        two.rig.create(&cluster("a", "n1")).await;
        two.rig.ready("a").await;
        two
    }

    fn without_a_cluster() -> Self {
        let rig = Rig::with(SimRemote::bare(&["n1"]), FakeApi::new(clock()), |options| {
            options.kubeconfig_groups = vec!["dev".to_owned()];
            options.kubeconfig_namespaces = vec!["argocd".to_owned()];
        });
        let target = FakeApi::new(clock());
        rig.nodes.serves(Some(target.client_of("operator")));
        Self { rig, target }
    }

    async fn create(&self, kubeconfig: &Value) {
        let kubeconfigs: kube::Api<rke_operator::api::Kubeconfig> =
            kube::Api::all(self.rig.api.client());
        let object = serde_json::from_value(kubeconfig.clone()).unwrap();
        let params = kube::api::PostParams::default();
        kubeconfigs.create(&params, &object).await.unwrap();
    }

    async fn until(&self, why: &str) -> Value {
        let says =
            |object: Option<&Value>| object.is_some_and(|object| reason(object, "Ready") == why);
        self.rig
            .api
            .until("kubeconfigs", "", "jane", says)
            .await
            .unwrap()
    }

    /// The Secret's text under a key.
    fn text(&self, namespace: &str, name: &str, key: &str) -> Option<String> {
        let secret = self.rig.api.object("secrets", namespace, name)?;
        let bytes = BASE64_STANDARD
            .decode(secret["data"][key].as_str()?)
            .unwrap();
        Some(String::from_utf8(bytes).unwrap())
    }

    fn kubeconfig(&self) -> Value {
        let text = self.text(CREDENTIALS, "jane-kubeconfig", "value").unwrap();
        serde_saphyr::from_str(&text).unwrap()
    }

    fn binding(&self) -> Option<Value> {
        self.target.object("clusterrolebindings", "", BINDING)
    }

    /// The object is gone; how long that took.
    async fn gone(&self) -> Duration {
        let begun = tokio::time::Instant::now();
        let gone = |object: Option<&Value>| object.is_none();
        self.rig.api.until("kubeconfigs", "", "jane", gone).await;
        begun.elapsed()
    }
}

fn pem(text: &Value) -> Vec<u8> {
    let pem = BASE64_STANDARD.decode(text.as_str().unwrap()).unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
    pem.contents
}

/// What a certificate says: the subject, its end, and whether that authority signed it.
fn certificate(cert: &Value, ca: &Value) -> (String, Timestamp, bool) {
    let (cert, ca) = (pem(cert), pem(ca));
    let (_, cert) = x509_parser::parse_x509_certificate(&cert).unwrap();
    let (_, ca) = x509_parser::parse_x509_certificate(&ca).unwrap();
    let signed = cert.verify_signature(Some(ca.public_key())).is_ok();
    let end = Timestamp::from_second(cert.validity().not_after.timestamp()).unwrap();
    (cert.subject().to_string(), end, signed)
}

fn of_kubeconfig(file: &Value) -> (String, Timestamp, bool) {
    certificate(
        &file["users"][0]["user"]["client-certificate-data"],
        &file["clusters"][0]["cluster"]["certificate-authority-data"],
    )
}

fn date(object: &Value, field: &str) -> Timestamp {
    object["status"][field].as_str().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_user_is_bound_and_gets_a_certificate_of_the_ca() {
    let two = Two::start().await;
    two.create(&jane(&json!({"groups": ["dev"], "ttl": "24h"})))
        .await;
    let told = two.until("Issued").await;
    assert!(is(&told, "Ready", "True"));
    let status = &told["status"];
    assert_eq!(
        status["secretRef"],
        json!({"name": "jane-kubeconfig", "namespace": CREDENTIALS})
    );
    assert_eq!(status["user"], "jane@example.com");
    assert_eq!(status["server"], "https://10.0.0.1:6443");

    let file = two.kubeconfig();
    let (subject, end, signed) = of_kubeconfig(&file);
    assert_eq!(subject, "CN=jane@example.com, O=dev");
    assert!(signed);
    assert_eq!(end, date(&told, "expiresAt"));
    let life = date(&told, "expiresAt").duration_since(date(&told, "issuedAt"));
    assert_eq!(life.as_hours(), 24);
    let until_renewal = date(&told, "renewAt").duration_since(date(&told, "issuedAt"));
    assert_eq!(until_renewal.as_hours(), 16);
    assert_eq!(file["clusters"][0]["cluster"]["server"], status["server"]);
    // It is the authority that the administrator's trusts.
    let admins = two.text(CREDENTIALS, "a-kubeconfig", "value").unwrap();
    let ca = file["clusters"][0]["cluster"]["certificate-authority-data"].as_str();
    assert!(admins.contains(ca.unwrap()));

    let binding = two.binding().unwrap();
    assert_eq!(binding["roleRef"]["name"], "view");
    assert_eq!(binding["subjects"][0]["kind"], "User");
    assert_eq!(binding["subjects"][0]["name"], "jane@example.com");
    assert_eq!(
        binding["subjects"].as_array().unwrap().len(),
        1,
        "no group is bound"
    );
    let label = &binding["metadata"]["labels"]["clusterprovisioner.rke.io/kubeconfig"];
    assert_eq!(label, "jane");
    let secret = two
        .rig
        .api
        .object("secrets", CREDENTIALS, "jane-kubeconfig")
        .unwrap();
    assert_eq!(
        secret["metadata"]["ownerReferences"][0]["uid"],
        told["metadata"]["uid"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_cluster() {
    let two = Two::without_a_cluster();
    two.create(&jane(&json!({}))).await;
    let told = two.until("ClusterNotFound").await;
    assert!(is(&told, "Reconciling", "True"));
    two.rig.nodes.kill("n1");
    two.rig.create(&cluster("a", "n1")).await;
    two.until("WaitingForCluster").await;
    assert_eq!(two.binding(), None);
    two.rig.nodes.revive("n1");
    two.until("Issued").await;
    assert!(two.binding().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_before_it_expires() {
    let two = Two::start().await;
    two.create(&jane(&json!({"ttl": "1h"}))).await;
    let first = two.until("Issued").await;
    let before = two.kubeconfig();
    minutes(39).await;
    assert_eq!(two.kubeconfig(), before, "it is not due yet");
    let renewed = |object: Option<&Value>| {
        object.is_some_and(|object| object["status"]["issuedAt"] != first["status"]["issuedAt"])
    };
    let begun = two.rig.api.now();
    let told = two
        .rig
        .api
        .until("kubeconfigs", "", "jane", renewed)
        .await
        .unwrap();
    let took = two.rig.api.now().duration_since(begun);
    assert!(took.as_mins() < 5, "{took}");
    assert!(is(&told, "Ready", "True"));
    let (_, end, signed) = of_kubeconfig(&two.kubeconfig());
    assert!(signed && end > date(&first, "expiresAt"));
    assert!(
        two.rig
            .events("Issued")
            .iter()
            .any(|note| note.contains("renewed"))
    );
}

/// While its Cluster's API does not answer as well: a certificate takes the CA alone.
#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_while_the_cluster_is_silent() {
    let two = Two::start().await;
    two.create(&jane(&json!({"ttl": "6h"}))).await;
    let first = two.until("Issued").await;
    two.rig.nodes.serves(None);
    minutes(60 * 5).await;
    let told = two.until("Issued").await;
    assert_ne!(told["status"]["issuedAt"], first["status"]["issuedAt"]);
}

#[tokio::test(start_paused = true)]
async fn an_edited_role_is_bound_again_and_waits_for_the_cluster() {
    let two = Two::start().await;
    two.create(&jane(&json!({}))).await;
    two.until("Issued").await;
    let before = two.kubeconfig();
    let role = |name: &str| json!({"spec": {"clusterRole": name}});
    two.rig.api.patch("kubeconfigs", "", "jane", &role("edit"));
    let edited =
        |object: Option<&Value>| object.is_some_and(|object| object["roleRef"]["name"] == "edit");
    two.target
        .until("clusterrolebindings", "", BINDING, edited)
        .await;
    two.until("Issued").await;
    assert_eq!(
        two.kubeconfig(),
        before,
        "the certificate says nothing of a role"
    );

    two.rig.nodes.serves(None);
    two.rig.api.patch("kubeconfigs", "", "jane", &role("view"));
    let told = two.until("WaitingForCluster").await;
    assert!(message(&told, "Ready").contains("still bound to `edit`"));
    two.rig.nodes.serves(Some(two.target.client_of("operator")));
    two.until("Issued").await;
    assert_eq!(two.binding().unwrap()["roleRef"]["name"], "view");
}

/// What was removed in the Cluster is there again within the hour; it is not looked at all the time.
#[tokio::test(start_paused = true)]
async fn a_binding_that_was_removed_is_made_again() {
    let two = Two::start().await;
    two.create(&jane(&json!({}))).await;
    two.until("Issued").await;
    let reached = two.rig.nodes.reached();
    two.target.delete("clusterrolebindings", "", BINDING);
    minutes(45).await;
    assert_eq!(two.rig.nodes.reached(), reached, "no request was sent");
    let there = |object: Option<&Value>| object.is_some();
    two.target
        .until("clusterrolebindings", "", BINDING, there)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_unbinds() {
    let two = Two::start().await;
    two.create(&jane(&json!({}))).await;
    two.until("Issued").await;
    two.rig.api.delete("kubeconfigs", "", "jane");
    assert!(two.gone().await < Duration::from_secs(10));
    assert_eq!(two.binding(), None);
    assert_eq!(
        two.rig
            .api
            .object("secrets", CREDENTIALS, "jane-kubeconfig"),
        None
    );
    assert_eq!(two.rig.event("Unbound").await.len(), 1);
}

/// It ends, with what is left in an event; and is carried out when the Cluster answers in time.
#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_a_silent_cluster_for_a_while() {
    for answers in [false, true] {
        let two = Two::start().await;
        two.create(&jane(&json!({}))).await;
        two.until("Issued").await;
        if answers {
            two.rig.nodes.serves(None);
        } else {
            // It takes connections and says nothing.
            two.target.fault_of(|_| Some(HANGS));
        }
        two.rig.api.delete("kubeconfigs", "", "jane");
        let told = two.until("WaitingForCluster").await;
        assert!(message(&told, "Ready").contains("not unbound yet"));
        let secret = two
            .rig
            .api
            .object("secrets", CREDENTIALS, "jane-kubeconfig");
        assert_eq!(secret, None, "the Secret goes at once");
        if answers {
            two.rig.nodes.serves(Some(two.target.client_of("operator")));
        }
        let took = two.gone().await;
        if answers {
            assert!(took < Duration::from_secs(120), "{took:?}");
            assert_eq!(two.binding(), None);
            assert_eq!(two.rig.events("NotUnbound"), [""; 0]);
        } else {
            assert!(
                took > Duration::from_secs(400) && took < Duration::from_secs(720),
                "{took:?}"
            );
            two.target.mend();
            assert!(two.binding().is_some());
            let left = two.rig.event("NotUnbound").await;
            assert!(left[0].contains(BINDING), "{left:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_after_its_clusters_ends_at_once() {
    let two = Two::start().await;
    two.create(&jane(&json!({}))).await;
    two.until("Issued").await;
    two.rig.api.delete("clusters", "", "a");
    two.rig.gone("a").await;
    two.until("ClusterNotFound").await;
    two.rig.api.delete("kubeconfigs", "", "jane");
    assert!(two.gone().await < Duration::from_secs(10));
    assert_eq!(
        two.rig.events("NotUnbound"),
        [""; 0],
        "its nodes were cleaned"
    );
}

/// An orphaned cluster keeps serving: an Event names the binding that remains there.
#[tokio::test(start_paused = true)]
async fn a_deletion_after_an_orphans_tells_what_is_left() {
    let two = Two::start().await;
    two.create(&jane(&json!({}))).await;
    two.until("Issued").await;
    let orphan = json!({"spec": {"deletion": {"policy": "Orphan"}}});
    two.rig.api.patch("clusters", "", "a", &orphan);
    two.rig.api.delete("clusters", "", "a");
    two.rig.gone("a").await;
    two.rig.api.delete("kubeconfigs", "", "jane");
    two.gone().await;
    let left = two.rig.event("NotUnbound").await;
    assert!(
        left[0].contains(BINDING) && left[0].contains("valid until"),
        "{left:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn anothers_secret_and_anothers_binding_are_left_alone() {
    let two = Two::start().await;
    let theirs = json!({
        "metadata": {"name": "jane-kubeconfig", "namespace": CREDENTIALS},
        "data": {"value": BASE64_STANDARD.encode("theirs")},
    });
    two.rig.api.plant("secrets", &theirs);
    let role =
        json!({"metadata": {"name": BINDING}, "roleRef": {"kind": "ClusterRole", "name": "admin"}});
    two.target.plant("clusterrolebindings", &role);
    two.create(&jane(&json!({}))).await;
    let told = two.until("SecretNotOurs").await;
    assert!(is(&told, "Stalled", "True"));
    let kept = two.text(CREDENTIALS, "jane-kubeconfig", "value");
    assert_eq!(kept.as_deref(), Some("theirs"));

    two.rig
        .api
        .delete("secrets", CREDENTIALS, "jane-kubeconfig");
    two.until("BindingNotOurs").await;
    assert_eq!(
        two.rig
            .api
            .object("secrets", CREDENTIALS, "jane-kubeconfig"),
        None
    );
    two.rig.api.delete("kubeconfigs", "", "jane");
    two.gone().await;
    assert_eq!(two.binding().unwrap()["roleRef"]["name"], "admin");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_allowed_gets_nothing() {
    for (more, why) in [
        (json!({"groups": ["dev", "ops"]}), "GroupNotAllowed"),
        (
            json!({"secret": {"namespace": "kube-system"}}),
            "NamespaceNotAllowed",
        ),
        (
            json!({"secret": {"namespace": NAMESPACE}}),
            "NamespaceNotAllowed",
        ),
        (
            json!({"server": "https://lb.example.com:6443"}),
            "ServerNotInCertificate",
        ),
    ] {
        let two = Two::start().await;
        let writes = two.target.writes().len();
        two.create(&jane(&more)).await;
        let told = two.until(why).await;
        assert!(
            is(&told, "Ready", "False") && is(&told, "Stalled", "True"),
            "{told:#}"
        );
        minutes(30).await;
        assert_eq!(two.target.writes().len(), writes, "{why}: no user is bound");
        let made = |namespace| two.rig.api.object("secrets", namespace, "jane-kubeconfig");
        assert_eq!(made(CREDENTIALS), None);
        assert_eq!(made(NAMESPACE), None);
        two.rig.api.delete("kubeconfigs", "", "jane");
        two.gone().await;
    }
}

/// In a namespace that the operator may name, as Argo CD finds its clusters.
#[tokio::test(start_paused = true)]
async fn argo_cd_gets_a_cluster_in_its_own_form() {
    let two = Two::start().await;
    let secret = json!({"name": "cluster-a", "namespace": "argocd", "format": "ArgoCD"});
    two.rig.api.deny("create", "secrets", "argocd");
    two.create(&jane(&json!({"secret": secret}))).await;
    let told = two.until("NamespaceNotAllowed").await;
    assert!(message(&told, "Ready").contains("Role"), "{told:#}");
    two.rig.api.deny("create", "secrets", "elsewhere");
    let told = two.until("Issued").await;
    assert_eq!(
        told["status"]["secretRef"],
        json!({"name": "cluster-a", "namespace": "argocd"})
    );
    let secret = two
        .rig
        .api
        .object("secrets", "argocd", "cluster-a")
        .unwrap();
    assert_eq!(
        secret["metadata"]["labels"]["argocd.argoproj.io/secret-type"],
        "cluster"
    );
    let text = |key: &str| two.text("argocd", "cluster-a", key).unwrap();
    assert_eq!(
        (text("name"), text("server")),
        ("a".to_owned(), "https://10.0.0.1:6443".to_owned())
    );
    let config: Value = serde_json::from_str(&text("config")).unwrap();
    let tls = &config["tlsClientConfig"];
    let (subject, _, signed) = certificate(&tls["certData"], &tls["caData"]);
    assert_eq!((subject.as_str(), signed), ("CN=jane@example.com", true));
    assert_eq!(tls["insecure"], false);

    // What others add stays, and what was edited is mended; the certificate is the same.
    let edited = json!({
        "metadata": {"annotations": {"theirs": "kept"}},
        "data": {"server": BASE64_STANDARD.encode("https://elsewhere"), "project": BASE64_STANDARD.encode("p")},
    });
    two.rig.api.patch("secrets", "argocd", "cluster-a", &edited);
    minutes(30).await;
    assert_eq!(text("server"), "https://10.0.0.1:6443");
    assert_eq!(text("project"), "p");
    let after: Value = serde_json::from_str(&text("config")).unwrap();
    assert_eq!(after, config);
    two.rig.api.delete("kubeconfigs", "", "jane");
    two.gone().await;
    assert_eq!(two.rig.api.object("secrets", "argocd", "cluster-a"), None);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_the_certificate_names_is_where_it_leads() {
    let two = Two::without_a_cluster();
    let mut wish = cluster("a", "n1");
    wish["spec"]["config"]["authentication"] = json!({"sans": ["lb.example.com"]});
    two.rig.create(&wish).await;
    two.rig.ready("a").await;
    two.create(&jane(&json!({}))).await;
    two.until("Issued").await;
    let before = two.kubeconfig();
    let server = json!({"spec": {"server": "https://lb.example.com:6443"}});
    two.rig.api.patch("kubeconfigs", "", "jane", &server);
    let leads = |object: Option<&Value>| {
        object.is_some_and(|object| object["status"]["server"] == "https://lb.example.com:6443")
    };
    two.rig.api.until("kubeconfigs", "", "jane", leads).await;
    let after = two.kubeconfig();
    assert_eq!(
        after["clusters"][0]["cluster"]["server"],
        "https://lb.example.com:6443"
    );
    assert_eq!(after["users"], before["users"]);
}

/// A Cluster of that name that was built anew has another CA, and nobody bound.
#[tokio::test(start_paused = true)]
async fn another_cluster_of_the_name_gets_another_certificate_and_binding() {
    let two = Two::start().await;
    two.create(&jane(&json!({}))).await;
    two.until("Issued").await;
    let before = two.kubeconfig();
    two.rig.api.delete("clusters", "", "a");
    two.rig.gone("a").await;
    let other = FakeApi::new(clock());
    two.rig.nodes.serves(Some(other.client_of("operator")));
    two.rig.create(&cluster("a", "n1")).await;
    two.rig.ready("a").await;
    let there = |object: Option<&Value>| object.is_some();
    other.until("clusterrolebindings", "", BINDING, there).await;
    two.until("Issued").await;
    let after = two.kubeconfig();
    assert_ne!(after["clusters"], before["clusters"]);
    assert!(of_kubeconfig(&after).2);
}

/// Objects that an earlier release made go on, and the operator's own one is brought to the present form.
#[tokio::test(start_paused = true)]
async fn objects_of_the_former_form_go_on() {
    let two = Two::start().await;
    let uid = two.rig.cluster("a")["metadata"]["uid"].clone();
    let former = |object: &Value| object["spec"]["clusterRef"].is_null();
    // As a real API server shows it: the definition has no `clusterName`.
    let before = json!({"spec": {"clusterRef": null}});
    two.rig.api.patch("kubeconfigs", "", "a", &before);
    let object = two.rig.api.object("kubeconfigs", "", "a").unwrap();
    assert!(former(&object) && object["metadata"]["ownerReferences"][0]["uid"] == uid);
    let now = |object: Option<&Value>| object.is_some_and(|object| !former(object));
    let object = two
        .rig
        .api
        .until("kubeconfigs", "", "a", now)
        .await
        .unwrap();
    assert_eq!(object["spec"]["clusterRef"]["name"], "a");
    assert!(is(&object, "Ready", "True"));
    assert!(object["status"]["expiresAt"].is_string(), "{object:#}");

    // One of a user's, under another name: what it never got it does not get, and that is told.
    let theirs = json!({"metadata": {"name": "jane"}, "spec": {"clusterName": "a"}});
    two.rig.api.plant("kubeconfigs", &theirs);
    let told = two.until("NameNotAllowed").await;
    assert!(message(&told, "Ready").contains("`clusterRole`"));
    assert_eq!(
        two.rig
            .api
            .object("secrets", CREDENTIALS, "jane-kubeconfig"),
        None
    );
}

/// A new process knows nothing of bindings: it looks, and claims nothing where it cannot.
#[tokio::test(start_paused = true)]
async fn a_new_process_looks_at_bindings_again() {
    let two = Two::start().await;
    two.create(&jane(&json!({}))).await;
    two.until("Issued").await;
    let before = two.kubeconfig();
    let Two { rig, target } = two;
    let (api, nodes) = rig.stop().await;
    nodes.serves(None);
    let rig = Rig::with(nodes, api, |_| {});
    let two = Two { rig, target };
    let told = two.until("NotYetKnown").await;
    assert!(is(&told, "Ready", "Unknown"));
    assert_eq!(two.kubeconfig(), before, "what was handed out stays");
    two.rig.nodes.serves(Some(two.target.client_of("operator")));
    two.until("Issued").await;
    let creations = two.target.writes();
    let creations = creations.iter().filter(|line| line.starts_with("POST"));
    assert_eq!(creations.count(), 1, "it was bound already");
}

/// No certificate's key is anywhere but in its Secret.
#[tokio::test(start_paused = true)]
async fn no_key_is_where_others_look() {
    let two = Two::start().await;
    two.create(&jane(&json!({}))).await;
    two.until("Issued").await;
    let file = two.kubeconfig();
    let key = file["users"][0]["user"]["client-key-data"]
        .as_str()
        .unwrap();
    let mut said = two.rig.api.history("kubeconfigs");
    said.extend(two.rig.api.history("events"));
    said.extend(two.target.history("clusterrolebindings"));
    for object in said {
        assert!(!object.to_string().contains(key));
    }
}

/// A right of the management API that is missing ends in that object.
#[tokio::test(start_paused = true)]
async fn a_refused_write_is_tried_again() {
    let two = Two::start().await;
    let mut refusals = 3;
    two.rig.api.fault(move |method, path| {
        let is = method == Method::POST && path.ends_with("/secrets");
        (is && refusals > 0).then(|| {
            refusals -= 1;
            500
        })
    });
    two.create(&jane(&json!({}))).await;
    two.until("Issued").await;
    assert!(two.rig.is_running());
}

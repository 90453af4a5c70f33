//! What Helm makes of the chart: the objects that Kustomize makes of `deploy/`, with each value in its place; and what a
//! release that comes, changes and goes does to Clusters: nothing. Needs the lab's programs, and none of its nodes.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rke_operator::api::{Cluster, SCHEMA, SCHEMA_VERSION};
use serde_json::{Value, json};

use crate::{
    deploy::{Process, chart, documents, kubeconfig_of},
    fake_api::FakeApi,
    operator_rig::clock,
    real::Site,
};

/// What a release adds to every object.
const LABELS: [&str; 4] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];
const KEEP: &str = "helm.sh/resource-policy";

/// Kind, namespace and name.
type Key = (String, String, String);

fn key(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = &object["metadata"];
    (
        text(&object["kind"]),
        text(&about["namespace"]),
        text(&about["name"]),
    )
}

fn by_key(yaml: &str) -> BTreeMap<Key, Value> {
    let all = documents(yaml);
    let count = all.len();
    let found: BTreeMap<_, _> = all
        .into_iter()
        .map(|object| (key(&object), object))
        .collect();
    assert_eq!(found.len(), count, "an object is there twice");
    found
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stdout) + &text(&output.stderr))
    }
}

/// Helm, in a home of its own.
fn helm(home: &Path) -> Command {
    let mut command = Command::new(lab::helm(&mut std::io::stderr()).expect("a helm"));
    command.env_clear().env("HOME", home);
    command
}

fn template_of(chart: &Path, args: &[&str]) -> Result<String, String> {
    let home = tempfile::tempdir().expect("a folder");
    run(helm(home.path())
        .args(["template", "rke-operator"])
        .arg(chart)
        // One that is built from modules takes Kubernetes 1.20 for granted.
        .args(["--namespace", "rke-operator", "--kube-version", "1.34.4"])
        .args(args))
}

fn template(args: &[&str]) -> Result<String, String> {
    template_of(&chart(), args)
}

fn kustomize(folder: &str) -> String {
    let kubectl = lab::kubectl().expect("a kubectl");
    run(Command::new(kubectl).args(["kustomize", folder])).expect("a kustomization")
}

/// The one object of that kind.
fn one(yaml: &str, kind: &str) -> Value {
    let all = documents(yaml);
    let found = all.into_iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}"))
}

/// Without what a release adds; that all of it is there is checked.
fn bare(mut object: Value) -> Value {
    let key = key(&object);
    let about = object["metadata"].as_object_mut().expect("metadata");
    let labels = about["labels"].as_object_mut().expect("labels");
    for label in LABELS {
        assert!(labels.remove(label).is_some(), "{key:?} without {label}");
    }
    if labels.is_empty() {
        about.remove("labels");
    }
    let keep = about.get_mut("annotations").and_then(|annotations| {
        let annotations = annotations.as_object_mut().expect("annotations");
        annotations.remove(KEEP)
    });
    if about
        .get("annotations")
        .is_some_and(|rest| *rest == json!({}))
    {
        about.remove("annotations");
    }
    // Both namespaces, for the states and keys in them, and what protects them from being deleted.
    let kept = key.0 == "Namespace" || key.0.starts_with("ValidatingAdmissionPolicy");
    assert_eq!(keep, kept.then(|| json!("keep")), "{key:?}");
    object
}

fn is_what_kustomize_renders(chart: &Path) {
    let rendered = template_of(chart, &["--set", "createNamespace=true"]).expect("objects");
    let rendered = by_key(&rendered);
    let mut wanted = by_key(&kustomize("deploy"));
    wanted.append(&mut by_key(&kustomize("deploy/policies")));
    assert_eq!(
        rendered.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    for (key, object) in rendered {
        let mut object = bare(object);
        if key.0 == "Deployment" {
            let image = &mut object["spec"]["template"]["spec"]["containers"][0]["image"];
            let own = concat!("rke-operator:", env!("CARGO_PKG_VERSION"));
            assert_eq!(*image, own);
            *image = json!("rke-operator");
        }
        assert_eq!(object, wanted[&key], "{key:?}");
    }
}

#[test]
fn the_chart_renders_what_kustomize_renders() {
    is_what_kustomize_renders(&chart());
}

#[test]
fn a_packaged_chart_renders_the_same_and_lint_finds_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = run(helm(folder.path())
        .args(["lint", "--strict", "--namespace", "rke-operator"])
        .arg(chart()))
    .expect("no finding");
    assert!(
        !said.contains("[WARNING]") && !said.contains("[ERROR]"),
        "{said}"
    );
    run(helm(folder.path())
        .args(["package", "--destination"])
        .arg(folder.path())
        .arg(chart()))
    .expect("a package");
    let name = concat!("rke-operator-", env!("CARGO_PKG_VERSION"), ".tgz");
    is_what_kustomize_renders(&folder.path().join(name));
}

/// Helm installs the definitions first, and never touches them again: they are in no release.
#[test]
fn the_definitions_are_in_no_release() {
    let rendered = template(&[]).expect("objects");
    assert!(!rendered.contains("kind: CustomResourceDefinition"));
    let home = tempfile::tempdir().expect("a folder");
    let shown = run(helm(home.path()).args(["show", "crds"]).arg(chart())).expect("definitions");
    let shown = by_key(&shown);
    for definition in shown.values() {
        assert_eq!(definition["metadata"]["annotations"][KEEP], "keep");
    }
    let names: Vec<_> = shown.into_keys().map(|key| key.2).collect();
    assert_eq!(
        names,
        [
            "clusteroperations.clusterprovisioner.rke.io",
            "clusters.clusterprovisioner.rke.io",
            "kubeconfigs.clusterprovisioner.rke.io"
        ]
    );
}

/// A namespace of the release that was there before is not the release's.
#[test]
fn the_namespace_of_the_release_is_rendered_on_request() {
    let names = |args: &[&str]| -> Vec<String> {
        let all = by_key(&template(args).expect("objects"));
        let all = all.into_keys().filter(|key| key.0 == "Namespace");
        all.map(|key| key.2).collect()
    };
    assert_eq!(names(&[]), ["rke-operator-credentials"]);
    let both = ["rke-operator", "rke-operator-credentials"];
    assert_eq!(names(&["--set", "createNamespace=true"]), both);
}

#[test]
fn each_value_is_in_its_place() {
    let pod = "/spec/template/spec";
    let container = "/spec/template/spec/containers/0";
    let digest = format!("sha256:{}", "0".repeat(64));
    let placed: Vec<(Value, String, Value)> = vec![
        (
            json!({"image": {"repository": "a.example:5000/b", "tag": "c"}}),
            format!("{container}/image"),
            json!("a.example:5000/b:c"),
        ),
        (
            json!({"image": {"repository": "a.example/b", "tag": "c", "digest": digest}}),
            format!("{container}/image"),
            json!(format!("a.example/b@{digest}")),
        ),
        (
            json!({"image": {"pullPolicy": "Always"}}),
            format!("{container}/imagePullPolicy"),
            json!("Always"),
        ),
        (
            json!({"imagePullSecrets": [{"name": "regcred"}]}),
            format!("{pod}/imagePullSecrets"),
            json!([{"name": "regcred"}]),
        ),
        (json!({"replicas": 3}), "/spec/replicas".into(), json!(3)),
        (
            json!({"resources": {"limits": {"memory": "1Gi"}}}),
            format!("{container}/resources"),
            json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}),
        ),
        (
            json!({"nodeSelector": {"a": "b"}}),
            format!("{pod}/nodeSelector"),
            json!({"a": "b", "kubernetes.io/os": "linux"}),
        ),
        (
            json!({"tolerations": [{"key": "a", "operator": "Exists"}]}),
            format!("{pod}/tolerations"),
            json!([{"key": "a", "operator": "Exists"}]),
        ),
        (
            json!({"affinity": {"nodeAffinity": {"a": "b"}}}),
            format!("{pod}/affinity"),
            json!({"nodeAffinity": {"a": "b"}}),
        ),
        (
            json!({"priorityClassName": "system-cluster-critical"}),
            format!("{pod}/priorityClassName"),
            json!("system-cluster-critical"),
        ),
        (
            json!({"podAnnotations": {"a": "b"}}),
            "/spec/template/metadata/annotations".into(),
            json!({"a": "b"}),
        ),
        (
            json!({"podLabels": {"a": "b", "app.kubernetes.io/name": "not this"}}),
            "/spec/template/metadata/labels".into(),
            json!({"a": "b", "app.kubernetes.io/name": "rke-operator"}),
        ),
    ];
    for (values, path, wanted) in placed {
        let deployment = one(&with(&values).expect("objects"), "Deployment");
        assert_eq!(deployment.pointer(&path), Some(&wanted), "{values}");
    }
    let args = |values: &Value| -> Vec<String> {
        let deployment = one(&with(values).expect("objects"), "Deployment");
        let args = deployment.pointer(&format!("{container}/args")).cloned();
        serde_json::from_value(args.expect("arguments")).expect("texts")
    };
    let usual = args(&json!({}));
    for (values, more) in [
        (
            json!({"allowedNodeCidrs": ["10.0.0.0/8", "2001:db8::/32"]}),
            "--allowed-node-cidrs=10.0.0.0/8,2001:db8::/32",
        ),
        (json!({"logFormat": "text"}), "--log-format=text"),
        (json!({"extraArgs": ["--resync=5m"]}), "--resync=5m"),
        (
            json!({"credentialsNamespace": "keys"}),
            "--credentials-namespace=keys",
        ),
    ] {
        assert!(!usual.iter().any(|arg| arg == more), "{usual:?}");
        let args = args(&values);
        assert!(args.iter().any(|arg| arg == more), "{args:?}");
        let flag = |arg: &str| arg.split('=').next().map(str::to_owned);
        let same = args.iter().filter(|arg| flag(arg) == flag(more));
        assert_eq!(same.count(), 1, "{args:?}");
    }
    // What people add stands after what the operator needs, which stays.
    let env = |values: &Value| -> Vec<Value> {
        let deployment = one(&with(values).expect("objects"), "Deployment");
        let all = deployment.pointer(&format!("{container}/env"));
        all.and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let added = json!({"name": "A", "value": "b"});
    let mut wanted = env(&json!({}));
    assert!(!wanted.is_empty());
    wanted.push(added.clone());
    assert_eq!(env(&json!({"extraEnv": [added]})), wanted);
}

/// Renders with these values.
fn with(values: &Value) -> Result<String, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("values.json");
    fs::write(&file, values.to_string()).expect("it is written");
    template(&["--values", file.to_str().expect("a path")])
}

#[test]
fn what_is_switched_off_is_not_rendered() {
    let kinds = |values: &Value| -> Vec<String> {
        let all = by_key(&with(values).expect("objects"));
        let mut kinds: Vec<_> = all.into_keys().map(|key| key.0).collect();
        kinds.dedup();
        kinds
    };
    let all = kinds(&json!({}));
    for (values, without) in [
        (
            json!({"networkPolicy": {"enabled": false}}),
            vec!["NetworkPolicy"],
        ),
        (
            json!({"policies": {"enabled": false}}),
            vec![
                "ValidatingAdmissionPolicy",
                "ValidatingAdmissionPolicyBinding",
            ],
        ),
        // A drain would wait for the only pod for ever.
        (json!({"replicas": 1}), vec!["PodDisruptionBudget"]),
    ] {
        let left: Vec<_> = all
            .iter()
            .filter(|kind| !without.contains(&kind.as_str()))
            .cloned()
            .collect();
        assert_eq!(left.len(), all.len() - without.len());
        assert_eq!(kinds(&values), left);
    }
}

/// No name of the usual namespaces is left in a release with others.
#[test]
fn other_namespaces_are_in_every_object() {
    let rendered = template(&[
        "--namespace",
        "one",
        "--set",
        "credentialsNamespace=two,createNamespace=true",
    ])
    .expect("objects");
    let usual = by_key(&template(&["--set", "createNamespace=true"]).expect("objects"));
    let moved = |name: &str| {
        match name {
            "rke-operator" => "one",
            "rke-operator-credentials" => "two",
            other => other,
        }
        .to_owned()
    };
    let wanted: Vec<Key> = {
        let mut keys: Vec<_> = usual
            .into_keys()
            .map(|(kind, namespace, name)| {
                let name = if kind == "Namespace" {
                    moved(&name)
                } else {
                    name
                };
                (kind, moved(&namespace), name)
            })
            .collect();
        keys.sort();
        keys
    };
    let rendered_keys: Vec<Key> = by_key(&rendered).into_keys().collect();
    assert_eq!(rendered_keys, wanted);
    assert!(!rendered.contains("rke-operator-credentials"), "{rendered}");
    for object in by_key(&rendered).into_values() {
        for subject in object["subjects"].as_array().into_iter().flatten() {
            assert_eq!(subject["namespace"], "one", "{object}");
        }
        let rules = &object["spec"]["matchConstraints"]["resourceRules"];
        for rule in rules.as_array().into_iter().flatten() {
            if rule["resources"] == json!(["namespaces"]) {
                assert_eq!(rule["resourceNames"], json!(["one", "two"]));
            }
        }
    }
}

#[test]
fn values_and_namespaces_that_cannot_be_are_refused() {
    for (args, said) in [
        (
            &["--set", "replicaCount=3"][..],
            "additional properties 'replicaCount' not allowed",
        ),
        (
            &["--set", "image.name=a"],
            "additional properties 'name' not allowed",
        ),
        (&["--set-string", "replicas=3"], "got string, want integer"),
        (
            &["--namespace", "default"],
            "--namespace rke-operator --create-namespace",
        ),
        (&["--namespace", "kube-system"], "give it a dedicated one"),
        (
            &["--set", "credentialsNamespace=rke-operator"],
            "must not be the namespace of the release",
        ),
        (&["--kube-version", "1.29.9"], ">=1.30.0-0"),
    ] {
        let refused = template(args).expect_err("it is refused");
        assert!(refused.contains(said), "{args:?}: {refused}");
    }
}

/// Renders for a management cluster with these definitions.
async fn on(api: &FakeApi) -> Result<String, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = kubeconfig_of(api, folder.path()).await;
    let rendered = tokio::task::spawn_blocking(move || {
        let file = kubeconfig.to_str().expect("a path").to_owned();
        template(&["--dry-run=server", "--kubeconfig", &file])
    });
    rendered.await.expect("it runs")
}

/// An operator of this release would not start with them: that is found before anything is changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_needs_definitions_that_are_new_enough() {
    const NAME: &str = "clusters.clusterprovisioner.rke.io";
    let with = |number: Option<u32>| {
        let api = FakeApi::new(clock());
        let mut definition = api
            .object("customresourcedefinitions", "", NAME)
            .expect("it is there");
        let about = &mut definition["metadata"]["annotations"];
        *about = number.map_or(
            json!({}),
            |number| json!({SCHEMA_VERSION: number.to_string()}),
        );
        api.plant("customresourcedefinitions", &definition);
        api
    };
    for number in [SCHEMA, SCHEMA + 1] {
        let rendered = on(&with(Some(number))).await;
        assert!(rendered.is_ok(), "{number}: {rendered:?}");
    }
    for number in [Some(SCHEMA - 1), None] {
        let refused = on(&with(number)).await.expect_err("it is refused");
        let number = number.unwrap_or(0);
        let said = format!("the definition {NAME} has schema version {number}");
        assert!(refused.contains(&said), "{refused}");
        assert!(
            refused.contains("kubectl apply --server-side --force-conflicts -f -"),
            "{refused}"
        );
    }
    // Installed for the first time: Helm has put the definitions there before it renders, so there is nothing to fear.
    let api = FakeApi::new(clock());
    api.delete("customresourcedefinitions", "", NAME);
    let rendered = on(&api).await;
    assert!(rendered.is_ok(), "{rendered:?}");
}

/// The text after an installation, with these arguments. `helm template` shows none, so it is rendered as an object.
fn notes(args: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("chart");
    copy_folder(&chart(), &copy);
    let templates = copy.join("templates");
    let text = fs::read_to_string(templates.join("NOTES.txt")).expect("the text");
    let text = format!("{{{{ define \"notes\" }}}}{text}{{{{ end }}}}");
    fs::write(templates.join("_notes.tpl"), text).expect("it is written");
    let object = "{{ dict \"kind\" \"Notes\" \"text\" (include \"notes\" .) | toJson }}";
    fs::write(templates.join("notes.yaml"), object).expect("it is written");
    let rendered = template_of(&copy, args).expect("objects");
    let notes = one(&rendered, "Notes");
    notes["text"].as_str().expect("a text").to_owned()
}

fn copy_folder(from: &Path, to: &PathBuf) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let copy = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else {
            fs::copy(&path, &copy).expect("a copy");
        }
    }
}

#[test]
fn the_notes_have_the_next_commands() {
    let usual = notes(&[]);
    assert!(usual.contains("names no registry"), "{usual}");
    let own = notes(&[
        "--namespace",
        "one",
        "--set",
        "credentialsNamespace=two,image.repository=a.example/b",
    ]);
    assert!(!own.contains("names no registry"), "{own}");
    for line in [
        "kubectl -n one rollout status deployment/rke-operator",
        "kubectl -n two create secret generic nodes",
        "kubectl -n two annotate secret nodes clusterprovisioner.rke.io/clusters=first",
        "kubectl wait --for=condition=Ready --timeout=15m rkec/first",
    ] {
        assert!(own.contains(line), "{line}: {own}");
    }
    // The object is one that the API takes.
    let (_, rest) = own.split_once("<<EOF\n").expect("an object");
    let (object, _) = rest.split_once("EOF\n").expect("its end");
    let cluster: Cluster = serde_saphyr::from_str(object).expect("a Cluster");
    assert_eq!(cluster.metadata.name.as_deref(), Some("first"));
}

/// An API server and its etcd, as processes of this machine. Nothing runs what it has: no controller, no node.
struct ApiServer {
    folder: tempfile::TempDir,
    _processes: [Process; 2],
}

impl ApiServer {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [clients, peers, secure] = listeners
            .each_ref()
            .map(|one| one.local_addr().expect("an address").port());
        drop(listeners);
        let start = |program: &Path, name: &str, args: &[String]| {
            let log = File::create(path(name)).expect("a log");
            let mut command = Command::new(program);
            command
                .args(args)
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            Process(command.stderr(log).spawn().expect("it starts"))
        };

        let program = lab::etcd(lab::KUBERNETES_VERSION, &mut std::io::stderr()).expect("an etcd");
        let (clients, peers) = (
            format!("http://127.0.0.1:{clients}"),
            format!("http://127.0.0.1:{peers}"),
        );
        let etcd = start(
            &program,
            "etcd.log",
            &[
                format!("--data-dir={}", path("etcd")),
                format!("--listen-client-urls={clients}"),
                format!("--advertise-client-urls={clients}"),
                format!("--listen-peer-urls={peers}"),
            ],
        );

        let key = rcgen::KeyPair::generate().expect("a key");
        let write = |name: &str, text: &str| fs::write(path(name), text).expect("it is written");
        write("private.pem", &key.serialize_pem());
        write("public.pem", &key.public_key_pem());
        write("tokens.csv", "secret,admin,1,system:masters\n");
        write("kubeconfig", &json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {
                "server": format!("https://127.0.0.1:{secure}"), "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "a", "user": {"token": "secret"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        }).to_string());
        let program = lab::apiserver().expect("an API server");
        let apiserver = start(
            &program,
            "apiserver.log",
            &[
                format!("--etcd-servers={clients}"),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={secure}"),
                format!("--cert-dir={}", path("certs")),
                format!("--token-auth-file={}", path("tokens.csv")),
                format!("--service-account-key-file={}", path("public.pem")),
                format!("--service-account-signing-key-file={}", path("private.pem")),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                "--service-cluster-ip-range=10.43.0.0/24".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
            ],
        );
        let server = Self {
            _processes: [apiserver, etcd],
            folder,
        };
        Site::eventually("the API server is ready", Duration::from_secs(90), || {
            server.kubectl(&["get", "--raw", "/readyz"]).is_ok()
                && server.kubectl(&["get", "namespace", "default"]).is_ok()
        });
        server
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        run(Command::new(lab::kubectl().expect("a kubectl"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(args))
    }

    /// Helm, in the namespace that the documentation names.
    fn helm(&self, args: &[&str]) -> Result<String, String> {
        run(helm(self.folder.path())
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(["--namespace", "rke-operator"])
            .args(args))
    }

    fn there(&self, what: &[&str]) -> bool {
        let found = self.kubectl(&[&["get", "--ignore-not-found", "-o", "name"], what].concat());
        !found.expect("an answer").is_empty()
    }

    fn uid(&self, what: &[&str]) -> String {
        let path = [
            "-o",
            "jsonpath={.metadata.uid} {.metadata.deletionTimestamp}",
        ];
        self.kubectl(&[&["get"], what, &path].concat())
            .expect("it is there")
    }
}

#[test]
fn a_release_comes_and_goes_and_no_cluster_is_touched() {
    const DEFINITION: &str = "clusters.clusterprovisioner.rke.io";
    const KEPT: [&[&str]; 5] = [
        &["crd", DEFINITION],
        &["namespace", "rke-operator"],
        &["namespace", "rke-operator-credentials"],
        &[
            "validatingadmissionpolicy",
            "in-use.clusterprovisioner.rke.io",
        ],
        &["rkec", "minimal"],
    ];
    const GONE: [&[&str]; 4] = [
        &["-n", "rke-operator", "deployment", "rke-operator"],
        &["-n", "rke-operator", "networkpolicy", "rke-operator"],
        &["-n", "rke-operator-credentials", "role", "rke-operator"],
        &["clusterrole", "rke-operator"],
    ];
    let server = ApiServer::new();
    let chart = chart().display().to_string();
    let install = ["install", "rke-operator", &chart, "--create-namespace"];
    let upgrade = ["upgrade", "rke-operator", &chart];
    let uninstall = ["uninstall", "rke-operator"];
    server.helm(&install).expect("it is installed");
    let sample = "samples/cluster-minimal.yaml";
    server
        .kubectl(&["create", "-f", sample])
        .expect("a Cluster");
    let uids = || KEPT.map(|what| server.uid(what));
    let before = uids();

    // Older definitions: the upgrade stops before it changes anything.
    let older = format!("{SCHEMA_VERSION}={}", SCHEMA - 1);
    let annotate = ["annotate", "--overwrite", "crd", DEFINITION, &older];
    server.kubectl(&annotate).expect("it is annotated");
    let deployed = || {
        let path = "jsonpath={.metadata.resourceVersion}";
        server.kubectl(&[
            "-n",
            "rke-operator",
            "get",
            "deployment",
            "rke-operator",
            "-o",
            path,
        ])
    };
    let unchanged = deployed();
    let more = [&upgrade[..], &["--set", "replicas=3"]].concat();
    let refused = server.helm(&more).expect_err("it is refused");
    assert!(
        refused.contains("update the definitions first"),
        "{refused}"
    );
    assert_eq!(deployed(), unchanged);
    let definitions = server.folder.path().join("crds.yaml");
    let shown = server.helm(&["show", "crds", &chart]).expect("definitions");
    fs::write(&definitions, shown).expect("it is written");
    let file = definitions.to_str().expect("a path");
    let apply = ["apply", "--server-side", "-f", file];
    server.kubectl(&apply).expect_err("Helm owns the fields");
    let apply = [&apply[..], &["--force-conflicts"]].concat();
    server.kubectl(&apply).expect("they are applied");
    server.helm(&more).expect("it is upgraded");
    assert_ne!(deployed(), unchanged);

    server.helm(&uninstall).expect("it is uninstalled");
    for what in GONE {
        assert!(!server.there(what), "{what:?}");
    }
    assert_eq!(uids(), before);
    for what in &KEPT[..3] {
        let delete = [&["delete", "--dry-run=server"], *what].concat();
        let refused = server.kubectl(&delete).expect_err("it is refused");
        assert!(
            refused.contains("there are Clusters, such as minimal"),
            "{refused}"
        );
    }

    // Again, under the same name and under another.
    server.helm(&install).expect("it is installed again");
    server.helm(&uninstall).expect("it is uninstalled");
    let other = ["install", "other", &chart];
    server
        .helm(&other)
        .expect_err("it belongs to another release");
    let other = [&other[..], &["--take-ownership"]].concat();
    server.helm(&other).expect("it is installed");
    server
        .helm(&["uninstall", "other"])
        .expect("it is uninstalled");

    // From Kustomize to Helm.
    let apply = |folder: &str| {
        server.kubectl(&["apply", "--server-side", "--force-conflicts", "-k", folder])
    };
    apply("deploy").expect("it is applied");
    apply("deploy/policies").expect("it is applied");
    let adopt = [&install[..], &["--take-ownership"]].concat();
    server.helm(&adopt).expect("it is installed");
    server.helm(&uninstall).expect("it is uninstalled");
    for what in GONE {
        assert!(!server.there(what), "{what:?}");
    }
    assert_eq!(uids(), before);
}

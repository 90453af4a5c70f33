//! The files by which the operator is installed: the chart has those of `deploy/`, its schema has its values, and the
//! `NetworkPolicy` has the sockets of the process. What Helm renders from them is in `lab_deploy`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::{fake_api::FakeApi, operator_rig::clock};

/// The chart.
pub(crate) fn chart() -> PathBuf {
    root().join("deploy/chart")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a YAML file, without empty ones.
pub(crate) fn documents(yaml: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("YAML");
    all.into_iter().filter(|one| !one.is_null()).collect()
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(&root().join(path))).expect("YAML")
}

/// The object of that kind in a file of `deploy/`.
fn object(file: &str, kind: &str) -> Value {
    let all = documents(&text(&root().join("deploy").join(file)));
    let found = all.into_iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} in {file}"))
}

/// A definition as the chart has it. `helm show crds` puts nothing between two of them. Argo CD applies what Helm only
/// installs once, and leaves what has this annotation when it prunes or deletes an application.
fn definition(original: &str) -> String {
    let annotations = "  annotations:\n";
    assert!(original.contains(annotations), "{original}");
    let keep = format!("{annotations}    helm.sh/resource-policy: keep\n");
    format!("---\n{}", original.replacen(annotations, &keep, 1))
}

/// Copied, not linked: what takes a chart out of a repository may leave links behind.
#[test]
fn the_chart_has_the_files_of_deploy() {
    let resources = |kustomization: &str| -> Vec<String> {
        let names = yaml(kustomization)["resources"].clone();
        serde_json::from_value(names).expect("names")
    };
    let mut wanted = BTreeMap::new();
    for (folder, copies) in [
        ("crds", "crds"),
        ("deploy", "files"),
        ("deploy/policies", "files"),
    ] {
        for name in resources(&format!("{folder}/kustomization.yaml")) {
            let original = text(&root().join(folder).join(&name));
            let original = match folder {
                "crds" => definition(&original),
                _ => original,
            };
            wanted.insert(format!("{copies}/{name}"), original);
        }
    }
    if std::env::var_os("UPDATE_CHART").is_some() {
        for (name, original) in &wanted {
            fs::write(chart().join(name), original).expect("it is written");
        }
    }
    let mut there = BTreeMap::new();
    for folder in ["crds", "files"] {
        for entry in fs::read_dir(chart().join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            there.insert(format!("{folder}/{name}"), text(&path));
        }
    }
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&there), names(&wanted));
    for (name, original) in &wanted {
        assert!(
            there[name] == *original,
            "deploy/chart/{name} is stale: run `UPDATE_CHART=1 cargo test --test it the_chart_has`"
        );
    }
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart = yaml("deploy/chart/Chart.yaml");
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    let oldest = format!(">=1.{}.0-0", rke_operator::operator::OLDEST);
    assert_eq!(chart["kubeVersion"], oldest);
}

fn schema() -> Value {
    serde_json::from_str(&text(&chart().join("values.schema.json"))).expect("JSON")
}

/// The paths of the properties that a schema names.
fn properties(schema: &Value, all: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    let schema = match schema["$ref"].as_str() {
        Some(name) => all.pointer(&name[1..]).expect("a definition"),
        None => schema,
    };
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        properties(below, all, &format!("{path}."), found);
        found.insert(path);
    }
}

/// The paths of values; what is below a value whose keys are the user's is that user's.
fn paths(values: &Value, known: &BTreeSet<String>, prefix: &str, found: &mut BTreeSet<String>) {
    for (name, below) in values.as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        if known
            .iter()
            .any(|known| known.starts_with(&format!("{path}.")))
        {
            paths(below, known, &format!("{path}."), found);
        }
        found.insert(path);
    }
}

#[test]
fn the_schema_has_each_value_of_the_chart_and_no_other() {
    let (schema, values) = (schema(), yaml("deploy/chart/values.yaml"));
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    assert!(validator.is_valid(&values));
    let (mut known, mut there) = (BTreeSet::new(), BTreeSet::new());
    properties(&schema, &schema, "", &mut known);
    paths(&values, &known, "", &mut there);
    // Helm adds the first; the others have no default.
    for without in [
        "global",
        "resources.claims",
        "affinity.nodeAffinity",
        "affinity.podAffinity",
        "affinity.podAntiAffinity",
    ] {
        assert!(known.remove(without), "{without}");
    }
    assert_eq!(known, there);
}

#[test]
fn the_schema_refuses_unknown_values_and_wrong_types() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for bad in [
        json!({"replicaCount": 2}),
        json!({"replicas": "2"}),
        json!({"replicas": -1}),
        json!({"image": "rke-operator:1"}),
        json!({"image": {"name": "rke-operator"}}),
        json!({"image": {"repository": ""}}),
        json!({"image": {"repository": "a b"}}),
        json!({"image": {"tag": 1}}),
        json!({"image": {"digest": "sha256:12"}}),
        json!({"image": {"pullPolicy": "Sometimes"}}),
        json!({"imagePullSecrets": ["regcred"]}),
        json!({"imagePullSecrets": [{}]}),
        json!({"credentialsNamespace": "Keys"}),
        json!({"createNamespace": "true"}),
        json!({"allowedNodeCidrs": "10.0.0.0/8"}),
        json!({"allowedNodeCidrs": ["10.0.0.1"]}),
        json!({"allowedNodeCidrs": ["10.0.0.0/8,192.0.2.0/24"]}),
        json!({"logFormat": "yaml"}),
        json!({"extraArgs": "--x"}),
        json!({"extraArgs": ["x"]}),
        json!({"extraEnv": {"A": "b"}}),
        json!({"extraEnv": [{"value": "b"}]}),
        json!({"resources": {"limit": {}}}),
        json!({"nodeSelector": {"a": true}}),
        json!({"tolerations": {"key": "a"}}),
        json!({"tolerations": [{"key": "a", "operator": "In"}]}),
        json!({"affinity": {"node": {}}}),
        json!({"priorityClassName": 1}),
        json!({"podAnnotations": {"a": 1}}),
        json!({"podLabels": ["a"]}),
        json!({"networkPolicy": true}),
        json!({"networkPolicy": {"enabled": "no"}}),
        json!({"policies": {"on": true}}),
    ] {
        assert!(!validator.is_valid(&bad), "{bad}");
    }
}

/// The port of each `--…-bind-address=:PORT` that the Deployment starts the program with.
fn bound(deployment: &Value) -> BTreeSet<u64> {
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let args = container["args"].as_array().into_iter().flatten();
    args.filter_map(|arg| arg.as_str()?.split_once("bind-address=:"))
        .map(|(_, port)| port.parse().expect("a port"))
        .collect()
}

/// The ports that a list of rules allows for that protocol.
fn ports(rules: &Value, protocol: &str) -> BTreeSet<Option<u64>> {
    let rules = rules.as_array().into_iter().flatten();
    let ports = rules.flat_map(|rule| rule["ports"].as_array().into_iter().flatten());
    ports
        .filter(|port| port["protocol"] == protocol)
        .map(|port| port["port"].as_u64())
        .collect()
}

#[test]
fn the_network_policy_has_the_ports_of_the_deployment() {
    let deployment = object("deployment.yaml", "Deployment");
    let policy = object("networkpolicy.yaml", "NetworkPolicy");
    assert_eq!(
        policy["spec"]["podSelector"],
        deployment["spec"]["selector"]
    );

    let flags = bound(&deployment);
    assert!(!flags.is_empty(), "no port at all");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let declared = container["ports"].as_array().into_iter().flatten();
    let declared: BTreeSet<_> = declared
        .filter_map(|port| port["containerPort"].as_u64())
        .collect();
    assert_eq!(declared, flags, "the container's ports");
    let allowed = ports(&policy["spec"]["ingress"], "TCP");
    assert_eq!(allowed, flags.into_iter().map(Some).collect());
    assert_eq!(ports(&policy["spec"]["ingress"], "UDP"), BTreeSet::new());

    // A node's sshd has any port of TCP, and nothing but names is looked up over UDP.
    let out = &policy["spec"]["egress"];
    assert!(ports(out, "TCP").contains(&None), "{out}");
    assert_eq!(ports(out, "UDP"), [Some(53)].into());
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
}

/// Ends with the test, however that ends.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server as a process sees it: HTTP at an address of this machine, which a kubeconfig names. Needs a runtime with
/// more than one thread.
pub(crate) async fn kubeconfig_of(api: &FakeApi, folder: &Path) -> PathBuf {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    let api = api.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let api = api.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request: http::Request<Incoming>| {
                    let api = api.clone();
                    async move { Ok::<_, std::convert::Infallible>(api.serve(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    let named = |name: &str, key: &str, value: Value| json!([{"name": name, key: value}]);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": named("a", "cluster", json!({"server": server})),
        "users": named("a", "user", json!({})),
        "contexts": named("a", "context", json!({"cluster": "a", "user": "a"})),
    });
    let path = folder.join("kubeconfig");
    fs::write(&path, kubeconfig.to_string()).expect("it is written");
    path
}

/// The sockets of a process in a table of `/proc`: local port and state.
fn sockets(pid: u32, table: &str) -> BTreeSet<(u64, String)> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
    let own: BTreeSet<String> = descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| {
            let link = link.to_string_lossy().into_owned();
            Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
    let rows = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| own.contains(row[9]))
        .map(|row| {
            let port = row[1].rsplit(':').next().expect("a port");
            let port = u64::from_str_radix(port, 16).expect("a number");
            (port, row[3].to_owned())
        })
        .collect()
}

/// What the Deployment starts listens on the ports of its flags, which are those of the `NetworkPolicy`, and on no
/// other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_opens_the_ports_of_its_flags_and_no_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = kubeconfig_of(&FakeApi::new(clock()), folder.path()).await;
    let deployment = object("deployment.yaml", "Deployment");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let args: Vec<String> = serde_json::from_value(container["args"].clone()).expect("texts");

    // Others may have those ports on this machine.
    let taken: BTreeMap<u64, TcpListener> = bound(&deployment)
        .into_iter()
        .map(|port| (port, TcpListener::bind("[::]:0").expect("a port")))
        .collect();
    let free: BTreeMap<u64, u16> = taken
        .iter()
        .map(|(port, taken)| (*port, taken.local_addr().expect("an address").port()))
        .collect();
    drop(taken);
    let log = folder.path().join("log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rke-operator"));
    for arg in args {
        let arg = arg
            .replace("$(NAMESPACE)", "rke-operator")
            .replace("$(POD)", "pod");
        command.arg(match arg.split_once("bind-address=:") {
            Some((flag, port)) => {
                let port = free[&port.parse::<u64>().expect("a port")];
                format!("{flag}bind-address=:{port}")
            }
            None => arg,
        });
    }
    let process = command
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .env_clear()
        .env("HOME", folder.path())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).expect("a log"))
        .spawn();
    let mut process = Process(process.expect("it starts"));
    let wanted: BTreeSet<u64> = free.values().map(|port| u64::from(*port)).collect();

    // What it opens, it opens before it leads.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let ended = process.0.try_wait().expect("its state");
        assert!(ended.is_none(), "{ended:?}: {}", text(&log));
        let pid = process.0.id();
        let listening: BTreeSet<u64> = ["tcp", "tcp6"]
            .iter()
            .flat_map(|table| sockets(pid, table))
            .filter(|(_, state)| state == "0A")
            .map(|(port, _)| port)
            .collect();
        let datagrams: BTreeSet<_> = ["udp", "udp6"]
            .iter()
            .flat_map(|table| sockets(pid, table))
            .collect();
        assert!(
            listening.is_subset(&wanted),
            "{listening:?}, not {wanted:?}"
        );
        assert!(datagrams.is_empty(), "{datagrams:?}");
        if listening == wanted && is_ready(free[&8081]).await {
            break;
        }
        assert!(Instant::now() < end, "{listening:?}, not {wanted:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// It leads.
async fn is_ready(port: u16) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else {
        return false;
    };
    let request = b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n";
    if stream.write_all(request).await.is_err() {
        return false;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.is_ok() && answer.ends_with("leads\n")
}

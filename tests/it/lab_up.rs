//! `up` on a real node: Ready, serving, a no-op the second time, back after a reboot.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use base64::Engine as _;
use lab::Profile;

use crate::real::{Run, Site, snapshot};

const MINUTES: Duration = Duration::from_secs(240);

/// The demo's pod, behind a service.
const POD: &str = concat!(
    include_str!("../demo-pod.yaml"),
    "---\n",
    r"
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: hello}, ports: [{port: 80, targetPort: 8080}]}
"
);

fn plan_only_reads(site: &Site) {
    let before = snapshot::take(site.node());
    let plan = site.run(&["plan"]).well();
    assert!(plan.stdout.contains("kube-apiserver"), "{}", plan.stdout);
    assert_eq!(site.run(&["plan", "--exit-code"]).status, 4);
    let json = site.run(&["plan", "-o", "json"]).well();
    let parsed: serde_json::Value = serde_json::from_str(&json.stdout).expect("one document");
    assert!(
        parsed["stages"]
            .as_array()
            .is_some_and(|stages| !stages.is_empty())
    );
    snapshot::unchanged(site.node(), &before, &[]);
    assert_eq!(
        fs::read_dir(site.folder()).expect("the folder").count(),
        2,
        "cluster.yml, home"
    );
}

#[test]
fn up_makes_a_cluster_and_a_second_up_is_a_no_op() {
    let site = Site::new("up", Profile::Plain);
    plan_only_reads(&site);

    site.run(&["up", "--yes"]).well();
    assert!(
        site.is_ready(),
        "{:?}",
        site.kubectl(&["get", "nodes", "-o", "wide"])
    );
    let mode = fs::metadata(site.path("kube_config_cluster.yml"))
        .expect("it")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);

    nothing_was_started_twice(&site);
    let containers = site.containers();
    let before = snapshot::take(site.node());
    let files = files(&site);
    let second = site.run(&["up", "-o", "json"]).well();
    assert_eq!(
        steps(&second),
        Vec::<String>::new(),
        "a second up has nothing to do"
    );
    assert_eq!(site.run(&["plan", "--exit-code"]).status, 0);
    assert_eq!(site.containers(), containers);
    assert_eq!(
        files,
        self::files(&site),
        "neither state nor kubeconfig is written"
    );
    snapshot::unchanged(site.node(), &before, &snapshot::alive());
    site.has_nothing_to_do();

    a_certificate_request_is_signed(&site);
    workloads_serve(&site);
    comes_back_after_a_reboot(&site);
}

/// P4: a controller manager that is started before its rights are there exits, again and again.
fn nothing_was_started_twice(site: &Site) {
    let inspect = "docker inspect --format '{{.Name}} {{.RestartCount}}' etcd kube-apiserver \
                   kube-controller-manager kube-scheduler kubelet kube-proxy";
    let restarts = site.node().sh(inspect).expect("docker inspect");
    let again: Vec<&str> = restarts
        .lines()
        .filter(|line| !line.ends_with(" 0"))
        .collect();
    assert_eq!(restarts.lines().count(), 6, "{restarts}");
    assert!(again.is_empty(), "{restarts}");
}

/// R38: an approved request gets its certificate.
fn a_certificate_request_is_signed(site: &Site) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(rcgen::DnType::CommonName, "somebody");
    let request = params.serialize_request(&key).expect("a request");
    let request = request.pem().expect("PEM");
    let request = base64::engine::general_purpose::STANDARD.encode(request);
    let object = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\n\
         metadata: {{name: somebody}}\nspec:\n  request: {request}\n  \
         signerName: kubernetes.io/kube-apiserver-client\n  usages: [client auth]\n"
    );
    site.write_config("request.yml", &object);
    let file = site.path("request.yml").to_string_lossy().into_owned();
    site.kubectl(&["apply", "-f", &file]).well();
    site.kubectl(&["certificate", "approve", "somebody"]).well();
    let certificate = "jsonpath={.status.certificate}";
    Site::eventually("the request is signed", MINUTES, || {
        !site
            .kubectl(&["get", "csr", "somebody", "-o", certificate])
            .stdout
            .is_empty()
    });
}

fn steps(run: &Run) -> Vec<String> {
    run.events()
        .iter()
        .filter(|event| event["event"] == "stepStarted")
        .map(|event| event["title"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn files(site: &Site) -> Vec<(String, std::time::SystemTime)> {
    let mut files: Vec<_> = fs::read_dir(site.folder())
        .expect("the folder")
        .map(|entry| entry.expect("an entry"))
        .filter(|entry| entry.file_name() != "home")
        .map(|entry| {
            let modified = entry
                .metadata()
                .and_then(|it| it.modified())
                .expect("a time");
            (entry.file_name().to_string_lossy().into_owned(), modified)
        })
        .collect();
    files.sort();
    files
}

/// Pods start, resolve names through CoreDNS, and `logs`, `exec`, `port-forward` work.
fn workloads_serve(site: &Site) {
    site.write_config("pod.yml", POD);
    let pod = site.path("pod.yml").to_string_lossy().into_owned();
    Site::eventually("the default service account", MINUTES, || {
        site.kubectl(&["get", "serviceaccount", "default"]).status == 0
    });
    site.kubectl(&["apply", "-f", &pod]).well();
    site.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/hello",
        "--timeout=120s",
    ])
    .well();
    let page = "exec 3<>/dev/tcp/web.default.svc.cluster.local/80; \
                printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    Site::eventually("a pod reaches a service by its name", MINUTES, || {
        site.kubectl(&["exec", "hello", "--", "bash", "-c", page])
            .stdout
            .contains("200 OK")
    });
    let logs = site
        .kubectl(&["-n", "kube-system", "logs", "deployment/coredns"])
        .well();
    assert!(logs.stdout.contains("CoreDNS"), "{}", logs.stdout);
    port_forward(site);
}

fn port_forward(site: &Site) {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpStream,
        process::{Command, Stdio},
    };
    let mut child = Command::new(lab::kubectl().expect("a kubectl"))
        .arg("--kubeconfig")
        .arg(site.path("kube_config_cluster.yml"))
        .args([
            "port-forward",
            "--address",
            "127.0.0.1",
            "pod/hello",
            ":8080",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let mut line = String::new();
    // Kept open: kubectl writes a line for every connection.
    let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
    said.read_line(&mut line).expect("a line");
    let port: u16 = line
        .split("127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no port in `{line}`"));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the forwarded port");
    stream
        .write_all(b"GET / HTTP/1.0\r\n\r\n")
        .expect("a request");
    // kubectl may reset the connection when the pod closes its end: what counts is the answer.
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    drop(said);
    child.kill().expect("it ends");
    child.wait().expect("it ended");
    assert!(answer.contains("200 OK"), "{answer}");
}

/// Nobody but the node brings it back: `up` is run only to show that nothing is left to do.
fn comes_back_after_a_reboot(site: &Site) {
    let container = "jsonpath={.status.containerStatuses[0].containerID} \
                     {.status.containerStatuses[0].ready}";
    let pod = || {
        let run = site.kubectl(&["get", "pod", "hello", "-o", container]);
        run.stdout.strip_suffix(" true").map(str::to_owned)
    };
    let before = pod().expect("the pod is ready");
    site.node().reboot().expect("a reboot");
    // The API still has the status from before; another container is news from this boot.
    Site::eventually("the pod runs again", MINUTES, || {
        pod().is_some_and(|container| container != before)
    });
    Site::eventually("the node is Ready", MINUTES, || site.is_ready());
    Site::eventually("CoreDNS serves again", MINUTES, || {
        site.run(&["plan"]).stdout.contains("nothing to do")
    });
    let after = site.run(&["up", "--yes", "-o", "json"]).well();
    assert_eq!(
        steps(&after),
        Vec::<String>::new(),
        "a reboot leaves nothing to do"
    );
}

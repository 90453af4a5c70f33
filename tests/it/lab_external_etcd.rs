//! An etcd outside of the cluster, on a real node: with TLS, an authority of its own and clients that need a certificate.

use std::process::Command;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use lab::Profile;
use serde_json::{Value, json};

use crate::real::{
    Run, Site,
    beside::{self, certificate, ran},
};

const NAME: &str = "etcd.lab";
const PREFIX: &str = "/production";

/// The one etcd that the clusters share; its address.
fn start(site: &Site) -> String {
    certificate(site, "ca", None, &[]);
    certificate(site, "stranger", None, &[]);
    let names = format!("subjectAltName=DNS:{NAME}");
    certificate(site, "server", Some("ca"), &["-addext", &names]);
    for client in ["client", "later"] {
        certificate(site, client, Some("ca"), &[]);
    }
    certificate(site, "refused", Some("stranger"), &[]);

    let program = lab::etcd(lab::KUBERNETES_VERSION, &mut std::io::stderr()).expect("an etcd");
    let program = format!("{}:/etcd:ro", program.display());
    let arguments = [
        "--data-dir=/data",
        "--listen-client-urls=https://0.0.0.0:2379",
        "--advertise-client-urls=https://etcd.lab:2379",
        "--cert-file=/site/server.pem",
        "--key-file=/site/server.key",
        "--client-cert-auth",
        "--trusted-ca-file=/site/ca.pem",
        // Nobody may rely on it.
        "--enable-grpc-gateway=true",
        "--unsafe-no-fsync",
    ];
    let options = ["--volume", &program, "--entrypoint", "/etcd"];
    beside::start(site, "etcd", NAME, &options, &arguments)
}

fn write(site: &Site, url: &str, prefix: &str, client: &str) {
    let config = site.node().cluster_yml("lab").expect("a config");
    let mut config: Value = serde_saphyr::from_str(&config).expect("YAML");
    let text = |name: &str| std::fs::read_to_string(site.path(name)).expect(name);
    config["nodes"][0]["role"] = json!(["controlplane", "worker"]);
    config["services"]["etcd"] = json!({
        "external_urls": [url],
        "path": prefix,
        "ca_cert": text("ca.pem"),
        "cert": text(&format!("{client}.pem")),
        "key": text(&format!("{client}.key")),
    });
    site.write_config("cluster.yml", &config.to_string());
}

/// Asks etcd itself.
fn asks(site: &Site, address: &str, path: &str, body: &Value) -> Value {
    let at = |name: &str| site.path(name).display().to_string();
    let resolve = format!("{NAME}:2379:{address}");
    let (ca, cert, key) = (at("ca.pem"), at("client.pem"), at("client.key"));
    let (url, body) = (format!("https://{NAME}:2379{path}"), body.to_string());
    let mut args = vec!["--silent", "--show-error", "--fail", "--resolve", &resolve];
    args.extend([
        "--cacert", &ca, "--cert", &cert, "--key", &key, "--data", &body, &url,
    ]);
    serde_json::from_str(&ran("curl", &args)).expect("JSON")
}

/// How many keys there are below a prefix.
fn keys(site: &Site, address: &str, prefix: &str) -> u64 {
    let range = json!({
        "key": STANDARD.encode(format!("{prefix}/")),
        "range_end": STANDARD.encode(format!("{prefix}0")),
        "count_only": true,
    });
    let found = asks(site, address, "/v3/kv/range", &range);
    let count = found["count"].as_str().unwrap_or("0");
    count.parse().expect("a number")
}

fn refused(site: &Site, status: i32, says: &str) {
    let run = site.run(&["up", "--yes"]);
    assert_eq!(run.status, status, "{}", run.stderr);
    assert!(run.stderr.contains(says), "{says}: {}", run.stderr);
    assert!(!run.stderr.contains("PRIVATE KEY"), "{}", run.stderr);
    assert!(!site.path("cluster.rke-operator.json").exists());
    assert_eq!(site.containers().len(), 0, "something was written");
}

fn settled(site: &Site) -> Run {
    let run = site.run(&["up", "--yes"]).well();
    assert!(site.is_ready());
    let plan = site.run(&["plan"]).well();
    assert!(plan.stdout.contains("nothing to do"), "{}", plan.stdout);
    run
}

#[test]
fn a_cluster_lives_on_an_etcd_that_others_run() {
    let site = Site::new("external", Profile::Plain);
    let address = start(&site);
    let url = format!("https://{NAME}:2379");
    let count = |prefix: &str| keys(&site, &address, prefix);
    Site::eventually("etcd answers", std::time::Duration::from_secs(20), || {
        let logs = ["logs", &format!("rke-lab-{}-etcd", site.lab.name())].map(str::to_owned);
        let logs = Command::new("docker").args(logs).output().expect("docker");
        let text = [logs.stdout, logs.stderr].concat();
        String::from_utf8_lossy(&text).contains("ready to serve client requests")
    });
    asks(
        &site,
        &address,
        "/v3/kv/put",
        &json!({"key": STANDARD.encode("/theirs/pods/a"), "value": ""}),
    );

    write(&site, &format!("https://{address}:2379"), PREFIX, "client");
    refused(&site, 1, "has other names");
    write(&site, &format!("https://{NAME}:2399"), PREFIX, "client");
    refused(&site, 2, &format!("to `{NAME}:2399`"));
    write(&site, &url, PREFIX, "refused");
    refused(&site, 1, "refused the client certificate");
    write(&site, &url, "/theirs", "client");
    refused(&site, 1, "holds keys below `/theirs/` already");

    write(&site, &url, PREFIX, "client");
    settled(&site);
    assert!(count(PREFIX) > 100, "{} keys", count(PREFIX));
    assert_eq!(count("/registry"), 0);
    let before = site.containers();
    assert!(!before.contains_key("etcd"), "{before:?}");
    let status = site.run(&["status"]).well().stdout;
    assert!(status.contains("External, answers"), "{status}");
    let certificates = site.run(&["cert", "info", "--nodes"]).well().stdout;
    assert!(certificates.contains("kube-etcd-client"), "{certificates}");
    let snapshot = site.run(&["etcd", "snapshot-save"]);
    assert_eq!(snapshot.status, 1, "{}", snapshot.stderr);
    assert!(
        snapshot.stderr.contains("its etcd is external"),
        "{}",
        snapshot.stderr
    );

    write(&site, &url, PREFIX, "later");
    settled(&site);
    let after = site.containers();
    let changed = after
        .iter()
        .filter(|(name, id)| before.get(*name) != Some(id));
    let changed: Vec<_> = changed.map(|(name, _)| name.as_str()).collect();
    assert_eq!(changed, ["kube-apiserver"]);

    write(&site, &url, "/elsewhere", "later");
    let moved = site.run(&["up", "--yes"]);
    assert_eq!(moved.status, 1, "{}", moved.stderr);
    assert!(
        moved.stderr.contains("its data would stay behind"),
        "{}",
        moved.stderr
    );
    assert_eq!(site.containers(), after);

    write(&site, &url, PREFIX, "later");
    let removed = site.run(&["remove", "--force"]).well();
    let said = [removed.stdout, removed.stderr].concat();
    assert_eq!(
        said.matches("keeps the data of this cluster").count(),
        1,
        "{said}"
    );
    assert!(count(PREFIX) > 100, "{} keys", count(PREFIX));
    let left = site
        .node()
        .sh("ls /etc/kubernetes 2>&1 || true")
        .expect("ls");
    assert!(!left.contains("kube-etcd-client"), "{left}");
    refused(&site, 1, "holds keys below `/production/` already");
}

//! An etcd outside of the cluster, on a real node: three members, of which one dies, with TLS, an authority of its own,
//! clients that need a certificate, and users and roles.

use std::{process::Command, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use lab::Profile;
use serde_json::{Value, json};

use crate::real::{
    Run, Site,
    beside::{self, certificate, ran},
};

const MEMBERS: [&str; 3] = ["etcd-1", "etcd-2", "etcd-3"];
const PREFIX: &str = "/production";
const PASSWORD: &str = "correct horse";

/// As the server's certificate has it.
fn name(member: &str) -> String {
    format!("{member}.lab")
}

fn url(member: &str) -> String {
    format!("https://{}:2379", name(member))
}

fn container(site: &Site, member: &str) -> String {
    format!("rke-lab-{}-{member}", site.lab.name())
}

/// The one etcd that the clusters share; the address of its first member.
fn start(site: &Site) -> String {
    certificate(site, "ca", None, &[]);
    certificate(site, "stranger", None, &[]);
    let names = MEMBERS.map(|member| format!("DNS:{}", name(member)));
    let names = format!("subjectAltName={}", names.join(","));
    certificate(site, "server", Some("ca"), &["-addext", &names]);
    for client in ["client", "later", "nobody"] {
        certificate(site, client, Some("ca"), &[]);
    }
    // Where there are users, etcd's gateway takes nobody whose certificate names one.
    certificate(site, "no-user", Some("ca"), &["-subj", "/O=lab"]);
    certificate(site, "refused", Some("stranger"), &[]);

    let program = lab::etcd(lab::KUBERNETES_VERSION, &mut std::io::stderr()).expect("an etcd");
    let program = format!("{}:/etcd:ro", program.display());
    let options = ["--volume", &program, "--entrypoint", "/etcd"];
    let peer = |member: &str| format!("http://{}:2380", container(site, member));
    let all = MEMBERS.map(|member| format!("{member}={}", peer(member)));
    let all = format!("--initial-cluster={}", all.join(","));
    let addresses = MEMBERS.map(|member| {
        let arguments = [
            &format!("--name={member}"),
            &all,
            &format!("--initial-advertise-peer-urls={}", peer(member)),
            "--listen-peer-urls=http://0.0.0.0:2380",
            "--data-dir=/data",
            "--listen-client-urls=https://0.0.0.0:2379",
            &format!("--advertise-client-urls={}", url(member)),
            "--cert-file=/site/server.pem",
            "--key-file=/site/server.key",
            "--client-cert-auth",
            "--trusted-ca-file=/site/ca.pem",
            // Nobody may rely on it.
            "--enable-grpc-gateway=true",
            "--unsafe-no-fsync",
        ];
        beside::start(site, member, &name(member), &options, &arguments)
    });
    for member in MEMBERS {
        Site::eventually("etcd answers", Duration::from_secs(20), || {
            let logs = ["logs", &container(site, member)].map(str::to_owned);
            let logs = Command::new("docker").args(logs).output().expect("docker");
            let text = [logs.stdout, logs.stderr].concat();
            String::from_utf8_lossy(&text).contains("ready to serve client requests")
        });
    }
    let [first, ..] = addresses;
    first
}

/// From now on each user may do what its roles say. The user of a client is the CN of its certificate.
fn users_and_roles(site: &Site, address: &str) {
    let ask = |path: &str, body: Value| asks(site, address, &format!("/v3/auth/{path}"), &body);
    let key = |text: &str| STANDARD.encode(text);
    ask("user/add", json!({"name": "root", "password": PASSWORD}));
    ask("role/add", json!({"name": "root"}));
    ask("user/grant", json!({"user": "root", "role": "root"}));
    ask("role/add", json!({"name": "kubernetes"}));
    let (below, end) = (format!("{PREFIX}/"), format!("{PREFIX}0"));
    for permission in [
        json!({"permType": "READWRITE", "key": key(&below), "range_end": key(&end)}),
        json!({"permType": "READWRITE", "key": key("compact_rev_key")}),
        json!({"permType": "READ", "key": key("/elsewhere/"), "range_end": key("/elsewhere0")}),
    ] {
        ask(
            "role/grant",
            json!({"name": "kubernetes", "perm": permission}),
        );
    }
    for user in ["client", "later"] {
        ask(
            "user/add",
            json!({"name": user, "options": {"no_password": true}}),
        );
        ask("user/grant", json!({"user": user, "role": "kubernetes"}));
    }
    ask("enable", json!({}));
}

fn write(site: &Site, urls: &[String], prefix: &str, client: &str) {
    let config = site.node().cluster_yml("lab").expect("a config");
    let mut config: Value = serde_saphyr::from_str(&config).expect("YAML");
    let text = |name: &str| std::fs::read_to_string(site.path(name)).expect(name);
    config["nodes"][0]["role"] = json!(["controlplane", "worker"]);
    config["services"]["etcd"] = json!({
        "external_urls": urls,
        "path": prefix,
        "ca_cert": text("ca.pem"),
        "cert": text(&format!("{client}.pem")),
        "key": text(&format!("{client}.key")),
    });
    site.write_config("cluster.yml", &config.to_string());
}

/// Asks the first member, as the one who may do everything where there are users.
fn asks(site: &Site, address: &str, path: &str, body: &Value) -> Value {
    let at = |name: &str| site.path(name).display().to_string();
    let host = name(MEMBERS[0]);
    let resolve = format!("{host}:2379:{address}");
    let (ca, cert, key) = (at("ca.pem"), at("no-user.pem"), at("no-user.key"));
    let post = |path: &str, body: &Value, more: &[&str]| {
        let (url, body) = (format!("https://{host}:2379{path}"), body.to_string());
        let mut args = vec!["--silent", "--show-error", "--resolve", &resolve];
        args.extend(["--cacert", &ca, "--cert", &cert, "--key", &key]);
        args.extend(["--data", &body, &url]);
        args.extend(more);
        let text = ran("curl", &args);
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let login = json!({"name": "root", "password": PASSWORD});
    let login = post("/v3/auth/authenticate", &login, &[]);
    let token = login["token"].as_str();
    let token = token.map(|token| format!("Authorization: {token}"));
    let header = token.as_ref().map(|token| ["--header", token]);
    let more: Vec<_> = header.into_iter().flatten().chain(["--fail"]).collect();
    post(path, body, &more)
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
    site.has_nothing_to_do();
    run
}

#[test]
fn a_cluster_lives_on_an_etcd_that_others_run() {
    let site = Site::new("external", Profile::Plain);
    let address = start(&site);
    let urls = MEMBERS.map(url);
    let count = |prefix: &str| keys(&site, &address, prefix);
    asks(
        &site,
        &address,
        "/v3/kv/put",
        &json!({"key": STANDARD.encode("/theirs/pods/a"), "value": ""}),
    );

    let by_address = format!("https://{address}:2379");
    write(&site, &[by_address], PREFIX, "client");
    refused(&site, 1, "has other names");
    let nowhere = format!("{}:2399", name(MEMBERS[0]));
    write(&site, &[format!("https://{nowhere}")], PREFIX, "client");
    refused(&site, 2, &format!("to `{nowhere}`"));
    write(&site, &urls, PREFIX, "refused");
    refused(&site, 1, "refused the client certificate");
    write(&site, &urls, "/theirs", "client");
    refused(&site, 1, "holds keys below `/theirs/` already");
    users_and_roles(&site, &address);
    write(&site, &urls, PREFIX, "nobody");
    refused(&site, 1, "that etcd has users and roles");

    write(&site, &urls, PREFIX, "client");
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

    ran("docker", &["kill", &container(&site, MEMBERS[1])]);
    let dead = format!("etcd at `{}` does not answer", url(MEMBERS[1]));
    settled(&site);
    assert_eq!(site.containers(), before);
    let status = site.run(&["status"]);
    let said = [status.stdout, status.stderr].concat();
    assert!(said.contains("External, answers"), "{said}");
    assert!(said.contains(&dead), "{said}");

    write(&site, &urls, PREFIX, "later");
    settled(&site);
    let after = site.containers();
    let changed = after
        .iter()
        .filter(|(name, id)| before.get(*name) != Some(id));
    let changed: Vec<_> = changed.map(|(name, _)| name.as_str()).collect();
    assert_eq!(changed, ["kube-apiserver"]);

    write(&site, &urls, "/elsewhere", "later");
    let moved = site.run(&["up", "--yes"]);
    assert_eq!(moved.status, 1, "{}", moved.stderr);
    assert!(
        moved.stderr.contains("its data would stay behind"),
        "{}",
        moved.stderr
    );
    assert_eq!(site.containers(), after);

    write(&site, &urls, PREFIX, "later");
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

//! A cluster of certificates that a company signed, whose key nobody here has: it is made, used, left alone and removed.

use std::collections::BTreeMap;

use lab::Profile;
use serde_json::Value;

use crate::{cli_certs::Authority, real::Site};

#[test]
fn a_cluster_lives_by_certificates_that_a_company_signed() {
    let site = Site::new("certs", Profile::Plain);
    site.run(&["cert", "generate-csr"]).well();
    Authority::new().signs(&site.path("cluster_certs"));
    site.run(&["up", "--yes", "--custom-certs"]).well();
    assert!(site.is_ready());

    let whoami = "jsonpath={.status.userInfo.username}";
    let whoami = site.kubectl(&["auth", "whoami", "-o", whoami]).well();
    assert_eq!(whoami.stdout, "kube-admin");
    let issuer = |port: u16| {
        let issuer = format!(
            "openssl s_client -connect 127.0.0.1:{port} < /dev/null 2> /dev/null | openssl x509 -noout -issuer"
        );
        site.node().sh(&issuer).expect("a certificate")
    };
    for port in [6443, 10250] {
        assert!(
            issuer(port).contains("the company"),
            "{port}: {}",
            issuer(port)
        );
    }
    // `--served` shows the certificate in use, also after its file was replaced without a restart of the component.
    let served = || {
        let said = site.run(&["cert", "info", "--served", "-o", "json"]).well();
        let all: Vec<Value> = serde_json::from_str(&said.stdout).expect("JSON");
        let on = |one: &Value| {
            let ports = one["servedOn"].as_array().cloned().unwrap_or_default();
            let name = one["name"].as_str().expect("a name").to_owned();
            ports
                .into_iter()
                .map(move |port| (port.as_u64(), name.clone()))
        };
        all.iter().flat_map(on).collect::<BTreeMap<_, _>>()
    };
    let by_port = served();
    let ports: Vec<_> = by_port.keys().copied().flatten().collect();
    assert_eq!(ports, [2379, 2380, 6443, 10250]);
    assert!(
        !by_port.values().any(|name| name.contains("in no file")),
        "{by_port:?}"
    );
    let file = format!("/etc/kubernetes/ssl/{}.pem", by_port[&Some(10250)]);
    let exchanged =
        format!("cp {file} /root/kept.pem; cat /etc/kubernetes/ssl/kube-proxy.pem > {file}");
    site.node().sh(&exchanged).expect("another certificate");
    assert_eq!(served()[&Some(10250)], "served by kubelet, in no file");
    let back = format!("cat /root/kept.pem > {file}; rm /root/kept.pem");
    site.node().sh(&back).expect("the certificate");
    assert_eq!(served(), by_port);

    // kube-apiserver is let in by kubelet, and what it says is believed.
    let component = "k8s-app=kube-dns";
    let logs = ["logs", "-n", "kube-system", "-l", component, "--tail=1"];
    site.kubectl(&logs).well();

    // The folder is not needed to leave things as they are, nor to look or to remove.
    let key = "cat /etc/kubernetes/ssl/kube-node-key.pem";
    let before = site.node().sh(key).expect("a key");
    let containers = site.containers();
    for args in [&["plan"][..], &["plan", "--custom-certs"]] {
        let plan = site.run(args).well();
        assert!(plan.stdout.contains("nothing to do"), "{}", plan.stdout);
    }
    site.run(&["up", "--yes"]).well();
    site.run(&["status"]).well();
    assert_eq!(site.containers(), containers);
    assert_eq!(site.node().sh(key).expect("a key"), before);

    // What only the company could sign is not made by us.
    site.edits(|config| {
        config["authentication"] = serde_json::json!({"sans": ["api.example.com"]});
    });
    let refused = site.run(&["up", "--yes"]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("lacks the names api.example.com"),
        "{refused:?}"
    );
    assert_eq!(site.containers(), containers);

    site.run(&["remove", "--force"]).well();
}

//! `cert rotate`: certificates of one component, and all of them, are re-created on a real node.

use std::{collections::BTreeSet, fs};

use lab::Profile;

use crate::real::Site;

const SSL: &str = "cd /etc/kubernetes/ssl && sha256sum *.pem";

/// The names of the files below the folder of certificates, with their digests.
fn files(site: &Site) -> BTreeSet<String> {
    let said = site.node().sh(SSL).expect("certificates");
    said.lines().map(str::to_owned).collect()
}

/// The names of the containers that were replaced.
fn replaced(site: &Site, does: impl FnOnce()) -> BTreeSet<String> {
    let before = site.containers();
    does();
    let after = site.containers();
    let names = before
        .keys()
        .filter(|name| before.get(*name) != after.get(*name));
    names.cloned().collect()
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

/// The head of a token, which names the key that has signed it.
fn key_of(token: &str) -> &str {
    token.split('.').next().unwrap_or_default()
}

/// True where the API server takes a token.
fn accepts(site: &Site, token: &str) -> bool {
    let asked = format!(
        "curl -sk -o /dev/null -w '%{{http_code}}' -H 'Authorization: Bearer {token}' https://127.0.0.1:6443/api"
    );
    let code = site.node().sh(&asked).expect("an answer");
    // A service account may read little; one that is not known is 401.
    matches!(code.trim(), "200" | "403")
}

#[test]
fn certificates_are_rotated_for_one_component_and_for_all() {
    let site = Site::new("rotate", Profile::Plain);
    site.run(&["up", "--yes"]).well();
    // What else differs waits for `up`.
    site.edits(|config| {
        config["services"]["scheduler"] = serde_json::json!({"extra_args": {"v": "3"}});
    });

    let before = files(&site);
    let kubelet = replaced(&site, || {
        let rotate = ["cert", "rotate", "--service", "kubelet", "--yes"];
        site.run(&rotate).well();
    });
    assert_eq!(kubelet, names(&["kubelet"]));
    let new: Vec<String> = files(&site).difference(&before).cloned().collect();
    assert_eq!(new.len(), 4, "two certificates and their keys: {new:?}");
    let of_kubelet = |line: &String| line.contains("kube-node") || line.contains("kube-kubelet-");
    assert!(new.iter().all(of_kubelet), "{new:?}");

    let scheduler = replaced(&site, || {
        site.run(&["up", "--yes"]).well();
    });
    assert_eq!(scheduler, names(&["kube-scheduler"]));

    let kubeconfig = || fs::read_to_string(site.path("kube_config_cluster.yml")).expect("a file");
    let (former, before) = (kubeconfig(), files(&site));
    let all = replaced(&site, || {
        site.run(&["cert", "rotate", "--yes"]).well();
    });
    let central = [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ];
    assert_eq!(
        all,
        names(&[&central[..], &["kubelet", "kube-proxy"]].concat())
    );
    // Ten certificates with their keys; the authorities and the keys of tokens stay.
    assert_eq!(files(&site).difference(&before).count(), 20);
    assert_ne!(kubeconfig(), former);
    assert!(site.is_ready());
    site.has_nothing_to_do();

    // Another key signs tokens, and one of the former key is accepted until an hour has passed.
    let token = || {
        let made = site.kubectl(&["create", "token", "default"]).well();
        made.stdout.trim().to_owned()
    };
    let former = token();
    let signing = replaced(&site, || {
        let rotate = ["cert", "rotate", "--service-account-key", "--yes"];
        site.run(&rotate).well();
    });
    assert_eq!(
        signing,
        names(&["kube-apiserver", "kube-controller-manager"])
    );
    assert_ne!(key_of(&token()), key_of(&former));
    let complete = [
        "cert",
        "rotate",
        "--service-account-key",
        "--complete",
        "--yes",
    ];
    let early = site.run(&complete);
    assert_eq!(early.status, 1, "{}", early.stderr);
    assert!(early.stderr.contains("within an hour"), "{}", early.stderr);
    assert!(accepts(&site, &former));
    assert!(!accepts(&site, &former.replace('.', ".x")));
    site.has_nothing_to_do();
}

//! A registry that wants a password and has an authority of its own, on a real node: Docker pulls the system images
//! from it, and pods pull theirs.

use std::time::Duration;

use lab::Profile;
use serde_json::{Value, json};

use crate::real::{
    Run, Site,
    beside::{self, certificate},
};

const MINUTE: Duration = Duration::from_secs(60);
const NAME: &str = "private.lab:5000";
/// `hunter2` and `hunter3`, as `htpasswd -B` writes them.
const WORDS: [(&str, &str); 2] = [
    (
        "hunter2",
        "robot:$2b$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.\n",
    ),
    (
        "hunter3",
        "robot:$2b$05$abcdefghijklmnopqrstuu1cSQmXltMZdCm6kweO057j1TtIrg35W\n",
    ),
];

/// Beside the lab's own, with its images; the node knows its name.
pub(crate) fn start(site: &Site) {
    certificate(site, "ca", None, &[]);
    let names = ["-addext", "subjectAltName=DNS:private.lab"];
    certificate(site, "tls", Some("ca"), &names);
    site.write_config("htpasswd", WORDS[0].1);
    let store = site.lab.registry().ca();
    let store = store.parent().expect("a folder").join("store");
    let store = format!("{}:/var/lib/registry:ro", store.display());
    let mut options = vec!["--volume", &store];
    for setting in [
        "REGISTRY_HTTP_TLS_CERTIFICATE=/site/tls.pem",
        "REGISTRY_HTTP_TLS_KEY=/site/tls.key",
        "REGISTRY_AUTH=htpasswd",
        "REGISTRY_AUTH_HTPASSWD_REALM=private",
        "REGISTRY_AUTH_HTPASSWD_PATH=/site/htpasswd",
    ] {
        options.extend(["--env", setting]);
    }
    beside::start(site, "private", "private.lab", &options, &[]);
    // Where containerd has files of its own for registries they stay, and it is not told of others.
    let bare = site.node().sh("rm -r /etc/containerd/certs.d");
    bare.expect("containerd knows no registry");
}

/// What a config has of it when it starts.
pub(crate) fn login() -> Value {
    login_with(WORDS[0].0)
}

fn login_with(password: &str) -> Value {
    json!([{"url": NAME, "user": "robot", "password": password, "is_default": true, "ca_path": "ca.pem"}])
}

fn write(site: &Site, password: &str) {
    site.edits(|config| config["private_registries"] = login_with(password));
}

/// Without a password in anything that it says.
fn goes_up(site: &Site) -> Run {
    let run = site.run(&["up", "--yes"]).well();
    for (word, _) in WORDS {
        assert!(
            !run.stdout.contains(word) && !run.stderr.contains(word),
            "{run:?}"
        );
    }
    assert!(site.is_ready());
    site.has_nothing_to_do();
    run
}

#[test]
fn docker_and_pods_pull_from_a_registry_with_a_password_and_an_authority() {
    let site = Site::new("registries", Profile::Plain);
    start(&site);
    write(&site, WORDS[0].0);
    goes_up(&site);

    let on_node = |script: &str| site.node().sh(script).expect(script);
    let of = "docker ps --no-trunc --format '{{.Image}}' | grep -v '^rke-operator'";
    for image in on_node(of).lines() {
        assert!(image.starts_with(NAME), "{image}");
    }
    let anonymous = format!("docker pull {NAME}/rancher/mirrored-pause:3.6");
    assert!(
        site.node().sh(&anonymous).is_err(),
        "whoever has no password is let in"
    );

    // CoreDNS is up, so kubelet has pulled it; one that is asked for each time.
    let pause = on_node("docker images --format '{{.Repository}}:{{.Tag}}' | grep pause");
    let pause = pause.trim();
    assert!(pause.starts_with(NAME), "{pause}");
    let image = format!("--image={pause}");
    Site::eventually("pods can be made", MINUTE, || {
        let run = ["run", "private", &image, "--image-pull-policy=Always"];
        site.kubectl(&run).status == 0
    });
    Site::eventually("the pod runs", MINUTE, || {
        let phase = ["get", "pod", "private", "-o=jsonpath={.status.phase}"];
        site.kubectl(&phase).stdout == "Running"
    });

    let kubelet = "docker inspect --format '{{.Id}} {{.State.StartedAt}}' $(docker ps --quiet)";
    let before = on_node(kubelet);
    let file = "stat --dereference --format '%a %u' /var/lib/kubelet/config.json";
    assert_eq!(on_node(file).trim(), "600 0");
    site.write_config("htpasswd", WORDS[1].1);
    write(&site, WORDS[1].0);
    goes_up(&site);
    assert_eq!(
        on_node(kubelet),
        before,
        "a changed password restarts something"
    );
    let auth = on_node("cat /var/lib/kubelet/config.json");
    let auth: Value = serde_json::from_str(&auth).expect("JSON");
    assert_eq!(auth["auths"][NAME]["auth"], "cm9ib3Q6aHVudGVyMw==");

    site.run(&["remove", "--force"]).well();
    let left = on_node(
        "ls /etc/docker/certs.d /etc/containerd/certs.d; ls /etc/kubernetes /var/lib/kubelet 2>&1 || true",
    );
    assert!(!left.contains("private.lab"), "{left}");
}

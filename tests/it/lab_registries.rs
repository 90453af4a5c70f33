//! A registry that wants a password and has an authority of its own, on a real node: Docker pulls the system images
//! from it, and pods pull theirs.

use std::{process::Command, time::Duration};

use lab::Profile;
use serde_json::{Value, json};

use crate::real::{Run, Site};

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

fn ran(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect(program);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Beside the lab's own, with its images; the node knows its name.
fn start(site: &Site) {
    let lab = site.lab.name();
    let at = |name: &str| site.path(name).display().to_string();
    let (ca, ca_key, cert, key) = (at("ca.pem"), at("ca.key"), at("tls.crt"), at("tls.key"));
    let request = |more: &[&str]| {
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
        let request = ["req", "-x509", "-nodes", "-days", "30"];
        ran("openssl", &[&request, &curve[..], more].concat());
    };
    request(&["-subj", "/CN=private ca", "-keyout", &ca_key, "-out", &ca]);
    request(&[
        "-subj",
        "/CN=private.lab",
        "-keyout",
        &key,
        "-out",
        &cert,
        "-CA",
        &ca,
        "-CAkey",
        &ca_key,
        "-addext",
        "subjectAltName=DNS:private.lab",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]);
    site.write_config("htpasswd", WORDS[0].1);

    let beside = format!("rke-lab-{lab}-registry");
    let image = ran(
        "docker",
        &["inspect", "--format", "{{.Config.Image}}", &beside],
    );
    let store = site.lab.registry().ca();
    let store = store.parent().expect("a folder").join("store");
    let store = format!("{}:/var/lib/registry:ro", store.display());
    let folder = format!("{}:/site:ro", site.folder().display());
    let (name, label) = (
        format!("rke-lab-{lab}-private"),
        format!("{}={lab}", lab::LABEL),
    );
    let network = format!("rke-lab-{lab}");
    let mut args = vec![
        "run",
        "--detach",
        "--name",
        &name,
        "--label",
        &label,
        "--network",
        &network,
    ];
    args.extend(["--volume", &store, "--volume", &folder]);
    for setting in [
        "REGISTRY_HTTP_TLS_CERTIFICATE=/site/tls.crt",
        "REGISTRY_HTTP_TLS_KEY=/site/tls.key",
        "REGISTRY_AUTH=htpasswd",
        "REGISTRY_AUTH_HTPASSWD_REALM=private",
        "REGISTRY_AUTH_HTPASSWD_PATH=/site/htpasswd",
    ] {
        args.extend(["--env", setting]);
    }
    args.push(&image);
    ran("docker", &args);
    let format = format!("{{{{(index .NetworkSettings.Networks \"{network}\").IPAddress}}}}");
    let address = ran("docker", &["inspect", "--format", &format, &name]);
    // Where containerd has files of its own for registries they stay, and it is not told of others.
    let known = format!("echo {address} private.lab >>/etc/hosts; rm -r /etc/containerd/certs.d");
    site.node().sh(&known).expect("the node knows it");
}

fn write(site: &Site, password: &str) {
    let config = site.node().cluster_yml("lab").expect("a config");
    let mut config: Value = serde_saphyr::from_str(&config).expect("YAML");
    config["private_registries"] = json!([
        {"url": NAME, "user": "robot", "password": password, "is_default": true, "ca_path": "ca.pem"},
    ]);
    site.write_config("cluster.yml", &config.to_string());
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
    let plan = site.run(&["plan"]).well();
    assert!(plan.stdout.contains("nothing to do"), "{}", plan.stdout);
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

//! Real OpenSSH: a node whose name only the bastion host knows, a real agent that logs in to both,
//! and a snapshot of etcd. Then the same as a cluster of RKE: nothing of it is touched.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use lab::{LabSpec, Node, Profile};
use serde_json::{Value, json};

use crate::real::{Run, Site, snapshot};

/// OpenSSH's own agent, with the lab's key; it goes with the test.
pub(crate) struct Agent {
    socket: String,
    pid: String,
}

impl Agent {
    pub(crate) fn start(site: &Site) -> Self {
        let socket = site.path("agent").display().to_string();
        let output = Command::new("ssh-agent")
            .args(["-s", "-a", &socket])
            .output()
            .expect("ssh-agent runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let pid = said
            .split_once("SSH_AGENT_PID=")
            .and_then(|(_, rest)| rest.split(';').next())
            .expect("its process")
            .to_owned();
        let added = Command::new("ssh-add")
            .arg(site.lab.ssh_key())
            .env("SSH_AUTH_SOCK", &socket)
            .status()
            .expect("ssh-add runs");
        assert!(added.success());
        Self { socket, pid }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(&self.pid).status();
    }
}

/// The node's name is in no `known_hosts` of the lab.
pub(crate) fn run(site: &Site, agent: &Agent, args: &[&str]) -> Run {
    let mut command = site.command(args);
    command.arg("--accept-new-host-keys");
    command.env("SSH_AUTH_SOCK", &agent.socket);
    let output = command.output().expect("the binary runs");
    Run {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The node is its own bastion, and that one's: what is dialled from here is its address, and its names are only in
/// its own `/etc/hosts`.
fn config(node: &Node) -> String {
    let yaml = node.cluster_yml("lab").expect("a config");
    let mut config: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let address = node.address().to_string();
    let entry = &mut config["nodes"][0];
    entry["address"] = "inside.lab".into();
    entry["internal_address"] = address.clone().into();
    entry["ssh_key_path"] = Value::Null;
    config["ssh_agent_auth"] = true.into();
    config["bastion_host"] = json!({
        "address": "middle.lab",
        "user": node.user(),
        "through": [{"address": address, "user": node.user()}],
    });
    config.to_string()
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let files = entries.filter(|entry| entry.path().is_file());
    files
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("a file"))
        })
        .collect()
}

#[test]
fn a_node_behind_two_bastions_with_an_agent_is_made_saved_and_removed() {
    let site = Site::new("ways", Profile::Plain);
    let node = site.node();
    let agent = Agent::start(&site);
    node.sh(&format!(
        "echo '{} middle.lab inside.lab' >> /etc/hosts",
        node.address()
    ))
    .expect("a name");
    site.write_config("cluster.yml", &config(node));

    // RKE's containers and its state: refused before any write, here and there.
    node.sh(
        "docker pull --quiet library/nginx:1.26.3
         docker create --name kubelet --label io.rancher.rke.container.name=kubelet library/nginx:1.26.3
         mkdir -p /etc/kubernetes/ssl; echo theirs > /etc/kubernetes/ssl/kube-ca.pem",
    )
    .expect("what RKE leaves");
    let on_node = snapshot::take(node);
    let up = ["up", "--yes"];
    let refused = run(&site, &agent, &up);
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("node `n1` is part of a cluster of RKE v1: `kubelet`"),
        "{refused:?}"
    );
    site.write_config("cluster.rkestate", "{}");
    site.write_config("kube_config_cluster.yml", "theirs");
    let here = files(site.folder());
    for command in [&up[..], &["remove", "--force"]] {
        let refused = run(&site, &agent, command);
        assert_eq!(refused.status, 1, "{refused:?}");
    }
    assert_eq!(files(site.folder()), here);
    snapshot::unchanged(node, &on_node, &snapshot::alive());
    node.sh("docker rm kubelet; rm -r /etc/kubernetes")
        .expect("it is gone");
    fs::remove_file(site.path("cluster.rkestate")).expect("it is gone");
    fs::remove_file(site.path("kube_config_cluster.yml")).expect("it is gone");

    run(&site, &agent, &up).well();
    let before = Site::logins(node);
    let again = run(&site, &agent, &up).well();
    assert_eq!(
        Site::logins(node),
        before + 3,
        "one to each machine on the way"
    );
    assert!(
        again.stderr.contains("is up to date, nothing to do"),
        "{again:?}"
    );

    let save = ["etcd", "snapshot-save", "--name", "s1", "-o", "json"];
    let saved = run(&site, &agent, &save).well();
    let told: Value = serde_json::from_str(&saved.stdout).expect("JSON");
    assert_eq!(told["saved"]["n1"]["path"], "/opt/rke/etcd-snapshots/s1");
    let seen = node
        .sh("cd /opt/rke/etcd-snapshots; stat -c '%a %U %s' . s1; sha256sum s1; ls -A")
        .expect("the snapshot");
    assert!(seen.contains("700 root"), "{seen}");
    assert!(
        seen.contains(&format!("600 root {}", told["saved"]["n1"]["bytes"])),
        "{seen}"
    );
    assert!(seen.ends_with("\ns1"), "nothing else is left: {seen}");
    let taken = run(&site, &agent, &save);
    assert_eq!(taken.status, 1, "{taken:?}");
    let kept = node.sh("cd /opt/rke/etcd-snapshots; sha256sum s1; ls -A");
    assert!(
        seen.ends_with(&kept.expect("the snapshot")),
        "it is as it was"
    );

    // Without the config the inventory knows the way.
    fs::remove_file(site.path("cluster.yml")).expect("the config is gone");
    run(&site, &agent, &["remove", "--force"]).well();
    let left = node.sh("docker ps -aq; ls -A /opt/rke/etcd-snapshots");
    let left = left.expect("the node");
    let (last, first) = left.split_once('\n').expect("two files and no container");
    assert!(last.starts_with("before-removal_"), "{left}");
    assert_eq!(first, "s1", "snapshots stay");
}

/// The person's configuration: each node by an alias, with another port and user than the config's defaults, and the
/// second and third behind the first.
fn ssh_config(site: &Site, nodes: &[&Node]) -> String {
    let host = |(number, node): (usize, &&Node)| {
        let address = node.address();
        let jump = if number == 0 {
            ""
        } else {
            "  ProxyJump alias-0\n"
        };
        format!("Host alias-{number}\n  HostName {address}\n{jump}")
    };
    let hosts: Vec<String> = nodes.iter().enumerate().map(host).collect();
    let (user, key) = (nodes[0].user(), site.lab.ssh_key().display());
    let known = site.path("their_known_hosts");
    format!(
        "{}Host alias-*\n  User {user}\n  Port 2222\n  IdentityFile {key}\n  IdentitiesOnly yes\n  \
         UserKnownHostsFile {}\n",
        hosts.concat(),
        known.display()
    )
}

/// `ssh` in this folder reads that configuration.
fn configured_ssh(site: &Site, config: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = site.path("bin");
    fs::create_dir_all(&folder).expect("a folder");
    let (file, ssh) = (site.path("ssh_config"), folder.join("ssh"));
    fs::write(&file, config).expect("the configuration");
    let script = format!(
        "#!/bin/sh\nexec /usr/bin/ssh -F '{}' \"$@\"\n",
        file.display()
    );
    fs::write(&ssh, script).expect("a script");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("a program");
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", folder.display())
}

#[test]
fn nodes_that_only_an_ssh_config_names_are_made_and_removed() {
    let names = ["n1", "n2", "n3"];
    let spec = names
        .into_iter()
        .fold(LabSpec::own("ways-ssh"), |spec, name| {
            spec.node(name, Profile::Plain)
        });
    let site = Site::of(&spec);
    let nodes = names.map(|name| site.lab.node(name));
    for node in &nodes {
        node.sh("echo 'Port 22
Port 2222' > /etc/ssh/sshd_config.d/ports.conf; systemctl restart ssh")
            .expect("another port");
    }
    let path = configured_ssh(&site, &ssh_config(&site, &nodes));
    let yaml = nodes[0].cluster_yml("lab").expect("a config");
    let mut config: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let entry = |number: usize, node: &Node| {
        json!({
            "address": format!("alias-{number}"),
            "internal_address": node.address().to_string(),
            "role": ["controlplane", "etcd", "worker"],
        })
    };
    config["nodes"] = nodes
        .iter()
        .enumerate()
        .map(|(number, node)| entry(number, node))
        .collect();
    if let Some(root) = config.as_object_mut() {
        root.remove("ssh_key_path");
    }
    site.write_config("cluster.yml", &config.to_string());
    let run = |args: &[&str]| {
        let mut command = site.command(args);
        command
            .env("PATH", &path)
            .env_remove("RKE_OPERATOR_NO_SSH_CONFIG");
        let output = command.output().expect("the binary runs");
        Run {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    };
    run(&["up", "--yes", "--accept-new-host-keys"]).well();
    let known = fs::read_to_string(site.path("their_known_hosts")).expect("recorded keys");
    assert_eq!(known.lines().count(), 3, "{known}");
    let again = run(&["up", "--yes"]).well();
    assert!(
        again.stderr.contains("is up to date, nothing to do"),
        "{again:?}"
    );
    let told = run(&["doctor", "--no-write", "-o", "json"]).well();
    let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
    for (number, node) in nodes.iter().enumerate() {
        let shown = &told["nodes"][number];
        assert_eq!(shown["name"], format!("alias-{number}"), "{told}");
        assert_eq!(
            shown["sshConfig"]["HostName"],
            node.address().to_string(),
            "{told}"
        );
        let bastions = usize::from(number > 0);
        assert_eq!(
            shown["bastions"].as_array().map(Vec::len),
            Some(bastions),
            "{told}"
        );
    }
    // The inventory knows the way without the SSH config.
    fs::remove_file(site.path("cluster.yml")).expect("the config is gone");
    run(&["remove", "--force", "--no-ssh-config"]).well();
    for node in &nodes {
        let left = node.sh("docker ps -aq").expect("the node");
        assert_eq!(left.trim(), "", "no container is left");
    }
}

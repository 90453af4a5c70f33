//! `~/.ssh/config`, as the real `ssh -G` reads it: the binary against fake nodes on 127.0.0.1.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::{env, fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use rke_operator::model::Endpoint;
use serde_json::json;

use crate::{
    cli_node::{SYSTEM, Site},
    cli_support::{Context, Ran},
    fake::{FakeHost, FakeNet, Said},
};

const REST: &str = "network: {plugin: flannel}\ningress: {provider: none}\nmonitoring: {provider: none}\n\
                    services: {etcd: {snapshot: false}}\n";

/// The real one.
fn real_ssh() -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut files = env::split_paths(&path).map(|folder| folder.join("ssh"));
    files
        .find(|file| file.is_file())
        .expect("this test needs ssh of the package openssh-client")
}

/// In the `PATH` is an `ssh` that reads this configuration: the real one looks for it in the home that /etc/passwd names.
fn configured(context: &Context, config: &str) {
    let (file, ssh) = (context.path("ssh_config"), context.path("bin/ssh"));
    fs::create_dir_all(context.path("bin")).unwrap();
    fs::write(&file, config).unwrap();
    let script = format!(
        "#!/bin/sh\nexec '{}' -F '{}' \"$@\"\n",
        real_ssh().display(),
        file.display()
    );
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
}

async fn run(site: &Site, args: &[&str]) -> Ran {
    let mut command = site.context.command(args);
    command.env("PATH", site.context.path("bin"));
    let output = tokio::process::Command::from(command).output().await;
    Ran::from(&site.context, output.unwrap())
}

/// A node that only its alias names.
async fn aliased() -> Site {
    let site = Site::new().await;
    fs::rename(
        site.context.path("home/.ssh/id_rsa"),
        site.context.path("home/.ssh/deploy"),
    )
    .unwrap();
    let config = format!(
        "Host node-a\n  HostName 127.0.0.1\n  Port {}\n  User rke\n  IdentityFile ~/.ssh/deploy\n  \
         HostKeyAlias the-node\n  UserKnownHostsFile {}\n",
        site.port,
        site.context.path("keys").display()
    );
    configured(&site.context, &config);
    site.context
        .write("keys", &format!("the-node {}\n", site.node.host_key()));
    site.context.write("home/.ssh/known_hosts", "");
    site.context.write(
        "cluster.yml",
        &format!("nodes: [{{address: node-a}}]\n{REST}"),
    );
    site.node.docker().has_every_image = Some(1);
    site
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_found_by_its_alias() {
    let site = aliased().await;
    let ran = run(&site, &["doctor", "--no-write", "-o", "json"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let node = &told["nodes"][0];
    assert_eq!(node["name"], "node-a", "{told}");
    assert_eq!(
        node["sshConfig"],
        json!({
            "HostKeyAlias": "the-node",
            "HostName": "127.0.0.1",
            "IdentityFile": "~/.ssh/deploy",
            "Port": site.port.to_string(),
            "User": "rke",
            "UserKnownHostsFile": "[DIR]/keys",
        }),
        "{told}"
    );
    let ran = run(&site, &["doctor", "--no-write"]).await;
    assert!(
        ran.stdout
            .contains("from the SSH config (`~/.ssh/config`)\n  - node-a: HostKeyAlias the-node,"),
        "{ran}"
    );
    let ran = run(&site, &["--debug", "plan"]).await;
    assert!(ran.stderr.contains("from the SSH config"), "{ran}");
    // Commands that open their environment before they read the config look host keys up there, too.
    for command in [&["plan"][..], &["plan", "--remove"], &["status"]] {
        let ran = run(&site, command).await;
        assert!(!ran.stderr.contains("host key"), "{command:?}: {ran}");
    }

    // What the config names wins: it is another user, who may not log in.
    let yaml = format!("nodes: [{{address: node-a, user: other}}]\n{REST}");
    site.context.write("cluster.yml", &yaml);
    let ran = run(&site, &["plan"]).await;
    assert!(ran.stderr.contains("refuses the login of `other`"), "{ran}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_can_be_switched_off() {
    let site = aliased().await;
    let switched_off = |ran: &Ran| {
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains("a node needs a user"), "{ran}");
    };
    switched_off(&run(&site, &["plan", "--no-ssh-config"]).await);
    // Without `ssh` in the `PATH`.
    switched_off(&site.run(&["plan"]).await);
    let mut command = site.context.command(&["plan"]);
    command
        .env("PATH", site.context.path("bin"))
        .env("RKE_OPERATOR_NO_SSH_CONFIG", "1");
    let output = tokio::process::Command::from(command).output().await;
    switched_off(&Ran::from(&site.context, output.unwrap()));
}

/// A failure of `ssh -G` is a warning: the config counts alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_configuration_is_a_warning() {
    let site = Site::new().await;
    site.node.docker().has_every_image = Some(1);
    configured(&site.context, "Host *\n  NoSuchKeyword yes\n");
    let ran = run(&site, &["plan"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stdout.contains("kube-apiserver"), "{ran}");
    for words in [
        "warning: the SSH config is not used: `ssh -G` failed",
        "nosuchkeyword",
        "`--no-ssh-config` does without it",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {ran}");
    }
    let ran = run(&site, &["validate", "-o", "json"]).await;
    let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let message = told["warnings"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("the SSH config is not used"), "{told}");
}

/// Each node has its own way there; a bastion's own part of the configuration says how it is reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_reached_by_proxy_jump() {
    let site = Site::new().await;
    let node = FakeHost::new();
    node.on_exec("@@hostname", |_| Said::out(SYSTEM));
    node.docker().has_every_image = Some(1);
    let inside = FakeHost::endpoint();
    site.node
        .leads_to(FakeNet([(inside.clone(), node.clone())].into()));
    let config = format!(
        "Host inside\n  HostName {}\n  ProxyJump gate\nHost gate\n  HostName 127.0.0.1\n  Port {}\n\
         Host *\n  User rke\n",
        inside.address, site.port
    );
    configured(&site.context, &config);
    let known = fs::read_to_string(site.context.path("home/.ssh/known_hosts")).unwrap();
    let both = known + &node.known_hosts(&inside);
    site.context.write("home/.ssh/known_hosts", &both);
    site.context.write(
        "cluster.yml",
        &format!("nodes: [{{address: inside}}]\n{REST}"),
    );
    let ran = run(&site, &["doctor", "--no-write", "-o", "json"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let gate = Endpoint {
        address: "127.0.0.1".to_owned(),
        port: site.port,
    };
    assert_eq!(
        told["nodes"][0]["bastions"],
        json!([gate.to_string()]),
        "{told}"
    );
    assert_eq!(told["nodes"][0]["address"], inside.address, "{told}");
    let port = site.port.to_string();
    assert_eq!(
        told["nodes"][0]["bastionSshConfig"],
        json!({gate.to_string(): {"HostName": "127.0.0.1", "Port": port, "User": "rke"}}),
        "{told}"
    );
    let shown = run(&site, &["doctor", "--no-write"]).await;
    let line = format!("  - bastion host {gate}: HostName 127.0.0.1, Port {port}, User rke");
    assert!(shown.stdout.contains(&line), "{shown}");
    assert_eq!(site.node.asked(), 0, "nothing is asked of the bastion");
    assert_eq!((site.node.connections(), node.connections()), (2, 2));
}

/// A node behind a bastion host, both at IPv6 addresses, as the config has them or as the SSH config does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_and_bastions_have_ipv6_addresses() {
    let site = Site::new().await;
    site.node.docker().has_every_image = Some(1);
    let port = site.node.listen_at("[::1]:0".parse().unwrap()).await.port();
    let gate = FakeHost::new();
    let there = Endpoint {
        address: "::1".to_owned(),
        port,
    };
    let gate_port = gate.listen_at("[::1]:0".parse().unwrap()).await.port();
    let gate_at = Endpoint {
        address: "::1".to_owned(),
        port: gate_port,
    };
    gate.leads_to(FakeNet([(there.clone(), site.node.clone())].into()));
    assert_eq!(there.to_string(), format!("[::1]:{port}"));
    let known = site.node.known_hosts(&there) + &gate.known_hosts(&gate_at);
    site.context.write("home/.ssh/known_hosts", &known);
    configured(
        &site.context,
        &format!(
            "Host node_a.\n  HostName ::1\n  Port {port}\n  ProxyJump rke@[::1]:{gate_port}\nHost *\n  User rke\n"
        ),
    );
    let node = "internal_address: 10.0.0.1, hostname_override: n1, user: rke";
    let key = "ssh_key_path: ~/.ssh/id_rsa\n";
    for (yaml, bastions) in [
        (
            format!("nodes: [{{address: '::1', port: {port}, {node}}}]\n"),
            json!([]),
        ),
        (
            format!("nodes: [{{address: '[0::1]', port: {port}, {node}}}]\n"),
            json!([]),
        ),
        (
            format!(
                "nodes: [{{address: '::1', port: {port}, {node}}}]\n\
                 bastion_host: [{{address: '[::1]', port: {gate_port}, user: rke}}]\n"
            ),
            json!([gate_at.to_string()]),
        ),
        (
            format!("nodes: [{{address: node_a., {node}}}]\n"),
            json!([gate_at.to_string()]),
        ),
    ] {
        site.context
            .write("cluster.yml", &format!("{yaml}{key}{REST}"));
        let ran = run(&site, &["doctor", "--no-write", "-o", "json"]).await;
        assert!(!ran.stderr.contains("host key"), "{ran}");
        let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let node = &told["nodes"][0];
        assert_eq!(node["reachable"], true, "{yaml}: {ran}");
        assert_eq!(node["address"], there.to_string(), "{yaml}");
        assert_eq!(node["bastions"], bastions, "{yaml}");
    }
}

/// The node is behind a machine that is not known: nothing is dialled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_unusable_on_the_way_is_an_error() {
    let site = Site::new().await;
    for (config, words) in [
        (
            "Host *\n  ProxyJump gate-%C\n",
            "the SSH config has no usable `ProxyJump` for it, and it is not dialled directly",
        ),
        (
            "Host *\n  HostName a..b\n",
            "the SSH config has no usable `HostName` for it",
        ),
        (
            "Host *\n  ProxyCommand ssh -W %h:%p gate\n",
            "`ProxyCommand` of the SSH config leads through another machine and is not used",
        ),
        // One of the machines on the way is not known.
        (
            "Match host gate exec \"exit 1\"\nHost 127.0.0.1\n  ProxyJump gate\nHost gate\n  HostName a..b\n",
            "`ProxyJump` of the SSH config names a machine that cannot be dialled",
        ),
    ] {
        configured(&site.context, config);
        let ran = run(&site, &["plan"]).await;
        assert_eq!(ran.code, Some(1), "{config}: {ran}");
        assert!(ran.stderr.contains(words), "{config}: {ran}");
    }
    assert_eq!(site.node.connections(), 0);
    let ran = run(&site, &["plan", "--no-ssh-config"]).await;
    assert!(site.node.connections() > 0, "{ran}");
}

/// Of 300 nodes that the same patterns fit one is asked about; each has what `ssh` would use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_nodes_are_asked_about_at_once() {
    let site = Site::new().await;
    let asked = |site: &Site| {
        let file = site.context.path("asked");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let _ = fs::remove_file(file);
        text.lines().count()
    };
    let counted = |config: &str| {
        configured(&site.context, config);
        let (ssh, count) = (site.context.path("bin/ssh"), site.context.path("asked"));
        let script = fs::read_to_string(&ssh).unwrap();
        let script = script.replace("exec", &format!("echo >> '{}'\nexec", count.display()));
        fs::write(&ssh, script).unwrap();
    };
    let nodes: Vec<String> = (0..250)
        .map(|number| {
            let (address, role) = match number {
                0 => ("n0".to_owned(), "[controlplane, etcd]"),
                1..100 => (format!("10.0.1.{number}"), "[worker]"),
                _ => (format!("n{number}"), "[worker]"),
            };
            format!("  - {{address: {address}, role: {role}}}\n")
        })
        .collect();
    site.context.write(
        "cluster.yml",
        &format!(
            "nodes:\n{}ssh_key_path: ~/.ssh/id_rsa\n{REST}",
            nodes.concat()
        ),
    );
    let patterns = "Host n12?\n  User other\nHost gate\n  ProxyJump none\nHost *\n  User rke\n  ProxyJump gate\n";
    counted(patterns);
    let ran = run(&site, &["--debug", "validate"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    // `ssh -F /dev/null`, the files, those in 10.0.1.0/24 and n0 to n249, n120 to n129, and the bastion host.
    assert!(asked(&site) <= 6, "{ran}");
    let said = |node: &str| {
        let mut lines = ran.stderr.lines();
        let start = format!("node={node} values=");
        let line = lines.find(|line| line.contains(&start));
        line.unwrap_or_else(|| panic!("{node}: {ran}")).to_owned()
    };
    assert!(said("n125").contains("\"User\": \"other\""), "{ran}");
    assert!(said("n135").contains("\"User\": \"rke\""), "{ran}");
    assert!(
        said("10.0.1.7").contains("\"ProxyJump\": \"gate\""),
        "{ran}"
    );
    assert!(!said("10.0.1.7").contains("HostName"), "{ran}");

    // What a program decides may differ for each.
    counted(&format!(
        "Match exec \"test %h = n5\"\n  Port 24\n{patterns}"
    ));
    let ran = run(&site, &["validate"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(asked(&site) > 250);
}

/// The node would be dialled directly, which is as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_command_is_a_warning() {
    let site = Site::new().await;
    configured(&site.context, "Host *\n  ProxyCommand nc %h %p\n");
    let ran = run(&site, &["plan"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    for words in [
        "`ProxyCommand` of the SSH config is not used: this machine is dialled directly",
        "write `ProxyJump HOST` in the SSH config, or `bastion_host` here",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {ran}");
    }
}

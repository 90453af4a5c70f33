//! Bad configs, end to end: each is an error that names its line and the cure, exits 1, and
//! changes nothing: no node is dialled, no file written.

use crate::cli_support::Context;

/// A config that is right, for an address where nobody is.
const GOOD: &str = "\
nodes:
  - address: 127.0.0.1
    port: 1
    user: ubuntu
    role: [controlplane, etcd, worker]
network: {plugin: flannel}
ingress: {provider: none}
monitoring: {provider: none}
";

/// Name, what is replaced in [`GOOD`], by what, and what the error must say.
type Case = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

const CASES: &[Case] = &[
    (
        "YAML that does not parse",
        "nodes:",
        "nodes: [",
        &["cluster.yml:"],
    ),
    (
        "a tab",
        "    port: 1",
        "\tport: 1",
        &["cluster.yml:2", "found a tab"],
    ),
    (
        "an unknown key",
        "    port: 1",
        "    prot: 1",
        &["cluster.yml:3", "`port`"],
    ),
    (
        "a duplicate key",
        "    port: 1",
        "    port: 1\n    port: 2",
        &["cluster.yml:4", "port"],
    ),
    (
        "a wrong type",
        "port: 1",
        "port: abc",
        &["cluster.yml:3", "nodes[0].port"],
    ),
    (
        "a port out of range",
        "port: 1",
        "port: 70000",
        &["cluster.yml:3", "nodes[0].port"],
    ),
    (
        "an unknown role",
        "[controlplane, etcd, worker]",
        "[controlplane, etcd, wroker]",
        &["cluster.yml:5", "nodes[0].role", "worker"],
    ),
    (
        "no etcd",
        "[controlplane, etcd, worker]",
        "[controlplane, worker]",
        &["etcd"],
    ),
    ("no nodes", GOOD, "cluster_name: x\n", &["nodes"]),
    (
        "an unknown version",
        "ingress:",
        "kubernetes_version: v1.99.0\ningress:",
        &["cluster.yml:7", "kubernetes_version"],
    ),
    (
        "a bad range",
        "ingress:",
        "services: {kube-controller: {cluster_cidr: 10.42.0.0/99}}\ningress:",
        &["cluster.yml:7", "cluster_cidr"],
    ),
    (
        "a DNS address outside the service range",
        "ingress:",
        "services: {kubelet: {cluster_dns_server: 192.168.1.1}}\ningress:",
        &["cluster.yml:7", "cluster_dns_server"],
    ),
    (
        "a plugin that no release has",
        "network: {plugin: flannel}\n",
        "network: {plugin: weave}\n",
        &["cluster.yml:", "network.plugin", "canal"],
    ),
    (
        "a manifest with an object of an add-on",
        "ingress:",
        "addons: |\n  apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: coredns, namespace: kube-system}\ningress:",
        &["`addons`", "ConfigMap `kube-system/coredns`", "hint: "],
    ),
];

#[test]
fn a_bad_config_names_line_and_cure_and_changes_nothing() {
    for (name, from, to, says) in CASES {
        assert!(
            GOOD.contains(from),
            "{name}: the good config has no {from:?}"
        );
        let context = Context::with(&GOOD.replacen(from, to, 1));
        let before = context.files();
        for command in [
            &["validate"][..],
            &["up", "--yes"],
            &["plan"],
            &["remove", "--force"],
        ] {
            let ran = context.run(command);
            assert_eq!(ran.code, Some(1), "{name}: {ran}");
            assert_eq!(ran.stdout, "", "{name}");
            assert!(ran.stderr.contains("error: "), "{name}: {ran}");
            for word in *says {
                assert!(
                    ran.stderr.contains(word),
                    "{name} does not say {word:?}: {ran}"
                );
            }
        }
        assert_eq!(context.files(), before, "{name}: a file changed");
    }
}

/// As OpenSSH does, which then does not use it.
#[test]
fn a_key_that_others_may_read_is_a_warning() {
    let context = Context::with(&GOOD.replace("ingress:", "ssh_key_path: ~/.ssh/id_rsa\ningress:"));
    for (mode, told) in [(0o600, false), (0o400, false), (0o644, true), (0o660, true)] {
        context.mode("home/.ssh/id_rsa", mode);
        let ran = context.run(&["validate"]);
        assert_eq!(ran.code, Some(0), "{ran}");
        let words = "other users of this machine may read this private key";
        assert_eq!(ran.stderr.contains(words), told, "{mode:o}: {ran}");
        assert_eq!(ran.stderr.contains("`chmod 600 "), told, "{ran}");
    }
}

/// `validate` logs in nowhere, and needs no key.
#[test]
fn a_key_that_cannot_be_used_is_a_warning_of_validate_and_an_error_elsewhere() {
    const LOCKED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n";
    let missing = GOOD.replace("ingress:", "ssh_key_path: ~/.ssh/nowhere\ningress:");
    let locked = GOOD.replace("ingress:", "ssh_key_path: ~/.ssh/locked\ningress:");
    for (config, default, message) in [
        (
            missing.as_str(),
            None,
            "the private key file does not exist",
        ),
        (locked.as_str(), None, "this private key has a passphrase"),
        (GOOD, None, "there is no `~/.ssh/id_rsa`"),
        (GOOD, Some(LOCKED), "this private key has a passphrase"),
    ] {
        let context = Context::new();
        context.write("cluster.yml", config);
        context.write("home/.ssh/locked", LOCKED);
        if let Some(key) = default {
            context.write("home/.ssh/id_rsa", key);
        }
        let ran = context.run(&["validate", "-o", "json"]);
        assert_eq!(ran.code, Some(0), "{message}: {ran}");
        assert_eq!(
            ran.stderr.matches("warning: `ssh_key_path`").count(),
            1,
            "{ran}"
        );
        let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let mut warnings = told["warnings"].as_array().unwrap().iter();
        let warning = warnings.find(|warning| warning["path"] == "ssh_key_path");
        let warning = warning.unwrap();
        assert!(
            warning["message"].as_str().unwrap().contains(message),
            "{ran}"
        );
        for command in [&["validate", "--connect"][..], &["plan"]] {
            let ran = context.run(command);
            assert_eq!(ran.code, Some(1), "{message}: {ran}");
            assert!(ran.stderr.contains("error: `ssh_key_path`"), "{ran}");
            assert!(ran.stderr.contains(message), "{ran}");
        }
    }
    // What is wrong with the file itself remains an error.
    let context = Context::with(&missing);
    context.write("home/.ssh/nowhere", "no key\n");
    let ran = context.run(&["validate"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("this is not a private key"), "{ran}");
}

#[test]
fn a_file_without_an_end_is_refused_before_it_fills_the_memory() {
    let context = Context::with(GOOD);
    let ran = context.run(&["plan", "--config", "/dev/zero"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("larger than 1 MiB"), "{ran}");
    let bad = GOOD.replace("    port: 1", "    ssh_key_path: /dev/zero");
    let ran = Context::with(&bad).run(&["plan"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("this is not a private key"), "{ran}");
}

#[test]
fn secrets_and_control_characters_of_a_config_stay_off_the_terminal() {
    let bad = format!(
        "{GOOD}private_registries: [{{user: me, password: hunter2, \"a\\e[31m\": b}}]\n\"x\\e[2J\": hunter2\n"
    );
    let ran = Context::with(&bad).run(&["plan"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(!ran.stderr.contains("hunter2"), "{ran}");
    assert!(!ran.stderr.contains('\u{1b}'), "{ran}");
    let ran = Context::with(&bad).run(&["plan", "-o", "json"]);
    assert!(!ran.stdout.contains("hunter2"), "{ran}");
    assert!(
        !ran.stdout.contains('\u{1b}') && !ran.stdout.contains("\\u001b"),
        "{ran}"
    );
}

#[test]
fn all_problems_are_told_at_once_and_counted() {
    let bad = GOOD
        .replace("port: 1", "port: abc")
        .replace("user:", "usr:");
    let ran = Context::with(&bad).run(&["plan"]);
    assert!(ran.stderr.contains("nodes[0].port"), "{ran}");
    assert!(ran.stderr.contains("nodes[0].usr"), "{ran}");
    assert!(
        ran.stderr.contains("problems; nothing was changed"),
        "{ran}"
    );
}

#[test]
fn programs_get_the_error_as_the_last_object() {
    let ran = Context::with(&GOOD.replace("port: 1", "port: abc")).run(&["up", "-o", "json"]);
    assert_eq!(ran.code, Some(1));
    let last: serde_json::Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "ended");
    assert_eq!(last["result"], "failed");
    assert_eq!(last["class"], "user");
}

#[test]
fn a_node_that_does_not_answer_is_named_and_worth_another_try() {
    let ran = Context::with(GOOD).run(&["plan"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains("127.0.0.1"), "{ran}");
    assert!(ran.stderr.contains("hint: "), "{ran}");
}

#[test]
fn a_removal_without_a_terminal_wants_force() {
    let ran = Context::with(GOOD).run(&["remove"]);
    insta::assert_snapshot!(ran, @r"
    exit code 1
    ----- stderr -----
    error: cannot ask for confirmation: stdin is not a terminal

    hint: use `--force` to remove without confirmation
    ");
}

//! Ways to the nodes: users, keys, certificates, agents, a bastion host; and the shortest file.

#![expect(clippy::disallowed_methods, reason = "ssh-keygen writes files")]

use std::{path::PathBuf, process::Command};

use insta::assert_snapshot;

use super::tests::{Files, GOOD, bad, bad_with, good, good_with};
use crate::{
    config::{
        Agent, Bastion, Credential, Intent, RkeConfig, SSH_AGENT, SecretSources, means_the_same,
        portable,
    },
    model::{NodeName, Role},
};

const REST: &str = "network: {plugin: flannel}\ningress: {provider: none}\n";

fn with_agent() -> Files {
    Files {
        agent: Some(PathBuf::from("/run/agent")),
        ..Files::new()
    }
}

#[test]
fn the_shortest_file() {
    let intent = good(&format!("nodes: [{{address: 192.0.2.10}}]\n{REST}")).intent;
    let node = &intent.nodes[&NodeName::from("192.0.2.10")];
    assert_eq!(node.login.user, "me", "who runs this, as with ssh");
    assert_eq!(node.login.key_source, "~/.ssh/id_rsa");
    assert_eq!(
        node.roles,
        [Role::Etcd, Role::ControlPlane, Role::Worker].into()
    );
    assert!(intent.bastions().is_empty());
}

#[test]
fn several_nodes_without_a_role_are_refused() {
    let yaml = format!(
        "nodes: [{{address: 192.0.2.10, role: [etcd, controlplane, worker]}}, {{address: 192.0.2.11}}]\n{REST}"
    );
    assert_snapshot!(bad(&yaml), @"
    `nodes[1].role` (line 1): a node needs a role
      write `role: [controlplane, etcd, worker]`
    ");
}

#[test]
fn an_agent_logs_in_to_every_node_and_the_bastion() {
    let yaml = format!(
        "{GOOD}ssh_agent_auth: true\nssh_key_path: missing\nbastion_host: {{address: 203.0.113.1}}\n"
    );
    let intent = good_with(&yaml, &with_agent()).intent;
    let agent = Credential::Agent(Agent {
        socket: "/run/agent".into(),
        named: Vec::new(),
        only_named: false,
    });
    let [bastion] = intent.bastions()[..] else {
        panic!("a bastion");
    };
    for login in [
        &intent.nodes[&NodeName::from("192.0.2.10")].login,
        &bastion.login,
    ] {
        assert_eq!(login.credential, agent);
        assert_eq!(login.key_source, SSH_AGENT);
    }
}

/// As RKE: `SSH_AUTH_SOCK` is empty, so the keys count.
#[test]
fn without_an_agent_keys_are_used_and_one_warning_says_so() {
    let yaml = format!("{GOOD}ssh_agent_auth: yes\nbastion_host: {{address: 203.0.113.1}}\n");
    let resolved = good(&yaml);
    let warnings: Vec<_> = resolved.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["`ssh_agent_auth` (line 8): there is no SSH agent: key files are used"]
    );
    let login = &resolved.intent.nodes[&NodeName::from("192.0.2.10")].login;
    assert_eq!(login.key_source, "~/.ssh/id_rsa");
}

/// RKE overwrites it with the top level's.
#[test]
fn a_nodes_own_word_about_the_agent_counts_for_nothing() {
    let yaml = GOOD.replace("user: ubuntu", "user: ubuntu\n    ssh_agent_auth: true");
    let resolved = good_with(&yaml, &with_agent());
    let login = &resolved.intent.nodes[&NodeName::from("192.0.2.10")].login;
    assert_eq!(login.key_source, "~/.ssh/id_rsa");
    assert_eq!(resolved.warnings.len(), 1);
}

#[test]
fn a_bastion_with_all_its_keys() {
    let yaml = format!(
        "{GOOD}bastion_host: {{address: jump.example.com, port: \"2222\", user: jumper, ssh_key_path: other, ignore_proxy_env_vars: true}}\n"
    );
    let intent = good(&yaml).intent;
    let [
        Bastion {
            endpoint, login, ..
        },
    ] = intent.bastions()[..]
    else {
        panic!("a bastion");
    };
    assert_eq!(endpoint.to_string(), "[jump.example.com]:2222");
    assert_eq!(
        (login.user.as_str(), login.key_source.as_str()),
        ("jumper", "other")
    );
}

#[test]
fn a_bastion_that_is_reached_through_others() {
    let yaml = format!(
        "{GOOD}bastion_host: {{address: 10.0.0.1, user: b, through: [{{address: gate.example.com, port: 2222, user: a, ssh_key_path: other}}]}}\n"
    );
    let intent = good(&yaml).intent;
    let way: Vec<_> = intent
        .bastions()
        .into_iter()
        .map(
            |Bastion {
                 endpoint, login, ..
             }| { format!("{}@{endpoint} {}", login.user, login.key_source) },
        )
        .collect();
    assert_eq!(
        way,
        [
            "a@[gate.example.com]:2222 other",
            "b@10.0.0.1 ~/.ssh/id_rsa"
        ]
    );
    let yaml = format!(
        "{GOOD}bastion_host: {{address: 10.0.0.1, user: b, through: [{{user: a, port: x}}, gate, null, {{address: 10.0.0.2, through: []}}]}}\n"
    );
    assert_snapshot!(bad(&yaml), @"
    `bastion_host.through[0].address` (line 8): each bastion host needs an `address`
    `bastion_host.through[0].port` (line 8): must be a port, 1 to 65535 | x
    `bastion_host.through[1]` (line 8): must be a mapping, not a single value
      write `bastion_host.through[1]: {address: …}`, with the value there
    `bastion_host.through[2]` (line 8): this bastion host is empty
      each needs an `address`, or remove the `-`
    `bastion_host.through[3].through` (line 8): unknown key
      remove it: RKE has no such key, and ignores it
    ");
}

/// The same as a list, in the order in which they are dialled.
#[test]
fn bastions_may_be_a_list() {
    let machines = [
        "{address: gate.example.com, port: 2222, user: a, ssh_key_path: other}",
        "{address: 'fd00::1', user: c}",
        "{address: 10.0.0.1, user: b}",
    ];
    let list = format!("{GOOD}bastion_host: [{}]\n", machines.join(", "));
    let last = machines[2].replace('}', ", through: ");
    let map = format!(
        "{GOOD}bastion_host: {last}[{}]}}\n",
        machines[..2].join(", ")
    );
    let (list, map) = (good(&list).intent, good(&map).intent);
    let way: Vec<_> = list
        .bastions()
        .into_iter()
        .map(|bastion| bastion.endpoint.to_string())
        .collect();
    assert_eq!(way, ["[gate.example.com]:2222", "fd00::1", "10.0.0.1"]);
    // Each reading makes keys that differ.
    let ways = [&list, &map].map(|intent| {
        let bastions = intent.bastions().into_iter();
        let way = bastions.map(|bastion| {
            let login = &bastion.login;
            (
                bastion.endpoint.clone(),
                login.user.clone(),
                login.key_source.clone(),
            )
        });
        way.collect::<Vec<_>>()
    });
    assert_eq!(ways[0], ways[1]);
    let one = good(&format!("{GOOD}bastion_host: [{}]\n", machines[2])).intent;
    assert_eq!(one.bastions().len(), 1);
    let none = good(&format!("{GOOD}bastion_host: []\n")).intent;
    assert!(none.bastions().is_empty());
    let yaml = format!(
        "{GOOD}bastion_host: [{{user: a, port: x}}, gate, null, {{address: 10.0.0.2, through: [], ssh_agent_auth: maybe}}]\n"
    );
    assert_snapshot!(bad(&yaml), @"
    `bastion_host[0].address` (line 8): each bastion host needs an `address`
    `bastion_host[0].port` (line 8): must be a port, 1 to 65535 | x
    `bastion_host[1]` (line 8): must be a mapping, not a single value
      write `bastion_host[1]: {address: …}`, with the value there
    `bastion_host[2]` (line 8): this bastion host is empty
      each needs an `address`, or remove the `-`
    `bastion_host[3].through` (line 8): unknown key
      remove it: RKE has no such key, and ignores it
    `bastion_host[3].ssh_agent_auth` (line 8): must be `true` or `false` | maybe
    ");
}

/// An object has no list.
#[test]
fn a_list_of_bastions_is_portable() {
    let yaml =
        format!("{GOOD}bastion_host: [{{address: gate, user: a}}, {{address: inner, user: b}}]\n");
    let files = Files::new();
    let config = RkeConfig::parse(&yaml).expect("YAML");
    let intent = good(&yaml).intent;
    let document = portable(&config, &intent, &files).expect("a document");
    assert_eq!(
        document["bastion_host"],
        serde_json::json!({"address": "inner", "user": "b", "through": [{"address": "gate", "user": "a"}]})
    );
    let there = RkeConfig::from_json(&document).expect("a config");
    let there = Intent::from_config(&there, &Files::new())
        .expect("an intent")
        .intent;
    assert!(means_the_same(&intent, &there));
}

/// As `rke config` writes it.
#[test]
fn a_bastion_without_an_address_is_none() {
    let yaml = format!(
        "{GOOD}bastion_host: {{address: \"\", port: \"\", user: \"\", ssh_key: \"\", ssh_key_path: \"\", ssh_cert: \"\", ssh_cert_path: \"\", ignore_proxy_env_vars: false}}\n"
    );
    assert!(good(&yaml).intent.bastions().is_empty());
    let null = good(&format!("{GOOD}bastion_host: null\n")).intent;
    assert!(null.bastions().is_empty());
}

#[test]
fn a_bastion_that_is_wrong() {
    let yaml = format!("{GOOD}bastion_host: {{user: jumper}}\n");
    let resolved = good(&yaml);
    assert!(resolved.intent.bastions().is_empty());
    assert_snapshot!(resolved.warnings[0], @"`bastion_host` (line 8): has no effect without an `address`, as in RKE: the nodes are dialled directly");
    let yaml = format!(
        "{GOOD}bastion_host: {{address: \"me@jump\", port: 0, ssh_key_path: missing, host: a}}\n"
    );
    assert_snapshot!(bad(&yaml), @"
    `bastion_host.address` (line 8): is neither a host name nor an IP address | me@jump
      write the user in `user`
    `bastion_host.port` (line 8): must be a port, 1 to 65535 | 0
    `bastion_host.ssh_key_path` (line 8): the private key file does not exist | missing: No such file or directory
    `bastion_host.host` (line 8): unknown key
      write it as `address`
    ");
}

/// Keys and agents of a person are not the operator's.
#[test]
fn the_operator_has_a_secret_and_nothing_else() {
    let yaml = format!(
        "{GOOD}ssh_agent_auth: true\nssh_cert_path: cert\nbastion_host: {{address: 203.0.113.1, ssh_agent_auth: true}}\n"
    )
    .replace("    user: ubuntu\n", "");
    let sources = SecretSources::new("ssh-key", super::tests::pem().into());
    let config = RkeConfig::parse(&yaml).expect("YAML");
    let problems = Intent::from_config(&config, &sources).expect_err("problems");
    let lines: Vec<_> = problems
        .iter()
        .map(|problem| match &problem.hint {
            Some(hint) => format!("{problem}; {hint}"),
            None => problem.to_string(),
        })
        .collect();
    assert_snapshot!(lines.join("\n"), @"
    `nodes[0].user` (line 2): a node needs a user to log in as
    `ssh_agent_auth` (line 7): the operator has no SSH agent; remove it: the key in the Secret of `spec.ssh.keySecretRef` logs in
    `ssh_cert_path` (line 8): a `Cluster` object cannot name a file; write the certificate itself into `ssh_cert`
    `bastion_host.user` (line 9): the bastion host needs a user to log in as
    ");
}

/// A key, its certificate, and one of another key.
fn certified() -> Files {
    certified_for(&[])
}

/// `options`: of the certificate.
fn certified_for(options: &[&str]) -> Files {
    let folder = tempfile::tempdir().expect("a folder");
    let keygen = |arguments: &[&str]| {
        let made = Command::new("ssh-keygen")
            .current_dir(folder.path())
            .arg("-q")
            .args(arguments)
            .status()
            .expect("this test needs ssh-keygen of the package openssh-client");
        assert!(made.success(), "{arguments:?}");
    };
    keygen(&["-t", "ed25519", "-N", "", "-f", "ca"]);
    keygen(&["-t", "ed25519", "-N", "", "-f", "key"]);
    let sign = ["-s", "ca", "-I", "me", "-n", "ubuntu"];
    keygen(&[&sign, options, &["key.pub"]].concat());
    let read = |name| std::fs::read_to_string(folder.path().join(name)).expect("a file");
    Files {
        pem: read("key"),
        certificate: read("key-cert.pub"),
        ..Files::new()
    }
}

#[test]
fn a_certificate_goes_with_its_key() {
    let files = certified();
    for (key, source) in [
        ("ssh_cert_path: cert".to_owned(), "cert"),
        (
            format!("ssh_cert: \"{}\"", files.certificate.trim()),
            "ssh_cert",
        ),
    ] {
        let yaml = GOOD.replace("user: ubuntu", &format!("user: ubuntu\n    {key}"));
        let intent = good_with(&yaml, &files).intent;
        let login = &intent.nodes[&NodeName::from("192.0.2.10")].login;
        assert_eq!(
            login.credential.certificate_source().as_deref(),
            Some(source)
        );
    }
    let yaml = format!("{GOOD}ssh_cert_path: cert\n");
    let intent = good_with(&yaml, &files).intent;
    let login = &intent.nodes[&NodeName::from("192.0.2.10")].login;
    assert_eq!(
        login.credential.certificate_source().as_deref(),
        Some("cert")
    );
}

/// As OpenSSH: `FILE-cert.pub`.
#[test]
fn a_certificate_next_to_a_key_goes_with_it() {
    let next_to = |files: Files| Files {
        is_adjacent: true,
        now: Some("2030-01-01T00:00:00Z".parse().expect("a time")),
        ..files
    };
    let source = |files: &Files, yaml: &str| {
        let resolved = good_with(yaml, files);
        let login = &resolved.intent.nodes[&NodeName::from("192.0.2.10")].login;
        let source = login.credential.certificate_source();
        let told = resolved.warnings.iter().map(|warning| {
            let hint = warning.hint.as_deref().unwrap_or_default();
            format!(
                "{warning} | {}\n  {hint}",
                warning.detail.as_deref().unwrap_or_default()
            )
        });
        (source, told.collect::<Vec<_>>().join("\n"))
    };
    let own = next_to(certified());
    let named = GOOD.replace("user: ubuntu", "user: ubuntu\n    ssh_key_path: key");
    assert_eq!(
        source(&own, GOOD),
        (Some("~/.ssh/id_rsa-cert.pub".to_owned()), String::new())
    );
    assert_eq!(
        source(&own, &named),
        (Some("key-cert.pub".to_owned()), String::new())
    );
    // What is named wins.
    let explicit = format!("{GOOD}ssh_cert_path: cert\n");
    assert_eq!(source(&own, &explicit).0.as_deref(), Some("cert"));
    // A key in the config is in no file.
    let pem = own.pem.lines().collect::<Vec<_>>().join("\n      ");
    let inline = GOOD.replace(
        "user: ubuntu",
        &format!("user: ubuntu\n    ssh_key: |-\n      {pem}"),
    );
    assert_eq!(source(&own, &inline), (None, String::new()));
    let other = Files {
        pem: super::tests::pem(),
        ..next_to(certified())
    };
    let (none, told) = source(&other, GOOD);
    assert_eq!(none, None);
    assert_snapshot!(told, @"
    `ssh_key_path`: the certificate next to the key is not used: this certificate does not match the key that logs in | ~/.ssh/id_rsa-cert.pub
      `ssh-keygen -L -f /home/me/~/.ssh/id_rsa-cert.pub` shows whose it is
    ");
    let late = |files: Files| Files {
        now: Some("2200-01-01T00:00:00Z".parse().expect("a time")),
        ..files
    };
    let short = || next_to(certified_for(&["-V", "20260101:20300101"]));
    let (none, told) = source(&late(short()), &named);
    assert_eq!(none, None);
    assert_snapshot!(told, @"
    `nodes[0].ssh_key_path` (line 4): the certificate next to the key is not used: this certificate has expired | key-cert.pub
      `ssh-keygen -L -f /home/me/key-cert.pub` shows its validity; let the authority sign the key again (`ssh-keygen -s`)
    ");
    // What is named is used, because the clock of the node counts.
    let (used, told) = source(&late(short()), &explicit);
    assert_eq!(used.as_deref(), Some("cert"));
    assert_snapshot!(told, @"
    `ssh_cert_path` (line 8): this certificate has expired | 
      `ssh-keygen -L -f /home/me/cert` shows its validity; let the authority sign the key again (`ssh-keygen -s`)
    ");
}

/// The file of a key is named in the commands that help.
#[test]
fn a_key_that_cannot_be_used_has_a_cure_with_its_file() {
    let encrypted = |info: &str| {
        format!(
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: {info}\n\nAAAA\n-----END EC PRIVATE KEY-----\n"
        )
    };
    let told = [
        encrypted("AES-128-CBC,00112233445566778899AABBCCDDEEFF"),
        encrypted("DES-CBC,0011223344556677"),
        "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n".to_owned(),
        "-----BEGIN DSA PRIVATE KEY-----\nAAAA\n-----END DSA PRIVATE KEY-----\n".to_owned(),
        "PuTTY-User-Key-File-3: ssh-ed25519\n".to_owned(),
    ]
    .map(|pem| {
        let files = Files {
            pem,
            ..Files::new()
        };
        bad_with(&format!("{GOOD}ssh_key_path: my key\n"), &files)
    });
    assert_snapshot!(told.join("\n"), @"
    `ssh_key_path` (line 8): this private key has a passphrase | my key
      at a terminal you are asked for it; elsewhere an SSH agent can hold the key (`ssh-add '/home/me/my key'`, and `ssh_agent_auth: true`), or use one without a passphrase
    `ssh_key_path` (line 8): this private key is encrypted in a way that is not supported; that does not mean that the passphrase is wrong | my key
      `ssh-keygen -p -f '/home/me/my key'` encrypts it again in OpenSSH's format; or an SSH agent can hold it (`ssh-add '/home/me/my key'`, and `ssh_agent_auth: true`)
    `ssh_key_path` (line 8): this private key is damaged, or of a kind that is not supported | my key
      `ssh-keygen -y -f '/home/me/my key'` shows whether OpenSSH can read it; if so, `ssh-keygen -p -f '/home/me/my key'` writes it again in OpenSSH's format, and `ssh-keygen -p -m PEM -f '/home/me/my key'` in PEM
    `ssh_key_path` (line 8): this is a DSA key, which is not supported: OpenSSH 10 has removed DSA | my key
      make another key (`ssh-keygen -t ed25519`), and add its public half to `~/.ssh/authorized_keys` of the nodes
    `ssh_key_path` (line 8): this private key of PuTTY has a passphrase, is damaged, or is of a kind that is not supported | my key
      `puttygen '/home/me/my key' -O private-openssh -o NEW` writes it in OpenSSH's format: name that file
    ");
}

#[test]
fn a_certificate_of_another_key_is_refused() {
    let other = Files {
        pem: super::tests::pem(),
        ..certified()
    };
    let yaml = format!("{GOOD}ssh_cert_path: cert\n");
    assert_snapshot!(bad_with(&yaml, &other), @"
    `ssh_cert_path` (line 8): this certificate does not match the key that logs in
      `ssh-keygen -L -f /home/me/cert` shows whose it is
    ");
    assert_snapshot!(bad(&yaml), @"
    `ssh_cert_path` (line 8): this is not an OpenSSH certificate
      name the file that `ssh-keygen -s` made: it ends with `-cert.pub`
    ");
}

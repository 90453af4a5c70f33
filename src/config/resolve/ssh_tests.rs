//! What the configuration of OpenSSH's client adds where a config says nothing.

use insta::assert_snapshot;

use super::tests::{Files, good_with};
use crate::{
    config::{
        Agent, Bastion, Credential, Intent, NodeIntent, RkeConfig, SSH_AGENT, SshAgent, SshConfig,
        SshHost, SshJump, SshQuery, means_the_same, portable, ssh_queries,
    },
    model::NodeName,
};

const REST: &str =
    "network: {plugin: flannel}\ningress: {provider: none}\nmonitoring: {provider: none}\n";

fn query(address: &str) -> SshQuery {
    SshQuery {
        address: address.to_owned(),
        user: None,
        port: None,
    }
}

fn jump(address: &str) -> SshJump {
    SshJump {
        address: address.to_owned(),
        user: None,
        port: None,
    }
}

/// Files, and what the SSH config says about these addresses, whatever user and port the config names.
fn files(yaml: &str, hosts: &[(&str, SshHost)]) -> Files {
    let mut ssh = SshConfig::default();
    let written = RkeConfig::parse(yaml).expect("YAML");
    let jumps = hosts.iter().map(|(address, _)| query(address));
    for query in ssh_queries(&written).into_iter().chain(jumps) {
        let said = hosts.iter().find(|(address, _)| *address == query.address);
        let mut host = said.map(|(_, host)| host.clone()).unwrap_or_default();
        // As `ssh -G` is read.
        host.user = host.user.filter(|_| query.user.is_none());
        host.port = host.port.filter(|_| query.port.is_none());
        ssh.insert(query, host);
    }
    Files {
        ssh,
        ..Files::new()
    }
}

fn node<'a>(intent: &'a Intent, name: &str) -> &'a NodeIntent {
    &intent.nodes[&NodeName::from(name)]
}

fn way(node: &NodeIntent) -> Vec<String> {
    let way = node.bastions.iter();
    way.map(
        |Bastion {
             endpoint, login, ..
         }| format!("{}@{endpoint} {}", login.user, login.key_source),
    )
    .collect()
}

fn identity(file: &str) -> SshHost {
    SshHost {
        identity_files: Some(vec![file.to_owned()]),
        ..SshHost::default()
    }
}

#[test]
fn it_counts_where_the_config_says_nothing() {
    let yaml = format!(
        "nodes:
  - {{address: n1, role: [controlplane, etcd]}}
  - {{address: n2, user: core, port: 2200, ssh_key_path: own, role: [worker]}}
{REST}"
    );
    let host = |name: &str| SshHost {
        host_name: Some(name.to_owned()),
        user: Some("deploy".to_owned()),
        port: Some(2222),
        host_key_alias: Some("alias".to_owned()),
        ..identity("of-ssh")
    };
    let files = files(&yaml, &[("n1", host("10.0.0.1")), ("n2", host("10.0.0.2"))]);
    let resolved = good_with(&yaml, &files);
    assert_eq!(resolved.warnings, vec![]);
    let n1 = node(&resolved.intent, "n1");
    assert_eq!(n1.endpoint.to_string(), "[10.0.0.1]:2222");
    assert_eq!(n1.internal_address.to_string(), "10.0.0.1");
    assert!(!n1.has_internal_address);
    assert_eq!(
        (&*n1.login.user, &*n1.login.key_source),
        ("deploy", "of-ssh")
    );
    let used: Vec<String> = n1
        .ssh_config
        .iter()
        .map(|(keyword, value)| format!("{keyword} {value}"))
        .collect();
    assert_eq!(
        used,
        [
            "HostKeyAlias alias",
            "HostName 10.0.0.1",
            "IdentityFile of-ssh",
            "Port 2222",
            "User deploy"
        ]
    );
    let n2 = node(&resolved.intent, "n2");
    assert_eq!(n2.endpoint.to_string(), "[10.0.0.2]:2200");
    assert_eq!((&*n2.login.user, &*n2.login.key_source), ("core", "own"));
    let keywords: Vec<&str> = n2.ssh_config.keys().copied().collect();
    assert_eq!(keywords, ["HostKeyAlias", "HostName"]);
}

#[test]
fn each_node_has_its_own_way() {
    let yaml = format!(
        "nodes:
  - {{address: n1, user: a, role: [controlplane, etcd]}}
  - {{address: n2, user: a, role: [worker]}}
  - {{address: n3, user: a, role: [worker]}}
{REST}"
    );
    let through = |jumps: Vec<SshJump>| SshHost {
        jumps,
        ..SshHost::default()
    };
    let inner = SshJump {
        user: Some("ops".to_owned()),
        port: Some(2022),
        ..jump("inner")
    };
    // `outer` is reached through `gate`, and says so itself.
    let hosts = [
        ("n1", through(vec![jump("outer"), inner])),
        ("n2", through(vec![jump("gate")])),
        (
            "outer",
            SshHost {
                host_name: Some("192.0.2.1".to_owned()),
                user: Some("jumper".to_owned()),
                jumps: vec![jump("gate")],
                ..identity("of-outer")
            },
        ),
        ("gate", SshHost::default()),
    ];
    let resolved = good_with(&yaml, &files(&yaml, &hosts));
    assert_eq!(resolved.warnings, vec![]);
    let intent = &resolved.intent;
    assert_eq!(
        way(node(intent, "n1")),
        [
            "me@gate ~/.ssh/id_rsa",
            "jumper@192.0.2.1 of-outer",
            "ops@[inner]:2022 ~/.ssh/id_rsa"
        ]
    );
    assert_eq!(
        node(intent, "n1").ssh_config["ProxyJump"],
        "gate,192.0.2.1,[inner]:2022"
    );
    assert_eq!(way(node(intent, "n2")), ["me@gate ~/.ssh/id_rsa"]);
    assert_eq!(way(node(intent, "n3")), Vec::<String>::new());
    assert_eq!(intent.bastions().len(), 3, "each once");

    // What the config says wins.
    let yaml = format!("{yaml}bastion_host: {{address: theirs, user: b}}\n");
    let intent = good_with(&yaml, &files(&yaml, &hosts)).intent;
    for name in ["n1", "n2", "n3"] {
        assert_eq!(way(node(&intent, name)), ["b@theirs ~/.ssh/id_rsa"]);
    }
    // How it is reached it does not say.
    let reached = ("theirs", through(vec![jump("gate")]));
    let intent = good_with(&yaml, &files(&yaml, &[&hosts[..], &[reached]].concat())).intent;
    assert_eq!(
        way(node(&intent, "n1")),
        ["me@gate ~/.ssh/id_rsa", "b@theirs ~/.ssh/id_rsa"]
    );
}

/// `Host *` often means the machine on the way, too.
#[test]
fn a_way_that_leads_back_ends_there() {
    let yaml = format!("nodes: [{{address: n1, user: a}}]\n{REST}");
    let every = SshHost {
        jumps: vec![jump("gate")],
        ..SshHost::default()
    };
    let hosts = [("n1", every.clone()), ("gate", every)];
    let resolved = good_with(&yaml, &files(&yaml, &hosts));
    assert_eq!(way(node(&resolved.intent, "n1")), ["me@gate ~/.ssh/id_rsa"]);
    assert_snapshot!(resolved.warnings[0], @"`nodes[0].address` (line 1): `ProxyJump` of the SSH config leads back to a machine on the way, which is dialled directly");

    let yaml = format!("nodes: [{{address: gate, user: a}}]\n{REST}");
    let resolved = good_with(&yaml, &files(&yaml, &hosts[1..]));
    assert_eq!(way(node(&resolved.intent, "gate")), Vec::<String>::new());
    assert_eq!(resolved.warnings, vec![]);
}

#[test]
fn what_cannot_be_used_is_a_warning() {
    let yaml = format!("nodes: [{{address: n1, user: a}}]\n{REST}");
    let host = SshHost {
        proxy_command: Some("nc %h %p".to_owned()),
        unusable: vec!["`IdentityFile %C` of the SSH config is not used: a reason".to_owned()],
        ..identity("missing")
    };
    let resolved = good_with(&yaml, &files(&yaml, &[("n1", host)]));
    let told: Vec<String> = resolved.warnings.iter().map(ToString::to_string).collect();
    assert_snapshot!(told.join("\n"), @"
    `nodes[0].address` (line 1): `IdentityFile %C` of the SSH config is not used: a reason
    `nodes[0].address` (line 1): `IdentityFile` of the SSH config does not exist: a default key is used
    `nodes[0].address` (line 1): `ProxyCommand` of the SSH config is not used: this machine is dialled directly
    ");
    assert_eq!(
        node(&resolved.intent, "n1").login.key_source,
        "~/.ssh/id_rsa"
    );
}

fn refused(yaml: &str, hosts: &[(&str, SshHost)]) -> String {
    let config = RkeConfig::parse(yaml).expect("YAML");
    let problems = Intent::from_config(&config, &files(yaml, hosts)).expect_err("problems");
    let lines = problems.iter().map(|problem| {
        let detail = problem.detail.as_deref().unwrap_or_default();
        let hint = problem.hint.as_deref().unwrap_or_default();
        format!("{problem} | {detail}\n  {hint}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What is behind a bastion host is not dialled directly, nor an alias in the place of `HostName`.
#[test]
fn a_way_that_cannot_be_used_is_a_problem() {
    let yaml = format!("nodes: [{{address: n1, user: a}}]\n{REST}");
    let no_place = SshHost {
        no_place: Some("`HostName ~` of the SSH config is not used: a reason".to_owned()),
        ..SshHost::default()
    };
    let no_way = SshHost {
        no_way: Some("`ProxyJump a b` of the SSH config is not used: a reason".to_owned()),
        ..SshHost::default()
    };
    let by_ssh = SshHost {
        proxy_command: Some("/usr/bin/ssh -W %h:%p gate".to_owned()),
        ..SshHost::default()
    };
    let through = |jump_to: &str| SshHost {
        jumps: vec![jump(jump_to)],
        ..SshHost::default()
    };
    let of_node = [no_place.clone(), no_way.clone(), by_ssh.clone()]
        .map(|host| refused(&yaml, &[("n1", host)]));
    assert_snapshot!(of_node.join("\n\n"), @"
    `nodes[0].address` (line 1): the SSH config has no usable `HostName` for it | `HostName ~` of the SSH config is not used: a reason
      correct it in the SSH config, write the address itself here, or use `--no-ssh-config` (a `Cluster` has no SSH config)

    `nodes[0].address` (line 1): the SSH config has no usable `ProxyJump` for it, and it is not dialled directly | `ProxyJump a b` of the SSH config is not used: a reason
      correct it in the SSH config, write `bastion_host`, or use `--no-ssh-config` (a `Cluster` has no SSH config)

    `nodes[0].address` (line 1): `ProxyCommand` of the SSH config leads through another machine and is not used: it is not dialled directly | /usr/bin/ssh -W %h:%p gate
      write `ProxyJump HOST` in its place in the SSH config, or `bastion_host` here; `ProxyCommand none` dials directly
    ");
    let of_jump = [no_place, no_way.clone(), by_ssh.clone()]
        .map(|host| refused(&yaml, &[("n1", through("gate")), ("gate", host)]));
    assert_snapshot!(of_jump.join("\n\n"), @"
    `nodes[0].address` (line 1): `ProxyJump` of the SSH config names a machine that cannot be dialled | of `gate`: `HostName ~` of the SSH config is not used: a reason
      correct its `HostName` in the SSH config, write `bastion_host`, or use `--no-ssh-config` (a `Cluster` has no SSH config)

    `nodes[0].address` (line 1): the SSH config has no usable `ProxyJump` for it, and it is not dialled directly | of `gate`: `ProxyJump a b` of the SSH config is not used: a reason
      correct it in the SSH config, write `bastion_host`, or use `--no-ssh-config` (a `Cluster` has no SSH config)

    `nodes[0].address` (line 1): `ProxyCommand` of the SSH config leads through another machine and is not used: it is not dialled directly | of `gate`: /usr/bin/ssh -W %h:%p gate
      write `ProxyJump HOST` in its place in the SSH config, or `bastion_host` here; `ProxyCommand none` dials directly
    ");
    let unusable =
        ["a/b", "0.0.0.0", "fe80::1"].map(|gate| refused(&yaml, &[("n1", through(gate))]));
    assert_snapshot!(unusable.join("\n\n"), @"
    `nodes[0].address` (line 1): `ProxyJump` of the SSH config names a machine that cannot be dialled | of `a/b`: `a/b` is neither a host name nor an IP address
      correct its `HostName` in the SSH config, write `bastion_host`, or use `--no-ssh-config` (a `Cluster` has no SSH config)

    `nodes[0].address` (line 1): `ProxyJump` of the SSH config names a machine that cannot be dialled | of `0.0.0.0`: `0.0.0.0` is no address of a single machine
      correct its `HostName` in the SSH config, write `bastion_host`, or use `--no-ssh-config` (a `Cluster` has no SSH config)

    `nodes[0].address` (line 1): `ProxyJump` of the SSH config names a machine that cannot be dialled | of `fe80::1`: `fe80::1` is a link-local address without its interface
      correct its `HostName` in the SSH config, write `bastion_host`, or use `--no-ssh-config` (a `Cluster` has no SSH config)
    ");
    let with_bastion = format!("{yaml}bastion_host: {{address: gate, user: b}}\n");
    for host in [no_way, by_ssh] {
        refused(&with_bastion, &[("gate", host.clone())]);
        // The config says how the node is reached.
        let files = files(&with_bastion, &[("n1", host)]);
        let intent = good_with(&with_bastion, &files).intent;
        assert_eq!(way(node(&intent, "n1")), ["b@gate ~/.ssh/id_rsa"]);
    }
}

#[test]
fn an_alias_may_be_any_word() {
    let yaml = format!(
        "nodes: [{{address: prod_node/1, hostname_override: n1, internal_address: 10.0.0.1, user: a}}]\n{REST}"
    );
    let host = SshHost {
        host_name: Some("fd00::1".to_owned()),
        jumps: vec![jump("bastion_prod"), jump("fd00::9")],
        ..SshHost::default()
    };
    let intent = good_with(&yaml, &files(&yaml, &[("prod_node/1", host)])).intent;
    let node = node(&intent, "n1");
    assert_eq!(node.endpoint.to_string(), "fd00::1");
    assert_eq!(node.internal_address.to_string(), "10.0.0.1");
    assert_eq!(
        way(node),
        ["me@bastion_prod ~/.ssh/id_rsa", "me@fd00::9 ~/.ssh/id_rsa"]
    );
    let yaml = yaml.replace(", internal_address: 10.0.0.1", "");
    let host = SshHost {
        host_name: Some("fd00::1".to_owned()),
        ..SshHost::default()
    };
    assert_snapshot!(refused(&yaml, &[("prod_node/1", host)]), @"
    `nodes[0].address` (line 1): is an IPv6 address, which only SSH can use | fd00::1
      write the node's IPv4 address, at which other nodes reach it, in `internal_address`
    ");
}

/// Those before it, not none.
#[test]
fn a_machine_on_the_way_is_reached_through_those_before_it() {
    let yaml = format!("nodes: [{{address: inner, user: a}}]\n{REST}");
    let every = SshHost {
        jumps: vec![jump("outer"), jump("inner")],
        ..SshHost::default()
    };
    let hosts = [("inner", every.clone()), ("outer", every)];
    let resolved = good_with(&yaml, &files(&yaml, &hosts));
    assert_eq!(
        way(node(&resolved.intent, "inner")),
        ["me@outer ~/.ssh/id_rsa"]
    );
}

/// `doctor` shows it.
#[test]
fn what_the_ssh_config_says_about_a_bastion_is_kept() {
    let yaml = format!(
        "nodes: [{{address: n1, user: a}}]\nbastion_host: {{address: gate, port: 24}}\n{REST}"
    );
    let gate = SshHost {
        host_name: Some("10.0.0.9".to_owned()),
        user: Some("ops".to_owned()),
        port: Some(2022),
        jumps: vec![jump("outer")],
        ..identity("of-gate")
    };
    let outer = SshHost {
        user: Some("out".to_owned()),
        ..SshHost::default()
    };
    let intent = good_with(&yaml, &files(&yaml, &[("gate", gate), ("outer", outer)])).intent;
    let said: Vec<String> = node(&intent, "n1")
        .bastions
        .iter()
        .map(|bastion| format!("{} {:?}", bastion.endpoint, bastion.ssh_config))
        .collect();
    assert_eq!(
        said,
        [
            r#"outer {"User": "out"}"#,
            r#"[10.0.0.9]:24 {"HostName": "10.0.0.9", "IdentityFile": "of-gate", "User": "ops"}"#
        ]
    );
}

/// A warning names each unusable file if none can be used.
#[test]
fn a_certificate_file_that_cannot_be_used_is_a_warning() {
    let yaml = format!("nodes: [{{address: n1, user: a}}]\n{REST}");
    let host = SshHost {
        certificate_files: vec!["missing-cert.pub".to_owned(), "other-cert.pub".to_owned()],
        ..identity("of-ssh")
    };
    let files = Files {
        certificate: "nothing".to_owned(),
        ..files(&yaml, &[("n1", host)])
    };
    let resolved = good_with(&yaml, &files);
    let told = resolved.warnings.iter().map(|warning| {
        format!(
            "{warning} | {}",
            warning.detail.as_deref().unwrap_or_default()
        )
    });
    assert_snapshot!(told.collect::<Vec<_>>().join("\n"), @"
    `nodes[0].address` (line 1): `CertificateFile` of the SSH config is not used: the certificate file cannot be read | missing-cert.pub: No such file or directory
    `nodes[0].address` (line 1): `CertificateFile` of the SSH config is not used: this is not an OpenSSH certificate | other-cert.pub
    ");
    let login = &node(&resolved.intent, "n1").login;
    assert_eq!(login.credential.certificate_source(), None);
}

#[test]
fn an_agent_of_the_ssh_config() {
    let yaml = format!("nodes: [{{address: n1, user: a}}]\n{REST}");
    let host = SshHost {
        identities_only: true,
        agent: Some(SshAgent::At("/run/theirs".to_owned())),
        // The public half, as a person names it whose key only the agent has.
        ..identity("key.pub")
    };
    let login = |yaml: &str, host: &SshHost| {
        let intent = good_with(yaml, &files(yaml, &[("n1", host.clone())])).intent;
        node(&intent, "n1").login.clone()
    };
    let own = Credential::Agent(Agent {
        socket: "/run/theirs".into(),
        named: Vec::new(),
        only_named: true,
    });
    let got = login(&yaml, &host);
    assert_eq!(
        (got.credential, got.key_source.as_str()),
        (own.clone(), SSH_AGENT)
    );
    // The config says that an agent is used, and the SSH config which.
    let got = login(&format!("{yaml}ssh_agent_auth: true\n"), &host);
    assert_eq!(got.credential, own);
    // A key of the config wins, with and without an agent.
    let got = login(&format!("{yaml}ssh_key_path: own\n"), &host);
    assert_eq!(got.key_source, "own");
}

#[test]
fn two_nodes_are_not_one_machine() {
    let yaml = format!(
        "nodes: [{{address: n1, user: a, role: [controlplane, etcd]}}, {{address: n2, user: a, role: [worker]}}]\n{REST}"
    );
    let host = SshHost {
        host_name: Some("10.0.0.1".to_owned()),
        ..SshHost::default()
    };
    let files = files(&yaml, &[("n1", host.clone()), ("n2", host)]);
    let config = RkeConfig::parse(&yaml).expect("YAML");
    let problems = Intent::from_config(&config, &files).expect_err("one machine");
    assert_snapshot!(problems, @"the config is not valid: `nodes[1].address` (line 1): `HostName` of the SSH config leads to the same machine as `nodes[0]`");
}

/// For an object, which no SSH config is read for.
#[test]
fn a_portable_config_needs_no_ssh_config() {
    let yaml = format!(
        "nodes:
  - {{address: n1, role: [controlplane, etcd]}}
  - {{address: n2, role: [worker]}}
{REST}"
    );
    let host = |name: &str, gate: &str| SshHost {
        host_name: Some(name.to_owned()),
        user: Some("deploy".to_owned()),
        port: Some(2222),
        jumps: vec![jump("outer"), jump(gate)],
        ..SshHost::default()
    };
    let portable = |gates: [&str; 2]| {
        let hosts = [
            ("n1", host("10.0.0.1", gates[0])),
            ("n2", host("10.0.0.2", gates[1])),
        ];
        let files = files(&yaml, &hosts);
        let config = RkeConfig::parse(&yaml).expect("YAML");
        let intent = Intent::from_config(&config, &files)
            .expect("an intent")
            .intent;
        portable(&config, &intent, &files).map(|document| (document, intent))
    };
    let (document, intent) = portable(["gate", "gate"]).expect("a document");
    let config = RkeConfig::from_json(&document).expect("a config");
    let there = Intent::from_config(&config, &Files::new())
        .expect("an intent")
        .intent;
    assert!(means_the_same(&intent, &there), "{document:#}");
    assert_eq!(node(&there, "n2").endpoint.to_string(), "[10.0.0.2]:2222");
    let problems = portable(["gate", "other"]).expect_err("two ways");
    assert_snapshot!(problems, @"the config is not valid: `nodes`: the nodes are reached through different machines (`ProxyJump` of the SSH config), and a `Cluster` object has one way to all");
}

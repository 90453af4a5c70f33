use super::*;

fn query(address: &str) -> SshQuery {
    SshQuery {
        address: address.to_owned(),
        user: None,
        port: None,
    }
}

/// As `ssh -F /dev/null -G -- localhost` of OpenSSH 9.2 prints it, as far as it matters.
const USUAL: &str = "\
host localhost
user me
hostname localhost
port 22
identitiesonly no
updatehostkeys true
identityfile ~/.ssh/id_rsa
identityfile ~/.ssh/id_ed25519
globalknownhostsfile /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2
userknownhostsfile /home/me/.ssh/known_hosts /home/me/.ssh/known_hosts2
";

/// The usual output for a host, with these lines in the place of those of the same keyword.
fn output(host: &str, lines: &str) -> String {
    let keyword = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let set: BTreeSet<String> = lines.lines().map(keyword).collect();
    let usual = USUAL.replace("localhost", host);
    let rest = usual.lines().filter(|line| !set.contains(&keyword(line)));
    rest.chain(lines.lines())
        .fold(String::new(), |text, line| text + line + "\n")
}

fn parse_as(query: &SshQuery, lines: &str) -> SshHost {
    let variable = |name: &str| (name == "KEYS").then(|| "/keys".to_owned());
    let person = SshPerson {
        home: Some("/home/me"),
        user: Some("me"),
        variable: &variable,
    };
    SshHost::parse(
        query,
        &output(&query.address.to_lowercase(), lines),
        USUAL,
        &person,
    )
}

fn parse(lines: &str) -> SshHost {
    parse_as(&query("n1"), lines)
}

#[test]
fn the_defaults_of_ssh_say_nothing() {
    assert_eq!(parse(""), SshHost::default());
    assert_eq!(
        parse_as(&query("N1"), ""),
        SshHost::default(),
        "in lower case"
    );
    let short = parse_as(&query("10.0.0.1"), "hostname 10.0.0.1");
    assert_eq!(short, SshHost::default());
}

#[test]
fn what_is_set_counts() {
    let host = parse(
        "user deploy
hostname 10.0.0.1
port 2222
identitiesonly yes
identityagent /home/me/agent.sock
hostkeyalias one.example
identityfile ~/.ssh/deploy key
identityfile %d/%h_%r_%p_%n_%u_%k%%
identityfile ${KEYS}/a
certificatefile ~/.ssh/deploy-cert.pub
globalknownhostsfile none
userknownhostsfile /home/me/known hosts /dev/null
proxyjump ops@a:2022,[10.0.0.2]:22,ssh://b:24
proxycommand none",
    );
    let texts = |texts: &[&str]| {
        texts
            .iter()
            .map(|&text| text.to_owned())
            .collect::<Vec<_>>()
    };
    let jump = |address: &str, user: Option<&str>, port| SshJump {
        address: address.to_owned(),
        user: user.map(str::to_owned),
        port: Some(port),
    };
    let expected = SshHost {
        host_name: Some("10.0.0.1".to_owned()),
        user: Some("deploy".to_owned()),
        port: Some(2222),
        identity_files: Some(texts(&[
            "~/.ssh/deploy key",
            "/home/me/10.0.0.1_deploy_2222_n1_me_one.example%",
            "/keys/a",
        ])),
        certificate_files: texts(&["~/.ssh/deploy-cert.pub"]),
        agent: Some(SshAgent::At("/home/me/agent.sock".to_owned())),
        identities_only: true,
        jumps: vec![
            jump("a", Some("ops"), 2022),
            jump("10.0.0.2", None, 22),
            jump("b", None, 24),
        ],
        proxy_command: None,
        host_key_alias: Some("one.example".to_owned()),
        // Paths with spaces are printed without quotes.
        user_known_hosts: Some(texts(&["/home/me/known hosts", "/dev/null"])),
        global_known_hosts: Some(Vec::new()),
        unusable: Vec::new(),
        no_place: None,
        no_way: None,
    };
    assert_eq!(host, expected);
}

/// The config names both: the query to `ssh -G` has them, and its output repeats them.
#[test]
fn what_the_config_names_wins() {
    let query = SshQuery {
        user: Some("core".to_owned()),
        port: Some(2200),
        ..query("n1")
    };
    let host = parse_as(&query, "user core\nport 2200");
    assert_eq!((host.user, host.port), (None, None));
}

#[test]
fn what_cannot_be_used_has_a_reason() {
    let host = parse(
        "hostname ~n1
identityfile ~other/key
identityfile /keys/%C
identityfile ${NONE}/key
identityfile none
proxyjump ops@[2001:db8::1",
    );
    assert_eq!(host.identity_files, Some(Vec::new()));
    assert_eq!((host.host_name, host.jumps), (None, Vec::new()));
    assert_eq!(
        host.no_place.as_deref(),
        Some(
            "`HostName ~n1` of the SSH config is not used: it is neither a host name nor an IP address"
        )
    );
    assert_eq!(
        host.no_way.as_deref(),
        Some(
            "`ProxyJump ops@[2001:db8::1` of the SSH config is not used: it must be `[USER@]HOST[:PORT]`, separated by commas"
        )
    );
    insta::assert_snapshot!(host.unusable.join("\n"), @"
    `IdentityFile ~other/key` of the SSH config is not used: the home of another user is not looked up
    `IdentityFile /keys/%C` of the SSH config is not used: `%C` is not supported
    `IdentityFile ${NONE}/key` of the SSH config is not used: the variable `NONE` is not set
    ");
}

/// As `ssh` takes them: `_`, dots at the end, IPv6 with its zone, tokens of `ProxyJump`.
#[test]
fn names_and_addresses_of_every_kind_count() {
    for (said, host_name) in [
        ("prod_node_1", "prod_node_1"),
        ("n1.lan.", "n1.lan."),
        ("2001:db8:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ] {
        let host = parse(&format!("hostname {said}"));
        assert_eq!(host.host_name.as_deref(), Some(host_name));
        assert_eq!(host.no_place, None);
    }
    let jump = |address: &str, user: Option<&str>, port| SshJump {
        address: address.to_owned(),
        user: user.map(str::to_owned),
        port,
    };
    for (said, expected) in [
        ("bastion_prod", jump("bastion_prod", None, None)),
        ("a@b@gate.", jump("gate.", Some("a@b"), None)),
        (
            "ops@[2001:db8:0::1]:2022",
            jump("2001:db8::1", Some("ops"), Some(2022)),
        ),
        ("[2001:db8::1]", jump("2001:db8::1", None, None)),
        ("2001:db8::1", jump("2001:db8::1", None, None)),
        ("[fe80::1%%eth0]:22", jump("fe80::1%eth0", None, Some(22))),
        (
            "ssh://u@[fd00::1]:24/",
            jump("fd00::1", Some("u"), Some(24)),
        ),
        ("gate-%n:%p", jump("gate-n1", None, Some(22))),
    ] {
        let host = parse(&format!("proxyjump {said}"));
        assert_eq!((host.jumps, host.no_way), (vec![expected], None), "{said}");
    }
    for said in [
        "gate:x", "gate:0", "@gate", "a b", "-oX", "gate-%z", "[gate", "a:1:2", "gate,",
    ] {
        let host = parse(&format!("proxyjump {said}"));
        assert_eq!(host.jumps, [], "{said}");
        assert!(host.no_way.is_some(), "{said}");
    }
    let v6 = parse_as(&query("2001:db8::1"), "hostname 2001:db8::1");
    assert_eq!(v6, SshHost::default());
}

/// A bastion host that is not known is not left out.
#[test]
fn a_machine_without_an_answer_is_refused() {
    let machines = BTreeSet::from([query("n1")]);
    let mut config = SshConfig::default();
    config.insert(query("n1"), parse("proxyjump a"));
    config.refuse_the_rest(&machines);
    let host = config.host(&query("a")).unwrap();
    assert_eq!(
        host.no_way.as_deref(),
        Some("too many machines are on the way")
    );
}

#[test]
fn an_agent_is_a_socket_a_variable_or_none() {
    let agent = |value: &str| parse(&format!("identityagent {value}")).agent;
    assert_eq!(agent("none"), Some(SshAgent::None));
    assert_eq!(agent("SSH_AUTH_SOCK"), None, "the usual one");
    assert_eq!(agent("$KEYS"), Some(SshAgent::At("/keys".to_owned())));
    assert_eq!(agent("${KEYS}/a"), Some(SshAgent::At("/keys/a".to_owned())));
    assert_eq!(agent("$NONE"), None, "the variable is not set");
    assert_eq!(agent("~/agent"), Some(SshAgent::At("~/agent".to_owned())));
}

#[test]
fn a_command_is_kept_for_a_warning() {
    let host = parse("proxycommand nc %h %p");
    assert_eq!(host.proxy_command.as_deref(), Some("nc %h %p"));
    assert_eq!(host.jumps, []);
}

#[test]
fn machines_on_the_way_are_asked_about_too() {
    let machines = BTreeSet::from([query("n1"), query("n2")]);
    let mut config = SshConfig::default();
    assert_eq!(config.wanted(&machines), machines);
    config.insert(query("n1"), parse("proxyjump ops@a:2022,b"));
    config.insert(query("n2"), SshHost::default());
    let jump = SshQuery {
        address: "a".to_owned(),
        user: Some("ops".to_owned()),
        port: Some(2022),
    };
    assert_eq!(config.wanted(&machines), [jump.clone(), query("b")].into());
    config.insert(jump, SshHost::default());
    config.insert(query("b"), parse_as(&query("b"), "proxyjump b"));
    assert_eq!(config.wanted(&machines), BTreeSet::new(), "a loop ends");
}

/// They are found by where the machine is dialled.
#[test]
fn host_keys_are_looked_up_by_the_endpoint() {
    let mut config = SshConfig::default();
    config.insert(
        query("n1"),
        parse("hostname 10.0.0.1\nport 2222\nhostkeyalias one"),
    );
    config.insert(query("n2"), parse("user deploy"));
    let endpoint = Endpoint {
        address: "10.0.0.1".to_owned(),
        port: 2222,
    };
    let keys = SshHostKeys {
        alias: Some("one".to_owned()),
        user_files: None,
        global_files: None,
    };
    assert_eq!(config.host_keys(), BTreeMap::from([(endpoint, keys)]));
}

#[test]
fn nodes_and_bastions_are_asked_about_once() {
    let config = RkeConfig::parse(
        "nodes: [{address: n1}, {address: n1}, {address: n2, user: core, port: 2222}, {address: 'prod_node.'}, {address: '[fd00:0::1]'}, {address: -oX}, {}, x]
bastion_host: {address: jump, through: [{address: gate}]}
",
    );
    let queries = ssh_queries(&config.unwrap());
    let shown: Vec<String> = queries
        .iter()
        .map(|one| format!("{} {:?} {:?}", one.address, one.user, one.port))
        .collect();
    assert_eq!(
        shown,
        [
            "fd00::1 None None",
            "gate None None",
            "jump None None",
            "n1 None None",
            "n2 Some(\"core\") Some(2222)",
            "prod_node. None None"
        ]
    );
    let config = RkeConfig::parse("bastion_host: [{address: gate}, null, {address: jump}]\n");
    let queries = ssh_queries(&config.unwrap());
    assert_eq!(queries, [query("gate"), query("jump")].into());
}

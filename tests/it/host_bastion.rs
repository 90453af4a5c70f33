//! Ways in: through a bastion host, with an SSH agent, with a certificate. The production code
//! against servers in this process.

use std::{collections::BTreeMap, fs, io, path::Path, process::Command, sync::Arc};

use futures::future::{BoxFuture, join_all};
use rke_operator::{
    config::{Agent, Bastion, Certificate, Credential, Login, SSH_AGENT},
    error::{Explain, Obstacle, with_causes},
    host::{
        Dial, Host, HostError, KnownHosts, OtherMachines, Policy, ServiceRanges, Stream,
        pool::{Hosts, NotOpen, Target, Verified},
    },
    model::{Endpoint, NodeName},
};
use russh::keys::{
    PrivateKey,
    agent::{client::AgentClient, server},
    decode_secret_key,
    ssh_key::private::Ed25519Keypair,
};
use tempfile::TempDir;
use tokio::net::UnixListener;

use crate::fake::{Access, FakeHost, FakeNet};

fn at(address: &str) -> Endpoint {
    Endpoint {
        address: address.to_owned(),
        port: 22,
    }
}

/// Nodes that only the bastion reaches, by name; the last one has no server.
struct Site {
    bastion: FakeHost,
    nodes: BTreeMap<NodeName, FakeHost>,
    hosts: Hosts,
}

/// A network of fakes, with the operator's limits on what a bastion host opens.
struct Limited {
    net: FakeNet,
    limits: OtherMachines,
}

impl Dial for Limited {
    fn dial<'a>(&'a self, to: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        self.net.dial(to)
    }

    fn may_relay(&self, to: &Endpoint) -> io::Result<()> {
        self.limits.may_relay(to)
    }
}

const BASTION: &str = "203.0.113.1";

fn site() -> Site {
    behind(&[])
}

/// The same where dials are allowed within these ranges only.
fn behind(allowed: &[&str]) -> Site {
    let bastion = FakeHost::new();
    let nodes: BTreeMap<NodeName, FakeHost> = ["n1", "n2"]
        .map(|name| (NodeName::from(name), FakeHost::new()))
        .into();
    let allowed = allowed.iter().map(|net| net.parse().unwrap()).collect();
    let behind = nodes.iter().map(|(name, node)| (at(&name.0), node.clone()));
    bastion.leads_to(FakeNet(behind.collect()));
    let mut known = bastion.known_hosts(&at(BASTION));
    for (name, node) in &nodes {
        known += &node.known_hosts(&at(&name.0));
    }
    let keys = KnownHosts::from_text("test", &known, Policy::Strict);
    // Nothing but the bastion answers from here.
    let outside = Limited {
        net: FakeNet([(at(BASTION), bastion.clone())].into()),
        limits: OtherMachines {
            allowed,
            services: ServiceRanges::default(),
        },
    };
    let hosts = Hosts::new(Arc::new(outside), Arc::new(keys));
    let way = Bastion {
        endpoint: at(BASTION),
        login: bastion.login(),
        ssh_config: BTreeMap::new(),
    };
    let target = |name: NodeName| {
        let target = Target {
            endpoint: at(&name.0),
            login: bastion.login(),
            bastions: vec![way.clone()],
            verified: Verified::default(),
        };
        (name, Ok(target))
    };
    let names = nodes.keys().cloned().chain([NodeName::from("gone")]);
    hosts.aim(names.map(target).collect());
    Site {
        bastion,
        nodes,
        hosts,
    }
}

async fn refused(site: &Site, name: &str) -> String {
    match site.hosts.open(&NodeName::from(name)).await {
        Ok(host) => panic!("reached {host:?}"),
        Err(NotOpen::Target(down)) => panic!("{down:?}"),
        Err(NotOpen::Host(error)) => shown(&error),
    }
}

fn shown(error: &HostError) -> String {
    let hints = error.hints();
    let hints = hints.iter().map(|hint| format!("\nhint: {hint}"));
    format!("{}{}", with_causes(error), hints.collect::<String>())
}

#[tokio::test]
async fn one_connection_to_the_bastion_serves_every_node() {
    let site = site();
    let opened = join_all(site.nodes.keys().map(|name| site.hosts.open(name))).await;
    for host in opened {
        let host = host.expect("reached");
        host.docker_facts().await.expect("Docker answers");
    }
    assert_eq!(site.bastion.connections(), 1);
    for (name, node) in &site.nodes {
        assert_eq!(node.connections(), 1, "{name}");
        assert!(node.asked() > 0, "{name}");
    }
    assert_eq!(
        site.bastion.asked(),
        0,
        "nothing is asked of the bastion itself"
    );
}

#[tokio::test]
async fn a_lost_bastion_is_dialled_again() {
    let site = site();
    let name = NodeName::from("n1");
    let host = site.hosts.open(&name).await.expect("reached");
    site.bastion.cut();
    let lost = host.containers().await.expect_err("the way is gone");
    assert!(matches!(lost, HostError::Lost { .. }), "{lost:?}");
    let host = site.hosts.open(&name).await.expect("reached again");
    host.containers().await.expect("Docker answers");
    assert_eq!(site.bastion.connections(), 2);
}

#[tokio::test]
async fn a_node_that_the_bastion_cannot_reach() {
    insta::assert_snapshot!(refused(&site(), "gone").await, @"
    cannot reach node `gone` (through the bastion host 203.0.113.1): sshd refused the channel (ConnectFailed)
    hint: the bastion host 203.0.113.1 cannot reach port 22 of `gone`: is sshd running there, and on that port?
    ");
}

/// Who may write the address of a node may not reach others by way of a bastion host.
#[tokio::test]
async fn a_node_behind_a_bastion_is_in_the_allowed_ranges_too() {
    let site = behind(&["203.0.113.0/24"]);
    insta::assert_snapshot!(refused(&site, "n1").await, @"
    cannot reach node `n1` (through the bastion host 203.0.113.1): the bastion host would look up `n1`; with --allowed-node-cidrs a node behind it has an IP address
    hint: is that the right address?
    ");
}

#[tokio::test]
async fn a_bastion_that_forbids_connections() {
    let site = site();
    site.bastion
        .faults(|faults| faults.access = Access::NoForwarding);
    insta::assert_snapshot!(refused(&site, "n1").await, @"
    cannot reach node `n1` (through the bastion host 203.0.113.1): sshd refused the channel (AdministrativelyProhibited)
    hint: sshd on the bastion host 203.0.113.1 may set `AllowTcpForwarding no` or `PermitOpen`: allow forwarding for this user
    ");
}

/// Its key is no less checked than a node's: whoever listens there would see every login.
#[tokio::test]
async fn the_bastions_host_key_is_verified() {
    let site = site();
    site.bastion.change_host_key();
    insta::assert_snapshot!(refused(&site, "n1").await, @"
    cannot reach node `n1`: the host key of the bastion host `203.0.113.1` has changed or is revoked: ssh-ed25519 SHA256:zbv/nU7iZdO0fB0DalMI70dP6/yFD8sctXvvW4+OokY
    hint: a different key is recorded in test line 1
    hint: if the node was reinstalled, remove that line; if not, this may be a man-in-the-middle attack
    ");
    assert!(site.nodes.values().all(|node| node.connections() == 0));
}

/// Behind a bastion another machine may answer at a node's address, too.
#[tokio::test]
async fn a_nodes_host_key_is_verified_through_the_bastion() {
    let site = site();
    site.nodes[&NodeName::from("n1")].change_host_key();
    let told = refused(&site, "n1").await;
    assert!(
        told.starts_with(
            "the host key of node `n1` (through the bastion host 203.0.113.1) has changed"
        ),
        "{told}"
    );
}

/// A bastion host behind another one: each is verified and logged in to, with one connection for all nodes.
#[tokio::test]
async fn a_bastion_may_be_reached_through_another_one() {
    let [outer, inner, n1, n2] = [1, 2, 3, 4].map(|_| FakeHost::new());
    let nodes = [(at("n1"), n1.clone()), (at("n2"), n2.clone())];
    inner.leads_to(FakeNet(nodes.clone().into()));
    outer.leads_to(FakeNet([(at("inner"), inner.clone())].into()));
    let outside = FakeNet([(at(BASTION), outer.clone())].into());
    let mut known = outer.known_hosts(&at(BASTION)) + &inner.known_hosts(&at("inner"));
    for (place, node) in &nodes {
        known += &node.known_hosts(place);
    }
    let keys = KnownHosts::from_text("test", &known, Policy::Strict);
    let hosts = Hosts::new(Arc::new(outside), Arc::new(keys));
    let way = [(BASTION, &outer), ("inner", &inner)].map(|(place, host)| Bastion {
        endpoint: at(place),
        login: host.login(),
        ssh_config: BTreeMap::new(),
    });
    let target = |name: &str| {
        let target = Target {
            endpoint: at(name),
            login: n1.login(),
            bastions: way.to_vec(),
            verified: Verified::default(),
        };
        (NodeName::from(name), Ok(target))
    };
    hosts.aim(["n1", "n2"].map(target).into());
    let names = ["n1", "n2"].map(NodeName::from);
    let opened = join_all(names.iter().map(|name| hosts.open(name))).await;
    let opened: Vec<_> = opened
        .into_iter()
        .map(|host| host.expect("reached"))
        .collect();
    for host in &opened {
        host.docker_facts().await.expect("Docker answers");
        assert_eq!(host.bastion_keys().len(), 2);
        assert_eq!(host.bastion_trips().len(), 2);
    }
    let connections = [&outer, &inner, &n1, &n2].map(FakeHost::connections);
    assert_eq!(connections, [1, 1, 1, 1]);

    inner.change_host_key();
    outer.cut();
    opened[0].containers().await.expect_err("the way is gone");
    let Err(NotOpen::Host(changed)) = hosts.open(&names[0]).await else {
        panic!("another machine answers");
    };
    outer.faults(|faults| faults.access = Access::NoForwarding);
    let Err(NotOpen::Host(forbidden)) = hosts.open(&names[0]).await else {
        panic!("there is no way");
    };
    insta::assert_snapshot!(format!("{}\n\n{}", shown(&changed), shown(&forbidden)), @"
    cannot reach node `n1`: the host key of the bastion host `inner` (through the bastion host 203.0.113.1) has changed or is revoked: ssh-ed25519 SHA256:zbv/nU7iZdO0fB0DalMI70dP6/yFD8sctXvvW4+OokY
    hint: a different key is recorded in test line 2
    hint: if the node was reinstalled, remove that line; if not, this may be a man-in-the-middle attack

    cannot reach node `n1`: cannot reach the bastion host `inner` (through the bastion host 203.0.113.1): sshd refused the channel (AdministrativelyProhibited)
    hint: sshd on the bastion host 203.0.113.1 may set `AllowTcpForwarding no` or `PermitOpen`: allow forwarding for this user
    ");
}

/// All nodes have the same reason; it is found out once.
#[tokio::test]
async fn a_bastion_that_refuses_the_login_is_asked_once() {
    let site = site();
    site.bastion.faults(|faults| faults.refuse_auth = true);
    let (one, other) = tokio::join!(refused(&site, "n1"), refused(&site, "n2"));
    insta::assert_snapshot!(one, @"
    cannot reach node `n1`: the bastion host `203.0.113.1` refuses the login of `rke` with the SSH key from `~/.ssh/id_ed25519`
    hint: tried: SHA256:fe85JkIjo8VPe+XqXJGH5Mau1EMFdK1OdKvJUFicyA8. Is `rke` the right user, and is that key in `authorized_keys` of `rke` on the bastion host?
    hint: sshd writes the reason only to its log: `sudo journalctl -u ssh -u sshd -n 20` on the bastion host. Apart from a missing key: a home or `.ssh` that others can write to, `AllowUsers`, `PermitRootLogin`
    ");
    assert_eq!(one.replace("n1", "n2"), other);
    assert_eq!(site.bastion.connections(), 1);
}

/// An agent with these keys, at a socket in the folder.
async fn agent(folder: &TempDir, keys: &[PrivateKey]) -> Login {
    let socket = folder.path().join("agent");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let incoming = futures::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    tokio::spawn(server::serve(Box::pin(incoming), ()));
    let mut client = AgentClient::connect_uds(&socket).await.expect("an agent");
    for key in keys {
        client.add_identity(key, &[]).await.expect("added");
    }
    Login {
        credential: Credential::Agent(Agent {
            socket,
            named: Vec::new(),
            only_named: false,
        }),
        key_source: SSH_AGENT.to_owned(),
        ..FakeHost::new().login()
    }
}

async fn connect(host: &FakeHost, login: &Login) -> Result<Host, HostError> {
    let endpoint = FakeHost::endpoint();
    let keys = KnownHosts::from_text("test", &host.known_hosts(&endpoint), Policy::Strict);
    let name = NodeName::from("n1");
    Host::connect(&name, &endpoint, login, &keys, &host.dial()).await
}

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))
}

#[tokio::test]
async fn an_agents_keys_are_tried_one_after_the_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = FakeHost::new();
    // The fake's own key is the one of seed 1.
    let login = agent(&folder, &[key(8), key(1), key(9)]).await;
    let connected = connect(&host, &login).await.expect("logged in");
    connected.docker_facts().await.expect("Docker answers");
    assert_eq!(host.connections(), 1);
}

/// B10: sshd hangs up after a few keys; an agent may have more, in any order.
#[tokio::test]
async fn the_key_that_the_config_names_is_an_agents_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = FakeHost::new();
    let keys: Vec<PrivateKey> = (1..30).map(key).collect();
    let login = agent(&folder, &keys).await;
    let Credential::Agent(all) = login.credential.clone() else {
        panic!("an agent");
    };
    let public = key(1).public_key().to_openssh().expect("a text");
    let named = vec![format!("{} me@example", public.trim())];
    let credential = Credential::Agent(Agent { named, ..all });
    let login = Login {
        credential,
        ..login
    };
    connect(&host, &login).await.expect("logged in");
}

#[tokio::test]
async fn an_agent_without_the_right_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let login = agent(&folder, &[key(8), key(9)]).await;
    let error = connect(&FakeHost::new(), &login).await.expect_err("no");
    // An agent of this process tells its keys in no order.
    let mut words: Vec<_> = shown(&error).split([' ', ',']).map(str::to_owned).collect();
    words.retain(|word| word.starts_with("SHA256:"));
    assert_eq!(words.len(), 2, "{error:?}");
    assert!(matches!(error, HostError::LoginRefused { .. }), "{error:?}");
}

#[tokio::test]
async fn an_agent_that_has_nothing_or_is_not_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = FakeHost::new();
    let login = agent(&folder, &[]).await;
    let empty = connect(&host, &login).await.expect_err("no keys");
    let nowhere = Login {
        credential: Credential::Agent(Agent {
            socket: "/nowhere/agent".into(),
            named: Vec::new(),
            only_named: false,
        }),
        ..login
    };
    let nowhere = connect(&host, &nowhere).await.expect_err("no agent");
    insta::assert_snapshot!(format!("{}\n\n{}", shown(&empty), shown(&nowhere)), @"
    cannot use the SSH key for node `n1` (10.0.0.2) from ssh-agent: the SSH agent has no keys
    hint: `ssh-add FILE` adds one

    cannot use the SSH key for node `n1` (10.0.0.2) from ssh-agent: the SSH agent at `/nowhere/agent` does not answer: No such file or directory
    hint: is it running, and is `SSH_AUTH_SOCK` its socket? `ssh-add -l` checks both
    ");
    assert_eq!(host.connections(), 0, "nothing is dialled without a key");
}

pub(crate) fn keygen(folder: &Path, arguments: &[&str]) {
    let made = Command::new("ssh-keygen")
        .current_dir(folder)
        .arg("-q")
        .args(arguments)
        .status()
        .expect("this test needs ssh-keygen of the package openssh-client");
    assert!(made.success(), "{arguments:?}");
}

#[tokio::test]
async fn certificates_of_every_kind_of_key_log_in() {
    let host = FakeHost::new();
    host.faults(|faults| faults.only_certificates = true);
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        keygen(folder, &["-t", "ed25519", "-N", "", "-f", "ca"]);
        keygen(folder, &["-t", kind, "-N", "", "-f", "key"]);
        keygen(folder, &["-s", "ca", "-I", "me", "-n", "rke", "key.pub"]);
        let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a file");
        let certificate = Certificate {
            text: read("key-cert.pub"),
            source: "key-cert.pub".to_owned(),
        };
        let with = |certificate| Login {
            credential: Credential::Key(read("key").into(), certificate),
            ..host.login()
        };
        let alone = connect(&host, &with(None)).await;
        assert!(
            matches!(alone, Err(HostError::LoginRefused { .. })),
            "{kind}: {alone:?}"
        );
        let connected = connect(&host, &with(Some(certificate))).await;
        assert!(connected.is_ok(), "{kind}: {connected:?}");
    }
}

/// As ssh: a certificate that sshd does not accept does not keep the key from logging in.
#[tokio::test]
async fn a_key_logs_in_where_its_certificate_is_refused() {
    let host = FakeHost::new();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    keygen(folder, &["-t", "ed25519", "-N", "", "-f", "ca"]);
    let key = host.private_key();
    let parsed = decode_secret_key(&key, None).expect("a key");
    let public = parsed.public_key().to_openssh().expect("its public half");
    fs::write(folder.join("key.pub"), public).expect("a file");
    keygen(folder, &["-s", "ca", "-I", "me", "-n", "rke", "key.pub"]);
    let certificate = Certificate {
        text: fs::read_to_string(folder.join("key-cert.pub")).expect("a file"),
        source: "key-cert.pub".to_owned(),
    };
    host.faults(|faults| faults.no_certificates = true);
    let login = Login {
        credential: Credential::Key(key.into(), Some(certificate)),
        ..host.login()
    };
    let connected = connect(&host, &login).await;
    assert!(connected.is_ok(), "{connected:?}");
}

/// O31: the keys by which a run before verified a node and its bastion are enough for the next one, with nothing on
/// record; and a look tells them.
#[tokio::test]
async fn keys_that_were_verified_before_are_enough() {
    let (bastion, node) = (FakeHost::new(), FakeHost::new());
    bastion.leads_to(FakeNet([(at("n1"), node.clone())].into()));
    let outside = FakeNet([(at(BASTION), bastion.clone())].into());
    let nothing = KnownHosts::from_text("test", "", Policy::Strict);
    let hosts = Hosts::new(Arc::new(outside), Arc::new(nothing));
    let key = |host: &FakeHost, place: &str| {
        let line = host.known_hosts(&at(place));
        let (_, key) = line.trim().split_once(' ').expect("a line");
        key.to_owned()
    };
    let name = NodeName::from("n1");
    let target = |verified: Verified| {
        let target = Target {
            endpoint: at("n1"),
            login: bastion.login(),
            bastions: vec![Bastion {
                endpoint: at(BASTION),
                login: bastion.login(),
                ssh_config: BTreeMap::new(),
            }],
            verified,
        };
        [(name.clone(), Ok(target))].into()
    };
    let verified = Verified {
        host: vec![key(&node, "n1")],
        bastions: vec![vec![key(&bastion, BASTION)]],
    };
    hosts.aim(target(Verified::default()));
    let Err(NotOpen::Host(error)) = hosts.open(&name).await else {
        panic!("nobody knows it")
    };
    assert_ne!(error.obstacle(), Obstacle::Silence, "{error}");
    hosts.aim(BTreeMap::new());
    hosts.aim(target(verified.clone()));
    let host = hosts.open(&name).await.expect("reached");
    assert_eq!(host.host_key(), verified.host[0]);
    assert_eq!(host.bastion_keys(), verified.bastions.concat());
}

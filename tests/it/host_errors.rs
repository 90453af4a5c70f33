//! What can go wrong between us and a node: each with the exact message, the causes, the cures
//! and the class.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::{
    io,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use rke_operator::{
    config::{Credential, Login},
    error::{Explain, Obstacle},
    facts::{Baseline, NodeRecord},
    host::{
        Dial, Host, HostError, KnownHosts, NewFile, OtherMachines, Policy, ServiceRanges, Stream,
        TcpDial,
    },
    model::{ClusterId, Endpoint, FILES_IMAGE, NodeName, Owner, secret::Secret},
};

use crate::fake::{Access, Carrier, FakeHost, FakeNet};

/// The error as a person reads it.
fn shown(error: &HostError) -> String {
    let mut lines = vec![error.to_string()];
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        lines.push(format!("  caused by: {error}"));
        cause = error.source();
    }
    lines.extend(error.hints().iter().map(|hint| format!("hint: {hint}")));
    lines.push(format!("class: {:?}", error.class()));
    lines.join("\n")
}

async fn connect(login: &Login, known: &str, dial: &dyn Dial) -> HostError {
    let keys = KnownHosts::from_text("`known_hosts`", known, Policy::Strict);
    Host::connect(
        &NodeName::from("n1"),
        &FakeHost::endpoint(),
        login,
        &keys,
        dial,
    )
    .await
    .unwrap_err()
}

async fn trusting(host: &FakeHost, keys: &KnownHosts) -> Result<Host, HostError> {
    let name = NodeName::from("n1");
    Host::connect(
        &name,
        &FakeHost::endpoint(),
        &host.login(),
        keys,
        &host.dial(),
    )
    .await
}

fn known(host: &FakeHost) -> String {
    host.known_hosts(&FakeHost::endpoint())
}

#[tokio::test]
async fn nothing_listens() {
    let host = FakeHost::new();
    let error = connect(&host.login(), &known(&host), &FakeNet::default()).await;
    insta::assert_snapshot!(shown(&error), @r"
    cannot reach node `n1` (10.0.0.2)
      caused by: connection refused
    hint: nothing listens on port 22 there: is sshd running, and on that port?
    class: Host
    ");
}

#[tokio::test]
async fn a_closed_port_for_real() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let endpoint = Endpoint {
        address: "127.0.0.1".to_owned(),
        port,
    };
    let host = FakeHost::new();
    let keys = KnownHosts::from_text("test", "", Policy::AcceptNew);
    let name = NodeName::from("127.0.0.1");
    let error = Host::connect(&name, &endpoint, &host.login(), &keys, &TcpDial)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, HostError::Unreachable { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused)
    );
    assert_eq!(
        error.to_string(),
        format!("cannot reach node `127.0.0.1` (127.0.0.1, port {port})")
    );
}

/// Accepts and says nothing, or something else than SSH.
struct Mute(&'static [u8]);

impl Dial for Mute {
    fn dial<'a>(&'a self, _: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let (ours, mut theirs) = tokio::io::duplex(1024);
            tokio::io::AsyncWriteExt::write_all(&mut theirs, self.0).await?;
            if self.0.is_empty() {
                // Kept open for as long as the test runs.
                Box::leak(Box::new(theirs));
            }
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing() {
    let host = FakeHost::new();
    let error = connect(&host.login(), &known(&host), &Mute(b"")).await;
    insta::assert_snapshot!(shown(&error), @r"
    node `n1` (10.0.0.2) did not answer within 20 s: the port is open, and sshd did not say its version
    hint: the node may be out of memory, or its disk may hang: check its console, and `ssh -v` from here
    class: Transient
    ");
}

#[tokio::test]
async fn a_server_that_is_not_sshd() {
    let host = FakeHost::new();
    let http = Mute(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let error = connect(&host.login(), &known(&host), &http).await;
    assert!(matches!(error, HostError::Handshake { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "no SSH session with node `n1` (10.0.0.2); it said: HTTP/1.1 400 Bad Request"
    );
    assert_eq!(error.hints(), ["check that sshd listens on port 22"]);
}

#[tokio::test]
async fn an_unknown_host_key() {
    let host = FakeHost::new();
    let error = connect(&host.login(), "", &host.dial()).await;
    insta::assert_snapshot!(shown(&error), @r"
    the host key of node `n1` (10.0.0.2) is not known: ssh-ed25519 SHA256:4A9jyZBOhnKZvcGQ6TRFbf5Gymb41AfYvYaVmWHD+G4
    hint: compare it with the output of `ssh-keygen -lf` for the key files in `/etc/ssh` on the node
    hint: if it is the same, accept it with `--accept-new-host-keys` (of a `Cluster`: its line in `spec.ssh.knownHosts`, or `AcceptNew` in `spec.ssh.hostKeys`), or add it to the known hosts
    class: User
    ");
}

#[tokio::test]
async fn a_changed_host_key() {
    let host = FakeHost::new();
    let known = known(&host);
    host.change_host_key();
    let error = connect(&host.login(), &known, &host.dial()).await;
    insta::assert_snapshot!(shown(&error), @r"
    the host key of node `n1` (10.0.0.2) has changed or is revoked: ssh-ed25519 SHA256:zbv/nU7iZdO0fB0DalMI70dP6/yFD8sctXvvW4+OokY
    hint: a different key is recorded in `known_hosts` line 1
    hint: if the node was reinstalled, remove that line; if not, this may be a man-in-the-middle attack
    class: Host
    ");
}

#[tokio::test]
async fn a_changed_host_key_is_refused_even_if_new_ones_are_accepted() {
    let host = FakeHost::new();
    let keys = KnownHosts::from_text("test", &known(&host), Policy::AcceptNew);
    host.change_host_key();
    assert!(matches!(
        trusting(&host, &keys).await,
        Err(HostError::HostKeyChanged { .. })
    ));
}

#[tokio::test]
async fn a_new_host_key_is_accepted_once() {
    let host = FakeHost::new();
    let keys = KnownHosts::from_text("test", "", Policy::AcceptNew);
    for _ in 0..2 {
        trusting(&host, &keys).await.unwrap();
    }
    host.change_host_key();
    assert!(matches!(
        trusting(&host, &keys).await,
        Err(HostError::HostKeyChanged { place, .. }) if place == "this run line 1"
    ));
}

#[tokio::test]
async fn the_wrong_user() {
    let host = FakeHost::new();
    let login = Login {
        user: "root".to_owned(),
        ..host.login()
    };
    let error = connect(&login, &known(&host), &host.dial()).await;
    insta::assert_snapshot!(shown(&error), @r"
    node `n1` (10.0.0.2) refuses the login of `root` with the SSH key from `~/.ssh/id_ed25519`
    hint: tried: SHA256:fe85JkIjo8VPe+XqXJGH5Mau1EMFdK1OdKvJUFicyA8. Is `root` the right user, and is that key in `authorized_keys` of `root` on the node?
    hint: sshd writes the reason only to its log: `sudo journalctl -u ssh -u sshd -n 20` on the node. Apart from a missing key: a home or `.ssh` that others can write to, `AllowUsers`, `PermitRootLogin`
    class: Host
    ");
}

#[tokio::test]
async fn a_login_that_is_refused() {
    let host = FakeHost::new();
    host.faults(|faults| faults.refuse_auth = true);
    let error = connect(&host.login(), &known(&host), &host.dial()).await;
    assert!(matches!(error, HostError::LoginRefused { .. }), "{error:?}");
}

#[tokio::test]
async fn keys_that_cannot_be_used() {
    let host = FakeHost::new();
    let with = |key: &str| Login {
        credential: Credential::Key(key.to_owned().into(), None),
        ..host.login()
    };
    let mut texts = String::new();
    for key in [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA me@example",
        "not a key",
    ] {
        let error = connect(&with(key), "", &host.dial()).await;
        texts += &shown(&error);
        texts += "\n\n";
    }
    assert_eq!(host.connections(), 0, "a bad key is found before dialling");
    insta::assert_snapshot!(texts, @"
    cannot use the SSH key for node `n1` (10.0.0.2) from `~/.ssh/id_ed25519`
      caused by: it is protected by a passphrase
    hint: use a key without one; at a terminal an SSH agent can hold it (`ssh-add ~/.ssh/id_ed25519`, and `ssh_agent_auth: true`)
    class: User

    cannot use the SSH key for node `n1` (10.0.0.2) from `~/.ssh/id_ed25519`
      caused by: it is protected by a passphrase
    hint: use a key without one; at a terminal an SSH agent can hold it (`ssh-add ~/.ssh/id_ed25519`, and `ssh_agent_auth: true`)
    class: User

    cannot use the SSH key for node `n1` (10.0.0.2) from `~/.ssh/id_ed25519`
      caused by: it is a public key
    hint: name the private half: the file without `.pub`
    class: User

    cannot use the SSH key for node `n1` (10.0.0.2) from `~/.ssh/id_ed25519`
      caused by: it is not a private key in OpenSSH, PEM or PKCS#8 format
      caused by: Could not read key
    hint: `ssh-keygen -y -f ~/.ssh/id_ed25519` shows whether OpenSSH can read it; if so, `ssh-keygen -p -f ~/.ssh/id_ed25519` writes it again in OpenSSH's format, and `ssh-keygen -p -m PEM -f ~/.ssh/id_ed25519` in PEM
    class: User
    ");
}

/// What a person has to see to, as data.
#[tokio::test]
async fn what_keeps_us_from_a_node_is_told_apart() {
    let host = FakeHost::new();
    let (login, before, dial) = (host.login(), known(&host), host.dial());
    let elsewhere = OtherMachines {
        allowed: vec!["192.0.2.0/24".parse().unwrap()],
        services: ServiceRanges::default(),
    };
    let wrong = Login {
        user: "root".to_owned(),
        ..host.login()
    };
    for (error, obstacle) in [
        (
            connect(&login, &before, &FakeNet::default()).await,
            Obstacle::Silence,
        ),
        (
            connect(&login, &before, &elsewhere).await,
            Obstacle::AddressNotAllowed,
        ),
        (connect(&login, "", &dial).await, Obstacle::HostKeyUnknown),
        (
            connect(&wrong, &before, &dial).await,
            Obstacle::AuthenticationFailed,
        ),
    ] {
        assert_eq!(error.obstacle(), obstacle, "{error}");
    }
    host.change_host_key();
    let error = connect(&login, &before, &dial).await;
    assert_eq!(error.obstacle(), Obstacle::HostKeyChanged);
    host.faults(|faults| faults.access = Access::NotRunning);
    let error = host.connect().await.unwrap().docker_facts().await;
    assert_eq!(error.unwrap_err().obstacle(), Obstacle::DockerUnavailable);
}

#[tokio::test]
async fn docker_cannot_be_reached() {
    let mut texts = Vec::new();
    for access in [
        Access::NoDocker,
        Access::NotRunning,
        Access::Denied,
        Access::SudoOnly,
        Access::NoForwarding,
    ] {
        let fake = FakeHost::new();
        fake.faults(|faults| faults.access = access);
        let host = fake.connect().await.unwrap();
        let error = host.docker_facts().await.unwrap_err();
        texts.push(format!("{access:?}\n{}", shown(&error)));
    }
    insta::assert_snapshot!(texts.join("\n\n"), @r"
    NoDocker
    cannot reach Docker on node `n1` (10.0.0.2): there is no `/var/run/docker.sock` and no `docker` command
    hint: install Docker on the node
    hint: if its socket is not `/var/run/docker.sock`, name it in `docker_socket`
    class: Host

    NotRunning
    cannot reach Docker on node `n1` (10.0.0.2): nothing listens on `/var/run/docker.sock`
    hint: start it on the node: `sudo systemctl enable --now docker`
    hint: if its socket is not `/var/run/docker.sock`, name it in `docker_socket`
    class: Host

    Denied
    cannot reach Docker on node `n1` (10.0.0.2): user `rke` may not use `/var/run/docker.sock`
    hint: add the user to the group `docker`: `sudo usermod -aG docker rke`
    hint: or let sudo run it without a password, with a line of sudoers: `rke ALL=(root) NOPASSWD: /usr/bin/docker`
    class: Host

    SudoOnly
    cannot reach Docker on node `n1` (10.0.0.2): user `rke` may not use `/var/run/docker.sock`
    hint: add the user to the group `docker`: `sudo usermod -aG docker rke`
    hint: or let sudo run it: `sudo -n docker version` as `rke` on the node shows why it does not, and a line of sudoers is `rke ALL=(root) NOPASSWD: /usr/bin/docker`
    class: Host

    NoForwarding
    cannot reach Docker on node `n1` (10.0.0.2): sshd refused the connection to `/var/run/docker.sock`
    hint: sshd on this node may set `AllowStreamLocalForwarding no`, `AllowTcpForwarding no` or `DisableForwarding yes`: allow forwarding for this user
    hint: or install Docker's command line on the node, which can carry the connections instead
    hint: add the user to the group `docker`: `sudo usermod -aG docker rke`
    class: Host
    ");
}

#[tokio::test]
async fn a_node_that_refuses_commands_cannot_be_asked() {
    let fake = FakeHost::new();
    fake.faults(|faults| {
        faults.access = Access::Denied;
        faults.refuse_exec = true;
    });
    let host = fake.connect().await.unwrap();
    let error = host.containers().await.unwrap_err();
    insta::assert_snapshot!(shown(&error), @r"
    cannot reach Docker on node `n1` (10.0.0.2): sshd refused the connection to `/var/run/docker.sock`
      caused by: cannot run a command on node `n1` (10.0.0.2)
      caused by: The request was rejected by the other party
    hint: sshd on this node may set `AllowStreamLocalForwarding no`, `AllowTcpForwarding no` or `DisableForwarding yes`: allow forwarding for this user
    hint: or install Docker's command line on the node, which can carry the connections instead
    hint: add the user to the group `docker`: `sudo usermod -aG docker rke`
    class: Host
    ");
}

#[tokio::test]
async fn too_few_sessions_for_programs_that_carry_streams() {
    let fake = FakeHost::new();
    fake.faults(|faults| {
        faults.access = Access::NoForwarding;
        faults.carrier = Carrier::User;
        faults.max_sessions = Some(1);
    });
    let host = fake.connect().await.unwrap();
    host.containers().await.expect("one at a time");
    fake.faults(|faults| faults.shell_hangs = true);
    let hangs = host.exec("true", Duration::from_secs(60));
    let asked = async {
        // That stream to Docker is kept for a moment.
        while fake
            .executed()
            .last()
            .is_none_or(|script| !script.contains("true\n}"))
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        host.containers().await.unwrap_err()
    };
    let error = tokio::select! {
        error = asked => error,
        _ = hangs => panic!("it hangs"),
    };
    insta::assert_snapshot!(shown(&error), @"
    sshd on node `n1` (10.0.0.2) does not forward what is needed, and `MaxSessions 1` is too few for programs that carry it instead
    hint: set `MaxSessions 3` or more in sshd_config on the node
    hint: or let it forward: `AllowTcpForwarding yes` and `AllowStreamLocalForwarding yes`, with the user in group `docker`; then one session at a time is enough
    class: Host
    ");
}

#[tokio::test]
async fn a_node_without_sessions() {
    let fake = FakeHost::new();
    fake.faults(|faults| faults.max_sessions = Some(0));
    let host = fake.connect().await.unwrap();
    let error = host.exec("true", Duration::from_secs(5)).await.unwrap_err();
    insta::assert_snapshot!(shown(&error), @"
    cannot run a command on node `n1` (10.0.0.2)
      caused by: Failed to open channel (ConnectFailed)
    hint: does sshd on the node let `rke` run commands? Run `sudo sshd -T | grep -i -e maxsessions -e forcecommand` there
    class: Host
    ");
}

#[tokio::test]
async fn ports_that_are_closed_and_ports_that_are_forbidden() {
    let fake = FakeHost::new();
    let host = fake.connect().await.unwrap();
    let Err(closed) = host.local_port(6443).await else {
        panic!("nothing listens there");
    };
    fake.faults(|faults| faults.access = Access::NoForwarding);
    let Err(forbidden) = host.local_port(6443).await else {
        panic!("it is forbidden");
    };
    insta::assert_snapshot!(format!("{}\n\n{}", shown(&closed), shown(&forbidden)), @r"
    nothing answers on port 6443 of node `n1` (10.0.0.2)
    class: Transient

    sshd on node `n1` (10.0.0.2) forbids connections to its port 6443
    hint: sshd on this node may set `AllowTcpForwarding no` or `DisableForwarding yes`: allow forwarding for this user
    hint: or install bash on the node, which can carry the connections instead
    class: Host
    ");
}

/// A host with a claim.
async fn claimed(fake: &FakeHost) -> Host {
    let host = fake.connect().await.unwrap();
    host.import_empty_image().await.unwrap();
    host.create_claim(labels(
        &ClusterId("c1".to_owned()),
        "local",
        &Baseline::default(),
    ))
    .await
    .unwrap();
    host
}

#[tokio::test]
async fn a_full_disk() {
    let fake = FakeHost::new();
    let host = claimed(&fake).await;
    fake.faults(|faults| faults.disk_full = true);
    let content = Secret::new(b"x".to_vec());
    let file = NewFile {
        mode: 0o600,
        owner: Owner::ROOT,
        content: &content,
    };
    let files = [("/etc/kubernetes/a", file), ("/etc/kubernetes/b", file)].into();
    let error = host.write_files(&[].into(), &files).await.unwrap_err();
    insta::assert_snapshot!(shown(&error), @r"
    cannot write files on node `n1` (10.0.0.2): no space left for `/etc/kubernetes/a`
    hint: free space on the file system of `/etc/kubernetes/a` on the node (`df -h` shows them all)
    class: Host
    ");
}

#[tokio::test]
async fn pulls_that_fail() {
    let fake = FakeHost::new();
    fake.docker()
        .registry
        .insert("rancher/pause:3.6".to_owned(), vec![1000]);
    let host = fake.connect().await.unwrap();
    let absent = host
        .pull("rancher/nowhere:1", None, &|_, _| ())
        .await
        .unwrap_err();
    fake.faults(|faults| faults.pull_error = Some("unexpected EOF".to_owned()));
    let broken = host
        .pull("rancher/pause:3.6", None, &|_, _| ())
        .await
        .unwrap_err();
    fake.faults(|faults| faults.disk_full = true);
    let full = host
        .pull("rancher/pause:3.6", None, &|_, _| ())
        .await
        .unwrap_err();
    let texts = [absent, broken, full]
        .map(|error| shown(&error))
        .join("\n\n");
    insta::assert_snapshot!(texts, @r"
    cannot pull image `rancher/nowhere:1` on node `n1` (10.0.0.2): pull access denied for rancher/nowhere:1, repository does not exist or may require 'docker login'
    hint: is the name correct, and may the node's Docker pull it with the login in `private_registries`, if there is one?
    class: User

    cannot pull image `rancher/pause:3.6` on node `n1` (10.0.0.2): unexpected EOF
    hint: can the node reach the image's registry, and does the registry accept pulls with the login in `private_registries`, if there is one? A registry with a rate limit (Docker Hub) answers `toomanyrequests` for a while; a `docker login` on the node is not used
    class: Transient

    cannot pull image `rancher/pause:3.6` on node `n1` (10.0.0.2): no space left for `/var/lib/docker`
    hint: free space on the file system of `/var/lib/docker` on the node (`df -h` shows them all)
    class: Host
    ");
}

#[tokio::test]
async fn a_connection_that_is_cut_in_a_pull_is_no_end_of_the_pull() {
    let fake = FakeHost::new();
    fake.docker()
        .registry
        .insert("rancher/pause:3.6".to_owned(), vec![1000]);
    fake.faults(|faults| faults.cut_in_pull = true);
    let host = fake.connect().await.unwrap();
    let error = host
        .pull("rancher/pause:3.6", None, &|_, _| ())
        .await
        .unwrap_err();
    assert!(matches!(error, HostError::Lost { .. }), "{error:?}");
    assert_eq!(error.class(), rke_operator::error::ErrorClass::Transient);
    assert!(!host.is_alive());
    assert!(matches!(host.images().await, Err(HostError::Lost { .. })));
}

#[tokio::test]
async fn a_connection_that_is_cut_at_any_request_is_an_error() {
    for request in 1..6 {
        let fake = FakeHost::new();
        fake.faults(|faults| faults.cut_at_request = Some(request));
        let host = fake.connect().await.unwrap();
        let result = async {
            host.import_empty_image().await?;
            let id = ClusterId("c1".to_owned());
            host.create_claim(labels(&id, "local", &Baseline::default()))
                .await?;
            host.containers().await?;
            host.images().await
        };
        let error = result.await.unwrap_err();
        assert!(matches!(error, HostError::Lost { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_daemon_that_is_broken() {
    let fake = FakeHost::new();
    fake.docker().images.insert(FILES_IMAGE.to_owned(), 0);
    fake.faults(|faults| faults.internal_errors = true);
    let host = fake.connect().await.unwrap();
    let error = host.start("etcd").await.unwrap_err();
    insta::assert_snapshot!(shown(&error), @r"
    cannot start container `etcd` on node `n1` (10.0.0.2): Docker answered 500: something is broken
    class: Transient
    ");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_silent_is_noticed() {
    let fake = FakeHost::new();
    let host = fake.connect().await.unwrap();
    host.images().await.unwrap();
    fake.freeze();
    let before = tokio::time::Instant::now();
    let error = host.images().await.unwrap_err();
    assert!(matches!(error, HostError::Lost { .. }), "{error:?}");
    assert!(before.elapsed() < Duration::from_secs(30));
    insta::assert_snapshot!(shown(&error), @r"
    the SSH connection to node `n1` (10.0.0.2) was lost: Keepalive timeout
    class: Transient
    ");
}

#[tokio::test(start_paused = true)]
async fn a_slow_daemon_is_waited_for() {
    let fake = FakeHost::new();
    fake.faults(|faults| faults.slow = Some(Duration::from_secs(30)));
    let host = fake.connect().await.unwrap();
    let real = Instant::now();
    host.images().await.unwrap();
    assert!(real.elapsed() < Duration::from_secs(5), "no real waiting");
}

/// Of a claim.
fn labels(id: &ClusterId, name: &str, before: &Baseline) -> BTreeMap<String, String> {
    let record = NodeRecord {
        cluster_id: id.clone(),
        cluster_name: name.to_owned(),
        node: None,
        before: before.clone(),
    };
    record.labels().unwrap()
}

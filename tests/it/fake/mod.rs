//! A server in this process: SSH as sshd speaks it, a small Docker Engine API with a memory, and
//! a file system of a few maps. Reached through pipes (no ports) or on 127.0.0.1.
//!
//! It refuses what sshd and dockerd refuse, with their codes; `contract.rs` keeps it honest.
//! Faults are set with [`FakeHost::faults`], everything that was asked is in
//! [`FakeHost::requests`].

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a server has tasks of its own; a broken fake is a failed test"
)]

mod archive;
mod docker;
mod ssh;
mod state;
mod wire;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use rke_operator::{
    config::{Credential, Login},
    host::{
        Dial, Host, HostError, KnownHosts, Policy, Stream,
        pool::{Hosts, Target, Verified},
    },
    model::{Endpoint, NodeName},
};
use russh::keys::{
    Certificate, PrivateKey,
    ssh_key::{LineEnding, private::Ed25519Keypair},
};
pub(crate) use state::{DockerState, FakeContainer, NodeFile};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What a command leaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    pub(crate) status: u32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// Status 0 and this output.
    pub(crate) fn out(text: impl Into<String>) -> Self {
        Self {
            stdout: text.into(),
            ..Self::default()
        }
    }
}

type Answer = Arc<dyn Fn(&str) -> Said + Send + Sync>;
type PortHandler = Arc<dyn Fn(Box<dyn Stream>) -> BoxFuture<'static, ()> + Send + Sync>;

/// Who serves a port.
struct Port {
    /// The container that has to run for it; nobody in particular.
    of: Option<String>,
    serve: PortHandler,
}

/// How Docker is reached on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    /// It works.
    #[default]
    Open,
    /// Docker is not installed.
    NoDocker,
    /// Docker is installed and not running.
    NotRunning,
    /// The user is not in group docker.
    Denied,
    /// As `Denied`, with password-less sudo.
    SudoOnly,
    /// sshd does not forward, neither to sockets nor to ports.
    NoForwarding,
}

/// Who carries streams where sshd does not: the Docker command line to Docker, bash to ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// The node has no such programs.
    #[default]
    Absent,
    /// The user runs them.
    User,
    /// Docker's is run by sudo.
    Sudo,
}

/// What goes wrong. Everything off by default.
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// sshd refuses every login.
    pub(crate) refuse_auth: bool,
    /// What helps where sshd does not forward.
    pub(crate) carrier: Carrier,
    /// sshd takes certificates only, whoever signed them.
    pub(crate) only_certificates: bool,
    /// sshd takes no certificates: it does not trust who signs them.
    pub(crate) no_certificates: bool,
    /// sshd takes the key and wants a code besides.
    pub(crate) second_factor: bool,
    /// How many sessions sshd allows at once, if not as many as by default.
    pub(crate) max_sessions: Option<usize>,
    /// sshd runs no commands.
    pub(crate) refuse_exec: bool,
    /// How Docker is reached.
    pub(crate) access: Access,
    /// The connection is cut when the request with this number (from 1) arrives.
    pub(crate) cut_at_request: Option<usize>,
    /// The connection is cut in the middle of every pull.
    pub(crate) cut_in_pull: bool,
    /// Pulls fail half-way with these words.
    pub(crate) pull_error: Option<String>,
    /// Every Docker request fails with 500.
    pub(crate) internal_errors: bool,
    /// Every Docker answer takes this long.
    pub(crate) slow: Option<Duration>,
    /// Nothing can be written to the node's disk.
    pub(crate) disk_full: bool,
    /// `/wait` never answers.
    pub(crate) wait_hangs: bool,
    /// Containers of these names fail to start with 500.
    pub(crate) broken: Vec<String>,
    /// Archives of paths that end so are answered with 500: a mount whose server is gone, a bad disk.
    pub(crate) unreadable: Option<String>,
    /// sshd forwards to sockets and not to ports.
    pub(crate) no_ports: bool,
    /// What the login shell's own files print before every command.
    pub(crate) greeting: String,
    /// The login shell prints this and ends with this status, and runs no command.
    pub(crate) shell_instead: Option<(String, u32)>,
    /// The login shell's own files never end.
    pub(crate) shell_hangs: bool,
    /// sshd says this in the middle of a login, and hangs up.
    pub(crate) hang_up: Option<&'static str>,
    /// sshd answers nothing for so long between the login and the first channel.
    pub(crate) slow_session: Option<Duration>,
    /// sshd offers this key exchange alone, with AES-128 and HMAC of SHA-256: as in FIPS mode.
    pub(crate) only_kex: Option<russh::kex::Name>,
    /// Docker answers every request with this status and a body without an end.
    pub(crate) endless: Option<u16>,
}

/// A Docker request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Without the version prefix and the query.
    pub(crate) path: String,
    /// As it was on the wire.
    pub(crate) target: String,
}

struct Inner {
    user: String,
    login_key: PrivateKey,
    host_key: Mutex<PrivateKey>,
    certificate: Mutex<Option<Certificate>>,
    docker: Mutex<DockerState>,
    faults: Mutex<Faults>,
    commands: Mutex<Vec<(String, Answer)>>,
    ports: Mutex<BTreeMap<u16, Vec<Port>>>,
    forwarded: AtomicUsize,
    poured: AtomicUsize,
    asked: Mutex<Vec<Asked>>,
    executed: Mutex<Vec<String>>,
    connections: Mutex<Vec<CancellationToken>>,
    frozen: Mutex<CancellationToken>,
    /// The machines that are reached from here.
    net: Mutex<FakeNet>,
}

/// A fake server; clones are the same server.
#[derive(Clone)]
pub(crate) struct FakeHost(Arc<Inner>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))
}

impl FakeHost {
    /// A server with sshd and an empty Docker, user `rke`.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            user: "rke".to_owned(),
            login_key: key(1),
            host_key: Mutex::new(key(2)),
            certificate: Mutex::default(),
            docker: Mutex::default(),
            faults: Mutex::default(),
            commands: Mutex::default(),
            ports: Mutex::default(),
            forwarded: AtomicUsize::new(0),
            poured: AtomicUsize::new(0),
            asked: Mutex::default(),
            executed: Mutex::default(),
            connections: Mutex::default(),
            frozen: Mutex::default(),
            net: Mutex::default(),
        }))
    }

    /// Makes it a way to these machines.
    pub(crate) fn leads_to(&self, net: FakeNet) {
        *lock(&self.0.net) = net;
    }

    /// Changes what goes wrong.
    pub(crate) fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut lock(&self.0.faults));
    }

    fn fault(&self) -> Faults {
        lock(&self.0.faults).clone()
    }

    /// Docker's memory and the node's files.
    pub(crate) fn docker(&self) -> MutexGuard<'_, DockerState> {
        lock(&self.0.docker)
    }

    /// Answers scripts that contain `needle`; later answers win over earlier ones.
    pub(crate) fn on_exec(
        &self,
        needle: &str,
        answer: impl Fn(&str) -> Said + Send + Sync + 'static,
    ) {
        lock(&self.0.commands).push((needle.to_owned(), Arc::new(answer)));
    }

    /// Serves a port of the node's loopback address.
    pub(crate) fn on_port(
        &self,
        port: u16,
        serve: impl Fn(Box<dyn Stream>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) {
        self.serve_port(port, None, Arc::new(serve));
    }

    /// Serves a port of the node's loopback address while a container of that name runs.
    pub(crate) fn on_port_of(
        &self,
        container: &str,
        port: u16,
        serve: impl Fn(Box<dyn Stream>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) {
        self.serve_port(port, Some(container.to_owned()), Arc::new(serve));
    }

    /// The last one for the same container counts.
    fn serve_port(&self, port: u16, of: Option<String>, serve: PortHandler) {
        let mut ports = lock(&self.0.ports);
        let served = ports.entry(port).or_default();
        served.retain(|other| other.of != of);
        served.push(Port { of, serve });
    }

    /// Who serves a port now, if anybody does.
    fn port(&self, port: u16) -> Option<PortHandler> {
        let ports = lock(&self.0.ports);
        let mut served = ports.get(&port)?.iter();
        let served = served.find(|port| port.of.as_ref().is_none_or(|name| self.runs(name)))?;
        Some(Arc::clone(&served.serve))
    }

    /// True while a container runs.
    pub(crate) fn runs(&self, name: &str) -> bool {
        let docker = self.docker();
        let container = docker.containers.get(name);
        container.is_some_and(|container| container.state == "running")
    }

    /// The ports of the node's loopback address on which somebody listens.
    pub(crate) fn listening(&self) -> Vec<u16> {
        let ports: Vec<u16> = lock(&self.0.ports).keys().copied().collect();
        let listens = |port: &u16| self.port(*port).is_some();
        ports.into_iter().filter(listens).collect()
    }

    /// Every Docker request so far.
    pub(crate) fn requests(&self) -> Vec<Asked> {
        lock(&self.0.asked).clone()
    }

    /// Every script that was run.
    pub(crate) fn executed(&self) -> Vec<String> {
        lock(&self.0.executed).clone()
    }

    /// How many SSH connections there were.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.0.connections).len()
    }

    /// How many Docker requests and scripts there were.
    pub(crate) fn asked(&self) -> usize {
        lock(&self.0.asked).len() + lock(&self.0.executed).len()
    }

    /// How many streams to ports there were, those that nobody served among them.
    pub(crate) fn forwarded(&self) -> usize {
        self.0.forwarded.load(Ordering::Relaxed)
    }

    /// How many bytes of endless bodies were taken.
    pub(crate) fn poured(&self) -> usize {
        self.0.poured.load(Ordering::Relaxed)
    }

    /// Cuts every open connection, as a cable would be.
    pub(crate) fn cut(&self) {
        for connection in lock(&self.0.connections).iter() {
            connection.cancel();
        }
    }

    /// From now on nothing passes in either direction, and nothing is closed.
    pub(crate) fn freeze(&self) {
        lock(&self.0.frozen).cancel();
    }

    /// From now on it shows this certificate of its host key to who asks for one.
    pub(crate) fn certify(&self, certificate: Certificate) {
        *lock(&self.0.certificate) = Some(certificate);
    }

    /// Its host key, as a file has it.
    pub(crate) fn private_host_key(&self) -> String {
        let key = lock(&self.0.host_key).to_openssh(LineEnding::LF);
        key.unwrap().to_string()
    }

    /// The server was installed anew: it has another host key.
    pub(crate) fn change_host_key(&self) {
        *lock(&self.0.host_key) = key(3);
    }

    /// Its host key as `known_hosts` has it: type and key.
    pub(crate) fn host_key(&self) -> String {
        let mut key = lock(&self.0.host_key).public_key().clone();
        key.set_comment("");
        key.to_openssh().unwrap().trim().to_owned()
    }

    /// Where tests say it is.
    pub(crate) fn endpoint() -> Endpoint {
        Endpoint {
            address: "10.0.0.2".to_owned(),
            port: 22,
        }
    }

    /// A login that it takes.
    pub(crate) fn login(&self) -> Login {
        Login {
            user: self.0.user.clone(),
            credential: Credential::Key(self.private_key().into(), None),
            key_source: "`~/.ssh/id_ed25519`".to_owned(),
            docker_socket: "/var/run/docker.sock".to_owned(),
        }
    }

    /// The private key that it takes, in OpenSSH format.
    pub(crate) fn private_key(&self) -> String {
        self.0
            .login_key
            .to_openssh(LineEnding::LF)
            .unwrap()
            .to_string()
    }

    /// `known_hosts` that trust it at an endpoint.
    pub(crate) fn known_hosts(&self, endpoint: &Endpoint) -> String {
        let name = if endpoint.port == 22 {
            endpoint.address.clone()
        } else {
            format!("[{}]:{}", endpoint.address, endpoint.port)
        };
        format!("{name} {}\n", self.host_key())
    }

    /// Connects with the production code, over a pipe.
    pub(crate) async fn connect(&self) -> Result<Host, HostError> {
        let endpoint = Self::endpoint();
        let keys = KnownHosts::from_text("test", &self.known_hosts(&endpoint), Policy::Strict);
        Host::connect(
            &NodeName::from("n1"),
            &endpoint,
            &self.login(),
            &keys,
            &self.dial(),
        )
        .await
    }

    /// A pool with one node, which is this server.
    pub(crate) fn hosts(&self) -> Hosts {
        let endpoint = Self::endpoint();
        let keys = KnownHosts::from_text("test", &self.known_hosts(&endpoint), Policy::Strict);
        let hosts = Hosts::new(Arc::new(self.dial()), Arc::new(keys));
        hosts.aim([(NodeName::from("n1"), Ok(target(endpoint, self.login())))].into());
        hosts
    }

    /// Pipes to this server, whatever the endpoint.
    pub(crate) fn dial(&self) -> FakeDial {
        FakeDial(self.clone())
    }

    /// Serves on 127.0.0.1 until the test ends.
    pub(crate) async fn listen(&self) -> SocketAddr {
        self.listen_at(([127, 0, 0, 1], 0).into()).await
    }

    /// Serves at an address of this machine.
    pub(crate) async fn listen_at(&self, address: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let this = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                this.serve(stream);
            }
        });
        address
    }

    fn serve(&self, stream: impl Stream + 'static) {
        let cut = CancellationToken::new();
        lock(&self.0.connections).push(cut.clone());
        let frozen = lock(&self.0.frozen).clone();
        let (inner, outer) = tokio::io::duplex(64 << 10);
        tokio::spawn(wire::carry(stream, outer, cut.clone(), frozen));
        tokio::spawn(ssh::serve(self.clone(), inner, cut));
    }
}

/// Where a pool connects to, without a bastion.
pub(crate) const fn target(endpoint: Endpoint, login: Login) -> Target {
    Target {
        endpoint,
        login,
        bastions: Vec::new(),
        verified: Verified {
            host: Vec::new(),
            bastions: Vec::new(),
        },
    }
}

/// Opens pipes to one fake server.
#[derive(Clone)]
pub(crate) struct FakeDial(FakeHost);

impl Dial for FakeDial {
    fn dial<'a>(&'a self, _: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            self.0.serve(theirs);
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

/// Several fake servers by address; nothing answers anywhere else.
#[derive(Clone, Default)]
pub(crate) struct FakeNet(pub(crate) BTreeMap<Endpoint, FakeHost>);

impl Dial for FakeNet {
    fn dial<'a>(&'a self, to: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            match self.0.get(to) {
                Some(host) => host.dial().dial(to).await,
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

//! What goes wrong with a machine: the hop and the cause. The cures are in `explain.rs`.
//!
//! Nothing is classified by its text: variants come from I/O error kinds, SSH failure codes,
//! Docker status codes, and from what a diagnosis on the node found.

use std::{borrow::Cow, collections::BTreeMap, fmt, io, sync::Arc, time::Duration};

use crate::model::{Endpoint, NodeName};

/// The kind of the error for an address that is not dialled.
pub(super) const NOT_ALLOWED: io::ErrorKind = io::ErrorKind::Unsupported;

/// Which node, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub node: NodeName,
    /// Where its sshd is.
    pub endpoint: Endpoint,
    /// Who logs in.
    pub user: String,
    /// The way there.
    pub hop: Hop,
}

/// How a connection gets to its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hop {
    /// To the node itself.
    Direct,
    /// To the node, through a connection to the bastion host at this address.
    Through(String),
    /// To a bastion host, for this node among others; through the connection to another one at this address, if any.
    Bastion(Option<String>),
}

impl Place {
    /// The same without the bastion host in between, where the cause names that.
    pub fn without_the_way(&self) -> String {
        let hop = match &self.hop {
            Hop::Direct | Hop::Through(_) => Hop::Direct,
            Hop::Bastion(_) => Hop::Bastion(None),
        };
        let direct = Self {
            hop,
            ..self.clone()
        };
        direct.to_string()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { address, port } = &self.endpoint;
        let is_named = match self.hop {
            Hop::Bastion(_) => {
                write!(f, "the bastion host `{address}`")?;
                true
            }
            Hop::Direct | Hop::Through(_) => {
                write!(f, "node `{}`", self.node)?;
                self.node.0 == *address && *port == 22
            }
        };
        let mut more = Vec::new();
        if !is_named {
            more.push(address.clone());
        }
        if *port != 22 {
            more.push(format!("port {port}"));
        }
        if let Hop::Through(bastion) | Hop::Bastion(Some(bastion)) = &self.hop {
            more.push(format!("through the bastion host {bastion}"));
        }
        if more.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", more.join(", "))
        }
    }
}

/// Which keys a login has tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// `SHA256:…` of those that were offered.
    pub keys: Vec<String>,
    /// Those that were not.
    pub untried: Vec<String>,
}

/// How far a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// sshd has to say its version.
    Version,
    /// Keys are exchanged.
    Keys,
    /// The user logs in.
    Login,
    /// sshd begins the session, and opens channels.
    Session,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "the port is open, and sshd did not say its version",
            Self::Keys => "the SSH handshake",
            Self::Login => "the login",
            Self::Session => "sshd did not begin the session",
        })
    }
}

/// Streams through programs of a node need so many sessions at once: one to Docker, one to a port, and one for commands.
pub(super) const FEWEST_SESSIONS: usize = 3;

/// What is wrong with a private key, or with the agent that has it.
#[derive(Debug, thiserror::Error)]
pub enum KeyProblem {
    /// It has a passphrase.
    #[error("it is protected by a passphrase")]
    Encrypted,
    /// It is the public half.
    #[error("it is a public key")]
    Public,
    /// Its certificate cannot be read.
    #[error("its certificate is not an OpenSSH certificate")]
    Certificate(#[source] russh::keys::ssh_key::Error),
    /// The agent does not answer.
    #[error("the SSH agent at `{0}` does not answer")]
    Agent(String, #[source] Box<russh::keys::Error>),
    /// The agent has no key.
    #[error("the SSH agent has no keys")]
    AgentEmpty,
    /// The agent has none of the keys that may be used.
    #[error("the SSH agent has none of the keys that `IdentityFile` names (`IdentitiesOnly yes`)")]
    AgentLacks,
    /// The agent signs with none of its keys.
    #[error("the SSH agent did not sign with any of its keys")]
    AgentDeclined,
    /// It is not a key in any format we read.
    #[error("it is not a private key in OpenSSH, PEM or PKCS#8 format")]
    Format(#[source] Box<russh::keys::Error>),
}

/// Why something could not be done on a machine.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No TCP connection.
    #[error("cannot reach {at}")]
    Unreachable {
        /// Where.
        at: Arc<Place>,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something took too long.
    #[error("{at} did not answer within {} s: {what}", limit.as_secs())]
    Timeout {
        /// Where.
        at: Arc<Place>,
        /// What was waited for.
        what: Cow<'static, str>,
        /// How long.
        limit: Duration,
    },
    /// SSH took too long.
    #[error("{at} did not answer within {} s: {phase}{}", limit.as_secs(), words(said.as_deref()))]
    Slow {
        /// Where.
        at: Arc<Place>,
        /// What was waited for.
        phase: Phase,
        /// How long.
        limit: Duration,
        /// What sshd said so far.
        said: Option<String>,
    },
    /// The SSH handshake failed.
    #[error("no SSH session with {at}{}", words(said.as_deref()))]
    Handshake {
        /// Where.
        at: Arc<Place>,
        /// What the server said in clear words.
        said: Option<String>,
        /// Why.
        #[source]
        source: Box<russh::Error>,
    },
    /// sshd and this program have no algorithm in common.
    #[error(
        "no SSH session with {at}: its sshd offers no {kind} algorithm that is known here, only {theirs}"
    )]
    NoAlgorithm {
        /// Where.
        at: Arc<Place>,
        /// For what: `kex`, `cipher`, `mac`, `key`.
        kind: String,
        /// What sshd offers.
        theirs: String,
    },
    /// A host key that is not on record.
    #[error("the host key of {at} is not known: {algorithm} {fingerprint}")]
    HostKeyUnknown {
        /// Where.
        at: Arc<Place>,
        /// E.g. `ssh-ed25519`.
        algorithm: String,
        /// `SHA256:…`.
        fingerprint: String,
    },
    /// Another host key than the one on record, or a revoked one.
    #[error("the host key of {at} has changed or is revoked: {algorithm} {fingerprint}")]
    HostKeyChanged {
        /// Where.
        at: Arc<Place>,
        /// E.g. `ssh-ed25519`.
        algorithm: String,
        /// `SHA256:…` of the key that was shown.
        fingerprint: String,
        /// Where the other one is recorded.
        place: String,
    },
    /// The known host keys could not be read or written.
    #[error("cannot look up the host key of {at}")]
    HostKeys {
        /// Where.
        at: Arc<Place>,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The private key cannot be used.
    #[error("cannot use the SSH key for {at} from {key_source}")]
    Key {
        /// Where.
        at: Arc<Place>,
        /// Where the key came from.
        key_source: String,
        /// Why.
        #[source]
        problem: KeyProblem,
    },
    /// sshd does not take user and key.
    #[error(
        "{at} refuses the login of `{}` with {} from {key_source}{}",
        at.user,
        if tried.keys.len() > 1 { format!("{} SSH keys", tried.keys.len()) } else { "the SSH key".to_owned() },
        words(said.as_deref())
    )]
    LoginRefused {
        /// Where.
        at: Arc<Place>,
        /// Where the key came from.
        key_source: String,
        /// Which keys were offered.
        tried: Tried,
        /// sshd ended the connection, and did not ask for another key.
        hung_up: bool,
        /// What it said.
        said: Option<String>,
    },
    /// The bastion host cannot be used.
    #[error("cannot reach {}", at.without_the_way())]
    Bastion {
        /// Where.
        at: Arc<Place>,
        /// Why: every node behind it has the same reason.
        #[source]
        source: Arc<Self>,
    },
    /// The connection broke.
    #[error("the SSH connection to {at} was lost: {why}")]
    Lost {
        /// Where.
        at: Arc<Place>,
        /// What SSH said last.
        why: String,
    },
    /// sshd refuses to run commands.
    #[error("cannot run a command on {at}")]
    Exec {
        /// Where.
        at: Arc<Place>,
        /// Why.
        #[source]
        source: Box<russh::Error>,
    },
    /// sshd forwards no sockets or no ports, and allows too few sessions for programs that carry the connections.
    #[error(
        "sshd on {at} does not forward what is needed, and `MaxSessions {allowed}` is too few for programs that carry it instead"
    )]
    FewSessions {
        /// Where.
        at: Arc<Place>,
        /// How many it allows.
        allowed: usize,
    },
    /// sshd took the key, and wants something else besides.
    #[error(
        "sshd on {at} accepted the key of {key_source} but requires another authentication factor: {methods}"
    )]
    LoginIncomplete {
        /// Where.
        at: Arc<Place>,
        /// Where the key came from.
        key_source: String,
        /// What it wants, in sshd's words.
        methods: String,
    },
    /// A command ended without a status.
    #[error("a command on {at} ended without an exit status: {why}")]
    ExecEnded {
        /// Where.
        at: Arc<Place>,
        /// What is known.
        why: String,
    },
    /// A command wrote more than we take.
    #[error("a command on {at} wrote more than {limit} bytes")]
    ExecOutput {
        /// Where.
        at: Arc<Place>,
        /// How much we take.
        limit: usize,
    },
    /// The login shell did something else than to run the script.
    #[error(
        "the shell of `{}` on {at} {}{}",
        at.user,
        match *.status {
            Some(status) => format!("ended with status {status} and did not run a command"),
            None => format!("did not begin a command within {} s", limit.as_secs()),
        },
        words(said.as_deref())
    )]
    Shell {
        /// Where.
        at: Arc<Place>,
        /// With what it ended, if it did.
        status: Option<u32>,
        /// How long it was waited for.
        limit: Duration,
        /// What it wrote.
        said: Option<String>,
    },
    /// A command did not write what it was to write.
    #[error("half an answer from a command on {at}, it ends with: {output}")]
    HalfAnAnswer {
        /// Where.
        at: Arc<Place>,
        /// The end of its output.
        output: String,
    },
    /// sshd does not forward TCP.
    #[error("sshd on {at} forbids connections to its port {port}")]
    PortForbidden {
        /// Where.
        at: Arc<Place>,
        /// Which.
        port: u16,
    },
    /// Nothing listens there.
    #[error("nothing answers on port {port} of {at}")]
    PortClosed {
        /// Where.
        at: Arc<Place>,
        /// Which.
        port: u16,
    },
    /// No connection from the node to another machine.
    #[error("no connection from {at} to `{to}`{}", if *.forbidden { ": sshd forbids it" } else { "" })]
    NotReached {
        /// From where.
        at: Arc<Place>,
        /// Name and port.
        to: String,
        /// sshd has a rule against it.
        forbidden: bool,
    },
    /// sshd does not forward to sockets.
    #[error("cannot reach Docker on {at}: sshd forbids connections to `{socket}`")]
    ForwardingForbidden {
        /// Where.
        at: Arc<Place>,
        /// Docker's socket.
        socket: String,
    },
    /// Docker is not installed.
    #[error("cannot reach Docker on {at}: there is no `{socket}` and no `docker` command")]
    NoDocker {
        /// Where.
        at: Arc<Place>,
        /// Docker's socket.
        socket: String,
    },
    /// Docker is installed and does not answer.
    #[error("cannot reach Docker on {at}: nothing listens on `{socket}`")]
    DockerNotRunning {
        /// Where.
        at: Arc<Place>,
        /// Docker's socket.
        socket: String,
    },
    /// The user may not use Docker.
    #[error("cannot reach Docker on {at}: user `{}` may not use `{socket}`", at.user)]
    SocketDenied {
        /// Where.
        at: Arc<Place>,
        /// Docker's socket.
        socket: String,
        /// The user has password-less sudo.
        sudo: bool,
    },
    /// sshd refuses, and the node does not tell why.
    #[error("cannot reach Docker on {at}: sshd refused the connection to `{socket}`")]
    TunnelRefused {
        /// Where.
        at: Arc<Place>,
        /// Docker's socket.
        socket: String,
        /// Why the node could not be asked, if it could not.
        #[source]
        source: Option<Box<Self>>,
    },
    /// Docker answered with an error.
    #[error("cannot {doing} on {at}: Docker answered {status}: {message}")]
    Docker {
        /// Where.
        at: Arc<Place>,
        /// E.g. ``create container `etcd` ``.
        doing: String,
        /// HTTP status.
        status: u16,
        /// Docker's words.
        message: String,
    },
    /// No usable answer came from Docker.
    #[error("cannot {doing} on {at}: no answer from Docker")]
    DockerIo {
        /// Where.
        at: Arc<Place>,
        /// What was tried.
        doing: String,
        /// Why.
        #[source]
        source: Box<bollard::errors::Error>,
    },
    /// Docker lists more than is read.
    #[error("Docker on {at} has {has} {what}; no more than {most} are read")]
    TooMany {
        /// Where.
        at: Arc<Place>,
        /// What.
        what: &'static str,
        /// How many there are.
        has: usize,
        /// How many are read.
        most: usize,
    },
    /// A pull failed.
    #[error("cannot pull image `{image}` on {at}: {message}")]
    Pull {
        /// Where.
        at: Arc<Place>,
        /// Which.
        image: String,
        /// Docker's status, if it refused at once.
        status: Option<u16>,
        /// Docker's words.
        message: String,
    },
    /// An image that should be there is not.
    #[error("image `{image}` is not on {at}")]
    ImageMissing {
        /// Where.
        at: Arc<Place>,
        /// Which.
        image: String,
    },
    /// A container of that name is there.
    #[error("container `{name}` is already on {at}")]
    NameTaken {
        /// Where.
        at: Arc<Place>,
        /// Which.
        name: String,
        /// Its labels.
        by: BTreeMap<String, String>,
    },
    /// A file system is full.
    #[error("cannot {doing} on {at}: no space left for `{path}`")]
    DiskFull {
        /// Where.
        at: Arc<Place>,
        /// What was tried.
        doing: String,
        /// A path on the full file system.
        path: String,
    },
    /// A file that was written does not read back as it was written.
    #[error("`{path}` on {at} is not what was written: {what}")]
    ReadBack {
        /// Where.
        at: Arc<Place>,
        /// Which.
        path: String,
        /// What differs; never the content.
        what: &'static str,
    },
    /// An archive could not be made or understood.
    #[error("cannot exchange files with {at}")]
    Archive {
        /// Where.
        at: Arc<Place>,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A helper did not end in time.
    #[error("a helper on {at} did not end within {} s", limit.as_secs())]
    JobTimeout {
        /// Where.
        at: Arc<Place>,
        /// How long.
        limit: Duration,
        /// What it had written.
        log: String,
    },
}

impl HostError {
    /// Where it happened.
    pub fn place(&self) -> &Place {
        match self {
            Self::Unreachable { at, .. }
            | Self::Bastion { at, .. }
            | Self::Timeout { at, .. }
            | Self::Slow { at, .. }
            | Self::NoAlgorithm { at, .. }
            | Self::Shell { at, .. }
            | Self::TooMany { at, .. }
            | Self::Handshake { at, .. }
            | Self::HostKeyUnknown { at, .. }
            | Self::HostKeyChanged { at, .. }
            | Self::HostKeys { at, .. }
            | Self::Key { at, .. }
            | Self::LoginRefused { at, .. }
            | Self::LoginIncomplete { at, .. }
            | Self::Lost { at, .. }
            | Self::Exec { at, .. }
            | Self::FewSessions { at, .. }
            | Self::ExecEnded { at, .. }
            | Self::ExecOutput { at, .. }
            | Self::HalfAnAnswer { at, .. }
            | Self::PortForbidden { at, .. }
            | Self::PortClosed { at, .. }
            | Self::NotReached { at, .. }
            | Self::ForwardingForbidden { at, .. }
            | Self::NoDocker { at, .. }
            | Self::DockerNotRunning { at, .. }
            | Self::SocketDenied { at, .. }
            | Self::TunnelRefused { at, .. }
            | Self::Docker { at, .. }
            | Self::DockerIo { at, .. }
            | Self::Pull { at, .. }
            | Self::ImageMissing { at, .. }
            | Self::NameTaken { at, .. }
            | Self::DiskFull { at, .. }
            | Self::ReadBack { at, .. }
            | Self::Archive { at, .. }
            | Self::JobTimeout { at, .. } => at,
        }
    }

    /// Docker's HTTP status, when it answered with an error.
    pub const fn docker_status(&self) -> Option<u16> {
        if let Self::Docker { status, .. } = self {
            Some(*status)
        } else {
            None
        }
    }
}

/// What the other side said, as the end of a sentence.
fn words(said: Option<&str>) -> String {
    said.map(|said| format!("; it said: {said}"))
        .unwrap_or_default()
}

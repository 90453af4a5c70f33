//! The class of a [`HostError`], and what a person can do about it. Pure.

use std::{borrow::Cow, io};

use super::error::{Hop, HostError, KeyProblem, Place};
use crate::error::{ErrorClass, Explain};

/// How an error may pass by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// The node or its Docker is away; it may come back.
    Away,
    /// Something on a node that answers went wrong once.
    Hiccup,
}

impl HostError {
    /// Whether it may pass by itself, and how. `None`: someone must do something.
    pub fn passing(&self) -> Option<Passing> {
        match self {
            Self::Bastion { source, .. } => source.passing(),
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Handshake { .. }
            | Self::Lost { .. }
            | Self::DockerNotRunning { .. }
            | Self::DockerIo { .. } => Some(Passing::Away),
            Self::Pull { status, .. } => match status {
                Some(404) => None,
                _ => Some(Passing::Hiccup),
            },
            Self::Docker { status, .. } if *status >= 500 => Some(Passing::Hiccup),
            Self::ExecEnded { .. } | Self::PortClosed { .. } => Some(Passing::Hiccup),
            Self::NotReached { forbidden, .. } => (!forbidden).then_some(Passing::Hiccup),
            Self::Docker { .. }
            | Self::HostKeyUnknown { .. }
            | Self::HostKeyChanged { .. }
            | Self::HostKeys { .. }
            | Self::Key { .. }
            | Self::LoginRefused { .. }
            | Self::LoginIncomplete { .. }
            | Self::Exec { .. }
            | Self::ExecOutput { .. }
            | Self::HalfAnAnswer { .. }
            | Self::PortForbidden { .. }
            | Self::ForwardingForbidden { .. }
            | Self::NoDocker { .. }
            | Self::SocketDenied { .. }
            | Self::TunnelRefused { .. }
            | Self::ImageMissing { .. }
            | Self::NameTaken { .. }
            | Self::DiskFull { .. }
            | Self::ReadBack { .. }
            | Self::Archive { .. }
            | Self::JobTimeout { .. } => None,
        }
    }
}

impl Explain for HostError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Bastion { source, .. } => source.class(),
            Self::Key { .. } | Self::HostKeyUnknown { .. } => ErrorClass::User,
            Self::Pull { status, .. } if *status == Some(404) => ErrorClass::User,
            Self::Docker { status, .. } if *status < 500 && *status != 409 => ErrorClass::Host,
            Self::Unreachable { .. }
            | Self::Handshake { .. }
            | Self::HostKeyChanged { .. }
            | Self::HostKeys { .. }
            | Self::LoginRefused { .. }
            | Self::LoginIncomplete { .. }
            | Self::Exec { .. }
            | Self::ExecEnded { .. }
            | Self::ExecOutput { .. }
            | Self::HalfAnAnswer { .. }
            | Self::PortForbidden { .. }
            | Self::NotReached { .. }
            | Self::ForwardingForbidden { .. }
            | Self::NoDocker { .. }
            | Self::DockerNotRunning { .. }
            | Self::SocketDenied { .. }
            | Self::TunnelRefused { .. }
            | Self::NameTaken { .. }
            | Self::DiskFull { .. }
            | Self::ReadBack { .. } => ErrorClass::Host,
            Self::Timeout { .. }
            | Self::Lost { .. }
            | Self::PortClosed { .. }
            | Self::Docker { .. }
            | Self::DockerIo { .. }
            | Self::Pull { .. }
            | Self::ImageMissing { .. }
            | Self::Archive { .. }
            | Self::JobTimeout { .. } => ErrorClass::Transient,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Bastion { source, .. } => source.hints(),
            Self::Unreachable { at, source } => unreachable(at, source.kind()),
            Self::Handshake { at, .. } => {
                let port = at.endpoint.port;
                vec![format!("is it sshd that listens on port {port}?").into()]
            }
            Self::HostKeyUnknown { .. } => unknown_key(),
            Self::HostKeyChanged { place, .. } => changed_key(place),
            Self::Key { problem, .. } => vec![bad_key(problem).into()],
            Self::LoginRefused {
                at, fingerprints, ..
            } => refused(at, fingerprints),
            Self::LoginIncomplete { at, .. } => vec![
                format!(
                    "sshd on the node asks for more than a key: let `{}` log in with a key alone \
                     (a `Match User` block with `AuthenticationMethods publickey`)",
                    at.user
                )
                .into(),
            ],
            Self::PortForbidden { .. } => vec![forbidden("`AllowTcpForwarding no`")],
            Self::NotReached {
                forbidden: true, ..
            } => {
                vec![forbidden("`AllowTcpForwarding no` or `PermitOpen`")]
            }
            Self::NotReached { to, .. } => vec![
                format!("on the node: is the name known, does something listen there, and does a firewall let it through? `nc -vz {}` tells", to.replace(':', " ")).into(),
            ],
            Self::ForwardingForbidden { .. } => vec![forbidden(SOCKETS)],
            Self::NoDocker { socket, .. } => {
                vec!["install Docker on the node".into(), other_socket(socket)]
            }
            Self::DockerNotRunning { socket, .. } => vec![
                "start it on the node: `sudo systemctl enable --now docker`".into(),
                other_socket(socket),
            ],
            Self::SocketDenied {
                at, sudo: false, ..
            } => vec![group(&at.user)],
            Self::SocketDenied { at, sudo: true, .. } => vec![
                group(&at.user),
                "using Docker through sudo is not supported yet".into(),
            ],
            Self::TunnelRefused { at, .. } => {
                vec![forbidden(SOCKETS), group(&at.user)]
            }
            Self::Pull { status, .. } if *status == Some(404) => {
                vec!["is the name right, and may the node's Docker pull it with the login that `private_registries` has for it, if any?".into()]
            }
            Self::Pull { .. } => vec![
                "can the node reach the image's registry, and does it take pulls with the login that \
                 `private_registries` has for it, if any? One that counts them (Docker Hub) answers \
                 `toomanyrequests` for a while; a login of `docker login` on the node is not used"
                    .into(),
            ],
            Self::NameTaken { name, .. } => vec![
                format!("if it is not needed, remove it on the node: `docker rm -f {name}`").into(),
            ],
            Self::DiskFull { path, .. } => {
                vec![format!("make room on the file system of `{path}` on the node").into()]
            }
            Self::Timeout { .. }
            | Self::HostKeys { .. }
            | Self::Lost { .. }
            | Self::Exec { .. }
            | Self::ExecEnded { .. }
            | Self::ExecOutput { .. }
            | Self::HalfAnAnswer { .. }
            | Self::PortClosed { .. }
            | Self::Docker { .. }
            | Self::DockerIo { .. }
            | Self::ImageMissing { .. }
            | Self::ReadBack { .. }
            | Self::Archive { .. }
            | Self::JobTimeout { .. } => Vec::new(),
        }
    }
}

fn unreachable(at: &Place, kind: io::ErrorKind) -> Vec<Cow<'static, str>> {
    let port = at.endpoint.port;
    if matches!(at.hop, Hop::Through(_)) && kind == io::ErrorKind::PermissionDenied {
        return vec![
            "sshd on the bastion host may set `AllowTcpForwarding no` or `PermitOpen`: it must be allowed for this user".into(),
        ];
    }
    if matches!(at.hop, Hop::Through(_)) && kind == io::ErrorKind::ConnectionRefused {
        return vec![
            format!(
                "the bastion host has no way to port {port} of `{}`: is sshd running there, and on that port?",
                at.endpoint.address
            )
            .into(),
        ];
    }
    let hint = if kind == io::ErrorKind::ConnectionRefused {
        format!("nothing listens on port {port} there: is sshd running, and on that port?")
    } else if kind == io::ErrorKind::TimedOut {
        format!("is the node up, and does a firewall let port {port} through?")
    } else {
        format!("is `{}` the right address?", at.endpoint.address)
    };
    vec![hint.into()]
}

fn unknown_key() -> Vec<Cow<'static, str>> {
    vec![
        "compare it with `ssh-keygen -lf` of the key files in `/etc/ssh` on the node".into(),
        "if it is the same, accept it with `--accept-new-host-keys`, or add it to the known hosts"
            .into(),
    ]
}

fn changed_key(place: &str) -> Vec<Cow<'static, str>> {
    vec![
        format!("the other key is on record in {place}").into(),
        "if the node was installed anew, take that line away; if not, someone may be listening"
            .into(),
    ]
}

const fn bad_key(problem: &KeyProblem) -> &'static str {
    match problem {
        KeyProblem::Encrypted => {
            "give it to an SSH agent (`ssh-add FILE`) and write `ssh_agent_auth: true`, or name a key without a passphrase"
        }
        KeyProblem::Certificate(_) => "`ssh-keygen -L -f` shows whether OpenSSH can read it",
        KeyProblem::Agent(..) => {
            "is it running, and is `SSH_AUTH_SOCK` its socket? `ssh-add -l` tells"
        }
        KeyProblem::AgentDeclined => "is it locked (`ssh-add -X`), or was a confirmation declined?",
        KeyProblem::AgentEmpty => "`ssh-add FILE` gives it one",
        KeyProblem::Public => "name the private half: the file without `.pub`",
        KeyProblem::Format(_) => "`ssh-keygen -y -f` shows whether OpenSSH can read it",
    }
}

fn refused(at: &Place, fingerprints: &[String]) -> Vec<Cow<'static, str>> {
    let user = &at.user;
    let machine = match at.hop {
        Hop::Direct | Hop::Through(_) => "the node",
        Hop::Bastion => "the bastion host",
    };
    let shown = fingerprints.join(", ");
    let (keys, whose) = match fingerprints {
        [_] => ("key is", "its public half"),
        _ => ("keys are", "the public half of one"),
    };
    vec![
        format!(
            "the {keys} {shown}: {whose} must be in `authorized_keys` of `{user}` on {machine}"
        )
        .into(),
        format!("is `{user}` the right user?").into(),
    ]
}

/// What forbids connections to sockets: OpenSSH's word for ports takes them along.
const SOCKETS: &str = "`AllowStreamLocalForwarding no`, `AllowTcpForwarding no`";

fn forbidden(options: &str) -> Cow<'static, str> {
    format!(
        "sshd on this node may set {options} or `DisableForwarding yes`: it must be allowed for this user"
    )
    .into()
}

fn group(user: &str) -> Cow<'static, str> {
    format!("the user must be in group docker: `sudo usermod -aG docker {user}`").into()
}

fn other_socket(socket: &str) -> Cow<'static, str> {
    format!("if its socket is not `{socket}`, name it in `docker_socket`").into()
}

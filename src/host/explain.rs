//! The class of a [`HostError`], and what a person can do about it. Pure.

use std::{borrow::Cow, io};

use super::{
    error::{FEWEST_SESSIONS, Hop, HostError, KeyProblem, NOT_ALLOWED, Phase, Place, Tried},
    words,
};
use crate::{
    error::{ErrorClass, Explain, Obstacle, Passing, Subject},
    model::{printable, shell_word},
};

impl Explain for HostError {
    fn obstacle(&self) -> Obstacle {
        match self {
            Self::Unreachable { source, .. } if source.kind() == NOT_ALLOWED => {
                Obstacle::AddressNotAllowed
            }
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Slow { .. }
            | Self::Handshake { .. }
            | Self::Lost { .. } => Obstacle::Silence,
            Self::HostKeyUnknown { .. } => Obstacle::HostKeyUnknown,
            Self::HostKeyChanged { .. } => Obstacle::HostKeyChanged,
            Self::Key { .. } | Self::LoginRefused { .. } | Self::LoginIncomplete { .. } => {
                Obstacle::AuthenticationFailed
            }
            Self::ForwardingForbidden { .. }
            | Self::NoDocker { .. }
            | Self::DockerNotRunning { .. }
            | Self::SocketDenied { .. }
            | Self::TunnelRefused { .. }
            | Self::FewSessions { .. }
            | Self::Docker { .. }
            | Self::DockerIo { .. } => Obstacle::DockerUnavailable,
            // A node behind a bastion host that fails was not called.
            Self::Bastion { source, .. } if source.obstacle() == Obstacle::Silence => {
                Obstacle::Other
            }
            Self::Bastion { source, .. } => source.obstacle(),
            Self::NoAlgorithm { .. }
            | Self::HostKeys { .. }
            | Self::Exec { .. }
            | Self::ExecEnded { .. }
            | Self::ExecOutput { .. }
            | Self::Shell { .. }
            | Self::HalfAnAnswer { .. }
            | Self::PortForbidden { .. }
            | Self::PortClosed { .. }
            | Self::NotReached { .. }
            | Self::TooMany { .. }
            | Self::Pull { .. }
            | Self::ImageMissing { .. }
            | Self::NameTaken { .. }
            | Self::DiskFull { .. }
            | Self::ReadBack { .. }
            | Self::Archive { .. }
            | Self::JobTimeout { .. } => Obstacle::Other,
        }
    }

    fn subject(&self) -> Option<Subject> {
        let at = self.place();
        let through = match &at.hop {
            Hop::Through(bastion) if !matches!(self, Self::Bastion { .. }) => Some(bastion.clone()),
            Hop::Through(_) | Hop::Direct => None,
            // It is about the bastion host.
            Hop::Bastion(_) => return None,
        };
        Some(Subject {
            words: if matches!(self, Self::Bastion { .. }) {
                at.without_the_way()
            } else {
                at.to_string()
            },
            through,
        })
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::Bastion { source, .. } => source.class(),
            Self::Key { .. } | Self::HostKeyUnknown { .. } => ErrorClass::User,
            Self::Pull { status, .. } if *status == Some(404) => ErrorClass::User,
            Self::Docker { status, .. } if *status < 500 && *status != 409 => ErrorClass::Host,
            Self::Unreachable { .. }
            | Self::Handshake { .. }
            | Self::NoAlgorithm { .. }
            | Self::Shell { .. }
            | Self::TooMany { .. }
            | Self::HostKeyChanged { .. }
            | Self::HostKeys { .. }
            | Self::LoginRefused { .. }
            | Self::LoginIncomplete { .. }
            | Self::Exec { .. }
            | Self::FewSessions { .. }
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
            | Self::Slow { .. }
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

    fn passing(&self) -> Option<Passing> {
        match self {
            Self::Bastion { source, .. } => source.passing(),
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Slow { .. }
            | Self::Lost { .. }
            | Self::DockerNotRunning { .. }
            | Self::DockerIo { .. } => Some(Passing::Away),
            // A server of another protocol continues to speak it.
            Self::Handshake { source, .. } => {
                (!matches!(**source, russh::Error::Version)).then_some(Passing::Away)
            }
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
            | Self::NoAlgorithm { .. }
            | Self::Shell { .. }
            | Self::TooMany { .. }
            | Self::LoginRefused { .. }
            | Self::LoginIncomplete { .. }
            | Self::Exec { .. }
            | Self::FewSessions { .. }
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

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Bastion { source, .. } => source.hints(),
            Self::Unreachable { at, source } => unreachable(at, source.kind()),
            Self::Handshake { at, said, source } => handshake(at, said.as_deref(), source),
            Self::Slow { phase, .. } => vec![phase.cure().into()],
            Self::NoAlgorithm { .. } => vec![NO_ALGORITHM.into()],
            Self::Shell { at, said, .. } => vec![shell(at, said.as_deref().unwrap_or_default())],
            Self::HostKeyUnknown { .. } => unknown_key(),
            Self::HostKeyChanged { place, .. } => changed_key(place),
            Self::Key {
                problem,
                key_source,
                ..
            } => vec![bad_key(problem, &file_word(key_source)).into()],
            Self::LoginRefused {
                at, tried, hung_up, ..
            } => refused(at, tried, *hung_up),
            Self::LoginIncomplete { at, .. } => vec![
                format!(
                    "sshd on the node requires more than a key: allow `{}` to log in with only a key \
                     (a `Match User` block with `AuthenticationMethods publickey`)",
                    at.user
                )
                .into(),
            ],
            Self::Exec { at, .. } => vec![no_commands(&at.user)],
            Self::FewSessions { .. } => few_sessions(),
            Self::PortForbidden { .. } => or_carried("`AllowTcpForwarding no`", "bash"),
            Self::NotReached { to, forbidden, .. } => vec![not_reached(to, *forbidden)],
            Self::ForwardingForbidden { .. } => or_carried(SOCKETS, DOCKER_CLI),
            Self::NoDocker { socket, .. } => {
                vec!["install Docker on the node".into(), other_socket(socket)]
            }
            Self::DockerNotRunning { socket, .. } => vec![
                "start it on the node: `sudo systemctl enable --now docker`".into(),
                other_socket(socket),
            ],
            Self::SocketDenied { at, sudo, .. } => denied(&at.user, *sudo),
            Self::TunnelRefused { at, .. } => {
                let mut hints = or_carried(SOCKETS, DOCKER_CLI);
                hints.push(group(&at.user));
                hints
            }
            Self::Pull { status, .. } if *status == Some(404) => {
                vec!["is the name correct, and may the node's Docker pull it with the login in \
                `private_registries`, if there is one?".into()]
            }
            Self::Pull { .. } => vec![
                "can the node reach the image's registry, and does the registry accept pulls with the login in \
                `private_registries`, if there is one? A registry with a rate limit (Docker Hub) answers \
                `toomanyrequests` for a while; a `docker login` on the node is not used"
                    .into(),
            ],
            Self::NameTaken { name, .. } => vec![
                format!("if it is not needed, remove it on the node: `docker rm -f {name}`").into(),
            ],
            Self::DiskFull { path, .. } => {
                vec![
                    format!("free space on the file system of `{path}` on the node (`df -h` shows them all)")
                        .into(),
                ]
            }
            Self::Docker { message, .. } if message.contains("no space left on device") => {
                vec!["free space on the file system of that path on the node (`df -h` shows them all)".into()]
            }
            Self::Timeout { .. }
            | Self::TooMany { .. }
            | Self::HostKeys { .. }
            | Self::Lost { .. }
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

/// `is_forbidden`: sshd does not forward there.
fn not_reached(to: &str, is_forbidden: bool) -> Cow<'static, str> {
    if is_forbidden {
        return forbidden("`AllowTcpForwarding no` or `PermitOpen`");
    }
    let place = to.replace(':', " ");
    let hint = format!(
        "on the node, check that the name resolves, that something listens there, and that no firewall blocks it: `nc -vz {place}`"
    );
    hint.into()
}

const NO_ALGORITHM: &str = "rke-operator offers the same algorithms as ssh by default: allow one of them in sshd on \
the node (`sudo sshd -T | grep -e ciphers -e macs -e kex`)";

fn unreachable(at: &Place, kind: io::ErrorKind) -> Vec<Cow<'static, str>> {
    let port = at.endpoint.port;
    if let Hop::Through(bastion) | Hop::Bastion(Some(bastion)) = &at.hop {
        if kind == io::ErrorKind::PermissionDenied {
            return vec![
                format!("sshd on the bastion host {bastion} may set `AllowTcpForwarding no` or `PermitOpen`: allow forwarding for this user").into(),
            ];
        }
        if kind == io::ErrorKind::ConnectionRefused {
            return vec![
                format!(
                    "the bastion host {bastion} cannot reach port {port} of `{}`: is sshd running there, and on that port?",
                    at.endpoint.address
                )
                .into(),
            ];
        }
    }
    let address = &at.endpoint.address;
    let hint = if kind == io::ErrorKind::ConnectionRefused {
        format!("nothing listens on port {port} there: is sshd running, and on that port?")
    } else if kind == io::ErrorKind::TimedOut {
        format!("is the node up, and does a firewall let port {port} through?")
    } else if kind == io::ErrorKind::HostUnreachable {
        // In the local network ARP gets no answer for the address; elsewhere a router reports it.
        "nothing answers there: is the node up, and is that its address?".to_owned()
    } else if kind == io::ErrorKind::NetworkUnreachable {
        format!("this machine has no route to `{address}`: `ip route get {address}` here shows why")
    } else {
        "is that the right address?".to_owned()
    };
    vec![hint.into()]
}

fn no_commands(user: &str) -> Cow<'static, str> {
    format!(
        "does sshd on the node let `{user}` run commands? Run `sudo sshd -T | grep -i -e maxsessions -e forcecommand` there"
    )
    .into()
}

fn few_sessions() -> Vec<Cow<'static, str>> {
    vec![
        format!("set `MaxSessions {FEWEST_SESSIONS}` or more in sshd_config on the node").into(),
        "or let it forward: `AllowTcpForwarding yes` and `AllowStreamLocalForwarding yes`, with the user in group \
         `docker`; then one session at a time is enough"
            .into(),
    ]
}

const DOCKER_CLI: &str = "Docker's command line";

/// What sshd says no to, and the program that would carry the connections.
fn or_carried(setting: &str, program: &str) -> Vec<Cow<'static, str>> {
    vec![
        forbidden(setting),
        format!("or install {program} on the node, which can carry the connections instead").into(),
    ]
}

/// Of a user who may not use Docker. `sudo`: they may run other programs as root without a password.
fn denied(user: &str, sudo: bool) -> Vec<Cow<'static, str>> {
    let line = format!("`{user} ALL=(root) NOPASSWD: /usr/bin/docker`");
    let by_sudo = if sudo {
        format!(
            "or let sudo run it: `sudo -n docker version` as `{user}` on the node shows why it does not, and a line \
             of sudoers is {line}"
        )
    } else {
        format!("or let sudo run it without a password, with a line of sudoers: {line}")
    };
    vec![group(user), by_sudo.into()]
}

fn unknown_key() -> Vec<Cow<'static, str>> {
    vec![
        "compare it with the output of `ssh-keygen -lf` for the key files in `/etc/ssh` on the node".into(),
        "if it is the same, accept it with `--accept-new-host-keys` (of a `Cluster`: its line in `spec.ssh.knownHosts`, or `AcceptNew` in `spec.ssh.hostKeys`), or add it to the known hosts"
            .into(),
    ]
}

fn changed_key(place: &str) -> Vec<Cow<'static, str>> {
    vec![
        format!("a different key is recorded in {place}").into(),
        "if the node was reinstalled, remove that line; if not, this may be a man-in-the-middle attack"
            .into(),
    ]
}

/// The file of a key as a word of a command, where its source is a path as it is written.
fn file_word(source: &str) -> String {
    // A shell expands the `~` of a name without blanks only outside of quotes.
    let plain = |c: char| c.is_alphanumeric() || "_-./~".contains(c);
    let quoted = source
        .strip_prefix('`')
        .and_then(|rest| rest.strip_suffix('`'));
    let source = quoted.unwrap_or(source);
    if !source.contains('/') {
        "FILE".to_owned()
    } else if source.starts_with("~/") && source.chars().all(plain) {
        source.to_owned()
    } else {
        shell_word(source).into_owned()
    }
}

/// `file`: that of the key, as a word of a command.
fn bad_key(problem: &KeyProblem, file: &str) -> String {
    match problem {
        KeyProblem::Encrypted => format!(
            "use a key without one; at a terminal an SSH agent can hold it (`ssh-add {file}`, and `ssh_agent_auth: true`)"
        ),
        KeyProblem::Certificate(_) => {
            "`ssh-keygen -L -f` shows whether OpenSSH can read it".to_owned()
        }
        KeyProblem::Agent(..) => {
            "is it running, and is `SSH_AUTH_SOCK` its socket? `ssh-add -l` checks both".to_owned()
        }
        KeyProblem::AgentDeclined => {
            "is it locked (`ssh-add -X`), or was a confirmation declined?".to_owned()
        }
        KeyProblem::AgentEmpty => "`ssh-add FILE` adds one".to_owned(),
        KeyProblem::AgentLacks => {
            "`ssh-add FILE` adds one; its public half must be in `FILE.pub` next to the `IdentityFile`"
                .to_owned()
        }
        KeyProblem::Public => "name the private half: the file without `.pub`".to_owned(),
        KeyProblem::Format(_) => format!(
            "`ssh-keygen -y -f {file}` shows whether OpenSSH can read it; if so, `ssh-keygen -p -f {file}` writes it again in OpenSSH's format, and `ssh-keygen -p -m PEM -f {file}` in PEM"
        ),
    }
}

fn refused(at: &Place, tried: &Tried, hung_up: bool) -> Vec<Cow<'static, str>> {
    let user = &at.user;
    let machine = machine(at);
    let shown = tried.keys.join(", ");
    let mut hints = Vec::new();
    if !tried.untried.is_empty() {
        let count = tried.keys.len();
        let after = if hung_up {
            format!("sshd hung up after {count} keys (`MaxAuthTries`)")
        } else {
            format!(
                "{count} keys were tried, after which sshd hangs up by default (`MaxAuthTries`)"
            )
        };
        hints.push(
            format!(
                "{after}; not tried: {}. Set the right one in `ssh_key_path`: with its `.pub` next to it, it is \
                tried first",
                tried.untried.join(", ")
            )
            .into(),
        );
    }
    let is_it = match tried.keys.as_slice() {
        [_] => "is that key",
        _ => "is one of these keys",
    };
    hints.push(
        format!(
            "tried: {shown}. Is `{user}` the right user, and {is_it} in `authorized_keys` of `{user}` on {machine}?"
        )
        .into(),
    );
    hints.push(
        format!(
            "sshd writes the reason only to its log: `sudo journalctl -u ssh -u sshd -n 20` on {machine}. Apart \
            from a missing key: a home or `.ssh` that others can write to, `AllowUsers`, `PermitRootLogin`"
        )
        .into(),
    );
    hints
}

const fn machine(at: &Place) -> &'static str {
    match at.hop {
        Hop::Direct | Hop::Through(_) => "the node",
        Hop::Bastion(_) => "the bastion host",
    }
}

fn handshake(at: &Place, said: Option<&str>, source: &russh::Error) -> Vec<Cow<'static, str>> {
    let port = at.endpoint.port;
    let machine = machine(at);
    let said = said.unwrap_or_default();
    let hint = if said.contains(words::PENALTY) {
        format!(
            "sshd on {machine} blocks this address for a while after failed logins (`PerSourcePenalties`): wait, or \
            restart sshd there"
        )
    } else if words::say_that_it_passes(said) {
        format!("{machine} is busy; try again")
    } else if matches!(source, russh::Error::Version) || said.starts_with("HTTP/") {
        format!("check that sshd listens on port {port}")
    } else {
        format!(
            "{machine} closed the connection: does sshd listen on port {port}, and does it allow this address \
            (`sudo journalctl -u ssh -u sshd -n 20`, `/etc/hosts.deny`, fail2ban)?"
        )
    };
    vec![hint.into()]
}

impl Phase {
    /// What to look at.
    pub(super) const fn cure(self) -> &'static str {
        match self {
            Self::Version => {
                "the node may be out of memory, or its disk may hang: check its console, and `ssh -v` from here"
            }
            Self::Keys => {
                "large packets may get lost on the way (MTU), or the node is overloaded: `ssh -v` from here shows \
                where it stops"
            }
            Self::Login => {
                "sshd may wait for a name server that does not answer (`UseDNS`), or for PAM: `sudo journalctl -u ssh -u sshd -n 20` on the node"
            }
            Self::Session => {
                "sshd may wait for systemd-logind (`systemctl status systemd-logind dbus` on the node), or for a home that is on another machine"
            }
        }
    }
}

/// What a login shell did instead, by what is known to be written then.
fn shell(at: &Place, said: &str) -> Cow<'static, str> {
    let user = &at.user;
    let machine = machine(at);
    if let Some((_, rest)) = said.split_once("login as the user ") {
        // A cloud's image: `Please login as the user "ubuntu" rather than the user "root".`
        let name = rest.trim_start_matches(['"', '\'']);
        let name = name.split(['"', '\'', ' ']).next().unwrap_or_default();
        return format!("write `user: {}` for this node", printable(name)).into();
    }
    if said.contains("assword has expired") || said.contains("assword change required") {
        return format!(
            "the password of `{user}` must be changed before any command can run: `sudo chage -M -1 {user}` on \
            {machine}, \
             or `sudo passwd {user}`"
        )
        .into();
    }
    if said.contains("sftp") {
        return format!(
            "`{user}` is restricted to sftp (`ForceCommand internal-sftp` or such a shell on {machine}): use \
            another user"
        )
        .into();
    }
    if said.contains("not available") {
        return format!("`sudo usermod -s /bin/sh {user}` on {machine} gives the account a shell")
            .into();
    }
    format!(
        "the startup files of the shell of `{user}` (`~/.bashrc`, `~/.profile`, `~/.zshenv`) must not read standard \
        input, `exec` or `exit` without a terminal: `ssh {user}@{} echo ok </dev/null` must print `ok`",
        at.endpoint.address
    )
    .into()
}

/// What forbids connections to sockets: OpenSSH's word for ports takes them along.
const SOCKETS: &str = "`AllowStreamLocalForwarding no`, `AllowTcpForwarding no`";

fn forbidden(options: &str) -> Cow<'static, str> {
    format!(
        "sshd on this node may set {options} or `DisableForwarding yes`: allow forwarding for this user"
    )
    .into()
}

fn group(user: &str) -> Cow<'static, str> {
    format!("add the user to the group `docker`: `sudo usermod -aG docker {user}`").into()
}

fn other_socket(socket: &str) -> Cow<'static, str> {
    format!("if its socket is not `{socket}`, name it in `docker_socket`").into()
}

//! What a node's server is set up like.

use serde::{Deserialize, Serialize};

use crate::{image, registry};

/// How a node is set up, as the servers of different people are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// The user is in group docker and has no sudo; containerd as Debian ships it.
    Plain,
    /// As plain, with the containerd configuration of Docker's own packages: CRI is disabled.
    CriOff,
    /// As plain, with `DisableForwarding yes` in sshd.
    NoForwarding,
    /// The user is not in group docker and has sudo without a password.
    SudoOnly,
    /// As plain, with what people find odd about a server, all at once: a shell that prints something
    /// at every login, also to programs; a resolver of its own, to which `/etc/resolv.conf` points;
    /// Docker with `log-driver: none`, a proxy and a mirror, of which containerd knows nothing.
    Odd,
    /// As plain, with `AllowTcpForwarding no` in sshd: sockets are forwarded, ports are not.
    NoPortForwarding,
    /// As plain, with `MaxSessions 1` in sshd.
    #[value(name = "max-sessions-1")]
    #[serde(rename = "max-sessions-1")]
    MaxSessions1,
    /// As plain, hardened as guides tell it: sshd shows a banner before the login, others' processes are hidden, nothing
    /// in `/tmp` can be executed, and what is created is for its owner alone.
    Hardened,
    /// As plain, with a containerd that is started with a configuration and a folder of its own.
    ContainerdWords,
    /// As plain, with a containerd of the next major release, as Docker's own packages bring it today:
    /// its configuration's format is 3, and its file says only which.
    #[value(name = "containerd-2")]
    #[serde(rename = "containerd-2")]
    Containerd2,
}

/// The file that Docker's own packages install as `/etc/containerd/config.toml`.
const CONTAINERD_OF_DOCKER: &str = include_str!("../profiles/containerd-of-docker.toml");

/// The proxy that Docker is told.
const PROXY: &str = "http://proxy.lab:3128";

/// What some people's shells say, with a line as a survey might have it.
const PRINTING: &str = "echo 'Welcome to this server!'\necho '@@end'\necho 'mind the gap' >&2\n";

/// What sshd shows to all who come.
const BANNER: &str = "****************************************\n* Authorised use only. All is logged. *\n\
                      ****************************************\n";

/// What lines of `/etc/fstab` do on a server.
const HARDENED: &str = "[Unit]\nDefaultDependencies=no\nAfter=local-fs.target\nBefore=sysinit.target\n\
                        [Service]\nType=oneshot\nRemainAfterExit=yes\n\
                        ExecStart=mount -o remount,hidepid=2 /proc\n\
                        ExecStart=mount -t tmpfs -o noexec,nosuid,nodev,mode=1777 tmpfs /tmp\n";

/// A configuration that is not where containerd looks for one.
const OWN_CONTAINERD: &str = "version = 2\n\n[plugins.\"io.containerd.grpc.v1.cri\".registry]\n  \
                              config_path = \"/etc/containerd/certs.d\"\n";

/// What a containerd 2 needs to be told: nothing but where registries are described.
const CONTAINERD_2: &str = "version = 3\n\n[plugins.'io.containerd.cri.v1.images'.registry]\n  \
                            config_path = '/etc/containerd/certs.d'\n";

/// Words of its own, as image builders of some systems give them.
const OWN_WORDS: &str = "[Service]\nExecStart=\nExecStart=/usr/bin/containerd --config \
                         /etc/containerd/own.toml --root /var/lib/containerd/own --log-level warn\n";

impl Profile {
    /// Its name, as the command line takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::CriOff => "cri-off",
            Self::NoForwarding => "no-forwarding",
            Self::SudoOnly => "sudo-only",
            Self::Odd => "odd",
            Self::NoPortForwarding => "no-port-forwarding",
            Self::MaxSessions1 => "max-sessions-1",
            Self::Hardened => "hardened",
            Self::ContainerdWords => "containerd-words",
            Self::Containerd2 => "containerd-2",
        }
    }

    /// The groups that the user joins on the node's first boot.
    pub(crate) fn groups(self) -> &'static str {
        match self {
            Self::SudoOnly => "",
            Self::Plain
            | Self::CriOff
            | Self::NoForwarding
            | Self::Odd
            | Self::NoPortForwarding
            | Self::MaxSessions1
            | Self::Hardened
            | Self::ContainerdWords
            | Self::Containerd2 => "docker",
        }
    }

    /// The image whose programs take the place of the node's own.
    pub(crate) fn programs(self) -> Option<&'static str> {
        (self == Self::Containerd2).then_some(image::CONTAINERD)
    }

    /// Whether containerd knows the lab's registry as Docker does.
    pub(crate) fn containerd_has_mirror(self) -> bool {
        self != Self::Odd
    }

    /// What Docker's `daemon.json` has beside the mirror.
    pub(crate) fn daemon(self) -> serde_json::Value {
        if self == Self::Odd {
            // Nobody answers at the proxy: what is pulled from the mirror goes around it.
            serde_json::json!({
                "log-driver": "none",
                "proxies": {
                    "http-proxy": PROXY,
                    "https-proxy": PROXY,
                    "no-proxy": registry::NAME,
                },
            })
        } else {
            serde_json::json!({})
        }
    }

    /// The resolver, where it is not the lab's.
    pub(crate) fn resolver(self) -> Option<&'static str> {
        (self == Self::Odd).then_some("nameserver 127.0.0.1\nnameserver ::1\n")
    }

    /// The files in which it differs, with their modes.
    pub(crate) fn files(self) -> Vec<(&'static str, u32, &'static str)> {
        match self {
            Self::Plain => vec![],
            Self::CriOff => vec![("etc/containerd/config.toml", 0o644, CONTAINERD_OF_DOCKER)],
            Self::NoForwarding => {
                vec![(
                    "etc/ssh/sshd_config.d/lab.conf",
                    0o644,
                    "DisableForwarding yes\n",
                )]
            }
            Self::SudoOnly => {
                vec![("etc/sudoers.d/lab", 0o440, "lab ALL=(ALL) NOPASSWD: ALL\n")]
            }
            Self::Odd => vec![("home/lab/.bashrc", 0o644, PRINTING)],
            Self::NoPortForwarding => vec![(
                "etc/ssh/sshd_config.d/lab.conf",
                0o644,
                "AllowTcpForwarding no\nAllowStreamLocalForwarding yes\n",
            )],
            Self::MaxSessions1 => {
                vec![("etc/ssh/sshd_config.d/lab.conf", 0o644, "MaxSessions 1\n")]
            }
            Self::Hardened => vec![
                (
                    "etc/ssh/sshd_config.d/lab.conf",
                    0o644,
                    "Banner /etc/issue.net\n",
                ),
                ("etc/issue.net", 0o644, BANNER),
                ("home/lab/.bashrc", 0o644, "umask 077\n"),
                ("root/.bashrc", 0o644, "umask 077\n"),
                ("etc/systemd/system/hardened.service", 0o644, HARDENED),
                (
                    "etc/systemd/system/sysinit.target.d/hardened.conf",
                    0o644,
                    "[Unit]\nWants=hardened.service\n",
                ),
            ],
            Self::Containerd2 => vec![("etc/containerd/config.toml", 0o644, CONTAINERD_2)],
            Self::ContainerdWords => vec![
                ("etc/containerd/own.toml", 0o644, OWN_CONTAINERD),
                (
                    "etc/systemd/system/containerd.service.d/own.conf",
                    0o644,
                    OWN_WORDS,
                ),
            ],
        }
    }
}

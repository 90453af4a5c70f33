//! What a node's server is set up like.

use serde::{Deserialize, Serialize};

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
}

/// The file that Docker's own packages install as `/etc/containerd/config.toml`.
const CONTAINERD_OF_DOCKER: &str = include_str!("../profiles/containerd-of-docker.toml");

impl Profile {
    /// Its name, as the command line takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::CriOff => "cri-off",
            Self::NoForwarding => "no-forwarding",
            Self::SudoOnly => "sudo-only",
        }
    }

    /// The groups that the user joins on the node's first boot.
    pub(crate) fn groups(self) -> &'static str {
        match self {
            Self::Plain | Self::CriOff | Self::NoForwarding => "docker",
            Self::SudoOnly => "",
        }
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
        }
    }
}

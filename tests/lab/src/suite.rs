//! Which release of Debian a node's server runs.

use serde::{Deserialize, Serialize};

use crate::LabError;

/// A release of Debian, with the Docker, containerd and systemd of its own packages.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// Debian 11: Docker 20.10.5, systemd 247. Its containerd 1.4 is too old for Kubernetes: give the node
    /// [`Profile::Containerd2`](crate::Profile::Containerd2).
    Bullseye,
    /// Debian 12: Docker 20.10.24, containerd 1.6, systemd 252.
    Bookworm,
    /// Debian 13: Docker 26.1, containerd 1.7, systemd 257. What nodes run if nothing is said.
    #[default]
    Trixie,
    /// What becomes Debian 14: Docker 28 and containerd 2.1 when this was written. Its systemd does not start on
    /// cgroup v1.
    Forky,
}

impl Suite {
    /// All of them, the oldest first.
    pub const ALL: [Self; 4] = [Self::Bullseye, Self::Bookworm, Self::Trixie, Self::Forky];

    /// Its name, as Debian's archive and the command line have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bullseye => "bullseye",
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Forky => "forky",
        }
    }

    /// The version of the node's image.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Bullseye => "debian-11",
            Self::Bookworm => "debian-12",
            Self::Trixie => "debian-13",
            Self::Forky => "debian-14",
        }
    }

    /// Why no node of it can start on this machine; `None`: it can.
    pub fn missing_here(self) -> Option<&'static str> {
        let unified = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        self.missing_on(unified)
    }

    fn missing_on(self, unified: bool) -> Option<&'static str> {
        match self {
            Self::Forky if !unified => {
                Some("systemd 258 and later do not start on cgroup v1, which this machine has")
            }
            Self::Bullseye | Self::Bookworm | Self::Trixie | Self::Forky => None,
        }
    }

    /// An error where no node of it can start on this machine.
    pub(crate) fn check(self) -> Result<(), LabError> {
        match self.missing_here() {
            Some(why) => Err(LabError::Refused(format!(
                "no node of {}: {why}",
                self.name()
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::ValueEnum as _;

    use super::*;
    use crate::{image::NODE, recipe::Recipe};

    #[test]
    fn each_release_has_another_image() {
        let key = |suite| Recipe::of(NODE).unwrap().on(suite).key().unwrap();
        let keys: BTreeSet<String> = Suite::ALL.map(key).into();
        assert_eq!(keys.len(), Suite::ALL.len());
    }

    #[test]
    fn the_command_line_and_the_archive_have_the_same_names() {
        for suite in Suite::ALL {
            assert_eq!(Suite::from_str(suite.name(), false), Ok(suite));
        }
        assert_eq!(Suite::value_variants(), Suite::ALL);
    }

    #[test]
    fn a_systemd_that_needs_cgroup_v2_gets_it() {
        let missing = |unified| Suite::ALL.map(|suite| suite.missing_on(unified).is_some());
        assert_eq!(missing(true), [false; 4]);
        assert_eq!(missing(false), [false, false, false, true]);
    }
}

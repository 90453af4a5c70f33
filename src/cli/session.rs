//! What every command works with: the terminal, the stop signal, and how to ask a person.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{output::Screen, passphrase::Passphrases, prompt::Prompt, ssh_config::SshSettings};
use crate::{apply::stop::Stop, host::Awaited};

/// The exit code of a command that Ctrl-C or SIGTERM ended (128 + SIGINT).
pub const STOPPED: u8 = 130;

/// How many steps are in flight at this moment: what Ctrl-C has to wait for.
#[derive(Debug, Default)]
pub struct InFlight(AtomicUsize);

impl InFlight {
    /// A step starts.
    pub fn starts(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// A step has ended.
    pub fn ends(&self) {
        // One that was skipped never started.
        let less = |count: usize| Some(count.saturating_sub(1));
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// True while there are some.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// What every command works with.
#[derive(Clone)]
pub struct Session {
    /// stderr.
    pub screen: Arc<Screen>,
    /// Ctrl-C and SIGTERM.
    pub stop: Stop,
    /// The person at the terminal, if there is one.
    pub prompt: Prompt,
    /// The steps that are in flight.
    pub in_flight: Arc<InFlight>,
    /// The nodes that are being read.
    pub awaited: Awaited,
    /// Nodes are logged in to with the SSH agent, whatever the config says.
    pub ssh_agent: bool,
    /// Private keys with a passphrase.
    pub passphrases: Arc<Passphrases>,
    /// The configuration of OpenSSH's client.
    pub ssh_config: Arc<SshSettings>,
}

impl Session {
    /// At this process's terminal.
    pub fn new(screen: Arc<Screen>, stop: Stop) -> Self {
        let prompt = Prompt::at_terminal(Arc::clone(&screen), stop.clone());
        Self {
            screen,
            stop,
            prompt,
            in_flight: Arc::default(),
            awaited: Awaited::default(),
            ssh_agent: false,
            passphrases: Arc::default(),
            ssh_config: Arc::default(),
        }
    }
}

/// RKE's name for the kubeconfig of a config: `kube_config_<file name>` next to it.
pub fn kubeconfig_of(config: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from("kube_config_");
    name.push(config.file_name().unwrap_or_default());
    config.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubeconfig_is_named_after_the_config() {
        for (config, kubeconfig) in [
            ("cluster.yml", "kube_config_cluster.yml"),
            ("a/b/prod.yaml", "a/b/kube_config_prod.yaml"),
            ("/x/prod", "/x/kube_config_prod"),
        ] {
            assert_eq!(kubeconfig_of(Path::new(config)), Path::new(kubeconfig));
        }
    }
}

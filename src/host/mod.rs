//! One machine: SSH, and through it the node's Docker Engine API.
//!
//! [`Dial`] is the one seam under the real code: what is faked in tests is bytes, so russh,
//! hyper, bollard and our own requests stay under test. [`Host`] is what the layers above use:
//! it knows containers, images, helpers and files, and nothing about Kubernetes.
//!
//! May touch: the network, `known_hosts` files. Must not: decide anything about a cluster.

use std::io;

use futures::future::BoxFuture;
use russh::keys::Certificate;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::model::Endpoint;

pub mod any_server;
mod awaited;
mod bastion;
mod bounded;
mod carrier;
mod containers;
mod create_body;
mod dial;
mod docker;
mod error;
mod events;
mod exec;
mod explain;
mod files;
mod guard;
mod helper;
mod host_certificate;
pub mod https;
mod images;
mod known_hosts;
mod local_signer;
pub mod log;
mod login;
mod machine;
mod one_off;
mod pipe;
pub mod pool;
mod retry;
mod sessions;
mod sieve;
mod ssh;
mod wire;
mod words;

pub use awaited::Awaited;
pub use containers::ClaimOutcome;
pub use create_body::Stamp;
pub use dial::{OtherMachines, ServiceRanges, TcpDial};
pub use error::{Hop, HostError, KeyProblem, Phase, Place, Tried};
pub use events::ContainerEvent;
pub use exec::ExecOutput;
pub use files::NewFile;
pub use helper::{HelperContainer, HelperOutput, Program};
pub use known_hosts::{Ask, KnownHosts, Lookup, Policy, fingerprint, known_hosts_line};
pub use machine::Host;
pub use one_off::{OneOff, OwnProgram};

/// A byte stream to a node.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// Opens a stream to an endpoint: TCP in production, an in-process pipe in tests.
pub trait Dial: Send + Sync {
    /// Opens it. The caller sets the deadline.
    fn dial<'a>(&'a self, to: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;

    /// Whether a bastion host may open it for us; the error says why not.
    fn may_relay(&self, _to: &Endpoint) -> io::Result<()> {
        Ok(())
    }
}

/// What is known about a host key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKeyVerdict {
    /// On record.
    Trusted,
    /// Not on record; the policy says whether it may be taken.
    Unknown {
        /// True: taken and recorded.
        accepted: bool,
    },
    /// Another key is on record, or this one is revoked: always refused.
    Changed {
        /// Where the other one is recorded, e.g. `~/.ssh/known_hosts line 3`.
        place: String,
    },
}

/// What a host shows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownKey {
    /// Its key, in OpenSSH format, e.g. `ssh-ed25519 AAAA…`. The host has proved that it has the private half.
    pub key: String,
    /// The certificate of that key, where the host shows one. Nothing about it has been checked.
    pub certificate: Option<Box<Certificate>>,
}

impl From<&str> for ShownKey {
    /// A key without a certificate.
    fn from(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            certificate: None,
        }
    }
}

/// Decides about host keys: `known_hosts`, and what happens with a key that is not there.
pub trait HostKeys: Send + Sync {
    /// Checks the key that an endpoint shows. May ask the user. `verified`: the keys by which this host was verified
    /// before. They count if the host is not on record; any other key is then a changed one.
    fn verify<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        shown: &'a ShownKey,
        verified: &'a [String],
    ) -> BoxFuture<'a, io::Result<HostKeyVerdict>>;

    /// The key algorithms on record for an endpoint, to be offered first.
    fn known_algorithms(&self, endpoint: &Endpoint) -> Vec<String>;

    /// Whether an authority is on record that may vouch for an endpoint: then it is requested to show a certificate.
    fn has_authority(&self, endpoint: &Endpoint) -> bool;
}

/// Whom to trust on one connection: the records, and the keys by which this host was verified before.
struct Trust<'a> {
    keys: &'a dyn HostKeys,
    verified: &'a [String],
}

impl Trust<'_> {
    /// Whether a certificate is requested of the host.
    fn has_authority(&self, endpoint: &Endpoint) -> bool {
        self.keys.has_authority(endpoint)
    }

    /// The key algorithms to be offered first.
    fn known_algorithms(&self, endpoint: &Endpoint) -> Vec<String> {
        let on_record = self.keys.known_algorithms(endpoint);
        if !on_record.is_empty() {
            return on_record;
        }
        let kinds = self
            .verified
            .iter()
            .filter_map(|key| key.split_whitespace().next());
        kinds.map(str::to_owned).collect()
    }
}

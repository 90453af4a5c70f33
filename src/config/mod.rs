//! What the user wrote: `cluster.yml` → [`Intent`]. Pure.
//!
//! A document is parsed into a tree that remembers lines ([`RkeConfig`]), validated against RKE's
//! whole schema, and resolved once into an [`Intent`] that cannot be wrong. Whatever else it needs
//! comes through [`Sources`]. All problems are reported together, each with its path and line.
//!
//! ```
//! use rke_operator::config::{Intent, RkeConfig, SecretSources, SshKey};
//!
//! let config = RkeConfig::parse("nodes: [{address: 192.0.2.10, user: ubuntu, rol: [etcd]}]")?;
//! let sources = SecretSources::new("ssh-key", String::new().into());
//! let problems = Intent::from_config(&config, &sources).unwrap_err();
//! let first = problems.iter().find(|problem| problem.path == "nodes[0].rol");
//! assert_eq!(
//!     first.map(ToString::to_string).as_deref(),
//!     Some("`nodes[0].rol` (line 1): unknown key"),
//! );
//! # Ok::<(), rke_operator::config::Problems>(())
//! ```
//!
//! Must not: read files, environment, clock or network, or put a value of the document into a
//! [`Problem`]'s `message`.

mod cursor;
mod dns;
mod explain_key;
mod ingress;
mod intent;
mod json_schema;
mod keys;
mod manifest;
mod network;
mod private_key;
mod problem;
mod references;
mod resolve;
mod rke;
mod schema;
mod secrets;
mod shown;
mod snippet;
#[cfg(test)]
mod snippet_tests;
mod sources;
mod ssh_classes;
mod ssh_config;
mod ssh_names;
mod structural;
mod tree;
mod validate;

pub use dns::{CoreDns, Dns, NodeLocal};
pub use explain_key::{Explained, explain, explained_names};
pub use ingress::{Ingress, IngressOptions, NetworkMode};
pub use intent::*;
pub use json_schema::json_schema;
pub use keys::{KeyRow, Support, keys};
pub use manifest::Manifest;
pub use network::{Backend, Calico, Canal, Flannel, Network};
pub use private_key::{NotUnlocked, has_passphrase, needs_agent, unlock};
pub use problem::{Place, Problem, Problems};
pub use references::{ConfigSecrets, SecretReference, referred_secrets};
pub use resolve::{BucketWords, Resolved, means_the_same, portable};
pub use rke::{MAX_BYTES, RkeConfig};
pub use sources::{DefaultKey, Refusal, SecretSources, Sources, SshKey};
pub use ssh_classes::{HostClass, HostPatterns, files_read, output_for};
pub use ssh_config::{
    SshAgent, SshConfig, SshHost, SshHostKeys, SshJump, SshPerson, SshQuery, ssh_queries,
};
pub(crate) use ssh_names::is_dialled;
pub use structural::structural_schema;

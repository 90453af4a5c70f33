//! The provisioned cluster's API, reached through a node's SSH connection: no port of a cluster
//! needs to be open to us.
//!
//! [`connect()`] makes a client; [`read()`] turns what it says into facts; the others are the
//! effects that `apply/act.rs` calls, each bounded in time and harmless to repeat. They decide
//! nothing: what is applied, pruned or waited for comes from the plan. Pure: [`contains()`],
//! [`waiting_for`], [`node_changes`].

mod available;
mod connect;
mod contains;
mod copy;
mod error;
mod health;
mod node_meta;
mod objects;
mod read;
mod wait;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

pub use available::waiting_for;
pub use connect::{OpenStream, connect, through};
pub use contains::contains;
pub use copy::save_state_copy;
pub use error::WorkloadError;
pub use health::probe;
pub use node_meta::{NODE_META, node_changes, set_node_meta};
pub use objects::{apply_objects, prune};
pub use read::read;
pub use wait::{Waited, await_node_ready, await_workloads};

/// Who we are in `managedFields`.
pub const FIELD_MANAGER: &str = "rke-operator";

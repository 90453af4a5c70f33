//! The provisioned cluster's API, reached through a node's SSH connection: no port of a cluster
//! needs to be open to us.
//!
//! [`Apis`] has clients; [`held()`] turns what they say into facts; the others are the
//! effects that `apply/act.rs` calls, each bounded in time and harmless to repeat. They decide
//! nothing: what is applied, pruned or waited for comes from the plan. [`waiting_for`] alone is
//! pure.

mod authorities;
mod available;
mod binding;
mod charts;
mod connect;
mod copy;
mod cordon;
mod crash;
mod drain;
mod error;
mod evict;
mod kinds;
mod lost;
mod node_meta;
mod node_watch;
mod objects;
pub(crate) mod pages;
mod probe;
mod pulls;
mod read;
mod removed;
mod replicas;
mod restored;
mod rewrite;
mod service_address;
mod stored;
mod tokens;
mod wait;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

pub use authorities::{await_authorities, forget_authorities, restart_pods};
pub use available::{Lack, waiting_for};
pub use binding::{Bound, UserBinding, bind_user, unbind_user};
pub use charts::{ChartApply, RenderedError, apply_chart, chart_workloads, prune_chart};
pub use connect::{Apis, connect};
pub(crate) use copy::STATE_COPY;
pub use copy::save_state_copy;
pub use cordon::{begin_reboot, cordon, finish_reboot, keep_cordoned, let_pods_in, uncordon};
pub use crash::{CrashLoop, Crashes, crash_on_node};
pub use drain::{delete_node, drain};
pub use error::WorkloadError;
pub use kinds::Kinds;
pub use lost::{bound_to, out_of_service};
pub use node_meta::set_node_meta;
pub use node_watch::{NodeChange, follow_nodes};
pub use objects::{apply_objects, prune, read_object};
pub use probe::Probe;
pub use pulls::pulling;
pub(crate) use read::within;
pub use read::{held, nodes, release, serves};
pub use removed::removed_apis;
pub use replicas::evict_one;
pub use restored::{Restored, clean_restored, pods_of, reports};
pub use rewrite::{forget, rewrite};
pub use tokens::renew_tokens;
pub use wait::{Waited, Waiting, await_node_ready, await_registered, await_workloads};

/// Who we are in `managedFields`.
pub const FIELD_MANAGER: &str = "rke-operator";

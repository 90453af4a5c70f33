//! What is. [`facts`] are types and [`system`] understands a node's own words (pure); `read` is
//! how they are read (I/O, hosts in parallel).

mod chart_fact;
pub mod facts;
mod foreign;
pub(crate) mod members;
mod node_meta;
mod objects;
pub mod read;
mod same;
pub mod system;
mod traffic;
mod unnamed;

pub use chart_fact::{ChartFact, LiveObject, is_workload};
pub use facts::*;
pub use foreign::is_rke;
pub use node_meta::{NODE_META, node_changes, node_patch};
pub use objects::{Rollout, object_changes, rollout};

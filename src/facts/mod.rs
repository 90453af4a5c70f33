//! What is, as the surveys see it: types, and how a node's own words are understood ([`system`]). Pure. How they are
//! read: [`crate::survey`].

mod actual;
mod alike;
mod chart_fact;
mod cluster;
mod foreign;
mod host;
mod machine;
pub mod measured;
mod node_meta;
mod objects;
pub mod system;
mod unnamed;

pub use actual::*;
pub use alike::{Alike, UnreachableNodes, by_cause};
pub use chart_fact::{ChartFact, LiveObject, is_workload};
pub use cluster::*;
pub use foreign::is_rke;
pub use host::*;
pub use machine::*;
pub use node_meta::{NODE_META, node_changes, node_patch};
pub use objects::{Rollout, object_changes, rollout};

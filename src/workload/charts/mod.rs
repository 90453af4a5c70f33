//! The charts of the release in the cluster: what helm rendered, as objects ([`rendered`], pure), applied
//! in order with a record of what was applied, awaited, and pruned by that record. What others made under one of
//! its names is refused ([`foreign`]).

mod apply;
mod foreign;
mod hook;
mod prune;
mod read;
mod record;
mod rendered;

pub use apply::{ChartApply, apply_chart};
pub use prune::prune_chart;
pub(super) use read::charts;
pub use record::chart_workloads;
use rendered::Rendered;
pub use rendered::RenderedError;

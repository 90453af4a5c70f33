//! The difference between what must be and what is, as data. Pure.
//!
//! [`up`] and [`remove`] make plans, [`check`] judges any plan against the invariants,
//! [`render`] prints one. A plan can be printed, compared, serialised and simulated: nothing in
//! it is a closure, and nothing in it is secret. May use pure functions only; must not read a
//! clock, a file or the network.
//!
//! ```
//! use rke_operator::{actual::Actual, plan};
//!
//! // No host, no state: nothing is ours, so there is nothing to remove.
//! let plan = plan::remove(None, &Actual::default())?;
//! assert!(plan.is_empty());
//! assert_eq!(plan::render(&plan), "Plan: nothing to do\n");
//! # Ok::<(), plan::PreflightErrors>(())
//! ```

mod action;
mod addons;
mod check;
mod claim;
mod containerd;
mod containers;
mod diff;
mod files;
mod guard;
mod health;
mod hosts;
mod images;
mod kernel;
mod nodes;
mod preflight;
mod prune;
mod remove;
mod render;
mod roll;
mod stage;
mod state;
mod step;
mod up;
mod warnings;

pub use action::{Action, ClusterAction, HostAction, LocalAction};
pub use check::{Violation, check};
pub use containerd::config_digest;
pub use guard::{Live, Look, holds};
pub use preflight::{PreflightError, PreflightErrors, enough_answer};
pub use remove::remove;
pub use render::{render, title};
pub use stage::{Enough, OnFailure, Plan, Queue, Stage};
pub use step::{Cause, FileRef, Guard, Note, Step, Target};
pub use up::up;

pub use crate::model::FieldChange;

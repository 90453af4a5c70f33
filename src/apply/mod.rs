//! Runs a plan. [`run`] schedules and knows nothing about Kubernetes; `act` is one match over
//! `Action`, the only place with effects; [`event`] is the one stream of progress.

pub mod act;
mod chart;
mod cluster;
pub mod event;
pub mod executor;
mod last_snapshot;
pub mod limit;
pub(crate) mod local;
mod node;
pub mod progress;
pub mod remote;
mod restore;
mod retry;
pub mod run;
mod shared;
mod stage;
pub mod step;
pub mod stop;
pub mod watch;

#[cfg(test)]
mod tests;

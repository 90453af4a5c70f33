//! Runs a plan. [`run`] schedules and knows nothing about Kubernetes; `act` is one match over
//! `Action`, the only place with effects; [`event`] is the one stream of progress.

mod act;
mod cluster;
pub mod effects;
pub mod event;
pub mod limit;
mod local;
mod node;
pub mod progress;
pub mod run;
mod scene;
pub mod step;
pub mod stop;

#[cfg(test)]
mod tests;

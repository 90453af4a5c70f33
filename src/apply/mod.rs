//! Runs a plan. [`run`] schedules and knows nothing about Kubernetes; `act` is one match over
//! `Action`, the only place with effects; [`event`] is the one stream of progress.

pub mod act;
pub(crate) mod cluster;
pub mod event;
mod health;
pub mod limit;
mod local;
mod node;
pub mod progress;
pub mod run;
mod scene;
pub mod stop;

#[cfg(test)]
mod tests;

//! The simulated world: what each action does to the facts, whole ([`effect`]) and torn
//! ([`tear`]). It is the model of `apply/act.rs`: the planner's properties run against it, and in
//! the lab [`compare`] holds it against real nodes after every real step.
//!
//! A step whose preconditions do not hold fails here as it would on a node: a container whose image
//! was not pulled, a file written before the claim, a manifest applied before the API answers. So an
//! order that is wrong fails a test.

pub(crate) mod api;
pub(crate) mod bare;
pub(crate) mod compare;
pub(crate) mod contents;
pub(crate) mod effect;
pub(crate) mod fleet;
pub(crate) mod generate;
pub(crate) mod mishap;
pub(crate) mod nodes;
pub(crate) mod remote;
pub(crate) mod runner;
pub(crate) mod tear;
mod watch;
pub(crate) mod wish;
pub(crate) mod world;

pub(crate) use bare::bare_host;
pub(crate) use generate::{Knobs, desired, knobs};
pub(crate) use world::{Cut, Ended, Shell, World};

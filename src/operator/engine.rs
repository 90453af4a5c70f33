//! The one seam of the operator: what it asks of the engine. Everything that it knows about
//! nodes goes through here; tests put a script in its place.

use futures::{FutureExt, future::BoxFuture};

use crate::{
    apply::{event::Events, stop::Stop},
    converge::{self, Consent, Error, Goal, Outcome, Survey},
    plan::Plan,
    world::World,
};

/// Reads the world, and brings it where it must be.
pub trait Engine: Send + Sync {
    /// As [`converge::survey`]: writes nothing.
    fn survey<'a>(
        &'a self,
        goal: &'a Goal<'a>,
        world: &'a World,
    ) -> BoxFuture<'a, Result<Survey, Error>>;

    /// As [`converge::converge`], with every consent given: that is what `changes: Automatic`
    /// and a deletion say.
    fn converge<'a>(
        &'a self,
        goal: &'a Goal<'a>,
        world: &'a World,
        events: &'a Events,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<Outcome, Error>>;
}

/// The engine that the command line has, too.
#[derive(Clone, Copy, Debug)]
pub struct Real;

impl Engine for Real {
    fn survey<'a>(
        &'a self,
        goal: &'a Goal<'a>,
        world: &'a World,
    ) -> BoxFuture<'a, Result<Survey, Error>> {
        converge::survey(goal, world).boxed()
    }

    fn converge<'a>(
        &'a self,
        goal: &'a Goal<'a>,
        world: &'a World,
        events: &'a Events,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<Outcome, Error>> {
        converge::converge(goal, world, &Automatic, events, stop).boxed()
    }
}

/// Consent to everything.
struct Automatic;

impl Consent for Automatic {
    fn ask<'a>(&'a self, _: &'a Plan) -> BoxFuture<'a, bool> {
        futures::future::ready(true).boxed()
    }
}

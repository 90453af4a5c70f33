//! The one seam of the operator: what it asks of the engine. Everything that it knows about
//! nodes goes through here; tests put a script in its place.

use futures::{FutureExt, future::BoxFuture};

use crate::{
    apply::{event::Events, stop::Stop},
    converge::{self, Consent, Error, Goal, Outcome, Survey},
    environment::Environment,
    plan::Plan,
};

/// Reads the world, and brings it where it must be.
pub trait Engine: Send + Sync {
    /// As [`converge::survey`]: writes nothing.
    fn survey<'a>(
        &'a self,
        goal: &'a Goal<'a>,
        environment: &'a Environment,
    ) -> BoxFuture<'a, Result<Survey, Error>>;

    /// As [`converge::converge`], with every consent given: that is what `changes: Automatic`
    /// and a deletion say.
    fn converge<'a>(
        &'a self,
        goal: &'a Goal<'a>,
        environment: &'a Environment,
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
        environment: &'a Environment,
    ) -> BoxFuture<'a, Result<Survey, Error>> {
        converge::survey(goal, environment).boxed()
    }

    fn converge<'a>(
        &'a self,
        goal: &'a Goal<'a>,
        environment: &'a Environment,
        events: &'a Events,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<Outcome, Error>> {
        converge::converge(goal, environment, &Automatic, events, stop).boxed()
    }
}

/// Consent to everything.
struct Automatic;

impl Consent for Automatic {
    fn ask<'a>(&'a self, _: &'a Plan) -> BoxFuture<'a, bool> {
        futures::future::ready(true).boxed()
    }
}

//! What `doctor` looks at: the nodes as `up` sees them before it does anything, and measurements that take longer.

use std::{borrow::Cow, collections::BTreeMap};

use jiff::Timestamp;

use super::{
    AnyPurpose, Error, Goal,
    look::{self, SoFar},
};
use crate::{
    config::Intent,
    environment::Environment,
    facts::{Actual, KeptFacts, measured::Measured},
    model::NodeName,
    plan,
    status::doctor,
};

/// What was seen, and what of it prevents `up`.
#[derive(Debug)]
pub struct Examined {
    /// When.
    pub now: Timestamp,
    /// What the user wants, with the release that the cluster keeps.
    pub intent: Intent,
    /// What is.
    pub actual: Actual,
    /// What was found on the nodes that answer.
    pub found: plan::Examination,
    /// Why nothing is planned, where the nodes alone do not say it.
    pub refusal: Option<Error>,
    /// What was measured, by node.
    pub measured: BTreeMap<NodeName, Measured>,
}

/// Looks, and measures; on the disks of nodes with etcd only where it `writes`. Nothing stays on a node.
pub async fn examine(
    intent: &Intent,
    environment: &Environment,
    writes: bool,
) -> Result<Examined, Error> {
    let mut session = look::open(environment);
    let (goal, so_far) = (Goal::Up(intent), SoFar::default());
    let purpose = AnyPurpose::Goal(goal);
    let reading = look::read(
        purpose,
        environment,
        &mut *session,
        &so_far,
        KeptFacts::new(),
    );
    let reading = Box::pin(reading).await?;
    let wanted = look::wanted(goal, environment, &reading, &so_far);
    let (wanted, unknown) = match wanted {
        Ok(wanted) => (Some(wanted), None),
        Err(error) => (None, Some(error)),
    };
    let found = wanted
        .as_ref()
        .map(|wanted| plan::examine(wanted, &reading.actual));
    let refusal = look::decide(purpose, environment, &reading, &so_far).err();
    // What is the matter with nodes was found there.
    let by_nodes = |error: &Error| matches!(error, Error::Plan(_) | Error::HostsUnreachable { .. });
    let refusal = refusal.filter(|error| found.is_none() || !by_nodes(error));
    let requests = wanted.map(|wanted| doctor::requests(&wanted, &reading.actual, writes));
    let measured = session.measure(&requests.unwrap_or_default()).await;
    Ok(Examined {
        now: reading.now,
        intent: reading
            .intent
            .map_or_else(|| intent.clone(), Cow::into_owned),
        actual: reading.actual,
        found: found.unwrap_or_default(),
        refusal: refusal.or(unknown),
        measured,
    })
}

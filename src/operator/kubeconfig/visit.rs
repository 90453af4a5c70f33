//! Visits to a Cluster's API, to bind a user or to unbind one: few at once, each bounded, and not repeated for what was
//! seen a while ago. What was seen is this process' own and never read from a status.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Semaphore, time::Instant};

use super::request::{Binding, Request};
use crate::{
    apply::step::StepError,
    converge,
    error::{Explain, with_causes},
    operator::{
        cluster_object::ClusterObject,
        context::{Context, ReconcileError, explained},
        environment,
        sources::KnownKeys,
    },
    state::ClusterState,
    workload::{self, Bound, UserBinding, WorkloadError},
};

/// How many at once, to bind and to unbind: a Cluster that does not answer keeps no others from theirs for long, and a
/// deletion waits for no other work.
const AT_ONCE: usize = 8;

/// How long one may take.
const VISIT: Duration = Duration::from_secs(60);

/// How long what one saw is taken for granted.
const GOOD: Duration = Duration::from_secs(3600);

/// The visits, and what they saw.
pub(in crate::operator) struct Visits {
    binds: Semaphore,
    unbinds: Semaphore,
    seen: Mutex<HashMap<String, Sight>>,
}

/// A binding that was seen.
#[derive(Clone)]
struct Sight {
    cluster: String,
    role: String,
    at: Instant,
}

impl Default for Visits {
    fn default() -> Self {
        Self {
            binds: Semaphore::new(AT_ONCE),
            unbinds: Semaphore::new(AT_ONCE),
            seen: Mutex::default(),
        }
    }
}

impl Visits {
    /// What was seen of an object's binding in that cluster.
    fn sight(&self, uid: &str, saved: &ClusterState) -> Option<Sight> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let sight = seen.get(uid).cloned();
        sight.filter(|sight| sight.cluster == saved.cluster_id.0)
    }

    fn saw(&self, uid: &str, saved: &ClusterState, role: &str) {
        let sight = Sight {
            cluster: saved.cluster_id.0.clone(),
            role: role.to_owned(),
            at: Instant::now(),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(uid.to_owned(), sight);
    }

    /// Forgets an object.
    pub(super) fn forget(&self, uid: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.remove(uid);
    }
}

/// The binding of the user of an object, bound now where it was not. The flag: it was bound by this very visit.
pub(super) async fn bind(
    ctx: &Context,
    view: &ClusterObject,
    saved: &ClusterState,
    (name, uid): (&str, &str),
    request: &Request,
) -> Result<(Binding, bool), ReconcileError> {
    let sight = ctx.visits.sight(uid, saved);
    let fresh = sight.as_ref().filter(|sight| sight.at.elapsed() < GOOD);
    if fresh.is_some_and(|sight| sight.role == request.role) {
        return Ok((Binding::Is, false));
    }
    let binding = UserBinding {
        made_for: name.to_owned(),
        user: request.user.clone(),
        role: request.role.clone(),
    };
    let bind = async |client| workload::bind_user(&client, &binding).await;
    let slots = &ctx.visits.binds;
    Ok(match visit(ctx, slots, view, saved, bind).await? {
        Ok(Bound::NotOurs) => (Binding::Taken, false),
        Ok(bound @ (Bound::Already | Bound::Now)) => {
            ctx.visits.saw(uid, saved, &request.role);
            (Binding::Is, bound == Bound::Now)
        }
        Err(why) => {
            let was = sight.map(|sight| sight.role);
            (Binding::Unseen { was, why }, false)
        }
    })
}

/// Unbinds the user of the object of that name. The error within says why that is not done.
pub(super) async fn unbind(
    ctx: &Context,
    view: &ClusterObject,
    saved: &ClusterState,
    name: &str,
) -> Result<Result<(), String>, ReconcileError> {
    let unbind = async |client| workload::unbind_user(&client, name).await;
    visit(ctx, &ctx.visits.unbinds, view, saved, unbind).await
}

/// One visit to the API of the Cluster. The error within says why it came to nothing.
async fn visit<T>(
    ctx: &Context,
    slots: &Semaphore,
    view: &ClusterObject,
    saved: &ClusterState,
    act: impl AsyncFnOnce(kube::Client) -> Result<T, WorkloadError>,
) -> Result<Result<T, String>, ReconcileError> {
    let ends = || Ok(Err("the operator ends".to_owned()));
    let _slot = tokio::select! {
        slot = slots.acquire() => slot,
        _ = ctx.stop.stopped() => return ends(),
    };
    let host_keys = KnownKeys::lenient(ctx, view).await;
    let environment = environment::environment(ctx, view, None, &host_keys).await?;
    let work = async {
        let reached = converge::reach(saved, &environment).await;
        let reached = reached.map_err(|error| told(&error))?;
        let acted = act(reached.client.clone()).await;
        acted.map_err(|error| explained(&error))
    };
    tokio::select! {
        done = tokio::time::timeout(VISIT, Box::pin(work)) => Ok(done.unwrap_or_else(|_elapsed| {
            Err(format!("the Cluster's API did not answer within {} s", VISIT.as_secs()))
        })),
        _ = ctx.stop.stopped() => ends(),
    }
}

/// Why the API was not reached, with cures.
fn told(error: &StepError) -> String {
    match error {
        StepError::Guard(why) => why.clone(),
        StepError::Stopped => "the operator ends".to_owned(),
        StepError::Failed(error) => {
            let error: &(dyn Explain + Send + Sync) = &**error;
            let mut text = with_causes(error);
            for hint in error.hints() {
                text.push_str("; hint: ");
                text.push_str(&hint);
            }
            text
        }
    }
}

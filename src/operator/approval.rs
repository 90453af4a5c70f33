//! Changes that wait for a person (`changes: Approve`, and what a new release of rke-operator would change): which they are,
//! and what approves them. Pure.
//!
//! The digest that a person approves covers the wish: the config, what was applied before it, and the release of
//! rke-operator that carries it out. It does not cover how the nodes are: a run that was cut off goes on, and a node that
//! comes back changes nothing.

use std::collections::BTreeSet;

use crate::{
    api::{
        Changes, DisruptedNode, PendingPlan, PendingReason,
        conditions::{ConditionSet, ConditionType, Reason, shorten},
        next::approve_command,
    },
    model::printable_lines,
    plan::{self, Action, Cause, Plan, Step},
    state::ClusterState,
};

use super::ready::Stage;

/// How many disruptions a status has, how long each is, and how long a plan is in it.
const DISRUPTIONS: usize = 20;
const DISRUPTION: usize = 256;
const PLAN: usize = 32_768;

/// Why a plan waits for a person; `None` for one that does not.
pub(super) fn waits(changes: Changes, stage: Stage, plan: &Plan) -> Option<PendingReason> {
    match (stage, changes) {
        // Nothing serves yet that a change could disturb.
        (Stage::New, _) | (Stage::Changed, Changes::Automatic) => None,
        (Stage::Changed, Changes::Approve) => {
            let healed = |step: &Step| matches!(step.cause, Cause::Drift | Cause::Expiry);
            let mut steps = effects(plan);
            steps
                .any(|step| !healed(step))
                .then_some(PendingReason::Approval)
        }
        (Stage::Applied, _) => {
            let mut steps = effects(plan);
            steps.any(Step::is_asked).then_some(PendingReason::Update)
        }
    }
}

/// The steps that do something on a node or in the cluster.
fn effects(plan: &Plan) -> impl Iterator<Item = &Step> {
    let has_effect = |step: &&Step| match &step.action {
        Action::Host(..) | Action::Cluster(_) => !step.action.is_look(),
        Action::Local(_) => false,
    };
    plan.steps().filter(has_effect)
}

/// The digest of what is wished for.
pub(super) fn digest(saved: &ClusterState, config: &str, release: &str) -> String {
    let before = saved.memory.applied.as_ref();
    let before = before.map_or("", |applied| applied.digest.0.as_str());
    let now = saved.digest_key.digest(config.as_bytes());
    let wish = format!("{before}\n{}\n{release}", now.0);
    saved.digest_key.digest(wish.as_bytes()).0
}

/// What the status says of a plan that waits. `since`: when that digest was first seen to wait.
pub(super) fn pending(
    digest: String,
    reason: PendingReason,
    plan: &Plan,
    since: String,
) -> PendingPlan {
    let disruptions: BTreeSet<(String, String)> = plan
        .disruptions()
        .map(|(step, what)| {
            let what = shorten(&printable_lines(what), DISRUPTION);
            (step.target().to_string(), what)
        })
        .collect();
    PendingPlan {
        digest,
        reason,
        created_at: since,
        steps: i64::try_from(effects(plan).count()).unwrap_or(i64::MAX),
        disruptions: disruptions
            .into_iter()
            .take(DISRUPTIONS)
            .map(|(node, what)| DisruptedNode { node, what })
            .collect(),
        plan: shorten(&printable_lines(&plan::render(plan)), PLAN),
    }
}

/// Says that it waits, and how it goes on. An update is reported where nothing else differs.
pub(super) fn tell(conditions: &mut ConditionSet, name: &str, pending: &PendingPlan) {
    let kind = ConditionType::UpToDate;
    let stands = conditions.get(kind);
    let approve = format!("`{}`", approve_command(name, &pending.digest));
    let (reason, message) = match (pending.reason, stands) {
        (PendingReason::Update, Some(stands)) if stands.reason == Reason::UpdateAvailable => {
            let message = format!("{}\nan approval lets them, too: {approve}", stands.message);
            (Reason::UpdateAvailable, message)
        }
        (PendingReason::Update, _) => return,
        (PendingReason::Approval, stands) => {
            let drift = stands.filter(|stands| stands.reason == Reason::Drifted);
            let drift = drift.map(|drift| format!("\nchanged elsewhere:\n{}", drift.message));
            let message = format!(
                "the change of the config waits for approval: {}; {approve} approves it{}",
                sum(pending),
                drift.unwrap_or_default()
            );
            (Reason::AwaitingApproval, message)
        }
    };
    conditions.set(kind, reason, message);
}

/// `4 steps, 1 disruption (status.pendingPlan)`
fn sum(pending: &PendingPlan) -> String {
    let steps = match pending.steps {
        1 => "1 step".to_owned(),
        some => format!("{some} steps"),
    };
    let disruptions = match pending.disruptions.len() {
        0 => "no disruption".to_owned(),
        1 => "1 disruption".to_owned(),
        DISRUPTIONS => format!("{DISRUPTIONS} disruptions or more"),
        some => format!("{some} disruptions"),
    };
    format!("{steps}, {disruptions} (`status.pendingPlan`)")
}

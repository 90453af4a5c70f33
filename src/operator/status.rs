//! The one writer of a Cluster's status (invariant 14): server-side apply of a body that has
//! nothing but the status, and only when something changed, so that a pass over a settled
//! cluster writes nothing and wakes nobody.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;
use tokio::{sync::watch, time::Instant};

use super::{context::Clock, view::View};
use crate::{
    api::{
        self, ClusterStatus, ProgressStatus,
        conditions::{ConditionType, Findings, Truth, merge, shorten},
    },
    apply::progress::Progress,
    state::{Loaded, Store},
};

/// The shortest time between two writes that tell only of progress within a stage.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Writes the status of one object, for one generation of it.
pub(super) struct StatusWriter {
    api: Api<DynamicObject>,
    name: String,
    uid: String,
    generation: i64,
    now: Clock,
    written: ClusterStatus,
}

impl StatusWriter {
    /// For an object that was just read.
    pub(super) fn new(api: Api<DynamicObject>, view: &View, now: Clock) -> Self {
        let mut written = view.status();
        // Others may have conditions of their own: theirs are no news to us.
        written.conditions.retain(is_ours);
        Self {
            api,
            name: view.name(),
            uid: view.uid(),
            generation: view.generation(),
            now,
            written,
        }
    }

    /// What stands there.
    pub(super) const fn current(&self) -> &ClusterStatus {
        &self.written
    }

    /// True when a run applied the present generation from end to end.
    pub(super) fn provisioned(&self) -> bool {
        self.written.conditions.iter().any(|condition| {
            condition.type_ == ConditionType::Provisioned.name()
                && condition.status == Truth::True.name()
                && condition.observed_generation == Some(self.generation)
        })
    }

    /// Writes what was found and what `edit` changes, if that is news.
    pub(super) async fn write(
        &mut self,
        findings: &Findings,
        edit: impl FnOnce(&mut ClusterStatus),
    ) -> kube::Result<()> {
        let mut next = self.written.clone();
        edit(&mut next);
        next.observed_generation = Some(self.generation);
        next.conditions = merge(
            &self.written.conditions,
            findings,
            self.generation,
            self.now.now(),
        );
        if next == self.written {
            return Ok(());
        }
        // The uid makes it fail on a namesake that was created meanwhile.
        let body = json!({
            "apiVersion": format!("{}/{}", api::GROUP, api::VERSION),
            "kind": "Cluster",
            "metadata": { "name": self.name, "uid": self.uid },
            "status": next,
        });
        let params = PatchParams::apply(api::MANAGER).force();
        let applied = self
            .api
            .patch_status(&self.name, &params, &Patch::Apply(&body))
            .await?;
        self.sweep(applied, &next).await?;
        self.written = next;
        Ok(())
    }

    /// Takes conditions of our types away that another client wrote, or wrote back: an apply
    /// leaves what it does not name to whoever else named it, for ever.
    async fn sweep(&self, applied: DynamicObject, next: &ClusterStatus) -> kube::Result<()> {
        let there = View::new(applied);
        let mut conditions = there.status().conditions;
        let wanted = |condition: &Condition| {
            let same = |other: &Condition| other.type_ == condition.type_;
            !is_ours(condition) || next.conditions.iter().any(same)
        };
        if conditions.iter().all(wanted) {
            return Ok(());
        }
        conditions.retain(wanted);
        let body = json!({
            // Fails when someone else wrote meanwhile, so that nobody's condition is lost.
            "metadata": { "uid": self.uid, "resourceVersion": there.meta().resource_version },
            "status": { "conditions": conditions },
        });
        let params = PatchParams {
            field_manager: Some(api::MANAGER.to_owned()),
            ..PatchParams::default()
        };
        self.api
            .patch_status(&self.name, &params, &Patch::Merge(&body))
            .await?;
        Ok(())
    }

    /// The cluster's id, as soon as there is one: what a deletion that finds no state goes by.
    pub(super) async fn identity(&self, store: &dyn Store) -> Option<String> {
        if self.written.cluster_id.is_some() {
            return self.written.cluster_id.clone();
        }
        match store.load().await {
            Ok(Loaded::Present { saved, .. }) => Some(saved.cluster_id.0),
            // An error is told by the run, which needs the state.
            Ok(Loaded::Absent) | Err(_) => None,
        }
    }

    /// Follows a run until its sender is gone: at once when a stage starts, otherwise at most
    /// every ten seconds. `base` is what else holds during the run.
    pub(super) async fn follow(
        &mut self,
        base: &Findings,
        run: Run,
        store: &dyn Store,
        mut progress: watch::Receiver<Progress>,
    ) {
        let mut last: Option<(Instant, Option<String>)> = None;
        while progress.changed().await.is_ok() {
            let seen = progress.borrow_and_update().clone();
            let stage = seen.stage.as_ref().map(|stage| stage.name.clone());
            if let Some((at, written)) = &last
                && *written == stage
                && at.elapsed() < PROGRESS_EVERY
            {
                continue;
            }
            let mut findings = base.clone();
            let now = summary(&seen);
            let message = now.as_ref().map_or_else(
                || run.starting().to_owned(),
                |p| format!("{}: {} of {} steps", p.stage, p.done, p.total),
            );
            findings.set(run.condition(), true, run.reason(), message);
            let id = self.identity(store).await;
            let edit = |status: &mut ClusterStatus| {
                status.progress = now;
                status.cluster_id = id;
            };
            if let Err(error) = self.write(&findings, edit).await {
                tracing::warn!(%error, cluster = self.name, "cannot write progress");
            }
            last = Some((Instant::now(), stage));
        }
    }
}

/// True for a type that this operator judges.
fn is_ours(condition: &Condition) -> bool {
    ConditionType::TABLE
        .iter()
        .any(|row| row.kind.name() == condition.type_)
}

/// What a run is for, as its status tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Towards the spec.
    Apply,
    /// Back to bare nodes.
    Remove,
}

impl Run {
    pub(super) const fn condition(self) -> ConditionType {
        match self {
            Self::Apply => ConditionType::Reconciling,
            Self::Remove => ConditionType::Deleting,
        }
    }

    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Apply => "Applying",
            Self::Remove => "Removing",
        }
    }

    pub(super) const fn starting(self) -> &'static str {
        match self {
            Self::Apply => "reads what is there",
            Self::Remove => "reads what is left",
        }
    }
}

fn summary(progress: &Progress) -> Option<ProgressStatus> {
    let stage = progress.stage.as_ref()?;
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let current = progress.running.values().next().map(|step| {
        let text = match &step.waiting_for {
            Some(what) => format!("{} on {}: waits for {what}", step.title, step.target),
            None => format!("{} on {}", step.title, step.target),
        };
        shorten(&text, 256)
    });
    Some(ProgressStatus {
        stage: stage.name.clone(),
        done: count(progress.done),
        total: count(progress.steps),
        current,
    })
}

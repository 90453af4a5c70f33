//! The one writer of a Cluster's status (invariant 14): server-side apply of a body that has
//! nothing but the status, and only when something changed, so that a reconcile of a settled
//! cluster writes nothing and triggers no watch.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;
use tokio::{sync::watch, time::Instant};

use super::{
    approval,
    cluster_object::ClusterObject,
    context::Context,
    events::Notice,
    prober::ProbeView,
    queue::LARGE,
    ready::{self, Stage},
    transitions::{Outages, transitions},
};
use crate::{
    api::{
        self, ClusterStatus, LastRun, PendingPlan, ProgressStatus,
        conditions::{ConditionSet, ConditionStatus, ConditionType, Reason, merge, shorten},
    },
    apply::progress::Progress,
    environment::Clock,
    error::{on_object, with_causes},
    model::printable_lines,
    state::{Loaded, Store},
};

/// How the API server answers an apply to an object that it cannot read by its schema.
const NOT_APPLIED: u16 = 500;

/// The shortest time between two writes that tell only of progress within a stage.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Writes the status of one object, for one generation of it.
pub(super) struct StatusWriter {
    api: Api<DynamicObject>,
    name: String,
    uid: String,
    generation: i64,
    deleting: bool,
    paused: bool,
    annotated: bool,
    annotated_version: Option<String>,
    now: Clock,
    stage: Stage,
    pending: Option<PendingPlan>,
    reconcile_at: Option<String>,
    handled: Option<String>,
    last_run: Option<LastRun>,
    outages: Arc<Outages>,
    notices: Vec<Notice>,
    nodes: usize,
    written: ClusterStatus,
}

impl StatusWriter {
    /// For an object that was just read.
    pub(super) fn new(ctx: &Context, view: &ClusterObject) -> Self {
        let mut written = view.status();
        // Other clients may write other conditions: a change of those is not ours to report.
        written.conditions.retain(is_ours);
        Self {
            api: ctx.clusters.clone(),
            name: view.name(),
            uid: view.uid(),
            generation: view.generation(),
            deleting: view.deleted_at().is_some(),
            paused: view.is_paused(),
            annotated: view.annotated_id().is_some(),
            annotated_version: view.annotated_version().cloned(),
            now: ctx.dependencies.clock.clone(),
            stage: Stage::New,
            pending: written
                .pending_plan
                .clone()
                .filter(|_| view.deleted_at().is_none()),
            reconcile_at: view.reconcile_at(),
            handled: written.last_handled_reconcile_at.clone(),
            last_run: written.last_run.clone(),
            outages: Arc::clone(&ctx.outages),
            notices: Vec::new(),
            nodes: view.node_count(),
            written,
        }
    }

    /// What stands there.
    pub(super) const fn current(&self) -> &ClusterStatus {
        &self.written
    }

    /// What waits for a person from now on.
    pub(super) fn set_pending(&mut self, pending: Option<PendingPlan>) {
        self.pending = pending;
    }

    /// A run has ended; `None`: it did nothing.
    pub(super) fn set_last_run(&mut self, run: Option<LastRun>) {
        self.last_run = run.or_else(|| self.last_run.take());
    }

    /// What waits for a person.
    pub(super) const fn pending(&self) -> Option<&PendingPlan> {
        self.pending.as_ref()
    }

    /// What is written from now on is the result of this reconcile.
    pub(super) fn set_handled(&mut self) {
        self.handled.clone_from(&self.reconcile_at);
    }

    /// How far the present spec is, for the summary.
    pub(super) const fn set_stage(&mut self, stage: Stage) {
        self.stage = stage;
    }

    /// How far the present spec is.
    pub(super) const fn stage(&self) -> Stage {
        self.stage
    }

    /// How far the present spec was when the status was written.
    pub(super) fn last_stage(&self) -> Stage {
        let provisioned = self
            .written
            .conditions
            .iter()
            .find(|condition| condition.type_ == ConditionType::Provisioned.name());
        match provisioned {
            Some(there) if there.status == ConditionStatus::True.name() => {
                if there.observed_generation == Some(self.generation) {
                    Stage::Applied
                } else {
                    Stage::Changed
                }
            }
            Some(_) | None => Stage::New,
        }
    }

    /// What was written since is worth these Events.
    pub(super) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// True when this generation has been told something already.
    pub(super) fn has_told(&self) -> bool {
        self.written.observed_generation == Some(self.generation)
    }

    /// A condition as it stands: noted in this pass, or written by an earlier one.
    fn standing(&self, noted: &ConditionSet, kind: ConditionType) -> (ConditionStatus, String) {
        if let Some(state) = noted.get(kind) {
            return (kind.status(state.reason), state.message.clone());
        }
        let written = self
            .written
            .conditions
            .iter()
            .find(|condition| condition.type_ == kind.name());
        let status = written.map_or(ConditionStatus::Unknown, |condition| {
            ConditionStatus::of(&condition.status)
        });
        let message = written.map_or("not checked yet", |condition| &condition.message);
        (status, message.to_owned())
    }

    /// Adds what follows from the object and the other conditions: the summary, whether it is paused, and that it is not
    /// deleted.
    fn complete(&self, conditions: &ConditionSet) -> ConditionSet {
        let mut all = conditions.clone();
        let (reason, message) = if self.paused {
            (
                Reason::Paused,
                "nothing is changed: the spec says `paused: true`",
            )
        } else {
            (Reason::NotPaused, "the spec does not pause it")
        };
        all.set(ConditionType::Paused, reason, message);
        if let Some(pending) = &self.pending {
            approval::tell(&mut all, &self.name, pending);
        }
        if !self.deleting {
            let message = "the object is not being deleted";
            all.set(ConditionType::Deleting, Reason::NotDeleting, message);
        }
        if all.get(ConditionType::Ready).is_none() {
            let (reason, mut message) =
                ready::ready(&|kind| self.standing(conditions, kind), self.stage);
            // Why the spec is not applied is what its reader wants to know first.
            let why = [ConditionType::Stalled, ConditionType::UpToDate]
                .iter()
                .filter_map(|kind| all.get(*kind))
                .find(|state| state.reason != Reason::RollingOut);
            if let Some(why) = why
                && matches!(reason, Reason::NotProvisioned | Reason::SpecNotApplied)
            {
                message.clone_from(&why.message);
            }
            all.set(ConditionType::Ready, reason, message);
        }
        all
    }

    /// Writes what was found and what `edit` changes, if that is news.
    pub(super) async fn write(
        &mut self,
        conditions: &ConditionSet,
        edit: impl FnOnce(&mut ClusterStatus),
    ) -> kube::Result<()> {
        let mut next = self.written.clone();
        edit(&mut next);
        next.pending_plan.clone_from(&self.pending);
        next.last_handled_reconcile_at.clone_from(&self.handled);
        next.last_run.clone_from(&self.last_run);
        let conditions = self.complete(conditions);
        next.observed_generation = Some(self.generation);
        next.conditions = merge(
            &self.written.conditions,
            &conditions,
            self.generation,
            self.now.now(),
        );
        self.note_version(next.version.as_ref()).await;
        self.apply(next).await
    }

    /// Writes a status, if it is news.
    async fn apply(&mut self, next: ClusterStatus) -> kube::Result<()> {
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
            .await;
        let applied = match applied {
            Err(kube::Error::Api(status)) if status.code == NOT_APPLIED => {
                self.merge(&next).await?
            }
            applied => applied?,
        };
        let (before, after) = (&self.written.conditions, &next.conditions);
        let notices = transitions(before, after, &self.uid, &self.outages);
        self.notices.extend(notices);
        self.prune(applied, &next).await?;
        self.written = next;
        Ok(())
    }

    /// True where the object says that it waits for a slot.
    pub(super) fn waits(&self) -> bool {
        self.written.conditions.iter().any(says_that_it_waits)
    }

    /// Writes how many come first, where the object says that it waits.
    pub(super) async fn place(&mut self, ahead: usize) -> kube::Result<()> {
        let mut next = self.written.clone();
        let mut conditions = next.conditions.iter_mut();
        let Some(waits) = conditions.find(|condition| says_that_it_waits(condition)) else {
            return Ok(());
        };
        waits.message = place(ahead);
        self.apply(next).await
    }

    /// Writes it by a merge: the API server applies nothing to an object of an earlier schema whose spec has a value of
    /// another type than the present one says.
    async fn merge(&self, next: &ClusterStatus) -> kube::Result<DynamicObject> {
        let there = ClusterObject::new(self.api.get(&self.name).await?);
        let mut conditions = there.status().conditions;
        conditions.retain(|condition| !is_ours(condition));
        conditions.extend(next.conditions.iter().cloned());
        let mut status = json!(next);
        // A merge keeps what it does not name.
        for field in there.status_fields() {
            if status.get(field).is_none() {
                status[field] = serde_json::Value::Null;
            }
        }
        status["conditions"] = json!(conditions);
        let body = json!({
            "metadata": { "uid": self.uid, "resourceVersion": there.meta().resource_version },
            "status": status,
        });
        let params = PatchParams {
            field_manager: Some(api::MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let body = Patch::Merge(&body);
        self.api.patch_status(&self.name, &params, &body).await
    }

    /// Removes conditions of our types that another client wrote, or restored: an apply never removes
    /// what it does not name while another field manager owns it.
    async fn prune(&self, applied: DynamicObject, next: &ClusterStatus) -> kube::Result<()> {
        let there = ClusterObject::new(applied);
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
            // Fails when another client wrote meanwhile, so that no condition is lost.
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

    /// The cluster's id, as soon as there is one: written into an annotation, too, by which a
    /// deletion knows that there were nodes when both state and status are lost.
    pub(super) async fn identity(&mut self, store: &dyn Store) -> Option<String> {
        if self.annotated && self.written.cluster_id.is_some() {
            return self.written.cluster_id.clone();
        }
        let id = match store.load().await {
            Ok(Loaded::Present { saved, .. }) => saved.cluster_id.0,
            // The run reports an error, because it needs the state.
            Ok(Loaded::Absent) | Err(_) => return self.written.cluster_id.clone(),
        };
        match self.annotate(api::CLUSTER_ID, &id).await {
            Ok(()) => self.annotated = true,
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(error, "cannot note the cluster's id");
            }
        }
        Some(id)
    }

    /// The version that the cluster reports, as an annotation; the last one stays where none is known.
    async fn note_version(&mut self, version: Option<&String>) {
        let news = version.filter(|version| self.annotated_version.as_ref() != Some(*version));
        let Some(version) = news else {
            return;
        };
        match self.annotate(api::KUBERNETES_VERSION, version).await {
            Ok(()) => self.annotated_version = Some(version.clone()),
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(error, "cannot note the Kubernetes version");
            }
        }
    }

    async fn annotate(&self, annotation: &str, value: &str) -> kube::Result<()> {
        let patch = json!({"metadata": {
            "uid": self.uid,
            "annotations": { annotation: value },
        }});
        let params = PatchParams::default();
        self.api
            .patch(&self.name, &params, &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    /// Follows a run until its sender is gone: at once when a stage starts, otherwise at most
    /// every ten seconds; and what is seen of the cluster meanwhile, each at most as often. The status of a large cluster
    /// is a large object: its stages wait for those ten seconds, too. `base` is what else holds during the run.
    pub(super) async fn follow(
        &mut self,
        base: &ConditionSet,
        run: Run,
        store: &dyn Store,
        mut progress: watch::Receiver<Progress>,
        probed: &mut ProbeView,
    ) {
        let mut last = Told {
            patient: self.nodes > LARGE,
            ..Told::default()
        };
        let mut since = (None, String::new());
        loop {
            tokio::select! {
                moved = progress.changed() => if moved.is_err() {
                    return;
                },
                () = probed.changed() => {}
                () = last.owed() => {}
            }
            let seen = progress.borrow_and_update().clone();
            let stage = seen.stage.as_ref().map(|stage| stage.name.clone());
            if since.0 != stage {
                since = (stage.clone(), self.now.now().to_string());
            }
            let news = probed.news();
            if !last.is_due(stage.as_ref(), &news) {
                continue;
            }
            let mut conditions = base.under(&news);
            let now = summary(&seen, &since.1);
            let message = now.as_ref().map_or_else(
                || run.starting().to_owned(),
                |p| format!("{}: {} of {} steps", p.stage, p.done, p.total),
            );
            conditions.set(run.condition(), run.reason(), message);
            let id = self.identity(store).await;
            let edit = |status: &mut ClusterStatus| {
                status.progress = now;
                status.cluster_id = id;
            };
            // The run's end waits for no more than this.
            match tokio::time::timeout(PROGRESS_EVERY, self.write(&conditions, edit)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let error = with_causes(&error);
                    tracing::warn!(error, "cannot write progress");
                }
                Err(_) => {
                    tracing::warn!("cannot write progress: no answer");
                }
            }
            last.told(stage, news);
        }
    }
}

/// With this begins what an object says that waits for a slot.
const WAITS: &str = "waits for its turn; ";

/// What it says.
pub(super) fn place(ahead: usize) -> String {
    format!("{WAITS}{ahead} before it")
}

fn says_that_it_waits(condition: &Condition) -> bool {
    condition.message.starts_with(WAITS)
}

/// What of a run was written last, and when.
#[derive(Default)]
struct Told {
    /// Whatever is new is written only so often, the start of a stage included.
    patient: bool,
    written: Option<(Instant, Option<String>)>,
    /// What was seen besides, and when something else was seen for the last time.
    news: ConditionSet,
    seen: Option<Instant>,
    /// Something is new, and it is too early to write it.
    owed: Option<Instant>,
}

impl Told {
    /// Resolves when what waits may be written.
    async fn owed(&self) {
        match self.owed {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    fn is_due(&mut self, stage: Option<&String>, news: &ConditionSet) -> bool {
        let now = Instant::now();
        let after = |at: Option<Instant>| at.map_or(now, |at| at + PROGRESS_EVERY);
        let written = self.written.as_ref();
        let again = after(written.map(|(at, _)| *at));
        let (of_stage, of_news) = if self.patient {
            (again, again)
        } else {
            (now, after(self.seen))
        };
        let starts = written.is_none_or(|(_, written)| written.as_ref() != stage);
        let moved = self.news != *news;
        let owed = [starts.then_some(of_stage), moved.then_some(of_news)];
        let owed = owed.into_iter().flatten().min();
        self.owed = owed.filter(|at| *at > now);
        again <= now || owed.is_some_and(|at| at <= now)
    }

    fn told(&mut self, stage: Option<String>, news: ConditionSet) {
        let now = Instant::now();
        if self.news != news {
            self.seen = Some(now);
            self.news = news;
        }
        self.written = Some((now, stage));
        self.owed = None;
    }
}

/// True for a type that this operator sets.
fn is_ours(condition: &Condition) -> bool {
    ConditionType::TABLE
        .iter()
        .any(|row| row.kind.name() == condition.type_)
}

/// What a run is for, as its status tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// The first one towards a spec.
    Provision,
    /// Towards a changed spec.
    Change,
    /// Back to what was applied.
    Heal,
    /// Certificates that expire soon are renewed, without any other change.
    Renew,
    /// An operation that a person asked for.
    Operate,
    /// Back to bare nodes.
    Remove,
}

impl Run {
    pub(super) const fn condition(self) -> ConditionType {
        match self {
            Self::Provision | Self::Change | Self::Heal | Self::Renew | Self::Operate => {
                ConditionType::Reconciling
            }
            Self::Remove => ConditionType::Deleting,
        }
    }

    pub(super) const fn reason(self) -> Reason {
        match self {
            Self::Provision => Reason::Provisioning,
            Self::Change => Reason::RollingOut,
            Self::Heal => Reason::Healing,
            Self::Renew => Reason::Renewing,
            Self::Operate => Reason::Operating,
            Self::Remove => Reason::Removing,
        }
    }

    pub(super) const fn starting(self) -> &'static str {
        match self {
            Self::Provision | Self::Change | Self::Heal | Self::Renew | Self::Operate => {
                "reads what is there"
            }
            Self::Remove => "reads what is left",
        }
    }
}

fn summary(progress: &Progress, since: &str) -> Option<ProgressStatus> {
    let stage = progress.stage.as_ref()?;
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let current = progress.running.values().next().map(|step| {
        let text = match &step.waiting_for {
            Some(what) => format!("{} on {}: waits for {what}", step.title, step.target),
            None => format!("{} on {}", step.title, step.target),
        };
        shorten(&printable_lines(&on_object(&text)), 256)
    });
    Some(ProgressStatus {
        stage: stage.name.clone(),
        done: count(progress.done),
        total: count(progress.steps),
        current,
        since: Some(since.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a status is written in a minute in which a stage starts each second.
    async fn writes(patient: bool) -> usize {
        let mut told = Told {
            patient,
            ..Told::default()
        };
        let mut count = 0;
        for second in 0..60 {
            let stage = Some(format!("stage {second}"));
            if told.is_due(stage.as_ref(), &ConditionSet::default()) {
                told.told(stage, ConditionSet::default());
                count += 1;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_status_is_written_six_times_a_minute_at_most() {
        assert_eq!(writes(true).await, 6);
        assert_eq!(writes(false).await, 60, "each stage of a small one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stage_that_waits_is_written_without_further_news() {
        let mut told = Told {
            patient: true,
            ..Told::default()
        };
        let begun = Instant::now();
        assert!(told.is_due(None, &ConditionSet::default()));
        told.told(None, ConditionSet::default());
        let stage = Some("kubelets".to_owned());
        assert!(!told.is_due(stage.as_ref(), &ConditionSet::default()));
        told.owed().await;
        assert_eq!(begun.elapsed(), PROGRESS_EVERY);
        assert!(told.is_due(stage.as_ref(), &ConditionSet::default()));
    }
}

//! What a reconcile reports at its end: the conditions that follow from a survey, an outcome or an error,
//! and the corresponding events.

use std::collections::BTreeMap;

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

use super::{Reconcile, details, refuse};
use crate::{
    api::{
        ApiEndpoint, AppliedConfig, CertificateStatus, ClusterStatus, EtcdCounts, NodeCounts,
        NodeDetail, SnapshotTimes,
        conditions::{ConditionSet, ConditionStatus, ConditionType, Reason, shorten},
    },
    converge::{Error, Survey},
    desired::pki::PkiError,
    error::ErrorClass,
    facts::{Actual, Unreachable},
    model::{NodeName, Role},
    operator::{
        context::{ReconcileError, explained},
        environment::{self, Wanted},
        events::{Notice, publish},
        memory,
        queue::Action,
        ready::Stage,
        reasons::{self, Reasoned, unseen},
        status::Run,
    },
    status::{Newest, NodeStatus, Seen, SnapshotStatus, Status, cases, conditions, unreachable},
};

/// How many API servers the status names.
const ENDPOINTS: usize = 10;

/// The printed part of a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    cluster_id: Option<String>,
    version: Option<String>,
    nodes: Option<NodeCounts>,
    details: Vec<NodeDetail>,
    etcd: Option<EtcdCounts>,
    endpoints: Vec<ApiEndpoint>,
    certificates: Option<CertificateStatus>,
    snapshots: Option<SnapshotTimes>,
    applied: Option<AppliedConfig>,
    surveyed: Option<Timestamp>,
}

impl Facts {
    fn of(status: &Status, now: Timestamp) -> Self {
        // Without a config that can be understood it is about the nodes of the state.
        let has_config = status.cluster.wanted_kubernetes_version.is_some();
        let ours = |node: &&NodeStatus| {
            if has_config {
                node.in_config
            } else {
                node.in_cluster && !node.given_up
            }
        };
        let count = |holds: &dyn Fn(&NodeStatus) -> bool| {
            let nodes = status.nodes.iter().filter(ours);
            let count = nodes.filter(|node| holds(node)).count();
            i64::try_from(count).unwrap_or(i64::MAX)
        };
        let differences = &status.differences;
        let differs = |name: &NodeName| {
            let mut targets = differences.targets.iter();
            differences.refusal.is_some() || targets.any(|one| one.node.as_ref() == Some(name))
        };
        let planes = status.nodes.iter().filter(ours);
        let planes = planes.filter(|node| node.roles.contains(&Role::ControlPlane));
        let endpoints = planes.take(ENDPOINTS).filter_map(|node| {
            Some(ApiEndpoint {
                url: format!("https://{}", bracketed(node.address.as_ref()?)),
                node: node.name.0.clone(),
            })
        });
        Self {
            cluster_id: status.cluster.id.as_ref().map(|id| id.0.clone()),
            version: status.cluster.kubernetes_version.clone(),
            nodes: Some(NodeCounts {
                total: count(&|_| true),
                ready: count(&|node| node.ready == Some(true)),
                up_to_date: count(&|node| node.reachable == Some(true) && !differs(&node.name)),
                unreachable: count(&|node| node.reachable == Some(false)),
            }),
            details: details::details(status.nodes.iter().filter(ours), &|node| {
                differs(&node.name)
            }),
            etcd: details::etcd(&status.etcd),
            endpoints: endpoints.collect(),
            certificates: status.first_to_end.as_ref().map(|first| CertificateStatus {
                earliest_expiry: first.end.at.to_string(),
                component: shorten(&first.end.what, 512),
            }),
            snapshots: status.snapshots.as_ref().and_then(times),
            applied: None,
            surveyed: Some(now),
        }
    }
}

/// `None`: no node answered.
fn times(status: &SnapshotStatus) -> Option<SnapshotTimes> {
    let at = |one: &Option<Newest>| Some(one.as_ref()?.taken_at.to_string());
    let copies = status.copies.as_ref();
    (!status.nodes.is_empty()).then(|| SnapshotTimes {
        last_saved: at(&status.newest),
        last_proven: at(&status.newest_proven),
        last_copied: copies.and_then(|copies| at(&copies.newest)),
        place: copies.map(|copies| shorten(&copies.bucket, 512)),
    })
}

/// The time of a survey, rounded down to ten minutes so that a healthy cluster's status is rarely written.
fn last_survey(at: Timestamp) -> Option<String> {
    let round = TimestampRound::new()
        .smallest(Unit::Minute)
        .increment(10)
        .mode(RoundMode::Trunc);
    at.round(round).ok().map(|at| at.to_string())
}

fn bracketed(address: &str) -> String {
    if address.contains(':') {
        format!("[{address}]:6443")
    } else {
        format!("{address}:6443")
    }
}

/// `4/5`, for the column.
fn node_summary(nodes: NodeCounts) -> String {
    format!("{}/{}", nodes.ready, nodes.total)
}

/// What is known in the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) conditions: ConditionSet,
    pub(super) facts: Facts,
}

impl Found {
    /// What a survey says.
    pub(super) fn of(seen: &Seen<'_>) -> Self {
        let status = Status::of(seen);
        Self {
            conditions: conditions(&status),
            facts: Facts::of(&status, seen.now),
        }
    }

    /// Nothing was seen.
    pub(super) fn unseen(why: &str) -> Self {
        Self {
            conditions: unseen(why),
            facts: Facts::default(),
        }
    }

    /// After a survey that failed: what cannot be seen is not claimed.
    pub(super) fn blind(error: &Error) -> Self {
        let mut found = Self::unseen("it cannot be determined at the moment");
        found.unreachable(error);
        if let Error::Pki(clock @ PkiError::Clock { .. }) = error {
            let kind = ConditionType::CertificatesValid;
            found
                .conditions
                .set(kind, Reason::ClockSkew, explained(clock));
        }
        found
    }

    /// As [`Self::blind`], about the nodes of a config: none was seen to be Ready.
    pub(super) fn failed(wanted: &Wanted, error: &Error) -> Self {
        let mut found = Self::blind(error);
        valid(&mut found.conditions, wanted);
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let unreachable = if let Error::HostsUnreachable { down, .. } = error {
            down.len()
        } else {
            0
        };
        found.facts.nodes = Some(NodeCounts {
            total: count(wanted.intent.nodes.len()),
            unreachable: count(unreachable),
            ..NodeCounts::default()
        });
        found
    }

    /// Adds which nodes do not answer, when that is what the error is about.
    pub(super) fn unreachable(&mut self, error: &Error) {
        if let Error::HostsUnreachable { down, .. } = error {
            let down: BTreeMap<NodeName, _> = down.iter().cloned().collect();
            unreachable(&down, &mut self.conditions);
        }
    }
}

impl Reconcile<'_> {
    /// What a survey towards the config says.
    pub(super) fn seen(&self, wanted: &Wanted, survey: &Survey) -> Found {
        self.looked_at(&survey.actual);
        let mut found = Found::of(&Seen {
            now: self.ctx.dependencies.clock.now(),
            intent: Some(&wanted.intent),
            actual: &survey.actual,
            snapshots: &survey.snapshots,
            desired: survey.desired.as_ref(),
            plan: Ok(survey.whole()),
        });
        valid(&mut found.conditions, wanted);
        found
    }

    /// A survey has seen this.
    pub(super) fn looked_at(&self, actual: &Actual) {
        let (ctx, view) = (self.ctx, self.view);
        ctx.looked_at(view);
        ctx.prober.surveyed(&view.uid(), self.began, actual);
    }

    /// A survey failed.
    pub(super) fn saw_nothing(&self) {
        self.ctx.prober.blind(&self.view.uid(), self.began);
    }

    /// Reports what the prober has seen since the last survey: the next one takes its time, with a node that does not
    /// answer more of it.
    pub(super) async fn report_probed(&mut self) -> Result<(), ReconcileError> {
        let Some(saved) = &self.saved else {
            return Ok(());
        };
        let news = self.ctx.probed(self.view, saved).news();
        if !news.is_empty() {
            self.status.write(&news, |_| {}).await?;
            self.publish_transitions().await;
        }
        Ok(())
    }

    /// The spec is applied: only here does `Provisioned` move on (invariant 14). `run`: what
    /// was done for it, if anything was.
    pub(super) async fn applied(
        mut self,
        wanted: &Wanted,
        mut found: Found,
        run: Option<Run>,
        warnings: &[String],
    ) -> Result<Action, ReconcileError> {
        self.status.set_handled();
        let remembered = memory::remember(self.ctx, self.view, wanted.text.expose()).await;
        let news = match remembered {
            Ok(news) => news,
            Err(error) => return self.failed(&Error::State(error), found).await,
        };
        // Before the object says that it is ready: what it asked for once is done.
        memory::forget_requests(self.ctx, self.view, true, true).await?;
        if run == Some(Run::Change) {
            memory::forget_approval(self.ctx, self.view).await?;
        }
        self.status.set_stage(Stage::Applied);
        if let Some(digest) = news {
            found.facts.applied = Some(AppliedConfig {
                digest: digest.0,
                observed_generation: self.view.generation(),
                time: Some(self.ctx.dependencies.clock.now().to_string()),
                operator_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            });
        }
        provisioned(&mut found.conditions);
        let conditions = found.conditions.clone();
        self.report_run(wanted, found, warnings).await?;
        publish(self.ctx, self.view, &done(run)).await;
        if conditions.status(ConditionType::NodesReachable) == Some(ConditionStatus::True) {
            Ok(self.ctx.settled(self.view))
        } else {
            Ok(self.ctx.retry(self.view, ErrorClass::Host))
        }
    }

    /// The cluster is as it was applied last, and its next change still waits.
    pub(super) async fn kept(
        mut self,
        wanted: &Wanted,
        found: Found,
        run: Run,
        warnings: &[String],
    ) -> Result<Action, ReconcileError> {
        self.status.set_handled();
        self.report_run(wanted, found, warnings).await?;
        publish(self.ctx, self.view, &done(Some(run))).await;
        Ok(self.ctx.settled(self.view))
    }

    /// What can have the spec has it; some nodes do not answer, or a step on them failed.
    pub(super) async fn degraded(
        mut self,
        wanted: &Wanted,
        left: &BTreeMap<NodeName, Unreachable>,
        mut found: Found,
        warnings: &[String],
    ) -> Result<Action, ReconcileError> {
        self.status.set_handled();
        let text = cases(left);
        let conditions = &mut found.conditions;
        if self.is_under_way() {
            let message = format!("the spec is applied, but not to these nodes:\n{text}");
            conditions.set(ConditionType::Provisioned, Reason::Degraded, message);
        }
        let kind = ConditionType::Reconciling;
        let message = format!("tried again until these nodes are as the spec says:\n{text}");
        conditions.set(kind, Reason::HostUnavailable, message);
        self.report_run(wanted, found, warnings).await?;
        let notice = Notice::warning(Reason::Degraded.name(), "Apply", &text);
        publish(self.ctx, self.view, &notice).await;
        Ok(self.ctx.retry(self.view, ErrorClass::Host))
    }

    /// Something keeps the spec from being applied: a run failed, or could not start.
    pub(super) async fn failed(
        mut self,
        error: &(impl Reasoned + 'static),
        mut found: Found,
    ) -> Result<Action, ReconcileError> {
        self.status.set_handled();
        let text = explained(error);
        let condition = error.condition();
        let conditions = &mut found.conditions;
        if let Some(reason) = error.invalid() {
            conditions.set(ConditionType::ConfigValid, reason, &text);
        }
        if self.is_under_way() {
            conditions.set(ConditionType::Provisioned, Reason::Failed, &text);
            conditions.set(ConditionType::UpToDate, Reason::Failed, &text);
        }
        reasons::note(conditions, condition, &text);
        self.report(&found.conditions, found.facts).await?;
        let notice = Notice::warning(condition.1.name(), "Apply", &text);
        publish(self.ctx, self.view, &notice).await;
        Ok(self.ctx.retry(self.view, error.class()))
    }

    pub(super) async fn report(
        &mut self,
        conditions: &ConditionSet,
        facts: Facts,
    ) -> Result<(), ReconcileError> {
        self.status
            .write(conditions, |status| {
                facts.into_status(status);
                status.progress = None;
            })
            .await?;
        self.publish_transitions().await;
        Ok(())
    }

    /// As [`Self::report`], with what the config itself says.
    pub(super) async fn report_about(
        &mut self,
        wanted: &Wanted,
        found: Found,
    ) -> Result<(), ReconcileError> {
        // Those of the last run stay until the next one.
        let warnings = self.status.current().warnings.clone();
        self.report_run(wanted, found, &warnings).await
    }

    /// As [`Self::report_about`], with the warnings of a run that ended.
    async fn report_run(
        &mut self,
        wanted: &Wanted,
        found: Found,
        warnings: &[String],
    ) -> Result<(), ReconcileError> {
        let Found { conditions, facts } = found;
        let version = wanted.version.clone();
        let warnings = told_once(wanted.warnings.iter().chain(warnings));
        self.status
            .write(&conditions, |status| {
                facts.into_status(status);
                status.progress = None;
                status.desired_version = Some(version);
                status.warnings = warnings;
            })
            .await?;
        self.publish_transitions().await;
        Ok(())
    }

    /// Events for what has become otherwise since the status before.
    async fn publish_transitions(&mut self) {
        for notice in self.status.take_notices() {
            publish(self.ctx, self.view, &notice).await;
        }
    }
}

/// Each warning once, the first ones.
fn told_once<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for warning in all {
        if !kept.contains(warning) && kept.len() < environment::WARNINGS {
            kept.push(warning.clone());
        }
    }
    kept
}

impl Facts {
    /// What is not known stays as it was.
    fn into_status(self, status: &mut ClusterStatus) {
        let Self {
            cluster_id,
            version,
            nodes,
            details,
            etcd,
            endpoints,
            certificates,
            snapshots,
            applied,
            surveyed,
        } = self;
        for (field, fact) in [
            (&mut status.cluster_id, cluster_id),
            (&mut status.version, version),
            (&mut status.last_survey, surveyed.and_then(last_survey)),
        ] {
            if fact.is_some() {
                *field = fact;
            }
        }
        if let Some(nodes) = nodes {
            status.nodes = Some(nodes);
            status.node_summary = Some(node_summary(nodes));
        }
        if !details.is_empty() {
            status.node_details = details;
        }
        if surveyed.is_some() {
            status.etcd = etcd;
        }
        if !endpoints.is_empty() {
            status.endpoints = endpoints;
        }
        if certificates.is_some() {
            status.certificates = certificates;
        }
        if snapshots.is_some() {
            status.snapshots = snapshots;
        }
        if applied.is_some() {
            status.applied_config = applied;
        }
    }
}

/// What a run did that came to its end.
fn done(run: Option<Run>) -> Notice {
    let (reason, note) = match run {
        Some(Run::Heal) => ("Healed", "what differed from the spec was put right"),
        Some(Run::Renew) => ("Renewed", "certificates that would have ended were renewed"),
        Some(Run::Provision | Run::Change | Run::Operate | Run::Remove) | None => {
            ("Provisioned", APPLIED)
        }
    };
    Notice::normal(reason, "Apply", note)
}

/// What `Provisioned` says when it is true.
const APPLIED: &str = "the spec was applied";

pub(super) fn provisioned(conditions: &mut ConditionSet) {
    let kind = ConditionType::Provisioned;
    conditions.set(kind, Reason::Provisioned, APPLIED);
}

/// The config was understood; or it is refused all the same.
pub(super) fn valid(conditions: &mut ConditionSet, wanted: &Wanted) {
    if let Some(error) = wanted.refused() {
        refuse(conditions, &error);
        return;
    }
    conditions.set(
        ConditionType::ConfigValid,
        Reason::Valid,
        "the config is valid",
    );
}

/// The nodes of the config that do not answer.
pub(super) fn silent(wanted: &Wanted, survey: &Survey) -> BTreeMap<NodeName, Unreachable> {
    let silent = survey.actual.unreachable();
    let named = silent.filter(|(name, _)| wanted.intent.nodes.contains_key(*name));
    named
        .map(|(name, why)| (name.clone(), why.clone()))
        .collect()
}

//! What a pass says in the end: the conditions that follow from a survey, an outcome or an error,
//! and the events beside them.

use std::collections::BTreeMap;

use kube::runtime::controller::Action;

use super::Reconcile;
use crate::{
    actual::{HostView, Unreachable},
    api::{
        ClusterStatus, NodeCounts,
        conditions::{ConditionSet, ConditionStatus, ConditionType, Reason},
    },
    converge::{Error, Survey},
    desired::pki::PkiError,
    error::ErrorClass,
    model::NodeName,
    operator::{
        certificates,
        context::{ReconcileError, explained},
        environment::{self, Wanted},
        events::{Notice, publish},
        memory,
        probe::{self, Facts, Members, Stage},
        reasons::{self, Reasoned},
        status::Run,
    },
};

/// What is known in the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) conditions: ConditionSet,
    pub(super) facts: Facts,
}

impl From<(ConditionSet, Facts)> for Found {
    fn from((conditions, facts): (ConditionSet, Facts)) -> Self {
        Self { conditions, facts }
    }
}

impl Found {
    /// Nothing could be seen.
    pub(super) fn unseen(why: &str) -> Self {
        let mut found = Self::default();
        for kind in [
            ConditionType::Available,
            ConditionType::EtcdHealthy,
            ConditionType::ControlPlaneHealthy,
            ConditionType::NodesHealthy,
            ConditionType::AddonsApplied,
            ConditionType::CertificatesValid,
            ConditionType::UpToDate,
        ] {
            found.conditions.set(kind, Reason::Unreachable, why);
        }
        found
    }

    /// After a survey that failed: what cannot be seen is not claimed.
    pub(super) fn blind(error: &Error) -> Self {
        let mut found = Self::unseen("it cannot be seen at the moment");
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
        valid(&mut found.conditions, &wanted.later);
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
            probe::unreachable(&down, &mut self.conditions);
        }
    }
}

impl Reconcile<'_> {
    /// What a survey towards the config says.
    pub(super) fn seen(&self, wanted: &Wanted, survey: &Survey) -> Found {
        let members = Members::from(&wanted.intent);
        let desired = survey.desired.as_ref();
        let mut found = Found::from(probe::probe(
            &members,
            &survey.actual,
            desired,
            Some(&survey.plan),
        ));
        valid(&mut found.conditions, &wanted.later);
        if let Some(desired) = desired {
            let now = self.ctx.dependencies.clock.now();
            certificates::judge(&desired.certificates, now, &mut found.conditions);
            found.facts.certificates = certificates::earliest(&desired.certificates);
        }
        found
    }

    /// An event when certificates end soon or have ended; once for each day that is left.
    pub(super) async fn tell_certificates(&self, conditions: &ConditionSet) {
        let kind = ConditionType::CertificatesValid;
        let Some(state) = conditions.get(kind) else {
            return;
        };
        let said = self.status.message(kind) == Some(&state.message);
        if matches!(state.reason, Reason::ExpiringSoon | Reason::Expired) && !said {
            let notice = Notice::warning(state.reason.name(), "Survey", &state.message);
            publish(self.ctx, self.view, &notice).await;
        }
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
        if let Err(error) = memory::remember(self.ctx, self.view).await {
            return self.failed(&Error::State(error), found).await;
        }
        // Before the object says that it is ready: what it asked for once is done.
        memory::forget_requests(self.ctx, self.view, true).await?;
        self.status.set_stage(Stage::Applied);
        provisioned(&mut found.conditions);
        let conditions = found.conditions.clone();
        self.report_run(wanted, found, warnings).await?;
        let (reason, note) = match run {
            Some(Run::Heal) => ("Healed", "what differed from the spec was put right"),
            Some(Run::Renew) => ("Renewed", "certificates that would have ended were renewed"),
            Some(Run::Provision | Run::Change | Run::Remove) | None => ("Provisioned", APPLIED),
        };
        let done = Notice::normal(reason, "Apply", note);
        publish(self.ctx, self.view, &done).await;
        if conditions.status(ConditionType::NodesReachable) == Some(ConditionStatus::True) {
            Ok(self.ctx.settled(self.view))
        } else {
            Ok(self.ctx.retry(self.view, ErrorClass::Host))
        }
    }

    /// What can have the spec has it; some nodes do not answer, or a step on them failed.
    pub(super) async fn degraded(
        mut self,
        wanted: &Wanted,
        left: &BTreeMap<NodeName, Unreachable>,
        mut found: Found,
        warnings: &[String],
    ) -> Result<Action, ReconcileError> {
        let text = probe::cases(left);
        let conditions = &mut found.conditions;
        if self.status.stage() != Stage::Applied {
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
        let text = explained(error);
        let verdict = error.verdict();
        let conditions = &mut found.conditions;
        if self.status.stage() != Stage::Applied {
            conditions.set(ConditionType::Provisioned, Reason::Failed, &text);
            conditions.set(ConditionType::UpToDate, Reason::Failed, &text);
        }
        reasons::note(conditions, verdict, &text);
        self.report(&found.conditions, found.facts).await?;
        let notice = Notice::warning(verdict.1.name(), "Apply", &text);
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
        let version = wanted.intent.version.to_string();
        let warnings = told_once(wanted.warnings.iter().chain(warnings));
        self.status
            .write(&conditions, |status| {
                facts.into_status(status);
                status.progress = None;
                status.desired_version = Some(version);
                status.warnings = warnings;
            })
            .await?;
        Ok(())
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
            endpoints,
            certificates,
        } = self;
        for (field, fact) in [
            (&mut status.cluster_id, cluster_id),
            (&mut status.version, version),
        ] {
            if fact.is_some() {
                *field = fact;
            }
        }
        if let Some(nodes) = nodes {
            status.nodes = Some(nodes);
            status.node_summary = Some(probe::node_summary(nodes));
        }
        if !endpoints.is_empty() {
            status.endpoints = endpoints;
        }
        if certificates.is_some() {
            status.certificates = certificates;
        }
    }
}

/// What `Provisioned` says when it is true.
const APPLIED: &str = "the spec was applied";

pub(super) fn provisioned(conditions: &mut ConditionSet) {
    let kind = ConditionType::Provisioned;
    conditions.set(kind, Reason::Provisioned, APPLIED);
}

/// The config was understood, and what of it is not done yet is said.
pub(super) fn valid(conditions: &mut ConditionSet, later: &[String]) {
    let mut text = "the config is valid".to_owned();
    if !later.is_empty() {
        text.push_str("; not done yet: ");
        text.push_str(&later.join("; "));
    }
    conditions.set(ConditionType::ConfigValid, Reason::Valid, &text);
}

/// The nodes of the config that do not answer.
pub(super) fn silent(wanted: &Wanted, survey: &Survey) -> BTreeMap<NodeName, Unreachable> {
    let hosts = survey.actual.hosts.iter();
    hosts
        .filter(|(name, _)| wanted.intent.nodes.contains_key(*name))
        .filter_map(|(name, view)| match view {
            HostView::Unreachable(why) => Some((name.clone(), why.clone())),
            HostView::Reachable(_) => None,
        })
        .collect()
}

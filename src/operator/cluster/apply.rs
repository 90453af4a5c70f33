//! One run towards a spec: what is reported during the run, and its result.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{Reconcile, report::Found, valid};
use crate::{
    api::{
        NameRef,
        conditions::{ConditionSet, ConditionType, Reason},
    },
    apply::{step::Warning, stop::StopCause},
    converge::{self, Convergence, Error, Goal, Iteration, Outcome},
    environment::Environment,
    facts::Unreachable,
    model::NodeName,
    operator::{
        context::ReconcileError,
        environment::{self, Wanted},
        memory,
        queue::Action,
        run::{self, Task, stopped},
        status::Run,
    },
};

impl Reconcile<'_> {
    /// Brings the nodes to the spec. `base` is what a survey found just before, if one did; `first` is
    /// that survey.
    pub(super) async fn apply<'w>(
        mut self,
        wanted: &Wanted,
        environment: &'w Environment,
        purpose: Run,
        base: ConditionSet,
        first: Option<Box<Iteration<'w>>>,
    ) -> Result<Action, ReconcileError> {
        let ctx = self.ctx;
        let base = self.starting(base, purpose, wanted).await?;
        let mark = ctx.prober.begin_run(&self.view.uid());
        self.began = Instant::now();
        let saved = self.saved.as_ref();
        let mut probed = saved
            .map(|saved| ctx.probed(self.view, saved))
            .unwrap_or_default();
        let task = Task {
            purpose: match purpose {
                Run::Heal | Run::Renew => wanted.upkeep(),
                Run::Provision | Run::Change | Run::Operate | Run::Remove => {
                    Goal::Up(&wanted.intent)
                }
            },
            first,
            slot: self.slot,
            run: purpose,
            read: &wanted.read,
            limit: None,
        };
        let running = self.running.lock().await;
        let sinks = (&mut self.status, &mut probed);
        let run = run::run(ctx, self.view, task, environment, sinks, &base);
        let ended = Box::pin(run).await;
        drop(running);
        let id = self.status.identity(&*environment.store).await;
        // Its result is not known yet, and the object must not look settled.
        let mut conditions = base.clone();
        conditions.set(purpose.condition(), purpose.reason(), purpose.starting());
        self.status
            .write(&conditions.under(&probed.news()), |status| {
                status.cluster_id = id;
            })
            .await?;
        let (ended, survey) = match ended {
            Ok(Convergence::Settled(Outcome::Converged {
                changed: _,
                warnings,
                survey,
            })) => (Ok((BTreeMap::new(), warnings)), Some(survey)),
            Ok(Convergence::Settled(Outcome::Degraded {
                left,
                changed: _,
                warnings,
                survey,
            })) => (Ok((left, warnings)), survey),
            Ok(Convergence::Stopped(cause)) => return Ok(stopped(cause)),
            Err(error) => (Err(error), None),
        };
        let found = match survey {
            Some(survey) => self.seen(wanted, &survey),
            None => match self.look_again(wanted, environment).await {
                Ok(found) => found,
                Err(cause) => return Ok(stopped(cause)),
            },
        };
        drop(mark);
        Box::pin(self.ended(wanted, purpose, ended, found)).await
    }

    /// Surveys the cluster after the run, whatever its result, so that the status shows the state after it.
    /// One-time requests were for the run, and are left out here.
    async fn look_again(
        &self,
        wanted: &Wanted,
        environment: &Environment,
    ) -> Result<Found, StopCause> {
        let goal = Goal::Up(&wanted.intent);
        let environment = &environment.without_requests();
        let survey = tokio::select! {
            survey = Box::pin(converge::survey(&goal, environment)) => survey,
            cause = self.ctx.outdated(self.view, &wanted.read) => return Err(cause),
        };
        Ok(match &survey {
            Ok(survey) => self.seen(wanted, survey),
            Err(error) => {
                self.saw_nothing();
                Found::failed(wanted, error)
            }
        })
    }

    /// Reports how a run ended: with the nodes that it left to the next one, and its warnings.
    async fn ended(
        self,
        wanted: &Wanted,
        purpose: Run,
        ended: Result<(BTreeMap<NodeName, Unreachable>, Vec<Warning>), Error>,
        mut found: Found,
    ) -> Result<Action, ReconcileError> {
        let texts = |warnings: Vec<Warning>| -> Vec<String> {
            warnings.iter().map(environment::warning).collect()
        };
        match ended {
            Ok((left, warnings)) if left.is_empty() && self.keeps() => {
                self.kept(wanted, found, purpose, &texts(warnings)).await
            }
            Ok((left, warnings)) if left.is_empty() => {
                self.applied(wanted, found, Some(purpose), &texts(warnings))
                    .await
            }
            Ok((left, warnings)) => {
                if !self.keeps() {
                    memory::forget_requests(self.ctx, self.view, true, true).await?;
                }
                self.degraded(wanted, &left, found, &texts(warnings)).await
            }
            Err(error) => {
                found.unreachable(&error);
                self.failed(&error, found).await
            }
        }
    }

    /// Reports that a run is in progress.
    async fn starting(
        &mut self,
        mut base: ConditionSet,
        run: Run,
        wanted: &Wanted,
    ) -> Result<ConditionSet, ReconcileError> {
        valid(&mut base, wanted);
        if run == Run::Provision {
            let message = "the first run for this spec is in progress";
            base.set(ConditionType::Provisioned, Reason::Provisioning, message);
            // Before any other run, the differences were reported.
            let message = "a run is in progress";
            base.set(ConditionType::UpToDate, Reason::RollingOut, message);
        }
        let mut conditions = base.clone();
        conditions.set(run.condition(), run.reason(), run.starting());
        let kubeconfig = self.view.name();
        let version = wanted.version.clone();
        self.status
            .write(&conditions, |status| {
                status.kubeconfig_ref = Some(NameRef { name: kubeconfig });
                status.desired_version = Some(version);
                status.progress = None;
            })
            .await?;
        Ok(base)
    }
}

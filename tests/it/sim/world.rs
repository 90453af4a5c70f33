//! The whole truth about some nodes and a cluster, what a survey sees of it, and runs that end
//! early.

use std::collections::BTreeMap;

use rke_operator::{
    actual::{Actual, ApiFacts, ApiView, ContainerState, Down, HostView},
    config::NodeName,
    desired::{CLAIM, Desired, label},
    plan::{self, Action, Component, Guard, Plan, PlanError, Step, Target},
    secret::Secret,
    state::Saved,
};

use super::{effect, tear};

/// Where a run is started: its own state and kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shell {
    pub(crate) saved: Option<Saved>,
    pub(crate) kubeconfig: Option<Secret<String>>,
}

/// The truth: every file, whether or not a survey could read it, and everything that etcd
/// holds, whether or not an API server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct World {
    pub(crate) truth: Actual,
    /// The API server has come up since it was last started.
    pub(crate) answering: bool,
    /// Nodes that do not answer.
    pub(crate) down: BTreeMap<NodeName, Down>,
}

/// Where a run is cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// After how many whole steps.
    pub(crate) after: usize,
    /// What becomes of the next one.
    pub(crate) torn: u8,
}

/// How a run of one plan ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    Cut,
    /// A guard did not hold.
    PlanAgain(String),
    /// A step's precondition did not hold.
    Failed(String),
}

impl World {
    pub(crate) fn new(
        hosts: impl IntoIterator<Item = (NodeName, rke_operator::actual::HostFacts)>,
    ) -> Self {
        let hosts = hosts.into_iter().map(|(name, mut facts)| {
            facts.files.get_or_insert_default();
            (name, HostView::Up(Box::new(facts)))
        });
        Self {
            truth: Actual {
                hosts: hosts.collect(),
                api: ApiView::Up(Box::default()),
                kubeconfig: None,
                saved: None,
            },
            answering: false,
            down: BTreeMap::new(),
        }
    }

    /// What a survey of this shell sees.
    pub(crate) fn observe(&self, shell: &Shell) -> Actual {
        let mut seen = self.truth.clone();
        seen.saved = shell.saved.clone().map(Box::new);
        seen.kubeconfig.clone_from(&shell.kubeconfig);
        seen.api = match &shell.saved {
            None => ApiView::Unknown,
            Some(_) if !self.answering => ApiView::Down("connection refused".to_owned()),
            Some(saved) if !self.serves(saved) => ApiView::Unknown,
            Some(_) => seen.api,
        };
        for (name, view) in &mut seen.hosts {
            if let Some(down) = self.down.get(name) {
                *view = HostView::Down(down.clone());
            } else if let HostView::Up(facts) = view
                && facts.claim().is_none()
            {
                facts.files = None;
            }
        }
        seen
    }

    fn serves(&self, saved: &Saved) -> bool {
        self.truth.hosts.iter().any(|(name, view)| {
            let HostView::Up(facts) = view else {
                return false;
            };
            let runs = |component: Component| {
                facts
                    .containers
                    .get(component.container())
                    .is_some_and(|fact| {
                        fact.state == ContainerState::Running
                            && fact.labels.get(label::CLUSTER_ID) == Some(&saved.cluster_id.0)
                    })
            };
            let etcd = runs(Component::Etcd);
            !self.down.contains_key(name) && etcd && runs(Component::ApiServer)
        })
    }

    /// Time passes: what was started comes up.
    pub(crate) fn settle(&mut self, shell: &Shell) {
        self.answering |= shell.saved.as_ref().is_some_and(|saved| self.serves(saved));
    }

    /// One step of a shell, its guard first.
    pub(crate) fn step(
        &mut self,
        step: &Step,
        want: Option<&Desired>,
        shell: &mut Shell,
    ) -> Result<(), Ended> {
        self.guard(step)?;
        self.as_shell(shell, |truth| effect::apply(step, want, truth))
            .map_err(Ended::Failed)?;
        self.after(step);
        Ok(())
    }

    fn guard(&self, step: &Step) -> Result<(), Ended> {
        if let Target::Host(name) = &step.target
            && let Some(down) = self.down.get(name)
        {
            return Err(Ended::Failed(down.why.clone()));
        }
        let Some(guard) = &step.guard else {
            return Ok(());
        };
        let Guard::ClaimIs(_) = guard;
        let Target::Host(name) = &step.target else {
            return Ok(());
        };
        let claim = self
            .truth
            .up(name)
            .and_then(|facts| facts.containers.get(CLAIM));
        plan::holds(guard, claim).map_err(Ended::PlanAgain)
    }

    /// What the truth knows beyond the facts: files stay without their claim, and so does what
    /// etcd holds without its API server.
    fn after(&mut self, step: &Step) {
        for view in self.truth.hosts.values_mut() {
            if let HostView::Up(facts) = view {
                facts.files.get_or_insert_default();
            }
        }
        if let Action::AwaitHealthy {
            component: Component::ApiServer,
        } = &step.action
        {
            self.answering = true;
        }
        if let Action::ReplaceContainer { name, .. }
        | Action::RemoveContainer { name }
        | Action::RunContainer { name, .. }
        | Action::StartContainer { name } = &step.action
        {
            self.answering &= !["etcd", "kube-apiserver"].contains(&name.as_str());
        }
        if let Action::CleanHost { .. } = &step.action {
            self.truth.api = ApiView::Up(Box::default());
        }
    }

    fn as_shell<T>(&mut self, shell: &mut Shell, act: impl FnOnce(&mut Actual) -> T) -> T {
        let answers =
            self.answering && shell.saved.as_ref().is_some_and(|saved| self.serves(saved));
        self.truth.saved = shell.saved.take().map(Box::new);
        self.truth.kubeconfig = shell.kubeconfig.take();
        // Where nothing answers, nothing can be written.
        let etcd = (!answers).then(|| {
            let down = ApiView::Down("connection refused".to_owned());
            std::mem::replace(&mut self.truth.api, down)
        });
        let result = act(&mut self.truth);
        if let Some(etcd) = etcd {
            self.truth.api = etcd;
        }
        shell.saved = self.truth.saved.take().map(|saved| *saved);
        shell.kubeconfig = self.truth.kubeconfig.take();
        result
    }

    /// Runs a plan, to the end or to where it is cut off.
    pub(crate) fn run(
        &mut self,
        plan: &Plan,
        want: Option<&Desired>,
        shell: &mut Shell,
        cut: Option<Cut>,
    ) -> Ended {
        for (index, step) in plan.steps().enumerate() {
            if let Some(cut) = cut
                && index == cut.after
            {
                if self.guard(step).is_ok() {
                    self.as_shell(shell, |truth| tear::tear(step, cut.torn, want, truth));
                    self.after(step);
                    self.answering &= shell.saved.as_ref().is_some_and(|saved| self.serves(saved));
                }
                return Ended::Cut;
            }
            if let Err(ended) = self.step(step, want, shell) {
                return ended;
            }
        }
        Ended::Completed
    }

    /// Everything that etcd holds.
    pub(crate) fn etcd(&mut self) -> &mut ApiFacts {
        match &mut self.truth.api {
            ApiView::Up(facts) => facts,
            ApiView::Unknown | ApiView::Down(_) => unreachable!("the truth knows what etcd holds"),
        }
    }
}

/// Plans `up`, and holds the plan against the invariants.
pub(crate) fn plan_up(want: &Desired, have: &Actual) -> Result<Plan, PlanError> {
    let plan = plan::up(want, have)?;
    assert_eq!(
        plan::check(&plan, have, &want.cluster_id),
        [],
        "{}",
        plan::render(&plan)
    );
    Ok(plan)
}

/// Plans `remove`, and holds the plan against the invariants.
pub(crate) fn plan_remove(have: &Actual) -> Result<Plan, PlanError> {
    let id = have.saved.as_ref().map(|saved| saved.cluster_id.clone());
    let plan = plan::remove(id.as_ref(), have)?;
    if let Some(id) = &id {
        assert_eq!(plan::check(&plan, have, id), [], "{}", plan::render(&plan));
    }
    Ok(plan)
}

/// Surveys and runs until the plan is empty; at most five rounds, as `converge` does.
pub(crate) fn converge_up(world: &mut World, want: &Desired, shell: &mut Shell) -> usize {
    for round in 0..5 {
        let plan = plan_up(want, &world.observe(shell)).unwrap();
        if plan.is_empty() {
            return round;
        }
        let ended = world.run(&plan, Some(want), shell, None);
        assert_eq!(
            ended,
            Ended::Completed,
            "round {round}:\n{}",
            plan::render(&plan)
        );
    }
    let plan = plan_up(want, &world.observe(shell)).unwrap();
    panic!("something keeps changing:\n{}", plan::render(&plan));
}

/// The same for a removal; the plan that deletes the state is the last.
pub(crate) fn converge_remove(world: &mut World, shell: &mut Shell) -> usize {
    for round in 0..5 {
        let plan = plan_remove(&world.observe(shell)).unwrap();
        if plan.is_empty() {
            return round;
        }
        let ended = world.run(&plan, None, shell, None);
        assert_eq!(
            ended,
            Ended::Completed,
            "round {round}:\n{}",
            plan::render(&plan)
        );
        if plan.deletes_state() {
            return round + 1;
        }
    }
    let plan = plan_remove(&world.observe(shell)).unwrap();
    panic!("something keeps changing:\n{}", plan::render(&plan));
}

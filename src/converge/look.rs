//! One survey of everything: the state, the nodes, the cluster; then what must be, and the plan to get there.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    AnyPurpose, Error, Goal, Inspection, Purpose, Survey,
    back::GoingBack,
    failed,
    kept::{self, Kept},
    left_alone, silent,
};
use crate::{
    apply::{
        act::Steps,
        event::{Events, RunOutcome},
        remote::{Context, RemoteSession},
        run,
        run::Report,
        step::Failure,
        stop::Stop,
    },
    bundle::Bundle,
    catalog::Catalogue,
    config::{Bastion, Intent, Login},
    desired,
    desired::{
        Desired, NeededImages, pki,
        pki::{EngineClients, PkiContext, PkiError, RestoreRequest, RotationStage, Seed},
    },
    environment::Environment,
    error::{ErrorClass, Obstacle},
    facts::{Actual, ApiView, HostView, KeptFacts, Unreachable},
    host::pool::{ConnectionTarget, Target, Verified},
    model::{BundledImage, BundledImages, Component, Endpoint, Named, NodeName, Role},
    plan,
    plan::Plan,
    snapshots::SnapshotTools,
    state::{ClusterState, InventoryEntry, Loaded, Membership},
    status::{self, Served},
};

/// What one look gives: the survey, and what a run of its plan needs.
/// [`super::converge`] is iterations of these.
pub struct Iteration<'w> {
    pub(super) survey: Survey,
    pub(super) environment: &'w Environment,
    pub(super) session: Box<dyn RemoteSession>,
    saved: Option<ClusterState>,
    revision: Option<String>,
    engine: Option<EngineClients>,
    snapshot_tools: Option<SnapshotTools>,
    /// When the oldest of its facts were read.
    since: Timestamp,
}

impl<'w> Iteration<'w> {
    /// Looks. Writes nothing, anywhere.
    pub async fn look(purpose: &impl Purpose, environment: &'w Environment) -> Result<Self, Error> {
        let purpose = purpose.any();
        let session = open(environment);
        let so_far = SoFar::default();
        Box::pin(look(
            purpose,
            environment,
            session,
            &so_far,
            Kept::default(),
        ))
        .await
    }

    /// The same look for another purpose with the same intent.
    pub(super) fn about(mut self, purpose: AnyPurpose<'_>) -> Self {
        let all = self.survey.all.take();
        let all = all.unwrap_or_else(|| std::mem::take(&mut self.survey.plan));
        (self.survey.plan, self.survey.all) = part(purpose, all);
        self
    }

    /// What was found, and what would be done about it.
    pub const fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Saves that the cluster was seen with what we put there, once: see
    /// [`crate::state::OperatorMemory::populated`].
    pub(super) async fn remember(&self, purpose: AnyPurpose<'_>) -> Result<(), Error> {
        let actual = &self.survey.actual;
        let (Some(saved), ApiView::Up(api)) = (&actual.saved, actual.api()) else {
            return Ok(());
        };
        let removes = matches!(purpose, AnyPurpose::Removal(_));
        if removes || saved.memory.populated || api.is_bare() {
            return Ok(());
        }
        let mut next = saved.clone();
        next.memory.populated = true;
        let store = &self.environment.store;
        store.save(&next, self.revision.as_deref()).await?;
        Ok(())
    }

    /// What there is left of it after a run of its plan that ended so.
    pub(super) fn leave(
        self,
        purpose: AnyPurpose<'_>,
        outcome: &RunOutcome,
    ) -> (Box<dyn RemoteSession>, Plan, Kept) {
        let (kept, plan) = Kept::after(purpose, self.survey, outcome, self.since);
        (self.session, plan, kept)
    }

    /// What its steps are carried out with.
    pub(super) fn context(&self) -> Context<'_> {
        Context {
            environment: self.environment,
            actual: &self.survey.actual,
            desired: self.survey.desired.as_ref(),
            saved: self.saved.as_ref(),
            revision: self.revision.as_deref(),
            engine: self.engine.as_ref(),
            snapshot_tools: self.snapshot_tools.as_ref(),
        }
    }

    /// Runs a plan of this look: the survey's, or a part of it.
    pub async fn run(&self, plan: &Plan, number: u32, events: &Events, stop: &Stop) -> Report {
        let steps = Steps {
            session: &*self.session,
            context: self.context(),
        };
        Box::pin(run::run(plan, number, &steps, events, stop)).await
    }
}

/// What the iterations of a run so far have left to the next one.
#[derive(Default)]
pub(super) struct SoFar {
    /// Nodes on which a step failed: left alone until the next run, like those that do not answer.
    pub(super) failed: BTreeMap<NodeName, Unreachable>,
    /// An iteration was run, and the state has what was asked for once.
    pub(super) ran: bool,
    /// What has failed in this run and goes back, after which the run ends.
    pub(super) back: Option<Box<GoingBack>>,
}

impl SoFar {
    /// What failures of a run mean. Where a change has failed whose former container is kept, the next look finds it, and
    /// nothing else is done; where that fails too, the error is that of the change.
    pub(super) fn after(
        &mut self,
        outcome: &RunOutcome,
        failures: Vec<Failure>,
        survey: &Survey,
    ) -> Result<(), Error> {
        let failures = match GoingBack::of(failures, survey) {
            Ok(back) if self.back.is_none() => {
                self.back = Some(back);
                return Ok(());
            }
            Ok(back) => return Err(self.back.take().unwrap_or(back).failed()),
            Err(failures) => failures,
        };
        match (self.ends(outcome, failures), self.back.take()) {
            (Some(_), Some(back)) => Err(back.failed()),
            (Some(failure), None) => Err(failed(failure)),
            (None, back) => {
                self.back = back;
                Ok(())
            }
        }
    }

    /// A look that failed: where something has failed before, that is what there is to say.
    pub(super) fn failed_before(&mut self, error: Error, changed: bool) -> Error {
        match self.back.take() {
            Some(back) => back.failed(),
            None if changed => error.after_changes(),
            None => error,
        }
    }

    /// The failure that ends the run. Others leave their nodes alone until the next one.
    fn ends(&mut self, outcome: &RunOutcome, failures: Vec<Failure>) -> Option<Failure> {
        match outcome {
            RunOutcome::Failed => failures.into_iter().next(),
            RunOutcome::Completed
            | RunOutcome::Degraded
            | RunOutcome::PlanAgain
            | RunOutcome::Stopped => {
                self.failed.extend(failures.iter().filter_map(left_alone));
                None
            }
        }
    }

    /// True where nothing can be brought about without the nodes that are left alone.
    pub(super) fn leaves_too_few(&self, survey: &Survey) -> bool {
        let Some(want) = &survey.desired else {
            return false;
        };
        let mut have = survey.actual.clone();
        for (name, why) in &self.failed {
            let view = HostView::Unreachable(why.clone());
            have.hosts.insert(name.clone(), view);
        }
        let with = |component| want.with(component);
        plan::enough_answer(with(Component::Etcd), with(Component::ApiServer), &have).is_err()
    }

    /// The nodes that a person gives up as lost: once the state has them so that is used up.
    fn lose(&self, names: &BTreeSet<NodeName>, saved: Option<&ClusterState>) -> BTreeSet<NodeName> {
        let leaves = |name: &NodeName| {
            let entry = saved.and_then(|saved| saved.inventory.get(name));
            entry.is_some_and(|entry| entry.membership == Membership::Leaving)
        };
        let names = names.iter().filter(|name| !self.ran || leaves(name));
        names.cloned().collect()
    }
}

/// The connections of a run, none open yet.
pub(super) fn open(environment: &Environment) -> Box<dyn RemoteSession> {
    environment
        .remote
        .session(Arc::clone(&environment.host_keys))
}

/// Reads everything, and decides by it.
async fn afresh<'i>(
    purpose: AnyPurpose<'i>,
    environment: &Environment,
    session: &mut dyn RemoteSession,
    so_far: &SoFar,
) -> Result<(Reading<'i>, Result<Decision, Error>), Error> {
    let reading = read(purpose, environment, session, so_far, KeptFacts::new()).await?;
    let decision = decide(purpose, environment, &reading, so_far);
    Ok((reading, decision))
}

pub(super) async fn look<'w>(
    purpose: AnyPurpose<'_>,
    environment: &'w Environment,
    mut session: Box<dyn RemoteSession>,
    so_far: &SoFar,
    kept: Kept,
) -> Result<Iteration<'w>, Error> {
    let kept = kept.at(environment.clock.now());
    let names: BTreeSet<NodeName> = kept.hosts.keys().cloned().collect();
    let mut since = kept.since;
    let mut reading = read(purpose, environment, &mut *session, so_far, kept.hosts).await?;
    let mut decision = decide(purpose, environment, &reading, so_far);
    if !names.is_empty() && !is_idle(&decision, &names) {
        since = environment.clock.now();
        (reading, decision) = afresh(purpose, environment, &mut *session, so_far).await?;
    }
    // Another run from this very store may have gone on since it was loaded.
    let mut again = 0..STORE_READS;
    while again.next().is_some()
        && is_outdated(&decision)
        && has_moved(environment, &reading).await?
    {
        since = environment.clock.now();
        (reading, decision) = afresh(purpose, environment, &mut *session, so_far).await?;
    }
    let Decision {
        desired,
        plan,
        all,
        saved,
    } = decision?;
    let Reading {
        now,
        seed,
        intent: _,
        revision,
        reader,
        actual,
    } = reading;
    let engine = if saved.as_ref() == actual.saved.as_deref() {
        reader
    } else {
        let saved = saved.as_ref();
        saved
            .map(|saved| pki::engine_clients(saved, now, &seed))
            .transpose()?
    };
    let snapshots = session.snapshots(&savers(&actual)).await;
    let survey = Survey {
        actual,
        snapshots,
        desired,
        plan,
        all,
    };
    Ok(Iteration {
        survey,
        environment,
        session,
        saved,
        revision,
        engine,
        snapshot_tools: purpose.intent().map(SnapshotTools::of),
        since,
    })
}

/// How often a look begins again because the store was written meanwhile.
const STORE_READS: usize = 3;

const fn is_outdated(decision: &Result<Decision, Error>) -> bool {
    matches!(decision, Err(Error::Pki(PkiError::Outdated { .. })))
}

/// True where the store has another revision by now.
async fn has_moved(environment: &Environment, reading: &Reading<'_>) -> Result<bool, Error> {
    Ok(match environment.store.load().await? {
        Loaded::Absent => false,
        Loaded::Present { revision, .. } => reading.revision.as_ref() != Some(&revision),
    })
}

/// True where nothing is done to these hosts: what is done is decided on facts of this very look.
fn is_idle(decision: &Result<Decision, Error>, hosts: &BTreeSet<NodeName>) -> bool {
    let decision = decision.as_ref();
    decision.is_ok_and(|decision| kept::touched(&decision.plan).is_disjoint(hosts))
}

/// What is, and what an `up` would do about it, or why it would do nothing. Writes nothing,
/// anywhere.
pub async fn inspect(intent: &Intent, environment: &Environment) -> Result<Inspection, Error> {
    Inspector::of(environment).inspect(intent).await
}

/// Inspects again and again, over the same connections.
pub struct Inspector<'e> {
    environment: &'e Environment,
    session: Box<dyn RemoteSession>,
}

impl<'e> Inspector<'e> {
    /// Without a connection yet.
    pub fn of(environment: &'e Environment) -> Self {
        Self {
            environment,
            session: open(environment),
        }
    }

    /// As [`inspect`].
    pub async fn inspect(&mut self, intent: &Intent) -> Result<Inspection, Error> {
        let session = &mut *self.session;
        Box::pin(inspected(intent, self.environment, session)).await
    }
}

/// The same, and the certificates that its nodes serve, by a handshake with each of them.
pub async fn inspect_served(
    intent: &Intent,
    environment: &Environment,
) -> Result<(Inspection, Served), Error> {
    let mut session = open(environment);
    let seen = Box::pin(inspected(intent, environment, &mut *session)).await?;
    let ports = status::serving(&seen.actual);
    let answers = session.served(&ports).await;
    Ok((seen, ports.into_iter().zip(answers).collect()))
}

async fn inspected(
    intent: &Intent,
    environment: &Environment,
    session: &mut dyn RemoteSession,
) -> Result<Inspection, Error> {
    let purpose = AnyPurpose::Goal(Goal::Up(intent));
    let so_far = SoFar::default();
    let reading = read(purpose, environment, session, &so_far, KeptFacts::new());
    let reading = Box::pin(reading).await?;
    let snapshots = session.snapshots(&savers(&reading.actual)).await;
    let (desired, plan) = match decide(purpose, environment, &reading, &so_far) {
        Ok(decision) => (decision.desired, Ok(decision.plan)),
        Err(error) => (None, Err(error)),
    };
    let intent = reading
        .intent
        .map_or_else(|| intent.clone(), Cow::into_owned);
    Ok(Inspection {
        now: reading.now,
        intent,
        actual: reading.actual,
        snapshots,
        desired,
        plan,
    })
}

/// The nodes on which a program of this cluster takes snapshots.
fn savers(actual: &Actual) -> BTreeSet<NodeName> {
    let takes = |name: &&NodeName| actual.runs(Component::Snapshots, name);
    actual.hosts.keys().filter(takes).cloned().collect()
}

/// What was read, before anything is derived from it.
pub(super) struct Reading<'i> {
    pub(super) now: Timestamp,
    seed: Seed,
    /// The goal's, with the release that the cluster keeps.
    pub(super) intent: Option<Cow<'i, Intent>>,
    revision: Option<String>,
    reader: Option<EngineClients>,
    pub(super) actual: Actual,
}

pub(super) async fn read<'i>(
    purpose: AnyPurpose<'i>,
    environment: &Environment,
    session: &mut dyn RemoteSession,
    so_far: &SoFar,
    kept: KeptFacts,
) -> Result<Reading<'i>, Error> {
    let (loaded, revision) = match environment.store.load().await? {
        Loaded::Absent => (None, None),
        Loaded::Present { saved, revision } => (Some(*saved), Some(revision)),
    };
    session.aim(targets(purpose, loaded.as_ref(), environment).await);
    let kubeconfig = environment
        .kubeconfig
        .load()
        .await
        .map_err(|source| Error::Kubeconfig {
            place: environment.kubeconfig.place(),
            source,
        })?;
    let intent = match purpose {
        AnyPurpose::Goal(goal) => Some(keeping(goal.intent(), loaded.as_ref())?),
        AnyPurpose::Removal(_) => None,
    };
    let wanted = intent.as_deref().map(desired::wanted_objects);
    let mut wanted = wanted.unwrap_or_default();
    if let Some(intent) = intent.as_deref() {
        let known = loaded.as_ref().map(|saved| &saved.inventory);
        let had = |name: &NodeName| known?.get(name).map(|entry| entry.roles.as_slice());
        wanted.peers = desired::peers(intent, had);
    }
    wanted.bound_to.clone_from(&environment.lose);
    wanted.tokens = environment.service_account_key == Some(RotationStage::Complete);
    wanted.authorities = environment.authorities.is_some();
    wanted.since = replaced(environment, loaded.as_ref());
    wanted.identity = matches!(purpose, AnyPurpose::Removal(_));
    // As the survey begins: the clocks of nodes are compared with it.
    let now = environment.clock.now();
    let seed = Seed::new((environment.entropy)());
    let engine = |saved: &ClusterState| pki::engine_clients(saved, now, &seed);
    let reader = loaded.as_ref().map(engine).transpose()?;
    let reading = session.read(loaded, reader.as_ref(), kubeconfig, &wanted, kept);
    let mut actual = reading.await;
    let clocks = intent.as_deref();
    let clocks = clocks.map(|intent| pki::left_out(intent, &actual, now));
    for (name, why) in clocks.iter().flatten().chain(&so_far.failed) {
        let view = HostView::Unreachable(why.clone());
        actual.hosts.insert(name.clone(), view);
    }
    Ok(Reading {
        now,
        seed,
        intent,
        revision,
        reader,
        actual,
    })
}

/// The revision of the snapshot that is about to replace etcd's data, as long as it has not.
fn replaced(environment: &Environment, saved: Option<&ClusterState>) -> Option<u64> {
    let Some(RestoreRequest::Begin(restore)) = &environment.restore else {
        return None;
    };
    let begun = saved.map_or(0, ClusterState::restores);
    let from = restore.from.as_ref()?;
    (begun < restore.number).then_some(from.revision)
}

/// What must be, and what is done about it.
pub(super) struct Decision {
    desired: Option<Desired>,
    plan: Plan,
    /// All of it, where the goal is about a part.
    all: Option<Plan>,
    /// The state of the run.
    saved: Option<ClusterState>,
}

pub(super) fn decide(
    purpose: AnyPurpose<'_>,
    environment: &Environment,
    reading: &Reading<'_>,
    so_far: &SoFar,
) -> Result<Decision, Error> {
    let actual = &reading.actual;
    let loaded = actual.saved.as_deref();
    let (desired, (plan, all), saved) = match purpose {
        AnyPurpose::Goal(goal) => {
            let intent = reading.intent.as_deref().unwrap_or(goal.intent());
            let new = loaded.is_none() && environment.recover.is_none();
            before_keys(intent, actual, new)?;
            let desired = wanted(goal, environment, reading, so_far)?;
            if !so_far.ran {
                plan::consent(&desired, actual)?;
            }
            let plan = planned(goal, environment, &desired, actual)?;
            let saved = desired.saved.clone();
            (Some(desired), plan, Some(saved))
        }
        AnyPurpose::Removal(_) => {
            spares_home(environment, actual)?;
            let id = loaded.map(|saved| &saved.cluster_id);
            if let Some(saved) = loaded {
                // A person may insist, and then only nodes that would be forgotten keep it back.
                if environment.recover.as_ref() == Some(&saved.cluster_id) {
                    pki::refuse_to_forget(saved, actual)?;
                } else {
                    pki::refuse_former(saved, actual)?;
                }
            }
            let request = plan::RemovalRequest {
                named: Named {
                    lose: environment.lose.clone(),
                    clean: environment.clean.clone(),
                },
                last_snapshot: environment.last_snapshot,
                now: reading.now,
            };
            let plan = plan::remove_as(id, actual, &request)?;
            (None, (plan, None), loaded.cloned())
        }
    };
    let plan = checked(plan, actual, saved.as_ref())?;
    Ok(Decision {
        desired,
        plan,
        all,
        saved,
    })
}

/// What must be.
pub(super) fn wanted(
    goal: Goal<'_>,
    environment: &Environment,
    reading: &Reading<'_>,
    so_far: &SoFar,
) -> Result<Desired, Error> {
    let actual = &reading.actual;
    let lose = so_far.lose(&environment.lose, actual.saved.as_deref());
    let written = goal.intent();
    let intent = reading.intent.as_deref().unwrap_or(written);
    let context = PkiContext {
        now: reading.now,
        seed: reading.seed.clone(),
        recover: environment.recover.as_ref(),
        accept_etcd: environment.accept_etcd.as_deref(),
        held_elsewhere: &environment.held_elsewhere,
        rotate: environment.rotate.as_ref(),
        rotate_key: environment.rotate_key && !so_far.ran,
        service_account_key: environment.service_account_key,
        authorities: environment.authorities,
        restore: environment.restore.as_ref(),
        lose: &lose,
        clean: &environment.clean,
        given: environment.given.as_deref(),
    };
    let keys = pki::reconcile(intent, actual, &context)?;
    plan::external_etcd(&intent.etcd, &keys.saved, actual)?;
    let mut desired = Desired::from_intent(intent, &keys, actual)?;
    remember_refused(&mut desired, environment, reading, so_far);
    if let Goal::RotateKeys(rotated, _) = goal {
        desired = desired.only(rotated, actual);
    }
    desired.notes.extend(kept_back(intent, written));
    // A named node may leave together with others, also in a later iteration.
    desired.lose.clone_from(&environment.lose);
    desired.clean.clone_from(&environment.clean);
    desired.bundle = environment
        .bundle
        .as_deref()
        .map(|bundle| bundled(intent, bundle));
    Ok(desired)
}

/// What the planner sees of a bundle.
pub(super) fn bundled(intent: &Intent, bundle: &Bundle) -> BundledImages {
    let images = bundle.images().iter().map(|(name, image)| {
        let seen = BundledImage {
            bytes: image.bytes(),
            platform: image.platform.clone(),
        };
        (name.clone(), seen)
    });
    let file = bundle.path().display().to_string();
    NeededImages::of(intent).bundled(file, images.collect())
}

/// The plan for a goal, and all that would be done, where that is more.
fn planned(
    goal: Goal<'_>,
    environment: &Environment,
    desired: &Desired,
    actual: &Actual,
) -> Result<(Plan, Option<Plan>), Error> {
    Ok(match goal {
        Goal::Restore(_) if environment.restore == Some(RestoreRequest::TakeBack) => {
            (plan::take_back(desired, actual)?, None)
        }
        Goal::Restore(_) => (plan::restore(desired, actual)?, None),
        Goal::Up(_) | Goal::Heal(_) | Goal::Renew(_) | Goal::RotateKeys(..) | Goal::Reboot(..) => {
            unless_restoring(actual.saved.as_deref())?;
            if let Goal::Reboot(request, _) = goal {
                (plan::reboot(desired, actual, request)?, None)
            } else {
                part(AnyPurpose::Goal(goal), plan::up(desired, actual)?)
            }
        }
    })
}

/// What has failed and is not tried again, as far as it is still wanted.
fn remember_refused(
    desired: &mut Desired,
    environment: &Environment,
    reading: &Reading<'_>,
    so_far: &SoFar,
) {
    // The cluster goes on: a removal from now on is another one.
    desired.saved.memory.last_snapshot = None;
    if environment.retry && !so_far.ran {
        desired.saved.memory.refused.clear();
    }
    plan::forget_former(desired, &reading.actual);
    if let Some(back) = &so_far.back {
        plan::refuse(desired, &reading.actual, &back.broken, reading.now);
    }
}

/// Nothing else is done to a cluster whose restore was cut off: part of it may be of the time before.
fn unless_restoring(saved: Option<&ClusterState>) -> Result<(), Error> {
    match saved.and_then(ClusterState::restoring) {
        Some(epoch) => Err(Error::Restoring {
            made_of: epoch.made_of(),
            command: epoch.command(),
        }),
        None => Ok(()),
    }
}

/// Refuses to remove the cluster that the operator itself runs on: that removal would end with the first control
/// plane, and the keys of every other cluster would be lost.
fn spares_home(environment: &Environment, actual: &Actual) -> Result<(), Error> {
    let uid = actual.cluster.as_ref().and_then(|api| api.uid.as_deref());
    let saved = actual.saved.as_ref();
    let ca = saved.map(|saved| saved.cluster_ca.signing.cert.as_str());
    match &environment.home {
        Some(home) if home.is(uid, ca) => Err(Error::Home),
        Some(_) | None => Ok(()),
    }
}

/// A plan that breaks no invariant. The planner makes no other; where it does, nothing is done.
fn checked(plan: Plan, actual: &Actual, saved: Option<&ClusterState>) -> Result<Plan, Error> {
    let violations = saved.map(|saved| plan::check(&plan, actual, &saved.cluster_id));
    match violations {
        Some(violations) if !violations.is_empty() => Err(Error::Unsafe(violations)),
        Some(_) | None => Ok(plan),
    }
}

/// The part of all that would be done that serves the purpose, and all, where that is more.
fn part(purpose: AnyPurpose<'_>, plan: Plan) -> (Plan, Option<Plan>) {
    if plan.puts_back() {
        return (plan, None);
    }
    match purpose {
        AnyPurpose::Goal(Goal::Heal(_)) => (plan.unasked(), Some(plan)),
        AnyPurpose::Goal(Goal::Renew(_)) => (plan.renewals(), Some(plan)),
        AnyPurpose::Goal(Goal::RotateKeys(rotated, _)) => (plan.rotation(rotated), Some(plan)),
        AnyPurpose::Goal(Goal::Up(_) | Goal::Restore(_) | Goal::Reboot(..))
        | AnyPurpose::Removal(_) => (plan, None),
    }
}

/// The intent for the cluster that the state tells of: one without a release keeps its own.
pub(super) fn keeping<'i>(
    intent: &'i Intent,
    saved: Option<&ClusterState>,
) -> Result<Cow<'i, Intent>, Error> {
    let Some(has) = saved.and_then(|saved| saved.kubernetes_version) else {
        return Ok(Cow::Borrowed(intent));
    };
    let kept = Catalogue::builtin()
        .ok()
        .and_then(|catalogue| intent.keeping(has, catalogue));
    let kept = kept.ok_or(Error::UnknownRelease { has })?;
    match kept.unfit().filter(|_| kept.version != intent.version) {
        Some(source) => Err(Error::Unfit { has, source }),
        None => Ok(kept),
    }
}

fn kept_back(kept: &Intent, wanted: &Intent) -> Option<String> {
    let (has, newest) = (kept.version, wanted.version);
    (has < newest).then(|| {
        format!(
            "the config names no `kubernetes_version`: the cluster keeps {has}; `{newest}` is the \
             newest"
        )
    })
}

/// Where every host is: of the intent, and of the inventory what the intent no longer names. What was
/// given up is looked for only by a removal: each look would wait for a machine that is not there.
pub(crate) async fn targets(
    purpose: AnyPurpose<'_>,
    saved: Option<&ClusterState>,
    environment: &Environment,
) -> BTreeMap<NodeName, ConnectionTarget> {
    let intent = purpose.intent();
    let mut targets: BTreeMap<NodeName, ConnectionTarget> = intent
        .into_iter()
        .flat_map(|intent| &intent.nodes)
        .map(|(name, node)| {
            (
                name.clone(),
                Ok(Target {
                    endpoint: node.endpoint.clone(),
                    login: node.login.clone(),
                    bastions: node.bastions.clone(),
                    verified: verified(
                        saved.and_then(|saved| saved.inventory.get(name)),
                        &node.endpoint,
                        &node.bastions,
                    ),
                }),
            )
        })
        .collect();
    for (name, entry) in saved.iter().flat_map(|saved| &saved.inventory) {
        let removes = matches!(purpose, AnyPurpose::Removal(_));
        let looked_for = removes || entry.membership != Membership::Lost;
        if looked_for && !targets.contains_key(name) {
            targets.insert(name.clone(), from_inventory(name, entry, environment).await);
        }
    }
    targets
}

/// The host keys that the state has of a machine, and of the way to it. One that was given up may be another one by now.
fn verified(entry: Option<&InventoryEntry>, endpoint: &Endpoint, bastions: &[Bastion]) -> Verified {
    let Some(entry) = entry.filter(|entry| entry.membership != Membership::Lost) else {
        return Verified::default();
    };
    let host = (entry.endpoint == *endpoint).then(|| entry.host_keys.clone());
    let of_bastion = |bastion: &Bastion| {
        let known = entry.bastion(&bastion.endpoint);
        known
            .map(|known| known.host_keys.clone())
            .unwrap_or_default()
    };
    Verified {
        host: host.unwrap_or_default(),
        bastions: bastions.iter().map(of_bastion).collect(),
    }
}

async fn from_inventory(
    name: &NodeName,
    entry: &InventoryEntry,
    environment: &Environment,
) -> ConnectionTarget {
    let InventoryEntry {
        endpoint,
        user,
        key_source,
        certificate_source,
        bastions: way,
        docker_socket,
        roles: _,
        machine_id: _,
        host_keys: _,
        membership: _,
        lost_at: _,
    } = entry;
    let keys = &environment.key_ring;
    let missing = |to: String| {
        move |why| Unreachable {
            alike: None,
            obstacle: Obstacle::Other,
            class: ErrorClass::Host,
            why: format!("cannot log in to {to}: {why}"),
            hints: vec![],
        }
    };
    let credential = keys
        .credential(key_source, certificate_source.as_deref())
        .await
        .map_err(missing(format!("node `{name}`")))?;
    let login = Login {
        user: user.clone(),
        credential,
        key_source: key_source.clone(),
        docker_socket: docker_socket.clone(),
    };
    let mut bastions = Vec::new();
    for entry in way {
        let credential = keys
            .credential(&entry.key_source, entry.certificate_source.as_deref())
            .await
            .map_err(missing(format!("the bastion host `{}`", entry.address)))?;
        bastions.push(entry.to_bastion(credential));
    }
    let verified = verified(Some(entry), endpoint, &bastions);
    Ok(Target {
        endpoint: endpoint.clone(),
        login,
        bastions,
        verified,
    })
}

/// What keys need not be thought of for: too few nodes answer for anything to be brought about, or
/// another Kubernetes is where a new cluster shall be.
fn before_keys(intent: &Intent, actual: &Actual, new: bool) -> Result<(), Error> {
    let with = |role| intent.with_role(role).map(|(name, _)| name);
    let Err(few) = plan::enough_answer(with(Role::Etcd), with(Role::ControlPlane), actual) else {
        if new {
            plan::strangers(actual)?;
        }
        return Ok(());
    };
    let down = silent(actual).into_iter();
    Err(Error::HostsUnreachable {
        down: down
            .filter(|(name, _)| intent.nodes.contains_key(name))
            .collect(),
        // Where there is one node, what is the matter with it says it all.
        why: (intent.nodes.len() > 1).then_some(few),
        changed: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{Action, Cause, HostAction, OnFailure, Queue, Stage, Step},
        state::tests::saved,
    };

    #[test]
    fn a_plan_that_breaks_an_invariant_does_not_run() {
        let node = NodeName::from("not-surveyed");
        let component = Component::Kubelet;
        let step = Step {
            cause: Cause::New,
            why: "a test".into(),
            changes: Vec::new(),
            guards: Vec::new(),
            disturbs: None,
            action: Action::Host(node.clone(), HostAction::AwaitHealthy { component }),
        };
        let node = Some(node);
        let queues = vec![Queue {
            node,
            steps: vec![step],
        }];
        let stages = vec![Stage {
            name: "start".into(),
            width: 1,
            on_failure: OnFailure::EndRun,
            queues,
        }];
        let notes = Vec::new();
        let plan = Plan { stages, notes };
        let result = checked(plan, &Actual::default(), Some(&saved("a")));
        assert!(matches!(result, Err(Error::Unsafe(_))), "{result:?}");
    }

    /// One that is lost by now and comes back later in the same run was not asked about.
    #[test]
    fn who_is_given_up_is_asked_for_once() {
        let lose = [NodeName::from("n1"), "n2".into()].into();
        let names = |ran, membership| {
            let mut state = saved("a");
            state.inventory.get_mut(&"n1".into()).unwrap().membership = membership;
            let so_far = SoFar {
                ran,
                ..SoFar::default()
            };
            let names = so_far.lose(&lose, Some(&state));
            names.len()
        };
        assert_eq!(names(false, Membership::Active), 2);
        assert_eq!(names(true, Membership::Lost), 0);
        assert_eq!(names(true, Membership::Active), 0, "it has joined again");
        assert_eq!(names(true, Membership::Leaving), 1, "not given up yet");
    }
}

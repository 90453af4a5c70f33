//! The whole truth about some nodes and a cluster, what a survey sees of it, and runs that end
//! early.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rke_operator::{
    desired::Desired,
    etcd::{Alarm, EtcdView, ExternalView, Member, MemberId, MemberStatus, Quorum},
    facts::{
        Actual, ApiHealth, ClusterFacts, ContainerFact, ContainerState, DryRun, HostView,
        Unreachable,
    },
    model::{
        ClusterId, Component, Digest, ImageVersion, NodeName, ObjectRef, Role, image_version,
        label, path, secret::Secret,
    },
    plan,
    plan::{Action, ClusterAction, HostAction, Live, Look, Plan, PreflightErrors, Step},
    state::ClusterState,
};
use serde_json::Value;

use super::{
    api::{ApiFault, Verb},
    effect, tear,
};

/// Where a run is started: its own state and kubeconfig, and who it is to API servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shell {
    pub(crate) client: String,
    pub(crate) saved: Option<ClusterState>,
    pub(crate) kubeconfig: Option<Secret<String>>,
}

/// The truth: every file, whether or not a survey could read it, and everything that etcd
/// holds, whether or not an API server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct World {
    pub(crate) truth: Actual,
    /// The API servers that have come up since they were last started.
    pub(crate) answering: BTreeSet<NodeName>,
    /// The nodes whose disks hold a member of etcd, by cluster.
    pub(crate) members: BTreeMap<String, BTreeSet<NodeName>>,
    /// The nodes whose member was added and has no vote yet; true: it has started, so that it has a name.
    pub(crate) learners: BTreeMap<NodeName, bool>,
    /// Nodes that are off.
    pub(crate) down: BTreeMap<NodeName, Unreachable>,
    /// Nodes that run, and do not answer us.
    pub(crate) cut_off: BTreeMap<NodeName, Unreachable>,
    /// What members of etcd have raised.
    pub(crate) alarms: BTreeSet<Alarm>,
    /// The etcd outside of the clusters, where that is what they have: it serves.
    pub(crate) external: Option<ExternalView>,
    /// The authority of etcd that has ended: members that were started with it trust nobody, and nobody trusts them.
    pub(crate) ended: Option<Digest>,
    /// What snapshots hold, by name.
    pub(crate) snapshots: BTreeMap<String, ClusterFacts>,
    /// Which life the data of etcd are of.
    pub(crate) life: u32,
    /// What was set aside, by restore.
    pub(crate) aside: BTreeMap<u32, BTreeSet<NodeName>>,
    /// What etcd held before the last restore.
    pub(crate) former: Option<ClusterFacts>,
    /// What API servers do not answer at once, or not at all.
    pub(crate) faults: Vec<ApiFault>,
    /// What does not work, wherever it is tried.
    pub(crate) fails: Vec<Fails>,
    /// The files in the nodes' folders of snapshots.
    pub(crate) files: BTreeSet<(NodeName, String)>,
}

/// A component that does not work with some definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fails {
    pub(crate) node: NodeName,
    pub(crate) component: Component,
    /// What its image contains then.
    pub(crate) image: String,
    pub(crate) sign: Sign,
}

/// By what it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Docker does not start it.
    DoesNotStart,
    /// It is never healthy.
    Unhealthy,
    /// Its node is not Ready.
    NotReady,
}

/// Where a run is cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// After how many whole steps, modulo those of the plan: so every cut of a plan that has
    /// steps is one.
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
        hosts: impl IntoIterator<Item = (NodeName, rke_operator::facts::HostFacts)>,
    ) -> Self {
        let hosts = hosts.into_iter().map(|(name, mut facts)| {
            facts.files.get_or_insert_default();
            (name, HostView::Reachable(Box::new(facts)))
        });
        Self {
            truth: Actual {
                hosts: hosts.collect(),
                cluster: Some(Box::default()),
                ..Actual::default()
            },
            answering: BTreeSet::new(),
            members: BTreeMap::new(),
            learners: BTreeMap::new(),
            down: BTreeMap::new(),
            cut_off: BTreeMap::new(),
            alarms: BTreeSet::new(),
            external: None,
            ended: None,
            snapshots: BTreeMap::new(),
            life: 0,
            aside: BTreeMap::new(),
            former: None,
            faults: Vec::new(),
            fails: Vec::new(),
            files: BTreeSet::new(),
        }
    }

    /// What a survey of this shell sees.
    pub(crate) fn observe(&self, shell: &Shell) -> Actual {
        let mut seen = self.truth.clone();
        seen.saved = shell.saved.clone().map(Box::new);
        seen.kubeconfig.clone_from(&shell.kubeconfig);
        if let Some(view) = &self.external {
            seen.etcd = EtcdView::of_external(view.clone());
        }
        if let Some(saved) = &shell.saved {
            // Who is asked has the role in the state.
            let has = |name: &NodeName, role| {
                let entry = saved.inventory.get(name);
                entry.is_some_and(|entry| entry.roles.contains(&role))
            };
            if self.external.is_none() {
                seen.etcd = self.etcd_view(&saved.cluster_id);
            }
            for member in seen.etcd.members.values_mut() {
                let asked = |(name, _): &(NodeName, MemberStatus)| has(name, Role::Etcd);
                member.status.take_if(|status| !asked(status));
            }
            seen.apis = self.apis_for(&saved.cluster_id, &shell.client);
            seen.apis.retain(|name, _| has(name, Role::ControlPlane));
        }
        let tells = |name: &&NodeName| self.answer(name, &shell.client, Verb::Read).is_ok();
        seen.versions = self.versions(seen.apis.keys().filter(tells));
        if serving(&seen.apis).next().is_none() {
            seen.cluster = None;
        } else if let Err(why) = self.told(&seen.apis, &shell.client) {
            (seen.cluster, seen.untold) = (None, Some(why));
        }
        for (name, node) in seen.cluster.iter_mut().flat_map(|api| &mut api.nodes) {
            node.ready &= self.reports(name);
            let facts = self.truth.up(name);
            let kubelet = facts.and_then(|facts| facts.container(Component::Kubelet));
            let runs = kubelet.and_then(|fact| image_version(&fact.image));
            if let Some((major, minor, patch)) = runs.filter(|_| node.kubelet_version.is_empty()) {
                node.kubelet_version = format!("v{major}.{minor}.{patch}");
            }
        }
        for (name, view) in &mut seen.hosts {
            if let Some(down) = self.away(name) {
                *view = HostView::Unreachable(down.clone());
            } else if let HostView::Reachable(facts) = view
                && facts.claim().is_none()
            {
                facts.files = None;
            }
        }
        seen
    }

    /// Why we do not reach a node.
    pub(super) fn away(&self, name: &NodeName) -> Option<&Unreachable> {
        self.down.get(name).or_else(|| self.cut_off.get(name))
    }

    /// Its kubelet may report to the API.
    pub(super) fn reports(&self, name: &NodeName) -> bool {
        let facts = self.truth.up(name);
        let has_one = facts.is_some_and(|facts| facts.containers.contains_key("kubelet"));
        has_one && !self.down.contains_key(name)
    }

    /// A component runs on a node that is on.
    pub(crate) fn runs(&self, name: &NodeName, component: Component) -> Option<&ContainerFact> {
        if self.down.contains_key(name) {
            return None;
        }
        let fact = self.truth.up(name)?.containers.get(component.container())?;
        (fact.state == ContainerState::Running).then_some(fact)
    }

    /// The members of one cluster, with their ids.
    fn members(&self, id: &ClusterId) -> impl Iterator<Item = (u64, &NodeName)> {
        let members = self.members.get(&id.0).into_iter().flatten();
        members.map(|name| (number(name), name))
    }

    pub(crate) fn member_count(&self, id: &ClusterId) -> usize {
        self.members(id).count()
    }

    /// The members that vote; true: it runs.
    pub(crate) fn voters(&self, id: &ClusterId) -> BTreeMap<NodeName, bool> {
        let members = self.members(id);
        let voters = members.map(|(_, name)| {
            let runs = self.runs(name, Component::Etcd).is_some();
            (name.clone(), runs)
        });
        voters.collect()
    }

    /// Members that run.
    fn running(&self, id: &ClusterId) -> impl Iterator<Item = (u64, &NodeName)> {
        let members = self.members(id);
        members.filter(|(_, name)| self.runs(name, Component::Etcd).is_some())
    }

    pub(crate) fn has_quorum(&self, id: &ClusterId) -> bool {
        self.external.is_some() || self.together(id) > self.member_count(id) / 2
    }

    /// How many of the members that run reach each other.
    fn together(&self, id: &ClusterId) -> usize {
        let trusts = |name: &NodeName| {
            let facts = self.truth.up(name);
            let fact = facts.and_then(|facts| facts.container(Component::Etcd));
            let spec = fact.and_then(ContainerFact::applied);
            let authority = spec.and_then(|spec| spec.files.get(path::ETCD_CA).cloned());
            self.ended.is_none() || authority != self.ended
        };
        self.running(id).filter(|(_, name)| trusts(name)).count()
    }

    pub(super) fn etcd_view(&self, id: &ClusterId) -> EtcdView {
        let leader = self.running(id).next().map(|(id, _)| MemberId(id));
        let quorum = match leader {
            Some(leader) if self.has_quorum(id) => Quorum::Serving { leader },
            Some(_) => Quorum::Lost,
            // Without a running member the member list is unknown.
            None => return EtcdView::default(),
        };
        let status = |name: &NodeName| {
            let status = MemberStatus {
                version: self.etcd_version(name),
                leader,
                term: 1,
                index: 1,
                is_learner: false,
                db_size: 1,
                db_in_use: 1,
                quota: None,
            };
            let answers = self.runs(name, Component::Etcd).is_some() && self.away(name).is_none();
            answers.then(|| (name.clone(), status))
        };
        let members = self.members(id).map(|(id, name)| {
            let member = Member {
                name: format!("etcd-{name}"),
                peer_urls: [peer_url(name)].into(),
                is_learner: false,
                status: status(name),
            };
            (MemberId(id), member)
        });
        let learners = self.learners.iter().map(|(name, started)| {
            let mut answer = status(name).filter(|_| *started);
            if let Some((_, status)) = &mut answer {
                status.is_learner = true;
            }
            let member = Member {
                name: if *started {
                    format!("etcd-{name}")
                } else {
                    String::new()
                },
                peer_urls: [peer_url(name)].into(),
                is_learner: true,
                status: answer,
            };
            (learner(name), member)
        });
        let members = members.chain(learners);
        EtcdView {
            quorum,
            members: members.collect(),
            heard: Some(self.running(id).map(|(id, _)| MemberId(id)).collect()),
            alarms: self.alarms.clone(),
            ..EtcdView::default()
        }
    }

    fn etcd_version(&self, name: &NodeName) -> String {
        let fact = self.runs(name, Component::Etcd);
        let version = fact.and_then(|fact| image_version(&fact.image));
        let (major, minor, patch) = version.unwrap_or((3, 6, 7));
        format!("{major}.{minor}.{patch}")
    }

    /// The API servers of one cluster on nodes that are on.
    fn apis(&self, id: &ClusterId) -> BTreeMap<NodeName, ApiHealth> {
        let names = self.truth.hosts.keys();
        names
            .filter(|name| self.away(name).is_none())
            .filter_map(|name| {
                let fact = self.truth.up(name)?.containers.get("kube-apiserver")?;
                let ours = fact.labels.get(label::CLUSTER_ID) == Some(&id.0);
                let runs = fact.state == ContainerState::Running;
                let serves = runs && self.has_quorum(id) && self.answering.contains(name);
                let health = if serves {
                    ApiHealth::Serving
                } else {
                    ApiHealth::Unreachable("connection refused".to_owned())
                };
                ours.then(|| (name.clone(), health))
            })
            .collect()
    }

    /// The same as they are for one client.
    pub(super) fn apis_for(&self, id: &ClusterId, client: &str) -> BTreeMap<NodeName, ApiHealth> {
        let mut apis = self.apis(id);
        for (name, api) in &mut apis {
            if *api == ApiHealth::Serving
                && let Err(why) = self.answer(name, client, Verb::Ready)
            {
                *api = ApiHealth::Unreachable(why);
            }
        }
        apis
    }

    /// The releases of these API servers.
    fn versions<'a>(
        &self,
        names: impl Iterator<Item = &'a NodeName>,
    ) -> BTreeMap<NodeName, ImageVersion> {
        let versions = names.filter_map(|name| {
            let fact = self.truth.up(name)?.container(Component::ApiServer)?;
            Some((name.clone(), image_version(&fact.image)?))
        });
        versions.collect()
    }

    pub(crate) fn serving(&self, id: &ClusterId) -> usize {
        serving(&self.apis(id)).count()
    }

    /// The oldest release of these nodes' API servers that serve, whether or not we reach them.
    pub(crate) fn oldest_api(
        &self,
        id: &ClusterId,
        planes: &BTreeSet<NodeName>,
    ) -> Option<ImageVersion> {
        let nodes = planes.iter();
        let releases = nodes.filter_map(|name| {
            let fact = self.runs(name, Component::ApiServer)?;
            let ours = fact.labels.get(label::CLUSTER_ID) == Some(&id.0);
            let serves = ours && self.has_quorum(id) && self.answering.contains(name);
            image_version(&fact.image).filter(|_| serves)
        });
        releases.min()
    }

    /// A cluster that was not brought up here: members are where etcd runs, and it serves.
    pub(crate) fn runs_already(&mut self, id: &ClusterId) {
        let names = self.truth.hosts.keys();
        let members = names.filter(|name| self.runs(name, Component::Etcd).is_some());
        let members = members.cloned().collect();
        self.members.insert(id.0.clone(), members);
        self.settle();
    }

    /// Time passes: what was started comes up.
    pub(crate) fn settle(&mut self) {
        let clusters: Vec<ClusterId> = self.members.keys().cloned().map(ClusterId).collect();
        if self.external.is_some() || clusters.iter().any(|id| self.has_quorum(id)) {
            let names = self.truth.hosts.keys();
            let up = names.filter(|name| self.runs(name, Component::ApiServer).is_some());
            let up: Vec<NodeName> = up.cloned().collect();
            self.answering.extend(up);
        }
    }

    /// One step of a shell, its guards first.
    pub(crate) fn step(
        &mut self,
        step: &Step,
        want: Option<&Desired>,
        shell: &mut Shell,
    ) -> Result<(), Ended> {
        self.guard(step, shell)?;
        if let Some((
            _,
            HostAction::AwaitHealthy {
                component: component @ (Component::Etcd | Component::ApiServer),
            },
        )) = step.action.on_host()
            && let Some(saved) = &shell.saved
            && !self.has_quorum(&saved.cluster_id)
        {
            let why = format!("{component:?} waits for a quorum of etcd");
            return Err(Ended::Failed(why));
        }
        self.reaches(step, shell)?;
        self.takes_learner(step)?;
        self.as_shell(shell, |truth| effect::apply(step, want, truth))
            .map_err(Ended::Failed)?;
        self.after(step, want);
        match self.broken(step) {
            Some(why) => Err(Ended::Failed(why)),
            None => Ok(()),
        }
    }

    /// What was done, and does not work.
    fn broken(&mut self, step: &Step) -> Option<String> {
        let (node, component, sign) = match &step.action {
            Action::Host(node, HostAction::AwaitHealthy { component }) => {
                (node, *component, Sign::Unhealthy)
            }
            Action::Cluster(ClusterAction::AwaitNodeReady { node }) => {
                (node, Component::Kubelet, Sign::NotReady)
            }
            Action::Host(node, action) => (node, started(action)?, Sign::DoesNotStart),
            Action::Cluster(_) | Action::Local(_) => return None,
        };
        let facts = effect::host(node, &mut self.truth).ok()?;
        let fact = facts.containers.get_mut(component.container())?;
        let mut fails = self.fails.iter();
        fails.find(|fails| {
            let is = (&fails.node, fails.component, fails.sign) == (node, component, sign);
            is && fact.image.contains(&fails.image)
        })?;
        match sign {
            Sign::DoesNotStart => fact.state = ContainerState::Created,
            Sign::Unhealthy if component == Component::ApiServer => {
                self.answering.remove(node);
            }
            Sign::Unhealthy => {}
            Sign::NotReady => {
                let nodes = self.truth.cluster.iter_mut().flat_map(|api| &mut api.nodes);
                for (_, fact) in nodes.filter(|(name, _)| *name == node) {
                    fact.ready = false;
                }
            }
        }
        Some(format!("{component} does not work on {node}"))
    }

    /// etcd takes one member without a vote at a time.
    fn takes_learner(&self, step: &Step) -> Result<(), Ended> {
        let Some((node, HostAction::JoinEtcd { .. })) = step.action.on_host() else {
            return Ok(());
        };
        let mut others = self.learners.keys().filter(|name| *name != node);
        match others.next() {
            Some(other) => Err(Ended::Failed(format!(
                "too many learner members: that of {other}"
            ))),
            None => Ok(()),
        }
    }

    fn guard(&self, step: &Step, shell: &Shell) -> Result<(), Ended> {
        if let Some((name, _)) = step.action.on_host()
            && let Some(down) = self.away(name)
        {
            return Err(Ended::Failed(down.why.clone()));
        }
        if let Some((
            node,
            HostAction::ReplaceContainer {
                component,
                keep: true,
                ..
            },
        )) = step.action.on_host()
            && let Some(facts) = self.truth.up(node)
            && facts.containers.contains_key(component.kept())
        {
            return Err(Ended::PlanAgain(format!("{component} was kept before")));
        }
        for guard in &step.guards {
            let mut live = Live::default();
            match guard.look() {
                Look::Container(node, name) => {
                    let facts = self.truth.up(node);
                    let container = facts.and_then(|facts| facts.containers.get(name));
                    live.container = container.cloned();
                }
                Look::Etcd | Look::Apis | Look::Versions | Look::Nodes | Look::Object(_) => {
                    let seen = self.observe(shell);
                    live.etcd = seen.etcd;
                    live.apis = seen.apis;
                    live.versions = seen.versions;
                    if let (Look::Object(object), Some(api)) = (guard.look(), &seen.cluster) {
                        live.object = api.objects.get(object).cloned();
                    }
                    live.nodes = seen.cluster.map(|api| Arc::new(api.nodes));
                }
            }
            plan::holds(guard, &live).map_err(Ended::PlanAgain)?;
        }
        Ok(())
    }

    /// What the truth knows beyond the facts: files stay without their claim, and so does what
    /// etcd holds without its API servers.
    fn after(&mut self, step: &Step, want: Option<&Desired>) {
        for view in self.truth.hosts.values_mut() {
            if let HostView::Reachable(facts) = view {
                facts.files.get_or_insert_default();
            }
        }
        if let Action::Cluster(ClusterAction::RemoveMember { node, member }) = &step.action {
            let learners = self.learners.len();
            self.learners.retain(|name, _| learner(name) != *member);
            if self.learners.len() == learners {
                for members in self.members.values_mut() {
                    members.remove(node);
                }
            }
        }
        let Some((node, action)) = step.action.on_host() else {
            return;
        };
        match action {
            HostAction::AwaitHealthy {
                component: Component::ApiServer,
            } => {
                self.answering.insert(node.clone());
            }
            HostAction::ReplaceContainer { .. }
            | HostAction::PutBack { .. }
            | HostAction::RemoveContainer { .. }
            | HostAction::RunContainer { .. }
            | HostAction::StartContainer { .. } => match touched(action) {
                Some(Component::ApiServer) => {
                    self.answering.remove(node);
                }
                Some(Component::Etcd) => {
                    let Some(want) = want else {
                        return;
                    };
                    // The members of the first start are those of its `initial-cluster`.
                    let runs = self.runs(node, Component::Etcd).is_some();
                    if self.member_count(&want.cluster_id) == 0 && runs {
                        let hosts = want.hosts.iter();
                        let members = hosts
                            .filter(|(_, host)| host.containers.contains_key(&Component::Etcd));
                        let members = members.map(|(name, _)| name.clone()).collect();
                        self.members.insert(want.cluster_id.0.clone(), members);
                    }
                    // One that is no member any more is missed by nobody.
                    let is_member = self.members(&want.cluster_id).any(|(_, name)| name == node);
                    if !is_member {
                        return;
                    }
                    // API servers go on with the other members, if there are enough.
                    if self.member_count(&want.cluster_id) < 3 || !self.has_quorum(&want.cluster_id)
                    {
                        let without: Vec<NodeName> = want.hosts.keys().cloned().collect();
                        self.answering.retain(|name| !without.contains(name));
                    }
                }
                Some(
                    Component::ControllerManager
                    | Component::Scheduler
                    | Component::NginxProxy
                    | Component::Kubelet
                    | Component::KubeProxy
                    | Component::Snapshots,
                )
                | None => {}
            },
            HostAction::JoinEtcd { .. } => {
                self.learners.remove(node);
                for members in self.members.values_mut() {
                    members.insert(node.clone());
                }
            }
            HostAction::SetEtcdAside { epoch } => self.set_aside(node, *epoch),
            HostAction::PutEtcdBack { epoch } => {
                let aside = self.aside.entry(*epoch).or_default();
                if aside.remove(node) {
                    if let Some(former) = self.former.take() {
                        (self.truth.cluster, self.life) = (Some(Box::new(former)), epoch - 1);
                        self.members.values_mut().for_each(BTreeSet::clear);
                    }
                    for members in self.members.values_mut() {
                        members.insert(node.clone());
                    }
                }
            }
            HostAction::RestoreEtcd { restore } => {
                if self
                    .aside
                    .get(&restore.epoch)
                    .is_some_and(|nodes| nodes.contains(node))
                {
                    return;
                }
                self.set_aside(node, restore.epoch);
                for members in self.members.values_mut() {
                    *members = [node.clone()].into();
                }
                self.learners.clear();
                self.life = restore.epoch;
                self.former = self.truth.cluster.as_deref().cloned();
                // Its own data are all that the sim's etcd holds.
                if let Some(snapshot) = &restore.snapshot {
                    let held = self.snapshots.get(&snapshot.name);
                    self.truth.cluster = held.cloned().map(Box::new);
                }
            }
            HostAction::SaveSnapshot { name, .. } => {
                self.files.insert((node.clone(), name.clone()));
            }
            HostAction::CleanHost { .. } => {
                for members in self.members.values_mut() {
                    members.remove(node);
                }
                self.members.retain(|_, members| !members.is_empty());
                if self.members.is_empty() {
                    self.learners.clear();
                }
                if self.members.is_empty() && self.external.is_none() {
                    self.truth.cluster = Some(Box::default());
                }
            }
            _ => {}
        }
    }

    /// What was there is no member's any more, and somewhere else.
    fn set_aside(&mut self, node: &NodeName, epoch: u32) {
        let first = self.aside.entry(epoch).or_default().insert(node.clone());
        for members in self.members.values_mut().filter(|_| first) {
            members.remove(node);
        }
    }

    /// Takes a snapshot.
    pub(crate) fn snapshot(&mut self, name: &str) {
        let held = self.etcd().clone();
        self.snapshots.insert(name.to_owned(), held);
    }

    fn as_shell<T>(&mut self, shell: &mut Shell, act: impl FnOnce(&mut Actual) -> T) -> T {
        let saved = shell.saved.as_ref();
        let answers = saved.is_some_and(|saved| self.serving(&saved.cluster_id) > 0);
        self.truth.saved = shell.saved.take().map(Box::new);
        self.truth.kubeconfig = shell.kubeconfig.take();
        // Where nothing answers, nothing can be written.
        let etcd = (!answers).then(|| self.truth.cluster.take());
        let result = act(&mut self.truth);
        if let Some(etcd) = etcd {
            self.truth.cluster = etcd;
        }
        shell.saved = self.truth.saved.take().map(|saved| *saved);
        shell.kubeconfig = self.truth.kubeconfig.take();
        result
    }

    /// A step that is cut off in the middle, its guards first.
    pub(super) fn torn(&mut self, step: &Step, how: u8, want: Option<&Desired>, shell: &mut Shell) {
        if self.guard(step, shell).is_ok() {
            self.as_shell(shell, |truth| tear::tear(step, how, want, truth));
            // Whoever has not come to a vote is no voter: added and never started, or started and behind.
            let action = step.action.on_host();
            let joins = matches!(action, Some((_, HostAction::JoinEtcd { .. })));
            if let Some((node, HostAction::JoinEtcd { .. })) = action
                && how.is_multiple_of(2)
                && self.takes_learner(step).is_ok()
            {
                let started = self.runs(node, Component::Etcd).is_some();
                self.learners.insert(node.clone(), started);
            }
            let restores = matches!(
                step.action.on_host(),
                Some((
                    _,
                    HostAction::SetEtcdAside { .. }
                        | HostAction::RestoreEtcd { .. }
                        | HostAction::SaveSnapshot { .. }
                ))
            );
            let nothing = restores && how.is_multiple_of(2);
            if !step.action.is_wait() && !joins && !nothing {
                self.after(step, want);
            }
        }
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
                && index == cut.after % plan.steps().count()
            {
                self.torn(step, cut.torn, want, shell);
                return Ended::Cut;
            }
            if let Err(ended) = self.step(step, want, shell) {
                return ended;
            }
        }
        Ended::Completed
    }

    /// Runs a plan to its end, the queues of a stage step by step in any order; `after` sees the
    /// world after each step.
    pub(crate) fn run_interleaved(
        &mut self,
        plan: &Plan,
        want: Option<&Desired>,
        shell: &mut Shell,
        order: &mut impl Iterator<Item = u8>,
        mut after: impl FnMut(&Self, &Step),
    ) -> Ended {
        for stage in &plan.stages {
            let mut waiting: Vec<_> = stage
                .queues
                .iter()
                .map(|queue| queue.steps.iter())
                .collect();
            while !waiting.is_empty() {
                let going = waiting.len().min(stage.width);
                let turn = usize::from(order.next().unwrap_or(0)) % going;
                let Some(step) = waiting[turn].next() else {
                    drop(waiting.remove(turn));
                    continue;
                };
                if let Err(ended) = self.step(step, want, shell) {
                    return ended;
                }
                after(self, step);
            }
        }
        Ended::Completed
    }

    /// Everything that etcd holds.
    pub(crate) fn etcd(&mut self) -> &mut ClusterFacts {
        let Some(facts) = &mut self.truth.cluster else {
            unreachable!("the truth knows what etcd holds")
        };
        facts
    }
}

/// Those that serve.
pub(super) fn serving(apis: &BTreeMap<NodeName, ApiHealth>) -> impl Iterator<Item = &NodeName> {
    let apis = apis.iter();
    let serving = apis.filter(|(_, api)| **api == ApiHealth::Serving);
    serving.map(|(name, _)| name)
}

/// What a survey adds when it knows what is wanted: the server tries an apply of each object.
pub(crate) fn dry_runs<'a>(
    have: &mut Actual,
    wanted: impl IntoIterator<Item = (&'a ObjectRef, &'a Value)>,
) {
    let Some(api) = &mut have.cluster else {
        return;
    };
    for (object, wanted) in wanted {
        if let Some(live) = api.objects.get(object) {
            let would = DryRun::Would(effect::applied(live, wanted));
            api.dry_runs.insert(object.clone(), would);
        }
    }
}

pub(crate) fn tried(want: &Desired, have: &Actual) -> Actual {
    let mut have = have.clone();
    let addons = want.addons.iter();
    dry_runs(&mut have, addons.flat_map(|addon| &addon.objects));
    have
}

/// Plans `up`, and holds the plan against the invariants.
pub(crate) fn plan_up(want: &Desired, have: &Actual) -> Result<Plan, PreflightErrors> {
    let have = &tried(want, have);
    let plan = plan::up(want, have)?;
    assert_eq!(
        plan::check(&plan, have, &want.cluster_id),
        [],
        "{}",
        plan::render(&plan)
    );
    let silent = plan::unexplained(&plan, want, have);
    assert!(
        silent.is_empty(),
        "{silent:#?}\n{}\n{:#?}",
        plan::render(&plan),
        plan.notes
    );
    Ok(plan)
}

/// Plans `remove`, and holds the plan against the invariants.
pub(crate) fn plan_remove(have: &Actual) -> Result<Plan, PreflightErrors> {
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

/// The id of a member of that node that has no vote: etcd gives another one with each addition.
fn learner(name: &NodeName) -> MemberId {
    MemberId(number(name).saturating_add(1000))
}

fn peer_url(name: &NodeName) -> String {
    format!("https://192.0.2.{}:2380", number(name))
}

/// The id of a node's member: that of `n7` is 7.
fn number(name: &NodeName) -> u64 {
    let digits = name.0.chars().filter(char::is_ascii_digit);
    digits.collect::<String>().parse().unwrap_or(u64::MAX)
}

/// The component whose container an action starts.
fn started(action: &HostAction) -> Option<Component> {
    match action {
        HostAction::ReplaceContainer { component, .. }
        | HostAction::RunContainer { component, .. }
        | HostAction::StartContainer { component }
        | HostAction::PutBack { component } => Some(*component),
        _ => None,
    }
}

/// The component whose container an action makes, starts or takes away.
fn touched(action: &HostAction) -> Option<Component> {
    if let HostAction::RemoveContainer { name } = action {
        return Component::named(name);
    }
    started(action)
}

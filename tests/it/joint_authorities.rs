//! The certificate authorities are rotated: the product's own runs, on simulated worlds. After each step every component
//! that runs must trust every certificate that a running component presents to it, until a person has the former authorities
//! dropped; so must pods that never read their `ca.crt` again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};
use rke_operator::{
    config::Intent,
    converge::{Error, Goal, Outcome},
    desired::{
        Rotated,
        pki::{AuthorityError, PkiError, RotationStage, Seed, engine_clients},
    },
    error::{ErrorClass, Explain as _},
    facts::{ExtensionTrust, PublishedAuthorities},
    model::{Component, NodeName, ObjectRef, label, path},
    plan::{Action, ClusterAction, Step},
    state::ClusterState,
};
use serde_json::Value;
use x509_parser::{certificate::X509Certificate, parse_x509_certificate, pem::Pem};

use crate::{
    joint_properties::{block_on, runner, settle},
    plan_properties::Cuts,
    sim::{
        Cut, World,
        contents::Contents,
        remote::{SimFailure, SimRemote, Turn},
        runner::Runner,
        wish::Wish,
    },
};

/// Three nodes with everything and two workers.
const MANY: &[u8] = &[3, 3, 0, 0];
/// One node.
const ONE: &[u8] = &[];

/// These nodes after one with everything.
fn intent(masks: &[u8]) -> Intent {
    let wish = Wish {
        masks: masks.to_vec(),
        ..Wish::plain()
    };
    wish.intent()
}

/// The files of certificates that a component presents, by the beginning of their names.
struct Presents {
    component: Component,
    file: &'static str,
    to: &'static [(Component, &'static str)],
}

/// Who presents what to whom, and by which file that verifies it.
const PRESENTED: &[Presents] = &[
    Presents {
        component: Component::Etcd,
        file: "kube-etcd-",
        to: &[
            (Component::Etcd, path::ETCD_CA),
            (Component::ApiServer, path::ETCD_CA),
        ],
    },
    Presents {
        component: Component::ApiServer,
        file: "kube-apiserver-etcd-client",
        to: &[(Component::Etcd, path::ETCD_CA)],
    },
    Presents {
        component: Component::ApiServer,
        file: "kube-apiserver-kubelet-client",
        to: &[(Component::Kubelet, path::CLUSTER_CA)],
    },
    Presents {
        component: Component::ApiServer,
        file: "kube-apiserver",
        to: &[
            (Component::ControllerManager, path::CLUSTER_CA),
            (Component::Scheduler, path::CLUSTER_CA),
            (Component::Kubelet, path::CLUSTER_CA),
            (Component::KubeProxy, path::CLUSTER_CA),
        ],
    },
    Presents {
        component: Component::ControllerManager,
        file: "kube-controller-manager",
        to: API,
    },
    Presents {
        component: Component::Scheduler,
        file: "kube-scheduler",
        to: API,
    },
    Presents {
        component: Component::Kubelet,
        file: "kube-node",
        to: API,
    },
    Presents {
        component: Component::Kubelet,
        file: "kube-kubelet-",
        to: API,
    },
    Presents {
        component: Component::KubeProxy,
        file: "kube-proxy",
        to: API,
    },
];
const API: &[(Component, &str)] = &[(Component::ApiServer, path::CLUSTER_AND_SIGNER_CA)];

fn ders(text: &str) -> Vec<Vec<u8>> {
    let blocks = Pem::iter_from_buffer(text.as_bytes());
    blocks.map(|block| block.unwrap().contents).collect()
}

fn parsed(ders: &[Vec<u8>]) -> Vec<X509Certificate<'_>> {
    let parsed = ders.iter().map(|der| parse_x509_certificate(der));
    parsed.map(|parsed| parsed.unwrap().1).collect()
}

/// One after the other, as PEM.
fn certificates(bundle: &str) -> impl Iterator<Item = String> {
    let each = bundle.split_inclusive("-----END CERTIFICATE-----\n");
    each.map(str::to_owned)
}

/// True where the first certificate leads to one that is trusted, by the others.
fn leads(presented: &str, trusted: &str) -> bool {
    let (presented, trusted) = (ders(presented), ders(trusted));
    let (chain, roots) = (parsed(&presented), parsed(&trusted));
    let by = |cert: &X509Certificate<'_>, ca: &X509Certificate<'_>| {
        cert.issuer() == ca.subject() && cert.verify_signature(Some(ca.public_key())).is_ok()
    };
    let mut cert = &chain[0];
    let mut rest = &chain[1..];
    loop {
        if roots.iter().any(|root| by(cert, root)) {
            return true;
        }
        match rest.split_first() {
            Some((next, others)) if by(cert, next) => (cert, rest) = (next, others),
            Some(_) | None => return false,
        }
    }
}

/// Who trusts whom.
struct Trust {
    contents: Contents,
    known: BTreeMap<(String, String), bool>,
    /// What pods trust that never read it again.
    pods: String,
    /// For which authority the pods of an add-on were restarted last, and what they have trusted since then.
    addons: BTreeMap<ObjectRef, (Value, String)>,
    /// A person says that there are none of them any more.
    drops: bool,
    /// What extension API servers trust: API servers only add to it.
    extension: BTreeSet<String>,
    version: u32,
    engines: BTreeMap<u64, (String, String, String)>,
}

impl Trust {
    fn trusts(&mut self, presented: &str, trusted: &str) -> bool {
        let key = (presented.to_owned(), trusted.to_owned());
        let leads = || leads(presented, trusted);
        *self.known.entry(key).or_insert_with(leads)
    }

    fn of(&self, world: &World, component: Component, path: &str) -> Vec<(NodeName, String)> {
        self.contents.of(world, component, |file| file == path)
    }

    fn presented(
        &self,
        world: &World,
        component: Component,
        name: &str,
    ) -> Vec<(NodeName, String)> {
        self.contents.of(world, component, |file| {
            let file = file
                .strip_prefix("/etc/kubernetes/ssl/")
                .unwrap_or_default();
            let stem = file.strip_suffix(".pem").unwrap_or("-key");
            let is_it = if name.ends_with('-') {
                stem.starts_with(name) && stem != "kube-etcd-ca" && stem != "kube-etcd-snapshot"
            } else {
                stem == name
            };
            is_it && !stem.ends_with("-key")
        })
    }

    /// After a step.
    fn holds(&mut self, world: &mut World, saved: Option<&ClusterState>, step: &Step) {
        self.contents.learn(world);
        self.extend(world);
        for Presents {
            component,
            file,
            to,
        } in PRESENTED
        {
            for (from, presented) in self.presented(world, *component, file) {
                for (verifier, by) in *to {
                    for (node, trusted) in self.of(world, *verifier, by) {
                        assert!(
                            self.trusts(&presented, &trusted),
                            "{verifier} on {node} does not trust {file} of {component} on {from} after {step:?}"
                        );
                    }
                }
            }
        }
        let roots: BTreeSet<String> = self
            .of(world, Component::ControllerManager, path::CLUSTER_CA)
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        self.restart(world, &roots);
        let never_read_again = (!self.drops).then(|| self.pods.clone());
        for (node, served) in self.presented(world, Component::ApiServer, "kube-apiserver") {
            let addons = self.addons.values().map(|(_, text)| text.clone());
            let addons: Vec<String> = addons.collect();
            for trusted in roots.iter().chain(&never_read_again).chain(&addons) {
                let trusts = self.trusts(&served, trusted);
                assert!(
                    trusts,
                    "a pod does not trust the API server on {node} after {step:?}"
                );
            }
        }
        let all: String = self.extension.iter().cloned().collect();
        let client = "kube-apiserver-proxy-client";
        for (node, presented) in self.presented(world, Component::ApiServer, client) {
            let trusts = self.trusts(&presented, &all);
            assert!(trusts, "an extension does not trust {node} after {step:?}");
        }
        if let Some(saved) = saved {
            self.engine(world, saved, step);
        }
    }

    /// Pods that start read what is handed out.
    fn restart(&mut self, world: &World, roots: &BTreeSet<String>) {
        let api = world.truth.cluster.as_ref();
        for (_, workload, value) in api.into_iter().flat_map(|api| api.addon_workloads()) {
            let mark = &value["spec"]["template"]["metadata"]["annotations"][label::AUTHORITY];
            let is_same = |known: &(Value, String)| known.0 == *mark;
            if !self.addons.get(workload).is_some_and(is_same) {
                let read = roots.iter().cloned().collect();
                self.addons.insert(workload.clone(), (mark.clone(), read));
            }
        }
    }

    /// API servers add what they verify clients by to what is there.
    fn extend(&mut self, world: &mut World) {
        let there = world.truth.cluster.as_ref();
        let there = there.and_then(|api| api.authorities.as_ref()?.extension.as_ref());
        let before: BTreeSet<String> = there
            .into_iter()
            .flat_map(|there| certificates(&there.authorities))
            .collect();
        self.extension.clone_from(&before);
        for file in [path::CLUSTER_AND_SIGNER_CA, path::FRONT_PROXY_CA] {
            for (_, bundle) in self.of(world, Component::ApiServer, file) {
                self.extension.extend(certificates(&bundle));
            }
        }
        if let Some(api) = &mut world.truth.cluster {
            self.version += u32::from(self.extension != before);
            let authorities = api.authorities.get_or_insert_default();
            authorities.extension = Some(ExtensionTrust {
                version: self.version.to_string(),
                authorities: self.extension.iter().cloned().collect(),
            });
        }
    }

    /// rke-operator itself.
    fn engine(&mut self, world: &World, saved: &ClusterState, step: &Step) {
        let clients = || {
            let now = "2030-01-01T00:00:00Z".parse().unwrap();
            let clients = engine_clients(saved, now, &Seed::new([9; 32])).unwrap();
            (clients.api.cert, clients.etcd.cert, clients.api.ca)
        };
        let (api, etcd, ca) = self
            .engines
            .entry(saved.serial)
            .or_insert_with(clients)
            .clone();
        for (component, file, cert) in [
            (Component::ApiServer, path::CLUSTER_AND_SIGNER_CA, &api),
            (Component::Etcd, path::ETCD_CA, &etcd),
        ] {
            for (node, trusted) in self.of(world, component, file) {
                let trusts = self.trusts(cert, &trusted);
                assert!(
                    trusts,
                    "{component} on {node} does not trust the engine after {step:?}"
                );
            }
        }
        for (node, served) in self.presented(world, Component::ApiServer, "kube-apiserver") {
            let trusts = self.trusts(&served, &ca);
            assert!(trusts, "the engine does not trust {node} after {step:?}");
        }
    }
}

fn saved(runner: &Runner) -> ClusterState {
    runner.memory.shell().saved.unwrap()
}

fn root(namespace: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: namespace.to_owned(),
        name: "kube-root-ca.crt".to_owned(),
    }
}

/// A cluster in whose namespaces pods find its authority.
async fn settled(masks: &[u8]) -> Runner {
    let runner = runner(masks.len() + 1);
    settle(&runner, &intent(masks)).await;
    let text = PublishedAuthorities::fingerprint(saved(&runner).cluster_ca.bundle().as_bytes());
    runner.remote.world(|world| {
        let api = world.truth.cluster.as_mut().unwrap();
        let authorities = api.authorities.get_or_insert_default();
        authorities.roots = ["default", "kube-system"]
            .map(|namespace| (root(namespace), text.clone()))
            .into();
        let workloads = api.addon_workloads();
        let pods: BTreeMap<_, _> = workloads.map(|(_, it, _)| (it.clone(), 0)).collect();
        assert!(pods.len() > 1, "{pods:?}");
        api.authorities.get_or_insert_default().pods = pods;
    });
    runner
}

/// The same cluster once more.
fn another(settled: &Runner) -> Runner {
    let world = settled.remote.world(|world| world.clone());
    let runner = Runner::new(&SimRemote::new(world), || [1; 32]);
    runner.memory.keep(settled.memory.shell());
    runner
}

fn trust_of(state: &ClusterState) -> Mutex<Trust> {
    Mutex::new(Trust {
        contents: Contents::new(state.digest_key.clone()),
        known: BTreeMap::new(),
        pods: state.cluster_ca.signing.cert.clone(),
        addons: BTreeMap::new(),
        drops: state.cluster_ca.trusted.len() > 1,
        extension: BTreeSet::new(),
        version: 0,
        engines: BTreeMap::new(),
    })
}

/// The same cluster once more. From now on no step may make anything distrust another.
fn copy(settled: &Runner) -> (Runner, Arc<Mutex<Trust>>) {
    let runner = another(settled);
    let trust = Arc::new(trust_of(&saved(settled)));
    runner.remote.world(|world| {
        let mut trust = trust.lock().unwrap();
        trust.contents.learn(world);
        let read = [saved(settled).cluster_ca.bundle()].into();
        trust.restart(world, &read);
    });
    let (watched, memory) = (Arc::clone(&trust), Arc::clone(&runner.memory));
    runner.remote.watch(move |world, step| {
        let saved = memory.shell().saved;
        watched.lock().unwrap().holds(world, saved.as_ref(), step);
    });
    (runner, trust)
}

async fn cluster(masks: &[u8]) -> (Runner, Arc<Mutex<Trust>>) {
    copy(&settled(masks).await)
}

async fn runs(runner: &Runner, stage: RotationStage, intent: &Intent) -> Result<Outcome, Error> {
    let goal = Goal::RotateKeys(Rotated::Authorities, intent);
    runner.rotating_authorities(stage).converge(&goal).await
}

/// True if something was changed.
async fn rotates(runner: &Runner, stage: RotationStage, intent: &Intent) -> bool {
    match runs(runner, stage, intent).await.unwrap() {
        Outcome::Converged { changed, .. } => changed,
        outcome @ Outcome::Degraded { .. } => panic!("{outcome:?}"),
    }
}

/// Everything is signed by authorities of this generation, and so many of each are trusted.
async fn uses(runner: &Runner, trust: &Mutex<Trust>, masks: &[u8], generation: u32, of: usize) {
    let state = saved(runner);
    let signer = state.signer_ca.as_ref().unwrap();
    let all = [
        &state.cluster_ca,
        &state.etcd_ca,
        &state.front_proxy_ca,
        signer,
    ];
    for authority in all {
        assert_eq!(authority.next, None);
        assert_eq!(authority.trusted.len(), of);
        let der = ders(&authority.signing.cert).remove(0);
        let (_, cert) = parse_x509_certificate(&der).unwrap();
        let subject = cert.subject().to_string();
        let ends = format!("-ca-g{generation}");
        assert_eq!(subject.ends_with(&ends), generation > 1, "{subject}");
    }
    assert_eq!(state.cluster_ca.cross.is_some(), of > 1);
    runner.remote.world(|world| {
        let mut trust = trust.lock().unwrap();
        for Presents {
            component, file, ..
        } in PRESENTED
        {
            for (node, presented) in trust.presented(world, *component, file) {
                let mut signers = all.iter().map(|authority| authority.signing.cert.clone());
                let is_new = signers.any(|cert| trust.trusts(&presented, &cert));
                assert!(is_new, "{file} of {component} on {node}");
            }
        }
    });
    let intent = intent(masks);
    let plan = runner.would(&Goal::Up(&intent)).await.unwrap();
    assert!(plan.is_empty(), "{}", rke_operator::plan::render(&plan));
}

fn refusal(ended: Result<Outcome, Error>) -> AuthorityError {
    let error = ended.unwrap_err();
    assert!(!error.hints().is_empty(), "{error}");
    match error {
        Error::Pki(PkiError::Authority(error)) => error,
        error => panic!("{error}"),
    }
}

/// Extension API servers trust exactly what API servers verify by.
fn extensions_trust(runner: &Runner, trust: &Mutex<Trust>, of: usize) {
    let mut trust = trust.lock().unwrap();
    runner.remote.world(|world| trust.extend(world));
    assert_eq!(trust.extension.len(), of);
}

async fn is_started_and_completed(masks: &[u8]) {
    let (runner, trust) = cluster(masks).await;
    let intent = intent(masks);
    for generation in 2..4 {
        assert!(!rotates(&runner, RotationStage::Complete, &intent).await);
        assert!(rotates(&runner, RotationStage::Start, &intent).await);
        uses(&runner, &trust, masks, generation, 2).await;
        // No third one comes before the first is dropped.
        assert!(!rotates(&runner, RotationStage::Start, &intent).await);
        extensions_trust(&runner, &trust, 6);
        trust.lock().unwrap().drops = true;
        assert!(rotates(&runner, RotationStage::Complete, &intent).await);
        uses(&runner, &trust, masks, generation, 1).await;
        extensions_trust(&runner, &trust, 3);
        assert!(is_restarted(&runner));
        let mut trust = trust.lock().unwrap();
        trust.pods = saved(&runner).cluster_ca.signing.cert;
        trust.drops = false;
    }
}

#[test]
fn authorities_of_one_node_are_rotated() {
    block_on(is_started_and_completed(ONE));
}

#[test]
fn authorities_of_many_nodes_are_rotated() {
    block_on(is_started_and_completed(MANY));
}

/// What else the config changes waits for `up`, and what has no certificate stays as it is: the key of digests is none of
/// the authorities', and a container whose files stay the same is not replaced.
#[test]
fn nothing_else_changes_with_the_authorities() {
    block_on(async {
        let (runner, trust) = cluster(MANY).await;
        let others = |runner: &Runner| {
            runner.remote.world(|world| {
                let hosts = world.truth.hosts.keys();
                let hosts = hosts.filter_map(|name| Some((name, world.truth.up(name)?)));
                let specs = hosts.flat_map(|(name, facts)| {
                    Component::ALL.map(|component| {
                        let spec = facts.container(component)?.applied()?;
                        let mut files = spec.files;
                        files.retain(|file, _| !Rotated::Authorities.is_in(file));
                        Some((name.clone(), component, spec.command, files))
                    })
                });
                specs.flatten().collect::<Vec<_>>()
            })
        };
        let before = (others(&runner), saved(&runner));
        let wish = Wish {
            masks: MANY.to_vec(),
            verbosity: Wish::plain().verbosity + 1,
            ..Wish::plain()
        };
        assert!(rotates(&runner, RotationStage::Start, &wish.intent()).await);
        assert_eq!(others(&runner), before.0);
        let after = saved(&runner);
        assert_eq!(after.digest_key, before.1.digest_key);
        assert_eq!(after.service_accounts, before.1.service_accounts);
        assert_eq!(after.encryption, before.1.encryption);
        uses(&runner, &trust, MANY, 2, 2).await;
    });
}

/// Cuts a run after so many steps. True if it was.
async fn dies(runner: &Runner, stage: RotationStage, masks: &[u8], cut: Cut) -> bool {
    runner.remote.cut(Some(cut));
    drop(runs(runner, stage, &intent(masks)).await);
    let died = runner.remote.was_cut();
    runner.remote.cut(None);
    died
}

/// Killed at these steps, the same commands go on and end in the same world; `up` in between keeps the phase.
async fn goes_on(settled: &Runner, masks: &[u8], kills: &[Cut], up: bool) -> usize {
    let (runner, trust) = copy(settled);
    let intent = intent(masks);
    let mut died = 0;
    for kill in kills {
        died += usize::from(dies(&runner, RotationStage::Start, masks, *kill).await);
        if up {
            let before = saved(&runner);
            settle(&runner, &intent).await;
            let after = saved(&runner);
            assert_eq!(after.cluster_ca, before.cluster_ca);
        }
    }
    rotates(&runner, RotationStage::Start, &intent).await;
    uses(&runner, &trust, masks, 2, 2).await;
    trust.lock().unwrap().drops = true;
    for kill in kills {
        died += usize::from(dies(&runner, RotationStage::Complete, masks, *kill).await);
    }
    rotates(&runner, RotationStage::Complete, &intent).await;
    uses(&runner, &trust, masks, 2, 1).await;
    extensions_trust(&runner, &trust, 3);
    died
}

#[test]
fn wherever_a_rotation_of_the_authorities_of_one_node_is_cut_it_goes_on() {
    block_on(async {
        let cuts = Cuts::default();
        let settled = settled(ONE).await;
        for after in (0..100).step_by(7) {
            let torn = [0, 1, 2, 4][after % 4];
            let kills = [Cut { after, torn }];
            let died = goes_on(&settled, ONE, &kills, after % 2 == 0).await;
            cuts.count(died > 0);
            if died == 0 {
                assert!(after > 25, "{after}");
                break;
            }
        }
        cuts.are_real();
    });
}

#[test]
fn wherever_a_rotation_of_the_authorities_of_many_nodes_is_cut_it_goes_on() {
    let settled = block_on(settled(MANY));
    let kill = (0..90_usize, 0..5_u8).prop_map(|(after, torn)| Cut { after, torn });
    let kills = prop::collection::vec(kill, 1..4);
    let regressions = FileFailurePersistence::Direct("tests/it/joint_authorities.regressions");
    let config = ProptestConfig {
        cases: (ProptestConfig::default().cases / 21).max(1),
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::default()
    };
    let run = |(kills, up): (Vec<Cut>, bool)| {
        block_on(goes_on(&settled, MANY, &kills, up));
        Ok(())
    };
    let strategy = (kills, any::<bool>());
    TestRunner::new(config).run(&strategy, run).unwrap();
}

/// What failed once, of what was generated.
#[test]
fn authorities_are_forgotten_although_nothing_has_told_that_they_were() {
    block_on(async {
        let settled = settled(MANY).await;
        let kills = [(58, 1), (0, 2), (68, 1)].map(|(after, torn)| Cut { after, torn });
        goes_on(&settled, MANY, &kills, false).await;
    });
}

/// A node that does not answer may come back with what it trusted: nothing begins or is completed without it.
#[test]
fn authorities_are_neither_replaced_nor_dropped_while_a_node_is_away() {
    block_on(async {
        let (runner, trust) = cluster(MANY).await;
        let intent = intent(MANY);
        let is_silent = |error| matches!(error, AuthorityError::Silent { .. });
        runner.switch_off("n5");
        assert!(is_silent(refusal(
            runs(&runner, RotationStage::Start, &intent).await
        )));
        runner.switch_on();
        rotates(&runner, RotationStage::Start, &intent).await;
        runner.switch_off("n5");
        trust.lock().unwrap().drops = true;
        assert!(is_silent(refusal(
            runs(&runner, RotationStage::Complete, &intent).await
        )));
        runner.switch_on();
        assert_eq!(saved(&runner).cluster_ca.trusted.len(), 2);
    });
}

/// One that goes away in the middle is waited for: nothing is signed with what it may not trust.
#[test]
fn a_rotation_of_the_authorities_waits_for_a_node_that_goes_away() {
    block_on(async {
        let settled = settled(MANY).await;
        let mut waited = 0;
        for after in (1..120).step_by(19) {
            let (runner, trust) = copy(&settled);
            if !dies(&runner, RotationStage::Start, MANY, Cut { after, torn: 0 }).await {
                break;
            }
            let intent = intent(MANY);
            let before = saved(&runner).cluster_ca;
            runner.switch_off("n5");
            let outcome = runs(&runner, RotationStage::Start, &intent).await.unwrap();
            let Outcome::Degraded { warnings, .. } = outcome else {
                panic!("{after}: a node is away");
            };
            assert_eq!(saved(&runner).cluster_ca, before);
            if before.next.is_some() {
                assert!(warnings.iter().any(|warning| warning.degrades), "{after}");
                let early = refusal(runs(&runner, RotationStage::Complete, &intent).await);
                assert_eq!(early, AuthorityError::NotIssued);
                waited += 1;
            }
            runner.switch_on();
            rotates(&runner, RotationStage::Start, &intent).await;
            uses(&runner, &trust, MANY, 2, 2).await;
        }
        assert!(waited > 1, "{waited}");
    });
}

/// Where a namespace does not get the new authority, the run ends with its name, and the same command goes on.
#[test]
fn nothing_is_signed_before_pods_are_given_the_new_authorities() {
    block_on(async {
        let (runner, trust) = cluster(ONE).await;
        let intent = intent(ONE);
        runner.remote.script(|_, _, step| match &step.action {
            Action::Cluster(ClusterAction::AwaitAuthorities { .. }) => Turn::Fail(SimFailure::new(
                ErrorClass::Transient,
                "waited for ConfigMap `a/kube-root-ca.crt`",
            )),
            Action::Cluster(_) | Action::Host(..) | Action::Local(_) => Turn::Go,
        });
        for _ in 0..2 {
            let error = runs(&runner, RotationStage::Start, &intent)
                .await
                .unwrap_err();
            assert!(rke_operator::error::with_causes(&error).contains("kube-root-ca.crt"));
            assert!(saved(&runner).cluster_ca.next.is_some());
        }
        runner.remote.script(|_, _, _| Turn::Go);
        rotates(&runner, RotationStage::Start, &intent).await;
        uses(&runner, &trust, ONE, 2, 2).await;
    });
}

/// Pods of add-ons are restarted as soon as they find the new authority: before anything is signed with it.
#[test]
fn nothing_is_signed_before_pods_of_add_ons_are_restarted() {
    block_on(async {
        let (runner, trust) = cluster(ONE).await;
        let intent = intent(ONE);
        let restarts = Arc::new(Mutex::new(Vec::new()));
        let counted = Arc::clone(&restarts);
        runner.remote.script(move |_, _, step| match &step.action {
            Action::Cluster(ClusterAction::RestartPods { addon, .. }) => {
                counted.lock().unwrap().push(addon.clone());
                Turn::Fail(SimFailure::new(ErrorClass::Transient, "a webhook is away"))
            }
            Action::Cluster(_) | Action::Host(..) | Action::Local(_) => Turn::Go,
        });
        for _ in 0..2 {
            let error = runs(&runner, RotationStage::Start, &intent).await;
            let error = error.unwrap_err();
            assert!(rke_operator::error::with_causes(&error).contains("a webhook is away"));
            assert!(saved(&runner).cluster_ca.next.is_some());
            let early = runs(&runner, RotationStage::Complete, &intent).await;
            assert_eq!(refusal(early), AuthorityError::NotIssued);
        }
        assert_eq!(*restarts.lock().unwrap(), ["coredns", "coredns"]);
        let counted = Arc::new(Mutex::new(Vec::new()));
        let restarts = Arc::clone(&counted);
        runner.remote.script(move |_, _, step| {
            let title = rke_operator::plan::title(step);
            if [
                "restart the pods of ",
                "wait for coredns",
                "wait for flannel",
            ]
            .iter()
            .any(|these| title.starts_with(these))
            {
                counted.lock().unwrap().push(title);
            }
            Turn::Go
        });
        rotates(&runner, RotationStage::Start, &intent).await;
        uses(&runner, &trust, ONE, 2, 2).await;
        assert!(is_restarted(&runner));
        let steps = [
            "restart the pods of coredns",
            "wait for coredns",
            "restart the pods of flannel",
            "wait for flannel",
        ];
        assert_eq!(*restarts.lock().unwrap(), steps);
    });
}

/// True where pods of every add-on were restarted for the authority that signs.
fn is_restarted(runner: &Runner) -> bool {
    let signing = saved(runner).cluster_ca.signing.cert;
    let signing = PublishedAuthorities::fingerprint(signing.as_bytes());
    runner.remote.world(|world| {
        let api = world.truth.cluster.as_ref().unwrap();
        let marks = api.addon_workloads().map(|(_, _, value)| {
            value["spec"]["template"]["metadata"]["annotations"][label::AUTHORITY].clone()
        });
        marks.into_iter().all(|mark| mark == signing)
    })
}

/// An add-on that was installed again has no mark. Its pods are restarted before the former authority is dropped.
#[test]
fn authorities_are_dropped_only_where_pods_of_add_ons_were_restarted() {
    block_on(async {
        let (runner, trust) = cluster(ONE).await;
        let intent = intent(ONE);
        rotates(&runner, RotationStage::Start, &intent).await;
        runner.remote.world(|world| {
            let mut objects = world.etcd().objects.iter_mut();
            let (_, coredns) = objects
                .find(|(object, _)| object.kind == "Deployment" && object.name == "coredns")
                .unwrap();
            coredns["spec"]["template"]["metadata"]["annotations"] = Value::Null;
        });
        trust.lock().unwrap().drops = true;
        let early = refusal(runs(&runner, RotationStage::Complete, &intent).await);
        let AuthorityError::NotRestarted(workload) = early else {
            panic!("{early}");
        };
        assert_eq!(workload.name, "coredns");
        rotates(&runner, RotationStage::Start, &intent).await;
        assert!(is_restarted(&runner));
        rotates(&runner, RotationStage::Complete, &intent).await;
        uses(&runner, &trust, ONE, 2, 1).await;
    });
}

/// Former authorities are not dropped while something runs with a certificate of theirs.
#[test]
fn authorities_are_dropped_only_where_all_certificates_are_new() {
    block_on(async {
        let settled = settled(ONE).await;
        let mut early = 0;
        for after in 1..100 {
            let (runner, _) = copy(&settled);
            if !dies(&runner, RotationStage::Start, ONE, Cut { after, torn: 0 }).await {
                break;
            }
            if saved(&runner).cluster_ca.next.is_none() {
                let intent = intent(ONE);
                let error = runs(&runner, RotationStage::Complete, &intent).await;
                // All that is left may be a copy of the state.
                if let Err(Error::Pki(PkiError::Authority(error))) = error {
                    assert!(matches!(error, AuthorityError::StillUsed { .. }), "{error}");
                    early += 1;
                }
            }
        }
        assert!(early > 5, "{early}");
    });
}

/// A cluster whose certificates were renewed in the last year of its authorities: they live longer.
async fn old(masks: &[u8]) -> Runner {
    let runner = settled(masks).await.at("2039-06-01T00:00:00Z");
    settle(&runner, &intent(masks)).await;
    runner
}

/// The same cluster when its authorities have ended: members of etcd reach each other when they have others.
fn later(old: &Runner) -> Runner {
    let runner = another(old).at("2040-02-01T00:00:00Z");
    let state = saved(&runner);
    let ended = state.digest_key.digest(state.etcd_ca.bundle().as_bytes());
    runner.remote.world(|world| world.ended = Some(ended));
    runner
}

/// Everything has a certificate of the new authorities, and nothing else is trusted.
async fn has_others(runner: &Runner, masks: &[u8]) {
    let trust = trust_of(&saved(runner));
    runner
        .remote
        .world(|world| trust.lock().unwrap().contents.learn(world));
    uses(runner, &trust, masks, 2, 1).await;
}

/// Nothing is done about a cluster whose authorities have ended, and nothing is changed, before a person asks for others.
#[test]
fn authorities_that_have_ended_are_replaced_at_once() {
    block_on(async {
        for masks in [ONE, MANY] {
            let runner = later(&old(masks).await);
            let (intent, before) = (intent(masks), saved(&runner));
            let has_ended = |error| matches!(error, AuthorityError::Ended { .. });
            for stage in [RotationStage::Start, RotationStage::Complete] {
                assert!(has_ended(refusal(runs(&runner, stage, &intent).await)));
            }
            let up = runner.converge(&Goal::Up(&intent)).await;
            assert!(has_ended(refusal(up)));
            assert_eq!(saved(&runner), before);
            assert_eq!(runner.remote.steps(), 0);

            assert!(rotates(&runner, RotationStage::Now, &intent).await);
            has_others(&runner, masks).await;
            assert!(is_restarted(&runner));
            assert!(!rotates(&runner, RotationStage::Now, &intent).await);
            has_others(&runner, masks).await;
        }
    });
}

/// As long as none has ended, none is replaced at once.
#[test]
fn authorities_that_are_good_are_not_replaced_at_once() {
    block_on(async {
        let (runner, trust) = cluster(MANY).await;
        assert!(!rotates(&runner, RotationStage::Now, &intent(MANY)).await);
        uses(&runner, &trust, MANY, 1, 1).await;
    });
}

/// Wherever it is cut, the same command goes on, and so does `up`, with the same authorities.
#[test]
fn wherever_authorities_are_replaced_at_once_it_goes_on() {
    block_on(async {
        let cuts = Cuts::default();
        for masks in [ONE, MANY] {
            let old = old(masks).await;
            let step = if masks.is_empty() { 2 } else { 5 };
            for after in (0..200).step_by(step) {
                let runner = later(&old);
                let torn = [0, 1, 2, 4][after % 4];
                let cut = Cut { after, torn };
                let died = dies(&runner, RotationStage::Now, masks, cut).await;
                cuts.count(died);
                if !died {
                    assert!(after > 9, "{after}");
                    break;
                }
                let intent = intent(masks);
                let signs = |runner: &Runner| saved(runner).cluster_ca;
                let is_saved = signs(&runner) != signs(&old);
                let new = signs(&runner);
                if is_saved && after % 2 == 0 {
                    settle(&runner, &intent).await;
                } else {
                    rotates(&runner, RotationStage::Now, &intent).await;
                }
                assert!(!is_saved || signs(&runner) == new);
                has_others(&runner, masks).await;
                // `up` restarts no pods.
                rotates(&runner, RotationStage::Now, &intent).await;
                assert!(is_restarted(&runner));
            }
        }
        cuts.are_real();
    });
}

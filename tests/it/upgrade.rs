//! What an earlier release wrote is read, migrated and planned, and the plan says what it
//! restarts and why. The recorded world is that of commit d459bc7: the state beside the config,
//! the state in a Secret, the node's containers with their labels, its files, and the API's objects.

use std::{fs, path::Path, sync::Arc};

use k8s_openapi::api::core::v1;
use kube::{Api, api::PostParams};
use rke_operator::{
    config::{Intent, RkeConfig, SecretSources},
    desired::{
        Desired,
        pki::{self, PkiContext, Seed},
    },
    facts::{ContainerFact, ContainerState, FileFact, HostFacts, NodeFact, StateCopy},
    model::{ClusterId, NodeName, ObjectRef, Secret, label, path},
    plan,
    state::{ClusterState, Loaded, Store, codec, file::FileStore, secret::SecretStore},
};
use serde_json::Value;

use crate::{
    fake_api::FakeApi,
    sim::{Ended, Shell, World, bare_host, world::plan_up},
};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/d459bc7")
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(name)).expect("a fixture")
}

fn json(name: &str) -> Value {
    serde_json::from_str(&text(name)).expect("JSON")
}

fn intent() -> Intent {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("rkespec/minimal.yml");
    let config = fs::read_to_string(config).expect("a config");
    let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    let config = RkeConfig::parse(&config).expect("a config");
    let sources = SecretSources::new("ssh-key", key.into());
    Intent::from_config(&config, &sources)
        .expect("an intent")
        .intent
}

fn state() -> ClusterState {
    codec::decode(&text("state.json")).expect("a state")
}

/// The node as the recorded containers, files and images make it.
fn node(name: &NodeName) -> HostFacts {
    let recorded = json("node.json");
    let mut facts = bare_host(name);
    for (name, container) in recorded["containers"].as_object().expect("containers") {
        let of = |field: &str| serde_json::from_value(container[field].clone()).expect("a field");
        let labels: std::collections::BTreeMap<String, String> =
            serde_json::from_value(container["labels"].clone()).expect("labels");
        let spec = labels
            .get(label::SPEC)
            .map(|spec| serde_json::from_str(spec).expect("a definition"));
        let fact = ContainerFact {
            id: format!("id of {name}"),
            labels,
            state: serde_json::from_value::<ContainerState>(container["state"].clone())
                .expect("a state"),
            runs: spec,
            image: of("image"),
            started: None,
        };
        facts.containers.insert(name.clone(), fact);
    }
    let files = recorded["files"].as_object().expect("files").iter();
    facts.files = Some(
        files
            .map(|(path, file)| {
                let content = file["content"].as_str().expect("a text");
                let fact = FileFact {
                    content: Arc::new(Secret::new(content.as_bytes().to_vec())),
                    mode: u32::try_from(file["mode"].as_u64().expect("a mode")).expect("a mode"),
                    uid: 0,
                    gid: 0,
                    is_dir: file["isDir"].as_bool().expect("a kind"),
                };
                (path.clone(), fact)
            })
            .collect(),
    );
    let list = |field: &str| serde_json::from_value(recorded[field].clone()).expect("a list");
    facts.images = list("images");
    facts.system.paths = list("paths");
    facts.system.empty = list("empty");
    facts.system.modules = list("modules");
    facts.system.sysctls = serde_json::from_value(recorded["sysctls"].clone()).expect("a map");
    facts
}

/// The whole recorded world, and the folder of whoever ran that release.
fn world(intent: &Intent) -> (World, Shell) {
    let name = intent.nodes.keys().next().expect("a node");
    let mut world = World::new([(name.clone(), node(name))]);
    let api = json("api.json");
    let refs: Vec<ObjectRef> = serde_json::from_value(api["refs"].clone()).expect("references");
    let objects: Vec<Value> = serde_json::from_value(api["objects"].clone()).expect("objects");
    let nodes: std::collections::BTreeMap<NodeName, NodeFact> =
        serde_json::from_value(api["nodes"].clone()).expect("nodes");
    let etcd = world.etcd();
    etcd.objects = refs.into_iter().zip(objects).collect();
    etcd.nodes = nodes;
    etcd.state_copy = StateCopy::Is(Box::new(state().copy()));
    world.runs_already(&state().cluster_id);
    let shell = Shell {
        saved: Some(state()),
        kubeconfig: Some(Secret::new(text("kubeconfig.yml"))),
        ..Shell::default()
    };
    (world, shell)
}

fn wanted(intent: &Intent, world: &World, shell: &Shell, recover: Option<&ClusterId>) -> Desired {
    let have = world.observe(shell);
    let context = PkiContext {
        now: "2026-12-01T12:00:00Z".parse().expect("a time"),
        seed: Seed::new([9; 32]),
        recover,
        accept_etcd: None,
        rotate: None,
        rotate_key: false,
        service_account_key: None,
        authorities: None,
        restore: None,
        held_elsewhere: &[].into(),
        lose: &[].into(),
        clean: &[].into(),
        given: None,
    };
    let keys = pki::reconcile(intent, &have, &context).expect("keys");
    Desired::from_intent(intent, &keys, &have).expect("a desired world")
}

#[tokio::test]
async fn a_state_file_of_an_earlier_release_is_read_and_written_in_the_new_format() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("cluster.rke-operator.json");
    fs::write(&path, text("state.json")).expect("a copy");
    let store = FileStore::new(path.clone());
    let Loaded::Present { saved, revision } = Store::load(&store).await.expect("a state") else {
        panic!("it is there");
    };
    assert_eq!(*saved, state());
    let intent = intent();
    let (world, shell) = world(&intent);
    let want = wanted(&intent, &world, &shell, None);
    Store::save(&store, &want.saved, Some(&revision))
        .await
        .expect("it is saved");
    let written: Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("it")).expect("JSON");
    assert_eq!(written["version"], codec::FORMAT);
    assert_eq!(written["serial"], 1);
    assert_eq!(
        codec::decode(&fs::read_to_string(&path).expect("it")),
        Ok(want.saved)
    );
}

#[tokio::test]
async fn a_state_secret_of_an_earlier_release_is_read() {
    let api = FakeApi::new(|| "2026-12-01T12:00:00Z".parse().expect("a time"));
    let mut secret: v1::Secret = serde_json::from_str(&text("secret.json")).expect("a Secret");
    secret.metadata.resource_version = None;
    secret.metadata.uid = None;
    let secrets: Api<v1::Secret> = Api::namespaced(api.client(), "rke");
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .expect("it is there");
    let store = SecretStore::new(api.client(), "rke", "minimal");
    let Loaded::Present { saved, .. } = Store::load(&store).await.expect("a state") else {
        panic!("it is there");
    };
    assert_eq!(*saved, state());
}

/// What changes in a cluster that an earlier release made, and what that restarts.
#[test]
fn a_cluster_of_an_earlier_release_is_planned_and_taken_over() {
    let intent = intent();
    let (mut world, mut shell) = world(&intent);
    let before = state();
    let want = wanted(&intent, &world, &shell, None);
    let plan = plan_up(&want, &world.observe(&shell)).expect("a plan");
    insta::with_settings!({filters => vec![("\\b[0-9a-f]{32}\\b|\\b[0-9a-f]{16}\\b", "<digest>")]}, {
        insta::assert_snapshot!("d459bc7", plan::render(&plan));
    });
    // Nothing that was irreplaceable is replaced.
    assert_eq!(want.saved.cluster_id, before.cluster_id);
    assert_eq!(want.saved.cluster_ca, before.cluster_ca);
    assert_eq!(want.saved.etcd_ca, before.etcd_ca);
    assert_eq!(want.saved.front_proxy_ca, before.front_proxy_ca);
    assert_eq!(
        want.saved.service_accounts.signing,
        before.service_accounts.signing
    );
    for round in 0..5 {
        let want = wanted(&intent, &world, &shell, None);
        let plan = plan_up(&want, &world.observe(&shell)).expect("a plan");
        if plan.is_empty() {
            let saved = shell.saved.expect("a state");
            assert!(!saved.is_of_first_format());
            assert_eq!(saved.digest_key, before.digest_key, "no digest changes");
            assert!(round > 0);
            return;
        }
        assert_eq!(
            world.run(&plan, Some(&want), &mut shell, None),
            Ended::Completed
        );
    }
    panic!("something keeps changing");
}

/// The copy on a node of an earlier release brings a lost state back.
#[test]
fn a_copy_of_an_earlier_release_is_recovered() {
    let intent = intent();
    let (world, mut shell) = world(&intent);
    shell.saved = None;
    let before = state();
    let want = wanted(&intent, &world, &shell, Some(&before.cluster_id));
    assert_eq!(want.saved.cluster_ca, before.cluster_ca);
    assert_eq!(want.saved.serial, 1);
    assert!(json("node.json")["files"][path::STATE].is_object());
}

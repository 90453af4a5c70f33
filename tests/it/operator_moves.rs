//! A cluster changes hands: from a state file to an object, back, to another management cluster, and to an object that a
//! backup brings back. One owner acts at a time, and no move touches a container. `docs/moving.md` has the same
//! commands.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rke_operator::{
    config::{Intent, RkeConfig, SecretSources},
    converge::{Error, Goal, Outcome, Removal},
    environment::Clock,
    facts::{ContainerFact, FileFact},
    model::{ClusterId, path},
    plan::title,
    state::{ClusterState, codec},
};
use serde_json::{Value, json};

use crate::{
    cli_support::{Context, Ran},
    fake_api::FakeApi,
    operator_rig::{
        CREDENTIALS, NAMESPACE, PLANTED_KEY, Rig, clock, cluster, is, message, minutes,
        planted_line, reason,
    },
    sim::{
        Shell,
        remote::{SimRemote, Turn},
        runner::Runner,
    },
};

/// As a user of the command line has it: the key is a file in the home directory.
fn cluster_yml() -> String {
    serde_json::to_string_pretty(&cluster("a", "n1")["spec"]["config"]).unwrap()
}

fn intent() -> Intent {
    let config = RkeConfig::parse(&cluster_yml()).unwrap();
    let key = PLANTED_KEY.clone().into();
    let sources = SecretSources::new("~/.ssh/id_rsa", key);
    Intent::from_config(&config, &sources).unwrap().intent
}

/// `rke-operator up` with a state file in one folder.
fn command_line(nodes: &SimRemote, api: &FakeApi) -> Runner {
    let api = api.clone();
    let clock = Clock::new(move || api.now());
    Runner::new(nodes, || [3; 32]).called("a user", &clock)
}

fn saved(runner: &Runner) -> ClusterState {
    runner.memory.shell().saved.expect("a state file")
}

/// The containers of the node, and its files but for the copy of the state.
fn what_runs(nodes: &SimRemote) -> (BTreeMap<String, ContainerFact>, BTreeMap<String, FileFact>) {
    let facts = nodes.whole("n1");
    let mut files = facts.files.unwrap();
    files.remove(path::STATE);
    (facts.containers, files)
}

/// The titles of all steps that come.
fn listen(nodes: &SimRemote) -> Arc<Mutex<Vec<String>>> {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&heard);
    nodes.script(move |_, _, step| {
        told.lock().unwrap().push(title(step));
        Turn::Go
    });
    heard
}

/// A folder as the command line leaves it.
fn folder(state: &ClusterState) -> Context {
    let context = Context::new();
    context.write("cluster.yml", &cluster_yml());
    context.write("home/.ssh/id_rsa", &PLANTED_KEY);
    context.write("home/.ssh/known_hosts", KNOWN);
    context.write("cluster.rke-operator.json", codec::encode(state).expose());
    context
}

const KNOWN: &str =
    "10.0.0.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ\n";

fn init(context: &Context, args: &[&str]) -> Ran {
    let all = ["init", "--namespace", NAMESPACE];
    context.run(&[&all, args].concat())
}

fn documents(yaml: &str) -> Vec<Value> {
    let documents = yaml.split("---\n");
    documents
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

/// `kubectl apply`: the Secrets, and then the object, by what the API server admits.
async fn apply(rig: &Rig, yaml: &str) {
    for object in documents(yaml) {
        match object["kind"].as_str().unwrap() {
            "Secret" => {
                rig.api.plant("secrets", &object);
            }
            kind => {
                assert_eq!(kind, "Cluster");
                rig.create(&object).await;
            }
        }
    }
}

fn state_of(rig: &Rig) -> ClusterState {
    codec::decode(&rig.state("a").unwrap().to_string()).unwrap()
}

/// Neither run of a former owner is begun: the copies on the nodes are another owner's by now.
async fn is_refused(former: &Runner, intent: &Intent) {
    let before = what_runs(&former.remote);
    for error in [
        former.converge(&Goal::Up(intent)).await.err(),
        former.converge(&Removal(Some(intent))).await.err(),
        former.converge(&Removal(None)).await.err(),
    ] {
        let error = error.expect("a former owner acts");
        assert!(matches!(error, Error::Pki(_)), "{error}");
        assert!(error.to_string().contains("not the newest"), "{error}");
    }
    assert!(what_runs(&former.remote) == before);
}

/// Command line → object → command line: each finds its cluster as the one before has left it, and that one is refused.
#[tokio::test(start_paused = true)]
async fn a_cluster_moves_from_the_command_line_to_an_object_and_back() {
    let (nodes, api) = (SimRemote::bare(&["n1"]), FakeApi::new(clock()));
    let intent = intent();
    let first = command_line(&nodes, &api);
    first.converge(&Goal::Up(&intent)).await.unwrap();
    let built = saved(&first);
    let runs = what_runs(&nodes);
    let heard = listen(&nodes);

    let written = init(&folder(&built), &[]);
    assert_eq!(written.code, Some(0), "{written}");
    let rig = Rig::with(nodes.clone(), api.clone(), |_| {});
    apply(&rig, &written.stdout).await;
    rig.ready("a").await;
    let owned = state_of(&rig);
    let uid = rig.cluster("a")["metadata"]["uid"].clone();
    assert_eq!(json!(owned.memory.uid), uid);
    assert_eq!(owned.cluster_ca, built.cluster_ca);
    assert_eq!(owned.service_accounts, built.service_accounts);
    assert_eq!(owned.cluster_id, built.cluster_id);
    assert!(owned.serial > built.serial);
    let annotations = rig.cluster("a")["metadata"]["annotations"].clone();
    assert_eq!(
        annotations["clusterprovisioner.rke.io/take-over"],
        Value::Null
    );
    assert!(
        what_runs(&nodes) == runs,
        "nothing was restarted or written"
    );
    let said: Vec<String> = heard.lock().unwrap().drain(..).collect();
    assert_eq!(
        said,
        ["write 1 file", "save a copy of the state in kube-system"]
    );
    assert_eq!(rig.events("TookOver").len(), 0);
    is_refused(&first, &intent).await;
    heard.lock().unwrap().clear();

    // Back: the object lets go, and the command line takes over by id, without a state file.
    let id: ClusterId = built.cluster_id.clone();
    let orphan = json!({"spec": {"deletion": {"policy": "Orphan"}}});
    rig.api.patch("clusters", "", "a", &orphan);
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert!(heard.lock().unwrap().is_empty());
    let third = command_line(&nodes, &api).recovering(&id);
    let outcome = third.converge(&Goal::Up(&intent)).await.unwrap();
    assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
    assert!(
        what_runs(&nodes) == runs,
        "nothing was restarted or written"
    );
    assert_eq!(saved(&third).cluster_ca, built.cluster_ca);
    assert!(saved(&third).serial > owned.serial);
    let plan = third.would(&Goal::Up(&intent)).await.unwrap();
    assert!(plan.is_empty(), "{plan:?}");
    is_refused(&first, &intent).await;

    // An object that takes over by the state that was left is refused as well, until it asks for the newest.
    let ups = nodes.counts().ups;
    let mut again = cluster("a", "n1");
    again["metadata"]["annotations"] = json!({"clusterprovisioner.rke.io/take-over": id.0});
    rig.create(&again).await;
    let told = rig
        .until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert_eq!(reason(&told, "Stalled"), "StateConflict");
    assert!(message(&told, "Stalled").contains("recover"), "{told}");
    minutes(30).await;
    assert_eq!(nodes.counts().ups, ups);
    assert!(what_runs(&nodes) == runs);
    let recover = json!({"metadata": {"annotations": {"clusterprovisioner.rke.io/recover": id.0}}});
    rig.api.patch("clusters", "", "a", &recover);
    rig.ready("a").await;
    assert!(what_runs(&nodes) == runs);
    is_refused(&third_without_asking(&third), &intent).await;
}

/// The same state file, in the hands of a user who names no id.
fn third_without_asking(runner: &Runner) -> Runner {
    runner.for_user("a user", runner.memory.shell()).plainly()
}

/// Another management cluster: the objects, with the state, are created there. The former one acts no more, also not when
/// its object is deleted.
#[tokio::test(start_paused = true)]
async fn a_cluster_moves_to_another_management_cluster() {
    let nodes = SimRemote::bare(&["n1"]);
    let here = Rig::with(nodes.clone(), FakeApi::new(clock()), |_| {});
    here.create(&cluster("a", "n1")).await;
    here.ready("a").await;
    let runs = what_runs(&nodes);
    let id = nodes.claimed_by("n1").unwrap();
    let state = here.api.object("secrets", NAMESPACE, "a-state").unwrap();

    let there = Rig::with(nodes.clone(), FakeApi::new(clock()), |_| {});
    let copied = json!({
        "metadata": {"name": "a-state", "namespace": NAMESPACE, "labels": state["metadata"]["labels"]},
        "type": state["type"],
        "data": state["data"],
    });
    there.api.plant("secrets", &copied);
    there.create(&cluster("a", "n1")).await;
    let told = there
        .until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert_eq!(reason(&told, "Stalled"), "StateConflict");
    let take_over = format!("clusterprovisioner.rke.io/take-over: {id}");
    assert!(message(&told, "Stalled").contains(&take_over), "{told}");
    let named = json!({"metadata": {"annotations": {"clusterprovisioner.rke.io/take-over": id}}});
    there.api.patch("clusters", "", "a", &named);
    there.ready("a").await;
    assert_eq!(there.events("TookOver").len(), 1);
    assert!(what_runs(&nodes) == runs);

    // The former one sees that, and does nothing, whatever is asked of it.
    let told = here
        .until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert_eq!(reason(&told, "Stalled"), "StateConflict");
    let edit = json!({"spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}}});
    here.api.patch("clusters", "", "a", &edit);
    minutes(30).await;
    assert!(what_runs(&nodes) == runs);
    here.api.delete("clusters", "", "a");
    here.gone("a").await;
    assert!(what_runs(&nodes) == runs, "and it removes nothing");
    assert_eq!(here.events("Orphaned").len(), 1);
    there.api.delete("clusters", "", "a");
    there.gone("a").await;
    assert_eq!(nodes.containers("n1"), 0, "its owner may");
}

/// A backup, restored where its objects were lost: they have new uids, and none acts before a user names its cluster.
#[tokio::test(start_paused = true)]
async fn a_restored_backup_waits_for_the_id() {
    let nodes = SimRemote::bare(&["n1"]);
    let before = Rig::with(nodes.clone(), FakeApi::new(clock()), |_| {});
    before.create(&cluster("a", "n1")).await;
    before.ready("a").await;
    let runs = what_runs(&nodes);
    let id = nodes.claimed_by("n1").unwrap();
    let object = before.cluster("a");
    let state = before.api.object("secrets", NAMESPACE, "a-state").unwrap();
    let (_, nodes) = before.stop().await;

    let after = Rig::with(nodes.clone(), FakeApi::new(clock()), |_| {});
    // As Velero does it: annotations, labels and specs come back, and uids, versions and statuses do not.
    let bare = |object: &Value, name: &str| {
        json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "metadata": {
                "name": name, "namespace": object["metadata"]["namespace"],
                "labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"],
                "finalizers": object["metadata"]["finalizers"],
            },
            "spec": object["spec"], "data": object["data"], "type": object["type"],
        })
    };
    after.api.plant("secrets", &bare(&state, "a-state"));
    let mut object = bare(&object, "a");
    for key in ["data", "type"] {
        object.as_object_mut().unwrap().remove(key);
    }
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("namespace");
    after.create(&object).await;
    let told = after
        .until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert_eq!(reason(&told, "Stalled"), "StateConflict");
    minutes(60).await;
    assert!(what_runs(&nodes) == runs);
    let named = json!({"metadata": {"annotations": {"clusterprovisioner.rke.io/take-over": id}}});
    after.api.patch("clusters", "", "a", &named);
    after.ready("a").await;
    assert!(what_runs(&nodes) == runs);
}

/// An object that is deleted while it is not the owner removes nothing: neither a restored one that has not taken over,
/// nor one whose state is older than the nodes'.
#[tokio::test(start_paused = true)]
async fn an_older_state_removes_nothing() {
    let nodes = SimRemote::bare(&["n1"]);
    let rig = Rig::with(nodes.clone(), FakeApi::new(clock()), |_| {});
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let old = rig.api.object("secrets", NAMESPACE, "a-state").unwrap();
    let verbose = json!({"spec": {"config": {"cluster_name": "b"}}});
    rig.api.patch("clusters", "", "a", &verbose);
    rig.until("a", |cluster| {
        is(cluster, "Ready", "True")
            && cluster["status"]["observedGeneration"] == cluster["metadata"]["generation"]
    })
    .await;
    let runs = what_runs(&nodes);
    rig.api.patch(
        "secrets",
        NAMESPACE,
        "a-state",
        &json!({"data": old["data"]}),
    );
    rig.api.delete("clusters", "", "a");
    let told = rig
        .until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert_eq!(reason(&told, "Stalled"), "StateConflict");
    rig.gone("a").await;
    assert!(what_runs(&nodes) == runs);
    assert_eq!(rig.events("Orphaned").len(), 1);
}

/// An object that is to take over a cluster whose state is not there creates no other one.
#[tokio::test(start_paused = true)]
async fn taking_over_needs_the_state() {
    let rig = Rig::start(&["n1"]);
    let mut object = cluster("a", "n1");
    let id = "0123456789abcdef0123456789abcdef";
    object["metadata"]["annotations"] = json!({"clusterprovisioner.rke.io/take-over": id});
    rig.create(&object).await;
    let told = rig
        .until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert_eq!(reason(&told, "Stalled"), "StateMissing");
    assert!(message(&told, "Stalled").contains(id), "{told}");
    minutes(30).await;
    assert_eq!(rig.nodes.counts().ups, 0);
    assert_eq!(rig.nodes.claimed_by("n1"), None);
}

/// With `drift: Report` nothing is healed, and yet the nodes follow the one who took over.
#[tokio::test(start_paused = true)]
async fn an_object_that_heals_nothing_takes_over_as_well() {
    let nodes = SimRemote::bare(&["n1"]);
    let here = Rig::with(nodes.clone(), FakeApi::new(clock()), |_| {});
    let mut object = cluster("a", "n1");
    object["spec"]["drift"] = json!("Report");
    here.create(&object).await;
    here.ready("a").await;
    let runs = what_runs(&nodes);
    let id = nodes.claimed_by("n1").unwrap();
    let state = here.api.object("secrets", NAMESPACE, "a-state").unwrap();
    let former = Shell {
        client: String::new(),
        saved: Some(state_of(&here)),
        kubeconfig: None,
    };
    let (_, nodes) = here.stop().await;
    let there = Rig::with(nodes.clone(), FakeApi::new(clock()), |_| {});
    let copied = json!({
        "metadata": {"name": "a-state", "namespace": NAMESPACE},
        "type": state["type"],
        "data": state["data"],
    });
    there.api.plant("secrets", &copied);
    object["metadata"]["annotations"] = json!({"clusterprovisioner.rke.io/take-over": id});
    there.create(&object).await;
    there.ready("a").await;
    assert!(what_runs(&nodes) == runs);
    let api = there.api.clone();
    let former = command_line(&nodes, &api).for_user("a user", former);
    is_refused(&former, &intent()).await;
}

/// A state file that is a copy of an object's Secret is not the command line's before the user names the cluster.
#[tokio::test(start_paused = true)]
async fn the_command_line_takes_over_by_id() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let state = state_of(&rig);
    let context = folder(&state);
    let mut config = cluster("a", "n1")["spec"]["config"].clone();
    // Nothing listens there.
    config["nodes"][0]["address"] = json!("127.0.0.1");
    config["nodes"][0]["port"] = json!(1);
    context.write("cluster.yml", &config.to_string());
    let files = context.files();
    for command in [&["up", "--yes"][..], &["plan"], &["remove", "--force"]] {
        let ran = context.run(command);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(
            ran.stderr.contains("belongs to a `Cluster` object"),
            "{ran}"
        );
        assert!(ran.stderr.contains(&state.cluster_id.0), "{ran}");
    }
    assert!(context.files() == files);
    let ran = context.run(&["up", "--yes", "--recover", &state.cluster_id.0]);
    assert_eq!(ran.code, Some(2), "{ran}");
    let text = context.files()[&context.path("cluster.rke-operator.json")].clone();
    let taken = codec::decode(std::str::from_utf8(&text).unwrap()).unwrap();
    assert_eq!((taken.memory.uid, taken.serial), (None, state.serial + 1));
    assert_eq!(taken.cluster_ca, state.cluster_ca);
}

/// What `init` writes: Secrets first, nothing secret in the object, and no file that another user can read.
#[tokio::test(start_paused = true)]
async fn init_keeps_secrets_out_of_the_object() {
    let (nodes, api) = (SimRemote::bare(&["n1"]), FakeApi::new(clock()));
    let cli = command_line(&nodes, &api);
    cli.converge(&Goal::Up(&intent())).await.unwrap();
    let context = folder(&saved(&cli));
    let printed = init(&context, &[]);
    let objects = documents(&printed.stdout);
    let names: Vec<_> = objects
        .iter()
        .map(|of| of["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["a-state", "a-ssh", "a"]);
    assert_eq!(objects[0]["metadata"]["namespace"], NAMESPACE);
    assert_eq!(objects[1]["metadata"]["namespace"], CREDENTIALS);
    let granted = &objects[1]["metadata"]["annotations"]["clusterprovisioner.rke.io/clusters"];
    assert_eq!(granted, "a");
    assert_eq!(objects[2]["spec"]["ssh"]["knownHosts"], KNOWN);
    assert!(!objects[2].to_string().contains(planted_line()));
    let key = objects[1]["data"]["ssh-privatekey"].as_str().unwrap();
    assert_eq!(BASE64_STANDARD.decode(key).unwrap(), PLANTED_KEY.as_bytes());

    // A password in the config: the config is a Secret as well.
    let mut config = cluster("a", "n1")["spec"]["config"].clone();
    config["private_registries"] =
        json!([{"url": "reg.example", "user": "me", "password": "hunter2"}]);
    context.write("cluster.yml", &config.to_string());
    let printed = init(&context, &["--output", "out", "--name", "prod"]);
    assert_eq!(printed.code, Some(0), "{printed}");
    assert!(printed.stdout.is_empty());
    let read = |name: &str| std::fs::read_to_string(context.path("out").join(name)).unwrap();
    let secrets = documents(&read("1-secrets.yaml"));
    let object = &documents(&read("2-cluster.yaml"))[0];
    assert_eq!(secrets[2]["metadata"]["name"], "prod-config");
    assert_eq!(
        object["spec"]["configFrom"]["secretKeyRef"]["name"],
        "prod-config"
    );
    assert!(!object.to_string().contains("hunter2"));
    let config = secrets[2]["data"]["cluster.yml"].as_str().unwrap();
    let config = String::from_utf8(BASE64_STANDARD.decode(config).unwrap()).unwrap();
    assert!(config.contains("hunter2"));
    for name in ["1-secrets.yaml", "2-cluster.yaml"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(context.path("out").join(name)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    }
    let files = context.files();
    let again = init(&context, &["--output", "out"]);
    assert_eq!(again.code, Some(1));
    assert!(context.files() == files, "nothing is overwritten");
}

/// What an operator does not have is refused, with the cure.
#[tokio::test(start_paused = true)]
async fn init_refuses_what_an_operator_cannot_do() {
    let (nodes, api) = (SimRemote::bare(&["n1"]), FakeApi::new(clock()));
    let cli = command_line(&nodes, &api);
    cli.converge(&Goal::Up(&intent())).await.unwrap();
    let context = folder(&saved(&cli));
    let with = |of: Value| {
        let mut config = cluster("a", "n1")["spec"]["config"].clone();
        config
            .as_object_mut()
            .unwrap()
            .extend(of.as_object().unwrap().clone());
        context.write("cluster.yml", &config.to_string());
    };
    context.write("other", &crate::cli_support::private_key());
    context.mode("other", 0o600);
    let mut told = String::new();
    let bastion =
        json!({"bastion_host": {"address": "10.0.0.9", "user": "core", "ssh_key_path": "other"}});
    for (config, args) in [
        (json!({"cluster_name": "A B"}), &[][..]),
        (bastion.clone(), &[]),
        (json!({}), &["--ssh-key", "missing"]),
    ] {
        with(config);
        let ran = init(&context, args);
        assert!(ran.stdout.is_empty());
        told.push_str(&ran.to_string());
        told.push('\n');
    }
    insta::assert_snapshot!(told);
    with(bastion);
    let ran = init(&context, &["--ssh-key", "other"]);
    assert_eq!(ran.code, Some(0), "{ran}");

    let empty = Context::with(&cluster_yml());
    let ran = init(&empty, &[]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("no cluster state found"), "{ran}");
}

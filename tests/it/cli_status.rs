//! `status`, `kubeconfig` and `cert info` as a user runs them: they read, whatever is down, and
//! write nothing but what they are asked for.

use std::{collections::BTreeSet, os::unix::fs::PermissionsExt};

use rke_operator::{
    converge::Goal,
    model::{NodeName, Role},
    state::{ClusterState, codec},
};
use serde_json::Value;

use crate::{
    cli_node::{SYSTEM, Site},
    cli_support::Context,
    fake::Said,
    joint_properties::{block_on, runner},
    sim::wish::Wish,
};

/// The state of a cluster of three control planes and two workers.
pub(crate) fn state() -> ClusterState {
    static STATE: std::sync::OnceLock<ClusterState> = std::sync::OnceLock::new();
    let make = || {
        let wish = Wish {
            masks: vec![3, 3, 0, 0],
            ..Wish::plain()
        };
        block_on(async {
            let runner = runner(5);
            runner.converge(&Goal::Up(&wish.intent())).await.unwrap();
            runner.memory.shell().saved.unwrap()
        })
    };
    // A thread of its own: tests that are themselves run by a runtime must not block it.
    let elsewhere = || std::thread::spawn(make).join().unwrap();
    STATE.get_or_init(elsewhere).clone()
}

pub(crate) fn keep(context: &Context, state: &ClusterState) {
    context.write("cluster.rke-operator.json", codec::encode(state).expose());
}

/// A node that answers and one that does not, and a state that has a third.
async fn site() -> Site {
    let site = Site::new().await;
    let config = std::fs::read_to_string(site.context.path("cluster.yml")).unwrap();
    let config = config.replace(
        "ssh_key_path",
        "  - {address: 127.0.0.2, port: 1, user: rke, hostname_override: n2, role: [worker]}\n\
         ssh_key_path",
    );
    site.context
        .write("cluster.yml", &format!("cluster_name: a\n{config}"));
    let mut state = state();
    let names = ["n1", "n2", "n3"].map(NodeName::from);
    state.inventory.retain(|name, _| names.contains(name));
    for entry in state.inventory.values_mut() {
        entry.roles = vec![Role::Worker];
        "127.0.0.1".clone_into(&mut entry.endpoint.address);
        entry.endpoint.port = 1;
        "~/.ssh/id_rsa".clone_into(&mut entry.key_source);
    }
    keep(&site.context, &state);
    site
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_reads_what_answers_names_what_does_not_and_writes_nothing() {
    let site = site().await;
    let before = site.state();
    site.run(&["plan"]).await;
    let of_plan: BTreeSet<String> = site.node.executed().into_iter().collect();
    let ran = site.run(&["status"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""), "{ran}");
    for word in [
        "cluster `a` cannot be examined",
        "├─ n2    -        unknown  -    -      unreachable\n",
        "unreachable",
        "cannot reach 2 nodes (n2, n3): connection refused",
        "unreachable, not in the config",
    ] {
        assert!(ran.stdout.contains(word), "it does not say {word:?}: {ran}");
    }
    assert!(!ran.stdout.contains('\x1b'), "colours in a pipe: {ran}");
    let json = site.run(&["status", "-o", "json"]).await;
    assert_eq!((json.code, json.stderr.as_str()), (Some(3), ""), "{json}");
    let status = crate::cli_json::checked("status", &json).remove(0);
    assert_eq!(status["cluster"]["health"], "unavailable");
    let reachable: Vec<&Value> = status["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| &node["reachable"])
        .collect();
    assert_eq!(reachable, [true, false, false]);
    // Not even a host key that it was told to take.
    site.context.write("home/.ssh/known_hosts", "");
    let taken = site.run(&["status", "--accept-new-host-keys"]).await;
    assert!(!taken.stdout.contains("SHA256"), "{taken}");
    let recorded = std::fs::read(site.context.path("home/.ssh/known_hosts")).unwrap();
    assert!(recorded.is_empty(), "status recorded a host key");
    // An unknown one is that node's matter.
    let unknown = site.run(&["status"]).await;
    assert_eq!(unknown.code, Some(3), "{unknown}");
    assert!(unknown.stdout.contains("SHA256:"), "{unknown}");
    site.trust();
    assert_eq!(site.state(), before, "something changed");
    let wrote = site
        .node
        .requests()
        .into_iter()
        .find(|asked| !matches!(asked.method.as_str(), "GET" | "HEAD"));
    assert_eq!(wrote, None);
    let scripts: BTreeSet<String> = site.node.executed().into_iter().collect();
    assert_eq!(scripts, of_plan, "a script that `plan` has not");
}

/// A job that watches the expiry of certificates learns from the exit code that some were not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_could_not_be_read_show_in_the_exit_code() {
    let site = site().await;
    for args in [
        &["cert", "info", "--nodes"][..],
        &["cert", "info", "--served"],
        &["cert", "info", "--nodes", "-o", "json"],
    ] {
        let ran = site.run(args).await;
        assert_eq!(ran.code, Some(3), "{args:?}: {ran}");
        assert!(ran.stderr.contains("cannot reach"), "{ran}");
        assert!(ran.stderr.contains("is sshd running"), "{ran}");
        assert!(ran.stdout.contains("etcd's CA"), "{ran}");
    }
    // Those of the state are all there.
    assert_eq!(site.run(&["cert", "info"]).await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_before_there_is_a_cluster_shows_what_up_would_make() {
    let site = Site::new().await;
    let ran = site.run(&["status"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""), "{ran}");
    assert!(ran.stdout.contains("was not created yet"), "{ran}");
    assert!(ran.stdout.contains("because it is new"), "{ran}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_a_status_at_once() {
    let site = Site::new().await;
    let slow = std::time::Duration::from_secs(60);
    site.node.faults(|faults| faults.slow = Some(slow));
    let (code, stderr) = crate::cli_node::interrupted(&site, &["status"]).await;
    assert_eq!(code, Some(130), "{stderr}");
    site.node.on_exec("@@hostname", |_| Said::out(SYSTEM));
}

#[test]
fn the_kubeconfig_is_printed_or_written_as_up_writes_it() {
    let context = Context::new();
    keep(&context, &state());
    let before = context.files();
    // There is no config at all: the state is enough.
    let printed = context.run(&["kubeconfig"]);
    assert_eq!(
        (printed.code, printed.stderr.as_str()),
        (Some(0), ""),
        "{printed}"
    );
    assert_eq!(context.files(), before, "something was written");
    for word in [
        "server: \"https://192.0.2.1:6443\"",
        "name: \"a-n2\"",
        "current-context: \"a\"",
        "client-key-data: ",
    ] {
        assert!(printed.stdout.contains(word), "{word}");
    }
    let written = context.run(&["kubeconfig", "--write"]);
    assert_eq!(
        (written.code, written.stdout.as_str()),
        (Some(0), ""),
        "{written}"
    );
    assert!(
        written.stderr.contains("kube_config_cluster.yml"),
        "{written}"
    );
    let path = context.path("kube_config_cluster.yml");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Where it led is kept, as `up` keeps it.
    let text = std::fs::read_to_string(&path).unwrap();
    let moved = text.replacen("https://192.0.2.1:6443", "https://192.0.2.3:6443", 1);
    std::fs::write(&path, moved).unwrap();
    let again = context.run(&["kubeconfig"]);
    let first = again.stdout.lines().find(|line| line.contains("server:"));
    assert_eq!(first.unwrap().trim(), "server: \"https://192.0.2.3:6443\"");
}

/// Another cluster's, or one to which contexts were added: the only copy of that may be there.
#[test]
fn what_else_is_in_the_kubeconfig_is_kept_before_it_is_replaced() {
    let context = Context::new();
    keep(&context, &state());
    let path = context.path("kube_config_cluster.yml");
    let copy = |number: u32| context.path(&format!("kube_config_cluster.yml.{number}"));
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    let write = || context.run(&["kubeconfig", "--write"]);

    let first = write();
    let ours = read(&path);
    write();
    assert!(!copy(1).exists(), "ours is written again: {first}");

    let others = [
        // Of another cluster.
        ours.replace(
            "certificate-authority-data: ",
            "certificate-authority-data: AA",
        ),
        // With a context and a user of another one.
        ours.replacen(
            "users:\n",
            "users:\n- name: me\n  user: {token: only-here}\n",
            1,
        ),
        ours.replacen(
            "contexts:\n",
            "contexts:\n- {name: b, context: {cluster: a, user: me}}\n",
            1,
        ),
        "my notes: [".to_owned(),
    ];
    for (number, other) in (1..).zip(&others) {
        assert_ne!(*other, ours);
        std::fs::write(&path, other).unwrap();
        let kept = write();
        let name = format!("kube_config_cluster.yml.{number}");
        assert!(kept.stderr.contains(&name), "{kept}");
        assert_eq!(read(&copy(number)), *other);
        let mode = std::fs::metadata(copy(number)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        assert!(!read(&path).contains("only-here"));
    }
    // One copy of the same is enough.
    std::fs::write(&path, &others[1]).unwrap();
    let kept = write();
    assert!(kept.stderr.contains("kube_config_cluster.yml.2"), "{kept}");
    assert!(!copy(5).exists());
}

/// The node is named, and nothing is said of etcd.
#[test]
fn a_node_that_cannot_be_reached_is_named_before_etcd_is_defragmented() {
    let context = Context::with(
        "cluster_name: a\nnodes: [{address: 127.0.0.1, port: 1, user: rke, hostname_override: n1}]\n\
         network: {plugin: flannel}\ningress: {provider: none}\n\
         services: {etcd: {snapshot: false}}\n",
    );
    let mut state = state();
    state
        .inventory
        .retain(|name, _| *name == NodeName::from("n1"));
    for entry in state.inventory.values_mut() {
        entry.roles = vec![Role::ControlPlane, Role::Etcd, Role::Worker];
    }
    keep(&context, &state);
    let ran = context.run(&["etcd", "defrag"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran}");
    assert!(
        ran.stderr.contains("error: cannot reach node `n1`"),
        "{ran}"
    );
    assert!(ran.stderr.contains("hint: "), "{ran}");
    assert!(!ran.stderr.contains("does not serve"), "{ran}");
}

#[test]
fn without_a_state_there_is_no_kubeconfig_and_no_certificate() {
    for command in [
        &["kubeconfig"][..],
        &["cert", "info"],
        &["cert", "info", "--nodes"],
    ] {
        let ran = Context::new().run(command);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran}");
        assert!(ran.stderr.contains("no cluster state found"), "{ran}");
        assert!(ran.stderr.contains("hint: "), "{ran}");
    }
}

#[test]
fn certificates_are_listed_without_a_node_and_without_a_key() {
    let context = Context::new();
    keep(&context, &state());
    context.run(&["kubeconfig", "--write"]);
    let text = context.run(&["cert", "info"]);
    assert_eq!((text.code, text.stderr.as_str()), (Some(0), ""), "{text}");
    for word in ["etcd's CA", "kube-admin", "O=system:masters", "--nodes"] {
        assert!(
            text.stdout.contains(word),
            "it does not say {word:?}: {text}"
        );
    }
    let json = context.run(&["cert", "info", "-o", "json"]);
    let all = crate::cli_json::checked("cert info", &json).remove(0);
    assert_eq!(all.as_array().unwrap().len(), 5);
    assert_eq!(all[4]["name"], "kube-admin");
    assert_eq!(all[4]["renewedByNextUp"], false);
    for ran in [&text, &json] {
        assert!(!ran.stdout.contains("PRIVATE"), "{ran}");
        assert!(!ran.stdout.contains("BEGIN"), "{ran}");
    }
}

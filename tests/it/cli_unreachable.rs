//! Nodes that do not answer, as a user reads about them: a cause once, with all nodes that it concerns, no number of the
//! system's, and the cure.

use crate::{
    cli_status::{keep, state},
    cli_support::Context,
};

/// Three control planes with etcd and two workers; nothing listens at any of their addresses.
const FIVE: &str = "\
nodes:
- {address: 127.0.0.1, port: 1, user: rke, role: [controlplane, etcd]}
- {address: 127.0.0.2, port: 1, user: rke, role: [controlplane, etcd]}
- {address: 127.0.0.3, port: 1, user: rke, role: [controlplane, etcd]}
- {address: 127.0.0.4, port: 1, user: rke, role: [worker]}
- {address: 127.0.0.5, port: 1, user: rke, role: [worker]}
network: {plugin: flannel}
ingress: {provider: none}
services: {etcd: {snapshot: false}}
";

#[test]
fn up_and_plan_name_the_cause_once_and_only_nodes_that_are_needed() {
    let context = Context::with(FIVE);
    for command in [&["plan"][..], &["up", "--yes"]] {
        let ran = context.run(command);
        assert_eq!(ran.code, Some(2), "{ran}");
        insta::allow_duplicates! {
            insta::assert_snapshot!(ran.stderr, @"
            error: nothing is changed: no node can be used: cannot reach 5 nodes (127.0.0.1 … 127.0.0.5): connection refused

            hint: nothing listens on port 1 there: is sshd running, and on that port?
            ");
        }
    }
}

#[test]
fn a_single_node_is_named_with_its_cause() {
    let one: Vec<&str> = FIVE.lines().collect();
    let context = Context::with(
        &[
            one[0],
            "- {address: 127.0.0.1, port: 1, user: rke, role: [controlplane, etcd, worker]}",
            one[6],
            one[7],
            one[8],
        ]
        .join("\n"),
    );
    let ran = context.run(&["plan"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    insta::assert_snapshot!(ran.stderr, @"
    error: cannot reach node `127.0.0.1` (127.0.0.1, port 1): connection refused

    hint: nothing listens on port 1 there: is sshd running, and on that port?
    ");
    let ran = context.run(&["doctor"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    insta::assert_snapshot!(ran.stdout, @"
    `cluster.yml` is valid: 1 node, Kubernetes v1.34.4

    NODE       SSH  CPU  MEMORY  DISK  DOCKER  CONTAINERD  SYSTEM
    127.0.0.1  -    -    -       -     -       -           cannot be used

    prevents `up`
      - nothing is changed: no node can be used

    cannot be used
      - cannot reach node `127.0.0.1` (127.0.0.1, port 1): connection refused
        hint: nothing listens on port 1 there: is sshd running, and on that port?

    1 problem prevents `up`; 1 node cannot be used
    ");
}

#[test]
fn doctor_and_status_give_a_reason_once() {
    let context = Context::with(FIVE);
    let ran = context.run(&["doctor"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(2), ""), "{ran}");
    insta::assert_snapshot!(ran.stdout, @"
    `cluster.yml` is valid: 5 nodes, Kubernetes v1.34.4

    NODE       SSH  CPU  MEMORY  DISK  DOCKER  CONTAINERD  SYSTEM
    127.0.0.1  -    -    -       -     -       -           cannot be used
    127.0.0.2  -    -    -       -     -       -           cannot be used
    127.0.0.3  -    -    -       -     -       -           cannot be used
    127.0.0.4  -    -    -       -     -       -           cannot be used
    127.0.0.5  -    -    -       -     -       -           cannot be used

    prevents `up`
      - nothing is changed: no node can be used

    cannot be used
      - cannot reach 5 nodes (127.0.0.1 … 127.0.0.5): connection refused
        hint: nothing listens on port 1 there: is sshd running, and on that port?

    1 problem prevents `up`; 5 nodes cannot be used
    ");
    let ran = context.run(&["status"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""), "{ran}");
    insta::assert_snapshot!(ran.stdout, @"
    cluster `local` has no state: it was not created yet, or its state is lost
      Kubernetes    unknown, because there is no state; the config wants v1.34.4
      config        `up` would fail, see below

    control planes  API      VERSION  NODE  AGE  CERTS
    ├─ 127.0.0.1    unknown  -        -     -    -      unreachable, new
    ├─ 127.0.0.2    unknown  -        -     -    -      unreachable, new
    └─ 127.0.0.3    unknown  -        -     -    -      unreachable, new

    workers         VERSION  NODE  AGE  CERTS
    ├─ 127.0.0.4    -        -     -    -      unreachable, new
    └─ 127.0.0.5    -        -     -    -      unreachable, new

    problems
      - cannot reach 5 nodes (127.0.0.1 … 127.0.0.5): connection refused
      hint: nothing listens on port 1 there: is sshd running, and on that port?

    `up` would fail, and change nothing
      nothing is changed: no node can be used
    ");
}

#[test]
fn a_bastion_host_that_is_down_is_one_line() {
    let context = Context::with(&format!(
        "{FIVE}bastion_host: {{address: 127.0.0.9, port: 1, user: rke}}\n"
    ));
    let ran = context.run(&["plan"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    insta::assert_snapshot!(ran.stderr, @"
    error: nothing is changed: no node can be used: cannot reach 5 nodes (127.0.0.1 … 127.0.0.5): cannot reach the bastion host `127.0.0.9` (port 1): connection refused

    hint: nothing listens on port 1 there: is sshd running, and on that port?
    ");
}

/// C11: it was exit 1, with the advice to copy a file onto these nodes.
#[test]
fn a_restore_that_reaches_no_node_says_so() {
    let context = Context::with(FIVE);
    let ran = context.run(&["etcd", "snapshot-restore", "--name", "x"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    insta::assert_snapshot!(ran.stderr, @"
    error: cannot look for the snapshot: no node with etcd can be used:
      - cannot reach 3 nodes (127.0.0.1 … 127.0.0.3): connection refused

    hint: nothing listens on port 1 there: is sshd running, and on that port?
    ");
}

/// C19: every command of a CI job printed each warning about the config with its snippet.
#[test]
fn warnings_about_the_config_are_counted_by_commands_that_are_about_something_else() {
    let context = Context::with(&FIVE.replace("user: rke", "user: rke, machine_name: m"));
    let stderr = |args: &[&str]| context.run(args).stderr;
    let validate = stderr(&["validate"]);
    assert!(validate.contains("warning: "), "{validate}");
    let counted = "`rke-operator validate` shows them";
    let status = stderr(&["status"]);
    assert!(status.contains(counted), "{status}");
    assert!(!status.contains("warning: "), "{status}");
    assert_eq!(stderr(&["status", "--quiet"]), "");
    let remove = stderr(&["remove", "--force"]);
    for word in [counted, "warning: "] {
        assert!(!remove.contains(word), "{remove}");
    }
}

/// An artifact of a CI job has the mode 0644; ssh refuses such a key.
#[test]
fn a_state_that_others_may_read_is_a_warning() {
    let context = Context::with(FIVE);
    let state = "cluster.rke-operator.json";
    context.write(state, "{}");
    for (mode, warns) in [(0o600, false), (0o644, true), (0o660, true), (0o604, true)] {
        context.mode(state, mode);
        let ran = context.run(&["plan"]);
        assert_eq!(
            ran.stderr.contains("`chmod 600 cluster.rke-operator.json`"),
            warns,
            "{ran}"
        );
    }
}

/// A cluster that has a state, and none of whose nodes answers.
fn cluster() -> Context {
    let nodes = (1..=5).map(|node| {
        let roles = if node <= 3 {
            "[controlplane, etcd]"
        } else {
            "[worker]"
        };
        format!("- {{address: 127.0.0.{node}, port: 1, user: rke, hostname_override: n{node}, role: {roles}}}\n")
    });
    let nodes = nodes.collect::<Vec<_>>().concat();
    let (_, rest) = FIVE.split_once("network:").unwrap();
    let context = Context::with(&format!("cluster_name: a\nnodes:\n{nodes}network:{rest}"));
    let mut state = state();
    for (at, entry) in state.inventory.values_mut().enumerate() {
        entry.endpoint.address = format!("127.0.0.{}", at + 1);
        entry.endpoint.port = 1;
        "~/.ssh/id_rsa".clone_into(&mut entry.key_source);
    }
    keep(&context, &state);
    context
}

/// Whatever a command is about: where no node answers it names them, the reason and the cure.
#[test]
fn every_command_that_no_node_answers_names_nodes_cause_and_cure() {
    let context = cluster();
    let mut wrong = Vec::new();
    for command in [
        &["status"][..],
        &["doctor"],
        &["plan"],
        &["up", "--yes"],
        &["remove", "--force"],
        &["etcd", "members"],
        &["etcd", "members", "-o", "json"],
        &["etcd", "defrag"],
        &["etcd", "recover", "--yes"],
        &["etcd", "snapshot-save"],
        &["etcd", "snapshot-list"],
        &["etcd", "snapshot-restore", "--name", "a", "--yes"],
        &["cert", "info", "--nodes"],
        &["cert", "rotate", "--yes"],
        &["node", "drain", "n4"],
        &["node", "uncordon", "n4"],
        &["node", "reboot", "n4", "--yes"],
        &["node", "reset", "n4", "--yes"],
    ] {
        let ran = context.run(command);
        let text = ran.to_string();
        let says = |word: &str| text.contains(word);
        let all = says("connection refused") && says("is sshd running");
        if !all || !["n1", "n3", "n4"].into_iter().any(says) || ran.code == Some(0) {
            wrong.push(format!("{command:?}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let ran = context.run(&["etcd", "members"]);
    assert_eq!(ran.code, Some(3), "{ran}");
    let cause = "\nproblems\n  - cannot reach 3 nodes (n1 … n3): connection refused\n";
    assert!(ran.stdout.contains(cause), "{ran}");
}

/// What a removal cannot clean is not "nothing to do".
#[test]
fn a_plan_of_a_removal_that_reaches_no_node_says_so() {
    let ran = Context::with(FIVE).run(&["plan", "--remove"]);
    assert_eq!(ran.code, Some(3), "{ran}");
    insta::assert_snapshot!(ran.stdout, @"
    notes
      127.0.0.1 … 127.0.0.5: does not answer: connection refused

    Plan: nothing can be done now; see the notes
    ");
}

#[test]
fn a_node_that_there_is_not_is_answered_with_those_that_there_are() {
    let context = cluster();
    for (command, names) in [
        (
            &["node", "reset", "n9"][..],
            "the nodes in the config are `n1`, `n2`",
        ),
        (
            &["images", "save", "--from-node", "n9", "-o", "a"],
            "the nodes in the config are `n1`",
        ),
        (
            &["node", "drain", "n9"],
            "the nodes of the cluster are `n1`",
        ),
        (
            &["node", "uncordon", "n9"],
            "the nodes of the cluster are `n1`",
        ),
        (
            &["plan", "--lose", "n9"],
            "the nodes of the cluster are `n1`",
        ),
    ] {
        let ran = context.run(command);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains("has no node `n9`"), "{ran}");
        assert!(ran.stderr.contains(names), "{ran}");
        // What has an annotation is of no use here.
        assert!(!ran.stderr.contains("of a `Cluster`"), "{ran}");
    }
    let ran = Context::with(FIVE).run(&["plan", "--lose", "n9"]);
    assert!(ran.stderr.contains("the cluster has no nodes yet"), "{ran}");
}

/// One rule for the warnings about a config: not before a refusal that has nothing to do with it, each where the command
/// is about the config, else how many there are.
#[test]
fn warnings_come_after_refusals_and_each_command_shows_as_many_as_others() {
    let context = Context::with(&FIVE.replace("user: rke", "user: rke, machine_name: m"));
    for command in [
        &["images", "list"][..],
        &["images", "save", "-o", "no/such/folder/a"],
    ] {
        let ran = context.run(command);
        assert!(
            ran.stderr.contains("`rke-operator validate` shows them"),
            "{ran}"
        );
        assert!(!ran.stderr.contains("machine_name"), "{ran}");
    }
    context.write("cluster.rkestate", "{}");
    for command in [&["up", "--yes"][..], &["plan"], &["doctor"]] {
        let ran = context.run(command);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(
            ran.stderr.starts_with("error: `cluster.rkestate` belongs"),
            "{ran}"
        );
        assert!(!ran.stderr.contains("machine_name"), "{ran}");
    }
}

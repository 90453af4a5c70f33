//! Nodes that do not answer, as a user reads about them: a cause once, with all nodes that it concerns, no number of the
//! system's, and the cure.

use crate::cli_support::Context;

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
            insta::assert_snapshot!(ran.stderr, @"");
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
    insta::assert_snapshot!(ran.stderr, @"");
    let ran = context.run(&["doctor"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    insta::assert_snapshot!(ran.stdout, @"");
}

#[test]
fn doctor_and_status_give_a_reason_once() {
    let context = Context::with(FIVE);
    let ran = context.run(&["doctor"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(2), ""), "{ran}");
    insta::assert_snapshot!(ran.stdout, @"");
    let ran = context.run(&["status"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""), "{ran}");
    insta::assert_snapshot!(ran.stdout, @"");
}

#[test]
fn a_bastion_host_that_is_down_is_one_line() {
    let context = Context::with(&format!(
        "{FIVE}bastion_host: {{address: 127.0.0.9, port: 1, user: rke}}\n"
    ));
    let ran = context.run(&["plan"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    insta::assert_snapshot!(ran.stderr, @"");
}

/// C11: it was exit 1, with the advice to copy a file onto these nodes.
#[test]
fn a_restore_that_reaches_no_node_says_so() {
    let context = Context::with(FIVE);
    let ran = context.run(&["etcd", "snapshot-restore", "--name", "x"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    insta::assert_snapshot!(ran.stderr, @"");
}

/// C19: every command of a CI job printed each warning about the config with its snippet.
#[test]
fn warnings_about_the_config_are_counted_by_commands_that_are_about_something_else() {
    let context = Context::with(&FIVE.replace("ingress: {provider: none}\n", ""));
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

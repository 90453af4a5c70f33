//! The command line without any node: usage, versions, definitions, the reference pages.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    thread,
};

use insta::assert_snapshot;

use crate::cli_support::{Context, Ran};

#[test]
fn a_wrong_flag_is_the_users_turn() {
    assert_snapshot!(Context::new().run(&["up", "--confg", "x.yml"]), @r"
    exit code 1
    ----- stderr -----
    error: unexpected argument '--confg' found

      tip: a similar argument exists: '--config'

    Usage: rke-operator up --config <FILE>

    For more information, try '--help'.
    ");
}

/// D3, D4: what people type who know other tools.
#[test]
fn flags_of_other_tools_have_an_answer() {
    let context = Context::new();
    for (args, hint) in [
        (&["up", "--dry-run"][..], "`rke-operator plan` shows"),
        (&["remove", "--dry-run"], "`rke-operator plan --remove`"),
        (&["up", "-f", "a.yml"], "`--config FILE`"),
        (&["-c", "a.yml", "plan"], "`--config FILE`"),
        (&["etcd", "members", "--kubeconfig", "k"], "over SSH"),
    ] {
        let ran = context.run(args);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains(hint), "{ran}");
    }
    for confirmed in ["-y", "--yes", "--force"] {
        let ran = context.run(&["remove", confirmed]);
        assert!(
            ran.stderr.starts_with("error: cannot read the config"),
            "{ran}"
        );
    }
}

#[test]
fn the_version_is_said_as_rke_said_it() {
    let ran = Context::new().run(&["--version"]);
    assert_eq!(ran.code, Some(0));
    let ours = env!("CARGO_PKG_VERSION");
    assert_eq!(ran.stdout, format!("rke-operator version v{ours}\n"));
}

#[test]
fn version_says_ours_without_a_cluster() {
    let ran = Context::new().run(&["version", "-o", "json"]);
    assert_eq!(ran.code, Some(0));
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let ours = format!("v{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(json, serde_json::json!({ "rkeOperator": ours }));
}

#[test]
fn version_does_not_hang_on_a_cluster_that_is_gone() {
    let context = Context::new();
    // Nobody listens on port 1: refused at once.
    context.write("kube_config_cluster.yml", DEAD);
    let ran = context.run(&["version"]);
    assert_eq!(ran.code, Some(0));
    assert!(
        ran.stderr
            .starts_with("warning: the cluster of `kube_config_cluster.yml`"),
        "{ran}"
    );
}

/// kubectl goes the same way.
#[test]
fn an_api_server_is_reached_through_the_proxy_of_the_environment() {
    let context = Context::new();
    let elsewhere = DEAD.replace("127.0.0.1:1", "kubernetes.invalid:6443");
    context.write("kube_config_cluster.yml", &elsewhere);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let through = |variables: &[(&str, &str)]| {
        let mut command = context.command(&["version"]);
        command
            .env("HTTPS_PROXY", &proxy)
            .envs(variables.iter().copied());
        Ran::from(&context, command.output().unwrap())
    };
    let asked = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        (&stream)
            .write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            .unwrap();
        line
    });
    // It goes around the proxy, and there is no such host.
    let around = through(&[("NO_PROXY", ".invalid")]);
    assert!(!asked.is_finished(), "{around}");
    assert_eq!(around.code, Some(0));
    let ran = through(&[]);
    assert_eq!(ran.code, Some(0));
    assert_eq!(
        asked.join().unwrap(),
        "CONNECT kubernetes.invalid:6443 HTTP/1.1\r\n"
    );
}

const DEAD: &str = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {token: x}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
";

#[test]
fn definitions_go_to_stdout_and_nothing_else_does() {
    let ran = Context::new().run(&["crd"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        ran.stdout.matches("kind: CustomResourceDefinition").count(),
        3
    );
}

#[test]
fn a_config_that_is_not_there_says_how_to_name_one() {
    assert_snapshot!(Context::new().run(&["plan"]), @r"
    exit code 1
    ----- stderr -----
    error: cannot read the config `cluster.yml`
      caused by: no such file or directory

    hint: `rke-operator config` creates one
    hint: name another one with `--config FILE` or `RKE_CONFIG`
    ");
}

#[test]
fn the_config_can_be_named_in_the_environment() {
    let context = Context::new();
    let output = context
        .command(&["plan"])
        .env("RKE_CONFIG", "prod.yml")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.starts_with("error: cannot read the config `prod.yml`"),
        "{stderr}"
    );
}

#[test]
fn the_reference_pages_are_current() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference");
    for (name, text) in rke_operator::cli::reference::pages() {
        let there = std::fs::read(dir.join(name)).unwrap_or_default();
        assert_eq!(
            String::from_utf8_lossy(&there),
            text,
            "docs/reference/{name} is stale: run `make docs`"
        );
    }
}

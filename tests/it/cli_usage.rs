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
        (&["up", "--dry-run=client"], "`rke-operator plan` shows"),
        (
            &["etcd", "defrag", "--dry-run"],
            "`rke-operator plan` shows",
        ),
        (&["up", "--auto-approve"], "`--yes` skips"),
        (&["up", "-auto-approve"], "`--yes` skips"),
        (&["cert", "rotate", "--force"], "`--yes` skips"),
        (
            &["up", "--kubernetes-version", "v1.34.4"],
            "`kubernetes_version`",
        ),
        (&["up", "--version", "v1.34.4"], "`kubernetes_version`"),
        (&["status", "--json"], "`--output json`"),
        (&["ssh", "n1"], "log in to a node with `ssh`"),
        (&["logs", "etcd"], "`docker logs NAME`"),
        (&["exec"], "`rke-operator kubeconfig > FILE`"),
        (&["get", "nodes"], "`rke-operator status`"),
        (
            &["kubectl", "get", "nodes"],
            "`rke-operator kubeconfig > FILE`",
        ),
        (&["up", "cluster.yml"], "`--config cluster.yml`"),
        (&["plan", "a b.YAML"], "`--config 'a b.YAML'`"),
        (&["images", "list", "prod.yml"], "`--config prod.yml`"),
        (&["config", "cluster.yml"], "`--name cluster.yml`"),
        (&["prod.yml"], "`rke-operator up --config prod.yml`"),
        (&["etcd", "snapshot-restore", "one"], "`--name one`"),
        (&["etcd", "verify", "one"], "`--name one`"),
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

/// Commands that run in containers, and aliases that the help does not show.
#[test]
fn no_suggestion_names_what_the_help_does_not_show() {
    let context = Context::new();
    for args in [
        &["snap"][..],
        &["snapshot-tak"],
        &["snapshot-agen"],
        &["complet"],
        &["referenc"],
        &["up", "--tracee"],
        &["up", "--bucket", "x"],
        &["--settings", "x"],
        &["etcd", "snapshot-restore", "--use-local-stat"],
    ] {
        let ran = context.run(args);
        assert_eq!(ran.code, Some(1), "{ran}");
        let tips = ran.stderr.lines().filter(|line| line.contains("tip:"));
        let tips: String = tips.collect();
        for hidden in [
            "snapshot-agent",
            "snapshot-take",
            "snapshot-fetch",
            "snapshot-state",
            "'complete'",
            "'reference'",
            "--trace",
            "--use-local-state",
        ] {
            assert!(!tips.contains(hidden), "{args:?}: {ran}");
        }
    }
    let ran = context.run(&["stat"]);
    assert!(ran.stderr.contains("'status'"), "{ran}");
}

/// Each kind of proxy with a password, in each place that names one.
#[test]
fn no_output_has_the_password_of_a_proxy() {
    let elsewhere = DEAD.replace("127.0.0.1:1", "kubernetes.invalid:6443");
    for proxy in [
        "socks5://me:sekrit@proxy.invalid:1080",
        "socks4://me:sekrit@proxy.invalid:1080",
        "garbage://me:sekrit@proxy.invalid",
        "http://me:sekrit@proxy.invalid:3128",
        "https://me:sekrit@proxy.invalid",
        "me:sekrit@proxy.invalid:3128",
        "http://me:a sekrit@proxy.invalid",
        "http://me:a/sekrit@proxy.invalid",
        "http://me:a@sekrit@proxy.invalid",
        "http://me:12/sekrit@proxy.invalid",
        "http://me:sekrit@proxy.invalid:port",
    ] {
        let context = Context::with(
            "nodes: [{address: 10.0.0.1, user: core, role: [controlplane, etcd, worker]}]\n\
             addons_include: [https://manifests.invalid/a.yml]\n",
        );
        context.write("kc.yml", &elsewhere);
        let own = format!("server: 'https://kubernetes.invalid:6443', proxy-url: '{proxy}'");
        let named = elsewhere.replace("server: 'https://kubernetes.invalid:6443'", &own);
        context.write("named.yml", &named);
        for args in [
            &["status", "--all", "--kubeconfig", "kc.yml"][..],
            &["status", "--all", "--kubeconfig", "named.yml"],
            &["plan", "--debug"],
            &["up", "--yes"],
        ] {
            for variable in ["HTTPS_PROXY", "https_proxy", "NO_PROXY"] {
                let mut command = context.command(args);
                command.env(variable, proxy);
                let ran = Ran::from(&context, command.output().unwrap());
                assert!(!ran.to_string().contains("sekrit"), "{args:?}: {ran}");
                assert_ne!(ran.code, Some(0), "{args:?}: {ran}");
            }
        }
        for (file, bytes) in all_below(&context.path("home")) {
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("sekrit"), "{}: {text}", file.display());
        }
    }
}

fn all_below(folder: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(all_below(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            files.push((path, bytes));
        }
    }
    files
}

#[test]
fn a_proxy_that_cannot_be_used_is_an_error_that_names_its_variable() {
    let context = Context::new();
    let elsewhere = DEAD.replace("127.0.0.1:1", "kubernetes.invalid:6443");
    context.write("kc.yml", &elsewhere);
    let mut command = context.command(&["status", "--all", "--kubeconfig", "kc.yml"]);
    command.env("HTTPS_PROXY", "socks5://me:sekrit@proxy.invalid");
    let ran = Ran::from(&context, command.output().unwrap());
    assert_snapshot!(ran, @r"
    exit code 1
    ----- stderr -----
    error: cannot use the proxy on the way to the API server
      caused by: `HTTPS_PROXY` names a SOCKS proxy with a user or a password, which is not supported here

    hint: `http://`, `https://`, and `socks5://` without a login are supported
    hint: `NO_PROXY=HOST` reaches that host without the proxy
    ");
}

/// As kubectl: the proxy resolves the name.
#[test]
fn an_api_server_is_reached_through_a_socks_proxy() {
    use std::io::Read as _;
    let context = Context::new();
    let elsewhere = DEAD.replace("127.0.0.1:1", "kubernetes.invalid:6443");
    context.write("kube_config_cluster.yml", &elsewhere);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("socks5h://{}", listener.local_addr().unwrap());
    let asked = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut greeting = [0; 3];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&[5, 0]).unwrap();
        let mut request = [0; 64];
        let length = stream.read(&mut request).unwrap();
        // Refused by its rules.
        stream.write_all(&[5, 2, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        request[..length].to_vec()
    });
    let mut command = context.command(&["version"]);
    command.env("HTTPS_PROXY", &proxy);
    let ran = Ran::from(&context, command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran}");
    let request = asked.join().unwrap();
    let name = b"kubernetes.invalid";
    assert_eq!(request[..5], [5, 1, 0, 3, 18], "{request:?}");
    assert_eq!(&request[5..23], name, "{request:?}");
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

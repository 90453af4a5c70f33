//! Every command line of RKE 1.4 to 1.8 is taken, or refused with what to type instead; so are words of other tools.

use std::ffi::OsString;

use insta::assert_snapshot;
use rke_operator::cli::usage::Usage;

use crate::cli_support::Context;

const LINES: &str = include_str!("../fixtures/rke/commands.txt");

fn read(line: &str) -> Usage {
    let words = ["rke-operator"].into_iter().chain(line.split_whitespace());
    Usage::read(words.map(OsString::from).collect(), |_| false)
}

#[test]
fn every_command_line_of_rke_is_answered() {
    let lines = LINES.lines().filter(|line| !line.starts_with('#'));
    let mut wrong = Vec::new();
    let mut seen = 0;
    for line in lines {
        seen += 1;
        let (answer, line) = line.split_once(' ').unwrap();
        let is_so = match (answer, read(line)) {
            ("taken", Usage::Known { warnings, .. }) => warnings.is_empty(),
            ("no-effect", Usage::Known { warnings, .. }) => warnings.len() == 1,
            ("refused", Usage::Foreign { .. }) => true,
            (_, _) => false,
        };
        if !is_so {
            wrong.push(format!("{answer}: {line}: {:?}", read(line)));
        }
    }
    assert!(seen > 60, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_refused_says_what_to_type() {
    assert_snapshot!(Context::new().run(&["up", "--dind"]), @r"
    exit code 1
    ----- stderr -----
    error: `rke-operator up` has no flag `--dind`

    hint: rke-operator sets up machines that run systemd and Docker; kind and k3d run a cluster in containers on one machine
    ");
    assert_snapshot!(Context::new().run(&["destroy"]), @r"
    exit code 1
    ----- stderr -----
    error: unknown command `destroy`

    hint: `rke-operator remove` removes the cluster and restores its nodes; `rke-operator plan --remove` previews the removal
    ");
}

#[test]
fn what_has_no_effect_is_said() {
    let context = Context::new();
    let mut command = context.command(&["config", "-l", "--ignore-docker-version"]);
    command.env("RANCHER_METADATA_URL", "data.json");
    let ran = command.output().unwrap();
    assert!(ran.status.success());
    assert_snapshot!(String::from_utf8_lossy(&ran.stderr), @r"
    warning: `--ignore-docker-version` has no effect: rke-operator supports Docker 20.10 and all later versions
    warning: `RANCHER_METADATA_URL` has no effect: rke-operator contains the list of Kubernetes releases: `rke-operator config --list-version --all` prints it
    ");
}

#[test]
fn shells_complete_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = Context::new().run(&["completion", shell]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        for word in ["snapshot-restore", "accept-new-host-keys", "complete -- "] {
            assert!(ran.stdout.contains(word), "{shell}: {word}");
        }
        for hidden in [
            "-a \"snapshot-agent\"",
            "'snapshot-agent:",
            "use-local-state[",
        ] {
            let offers = |line: &&str| !line.starts_with('#') && line.contains(hidden);
            assert_eq!(ran.stdout.lines().find(offers), None, "{shell}: {hidden}");
        }
    }
}

/// In a real bash, as its completion calls the function of the script.
#[test]
fn bash_completes_the_names_of_nodes_and_keys() {
    const SCRIPT: &str = r#"
source <(rke-operator completion bash)
for given in "$@"; do
    COMP_LINE=$given COMP_POINT=${#given}
    # Bash breaks words at blanks, and at these two.
    read -ra COMP_WORDS <<<"$(sed 's/[=:]/ & /g' <<<"$given")"
    case $given in *[[:space:]]) COMP_WORDS+=("") ;; esac
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    case ${COMP_WORDS[COMP_CWORD]} in = | :) part= ;; *) part=${COMP_WORDS[COMP_CWORD]} ;; esac
    _rke__operator_names rke-operator "$part" "${COMP_WORDS[COMP_CWORD - 1]}"
    echo "$given| [${COMPREPLY[*]}]"
done
"#;
    let context = Context::with(
        "nodes:\n- {address: 10.0.0.1, hostname_override: n1}\n- {address: 10.0.0.2, hostname_override: n2}\n- {address: 10.0.0.3}\n",
    );
    context.write("other.yml", "nodes: [{address: other.example}]\n");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_rke-operator"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let lines = [
        "rke-operator up --lose ",
        "rke-operator up --lose n",
        "rke-operator up --lose=n",
        "rke-operator up --lose=",
        "rke-operator up --lose n1,",
        "rke-operator node reboot n1 ",
        "rke-operator node reset --config other.yml ",
        "rke-operator images save --from-node 10.",
        "rke-operator config --explain cluster_n",
        "rke-operator config --explain nodes.ad",
        "rke-operator etcd snapshot-r",
        "rke-operator node reb",
        "rke-operator snap",
    ];
    let ran = std::process::Command::new("bash")
        .args(["-c", SCRIPT, "bash"])
        .args(lines)
        .current_dir(context.path(""))
        .env_clear()
        .env("PATH", path)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "");
    assert_snapshot!(String::from_utf8_lossy(&ran.stdout), @r"
    rke-operator up --lose | [10.0.0.3 n1 n2]
    rke-operator up --lose n| [n1 n2]
    rke-operator up --lose=n| [n1 n2]
    rke-operator up --lose=| [10.0.0.3 n1 n2]
    rke-operator up --lose n1,| [n1,10.0.0.3 n1,n2]
    rke-operator node reboot n1 | [10.0.0.3 n2]
    rke-operator node reset --config other.yml | [other.example]
    rke-operator images save --from-node 10.| [10.0.0.3]
    rke-operator config --explain cluster_n| [cluster_name]
    rke-operator config --explain nodes.ad| [nodes.address]
    rke-operator etcd snapshot-r| [snapshot-restore]
    rke-operator node reb| [reboot]
    rke-operator snap| []
    ");
}

#[test]
fn every_command_has_a_manual_page() {
    let context = Context::new();
    let ran = context.run(&["man", "pages"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    for (page, word) in [
        ("rke-operator.1", "rke\\-operator"),
        ("rke-operator-etcd-snapshot-restore.1", "\\-\\-name"),
        ("rke-operator-doctor.1", "no\\-write"),
    ] {
        let text = std::fs::read_to_string(context.path("pages").join(page)).expect(page);
        assert!(text.contains(word), "{page}: {text}");
    }
}

/// As the key of the config.
#[test]
fn the_agent_is_used_for_a_flag() {
    let context = Context::with(
        "nodes:\n  - {address: 10.0.0.1, user: core, role: [controlplane, etcd, worker]}\nssh_agent_auth: false\n",
    );
    let without = context.run(&["validate"]);
    assert!(!without.stderr.contains("SSH agent"), "{}", without.stderr);
    let ran = context.run(&["validate", "--ssh-agent-auth"]);
    assert!(
        ran.stderr.contains(
            "warning: there is no SSH agent, which the command line asks for: key files are used\n"
        ),
        "{}",
        ran.stderr
    );
    // It is the flag that asked for it, not the file.
    assert!(
        !ran.stderr.contains("ssh_agent_auth: false"),
        "{}",
        ran.stderr
    );
}

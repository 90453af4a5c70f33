//! What stands around a config: `validate` and `config`, which contact no node, and the files of RKE
//! beside it, which nothing touches.

use crate::cli_support::{Context, Ran};

const GOOD: &str = "\
nodes: [{address: 192.0.2.10, user: ubuntu}]
network: {plugin: flannel}
ingress: {provider: none}
services: {etcd: {snapshot: false}}
";

#[test]
fn validate_says_what_the_config_is() {
    let context = Context::with(GOOD);
    let before = context.files();
    insta::assert_snapshot!(context.run(&["validate"]), @"
    exit code 0
    ----- stdout -----
    `cluster.yml` is valid: 1 node, Kubernetes v1.34.4
    ");
    let bucket = GOOD.replace("{snapshot: false}", "{backup_config: {interval_hours: 6, s3backupconfig: {bucket_name: b, endpoint: e, access_key: me, secret_key: hunter2}}}");
    context.write("cluster.yml", &bucket);
    let ran = context.run(&["validate"]);
    assert!(!ran.stderr.contains("hunter2"), "{ran}");
    insta::assert_snapshot!(ran, @"
    exit code 0
    ----- stdout -----
    `cluster.yml` is valid: 1 node, Kubernetes v1.34.4
    ----- stderr -----
    warning: `services.etcd.snapshot`: recurring snapshots of etcd are not set up: nodes cannot run this rke-operator, because it is not linked statically
      = note: nodes that already take snapshots continue
      = help: use a program that `make dist` built, or the operator; to do without recurring snapshots, set `snapshot: false` under `services.etcd`
    ");
    let ran = context.run(&["validate", "-o", "json"]);
    assert_eq!(
        ran.stderr.matches("not linked statically").count(),
        1,
        "{ran}"
    );
    let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let warnings = told["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{ran}");
    assert_eq!(warnings[0]["path"], "services.etcd.snapshot", "{ran}");
    context.write("cluster.yml", GOOD);
    assert_eq!(context.files(), before);
}

#[test]
fn programs_read_problems_as_json() {
    let context = Context::with(&GOOD.replace("plugin: flannel", "plugni: hunter2"));
    for command in [
        &["validate", "-o", "json"][..],
        &["plan", "-o", "json"],
        &["status", "-o", "json"],
        &["up", "-o", "json"],
    ] {
        let ran = context.run(command);
        assert_eq!(ran.code, Some(1), "{ran}");
        let line: serde_json::Value = serde_json::from_str(ran.stdout.trim()).unwrap();
        assert_eq!(line["result"], "failed", "{ran}");
        let problems = line["problems"].as_array().unwrap();
        let typo = |problem: &&serde_json::Value| problem["path"] == "network.plugni";
        let problem = problems.iter().find(typo).unwrap();
        assert_eq!(
            (&problem["line"], &problem["column"]),
            (&2.into(), &11.into())
        );
        assert_eq!(problem["hint"], "did you mean `plugin`?", "{ran}");
        assert!(!ran.stdout.contains("hunter2"), "{ran}");
    }
}

#[test]
fn a_config_is_written_and_none_is_replaced() {
    let context = Context::with(GOOD);
    let before = context.files();
    insta::assert_snapshot!(context.run(&["config"]), @"
    exit code 1
    ----- stderr -----
    error: `cluster.yml` already exists; it was not changed

    hint: use `--name FILE` to write another file, or `--print` to print it
    ");
    assert_eq!(context.files(), before, "nobody was there to say yes");
    assert_eq!(context.run(&["config", "--name", "new.yml"]).code, Some(0));
    let ran = context.run(&["validate", "--config", "new.yml"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    let printed = context.run(&["config", "--print"]).stdout;
    assert_eq!(
        printed,
        std::fs::read_to_string(context.path("new.yml")).unwrap()
    );
    insta::assert_snapshot!(printed, @"
    # A cluster of rke-operator. `rke-operator config --explain KEY` explains a key,
    # `rke-operator validate` checks this file, `rke-operator plan` shows what `up` would do.

    cluster_name: local
    # Without it, the default release of rke-operator; an existing cluster keeps its release.
    kubernetes_version: v1.34.4
    # ssh_key_path: ~/.ssh/id_ed25519
    # ssh_agent_auth: true

    nodes:
      - address: 192.0.2.10
        user: ubuntu # must be allowed to use Docker
        role: [controlplane, etcd, worker]
        # port:
        # hostname_override:
        # internal_address:

    network:
      plugin: flannel

    ingress:
      # nginx, RKE's default, was retired upstream in March 2026; `none` to bring your own.
      provider: traefik
    ");
}

#[test]
fn keys_are_explained() {
    let context = Context::new();
    let told = |key: &str| context.run(&["config", "--explain", key]).to_string();
    let all = [
        "nodes.role",
        "services.etcd.backup_config",
        "ingress.provder",
        "frobnicate",
        "",
    ]
    .map(told);
    insta::assert_snapshot!(all.join("\n"), @"
    exit code 0
    ----- stdout -----
    nodes[].role: `controlplane`, `etcd`, `worker`; at least one. The only node of a cluster has all three when empty.

    type:      list
    supported: yes

    exit code 0
    ----- stdout -----
    services.etcd.backup_config: Recurring snapshots.

    type:      section
    supported: yes

    keys:
      enabled         Take recurring snapshots. RKE does so unless this is `false`.
      interval_hours  How often a snapshot is taken.
      retention       How many snapshots each node keeps.
      s3backupconfig  Where snapshots are copied to.
      safe_timestamp  Write the time into the name without colons.
      timeout         Seconds that a snapshot may take.

    exit code 1
    ----- stderr -----
    error: `cluster.yml` has no key `ingress.provder`

    hint: did you mean `ingress.provider`?
    hint: the keys of `ingress` are `provider`, `options`, `node_selector`, `extra_args`, `dns_policy`, `extra_envs`, `extra_volumes`, `extra_volume_mounts`, `update_strategy`, `http_port`, `https_port`, `network_mode`, `tolerations`, `default_backend`, `default_http_backend_priority_class_name`, `nginx_ingress_controller_priority_class_name`, `default_ingress_class`, `ingress_priority_class_name`, `values`

    exit code 1
    ----- stderr -----
    error: `cluster.yml` has no key `frobnicate`

    hint: the keys at the top level are `nodes`, `services`, `network`, `authentication`, `authorization`, `addons`, `addons_include`, `system_images`, `ssh_key_path`, `ssh_cert_path`, `ssh_agent_auth`, `ignore_docker_version`, `enable_cri_dockerd`, `kubernetes_version`, `private_registries`, `ingress`, `cluster_name`, `cloud_provider`, `prefix_path`, `win_prefix_path`, `addon_job_timeout`, `bastion_host`, `monitoring`, `restore`, `rotate_certificates`, `rotate_encryption_key`, `dns`, `upgrade_strategy`, `cri_dockerd_stream_server_address`, `cri_dockerd_stream_server_port`

    exit code 0
    ----- stdout -----
    keys:
      nodes                              The machines of the cluster.
      services                           The components of Kubernetes.
      network                            The network plugin.
      authentication                     How the API server authenticates users.
      authorization                      How the API server authorizes requests.
      addons                             Manifests, one YAML document each, applied after the cluster is up. Objects that are removed from them are deleted.
      addons_include                     Files, relative to the config, and URLs of such manifests. Not available in `Cluster` objects.
      system_images                      Images by RKE's names; a name that is missing has the image of the catalogue.
      ssh_key_path                       The private key file for nodes that name no key. When empty: the first of `~/.ssh/id_rsa`, `id_ecdsa`, `id_ed25519` that has no passphrase, else the SSH agent.
      ssh_cert_path                      The file of that key's OpenSSH certificate; not in a `Cluster` object.
      ssh_agent_auth                     Log in with the keys of an SSH agent, not in a `Cluster` object. Without an agent (`SSH_AUTH_SOCK`) key files are used.
      ignore_docker_version              Accept any version of Docker.
      enable_cri_dockerd                 Run pods through cri-dockerd.
      kubernetes_version                 The release of Kubernetes; the default release of rke-operator when empty. An existing cluster keeps its release.
      private_registries                 Registries that need a login, have a private CA, or have the system images. Docker and kubelet use these settings.
      ingress                            The ingress controller.
      cluster_name                       The cluster's name in its kubeconfig.
      cloud_provider                     The cloud that the nodes run in.
      prefix_path                        The folder on the nodes that contains RKE's folders.
      win_prefix_path                    The same on Windows nodes.
      addon_job_timeout                  Seconds that RKE waits for an add-on.
      bastion_host                       A machine through which the nodes are reached; in a file also a list of them, in the order in which they are dialled.
      monitoring                         The metrics server.
      restore                            Restore etcd from a snapshot at the next `up`.
      rotate_certificates                Replace certificates at the next `up`.
      rotate_encryption_key              Replace the encryption key at the next `up`.
      dns                                The cluster's DNS server.
      upgrade_strategy                   How many nodes may be unavailable while they are changed.
      cri_dockerd_stream_server_address  Address that cri-dockerd listens on.
      cri_dockerd_stream_server_port     Port that cri-dockerd listens on.
    ");
}

#[test]
fn releases_and_their_images_are_listed() {
    let context = Context::new();
    let lines = |args: &[&str]| context.run(args).stdout.lines().count();
    assert_eq!(context.run(&["config", "-l"]).stdout, "v1.34.4\n");
    assert!(lines(&["config", "-l", "-a"]) > 5);
    assert!(lines(&["config", "-s"]) > 5);
    assert!(lines(&["config", "-s", "-a"]) > lines(&["config", "-s"]));
    let unknown = context.run(&["config", "-s", "--version", "v1.10.3-rancher2"]);
    assert_eq!(unknown.code, Some(1), "{unknown}");
    assert!(
        unknown.stderr.contains("the newest of each minor: "),
        "{unknown}"
    );
}

/// RKE's state says that there is a cluster, even where no node answers.
#[test]
fn the_files_of_rke_stay_byte_for_byte() {
    let context = Context::with(GOOD);
    context.write(
        "cluster.rkestate",
        "{\"desiredState\": {}, \"currentState\": {}}\n",
    );
    context.write("kube_config_cluster.yml", "apiVersion: v1\nkind: Config\n");
    let before = context.files();
    for command in [
        &["up", "--yes"][..],
        &["plan"],
        &["remove", "--force"],
        &["validate", "--connect"],
        &["status"],
        &["kubeconfig"],
        &["cert", "info"],
        &["etcd", "members"],
    ] {
        let ran = context.run(command);
        assert_eq!(ran.code, Some(1), "{command:?}: {ran}");
        assert!(
            ran.stderr.contains("belongs to a cluster of RKE v1"),
            "{command:?}: {ran}"
        );
    }
    insta::assert_snapshot!(context.run(&["up", "--yes"]), @"
    exit code 1
    ----- stderr -----
    error: `cluster.rkestate` belongs to a cluster of RKE v1; nothing was changed

    hint: rke-operator cannot adopt RKE clusters yet: keep using `rke` for this cluster, and keep `cluster.rkestate` and `kube_config_cluster.yml`, which contain its keys
    hint: to use rke-operator on other machines, put their config into another folder
    hint: for a new cluster on these nodes run `rke remove` first; if the nodes were reinstalled, move `cluster.rkestate` and `kube_config_cluster.yml` away
    ");
    for command in [
        &["validate"][..],
        &["status"],
        &["kubeconfig"],
        &["kubeconfig", "--write"],
        &["cert", "info"],
        &["etcd", "snapshot-save"],
        &["config"],
        &["version"],
    ] {
        context.run(command);
    }
    assert_eq!(context.files(), before);
}

#[test]
fn what_cannot_be_rotated_is_refused_before_a_node_is_contacted() {
    let context = Context::with(GOOD);
    let ran = context.run(&["cert", "rotate", "--service", "dns"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("kube-controller-manager"), "{ran}");
    for flags in [
        ["--complete", "--yes"],
        ["--custom-certs", "--yes"],
        ["--service-account-key", "--rotate-ca"],
        ["--service-account-key", "--service=etcd"],
        ["--rotate-ca", "--service=etcd"],
        ["--rotate-ca", "--custom-certs"],
    ] {
        let args = ["cert", "rotate"].iter().chain(&flags);
        let ran = context.run(&args.copied().collect::<Vec<_>>());
        assert_eq!(ran.code, Some(1), "{flags:?} {ran}");
        assert!(ran.stderr.contains("Usage"), "{flags:?} {ran}");
    }
    for flag in ["--service-account-key", "--rotate-ca"] {
        let ran = context.run(&["cert", "rotate", flag, "--yes"]);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains("no cluster state found"), "{ran}");
    }
    let ran = context.run(&["cert", "rotate", "--yes"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("no cluster state found"), "{ran}");
}

#[test]
fn a_key_that_is_not_managed_is_not_rotated() {
    let with = |kube_api: &str| {
        let services = format!("{{snapshot: false}}, kube-api: {{{kube_api}}}}}");
        Context::with(&GOOD.replace("{snapshot: false}}", &services))
    };
    let rotate = ["encrypt", "rotate-key", "--yes"];
    insta::assert_snapshot!(Context::with(GOOD).run(&rotate), @"
    exit code 1
    ----- stderr -----
    error: the config does not enable `services.kube-api.secrets_encryption_config`: there is no key to rotate; nothing was changed

    hint: set `secrets_encryption_config: {enabled: true}` and run `up`: that generates a key
    ");
    let custom = with(
        "secrets_encryption_config: {enabled: true, custom_config: {apiVersion: apiserver.config.k8s.io/v1, \
         kind: EncryptionConfiguration, resources: [{resources: [secrets], providers: [{identity: {}}]}]}}",
    );
    insta::assert_snapshot!(custom.run(&rotate), @"
    exit code 1
    ----- stderr -----
    error: the encryption configuration is your own (`services.kube-api.secrets_encryption_config.custom_config`), and so are its keys; nothing was changed

    hint: put the new key in front of the present one in `custom_config`, keep the present one, and run `up`: all API servers read it before any writes with it, and Secrets are written again
    ");
    let flag = with("extra_args: {encryption-provider-config: /etc/kubernetes/my-encryption.yaml}");
    insta::assert_snapshot!(flag.run(&rotate), @"
    exit code 1
    ----- stderr -----
    error: `services.kube-api.extra_args` names an encryption configuration of your own (`encryption-provider-config`), and so are its keys; nothing was changed

    hint: rotate it in that file as Kubernetes documents it, or move its content to `secrets_encryption_config.custom_config` and run `up`
    ");
    // Nothing was generated before the first `up`.
    let managed = with("secrets_encryption_config: {enabled: true}");
    let ran = managed.run(&rotate);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("no cluster state found"), "{ran}");
}

#[test]
fn a_bucket_is_named_and_its_secret_never_shown() {
    let context = Context::with(GOOD);
    let flags = [
        "etcd",
        "snapshot-save",
        "--name",
        "s1",
        "--s3",
        "--secret-key",
        "hunter2",
    ];
    let ran = context.run(&flags);
    assert!(!ran.stderr.contains("hunter2"), "{ran}");
    insta::assert_snapshot!(ran, @"
    exit code 1
    ----- stderr -----
    error: no bucket is configured

    hint: set `s3backupconfig` in `services.etcd.backup_config`, or use `--bucket-name` and `--s3-endpoint`
    ");
    let with = |more: &[&str]| context.run(&[&flags[..], more].concat());
    let bad = with(&["--bucket-name", "a/b", "--access-key", "me"]);
    assert_eq!(bad.code, Some(1), "{bad}");
    assert!(
        bad.stderr
            .contains("the bucket `a/b` is not the name of a bucket"),
        "{bad}"
    );
    let half = with(&["--bucket-name", "b"]);
    assert!(
        half.stderr
            .contains("there is a secret key and no access key"),
        "{half}"
    );
    assert!(!half.stderr.contains("hunter2"), "{half}");
    let ran = context.run(&["etcd", "snapshot-save", "--name", "../s1"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    insta::assert_snapshot!(context.run(&["etcd", "snapshot-save"]), @"
    exit code 1
    ----- stderr -----
    error: no cluster state found in `cluster.rke-operator.json`

    hint: `rke-operator up` creates the cluster and its state
    hint: use `--config FILE` to select an existing cluster: its state file is next to the config
    hint: to recover a lost state, use `rke-operator up --recover ID`; if the machines are gone, too, restore a snapshot: `rke-operator etcd snapshot-restore --name NAME --s3`, with the name of a file in the bucket and `--lose NODES` for machines that are gone
    ");
}

/// C20: `/dev/stdin` worked, and `-` was a file that is not there.
#[test]
fn validate_reads_the_config_from_stdin_and_nothing_else_does() {
    let context = Context::with(GOOD);
    let run = |args: &[&str]| {
        let config = std::fs::File::open(context.path("cluster.yml")).unwrap();
        let mut command = context.command(args);
        Ran::from(&context, command.stdin(config).output().unwrap())
    };
    let before = context.files();
    insta::assert_snapshot!(run(&["validate", "--config", "-"]), @"
    exit code 0
    ----- stdout -----
    `<stdin>` is valid: 1 node, Kubernetes v1.34.4
    ");
    for command in ["plan", "status", "up"] {
        let ran = run(&[command, "--config", "-"]);
        insta::allow_duplicates! {
            insta::assert_snapshot!(ran, @"
            exit code 1
            ----- stderr -----
            error: only `validate` reads the config from stdin (`--config -`): the state of a cluster is kept next to its config

            hint: write the config into a file, and name it with `--config FILE`
            ");
        }
    }
    assert_eq!(context.files(), before);
}

#[test]
fn a_name_with_blanks_is_one_word_in_a_command() {
    let context = Context::new();
    let ran = context.run(&["config", "--name", "my new.yml"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(
        ran.stderr
            .ends_with("rke-operator validate --config 'my new.yml'\n"),
        "{ran}"
    );
}

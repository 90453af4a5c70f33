//! What is desired, read by eye once and kept.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    Desired, DesiredError, DesiredFile, DesiredHost,
    fixture::{applied, blank, claim, desired, facts, intent, intent_of, reuse_or_issue, up},
};
use crate::{
    config::{Dns, Intent, MetricsServer, Network, PodSecurity, Services},
    error::Explain as _,
    facts::HostView,
    model::{
        Bind, Component, ContainerSpec, EnvVar, NodeName, Owner, Role, Secret, Taint, label, path,
    },
};

fn host(desired: &Desired) -> &DesiredHost {
    &desired.hosts[&NodeName::from("n1")]
}

/// A definition as a person reads it: digests are left out, they are covered elsewhere.
fn readable(spec: &ContainerSpec) -> String {
    let mut text = format!("image {}\nentrypoint {:?}\n", spec.image, spec.entrypoint);
    for flag in &spec.command {
        writeln!(text, "  {flag}").unwrap();
    }
    for flag in &spec.bootstrap_args {
        writeln!(text, "  at the first start {flag}").unwrap();
    }
    for env in &spec.env {
        writeln!(text, "env {}", env.assignment().unwrap()).unwrap();
    }
    for bind in &spec.binds {
        writeln!(text, "bind {}", String::from(bind.clone())).unwrap();
    }
    for mount in &spec.mounts {
        writeln!(text, "mount {}", String::from(mount.clone())).unwrap();
    }
    for file in spec.files.keys() {
        writeln!(text, "reads {file}").unwrap();
    }
    writeln!(
        text,
        "privileged={} host_pid={} host_cgroupns={} security_opts={:?} logs={:?}",
        spec.privileged, spec.host_pid, spec.host_cgroupns, spec.security_opts, spec.log_limit
    )
    .unwrap();
    text
}

fn named(container: &str) -> Component {
    Component::named(container).expect("a component")
}

fn snapshot(name: &str) -> String {
    readable(&host(&desired(&intent())).containers[&named(name)])
}

#[expect(clippy::unwrap_in_result, reason = "the set-up of a test")]
fn desired_with(change: impl FnOnce(&mut Intent)) -> Result<Desired, DesiredError> {
    let mut intent = intent();
    change(&mut intent);
    let have = blank(&intent);
    Desired::from_intent(&intent, &reuse_or_issue(&intent, &have, 7).unwrap(), &have)
}

#[test]
fn the_components_of_a_node_with_all_roles() {
    let mut wanted = Component::ALL.to_vec();
    // That is for nodes without a control plane.
    wanted.retain(|component| *component != Component::NginxProxy);
    let desired = desired(&intent());
    let there: Vec<_> = host(&desired).containers.keys().copied().collect();
    assert_eq!(there, wanted);
    for component in wanted {
        let name = component.container();
        insta::with_settings!({filters => [("token=[0-9a-f]+", "token=<cluster id>")]}, {
            insta::assert_snapshot!(format!("container_{name}"), snapshot(name));
        });
    }
}

#[test]
fn files_and_folders_of_a_node_with_all_roles() {
    let desired = desired(&intent());
    let host = host(&desired);
    let mut text = String::new();
    for (path, mode) in &host.dirs {
        writeln!(text, "{mode:04o} {path}/").unwrap();
    }
    for (path, file) in &host.files {
        writeln!(text, "{:04o} {path}", file.mode).unwrap();
    }
    insta::assert_snapshot!("files", text);
    for (name, path) in [
        ("kubelet_config", "/etc/kubernetes/kubelet.yaml"),
        ("kubeconfig", "/etc/kubernetes/ssl/kubecfg-kube-node.yaml"),
    ] {
        let content = host.files[path].content.expose().clone();
        insta::assert_snapshot!(name, String::from_utf8(content).unwrap());
    }
}

fn one_pod() -> MetricsServer {
    MetricsServer {
        replicas: 1,
        ..MetricsServer::default()
    }
}

/// As every flag of the config: it wins, and one without a value stands alone. Of the two that say how
/// kubelets are verified the server takes one.
#[test]
fn the_metrics_server_runs_as_the_config_says() {
    let options = [("kubelet-insecure-tls", ""), ("metric-resolution", "30s")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let desired = desired_with(|intent| {
        intent.metrics_server = Some(MetricsServer {
            options: options.into(),
            node_selector: [("disk".to_owned(), "ssd".to_owned())].into(),
            tolerations: vec![serde_json::json!({"operator": "Exists"})],
            priority_class: Some("low".to_owned()),
            ..one_pod()
        });
    });
    let addons = desired.unwrap().addons;
    let addon = addons.iter().find(|addon| addon.name == "metrics-server");
    let mut objects = addon.unwrap().objects.values();
    let deployment = objects.find(|object| object["kind"] == "Deployment");
    let pod = &deployment.unwrap()["spec"]["template"]["spec"];
    let args = serde_json::json!([
        "--cert-dir=/tmp",
        "--kubelet-insecure-tls",
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        "--metric-resolution=30s",
        "--secure-port=10250",
    ]);
    assert_eq!(pod["containers"][0]["args"], args);
    let selector = serde_json::json!({"disk": "ssd", "kubernetes.io/os": "linux"});
    assert_eq!(pod["nodeSelector"], selector);
    assert_eq!(pod["tolerations"][1]["operator"], "Exists");
    assert_eq!(pod["priorityClassName"], "low");
}

#[test]
fn addons_as_they_are_applied() {
    let desired = desired_with(|intent| intent.metrics_server = Some(one_pod()));
    for addon in desired.unwrap().addons {
        let (workloads, others): (Vec<_>, Vec<_>) = addon
            .objects
            .values()
            .partition(|object| object["spec"]["template"].is_object());
        let (rights, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|object| {
            let kind = object["kind"].as_str().unwrap_or_default();
            kind.contains("Role")
        });
        insta::with_settings!({filters => [("applied: .*", "applied: <digest>")]}, {
            for (what, objects) in [
                ("", others),
                ("_rights", rights),
                ("_workloads", workloads),
            ] {
                if !objects.is_empty() {
                    insta::assert_yaml_snapshot!(format!("addon_{}{what}", addon.name), objects);
                }
            }
        });
        for (reference, object) in &addon.objects {
            assert_eq!(object["metadata"]["labels"][label::ADDON], addon.name);
            assert_eq!(object["metadata"]["name"], reference.name);
        }
    }
}

#[test]
fn the_desired_state_is_a_function_of_the_intent() {
    let intent = intent();
    assert_eq!(desired(&intent), desired(&intent));
    let once = desired(&intent);
    let have = applied(&once);
    // Another run's seed, and the world as the first run left it: nothing differs.
    let again =
        Desired::from_intent(&intent, &reuse_or_issue(&intent, &have, 9).unwrap(), &have).unwrap();
    assert_eq!(again.hosts, once.hosts);
    assert_eq!(again.saved, once.saved);
    assert_eq!(again.kubeconfig, once.kubeconfig);
}

#[test]
fn every_file_that_a_flag_names_is_written_and_seen_by_its_container() {
    let desired = desired(&intent());
    let host = host(&desired);
    for (name, spec) in &host.containers {
        for flag in &spec.command {
            let Some((_, value)) = flag.split_once('=') else {
                panic!("{flag}")
            };
            if value.starts_with(path::KUBERNETES) {
                assert!(host.files.contains_key(value), "{name} {flag}");
                assert!(spec.files.contains_key(value), "{name} {flag}");
                let bound = spec.binds.iter().any(|bind| bind.target == value);
                assert!(bound || *name == Component::Kubelet, "{name} {flag}");
            }
        }
        for (path, digest) in &spec.files {
            assert_eq!(&host.files[path].digest, digest);
        }
    }
}

#[test]
fn an_authoritys_key_is_in_the_state_copy_and_nowhere_else() {
    let desired = desired(&intent());
    let saved = &desired.saved;
    for (path, file) in &host(&desired).files {
        let text = String::from_utf8(file.content.expose().clone()).unwrap();
        for ca in [&saved.cluster_ca, &saved.etcd_ca, &saved.front_proxy_ca] {
            // As the state's JSON has it, with escaped ends of lines, or as it is.
            let body = ca
                .signing
                .key
                .as_ref()
                .unwrap()
                .expose()
                .lines()
                .nth(1)
                .unwrap();
            assert_eq!(text.contains(body), path == path::STATE, "{path}");
        }
        let secret = text.contains("PRIVATE KEY");
        assert!(!secret || file.mode == 0o600, "{path} {:o}", file.mode);
    }
    assert_eq!(host(&desired).files[path::STATE].mode, 0o600);
}

/// Approved requests are signed by a dedicated authority: its key is on control planes alone,
/// and API servers accept what it signed.
#[test]
fn certificate_requests_are_signed_by_a_dedicated_authority() {
    let desired = desired(&intent_of(&[
        ("cp", "10.0.0.1", &[Role::ControlPlane]),
        ("e1", "10.0.0.2", &[Role::Etcd]),
        ("w1", "10.0.0.3", &[Role::Worker]),
    ]));
    let key = "/etc/kubernetes/ssl/kube-signer-ca-key.pem";
    let of = |name: &str| &desired.hosts[&NodeName::from(name)];
    let has = |component: &str, flag: &str| {
        let command = &of("cp").containers[&named(component)].command;
        assert!(command.contains(&flag.to_owned()), "{command:#?}");
    };
    has(
        "kube-controller-manager",
        &format!("--cluster-signing-key-file={key}"),
    );
    has(
        "kube-controller-manager",
        "--cluster-signing-cert-file=/etc/kubernetes/ssl/kube-signer-ca.pem",
    );
    let bundle = "/etc/kubernetes/ssl/kube-ca-and-signer.pem";
    has("kube-apiserver", &format!("--client-ca-file={bundle}"));
    has(
        "kube-apiserver",
        &format!("--kubelet-certificate-authority={bundle}"),
    );
    let text = |path: &str| {
        let file = &of("cp").files[path];
        String::from_utf8(file.content.expose().clone()).unwrap()
    };
    let signer = desired.saved.signer_ca.as_ref().unwrap();
    assert_eq!(
        text(bundle),
        desired.saved.cluster_ca.bundle() + &signer.bundle()
    );
    assert_eq!(text(key), *signer.signing.key.as_ref().unwrap().expose());
    assert_eq!(of("cp").files[key].mode, 0o600);
    for name in ["e1", "w1"] {
        assert!(!of(name).files.contains_key(key), "{name}");
    }
    // Its certificates open nothing that the cluster CA's do not have to.
    assert_ne!(signer.signing, desired.saved.cluster_ca.signing);
}

#[test]
fn rkes_flags_to_sign_requests_mean_our_authority_and_a_warning_says_so() {
    let with = |cert: &str| {
        desired_with(|intent| {
            let extra = &mut intent.services.kube_controller.extra_args;
            for (name, value) in [
                ("cluster-signing-cert-file", cert),
                (
                    "cluster-signing-key-file",
                    "/etc/kubernetes/ssl/kube-ca-key.pem",
                ),
            ] {
                extra.insert(name.to_owned(), value.to_owned());
            }
        })
        .unwrap()
    };
    let rke = with("/etc/kubernetes/ssl/kube-ca.pem");
    let command = |desired: &Desired| {
        host(desired).containers[&Component::ControllerManager]
            .command
            .clone()
    };
    assert_eq!(command(&rke), command(&desired(&intent())));
    insta::assert_snapshot!(
        rke.notes[0],
        @"`services.kube-controller.extra_args`: `cluster-signing-cert-file` and `cluster-signing-key-file` with RKE's path means the CA of certificate requests here: the cluster CA's key is on no node; approved requests are signed without these flags too"
    );
    // A path of the user's own is the user's.
    let own = with("/etc/kubernetes/ssl/own-ca.pem");
    let flag = "--cluster-signing-cert-file=/etc/kubernetes/ssl/own-ca.pem".to_owned();
    assert!(command(&own).contains(&flag));
}

/// After a boot without its disk etcd must not start empty: its folder is created once, with the
/// member, and never again.
#[test]
fn etcd_does_not_start_without_the_disk_that_its_member_is_on() {
    let intent = intent();
    let fresh = desired(&intent);
    let spec = &host(&fresh).containers[&Component::Etcd];
    let mount = "/var/lib/etcd/member:/var/lib/rancher/etcd/member";
    assert_eq!(spec.mounts, [mount.to_owned().try_into().unwrap()]);
    assert_eq!(host(&fresh).dirs[path::ETCD_MEMBER], 0o700);
    let mut have = applied(&fresh);
    let name = NodeName::from("n1");
    let Some(HostView::Reachable(facts)) = have.hosts.get_mut(&name) else {
        panic!("it answers");
    };
    let etcd = claim(&fresh.cluster_id);
    facts.containers.insert("etcd".to_owned(), etcd);
    let keys = reuse_or_issue(&intent, &have, 9).unwrap();
    let again = Desired::from_intent(&intent, &keys, &have).unwrap();
    assert!(!host(&again).dirs.contains_key(path::ETCD_MEMBER));
}

/// Its key and its data belong to its user; no other container or file does.
#[test]
fn etcd_runs_as_its_user() {
    let mut intent = intent();
    let owner = Owner { uid: 1, gid: 2 };
    intent.etcd_owner = owner;
    let desired = desired(&intent);
    let containers = host(&desired).containers.iter();
    let its_own = containers.filter(|(_, spec)| spec.user == owner);
    let its_own: Vec<_> = its_own.map(|(component, _)| *component).collect();
    assert_eq!(its_own, [Component::Etcd]);
    let files = host(&desired).files.iter();
    let its_own = files.filter(|(_, file)| file.owner == owner);
    let its_own: Vec<&str> = its_own.map(|(path, _)| path.as_str()).collect();
    assert_eq!(its_own, ["/etc/kubernetes/ssl/kube-etcd-10-0-0-2-key.pem"]);
}

#[test]
fn no_secret_in_a_definition() {
    let desired = desired(&intent());
    for spec in host(&desired).containers.values() {
        let text = serde_json::to_string(spec).unwrap();
        assert!(!text.contains("PRIVATE"), "{text}");
    }
    assert!(!format!("{desired:?}").contains("PRIVATE"));
}

#[test]
fn each_role_has_its_own_containers_and_keys() {
    let desired = desired(&intent_of(&[
        ("cp", "10.0.0.1", &[Role::ControlPlane]),
        ("e1", "10.0.0.2", &[Role::Etcd]),
        ("w1", "10.0.0.3", &[Role::Worker]),
    ]));
    let of = |name: &str| &desired.hosts[&NodeName::from(name)];
    let names = |name: &str| {
        let components = of(name).containers.keys();
        components.map(|it| it.container()).collect::<Vec<_>>()
    };
    assert_eq!(
        names("e1"),
        [
            "etcd",
            "nginx-proxy",
            "kubelet",
            "kube-proxy",
            "etcd-rolling-snapshots"
        ]
    );
    assert_eq!(names("w1"), ["nginx-proxy", "kubelet", "kube-proxy"]);
    assert_eq!(
        names("cp"),
        [
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
        ],
    );
    assert!(!of("w1").files.contains_key(path::STATE));
    assert!(!of("w1").dirs.contains_key(path::ETCD));
    let servers = "--etcd-servers=https://10.0.0.2:2379".to_owned();
    assert!(
        of("cp").containers[&Component::ApiServer]
            .command
            .contains(&servers)
    );
    let kubelet = String::from_utf8(
        of("cp").files["/etc/kubernetes/kubelet.yaml"]
            .content
            .expose()
            .clone(),
    )
    .unwrap();
    assert!(kubelet.contains("key: \"node-role.kubernetes.io/controlplane\""));
    assert_eq!(of("e1").node.taints[0].effect, "NoExecute");
    assert!(of("w1").node.taints.is_empty());
}

/// Rule 26 of many nodes: a change of its servers is no change of its container.
#[test]
fn the_proxy_of_a_node_leads_to_every_control_plane() {
    let all = [
        ("cp1", "10.0.0.1", &[Role::ControlPlane, Role::Etcd][..]),
        ("cp2", "fd00::2", &[Role::ControlPlane]),
        ("w1", "10.0.0.3", &[Role::Worker]),
    ];
    let of = |nodes: &[(&str, &str, &[Role])]| {
        let desired = desired(&intent_of(nodes));
        desired.hosts[&NodeName::from("w1")].clone()
    };
    let host = of(&all);
    let text = |host: &DesiredHost, path: &str| {
        String::from_utf8(host.files[path].content.expose().clone()).unwrap()
    };
    insta::assert_snapshot!(text(&host, path::PROXY_CONFIG));
    insta::assert_yaml_snapshot!(host.containers[&Component::NginxProxy]);
    let digest = &host.files[path::PROXY_CONFIG].digest.0;
    assert_eq!(text(&host, path::PROXY_READ).trim(), digest);

    let [one, _, worker] = all;
    let without = of(&[one, worker]);
    assert_eq!(
        without.containers[&Component::NginxProxy],
        host.containers[&Component::NginxProxy]
    );
    assert!(without.files[path::PROXY_CONFIG] != host.files[path::PROXY_CONFIG]);
}

/// Rule 32 of many nodes: one drain does not take both, and where one node alone can have them they
/// are not kept from it.
#[test]
fn replicas_of_coredns_are_spread_as_soon_as_two_nodes_take_them() {
    let (plane, all) = (
        &[Role::ControlPlane, Role::Etcd][..],
        &[Role::ControlPlane, Role::Etcd, Role::Worker][..],
    );
    let worker = &[Role::Worker][..];
    for (nodes, spread) in [
        (vec![("a", "10.0.0.1", all)], false),
        (
            vec![("a", "10.0.0.1", plane), ("b", "10.0.0.2", worker)],
            false,
        ),
        (
            vec![("a", "10.0.0.1", all), ("b", "10.0.0.2", worker)],
            true,
        ),
    ] {
        let desired = desired(&intent_of(&nodes));
        let mut addons = desired.addons.iter();
        let coredns = addons.find(|addon| addon.name == "coredns").unwrap();
        let kind = |kind: &str| {
            let mut objects = coredns.objects.iter();
            objects
                .find(|(object, _)| object.kind == kind)
                .map(|(_, value)| value)
        };
        let pod = &kind("Deployment").unwrap()["spec"]["template"]["spec"];
        let required = &pod["topologySpreadConstraints"][0]["whenUnsatisfiable"];
        assert_eq!(required == "DoNotSchedule", spread, "{nodes:?}");
        assert_eq!(kind("PodDisruptionBudget").is_some(), spread, "{nodes:?}");
    }
}

fn bind(text: &str) -> Bind {
    Bind::try_from(text.to_owned()).unwrap()
}

fn variable(name: &str, value: &str) -> BTreeMap<String, Secret<String>> {
    [(name.to_owned(), value.to_owned().into())].into()
}

#[test]
fn a_users_flags_binds_and_variables_win() {
    let desired = desired_with(|intent| {
        let api = &mut intent.services.kube_api;
        api.extra_args
            .insert("profiling".to_owned(), "true".to_owned());
        api.extra_args
            .insert("feature-gates".to_owned(), String::new());
        api.extra_binds = vec![bind("/srv/audit:/var/log/kube-audit:rw,z")];
        api.extra_env = variable("HTTPS_PROXY", "http://proxy:3128");
        intent.services.etcd.extra_env = variable("ETCDCTL_ENDPOINTS", "https://10.0.0.2:2379");
    })
    .unwrap();
    let api = &host(&desired).containers[&Component::ApiServer];
    assert!(api.command.contains(&"--profiling=true".to_owned()));
    assert!(!api.command.contains(&"--profiling=false".to_owned()));
    assert!(api.command.contains(&"--feature-gates=".to_owned()));
    let binds: Vec<String> = api.binds.iter().cloned().map(String::from).collect();
    assert!(binds.contains(&"/srv/audit:/var/log/kube-audit:rw".to_owned()));
    assert_eq!(
        binds.iter().filter(|bind| bind.contains("audit:")).count(),
        1
    );
    let env = |component: &str| -> Vec<String> {
        let env = &host(&desired).containers[&named(component)].env;
        env.iter().filter_map(EnvVar::assignment).collect()
    };
    assert_eq!(env("kube-apiserver"), ["HTTPS_PROXY=http://proxy:3128"]);
    let label = serde_json::to_string(api).unwrap();
    assert!(!label.contains("proxy:3128"), "{label}");
    let etcd = env("etcd");
    assert!(etcd.contains(&"ETCDCTL_ENDPOINTS=https://10.0.0.2:2379".to_owned()));
    assert_eq!(etcd.len(), 4);
}

#[test]
fn a_flag_that_is_given_more_than_once_keeps_the_one_that_stands() {
    let values = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    let desired = desired_with(|intent| {
        let services = &mut intent.services;
        let api = &mut services.kube_api;
        api.extra_args_array = [
            ("runtime-config".to_owned(), values(&["a=true", "b=true"])),
            (
                "service-account-issuer".to_owned(),
                values(&["https://old"]),
            ),
        ]
        .into();
        services.etcd.extra_args_array =
            [("initial-cluster-token".to_owned(), values(&["x"]))].into();
    })
    .unwrap();
    let api = &host(&desired).containers[&Component::ApiServer].command;
    let given = |name: &str| -> Vec<&str> {
        let prefix = format!("--{name}=");
        api.iter()
            .filter_map(|word| word.strip_prefix(&prefix))
            .collect()
    };
    assert_eq!(given("runtime-config"), ["a=true", "b=true"]);
    let issuers = given("service-account-issuer");
    assert!(
        issuers.len() > 1 && issuers.last() == Some(&"https://old"),
        "{issuers:?}"
    );
    // Of the first start only, as the flag that stands.
    let etcd = &host(&desired).containers[&Component::Etcd];
    let token = "--initial-cluster-token=x".to_owned();
    assert!(etcd.bootstrap_args.contains(&token) && !etcd.command.contains(&token));
}

#[test]
fn names_of_the_user_are_in_every_api_servers_certificate_and_in_no_other() {
    let desired = desired_with(|intent| {
        intent.sans = ["api.example.com".to_owned(), "192.0.2.99".to_owned()].into();
    })
    .unwrap();
    let named = host(&desired).files.iter().filter(|(path, file)| {
        let name = |at: &[u8]| at == b"api.example.com";
        // Of a list of certificates, the first; kubeconfigs are none.
        let certificate = x509_parser::pem::parse_x509_pem(file.content.expose());
        path.starts_with("/etc/kubernetes/ssl/")
            && certificate.is_ok_and(|(_, pem)| pem.contents.windows(15).any(name))
    });
    let named: Vec<_> = named.map(|(path, _)| path.as_str()).collect();
    assert_eq!(named, ["/etc/kubernetes/ssl/kube-apiserver.pem"]);
}

#[test]
fn the_audit_log_and_the_admission_plugins_are_as_the_config_says() {
    let api = |change: fn(&mut Services)| {
        let desired = desired_with(|intent| change(&mut intent.services)).unwrap();
        let host = host(&desired);
        (
            host.containers[&Component::ApiServer].clone(),
            host.files.clone(),
        )
    };
    let text = |files: &BTreeMap<String, DesiredFile>, path: &str| {
        String::from_utf8(files[path].content.expose().clone()).unwrap()
    };
    let has = |spec: &ContainerSpec, word: &str| spec.command.contains(&word.to_owned());

    let (spec, files) = api(|services| services.always_pull_images = true);
    assert!(has(
        &spec,
        "--enable-admission-plugins=NodeRestriction,AlwaysPullImages"
    ));
    assert!(has(&spec, "--audit-log-maxage=30") && !files.contains_key(path::ADMISSION));

    let (spec, _) = api(|services| services.audit_log = None);
    assert!(
        !spec.command.iter().any(|word| word.contains("audit")),
        "{spec:?}"
    );
    assert!(!spec.binds.iter().any(|bind| bind.target.contains("audit")));
    assert!(!spec.files.contains_key(path::AUDIT_POLICY));

    let (spec, files) = api(|services| {
        let log = services.audit_log.as_mut().unwrap();
        (log.max_age, log.max_backup, log.max_size) = (1, 2, 3);
        log.format = "legacy".to_owned();
        log.policy = Some(serde_json::json!({"kind": "Policy"}));
    });
    assert_eq!(text(&files, path::AUDIT_POLICY), r#"{"kind":"Policy"}"#);
    for word in ["maxage=1", "maxbackup=2", "maxsize=3", "format=legacy"] {
        assert!(has(&spec, &format!("--audit-log-{word}")), "{word}");
    }

    let (spec, files) = api(|services| {
        services.pod_security = PodSecurity::Restricted;
        services.event_rate_limit = Some(serde_json::json!({"limits": []}));
        let plugins = ["EventRateLimit", "ImagePolicyWebhook"];
        let own = |name: &str| {
            (
                name.to_owned(),
                serde_json::json!({"name": name, "path": "/a"}),
            )
        };
        services.admission_plugins = plugins.map(own).into();
    });
    assert!(has(
        &spec,
        "--enable-admission-plugins=NodeRestriction,EventRateLimit"
    ));
    assert!(has(
        &spec,
        &format!("--admission-control-config-file={}", path::ADMISSION)
    ));
    assert!(
        spec.files.contains_key(path::ADMISSION),
        "a change of it replaces the API server"
    );
    let file: serde_json::Value = serde_json::from_str(&text(&files, path::ADMISSION)).unwrap();
    assert_eq!(
        file["plugins"][2]["configuration"]["defaults"]["enforce"],
        "restricted"
    );
    let own = serde_json::json!([
        {"name": "EventRateLimit", "path": "/a"},
        {"name": "ImagePolicyWebhook", "path": "/a"},
    ]);
    assert_eq!(
        file["plugins"].as_array().unwrap()[..2],
        own.as_array().unwrap()[..],
        "the config's own win"
    );
}

#[test]
fn kubelet_needs_no_bind_of_a_path_onto_itself_and_can_make_no_other() {
    let with = |text: &str| {
        let bind = bind(text);
        desired_with(|intent| intent.services.kubelet.extra_binds = vec![bind])
    };
    let desired = with("/etc/iscsi:/etc/iscsi").unwrap();
    assert_eq!(
        host(&desired).containers[&Component::Kubelet].binds.len(),
        1
    );
    let error = with("/srv/plugins:/usr/libexec/plugins").unwrap_err();
    insta::assert_snapshot!(
        error,
        @"node `n1`: `services.kubelet.extra_binds`: `/srv/plugins:/usr/libexec/plugins` cannot be made: kubelet works in the node's own file system"
    );
    assert!(error.hints()[0].contains("/etc/fstab"));
}

#[test]
fn what_a_host_is_like_is_respected() {
    let intent = {
        let mut intent = intent();
        intent.version.minor = 35;
        intent
    };
    let mut have = blank(&intent);
    let mut facts = facts();
    facts.docker.cgroup_version = 1;
    facts.docker.logs_bounded = true;
    facts.docker.security_options = vec!["name=selinux".to_owned()];
    facts.system.resolv_conf = "/etc/resolv.conf".to_owned();
    facts.system.containerd.dump = "\
version = 2
[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]
SystemdCgroup = true
"
    .to_owned();
    have.hosts.insert(NodeName::from("n1"), up(facts));
    let desired =
        Desired::from_intent(&intent, &reuse_or_issue(&intent, &have, 7).unwrap(), &have).unwrap();
    let host = host(&desired);
    let kubelet = host.files["/etc/kubernetes/kubelet.yaml"].content.expose();
    let kubelet = String::from_utf8(kubelet.clone()).unwrap();
    assert!(kubelet.contains("failCgroupV1: false"));
    assert!(kubelet.contains("cgroupDriver: systemd"));
    assert!(kubelet.contains("resolvConf: \"/etc/resolv.conf\""));
    for (component, spec) in &host.containers {
        let more = (*component == Component::Snapshots).then_some("no-new-privileges");
        let wanted: Vec<&str> = ["label=disable"].into_iter().chain(more).collect();
        assert_eq!(spec.security_opts, wanted);
        assert_eq!(spec.log_limit, None);
    }
}

/// R23: a node that is configured by a name, or by an address of a router in front of it, announces
/// the address of its default route; the API server finds it in kubelet's certificate.
#[test]
fn kubelets_certificate_has_the_address_that_kubelet_announces() {
    const NAME: &str = "n1.example.org";
    let all = [Role::Etcd, Role::ControlPlane, Role::Worker];
    let intent = intent_of(&[("n1", NAME, &all)]);
    let mut have = blank(&intent);
    let Some(HostView::Reachable(facts)) = have.hosts.get_mut(&NodeName::from("n1")) else {
        panic!("it answers");
    };
    facts.system.addresses = ["172.17.0.1", "192.168.7.5"].map(str::to_owned).into();
    facts.system.route_address = Some("192.168.7.5".to_owned());
    let keys = reuse_or_issue(&intent, &have, 9).unwrap();
    let desired = Desired::from_intent(&intent, &keys, &have).unwrap();
    let command = &host(&desired).containers[&Component::Kubelet].command;
    assert!(!command.iter().any(|flag| flag.starts_with("--node-ip")));
    let files = &host(&desired).files;
    let is_its = |path: &&String| path.contains("kube-kubelet-") && !path.contains("-key");
    let file = &files[files.keys().find(is_its).expect("a certificate")];
    let (_, pem) = x509_parser::pem::parse_x509_pem(file.content.expose()).unwrap();
    let certificate = pem.parse_x509().unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    let shown = format!("{:?}", names.value.general_names);
    assert!(
        shown.contains(NAME) && shown.contains("[192, 168, 7, 5]"),
        "{shown}"
    );
    assert!(!shown.contains("[172, 17, 0, 1]"), "{shown}");
}

/// U13: one table of ports for everybody who speaks of a firewall.
#[test]
fn a_firewall_lets_in_what_the_roles_and_the_network_need() {
    let mut intent = intent_of(&[
        ("n1", "192.0.2.10", &[Role::Etcd, Role::ControlPlane]),
        ("n2", "192.0.2.11", &[Role::Worker]),
    ]);
    let ports = |intent: &Intent, node: &str| {
        let have = blank(intent);
        let keys = reuse_or_issue(intent, &have, 9).unwrap();
        let desired = Desired::from_intent(intent, &keys, &have).unwrap();
        let network = &desired.hosts[&NodeName::from(node)].network;
        let ports = network.ports.iter().map(ToString::to_string);
        ports.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        ports(&intent, "n1"),
        "6443/tcp 2379-2380/tcp 10250/tcp 8472/udp"
    );
    assert_eq!(ports(&intent, "n2"), "10250/tcp 8472/udp");
    intent.network = Network::Calico(Box::default());
    assert_eq!(ports(&intent, "n2"), "10250/tcp 179/tcp 5473/tcp ipip");
    let alone = intent_of(&[(
        "n1",
        "192.0.2.10",
        &[Role::Etcd, Role::ControlPlane, Role::Worker],
    )]);
    assert_eq!(ports(&alone, "n1"), "6443/tcp");
}

/// O33: root on one node cannot make its certificate contain a name or address that belongs to something else.
#[test]
fn a_node_does_not_dictate_a_name_in_a_certificate() {
    let all = [Role::Etcd, Role::ControlPlane, Role::Worker];
    let mut intent = intent_of(&[
        ("n1", "n1.example.org", &all),
        ("n2", "192.168.7.6", &[Role::Worker]),
    ]);
    intent.sans.insert("192.168.7.9".to_owned());
    let names = |told: &str| {
        let mut have = blank(&intent);
        let Some(HostView::Reachable(facts)) = have.hosts.get_mut(&NodeName::from("n1")) else {
            panic!("it answers");
        };
        facts.system.route_address = Some(told.to_owned());
        let keys = reuse_or_issue(&intent, &have, 9).unwrap();
        let desired = Desired::from_intent(&intent, &keys, &have).unwrap();
        let files = &desired.hosts[&NodeName::from("n1")].files;
        let is_its = |path: &&String| path.contains("kube-kubelet-") && !path.contains("-key");
        let file = &files[files.keys().find(is_its).expect("a certificate")];
        let (_, pem) = x509_parser::pem::parse_x509_pem(file.content.expose()).unwrap();
        let certificate = pem.parse_x509().unwrap();
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        names.value.general_names.len()
    };
    let with_own_address = names("192.168.7.5");
    for told in [
        "kubernetes.default.svc",
        "a b",
        "",
        "10.43.0.1",
        "10.42.0.1",
        "192.168.7.6",
        "192.168.7.9",
        "127.0.0.1",
        "::",
    ] {
        assert_eq!(names(told), with_own_address - 1, "{told}");
    }
}

/// R39: monitoring and scanners look for a process of this name.
#[test]
fn kubelets_process_is_called_kubelet() {
    use std::{fs, os::unix::fs::PermissionsExt, process::Command, time::Duration};
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    // It changes into a folder instead of `/host`, which needs no right.
    let chroot = folder.path().join("chroot");
    fs::write(
        &chroot,
        "#!/bin/sh\nprogram=$1$2; shift 2; exec \"$program\" \"$@\"\n",
    )
    .unwrap();
    fs::set_permissions(&chroot, fs::Permissions::from_mode(0o755)).unwrap();
    let sleep = ["/bin/sleep", "/usr/bin/sleep"];
    let sleep = sleep.iter().find(|path| fs::metadata(path).is_ok());
    fs::copy(sleep.expect("a program"), folder.path().join("kubelet")).unwrap();
    let desired = desired(&intent());
    let entrypoint = &host(&desired).containers[&Component::Kubelet].entrypoint;
    let [bash, flag, script, name] = entrypoint.as_slice() else {
        panic!("{entrypoint:?}");
    };
    let script = script
        .replace("exec chroot", &format!("exec {}", chroot.display()))
        .replace("/host", &root);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut process = Command::new(bash)
        .args([flag, &script, name, "30"])
        .env("PATH", format!("{root}:{}", path.display()))
        .spawn()
        .unwrap();
    let called = || {
        let comm = fs::read(format!("/proc/{}/comm", process.id())).unwrap();
        String::from_utf8_lossy(&comm).into_owned()
    };
    for _ in 0..100 {
        if called() == "kubelet\n" {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let is_called = called();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(is_called, "kubelet\n");
}

#[test]
fn tokens_of_an_issuer_before_stay_good() {
    let mut intent = intent();
    let have = applied(&desired(&intent));
    intent.services.cluster_domain = "corp.internal".to_owned();
    let keys = reuse_or_issue(&intent, &have, 8).unwrap();
    let after = Desired::from_intent(&intent, &keys, &have).unwrap();
    let command = &host(&after).containers[&Component::ApiServer].command;
    let issuers: Vec<_> = command
        .iter()
        .filter(|word| word.starts_with("--service-account-issuer="))
        .collect();
    // The API server signs with the first and accepts all.
    assert_eq!(
        issuers,
        [
            "--service-account-issuer=https://kubernetes.default.svc.corp.internal",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        ]
    );
    // A user's own takes the place of all of them.
    let own = "service-account-issuer".to_owned();
    let kube_api = &mut intent.services.kube_api;
    kube_api.extra_args.insert(own, "https://issuer".to_owned());
    let after = Desired::from_intent(&intent, &keys, &have).unwrap();
    let command = &host(&after).containers[&Component::ApiServer].command;
    let issuers = command.iter().filter(|word| word.contains("-issuer="));
    assert_eq!(issuers.count(), 1, "{command:#?}");
}

#[test]
fn an_internal_address_is_what_etcd_and_kubelet_use() {
    let desired = desired_with(|intent| {
        for node in intent.nodes.values_mut() {
            node.internal_address = "192.168.1.2".into();
            node.has_internal_address = true;
        }
    })
    .unwrap();
    let has = |name: &str, flag: &str| {
        let command = &host(&desired).containers[&named(name)].command;
        assert!(command.contains(&flag.to_owned()), "{command:#?}");
    };
    has(
        "etcd",
        "--listen-client-urls=https://192.168.1.2:2379,https://127.0.0.1:2379",
    );
    has("etcd", "--listen-peer-urls=https://192.168.1.2:2380");
    has("kubelet", "--node-ip=192.168.1.2");
    has("kube-apiserver", "--advertise-address=192.168.1.2");
    assert!(
        desired
            .kubeconfig
            .expose()
            .contains("https://10.0.0.2:6443")
    );
}

#[test]
fn a_node_object_carries_its_roles_and_what_the_user_wants() {
    let desired = desired_with(|intent| {
        for node in intent.nodes.values_mut() {
            node.labels.insert("zone".to_owned(), "a".to_owned());
            node.taints.push(Taint {
                key: "gpu".to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            });
        }
    })
    .unwrap();
    insta::assert_json_snapshot!("node", host(&desired).node);
}

#[test]
fn without_network_and_dns_only_access_is_left() {
    let desired = desired_with(|intent| {
        intent.network = Network::None;
        intent.dns = Dns::None;
    })
    .unwrap();
    let names: Vec<&str> = desired.addons.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["cluster-access"]);
    assert!(desired.known_addons.contains("flannel"));
}

#[test]
fn a_definition_survives_its_label() {
    for spec in host(&desired(&intent())).containers.values() {
        let label = serde_json::to_string(spec).unwrap();
        assert_eq!(
            &serde_json::from_str::<ContainerSpec>(&label).unwrap(),
            spec
        );
    }
}

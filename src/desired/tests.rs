//! What is drawn, read by eye once and kept.

use std::fmt::Write as _;

use super::{
    ContainerSpec, Desired, DesiredHost, DrawError,
    fixture::{applied, blank, drawn, facts, intent, intent_of, settle, up},
    label, path,
};
use crate::{
    config::{Dns, Intent, Network, NodeName, Role, Taint},
    error::Explain as _,
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
    for env in &spec.env {
        writeln!(text, "env {env}").unwrap();
    }
    for bind in &spec.binds {
        writeln!(text, "bind {}", String::from(bind.clone())).unwrap();
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

fn snapshot(name: &str) -> String {
    readable(&host(&drawn(&intent())).containers[name])
}

#[expect(clippy::unwrap_in_result, reason = "the set-up of a test")]
fn draw_with(change: impl FnOnce(&mut Intent)) -> Result<Desired, DrawError> {
    let mut intent = intent();
    change(&mut intent);
    let have = blank(&intent);
    Desired::draw(&intent, &settle(&intent, &have, 7).unwrap(), &have)
}

#[test]
fn the_components_of_a_node_with_all_roles() {
    let names: Vec<&str> = super::START_ORDER.to_vec();
    let desired = drawn(&intent());
    assert_eq!(host(&desired).containers.keys().collect::<Vec<_>>(), {
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted
    },);
    for name in names {
        insta::assert_snapshot!(format!("container_{name}"), snapshot(name));
    }
}

#[test]
fn files_and_folders_of_a_node_with_all_roles() {
    let desired = drawn(&intent());
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

#[test]
fn addons_as_they_are_applied() {
    for addon in drawn(&intent()).addons {
        let objects: Vec<_> = addon.objects.values().collect();
        let text = serde_json::to_string_pretty(&objects).unwrap();
        insta::assert_snapshot!(format!("addon_{}", addon.name), text);
        for (reference, object) in &addon.objects {
            assert_eq!(object["metadata"]["labels"][label::ADDON], addon.name);
            assert_eq!(object["metadata"]["name"], reference.name);
        }
    }
}

#[test]
fn drawing_is_a_function() {
    let intent = intent();
    assert_eq!(drawn(&intent), drawn(&intent));
    let once = drawn(&intent);
    let have = applied(&once);
    // Another run's seed, and the world as the first run left it: nothing differs.
    let again = Desired::draw(&intent, &settle(&intent, &have, 9).unwrap(), &have).unwrap();
    assert_eq!(again.hosts, once.hosts);
    assert_eq!(again.saved, once.saved);
    assert_eq!(again.kubeconfig, once.kubeconfig);
}

#[test]
fn every_file_that_a_flag_names_is_written_and_seen_by_its_container() {
    let desired = drawn(&intent());
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
                assert!(bound || name == "kubelet", "{name} {flag}");
            }
        }
        for (path, digest) in &spec.files {
            assert_eq!(&host.files[path].digest, digest);
        }
    }
}

#[test]
fn an_authoritys_key_is_in_the_state_copy_and_nowhere_else() {
    let desired = drawn(&intent());
    let saved = &desired.saved;
    for (path, file) in &host(&desired).files {
        let text = String::from_utf8(file.content.expose().clone()).unwrap();
        for ca in [&saved.cluster_ca, &saved.etcd_ca, &saved.front_proxy_ca] {
            // As the state's JSON has it, with escaped ends of lines, or as it is.
            let body = ca.key.expose().lines().nth(1).unwrap();
            assert_eq!(text.contains(body), path == path::STATE, "{path}");
        }
        let secret = text.contains("PRIVATE KEY");
        assert!(!secret || file.mode == 0o600, "{path} {:o}", file.mode);
    }
    assert_eq!(host(&desired).files[path::STATE].mode, 0o600);
}

#[test]
fn no_secret_in_a_definition() {
    let desired = drawn(&intent());
    for spec in host(&desired).containers.values() {
        let text = serde_json::to_string(spec).unwrap();
        assert!(!text.contains("PRIVATE"), "{text}");
    }
    assert!(!format!("{desired:?}").contains("PRIVATE"));
}

#[test]
fn each_role_has_its_own_containers_and_keys() {
    let desired = drawn(&intent_of(&[
        ("cp", "10.0.0.1", &[Role::ControlPlane]),
        ("e1", "10.0.0.2", &[Role::Etcd]),
        ("w1", "10.0.0.3", &[Role::Worker]),
    ]));
    let of = |name: &str| &desired.hosts[&NodeName::from(name)];
    let names = |name: &str| of(name).containers.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names("e1"), ["etcd", "kube-proxy", "kubelet"]);
    assert_eq!(names("w1"), ["kube-proxy", "kubelet"]);
    assert_eq!(
        names("cp"),
        [
            "kube-apiserver",
            "kube-controller-manager",
            "kube-proxy",
            "kube-scheduler",
            "kubelet",
        ],
    );
    assert!(!of("w1").files.contains_key(path::STATE));
    assert!(!of("w1").dirs.contains_key(path::ETCD));
    let servers = "--etcd-servers=https://10.0.0.2:2379".to_owned();
    assert!(
        of("cp").containers["kube-apiserver"]
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

#[test]
fn a_users_flags_binds_and_variables_win() {
    let desired = draw_with(|intent| {
        let api = &mut intent.services.kube_api;
        api.image = Some("registry.example/kubernetes:mine".to_owned());
        api.extra_args
            .insert("profiling".to_owned(), "true".to_owned());
        api.extra_args
            .insert("feature-gates".to_owned(), String::new());
        api.extra_binds = vec!["/srv/audit:/var/log/kube-audit:rw,z".to_owned()];
        api.extra_env = vec!["HTTPS_PROXY=http://proxy:3128".to_owned()];
        intent.services.etcd.extra_env = vec!["ETCDCTL_ENDPOINTS=https://10.0.0.2:2379".to_owned()];
    })
    .unwrap();
    let api = &host(&desired).containers["kube-apiserver"];
    assert_eq!(api.image, "registry.example/kubernetes:mine");
    assert!(host(&desired).images.contains(&api.image));
    assert!(api.command.contains(&"--profiling=true".to_owned()));
    assert!(!api.command.contains(&"--profiling=false".to_owned()));
    assert!(api.command.contains(&"--feature-gates=".to_owned()));
    let binds: Vec<String> = api.binds.iter().cloned().map(String::from).collect();
    assert!(binds.contains(&"/srv/audit:/var/log/kube-audit:rw".to_owned()));
    assert_eq!(
        binds.iter().filter(|bind| bind.contains("audit:")).count(),
        1
    );
    assert_eq!(api.env, ["HTTPS_PROXY=http://proxy:3128"]);
    let etcd = &host(&desired).containers["etcd"].env;
    assert!(etcd.contains(&"ETCDCTL_ENDPOINTS=https://10.0.0.2:2379".to_owned()));
    assert_eq!(etcd.len(), 4);
}

#[test]
fn kubelet_needs_no_bind_of_a_path_onto_itself_and_can_make_no_other() {
    let bind = |text: &str| {
        let text = text.to_owned();
        draw_with(|intent| intent.services.kubelet.extra_binds = vec![text])
    };
    let desired = bind("/etc/iscsi:/etc/iscsi").unwrap();
    assert_eq!(host(&desired).containers["kubelet"].binds.len(), 1);
    let error = bind("/srv/plugins:/usr/libexec/plugins").unwrap_err();
    insta::assert_snapshot!(
        error,
        @"node `n1`: `services.kubelet.extra_binds`: `/srv/plugins:/usr/libexec/plugins` cannot be made: kubelet works in the node's own file system"
    );
    assert!(error.hints()[0].contains("/etc/fstab"));
    let error = bind("/srv").unwrap_err();
    insta::assert_snapshot!(
        error,
        @"node `n1`: `services.kubelet.extra_binds`: `/srv` is not `source:target[:options]`"
    );
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
    let desired = Desired::draw(&intent, &settle(&intent, &have, 7).unwrap(), &have).unwrap();
    let host = host(&desired);
    let kubelet = host.files["/etc/kubernetes/kubelet.yaml"].content.expose();
    let kubelet = String::from_utf8(kubelet.clone()).unwrap();
    assert!(kubelet.contains("failCgroupV1: false"));
    assert!(kubelet.contains("cgroupDriver: systemd"));
    assert!(kubelet.contains("resolvConf: \"/etc/resolv.conf\""));
    for spec in host.containers.values() {
        assert_eq!(spec.security_opts, ["label=disable"]);
        assert_eq!(spec.log_limit, None);
    }
}

#[test]
fn an_internal_address_is_what_etcd_and_kubelet_use() {
    let desired = draw_with(|intent| {
        for node in intent.nodes.values_mut() {
            node.internal_address = "192.168.1.2".to_owned();
            node.has_internal_address = true;
        }
    })
    .unwrap();
    let has = |name: &str, flag: &str| {
        let command = &host(&desired).containers[name].command;
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
    let desired = draw_with(|intent| {
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
    let desired = draw_with(|intent| {
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
    for spec in host(&drawn(&intent())).containers.values() {
        let label = serde_json::to_string(spec).unwrap();
        assert_eq!(
            &serde_json::from_str::<ContainerSpec>(&label).unwrap(),
            spec
        );
    }
}

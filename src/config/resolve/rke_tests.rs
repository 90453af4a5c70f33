//! Existing files of RKE: what they mean, and which warnings report a difference from RKE.

use insta::assert_snapshot;

use super::tests::{and, bad, good};
use crate::config::{Dns, Problem, RkeConfig};

fn told(warnings: &[Problem]) -> String {
    let line = |warning: &Problem| {
        let hint = warning.hint.as_ref().map(|hint| format!("\n  {hint}"));
        format!("{warning}{}", hint.unwrap_or_default())
    };
    warnings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What RKE's documentation names and no RKE reads, and what later releases of RKE have.
#[test]
fn keys_of_rkes_documentation_and_of_its_later_releases() {
    let yaml = and("\
ingress: {provider: none, ingress_priority_class_name: a}
dns: {options: {nodelocal_priority_class_name: a, nodelocal_autoscaler_priority_class_name: a}}
services: {kubelet: {pod-infra-container-image: a}}
x-common: &common {a: b}
network: {plugin: canal, enable_br_netfilter: null, canal_network_provider: {blackhole_route: 'true'}, options: {canal_autoscaler_priority_class_name: a, calico_priority_class_name: a, calico_autoscaler_priority_class_name: a, flannel_priority_class_name: a, flannel_autoscaler_priority_class_name: a}}
")
    .replacen("ingress: {provider: none}\n", "", 1)
    .replacen("network: {plugin: flannel}\n", "", 1);
    assert_snapshot!(told(&good(&yaml).warnings), @"
    `ingress.ingress_priority_class_name` (line 6): this key has no effect
      write `nginx_ingress_controller_priority_class_name`: RKE does not read this name either
    `dns.options.nodelocal_priority_class_name` (line 7): this key has no effect
      write `node_local_dns_priority_class_name` under `dns.nodelocal`: RKE does not read this name either
    `dns.options.nodelocal_autoscaler_priority_class_name` (line 7): this key has no effect
      remove it: RKE does not read it either
    `services.kubelet.pod-infra-container-image` (line 8): this key has no effect
      remove it: RKE does not read it either; `system_images.pod_infra_container` is the key with an effect
    `network.options.canal_autoscaler_priority_class_name` (line 10): this key has no effect
      remove it: RKE does not read it either
    `network.options.calico_priority_class_name` (line 10): this key has no effect
      remove it: RKE does not read it either, it reads `calico_node_priority_class_name`
    `network.options.calico_autoscaler_priority_class_name` (line 10): this key has no effect
      remove it: RKE does not read it either
    `network.options.flannel_priority_class_name` (line 10): this key has no effect
      write `kube_flannel_priority_class_name`: RKE does not read this name either
    `network.options.flannel_autoscaler_priority_class_name` (line 10): this key has no effect
      remove it: RKE does not read it either
    ");
    let netfilter = |value: &str| {
        and("").replace(
            "{plugin: flannel}",
            &format!("{{plugin: flannel, enable_br_netfilter: {value}}}"),
        )
    };
    assert_eq!(good(&netfilter("true")).warnings, []);
    assert_snapshot!(bad(&netfilter("false")), @"
    `network.enable_br_netfilter` (line 5): is not supported
      remove it: without this module Services are not reached from pods of the same node, so it is always loaded
    ");
    assert_snapshot!(bad(&and("auth: {}\nprivate_registries: [{username: a, ecrCredentialPlugin: {aws_access_key_id: hunter2}}]\nnonsense: 1")), @"
    `auth` (line 8): unknown key
      write it as `authentication`
    `private_registries[0].username` (line 9): unknown key
      write it as `user`
    `nonsense` (line 10): unknown key
      remove it: RKE has no such key, and ignores it
    ");
}

/// Objects and files of other programs.
#[test]
fn a_file_of_another_program_is_one_problem() {
    for (api_version, kind) in [
        ("clusterprovisioner.rke.io/v1beta1", "Cluster"),
        ("clusterprovisioner.rke.io/v1beta1", "Kubeconfig"),
        ("k0sctl.k0sproject.io/v1beta1", "Cluster"),
        ("apps/v1", "Deployment"),
    ] {
        let yaml = format!("apiVersion: {api_version}\nkind: {kind}\nspec: {{a: b}}\n");
        let said = bad(&yaml);
        assert_eq!(said.lines().count(), 2, "{said}");
    }
    assert_snapshot!(bad("apiVersion: clusterprovisioner.rke.io/v1beta1\nkind: Cluster\nspec: {}"), @"
    `kind` (line 2): this is a `Cluster` object, which the operator reads
      `kubectl apply -f FILE`; the command line takes what stands below `spec.config`
    ");
}

/// What a `Cluster` has in the place of a secret, and next to its config. Each is one problem, and not also a mapping or a
/// value that is missing.
#[test]
fn what_only_an_object_has_says_so_in_a_file() {
    for (path, yaml) in [
        (
            "private_registries[0].password",
            "private_registries: [{url: reg.example, user: me, password: {secretKeyRef: {name: a, key: b}}}]",
        ),
        (
            "services.etcd.backup_config.s3backupconfig.secret_key",
            "services: {etcd: {backup_config: {s3backupconfig: {endpoint: s3.example.com, bucket_name: abc, access_key: a, \
             secret_key: {secretKeyRef: {name: a}}}}}}",
        ),
        (
            "services.kubelet.extra_env[1]",
            "services: {kubelet: {extra_env: [A=b, {secretKeyRef: {name: a}}]}}",
        ),
        (
            "addons",
            "addons: {configMapKeyRef: {name: a, key: all.yaml}}",
        ),
        ("cluster_name", "cluster_name: {secretKeyRef: {name: a}}"),
        (
            "bastion_host.ssh_key",
            "bastion_host: {address: 192.0.2.1, ssh_key: {secretKeyRef: {name: a}}}",
        ),
    ] {
        let said = bad(&and(yaml));
        assert_eq!(said.lines().count(), 2, "{said}");
        assert!(
            said.starts_with(&format!("`{path}` (line 8): a reference to a Secret")),
            "{said}"
        );
        assert!(said.contains("write the value itself"), "{said}");
        assert_eq!(
            said.contains("`ssh_key_path`"),
            path.ends_with("ssh_key"),
            "{said}"
        );
    }
    assert_snapshot!(bad(&and("changes: Approve")), @"
    `changes` (line 8): unknown key
      remove it here: `changes` belongs to the `spec` of a `Cluster` object, next to `config`
    ");
}

/// RKE's names, and an image that some release of RKE wrote for it.
const OLD_IMAGES: &[(&str, &str)] = &[
    ("etcd", "rancher/coreos-etcd:v3.4.3-rancher1"),
    ("etcd", "rancher/etcd:v3.0.17"),
    ("etcd", "docker.io/rancher/mirrored-coreos-etcd:v3.5.12"),
    ("coredns", "rancher/coredns-coredns:1.6.5"),
    ("flannel", "rancher/coreos-flannel:v0.11.0-rancher1"),
    ("flannel", "rancher/mirrored-coreos-flannel:v0.15.1"),
    ("flannel_cni", "rancher/coreos-flannel-cni:v0.3.0"),
    ("pod_infra_container", "rancher/pause:3.1"),
    ("pod_infra_container", "rancher/pause-amd64:3.0@sha256:00"),
    ("nginx_proxy", "rancher/rke-tools:v0.1.52"),
];

#[test]
fn images_of_every_release_of_rke_give_way_to_the_catalogue() {
    let catalogue = good(&and("")).intent.images;
    for (name, image) in OLD_IMAGES {
        let resolved = good(&and(&format!("system_images: {{{name}: '{image}'}}")));
        assert_eq!(resolved.intent.images, catalogue, "{image}");
        let warning = resolved.warnings.first().map(ToString::to_string);
        assert!(warning.is_some_and(|text| text.contains(name)), "{image}");
    }
    let resolved = good(&and(
        "system_images: {heapster: 'rancher/heapster:v1', tiller: 'rancher/tiller:v2', wave_node: 'weaveworks/weave-kube:2'}",
    ));
    assert_eq!(resolved.warnings, []);
}

/// RKE runs the configured image; `rke config` writes the release there and nowhere else.
#[test]
fn the_image_of_kubernetes_says_which_release() {
    let wanted = |image: &str| {
        let intent = good(&and(&format!("system_images: {{kubernetes: '{image}'}}"))).intent;
        (intent.version.to_string(), intent.version_given)
    };
    for image in [
        "rancher/hyperkube:v1.30.7-rancher1",
        "docker.io/rancher/hyperkube:v1.30.7-rancher1",
        "registry.example.com:5000/hardened-kubernetes:v1.30.7-rke2r1-build20241212",
    ] {
        assert_eq!(wanted(image), ("v1.30.7".to_owned(), true), "{image}");
    }
    for image in [
        "rancher/hyperkube",
        "registry.example.com/house/kubernetes:v1.30.7",
    ] {
        assert_eq!(wanted(image), ("v1.34.4".to_owned(), false), "{image}");
    }
    let with = |version: &str, image: &str| {
        and(&format!(
            "kubernetes_version: '{version}'\nsystem_images: {{kubernetes: '{image}'}}"
        ))
    };
    assert_snapshot!(bad(&with("", "rancher/hyperkube:v1.20.8-rancher1")), @"
    `system_images.kubernetes` (line 9): this Kubernetes release is not in the catalogue | v1.20.8-rancher1
      without `kubernetes_version` this image says which release to run, as in RKE: remove it for `v1.34.4`, the default, or write another release from v1.28.1 to v1.36.3; a cluster that runs an older release cannot be taken over
    ");
    assert_snapshot!(bad(&with("", "registry.example.com/library/k8s:v1.8.11-rancher2-1")), @"
    `system_images.kubernetes` (line 9): this Kubernetes release is not in the catalogue | v1.8.11-rancher2-1
      without `kubernetes_version` this image says which release to run, as in RKE: remove it for `v1.34.4`, the default, or write another release from v1.28.1 to v1.36.3; a cluster that runs an older release cannot be taken over
    `system_images.kubernetes` (line 9): a copy of RKE's image cannot be used here: its kubelet needs the libraries of the image, but rke-operator runs kubelet with those of the node
      remove `kubernetes` for the image of the catalogue
    ");
    assert_snapshot!(bad(&with("", "rancher/hyperkube:v1.30.99-rancher1")), @"
    `system_images.kubernetes` (line 9): this Kubernetes release is not in the catalogue | v1.30.99-rancher1
      without `kubernetes_version` this image says which release to run, as in RKE: remove it, and write `kubernetes_version: v1.30.14`, the nearest there is
    ");
    assert_snapshot!(bad(&with("v1.30.7", "rancher/hyperkube:v1.31.2-rancher1")), @"
    `system_images.kubernetes` (line 9): this image is of another release than `kubernetes_version` | v1.31.2 and v1.30.7
      remove it for the catalogue's image of v1.30.7, or write `kubernetes_version: v1.31.2`
    ");
    assert_snapshot!(told(&good(&with("v1.30.7", "rancher/hyperkube:v1.30.5-rancher1")).warnings), @"
    `kubernetes_version` (line 8): v1.30.7 is in the catalogue, but not tested with this release of rke-operator
      the tested releases are `v1.32.13`, `v1.33.13`, `v1.34.4`, `v1.35.4`
    `system_images` (line 9): RKE's own images are replaced by those of the catalogue for v1.30.7: `kubernetes`
    `system_images.kubernetes` (line 9): this image is of another patch release than `kubernetes_version`
      remove it for the catalogue's image of v1.30.7, or write `kubernetes_version: v1.30.5`
    ");
    assert_snapshot!(told(&good(&with("", "rancher/hyperkube:v1.30.7-rancher1")).warnings), @"
    `system_images` (line 9): RKE's own images are replaced by those of the catalogue for v1.30.7: `kubernetes`
    `system_images.kubernetes` (line 9): v1.30.7 is in the catalogue, but not tested with this release of rke-operator
      the tested releases are `v1.32.13`, `v1.33.13`, `v1.34.4`, `v1.35.4`
    ");
    assert_snapshot!(bad(&and("kubernetes_version: v1.37.0")), @"
    `kubernetes_version` (line 8): this Kubernetes release is not in the catalogue | v1.37.0
      the nearest there is `v1.36.3`; the catalogue goes from v1.28.1 to v1.36.3
    ");
    assert_snapshot!(bad(&and("kubernetes_version: v1.20.8")), @"
    `kubernetes_version` (line 8): this Kubernetes release is not in the catalogue | v1.20.8
      remove this key for `v1.34.4`, the default, or write another release from v1.28.1 to v1.36.3; a cluster that runs an older release cannot be taken over
    ");
}

/// Harbor's projects and other mirrors give the folder another name.
#[test]
fn a_copy_of_rkes_image_is_an_error_where_it_cannot_run() {
    let harbor = "harbor.example.com/x";
    let with =
        |name: &str, image: &str| and(&format!("system_images: {{{name}: '{harbor}/{image}'}}"));
    for (name, image) in [
        ("nginx_proxy", "rke-tools:v0.1.103"),
        ("flannel_cni", "flannel-cni:v1.4.1-rancher1"),
        ("kubernetes", "hyperkube:v1.30.7-rancher1"),
        ("kubernetes", "rancher/hyperkube:v1.34.4"),
    ] {
        let said = bad(&with(name, image));
        assert!(
            said.contains("a copy of RKE's image cannot be used here"),
            "{said}"
        );
        assert!(said.contains(&format!("remove `{name}`")), "{said}");
    }
    for (name, image) in [
        ("etcd", "mirrored-coreos-etcd:v3.5.12"),
        ("etcd", "house/etcd:v3.5.12"),
        ("coredns", "mirrored-coredns-coredns:1.11.1"),
        ("nodelocal", "mirrored-k8s-dns-node-cache:1.23.0"),
        ("flannel", "mirrored-flannel-flannel:v0.25.1"),
        ("metrics_server", "mirrored-metrics-server:v0.7.1"),
        ("pod_infra_container", "pause:3.7"),
        ("pod_infra_container", "mirrored-pause:3.7"),
    ] {
        let resolved = good(&with(name, image));
        assert_eq!(resolved.warnings, [], "{image}");
    }
    for (name, image) in [
        ("etcd", "coreos-etcd:v3.4.3-rancher1"),
        ("coredns", "rancher/coredns-coredns:1.3.1"),
        ("metrics_server", "mirrored-metrics-server:latest"),
    ] {
        let said = told(&good(&with(name, image)).warnings);
        assert!(said.contains("is of an old release"), "{image}: {said}");
    }
}

#[test]
fn what_to_write_in_the_place_of_a_copy_keeps_the_release() {
    assert_snapshot!(bad(&and(
        "system_images: {kubernetes: 'registry.example.com/library/hyperkube:v1.30.7-rancher1-1'}",
    )), @"
    `system_images.kubernetes` (line 8): a copy of RKE's image cannot be used here: its kubelet needs the libraries of the image, but rke-operator runs kubelet with those of the node
      write `kubernetes_version: v1.30.7`, and remove `kubernetes` for the image of the catalogue, `rancher/hardened-kubernetes:v1.30.7-rke2r1-build20241126`, or write a copy of that image
    ");
    assert_snapshot!(bad(&and(
        "kubernetes_version: v1.34.4\nsystem_images: {kubernetes: 'registry.example.com/library/hyperkube:v1.30.7-rancher1-1'}",
    )), @"
    `system_images.kubernetes` (line 9): a copy of RKE's image cannot be used here: its kubelet needs the libraries of the image, but rke-operator runs kubelet with those of the node
      remove `kubernetes` for the image of the catalogue, `rancher/hardened-kubernetes:v1.34.4-rke2r1-build20260210`, or write a copy of that image
    ");
    let resolved = good(&and(
        "system_images: {etcd: 'registry.example.com:5000/rancher/coreos-etcd:v3.4.3'}",
    ));
    assert_eq!(
        resolved.intent.images.etcd,
        "registry.example.com:5000/rancher/coreos-etcd:v3.4.3"
    );
    assert_snapshot!(told(&resolved.warnings), @"
    `system_images.etcd` (line 8): this copy of RKE's image is of an old release, which was not tried with rke-operator
      remove `etcd` for the image of the catalogue, `rancher/hardened-etcd:v3.6.7-k3s1-build20260126`, or write a copy of that image
    ");
}

/// A file of `rke config` names the images of canal, nginx and pause, too; nodes in a closed network reach no Docker Hub.
#[test]
fn a_registry_that_has_the_system_images_has_each_of_rkes_own() {
    let with = |registry: &str, images: &str| {
        let yaml = and(&format!("{registry}\nsystem_images: {{{images}}}"));
        good(&yaml.replace("ingress: {provider: none}", "ingress: {provider: nginx}"))
    };
    let mirror = "private_registries: [{url: reg.example, is_default: true}]";
    let pause = "pod_infra_container: 'rancher/mirrored-pause:3.7'";
    let resolved = with(mirror, pause);
    let image = resolved.intent.images.pause;
    assert!(
        image.starts_with("reg.example/rancher/mirrored-pause:"),
        "{image}"
    );
    assert!(told(&resolved.warnings).contains("`pod_infra_container`"));
    // The same image of the same place: nothing to replace, and nothing to restart.
    let image = with("", pause).intent.images.pause;
    assert_eq!(image, "rancher/mirrored-pause:3.7");
    let resolved = with(
        "",
        "ingress: 'reg.example/rancher/nginx-ingress-controller:nginx-1.11.2-rancher1'",
    );
    let said = told(&resolved.warnings);
    for words in [
        "the charts of their components name other images: `ingress`",
        "`is_default: true` has the images of charts, too",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn an_image_of_a_service_has_no_effect() {
    let resolved = good(&and(
        "services: {kubelet: {image: 'registry.example.com/kubelet:1'}, etcd: {image: ''}}",
    ));
    assert_eq!(resolved.intent, {
        let mut intent = good(&and("")).intent;
        for (node, other) in intent
            .nodes
            .values_mut()
            .zip(resolved.intent.nodes.values())
        {
            node.login = other.login.clone();
        }
        intent
    });
    assert_snapshot!(told(&resolved.warnings), @"
    `services.kubelet.image` (line 8): this key has no effect
      write the image under `system_images`: `etcd`, or `kubernetes` for all other services
    ");
}

#[test]
fn the_names_in_a_mapping_count_even_with_empty_values() {
    let dns = good(&and(
        "dns: {node_selector: {node-role.kubernetes.io/worker: ''}}",
    ));
    let Dns::CoreDns(dns) = dns.intent.dns else {
        panic!("no DNS server");
    };
    assert_eq!(dns.node_selector["node-role.kubernetes.io/worker"], "");
}

#[test]
fn a_backup_config_is_on_unless_it_is_switched_off() {
    let with = |backup: &str| and(&format!("services: {{etcd: {{backup_config: {backup}}}}}"));
    let read = |yaml: &str| {
        let resolved = good(yaml);
        assert_eq!(resolved.warnings, []);
        let services = resolved.intent.services;
        let interval = services.snapshots.map(|policy| policy.interval / 3600);
        (interval, services.snapshot_bucket.map(|bucket| bucket.name))
    };
    assert_eq!(
        read(&with("{interval_hours: 6, retention: 6}")),
        (Some(6), None)
    );
    let s3 = "s3backupconfig: {bucket_name: b, endpoint: s3.example.com}";
    let on = with(&format!("{{enabled: true, interval_hours: '3', {s3}}}"));
    assert_eq!(read(&on), (Some(3), Some("b".to_owned())));
    // RKE's default if the keys are not set.
    assert_eq!(read(&and("")), (Some(12), None));
    let yes = and("services: {etcd: {snapshot: yes, creation: 720m, retention: 72h00m00s}}");
    assert_eq!(read(&yes), (Some(12), None));
    for off in ["{enabled: false}", "{enabled: no, interval_hours: 12}"] {
        assert_eq!(read(&with(off)), (None, None), "{off}");
    }
    let off = with(&format!("{{enabled: false, {s3}}}"));
    assert_eq!(read(&off), (None, None));
    let off = and("services: {etcd: {snapshot: off, creation: 6h}}");
    assert_eq!(read(&off), (None, None));
    assert_snapshot!(bad(&and("services: {etcd: {snapshot: perhaps, creation: 6 hours, backup_config: {retention: all, s3backupconfig: {bucket: b}}}}")), @"
    `services.etcd.snapshot` (line 8): must be `true` or `false` | perhaps
    `services.etcd.creation` (line 8): must be a duration, as in `12h` or `90m` | 6 hours
    `services.etcd.backup_config.retention` (line 8): must be a whole number, 0 or more | all
    `services.etcd.backup_config.s3backupconfig.endpoint` (line 8): copies of snapshots need a server
      write it, for example `endpoint: s3.amazonaws.com`
    `services.etcd.backup_config.s3backupconfig.bucket_name` (line 8): copies of snapshots need a bucket
      write it, for example `bucket_name: backups`
    `services.etcd.backup_config.s3backupconfig.bucket` (line 8): unknown key
      remove it: RKE has no such key, and ignores it
    ");
}

#[test]
fn all_problems_of_a_rancher_template_are_reported_at_once() {
    let yaml = "\
docker_root_dir: /var/lib/docker
rancher_kubernetes_engine_config:
  ignore_docker_version: true
  services:
    kube_api: {pod_security_policy: true, always_pull_images: maybe}
  upgrade_strategy: {node_drain_input: {ignore_daemon_sets: false}}
";
    assert_snapshot!(bad(yaml), @"
    `nodes`: there is no node
      what Rancher exports has no nodes: add each with its `address` and `role`
    `rancher_kubernetes_engine_config` (line 2): this is a cluster of Rancher; RKE's own config is what stands below this key
      move everything below it to the top level, and remove the keys next to it
    `services.kube-api` (line 5): Rancher calls this `kube_api`
      write it as `kube-api`
    `services.kube-api.pod_security_policy` (line 5): is not supported
      remove it: Kubernetes has no PodSecurityPolicy since 1.25
    `services.kube-api.always_pull_images` (line 5): must be `true` or `false` | maybe
    `upgrade_strategy.node_drain_input.ignore_daemonsets` (line 6): Rancher calls this `ignore_daemon_sets`
      write it as `ignore_daemonsets`
    ");
}

#[test]
fn defaults_are_defaults_in_every_spelling() {
    let resolved = good(
        &and("\
ssh_agent_auth: no
services:
  etcd: {creation: 720m, retention: 72h00m00s}
  kube-api: {always_pull_images: off, audit_log: {enabled: y}}
authentication: {strategy: X509, options: null}
addon_job_timeout: 30
enable_cri_dockerd: false
")
        .replace(
            "{plugin: flannel}",
            "{plugin: flannel, options: {flannel_backend_type: vxlan, flannel_backend_port: 8472}}",
        ),
    );
    assert_eq!(resolved.warnings, []);
    let resolved = good(&and("authentication: {options: {a: b}}\n").replace(
        "role: [controlplane, etcd, worker]\n",
        "role: [controlplane, etcd, worker]\n    taints: [{key: a, effect: NoSchedule, timeAdded: '2020-01-01T00:00:00Z'}]\n",
    ));
    assert_snapshot!(told(&resolved.warnings), @"
    `nodes[0].taints[0].timeAdded` (line 5): this key has no effect
      remove it: Kubernetes sets it
    `authentication.options` (line 9): this key has no effect
      remove it: RKE 1.6 does not read it either
    ");
}

#[test]
fn two_families_in_both_ranges_are_two_problems() {
    assert_snapshot!(bad(&and("services: {kube-api: {service_cluster_ip_range: '10.43.0.0/16,fd00::/108'}, kube-controller: {service_cluster_ip_range: '10.43.0.0/16,fd00::/108', cluster_cidr: '10.42.0.0/16,fd01::/56'}}")), @"
    `services.kube-api.service_cluster_ip_range` (line 8): two address families are not supported yet | 10.43.0.0/16,fd00::/108
    `services.kube-controller.service_cluster_ip_range` (line 8): two address families are not supported yet | 10.43.0.0/16,fd00::/108
    `services.kube-controller.cluster_cidr` (line 8): two address families are not supported yet | 10.42.0.0/16,fd01::/56
    ");
}

#[test]
fn a_document_beyond_our_limits_is_not_called_bad_yaml() {
    let deep = format!("addons: {}{}", "[".repeat(20_000), "]".repeat(20_000));
    let bomb = (0..20).fold("a: &a0 [x, x, x, x]\n".to_owned(), |yaml, n| {
        format!("{yaml}b{n}: &a{} [*a{n}, *a{n}, *a{n}, *a{n}]\n", n + 1)
    });
    for yaml in [deep, bomb] {
        let problems = RkeConfig::parse(&yaml).expect_err("a problem");
        let first = problems.iter().next().expect("a problem");
        assert_eq!(
            first.message, "the document is nested too deeply, or has too many values or aliases",
            "{first:?}"
        );
    }
    let large = format!("# {}\n", "x".repeat(crate::config::MAX_BYTES));
    assert_snapshot!(RkeConfig::parse(&large).expect_err("a problem"), @"the config is not valid: the config is larger than 1 MiB");
}

#[test]
fn an_encryption_configuration_is_looked_into_and_never_shown() {
    let bad = |text: &str| {
        let config = format!(
            "{{nodes: [{{address: 192.0.2.10, user: u, role: [etcd, controlplane, worker]}}], network: {{plugin: flannel}}, \
             ingress: {{provider: none}}, services: {{kube-api: {{secrets_encryption_config: {{enabled: true, \
             custom_config: {text}}}}}}}}}"
        );
        let problems = super::tests::resolve(&config).unwrap_err();
        let problems: Vec<String> = problems
            .iter()
            .map(|problem| format!("{problem}{}", problem.detail.as_deref().unwrap_or_default()))
            .collect();
        problems.join("\n").replace(
            "services.kube-api.secrets_encryption_config.custom_config",
            "…",
        )
    };
    insta::assert_snapshot!(bad("{kind: hunter2, resources: [{resources: [secrets], providers: [{identity: {}}]}]}"), @"`….kind` (line 1): is not the expected value");
    insta::assert_snapshot!(bad("{resources: [{resources: [], providers: [{aescbc: {keys: [{name: a, secret: hunter2}]}, identity: {}}]}]}"), @"
    `….resources[0].resources` (line 1): must name at least one resource, e.g. `secrets`
    `….resources[0].providers[0]` (line 1): must have exactly one provider
    ");
    insta::assert_snapshot!(bad("{resources: [{resources: [secrets], providers: [{aescbc: {keys: [{secret: hunter2}]}}, {rot13: {}}]}]}"), @"
    `….resources[0].providers[0].aescbc.keys[0].name` (line 1): a key needs a name
    `….resources[0].providers[0].aescbc.keys[0].secret` (line 1): is not a key of this provider in base64
    `….resources[0].providers[1]` (line 1): is not a provider of Kubernetes
    ");
}

//! Files that people have from RKE: what they mean, and what is said where we differ.

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

/// RKE's names, and an image that some release of RKE wrote for it.
const OLD_IMAGES: &[(&str, &str)] = &[
    ("kubernetes", "rancher/hyperkube:v1.13.5-rancher1"),
    ("kubernetes", "rancher/k8s:v1.8.11-rancher2-1"),
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

#[test]
fn a_copy_of_rkes_image_in_another_registry_is_taken_with_a_warning() {
    let resolved = good(&and(
        "system_images: {etcd: 'registry.example.com:5000/rancher/coreos-etcd:v3.4.3'}",
    ));
    assert_eq!(
        resolved.intent.images.etcd,
        "registry.example.com:5000/rancher/coreos-etcd:v3.4.3"
    );
    assert_snapshot!(told(&resolved.warnings), @"
    `system_images.etcd` (line 8): this is RKE's own image in another registry: it is taken as it is, and may not fit the release
      copy the image of the catalogue to that registry, and write it here or leave `etcd` out
    ");
    let resolved = good(&and(
        "system_images: {etcd: 'registry.example.com:5000/my/etcd'}",
    ));
    assert_eq!(resolved.warnings, []);
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
    let later = |yaml: &str| {
        let resolved = good(yaml);
        assert_eq!(resolved.warnings, []);
        let lines = resolved.later.iter().map(ToString::to_string);
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_snapshot!(later(&with("{interval_hours: 12, retention: 6}")), @"`services.etcd.backup_config` (line 8): recurring snapshots of etcd, RKE's default, are not taken yet");
    assert_snapshot!(later(&with("{enabled: true, interval_hours: '3', s3backupconfig: {bucket_name: b}}")), @"`services.etcd.backup_config` (line 8): recurring snapshots of etcd and their copies in S3 are not made yet");
    // RKE's default, where nothing is said.
    assert_snapshot!(later(&and("")), @"`services.etcd`: recurring snapshots of etcd, RKE's default, are not taken yet");
    assert_snapshot!(later(&and("services: {etcd: {snapshot: yes, creation: 720m, retention: 72h00m00s}}")), @"`services.etcd.snapshot` (line 8): recurring snapshots of etcd, RKE's default, are not taken yet");
    for off in ["{enabled: false}", "{enabled: no, interval_hours: 12}"] {
        assert_eq!(later(&with(off)), "", "{off}");
    }
    assert_eq!(
        later(&and("services: {etcd: {snapshot: off, creation: 6h}}")),
        ""
    );
    assert_snapshot!(bad(&and("services: {etcd: {snapshot: perhaps, creation: 6 hours, backup_config: {retention: all, s3backupconfig: {bucket: b}}}}")), @"
    `services.etcd.snapshot` (line 8): must be `true` or `false`
    `services.etcd.creation` (line 8): must be a duration, as in `12h` or `90m`
    `services.etcd.backup_config.retention` (line 8): must be a whole number
    `services.etcd.backup_config.s3backupconfig.bucket` (line 8): unknown key
    ");
}

#[test]
fn a_cluster_template_of_rancher_is_one_problem() {
    let yaml = "\
docker_root_dir: /var/lib/docker
rancher_kubernetes_engine_config:
  ignore_daemon_sets: true
  services: {kube_api: {}}
";
    assert_snapshot!(bad(yaml), @"
    `rancher_kubernetes_engine_config` (line 2): this is a cluster of Rancher; RKE's own config is what stands below this key
      move everything below it to the top level, and remove the keys beside it
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
    assert_snapshot!(bad(&and("services: {etcd: {creation: 6h}, kubelet: {pod-infra-container-image: a}}")), @"
    `services.kubelet.pod-infra-container-image` (line 8): unknown key
      write `pod_infra_container` under `system_images`
    ");
    assert_snapshot!(bad(&and("kubernetes_version: v1.10.3-rancher2")), @"
    `kubernetes_version` (line 8): this Kubernetes release is not in the catalogue | v1.10.3-rancher2
      the nearest there is `v1.28.1`; the catalogue goes from v1.28.1 to v1.36.3
    ");
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
    insta::assert_snapshot!(bad("{kind: hunter2, resources: [{resources: [secrets], providers: [{identity: {}}]}]}"), @"`….kind` (line 1): is another one than what belongs here");
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

//! A config is valid where the release can run it, and only there.

use insta::assert_snapshot;

use crate::{
    catalog::accepts::{self, Minor, Program},
    config::{
        Resolved,
        resolve::tests::{and, bad, good},
    },
};

fn services(version: &str, services: &str) -> String {
    and(&format!(
        "kubernetes_version: {version}\nservices: {services}\n"
    ))
}

fn unfit(version: &str, of: &str) -> String {
    bad(&services(version, of))
}

fn fits(version: &str, of: &str) -> Resolved {
    good(&services(version, of))
}

#[test]
fn flags_that_the_release_does_not_have() {
    assert_snapshot!(unfit("v1.34.4", "{kube-api: {extra_args: {feature-gates: IPv6DualStack=true}}, kube-controller: {extra_args: {pod-eviction-timeout: 1m, address: 127.0.0.1}}, kubelet: {extra_args: {network-plugin-mtu: '0', generate_serving_certificate: 'true'}}}"), @"
    `services.kube-api.extra_args.feature-gates` (line 9): 1.34 has no feature gate `IPv6DualStack`; 1.26 was the last with it
      remove it: what it was for is always on now, or gone
    `services.kube-controller.extra_args.pod-eviction-timeout` (line 9): kube-controller-manager 1.34 has no such flag; 1.26 was the last with it
      remove it; `default-not-ready-toleration-seconds` and `default-unreachable-toleration-seconds` under `services.kube-api.extra_args` have the effect
    `services.kube-controller.extra_args.address` (line 9): kube-controller-manager 1.34 has no such flag; 1.23 was the last with it
      remove it: there is no port without TLS any more; `secure-port` and `bind-address` are for the other
    `services.kubelet.extra_args.network-plugin-mtu` (line 9): kubelet 1.34 has no such flag; 1.23 was the last with it
      remove it; the MTU of pods is `network.mtu`
    `services.kubelet.extra_args.generate_serving_certificate` (line 9): kubelet has no such flag
      it is a key of RKE's: write `generate_serving_certificate` under `services.kubelet` itself
    ");
    assert_snapshot!(unfit("v1.28.15", "{kube-api: {extra_args: {authorization-config: /a}, extra_args_array: {max_pods: ['1']}}, kubelet: {extra_args: {service-cluster-ip-range: a, max-podz: 1, nonsense: 1}}, scheduler: {extra_args: {policy-config-file: /a}}, kubeproxy: {extra_args: {logtostderr: 'true'}}}"), @"
    `services.kube-api.extra_args.authorization-config` (line 9): kube-apiserver has this flag since 1.29; this is 1.28
      remove it, or ask for a newer release
    `services.kube-api.extra_args_array.max_pods` (line 9): kube-apiserver has no such flag
      it belongs under `services.kubelet`
    `services.kubelet.extra_args.service-cluster-ip-range` (line 9): kubelet has no such flag
      it belongs under one of `services.kube-api`, `services.kube-controller`
    `services.kubelet.extra_args.max-podz` (line 9): kubelet has no such flag
      did you mean `max-pods`?
    `services.kubelet.extra_args.nonsense` (line 9): kubelet has no such flag
      remove it: kubelet would not start with it
    `services.scheduler.extra_args.policy-config-file` (line 9): kube-scheduler 1.28 has no such flag; 1.21 was the last with it
      write a KubeSchedulerConfiguration, and name its file with `config`
    `services.kubeproxy.extra_args.logtostderr` (line 9): kube-proxy 1.28 has no such flag; 1.25 was the last with it
      remove it: logs go to stderr, and Docker keeps them
    ");
    // 1.28 has what 1.31 has not, and every program reads `_` as `-`.
    fits(
        "v1.28.15",
        "{kubeproxy: {extra_args: {proxy_port_range: ''}}, kubelet: {extra_args: {housekeeping_interval: 10s, cloud-config: /a}}}",
    );
    assert_snapshot!(unfit("v1.34.4", "{kubeproxy: {extra_args: {proxy_port_range: ''}}}"), @"
    `services.kubeproxy.extra_args.proxy_port_range` (line 9): kube-proxy 1.34 has no such flag; 1.30 was the last with it
      remove it
    ");
    assert_snapshot!(unfit("v1.34.4", "{kubelet: {extra_args: {max-pods: 1, max_pods: 2}}}"), @"
    `services.kubelet.extra_args.max_pods` (line 9): this flag is there with `-` and with `_` in its name
      keep one of the two
    ");
}

/// By the release of etcd's image, which is not Kubernetes'.
#[test]
fn flags_of_etcd_go_by_its_own_release() {
    let of = "{etcd: {extra_args: {enable-v2: 'true', logger: zap, quota-backend-bytes: '1', experimental-initial-corrupt-check: 'true'}}}";
    fits("v1.33.10", of);
    assert_snapshot!(unfit("v1.33.13", of), @"
    `services.etcd.extra_args.enable-v2` (line 9): etcd 3.6 has no such flag; 3.5 was the last with it
      remove it
    ");
    assert_snapshot!(unfit("v1.33.10", "{etcd: {extra_args: {debug: 'true', auto-compaction-mode: hourly, feature-gates: A=true, kubeconfig: /x}}}"), @"
    `services.etcd.extra_args.debug` (line 9): etcd 3.5 has no such flag; 3.4 was the last with it
      write `log-level: debug`
    `services.etcd.extra_args.auto-compaction-mode` (line 9): etcd takes no such value | hourly
      it takes `periodic`, `revision`
    `services.etcd.extra_args.feature-gates` (line 9): etcd has this flag since 3.6; this is 3.5
      remove it, or ask for a newer release
    `services.etcd.extra_args.kubeconfig` (line 9): etcd has no such flag
      it belongs under one of `services.kube-controller`, `services.kubeproxy`, `services.scheduler`, `services.kubelet`
    ");
}

#[test]
fn feature_gates() {
    let of = |gates: &str| format!("{{kubelet: {{extra_args: {{feature-gates: '{gates}'}}}}}}");
    // It stands in most hardening guides, and is taken to this day.
    for version in ["v1.28.15", "v1.32.13", "v1.34.4", "v1.36.3"] {
        fits(version, &of("RotateKubeletServerCertificate=true"));
    }
    fits(
        "v1.34.4",
        &of("AllAlpha=false,AllBeta=true, APIServerTracing=true,kube:NodeLogQuery=t"),
    );
    assert_snapshot!(unfit("v1.34.4", &of("APIServerTracing=false,MountPropagation=true,NodeLogQuerry=true,hunter2,ShardedListAndWatch=true,NodeLogQuery=maybe")), @"
    `services.kubelet.extra_args.feature-gates` (line 9): the feature gate `APIServerTracing` is locked to `true` since 1.34 | APIServerTracing=false
      remove it: the program would not start with it
    `services.kubelet.extra_args.feature-gates` (line 9): 1.34 has no feature gate `MountPropagation`; 1.13 was the last with it
      remove it: what it was for is always on now, or gone
    `services.kubelet.extra_args.feature-gates` (line 9): Kubernetes has no such feature gate | NodeLogQuerry=true
      did you mean `NodeLogQuery`?
    `services.kubelet.extra_args.feature-gates` (line 9): is not a feature gate with its value | hunter2
      write `Name=true` or `Name=false`, with commas between
    `services.kubelet.extra_args.feature-gates` (line 9): the feature gate `ShardedListAndWatch` is there since 1.36; this is 1.34
      remove it, or ask for a newer release
    `services.kubelet.extra_args.feature-gates` (line 9): is not a feature gate with its value | NodeLogQuery=maybe
      write `Name=true` or `Name=false`, with commas between
    ");
    fits("v1.33.13", &of("APIServerTracing=false"));
}

#[test]
fn admission_plugins() {
    let of = "{kube-api: {extra_args: {enable-admission-plugins: 'NodeRestriction,PodSecurityPolicy,Always', disable-admission-plugins: PersistentVolumeLabel}, admission_configuration: {plugins: [{name: Podsecurity}]}}}";
    assert_snapshot!(unfit("v1.34.4", of), @"
    `services.kube-api.extra_args.enable-admission-plugins` (line 9): 1.34 has no admission plugin `PodSecurityPolicy`; 1.24 was the last with it
      remove it; Pod Security is set with `pod_security_configuration`
    `services.kube-api.extra_args.enable-admission-plugins` (line 9): kube-apiserver has no such admission plugin | Always
      remove it: the API server would not start with it
    `services.kube-api.extra_args.disable-admission-plugins` (line 9): 1.34 has no admission plugin `PersistentVolumeLabel`; 1.30 was the last with it
      remove it: the cloud's own controller manager has it
    `services.kube-api.admission_configuration.plugins[0].name` (line 9): kube-apiserver has no such admission plugin | Podsecurity
      did you mean `PodSecurity`?
    ");
    fits(
        "v1.30.7",
        "{kube-api: {extra_args: {disable-admission-plugins: PersistentVolumeLabel}}}",
    );
}

#[test]
fn groups_and_controllers() {
    let of = |config: &str| format!("{{kube-api: {{extra_args: {{runtime-config: '{config}'}}}}}}");
    fits(
        "v1.34.4",
        &of(
            "api/all=true,batch/v1beta1=true,extensions/v1beta1/podsecuritypolicy=true,v1=true,resource.k8s.io/v1beta1",
        ),
    );
    assert_snapshot!(unfit("v1.34.4", &of("batch/v2alpha1=true,settings.k8s.io/v1alpha1=true,metrics.k8s.io/v1=true,apps/v9=true,api/beta=maybe")), @"
    `services.kube-api.extra_args.runtime-config` (line 9): 1.34 has no version `batch/v2alpha1`; 1.20 was the last with it
      remove it: the API server would not start with it
    `services.kube-api.extra_args.runtime-config` (line 9): 1.34 has no version `settings.k8s.io/v1alpha1`; 1.19 was the last with it
      remove it: the API server would not start with it
    `services.kube-api.extra_args.runtime-config` (line 9): kube-apiserver has no such group | metrics.k8s.io/v1=true
      remove it: the API server would not start with it
    `services.kube-api.extra_args.runtime-config` (line 9): kube-apiserver has no such version of this group | apps/v9=true
      remove it: the API server would not start with it
    `services.kube-api.extra_args.runtime-config` (line 9): must end with `=true` or `=false` | api/beta=maybe
    ");
    assert_snapshot!(unfit("v1.31.2", &of("resource.k8s.io/v1beta1=true")), @"
    `services.kube-api.extra_args.runtime-config` (line 9): the version `resource.k8s.io/v1beta1` is there since 1.32; this is 1.31
      remove it: the API server would not start with it
    ");
    fits(
        "v1.34.4",
        "{kube-controller: {extra_args: {controllers: '*,-nodeipam,-ttl-controller,bootstrapsigner'}}}",
    );
    assert_snapshot!(unfit("v1.34.4", "{kube-controller: {extra_args: {controllers: '*,-podpreset,-ttl-controler'}}}"), @"
    `services.kube-controller.extra_args.controllers` (line 9): kube-controller-manager has no such controller | podpreset
      remove it: kube-controller-manager would not start with it
    `services.kube-controller.extra_args.controllers` (line 9): kube-controller-manager has no such controller | ttl-controler
      did you mean `ttl-controller`?
    ");
}

/// By the type of each flag, as Go reads it.
#[test]
fn values_of_another_type_are_refused() {
    assert_snapshot!(unfit("v1.34.4", "{etcd: {extra_args: {quota-backend-bytes: 8GB, heartbeat-interval: 100ms, cipher-suites: TLS_RSA_WITH_RC4_128_SHA1}}, kube-api: {extra_args: {max-requests-inflight: big, authorization-mode: 'Node,RABC', request-timeout: 60, profiling: 'off', advertise-address: n1, service-node-port-range: 30000..32767}}, kube-controller: {extra_args: {node-monitor-grace-period: 40 s, kube-api-qps: fast, tls-cipher-suites: TLS_AES_128_GCM_SHA265}}, kubelet: {extra_args: {fail-swap-on: 'no', streaming-connection-idle-timeout: 4 hours}, extra_args_array: {v: ['2', high]}}}"), @"
    `services.etcd.extra_args.quota-backend-bytes` (line 9): must be a whole number | 8GB
    `services.etcd.extra_args.heartbeat-interval` (line 9): must be a whole number, 0 or more | 100ms
    `services.etcd.extra_args.cipher-suites` (line 9): etcd takes no such value | TLS_RSA_WITH_RC4_128_SHA1
      did you mean `TLS_RSA_WITH_RC4_128_SHA`?
    `services.kube-api.extra_args.max-requests-inflight` (line 9): must be a whole number | big
    `services.kube-api.extra_args.authorization-mode` (line 9): kube-apiserver takes no such value | RABC
      did you mean `RBAC`?
    `services.kube-api.extra_args.request-timeout` (line 9): must be a duration like `30s` or `1h30m` | 60
    `services.kube-api.extra_args.profiling` (line 9): must be `true` or `false` | off
    `services.kube-api.extra_args.advertise-address` (line 9): must be an IP address | n1
    `services.kube-api.extra_args.service-node-port-range` (line 9): is not a range of ports | 30000..32767
      write one like `30000-32767`
    `services.kube-controller.extra_args.node-monitor-grace-period` (line 9): must be a duration like `30s` or `1h30m` | 40 s
    `services.kube-controller.extra_args.kube-api-qps` (line 9): must be a number | fast
    `services.kube-controller.extra_args.tls-cipher-suites` (line 9): kube-controller-manager takes no such value | TLS_AES_128_GCM_SHA265
      did you mean `TLS_AES_128_GCM_SHA256`?
    `services.kubelet.extra_args.fail-swap-on` (line 9): must be `true` or `false` | no
    `services.kubelet.extra_args.streaming-connection-idle-timeout` (line 9): must be a duration like `30s` or `1h30m` | 4 hours
    `services.kubelet.extra_args_array.v[1]` (line 9): must be a whole number, 0 or more | high
    ");
    fits(
        "v1.34.4",
        "{kube-api: {extra_args: {authorization-mode: 'Node, RBAC', request-timeout: 1m30s, profiling: 'False', advertise-address: 10.0.0.1, service-node-port-range: 30000+2767}}, kube-controller: {extra_args: {kube-api-qps: '20.5', tls-cipher-suites: 'TLS_AES_128_GCM_SHA256,TLS_RSA_WITH_RC4_128_SHA'}}, kubelet: {extra_args: {fail-swap-on: '0', max-pods: '0x40'}}, etcd: {extra_args: {quota-backend-bytes: '8589934592', heartbeat-interval: '100'}}}",
    );
}

#[test]
fn values_that_a_program_refuses() {
    assert_snapshot!(unfit("v1.34.4", "{kube-api: {extra_args: {storage-backend: etcd2, audit-log-version: audit.k8s.io/v1beta1}, secrets_encryption_config: {enabled: true, custom_config: {resources: [{resources: [secrets], providers: [{kms: {name: a, endpoint: b}}, {identity: {}}]}]}}}, kube-controller: {extra_args: {cloud-provider: aws}}, kubeproxy: {extra_args: {proxy-mode: userspace}}, kubelet: {extra_args: {node-labels: 'a=b,node-role.kubernetes.io/worker=true', runonce: 'true', container-log-max-files: '1', enforce-node-allocatable: 'pods,kube-reserved', topology-manager-policy: strict, cloud-provider: azure}}}"), @"
    `services.kube-api.extra_args.storage-backend` (line 9): kube-apiserver takes no such value | etcd2
      it takes `etcd3`
    `services.kube-api.extra_args.audit-log-version` (line 9): kube-apiserver takes no such value | audit.k8s.io/v1beta1
      it takes `audit.k8s.io/v1`
    `services.kube-api.secrets_encryption_config.custom_config.resources[0].providers[0].kms.apiVersion` (line 9): KMS v1 is off since Kubernetes 1.29
      write `apiVersion: v2`, or `feature-gates: KMSv1=true` under `services.kube-api.extra_args`
    `services.kube-controller.extra_args.cloud-provider` (line 9): kube-controller-manager 1.34 has no cloud provider built in | aws
      remove it, write `cloud_provider.name: external`, and install the cloud's own controller manager
    `services.kubeproxy.extra_args.proxy-mode` (line 9): kube-proxy has no such mode | userspace
      write `iptables`, `ipvs` or, since 1.29, `nftables`
    `services.kubelet.extra_args.node-labels` (line 9): kubelet may not set a label of Kubernetes' own on its node | node-role.kubernetes.io/worker
      write it under `labels` of the node
    `services.kubelet.extra_args.runonce` (line 9): kubelet refuses `true` since 1.32
      remove it
    `services.kubelet.extra_args.container-log-max-files` (line 9): must be 2 or more | 1
    `services.kubelet.extra_args.enforce-node-allocatable` (line 9): kubelet needs the cgroup that it is to enforce this on
      add `kube-reserved-cgroup`, or enforce `pods` alone
    `services.kubelet.extra_args.topology-manager-policy` (line 9): kubelet takes no such value | strict
      it takes `none`, `best-effort`, `restricted`, `single-numa-node`
    `services.kubelet.extra_args.cloud-provider` (line 9): kubelet 1.34 has no cloud provider built in | azure
      remove it, write `cloud_provider.name: external`, and install the cloud's own controller manager
    ");
    fits(
        "v1.34.4",
        "{kube-api: {extra_args: {feature-gates: KMSv1=true}, secrets_encryption_config: {enabled: true, custom_config: {resources: [{resources: [secrets], providers: [{kms: {name: a, endpoint: b}}, {identity: {}}]}]}}}, kubeproxy: {extra_args: {proxy-mode: nftables}}, kubelet: {extra_args: {node-labels: 'node.kubernetes.io/a=b,example.com/kubernetes.io=a,topology.kubernetes.io/zone=z', enforce-node-allocatable: 'pods,kube-reserved', kube-reserved-cgroup: /a}}}",
    );
    fits(
        "v1.28.15",
        "{kube-controller: {extra_args: {cloud-provider: azure}}, kubeproxy: {extra_args: {proxy-mode: ipvs}}}",
    );
    assert_snapshot!(unfit("v1.30.7", "{kubeproxy: {extra_args: {proxy-mode: nftables}}}"), @"
    `services.kubeproxy.extra_args.proxy-mode` (line 9): needs the feature gate `NFTablesProxyMode` before 1.31
      write `feature-gates: NFTablesProxyMode=true`, too
    ");
    fits(
        "v1.30.7",
        "{kubeproxy: {extra_args: {proxy-mode: nftables, feature-gates: NFTablesProxyMode=true}}}",
    );
}

/// A house build may have patches: what our lists do not know is a warning there.
#[test]
fn an_image_of_the_owners_own_may_know_more() {
    let with = |image: &str| {
        and(&format!(
            "kubernetes_version: v1.34.4\nservices: {{kubelet: {{extra_args: {{house-flag: a}}}}}}\nsystem_images: {{kubernetes: '{image}'}}\naddons: '{{apiVersion: apps/v1beta1, kind: Deployment, metadata: {{name: a}}}}'\n"
        ))
    };
    let resolved = good(&with("registry.example.com/house/kubernetes:7"));
    let said: Vec<_> = resolved.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert_snapshot!(bad(&with("registry.example.com/mirror/hardened-kubernetes:v1.34.4-rke2r1-build20260127")), @"
    `services.kubelet.extra_args.house-flag` (line 9): kubelet has no such flag
      remove it: kubelet would not start with it
    `addons` (line 11): document 1, line 1: Kubernetes 1.34 does not serve `apps/v1beta1`
      write `apps/v1`; `spec.selector` is required there
    ");
}

fn object(version: &str, more: &str, api_version: &str, kind: &str) -> String {
    and(&format!(
        "kubernetes_version: {version}\n{more}addons: |-\n  apiVersion: {api_version}\n  kind: {kind}\n  metadata: {{name: a}}\n"
    ))
}

#[test]
fn manifests_of_what_is_not_served() {
    let told = |api_version, kind| bad(&object("v1.34.4", "", api_version, kind));
    assert_snapshot!(told("extensions/v1beta1", "Deployment"), @"
    `addons` (line 9): document 1, line 1: Kubernetes 1.34 does not serve `extensions/v1beta1`
      write `apps/v1`; `spec.selector` is required there
    ");
    assert_snapshot!(told("policy/v1beta1", "PodSecurityPolicy"), @"
    `addons` (line 9): document 1, line 1: Kubernetes 1.34 does not serve `policy/v1beta1`
      remove it: Kubernetes has none since 1.25; Pod Security is set with `pod_security_configuration`
    ");
    assert_snapshot!(told("batch/v1beta1", "CronJob"), @"
    `addons` (line 9): document 1, line 1: Kubernetes 1.34 does not serve `batch/v1beta1`
      write `batch/v1`
    ");
    assert_snapshot!(told("apps/v3", "Deployment"), @"
    `addons` (line 9): document 1, line 1: Kubernetes 1.34 does not serve this `apiVersion`
      write `apps/v1`; `spec.selector` is required there
    ");
    assert_snapshot!(told("apps/v1", "Ingress"), @"
    `addons` (line 9): document 1, line 1: `apps/v1` has no such kind
      its kinds are `ControllerRevision`, `DaemonSet`, `Deployment`, `ReplicaSet`, `StatefulSet`
    ");
    assert_snapshot!(told("certificates.k8s.io/v1beta1", "ClusterTrustBundle"), @"
    `addons` (line 9): document 1, line 1: Kubernetes 1.34 does not serve `certificates.k8s.io/v1beta1`
      `runtime-config: certificates.k8s.io/v1beta1=true` under `services.kube-api.extra_args` switches it on
    ");
    assert_snapshot!(bad(&object("v1.32.13", "", "networking.k8s.io/v1", "ServiceCIDR")), @"
    `addons` (line 9): document 1, line 1: `networking.k8s.io/v1` has the kind `ServiceCIDR` since 1.33; this is 1.32
      ask for a newer release
    ");
    assert_snapshot!(bad(&object("v1.32.13", "", "flowcontrol.apiserver.k8s.io/v1beta3", "FlowSchema")), @"
    `addons` (line 9): document 1, line 1: Kubernetes 1.32 does not serve `flowcontrol.apiserver.k8s.io/v1beta3`
      write `flowcontrol.apiserver.k8s.io/v1`
    ");

    for (api_version, kind) in [
        ("v1", "ConfigMap"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("networking.k8s.io/v1", "ServiceCIDR"),
        ("metrics.k8s.io/v1beta1", "NodeMetrics"),
        ("gateway.networking.k8s.io/v1beta1", "Gateway"),
        ("snapshot.storage.k8s.io/v1beta1", "VolumeSnapshot"),
        ("helm.cattle.io/v1", "HelmChart"),
    ] {
        good(&object("v1.34.4", "", api_version, kind));
    }
    for on in [
        "api/all=true",
        "api/beta=true",
        "certificates.k8s.io/v1beta1/clustertrustbundles=true",
    ] {
        let more = format!("services: {{kube-api: {{extra_args: {{runtime-config: '{on}'}}}}}}\n");
        good(&object(
            "v1.34.4",
            &more,
            "certificates.k8s.io/v1beta1",
            "ClusterTrustBundle",
        ));
    }
    good(&object(
        "v1.31.2",
        "",
        "flowcontrol.apiserver.k8s.io/v1beta3",
        "FlowSchema",
    ));
}

/// Every flag, gate and plugin of the lists is taken in each release that has it, and in no other.
#[test]
fn the_lists_decide_what_fits() {
    const RELEASES: [(&str, u16); 4] = [
        ("v1.28.15", 28),
        ("v1.31.2", 31),
        ("v1.34.4", 34),
        ("v1.36.3", 36),
    ];
    const KEYS: [(&str, Program); 5] = [
        ("kube-api", Program::ApiServer),
        ("kube-controller", Program::ControllerManager),
        ("scheduler", Program::Scheduler),
        ("kubelet", Program::Kubelet),
        ("kubeproxy", Program::Proxy),
    ];
    for (version, minor) in RELEASES {
        let release = Minor { major: 1, minor };
        for (key, program) in KEYS {
            let flags: serde_json::Map<_, _> = accepts::flags(program, release)
                .map(|name| (name.to_owned(), "".into()))
                .collect();
            assert!(flags.len() > 50, "{key} {version}");
            fits(
                version,
                &serde_json::json!({ key: {"extra_args": flags} }).to_string(),
            );
        }
        let gates: Vec<String> = accepts::gates(release)
            .map(|(name, gate)| {
                let locked = gate.locked.filter(|(from, _)| release >= *from);
                format!("{name}={}", locked.is_none_or(|(_, to)| to))
            })
            .collect();
        let of = serde_json::json!({"kubelet": {"extra_args": {"feature-gates": gates.join(",")}}});
        fits(version, &of.to_string());
    }
}

/// A cluster whose config names no release keeps its own, and what that one cannot run is known before anything is done.
#[test]
fn what_the_release_of_the_cluster_cannot_run() {
    let yaml = and(
        "services: {kube-api: {extra_args: {authorization-config: /a}}}\naddons: '{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: a}}'\n",
    );
    let intent = good(&yaml).intent;
    assert_eq!(intent.unfit(), None);
    let catalogue = crate::catalog::Catalogue::builtin().expect("the catalogue");
    let mut oldest = catalogue.versions();
    let kept = intent.keeping(oldest.next().expect("a release"), catalogue);
    let problems = kept.expect("an intent").unfit().expect("problems");
    assert_snapshot!(problems, @"the config has 2 problems: `services.kube-api.extra_args.authorization-config`: kube-apiserver has this flag since 1.29; this is 1.28; `addons`: Kubernetes 1.28 does not serve `resource.k8s.io/v1`");
}

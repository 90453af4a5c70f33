//! What to write instead of what a release does not have any more. Pure data.

use crate::catalog::accepts::Program;

const LOG: &str = "remove it: logs go to stderr, and Docker keeps them";
const INSECURE: &str = "remove it: there is no port without TLS any more; `secure-port` and `bind-address` are for the other";
const DOCKERSHIM: &str = "remove it: kubelet runs pods on containerd";
const CONFIG: &str = "write a KubeSchedulerConfiguration, and name its file with `config`";
const CLOUD: &str = "remove it: the cloud's own controller manager has it";
const EVICTION: &str = "remove it; `default-not-ready-toleration-seconds` and `default-unreachable-toleration-seconds` under `services.kube-api.extra_args` have the effect";
const PSP: &str = "remove it; Pod Security is set with `pod_security_configuration`";

/// By program; none: by any of Kubernetes.
const FLAGS: &[(Option<Program>, &[&str], &str)] = &[
    (
        None,
        &[
            "logtostderr",
            "alsologtostderr",
            "log-dir",
            "log-file",
            "log-file-max-size",
            "log-backtrace-at",
            "stderrthreshold",
            "skip-headers",
            "skip-log-headers",
            "add-dir-header",
            "one-output",
        ],
        LOG,
    ),
    (
        None,
        &["port", "address", "insecure-port", "insecure-bind-address"],
        INSECURE,
    ),
    (
        None,
        &[
            "cloud-provider-gce-lb-src-cidrs",
            "cloud-provider-gce-l7lb-src-cidrs",
        ],
        CLOUD,
    ),
    (
        Some(Program::ApiServer),
        &["cloud-provider", "cloud-config"],
        "remove it here: kubelet and kube-controller-manager have it",
    ),
    (
        Some(Program::ApiServer),
        &["experimental-encryption-provider-config"],
        "write `secrets_encryption_config` next to `extra_args`, or the flag `encryption-provider-config`",
    ),
    (
        Some(Program::ApiServer),
        &["basic-auth-file"],
        "remove it; `token-auth-file`, OIDC and client certificates are left",
    ),
    (
        Some(Program::ApiServer),
        &["service-account-api-audiences"],
        "write `api-audiences`",
    ),
    (
        Some(Program::ApiServer),
        &["etcd-quorum-read"],
        "remove it: every read is such a read",
    ),
    (
        Some(Program::ControllerManager),
        &["pod-eviction-timeout", "enable-taint-manager"],
        EVICTION,
    ),
    (
        Some(Program::ControllerManager),
        &["experimental-cluster-signing-duration"],
        "write `cluster-signing-duration`",
    ),
    (
        Some(Program::ControllerManager),
        &[
            "horizontal-pod-autoscaler-upscale-delay",
            "horizontal-pod-autoscaler-downscale-delay",
        ],
        "write `horizontal-pod-autoscaler-downscale-stabilization`",
    ),
    (
        Some(Program::Scheduler),
        &[
            "policy-config-file",
            "policy-configmap",
            "policy-configmap-namespace",
            "use-legacy-policy-config",
            "algorithm-provider",
            "scheduler-name",
            "hard-pod-affinity-symmetric-weight",
        ],
        CONFIG,
    ),
    (
        Some(Program::Scheduler),
        &["lock-object-name"],
        "write `leader-elect-resource-name`",
    ),
    (
        Some(Program::Scheduler),
        &["lock-object-namespace"],
        "write `leader-elect-resource-namespace`",
    ),
    (
        Some(Program::Kubelet),
        &["network-plugin-mtu"],
        "remove it; the MTU of pods is `network.mtu`",
    ),
    (
        Some(Program::Kubelet),
        &[
            "network-plugin",
            "cni-conf-dir",
            "cni-bin-dir",
            "cni-cache-dir",
            "docker",
            "docker-endpoint",
            "docker-root",
            "docker-only",
            "docker-env-metadata-whitelist",
            "docker-tls",
            "docker-tls-ca",
            "docker-tls-cert",
            "docker-tls-key",
            "image-pull-progress-deadline",
            "experimental-dockershim-root-directory",
            "experimental-dockershim",
            "container-runtime",
        ],
        DOCKERSHIM,
    ),
    (
        Some(Program::Kubelet),
        &["pod-infra-container-image"],
        "remove it; the pause image is `system_images.pod_infra_container`",
    ),
    (
        Some(Program::Kubelet),
        &["experimental-fail-swap-on"],
        "write `fail_swap_on` next to `extra_args`",
    ),
    (
        Some(Program::Kubelet),
        &["experimental-bootstrap-kubeconfig"],
        "write `bootstrap-kubeconfig`",
    ),
    (
        Some(Program::Kubelet),
        &["experimental-kernel-memcg-notification"],
        "write `kernel-memcg-notification`",
    ),
    (
        Some(Program::Kubelet),
        &["experimental-allowed-unsafe-sysctls"],
        "write `allowed-unsafe-sysctls`",
    ),
    (
        Some(Program::Kubelet),
        &["register-schedulable"],
        "write `register-with-taints`, or `taints` of the node",
    ),
    (
        Some(Program::Kubelet),
        &[
            "allow-privileged",
            "host-ipc-sources",
            "host-network-sources",
            "host-pid-sources",
        ],
        PSP,
    ),
    (
        Some(Program::Kubelet),
        &["azure-container-registry-config"],
        "let kubelet run an image credential provider",
    ),
    (Some(Program::Kubelet), &["cloud-config"], CLOUD),
    (
        Some(Program::Proxy),
        &["cleanup-iptables", "cleanup-ipvs"],
        "write `cleanup`",
    ),
    (
        Some(Program::Proxy),
        &["conntrack-max"],
        "write `conntrack-max-per-core`",
    ),
    (Some(Program::Etcd), &["ca-file"], "write `trusted-ca-file`"),
    (
        Some(Program::Etcd),
        &["peer-ca-file"],
        "write `peer-trusted-ca-file`",
    ),
    (Some(Program::Etcd), &["debug"], "write `log-level: debug`"),
    (Some(Program::Etcd), &["log-output"], "write `log-outputs`"),
    (
        Some(Program::Etcd),
        &["experimental-backend-bbolt-freelist-type"],
        "write `backend-bbolt-freelist-type`",
    ),
    (
        Some(Program::Etcd),
        &["experimental-compact-hash-check-enabled"],
        "write `feature-gates: CompactHashCheck=true`",
    ),
    (
        Some(Program::Etcd),
        &["experimental-initial-corrupt-check"],
        "write `feature-gates: InitialCorruptCheck=true`",
    ),
    (
        Some(Program::Etcd),
        &["experimental-enable-lease-checkpoint"],
        "write `feature-gates: LeaseCheckpoint=true`",
    ),
];

/// The better flag, or why there is none.
pub(super) fn of_flag(program: Program, name: &str) -> Option<&'static str> {
    let of_etcd = program == Program::Etcd;
    let row = FLAGS
        .iter()
        .find(|(of, names, _)| of.map_or(!of_etcd, |of| of == program) && names.contains(&name));
    match row {
        Some((_, _, text)) => Some(text),
        None if of_etcd && name.starts_with("experimental-") => {
            Some("write it without `experimental-`")
        }
        None => None,
    }
}

/// What does the work of an admission plugin that is gone.
pub(super) fn of_plugin(name: &str) -> Option<&'static str> {
    Some(match name {
        "PodSecurityPolicy"
        | "DenyEscalatingExec"
        | "DenyExecOnPrivileged"
        | "SecurityContextDeny" => PSP,
        "PersistentVolumeLabel" => CLOUD,
        "GenericAdmissionWebhook" => "write `ValidatingAdmissionWebhook`, which is on by default",
        "PVCProtection" => "write `StorageObjectInUseProtection`, which is on by default",
        "Initializers" | "PodPreset" => "remove it: a mutating webhook does such things",
        _ => return None,
    })
}

/// The group and version that has the kind now, and what changes in the object.
pub(super) fn of_kind(group: &str, kind: &str) -> Option<&'static str> {
    Some(match (group, kind) {
        ("extensions" | "apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet") => {
            "write `apps/v1`; `spec.selector` is required there"
        }
        ("extensions", "NetworkPolicy") => "write `networking.k8s.io/v1`",
        ("extensions" | "networking.k8s.io", "Ingress") => {
            "write `networking.k8s.io/v1`; `pathType` is required there, and a backend is `service.name` and \
             `service.port.number`"
        }
        ("extensions" | "policy", "PodSecurityPolicy") => {
            "remove it: Kubernetes has none since 1.25; Pod Security is set with `pod_security_configuration`"
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            "write `apiextensions.k8s.io/v1`; each of `spec.versions` needs a `schema` there"
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => {
            "write `admissionregistration.k8s.io/v1`; `sideEffects` and `admissionReviewVersions` are required there"
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            "write `certificates.k8s.io/v1`; `signerName` and `usages` are required there"
        }
        ("settings.k8s.io", _) => "remove it: a mutating webhook does such things",
        ("auditregistration.k8s.io", _) => {
            "remove it; the audit policy is `services.kube-api.audit_log`"
        }
        ("autoscaling", "HorizontalPodAutoscaler") => {
            "write `autoscaling/v2`; `targetAverageUtilization` is `target.averageUtilization` there"
        }
        _ => return None,
    })
}

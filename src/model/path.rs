//! Paths on a node. Pure.

/// Configuration and certificates.
pub const KUBERNETES: &str = "/etc/kubernetes";
/// Certificates, keys and kubeconfigs, as in RKE.
pub const SSL: &str = "/etc/kubernetes/ssl";
/// What is trusted as the cluster's authority.
pub const CLUSTER_CA: &str = "/etc/kubernetes/ssl/kube-ca.pem";
/// What vouches for clients of the API server and for kubelets: the cluster's authority, and the one that signs approved
/// requests.
pub const CLUSTER_AND_SIGNER_CA: &str = "/etc/kubernetes/ssl/kube-ca-and-signer.pem";
/// What is trusted as etcd's authority.
pub const ETCD_CA: &str = "/etc/kubernetes/ssl/kube-etcd-ca.pem";
/// What is trusted as the front proxy's authority.
pub const FRONT_PROXY_CA: &str = "/etc/kubernetes/ssl/kube-apiserver-requestheader-ca.pem";
/// The certificate of what signs approved requests.
pub const SIGNER_CA: &str = "/etc/kubernetes/ssl/kube-signer-ca.pem";
/// Signs the tokens of service accounts (0600).
pub const SERVICE_ACCOUNT_KEY: &str = "/etc/kubernetes/ssl/kube-service-account-token-key.pem";
/// The public keys that verify them.
pub const SERVICE_ACCOUNT_PUBLIC: &str = "/etc/kubernetes/ssl/kube-service-account-token.pem";
/// The copy of the state that control planes keep (0600).
pub const STATE: &str = "/etc/kubernetes/rke-operator-state.json";
/// The id of the cluster that claimed the node, readable for everyone: it is no secret, and is known
/// even when Docker has lost the claim.
pub const CLUSTER_ID: &str = "/etc/kubernetes/rke-operator-cluster-id";
/// What the claim remembers, once more (0600): Docker may lose its containers.
pub const NODE_RECORD: &str = "/etc/kubernetes/rke-operator-node.json";
/// The images that were in containerd's namespace `k8s.io` before rke-operator imported its first one (0600).
pub const K8S_IMAGES: &str = "/etc/containerd/rke-operator-k8s-images";
/// The images that a bundle brought to the node's containerd, as containerd names them, one a line: what was put there once is
/// not put there again.
pub const POD_IMAGES: &str = "/etc/kubernetes/rke-operator-pod-images";
/// An archive of an image on its way into containerd, below containerd's root.
pub const IMAGE_ARCHIVE: &str = "rke-operator-image.tar";
/// nginx-proxy's folder, which its container binds.
pub const PROXY: &str = "/etc/kubernetes/nginx-proxy";
/// What nginx-proxy reads.
pub const PROXY_CONFIG: &str = "/etc/kubernetes/nginx-proxy/nginx.conf";
/// The digest of the [`PROXY_CONFIG`] that nginx-proxy was last signalled to reload.
pub const PROXY_READ: &str = "/etc/kubernetes/nginx-proxy/read";
/// What kube-apiserver writes into its audit log.
pub const AUDIT_POLICY: &str = "/etc/kubernetes/audit-policy.yaml";
/// The configuration of kube-apiserver's admission plugins. Not named `admission.yaml` as RKE's: that may be a
/// file of the user's, set with a flag in `extra_args`.
pub const ADMISSION: &str = "/etc/kubernetes/rke-operator-admission.yaml";
/// The encryption configuration of kube-apiserver (0600). Not named `encryption.yaml` as RKE's, for the same reason.
pub const ENCRYPTION: &str = "/etc/kubernetes/rke-operator-encryption.yaml";
/// How kube-apiserver reaches the webhook that authenticates tokens (0600). Not named as RKE's, for the same reason.
pub const WEBHOOK: &str = "/etc/kubernetes/rke-operator-token-webhook.yaml";
/// The file of a cloud's controller manager, as in RKE: it mounts it under this name.
pub const CLOUD_CONFIG: &str = "/etc/kubernetes/cloud-config";
/// What only nodes with a control plane have, and only nodes without, besides certificates; and what only some
/// configs ask for.
pub const OF_A_ROLE: [&str; 9] = [
    STATE,
    AUDIT_POLICY,
    ADMISSION,
    ENCRYPTION,
    WEBHOOK,
    PROXY_CONFIG,
    PROXY_READ,
    REGISTRIES,
    SNAPSHOT_SETTINGS,
];
/// etcd's data on the node.
pub const ETCD: &str = "/var/lib/etcd";
/// Snapshots of etcd, as in RKE.
pub const SNAPSHOTS: &str = "/opt/rke/etcd-snapshots";
/// Where the program that takes them restores one for trial, in memory: only in its container.
pub const PROOF: &str = "/run/rke-operator-proof";
/// What the program that takes them works with. Nothing secret.
pub const SNAPSHOT_SETTINGS: &str = "/etc/kubernetes/rke-operator-snapshots.json";
/// What etcd writes below [`ETCD`]: it is there once a member was made, and is on the same disk.
pub const ETCD_MEMBER: &str = "/var/lib/etcd/member";
/// kube-apiserver's audit log.
pub const AUDIT_LOG: &str = "/var/log/kube-audit";
/// kubelet's root.
pub const KUBELET: &str = "/var/lib/kubelet";
/// rke-operator's containerd configuration, next to the package's.
pub const CONTAINERD_CONFIG: &str = "/etc/containerd/rke-operator.toml";
/// Points containerd at [`CONTAINERD_CONFIG`]. systemd reads drop-ins by name, and the last
/// `ExecStart` counts: this one comes after `override.conf`, which `systemctl edit` writes.
pub const CONTAINERD_DROP_IN: &str =
    "/etc/systemd/system/containerd.service.d/zz-rke-operator.conf";
/// Where it was in the first release.
pub const FORMER_DROP_IN: &str = "/etc/systemd/system/containerd.service.d/50-rke-operator.conf";
/// The authorities by which Docker knows registries: a folder each.
pub const DOCKER_CERTS_D: &str = "/etc/docker/certs.d";
/// The name of rke-operator's file in such a folder, which no package and no person uses.
const AUTHORITY: &str = "rke-operator.crt";
/// Where kubelet looks for the logins to registries: a link to [`REGISTRIES`].
pub const KUBELET_LOGINS: &str = "/var/lib/kubelet/config.json";
/// The logins with which kubelet pulls images for pods (0600). In a folder that a survey reads.
pub const REGISTRIES: &str = "/etc/kubernetes/rke-operator-registries.json";
/// How containerd reaches a registry: a folder each.
pub const CERTS_D: &str = "/etc/containerd/certs.d";
/// Modules at boot.
pub const MODULES_LOAD: &str = "/etc/modules-load.d/rke-operator.conf";
/// Sysctls at boot.
pub const SYSCTL: &str = "/etc/sysctl.d/99-rke-operator.conf";

/// rke-operator's file with the authority by which Docker knows a registry.
pub fn docker_authority(host: &str) -> String {
    format!("{DOCKER_CERTS_D}/{host}/{AUTHORITY}")
}

/// What only other distributions of Kubernetes write: kubeadm, k3s, RKE2, k0s, `MicroK8s`.
pub const OF_ANOTHER_KUBERNETES: [&str; 17] = [
    "/etc/kubernetes/admin.conf",
    "/etc/kubernetes/bootstrap-kubelet.conf",
    "/etc/kubernetes/controller-manager.conf",
    "/etc/kubernetes/kubelet.conf",
    "/etc/kubernetes/pki",
    "/etc/kubernetes/scheduler.conf",
    "/etc/kubernetes/super-admin.conf",
    "/etc/rancher/k3s/k3s.yaml",
    "/etc/rancher/rke2/rke2.yaml",
    "/var/lib/k0s",
    "/var/lib/kubelet/config.yaml",
    "/var/lib/kubelet/kubeadm-flags.env",
    "/var/lib/rancher/k3s/agent",
    "/var/lib/rancher/k3s/server",
    "/var/lib/rancher/rke2/agent",
    "/var/lib/rancher/rke2/server",
    "/var/snap/microk8s/current",
];
/// Where the kubelet of other distributions finds its static pods.
pub const STATIC_MANIFESTS: &str = "/etc/kubernetes/manifests";

/// True for such files.
pub fn is_docker_authority(path: &str) -> bool {
    let below = path.strip_prefix(DOCKER_CERTS_D);
    let below = below.and_then(|rest| rest.strip_prefix('/')?.split_once('/'));
    below.is_some_and(|(_, file)| file == AUTHORITY)
}

/// The names, without ending, of the certificates, keys and kubeconfigs that every node may have.
const CERTIFICATES: [&str; 15] = [
    "kube-apiserver",
    "kube-apiserver-etcd-client",
    "kube-apiserver-kubelet-client",
    "kube-apiserver-proxy-client",
    "kube-apiserver-requestheader-ca",
    "kube-ca",
    "kube-ca-and-signer",
    "kube-controller-manager",
    "kube-etcd-ca",
    "kube-etcd-snapshot",
    "kube-node",
    "kube-proxy",
    "kube-scheduler",
    "kube-service-account-token",
    "kube-signer-ca",
];

/// The authority of an external etcd, and the certificate and key for it, as in RKE.
pub const EXTERNAL_ETCD: [&str; 3] = [
    "/etc/kubernetes/ssl/kube-etcd-client-ca.pem",
    "/etc/kubernetes/ssl/kube-etcd-client.pem",
    "/etc/kubernetes/ssl/kube-etcd-client-key.pem",
];

/// The certificate of [`EXTERNAL_ETCD`], which the user supplies.
pub const EXTERNAL_ETCD_CERTIFICATE: &str = EXTERNAL_ETCD[1];

/// True for the files in [`SSL`] that rke-operator creates: those with a known name, and those with a node's
/// address in their name.
pub fn is_certificate(path: &str) -> bool {
    let Some(file) = path
        .strip_prefix(SSL)
        .and_then(|rest| rest.strip_prefix('/'))
    else {
        return false;
    };
    let stem = file
        .strip_suffix("-key.pem")
        .or_else(|| file.strip_suffix(".pem"))
        .or_else(|| file.strip_prefix("kubecfg-")?.strip_suffix(".yaml"));
    let Some(stem) = stem else { return false };
    let address = stem
        .strip_prefix("kube-etcd-")
        .or_else(|| stem.strip_prefix("kube-kubelet-"));
    let of_a_node = address.is_some_and(|address| {
        address.contains('-') && address.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
    });
    CERTIFICATES.contains(&stem) || of_a_node
}

#[cfg(test)]
mod tests {
    use super::is_certificate;

    /// R7: users keep their own files in the same folder.
    #[test]
    fn only_known_names_are_certificates_of_the_cluster() {
        for ours in [
            "kube-ca.pem",
            "kube-apiserver-key.pem",
            "kubecfg-kube-node.yaml",
            "kube-etcd-10-0-0-2.pem",
            "kube-kubelet-fd00--2-key.pem",
            "kube-service-account-token-key.pem",
            "kube-signer-ca-key.pem",
            "kube-ca-and-signer.pem",
        ] {
            assert!(
                is_certificate(&format!("/etc/kubernetes/ssl/{ours}")),
                "{ours}"
            );
        }
        for theirs in [
            "/etc/kubernetes/ssl/oidc-ca.pem",
            "/etc/kubernetes/ssl/kube-oidc-ca.pem",
            "/etc/kubernetes/ssl/kube-etcd-client-of-people.pem",
            "/etc/kubernetes/ssl/webhook.yaml",
            "/etc/kubernetes/ssl/kube-ca.pem.bak",
            "/etc/kubernetes/ssl/mine/kube-ca.pem",
            "/etc/kubernetes/kube-ca.pem",
        ] {
            assert!(!is_certificate(theirs), "{theirs}");
        }
    }
}

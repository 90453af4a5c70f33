//! kube-apiserver. Pure.
//!
//! RKE's flags without those that are gone or only repeat a default, and with what RKE left open:
//! kubelets are verified, etcd has its own clients, issuer and audience are the standard ones.

use super::{
    ContainerSpec, DrawError, path,
    pki::Leaf,
    service::{Flags, Service, View, read_write},
    site::{Files, PUBLIC, Site, TLS_CIPHERS, host_port},
};
use crate::config::Role;

/// RKE's policy: who did what, never what was in it.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
";

/// The container and its files.
pub(super) fn draw(site: &Site<'_>) -> Result<(ContainerSpec, Files), DrawError> {
    let mut files = Files::new();
    let mut flags = basics(site);
    certificates(site, &mut flags, &mut files)?;
    audit(site, &mut flags, &mut files);
    Service {
        key: "kube-api",
        image: &site.intent.images.kubernetes,
        extras: &site.intent.services.kube_api,
        entrypoint: vec!["kube-apiserver".to_owned()],
        flags,
        files,
        view: View::OwnFiles,
        binds: vec![read_write(path::AUDIT_LOG, path::AUDIT_LOG)],
        env: Vec::new(),
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
    }
    .finish(site)
}

fn basics(site: &Site<'_>) -> Flags {
    let services = &site.intent.services;
    let (first, last) = services.service_node_port_range;
    let domain = &services.cluster_domain;
    let mut flags = Flags::from([
        ("allow-privileged", "true".to_owned()),
        ("anonymous-auth", "false".to_owned()),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("bind-address", "0.0.0.0".to_owned()),
        // Added to those that are on by default.
        ("enable-admission-plugins", "NodeRestriction".to_owned()),
        ("etcd-servers", etcd_servers(site)),
        (
            "kubelet-preferred-address-types",
            "InternalIP,ExternalIP,Hostname".to_owned(),
        ),
        ("profiling", "false".to_owned()),
        (
            "requestheader-allowed-names",
            "kube-apiserver-proxy-client".to_owned(),
        ),
        (
            "requestheader-extra-headers-prefix",
            "X-Remote-Extra-".to_owned(),
        ),
        ("requestheader-group-headers", "X-Remote-Group".to_owned()),
        ("requestheader-username-headers", "X-Remote-User".to_owned()),
        ("secure-port", "6443".to_owned()),
        // Without it open watches hold the server until Docker kills it, ten seconds later: long
        // enough for controller-manager and scheduler to lose their leases and exit.
        ("shutdown-watch-termination-grace-period", "2s".to_owned()),
        (
            "service-account-issuer",
            format!("https://kubernetes.default.svc.{domain}"),
        ),
        (
            "service-cluster-ip-range",
            services.service_cluster_ip_range.to_string(),
        ),
        ("service-node-port-range", format!("{first}-{last}")),
        ("tls-cipher-suites", TLS_CIPHERS.to_owned()),
    ]);
    let own = &site.node.internal_address;
    if own.parse::<std::net::IpAddr>().is_ok() {
        flags.set("advertise-address", own.as_str());
    }
    flags
}

fn certificates(site: &Site<'_>, flags: &mut Flags, files: &mut Files) -> Result<(), DrawError> {
    let ca = site.cluster_ca(files);
    flags.set("client-ca-file", ca.as_str());
    flags.set("kubelet-certificate-authority", ca);
    flags.set("etcd-cafile", site.etcd_ca(files));
    flags.set("requestheader-client-ca-file", site.front_proxy_ca(files));
    for (leaf, cert_flag, key_flag) in [
        (Leaf::ApiServer, "tls-cert-file", "tls-private-key-file"),
        (Leaf::ApiServerEtcdClient, "etcd-certfile", "etcd-keyfile"),
        (
            Leaf::ApiServerKubeletClient,
            "kubelet-client-certificate",
            "kubelet-client-key",
        ),
        (
            Leaf::FrontProxyClient,
            "proxy-client-cert-file",
            "proxy-client-key-file",
        ),
    ] {
        let (cert, key) = site.pair(leaf, files)?;
        flags.set(cert_flag, cert);
        flags.set(key_flag, key);
    }
    flags.set(
        "service-account-key-file",
        site.service_account_public(files),
    );
    flags.set(
        "service-account-signing-key-file",
        site.service_account_key(files),
    );
    Ok(())
}

fn audit(site: &Site<'_>, flags: &mut Flags, files: &mut Files) {
    let policy = format!("{}/audit-policy.yaml", path::KUBERNETES);
    files.insert(policy.clone(), site.file(AUDIT_POLICY, PUBLIC));
    flags.set("audit-policy-file", policy);
    flags.set(
        "audit-log-path",
        format!("{}/audit-log.json", path::AUDIT_LOG),
    );
    flags.set("audit-log-format", "json");
    flags.set("audit-log-maxage", "30");
    flags.set("audit-log-maxbackup", "10");
    flags.set("audit-log-maxsize", "100");
}

/// The node's own member first, without leaving the node; then the others.
fn etcd_servers(site: &Site<'_>) -> String {
    let own = site
        .node
        .roles
        .contains(&Role::Etcd)
        .then(|| "https://127.0.0.1:2379".to_owned());
    let others = site
        .intent
        .with_role(Role::Etcd)
        .filter(|(name, _)| *name != site.name)
        .map(|(_, node)| format!("https://{}", host_port(&node.internal_address, 2379)));
    own.into_iter().chain(others).collect::<Vec<_>>().join(",")
}

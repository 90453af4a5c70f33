//! kube-apiserver. Pure.
//!
//! RKE's flags without those that are gone or only repeat a default, and with what RKE left open:
//! kubelets are verified, etcd has its own clients, issuer and audience are the standard ones.

use super::{
    DesiredError, admission,
    host_context::{Files, HostContext, PRIVATE, PUBLIC, TLS_CIPHERS},
    pki::CertKind,
    service::{Flags, Service, View, read_write},
};
use crate::{
    config::{AuditLog, Authorization},
    model::{ContainerSpec, EtcdPlace, Owner, Role, path},
};

/// RKE's policy: who did what, never what was in it.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
";

/// The container and its files.
pub(super) fn container(context: &HostContext<'_>) -> Result<(ContainerSpec, Files), DesiredError> {
    let mut files = Files::new();
    let mut flags = basics(context);
    certificates(context, &mut flags, &mut files)?;
    etcd(context, &mut flags, &mut files)?;
    let services = &context.intent.services;
    let mut binds = Vec::new();
    if let Some(log) = &services.audit_log {
        audit(log, context, &mut flags, &mut files);
        binds.push(read_write(path::AUDIT_LOG, path::AUDIT_LOG));
    }
    if let Some(file) = admission::configuration(services) {
        files.insert(path::ADMISSION.to_owned(), context.file(file, PUBLIC));
        flags.set("admission-control-config-file", path::ADMISSION);
    }
    if let Some(webhook) = &context.intent.webhook {
        let text = webhook.config.expose().as_str();
        files.insert(path::WEBHOOK.to_owned(), context.file(text, PRIVATE));
        flags.set("authentication-token-webhook-config-file", path::WEBHOOK);
        flags.set(
            "authentication-token-webhook-cache-ttl",
            webhook.cache_timeout.as_str(),
        );
    }
    if let Some(text) = context.encryption {
        files.insert(path::ENCRYPTION.to_owned(), context.file(text, PRIVATE));
        flags.set("encryption-provider-config", path::ENCRYPTION);
    }
    Service {
        key: "kube-api",
        image: &context.intent.images.kubernetes,
        extras: &context.intent.services.kube_api,
        entrypoint: vec!["kube-apiserver".to_owned()],
        flags,
        bootstrap: Flags::default(),
        files,
        view: View::OwnFiles,
        binds,
        mounts: Vec::new(),
        env: [].into(),
        user: Owner::ROOT,
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
    }
    .finish(context)
}

fn basics(context: &HostContext<'_>) -> Flags {
    let services = &context.intent.services;
    let (first, last) = services.service_node_port_range;
    let authorization = match context.intent.authorization {
        Authorization::Rbac => "Node,RBAC",
        Authorization::None => "AlwaysAllow",
    };
    let mut flags = Flags::from([
        ("allow-privileged", "true".to_owned()),
        ("anonymous-auth", "false".to_owned()),
        ("authorization-mode", authorization.to_owned()),
        ("bind-address", "0.0.0.0".to_owned()),
        // Added to those that are on by default.
        ("enable-admission-plugins", admission::enabled(services)),
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
            "service-cluster-ip-range",
            services.service_cluster_ip_range.to_string(),
        ),
        ("service-node-port-range", format!("{first}-{last}")),
        ("tls-cipher-suites", TLS_CIPHERS.to_owned()),
    ]);
    // The first signs, all are accepted: tokens of an adopted cluster's issuer stay good.
    let issuers = &context.keys.saved.service_accounts.issuers;
    flags.set_all("service-account-issuer", issuers.iter().cloned());
    let audiences = &context.keys.saved.service_accounts.audiences;
    if !audiences.is_empty() {
        flags.set("api-audiences", audiences.join(","));
    }
    if let Some(own) = context.node.internal_address.ip() {
        flags.set("advertise-address", own.to_string());
    }
    flags
}

fn certificates(
    context: &HostContext<'_>,
    flags: &mut Flags,
    files: &mut Files,
) -> Result<(), DesiredError> {
    let ca = context.cluster_and_signer_ca(files);
    flags.set("client-ca-file", ca.as_str());
    flags.set("kubelet-certificate-authority", ca);
    flags.set(
        "requestheader-client-ca-file",
        context.front_proxy_ca(files),
    );
    for (kind, cert_flag, key_flag) in [
        (CertKind::ApiServer, "tls-cert-file", "tls-private-key-file"),
        (
            CertKind::ApiServerKubeletClient,
            "kubelet-client-certificate",
            "kubelet-client-key",
        ),
        (
            CertKind::FrontProxyClient,
            "proxy-client-cert-file",
            "proxy-client-key-file",
        ),
    ] {
        let (cert, key) = context.pair(kind, files)?;
        flags.set(cert_flag, cert);
        flags.set(key_flag, key);
    }
    flags.set(
        "service-account-key-file",
        context.service_account_public(files),
    );
    flags.set(
        "service-account-signing-key-file",
        context.service_account_key(files),
    );
    Ok(())
}

fn audit(log: &AuditLog, context: &HostContext<'_>, flags: &mut Flags, files: &mut Files) {
    let policy = path::AUDIT_POLICY;
    // JSON is YAML, too.
    let written = log.policy.as_ref().map(ToString::to_string);
    let text = written.unwrap_or_else(|| AUDIT_POLICY.to_owned());
    files.insert(policy.to_owned(), context.file(text, PUBLIC));
    flags.set("audit-policy-file", policy);
    flags.set(
        "audit-log-path",
        format!("{}/audit-log.json", path::AUDIT_LOG),
    );
    flags.set("audit-log-format", log.format.as_str());
    flags.set("audit-log-maxage", log.max_age.to_string());
    flags.set("audit-log-maxbackup", log.max_backup.to_string());
    flags.set("audit-log-maxsize", log.max_size.to_string());
}

/// Where etcd is, and who the API server is to it.
fn etcd(
    context: &HostContext<'_>,
    flags: &mut Flags,
    files: &mut Files,
) -> Result<(), DesiredError> {
    let (ca, (cert, key)) = match &context.intent.etcd {
        EtcdPlace::Nodes => {
            flags.set("etcd-servers", etcd_servers(context));
            let ca = context.etcd_ca(files);
            (ca, context.pair(CertKind::ApiServerEtcdClient, files)?)
        }
        EtcdPlace::External(etcd) => {
            flags.set("etcd-servers", etcd.servers());
            flags.set("etcd-prefix", etcd.prefix.as_str());
            context.external_etcd(&etcd.identity, files)
        }
    };
    flags.set("etcd-cafile", ca);
    flags.set("etcd-certfile", cert);
    flags.set("etcd-keyfile", key);
    Ok(())
}

/// The node's own member first, without leaving the node; then the others.
fn etcd_servers(context: &HostContext<'_>) -> String {
    let own = context
        .node
        .roles
        .contains(&Role::Etcd)
        .then(|| "https://127.0.0.1:2379".to_owned());
    let others = context
        .intent
        .with_role(Role::Etcd)
        .filter(|(name, _)| *name != context.name)
        .map(|(_, node)| format!("https://{}", node.internal_address.with_port(2379)));
    own.into_iter().chain(others).collect::<Vec<_>>().join(",")
}

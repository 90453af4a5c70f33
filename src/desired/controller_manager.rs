//! kube-controller-manager. Pure.
//!
//! It signs approved certificate requests with a dedicated authority. Its key is on control planes and
//! nowhere else. RKE signed none, unless a user's flags named the cluster CA's key; that key is on no
//! node here, so those two flags mean this authority ([`warnings`]).

use std::collections::BTreeMap;

use super::{
    DesiredError,
    host_context::{Files, HostContext},
    pki::CertKind,
    service::{Flags, Service, View},
};
use crate::{
    config::{Intent, ServiceExtras},
    model::{ContainerSpec, Owner},
};

/// The flags by which RKE's users turned signing on, with the paths that RKE's documentation gives.
const RKE_SIGNING: [(&str, &str); 2] = [
    (
        "cluster-signing-cert-file",
        "/etc/kubernetes/ssl/kube-ca.pem",
    ),
    (
        "cluster-signing-key-file",
        "/etc/kubernetes/ssl/kube-ca-key.pem",
    ),
];

/// The container and its files.
pub(super) fn container(context: &HostContext<'_>) -> Result<(ContainerSpec, Files), DesiredError> {
    let services = &context.intent.services;
    let mut files = Files::new();
    let kubeconfig = context.kubeconfig(CertKind::ControllerManager, &mut files)?;
    let mut flags = Flags::from([
        ("allocate-node-cidrs", "true".to_owned()),
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig.clone()),
        // Health and metrics for this node alone.
        ("bind-address", "127.0.0.1".to_owned()),
        ("cluster-cidr", services.cluster_cidr.to_string()),
        ("configure-cloud-routes", "false".to_owned()),
        // At the default of 20 requests a second its controllers start one every 150 ms, and none
        // works before all run.
        ("kube-api-burst", "400".to_owned()),
        ("kube-api-qps", "200".to_owned()),
        ("kubeconfig", kubeconfig),
        ("leader-elect", "true".to_owned()),
        ("node-monitor-grace-period", "40s".to_owned()),
        ("profiling", "false".to_owned()),
        ("root-ca-file", context.cluster_ca(&mut files)),
        (
            "service-account-private-key-file",
            context.service_account_key(&mut files),
        ),
        (
            "service-cluster-ip-range",
            services.service_cluster_ip_range.to_string(),
        ),
        ("terminated-pod-gc-threshold", "1000".to_owned()),
        ("use-service-account-credentials", "true".to_owned()),
        ("v", "2".to_owned()),
    ]);
    if context.intent.cloud_provider.is_some() {
        flags.set("cloud-provider", "external");
    }
    if let Some((cert, key)) = context.signer_ca(&mut files) {
        flags.set("cluster-signing-cert-file", cert);
        flags.set("cluster-signing-key-file", key);
    }
    Service {
        key: "kube-controller",
        image: &context.intent.images.kubernetes,
        extras: &without_rkes_signing(&services.kube_controller),
        entrypoint: vec!["kube-controller-manager".to_owned()],
        flags,
        bootstrap: Flags::default(),
        files,
        view: View::OwnFiles,
        binds: Vec::new(),
        mounts: Vec::new(),
        env: BTreeMap::new(),
        user: Owner::ROOT,
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
    }
    .finish(context)
}

fn without_rkes_signing(extras: &ServiceExtras) -> ServiceExtras {
    let mut extras = extras.clone();
    extras
        .extra_args
        .retain(|name, value| !RKE_SIGNING.contains(&(name.as_str(), value.as_str())));
    extras
}

/// What the plan says about flags that mean something else here than in RKE.
pub(super) fn warnings(intent: &Intent) -> Vec<String> {
    let given = &intent.services.kube_controller.extra_args;
    let named: Vec<String> = RKE_SIGNING
        .into_iter()
        .filter(|(name, value)| given.get(*name).is_some_and(|given| given == value))
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    if named.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "`services.kube-controller.extra_args`: {} with RKE's path means the CA of certificate \
         requests here: the cluster CA's key is on no node; approved requests are signed without \
         these flags too",
        named.join(" and ")
    )]
}

//! kube-controller-manager. Pure. It has no CA key: signing of certificate requests is off, as in
//! RKE, unless a user's flags turn it on.

use super::{
    ContainerSpec, DrawError,
    pki::Leaf,
    service::{Flags, Service, View},
    site::{Files, Site},
};

/// The container and its files.
pub(super) fn draw(site: &Site<'_>) -> Result<(ContainerSpec, Files), DrawError> {
    let services = &site.intent.services;
    let mut files = Files::new();
    let kubeconfig = site.kubeconfig(Leaf::ControllerManager, &mut files)?;
    let flags = Flags::from([
        ("allocate-node-cidrs", "true".to_owned()),
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig.clone()),
        // Health and metrics for this node alone.
        ("bind-address", "127.0.0.1".to_owned()),
        ("cluster-cidr", services.cluster_cidr.to_string()),
        ("configure-cloud-routes", "false".to_owned()),
        ("kubeconfig", kubeconfig),
        ("leader-elect", "true".to_owned()),
        ("node-monitor-grace-period", "40s".to_owned()),
        ("profiling", "false".to_owned()),
        ("root-ca-file", site.cluster_ca(&mut files)),
        (
            "service-account-private-key-file",
            site.service_account_key(&mut files),
        ),
        (
            "service-cluster-ip-range",
            services.service_cluster_ip_range.to_string(),
        ),
        ("terminated-pod-gc-threshold", "1000".to_owned()),
        ("use-service-account-credentials", "true".to_owned()),
        ("v", "2".to_owned()),
    ]);
    Service {
        key: "kube-controller",
        image: &site.intent.images.kubernetes,
        extras: &services.kube_controller,
        entrypoint: vec!["kube-controller-manager".to_owned()],
        flags,
        files,
        view: View::OwnFiles,
        binds: Vec::new(),
        env: Vec::new(),
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
    }
    .finish(site)
}

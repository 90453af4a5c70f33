//! kube-proxy: on every node, with a separate client certificate for each. Pure.

use super::{
    DesiredError,
    host_context::{Files, HostContext},
    pki::CertKind,
    service::{Flags, Service, View, read_only, read_write},
};
use crate::model::{ContainerSpec, Owner};

/// The container and its files.
pub(super) fn container(context: &HostContext<'_>) -> Result<(ContainerSpec, Files), DesiredError> {
    let mut files = Files::new();
    let kubeconfig = context.kubeconfig(CertKind::KubeProxy, &mut files)?;
    let flags = Flags::from([
        (
            "cluster-cidr",
            context.intent.services.cluster_cidr.to_string(),
        ),
        ("healthz-bind-address", "127.0.0.1:10256".to_owned()),
        ("hostname-override", context.name.to_string()),
        ("kubeconfig", kubeconfig),
        ("v", "2".to_owned()),
    ]);
    Service {
        key: "kubeproxy",
        image: &context.intent.images.kubernetes,
        extras: &context.intent.services.kubeproxy,
        entrypoint: vec!["kube-proxy".to_owned()],
        flags,
        bootstrap: Flags::default(),
        files,
        view: View::OwnFiles,
        binds: vec![
            read_only("/lib/modules"),
            // For xtables.lock, which iptables on the node takes too. The folder, because the file
            // is gone after a reboot, and Docker would make a folder in its place.
            read_write("/run", "/run"),
        ],
        mounts: Vec::new(),
        env: [].into(),
        // Rules, sysctls and conntrack of the node. Its root file system stays writable: the image
        // picks iptables' legacy or nft variant by setting links.
        user: Owner::ROOT,
        privileged: true,
        host_pid: false,
        host_cgroupns: false,
    }
    .finish(context)
}

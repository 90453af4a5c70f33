//! kube-scheduler. Pure.

use super::{
    ContainerSpec, DrawError,
    pki::Leaf,
    service::{Flags, Service, View},
    site::{Files, Site},
};

/// The container and its files.
pub(super) fn draw(site: &Site<'_>) -> Result<(ContainerSpec, Files), DrawError> {
    let mut files = Files::new();
    let kubeconfig = site.kubeconfig(Leaf::Scheduler, &mut files)?;
    let flags = Flags::from([
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig.clone()),
        // Health and metrics for this node alone.
        ("bind-address", "127.0.0.1".to_owned()),
        ("kubeconfig", kubeconfig),
        ("leader-elect", "true".to_owned()),
        ("profiling", "false".to_owned()),
        ("v", "2".to_owned()),
    ]);
    Service {
        key: "scheduler",
        image: &site.intent.images.kubernetes,
        extras: &site.intent.services.scheduler,
        entrypoint: vec!["kube-scheduler".to_owned()],
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

//! kube-scheduler. Pure.

use super::{
    DesiredError,
    host_context::{Files, HostContext},
    pki::CertKind,
    service::{Flags, Service, View},
};
use crate::model::{ContainerSpec, Owner};

/// The container and its files.
pub(super) fn container(context: &HostContext<'_>) -> Result<(ContainerSpec, Files), DesiredError> {
    let mut files = Files::new();
    let kubeconfig = context.kubeconfig(CertKind::Scheduler, &mut files)?;
    let flags = Flags::from([
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig.clone()),
        // Health and metrics for this node alone.
        ("bind-address", "127.0.0.1".to_owned()),
        ("kube-api-burst", "400".to_owned()),
        ("kube-api-qps", "200".to_owned()),
        ("kubeconfig", kubeconfig),
        ("leader-elect", "true".to_owned()),
        ("profiling", "false".to_owned()),
        ("v", "2".to_owned()),
    ]);
    Service {
        key: "scheduler",
        image: &context.intent.images.kubernetes,
        extras: &context.intent.services.scheduler,
        entrypoint: vec!["kube-scheduler".to_owned()],
        flags,
        bootstrap: Flags::default(),
        files,
        view: View::OwnFiles,
        binds: Vec::new(),
        mounts: Vec::new(),
        env: [].into(),
        user: Owner::ROOT,
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
    }
    .finish(context)
}

//! What takes recurring snapshots of etcd next to each member. Pure.
//!
//! The image is the published one that has etcdutl, the program is this one: it is put into the container before the
//! container starts, so that nothing has to be published, pulled or cleaned up for it. As in RKE the container's name is
//! `etcd-rolling-snapshots`.

use std::collections::BTreeSet;

use super::{
    DesiredError,
    host_context::{Files, HostContext, PRIVATE},
    pki::CertKind,
    service::{Flags, Service, View, read_write},
};
use crate::{
    config::ServiceExtras,
    desired::etcd_tools,
    model::{Component, ContainerSpec, Owner, Role, path},
    snapshots::settings::Settings,
};

/// The command of this program that takes them.
pub const COMMAND: &str = "snapshot-agent";

/// True for a node with etcd that can run the program, and has a certificate for it.
pub(super) fn runs_on(context: &HostContext<'_>) -> bool {
    let leaf = (context.name.clone(), CertKind::EtcdSnapshot);
    wanted(context) && has_program(context) && context.keys.leaves.contains_key(&leaf)
}

/// True where snapshots are wanted.
fn wanted(context: &HostContext<'_>) -> bool {
    let policy = context.intent.services.snapshots.as_ref();
    policy.is_some() && context.node.roles.contains(&Role::Etcd)
}

/// True where this process has a program that the node can run.
fn has_program(context: &HostContext<'_>) -> bool {
    let machine = context
        .facts
        .map(|facts| facts.docker.architecture.as_str());
    let program = context.intent.agent.as_ref();
    program.is_some_and(|program| machine.is_none_or(|machine| machine == program.architecture))
}

/// What another rke-operator, which has a program, may have made there.
pub(super) fn kept(context: &HostContext<'_>) -> BTreeSet<Component> {
    let kept = wanted(context) && !has_program(context);
    kept.then_some(Component::Snapshots).into_iter().collect()
}

/// The container and its files.
pub(super) fn container(context: &HostContext<'_>) -> Result<(ContainerSpec, Files), DesiredError> {
    let mut files = Files::new();
    let ca = context.etcd_ca(&mut files);
    let (cert, key) = context.pair(CertKind::EtcdSnapshot, &mut files)?;
    let mut entrypoint = Vec::new();
    if let Some((policy, program)) = context.intent.recurring_snapshots() {
        let saved = &context.keys.saved;
        let settings = Settings {
            cluster_id: saved.cluster_id.clone(),
            cluster_name: saved.cluster_name.clone(),
            node: context.name.clone(),
            kubernetes_version: context.intent.version.to_string(),
            policy: policy.clone(),
            bucket: context.intent.services.snapshot_bucket.as_deref().cloned(),
            ca,
            cert,
            key,
        };
        // Plain data: writing it cannot fail.
        let text = serde_json::to_string_pretty(&settings).unwrap_or_default() + "\n";
        files.insert(
            path::SNAPSHOT_SETTINGS.to_owned(),
            context.file(text, PRIVATE),
        );
        entrypoint = vec![program.place(), COMMAND.to_owned()];
    }
    let none = ServiceExtras::default();
    let (mut spec, files) = Service {
        key: "etcd",
        image: &etcd_tools(context.intent),
        extras: &none,
        entrypoint,
        flags: Flags::default(),
        bootstrap: Flags::default(),
        files,
        view: View::OwnFiles,
        binds: vec![read_write(path::SNAPSHOTS, path::SNAPSHOTS)],
        mounts: Vec::new(),
        env: [].into(),
        user: Owner::ROOT,
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
    }
    .finish(context)?;
    spec.tmpfs.push(path::PROOF.to_owned());
    // It owns its folder, and that is all that it needs.
    spec.cap_drop.push("ALL".to_owned());
    spec.security_opts.push("no-new-privileges".to_owned());
    Ok((spec, files))
}

//! What rke-operator owns, what exists, and is no longer wanted. Pure. No object is pruned while the API does
//! not answer, and nothing is pruned on a host that does not.

use std::collections::BTreeSet;

use super::{addons, hosts, part::Part, roles};
use crate::{
    desired::{Desired, DesiredHost, containerd::REGISTRY_HEAD},
    facts::HostFacts,
    model::{CLAIM, Component, label, path},
    plan::{
        Cause, HostAction, Queue, Step,
        diff::{Diff, HostDiff, LOOSE_FILES, Need, applied, is_below},
    },
};

/// Last of all: containers, then the files they read, then objects.
pub(super) fn leftovers(diff: &Diff<'_>) -> Part {
    let want = diff.want;
    let mut stage = hosts::stage("prune", diff, |name, host| {
        let gives_up = roles::gives_up(name, diff);
        let mut steps: Vec<Step> = containers(want, host.want, host.facts)
            .filter(|container| !(gives_up || is_replaced(container, host)))
            .map(|container| {
                let action = HostAction::RemoveContainer { name: container };
                Step::on(name, Cause::Leave, "nothing wants it any more", action)
                    .guarded(&want.cluster_id)
            })
            .collect();
        let mut paths = paths(want, host.want, host.facts);
        stays(&mut paths, host);
        let cause = former_readers(&mut paths, host);
        // What reads them goes first, and is seen to be gone.
        let read = gives_up
            || containers(want, host.want, host.facts)
                .any(|name| Component::named(&name).is_some());
        if !read && !paths.is_empty() {
            let action = HostAction::RemoveFiles { paths };
            let step = Step::on(name, cause, "nothing reads them any more", action);
            steps.push(step.guarded(&want.cluster_id));
        }
        steps
    });
    if let Some(step) = addons::prune(diff) {
        stage.queues.push(Queue {
            node: None,
            steps: vec![step],
        });
    }
    stage.into()
}

fn containers<'a>(
    want: &'a Desired,
    host: &'a DesiredHost,
    facts: &'a HostFacts,
) -> impl Iterator<Item = String> + 'a {
    facts
        .containers
        .iter()
        .filter(|(name, fact)| {
            let ours = fact.labels.get(label::CLUSTER_ID) == Some(&want.cluster_id.0);
            // What changes have kept has its own place in the order.
            let kept = Component::of_kept(name).is_some();
            let component = Component::named(name);
            let wanted = component.is_some_and(|named| {
                host.containers.contains_key(&named) || host.kept.contains(&named)
            });
            let wanted = wanted || kept;
            ours && name.as_str() != CLAIM && !wanted
        })
        .map(|(name, _)| name.clone())
}

/// Leaves out what is read by a container that stays as it is.
fn stays(paths: &mut BTreeSet<String>, host: &HostDiff<'_>) {
    for component in &host.want.kept {
        let fact = host.facts.container(*component);
        if let Some(reads) = fact.and_then(applied).map(|applied| applied.files) {
            paths.retain(|path| !reads.contains_key(path));
        }
    }
}

/// Leaves out what a container still reads that is not replaced for now: Docker would make an empty folder in its place
/// when it starts that container again. The files go with the change that has their readers replaced, or not at all.
fn former_readers(paths: &mut BTreeSet<String>, host: &HostDiff<'_>) -> Cause {
    let mut cause = Cause::Leave;
    for component in Component::ALL {
        let fact = host.facts.container(component);
        let Some(reads) = fact.and_then(applied).map(|applied| applied.files) else {
            continue;
        };
        let Need::Replace(why, ..) = host.need(component) else {
            continue;
        };
        if !paths.iter().any(|path| reads.contains_key(path)) {
            continue;
        }
        if host.held(component).is_some() {
            paths.retain(|path| !reads.contains_key(path));
        } else if *why == Cause::Change {
            cause = Cause::Change;
        }
    }
    cause
}

/// A proxy goes when the API server on its port is started.
fn is_replaced(container: &str, host: &HostDiff<'_>) -> bool {
    let server = host.need(Component::ApiServer);
    container == Component::NginxProxy.container() && *server == Need::Run
}

/// Only names that rke-operator uses: users keep other files in these folders, an OIDC provider's
/// certificate or a webhook's. Those for an external etcd are ours where the cluster has one.
fn paths(want: &Desired, host: &DesiredHost, facts: &HostFacts) -> BTreeSet<String> {
    let external = want.saved.external_etcd.is_some();
    facts
        .files
        .iter()
        .flatten()
        .filter(|(path, fact)| {
            // It may name an authority that Docker lost: then nothing could be pulled.
            let registry = is_below(path, path::CERTS_D)
                && fact.content.expose().starts_with(REGISTRY_HEAD.as_bytes());
            let ours = path::is_certificate(path)
                || (external && path::EXTERNAL_ETCD.contains(&path.as_str()))
                || LOOSE_FILES.contains(&path.as_str())
                || path::OF_A_ROLE.contains(&path.as_str())
                || path::is_docker_authority(path)
                || registry;
            ours && !fact.is_dir && !host.files.contains_key(*path)
        })
        .map(|(path, _)| path.clone())
        .collect()
}

//! Changes that go back: a component whose new definition fails on a node gets its former container again, on that node
//! alone, and what has failed is not tried again. Pure.
//!
//! - While a change rolls, the former container is kept, stopped ([`Component::kept`]). It is what can go back: one that
//!   was not kept, of another cluster or of another life of etcd's data never runs again.
//! - What has failed is written down ([`Refused`]) before anything goes back. From then on facts decide: wherever a run
//!   is killed, the next one sees what is refused and what is kept, and goes on.
//! - Where others may rely on the new release already, nothing goes back ([`stands`]).

use jiff::Timestamp;

use super::release;
use crate::{
    desired::Desired,
    facts::{Actual, ContainerFact, ContainerState, HostFacts},
    model::{Component, ContainerSpec, Digest, ImageVersion, NodeName, image_version, path},
    state::{ClusterState, Refused},
};

/// The longest reason that is kept.
const LONGEST: usize = 400;

/// A component that has failed on a node whose change was just made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Where.
    pub(crate) node: NodeName,
    /// Which.
    pub(crate) component: Component,
    /// A wait for it has failed, and not what starts it.
    pub(crate) awaited: bool,
    /// How.
    pub(crate) why: String,
}

/// Of what is compared of a definition. Certificates are renewed without anybody's doing: they make it no other one.
pub(super) fn digest(spec: &ContainerSpec, saved: &ClusterState) -> Digest {
    let mut spec = ContainerSpec {
        bootstrap_args: Vec::new(),
        certificates: [].into(),
        ..spec.clone()
    };
    spec.files.retain(|path, _| !path::is_certificate(path));
    // Strings, numbers and maps with string keys: there is nothing that JSON could refuse.
    let text = serde_json::to_vec(&spec).unwrap_or_default();
    saved.digest_key.digest(&text)
}

fn wanted(node: &NodeName, component: Component, want: &Desired) -> Option<Digest> {
    let spec = want.hosts.get(node)?.containers.get(&component)?;
    Some(digest(spec, &want.saved))
}

/// True while the same is wanted. What a node must have depends on what it is like: while it does not answer it may be
/// the same.
fn is_in_force(refused: &Refused, want: &Desired, have: &Actual) -> bool {
    let wanted = wanted(&refused.node, refused.component, want);
    wanted.is_some_and(|wanted| have.up(&refused.node).is_none() || wanted == refused.digest)
}

/// Why the definition of a component that is wanted is not tried again.
pub(super) fn refused<'w>(
    component: Component,
    want: &'w Desired,
    have: &Actual,
) -> Option<&'w Refused> {
    let mut all = want.saved.memory.refused.iter();
    all.find(|refused| refused.component == component && is_in_force(refused, want, have))
}

/// Drops what is no longer wanted.
pub(crate) fn forget_former(want: &mut Desired, have: &Actual) {
    let all = std::mem::take(&mut want.saved.memory.refused);
    let in_force = all
        .into_iter()
        .filter(|refused| is_in_force(refused, want, have));
    want.saved.memory.refused = in_force.collect();
}

/// Writes down what has failed and goes back. What cannot go back is not written down: it stands as it is.
pub(crate) fn refuse(want: &mut Desired, have: &Actual, broken: &[Broken], now: Timestamp) {
    for failed in broken {
        let Broken {
            node,
            component,
            why,
            ..
        } = failed;
        let Some(digest) = wanted(node, *component, want).filter(|_| shows(failed, have)) else {
            continue;
        };
        let refused = Refused {
            component: *component,
            node: node.clone(),
            digest,
            at: now,
            why: shortened(why),
        };
        if goes_back(&refused, want, have) {
            let all = &mut want.saved.memory.refused;
            all.retain(|other| other.component != *component || other.node != *node);
            all.push(refused);
        }
    }
}

/// True where the component itself shows that it has failed. Where a step failed for another reason, such as a second run
/// at the same node that was quicker, the new container is there and runs.
fn shows(broken: &Broken, have: &Actual) -> bool {
    let facts = have.up(&broken.node);
    let fact = facts.and_then(|facts| facts.container(broken.component));
    match fact.map(|fact| fact.state) {
        None => !broken.awaited,
        Some(ContainerState::Running | ContainerState::Other) => broken.awaited,
        Some(
            ContainerState::Created | ContainerState::Exited(_) | ContainerState::Restarting(_),
        ) => true,
    }
}

fn shortened(why: &str) -> String {
    if why.chars().count() <= LONGEST {
        return why.to_owned();
    }
    let start: String = why.chars().take(LONGEST).collect();
    format!("{start} …")
}

/// The components that go back, by node.
pub(super) fn due<'w>(want: &'w Desired, have: &Actual) -> Vec<&'w Refused> {
    let all = want.saved.memory.refused.iter();
    let due =
        all.filter(|refused| is_in_force(refused, want, have) && goes_back(refused, want, have));
    due.collect()
}

/// True where the former container was kept, what was refused is in its place or nothing is, and nothing may rely on the
/// new release yet.
fn goes_back(refused: &Refused, want: &Desired, have: &Actual) -> bool {
    let Refused {
        component,
        node,
        digest: refused,
        ..
    } = refused;
    let Some(facts) = have.up(node) else {
        return false;
    };
    let Some(former) = kept(*component, facts, want) else {
        return false;
    };
    let is_refused = |fact: &ContainerFact| {
        let applied = fact.applied();
        let applied = applied.map(|applied| digest(&applied, &want.saved));
        fact.is_of(&want.cluster_id) && applied.as_ref() == Some(refused)
    };
    let in_place = facts.container(*component);
    in_place.is_none_or(is_refused) && stands(*component, node, former, want, have).is_none()
}

/// The container that a change of a component has kept on a node.
pub(super) fn kept<'f>(
    component: Component,
    facts: &'f HostFacts,
    want: &Desired,
) -> Option<&'f ContainerFact> {
    facts.kept(component, &want.cluster_id, want.saved.epoch())
}

/// Why the former container of a component that has failed does not run again automatically; `None`: it does.
pub(super) fn stands(
    component: Component,
    node: &NodeName,
    former: &ContainerFact,
    want: &Desired,
    have: &Actual,
) -> Option<String> {
    let spec = want.hosts.get(node)?.containers.get(&component)?;
    if former.image == spec.image {
        return None;
    }
    match component {
        Component::ControllerManager
        | Component::Scheduler
        | Component::NginxProxy
        | Component::Kubelet
        | Component::KubeProxy
        | Component::Snapshots => None,
        Component::Etcd | Component::ApiServer => {
            let (from, to) = (
                image_version(&former.image),
                release::wanted(component, spec, want),
            );
            let (Some(from), Some(to)) = (from, to) else {
                return Some(format!(
                    "the releases of `{}` and `{}` cannot be compared",
                    former.image, spec.image
                ));
            };
            if minor(from) == minor(to) {
                return None;
            }
            let others = || want.with(component).filter(|other| *other != node);
            let is_older = |other: &NodeName| {
                let runs = release::runs(component, other, have);
                runs.is_some_and(|runs| minor(runs) == minor(from))
            };
            if others().any(is_older) {
                return None;
            }
            // What no client has reached has stored nothing; etcd changes its own data.
            if component == Component::ApiServer && others().next().is_none() {
                return None;
            }
            Some(too_late(component, from, to))
        }
    }
}

const fn minor((major, minor, _): ImageVersion) -> (u32, u32) {
    (major, minor)
}

fn too_late(component: Component, from: ImageVersion, to: ImageVersion) -> String {
    let (from, to) = (release::text(from), release::text(to));
    if component == Component::Etcd {
        return format!(
            "no other member of etcd runs {from} any more, and {to} may have changed the data: the former \
             container is not started again. `etcdctl downgrade enable` with the minor of {from} takes etcd back, \
             once every member is healthy"
        );
    }
    format!(
        "every other API server runs {to}, and objects may be stored that {from} does not know: the former container \
         is not started again"
    )
}

/// Why what has failed stands as it is, where a former container was kept.
pub(crate) fn why_it_stands(broken: &Broken, want: &Desired, have: &Actual) -> Option<String> {
    let Broken {
        node, component, ..
    } = broken;
    let former = kept(*component, have.up(node)?, want)?;
    stands(*component, node, former, want, have)
}

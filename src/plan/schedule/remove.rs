//! Removes the cluster from every node: the table of contents. Pure.
//!
//! The order survives a kill between any two steps. The state is deleted last of all, in a separate
//! plan: after a survey has shown that nothing of the cluster is left on any node.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{claim, last_snapshot, leave, part::Part, plan};
use crate::{
    api::LastSnapshot,
    error::ErrorClass,
    facts::{Actual, HostFacts, HostView},
    model::{
        ClusterId, FILES_IMAGE, Named, NodeName, label,
        label::{CLEAN, LOSE},
    },
    plan::{
        Cause, HostAction, LocalAction, Note, Plan, PreflightError, PreflightErrors,
        RemovalRequest, Stage, Step, Target, folders,
        ownership::{self, Unclaimed, rke_containers},
        preflight,
    },
};

/// What a host is to the cluster that is removed.
pub(super) enum Standing<'a> {
    /// Nothing of this cluster is there.
    Clean,
    /// Claimed by someone else.
    Foreign(&'a str),
    /// Ours, and its claim is there.
    Ours(&'a HostFacts),
    /// Our containers or data are there and the claim is not.
    Torn(&'a HostFacts),
    /// Claimed by us, and the data that it holds is another cluster's.
    Another(ClusterId),
    /// Another Kubernetes is or was there, or nothing proves that what is there is this cluster's. Why, and
    /// whether something of this cluster may be there too.
    Stranger {
        /// What was seen.
        why: String,
        /// Something of this cluster is there, or was.
        ours: bool,
    },
    /// Only the claim's empty image is left: the claim was cut off before or after it.
    Image,
}

/// The plan that cleans every node that belongs to `id`, without a snapshot before; empty when nothing is left. Hosts
/// that do not answer are noted and keep the state from being deleted.
pub fn remove(id: Option<&ClusterId>, have: &Actual) -> Result<Plan, PreflightErrors> {
    let request = RemovalRequest {
        named: Named::default(),
        last_snapshot: LastSnapshot::Skip,
        now: Timestamp::UNIX_EPOCH,
    };
    remove_as(id, have, &request)
}

/// The same for a request.
#[expect(
    clippy::too_many_lines,
    reason = "one arm for each thing that a node may be to the cluster"
)]
pub fn remove_as(
    id: Option<&ClusterId>,
    have: &Actual,
    request: &RemovalRequest,
) -> Result<Plan, PreflightErrors> {
    let named = &request.named;
    let Some(id) = id else {
        return without_state(have);
    };
    let name = have
        .saved
        .as_ref()
        .map_or_else(|| id.0.clone(), |saved| saved.cluster_name.clone());
    let mut claims = Vec::new();
    let mut images = Vec::new();
    let mut notes = Vec::new();
    let mut ours = Vec::new();
    // Something of the cluster stays on a node: the state that knows of it stays, too.
    let mut kept = false;
    for (host, view) in &have.hosts {
        let facts = match view {
            HostView::Reachable(facts) => facts,
            // What was given up is not waited for.
            HostView::Unreachable(_) if is_lost(host, have) || named.lose.contains(host) => {
                let text = "was given up and does not answer: what it has stays there";
                notes.push(note(host, text.to_owned()));
                continue;
            }
            HostView::Unreachable(why) => {
                kept = true;
                let text = format!("does not answer and keeps what it has: {}", why.cause());
                notes.push(unclean(host, text));
                continue;
            }
        };
        match standing(id, host, facts, have, &named.clean) {
            Standing::Clean => {}
            Standing::Stranger { why, ours } => {
                let stays = ours && !named.lose.contains(host) && !is_lost(host, have);
                kept |= stays;
                notes.push(note(host, left_alone(host, &why, stays)));
            }
            Standing::Foreign(owner) => {
                let mut text = format!("belongs to cluster `{owner}`: left alone");
                if facts.is_of(id) {
                    kept = true;
                    text.push_str(", and so are the containers of this cluster that are there");
                }
                notes.push(note(host, text));
            }
            Standing::Another(other) => {
                kept = true;
                let text =
                    format!("carries the state of another cluster (id `{other}`): left alone");
                notes.push(note(host, text));
            }
            Standing::Ours(facts) => ours.push((host, facts)),
            Standing::Torn(facts) => claims.push(reclaim(id, &name, host, facts, have)),
            Standing::Image => {
                images.push(remove_empty_image(host));
            }
        }
    }
    let snapshot = last_snapshot::save(id, &ours, have, request)?;
    notes.extend(external_etcd_stays(have));
    let again = !claims.is_empty() || !images.is_empty();
    notes.extend(
        ours.iter()
            .filter_map(|(host, facts)| images_stay(host, facts)),
    );
    let why = leave::Why("the cluster is removed");
    let every = leave::STAGES.map(|(stage, steps)| {
        let steps = ours
            .iter()
            .flat_map(|(host, facts)| steps(id, host, facts, have, why));
        Stage::of(stage, ours.len(), steps)
    });
    let clean = ours.is_empty() && !again && !kept;
    let [stop, clean_host, containerd, release] = every;
    let [stop, stop_etcd] = leave::side_by_side(stop);
    let stages = vec![
        Stage::of("claim", claims.len(), claims),
        stop,
        stop_etcd,
        clean_host,
        containerd,
        release,
        Stage::of("images", images.len(), images),
        Stage::of("state", 1, local(clean, have)),
    ];
    Ok(plan([snapshot, Part { stages, notes }]))
}

fn is_lost(host: &NodeName, have: &Actual) -> bool {
    let saved = have.saved.as_ref();
    saved.is_some_and(|saved| saved.is_lost(host))
}

fn note(host: &NodeName, text: String) -> Note {
    Note::of(Some(Target::Host(host.clone())), text)
}

/// About a node that is not cleaned for now.
fn unclean(host: &NodeName, text: String) -> Note {
    Note {
        is_left: true,
        ..note(host, text)
    }
}

pub(super) fn standing<'a>(
    id: &ClusterId,
    host: &NodeName,
    facts: &'a HostFacts,
    have: &Actual,
    clean: &BTreeSet<NodeName>,
) -> Standing<'a> {
    let strange = || {
        // Consent by name goes on.
        let named = clean.contains(host);
        let why = ownership::stranger(host, facts, have).filter(|_| !named)?;
        let filled = folders::filled(facts).next().is_some();
        let ours = facts.is_of(id) || (filled && have.is_known_machine(host));
        Some(Standing::Stranger { why, ours })
    };
    if let Some(claim) = facts.claim() {
        return match claim.labels.get(label::CLUSTER_ID) {
            Some(found) if *found == id.0 => match preflight::state_of_another(id, facts) {
                Some(other) => Standing::Another(other),
                None => strange().unwrap_or(Standing::Ours(facts)),
            },
            Some(found) => Standing::Foreign(found),
            None => Standing::Foreign("unknown"),
        };
    }
    if let Some(other) = facts.another_cluster(id) {
        return Standing::Foreign(other);
    }
    let saved = have.saved.as_ref();
    let is_node = saved.is_some_and(|saved| saved.inventory.contains_key(host));
    match Unclaimed::of(id, host, facts, have) {
        Unclaimed::Ours => strange().unwrap_or(Standing::Torn(facts)),
        Unclaimed::Emptied => Standing::Torn(facts),
        Unclaimed::New if is_node && ownership::stranger(host, facts, have).is_some() => {
            // A node that the user names is cleaned as long as there is something to remove.
            let containers = facts.foreign_container_names(id).next().is_some();
            let left = containers || folders::filled(facts).next().is_some();
            let named = if left {
                Standing::Torn(facts)
            } else {
                Standing::Clean
            };
            strange().unwrap_or(named)
        }
        Unclaimed::New if facts.images.contains(FILES_IMAGE) => Standing::Image,
        Unclaimed::New => Standing::Clean,
    }
}

/// Why nothing is done on a node that answers, and how to go on.
pub(super) fn left_alone(host: &NodeName, why: &str, stays: bool) -> String {
    let clean = format!(
        "nothing on it is changed; `--clean {host}` (a `Cluster` has the annotation `{CLEAN}: {host}`) \
         deletes what is on it"
    );
    let lose = if stays {
        format!(
            ", `--lose {host}` (a `Cluster` has the annotation `{LOSE}: {host}`) leaves it as it is and goes on without it"
        )
    } else {
        String::new()
    };
    format!("{why}: {clean}{lose}")
}

/// A node without its claim is claimed again before anything is removed from it: so that no other
/// cluster claims it meanwhile, and so that every later step can be guarded.
pub(super) fn reclaim(
    id: &ClusterId,
    name: &str,
    host: &NodeName,
    facts: &HostFacts,
    have: &Actual,
) -> Step {
    let action = HostAction::Claim {
        cluster_id: id.clone(),
        cluster_name: name.to_owned(),
        before: claim::rebuilt_before(facts),
    };
    Step::on(
        host,
        Cause::Leave,
        "its claim is gone and something of this cluster is left",
        action,
    )
    .disturbing(leave::loss(host, have))
}

/// Nobody's: no container is made from it, and Docker keeps it if one is.
fn remove_empty_image(host: &NodeName) -> Step {
    let images = [FILES_IMAGE.to_owned()].into();
    let why = "the empty image that claims are made from was left";
    Step::on(host, Cause::Leave, why, HostAction::RemoveImages { images })
}

/// The last steps, when nothing of the cluster is left on any node. Each may have been done already.
fn local(clean: bool, have: &Actual) -> Vec<Step> {
    if !clean || have.saved.is_none() {
        return Vec::new();
    }
    let kubeconfig = have.kubeconfig.as_ref().map(|_| {
        let why = "the cluster that it reaches is gone";
        Step::local(Cause::Leave, why, LocalAction::RemoveKubeconfig)
    });
    let why = "nothing of this cluster is left on any node";
    let state = Step::local(Cause::Leave, why, LocalAction::DeleteState);
    kubeconfig.into_iter().chain([state]).collect()
}

fn images_stay(host: &NodeName, facts: &HostFacts) -> Option<Note> {
    let before = claim::remembered(facts)?;
    let pulled = facts
        .images
        .iter()
        .filter(|image| !before.images.contains(*image) && image.as_str() != FILES_IMAGE)
        .count();
    let text = format!(
        "{pulled} images that were pulled for this cluster, or meanwhile, stay: `docker image prune -a`"
    );
    (pulled > 0).then(|| note(host, text))
}

/// Data in an external etcd is left to those who run it.
fn external_etcd_stays(have: &Actual) -> Option<Note> {
    let keyspace = have.saved.as_ref()?.external_etcd.as_ref()?;
    Some(Note::of(None, keyspace.stays()))
}

/// Without state nothing is known to be ours: a node that has a claim is not touched, and neither is
/// one that runs a cluster of RKE: a user who meant to remove that one must not read that it is gone.
fn without_state(have: &Actual) -> Result<Plan, PreflightErrors> {
    let mut errors = Vec::new();
    let mut notes = Vec::new();
    for (host, view) in &have.hosts {
        match view {
            HostView::Unreachable(down) => {
                notes.push(unclean(host, format!("does not answer: {}", down.cause())));
            }
            HostView::Reachable(facts) => {
                let Some(claim) = facts.claim() else {
                    let mut rke = rke_containers(facts).peekable();
                    if rke.peek().is_some() {
                        errors.push(preflight::rke_cluster(host, rke));
                    }
                    continue;
                };
                let text = |key| claim.labels.get(key).map_or("unknown", String::as_str);
                errors.push(PreflightError {
                    node: Some(host.clone()),
                    message: format!(
                        "node `{host}` belongs to cluster `{}` (id `{}`), and there is no saved state \
                         that says whether that is the cluster to remove",
                        text(label::CLUSTER_NAME),
                        text(label::CLUSTER_ID)
                    ),
                    hints: vec![
                        "run it in the folder that has the state of that cluster".to_owned(),
                        format!(
                            "if it is lost: `rke-operator up --recover {0}` (a `Cluster` has the annotation \
                             `clusterprovisioner.rke.io/recover: {0}`) reads the keys back from the nodes; \
                             then remove it",
                            text(label::CLUSTER_ID)
                        ),
                    ],
                    class: ErrorClass::User,
                });
            }
        }
    }
    PreflightErrors::unless_empty(errors)?;
    Ok(plan([Part::from_iter(notes)]))
}

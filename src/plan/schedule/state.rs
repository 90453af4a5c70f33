//! What must outlive the run: the store first, its copy in the cluster, and the administrator's
//! kubeconfig. Pure.

use std::collections::BTreeMap;

use super::{claim, part::Part};
use crate::{
    desired::{
        Desired, Rewrite,
        pki::{Handover, RenewedTokens},
    },
    facts::{Actual, ApiView},
    model::{KubernetesVersion, NodeName},
    plan::{
        Cause, ClusterAction, FieldChange, LocalAction, Note, OnFailure, Stage, Step, diff::Diff,
    },
    state::{ClusterState, InventoryEntry, Membership, OperatorMemory},
};

/// Before anything else: no node has a key that is not saved (invariant 2). A key of service accounts is dropped from the
/// state when no Secret has a token of it any more.
pub(super) fn save(want: &Desired, have: &Actual) -> Part {
    let step = match have.saved.as_deref() {
        Some(saved) if *saved == want.saved => None,
        Some(saved) => Some(
            Step::local(
                Cause::Change,
                "the inventory or the keys changed",
                LocalAction::SaveState,
            )
            .changing(differences(saved, &want.saved)),
        ),
        None => Some(Step::local(
            Cause::New,
            "a new cluster's keys and identity are saved before they are used",
            LocalAction::SaveState,
        )),
    };
    let stages = vec![renewed_tokens(want), Stage::of("state", 1, step)];
    let notes = notes(want, have);
    Part { stages, notes }
}

/// A removal that was begun and that the cluster does not have from now on.
fn given_up(saved: &ClusterState, want: &Desired) -> Option<Note> {
    let began = removal(&saved.memory)?;
    let goes_on = want.saved.memory.last_snapshot.is_none();
    goes_on.then(|| {
        let text = format!(
            "a removal of this cluster began at {began} and did not finish: it is given up, and what it removed is set \
             up again"
        );
        Note::of(None, text)
    })
}

/// When the removal began that a state remembers.
fn removal(memory: &OperatorMemory) -> Option<String> {
    let removal = memory.last_snapshot.as_ref()?;
    Some(removal.begun_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// True when nothing but the removal differs.
fn is_alike(memory: &OperatorMemory, to: &OperatorMemory) -> bool {
    let last_snapshot = to.last_snapshot.clone();
    *to == OperatorMemory {
        last_snapshot,
        ..memory.clone()
    }
}

fn removal_field(memory: &OperatorMemory) -> String {
    removal(memory).map_or_else(|| "none".to_owned(), |at| format!("begun at {at}"))
}

/// The tokens that the key has signed which is dropped.
fn renewed_tokens(want: &Desired) -> Stage {
    let step = want.renewed_tokens.as_ref().map(|renewed| {
        let RenewedTokens { secrets, key } = renewed;
        let names = secrets
            .iter()
            .map(|secret| format!("{}/{}", secret.namespace, secret.name));
        let names = names.collect::<Vec<_>>().join(", ");
        let why = "the service-account key that has signed them is dropped";
        let action = ClusterAction::RenewTokens {
            secrets: secrets.clone(),
            key: key.clone(),
        };
        Step::cluster(Cause::Change, why, action).disturbing(format!(
            "the tokens in these Secrets are signed again, and copies of the former ones are refused: {names}"
        ))
    });
    Stage::of("tokens", 1, step).on_failure(OnFailure::EndRun)
}

/// Before nodes have their claims again: only what makes these claims ours. A state that changes before the copies on
/// these nodes are seen gets a serial that a newer copy may have.
pub(super) fn save_for_claims(diff: &Diff<'_>) -> Part {
    let (want, have) = (diff.want, diff.have);
    let is_saved = have.saved.as_deref().is_some_and(|saved| {
        let mut lost = claim::have_lost_it(diff);
        saved.cluster_id == want.cluster_id && lost.all(|name| saved.inventory.contains_key(name))
    });
    if is_saved {
        notes(want, have).into_iter().collect()
    } else {
        save(want, have)
    }
}

/// The copy in `kube-system`, which any machine with the config can carry on from.
pub(super) fn copy(want: &Desired, have: &Actual) -> Part {
    let there = match have.api() {
        ApiView::Up(facts) => facts.state_copy.state() == Some(&want.saved.copy()),
        ApiView::Unknown | ApiView::Unreachable(_) => false,
    };
    let step = (!there).then(|| {
        Step::cluster(
            Cause::New,
            "the state is kept in the cluster too",
            ClusterAction::SaveStateCopy,
        )
    });
    Stage::of("copies", 1, step).into()
}

/// Written as soon as the API answers, so that it is there when a later wait is interrupted.
pub(super) fn kubeconfig(want: &Desired, have: &Actual) -> Part {
    let step = match &have.kubeconfig {
        Some(there) if *there == want.kubeconfig => None,
        Some(_) => Some((
            Cause::Change,
            "it differs from what reaches the cluster now",
        )),
        None => Some((Cause::New, "gives the administrator access to the cluster")),
    }
    .map(|(cause, why)| Step::local(cause, why, LocalAction::WriteKubeconfig));
    Stage::of("kubeconfig", 1, step).into()
}

/// Before any API server writes with something else than what is stored was written with.
pub(super) fn forget_written(want: &Desired) -> Part {
    let step = (want.rewrite == Some(Rewrite::Forget)).then(|| {
        let why = "the API servers are about to write with something else";
        Step::cluster(Cause::Change, why, ClusterAction::ForgetWritten)
    });
    let stage = Stage::of("encryption", 1, step);
    stage.on_failure(OnFailure::EndRun).into()
}

/// After all of them write as they shall.
pub(super) fn rewrite(want: &Desired) -> Part {
    let step = match &want.rewrite {
        Some(Rewrite::All { resources, with }) => Some(Step::cluster(
            Cause::New,
            "every API server writes with it, and what was stored before may not be",
            ClusterAction::RewriteStored {
                resources: resources.clone(),
                with: with.clone(),
            },
        )),
        Some(Rewrite::Forget) | None => None,
    };
    let stage = Stage::of("encryption", 1, step);
    stage.on_failure(OnFailure::EndRun).into()
}

/// After everything trusts new authorities; and after nothing trusts the former ones.
pub(super) fn handover(want: &Desired) -> Part {
    let Handover {
        awaits,
        restarts: _,
        forgets,
    } = &want.handover;
    let awaits = awaits.iter().map(|bundle| {
        let bundle = bundle.clone();
        let why =
            "pods must trust the new authorities before API servers present their certificates";
        Step::cluster(
            Cause::Change,
            why,
            ClusterAction::AwaitAuthorities { bundle },
        )
    });
    let forgets = forgets.iter().map(|version| {
        let version = version.clone();
        let why = "API servers only ever add to what extension API servers trust";
        Step::cluster(
            Cause::Change,
            why,
            ClusterAction::ForgetAuthorities { version },
        )
    });
    let stage = Stage::of("authorities", 1, awaits.chain(forgets));
    stage.on_failure(OnFailure::EndRun).into()
}

/// What there is to say about keys and certificates, and about a removal that was begun.
pub(super) fn notes(want: &Desired, have: &Actual) -> Vec<Note> {
    let given_up = have
        .saved
        .as_deref()
        .and_then(|saved| given_up(saved, want));
    let note = |text: &String| Note::of(None, text.clone());
    want.notes.iter().map(note).chain(given_up).collect()
}

/// Names what differs, never a key.
fn differences(from: &ClusterState, to: &ClusterState) -> Vec<FieldChange> {
    let ClusterState {
        serial: _,
        cluster_id,
        digest_key,
        cluster_name,
        kubernetes_version,
        cluster_ca,
        etcd_ca,
        front_proxy_ca,
        signer_ca,
        service_accounts,
        encryption,
        etcd_bootstrap,
        etcd_epoch,
        external_etcd,
        inventory,
        given,
        memory,
    } = from;
    let mut changes = Vec::new();
    let mut field = |name: &str, same: bool, from: &str, to: &str| {
        if !same {
            changes.push(FieldChange {
                field: name.into(),
                from: Some(from.to_owned()),
                to: Some(to.to_owned()),
            });
        }
    };
    let (id, name) = (&to.cluster_id, &to.cluster_name);
    field("cluster id", cluster_id == id, &cluster_id.0, &id.0);
    field("cluster name", cluster_name == name, cluster_name, name);
    let release = |version: &Option<KubernetesVersion>| {
        version.map_or_else(|| "not recorded".to_owned(), |version| version.to_string())
    };
    field(
        "Kubernetes version",
        *kubernetes_version == to.kubernetes_version,
        &release(kubernetes_version),
        &release(&to.kubernetes_version),
    );
    let (was, is) = (removal_field(memory), removal_field(&to.memory));
    field("removal", was == is, &was, &is);
    let keys = [
        ("digest key", *digest_key == to.digest_key),
        ("etcd epoch", *etcd_epoch == to.etcd_epoch),
        ("cluster CA", *cluster_ca == to.cluster_ca),
        ("etcd CA", *etcd_ca == to.etcd_ca),
        ("front proxy CA", *front_proxy_ca == to.front_proxy_ca),
        (
            "service account keys and issuers",
            *service_accounts == to.service_accounts,
        ),
        ("encryption keys", *encryption == to.encryption),
        ("etcd's first members", *etcd_bootstrap == to.etcd_bootstrap),
        (
            "place in the external etcd",
            *external_etcd == to.external_etcd,
        ),
        ("certificates that you made", *given == to.given),
        ("what is remembered", is_alike(memory, &to.memory)),
    ];
    for (name, same) in keys {
        field(name, same, "as in the state", "another");
    }
    let signer = if signer_ca.is_some() {
        "the one in the state"
    } else {
        "none"
    };
    field(
        "CA of certificate requests",
        *signer_ca == to.signer_ca,
        signer,
        "a new one",
    );
    changes.extend(moves(inventory, &to.inventory));
    changes
}

/// The nodes that come, go, or are reached in another way.
fn moves(
    inventory: &BTreeMap<NodeName, InventoryEntry>,
    to: &BTreeMap<NodeName, InventoryEntry>,
) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    for (node, entry) in inventory {
        if !to.contains_key(node) {
            changes.push(FieldChange {
                field: format!("inventory {node}").into(),
                from: Some(entry.endpoint.to_string()),
                to: None,
            });
        }
    }
    for (node, entry) in to {
        let was = inventory.get(node);
        if was == Some(entry) {
            continue;
        }
        let other = was.map(|was| others(was, entry)).unwrap_or_default();
        let also = if other.is_empty() {
            String::new()
        } else {
            format!(", with another {}", other.join(", "))
        };
        changes.push(FieldChange {
            field: format!("inventory {node}").into(),
            from: was.map(shown),
            to: Some(format!("{}{also}", shown(entry))),
        });
    }
    changes
}

/// What else differs, in words.
fn others(was: &InventoryEntry, is: &InventoryEntry) -> Vec<&'static str> {
    let differs = [
        (was.key_source != is.key_source, "private key"),
        (
            was.certificate_source != is.certificate_source,
            "certificate of the key",
        ),
        (was.bastions != is.bastions, "way through bastion hosts"),
        (was.docker_socket != is.docker_socket, "Docker socket"),
        (was.roles != is.roles, "set of roles"),
        (was.machine_id != is.machine_id, "machine-id"),
        (was.host_keys != is.host_keys, "set of host keys"),
    ];
    let differs = differs.into_iter().filter(|(differs, _)| *differs);
    differs.map(|(_, what)| what).collect()
}

/// How a node is reached and whether it stays.
fn shown(entry: &InventoryEntry) -> String {
    let leaving = match entry.membership {
        Membership::Active => "",
        Membership::Leaving => ", leaving",
        Membership::Lost => ", lost",
    };
    format!("{}@{}{leaving}", entry.user, entry.endpoint)
}

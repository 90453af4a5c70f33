//! What must outlive the run: the store first, its copy in the cluster, and the administrator's
//! kubeconfig. Pure.

use super::{Action, FieldChange, Stage, Step, Target};
use crate::{
    actual::{Actual, ApiView},
    desired::Desired,
    state::Saved,
};

/// Before anything else: no node bears a key that is not saved (invariant 2).
pub(super) fn save(want: &Desired, have: &Actual) -> Stage {
    let step = match have.saved.as_deref() {
        Some(saved) if *saved == want.saved => None,
        Some(saved) => Some(
            Step::new(
                Target::Local,
                "the inventory or the keys changed",
                Action::SaveState,
            )
            .changing(differences(saved, &want.saved)),
        ),
        None => Some(Step::new(
            Target::Local,
            "a new cluster's keys and identity are kept before they are used",
            Action::SaveState,
        )),
    };
    Stage::of("state", 1, step)
}

/// The copy in `kube-system`, which any machine with the config can carry on from.
pub(super) fn copy(want: &Desired, have: &Actual) -> Stage {
    let there = match &have.api {
        ApiView::Up(facts) => facts.state_copy,
        ApiView::Unknown | ApiView::Down(_) => false,
    };
    let same = have.saved.as_deref() == Some(&want.saved);
    let step = (!there || !same).then(|| {
        Step::new(
            Target::Cluster,
            "the state is kept in the cluster too",
            Action::SaveStateCopy,
        )
    });
    Stage::of("copies", 1, step)
}

/// Written as soon as the API answers, so that it is there when a later wait is interrupted.
pub(super) fn kubeconfig(want: &Desired, have: &Actual) -> Stage {
    let step = match &have.kubeconfig {
        Some(there) if *there == want.kubeconfig => None,
        Some(_) => Some("it differs from what reaches the cluster now"),
        None => Some("the administrator reaches the cluster with it"),
    }
    .map(|why| Step::new(Target::Local, why, Action::WriteKubeconfig));
    Stage::of("kubeconfig", 1, step)
}

/// Names what differs, never a key.
fn differences(from: &Saved, to: &Saved) -> Vec<FieldChange> {
    let Saved {
        cluster_id,
        cluster_name,
        cluster_ca,
        etcd_ca,
        front_proxy_ca,
        service_account_key,
        inventory,
    } = from;
    let mut changes = Vec::new();
    let mut field = |name: &str, same: bool, from: &str, to: &str| {
        if !same {
            changes.push(FieldChange {
                field: name.to_owned(),
                from: Some(from.to_owned()),
                to: Some(to.to_owned()),
            });
        }
    };
    let (id, name) = (&to.cluster_id, &to.cluster_name);
    field("cluster id", cluster_id == id, &cluster_id.0, &id.0);
    field("cluster name", cluster_name == name, cluster_name, name);
    let keys = [
        ("cluster CA", *cluster_ca == to.cluster_ca),
        ("etcd CA", *etcd_ca == to.etcd_ca),
        ("front proxy CA", *front_proxy_ca == to.front_proxy_ca),
        (
            "service account key",
            *service_account_key == to.service_account_key,
        ),
    ];
    for (name, same) in keys {
        field(name, same, "the one in the state", "another one");
    }
    for (node, entry) in inventory {
        if !to.inventory.contains_key(node) {
            changes.push(FieldChange {
                field: format!("inventory {node}"),
                from: Some(entry.endpoint.to_string()),
                to: None,
            });
        }
    }
    for (node, entry) in &to.inventory {
        let was = inventory.get(node);
        if was != Some(entry) {
            changes.push(FieldChange {
                field: format!("inventory {node}"),
                from: was.map(|was| format!("{}@{}", was.user, was.endpoint)),
                to: Some(format!("{}@{}", entry.user, entry.endpoint)),
            });
        }
    }
    changes
}

//! Whether a node may be given up: it does not answer and the config no longer names it, or another
//! machine is in its place, and a person has named it. Pure. What is alive is never given up: its
//! kubelet reports to the API, or etcd hears from its member.

use super::{PreflightError, PreflightErrors, leavers};
use crate::{
    desired::Desired,
    error::{ErrorClass, Obstacle},
    etcd::Quorum,
    facts::{Actual, ApiView, HostView, Replaced, Unreachable},
    model::{
        Named, NodeName, known_names,
        label::{CLEAN, LOSE},
    },
    plan::{Guard, guard, lost, roles::GivenUp},
    state::ClusterState,
};

/// Refuses what is lost and was not named, and what was named and may be alive.
pub(super) fn errors(want: &Desired, have: &Actual) -> Vec<PreflightError> {
    let silent = have.hosts.iter().filter_map(|(name, view)| match view {
        HostView::Unreachable(down) if !want.hosts.contains_key(name) => Some((name, down)),
        HostView::Unreachable(_) | HostView::Reachable(_) => None,
    });
    let silent = silent
        .filter(|(name, _)| !want.saved.is_lost(name))
        .map(|(name, down)| {
            if down.obstacle == Obstacle::Silence {
                silent_error(name)
            } else {
                closed_error(name, down)
            }
        });
    let restores = want.saved.restoring().is_some();
    let replaced = want.hosts.keys().filter_map(|name| {
        let why = have.replaced(name)?;
        // Nothing of the old one counts after a restore: no member of etcd is left.
        let takes_its_place = restores && want.lose.contains(name);
        (!takes_its_place && !want.saved.is_lost(name)).then(|| replaced_error(name, &why))
    });
    // A restore replaces etcd, so the former quorum does not matter: [`reporting`] checks the kubelets.
    let given_up = leavers::given_up(want, have).into_iter();
    let alive = given_up
        .filter(|_| !restores)
        .filter_map(|name| alive(name, have));
    silent.chain(replaced).chain(alive).collect()
}

/// Refuses to give up, for a restore, what still reports to the API of before.
pub(super) fn reporting(want: &Desired, have: &Actual) -> Vec<PreflightError> {
    let ApiView::Up(_) = have.api() else {
        return Vec::new();
    };
    let given_up = leavers::given_up(want, have).into_iter();
    let reports = given_up.filter_map(|name| {
        let why = guard::held(&lost::is_down(name, have), have).err()?;
        Some(not_given_up(name, &why, CUT_OFF))
    });
    reports.collect()
}

/// Refuses names that need no consent: one that is left over in a script must not become the
/// consent to something else later.
pub fn consent(want: &Desired, have: &Actual) -> Result<(), PreflightErrors> {
    let mass = leavers::is_mass(want, have);
    let unclean = want
        .clean
        .iter()
        .filter_map(|name| unclean(name, want, have));
    let errors = want.lose.iter().filter_map(|name| {
        let saved = have.saved.as_ref();
        let entry = saved.and_then(|saved| saved.inventory.get(name));
        let why = match (entry, have.up(name)) {
            (None, _) => format!("the cluster has no node `{name}`"),
            (Some(_), _) if want.saved.is_lost(name) || have.replaced(name).is_some() => {
                return None;
            }
            (Some(_), _) if mass && GivenUp::of(name, want, have).any() => return None,
            (Some(_), _) if want.hosts.contains_key(name) => {
                format!(
                    "node `{name}` is not lost: the config names it{}",
                    same(name, have)
                )
            }
            (Some(_), Some(_)) if mass || have.is_taken_by_others(name) => return None,
            (Some(_), Some(_)) => format!(
                "node `{name}` is not lost: it answers, and is drained and cleaned without that"
            ),
            (Some(_), None) => return None,
        };
        Some(PreflightError {
            node: Some(name.clone()),
            message: why,
            hints: vec![format!(
                "remove `{name}` from `--lose` (of a `Cluster`: the annotation `{LOSE}`), which is only for nodes \
                that are gone for good"
            )],
            class: ErrorClass::User,
        })
    });
    PreflightErrors::unless_empty(errors.chain(unclean).collect())
}

/// Refuses names that the cluster does not have, by its state alone: they would have no effect, or only an error after
/// a survey of all nodes.
pub fn known(named: &Named, saved: Option<&ClusterState>) -> Result<(), PreflightErrors> {
    let is_node = |name: &&NodeName| saved.is_some_and(|saved| saved.inventory.contains_key(*name));
    let names = || saved.into_iter().flat_map(|saved| saved.inventory.keys());
    let clean = named.clean.iter().map(|name| (name, "clean", CLEAN));
    let all = clean.chain(named.lose.iter().map(|name| (name, "lose", LOSE)));
    let unknown = all.filter(|(name, ..)| !is_node(name));
    let errors = unknown.map(|(name, flag, annotation)| PreflightError {
        node: Some(name.clone()),
        message: format!("the cluster has no node `{name}`"),
        hints: meant(name, names())
            .into_iter()
            .chain([format!(
                "remove `{name}` from `--{flag}` (of a `Cluster`: the annotation `{annotation}`)"
            )])
            .collect(),
        class: ErrorClass::User,
    });
    PreflightErrors::unless_empty(errors.collect())
}

/// The nodes that there are, the one that was probably meant first.
pub(super) fn meant<'a>(
    name: &NodeName,
    names: impl Iterator<Item = &'a NodeName> + Clone,
) -> Vec<String> {
    let names = names.map(|name| name.0.as_str());
    let known = known_names(&name.0, "the nodes of the cluster are", names);
    if known.is_empty() {
        vec!["the cluster has no nodes yet: there is no state of it".to_owned()]
    } else {
        known
    }
}

/// Why a node that a person wants cleaned is not.
fn unclean(name: &NodeName, want: &Desired, have: &Actual) -> Option<PreflightError> {
    let saved = have.saved.as_ref();
    let known = saved.is_some_and(|saved| saved.inventory.contains_key(name));
    let why = if !known {
        format!("the cluster has no node `{name}`")
    } else if want.hosts.contains_key(name) {
        format!("node `{name}` is not cleaned: the config names it")
    } else {
        return None;
    };
    Some(PreflightError {
        node: Some(name.clone()),
        message: why,
        hints: vec![format!(
            "remove `{name}` from `--clean` (of a `Cluster`: the annotation `{CLEAN}`), which is only for nodes of \
            the cluster that are no longer in the config"
        )],
        class: ErrorClass::User,
    })
}

fn same(name: &NodeName, have: &Actual) -> &'static str {
    if have.up(name).is_some() {
        ", and its machine answers"
    } else {
        "; one that does not answer is left as it is until the config no longer names it"
    }
}

/// How consent is given, and how to see what it means.
fn consent_hint(name: &NodeName, what: &str) -> String {
    format!(
        "{what}: `rke-operator up --lose {name}` (a `Cluster` has the annotation `{LOSE}: {name}`); \
         `rke-operator plan --lose {name}` (of a `Cluster`: `kubectl describe node {name}`) shows what goes with it"
    )
}

/// Nothing can be taken from it, and it may be alive.
fn silent_error(name: &NodeName) -> PreflightError {
    PreflightError {
        node: Some(name.clone()),
        message: format!("node `{name}` is no longer in the config and does not answer"),
        hints: vec![
            format!("bring it back, or add `{name}` to the config again"),
            consent_hint(
                name,
                "if it is gone for good, the cluster can continue without it",
            ),
        ],
        class: ErrorClass::User,
    }
}

/// The address answers and refuses the login, or was not contacted: that is no sign that the node is gone.
fn closed_error(name: &NodeName, down: &Unreachable) -> PreflightError {
    let mut hints = down.hints.clone();
    hints.push(format!(
        "`{name}` is cleaned as soon as rke-operator can log in there; nothing is changed until then"
    ));
    hints.push(consent_hint(
        name,
        "if the node is gone for good, and another machine has its address",
    ));
    PreflightError {
        node: Some(name.clone()),
        message: format!(
            "node `{name}` is no longer in the config, and rke-operator cannot log in to clean it: {}",
            down.why
        ),
        hints,
        class: ErrorClass::User,
    }
}

/// Another machine: what the cluster knows of the node is not there.
fn replaced_error(name: &NodeName, why: &Replaced) -> PreflightError {
    let message = match why {
        Replaced::Machine { was, is } => format!(
            "another machine answers as node `{name}` (machine-id `{is}`, and the node's is \
             `{was}`), and nothing of this cluster is on it"
        ),
        Replaced::Wiped => format!(
            "nothing of this cluster is on node `{name}`, which is a member of etcd: it was reinstalled, or its \
            disks are not mounted"
        ),
    };
    PreflightError {
        node: Some(name.clone()),
        message,
        hints: vec![
            format!("check that the address of `{name}` in the config is correct"),
            consent_hint(
                name,
                "if it takes the place of a machine that is gone for good, the old one leaves \
                 the cluster and this one joins it",
            ),
        ],
        class: ErrorClass::User,
    }
}

/// Why a node that a person gives up may be alive, or cannot be missed.
fn alive(name: &NodeName, have: &Actual) -> Option<PreflightError> {
    let serves = match have.etcd.quorum {
        // Of an external one the API tells, which is asked below.
        Quorum::Serving { .. } | Quorum::External(_) => true,
        Quorum::Lost | Quorum::Disagree | Quorum::Unknown => false,
    };
    let (why, hint) = match have.api() {
        _ if !serves => (
            "etcd does not serve".to_owned(),
            "a node is given up only while a majority of etcd's members answers: bring back \
             members that are off; if they are gone for good, `rke-operator etcd recover` continues with one that is left"
                .to_owned(),
        ),
        ApiView::Unknown | ApiView::Unreachable(_) => (
            "no API server answers, and only the API shows whether its kubelet runs".to_owned(),
            format!("add `{name}` to the config again, run `up`, and then give it up"),
        ),
        ApiView::Up(_) => {
            let mut guards = lost::guards(name, have).into_iter();
            let (guard, why) =
                guards.find_map(|guard| Some((guard.clone(), guard::held(&guard, have).err()?)))?;
            let hint = if matches!(guard, Guard::ServesAfterRemoval(_)) {
                "bring back members of etcd that are off first"
            } else {
                CUT_OFF
            };
            (why, hint.to_owned())
        }
    };
    Some(not_given_up(name, &why, &hint))
}

const CUT_OFF: &str = "it is unreachable from here, but not lost: check the network to it; if it was switched off \
                       just now, try again in a minute";

fn not_given_up(name: &NodeName, why: &str, hint: &str) -> PreflightError {
    PreflightError {
        node: Some(name.clone()),
        message: format!("node `{name}` is not given up: {why}"),
        hints: vec![hint.to_owned()],
        class: ErrorClass::Host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::Explain, state::tests::saved};

    /// C10: by the state alone, with the names that there are and the one that was meant.
    #[test]
    fn a_name_that_the_cluster_does_not_have_is_answered_with_those_it_has() {
        let mut state = saved("a");
        let entry = state.inventory.values().next().unwrap().clone();
        for name in ["worker-1", "worker-2"] {
            state.inventory.insert(name.into(), entry.clone());
        }
        let of = |lose: &str, saved: Option<&ClusterState>| {
            let named = Named {
                lose: [lose.into()].into(),
                ..Named::default()
            };
            known(&named, saved).map_err(|errors| errors.hints().join("\n"))
        };
        assert_eq!(of("worker-1", Some(&state)), Ok(()));
        let near = of("worker1", Some(&state)).unwrap_err();
        assert!(near.starts_with("did you mean `worker-1`?\n"), "{near}");
        assert!(near.contains("`worker-1`, `worker-2`"), "{near}");
        let other = of("nosuch", Some(&state)).unwrap_err();
        assert!(
            other.starts_with("the nodes of the cluster are `"),
            "{other}"
        );
        let none = of("worker-1", None).unwrap_err();
        assert!(none.contains("no state"), "{none}");
    }
}

//! Whether a cluster may use the etcd outside of it that the config names. Pure. What is wrong here is known before
//! anything is written anywhere: nodes would be made that can store nothing, or that change another cluster.

use super::{PreflightError, PreflightErrors};
use crate::{
    error::ErrorClass,
    etcd::ExternalView,
    facts::{Actual, HostFacts},
    model::{Component, EtcdKeyspace, EtcdPlace, ExternalEtcd, keys_below, label},
    state::ClusterState,
};

/// Refuses an etcd that cannot be used, one whose prefix another Kubernetes has, and one that would be another place
/// for the data of a cluster that lives. `state`: what the cluster will have.
pub fn external_etcd(
    wanted: &EtcdPlace,
    state: &ClusterState,
    have: &Actual,
) -> Result<(), PreflightErrors> {
    let error = match (wanted, &state.external_etcd) {
        (EtcdPlace::Nodes, None) => None,
        (EtcdPlace::Nodes, Some(has)) => Some(moves(
            state,
            &format!("has its data in an external etcd ({}), and the config wants members of etcd on its nodes", told(has)),
        )),
        (EtcdPlace::External(etcd), has) => unusable(etcd, have).or_else(|| {
            let Some(has) = has else {
                return Some(moves(
                    state,
                    "has its data in the etcd on its own nodes, and the config names an external one",
                ));
            };
            of_this_cluster(etcd, has, state, have)
        }),
    };
    PreflightErrors::unless_empty(error.into_iter().collect())
}

fn told(keyspace: &EtcdKeyspace) -> String {
    let EtcdKeyspace {
        etcd_cluster,
        prefix,
    } = keyspace;
    format!("cluster id `{etcd_cluster}`, prefix `{prefix}`")
}

fn moves(state: &ClusterState, why: &str) -> PreflightError {
    PreflightError {
        node: None,
        message: format!(
            "cluster `{}` {why}: its data would stay behind; nothing is changed while that is so",
            state.cluster_name
        ),
        hints: vec![
            "restore `services.etcd` and the roles, and check that this is the right file for this cluster".to_owned(),
            "to move, create a new cluster there, and restore a backup of this cluster's objects into it".to_owned(),
        ],
        class: ErrorClass::User,
    }
}

/// What is wrong with the etcd itself.
fn unusable(etcd: &ExternalEtcd, have: &Actual) -> Option<PreflightError> {
    match have.etcd.external() {
        Some(ExternalView::Answered { .. }) => None,
        Some(ExternalView::Faulty(fault)) => Some(PreflightError {
            node: None,
            message: format!("{}; nothing is changed while that is so", fault.why),
            hints: fault.hints.clone(),
            class: fault.class,
        }),
        Some(ExternalView::NotAsked) | None => Some(PreflightError {
            node: None,
            message: format!(
                "the external etcd at `{}` was not looked at: no control plane answered through which it is reached; nothing is changed while that is so",
                etcd.servers()
            ),
            hints: Vec::new(),
            class: ErrorClass::Host,
        }),
    }
}

fn of_this_cluster(
    etcd: &ExternalEtcd,
    has: &EtcdKeyspace,
    state: &ClusterState,
    have: &Actual,
) -> Option<PreflightError> {
    let Some(ExternalView::Answered {
        cluster,
        holds_keys,
        silent: _,
    }) = have.etcd.external()
    else {
        return None;
    };
    let is = EtcdKeyspace {
        etcd_cluster: cluster.clone(),
        prefix: etcd.prefix.clone(),
    };
    if has.prefix == is.prefix && has.etcd_cluster != is.etcd_cluster {
        return Some(another_etcd(has, &is, *holds_keys, state));
    }
    if *has != is {
        let why = format!(
            "has its data in an external etcd ({}), but the config names another one ({})",
            told(has),
            told(&is)
        );
        return Some(moves(state, &why));
    }
    (*holds_keys && has_written_nothing(state, have)).then(|| PreflightError {
        node: None,
        message: format!(
            "the external etcd at `{}` holds keys below `{}` already: another Kubernetes has its data there, and \
            this cluster is new; nothing is changed while that is so",
            etcd.servers(),
            keys_below(&etcd.prefix)
        ),
        hints: vec![
            "set a dedicated prefix for this cluster: `services.etcd.path`".to_owned(),
            "if this is the cluster whose state was lost: `rke-operator up --recover ID` (a `Cluster` has the annotation `clusterprovisioner.rke.io/recover: ID`) reads it back from the nodes".to_owned(),
            format!(
                "if the Kubernetes that wrote those keys is gone for good: inspect them with `etcdctl get --prefix \
                --keys-only --limit 10 {0}`, and delete them with `etcdctl del --prefix {0}`",
                keys_below(&etcd.prefix)
            ),
        ],
        class: ErrorClass::User,
    })
}

/// The same place in an etcd with another cluster id: another etcd, or this one, restored from a snapshot.
fn another_etcd(
    has: &EtcdKeyspace,
    is: &EtcdKeyspace,
    holds_keys: bool,
    state: &ClusterState,
) -> PreflightError {
    let why = format!(
        "has its data in an external etcd ({}), but the config names another one ({})",
        told(has),
        told(is)
    );
    let mut error = moves(state, &why);
    let id = &is.etcd_cluster;
    error.hints.insert(
        0,
        if holds_keys {
            format!(
                "if that etcd was restored from a snapshot of this cluster's data: `rke-operator up \
                 --accept-etcd {id}` (a `Cluster` has the annotation `{}: {id}`) continues with it",
                label::ACCEPT_ETCD
            )
        } else {
            format!(
                "it holds no keys below `{}`: if it is to be restored from a snapshot of this \
                 cluster's data, do that first, and then name its new cluster id: `rke-operator up --accept-etcd ID` (a `Cluster` has \
                 the annotation `{}: ID`)",
                keys_below(&is.prefix),
                label::ACCEPT_ETCD
            )
        },
    );
    error
}

/// True where no API server of the cluster was ever seen to serve, and none is there that could have written.
fn has_written_nothing(state: &ClusterState, have: &Actual) -> bool {
    let ours = |facts: &HostFacts| {
        let server = facts.container(Component::ApiServer);
        server.is_some_and(|fact| fact.labels.get(label::CLUSTER_ID) == Some(&state.cluster_id.0))
    };
    let mut hosts = have.hosts.keys().filter_map(|name| have.up(name));
    !state.memory.populated && !hosts.any(ours)
}

/// The API answers, and nothing is in it of what the cluster held.
pub(super) fn lost_its_data(state: &ClusterState, keyspace: &EtcdKeyspace) -> PreflightError {
    PreflightError {
        node: None,
        message: format!(
            "the external etcd has lost the data of cluster `{}`: the API answers, and nothing that this cluster \
            held is in it; nothing is changed while that is so",
            state.cluster_name
        ),
        hints: vec![
            format!(
                "ask the owner of that etcd ({}) to restore it, below its prefix; if that gives it another cluster \
                id, `rke-operator up --accept-etcd ID` (a `Cluster` has the annotation `{}: ID`) continues \
                with it",
                told(keyspace),
                label::ACCEPT_ETCD
            ),
            "if the data is gone for good: remove the cluster with `rke-operator remove` (of a `Cluster`: the \
            deletion of the object), and create it again".to_owned(),
        ],
        class: ErrorClass::Host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        desired::fixture,
        etcd::{EtcdView, ExternalFault},
        facts::{ContainerFact, ContainerState, HostView},
        model::{ClientIdentity, EtcdUrl},
        state::tests::saved,
    };

    fn etcd(prefix: &str) -> EtcdPlace {
        let url = EtcdUrl {
            host: "etcd.example.com".to_owned(),
            port: 2379,
        };
        EtcdPlace::External(ExternalEtcd {
            urls: vec![url],
            prefix: prefix.to_owned(),
            identity: ClientIdentity {
                ca: String::new(),
                cert: String::new(),
                key: String::new().into(),
            },
        })
    }

    fn seen(view: ExternalView) -> Actual {
        Actual {
            etcd: EtcdView::of_external(view),
            ..Actual::default()
        }
    }

    fn answers(cluster: &str, holds_keys: bool) -> Actual {
        seen(ExternalView::Answered {
            cluster: cluster.to_owned(),
            holds_keys,
            silent: [].into(),
        })
    }

    fn state(keyspace: Option<(&str, &str)>) -> ClusterState {
        ClusterState {
            external_etcd: keyspace.map(|(cluster, prefix)| EtcdKeyspace {
                etcd_cluster: cluster.to_owned(),
                prefix: prefix.to_owned(),
            }),
            ..saved("local")
        }
    }

    fn says(wanted: &EtcdPlace, state: &ClusterState, have: &Actual) -> String {
        let result = external_etcd(wanted, state, have);
        result.map_or_else(|errors| errors.to_string(), |()| "goes on".to_owned())
    }

    fn populated(mut state: ClusterState) -> ClusterState {
        state.memory.populated = true;
        state
    }

    /// Not even after a run that was cut off before its API servers started.
    #[test]
    fn a_new_cluster_takes_no_prefix_that_has_keys() {
        let (wanted, new) = (etcd("/a"), state(Some(("cafe", "/a"))));
        assert_eq!(says(&wanted, &new, &answers("cafe", false)), "goes on");
        let mut have = answers("cafe", true);
        let said = says(&wanted, &new, &have);
        assert!(said.contains("holds keys below `/a/` already"), "{said}");
        assert_eq!(says(&wanted, &populated(new.clone()), &have), "goes on");
        let server = ContainerFact {
            id: "a51".to_owned(),
            labels: [(label::CLUSTER_ID.to_owned(), new.cluster_id.0.clone())].into(),
            state: ContainerState::Exited(1),
            runs: None,
            image: String::new(),
            started: None,
        };
        let mut facts = fixture::facts();
        facts.containers.insert("kube-apiserver".to_owned(), server);
        let view = HostView::Reachable(Box::new(facts));
        have.hosts.insert("n1".into(), view);
        assert_eq!(says(&wanted, &new, &have), "goes on");
    }

    #[test]
    fn data_does_not_move() {
        let (outside, nodes) = (etcd("/a"), EtcdPlace::Nodes);
        let here = state(None);
        let there = state(Some(("cafe", "/a")));
        let answers = answers("cafe", true);
        assert_eq!(says(&nodes, &here, &Actual::default()), "goes on");
        for (wanted, state) in [
            (&outside, &here),
            (&nodes, &there),
            (&etcd("/b"), &there),
            (&outside, &state(Some(("beef", "/a")))),
        ] {
            let said = says(wanted, state, &answers);
            assert!(said.contains("its data would stay behind"), "{said}");
        }
    }

    #[test]
    fn one_that_does_not_answer_is_refused_with_what_was_seen() {
        let (wanted, new) = (etcd("/a"), state(Some(("cafe", "/a"))));
        let fault = ExternalFault {
            class: ErrorClass::User,
            why: "etcd refused the client certificate".to_owned(),
            hints: vec!["a cure".to_owned()],
        };
        for state in [state(None), new.clone(), populated(new)] {
            let have = seen(ExternalView::Faulty(fault.clone()));
            let said = says(&wanted, &state, &have);
            assert_eq!(
                said,
                "etcd refused the client certificate; nothing is changed while that is so"
            );
            let said = says(&wanted, &state, &Actual::default());
            assert!(said.contains("was not looked at"), "{said}");
        }
    }
}

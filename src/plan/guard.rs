//! What must still hold just before a step, checked against facts that were read a moment ago. Pure.
//!
//! What was not read counts against the guard: a read that failed is no proof.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::{Guard, held::NoQuorum};
use crate::{
    etcd::EtcdView,
    facts::{Actual, ApiHealth, ContainerFact, NodeFact},
    model::{CLAIM, ClusterId, ImageVersion, NodeName, ObjectRef, label},
};

/// What has to be read to check a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look<'a> {
    /// One container of one node.
    Container(&'a NodeName, &'a str),
    /// etcd's members.
    Etcd,
    /// Each control plane's API server.
    Apis,
    /// The releases of the API servers.
    Versions,
    /// The Node objects.
    Nodes,
    /// One object in the cluster's API.
    Object(&'a ObjectRef),
}

impl Guard {
    /// What has to be read to check it.
    pub fn look(&self) -> Look<'_> {
        match self {
            Self::ClaimIs { node, .. } => Look::Container(node, CLAIM),
            Self::ContainerIs { node, name, .. } | Self::IsFormer { node, name, .. } => {
                Look::Container(node, name)
            }
            Self::QuorumWithout(_)
            | Self::ServesAfterRemoval(_)
            | Self::EtcdStable
            | Self::MemberIsSilent(_) => Look::Etcd,
            Self::ApiServesWithout(_) => Look::Apis,
            Self::ApiServersAtLeast { .. } => Look::Versions,
            Self::AtMostUnavailable { .. } | Self::NodeIsDown { .. } => Look::Nodes,
            Self::ObjectIs { object, .. } => Look::Object(object),
        }
    }

    /// The object in the cluster's API that it is about.
    pub(super) fn object(&self) -> Option<&ObjectRef> {
        match self.look() {
            Look::Object(object) => Some(object),
            Look::Container(..) | Look::Etcd | Look::Apis | Look::Versions | Look::Nodes => None,
        }
    }

    /// True for what other nodes decide: a node that was left out meanwhile may be one of them.
    pub(super) fn is_about_others(&self) -> bool {
        match self.look() {
            Look::Etcd | Look::Apis | Look::Versions | Look::Nodes => true,
            Look::Container(..) | Look::Object(_) => false,
        }
    }
}

/// What was read just now; what was not asked for is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// The container that the guard names, if it is there.
    pub container: Option<ContainerFact>,
    /// etcd.
    pub etcd: EtcdView,
    /// The API servers.
    pub apis: BTreeMap<NodeName, ApiHealth>,
    /// The releases of the API servers that answered.
    pub versions: BTreeMap<NodeName, ImageVersion>,
    /// The Node objects, if the API answered.
    pub nodes: Option<Arc<BTreeMap<NodeName, NodeFact>>>,
    /// The object that the guard names, if it is there.
    pub object: Option<Value>,
}

/// `Ok` when the guard holds. The error says what was found instead; then the run ends and plans
/// again.
pub fn holds(guard: &Guard, live: &Live) -> Result<(), String> {
    let facts = Facts {
        container: live.container.as_ref(),
        etcd: &live.etcd,
        apis: &live.apis,
        versions: &live.versions,
        nodes: live.nodes.as_deref(),
        object: live.object.as_ref(),
    };
    check(guard, &facts)
}

/// What a guard is checked against.
struct Facts<'a> {
    container: Option<&'a ContainerFact>,
    etcd: &'a EtcdView,
    apis: &'a BTreeMap<NodeName, ApiHealth>,
    versions: &'a BTreeMap<NodeName, ImageVersion>,
    nodes: Option<&'a BTreeMap<NodeName, NodeFact>>,
    object: Option<&'a Value>,
}

fn check(guard: &Guard, live: &Facts<'_>) -> Result<(), String> {
    match guard {
        Guard::ClaimIs { id, node } => claim_is(id, node, live),
        Guard::ContainerIs { node, name, id } => match live.container {
            Some(found) if found.id == *id => Ok(()),
            Some(_) => Err(format!(
                "container `{name}` on node `{node}` was re-created since the survey"
            )),
            None => Err(format!(
                "container `{name}` on node `{node}` is gone since the survey"
            )),
        },
        Guard::IsFormer { node, name, epoch } => match live.container {
            Some(found) if found.epoch() >= *epoch => Err(format!(
                "container `{name}` on node `{node}` was made after the restore"
            )),
            Some(_) | None => Ok(()),
        },
        Guard::QuorumWithout(member) => {
            serving(live.etcd)?;
            if live.etcd.serves_without(*member) {
                Ok(())
            } else {
                Err(format!(
                    "etcd would lose its quorum without member {member}"
                ))
            }
        }
        Guard::ServesAfterRemoval(member) => {
            serving(live.etcd)?;
            if live.etcd.serves_after_removal(*member) {
                Ok(())
            } else {
                Err(format!(
                    "etcd would not serve when member {member} is removed"
                ))
            }
        }
        Guard::EtcdStable => stable(live.etcd),
        Guard::MemberIsSilent(member) => {
            serving(live.etcd)?;
            if live.etcd.is_silent(*member) {
                Ok(())
            } else {
                Err(format!(
                    "etcd hears from member {member}, or it is unknown whether it does"
                ))
            }
        }
        Guard::NodeIsDown { node, uid } => node_is_down(node, uid.as_deref(), live),
        Guard::ApiServesWithout(node) => {
            let mut others = live.apis.iter().filter(|(name, _)| *name != node);
            if others.any(|(_, api)| *api == ApiHealth::Serving) {
                Ok(())
            } else {
                Err(format!(
                    "no API server answers but the one on node `{node}`"
                ))
            }
        }
        Guard::ApiServersAtLeast { version, on } => api_servers_at_least(*version, on, live),
        Guard::AtMostUnavailable { most, with } => at_most_unavailable(*most, with, live),
        Guard::ObjectIs { object, uid } => object_is(object, uid, live),
    }
}

/// The same by what the survey saw: a step whose guards do not hold there is left out of the plan.
pub(super) fn held(guard: &Guard, have: &Actual) -> Result<(), String> {
    let container = match guard.look() {
        Look::Container(node, name) => {
            let facts = have.up(node);
            facts.and_then(|facts| facts.containers.get(name))
        }
        Look::Etcd | Look::Apis | Look::Versions | Look::Nodes | Look::Object(_) => None,
    };
    let facts = Facts {
        container,
        etcd: &have.etcd,
        apis: &have.apis,
        versions: &have.versions,
        nodes: have.cluster.as_ref().map(|api| &api.nodes),
        object: None,
    };
    check(guard, &facts)
}

fn api_servers_at_least(
    version: ImageVersion,
    on: &BTreeSet<NodeName>,
    live: &Facts<'_>,
) -> Result<(), String> {
    for node in on {
        match live.versions.get(node) {
            Some(runs) if *runs >= version => {}
            Some((major, minor, patch)) => {
                return Err(format!(
                    "the API server on node `{node}` is still v{major}.{minor}.{patch}"
                ));
            }
            None => {
                return Err(format!(
                    "the API server on node `{node}` does not say which release it has"
                ));
            }
        }
    }
    Ok(())
}

fn claim_is(id: &ClusterId, node: &NodeName, live: &Facts<'_>) -> Result<(), String> {
    let Some(claim) = live.container else {
        return Err(format!(
            "node `{node}` is no longer claimed by cluster `{id}`"
        ));
    };
    match claim.labels.get(label::CLUSTER_ID) {
        Some(found) if *found == id.0 => Ok(()),
        Some(found) => Err(format!(
            "node `{node}` is now claimed by cluster `{found}`, not by `{id}`"
        )),
        None => Err(format!(
            "the claim on node `{node}` names no cluster any more, not `{id}`"
        )),
    }
}

fn object_is(object: &ObjectRef, uid: &str, live: &Facts<'_>) -> Result<(), String> {
    let Some(found) = live.object else {
        return Err(format!("{object} is gone since the survey"));
    };
    let metadata = &found["metadata"];
    if metadata["uid"].as_str() != Some(uid) {
        return Err(format!("{object} was re-created since the survey"));
    }
    if metadata["labels"][label::ADDON].is_null() {
        return Err(format!("{object} does not belong to an add-on any more"));
    }
    Ok(())
}

fn stable(etcd: &EtcdView) -> Result<(), String> {
    serving(etcd)?;
    let healthy = etcd.healthy();
    if let Some((id, _)) = etcd.voters().find(|(id, _)| !healthy.contains(id)) {
        return Err(format!("etcd's member {id} does not follow the leader"));
    }
    etcd.problems().into_iter().next().map_or(Ok(()), Err)
}

fn at_most_unavailable(most: usize, with: &NodeName, live: &Facts<'_>) -> Result<(), String> {
    let Some(nodes) = live.nodes else {
        return Err("the API does not say which nodes are Ready".to_owned());
    };
    let down: Vec<&str> = nodes
        .iter()
        .filter(|(name, node)| !node.ready || *name == with)
        .map(|(name, _)| name.0.as_str())
        .collect();
    if down.len() <= most {
        Ok(())
    } else {
        Err(format!(
            "{} nodes would not be Ready ({}), more than the allowed {most}",
            down.len(),
            down.join(", ")
        ))
    }
}

fn node_is_down(node: &NodeName, uid: Option<&str>, live: &Facts<'_>) -> Result<(), String> {
    let Some(nodes) = live.nodes else {
        return Err("the API does not say which nodes are Ready".to_owned());
    };
    match nodes.get(node) {
        Some(there) if there.ready => Err(format!(
            "node `{node}` is Ready in the API: its kubelet runs"
        )),
        Some(there) if Some(there.uid.as_str()) != uid => Err(format!(
            "node `{node}` has registered again since the survey"
        )),
        Some(_) | None => Ok(()),
    }
}

fn serving(etcd: &EtcdView) -> Result<(), String> {
    NoQuorum::of(&etcd.quorum).map_or(Ok(()), |why| Err(why.sentence().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::{Alarm, AlarmKind, ExternalView, Member, MemberId, MemberStatus, Quorum};

    const LEADER: MemberId = MemberId(1);

    /// Three voters that follow the first one.
    fn etcd() -> EtcdView {
        let member = |id: u64| {
            let node = NodeName(format!("n{id}"));
            let status = MemberStatus {
                version: "3.6.7".to_owned(),
                leader: Some(LEADER),
                term: 2,
                index: 100_000,
                is_learner: false,
                db_size: 1 << 20,
                db_in_use: 1 << 20,
                quota: None,
            };
            let member = Member {
                name: node.0.clone(),
                peer_urls: [format!("https://{node}:2380")].into(),
                is_learner: false,
                status: Some((node, status)),
            };
            (MemberId(id), member)
        };
        EtcdView {
            quorum: Quorum::Serving { leader: LEADER },
            members: (1..=3).map(member).collect(),
            alarms: [].into(),
            silent: BTreeMap::new(),
            heard: None,
        }
    }

    fn holds_for(guard: &Guard, etcd: EtcdView) -> Result<(), String> {
        let live = Live {
            etcd,
            ..Live::default()
        };
        holds(guard, &live)
    }

    fn with(change: impl FnOnce(&mut EtcdView)) -> EtcdView {
        let mut etcd = etcd();
        change(&mut etcd);
        etcd
    }

    /// The other voters must have quorum, counting those that are healthy at this moment.
    #[test]
    fn no_member_is_stopped_without_whom_etcd_loses_its_quorum() {
        let guard = Guard::QuorumWithout(MemberId(2));
        assert_eq!(holds_for(&guard, etcd()), Ok(()));
        let third_is_silent = |etcd: &mut EtcdView| {
            etcd.members.get_mut(&MemberId(3)).unwrap().status = None;
        };
        let told = holds_for(&guard, with(third_is_silent)).unwrap_err();
        assert_eq!(told, "etcd would lose its quorum without member 2");
        // A member that is already silent may be stopped.
        let guard = Guard::QuorumWithout(MemberId(3));
        assert_eq!(holds_for(&guard, with(third_is_silent)), Ok(()));
        let alone = |etcd: &mut EtcdView| etcd.members.retain(|id, _| *id == LEADER);
        let guard = Guard::QuorumWithout(LEADER);
        assert!(holds_for(&guard, with(alone)).is_err());
    }

    #[test]
    fn nothing_is_done_to_etcd_while_a_member_does_not_follow_or_raises_an_alarm() {
        let guard = Guard::EtcdStable;
        assert_eq!(holds_for(&guard, etcd()), Ok(()));
        let strays = with(|etcd| {
            let status = &mut etcd.members.get_mut(&MemberId(3)).unwrap().status;
            status.as_mut().unwrap().1.leader = None;
        });
        let told = holds_for(&guard, strays).unwrap_err();
        assert_eq!(told, "etcd's member 3 does not follow the leader");
        let full = with(|etcd| {
            let alarm = Alarm {
                member: MemberId(2),
                kind: AlarmKind::NoSpace,
            };
            etcd.alarms.insert(alarm);
        });
        let told = holds_for(&guard, full).unwrap_err();
        assert!(told.contains("`n2`") && told.contains("NOSPACE"), "{told}");
    }

    #[test]
    fn what_is_unknown_about_etcd_is_no_proof() {
        let external = Quorum::External(Box::new(ExternalView::NotAsked));
        for quorum in [Quorum::Lost, Quorum::Disagree, Quorum::Unknown, external] {
            for guard in [Guard::QuorumWithout(MemberId(2)), Guard::EtcdStable] {
                let told = holds_for(&guard, with(|etcd| etcd.quorum = quorum.clone()));
                assert!(told.is_err(), "{quorum:?} {guard:?}");
            }
        }
        assert!(holds_for(&Guard::EtcdStable, EtcdView::default()).is_err());
    }

    #[test]
    fn no_more_nodes_than_that_are_down_the_one_to_be_stopped_among_them() {
        let name = |id: u8| NodeName(format!("n{id}"));
        let nodes = |ready: [bool; 3]| {
            let facts = ready.into_iter().zip(1..).map(|(ready, id)| {
                let fact = NodeFact {
                    ready,
                    ..NodeFact::default()
                };
                (name(id), fact)
            });
            Live {
                nodes: Some(Arc::new(facts.collect())),
                ..Live::default()
            }
        };
        let guard = |most| Guard::AtMostUnavailable {
            most,
            with: name(1),
        };
        assert_eq!(holds(&guard(1), &nodes([true, true, true])), Ok(()));
        let told = holds(&guard(1), &nodes([true, false, true])).unwrap_err();
        assert_eq!(
            told,
            "2 nodes would not be Ready (n1, n2), more than the allowed 1"
        );
        assert_eq!(holds(&guard(2), &nodes([true, false, true])), Ok(()));
        // One that is down already is counted once.
        assert_eq!(holds(&guard(1), &nodes([false, true, true])), Ok(()));
        assert!(
            holds(&guard(3), &Live::default()).is_err(),
            "the nodes were not read"
        );
    }

    /// A member that does not answer us may serve all the same: its peers know.
    #[test]
    fn a_member_is_silent_only_when_its_peers_do_not_hear_it() {
        let guard = Guard::MemberIsSilent(MemberId(3));
        assert!(holds_for(&guard, etcd()).is_err(), "it answers");
        let silent = |heard: Option<&[u64]>| {
            with(|etcd| {
                etcd.members.get_mut(&MemberId(3)).unwrap().status = None;
                etcd.heard = heard.map(|ids| ids.iter().copied().map(MemberId).collect());
            })
        };
        assert_eq!(holds_for(&guard, silent(Some(&[2]))), Ok(()));
        let told = holds_for(&guard, silent(Some(&[2, 3]))).unwrap_err();
        assert!(told.starts_with("etcd hears from member 3"), "{told}");
        assert!(
            holds_for(&guard, silent(None)).is_err(),
            "its peers were not asked"
        );
        let gone = with(|etcd| etcd.members.retain(|id, _| id.0 != 3));
        assert_eq!(holds_for(&guard, gone), Ok(()), "it is no member any more");
        let lost = |mut etcd: EtcdView| {
            etcd.quorum = Quorum::Lost;
            etcd
        };
        assert!(holds_for(&guard, lost(silent(Some(&[2])))).is_err());
    }

    /// What reports to the API is alive; so is what has registered itself since.
    #[test]
    fn a_node_is_down_while_its_kubelet_does_not_report() {
        let guard = |uid: Option<&str>| Guard::NodeIsDown {
            node: "n1".into(),
            uid: uid.map(str::to_owned),
        };
        let live = |ready, uid: &str| {
            let fact = NodeFact {
                ready,
                uid: uid.to_owned(),
                ..NodeFact::default()
            };
            Live {
                nodes: Some(Arc::new([("n1".into(), fact)].into())),
                ..Live::default()
            }
        };
        assert_eq!(holds(&guard(Some("u")), &live(false, "u")), Ok(()));
        assert!(holds(&guard(Some("u")), &live(true, "u")).is_err());
        assert!(holds(&guard(Some("u")), &live(false, "v")).is_err());
        assert!(holds(&guard(None), &live(false, "v")).is_err());
        let gone = Live {
            nodes: Some(Arc::default()),
            ..Live::default()
        };
        assert_eq!(holds(&guard(Some("u")), &gone), Ok(()));
        assert!(
            holds(&guard(None), &Live::default()).is_err(),
            "the nodes were not read"
        );
    }

    #[test]
    fn an_api_server_is_stopped_only_while_another_serves() {
        let guard = Guard::ApiServesWithout("n1".into());
        let live = |apis: &[(&str, ApiHealth)]| Live {
            apis: apis
                .iter()
                .map(|(name, health)| ((*name).into(), health.clone()))
                .collect(),
            ..Live::default()
        };
        let one = ("n1", ApiHealth::Serving);
        assert!(holds(&guard, &live(std::slice::from_ref(&one))).is_err());
        let two = live(&[one, ("n2", ApiHealth::Serving)]);
        assert_eq!(holds(&guard, &two), Ok(()));
    }
}

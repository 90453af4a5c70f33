//! etcd, as its members tell. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    etcd::{
        AlarmKind, EtcdView, ExternalView, Member, MemberId, Quorum, member_name,
        view::DEFAULT_QUOTA,
    },
    facts::Actual,
    model::{NodeName, Role},
    state::Membership,
};

/// etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdStatus {
    /// Whether it serves.
    pub quorum: QuorumState,
    /// The leader: the name of its node, else its ID; null if there is none.
    pub leader: Option<String>,
    /// How many members vote.
    pub voters: usize,
    /// How many of those follow the leader and are up to date with it.
    pub healthy_voters: usize,
    /// The members, by id. Where there is no quorum, as one of them remembers the list.
    pub members: Vec<MemberState>,
    /// Nodes with the role etcd whose member is missing.
    pub nodes_without_member: Vec<NodeName>,
    /// Active alarms.
    pub alarms: Vec<RaisedAlarm>,
    /// The external etcd, if the cluster has one; then there are no members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalEtcdStatus>,
}

/// An external etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalEtcdStatus {
    /// Whether a majority of its members answers; null if it was not queried.
    pub answers: Option<bool>,
    /// Its id, in hexadecimal as `etcdctl` shows it.
    pub cluster_id: Option<String>,
    /// The prefix of the keys of this cluster.
    pub prefix: Option<String>,
    /// The URLs that do not answer.
    pub silent: Vec<String>,
}

/// Whether etcd serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum QuorumState {
    /// A majority of the voters follows one leader.
    Serving,
    /// Voters answered, and none of them reaches a majority.
    Lost,
    /// The members contradict one another, or elect a leader at this moment.
    Disagree,
    /// No voter answered.
    Unknown,
    /// The cluster has an external etcd.
    External,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberState {
    /// Its id, in hexadecimal as `etcdctl` shows it.
    pub id: String,
    /// Its name; empty if it was added and never started.
    pub name: String,
    /// Its node; null if it is on no node of the cluster.
    pub node: Option<NodeName>,
    /// Whether it votes.
    pub kind: MemberKind,
    /// It is the leader.
    pub is_leader: bool,
    /// A voter: it answered, follows the leader and is up to date with it. A learner: it answered.
    pub healthy: bool,
    /// Its etcd version; null if it did not answer; so are its index and sizes.
    pub version: Option<String>,
    /// The last entry of the Raft log that it knows to be committed. If the majority is lost, the member with the
    /// highest index has the most data.
    pub raft_index: Option<u64>,
    /// Size of its database file.
    pub database_bytes: Option<u64>,
    /// How much of it is in use.
    pub database_in_use_bytes: Option<u64>,
    /// The size at which it refuses writes.
    pub quota_bytes: Option<u64>,
    /// `databaseBytes` as a share of `quotaBytes`.
    pub quota_used_percent: Option<u64>,
}

/// Whether a member votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MemberKind {
    /// It votes.
    Voter,
    /// It does not vote yet.
    Learner,
}

/// An alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RaisedAlarm {
    /// ID of the member that raised it, in hexadecimal.
    pub member_id: String,
    /// As etcd calls it, e.g. `NOSPACE`.
    pub alarm: String,
}

pub(super) fn status(actual: &Actual) -> EtcdStatus {
    let etcd = &actual.etcd;
    let (quorum, leader) = match etcd.quorum {
        Quorum::Serving { leader } => (QuorumState::Serving, Some(leader)),
        Quorum::Lost => (QuorumState::Lost, None),
        Quorum::Disagree => (QuorumState::Disagree, None),
        Quorum::Unknown => (QuorumState::Unknown, None),
        Quorum::External(_) => (QuorumState::External, None),
    };
    let healthy = etcd.healthy();
    let members = etcd.members.iter();
    let members: Vec<MemberState> = members
        .map(|(id, member)| {
            let answered = member.status.is_some();
            let healthy = healthy.contains(id) || (member.is_learner && answered);
            state(*id, member, leader, healthy, actual)
        })
        .collect();
    EtcdStatus {
        quorum,
        leader: leader.map(|id| {
            let led = members.iter().find(|member| member.is_leader);
            let node = led.and_then(|member| member.node.as_ref());
            node.map_or_else(|| id.to_string(), NodeName::to_string)
        }),
        voters: etcd.voters().count(),
        healthy_voters: healthy.len(),
        nodes_without_member: without_member(actual, &members),
        members,
        alarms: alarms(etcd),
        external: etcd.external().map(|view| external(view, actual)),
    }
}

fn external(view: &ExternalView, actual: &Actual) -> ExternalEtcdStatus {
    let saved = actual.saved.as_ref();
    let place = saved.and_then(|saved| saved.external_etcd.clone());
    let (answers, cluster_id, silent) = match view {
        ExternalView::NotAsked => (None, None, Vec::new()),
        ExternalView::Faulty(_) => (Some(false), None, Vec::new()),
        ExternalView::Answered {
            cluster,
            holds_keys: _,
            silent,
        } => {
            let silent = silent.keys().map(ToString::to_string).collect();
            (Some(true), Some(cluster.clone()), silent)
        }
    };
    let known = place.as_ref().map(|place| place.etcd_cluster.clone());
    ExternalEtcdStatus {
        answers,
        cluster_id: cluster_id.or(known),
        prefix: place.map(|place| place.prefix),
        silent,
    }
}

fn state(
    id: MemberId,
    member: &Member,
    leader: Option<MemberId>,
    healthy: bool,
    actual: &Actual,
) -> MemberState {
    let status = member.status.as_ref().map(|(_, status)| status);
    let quota = status.map(|status| status.quota.unwrap_or(DEFAULT_QUOTA));
    let size = status.map(|status| status.db_size);
    let used = size
        .zip(quota)
        .and_then(|(size, quota)| size.saturating_mul(100).checked_div(quota));
    MemberState {
        id: id.to_string(),
        name: member.name.clone(),
        node: node_of(member, actual),
        kind: if member.is_learner {
            MemberKind::Learner
        } else {
            MemberKind::Voter
        },
        is_leader: leader == Some(id),
        healthy,
        version: status.map(|status| status.version.clone()),
        raft_index: status.map(|status| status.index),
        database_bytes: size,
        database_in_use_bytes: status.map(|status| status.db_in_use),
        quota_bytes: quota,
        quota_used_percent: used,
    }
}

/// Where it answered, or whose name it has, of the hosts that this cluster knows.
fn node_of(member: &Member, actual: &Actual) -> Option<NodeName> {
    if let Some((node, _)) = &member.status {
        return Some(node.clone());
    }
    let mut nodes = actual.hosts.keys();
    nodes.find(|node| member_name(node) == member.name).cloned()
}

/// Nodes of the state that have the role but no member; unknown while no quorum confirms the list.
fn without_member(actual: &Actual, members: &[MemberState]) -> Vec<NodeName> {
    let (Some(saved), Quorum::Serving { .. }) = (&actual.saved, &actual.etcd.quorum) else {
        return Vec::new();
    };
    let has = |name: &NodeName| members.iter().any(|one| one.node.as_ref() == Some(name));
    let etcd = saved.inventory.iter();
    let etcd = etcd.filter(|(_, entry)| {
        entry.roles.contains(&Role::Etcd) && entry.membership != Membership::Lost
    });
    etcd.filter(|(name, _)| !has(name))
        .map(|(name, _)| name.clone())
        .collect()
}

fn alarms(etcd: &EtcdView) -> Vec<RaisedAlarm> {
    let alarms = etcd.alarms.iter();
    alarms
        .map(|alarm| RaisedAlarm {
            member_id: alarm.member.to_string(),
            alarm: match &alarm.kind {
                AlarmKind::NoSpace => "NOSPACE".to_owned(),
                AlarmKind::Corrupt => "CORRUPT".to_owned(),
                AlarmKind::Other(kind) => kind.clone(),
            },
        })
        .collect()
}

//! What etcd's members said, as facts, and what follows from it. Pure.
//!
//! Quorum is a matter of etcd's voters, not of the hosts that we reach: one member that answers a
//! linearizable question has asked a majority of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::ExternalView;
use crate::model::{ContainerSpec, NodeName, samples};

/// A member's id, shown in hexadecimal as `etcdctl` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// etcd as one survey saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdView {
    /// Whether it serves.
    pub quorum: Quorum,
    /// The members. A list that no majority confirmed may be out of date; `quorum` is then not
    /// [`Quorum::Serving`].
    pub members: BTreeMap<MemberId, Member>,
    /// The alarms that are raised.
    pub alarms: BTreeSet<Alarm>,
    /// Why a member did not answer, or what it refused.
    pub silent: BTreeMap<NodeName, String>,
    /// The members with which a voter that answered has a connection. `None`: no voter was asked,
    /// because every member answered, or one that was asked did not report it.
    pub heard: Option<BTreeSet<MemberId>>,
}

/// Whether etcd serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quorum {
    /// A majority of the voters follows this member.
    Serving {
        /// The member that leads.
        leader: MemberId,
    },
    /// Voters answered, and none of them could reach a majority.
    Lost,
    /// The members contradict one another: two leaders, two clusters, or an election at this
    /// moment.
    Disagree,
    /// No voter was asked, or none answered.
    Unknown,
    /// The cluster has no members: its etcd is outside of it, and its quorum is the affair of those who run it. Nothing
    /// that is about members is asked, waited for or refused.
    External(Box<ExternalView>),
}

/// The name that a node's member is started with.
pub fn member_name(node: &NodeName) -> String {
    format!("etcd-{node}")
}

/// `--initial-cluster` of a list: etcd compares it with its own. `own`: a member that has yet to start, with the name
/// that it will have.
pub fn initial_cluster(
    members: &BTreeMap<MemberId, Member>,
    own: Option<(MemberId, &str)>,
) -> String {
    let each = members.iter().flat_map(|(id, member)| {
        let name = match own {
            Some((own, name)) if own == *id => name.to_owned(),
            Some(_) | None if member.name.is_empty() => format!("not-started-{id}"),
            Some(_) | None => member.name.clone(),
        };
        let urls = member.peer_urls.iter();
        urls.map(move |url| format!("{name}={url}"))
    });
    each.collect::<Vec<_>>().join(",")
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name; empty while it was added and never started.
    pub name: String,
    /// Where its peers reach it.
    pub peer_urls: BTreeSet<String>,
    /// True while it only follows and does not vote.
    pub is_learner: bool,
    /// The host that it answered on, and what it said.
    pub status: Option<(NodeName, MemberStatus)>,
}

/// What a member said about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Of the program, `3.6.7`.
    pub version: String,
    /// The leader that it follows; `None` while it knows of none.
    pub leader: Option<MemberId>,
    /// Its raft term.
    pub term: u64,
    /// The last entry that it knows to be committed.
    pub index: u64,
    /// True while it only follows and does not vote.
    pub is_learner: bool,
    /// Size of its database file.
    pub db_size: u64,
    /// What of it is in use.
    pub db_in_use: u64,
    /// The size at which it stops writes; `None`: it does not say (before 3.6).
    pub quota: Option<u64>,
}

/// An alarm, which only a person ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarm {
    /// Whose.
    pub member: MemberId,
    /// Which.
    pub kind: AlarmKind,
}

impl Alarm {
    /// True where the member's data differ from those of the others.
    pub fn is_corrupt(&self) -> bool {
        self.kind == AlarmKind::Corrupt
    }
}

/// Which alarm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmKind {
    /// The database has reached its quota: nothing can be written.
    NoSpace,
    /// The members' data differ.
    Corrupt,
    /// One that this version does not know.
    Other(String),
}

/// What the member on one host answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The cluster that it belongs to.
    pub cluster: u64,
    /// Its own id.
    pub member: MemberId,
    /// About itself.
    pub status: MemberStatus,
}

/// The list of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    /// True: a majority of the voters confirmed it at that moment.
    pub confirmed: bool,
    /// The members, without what they say about themselves.
    pub members: BTreeMap<MemberId, Member>,
}

impl Roster {
    /// The member that its peers reach there.
    pub fn with_peer_url(&self, peer_url: &str) -> Option<(MemberId, &Member)> {
        let mut members = self.members.iter();
        let found = members.find(|(_, member)| member.peer_urls.contains(peer_url));
        found.map(|(id, member)| (*id, member))
    }
}

/// etcd's own default when `quota-backend-bytes` is not set.
pub const DEFAULT_QUOTA: u64 = 2 << 30;

/// A member that is more entries behind than this needs a snapshot of the leader: etcd keeps no
/// more for those that follow slowly.
const NEAR: u64 = 5_000;

/// The quota that a member is started with, by its flag or, without one, by its variable. `None`: what is there is no
/// number of bytes.
pub fn quota(spec: &ContainerSpec) -> Option<u64> {
    let mut variables = spec.env.iter();
    let variable = variables.rfind(|var| var.name == "ETCD_QUOTA_BACKEND_BYTES");
    let variable = variable.map(|var| var.value().map(|value| value.expose().as_str()));
    let flag = spec.flag("quota-backend-bytes").last().map(Some);
    match flag.or(variable) {
        None => Some(DEFAULT_QUOTA),
        Some(text) => match text?.parse().ok()? {
            0 => Some(DEFAULT_QUOTA),
            bytes => Some(bytes),
        },
    }
}

/// Above this part of its quota a database stops every roll: 80 %.
const FULL: (u64, u64) = (4, 5);

/// Puts the answers of all members together.
pub fn combine(
    answers: BTreeMap<NodeName, Answer>,
    roster: Option<Roster>,
    alarms: BTreeSet<Alarm>,
    silent: BTreeMap<NodeName, String>,
) -> EtcdView {
    let quorum = quorum(&answers, roster.as_ref());
    let mut members = roster.map(|roster| roster.members).unwrap_or_default();
    for (node, answer) in answers {
        let Answer { member, status, .. } = answer;
        // One that the list does not have was removed, or belongs to another cluster.
        if let Some(member) = members.get_mut(&member) {
            member.status = Some((node, status));
        }
    }
    EtcdView {
        quorum,
        members,
        alarms,
        silent,
        heard: None,
    }
}

/// The peers with which a member has a connection at this moment, out of its metrics. One that is
/// switched off is missing after some seconds.
pub fn active_peers(metrics: &str) -> BTreeSet<MemberId> {
    samples(metrics, "etcd_network_active_peers")
        .filter(|connections| connections.value > 0.0)
        .filter_map(|active| u64::from_str_radix(active.label("Remote")?, 16).ok())
        .map(MemberId)
        .collect()
}

fn quorum(answers: &BTreeMap<NodeName, Answer>, roster: Option<&Roster>) -> Quorum {
    let clusters: BTreeSet<u64> = answers.values().map(|answer| answer.cluster).collect();
    if clusters.len() > 1 {
        return Quorum::Disagree;
    }
    let voters = || answers.values().filter(|answer| !answer.status.is_learner);
    let (Some(roster), true) = (roster, voters().next().is_some()) else {
        return Quorum::Unknown;
    };
    if !roster.confirmed {
        return Quorum::Lost;
    }
    // A member that was removed, or that is cut off from the others, still names its old leader.
    let newest = voters().map(|answer| answer.status.term).max();
    let leaders: BTreeSet<MemberId> = voters()
        .filter(|answer| roster.members.contains_key(&answer.member))
        .filter(|answer| Some(answer.status.term) == newest)
        .filter_map(|answer| answer.status.leader)
        .collect();
    let mut leaders = leaders.into_iter();
    match (leaders.next(), leaders.next()) {
        (Some(leader), None) if roster.members.contains_key(&leader) => Quorum::Serving { leader },
        (_, _) => Quorum::Disagree,
    }
}

impl Default for EtcdView {
    /// No member was asked.
    fn default() -> Self {
        Self {
            quorum: Quorum::Unknown,
            members: BTreeMap::new(),
            alarms: BTreeSet::new(),
            silent: BTreeMap::new(),
            heard: None,
        }
    }
}

impl EtcdView {
    /// Of an etcd outside of the cluster.
    pub fn of_external(view: ExternalView) -> Self {
        Self {
            quorum: Quorum::External(Box::new(view)),
            ..Self::default()
        }
    }

    /// An etcd outside of the cluster, where that is what the cluster has.
    pub fn external(&self) -> Option<&ExternalView> {
        match &self.quorum {
            Quorum::External(view) => Some(view),
            Quorum::Serving { .. } | Quorum::Lost | Quorum::Disagree | Quorum::Unknown => None,
        }
    }

    /// The members that vote.
    pub fn voters(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        let members = self.members.iter().map(|(id, member)| (*id, member));
        members.filter(|(_, member)| !member.is_learner)
    }

    /// The member on a host, if it answered.
    pub fn on(&self, node: &NodeName) -> Option<MemberId> {
        let mut members = self.members.iter();
        let found = members.find(|(_, member)| {
            let status = member.status.as_ref();
            status.is_some_and(|(at, _)| at == node)
        });
        found.map(|(id, _)| *id)
    }

    /// The members that answered on a host or have its member's name.
    pub fn of_node(&self, node: &NodeName) -> impl Iterator<Item = (MemberId, &Member)> {
        let (on, name) = (self.on(node), member_name(node));
        let members = self.members.iter().map(|(id, member)| (*id, member));
        members.filter(move |(id, member)| Some(*id) == on || member.name == name)
    }

    /// The voters that answered, follow the leader, and are near it.
    pub fn healthy(&self) -> BTreeSet<MemberId> {
        let Quorum::Serving { leader } = self.quorum else {
            return BTreeSet::new();
        };
        let index = |member: &Member| member.status.as_ref().map(|(_, status)| status.index);
        let newest = self.voters().filter_map(|(_, member)| index(member)).max();
        let newest = newest.unwrap_or(0);
        let follows = |member: &Member| {
            member.status.as_ref().is_some_and(|(_, status)| {
                status.leader == Some(leader) && newest.saturating_sub(status.index) <= NEAR
            })
        };
        self.voters()
            .filter(|(_, member)| follows(member))
            .map(|(id, _)| id)
            .collect()
    }

    /// True when a majority of the voters is healthy without this one.
    pub fn serves_without(&self, member: MemberId) -> bool {
        let mut healthy = self.healthy();
        healthy.remove(&member);
        healthy.len() > self.voters().count() / 2
    }

    /// True when a majority of the voters that are left is healthy once this one is no member any
    /// more, and there is one.
    pub fn serves_after_removal(&self, member: MemberId) -> bool {
        let mut healthy = self.healthy();
        healthy.remove(&member);
        let left = self.voters().filter(|(id, _)| *id != member).count();
        healthy.len() > left / 2
    }

    /// True when neither rke-operator nor its peers hear from this member; without a report of its peers
    /// there is no proof. One that is no member is silent.
    pub fn is_silent(&self, member: MemberId) -> bool {
        let Some(there) = self.members.get(&member) else {
            return true;
        };
        let heard = self.heard.as_ref();
        there.status.is_none() && heard.is_some_and(|heard| !heard.contains(&member))
    }

    /// What forbids to stop any member: alarms and databases that are nearly full, each as a
    /// sentence fragment.
    pub fn problems(&self) -> Vec<String> {
        let faults = self.faults().into_iter();
        faults.map(|fault| fault.what).collect()
    }

    /// The same, with which of them room is the cure for.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let name = |id: MemberId| match self.members.get(&id) {
            // Raised by hand, an alarm need not name a member.
            _ if id.0 == 0 => "a member".to_owned(),
            Some(member) if !member.name.is_empty() => format!("member `{}`", member.name),
            Some(_) | None => format!("member {id}"),
        };
        let alarms = self.alarms.iter().map(|alarm| {
            let what = match &alarm.kind {
                AlarmKind::NoSpace => "NOSPACE: its database has reached its quota",
                AlarmKind::Corrupt => "CORRUPT: its data differ from the other members'",
                AlarmKind::Other(kind) => kind,
            };
            Fault {
                what: format!("{} of etcd has raised the alarm {what}", name(alarm.member)),
                lacks_room: alarm.kind == AlarmKind::NoSpace,
            }
        });
        let full = self.members.iter().filter_map(|(id, member)| {
            let (_, status) = member.status.as_ref()?;
            let what = format!(
                "the database of {} of etcd has {} MiB of its quota of {} MiB",
                name(*id),
                status.db_size >> 20,
                status.quota.unwrap_or(DEFAULT_QUOTA) >> 20
            );
            status.nearly_has(status.db_size).then_some(Fault {
                what,
                lacks_room: true,
            })
        });
        alarms.chain(full).collect()
    }
}

/// What forbids to stop any member.
pub(crate) struct Fault {
    /// A sentence fragment.
    pub(crate) what: String,
    /// Room in the database cures it.
    pub(crate) lacks_room: bool,
}

impl MemberStatus {
    /// True for so many bytes that its quota is nearly used.
    pub(super) fn nearly_has(&self, bytes: u64) -> bool {
        let (part, whole) = FULL;
        bytes / part > self.quota.unwrap_or(DEFAULT_QUOTA) / whole
    }
}

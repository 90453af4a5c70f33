//! etcd's JSON, as its gateway writes it: numbers of 64 bits are strings, and what is zero, false
//! or empty is left out. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::view::{Alarm, AlarmKind, Answer, Member, MemberId, MemberStatus, Roster};

/// A `uint64` or `int64`: a string, or a number for those who wrote it by hand.
pub(super) fn number<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: std::str::FromStr + Deserialize<'de>,
    T::Err: std::fmt::Display,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either<T> {
        Text(String),
        Number(T),
    }
    match Either::deserialize(from)? {
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        Either::Number(number) => Ok(number),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    #[serde(deserialize_with = "number")]
    cluster_id: u64,
    #[serde(deserialize_with = "number")]
    member_id: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    header: Header,
    version: String,
    #[serde(default, deserialize_with = "number")]
    db_size: u64,
    #[serde(default, deserialize_with = "number")]
    db_size_in_use: u64,
    #[serde(default, deserialize_with = "number")]
    db_size_quota: u64,
    #[serde(default, deserialize_with = "number")]
    leader: u64,
    #[serde(default, deserialize_with = "number")]
    raft_index: u64,
    #[serde(default, deserialize_with = "number")]
    raft_applied_index: u64,
    #[serde(default, deserialize_with = "number")]
    raft_term: u64,
    #[serde(default)]
    is_learner: bool,
    /// Texts. That there are any is what we look at: alarms are then asked for.
    #[serde(default)]
    pub(super) errors: Vec<String>,
}

impl Status {
    /// The entries of the log that the member has not applied yet.
    pub(super) const fn behind(&self) -> u64 {
        self.raft_index.saturating_sub(self.raft_applied_index)
    }

    /// As a fact. `quota` is the one on the member's command line.
    pub(super) fn answer(&self, quota: Option<u64>) -> Answer {
        let Self {
            header,
            version,
            db_size,
            db_size_in_use,
            db_size_quota,
            leader,
            raft_index,
            raft_term,
            is_learner,
            raft_applied_index: _,
            errors: _,
        } = self;
        Answer {
            cluster: header.cluster_id,
            member: MemberId(header.member_id),
            status: MemberStatus {
                version: version.clone(),
                leader: (*leader != 0).then_some(MemberId(*leader)),
                term: *raft_term,
                index: *raft_index,
                is_learner: *is_learner,
                db_size: *db_size,
                db_in_use: *db_size_in_use,
                quota: (*db_size_quota != 0).then_some(*db_size_quota).or(quota),
            },
        }
    }
}

#[derive(Serialize)]
pub(super) struct ListMembers {
    /// False or absent is a list that this member remembers.
    pub(super) linearizable: bool,
}

#[derive(Deserialize)]
pub(super) struct Members {
    #[serde(default)]
    members: Vec<MemberEntry>,
}

#[derive(Deserialize)]
pub(super) struct MemberEntry {
    #[serde(rename = "ID", deserialize_with = "number")]
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "peerURLs")]
    peer_urls: BTreeSet<String>,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
}

impl MemberEntry {
    pub(super) const fn id(&self) -> MemberId {
        MemberId(self.id)
    }
}

impl Members {
    pub(super) fn roster(self, confirmed: bool) -> Roster {
        let member = |entry: MemberEntry| {
            let member = Member {
                name: entry.name,
                peer_urls: entry.peer_urls,
                is_learner: entry.is_learner,
                status: None,
            };
            (MemberId(entry.id), member)
        };
        Roster {
            confirmed,
            members: self
                .members
                .into_iter()
                .map(member)
                .collect::<BTreeMap<_, _>>(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Alarms {
    #[serde(default)]
    alarms: Vec<AlarmEntry>,
}

#[derive(Deserialize)]
struct AlarmEntry {
    #[serde(default, rename = "memberID", deserialize_with = "number")]
    member: u64,
    #[serde(default)]
    alarm: String,
}

impl Alarms {
    pub(super) fn set(self) -> BTreeSet<Alarm> {
        let alarm = |entry: AlarmEntry| Alarm {
            member: MemberId(entry.member),
            kind: match entry.alarm.as_str() {
                "NOSPACE" => AlarmKind::NoSpace,
                "CORRUPT" => AlarmKind::Corrupt,
                _ => AlarmKind::Other(entry.alarm),
            },
        };
        self.alarms.into_iter().map(alarm).collect()
    }
}

#[derive(Serialize)]
pub(super) struct AddMember<'a> {
    #[serde(rename = "peerURLs")]
    pub(super) peer_urls: [&'a str; 1],
    #[serde(rename = "isLearner")]
    pub(super) is_learner: bool,
}

#[derive(Deserialize)]
pub(super) struct Added {
    pub(super) member: MemberEntry,
}

/// Names a member in a request.
#[derive(Serialize)]
pub(super) struct ById {
    #[serde(rename = "ID")]
    id: String,
}

impl ById {
    pub(super) fn of(member: MemberId) -> Self {
        Self {
            id: member.0.to_string(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct MoveLeader {
    #[serde(rename = "targetID")]
    target: String,
}

impl MoveLeader {
    pub(super) fn to(member: MemberId) -> Self {
        Self {
            target: member.0.to_string(),
        }
    }
}

/// Every answer whose content does not matter.
#[derive(Deserialize)]
pub(super) struct Accepted {}

/// A refusal, as the gateway tells it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    pub(super) code: i64,
    pub(super) message: String,
    /// What older gateways call the message.
    pub(super) error: String,
}

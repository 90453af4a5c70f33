//! Defragmentation: what etcd no longer uses of its file goes back to the disk, of one member after the other.
//!
//! A member answers nothing meanwhile, so it is done only where every member is well, and the one that leads hands the
//! lead over first. [`order`] decides (pure), [`Defragmentation`] acts.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Alarm, AlarmKind, Asked, Client, EtcdError, EtcdView, Member, MemberId, Quorum, change, read,
};
use crate::{
    error::{ErrorClass, Explain, distinct},
    facts::Unreachable,
    model::{NodeName, quoted},
};

/// How long one member may take: etcd writes a gigabyte in some seconds, and a slow disk takes minutes for its largest file.
const TAKES: Duration = Duration::from_secs(15 * 60);
/// How long the members may take to be well again.
const WELL: Duration = Duration::from_secs(120);
/// The pause between two looks.
const LOOKS: Duration = Duration::from_millis(500);

/// Why it is not done, or not any further. What was done stays.
#[derive(Debug, thiserror::Error)]
pub enum DefragError {
    /// Nodes of members that cannot be reached: no request was sent to etcd.
    #[error("{}", reasons(.0))]
    Unreachable(Vec<Unreachable>),
    /// etcd does not serve.
    #[error("etcd does not serve: a member that is defragmented answers nothing meanwhile")]
    NotServing,
    /// Members that cannot do without another one.
    #[error(
        "members of etcd do not answer: {0}; a member that is defragmented answers nothing meanwhile"
    )]
    Silent(String),
    /// One that joins at this moment.
    #[error("member `{0}` of etcd does not vote yet")]
    Joins(String),
    /// A member whose data are not those of the others.
    #[error("a member of etcd has other data than the others (the alarm CORRUPT)")]
    Corrupt,
    /// A member.
    #[error("etcd on node `{node}`")]
    Member {
        /// Where.
        node: NodeName,
        /// Why.
        #[source]
        source: EtcdError,
    },
    /// It does not come back.
    #[error("etcd is not healthy again after {seconds} s: {0}", seconds = WELL.as_secs())]
    NotWell(String),
}

impl Explain for DefragError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable(down) => {
                ErrorClass::first(down.iter().map(|down| down.class)).unwrap_or(ErrorClass::Host)
            }
            Self::NotServing
            | Self::Silent(_)
            | Self::Joins(_)
            | Self::Corrupt
            | Self::NotWell(_) => ErrorClass::Host,
            Self::Member { source, .. } => source.class(),
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Unreachable(down) => {
                let hints = distinct(down.iter().flat_map(|down| &down.hints));
                hints.into_iter().cloned().map(Cow::Owned).collect()
            }
            Self::NotServing | Self::Silent(_) | Self::Joins(_) | Self::NotWell(_) => {
                vec!["`rke-operator etcd members` shows how each of them is".into()]
            }
            Self::Corrupt => {
                vec!["take its node out of the config, apply that, and put it back".into()]
            }
            Self::Member { source, .. } => source.hints(),
        }
    }
}

/// Why each of them cannot be reached.
fn reasons(down: &[Unreachable]) -> String {
    let reasons: Vec<&str> = down.iter().map(|down| down.why.as_str()).collect();
    reasons.join("; ")
}

/// A member whose database was defragmented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shrunk {
    /// Its node.
    pub node: NodeName,
    /// Size of its database file before, in bytes.
    pub before: u64,
    /// Size of its database file afterwards, in bytes.
    pub after: u64,
}

impl Shrunk {
    /// For people.
    pub fn line(&self) -> String {
        let Self {
            node,
            before,
            after,
        } = self;
        format!(
            "{node}: {} KiB before, {} KiB after",
            before >> 10,
            after >> 10
        )
    }
}

/// What was done.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defragmented {
    /// The members, in that order.
    pub members: Vec<Shrunk>,
    /// How many alarms NOSPACE were cleared.
    pub disarmed: usize,
}

/// The members in order, the one that leads last. Every one must be well: while one is away for this, no other may be.
pub fn order(view: &EtcdView) -> Result<Vec<(NodeName, MemberId)>, DefragError> {
    let Quorum::Serving { leader } = &view.quorum else {
        return Err(DefragError::NotServing);
    };
    let silent = view
        .members
        .iter()
        .filter(|(_, member)| member.status.is_none());
    let silent: Vec<String> = silent
        .map(|(id, member)| member_of(*id, &member.name))
        .collect();
    if !silent.is_empty() {
        return Err(DefragError::Silent(quoted(silent.iter())));
    }
    if let Some((id, member)) = view.members.iter().find(|(_, member)| member.is_learner) {
        return Err(DefragError::Joins(member_of(*id, &member.name)));
    }
    if view
        .alarms
        .iter()
        .any(|alarm| alarm.kind == AlarmKind::Corrupt)
    {
        return Err(DefragError::Corrupt);
    }
    let members = view.members.iter().filter_map(|(id, member)| {
        let (node, _) = member.status.as_ref()?;
        Some((node.clone(), *id))
    });
    let mut members: Vec<_> = members.collect();
    members.sort_by_key(|(node, id)| (id == leader, node.clone()));
    Ok(members)
}

fn member_of(id: MemberId, name: &str) -> String {
    if name.is_empty() {
        id.to_string()
    } else {
        name.to_owned()
    }
}

fn size(view: &EtcdView, id: MemberId) -> u64 {
    let status = view
        .members
        .get(&id)
        .and_then(|member| member.status.as_ref());
    status.map(|(_, status)| status.db_size).unwrap_or_default()
}

/// The members, each with its client.
pub struct Defragmentation {
    clients: BTreeMap<NodeName, Client>,
}

impl Defragmentation {
    /// Of these members.
    pub const fn of(clients: BTreeMap<NodeName, Client>) -> Self {
        Self { clients }
    }

    /// All of them, one after the other; `told` has each as soon as it is done. When this is dropped, etcd still finishes
    /// the one that was begun.
    pub async fn all(
        &self,
        told: &(dyn Fn(&Shrunk) + Send + Sync),
    ) -> Result<Defragmented, DefragError> {
        let mut members = Vec::new();
        for (node, id) in self.members().await? {
            let member = self.member(&node, id).await?;
            told(&member);
            members.push(member);
        }
        let disarmed = self.disarm().await?;
        Ok(Defragmented { members, disarmed })
    }

    /// Looks: the members in their order. Changes nothing.
    async fn members(&self) -> Result<Vec<(NodeName, MemberId)>, DefragError> {
        order(&self.view().await)
    }

    async fn view(&self) -> EtcdView {
        let asked = self.clients.iter().map(|(node, client)| Asked {
            node: node.clone(),
            client: Ok(client.clone()),
            quota: None,
        });
        read(asked.collect()).await
    }

    /// One member, and waits until every one is well again.
    async fn member(&self, node: &NodeName, id: MemberId) -> Result<Shrunk, DefragError> {
        let view = self.view().await;
        let members = order(&view)?;
        let failed = |source| DefragError::Member {
            node: node.clone(),
            source,
        };
        let client = self
            .clients
            .get(node)
            .ok_or_else(|| failed(EtcdError::NoSuchMember(id)))?;
        let leads = matches!(view.quorum, Quorum::Serving { leader } if leader == id);
        let another = members.iter().find(|(_, other)| *other != id);
        if let Some((_, other)) = another.filter(|_| leads) {
            change::move_leader(client, *other).await.map_err(failed)?;
        }
        let before = size(&view, id);
        let patient = client.clone().within(TAKES);
        change::defragment(&patient).await.map_err(failed)?;
        let view = self.well().await?;
        Ok(Shrunk {
            node: node.clone(),
            before,
            after: size(&view, id),
        })
    }

    /// Waits until every member is well.
    async fn well(&self) -> Result<EtcdView, DefragError> {
        let begun = Instant::now();
        loop {
            let view = self.view().await;
            match order(&view) {
                Ok(members) if view.healthy().len() == members.len() => return Ok(view),
                Ok(_) if begun.elapsed() < WELL => {}
                Ok(members) => {
                    let healthy = view.healthy();
                    let behind = members.iter().filter(|(_, id)| !healthy.contains(id));
                    let nodes = quoted(behind.map(|(node, _)| node));
                    return Err(DefragError::NotWell(format!("those on {nodes} are behind")));
                }
                Err(why) if begun.elapsed() > WELL => {
                    return Err(DefragError::NotWell(why.to_string()));
                }
                Err(_) => {}
            }
            tokio::time::sleep(LOOKS).await;
        }
    }

    /// Ends the alarms NOSPACE of members that have room again; gives how many.
    async fn disarm(&self) -> Result<usize, DefragError> {
        let view = self.view().await;
        let full = view.alarms.iter();
        let full = full.filter(|alarm| alarm.kind == AlarmKind::NoSpace && has_room(&view, alarm));
        let mut ended = 0;
        for (alarm, (node, client)) in full.zip(self.clients.iter().cycle()) {
            let disarmed = change::disarm(client, alarm.member).await;
            disarmed.map_err(|source| DefragError::Member {
                node: node.clone(),
                source,
            })?;
            ended += 1;
        }
        Ok(ended)
    }
}

/// Raised by hand, an alarm need not name a member: then it is about all.
fn has_room(view: &EtcdView, alarm: &Alarm) -> bool {
    let roomy = |member: &Member| {
        let status = member.status.as_ref();
        status.is_some_and(|(_, status)| !status.nearly_has(status.db_size))
    };
    match view.members.get(&alarm.member) {
        Some(member) => roomy(member),
        None => alarm.member.0 == 0 && view.members.values().all(roomy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::MemberStatus;

    fn status(leader: u64) -> MemberStatus {
        MemberStatus {
            version: "3.6.7".to_owned(),
            leader: Some(MemberId(leader)),
            term: 2,
            index: 1,
            is_learner: false,
            db_size: 1,
            db_in_use: 1,
            quota: None,
        }
    }

    /// Three members; the first is the leader.
    fn view() -> EtcdView {
        let member = |id: u64| {
            let node = NodeName::from(&*format!("n{id}"));
            let member = Member {
                name: format!("etcd-{node}"),
                peer_urls: [].into(),
                is_learner: false,
                status: Some((node, status(1))),
            };
            (MemberId(id), member)
        };
        EtcdView {
            quorum: Quorum::Serving {
                leader: MemberId(1),
            },
            members: [1, 2, 3].map(member).into(),
            alarms: [].into(),
            silent: BTreeMap::new(),
            heard: None,
        }
    }

    #[test]
    fn the_one_that_leads_is_the_last() {
        let nodes: Vec<_> = order(&view())
            .unwrap()
            .into_iter()
            .map(|(node, _)| node.0)
            .collect();
        assert_eq!(nodes, ["n2", "n3", "n1"]);
    }

    #[test]
    fn nothing_is_done_unless_every_member_is_well() {
        let refused = |change: fn(&mut EtcdView)| {
            let mut view = view();
            change(&mut view);
            order(&view).unwrap_err().to_string()
        };
        assert!(refused(|view| view.quorum = Quorum::Lost).contains("does not serve"));
        assert!(
            refused(|view| view.members.get_mut(&MemberId(2)).unwrap().status = None)
                .contains("`etcd-n2`")
        );
        assert!(
            refused(|view| view.members.get_mut(&MemberId(3)).unwrap().is_learner = true)
                .contains("does not vote yet")
        );
        let corrupt = refused(|view| {
            view.alarms.insert(Alarm {
                member: MemberId(2),
                kind: AlarmKind::Corrupt,
            });
        });
        assert!(corrupt.contains("CORRUPT"), "{corrupt}");
    }

    #[test]
    fn an_alarm_ends_where_there_is_room() {
        let of = |member| Alarm {
            member: MemberId(member),
            kind: AlarmKind::NoSpace,
        };
        let mut view = view();
        assert!([0, 1, 2].into_iter().all(|id| has_room(&view, &of(id))));
        assert!(!has_room(&view, &of(7)), "no such member");
        let full = view.members.get_mut(&MemberId(2)).unwrap().status.as_mut();
        full.unwrap().1.db_size = crate::etcd::view::DEFAULT_QUOTA;
        let room = [0, 1, 2].map(|id| has_room(&view, &of(id)));
        assert_eq!(room, [false, true, false]);
    }
}

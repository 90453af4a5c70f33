//! Asks every member, and puts their answers together. Reads only; a member that does not answer
//! is a fact.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};

use super::{
    Client,
    view::{self, Alarm, EtcdView, Member, MemberId, Roster},
};
use crate::{error::with_causes, model::NodeName};

/// How many members are asked at once.
const WIDTH: usize = 32;

/// A host whose member is asked.
pub struct Asked {
    /// Its name.
    pub node: NodeName,
    /// How it is reached, or why it cannot be.
    pub client: Result<Client, String>,
    /// `quota-backend-bytes`, as the member was started with it.
    pub quota: Option<u64>,
}

/// A member that votes.
struct Voter {
    client: Client,
    knows_leader: bool,
}

/// Asks every member for its status, and one voter for the list of members that a majority
/// confirms; without a majority, for the one that it remembers.
pub async fn read(asked: Vec<Asked>) -> EtcdView {
    read_and_tell(asked).await.0
}

/// The same, and the nodes whose members gave an answer.
pub(crate) async fn read_and_tell(asked: Vec<Asked>) -> (EtcdView, BTreeSet<NodeName>) {
    let mut silent = BTreeMap::new();
    let mut clients = Vec::new();
    for Asked {
        node,
        client,
        quota,
    } in asked
    {
        match client {
            Ok(client) => clients.push((node, client, quota)),
            Err(why) => {
                silent.insert(node, why);
            }
        }
    }
    let said: Vec<_> = stream::iter(clients)
        .map(|(node, client, quota)| async move { (client.status().await, node, client, quota) })
        .buffer_unordered(WIDTH)
        .collect()
        .await;
    let mut answers = BTreeMap::new();
    let mut voters = BTreeMap::new();
    let mut complains = false;
    for (status, node, client, quota) in said {
        match status {
            Ok(status) => {
                complains |= !status.errors.is_empty();
                let answer = status.answer(quota);
                if !answer.status.is_learner {
                    let knows_leader = answer.status.leader.is_some();
                    let voter = Voter {
                        client,
                        knows_leader,
                    };
                    voters.insert(node.clone(), voter);
                }
                answers.insert(node, answer);
            }
            Err(error) => {
                silent.insert(node, with_causes(&error));
            }
        }
    }
    let roster = roster(&voters, &mut silent).await;
    let confirmed = roster.as_ref().is_some_and(|roster| roster.confirmed);
    let alarms = if complains && confirmed {
        alarms(&voters, &mut silent).await
    } else {
        BTreeSet::new()
    };
    let answered: BTreeSet<NodeName> = answers.keys().cloned().collect();
    let mut view = view::combine(answers, roster, alarms, silent);
    let has_answered = |member: &Member| member.status.is_some();
    if confirmed && !view.members.values().all(has_answered) {
        view.heard = heard(&voters).await;
    }
    (view, answered)
}

/// The members with which a voter has a connection, if every voter tells.
async fn heard(voters: &BTreeMap<NodeName, Voter>) -> Option<BTreeSet<MemberId>> {
    let told = voters
        .values()
        .map(|voter| async { voter.client.metrics().await.ok() });
    let told: Vec<Option<String>> = futures::future::join_all(told).await;
    let peers: Option<Vec<_>> = told
        .iter()
        .map(|metrics| metrics.as_deref().map(view::active_peers))
        .collect();
    Some(peers?.into_iter().flatten().collect())
}

/// The list that a majority confirms, through any voter that knows a leader; else one that a
/// voter remembers.
async fn roster(
    voters: &BTreeMap<NodeName, Voter>,
    silent: &mut BTreeMap<NodeName, String>,
) -> Option<Roster> {
    // Without a leader the question would wait for one until it is given up.
    let led: Vec<(NodeName, Client)> = voters
        .iter()
        .filter(|(_, voter)| voter.knows_leader)
        .map(|(node, voter)| (node.clone(), voter.client.clone()))
        .collect();
    let mut lists = stream::iter(led)
        .map(|(node, client)| async move { (node, client.members(true).await) })
        .buffer_unordered(WIDTH);
    while let Some((node, list)) = lists.next().await {
        match list {
            Ok(list) => return Some(list.roster(true)),
            Err(error) => {
                silent.insert(node, with_causes(&error));
            }
        }
    }
    for voter in voters.values() {
        if let Ok(list) = voter.client.members(false).await {
            return Some(list.roster(false));
        }
    }
    None
}

async fn alarms(
    voters: &BTreeMap<NodeName, Voter>,
    silent: &mut BTreeMap<NodeName, String>,
) -> BTreeSet<Alarm> {
    for (node, voter) in voters {
        match voter.client.alarms().await {
            Ok(alarms) => return alarms.set(),
            Err(error) => {
                silent.insert(node.clone(), with_causes(&error));
            }
        }
    }
    BTreeSet::new()
}

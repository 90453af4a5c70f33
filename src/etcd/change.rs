//! Operations on members, each harmless to repeat: it looks first, and after a refusal it looks
//! again and decides by the members, not by the refusal's code or words (one code stands for
//! several causes).

use super::{
    Client, EtcdError, MemberId, Roster,
    wire::{Accepted, AddMember, Added, ById, MoveLeader},
};

/// Adds a member that only follows, and gives its id; one that has this peer URL already is it.
pub async fn add_learner(any: &Client, peer_url: &str) -> Result<MemberId, EtcdError> {
    if let Some(there) = roster(any).await?.with_peer_url(peer_url).map(|(id, _)| id) {
        return Ok(there);
    }
    let request = AddMember {
        peer_urls: [peer_url],
        is_learner: true,
    };
    let doing = "add a member";
    let added: Result<Added, _> = any.ask(doing, "/v3/cluster/member/add", &request).await;
    match added {
        Ok(added) => Ok(added.member.id()),
        Err(error) => roster(any)
            .await?
            .with_peer_url(peer_url)
            .map(|(id, _)| id)
            .ok_or(error),
    }
}

/// Makes a learner a voter. Refused by etcd while it has not caught up.
pub async fn promote(any: &Client, member: MemberId) -> Result<(), EtcdError> {
    if votes(&roster(any).await?, member)? {
        return Ok(());
    }
    let (doing, path) = ("promote a member", "/v3/cluster/member/promote");
    let promoted: Result<Accepted, _> = any.ask(doing, path, &ById::of(member)).await;
    let Err(error) = promoted else { return Ok(()) };
    if votes(&roster(any).await?, member)? {
        Ok(())
    } else {
        Err(error)
    }
}

/// Removes a member; one that is gone is success.
pub async fn remove(any: &Client, member: MemberId) -> Result<(), EtcdError> {
    let is_there = |roster: Roster| roster.members.contains_key(&member);
    if !is_there(roster(any).await?) {
        return Ok(());
    }
    let (doing, path) = ("remove a member", "/v3/cluster/member/remove");
    let removed: Result<Accepted, _> = any.ask(doing, path, &ById::of(member)).await;
    let Err(error) = removed else { return Ok(()) };
    if is_there(roster(any).await?) {
        Err(error)
    } else {
        Ok(())
    }
}

/// Hands the lead over. `leader` is a client of the member that leads; when the other leads
/// already, nothing is done.
pub async fn move_leader(leader: &Client, to: MemberId) -> Result<(), EtcdError> {
    let answer = leader.status().await?.answer(None);
    match answer.status.leader {
        Some(now) if now == to => return Ok(()),
        Some(now) if now == answer.member => {}
        Some(_) | None => {
            return Err(EtcdError::NotTheLeader {
                asked: answer.member,
            });
        }
    }
    let doing = "hand over the lead";
    let path = "/v3/maintenance/transfer-leadership";
    let moved: Result<Accepted, _> = leader.ask(doing, path, &MoveLeader::to(to)).await;
    let Err(error) = moved else { return Ok(()) };
    let now = leader.status().await?.answer(None).status.leader;
    if now == Some(to) { Ok(()) } else { Err(error) }
}

/// Gives unused space of a member's database back to its disk. The member answers nothing meanwhile.
pub(super) async fn defragment(member: &Client) -> Result<(), EtcdError> {
    let path = "/v3/maintenance/defragment";
    let nothing = serde_json::json!({});
    let done: Accepted = member.ask("defragment", path, &nothing).await?;
    let Accepted {} = done;
    Ok(())
}

/// Ends the alarm of a member that its database has reached its quota; one that is not raised is success.
pub(super) async fn disarm(any: &Client, member: MemberId) -> Result<(), EtcdError> {
    let request = serde_json::json!({
        "action": "DEACTIVATE", "memberID": member.0.to_string(), "alarm": "NOSPACE",
    });
    let done: Accepted = any
        .ask("end an alarm", "/v3/maintenance/alarm", &request)
        .await?;
    let Accepted {} = done;
    Ok(())
}

/// The members, as a majority confirms them.
pub async fn roster(any: &Client) -> Result<Roster, EtcdError> {
    Ok(any.members(true).await?.roster(true))
}

fn votes(roster: &Roster, member: MemberId) -> Result<bool, EtcdError> {
    let found = roster.members.get(&member);
    let found = found.ok_or(EtcdError::NoSuchMember(member))?;
    Ok(!found.is_learner)
}

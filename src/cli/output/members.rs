//! etcd's members for people: a line about the whole, a row each, then the alarms, and why nodes do not answer. Decides
//! nothing.

use super::{
    Page,
    status::{by_node, kind, listed, quorum},
    table::{Cell, Tone, plain},
};
use crate::{
    model::Role,
    status::{About, EtcdStatus, MemberState, Problem, Status},
};

const HEADING: [&str; 8] = [
    "NODE", "MEMBER", "ROLE", "INDEX", "VERSION", "DATABASE", "IN USE", "QUOTA",
];

/// Omitted on a narrow terminal.
const SPARE: [&str; 5] = ["QUOTA", "IN USE", "INDEX", "DATABASE", "VERSION"];

/// The members, as far as one of them answers, and what is wrong with them.
pub fn render(status: &Status, page: Page) -> String {
    let mut sections = vec![table(&status.etcd, page), render_problems(status, page)];
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

/// The problems of etcd, and of the nodes with etcd that do not answer, with causes and cures. Empty: there are none.
pub fn render_problems(status: &Status, page: Page) -> String {
    listed(&problems(status), page)
}

fn problems(status: &Status) -> Vec<&Problem> {
    let on_etcd = |problem: &Problem| {
        let node = problem.node.as_ref().and_then(|name| status.node(name));
        node.is_some_and(|node| node.roles.contains(&Role::Etcd))
    };
    let all = status.problems.iter();
    all.filter(|problem| match problem.about {
        About::Etcd => true,
        About::Reachability => on_etcd(problem),
        About::ControlPlane
        | About::Nodes
        | About::Addons
        | About::Certificates
        | About::Snapshots => false,
    })
    .collect()
}

fn table(etcd: &EtcdStatus, page: Page) -> String {
    let mut lines = vec![format!("etcd: {}", quorum(etcd))];
    let members = by_node(&etcd.members).into_iter();
    let members = members.map(|member| row(member, etcd));
    let without = etcd.nodes_without_member.iter().map(|node| {
        let mut row = vec![Cell::calm(&node.0), Cell::toned("none", Tone::Bad)];
        row.resize_with(HEADING.len(), || Cell::or_dash(None));
        row
    });
    let rows: Vec<Vec<Cell>> = members.chain(without).collect();
    if !rows.is_empty() {
        lines.push(plain(&HEADING, &SPARE, &rows, page));
    }
    for alarm in &etcd.alarms {
        let text = format!("alarm {} of member {}", alarm.alarm, alarm.member_id);
        lines.push(page.paint.bad(&text));
    }
    lines.join("\n")
}

fn row(member: &MemberState, etcd: &EtcdStatus) -> Vec<Cell> {
    let node = member.node.as_ref();
    let size = |bytes: Option<u64>| bytes.map(|bytes| format!("{} MiB", bytes.div_ceil(1 << 20)));
    let used = member.database_in_use_bytes.zip(member.database_bytes);
    let used = used.and_then(|(used, all)| used.saturating_mul(100).checked_div(all));
    vec![
        node.map_or_else(
            || Cell::toned("no such node", Tone::Bad),
            |node| Cell::calm(&node.0),
        ),
        Cell::calm(&member.id),
        kind(member, etcd.quorum),
        Cell::or_dash(member.raft_index.map(|index| index.to_string())),
        Cell::or_dash(member.version.clone()),
        Cell::or_dash(size(member.database_bytes)),
        Cell::or_dash(used.map(|percent| format!("{percent} %"))),
        Cell::or_dash(size(member.quota_bytes)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::output::Paint,
        model::NodeName,
        status::{MemberKind, QuorumState, RaisedAlarm},
    };

    fn member(node: &str, number: u64, is_leader: bool) -> MemberState {
        MemberState {
            id: format!("{number:x}"),
            name: format!("etcd-{node}"),
            node: Some(NodeName(node.to_owned())),
            kind: MemberKind::Voter,
            is_leader,
            healthy: true,
            raft_index: Some(4711),
            version: Some("3.6.7".to_owned()),
            database_bytes: Some(40 << 20),
            database_in_use_bytes: Some(10 << 20),
            quota_bytes: Some(2 << 30),
            quota_used_percent: Some(2),
        }
    }

    #[test]
    fn members_and_what_is_wrong_with_them_are_listed() {
        let mut silent = member("n2", 0xb2, false);
        silent.healthy = false;
        silent.version = None;
        silent.raft_index = None;
        silent.database_bytes = None;
        silent.quota_bytes = None;
        let etcd = EtcdStatus {
            quorum: QuorumState::Serving,
            leader: Some("n1".to_owned()),
            voters: 2,
            healthy_voters: 1,
            members: vec![member("n1", 0xa1, true), silent],
            nodes_without_member: vec![NodeName("n3".to_owned())],
            alarms: vec![RaisedAlarm {
                member_id: "a1".to_owned(),
                alarm: "NOSPACE".to_owned(),
            }],
            external: None,
        };
        let page = Page {
            paint: Paint::OFF,
            columns: Some(80),
        };
        insta::assert_snapshot!(table(&etcd, page));
    }
}

//! A [`Status`] for people: a few lines about the whole, a tree of control planes, etcd and
//! workers, then sentences: what is wrong, and what `up` would change. Colour never carries
//! meaning. Decides nothing.

use super::{
    Page,
    lines::count,
    table::{Branch, Cell, Tone, paragraph, tree},
};
use crate::{
    facts::by_cause,
    model::{NodeName, Role},
    plan::Cause,
    snapshots::record::Grade,
    status::{
        ApiState, CertificateEnd, CertificateStatus, ControlPlane, CopyStatus, Difference,
        EtcdStatus, ExternalEtcdStatus, Health, MemberKind, MemberState, NodeStatus, Place,
        PlannedStep, Problem, QuorumState, SnapshotStatus, Status,
    },
};

/// From here on a certificate's days are something to look at: two runs of `up` may be missed.
const FEW_DAYS: i64 = 60;
/// Columns that are omitted on a narrow terminal.
const SPARE: [&str; 4] = ["DATABASE", "AGE", "VERSION", "CERTS"];

/// The whole status.
pub fn render(status: &Status, config: &str, page: Page) -> String {
    let mut sections = vec![head(status, config, page)];
    let branches = branches(status);
    sections.push(tree(&branches, &SPARE, page));
    sections.push(problems(status, page));
    sections.push(differences(status, config, page));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

fn head(status: &Status, config: &str, page: Page) -> String {
    let cluster = &status.cluster;
    let paint = page.paint;
    let health = match cluster.health {
        Health::Healthy => "is healthy".to_owned(),
        Health::Degraded => paint.warn("is degraded"),
        Health::Unavailable if sees_control_planes(status) => paint.bad("does not answer"),
        Health::Unavailable => paint.bad("cannot be examined"),
        Health::Absent => paint.warn("has no state: it was not created yet, or its state is lost"),
    };
    let mut lines = vec![paragraph(
        "",
        &format!("cluster `{}` {health}", cluster.name),
        page,
    )];
    let mut say = |what: &str, text: &str| {
        lines.push(paragraph(&format!("  {what:<13} "), text, page));
    };
    if let Some(id) = &cluster.id {
        say("id", &id.0);
    }
    if let Some(begun) = status.removal_begun {
        let begun = shown(begun);
        say(
            "removal",
            &format!("begun at {begun}, not finished: `rke-operator remove` continues it"),
        );
    }
    say("Kubernetes", &versions(status));
    say("config", &agreement(status, config));
    if cluster.id.is_some() {
        say("etcd", &quorum(&status.etcd));
        match &status.snapshots {
            Some(snapshots) => say("snapshots", &self::snapshots(snapshots)),
            None => say("snapshots", &status.backed_up.1),
        }
        say("certificates", &certificates(status));
    }
    lines.join("\n")
}

fn versions(status: &Status) -> String {
    let wanted = status.cluster.wanted_kubernetes_version.as_deref();
    let wanted = wanted.unwrap_or("another release");
    match &status.cluster.kubernetes_version {
        Some(has) if has == wanted => has.clone(),
        Some(has) => format!("{has}; the config wants {wanted}"),
        None => {
            let why = if status.cluster.id.is_none() {
                "there is no state"
            } else if sees_control_planes(status) {
                "no API server answers"
            } else {
                "no control plane can be used"
            };
            format!("unknown, because {why}; the config wants {wanted}")
        }
    }
}

/// A node with a control plane was logged in to: what it says of the cluster is known.
fn sees_control_planes(status: &Status) -> bool {
    let planes = status.control_planes.iter();
    let mut planes = planes.filter_map(|plane| status.node(&plane.node));
    planes.any(|node| node.reachable == Some(true))
}

fn agreement(status: &Status, config: &str) -> String {
    match status.cluster.agrees_with_config {
        Some(true) if !status.differences.held.is_empty() => {
            format!("as `{config}` says, except for what waits, see below")
        }
        Some(true) => format!("as `{config}` says"),
        Some(false) => {
            let steps = status.differences.targets.iter();
            let steps = steps.map(|target| target.steps.len()).sum();
            format!(
                "differs from `{config}`: {} of `up`, besides those that only wait",
                count(steps, "step")
            )
        }
        None => "`up` would fail, see below".to_owned(),
    }
}

/// The newest, in a sentence.
pub fn snapshots(snapshots: &SnapshotStatus) -> String {
    let nodes = count(snapshots.nodes.len(), "node");
    let Some(newest) = &snapshots.newest else {
        return format!("none yet; to be taken on {nodes}");
    };
    let grade = match newest.grade {
        Grade::Proven => "proven",
        Grade::Checked => "checked, without a trial restore",
        Grade::Saved => "saved, not verified",
        Grade::Failed => "which cannot be restored",
    };
    let copied = match &snapshots.copies {
        None => String::new(),
        Some(CopyStatus { newest: None, .. }) => "; no copy yet".to_owned(),
        Some(CopyStatus {
            newest: Some(copy), ..
        }) => format!("; newest copy of {}", shown(copy.taken_at)),
    };
    format!(
        "newest of {} on {}, {grade}{copied}; taken on {nodes}",
        shown(newest.taken_at),
        newest.node
    )
}

fn shown(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Whether it serves, in a sentence.
pub(super) fn quorum(etcd: &EtcdStatus) -> String {
    let (healthy, voters) = (etcd.healthy_voters, etcd.voters);
    match (etcd.quorum, &etcd.leader) {
        (QuorumState::Serving, Some(leader)) => {
            format!("{healthy} of {voters} voters are healthy, `{leader}` leads")
        }
        (QuorumState::Serving, None) => format!("{healthy} of {voters} voters are healthy"),
        (QuorumState::Lost, _) => "has no quorum".to_owned(),
        (QuorumState::Disagree, _) => "its members do not agree on one leader".to_owned(),
        (QuorumState::Unknown, _) => "unknown, because no member answers".to_owned(),
        (QuorumState::External, _) => external(etcd.external.as_ref()),
    }
}

fn external(etcd: Option<&ExternalEtcdStatus>) -> String {
    let answers = match etcd.and_then(|etcd| etcd.answers) {
        Some(true) => "answers",
        Some(false) => "does not answer",
        None => "was not asked",
    };
    let prefix = etcd.and_then(|etcd| etcd.prefix.as_deref());
    let prefix = prefix.map(|prefix| format!("; the keys of this cluster are below `{prefix}`"));
    format!("External, {answers}{}", prefix.unwrap_or_default())
}

fn certificates(status: &Status) -> String {
    let nodes = status.nodes.iter().filter_map(|node| {
        let end = node.first_certificate_to_end.as_ref()?;
        Some((end, format!("`{}` of node `{}`", end.name, node.name)))
    });
    let nodes = nodes.min_by_key(|(end, _)| end.not_after);
    let authorities = status.authorities.iter();
    let authorities = authorities.map(|one| (&one.end, one.end.name.clone()));
    let authorities = authorities.min_by_key(|(end, _)| end.not_after);
    let ends = nodes.into_iter().chain(authorities);
    let ends: Vec<String> = ends
        .map(|(end, what)| match end.days_left {
            days @ 0.. => format!("{what} expires in {}", count_of_days(days)),
            days => format!("{what} expired {} ago", count_of_days(-days)),
        })
        .collect();
    format!("the first: {}", ends.join("; "))
}

fn count_of_days(days: i64) -> String {
    count(usize::try_from(days).unwrap_or_default(), "day")
}

/// The tree. Each row ends with what all nodes have in common.
fn branches(status: &Status) -> Vec<Branch> {
    const NODE: [&str; 4] = ["NODE", "AGE", "CERTS", ""];
    let with = |own: &[&'static str]| [own, &NODE].concat();
    let common = |name: &NodeName| status.node(name).map_or_else(Vec::new, common);
    let control_planes = status.control_planes.iter().map(|plane| {
        let own = vec![
            Cell::calm(&plane.node.0),
            api(plane),
            Cell::or_dash(plane.version.clone()),
        ];
        [own, common(&plane.node)].concat()
    });
    let members = by_node(&status.etcd.members).into_iter().map(|member| {
        let node = member.node.as_ref();
        let own = vec![
            node.map_or_else(
                || Cell::toned(&member.id, Tone::Bad),
                |node| Cell::calm(&node.0),
            ),
            kind(member, status.etcd.quorum),
            Cell::or_dash(member.version.clone()),
            database(member),
        ];
        [own, node.map_or_else(no_node, common)].concat()
    });
    let without = status.etcd.nodes_without_member.iter().map(|name| {
        let none = Cell::toned("none", Tone::Bad);
        let own = vec![
            Cell::calm(&name.0),
            none,
            Cell::or_dash(None),
            Cell::or_dash(None),
        ];
        [own, common(name)].concat()
    });
    let kubelet = |name: &NodeName| {
        let node = status.node(name);
        let version = node.and_then(|node| node.kubelet_version.clone());
        [
            vec![Cell::calm(&name.0), Cell::or_dash(version)],
            common(name),
        ]
        .concat()
    };
    let others = status.nodes.iter();
    let others = others.filter(|node| !is_shown(node, status));
    let branches = [
        Branch {
            heading: with(&["control planes", "API", "VERSION"]),
            rows: control_planes.collect(),
        },
        Branch {
            heading: with(&["etcd", "MEMBER", "VERSION", "DATABASE"]),
            rows: members.chain(without).collect(),
        },
        Branch {
            heading: with(&["workers", "VERSION"]),
            rows: status.workers.iter().map(kubelet).collect(),
        },
        Branch {
            heading: with(&["other nodes", "VERSION"]),
            rows: others.map(|node| kubelet(&node.name)).collect(),
        },
    ];
    branches
        .into_iter()
        .filter(|branch| !branch.rows.is_empty())
        .collect()
}

/// In the order of the other tables. Members on no known node come last.
pub(super) fn by_node(members: &[MemberState]) -> Vec<&MemberState> {
    let mut members: Vec<&MemberState> = members.iter().collect();
    members.sort_by_key(|member| (member.node.is_none(), member.node.as_ref()));
    members
}

/// It has a row in one of the first three branches.
fn is_shown(node: &NodeStatus, status: &Status) -> bool {
    let etcd = &status.etcd;
    let mut members = etcd
        .members
        .iter()
        .filter_map(|member| member.node.as_ref());
    node.roles.contains(&Role::ControlPlane)
        || node.roles.contains(&Role::Worker)
        || members.any(|name| *name == node.name)
        || etcd.nodes_without_member.contains(&node.name)
}

fn api(plane: &ControlPlane) -> Cell {
    match plane.api {
        ApiState::Serving => Cell::calm("serves"),
        ApiState::NotServing => Cell::toned("down", Tone::Bad),
        ApiState::Missing => Cell::toned("none", Tone::Warn),
        ApiState::Unknown => Cell::toned("unknown", Tone::Warn),
    }
}

/// What a member is to the others.
pub(super) fn kind(member: &MemberState, quorum: QuorumState) -> Cell {
    match member.kind {
        MemberKind::Learner => Cell::toned("learner", Tone::Warn),
        MemberKind::Voter if member.is_leader => Cell::calm("leader"),
        MemberKind::Voter if member.healthy => Cell::calm("voter"),
        MemberKind::Voter if quorum == QuorumState::Serving => Cell::toned("away", Tone::Bad),
        MemberKind::Voter if member.version.is_some() => Cell::toned("alone", Tone::Bad),
        MemberKind::Voter => Cell::toned("away", Tone::Bad),
    }
}

fn database(member: &MemberState) -> Cell {
    let Some((size, used)) = member.database_bytes.zip(member.quota_used_percent) else {
        return Cell::or_dash(None);
    };
    let tone = if used > 80 { Tone::Bad } else { Tone::Calm };
    Cell::toned(format!("{} MiB, {used} %", size.div_ceil(1 << 20)), tone)
}

fn common(node: &NodeStatus) -> Vec<Cell> {
    let ready = match (node.ready, node.in_cluster) {
        (Some(true), _) => Cell::calm("Ready"),
        (Some(false), _) => Cell::toned("NotReady", Tone::Bad),
        (None, true) => Cell::toned("unknown", Tone::Warn),
        (None, false) => Cell::or_dash(None),
    };
    vec![
        ready,
        Cell::or_dash(node.age_seconds.map(age)),
        node.first_certificate_to_end
            .as_ref()
            .map_or_else(|| Cell::or_dash(None), days),
        remark(node),
    ]
}

/// A member on no node of the cluster.
fn no_node() -> Vec<Cell> {
    let unknown = "no such node";
    let dash = || Cell::or_dash(None);
    vec![dash(), dash(), dash(), Cell::toned(unknown, Tone::Bad)]
}

fn remark(node: &NodeStatus) -> Cell {
    let place = match (node.in_cluster, node.in_config) {
        (true, true) => "",
        (true, false) => "not in the config",
        (false, true) => "new",
        (false, false) => "not in the state",
    };
    match (node.reachable, place) {
        (Some(false), "") => Cell::toned("unreachable", Tone::Bad),
        (Some(false), place) => Cell::toned(format!("unreachable, {place}"), Tone::Bad),
        (_, "") => Cell::calm(""),
        (_, place) => Cell::toned(place, Tone::Warn),
    }
}

/// As kubectl shows ages.
pub(super) fn age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn days(end: &CertificateEnd) -> Cell {
    let tone = match end.days_left {
        ..0 => Tone::Bad,
        0..FEW_DAYS => Tone::Warn,
        _ => Tone::Calm,
    };
    Cell::toned(format!("{}d", end.days_left), tone)
}

fn problems(status: &Status, page: Page) -> String {
    listed(&status.problems.iter().collect::<Vec<_>>(), page)
}

/// Problems with their cures, below a heading; nodes that do not answer by their causes. Empty where there are none.
pub(super) fn listed(problems: &[&Problem], page: Page) -> String {
    if problems.is_empty() {
        return String::new();
    }
    let mut lines = vec!["\nproblems".to_owned()];
    let down = problems.iter();
    let down = down.filter_map(|problem| problem.node.as_ref().zip(problem.down.as_ref()));
    let down = by_cause(down);
    for group in &down {
        lines.push(paragraph("  - ", &group.named(), page));
    }
    let hints = down.iter().flat_map(|group| &group.hints);
    let mut hints: Vec<&str> = hints.map(String::as_str).collect();
    for problem in problems.iter().filter(|problem| problem.down.is_none()) {
        let head = problem
            .node
            .as_ref()
            .map_or_else(|| "  - ".to_owned(), |node| format!("  - {node}: "));
        lines.push(paragraph(&head, &problem.message, page));
        hints.extend(problem.hints.iter().map(String::as_str));
    }
    lines.extend(hint_lines(hints, page));
    lines.join("\n")
}

pub(super) fn hint_lines<'a>(hints: impl IntoIterator<Item = &'a str>, page: Page) -> Vec<String> {
    let hints = crate::error::distinct(hints).into_iter();
    hints
        .map(|hint| {
            let line = paragraph("  hint: ", hint, page);
            line.replacen("hint:", &page.paint.hint("hint:"), 1)
        })
        .collect()
}

fn differences(status: &Status, config: &str, page: Page) -> String {
    let differences = &status.differences;
    let mut lines = Vec::new();
    if let Some(refusal) = &differences.refusal {
        lines.push("\n`up` would fail, and change nothing".to_owned());
        for line in refusal.message.lines() {
            lines.push(paragraph("  ", line.trim(), page));
        }
        // What the problems above have said already is not said again.
        let said = |hint: &&str| {
            let mut problems = status.problems.iter();
            !problems.any(|problem| problem.hints.iter().any(|known| known == hint))
        };
        let hints = refusal.hints.iter().map(String::as_str).filter(said);
        lines.extend(hint_lines(hints, page));
    } else if !differences.targets.is_empty() {
        let text = format!("`up` would change it to match `{config}`");
        lines.push(format!("\n{}", paragraph("", &text, page)));
        let targets = differences.targets.iter();
        lines.extend(targets.flat_map(|target| summed(target, page)));
        let hint = "`rke-operator plan` shows every step";
        lines.extend(hint_lines([hint], page));
    }
    let notes = differences.notes.iter();
    let notes: Vec<String> = notes
        .map(|note| {
            let node = note.node.as_ref();
            let head = node.map_or_else(|| "  ".to_owned(), |node| format!("  {node}: "));
            paragraph(&head, &note.text, page)
        })
        .collect();
    if !notes.is_empty() {
        lines.push("\nnotes".to_owned());
        lines.extend(notes);
    }
    lines.join("\n")
}

/// As many steps of one cause are shown one by one.
const FEW_STEPS: usize = 3;

/// What would be done to one thing, by cause.
fn summed(difference: &Difference, page: Page) -> Vec<String> {
    let target = match (difference.place, &difference.node) {
        (Place::Node, Some(node)) => node.0.as_str(),
        (Place::Node, None) | (Place::Cluster, _) => "the cluster",
        (Place::Local, _) => "here",
    };
    let mut causes: Vec<(Cause, Vec<&PlannedStep>)> = Vec::new();
    for step in &difference.steps {
        match causes.iter_mut().find(|(cause, _)| *cause == step.cause) {
            Some((_, steps)) => steps.push(step),
            None => causes.push((step.cause, vec![step])),
        }
    }
    let mut lines = Vec::new();
    for (cause, steps) in causes {
        let head = format!("  {target}: ");
        let shown = if steps.len() > FEW_STEPS {
            0
        } else {
            steps.len()
        };
        let each = steps.iter().take(shown);
        lines.extend(
            each.map(|step| paragraph(&head, &format!("{}: {}", step.action, step.why), page)),
        );
        if shown < steps.len() {
            let (many, why) = (count(steps.len(), "step"), because(cause));
            lines.push(paragraph(&head, &format!("{many}, {why}"), page));
        }
    }
    lines
}

const fn because(cause: Cause) -> &'static str {
    match cause {
        Cause::New => "because it is new",
        Cause::Drift => "because it was changed from outside",
        Cause::Change => "because the config changed",
        Cause::Expiry => "because certificates expire soon",
        Cause::Leave => "because it leaves the cluster",
        Cause::Replace => "because it replaces a lost node",
    }
}

/// The certificates of a cluster: those that are no node's own, then node by node.
pub fn render_certificates(all: &[CertificateStatus], page: Page) -> String {
    let mut nodes: Vec<Option<&NodeName>> = all.iter().map(|one| one.node.as_ref()).collect();
    nodes.dedup();
    let mut sections = Vec::new();
    for node in nodes {
        let mut lines = vec![node.map_or("the cluster", |node| &node.0).to_owned()];
        for one in all.iter().filter(|one| one.node.as_ref() == node) {
            lines.extend(certificate(one, page));
        }
        sections.push(lines.join("\n"));
    }
    sections.join("\n\n") + "\n"
}

fn certificate(one: &CertificateStatus, page: Page) -> Vec<String> {
    let CertificateEnd {
        name,
        not_after,
        days_left,
    } = &one.end;
    let left = match *days_left {
        days @ 0.. => format!("{} left", count_of_days(days)),
        days => format!("expired {} ago", count_of_days(-days)),
    };
    let renewed = if one.renewed_by_next_up {
        ", re-created by the next `up`"
    } else {
        ""
    };
    let mut lines = vec![
        format!("  {name}"),
        paragraph("      ", &format!("{not_after}, {left}{renewed}"), page),
        paragraph("      ", &one.subject, page),
    ];
    if !one.served_on.is_empty() {
        let ports: Vec<String> = one.served_on.iter().map(u16::to_string).collect();
        let text = format!("served on port {}", ports.join(", "));
        lines.push(paragraph("      ", &text, page));
    }
    if !one.subject_alternative_names.is_empty() {
        let names = one.subject_alternative_names.join(", ");
        lines.push(paragraph("      for ", &names, page));
    }
    lines
}

//! Recurring snapshots of etcd, as the programs on the nodes report them. Pure.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::{About, Problem, Seen};
use crate::{
    config::Intent,
    model::{NodeName, Role},
    snapshots::record::{Copies, Grade, Listed, Report, Reports},
};

/// So many intervals may pass without a new snapshot.
const OVERDUE: i32 = 2;
/// So many without one that was restored for trial.
const UNPROVEN: i32 = 4;

/// Recurring snapshots of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// The nodes that take them and answered.
    pub nodes: Vec<NodeName>,
    /// The newest snapshot; null if there is none.
    pub newest: Option<Newest>,
    /// The newest snapshot that passed a trial restore; null if there is none.
    pub newest_proven: Option<Newest>,
    /// The copies in the bucket; none if no node copies to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopyStatus>,
}

/// Copies of snapshots in a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopyStatus {
    /// The bucket, for people.
    pub bucket: String,
    /// The newest, as the nodes saw it.
    pub newest: Option<Newest>,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Newest {
    /// Its name.
    pub name: String,
    /// The node that took it.
    pub node: NodeName,
    /// When it was taken.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub taken_at: Timestamp,
    /// How far it was verified.
    pub grade: Grade,
}

/// Whether the cluster is backed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackedUp {
    /// It is.
    Yes,
    /// It is not to be, as far as is known here.
    NotWanted,
    /// The first snapshot is still to come, or there is nothing to compare with.
    NotYet,
    /// Nothing that takes snapshots answers.
    Unseen,
    /// Nothing takes any.
    NotTaken,
    /// What there is, is too old.
    Overdue,
    /// What is known to work is too old.
    Unproven,
}

/// Whether the cluster is backed up, and what there is to say of it.
pub(super) fn check(seen: &Seen<'_>) -> (BackedUp, String) {
    let Some(intent) = seen.intent else {
        let why = "there is no valid config to compare with";
        return (BackedUp::NotYet, why.to_owned());
    };
    if seen.actual.saved.is_none() {
        return (BackedUp::NotYet, "there is no cluster yet".to_owned());
    }
    if intent.services.snapshots.is_none() {
        let why = if intent.etcd.external().is_some() {
            "etcd is external: its owner takes its snapshots"
        } else {
            "the config wants no recurring snapshots"
        };
        return (BackedUp::NotWanted, why.to_owned());
    }
    let Some(status) = SnapshotStatus::of(seen.snapshots).filter(|status| !status.nodes.is_empty())
    else {
        return no_report(seen, intent);
    };
    if let Some(Old { is, what, at }) = old(seen) {
        return (is, format!("{what} from {at}"));
    }
    let SnapshotStatus {
        newest,
        newest_proven,
        copies,
        ..
    } = status;
    let Some(newest) = newest else {
        let failed = reports(seen.snapshots).find_map(|(node, report)| {
            let failure = report.failure.as_ref()?;
            Some(format!(
                "no snapshot was taken on `{node}`: {}",
                failure.why
            ))
        });
        return failed.map_or_else(
            || {
                (
                    BackedUp::NotYet,
                    "the first snapshot was not taken yet".to_owned(),
                )
            },
            |why| (BackedUp::NotTaken, why),
        );
    };
    let mut sentence = format!(
        "the newest snapshot is from {}, on `{}`",
        newest.taken_at, newest.node
    );
    if let Some(proven) = newest_proven {
        let _ = write!(
            sentence,
            "; the newest proven one is from {}",
            proven.taken_at
        );
    }
    if let Some(copy) = copies.and_then(|copies| copies.newest) {
        let _ = write!(sentence, "; the newest copy is from {}", copy.taken_at);
    }
    (BackedUp::Yes, sentence)
}

/// No program answered.
fn no_report(seen: &Seen<'_>, intent: &Intent) -> (BackedUp, String) {
    let mut members = intent
        .nodes
        .iter()
        .filter(|(_, node)| node.roles.contains(&Role::Etcd));
    let all_answer = members.all(|(name, _)| seen.actual.up(name).is_some());
    if seen.snapshots.is_empty() && all_answer {
        return (
            BackedUp::NotTaken,
            "no node takes snapshots of etcd".to_owned(),
        );
    }
    let why = "no node that answers takes snapshots of etcd";
    (BackedUp::Unseen, why.to_owned())
}

impl SnapshotStatus {
    /// Summarizes the reports of the programs on the nodes; `None` if there are no reports.
    pub(crate) fn of(all: &Reports) -> Option<Self> {
        (!all.is_empty()).then(|| Self {
            nodes: reports(all).map(|(node, _)| node.clone()).collect(),
            newest: newest(all, |_| true),
            newest_proven: newest(all, |grade| grade == Grade::Proven),
            copies: copies(all),
        })
    }
}

fn copies(all: &Reports) -> Option<CopyStatus> {
    let of = |(node, report): (_, &Report)| Some((NodeName::clone(node), report.copies.clone()?));
    let all: Vec<(NodeName, Copies)> = reports(all).filter_map(of).collect();
    let (_, first) = all.first()?;
    let each = all.iter().flat_map(|(_, copies)| &copies.snapshots);
    let each = each.filter_map(|one| of_report(&one.meta.as_ref()?.node, one));
    Some(CopyStatus {
        bucket: first.bucket.clone(),
        newest: each.max_by_key(|one| one.taken_at),
    })
}

fn reports(all: &Reports) -> impl Iterator<Item = (&NodeName, &Report)> {
    let all = all.iter();
    all.filter_map(|(node, report)| Some((node, report.as_ref().ok()?)))
}

fn newest(all: &Reports, of: impl Fn(Grade) -> bool) -> Option<Newest> {
    let each = reports(all).flat_map(|(node, report)| {
        let own = report.snapshots.iter();
        own.filter_map(move |one| of_report(node, one))
    });
    each.filter(|one| of(one.grade))
        .max_by_key(|one| one.taken_at)
}

fn of_report(node: &NodeName, one: &Listed) -> Option<Newest> {
    Some(Newest {
        name: one.name().to_owned(),
        node: node.clone(),
        taken_at: one.meta.as_ref()?.taken_at,
        grade: one.grade()?,
    })
}

/// What is wrong with them.
pub(super) fn problems(seen: &Seen<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (node, answer) in seen.snapshots {
        match answer {
            Err(why) => {
                let what = format!("the snapshot program does not answer: {why}");
                problems.push(Problem::on(About::Snapshots, node, what));
            }
            Ok(report) => problems.extend(of_node(node, report)),
        }
    }
    problems.extend(old(seen).map(|Old { what, at, .. }| {
        let hours = seen.now.duration_since(at).as_hours();
        let what = format!("{what} {hours} hours old");
        Problem::cluster(About::Snapshots, what)
    }));
    problems
}

fn of_node(node: &NodeName, report: &Report) -> Vec<Problem> {
    let failure = report.failure.as_ref().map(|failure| {
        let what = format!("no snapshot of etcd was taken: {}", failure.why);
        Problem::on(About::Snapshots, node, what)
    });
    let failed = report.snapshots.iter().filter_map(|one| {
        let proof = one.proof.as_ref()?;
        let why = proof.why.as_deref().unwrap_or("no reason is on record");
        (proof.grade == Grade::Failed).then(|| {
            let what = format!("the snapshot `{}` cannot be restored: {why}", one.name());
            Problem::on(About::Snapshots, node, what)
        })
    });
    let uncopied = report.copies.as_ref().and_then(|copies| {
        let why = &copies.failure.as_ref()?.why;
        let what = format!("no snapshot of etcd was copied: {why}");
        Some(Problem::on(About::Snapshots, node, what))
    });
    failure.into_iter().chain(failed).chain(uncopied).collect()
}

/// What is too long ago.
struct Old {
    is: BackedUp,
    /// Of what; its age follows.
    what: &'static str,
    at: Timestamp,
}

/// The first one is still to come where there is none. Where none was ever proven, the oldest had time enough for it.
fn old(seen: &Seen<'_>) -> Option<Old> {
    let policy = seen.intent?.services.snapshots.as_ref()?;
    let interval = SignedDuration::from_secs(i64::try_from(policy.interval).ok()?);
    let before = |at: Option<Timestamp>, intervals: i32| {
        let limit = interval.checked_mul(intervals)?;
        at.filter(|at| seen.now.duration_since(*at) > limit)
    };
    let SnapshotStatus {
        newest,
        newest_proven,
        copies,
        ..
    } = SnapshotStatus::of(seen.snapshots)?;
    let taken = |one: Option<Newest>| Some(one?.taken_at);
    let each = reports(seen.snapshots).flat_map(|(_, report)| &report.snapshots);
    let oldest = each
        .filter_map(|one| Some(one.meta.as_ref()?.taken_at))
        .min();
    let copied = copies.and_then(|copies| taken(copies.newest));
    let proven = taken(newest_proven);
    let unproven = if proven.is_some() {
        "the newest proven snapshot of etcd is"
    } else {
        "no snapshot of etcd was proven, and the oldest is"
    };
    let rows = [
        (
            BackedUp::Overdue,
            "the newest snapshot of etcd is",
            taken(newest),
            OVERDUE,
        ),
        (
            BackedUp::Overdue,
            "the newest copy of a snapshot of etcd is",
            copied,
            OVERDUE,
        ),
        (BackedUp::Unproven, unproven, proven.or(oldest), UNPROVEN),
    ];
    let mut rows = rows.into_iter();
    rows.find_map(|(is, what, at, intervals)| {
        let at = before(at, intervals)?;
        Some(Old { is, what, at })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        desired::fixture::intent,
        facts::Actual,
        snapshots::record::{LastFailure, Proof, tests::meta},
    };

    const HOUR: i64 = 3600;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + hour * HOUR).unwrap()
    }

    fn one(hour: i64, grade: Grade) -> Listed {
        let mut meta = meta();
        meta.taken_at = at(hour);
        let proof = Proof {
            grade,
            at: at(hour),
            by: meta.node.clone(),
            etcd_version: None,
            revision: None,
            keys: None,
            seconds: 1,
            why: (grade == Grade::Failed).then(|| "it has no key".to_owned()),
        };
        Listed {
            file: format!("s{hour}.zip"),
            bytes: 1,
            meta: Some(meta),
            proof: Some(proof),
        }
    }

    fn report(node: &str, snapshots: Vec<Listed>) -> (NodeName, Result<Report, String>) {
        let report = Report {
            node: NodeName::from(node),
            next: at(0),
            failure: None,
            snapshots,
            copies: None,
        };
        (report.node.clone(), Ok(report))
    }

    fn found(reports: &Reports, hour: i64) -> (Option<SnapshotStatus>, Vec<String>) {
        let (intent, actual) = (intent(), Actual::default());
        let seen = Seen {
            now: at(hour),
            intent: Some(&intent),
            actual: &actual,
            snapshots: reports,
            desired: None,
            plan: Ok(&crate::plan::Plan::default()),
        };
        let problems = problems(&seen).into_iter().map(|it| it.message);
        (SnapshotStatus::of(reports), problems.collect())
    }

    /// What the condition says.
    fn checked(reports: &Reports, hour: i64) -> (BackedUp, String) {
        let intent = intent();
        let actual = Actual {
            saved: Some(Box::new(crate::state::tests::saved("prod"))),
            ..Actual::default()
        };
        check(&Seen {
            now: at(hour),
            intent: Some(&intent),
            actual: &actual,
            snapshots: reports,
            desired: None,
            plan: Ok(&crate::plan::Plan::default()),
        })
    }

    #[test]
    fn a_cluster_is_backed_up_while_snapshots_are_young_and_proven() {
        let with = |snapshots, hour| {
            let (is, what) = checked(&BTreeMap::from([report("n1", snapshots)]), hour);
            (is, what)
        };
        let (is, what) = with(vec![one(0, Grade::Proven), one(3, Grade::Saved)], 24);
        assert_eq!(is, BackedUp::Yes);
        let times = [at(3).to_string(), at(0).to_string()];
        assert!(times.iter().all(|time| what.contains(time)), "{what}");
        assert_eq!(with(vec![one(0, Grade::Proven)], 25).0, BackedUp::Overdue);
        let unproven = vec![one(0, Grade::Proven), one(49, Grade::Saved)];
        assert_eq!(with(unproven, 49).0, BackedUp::Unproven);
        // None could ever be restored for trial.
        let never = vec![one(0, Grade::Checked), one(49, Grade::Checked)];
        let (is, what) = with(never, 49);
        assert_eq!(is, BackedUp::Unproven);
        assert!(what.starts_with("no snapshot of etcd was proven"), "{what}");
        assert_eq!(with(Vec::new(), 1000).0, BackedUp::NotYet);
    }

    #[test]
    fn what_cannot_be_seen_is_not_claimed() {
        // The nodes did not answer.
        assert_eq!(checked(&Reports::new(), 1).0, BackedUp::Unseen);
        let silent = [(NodeName::from("n1"), Err("the port is closed".to_owned()))];
        assert_eq!(checked(&silent.into(), 1).0, BackedUp::Unseen);
        let (node, mut answer) = report("n1", Vec::new());
        if let Ok(report) = &mut answer {
            report.failure = Some(LastFailure {
                at: at(0),
                why: "no room".to_owned(),
            });
        }
        let (is, what) = checked(&[(node, answer)].into(), 1);
        assert_eq!(is, BackedUp::NotTaken);
        assert!(what.contains("`n1`: no room"), "{what}");
    }

    #[test]
    fn the_newest_of_all_nodes_counts() {
        let reports = BTreeMap::from([
            report("n1", vec![one(-12, Grade::Proven), one(0, Grade::Checked)]),
            report("n2", vec![one(-5, Grade::Proven)]),
        ]);
        let (status, problems) = found(&reports, 1);
        let status = status.unwrap();
        assert_eq!(status.nodes, ["n1", "n2"].map(NodeName::from));
        let newest = status.newest.unwrap();
        assert_eq!((newest.name.as_str(), newest.grade), ("s0", Grade::Checked));
        assert_eq!(status.newest_proven.unwrap().name, "s-5");
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(found(&Reports::new(), 1).0, None);
    }

    #[test]
    fn what_is_too_old_is_a_problem() {
        let of = |snapshots, hour| found(&BTreeMap::from([report("n1", snapshots)]), hour).1;
        assert!(of(vec![one(0, Grade::Proven)], 24).is_empty());
        let old = of(vec![one(0, Grade::Proven)], 25);
        assert_eq!(old, ["the newest snapshot of etcd is 25 hours old"]);
        let unproven = of(vec![one(-25, Grade::Proven), one(24, Grade::Saved)], 24);
        assert_eq!(
            unproven,
            ["the newest proven snapshot of etcd is 49 hours old"]
        );
        assert!(
            of(Vec::new(), 1000).is_empty(),
            "the first is still to come"
        );
    }

    #[test]
    fn copies_are_shown_and_missed() {
        let with = |copies: Copies, hour| {
            let (node, mut answer) = report("n1", vec![one(hour, Grade::Proven)]);
            if let Ok(report) = &mut answer {
                report.copies = Some(copies);
            }
            found(&BTreeMap::from([(node, answer)]), hour)
        };
        let mut copies = Copies {
            bucket: "`b` at https://s3.example.com".to_owned(),
            looked: Some(at(0)),
            failure: None,
            snapshots: vec![one(-12, Grade::Proven), one(0, Grade::Checked)],
        };
        let (status, problems) = with(copies.clone(), 24);
        let shown = status.unwrap().copies.unwrap();
        assert_eq!(shown.bucket, copies.bucket);
        assert_eq!(shown.newest.unwrap().name, "s0");
        assert!(problems.is_empty(), "{problems:?}");
        copies.failure = Some(LastFailure {
            at: at(25),
            why: "AccessDenied".to_owned(),
        });
        assert_eq!(
            with(copies, 25).1,
            [
                "no snapshot of etcd was copied: AccessDenied",
                "the newest copy of a snapshot of etcd is 25 hours old"
            ]
        );
    }

    #[test]
    fn a_failure_is_a_problem_with_its_reason() {
        let (node, mut answer) = report("n1", vec![one(0, Grade::Failed)]);
        if let Ok(report) = &mut answer {
            report.failure = Some(LastFailure {
                at: at(0),
                why: "no room".to_owned(),
            });
        }
        let silent = (NodeName::from("n2"), Err("the port is closed".to_owned()));
        let (_, problems) = found(&BTreeMap::from([(node, answer), silent]), 1);
        assert_eq!(
            problems,
            [
                "no snapshot of etcd was taken: no room",
                "the snapshot `s0` cannot be restored: it has no key",
                "the snapshot program does not answer: the port is closed",
            ]
        );
    }
}

//! Recurring snapshots of etcd, as the programs on the nodes report them. Pure.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{About, Problem, Seen};
use crate::{
    model::NodeName,
    snapshots::record::{Copies, Grade, Listed, Report},
};

/// So many intervals may pass without a new snapshot.
const OVERDUE: i32 = 2;
/// So many without one that was restored for trial.
const UNPROVEN: i32 = 4;

/// Recurring snapshots of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// The nodes that take them and answered.
    pub nodes: Vec<NodeName>,
    /// The newest of all.
    pub newest: Option<Newest>,
    /// The newest of those that were restored for trial.
    pub newest_proven: Option<Newest>,
    /// Those in the bucket; `None`: no node copies into one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopyStatus>,
}

/// Copies of snapshots in a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CopyStatus {
    /// The bucket, for people.
    pub bucket: String,
    /// The newest, as the nodes saw it.
    pub newest: Option<Newest>,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Newest {
    /// Its name.
    pub name: String,
    /// The node that took it.
    pub node: NodeName,
    /// When it was taken.
    pub taken_at: Timestamp,
    /// How far it was looked into.
    pub grade: Grade,
}

/// How it is.
pub(super) fn status(seen: &Seen<'_>) -> Option<SnapshotStatus> {
    (!seen.snapshots.is_empty()).then(|| SnapshotStatus {
        nodes: reports(seen).map(|(node, _)| node.clone()).collect(),
        newest: newest(seen, |_| true),
        newest_proven: newest(seen, |grade| grade == Grade::Proven),
        copies: copies(seen),
    })
}

fn copies(seen: &Seen<'_>) -> Option<CopyStatus> {
    let of = |(node, report): (_, &Report)| Some((NodeName::clone(node), report.copies.clone()?));
    let all: Vec<(NodeName, Copies)> = reports(seen).filter_map(of).collect();
    let (_, first) = all.first()?;
    let each = all.iter().flat_map(|(_, copies)| &copies.snapshots);
    let each = each.filter_map(|one| of_report(&one.meta.as_ref()?.node, one));
    Some(CopyStatus {
        bucket: first.bucket.clone(),
        newest: each.max_by_key(|one| one.taken_at),
    })
}

fn reports<'a>(seen: &Seen<'a>) -> impl Iterator<Item = (&'a NodeName, &'a Report)> {
    let all = seen.snapshots.iter();
    all.filter_map(|(node, report)| Some((node, report.as_ref().ok()?)))
}

fn newest(seen: &Seen<'_>, of: impl Fn(Grade) -> bool) -> Option<Newest> {
    let each = reports(seen).flat_map(|(node, report)| {
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
                let what = format!("what takes snapshots of etcd does not answer: {why}");
                problems.push(Problem::on(About::Etcd, node, what));
            }
            Ok(report) => problems.extend(of_node(node, report)),
        }
    }
    problems.extend(old(seen));
    problems
}

fn of_node(node: &NodeName, report: &Report) -> Vec<Problem> {
    let failure = report.failure.as_ref().map(|failure| {
        let what = format!("no snapshot of etcd was taken: {}", failure.why);
        Problem::on(About::Etcd, node, what)
    });
    let failed = report.snapshots.iter().filter_map(|one| {
        let proof = one.proof.as_ref()?;
        let why = proof.why.as_deref().unwrap_or("no reason is on record");
        (proof.grade == Grade::Failed).then(|| {
            let what = format!("the snapshot `{}` cannot be restored: {why}", one.name());
            Problem::on(About::Etcd, node, what)
        })
    });
    let uncopied = report.copies.as_ref().and_then(|copies| {
        let why = &copies.failure.as_ref()?.why;
        let what = format!("no snapshot of etcd was copied: {why}");
        Some(Problem::on(About::Etcd, node, what))
    });
    failure.into_iter().chain(failed).chain(uncopied).collect()
}

/// What is too long ago. The first one is still to come where there is none.
fn old(seen: &Seen<'_>) -> Option<Problem> {
    let policy = seen.intent?.services.snapshots.as_ref()?;
    let interval = SignedDuration::from_secs(i64::try_from(policy.interval).ok()?);
    let before = |newest: &Option<Newest>, intervals: i32| {
        let newest = newest.as_ref()?;
        let age = seen.now.duration_since(newest.taken_at);
        let limit = interval.checked_mul(intervals)?;
        (age > limit).then(|| age.as_hours())
    };
    let SnapshotStatus {
        newest,
        newest_proven,
        copies,
        ..
    } = status(seen)?;
    let copied = copies.and_then(|copies| copies.newest);
    let what = if let Some(hours) = before(&newest, OVERDUE) {
        format!("the newest snapshot of etcd is {hours} hours old")
    } else if let Some(hours) = before(&copied, OVERDUE) {
        format!("the newest copy of a snapshot of etcd is {hours} hours old")
    } else {
        let hours = before(&newest_proven, UNPROVEN)?;
        format!("the newest snapshot of etcd that was restored for trial is {hours} hours old")
    };
    Some(Problem::cluster(About::Etcd, what))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        desired::fixture::intent,
        facts::Actual,
        snapshots::record::{LastFailure, Proof, Reports, tests::meta},
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
        (status(&seen), problems.collect())
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
            ["the newest snapshot of etcd that was restored for trial is 49 hours old"]
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
                "what takes snapshots of etcd does not answer: the port is closed",
            ]
        );
    }
}

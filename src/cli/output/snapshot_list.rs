//! Snapshots for people: a row each, then what is wrong. Decides nothing.

use super::{
    Page,
    status::hint_lines,
    table::{Cell, Tone, plain},
};
use crate::{
    cli::snapshot_list::{OnNode, Snapshots},
    facts::by_cause,
    model::{NodeName, printable},
    snapshots::record::{Cause, Grade, Listed},
};

const HEADING: [&str; 6] = ["WHERE", "NAME", "TAKEN", "SIZE", "BY", "GRADE"];

/// Omitted on a narrow terminal. The name says when it was taken, and is what a restore needs.
const SPARE: [&str; 3] = ["TAKEN", "BY", "SIZE"];

/// All of them.
pub fn render(all: &Snapshots, page: Page) -> String {
    let rows: Vec<Vec<Cell>> = all
        .nodes
        .iter()
        .flat_map(|(node, found)| found.snapshots.iter().map(|one| row(&node.0, one)))
        .chain(all.bucket.iter().flat_map(|found| {
            let objects = found.snapshots.iter();
            objects.map(|one| row("bucket", one))
        }))
        .collect();
    let mut lines = Vec::new();
    if rows.is_empty() {
        lines.push("no snapshots were found".to_owned());
    } else {
        lines.push(plain(&HEADING, &SPARE, &rows, page));
    }
    for (node, found) in &all.nodes {
        lines.extend(remarks(node, found).map(|(tone, text)| match tone {
            Tone::Bad => page.paint.bad(&text),
            Tone::Warn => page.paint.warn(&text),
            Tone::Calm => text,
        }));
    }
    if let Some(found) = &all.bucket {
        let (bucket, at, node) = (
            printable(&found.bucket),
            shown(found.looked),
            &found.seen_by,
        );
        lines.push(format!("bucket: {bucket}, as {node} saw it at {at}"));
    }
    let down = by_cause(&all.unreachable);
    for group in &down {
        lines.push(page.paint.bad(&group.named()));
    }
    let hints = down.iter().flat_map(|group| &group.hints);
    lines.extend(hint_lines(hints.map(String::as_str), page));
    lines.join("\n")
}

fn row(place: &str, one: &Listed) -> Vec<Cell> {
    let taken = one.meta.as_ref().map(|meta| shown(meta.taken_at));
    let by = match one.meta.as_ref().map(|meta| meta.cause) {
        Some(Cause::Scheduled) => "schedule",
        Some(Cause::Asked) => "request",
        Some(Cause::BeforeDelete) => "deletion",
        Some(Cause::BeforeUpgrade) => "upgrade",
        Some(Cause::BeforeRotation) => "rotation",
        None => "-",
    };
    let (grade, tone) = match one.grade() {
        Some(Grade::Proven) => ("proven", Tone::Calm),
        Some(Grade::Checked) => ("checked", Tone::Warn),
        Some(Grade::Saved) => ("saved", Tone::Warn),
        Some(Grade::Failed) => ("failed", Tone::Bad),
        None => ("-", Tone::Calm),
    };
    vec![
        Cell::calm(place),
        Cell::calm(printable(one.name())),
        Cell::or_dash(taken),
        Cell::calm(size(one.bytes)),
        Cell::calm(by),
        Cell::toned(grade, tone),
    ]
}

fn shown(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

fn remarks<'a>(node: &'a NodeName, found: &'a OnNode) -> impl Iterator<Item = (Tone, String)> + 'a {
    let unproven = found.snapshots.iter().filter_map(move |one| {
        let why = one.proof.as_ref()?.why.as_ref()?;
        let tone = match one.grade()? {
            Grade::Failed => Tone::Bad,
            Grade::Saved | Grade::Checked | Grade::Proven => Tone::Warn,
        };
        let (name, why) = (printable(one.name()), printable(why));
        Some((tone, format!("{node}: `{name}`: {why}")))
    });
    let failure = found.failure.as_ref().map(|failure| {
        let (at, why) = (shown(failure.at), printable(&failure.why));
        (
            Tone::Bad,
            format!("{node}: no snapshot was taken at {at}: {why}"),
        )
    });
    let uncopied = found.copy_failure.as_ref().map(|failure| {
        let (at, why) = (shown(failure.at), printable(&failure.why));
        (
            Tone::Bad,
            format!("{node}: no snapshot was copied at {at}: {why}"),
        )
    });
    let next = match found.next {
        Some(next) => (
            Tone::Calm,
            format!("{node}: the next one is taken at {}", shown(next)),
        ),
        None => (Tone::Warn, format!("{node}: takes no recurring snapshots")),
    };
    unproven.chain(failure).chain(uncopied).chain([next])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        cli::{output::Paint, snapshot_list::bucket},
        error::{ErrorClass, Obstacle},
        facts::Unreachable,
        snapshots::record::{Copies, LastFailure, Meta, Proof, tests::meta},
    };

    fn time(text: &str) -> jiff::Timestamp {
        text.parse().unwrap()
    }

    fn listed(name: &str, grade: Grade, why: Option<&str>) -> Listed {
        let taken_at = time("2026-11-28T10:40:02Z");
        Listed {
            file: format!("{name}.zip"),
            bytes: 900_000,
            meta: Some(Meta { taken_at, ..meta() }),
            proof: Some(Proof {
                grade,
                at: taken_at,
                by: NodeName::from("n1"),
                etcd_version: None,
                revision: None,
                keys: None,
                seconds: 1,
                why: why.map(str::to_owned),
            }),
        }
    }

    #[test]
    fn what_a_node_has_and_what_is_wrong_with_it_is_listed() {
        let plain = Listed {
            file: "before\u{1b}[2J".to_owned(),
            bytes: 3 << 20,
            meta: None,
            proof: None,
        };
        let nodes = BTreeMap::from([
            (
                NodeName::from("n1"),
                OnNode {
                    next: Some(time("2026-11-28T22:40:00Z")),
                    failure: Some(LastFailure {
                        at: time("2026-11-28T10:50:00Z"),
                        why: "no\u{7}room".to_owned(),
                    }),
                    snapshots: vec![
                        listed("a_etcd", Grade::Proven, None),
                        listed("b_etcd", Grade::Failed, Some("it has no `x`")),
                    ],
                    copy_failure: Some(LastFailure {
                        at: time("2026-11-28T10:51:00Z"),
                        why: "cannot list the bucket `b`: AccessDenied".to_owned(),
                    }),
                    copies: Some(Copies {
                        bucket: "`b` at https://s3.example.com".to_owned(),
                        looked: Some(time("2026-11-28T10:40:09Z")),
                        failure: None,
                        snapshots: vec![listed("a_etcd", Grade::Proven, None)],
                    }),
                },
            ),
            (
                NodeName::from("n2"),
                OnNode {
                    next: None,
                    failure: None,
                    snapshots: vec![plain],
                    copy_failure: None,
                    copies: None,
                },
            ),
        ]);
        let why = Unreachable {
            alike: None,
            class: ErrorClass::Host,
            why: "no route".to_owned(),
            hints: Vec::new(),
            obstacle: Obstacle::default(),
        };
        let all = Snapshots {
            bucket: bucket(&nodes),
            nodes,
            unreachable: BTreeMap::from([(NodeName::from("n3"), why)]),
        };
        let page = Page {
            columns: Some(100),
            paint: Paint::OFF,
        };
        insta::assert_snapshot!(render(&all, page), @r"
        WHERE   NAME             TAKEN                 SIZE     BY        GRADE
        n1      a_etcd           2026-11-28 10:40:02Z  879 KiB  schedule  proven
        n1      b_etcd           2026-11-28 10:40:02Z  879 KiB  schedule  failed
        n2      before\u{1b}[2J  -                     3 MiB    -         -
        bucket  a_etcd           2026-11-28 10:40:02Z  879 KiB  schedule  proven
        n1: `b_etcd`: it has no `x`
        n1: no snapshot was taken at 2026-11-28 10:50:00Z: no\u{7}room
        n1: no snapshot was copied at 2026-11-28 10:51:00Z: cannot list the bucket `b`: AccessDenied
        n1: the next one is taken at 2026-11-28 22:40:00Z
        n2: takes no recurring snapshots
        bucket: `b` at https://s3.example.com, as n1 saw it at 2026-11-28 10:40:09Z
        n3: no route
        ");
        let none = Snapshots {
            nodes: BTreeMap::new(),
            bucket: None,
            unreachable: BTreeMap::new(),
        };
        assert_eq!(render(&none, page), "no snapshots were found");
    }
}

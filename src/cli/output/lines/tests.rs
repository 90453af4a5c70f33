use super::*;
use crate::{error::ErrorClass, model::NodeName, plan::Target};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn id(stage: usize, step: usize) -> StepId {
    StepId { stage, step }
}

fn host() -> Target {
    Target::Host(NodeName::from("n1"))
}

fn started(lines: &mut Lines, id: StepId, title: &str, now: Duration) {
    let event = Event::StepStarted {
        id,
        target: host(),
        title: title.into(),
        why: "it is not there".into(),
    };
    assert_eq!(lines.apply(&event, now), None);
}

fn finished(id: StepId, title: &str, outcome: StepOutcome, detail: Option<&str>) -> Event {
    Event::StepFinished {
        id,
        target: host(),
        title: title.into(),
        kind: "pull-image",
        outcome,
        took: Duration::from_millis(3140),
        detail: detail.map(str::to_owned),
    }
}

fn in_stage(name: &str) -> Lines {
    let mut lines = Lines::new(Paint::OFF);
    lines.apply(
        &Event::RunStarted {
            iteration: 1,
            stages: 1,
            steps: 2,
        },
        at(0),
    );
    lines.apply(
        &Event::StageStarted {
            stage: 0,
            name: name.into(),
            steps: 2,
        },
        at(0),
    );
    lines
}

#[test]
fn a_line_for_the_end_of_a_step() {
    let mut lines = in_stage("images");
    started(&mut lines, id(0, 0), "pull etcd:v3.6", at(0));
    let event = finished(id(0, 0), "pull etcd:v3.6", StepOutcome::Done, Some("24 MB"));
    insta::assert_snapshot!(
        lines.apply(&event, at(3)).unwrap().text,
        @"images       n1        pull etcd:v3.6, 24 MB, 3.1 s"
    );
}

#[test]
fn a_wait_is_reported_after_ten_seconds_and_then_now_and_then() {
    let mut lines = in_stage("start");
    started(&mut lines, id(0, 0), "wait for kube-apiserver", at(0));
    let event = Event::StepProgress {
        id: id(0, 0),
        done: 7,
        total: 0,
        unit: "tries".into(),
        waiting_for: Some("`/readyz`: connection refused".into()),
    };
    lines.apply(&event, at(2));
    assert!(lines.reminders(at(9)).is_empty());
    insta::assert_snapshot!(
        lines.reminders(at(10)).join("\n"),
        @"start        n1        wait for kube-apiserver, still: `/readyz`: connection refused, 10 s"
    );
    assert!(lines.reminders(at(39)).is_empty());
    assert_eq!(lines.reminders(at(40)).len(), 1);
}

/// That many nodes pull an image, and the first has a second step.
fn pulls(nodes: usize) -> Lines {
    let mut lines = in_stage("images");
    for number in 1..=nodes {
        let id = id(0, number);
        let event = Event::StepStarted {
            id,
            target: Target::Host(NodeName(format!("worker-{number:03}"))),
            title: "pull rancher/hardened-kubernetes:v1.34.4-rke2r1".into(),
            why: "it is not there".into(),
        };
        let second = u64::try_from(number % 7).unwrap();
        assert_eq!(lines.apply(&event, at(second)), None);
        let event = Event::StepProgress {
            id,
            done: u64::try_from(number).unwrap() * 41_000_000 % 205_000_000,
            total: 205_000_000,
            unit: "bytes".into(),
            waiting_for: None,
        };
        lines.apply(&event, at(8));
    }
    lines
}

fn screen(nodes: usize, columns: usize) -> String {
    let room = Room { columns, lines: 12 };
    let lines = pulls(nodes).live(at(20), room);
    assert!(lines.iter().all(|line| line.chars().count() <= columns));
    assert!(lines.len() <= 10);
    lines.join("\n")
}

#[test]
fn each_node_has_a_line_and_the_longest_is_first() {
    assert_eq!(
        in_stage("images").live(
            at(0),
            Room {
                columns: 80,
                lines: 12
            }
        ),
        [""; 0]
    );
    let mut screens = Vec::new();
    for nodes in [1, 5, 100] {
        for columns in [40, 80, 200] {
            let screen = screen(nodes, columns);
            screens.push(format!("{nodes} nodes, {columns} columns\n{screen}"));
        }
    }
    insta::assert_snapshot!("live", screens.join("\n"));
}

#[test]
fn a_node_with_two_steps_has_one_line() {
    let mut lines = in_stage("start");
    started(&mut lines, id(0, 0), "run etcd", at(0));
    started(&mut lines, id(0, 1), "run kubelet", at(1));
    let room = Room {
        columns: 80,
        lines: 1,
    };
    insta::assert_snapshot!(
        lines.live(at(4), room).join("\n"),
        @"n1        run etcd  4 s"
    );
}

#[test]
fn a_long_run_ends_with_its_slowest_steps() {
    let mut lines = in_stage("images");
    for (step, (title, seconds)) in [("a", 3), ("b", 8), ("c", 64), ("d", 5), ("e", 7)]
        .into_iter()
        .enumerate()
    {
        let event = Event::StepFinished {
            id: id(0, step),
            target: host(),
            title: format!("pull {title}"),
            kind: "pull-image",
            outcome: StepOutcome::Done,
            took: at(seconds),
            detail: None,
        };
        lines.apply(&event, at(80));
    }
    assert_eq!(lines.summary(at(59)), None);
    insta::assert_snapshot!(lines.summary(at(80)).unwrap(), @r"
    of 1 min 20 s the slowest steps:
       1 min 4 s  pull c on n1
             8 s  pull b on n1
             7 s  pull e on n1
    ");
    assert_eq!(in_stage("images").summary(at(80)), None);
}

#[test]
fn the_first_failure_is_left_to_the_error_and_siblings_are_reported_in_full() {
    let mut lines = in_stage("start");
    let failed = || StepOutcome::Failed {
        message: "container `etcd` exits with 1".into(),
        hints: vec!["see `docker logs etcd`".into()],
        class: ErrorClass::Host,
    };
    let first = finished(id(0, 0), "run etcd", failed(), None);
    let second = finished(id(0, 1), "run kubelet", failed(), None);
    let skipped = finished(id(0, 2), "run kube-proxy", StepOutcome::Skipped, None);
    insta::assert_snapshot!(
        lines.apply(&first, at(3)).unwrap().text,
        @"start        n1        run etcd, failed after 3.1 s"
    );
    insta::assert_snapshot!(lines.apply(&second, at(3)).unwrap().text, @r"
    start        n1        run kubelet, failed after 3.1 s
      container `etcd` exits with 1
      hint: see `docker logs etcd`
    ");
    assert_eq!(lines.apply(&skipped, at(3)), None);
}

#[test]
fn a_warning_is_under_its_step() {
    let mut lines = in_stage("addons");
    let warned = StepOutcome::Warned {
        message: "coredns is not available after 2 min".into(),
        hints: vec!["see `kubectl -n kube-system describe pods`".into()],
    };
    let event = finished(id(0, 0), "wait for coredns", warned, None);
    insta::assert_snapshot!(lines.apply(&event, at(3)).unwrap().text, @r"
    addons       n1        wait for coredns, 3.1 s
      warning: coredns is not available after 2 min
      hint: see `kubectl -n kube-system describe pods`
    ");
}

#[test]
fn spans_for_people() {
    assert_eq!(span(Duration::from_millis(300)), "0.3 s");
    assert_eq!(span(Duration::from_secs(12)), "12 s");
    assert_eq!(span(Duration::from_millis(12_400)), "12.4 s");
    assert_eq!(span(Duration::from_secs(125)), "2 min 5 s");
}

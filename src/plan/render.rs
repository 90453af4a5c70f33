//! A plan for people: plain text that needs no colour. Pure. `-o json` is the plan itself.
//!
//! Disruptions come first, then the stages. Equal steps of a stage are one entry that names its nodes, so that
//! the length of the text follows from what is different and not from the number of nodes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
};

use super::{
    Cause, FieldChange, Plan, Stage, Step, Target,
    title::{plural, title},
};
use crate::model::{Field, NodeName, ranges, some_ranges, wrapped};

/// Lines longer than this are broken where they can be.
const WIDTH: usize = 110;

/// Longer lists of nodes are not aligned with the others of a stage.
const ALIGNED: usize = 32;

/// An entry of the short form shows at most so many differences.
const DIFFERENCES: usize = 12;

/// Steps that differ only in the values of their fields are shown each with its own, up to so many.
const VARIANTS: usize = 3;

/// How much of a plan is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What a person has to read before it is carried out.
    Short,
    /// Every node, file and digest as well.
    Full,
}

/// The plan in short: disruptions, stages with their steps and reasons, notes, and a last line that sums up. Of what
/// is new on a node only the step is shown, of a file that changes only the path. An empty plan says so.
pub fn render(plan: &Plan) -> String {
    render_on(plan, Detail::Short, None)
}

/// The same, in short or with every node by name, every file and every digest. On a
/// terminal lines are wrapped at so many columns, but for values, which stay as they are.
pub fn render_on(plan: &Plan, detail: Detail, columns: Option<usize>) -> String {
    let mut out = String::new();
    let disruptions = disruptions(plan);
    if !disruptions.is_empty() {
        line(&mut out, 0, &disruptive_steps(plan.disruptions().count()));
        for disruption in disruptions {
            line(&mut out, 0, &wrapped("  ", &disruption, columns));
        }
        out.push('\n');
    }
    for stage in plan.stages.iter().filter(|stage| !stage.is_empty()) {
        line(&mut out, 0, &stage.name);
        entries(&mut out, stage, detail, columns);
        out.push('\n');
    }
    if !plan.notes.is_empty() {
        line(&mut out, 0, "notes");
        let (general, about): (Vec<_>, Vec<_>) =
            plan.notes.iter().partition(|note| note.target.is_none());
        for note in general {
            line(&mut out, 0, &wrapped("  ", &note.text, columns));
        }
        let about = about
            .iter()
            .filter_map(|note| Some((note.target.clone()?, note.text.clone())));
        for (targets, text) in by_text(about) {
            let head = format!("  {}: ", listed(&targets, detail));
            line(&mut out, 0, &wrapped(&head, &text, columns));
        }
        out.push('\n');
    }
    line(&mut out, 0, &summary(plan));
    out
}

/// What the plan disrupts, one line for each kind of disruption with the nodes that it concerns. All are named.
pub fn disruptions(plan: &Plan) -> Vec<String> {
    let found = plan
        .disruptions()
        .map(|(step, what)| (step.target(), what.to_owned()));
    by_text(found)
        .into_iter()
        .map(|(targets, what)| format!("{}: {what}", named(&targets, ranges)))
        .collect()
}

/// "1 disruptive step", "2 disruptive steps".
pub fn disruptive_steps(count: usize) -> String {
    plural(count, "disruptive step")
}

/// What equal texts are about, in the order in which the texts come first.
fn by_text(all: impl Iterator<Item = (Target, String)>) -> Vec<(BTreeSet<Target>, String)> {
    let mut place = BTreeMap::new();
    let mut found: Vec<(BTreeSet<Target>, String)> = Vec::new();
    for (target, text) in all {
        let at = *place.entry(text.clone()).or_insert(found.len());
        match found.get_mut(at) {
            Some((targets, _)) => drop(targets.insert(target)),
            None => found.push(([target].into(), text)),
        }
    }
    found
}

/// Steps of a stage that look the same, on one or several nodes.
struct Entry {
    targets: BTreeSet<Target>,
    on_nodes: bool,
    shown: Shown,
}

impl Entry {
    fn new(target: Target, shown: Shown) -> Self {
        Self {
            on_nodes: matches!(target, Target::Host(_)),
            targets: [target].into(),
            shown,
        }
    }

    /// Whether a step that looks like this is a part of it.
    fn takes(&self, target: &Target, shown: &Shown, many: &BTreeSet<Head>) -> bool {
        let any_value = many.contains(&shown.head) && self.shown.head == shown.head;
        self.on_nodes == matches!(target, Target::Host(_)) && (any_value || self.shown == *shown)
    }
}

/// What is shown of a step next to its node.
#[derive(PartialEq, Eq)]
struct Shown {
    head: Head,
    /// One for each field of the head.
    values: Vec<String>,
}

/// What is shown without the values of the fields that change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    disrupts: bool,
    title: String,
    why: String,
    /// With its sign.
    fields: Vec<String>,
}

impl Shown {
    fn of(step: &Step, detail: Detail) -> Self {
        let changes = step.changes.iter();
        let differences = changes.filter_map(|change| difference(change, step.cause, detail));
        let (fields, values) = differences.unzip();
        Self {
            head: Head {
                disrupts: step.disturbs.is_some(),
                title: title(step),
                why: step.why.to_string(),
                fields,
            },
            values,
        }
    }

    /// Takes another one with the same head in: of values that differ nothing is shown.
    fn merge(&mut self, other: Self) {
        for (value, other) in self.values.iter_mut().zip(other.values) {
            if *value != other {
                ": another value on each node (`--full`)".clone_into(value);
            }
        }
    }

    fn differences(&self, detail: Detail) -> Vec<String> {
        let all = self.head.fields.iter().zip(&self.values);
        let mut all: Vec<_> = all
            .map(|(field, value)| format!("{field}{value}"))
            .collect();
        if detail == Detail::Short && all.len() > DIFFERENCES {
            let more = all.len() - DIFFERENCES + 1;
            all.truncate(DIFFERENCES - 1);
            all.push(format!("… {more} more (`--full`)"));
        }
        all
    }
}

/// Equal steps of the queues together. Each queue's own order is kept: a step joins an entry only behind those that
/// the steps before it in its queue have joined.
fn grouped(stage: &Stage, detail: Detail) -> Vec<Entry> {
    let exact = joined(stage, detail, &BTreeSet::new());
    if detail == Detail::Full {
        return exact;
    }
    let mut variants: BTreeMap<&Head, usize> = BTreeMap::new();
    for entry in &exact {
        *variants.entry(&entry.shown.head).or_default() += 1;
    }
    variants.retain(|_, count| *count > VARIANTS);
    if variants.is_empty() {
        return exact;
    }
    let many = variants.into_keys().cloned().collect();
    joined(stage, detail, &many)
}

/// The same, where steps with these heads are equal whatever their values are.
fn joined(stage: &Stage, detail: Detail, many: &BTreeSet<Head>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for queue in &stage.queues {
        let mut steps: VecDeque<_> = queue
            .steps
            .iter()
            .map(|step| (step.target(), Shown::of(step, detail)))
            .collect();
        let mut from = 0;
        while let Some((target, shown)) = steps.pop_front() {
            let next = |is: &dyn Fn(&Entry) -> bool| {
                let found = entries.iter().skip(from).position(is);
                found.map(|at| from + at)
            };
            let joins = next(&|entry| entry.takes(&target, &shown, many));
            // A new one comes as late as those allow that the rest of the queue joins.
            let before = next(&|entry| {
                let mut rest = steps.iter();
                rest.any(|(target, shown)| entry.takes(target, shown, many))
            });
            let at = joins.or(before).unwrap_or(entries.len());
            match entries.get_mut(at).filter(|_| joins.is_some()) {
                Some(entry) => {
                    entry.targets.insert(target);
                    entry.shown.merge(shown);
                }
                None => entries.insert(at, Entry::new(target, shown)),
            }
            from = at + 1;
        }
    }
    entries
}

fn entries(out: &mut String, stage: &Stage, detail: Detail, columns: Option<usize>) {
    let widest = columns.map_or(WIDTH, |columns| columns.min(WIDTH));
    let entries: Vec<_> = grouped(stage, detail)
        .into_iter()
        .map(|entry| (listed(&entry.targets, detail), entry.shown))
        .collect();
    let widths = entries.iter().map(|(on, _)| on.chars().count());
    let width = widths
        .filter(|width| *width <= ALIGNED)
        .max()
        .unwrap_or_default();
    for (on, shown) in entries {
        let Head {
            disrupts,
            title,
            why,
            fields: _,
        } = &shown.head;
        let mark = if *disrupts { '!' } else { ' ' };
        let head = format!("{mark} {on:width$}  ");
        let length = |text: &str| text.chars().count();
        if length(&head) + length(title) + 2 + length(why) <= widest {
            line(out, 0, &format!("{head}{title}: {why}"));
        } else {
            line(out, 0, &wrapped(&head, title, columns));
            line(out, 0, &wrapped(&" ".repeat(6), why, columns));
        }
        for difference in shown.differences(detail) {
            for part in difference.lines() {
                line(out, 6, part);
            }
        }
    }
}

fn listed(targets: &BTreeSet<Target>, detail: Detail) -> String {
    match detail {
        Detail::Short => named(targets, some_ranges),
        Detail::Full => named(targets, ranges),
    }
}

/// The nodes as ranges; the cluster or the machine where this runs by their own words.
fn named(targets: &BTreeSet<Target>, ranges: impl Fn(&BTreeSet<&NodeName>) -> String) -> String {
    let mut nodes = BTreeSet::new();
    let mut others = Vec::new();
    for target in targets {
        match target {
            Target::Host(name) => drop(nodes.insert(name)),
            Target::Cluster | Target::Local => others.push(target.to_string()),
        }
    }
    if !nodes.is_empty() {
        others.push(ranges(&nodes));
    }
    others.join(", ")
}

fn summary(plan: &Plan) -> String {
    if plan.is_empty() {
        let waits = plan.notes.iter().any(|note| note.is_left);
        return if waits {
            "Plan: nothing can be done now; see the notes".to_owned()
        } else {
            "Plan: nothing to do".to_owned()
        };
    }
    let nodes: BTreeSet<_> = plan.steps().filter_map(Step::node).collect();
    let disruptive = plan.disruptions().count();
    let mut text = format!("Plan: {}", plural(plan.steps().count(), "step"));
    if !nodes.is_empty() {
        let _ = write!(text, " on {}", plural(nodes.len(), "node"));
    }
    if disruptive > 0 {
        let _ = write!(text, ", {disruptive} disruptive");
    }
    text
}

/// A field with its sign, and what is shown of its value, on one line where it fits. In short nothing of what is new,
/// and of a file only where it is: its content is a digest, which tells a person nothing.
fn difference(change: &FieldChange, cause: Cause, detail: Detail) -> Option<(String, String)> {
    let FieldChange { field, from, to } = change;
    let sign = match (from, to) {
        (None, Some(_)) => '+',
        (Some(_), None) => '-',
        (Some(_), Some(_)) | (None, None) => '~',
    };
    let head = format!("{sign} {field}");
    if detail == Detail::Short {
        if cause == Cause::New && from.is_none() {
            return None;
        }
        if matches!(field, Field::File(_)) {
            return Some((head, String::new()));
        }
    }
    let value = match (from, to) {
        (Some(from), Some(to)) => {
            let short = format!(": {from} → {to}");
            if 6 + head.chars().count() + short.chars().count() <= WIDTH {
                short
            } else {
                format!("\n    - {from}\n    + {to}")
            }
        }
        (None, Some(value)) | (Some(value), None) => format!(": {value}"),
        (None, None) => String::new(),
    };
    Some((head, value))
}

fn line(out: &mut String, indent: usize, text: &str) {
    let _ = writeln!(out, "{:indent$}{text}", "");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::{HostAction, Note};

    fn pull(node: &str, image: u8) -> Step {
        let action = HostAction::PullImage {
            image: image.to_string(),
        };
        Step::on(&NodeName(node.to_owned()), Cause::Change, "why", action)
    }

    fn change(to: &str) -> FieldChange {
        FieldChange {
            field: "command --node-ip".into(),
            from: None,
            to: Some(to.to_owned()),
        }
    }

    #[test]
    fn values_that_differ_on_many_nodes_are_one_entry() {
        let step = |node: u8| {
            let value = change(&format!("192.0.2.{node}"));
            pull(&format!("n{node}"), 1).changing(vec![value])
        };
        let stage = |nodes: u8| Stage::of("images", 1, (1..=nodes).map(step));
        let text = |nodes| {
            let mut out = String::new();
            entries(&mut out, &stage(nodes), Detail::Short, None);
            out
        };
        let two = [
            "  n1  pull 1: why",
            "      + command --node-ip: 192.0.2.1",
            "  n2  pull 1: why",
            "      + command --node-ip: 192.0.2.2",
        ];
        assert_eq!(text(2).lines().collect::<Vec<_>>(), two);
        let many = [
            "  n1 … n4  pull 1: why",
            "      + command --node-ip: another value on each node (`--full`)",
        ];
        assert_eq!(text(4).lines().collect::<Vec<_>>(), many);
    }

    /// C13: as `status` does; in a pipe each note is a line.
    #[test]
    fn notes_are_wrapped_at_the_width_of_the_terminal() {
        let note = |node: &str, text: &str| {
            Note::of(
                Some(Target::Host(NodeName(node.to_owned()))),
                text.to_owned(),
            )
        };
        let silent = "does not answer and is left as it is: no route to host";
        let plan = Plan {
            stages: Vec::new(),
            notes: vec![
                Note::of(
                    None,
                    "the cluster keeps Kubernetes v1.34.4: the config names none".to_owned(),
                ),
                note("worker-1", silent),
                note("worker-2", silent),
                note("worker-3", silent),
                note("db", "firewalld runs and may block ports of the cluster"),
            ],
        };
        insta::assert_snapshot!(render_on(&plan, Detail::Short, Some(40)), @"
        notes
          the cluster keeps Kubernetes v1.34.4:
          the config names none
          worker-1 … worker-3: does not answer
            and is left as it is: no route to
            host
          db: firewalld runs and may block ports
              of the cluster

        Plan: nothing to do
        ");
        insta::assert_snapshot!(render_on(&plan, Detail::Short, Some(80)), @"
        notes
          the cluster keeps Kubernetes v1.34.4: the config names none
          worker-1 … worker-3: does not answer and is left as it is: no route to host
          db: firewalld runs and may block ports of the cluster

        Plan: nothing to do
        ");
        let wide = render_on(&plan, Detail::Short, Some(200));
        insta::assert_snapshot!(wide, @"
        notes
          the cluster keeps Kubernetes v1.34.4: the config names none
          worker-1 … worker-3: does not answer and is left as it is: no route to host
          db: firewalld runs and may block ports of the cluster

        Plan: nothing to do
        ");
        assert_eq!(wide, render(&plan));
    }

    proptest! {
        #[test]
        fn every_queue_keeps_its_order_and_every_step_is_shown_once(
            queues in proptest::collection::vec(proptest::collection::vec(0..4u8, 0..6), 0..6),
        ) {
            let name = |at: usize| format!("n{at}");
            let steps = queues.iter().enumerate().flat_map(|(at, queue)| {
                queue.iter().map(move |image| pull(&name(at), *image))
            });
            let stage = Stage::of("images", 1, steps);
            let entries = grouped(&stage, Detail::Short);
            for (at, queue) in queues.iter().enumerate() {
                let node = Target::Host(NodeName(name(at)));
                let own = entries.iter().filter(|entry| entry.targets.contains(&node));
                let own: Vec<_> = own.map(|entry| entry.shown.head.title.clone()).collect();
                let wanted: Vec<_> = queue.iter().map(|image| format!("pull {image}")).collect();
                prop_assert_eq!(own, wanted);
            }
        }
    }
}

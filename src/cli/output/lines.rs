//! The event stream for people: one line for the end of every step, and what is waited for.
//! A reducer: takes events and the time since the start, returns what to print. Prints nothing.
//!
//! At a terminal what is waited for stands in lines that are redrawn; elsewhere a wait is worth a line
//! only when it lasts (`PATIENCE`), and another one now and then (`REMINDER`).

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use super::{
    Paint, Room,
    screen::{clip, clip_middle},
};
use crate::{
    apply::event::{Event, RunOutcome, StepId, StepOutcome},
    model::megabytes,
};

/// How long a step may take before a line says that it still runs.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long until the next such line.
const REMINDER: Duration = Duration::from_secs(30);

/// A run that took so long ends with its slowest steps: so many, and those that took so long.
const LONG: Duration = Duration::from_secs(60);
const SLOWEST: usize = 3;
const SLOW: Duration = Duration::from_secs(5);

/// How many lines are redrawn at most.
const LINES: usize = 10;
/// How wide a bar is, and from which width of the screen on there are bars.
const BAR: usize = 10;
const BARS: usize = 70;
/// From which width on a line names the stage.
const WIDE: usize = 100;

/// A line to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The text, one or more whole lines.
    pub text: String,
    /// `--quiet` does not leave it out.
    pub loud: bool,
}

impl Said {
    const fn calm(text: String) -> Self {
        Self { text, loud: false }
    }

    const fn loud(text: String) -> Self {
        Self { text, loud: true }
    }
}

/// What is known about the run so far.
#[derive(Debug)]
pub struct Lines {
    paint: Paint,
    stages: BTreeMap<usize, String>,
    running: BTreeMap<StepId, Running>,
    target_width: usize,
    failures: usize,
    /// Steps that took long, the longest first.
    slowest: Vec<(Duration, String)>,
}

#[derive(Debug)]
struct Running {
    target: String,
    title: String,
    since: Duration,
    remind_at: Duration,
    progress: String,
    /// How much is done of how much, where that is known.
    part: Option<(u64, u64)>,
}

impl Lines {
    /// Nothing yet.
    pub const fn new(paint: Paint) -> Self {
        Self {
            paint,
            stages: BTreeMap::new(),
            running: BTreeMap::new(),
            target_width: 8,
            failures: 0,
            slowest: Vec::new(),
        }
    }

    /// Takes an event in; the line to print, if it is worth one.
    pub fn apply(&mut self, event: &Event, now: Duration) -> Option<Said> {
        match event {
            Event::TurnAwaited { holder } => Some(Said::calm(format!(
                "waiting for another run to finish ({holder})"
            ))),
            Event::RunStarted {
                iteration,
                stages: _,
                steps,
            } => {
                self.stages.clear();
                self.running.clear();
                (*iteration > 1).then(|| {
                    Said::calm(format!("iteration {iteration}: {}", count(*steps, "step")))
                })
            }
            Event::StageStarted {
                stage,
                name,
                steps: _,
            } => {
                self.stages.insert(*stage, name.clone());
                None
            }
            Event::StepStarted {
                id,
                target,
                title,
                why: _,
            } => {
                let target = target.to_string();
                self.target_width = self.target_width.max(target.chars().count());
                self.running.insert(*id, Running::begun(target, title, now));
                None
            }
            Event::StepProgress {
                id,
                done,
                total,
                unit,
                waiting_for,
            } => {
                if let Some(step) = self.running.get_mut(id) {
                    step.progress = progress(*done, *total, unit, waiting_for.as_deref());
                    step.part = (*total > 0 && waiting_for.is_none()).then_some((*done, *total));
                }
                None
            }
            Event::StepFinished {
                id,
                target,
                title,
                kind: _,
                outcome,
                took,
                detail,
            } => {
                self.running.remove(id);
                self.took(*took, &format!("{title} on {target}"));
                let head = self.head(id.stage, &target.to_string(), title);
                self.finished(&head, outcome, *took, detail.as_deref())
            }
            Event::RunFinished { outcome, took, why } => {
                self.running.clear();
                match outcome {
                    RunOutcome::PlanAgain => Some(Said::calm(format!(
                        "planning again after {}: {}",
                        span(*took),
                        why.as_deref().unwrap_or("the cluster changed meanwhile")
                    ))),
                    RunOutcome::Completed
                    | RunOutcome::Degraded
                    | RunOutcome::Failed
                    | RunOutcome::Stopped => None,
                }
            }
        }
    }

    /// What still runs and has not been said for long: for pipes and logs.
    pub fn reminders(&mut self, now: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        let mut due: Vec<StepId> = Vec::new();
        for (id, step) in &mut self.running {
            if step.remind_at <= now {
                step.remind_at = now + REMINDER;
                due.push(*id);
            }
        }
        for id in due {
            if let Some(step) = self.running.get(&id) {
                let head = self.head(id.stage, &step.target, &step.title);
                lines.push(format!("{head}, still: {}", step.still(now)));
            }
        }
        lines
    }

    fn took(&mut self, took: Duration, what: &str) {
        if took >= SLOW {
            self.slowest.push((took, what.to_owned()));
            self.slowest
                .sort_by_key(|(took, _)| std::cmp::Reverse(*took));
            self.slowest.truncate(SLOWEST);
        }
    }

    /// Which steps took longest, where the whole took long.
    pub fn summary(&self, took: Duration) -> Option<String> {
        if took < LONG || self.slowest.is_empty() {
            return None;
        }
        let steps = self.slowest.iter();
        let steps = steps.map(|(took, what)| format!("  {:>10}  {what}", span(*took)));
        let steps: Vec<String> = steps.collect();
        Some(format!(
            "of {} the slowest steps:\n{}",
            span(took),
            steps.join("\n")
        ))
    }

    /// True while a step runs.
    pub fn runs(&self) -> bool {
        !self.running.is_empty()
    }

    /// The lines that are redrawn: for each node the step that has run longest, the longest first, and how many more
    /// there are. Empty when nothing runs.
    pub fn live(&self, now: Duration, room: Room) -> Vec<String> {
        let mut by_target: BTreeMap<&str, (&StepId, &Running)> = BTreeMap::new();
        for (id, step) in &self.running {
            let longest = by_target.entry(&step.target).or_insert((id, step));
            if step.since < longest.1.since {
                *longest = (id, step);
            }
        }
        let mut steps: Vec<(&StepId, &Running)> = by_target.into_values().collect();
        // In the order of their names where they began together.
        steps.sort_by_key(|(_, step)| step.since);
        let most = LINES.min(room.lines);
        // A line for one more node is better than one that counts it.
        let shown = if steps.len() > most { most - 1 } else { most };
        let more = steps.len().saturating_sub(shown);
        let shown = steps.iter().take(shown);
        let mut lines: Vec<String> = shown
            .map(|(id, step)| self.line(**id, step, now, room))
            .collect();
        if more > 0 {
            let more = format!("and {}", count(more, "more node"));
            lines.push(clip(&more, room.columns));
        }
        lines
    }

    /// A step that runs, in one line: how far it is stands at its end, however narrow the screen is.
    fn line(&self, id: StepId, step: &Running, now: Duration, room: Room) -> String {
        let Running { target, title, .. } = step;
        let head = if room.columns >= WIDE {
            self.head(id.stage, target, title)
        } else {
            format!("{target:<width$}  {title}", width = self.target_width)
        };
        let so_far = step.so_far(now);
        let for_head = head.chars().count().min(room.columns * 2 / 5);
        let space = room
            .columns
            .saturating_sub(for_head + so_far.chars().count() + 4);
        let done = clip_middle(&format!("{}{}", step.bar(room), step.progress), space);
        let tail = if done.is_empty() {
            so_far
        } else {
            format!("{done}, {so_far}")
        };
        let left = room.columns.saturating_sub(tail.chars().count() + 2);
        format!("{}  {tail}", clip(&head, left))
    }

    fn head(&self, stage: usize, target: &str, title: &str) -> String {
        let stage = self.stages.get(&stage).map_or("", String::as_str);
        format!(
            "{stage:<12} {target:<width$}  {title}",
            width = self.target_width
        )
    }

    fn finished(
        &mut self,
        head: &str,
        outcome: &StepOutcome,
        took: Duration,
        detail: Option<&str>,
    ) -> Option<Said> {
        let took = span(took);
        let detail = detail.map_or_else(String::new, |detail| format!(", {detail}"));
        match outcome {
            StepOutcome::Done => Some(Said::calm(format!("{head}{detail}, {took}"))),
            // A step that never started is nobody's news: the failure or the stop is.
            StepOutcome::Skipped => None,
            StepOutcome::Warned { message, hints } => {
                let warning = self.paint.warn("warning:");
                let mut line = format!("{head}{detail}, {took}\n  {warning} {message}");
                for hint in hints {
                    let _ = write!(line, "\n  {} {hint}", self.paint.hint("hint:"));
                }
                Some(Said::loud(line))
            }
            StepOutcome::Failed {
                message,
                hints,
                class: _,
            } => {
                self.failures += 1;
                let failed = self.paint.bad("failed");
                let mut line = format!("{head}, {failed} after {took}");
                // The first failure is the error that the command ends with, in full.
                if self.failures > 1 {
                    let _ = write!(line, "\n  {message}");
                    for hint in hints {
                        let _ = write!(line, "\n  {} {hint}", self.paint.hint("hint:"));
                    }
                }
                Some(Said::loud(line))
            }
        }
    }
}

impl Running {
    fn begun(target: String, title: &str, now: Duration) -> Self {
        Self {
            target,
            title: title.to_owned(),
            since: now,
            remind_at: now + PATIENCE,
            progress: String::new(),
            part: None,
        }
    }

    /// `[####------] `, where there is room and it is known how far it is.
    fn bar(&self, room: Room) -> String {
        let Some((done, total)) = self.part.filter(|_| room.columns >= BARS) else {
            return String::new();
        };
        let width = u64::try_from(BAR).unwrap_or(0);
        let full = done.min(total).saturating_mul(width) / total;
        let full = usize::try_from(full).unwrap_or(BAR);
        format!("[{}{}] ", "#".repeat(full), "-".repeat(BAR - full))
    }

    /// How long it has run, in whole seconds.
    fn so_far(&self, now: Duration) -> String {
        let seconds = now.saturating_sub(self.since).as_secs();
        span(Duration::from_secs(seconds))
    }

    fn still(&self, now: Duration) -> String {
        let so_far = self.so_far(now);
        if self.progress.is_empty() {
            so_far
        } else {
            format!("{}, {so_far}", self.progress)
        }
    }
}

fn progress(done: u64, total: u64, unit: &str, waiting_for: Option<&str>) -> String {
    if let Some(what) = waiting_for {
        return what.to_owned();
    }
    let amount = match (unit, total) {
        ("bytes", 0) => megabytes(done),
        ("bytes", total) => format!("{} of {}", megabytes(done), megabytes(total)),
        (unit, 0) => format!("{done} {unit}"),
        (unit, total) => format!("{done} of {total} {unit}"),
    };
    if done == 0 && total == 0 {
        String::new()
    } else {
        amount
    }
}

/// A count with its noun.
pub(crate) fn count(n: usize, noun: &str) -> String {
    if n == 1 {
        format!("1 {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

/// A duration for people: `0.3 s`, `12 s`, `2 min 5 s`.
pub(crate) fn span(took: Duration) -> String {
    let seconds = took.as_secs();
    if seconds >= 60 {
        format!("{} min {} s", seconds / 60, seconds % 60)
    } else if took.subsec_millis() < 50 && seconds > 0 {
        format!("{seconds} s")
    } else {
        format!("{:.1} s", took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests;

//! Kubernetes events: ends of stages, warnings and failures of a run. `reason` is the stage,
//! `action` the step and its node, and neither is ever a step's content.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event as KubeEvent, EventType, Recorder, Reporter},
};
use tokio::time::Instant;

use super::{cluster_object::ClusterObject, context::Context};
use crate::{
    api::{MANAGER, conditions::shorten},
    apply::event::{Event, StepOutcome},
    error::{on_object, with_causes},
    model::printable_lines,
};

/// What the API takes.
const MAX_NOTE: usize = 1024;
const MAX_ACTION: usize = 128;

/// One event, ready to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) warning: bool,
    /// One CamelCase word.
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) note: String,
}

impl Notice {
    pub(super) fn warning(reason: &str, action: &str, note: &str) -> Self {
        Self::new(true, reason, action, note)
    }

    pub(super) fn normal(reason: &str, action: &str, note: &str) -> Self {
        Self::new(false, reason, action, note)
    }

    fn new(warning: bool, reason: &str, action: &str, note: &str) -> Self {
        Self {
            warning,
            reason: camel(reason),
            action: shorten(&printable_lines(action), MAX_ACTION),
            note: shorten(&printable_lines(&on_object(note)), MAX_NOTE),
        }
    }
}

/// How long one may take: it keeps no run, no deletion and no end of the process waiting.
const ANSWER: Duration = Duration::from_secs(5);

/// How long kube's recorder counts repetitions of one event.
const SERIES: Duration = Duration::from_secs(6 * 60);

/// Publishes events. kube's recorder takes events of one reason and action for repetitions of
/// the first and keeps that one's note, so each note has a separate recorder.
pub(super) struct Publisher {
    client: Client,
    recorders: Mutex<HashMap<u64, (Instant, Recorder)>>,
}

impl Publisher {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            recorders: Mutex::default(),
        }
    }

    fn recorder(&self, uid: &str, note: &str) -> Recorder {
        let mut hasher = DefaultHasher::new();
        (uid, note).hash(&mut hasher);
        let mut recorders = self
            .recorders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        recorders.retain(|_, (used, _)| used.elapsed() < SERIES);
        let now = Instant::now();
        let (used, recorder) = recorders.entry(hasher.finish()).or_insert_with(|| {
            let reporter = Reporter {
                controller: MANAGER.to_owned(),
                instance: None,
            };
            (now, Recorder::new(self.client.clone(), reporter))
        });
        *used = now;
        recorder.clone()
    }
}

/// Publishes; a refusal is logged and is never the run's problem.
pub(super) async fn publish(ctx: &Context, view: &ClusterObject, notice: &Notice) {
    publish_about(ctx, &view.uid(), &Context::reference(view), notice).await;
}

/// As [`publish`], about any object.
pub(super) async fn publish_about(
    ctx: &Context,
    uid: &str,
    about: &ObjectReference,
    notice: &Notice,
) {
    let event = KubeEvent {
        type_: if notice.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: notice.reason.clone(),
        note: Some(notice.note.clone()),
        action: notice.action.clone(),
        secondary: None,
    };
    let recorder = ctx.publisher.recorder(uid, &notice.note);
    let published = tokio::time::timeout(ANSWER, recorder.publish(&event, about)).await;
    let failed = match published {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(with_causes(&error)),
        Err(_) => Some(format!("no answer within {} s", ANSWER.as_secs())),
    };
    if let Some(error) = failed {
        tracing::warn!(
            error,
            reason = notice.reason,
            note = notice.note,
            "cannot publish an event"
        );
    }
}

/// Turns the stream of a run into notices: one at the end of each stage, one for each warning
/// and failure.
#[derive(Debug, Default)]
pub(super) struct Notices {
    stage: Option<OpenStage>,
}

#[derive(Debug)]
struct OpenStage {
    name: String,
    done: usize,
    bad: bool,
}

impl Notices {
    /// What an event gives to say.
    pub(super) fn take(&mut self, event: &Event) -> Vec<Notice> {
        match event {
            Event::TurnAwaited { .. }
            | Event::RunStarted { .. }
            | Event::StepStarted { .. }
            | Event::StepProgress { .. } => Vec::new(),
            Event::StageStarted { name, .. } => {
                let closed = self.close();
                self.stage = Some(OpenStage {
                    name: name.clone(),
                    done: 0,
                    bad: false,
                });
                closed.into_iter().collect()
            }
            Event::StepFinished {
                target,
                title,
                outcome,
                ..
            } => {
                let action = format!("{title} on {target}");
                self.step(&action, outcome).into_iter().collect()
            }
            Event::RunFinished { .. } => self.close().into_iter().collect(),
        }
    }

    fn step(&mut self, action: &str, outcome: &StepOutcome) -> Option<Notice> {
        let stage = self.stage.as_mut();
        let name = stage
            .as_ref()
            .map_or_else(|| "run".to_owned(), |stage| stage.name.clone());
        if let Some(stage) = stage {
            match outcome {
                StepOutcome::Done | StepOutcome::Warned { .. } => stage.done += 1,
                StepOutcome::Skipped | StepOutcome::Failed { .. } => stage.bad = true,
            }
        }
        match outcome {
            StepOutcome::Done | StepOutcome::Skipped => None,
            StepOutcome::Warned { message, hints } | StepOutcome::Failed { message, hints, .. } => {
                let mut note = message.clone();
                for hint in hints {
                    note.push_str("; hint: ");
                    note.push_str(hint);
                }
                Some(Notice::warning(&name, action, &note))
            }
        }
    }

    fn close(&mut self) -> Option<Notice> {
        let stage = self.stage.take().filter(|stage| !stage.bad)?;
        let note = match stage.done {
            1 => "1 step done".to_owned(),
            done => format!("{done} steps done"),
        };
        Some(Notice::normal(&stage.name, &stage.name, &note))
    }
}

/// `addon apply` → `AddonApply`: what a reason may be.
fn camel(words: &str) -> String {
    words
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter_map(|word| {
            let mut chars = word.chars();
            let first = chars.next()?.to_ascii_uppercase();
            Some(std::iter::once(first).chain(chars).collect::<String>())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        apply::event::{RunOutcome, StepId},
        error::ErrorClass,
        plan::Target,
    };

    fn finished(outcome: StepOutcome) -> Event {
        Event::StepFinished {
            id: StepId { stage: 0, step: 0 },
            target: Target::Host("n1".into()),
            title: "pull pause".into(),
            kind: "pull-image",
            outcome,
            took: Duration::from_secs(2),
            detail: None,
        }
    }

    fn stage(name: &str) -> Event {
        Event::StageStarted {
            stage: 0,
            name: name.into(),
            steps: 1,
        }
    }

    #[test]
    fn stages_warnings_and_failures_are_reported() {
        let mut notices = Notices::default();
        let failed = StepOutcome::Failed {
            message: "no route".into(),
            hints: vec!["look at the cable".into()],
            class: ErrorClass::Host,
        };
        let all: Vec<_> = [
            stage("images"),
            finished(StepOutcome::Done),
            stage("node-meta"),
            finished(failed),
            Event::RunFinished {
                outcome: RunOutcome::Failed,
                took: Duration::ZERO,
                why: None,
            },
        ]
        .iter()
        .flat_map(|event| notices.take(event))
        .collect();
        assert_eq!(
            all,
            [
                Notice::normal("images", "images", "1 step done"),
                Notice {
                    warning: true,
                    reason: "NodeMeta".into(),
                    action: "pull pause on n1".into(),
                    note: "no route; hint: look at the cable".into(),
                },
            ]
        );
    }

    #[test]
    fn nothing_is_longer_than_the_api_takes() {
        let notice = Notice::warning("images", &"ü".repeat(500), &"ü".repeat(5000));
        assert!(notice.note.len() <= 1024 && notice.action.len() <= 128);
    }
}

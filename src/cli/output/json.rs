//! The event stream for programs: one JSON object a line on stdout, as [`Event`] serialises,
//! and one last object, `{"event":"ended", …}`, that shows how the command ended. Every command
//! prints the latter when it fails. [`schema`](super::schema) describes both.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    apply::event::Event,
    cli::{dispatch::DEGRADED, session::STOPPED},
    config::Problem,
    error::ErrorClass,
    facts::Unreachable,
    model::NodeName,
    state::RemovalSnapshot,
};

/// How the command ended: always the last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(
    tag = "result",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Ended {
    /// The cluster is as it should be, or removed.
    Converged {
        /// False: there was nothing to do.
        changed: bool,
        /// Path of the kubeconfig; null after `remove`.
        kubeconfig: Option<String>,
        /// The snapshot that `remove` saved before it stopped the cluster.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_snapshot: Option<RemovalSnapshot>,
    },
    /// Everything that was possible now was done; some nodes were left out, or something does not work yet.
    Degraded {
        /// False: there was nothing to do.
        changed: bool,
        /// Path of the kubeconfig.
        kubeconfig: String,
        /// The nodes that were left out, by name, and why.
        left: BTreeMap<NodeName, Unreachable>,
        /// What does not work yet, a sentence each.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        missing: Vec<String>,
    },
    /// Stopped by Ctrl-C or SIGTERM; the same command continues.
    Stopped,
    /// It failed.
    Failed {
        /// The error.
        message: String,
        /// Its causes, outermost first.
        causes: Vec<String>,
        /// What to do about it, most likely cure first.
        hints: Vec<String>,
        /// Who has to act.
        class: ErrorClass,
        /// The problems of the config, if it is not valid.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        problems: Vec<ShownProblem>,
    },
}

impl Ended {
    /// The exit code of a process that ends like that.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Converged { .. } => 0,
            Self::Degraded { .. } => DEGRADED,
            Self::Stopped => STOPPED,
            Self::Failed { class, .. } => class.exit_code(),
        }
    }
}

/// A problem of the config, without any value of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ConfigProblem")]
pub struct ShownProblem {
    /// The key, e.g. `nodes[2].role`.
    path: String,
    /// Its line in the file, from 1; null if it has none.
    line: Option<usize>,
    /// Its column in that line, from 1; null if it has none.
    column: Option<usize>,
    /// The problem.
    message: String,
    /// What to do about it; null if that is not known.
    hint: Option<String>,
}

impl From<&Problem> for ShownProblem {
    fn from(problem: &Problem) -> Self {
        Self {
            path: problem.path.clone(),
            line: problem.line(),
            column: problem.place.as_ref().map(|place| place.column),
            message: problem.message.clone(),
            hint: problem.hint.clone(),
        }
    }
}

/// How a command ended. The last line of a command that prints events, and the only object of any other command that
/// has no result.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Ended")]
pub(super) struct EndedLine<'a> {
    /// Distinguishes this object from results and from other events.
    #[schemars(extend("const" = "ended"))]
    event: &'static str,
    #[serde(flatten)]
    ended: &'a Ended,
    /// The exit code of the process.
    exit_code: u8,
}

/// Writes one event.
pub fn event(out: &mut impl Write, event: &Event) -> io::Result<()> {
    line(out, event)
}

/// Writes the last line.
pub fn ended(out: &mut impl Write, ended: &Ended) -> io::Result<()> {
    line(
        out,
        &EndedLine {
            event: "ended",
            ended,
            exit_code: ended.exit_code(),
        },
    )
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    out.write_all(&text)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::apply::event::RunOutcome;

    #[test]
    fn one_object_a_line_and_a_last_word() {
        let mut out = Vec::new();
        event(
            &mut out,
            &Event::RunFinished {
                outcome: RunOutcome::Completed,
                took: Duration::from_millis(1200),
                why: None,
            },
        )
        .unwrap();
        ended(
            &mut out,
            &Ended::Failed {
                message: "cannot reach `n1`".into(),
                causes: vec!["connection refused".into()],
                hints: vec![],
                class: ErrorClass::Host,
                problems: vec![],
            },
        )
        .unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r#"
        {"event":"runFinished","outcome":"completed","took":1200}
        {"event":"ended","result":"failed","message":"cannot reach `n1`","causes":["connection refused"],"hints":[],"class":"host","exitCode":2}
        "#);
    }
}

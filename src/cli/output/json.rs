//! The event stream for programs: one JSON object a line on stdout, as [`Event`] serialises,
//! and one last object of our own, `{"event":"ended", …}`, that says how the command ended.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::Serialize;

use crate::{
    apply::event::Event, config::Problem, error::ErrorClass, facts::Unreachable, model::NodeName,
    state::RemovalSnapshot,
};

/// How the command ended: always the last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "result",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Ended {
    /// Nothing is left to do.
    Converged {
        /// False: nothing was done at all.
        changed: bool,
        /// Where the kubeconfig is, after `up`.
        kubeconfig: Option<String>,
        /// The snapshot that a removal has saved before.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_snapshot: Option<RemovalSnapshot>,
    },
    /// What can converge has; some nodes are left out.
    Degraded {
        /// False: nothing was done at all.
        changed: bool,
        /// Where the kubeconfig is.
        kubeconfig: String,
        /// The nodes, and why.
        left: BTreeMap<NodeName, Unreachable>,
        /// What the cluster lacks to work as a whole, a sentence each.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        missing: Vec<String>,
    },
    /// Stopped by a signal.
    Stopped,
    /// It failed.
    Failed {
        /// The error.
        message: String,
        /// Its causes, outermost first.
        causes: Vec<String>,
        /// The cures.
        hints: Vec<String>,
        /// Who has to act.
        class: ErrorClass,
        /// What is wrong with the config, where that is it.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        problems: Vec<ShownProblem>,
    },
}

/// A problem of the config, without any value of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownProblem {
    path: String,
    line: Option<usize>,
    column: Option<usize>,
    message: String,
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

#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    #[serde(flatten)]
    ended: &'a Ended,
}

/// Writes one event.
pub fn event(out: &mut impl Write, event: &Event) -> io::Result<()> {
    line(out, event)
}

/// Writes the last line.
pub fn ended(out: &mut impl Write, ended: &Ended) -> io::Result<()> {
    line(
        out,
        &Line {
            event: "ended",
            ended,
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
        {"event":"ended","result":"failed","message":"cannot reach `n1`","causes":["connection refused"],"hints":[],"class":"Host"}
        "#);
    }
}

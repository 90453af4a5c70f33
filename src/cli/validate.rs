//! `validate`: says what is wrong with a config, and with `--connect` what `up` would stumble on.
//! Writes nothing anywhere.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use serde::Serialize;

use super::{
    args::{Output, Validate},
    dispatch::DEGRADED,
    environment::{self, Opening},
    intent::{self, Loaded},
    output::{json::ShownProblem, lines::count},
    print,
    report::CliError,
    rke_state,
    session::{STOPPED, Session},
    stream::shown,
};
use crate::{
    converge::{Goal, silent, survey},
    facts::Unreachable,
    model::NodeName,
};

/// What is right with it, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Valid<'a> {
    result: &'static str,
    nodes: usize,
    kubernetes_version: String,
    warnings: Vec<ShownProblem>,
    /// With `--connect` only: the nodes that do not answer, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreachable: Option<&'a BTreeMap<NodeName, Unreachable>>,
}

/// Runs it.
pub(super) async fn validate(args: &Validate, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let loaded = intent::load_whole(file, session)?;
    let unreachable = if args.connect {
        let opening = Opening {
            accept_new_host_keys: args.accept_new_host_keys,
            ..Opening::default()
        };
        let environment = environment::open(file, opening, session)?;
        rke_state::refuse(file, &environment).await?;
        let goal = Goal::Up(&loaded.intent);
        let survey = tokio::select! {
            biased;
            _ = session.stop.stopped() => return Ok(STOPPED),
            survey = shown(session, survey(&goal, &environment)) => survey?,
        };
        Some(silent(&survey.actual))
    } else {
        None
    };
    match args.output {
        Output::Text => print::data(&text(file, &loaded, unreachable.as_ref()))?,
        Output::Json => print::json(&Valid {
            result: "valid",
            nodes: loaded.intent.nodes.len(),
            kubernetes_version: loaded.intent.version.to_string(),
            warnings: loaded.warnings.iter().map(Into::into).collect(),
            unreachable: unreachable.as_ref(),
        })?,
    }
    let all_answer = unreachable.is_none_or(|silent| silent.is_empty());
    Ok(if all_answer { 0 } else { DEGRADED })
}

fn text(
    file: &Path,
    loaded: &Loaded,
    unreachable: Option<&BTreeMap<NodeName, Unreachable>>,
) -> String {
    let Loaded { intent, .. } = loaded;
    let mut text = format!(
        "`{}` is valid: {}, Kubernetes {}",
        file.display(),
        count(intent.nodes.len(), "node"),
        intent.version
    );
    let Some(unreachable) = unreachable else {
        return text;
    };
    if unreachable.is_empty() {
        text.push_str("; every node answers, and nothing prevents `up`");
    } else {
        text.push_str("; these nodes do not answer:");
    }
    for (name, down) in unreachable {
        let _ = write!(text, "\n  {name}: {}", down.why);
        for hint in &down.hints {
            let _ = write!(text, "\n    hint: {hint}");
        }
    }
    text
}

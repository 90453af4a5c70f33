//! `up`: makes the cluster as the config says.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, sync::Arc};

use tokio::time::Instant;

use super::{
    args::{Output, Up},
    custom_certs,
    environment::{self, Opening},
    images, intent,
    output::{
        json::Ended,
        lines::{count, span},
        status::snapshots,
    },
    owner,
    prompt::AskConsent,
    remove,
    report::{CliError, Failure},
    rke_state,
    session::{Session, kubeconfig_of},
    stream::converge_shown,
};
use crate::{
    apply::step::Warning,
    config::Intent,
    converge::{Convergence, Declined, Goal, Outcome},
    desired::pki::{Restore, RestoreRequest},
    environment::Environment,
    error::distinct,
    facts::{Unreachable, by_cause},
    model::{NodeName, shell_word},
    status::SnapshotStatus,
};

/// Runs it.
pub(super) async fn up(args: &Up, session: &Session) -> Result<Ended, CliError> {
    let begun = Instant::now();
    let file = &args.config.config;
    let opening = Opening {
        recover: args.recover.clone(),
        accept_etcd: args.accept_etcd.clone(),
        retry: args.retry,
        lose: args.lose.iter().cloned().collect(),
        clean: args.clean.iter().cloned().collect(),
        given: custom_certs::read(&args.certs, file)?,
        bundle: images::opened(args.image_bundle.as_deref(), session).await?,
        ..Opening::to_change(&args.trust)
    };
    let mut environment = environment::open(file, opening, session)?;
    rke_state::refuse(file, &environment).await?;
    owner::refuse_others(&environment).await?;
    remove::known(&environment).await?;
    // A config that is refused as a whole is not warned about.
    let intent = intent::load_whole(file, session).await?.intent;
    let trust = Opening::to_change(&args.trust);
    environment.host_keys = Arc::new(environment::host_keys(&trust, session)?);
    owner::take_over(&environment).await?;
    let run = Run {
        goal: Goal::Up(&intent),
        file,
        yes: args.yes,
        output: args.output,
        again: "rke-operator up",
        begun,
    };
    run.to_its_end(&environment, session).await
}

/// A run for a [`Goal`], from the command line.
pub(super) struct Run<'a> {
    pub(super) goal: Goal<'a>,
    /// The config.
    pub(super) file: &'a Path,
    /// Consent is given.
    pub(super) yes: bool,
    pub(super) output: Output,
    /// The command that goes on with it.
    pub(super) again: &'a str,
    pub(super) begun: Instant,
}

impl Run<'_> {
    pub(super) async fn to_its_end(
        &self,
        environment: &Environment,
        session: &Session,
    ) -> Result<Ended, CliError> {
        let consent = AskConsent {
            given: self.yes,
            prompt: session.prompt.clone(),
        };
        let shown = converge_shown(&self.goal, environment, &consent, self.output, session);
        let kubeconfig = || kubeconfig_of(self.file).display().to_string();
        match shown.await? {
            Convergence::Settled(Outcome::Converged {
                changed, survey, ..
            }) => {
                let took = span(self.begun.elapsed());
                let state = state(self.goal, environment.restore.as_ref(), changed);
                let mut tip = tip(self.goal.intent(), state, &took, &kubeconfig());
                let status = SnapshotStatus::of(&survey.snapshots);
                if let Some(taken) = status.filter(|status| status.newest.is_some()) {
                    let _ = write!(tip, "\n  snapshots of etcd: {}", snapshots(&taken));
                }
                session.screen.print_unless_quiet(&tip);
                Ok(Ended::Converged {
                    changed,
                    kubeconfig: Some(kubeconfig()),
                    last_snapshot: None,
                })
            }
            Convergence::Settled(Outcome::Degraded {
                left,
                changed,
                warnings,
                survey: _,
            }) => {
                let missing = warnings.iter().filter(|warning| warning.degrades);
                let missing: Vec<&Warning> = missing.collect();
                session
                    .screen
                    .print(&without(self.goal.intent(), &left, &missing, self.again));
                Ok(Ended::Degraded {
                    changed,
                    kubeconfig: kubeconfig(),
                    left,
                    missing: missing.iter().map(|it| it.message.clone()).collect(),
                })
            }
            Convergence::ConsentRefused {
                refusal: Declined,
                disruptions,
                changed,
            } => Err(if session.prompt.is_interactive() {
                Failure::Declined { changed }
            } else {
                Failure::ConsentNeeded {
                    disruptions,
                    changed,
                    planned: self.again.starts_with("rke-operator up"),
                }
            }
            .into()),
            Convergence::Stopped(_) => {
                let again = self.again;
                let text = format!("stopped; `{again}` again continues from here");
                session.screen.print(&text);
                Ok(Ended::Stopped)
            }
        }
    }
}

/// What is left out, why, and what to do about it.
fn without(
    intent: &Intent,
    left: &BTreeMap<NodeName, Unreachable>,
    missing: &[&Warning],
    again: &str,
) -> String {
    let mut text = if left.is_empty() {
        "\nthe cluster is degraded:".to_owned()
    } else if intent.nodes.keys().all(|name| left.contains_key(name)) {
        "\nevery node is left as it is:".to_owned()
    } else {
        format!(
            "\nthe rest of the cluster matches the config, without {}:",
            count(left.len(), "node")
        )
    };
    let down = by_cause(left);
    for group in &down {
        let _ = write!(text, "\n  {}", group.named());
    }
    for what in missing {
        let _ = write!(text, "\n  {}", what.message);
    }
    let hints = down.iter().flat_map(|group| &group.hints);
    let hints = hints.chain(missing.iter().flat_map(|what| &what.hints));
    let last = format!("run `{again}` again when this is fixed");
    let mut hints = distinct(hints.map(String::as_str));
    hints.push(&last);
    for (index, hint) in hints.iter().enumerate() {
        let gap = if index == 0 { "\n\n" } else { "\n" };
        let _ = write!(text, "{gap}hint: {hint}");
    }
    text
}

/// What a run has made of the cluster.
const fn state(goal: Goal<'_>, restore: Option<&RestoreRequest>, changed: bool) -> &'static str {
    match (goal, restore) {
        _ if !changed => "is up to date, nothing to do",
        (Goal::Restore(_), Some(RestoreRequest::TakeBack)) => "has its former data again",
        (Goal::Restore(_), Some(RestoreRequest::Begin(Restore { from: Some(_), .. }))) => {
            "is restored"
        }
        (Goal::Renew(_), _) => "has new certificates",
        (
            Goal::Up(_)
            | Goal::Heal(_)
            | Goal::RotateKeys(..)
            | Goal::Restore(_)
            | Goal::Reboot(..),
            _,
        ) => "is up",
    }
}

fn tip(intent: &Intent, state: &str, took: &str, kubeconfig: &str) -> String {
    let nodes = count(intent.nodes.len(), "node");
    format!(
        "\ncluster `{}` {state}: {nodes}, Kubernetes {}, {took}\n\n  \
         kubectl --kubeconfig {} get nodes",
        intent.cluster_name,
        intent.version,
        shell_word(kubeconfig)
    )
}

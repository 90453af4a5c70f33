//! `remove`: takes the cluster down and gives every node back as it was.

use std::collections::BTreeSet;

use super::{
    args::Remove,
    environment::{self, Opening},
    intent,
    output::json::Ended,
    prompt::AskConsent,
    report::{CliError, Failure},
    rke_state,
    session::Session,
    stream::converge_shown,
};
use crate::{
    config::Intent,
    converge::{Goal, Outcome},
    environment::Environment,
    state::Loaded,
};

/// Runs it.
pub(super) async fn remove(args: &Remove, session: &Session) -> Result<Ended, CliError> {
    let file = &args.config.config;
    let opening = Opening {
        accept_new_host_keys: args.trust.accept_new_host_keys,
        record_host_keys: true,
        recover: None,
        lose: BTreeSet::new(),
        given: None,
    };
    let environment = environment::open(file, opening, session)?;
    rke_state::refuse(file, &environment).await?;
    let intent = intent_unless_saved(args, &environment, session).await?;
    if !args.force {
        if !session.prompt.is_interactive() {
            return Err(Failure::NobodyToAsk.into());
        }
        let question = "Are you sure you want to remove Kubernetes cluster";
        if !session.prompt.yes(question).await {
            return Err(Failure::Declined { changed: false }.into());
        }
    }
    let external = match environment.store.load().await? {
        Loaded::Present { saved, .. } => saved.external_etcd,
        Loaded::Absent => None,
    };
    let consent = AskConsent {
        given: true,
        prompt: session.prompt.clone(),
    };
    let goal = Goal::Remove(intent.as_ref());
    match converge_shown(&goal, &environment, &consent, args.output, session).await? {
        Outcome::Converged { changed, .. } => {
            session.screen.print_unless_quiet(if changed {
                "\nthe cluster is removed and its nodes are clean"
            } else {
                "nothing to remove: there is no cluster of this config"
            });
            if let Some(keyspace) = external {
                session.screen.print_unless_quiet(&keyspace.stays());
            }
            Ok(Ended::Converged {
                changed,
                kubeconfig: None,
            })
        }
        // The question above was the consent.
        Outcome::ConsentRefused {
            disruptions,
            changed,
        } => Err(Failure::ConsentNeeded {
            disruptions,
            changed,
        }
        .into()),
        Outcome::Degraded { left, .. } => {
            Err(Failure::incomplete(left.into_iter().collect()).into())
        }
        Outcome::RemovalIncomplete { left, .. } => Err(Failure::incomplete(left).into()),
        Outcome::Stopped(_) => {
            session
                .screen
                .print("stopped; `rke-operator remove` again continues from here");
            Ok(Ended::Stopped)
        }
    }
}

/// A removal needs nothing but the state: without a usable config it goes by the inventory, and
/// says so. Without either the config's problem is the error.
async fn intent_unless_saved(
    args: &Remove,
    environment: &Environment,
    session: &Session,
) -> Result<Option<Intent>, CliError> {
    let error = match intent::load(&args.config.config, session) {
        Ok(intent) => return Ok(Some(intent)),
        Err(error) => error,
    };
    match environment.store.load().await? {
        Loaded::Absent => Err(error),
        Loaded::Present { .. } => {
            let place = environment.store.place();
            let text = error.render(session.screen.paint());
            session.screen.print(&format!(
                "{text}\n\ncontinuing without the config, with the nodes recorded in {place}"
            ));
            Ok(None)
        }
    }
}

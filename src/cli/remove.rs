//! `remove`: takes the cluster down and gives every node back as it was.

use super::{
    args::Remove,
    ask::AskConsent,
    intent,
    output::json::Ended,
    report::{Failure, Trouble},
    session::Session,
    stream::converge_shown,
    world::{self, Opening},
};
use crate::{
    config::Intent,
    converge::{Goal, Outcome},
    state::Loaded,
    world::World,
};

/// Runs it.
pub(super) async fn remove(args: &Remove, session: &Session) -> Result<Ended, Trouble> {
    let file = &args.config.config;
    let opening = Opening {
        accept_new_host_keys: args.trust.accept_new_host_keys,
        record_host_keys: true,
        recover: false,
    };
    let world = world::open(file, opening, session)?;
    let intent = intent_unless_saved(args, &world, session).await?;
    if !args.force {
        if !session.asker.somebody() {
            return Err(Failure::NobodyToAsk.into());
        }
        let question = "Are you sure you want to remove Kubernetes cluster";
        if !session.asker.yes(question).await {
            return Err(Failure::Declined.into());
        }
    }
    let consent = AskConsent {
        given: true,
        asker: session.asker.clone(),
    };
    let goal = Goal::Remove(intent.as_ref());
    match converge_shown(&goal, &world, &consent, args.output, session).await? {
        Outcome::Converged { changed, .. } => {
            session.screen.say(if changed {
                "\nthe cluster is removed, and its nodes are given back"
            } else {
                "nothing to remove: there is no cluster of this config"
            });
            Ok(Ended::Converged {
                changed,
                kubeconfig: None,
            })
        }
        // The question above was the consent.
        Outcome::ConsentRefused { disruptions } => {
            Err(Failure::ConsentNeeded { disruptions }.into())
        }
        Outcome::RemovalIncomplete { left } => Err(Failure::incomplete(left).into()),
        Outcome::Stopped(_) => {
            session
                .screen
                .insist("stopped; `rke-operator remove` again goes on from here");
            Ok(Ended::Stopped)
        }
    }
}

/// A removal needs nothing but the state: without a usable config it goes by the inventory, and
/// says so. Without either the config's problem is the error.
async fn intent_unless_saved(
    args: &Remove,
    world: &World,
    session: &Session,
) -> Result<Option<Intent>, Trouble> {
    let trouble = match intent::load(&args.config.config, session) {
        Ok(intent) => return Ok(Some(intent)),
        Err(trouble) => trouble,
    };
    match world.store.load().await? {
        Loaded::Absent => Err(trouble),
        Loaded::Present { .. } => {
            let place = world.store.place();
            let text = trouble.render(session.screen.paint());
            session.screen.insist(&format!(
                "{text}\n\ngoing on without the config, with the nodes that {place} names"
            ));
            Ok(None)
        }
    }
}

//! `up`: makes the cluster as the config says.

use tokio::time::Instant;

use super::{
    args::Up,
    ask::AskConsent,
    intent,
    output::{
        json::Ended,
        lines::{count, span},
    },
    report::{Failure, Trouble},
    session::{Session, kubeconfig_beside},
    stream::converge_shown,
    world::{self, Opening},
};
use crate::{
    config::Intent,
    converge::{Goal, Outcome},
};

/// Runs it.
pub(super) async fn up(args: &Up, session: &Session) -> Result<Ended, Trouble> {
    let begun = Instant::now();
    let file = &args.config.config;
    let intent = intent::load(file, session)?;
    let opening = Opening {
        accept_new_host_keys: args.trust.accept_new_host_keys,
        record_host_keys: true,
        recover: args.recover,
    };
    let world = world::open(file, opening, session)?;
    let consent = AskConsent {
        given: args.yes,
        asker: session.asker.clone(),
    };
    let goal = Goal::Up(&intent);
    match converge_shown(&goal, &world, &consent, args.output, session).await? {
        Outcome::Converged { changed, .. } => {
            let kubeconfig = kubeconfig_beside(file).display().to_string();
            let took = span(begun.elapsed());
            session
                .screen
                .say(&tip(&intent, changed, &took, &kubeconfig));
            Ok(Ended::Converged {
                changed,
                kubeconfig: Some(kubeconfig),
            })
        }
        Outcome::ConsentRefused { disruptions } if session.asker.somebody() => {
            drop(disruptions);
            Err(Failure::Declined.into())
        }
        Outcome::ConsentRefused { disruptions } => {
            Err(Failure::ConsentNeeded { disruptions }.into())
        }
        Outcome::RemovalIncomplete { left } => Err(Failure::incomplete(left).into()),
        Outcome::Stopped(_) => {
            session
                .screen
                .insist("stopped; `rke-operator up` again goes on from here");
            Ok(Ended::Stopped)
        }
    }
}

fn tip(intent: &Intent, changed: bool, took: &str, kubeconfig: &str) -> String {
    let nodes = count(intent.nodes.len(), "node");
    let state = if changed {
        "is up"
    } else {
        "is up to date, nothing to do"
    };
    format!(
        "\ncluster `{}` {state}: {nodes}, Kubernetes {}, {took}\n\n  \
         kubectl --kubeconfig {kubeconfig} get nodes",
        intent.cluster_name, intent.version
    )
}

//! `remove`: takes the cluster down and gives every node back as it was.

use std::{
    fmt::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::future::BoxFuture;

use super::{
    args::Remove,
    environment::{self, Opening},
    intent::{self, Warnings},
    output::{json::Ended, lines::count},
    owner,
    prompt::Prompt,
    report::{CliError, Failure},
    rke_state,
    session::Session,
    stream::converge_shown,
};
use crate::{
    api::LastSnapshot,
    config::Intent,
    converge::{Consent, Convergence, Declined, Removal, RemovalOutcome},
    environment::Environment,
    model::{Named, Role, quoted},
    plan::{self, Plan},
    state::{ClusterState, Loaded, RemovalSnapshot},
};

/// Runs it.
pub(super) async fn remove(args: &Remove, session: &Session) -> Result<Ended, CliError> {
    let file = &args.config.config;
    let opening = Opening {
        recover: args.recover.clone(),
        lose: args.lose.iter().cloned().collect(),
        clean: args.clean.iter().cloned().collect(),
        last_snapshot: if args.no_snapshot {
            LastSnapshot::Skip
        } else {
            LastSnapshot::BestEffort
        },
        ..Opening::to_change(&args.trust)
    };
    let mut environment = environment::open(file, opening, session)?;
    rke_state::refuse(file, &environment).await?;
    owner::refuse_others(&environment).await?;
    let intent = intent_unless_saved(file, &environment, session).await?;
    let trust = Opening::to_change(&args.trust);
    environment.host_keys = Arc::new(environment::host_keys(&trust, session)?);
    if !args.force && !session.prompt.is_interactive() {
        return Err(Failure::NobodyToAsk.into());
    }
    known(&environment).await?;
    let saved = saved(&environment).await?;
    let consent = AskRemoval {
        agreed: AtomicBool::new(false),
        force: args.force,
        saved: saved.as_ref(),
        prompt: session.prompt.clone(),
    };
    let removal = Removal(intent.as_ref());
    match converge_shown(&removal, &environment, &consent, args.output, session).await? {
        Convergence::Settled(RemovalOutcome::Removed {
            changed,
            last_snapshot,
        }) => {
            session.screen.print_unless_quiet(if changed {
                "\nthe cluster is removed; nothing of it is left on its nodes"
            } else {
                "nothing to remove: this config has no cluster"
            });
            if let Some(keyspace) = saved
                .as_ref()
                .and_then(|saved| saved.external_etcd.as_ref())
            {
                session.screen.print_unless_quiet(&keyspace.stays());
            }
            if let Some(place) = last_snapshot.as_ref().and_then(RemovalSnapshot::place) {
                let text = format!("the last snapshot of etcd is {place}");
                session.screen.print_unless_quiet(&text);
            }
            Ok(Ended::Converged {
                changed,
                kubeconfig: None,
                last_snapshot,
            })
        }
        Convergence::Settled(RemovalOutcome::Incomplete { left, claimed: _ }) => {
            Err(incomplete(left, &environment).await?.into())
        }
        Convergence::ConsentRefused {
            refusal: Declined,
            disruptions: _,
            changed,
        } => Err(Failure::Declined { changed }.into()),
        Convergence::Stopped(_) => {
            session
                .screen
                .print("stopped; `rke-operator remove` again continues from here");
            Ok(Ended::Stopped)
        }
    }
}

async fn incomplete(
    left: Vec<(crate::model::NodeName, crate::facts::Unreachable)>,
    environment: &Environment,
) -> Result<Failure, CliError> {
    let place = environment.store.place();
    let kept = saved(environment).await?.map(|_| place.as_str());
    Ok(Failure::incomplete(&left, kept))
}

async fn saved(environment: &Environment) -> Result<Option<ClusterState>, CliError> {
    Ok(match environment.store.load().await? {
        Loaded::Present { saved, .. } => Some(*saved),
        Loaded::Absent => None,
    })
}

/// Refuses names of nodes that the cluster does not have, before anything is dialled.
pub(super) async fn known(environment: &Environment) -> Result<(), CliError> {
    let saved = saved(environment).await?;
    if saved.is_none() && environment.recover.is_some() {
        // The state is on the nodes, and names are compared with it when it is read.
        return Ok(());
    }
    let named = Named {
        lose: environment.lose.clone(),
        clean: environment.clean.clone(),
    };
    Ok(plan::known(&named, saved.as_ref())?)
}

/// A removal needs nothing but the state: without a usable config it goes by the inventory, and
/// says so. Without either the config's problem is the error.
pub(super) async fn intent_unless_saved(
    file: &Path,
    environment: &Environment,
    session: &Session,
) -> Result<Option<Intent>, CliError> {
    let error = match intent::load_with(Warnings::Hidden, file, session).await {
        Ok(intent) => return Ok(Some(intent)),
        Err(CliError::Stopped) => return Err(CliError::Stopped),
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

/// Shows what a removal deletes, and asks once whether that is meant.
struct AskRemoval<'a> {
    agreed: AtomicBool,
    force: bool,
    saved: Option<&'a ClusterState>,
    prompt: Prompt,
}

impl Consent for AskRemoval<'_> {
    type Refusal = Declined;

    fn ask<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), Declined>> {
        Box::pin(async move {
            // A later plan of the run cleans no other nodes.
            if self.force || self.agreed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let yes = self.prompt.yes(&question(self.saved, plan)).await;
            self.agreed.store(yes, Ordering::Relaxed);
            yes.then_some(()).ok_or(Declined)
        })
    }
}

/// Names the cluster, its nodes, and what is lost with them; RKE's own question is the last line.
fn question(saved: Option<&ClusterState>, plan: &Plan) -> String {
    let mut text = String::new();
    if let Some(saved) = saved {
        let entries = saved.inventory.values();
        let members = entries.filter(|entry| entry.roles.contains(&Role::Etcd));
        let _ = writeln!(
            text,
            "This deletes cluster `{}` (id `{}`): {}, {} of etcd, and all that is stored in it.",
            saved.cluster_name,
            saved.cluster_id,
            count(saved.inventory.len(), "node"),
            count(members.count(), "member"),
        );
    }
    let cleaned: std::collections::BTreeSet<_> = plan
        .disruptions()
        .filter_map(|(step, _)| step.node())
        .collect();
    if !cleaned.is_empty() {
        let _ = writeln!(
            text,
            "Certificates, logs, the data of etcd and what pods keep on these nodes are deleted: {}.",
            quoted(cleaned)
        );
    }
    for note in &plan.notes {
        let _ = match &note.target {
            Some(target) => writeln!(text, "  {target}: {}", note.text),
            None => writeln!(text, "  {}", note.text),
        };
    }
    text + "Are you sure you want to remove Kubernetes cluster"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::saved;

    #[test]
    fn the_question_names_the_cluster_and_what_is_lost() {
        let state = saved("a");
        let text = question(Some(&state), &Plan::default());
        assert!(
            text.contains(&format!("`{}`", state.cluster_name)),
            "{text}"
        );
        assert!(text.contains(&format!("`{}`", state.cluster_id)), "{text}");
        assert!(text.ends_with("Are you sure you want to remove Kubernetes cluster"));
    }
}

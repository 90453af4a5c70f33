//! `node`: single nodes of a cluster.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::{
    args::{NodeDrain, NodeReboot, NodeReset, NodeUncordon},
    environment::Opening,
    intent,
    output::json::Ended,
    owner, print,
    report::{CliError, Failure},
    session::{STOPPED, Session},
    stream::shown,
    up::Run,
};
use crate::{
    converge,
    converge::Goal,
    model::{DrainRules, quoted},
    plan::Reboot,
};

/// `node reboot`. One that was cut off goes on where it was. What else differs from the config waits for `up`.
pub(super) async fn reboot(args: &NodeReboot, session: &Session) -> Result<Ended, CliError> {
    let begun = Instant::now();
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    let opening = Opening::to_change(&args.trust);
    let (environment, _) = owner::open(file, opening, session).await?;
    let now = environment.clock.now();
    let request = Reboot::new(args.nodes.clone(), args.no_drain.then_some(false), now);
    let again = request.nodes.iter().map(|name| name.0.as_str());
    let again = again.fold("rke-operator node reboot".to_owned(), |text, name| {
        format!("{text} {name}")
    });
    let goal = Goal::Reboot(&request, &intent);
    let looks = Box::pin(converge::survey(&goal, &environment));
    let survey = shown(session, looks).await?;
    let request = request.going_on(&survey.actual, now);
    drop(survey);
    let run = Run {
        goal: Goal::Reboot(&request, &intent),
        file,
        yes: args.yes,
        output: args.output,
        again: &again,
        begun,
    };
    let ended = run.to_its_end(&environment, session).await?;
    if matches!(ended, Ended::Converged { .. }) {
        let text = format!("\nrebooted: {}", quoted(&request.nodes));
        session.screen.print_unless_quiet(&text);
    }
    Ok(ended)
}

/// `node drain`.
pub(super) async fn drain(args: &NodeDrain, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    let (environment, saved) = owner::open(file, Opening::to_change(&args.trust), session).await?;
    let rules = intent.upgrade.drain.unwrap_or_default();
    let rules = DrainRules {
        force: rules.force || args.force,
        delete_local_data: rules.delete_local_data || args.delete_emptydir_data,
        ..rules
    };
    let shown = Mutex::new(String::new());
    let waiting = |what: String, _looks: u64| {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown != what {
            session.screen.print_unless_quiet(&format!("waits: {what}"));
            *shown = what;
        }
    };
    let draining = converge::drain(&args.nodes, rules, &saved, &environment, &waiting);
    tokio::select! {
        biased;
        _ = session.stop.stopped() => {
            let text = "stopped; a node that was not empty yet takes pods again after the next `rke-operator up`";
            session.screen.print(text);
            return Ok(STOPPED);
        }
        drained = Box::pin(draining) => drained?,
    }
    print::data(&format!("drained: {}", quoted(&args.nodes)))?;
    Ok(0)
}

/// `node uncordon`.
pub(super) async fn uncordon(args: &NodeUncordon, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let (environment, saved) = owner::open(file, Opening::to_change(&args.trust), session).await?;
    tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(STOPPED),
        done = Box::pin(converge::uncordon(&args.nodes, &saved, &environment)) => done?,
    }
    print::data(&format!("takes pods again: {}", quoted(&args.nodes)))?;
    Ok(0)
}

/// `node reset`: an `up` without the node, and where it is to join again, another one with it. So each of them is one that
/// can be cut off, and the same command ends in the same world.
pub(super) async fn reset(args: &NodeReset, session: &Session) -> Result<Ended, CliError> {
    let NodeReset { node, rejoin, .. } = args;
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    let refused = |why: String| Failure::NotReset {
        node: node.clone(),
        why,
    };
    if !intent.nodes.contains_key(node) {
        return Err(Failure::no_node(node, &intent).into());
    }
    let rest = intent.without(node);
    let rest = rest.map_err(|role| {
        let role = role.name();
        refused(format!("no other node has the role `{role}`"))
    })?;
    let opening = Opening::to_change(&args.trust);
    let (environment, _) = owner::open(file, opening, session).await?;
    let flag = if *rejoin { " --rejoin" } else { "" };
    let again = format!("rke-operator node reset {node}{flag}");
    let run = |goal| Run {
        goal,
        file,
        yes: args.yes,
        output: args.output,
        again: &again,
        begun: Instant::now(),
    };
    let leaves = run(Goal::Up(&rest));
    let ended = Box::pin(leaves.to_its_end(&environment, session)).await?;
    if !matches!(ended, Ended::Converged { .. }) {
        return Ok(ended);
    }
    if !rejoin {
        let text = format!(
            "\nnode `{node}` is clean and in no cluster; the next `up` joins it again unless the config no longer names it"
        );
        session.screen.print_unless_quiet(&text);
        return Ok(ended);
    }
    let text = format!("\nnode `{node}` is clean; it joins again");
    session.screen.print_unless_quiet(&text);
    let joins = run(Goal::Up(&intent));
    Box::pin(joins.to_its_end(&environment, session)).await
}

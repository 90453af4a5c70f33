//! `node`: single nodes of a cluster.

use tokio::time::Instant;

use super::{
    args::NodeReboot, environment::Opening, intent, output::json::Ended, owner, report::CliError,
    session::Session, up::Run,
};
use crate::{converge, converge::Goal, model::quoted, plan::Reboot};

/// `node reboot`. One that was cut off goes on where it was. What else differs from the config waits for `up`.
pub(super) async fn reboot(args: &NodeReboot, session: &Session) -> Result<Ended, CliError> {
    let begun = Instant::now();
    let file = &args.config.config;
    let intent = intent::load_whole(file, session)?.intent;
    let opening = Opening::to_change(&args.trust);
    let (environment, _) = owner::open(file, opening, session).await?;
    let now = environment.clock.now();
    let request = Reboot::new(args.nodes.clone(), args.no_drain.then_some(false), now);
    let again = request.nodes.iter().map(|name| name.0.as_str());
    let again = again.fold("rke-operator node reboot".to_owned(), |text, name| {
        format!("{text} {name}")
    });
    let goal = Goal::Reboot(&request, &intent);
    let survey = Box::pin(converge::survey(&goal, &environment)).await?;
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

//! `plan`: shows what `up` would do, or `remove`. Writes nothing anywhere.

use std::sync::Arc;

use super::{
    args::{Output, Plan},
    custom_certs,
    dispatch::DEGRADED,
    environment::{self, Opening},
    images, intent,
    output::{Page, lines::count, results::PlanResult},
    owner, print, remove,
    report::CliError,
    rke_state,
    session::{STOPPED, Session},
    status,
    stream::shown,
};
use crate::{
    converge::{Goal, Removal, silent, survey},
    model::some_ranges,
    plan::{Detail, render_on},
};

/// Of `plan --exit-code`: there is something to do.
pub(super) const SOMETHING: u8 = 4;

/// Runs it.
pub(super) async fn plan(args: &Plan, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let opening = Opening {
        accept_new_host_keys: args.accept_new_host_keys,
        recover: args.recover.clone(),
        accept_etcd: args.accept_etcd.clone(),
        retry: args.retry,
        lose: args.lose.iter().cloned().collect(),
        clean: args.clean.iter().cloned().collect(),
        given: custom_certs::read(&args.certs, file)?,
        bundle: images::opened(args.image_bundle.as_deref(), session).await?,
        ..Opening::default()
    };
    let mut environment = environment::open(file, opening, session)?;
    rke_state::refuse(file, &environment).await?;
    owner::refuse_others(&environment).await?;
    remove::known(&environment).await?;
    let intent = if args.remove {
        remove::intent_unless_saved(file, &environment, session).await?
    } else {
        Some(intent::load_whole(file, session).await?.intent)
    };
    let trust = status::opening(args.accept_new_host_keys);
    environment.host_keys = Arc::new(environment::host_keys(&trust, session)?);
    let survey = async {
        match &intent {
            Some(intent) if !args.remove => survey(&Goal::Up(intent), &environment).await,
            intent => survey(&Removal(intent.as_ref()), &environment).await,
        }
    };
    let survey = tokio::select! {
        biased;
        // Nothing is written, so there is nothing to finish.
        _ = session.stop.stopped() => return Ok(STOPPED),
        survey = shown(session, Box::pin(survey)) => survey?,
    };
    match args.output {
        Output::Text => {
            let detail = if args.full {
                Detail::Full
            } else {
                Detail::Short
            };
            let columns = Page::stdout().columns;
            print::data(&render_on(&survey.plan, detail, columns))?;
        }
        Output::Json => print::json(&PlanResult::of(&survey.plan))?,
    }
    if args.remove {
        // The notes say why.
        let left = silent(&survey.actual);
        if !left.is_empty() {
            let names = some_ranges(&left.keys().collect());
            let nodes = count(left.len(), "node");
            session.screen.warn(&format!(
                "{nodes} cannot be cleaned ({names}): see the notes"
            ));
            return Ok(DEGRADED);
        }
    }
    let differs = args.exit_code && !survey.plan.is_empty();
    Ok(if differs { SOMETHING } else { 0 })
}

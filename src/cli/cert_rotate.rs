//! `cert rotate`: re-creates certificates, the authorities that sign them, or the key of service accounts, and replaces what
//! reads them.

use tokio::time::Instant;

use super::{
    args::{CertRotate, Certs},
    custom_certs,
    environment::{self, Opening},
    intent,
    kubeconfig::state,
    output::json::Ended,
    owner,
    report::{CliError, Failure},
    session::Session,
    stream::shown,
    up::Run,
};
use crate::{
    converge::{self, Goal},
    desired::{
        Rotated,
        pki::{AuthorityError, PkiError, Rotation, RotationStage, ServiceAccountKeyError},
    },
    environment::Environment,
    state::ClusterState,
};

/// Runs it. What else differs from the config waits for `up`.
pub(super) async fn rotate(args: &CertRotate, session: &Session) -> Result<Ended, CliError> {
    let staged = [
        (args.rotate_ca, Rotated::Authorities),
        (args.service_account_key, Rotated::ServiceAccountKey),
    ];
    if let Some((_, rotated)) = staged.into_iter().find(|(asked, _)| *asked) {
        return Box::pin(in_stages(args, rotated, session)).await;
    }
    let begun = Instant::now();
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    let opening = Opening {
        rotate: Some(Rotation {
            asked: environment::clock().now(),
            of: args
                .service
                .iter()
                .map(|service| service.component())
                .collect(),
        }),
        ..Opening::to_change(&args.trust)
    };
    let environment = environment::open(file, opening, session)?;
    let saved = state(file, &environment).await?;
    if saved.is_signed_elsewhere() {
        return Err(Failure::SignedElsewhere.into());
    }
    let run = Run {
        goal: Goal::Renew(&intent),
        file,
        yes: args.yes,
        output: args.output,
        again: "rke-operator cert rotate",
        begun,
    };
    run.to_its_end(&environment, session).await
}

/// Shows what a rotation means for programs of other people, before anything is done. `asks`: a person confirms it, and then
/// it is true. `None` after Ctrl-C.
async fn confirmed(
    goal: &Goal<'_>,
    asks: bool,
    environment: &Environment,
    session: &Session,
) -> Result<Option<bool>, CliError> {
    let survey = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(None),
        survey = shown(session, Box::pin(converge::survey(goal, environment))) => survey?,
    };
    let notes = survey.desired.map(|desired| desired.notes);
    let notes = notes.unwrap_or_default();
    if !asks || survey.plan.is_empty() {
        for note in &notes {
            session.screen.print_unless_quiet(&format!("note: {note}"));
        }
        return Ok(Some(false));
    }
    if !session.prompt.is_interactive() {
        return Err(Failure::EndNotAgreed { notes }.into());
    }
    for note in &notes {
        session.screen.print(&format!("note: {note}"));
    }
    let yes = session.prompt.yes("Continue?").await;
    if session.stop.cause().is_some() {
        return Ok(None);
    }
    if yes {
        Ok(Some(true))
    } else {
        Err(Failure::Declined { changed: false }.into())
    }
}

/// What is replaced in stages: the new one is known everywhere before it is used, and the former one ends when a person says
/// so. A rotation that was cut off goes on where it was.
async fn in_stages(
    args: &CertRotate,
    rotated: Rotated,
    session: &Session,
) -> Result<Ended, CliError> {
    let begun = Instant::now();
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    let stage = match (args.complete, args.now) {
        (true, _) => RotationStage::Complete,
        (false, true) => RotationStage::Now,
        (false, false) => RotationStage::Start,
    };
    let asked = |it| (rotated == it).then_some(stage);
    let certs = Certs {
        custom_certs: args.custom_certs,
        cert_dir: args.cert_dir.clone(),
    };
    let opening = Opening {
        service_account_key: asked(Rotated::ServiceAccountKey),
        authorities: asked(Rotated::Authorities),
        given: custom_certs::read(&certs, file)?,
        ..Opening::to_change(&args.trust)
    };
    let (environment, saved) = owner::open(file, opening, session).await?;
    if stage != RotationStage::Complete && saved.is_signed_elsewhere() {
        refuse_given(rotated, &saved, &environment)?;
    }
    let goal = Goal::RotateKeys(rotated, &intent);
    let ends = stage != RotationStage::Start;
    let asks = ends && !args.yes;
    let confirmed = Box::pin(confirmed(&goal, asks, &environment, session)).await?;
    let Some(confirmed) = confirmed else {
        return Ok(Ended::Stopped);
    };
    let run = Run {
        goal,
        file,
        yes: args.yes || confirmed,
        output: args.output,
        again: command(rotated, args),
        begun,
    };
    let ended = run.to_its_end(&environment, session).await?;
    if stage != RotationStage::Complete && matches!(ended, Ended::Converged { .. }) {
        let text = if stage == RotationStage::Now {
            "\nyour own pods that started before may trust no API server until they are restarted (`kubectl rollout restart`); \
             copied kubeconfigs are fetched again"
        } else if rotated == Rotated::Authorities {
            "\nthe former authorities are still trusted; when your own pods were restarted and copied kubeconfigs were fetched again: \
             `rke-operator cert rotate --rotate-ca --complete`"
        } else {
            "\nthe former service-account key is still accepted; in an hour: `rke-operator cert rotate \
             --service-account-key --complete`"
        };
        session.screen.print_unless_quiet(text);
    }
    Ok(ended)
}

/// Keys and certificates that a person keeps are not replaced.
fn refuse_given(
    rotated: Rotated,
    saved: &ClusterState,
    environment: &Environment,
) -> Result<(), PkiError> {
    if rotated == Rotated::Authorities {
        return Err(AuthorityError::Given.into());
    }
    if saved.service_accounts.next.is_none() && environment.given.is_none() {
        return Err(ServiceAccountKeyError::Given.into());
    }
    Ok(())
}

const fn command(rotated: Rotated, args: &CertRotate) -> &'static str {
    match (rotated, args.complete) {
        (Rotated::Authorities, false) if args.now => "rke-operator cert rotate --rotate-ca --now",
        (Rotated::Authorities, true) => "rke-operator cert rotate --rotate-ca --complete",
        (Rotated::Authorities, false) => "rke-operator cert rotate --rotate-ca",
        (_, true) => "rke-operator cert rotate --service-account-key --complete",
        (_, false) if args.custom_certs => {
            "rke-operator cert rotate --service-account-key --custom-certs"
        }
        (_, false) => "rke-operator cert rotate --service-account-key",
    }
}

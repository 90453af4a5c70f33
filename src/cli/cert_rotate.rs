//! `cert rotate`: re-creates certificates, or the key of service accounts, and replaces what reads them.

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
    up::Run,
};
use crate::{
    converge::Goal,
    desired::{
        Rotated,
        pki::{PkiError, Rotation, RotationStage, ServiceAccountKeyError},
    },
};

/// Runs it. What else differs from the config waits for `up`.
pub(super) async fn rotate(args: &CertRotate, session: &Session) -> Result<Ended, CliError> {
    if args.rotate_ca {
        return Err(Failure::NoCaRotation.into());
    }
    if args.service_account_key {
        return Box::pin(service_account_key(args, session)).await;
    }
    let begun = Instant::now();
    let file = &args.config.config;
    let intent = intent::load_whole(file, session)?.intent;
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
    let saved = state(&environment).await?;
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

/// A new key for the tokens of service accounts, or the end of the former one. A rotation that was cut off goes on where it
/// was.
async fn service_account_key(args: &CertRotate, session: &Session) -> Result<Ended, CliError> {
    let begun = Instant::now();
    let file = &args.config.config;
    let intent = intent::load_whole(file, session)?.intent;
    let (stage, again) = if args.complete {
        let again = "rke-operator cert rotate --service-account-key --complete";
        (RotationStage::Complete, again)
    } else if args.custom_certs {
        let again = "rke-operator cert rotate --service-account-key --custom-certs";
        (RotationStage::Start, again)
    } else {
        let again = "rke-operator cert rotate --service-account-key";
        (RotationStage::Start, again)
    };
    let certs = Certs {
        custom_certs: args.custom_certs,
        cert_dir: args.cert_dir.clone(),
    };
    let opening = Opening {
        service_account_key: Some(stage),
        given: custom_certs::read(&certs, file)?,
        ..Opening::to_change(&args.trust)
    };
    let environment = environment::open(file, opening, session)?;
    let saved = state(&environment).await?;
    owner::refuse_others(&environment).await?;
    let begins = stage == RotationStage::Start && saved.service_accounts.next.is_none();
    if begins && saved.is_signed_elsewhere() && environment.given.is_none() {
        return Err(PkiError::from(ServiceAccountKeyError::Given).into());
    }
    let run = Run {
        goal: Goal::RotateKeys(Rotated::ServiceAccountKey, &intent),
        file,
        yes: args.yes,
        output: args.output,
        again,
        begun,
    };
    let ended = run.to_its_end(&environment, session).await?;
    if stage == RotationStage::Start && matches!(ended, Ended::Converged { .. }) {
        let text = "\nthe former service-account key is still accepted; in an hour: `rke-operator cert rotate \
                    --service-account-key --complete`";
        session.screen.print_unless_quiet(text);
    }
    Ok(ended)
}

//! `cert rotate`: re-creates certificates, and replaces what reads them.

use tokio::time::Instant;

use super::{
    args::CertRotate,
    environment::{self, Opening},
    intent,
    kubeconfig::state,
    output::json::Ended,
    report::{CliError, Failure},
    session::Session,
    up::Run,
};
use crate::{converge::Goal, desired::pki::Rotation};

/// Runs it. What else differs from the config waits for `up`.
pub(super) async fn rotate(args: &CertRotate, session: &Session) -> Result<Ended, CliError> {
    if args.rotate_ca {
        return Err(Failure::NoCaRotation.into());
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
    let authorities = [&saved.cluster_ca, &saved.etcd_ca, &saved.front_proxy_ca];
    let ours = authorities.map(|authority| authority.signing.key.is_some());
    if ours.contains(&false) || !saved.given.leaves.is_empty() {
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

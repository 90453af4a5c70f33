//! `encrypt rotate-key`: a new key for what the API servers store, and everything written again with it.

use tokio::time::Instant;

use super::{
    args::RotateKey, environment::Opening, intent, output::json::Ended, owner, report::CliError,
    session::Session, up::Run,
};
use crate::{converge::Goal, desired, desired::Rotated};

/// Runs it. A rotation that was cut off goes on where it was. What else differs from the config waits for `up`.
pub(super) async fn rotate(args: &RotateKey, session: &Session) -> Result<Ended, CliError> {
    let begun = Instant::now();
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    desired::has_own_key(&intent)?;
    let opening = Opening {
        rotate_key: true,
        ..Opening::to_change(&args.trust)
    };
    let (environment, _) = owner::open(file, opening, session).await?;
    let run = Run {
        goal: Goal::RotateKeys(Rotated::EncryptionKey, &intent),
        file,
        yes: args.yes,
        output: args.output,
        again: "rke-operator encrypt rotate-key",
        begun,
    };
    run.to_its_end(&environment, session).await
}

//! A cluster of RKE v1 is recognised by its state beside the config, before any node is asked: its
//! nodes may be down, and its kubeconfig has the name that ours would have.

use std::path::Path;

use super::{
    report::{CliError, Failure},
    session::kubeconfig_of,
};
use crate::{environment::Environment, state::Loaded};

/// An error where RKE's state is beside the config and none of ours: nothing was written.
pub(super) async fn refuse(config: &Path, environment: &Environment) -> Result<(), CliError> {
    let file = config.with_extension("rkestate");
    // What cannot be looked at is not taken for absent.
    if matches!(file.try_exists(), Ok(false)) {
        return Ok(());
    }
    match environment.store.load().await? {
        Loaded::Present { .. } => Ok(()),
        Loaded::Absent => Err(Failure::RkeState {
            file: file.display().to_string(),
            kubeconfig: kubeconfig_of(config).display().to_string(),
        }
        .into()),
    }
}

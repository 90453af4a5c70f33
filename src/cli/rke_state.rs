//! A cluster of RKE v1 is recognised by its state next to the config, before any node is contacted: its nodes may be
//! down, and its kubeconfig has the name that rke-operator's would have.

use std::path::Path;

use super::{
    report::{CliError, Failure},
    session::kubeconfig_of,
};
use crate::{environment::Environment, state::Loaded};

/// An error if RKE's state is next to the config and rke-operator has no state there: nothing was written.
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

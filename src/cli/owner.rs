//! Who owns the cluster of a state file: this command line, or a `Cluster` object of which the file is a copy. The counterpart
//! of the annotation `take-over`.

use std::path::Path;

use super::{
    environment::{self, Opening},
    kubeconfig::state,
    report::{CliError, Failure},
    session::Session,
};
use crate::{
    environment::Environment,
    state::{ClusterState, Loaded, OperatorMemory},
};

/// Opens the world of a command that needs a cluster that is there and belongs to this command line. Its state.
pub(super) async fn open(
    config: &Path,
    opening: Opening,
    session: &Session,
) -> Result<(Environment, ClusterState), CliError> {
    let environment = environment::open(config, opening, session)?;
    let saved = state(config, &environment).await?;
    refuse_others(&environment).await?;
    Ok((environment, saved))
}

/// An error where the state is an object's and no id was named.
pub(super) async fn refuse_others(environment: &Environment) -> Result<(), CliError> {
    others(environment).await.map(drop)
}

/// As [`refuse_others`]; where the id was named the state belongs to the command line from now on. That counts as a change
/// of the state: the copies on the nodes follow it, and refuse the object.
pub(super) async fn take_over(environment: &Environment) -> Result<(), CliError> {
    let Some((saved, revision)) = others(environment).await? else {
        return Ok(());
    };
    let ours = ClusterState {
        serial: saved.serial.saturating_add(1),
        memory: OperatorMemory {
            uid: None,
            applied: None,
            populated: saved.memory.populated,
            refused: saved.memory.refused.clone(),
            operations: saved.memory.operations.clone(),
            last_snapshot: saved.memory.last_snapshot.clone(),
        },
        ..saved
    };
    Ok(environment.store.save(&ours, Some(&revision)).await?)
}

/// The state and its revision, where it is an object's.
async fn others(environment: &Environment) -> Result<Option<(ClusterState, String)>, CliError> {
    let Loaded::Present { saved, revision } = environment.store.load().await? else {
        return Ok(None);
    };
    if saved.memory.uid.is_none() {
        return Ok(None);
    }
    if environment.recover.as_ref() == Some(&saved.cluster_id) {
        return Ok(Some((*saved, revision)));
    }
    Err(Failure::Owned {
        place: environment.store.place(),
        id: saved.cluster_id,
    }
    .into())
}

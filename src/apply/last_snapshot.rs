//! A snapshot before a removal is recorded in the state before it is taken, and again when it is saved: a removal that was
//! cut off anywhere finds its file again, and takes no second one.

use super::{
    executor::{bug, failed},
    remote::{Context, RemoteAction},
    step::{Done, StepError},
};
use crate::{
    plan::HostAction,
    state::{Loaded, RemovalSnapshot},
};

/// The snapshot that a step saves.
pub(super) struct Recorded<'a> {
    context: Context<'a>,
    snapshot: RemovalSnapshot,
}

impl<'a> Recorded<'a> {
    /// Records in the state that it begins. `None`: the step saves no such snapshot.
    pub(super) async fn begin(
        context: Context<'a>,
        action: RemoteAction<'_>,
    ) -> Result<Option<Self>, StepError> {
        let RemoteAction::Host(
            node,
            HostAction::SaveSnapshot {
                name,
                begun_at: Some(begun_at),
                cause: _,
                required: _,
            },
        ) = action
        else {
            return Ok(None);
        };
        let recorded = Self {
            context,
            snapshot: RemovalSnapshot {
                name: name.clone(),
                node: node.clone(),
                begun_at: *begun_at,
                failed: false,
                saved: None,
            },
        };
        recorded.write().await?;
        Ok(Some(recorded))
    }

    /// Records the outcome. After a stop nothing is recorded: the snapshot may exist all the same.
    pub(super) async fn end(mut self, ended: Result<Done, StepError>) -> Result<Done, StepError> {
        match &ended {
            Ok(done) => self.snapshot.saved.clone_from(&done.saved),
            Err(StepError::Failed(_)) => self.snapshot.failed = true,
            Err(StepError::Guard(_) | StepError::Stopped) => return ended,
        }
        let written = self.write().await;
        // What failed first is what there is to say.
        let done = ended?;
        written.map(|()| done)
    }

    async fn write(&self) -> Result<(), StepError> {
        let store = &self.context.environment.store;
        let Loaded::Present {
            mut saved,
            revision,
        } = store.load().await.map_err(failed)?
        else {
            return Err(bug("a cluster without a state has no snapshot"));
        };
        if saved.memory.last_snapshot.as_ref() == Some(&self.snapshot) {
            return Ok(());
        }
        saved.memory.last_snapshot = Some(self.snapshot.clone());
        store.save(&saved, Some(&revision)).await.map_err(failed)
    }
}

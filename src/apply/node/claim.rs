//! The claim: the first act on a node, and the last.

use std::{collections::BTreeMap, time::Duration};

use super::{containerd::VERDICT, job::job};
use crate::{
    actual::Before,
    apply::{
        effects::failed,
        step::{Done, StepError},
    },
    desired::{self, CLAIM_DIRS, label},
    host::{ClaimOutcome, Host, quote},
    state::ClusterId,
};

pub(in crate::apply) async fn claim(
    host: &Host,
    id: &ClusterId,
    name: &str,
    before: &Before,
    image_is_there: bool,
) -> Result<Done, StepError> {
    if !image_is_there {
        // Once only: an import takes the name away from the one before, which then stays behind.
        host.import_empty_image().await.map_err(failed)?;
    }
    match host.create_claim(id, name, before).await.map_err(failed)? {
        ClaimOutcome::Created => {
            let dirs = CLAIM_DIRS
                .iter()
                .map(|(dir, mode)| ((*dir).to_owned(), *mode))
                .collect();
            host.write_files(&dirs, &BTreeMap::new())
                .await
                .map_err(failed)?;
            Ok(Done::default())
        }
        ClaimOutcome::Held { by } if by.get(label::CLUSTER_ID) == Some(&id.0) => {
            Ok(Done::default())
        }
        ClaimOutcome::Held { .. } => Err(StepError::Guard(format!(
            "node `{}` was claimed by another cluster",
            host.name
        ))),
    }
}

/// What reading through the claim and restarting containerd left goes first: Docker makes the
/// folders that the claim binds whenever files are read through it.
pub(in crate::apply) async fn release_claim(
    host: &Host,
    id: &ClusterId,
) -> Result<Done, StepError> {
    if let Some(claim) = host.container(desired::CLAIM).await.map_err(failed)? {
        let before = claim.before().unwrap_or_default();
        let made = CLAIM_DIRS
            .iter()
            .filter(|(dir, _)| !before.paths.contains(*dir))
            .map(|(dir, _)| quote(dir))
            .collect::<Vec<_>>()
            .join(" ");
        let script = format!(
            "rm -f {VERDICT}; rmdir {made} 2>/dev/null; \
             cd /var/lib/containerd/io.containerd.grpc.v1.cri 2>/dev/null && \
             find . -depth -type d -empty -delete; \
             rmdir /var/lib/containerd/io.containerd.grpc.v1.cri 2>/dev/null; true"
        );
        job(host, id, &script, Duration::from_secs(60)).await?;
    }
    host.remove(desired::JOB, None).await.map_err(failed)?;
    host.remove(desired::CLAIM, None).await.map_err(failed)?;
    host.remove_image(desired::FILES_IMAGE)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

//! Images: into Docker, from there into containerd, and out again.

use std::{collections::BTreeSet, time::Duration};

use super::{files::put, job::job};
use crate::{
    apply::{
        effects::failed,
        step::{Done, Reporter, StepError},
        stop::Stop,
    },
    host::{Host, quote},
    state::ClusterId,
};

/// The pause image on its way from Docker to containerd.
const PAUSE_TAR: &str = "/etc/containerd/rke-operator-pause.tar";

pub(in crate::apply) async fn pull(
    host: &Host,
    image: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let progress = |done: u64, total: u64| reporter.progress(done, total, "bytes");
    tokio::select! {
        pulled = host.pull(image, &progress) => {
            let bytes = pulled.map_err(failed)?;
            Ok(Done { detail: Some(format!("{} MB", bytes.div_ceil(1_000_000))), warning: None })
        }
        _ = stop.stopped() => Err(StepError::Stopped),
    }
}

pub(in crate::apply) async fn import_pause(
    host: &Host,
    id: &ClusterId,
    image: &str,
) -> Result<Done, StepError> {
    let archive = host.export_image(image).await.map_err(failed)?;
    put(host, &[(PAUSE_TAR, archive)]).await?;
    let script = format!(
        "PATH=$PATH:/usr/local/bin; ctr --namespace k8s.io images import {PAUSE_TAR} >/dev/null; status=$?; \
         rm -f {PAUSE_TAR}; [ $status = 0 ] || exit $status; \
         for name in $(ctr --namespace k8s.io images ls -q | grep -F {}); do \
         ctr --namespace k8s.io images label \"$name\" io.cri-containerd.pinned=pinned >/dev/null; done",
        quote(image)
    );
    job(host, id, &script, Duration::from_secs(60)).await?;
    Ok(Done::default())
}

pub(in crate::apply) async fn remove_images(
    host: &Host,
    images: &BTreeSet<String>,
) -> Result<Done, StepError> {
    for image in images {
        host.remove_image(image).await.map_err(failed)?;
    }
    Ok(Done::default())
}

//! One-off work as root on the node, in a container.

use std::time::Duration;

use bollard::{
    models::{
        ContainerCreateBody, ContainerStateStatusEnum, HostConfig, HostConfigCgroupnsModeEnum,
    },
    query_parameters::WaitContainerOptions,
};
use futures::StreamExt;
use tokio::time::{Instant, timeout};

use super::{create_body, error::HostError, machine::Host};
use crate::{
    desired::{FILES_IMAGE, JOB, label},
    state::ClusterId,
};

/// How much of a job's log is read.
const LOG_LINES: u32 = 1000;

/// A wait may hang (events of a restart of containerd are lost to dockerd), so it is asked again.
const POLL: Duration = Duration::from_secs(3);

/// A script to run as root on a node: the node's own `/bin/sh` in the node's own namespaces. The
/// container that carries it is made from our empty image, whose links lead to the node's own
/// `nsenter`, so no registry and no shell in an image is asked for.
#[derive(Clone, Debug)]
pub struct Job {
    /// For `/bin/sh -c`. Visible in `docker inspect`: no secrets.
    pub script: String,
    /// It is killed after this.
    pub limit: Duration,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOutput {
    /// Exit code of the script.
    pub status: i64,
    /// The end of what it wrote to standard output and error.
    pub log: String,
}

impl Host {
    /// Runs a job to its end and removes its container. A status other than 0 is not an error. A
    /// container that an interrupted run of the same cluster left is removed first; one of
    /// somebody else is [`HostError::NameTaken`].
    pub async fn run_job(&self, job: &Job, cluster_id: &ClusterId) -> Result<JobOutput, HostError> {
        match self.create(JOB, body(job, cluster_id)).await {
            Err(HostError::NameTaken { by, .. })
                if by.get(label::CLUSTER_ID) == Some(&cluster_id.0) =>
            {
                self.remove(JOB, None).await?;
                self.create(JOB, body(job, cluster_id)).await?;
            }
            Err(HostError::ImageMissing { .. }) => {
                self.import_empty_image().await?;
                self.create(JOB, body(job, cluster_id)).await?;
            }
            created => created?,
        }
        let result = self.carry_out(job).await;
        let removed = self.remove(JOB, None).await;
        let output = result?;
        removed?;
        Ok(output)
    }

    async fn carry_out(&self, job: &Job) -> Result<JobOutput, HostError> {
        self.start(JOB).await?;
        let ended = self.ended(job.limit).await?;
        let log = self.log_tail(JOB, LOG_LINES).await?;
        match ended {
            Some(status) => Ok(JobOutput { status, log }),
            None => Err(HostError::JobTimeout {
                at: self.session.place(),
                limit: job.limit,
                log,
            }),
        }
    }

    /// The exit code, or `None` when the time is over. Docker may be away for a while: a job may
    /// restart it.
    async fn ended(&self, limit: Duration) -> Result<Option<i64>, HostError> {
        let deadline = Instant::now() + limit;
        loop {
            let options = None::<WaitContainerOptions>;
            let mut waiting = Box::pin(self.docker().wait_container(JOB, options));
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = timeout(POLL.min(left), waiting.next()).await;
            drop(waiting);
            match self.inspected(JOB).await {
                Ok(Some(details)) => {
                    if let Some(state) = details.state
                        && matches!(
                            state.status,
                            Some(ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD)
                        )
                    {
                        return Ok(Some(state.exit_code.unwrap_or_default()));
                    }
                }
                Ok(None) => {
                    return Err(HostError::Docker {
                        at: self.session.place(),
                        doing: "await a job".to_owned(),
                        status: 404,
                        message: format!("container `{JOB}` was removed by someone else"),
                    });
                }
                Err(error) => {
                    if self.session.lost().is_some() || Instant::now() >= deadline {
                        return Err(error);
                    }
                }
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            // A wait that ends at once without an end of the job (Docker is away) must not spin.
            if waited.is_ok() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

fn body(job: &Job, cluster_id: &ClusterId) -> ContainerCreateBody {
    // No `--pid`: it would fork, and the job could outlive its container.
    let command = [
        "-t",
        "1",
        "-m",
        "-u",
        "-i",
        "-n",
        "/bin/sh",
        "-c",
        &job.script,
    ];
    ContainerCreateBody {
        image: Some(FILES_IMAGE.to_owned()),
        entrypoint: Some(vec!["nsenter".to_owned()]),
        cmd: Some(command.map(str::to_owned).to_vec()),
        user: Some("0:0".to_owned()),
        labels: Some(create_body::labels(cluster_id, "")),
        host_config: Some(HostConfig {
            binds: Some(vec!["/:/host:ro,rslave".to_owned()]),
            network_mode: Some("host".to_owned()),
            pid_mode: Some("host".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::HOST),
            privileged: Some(true),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

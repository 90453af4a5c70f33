//! One-off work as root on the node.

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
use crate::desired::{ClusterId, FILES_IMAGE, JOB, label};

/// A wait may hang (events of a restart of containerd are lost to dockerd), so it is asked again.
const POLL: Duration = Duration::from_secs(3);

/// How much of a job's log is read.
const LOG_LINES: u32 = 1000;

/// Enters the node. The image holds only links to the node's programs below `/host`; from
/// there `nsenter` leads into the node's own mounts, or `chroot` into a bind of them that passes
/// mounts on in both directions.
const ENTER: &str = "if command -v nsenter >/dev/null; then \
exec nsenter -t 1 -m -u -i -n -- /bin/sh -c \"$1\"; fi; exec chroot /host /bin/sh -c \"$1\"";

/// A script to run as root on a node, with the node's own programs in the node's own
/// namespaces.
#[derive(Clone, Debug)]
pub struct Job {
    /// For `sh -c`. Visible in `docker inspect` while it runs: no secrets.
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
    pub async fn run_job(
        &self,
        job: &Job,
        cluster_id: &ClusterId,
    ) -> Result<JobOutput, HostError> {
        match self.create(JOB, body(job, cluster_id)).await {
            Err(HostError::NameTaken { by, .. })
                if by.get(label::CLUSTER_ID) == Some(&cluster_id.0) =>
            {
                self.kill(JOB).await?;
                self.create(JOB, body(job, cluster_id)).await?;
            }
            Err(HostError::ImageMissing { .. }) => {
                self.import_empty_image().await?;
                self.create(JOB, body(job, cluster_id)).await?;
            }
            created => created?,
        }
        let result = self.carry_out(job).await;
        let removed = self.kill(JOB).await;
        let output = result?;
        removed?;
        Ok(output)
    }

    async fn carry_out(&self, job: &Job) -> Result<JobOutput, HostError> {
        self.start(JOB).await?;
        let ended = self.ended(job.limit).await?;
        let log = self.logs(JOB, LOG_LINES).await?;
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
                    let state = details.state.unwrap_or_default();
                    let status = state.status.unwrap_or(ContainerStateStatusEnum::EMPTY);
                    if matches!(
                        status,
                        ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD
                    ) {
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
                Err(error) if !self.is_alive() || Instant::now() >= deadline => return Err(error),
                Err(_) => {}
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            if waited.is_ok() {
                // A wait that ends at once while the job goes on (Docker is away) must not spin.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

fn body(job: &Job, cluster_id: &ClusterId) -> ContainerCreateBody {
    let command = ["-c", ENTER, "job", job.script.as_str()];
    ContainerCreateBody {
        image: Some(FILES_IMAGE.to_owned()),
        entrypoint: Some(vec!["/bin/sh".to_owned()]),
        cmd: Some(command.map(str::to_owned).to_vec()),
        user: Some("0:0".to_owned()),
        labels: Some(create_body::labels(cluster_id, "")),
        host_config: Some(HostConfig {
            binds: Some(vec!["/:/host:rshared".to_owned()]),
            network_mode: Some("host".to_owned()),
            pid_mode: Some("host".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::HOST),
            privileged: Some(true),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

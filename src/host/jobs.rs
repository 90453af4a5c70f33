//! One-off work as root on the node, in a container.

use std::time::Duration;

use bollard::{
    container::LogOutput,
    models::{
        ContainerCreateBody, ContainerStateStatusEnum, HostConfig, HostConfigCgroupnsModeEnum,
        Mount, MountType,
    },
    query_parameters::{LogsOptionsBuilder, WaitContainerOptions},
};
use futures::StreamExt;
use tokio::time::{Instant, timeout};

use super::{create_body, error::HostError, machine::Host};
use crate::desired::{ClusterId, FILES_IMAGE, JOB, label};

/// How much of a job's log is kept, from its end.
const LOG_LIMIT: usize = 256 << 10;

/// Where a 64-bit Linux keeps its programs, their libraries and their loader.
const PROGRAMS: [&str; 3] = ["/usr", "/lib", "/lib64"];

/// A wait may hang (events of a restart of containerd are lost to dockerd), so it is asked again.
const POLL: Duration = Duration::from_secs(3);

/// A script to run as root on a node: the node's own `/bin/sh` in the node's own namespaces. The
/// container that carries it is made from our empty image and sees the node's programs only as
/// far as `nsenter` needs them, so no registry and no shell in an image is asked for.
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
        let log = self.log(JOB).await?;
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
            let mut waiting = Box::pin(
                self.docker()
                    .wait_container(JOB, None::<WaitContainerOptions>),
            );
            let pause = POLL.min(deadline.saturating_duration_since(Instant::now()));
            let waited = timeout(pause, waiting.next()).await;
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

    /// The end of a container's log.
    pub async fn log(&self, name: &str) -> Result<String, HostError> {
        self.log_tail(name, 1000).await
    }

    /// The last lines of a container's log.
    pub async fn log_tail(&self, name: &str, lines: u32) -> Result<String, HostError> {
        let options = LogsOptionsBuilder::new()
            .stdout(true)
            .stderr(true)
            .tail(&lines.to_string())
            .build();
        let mut stream = Box::pin(self.docker().logs(name, Some(options)));
        let mut bytes = Vec::new();
        let mut failure = None;
        while let Some(line) = stream.next().await {
            match line {
                Ok(output) => bytes.extend_from_slice(&message(output)),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
            if bytes.len() > 2 * LOG_LIMIT {
                bytes.drain(..bytes.len() - LOG_LIMIT);
            }
        }
        let result = failure.map_or(Ok(()), Err);
        self.done(format!("read the log of container `{name}`"), result)
            .await?;
        let start = bytes.len().saturating_sub(LOG_LIMIT);
        Ok(String::from_utf8_lossy(&bytes[start..]).into_owned())
    }
}

fn message(output: LogOutput) -> bytes::Bytes {
    match output {
        LogOutput::StdErr { message }
        | LogOutput::StdOut { message }
        | LogOutput::StdIn { message }
        | LogOutput::Console { message } => message,
    }
}

fn body(job: &Job, cluster_id: &ClusterId) -> ContainerCreateBody {
    let enter = [
        "--target", "1", "--mount", "--net", "--uts", "--ipc", "--", "/bin/sh", "-c",
    ];
    let mut command: Vec<String> = enter.iter().map(|&word| word.to_owned()).collect();
    command.push(job.script.clone());
    let program = |folder: &str| Mount {
        source: Some(folder.to_owned()),
        target: Some(folder.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(true),
        ..Mount::default()
    };
    ContainerCreateBody {
        image: Some(FILES_IMAGE.to_owned()),
        entrypoint: Some(vec!["/usr/bin/nsenter".to_owned()]),
        cmd: Some(command),
        user: Some("0:0".to_owned()),
        labels: Some(create_body::labels(cluster_id, "")),
        host_config: Some(HostConfig {
            // A mount, unlike a bind, is an error where the folder is missing: it is not made.
            mounts: Some(PROGRAMS.iter().map(|folder| program(folder)).collect()),
            network_mode: Some("host".to_owned()),
            pid_mode: Some("host".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::HOST),
            privileged: Some(true),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

//! One-off work as root on the node, in a container.

use std::{collections::HashMap, time::Duration};

use bollard::{
    errors::Error as DockerError,
    models::{
        ContainerCreateBody, ContainerInspectResponse, ContainerStateStatusEnum, HostConfig,
        HostConfigCgroupnsModeEnum, HostConfigLogConfig,
    },
    query_parameters::{WaitContainerOptions, WaitContainerOptionsBuilder},
};
use futures::{
    StreamExt,
    future::{Either, select},
};
use tokio::time::{Instant, timeout};

use super::{create_body, error::HostError, machine::Host};
use crate::model::{ClusterId, ContainerSpec, FILES_IMAGE, HELPER, MEASUREMENT, label};

/// How much of a helper's log is read.
const LOG_LINES: u32 = 1000;

/// A wait may hang (events of a restart of containerd are lost to dockerd), so it is asked again.
const POLL: Duration = Duration::from_secs(3);

/// A script to run as root on a node: the node's own `/bin/sh` in the node's own namespaces. The
/// container that carries it is made from our empty image, whose links lead to the node's own
/// `nsenter`, so no registry and no shell in an image is asked for.
#[derive(Clone, Debug)]
pub struct HelperContainer {
    /// For `/bin/sh -c`. Visible in `docker inspect`: no secrets.
    pub script: String,
    /// The script's arguments (`$1` …): data is handed over here and never put into the script.
    pub arguments: Vec<String>,
    /// It is killed after this.
    pub limit: Duration,
}

/// A program of an image, run once to its end on the node's network.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it is; the node has it.
    pub image: String,
    /// The program and its arguments. Visible in `docker inspect`: no secrets.
    pub command: Vec<String>,
    /// `source:target[:options]`.
    pub binds: Vec<String>,
    /// It is killed after this.
    pub limit: Duration,
}

/// How a helper ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperOutput {
    /// Exit code of the script.
    pub status: i64,
    /// The end of what it wrote to standard output and error.
    pub log: String,
}

impl Host {
    /// Runs a helper to its end and removes its container. A status other than 0 is not an error. A
    /// container that an interrupted run of the same cluster left is removed first; one of
    /// another owner is [`HostError::NameTaken`].
    pub async fn run_helper(
        &self,
        helper: &HelperContainer,
        cluster_id: &ClusterId,
    ) -> Result<HelperOutput, HostError> {
        let body = || body(helper, cluster_id);
        match self.run_to_end(body, helper.limit, cluster_id).await {
            Err(HostError::ImageMissing { .. }) => {
                self.import_empty_image().await?;
                self.run_to_end(body, helper.limit, cluster_id).await
            }
            ended => ended,
        }
    }

    /// Runs the program of a container with all its flags and `--version`, without anything of the
    /// node, and removes its container. As [`run_helper`](Self::run_helper).
    pub async fn try_program(
        &self,
        spec: &ContainerSpec,
        limit: Duration,
        cluster_id: &ClusterId,
    ) -> Result<HelperOutput, HostError> {
        let body = || trial(spec, cluster_id);
        self.run_to_end(body, limit, cluster_id).await
    }

    /// Runs a program to its end and removes its container. As [`run_helper`](Self::run_helper).
    pub async fn run_program(
        &self,
        program: &Program,
        cluster_id: &ClusterId,
    ) -> Result<HelperOutput, HostError> {
        let body = || once(program, cluster_id);
        self.run_to_end(body, program.limit, cluster_id).await
    }

    /// As [`run_helper`](Self::run_helper); while its container is removed, `next` is begun, if the script
    /// exited with 0.
    pub async fn run_helper_then<T>(
        &self,
        helper: &HelperContainer,
        cluster_id: &ClusterId,
        next: impl Future<Output = T> + Send,
    ) -> Result<(HelperOutput, Option<T>), HostError> {
        let body = || body(helper, cluster_id);
        match self.create_helper(&body(), cluster_id).await {
            Err(HostError::ImageMissing { .. }) => {
                self.import_empty_image().await?;
                self.create_helper(&body(), cluster_id).await?;
            }
            created => created?,
        }
        let result = self.carry_out(helper.limit).await;
        let goes_on = result.as_ref().is_ok_and(|output| output.status == 0);
        let next = async { if goes_on { Some(next.await) } else { None } };
        let (removed, next) = tokio::join!(self.remove(HELPER, None), next);
        let output = result?;
        removed?;
        Ok((output, next))
    }

    /// Runs a script as root for a measurement, on a node that need not belong to a cluster, and leaves neither a
    /// container nor an image there. What an interrupted measurement left is removed first. A status other than 0 is
    /// not an error.
    pub async fn run_measurement(
        &self,
        measurement: &HelperContainer,
    ) -> Result<HelperOutput, HostError> {
        let had_image = self.images().await?.contains(FILES_IMAGE);
        if !had_image {
            self.import_empty_image().await?;
        }
        let ran = self.run_as_root(measurement).await;
        if !had_image {
            // Where a run claims the node meanwhile, it is in use and stays.
            self.remove_image(FILES_IMAGE).await?;
        }
        ran
    }

    async fn run_as_root(&self, script: &HelperContainer) -> Result<HelperOutput, HostError> {
        let body = || ContainerCreateBody {
            labels: Some(HashMap::from([(
                label::MEASUREMENT.to_owned(),
                String::new(),
            )])),
            ..as_root(script)
        };
        match self.create(MEASUREMENT, body()).await {
            Err(HostError::NameTaken { by, .. }) if by.contains_key(label::MEASUREMENT) => {
                self.remove(MEASUREMENT, None).await?;
                self.create(MEASUREMENT, body()).await?;
            }
            created => created?,
        }
        let result = self.end_of(MEASUREMENT, script.limit).await;
        let removed = self.remove(MEASUREMENT, None).await;
        let output = result?;
        removed?;
        Ok(output)
    }

    async fn run_to_end(
        &self,
        body: impl Fn() -> ContainerCreateBody,
        limit: Duration,
        cluster_id: &ClusterId,
    ) -> Result<HelperOutput, HostError> {
        self.create_helper(&body(), cluster_id).await?;
        let result = self.carry_out(limit).await;
        let removed = self.remove(HELPER, None).await;
        let output = result?;
        removed?;
        Ok(output)
    }

    /// Ends the helper that an interrupted run of the same cluster left. For what is put on the node
    /// for a helper to read, before it is put: the old helper would delete it at its own end.
    pub async fn end_left_helper(&self, cluster_id: &ClusterId) -> Result<(), HostError> {
        let left = self.inspected(HELPER).await?;
        let labels = left.and_then(|left| left.config?.labels);
        let ours =
            |labels: &HashMap<String, String>| labels.get(label::CLUSTER_ID) == Some(&cluster_id.0);
        if labels.as_ref().is_some_and(ours) {
            self.remove(HELPER, None).await?;
        }
        Ok(())
    }

    pub(super) async fn carry_out(&self, limit: Duration) -> Result<HelperOutput, HostError> {
        self.end_of(HELPER, limit).await
    }

    /// Starts a container that was created, and waits until it has ended.
    async fn end_of(&self, name: &str, limit: Duration) -> Result<HelperOutput, HostError> {
        // As a rule it ends soon, and its log is whole then.
        if self.start_and_wait(name, limit).await? {
            let log = self.log_tail(name, LOG_LINES);
            let (details, log) = tokio::join!(self.inspected(name), log);
            if let (Ok(Some(details)), Ok(log)) = (details, log)
                && let Some(status) = exit_code(&details)
            {
                return Ok(HelperOutput { status, log });
            }
        }
        let ended = self.ended(name, limit).await?;
        let log = self.log_tail(name, LOG_LINES).await?;
        match ended {
            Some(status) => Ok(HelperOutput { status, log }),
            None => Err(HostError::JobTimeout {
                at: self.session.place(),
                limit,
                log,
            }),
        }
    }

    /// Starts it and waits a moment for its end, which is asked for first: a helper may end before an answer
    /// to its start is here. True when Docker said that it has ended.
    async fn start_and_wait(&self, name: &str, limit: Duration) -> Result<bool, HostError> {
        let next_exit = WaitContainerOptionsBuilder::new()
            .condition("next-exit")
            .build();
        let mut waiting = Box::pin(self.docker().wait_container(name, Some(next_exit)));
        let ends = Box::pin(timeout(POLL.min(limit), waiting.next()));
        let starts = Box::pin(self.start(name));
        let said = match select(ends, starts).await {
            Either::Left((said, starts)) => {
                starts.await?;
                said
            }
            Either::Right((started, ends)) => {
                started?;
                ends.await
            }
        };
        Ok(matches!(
            said,
            Ok(Some(
                Ok(_) | Err(DockerError::DockerContainerWaitError { .. })
            ))
        ))
    }

    /// The exit code, or `None` when the time is over. Docker may be away for a while: a helper may
    /// restart it.
    async fn ended(&self, name: &str, limit: Duration) -> Result<Option<i64>, HostError> {
        let deadline = Instant::now() + limit;
        loop {
            let options = None::<WaitContainerOptions>;
            let mut waiting = Box::pin(self.docker().wait_container(name, options));
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = timeout(POLL.min(left), waiting.next()).await;
            drop(waiting);
            match self.inspected(name).await {
                Ok(Some(details)) => {
                    if let Some(code) = exit_code(&details) {
                        return Ok(Some(code));
                    }
                }
                Ok(None) => {
                    return Err(HostError::Docker {
                        at: self.session.place(),
                        doing: "await a helper".to_owned(),
                        status: 404,
                        message: format!("container `{name}` was removed by someone else"),
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
            // A wait that ends at once without an end of the helper (Docker is away) must not spin.
            if waited.is_ok() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// The exit code of a container that has ended.
fn exit_code(details: &ContainerInspectResponse) -> Option<i64> {
    let state = details.state.as_ref()?;
    let ended = matches!(
        state.status,
        Some(ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD)
    );
    ended.then(|| state.exit_code.unwrap_or_default())
}

fn body(helper: &HelperContainer, cluster_id: &ClusterId) -> ContainerCreateBody {
    ContainerCreateBody {
        labels: Some(create_body::labels(cluster_id, "")),
        ..as_root(helper)
    }
}

fn as_root(helper: &HelperContainer) -> ContainerCreateBody {
    // No `--pid`: it would fork, and the helper could outlive its container.
    let enter = ["-t", "1", "-m", "-u", "-i", "-n"];
    let shell = ["/bin/sh", "-c", &helper.script, "rke-operator"];
    let command = enter
        .into_iter()
        .chain(shell)
        .chain(helper.arguments.iter().map(String::as_str));
    ContainerCreateBody {
        image: Some(FILES_IMAGE.to_owned()),
        entrypoint: Some(vec!["nsenter".to_owned()]),
        cmd: Some(command.map(str::to_owned).collect()),
        user: Some("0:0".to_owned()),
        host_config: Some(HostConfig {
            binds: Some(vec!["/:/host:ro,rslave".to_owned()]),
            network_mode: Some("host".to_owned()),
            pid_mode: Some("host".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::HOST),
            privileged: Some(true),
            log_config: Some(readable_log()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

/// The program is the last word before the flags: a script in front of it prepares what it runs in,
/// and here there is nothing to run in.
fn trial(spec: &ContainerSpec, cluster_id: &ClusterId) -> ContainerCreateBody {
    let version = "--version".to_owned();
    ContainerCreateBody {
        image: Some(spec.image.clone()),
        entrypoint: Some(spec.entrypoint.last().cloned().into_iter().collect()),
        cmd: Some(spec.command.iter().cloned().chain([version]).collect()),
        labels: Some(create_body::labels(cluster_id, "")),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            log_config: Some(readable_log()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

fn once(program: &Program, cluster_id: &ClusterId) -> ContainerCreateBody {
    let Program {
        image,
        command,
        binds,
        limit: _,
    } = program;
    ContainerCreateBody {
        image: Some(image.clone()),
        entrypoint: Some(command.first().cloned().into_iter().collect()),
        cmd: Some(command.iter().skip(1).cloned().collect()),
        user: Some("0:0".to_owned()),
        labels: Some(create_body::labels(cluster_id, "")),
        host_config: Some(HostConfig {
            binds: Some(binds.clone()),
            network_mode: Some("host".to_owned()),
            // SELinux would keep it from files that are not a container's.
            security_opt: Some(vec!["label=disable".to_owned()]),
            log_config: Some(readable_log()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

/// A helper's log is its answer, whatever the daemon does with the logs of others.
pub(super) fn readable_log() -> HostConfigLogConfig {
    HostConfigLogConfig {
        typ: Some("json-file".to_owned()),
        config: Some(HashMap::from([
            ("max-size".to_owned(), "1m".to_owned()),
            ("max-file".to_owned(), "1".to_owned()),
        ])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Owner;

    /// The program itself, without the script in front of it, and without anything of the node.
    #[test]
    fn a_program_is_tried_alone() {
        let spec = ContainerSpec {
            image: "kubernetes:2".to_owned(),
            entrypoint: ["bash", "-c", "enter the node", "kubelet"]
                .map(str::to_owned)
                .to_vec(),
            command: vec!["--gone=1".to_owned()],
            bootstrap_args: Vec::new(),
            env: Vec::new(),
            binds: vec!["/:/host:rw".to_owned().try_into().unwrap()],
            mounts: Vec::new(),
            user: Owner::ROOT,
            privileged: true,
            host_pid: true,
            host_cgroupns: true,
            security_opts: Vec::new(),
            tmpfs: Vec::new(),
            cap_drop: Vec::new(),
            log_limit: None,
            files: [].into(),
            certificates: [].into(),
        };
        let body = trial(&spec, &ClusterId("1".repeat(32)));
        assert_eq!(body.entrypoint.unwrap(), ["kubelet"]);
        assert_eq!(body.cmd.unwrap(), ["--gone=1", "--version"]);
        let host = body.host_config.unwrap();
        assert_eq!(host.network_mode.as_deref(), Some("none"));
        assert_eq!(
            (host.binds, host.privileged, host.pid_mode),
            (None, None, None)
        );
    }

    /// R32: its answer is its log, so its log must not be the daemon's choice (`none`, syslog).
    #[test]
    fn the_log_of_a_helper_is_readable_whatever_the_daemon_does_with_logs() {
        let helper = HelperContainer {
            script: "true".to_owned(),
            arguments: Vec::new(),
            limit: Duration::from_secs(1),
        };
        let body = body(&helper, &ClusterId("1".repeat(32)));
        let log = body.host_config.unwrap().log_config.unwrap();
        assert_eq!(log.typ.as_deref(), Some("json-file"));
    }
}

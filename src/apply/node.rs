//! Effects on one node: through its Docker, and as root through one-off jobs whose scripts lie
//! beside this file in `node/`. Jobs run the node's own programs in the node's own namespaces;
//! the container that carries them is made from our empty image, so they need no registry.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
    time::Duration,
};

use super::{
    act::{ActError, Effects, bug, failed, until},
    health,
    run::{Done, Reporter, StepError},
    stop::Stop,
};
use crate::{
    actual::{Before, ContainerState},
    desired::{
        self, CLAIM_DIRS, ClusterId, ContainerSpec, ContainerdWants, Desired, KernelWants,
        SWITCH_UNIT, label, path,
    },
    error::Blame,
    host::{ClaimOutcome, Host, Job, JobOutput, NewFile},
    plan::{Component, FileRef},
    secret::Secret,
    state::Saved,
};

const KERNEL: &str = include_str!("node/kernel.sh");
const CLEAN: &str = include_str!("node/clean.sh");
const CONTAINERD: &str = include_str!("node/containerd.sh");

/// How long a component may take to end by itself.
const GRACE: Duration = Duration::from_secs(10);
/// Where the containerd transaction leaves its verdict, readable for everyone.
const VERDICT: &str = "/run/rke-operator-containerd.result";
/// The script of the containerd transaction while it runs.
const SWITCH: &str = "/etc/containerd/rke-operator-switch.sh";
/// The pause image on its way from Docker to containerd.
const PAUSE_TAR: &str = "/etc/containerd/rke-operator-pause.tar";

pub(super) async fn claim(
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

pub(super) async fn pull(
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

pub(super) async fn write_files(
    host: &Host,
    desired: &Desired,
    dirs: &BTreeMap<String, u32>,
    refs: &BTreeMap<String, FileRef>,
) -> Result<Done, StepError> {
    let wanted = desired
        .hosts
        .get(&host.name)
        .ok_or_else(|| bug("files for a host that is not desired"))?;
    let mut files = BTreeMap::new();
    for (file, FileRef { digest, mode }) in refs {
        let found = wanted
            .files
            .get(file)
            .filter(|found| found.digest == *digest)
            .ok_or_else(|| bug("a file of the plan is not in the desired world"))?;
        let content = &found.content;
        files.insert(
            file.as_str(),
            NewFile {
                mode: *mode,
                content,
            },
        );
    }
    host.write_files(dirs, &files).await.map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn remove_files(
    host: &Host,
    id: &ClusterId,
    paths: &BTreeSet<String>,
) -> Result<Done, StepError> {
    let words = paths
        .iter()
        .map(|path| quoted(path))
        .collect::<Vec<_>>()
        .join(" ");
    job(
        host,
        id,
        &format!("rm -f -- {words}"),
        Duration::from_secs(60),
    )
    .await?;
    Ok(Done::default())
}

pub(super) async fn prepare_kernel(
    host: &Host,
    id: &ClusterId,
    wants: &KernelWants,
) -> Result<Done, StepError> {
    let KernelWants { modules, sysctls } = wants;
    let modules = modules.iter().cloned().collect::<Vec<_>>().join(" ");
    let script = with_lists(
        KERNEL,
        &[("MODULES", &modules), ("SYSCTLS", &settings(sysctls))],
    );
    let output = run_job(host, id, &script, Duration::from_secs(60)).await?;
    if output.status == 0 {
        return Ok(Done::default());
    }
    Err(node_error(
        host,
        &format!("the kernel cannot be prepared: {}", output.log.trim()),
        &[
            "load the module on the node once (`modprobe br_netfilter`) or install the kernel's module package",
        ],
    ))
}

pub(super) async fn configure_containerd(
    host: &Host,
    id: &ClusterId,
    dump: &str,
    wants: &ContainerdWants,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let config = desired::containerd::containerd_config(dump, wants).map_err(failed)?;
    let new = format!("{}.new", path::CONTAINERD_CONFIG);
    put(
        host,
        &[
            (&new, config.into_bytes()),
            (SWITCH, CONTAINERD.as_bytes().to_vec()),
        ],
    )
    .await?;
    switch_containerd(host, id, "configure", reporter, stop).await
}

pub(super) async fn restore_containerd(
    host: &Host,
    id: &ClusterId,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    put(host, &[(SWITCH, CONTAINERD.as_bytes().to_vec())]).await?;
    switch_containerd(host, id, "restore", reporter, stop).await
}

/// Hands the transaction to systemd and reads its verdict over SSH: Docker may be away
/// meanwhile. Started twice, the second start waits for the first to end: cut off in the middle,
/// it could not switch back any more.
async fn switch_containerd(
    host: &Host,
    id: &ClusterId,
    verb: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let start = format!(
        "while systemctl is-active --quiet {SWITCH_UNIT}; do sleep 0.2; done; \
         rm -f {VERDICT}; systemctl reset-failed {SWITCH_UNIT} 2>/dev/null; \
         exec systemd-run --no-block --collect --quiet --unit={SWITCH_UNIT} \
         /bin/sh -c 'sh {SWITCH} {verb}; status=$?; rm -f {SWITCH}; exit $status'"
    );
    job(host, id, &start, Duration::from_secs(60)).await?;
    let every = Duration::from_millis(250);
    let verdict = until(
        "containerd's restart",
        every,
        reporter,
        stop,
        |_| async move {
            let read = host
                .exec(&format!("cat {VERDICT}"), Duration::from_secs(10))
                .await;
            let output = read.map_err(failed)?;
            let verdict = output.stdout.trim().to_owned();
            let there = output.status == 0 && !verdict.is_empty();
            Ok(if there {
                Ok(verdict)
            } else {
                Err("no verdict yet".to_owned())
            })
        },
    )
    .await?;
    match verdict.strip_prefix("failed: ") {
        None => Ok(Done::default()),
        Some(why) => Err(node_error(
            host,
            why,
            &[
                "look at it on the node: `journalctl -u containerd`; the file that was tried was derived from `containerd config dump`",
            ],
        )),
    }
}

pub(super) async fn import_pause(
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
        quoted(image)
    );
    job(host, id, &script, Duration::from_secs(60)).await?;
    Ok(Done::default())
}

pub(super) async fn run_container(
    host: &Host,
    name: &str,
    spec: &ContainerSpec,
    saved: &Saved,
) -> Result<Done, StepError> {
    host.run_container(name, spec, &saved.cluster_id, &saved.cluster_name)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn start_container(host: &Host, name: &str) -> Result<Done, StepError> {
    host.start(name).await.map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn remove_container(host: &Host, name: &str) -> Result<Done, StepError> {
    host.remove(name, Some(GRACE)).await.map_err(failed)?;
    Ok(Done::default())
}

/// Asks the component itself, every 100 ms; now and then also Docker whether it keeps exiting,
/// so that a wrong flag is an error with its log and not a timeout.
pub(super) async fn await_healthy(
    run: &Effects<'_>,
    host: &Host,
    component: Component,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    const LOOK_AT_DOCKER: u64 = 75;
    let name = component.container();
    let first = OnceLock::new();
    let first = &first;
    until(
        name,
        Duration::from_millis(100),
        reporter,
        stop,
        |tries| async move {
            let Err(why) = health::probe(run, host, component).await? else {
                return Ok(Ok(()));
            };
            if tries % LOOK_AT_DOCKER == LOOK_AT_DOCKER - 1
                && let Some((state, restarts)) = host.restarts(name).await.map_err(failed)?
                && let Some(code) = keeps_exiting(&state, restarts, *first.get_or_init(|| restarts))
            {
                return Err(exits(host, name, code).await);
            }
            Ok(Err(why))
        },
    )
    .await?;
    Ok(Done::default())
}

/// The code of a component that exits again and again, and did so since the wait's first look. What it
/// did before may have had another's cause: without an API server its clients exit, and Docker
/// takes its time to start them again.
const fn keeps_exiting(state: &ContainerState, restarts: i64, first: i64) -> Option<i64> {
    match state {
        ContainerState::Restarting(code) | ContainerState::Exited(code)
            if restarts >= 3 && restarts > first =>
        {
            Some(*code)
        }
        ContainerState::Restarting(_)
        | ContainerState::Exited(_)
        | ContainerState::Created
        | ContainerState::Running
        | ContainerState::Other => None,
    }
}

async fn exits(host: &Host, name: &str, code: i64) -> StepError {
    let log = host.log_tail(name, 4).await.unwrap_or_default();
    let message = format!(
        "`{name}` keeps exiting with {code}; its last words: {}",
        log.trim()
    );
    node_error(
        host,
        &message,
        &["a flag in `extra_args` may be unknown to this version"],
    )
}

pub(super) async fn clean(host: &Host, id: &ClusterId, before: &Before) -> Result<Done, StepError> {
    let Before {
        paths,
        sysctls,
        modules: _,
        images: _,
    } = before;
    let paths = paths.iter().cloned().collect::<Vec<_>>().join(" ");
    let script = with_lists(CLEAN, &[("SYSCTLS", &settings(sysctls))])
        .replace("' BEFORE '", &quoted(&format!(" {paths} ")));
    let output = run_job(host, id, &script, Duration::from_secs(240)).await?;
    if output.status == 0 {
        return Ok(Done::default());
    }
    Err(node_error(
        host,
        &format!("the node is not clean yet: {}", output.log.trim()),
        &[
            "run `remove` again; a file system that is still in use by somebody else's process keeps its folder",
        ],
    ))
}

pub(super) async fn remove_images(
    host: &Host,
    images: &BTreeSet<String>,
) -> Result<Done, StepError> {
    for image in images {
        host.remove_image(image).await.map_err(failed)?;
    }
    Ok(Done::default())
}

/// What reading through the claim and restarting containerd left goes first: Docker makes the
/// folders that the claim binds whenever files are read through it.
pub(super) async fn release_claim(host: &Host, id: &ClusterId) -> Result<Done, StepError> {
    if let Some(claim) = host.container(desired::CLAIM).await.map_err(failed)? {
        let before: Before = claim
            .labels
            .get(label::BEFORE)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let made = CLAIM_DIRS
            .iter()
            .filter(|(dir, _)| !before.paths.contains(*dir))
            .map(|(dir, _)| quoted(dir))
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

/// Puts files for a job beside containerd's own, root's alone.
async fn put(host: &Host, files: &[(&str, Vec<u8>)]) -> Result<(), StepError> {
    let contents: Vec<(&str, Secret<Vec<u8>>)> = files
        .iter()
        .map(|(path, bytes)| (*path, bytes.clone().into()))
        .collect();
    let files = contents
        .iter()
        .map(|(path, content)| {
            (
                *path,
                NewFile {
                    mode: 0o600,
                    content,
                },
            )
        })
        .collect();
    let dirs = BTreeMap::from([("/etc/containerd".to_owned(), 0o755)]);
    host.write_files(&dirs, &files).await.map_err(failed)
}

/// Runs a script as root on the node; a status other than 0 is an error with its output.
async fn job(host: &Host, id: &ClusterId, script: &str, limit: Duration) -> Result<(), StepError> {
    let output = run_job(host, id, script, limit).await?;
    if output.status == 0 {
        return Ok(());
    }
    let message = format!("a job exited with {}: {}", output.status, output.log.trim());
    Err(node_error(host, &message, &[]))
}

async fn run_job(
    host: &Host,
    id: &ClusterId,
    script: &str,
    limit: Duration,
) -> Result<JobOutput, StepError> {
    host.run_job(
        &Job {
            script: script.to_owned(),
            limit,
        },
        id,
    )
    .await
    .map_err(failed)
}

fn node_error(host: &Host, what: &str, hints: &[&str]) -> StepError {
    failed(ActError::Node {
        message: format!("node `{}`: {what}", host.name),
        hints: hints.iter().map(|hint| (*hint).to_owned()).collect(),
        blame: Blame::Host,
    })
}

/// Fills the lists in capitals of a script in. Their words are ours, or quoted.
fn with_lists(script: &str, lists: &[(&str, &str)]) -> String {
    lists
        .iter()
        .fold(script.to_owned(), |script, (name, words)| {
            script.replace(&format!("in {name};"), &format!("in {words};"))
        })
}

fn settings(sysctls: &BTreeMap<String, String>) -> String {
    sysctls
        .iter()
        .filter(|(name, value)| {
            !name.contains(char::is_whitespace) && !value.contains(char::is_whitespace)
        })
        .map(|(name, value)| quoted(&format!("{name}={value}")))
        .collect::<Vec<_>>()
        .join(" ")
}

/// One word for `sh`.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::{ContainerState, keeps_exiting};

    #[test]
    fn only_exits_since_the_first_look_count() {
        let waiting = ContainerState::Restarting(1);
        assert_eq!(
            keeps_exiting(&waiting, 7, 7),
            None,
            "the API server was away"
        );
        assert_eq!(keeps_exiting(&waiting, 8, 7), Some(1));
        assert_eq!(keeps_exiting(&waiting, 2, 0), None, "it may come up yet");
        assert_eq!(keeps_exiting(&ContainerState::Running, 9, 7), None);
        assert_eq!(keeps_exiting(&ContainerState::Exited(2), 9, 7), Some(2));
    }
}

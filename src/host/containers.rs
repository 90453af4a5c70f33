//! Containers of the node's Docker.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use bollard::{
    models::{
        ContainerCreateBody, ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary,
        ContainerSummaryStateEnum, ContainerUpdateBody, HostConfig, RestartPolicy,
        RestartPolicyNameEnum,
    },
    query_parameters::{
        CreateContainerOptionsBuilder, InspectContainerOptions, KillContainerOptionsBuilder,
        ListContainersOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder,
        RenameContainerOptionsBuilder, StartContainerOptions, StopContainerOptionsBuilder,
    },
};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::{SignedDuration, Timestamp};

use super::{NewFile, Stamp, create_body, error::HostError, files, machine::Host};
use crate::{
    facts::{ContainerFact, ContainerState},
    model::{CLAIM, ContainerSpec, FILES_IMAGE, Owner, Secret, label, printable},
};

/// How much of a log is kept, from its end.
const LOG_LIMIT: usize = 256 << 10;

/// With more containers than this a machine is no node, and with more of clusters than this it lies: each of them is
/// asked about.
const CONTAINERS: usize = 10_000;
pub(super) const OURS: usize = 100;

/// How many containers are inspected at once.
const WIDTH: usize = 16;

/// How often, and after which pause, a container that someone else makes is looked for.
const HOLDER_TRIES: u32 = 20;
const HOLDER_PAUSE: Duration = Duration::from_millis(250);

/// How long a removal that someone else began may take.
const GONE: Duration = Duration::from_secs(60);

/// What came of claiming a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// It is ours now.
    Created,
    /// Someone was here before: another cluster, or ourselves in an earlier run.
    Held {
        /// The labels of the claim that is there.
        by: BTreeMap<String, String>,
    },
}

impl Host {
    /// Every container, by name. Those with a cluster id are inspected; the exit code of the others is unknown and
    /// given as 0.
    pub async fn containers(&self) -> Result<BTreeMap<String, ContainerFact>, HostError> {
        let listed = self.listed().await?;
        self.inspected_all(listed).await
    }

    /// Every container as the list has it.
    pub async fn listed(&self) -> Result<BTreeMap<String, ContainerFact>, HostError> {
        let options = ListContainersOptionsBuilder::new().all(true).build();
        let list = self.docker().list_containers(Some(options)).await;
        let list = self.done("list containers", list).await?;
        self.at_most(CONTAINERS, list.len(), "containers")?;
        let ours = |one: &&ContainerSummary| {
            let labels = one.labels.as_ref();
            labels.is_some_and(|labels| labels.contains_key(label::CLUSTER_ID))
        };
        self.at_most(
            OURS,
            list.iter().filter(ours).count(),
            "containers of clusters",
        )?;
        Ok(list.into_iter().filter_map(listed).collect())
    }

    /// The same, with what only an inspection shows for those with a cluster id. Inspects them concurrently.
    pub async fn inspected_all(
        &self,
        listed: BTreeMap<String, ContainerFact>,
    ) -> Result<BTreeMap<String, ContainerFact>, HostError> {
        let inspected = listed.into_iter().map(|(name, mut fact)| async move {
            let ours = fact.labels.contains_key(label::CLUSTER_ID);
            if ours && name != CLAIM {
                // By id: another container may have the name by now.
                match self.inspected(&fact.id).await? {
                    Some(details) => learn(&mut fact, &details),
                    None => return Ok(None),
                }
            }
            Ok::<_, HostError>(Some((name, fact)))
        });
        let inspected: Vec<_> = inspected.collect();
        let facts = stream::iter(inspected).buffer_unordered(WIDTH);
        let facts: Vec<_> = facts.try_collect().await?;
        Ok(facts.into_iter().flatten().collect())
    }

    /// One container, whosoever it is.
    pub async fn container(&self, name: &str) -> Result<Option<ContainerFact>, HostError> {
        Ok(self.inspected(name).await?.map(|details| {
            let mut fact = ContainerFact {
                id: details.id.clone().unwrap_or_default(),
                labels: BTreeMap::new(),
                state: ContainerState::Other,
                runs: None,
                image: String::new(),
                started: None,
            };
            learn(&mut fact, &details);
            fact
        }))
    }

    /// A container's state and how often Docker restarted it; `None` when it is gone.
    pub async fn restarts(&self, name: &str) -> Result<Option<(ContainerState, i64)>, HostError> {
        Ok(self.inspected(name).await?.map(|details| {
            let restarts = details.restart_count.unwrap_or_default();
            (state(&details).unwrap_or(ContainerState::Other), restarts)
        }))
    }

    /// How long a container has run, by the node's clock; `None` where that is not known.
    pub async fn age(&self, name: &str) -> Result<Option<SignedDuration>, HostError> {
        let info = self.docker().info().await;
        let info = self.done("look at Docker", info).await?;
        let now: Option<Timestamp> = info.system_time.and_then(|time| time.parse().ok());
        let details = self.inspected(name).await?;
        let started = details.as_ref().and_then(started);
        Ok(now.zip(started).map(|(now, at)| now.duration_since(at)))
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
                Ok(output) => bytes.extend_from_slice(&output.into_bytes()),
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

    /// Claims the node: creates the container whose fixed name is the lock. Its image must be
    /// there ([`Host::import_empty_image`]). It is never started.
    pub async fn create_claim(
        &self,
        labels: BTreeMap<String, String>,
    ) -> Result<ClaimOutcome, HostError> {
        let body = ContainerCreateBody {
            image: Some(FILES_IMAGE.to_owned()),
            cmd: Some(vec!["never-started".to_owned()]),
            labels: Some(labels.into_iter().collect()),
            host_config: Some(HostConfig {
                binds: Some(files::claim_binds()),
                network_mode: Some("none".to_owned()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        match self.create(CLAIM, body).await {
            Ok(()) => Ok(ClaimOutcome::Created),
            Err(HostError::NameTaken { by, .. }) => Ok(ClaimOutcome::Held { by }),
            Err(error) => Err(error),
        }
    }

    /// Creates and starts a component. A container that already exists with exactly this definition is success: an
    /// earlier run may have been killed after it sent its request, and Docker may have executed that request after this
    /// run's survey.
    pub async fn run_container(
        &self,
        name: &str,
        spec: &ContainerSpec,
        stamp: &Stamp<'_>,
    ) -> Result<(), HostError> {
        self.create_component(name, spec, stamp).await?;
        self.start(name).await
    }

    /// Creates a component and does not start it, with success as above.
    pub async fn create_component(
        &self,
        name: &str,
        spec: &ContainerSpec,
        stamp: &Stamp<'_>,
    ) -> Result<(), HostError> {
        let body = create_body::component(spec, stamp).map_err(|error| self.unwritable(error))?;
        let labels = body.labels.clone().unwrap_or_default();
        match self.create(name, body).await {
            // Labels of the image are on a container as well.
            Err(HostError::NameTaken { by, .. })
                if labels.iter().all(|(key, value)| by.get(key) == Some(value)) => {}
            created => created?,
        }
        Ok(())
    }

    /// Puts a program into a container, for everybody to run.
    pub async fn put_program(
        &self,
        name: &str,
        path: &str,
        program: Vec<u8>,
    ) -> Result<(), HostError> {
        let new = NewFile {
            mode: 0o755,
            owner: Owner::ROOT,
            content: &Secret::new(program),
        };
        let files = BTreeMap::from([(path, new)]);
        self.put(name, "", &BTreeMap::new(), &files).await
    }

    /// Starts a container; one that runs is success.
    pub async fn start(&self, name: &str) -> Result<(), HostError> {
        let started = self
            .docker()
            .start_container(name, None::<StartContainerOptions>)
            .await;
        self.done(format!("start container `{name}`"), started)
            .await
    }

    /// Sends a signal to a container that runs.
    pub async fn signal(&self, name: &str, signal: &str) -> Result<(), HostError> {
        let options = KillContainerOptionsBuilder::new().signal(signal).build();
        let sent = self.docker().kill_container(name, Some(options)).await;
        self.done(format!("send {signal} to container `{name}`"), sent)
            .await
    }

    /// Stops a container: SIGTERM, then SIGKILL after `grace`. A container that is not running is success.
    pub async fn stop(&self, name: &str, grace: Duration) -> Result<(), HostError> {
        let seconds = i32::try_from(grace.as_secs().min(60)).unwrap_or(60);
        let options = StopContainerOptionsBuilder::new().t(seconds).build();
        let stopped = self.docker().stop_container(name, Some(options)).await;
        self.done(format!("stop container `{name}`"), stopped).await
    }

    /// Whether Docker starts a container again when it exits, and with the machine.
    pub async fn set_restarts(&self, name: &str, restarts: bool) -> Result<(), HostError> {
        let policy = if restarts {
            RestartPolicyNameEnum::ALWAYS
        } else {
            RestartPolicyNameEnum::NO
        };
        let body = ContainerUpdateBody {
            restart_policy: Some(RestartPolicy {
                name: Some(policy),
                maximum_retry_count: None,
            }),
            ..ContainerUpdateBody::default()
        };
        let updated = self.docker().update_container(name, body).await;
        let doing = format!("set the restart policy of container `{name}`");
        self.done(doing, updated).await
    }

    /// Gives a container another name, which must be free.
    pub async fn rename(&self, name: &str, to: &str) -> Result<(), HostError> {
        let options = RenameContainerOptionsBuilder::new().name(to).build();
        let renamed = self.docker().rename_container(name, options).await;
        let doing = format!("rename container `{name}` to `{to}`");
        self.done(doing, renamed).await
    }

    /// Removes a container and its anonymous volumes; gone is success. With `grace` it is asked
    /// to end first and killed after that time; without, it is killed at once.
    pub async fn remove(&self, name: &str, grace: Option<Duration>) -> Result<(), HostError> {
        if let Some(grace) = grace {
            match self.stop(name, grace).await {
                Err(error) if error.docker_status() == Some(404) => return Ok(()),
                // A container that cannot be stopped can still be removed by force.
                Ok(()) | Err(HostError::Docker { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let options = RemoveContainerOptionsBuilder::new()
            .force(true)
            .v(true)
            .build();
        let removed = self.docker().remove_container(name, Some(options)).await;
        let removed = self
            .done(format!("remove container `{name}`"), removed)
            .await;
        match removed {
            Err(error) if error.docker_status() == Some(404) => Ok(()),
            // Someone is removing it already.
            Err(error) if error.docker_status() == Some(409) => self.gone(name, error).await,
            removed => removed,
        }
    }

    async fn gone(&self, name: &str, error: HostError) -> Result<(), HostError> {
        let waited = tokio::time::timeout(GONE, async {
            let mut pause = Duration::from_millis(100);
            while self.inspected(name).await?.is_some() {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            Ok(())
        });
        waited.await.unwrap_or(Err(error))
    }

    /// Creates a container; a name that is taken is [`HostError::NameTaken`] with its labels.
    pub(super) async fn create(
        &self,
        name: &str,
        body: ContainerCreateBody,
    ) -> Result<(), HostError> {
        let image = body.image.clone().unwrap_or_default();
        let options = CreateContainerOptionsBuilder::new().name(name).build();
        let created = self.docker().create_container(Some(options), body).await;
        let created = self
            .done(format!("create container `{name}`"), created)
            .await;
        match created {
            Ok(_) => Ok(()),
            Err(error) if error.docker_status() == Some(404) => Err(HostError::ImageMissing {
                at: self.session.place(),
                image,
            }),
            Err(error) if error.docker_status() == Some(409) => {
                let by = Box::pin(self.holder(name)).await?;
                Err(by.map_or(error, |fact| HostError::NameTaken {
                    at: self.session.place(),
                    name: name.to_owned(),
                    by: fact.labels,
                }))
            }
            Err(error) => Err(error),
        }
    }

    /// The container that has a name. While Docker makes it the name is taken, and nothing is
    /// there to look at yet.
    async fn holder(&self, name: &str) -> Result<Option<ContainerFact>, HostError> {
        for _ in 0..HOLDER_TRIES {
            let fact = self.container(name).await?;
            if fact.is_some() {
                return Ok(fact);
            }
            tokio::time::sleep(HOLDER_PAUSE).await;
        }
        Ok(None)
    }

    pub(super) async fn inspected(
        &self,
        name: &str,
    ) -> Result<Option<ContainerInspectResponse>, HostError> {
        let details = self
            .docker()
            .inspect_container(name, None::<InspectContainerOptions>)
            .await;
        let details = self
            .done(format!("inspect container `{name}`"), details)
            .await;
        match details {
            Ok(details) => Ok(Some(details)),
            Err(error) if error.docker_status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn unwritable(&self, error: serde_json::Error) -> HostError {
        HostError::Archive {
            at: self.session.place(),
            source: error.into(),
        }
    }
}

pub(super) fn listed(summary: ContainerSummary) -> Option<(String, ContainerFact)> {
    let name = summary.names?.into_iter().next()?;
    let state = match summary.state? {
        ContainerSummaryStateEnum::CREATED => ContainerState::Created,
        ContainerSummaryStateEnum::RUNNING => ContainerState::Running,
        ContainerSummaryStateEnum::RESTARTING => ContainerState::Restarting(0),
        ContainerSummaryStateEnum::EXITED => ContainerState::Exited(0),
        ContainerSummaryStateEnum::EMPTY
        | ContainerSummaryStateEnum::PAUSED
        | ContainerSummaryStateEnum::REMOVING
        | ContainerSummaryStateEnum::DEAD
        | ContainerSummaryStateEnum::STOPPING => ContainerState::Other,
    };
    let fact = ContainerFact {
        id: summary.id?,
        labels: shown(summary.labels.unwrap_or_default()),
        state,
        runs: None,
        image: printable(&summary.image.unwrap_or_default()).into_owned(),
        started: None,
    };
    Some((printable(name.trim_start_matches('/')).into_owned(), fact))
}

/// Labels in a form that may be shown: any owner of a container chooses its labels. Those with JSON stay as they are,
/// because they are parsed and not shown, and JSON escapes control characters itself.
fn shown(labels: HashMap<String, String>) -> BTreeMap<String, String> {
    let labels = labels.into_iter().map(|(key, value)| {
        let value = if value.starts_with('{') {
            value
        } else {
            printable(&value).into_owned()
        };
        (printable(&key).into_owned(), value)
    });
    labels.collect()
}

fn state(details: &ContainerInspectResponse) -> Option<ContainerState> {
    let state = details.state.as_ref()?;
    let code = state.exit_code.unwrap_or_default();
    Some(match state.status? {
        ContainerStateStatusEnum::CREATED => ContainerState::Created,
        ContainerStateStatusEnum::RUNNING => ContainerState::Running,
        ContainerStateStatusEnum::RESTARTING => ContainerState::Restarting(code),
        ContainerStateStatusEnum::EXITED => ContainerState::Exited(code),
        ContainerStateStatusEnum::EMPTY
        | ContainerStateStatusEnum::PAUSED
        | ContainerStateStatusEnum::REMOVING
        | ContainerStateStatusEnum::DEAD
        | ContainerStateStatusEnum::STOPPING => ContainerState::Other,
    })
}

/// Docker says the year 1 of one that never started.
fn started(details: &ContainerInspectResponse) -> Option<Timestamp> {
    let started: Timestamp = details.state.as_ref()?.started_at.as_ref()?.parse().ok()?;
    (started > Timestamp::UNIX_EPOCH).then_some(started)
}

fn learn(fact: &mut ContainerFact, details: &ContainerInspectResponse) {
    fact.state = state(details).unwrap_or(ContainerState::Other);
    fact.started = started(details).map(Timestamp::as_second);
    if let Some(config) = &details.config {
        let labels: HashMap<_, _> = config.labels.clone().unwrap_or_default();
        fact.labels = shown(labels);
        fact.image = printable(&config.image.clone().unwrap_or_default()).into_owned();
        if let Some(host) = &details.host_config
            && fact.labels.contains_key(label::CLUSTER_ID)
        {
            fact.runs = create_body::runs(config, host);
        }
    }
}

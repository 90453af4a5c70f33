//! The components' containers, and their health.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use jiff::SignedDuration;

use super::{
    helper::{helper, node_error, run_helper},
    member::has_its_data,
    program,
};
use crate::{
    apply::{
        executor::{Executor, ExecutorError, failed, until},
        step::{Done, Reporter, StepError},
        stop::Stop,
    },
    error::ErrorClass,
    facts::{ContainerFact, ContainerState},
    host::{Host, Stamp},
    model::{ClusterId, Component, ContainerSpec, LOG_CAUSE_LINES, log_cause, names_a_flag, path},
    state::ClusterState,
    workload::Probe,
};

/// How long a component may take to exit on request, before Docker kills it.
const GRACE: Duration = Duration::from_secs(10);
/// Of a program whose log is empty.
const NOTHING_SAID: &str = "its log is empty";
const OWN: &str = include_str!("own.sh");
/// How long it may take to give away every file of etcd's, which are some dozens.
const OWNS: Duration = Duration::from_secs(60);
/// How long a program may take to read its flags and to say its version.
const TRIAL: Duration = Duration::from_secs(20);

/// Whose the containers of a state's cluster are.
pub(in crate::apply) fn stamp(saved: &ClusterState) -> Stamp<'_> {
    Stamp {
        id: &saved.cluster_id,
        name: &saved.cluster_name,
        epoch: saved.epoch(),
    }
}

pub(in crate::apply) async fn run_container(
    run: &Executor<'_>,
    host: &Host,
    component: Component,
    spec: &ContainerSpec,
) -> Result<Done, StepError> {
    let saved = run.context.saved()?;
    owned(host, component, spec, &saved.cluster_id).await?;
    let name = component.container();
    let created = host.create_component(name, spec, &stamp(saved)).await;
    created.map_err(failed)?;
    start_container(run, host, component).await
}

/// One that is not there. A member of an etcd that has held a cluster starts only with its data.
pub(in crate::apply) async fn run_missing(
    run: &Executor<'_>,
    host: &Host,
    component: Component,
    spec: &ContainerSpec,
) -> Result<Done, StepError> {
    let saved = run.context.saved()?;
    if component == Component::Etcd && saved.memory.populated {
        has_its_data(run, host).await?;
    }
    run_container(run, host, component, spec).await
}

/// Changes the owner of etcd's data to the user that etcd will run as: it may have run as another. For other
/// components there is nothing to change.
async fn owned(
    host: &Host,
    component: Component,
    spec: &ContainerSpec,
    id: &ClusterId,
) -> Result<(), StepError> {
    if component != Component::Etcd || spec.user.is_root() {
        return Ok(());
    }
    let arguments = [path::ETCD.to_owned(), spec.user.to_string()];
    helper(host, id, OWN, &arguments, OWNS).await
}

/// What it says of a flag that it does not know is the error.
pub(in crate::apply) async fn try_flags(
    host: &Host,
    specs: &BTreeMap<Component, ContainerSpec>,
    id: &ClusterId,
) -> Result<Done, StepError> {
    for (component, spec) in specs {
        try_program(host, *component, spec, id).await?;
    }
    Ok(Done::default())
}

async fn try_program(
    host: &Host,
    component: Component,
    spec: &ContainerSpec,
    id: &ClusterId,
) -> Result<(), StepError> {
    let output = host.try_program(spec, TRIAL, id).await.map_err(failed)?;
    if output.status == 0 {
        return Ok(());
    }
    let message = format!(
        "node `{}`: `{component}` of {} does not start with its flags: {}",
        host.name,
        spec.image,
        log_cause(&output.log).unwrap_or_else(|| NOTHING_SAID.to_owned())
    );
    Err(failed(ExecutorError::Node {
        message,
        hints: vec![
            "nothing that runs was replaced".to_owned(),
            "correct the component's `extra_args` in the config: this release may not know a flag \
             that an earlier one had"
                .to_owned(),
        ],
        class: ErrorClass::User,
    }))
}

pub(in crate::apply) async fn start_container(
    run: &Executor<'_>,
    host: &Host,
    component: Component,
) -> Result<Done, StepError> {
    let id = run.context.id()?;
    if component == Component::Snapshots {
        program::put(run, host).await?;
    }
    match host.start(component.container()).await {
        Ok(()) => Ok(Done::default()),
        Err(source) if component == Component::Etcd && source.docker_status().is_some() => {
            let without_data = Box::pin(lacks_its_data(host, id)).await;
            Err(failed(ExecutorError::Etcd {
                source,
                without_data,
            }))
        }
        Err(error) => Err(failed(error)),
    }
}

/// One that is there. A run that was cut off may have told Docker to leave it stopped.
pub(in crate::apply) async fn start_again(
    run: &Executor<'_>,
    host: &Host,
    component: Component,
) -> Result<Done, StepError> {
    let seen = run.facts(host)?.container(component);
    if seen.is_some_and(ContainerFact::is_set_aside) {
        let restarts = host.set_restarts(component.container(), true).await;
        restarts.map_err(failed)?;
    }
    start_container(run, host, component).await
}

/// Stops the container of that id and gives it the name of what is kept. It does not start with the machine, and so is
/// stopped before it has another name: no two containers of a component run.
pub(in crate::apply) async fn keep_container(
    host: &Host,
    id: &str,
    component: Component,
) -> Result<Done, StepError> {
    let name = component.kept();
    if host.container(name).await.map_err(failed)?.is_some() {
        // The former one goes on until another look has seen why.
        let why = format!("container `{name}` is on node `{}` by now", host.name);
        return Err(StepError::Guard(why));
    }
    host.set_restarts(id, false).await.map_err(failed)?;
    host.stop(id, GRACE).await.map_err(failed)?;
    host.rename(id, name).await.map_err(failed)?;
    Ok(Done::default())
}

/// Removes what has failed, and starts what was kept in its place.
pub(in crate::apply) async fn put_container_back(
    run: &Executor<'_>,
    host: &Host,
    failed_id: &str,
    component: Component,
) -> Result<Done, StepError> {
    let id = run.context.id()?;
    let Some(kept) = kept(host, id, component).await? else {
        let why = format!(
            "the former container of `{component}` on node `{}` is gone",
            host.name
        );
        return Err(StepError::Guard(why));
    };
    let gone = host.remove(failed_id, Some(GRACE)).await;
    gone.map_err(failed)?;
    if let Some(spec) = kept.applied() {
        owned(host, component, &spec, id).await?;
    }
    let renamed = host.rename(&kept.id, component.container()).await;
    renamed.map_err(failed)?;
    let restarts = host.set_restarts(&kept.id, true).await;
    restarts.map_err(failed)?;
    start_container(run, host, component).await
}

/// Removes what was kept of these components. A container of that name that another owner made stays.
pub(in crate::apply) async fn remove_kept(
    host: &Host,
    id: &ClusterId,
    components: &BTreeSet<Component>,
) -> Result<Done, StepError> {
    for component in components {
        if let Some(kept) = kept(host, id, *component).await? {
            host.remove(&kept.id, Some(GRACE)).await.map_err(failed)?;
        }
    }
    Ok(Done::default())
}

/// What was kept of a component, if it is this cluster's.
async fn kept(
    host: &Host,
    id: &ClusterId,
    component: Component,
) -> Result<Option<ContainerFact>, StepError> {
    let fact = host.container(component.kept()).await.map_err(failed)?;
    Ok(fact.filter(|fact| fact.is_of(id)))
}

/// True where a look at the node says that etcd's data are not there. A look that fails says nothing.
async fn lacks_its_data(host: &Host, id: &ClusterId) -> bool {
    const SCRIPT: &str = "[ -d \"$1/member\" ] && echo there || echo gone";
    let arguments = [path::ETCD];
    let output = run_helper(host, id, SCRIPT, &arguments, OWNS).await;
    output.is_ok_and(|output| output.status == 0 && output.log.trim() == "gone")
}

/// By its id, or its name where that is all that is known.
pub(in crate::apply) async fn remove_container(host: &Host, key: &str) -> Result<Done, StepError> {
    host.remove(key, Some(GRACE)).await.map_err(failed)?;
    Ok(Done::default())
}

/// Asks the component itself, every 100 ms; now and then also Docker whether it keeps exiting, so that
/// a wrong flag is an error with its log and not a timeout. During a long wait the progress shows the cause that its
/// log gives.
pub(in crate::apply) async fn await_healthy(
    run: &Executor<'_>,
    host: &Host,
    component: Component,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    const LOOK_AT_DOCKER: u64 = 75;
    let name = component.container();
    let (first, said) = (&OnceLock::new(), &Mutex::new(None));
    let probe = &Probe::new(component, run.context.engine()?);
    until(
        name,
        Duration::from_millis(100),
        reporter,
        stop,
        |tries| async move {
            // Through the connection that is open then: one that was lost does not end a wait.
            let open = run.hosts.port(&host.name, component.health_port());
            let Err(why) = probe.ask(open).await else {
                return Ok(Ok(()));
            };
            if tries % LOOK_AT_DOCKER == LOOK_AT_DOCKER - 1
                && let Ok(host) = run.host(&host.name).await
            {
                if let Some((state, restarts)) = host.restarts(name).await.map_err(failed)?
                    && let Some(code) =
                        keeps_exiting(&state, restarts, *first.get_or_init(|| restarts))
                {
                    return Err(exits(&host, name, code).await);
                }
                let cause = cause_in_log(&host, name).await;
                *said.lock().unwrap_or_else(PoisonError::into_inner) = cause;
            }
            let said = said.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(Err(match &*said {
                Some(cause) => format!("{why}; its log: {cause}"),
                None => why,
            }))
        },
    )
    .await?;
    Ok(Done::default())
}

/// Asks Docker. A container that does not run has no clients to wait for. A negative age means that the clock was set
/// back: the age is not known. Neither is waited for.
pub(in crate::apply) async fn await_age(
    host: &Host,
    component: Component,
    seconds: u16,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let name = component.container();
    let wanted = SignedDuration::from_secs(seconds.into());
    until(
        name,
        Duration::from_secs(1),
        reporter,
        stop,
        |_| async move {
            let age = host.age(name).await.map_err(failed)?;
            let known = age.filter(|age| !age.is_negative());
            let left = known.map_or(SignedDuration::ZERO, |age| wanted - age);
            if left <= SignedDuration::ZERO {
                return Ok(Ok(()));
            }
            Ok(Err(format!(
                "the retry delay of its clients resets in {} s",
                left.as_secs()
            )))
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

/// The line of a component's log that says why it does not serve.
pub(in crate::apply) async fn cause_in_log(host: &Host, name: &str) -> Option<String> {
    let log = host.log_tail(name, LOG_CAUSE_LINES).await.ok()?;
    log_cause(&log)
}

async fn exits(host: &Host, name: &str, code: i64) -> StepError {
    let cause = cause_in_log(host, name).await;
    let cause = cause.unwrap_or_else(|| NOTHING_SAID.to_owned());
    let message = format!("`{name}` keeps exiting with code {code}: {cause}");
    let log = format!("its whole log: `docker logs {name}` on the node");
    let mut hints = vec![log.as_str()];
    if names_a_flag(&cause) {
        hints.insert(0, "correct the component's `extra_args` in the config");
    }
    node_error(host, &message, &hints)
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

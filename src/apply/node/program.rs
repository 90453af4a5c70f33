//! The program that takes snapshots, and its image: both come with its container, because nothing else waits for them.

use super::images::pull;
use crate::{
    apply::{
        executor::{Executor, ExecutorError, failed},
        step::{Reporter, StepError},
        stop::Stop,
    },
    catalog::is_listed,
    error::ErrorClass,
    host::Host,
    model::{AgentProgram, Component, ContainerSpec},
    plan::has_image,
};

/// Pulls the image of a component that comes with it, where the node lacks it.
pub(in crate::apply) async fn prepare(
    run: &Executor<'_>,
    host: &Host,
    component: Component,
    spec: &ContainerSpec,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<(), StepError> {
    if component != Component::Snapshots || has_image(&spec.image, run.facts(host)?) {
        return Ok(());
    }
    let desired = run.context.desired()?;
    // The run may have loaded it out of a bundle, after the survey.
    if desired.bundle.is_some() {
        let there = host.images().await.map_err(failed)?;
        if is_listed(&spec.image, &there) {
            return Ok(());
        }
    }
    let login = desired.registries.login(&spec.image);
    let pull = pull(host, &spec.image, login, reporter, stop);
    Box::pin(pull).await.map(drop)
}

/// Puts it there. Each start does so again: a run may have been killed between the container's creation and this.
pub(super) async fn put(run: &Executor<'_>, host: &Host) -> Result<(), StepError> {
    let desired = run.context.desired()?;
    // This process has no program for it: the one that is there is started.
    let Some(program) = &desired.agent else {
        return Ok(());
    };
    let bytes = tokio::fs::read(&program.file)
        .await
        .map_err(|error| unreadable(program, &error))?;
    let container = Component::Snapshots.container();
    let put = host.put_program(container, &program.place(), bytes).await;
    put.map_err(failed)
}

fn unreadable(program: &AgentProgram, error: &std::io::Error) -> StepError {
    failed(ExecutorError::Node {
        message: format!(
            "cannot read rke-operator's own program `{}`: {error}",
            program.file.display()
        ),
        hints: vec![
            "nodes with etcd run it to take snapshots; `services.etcd.snapshot: false` does without"
                .to_owned(),
        ],
        class: ErrorClass::Host,
    })
}

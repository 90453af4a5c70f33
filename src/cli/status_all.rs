//! `status -A`: every `Cluster` of the management cluster, one a line. Reads the objects and nothing else.

use super::{
    args::{Output, Status as Args},
    dispatch::DEGRADED,
    management::Management,
    output::{Page, clusters, results::ClusterList},
    print,
    report::CliError,
    session::{STOPPED, Session},
};
use crate::api::observed::ObservedCluster;

/// Runs it.
pub(super) async fn status(args: &Args, session: &Session) -> Result<u8, CliError> {
    let management = Management::open(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let objects = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(STOPPED),
        objects = management.clusters() => objects?,
    };
    let now = now();
    let mut list: Vec<ObservedCluster> = objects
        .iter()
        .map(|object| ObservedCluster::read(object, now))
        .collect();
    list.sort_by(|a, b| a.name.cmp(&b.name));
    let healthy = list.iter().all(ObservedCluster::is_healthy);
    match args.output {
        Output::Json => print::json(&ClusterList { clusters: list })?,
        Output::Text if list.is_empty() => session.screen.print_unless_quiet(
            "there is no Cluster in the management cluster; `kubectl create -f FILE` makes one",
        ),
        Output::Text => {
            print::data(&clusters::render(&list, Page::stdout()))?;
            session.screen.print_unless_quiet(&clusters::sum(&list));
        }
    }
    Ok(if healthy { 0 } else { DEGRADED })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the command line is where the time comes in"
)]
pub(super) fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

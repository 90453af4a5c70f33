//! One level below a wait: the container that keeps exiting, and what it said last.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};

use super::objects::within;
use crate::model::{LOG_CAUSE_LINES, NodeName, log_cause};

/// So often a container has exited since the wait began when that ends the wait: kubelet starts it again
/// after 10, 20 and 40 s.
const RESTARTS: i32 = 3;

/// A container that keeps exiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashLoop {
    namespace: String,
    pod: String,
    container: String,
    restarts: i32,
    exit_code: i32,
}

impl CrashLoop {
    /// The one of these pods that has exited most often.
    pub(super) fn find<'p>(pods: impl IntoIterator<Item = &'p Pod>) -> Option<Self> {
        let all = pods.into_iter().flat_map(crash_loops);
        all.max_by_key(|one| one.restarts)
    }

    /// The cause in the log of the previous run, which is the one that exited; else in the current log.
    async fn cause_in_log(&self, client: &Client) -> Option<String> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let of = |previous| LogParams {
            container: Some(self.container.clone()),
            previous,
            tail_lines: Some(LOG_CAUSE_LINES.into()),
            ..LogParams::default()
        };
        let (previous, current) = (of(true), of(false));
        let logs = [
            within(pods.logs(&self.pod, &previous)),
            within(pods.logs(&self.pod, &current)),
        ];
        let mut said = join_all(logs).await.into_iter().flatten();
        said.find_map(|log| log_cause(&log))
    }
}

fn crash_loops(pod: &Pod) -> Vec<CrashLoop> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let init = status.init_container_statuses.iter().flatten();
    let all = init.chain(status.container_statuses.iter().flatten());
    let exits = all.filter_map(|container| Some((container, exit_code(container)?)));
    let found = exits.map(|(container, exit_code)| CrashLoop {
        namespace: pod.namespace().unwrap_or_default(),
        pod: pod.name_any(),
        container: container.name.clone(),
        restarts: container.restart_count,
        exit_code,
    });
    found.collect()
}

/// How the last run of a container that is not ready ended, if it ended badly.
fn exit_code(container: &ContainerStatus) -> Option<i32> {
    // One that exited once may come up yet.
    if container.ready || container.restart_count == 0 {
        return None;
    }
    let state = container.state.as_ref();
    let now = state.and_then(|state| state.terminated.as_ref());
    let last = container.last_state.as_ref();
    let before = last.and_then(|state| state.terminated.as_ref());
    let ended = now.or(before)?;
    (ended.exit_code != 0).then_some(ended.exit_code)
}

/// The containers that kept exiting since a wait began, and what they said.
#[derive(Default)]
pub struct Crashes {
    first: BTreeMap<String, i32>,
    last: Option<(CrashLoop, String)>,
    over: bool,
}

impl Crashes {
    /// ``container `kube-flannel` of pod `kube-system/kube-flannel-x2x9z` keeps exiting with code 1: …`` Its log is
    /// read once for each time that it exited.
    pub async fn explain(&mut self, client: &Client, found: &CrashLoop) -> String {
        let CrashLoop {
            namespace,
            pod,
            container,
            restarts,
            exit_code,
        } = found;
        let subject = format!("container `{container}` of pod `{namespace}/{pod}`");
        let first = *self.first.entry(subject.clone()).or_insert(*restarts);
        self.over = *restarts >= RESTARTS && restarts - first >= RESTARTS - 1;
        if let Some((known, why)) = &self.last
            && known == found
        {
            return why.clone();
        }
        let cause = found.cause_in_log(client).await;
        let cause = cause.unwrap_or_else(|| "its log cannot be read".to_owned());
        let why = format!("{subject} keeps exiting with code {exit_code}: {cause}");
        self.last = Some((found.clone(), why.clone()));
        why
    }

    /// The last one that was explained has exited so often that nothing is gained by waiting.
    pub const fn is_over(&self) -> bool {
        self.over
    }
}

/// The container on the node that keeps exiting, of the pods without which it cannot be Ready.
pub async fn crash_on_node(client: &Client, node: &NodeName) -> Option<CrashLoop> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = within(pods.list(&of_node)).await.ok()?;
    let daemons = pods.items.iter().filter(|pod| {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.kind == "DaemonSet")
    });
    CrashLoop::find(daemons)
}

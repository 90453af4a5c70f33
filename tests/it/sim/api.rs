//! An API that is not the same for everybody: slow, or silent for some clients, servers and verbs.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use rke_operator::{
    facts::ApiHealth,
    model::{ClusterId, Component, NodeName},
    plan::{Action, ClusterAction, HostAction, Step},
};

use super::{
    Shell, World,
    generate::names,
    world::{Ended, serving},
};

/// What an API server is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `/readyz`.
    Ready,
    /// To get, to list, to watch.
    Read,
    /// To create, to patch, to delete.
    Write,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// There is no complete answer.
    Hangs,
    /// The answer is an error.
    Fails,
    /// The answer comes so much later than what it tells.
    Takes(Duration),
}

/// Requests that are not answered at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiFault {
    /// The server that is asked; `None`: each of them.
    pub(crate) server: Option<NodeName>,
    /// Who asks; `None`: everybody.
    pub(crate) client: Option<&'static str>,
    pub(crate) verb: Verb,
    pub(crate) how: How,
}

/// Any fault of an API server on one of `nodes` nodes, or of all of them, for one of these clients or for all.
pub(crate) fn fault(
    nodes: usize,
    clients: &'static [&'static str],
) -> impl Strategy<Value = ApiFault> {
    let server = prop::option::of(prop::sample::select(names(nodes)));
    let client = prop::option::of(prop::sample::select(clients));
    let verb = prop::sample::select(&[Verb::Ready, Verb::Read, Verb::Write][..]);
    let how = prop_oneof![
        Just(How::Hangs),
        Just(How::Fails),
        (1..60u64).prop_map(|seconds| How::Takes(Duration::from_secs(seconds))),
    ];
    (server, client, verb, how).prop_map(|(server, client, verb, how)| ApiFault {
        server,
        client,
        verb,
        how,
    })
}

impl ApiFault {
    fn concerns(&self, server: &NodeName, client: &str, verb: Verb) -> bool {
        self.verb == verb
            && self.server.as_ref().is_none_or(|name| name == server)
            && self.client.is_none_or(|name| name == client)
    }
}

impl World {
    /// How long an answer takes. The error: there is none.
    pub(super) fn answer(
        &self,
        server: &NodeName,
        client: &str,
        verb: Verb,
    ) -> Result<Duration, String> {
        let concerns = |fault: &&ApiFault| fault.concerns(server, client, verb);
        let mut takes = Duration::ZERO;
        for fault in self.faults.iter().filter(concerns) {
            match fault.how {
                How::Hangs => {
                    return Err(format!("node `{server}`: no complete answer within 20 s"));
                }
                How::Fails => return Err(format!("node `{server}`: etcdserver: leader changed")),
                How::Takes(time) => takes = takes.max(time),
            }
        }
        Ok(takes)
    }

    /// How long the first of these servers that answers takes. The error: none of them does.
    fn first_answer<'a>(
        &self,
        servers: impl Iterator<Item = &'a NodeName>,
        client: &str,
        verb: Verb,
    ) -> Result<Duration, String> {
        let mut why = "nobody serves".to_owned();
        for server in servers {
            match self.answer(server, client, verb) {
                Ok(takes) => return Ok(takes),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// What the API servers that serve say to this client: how long it waits for what the cluster holds, or why it is
    /// not told that.
    pub(super) fn told(
        &self,
        apis: &BTreeMap<NodeName, ApiHealth>,
        client: &str,
    ) -> Result<Duration, String> {
        self.first_answer(serving(apis), client, Verb::Read)
    }

    /// Nothing is done by way of an API that does not answer whoever acts.
    pub(super) fn reaches(&self, step: &Step, shell: &Shell) -> Result<Duration, Ended> {
        if let Some((
            node,
            HostAction::AwaitHealthy {
                component: Component::ApiServer,
            },
        )) = step.action.on_host()
        {
            return self
                .answer(node, &shell.client, Verb::Ready)
                .map_err(Ended::Failed);
        }
        let verb = match &step.action {
            // It is etcd that is asked.
            Action::Cluster(ClusterAction::RemoveMember { .. })
            | Action::Host(..)
            | Action::Local(_) => return Ok(Duration::ZERO),
            Action::Cluster(_) if step.action.is_wait() => Verb::Read,
            Action::Cluster(_) => Verb::Write,
        };
        let Some(id) = shell.saved.as_ref().map(|saved| &saved.cluster_id) else {
            return Ok(Duration::ZERO);
        };
        let serving = self.serving_to(id, &shell.client);
        // Whether any serves at all is for the step to find.
        if serving.is_empty() && self.serving(id) == 0 {
            return Ok(Duration::ZERO);
        }
        self.first_answer(serving.iter(), &shell.client, verb)
            .map_err(Ended::Failed)
    }

    /// The servers that serve this client.
    fn serving_to(&self, id: &ClusterId, client: &str) -> Vec<NodeName> {
        let apis = self.apis_for(id, client);
        serving(&apis).cloned().collect()
    }
}

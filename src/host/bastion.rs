//! The way to nodes that only a bastion host reaches: one connection to it for all of them, made
//! when it is first needed and again when it is lost. Its host key is verified as theirs are; a
//! node's name is looked up by the bastion. A bastion host may be reached through another one.

use std::{io, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use russh::ChannelOpenFailure;
use tokio::{sync::Mutex, time::Instant};

use super::{
    Dial, HostKeys, Stream, Trust,
    error::{Hop, HostError, Place},
    ssh::{OpenError, Session},
};
use crate::{
    config::Bastion,
    model::{Endpoint, NodeName},
};

/// The connection to one bastion host.
pub(super) struct Jump {
    bastion: Bastion,
    /// What it is reached through.
    before: Option<Arc<Self>>,
    /// The keys by which it was verified before.
    verified: Vec<String>,
    state: Mutex<State>,
}

/// A connection to a bastion host.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) session: Arc<Session>,
    /// Host keys on the way, starting with the one that is dialled from here and ending with its own.
    pub(super) keys: Vec<String>,
    /// The round trip from here to each of them.
    pub(super) trips: Vec<Duration>,
}

#[derive(Default)]
struct State {
    open: Option<Way>,
    /// Why the last attempt failed, and when.
    failed: Option<(Instant, Arc<HostError>)>,
}

impl Jump {
    pub(super) fn new(bastion: Bastion, verified: Vec<String>, before: Option<Arc<Self>>) -> Self {
        Self {
            bastion,
            before,
            verified,
            state: Mutex::default(),
        }
    }

    /// Where it leads to.
    pub(super) fn address(&self) -> &str {
        &self.bastion.endpoint.address
    }

    /// True for the connection to that one, by the same way.
    pub(super) fn leads_to(&self, bastion: &Bastion, before: Option<&Arc<Self>>) -> bool {
        let same_way = match (&self.before, before) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        same_way && self.bastion == *bastion
    }

    /// The open connection, or a new one. Nodes that ask at the same time wait for one attempt and
    /// share how it ends.
    pub(super) async fn way(
        &self,
        node: &NodeName,
        keys: &dyn HostKeys,
        dial: &dyn Dial,
    ) -> Result<Way, Arc<HostError>> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        let alive = |open: &&Way| open.session.lost().is_none();
        if let Some(open) = state.open.as_ref().filter(alive) {
            return Ok(open.clone());
        }
        if let Some((when, why)) = &state.failed
            && *when >= asked
        {
            return Err(Arc::clone(why));
        }
        match self.connect(node, keys, dial).await {
            Ok(way) => {
                state.open = Some(way.clone());
                Ok(way)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), Arc::clone(&error)));
                Err(error)
            }
        }
    }

    async fn connect(
        &self,
        node: &NodeName,
        keys: &dyn HostKeys,
        dial: &dyn Dial,
    ) -> Result<Way, Arc<HostError>> {
        let Bastion {
            endpoint,
            login,
            ssh_config: _,
        } = &self.bastion;
        let before = self.before.as_deref();
        let at = Place {
            node: node.clone(),
            endpoint: endpoint.clone(),
            user: login.user.clone(),
            hop: Hop::Bastion(before.map(|before| before.address().to_owned())),
        };
        let trust = Trust {
            keys,
            verified: &self.verified,
        };
        let (session, mut keys, mut trips) = match before {
            None => {
                let session = Session::connect(at, login, &trust, dial).await?;
                (session, Vec::new(), Vec::new())
            }
            Some(before) => {
                let Way {
                    session,
                    keys,
                    trips,
                } = Box::pin(before.way(node, keys, dial)).await?;
                let from = FromBastion {
                    session,
                    here: dial,
                };
                let session = Session::connect(at, login, &trust, &from).await?;
                (session, keys, trips)
            }
        };
        keys.push(session.host_key().to_owned());
        trips.push(session.trip());
        Ok(Way {
            session: Arc::new(session),
            keys,
            trips,
        })
    }
}

/// Opens streams from the bastion host, as far as a dial from here would be allowed.
pub(super) struct FromBastion<'a> {
    pub(super) session: Arc<Session>,
    pub(super) here: &'a dyn Dial,
}

impl Dial for FromBastion<'_> {
    fn dial<'a>(&'a self, to: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        async move {
            self.here.may_relay(to)?;
            match self.session.tcp(&to.address, to.port).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn Stream>),
                Err(error) => Err(io::Error::new(kind(&error), error)),
            }
        }
        .boxed()
    }
}

/// As a dial from here would say it.
const fn kind(error: &OpenError) -> io::ErrorKind {
    match error {
        OpenError::Refused(ChannelOpenFailure::AdministrativelyProhibited) => {
            io::ErrorKind::PermissionDenied
        }
        OpenError::Refused(_) => io::ErrorKind::ConnectionRefused,
        OpenError::Slow(_) => io::ErrorKind::TimedOut,
        OpenError::FewSessions(_) | OpenError::Lost(_) | OpenError::Ssh(_) => {
            io::ErrorKind::ConnectionReset
        }
    }
}

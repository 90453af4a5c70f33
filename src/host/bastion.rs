//! The way to nodes that only a bastion host reaches: one connection to it for all of them, made
//! when it is first needed and again when it is lost. Its host key is verified as theirs are; a
//! node's name is looked up by the bastion.

use std::{io, sync::Arc};

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
    /// The keys by which it was verified before.
    verified: Vec<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Arc<Session>>,
    /// Why the last attempt failed, and when.
    failed: Option<(Instant, Arc<HostError>)>,
}

impl Jump {
    pub(super) fn new(bastion: Bastion, verified: Vec<String>) -> Self {
        Self {
            bastion,
            verified,
            state: Mutex::default(),
        }
    }

    pub(super) const fn bastion(&self) -> &Bastion {
        &self.bastion
    }

    /// The open connection, or a new one. Nodes that ask at the same time wait for one attempt and
    /// share how it ends.
    pub(super) async fn session(
        &self,
        node: &NodeName,
        keys: &dyn HostKeys,
        dial: &dyn Dial,
    ) -> Result<Arc<Session>, Arc<HostError>> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if let Some(open) = state.open.as_ref().filter(|open| open.lost().is_none()) {
            return Ok(Arc::clone(open));
        }
        if let Some((when, why)) = &state.failed
            && *when >= asked
        {
            return Err(Arc::clone(why));
        }
        let Bastion { endpoint, login } = &self.bastion;
        let at = Place {
            node: node.clone(),
            endpoint: endpoint.clone(),
            user: login.user.clone(),
            hop: Hop::Bastion,
        };
        let keys = Trust {
            keys,
            verified: &self.verified,
        };
        match Session::connect(at, login, &keys, dial).await {
            Ok(session) => {
                let session = Arc::new(session);
                state.open = Some(Arc::clone(&session));
                Ok(session)
            }
            Err(error) => {
                let error = Arc::new(error);
                state.failed = Some((Instant::now(), Arc::clone(&error)));
                Err(error)
            }
        }
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

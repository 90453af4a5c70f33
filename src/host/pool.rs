//! The hosts of one run: each is dialled when it is first needed, once, and kept until the run
//! ends; a connection that died is dialled again. One SSH connection a node and run.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::Mutex;

use super::{Dial, Host, HostError, HostKeys};
use crate::{
    actual::Unreachable,
    config::Login,
    model::{Endpoint, NodeName},
};

/// Where a host is and how to log in, or why that is not known.
pub type ConnectionTarget = Result<(Endpoint, Login), Unreachable>;

/// Why there is no connection.
#[derive(Debug)]
pub enum NotOpen {
    /// Where it is, or how to log in, is not known.
    Target(Unreachable),
    /// It was tried.
    Host(HostError),
}

/// The pool.
pub struct Hosts {
    dial: Arc<dyn Dial>,
    keys: Arc<dyn HostKeys>,
    slots: BTreeMap<NodeName, Slot>,
}

struct Slot {
    target: ConnectionTarget,
    open: Mutex<Option<Arc<Host>>>,
}

impl Hosts {
    /// A pool that aims nowhere yet.
    pub fn new(dial: Arc<dyn Dial>, keys: Arc<dyn HostKeys>) -> Self {
        Self {
            dial,
            keys,
            slots: BTreeMap::new(),
        }
    }

    /// Aims at these from now on. What is open stays, where the target is the same; nothing is
    /// dialled yet.
    pub fn aim(&mut self, targets: BTreeMap<NodeName, ConnectionTarget>) {
        let mut open = std::mem::take(&mut self.slots);
        for (name, target) in targets {
            let slot = open.remove(&name).filter(|slot| slot.target == target);
            let slot = slot.unwrap_or_else(|| Slot {
                target,
                open: Mutex::new(None),
            });
            self.slots.insert(name, slot);
        }
    }

    /// The names it knows.
    pub fn names(&self) -> Vec<NodeName> {
        self.slots.keys().cloned().collect()
    }

    /// The open connection, or a new one.
    pub async fn get(&self, name: &NodeName) -> Result<Arc<Host>, Unreachable> {
        self.open(name).await.map_err(|not| match not {
            NotOpen::Target(down) => down,
            NotOpen::Host(error) => Unreachable::of(&error),
        })
    }

    /// As [`Self::get`], with the error itself: who asks may try again.
    pub async fn open(&self, name: &NodeName) -> Result<Arc<Host>, NotOpen> {
        let Some(slot) = self.slots.get(name) else {
            return Err(NotOpen::Target(Unreachable {
                class: crate::error::ErrorClass::Bug,
                why: format!("node `{name}` is not part of this run"),
                hints: vec![],
            }));
        };
        let mut open = slot.open.lock().await;
        if let Some(host) = open.as_ref().filter(|host| host.is_alive()) {
            return Ok(Arc::clone(host));
        }
        let (endpoint, login) = slot
            .target
            .as_ref()
            .map_err(|down| NotOpen::Target(down.clone()))?;
        let host = Host::connect(name, endpoint, login, &*self.keys, &*self.dial)
            .await
            .map(Arc::new)
            .map_err(NotOpen::Host)?;
        *open = Some(Arc::clone(&host));
        Ok(host)
    }
}

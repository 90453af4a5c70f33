//! The hosts of one run: each is dialled when it is first needed, once, and kept until the run
//! ends; a connection that died is dialled again. One SSH connection a node and run, and one to the
//! bastion host where there is one.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::Mutex;

use super::{
    Dial, Hop, Host, HostError, HostKeys, Place,
    bastion::{FromBastion, Jump},
};
use crate::{
    actual::Unreachable,
    config::{Bastion, Login},
    model::{Endpoint, NodeName},
};

/// Where a host is, how to log in, and through which machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where its sshd is.
    pub endpoint: Endpoint,
    /// How to log in.
    pub login: Login,
    /// Through which machine; `None`: directly.
    pub bastion: Option<Bastion>,
}

/// Where a host is and how to log in, or why that is not known.
pub type ConnectionTarget = Result<Target, Unreachable>;

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
    /// As a rule one.
    jumps: Vec<Arc<Jump>>,
}

struct Slot {
    target: ConnectionTarget,
    jump: Option<Arc<Jump>>,
    open: Mutex<Option<Arc<Host>>>,
}

impl Hosts {
    /// A pool that aims nowhere yet.
    pub fn new(dial: Arc<dyn Dial>, keys: Arc<dyn HostKeys>) -> Self {
        Self {
            dial,
            keys,
            slots: BTreeMap::new(),
            jumps: Vec::new(),
        }
    }

    /// Aims at these from now on. What is open stays, where the target is the same; nothing is
    /// dialled yet.
    pub fn aim(&mut self, targets: BTreeMap<NodeName, ConnectionTarget>) {
        let mut open = std::mem::take(&mut self.slots);
        for (name, target) in targets {
            let slot = open.remove(&name).filter(|slot| slot.target == target);
            let slot = slot.unwrap_or_else(|| Slot {
                jump: self.jump(&target),
                target,
                open: Mutex::new(None),
            });
            self.slots.insert(name, slot);
        }
        let used = |jump: &Arc<Jump>| Arc::strong_count(jump) > 1;
        self.jumps.retain(used);
    }

    /// The connection to a target's bastion host, shared with the other nodes behind it.
    fn jump(&mut self, target: &ConnectionTarget) -> Option<Arc<Jump>> {
        let bastion = target.as_ref().ok()?.bastion.as_ref()?;
        let known = self.jumps.iter().find(|jump| jump.bastion() == bastion);
        Some(known.cloned().unwrap_or_else(|| {
            let jump = Arc::new(Jump::new(bastion.clone()));
            self.jumps.push(Arc::clone(&jump));
            jump
        }))
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
        let target = slot
            .target
            .as_ref()
            .map_err(|down| NotOpen::Target(down.clone()))?;
        let host = self
            .connect(name, target, slot.jump.as_deref())
            .await
            .map(Arc::new)
            .map_err(NotOpen::Host)?;
        *open = Some(Arc::clone(&host));
        Ok(host)
    }

    async fn connect(
        &self,
        name: &NodeName,
        target: &Target,
        jump: Option<&Jump>,
    ) -> Result<Host, HostError> {
        let Target {
            endpoint, login, ..
        } = target;
        let (keys, dial) = (&*self.keys, &*self.dial);
        let Some(jump) = jump else {
            return Host::connect(name, endpoint, login, keys, dial).await;
        };
        let at = Place {
            node: name.clone(),
            endpoint: endpoint.clone(),
            user: login.user.clone(),
            hop: Hop::Through(jump.bastion().endpoint.address.clone()),
        };
        match jump.session(name, keys, dial).await {
            Ok(session) => Host::connect_at(at, login, keys, &FromBastion(session)).await,
            Err(source) => Err(HostError::Bastion {
                at: Arc::new(at),
                source,
            }),
        }
    }
}

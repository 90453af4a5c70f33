//! The hosts of one run: each is dialled when it is first needed, once, and kept until the run
//! ends; a connection that died is dialled again. One SSH connection a node and run.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::Mutex;

use super::{Dial, Host, HostKeys};
use crate::{
    actual::Down,
    config::{Endpoint, Login, NodeName},
};

/// Where a host is and how to log in, or why that is not known.
pub type Aim = Result<(Endpoint, Login), Down>;

/// The pool.
pub struct Hosts<'w> {
    dial: &'w dyn Dial,
    keys: &'w dyn HostKeys,
    slots: BTreeMap<NodeName, Slot>,
}

struct Slot {
    aim: Aim,
    open: Mutex<Option<Arc<Host>>>,
}

impl<'w> Hosts<'w> {
    /// A pool that dials nothing yet.
    pub fn new(dial: &'w dyn Dial, keys: &'w dyn HostKeys, aims: BTreeMap<NodeName, Aim>) -> Self {
        let slots = aims
            .into_iter()
            .map(|(name, aim)| {
                (
                    name,
                    Slot {
                        aim,
                        open: Mutex::new(None),
                    },
                )
            })
            .collect();
        Self { dial, keys, slots }
    }

    /// The names it knows.
    pub fn names(&self) -> Vec<NodeName> {
        self.slots.keys().cloned().collect()
    }

    /// Takes what another pool has open, where both aim at the same place.
    pub fn adopt(&mut self, other: Self) {
        for (name, slot) in other.slots {
            if let Some(mine) = self
                .slots
                .get_mut(&name)
                .filter(|mine| mine.aim == slot.aim)
            {
                mine.open = slot.open;
            }
        }
    }

    /// The open connection, or a new one.
    pub async fn get(&self, name: &NodeName) -> Result<Arc<Host>, Down> {
        let Some(slot) = self.slots.get(name) else {
            return Err(Down {
                blame: crate::error::Blame::Bug,
                why: format!("node `{name}` is not part of this run"),
                hints: vec![],
            });
        };
        let mut open = slot.open.lock().await;
        if let Some(host) = open.as_ref().filter(|host| host.is_alive()) {
            return Ok(Arc::clone(host));
        }
        let (endpoint, login) = slot.aim.as_ref().map_err(Clone::clone)?;
        let host = Host::connect(name, endpoint, login, self.keys, self.dial)
            .await
            .map(Arc::new)
            .map_err(|error| Down::of(&error))?;
        *open = Some(Arc::clone(&host));
        Ok(host)
    }
}

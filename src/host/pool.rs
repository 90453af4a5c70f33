//! The hosts of one run: each is dialled when it is first needed and kept until the run ends; a connection
//! that died is dialled again. One SSH connection a node and run, and one to each bastion host on the
//! way. Of a large cluster 128 connections at most stay open that are not in use: a node that is needed later is
//! dialled once more.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use super::{
    Awaited, Dial, Hop, Host, HostError, HostKeys, Place, Stream, Trust,
    bastion::{FromBastion, Jump, Way},
    machine::direct,
};
use crate::{
    config::{Bastion, Login},
    error::{ErrorClass, Obstacle},
    facts::Unreachable,
    model::{Endpoint, NodeName},
};

/// Where a host is, how to log in, and through which machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where its sshd is.
    pub endpoint: Endpoint,
    /// How to log in.
    pub login: Login,
    /// Through which machines, in the order in which they are passed; none: directly.
    pub bastions: Vec<Bastion>,
    /// The keys by which they were verified before.
    pub verified: Verified,
}

/// Host keys that a run before has verified, as in `authorized_keys`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The host's.
    pub host: Vec<String>,
    /// Of each bastion.
    pub bastions: Vec<Vec<String>>,
}

/// Where a host is and how to log in, or why that is not known.
pub type ConnectionTarget = Result<Target, Unreachable>;

/// Why there is no connection.
#[derive(Debug)]
pub enum NotOpen {
    /// Where it is, or how to log in, is not known.
    Target(Unreachable),
    /// It was tried.
    Host(Arc<HostError>),
}

impl NotOpen {
    fn into_io(self) -> io::Error {
        match self {
            Self::Target(down) => io::Error::other(down.why),
            Self::Host(error) => io::Error::other(error),
        }
    }
}

/// For how long a node that could not be reached is asked after others.
const LATELY: Duration = Duration::from_secs(60);

/// How many connections stay open that are not in use: each holds a quarter of a MiB, most of it
/// queues and buffers of the SSH client.
const IDLE: usize = 128;

/// The pool. Clones are the same one: what asks it for each stream it needs outlives every connection.
#[derive(Clone)]
pub struct Hosts(Arc<Pool>);

struct Pool {
    dial: Arc<dyn Dial>,
    keys: Arc<dyn HostKeys>,
    aims: StdMutex<Aims>,
    idle: usize,
    awaited: Awaited,
    /// Those with a connection, the oldest first.
    opened: StdMutex<VecDeque<Weak<Slot>>>,
}

/// Where it leads to.
#[derive(Default)]
struct Aims {
    slots: BTreeMap<NodeName, Arc<Slot>>,
    /// As a rule one.
    jumps: Vec<Arc<Jump>>,
}

struct Slot {
    target: ConnectionTarget,
    jump: Option<Arc<Jump>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Arc<Host>>,
    /// Why the last attempt failed, and when.
    failed: Option<(Instant, Arc<HostError>)>,
}

impl Slot {
    /// Closes its connection, unless it is in use. True where there is none now.
    fn closes(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        if let Some(host) = state.open.as_ref().filter(|host| host.is_alive())
            && (Arc::strong_count(host) > 1 || host.is_used())
        {
            return false;
        }
        state.open = None;
        true
    }
}

/// True where a connection to the one is good for the other: which keys were verified before does not matter to it.
fn leads_there(one: &ConnectionTarget, other: &ConnectionTarget) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => {
            let Target {
                endpoint,
                login,
                bastions,
                verified: _,
            } = one;
            (endpoint, login, bastions) == (&other.endpoint, &other.login, &other.bastions)
        }
        (Ok(_) | Err(_), _) => one == other,
    }
}

impl Aims {
    fn aim(&mut self, targets: BTreeMap<NodeName, ConnectionTarget>) {
        let mut open = std::mem::take(&mut self.slots);
        for (name, target) in targets {
            let slot = open
                .remove(&name)
                .filter(|slot| leads_there(&slot.target, &target));
            let slot = slot.unwrap_or_else(|| {
                Arc::new(Slot {
                    jump: self.jump(&target),
                    target,
                    state: Mutex::default(),
                })
            });
            self.slots.insert(name, slot);
        }
        drop(open);
        // What leads to another one is there before it.
        for index in (0..self.jumps.len()).rev() {
            if Arc::strong_count(&self.jumps[index]) == 1 {
                self.jumps.remove(index);
            }
        }
    }

    /// The connection to the last of a target's bastion hosts, shared with the other nodes behind it.
    fn jump(&mut self, target: &ConnectionTarget) -> Option<Arc<Jump>> {
        let target = target.as_ref().ok()?;
        let mut verified = target.verified.bastions.iter().cloned();
        let mut way = None;
        for bastion in &target.bastions {
            let verified = verified.next().unwrap_or_default();
            let mut known = self.jumps.iter();
            let known = known.find(|jump| jump.leads_to(bastion, way.as_ref()));
            let jump = known.cloned().unwrap_or_else(|| {
                let jump = Arc::new(Jump::new(bastion.clone(), verified, way.clone()));
                self.jumps.push(Arc::clone(&jump));
                jump
            });
            way = Some(jump);
        }
        way
    }
}

impl Hosts {
    /// A pool that aims nowhere yet.
    pub fn new(dial: Arc<dyn Dial>, keys: Arc<dyn HostKeys>) -> Self {
        Self::keeping(IDLE, dial, keys)
    }

    /// As [`Self::new`], where so many connections stay open that are not in use.
    pub fn keeping(idle: usize, dial: Arc<dyn Dial>, keys: Arc<dyn HostKeys>) -> Self {
        Self::of(idle, Awaited::default(), dial, keys)
    }

    /// As [`Self::new`], and it is shown there which nodes are being read.
    pub fn shown_in(awaited: Awaited, dial: Arc<dyn Dial>, keys: Arc<dyn HostKeys>) -> Self {
        Self::of(IDLE, awaited, dial, keys)
    }

    fn of(idle: usize, awaited: Awaited, dial: Arc<dyn Dial>, keys: Arc<dyn HostKeys>) -> Self {
        Self(Arc::new(Pool {
            dial,
            keys,
            aims: StdMutex::default(),
            idle,
            awaited,
            opened: StdMutex::default(),
        }))
    }

    /// Where it is shown which nodes are being read.
    pub fn awaited(&self) -> &Awaited {
        &self.0.awaited
    }

    /// Aims at these from now on. What is open stays, where the target is the same; nothing is
    /// dialled yet.
    pub fn aim(&self, targets: BTreeMap<NodeName, ConnectionTarget>) {
        self.aims().aim(targets);
    }

    fn aims(&self) -> MutexGuard<'_, Aims> {
        self.0.aims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names it knows.
    pub fn names(&self) -> Vec<NodeName> {
        self.aims().slots.keys().cloned().collect()
    }

    /// True for a node that could not be reached a moment ago: others are asked before it.
    pub fn is_away(&self, name: &NodeName) -> bool {
        let slot = self.aims().slots.get(name).cloned();
        // One that is being dialled may answer yet.
        slot.is_some_and(|slot| {
            slot.state.try_lock().is_ok_and(|state| {
                let failed = state.failed.as_ref();
                state.open.is_none() && failed.is_some_and(|(when, _)| when.elapsed() < LATELY)
            })
        })
    }

    /// The open connection, or a new one.
    pub async fn get(&self, name: &NodeName) -> Result<Arc<Host>, Unreachable> {
        self.open(name).await.map_err(|not| match not {
            NotOpen::Target(down) => down,
            NotOpen::Host(error) => Unreachable::of(&*error),
        })
    }

    /// As [`Self::get`], with the error itself: who asks may try again. Those that ask while a node is
    /// being dialled share how that ends.
    pub async fn open(&self, name: &NodeName) -> Result<Arc<Host>, NotOpen> {
        let asked = Instant::now();
        let Some(slot) = self.aims().slots.get(name).cloned() else {
            return Err(NotOpen::Target(Unreachable {
                alike: None,
                obstacle: Obstacle::Other,
                class: ErrorClass::Bug,
                why: format!("node `{name}` is not part of this run"),
                hints: vec![],
            }));
        };
        let mut state = slot.state.lock().await;
        if let Some(host) = state.open.as_ref().filter(|host| host.is_alive()) {
            return Ok(Arc::clone(host));
        }
        state.open = None;
        if let Some((when, why)) = &state.failed
            && *when > asked
        {
            return Err(NotOpen::Host(Arc::clone(why)));
        }
        let target = slot
            .target
            .as_ref()
            .map_err(|down| NotOpen::Target(down.clone()))?;
        match self.0.connect(name, target, slot.jump.as_deref()).await {
            Ok(host) => {
                let host = Arc::new(host);
                state.open = Some(Arc::clone(&host));
                state.failed = None;
                self.0.opened(&slot);
                Ok(host)
            }
            Err(error) => {
                let error = Arc::new(error);
                state.failed = Some((Instant::now(), Arc::clone(&error)));
                Err(NotOpen::Host(error))
            }
        }
    }

    /// A stream to a port on a node's loopback address, through the connection that is open then, or
    /// through a new one: for clients that outlive connections.
    pub async fn port(&self, name: &NodeName, port: u16) -> io::Result<Box<dyn Stream>> {
        let host = self.open(name).await.map_err(NotOpen::into_io)?;
        match host.local_port(port).await {
            // It broke in between.
            Err(_) if !host.is_alive() => {
                let host = self.open(name).await.map_err(NotOpen::into_io)?;
                host.local_port(port).await.map_err(io::Error::other)
            }
            stream => stream.map_err(io::Error::other),
        }
    }
}

impl Pool {
    /// Notes a connection, and closes the oldest of those that are not in use where there are too many.
    fn opened(&self, slot: &Arc<Slot>) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Arc::downgrade(slot);
        opened.retain(|there| !there.ptr_eq(&new));
        opened.push_back(new);
        let mut over = opened.len().saturating_sub(self.idle);
        opened.retain(|slot| {
            let closed = over > 0 && slot.upgrade().is_none_or(|slot| slot.closes());
            over -= usize::from(closed);
            !closed
        });
    }

    async fn connect(
        &self,
        name: &NodeName,
        target: &Target,
        jump: Option<&Jump>,
    ) -> Result<Host, HostError> {
        let Target {
            endpoint,
            login,
            bastions: _,
            verified,
        } = target;
        let (keys, dial) = (&*self.keys, &*self.dial);
        let trust = Trust {
            keys,
            verified: &verified.host,
        };
        let Some(jump) = jump else {
            let at = direct(name, endpoint, login);
            return Host::connect_at(at, login, &trust, dial).await;
        };
        let at = Place {
            node: name.clone(),
            endpoint: endpoint.clone(),
            user: login.user.clone(),
            hop: Hop::Through(jump.address().to_owned()),
        };
        match jump.way(name, keys, dial).await {
            Ok(Way {
                session,
                keys,
                trips,
            }) => {
                let from = FromBastion {
                    session,
                    here: dial,
                };
                let mut host = Host::connect_at(at, login, &trust, &from).await?;
                host.bastion_keys = keys;
                host.bastion_trips = trips;
                Ok(host)
            }
            Err(source) => Err(HostError::Bastion {
                at: Arc::new(at),
                source,
            }),
        }
    }
}

//! Images out of a bundle onto nodes, and out of a node into a bundle, without anything else: no cluster need be there, and none
//! is changed.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
};

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc;

use super::{Error, Goal, Purpose as _, left_alone, look, silent};
use crate::{
    apply::{
        act::Steps,
        event::{Events, RunOutcome},
        remote::{Context, RemoteSession},
        run::{self, Report},
        step::StepError,
        stop::Stop,
    },
    bundle::{BundleError, BundleWriter, SavedImage},
    config::Intent,
    desired::NeededImages,
    environment::Environment,
    facts::{KeptFacts, Unreachable},
    model::{ClusterId, NodeName, WantedObjects},
    plan::{self, Note},
    state::{ClusterState, Loaded},
};

/// The result of distributing the images of a bundle.
#[derive(Debug)]
pub struct LoadedImages {
    /// Nodes that did not answer, or did not take all of theirs, and why.
    pub left: BTreeMap<NodeName, Unreachable>,
    /// False: no node lacked any.
    pub changed: bool,
    /// True: the stop signal was given before the end.
    pub stopped: bool,
    /// What else there is to know.
    pub notes: Vec<Note>,
}

/// Gives each node of the config the images of the environment's bundle that it lacks: its Docker those of components, its
/// containerd those of pods. Nothing else is done, and whose nodes they are does not matter.
pub async fn load_images(
    intent: &Intent,
    environment: &Environment,
    events: &Events,
    stop: &Stop,
) -> Result<LoadedImages, Error> {
    let saved = saved(environment).await?;
    let intent = look::keeping(intent, saved.as_ref())?;
    let mut session = look::open(environment);
    aim(&mut *session, &intent, saved.as_ref(), environment).await;
    let wanted = WantedObjects::default();
    let actual = session.read(None, None, None, &wanted, KeptFacts::new());
    let actual = actual.await;
    let bundle = environment.bundle.as_deref();
    let bundle = bundle.map(|bundle| look::bundled(&intent, bundle));
    let bundle = bundle.unwrap_or_default();
    let id = saved.as_ref().map(|saved| &saved.cluster_id);
    let there: BTreeSet<NodeName> = actual
        .hosts
        .keys()
        .filter(|name| actual.up(name).is_some())
        .cloned()
        .collect();
    let needed = NeededImages::of(&intent);
    // Before anything is created on a node.
    plan::load(&needed, &bundle, &actual, &BTreeMap::new())?;
    let mut left = silent(&actual);
    let mut pods = BTreeMap::new();
    if !bundle.pods.is_empty() {
        for (name, listed) in session.pod_images(&there, id).await {
            match listed {
                Ok(names) => drop(pods.insert(name, names)),
                Err(why) => drop(left.insert(name, why)),
            }
        }
    }
    let plan = plan::load(&needed, &bundle, &actual, &pods)?;
    let steps = Steps {
        session: &*session,
        context: Context {
            environment,
            actual: &actual,
            desired: None,
            saved: saved.as_ref(),
            revision: None,
            engine: None,
            snapshot_tools: None,
        },
    };
    let changed = !plan.is_empty();
    let stopped = if changed {
        let Report {
            outcome, failures, ..
        } = Box::pin(run::run(&plan, 1, &steps, events, stop)).await;
        left.extend(failures.iter().filter_map(left_alone));
        outcome == RunOutcome::Stopped
    } else {
        stop.cause().is_some()
    };
    Ok(LoadedImages {
        left,
        changed,
        stopped,
        notes: plan.notes,
    })
}

async fn saved(environment: &Environment) -> Result<Option<ClusterState>, Error> {
    Ok(match environment.store.load().await? {
        Loaded::Absent => None,
        Loaded::Present { saved, .. } => Some(*saved),
    })
}

/// At the nodes of the config.
async fn aim(
    session: &mut dyn RemoteSession,
    intent: &Intent,
    saved: Option<&ClusterState>,
    environment: &Environment,
) {
    let goal = Goal::Up(intent);
    let mut targets = look::targets(goal.any(), saved, environment).await;
    targets.retain(|name, _| intent.nodes.contains_key(name));
    session.aim(targets);
}

/// The images that a cluster needs: of the release that it keeps where the config names none.
pub async fn needed_images<'i>(
    intent: &'i Intent,
    environment: &Environment,
) -> Result<(Cow<'i, Intent>, NeededImages), Error> {
    let saved = saved(environment).await?;
    let intent = look::keeping(intent, saved.as_ref())?;
    let needed = NeededImages::of(&intent);
    Ok((intent, needed))
}

/// Nodes that images are taken from.
pub struct ImageExport {
    session: Box<dyn RemoteSession>,
    id: Option<ClusterId>,
}

impl ImageExport {
    /// Those of the config. Nothing is connected to yet.
    pub async fn of(intent: &Intent, environment: &Environment) -> Result<Self, Error> {
        let saved = saved(environment).await?;
        let mut session = look::open(environment);
        aim(&mut *session, intent, saved.as_ref(), environment).await;
        Ok(Self {
            session,
            id: saved.map(|saved| saved.cluster_id),
        })
    }

    /// Takes an image of a node into the bundle. `read` gets the number of bytes so far.
    pub async fn take(
        &self,
        (node, image): (&NodeName, &str),
        mut bundle: BundleWriter,
        read: impl Fn(u64) + Send + 'static,
    ) -> (Option<BundleWriter>, Result<SavedImage, ExportError>) {
        let (to, from) = mpsc::channel(QUEUE);
        let name = image.to_owned();
        // It hashes, and writes to a disk: not on the thread that has the connection.
        let writing = tokio::task::spawn_blocking(move || {
            let mut pieces = Pieces {
                from,
                piece: Bytes::new(),
                read: 0,
                told: Box::new(read),
            };
            let saved = bundle.image_of(&name, &mut pieces);
            (bundle, saved)
        });
        let place = (node, self.id.as_ref());
        let (exported, written) = tokio::join!(self.session.export(place, image, to), writing);
        let (bundle, saved) = match written {
            Ok((bundle, saved)) => (Some(bundle), saved.map_err(ExportError::Bundle)),
            Err(error) => (None, Err(ExportError::Task(error.to_string()))),
        };
        match exported {
            Err(error) => (bundle, Err(ExportError::Node(error))),
            Ok(()) => (bundle, saved),
        }
    }
}

/// How many pieces of an archive wait for the disk.
const QUEUE: usize = 32;

/// Why an image was not taken from a node.
#[derive(Debug)]
pub enum ExportError {
    /// The node.
    Node(StepError),
    /// What came, or the bundle.
    Bundle(BundleError),
    /// Ours.
    Task(String),
}

/// An archive that comes in pieces, for who reads it on another thread.
struct Pieces {
    from: mpsc::Receiver<Bytes>,
    piece: Bytes,
    read: u64,
    told: Box<dyn Fn(u64) + Send>,
}

impl Read for Pieces {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.from.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let count = to.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut to[..count]);
        self.read += count as u64;
        (self.told)(self.read);
        Ok(count)
    }
}

//! The loop of the program on a node: look at the folder, take what is due, prove it, prune, wait.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;

use super::{
    folder::{Folder, kept},
    health::{self, Shown},
    prove::{dial, prove},
    prune::expired,
    record::{Cause, Grade, LastFailure, Listed, Report},
    save::{SaveError, blocking, save},
    schedule::{Failures, Slots},
    settings::Settings,
};
use crate::{
    apply::stop::Stop,
    environment::Clock,
    error::{ErrorClass, Explain, with_causes},
    etcd::{self, Client},
    model::{ClientIdentity, Secret},
};

const LOOKS: Duration = Duration::from_secs(20);

/// Where the program finds what it works with.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `etcd`.
    pub etcd: PathBuf,
    /// `etcdutl`.
    pub etcdutl: PathBuf,
    /// The folder of snapshots.
    pub folder: PathBuf,
    /// The client port of the member.
    pub member: SocketAddr,
    /// The port to answer on.
    pub port: u16,
    /// How often the clock is looked at: it may jump.
    pub looks: Duration,
}

impl Programs {
    /// As they are in the container.
    pub fn in_container() -> Self {
        Self {
            etcd: "/usr/local/bin/etcd".into(),
            etcdutl: "/usr/local/bin/etcdutl".into(),
            folder: crate::model::path::SNAPSHOTS.into(),
            member: SocketAddr::from((Ipv4Addr::LOCALHOST, etcd::PORT)),
            port: health::PORT,
            looks: LOOKS,
        }
    }
}

/// Why the program cannot work at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}")]
pub struct RunError {
    doing: &'static str,
    #[source]
    source: io::Error,
}

impl Explain for RunError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Host
    }

    fn hints(&self) -> Vec<std::borrow::Cow<'static, str>> {
        Vec::new()
    }
}

fn cannot(doing: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |source| RunError { doing, source }
}

/// Runs until it is stopped. A snapshot that is being taken is left: nothing of it is in its place.
pub async fn run(
    settings: &Path,
    programs: Programs,
    clock: &Clock,
    stop: &Stop,
) -> Result<(), RunError> {
    // etcd goes first: what this program starts is as patient.
    let _ = rustix::process::nice(10);
    let read = fs::read(settings).and_then(|text| Ok(serde_json::from_slice(&text)?));
    let settings: Settings = read.map_err(cannot("read the settings"))?;
    let listener = health::listen(programs.port)
        .await
        .map_err(cannot("listen"))?;
    let folder = Folder::open(programs.folder.clone(), settings.cluster_id.clone())
        .map_err(cannot("use the folder of snapshots"))?;
    let shown = Shown::default();
    let agent = Agent {
        slots: Slots::of(&settings),
        settings,
        programs,
        folder,
        shown: shown.clone(),
        clock,
    };
    tokio::select! {
        _ = stop.stopped() => {}
        never = health::serve(listener, shown) => match never {},
        () = agent.work() => {}
    }
    Ok(())
}

struct Agent<'a> {
    settings: Settings,
    slots: Slots,
    programs: Programs,
    folder: Folder,
    shown: Shown,
    clock: &'a Clock,
}

impl Agent<'_> {
    async fn work(&self) {
        let (mut failures, mut failure): (Option<Failures>, Option<LastFailure>) = (None, None);
        loop {
            let now = self.clock.now();
            let listed = match self.listed().await {
                Ok(listed) => listed,
                Err(error) => {
                    tracing::error!(%error, "cannot read the folder of snapshots");
                    tokio::time::sleep(self.programs.looks).await;
                    continue;
                }
            };
            let next = self.slots.next(now, taken(&listed), failures);
            self.shown.set(Report {
                node: self.settings.node.clone(),
                next,
                failure: failure.clone(),
                snapshots: listed,
            });
            if next > now {
                let wait = Duration::try_from(next.duration_since(now)).unwrap_or(LOOKS);
                tokio::time::sleep(wait.min(self.programs.looks)).await;
                continue;
            }
            match self.round(now).await {
                Ok(()) => (failures, failure) = (None, None),
                Err(error) => {
                    let (at, why) = (self.clock.now(), with_causes(&error));
                    tracing::error!(why, "no snapshot was taken");
                    let slot = self.slots.begins(at);
                    let before = failures.filter(|failures| failures.slot == slot);
                    failures = Some(Failures {
                        slot,
                        count: before.map_or(1, |failures| failures.count + 1),
                        last: at,
                    });
                    failure = Some(LastFailure { at, why });
                }
            }
        }
    }

    async fn listed(&self) -> io::Result<Vec<Listed>> {
        let folder = self.folder.clone();
        blocking(move || folder.list()).await
    }

    /// One snapshot: taken, proven, and what it replaces deleted.
    async fn round(&self, now: Timestamp) -> Result<(), SaveError> {
        let work = self.folder.work()?;
        let member = self.member()?;
        let saved = save(&self.settings, &self.folder, &work, &member, now).await;
        let saved = match saved {
            Ok(saved) => saved,
            Err(error) => {
                self.folder.clear()?;
                return Err(error);
            }
        };
        tracing::info!(name = saved.name, bytes = saved.meta.bytes, "saved");
        let (folder, programs) = (&self.folder, &self.programs);
        let proof = prove(&self.settings, programs, folder, &work, &saved, now).await;
        match (&proof.why, proof.grade) {
            (None, grade) => tracing::info!(name = saved.name, ?grade, "looked into"),
            (Some(why), Grade::Failed) => {
                tracing::error!(name = saved.name, why, "cannot be restored");
            }
            (Some(why), grade) => tracing::warn!(name = saved.name, ?grade, why, "looked into"),
        }
        self.folder.prove(&work, &saved.name, &proof)?;
        self.folder.clear()?;
        self.prune(now).await?;
        Ok(())
    }

    async fn prune(&self, now: Timestamp) -> io::Result<()> {
        let kept = kept(&self.listed().await?);
        for name in expired(now, &kept, self.settings.policy.retention) {
            tracing::info!(name, "deleted: newer ones are there");
            self.folder.delete(name)?;
        }
        Ok(())
    }

    /// Certificates are read each time: they are renewed in their files.
    fn member(&self) -> Result<Client, SaveError> {
        let Settings { ca, cert, key, .. } = &self.settings;
        let text =
            |path: &str| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let identity = ClientIdentity {
            ca: text(ca)?,
            cert: text(cert)?,
            key: Secret::new(text(key)?),
        };
        Ok(Client::connect(dial(self.programs.member), &identity)?)
    }
}

/// When those that are there were taken by the schedule.
fn taken(listed: &[Listed]) -> Vec<Timestamp> {
    let metas = listed.iter().filter_map(|one| one.meta.as_ref());
    metas
        .filter(|meta| meta.cause == Cause::Scheduled)
        .map(|meta| meta.taken_at)
        .collect()
}

//! The loop of the program on a node: look at the folder, take what is due, prove it, prune, wait.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;

use super::{
    asked::look_into,
    copier::Copier,
    folder::{Folder, WORK, kept},
    health::{self, Shown},
    prove::{dial, prove},
    prune::expired,
    record::{Grade, LastFailure, Listed, Proof, Report, recurring},
    save::{Asked, SaveError, Saved, blocking, save},
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
    let settings = read(settings)?;
    let listener = health::listen(programs.port)
        .await
        .map_err(cannot("listen"))?;
    let folder = opened(&settings, &programs, WORK)?;
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

pub(super) fn read(settings: &Path) -> Result<Settings, RunError> {
    let read = fs::read(settings).and_then(|text| Ok(serde_json::from_slice(&text)?));
    read.map_err(cannot("read the settings"))
}

pub(super) fn opened(
    settings: &Settings,
    programs: &Programs,
    work: &'static str,
) -> Result<Folder, RunError> {
    let folder = Folder::open(programs.folder.clone(), settings.cluster_id.clone(), work);
    folder.map_err(cannot("use the folder of snapshots"))
}

/// Takes one and looks into it as far as it can. What was found out is written next to it.
pub(super) async fn save_and_prove(
    settings: &Settings,
    programs: &Programs,
    folder: &Folder,
    asked: Asked,
) -> Result<(Saved, Proof), SaveError> {
    let now = asked.now;
    let work = folder.work()?;
    let member = member(settings, programs)?;
    let saved = save(settings, folder, &work, &member, asked).await;
    let saved = match saved {
        Ok(saved) => saved,
        Err(error) => {
            folder.clear()?;
            return Err(error);
        }
    };
    tracing::info!(name = saved.name, bytes = saved.meta.bytes, "saved");
    let proof = prove(settings, programs, folder, &work, &saved, now).await;
    tell(&saved.name, &proof);
    folder.prove(&work, &saved.name, &proof)?;
    folder.clear()?;
    Ok((saved, proof))
}

fn tell(name: &str, proof: &Proof) {
    match (&proof.why, proof.grade) {
        (None, grade) => tracing::info!(name, ?grade, "looked into"),
        (Some(why), Grade::Failed) => tracing::error!(name, why, "cannot be restored"),
        (Some(why), grade) => tracing::warn!(name, ?grade, why, "looked into"),
    }
}

/// Certificates are read each time: they are renewed in their files.
fn member(settings: &Settings, programs: &Programs) -> Result<Client, SaveError> {
    let Settings { ca, cert, key, .. } = settings;
    let text =
        |path: &str| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let identity = ClientIdentity {
        ca: text(ca)?,
        cert: text(cert)?,
        key: Secret::new(text(key)?),
    };
    Ok(Client::connect(dial(programs.member), &identity)?)
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
        let mut copier = Copier::new(&self.settings, self.clock.now());
        // Once is enough: where it cannot be noted, the next one is in its turn.
        let mut looked_into: Option<String> = None;
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
            let report = Report {
                node: self.settings.node.clone(),
                next,
                failure: failure.clone(),
                snapshots: listed,
                copies: copier.as_ref().map(Copier::shown),
            };
            self.shown.set(report.clone());
            if next > now {
                if let Some(cut_off) = cut_off(now, &report.snapshots)
                    && looked_into.as_deref() != Some(cut_off.name())
                {
                    looked_into = Some(cut_off.name().to_owned());
                    self.look_into(cut_off, now).await;
                    continue;
                }
                let due = copier.as_mut().and_then(|copier| copier.due(now));
                match &mut copier {
                    Some(copier) if due.is_some_and(|due| due <= now) => {
                        copier.visit(now, &self.folder, &report.snapshots).await;
                    }
                    Some(_) | None => {
                        let next = due.map_or(next, |due| due.min(next));
                        let wait = Duration::try_from(next.duration_since(now)).unwrap_or(LOOKS);
                        tokio::time::sleep(wait.min(self.programs.looks)).await;
                    }
                }
                continue;
            }
            match self.round(now).await {
                Ok(()) => {
                    (failures, failure) = (None, None);
                    if let Some(copier) = &mut copier {
                        copier.look_at(now);
                    }
                }
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
        let asked = Asked::scheduled(now, &self.settings);
        save_and_prove(&self.settings, &self.programs, &self.folder, asked).await?;
        self.prune(now).await?;
        Ok(())
    }

    /// Looks into one whose proof was cut off when it was taken.
    async fn look_into(&self, one: &Listed, now: Timestamp) {
        let Some(meta) = one.meta.clone() else {
            return;
        };
        let (settings, programs, folder) = (&self.settings, &self.programs, &self.folder);
        let looked = look_into(settings, programs, folder, one.name(), meta, None, now);
        match looked.await {
            Ok(proof) => tell(one.name(), &proof),
            Err(error) => {
                let why = with_causes(&error);
                tracing::warn!(name = one.name(), why, "not looked into");
            }
        }
    }

    async fn prune(&self, now: Timestamp) -> io::Result<()> {
        let kept = kept(&self.listed().await?);
        for name in expired(now, &kept, self.settings.policy.retention) {
            tracing::info!(name, "deleted: newer ones are there");
            self.folder.delete(name)?;
        }
        Ok(())
    }
}

/// The newest recurring one, where nothing is on record about how far it can be restored.
fn cut_off(now: Timestamp, listed: &[Listed]) -> Option<&Listed> {
    let recurring = recurring(listed).filter(|(taken, _)| *taken <= now);
    let (_, newest) = recurring.max_by_key(|(taken, _)| *taken)?;
    newest.proof.is_none().then_some(newest)
}

/// When those that are there were taken by the schedule.
fn taken(listed: &[Listed]) -> Vec<Timestamp> {
    recurring(listed).map(|(taken, _)| taken).collect()
}

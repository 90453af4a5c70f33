//! Copies the node's snapshots to the bucket when that is due, and deletes there what newer copies replace.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use object_store::ObjectMeta;

use super::{
    bucket::{self, BucketError, Store},
    copies::wanted,
    folder::{Folder, kept},
    prune::expired,
    record::{Copies, LastFailure, Listed, Meta, Proof},
    schedule::PAUSES,
    settings::Settings,
};
use crate::model::Bucket;

/// How long one visit to the bucket may take.
const VISIT: Duration = Duration::from_secs(60 * 60);

/// What an object says about itself, by its name and what changes with its content.
type Known = BTreeMap<(String, Option<String>, i64), Option<(Meta, Option<Proof>)>>;

/// The copies of a node.
pub(super) struct Copier<'a> {
    settings: &'a Settings,
    bucket: &'a Bucket,
    /// When the bucket is to be looked into; `None`: after the next snapshot.
    due: Option<Timestamp>,
    failures: usize,
    known: Known,
    shown: Copies,
}

impl<'a> Copier<'a> {
    /// `None`: the config has no bucket. Begins by listing it: a run may have ended between a snapshot and its copy.
    pub(super) fn new(settings: &'a Settings, now: Timestamp) -> Option<Self> {
        let bucket = settings.bucket.as_ref()?;
        Some(Self {
            settings,
            bucket,
            due: Some(now),
            failures: 0,
            known: Known::new(),
            shown: Copies {
                bucket: bucket::place(bucket),
                ..Copies::default()
            },
        })
    }

    pub(super) fn shown(&self) -> Copies {
        self.shown.clone()
    }

    /// When there is something to do.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<Timestamp> {
        let longest = PAUSES.last().copied().unwrap_or_default();
        // The clock was set back.
        if self.due > now.saturating_add(longest).ok() {
            self.due = Some(now);
        }
        self.due
    }

    /// There is another snapshot.
    pub(super) fn look_at(&mut self, now: Timestamp) {
        (self.due, self.failures) = (Some(now), 0);
    }

    /// Looks into the bucket, copies what it lacks, and deletes what is no longer kept.
    pub(super) async fn visit(&mut self, now: Timestamp, folder: &Folder, own: &[Listed]) {
        let visited = tokio::time::timeout(VISIT, self.visited(now, folder, own)).await;
        let why = match visited {
            Ok(Ok(())) => {
                (self.due, self.failures, self.shown.failure) = (None, 0, None);
                return;
            }
            Ok(Err(error)) => error.line(),
            Err(_) => format!(
                "copying to the bucket {} took longer than {} minutes",
                self.shown.bucket,
                VISIT.as_secs() / 60
            ),
        };
        tracing::error!(why, "not copied");
        let pause = PAUSES.get(self.failures);
        self.due = pause.map(|pause| now.saturating_add(*pause).unwrap_or(now));
        self.failures += 1;
        self.shown.failure = Some(LastFailure { at: now, why });
    }

    async fn visited(
        &mut self,
        now: Timestamp,
        folder: &Folder,
        own: &[Listed],
    ) -> Result<(), BucketError> {
        let store = Store::open(self.bucket)?;
        self.look(now, &store).await?;
        let policy = &self.settings.policy;
        let there = kept(&self.shown.snapshots);
        if let Some(one) = wanted(now, policy.interval, own, &there) {
            store.copy(one, &folder.zip(one.name())).await?;
            tracing::info!(name = one.name(), bucket = store.place(), "copied");
            self.look(now, &store).await?;
        }
        let there = kept(&self.shown.snapshots);
        let gone = expired(now, &there, policy.retention);
        if gone.is_empty() {
            return Ok(());
        }
        for name in gone {
            let file = bucket::object(name);
            // Its record is read once more first.
            let record = store.record(&file).await?;
            if record.is_some_and(|(meta, _)| meta.cluster_id == self.settings.cluster_id) {
                tracing::info!(
                    name,
                    bucket = store.place(),
                    "deleted: newer copies are there"
                );
                store.delete(&file).await?;
            }
        }
        self.look(now, &store).await
    }

    /// What is there. Objects that were seen before are not asked again.
    async fn look(&mut self, now: Timestamp, store: &Store) -> Result<(), BucketError> {
        let mut known = Known::new();
        let mut listed = Vec::new();
        for object in store.list().await? {
            let Some(file) = object.location.filename().map(str::to_owned) else {
                continue;
            };
            let ObjectMeta {
                e_tag,
                last_modified,
                size,
                ..
            } = object;
            let key = (file.clone(), e_tag, last_modified.timestamp_millis());
            let record = match self.known.remove(&key) {
                Some(record) => record,
                None if !bucket::is_object(&file) => None,
                None => store.record(&file).await?,
            };
            let own = record
                .as_ref()
                .filter(|(meta, _)| meta.cluster_id == self.settings.cluster_id);
            let (meta, proof) = own.cloned().unzip();
            listed.push(Listed {
                file,
                bytes: size,
                meta,
                proof: proof.flatten(),
            });
            known.insert(key, record);
        }
        listed.sort_by(|one, other| one.file.cmp(&other.file));
        (self.known, self.shown.snapshots, self.shown.looked) = (known, listed, Some(now));
        Ok(())
    }
}

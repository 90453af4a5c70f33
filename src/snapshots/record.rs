//! What is on record about a snapshot: in its file, next to it, and in the report of its node. Pure.

use std::{collections::BTreeMap, str::FromStr};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{ClusterId, NodeName, printable};

/// The form of [`Meta`].
pub const FORMAT: u32 = 1;

/// Why a snapshot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SnapshotCause")]
pub enum Cause {
    /// By the schedule.
    Scheduled,
    /// A person requested it.
    Asked,
    /// The cluster is about to be deleted.
    BeforeDelete,
    /// Kubernetes is about to get another minor release.
    BeforeUpgrade,
    /// Keys or authorities are about to be replaced.
    BeforeRotation,
}

impl Cause {
    const ALL: [Self; 5] = [
        Self::Scheduled,
        Self::Asked,
        Self::BeforeDelete,
        Self::BeforeUpgrade,
        Self::BeforeRotation,
    ];

    /// The word on record.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Asked => "Asked",
            Self::BeforeDelete => "BeforeDelete",
            Self::BeforeUpgrade => "BeforeUpgrade",
            Self::BeforeRotation => "BeforeRotation",
        }
    }
}

impl FromStr for Cause {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|cause| cause.name() == text);
        found.ok_or_else(|| format!("no reason for a snapshot: `{text}`"))
    }
}

/// What a snapshot's file says about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// The version of this record, [`FORMAT`].
    pub format: u32,
    /// Whose it is.
    pub cluster_id: ClusterId,
    /// Its name, for people.
    pub cluster_name: String,
    /// The node whose member it is of.
    pub node: NodeName,
    /// etcd's id of the member, in hex.
    pub member: String,
    /// etcd's id of its cluster, in hex.
    pub etcd_cluster_id: String,
    /// The member's version.
    pub etcd_version: String,
    /// The release of Kubernetes.
    pub kubernetes_version: String,
    /// When it was taken.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub taken_at: Timestamp,
    /// Why.
    pub cause: Cause,
    /// etcd's revision before it was taken; the snapshot has this one or a later one.
    pub revision: i64,
    /// etcd's revision after it was taken; the snapshot has this one or an earlier one.
    pub revision_after: i64,
    /// The keys that etcd had before it was taken.
    pub keys: u64,
    /// The bytes of the database with its hash.
    pub bytes: u64,
    /// The hash of the database, as etcd wrote it behind it.
    pub sha256: String,
    /// The version of rke-operator.
    pub operator: String,
}

/// How far a snapshot was verified.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Grade {
    /// It could not be restored: why is next to it.
    Failed,
    /// Its hash was right when it was written.
    Saved,
    /// etcd's own program has read every page.
    Checked,
    /// It was restored into a throw-away etcd, which answered with what was expected.
    Proven,
}

/// The result of a trial restore, in a file next to the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proof {
    /// How far it was verified.
    pub grade: Grade,
    /// When.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Timestamp,
    /// On which node.
    pub by: NodeName,
    /// The version of the etcd that read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// The revision in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The keys in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// How long that took, in seconds.
    pub seconds: u64,
    /// Why it came no further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A file in the folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// The name of the file.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// What it says about itself; none if rke-operator did not write it for this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
    /// The result of its trial restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

impl Listed {
    /// The name of the snapshot, as `etcd snapshot-restore --name` takes it.
    pub fn name(&self) -> &str {
        self.file.strip_suffix(".zip").unwrap_or(&self.file)
    }

    /// How far it was looked into; `None` for what is not of this program.
    pub fn grade(&self) -> Option<Grade> {
        self.meta.as_ref()?;
        Some(
            self.proof
                .as_ref()
                .map_or(Grade::Saved, |proof| proof.grade),
        )
    }
}

/// Those that were taken by the schedule, with the time.
pub(super) fn recurring(listed: &[Listed]) -> impl Iterator<Item = (Timestamp, &Listed)> {
    listed.iter().filter_map(|one| {
        let meta = one.meta.as_ref()?;
        (meta.cause == Cause::Scheduled).then_some((meta.taken_at, one))
    })
}

/// A failure to take a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastFailure {
    /// When.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Timestamp,
    /// Why.
    pub why: String,
}

/// What a node has found in the bucket, and its attempts to copy into it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Copies {
    /// The bucket, for people.
    pub bucket: String,
    /// When it was last looked into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked: Option<Timestamp>,
    /// The last attempt, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<LastFailure>,
    /// The objects in the folder, by name.
    #[serde(default)]
    pub snapshots: Vec<Listed>,
}

/// What the program on a node says about its snapshots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The node.
    pub node: NodeName,
    /// When it takes the next one.
    pub next: Timestamp,
    /// The last attempt, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<LastFailure>,
    /// What is in its folder, by name.
    pub snapshots: Vec<Listed>,
    /// The bucket, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copies>,
}

impl Report {
    /// The same with what cannot be printed escaped: it is the word of a node.
    #[must_use]
    pub fn printable(mut self) -> Self {
        let escape = |text: &mut String| *text = printable(text).into_owned();
        let escape_all = |listed: &mut Vec<Listed>| {
            for one in listed {
                escape(&mut one.file);
                if let Some(why) = one.proof.as_mut().and_then(|proof| proof.why.as_mut()) {
                    escape(why);
                }
            }
        };
        if let Some(failure) = &mut self.failure {
            escape(&mut failure.why);
        }
        escape_all(&mut self.snapshots);
        if let Some(copies) = &mut self.copies {
            escape(&mut copies.bucket);
            if let Some(failure) = &mut copies.failure {
                escape(&mut failure.why);
            }
            escape_all(&mut copies.snapshots);
        }
        self
    }
}

/// What the programs on the nodes answered, or why one did not.
pub type Reports = BTreeMap<NodeName, Result<Report, String>>;

/// Why what was read back cannot be what was saved; `None`: it fits. A key may come or go with each revision.
pub fn contradiction(meta: &Meta, revision: i64, keys: Option<u64>) -> Option<String> {
    if revision < meta.revision || revision > meta.revision_after {
        return Some(format!(
            "its revision is {revision}, and etcd was at {} to {} when it was taken",
            meta.revision, meta.revision_after
        ));
    }
    let written = (revision - meta.revision).unsigned_abs();
    let keys = keys.filter(|keys| keys.abs_diff(meta.keys) > written.saturating_mul(TRANSACTION));
    keys.map(|keys| {
        format!(
            "it has {keys} keys, and etcd had {} when it was taken",
            meta.keys
        )
    })
}

/// So many keys one revision may add or delete: etcd's default limit of a transaction. (A range may delete more; API
/// servers do not delete ranges.)
const TRANSACTION: u64 = 128;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An example.
    pub(crate) fn meta() -> Meta {
        Meta {
            format: FORMAT,
            cluster_id: ClusterId("c-1".to_owned()),
            cluster_name: "prod".to_owned(),
            node: NodeName::from("n1"),
            member: "1".to_owned(),
            etcd_cluster_id: "2".to_owned(),
            etcd_version: "3.6.7".to_owned(),
            kubernetes_version: "v1.34.4".to_owned(),
            taken_at: Timestamp::UNIX_EPOCH,
            cause: Cause::Scheduled,
            revision: 100,
            revision_after: 102,
            keys: 50,
            bytes: 1,
            sha256: String::new(),
            operator: "0.1.0".to_owned(),
        }
    }

    #[test]
    fn what_was_read_back_is_compared_with_what_was_there() {
        let meta = meta();
        assert_eq!(contradiction(&meta, 100, Some(50)), None);
        assert_eq!(contradiction(&meta, 102, Some(306)), None);
        assert_eq!(contradiction(&meta, 101, None), None);
        let why = |revision, keys| contradiction(&meta, revision, keys).unwrap();
        assert!(why(99, None).contains("its revision is 99"));
        assert!(why(103, Some(50)).contains("100 to 102"));
        assert!(why(100, Some(49)).contains("it has 49 keys, and etcd had 50"));
    }
}

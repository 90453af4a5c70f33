//! Copies of snapshots in a bucket of a real server of S3, next to a real etcd on a loopback address.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use lab::S3;
use rke_operator::{
    model::{AccessKeys, Bucket, Retention},
    snapshots::record::{Copies, Report},
};

use crate::lab_snapshot_agent::{AT, HOUR, Site, own, policy, proven};

pub(crate) struct Copied {
    pub(crate) site: Site,
    pub(crate) server: S3,
    /// The objects, as files.
    pub(crate) folder: PathBuf,
    _files: tempfile::TempDir,
}

impl Copied {
    pub(crate) fn new(port: u16) -> Self {
        let files = tempfile::tempdir().expect("a folder");
        let address = SocketAddr::new(AT.parse().expect("an address"), port + 100);
        let log = &mut std::io::stderr();
        let server = S3::start(address, files.path(), log).expect("a server of S3");
        let folder = server.bucket("backups").expect("a bucket").join("prod");
        fs::create_dir(&folder).expect("a folder");
        let mut site = Site::new(port);
        site.bucket = Some(Bucket {
            endpoint: server.endpoint(),
            region: None,
            name: "backups".to_owned(),
            folder: Some("prod".to_owned()),
            ca: Some(server.ca().expect("a certificate")),
            keys: Some(AccessKeys {
                access: S3::ACCESS_KEY.to_owned().into(),
                secret: S3::SECRET_KEY.to_owned().into(),
            }),
        });
        site.start_member();
        site.fill(3);
        Self {
            site,
            server,
            folder,
            _files: files,
        }
    }

    /// The objects, by name.
    pub(crate) fn objects(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.folder).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }
}

fn copies(report: &Report) -> &Copies {
    report.copies.as_ref().expect("a bucket")
}

/// The names of the objects that are this cluster's.
fn copied(report: &Report) -> Vec<String> {
    let all = copies(report).snapshots.iter();
    all.filter(|one| one.meta.is_some())
        .map(|one| one.file.clone())
        .collect()
}

fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).expect("a file") == fs::read(other).expect("a file")
}

#[tokio::test]
async fn each_round_is_copied_and_read_back_and_no_object_of_others_is_touched() {
    let copied_to = Copied::new(24_386);
    let (site, folder) = (&copied_to.site, &copied_to.folder);
    // Those of RKE, of people, and of clusters that share the folder.
    let others = [
        "2020-01-01T00:00:00Z_etcd.zip",
        "before-the-upgrade",
        "2026-11-28T10:00:00Z_etcd",
    ];
    for other in others {
        fs::write(folder.join(other), other).expect("an object");
    }
    let keep = policy(Retention::Newest(4));
    site.with_agent(keep, async {
        let first = site
            .until("a copy", |report| copied(report).len() == 1)
            .await;
        let name = &copied(&first)[0];
        assert!(same(&folder.join(name), &site.snapshots().join(name)));
        assert_eq!(copies(&first).failure, None);
        let (_, local) = own(&first).next().expect("a snapshot");
        let there = copies(&first)
            .snapshots
            .iter()
            .find(|one| one.file == *name);
        assert_eq!(there, Some(local));
        let mut last = name.clone();
        for round in 2..=7 {
            site.round(0).await;
            let report = site
                .until("the next copy", |report| {
                    copied(report).last().is_some_and(|name| *name > last)
                })
                .await;
            let names = copied(&report);
            last.clone_from(names.last().expect("a copy"));
            assert_eq!(names.len(), round.min(4), "{names:?}");
            assert!(same(&folder.join(&last), &site.snapshots().join(&last)));
        }
    })
    .await;
    let objects = copied_to.objects();
    for other in others {
        assert!(objects.contains(other), "{objects:?}");
        assert_eq!(
            fs::read(folder.join(other)).expect("an object"),
            other.as_bytes()
        );
    }
    assert_eq!(objects.len(), others.len() + 4, "{objects:?}");
}

#[tokio::test]
async fn a_bucket_that_is_away_costs_no_snapshot_and_is_reported_with_a_cure() {
    let mut copied_to = Copied::new(24_387);
    let keep = policy(Retention::Newest(4));
    let whole = copied_to.site.bucket.clone().expect("a bucket");
    let wrong_keys = AccessKeys {
        access: S3::ACCESS_KEY.to_owned().into(),
        secret: "another".to_owned().into(),
    };
    for (bucket, why, cure) in [
        (
            Bucket {
                keys: Some(wrong_keys),
                ..whole.clone()
            },
            "SignatureDoesNotMatch",
            "look at `secret_key`",
        ),
        (
            Bucket {
                name: "no-such-bucket".to_owned(),
                ..whole.clone()
            },
            "NoSuchBucket",
            "make the bucket, or mend `bucket_name`",
        ),
        (
            Bucket {
                ca: Some(other_authority()),
                ..whole.clone()
            },
            "UnknownIssuer",
            "`custom_ca`",
        ),
    ] {
        copied_to.site.bucket = Some(bucket);
        let site = &copied_to.site;
        site.with_agent(keep.clone(), async {
            let report = site
                .until("a failure", |report| {
                    copies(report).failure.is_some() && proven(report) >= 1
                })
                .await;
            let failure = copies(&report).failure.clone().expect("a failure");
            assert!(failure.why.contains(why), "{}", failure.why);
            assert!(failure.why.contains(cure), "{}", failure.why);
            assert!(!failure.why.contains("another"), "{}", failure.why);
            assert_eq!(report.failure, None);
        })
        .await;
    }
    // The server is away for some rounds; once it is back, the newest is there.
    copied_to.site.bucket = Some(whole);
    copied_to.server.stop();
    let site = &copied_to.site;
    site.with_agent(keep.clone(), async {
        for _ in 0..2 {
            site.jump(HOUR);
            let hour = site.clock().now();
            site.until("a failure in this hour", |report| {
                let failure = copies(report).failure.as_ref();
                failure.is_some_and(|failure| failure.at >= hour) && report.next > hour
            })
            .await;
        }
    })
    .await;
    assert!(copied_to.objects().is_empty());
    copied_to.server.resume().expect("it starts again");
    let site = &copied_to.site;
    site.with_agent(keep, async {
        let report = site
            .until("a copy", |report| copied(report).len() == 1)
            .await;
        let newest = own(&report).max_by_key(|(taken, _)| *taken);
        assert_eq!(copied(&report)[0], newest.expect("a snapshot").1.file);
        assert_eq!(copies(&report).failure, None);
    })
    .await;
}

/// The certificate of an authority that signed nothing there.
fn other_authority() -> String {
    let (files, _) = crate::etcd_support::members(&["127.0.0.1"]);
    files[&"127.0.0.1".into()].ca.clone()
}

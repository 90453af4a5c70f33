//! A thousand rounds of the program that takes snapshots, next to a real etcd and a real server of S3: with a clock that
//! jumps, a disk that fills, a member and a bucket that are away, objects that go, and a program that is ended at any time.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use jiff::SignedDuration;
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRng, TestRunner},
};
use rke_operator::{
    model::Retention,
    snapshots::record::{Grade, Report},
};

use crate::{
    lab_snapshot_agent::{HOUR, Site, foreign, own, policy},
    lab_snapshot_copies::Copied,
    real::publish,
};

/// How many rounds; `ROUNDS` says another number.
const ROUNDS: usize = 1000;
/// How many snapshots are kept.
const KEPT: usize = 4;
/// What a clock that was set back leaves to be kept besides: those that seem to be of the future, and the last proven one.
const MORE: usize = 8;
/// The disk of the snapshots: a member that is restored for trial wants the most of it.
const DISK: &str = "size=400m";

/// What goes wrong before a round.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    /// The clock, by so many minutes.
    Clock(i64),
    /// The member is away in the hour before.
    Member,
    /// The disk is full in the hour before.
    Disk,
    /// The bucket is away in the hour before.
    Bucket,
    /// The newest object is gone, or cut to so many bytes.
    Object(Option<u64>),
    /// The program is ended in the hour before, after so many milliseconds.
    Ended(u64),
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        4 => Just(Trouble::None),
        2 => (-72 * 60..72 * 60_i64).prop_map(Trouble::Clock),
        1 => Just(Trouble::Member),
        1 => Just(Trouble::Disk),
        1 => Just(Trouble::Bucket),
        1 => proptest::option::of(0..2000_u64).prop_map(Trouble::Object),
        2 => (0..800_u64).prop_map(Trouble::Ended),
    ]
}

/// A disk of memory over a folder.
struct Disk(PathBuf);

impl Disk {
    fn over(folder: &Path) -> Self {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", DISK, "tmpfs"])
            .arg(folder)
            .status();
        assert!(mount.expect("mount runs").success());
        Self(folder.to_owned())
    }

    /// Leaves no room. The file that takes it.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("of-another-program");
        let mut file = fs::File::create(&path).expect("a file");
        let block = vec![0; 1 << 20];
        while file.write_all(&block).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

struct Rounds {
    /// Goes first: the folder that it is over is deleted with the next.
    disk: Disk,
    at: Copied,
    most: usize,
    met: BTreeMap<String, usize>,
}

impl Rounds {
    /// What goes wrong in the hour before a round.
    async fn meet(&mut self, trouble: Trouble) {
        let name = format!("{trouble:?}");
        let kind = name.split('(').next().unwrap_or_default().to_owned();
        *self.met.entry(kind).or_default() += 1;
        let site = &mut self.at.site;
        match trouble {
            Trouble::None => {}
            Trouble::Clock(minutes) => site.jump(minutes * 60),
            Trouble::Member => {
                site.stop_member();
                failed(site).await;
                site.start_member();
            }
            Trouble::Disk => {
                let full = self.disk.fill();
                failed(site).await;
                fs::remove_file(full).expect("the file of another program");
            }
            Trouble::Bucket => {
                self.at.server.stop();
                taken(&self.at.site).await;
                self.at.server.resume().expect("it starts again");
            }
            Trouble::Object(left) => {
                let Some(newest) = self.at.objects().into_iter().rfind(|name| is_own(name)) else {
                    return;
                };
                let path = self.at.folder.join(newest);
                match left {
                    None => fs::remove_file(path).expect("an object"),
                    Some(bytes) => {
                        let object = fs::OpenOptions::new().write(true).open(path);
                        object.expect("an object").set_len(bytes).expect("cut");
                    }
                }
            }
            Trouble::Ended(after) => {
                site.jump(HOUR);
                site.with_agent(keep(), tokio::time::sleep(Duration::from_millis(after)))
                    .await;
            }
        }
    }
}

fn keep() -> rke_operator::model::SnapshotPolicy {
    policy(Retention::Newest(
        u32::try_from(KEPT).expect("a small number"),
    ))
}

fn is_own(object: &str) -> bool {
    object.ends_with("Z_etcd.zip") && !object.starts_with("2020-")
}

/// In the next hour that has none yet none can be taken, which costs none that is there.
async fn failed(site: &Site) {
    site.with_agent(keep(), async {
        let before = site.until("a report", |_| true).await;
        loop {
            site.jump(HOUR);
            let hour = site.clock().now();
            let in_it =
                |report: &Report| report.failure.as_ref().is_some_and(|last| last.at >= hour);
            // An hour that the clock was in before has one.
            let report = site.until("a failure", |report| in_it(report) || report.next > hour);
            let report = report.await;
            assert_eq!(report.snapshots, before.snapshots);
            if in_it(&report) {
                break;
            }
        }
    })
    .await;
}

/// An hour later there is one of this hour, and it was proven.
async fn taken(site: &Site) -> Report {
    site.jump(HOUR);
    site.with_agent(keep(), async {
        let now = site.clock().now();
        let hour_before = now - SignedDuration::from_secs(HOUR);
        site.until("one of this hour", |report| {
            let present = hour_before..=site.clock().now();
            let mut present = own(report).filter(|(taken, _)| present.contains(taken));
            report.next > now && present.any(|(_, one)| one.grade() == Some(Grade::Proven))
        })
        .await
    })
    .await
}

#[tokio::test]
async fn there_is_always_one_that_was_proven_and_nothing_of_others_is_touched() {
    let rounds = env::var("ROUNDS").map_or(ROUNDS, |text| text.parse().expect("a number"));
    let at = Copied::new(24_388);
    let disk = Disk::over(&at.site.snapshots());
    let others = [
        ("before-the-upgrade", &b"plain"[..]),
        ("2020-01-01T00:00:00Z-etcd.zip", b"PK"),
        ("rke_etcd_snapshot_2020-01-01T00:00:00Z.zip", b"zip"),
    ];
    for (name, content) in others {
        fs::write(at.site.snapshots().join(name), content).expect("a file");
        fs::write(at.folder.join(name), content).expect("an object");
    }
    let untouched = foreign(&at.site.snapshots());
    assert_eq!(untouched.len(), others.len());
    let mut all = Rounds {
        disk,
        at,
        most: 0,
        met: BTreeMap::new(),
    };
    taken(&all.at.site).await;
    let rng = TestRng::deterministic_rng(Config::default().rng_algorithm);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for round in 1..=rounds {
        let tree = trouble().new_tree(&mut runner).expect("a trouble");
        let trouble = tree.current();
        all.meet(trouble).await;
        let report = taken(&all.at.site).await;
        let count = own(&report).count();
        all.most = all.most.max(count);
        assert!(count <= KEPT + MORE, "{round}, {trouble:?}: {report:#?}");
        for (name, content) in others {
            let object = fs::read(all.at.folder.join(name)).expect("an object");
            assert_eq!(object, content, "{round}, {trouble:?}");
        }
        let there = foreign(&all.at.site.snapshots());
        assert_eq!(there, untouched, "{round}, {trouble:?}");
    }
    let met = all
        .met
        .iter()
        .map(|(trouble, times)| format!("{trouble} {times}"));
    let met: Vec<String> = met.collect();
    let table = format!(
        "{rounds} rounds, at most {} snapshots at once; before them: {}",
        all.most,
        met.join(", ")
    );
    publish("HA_TABLE", &table);
}

//! The program that takes snapshots, next to a real etcd on a loopback address: with a clock that jumps, files of others
//! in its folder, a member that is away, and a program that is ended at any time.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use rke_operator::{
    apply::stop::{StopCause, Stopper},
    environment::Clock,
    model::{Bucket, ClusterId, NodeName, Retention, SnapshotPolicy},
    snapshots::{
        self, Programs,
        record::{Grade, Listed, Report},
        settings::Settings,
    },
};
use tokio::net::TcpStream;

use crate::etcd_support::{MemberFiles, members};

pub(crate) const AT: &str = "127.77.1.1";
const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const HOUR: i64 = 3600;

pub(crate) struct Site {
    folder: tempfile::TempDir,
    member: Option<Child>,
    etcdctl: PathBuf,
    /// Seconds that the program's clock is ahead of this machine's.
    ahead: Arc<AtomicI64>,
    port: u16,
    /// Where snapshots are copied to.
    pub(crate) bucket: Option<Bucket>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop_member();
    }
}

impl Site {
    pub(crate) fn new(port: u16) -> Self {
        let site = Self {
            folder: tempfile::tempdir().expect("a folder"),
            member: None,
            etcdctl: lab::etcd_tool("etcdctl", &mut std::io::stderr()).expect("etcdctl"),
            ahead: Arc::default(),
            port,
            bucket: None,
        };
        let (files, _) = members(&[AT]);
        let MemberFiles { ca, cert, key } = &files[&AT.into()];
        for (name, text) in [("ca", ca), ("cert", cert), ("key", key)] {
            fs::write(site.path(name), text).expect("a file");
        }
        fs::create_dir(site.snapshots()).expect("a folder");
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.path("snapshots")
    }

    /// One port of the member for each test: they run at the same time.
    fn client(&self) -> u16 {
        self.port - 1000
    }

    pub(crate) fn start_member(&mut self) {
        let program = lab::etcd(lab::KUBERNETES_VERSION, &mut std::io::stderr()).expect("etcd");
        let url = format!("https://{AT}:{}", self.client());
        let peer = format!("https://{AT}:{}", self.port - 2000);
        let path = |name: &str| self.path(name).display().to_string();
        let member = Command::new(program)
            .args([
                "--name=n1".to_owned(),
                format!("--data-dir={}", path("data")),
                format!("--listen-client-urls={url}"),
                format!("--advertise-client-urls={url}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=n1={peer}"),
                format!("--trusted-ca-file={}", path("ca")),
                format!("--cert-file={}", path("cert")),
                format!("--key-file={}", path("key")),
                format!("--peer-trusted-ca-file={}", path("ca")),
                format!("--peer-cert-file={}", path("cert")),
                format!("--peer-key-file={}", path("key")),
                "--client-cert-auth=true".to_owned(),
                "--unsafe-no-fsync".to_owned(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.path("log")).expect("a log"))
            .spawn()
            .expect("etcd starts");
        self.member = Some(member);
        let begun = Instant::now();
        while !self.etcdctl(&["endpoint", "health"]) {
            assert!(begun.elapsed() < LIMIT, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn stop_member(&mut self) {
        if let Some(mut member) = self.member.take() {
            let _ = member.kill();
            let _ = member.wait();
        }
    }

    fn etcdctl(&self, words: &[&str]) -> bool {
        let run = Command::new(&self.etcdctl)
            .arg(format!("--endpoints=https://{AT}:{}", self.client()))
            .arg(format!("--cacert={}", self.path("ca").display()))
            .arg(format!("--cert={}", self.path("cert").display()))
            .arg(format!("--key={}", self.path("key").display()))
            .args(words)
            .stdin(Stdio::null())
            .output()
            .expect("etcdctl runs");
        run.status.success()
    }

    /// What every Kubernetes has, and some more.
    pub(crate) fn fill(&self, keys: usize) {
        assert!(self.etcdctl(&["put", "/registry/namespaces/kube-system", "{}"]));
        for key in 0..keys {
            let name = format!("/registry/configmaps/default/c{key}");
            assert!(self.etcdctl(&["put", &name, "a value"]));
        }
    }

    fn settings(&self, policy: SnapshotPolicy) -> PathBuf {
        let path = |name: &str| self.path(name).display().to_string();
        let settings = Settings {
            cluster_id: ClusterId("c-1".to_owned()),
            cluster_name: "prod".to_owned(),
            node: NodeName::from("n1"),
            kubernetes_version: lab::KUBERNETES_VERSION.to_owned(),
            policy,
            bucket: self.bucket.clone(),
            ca: path("ca"),
            cert: path("cert"),
            key: path("key"),
        };
        let file = self.path("settings.json");
        fs::write(&file, serde_json::to_string(&settings).expect("JSON")).expect("a file");
        file
    }

    fn programs(&self) -> Programs {
        let mut log = std::io::stderr();
        Programs {
            etcd: lab::etcd_tool("etcd", &mut log).expect("etcd"),
            etcdutl: lab::etcd_tool("etcdutl", &mut log).expect("etcdutl"),
            folder: self.snapshots(),
            member: SocketAddr::new(AT.parse().expect("an address"), self.client()),
            port: self.port,
            looks: Duration::from_millis(20),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        let ahead = Arc::clone(&self.ahead);
        Clock::new(move || now() + SignedDuration::from_secs(ahead.load(Ordering::Relaxed)))
    }

    pub(crate) fn jump(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::Relaxed);
    }

    /// The program runs while this does.
    pub(crate) async fn with_agent<T>(
        &self,
        policy: SnapshotPolicy,
        work: impl Future<Output = T>,
    ) -> T {
        let (stopper, stop) = Stopper::new();
        let (settings, clock) = (self.settings(policy), self.clock());
        let agent = snapshots::run(&settings, self.programs(), &clock, &stop);
        let work = async {
            let done = work.await;
            stopper.stop(StopCause::Signal);
            done
        };
        let (ended, done) = tokio::join!(agent, work);
        ended.expect("a program that works until it is stopped");
        done
    }

    pub(crate) async fn report(&self) -> Option<Report> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        snapshots::report(Box::new(stream)).await.ok()
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Report) -> bool) -> Report {
        let begun = Instant::now();
        loop {
            let report = self.report().await;
            if let Some(report) = report.as_ref().filter(|report| holds(report)) {
                return report.clone();
            }
            assert!(begun.elapsed() < LIMIT, "{what}: {report:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The next round: an hour later, one more was taken and proven.
    pub(crate) async fn round(&self, before: usize) -> Report {
        self.jump(HOUR);
        let now = (self.clock()).now();
        let hour_ago = now - SignedDuration::from_secs(HOUR);
        self.until("another snapshot", |report| {
            let newest = own(report).map(|(taken, _)| taken).max();
            report.next > now && newest > Some(hour_ago) && report.snapshots.len() >= before
        })
        .await
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test is where the time comes in"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

pub(crate) fn policy(retention: Retention) -> SnapshotPolicy {
    SnapshotPolicy {
        interval: HOUR.unsigned_abs(),
        retention,
        timeout: 30,
        safe_timestamp: false,
    }
}

/// Those of this cluster, by time.
pub(crate) fn own(report: &Report) -> impl Iterator<Item = (Timestamp, &Listed)> {
    let listed = report.snapshots.iter();
    listed.filter_map(|one| Some((one.meta.as_ref()?.taken_at, one)))
}

pub(crate) fn proven(report: &Report) -> usize {
    own(report)
        .filter(|(_, one)| one.grade() == Some(Grade::Proven))
        .count()
}

/// Everything in the folder that is not this program's.
pub(crate) fn foreign(folder: &Path) -> BTreeSet<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("a folder");
    let entries = entries.map(|entry| entry.expect("an entry").path());
    entries
        .filter(|path| path.is_file())
        .filter(|path| !path.to_string_lossy().contains("Z_etcd"))
        .map(|path| {
            let content = fs::read(&path).expect("a file");
            (path.display().to_string(), content)
        })
        .collect()
}

#[tokio::test]
async fn every_hour_has_one_snapshot_that_was_restored_for_trial() {
    let mut site = Site::new(24_381);
    site.start_member();
    site.fill(40);
    // As a person's, RKE's, and another cluster's would lie there.
    for (file, content) in [
        ("before-the-upgrade", &b"plain"[..]),
        ("2020-01-01T00:00:00Z-etcd.zip", b"PK"),
        ("rke_etcd_snapshot_2020-01-01T00:00:00Z.zip", b"zip"),
        (".hidden", b""),
    ] {
        fs::write(site.snapshots().join(file), content).expect("a file");
    }
    let others = foreign(&site.snapshots());
    site.with_agent(policy(Retention::Newest(4)), async {
        let first = site.until("the first", |report| proven(report) == 1).await;
        let (_, one) = own(&first).next().expect("a snapshot");
        let (meta, proof) = (one.meta.clone().expect("a record"), one.proof.clone());
        let proof = proof.expect("a proof");
        assert_eq!((meta.keys, proof.keys), (41, Some(41)));
        assert_eq!(proof.revision, Some(meta.revision));
        assert!(meta.etcd_version.starts_with("3.6."), "{meta:?}");
        assert_eq!(one.file, format!("{}.zip", one.name()));
        for round in 2..=8 {
            let report = site.round(0).await;
            let own: Vec<_> = own(&report).collect();
            assert_eq!(own.len(), round.min(4), "{report:#?}");
            assert_eq!(proven(&report), own.len(), "{report:#?}");
        }
        // Nothing more within the hour, whatever the clock does meanwhile.
        let before = site.report().await.expect("a report");
        tokio::time::sleep(Duration::from_millis(300)).await;
        let after = site.report().await.expect("a report");
        assert_eq!(before.snapshots, after.snapshots);
    })
    .await;
    assert_eq!(foreign(&site.snapshots()), others);
}

#[tokio::test]
async fn a_clock_that_jumps_costs_no_proven_snapshot() {
    let mut site = Site::new(24_382);
    site.start_member();
    site.fill(3);
    site.with_agent(policy(Retention::Younger(3 * HOUR.unsigned_abs())), async {
        site.until("the first", |report| proven(report) == 1).await;
        for jump in [
            30 * 24 * HOUR,
            -40 * 24 * HOUR,
            7 * HOUR,
            -HOUR / 2,
            365 * 24 * HOUR,
        ] {
            site.jump(jump);
            let jumped = site.clock().now();
            let hour_before = jumped - SignedDuration::from_secs(HOUR);
            let report = site
                .until("one in the present hour", |report| {
                    // The program may have taken it after `jumped`.
                    let present = hour_before..=site.clock().now();
                    report.next > jumped && own(report).any(|(taken, _)| present.contains(&taken))
                })
                .await;
            assert!(proven(&report) >= 1, "{report:#?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_member_that_is_away_is_a_failure_with_its_reason_and_costs_nothing() {
    let mut site = Site::new(24_383);
    site.start_member();
    site.fill(3);
    let keep = policy(Retention::Newest(2));
    site.with_agent(keep.clone(), async {
        site.until("the first", |report| proven(report) == 1).await;
    })
    .await;
    site.stop_member();
    site.with_agent(keep.clone(), async {
        site.jump(HOUR);
        let report = site
            .until("a failure", |report| report.failure.is_some())
            .await;
        let failure = report.failure.expect("a failure");
        assert!(failure.why.contains("etcd"), "{}", failure.why);
        // In a minute, and not at once.
        let now = site.clock().now();
        assert!(report.next > now, "{}", report.next);
        assert!(report.next <= now + SignedDuration::from_secs(60));
        assert_eq!(report.snapshots.len(), 1);
    })
    .await;
    site.start_member();
    site.with_agent(keep, async {
        let report = site.until("another", |report| proven(report) == 2).await;
        assert_eq!(report.failure, None);
    })
    .await;
}

#[tokio::test]
async fn a_program_that_is_ended_leaves_whole_snapshots_alone() {
    let mut site = Site::new(24_384);
    site.start_member();
    site.fill(20);
    let keep = policy(Retention::Newest(3));
    site.with_agent(keep.clone(), async {
        site.until("the first", |report| proven(report) == 1).await;
    })
    .await;
    for pause in (0..600).step_by(40) {
        site.jump(HOUR);
        site.with_agent(keep.clone(), async {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        })
        .await;
        for entry in fs::read_dir(site.snapshots()).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            let name = name.to_string_lossy();
            let whole = name.ends_with("Z_etcd.zip") || name.ends_with("Z_etcd.proof.json");
            assert!(whole || name == ".rke-operator-agent", "{name}");
        }
    }
    site.with_agent(keep, async {
        let report = site.round(0).await;
        assert!(proven(&report) >= 1, "{report:#?}");
        assert!(own(&report).count() <= 3 + 1, "{report:#?}");
    })
    .await;
}

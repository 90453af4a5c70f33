//! What a proof costs the member next to it: the time that etcd's own writes take while a snapshot is restored for trial,
//! next to the same without.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::Profile;

use crate::real::{Site, publish, tell};

/// How long is measured without a proof, and how many proofs are measured.
const QUIET: Duration = Duration::from_secs(30);
const PROOFS: usize = 20;

/// 100 transactions of ten values of 100 KiB.
const FILL: &str = "for i in $(seq 100); do
    { echo; for j in $(seq 10); do echo \"put lab/$i/$j $(head -c 76800 /dev/urandom | base64 -w 0)\"; done; echo; echo; } |
        docker exec -i etcd etcdctl txn >/dev/null
done";

/// One small write after the other.
const WRITE: &str =
    "for i in $(seq 20); do docker exec etcd etcdctl put lab/writer $i >/dev/null; done";

/// As the schedule proves one: in its own container.
const PROVE: &str = "docker exec etcd-rolling-snapshots \
    $(docker inspect --format '{{index .Config.Entrypoint 0}}' etcd-rolling-snapshots) snapshot-verify big";

/// How many of etcd's writes to its log took no longer than each of these, in seconds.
fn fsyncs(site: &Site) -> Vec<(f64, f64)> {
    let metrics = "docker exec etcd etcdctl version >/dev/null; curl -s http://127.0.0.1:2381/metrics |
        sed -n 's/^etcd_disk_wal_fsync_duration_seconds_bucket{le=\"\\(.*\\)\"} \\(.*\\)$/\\1 \\2/p'";
    let said = site.node().sh(metrics).expect("etcd's metrics");
    let pairs = said.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(le, count)| {
            let le = if le == "+Inf" {
                f64::INFINITY
            } else {
                le.parse().expect("a bound")
            };
            (le, count.trim().parse().expect("a count"))
        })
        .collect()
}

/// The bound below which 99 of 100 of the writes between two looks were, in seconds, by interpolation, and how many writes
/// there were.
fn p99(before: &[(f64, f64)], after: &[(f64, f64)]) -> (f64, f64) {
    let counts: Vec<(f64, f64)> = before
        .iter()
        .zip(after)
        .map(|((le, old), (_, new))| (*le, new - old))
        .collect();
    let all = counts.last().expect("buckets").1;
    let wanted = all * 0.99;
    let mut last = (0.0, 0.0);
    for (le, count) in counts {
        if count >= wanted {
            let part = (wanted - last.1) / (count - last.1).max(1.0);
            let top = if le.is_finite() { le } else { last.0 };
            return (last.0 + (top - last.0) * part, all);
        }
        last = (le, count);
    }
    (last.0, all)
}

#[test]
fn a_proof_leaves_the_member_its_disk() {
    let site = Site::new("ha-proof", Profile::Plain);
    site.run_static(&["up", "--yes"]).well();
    site.node().sh(FILL).expect("much in etcd");
    site.run_static(&["etcd", "snapshot-save", "--name", "big"])
        .well();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                site.node().sh(WRITE).expect("it is written");
            }
        });
        let begun = fsyncs(&site);
        thread::sleep(QUIET);
        let quiet = fsyncs(&site);
        let clock = Instant::now();
        for _ in 0..PROOFS {
            let said = site.node().sh(PROVE).expect("it is tried");
            assert!(said.contains("\"Proven\""), "{said}");
        }
        let took = clock.elapsed();
        let proven = fsyncs(&site);
        ended.store(true, Ordering::Relaxed);
        let ((without, few), (with, many)) = (p99(&begun, &quiet), p99(&quiet, &proven));
        tell(&format!("{few} and {many} writes"));
        publish(
            "HA_TABLE",
            &format!(
                "etcd's fsync, 99 of 100: {:.1} ms alone, {:.1} ms during {PROOFS} proofs of 100 MiB in {:.0} s: {:.2} times \
                 (aim: 2)",
                without * 1000.0,
                with * 1000.0,
                took.as_secs_f64(),
                with / without
            ),
        );
    });
}

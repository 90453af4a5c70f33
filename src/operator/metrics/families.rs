//! The families of metrics, as a table, and the series that the status of a `Cluster` gives. Pure: the table in the
//! documentation is held by a test, and no label is anything but a name, a version or a word of a fixed list.

use jiff::Timestamp;

use crate::api::{
    ClusterStatus,
    conditions::{ConditionStatus, ConditionType},
};

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    Counter,
    Histogram,
}

/// A family of metrics.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// Its name, without the `_total` of a counter.
    name: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static str],
    /// What it says, with its unit.
    pub(super) means: &'static str,
}

impl Family {
    /// As it is registered: the registry adds `_total` to counters.
    pub(super) const fn registered(&self) -> &'static str {
        self.name
    }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], means: &'static str) -> Family {
    Family {
        name,
        kind: Kind::Gauge,
        labels,
        means,
    }
}

pub(super) const INFO: Family = gauge(
    "rke_cluster_info",
    &["name", "cluster_id", "version", "desired_version"],
    "1 for each Cluster; the version that its API reports, and the one that its config asks for",
);
pub(super) const CONDITION: Family = gauge(
    "rke_cluster_condition",
    &["name", "type", "status"],
    "1 for the status that a condition has, 0 for the other two of True, False and Unknown",
);
pub(super) const REASON: Family = gauge(
    "rke_cluster_condition_reason",
    &["name", "type", "reason"],
    "1 for the reason that a condition has",
);
pub(super) const NODES: Family = gauge(
    "rke_cluster_nodes",
    &["name", "state"],
    "nodes of the config: total, and of these ready, up_to_date, unreachable",
);
pub(super) const NOT_AFTER: Family = gauge(
    "rke_cluster_certificate_not_after_timestamp_seconds",
    &["name", "component"],
    "when the certificate expires that expires first, in seconds since 1970",
);
pub(super) const SNAPSHOT: Family = gauge(
    "rke_cluster_snapshot_timestamp_seconds",
    &["name", "grade"],
    "when the newest snapshot of etcd was taken, in seconds since 1970: of those saved on a node, proven, copied to the bucket",
);
pub(super) const LAST_SURVEY: Family = gauge(
    "rke_cluster_last_survey_timestamp_seconds",
    &["name"],
    "when the cluster was last surveyed, rounded down to ten minutes, in seconds since 1970",
);
pub(super) const SLOTS: Family = gauge(
    "rke_slots",
    &["class", "state"],
    "Clusters worked on at once (deletes, changes, checks): total (half of it for Clusters that hang), used, and how many are waiting",
);
pub(super) const CONNECTIONS: Family = gauge(
    "rke_probe_connections",
    &[],
    "SSH connections that are kept to control planes, those that are being opened included",
);
pub(super) const LEADER: Family = gauge(
    "rke_leader",
    &[],
    "1 while this process holds the lease and has read the objects, else 0",
);
pub(super) const ORPHANED: Family = Family {
    kind: Kind::Counter,
    ..gauge(
        "rke_clusters_orphaned",
        &[],
        "Clusters that were let go with their nodes as they are",
    )
};
pub(super) const STEP_DURATION: Family = Family {
    kind: Kind::Histogram,
    ..gauge(
        "rke_step_duration_seconds",
        &["kind", "outcome"],
        "how long steps took, in seconds, by outcome (done, warned, failed)",
    )
};
pub(super) const STEP_FAILURES: Family = Family {
    kind: Kind::Counter,
    ..gauge("rke_step_failures", &["kind"], "steps that failed")
};
pub(super) const RECONCILES: Family = Family {
    kind: Kind::Counter,
    ..gauge(
        "controller_runtime_reconcile",
        &["controller", "result"],
        "reconciles by result: success, requeue (it waits for a slot), requeue_after, error (an API request failed, or a panic)",
    )
};
pub(super) const RECONCILE_ERRORS: Family = Family {
    kind: Kind::Counter,
    ..gauge(
        "controller_runtime_reconcile_errors",
        &["controller"],
        "reconciles that ended in an error",
    )
};
pub(super) const RECONCILE_TIME: Family = Family {
    kind: Kind::Histogram,
    ..gauge(
        "controller_runtime_reconcile_time_seconds",
        &["controller"],
        "how long reconciles took, in seconds",
    )
};
pub(super) const ACTIVE_WORKERS: Family = gauge(
    "controller_runtime_active_workers",
    &["controller"],
    "reconciles in progress",
);
pub(super) const MOST_WORKERS: Family = gauge(
    "controller_runtime_max_concurrent_reconciles",
    &["controller"],
    "how many reconciles can be in progress",
);
pub(super) const DEPTH: Family = gauge(
    "workqueue_depth",
    &["name"],
    "objects that wait for a reconcile",
);
pub(super) const ADDS: Family = Family {
    kind: Kind::Counter,
    ..gauge(
        "workqueue_adds",
        &["name"],
        "how often an object began to wait",
    )
};
pub(super) const WAITED: Family = Family {
    kind: Kind::Histogram,
    ..gauge(
        "workqueue_queue_duration_seconds",
        &["name"],
        "how long objects waited, in seconds",
    )
};
pub(super) const WORKED: Family = Family {
    kind: Kind::Histogram,
    ..gauge(
        "workqueue_work_duration_seconds",
        &["name"],
        "how long objects were worked on, in seconds",
    )
};
pub(super) const UNFINISHED: Family = gauge(
    "workqueue_unfinished_work_seconds",
    &["name"],
    "for how long the reconciles in progress run, in seconds, all together",
);
pub(super) const LONGEST: Family = gauge(
    "workqueue_longest_running_processor_seconds",
    &["name"],
    "for how long the longest of them runs, in seconds",
);
pub(super) const RETRIES: Family = Family {
    kind: Kind::Counter,
    ..gauge(
        "workqueue_retries",
        &["name"],
        "reconciles that are tried again after a failure",
    )
};

/// Those about Clusters: only the process that leads has them.
pub(super) const OF_CLUSTERS: [&Family; 7] = [
    &INFO,
    &CONDITION,
    &REASON,
    &NODES,
    &NOT_AFTER,
    &SNAPSHOT,
    &LAST_SURVEY,
];

/// Those about queues: the same.
pub(super) const OF_QUEUES: [&Family; 5] = [&SLOTS, &MOST_WORKERS, &DEPTH, &UNFINISHED, &LONGEST];

/// One series: its labels in the order of the family.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) family: &'static Family,
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: f64,
}

impl Series {
    pub(super) fn new<const N: usize>(
        family: &'static Family,
        values: [&str; N],
        value: f64,
    ) -> Self {
        let labels = family.labels.iter().zip(values);
        Self {
            family,
            labels: labels.map(|(key, text)| (*key, text.to_owned())).collect(),
            value,
        }
    }
}

/// What the status of a Cluster gives.
pub(super) fn of_cluster(name: &str, status: &ClusterStatus) -> Vec<Series> {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (id, version) = (text(&status.cluster_id), text(&status.version));
    let desired = text(&status.desired_version);
    let mut all = vec![Series::new(&INFO, [name, &id, &version, &desired], 1.0)];
    for row in ConditionType::TABLE {
        let kind = row.kind;
        let mut there = status.conditions.iter();
        let there = there.find(|condition| condition.type_ == kind.name());
        let now = match there {
            Some(condition) => ConditionStatus::of(&condition.status),
            None if kind.only_when_true() => ConditionStatus::False,
            None => ConditionStatus::Unknown,
        };
        for one in [
            ConditionStatus::True,
            ConditionStatus::False,
            ConditionStatus::Unknown,
        ] {
            let value = if one == now { 1.0 } else { 0.0 };
            let labels = [name, kind.name(), one.name()];
            all.push(Series::new(&CONDITION, labels, value));
        }
        // Others may write a status, too: only the table's words become labels.
        let reason = there.and_then(|there| {
            let mut known = kind.reasons().map(|row| row.reason.name());
            known.find(|known| *known == there.reason)
        });
        if let Some(reason) = reason {
            all.push(Series::new(&REASON, [name, kind.name(), reason], 1.0));
        }
    }
    if let Some(nodes) = status.nodes {
        for (state, count) in [
            ("total", nodes.total),
            ("ready", nodes.ready),
            ("up_to_date", nodes.up_to_date),
            ("unreachable", nodes.unreachable),
        ] {
            let count = u32::try_from(count).unwrap_or_default();
            all.push(Series::new(&NODES, [name, state], count.into()));
        }
    }
    if let Some(first) = &status.certificates
        && let Some(at) = seconds(&first.earliest_expiry)
    {
        let labels = [name, component(&first.component)];
        all.push(Series::new(&NOT_AFTER, labels, at));
    }
    if let Some(times) = &status.snapshots {
        for (grade, at) in [
            ("saved", &times.last_saved),
            ("proven", &times.last_proven),
            ("copied", &times.last_copied),
        ] {
            if let Some(at) = at.as_deref().and_then(seconds) {
                all.push(Series::new(&SNAPSHOT, [name, grade], at));
            }
        }
    }
    if let Some(at) = status.last_survey.as_deref().and_then(seconds) {
        all.push(Series::new(&LAST_SURVEY, [name], at));
    }
    all
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seconds since 1970 are exact for millions of years"
)]
fn seconds(text: &str) -> Option<f64> {
    let at: Timestamp = text.parse().ok()?;
    Some(at.as_second() as f64)
}

/// The certificates that have a name as a label.
const CERTIFICATES: [&str; 11] = [
    "kube-apiserver-requestheader-ca",
    "kube-apiserver-proxy-client",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kube-node",
    "kube-admin",
    "kube-etcd",
    "kube-ca",
    "services.etcd.cert",
];

/// Which certificate it is, without the node: one word of a fixed list, or `other`.
fn component(text: &str) -> &'static str {
    let mut words = text.split(['`', '/']);
    let is_it = |word: &str, known: &str| {
        word.strip_prefix(known)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    };
    let found = words.find_map(|word| CERTIFICATES.into_iter().find(|known| is_it(word, known)));
    found.unwrap_or("other")
}

#[cfg(test)]
pub(super) mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    use super::*;
    use crate::api::{CertificateStatus, NodeCounts, SnapshotTimes};

    impl Family {
        /// As a scrape shows it.
        pub(in crate::operator::metrics) fn shown(&self) -> String {
            match self.kind {
                Kind::Counter => format!("{}_total", self.name),
                Kind::Gauge | Kind::Histogram => self.name.to_owned(),
            }
        }
    }

    /// All of them, in the order of the documentation.
    pub(in crate::operator::metrics) const ALL: [&Family; 25] = [
        &INFO,
        &CONDITION,
        &REASON,
        &NODES,
        &NOT_AFTER,
        &SNAPSHOT,
        &LAST_SURVEY,
        &STEP_DURATION,
        &STEP_FAILURES,
        &ORPHANED,
        &SLOTS,
        &CONNECTIONS,
        &LEADER,
        &RECONCILES,
        &RECONCILE_ERRORS,
        &RECONCILE_TIME,
        &ACTIVE_WORKERS,
        &MOST_WORKERS,
        &DEPTH,
        &ADDS,
        &WAITED,
        &WORKED,
        &UNFINISHED,
        &LONGEST,
        &RETRIES,
    ];

    pub(in crate::operator::metrics) fn status() -> ClusterStatus {
        let condition = |kind: &str, status: &str, reason: &str| Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: "the password is hunter2".to_owned(),
            observed_generation: None,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        };
        ClusterStatus {
            cluster_id: Some("0123".to_owned()),
            version: Some("v1.34.4".to_owned()),
            conditions: vec![
                condition("Ready", "False", "NodesNotReady"),
                condition("Stalled", "True", "hunter2"),
                condition("Theirs", "True", "hunter2"),
            ],
            nodes: Some(NodeCounts {
                total: 5,
                ready: 4,
                up_to_date: 5,
                unreachable: 1,
            }),
            certificates: Some(CertificateStatus {
                earliest_expiry: "1970-01-02T00:00:00Z".to_owned(),
                component: "`/etc/kubernetes/ssl/kube-etcd-10-0-0-1.pem` of node `n1`".to_owned(),
            }),
            snapshots: Some(SnapshotTimes {
                last_saved: Some("1970-01-01T00:02:00Z".to_owned()),
                last_proven: Some("1970-01-01T00:01:00Z".to_owned()),
                last_copied: None,
                place: Some("`hunter2`".to_owned()),
            }),
            last_survey: Some("1970-01-01T00:10:00Z".to_owned()),
            ..ClusterStatus::default()
        }
    }

    fn line(series: &Series) -> String {
        let labels: Vec<_> = series
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        format!(
            "{} {} {}",
            series.family.name,
            labels.join(","),
            series.value
        )
    }

    #[test]
    fn a_status_gives_its_series() {
        let all = of_cluster("a", &status());
        let lines: Vec<_> = all.iter().map(line).collect();
        for wanted in [
            "rke_cluster_info name=a,cluster_id=0123,version=v1.34.4,desired_version= 1",
            "rke_cluster_condition name=a,type=Ready,status=False 1",
            "rke_cluster_condition name=a,type=Ready,status=True 0",
            "rke_cluster_condition name=a,type=Available,status=Unknown 1",
            "rke_cluster_condition name=a,type=Reconciling,status=False 1",
            "rke_cluster_condition name=a,type=Stalled,status=True 1",
            "rke_cluster_condition_reason name=a,type=Ready,reason=NodesNotReady 1",
            "rke_cluster_nodes name=a,state=ready 4",
            "rke_cluster_nodes name=a,state=unreachable 1",
            "rke_cluster_certificate_not_after_timestamp_seconds name=a,component=kube-etcd 86400",
            "rke_cluster_snapshot_timestamp_seconds name=a,grade=saved 120",
            "rke_cluster_snapshot_timestamp_seconds name=a,grade=proven 60",
            "rke_cluster_last_survey_timestamp_seconds name=a 600",
        ] {
            assert!(
                lines.iter().any(|line| line == wanted),
                "{wanted}: {lines:#?}"
            );
        }
        // Messages, words of others and names of nodes are in none of them.
        for not in ["hunter2", "n1", "10-0-0-1", "Theirs"] {
            assert!(
                lines.iter().all(|line| !line.contains(not)),
                "{not}: {lines:#?}"
            );
        }
        let of_ready = lines.iter().filter(|line| line.contains("type=Ready,s"));
        assert_eq!(of_ready.count(), 3);
    }

    #[test]
    fn a_cluster_without_a_status_claims_nothing() {
        let all = of_cluster("a", &ClusterStatus::default());
        let lines: Vec<_> = all.iter().map(line).collect();
        assert!(
            lines.contains(&"rke_cluster_condition name=a,type=Ready,status=Unknown 1".to_owned())
        );
        for family in [&REASON, &NODES, &NOT_AFTER, &LAST_SURVEY] {
            assert!(!all.iter().any(|series| series.family == family));
        }
        assert!(all.len() < 60, "{}", all.len());
    }

    #[test]
    fn a_certificate_is_one_of_a_few_words() {
        for (text, word) in [
            (
                "`/etc/kubernetes/ssl/kube-apiserver.pem` of node `n1`",
                "kube-apiserver",
            ),
            (
                "`/etc/kubernetes/ssl/kube-apiserver-proxy-client.pem` with which `x` of node `n1` runs",
                "kube-apiserver-proxy-client",
            ),
            (
                "`/etc/kubernetes/ssl/kube-etcd-10-0-0-1.pem` of node `n1`",
                "kube-etcd",
            ),
            ("`/opt/kube-nodes.pem` of node `n1`", "other"),
            (
                "the client certificate for the external etcd, `services.etcd.cert`",
                "services.etcd.cert",
            ),
            ("", "other"),
        ] {
            assert_eq!(component(text), word, "{text}");
        }
    }

    /// The documentation has each family, with its labels.
    #[test]
    fn the_documentation_lists_the_families() {
        let rows: Vec<String> = ALL
            .iter()
            .map(|family| {
                let labels: Vec<_> = family.labels.iter().map(|one| format!("`{one}`")).collect();
                let kind = match family.kind {
                    Kind::Gauge => "gauge",
                    Kind::Counter => "counter",
                    Kind::Histogram => "histogram",
                };
                let (name, labels) = (family.shown(), labels.join(", "));
                format!("| `{name}` | {kind} | {labels} | {} |", family.means)
            })
            .collect();
        let table = rows.join("\n");
        let docs = include_str!("../../../docs/monitoring.md");
        assert!(
            docs.contains(&table),
            "docs/monitoring.md must have:\n{table}"
        );
    }
}

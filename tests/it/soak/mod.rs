//! `make soak-ha` as data: seven operations and seven faults, which pair is due, what the config says before
//! and after an operation, at which step a fault strikes and whom, and what became of each pair. Nothing
//! here reads or writes; `lab_soak` does.

mod config;
mod moment;
mod table;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

pub(crate) use config::{RELEASES, THROUGH, Wanted};
pub(crate) use moment::{Moment, Place, chance, moment};
pub(crate) use table::table;

/// What is done to the cluster, in an order in which each begins with what the one before left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    AddWorker,
    RemoveWorker,
    AddMember,
    RemoveMember,
    Flags,
    EtcdFlag,
    Certificates,
    /// Once, at the end: there is no way back.
    Upgrade,
}

/// What goes wrong meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    Off,
    Hang,
    CutOff,
    DockerRestart,
    Reboot,
    DiskFull,
    /// SIGKILL of the tool itself.
    Kill,
}

const OPERATIONS: [Operation; 7] = [
    Operation::AddWorker,
    Operation::RemoveWorker,
    Operation::AddMember,
    Operation::RemoveMember,
    Operation::Flags,
    Operation::EtcdFlag,
    Operation::Certificates,
];

const FAULTS: [Fault; 7] = [
    Fault::Off,
    Fault::Hang,
    Fault::CutOff,
    Fault::DockerRestart,
    Fault::Reboot,
    Fault::DiskFull,
    Fault::Kill,
];

/// An operation and what goes wrong meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) operation: Operation,
    pub(crate) fault: Fault,
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", name(&self.operation), name(&self.fault))
    }
}

/// The name of an operation or a fault, as in `ONLY`, the table and the file.
fn name(it: &impl Serialize) -> String {
    let name = serde_json::to_value(it).expect("a name");
    name.as_str().expect("a name").to_owned()
}

fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(Value::from(name)).ok()
}

/// Every pair, in order.
pub(crate) fn pairs() -> impl Iterator<Item = Pair> {
    let all = FAULTS
        .into_iter()
        .flat_map(|fault| OPERATIONS.map(|operation| Pair { operation, fault }));
    all.chain([Pair {
        operation: Operation::Upgrade,
        fault: Fault::Off,
    }])
}

/// What became of a pair: a line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) pair: Pair,
    pub(crate) commit: String,
    pub(crate) seed: u64,
    /// The step that the fault came with, and the node that it struck.
    pub(crate) step: String,
    pub(crate) struck: String,
    /// The run had ended before.
    #[serde(default)]
    pub(crate) late: bool,
    /// How the run ended that was disturbed; a run that was killed has no exit code.
    pub(crate) exit: Option<i32>,
    pub(crate) said: String,
    /// How many runs it took then, the fault healed, to be done.
    pub(crate) runs: usize,
    pub(crate) seconds: u64,
    /// What was acknowledged meanwhile; all of it is there.
    pub(crate) writes: usize,
    /// Why the cluster is not as it must be.
    pub(crate) failed: Option<String>,
}

impl Row {
    /// Of a pair that has not begun.
    pub(crate) const fn new(pair: Pair, commit: String, seed: u64) -> Self {
        Self {
            pair,
            commit,
            seed,
            step: String::new(),
            struck: String::new(),
            late: false,
            exit: None,
            said: String::new(),
            runs: 0,
            seconds: 0,
            writes: 0,
            failed: None,
        }
    }
}

/// The rows of a file. A line that was cut by the end of the machine is not one.
pub(crate) fn rows(text: &str) -> Vec<Row> {
    let lines = text.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// The last word on a pair.
fn outcome(rows: &[Row], pair: Pair) -> Option<&Row> {
    rows.iter().rev().find(|row| row.pair == pair)
}

/// The pairs that have not been gone through well yet; or those of `only`, whatever became of them:
/// `operation/fault`, of which one may be empty.
pub(crate) fn due(rows: &[Row], only: &str) -> Result<Vec<Pair>, String> {
    if only.is_empty() {
        let well = |pair| outcome(rows, pair).is_some_and(|row| row.failed.is_none());
        return Ok(pairs().filter(|pair| !well(*pair)).collect());
    }
    let (operation, fault) = only.split_once('/').unwrap_or((only, ""));
    let (known, wanted) = (named::<Operation>(operation), named::<Fault>(fault));
    if (known.is_none() && !operation.is_empty()) || (wanted.is_none() && !fault.is_empty()) {
        return Err(format!(
            "ONLY={only} names no pair: an operation ({}) and a fault ({}), as in add-worker/hang",
            OPERATIONS.map(|it| name(&it)).join(", ") + ", upgrade",
            FAULTS.map(|it| name(&it)).join(", ")
        ));
    }
    Ok(pairs()
        .filter(|pair| known.is_none_or(|it| it == pair.operation))
        .filter(|pair| wanted.is_none_or(|it| it == pair.fault))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn row(pair: Pair, failed: Option<&str>) -> Row {
        Row {
            runs: 2,
            seconds: 61,
            writes: 400,
            failed: failed.map(str::to_owned),
            ..Row::new(pair, "abc".to_owned(), 1)
        }
    }

    fn written(rows: &[Row]) -> String {
        let lines = rows.iter().map(|row| serde_json::to_string(row).unwrap());
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn it_goes_on_where_it_stopped_and_a_pair_that_failed_is_due_again() {
        let all: Vec<Pair> = pairs().collect();
        assert_eq!(all.len(), 50);
        assert_eq!(all[49].to_string(), "upgrade/off");
        assert_eq!(due(&[], "").unwrap(), all);

        let mut text = written(&[row(all[0], None), row(all[1], Some("it is not whole"))]);
        text.push_str("\n{\"operation\":\"add-mem");
        assert_eq!(due(&rows(&text), "").unwrap(), all[1..]);

        let again = [row(all[1], Some("it is not whole")), row(all[1], None)];
        assert!(!due(&again, "").unwrap().contains(&all[1]));
    }

    #[test]
    fn some_are_done_again_by_their_names() {
        let done: Vec<Row> = pairs().map(|pair| row(pair, None)).collect();
        assert_eq!(due(&done, "").unwrap(), []);
        let only = |only| {
            let due = due(&done, only).unwrap();
            due.iter().map(Pair::to_string).collect::<Vec<_>>()
        };
        assert_eq!(only("etcd-flag/cut-off"), ["etcd-flag/cut-off"]);
        assert_eq!(only("upgrade/"), ["upgrade/off"]);
        assert_eq!(only("flags").len(), 7);
        assert_eq!(only("/kill").len(), 7);
        let wrong = due(&done, "flags/fire").unwrap_err();
        assert!(wrong.contains("flags/fire") && wrong.contains("docker-restart"));
    }
}

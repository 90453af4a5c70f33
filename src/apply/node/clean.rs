//! Cleans a node. The shell functions in `clean/` do the work and get all data as arguments; this
//! module builds the arguments and parses the answer.

use std::time::Duration;

use super::helper::{node_error, run_helper};
use crate::{
    apply::step::{Done, StepError},
    facts::{Baseline, ContainerdFacts},
    host::Host,
    model::{CALICO_NETWORK, CNI_NETWORK, ClusterId, path},
};

/// The functions, each file for one kind of thing, and the order in which they are called.
const SCRIPT: &str = concat!(
    include_str!("clean/common.sh"),
    include_str!("clean/pods.sh"),
    include_str!("clean/mounts.sh"),
    include_str!("clean/network.sh"),
    include_str!("clean/folders.sh"),
    include_str!("clean/main.sh"),
);
const RULES: &str = include_str!("clean/rules.awk");

/// Every function is bounded; this is enough for a node with hundreds of pods.
const LIMIT: Duration = Duration::from_secs(480);

/// Removes pods, mounts, links, rules and folders of the cluster, and checks that none is left.
pub(in crate::apply) async fn clean(
    host: &Host,
    id: &ClusterId,
    before: &Baseline,
    containerd: &ContainerdFacts,
) -> Result<Done, StepError> {
    let output = run_helper(host, id, SCRIPT, &arguments(before, containerd), LIMIT).await?;
    let report = CleanReport::of(&output.log);
    if report.is_clean() {
        return Ok(Done::default());
    }
    let hints = report.hints();
    let hints: Vec<&str> = hints.iter().map(String::as_str).collect();
    Err(node_error(host, &report.message(), &hints))
}

/// The arguments of the script, in pairs of a name and a value; the value is data, whatever it contains.
fn arguments(before: &Baseline, containerd: &ContainerdFacts) -> Vec<String> {
    let Baseline {
        paths,
        sysctls,
        modules: _,
        images: _,
    } = before;
    let (root, state) = containerd.folders();
    let mut arguments: Vec<String> = [
        ("--network", CNI_NETWORK),
        ("--network", CALICO_NETWORK),
        ("--kept-images", path::K8S_IMAGES),
        ("--rules", RULES),
        ("--containerd-root", &root),
        ("--containerd-state", &state),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value.to_owned()])
    .collect();
    // The script takes lists as lines: a path with a line break is none of rke-operator's.
    let lines = paths.iter().map(|path| ("--before", path.clone()));
    let settings = sysctls
        .iter()
        .map(|(name, value)| ("--sysctl", format!("{name}={value}")));
    for (name, value) in lines.chain(settings) {
        if !value.contains('\n') {
            arguments.extend([name.to_owned(), value]);
        }
    }
    arguments
}

/// The prefix of the script's lines that are part of its answer.
const MARK: &str = "@@rke-operator ";

/// The answer of the script.
#[derive(Debug, Default, PartialEq, Eq)]
struct CleanReport {
    /// Kind and name of what should be gone and is not.
    left: Vec<(String, String)>,
    /// What could not be checked, and why.
    unknown: Vec<(String, String)>,
    /// The script reached its end.
    ended: bool,
}

impl CleanReport {
    /// Reads the marked lines; all others are the output of other programs.
    fn of(log: &str) -> Self {
        let mut report = Self::default();
        for line in log.lines().filter_map(|line| line.strip_prefix(MARK)) {
            let mut words = line.splitn(3, ' ');
            let kind = words.next().unwrap_or_default();
            let mut word = || words.next().unwrap_or_default().to_owned();
            match kind {
                "left" => report.left.push((word(), word())),
                "unknown" => report.unknown.push((word(), word())),
                "done" => report.ended = true,
                _ => report.unknown.push(("answer".to_owned(), line.to_owned())),
            }
        }
        report
    }

    const fn is_clean(&self) -> bool {
        self.ended && self.left.is_empty() && self.unknown.is_empty()
    }

    fn message(&self) -> String {
        const SHOWN: usize = 5;
        let mut parts = Vec::new();
        let left: Vec<String> = self
            .left
            .iter()
            .map(|(kind, name)| format!("{kind} `{name}`"))
            .collect();
        if !left.is_empty() {
            let more = left.len().saturating_sub(SHOWN);
            let shown = left[..left.len().min(SHOWN)].join(", ");
            let more = if more == 0 {
                String::new()
            } else {
                format!(" and {more} more")
            };
            parts.push(format!("still there: {shown}{more}"));
        }
        for (kind, why) in &self.unknown {
            parts.push(format!("{kind} could not be checked: {why}"));
        }
        if !self.ended {
            parts.push("the clean-up did not reach its end".to_owned());
        }
        format!("not clean yet: {}", parts.join("; "))
    }

    fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        let mounts = self.left.iter().filter(|(kind, _)| kind == "mount");
        for (_, path) in mounts.take(5) {
            hints.push(format!(
                "nothing is deleted below a mount that is not a pod's: look at what it is \
                 (`findmnt {path}`), unmount it (`sudo umount {path}`), then run `remove` again"
            ));
        }
        let has = |list: &[(String, String)], kinds: &[&str]| {
            list.iter().any(|(kind, _)| kinds.contains(&kind.as_str()))
        };
        if has(&self.unknown, &["tasks"]) || has(&self.left, &["task", "shim"]) {
            hints.push(
                "is containerd well, and is `ctr` installed? `systemctl status containerd` and \
                 `ctr --namespace k8s.io tasks ls` on the node tell"
                    .to_owned(),
            );
        }
        if has(&self.unknown, &["chains"]) {
            hints.push(
                "rules in the kernel are gone after a reboot; or install iptables on the node"
                    .to_owned(),
            );
        }
        hints.push("run `remove` again: it goes on where it stopped".to_owned());
        hints
    }
}

#[cfg(test)]
#[path = "clean_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "clean_property.rs"]
mod property;

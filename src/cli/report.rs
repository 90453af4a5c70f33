//! Errors on the terminal: the message, its causes, an empty line, the cures. Also what a
//! command itself can fail with ([`Failure`]).

use std::{borrow::Cow, fmt::Write, path::PathBuf};

use super::{
    output::{
        Paint,
        json::{Ended, ShownProblem},
    },
    session::STOPPED,
};
use crate::{
    config::{Intent, Problems},
    error::{ErrorClass, Explain, chain, distinct, on_command_line},
    facts::{Unreachable, UnreachableNodes, by_cause},
    model::{ClusterId, NodeName, known_names, quoted},
};

/// Why a command failed.
pub enum CliError {
    /// The config is not valid. The text quotes the file and is for the terminal only.
    Config {
        /// Every problem with its line, as `rustc` shows them, and a last line that counts them.
        shown: String,
        /// The same without values.
        problems: Problems,
    },
    /// Anything that explains itself.
    Error(Box<dyn Explain + Send + Sync>),
    /// Ctrl-C or SIGTERM, before anything was begun.
    Stopped,
}

impl<E: Explain + Send + Sync + 'static> From<E> for CliError {
    fn from(error: E) -> Self {
        Self::Error(Box::new(error))
    }
}

impl CliError {
    /// As the terminal shows it.
    pub fn render(&self, paint: Paint) -> String {
        match self {
            Self::Config { shown, problems: _ } => shown.clone(),
            Self::Error(error) => render(&**error, paint),
            Self::Stopped => "stopped; nothing was changed".to_owned(),
        }
    }

    /// As programs read it: the last object of `--output json`.
    pub fn ended(&self) -> Ended {
        let (error, problems): (&(dyn Explain + 'static), Vec<ShownProblem>) = match self {
            Self::Config { shown: _, problems } => {
                (problems, problems.iter().map(ShownProblem::from).collect())
            }
            Self::Error(error) => (&**error, Vec::new()),
            Self::Stopped => return Ended::Stopped,
        };
        Ended::Failed {
            message: message(error),
            causes: causes(error),
            hints: hints(error),
            class: error.class(),
            problems,
        }
    }

    /// With which code the process ends.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config { shown: _, problems } => problems.class().exit_code(),
            Self::Error(error) => error.class().exit_code(),
            Self::Stopped => STOPPED,
        }
    }
}

/// Renders an error as `error: …`, `  caused by: …`, an empty line and `hint: …`.
fn render(error: &(dyn Explain + 'static), paint: Paint) -> String {
    let mut text = format!("{} {}", paint.bad("error:"), message(error));
    for cause in causes(error) {
        let _ = write!(text, "\n  caused by: {cause}");
    }
    for (index, hint) in hints(error).iter().enumerate() {
        let gap = if index == 0 { "\n\n" } else { "\n" };
        let _ = write!(text, "{gap}{} {hint}", paint.hint("hint:"));
    }
    text
}

/// What an error says itself.
fn message(error: &(dyn Explain + 'static)) -> String {
    on_command_line(&chain(error).into_iter().next().unwrap_or_default())
}

fn hints(error: &(dyn Explain + 'static)) -> Vec<String> {
    let hints = error.hints();
    hints.iter().map(|hint| on_command_line(hint)).collect()
}

/// The causes of an error, outermost first. A cause that its parent already quotes is left out.
fn causes(error: &(dyn Explain + 'static)) -> Vec<String> {
    chain(error).into_iter().skip(1).collect()
}

/// What a command fails with, in addition to the errors of the library.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The config file cannot be read.
    #[error("cannot read the config `{}`", path.display())]
    Config {
        /// As given.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The config comes in through stdin, and the command keeps files next to it.
    #[error(
        "only `validate` reads the config from stdin (`--config -`): the state of a cluster is kept next to its config"
    )]
    NoPlace,
    /// `known_hosts` cannot be read.
    #[error("cannot read the known host keys")]
    KnownHosts {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The program itself cannot be read.
    #[error("cannot read rke-operator's own program")]
    OwnProgram {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A removal needs an answer, and there is no terminal to ask at.
    #[error("cannot ask for confirmation: stdin is not a terminal")]
    NobodyToAsk,
    /// Consent was asked for at a terminal, and the answer was no.
    #[error("cancelled; {}", so_far(*changed))]
    Declined {
        /// True: earlier steps of this run were carried out.
        changed: bool,
    },
    /// Consent is needed, and there is no terminal to ask at.
    #[error(
        "these steps are disruptive and need your consent:{}",
        list(disruptions)
    )]
    ConsentNeeded {
        /// What would be disturbed.
        disruptions: Vec<String>,
        /// True: earlier steps of this run were carried out.
        changed: bool,
        /// True: `plan` shows the same steps.
        planned: bool,
    },
    /// The former key or authorities end, and that was not confirmed.
    #[error("this cannot be undone and needs your consent:{}", list(notes))]
    EndNotAgreed {
        /// What it means.
        notes: Vec<String>,
    },
    /// Nodes that did not answer could not be cleaned.
    #[error(
        "the removal is incomplete; these nodes could not be cleaned:{}",
        list(left)
    )]
    RemovalIncomplete {
        /// The nodes, and why.
        left: Vec<String>,
        /// Their cures.
        hints: Vec<String>,
    },
    /// There is no state of a cluster.
    #[error("no cluster state found in {place}")]
    NoState {
        /// Where.
        place: String,
    },
    /// No control plane has a copy of the state.
    #[error(
        "no control plane of the config has a copy of the cluster's state:{}",
        list(found)
    )]
    NoStateCopy {
        /// What is the matter with each.
        found: Vec<String>,
    },
    /// The state is lost, and that in the snapshot is encrypted.
    #[error(
        "no cluster state found in {place}, and the copy in the snapshot is encrypted with a key that only the \
        state contains"
    )]
    StateEncrypted {
        /// Where it should be.
        place: String,
    },
    /// The state is lost, and the snapshot has none.
    #[error("no cluster state found in {place}, and none in the snapshot")]
    StateNotHeld {
        /// Where it should be.
        place: String,
    },
    /// The snapshot is of another cluster than the config.
    #[error("the snapshot is of cluster `{has}` (id `{id}`), but the config is for `{wants}`")]
    StateOfAnother {
        /// Its id.
        id: String,
        /// Its name.
        has: String,
        /// The config's.
        wants: String,
    },
    /// The config is that of a cluster of RKE v1.
    #[error("`{file}` belongs to a cluster of RKE v1; nothing was changed")]
    RkeState {
        /// RKE's state.
        file: String,
        /// Its kubeconfig.
        kubeconfig: String,
    },
    /// The state is a copy of that of an object.
    #[error("the state in {place} belongs to a `Cluster` object; nothing was changed")]
    Owned {
        /// Where.
        place: String,
        /// The cluster.
        id: ClusterId,
    },
    /// `--s3` without a bucket in the config or in the flags.
    #[error("no bucket is configured")]
    NoBucket,
    /// A bucket that cannot be meant.
    #[error("{0}")]
    BadBucket(String),
    /// The config does not name it.
    #[error("the config has no node `{node}`")]
    NoNode {
        /// As given.
        node: NodeName,
        /// The nodes that it has.
        hints: Vec<String>,
    },
    /// A node that cannot be reset.
    #[error("node `{node}` cannot be reset: {why}")]
    NotReset {
        /// Which.
        node: NodeName,
        /// Why.
        why: String,
    },
    /// There is nothing to take back.
    #[error("there is no interrupted restore of this cluster to undo")]
    NoRestore,
    /// More than one member may be the one to go on with.
    #[error(
        "several nodes with etcd answer: {nodes}; one of them keeps its data, and the others join it"
    )]
    Survivors {
        /// Which.
        nodes: String,
    },
    /// No member is left.
    #[error(
        "no etcd node that is in both the state and the config can be used:{}",
        list(found)
    )]
    NoSurvivor {
        /// Why each does not.
        found: Vec<String>,
        /// Their cures.
        hints: Vec<String>,
    },
    /// Certificates of the cluster were given by a person.
    #[error(
        "certificates of this cluster were signed with a CA key that rke-operator does not have"
    )]
    SignedElsewhere,
    /// The snapshot was not saved, verified or deleted on any node.
    #[error("no snapshot was {done}:{}", list(failed))]
    NoSnapshot {
        /// What, as `saved`.
        done: &'static str,
        /// The nodes, and why.
        failed: Vec<String>,
        /// Their cures.
        hints: Vec<String>,
        /// The gravest.
        class: ErrorClass,
    },
    /// The person left before the questions were answered.
    #[error("no config was written")]
    NotWritten,
    /// The config exists.
    #[error("`{file}` already exists; it was not changed")]
    Exists {
        /// As given.
        file: String,
    },
    /// No key of `cluster.yml` is called like that.
    #[error("`cluster.yml` has no key `{key}`")]
    UnknownKey {
        /// As given.
        key: String,
        /// What may be meant, and the keys that there are.
        hints: Vec<String>,
    },
    /// A release that the catalogue does not have.
    #[error("`{version}` is not in the catalogue")]
    UnknownVersion {
        /// As given.
        version: String,
        /// The newest of each minor.
        known: Vec<String>,
    },
    /// The catalogue cannot be read.
    #[error("the built-in catalogue is broken")]
    Catalogue {
        /// Why.
        #[source]
        source: crate::catalog::CatalogueError,
    },
    /// The folder of your own certificates, or a file in it, could not be read.
    #[error("cannot read the certificates in `{place}`")]
    Certificates {
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {what}")]
    Read {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Output could not be written.
    #[error("cannot write {what}")]
    Write {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Failure {
    /// A node that is not in the config.
    pub fn no_node(node: &NodeName, intent: &Intent) -> Self {
        let names = intent.nodes.keys().map(|name| name.0.as_str());
        Self::NoNode {
            node: node.clone(),
            hints: known_names(&node.0, "the nodes in the config are", names),
        }
    }

    /// A key that `cluster.yml` does not have: what may be meant, and the keys of the section where it would be.
    pub fn unknown_key(key: &str, near: &[String], section: &str, keys: &[&str]) -> Self {
        let near = (!near.is_empty()).then(|| format!("did you mean {}?", quoted(near)));
        let all = match section {
            "" => format!("the keys at the top level are {}", quoted(keys)),
            section => format!("the keys of `{section}` are {}", quoted(keys)),
        };
        Self::UnknownKey {
            key: key.to_owned(),
            hints: near.into_iter().chain([all]).collect(),
        }
    }

    /// A removal that could not clean some nodes. `kept`: where the state is that is kept for them; `None`: there
    /// is none.
    pub fn incomplete(left: &[(NodeName, Unreachable)], kept: Option<&str>) -> Self {
        let next = kept.map_or_else(
            || {
                "there is no state of a cluster for this config, so nothing is known to be on these nodes: check \
                 `--config` and their addresses"
                    .to_owned()
            },
            |place| {
                format!("the state is kept in {place}: run `rke-operator remove` again to clean the rest")
            },
        );
        let down = by_cause(left.iter().map(|(node, why)| (node, why)));
        let hints = down.iter().flat_map(|group| group.hints.clone());
        let hints = distinct(hints.chain([next]));
        let left = down.iter().map(UnreachableNodes::named).collect();
        Self::RemovalIncomplete { left, hints }
    }
}

/// What a run that ends for want of consent has done.
const fn so_far(changed: bool) -> &'static str {
    if changed {
        "nothing more was changed"
    } else {
        "nothing was changed"
    }
}

fn list(items: &[String]) -> String {
    items.iter().fold(String::new(), |mut text, item| {
        let _ = write!(text, "\n  - {item}");
        text
    })
}

impl Explain for Failure {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Config { .. }
            | Self::NoPlace
            | Self::KnownHosts { .. }
            | Self::OwnProgram { .. }
            | Self::NobodyToAsk
            | Self::Declined { .. }
            | Self::ConsentNeeded { .. }
            | Self::EndNotAgreed { .. }
            | Self::NoState { .. }
            | Self::StateEncrypted { .. }
            | Self::StateNotHeld { .. }
            | Self::StateOfAnother { .. }
            | Self::NotWritten
            | Self::NoBucket
            | Self::BadBucket(_)
            | Self::SignedElsewhere
            | Self::Survivors { .. }
            | Self::NoRestore
            | Self::NotReset { .. }
            | Self::NoNode { .. }
            | Self::RkeState { .. }
            | Self::Owned { .. }
            | Self::Exists { .. }
            | Self::UnknownKey { .. }
            | Self::UnknownVersion { .. }
            | Self::Certificates { .. }
            | Self::Read { .. }
            | Self::Write { .. } => ErrorClass::User,
            Self::NoSnapshot { class, .. } => *class,
            Self::Catalogue { .. } => ErrorClass::Bug,
            Self::RemovalIncomplete { .. } | Self::NoSurvivor { .. } | Self::NoStateCopy { .. } => {
                ErrorClass::Host
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each failure")]
    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Config { source, .. } if source.kind() == std::io::ErrorKind::NotFound => vec![
                "`rke-operator config` creates one".into(),
                "name another one with `--config FILE` or `RKE_CONFIG`".into(),
            ],
            Self::Config { source, .. } if source.kind() == std::io::ErrorKind::IsADirectory => {
                vec!["name a file with `--config FILE` or `RKE_CONFIG`".into()]
            }
            Self::Certificates { .. } => vec![
                "name their folder with `--cert-dir DIR`; `rke-operator cert generate-csr` writes the requests to sign \
                 into it"
                    .into(),
            ],
            Self::NoPlace => vec!["write the config into a file, and name it with `--config FILE`".into()],
            Self::NoState { .. } => vec![
                "`rke-operator up` creates the cluster and its state".into(),
                "use `--config FILE` to select an existing cluster: its state file is next to the config"
                    .into(),
                "to recover a lost state, use `rke-operator up --recover ID`; if the machines are gone, too, \
                restore a snapshot: `rke-operator etcd snapshot-restore --name NAME --s3`, with the name of a file in \
                the bucket and `--lose NODES` for machines that are gone"
                    .into(),
            ],
            Self::RkeState { file, kubeconfig } => vec![
                format!(
                    "rke-operator cannot adopt RKE clusters yet: keep using `rke` for this cluster, and keep \
                    `{file}` and `{kubeconfig}`, which contain its keys"
                )
                .into(),
                "to use rke-operator on other machines, put their config into another folder".into(),
                format!(
                    "for a new cluster on these nodes run `rke remove` first; if the nodes were reinstalled, move \
                    `{file}` and `{kubeconfig}` away"
                )
                .into(),
            ],
            Self::Owned { id, .. } => vec![
                "edit the object: its operator makes the change".into(),
                format!(
                    "to take the cluster over, delete the object with `deletion.policy: Orphan`, then run \
                    `rke-operator up --recover {id}`"
                )
                .into(),
            ],
            Self::NoBucket => vec![
                "set `s3backupconfig` in `services.etcd.backup_config`, or use `--bucket-name` and `--s3-endpoint`"
                    .into(),
            ],
            Self::NoStateCopy { .. } => vec![
                "`rke-operator doctor` shows why a node does not answer".into(),
                "if the control planes are gone, restore a snapshot: `rke-operator etcd snapshot-restore --name NAME \
                 --s3`"
                    .into(),
            ],
            Self::StateEncrypted { place } | Self::StateNotHeld { place } => vec![
                format!("put a copy of that file at {place}").into(),
                "a control plane that is left has one: `/etc/kubernetes/rke-operator-state.json`".into(),
            ],
            Self::StateOfAnother { .. } => vec![
                "name the config of that cluster with `--config FILE`, or another snapshot with `--name`".into(),
            ],
            Self::NoRestore => vec!["`rke-operator status` shows the health of the cluster".into()],
            Self::Survivors { .. } => vec![
                "name the one with the highest index: `rke-operator etcd recover --node NODE`; `rke-operator etcd members` shows it"
                    .into(),
            ],
            Self::SignedElsewhere => {
                vec!["have new ones signed and run `rke-operator up --custom-certs`".into()]
            }
            Self::NoSnapshot { hints, .. }
            | Self::RemovalIncomplete { hints, .. }
            | Self::NoNode { hints, .. }
            | Self::UnknownKey { hints, .. }
            | Self::NoSurvivor { hints, .. } => hints.iter().cloned().map(Cow::Owned).collect(),
            Self::Exists { .. } => vec![
                "use `--name FILE` to write another file, or `--print` to print it".into(),
            ],
            Self::UnknownVersion { known, .. } => {
                vec![format!("the newest of each minor: {}", known.join(", ")).into()]
            }
            Self::NobodyToAsk => vec!["use `--force` to remove without confirmation".into()],
            Self::EndNotAgreed { .. } => {
                vec!["`--yes` gives consent; nothing was changed".into()]
            }
            Self::ConsentNeeded {
                changed, planned, ..
            } => {
                let plan = planned.then(|| "`rke-operator plan` shows every step".into());
                let consent = format!("`--yes` gives consent; {}", so_far(*changed)).into();
                plan.into_iter().chain([consent]).collect()
            }
            Self::BadBucket(_)
            | Self::Config { .. }
            | Self::KnownHosts { .. }
            | Self::OwnProgram { .. }
            | Self::Declined { .. }
            | Self::NotReset { .. }
            | Self::NotWritten
            | Self::Catalogue { .. }
            | Self::Read { .. }
            | Self::Write { .. } => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn message_causes_gap_and_hints() {
        let error = Failure::Config {
            path: "cluster.yml".into(),
            source: io::Error::from(io::ErrorKind::NotFound),
        };
        insta::assert_snapshot!(render(&error, Paint::OFF), @r"
        error: cannot read the config `cluster.yml`
          caused by: entity not found

        hint: `rke-operator config` creates one
        hint: name another one with `--config FILE` or `RKE_CONFIG`
        ");
        assert_eq!(error.class().exit_code(), 1);
    }

    #[test]
    fn what_would_be_disturbed_is_listed() {
        let error = Failure::ConsentNeeded {
            disruptions: vec!["n1: containerd is restarted".into()],
            changed: false,
            planned: true,
        };
        insta::assert_snapshot!(render(&error, Paint::OFF), @r"
        error: these steps are disruptive and need your consent:
          - n1: containerd is restarted

        hint: `rke-operator plan` shows every step
        hint: `--yes` gives consent; nothing was changed
        ");
    }

    /// U8: a typo in `--config` gives no impression of a cluster that is half removed.
    #[test]
    fn the_state_is_kept_only_where_there_is_one() {
        let hints = |kept| Failure::incomplete(&[], kept).hints().join(" ");
        assert!(hints(Some("`a.json`")).contains("the state is kept in `a.json`"));
        assert!(!hints(None).contains("kept"));
        assert!(hints(None).contains("`--config`"));
    }

    /// Consent may be asked for again after some steps: what they did stays.
    #[test]
    fn a_run_that_did_something_does_not_say_that_nothing_was_changed() {
        let declined = |changed| Failure::Declined { changed }.to_string();
        assert_eq!(declined(false), "cancelled; nothing was changed");
        assert_eq!(declined(true), "cancelled; nothing more was changed");
        let error = Failure::ConsentNeeded {
            disruptions: vec![],
            changed: true,
            planned: false,
        };
        let hints = error.hints().join("\n");
        assert!(hints.contains("nothing more was changed"), "{hints}");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot save: {0}")]
    struct Quotes(#[source] io::Error);

    impl Explain for Quotes {
        fn class(&self) -> ErrorClass {
            ErrorClass::Transient
        }
    }

    #[test]
    fn a_cause_that_the_message_quotes_is_not_said_twice() {
        let error = Quotes(io::Error::other("disk full"));
        assert_eq!(render(&error, Paint::OFF), "error: cannot save: disk full");
    }

    #[test]
    fn programs_get_the_same() {
        let error = CliError::from(Failure::Config {
            path: "a.yml".into(),
            source: io::Error::other("disk on fire"),
        });
        let Ended::Failed { causes, class, .. } = error.ended() else {
            panic!("failed");
        };
        assert_eq!(causes, ["disk on fire"]);
        assert_eq!(class, ErrorClass::User);
    }
}

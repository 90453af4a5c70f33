//! Encryption of what the API servers store, and how it is turned on, changed and turned off in a running cluster.
//! Pure.
//!
//! No API server may write what another one cannot read, whenever any of them restarts. So a change of the encryption
//! has steps, and each is seen to be complete before the next begins: first every API server can read the new form;
//! then every one writes it; then the stored objects are rewritten; then the keys that are no longer needed are left
//! out. The current step follows from the containers' labels, which say what each server reads, and from a mark in
//! the cluster, stored with the data that it describes, which says what all of it was written with. The mark is
//! removed before any server writes with something else.

mod kept;
mod rotation;
mod servers;
mod source;

use std::collections::BTreeSet;

pub use self::rotation::{KeyRotationError, has_own_key};
pub(super) use self::{
    kept::kept,
    rotation::{KeyRotation, rotation, rotation_note},
};
use self::{
    servers::{Reads, servers},
    source::{Form, Known, Source, Writer, readable, sources},
};
use super::{DesiredError, Rewrite, pki::Keys};
use crate::{
    config::{Intent, SecretsEncryption},
    facts::{Actual, ApiHealth, ApiView},
    model::{NodeName, Role},
    state::ClusterState,
};

/// What is wanted now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Phase {
    /// The configuration of every API server; `None`: it has none.
    pub(super) file: Option<String>,
    /// What is to be done to what is stored.
    pub(super) stored: Option<Rewrite>,
    /// For the plan.
    pub(super) note: Option<&'static str>,
    /// Everything that is stored is written as the config says, and no API server reads anything else.
    pub(super) settled: bool,
    /// Every API server is replaced once more later in the run, as the note says.
    pub(super) rolls: bool,
}

/// The flag of an API server.
const FLAG: &str = "encryption-provider-config";

/// What the cluster of an intent wants now. What an API server reads and the state does not know is an error: whatever
/// took its place might not read what is stored.
pub(super) fn phase(intent: &Intent, keys: &Keys, have: &Actual) -> Result<Phase, DesiredError> {
    let sources = sources(&keys.saved);
    let world = World::seen(intent, &keys.saved, &sources, have)?;
    let nothing = || Phase {
        settled: true,
        ..Phase::default()
    };
    Ok(world.map_or_else(nothing, |world| Phase {
        settled: world.is_settled(),
        ..world.phase()
    }))
}

fn unknown(node: NodeName, state: &ClusterState) -> DesiredError {
    let id = state.cluster_id.clone();
    DesiredError::UnknownEncryption { node, id }
}

/// True where the config names a configuration of the user's by a flag: it is theirs alone.
fn names_a_file(intent: &Intent) -> bool {
    let extras = &intent.services.kube_api;
    extras.extra_args.contains_key(FLAG) || extras.extra_args_array.contains_key(FLAG)
}

/// What follows the name in the mark where more than Kubernetes' core was written again.
const EVERY_KIND: &str = "/all";

/// `None` when the state lacks what is wanted.
fn goal(wish: &SecretsEncryption, saved: &ClusterState) -> Option<Writer> {
    let mut keys = saved.encryption.iter();
    match wish {
        SecretsEncryption::Off => Some(Writer::Plain),
        SecretsEncryption::Managed => keys.position(|key| !key.is_custom()).map(Writer::Source),
        SecretsEncryption::Custom(text) => keys
            .position(|key| key.is_custom() && key.secret == *text)
            .map(Writer::Source),
    }
}

/// What all stored objects were written with, according to the mark.
enum Written {
    /// The API does not answer.
    Unknown,
    /// This; `None` without a mark.
    With(Option<String>),
}

/// All that decides.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is seen for itself, and any of them may be so"
)]
struct World<'a> {
    sources: &'a [Source],
    goal: Writer,
    /// Of every API server that is seen.
    servers: Vec<Form>,
    /// There may be others.
    silent: bool,
    /// One that is wanted is missing, or does not answer.
    awaited: bool,
    /// The config has one control plane.
    alone: bool,
    /// Nothing was stored yet.
    fresh: bool,
    written: Written,
}

const LEARN: &str = "encryption: the API servers learn to read what will be written, one after the other; what they \
                     write changes in a second roll, and then what is stored is written again";
const WRITE: &str = "encryption: every API server can read what will be written, and now writes it, one after the \
                     other; then what is stored is written again";
const DROP: &str = "encryption: what is stored is written again; then the API servers are replaced once more, one after \
                    the other, without the keys that nothing needs";
const WAIT: &str =
    "encryption: what is written does not change while a control plane does not answer";

impl<'a> World<'a> {
    /// `None` where the configuration is the user's alone, or the state lacks what is wanted.
    fn seen(
        intent: &Intent,
        state: &ClusterState,
        sources: &'a [Source],
        have: &Actual,
    ) -> Result<Option<Self>, DesiredError> {
        let (seen, silent) = servers(intent, state, have);
        let known = Known::of(sources, state);
        let theirs = names_a_file(intent);
        let custom = matches!(
            intent.services.secrets_encryption,
            SecretsEncryption::Custom(_)
        );
        let is_awaited = |name: &NodeName| {
            let facts = have.up(name);
            let is_ours = facts.is_some_and(|facts| facts.is_of(&state.cluster_id));
            let is_there = seen.iter().any(|(node, _)| *node == name);
            is_ours && !(is_there && have.apis.get(name) == Some(&ApiHealth::Serving))
        };
        let awaited = intent
            .with_role(Role::ControlPlane)
            .any(|(name, _)| is_awaited(name));
        let mut servers = Vec::new();
        for (name, reads) in seen {
            let node = name.clone();
            servers.push(match reads {
                Reads::Nothing => Form::plain(),
                Reads::Theirs if theirs || custom => Form::plain(),
                Reads::Theirs => return Err(DesiredError::OwnEncryption { node }),
                Reads::File(digest) => match known.form(&digest) {
                    Some(_) if theirs => return Err(DesiredError::EncryptionInUse { node }),
                    Some(form) => form,
                    None => return Err(unknown(node, state)),
                },
                Reads::Unknown => return Err(unknown(node, state)),
            });
        }
        let goal = goal(&intent.services.secrets_encryption, state);
        let Some(goal) = goal.filter(|_| !theirs && !sources.is_empty()) else {
            return Ok(None);
        };
        let written = match have.api() {
            ApiView::Up(api) => Written::With(api.written_with.clone()),
            ApiView::Unknown | ApiView::Unreachable(_) => Written::Unknown,
        };
        Ok(Some(Self {
            sources,
            goal,
            servers,
            silent,
            awaited,
            alone: intent.with_role(Role::ControlPlane).count() == 1,
            // Restored data are not new, whatever the store remembers.
            fresh: !state.memory.populated,
            written,
        }))
    }
}

impl World<'_> {
    fn phase(&self) -> Phase {
        if self.servers.is_empty() {
            return self.no_servers();
        }
        let writes_goal = |form: &Form| form.writer == self.goal;
        if self.silent {
            return if self.servers.iter().all(writes_goal) {
                self.stay()
            } else {
                self.noted(&self.before(), WAIT)
            };
        }
        if self.servers.iter().all(writes_goal) {
            return self.written();
        }
        let alone = self.alone && self.servers.len() == 1;
        let reads_goal = |form: &Form| form.can_read(self.goal, self.sources);
        if !alone && !self.servers.iter().all(reads_goal) {
            return self.noted(&self.before(), LEARN);
        }
        // No server writes anything else while the mark says what everything was written with.
        let Written::With(mark) = &self.written else {
            return self.noted(&self.before(), WAIT);
        };
        Phase {
            stored: mark.is_some().then_some(Rewrite::Forget),
            ..self.noted(&self.writing(self.goal), WRITE)
        }
    }

    /// No API server is seen.
    fn no_servers(&self) -> Phase {
        if self.silent {
            return self.of(&self.writing(Writer::Plain));
        }
        if self.fresh {
            let stored = (self.goal != Writer::Plain).then(|| self.again());
            let phase = self.of(&Form::last(self.goal));
            return Phase { stored, ..phase };
        }
        self.noted(&self.writing(self.goal), DROP)
    }

    /// All of them write what they shall.
    fn written(&self) -> Phase {
        let Written::With(mark) = &self.written else {
            return self.stay();
        };
        let last = Form::last(self.goal);
        let all_last = self.servers.iter().all(|form| form.last);
        if self.is_done(mark.as_deref(), all_last) {
            return self.of(&last);
        }
        match (self.goal, mark) {
            (Writer::Plain, None) if all_last => self.of(&last),
            // They cannot read what there may be.
            (Writer::Plain, Some(_)) if all_last => self.of(&self.writing(self.goal)),
            (Writer::Plain | Writer::Source(_), _) => Phase {
                stored: Some(self.again()),
                note: (!all_last).then_some(DROP),
                rolls: !all_last,
                ..self.stay()
            },
        }
    }

    /// As they are: what some of them came to in the end is where all of them go.
    fn stay(&self) -> Phase {
        if self.servers.iter().any(|form| form.last) {
            return self.of(&Form::last(self.goal));
        }
        self.of(&self.writing(self.goal))
    }

    /// What they write now, so that all of them can read what is wanted.
    fn before(&self) -> Form {
        let mut writers: BTreeSet<Writer> = self.servers.iter().map(|form| form.writer).collect();
        writers.retain(|writer| {
            self.servers
                .iter()
                .all(|form| form.can_read(*writer, self.sources))
        });
        let goal = writers.contains(&self.goal) && self.silent;
        let writer = if goal {
            Some(self.goal)
        } else {
            writers.into_iter().next_back()
        };
        self.writing(writer.unwrap_or(Writer::Plain))
    }

    /// Writes with this one, and reads whatever there may be and what is wanted.
    fn writing(&self, writer: Writer) -> Form {
        let mut reads: BTreeSet<usize> = if self.servers.is_empty() {
            (0..self.sources.len()).collect()
        } else {
            self.servers
                .iter()
                .flat_map(|form| &form.reads)
                .copied()
                .collect()
        };
        if let Written::With(Some(mark)) = &self.written {
            let all = self.sources.iter().enumerate();
            reads.extend(
                all.filter(|(_, source)| source.is_marked(mark))
                    .map(|(it, _)| it),
            );
        }
        let source = |writer| match writer {
            Writer::Source(it) => Some(it),
            Writer::Plain => None,
        };
        reads.extend([writer, self.goal].into_iter().filter_map(source));
        Form {
            writer,
            reads: readable(reads, self.sources),
            last: false,
        }
    }

    fn of(&self, form: &Form) -> Phase {
        Phase {
            file: form.text(self.sources),
            ..Phase::default()
        }
    }

    fn noted(&self, form: &Form, note: &'static str) -> Phase {
        Phase {
            note: Some(note),
            rolls: note != WAIT,
            ..self.of(form)
        }
    }

    /// Every API server answers, and is as it is left in the end.
    fn is_settled(&self) -> bool {
        !self.silent && self.seen_are_settled()
    }

    /// Of those that are seen.
    fn seen_are_settled(&self) -> bool {
        let last = Form::last(self.goal);
        let Written::With(mark) = &self.written else {
            return false;
        };
        let never_encrypted = self.goal == Writer::Plain && mark.is_none();
        !self.awaited
            && !self.servers.is_empty()
            && self.servers.iter().all(|form| *form == last)
            && (never_encrypted || self.is_done(mark.as_deref(), true))
    }

    /// True when everything that is stored was written with what is wanted. An earlier release rewrote only kinds of
    /// the core API group, and marked that by the name alone: where it also removed the other keys, nothing is left to do.
    fn is_done(&self, mark: Option<&str>, all_last: bool) -> bool {
        let name = self.name(self.goal);
        mark.is_some_and(|mark| {
            let whole = all_last || !self.beyond_core();
            mark == format!("{name}{EVERY_KIND}") || mark == name && whole
        })
    }

    /// True when an entry of the state names kinds outside the core API group.
    fn beyond_core(&self) -> bool {
        let all = self.sources.iter();
        all.flat_map(|source| source.providers.keys())
            .any(|name| name.contains(['.', '*']))
    }

    fn name(&self, writer: Writer) -> String {
        let source = match writer {
            Writer::Plain => None,
            Writer::Source(it) => self.sources.get(it),
        };
        source.map_or_else(|| "identity".to_owned(), |source| source.name.clone())
    }

    /// Everything that any entry of the state names is written again.
    fn again(&self) -> Rewrite {
        let all = self
            .sources
            .iter()
            .flat_map(|source| source.providers.keys());
        Rewrite::All {
            resources: all.cloned().collect(),
            with: if self.beyond_core() {
                format!("{}{EVERY_KIND}", self.name(self.goal))
            } else {
                self.name(self.goal)
            },
        }
    }
}

#[cfg(test)]
mod tests;

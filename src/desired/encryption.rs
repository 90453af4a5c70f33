//! Encryption of what the API servers store, and how a cluster that lives comes to it and back. Pure.
//!
//! No API server may write what another one cannot read, whenever any of them starts again. So a change of what is
//! written goes in steps, each of which is seen before the next one is wanted: every API server can read what will be
//! written; then every one writes it; then what is stored is written again; then what nobody needs any more is left
//! out. Which step it is follows from what the containers' labels say that they read, and from a mark in the cluster,
//! beside the data that it speaks of, that says what all of it was written with. A mark is taken away before anybody
//! writes with something else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use super::{Rewrite, pki::Keys};
use crate::{
    actual::{Actual, ApiView, HostView},
    config::{Intent, SecretsEncryption},
    model::{Component, ContainerSpec, Digest, Role, label, path},
    state::{ClusterState, EncryptionKey, Membership},
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
}

/// What the cluster of an intent wants now.
pub(super) fn phase(intent: &Intent, keys: &Keys, have: &Actual) -> Phase {
    let sources = sources(&keys.saved, keys);
    let Some(goal) = goal(&intent.services.secrets_encryption, &keys.saved) else {
        return Phase::default();
    };
    if sources.is_empty() {
        return Phase::default();
    }
    let known = forms(&sources);
    let by_digest = |digest: Option<Digest>| {
        let form = digest.map(|digest| {
            let is_it = |form: &&Form| {
                let text = form.text(&sources);
                text.is_some_and(|text| keys.digest(text.as_bytes()) == digest)
            };
            known.iter().find(is_it).cloned()
        });
        form.map_or_else(Form::plain, |form| form.unwrap_or_else(Form::plain))
    };
    let (seen, silent) = servers(intent, &keys.saved, have);
    let saved = have.saved.as_ref();
    let written = match have.api() {
        ApiView::Up(api) => Written::With(api.written_with.clone()),
        ApiView::Unknown | ApiView::Unreachable(_) => Written::Unknown,
    };
    World {
        sources: &sources,
        goal,
        servers: seen.into_iter().map(by_digest).collect(),
        silent,
        alone: intent.with_role(Role::ControlPlane).count() == 1,
        fresh: saved.is_none_or(|saved| !saved.memory.populated),
        written,
    }
    .phase()
}

/// The name of an entry of the state that is a whole configuration of the user's.
const CUSTOM: &str = "custom";
/// How many of those are kept, the one that is wanted among them: what an older one wrote may be in a snapshot.
const KEPT: usize = 3;

/// The keys that the state must hold: ours is made once and never dropped, and the user's configuration is kept so that
/// what it wrote can be read when the config no longer has it.
pub(super) fn keep(
    wish: &SecretsEncryption,
    known: &[EncryptionKey],
    new: impl FnOnce() -> EncryptionKey,
) -> Vec<EncryptionKey> {
    let mut keys = known.to_vec();
    match wish {
        SecretsEncryption::Off => {}
        SecretsEncryption::Managed => {
            if !keys.iter().any(|key| key.name != CUSTOM) {
                keys.push(new());
            }
        }
        SecretsEncryption::Custom(text) => {
            let wanted = EncryptionKey {
                name: CUSTOM.to_owned(),
                secret: text.clone(),
            };
            if !keys.contains(&wanted) {
                keys.insert(0, wanted);
                let mut customs = 0;
                keys.retain(|key| {
                    customs += usize::from(key.name == CUSTOM);
                    key.name != CUSTOM || customs <= KEPT
                });
            }
        }
    }
    keys
}

/// Whose providers write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Writer {
    /// Nobody's: it is written as it is.
    Plain,
    /// Those of this entry of the state.
    Source(usize),
}

/// `None` when the state lacks what is wanted.
fn goal(wish: &SecretsEncryption, saved: &ClusterState) -> Option<Writer> {
    let mut keys = saved.encryption.iter();
    match wish {
        SecretsEncryption::Off => Some(Writer::Plain),
        SecretsEncryption::Managed => keys.position(|key| key.name != CUSTOM).map(Writer::Source),
        SecretsEncryption::Custom(text) => keys
            .position(|key| key.name == CUSTOM && key.secret == *text)
            .map(Writer::Source),
    }
}

/// An entry of the state.
#[derive(Clone, Debug)]
struct Source {
    /// As the mark in the cluster has it.
    name: String,
    /// The user's own text.
    text: Option<String>,
    /// Providers by resource.
    providers: BTreeMap<String, Vec<Json>>,
}

fn sources(saved: &ClusterState, keys: &Keys) -> Vec<Source> {
    let sources = saved.encryption.iter().map(|key| {
        if key.name != CUSTOM {
            let key_json = json!({"name": key.name, "secret": key.secret.expose()});
            return Source {
                name: key.name.clone(),
                text: None,
                providers: BTreeMap::from([(
                    "secrets".to_owned(),
                    vec![json!({"aescbc": {"keys": [key_json]}}), identity()],
                )]),
            };
        }
        let text = key.secret.expose();
        Source {
            name: format!("{CUSTOM}-{}", keys.digest(text.as_bytes()).0),
            providers: providers(text),
            text: Some(text.clone()),
        }
    });
    sources.collect()
}

fn identity() -> Json {
    json!({"identity": {}})
}

fn is_identity(provider: &Json) -> bool {
    provider.get("identity").is_some()
}

/// Of a configuration, by resource.
fn providers(text: &str) -> BTreeMap<String, Vec<Json>> {
    let config: Json = serde_json::from_str(text).unwrap_or_default();
    let entries = config["resources"].as_array().into_iter().flatten();
    let by_resource = entries.flat_map(|entry| {
        let providers = entry["providers"].as_array().cloned().unwrap_or_default();
        let resources = entry["resources"].as_array().into_iter().flatten();
        let names = resources.filter_map(Json::as_str);
        names.map(move |name| (name.to_owned(), providers.clone()))
    });
    by_resource.collect()
}

/// What an API server writes with, and what it can read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Form {
    writer: Writer,
    /// Those of the state whose writings it can read.
    reads: BTreeSet<usize>,
    /// It is what is left in the end: the user's own text, or no configuration at all.
    last: bool,
}

impl Form {
    const fn plain() -> Self {
        Self {
            writer: Writer::Plain,
            reads: BTreeSet::new(),
            last: true,
        }
    }

    /// What is left in the end.
    fn last(writer: Writer) -> Self {
        let reads = match writer {
            Writer::Plain => BTreeSet::new(),
            Writer::Source(it) => [it].into(),
        };
        Self {
            writer,
            reads,
            last: true,
        }
    }

    fn text(&self, sources: &[Source]) -> Option<String> {
        let own = match self.writer {
            Writer::Plain if self.last => return None,
            Writer::Plain => None,
            Writer::Source(it) => sources.get(it),
        };
        if let Some(text) = own.and_then(|own| own.text.as_ref()).filter(|_| self.last) {
            return Some(text.clone());
        }
        let others: Vec<&Source> = self
            .reads
            .iter()
            .filter_map(|it| sources.get(*it))
            .collect();
        Some(merged(own, &others))
    }

    fn can_read(&self, writer: Writer, sources: &[Source]) -> bool {
        match writer {
            Writer::Source(it) => self.reads.contains(&it),
            Writer::Plain => match self.writer {
                // The user's own may leave out what is not encrypted.
                Writer::Source(it) if self.last => sources.get(it).is_some_and(|source| {
                    let mut all = source.providers.values();
                    all.all(|providers| providers.iter().any(is_identity))
                }),
                Writer::Source(_) | Writer::Plain => true,
            },
        }
    }
}

/// A configuration that writes as the one does, or plainly, and reads what it and all of the others have written, and
/// what is not encrypted.
fn merged(writer: Option<&Source>, others: &[&Source]) -> String {
    let all = others.iter().copied().chain(writer);
    let mut names: Vec<&String> = all.flat_map(|source| source.providers.keys()).collect();
    // Of two entries for one resource the first counts: what names all of them comes last.
    names.sort_by_key(|name| (name.contains('*'), *name));
    names.dedup();
    let entries = names.into_iter().map(|name| {
        let own = writer.and_then(|writer| writer.providers.get(name));
        let mut list = own.cloned().unwrap_or_else(|| vec![identity()]);
        let others = others.iter().filter_map(|other| other.providers.get(name));
        for provider in others.flatten().filter(|provider| !is_identity(provider)) {
            if !list.contains(provider) {
                list.push(provider.clone());
            }
        }
        if !list.iter().any(is_identity) {
            list.push(identity());
        }
        json!({"resources": [name], "providers": list})
    });
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": entries.collect::<Vec<_>>(),
    })
    .to_string()
}

/// Every form that this program may have given an API server; those that are last come first.
fn forms(sources: &[Source]) -> Vec<Form> {
    let last = (0..sources.len()).map(|it| Form::last(Writer::Source(it)));
    let subsets = (0..1_usize << sources.len()).flat_map(|bits| {
        let reads: BTreeSet<usize> = (0..sources.len())
            .filter(|it| bits & (1 << it) != 0)
            .collect();
        let own = reads.iter().map(|it| Writer::Source(*it));
        let writers: Vec<Writer> = own.chain([Writer::Plain]).collect();
        writers.into_iter().map(move |writer| Form {
            writer,
            reads: reads.clone(),
            last: false,
        })
    });
    last.chain(subsets).collect()
}

/// The digest of what each API server of the cluster reads, and whether there may be one that is not seen.
fn servers(intent: &Intent, saved: &ClusterState, have: &Actual) -> (Vec<Option<Digest>>, bool) {
    let mut seen = Vec::new();
    let mut silent = false;
    let planes = intent.with_role(Role::ControlPlane).map(|(name, _)| name);
    let were = saved.inventory.iter().filter(|(_, entry)| {
        entry.membership != Membership::Lost && entry.roles.contains(&Role::ControlPlane)
    });
    let names: BTreeSet<_> = planes.chain(were.map(|(name, _)| name)).collect();
    for name in names
        .iter()
        .copied()
        .chain(have.hosts.keys())
        .collect::<BTreeSet<_>>()
    {
        match have.hosts.get(name) {
            Some(HostView::Reachable(facts)) => {
                let fact = facts.containers.get(Component::ApiServer.container());
                let ours = fact
                    .filter(|fact| fact.labels.get(label::CLUSTER_ID) == Some(&saved.cluster_id.0));
                let spec = ours.and_then(|fact| fact.labels.get(label::SPEC));
                let spec = spec.map(|text| serde_json::from_str::<ContainerSpec>(text).ok());
                let reads = |spec: Option<ContainerSpec>| spec?.files.remove(path::ENCRYPTION);
                seen.extend(spec.map(reads));
            }
            Some(HostView::Unreachable(_)) | None => silent |= names.contains(name),
        }
    }
    (seen, silent)
}

/// What all that is stored was written with, as the mark says.
enum Written {
    /// The API does not answer.
    Unknown,
    /// This, or nobody has said.
    With(Option<String>),
}

/// All that decides.
struct World<'a> {
    sources: &'a [Source],
    goal: Writer,
    /// Of every API server that is seen.
    servers: Vec<Form>,
    /// There may be others.
    silent: bool,
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
const WAIT: &str =
    "encryption: what is written does not change while a control plane does not answer";

impl World<'_> {
    fn phase(&self) -> Phase {
        if self.servers.is_empty() {
            return self.nobody();
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
        // Nobody writes anything else while it is said what all was written with.
        let Written::With(mark) = &self.written else {
            return self.noted(&self.before(), WAIT);
        };
        Phase {
            stored: mark.is_some().then_some(Rewrite::Forget),
            ..self.noted(&self.writing(self.goal), WRITE)
        }
    }

    /// No API server is seen.
    fn nobody(&self) -> Phase {
        if self.silent {
            return self.of(&self.writing(Writer::Plain));
        }
        if self.fresh {
            let stored = (self.goal != Writer::Plain).then(|| self.again());
            let phase = self.of(&Form::last(self.goal));
            return Phase { stored, ..phase };
        }
        self.of(&self.writing(self.goal))
    }

    /// All of them write what they shall.
    fn written(&self) -> Phase {
        let Written::With(mark) = &self.written else {
            return self.stay();
        };
        let last = Form::last(self.goal);
        if *mark == Some(self.name(self.goal)) {
            return self.of(&last);
        }
        let all_last = self.servers.iter().all(|form| form.last);
        match (self.goal, mark) {
            (Writer::Plain, None) if all_last => self.of(&last),
            // They cannot read what there may be.
            (Writer::Plain, Some(_)) if all_last => self.of(&self.writing(self.goal)),
            (Writer::Plain | Writer::Source(_), _) => Phase {
                stored: Some(self.again()),
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
                all.filter(|(_, source)| source.name == *mark)
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
            reads,
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
            ..self.of(form)
        }
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
            with: self.name(self.goal),
        }
    }
}

#[cfg(test)]
mod tests;

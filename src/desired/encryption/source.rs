//! What the entries of the state say, and every configuration that may be made of them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use super::EVERY_KIND;
use crate::{
    model::Digest,
    state::{ClusterState, EncryptionKey},
};

/// Whose providers write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Writer {
    /// None: it is written unencrypted.
    Plain,
    /// Those of this entry of the state.
    Source(usize),
}

/// An entry of the state.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// As the mark in the cluster has it.
    pub(super) name: String,
    /// The user's own text.
    pub(super) text: Option<String>,
    /// Providers by resource.
    pub(super) providers: BTreeMap<String, Vec<Json>>,
}

impl Source {
    /// The providers of a resource: those of the entry that names it, else those of the pattern that covers it.
    pub(super) fn of(&self, resource: &str) -> Option<&Vec<Json>> {
        let group = match resource.split_once('.') {
            Some(("*", "*")) => None,
            Some((_, group)) => Some(group),
            None => Some(""),
        };
        let pattern = || self.providers.get(&format!("*.{}", group?));
        let own = self.providers.get(resource).or_else(pattern);
        own.or_else(|| self.providers.get("*.*"))
    }

    /// The mark names it.
    pub(super) fn is_marked(&self, mark: &str) -> bool {
        mark.strip_suffix(EVERY_KIND).unwrap_or(mark) == self.name
    }

    /// It is a key that this program generated.
    pub(super) const fn is_managed(&self) -> bool {
        self.text.is_none()
    }

    pub(super) fn has_patterns(&self) -> bool {
        self.providers.keys().any(|name| name.contains('*'))
    }
}

pub(super) fn sources(saved: &ClusterState) -> Vec<Source> {
    let sources = saved.encryption.iter().map(|key| {
        if !key.is_custom() {
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
        let digest = saved.digest_key.digest(text.as_bytes());
        Source {
            name: format!("{}-{}", EncryptionKey::CUSTOM, digest.0),
            providers: providers(text),
            text: Some(text.clone()),
        }
    });
    sources.collect()
}

pub(super) fn identity() -> Json {
    json!({"identity": {}})
}

pub(super) fn is_identity(provider: &Json) -> bool {
    provider.get("identity").is_some()
}

/// Of a configuration, by resource. What two entries name is written as the first says.
pub(super) fn providers(text: &str) -> BTreeMap<String, Vec<Json>> {
    let config: Json = serde_json::from_str(text).unwrap_or_default();
    let entries = config["resources"].as_array().into_iter().flatten();
    let mut by_resource: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for entry in entries {
        let providers = entry["providers"].as_array().into_iter().flatten();
        let resources = entry["resources"].as_array().into_iter().flatten();
        for name in resources.filter_map(Json::as_str) {
            let list = by_resource.entry(name.to_owned()).or_default();
            list.extend(providers.clone().cloned());
        }
    }
    by_resource
}

/// What an API server writes with, and what it can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) writer: Writer,
    /// Those of the state whose writings it can read.
    pub(super) reads: BTreeSet<usize>,
    /// It is what is left in the end: the user's own text, or no configuration at all.
    pub(super) last: bool,
}

impl Form {
    pub(super) const fn plain() -> Self {
        Self {
            writer: Writer::Plain,
            reads: BTreeSet::new(),
            last: true,
        }
    }

    /// What is left in the end.
    pub(super) fn last(writer: Writer) -> Self {
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

    pub(super) fn text(&self, sources: &[Source]) -> Option<String> {
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

    /// As an earlier release wrote it, where that was another text: a pattern did not count for what another entry
    /// named.
    pub(super) fn former_text(&self, sources: &[Source]) -> Option<String> {
        if self.last {
            return None;
        }
        let own = match self.writer {
            Writer::Plain => None,
            Writer::Source(it) => sources.get(it),
        };
        let others: Vec<&Source> = self
            .reads
            .iter()
            .filter_map(|it| sources.get(*it))
            .collect();
        Some(joined(own, &others, false))
    }

    pub(super) fn can_read(&self, writer: Writer, sources: &[Source]) -> bool {
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
pub(super) fn merged(writer: Option<&Source>, others: &[&Source]) -> String {
    joined(writer, others, true)
}

/// `patterns`: they count for what another entry names.
pub(super) fn joined(writer: Option<&Source>, others: &[&Source], patterns: bool) -> String {
    let all = others.iter().copied().chain(writer);
    let mut names: Vec<&String> = all.flat_map(|source| source.providers.keys()).collect();
    // Of two entries for one resource the first counts: what names most comes last.
    let breadth = |name: &str| match name {
        _ if !name.contains('*') => 0,
        "*.*" | "*" if patterns => 2,
        _ => 1,
    };
    names.sort_by_key(|name| (breadth(name), *name));
    names.dedup();
    let of = |source: &Source, name: &String| {
        let providers = if patterns {
            source.of(name)
        } else {
            source.providers.get(name)
        };
        providers.cloned()
    };
    let entries = names.into_iter().map(|name| {
        let own = writer.and_then(|writer| of(writer, name));
        let mut list = own.unwrap_or_else(|| vec![identity()]);
        let others = others.iter().filter_map(|other| of(other, name));
        for provider in others.flatten().filter(|provider| !is_identity(provider)) {
            if !list.contains(&provider) {
                list.push(provider);
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

/// The entries that a configuration reads where at least these are wanted: of more than two managed keys it reads all. So
/// the forms that there may be stay few, however often a key was rotated.
pub(super) fn readable(mut reads: BTreeSet<usize>, sources: &[Source]) -> BTreeSet<usize> {
    let managed = managed(sources);
    if managed.iter().filter(|it| reads.contains(it)).count() > FEW {
        reads.extend(managed);
    }
    reads
}

/// How many managed keys a configuration reads while one takes the place of another.
const FEW: usize = 2;

fn managed(sources: &[Source]) -> Vec<usize> {
    let each = sources.iter().enumerate();
    let managed = each.filter(|(_, source)| source.is_managed());
    managed.map(|(it, _)| it).collect()
}

/// The managed keys that a configuration may read: none, any, any two, and all that there were when the list began or
/// ended elsewhere. New keys come first, and those of another copy of the state last.
fn managed_sets(sources: &[Source]) -> BTreeSet<BTreeSet<usize>> {
    let keys = managed(sources);
    let mut sets = BTreeSet::from([BTreeSet::new()]);
    for (at, key) in keys.iter().enumerate() {
        sets.extend(keys[at..].iter().map(|other| [*key, *other].into()));
        sets.insert(keys[at..].iter().copied().collect());
        sets.insert(keys[..at].iter().copied().collect());
    }
    sets
}

/// Every set of the user's configurations.
fn custom_sets(sources: &[Source]) -> Vec<BTreeSet<usize>> {
    let mut sets = vec![BTreeSet::new()];
    for (it, _) in sources
        .iter()
        .enumerate()
        .filter(|(_, source)| !source.is_managed())
    {
        let with = sets.iter().map(|set| set | &[it].into());
        sets.extend(with.collect::<Vec<_>>());
    }
    sets
}

/// Every form that this program may have given an API server; those that are last come first.
pub(super) fn forms(sources: &[Source]) -> Vec<Form> {
    let last = (0..sources.len()).map(|it| Form::last(Writer::Source(it)));
    let customs = custom_sets(sources);
    let managed = managed_sets(sources);
    let sets = managed
        .iter()
        .flat_map(|managed| customs.iter().map(move |customs| managed | customs));
    let others = sets.flat_map(|reads| {
        let own = reads.iter().map(|it| Writer::Source(*it));
        let writers: Vec<Writer> = own.chain([Writer::Plain]).collect();
        writers.into_iter().map(move |writer| Form {
            writer,
            reads: reads.clone(),
            last: false,
        })
    });
    last.chain(others).collect()
}

/// The forms that this program may have given an API server, by the digest of their text.
pub(super) struct Known(BTreeMap<Digest, Form>);

impl Known {
    pub(super) fn of(sources: &[Source], state: &ClusterState) -> Self {
        let mut known = BTreeMap::new();
        let mut add = |text: Option<String>, form: &Form| {
            let digest = text.map(|text| state.digest_key.digest(text.as_bytes()));
            if let Some(digest) = digest {
                known.entry(digest).or_insert_with(|| form.clone());
            }
        };
        let all = forms(sources);
        for form in &all {
            add(form.text(sources), form);
        }
        // Those may write some things plainly.
        for form in all
            .iter()
            .filter(|_| sources.iter().any(Source::has_patterns))
        {
            let writer = Writer::Plain;
            let form = Form {
                writer,
                ..form.clone()
            };
            add(form.former_text(sources), &form);
        }
        Self(known)
    }

    pub(super) fn form(&self, digest: &Digest) -> Option<Form> {
        self.0.get(digest).cloned()
    }
}

//! Which keys the state keeps. Pure.

use std::collections::BTreeSet;

use super::{
    servers::{Reads, servers},
    source::{Known, Source, sources},
};
use crate::{
    config::{Intent, SecretsEncryption},
    facts::{Actual, ApiView},
    state::{ClusterState, EncryptionKey},
};

/// How many configurations of the user's are kept, the one that is wanted among them: what an older one wrote may be in
/// a snapshot.
const KEPT: usize = 3;
/// How many there may be, with those that may still be needed.
const MOST: usize = 6;

/// The keys that the state must hold: a managed one is generated where there is none, and none is ever dropped. A configuration of the user's is kept as long
/// as an API server reads it or anything that is stored may have been written with it. The error: how many there would
/// be.
pub(in crate::desired) fn kept(
    intent: &Intent,
    known: &ClusterState,
    have: &Actual,
    new: impl FnOnce() -> EncryptionKey,
) -> Result<Vec<EncryptionKey>, usize> {
    let needed = || needed(intent, known, have);
    keep(
        &intent.services.secrets_encryption,
        &known.encryption,
        needed,
        new,
    )
}

pub(super) fn keep(
    wish: &SecretsEncryption,
    known: &[EncryptionKey],
    needed: impl FnOnce() -> Vec<bool>,
    new: impl FnOnce() -> EncryptionKey,
) -> Result<Vec<EncryptionKey>, usize> {
    let mut keys = known.to_vec();
    match wish {
        SecretsEncryption::Off => {}
        SecretsEncryption::Managed => {
            if !keys.iter().any(|key| !key.is_custom()) {
                keys.push(new());
            }
        }
        SecretsEncryption::Custom(text) => {
            let wanted = EncryptionKey {
                name: EncryptionKey::CUSTOM.to_owned(),
                secret: text.clone(),
            };
            if keys.contains(&wanted) {
                return Ok(keys);
            }
            let mut customs = 1;
            if known.iter().filter(|key| key.is_custom()).count() >= KEPT {
                let mut needed = needed().into_iter();
                keys.retain(|key| {
                    let needed = needed.next().unwrap_or(true);
                    customs += usize::from(key.is_custom());
                    !key.is_custom() || needed || customs <= KEPT
                });
            }
            keys.insert(0, wanted);
            let customs = keys.iter().filter(|key| key.is_custom()).count();
            if customs > MOST {
                return Err(customs);
            }
        }
    }
    Ok(keys)
}

/// For each key of a state, whether anything may need it. A key counts as needed where this is unknown.
fn needed(intent: &Intent, state: &ClusterState, have: &Actual) -> Vec<bool> {
    let sources = sources(state);
    let all = vec![true; sources.len()];
    let (seen, silent) = servers(intent, state, have);
    let ApiView::Up(api) = have.api() else {
        return all;
    };
    if silent || seen.is_empty() {
        return all;
    }
    let known = Known::of(&sources, state);
    let mut read = BTreeSet::new();
    for (_, reads) in seen {
        match reads {
            Reads::Nothing => {}
            Reads::File(digest) => match known.form(&digest) {
                Some(form) => read.extend(form.reads),
                None => return all,
            },
            Reads::Theirs | Reads::Unknown => return all,
        }
    }
    let mark = api.written_with.as_ref();
    let each = sources.iter().enumerate();
    let is_marked = |source: &Source| mark.is_some_and(|mark| source.is_marked(mark));
    each.map(|(it, source)| read.contains(&it) || is_marked(source))
        .collect()
}

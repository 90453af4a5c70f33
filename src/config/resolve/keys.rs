//! Which private key logs in to a node, and whether it is one.

use std::collections::BTreeMap;

use super::{Found, values};
use crate::{
    config::{
        cursor::Cursor,
        problem::Problem,
        sources::{Refusal, Sources, SshKey},
    },
    model::Secret,
};

/// Finds keys, each of them read and judged once.
pub(super) struct Keys<'a> {
    sources: &'a dyn Sources,
    root: Cursor<'a>,
    /// `None` as a value: it was refused, and that was said.
    by_path: BTreeMap<String, Option<SshKey>>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(sources: &'a dyn Sources, root: &Cursor<'a>) -> Self {
        Self {
            sources,
            root: root.clone(),
            by_path: BTreeMap::new(),
        }
    }

    /// As RKE: the node's text, the node's path, the cluster's path, the default key.
    pub(super) fn of_node(&mut self, node: &Cursor<'_>, found: &mut Found) -> Option<SshKey> {
        let inline = node.get("ssh_key");
        if let Some(pem) = values::text(&inline, found) {
            return self.inline(&inline, pem, found);
        }
        let path = node.get("ssh_key_path");
        if values::text(&path, found).is_some() {
            return self.at(&path, found);
        }
        let path = self.root.get("ssh_key_path");
        if path.scalar().is_some_and(|text| !text.is_empty()) {
            return self.at(&path, found);
        }
        // No path is empty, so the empty one is the default key's.
        if let Some(known) = self.by_path.get("") {
            return known.clone();
        }
        let before = found.problems.len();
        let key = match self.sources.default_key() {
            Ok(key) => validated(key, &path, found),
            Err(refusal) => {
                found.problem(refused(&path, refusal));
                None
            }
        };
        for problem in found.problems.iter_mut().skip(before) {
            self.sources
                .default_key_path()
                .clone_into(&mut problem.path);
        }
        self.by_path.insert(String::new(), key.clone());
        key
    }

    fn inline(&self, at: &Cursor<'_>, pem: &str, found: &mut Found) -> Option<SshKey> {
        match self.sources.allows_inline_key() {
            Ok(()) => {
                let key = SshKey {
                    pem: pem.to_owned().into(),
                    source: "ssh_key".to_owned(),
                };
                validated(key, at, found)
            }
            Err(refusal) => {
                found.problem(refused(at, refusal));
                None
            }
        }
    }

    fn at(&mut self, at: &Cursor<'_>, found: &mut Found) -> Option<SshKey> {
        let path = at.scalar()?;
        if let Some(known) = self.by_path.get(path) {
            return known.clone();
        }
        let key = match self.sources.key_at(path) {
            Ok(key) => validated(key, at, found),
            Err(refusal) => {
                found.problem(refused(at, refusal));
                None
            }
        };
        self.by_path.insert(path.to_owned(), key.clone());
        key
    }
}

fn refused(at: &Cursor<'_>, refusal: Refusal) -> Problem {
    let Refusal {
        message,
        detail,
        hint,
    } = refusal;
    Problem {
        detail,
        hint,
        ..at.problem(message)
    }
}

/// The key, when it can be used as it is.
fn validated(key: SshKey, at: &Cursor<'_>, found: &mut Found) -> Option<SshKey> {
    let (message, hint) = match kind(&key.pem) {
        Kind::Usable => return Some(key),
        Kind::Public => (
            "this is a public key",
            "name the private one: the file without `.pub`",
        ),
        Kind::Encrypted => (
            "this private key has a passphrase, which is not supported yet",
            "use a key without one; `ssh-keygen -p` removes it from a copy",
        ),
        Kind::Broken => (
            "this private key is damaged, or of a kind that is not supported",
            "`ssh-keygen -y -f FILE` shows whether OpenSSH can read it",
        ),
        Kind::Other => (
            "this is not a private key",
            "a private key begins with `-----BEGIN … PRIVATE KEY-----`",
        ),
    };
    // The key itself is no detail: only where it came from, when that is elsewhere.
    let detail = Some(key.source).filter(|source| !at.path().ends_with(source.as_str()));
    found.problem(Problem {
        detail,
        ..at.problem(message).hint(hint)
    });
    None
}

enum Kind {
    Usable,
    Public,
    Encrypted,
    Broken,
    Other,
}

fn kind(pem: &Secret<String>) -> Kind {
    let text = pem.expose().trim();
    let putty = text.starts_with("PuTTY-User-Key-File-");
    if !putty
        && !text
            .lines()
            .any(|line| line.starts_with("-----BEGIN ") && line.contains("PRIVATE KEY-----"))
    {
        let public = [
            "ssh-",
            "ecdsa-",
            "sk-ssh-",
            "sk-ecdsa-",
            "-----BEGIN PUBLIC KEY",
            "---- BEGIN SSH2 PUBLIC",
        ];
        return if public.iter().any(|prefix| text.starts_with(prefix)) {
            Kind::Public
        } else {
            Kind::Other
        };
    }
    // The header says so in the old formats, whose decoders give unclear errors (libraries differ).
    if text
        .lines()
        .any(|line| line.contains("ENCRYPTED") && !line.starts_with("Comment:"))
    {
        return Kind::Encrypted;
    }
    match russh::keys::decode_secret_key(pem.expose(), None) {
        Ok(_) => Kind::Usable,
        Err(russh::keys::Error::KeyIsEncrypted) => Kind::Encrypted,
        Err(_) => Kind::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_key_is_told_apart() {
        for (text, want) in [
            ("ssh-ed25519 AAAA me@here", "public"),
            ("-----BEGIN PUBLIC KEY-----\n", "public"),
            ("-----BEGIN CERTIFICATE-----\n", "other"),
            ("", "other"),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\n", "encrypted"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n",
                "encrypted",
            ),
            ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", "broken"),
        ] {
            let got = match kind(&Secret::new(text.to_owned())) {
                Kind::Usable => "usable",
                Kind::Public => "public",
                Kind::Encrypted => "encrypted",
                Kind::Broken => "broken",
                Kind::Other => "other",
            };
            assert_eq!(got, want, "{text}");
        }
    }
}

//! `known_hosts`: which host keys are trusted.
//!
//! `ssh_key` reads the lines; what they mean for a name is OpenSSH's (hashed names, wildcards, negation, `[host]:port`,
//! `@revoked`, several keys a host); a line that cannot be read is skipped as OpenSSH does. One
//! rule is stricter: any other key on record for a host, of whatever type, is a changed key,
//! so that "accept new" never takes an impostor with a key of another type. Host certificates
//! are not supported: a host that is only covered by `@cert-authority` is unknown.

use std::{
    collections::HashMap,
    fmt, fs,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use futures::{FutureExt, future::BoxFuture};
use hmac::{Hmac, Mac};
use russh::keys::{PublicKey, ssh_key::known_hosts::HostPatterns};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::{HostKeyVerdict, HostKeys};
use crate::model::Endpoint;

/// Asks a person whether a key that is not on record may be taken: endpoint, key type and
/// fingerprint.
pub type Ask = Box<dyn Fn(Endpoint, String, String) -> BoxFuture<'static, bool> + Send + Sync>;

/// What happens with a key that is not on record. A changed key is always refused.
pub enum Policy {
    /// Refused.
    Strict,
    /// Taken and recorded.
    AcceptNew,
    /// A person decides; taken keys are recorded.
    Ask(Ask),
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "Strict",
            Self::AcceptNew => "AcceptNew",
            Self::Ask(_) => "Ask",
        })
    }
}

/// The SHA-256 fingerprint of a key (`ssh-ed25519 AAAA…`), as `ssh-keygen -l` prints it.
pub fn fingerprint(key: &str) -> Option<String> {
    let (_, blob) = parse_key(key)?;
    Some(format!(
        "SHA256:{}",
        STANDARD_NO_PAD.encode(Sha256::digest(blob))
    ))
}

/// Trusted host keys, from files or from a text.
#[derive(Debug)]
pub struct KnownHosts {
    sources: Vec<Source>,
    /// Taken during this run.
    taken: Mutex<Index>,
    /// Where keys that are taken are recorded.
    record: Option<PathBuf>,
    policy: Policy,
    /// One question at a time.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Source {
    place: String,
    index: Index,
}

impl Source {
    fn of(place: String, text: &str) -> Self {
        let index = Index::of(text);
        Self { place, index }
    }
}

impl KnownHosts {
    /// From a text, e.g. of a `Cluster` object; `place` says where it is, for messages. Keys
    /// that are taken are only remembered.
    pub fn from_text(place: &str, text: &str, policy: Policy) -> Self {
        Self {
            sources: vec![Source::of(place.to_owned(), text)],
            taken: Mutex::default(),
            record: None,
            policy,
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// From files; the first is where keys that are taken are recorded. A file that is not there
    /// is empty; one that cannot be read is an error, because it may say "revoked".
    pub fn from_files(files: &[PathBuf], policy: Policy) -> io::Result<Self> {
        let mut sources = Vec::new();
        for file in files {
            let text = match fs::read(file) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let what = format!("cannot read {}: {error}", file.display());
                    return Err(io::Error::new(error.kind(), what));
                }
            };
            sources.push(Source::of(file.display().to_string(), &text));
        }
        Ok(Self {
            sources,
            taken: Mutex::default(),
            record: files.first().cloned(),
            policy,
            asking: tokio::sync::Mutex::default(),
        })
    }

    /// Keys that are taken are only remembered for this run: for those who promise to write
    /// nothing.
    #[must_use]
    pub fn unrecorded(self) -> Self {
        Self {
            record: None,
            ..self
        }
    }

    /// The keys on record for a machine, as in `authorized_keys`; revoked ones and authorities are none.
    pub fn keys_of(&self, endpoint: &Endpoint) -> Vec<String> {
        let entries = self.entries(&name_of(endpoint)).into_iter();
        let keys = entries.filter(|(_, marker, _)| *marker == Marker::None);
        keys.map(|(_, _, (kind, blob))| format!("{kind} {}", STANDARD.encode(blob)))
            .collect()
    }

    /// Every entry for a name, with its place.
    fn entries(&self, name: &str) -> Vec<(String, Marker, Key)> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = self.sources.iter();
        let all = sources
            .map(|source| (source.place.as_str(), &source.index))
            .chain([("this run", &*taken)]);
        all.flat_map(|(place, index)| {
            let matching = index.matching(name);
            matching
                .map(move |(line, entry)| (format!("{place} line {line}"), entry.marker, entry.key))
        })
        .collect()
    }

    /// What the records say.
    fn look_up(&self, endpoint: &Endpoint, key: &Key) -> Found {
        let found = verdict(&self.entries(&name_of(endpoint)), key);
        // Like OpenSSH: the right key under the bare name is good for any port.
        if !matches!(found, Found::Trusted | Found::Changed(_)) && endpoint.port != 22 {
            let bare = verdict(&self.entries(&endpoint.address.to_lowercase()), key);
            if matches!(bare, Found::Trusted) {
                return bare;
            }
        }
        found
    }

    async fn decide(
        &self,
        endpoint: &Endpoint,
        text: &str,
        verified: &[String],
    ) -> io::Result<HostKeyVerdict> {
        let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "unreadable host key");
        let key = parse_key(text).ok_or_else(unreadable)?;
        let _one = self.asking.lock().await;
        let authority = match self.look_up(endpoint, &key) {
            Found::Trusted => return Ok(HostKeyVerdict::Trusted),
            Found::Changed(place) => return Ok(HostKeyVerdict::Changed { place }),
            Found::Authority(place) => Some(place),
            Found::Nothing => None,
        };
        let before: Vec<Key> = verified.iter().filter_map(|key| parse_key(key)).collect();
        if !before.is_empty() {
            return Ok(if before.contains(&key) {
                HostKeyVerdict::Trusted
            } else {
                HostKeyVerdict::Changed {
                    place: "the state of the cluster".to_owned(),
                }
            });
        }
        let accepted = match &self.policy {
            Policy::Strict => {
                if let Some(place) = authority {
                    return Err(io::Error::new(
                        io::ErrorKind::Unsupported,
                        format!(
                            "it is on record only through `@cert-authority` in {place}, and host certificates are not supported yet: add the host's own key"
                        ),
                    ));
                }
                false
            }
            Policy::AcceptNew => true,
            Policy::Ask(ask) => {
                let shown = fingerprint(text).ok_or_else(unreadable)?;
                ask(endpoint.clone(), key.0.clone(), shown).await
            }
        };
        if accepted {
            self.take(endpoint, &key)?;
        }
        Ok(HostKeyVerdict::Unknown { accepted })
    }

    fn take(&self, endpoint: &Endpoint, (kind, blob): &Key) -> io::Result<()> {
        let line = format!("{} {kind} {}\n", name_of(endpoint), STANDARD.encode(blob));
        if let Some(file) = &self.record {
            append(file, &line).map_err(|error| {
                let what = format!("cannot record it in {}: {error}", file.display());
                io::Error::new(error.kind(), what)
            })?;
        }
        self.taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(&line);
        Ok(())
    }
}

impl HostKeys for KnownHosts {
    fn verify<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        key: &'a str,
        verified: &'a [String],
    ) -> BoxFuture<'a, io::Result<HostKeyVerdict>> {
        self.decide(endpoint, key, verified).boxed()
    }

    fn known_algorithms(&self, endpoint: &Endpoint) -> Vec<String> {
        let mut entries = self.entries(&name_of(endpoint));
        if entries.is_empty() {
            entries = self.entries(&endpoint.address.to_lowercase());
        }
        entries
            .into_iter()
            .filter(|(_, marker, _)| *marker == Marker::None)
            .map(|(_, _, (kind, _))| kind)
            .collect()
    }
}

/// A line of `known_hosts` for a machine and a key as in `authorized_keys`.
pub fn known_hosts_line(endpoint: &Endpoint, key: &str) -> String {
    format!("{} {key}", name_of(endpoint))
}

/// Adds a line to a file, which is made if it is not there.
fn append(file: &PathBuf, line: &str) -> io::Result<()> {
    if let Some(folder) = file.parent()
        && !folder.exists()
    {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let mut file = fs::OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(file)?;
    let mut text = String::new();
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            text.push('\n');
        }
    }
    text.push_str(line);
    file.write_all(text.as_bytes())
}

/// A key's type and its bytes.
type Key = (String, Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    None,
    Revoked,
    Authority,
}

#[derive(Debug)]
struct Entry {
    marker: Marker,
    key: Key,
}

enum Found {
    Trusted,
    Changed(String),
    Authority(String),
    Nothing,
}

fn verdict(entries: &[(String, Marker, Key)], key: &Key) -> Found {
    let with = |marker: Marker| {
        entries
            .iter()
            .filter(move |(_, theirs, _)| *theirs == marker)
    };
    if let Some((place, ..)) = with(Marker::Revoked).find(|(_, _, theirs)| theirs == key) {
        return Found::Changed(format!("{place}, marked as revoked"));
    }
    if with(Marker::None).any(|(_, _, theirs)| theirs == key) {
        return Found::Trusted;
    }
    let same_kind = with(Marker::None).find(|(_, _, theirs)| theirs.0 == key.0);
    if let Some((place, ..)) = same_kind.or_else(|| with(Marker::None).next()) {
        return Found::Changed(place.clone());
    }
    with(Marker::Authority)
        .next()
        .map_or(Found::Nothing, |(place, ..)| {
            Found::Authority(place.clone())
        })
}

/// The name under which an endpoint is on record.
fn name_of(endpoint: &Endpoint) -> String {
    let address = endpoint.address.to_lowercase();
    if endpoint.port == 22 {
        address
    } else {
        format!("[{address}]:{}", endpoint.port)
    }
}

/// The lines of a text, each read once: a cluster of a thousand nodes has a thousand lines, and looks for each of its
/// nodes. Keys are read where their line matches.
#[derive(Debug, Default)]
struct Index {
    lines: Vec<Line>,
    count: usize,
    /// Those with plain names, by each of them.
    named: HashMap<String, Vec<usize>>,
    /// Those with patterns, and with hashed names.
    others: Vec<usize>,
}

#[derive(Debug)]
struct Line {
    number: usize,
    marker: Marker,
    hosts: HostPatterns,
    key: String,
}

impl Index {
    fn of(text: &str) -> Self {
        let mut index = Self::default();
        for line in text.lines() {
            index.push(line);
        }
        index
    }

    fn push(&mut self, line: &str) {
        self.count += 1;
        let Some(line) = Line::of(self.count, line) else {
            return;
        };
        let at = self.lines.len();
        match &line.hosts {
            HostPatterns::Patterns(names) if names.iter().all(|name| is_plain(name)) => {
                for name in names {
                    self.named.entry(name.to_lowercase()).or_default().push(at);
                }
            }
            HostPatterns::Patterns(_) | HostPatterns::HashedName { .. } => self.others.push(at),
        }
        self.lines.push(line);
    }

    /// The entries that match a name, with their line numbers.
    fn matching(&self, name: &str) -> impl Iterator<Item = (usize, Entry)> {
        let others = self.others.iter();
        let others = others.filter(|at| self.lines[**at].matches(name));
        let named = self.named.get(name).into_iter().flatten();
        let mut all: Vec<usize> = named.chain(others).copied().collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().filter_map(|at| {
            let line = &self.lines[at];
            let entry = Entry {
                marker: line.marker,
                key: parse_key(&line.key)?,
            };
            Some((line.number, entry))
        })
    }
}

/// A name that only matches itself.
fn is_plain(name: &str) -> bool {
    !name.contains(['*', '?', '!'])
}

impl Line {
    /// A line, if it can be read. OpenSSH takes any white space between the words.
    fn of(number: usize, line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace().peekable();
        if words.peek()?.starts_with('#') {
            return None;
        }
        let marker = match words.peek()?.strip_prefix('@') {
            None => Marker::None,
            Some("revoked") => Marker::Revoked,
            Some("cert-authority") => Marker::Authority,
            Some(_) => return None,
        };
        if marker != Marker::None {
            words.next();
        }
        let hosts: HostPatterns = words.next()?.parse().ok()?;
        let key = words.collect::<Vec<_>>().join(" ");
        Some(Self {
            number,
            marker,
            hosts,
            key,
        })
    }

    fn matches(&self, name: &str) -> bool {
        match &self.hosts {
            HostPatterns::HashedName { salt, hash } => {
                // HMAC-SHA1 of the name with the salt as key.
                let mac = Hmac::<Sha1>::new_from_slice(salt);
                mac.is_ok_and(|mut mac| {
                    mac.update(name.as_bytes());
                    mac.verify_slice(hash).is_ok()
                })
            }
            HostPatterns::Patterns(patterns) => matches_patterns(patterns, name),
        }
    }
}

/// Type and bytes.
fn key_of(key: &PublicKey) -> Option<Key> {
    Some((key.algorithm().to_string(), key.to_bytes().ok()?))
}

/// A key as OpenSSH writes it: its type and its bytes must belong together.
fn parse_key(text: &str) -> Option<Key> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    key_of(&words.join(" ").parse().ok()?)
}

/// Comma-separated patterns; a negated one that matches rules the line out.
fn matches_patterns(patterns: &[String], name: &str) -> bool {
    let mut matches = false;
    for pattern in patterns {
        let pattern = pattern.to_lowercase();
        match pattern.strip_prefix('!') {
            Some(not) if matches_wildcards(not.as_bytes(), name.as_bytes()) => return false,
            Some(_) => {}
            None => matches |= matches_wildcards(pattern.as_bytes(), name.as_bytes()),
        }
    }
    matches
}

/// `*` and `?`, nothing else. Linear in practice: on a mismatch it goes back to the last star.
fn matches_wildcards(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            Some(_) | None => match star {
                Some((at, from)) => {
                    p = at + 1;
                    n = from + 1;
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
#[path = "known_hosts_tests.rs"]
mod tests;

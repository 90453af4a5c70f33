//! `known_hosts`: which host keys are trusted.
//!
//! `ssh_key` reads the lines; what they mean for a name is OpenSSH's (hashed names, wildcards, negation, `[host]:port`,
//! `@revoked`, several keys a host); a line that cannot be read is skipped as OpenSSH does. One
//! rule is stricter: any other key on record for a host, of whatever type, is a changed key,
//! so that "accept new" never takes an impostor with a key of another type. A host certificate is accepted where an
//! authority on record (`@cert-authority`) signed it for that name ([`super::host_certificate`]); if not, the key in
//! it counts as a plain one, as in OpenSSH. What `@revoked` lists, key or authority, is always refused.

use std::{
    collections::{BTreeMap, HashMap},
    fmt, fs,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use futures::{FutureExt, future::BoxFuture};
use hmac::{Hmac, Mac};
use jiff::Timestamp;
use russh::keys::{
    Certificate, PublicKey,
    ssh_key::{known_hosts::HostPatterns, public::KeyData},
};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::{HostKeyVerdict, HostKeys, ShownKey, host_certificate};
use crate::model::{Endpoint, printable};

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

/// Under which name and in which files the key of one endpoint is on record, where that is not as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lookup {
    /// The name, instead of the address and the port; a certificate must be for it, too (`HostKeyAlias`).
    pub alias: Option<String>,
    /// Instead of the user's file; keys that are taken are recorded in the first (`UserKnownHostsFile`).
    pub user_files: Option<Vec<PathBuf>>,
    /// Instead of the machine's files (`GlobalKnownHostsFile`).
    pub global_files: Option<Vec<PathBuf>>,
}

/// Trusted host keys, from files or from a text.
#[derive(Debug)]
pub struct KnownHosts {
    /// Each read once.
    sources: Vec<Source>,
    usual: Where,
    /// Of these endpoints the keys are on record elsewhere.
    special: BTreeMap<Endpoint, Where>,
    /// Taken during this run.
    taken: Mutex<Index>,
    /// Keys that are taken are recorded in a file, where there is one.
    records: bool,
    policy: Policy,
    /// Certificates are accepted at these times; `None`: never.
    now: Option<Now>,
    /// One question at a time.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Now(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl fmt::Debug for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Now")
    }
}

/// Where keys are on record.
#[derive(Clone, Debug, Default)]
struct Where {
    alias: Option<String>,
    /// Of [`KnownHosts::sources`]: the user's, and the machine's.
    user: Vec<usize>,
    global: Vec<usize>,
}

#[derive(Debug)]
struct Source {
    place: String,
    /// `None`: it is no file.
    file: Option<PathBuf>,
    index: Index,
}

impl Source {
    /// A file that does not exist is empty.
    fn read(file: &Path) -> io::Result<Self> {
        let text = match fs::read(file) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                let what = format!("cannot read {}: {error}", file.display());
                return Err(io::Error::new(error.kind(), what));
            }
        };
        Ok(Self {
            place: file.display().to_string(),
            file: Some(file.to_owned()),
            index: Index::of(&text),
        })
    }
}

impl KnownHosts {
    /// From a text, e.g. of a `Cluster` object; `place` says where it is, for messages. Keys
    /// that are taken are only remembered.
    pub fn from_text(place: &str, text: &str, policy: Policy) -> Self {
        let source = Source {
            place: place.to_owned(),
            file: None,
            index: Index::of(text),
        };
        Self {
            usual: Where {
                user: vec![0],
                ..Where::default()
            },
            ..Self::of(vec![source], policy)
        }
    }

    /// From files; the first is the user's, where keys that are taken are recorded, and the others are the machine's. A
    /// file that is not there is empty; one that cannot be read is an error, because it may say "revoked".
    pub fn from_files(files: &[PathBuf], policy: Policy) -> io::Result<Self> {
        let mut known = Self::of(Vec::new(), policy);
        let (user, global) = files.split_at(files.len().min(1));
        known.usual = Where {
            alias: None,
            user: known.read(user)?,
            global: known.read(global)?,
        };
        Ok(known)
    }

    fn of(sources: Vec<Source>, policy: Policy) -> Self {
        Self {
            sources,
            usual: Where::default(),
            special: BTreeMap::new(),
            taken: Mutex::default(),
            records: true,
            policy,
            now: None,
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// Their places in [`Self::sources`].
    fn read(&mut self, files: &[PathBuf]) -> io::Result<Vec<usize>> {
        let mut places = Vec::new();
        for file in files {
            let is_it = |source: &Source| source.file.as_ref() == Some(file);
            let known = self.sources.iter().position(is_it);
            let place = known.unwrap_or(self.sources.len());
            if known.is_none() {
                self.sources.push(Source::read(file)?);
            }
            places.push(place);
        }
        Ok(places)
    }

    /// With endpoints whose keys are on record under another name or in other files; the errors are those of
    /// [`Self::from_files`].
    pub fn with_lookups(mut self, lookups: &BTreeMap<Endpoint, Lookup>) -> io::Result<Self> {
        for (endpoint, lookup) in lookups {
            let Lookup {
                alias,
                user_files,
                global_files,
            } = lookup;
            let mut place = Where {
                alias: alias.as_ref().map(|alias| alias.to_lowercase()),
                ..self.usual.clone()
            };
            if let Some(files) = user_files {
                place.user = self.read(files)?;
            }
            if let Some(files) = global_files {
                place.global = self.read(files)?;
            }
            self.special.insert(endpoint.clone(), place);
        }
        Ok(self)
    }

    /// With host certificates, which are valid for a time: `now` tells it. Without, no host is requested to show one.
    #[must_use]
    pub fn with_certificates(self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            now: Some(Now(Arc::new(now))),
            ..self
        }
    }

    /// Keys that are taken are only remembered for this run: for those who promise to write
    /// nothing.
    #[must_use]
    pub fn unrecorded(self) -> Self {
        Self {
            records: false,
            ..self
        }
    }

    /// The keys on record for a machine, as in `authorized_keys`; revoked ones and authorities are none.
    pub fn keys_of(&self, endpoint: &Endpoint) -> Vec<String> {
        let entries = self.entries(endpoint, &self.name_of(endpoint)).into_iter();
        let keys = entries.filter(|(_, marker, _)| *marker == Marker::None);
        keys.map(|(_, _, (kind, blob))| format!("{kind} {}", STANDARD.encode(blob)))
            .collect()
    }

    fn place_of(&self, endpoint: &Endpoint) -> &Where {
        self.special.get(endpoint).unwrap_or(&self.usual)
    }

    /// The name under which an endpoint is on record.
    fn name_of(&self, endpoint: &Endpoint) -> String {
        let alias = self.place_of(endpoint).alias.clone();
        alias.unwrap_or_else(|| name_of(endpoint))
    }

    /// Like OpenSSH: what is on record under the bare name is good for any port; an alias has none.
    fn bare_name_of(&self, endpoint: &Endpoint) -> Option<String> {
        let has_one = endpoint.port != 22 && self.place_of(endpoint).alias.is_none();
        has_one.then(|| endpoint.address.to_lowercase())
    }

    /// Every entry for a name, with its place.
    fn entries(&self, endpoint: &Endpoint, name: &str) -> Vec<Found> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Where { user, global, .. } = self.place_of(endpoint);
        let sources = user.iter().chain(global).map(|at| &self.sources[*at]);
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

    /// Every entry that counts for an endpoint, whatever its port.
    fn all_entries(&self, endpoint: &Endpoint) -> Vec<Found> {
        let mut all = self.entries(endpoint, &self.name_of(endpoint));
        if let Some(bare) = self.bare_name_of(endpoint) {
            all.extend(self.entries(endpoint, &bare));
        }
        all
    }

    /// What the records say about a plain key.
    fn look_up(&self, endpoint: &Endpoint, key: &Key) -> OnRecord {
        let found = match_key(&self.entries(endpoint, &self.name_of(endpoint)), key);
        if !matches!(found, OnRecord::Trusted | OnRecord::Changed(_))
            && let Some(bare) = self.bare_name_of(endpoint)
        {
            let bare = match_key(&self.entries(endpoint, &bare), key);
            if matches!(bare, OnRecord::Trusted) {
                return bare;
            }
        }
        found
    }

    /// Whether an authority on record vouches for the host.
    fn vouched(&self, endpoint: &Endpoint, certificate: &Certificate) -> Vouched {
        let (Some(now), Some(signer)) = (&self.now, data_of(certificate.signature_key())) else {
            return Vouched::Unknown;
        };
        let entries = self.all_entries(endpoint);
        let mut authorities = entries.iter();
        let Some((place, ..)) =
            authorities.find(|(_, marker, key)| *marker == Marker::Authority && *key == signer)
        else {
            return Vouched::Unknown;
        };
        let alias = self.place_of(endpoint).alias.as_deref();
        let name = alias.unwrap_or(&endpoint.address);
        match host_certificate::check(certificate, name, (now.0)()) {
            Ok(()) => Vouched::Yes,
            Err(flaw) => Vouched::No(format!(
                "its certificate `{}`, of the authority in {place}, is refused: {flaw}",
                printable(certificate.key_id())
            )),
        }
    }

    async fn decide(
        &self,
        endpoint: &Endpoint,
        shown: &ShownKey,
        verified: &[String],
    ) -> io::Result<HostKeyVerdict> {
        let ShownKey {
            key: text,
            certificate,
        } = shown;
        let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "unreadable host key");
        let key = parse_key(text).ok_or_else(unreadable)?;
        let _one = self.asking.lock().await;
        if let Some(place) = self.revoked(endpoint, &key, certificate.as_deref()) {
            return Ok(HostKeyVerdict::Changed { place });
        }
        let flawed = match certificate {
            None => None,
            Some(certificate) => match self.vouched(endpoint, certificate) {
                Vouched::Yes => return Ok(HostKeyVerdict::Trusted),
                Vouched::No(why) => Some(why),
                Vouched::Unknown => None,
            },
        };
        let authority = match self.look_up(endpoint, &key) {
            OnRecord::Trusted => return Ok(HostKeyVerdict::Trusted),
            OnRecord::Changed(place) => return Ok(HostKeyVerdict::Changed { place }),
            OnRecord::Authority(place) => Some(place),
            OnRecord::Nothing => None,
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
        let lacking = flawed.or_else(|| authority.as_deref().map(uncertified));
        let warn = |why: Option<String>| {
            if let Some(why) = why {
                tracing::warn!("{endpoint}: {why}; its own key counts");
            }
        };
        let accepted = match &self.policy {
            Policy::Strict => {
                if let Some(why) = lacking {
                    return Err(io::Error::new(io::ErrorKind::Unsupported, cure(&why)));
                }
                false
            }
            Policy::AcceptNew => {
                warn(lacking);
                true
            }
            Policy::Ask(ask) => {
                warn(lacking);
                let shown = fingerprint(text).ok_or_else(unreadable)?;
                ask(endpoint.clone(), key.0.clone(), shown).await
            }
        };
        if accepted {
            self.take(endpoint, &key)?;
        }
        Ok(HostKeyVerdict::Unknown { accepted })
    }

    /// Where the key, or the authority of its certificate, is marked as revoked.
    fn revoked(
        &self,
        endpoint: &Endpoint,
        key: &Key,
        certificate: Option<&Certificate>,
    ) -> Option<String> {
        let signer = certificate.and_then(|certificate| data_of(certificate.signature_key()));
        self.all_entries(endpoint)
            .into_iter()
            .filter(|(_, marker, _)| *marker == Marker::Revoked)
            .find_map(|(place, _, listed)| {
                if listed == *key {
                    Some(format!("{place}, marked as revoked"))
                } else if signer.as_ref() == Some(&listed) {
                    Some(format!(
                        "{place}, which revokes the authority of its certificate"
                    ))
                } else {
                    None
                }
            })
    }

    fn take(&self, endpoint: &Endpoint, (kind, blob): &Key) -> io::Result<()> {
        let name = self.name_of(endpoint);
        let line = format!("{name} {kind} {}\n", STANDARD.encode(blob));
        let first = self.place_of(endpoint).user.first();
        let file = first.and_then(|at| self.sources[*at].file.as_ref());
        if let Some(file) = file.filter(|_| self.records) {
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

fn cure(why: &str) -> String {
    format!(
        "{why}; let the authority sign its key (`ssh-keygen -s CA -h -n NAME KEY`), or add its own key to the known hosts"
    )
}

/// Of a host that shows no certificate which counts, and whose own key is not on record.
fn uncertified(place: &str) -> String {
    format!(
        "it is on record only through `@cert-authority` in {place}, and it shows no certificate of that authority"
    )
}

impl HostKeys for KnownHosts {
    fn verify<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        shown: &'a ShownKey,
        verified: &'a [String],
    ) -> BoxFuture<'a, io::Result<HostKeyVerdict>> {
        self.decide(endpoint, shown, verified).boxed()
    }

    fn known_algorithms(&self, endpoint: &Endpoint) -> Vec<String> {
        let mut entries = self.entries(endpoint, &self.name_of(endpoint));
        if entries.is_empty()
            && let Some(bare) = self.bare_name_of(endpoint)
        {
            entries = self.entries(endpoint, &bare);
        }
        entries
            .into_iter()
            .filter(|(_, marker, _)| *marker == Marker::None)
            .map(|(_, _, (kind, _))| kind)
            .collect()
    }

    fn has_authority(&self, endpoint: &Endpoint) -> bool {
        let entries = self.all_entries(endpoint);
        let mut markers = entries.iter().map(|(_, marker, _)| *marker);
        self.now.is_some() && markers.any(|marker| marker == Marker::Authority)
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

/// Where an entry is, and what it says.
type Found = (String, Marker, Key);

/// What the records say about a plain key.
enum OnRecord {
    Trusted,
    Changed(String),
    Authority(String),
    Nothing,
}

/// Whether an authority vouches for a host.
enum Vouched {
    Yes,
    /// One would, but for this.
    No(String),
    /// None on record signed it.
    Unknown,
}

fn match_key(entries: &[Found], key: &Key) -> OnRecord {
    let with = |marker: Marker| {
        entries
            .iter()
            .filter(move |(_, theirs, _)| *theirs == marker)
    };
    if with(Marker::None).any(|(_, _, theirs)| theirs == key) {
        return OnRecord::Trusted;
    }
    let same_kind = with(Marker::None).find(|(_, _, theirs)| theirs.0 == key.0);
    if let Some((place, ..)) = same_kind.or_else(|| with(Marker::None).next()) {
        return OnRecord::Changed(place.clone());
    }
    with(Marker::Authority)
        .next()
        .map_or(OnRecord::Nothing, |(place, ..)| {
            OnRecord::Authority(place.clone())
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

fn data_of(key: &KeyData) -> Option<Key> {
    key_of(&PublicKey::new(key.clone(), ""))
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

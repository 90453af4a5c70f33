//! What logs in to a node or a bastion: a private key, its certificate, or an SSH agent.

use std::{collections::BTreeMap, path::PathBuf};

use russh::keys::ssh_key;

use super::{Found, values};
use crate::{
    config::{
        cursor::Cursor,
        intent::{Agent, Bastion, Certificate, Credential, SSH_AGENT},
        problem::Problem,
        sources::{DefaultKey, Refusal, Sources, SshKey},
        ssh_config::{SshAgent, SshHost, SshJump, SshQuery},
    },
    model::Secret,
};

/// What a machine is logged in to with.
pub(super) struct Proof {
    pub(super) credential: Credential,
    /// [`Login::key_source`](crate::config::Login::key_source).
    pub(super) source: String,
    /// What of it comes from the SSH config, by its keyword.
    pub(super) ssh_config: Vec<(&'static str, String)>,
}

/// It was refused, and a problem says why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused;

/// Finds keys, certificates and the agent, each of them read and judged once.
pub(super) struct Keys<'a> {
    sources: &'a dyn Sources,
    root: Cursor<'a>,
    /// `None` as a value: it was refused, and that was said.
    by_path: BTreeMap<String, Option<SshKey>>,
    /// What logs in where no key is named.
    default: Option<Result<DefaultKey, Refused>>,
    certificates: BTreeMap<String, Option<Certificate>>,
    /// Asked for once; none, where none may be used.
    agent: Option<Result<PathBuf, Refused>>,
    /// The machines that `ProxyJump` names.
    ways: Vec<(Vec<SshJump>, Way)>,
}

/// The machines on the way to a node, the one that is dialled from here first.
pub(super) type Way = Result<Vec<Bastion>, Refused>;

impl<'a> Keys<'a> {
    pub(super) fn new(sources: &'a dyn Sources, root: &Cursor<'a>) -> Self {
        Self {
            sources,
            root: root.clone(),
            by_path: BTreeMap::new(),
            default: None,
            certificates: BTreeMap::new(),
            agent: None,
            ways: Vec::new(),
        }
    }

    /// What the SSH config says about a machine of the config.
    pub(super) fn ssh_host(&self, machine: &Cursor<'_>) -> Option<SshHost> {
        SshQuery::of(machine).and_then(|query| self.ssh_host_of(&query))
    }

    /// What the SSH config says about a machine.
    pub(super) fn ssh_host_of(&self, query: &SshQuery) -> Option<SshHost> {
        self.sources.ssh_host(query)
    }

    /// What a `ProxyJump` was found to name.
    pub(super) fn known_way(&self, jumps: &[SshJump]) -> Option<Way> {
        let mut ways = self.ways.iter();
        ways.find(|(known, _)| known == jumps)
            .map(|(_, way)| way.clone())
    }

    /// Keeps it: many nodes have the same.
    pub(super) fn learn_way(&mut self, jumps: &[SshJump], way: Way) {
        self.ways.push((jumps.to_vec(), way));
    }

    /// The keys at the top level, which every node may leave unused: what stands there must be what it is called.
    pub(super) fn check(&self, found: &mut Found) {
        for name in ["ssh_key_path", "ssh_cert_path"] {
            values::text(&self.root.get(name), found);
        }
        values::flag(&self.root.get("ssh_agent_auth"), found);
        let bastion = self.root.get("bastion_host");
        let way = bastion.get("through").items();
        for at in way.iter().chain([&bastion]) {
            values::flag(&at.get("ssh_agent_auth"), found);
        }
    }

    /// As RKE: the agent where the top level says so, else the node's text, the node's path, the
    /// cluster's path, the default key.
    pub(super) fn of_node(
        &mut self,
        node: &Cursor<'_>,
        ssh: Option<&SshHost>,
        found: &mut Found,
    ) -> Option<Proof> {
        for why in ssh.iter().flat_map(|ssh| &ssh.unusable) {
            found.warning(node.get("address").problem(why));
        }
        if let Some(agent) = self.wanted_agent(&self.root.get("ssh_agent_auth"), node, ssh, found) {
            return Some(agent);
        }
        self.of_key(node, ssh, found)
    }

    /// Of a machine that only `ProxyJump` names, on the way to this node: its own key, else what every machine has.
    pub(super) fn of_jump(
        &mut self,
        node: &Cursor<'_>,
        ssh: &SshHost,
        found: &mut Found,
    ) -> Option<Proof> {
        // Nothing is written about it.
        let nothing = node.get("bastion_host");
        let agent = self.wanted_agent(&self.root.get("ssh_agent_auth"), &nothing, Some(ssh), found);
        if agent.is_some() {
            return agent;
        }
        if let Some(proof) = self.of_ssh_config(&node.get("address"), ssh, found) {
            return proof.ok();
        }
        self.of_key(&nothing, None, found)
    }

    /// As RKE's, and its own `ssh_agent_auth` counts too.
    pub(super) fn of_bastion(
        &mut self,
        bastion: &Cursor<'_>,
        ssh: Option<&SshHost>,
        found: &mut Found,
    ) -> Option<Proof> {
        for why in ssh.iter().flat_map(|ssh| &ssh.unusable) {
            found.warning(bastion.get("address").problem(why));
        }
        for at in [
            self.root.get("ssh_agent_auth"),
            bastion.get("ssh_agent_auth"),
        ] {
            if let Some(agent) = self.wanted_agent(&at, bastion, ssh, found) {
                return Some(agent);
            }
        }
        self.of_key(bastion, ssh, found)
    }

    /// Who logs in where no user is named, at `whom`.
    pub(super) fn default_user(
        &self,
        at: &Cursor<'_>,
        whom: &str,
        found: &mut Found,
    ) -> Option<String> {
        let user = self.sources.default_user();
        let user = user.map_err(|refusal| {
            let message = format!("{whom} needs a user to log in as");
            found.problem(refused(at, Refusal { message, ..refusal }));
        });
        user.ok()
    }

    /// Without an agent the keys count, as in RKE.
    fn wanted_agent(
        &mut self,
        at: &Cursor<'_>,
        machine: &Cursor<'_>,
        ssh: Option<&SshHost>,
        found: &mut Found,
    ) -> Option<Proof> {
        let says_so = values::flag(at, found) == Some(true);
        if !says_so && !self.sources.wants_agent() {
            return None;
        }
        let own = machine.get("ssh_key_path");
        let common = self.root.get("ssh_key_path");
        let mut written = [own, common].into_iter();
        let path = written.find_map(|at| at.scalar().filter(|path| !path.is_empty()));
        let files = ssh.and_then(|ssh| ssh.identity_files.as_deref());
        let named: Vec<&str> = match path {
            Some(path) => vec![path],
            None => files.into_iter().flatten().map(String::as_str).collect(),
        };
        let only = path.is_none() && ssh.is_some_and(|ssh| ssh.identities_only);
        // The config says that an agent is used, and the SSH config which.
        if let Some(SshAgent::At(socket)) = ssh.and_then(|ssh| ssh.agent.as_ref()) {
            let mut proof = self.of_agent(PathBuf::from(socket), &named, only);
            proof.ssh_config.push(("IdentityAgent", socket.clone()));
            return Some(proof);
        }
        if self.agent.is_none() {
            self.agent = Some(match self.sources.agent() {
                Ok(Some(socket)) => Ok(socket),
                Ok(None) => {
                    found.warning(no_agent(at, says_so));
                    Err(Refused)
                }
                Err(refusal) => {
                    found.problem(refused(at, refusal));
                    Err(Refused)
                }
            });
        }
        let socket = self.agent.clone()?.ok()?;
        Some(self.of_agent(socket, &named, only))
    }

    /// `named`: files of keys. The agent tries these keys first; with `only_named`, no others.
    fn of_agent(&self, socket: PathBuf, named: &[&str], only_named: bool) -> Proof {
        let public = named.iter().map(|path| self.sources.public_key_at(path));
        Proof {
            credential: Credential::Agent(Agent {
                socket,
                named: public.flatten().collect(),
                only_named,
            }),
            source: SSH_AGENT.to_owned(),
            ssh_config: Vec::new(),
        }
    }

    /// As the SSH config says, where that says something: the first of its keys that can be used as it is, else its
    /// agent with them, else one of them with a passphrase, for which a person is prompted. `None`: it says nothing.
    fn of_ssh_config(
        &mut self,
        at: &Cursor<'_>,
        ssh: &SshHost,
        found: &mut Found,
    ) -> Option<Result<Proof, Refused>> {
        let own = match &ssh.agent {
            Some(SshAgent::At(socket)) => Some(PathBuf::from(socket)),
            Some(SshAgent::None) | None => None,
        };
        if ssh.identity_files.is_none() && own.is_none() {
            return None;
        }
        let files = ssh.identity_files.clone().unwrap_or_default();
        let (here, missing): (Vec<_>, Vec<_>) = files
            .iter()
            .map(String::as_str)
            .partition(|path| !self.sources.lacks_key(path));
        let read = here
            .iter()
            .filter_map(|path| self.sources.key_at(path).ok());
        let keys: Vec<SshKey> = read.collect();
        let usable = keys
            .iter()
            .find(|key| matches!(kind(&key.pem), Kind::Usable));
        if let Some(key) = usable {
            return Some(Ok(self.with_ssh_certificate(key.clone(), ssh)));
        }
        let socket = match (&ssh.agent, own) {
            (Some(SshAgent::None), _) => None,
            (_, Some(own)) => Some((own, true)),
            (_, None) => self
                .sources
                .agent()
                .ok()
                .flatten()
                .map(|of_env| (of_env, false)),
        };
        if let Some((socket, is_own)) = socket {
            let named: Vec<&str> = files.iter().map(String::as_str).collect();
            let shown = socket.display().to_string();
            let mut proof = self.of_agent(socket, &named, ssh.identities_only);
            if is_own {
                proof.ssh_config.push(("IdentityAgent", shown));
            }
            if !files.is_empty() {
                proof.ssh_config.push(("IdentityFile", files.join(" ")));
            }
            return Some(Ok(proof));
        }
        let encrypted = keys.into_iter().find(|key| has_passphrase(&key.pem));
        if let Some(key) = encrypted {
            let key = self.of_file(key, at, found);
            let proof = key.map(|key| self.with_ssh_certificate(key, ssh));
            return Some(proof.ok_or(Refused));
        }
        if !files.is_empty() {
            let what = if missing.len() == files.len() {
                "`IdentityFile` of the SSH config does not exist: a default key is used"
            } else {
                "`IdentityFile` of the SSH config is no private key, and there is no SSH agent: a default key is used"
            };
            found.warning(at.problem(what).detail(files.join(" ")));
        }
        None
    }

    /// A key of the SSH config, with the first `CertificateFile` that is of this key.
    fn with_ssh_certificate(&self, key: SshKey, ssh: &SshHost) -> Proof {
        let files = ssh.certificate_files.iter();
        let read = files.filter_map(|path| self.sources.certificate_at(path).ok());
        let mut own = read.filter(|certificate| not_for(certificate, &key).is_none());
        let certificate = own.next();
        let mut ssh_config = vec![("IdentityFile", key.source.clone())];
        if let Some(certificate) = &certificate {
            ssh_config.push(("CertificateFile", certificate.source.clone()));
        }
        Proof {
            credential: Credential::Key(key.pem, certificate),
            source: key.source,
            ssh_config,
        }
    }

    fn of_key(
        &mut self,
        machine: &Cursor<'_>,
        ssh: Option<&SshHost>,
        found: &mut Found,
    ) -> Option<Proof> {
        let inline = machine.get("ssh_key");
        let own = machine.get("ssh_key_path");
        let common = self.root.get("ssh_key_path");
        let before = found.problems.len();
        let key = if let Some(pem) = values::text(&inline, found) {
            self.inline(&inline, pem, found)
        } else if values::text(&own, found).is_some() {
            self.at(&own, found)
        } else if values::text(&common, found).is_some() {
            self.at(&common, found)
        } else if found.problems.len() > before {
            None
        } else {
            let address = machine.get("address");
            if let Some(proof) = ssh.and_then(|ssh| self.of_ssh_config(&address, ssh, found)) {
                return proof.ok();
            }
            match self.default(&common, found)? {
                DefaultKey::Key(key) => Some(key),
                DefaultKey::Agent(socket) => return Some(self.of_agent(socket, &[], false)),
            }
        }?;
        let certificate = self.certificate(machine, &key, found).ok()?;
        Some(Proof {
            credential: Credential::Key(key.pem, certificate),
            source: key.source,
            ssh_config: Vec::new(),
        })
    }

    /// What logs in where no key is named; the problem stands where it is set.
    fn default(&mut self, at: &Cursor<'_>, found: &mut Found) -> Option<DefaultKey> {
        if let Some(known) = &self.default {
            return known.clone().ok();
        }
        let (problems, warnings) = (found.problems.len(), found.warnings.len());
        let default = match self.sources.default_key() {
            Ok(DefaultKey::Key(key)) => self.of_file(key, at, found).map(DefaultKey::Key),
            Ok(DefaultKey::Agent(socket)) => Some(DefaultKey::Agent(socket)),
            Err(refusal) if self.sources.only_validates() => {
                found.warning(refused(at, refusal));
                Some(DefaultKey::Key(no_key(self.sources.default_key_path())))
            }
            Err(refusal) => {
                found.problem(refused(at, refusal));
                None
            }
        };
        let warnings = found.warnings.iter_mut().skip(warnings);
        for problem in found.problems.iter_mut().skip(problems).chain(warnings) {
            self.sources
                .default_key_path()
                .clone_into(&mut problem.path);
        }
        self.default = Some(default.clone().ok_or(Refused));
        default
    }

    fn inline(&self, at: &Cursor<'_>, pem: &str, found: &mut Found) -> Option<SshKey> {
        match self.sources.allows_inline_key() {
            Ok(()) => {
                let key = SshKey {
                    pem: pem.to_owned().into(),
                    source: "ssh_key".to_owned(),
                };
                self.validated(key, at, found)
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
        self.elsewhere(at, path, found);
        let key = match self.sources.key_at(path) {
            Ok(key) => self.of_file(key, at, found),
            Err(refusal) if self.sources.only_validates() && self.sources.lacks_key(path) => {
                found.warning(refused(at, refusal));
                Some(no_key(path))
            }
            Err(refusal) => {
                found.problem(refused(at, refusal));
                None
            }
        };
        self.by_path.insert(path.to_owned(), key.clone());
        key
    }

    fn of_file(&self, key: SshKey, at: &Cursor<'_>, found: &mut Found) -> Option<SshKey> {
        if has_passphrase(&key.pem) && !self.sources.only_validates() {
            self.sources.wants_passphrase(&key);
        }
        self.validated(key, at, found)
    }

    /// The key, when it can be used as it is. A check of the config accepts one with a passphrase.
    fn validated(&self, key: SshKey, at: &Cursor<'_>, found: &mut Found) -> Option<SshKey> {
        let Some(problem) = unusable(&key, at) else {
            return Some(key);
        };
        if self.sources.only_validates() && has_passphrase(&key.pem) {
            found.warning(problem);
            return Some(key);
        }
        found.problem(problem);
        None
    }

    /// It works from one directory and not from another.
    fn elsewhere(&self, at: &Cursor<'_>, path: &str, found: &mut Found) {
        if self.sources.is_elsewhere(path) {
            let problem =
                at.problem("this file was found from the current directory, not beside the config");
            found.warning(
                problem
                    .hint("relative paths begin at the folder of the config: write it from there"),
            );
        }
    }

    /// The key's certificate: the machine's text, the machine's path, the cluster's path.
    /// `None`: it has none.
    fn certificate(
        &mut self,
        machine: &Cursor<'_>,
        key: &SshKey,
        found: &mut Found,
    ) -> Result<Option<Certificate>, Refused> {
        let inline = machine.get("ssh_cert");
        let own = machine.get("ssh_cert_path");
        let common = self.root.get("ssh_cert_path");
        let (at, certificate) = if let Some(text) = values::text(&inline, found) {
            let (text, source) = (text.to_owned(), "ssh_cert".to_owned());
            (inline, Certificate { text, source })
        } else {
            let own = values::text(&own, found).map(|path| (own, path));
            let common = values::text(&common, found).map(|path| (common, path));
            let Some((at, path)) = own.or(common) else {
                return Ok(None);
            };
            let known = self.certificates.get(path).cloned();
            if known.is_none() {
                self.elsewhere(&at, path, found);
            }
            let certificate = known.unwrap_or_else(|| {
                let read = self.sources.certificate_at(path);
                read.map_err(|refusal| found.problem(refused(&at, refusal)))
                    .ok()
            });
            self.certificates
                .insert(path.to_owned(), certificate.clone());
            (at, certificate.ok_or(Refused)?)
        };
        match not_for(&certificate, key) {
            None => Ok(Some(certificate)),
            Some((message, hint)) => {
                found.problem(at.problem(message).hint(hint));
                Err(Refused)
            }
        }
    }
}

/// Where the config does not ask for the agent, the command line does: it has no place in the file.
fn no_agent(at: &Cursor<'_>, says_so: bool) -> Problem {
    let problem = if says_so {
        at.problem("there is no SSH agent: key files are used")
    } else {
        Problem::new(
            "",
            "there is no SSH agent, which the command line asks for: key files are used",
        )
    };
    problem.hint("`SSH_AUTH_SOCK` is not set; `eval $(ssh-agent)` and `ssh-add` start one")
}

/// What is wrong with a certificate for this key, and the cure.
fn not_for(certificate: &Certificate, key: &SshKey) -> Option<(&'static str, &'static str)> {
    let Ok(parsed) = certificate.text.trim().parse::<ssh_key::Certificate>() else {
        return Some((
            "this is not an OpenSSH certificate",
            "name the file that `ssh-keygen -s` made: it ends with `-cert.pub`",
        ));
    };
    if parsed.cert_type().is_host() {
        return Some((
            "this is the certificate of a host",
            "name the one of the user who logs in",
        ));
    }
    // A key that cannot be read was told already.
    let key = russh::keys::decode_secret_key(key.pem.expose(), None).ok()?;
    (parsed.public_key() != key.public_key().key_data()).then_some((
        "this certificate is of another key than the one that logs in",
        "`ssh-keygen -L -f FILE` shows whose it is",
    ))
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

/// Stands for a key that is missing where the config is only checked: nothing logs in with it.
fn no_key(source: &str) -> SshKey {
    SshKey {
        pem: Secret::new(String::new()),
        source: source.to_owned(),
    }
}

/// Why the key cannot be used as it is.
fn unusable(key: &SshKey, at: &Cursor<'_>) -> Option<Problem> {
    let (message, hint) = match kind(&key.pem) {
        Kind::Usable => return None,
        Kind::Public => (
            "this is a public key",
            "name the private one: the file without `.pub`",
        ),
        Kind::Encrypted => (
            "this private key has a passphrase",
            "at a terminal you are asked for it; elsewhere an SSH agent can hold the key (`ssh-add FILE`, and `ssh_agent_auth: true`), or use one without a passphrase",
        ),
        Kind::Broken => (
            "this private key is damaged, or of a kind that is not supported",
            "`ssh-keygen -y -f FILE` shows whether OpenSSH can read it",
        ),
        Kind::OneLine => (
            "the line breaks of this private key are missing",
            "write `ssh_key: |-`, and the key's lines below it, each indented; in quotes `\\n` is a line break only between `\"`",
        ),
        Kind::Other => (
            "this is not a private key",
            "a private key begins with `-----BEGIN … PRIVATE KEY-----`",
        ),
    };
    // The key itself is no detail: only where it came from, when that is elsewhere.
    let source = Some(key.source.clone());
    let detail = source.filter(|source| !at.path().ends_with(source.as_str()));
    Some(Problem {
        detail,
        ..at.problem(message).hint(hint)
    })
}

/// True when only an agent can use the key.
pub fn has_passphrase(pem: &Secret<String>) -> bool {
    matches!(kind(pem), Kind::Encrypted)
}

enum Kind {
    Usable,
    Public,
    Encrypted,
    Broken,
    /// All in one line, or with `\n` as it is written.
    OneLine,
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
        Err(_) if !putty && (text.lines().count() < 3 || text.contains("\\n")) => Kind::OneLine,
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
            (
                "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
                "broken",
            ),
            (
                "-----BEGIN OPENSSH PRIVATE KEY----- AAAA -----END OPENSSH PRIVATE KEY-----",
                "one line",
            ),
            (
                "-----BEGIN OPENSSH PRIVATE KEY-----\\nAAAA\\n-----END OPENSSH PRIVATE KEY-----\\n",
                "one line",
            ),
        ] {
            let got = match kind(&Secret::new(text.to_owned())) {
                Kind::Usable => "usable",
                Kind::Public => "public",
                Kind::Encrypted => "encrypted",
                Kind::Broken => "broken",
                Kind::OneLine => "one line",
                Kind::Other => "other",
            };
            assert_eq!(got, want, "{text}");
        }
    }
}

//! What logs in to a node or a bastion: a private key, its certificate, or an SSH agent.

use std::{collections::BTreeMap, path::PathBuf};

use jiff::Timestamp;
use russh::keys::ssh_key;

use super::{Found, values};
use crate::{
    config::{
        cursor::Cursor,
        intent::{Agent, Bastion, Certificate, Credential, SSH_AGENT},
        private_key::{Kind, has_passphrase, kind},
        problem::Problem,
        sources::{DefaultKey, Refusal, Sources, SshKey},
        ssh_config::{SshAgent, SshHost, SshJump, SshQuery, written_way},
    },
    model::{Secret, shell_word},
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

/// Finds keys, certificates and the agent. Each is read and validated once.
pub(super) struct Keys<'a> {
    sources: &'a dyn Sources,
    root: Cursor<'a>,
    /// `None` as a value: the key was refused, and a problem reports it.
    by_path: BTreeMap<String, Option<SshKey>>,
    /// What logs in where no key is named.
    default: Option<Result<DefaultKey, Refused>>,
    certificates: BTreeMap<String, Option<Certificate>>,
    /// Those next to keys (`FILE-cert.pub`), by the key's file.
    adjacent: BTreeMap<String, Option<Certificate>>,
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
            adjacent: BTreeMap::new(),
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
        for at in written_way(&self.root) {
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
            return Some(Ok(self.with_ssh_certificate(key.clone(), at, ssh, found)));
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
        let encrypted = keys.iter().find(|key| has_passphrase(&key.pem));
        if let Some(key) = encrypted {
            let key = self.of_file(key.clone(), at, found);
            let proof = key.map(|key| self.with_ssh_certificate(key, at, ssh, found));
            return Some(proof.ok_or(Refused));
        }
        if let Some(key) = keys.iter().find(|key| kind(&key.pem) == Kind::Token) {
            let problem = at.problem(
                "`IdentityFile` of the SSH config is on a security token (FIDO), and there is no SSH agent: a default key is used",
            );
            let file = self.file_word(&key.source);
            found.warning(problem.detail(&key.source).hint(format!(
                "an SSH agent can use it: `eval $(ssh-agent)`, then `ssh-add {file}`"
            )));
        } else if !files.is_empty() {
            let what = if missing.len() == files.len() {
                "`IdentityFile` of the SSH config does not exist: a default key is used"
            } else {
                "`IdentityFile` of the SSH config is no private key, and there is no SSH agent: a default key is used"
            };
            found.warning(at.problem(what).detail(files.join(" ")));
        }
        None
    }

    /// A key of the SSH config, with the first `CertificateFile` that is of this key, else with the certificate next to
    /// it.
    fn with_ssh_certificate(
        &mut self,
        key: SshKey,
        at: &Cursor<'_>,
        ssh: &SshHost,
        found: &mut Found,
    ) -> Proof {
        let mut unfit = Vec::new();
        let mut fitting = ssh.certificate_files.iter().filter_map(|path| {
            let read = self.sources.certificate_at(path);
            let fit = read.map_err(|refusal| (refusal.message, refusal.detail));
            let fit = fit.and_then(|certificate| match self.unfit(&certificate, &key) {
                None => Ok(certificate),
                Some((message, _)) => Err((message.to_owned(), Some(path.clone()))),
            });
            fit.map_err(|why| unfit.push(why)).ok()
        });
        let named = fitting.next();
        drop(fitting);
        if named.is_none() {
            for (message, detail) in unfit {
                let problem = at.problem(format!(
                    "`CertificateFile` of the SSH config is not used: {message}"
                ));
                found.warning(Problem { detail, ..problem });
            }
        }
        let certificate = named.or_else(|| self.certificate_next_to(&key, at, found));
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

    /// As OpenSSH: the certificate in `FILE-cert.pub` goes with the key in `FILE`, unless it cannot be used.
    fn certificate_next_to(
        &mut self,
        key: &SshKey,
        at: &Cursor<'_>,
        found: &mut Found,
    ) -> Option<Certificate> {
        if let Some(known) = self.adjacent.get(&key.source) {
            return known.clone();
        }
        let certificate = match self.sources.certificate_next_to(&key.source)? {
            Ok(certificate) => match self.unfit(&certificate, key) {
                None => Ok(certificate),
                Some((message, hint)) => Err(Refusal {
                    message: message.to_owned(),
                    detail: Some(certificate.source),
                    hint: Some(hint),
                }),
            },
            Err(refusal) => Err(refusal),
        };
        let certificate = certificate.map_err(|refusal| {
            let message = format!(
                "the certificate next to the key is not used: {}",
                refusal.message
            );
            found.warning(refused(at, Refusal { message, ..refusal }));
        });
        let certificate = certificate.ok();
        self.adjacent
            .insert(key.source.clone(), certificate.clone());
        certificate
    }

    /// Why a certificate cannot be used with this key, now, and the cure.
    fn unfit(&self, certificate: &Certificate, key: &SshKey) -> Option<(&'static str, String)> {
        let file = self.file_word(&certificate.source);
        not_for(certificate, key, &file).or_else(|| {
            let message = outside_of_its_time(certificate, self.sources.now()?)?;
            Some((message, another_certificate(&file)))
        })
    }

    /// The file of a source, as a word of a command; where it is none, a word that stands for it.
    fn file_word(&self, source: &str) -> String {
        let file = self.sources.file_of(source);
        file.map_or_else(
            || "FILE".to_owned(),
            |file| shell_word(&file.display().to_string()).into_owned(),
        )
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
        let mut is_file = true;
        let key = if let Some(pem) = values::text(&inline, found) {
            is_file = false;
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
        let mut certificate = self.certificate(machine, &key, found).ok()?;
        if certificate.is_none() && is_file {
            let at = if own.is_empty() { &common } else { &own };
            certificate = self.certificate_next_to(&key, at, found);
        }
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
                self.validated(key, at, "FILE", found)
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
        if kind(&key.pem) == Kind::Encrypted && !self.sources.only_validates() {
            self.sources.wants_passphrase(&key);
        }
        let file = self.file_word(&key.source);
        if self.sources.others_may_read(&key.source) {
            let problem = at.problem("other users of this machine may read this private key");
            let problem = problem.detail(&key.source);
            found.warning(problem.hint(format!("`chmod 600 {file}`; ssh would not use it")));
        }
        self.validated(key, at, &file, found)
    }

    /// The key, when it can be used as it is. A check of the config accepts one with a passphrase. `file`: its file, as
    /// a word of a command.
    fn validated(
        &self,
        key: SshKey,
        at: &Cursor<'_>,
        file: &str,
        found: &mut Found,
    ) -> Option<SshKey> {
        let kind = kind(&key.pem);
        let is_locked = kind == Kind::Encrypted && self.sources.cannot_decrypt(&key);
        let kind = if is_locked { Kind::Locked } else { kind };
        let Some(problem) = unusable(&key, kind, at, file) else {
            return Some(key);
        };
        if self.sources.only_validates() && kind == Kind::Encrypted {
            found.warning(problem);
            return Some(key);
        }
        found.problem(problem);
        None
    }

    /// It works from one directory and not from another.
    fn elsewhere(&self, at: &Cursor<'_>, path: &str, found: &mut Found) {
        if self.sources.is_elsewhere(path) {
            let problem = at
                .problem("this file was found from the current directory, not next to the config");
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
        let file = self.file_word(&certificate.source);
        if let Some((message, hint)) = not_for(&certificate, key, &file) {
            found.problem(at.problem(message).hint(hint));
            return Err(Refused);
        }
        let now = self.sources.now();
        // The key may log in without it, and the clock of the node counts.
        if let Some(message) = now.and_then(|now| outside_of_its_time(&certificate, now)) {
            found.warning(at.problem(message).hint(another_certificate(&file)));
        }
        Ok(Some(certificate))
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
    problem
        .hint("`SSH_AUTH_SOCK` is not set; start an agent with `eval $(ssh-agent)`, then `ssh-add`")
}

/// What is wrong with a certificate for this key, and the cure. `file`: its file, as a word of a command.
fn not_for(certificate: &Certificate, key: &SshKey, file: &str) -> Option<(&'static str, String)> {
    let Ok(parsed) = certificate.text.trim().parse::<ssh_key::Certificate>() else {
        return Some((
            "this is not an OpenSSH certificate",
            "name the file that `ssh-keygen -s` made: it ends with `-cert.pub`".to_owned(),
        ));
    };
    if parsed.cert_type().is_host() {
        return Some((
            "this is the certificate of a host",
            "name the one of the user who logs in".to_owned(),
        ));
    }
    // A key that cannot be read has a problem already.
    let key = russh::keys::decode_secret_key(key.pem.expose(), None).ok()?;
    (parsed.public_key() != key.public_key().key_data()).then(|| {
        (
            "this certificate does not match the key that logs in",
            format!("`ssh-keygen -L -f {file}` shows whose it is"),
        )
    })
}

/// Whether it is not valid yet, or no more.
fn outside_of_its_time(certificate: &Certificate, now: Timestamp) -> Option<&'static str> {
    let parsed: ssh_key::Certificate = certificate.text.trim().parse().ok()?;
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    if seconds < parsed.valid_after() {
        Some("this certificate is not valid yet")
    } else if seconds >= parsed.valid_before() {
        Some("this certificate has expired")
    } else {
        None
    }
}

fn another_certificate(file: &str) -> String {
    format!(
        "`ssh-keygen -L -f {file}` shows its validity; let the authority sign the key again (`ssh-keygen -s`)"
    )
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

/// Why the key cannot be used as it is. `file`: its file, as a word of a command.
fn unusable(key: &SshKey, kind: Kind, at: &Cursor<'_>, file: &str) -> Option<Problem> {
    let plain = |message, hint: &str| (message, hint.to_owned());
    let (message, hint) = match kind {
        Kind::Usable => return None,
        Kind::Public => plain(
            "this is a public key",
            "name the private one: the file without `.pub`",
        ),
        Kind::Encrypted => (
            "this private key has a passphrase",
            format!(
                "at a terminal you are asked for it; elsewhere an SSH agent can hold the key (`ssh-add {file}`, and `ssh_agent_auth: true`), or use one without a passphrase"
            ),
        ),
        Kind::Locked => (
            "this private key is encrypted in a way that is not supported; that does not mean that the passphrase is wrong",
            format!(
                "`ssh-keygen -p -f {file}` encrypts it again in OpenSSH's format; or an SSH agent can hold it (`ssh-add {file}`, and `ssh_agent_auth: true`)"
            ),
        ),
        Kind::Token => (
            "this key is on a security token (FIDO), which only an SSH agent can use",
            format!("`ssh-add {file}`, and `ssh_agent_auth: true`"),
        ),
        Kind::Dsa => plain(
            "this is a DSA key, which is not supported: OpenSSH 10 has removed DSA",
            "make another key (`ssh-keygen -t ed25519`), and add its public half to `~/.ssh/authorized_keys` of the nodes",
        ),
        Kind::Broken => (
            "this private key is damaged, or of a kind that is not supported",
            format!(
                "`ssh-keygen -y -f {file}` shows whether OpenSSH can read it; if so, `ssh-keygen -p -f {file}` writes it again in OpenSSH's format, and `ssh-keygen -p -m PEM -f {file}` in PEM"
            ),
        ),
        Kind::Putty => (
            "this private key of PuTTY has a passphrase, is damaged, or is of a kind that is not supported",
            format!(
                "`puttygen {file} -O private-openssh -o NEW` writes it in OpenSSH's format: name that file"
            ),
        ),
        Kind::OneLine => plain(
            "the line breaks of this private key are missing",
            "write `ssh_key: |-`, and the key's lines below it, each indented; in quotes `\\n` is a line break only between `\"`",
        ),
        Kind::Other => plain(
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

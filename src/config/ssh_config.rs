//! What the configuration of OpenSSH's client (`~/.ssh/config`) says about machines: the output of `ssh -G` as values,
//! and which machines it must be asked about. Pure: the command line runs `ssh`; an operator has no such file.
//!
//! `ssh -G` prints its defaults, too. A value counts only where it differs from what `ssh -F /dev/null -G` prints.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    cursor::Cursor,
    rke::RkeConfig,
    ssh_names::{ipv6, is_alias, is_dialled, plain},
};
use crate::model::{Endpoint, printable};

/// A machine, as a person would name it to `ssh`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SshQuery {
    /// The address as it is written; of IPv6 in its shortest form, without brackets.
    pub address: String,
    /// The user that the config names (`ssh -l`).
    pub user: Option<String>,
    /// The port that the config names (`ssh -p`).
    pub port: Option<u16>,
}

impl SshQuery {
    /// Of a node or a bastion host; `None` where its address is none.
    pub(super) fn of(machine: &Cursor<'_>) -> Option<Self> {
        let text = |key: &str| {
            let text = machine.get(key).scalar()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        let address = text("address").filter(|address| is_alias(address))?;
        Some(Self {
            address: plain(&address).into_owned(),
            user: text("user").filter(|user| !user.chars().any(char::is_whitespace)),
            port: text("port").and_then(|port| port.parse().ok()),
        })
    }
}

/// The nodes and bastion hosts of a config, each once.
pub fn ssh_queries(config: &RkeConfig) -> BTreeSet<SshQuery> {
    let root = config.root();
    let machines = root.get("nodes").items().into_iter();
    machines
        .chain(written_way(&root))
        .filter_map(|machine| SshQuery::of(&machine))
        .collect()
}

/// The machines of `bastion_host`, the one that is dialled from here first: a list of them, or one and those in its
/// `through`.
pub(super) fn written_way<'a>(root: &Cursor<'a>) -> Vec<Cursor<'a>> {
    let bastion = root.get("bastion_host");
    if bastion.is_list() {
        return bastion.items();
    }
    let mut way = bastion.get("through").items();
    way.push(bastion);
    way
}

/// The agent that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SshAgent {
    /// None is to be used (`IdentityAgent none`).
    None,
    /// The one at this socket.
    At(String),
}

/// A machine on the way (`ProxyJump`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshJump {
    /// As in `ssh`: a host of the configuration, or an address.
    pub address: String,
    /// Its user, where one is named.
    pub user: Option<String>,
    /// Its port, where one is named.
    pub port: Option<u16>,
}

impl SshJump {
    /// The query to `ssh -G` for it.
    pub fn query(&self) -> SshQuery {
        let Self {
            address,
            user,
            port,
        } = self.clone();
        SshQuery {
            address,
            user,
            port,
        }
    }
}

/// What the configuration says about one machine. What is not set there is `None`, or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SshHost {
    /// `HostName`.
    pub host_name: Option<String>,
    /// `User`.
    pub user: Option<String>,
    /// `Port`.
    pub port: Option<u16>,
    /// `IdentityFile`, in its order; `Some` of nothing for `none`.
    pub identity_files: Option<Vec<String>>,
    /// `CertificateFile`.
    pub certificate_files: Vec<String>,
    /// `IdentityAgent`.
    pub agent: Option<SshAgent>,
    /// `IdentitiesOnly yes`.
    pub identities_only: bool,
    /// `ProxyJump`, the machine that is dialled from here first.
    pub jumps: Vec<SshJump>,
    /// `ProxyCommand`, which cannot be used.
    pub proxy_command: Option<String>,
    /// `HostKeyAlias`.
    pub host_key_alias: Option<String>,
    /// `UserKnownHostsFile`.
    pub user_known_hosts: Option<Vec<String>>,
    /// `GlobalKnownHostsFile`.
    pub global_known_hosts: Option<Vec<String>>,
    /// Values that cannot be used, each with the reason: sentence fragments. The login does without them.
    pub unusable: Vec<String>,
    /// Why it is not known where the machine is: the machine must not be dialled.
    pub no_place: Option<String>,
    /// Why it is not known through which machines it is reached: it must not be dialled directly.
    pub no_way: Option<String>,
}

/// Whose configuration it is.
pub struct SshPerson<'a> {
    /// `%d`.
    pub home: Option<&'a str>,
    /// `%u`.
    pub user: Option<&'a str>,
    /// A variable of the environment, for `${NAME}`.
    pub variable: &'a (dyn Fn(&str) -> Option<String> + Sync),
}

/// The lines of an output of `ssh -G`, by keyword in lower case.
struct Lines<'a>(BTreeMap<&'a str, Vec<&'a str>>);

impl<'a> Lines<'a> {
    fn of(output: &'a str) -> Self {
        let mut lines: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for line in output.lines() {
            let (keyword, value) = line.split_once(' ').unwrap_or((line, ""));
            lines.entry(keyword).or_default().push(value.trim());
        }
        Self(lines)
    }

    fn all(&self, keyword: &str) -> &[&'a str] {
        self.0.get(keyword).map_or(&[], Vec::as_slice)
    }

    fn first(&self, keyword: &str) -> Option<&'a str> {
        self.all(keyword).first().copied()
    }
}

/// An output next to that without any configuration.
struct Compared<'a> {
    said: Lines<'a>,
    usual: Lines<'a>,
}

impl<'a> Compared<'a> {
    /// The values of a keyword, where they are not the usual ones.
    fn set(&self, keyword: &str) -> Option<&[&'a str]> {
        let said = self.said.all(keyword);
        (!said.is_empty() && said != self.usual.all(keyword)).then_some(said)
    }

    fn one(&self, keyword: &str) -> Option<&'a str> {
        self.set(keyword)?.first().copied()
    }
}

impl SshHost {
    /// Reads the output of `ssh -G` for a machine. `usual`: that of `ssh -F /dev/null -G`, for whichever machine: of
    /// what is used here only the name of the host depends on it.
    pub fn parse(query: &SshQuery, output: &str, usual: &str, person: &SshPerson<'_>) -> Self {
        let lines = Compared {
            said: Lines::of(output),
            usual: Lines::of(usual),
        };
        let mut host = Self::default();
        host.place(query, &lines);
        let tokens = Tokens {
            query,
            lines: &lines.said,
            person,
        };
        host.login(&lines, &tokens);
        host.way(&lines, &tokens);
        host.host_keys(&lines, &tokens);
        host
    }

    fn place(&mut self, query: &SshQuery, lines: &Compared<'_>) {
        let name = lines.said.first("hostname");
        if let Some(name) = name.filter(|name| !is_same_host(&query.address, name)) {
            if is_dialled(name) {
                self.host_name = Some(plain(name).into_owned());
            } else {
                self.no_place = Some(cannot(
                    "HostName",
                    name,
                    "it is neither a host name nor an IP address",
                ));
            }
        }
        if query.user.is_none() {
            self.user = lines.one("user").map(str::to_owned);
        }
        if query.port.is_none() {
            self.port = lines.one("port").and_then(|port| port.parse().ok());
        }
    }

    fn login(&mut self, lines: &Compared<'_>, tokens: &Tokens<'_>) {
        if let Some(files) = lines.set("identityfile") {
            self.identity_files = Some(self.files("IdentityFile", files, tokens));
        }
        if let Some(files) = lines.set("certificatefile") {
            self.certificate_files = self.files("CertificateFile", files, tokens);
        }
        self.identities_only = lines.one("identitiesonly") == Some("yes");
        self.agent = match lines.one("identityagent") {
            None | Some("SSH_AUTH_SOCK") => None,
            Some("none") => Some(SshAgent::None),
            Some(text) => match text.strip_prefix('$') {
                // A whole name of a variable, without braces.
                Some(name) if !name.starts_with('{') => (tokens.person.variable)(name)
                    .filter(|socket| !socket.is_empty())
                    .map(SshAgent::At),
                Some(_) | None => self
                    .files("IdentityAgent", &[text], tokens)
                    .pop()
                    .map(SshAgent::At),
            },
        };
    }

    fn way(&mut self, lines: &Compared<'_>, tokens: &Tokens<'_>) {
        if let Some(text) = lines.one("proxyjump").filter(|text| *text != "none") {
            let expanded = text.split(',').map(|word| tokens.percent(word));
            let jumps = expanded.map(|word| {
                word.and_then(|word| {
                    jump(&word).ok_or_else(|| {
                        "it must be `[USER@]HOST[:PORT]`, separated by commas".to_owned()
                    })
                })
            });
            match jumps.collect() {
                Ok(jumps) => self.jumps = jumps,
                Err(why) => self.no_way = Some(cannot("ProxyJump", text, &why)),
            }
        }
        let command = lines.one("proxycommand").filter(|text| *text != "none");
        self.proxy_command = command.map(str::to_owned);
    }

    fn host_keys(&mut self, lines: &Compared<'_>, tokens: &Tokens<'_>) {
        self.host_key_alias = lines.one("hostkeyalias").map(str::to_owned);
        let mut files = |keyword: &str| {
            let text = lines.one(&keyword.to_lowercase())?;
            Some(self.files(keyword, &paths(text), tokens))
        };
        let user = files("UserKnownHostsFile");
        let global = files("GlobalKnownHostsFile");
        (self.user_known_hosts, self.global_known_hosts) = (user, global);
    }

    /// The paths, as far as they can be used; `none` is none.
    fn files(
        &mut self,
        keyword: &str,
        paths: &[impl AsRef<str>],
        tokens: &Tokens<'_>,
    ) -> Vec<String> {
        let mut files = Vec::new();
        for path in paths.iter().map(AsRef::as_ref) {
            match tokens.expand(path) {
                _ if path == "none" => {}
                Ok(path) => files.push(path),
                Err(why) => self.unusable.push(cannot(keyword, path, &why)),
            }
        }
        files
    }

    /// Where its sshd is dialled.
    fn endpoint(&self, query: &SshQuery) -> Endpoint {
        let name = self.host_name.clone();
        Endpoint {
            address: name.unwrap_or_else(|| query.address.clone()),
            port: query.port.or(self.port).unwrap_or(22),
        }
    }
}

fn cannot(keyword: &str, value: &str, why: &str) -> String {
    let value = printable(value);
    format!("`{keyword} {value}` of the SSH config is not used: {why}")
}

/// `ssh` writes names in lower case, and addresses in their shortest form.
fn is_same_host(one: &str, other: &str) -> bool {
    let address = |text: &str| text.parse::<IpAddr>().ok();
    let is_same =
        one.eq_ignore_ascii_case(other) || (ipv6(one).is_some() && ipv6(one) == ipv6(other));
    is_same || (address(one).is_some() && address(one) == address(other))
}

/// `[USER@]HOST[:PORT]`, or `ssh://` before it.
fn jump(text: &str) -> Option<SshJump> {
    let text = text.trim();
    let text = text.strip_prefix("ssh://").unwrap_or(text);
    let text = text.strip_suffix('/').unwrap_or(text);
    let (user, place) = match text.rsplit_once('@') {
        Some((user, place)) => (Some(user.to_owned()), place),
        None => (None, text),
    };
    // An IPv6 address is in brackets where a port follows it.
    let (address, port) = if ipv6(place).is_some() {
        (place, None)
    } else {
        match place.rsplit_once(':') {
            Some((address, port)) => (address, Some(port)),
            None => (place, None),
        }
    };
    let port = match port {
        Some(port) => Some(port.parse::<u16>().ok().filter(|port| *port > 0)?),
        None => None,
    };
    let inner = address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = plain(inner.unwrap_or(address)).into_owned();
    let is_host =
        is_alias(&address) && (ipv6(&address).is_some() || !address.contains([':', '[', ']', '/']));
    (is_host && user.as_deref() != Some("")).then_some(SshJump {
        address,
        user,
        port,
    })
}

/// Paths that stand one after the other: `ssh` prints them without quotes, and begins each with `/` or `~`.
fn paths(text: &str) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match paths.last_mut() {
            Some(last) if !word.starts_with(['/', '~']) => {
                last.push(' ');
                last.push_str(word);
            }
            Some(_) | None => paths.push(word.to_owned()),
        }
    }
    paths
}

/// What `%x` and `${NAME}` stand for.
struct Tokens<'a> {
    query: &'a SshQuery,
    lines: &'a Lines<'a>,
    person: &'a SshPerson<'a>,
}

impl Tokens<'_> {
    /// The path; `~/` stays. The error says what is not understood.
    fn expand(&self, path: &str) -> Result<String, String> {
        if path.starts_with('~') && !path.starts_with("~/") {
            return Err("the home of another user is not looked up".to_owned());
        }
        let mut expanded = String::new();
        let mut rest = path;
        while let Some(at) = rest.find(['%', '$']) {
            expanded.push_str(&rest[..at]);
            let (sign, after) = rest[at..].split_at(1);
            rest = if sign == "%" {
                self.expand_one(after, &mut expanded)?
            } else if let Some((name, after)) = after
                .strip_prefix('{')
                .and_then(|after| after.split_once('}'))
            {
                let unset = || format!("the variable `{name}` is not set");
                expanded.push_str(&(self.person.variable)(name).ok_or_else(unset)?);
                after
            } else {
                expanded.push('$');
                after
            };
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    /// The same of what has tokens and no variables, as `ProxyJump`, which `ssh -G` prints as it is written.
    fn percent(&self, text: &str) -> Result<String, String> {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            expanded.push_str(before);
            rest = self.expand_one(after, &mut expanded)?;
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    /// What the token at the start stands for; returns what follows it.
    fn expand_one<'b>(&self, after: &'b str, expanded: &mut String) -> Result<&'b str, String> {
        let token = after.chars().next();
        let value = token.and_then(|token| self.token(token));
        let unknown = || format!("`%{}` is not supported", token.unwrap_or_default());
        expanded.push_str(&value.ok_or_else(unknown)?);
        Ok(&after[token.map_or(0, char::len_utf8)..])
    }

    fn token(&self, token: char) -> Option<String> {
        let said = |keyword| self.lines.first(keyword).map(str::to_owned);
        match token {
            '%' => Some("%".to_owned()),
            'd' => self.person.home.map(str::to_owned),
            'h' => said("hostname"),
            'n' => Some(self.query.address.clone()),
            'p' => said("port"),
            'r' => said("user"),
            'u' => self.person.user.map(str::to_owned),
            'k' => said("hostkeyalias").or_else(|| said("hostname")),
            _ => None,
        }
    }
}

/// Where the host key of one machine is on record, where the configuration says so; as in [`SshHost`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshHostKeys {
    /// [`SshHost::host_key_alias`].
    pub alias: Option<String>,
    /// [`SshHost::user_known_hosts`].
    pub user_files: Option<Vec<String>>,
    /// [`SshHost::global_known_hosts`].
    pub global_files: Option<Vec<String>>,
}

/// The results of all queries to `ssh -G`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SshConfig {
    hosts: BTreeMap<SshQuery, SshHost>,
}

impl SshConfig {
    /// The machines that are not asked about yet: those, and those on the way to them.
    pub fn wanted(&self, machines: &BTreeSet<SshQuery>) -> BTreeSet<SshQuery> {
        let jumps = self.hosts.values().flat_map(|host| &host.jumps);
        let jumps = jumps.map(SshJump::query);
        let all = machines.iter().cloned().chain(jumps);
        all.filter(|query| !self.hosts.contains_key(query))
            .collect()
    }

    /// What it says about one of them; where `ssh` told nothing, that is nothing.
    pub fn insert(&mut self, query: SshQuery, host: SshHost) {
        self.hosts.insert(query, host);
    }

    /// How many machines the queries named.
    pub fn number(&self) -> usize {
        self.hosts.len()
    }

    /// What is still not asked about is behind more machines than anyone has: nothing may be dialled in its place.
    pub fn refuse_the_rest(&mut self, machines: &BTreeSet<SshQuery>) {
        for query in self.wanted(machines) {
            let no_way = Some("too many machines are on the way".to_owned());
            let host = SshHost {
                no_way,
                ..SshHost::default()
            };
            self.insert(query, host);
        }
    }

    /// What it says about a machine.
    pub fn host(&self, query: &SshQuery) -> Option<&SshHost> {
        self.hosts.get(query)
    }

    /// Where host keys are on record that are not at the usual place.
    pub fn host_keys(&self) -> BTreeMap<Endpoint, SshHostKeys> {
        let hosts = self.hosts.iter().filter_map(|(query, host)| {
            let keys = SshHostKeys {
                alias: host.host_key_alias.clone(),
                user_files: host.user_known_hosts.clone(),
                global_files: host.global_known_hosts.clone(),
            };
            let SshHostKeys {
                alias,
                user_files,
                global_files,
            } = &keys;
            let is_special = alias.is_some() || user_files.is_some() || global_files.is_some();
            is_special.then(|| (host.endpoint(query), keys))
        });
        hosts.collect()
    }
}

#[cfg(test)]
#[path = "ssh_config_tests.rs"]
mod tests;

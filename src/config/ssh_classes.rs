//! Which machines the SSH config says the same about, so that `ssh -G` is run once for all of them: those that the same
//! patterns of `Host` fit, in a configuration where nothing else depends on the name. Where that is not certain, each
//! machine is in a class alone. Pure.

use std::net::IpAddr;

use super::{
    ssh_config::SshQuery,
    ssh_names::{ipv6, is_dialled},
};

/// Keywords whose values are read from the output of `ssh -G`.
const USED: [&str; 10] = [
    "certificatefile",
    "globalknownhostsfile",
    "hostkeyalias",
    "hostname",
    "identityagent",
    "identityfile",
    "proxycommand",
    "proxyjump",
    "user",
    "userknownhostsfile",
];

/// The patterns of a configuration, all of whose values depend on the name of a machine through them alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPatterns(Vec<String>);

/// Machines of one class have the same values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostClass {
    fits: Vec<bool>,
    user: Option<String>,
    port: Option<u16>,
    /// Of a machine that shares its values with none.
    alone: Option<String>,
}

impl HostPatterns {
    /// Of every file that `ssh` reads. `None`: values depend on more than patterns, on a program (`Match exec`), on
    /// tokens (`%h`) or on name servers (`CanonicalizeHostname`).
    pub fn of(files: &[String]) -> Option<Self> {
        let mut patterns = Vec::new();
        for line in files.iter().flat_map(|text| text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let ends = |c: char| c.is_whitespace() || c == '=';
            let (keyword, rest) = line.split_once(ends).unwrap_or((line, ""));
            let words = rest.split(|c: char| ends(c) || matches!(c, '"' | ','));
            let mut words = words.filter(|word| !word.is_empty());
            match keyword.to_ascii_lowercase().as_str() {
                "host" => {
                    patterns.extend(words.map(|word| word.trim_start_matches('!').to_owned()));
                }
                "match" if words.clone().all(|word| word.eq_ignore_ascii_case("all")) => {}
                "canonicalizehostname" if words.all(|word| word.eq_ignore_ascii_case("no")) => {}
                "include" if rest.contains('%') => return None,
                used if USED.contains(&used) && has_tokens(rest) => return None,
                // A keyword in quotes is not understood.
                other if other.starts_with('"') => return None,
                "match" | "canonicalizehostname" => return None,
                _ => {}
            }
        }
        patterns.sort_unstable();
        patterns.dedup();
        Some(Self(patterns))
    }

    /// The class of a machine.
    pub fn class(&self, query: &SshQuery) -> HostClass {
        let SshQuery {
            address,
            user,
            port,
        } = query;
        let lower = address.to_lowercase();
        // Whether case counts depends on the release of ssh: machines that differ there differ here.
        let fits = self.0.iter().flat_map(|pattern| {
            let folded = fits(&pattern.to_lowercase(), &lower);
            [fits(pattern, address), folded]
        });
        HostClass {
            fits: fits.collect(),
            user: user.clone(),
            port: *port,
            alone: (!is_plain(address)).then(|| address.clone()),
        }
    }
}

/// True for tokens that may stand for something else for another machine.
fn has_tokens(value: &str) -> bool {
    let mut rest = value;
    while let Some((_, after)) = rest.split_once('%') {
        if !after.starts_with(['%', 'd', 'u', 'i']) {
            return true;
        }
        rest = &after[1..];
    }
    false
}

/// True for an address in its own form, and for a name that no resolver takes for an address, as it does with `10.1`.
fn is_plain(address: &str) -> bool {
    let last = address.rsplit('.').find(|label| !label.is_empty());
    let is_name = last.is_some_and(|label| label.starts_with(|c: char| c.is_ascii_alphabetic()));
    let is_address = address.parse::<IpAddr>().is_ok() || ipv6(address).is_some();
    is_dialled(address) && (is_address || is_name)
}

/// As OpenSSH: `*` is any number of characters, `?` one.
fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    // Where to go on when what follows the last `*` did not fit.
    let (mut at, mut seen, mut star) = (0, 0, None);
    while seen < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(c) if *c == '?' || *c == text[seen] => {
                at += 1;
                seen += 1;
            }
            Some(_) | None => {
                let Some((back, taken)) = star else {
                    return false;
                };
                star = Some((back, taken + 1));
                at = back + 1;
                seen = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

/// The output of `ssh -G` for one machine, as it is for another one of its class.
pub fn output_for(query: &SshQuery, of: &SshQuery, output: &str) -> String {
    let lower = of.address.to_lowercase();
    let is_own = |name: &str| name == lower || name == of.address;
    let lines = output.lines().map(|line| match line.split_once(' ') {
        // `HostName` is not set: it is the name itself.
        Some((keyword @ ("host" | "hostname"), name)) if is_own(name) => {
            format!("{keyword} {}\n", query.address)
        }
        Some(_) | None => format!("{line}\n"),
    });
    lines.collect()
}

/// The files that `ssh -v` says it reads.
pub fn files_read(said: &str) -> Vec<&str> {
    let lines = said.lines().map(str::trim);
    let files = lines.filter_map(|line| line.split_once("Reading configuration data "));
    files.map(|(_, file)| file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(address: &str) -> SshQuery {
        SshQuery {
            address: address.to_owned(),
            user: None,
            port: None,
        }
    }

    fn of(text: &str) -> Option<HostPatterns> {
        HostPatterns::of(&["SendEnv LANG LC_*\n".to_owned(), text.to_owned()])
    }

    #[test]
    fn machines_that_the_same_patterns_fit_are_one_class() {
        let patterns = of("# Host x\nUser me\nHost 10.0.0.* !10.0.0.9\n  User a\nhost=\"n?\",m\n  IdentityFile %d/%u%%\nHost *\nMatch all\nControlPath %C\n").unwrap();
        let same =
            |one: &str, other: &str| patterns.class(&query(one)) == patterns.class(&query(other));
        assert!(same("10.0.0.1", "10.0.0.2"));
        assert!(same("10.0.1.1", "fd00::1"));
        assert!(same("n1", "n2"));
        assert!(!same("10.0.0.1", "10.0.0.9"));
        assert!(!same("10.0.0.1", "10.0.1.1"));
        assert!(!same("n1", "N1"), "case may count");
        assert!(!same("10.1", "10.2"), "resolvers take them for addresses");
        let mut with_user = query("n1");
        with_user.user = Some("a".to_owned());
        assert_ne!(patterns.class(&with_user), patterns.class(&query("n1")));
    }

    #[test]
    fn what_depends_on_more_is_not_shared() {
        for text in [
            "Match exec \"true\"\n",
            "match host n1\n",
            "Match final all\n",
            "HostName %h.example.com\n",
            "Host n*\n  UserKnownHostsFile=~/.ssh/%k\n",
            "ProxyJump gate-%h\n",
            "Include ~/.ssh/%h\n",
            "CanonicalizeHostname yes\n",
            "\"Match\" exec true\n",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert!(of("CanonicalizeHostname no\nInclude ~/.ssh/conf.d/*\n").is_some());
    }

    #[test]
    fn patterns_are_those_of_openssh() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("*", "n1", true),
            ("n?", "n1", true),
            ("n?", "n", false),
            ("n*.lan", "n1.a.lan", true),
            ("n*.lan", "n1.lan.x", false),
            ("*a*b", "xaab", true),
            ("*a*b", "xaabc", false),
            ("", "a", false),
            ("n1", "n1", true),
        ] {
            assert_eq!(fits(pattern, text), want, "{pattern} {text}");
        }
    }

    #[test]
    fn an_output_is_that_of_another_machine() {
        let output = "host N1\nuser me\nhostname n1\nport 22\n";
        assert_eq!(
            output_for(&query("n2"), &query("N1"), output),
            "host n2\nuser me\nhostname n2\nport 22\n"
        );
        let named = "host n1\nhostname 10.0.0.1\n";
        assert_eq!(
            output_for(&query("n2"), &query("n1"), named),
            "host n2\nhostname 10.0.0.1\n"
        );
    }

    #[test]
    fn the_files_are_those_that_ssh_names() {
        let said = "OpenSSH_9.2p1\r\ndebug1: Reading configuration data /home/my files/config\r\n\
                    debug1: /home/x line 3: Applying options for *\r\n\
                    debug1: Reading configuration data /etc/ssh/ssh_config\r\n";
        assert_eq!(
            files_read(said),
            ["/home/my files/config", "/etc/ssh/ssh_config"]
        );
    }
}

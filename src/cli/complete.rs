//! `complete`: what the completion scripts ask for names that the command line itself does not have: the nodes of the
//! config, and the keys of `cluster.yml`. Reads the config and the state next to it, and contacts nothing.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Arg, Command};
use serde::Deserialize;

use super::{
    args::{CONFIG_FILE, Cli, Complete, config_file},
    environment::state_of,
    go_flags::{self, long, may_take_value, short},
    print,
    report::CliError,
    sources::read_at_most,
};
use crate::{
    config::explained_names,
    state::{Loaded, Store as _},
};

/// The exit code that leaves the answer to the script's own words.
const NOT_OURS: u8 = 1;
/// The longest config that is read.
const MAX_CONFIG: usize = 4 << 20;

/// Runs it: a candidate a line, each in the place of the whole word at the end of the line.
pub(super) async fn complete(args: &Complete) -> Result<u8, CliError> {
    let Some(wanted) = Wanted::at(&Cli::built(), &args.line) else {
        return Ok(NOT_OURS);
    };
    let names = match wanted.what {
        What::Key => explained_names(),
        What::Node => nodes(&wanted.config()).await.into_iter().collect(),
    };
    let candidates = wanted.candidates(&names);
    if !candidates.is_empty() {
        print::data(&candidates.join("\n"))?;
    }
    Ok(0)
}

/// What kind of name it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A node.
    Node,
    /// A key of `cluster.yml`.
    Key,
}

impl What {
    fn of(arg: &Arg) -> Option<Self> {
        if arg.get_id() == "explain" {
            return Some(Self::Key);
        }
        let mut names = arg.get_value_names().unwrap_or_default().iter();
        names.any(|name| name == "NODE").then_some(Self::Node)
    }
}

/// The name that a person is writing.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    what: What,
    /// What stands before it in the same word: `--lose=`, `n1,`.
    head: String,
    /// Its beginning.
    typed: String,
    /// Names that stand there already.
    taken: BTreeSet<String>,
    /// The value of `--config`.
    config: Option<String>,
}

impl Wanted {
    /// At the end of a line; `None` where that is something else.
    fn at(root: &Command, line: &str) -> Option<Self> {
        let (words, current) = words(line);
        let words = words.into_iter().map(OsString::from).collect();
        let words = go_flags::normalised(root, words, |_, _| None);
        let words = words.iter().filter_map(|word| word.to_str());
        let mut reader = Reader {
            command: root,
            pending: None,
            ended: false,
            positionals: Vec::new(),
            config: None,
        };
        for word in words.skip(1) {
            reader.take(word);
        }
        let (arg, head, typed) = reader.arg(&current)?;
        let what = What::of(arg)?;
        let is_list = arg.get_value_delimiter() == Some(',');
        let (before, typed) = match typed.rsplit_once(',').filter(|_| is_list) {
            Some((before, typed)) => (format!("{before},"), typed),
            None => (String::new(), typed),
        };
        let taken = before.split(',').filter(|name| !name.is_empty());
        let taken = taken.map(str::to_owned);
        let positionals = reader.positionals.iter().map(|name| (*name).to_owned());
        Some(Self {
            what,
            head: format!("{head}{before}"),
            typed: typed.to_owned(),
            taken: if arg.is_positional() {
                positionals.collect()
            } else {
                taken.collect()
            },
            config: reader.config.map(str::to_owned),
        })
    }

    fn config(&self) -> PathBuf {
        let variable = || std::env::var_os("RKE_CONFIG").unwrap_or_else(|| CONFIG_FILE.into());
        config_file(self.config.as_ref().map_or_else(variable, OsString::from))
    }

    /// The words that it may become.
    fn candidates(&self, names: &[String]) -> Vec<String> {
        let fits = |name: &&String| {
            let Some(rest) = name.strip_prefix(&self.typed) else {
                return false;
            };
            match self.what {
                What::Node => !self.taken.contains(*name),
                // One level at a time.
                What::Key => !rest.strip_prefix('.').unwrap_or(rest).contains('.'),
            }
        };
        let fitting = names.iter().filter(fits);
        fitting.map(|name| format!("{}{name}", self.head)).collect()
    }
}

/// The command line so far.
struct Reader<'a> {
    command: &'a Command,
    /// The flag whose value comes next.
    pending: Option<&'a Arg>,
    /// After `--`.
    ended: bool,
    /// Of the command.
    positionals: Vec<&'a str>,
    config: Option<&'a str>,
}

impl<'a> Reader<'a> {
    fn take(&mut self, word: &'a str) {
        if let Some(arg) = self.pending.take() {
            self.value(arg, word);
        } else if self.ended || !word.starts_with('-') || word == "-" {
            match self.command.find_subcommand(word).filter(|_| !self.ended) {
                Some(next) => self.command = next,
                None => self.positionals.push(word),
            }
        } else if word == "--" {
            self.ended = true;
        } else if let Some(flag) = word.strip_prefix("--") {
            match flag.split_once('=') {
                Some((name, value)) => {
                    if let Some(arg) = long(self.command, name) {
                        self.value(arg, value);
                    }
                }
                None => self.pending = long(self.command, flag).filter(|arg| may_take_value(arg)),
            }
        } else {
            let last = word.chars().last();
            let arg = last.and_then(|last| short(self.command, last));
            self.pending = arg.filter(|arg| may_take_value(arg));
        }
    }

    fn value(&mut self, arg: &Arg, value: &'a str) {
        if arg.get_id() == "config" {
            self.config = Some(value);
        }
    }

    /// What the current word is the value of, what stands before the value in it, and the value so far.
    fn arg<'w>(&self, current: &'w str) -> Option<(&'a Arg, &'w str, &'w str)> {
        if let Some(arg) = self.pending {
            return Some((arg, "", current));
        }
        if let Some(flag) = current.strip_prefix("--").filter(|_| !self.ended) {
            let (name, value) = flag.split_once('=')?;
            let (head, _) = current.split_at(current.len() - value.len());
            return Some((long(self.command, name)?, head, value));
        }
        if current.starts_with('-') && !self.ended {
            return None;
        }
        let mut args = self.command.get_positionals();
        let count = self.positionals.len();
        let arg = args.nth(count).or_else(|| {
            let last = self.command.get_positionals().last()?;
            let many = last.get_num_args().is_some_and(|num| num.max_values() > 1);
            many.then_some(last)
        });
        Some((arg?, "", current))
    }
}

/// The words of a line from `rke-operator` on, and the one at its end, which a person is writing.
fn words(line: &str) -> (Vec<String>, String) {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quote, mut is_word) = (None, false);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some('\''), c) => word.push(c),
            (_, '\\') => {
                word.extend(chars.next());
                is_word = true;
            }
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (None, c) if c.is_whitespace() => {
                if is_word || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            (Some(_) | None, c) => word.push(c),
        }
    }
    // What comes before it are other commands: `cd x && rke-operator`, `sudo rke-operator`.
    let is_ours = |word: &String| {
        let name = Path::new(word).file_name();
        name.is_some_and(|name| name == "rke-operator")
    };
    let begin = words.iter().rposition(is_ours).unwrap_or_default();
    (words.split_off(begin.min(words.len())), word)
}

/// What of a config is read here, whether or not the rest of it is valid.
#[derive(Default, Deserialize)]
struct Names {
    #[serde(default)]
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    address: Option<String>,
    hostname_override: Option<String>,
}

/// The nodes of a config, and those of its state, which may have left the config.
async fn nodes(config: &Path) -> BTreeSet<String> {
    let text = read_at_most(MAX_CONFIG, config).unwrap_or_default();
    let mut names = named(&text);
    if let Ok(Loaded::Present { saved, revision: _ }) = state_of(config).load().await {
        names.extend(saved.inventory.keys().map(|name| name.0.clone()));
    }
    names
}

fn named(text: &str) -> BTreeSet<String> {
    let names: Names = serde_saphyr::from_str(text).unwrap_or_default();
    let nodes = names.nodes.into_iter();
    let given = |name: Option<String>| name.filter(|name| !name.is_empty());
    let names = nodes.filter_map(|node| given(node.hostname_override).or(given(node.address)));
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(root: &Command, line: &str) -> Option<String> {
        let names = ["n1", "n2", "other"].map(str::to_owned);
        let wanted = Wanted::at(root, line)?;
        Some(match wanted.what {
            What::Node => wanted.candidates(&names).join(" "),
            What::Key => wanted.candidates(&explained_names()).join(" "),
        })
    }

    #[test]
    fn names_are_offered_where_one_is_written() {
        let root = Cli::built();
        for (line, wanted) in [
            ("rke-operator up --lose ", Some("n1 n2 other")),
            ("rke-operator up --lose n", Some("n1 n2")),
            ("rke-operator up --lose=n", Some("--lose=n1 --lose=n2")),
            ("rke-operator up --lose n1,", Some("n1,n2 n1,other")),
            ("rke-operator up -lose n", Some("n1 n2")),
            ("rke-operator -q plan --full --clean o", Some("other")),
            ("sudo rke-operator node reboot ", Some("n1 n2 other")),
            ("cd a && ./rke-operator node reboot n1 ", Some("n2 other")),
            ("rke-operator node drain --force n", Some("n1 n2")),
            ("rke-operator node drain -- n", Some("n1 n2")),
            ("rke-operator node reset n1 ", None),
            ("rke-operator etcd recover --node ", Some("n1 n2 other")),
            (
                "rke-operator images save -o x --from-node n1,o",
                Some("n1,other"),
            ),
            ("rke-operator up --lose n1 ", None),
            ("rke-operator up --config ", None),
            ("rke-operator up -o ", None),
            ("rke-operator up -", None),
            ("rke-operator up --lo", None),
            ("rke-operator node ", None),
            ("rke-operator ", None),
            ("", None),
            (
                "rke-operator config --explain cluster_n",
                Some("cluster_name"),
            ),
            (
                "rke-operator config --explain nodes.addr",
                Some("nodes.address"),
            ),
            ("rke-operator config --explain nodes[", Some("")),
        ] {
            let offered = offered(&root, line);
            assert_eq!(offered.as_deref(), wanted, "{line}");
        }
        let sections = offered(&root, "rke-operator config --explain services").unwrap();
        assert!(sections.starts_with("services services."), "{sections}");
        assert!(
            !sections.contains("services.etcd.backup_config"),
            "{sections}"
        );
    }

    #[test]
    fn the_config_that_is_named_is_read() {
        let root = Cli::built();
        for (line, config) in [
            ("rke-operator up --lose ", None),
            (
                "rke-operator --debug up --config 'a b.yml' --lose ",
                Some("a b.yml"),
            ),
            (
                "rke-operator up --config=a\\ b.yml --lose ",
                Some("a b.yml"),
            ),
            (
                "rke-operator images save --for x.yml --from-node ",
                Some("x.yml"),
            ),
        ] {
            let wanted = Wanted::at(&root, line).expect(line);
            assert_eq!(wanted.config.as_deref(), config, "{line}");
        }
    }

    #[test]
    fn a_config_that_is_not_valid_has_names_all_the_same() {
        let text = "nodes:\n- address: 10.0.0.1\n  role: [nonsense]\n- {address: 10.0.0.2, hostname_override: n2}\nother: 1\n";
        let names: Vec<String> = named(text).into_iter().collect();
        assert_eq!(names, ["10.0.0.1", "n2"]);
        assert!(named("nodes: {").is_empty() && named("").is_empty());
    }
}

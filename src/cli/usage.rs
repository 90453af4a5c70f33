//! The command line as people type it. For words of RKE and of other tools `usage.yml` has what to type instead; other
//! unknown words get clap's answer.

use std::ffi::OsString;

use clap::{
    CommandFactory as _, Parser as _, ValueEnum as _,
    builder::PossibleValue,
    error::{ContextKind, ContextValue, ErrorKind},
};
use serde::Deserialize;

use super::{
    args::{Cli, Output},
    go_flags::{self, Answer},
    output::json::Ended,
};
use crate::{
    error::ErrorClass,
    model::{printable, shell_word},
};

/// In the place of a command: a variable of the environment.
const ENVIRONMENT: &str = "environment";

/// The answer to words that clap does not know.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Row {
    /// The command; `*`: any.
    at: String,
    words: Vec<String>,
    /// What to do instead.
    instead: Option<String>,
    /// Why nothing is done about it.
    no_effect: Option<String>,
}

fn rows() -> Vec<Row> {
    serde_saphyr::from_str(include_str!("usage.yml")).unwrap_or_default()
}

/// A command line that was understood, or the answer to it.
#[derive(Debug)]
pub enum Usage {
    /// It is valid.
    Known {
        /// The command and its flags.
        cli: Box<Cli>,
        /// What of it has no effect, and why.
        warnings: Vec<String>,
    },
    /// It is one of another tool.
    Foreign {
        /// What is not taken.
        error: String,
        /// What to do instead.
        hint: String,
    },
    /// Anything else, and the help.
    Other(clap::Error),
}

impl Usage {
    /// Reads it. `is_set` tells which variables of the environment are set.
    pub fn read(arguments: Vec<OsString>, is_set: impl Fn(&str) -> bool) -> Self {
        let rows = rows();
        let mut arguments = normalised(&rows, arguments);
        let mut warnings = Vec::new();
        loop {
            let error = match Cli::try_parse_from(&arguments) {
                Ok(cli) => {
                    let variables = rows.iter().filter(|row| row.at == ENVIRONMENT);
                    let variables =
                        variables.flat_map(|row| row.words.iter().map(move |word| (row, word)));
                    let set = variables.filter(|(_, word)| is_set(word));
                    warnings.extend(set.filter_map(|(row, word)| row.warning(word)));
                    return Self::Known {
                        cli: Box::new(cli),
                        warnings,
                    };
                }
                Err(error) => error,
            };
            let Some(word) = not_taken(&error) else {
                return Self::Other(visible(error, &arguments));
            };
            let at = command(&arguments);
            let Some(row) = rows.iter().find(|row| row.is_about(&at, &word)) else {
                let foreign = out_of_place(&at, &word);
                return foreign.unwrap_or_else(|| Self::Other(visible(error, &arguments)));
            };
            if let Some(hint) = &row.instead {
                let error = match word.strip_prefix('-') {
                    Some(_) => format!("`rke-operator {at}` has no flag `{word}`"),
                    None => format!("unknown command `{}`", format!("{at} {word}").trim_start()),
                };
                let hint = hint.clone();
                return Self::Foreign { error, hint };
            }
            if !without(&mut arguments, &word) {
                return Self::Other(error);
            }
            warnings.extend(row.warning(&word));
        }
    }
}

impl Usage {
    /// The last object of `--output json` for a command line that was refused; `None` for one that is valid, and for
    /// help.
    pub fn ended(&self) -> Option<Ended> {
        let (message, hints) = match self {
            Self::Known { .. } => return None,
            Self::Foreign { error, hint } => (error.clone(), vec![hint.clone()]),
            Self::Other(error) if !error.use_stderr() => return None,
            Self::Other(error) => refused(&error.render().to_string()),
        };
        Some(Ended::Failed {
            message,
            causes: Vec::new(),
            hints,
            class: ErrorClass::User,
            problems: Vec::new(),
        })
    }
}

/// Message and hints of an error of clap: its first paragraph, and its tips.
fn refused(text: &str) -> (String, Vec<String>) {
    let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let words: Vec<&str> = message.split_whitespace().collect();
    let lines = rest.lines().map(str::trim);
    let tips = lines.filter_map(|line| line.strip_prefix("tip: "));
    (words.join(" "), tips.map(str::to_owned).collect())
}

/// True for a command line with `--output json`, whether or not the rest of it is valid.
pub fn wants_json(arguments: &[OsString]) -> bool {
    let root = Cli::command();
    let arguments = normalised(&rows(), arguments.to_vec());
    let (_, command) = named(&root, &arguments);
    let mut flags = command.get_arguments();
    let Some(flag) = flags.find(|flag| flag.get_id() == "output") else {
        return false;
    };
    let json = Output::Json.to_possible_value();
    let json = json.as_ref().map_or("", PossibleValue::get_name);
    if !flag
        .get_possible_values()
        .iter()
        .any(|value| value.get_name() == json)
    {
        return false;
    }
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let apart = words.windows(2);
    let mut apart = apart.filter(|pair| matches!(pair[0], "-o" | "--output"));
    let joined = ["-o", "-o=", "--output="].map(|flag| format!("{flag}{json}"));
    apart.any(|pair| pair[1] == json) || words.iter().any(|word| joined.iter().any(|it| it == word))
}

impl Row {
    fn is_about(&self, at: &str, word: &str) -> bool {
        let is_there = self.at == at || (self.at == "*" && !at.is_empty());
        is_there && self.words.iter().any(|known| known == word)
    }

    fn warning(&self, word: &str) -> Option<String> {
        let why = self.no_effect.as_ref()?;
        Some(format!("`{word}` has no effect: {why}"))
    }
}

/// Without Go's forms of flags.
fn normalised(rows: &[Row], arguments: Vec<OsString>) -> Vec<OsString> {
    go_flags::normalised(&Cli::built(), arguments, |at, flag| {
        let row = rows.iter().find(|row| row.is_about(at, flag))?;
        Some(if row.instead.is_some() {
            Answer::Refused
        } else {
            Answer::NoEffect
        })
    })
}

/// The answer to a name without its flag: the config's, or a snapshot's.
fn out_of_place(at: &str, word: &str) -> Option<Usage> {
    const SNAPSHOTS: [&str; 4] = [
        "etcd snapshot-save",
        "etcd snapshot-restore",
        "etcd snapshot-delete",
        "etcd verify",
    ];
    if word.starts_with('-') {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    let is_config = [".yml", ".yaml"].iter().any(|end| lower.ends_with(end));
    let quoted = shell_word(word);
    let flag = if at == "config" { "name" } else { "config" };
    let hint = if is_config && at.is_empty() {
        format!(
            "`rke-operator up --config {quoted}` creates or updates the cluster of this config; `rke-operator plan --config \
             {quoted}` previews the changes"
        )
    } else if is_config && has_flag(at, flag) {
        format!("name the config with `--{flag} {quoted}`")
    } else if SNAPSHOTS.contains(&at) {
        format!("name the snapshot with `--name {quoted}`")
    } else {
        return None;
    };
    let word = printable(word);
    let error = if at.is_empty() {
        format!("unknown command `{word}`")
    } else {
        format!("`rke-operator {at}` has no argument `{word}`")
    };
    Some(Usage::Foreign { error, hint })
}

/// True if a command, by its names, has this long flag.
fn has_flag(at: &str, flag: &str) -> bool {
    let root = Cli::command();
    let mut command = Some(&root);
    for name in at.split_whitespace() {
        command = command.and_then(|command| command.find_subcommand(name));
    }
    command.is_some_and(|command| {
        let mut flags = command.get_arguments();
        flags.any(|arg| arg.get_long() == Some(flag))
    })
}

/// The error without suggestions of what the help does not show.
fn visible(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let root = Cli::built();
    let (_, command) = named(&root, arguments);
    let names = command.get_subcommands().filter(|it| !it.is_hide_set());
    let mut shown: Vec<String> = names.map(|it| it.get_name().to_owned()).collect();
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let aliases = arg.get_visible_aliases().unwrap_or_default();
        let flags = arg.get_long().into_iter().chain(aliases);
        shown.extend(flags.map(|flag| format!("--{flag}")));
    }
    for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg] {
        let left = match error.remove(kind) {
            Some(ContextValue::String(name)) if shown.contains(&name) => {
                Some(ContextValue::String(name))
            }
            Some(ContextValue::Strings(mut names)) => {
                names.retain(|name| shown.contains(name));
                (!names.is_empty()).then_some(ContextValue::Strings(names))
            }
            Some(_) | None => None,
        };
        if let Some(left) = left {
            error.insert(kind, left);
        }
    }
    // `'snapshot-take --bucket' exists`: the first word is a command.
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| {
            let text = tip.to_string();
            let words = text.split('\'').nth(1).unwrap_or_default();
            let first = words.split_whitespace().next().unwrap_or_default();
            let next = command.find_subcommand(first);
            next.is_none_or(|next| !next.is_hide_set())
        });
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

/// The command or the flag that clap does not know.
fn not_taken(error: &clap::Error) -> Option<String> {
    let kinds = [
        (ErrorKind::UnknownArgument, ContextKind::InvalidArg),
        (ErrorKind::InvalidSubcommand, ContextKind::InvalidSubcommand),
    ];
    let (_, named) = kinds.into_iter().find(|(kind, _)| *kind == error.kind())?;
    if let Some(ContextValue::String(word)) = error.get(named) {
        return Some(word.clone());
    }
    None
}

/// The names of the commands, as in `etcd snapshot-save`.
fn command(arguments: &[OsString]) -> String {
    let root = Cli::command();
    named(&root, arguments).0.join(" ")
}

/// The command that is named, and its names.
fn named<'a>(
    root: &'a clap::Command,
    arguments: &'a [OsString],
) -> (Vec<&'a str>, &'a clap::Command) {
    let mut command = root;
    let mut names = Vec::new();
    // The value of a flag, perhaps.
    let mut may_be_value = false;
    for argument in arguments.iter().skip(1).filter_map(|text| text.to_str()) {
        if let Some(next) = command.find_subcommand(argument) {
            names.push(argument);
            command = next;
        } else if !argument.starts_with('-') && !may_be_value {
            // Behind a word that is no command none is meant.
            break;
        }
        may_be_value = argument.starts_with('-');
    }
    (names, command)
}

/// Takes the first such flag out. False where there is none.
fn without(arguments: &mut Vec<OsString>, flag: &str) -> bool {
    let is_it = |argument: &OsString| {
        let text = argument.to_str().unwrap_or_default();
        let rest = text.strip_prefix(flag);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let place = arguments.iter().position(is_it);
    place.map(|place| arguments.remove(place)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_read_what_is_wrong_with_a_command_line() {
        for (line, ended) in [
            (
                "up -o json --confg x.yml",
                Some(("unexpected argument '--confg' found", 1)),
            ),
            (
                "up --confg x.yml --output=json",
                Some(("unexpected argument '--confg' found", 1)),
            ),
            (
                "etcd verify -ojson",
                Some((
                    "the following required arguments were not provided: --name <NAME>",
                    0,
                )),
            ),
            (
                "up --local -o json",
                Some(("`rke-operator up` has no flag `--local`", 1)),
            ),
            ("up --confg x.yml", None),
            ("up -o text --confg x.yml", None),
            ("init -o json --confg x.yml", None),
            ("status -o json --help", None),
            ("status -o json", None),
        ] {
            let words = format!("rke-operator {line}");
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            let told = wants_json(&words).then(|| Usage::read(words, |_| false).ended());
            let told = told.flatten().map(|ended| match ended {
                Ended::Failed { message, hints, .. } => (message, hints.len()),
                ended @ (Ended::Converged { .. } | Ended::Degraded { .. } | Ended::Stopped) => {
                    panic!("{line}: {ended:?}")
                }
            });
            let ended = ended.map(|(message, hints)| (message.to_owned(), hints));
            assert_eq!(told, ended, "{line}");
        }
    }

    /// Words of the table that are a command or a flag here would never be looked up.
    #[test]
    fn every_row_has_one_answer_and_is_about_what_is_not_taken() {
        let rows = rows();
        assert!(rows.len() > 10, "{rows:?}");
        for row in &rows {
            assert_ne!(row.instead.is_some(), row.no_effect.is_some(), "{row:?}");
            for word in row.words.iter().filter(|_| row.at != ENVIRONMENT) {
                let at = if row.at == "*" { "up" } else { &row.at };
                let line = format!("rke-operator {at} {word}");
                let line = line.split_whitespace().map(OsString::from).collect();
                match Usage::read(line, |_| false) {
                    Usage::Known { warnings, .. } => {
                        assert_eq!(warnings.len(), 1, "{word}");
                        assert!(row.no_effect.is_some(), "{word}");
                    }
                    Usage::Foreign { hint, .. } => {
                        assert_eq!(Some(hint), row.instead, "{word}");
                    }
                    Usage::Other(error) => panic!("{at} {word}: {error}"),
                }
            }
        }
    }
}

//! RKE's way to write flags, which is Go's, as clap reads them: `-config f` and `-config=f` become `--config`, `--s3=true`
//! becomes `--s3`, and `--s3=false` is left out.
//!
//! Nothing else is changed: no value, no short flag, and nothing after `--`. A word with one dash is a long flag only if it
//! is exactly the name of one that the command has, or of one that `usage.yml` answers.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// What Go reads as a bool.
const TRUE: [&str; 6] = ["1", "t", "T", "TRUE", "true", "True"];
const FALSE: [&str; 6] = ["0", "f", "F", "FALSE", "false", "False"];

/// The answer to a flag that clap does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is refused.
    Refused,
    /// It has no effect.
    NoEffect,
}

/// The same command line without Go's forms. `root`: built. `answer`: that to a flag (`--local`) at a command
/// (`etcd snapshot-save`) that does not have it.
pub(super) fn normalised(
    root: &Command,
    arguments: Vec<OsString>,
    answer: impl Fn(&str, &str) -> Option<Answer>,
) -> Vec<OsString> {
    let mut command = root;
    let mut at = Vec::new();
    let mut normal = Vec::with_capacity(arguments.len());
    let mut rest = arguments.into_iter().peekable();
    normal.extend(rest.next());
    while let Some(argument) = rest.next() {
        let Some(text) = argument.to_str() else {
            normal.push(argument);
            continue;
        };
        if text == "--" {
            normal.push(argument);
            break;
        }
        let Some(flag) = text.strip_prefix('-').filter(|flag| !flag.is_empty()) else {
            if let Some(next) = command.find_subcommand(text) {
                at.push(next.get_name());
                command = next;
            }
            normal.push(argument);
            continue;
        };
        let place = at.join(" ");
        let read = read(command, flag, |name| answer(&place, name));
        match read.becomes {
            Becomes::Same => normal.push(argument),
            Becomes::Text(text) => normal.push(text.into()),
            Becomes::Nothing => {}
        }
        if read.takes_next {
            normal.extend(rest.next_if(|next| next != "--"));
        }
    }
    normal.extend(rest);
    normal
}

/// What becomes of a word.
enum Becomes {
    Same,
    Text(String),
    Nothing,
}

struct Read {
    becomes: Becomes,
    /// The next word is its value.
    takes_next: bool,
}

/// One word that begins with a dash, which is not in `flag` any more.
fn read(command: &Command, flag: &str, answer: impl Fn(&str) -> Option<Answer>) -> Read {
    let (name, value) = match flag.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (flag, None),
    };
    let (dashes, name) = name.strip_prefix('-').map_or((1, name), |name| (2, name));
    let known = long(command, name);
    let long_name = format!("--{name}");
    let answer = if known.is_none() && name.len() > 1 {
        answer(&long_name)
    } else {
        None
    };
    if let (1, Some(value)) = (dashes, value)
        && let Some(arg) = name.chars().next().and_then(|flag| short(command, flag))
        && name.len() == 1
        && is_switch(arg)
        && let Some(becomes) = switched(format!("-{name}"), value, arg)
    {
        return Read {
            becomes,
            takes_next: false,
        };
    }
    if dashes == 1 && (name.len() < 2 || (known.is_none() && answer.is_none())) {
        return Read {
            becomes: Becomes::Same,
            takes_next: shorts_take_next(command, flag),
        };
    }
    let asks_for_nothing = value.is_some_and(|value| FALSE.contains(&value));
    let becomes = match (known, value) {
        (Some(arg), Some(value)) if is_switch(arg) => {
            let whole = format!("{long_name}={value}");
            switched(long_name, value, arg).unwrap_or(Becomes::Text(whole))
        }
        (None, Some(_)) if asks_for_nothing && answer == Some(Answer::Refused) => Becomes::Nothing,
        (Some(_) | None, Some(value)) if dashes == 1 => {
            Becomes::Text(format!("{long_name}={value}"))
        }
        (Some(_) | None, None) if dashes == 1 => Becomes::Text(long_name),
        (Some(_) | None, Some(_) | None) => Becomes::Same,
    };
    Read {
        becomes,
        takes_next: value.is_none() && known.is_some_and(takes_value),
    }
}

/// A switch that was given a value. `None`: not one that Go reads.
fn switched(flag: String, value: &str, arg: &Arg) -> Option<Becomes> {
    if TRUE.contains(&value) {
        return Some(Becomes::Text(flag));
    }
    // A variable may set it, and then this is to switch it off, which clap cannot.
    let is_off = FALSE.contains(&value) && arg.get_env().is_none();
    is_off.then_some(Becomes::Nothing)
}

/// True for `-o` and `-yo`, where `o` takes a value that is not in the same word.
fn shorts_take_next(command: &Command, flags: &str) -> bool {
    let mut chars = flags.chars();
    while let Some(flag) = chars.next() {
        match short(command, flag) {
            Some(arg) if takes_value(arg) => return chars.as_str().is_empty(),
            Some(_) => {}
            None => return false,
        }
    }
    false
}

/// The flag of this name, or of this alias.
pub(super) fn long<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(name) || aliases.contains(&name)
    })
}

/// The flag of this letter.
pub(super) fn short(command: &Command, flag: char) -> Option<&Arg> {
    command.get_arguments().find(|arg| {
        let aliases = arg.get_all_short_aliases().unwrap_or_default();
        arg.get_short() == Some(flag) || aliases.contains(&flag)
    })
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// True where a value may follow.
pub(super) fn may_take_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// True where a value must follow.
pub(super) fn takes_value(arg: &Arg) -> bool {
    let least = arg.get_num_args().map(|count| count.min_values());
    arg.get_action().takes_values() && least.is_none_or(|least| least > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cli::args::Cli;

    fn answer(_: &str, flag: &str) -> Option<Answer> {
        match flag {
            "--local" => Some(Answer::Refused),
            "--ignore-docker-version" => Some(Answer::NoEffect),
            _ => None,
        }
    }

    fn normal(root: &Command, words: &[String]) -> Vec<String> {
        let line = std::iter::once("rke-operator").chain(words.iter().map(String::as_str));
        let normal = normalised(root, line.map(OsString::from).collect(), answer);
        let normal = normal.into_iter().skip(1);
        normal.map(|word| word.into_string().unwrap()).collect()
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_as_go_writes_them_are_read() {
        let root = Cli::built();
        for (line, becomes) in [
            ("up -config f", "up --config f"),
            ("up -config=f", "up --config=f"),
            ("-debug up", "--debug up"),
            ("-trace=true up", "--trace up"),
            ("up --ssh-agent-auth=true", "up --ssh-agent-auth"),
            ("up -ssh-agent-auth=F", "up"),
            ("remove --force=1", "remove --force"),
            ("remove --force=false --config f", "remove --config f"),
            ("remove --force=maybe", "remove --force=maybe"),
            ("etcd snapshot-save -name x", "etcd snapshot-save --name x"),
            ("etcd snapshot-save --s3=T", "etcd snapshot-save --s3"),
            ("config -empty -print", "config --empty --print"),
            ("config -name x", "config --name x"),
            ("config -e=true -p=false", "config -e"),
            ("up -local", "up --local"),
            ("up --local=false", "up"),
            (
                "up -ignore-docker-version=false",
                "up --ignore-docker-version=false",
            ),
            // As they are.
            ("config -elp", "config -elp"),
            ("up -yojson", "up -yojson"),
            ("up -o=json", "up -o=json"),
            ("up -o -config", "up -o -config"),
            ("up -yo -config", "up -yo -config"),
            ("up --config -debug", "up --config -debug"),
            ("up --config --s3=true", "up --config --s3=true"),
            ("up -nowhere", "up -nowhere"),
            (
                "up -- -config f --force=true",
                "up -- -config f --force=true",
            ),
            ("up --config -- -debug", "up --config -- -debug"),
            ("validate --config -", "validate --config -"),
            ("--no-ssh-config=false up", "--no-ssh-config=false up"),
            (
                "status --watch -output json",
                "status --watch --output json",
            ),
        ] {
            assert_eq!(normal(&root, &words(line)), words(becomes), "{line}");
        }
    }

    /// A command, words of clap's own form with their values, and what comes after `--`.
    fn line() -> impl Strategy<Value = Vec<String>> {
        let root = Cli::built();
        let mut commands = Vec::new();
        collect(&root, &mut Vec::new(), &mut commands);
        let value = prop_oneof![
            "[a-z0-9.]{0,6}",
            "-{1,2}(config|debug|s3|name|output)(=true|=false|=x)?",
            Just("--".to_owned()),
            Just("-".to_owned()),
        ]
        .boxed();
        proptest::sample::select(commands).prop_flat_map(move |(path, flags)| {
            let value = value.clone();
            let flag = proptest::sample::select(flags).prop_flat_map(move |(flag, takes)| {
                let value = value.clone();
                if takes {
                    value
                        .prop_map(move |value| vec![flag.clone(), value])
                        .boxed()
                } else {
                    Just(vec![flag.clone()]).boxed()
                }
            });
            let flags = proptest::collection::vec(flag, 0..6);
            let after = proptest::collection::vec("-{0,2}[a-z]{1,6}(=true|=false)?", 0..4);
            (Just(path), flags, after).prop_map(|(path, flags, after)| {
                let dashes = std::iter::once("--".to_owned());
                let flags = flags.into_iter().flatten();
                path.into_iter()
                    .chain(flags)
                    .chain(dashes)
                    .chain(after)
                    .collect()
            })
        })
    }

    /// Each command by its names, with its flags and whether a value must follow.
    type Commands = Vec<(Vec<String>, Vec<(String, bool)>)>;

    fn collect(command: &Command, path: &mut Vec<String>, commands: &mut Commands) {
        let mut flags = Vec::new();
        for arg in command.get_arguments() {
            if arg
                .get_num_args()
                .is_some_and(|count| count.min_values() == 0)
                && !is_switch(arg)
            {
                continue;
            }
            let long = arg.get_long().map(|long| format!("--{long}"));
            let short = arg.get_short().map(|short| format!("-{short}"));
            flags.extend(
                long.into_iter()
                    .chain(short)
                    .map(|flag| (flag, takes_value(arg))),
            );
        }
        commands.push((path.clone(), flags));
        for next in command
            .get_subcommands()
            .filter(|next| next.get_name() != "help")
        {
            path.push(next.get_name().to_owned());
            collect(next, path, commands);
            path.pop();
        }
    }

    proptest! {
        #[test]
        fn what_clap_reads_is_not_changed(words in line()) {
            prop_assert_eq!(normal(&Cli::built(), &words), words);
        }

        #[test]
        fn a_second_time_changes_nothing(words in proptest::collection::vec(
            "(up|etcd|snapshot-save|config|--|-{1,2}(config|debug|name|s3|local|o|yo|print)(=(true|false|x))?|x)", 0..8,
        )) {
            let root = Cli::built();
            let once = normal(&root, &words);
            prop_assert_eq!(normal(&root, &once), once);
        }
    }
}

//! The commands in the documents: each is one that the program takes, and those of the pages for bad days are run by a test
//! on real nodes.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::{collections::BTreeMap, ffi::OsString, fs, path::PathBuf};

use clap::error::ErrorKind;
use rke_operator::cli::usage::Usage;

/// What stands for a value of the reader's.
const PLACES: [(&str, &str); 2] = [("<cluster id>", ID), ("$id", ID)];
const ID: &str = "0123456789abcdef0123456789abcdef";

/// Pages for what goes wrong at three in the morning.
const BAD_DAYS: [&str; 3] = ["certificates.md", "restore.md", "snapshots.md"];

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The pages by name.
pub(crate) fn pages() -> BTreeMap<String, String> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|it| it == "md"));
    docs.chain([root().join("README.md")])
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// The lines of its blocks, trimmed.
pub(crate) fn block_lines(page: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    page.lines().map(str::trim).filter(move |line| {
        let fence = line.starts_with("```");
        inside ^= fence;
        inside && !fence
    })
}

/// The commands in its blocks, a line each.
fn in_blocks(page: &str) -> Vec<String> {
    let commands = block_lines(page).map(|line| line.trim_start_matches("$ "));
    commands.filter_map(command).collect()
}

/// Those between backticks.
fn inline(page: &str) -> Vec<String> {
    let text: String = page.split("```").step_by(2).collect();
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .map(|text| text.replace('\n', " "))
        .filter_map(|text| command(&text))
        .collect()
}

/// A command of this program, without what follows it on its line.
fn command(line: &str) -> Option<String> {
    let rest = line.strip_prefix("rke-operator ")?;
    let mut rest = rest.to_owned();
    for (place, value) in PLACES {
        rest = rest.replace(place, value);
    }
    // A list of words to choose from is no command.
    if rest.split_whitespace().nth(1) == Some("|") && !rest.contains("| kubectl") {
        return None;
    }
    let ends = [" | ", " #", " > ", "…"];
    let end = ends.iter().filter_map(|end| rest.find(end)).min();
    let rest = rest[..end.unwrap_or(rest.len())].trim();
    (!rest.is_empty()).then(|| rest.to_owned())
}

/// Why it is not taken. A command that is only named may lack what it needs to run.
fn not_taken(command: &str, is_whole: bool) -> Option<String> {
    let words = std::iter::once("rke-operator").chain(command.split_whitespace());
    match Usage::read(words.map(OsString::from).collect(), |_| false) {
        Usage::Known { warnings, .. } => (!warnings.is_empty()).then(|| warnings.join("; ")),
        Usage::Foreign { error, .. } => Some(error),
        Usage::Other(error) => {
            let lacks = [
                ErrorKind::MissingRequiredArgument,
                ErrorKind::InvalidValue,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ];
            let named = !is_whole && lacks.contains(&error.kind());
            (error.use_stderr() && !named).then(|| error.to_string())
        }
    }
}

#[test]
fn the_program_takes_every_command_of_the_documents() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (name, page) in pages() {
        let whole = in_blocks(&page).into_iter().map(|command| (command, true));
        let named = inline(&page).into_iter().map(|command| (command, false));
        for (command, is_whole) in whole.chain(named) {
            count += 1;
            if let Some(said) = not_taken(&command, is_whole) {
                let first = said.lines().next().unwrap_or_default();
                wrong.push(format!("{name}: `rke-operator {command}`: {first}"));
            }
        }
    }
    assert!(count > 100, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The words of a command that are its own: commands and flags, not their values.
fn own_words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut flags = false;
    for word in command.split_whitespace() {
        let flag = word.starts_with('-');
        flags |= flag;
        if flag || !flags {
            let word = word.split('=').next().unwrap_or(word);
            words.push(format!("\"{word}\""));
        }
    }
    words
}

#[test]
fn the_commands_for_bad_days_are_run_on_real_nodes() {
    let tests = fs::read_dir(root().join("tests/it")).unwrap();
    let tests = tests.map(|entry| entry.unwrap().path());
    let lab = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("lab_")
    };
    let tests: Vec<String> = tests
        .filter(lab)
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let pages = pages();
    let mut missing = Vec::new();
    for name in BAD_DAYS {
        let page = pages.get(name).unwrap_or_else(|| panic!("{name}"));
        let commands = in_blocks(page);
        assert!(!commands.is_empty(), "{name}");
        for command in commands {
            let words = own_words(&command);
            let runs = |test: &&String| words.iter().all(|word| test.contains(word));
            if !tests.iter().any(|test| runs(&test)) {
                missing.push(format!("{name}: `rke-operator {command}`: {words:?}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

//! The commands of other programs in the documents: each of these programs takes its own, with every flag. With
//! real nodes because the lab has the programs.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::docs_commands::{block_lines, pages, root};

/// Programs after a prompt whose commands are not tried, and why.
const NOT_TRIED: [(&str, &str); 10] = [
    ("cat", "it shows a file of a node"),
    ("curl", "what it reads is on a node"),
    ("echo", "a shell's own"),
    ("export", "a shell's own"),
    ("for", "a shell's own"),
    ("lab", "the lab's commands have tests of their own"),
    ("rke-operator", "`docs_commands` reads them"),
    ("ss", "it shows a node's sockets"),
    ("ssh-keygen", "it changes the reader's known_hosts"),
    ("systemctl", "it shows a node's services"),
];

/// A plugin of kubectl that the reader installs.
const PLUGIN: &str = "krew";

/// A line of a block, up to what the shell does with its output.
struct Line {
    /// A prompt is before it, so it is no output.
    prompted: bool,
    words: Vec<String>,
}

fn lines(page: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut open = String::new();
    for line in block_lines(page) {
        open.push_str(line);
        if open.ends_with('\\') {
            open.pop();
            continue;
        }
        let line = std::mem::take(&mut open);
        let command = line.strip_prefix("$ ");
        lines.push(Line {
            prompted: command.is_some(),
            words: words(command.unwrap_or(&line)),
        });
    }
    lines
}

fn words(line: &str) -> Vec<String> {
    let mut words = line.split_whitespace().peekable();
    words.next_if_eq(&"sudo");
    let ends = ["|", ">", "<<EOF", "&&", "||"];
    words
        .take_while(|word| !ends.contains(word) && !word.starts_with('#'))
        .map(|word| word.trim_end_matches(';').to_owned())
        .collect()
}

/// Why a program does not take these words; with `--help` it reads them, and does nothing.
fn refused(program: &Path, words: &[String]) -> Option<String> {
    let (own, other) = words.split_at(help_at(program, words));
    let output = Command::new(program)
        .args(own)
        .arg("--help")
        .args(other.iter().take_while(|word| *word != "--"))
        .output()
        .unwrap();
    if !output.status.success() {
        return Some(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    // Of a command that it does not have it shows the help of all.
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let usage = said.split("Usage:").nth(1).unwrap_or_default().trim_start();
    let usage = usage.lines().next().unwrap_or_default();
    let command = usage.split_whitespace().nth(1).unwrap_or_default();
    let has = words.iter().any(|word| word == command);
    (!has).then(|| format!("it has no such command: `{usage}`"))
}

/// Docker gives what stands behind a container's name to that container.
fn help_at(program: &Path, words: &[String]) -> usize {
    if program.ends_with("docker") {
        1.min(words.len())
    } else {
        words.iter().take_while(|word| *word != "--").count()
    }
}

/// The verbs of `make` that the Makefile does not have.
fn unknown_verbs(makefile: &str, words: &[String]) -> Option<String> {
    let verbs: Vec<&str> = makefile
        .lines()
        .filter_map(|line| line.split_once(": ## "))
        .map(|(verb, _)| verb)
        .collect();
    let mut of_these = words.iter().filter(|word| !word.contains('='));
    let unknown = of_these.find(|word| !verbs.contains(&word.as_str()))?;
    Some(format!("the Makefile has no `{unknown}`"))
}

#[test]
fn other_programs_take_the_commands_of_the_documents() {
    let programs = BTreeMap::from([
        ("kubectl", lab::kubectl().unwrap()),
        ("helm", lab::helm(&mut std::io::stderr()).unwrap()),
        ("docker", PathBuf::from("docker")),
    ]);
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for (name, page) in pages() {
        for Line { prompted, words } in lines(&page) {
            let Some((program, rest)) = words.split_first() else {
                continue;
            };
            let why = if program == "make" {
                unknown_verbs(&makefile, rest)
            } else if let Some(path) = programs.get(program.as_str()) {
                let plugin = rest.first().is_some_and(|word| word == PLUGIN);
                (!plugin).then(|| refused(path, rest)).flatten()
            } else {
                let known = NOT_TRIED.iter().any(|(known, _)| known == program);
                (prompted && !known).then(|| "nothing tries it, and no reason is given".to_owned())
            };
            tried += usize::from(programs.contains_key(program.as_str()));
            wrong.extend(why.map(|why| format!("{name}: {}: {why}", words.join(" "))));
        }
    }
    assert!(tried > 80, "{tried}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

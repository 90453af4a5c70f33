//! Words that an engineer who knows Kubernetes stumbles over are kept out of the code, the help and the documents.
//! `tests/words.txt` lists them with what to say instead; its list only grows.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// How many words and phrases there are at least.
const AT_LEAST: usize = 52;

/// Folders of copies: their originals are read.
const COPIES: [&str; 2] = ["deploy/chart/crds", "deploy/chart/files"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Each with what to say instead.
fn banned() -> Vec<(String, String)> {
    let text = read(&root().join("tests/words.txt"));
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    let rows = rows.filter_map(|line| line.split_once('|'));
    rows.map(|(word, instead)| (word.trim().to_owned(), instead.trim().to_owned()))
        .collect()
}

fn files(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = ["rs", "md", "sh", "yaml", "yml"];
        if COPIES.iter().any(|copies| path.ends_with(copies)) {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else if path
            .extension()
            .is_some_and(|ending| text.iter().any(|one| *one == ending))
        {
            found.push(path);
        }
    }
}

/// The words of a text, lower case; what is between them counts for nothing.
fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphabetic() && c != '\'')
        .map(|word| word.trim_matches('\'').to_lowercase())
        .filter(|word| !word.is_empty())
        .collect()
}

/// How often each of them is written, by file.
fn written() -> BTreeMap<(String, String), usize> {
    let mut paths = Vec::new();
    for folder in ["src", "docs", "crds", "deploy", "samples"] {
        files(&root().join(folder), &mut paths);
    }
    let pages = ["README.md", "CHANGELOG.md", "SECURITY.md", "Makefile"];
    paths.extend(pages.map(|page| root().join(page)));
    let banned = banned();
    let mut found = BTreeMap::new();
    for path in paths {
        let name = path.strip_prefix(root()).expect("below the root");
        let name = name.display().to_string();
        let text = words(&read(&path));
        for (phrase, _) in &banned {
            let phrase_words = words(phrase);
            let hits = text.windows(phrase_words.len());
            let hits = hits.filter(|window| *window == phrase_words).count();
            if hits > 0 {
                found.insert((name.clone(), phrase.clone()), hits);
            }
        }
    }
    found
}

#[test]
fn no_file_has_one_of_the_words() {
    let banned: BTreeMap<_, _> = banned().into_iter().collect();
    let mut found = String::new();
    for ((file, word), count) in &written() {
        let _ = writeln!(
            found,
            "{file}: `{word}`, {count} times; say {}",
            banned[word]
        );
    }
    assert!(
        found.is_empty(),
        "words that CONTRIBUTING.md bans:\n{found}"
    );
}

#[test]
fn the_list_only_grows() {
    let banned = banned();
    assert!(banned.len() >= AT_LEAST, "{}", banned.len());
    assert!(
        banned
            .iter()
            .all(|(word, instead)| !word.is_empty() && !instead.is_empty())
    );
}

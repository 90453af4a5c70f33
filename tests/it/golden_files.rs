//! Golden files are read by people: each answers one question on a page or two, and shows nothing that tells a reader
//! nothing.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Lines of all together. It may only become less; only screens at several widths have made it more.
const ALL: usize = 8_170;

/// Lines of one.
const ONE: usize = 150;

fn found(folder: &Path, found_so_far: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found(&path, found_so_far);
        } else if path.extension().is_some_and(|kind| kind == "snap") {
            found_so_far.push(path);
        }
    }
}

/// Each with its text below insta's own lines.
fn golden() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for folder in ["src", "tests"] {
        found(&root.join(folder), &mut paths);
    }
    let read = paths.into_iter().map(|path| {
        let text = fs::read_to_string(&path).expect("a golden file");
        (path, text)
    });
    read.collect()
}

/// A word of hexadecimal digits as long as a digest is.
fn is_digest(word: &str) -> bool {
    let hexadecimal = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    word.len() >= 16 && word.chars().all(hexadecimal) && word.contains(|c: char| c.is_ascii_digit())
}

/// `Intent {`, `Some(`: what `{:#?}` makes of a value.
fn is_debug(line: &str) -> bool {
    let line = line.trim().rsplit(": ").next().unwrap_or_default();
    let name = line
        .strip_suffix(" {")
        .or_else(|| line.strip_suffix('('))
        .unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(char::is_alphanumeric)
}

#[test]
fn golden_files_are_few_and_short() {
    let golden = golden();
    assert!(golden.len() > 50);
    let mut all = 0;
    for (path, text) in &golden {
        let lines = text.lines().count();
        assert!(
            lines <= ONE,
            "{} has {lines} lines: show a difference, or one thing at a time",
            path.display()
        );
        all += lines;
    }
    assert!(all <= ALL, "{all} lines of golden files: show differences");
}

#[test]
fn golden_files_hold_no_digests_and_no_structs() {
    for (path, text) in golden() {
        for line in text.lines() {
            let mut words = line.split(|c: char| !c.is_ascii_alphanumeric());
            assert!(!words.any(is_digest), "{}: {line}", path.display());
            assert!(!is_debug(line), "{}: {line}", path.display());
        }
    }
}

/// One that no test reads any more stays on file unnoticed; of those of documents it is known.
#[test]
fn golden_files_of_documents_have_their_document() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, text) in golden() {
        let Some(input) = text
            .lines()
            .find_map(|line| line.strip_prefix("input_file: "))
        else {
            continue;
        };
        assert!(
            root.join(input).exists(),
            "{}: {input} is gone",
            path.display()
        );
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        let test = name.split("__").nth(1).expect("the module of the test");
        let source = root.join(format!("tests/it/{test}.rs"));
        assert!(
            source.exists(),
            "{}: there is no {}",
            path.display(),
            source.display()
        );
    }
}

//! The table of guards is true: each guard stands where it says, its test exists, and `docs/invariants.md` has its row.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

#[path = "../guards/table.rs"]
mod table;
#[path = "../guards/weave.rs"]
mod weave;

use table::{Guard, guards};

const BEGIN: &str = "<!-- guards: generated from tests/guards.toml -->\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn all() -> Vec<Guard> {
    guards(root()).expect("the table")
}

#[test]
fn every_guard_stands_exactly_once_in_its_place() {
    let all = all();
    assert!(all.len() > 200);
    let wrong: Vec<_> = all
        .iter()
        .filter_map(|guard| guard.without(root()).err())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let names: BTreeSet<_> = all.iter().map(|guard| &guard.name).collect();
    assert_eq!(names.len(), all.len(), "no name stands twice");
}

/// `make guards` would take hours if each guard needed a build of its own.
#[test]
fn one_build_has_nearly_every_guard() {
    let all = all();
    let woven = weave::weave(root(), &all).expect("the sources");
    let alone = all.len() - woven.names.len();
    assert!(alone * 20 < all.len(), "{alone} of {} are alone", all.len());
    for (file, text) in &woven.files {
        syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    for name in &woven.names {
        let arm = format!("{name:?} => {{");
        let has = |text: &String| text.contains(&arm);
        assert!(woven.files.values().any(has), "no function lacks {name}");
    }
}

fn sources(below: &Path, found: &mut String) {
    for entry in fs::read_dir(below).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push_str(&fs::read_to_string(&path).expect("a source"));
        }
    }
}

/// All of the sources, in one text.
fn code() -> String {
    let mut code = String::new();
    sources(&root().join("src"), &mut code);
    sources(&root().join("tests/it"), &mut code);
    code
}

/// The last cell of each row of docs/security.md names tests.
#[test]
fn every_threat_has_a_test_that_exists() {
    let code = code();
    let text = fs::read_to_string(root().join("docs/security.md")).expect("the document");
    let (_, threats) = text.split_once("## Threats").expect("its chapter");
    let cells = threats.lines().filter_map(|line| {
        let cell = line.trim_end_matches(" |").rsplit(" | ").next()?;
        cell.starts_with('`').then_some(cell)
    });
    let tests: Vec<&str> = cells
        .flat_map(|cell| cell.split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    assert!(tests.len() > 30, "{tests:?}");
    let missing: Vec<_> = tests
        .into_iter()
        .filter(|name| !code.contains(&format!("fn {name}(")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_guard_has_a_test_that_exists() {
    let code = code();
    let missing: Vec<_> = all()
        .into_iter()
        .filter(|guard| {
            let name = guard.test.rsplit("::").next().unwrap_or_default();
            !code.contains(&format!("fn {name}("))
        })
        .map(|guard| format!("{}: {}", guard.name, guard.test))
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The rows of the document.
fn rows() -> String {
    let mut text = "| Guard | In | Then fails first |\n|---|---|---|\n".to_owned();
    for guard in all() {
        let file = guard.file.trim_start_matches("src/");
        let function = guard
            .function
            .map(|name| format!(", `{name}`"))
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "| `{}` | `{file}`{function} | `{}` |",
            guard.name, guard.test
        );
    }
    text
}

#[test]
fn the_document_has_the_rows_of_the_table() {
    let path = root().join("docs/invariants.md");
    let text = fs::read_to_string(&path).expect("the document");
    let (before, _) = text.split_once(BEGIN).expect("where the rows begin");
    let wanted = format!("{before}{BEGIN}{}", rows());
    if std::env::var_os("UPDATE_GUARDS").is_some() {
        fs::write(&path, &wanted).expect("the document is written");
    } else {
        assert!(
            text == wanted,
            "UPDATE_GUARDS=1 writes the rows of docs/invariants.md"
        );
    }
}

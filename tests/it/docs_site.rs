//! The documents as a site: `docs/SUMMARY.md` has each page once, and every relative link leads to a file and a heading
//! that exist. An anchor is what GitHub and mdbook make of a heading.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Pages outside of `docs`.
const ON_TOP: [&str; 4] = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pages(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

/// A page without its blocks of code.
fn prose(page: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The targets of its links. A link between backticks is only text.
fn links(page: &str) -> Vec<String> {
    let text: String = prose(page).split('`').step_by(2).collect();
    let targets = text.split("](").skip(1);
    targets
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let heading = heading.trim().to_lowercase();
    heading
        .chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

/// The anchors of a page; of equal ones, the second has `-1` at its end.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for line in prose(page).lines().filter(|line| line.starts_with('#')) {
        let name = anchor(line.trim_start_matches('#'));
        let count = counts.entry(name.clone()).or_default();
        found.insert(if *count == 0 {
            name
        } else {
            format!("{name}-{count}")
        });
        *count += 1;
    }
    found
}

/// What is wrong with a link of a page.
fn broken(page: &Path, link: &str) -> Option<&'static str> {
    if link.contains("://") {
        return None;
    }
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() {
        page.to_owned()
    } else {
        page.with_file_name("").join(file)
    };
    if !target.exists() {
        return Some("no such file");
    }
    let has = heading.is_empty() || anchors(&read(&target)).contains(heading);
    (!has).then_some("no such heading")
}

#[test]
fn the_summary_has_each_page_once() {
    let docs = root().join("docs");
    let summary = docs.join("SUMMARY.md");
    let mut written = Vec::new();
    pages(&docs, &mut written);
    written.retain(|path| *path != summary);
    written.sort();
    let listed = links(&read(&summary));
    let mut listed: Vec<_> = listed.iter().map(|link| docs.join(link)).collect();
    listed.sort();
    assert_eq!(listed, written);
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut all: Vec<_> = ON_TOP.iter().map(|name| root().join(name)).collect();
    pages(&root().join("docs"), &mut all);
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in all {
        for link in links(&read(&page)) {
            count += 1;
            if let Some(why) = broken(&page, &link) {
                wrong.push(format!("{}: {link}: {why}", page.display()));
            }
        }
    }
    assert!(count > 200, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn anchors_are_made_as_github_and_mdbook_make_them() {
    let page = "# `up`, and back\n\n```\n# not this\n```\n\n## A b-c\n\n## A b-c\n";
    let found = anchors(page);
    let found: Vec<_> = found.iter().map(String::as_str).collect();
    assert_eq!(found, ["a-b-c", "a-b-c-1", "up-and-back"]);
}

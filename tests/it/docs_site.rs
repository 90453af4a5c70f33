//! The documents as a site: `docs/SUMMARY.md` has each page once, every relative link leads to a file and a heading that
//! exist, and none leaves `docs`, which is all that the site has: the other files are linked by the repository's address.
//! An anchor is what GitHub and mdbook make of a heading. Where mdbook is installed, the pages that it makes are read, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
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

fn files(below: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|it| it == ending) {
            found.push(path);
        }
    }
}

fn pages(below: &Path, found: &mut Vec<PathBuf>) {
    files(below, "md", found);
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

/// What is wrong with an address of a file or folder of this repository.
fn broken_address(rest: &str) -> Option<&'static str> {
    let (kind, path) = rest.split_once("/main/")?;
    let path = path.split('#').next().unwrap_or_default();
    let path = root().join(path);
    match kind {
        "blob" => (!path.is_file()).then_some("no such file in the repository"),
        "tree" => (!path.is_dir()).then_some("no such folder in the repository"),
        _ => None,
    }
}

/// Whether a path leads out of the folder that it begins in.
fn leaves(folder: &Path, path: &Path) -> bool {
    let mut parts: Vec<Component> = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    !parts.iter().collect::<PathBuf>().starts_with(folder)
}

/// What is wrong with a link of a page.
fn broken(page: &Path, link: &str) -> Option<&'static str> {
    if let Some(rest) = link.strip_prefix(concat!(env!("CARGO_PKG_REPOSITORY"), "/")) {
        return broken_address(rest);
    }
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
    let docs = root().join("docs");
    if page.starts_with(&docs) && leaves(&docs, &target) {
        return Some("not in docs, so not in the site: link the repository's address");
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
fn a_link_out_of_the_site_is_broken() {
    let page = root().join("docs/reference/cli.md");
    for (link, why) in [
        ("../install.md", None),
        ("../install.md#uninstall", None),
        ("../install.md#nothing", Some("no such heading")),
        (
            "../../README.md",
            Some("not in docs, so not in the site: link the repository's address"),
        ),
    ] {
        assert_eq!(broken(&page, link), why, "{link}");
    }
    for (path, why) in [
        ("blob/main/README.md", None),
        ("blob/main/deploy", Some("no such file in the repository")),
        ("tree/main/deploy", None),
        ("tree/main/gone", Some("no such folder in the repository")),
        ("releases", None),
    ] {
        let link = format!("{}/{path}", env!("CARGO_PKG_REPOSITORY"));
        assert_eq!(broken(&page, &link), why, "{link}");
    }
}

#[test]
fn anchors_are_made_as_github_and_mdbook_make_them() {
    let page = "# `up`, and back\n\n```\n# not this\n```\n\n## A b-c\n\n## A b-c\n";
    let found = anchors(page);
    let found: Vec<_> = found.iter().map(String::as_str).collect();
    assert_eq!(found, ["a-b-c", "a-b-c-1", "up-and-back"]);
}

/// The values of an attribute in a page of HTML.
fn attributes(html: &str, name: &str) -> BTreeSet<String> {
    let before = format!(" {name}=\"");
    let values = html.split(&before).skip(1);
    let values = values.filter_map(|rest| rest.split_once('"'));
    values.map(|(value, _)| value.to_owned()).collect()
}

/// What is made of the pages may still differ from what their links ask for. `make site` runs it.
#[test]
#[ignore = "needs mdbook"]
fn every_link_of_the_built_site_leads_somewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = folder.path().canonicalize().expect("a path");
    let mut mdbook = Command::new("mdbook");
    mdbook.arg("build").arg(root()).arg("--dest-dir").arg(&site);
    let output = mdbook.output().expect("mdbook runs");
    assert!(output.status.success(), "{output:?}");
    let mut built = Vec::new();
    files(&site, "html", &mut built);
    // It is shown at any address, and begins its links at the site's root.
    built.retain(|path| path.file_name().is_some_and(|name| name != "404.html"));
    let texts: BTreeMap<_, _> = built.iter().map(|path| (path, read(path))).collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    for (page, html) in &texts {
        let links = attributes(html, "href")
            .into_iter()
            .chain(attributes(html, "src"));
        for link in links.filter(|link| !link.contains(':') && !link.is_empty()) {
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let mut target = (*page).clone();
            if !file.is_empty() {
                target = page.with_file_name("").join(file);
            }
            let Ok(target) = target.canonicalize() else {
                wrong.push(format!("{}: {link}: no such file", page.display()));
                continue;
            };
            let has = match texts.iter().find(|(path, _)| ***path == target) {
                Some((_, text)) => heading.is_empty() || attributes(text, "id").contains(heading),
                None => target.is_file(),
            };
            if !has {
                wrong.push(format!("{}: {link}: no such heading", page.display()));
            }
        }
    }
    assert!(count > 1000, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

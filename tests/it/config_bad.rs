//! What is said about documents that are wrong, `tests/fixtures/bad/`: each with all of its problems, by path and
//! line, and never with a secret, which are all `hunter2` there. And whatever the bytes are: no panic.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use rke_operator::config::{Intent, Problems, RkeConfig};

use crate::{any_file::AnyFile, config_survives::survives};

/// How many documents there are at least.
const AT_LEAST: usize = 80;

fn problems(yaml: &str) -> Option<Problems> {
    let resolved =
        RkeConfig::parse(yaml).and_then(|config| Intent::from_config(&config, &AnyFile::new()));
    resolved.err()
}

/// All that is said about it, for a terminal.
fn says(path: &Path) -> String {
    let name = path.display().to_string();
    let yaml = fs::read_to_string(path).expect("a document");
    let problems = problems(&yaml).unwrap_or_else(|| panic!("{name} is a good document"));
    let text = problems.render("cluster.yml", &yaml, false);
    for said in [&text, &problems.to_string()] {
        assert!(!said.contains("hunter2"), "{name}: {said}");
    }
    text
}

fn documents(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.is_file()).collect()
}

#[test]
fn every_bad_document_is_told_what_is_wrong() {
    let count = documents("tests/fixtures/bad").len();
    assert!(count >= AT_LEAST, "{count}");
    insta::glob!("../fixtures/bad", "*.yml", |path| {
        insta::assert_snapshot!(says(path));
    });
}

#[test]
fn no_secret_is_shown_where_a_key_beside_it_is_wrong() {
    let documents = documents("tests/fixtures/bad/secrets");
    assert!(documents.len() > 5);
    for path in documents {
        let text = fs::read_to_string(&path).expect("a document");
        assert!(text.contains("hunter2"), "{}", path.display());
        says(&path);
    }
}

/// Each as it is and with its secrets in a document that is broken.
#[test]
fn every_document_that_we_have_survives() {
    let key = AnyFile::new();
    let folders = [
        "rkespec",
        "rkespec/users",
        "tests/fixtures/bad",
        "tests/fixtures/bad/secrets",
    ];
    for path in folders.into_iter().flat_map(documents) {
        survives(&fs::read(path).expect("a document"), &key);
    }
}

/// Pieces that make documents which are nearly right.
const PIECES: [&str; 40] = [
    "nodes:\n",
    "  - ",
    "address: ",
    "192.0.2.10",
    "user: ubuntu\n",
    "role: [etcd]",
    "    ",
    "\n",
    ": ",
    "- ",
    "services:\n",
    "  kubelet:\n",
    "extra_args: {",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "|-\n",
    ">",
    "&a ",
    "*a",
    "!!str ",
    "~",
    "null",
    "yes",
    "0x1F",
    "1e400",
    "-1",
    "\t",
    "#",
    "---\n",
    "...\n",
    "?",
    "\u{0}",
    "\u{feff}",
    "ä",
    "\u{1b}[31m",
    "network: {plugin: flannel}\n",
    "<<: *a\n",
];

proptest! {
    #[test]
    fn whatever_the_bytes_nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survives(&bytes, &AnyFile::new());
    }

    #[test]
    fn whatever_the_pieces_nothing_panics(pieces in prop::collection::vec(0..PIECES.len(), 0..60)) {
        let text: String = pieces.into_iter().map(|at| PIECES[at]).collect();
        survives(text.as_bytes(), &AnyFile::new());
    }

    /// A good document in which some bytes are others, or missing.
    #[test]
    fn whatever_is_done_to_a_document_nothing_panics(
        document in prop::sample::select(vec![
            include_str!("../../rkespec/rke-config-defaults.yml"),
            include_str!("../../rkespec/admission.yml"),
            include_str!("../../rkespec/extra-args.yml"),
        ]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<Option<u8>>()), 1..12),
    ) {
        let mut bytes = document.as_bytes().to_vec();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            match byte {
                Some(byte) => bytes[at] = byte,
                None => drop(bytes.remove(at)),
            }
        }
        survives(&bytes, &AnyFile::new());
    }
}

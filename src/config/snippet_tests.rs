//! What a terminal shows of a document: never a secret, never a control character.

use insta::assert_snapshot;

use super::{
    Intent, Problems, RkeConfig, SecretSources,
    schema::{Below, Key, Kind, ROOT},
};

fn problems(yaml: &str) -> Problems {
    let sources = SecretSources::new("key", String::new().into());
    RkeConfig::parse(yaml)
        .and_then(|config| Intent::from_config(&config, &sources))
        .expect_err("a problem")
}

fn shown(yaml: &str) -> String {
    problems(yaml).render("cluster.yml", yaml, false)
}

fn secret_paths(keys: &[Key], around: &str, out: &mut Vec<(String, Kind)>) {
    for key in keys {
        let path = format!("{around}{}", key.name);
        if key.secret {
            out.push((path.clone(), key.kind));
        }
        match key.kind.below() {
            Below::Section(below) => secret_paths(below, &format!("{path}."), out),
            Below::Each(below) => secret_paths(below, &format!("{path}[]."), out),
            Below::Nothing => {}
        }
    }
}

#[test]
fn no_secret_of_the_schema_is_shown() {
    let mut paths = Vec::new();
    secret_paths(ROOT, "", &mut paths);
    assert!(paths.len() > 20, "{}", paths.len());
    for (path, kind) in paths {
        let mut values = if matches!(kind, Kind::List | Kind::Any) {
            vec!["hunter2", "[hunter2]"]
        } else {
            vec![
                "hunter2",
                "'hunter2'",
                "\"hun\\u0074er2\"",
                "[hunter2]",
                "{a: {b: [hunter2]}}",
            ]
        };
        // `make fuzz` found these: YAML takes a text with a colon for a mapping.
        values.extend([
            "[{hunter2: }]",
            "{hunter2: a, hunter2: b}",
            "{resources: [{resources: [hunter2: ]}]}",
        ]);
        for value in values {
            // All in one line, so that every problem shows the whole document.
            let document = path.split('.').rev().fold(value.to_owned(), |inner, key| {
                match key.strip_suffix("[]") {
                    Some(list) => format!("{{{list}: [{inner}]}}"),
                    None => format!("{{{key}: {inner}}}"),
                }
            });
            // And that there is one.
            let document = document.replacen('{', "{no_such_key: 1, ", 1);
            let text = shown(&document);
            // What is kept is no problem; the command line's tests show its warning.
            let kept = path.contains("s3backupconfig");
            assert!(text.contains("***") || kept, "{path}: {text}");
            for part in ["hunter2", "hun\\u0074"] {
                assert!(!text.contains(part), "{path}: {text}");
            }
        }
    }
}

#[test]
fn an_unknown_value_may_be_a_secret() {
    for document in [
        "{nodes: [{pasword: hunter2}]}",
        "{services: {kube-api: {extra_args: {oidc-client-secret: hunter2}}, nope: 1}}",
        "{x: &p hunter2, ssh_key_path: *p}",
        "{bastion_host: hunter2}",
        "{private_registries: hunter2}",
    ] {
        let text = shown(document);
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("***"), "{text}");
    }
}

#[test]
fn a_key_of_several_lines_is_not_shown() {
    assert_snapshot!(shown("nodes:\n- ssh_key: |\n    -----BEGIN PRIVATE KEY-----\n    hunter2\n  address: a b\nnetwork: {plugin: none}\ningress: {provider: none}\nmonitoring: {provider: none}\n"), @"
    error: `nodes[0].user`: a node needs a user to log in as
     --> cluster.yml:2:3
      |
    2 | - ssh_key: |
      |   ^^^^^^^

    error: `nodes[0].ssh_key`: a private key has no place in a `Cluster` object
     --> cluster.yml:2:3
      |
    2 | - ssh_key: |
      |   ^^^^^^^
      |
      = help: put the key into a Secret and name it in `spec.ssh.keySecretRef`

    error: `nodes[0].address`: is neither a host name nor an IP address
     --> cluster.yml:5:10
      |
    5 | address: a b
      |          ^^^
    ");
}

#[test]
fn a_document_that_is_not_yaml_is_not_quoted() {
    assert_snapshot!(shown("nodes:\n\t- address: a\n"), @"
    error: the document is not valid YAML
    --> cluster.yml:2:2
     = note: tabs disallowed within this context (block indentation)
     = help: indent with spaces
    ");
    assert_snapshot!(shown("private_registries:\n- password: 'hunter2\nnodes: []\n- a"), @"
    error: the document is not valid YAML
    --> cluster.yml:3:1
     = note: invalid indentation in multiline quoted scalar
    ");
    assert_snapshot!(shown("nodes:\n- ssh_key: \"hunter2\n  hunter3\" hunter4\n"), @"
    error: the document is not valid YAML
    --> cluster.yml:3:3
     = note: invalid indentation in multiline quoted scalar
    ");
}

#[test]
fn control_characters_are_escaped_everywhere() {
    let yaml = "\"a\\u001b[31m\": 1\ncluster_name: \"b\\u001b[2J\"\nnodes: [{address: \"c\\e]0;x\\a\", labels: {\"d\\u202e\": e}}]\n";
    let problems = problems(yaml);
    let text = problems.render("f\u{1b}[31m.yml", yaml, false);
    let all = format!("{problems}\n{text}");
    assert!(
        all.chars()
            .all(|c| c == '\n' || crate::model::is_printable(c)),
        "{all:?}"
    );
    assert!(text.contains("`a\\u{1b}[31m`: unknown key"), "{text}");
    // Raw ones in the text of the file.
    let raw = "nodes: []\nx\u{1b}[31m: 1\n";
    let text = RkeConfig::parse(raw)
        .map_or_else(|problems| problems.render("c", raw, false), |_| shown(raw));
    assert!(
        text.chars()
            .all(|c| c == '\n' || crate::model::is_printable(c)),
        "{text:?}"
    );
}

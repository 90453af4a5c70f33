//! What is said of a value as a set of lines, one for each leaf with its path, so that a golden file holds
//! differences and no wholes.

use std::collections::BTreeSet;

/// The leaves of a JSON value: `spec.replicas 2`. Items of lists have no place of their own.
pub(crate) fn of_json(value: &serde_json::Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    json("", value, &mut found);
    found
}

fn json(path: &str, value: &serde_json::Value, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                json(&format!("{path}.{name}"), value, found);
            }
        }
        serde_json::Value::Array(items) => {
            for item in items {
                json(path, item, found);
            }
        }
        plain => drop(found.insert(format!("{} {plain}", path.trim_start_matches('.')))),
    }
}

/// The leaves of what has no other text than its `Debug`: `network.backend.port 8472`. Names of types and what is
/// empty are left out.
pub(crate) fn of_debug(value: &impl std::fmt::Debug) -> BTreeSet<String> {
    let text = format!("{value:#?}");
    let lines = unwrapped(&text);
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut found = BTreeSet::new();
    for (depth, line) in lines {
        above.retain(|(at, _)| *at < depth);
        let (name, value) = match line.split_once(": ") {
            Some((name, value)) if is_name(name) => (name.trim_matches('"'), value),
            Some(_) | None => ("", line.as_str()),
        };
        if value.ends_with(['(', '{', '[']) {
            above.push((depth, name.to_owned()));
        } else if !line.starts_with([')', '}', ']']) && !matches!(value, "{}" | "[]" | "None") {
            let path = above.iter().map(|(_, name)| name.as_str()).chain([name]);
            let path: Vec<_> = path.filter(|name| !name.is_empty()).collect();
            found.insert(format!("{} {value}", path.join(".")));
        }
    }
    found
}

/// A field, or the key of a map.
fn is_name(text: &str) -> bool {
    let plain = text.trim_matches('"');
    !plain.is_empty() && !plain.contains([' ', '"'])
}

/// The lines with their depth; `Some(\n    5,\n)` and every other wrapper of one leaf is `5`.
fn unwrapped(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let line = line.trim().trim_end_matches(',');
        let closes = line
            .strip_prefix(')')
            .filter(|rest| rest.is_empty() || rest.starts_with(':'));
        if let (Some(rest), [.., (_, open), (inner, leaf)]) = (closes, found.as_slice())
            && *inner > depth
            && open.ends_with('(')
        {
            let name = open.rsplit_once(": ").map_or("", |(name, _)| name);
            let separator = if name.is_empty() { "" } else { ": " };
            let merged = format!("{name}{separator}{leaf}{rest}");
            found.truncate(found.len() - 2);
            found.push((depth, merged));
        } else {
            found.push((depth, line.to_owned()));
        }
    }
    found
}

/// What went and what came, each with its sign.
pub(crate) fn between(before: &BTreeSet<String>, now: &BTreeSet<String>) -> Vec<String> {
    let gone = before.difference(now).map(|line| format!("- {line}"));
    let new = now.difference(before).map(|line| format!("+ {line}"));
    gone.chain(new).collect()
}

#[test]
fn leaves_of_debug_have_their_path() {
    #[derive(Debug)]
    struct Name(#[expect(dead_code, reason = "it is printed")] &'static str);
    #[derive(Debug)]
    #[expect(dead_code, reason = "it is printed")]
    struct Value {
        plain: Option<u8>,
        names: std::collections::BTreeMap<&'static str, Name>,
        none: Option<u8>,
        pair: Option<(u8, u8)>,
        list: Vec<Name>,
    }
    let value = Value {
        plain: Some(5),
        names: [("a", Name("b"))].into(),
        none: None,
        pair: Some((1, 2)),
        list: vec![Name("x"), Name("y")],
    };
    let found: Vec<_> = of_debug(&value).into_iter().collect();
    let wanted = [
        "list \"x\"",
        "list \"y\"",
        "names.a \"b\"",
        "pair 1",
        "pair 2",
        "plain 5",
    ];
    assert_eq!(found, wanted);
}

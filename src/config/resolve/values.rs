//! Reading single values: text, flags, lists, and the syntaxes that Kubernetes and Docker set.

use std::{collections::BTreeMap, net::IpAddr};

use super::Found;
use crate::{
    config::{
        cursor::Cursor,
        schema::{EFFECTS, boolean},
        tree::Value,
    },
    model::{Secret, is_printable, quoted},
};

/// The text of a scalar; `None` when absent or empty, and with a problem when it is none.
pub(super) fn text<'a>(at: &Cursor<'a>, found: &mut Found) -> Option<&'a str> {
    match at.value() {
        None | Some(Value::Null) => None,
        Some(Value::Scalar(text)) => {
            let text = text.expose().as_str();
            // It would act on whatever prints it: a terminal, a log, a script on the node.
            if text
                .chars()
                .any(|c| !is_printable(c) && !matches!(c, '\n' | '\t'))
            {
                found.problem(
                    at.problem("has a character that cannot be printed")
                        .detail(text),
                );
            }
            Some(text).filter(|text| !text.is_empty())
        }
        Some(other @ (Value::List(_) | Value::Map(_))) => {
            found.problem(at.problem(format!("must be a single value, not {}", other.kind())));
            None
        }
    }
}

/// As written, else what the schema says that RKE takes.
pub(super) fn or_default<'a>(at: &Cursor<'a>, found: &mut Found) -> &'a str {
    text(at, found).unwrap_or_else(|| at.default())
}

/// The same of a flag.
pub(super) fn flag_or_default(at: &Cursor<'_>, found: &mut Found) -> bool {
    let written = flag(at, found);
    written.unwrap_or_else(|| boolean(at.default()) == Some(true))
}

/// The same of a number.
pub(super) fn number_or_default(at: &Cursor<'_>, found: &mut Found) -> u32 {
    let written = number(at, found);
    written.unwrap_or_else(|| at.default().parse().unwrap_or_default())
}

/// One of the words that the schema has for it; a problem when it is another, which is `what`.
pub(super) fn word<'a>(at: &Cursor<'a>, what: &str, found: &mut Found) -> &'a str {
    let text = or_default(at, found);
    if !text.is_empty() && !at.words().contains(&text) {
        let problem = at.problem(what).detail(text);
        found.problem(problem.hint(format!("write {}", one_of(at.words()))));
        return at.default();
    }
    text
}

/// `` `a`, `b` or `c` ``.
fn one_of(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, [])) => format!("`{last}`"),
        Some((last, others)) => format!("{} or `{last}`", quoted(others)),
        None => String::new(),
    }
}

/// A YAML 1.1 bool, as Go's YAML reads it.
pub(super) fn flag(at: &Cursor<'_>, found: &mut Found) -> Option<bool> {
    let text = text(at, found)?;
    let flag = boolean(text);
    if flag.is_none() {
        found.problem(at.problem("must be `true` or `false`").detail(text));
    }
    flag
}

/// The texts of a list, each with its place. Empty items are problems.
pub(super) fn texts<'a>(at: &Cursor<'a>, found: &mut Found) -> Vec<(Cursor<'a>, &'a str)> {
    match at.value() {
        None | Some(Value::Null | Value::List(_)) => {}
        Some(Value::Scalar(text)) if text.expose().is_empty() => {}
        Some(other @ (Value::Scalar(_) | Value::Map(_))) => {
            found.problem(at.problem(format!("must be a list, not {}", other.kind())));
        }
    }
    let mut all = Vec::new();
    for item in at.items() {
        let before = found.problems.len();
        match text(&item, found) {
            Some(text) => all.push((item, text)),
            None if found.problems.len() == before => {
                found.problem(item.problem("must not be empty"));
            }
            None => {}
        }
    }
    all
}

/// A number that is not negative.
pub(super) fn number(at: &Cursor<'_>, found: &mut Found) -> Option<u32> {
    let text = text(at, found)?;
    let number = text.parse().ok();
    if number.is_none() {
        found.problem(at.problem("must be a whole number, 0 or more").detail(text));
    }
    number
}

/// The text of a certificate, `what`, with one end of line at its end. A key in its place would be in a file that
/// everybody on the node may read.
pub(super) fn certificate(
    at: &Cursor<'_>,
    what: &str,
    text: &str,
    found: &mut Found,
) -> Option<String> {
    if text.contains("PRIVATE KEY") || !text.contains("-----BEGIN CERTIFICATE-----") {
        let problem = at.problem(format!("is not {what}"));
        found.problem(
            problem.hint("PEM, which begins with `-----BEGIN CERTIFICATE-----`, and no key"),
        );
        return None;
    }
    Some(text.trim_end().to_owned() + "\n")
}

/// The texts of a mapping, each with its place. An empty value is an empty text.
pub(super) fn map<'a>(
    at: &Cursor<'a>,
    found: &mut Found,
) -> BTreeMap<&'a str, (Cursor<'a>, &'a str)> {
    entries(at, found)
        .into_iter()
        .map(|(key, value)| {
            let text = text(&value, found).unwrap_or_default();
            (key, (value, text))
        })
        .collect()
}

/// The values of a mapping by their names.
pub(super) fn entries<'a>(at: &Cursor<'a>, found: &mut Found) -> Vec<(&'a str, Cursor<'a>)> {
    match at.value() {
        None | Some(Value::Null | Value::Map(_)) => {}
        Some(Value::Scalar(text)) if text.expose().is_empty() => {}
        Some(other @ (Value::Scalar(_) | Value::List(_))) => {
            found.problem(at.problem(format!("must be a mapping, not {}", other.kind())));
        }
    }
    at.entries()
}

/// Labels of a node.
pub(super) fn labels(at: &Cursor<'_>, found: &mut Found) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (key, (value, text)) in map(at, found) {
        if !is_label_key(key) {
            found.problem(
                value
                    .key_problem("is not the key of a label")
                    .hint(LABEL_KEY),
            );
        }
        if !is_label_value(text) {
            let problem = value.problem("is not the value of a label").detail(text);
            found.problem(problem.hint(LABEL_VALUE));
        }
        labels.insert(key.to_owned(), text.to_owned());
    }
    labels
}

pub(super) const LABEL_KEY: &str =
    "`name` or `prefix/name`; the name has at most 63 letters, digits, `-`, `_` and `.`";
pub(super) const LABEL_VALUE: &str =
    "at most 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit";

/// A problem when it is not an effect of a taint.
pub(super) fn effect(at: &Cursor<'_>, effect: &str, found: &mut Found) {
    if !EFFECTS.contains(&effect) {
        let problem = at.problem("unknown effect").detail(effect);
        found.problem(problem.hint(format!("the effects are {}", quoted(EFFECTS))));
    }
}

/// What may follow `--`; a problem when it is not.
pub(super) fn is_flag(name: &str, at: &Cursor<'_>, found: &mut Found) -> bool {
    let is = is_flag_name(name);
    if !is {
        let problem = at.key_problem("is not the name of a flag");
        found.problem(if name.starts_with('-') {
            problem.hint("write it without the dashes")
        } else {
            problem
        });
    }
    is
}

/// An object of Kubernetes as written, of one of these versions: the first, and this kind, where it does
/// not say. `None` when absent or empty, and with a problem when it is none.
pub(super) fn object(
    at: &Cursor<'_>,
    versions: &[&str],
    kind: &str,
    found: &mut Found,
) -> Option<serde_json::Map<String, serde_json::Value>> {
    if entries(at, found).is_empty() {
        return None;
    }
    for (key, known) in [("apiVersion", versions), ("kind", &[kind])] {
        let at = at.get(key);
        if let Some(other) = text(&at, found).filter(|text| !known.contains(text)) {
            let problem = at.problem("is not the expected value");
            found.problem(problem.detail(other).hint(format!("write `{}`", known[0])));
        }
    }
    let serde_json::Value::Object(mut object) = at.json() else {
        return None;
    };
    object.insert("kind".to_owned(), kind.into());
    if at.get("apiVersion").is_empty() {
        object.insert("apiVersion".to_owned(), versions[0].into());
    }
    Some(object)
}

/// A mapping as YAML reads it, as JSON: there may be passwords in it.
pub(super) fn json_map(at: &Cursor<'_>, found: &mut Found) -> Option<Secret<String>> {
    let empty = entries(at, found).is_empty();
    (!empty).then(|| Secret::new(at.json().to_string()))
}

/// The mappings of a list in an object of Kubernetes; a problem when there is none.
pub(super) fn mappings<'a>(at: &Cursor<'a>, found: &mut Found) -> Vec<Cursor<'a>> {
    let items = at.items();
    if items.is_empty() || items.iter().any(|item| item.entries().is_empty()) {
        found.problem(at.problem("must be a list of mappings, at least one"));
    }
    items
}

/// RFC 1123: letters, digits and `-`, not at the ends, at most 63.
pub(super) fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A DNS-1123 subdomain: what Kubernetes takes as the name of a node.
pub(super) fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

/// A host name or an IPv4 address.
pub(crate) fn is_host(text: &str) -> bool {
    match text.parse::<IpAddr>() {
        Ok(address) => address.is_ipv4(),
        // Digits and dots only are a mistyped address, not a name.
        Err(_) => {
            is_dns_name(&text.to_ascii_lowercase())
                && !text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        }
    }
}

/// The part of a label's key after the prefix, and a label's value when not empty.
fn is_label_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

/// `name` or `prefix/name`, as Kubernetes takes for labels and taints.
pub(super) fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_name(prefix) && is_label_name(name),
        None => is_label_name(text),
    }
}

/// Empty, or at most 63 letters, digits, `-`, `_` and `.`.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_label_name(text)
}

/// What may follow `--` in a flag.
pub(super) fn is_flag_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Loosely, an image reference: no spaces, no scheme, a name before the tag.
pub(super) fn is_image(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !text.contains("://")
        && text.bytes().all(|b| {
            b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b':' | b'@')
        })
}

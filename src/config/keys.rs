//! The keys of `cluster.yml` as a table, for the documentation. Pure.

use super::schema::{Answer, Below, Key, ROOT};

/// One key, as the reference shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Where it stands: `nodes[]`; empty at the top level.
    pub section: String,
    /// `address`.
    pub name: &'static str,
    /// What may stand under it.
    pub kind: &'static str,
    /// What RKE takes when it is not set; empty when that is nothing.
    pub default: &'static str,
    /// Whether its value is never shown.
    pub secret: bool,
    /// Whether only a reference to a Secret may stand in its place in an object.
    pub by_reference: bool,
    /// What is done with it.
    pub support: Support,
    /// What it is for.
    pub doc: &'static str,
}

/// What is done with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// It works.
    Works,
    /// Any value is accepted, all have the same effect; why.
    Same(&'static str),
    /// It has no effect, and a warning says so; what to do instead.
    Ignored(&'static str),
    /// Only nothing, or RKE's default: the rest is not supported yet.
    Later,
    /// Only nothing, or RKE's default; what to do instead.
    Refused(&'static str),
    /// Only null; what to do instead.
    Never(&'static str),
}

/// Every key of RKE's schema, in the schema's order. What stands below a key that is not
/// supported at all is one row.
pub fn keys() -> Vec<KeyRow> {
    let mut rows = Vec::new();
    walk("", ROOT, &mut rows);
    rows
}

fn walk(section: &str, keys: &[Key], rows: &mut Vec<KeyRow>) {
    let mut below = Vec::new();
    for key in keys {
        let looked_into = matches!(key.answer, Answer::Used);
        match key.kind.below() {
            Below::Section(keys) if looked_into => below.push((key.name.to_owned(), keys)),
            Below::Each(keys) if looked_into => below.push((format!("{}[]", key.name), keys)),
            Below::Section(_) | Below::Each(_) | Below::Nothing => rows.push(row(section, key)),
        }
    }
    for (name, keys) in below {
        let path = if section.is_empty() {
            name
        } else {
            format!("{section}.{name}")
        };
        walk(&path, keys, rows);
    }
}

/// The row of one key.
pub(super) fn row(section: &str, key: &Key) -> KeyRow {
    KeyRow {
        section: section.to_owned(),
        name: key.name,
        kind: key.type_name(),
        default: key.default,
        secret: key.secret,
        by_reference: key.by_reference,
        support: match key.answer {
            Answer::Used => Support::Works,
            Answer::Same(why) => Support::Same(why),
            Answer::Ignored(instead) => Support::Ignored(instead),
            Answer::Later => Support::Later,
            Answer::Refused(instead) => Support::Refused(instead),
            Answer::Never(instead) => Support::Never(instead),
        },
        doc: key.doc,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_works_and_what_does_not() {
        let rows = keys();
        let of = |section: &str, name: &str| {
            let mut rows = rows.iter();
            let row = rows.find(|row| (row.section.as_str(), row.name) == (section, name));
            row.map(|row| row.support.clone())
        };
        assert_eq!(of("nodes[]", "address"), Some(Support::Works));
        assert_eq!(of("", "prefix_path"), Some(Support::Later));
        assert_eq!(of("ingress", "provider"), Some(Support::Works));
        assert_eq!(of("", "no_such_key"), None);
    }
}

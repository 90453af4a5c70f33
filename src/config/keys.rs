//! The keys of `cluster.yml` as a table, for the documentation. Pure.

use super::schema::{Key, ROOT, Shape};

/// One key, and what may stand in it today.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// `nodes[].address`.
    pub path: String,
    /// What may stand in it.
    pub support: Support,
}

/// What may stand in a key today.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// It works.
    Works,
    /// Only nothing, or one of these values (RKE's default).
    Default(&'static [&'static str]),
    /// Only null: its mere presence is an order to RKE.
    Never,
}

/// Every key of RKE's schema, in the schema's order. What stands below a key that is not
/// supported at all is one row.
pub fn keys() -> Vec<KeyRow> {
    let mut rows = Vec::new();
    walk("", ROOT, &mut rows);
    rows
}

fn walk(above: &str, keys: &[Key], rows: &mut Vec<KeyRow>) {
    for key in keys {
        let path = if above.is_empty() {
            key.name.to_owned()
        } else {
            format!("{above}.{}", key.name)
        };
        let support = match key.shape {
            Shape::Read => Support::Works,
            Shape::Later(values) => Support::Default(values),
            Shape::LaterMap(_) => Support::Default(&[]),
            Shape::Never => Support::Never,
            Shape::Map(below) => {
                walk(&path, below, rows);
                continue;
            }
            Shape::Each(below) => {
                walk(&format!("{path}[]"), below, rows);
                continue;
            }
        };
        rows.push(KeyRow { path, support });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_works_and_what_does_not() {
        let rows = keys();
        let of = |path: &str| {
            let row = rows.iter().find(|row| row.path == path);
            row.map(|row| row.support.clone())
        };
        assert_eq!(of("nodes[].address"), Some(Support::Works));
        assert_eq!(of("authorization.mode"), Some(Support::Default(&["rbac"])));
        assert_eq!(of("no_such_key"), None);
    }
}

//! What a key of `cluster.yml` is, for the person who asks by its name. Pure.

use super::{
    keys::{KeyRow, row},
    schema::{Below, Key, ROOT},
    validate::nearest,
};

/// An answer about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explained {
    /// The keys at the top level, for one who names none.
    Top(Vec<KeyRow>),
    /// A key with a value.
    Key(KeyRow),
    /// A key with keys below it.
    Section(KeyRow, Vec<KeyRow>),
    /// There is no such key.
    Unknown {
        /// Those that may be meant, by their whole names.
        near: Vec<String>,
        /// The section that it would be in, as far as there is one: `nodes[]`; empty at the top level.
        section: String,
        /// The keys of that section.
        keys: Vec<&'static str>,
    },
}

/// Explains the key of a name as it is written in messages: `nodes[0].role`, `services.kube-api`.
/// The number, and `[]`, may be left out.
pub fn explain(name: &str) -> Explained {
    let name = plain(name);
    if name.is_empty() {
        return Explained::Top(ROOT.iter().map(|key| row("", key)).collect());
    }
    let all = all();
    if let Some((_, explained)) = all.iter().find(|(path, _)| plain(path) == name) {
        return explained.clone();
    }
    let ends_so = |path: &&str| path.rsplit('.').next() == Some(name.as_str());
    let paths = || all.iter().map(|(path, _)| path.as_str());
    let same_end: Vec<String> = paths().filter(ends_so).map(str::to_owned).collect();
    let near = if same_end.is_empty() {
        near(&name, &all)
    } else {
        same_end
    };
    let (section, keys) = around(&name, &all);
    Explained::Unknown {
        near,
        section,
        keys,
    }
}

/// The innermost section of a name that there is, and its keys.
fn around(name: &str, all: &[(String, Explained)]) -> (String, Vec<&'static str>) {
    let mut rest = name;
    while let Some((outer, _)) = rest.rsplit_once('.') {
        rest = outer;
        for (path, explained) in all.iter().filter(|(path, _)| plain(path) == rest) {
            if let Explained::Section(_, below) = explained {
                return (path.clone(), below.iter().map(|key| key.name).collect());
            }
        }
    }
    (String::new(), ROOT.iter().map(|key| key.name).collect())
}

/// Every name that [`explain`] knows, without `[]`, in the order of the schema.
pub fn explained_names() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (path, _) in all() {
        let name = plain(&path);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The keys that were probably meant: of the section as far as it is known, else by the last name.
fn near(name: &str, all: &[(String, Explained)]) -> Vec<String> {
    let paths = || all.iter().map(|(path, _)| path.as_str());
    if let Some(path) = nearest(name, paths()) {
        return vec![path.to_owned()];
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    let ends = paths().filter_map(|path| path.rsplit('.').next());
    let Some(end) = nearest(last, ends) else {
        return Vec::new();
    };
    let with_end = paths().filter(|path| path.rsplit('.').next() == Some(end));
    with_end.map(str::to_owned).collect()
}

/// Without the numbers of list items.
fn plain(name: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in name.trim().chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ if inside => {}
            c => text.push(c),
        }
    }
    text
}

fn all() -> Vec<(String, Explained)> {
    let mut found = Vec::new();
    walk("", ROOT, &mut found);
    found
}

fn walk(section: &str, keys: &'static [Key], found: &mut Vec<(String, Explained)>) {
    for key in keys {
        let path = if section.is_empty() {
            key.name.to_owned()
        } else {
            format!("{section}.{}", key.name)
        };
        let own = row(section, key);
        match key.kind.below() {
            Below::Nothing => found.push((path, Explained::Key(own))),
            Below::Section(below) | Below::Each(below) => {
                let list = matches!(key.kind.below(), Below::Each(_));
                let inner = if list {
                    format!("{path}[]")
                } else {
                    path.clone()
                };
                let rows = below.iter().map(|key| row(&inner, key)).collect();
                found.push((path, Explained::Section(own, rows)));
                walk(&inner, below, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Support;

    #[test]
    fn a_key_is_found_by_its_name_as_messages_have_it() {
        for name in ["nodes.address", "nodes[].address", "nodes[3].address"] {
            let Explained::Key(row) = explain(name) else {
                panic!("{name}");
            };
            assert_eq!((row.section.as_str(), row.name), ("nodes[]", "address"));
            assert_eq!(row.support, Support::Works);
        }
        let Explained::Section(row, below) = explain("services.kube-api") else {
            panic!("a section");
        };
        assert_eq!(row.name, "kube-api");
        assert!(below.iter().any(|key| key.name == "audit_log"));
    }

    #[test]
    fn similar_keys_are_suggested() {
        let near = |name: &str| match explain(name) {
            Explained::Unknown { near, .. } => near.join(" "),
            other @ (Explained::Top(_) | Explained::Key(_) | Explained::Section(..)) => {
                panic!("{other:?}")
            }
        };
        assert_eq!(near("node.adress"), "nodes[].address");
        assert_eq!(near("services.kubeapi"), "services.kube-api");
        assert_eq!(
            near("service_node_port_range"),
            "services.kube-api.service_node_port_range"
        );
        assert!(near("extra_args").contains("services.kubelet.extra_args"));
        assert_eq!(near("nothing_like_it_at_all"), "");
        let around = |name: &str| match explain(name) {
            Explained::Unknown { section, keys, .. } => (section, keys.contains(&"user")),
            other @ (Explained::Top(_) | Explained::Key(_) | Explained::Section(..)) => {
                panic!("{other:?}")
            }
        };
        assert_eq!(around("nodes[0].foo.bar"), ("nodes".to_owned(), true));
        assert_eq!(around("foo.user"), (String::new(), false));
    }
}

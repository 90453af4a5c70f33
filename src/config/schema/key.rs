//! One row of RKE's schema: a key, its type, its default, and what this program does with it.
//! Pure data.

use crate::model::go_duration;

/// A key of `cluster.yml`.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Key {
    pub(in crate::config) name: &'static str,
    pub(in crate::config) kind: Kind,
    /// What RKE takes when the key is not set; empty when that is nothing.
    pub(in crate::config) default: &'static str,
    /// Every permitted value of the key or of its items; empty if the value is not one of a fixed set.
    pub(in crate::config) words: &'static [&'static str],
    /// Other ways to write the default.
    pub(in crate::config) also: &'static [&'static str],
    /// The value is a password, a private key or the like, or may hold one: it is never shown.
    pub(in crate::config) secret: bool,
    /// The value is a password or a private key: in an object only a reference to a Secret may stand here.
    pub(in crate::config) by_reference: bool,
    /// What an object's schema bounds.
    pub(in crate::config) bounds: Bounds,
    /// Of a section, in whose place a list of sections may stand in a file: their keys. An object has no list there.
    pub(in crate::config) as_list: Option<&'static [Self]>,
    pub(in crate::config) answer: Answer,
    /// One line of documentation.
    pub(in crate::config) doc: &'static str,
}

/// Bounds of a value in an object, where the API server checks them.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Bounds {
    /// Of a list: how many items at least.
    pub(in crate::config) least: u32,
    /// Of a list or a mapping: how many at most. Of a text: how many characters, and nothing but a text, no number and
    /// no bool, can be a value. 0: not bounded.
    pub(in crate::config) most: u32,
    /// What a text looks like; empty: anything.
    pub(in crate::config) pattern: &'static str,
    /// Of a list of sections: the key by whose value its items are known.
    pub(in crate::config) by: &'static str,
}

/// What may stand under a key.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) enum Kind {
    Text,
    Bool,
    Number,
    /// As Go writes it: `12h`, `90m`.
    Duration,
    /// A list of texts.
    List,
    /// Texts by name. The names are the user's: an entry means something even if its text is empty.
    Map,
    /// Something that is not looked into: a manifest, a Kubernetes object.
    Any,
    /// A mapping with these keys.
    Section(&'static [Key]),
    /// A list of mappings with these keys.
    Each(&'static [Key]),
}

/// The keys that stand below a key.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) enum Below {
    /// In its mapping.
    Section(&'static [Key]),
    /// In each mapping of its list.
    Each(&'static [Key]),
    /// None that the schema names.
    Nothing,
}

impl Kind {
    /// Where a walk over the schema goes on.
    pub(in crate::config) const fn below(self) -> Below {
        match self {
            Self::Section(keys) => Below::Section(keys),
            Self::Each(keys) => Below::Each(keys),
            Self::Text
            | Self::Bool
            | Self::Number
            | Self::Duration
            | Self::List
            | Self::Map
            | Self::Any => Below::Nothing,
        }
    }
}

/// What is done with a key that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Answer {
    /// `resolve` reads it. Of a section: its keys are read.
    Used,
    /// Every value has the same effect here; why.
    Same(&'static str),
    /// It has no effect, as in RKE 1.6, and a warning says so; what to do instead.
    Ignored(&'static str),
    /// Not supported yet: only RKE's default may stand here. Of a section: one problem for all of it.
    Later,
    /// It will not be supported, or not in this form: only RKE's default may stand here; what to
    /// do instead.
    Refused(&'static str),
    /// Its mere presence makes RKE do something once: only null may stand here; what to do instead.
    Never(&'static str),
}

const fn key(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key {
        name,
        kind,
        default: "",
        words: &[],
        also: &[],
        secret: false,
        by_reference: false,
        bounds: Bounds {
            least: 0,
            most: 0,
            pattern: "",
            by: "",
        },
        as_list: None,
        answer: Answer::Later,
        doc,
    }
}

pub(super) const fn text(name: &'static str, doc: &'static str) -> Key {
    key(name, Kind::Text, doc)
}

/// RKE's default of a flag is `false` unless said otherwise.
pub(super) const fn flag(name: &'static str, doc: &'static str) -> Key {
    key(name, Kind::Bool, doc).default("false")
}

pub(super) const fn number(name: &'static str, doc: &'static str) -> Key {
    key(name, Kind::Number, doc)
}

pub(super) const fn duration(name: &'static str, doc: &'static str) -> Key {
    key(name, Kind::Duration, doc)
}

pub(super) const fn list(name: &'static str, doc: &'static str) -> Key {
    key(name, Kind::List, doc)
}

pub(super) const fn map(name: &'static str, doc: &'static str) -> Key {
    key(name, Kind::Map, doc)
}

pub(super) const fn any(name: &'static str, doc: &'static str) -> Key {
    key(name, Kind::Any, doc)
}

/// A section whose keys are answered one by one.
pub(super) const fn section(name: &'static str, doc: &'static str, keys: &'static [Key]) -> Key {
    key(name, Kind::Section(keys), doc).used()
}

/// A section that is not supported yet as a whole.
pub(super) const fn later_section(
    name: &'static str,
    doc: &'static str,
    keys: &'static [Key],
) -> Key {
    key(name, Kind::Section(keys), doc)
}

pub(super) const fn each(name: &'static str, doc: &'static str, keys: &'static [Key]) -> Key {
    key(name, Kind::Each(keys), doc)
}

impl Key {
    pub(super) const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    pub(super) const fn words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }

    pub(super) const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    pub(super) const fn secret(self) -> Self {
        Self {
            secret: true,
            ..self
        }
    }

    pub(super) const fn by_reference(self) -> Self {
        Self {
            by_reference: true,
            ..self.secret()
        }
    }

    pub(super) const fn most(mut self, most: u32) -> Self {
        self.bounds.most = most;
        self
    }

    pub(super) const fn pattern(mut self, pattern: &'static str) -> Self {
        self.bounds.pattern = pattern;
        self
    }

    pub(super) const fn known_by(mut self, key: &'static str, least: u32) -> Self {
        self.bounds.by = key;
        self.bounds.least = least;
        self
    }

    pub(super) const fn or_list(self, keys: &'static [Self]) -> Self {
        Self {
            as_list: Some(keys),
            ..self
        }
    }

    pub(super) const fn used(self) -> Self {
        self.answer(Answer::Used)
    }

    pub(super) const fn same(self, why: &'static str) -> Self {
        self.answer(Answer::Same(why))
    }

    pub(super) const fn ignored(self, instead: &'static str) -> Self {
        self.answer(Answer::Ignored(instead))
    }

    pub(super) const fn refused(self, instead: &'static str) -> Self {
        self.answer(Answer::Refused(instead))
    }

    pub(super) const fn never(self, instead: &'static str) -> Self {
        self.answer(Answer::Never(instead))
    }

    const fn answer(self, answer: Answer) -> Self {
        Self { answer, ..self }
    }
}

impl Key {
    /// The type, for the reference.
    pub(in crate::config) const fn type_name(&self) -> &'static str {
        if self.as_list.is_some() {
            "section, or list of sections"
        } else {
            self.kind.name()
        }
    }
}

impl Kind {
    /// For the reference.
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Bool => "bool",
            Self::Number => "number",
            Self::Duration => "duration",
            Self::List => "list",
            Self::Map => "map",
            Self::Any => "YAML",
            Self::Section(_) => "section",
            Self::Each(_) => "list of sections",
        }
    }

    /// Whether a text is a value of this type, for those that one text can be.
    pub(in crate::config) fn reads(self, text: &str) -> bool {
        match self {
            Self::Bool => boolean(text).is_some(),
            Self::Number => number_of(text).is_some(),
            Self::Duration => go_duration(text).is_some(),
            Self::Text => true,
            Self::List | Self::Map | Self::Any | Self::Section(_) | Self::Each(_) => false,
        }
    }

    /// Whether two texts mean the same value of this type.
    pub(in crate::config) fn equal(self, one: &str, other: &str) -> bool {
        let same = match self {
            Self::Bool => boolean(one).zip(boolean(other)).map(|(a, b)| a == b),
            Self::Number => number_of(one).zip(number_of(other)).map(|(a, b)| a == b),
            Self::Duration => go_duration(one)
                .zip(go_duration(other))
                .map(|(a, b)| a == b),
            Self::Text | Self::List | Self::Map | Self::Any | Self::Section(_) | Self::Each(_) => {
                None
            }
        };
        same.unwrap_or_else(|| !other.is_empty() && one.eq_ignore_ascii_case(other))
    }
}

/// A YAML 1.1 bool, as Go's YAML reads it.
pub(in crate::config) fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Some(true),
        "false" | "no" | "off" | "n" => Some(false),
        _ => None,
    }
}

fn number_of(text: &str) -> Option<i64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_equal_however_they_are_written() {
        for (kind, one, other, equal) in [
            (Kind::Bool, "no", "false", true),
            (Kind::Bool, "On", "true", true),
            (Kind::Bool, "no", "true", false),
            (Kind::Number, "012", "12", true),
            (Kind::Duration, "720m", "12h", true),
            (Kind::Duration, "72h00m00s", "72h", true),
            (Kind::Duration, "1.5s", "1500ms", true),
            (Kind::Duration, "1d", "24h", false),
            (Kind::Duration, "", "12h", false),
            (Kind::Duration, "99999999999999999999h", "12h", false),
            (Kind::Text, "VXLAN", "vxlan", true),
            (Kind::Text, "", "", false),
        ] {
            assert_eq!(kind.equal(one, other), equal, "{one} and {other}");
        }
    }
}

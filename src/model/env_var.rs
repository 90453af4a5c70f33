//! A variable of a container's environment. Pure.

use serde::{Deserialize, Serialize};

use super::{Digest, Secret};

/// A variable. As text, in labels and plans, it is `NAME#` and a keyed digest of its value, never
/// the value: metrics and log shippers export labels, and a proxy's password may stand in one.
///
/// A label of an earlier release says `NAME=value`; that is another text, so such a container is
/// replaced once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Keyed digest of its value; `None` when an earlier release wrote the value itself.
    pub digest: Option<Digest>,
    /// Its value; `None` when it was read from a label.
    value: Option<Secret<String>>,
}

impl EnvVar {
    /// With a value.
    pub const fn new(name: String, value: Secret<String>, digest: Digest) -> Self {
        Self {
            name,
            digest: Some(digest),
            value: Some(value),
        }
    }

    /// `NAME=value`, as Docker takes it; `None` when the value is not known here.
    pub fn assignment(&self) -> Option<String> {
        let value = self.value.as_ref()?;
        Some(format!("{}={}", self.name, value.expose()))
    }

    /// Its value, where it is known here.
    pub fn value(&self) -> Option<&Secret<String>> {
        self.value.as_ref()
    }

    /// The same with the value of a container's `NAME=value`.
    #[must_use]
    pub fn with_value_of(self, assignment: &str) -> Self {
        let (_, value) = assignment.split_once('=').unwrap_or((assignment, ""));
        Self {
            value: Some(Secret::new(value.to_owned())),
            ..self
        }
    }

    /// True when a container's `NAME=value` can be this variable: the name is the same, and the
    /// value too where it is known.
    pub fn is(&self, assignment: &str) -> bool {
        let (name, value) = assignment.split_once('=').unwrap_or((assignment, ""));
        let same = |own: &Secret<String>| own.expose() == value;
        self.name == name && self.value.as_ref().is_none_or(same)
    }
}

/// Digests are compared, not values: one side may have been read from a label.
impl PartialEq for EnvVar {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.digest == other.digest
            && (self.digest.is_some() || self.value == other.value)
    }
}

impl Eq for EnvVar {}

impl From<EnvVar> for String {
    fn from(var: EnvVar) -> Self {
        let digest = var.digest.map(|digest| digest.0).unwrap_or_default();
        format!("{}#{digest}", var.name)
    }
}

impl From<String> for EnvVar {
    fn from(text: String) -> Self {
        if let Some((name, value)) = text.split_once('=') {
            return Self {
                name: name.to_owned(),
                digest: None,
                value: Some(Secret::new(value.to_owned())),
            };
        }
        let (name, digest) = text.split_once('#').unwrap_or((&text, ""));
        Self {
            name: name.to_owned(),
            digest: Some(Digest(digest.to_owned())),
            value: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_no_label() {
        let secret = Secret::new("http://user:hunter2@proxy".to_owned());
        let var = EnvVar::new("HTTPS_PROXY".to_owned(), secret, Digest("d1".to_owned()));
        let text = serde_json::to_string(&var).unwrap();
        assert_eq!(text, "\"HTTPS_PROXY#d1\"");
        assert!(!format!("{var:?}").contains("hunter2"));
        let label: EnvVar = serde_json::from_str(&text).unwrap();
        assert_eq!(label, var);
        assert_eq!(label.assignment(), None);
        assert_eq!(
            var.assignment().as_deref(),
            Some("HTTPS_PROXY=http://user:hunter2@proxy")
        );
        // Of an earlier release: the value is there, which is a difference, and is not written again.
        let old: EnvVar = "HTTPS_PROXY=http://user:hunter2@proxy".to_owned().into();
        assert_ne!(old, var);
        assert!(old.is("HTTPS_PROXY=http://user:hunter2@proxy") && !old.is("HTTPS_PROXY=other"));
        assert!(!String::from(old).contains("hunter2"));
    }
}

//! One field that differs. Pure.

use serde::{Deserialize, Serialize};

/// One field that differs. Values of files are keyed digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// `image`, `command --v`, `files /etc/kubernetes/ssl/kube-ca.pem`.
    pub field: String,
    /// `None`: was not there.
    pub from: Option<String>,
    /// `None`: goes away. What cannot be known before is `known after …`.
    pub to: Option<String>,
}

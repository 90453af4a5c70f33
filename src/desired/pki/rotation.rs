//! Good certificates that are re-created because a person asks for it. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{CertKind, cert::Validity};
use crate::model::Component;

/// A request to re-create certificates. A run re-creates each once, however often it plans: it keeps those that were made
/// since the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The time of the request.
    pub asked: Timestamp,
    /// Whose certificates; of all, the administrator included, where none is named.
    pub of: BTreeSet<Component>,
}

impl Rotation {
    /// True when a certificate of this kind is to be re-created.
    pub(super) fn takes(&self, kind: CertKind, validity: &Validity) -> bool {
        self.is_older(validity) && (self.of.is_empty() || self.of.contains(&kind.reader()))
    }

    /// True when the administrator's certificate is to be re-created.
    pub(super) fn takes_administrator(&self, validity: &Validity) -> bool {
        self.is_older(validity) && self.of.is_empty()
    }

    fn is_older(&self, validity: &Validity) -> bool {
        let made = validity.made();
        made.is_some_and(|made| made.as_second() < self.asked.as_second())
    }
}

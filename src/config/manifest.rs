//! What `addons` and `addons_include` ask for. Pure data.

use crate::model::{ObjectRef, Secret};

/// An object of the user's own manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Which. One that names no namespace is in `default`, unless its kind is known to have none.
    pub object: ObjectRef,
    /// What it is, as JSON: there may be passwords in it.
    pub text: Secret<String>,
}

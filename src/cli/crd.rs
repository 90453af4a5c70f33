//! `crd`: the custom resource definitions, for `kubectl apply -f -`.

use super::{
    print,
    report::{Failure, Trouble},
};

/// Runs it.
pub(super) fn crd() -> Result<u8, Trouble> {
    let yaml = crate::api::crds().map_err(|error| Failure::Write {
        what: "the definitions".to_owned(),
        source: std::io::Error::other(error),
    })?;
    print::data(&yaml)?;
    Ok(0)
}

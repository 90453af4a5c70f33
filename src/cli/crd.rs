//! `crd`: the custom resource definitions, for `kubectl apply -f -`.

use super::{
    print,
    report::{CliError, Failure},
};

/// Runs it.
pub(super) fn crd() -> Result<u8, CliError> {
    let yaml = crate::api::crds().map_err(|error| Failure::Write {
        what: "the definitions".to_owned(),
        source: std::io::Error::other(error),
    })?;
    print::data(&yaml)?;
    Ok(0)
}

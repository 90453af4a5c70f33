//! Certificates of the lab's own servers, by the machine's `openssl`.

use std::path::Path;

use crate::{LabError, cache::make_dir, command::Run};

/// Makes an authority (`ca.crt`, `ca.key`) and a server's certificate signed by it (`tls.crt`, `tls.key`) in a folder.
/// `names`: as `subjectAltName` has them.
pub(crate) fn make(dir: &Path, server: &str, names: &str) -> Result<(), LabError> {
    make_dir(dir)?;
    let request = |subject: &str, key: &str, certificate: &str| {
        Run::new("cannot make a certificate", "openssl")
            .dir(dir)
            .args(["req", "-x509", "-nodes", "-days", "3650", "-subj", subject])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-keyout", key, "-out", certificate])
    };
    request("/CN=rke lab", "ca.key", "ca.crt").done()?;
    request(&format!("/CN={server}"), "tls.key", "tls.crt")
        .args(["-CA", "ca.crt", "-CAkey", "ca.key"])
        .args(["-addext", &format!("subjectAltName={names}")])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .done()
}

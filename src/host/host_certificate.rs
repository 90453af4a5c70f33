//! A host certificate of OpenSSH that an authority on record signed: whether it is good for a name, now. Pure.

use jiff::Timestamp;
use russh::keys::{Algorithm, Certificate, HashAlg, ssh_key::certificate::CertType};

use crate::model::{printable, quoted};

/// Why a certificate is not good.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Flaw {
    /// It lets a user log in.
    #[error("it is the certificate of a user")]
    OfUser,
    /// It is for another name.
    #[error("it is for {}, not for `{wanted}`", quoted(.names))]
    Names {
        /// Those that it is for.
        names: Vec<String>,
        /// The one that is dialled.
        wanted: String,
    },
    /// OpenSSH takes that for every name, a mistake of who signed it.
    #[error("it names no host")]
    NoNames,
    /// Its time is to come.
    #[error("it is not valid before {0}")]
    NotYet(Timestamp),
    /// Its time is over.
    #[error("it expired on {0}")]
    Expired(Timestamp),
    /// It must not be used where these are not understood; a host's has none that are.
    #[error("it has critical options ({})", quoted(.0))]
    CriticalOptions(Vec<String>),
    /// With SHA-1, or with a kind of key that OpenSSH takes for no authority either.
    #[error("it is signed with `{0}`, which is too weak")]
    Weak(String),
    /// The authority did not sign this.
    #[error("its signature is not the authority's")]
    Signature,
}

/// Whether it is a host's, for this name, at this time, without conditions, and signed by the authority that it names.
/// That this authority is trusted, and not revoked, is for the caller to see.
pub(super) fn check(certificate: &Certificate, name: &str, now: Timestamp) -> Result<(), Flaw> {
    match certificate.cert_type() {
        CertType::Host => {}
        CertType::User => return Err(Flaw::OfUser),
    }
    let names = certificate.valid_principals();
    if names.is_empty() {
        return Err(Flaw::NoNames);
    }
    if !names.iter().any(|one| one.eq_ignore_ascii_case(name)) {
        let names = names.iter().map(|name| printable(name).into_owned());
        return Err(Flaw::Names {
            names: names.collect(),
            wanted: name.to_owned(),
        });
    }
    // Before 1970 it is no time for certificates.
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    if seconds < certificate.valid_after() {
        return Err(Flaw::NotYet(time(certificate.valid_after())));
    }
    if seconds >= certificate.valid_before() {
        return Err(Flaw::Expired(time(certificate.valid_before())));
    }
    let options = certificate.critical_options();
    if !options.is_empty() {
        let names = options.keys().map(|name| printable(name).into_owned());
        return Err(Flaw::CriticalOptions(names.collect()));
    }
    let algorithm = certificate.signature().algorithm();
    if !is_strong(&algorithm) {
        return Err(Flaw::Weak(printable(algorithm.as_str()).into_owned()));
    }
    let signer = certificate.signature_key().fingerprint(HashAlg::Sha256);
    let validated = certificate.validate_at(seconds, [&signer]);
    validated.map_err(|_| Flaw::Signature)
}

/// As `CASignatureAlgorithms` of OpenSSH.
fn is_strong(algorithm: &Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::Ed25519
            | Algorithm::Ecdsa { .. }
            | Algorithm::Rsa { hash: Some(_) }
            | Algorithm::SkEd25519
            | Algorithm::SkEcdsaSha2NistP256
    )
}

/// Times that are too far off to be written are the last that can be.
fn time(seconds: u64) -> Timestamp {
    let second = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
#[path = "host_certificate_tests.rs"]
pub(super) mod tests;

//! How a server and its client know each other. Pure.

use super::Secret;

/// Who a server must be, and who we are to it; all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The authorities that the server's certificate is verified with, and no others.
    pub ca: String,
    /// Our certificate.
    pub cert: String,
    /// Its key.
    pub key: Secret<String>,
}

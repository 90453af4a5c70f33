//! What the digests of contents are keyed with: one for the life of a cluster, whatever becomes of its other keys. Pure.

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use super::{Authority, ServiceAccounts};
use crate::model::{Digest, Secret};

/// The key of a cluster's digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestKey(Secret<[u8; 32]>);

impl DigestKey {
    /// A new cluster's.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(Secret::new(bytes))
    }

    /// The key that formats without one have used: it was derived from the key of the cluster's CA, or from that of the
    /// service accounts where a person keeps the CA's. Taken over as it is, so that no digest changes.
    pub fn of_former(cluster_ca: &Authority, accounts: &ServiceAccounts) -> Self {
        let signs = cluster_ca.signing.key.as_ref();
        let key = signs.unwrap_or(&accounts.signing).expose();
        Self::new(prf(key.as_bytes(), b"rke-operator: digests of contents"))
    }

    /// A keyed digest of some content: see [`Digest`].
    pub fn digest(&self, content: &[u8]) -> Digest {
        let mac = prf(self.0.expose(), content);
        Digest(mac.first_chunk::<16>().map(hex::encode).unwrap_or_default())
    }

    /// As a format writes it.
    pub(super) fn to_hex(&self) -> String {
        hex::encode(self.0.expose())
    }

    /// As [`Self::to_hex`] wrote it.
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let bytes = hex::decode(text).ok()?;
        Some(Self::new(bytes.try_into().ok()?))
    }
}

/// HMAC-SHA256.
fn prf(key: &[u8], message: &[u8]) -> [u8; 32] {
    // HMAC takes keys of every length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return [0; 32];
    };
    mac.update(message);
    mac.finalize().into_bytes().into()
}

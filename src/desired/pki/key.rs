//! ECDSA P-256 keys that come out of a seed. Pure.
//!
//! A key is a function of the run's seed and of the slot that it is for, and its signatures are
//! deterministic (RFC 6979): the same inputs give the same bytes, so `draw` stays a function.

use hmac::{Hmac, Mac};
use p256::{
    SecretKey,
    ecdsa::{Signature, SigningKey, signature::Signer},
    pkcs8::{DecodePrivateKey, EncodePrivateKey, EncodePublicKey, LineEnding},
};
use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::PkiError;
use crate::secret::Secret;

/// Fresh randomness of one run; everything new is derived from it.
#[derive(Clone)]
pub struct Seed(Secret<[u8; 32]>);

impl Seed {
    /// Takes the run's randomness.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(Secret::new(bytes))
    }

    /// 32 bytes for a slot. Other slots and other seeds give unrelated bytes.
    pub(super) fn derive(&self, slot: &str) -> Zeroizing<[u8; 32]> {
        prf(self.0.expose(), slot.as_bytes())
    }
}

/// HMAC-SHA256.
pub(super) fn prf(key: &[u8], data: &[u8]) -> Zeroizing<[u8; 32]> {
    // HMAC takes keys of any length: `new_from_slice` has no way to fail.
    Hmac::<Sha256>::new_from_slice(key).map_or_else(
        |_| Zeroizing::new([0; 32]),
        |mut mac| {
            mac.update(data);
            Zeroizing::new(mac.finalize().into_bytes().into())
        },
    )
}

/// A private key that can sign certificates.
pub(super) struct Key {
    signing: SigningKey,
    public: Vec<u8>,
}

impl Key {
    /// The key of a slot.
    pub(super) fn derive(seed: &Seed, slot: &str) -> Result<Self, PkiError> {
        // One draw in 2³² is not a scalar of the curve.
        (0..8)
            .find_map(|round| {
                let bytes = seed.derive(&format!("key {round} {slot}"));
                SecretKey::from_slice(bytes.as_slice()).ok()
            })
            .map(|secret| Self::from_secret(&secret))
            .ok_or_else(|| PkiError::internal(slot, "the seed gives no key"))
    }

    /// Reads a PKCS#8 PEM key.
    pub(super) fn from_pem(pem: &str) -> Option<Self> {
        SecretKey::from_pkcs8_pem(pem)
            .ok()
            .map(|secret| Self::from_secret(&secret))
    }

    fn from_secret(secret: &SecretKey) -> Self {
        Self {
            signing: SigningKey::from(secret),
            public: secret.public_key().to_sec1_bytes().into_vec(),
        }
    }

    /// PKCS#8 PEM.
    pub(super) fn to_pem(&self, slot: &str) -> Result<Secret<String>, PkiError> {
        SecretKey::from(&self.signing)
            .to_pkcs8_pem(LineEnding::LF)
            .map(|pem| Secret::new(pem.as_str().to_owned()))
            .map_err(|error| PkiError::internal(slot, error))
    }

    /// The public half, PKIX PEM: what verifies tokens must not hold what signs them, and the
    /// API server reads no PKCS#8 key for a public one.
    pub(super) fn public_pem(&self, slot: &str) -> Result<String, PkiError> {
        SecretKey::from(&self.signing)
            .public_key()
            .to_public_key_pem(LineEnding::LF)
            .map_err(|error| PkiError::internal(slot, error))
    }

    /// The public point, uncompressed, as it stands in a certificate.
    pub(super) fn public(&self) -> &[u8] {
        &self.public
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for Key {
    fn sign(&self, msg: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature: Signature = self
            .signing
            .try_sign(msg)
            .map_err(|_| rcgen::Error::RemoteKeyError)?;
        Ok(signature.to_der().as_bytes().to_vec())
    }
}

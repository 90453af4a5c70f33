//! Keys: ECDSA P-256 out of a seed, and those of adopted clusters, which are RSA. Pure.
//!
//! A key is a function of the run's seed and of the slot that it is for, and its signatures are
//! deterministic (RFC 6979): the same inputs give the same bytes, so `Desired::from_intent` stays a function.

use std::sync::OnceLock;

use hmac::{Hmac, Mac};
use p256::{
    SecretKey,
    ecdsa::{Signature, SigningKey, signature::Signer as _},
    pkcs8::{DecodePrivateKey, EncodePrivateKey, LineEnding, der::Document},
};
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, PublicKeyData, SignatureAlgorithm};
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use sha2::Sha256;
use x509_parser::pem::Pem;
use zeroize::Zeroizing;

use super::PkiError;
use crate::model::Secret;

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

/// A private key that can sign certificates: one that we made (P-256), or one of an adopted
/// cluster (RKE's are RSA).
pub(super) struct Key {
    signer: Signer,
    public: Vec<u8>,
}

enum Signer {
    P256(SigningKey),
    /// In PKCS#8, checked by ring. Most keys are only compared with a certificate, and p256 takes much longer to read
    /// one: it reads a key when the key is to sign.
    Checked(Zeroizing<Vec<u8>>, OnceLock<Option<SigningKey>>),
    Rsa(Box<RsaKeyPair>),
}

impl Signer {
    fn p256(&self) -> Option<&SigningKey> {
        match self {
            Self::P256(signing) => Some(signing),
            Self::Checked(der, signing) => signing
                .get_or_init(|| SigningKey::from_pkcs8_der(der).ok())
                .as_ref(),
            Self::Rsa(_) => None,
        }
    }
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
            .map(|secret| Self::p256(&secret))
            .ok_or_else(|| PkiError::internal(slot, "the seed gives no key"))
    }

    /// Reads a key in PEM: P-256 in PKCS#8 or SEC1, RSA of at least 2048 bits in PKCS#8 or PKCS#1.
    pub(super) fn from_pem(pem: &str) -> Option<Self> {
        let block = Pem::iter_from_buffer(pem.as_bytes()).next()?.ok()?;
        let der = Zeroizing::new(block.contents);
        match block.label.as_str() {
            "PRIVATE KEY" => Self::checked(&der)
                .or_else(|| Some(Self::p256(&SecretKey::from_pkcs8_der(&der).ok()?)))
                .or_else(|| RsaKeyPair::from_pkcs8(&der).ok().map(Self::rsa)),
            "EC PRIVATE KEY" => SecretKey::from_sec1_der(&der)
                .ok()
                .map(|secret| Self::p256(&secret)),
            "RSA PRIVATE KEY" => RsaKeyPair::from_der(&der).ok().map(Self::rsa),
            _ => None,
        }
    }

    /// A P-256 key that contains its public half, as ours do. ring asks for randomness for its own signatures, which
    /// are not used.
    fn checked(der: &Zeroizing<Vec<u8>>) -> Option<Self> {
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, der, &SystemRandom::new()).ok()?;
        Some(Self {
            public: pair.public_key().as_ref().to_vec(),
            signer: Signer::Checked(der.clone(), OnceLock::new()),
        })
    }

    fn p256(secret: &SecretKey) -> Self {
        let signing = SigningKey::from(secret);
        let point = signing.verifying_key().to_sec1_point(false);
        Self {
            public: point.as_bytes().to_vec(),
            signer: Signer::P256(signing),
        }
    }

    fn rsa(pair: RsaKeyPair) -> Self {
        Self {
            public: pair.public().as_ref().to_vec(),
            signer: Signer::Rsa(Box::new(pair)),
        }
    }

    /// PKCS#8 PEM. Only of keys that we make: what was read is kept as it was written.
    pub(super) fn to_pem(&self, slot: &str) -> Result<Secret<String>, PkiError> {
        let signing = self.signer.p256();
        let signing =
            signing.ok_or_else(|| PkiError::internal(slot, "an RSA key is kept as it is"))?;
        SecretKey::from(signing)
            .to_pkcs8_pem(LineEnding::LF)
            .map(|pem| Secret::new(pem.as_str().to_owned()))
            .map_err(|error| PkiError::internal(slot, error))
    }

    /// The public key, PKIX PEM: the file that verifies tokens must not contain the key that signs them, and the API
    /// server does not accept a PKCS#8 private key as a public key.
    pub(super) fn public_pem(&self, slot: &str) -> Result<String, PkiError> {
        Document::try_from(self.subject_public_key_info())
            .and_then(|info| info.to_pem("PUBLIC KEY", LineEnding::LF))
            .map_err(|error| PkiError::internal(slot, error))
    }

    /// The public key as it stands in a certificate: an uncompressed point, or PKCS#1.
    pub(super) fn public(&self) -> &[u8] {
        &self.public
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self.signer {
            Signer::P256(_) | Signer::Checked(..) => &PKCS_ECDSA_P256_SHA256,
            Signer::Rsa(_) => &PKCS_RSA_SHA256,
        }
    }
}

impl rcgen::SigningKey for Key {
    fn sign(&self, msg: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        match &self.signer {
            Signer::P256(_) | Signer::Checked(..) => {
                let signing = self.signer.p256();
                let signature: Signature = signing
                    .and_then(|signing| signing.try_sign(msg).ok())
                    .ok_or(rcgen::Error::RemoteKeyError)?;
                Ok(signature.to_der().as_bytes().to_vec())
            }
            Signer::Rsa(pair) => {
                // The randomness blinds the computation; the signature does not depend on it.
                let random = SystemRandom::new();
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, msg, &mut signature)
                    .map_err(|_| rcgen::Error::RemoteKeyError)?;
                Ok(signature)
            }
        }
    }
}

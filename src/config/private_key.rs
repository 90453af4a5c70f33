//! Private keys in the formats of their files: recognises the format, and decrypts keys that have a passphrase. Pure.
//!
//! `russh` reads the formats. It takes every key in the oldest one (`DEK-Info`, as `ssh-keygen -m PEM` encrypts) for an
//! RSA key with AES-128, so that format is decrypted here.

use aes::{Aes128, Aes192, Aes256};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cbc::{
    Decryptor,
    cipher::{BlockModeDecrypt, KeyIvInit, block_padding::Pkcs7},
};
use des::TdesEde3;
use p256::pkcs8;
use russh::keys::{
    Error as KeyError, PrivateKey, decode_secret_key,
    ssh_key::{self, Algorithm, LineEnding},
};
use zeroize::Zeroizing;

use crate::model::Secret;

/// What a text in the place of a private key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A private key without a passphrase.
    Usable,
    /// The public half.
    Public,
    /// A private key with a passphrase.
    Encrypted,
    /// The same, encrypted in a way that is not supported.
    Locked,
    /// What `ssh` needs to use a key on a security token (FIDO); the key itself never leaves the token.
    Token,
    /// A DSA key.
    Dsa,
    /// Damaged, or of another kind that is not supported.
    Broken,
    /// A key in the format of `PuTTY` that cannot be read.
    Putty,
    /// All in one line, or with `\n` as it is written.
    OneLine,
    /// Something else.
    Other,
}

/// True for a key with a passphrase, which must be decrypted, or be in an agent.
pub fn has_passphrase(pem: &Secret<String>) -> bool {
    match kind(pem) {
        Kind::Encrypted | Kind::Locked => true,
        Kind::Usable
        | Kind::Public
        | Kind::Token
        | Kind::Dsa
        | Kind::Broken
        | Kind::Putty
        | Kind::OneLine
        | Kind::Other => false,
    }
}

/// True for a key that only an agent can use: it is on a security token.
pub fn needs_agent(pem: &Secret<String>) -> bool {
    kind(pem) == Kind::Token
}

/// Why a key was not decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUnlocked {
    /// The passphrase is another one.
    Wrong,
    /// The passphrase may be right: the encryption, or the key within, is not supported, or the file is damaged.
    Unreadable,
}

/// Decrypts a key: the same key in OpenSSH's format, without a passphrase.
pub fn unlock(
    pem: &Secret<String>,
    passphrase: &Secret<String>,
) -> Result<Secret<String>, NotUnlocked> {
    let (text, passphrase) = (pem.expose(), passphrase.expose());
    let key = if let Some(old) = OldPem::parse(text) {
        let plain = old.decrypt(passphrase)?;
        decode_secret_key(plain.expose(), None).map_err(|_| NotUnlocked::Unreadable)?
    } else if let Ok(key) = PrivateKey::from_openssh(text.trim()) {
        let is_wrong = |error| matches!(error, ssh_key::Error::Crypto);
        key.decrypt(passphrase).map_err(|error| {
            if is_wrong(error) {
                NotUnlocked::Wrong
            } else {
                NotUnlocked::Unreadable
            }
        })?
    } else {
        decode_secret_key(text, Some(passphrase)).map_err(|error| not_unlocked(&error))?
    };
    let plain = key.to_openssh(LineEnding::LF);
    let plain = plain.map_err(|_| NotUnlocked::Unreadable)?;
    Ok(Secret::new(plain.as_str().to_owned()))
}

/// Of a key in PKCS#8: a wrong passphrase fails to decrypt, or, once in 256 times, decrypts to what is no key.
fn not_unlocked(error: &KeyError) -> NotUnlocked {
    use pkcs8::{Error, pkcs5::Error::DecryptFailed};
    if matches!(
        error,
        KeyError::Pkcs8(Error::EncryptedPrivateKey(DecryptFailed) | Error::Asn1(_))
    ) {
        NotUnlocked::Wrong
    } else {
        NotUnlocked::Unreadable
    }
}

/// The kind of key that a text contains.
pub(super) fn kind(pem: &Secret<String>) -> Kind {
    let text = pem.expose().trim();
    let putty = text.starts_with("PuTTY-User-Key-File-");
    let begin = |line: &str| line.starts_with("-----BEGIN ") && line.contains("PRIVATE KEY-----");
    if !putty && !text.lines().any(begin) {
        return not_private(text);
    }
    if text.contains("-----BEGIN DSA PRIVATE KEY-----") {
        return Kind::Dsa;
    }
    if let Some(old) = OldPem::parse(text) {
        return if old.cipher.is_some() {
            Kind::Encrypted
        } else {
            Kind::Locked
        };
    }
    // The header says so in the old formats, whose decoders give unclear errors (libraries differ).
    if text
        .lines()
        .any(|line| line.contains("ENCRYPTED") && !line.starts_with("Comment:"))
    {
        return Kind::Encrypted;
    }
    if let Ok(key) = PrivateKey::from_openssh(text) {
        return of_openssh(&key);
    }
    match decode_secret_key(text, None) {
        Ok(_) => Kind::Usable,
        Err(KeyError::KeyIsEncrypted) => Kind::Encrypted,
        Err(_) if putty => Kind::Putty,
        Err(_) if text.lines().count() < 3 || text.contains("\\n") => Kind::OneLine,
        Err(_) if is_dsa(text) => Kind::Dsa,
        Err(_) => Kind::Broken,
    }
}

fn not_private(text: &str) -> Kind {
    let public = [
        "ssh-",
        "ecdsa-",
        "sk-ssh-",
        "sk-ecdsa-",
        "-----BEGIN PUBLIC KEY",
        "---- BEGIN SSH2 PUBLIC",
    ];
    if public.iter().any(|prefix| text.starts_with(prefix)) {
        Kind::Public
    } else {
        Kind::Other
    }
}

/// The public half stands in it in the clear.
fn of_openssh(key: &PrivateKey) -> Kind {
    let algorithm = key.algorithm();
    if matches!(
        algorithm,
        Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256
    ) {
        Kind::Token
    } else if algorithm == Algorithm::Dsa {
        Kind::Dsa
    } else if key.is_encrypted() {
        Kind::Encrypted
    } else {
        Kind::Usable
    }
}

/// OpenSSH's format, or PKCS#8.
fn is_dsa(text: &str) -> bool {
    /// 1.2.840.10040.4.1 in DER.
    const OID: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01];
    let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let der = Zeroizing::new(STANDARD.decode(body).unwrap_or_default());
    [&b"\0\0\0\x07ssh-dss"[..], OID]
        .iter()
        .any(|mark| der.windows(mark.len()).any(|window| window == *mark))
}

/// How the oldest format is encrypted.
#[derive(Clone, Copy)]
enum OldCipher {
    Aes128,
    Aes192,
    Aes256,
    Tdes,
}

/// A key with `Proc-Type: 4,ENCRYPTED`.
struct OldPem<'a> {
    /// `EC PRIVATE KEY`.
    label: &'a str,
    /// `None`: it is not supported, or not understood.
    cipher: Option<(OldCipher, Vec<u8>)>,
    body: String,
}

impl<'a> OldPem<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim);
        let label = lines.find_map(|line| line.strip_prefix("-----BEGIN "))?;
        let label = label.strip_suffix("-----")?;
        let (headers, body): (Vec<&str>, Vec<&str>) = lines
            .take_while(|line| !line.starts_with("-----END "))
            .filter(|line| !line.is_empty())
            .partition(|line| line.contains(':'));
        let value = |name: &str| {
            let mut named = headers.iter().filter_map(|line| line.split_once(':'));
            let found = named.find(|(key, _)| *key == name);
            found.map(|(_, value)| value.trim())
        };
        value("Proc-Type").filter(|value| value.ends_with("ENCRYPTED"))?;
        Some(Self {
            label,
            cipher: value("DEK-Info").and_then(OldCipher::parse),
            body: body.concat(),
        })
    }

    /// The same without encryption.
    fn decrypt(&self, passphrase: &str) -> Result<Secret<String>, NotUnlocked> {
        let (cipher, iv) = self.cipher.as_ref().ok_or(NotUnlocked::Unreadable)?;
        let data = STANDARD.decode(&self.body);
        let data = data.map_err(|_| NotUnlocked::Unreadable)?;
        let plain = cipher.decrypt(passphrase, iv, &data)?;
        let body = Zeroizing::new(STANDARD.encode(&*plain));
        let label = self.label;
        Ok(Secret::new(format!(
            "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
            *body
        )))
    }
}

impl OldCipher {
    /// `AES-128-CBC,` and the initialization vector in hexadecimal digits.
    fn parse(info: &str) -> Option<(Self, Vec<u8>)> {
        let (name, digits) = info.split_once(',')?;
        let (cipher, length) = match name.trim() {
            "AES-128-CBC" => (Self::Aes128, 16),
            "AES-192-CBC" => (Self::Aes192, 16),
            "AES-256-CBC" => (Self::Aes256, 16),
            "DES-EDE3-CBC" => (Self::Tdes, 8),
            _ => return None,
        };
        let iv = hex::decode(digits.trim()).ok()?;
        (iv.len() == length).then_some((cipher, iv))
    }

    const fn key_length(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes192 | Self::Tdes => 24,
            Self::Aes256 => 32,
        }
    }

    /// The DER within. A wrong passphrase leaves a wrong padding, or, once in 256 times, what is no DER.
    fn decrypt(
        self,
        passphrase: &str,
        iv: &[u8],
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, NotUnlocked> {
        let key = derived(passphrase.as_bytes(), iv, self.key_length());
        let plain = match self {
            Self::Aes128 => decrypted::<Decryptor<Aes128>>(&key, iv, data),
            Self::Aes192 => decrypted::<Decryptor<Aes192>>(&key, iv, data),
            Self::Aes256 => decrypted::<Decryptor<Aes256>>(&key, iv, data),
            Self::Tdes => decrypted::<Decryptor<TdesEde3>>(&key, iv, data),
        };
        plain
            .filter(|plain| is_der_sequence(plain))
            .ok_or(NotUnlocked::Wrong)
    }
}

fn decrypted<D: KeyIvInit + BlockModeDecrypt>(
    key: &[u8],
    iv: &[u8],
    data: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let cipher = D::new_from_slices(key, iv).ok()?;
    let mut plain = Zeroizing::new(data.to_vec());
    let length = cipher.decrypt_padded::<Pkcs7>(&mut plain).ok()?.len();
    plain.truncate(length);
    Some(plain)
}

/// As OpenSSL derives it (`EVP_BytesToKey`): MD5, once; the salt is the start of the vector.
fn derived(passphrase: &[u8], iv: &[u8], length: usize) -> Zeroizing<Vec<u8>> {
    let salt = &iv[..iv.len().min(8)];
    let mut key = Zeroizing::new(Vec::with_capacity(length + 16));
    let mut last: Option<Zeroizing<[u8; 16]>> = None;
    while key.len() < length {
        let mut digest = md5::Context::new();
        if let Some(last) = &last {
            digest.consume(**last);
        }
        digest.consume(passphrase);
        digest.consume(salt);
        let block = Zeroizing::new(digest.finalize().0);
        key.extend_from_slice(&*block);
        last = Some(block);
    }
    key.truncate(length);
    key
}

/// One sequence that is as long as it says.
fn is_der_sequence(der: &[u8]) -> bool {
    let (Some(0x30), Some(&first)) = (der.first(), der.get(1)) else {
        return false;
    };
    let first = usize::from(first);
    if first < 0x80 {
        return der.len() == 2 + first;
    }
    let bytes = first - 0x80;
    let Some(digits) = der.get(2..2 + bytes).filter(|_| (1..=3).contains(&bytes)) else {
        return false;
    };
    let length = digits
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    der.len() == 2 + bytes + length
}

#[cfg(test)]
#[path = "private_key_tests.rs"]
mod tests;

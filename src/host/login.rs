//! The private key of a login.

use russh::keys::{Error as KeysError, PrivateKey, decode_secret_key};
use zeroize::Zeroizing;

use super::error::KeyProblem;
use crate::secret::Secret;

/// Reads a private key in any format that OpenSSH writes. Passphrases are not supported.
pub(super) fn private_key(text: &Secret<String>) -> Result<PrivateKey, KeyProblem> {
    // Keys that were pasted into YAML may be indented or end lines with CR LF.
    let mut clean = Zeroizing::new(String::with_capacity(text.expose().len()));
    for line in text.expose().lines() {
        clean.push_str(line.trim());
        clean.push('\n');
    }
    if is_encrypted(&clean) {
        return Err(KeyProblem::Encrypted);
    }
    if ["ssh-", "ecdsa-", "-----BEGIN PUBLIC", "sk-"]
        .iter()
        .any(|start| clean.trim_start().starts_with(start))
    {
        return Err(KeyProblem::Public);
    }
    decode_secret_key(&clean, None).map_err(|error| {
        if matches!(error, KeysError::KeyIsEncrypted) {
            KeyProblem::Encrypted
        } else {
            KeyProblem::Format(Box::new(error))
        }
    })
}

/// PEM says it in a header; for PKCS#8 the decoder only reports bad DER.
fn is_encrypted(text: &str) -> bool {
    text.lines().any(|line| {
        line == "-----BEGIN ENCRYPTED PRIVATE KEY-----"
            || (line.starts_with("Proc-Type:") && line.ends_with("ENCRYPTED"))
    })
}

//! The private key of a login.

use russh::keys::{Error as KeysError, PrivateKey, decode_secret_key};
use zeroize::Zeroizing;

use super::error::KeyProblem;
use crate::model::Secret;

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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A key as `ssh-keygen` writes it.
    fn generated(kind: &str, format: &str, passphrase: &str) -> Secret<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", kind, "-m", format, "-N", passphrase, "-f"])
            .arg(&file)
            .status()
            .expect("this test needs ssh-keygen of the package openssh-client");
        assert!(made.success(), "{kind} {format}");
        let bytes = std::fs::read(&file).unwrap();
        String::from_utf8(bytes).unwrap().into()
    }

    #[test]
    fn every_format_of_openssh_is_read() {
        for kind in ["ed25519", "ecdsa", "rsa"] {
            for format in ["RFC4716", "PEM", "PKCS8"] {
                if kind == "ed25519" && format != "RFC4716" {
                    continue;
                }
                let key = generated(kind, format, "");
                assert!(private_key(&key).is_ok(), "{kind} {format}");
                let pasted = format!("  {}", key.expose().replace('\n', "\r\n  "));
                assert!(
                    private_key(&pasted.into()).is_ok(),
                    "{kind} {format}, pasted"
                );
                let key = generated(kind, format, "passphrase");
                let refused = private_key(&key);
                assert!(
                    matches!(refused, Err(KeyProblem::Encrypted)),
                    "{kind} {format}: {refused:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_private_key_is_said_to_be_none() {
        let key = |text: &str| private_key(&text.to_owned().into());
        assert!(matches!(
            key("ssh-ed25519 AAAA me"),
            Err(KeyProblem::Public)
        ));
        assert!(matches!(key(""), Err(KeyProblem::Format(_))));
    }
}

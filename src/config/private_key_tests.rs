#![expect(clippy::disallowed_methods, reason = "ssh-keygen writes files")]

use std::process::Command;

use super::*;

const RIGHT: &str = "the right one";

/// A key as `ssh-keygen` writes it; `None`: this release of it does not make such a key.
fn made(arguments: &[&str], passphrase: &str) -> Option<Secret<String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-a", "1", "-N", passphrase])
        .args(arguments)
        .arg("-f")
        .arg(&file)
        .output()
        .expect("this test needs ssh-keygen of the package openssh-client");
    made.status
        .success()
        .then(|| std::fs::read_to_string(&file).unwrap().into())
}

fn secret(text: &str) -> Secret<String> {
    text.to_owned().into()
}

/// The key itself, whatever comment its format keeps.
fn public(pem: &Secret<String>) -> String {
    let key = decode_secret_key(pem.expose(), None).unwrap();
    let public = key.public_key().to_openssh().unwrap();
    public.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// A right passphrase is never called wrong, nor a wrong one right.
#[test]
fn every_key_of_ssh_keygen_is_decrypted() {
    let types: [&[&str]; 5] = [
        &["-t", "ed25519"],
        &["-t", "ecdsa", "-b", "256"],
        &["-t", "ecdsa", "-b", "384"],
        &["-t", "ecdsa", "-b", "521"],
        &["-t", "rsa", "-b", "2048"],
    ];
    let formats: [&[&str]; 3] = [&["-m", "RFC4716"], &["-m", "PEM"], &["-m", "PKCS8"]];
    let mut number = 0;
    for kind_of_key in types {
        for format in formats {
            check(&[kind_of_key, format].concat(), &mut number);
        }
    }
    for cipher in [
        "3des-cbc",
        "aes128-cbc",
        "aes192-cbc",
        "aes256-cbc",
        "aes128-ctr",
        "aes192-ctr",
        "aes256-ctr",
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
    ] {
        check(&["-t", "ed25519", "-Z", cipher], &mut number);
        check(&["-t", "ecdsa", "-Z", cipher], &mut number);
    }
    assert!(number >= 30, "{number} keys were made");
}

fn check(arguments: &[&str], number: &mut usize) {
    let Some(pem) = made(arguments, RIGHT) else {
        return;
    };
    *number += 1;
    assert_eq!(kind(&pem), Kind::Encrypted, "{arguments:?}");
    let plain = unlock(&pem, &secret(RIGHT));
    // One key of ECDSA in 256: see `an_ecdsa_key_with_a_short_number_is_read_in_pem`.
    let plain = plain.or_else(|why| {
        let again = unlock(&in_pem(&pem, RIGHT), &secret(RIGHT))?;
        if is_short(&again) {
            Ok(again)
        } else {
            Err(why)
        }
    });
    let plain = plain.unwrap_or_else(|why| panic!("{arguments:?}: {why:?}"));
    assert_eq!(kind(&plain), Kind::Usable, "{arguments:?}");
    public(&plain);
    for wrong in ["another", "The right one", " "] {
        let got = unlock(&pem, &secret(wrong)).err();
        assert_eq!(got, Some(NotUnlocked::Wrong), "{arguments:?}");
    }
}

/// A P-256 key whose number begins with a zero byte.
fn is_short(pem: &Secret<String>) -> bool {
    use russh::keys::ssh_key::private::{EcdsaKeypair, KeypairData};

    let key = decode_secret_key(pem.expose(), None).unwrap();
    matches!(
        key.key_data(),
        KeypairData::Ecdsa(EcdsaKeypair::NistP256 { private, .. }) if private.as_slice().first() == Some(&0)
    )
}

/// The key in PEM, as the hint about a key that cannot be read has it.
fn in_pem(pem: &Secret<String>, passphrase: &str) -> Secret<String> {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, pem.expose()).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let written = Command::new("ssh-keygen")
        .args([
            "-q", "-p", "-m", "PEM", "-P", passphrase, "-N", passphrase, "-f",
        ])
        .arg(&file)
        .output()
        .expect("this test needs ssh-keygen of the package openssh-client");
    assert!(written.status.success(), "{written:?}");
    std::fs::read_to_string(&file).unwrap().into()
}

/// The crate for SSH keys wants 32 bytes of a P-256 key. Where its number begins with a zero, OpenSSH's format has 31.
#[test]
fn an_ecdsa_key_with_a_short_number_is_read_in_pem() {
    const SHORT: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\n\
        b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAaAAAABNlY2RzYS\n\
        1zaGEyLW5pc3RwMjU2AAAACG5pc3RwMjU2AAAAQQTYqvUDFB8oAOdXLsqXtG/Q0H0BfqU2\n\
        vVztRHOVXdPePvYruSbbmisIDo2sQpa1DTkOkeuaR++y1+oJKOIECKjRAAAAmJ0jWPWdI1\n\
        j1AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBNiq9QMUHygA51cu\n\
        ype0b9DQfQF+pTa9XO1Ec5Vd094+9iu5JtuaKwgOjaxClrUNOQ6R65pH77LX6gko4gQIqN\n\
        EAAAAfMYXXvvh9/LoYsOHiuNYFXujNzjTANvf7femJjh+x5wAAAAAB\n\
        -----END OPENSSH PRIVATE KEY-----\n";
    let short = secret(SHORT);
    assert_eq!(kind(&short), Kind::Broken);
    let pem = in_pem(&short, "");
    assert_eq!(kind(&pem), Kind::Usable);
    assert!(is_short(&pem));
    assert!(public(&pem).starts_with("ecdsa-sha2-nistp256 "));
}

/// One wrong passphrase in 256 leaves a padding that looks right.
#[test]
fn a_padding_by_chance_is_not_a_key() {
    let pem = made(&["-t", "ecdsa", "-m", "PEM"], RIGHT).unwrap();
    for number in 0..1000 {
        let got = unlock(&pem, &secret(&format!("wrong {number}"))).err();
        assert_eq!(got, Some(NotUnlocked::Wrong), "{number}");
    }
}

/// As OpenSSL encrypts keys in the oldest format.
#[test]
fn every_cipher_of_the_oldest_format_is_known() {
    for cipher in ["-aes128", "-aes192", "-aes256", "-des3"] {
        for arguments in [&["-t", "ecdsa"][..], &["-t", "rsa", "-b", "2048"]] {
            let plain = made(&[arguments, &["-m", "PEM"]].concat(), "").unwrap();
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("plain");
            std::fs::write(&file, plain.expose()).unwrap();
            let is_rsa = arguments[1] == "rsa";
            let mut command = Command::new("openssl");
            command.arg(if is_rsa { "rsa" } else { "ec" });
            if is_rsa {
                command.arg("-traditional");
            }
            command
                .args([cipher, "-passout", &format!("pass:{RIGHT}"), "-in"])
                .arg(&file);
            let output = command
                .output()
                .expect("this test needs openssl of the package openssl");
            let pem = secret(&String::from_utf8(output.stdout).unwrap());
            assert!(pem.expose().contains("DEK-Info"), "{cipher} {arguments:?}");
            assert_eq!(kind(&pem), Kind::Encrypted, "{cipher}");
            let got = unlock(&pem, &secret(RIGHT)).unwrap();
            assert_eq!(public(&got), public(&plain), "{cipher} {arguments:?}");
            let wrong = unlock(&pem, &secret("wrong")).err();
            assert_eq!(wrong, Some(NotUnlocked::Wrong), "{cipher}");
        }
    }
}

#[test]
fn what_cannot_be_decrypted_is_not_called_wrong() {
    let pem = |info: &str| {
        secret(&format!(
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: {info}\n\nAAAA\n-----END EC PRIVATE KEY-----\n"
        ))
    };
    for info in [
        "CAMELLIA-256-CBC,00112233445566778899AABBCCDDEEFF",
        "DES-CBC,0011223344556677",
        "AES-128-CBC,0011",
        "AES-128-CBC",
        "",
    ] {
        assert_eq!(kind(&pem(info)), Kind::Locked, "{info}");
        let got = unlock(&pem(info), &secret(RIGHT)).err();
        assert_eq!(got, Some(NotUnlocked::Unreadable), "{info}");
    }
    assert!(has_passphrase(&pem("DES-CBC,0011223344556677")));
    let damaged =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let got = unlock(&secret(damaged), &secret(RIGHT)).err();
    assert_eq!(got, Some(NotUnlocked::Unreadable));
}

#[test]
fn a_dsa_key_is_recognised() {
    for format in ["RFC4716", "PEM", "PKCS8"] {
        // OpenSSH 10 makes none.
        if let Some(pem) = made(&["-t", "dsa", "-m", format], "") {
            assert_eq!(kind(&pem), Kind::Dsa, "{format}");
        }
    }
    let pem = "-----BEGIN DSA PRIVATE KEY-----\nAAAA\n-----END DSA PRIVATE KEY-----\n";
    assert_eq!(kind(&secret(pem)), Kind::Dsa);
}

/// What `ssh-keygen -t ed25519-sk` writes: the handle of a key on a token, here one that no token has.
#[test]
fn a_key_on_a_token_is_recognised() {
    let string = |bytes: &[u8]| {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&length[..], bytes].concat()
    };
    let kind_of_key = string(b"sk-ssh-ed25519@openssh.com");
    let public = [kind_of_key.clone(), string(&[7; 32]), string(b"ssh:")].concat();
    let mut private = [
        vec![0, 0, 0, 1, 0, 0, 0, 1],
        public.clone(),
        vec![1],
        string(&[9; 64]),
        string(b""),
        string(b"me@here"),
    ]
    .concat();
    for padding in 1_u8.. {
        if private.len() % 8 == 0 {
            break;
        }
        private.push(padding);
    }
    let key = [
        b"openssh-key-v1\0".to_vec(),
        string(b"none"),
        string(b"none"),
        string(b""),
        vec![0, 0, 0, 1],
        string(&public),
        string(&private),
    ]
    .concat();
    let pem = secret(&format!(
        "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
        wrapped(&STANDARD.encode(key))
    ));
    assert_eq!(kind(&pem), Kind::Token);
    assert!(needs_agent(&pem));
}

fn wrapped(text: &str) -> String {
    let lines = text.as_bytes().chunks(70);
    let lines = lines.map(|line| String::from_utf8(line.to_vec()).unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn what_is_not_a_key_is_recognised() {
    for (text, want) in [
        ("ssh-ed25519 AAAA me@here", Kind::Public),
        ("-----BEGIN PUBLIC KEY-----\n", Kind::Public),
        ("-----BEGIN CERTIFICATE-----\n", Kind::Other),
        ("", Kind::Other),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----\n", Kind::Encrypted),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
            Kind::Broken,
        ),
        (
            "-----BEGIN OPENSSH PRIVATE KEY----- AAAA -----END OPENSSH PRIVATE KEY-----",
            Kind::OneLine,
        ),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\\nAAAA\\n-----END OPENSSH PRIVATE KEY-----\\n",
            Kind::OneLine,
        ),
        ("PuTTY-User-Key-File-3: ssh-ed25519\n", Kind::Putty),
    ] {
        assert_eq!(kind(&secret(text)), want, "{text}");
    }
}

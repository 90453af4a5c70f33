//! Certificates as `ssh-keygen` writes them.

#![expect(clippy::disallowed_methods, reason = "ssh-keygen writes files")]

use std::{path::Path, process::Command};

use tempfile::TempDir;

use super::*;

fn keygen(folder: &Path, args: &[&str]) {
    let made = Command::new("ssh-keygen")
        .arg("-q")
        .args(args)
        .current_dir(folder)
        .env("TZ", "UTC")
        .status()
        .expect("this test needs ssh-keygen of the package openssh-client");
    assert!(made.success(), "{args:?}");
}

/// An authority `ca`, of this kind, and a key of a host, `host`.
pub(in crate::host) fn folder(kind: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    keygen(folder.path(), &["-t", kind, "-N", "", "-f", "ca"]);
    keygen(folder.path(), &["-t", "ed25519", "-N", "", "-f", "host"]);
    folder
}

/// The certificate of `host` that `ca` signs with these options.
pub(in crate::host) fn signed(folder: &Path, options: &[&str]) -> Certificate {
    let first = ["-s", "ca", "-I", "a key id"];
    keygen(folder, &[&first[..], options, &["host.pub"]].concat());
    let text = std::fs::read_to_string(folder.join("host-cert.pub")).expect("a certificate");
    text.trim().parse().expect("a certificate")
}

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().expect("a time")
}

const DAY: &str = "20261130000000:20261201000000";

#[test]
fn a_hosts_certificate_for_its_name_is_good_in_its_time() {
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let folder = folder(kind);
        for time in [DAY, "always:forever"] {
            let names = "n1.example,10.0.0.1";
            let one = signed(folder.path(), &["-h", "-n", names, "-V", time]);
            for name in ["n1.example", "N1.example", "10.0.0.1"] {
                assert_eq!(check(&one, name, now()), Ok(()), "{kind} {time} {name}");
            }
        }
    }
}

#[test]
fn every_flaw_is_named() {
    let folder = folder("rsa");
    let flaw = |options: &[&str]| {
        let flaw = check(&signed(folder.path(), options), "n1", now());
        flaw.expect_err("a flaw").to_string()
    };
    assert_eq!(
        flaw(&["-n", "n1", "-V", DAY]),
        "it is the certificate of a user"
    );
    assert_eq!(flaw(&["-h", "-V", DAY]), "it names no host");
    assert_eq!(
        flaw(&["-h", "-n", "n2,n1.example,*", "-V", DAY]),
        "it is for `n2`, `n1.example`, `*`, not for `n1`"
    );
    assert_eq!(
        flaw(&["-h", "-n", "n1", "-V", "20261129000000:20261130120000"]),
        "it expired on 2026-11-30T12:00:00Z",
        "at that moment it is over"
    );
    assert_eq!(
        flaw(&["-h", "-n", "n1", "-V", "20261130120001:20261201000000"]),
        "it is not valid before 2026-11-30T12:00:01Z"
    );
    assert_eq!(
        flaw(&["-h", "-n", "n1", "-V", DAY, "-O", "critical:a@example=b"]),
        "it has critical options (`a@example`)"
    );
    assert_eq!(
        flaw(&["-h", "-n", "n1", "-V", DAY, "-t", "ssh-rsa"]),
        "it is signed with `ssh-rsa`, which is too weak"
    );
}

/// A certificate that another one signed, with the authority's key in it.
#[test]
fn the_signature_counts() {
    let folder = folder("ed25519");
    let good = signed(folder.path(), &["-h", "-n", "n1", "-V", DAY]);
    let mut bytes = good.to_bytes().expect("bytes");
    // The name, which is signed.
    let at = bytes
        .windows(6)
        .position(|window| window == b"\0\0\0\x02n1")
        .expect("the name");
    bytes[at + 5] = b'2';
    let other = Certificate::from_bytes(&bytes).expect("a certificate");
    assert_eq!(check(&other, "n2", now()), Err(Flaw::Signature));
}

//! Host certificates: sshd shows one to who asks for it, and an authority on record vouches for the host.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::{fs, os::unix::fs::PermissionsExt as _};

use rke_operator::{
    error::Explain as _,
    host::{Host, HostError, KnownHosts, Policy},
    model::NodeName,
};
use tempfile::TempDir;

use crate::{fake::FakeHost, host_bastion::keygen};

/// An authority of this kind, which signs the host's key with these options.
fn certified(kind: &str, options: &[&str]) -> (FakeHost, TempDir) {
    let host = FakeHost::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host");
    fs::write(&file, host.private_host_key()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(folder.path().join("host.pub"), host.host_key()).unwrap();
    keygen(folder.path(), &["-t", kind, "-N", "", "-f", "ca"]);
    let first = ["-s", "ca", "-I", "the fake", "-h"];
    keygen(
        folder.path(),
        &[&first[..], options, &["host.pub"]].concat(),
    );
    let text = fs::read_to_string(folder.path().join("host-cert.pub")).unwrap();
    host.certify(text.trim().parse().unwrap());
    (host, folder)
}

fn authority(folder: &TempDir) -> String {
    let key = fs::read_to_string(folder.path().join("ca.pub")).unwrap();
    format!("@cert-authority * {key}")
}

async fn connect(host: &FakeHost, known: &str) -> Result<Host, HostError> {
    let keys = KnownHosts::from_text("known_hosts", known, Policy::Strict)
        .with_certificates(|| "2026-11-30T12:00:00Z".parse().unwrap());
    let name = NodeName::from("n1");
    let endpoint = FakeHost::endpoint();
    Host::connect(&name, &endpoint, &host.login(), &keys, &host.dial()).await
}

#[tokio::test]
async fn an_authority_on_record_is_enough() {
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let (host, folder) =
            certified(kind, &["-n", "n1.example,10.0.0.2", "-V", "always:forever"]);
        let connected = connect(&host, &authority(&folder)).await.unwrap();
        connected.docker_facts().await.unwrap();
        // The state gets the key in it, for when there is no certificate any more.
        assert_eq!(connected.host_key(), host.host_key());
    }
}

/// Without an authority on record none is requested: the key is a plain one.
#[tokio::test]
async fn a_certificate_changes_nothing_without_an_authority() {
    let (host, _folder) = certified("ed25519", &["-n", "10.0.0.2"]);
    let known = host.known_hosts(&FakeHost::endpoint());
    connect(&host, &known).await.unwrap();
    let refused = connect(&host, "").await.unwrap_err();
    assert!(
        matches!(refused, HostError::HostKeyUnknown { .. }),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_certificate_that_does_not_count_is_explained() {
    let refused = async |host: &FakeHost, known: &str| {
        let error = connect(host, known).await.unwrap_err();
        let causes = rke_operator::error::with_causes(&error);
        (causes, error.hints().join("\n"))
    };
    let (host, folder) = certified("ed25519", &["-n", "n2", "-V", "always:forever"]);
    let (text, _) = refused(&host, &authority(&folder)).await;
    assert!(text.contains("`the fake`"), "{text}");
    assert!(
        text.contains("it is for `n2`, not for `10.0.0.2`"),
        "{text}"
    );
    assert!(text.contains("known_hosts line 1"), "{text}");

    let (_, other) = certified("ed25519", &["-n", "10.0.0.2"]);
    let (text, _) = refused(&host, &authority(&other)).await;
    assert!(
        text.contains("it shows no certificate of that authority"),
        "{text}"
    );

    let (host, folder) = certified("ed25519", &["-n", "10.0.0.2", "-V", "always:forever"]);
    let known = authority(&folder);
    let revoked = format!("{known}\n{}", known.replace("@cert-authority", "@revoked"));
    let (text, hints) = refused(&host, &revoked).await;
    assert!(text.contains("has changed or is revoked"), "{text}");
    assert!(
        hints.contains("known_hosts line 3, which revokes the authority"),
        "{hints}"
    );
}

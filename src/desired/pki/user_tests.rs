//! A user's certificate is signed by the cluster's CA for whom it was requested, lives as long, and is kept until it is
//! due or something that it was made of has changed.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use super::{
    AccessError, HandedOut, NewBecause, PkiError, Seed, UserAccess, UserRequest, handed_out,
    is_api_name, renew_at, shown, user_access,
};
use crate::{
    desired::fixture::{blank, desired, intent, now, reuse_or_issue},
    state::ClusterState,
};

const LIFE: SignedDuration = SignedDuration::from_hours(720);

fn cluster(seed: u8) -> ClusterState {
    let intent = intent();
    reuse_or_issue(&intent, &blank(&intent), seed)
        .unwrap()
        .saved
}

fn groups() -> BTreeSet<String> {
    ["dev", "ops"].map(str::to_owned).into()
}

fn request(groups: &BTreeSet<String>) -> UserRequest<'_> {
    UserRequest {
        user: "jane",
        groups,
        life: LIFE,
        server: None,
    }
}

fn access(
    saved: &ClusterState,
    request: &UserRequest<'_>,
    before: &HandedOut,
    at: Timestamp,
) -> Result<UserAccess, AccessError> {
    user_access(saved, request, before, at, &Seed::new([9; 32]))
}

fn of(access: &UserAccess) -> HandedOut {
    handed_out(access.kubeconfig().expose())
}

fn later(time: SignedDuration) -> Timestamp {
    now().checked_add(time).unwrap()
}

#[test]
fn it_is_signed_by_the_ca_for_that_user_and_lives_that_long() {
    let (saved, groups) = (cluster(7), groups());
    let made = access(&saved, &request(&groups), &HandedOut::default(), now()).unwrap();
    assert_eq!(made.new, Some(NewBecause::None));
    assert_eq!((made.issued, made.expires), (now(), later(LIFE)));
    assert_eq!(made.renew_at(), later(SignedDuration::from_hours(480)));

    // By another verifier, and another parser.
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(made.ca.as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let leaf = CertificateDer::from_pem_slice(made.pair.cert.as_bytes()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    let verifier = verifier.build().unwrap();
    let verifies = |at: Timestamp| {
        let at = std::time::Duration::from_secs(at.as_second().unsigned_abs());
        let at = UnixTime::since_unix_epoch(at);
        verifier.verify_client_cert(&leaf, &[], at).is_ok()
    };
    assert!(verifies(now()));
    assert!(verifies(later(LIFE - SignedDuration::from_secs(1))));
    assert!(!verifies(later(LIFE + SignedDuration::from_secs(1))));
    let (_, cert) = x509_parser::parse_x509_certificate(&leaf).unwrap();
    assert_eq!(cert.subject().to_string(), "CN=jane, O=dev, O=ops");
    assert!(!cert.is_ca());
    assert_eq!(
        cert.validity().not_after.timestamp(),
        later(LIFE).as_second()
    );
}

#[test]
fn it_is_kept_until_two_thirds_of_its_life_are_over() {
    let (saved, groups) = (cluster(7), groups());
    let request = request(&groups);
    let first = access(&saved, &request, &HandedOut::default(), now()).unwrap();
    let due = first.renew_at();
    let before = due.checked_sub(SignedDuration::from_secs(1)).unwrap();
    let kept = access(&saved, &request, &of(&first), before).unwrap();
    assert_eq!((&kept.pair, kept.new), (&first.pair, None));
    let renewed = user_access(&saved, &request, &of(&first), due, &Seed::new([3; 32])).unwrap();
    assert_eq!(renewed.new, Some(NewBecause::Renewal));
    assert_ne!(renewed.pair, first.pair);
    assert_eq!(renewed.expires, due.checked_add(LIFE).unwrap());
    assert_eq!(
        renew_at(renewed.issued, renewed.expires),
        renewed.renew_at()
    );
}

#[test]
fn it_is_issued_again_when_what_it_is_made_of_changes() {
    let (saved, groups) = (cluster(7), groups());
    let first = access(&saved, &request(&groups), &HandedOut::default(), now()).unwrap();
    let again = |saved: &ClusterState, request: &UserRequest<'_>| {
        access(saved, request, &of(&first), now()).unwrap()
    };
    let none = BTreeSet::new();
    let request = request(&groups);
    let joe = UserRequest {
        user: "joe",
        ..request.clone()
    };
    let alone = UserRequest {
        groups: &none,
        ..request.clone()
    };
    let short = UserRequest {
        life: SignedDuration::from_mins(10),
        ..request.clone()
    };
    for changed in [joe, alone, short] {
        let made = again(&saved, &changed);
        assert_eq!(made.new, Some(NewBecause::Different), "{changed:?}");
    }
    // Another authority.
    let made = again(&cluster(8), &request);
    assert_eq!(made.new, Some(NewBecause::Different));
    assert_ne!(made.ca, first.ca);
    // Where it leads is no part of the certificate.
    let server = UserRequest {
        server: Some("https://lb:6443"),
        ..request.clone()
    };
    let made = again(&saved, &server);
    assert_eq!((made.server(), made.new), ("https://lb:6443", None));
    // One that was damaged.
    let mut damaged = of(&first);
    damaged.pair.as_mut().unwrap().cert = "no certificate".to_owned();
    let made = access(&saved, &request, &damaged, now()).unwrap();
    assert_eq!(made.new, Some(NewBecause::Different));
}

#[test]
fn none_outlives_its_authority() {
    let (saved, groups) = (cluster(7), groups());
    // Authorities are made for ten years.
    let late = later(SignedDuration::from_hours(24 * 3650 - 10));
    let request = request(&groups);
    let made = access(&saved, &request, &HandedOut::default(), late).unwrap();
    assert_eq!(made.expires, later(SignedDuration::from_hours(24 * 3650)));
    let kept = access(&saved, &request, &of(&made), late).unwrap();
    assert_eq!(kept.new, None, "it is not made again for that");
    let over = later(SignedDuration::from_hours(24 * 3651));
    let error = access(&saved, &request, &HandedOut::default(), over).unwrap_err();
    assert_eq!(error, AccessError::Untimely("has expired"));
}

/// The key of a cluster's CA may be kept elsewhere: what was handed out is good until it expires.
#[test]
fn without_the_key_of_the_ca_what_is_there_goes_on() {
    let (mut saved, groups) = (cluster(7), groups());
    let request = request(&groups);
    let first = access(&saved, &request, &HandedOut::default(), now()).unwrap();
    saved.cluster_ca.signing.key = None;
    let kept = access(&saved, &request, &of(&first), first.renew_at()).unwrap();
    assert_eq!(kept.pair, first.pair);
    assert!(matches!(
        kept.late,
        Some(AccessError::Pki(PkiError::NoCaKey { .. }))
    ));
    let error = access(&saved, &request, &HandedOut::default(), now()).unwrap_err();
    assert!(matches!(error, AccessError::Pki(PkiError::NoCaKey { .. })));
}

#[test]
fn a_kubeconfig_says_who_and_where_to() {
    let (saved, groups) = (cluster(7), groups());
    let made = access(&saved, &request(&groups), &HandedOut::default(), now()).unwrap();
    let text = made.kubeconfig();
    let told = shown(text.expose()).unwrap();
    assert_eq!((told.user.as_str(), told.expires), ("jane", made.expires));
    assert_eq!(told.server, made.server());
    let admin = desired(&intent()).kubeconfig;
    assert_eq!(shown(admin.expose()).unwrap().user, "kube-admin");
    assert_eq!(shown("no: kubeconfig"), None);
    assert_eq!(handed_out("edited"), HandedOut::default());
}

#[test]
fn the_names_of_the_api_servers_are_those_of_their_certificate() {
    let mut intent = intent();
    intent.sans = ["lb.example.com".to_owned()].into();
    for (host, is) in [
        ("lb.example.com", true),
        ("LB.example.com", true),
        ("10.0.0.2", true),
        ("kubernetes", true),
        ("10.9.9.9", false),
        ("evil.example.com", false),
    ] {
        assert_eq!(is_api_name(&intent, host), is, "{host}");
    }
}

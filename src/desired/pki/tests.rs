//! Invariant 2, and that certificates do what they are for.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use jiff::SignedDuration;
use proptest::prelude::*;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use super::{
    CertKind, Keys, Pair, PkiContext, PkiError, Rotation, Seed, copy_on_nodes, engine_clients,
    key::Key, left_out, reconcile,
};
use crate::{
    config::Intent,
    desired::{
        Desired,
        fixture::{
            NO_NODE, NONE_HELD, applied, blank, claim, desired, down, facts, intent, intent_of,
            now, reuse_or_issue, reuse_or_issue_at, up,
        },
    },
    error::{ErrorClass, Explain as _},
    facts::{Actual, ApiHealth, ClockFact, FileFact, HostFacts, HostView},
    model::{CLAIM, ClientIdentity, ClusterId, Component, NodeName, Role, Secret, path},
    state::{Authority, CaPair, ClusterState, EncryptionKey, Membership, codec},
};

const ALL: [Role; 3] = [Role::Etcd, Role::ControlPlane, Role::Worker];

fn n1() -> NodeName {
    NodeName::from("n1")
}

fn host_mut<'a>(have: &'a mut Actual, name: &str) -> &'a mut HostFacts {
    match have.hosts.get_mut(&NodeName::from(name)) {
        Some(HostView::Reachable(facts)) => facts,
        other => panic!("{other:?}"),
    }
}

/// The store lost it; the nodes have everything.
fn store_lost(intent: &Intent) -> (Desired, Actual) {
    let desired = desired(intent);
    let mut have = applied(&desired);
    have.saved = None;
    (desired, have)
}

fn recover(intent: &Intent, have: &Actual, id: &ClusterId) -> Result<Keys, PkiError> {
    reuse_or_issue_at(intent, have, 9, now(), Some(id))
}

fn roots(ca: &str) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap())
        .unwrap();
    Arc::new(roots)
}

fn der(pair: &Pair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()
}

#[expect(clippy::unwrap_in_result, reason = "the set-up of a test")]
fn serves(ca: &str, pair: &Pair, name: &str) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(
        now().as_second().unsigned_abs(),
    ));
    WebPkiServerVerifier::builder_with_provider(roots(ca), provider)
        .build()
        .unwrap()
        .verify_server_cert(
            &der(pair),
            &[],
            &ServerName::try_from(name.to_owned()).unwrap(),
            &[],
            at,
        )
        .map(|_| ())
}

#[expect(clippy::unwrap_in_result, reason = "the set-up of a test")]
fn is_client(ca: &str, pair: &Pair) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(
        now().as_second().unsigned_abs(),
    ));
    WebPkiClientVerifier::builder_with_provider(roots(ca), provider)
        .build()
        .unwrap()
        .verify_client_cert(&der(pair), &[], at)
        .map(|_| ())
}

#[test]
fn another_verifier_accepts_every_certificate_for_what_it_is_for() {
    let intent = intent();
    let keys = reuse_or_issue(&intent, &blank(&intent), 7).unwrap();
    let cluster = &keys.saved.cluster_ca.signing.cert;
    let etcd = &keys.saved.etcd_ca.signing.cert;
    let front = &keys.saved.front_proxy_ca.signing.cert;
    let pair = |kind| &keys.leaves[&(n1(), kind)];
    for name in [
        "10.0.0.2",
        "127.0.0.1",
        "10.43.0.1",
        "n1",
        "localhost",
        "kubernetes.default.svc.cluster.local",
    ] {
        serves(cluster, pair(CertKind::ApiServer), name).unwrap();
    }
    serves(cluster, pair(CertKind::ApiServer), "10.0.0.3").unwrap_err();
    serves(cluster, pair(CertKind::Kubelet), "10.0.0.2").unwrap();
    for name in ["10.0.0.2", "127.0.0.1"] {
        serves(etcd, pair(CertKind::Etcd), name).unwrap();
    }
    is_client(etcd, pair(CertKind::Etcd)).unwrap();
    is_client(etcd, pair(CertKind::ApiServerEtcdClient)).unwrap();
    is_client(front, pair(CertKind::FrontProxyClient)).unwrap();
    for kind in [
        CertKind::ApiServerKubeletClient,
        CertKind::ControllerManager,
        CertKind::Scheduler,
        CertKind::Node,
        CertKind::KubeProxy,
    ] {
        is_client(cluster, pair(kind)).unwrap();
        // etcd trusts none of the cluster's clients.
        is_client(etcd, pair(kind)).unwrap_err();
        serves(cluster, pair(kind), "10.0.0.2").unwrap_err();
    }
    is_client(cluster, pair(CertKind::ApiServer)).unwrap_err();
}

#[test]
fn serials_and_keys_are_all_different() {
    let intent = intent();
    let keys = reuse_or_issue(&intent, &blank(&intent), 7).unwrap();
    let serials: BTreeSet<Vec<u8>> = keys
        .leaves
        .values()
        .map(|pair| {
            let der = der(pair);
            let (_, cert) = x509_parser::parse_x509_certificate(&der).unwrap();
            assert_eq!(cert.raw_serial().len(), 16);
            cert.raw_serial().to_vec()
        })
        .collect();
    assert_eq!(serials.len(), CertKind::ALL.len());
    let keys: BTreeSet<&str> = keys
        .leaves
        .values()
        .map(|pair| pair.key.expose().as_str())
        .collect();
    assert_eq!(keys.len(), CertKind::ALL.len());
}

#[test]
fn the_same_arguments_give_the_same_bytes_and_another_seed_others() {
    let intent = intent();
    let have = blank(&intent);
    assert_eq!(
        reuse_or_issue(&intent, &have, 7),
        reuse_or_issue(&intent, &have, 7)
    );
    let (one, other) = (
        reuse_or_issue(&intent, &have, 7).unwrap(),
        reuse_or_issue(&intent, &have, 8).unwrap(),
    );
    assert_ne!(one.saved.cluster_id, other.saved.cluster_id);
    assert_ne!(one.saved.cluster_ca, other.saved.cluster_ca);
    assert_ne!(one.digest(b"password"), other.digest(b"password"));
}

#[test]
fn a_nodes_certificates_are_kept_and_outdated_ones_are_replaced() {
    let intent = intent();
    let have = applied(&desired(&intent));
    let first = reuse_or_issue(&intent, &blank(&intent), 7).unwrap();
    let again = reuse_or_issue(&intent, &have, 9).unwrap();
    assert_eq!(again.leaves, first.leaves);
    assert_eq!(again.kubeconfig, first.kubeconfig);

    // A key of another certificate.
    let mut torn = have.clone();
    let files = host_mut(&mut torn, "n1").files.as_mut().unwrap();
    let other = files["/etc/kubernetes/ssl/kube-proxy-key.pem"].clone();
    files.insert("/etc/kubernetes/ssl/kube-node-key.pem".to_owned(), other);
    changed(
        &first,
        &reuse_or_issue(&intent, &torn, 9).unwrap(),
        &[CertKind::Node],
    );

    // Another name of the API server and of the node.
    let mut renamed = intent.clone();
    renamed.services.cluster_domain = "example.internal".to_owned();
    let keys = reuse_or_issue(&renamed, &have, 9).unwrap();
    changed(&first, &keys, &[CertKind::ApiServer]);
    assert_eq!(keys.kubeconfig, first.kubeconfig);

    // Another authority.
    let mut another = have.clone();
    another.saved = Some(Box::new(
        reuse_or_issue(&intent, &blank(&intent), 8).unwrap().saved,
    ));
    let keys = reuse_or_issue(&intent, &another, 9).unwrap();
    changed(&first, &keys, &CertKind::ALL);
    assert_ne!(keys.kubeconfig, first.kubeconfig);
}

fn days(days: i64) -> jiff::Timestamp {
    now()
        .checked_add(jiff::SignedDuration::from_hours(24 * days))
        .unwrap()
}

#[test]
fn a_certificate_is_renewed_when_less_than_a_third_of_its_time_is_left() {
    let intent = intent();
    let have = applied(&desired(&intent));
    let first = reuse_or_issue(&intent, &have, 7).unwrap();
    let at = |day| reuse_or_issue_at(&intent, &have, 9, days(day), None).unwrap();
    let old = at(220);
    assert_eq!(old.leaves, first.leaves);
    assert_eq!(old.kubeconfig, first.kubeconfig);
    assert!(old.certificates.renewed.is_empty());
    let third = at(250);
    changed(&first, &third, &CertKind::ALL);
    assert_ne!(third.kubeconfig, first.kubeconfig);
    let renewed = &third.certificates.renewed[&n1()];
    assert_eq!(renewed.len(), 2 * CertKind::ALL.len());
    assert!(renewed.contains("/etc/kubernetes/ssl/kube-apiserver-key.pem"));
    let note = third.notes.iter().find(|note| note.contains("renewed"));
    assert!(note.unwrap().contains("kube-apiserver.pem"));
    // An expired certificate is renewed too, and for the same reason.
    let expired = at(366);
    changed(&first, &expired, &CertKind::ALL);
    assert_ne!(expired.kubeconfig, first.kubeconfig);
    assert_eq!(expired.certificates.renewed, third.certificates.renewed);
    assert_eq!(expired.certificates.ended, third.certificates.renewed);
    assert!(third.certificates.ended.is_empty());
    let renewed = |note: &String| note.contains("are renewed, because they have ended");
    assert!(expired.notes.iter().any(renewed), "{:?}", expired.notes);
    let note = expired.notes.iter().find(|note| note.contains("days ago"));
    assert!(note.unwrap().contains("expired"), "{:?}", expired.notes);
}

/// A person asks for new ones: each is made once, however often the run plans, and what was not asked for stays.
#[test]
fn certificates_that_are_asked_for_are_made_once() {
    let intent = intent();
    let have = applied(&desired(&intent));
    let first = reuse_or_issue(&intent, &have, 7).unwrap();
    let elsewhere = BTreeSet::new();
    let ask = |have: &Actual, of: &[Component], seed: u8, now| {
        let rotation = Rotation {
            asked: days(1),
            of: of.iter().copied().collect(),
        };
        let context = PkiContext {
            now,
            seed: Seed::new([seed; 32]),
            recover: None,
            accept_etcd: None,
            rotate: Some(&rotation),
            rotate_key: false,
            service_account_key: None,
            authorities: None,
            restore: None,
            held_elsewhere: &elsewhere,
            lose: &NO_NODE,
            clean: &NO_NODE,
            given: None,
        };
        reconcile(&intent, have, &context).unwrap()
    };
    let some = ask(&have, &[Component::Kubelet], 9, days(1));
    changed(&first, &some, &[CertKind::Node, CertKind::Kubelet]);
    assert_eq!(some.kubeconfig, first.kubeconfig);
    let told = |note: &String| note.contains("are renewed, because you ask for it: kube-");
    assert!(some.notes.iter().any(told), "{:?}", some.notes);
    assert_eq!(some.certificates.rotated, some.certificates.renewed);
    assert!(some.certificates.urgent.is_empty());

    let all = ask(&have, &[], 9, days(1));
    changed(&first, &all, &CertKind::ALL);
    assert_ne!(all.kubeconfig, first.kubeconfig);
    assert_eq!(
        all.saved, first.saved,
        "authorities and keys of tokens stay"
    );
    // The next look of the same run.
    let written = applied(&Desired::from_intent(&intent, &all, &have).unwrap());
    let again = ask(&written, &[], 11, days(1) + SignedDuration::from_secs(30));
    changed(&all, &again, &[]);
    assert_eq!(again.kubeconfig, all.kubeconfig);
}

#[test]
fn what_is_made_in_one_second_does_not_end_in_one_second() {
    let intent = intent();
    let keys = reuse_or_issue(&intent, &blank(&intent), 7).unwrap();
    let ends: BTreeSet<i64> = keys
        .leaves
        .values()
        .map(|pair| {
            let der = der(pair);
            let (_, cert) = x509_parser::parse_x509_certificate(&der).unwrap();
            cert.validity().not_after.timestamp()
        })
        .collect();
    assert_eq!(ends.len(), CertKind::ALL.len());
    let (first, last) = (ends.first().unwrap(), ends.last().unwrap());
    assert!(*first > days(334).as_second() && *last <= days(365).as_second());
    assert!(last - first > 24 * 3600, "{first} {last}");
}

#[test]
fn the_days_that_are_left_are_reported() {
    let intent = intent();
    let fresh = reuse_or_issue(&intent, &blank(&intent), 7).unwrap();
    assert_eq!(fresh.certificates.earliest, None);
    assert!(fresh.notes.is_empty());
    let have = applied(&desired(&intent));
    let keys = reuse_or_issue_at(&intent, &have, 9, days(100), None).unwrap();
    let earliest = keys.certificates.earliest.unwrap();
    let left = earliest.days_left(days(100));
    assert!((234..=265).contains(&left), "{left}");
    let note = format!(
        "the first certificate to expire is {}, in {left} days",
        earliest.what
    );
    assert_eq!(keys.notes, [note]);
    assert!(earliest.what.ends_with("of node `n1`"), "{}", earliest.what);
}

/// A cluster of three nodes whose clocks are so many seconds ahead of our own.
fn clocks(ahead: &[Option<i64>]) -> Result<Keys, PkiError> {
    let names = ["n1", "n2", "n3"];
    let nodes: Vec<_> = names
        .iter()
        .zip(["10.0.0.2", "10.0.0.3", "10.0.0.4"])
        .take(ahead.len())
        .map(|(name, address)| (*name, address, &ALL[..]))
        .collect();
    let intent = intent_of(&nodes);
    let mut have = blank(&intent);
    for (name, ahead) in names.iter().zip(ahead) {
        host_mut(&mut have, name).clock = ahead.map(|ahead| ClockFact {
            unix_seconds: now().as_second() + ahead,
            uncertainty_ms: 2_000,
        });
    }
    reuse_or_issue(&intent, &have, 7)
}

#[test]
fn no_certificate_is_made_or_called_expired_by_a_clock_that_the_nodes_contradict() {
    for fine in [
        &[Some(0), Some(299), Some(-301)][..],
        &[None, None, None],
        &[Some(302)],
    ] {
        clocks(fine).unwrap();
    }
    let year = 365 * 24 * 3600;
    for (ahead, words) in [
        (
            &[Some(6 * year), Some(6 * year + 1), Some(0)][..],
            "the clock of this machine is wrong: it is 2190 days behind node `n1`'s, 2190 days behind node `n2`'s",
        ),
        (
            &[Some(0), Some(-600), None],
            "clocks contradict each other: that of node `n2` is 10 minutes behind this machine's",
        ),
        (
            &[Some(10_000)],
            "clocks contradict each other: that of node `n1` is 2 hours ahead of this machine's",
        ),
        (
            &[Some(600), Some(-600), Some(600)],
            "clocks contradict each other: that of node `n1` is 10 minutes ahead of this machine's, that of node `n2` is 10 minutes behind this machine's, that of node `n3` is 10 minutes ahead of this machine's",
        ),
    ] {
        let error = clocks(ahead).unwrap_err();
        assert_eq!(error.to_string(), words);
        assert_eq!(error.class(), ErrorClass::User);
        assert!(error.hints()[0].contains("timedatectl"));
    }
}

/// E16: a worker's wrong clock does not stop the run; the worker is left out by name. The clock of a node that is no
/// longer in the config does not matter.
#[test]
fn the_clock_of_a_worker_stops_no_run() {
    let worker: &[Role] = &[Role::Worker];
    let intent = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", worker)]);
    let one = intent_of(&[("n1", "10.0.0.2", &ALL)]);
    let mut have = applied(&desired(&intent));
    let mut sets = |name: &str, ahead: i64| {
        host_mut(&mut have, name).clock = Some(ClockFact {
            unix_seconds: now().as_second() + ahead,
            uncertainty_ms: 0,
        });
        have.clone()
    };
    sets("n1", 0);
    let have = sets("n2", -7200);
    reuse_or_issue(&intent, &have, 9).unwrap();
    let out = left_out(&intent, &have, now());
    assert_eq!(out.keys().collect::<Vec<_>>(), [&NodeName::from("n2")]);
    let why = &out[&NodeName::from("n2")];
    assert_eq!(
        why.why,
        "the clock of node `n2` is 2 hours behind this machine's"
    );
    assert!(why.hints[0].contains("timedatectl"));
    reuse_or_issue(&one, &have, 9).unwrap();
    assert!(left_out(&one, &have, now()).is_empty());
    let have = sets("n1", -7200);
    let error = reuse_or_issue(&intent, &have, 9).unwrap_err();
    assert!(
        matches!(error, PkiError::Clock { ours: true, .. }),
        "{error}"
    );
}

#[test]
fn a_living_cluster_with_a_wrong_clock_keeps_its_certificates() {
    let intent = intent();
    let mut have = applied(&desired(&intent));
    host_mut(&mut have, "n1").clock = Some(ClockFact {
        unix_seconds: now().as_second(),
        uncertainty_ms: 0,
    });
    let late = reuse_or_issue_at(&intent, &have, 9, days(400), None).unwrap_err();
    assert!(matches!(late, PkiError::Clock { .. }), "{late}");
}

/// RKE's keys are RSA, in PKCS#1.
#[test]
fn an_adopted_clusters_rsa_keys_sign() {
    const CA: &str = include_str!("../../../tests/fixtures/rke/kube-ca.pem");
    const PUBLIC: &str = include_str!("../../../tests/fixtures/rke/kube-ca-public.pem");
    let intent = intent();
    let have = applied(&desired(&intent));
    for key in [
        include_str!("../../../tests/fixtures/rke/kube-ca-key.pem"),
        include_str!("../../../tests/fixtures/rke/kube-ca-key-pkcs8.pem"),
    ] {
        let mut have = have.clone();
        let saved = have.saved.as_mut().unwrap();
        let key = Secret::new(key.to_owned());
        saved.cluster_ca = Authority::of(CaPair {
            cert: CA.to_owned(),
            key: Some(key.clone()),
        });
        saved.service_accounts.signing = key.clone();
        saved.service_accounts.verifying.clear();
        saved.serial += 1;
        let keys = reuse_or_issue(&intent, &have, 9).unwrap();
        let pair = |kind| &keys.leaves[&(n1(), kind)];
        serves(CA, pair(CertKind::ApiServer), "10.0.0.2").unwrap();
        is_client(CA, pair(CertKind::Node)).unwrap();
        assert_eq!(keys.saved.service_accounts.verifying, [PUBLIC]);
        assert_eq!(keys.saved.service_accounts.signing, key);
        // And what it signed is kept.
        let again = applied(&Desired::from_intent(&intent, &keys, &have).unwrap());
        assert_eq!(
            reuse_or_issue(&intent, &again, 10).unwrap().leaves,
            keys.leaves
        );
    }
}

#[test]
fn a_key_in_sec1_is_read() {
    const PUBLIC: &str = include_str!("../../../tests/fixtures/rke/ec-public.pem");
    let key = Key::from_pem(include_str!("../../../tests/fixtures/rke/ec-sec1.pem")).unwrap();
    assert_eq!(key.public_pem("a key").unwrap(), PUBLIC);
    assert!(
        Key::from_pem(
            "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
        )
        .is_none()
    );
}

/// Signatures do not depend on which library read the key.
#[test]
fn a_key_that_was_read_signs_as_the_one_that_was_made() {
    use rcgen::SigningKey as _;
    let made = Key::derive(&Seed::new([7; 32]), "a key").unwrap();
    let read = Key::from_pem(made.to_pem("a key").unwrap().expose()).unwrap();
    assert_eq!(read.public(), made.public());
    assert_eq!(
        read.sign(b"a message").unwrap(),
        made.sign(b"a message").unwrap()
    );
    assert_eq!(read.to_pem("a key").unwrap(), made.to_pem("a key").unwrap());
}

/// In PKCS#8 the public half may be missing, and one of another key is a damaged file.
#[test]
fn a_private_key_with_anothers_public_half_is_refused() {
    let pem = |slot: &str| {
        let key = Key::derive(&Seed::new([7; 32]), slot).unwrap();
        key.to_pem(slot).unwrap().expose().clone()
    };
    let der = |pem: &str| {
        let block = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()).next();
        block.unwrap().unwrap().contents
    };
    let write = |der: &[u8]| {
        let document = p256::pkcs8::der::Document::try_from(der).unwrap();
        document
            .to_pem("PRIVATE KEY", p256::pkcs8::LineEnding::default())
            .unwrap()
    };
    let (one, other) = (der(&pem("one")), der(&pem("other")));
    assert!(Key::from_pem(&write(&one)).is_some());
    // The point is the last 64 bytes.
    let at = one.len() - 64;
    let mixed = [&one[..at], &other[at..]].concat();
    assert!(Key::from_pem(&write(&mixed)).is_none());
}

/// The serial counts the changes of the state: nothing else does.
#[test]
fn the_serial_grows_exactly_when_the_state_changes() {
    let intent = intent();
    let first = desired(&intent);
    assert_eq!(first.saved.serial, 1);
    let have = applied(&first);
    assert_eq!(
        reuse_or_issue(&intent, &have, 9).unwrap().saved,
        first.saved
    );
    let mut other = intent.clone();
    other.version.patch += 1;
    let next = reuse_or_issue(&other, &have, 9).unwrap().saved;
    assert_eq!(
        (next.serial, next.kubernetes_version),
        (2, Some(other.version))
    );
    // The members that etcd was made with are on record before the first one starts, and stay.
    let peers = &first.saved.etcd_bootstrap;
    assert_eq!(peers[&n1()], "https://10.0.0.2:2380");
    assert_eq!(next.etcd_bootstrap, *peers);
}

#[test]
fn of_several_copies_the_one_that_was_written_last_counts() {
    let intent = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let (desired, world) = store_lost(&intent);
    let mut newer = desired.saved.clone();
    newer.serial += 1;
    newer.etcd_ca = newer.cluster_ca.clone();
    newer.inventory.get_mut(&n1()).unwrap().user = "ubuntu".to_owned();
    for node in ["n1", "n2"] {
        let mut have = world.clone();
        write_copy(&mut have, node, codec::encode(&newer).expose());
        let keys = recover(&intent, &have, &desired.cluster_id).unwrap();
        assert_eq!(keys.saved.etcd_ca, newer.etcd_ca);
        let note = format!("the state is read back from node `{node}`");
        assert!(keys.notes.contains(&note), "{:?}", keys.notes);
    }
}

fn changed(before: &Keys, after: &Keys, leaves: &[CertKind]) {
    let differ: Vec<CertKind> = CertKind::ALL
        .into_iter()
        .filter(|kind| before.leaves[&(n1(), *kind)] != after.leaves[&(n1(), *kind)])
        .collect();
    assert_eq!(differ, leaves);
}

/// Rule 29 of many nodes: a context for each control plane, and the first server stays as long as it is
/// one and serves.
#[test]
fn the_kubeconfig_has_a_context_for_each_control_plane_and_stays_where_it_leads() {
    let all = [Role::ControlPlane, Role::Etcd];
    let three = intent_of(&[
        ("a", "10.0.0.1", &all),
        ("b", "10.0.0.2", &all),
        ("c", "10.0.0.3", &all),
    ]);
    let mut have = applied(&desired(&three));
    let name = &three.cluster_name;
    let now = |intent: &Intent, have: &Actual| reuse_or_issue(intent, have, 9).unwrap().kubeconfig;
    let first = have.kubeconfig.clone().unwrap();
    let server = |text: &Secret<String>| super::kubeconfig::server(text.expose(), name);
    assert_eq!(server(&first).as_deref(), Some("https://10.0.0.1:6443"));
    for (node, address) in [("a", 1), ("b", 2), ("c", 3)] {
        let context = super::kubeconfig::server(first.expose(), &format!("{name}-{node}"));
        assert_eq!(context, Some(format!("https://10.0.0.{address}:6443")));
    }
    assert_eq!(now(&three, &have), first);

    // It does not serve, and another does.
    let node = NodeName::from;
    let down = ApiHealth::Unreachable("refused".to_owned());
    have.apis = [(node("a"), down.clone()), (node("b"), ApiHealth::Serving)].into();
    let second = now(&three, &have);
    assert_eq!(server(&second).as_deref(), Some("https://10.0.0.2:6443"));
    have.kubeconfig = Some(second.clone());
    have.apis = ["a", "b", "c"]
        .map(|name| (node(name), ApiHealth::Serving))
        .into();
    assert_eq!(now(&three, &have), second, "it stays");
    have.apis = ["a", "b", "c"]
        .map(|name| (node(name), down.clone()))
        .into();
    assert_eq!(now(&three, &have), second, "none is better");

    // It is no control plane any more.
    let others = intent_of(&[("a", "10.0.0.1", &all), ("c", "10.0.0.3", &all)]);
    have.apis.clear();
    assert_eq!(
        server(&now(&others, &have)).as_deref(),
        Some("https://10.0.0.1:6443")
    );
}

#[test]
fn a_kubeconfig_that_leads_elsewhere_is_replaced_and_one_that_was_added_to_is_kept() {
    let intent = intent();
    let mut have = applied(&desired(&intent));
    let ours = have.kubeconfig.clone().unwrap();
    let edited = ours.expose().replace(
        "contexts:\n",
        "contexts:\n- name: mine\n  context: {cluster: local}\n",
    );
    have.kubeconfig = Some(Secret::new(edited.clone()));
    assert_eq!(
        reuse_or_issue(&intent, &have, 9)
            .unwrap()
            .kubeconfig
            .expose(),
        &edited
    );
    for (from, to) in [("10.0.0.2:6443", "10.0.0.9:6443"), ("kube-admin-", "x-")] {
        have.kubeconfig = Some(Secret::new(ours.expose().replace(from, to)));
        let new = reuse_or_issue(&intent, &have, 9).unwrap().kubeconfig;
        assert!(new.expose().contains("https://10.0.0.2:6443"));
        assert_ne!(Some(&new), have.kubeconfig.as_ref());
    }
}

#[test]
fn the_engine_gets_in_with_the_saved_state_alone() {
    let saved = desired(&intent()).saved;
    let seed = Seed::new([3; 32]);
    let engine = engine_clients(&saved, now(), &seed).unwrap();
    assert_eq!(engine.api.ca, saved.cluster_ca.bundle());
    let pair = |identity: &ClientIdentity| Pair {
        cert: identity.cert.clone(),
        key: identity.key.clone(),
    };
    let (api, in_etcd) = (pair(&engine.api), pair(&engine.etcd));
    is_client(&engine.api.ca, &api).unwrap();
    assert_eq!(engine.etcd.ca, saved.etcd_ca.bundle());
    is_client(&engine.etcd.ca, &in_etcd).unwrap();
    // etcd trusts none of the cluster's clients, and the API server none of etcd's.
    is_client(&engine.etcd.ca, &api).unwrap_err();
    is_client(&engine.api.ca, &in_etcd).unwrap_err();
    assert_ne!(api, in_etcd);
}

#[test]
fn new_keys_are_refused_with_what_was_found_where() {
    let intent = intent();
    let refusal = |change: &dyn Fn(&mut HostFacts)| {
        let mut have = blank(&intent);
        change(host_mut(&mut have, "n1"));
        reuse_or_issue(&intent, &have, 7).unwrap_err()
    };
    let id = ClusterId("ab".repeat(16));
    let claimed = refusal(&|facts| {
        facts.containers.insert(CLAIM.to_owned(), claim(&id));
    });
    insta::assert_snapshot!(
        claimed,
        @"there is no saved state, but node `n1` belongs to cluster `theirs` (id abababababababababababababababab): new keys would make that cluster useless, so none are made"
    );
    let pki = refusal(&|facts| {
        facts.system.paths.insert(path::SSL.to_owned());
    });
    insta::assert_snapshot!(
        pki,
        @"there is no saved state, but node `n1` has certificates in `/etc/kubernetes/ssl`: new keys would make a cluster there useless, so none are made"
    );
    let etcd = refusal(&|facts| {
        facts.system.paths.insert(path::ETCD.to_owned());
    });
    insta::assert_snapshot!(
        etcd,
        @"there is no saved state, but node `n1` has etcd data in `/var/lib/etcd`: new keys would make it useless, so none are made"
    );
    // Unknown is not full: `rke remove` leaves it empty, with mode 0700.
    let unreadable = refusal(&|facts| {
        facts.system.paths.insert(path::ETCD.to_owned());
        facts.system.unreadable.insert(path::ETCD.to_owned());
    });
    insta::assert_snapshot!(
        unreadable,
        @"there is no saved state, and only root may look into `/var/lib/etcd` on node `n1`: whether it holds the data of a cluster is not known"
    );
    assert_eq!(unreadable.class(), ErrorClass::User);
    assert!(unreadable.hints()[0].contains("sudo ls -A /var/lib/etcd"));
    for error in [claimed, pki, etcd] {
        assert_eq!(error.class(), ErrorClass::User);
        let recovers = |hint: &std::borrow::Cow<'_, str>| hint.contains("--recover");
        assert!(error.hints().iter().any(recovers), "{:?}", error.hints());
    }
}

#[test]
fn an_empty_mount_point_for_etcd_is_no_cluster() {
    let intent = intent();
    let mut have = blank(&intent);
    let system = &mut host_mut(&mut have, "n1").system;
    system.paths.insert(path::ETCD.to_owned());
    system.empty.insert(path::ETCD.to_owned());
    reuse_or_issue(&intent, &have, 7).unwrap();
}

#[test]
fn a_file_read_through_a_foreign_claim_counts_too() {
    let intent = intent();
    let mut have = blank(&intent);
    let file = FileFact {
        content: Arc::new(Secret::new(Vec::new())),
        mode: 0o600,
        uid: 0,
        gid: 0,
        is_dir: false,
    };
    let files = [("/etc/kubernetes/ssl/kube-ca.pem".to_owned(), file)];
    host_mut(&mut have, "n1").files = Some(files.into());
    let error = reuse_or_issue(&intent, &have, 7).unwrap_err();
    assert!(matches!(error, PkiError::NewButPki { .. }), "{error}");
}

/// What a host can be like, as far as invariant 2 is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Blank,
    EmptyFolder,
    Unreachable,
    Unseen,
    Claimed,
    Pki,
    Etcd,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Blank,
        Self::EmptyFolder,
        Self::Unreachable,
        Self::Unseen,
        Self::Claimed,
        Self::Pki,
        Self::Etcd,
    ];

    fn view(self) -> Option<HostView> {
        let mut host = facts();
        match self {
            Self::Blank => {}
            Self::EmptyFolder => {
                host.system.paths.insert(path::ETCD.to_owned());
                host.system.empty.insert(path::ETCD.to_owned());
            }
            Self::Unreachable => return Some(HostView::Unreachable(down())),
            Self::Unseen => return None,
            Self::Claimed => {
                let id = ClusterId("cd".repeat(16));
                host.containers.insert(CLAIM.to_owned(), claim(&id));
            }
            Self::Pki => {
                host.system.paths.insert(path::SSL.to_owned());
            }
            Self::Etcd => {
                host.system.paths.insert(path::ETCD.to_owned());
            }
        }
        Some(up(host))
    }
}

fn kinds() -> impl Strategy<Value = [Kind; 4]> {
    proptest::array::uniform4(proptest::sample::select(Kind::ALL.to_vec()))
}

/// Two etcd, one control plane, one worker, each of a kind.
fn world(kinds: [Kind; 4]) -> (Intent, Actual) {
    let intent = intent_of(&[
        ("a", "10.0.0.1", &[Role::Etcd]),
        ("b", "10.0.0.2", &[Role::Etcd]),
        ("c", "10.0.0.3", &[Role::ControlPlane]),
        ("d", "10.0.0.4", &[Role::Worker]),
    ]);
    let mut have = blank(&intent);
    have.hosts = intent
        .nodes
        .keys()
        .zip(kinds)
        .filter_map(|(name, kind)| Some((name.clone(), kind.view()?)))
        .collect();
    (intent, have)
}

/// The keys of that cluster, made once.
static KEPT: LazyLock<ClusterState> = LazyLock::new(|| desired(&world([Kind::Blank; 4]).0).saved);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Keys are made only when every etcd and control-plane host is sure to have nothing.
    #[test]
    fn never_new_over_something_or_over_the_unknown(kinds in kinds()) {
        let (intent, have) = world(kinds);
        let sure = kinds[..3]
            .iter()
            .all(|kind| matches!(kind, Kind::Blank | Kind::EmptyFolder));
        prop_assert_eq!(reuse_or_issue(&intent, &have, 7).is_ok(), sure);
    }

    /// Keys that the store has are kept, whatever the world looks like.
    #[test]
    fn saved_keys_are_kept_in_any_world(kinds in kinds(), recover: bool) {
        let (intent, mut have) = world(kinds);
        let saved = KEPT.clone();
        have.saved = Some(Box::new(saved.clone()));
        let id = recover.then(|| saved.cluster_id.clone());
        let keys = reuse_or_issue_at(&intent, &have, 9, now(), id.as_ref()).unwrap();
        prop_assert_eq!(keys.saved, saved);
    }

    /// Recovery makes nothing: it finds the very keys, or refuses.
    #[test]
    fn recovery_never_makes_keys(kinds in kinds()) {
        let (intent, have) = world(kinds);
        for id in [KEPT.cluster_id.clone(), ClusterId("cd".repeat(16))] {
            prop_assert!(recover(&intent, &have, &id).is_err());
        }
    }
}

/// The state after a takeover by id: the same keys and nodes, with the next serial.
fn taken_over(saved: &ClusterState) -> ClusterState {
    ClusterState {
        serial: saved.serial + 1,
        ..saved.clone()
    }
}

#[test]
fn lost_keys_are_read_back_when_asked_for_and_only_then() {
    let intent = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let (desired, have) = store_lost(&intent);
    let error = reuse_or_issue(&intent, &have, 9).unwrap_err();
    assert!(matches!(error, PkiError::NewButClaimed { .. }), "{error}");
    let keys = recover(&intent, &have, &desired.cluster_id).unwrap();
    assert_eq!(keys.saved, taken_over(&desired.saved));
    assert_eq!(keys.kubeconfig, desired.kubeconfig);
}

/// As they are: who has the other one has no older one from now on.
#[test]
fn a_copy_of_the_state_is_read_without_an_id() {
    let intent = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let (desired, mut have) = store_lost(&intent);
    let (copy, _) = copy_on_nodes(&intent, &have).unwrap().unwrap();
    assert_eq!(copy, desired.saved.copy());
    let other = claim(&ClusterId("ef".repeat(16)));
    let containers = &mut host_mut(&mut have, "n2").containers;
    containers.insert(CLAIM.to_owned(), other);
    let error = copy_on_nodes(&intent, &have).unwrap_err();
    assert!(matches!(error, PkiError::RecoverOther { .. }), "{error}");
    for name in ["n1", "n2"] {
        host_mut(&mut have, name).containers.clear();
    }
    assert_eq!(copy_on_nodes(&intent, &have).unwrap(), None);
}

/// What two control planes with a lost store say when one of them is changed.
fn refusal_of_recovery(change: &dyn Fn(&ClusterState, &mut Actual)) -> PkiError {
    let intent = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let (desired, mut have) = store_lost(&intent);
    change(&desired.saved, &mut have);
    recover(&intent, &have, &desired.cluster_id).unwrap_err()
}

fn write_copy(have: &mut Actual, node: &str, text: &str) {
    let files = host_mut(have, node).files.as_mut().unwrap();
    files.get_mut(path::STATE).unwrap().content = Arc::new(Secret::new(text.as_bytes().to_vec()));
}

#[test]
fn recovery_wants_the_id_of_the_cluster_that_the_nodes_carry() {
    let intent = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let (desired, have) = store_lost(&intent);
    let other = ClusterId("ef".repeat(16));
    let error = recover(&intent, &have, &other).unwrap_err();
    assert!(matches!(error, PkiError::RecoverOther { .. }), "{error}");
    // The refusal without it names the id that was found.
    let error = reuse_or_issue(&intent, &have, 9).unwrap_err();
    let typed = format!("--recover {}", desired.cluster_id);
    let named = error.hints().iter().any(|hint| hint.contains(&typed));
    assert!(named, "{:?}", error.hints());
}

#[test]
fn one_control_plane_that_answers_is_enough_for_a_recovery() {
    let intent = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let (desired, world) = store_lost(&intent);
    for change in [
        &(|have: &mut Actual| {
            let silent = HostView::Unreachable(down());
            have.hosts.insert(NodeName::from("n1"), silent);
        }) as &dyn Fn(&mut Actual),
        &|have| {
            host_mut(have, "n1").containers.clear();
        },
        &|have| {
            let files = host_mut(have, "n1").files.as_mut().unwrap();
            files.remove(path::STATE);
        },
    ] {
        let mut have = world.clone();
        change(&mut have);
        let silent = have.up(&n1()).is_none();
        let keys = recover(&intent, &have, &desired.cluster_id).unwrap();
        assert_eq!(keys.saved, taken_over(&desired.saved));
        // Who does not answer is named: it may have a newer copy.
        assert_eq!(keys.notes[0].contains("`n1`"), silent, "{:?}", keys.notes);
    }
}

#[test]
fn recovery_is_refused_when_no_control_plane_has_a_copy() {
    let error = refusal_of_recovery(&|_, have| {
        for name in ["n1", "n2"] {
            host_mut(have, name).containers.clear();
        }
    });
    assert!(
        error
            .to_string()
            .ends_with("no control plane of the config belongs to it"),
        "{error}"
    );
    let error = refusal_of_recovery(&|_, have| {
        host_mut(have, "n1").containers.clear();
        let silent = HostView::Unreachable(down());
        have.hosts.insert(NodeName::from("n2"), silent);
    });
    assert!(
        error.to_string().ends_with("no answer from `n2`"),
        "{error}"
    );
    assert_eq!(error.class(), ErrorClass::Host);
    let error = refusal_of_recovery(&|_, have| {
        for name in ["n1", "n2"] {
            host_mut(have, name)
                .files
                .as_mut()
                .unwrap()
                .remove(path::STATE);
        }
    });
    assert!(matches!(error, PkiError::RecoverNoCopy { .. }), "{error}");
}

#[test]
fn recovery_takes_no_other_clusters_node_and_no_other_clusters_copy() {
    let error = refusal_of_recovery(&|_, have| {
        let other = claim(&ClusterId("ef".repeat(16)));
        let containers = &mut host_mut(have, "n2").containers;
        containers.insert(CLAIM.to_owned(), other);
    });
    assert!(matches!(error, PkiError::RecoverOther { .. }), "{error}");
    let error = refusal_of_recovery(&|saved, have| {
        let mut other = saved.clone();
        other.cluster_id = ClusterId("ef".repeat(16));
        write_copy(have, "n2", codec::encode(&other).expose());
    });
    assert!(
        error.to_string().ends_with("it is another cluster's"),
        "{error}"
    );
    let error = refusal_of_recovery(&|_, have| write_copy(have, "n2", "{"));
    assert!(matches!(error, PkiError::RecoverBadCopy { .. }), "{error}");
}

/// Each key counts: copies that were written at one time and differ are not copies of one state.
#[test]
fn recovery_wants_the_same_keys_in_every_copy() {
    type Change = fn(&mut ClusterState);
    let changes: [Change; 6] = [
        |copy| copy.cluster_ca = copy.etcd_ca.clone(),
        |copy| copy.etcd_ca = copy.cluster_ca.clone(),
        |copy| copy.front_proxy_ca = copy.etcd_ca.clone(),
        |copy| copy.signer_ca = Some(copy.etcd_ca.clone()),
        |copy| copy.service_accounts.signing = copy.etcd_ca.signing.key.clone().unwrap(),
        |copy| {
            copy.encryption.push(EncryptionKey {
                name: "key1".to_owned(),
                secret: Secret::new("c2VjcmV0".to_owned()),
            });
        },
    ];
    for change in changes {
        let error = refusal_of_recovery(&|saved, have| {
            let mut other = saved.clone();
            change(&mut other);
            write_copy(have, "n2", codec::encode(&other).expose());
        });
        assert!(error.to_string().contains("differ from"), "{error}");
    }
}

#[test]
fn recovery_wants_the_nodes_roles_and_addresses_of_the_config() {
    type Change = fn(&mut ClusterState);
    let changes: [(Change, &str); 3] = [
        (
            |copy| {
                copy.inventory.remove(&NodeName::from("n2"));
            },
            "the copy does not name `n2`",
        ),
        (
            |copy| copy.inventory.get_mut(&n1()).unwrap().roles = vec![Role::Worker],
            "the roles of `n1` differ",
        ),
        (
            |copy| {
                let endpoint = &mut copy.inventory.get_mut(&n1()).unwrap().endpoint;
                "10.0.0.9".clone_into(&mut endpoint.address);
            },
            "`n1` is at 10.0.0.9 in the copy and at 10.0.0.2 in the config",
        ),
    ];
    for (change, words) in changes {
        let error = refusal_of_recovery(&|saved, have| {
            let mut other = saved.clone();
            change(&mut other);
            for name in ["n1", "n2"] {
                write_copy(have, name, codec::encode(&other).expose());
            }
        });
        assert!(error.to_string().ends_with(words), "{error}");
    }
}

#[test]
fn a_file_that_names_one_node_of_a_cluster_does_not_recover_it() {
    let both = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let (desired, have) = store_lost(&both);
    let id = &desired.cluster_id;
    let one = intent_of(&[("n1", "10.0.0.2", &ALL)]);
    let error = recover(&one, &have, id).unwrap_err();
    assert!(
        matches!(error, PkiError::RecoverInventory { .. }),
        "{error}"
    );
    let mut other = both.clone();
    "other".clone_into(&mut other.cluster_name);
    insta::assert_snapshot!(
        recover(&other, &have, id).unwrap_err(),
        @"cannot recover the state: node `n1` belongs to cluster `local`, and the config is that of cluster `other`"
    );
    // The same node under another address is another node.
    let moved = intent_of(&[("n1", "10.0.0.9", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let error = recover(&moved, &have, id).unwrap_err();
    assert!(
        matches!(error, PkiError::RecoverInventory { .. }),
        "{error}"
    );
}

#[test]
fn a_cluster_that_another_object_holds_is_not_recovered() {
    let intent = intent();
    let (desired, have) = store_lost(&intent);
    let held = BTreeSet::from([desired.cluster_id.clone()]);
    let context = PkiContext {
        now: now(),
        seed: Seed::new([9; 32]),
        recover: Some(&desired.cluster_id),
        accept_etcd: None,
        rotate: None,
        rotate_key: false,
        service_account_key: None,
        authorities: None,
        restore: None,
        held_elsewhere: &held,
        lose: &NO_NODE,
        clean: &NO_NODE,
        given: None,
    };
    let error = reconcile(&intent, &have, &context).unwrap_err();
    assert!(matches!(error, PkiError::RecoverHeld { .. }), "{error}");
    let free = PkiContext {
        held_elsewhere: &NONE_HELD,
        ..context
    };
    reconcile(&intent, &have, &free).unwrap();
}

#[test]
fn a_damaged_state_is_an_error_and_never_new_keys() {
    let intent = intent();
    let have = applied(&desired(&intent));
    let refusal = |change: &dyn Fn(&mut ClusterState)| {
        let mut have = have.clone();
        change(have.saved.as_mut().unwrap());
        reuse_or_issue(&intent, &have, 9).unwrap_err().to_string()
    };
    insta::assert_snapshot!(
        refusal(&|saved| saved.etcd_ca.signing.key = saved.cluster_ca.signing.key.clone()),
        @"the saved state is damaged: etcd's CA: its key and its certificate do not belong together"
    );
    insta::assert_snapshot!(
        refusal(&|saved| saved.cluster_ca.signing.cert.clear()),
        @"the saved state is damaged: the cluster's CA: its certificate is not PEM"
    );
    insta::assert_snapshot!(
        refusal(&|saved| saved.service_accounts.signing = Secret::new(String::new())),
        @"the saved state is damaged: the service-account key: it is not a P-256 or RSA key in PEM"
    );
}

#[test]
fn the_inventory_follows_the_intent_and_forgets_no_node() {
    let both = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let mut have = applied(&desired(&both));
    let mut one = intent_of(&[("n1", "10.0.0.2", &ALL)]);
    for node in one.nodes.values_mut() {
        node.login.user = "ubuntu".to_owned();
    }
    have.hosts.remove(&NodeName::from("n2"));
    let inventory = reuse_or_issue(&one, &have, 9).unwrap().saved.inventory;
    assert_eq!(inventory[&n1()].user, "ubuntu");
    assert_eq!(inventory[&n1()].membership, Membership::Active);
    let gone = &inventory[&NodeName::from("n2")];
    assert_eq!(gone.user, "rke");
    assert_eq!(gone.membership, Membership::Leaving);
}

/// Rule 10: what a person gives up stays as a tombstone, until a machine of that name has nothing of it.
#[test]
fn a_node_that_is_given_up_stays_as_a_tombstone() {
    let both = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let one = intent_of(&[("n1", "10.0.0.2", &ALL)]);
    let n2 = NodeName::from("n2");
    let mut have = applied(&desired(&both));
    let answers = have.hosts[&n2].clone();
    let (lose, lose_none) = (BTreeSet::from([n2.clone()]), BTreeSet::new());
    let saved = |intent: &Intent, have: &Actual, lose: &BTreeSet<NodeName>| {
        let context = PkiContext {
            now: now(),
            seed: Seed::new([9; 32]),
            recover: None,
            accept_etcd: None,
            rotate: None,
            rotate_key: false,
            service_account_key: None,
            authorities: None,
            restore: None,
            held_elsewhere: &NONE_HELD,
            lose,
            clean: &NO_NODE,
            given: None,
        };
        reconcile(intent, have, &context).unwrap().saved
    };
    let membership = |saved: &ClusterState| saved.inventory[&n2].membership;
    let alive = saved(&one, &have, &lose);
    assert_eq!(membership(&alive), Membership::Leaving, "it answers");
    have.hosts.insert(n2.clone(), HostView::Unreachable(down()));
    let silent = saved(&one, &have, &lose_none);
    assert_eq!(
        membership(&silent),
        Membership::Leaving,
        "it was not given up"
    );
    let named = saved(&both, &have, &lose);
    assert_eq!(
        membership(&named),
        Membership::Active,
        "the config names it"
    );
    let lost = saved(&one, &have, &lose);
    assert_eq!(membership(&lost), Membership::Lost);
    assert_eq!(lost.inventory[&n2].lost_at, Some(now()));
    assert!(!lost.etcd_bootstrap.contains_key(&n2));
    // It stays lost, and does not become a node again while the machine still has something of the cluster.
    have.saved = Some(Box::new(lost.clone()));
    assert_eq!(saved(&one, &have, &lose_none), lost);
    have.hosts.insert(n2.clone(), answers);
    assert_eq!(
        membership(&saved(&both, &have, &lose_none)),
        Membership::Lost
    );
}

#[test]
fn nothing_secret_is_printed() {
    let intent = intent();
    let keys = reuse_or_issue(&intent, &blank(&intent), 7).unwrap();
    assert!(!format!("{keys:?}").contains("PRIVATE KEY"));
}

/// A new authority may sign the one that takes its place.
#[test]
fn authorities_have_no_path_length() {
    let saved = desired(&intent()).saved;
    for authority in [&saved.cluster_ca, &saved.etcd_ca, &saved.front_proxy_ca] {
        let der = CertificateDer::from_pem_slice(authority.signing.cert.as_bytes()).unwrap();
        let (_, cert) = x509_parser::parse_x509_certificate(&der).unwrap();
        let constraints = cert.basic_constraints().unwrap().unwrap().value;
        assert!(constraints.ca);
        assert_eq!(constraints.path_len_constraint, None);
    }
}

/// What verified a node is kept with it, also while it does not answer; another key takes its place.
#[test]
fn the_inventory_keeps_the_host_keys() {
    let intent = intent();
    let mut have = applied(&desired(&intent));
    let keys = |have: &Actual| {
        let saved = reuse_or_issue(&intent, have, 9).unwrap().saved;
        saved.inventory[&n1()].host_keys.clone()
    };
    assert_eq!(keys(&have), [""; 0]);
    host_mut(&mut have, "n1").system.host_key = Some("ssh-ed25519 AAAA".to_owned());
    assert_eq!(keys(&have), ["ssh-ed25519 AAAA"]);
    have.saved = Some(Box::new(reuse_or_issue(&intent, &have, 9).unwrap().saved));
    host_mut(&mut have, "n1").files = None;
    host_mut(&mut have, "n1").system.host_key = None;
    assert_eq!(keys(&have), ["ssh-ed25519 AAAA"]);
    host_mut(&mut have, "n1").system.host_key = Some("ssh-ed25519 BBBB".to_owned());
    assert_eq!(keys(&have), ["ssh-ed25519 BBBB"]);
}

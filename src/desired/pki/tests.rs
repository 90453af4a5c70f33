//! Invariant 2, and that certificates do what they are for.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use proptest::prelude::*;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use super::{Keys, Leaf, Pair, PkiContext, PkiError, Seed, engine_client, reconcile};
use crate::{
    actual::{Actual, FileFact, HostFacts, HostView},
    config::{Intent, NodeName, Role},
    desired::{
        CLAIM, Desired,
        fixture::{
            NOBODY, applied, blank, claim, down, drawn, facts, intent, intent_of, now, settle,
            settle_at, up,
        },
        path,
    },
    error::{Blame, Explain as _},
    secret::Secret,
    state::{ClusterId, Saved, codec},
};

const ALL: [Role; 3] = [Role::Etcd, Role::ControlPlane, Role::Worker];

fn n1() -> NodeName {
    NodeName::from("n1")
}

fn host_mut<'a>(have: &'a mut Actual, name: &str) -> &'a mut HostFacts {
    match have.hosts.get_mut(&NodeName::from(name)) {
        Some(HostView::Up(facts)) => facts,
        other => panic!("{other:?}"),
    }
}

/// The store lost it; the nodes have everything.
fn store_lost(intent: &Intent) -> (Desired, Actual) {
    let desired = drawn(intent);
    let mut have = applied(&desired);
    have.saved = None;
    (desired, have)
}

fn recover(intent: &Intent, have: &Actual) -> Result<Keys, PkiError> {
    settle_at(intent, have, 9, now(), true)
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
    let keys = settle(&intent, &blank(&intent), 7).unwrap();
    let cluster = &keys.saved.cluster_ca.cert;
    let etcd = &keys.saved.etcd_ca.cert;
    let front = &keys.saved.front_proxy_ca.cert;
    let pair = |leaf| &keys.leaves[&(n1(), leaf)];
    for name in [
        "10.0.0.2",
        "127.0.0.1",
        "10.43.0.1",
        "n1",
        "localhost",
        "kubernetes.default.svc.cluster.local",
    ] {
        serves(cluster, pair(Leaf::ApiServer), name).unwrap();
    }
    serves(cluster, pair(Leaf::ApiServer), "10.0.0.3").unwrap_err();
    serves(cluster, pair(Leaf::Kubelet), "10.0.0.2").unwrap();
    for name in ["10.0.0.2", "127.0.0.1"] {
        serves(etcd, pair(Leaf::Etcd), name).unwrap();
    }
    is_client(etcd, pair(Leaf::Etcd)).unwrap();
    is_client(etcd, pair(Leaf::ApiServerEtcdClient)).unwrap();
    is_client(front, pair(Leaf::FrontProxyClient)).unwrap();
    for leaf in [
        Leaf::ApiServerKubeletClient,
        Leaf::ControllerManager,
        Leaf::Scheduler,
        Leaf::Node,
        Leaf::KubeProxy,
    ] {
        is_client(cluster, pair(leaf)).unwrap();
        // etcd trusts none of the cluster's clients.
        is_client(etcd, pair(leaf)).unwrap_err();
        serves(cluster, pair(leaf), "10.0.0.2").unwrap_err();
    }
    is_client(cluster, pair(Leaf::ApiServer)).unwrap_err();
    is_client(cluster, &keys.engine_client().pair).unwrap();
}

#[test]
fn serials_and_keys_are_all_different() {
    let intent = intent();
    let keys = settle(&intent, &blank(&intent), 7).unwrap();
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
    assert_eq!(serials.len(), Leaf::ALL.len());
    let keys: BTreeSet<&str> = keys
        .leaves
        .values()
        .map(|pair| pair.key.expose().as_str())
        .collect();
    assert_eq!(keys.len(), Leaf::ALL.len());
}

#[test]
fn the_same_arguments_give_the_same_bytes_and_another_seed_others() {
    let intent = intent();
    let have = blank(&intent);
    assert_eq!(settle(&intent, &have, 7), settle(&intent, &have, 7));
    let (one, other) = (
        settle(&intent, &have, 7).unwrap(),
        settle(&intent, &have, 8).unwrap(),
    );
    assert_ne!(one.saved.cluster_id, other.saved.cluster_id);
    assert_ne!(one.saved.cluster_ca, other.saved.cluster_ca);
    assert_ne!(one.digest(b"password"), other.digest(b"password"));
}

#[test]
fn what_a_node_has_is_kept_and_what_no_longer_says_what_it_must_is_made_anew() {
    let intent = intent();
    let have = applied(&drawn(&intent));
    let first = settle(&intent, &blank(&intent), 7).unwrap();
    let again = settle(&intent, &have, 9).unwrap();
    assert_eq!(again.leaves, first.leaves);
    assert_eq!(again.kubeconfig, first.kubeconfig);

    // A key of another certificate.
    let mut torn = have.clone();
    let files = host_mut(&mut torn, "n1").files.as_mut().unwrap();
    let other = files["/etc/kubernetes/ssl/kube-proxy-key.pem"].clone();
    files.insert("/etc/kubernetes/ssl/kube-node-key.pem".to_owned(), other);
    changed(&first, &settle(&intent, &torn, 9).unwrap(), &[Leaf::Node]);

    // Another name of the API server and of the node.
    let mut renamed = intent.clone();
    renamed.services.cluster_domain = "example.internal".to_owned();
    let keys = settle(&renamed, &have, 9).unwrap();
    changed(&first, &keys, &[Leaf::ApiServer]);
    assert_eq!(keys.kubeconfig, first.kubeconfig);

    // Another authority.
    let mut another = have.clone();
    another.saved = Some(Box::new(settle(&intent, &blank(&intent), 8).unwrap().saved));
    let keys = settle(&intent, &another, 9).unwrap();
    changed(&first, &keys, &Leaf::ALL);
    assert_ne!(keys.kubeconfig, first.kubeconfig);
}

#[test]
fn an_old_leaf_is_kept_and_an_expired_one_is_not() {
    let intent = intent();
    let have = applied(&drawn(&intent));
    let first = settle(&intent, &have, 7).unwrap();
    let days = |days: i64| {
        now()
            .checked_add(jiff::SignedDuration::from_hours(24 * days))
            .unwrap()
    };
    let old = settle_at(&intent, &have, 9, days(364), false).unwrap();
    assert_eq!(old.leaves, first.leaves);
    let expired = settle_at(&intent, &have, 9, days(366), false).unwrap();
    changed(&first, &expired, &Leaf::ALL);
    assert_ne!(expired.kubeconfig, first.kubeconfig);
}

fn changed(before: &Keys, after: &Keys, leaves: &[Leaf]) {
    let differ: Vec<Leaf> = Leaf::ALL
        .into_iter()
        .filter(|leaf| before.leaves[&(n1(), *leaf)] != after.leaves[&(n1(), *leaf)])
        .collect();
    assert_eq!(differ, leaves);
}

#[test]
fn a_kubeconfig_that_leads_elsewhere_is_replaced_and_one_that_was_added_to_is_kept() {
    let intent = intent();
    let mut have = applied(&drawn(&intent));
    let ours = have.kubeconfig.clone().unwrap();
    let edited = ours.expose().replace(
        "contexts:\n",
        "contexts:\n- name: mine\n  context: {cluster: local}\n",
    );
    have.kubeconfig = Some(Secret::new(edited.clone()));
    assert_eq!(
        settle(&intent, &have, 9).unwrap().kubeconfig.expose(),
        &edited
    );
    for (from, to) in [("10.0.0.2:6443", "10.0.0.9:6443"), ("kube-admin-", "x-")] {
        have.kubeconfig = Some(Secret::new(ours.expose().replace(from, to)));
        let new = settle(&intent, &have, 9).unwrap().kubeconfig;
        assert!(new.expose().contains("https://10.0.0.2:6443"));
        assert_ne!(Some(&new), have.kubeconfig.as_ref());
    }
}

#[test]
fn the_engine_gets_in_with_the_saved_state_alone() {
    let saved = drawn(&intent()).saved;
    let seed = Seed::new([3; 32]);
    let engine = engine_client(&saved, now(), &seed).unwrap();
    assert_eq!(engine.ca, saved.cluster_ca.cert);
    is_client(&engine.ca, &engine.pair).unwrap();
}

#[test]
fn new_keys_are_refused_with_what_was_found_where() {
    let intent = intent();
    let refusal = |change: &dyn Fn(&mut HostFacts)| {
        let mut have = blank(&intent);
        change(host_mut(&mut have, "n1"));
        settle(&intent, &have, 7).unwrap_err()
    };
    let id = ClusterId("ab".repeat(16));
    let claimed = refusal(&|facts| {
        facts.containers.insert(CLAIM.to_owned(), claim(&id));
    });
    insta::assert_snapshot!(
        claimed,
        @"there is no saved state, but node `n1` belongs to cluster `theirs` (id abababababababababababababababab): no new keys are made over a cluster"
    );
    let pki = refusal(&|facts| {
        facts.system.paths.insert(path::SSL.to_owned());
    });
    insta::assert_snapshot!(
        pki,
        @"there is no saved state, but node `n1` has certificates in `/etc/kubernetes/ssl`: no new keys are made over a cluster"
    );
    let etcd = refusal(&|facts| {
        facts.system.paths.insert(path::ETCD.to_owned());
    });
    insta::assert_snapshot!(
        etcd,
        @"there is no saved state, but node `n1` has etcd data in `/var/lib/etcd`: no new keys are made over a cluster"
    );
    for error in [claimed, pki, etcd] {
        assert_eq!(error.blame(), Blame::User);
        assert!(error.hints()[0].contains("--recover"));
    }
}

#[test]
fn an_empty_mount_point_for_etcd_is_no_cluster() {
    let intent = intent();
    let mut have = blank(&intent);
    let system = &mut host_mut(&mut have, "n1").system;
    system.paths.insert(path::ETCD.to_owned());
    system.empty.insert(path::ETCD.to_owned());
    settle(&intent, &have, 7).unwrap();
}

#[test]
fn a_file_read_through_a_foreign_claim_counts_too() {
    let intent = intent();
    let mut have = blank(&intent);
    let file = FileFact {
        content: Secret::new(Vec::new()),
        mode: 0o600,
        uid: 0,
        gid: 0,
        is_dir: false,
    };
    let files = [("/etc/kubernetes/ssl/kube-ca.pem".to_owned(), file)];
    host_mut(&mut have, "n1").files = Some(files.into());
    let error = settle(&intent, &have, 7).unwrap_err();
    assert!(matches!(error, PkiError::NewButPki { .. }), "{error}");
}

/// What a host can be like, as far as invariant 2 is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Blank,
    EmptyFolder,
    Down,
    Unseen,
    Claimed,
    Pki,
    Etcd,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Blank,
        Self::EmptyFolder,
        Self::Down,
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
            Self::Down => return Some(HostView::Down(down())),
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
static KEPT: LazyLock<Saved> = LazyLock::new(|| drawn(&world([Kind::Blank; 4]).0).saved);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Keys are made only when every etcd and control-plane host is sure to have nothing.
    #[test]
    fn never_new_over_something_or_over_the_unknown(kinds in kinds()) {
        let (intent, have) = world(kinds);
        let sure = kinds[..3]
            .iter()
            .all(|kind| matches!(kind, Kind::Blank | Kind::EmptyFolder));
        prop_assert_eq!(settle(&intent, &have, 7).is_ok(), sure);
    }

    /// Keys that the store has are kept, whatever the world looks like.
    #[test]
    fn saved_keys_are_kept_in_any_world(kinds in kinds(), recover: bool) {
        let (intent, mut have) = world(kinds);
        let saved = KEPT.clone();
        have.saved = Some(Box::new(saved.clone()));
        let keys = settle_at(&intent, &have, 9, now(), recover).unwrap();
        prop_assert_eq!(keys.saved, saved);
    }

    /// Recovery makes nothing: it finds the very keys, or refuses.
    #[test]
    fn recovery_never_makes_keys(kinds in kinds()) {
        let (intent, have) = world(kinds);
        prop_assert!(recover(&intent, &have).is_err());
    }
}

#[test]
fn lost_keys_are_read_back_when_asked_for_and_only_then() {
    let intent = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let (desired, have) = store_lost(&intent);
    let error = settle(&intent, &have, 9).unwrap_err();
    assert!(matches!(error, PkiError::NewButClaimed { .. }), "{error}");
    let keys = recover(&intent, &have).unwrap();
    assert_eq!(keys.saved, desired.saved);
    assert_eq!(keys.kubeconfig, desired.kubeconfig);
}

#[test]
fn recovery_is_refused_when_one_of_its_rules_does_not_hold() {
    let intent = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let (desired, world) = store_lost(&intent);
    let refusal = |change: &dyn Fn(&mut Actual)| {
        let mut have = world.clone();
        change(&mut have);
        recover(&intent, &have).unwrap_err()
    };
    let n2 = NodeName::from("n2");
    let error = refusal(&|have| {
        have.hosts.insert(n2.clone(), HostView::Down(down()));
    });
    assert!(matches!(error, PkiError::RecoverDown { .. }), "{error}");
    let error = refusal(&|have| {
        host_mut(have, "n2").containers.clear();
    });
    assert!(
        matches!(error, PkiError::RecoverUnclaimed { .. }),
        "{error}"
    );
    let error = refusal(&|have| {
        let other = claim(&ClusterId("ef".repeat(16)));
        host_mut(have, "n2")
            .containers
            .insert(CLAIM.to_owned(), other);
    });
    assert!(matches!(error, PkiError::RecoverMixed { .. }), "{error}");
    let error = refusal(&|have| {
        host_mut(have, "n2")
            .files
            .as_mut()
            .unwrap()
            .remove(path::STATE);
    });
    assert!(matches!(error, PkiError::RecoverNoCopy { .. }), "{error}");
    let state = |have: &mut Actual, text: &str| {
        let files = host_mut(have, "n2").files.as_mut().unwrap();
        files.get_mut(path::STATE).unwrap().content = Secret::new(text.as_bytes().to_vec());
    };
    let error = refusal(&|have| state(have, "{"));
    assert!(matches!(error, PkiError::RecoverBadCopy { .. }), "{error}");
    let error = refusal(&|have| {
        let mut other = desired.saved.clone();
        other.etcd_ca = other.cluster_ca.clone();
        state(have, codec::encode(&other).expose());
    });
    assert!(matches!(error, PkiError::RecoverBadCopy { .. }), "{error}");
    let error = refusal(&|have| {
        let mut other = desired.saved.clone();
        other.inventory.remove(&n2);
        state(have, codec::encode(&other).expose());
    });
    insta::assert_snapshot!(
        error,
        @"cannot recover the state: the config and the copy on node `n2` do not name the same nodes: the copy does not name `n2`"
    );
}

#[test]
fn a_file_that_names_one_node_of_a_cluster_does_not_recover_it() {
    let both = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let (_, have) = store_lost(&both);
    let one = intent_of(&[("n1", "10.0.0.2", &ALL)]);
    let error = recover(&one, &have).unwrap_err();
    assert!(
        matches!(error, PkiError::RecoverInventory { .. }),
        "{error}"
    );
    let mut other = both.clone();
    "other".clone_into(&mut other.cluster_name);
    insta::assert_snapshot!(
        recover(&other, &have).unwrap_err(),
        @"cannot recover the state: node `n1` belongs to cluster `local`, and the config is that of cluster `other`"
    );
    // The same node under another address is another node.
    let moved = intent_of(&[("n1", "10.0.0.9", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let error = recover(&moved, &have).unwrap_err();
    assert!(
        matches!(error, PkiError::RecoverInventory { .. }),
        "{error}"
    );
}

#[test]
fn a_cluster_that_another_object_holds_is_not_recovered() {
    let intent = intent();
    let (desired, have) = store_lost(&intent);
    let held = BTreeSet::from([desired.cluster_id]);
    let context = PkiContext {
        now: now(),
        seed: Seed::new([9; 32]),
        recover: true,
        held_elsewhere: &held,
    };
    let error = reconcile(&intent, &have, &context).unwrap_err();
    assert!(matches!(error, PkiError::RecoverHeld { .. }), "{error}");
    let free = PkiContext {
        held_elsewhere: &NOBODY,
        ..context
    };
    reconcile(&intent, &have, &free).unwrap();
}

#[test]
fn a_damaged_state_is_an_error_and_never_new_keys() {
    let intent = intent();
    let have = applied(&drawn(&intent));
    let refusal = |change: &dyn Fn(&mut Saved)| {
        let mut have = have.clone();
        change(have.saved.as_mut().unwrap());
        settle(&intent, &have, 9).unwrap_err().to_string()
    };
    insta::assert_snapshot!(
        refusal(&|saved| saved.etcd_ca.key = saved.cluster_ca.key.clone()),
        @"the saved state is damaged: etcd's CA: its key and its certificate do not belong together"
    );
    insta::assert_snapshot!(
        refusal(&|saved| saved.cluster_ca.cert.clear()),
        @"the saved state is damaged: the cluster's CA: its certificate is not PEM"
    );
    insta::assert_snapshot!(
        refusal(&|saved| saved.service_account_key = Secret::new(String::new())),
        @"the saved state is damaged: the service-account key: it is not an ECDSA P-256 key in PKCS#8 PEM"
    );
}

#[test]
fn the_inventory_follows_the_intent_and_forgets_nobody() {
    let both = intent_of(&[("n1", "10.0.0.2", &ALL), ("n2", "10.0.0.3", &ALL)]);
    let mut have = applied(&drawn(&both));
    let mut one = intent_of(&[("n1", "10.0.0.2", &ALL)]);
    for node in one.nodes.values_mut() {
        node.login.user = "ubuntu".to_owned();
    }
    have.hosts.remove(&NodeName::from("n2"));
    let inventory = settle(&one, &have, 9).unwrap().saved.inventory;
    assert_eq!(inventory[&n1()].user, "ubuntu");
    assert_eq!(inventory[&NodeName::from("n2")].user, "rke");
}

#[test]
fn nothing_secret_is_printed() {
    let intent = intent();
    let keys = settle(&intent, &blank(&intent), 7).unwrap();
    assert!(!format!("{keys:?}").contains("PRIVATE KEY"));
}

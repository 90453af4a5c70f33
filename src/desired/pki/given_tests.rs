//! Certificates that a user supplies: used as they are, validated, and never replaced by ours.

use jiff::{SignedDuration, Timestamp};

use super::{
    CertKind, GivenFiles, Keys, PkiContext, PkiError, RotationStage, Seed, ServiceAccountKeyError,
    cert::{Authority, new_authority},
    cert_kind::Signer,
    engine_clients,
    reconcile::{admin, reconcile},
};
use crate::{
    config::Intent,
    desired::{
        Desired,
        fixture::{NO_NODE, NONE_HELD, applied, blank, desired, down, intent_of, now},
    },
    error::Explain as _,
    facts::{Actual, HostView},
    model::{NodeName, Role, Secret},
    state::{self, codec},
};

const ALL: [Role; 3] = [Role::Etcd, Role::ControlPlane, Role::Worker];

fn one() -> Intent {
    intent_of(&[("n1", "10.0.0.2", &ALL)])
}

fn ca(name: &str, since: Timestamp) -> state::Authority {
    new_authority(name, name, &Seed::new([1; 32]), since).unwrap()
}

/// A person's folder.
struct Folder(Vec<(String, Secret<String>)>);

impl Folder {
    fn add(&mut self, stem: &str, cert: &str, key: Option<&Secret<String>>) {
        self.0.retain(|(name, _)| {
            *name != format!("{stem}.pem") && *name != format!("{stem}-key.pem")
        });
        let cert = Secret::new(cert.to_owned());
        self.0.push((format!("{stem}.pem"), cert));
        let key = key.map(|key| (format!("{stem}-key.pem"), key.clone()));
        self.0.extend(key);
    }

    /// The authority alone, with its key or without.
    fn of(authority: &state::Authority, with_key: bool) -> Self {
        let mut folder = Self(Vec::new());
        let key = authority.signing.key.as_ref().filter(|_| with_key);
        folder.add("kube-ca", &authority.signing.cert, key);
        folder
    }

    /// And what it signed at that time for these nodes.
    fn signed(mut self, authority: &state::Authority, intent: &Intent, at: Timestamp) -> Self {
        let signs = Authority::read(authority, "").unwrap();
        let seed = Seed::new([2; 32]);
        for (name, node) in &intent.nodes {
            for kind in CertKind::ALL {
                let has_it = kind.role().is_none_or(|role| node.roles.contains(&role));
                if has_it && kind.signer() == Signer::Cluster {
                    let stem = kind.wanted_name(intent, node);
                    let spec = kind.spec(intent, name, node, None);
                    let pair = signs.issue(&spec, &stem, &seed, at).unwrap();
                    self.add(&stem, &pair.cert, Some(&pair.key));
                }
            }
        }
        let pair = signs.issue(&admin(), "kube-admin", &seed, at).unwrap();
        self.add("kube-admin", &pair.cert, Some(&pair.key));
        self
    }

    fn text(&self, name: &str) -> &str {
        let file = self.0.iter().find(|(found, _)| found == name);
        file.unwrap().1.expose()
    }
}

fn keys(
    intent: &Intent,
    have: &Actual,
    folder: Option<&Folder>,
    now: Timestamp,
) -> Result<Keys, PkiError> {
    rotated_keys(intent, have, folder, now, None)
}

fn rotated_keys(
    intent: &Intent,
    have: &Actual,
    folder: Option<&Folder>,
    now: Timestamp,
    service_account_key: Option<RotationStage>,
) -> Result<Keys, PkiError> {
    let given = folder.map(|folder| GivenFiles::new("certs", folder.0.clone()));
    let context = PkiContext {
        now,
        seed: Seed::new([9; 32]),
        recover: None,
        accept_etcd: None,
        rotate: None,
        rotate_key: false,
        service_account_key,
        authorities: None,
        restore: None,
        held_elsewhere: &NONE_HELD,
        lose: &NO_NODE,
        clean: &NO_NODE,
        given: given.as_ref(),
    };
    reconcile(intent, have, &context)
}

fn made(intent: &Intent, folder: &Folder) -> (Keys, Actual) {
    let have = blank(intent);
    let keys = keys(intent, &have, Some(folder), now()).unwrap();
    let desired = Desired::from_intent(intent, &keys, &have).unwrap();
    (keys, applied(&desired))
}

fn leaf(keys: &Keys, name: &str, kind: CertKind) -> String {
    keys.leaves[&(NodeName::from(name), kind)].cert.clone()
}

/// What is not there is made with the key; authorities that were not given are ours.
#[test]
fn an_authority_with_its_key_signs_the_rest() {
    let (intent, authority) = (one(), ca("the company", now()));
    let (keys, have) = made(&intent, &Folder::of(&authority, true));
    assert_eq!(keys.saved.cluster_ca, authority);
    assert_ne!(keys.saved.etcd_ca, authority);
    assert_ne!(keys.saved.front_proxy_ca, authority);
    assert!(keys.saved.given.is_empty());
    let again = self::keys(&intent, &have, None, now()).unwrap();
    assert_eq!(again.leaves, keys.leaves);
}

/// Everything that it must sign is there: that is used, in the kubeconfig and by this program, too, and kept without
/// the folder.
#[test]
fn without_the_key_of_the_authority_its_certificates_are_enough() {
    let (intent, authority) = (one(), ca("the company", now()));
    let folder = Folder::of(&authority, false).signed(&authority, &intent, now());
    let (keys, have) = made(&intent, &folder);
    assert_eq!(keys.saved.cluster_ca.signing.key, None);
    assert_eq!(
        leaf(&keys, "n1", CertKind::ApiServer),
        folder.text("kube-apiserver.pem")
    );
    assert_eq!(
        leaf(&keys, "n1", CertKind::Node),
        folder.text("kube-node-10-0-0-2.pem")
    );
    let engine = engine_clients(&keys.saved, now(), &Seed::new([3; 32])).unwrap();
    assert_eq!(engine.api.cert, folder.text("kube-admin.pem"));
    assert_eq!(engine.api.ca, authority.signing.cert);
    let saved = codec::decode(codec::encode(&keys.saved).expose()).unwrap();
    assert_eq!(saved, keys.saved);

    for folder in [None, Some(&folder)] {
        let again = self::keys(&intent, &have, folder, now()).unwrap();
        assert_eq!(again.leaves, keys.leaves);
        assert_eq!(again.saved, keys.saved);
        assert_eq!(again.kubeconfig, keys.kubeconfig);
    }
    // One that does not answer keeps what it has.
    let mut silent = have;
    silent
        .hosts
        .insert("n1".into(), HostView::Unreachable(down()));
    let again = self::keys(&intent, &silent, None, now()).unwrap();
    assert_eq!(again.saved.given, keys.saved.given);
}

#[test]
fn what_is_missing_is_reported_at_once() {
    let (intent, authority) = (one(), ca("the company", now()));
    let folder = Folder::of(&authority, false);
    let error = keys(&intent, &blank(&intent), Some(&folder), now()).unwrap_err();
    insta::assert_snapshot!(error);
    let nothing = Folder(Vec::new());
    let error = keys(&intent, &blank(&intent), Some(&nothing), now()).unwrap_err();
    insta::assert_snapshot!(error, @r"
    the certificates in `certs` cannot be used:
      `kube-ca.pem` is missing: the authority of the cluster
    ");
}

#[test]
fn what_is_wrong_is_reported_at_once_and_no_key_is_shown() {
    let (intent, authority) = (one(), ca("the company", now()));
    let mut folder = Folder::of(&authority, false).signed(&authority, &intent, now());
    let other = ca("another company", now());
    let foreign = Folder::of(&other, true).signed(&other, &intent, now());
    let year = SignedDuration::from_hours(24 * 400);
    let early = now().checked_sub(year).unwrap();
    let old = Folder::of(&authority, false).signed(&authority, &intent, early);
    let named = intent_of(&[("n1", "10.0.0.3", &ALL)]);
    let named = Folder::of(&authority, false).signed(&authority, &named, now());
    let key = |folder: &Folder, stem: &str| {
        Secret::new(folder.text(&format!("{stem}-key.pem")).to_owned())
    };
    for (stem, from, file) in [
        ("kube-proxy", &foreign, "kube-proxy"),
        ("kube-scheduler", &old, "kube-scheduler"),
        ("kube-apiserver", &named, "kube-apiserver"),
        ("kube-controller-manager", &folder_of(&folder), "kube-proxy"),
        ("kube-admin", &folder_of(&folder), "kube-kubelet-10-0-0-2"),
    ] {
        let cert = from.text(&format!("{file}.pem")).to_owned();
        let key = key(from, file);
        folder.add(stem, &cert, Some(&key));
    }
    let cert = folder.text("kube-apiserver-kubelet-client.pem").to_owned();
    let wrong = key(&folder, "kube-node-10-0-0-2");
    folder.add("kube-apiserver-kubelet-client", &cert, Some(&wrong));
    let cert = folder.text("kube-node-10-0-0-2.pem").to_owned();
    folder.add("kube-node-10-0-0-2", &cert, None);
    let no_key = Secret::new("no key".to_owned());
    folder.add("kube-kubelet-10-0-0-2", "no certificate", Some(&no_key));
    let error = keys(&intent, &blank(&intent), Some(&folder), now()).unwrap_err();
    insta::assert_snapshot!(error);
    assert!(!error.hints().is_empty());

    let mut twice = Folder::of(&authority, false);
    let both = format!("{}{}", authority.signing.cert, other.signing.cert);
    twice.add("kube-ca", &both, other.signing.key.as_ref());
    let error = keys(&intent, &blank(&intent), Some(&twice), now()).unwrap_err();
    assert!(
        error.to_string().contains("several certificates"),
        "{error}"
    );
    twice.add(
        "kube-ca",
        &authority.signing.cert,
        other.signing.key.as_ref(),
    );
    let error = keys(&intent, &blank(&intent), Some(&twice), now()).unwrap_err();
    assert!(
        error.to_string().contains("do not belong together"),
        "{error}"
    );
}

fn folder_of(folder: &Folder) -> Folder {
    Folder(folder.0.clone())
}

#[test]
fn a_cluster_keeps_its_authorities() {
    let intent = one();
    let have = applied(&desired(&intent));
    let authority = ca("the company", now());
    let folder = Folder::of(&authority, true);
    let error = keys(&intent, &have, Some(&folder), now()).unwrap_err();
    insta::assert_snapshot!(error, @r"
    the certificates in `certs` cannot be used:
      `kube-ca.pem` is another authority than the one that the cluster has: it cannot be exchanged
    ");
}

/// Where certificates are a person's, so is the next service-account key; `up` exchanges none.
#[test]
fn a_new_service_account_key_is_given_too() {
    let (intent, authority) = (one(), ca("the company", now()));
    let folder = Folder::of(&authority, true).signed(&authority, &intent, now());
    let (first, have) = made(&intent, &folder);
    let start = |folder: Option<&Folder>| {
        let keys = rotated_keys(&intent, &have, folder, now(), Some(RotationStage::Start));
        keys.map(|keys| keys.saved.service_accounts)
    };
    let given = PkiError::ServiceAccountKey;
    assert_eq!(start(None), Err(given(ServiceAccountKeyError::Given)));
    let mut with_key = folder_of(&folder);
    let old = first.saved.service_accounts.signing.clone();
    with_key
        .0
        .push(("kube-service-account-token-key.pem".to_owned(), old.clone()));
    assert_eq!(
        start(Some(&with_key)),
        Err(given(ServiceAccountKeyError::Same))
    );
    let new = ca("another", now()).signing.key;
    let new = new.unwrap();
    with_key.0.last_mut().unwrap().1 = new.clone();
    let error = keys(&intent, &have, Some(&with_key), now()).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("cert rotate --service-account-key"),
        "{error}"
    );
    let accounts = start(Some(&with_key)).unwrap();
    assert_eq!((accounts.signing, accounts.next), (old, Some(new)));
    assert_eq!(accounts.verifying.len(), 2);
}

/// A person's certificate is a person's to renew, where we could sign one ourselves, too.
#[test]
fn a_users_certificate_is_never_replaced() {
    let (intent, authority) = (one(), ca("the company", now()));
    let folder = Folder::of(&authority, true).signed(&authority, &intent, now());
    let (keys, have) = made(&intent, &folder);
    let days = |days: i64| {
        let later = SignedDuration::from_hours(24 * days);
        now().checked_add(later).unwrap()
    };
    let seen = crate::status::certificates(&have, None, &crate::status::Served::new(), days(300));
    let ours: Vec<&str> = seen
        .iter()
        .filter(|one| one.renewed_by_next_up)
        .map(|one| one.end.name.as_str())
        .collect();
    assert_eq!(
        ours,
        [
            "kube-apiserver-etcd-client",
            "kube-apiserver-proxy-client",
            "kube-etcd-10-0-0-2",
            "kube-etcd-snapshot"
        ]
    );
    for folder in [None, Some(&folder)] {
        let later = self::keys(&intent, &have, folder, days(300)).unwrap();
        for kind in CertKind::ALL {
            let same = leaf(&later, "n1", kind) == leaf(&keys, "n1", kind);
            assert_eq!(same, kind.signer() == Signer::Cluster, "{kind:?}");
        }
        let notes = later.notes.join("\n");
        assert!(notes.contains("kube-apiserver.pem"), "{notes}");
        assert!(
            notes.contains("you provided it, so you have to renew it"),
            "{notes}"
        );
        assert!(self::keys(&intent, &have, folder, days(400)).is_err());
    }
    // Its own name is not in it.
    let mut more = intent.clone();
    more.sans.insert("api.example.com".to_owned());
    let error = self::keys(&more, &have, None, now()).unwrap_err();
    insta::assert_snapshot!(error, @r"
    certificates that you made are missing, or no longer what the cluster needs:
      `/etc/kubernetes/ssl/kube-apiserver.pem` of node `n1` lacks the names api.example.com
    ");
    // With the folder that no longer has it we sign.
    let key_alone = Folder::of(&authority, true);
    let ours = self::keys(&more, &have, Some(&key_alone), now()).unwrap();
    assert!(ours.saved.given.is_empty());
}

/// As RKE's users have it: one authority for all.
#[test]
fn etcds_certificates_may_be_of_the_same_authority() {
    let (intent, authority) = (one(), ca("the company", now()));
    let mut folder = Folder::of(&authority, false).signed(&authority, &intent, now());
    let signs = Authority::read(&authority, "").unwrap();
    let (name, node) = intent.nodes.first_key_value().unwrap();
    for kind in [CertKind::Etcd, CertKind::ApiServerEtcdClient] {
        let spec = kind.spec(&intent, name, node, None);
        let stem = kind.wanted_name(&intent, node);
        let pair = signs
            .issue(&spec, &stem, &Seed::new([2; 32]), now())
            .unwrap();
        folder.add(&stem, &pair.cert, Some(&pair.key));
    }
    let (keys, _) = made(&intent, &folder);
    assert_eq!(keys.saved.etcd_ca.signing.cert, authority.signing.cert);
    let engine = engine_clients(&keys.saved, now(), &Seed::new([3; 32])).unwrap();
    assert_eq!(
        engine.etcd.cert,
        folder.text("kube-apiserver-etcd-client.pem")
    );
}

#[test]
fn a_node_more_needs_its_certificates() {
    let (intent, authority) = (one(), ca("the company", now()));
    let folder = Folder::of(&authority, false).signed(&authority, &intent, now());
    let (_, mut have) = made(&intent, &folder);
    let two = intent_of(&[
        ("n1", "10.0.0.2", &ALL),
        ("n2", "10.0.0.3", &[Role::Worker]),
    ]);
    let bare = blank(&two).hosts.remove(&NodeName::from("n2")).unwrap();
    have.hosts.insert("n2".into(), bare);
    let error = keys(&two, &have, None, now()).unwrap_err();
    insta::assert_snapshot!(error, @r"
    certificates that you made are missing, or no longer what the cluster needs:
      `kube-node-10-0-0-3.pem` and `kube-node-10-0-0-3-key.pem` are missing: of a client, CN=system:node:n2, O=system:nodes
      `kube-kubelet-10-0-0-3.pem` and `kube-kubelet-10-0-0-3-key.pem` are missing: of a server, CN=system:node:n2, O=system:nodes, for n2, 10.0.0.3
      `kube-proxy.pem` and `kube-proxy-key.pem` are missing: of a client, CN=system:kube-proxy
    ");
    let more = folder.signed(&authority, &two, now());
    keys(&two, &have, Some(&more), now()).unwrap();
}

#[test]
fn unused_files_are_reported() {
    let (intent, authority) = (one(), ca("the company", now()));
    let mut folder = Folder::of(&authority, true);
    folder.add("kube-apisrever", "x", None);
    let (keys, _) = made(&intent, &folder);
    assert!(
        keys.notes.contains(
            &"of the certificates in `certs` these are not used: `kube-apisrever`".to_owned()
        ),
        "{:?}",
        keys.notes
    );
}

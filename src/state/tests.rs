//! The stores: what cannot be read is never "absent", of two writers one loses, and a writer
//! that was killed leaves no trace.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;
use tempfile::TempDir;

use super::{
    Authority, CaPair, ClusterState, DigestKey, EncryptionKey, GivenCertificates, InventoryEntry,
    Loaded, Membership, OperatorMemory, ServiceAccounts, StateError, Store, atomic,
    file::FileStore,
    kubeconfig::{FileKubeconfig, KubeconfigStore, SecretKubeconfig},
    secret::SecretStore,
};
use crate::{
    error::{ErrorClass, Explain},
    model::{ClusterId, Endpoint, KubernetesVersion, Role, Secret},
    workload::fake::FakeApi,
};

pub(crate) fn saved(name: &str) -> ClusterState {
    let ca = |what: &str| {
        Authority::of(CaPair {
            cert: format!("cert of {what}"),
            key: Some(Secret::new(format!("key of {what}"))),
        })
    };
    let cluster_ca = ca("cluster");
    let service_accounts = ServiceAccounts {
        signing: Secret::new("service account".to_owned()),
        verifying: vec!["public key of service account".to_owned()],
        next: None,
        issuers: vec!["https://kubernetes.default.svc.cluster.local".to_owned()],
        audiences: Vec::new(),
    };
    ClusterState {
        serial: 3,
        cluster_id: ClusterId("0123456789abcdef0123456789abcdef".to_owned()),
        digest_key: DigestKey::of_former(&cluster_ca, &service_accounts),
        cluster_name: name.to_owned(),
        kubernetes_version: Some(KubernetesVersion {
            major: 1,
            minor: 34,
            patch: 4,
        }),
        cluster_ca,
        etcd_ca: ca("etcd"),
        front_proxy_ca: ca("front proxy"),
        signer_ca: Some(ca("signer")),
        service_accounts,
        encryption: vec![EncryptionKey {
            name: "key1".to_owned(),
            secret: Secret::new("encryption key".to_owned()),
        }],
        etcd_bootstrap: BTreeMap::from([("n1".into(), "https://10.0.0.1:2380".to_owned())]),
        etcd_epoch: None,
        external_etcd: None,
        inventory: BTreeMap::from([(
            "n1".into(),
            InventoryEntry {
                endpoint: Endpoint {
                    address: "10.0.0.1".to_owned(),
                    port: 22,
                },
                user: "ubuntu".to_owned(),
                key_source: "~/.ssh/id_ed25519".to_owned(),
                certificate_source: None,
                bastions: Vec::new(),
                docker_socket: "/var/run/docker.sock".to_owned(),
                roles: vec![Role::Etcd, Role::ControlPlane],
                machine_id: Some("0123".to_owned()),
                host_keys: vec!["ssh-ed25519 AAAA".to_owned()],
                membership: Membership::Leaving,
                lost_at: None,
            },
        )]),
        given: GivenCertificates::default(),
        memory: OperatorMemory::default(),
    }
}

fn store(folder: &TempDir) -> FileStore {
    FileStore::next_to(&folder.path().join("cluster.yml"))
}

async fn present(store: &impl Store) -> (ClusterState, String) {
    match Store::load(store).await.unwrap() {
        Loaded::Present { saved, revision } => (*saved, revision),
        Loaded::Absent => panic!("nothing there"),
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn a_state_is_created_read_changed_and_deleted_without_a_trace() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    assert_eq!(Store::load(&store).await.unwrap(), Loaded::Absent);
    Store::save(&store, &saved("a"), None).await.unwrap();
    assert_eq!(names(folder.path()), ["cluster.rke-operator.json"]);
    assert_eq!(mode(store.path()), 0o600);

    let (read, revision) = present(&store).await;
    assert_eq!(read, saved("a"));
    Store::save(&store, &saved("b"), Some(&revision))
        .await
        .unwrap();
    assert_eq!(present(&store).await.0, saved("b"));
    assert_eq!(mode(store.path()), 0o600);

    Store::delete(&store).await.unwrap();
    Store::delete(&store).await.unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
}

#[tokio::test]
async fn a_second_creation_and_an_old_revision_conflict() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    let conflict = |result: Result<(), StateError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, StateError::Conflict { .. }), "{error}");
        assert_eq!(error.class(), ErrorClass::Transient);
    };
    conflict(Store::save(&store, &saved("a"), Some("0")).await);
    Store::save(&store, &saved("a"), None).await.unwrap();
    let (_, old) = present(&store).await;
    conflict(Store::save(&store, &saved("b"), None).await);
    Store::save(&store, &saved("b"), Some(&old)).await.unwrap();
    conflict(Store::save(&store, &saved("c"), Some(&old)).await);
    assert_eq!(present(&store).await.0, saved("b"));
    assert_eq!(names(folder.path()), ["cluster.rke-operator.json"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_writers_at_once_exactly_one_wins() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    for round in 0..5 {
        let revision = match Store::load(&store).await.unwrap() {
            Loaded::Present { revision, .. } => Some(revision),
            Loaded::Absent => None,
        };
        let writers = (0..8).map(|writer| {
            let store = store.clone();
            let revision = revision.clone();
            async move {
                let saved = saved(&format!("{round}-{writer}"));
                Store::save(&store, &saved, revision.as_deref()).await
            }
        });
        let results = futures::future::join_all(writers).await;
        let won = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(won, 1, "{results:?}");
        let conflict = |result: &Result<(), StateError>| {
            matches!(result, Ok(()) | Err(StateError::Conflict { .. }))
        };
        assert!(results.iter().all(conflict), "{results:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_understood_is_unreadable_and_never_absent() {
    let good = super::codec::encode(&saved("a"));
    let good = good.expose();
    let other_version = good.replace("\"version\": 6", "\"version\": 99");
    let contents: [(&str, &[u8]); 6] = [
        ("empty", b""),
        ("truncated", &good.as_bytes()[..good.len() / 2]),
        ("foreign", b"{\"kind\": \"Cluster\"}"),
        ("another version", other_version.as_bytes()),
        ("not text", &[0xff, 0xfe]),
        ("white space", b"\n\n"),
    ];
    for (what, content) in contents {
        let folder = TempDir::new().unwrap();
        let store = store(&folder);
        fs::write(store.path(), content).unwrap();
        let error = Store::load(&store).await.unwrap_err();
        assert!(
            matches!(error, StateError::Unreadable { .. }),
            "{what}: {error}"
        );
        assert_eq!(error.class(), ErrorClass::User);
        assert!(error.to_string().contains("cluster.rke-operator.json"));
        let hints = error.hints().join("\n");
        assert_eq!(
            hints.contains("the release of rke-operator that wrote it"),
            what == "another version",
            "{what}: {hints}"
        );
        // And it is not overwritten with a new state.
        let error = Store::save(&store, &saved("b"), None).await.unwrap_err();
        assert!(
            matches!(error, StateError::Conflict { .. }),
            "{what}: {error}"
        );
        assert_eq!(fs::read(store.path()).unwrap(), content);
    }
}

#[tokio::test]
async fn a_place_that_cannot_be_looked_at_is_an_error_and_never_absent() {
    let folder = TempDir::new().unwrap();
    let is_refused = |error: StateError| {
        assert!(matches!(error, StateError::Io { .. }), "{error}");
        assert_eq!(error.class(), ErrorClass::User);
    };
    // No such directory.
    let missing = FileStore::new(folder.path().join("gone/cluster.rke-operator.json"));
    is_refused(Store::load(&missing).await.unwrap_err());
    is_refused(Store::save(&missing, &saved("a"), None).await.unwrap_err());
    is_refused(Store::delete(&missing).await.unwrap_err());
    // A link to nothing: a volume that is not mounted.
    let link = FileStore::new(folder.path().join("link.json"));
    symlink("/nowhere/state.json", link.path()).unwrap();
    is_refused(Store::load(&link).await.unwrap_err());
    // A directory, and a path through a file.
    let directory = FileStore::new(folder.path().join("folder.json"));
    fs::create_dir(directory.path()).unwrap();
    is_refused(Store::load(&directory).await.unwrap_err());
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let through = FileStore::new(file.join("cluster.rke-operator.json"));
    is_refused(Store::load(&through).await.unwrap_err());
}

#[tokio::test]
async fn permission_denied_is_an_error_and_never_absent() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    Store::save(&store, &saved("a"), None).await.unwrap();
    fs::set_permissions(store.path(), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(store.path()).is_err() {
        let error = Store::load(&store).await.unwrap_err();
        assert!(matches!(error, StateError::Io { .. }), "{error}");
        assert_eq!(error.class(), ErrorClass::User);
    } else {
        // Root reads everything, so the same refusal comes from what even root cannot open.
        assert_eq!(present(&store).await.0, saved("a"));
    }
    let error = StateError::Io {
        place: store.place(),
        source: Box::new(std::io::Error::from(std::io::ErrorKind::PermissionDenied)),
    };
    assert_eq!(error.class(), ErrorClass::User);
    assert!(error.hints()[0].contains("readable and writable"));
}

/// What a killed writer left holds every key: it goes with the state.
#[tokio::test]
async fn deleting_the_state_deletes_what_killed_writers_left() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    Store::save(&store, &saved("a"), None).await.unwrap();
    let staged = atomic::stage(store.path(), b"{ half of the keys").unwrap();
    staged.keep().unwrap();
    assert_eq!(names(folder.path()).len(), 2);
    Store::delete(&store).await.unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
    // Killed before the rename of the first save: there is no state, but a temporary file with keys.
    let staged = atomic::stage(store.path(), b"{ half of the keys").unwrap();
    staged.keep().unwrap();
    Store::delete(&store).await.unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
}

#[tokio::test]
async fn a_writer_that_was_killed_before_the_rename_has_changed_nothing() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    let killed = |path: PathBuf| {
        let staged = atomic::stage(&path, b"{ half").unwrap();
        assert_eq!(mode(staged.path()), 0o600);
        staged.keep().unwrap();
    };
    killed(store.path().to_owned());
    assert_eq!(Store::load(&store).await.unwrap(), Loaded::Absent);
    Store::save(&store, &saved("a"), None).await.unwrap();
    assert_eq!(
        names(folder.path()),
        ["cluster.rke-operator.json"],
        "pruned"
    );

    killed(store.path().to_owned());
    let (read, revision) = present(&store).await;
    assert_eq!(read, saved("a"));
    Store::save(&store, &saved("b"), Some(&revision))
        .await
        .unwrap();
    assert_eq!(
        names(folder.path()),
        ["cluster.rke-operator.json"],
        "pruned"
    );
}

#[tokio::test]
async fn the_lock_file_of_a_dead_process_blocks_no_save() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    fs::write(folder.path().join(".cluster.rke-operator.json.lock"), "").unwrap();
    Store::save(&store, &saved("a"), None).await.unwrap();
    assert_eq!(names(folder.path()), ["cluster.rke-operator.json"]);
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_waited_for_and_then_an_error() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    let lock = atomic::try_lock(store.path()).unwrap().unwrap();
    assert!(atomic::try_lock(store.path()).unwrap().is_none());
    let error = Store::save(&store, &saved("a"), None).await.unwrap_err();
    assert!(matches!(error, StateError::Io { .. }), "{error}");
    assert_eq!(error.class(), ErrorClass::Transient);
    drop(lock);
    Store::save(&store, &saved("a"), None).await.unwrap();
}

#[tokio::test]
async fn a_symbolic_link_stays_one() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    let real = folder.path().join("real.json");
    symlink(&real, store.path()).unwrap();
    fs::write(&real, super::codec::encode(&saved("a")).expose()).unwrap();
    let (_, revision) = present(&store).await;
    Store::save(&store, &saved("b"), Some(&revision))
        .await
        .unwrap();
    assert!(fs::symlink_metadata(store.path()).unwrap().is_symlink());
    assert_eq!(present(&store).await.0, saved("b"));
}

#[tokio::test]
async fn the_kubeconfig_is_named_as_rke_names_it_and_for_its_owner_only() {
    let folder = TempDir::new().unwrap();
    let store = FileKubeconfig::next_to(&folder.path().join("prod.yaml"));
    assert_eq!(store.path(), folder.path().join("kube_config_prod.yaml"));
    let named = format!("`{}`", store.path().display());
    assert_eq!(KubeconfigStore::place(&store), named, "for messages");
    assert_eq!(KubeconfigStore::load(&store).await.unwrap(), None);
    fs::write(store.path(), "old").unwrap();
    fs::set_permissions(store.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let kubeconfig = Secret::new("apiVersion: v1".to_owned());
    KubeconfigStore::save(&store, &kubeconfig).await.unwrap();
    assert_eq!(mode(store.path()), 0o600);
    assert_eq!(
        KubeconfigStore::load(&store).await.unwrap(),
        Some(kubeconfig)
    );
    KubeconfigStore::remove(&store).await.unwrap();
    KubeconfigStore::remove(&store).await.unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
}

// ---- Secrets of the management cluster

const SECRET: &str = "/api/v1/namespaces/rke/secrets/prod-state";

#[tokio::test]
async fn a_secret_is_created_compared_and_deleted() {
    let api = FakeApi::new();
    let store = SecretStore::new(api.client(), "rke", "prod");
    assert_eq!(Store::load(&store).await.unwrap(), Loaded::Absent);
    Store::save(&store, &saved("a"), None).await.unwrap();
    let live = api.get(SECRET).unwrap();
    assert!(live["metadata"]["ownerReferences"].is_null());
    let (read, old) = present(&store).await;
    assert_eq!(read, saved("a"));
    Store::save(&store, &saved("b"), Some(&old)).await.unwrap();
    for revision in [None, Some(old.as_str())] {
        let error = Store::save(&store, &saved("c"), revision)
            .await
            .unwrap_err();
        assert!(matches!(error, StateError::Conflict { .. }), "{error}");
    }
    let (read, revision) = present(&store).await;
    assert_eq!(read, saved("b"));
    Store::delete(&store).await.unwrap();
    Store::delete(&store).await.unwrap();
    // Gone under our hands: not created again.
    let error = Store::save(&store, &saved("c"), Some(&revision))
        .await
        .unwrap_err();
    assert!(matches!(error, StateError::Conflict { .. }), "{error}");
    assert_eq!(api.get(SECRET), None);
}

#[tokio::test]
async fn a_secret_without_a_state_is_unreadable_and_a_refusal_is_an_error() {
    let api = FakeApi::new();
    let store = SecretStore::new(api.client(), "rke", "prod");
    for data in [
        json!({}),
        json!({ "state.json": "" }),
        json!({ "state.json": "e30=" }),
    ] {
        api.put(SECRET, json!({ "data": data }));
        let error = Store::load(&store).await.unwrap_err();
        assert!(matches!(error, StateError::Unreadable { .. }), "{error}");
        assert!(
            error.to_string().contains("Secret `rke/prod-state`"),
            "{error}"
        );
    }
    for (code, class) in [(403, ErrorClass::User), (500, ErrorClass::Transient)] {
        api.refuse(&format!("GET {SECRET}"), &[code]);
        let error = Store::load(&store).await.unwrap_err();
        assert!(matches!(error, StateError::Io { .. }), "{error}");
        assert_eq!(error.class(), class);
    }
}

#[tokio::test]
async fn the_kubeconfig_secret_has_the_shape_that_tools_expect() {
    let api = FakeApi::new();
    let owner = OwnerReference {
        api_version: "clusterprovisioner.rke.io/v1alpha1".to_owned(),
        kind: "Kubeconfig".to_owned(),
        name: "prod".to_owned(),
        uid: "1".to_owned(),
        ..OwnerReference::default()
    };
    let labels = BTreeMap::from([("cluster".to_owned(), "prod".to_owned())]);
    let store = SecretKubeconfig::new(api.client(), "rke", "prod", labels, Some(owner));
    assert_eq!(KubeconfigStore::load(&store).await.unwrap(), None);
    let kubeconfig = Secret::new("apiVersion: v1".to_owned());
    KubeconfigStore::save(&store, &kubeconfig).await.unwrap();
    KubeconfigStore::save(&store, &kubeconfig).await.unwrap();
    assert_eq!(
        KubeconfigStore::load(&store).await.unwrap(),
        Some(kubeconfig)
    );
    let live = api
        .get("/api/v1/namespaces/rke/secrets/prod-kubeconfig")
        .unwrap();
    assert_eq!(live["metadata"]["labels"]["cluster"], "prod");
    assert_eq!(live["metadata"]["ownerReferences"][0]["kind"], "Kubeconfig");
    assert_eq!(live["data"]["value"], "YXBpVmVyc2lvbjogdjE=");
    KubeconfigStore::remove(&store).await.unwrap();
    KubeconfigStore::remove(&store).await.unwrap();
    let error = {
        api.refuse("GET /api/v1/namespaces/rke/secrets/prod-kubeconfig", &[403]);
        KubeconfigStore::load(&store).await.unwrap_err()
    };
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

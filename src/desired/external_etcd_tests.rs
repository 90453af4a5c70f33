//! What nodes have whose etcd is outside of the cluster.

use std::collections::BTreeSet;

use super::{
    Desired, DesiredHost, fixture,
    pki::{CertKind, Keys},
};
use crate::{
    config::Intent,
    etcd::{EtcdView, ExternalView},
    facts::Actual,
    model::{
        ClientIdentity, Component, EtcdKeyspace, EtcdPlace, EtcdUrl, ExternalEtcd, NodeName, Role,
        path,
    },
};

fn url(host: &str) -> EtcdUrl {
    EtcdUrl {
        host: host.to_owned(),
        port: 2379,
    }
}

fn intent() -> Intent {
    let mut intent = fixture::intent_of(&[
        ("n1", "10.0.0.2", &[Role::ControlPlane]),
        ("n2", "10.0.0.3", &[Role::Worker]),
    ]);
    intent.etcd = EtcdPlace::External(ExternalEtcd {
        urls: vec![url("a.example.com"), url("b.example.com")],
        prefix: "/production".to_owned(),
        identity: ClientIdentity {
            ca: "an authority\n".to_owned(),
            cert: "a certificate\n".to_owned(),
            key: "hunter2\n".to_owned().into(),
        },
    });
    intent
}

fn have(intent: &Intent) -> Actual {
    Actual {
        etcd: EtcdView::of_external(ExternalView::Answered {
            cluster: "cafe".to_owned(),
            holds_keys: false,
            silent: [].into(),
        }),
        ..fixture::blank(intent)
    }
}

fn desired(intent: &Intent) -> (Desired, Keys) {
    let have = have(intent);
    let keys = fixture::reuse_or_issue(intent, &have, 7).expect("keys");
    let desired = Desired::from_intent(intent, &keys, &have).expect("a picture");
    (desired, keys)
}

fn host<'a>(desired: &'a Desired, name: &str) -> &'a DesiredHost {
    &desired.hosts[&NodeName::from(name)]
}

#[test]
fn the_api_server_uses_the_external_etcd_and_no_node_has_one() {
    let (desired, keys) = desired(&intent());
    let server = &host(&desired, "n1").containers[&Component::ApiServer];
    for flag in [
        "--etcd-servers=https://a.example.com:2379,https://b.example.com:2379",
        "--etcd-prefix=/production",
        "--etcd-cafile=/etc/kubernetes/ssl/kube-etcd-client-ca.pem",
        "--etcd-certfile=/etc/kubernetes/ssl/kube-etcd-client.pem",
        "--etcd-keyfile=/etc/kubernetes/ssl/kube-etcd-client-key.pem",
    ] {
        assert!(server.command.iter().any(|given| given == flag), "{flag}");
    }
    for (path, (text, mode)) in path::EXTERNAL_ETCD.iter().zip([
        ("an authority\n", 0o644),
        ("a certificate\n", 0o644),
        ("hunter2\n", 0o600),
    ]) {
        let file = &host(&desired, "n1").files[*path];
        assert_eq!(file.content.expose(), text.as_bytes(), "{path}");
        assert_eq!(file.mode, mode, "{path}");
        assert!(!host(&desired, "n2").files.contains_key(*path), "{path}");
    }
    for host in desired.hosts.values() {
        assert!(!host.containers.contains_key(&Component::Etcd));
        assert!(!host.images.iter().any(|image| image.contains("etcd")));
        assert!(!host.dirs.contains_key(path::ETCD_MEMBER));
        let own = |path: &String| path.contains("kube-etcd-ca") || path.contains("etcd-client.pem");
        let own: Vec<_> = host.files.keys().filter(|path| own(path)).collect();
        assert!(
            own.iter()
                .all(|path| path::EXTERNAL_ETCD.contains(&path.as_str())),
            "{own:?}"
        );
    }
    let kinds: BTreeSet<CertKind> = keys.leaves.keys().map(|(_, kind)| *kind).collect();
    assert!(!kinds.contains(&CertKind::Etcd));
    assert!(!kinds.contains(&CertKind::ApiServerEtcdClient));
    assert!(!format!("{desired:?}").contains("hunter2"));
}

#[test]
fn the_state_knows_where_the_keys_are() {
    let (desired, _) = desired(&intent());
    let keyspace = EtcdKeyspace {
        etcd_cluster: "cafe".to_owned(),
        prefix: "/production".to_owned(),
    };
    assert_eq!(desired.saved.external_etcd, Some(keyspace));
    assert!(desired.saved.etcd_bootstrap.is_empty());
    let (desired, _) = self::desired(&fixture::intent());
    assert_eq!(desired.saved.external_etcd, None);
}

/// Another URL or certificate: the API servers, and nothing else.
#[test]
fn a_change_is_the_api_servers_alone() {
    let before = desired(&intent()).0;
    let change = |change: &dyn Fn(&mut ExternalEtcd)| {
        let mut intent = intent();
        if let EtcdPlace::External(etcd) = &mut intent.etcd {
            change(etcd);
        }
        desired(&intent).0
    };
    for after in [
        change(&|etcd| etcd.urls.truncate(1)),
        change(&|etcd| etcd.identity.cert.push_str("another\n")),
        change(&|etcd| etcd.identity.key = "hunter3\n".to_owned().into()),
        change(&|etcd| etcd.identity.ca.push_str("another\n")),
    ] {
        for (name, host) in &after.hosts {
            let was = &before.hosts[name].containers;
            let differ = host
                .containers
                .iter()
                .filter(|(name, spec)| was[*name] != **spec);
            let differ: Vec<_> = differ.map(|(name, _)| name.container()).collect();
            let wanted: &[&str] = if name.0 == "n1" {
                &["kube-apiserver"]
            } else {
                &[]
            };
            assert_eq!(differ, wanted, "{name}");
        }
    }
}

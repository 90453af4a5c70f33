//! etcd through a node's SSH connection, with the answers that etcd 3.5.21 and 3.6.7 gave when
//! they were asked (`etcd/*.json`; `lab_etcd` asks the real ones).

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rke_operator::{
    etcd::{self, AlarmKind, Asked, Client, EtcdView, MemberId, Quorum, change},
    model::{ClientIdentity, NodeName},
};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::Value;
use tokio_rustls::TlsAcceptor;

use crate::{
    etcd_support::{MemberFiles, members},
    fake::FakeHost,
};

const VERSIONS: [&str; 2] = ["3.5.21", "3.6.7"];

/// What one version answered, by what it was asked.
fn recorded(version: &str) -> BTreeMap<String, Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/etcd");
    let text = fs::read_to_string(path.join(format!("{version}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A member on a fake host that gives recorded answers: which one, `pick` says by path and body.
struct FakeMember {
    host: FakeHost,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeMember {
    fn new(
        version: &str,
        files: &MemberFiles,
        pick: impl Fn(&str, &Value) -> &'static str + Send + Sync + 'static,
    ) -> Self {
        let host = FakeHost::new();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let tls = acceptor(files);
        let answers = Arc::new(recorded(version));
        let pick = Arc::new(pick);
        let log = Arc::clone(&asked);
        host.on_port(2379, move |stream| {
            let (tls, answers) = (tls.clone(), Arc::clone(&answers));
            let (pick, log) = (Arc::clone(&pick), Arc::clone(&log));
            Box::pin(async move {
                let Ok(stream) = tls.accept(stream).await else {
                    return;
                };
                let service = service_fn(|request: Request<Incoming>| {
                    let (answers, pick, log) = (&answers, &pick, &log);
                    async move {
                        let path = request.uri().path().to_owned();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let body = serde_json::from_slice(&body).unwrap();
                        log.lock().unwrap().push(path.clone());
                        let answer = &answers[pick(&path, &body)];
                        let text = Bytes::from(answer["body"].to_string());
                        let code = answer["http"].as_u64().unwrap();
                        Response::builder()
                            .status(u16::try_from(code).unwrap())
                            .body(Full::new(text))
                    }
                });
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            })
        });
        Self { host, asked }
    }

    fn client(&self, engine: &ClientIdentity) -> Client {
        Client::through(&self.host.hosts(), &NodeName::from("n1"), engine).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

/// A server as etcd is one: it wants a certificate of its own authority.
fn acceptor(files: &MemberFiles) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(files.ca.as_bytes()).unwrap())
        .unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .unwrap();
    let chain = vec![CertificateDer::from_pem_slice(files.cert.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(files.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn healthy(path: &str, body: &Value) -> &'static str {
    match path {
        "/v3/maintenance/status" => "status",
        "/v3/cluster/member/list" if body["linearizable"] == true => "members",
        _ => panic!("{path} {body}"),
    }
}

async fn view(asked: Vec<(&str, Client)>, quota: Option<u64>) -> EtcdView {
    let asked = asked.into_iter().map(|(node, client)| Asked {
        node: NodeName::from(node),
        client: Ok(client),
        quota,
    });
    etcd::read(asked.collect()).await
}

#[tokio::test]
async fn one_member_tells_who_leads_and_how_large_its_database_is() {
    let (files, engine) = members(&["10.0.0.1"]);
    for version in VERSIONS {
        let member = FakeMember::new(version, &files[&"10.0.0.1".into()], healthy);
        let client = member.client(&engine.etcd);
        let view = view(vec![("n1", client)], Some(7 << 30)).await;
        let (id, one) = view.members.iter().next().unwrap();
        assert_eq!(view.quorum, Quorum::Serving { leader: *id }, "{version}");
        assert_eq!(one.name, "etcd-n1");
        let (node, status) = one.status.as_ref().unwrap();
        assert_eq!((node.0.as_str(), &*status.version), ("n1", version));
        assert_eq!((status.db_size, status.db_in_use), (20480, 16384));
        // 3.6 says its quota; of 3.5 it is what its command line says.
        let quota = if version == "3.6.7" { 2 << 30 } else { 7 << 30 };
        assert_eq!(status.quota, Some(quota), "{version}");
        assert!(view.silent.is_empty() && view.problems().is_empty());
        assert_eq!(
            member.asked(),
            ["/v3/maintenance/status", "/v3/cluster/member/list"],
            "two requests, and none that goes through raft"
        );
    }
}

#[tokio::test]
async fn a_learner_is_asked_for_its_status_only_and_alarms_when_a_status_tells_of_them() {
    let (files, engine) = members(&["10.0.0.1", "10.0.0.2"]);
    for version in VERSIONS {
        let voter = FakeMember::new(version, &files[&"10.0.0.1".into()], |path, _| match path {
            "/v3/maintenance/status" => "status with an alarm",
            "/v3/maintenance/alarm" => "alarms",
            _ => "members with a learner",
        });
        let learner = FakeMember::new(version, &files[&"10.0.0.2".into()], |path, _| match path {
            "/v3/maintenance/status" => "status of a learner",
            _ => "members asked of a learner",
        });
        let asked = vec![
            ("n1", voter.client(&engine.etcd)),
            ("n2", learner.client(&engine.etcd)),
        ];
        let view = view(asked, None).await;
        assert_eq!(learner.asked(), ["/v3/maintenance/status"]);
        assert!(matches!(view.quorum, Quorum::Serving { .. }), "{view:?}");
        assert_eq!(view.voters().count(), 1);
        assert!(view.members[&view.on(&"n2".into()).unwrap()].is_learner);
        let kinds: Vec<_> = view.alarms.iter().map(|alarm| &alarm.kind).collect();
        assert_eq!(kinds, [&AlarmKind::NoSpace]);
        assert_eq!(view.problems().len(), 1);
    }
}

#[tokio::test]
async fn without_a_majority_quorum_is_lost_and_the_members_are_as_one_remembers_them() {
    let (files, engine) = members(&["10.0.0.1"]);
    for version in VERSIONS {
        let member = FakeMember::new(
            version,
            &files[&"10.0.0.1".into()],
            |path, body| match path {
                "/v3/maintenance/status" => "status without a majority",
                _ if body["linearizable"] == true => "members without a majority",
                _ => "members as remembered",
            },
        );
        let view = view(vec![("n1", member.client(&engine.etcd))], None).await;
        assert_eq!(view.quorum, Quorum::Lost);
        assert_eq!(view.voters().count(), 2);
        assert!(view.healthy().is_empty());
        // It knows of no leader: a question that waits for one is not asked.
        assert_eq!(member.asked().len(), 2);
    }
}

/// E23: the connection that it was made on is not the one that it needs.
#[tokio::test]
async fn a_client_outlives_the_connection_that_it_was_made_on() {
    let (files, engine) = members(&["10.0.0.1"]);
    let member = FakeMember::new("3.6.7", &files[&"10.0.0.1".into()], healthy);
    let client = member.client(&engine.etcd);
    for connections in 1..=3 {
        let mut seen = view(vec![("n1", client.clone())], None).await;
        if seen.quorum == Quorum::Unknown {
            // What was under way is lost with the connection.
            seen = view(vec![("n1", client.clone())], None).await;
        }
        assert!(matches!(seen.quorum, Quorum::Serving { .. }), "{seen:?}");
        assert_eq!(member.host.connections(), connections);
        member.host.cut();
    }
}

#[tokio::test]
async fn a_member_that_cannot_be_asked_is_a_fact() {
    let (files, engine) = members(&["10.0.0.1"]);
    let member = FakeMember::new("3.6.7", &files[&"10.0.0.1".into()], healthy);
    // The API's own client certificate is of another authority.
    let stranger = ClientIdentity {
        ca: engine.etcd.ca.clone(),
        ..engine.api.clone()
    };
    let refused = member.client(&stranger);
    let closed = FakeHost::new().hosts();
    let closed = Client::through(&closed, &NodeName::from("n1"), &engine.etcd).unwrap();
    let mut asked = vec![("n1", refused), ("n2", closed)];
    let seen = view(std::mem::take(&mut asked), None).await;
    assert_eq!(seen.quorum, Quorum::Unknown);
    let silent: Vec<_> = seen.silent.keys().map(|node| node.0.as_str()).collect();
    assert_eq!(silent, ["n1", "n2"]);
    assert!(seen.silent[&"n2".into()].contains("2379"), "{seen:?}");
    assert_eq!(member.asked(), [""; 0], "nothing got through");
}

#[tokio::test]
async fn operations_look_first_and_decide_by_the_members() {
    let (files, engine) = members(&["10.0.0.1"]);
    for version in VERSIONS {
        let recorded = recorded(version);
        let there = &recorded["learner added"]["body"]["member"];
        let url = there["peerURLs"][0].as_str().unwrap();
        let id = MemberId(there["ID"].as_str().unwrap().parse().unwrap());
        let files = &files[&"10.0.0.1".into()];

        // It is not there, and the answer says who it is.
        let member = FakeMember::new(version, files, |path, _| match path {
            "/v3/cluster/member/add" => "learner added",
            _ => "members",
        });
        let client = member.client(&engine.etcd);
        assert_eq!(change::add_learner(&client, url).await.unwrap(), id);
        // Gone already, and never there.
        change::remove(&client, id).await.unwrap();
        assert!(change::promote(&client, id).await.is_err());
        assert!(
            !member
                .asked()
                .iter()
                .any(|path| path.ends_with("remove") || path.ends_with("promote"))
        );

        // It is there.
        let member = FakeMember::new(version, files, |path, _| match path {
            "/v3/cluster/member/promote" => "added again",
            _ => "members with a learner",
        });
        let client = member.client(&engine.etcd);
        assert_eq!(change::add_learner(&client, url).await.unwrap(), id);
        let refused = change::promote(&client, id).await.unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("member ID already exist (code 9)"),
            "{refused}"
        );

        // It votes already: the same refusal is none.
        let member = FakeMember::new(version, files, |_, _| "promoted");
        change::promote(&member.client(&engine.etcd), id)
            .await
            .unwrap();
        assert_eq!(member.asked().len(), 1);
    }
}

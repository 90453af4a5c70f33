//! What listens on the ports of a node: etcd's gateway, the API server, and the health of each
//! component, with the certificates that the product put on the node.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rke_operator::host::Stream;
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    Fallible, etcd,
    node::{Fleet, Node, file, flag},
};

/// How often it is looked whether an API server still runs.
const LOOK: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 500 });

/// A certificate that a server made for itself, as controller-manager and scheduler do.
pub(crate) struct Own(TlsAcceptor);

impl Own {
    /// A new one.
    pub(crate) fn new() -> Fallible<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

/// Makes every port of a node serve while the container behind it runs.
pub(crate) fn open_ports(fleet: &Arc<Fleet>, node: &Node) {
    for (container, port) in [("kubelet", 10248), ("kube-proxy", 10256)] {
        node.host
            .on_port_of(container, port, |stream| Box::pin(healthy(stream)));
    }
    for (container, port) in [
        ("kube-controller-manager", 10257),
        ("kube-scheduler", 10259),
    ] {
        let fleet = Arc::downgrade(fleet);
        node.host.on_port_of(container, port, move |stream| {
            let fleet = fleet.upgrade();
            Box::pin(async move {
                let Some(fleet) = fleet else { return };
                if let Ok(stream) = fleet.tls.0.accept(stream).await {
                    healthy(stream).await;
                }
            })
        });
    }
    let of = Arc::downgrade(fleet);
    node.host.on_port_of("etcd", 2381, move |stream| {
        Box::pin(member_health(of.clone(), stream))
    });
    let (of, itself) = (Arc::downgrade(fleet), node.clone());
    node.host.on_port_of("etcd", 2379, move |stream| {
        Box::pin(member(of.clone(), itself.clone(), stream))
    });
    for container in ["kube-apiserver", "nginx-proxy"] {
        let (of, itself) = (Arc::downgrade(fleet), node.clone());
        node.host.on_port_of(container, 6443, move |stream| {
            Box::pin(api(of.clone(), itself.clone(), stream))
        });
    }
}

fn said(code: u16, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response
}

async fn healthy(stream: impl Stream + 'static) {
    let service = service_fn(|_: Request<Incoming>| async {
        Ok::<_, http::Error>(said(200, "ok".to_owned()))
    });
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn member_health(fleet: Weak<Fleet>, stream: Box<dyn Stream>) {
    let service = service_fn(|_: Request<Incoming>| async {
        let healthy = fleet
            .upgrade()
            .is_some_and(|fleet| etcd::has_quorum(&etcd::members(fleet.central())));
        let code = if healthy { 200 } else { 503 };
        Ok::<_, http::Error>(said(code, format!("{{\"health\":\"{healthy}\"}}")))
    });
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn member(fleet: Weak<Fleet>, on: Node, stream: Box<dyn Stream>) {
    let flags = ("etcd", "cert-file", "key-file", "trusted-ca-file");
    let Some(stream) = accepted(&on, flags, &[b"http/1.1"], stream).await else {
        return;
    };
    let service = service_fn(|request: Request<Incoming>| {
        let answer = fleet
            .upgrade()
            .map(|fleet| etcd::answer(fleet.central(), &on, request.uri().path()));
        async move {
            let (code, body) = answer.unwrap_or_default();
            Ok::<_, http::Error>(said(code, body.to_string()))
        }
    });
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// An API server, or a proxy that hands the stream to one.
async fn api(fleet: Weak<Fleet>, on: Node, stream: Box<dyn Stream>) {
    let Some(fleet) = fleet.upgrade() else { return };
    let serves = |node: &&Node| node.host.runs("kube-apiserver");
    let itself = Some(&on).filter(serves);
    let Some(server) = itself.or_else(|| fleet.central().iter().find(serves)) else {
        return;
    };
    let flags = (
        "kube-apiserver",
        "tls-cert-file",
        "tls-private-key-file",
        "client-ca-file",
    );
    let Some(stream) = accepted(server, flags, &[b"h2", b"http/1.1"], stream).await else {
        return;
    };
    let http_2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = TokioIo::new(stream);
    let service = service_fn(|request: Request<Incoming>| {
        let fleet = Arc::clone(&fleet);
        async move {
            fleet.count();
            let mut answer = fleet.api.serve(request).await;
            if !fleet.serves() {
                *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            }
            Ok::<_, http::Error>(answer)
        }
    });
    let serving = async {
        let _ = if http_2 {
            http2::Builder::new(TokioExecutor::new())
                .serve_connection(stream, service)
                .await
        } else {
            http1::Builder::new()
                .serve_connection(stream, service)
                .await
        };
    };
    // A process that ends takes its connections along.
    let ended = async {
        while serves(&server) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = serving => {}
        () = ended => {}
    }
}

type Flags = (&'static str, &'static str, &'static str, &'static str);

/// TLS with the certificate that a container was told to use, for clients of its authority.
async fn accepted(
    on: &Node,
    flags: Flags,
    protocols: &[&[u8]],
    stream: Box<dyn Stream>,
) -> Option<tokio_rustls::server::TlsStream<Box<dyn Stream>>> {
    let acceptor = acceptor(on, flags, protocols)?;
    acceptor.accept(stream).await.ok()
}

fn acceptor(
    on: &Node,
    (container, cert, key, ca): Flags,
    protocols: &[&[u8]],
) -> Option<TlsAcceptor> {
    let pem = |name: &str| file(&on.host, &flag(&on.host, container, name)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_slice_iter(&pem(ca)?) {
        roots.add(one.ok()?).ok()?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem(cert)?).collect();
    let key = PrivateKeyDer::from_pem_slice(&pem(key)?).ok()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_client_cert_verifier(verifier.build().ok()?)
        .with_single_cert(chain.ok()?, key)
        .ok()?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Some(TlsAcceptor::from(Arc::new(config)))
}

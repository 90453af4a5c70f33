//! A kube client whose bytes go through a node's SSH connection.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Uri, uri::PathAndQuery};
use hyper_util::{
    client::legacy::{
        Client as Http,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo},
};
use kube::{Client, client::Body};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::WorkloadError;
use crate::{
    desired::pki::EngineClient,
    host::{Host, Stream},
    plan::Component,
};

/// Opens a stream to the API server: `host.local_port(6443)`.
pub type OpenStream =
    Arc<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync>;

/// The name that every API server certificate of ours bears, whatever the node's address is.
const SERVER_NAME: &str = "kubernetes";

/// How long opening a stream and shaking hands may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// A client of the API server on a control plane, through its SSH connection.
pub fn through(host: Arc<Host>, engine: &EngineClient) -> Result<Client, WorkloadError> {
    let open = move || {
        let host = Arc::clone(&host);
        async move {
            let port = Component::ApiServer.health_port();
            host.local_port(port).await.map_err(io::Error::other)
        }
        .boxed()
    };
    connect(Arc::new(open), engine)
}

/// A client of the cluster's API. Opens streams as it needs them and keeps them for reuse; the
/// server must prove with the cluster's CA that it is `kubernetes`.
pub fn connect(open: OpenStream, engine: &EngineClient) -> Result<Client, WorkloadError> {
    let connector = Connector {
        open,
        tls: TlsConnector::from(Arc::new(config(engine)?)),
    };
    let http: Http<Connector, Body> = Http::builder(TokioExecutor::new()).build(connector);
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let http = http.clone();
        async move {
            *request.uri_mut() = absolute(request.uri().path_and_query().cloned())?;
            Ok::<_, tower::BoxError>(http.request(request).await?)
        }
    });
    Ok(Client::new(service, "default"))
}

fn absolute(path: Option<PathAndQuery>) -> Result<Uri, http::Error> {
    Uri::builder()
        .scheme("https")
        .authority(SERVER_NAME)
        .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
        .build()
}

/// TLS with our certificate, and the cluster's CA as the only one that is trusted.
pub(super) fn config(engine: &EngineClient) -> Result<ClientConfig, WorkloadError> {
    let bad = |what: &str, error: &dyn fmt::Display| {
        WorkloadError::Credentials(format!("{what}: {error}"))
    };
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(engine.ca.as_bytes()) {
        let cert = cert.map_err(|error| bad("CA", &error))?;
        roots.add(cert).map_err(|error| bad("CA", &error))?;
    }
    let chain = CertificateDer::pem_slice_iter(engine.pair.cert.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad("certificate", &error))?;
    let key = PrivateKeyDer::from_pem_slice(engine.pair.key.expose().as_bytes())
        .map_err(|error| bad("key", &error))?;
    builder()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|error| bad("certificate and key", &error))
}

/// TLS 1.2 and 1.3 with ring, whatever the process's default provider is.
pub(super) fn builder()
-> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, WorkloadError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| WorkloadError::Credentials(error.to_string()))
}

/// TLS over a stream that is open already.
pub(super) async fn handshake(
    tls: &TlsConnector,
    stream: Box<dyn Stream>,
) -> io::Result<TlsStream<Box<dyn Stream>>> {
    let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
    tls.connect(name, stream).await
}

#[derive(Clone)]
struct Connector {
    open: OpenStream,
    tls: TlsConnector,
}

impl tower::Service<Uri> for Connector {
    type Response = Tunnel;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Tunnel>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _to: Uri) -> Self::Future {
        let Self { open, tls } = self.clone();
        let opening = async move {
            let stream = open().await?;
            Ok(Tunnel(TokioIo::new(handshake(&tls, stream).await?)))
        };
        tokio::time::timeout(DEADLINE, opening)
            .map(|result| {
                result.unwrap_or_else(|_elapsed| {
                    Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the API server did not answer a TLS handshake",
                    ))
                })
            })
            .boxed()
    }
}

/// One connection to the API server.
struct Tunnel(TokioIo<TlsStream<Box<dyn Stream>>>);

impl Connection for Tunnel {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl hyper::rt::Write for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

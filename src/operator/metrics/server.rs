//! The port of the metrics: HTTPS, bounded in connections, time and size.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::{
    Metrics,
    access::{Access, Guard, PATH},
    identity::{CertificateFiles, Identity},
};

/// Where the metrics are served, and with which certificate.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// Where.
    pub address: SocketAddr,
    /// `None`: one that the process signs for itself.
    pub certificate: Option<CertificateFiles>,
}

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections at the same time; others wait.
    pub(super) connections: usize,
    /// From the first byte of a connection to the end of the answer.
    pub(super) time: Duration,
}

pub(super) const BOUNDS: Bounds = Bounds {
    connections: 16,
    time: Duration::from_secs(15),
};

/// The longest head of a request: a token has a few hundred bytes.
const HEAD: usize = 32 * 1024;

/// The text format that every Prometheus reads.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// What answers.
pub(in crate::operator) struct Server {
    pub(super) guard: Guard,
    pub(super) identity: Identity,
    pub(super) metrics: Arc<Metrics>,
    pub(super) bounds: Bounds,
}

/// Answers until it is dropped.
pub(in crate::operator) async fn serve(listener: TcpListener, server: Server) -> Infallible {
    let room = Arc::new(Semaphore::new(server.bounds.connections));
    let server = Arc::new(server);
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&room).acquire_owned() => place,
            Some(_) = connections.join_next() => continue,
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let server = Arc::clone(&server);
                connections.spawn(async move {
                    let _place = place;
                    server.connection(stream).await;
                });
            }
            // Out of descriptors, mostly: the scraper comes again.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a client of the metrics");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

impl Server {
    async fn connection(&self, stream: TcpStream) {
        let served = async {
            let tls = TlsAcceptor::from(self.identity.config().await);
            let stream = match tls.accept(stream).await {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::debug!(%error, "a client of the metrics does not speak TLS");
                    return;
                }
            };
            let service =
                service_fn(
                    |request| async move { Ok::<_, Infallible>(self.answer(&request).await) },
                );
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(false)
                .max_buf_size(HEAD)
                .serve_connection(TokioIo::new(stream), service);
            // A client that leaves is not the operator's concern.
            let _ = served.await;
        };
        if tokio::time::timeout(self.bounds.time, served)
            .await
            .is_err()
        {
            tracing::debug!("a client of the metrics was too slow");
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.uri().path() != PATH || !matches!(*request.method(), Method::GET | Method::HEAD)
        {
            return text(StatusCode::NOT_FOUND, "there is /metrics");
        }
        match self.guard.access(bearer(request.headers())).await {
            Access::Allowed => {
                let mut response = Response::new(Full::from(self.metrics.text()));
                response.headers_mut().insert(CONTENT_TYPE, TEXT);
                response
            }
            Access::Unauthenticated => {
                let mut response = text(
                    StatusCode::UNAUTHORIZED,
                    "a bearer token of the management cluster is needed",
                );
                let bearer = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
                response
            }
            Access::Denied => text(
                StatusCode::FORBIDDEN,
                "the right to `get` the path /metrics is needed: the ClusterRole \
                 `rke-operator-metrics-reader` has it",
            ),
            Access::Unknown => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the management cluster did not say who this is: see the operator's log",
            ),
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn text(code: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{body}\n")));
    *response.status_mut() = code;
    response
}

//! What the program on a node answers: `/healthz`, and `/snapshots`, a [`Report`]. On the loopback address, over plain
//! HTTP: neither has a secret in it.

use std::{
    convert::Infallible,
    io,
    net::Ipv4Addr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::record::Report;
use crate::model::Component;

/// Where it listens.
pub const PORT: u16 = Component::Snapshots.health_port();
/// How long a connection may take.
const CONNECTION: Duration = Duration::from_secs(30);
/// How many at once.
const CONNECTIONS: usize = 32;

/// The newest report.
#[derive(Clone, Default)]
pub(super) struct Shown(Arc<Mutex<Option<Report>>>);

impl Shown {
    /// From now on it is this one.
    pub(super) fn set(&self, report: Report) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let report = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, body) = match (method, path, report.as_ref()) {
            (&Method::GET, "/healthz", _) => (StatusCode::OK, "ok\n".into()),
            (&Method::GET, "/snapshots", Some(report)) => (
                StatusCode::OK,
                serde_json::to_vec(report).unwrap_or_default(),
            ),
            (&Method::GET, "/snapshots", None) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the folder was not read yet\n".into(),
            ),
            _ => (StatusCode::NOT_FOUND, "no such page\n".into()),
        };
        let mut answer = Response::new(Full::new(Bytes::from(body)));
        *answer.status_mut() = status;
        if path == "/snapshots" && status == StatusCode::OK {
            let json = http::HeaderValue::from_static("application/json");
            answer.headers_mut().insert(CONTENT_TYPE, json);
        }
        answer
    }
}

/// Where it listens, from now on.
pub(super) async fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}

/// Answers until it is dropped.
pub(super) async fn serve(listener: TcpListener, shown: Shown) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        let full = connections.len() >= CONNECTIONS;
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if !full => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, shown.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            },
        }
    }
}

async fn connection(stream: TcpStream, shown: Shown) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = shown.answer(request.method(), request.uri().path());
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    // A client that goes away is its own problem.
    let _ = tokio::time::timeout(CONNECTION, served).await;
}

//! Asks one component on a node whether it is healthy.

use std::{io, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::sync::Mutex;

use super::connect::SERVER_NAME;
use crate::{
    error::with_causes,
    host::{Stream, any_server, https},
    model::{ClientIdentity, Component},
};

/// How long one answer may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// How much of an answer is read.
const ENOUGH: usize = 64 * 1024;

impl Component {
    /// The port of its health endpoint, on the node's loopback address.
    pub const fn health_port(self) -> u16 {
        match self {
            Self::Etcd => 2381,
            Self::ApiServer | Self::NginxProxy => 6443,
            Self::ControllerManager => 10257,
            Self::Scheduler => 10259,
            Self::Kubelet => 10248,
            Self::KubeProxy => 10256,
            Self::Snapshots => 2382,
        }
    }

    const fn health_path(self) -> &'static str {
        match self {
            Self::Etcd => "/health",
            Self::ApiServer | Self::NginxProxy => "/readyz",
            Self::ControllerManager
            | Self::Scheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Snapshots => "/healthz",
        }
    }
}

/// Probes one component, as often as a caller waits for it: the connection is kept between two probes.
///
/// The API server must prove who it is and is shown our certificate. The controller manager and
/// the scheduler serve certificates that they sign themselves; on the node's own loopback
/// address, through SSH, those are taken as they are, and nothing secret is sent.
pub struct Probe<'e> {
    component: Component,
    engine: &'e ClientIdentity,
    kept: Mutex<Option<Kept>>,
}

/// A connection, which is driven concurrently with each request.
struct Kept {
    sender: SendRequest<Empty<Bytes>>,
    connection: BoxFuture<'static, ()>,
}

type Broken = Box<dyn std::error::Error + Send + Sync>;

impl<'e> Probe<'e> {
    /// Of a component on some node.
    pub fn new(component: Component, engine: &'e ClientIdentity) -> Self {
        Self {
            component,
            engine,
            kept: Mutex::default(),
        }
    }

    /// Asks once. Where there is no connection any more, `open` gives a stream to
    /// [`Component::health_port`] on the node's loopback address.
    ///
    /// The error is a fragment that says what it answered.
    pub async fn ask(
        &self,
        open: impl Future<Output = io::Result<Box<dyn Stream>>> + Send,
    ) -> Result<(), String> {
        tokio::time::timeout(DEADLINE, Box::pin(self.answer(open)))
            .await
            .unwrap_or_else(|_elapsed| Err("no answer within 10 s".to_owned()))
    }

    async fn answer(
        &self,
        open: impl Future<Output = io::Result<Box<dyn Stream>>> + Send,
    ) -> Result<(), String> {
        let mut place = self.kept.lock().await;
        // One that was closed meanwhile has said nothing about who is there now.
        let kept = match place.take() {
            Some(kept) => self.get(kept).await.ok(),
            None => None,
        };
        let (kept, status, body) = if let Some(answered) = kept {
            answered
        } else {
            let kept = self.connect(open).await?;
            let answered = self.get(kept).await;
            answered.map_err(|error| with_causes(&*error))?
        };
        *place = Some(kept);
        if status.is_success() {
            return Ok(());
        }
        Err(explain(status, &body))
    }

    async fn connect(
        &self,
        open: impl Future<Output = io::Result<Box<dyn Stream>>> + Send,
    ) -> Result<Kept, String> {
        let stream = open.await.map_err(|error| with_causes(&error))?;
        let tls = match self.component {
            Component::Etcd | Component::Kubelet | Component::KubeProxy | Component::Snapshots => {
                None
            }
            Component::ApiServer | Component::NginxProxy => Some(https::tls(self.engine)),
            Component::ControllerManager | Component::Scheduler => Some(any_server::tls()),
        };
        let stream: Box<dyn Stream> = match tls {
            None => stream,
            Some(tls) => {
                let tls = tls.map_err(|error| with_causes(&error))?;
                let stream = https::handshake(&tls, SERVER_NAME, stream).await;
                Box::new(stream.map_err(|error| format!("TLS: {}", with_causes(&error)))?)
            }
        };
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| with_causes(&error))?;
        Ok(Kept {
            sender,
            connection: connection.map(drop).boxed(),
        })
    }

    /// One GET.
    async fn get(&self, kept: Kept) -> Result<(Kept, http::StatusCode, Bytes), Broken> {
        let Kept {
            mut sender,
            mut connection,
        } = kept;
        let request = Request::get(self.component.health_path())
            .header(http::header::HOST, "localhost")
            .body(Empty::<Bytes>::new())?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ENOUGH).collect().await?;
            Ok::<_, Broken>((status, body.to_bytes()))
        };
        let mut exchange = Box::pin(exchange);
        let answer = tokio::select! {
            answer = &mut exchange => answer,
            // The connection ended: what it delivered is still there to be read.
            () = &mut connection => {
                connection = std::future::pending().boxed();
                exchange.as_mut().await
            }
        };
        drop(exchange);
        let (status, body) = answer?;
        Ok((Kept { sender, connection }, status, body))
    }
}

/// `HTTP 500: [-]etcd failed: …`: the checks that failed, or the first line.
fn explain(status: http::StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let failed: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("[-]"))
        .collect();
    let said = if failed.is_empty() {
        text.lines().next().unwrap_or_default().to_owned()
    } else {
        failed.join(", ")
    };
    let said: String = said.chars().take(300).collect();
    if said.is_empty() {
        format!("HTTP {}", status.as_u16())
    } else {
        format!("HTTP {}: {said}", status.as_u16())
    }
}

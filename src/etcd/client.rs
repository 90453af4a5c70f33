//! A client of one member: etcd's JSON gateway on its client port, through the node's SSH
//! connection.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    EtcdError,
    wire::{self, Refusal},
};
use crate::{
    host::{
        Host,
        https::{self, Connector, OpenStream},
        log::Sending,
    },
    model::ClientIdentity,
};

/// etcd's client port.
const PORT: u16 = 2379;

/// The name that every etcd certificate of ours bears, whatever the node's address is.
const SERVER_NAME: &str = "localhost";

/// How long one answer may take. etcd itself gives up after 5 s and two elections.
const DEADLINE: Duration = Duration::from_secs(15);

/// How much of an answer is read.
const ENOUGH: usize = 1 << 20;

/// A client of one member.
#[derive(Clone)]
pub struct Client {
    http: legacy::Client<Connector, Full<Bytes>>,
}

impl Client {
    /// Of the member on a node.
    pub fn through(host: Arc<Host>, engine: &ClientIdentity) -> Result<Self, EtcdError> {
        let open = move || {
            let host = Arc::clone(&host);
            async move { host.local_port(PORT).await.map_err(io::Error::other) }.boxed()
        };
        Self::connect(Arc::new(open), engine)
    }

    /// Of the member that these streams lead to.
    pub fn connect(open: OpenStream, engine: &ClientIdentity) -> Result<Self, EtcdError> {
        let http = https::client(open, SERVER_NAME, engine)?;
        Ok(Self { http })
    }

    /// What the member says about itself. A learner answers this and nothing else.
    pub(super) async fn status(&self) -> Result<wire::Status, EtcdError> {
        let nothing = serde_json::json!({});
        self.ask(
            "read the status of etcd",
            "/v3/maintenance/status",
            &nothing,
        )
        .await
    }

    /// The members: as a majority confirms them, or as this member remembers them.
    pub(super) async fn members(&self, linearizable: bool) -> Result<wire::Members, EtcdError> {
        let request = wire::ListMembers { linearizable };
        self.ask("list etcd's members", "/v3/cluster/member/list", &request)
            .await
    }

    /// The alarms. Goes through raft like a write, so it is asked only when a status has told of
    /// some.
    pub(super) async fn alarms(&self) -> Result<wire::Alarms, EtcdError> {
        let get = serde_json::json!({ "action": "GET" });
        self.ask("list etcd's alarms", "/v3/maintenance/alarm", &get)
            .await
    }

    /// What the member counts, as Prometheus reads it.
    pub(super) async fn metrics(&self) -> Result<String, EtcdError> {
        let doing = "read the metrics of etcd";
        let request = Request::get("/metrics").body(Full::default());
        let body = bounded(doing, self.send(doing, request)).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// One request and its answer.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        doing: &'static str,
        path: &'static str,
        request: &(impl Serialize + Sync),
    ) -> Result<T, EtcdError> {
        let unreadable = |source| EtcdError::Answer { doing, source };
        let body = serde_json::to_vec(request).map_err(unreadable)?;
        let request = Request::post(path).body(Full::new(Bytes::from(body)));
        let body = bounded(doing, self.send(doing, request)).await?;
        serde_json::from_slice(&body).map_err(unreadable)
    }

    async fn send(
        &self,
        doing: &'static str,
        request: http::Result<Request<Full<Bytes>>>,
    ) -> Result<Bytes, EtcdError> {
        let request = request
            .and_then(|request| https::addressed(SERVER_NAME, request))
            .map_err(|source| no_answer(doing, source))?;
        let sending = Sending::of(&request);
        let sent = self.http.request(request).await;
        sending.ended("etcd", &sent);
        let answer = sent.map_err(|source| no_answer(doing, source))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ENOUGH).collect().await;
        let body = body
            .map_err(|source| EtcdError::NoAnswer { doing, source })?
            .to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let refusal: Refusal = serde_json::from_slice(&body).unwrap_or_default();
        let said = [refusal.message, refusal.error].into_iter();
        Err(EtcdError::Refused {
            doing,
            code: refusal.code,
            message: said
                .filter(|text| !text.is_empty())
                .chain([format!("HTTP {}", status.as_u16())])
                .next()
                .unwrap_or_default(),
        })
    }
}

/// An answer within its time.
async fn bounded<T>(
    doing: &'static str,
    answer: impl Future<Output = Result<T, EtcdError>>,
) -> Result<T, EtcdError> {
    let late = || EtcdError::Slow {
        doing,
        after: DEADLINE,
    };
    let answer = tokio::time::timeout(DEADLINE, answer).await;
    answer.unwrap_or_else(|_elapsed| Err(late()))
}

fn no_answer(
    doing: &'static str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> EtcdError {
    EtcdError::NoAnswer {
        doing,
        source: Box::new(source),
    }
}

//! A client of one member: etcd's JSON gateway on its client port, through the node's SSH
//! connection.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::FutureExt;
use http::{
    HeaderMap, Request, Response,
    header::{CONTENT_TYPE, TE},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    EtcdError, Since, grpc, since,
    wire::{self, Refusal},
};
use crate::{
    host::{
        https::{self, Connector, OpenStream},
        log::Sending,
        pool::Hosts,
    },
    model::{ClientIdentity, NodeName},
};

/// etcd's client port.
pub(crate) const PORT: u16 = 2379;

/// A name in every etcd certificate that rke-operator issues, whatever the node's address is.
const SERVER_NAME: &str = "localhost";

/// How long one answer may take. etcd itself gives up after 5 s and two elections.
const DEADLINE: Duration = Duration::from_secs(15);

/// How much of an answer is read.
const ENOUGH: usize = 1 << 20;

/// A client of one member.
#[derive(Clone)]
pub struct Client {
    name: Arc<str>,
    http: legacy::Client<Connector, Full<Bytes>>,
    limit: Duration,
}

impl Client {
    /// Of the member on a node, whichever connection leads there.
    pub fn through(
        hosts: &Hosts,
        node: &NodeName,
        engine: &ClientIdentity,
    ) -> Result<Self, EtcdError> {
        let (hosts, node) = (hosts.clone(), node.clone());
        let open = move || {
            let (hosts, node) = (hosts.clone(), node.clone());
            async move { hosts.port(&node, PORT).await }.boxed()
        };
        Self::connect(Arc::new(open), engine)
    }

    /// Of the member that these streams lead to.
    pub fn connect(open: OpenStream, engine: &ClientIdentity) -> Result<Self, EtcdError> {
        Self::named(open, SERVER_NAME, engine)
    }

    /// Of a member outside of the cluster, whose certificate has this name.
    pub(super) fn of_external(
        open: OpenStream,
        name: &str,
        identity: &ClientIdentity,
    ) -> Result<Self, EtcdError> {
        Self::named(open, name, identity)
    }

    fn named(open: OpenStream, name: &str, identity: &ClientIdentity) -> Result<Self, EtcdError> {
        let name = Arc::from(name);
        let http = https::client(open, Arc::clone(&name), identity)?;
        Ok(Self {
            name,
            http,
            limit: DEADLINE,
        })
    }

    /// The same, with less time for each answer.
    pub(crate) const fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
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
        let body = self.bounded(doing, self.send(doing, request)).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// What was made and changed since a revision.
    pub(crate) async fn since(&self, revision: u64) -> Result<Since, EtcdError> {
        let doing = "count what was made since the snapshot";
        let range = "/v3/kv/range";
        let made = self
            .ask(doing, range, &since::Asked::made(revision))
            .await?;
        let changed = since::Asked::changed(revision);
        let changed = self.ask(doing, range, &changed).await?;
        Ok(Since::of(&made, &changed))
    }

    /// Whether there is a key in a range. Asked in gRPC: etcd's gateway does not tell etcd whose certificate it is.
    pub(super) async fn first_key(
        &self,
        doing: &'static str,
        range: &(Vec<u8>, Vec<u8>),
    ) -> Result<grpc::Ranged, EtcdError> {
        let request = Request::post(grpc::RANGE)
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .body(Full::new(Bytes::from(grpc::first_key(range))));
        self.bounded(doing, async {
            let answer = self.sent(doing, request).await?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ENOUGH).collect().await;
            let body = body.map_err(|source| EtcdError::NoAnswer { doing, source })?;
            // Where there is no message, what is else behind it is in the head.
            let trailers = body.trailers().cloned().unwrap_or(head.headers);
            match grpc_status(&trailers) {
                Some((0, _)) => grpc::ranged(&body.to_bytes()).ok_or_else(|| EtcdError::Refused {
                    doing,
                    code: 0,
                    message: "its answer is none of etcd's".to_owned(),
                }),
                Some((code, message)) => Err(EtcdError::Refused {
                    doing,
                    code,
                    message,
                }),
                // No etcd: something else that has HTTP.
                None => Err(EtcdError::Refused {
                    doing,
                    code: -1,
                    message: format!("HTTP {}, and not gRPC", head.status.as_u16()),
                }),
            }
        })
        .await
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
        let body = self.bounded(doing, self.send(doing, request)).await?;
        serde_json::from_slice(&body).map_err(unreadable)
    }

    pub(super) async fn sent(
        &self,
        doing: &'static str,
        request: http::Result<Request<Full<Bytes>>>,
    ) -> Result<Response<Incoming>, EtcdError> {
        let request = request
            .and_then(|request| https::addressed(&self.name, request))
            .map_err(|source| no_answer(doing, source))?;
        let sending = Sending::of(&request);
        let sent = self.http.request(request).await;
        sending.ended("etcd", &sent);
        sent.map_err(|source| no_answer(doing, source))
    }

    async fn send(
        &self,
        doing: &'static str,
        request: http::Result<Request<Full<Bytes>>>,
    ) -> Result<Bytes, EtcdError> {
        let answer = self.sent(doing, request).await?;
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

    /// An answer within its time.
    async fn bounded<T>(
        &self,
        doing: &'static str,
        answer: impl Future<Output = Result<T, EtcdError>>,
    ) -> Result<T, EtcdError> {
        let after = self.limit;
        let answer = tokio::time::timeout(after, answer).await;
        answer.unwrap_or_else(|_elapsed| Err(EtcdError::Slow { doing, after }))
    }
}

/// gRPC's code and text, where a head or a trailer has them.
pub(super) fn grpc_status(headers: &HeaderMap) -> Option<(i64, String)> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status")?.parse().ok()?;
    Some((
        code,
        grpc::message(text("grpc-message").unwrap_or_default()),
    ))
}

pub(super) fn no_answer(
    doing: &'static str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> EtcdError {
    EtcdError::NoAnswer {
        doing,
        source: Box::new(source),
    }
}

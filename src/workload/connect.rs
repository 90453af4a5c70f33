//! Kube clients whose bytes go through the nodes' SSH connections. A client belongs to the pool of
//! connections and not to one of them: each stream is requested when it is needed, so one reconnect to a node
//! serves all clients.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Frame, Incoming};
use hyper_util::client::legacy;
use kube::{Client, client::Body};
use tokio::time::{Instant, Sleep};

use super::WorkloadError;
use crate::{
    host::{
        https::{self, Connector, OpenStream},
        log::Sending,
        pool::Hosts,
    },
    model::{ClientIdentity, Component, NodeName},
};

/// The name that every API server's certificate has, whatever the node's address is.
pub(super) const SERVER_NAME: &str = "kubernetes";

/// How many waits share a connection: each follows some kinds of objects, and an API server takes 250
/// requests at once on one connection.
const SHARE: usize = 32;
/// How many connections waits have before they share more.
const SHARED: usize = 64;

/// How long a server that accepted no connection is tried only after the others: some callers wait for less time than
/// such a failure takes.
const SHUT: Duration = Duration::from_secs(60);

/// The most of an answer that is collected: an administrator of the cluster may fill its API, and a node may pretend to
/// have one.
const ANSWER: usize = 64 << 20;

/// The connections to one API server.
type Door = legacy::Client<Connector, Full<Bytes>>;

/// The servers that accepted no connection, and since when.
type Shut = Mutex<BTreeMap<NodeName, Instant>>;

/// Which node, and whom we trust there.
type Key = (NodeName, String, usize);

/// The API servers of a cluster as one run asks them: the connections to each, for all who ask, and when
/// one of them answered last. Clones are the same.
#[derive(Clone)]
pub struct Apis(Arc<Inner>);

struct Inner {
    hosts: Hosts,
    doors: Mutex<BTreeMap<Key, Door>>,
    waits: AtomicUsize,
    shut: Shut,
    heard: Mutex<Option<Instant>>,
}

impl Apis {
    /// Through these connections; none is opened yet.
    pub fn new(hosts: &Hosts) -> Self {
        Self(Arc::new(Inner {
            hosts: hosts.clone(),
            doors: Mutex::default(),
            waits: AtomicUsize::new(0),
            shut: Mutex::default(),
            heard: Mutex::default(),
        }))
    }

    /// The same servers as a new client sees them: every connection is a new one.
    #[must_use]
    pub fn as_a_stranger(&self) -> Self {
        Self::new(&self.0.hosts)
    }

    /// When an API server did something for a step last. The lease does not count.
    pub fn heard(&self) -> Option<Instant> {
        *self.0.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client of the API server on one control plane.
    pub fn of(&self, node: &NodeName, engine: &ClientIdentity) -> Result<Client, WorkloadError> {
        let door = self.door(node, engine, 0)?;
        Ok(self.client(vec![(node.clone(), door)]))
    }

    /// A client of an API server on another port of a control plane.
    pub fn at(
        &self,
        node: &NodeName,
        port: u16,
        engine: &ClientIdentity,
    ) -> Result<Client, WorkloadError> {
        let door = self.opened(node, port, engine)?;
        Ok(self.client(vec![(node.clone(), door)]))
    }

    /// A client of the first API server that takes a connection, of those on these control planes. It
    /// outlives each of them.
    pub fn any<'n>(
        &self,
        nodes: impl IntoIterator<Item = &'n NodeName>,
        engine: &ClientIdentity,
    ) -> Result<Client, WorkloadError> {
        self.shared(nodes, engine, 0)
    }

    /// The same for one that follows objects for long: not all of them have one connection.
    pub fn waiting<'n>(
        &self,
        nodes: impl IntoIterator<Item = &'n NodeName>,
        engine: &ClientIdentity,
    ) -> Result<Client, WorkloadError> {
        let number = self.0.waits.fetch_add(1, Ordering::Relaxed);
        self.shared(nodes, engine, number / SHARE % SHARED)
    }

    fn shared<'n>(
        &self,
        nodes: impl IntoIterator<Item = &'n NodeName>,
        engine: &ClientIdentity,
        number: usize,
    ) -> Result<Client, WorkloadError> {
        let doors = nodes.into_iter().map(|node| {
            let door = self.door(node, engine, number)?;
            Ok((node.clone(), door))
        });
        let doors: Result<Vec<_>, WorkloadError> = doors.collect();
        Ok(self.client(doors?))
    }

    /// The certificate of the first caller is presented there from then on.
    fn door(
        &self,
        node: &NodeName,
        engine: &ClientIdentity,
        number: usize,
    ) -> Result<Door, WorkloadError> {
        let key = (node.clone(), engine.ca.clone(), number);
        let mut doors = self.0.doors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(door) = doors.get(&key) {
            return Ok(door.clone());
        }
        let door = self.opened(node, Component::ApiServer.health_port(), engine)?;
        doors.insert(key, door.clone());
        Ok(door)
    }

    fn opened(
        &self,
        node: &NodeName,
        port: u16,
        engine: &ClientIdentity,
    ) -> Result<Door, WorkloadError> {
        let (hosts, node) = (self.0.hosts.clone(), node.clone());
        let open: OpenStream = Arc::new(move || {
            let (hosts, node) = (hosts.clone(), node.clone());
            async move { hosts.port(&node, port).await }.boxed()
        });
        Ok(https::client(open, SERVER_NAME.into(), engine)?)
    }

    fn client(&self, doors: Vec<(NodeName, Door)>) -> Client {
        let inner = Arc::clone(&self.0);
        let doors: Arc<[(NodeName, Door)]> = doors.into();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (doors, inner) = (Arc::clone(&doors), Arc::clone(&inner));
            async move {
                let acts = acts(&request);
                let answer = through(&doors, &inner.shut, request).await?;
                if acts && answer.status().is_success() {
                    let mut heard = inner.heard.lock().unwrap_or_else(PoisonError::into_inner);
                    *heard = Some(Instant::now());
                }
                Ok::<_, tower::BoxError>(answer)
            }
        });
        Client::new(service, "default")
    }
}

/// True for what only a server that has its etcd can answer, the lease left out.
fn acts<B>(request: &Request<B>) -> bool {
    let mut parts = request.uri().path().trim_matches('/').split('/');
    let behind = match parts.next() {
        Some("api") => 1,
        Some("apis") => 2,
        Some(_) | None => return false,
    };
    let resources: Vec<&str> = parts.skip(behind).collect();
    let lease = resources.contains(&"leases");
    let reads = request.method() == Method::GET;
    !lease && (!reads || !resources.is_empty())
}

/// True for an answer that is read as it comes and has no end.
fn is_followed(query: &str) -> bool {
    let mut pairs = query.split('&');
    pairs.any(|pair| ["watch=true", "watch=1", "follow=true"].contains(&pair))
}

/// Through the first door that opens; what was sent through one is not sent through another.
async fn through(
    doors: &[(NodeName, Door)],
    shut: &Shut,
    request: Request<Body>,
) -> Result<Response<Limited<Incoming>>, tower::BoxError> {
    let request = https::addressed(SERVER_NAME, request)?;
    let (head, body) = request.into_parts();
    let most = if is_followed(head.uri.query().unwrap_or_default()) {
        usize::MAX
    } else {
        ANSWER
    };
    let body = body.collect().await?.to_bytes();
    let is_shut = |node: &NodeName| {
        let shut = shut.lock().unwrap_or_else(PoisonError::into_inner);
        shut.get(node).is_some_and(|when| when.elapsed() < SHUT)
    };
    let (last, first): (Vec<_>, Vec<_>) = doors.iter().partition(|(node, _)| is_shut(node));
    let mut refused: tower::BoxError = io::Error::from(io::ErrorKind::NotFound).into();
    for (node, door) in first.into_iter().chain(last) {
        let request = Request::from_parts(head.clone(), Full::new(body.clone()));
        let sending = Sending::of(&request);
        let answer = door.request(request).await;
        sending.ended("the API server", &answer);
        let opened = answer
            .as_ref()
            .map_or_else(|error| !error.is_connect(), |_| true);
        {
            let mut shut = shut.lock().unwrap_or_else(PoisonError::into_inner);
            if opened {
                shut.remove(node);
            } else {
                shut.insert(node.clone(), Instant::now());
            }
        }
        match answer {
            Err(error) if !opened => refused = error.into(),
            answer => return Ok(answer?.map(|body| Limited::new(body, most))),
        }
    }
    Err(refused)
}

/// A client of the cluster's API over streams that `open` provides; the server must prove with the
/// cluster's CA that it is `kubernetes`.
pub fn connect(open: OpenStream, engine: &ClientIdentity) -> Result<Client, WorkloadError> {
    let door: Door = https::client(open, SERVER_NAME.into(), engine)?;
    let service = tower::service_fn(move |request: Request<Body>| {
        let door = (NodeName::from(SERVER_NAME), door.clone());
        async move { through(&[door], &Shut::default(), request).await }
    });
    Ok(Client::new(service, "default"))
}

/// The same client, whose every answer has this time, from the request to the last byte.
pub(super) fn each_within(client: &Client, limit: Duration) -> Client {
    let client = client.clone();
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let until = Instant::now() + limit;
            let answer = tokio::time::timeout_at(until, client.send(request)).await;
            let answer = answer.map_err(|_elapsed| late(limit))??;
            Ok::<_, tower::BoxError>(answer.map(|body| Due {
                body,
                limit,
                until: Box::pin(tokio::time::sleep_until(until)),
            }))
        }
    });
    Client::new(service, namespace)
}

/// The same client, whose every answer, also one that is read as it comes, has so many bytes at most.
pub(super) fn each_at_most(client: &Client, bytes: usize) -> Client {
    let client = client.clone();
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let answer = client.send(request).await?;
            Ok::<_, tower::BoxError>(answer.map(|body| Limited::new(body, bytes)))
        }
    });
    Client::new(service, namespace)
}

fn late(limit: Duration) -> io::Error {
    let why = format!("no answer within {} s", limit.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// A body that must have come by then.
struct Due {
    body: Body,
    limit: Duration,
    until: Pin<Box<Sleep>>,
}

impl http_body::Body for Due {
    type Data = Bytes;
    type Error = tower::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.until.as_mut().poll(cx));
        Poll::Ready(Some(Err(late(self.limit).into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server answers that has lost its etcd, and what keeps the lease, are no signs of life.
    #[test]
    fn only_what_needs_etcd_says_that_an_api_was_reached() {
        let acts = |method: &str, path: &str| {
            acts(
                &Request::builder()
                    .method(method)
                    .uri(path)
                    .body(())
                    .unwrap(),
            )
        };
        assert!(acts("GET", "/api/v1/nodes"));
        assert!(acts(
            "GET",
            "/apis/apps/v1/namespaces/kube-system/daemonsets/a"
        ));
        assert!(acts("PATCH", "/api/v1/nodes/n1?force=true"));
        for path in ["/readyz", "/version", "/api/v1", "/apis/apps/v1", "/apis"] {
            assert!(!acts("GET", path), "{path}");
        }
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/rke-operator-run";
        assert!(!acts("PUT", lease));
    }

    #[test]
    fn what_is_collected_has_a_bound_and_what_is_followed_has_none() {
        for (query, followed) in [
            ("", false),
            ("limit=500", false),
            ("timeoutSeconds=290&watch=true", true),
            ("follow=true&tailLines=4", true),
            ("labelSelector=watch%3Dtrue", false),
        ] {
            assert_eq!(is_followed(query), followed, "{query}");
        }
    }
}

//! The probes that kubelet sends: `/readyz` (may this process act, or take over?) and `/healthz` (should it
//! be restarted?), over plain HTTP on a dedicated port. Both answer with a reason.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

use super::metrics::Metrics;

/// The loop that the controllers run in shows itself more often than this ([`BEAT`]), whatever the Clusters
/// are at: one that waits an hour for its next try is no reason to end the process that waits.
const SILENCE: Duration = Duration::from_secs(5 * 60);

/// How often it shows itself.
pub(super) const BEAT: Duration = Duration::from_secs(15);

/// A process that has not been able to read the objects for this long is started again.
const UNREAD: Duration = Duration::from_secs(5 * 60);

/// Who cannot watch what it looks after for this long is not ready.
const BLIND: Duration = Duration::from_secs(45);

/// A process that must end has done so by then.
const ENDING: Duration = Duration::from_secs(180);

/// How long a connection may take, from its request to the end of the answer.
const CONNECTION: Duration = Duration::from_secs(10);

/// What the process is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Looks at the management cluster.
    Starting,
    /// Another holds the lease.
    Waiting,
    /// Fills its caches.
    Filling,
    /// Works.
    Leading,
    /// Received the stop signal, or lost its lease, at that time.
    Ending(Instant),
}

/// How the operator is, and what it shows of itself.
#[derive(Debug)]
pub(super) struct Health {
    signs: Mutex<Signs>,
    pub(super) metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Signs {
    phase: Phase,
    /// The controllers showed that they go on.
    last: Instant,
    /// Since when this process tries to read the objects without having read all of them.
    unread: Option<Instant>,
    /// What cannot be read: since when, and why.
    failing: BTreeMap<String, (Instant, String)>,
}

/// An answer: healthy or not, and why.
type ProbeResult = Result<&'static str, String>;

impl Health {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            signs: Mutex::new(Signs {
                phase: Phase::Starting,
                last: Instant::now(),
                unread: None,
                failing: BTreeMap::new(),
            }),
            metrics: Metrics::new(),
        })
    }

    fn with<T>(&self, with: impl FnOnce(&mut Signs) -> T) -> T {
        with(&mut self.signs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn enters(&self, phase: Phase) {
        self.metrics.leads(phase == Phase::Leading);
        self.with(|signs| {
            let now = Instant::now();
            match phase {
                Phase::Filling => {
                    signs.unread.get_or_insert(now);
                }
                Phase::Leading => signs.unread = None,
                Phase::Starting | Phase::Waiting | Phase::Ending(_) => {}
            }
            if phase != Phase::Leading {
                signs.failing.clear();
            }
            signs.phase = phase;
            signs.last = now;
        });
    }

    /// The controllers show that they go on.
    pub(super) fn beat(&self) {
        self.with(|signs| signs.last = Instant::now());
    }

    /// Something that this process looks after cannot be read, or not watched.
    pub(super) fn cannot_read(&self, what: &str, why: &str) {
        let news = self.with(|signs| {
            let now = Instant::now();
            let failing = signs.failing.entry(what.to_owned());
            let failing = failing.or_insert_with(|| (now, String::new()));
            let news = failing.1 != why;
            why.clone_into(&mut failing.1);
            news
        });
        if news {
            tracing::warn!(what, why, "cannot read what it looks after");
        }
    }

    /// It can be read.
    pub(super) fn reads(&self, what: &str) {
        if self.with(|signs| signs.failing.remove(what)).is_some() {
            tracing::info!(what, "can be read again");
        }
    }

    fn ready(&self) -> ProbeResult {
        let (phase, failing) = self.with(|signs| {
            let mut failing = signs.failing.iter();
            // One that is not ready anyway says why at once.
            let patience = if signs.phase == Phase::Filling {
                Duration::ZERO
            } else {
                BLIND
            };
            let late = failing.find(|(_, (since, _))| since.elapsed() >= patience);
            let late = late.map(|(what, (_, why))| format!("cannot read {what}: {why}"));
            (signs.phase, late)
        });
        match (phase, failing) {
            (Phase::Starting, _) => Err("looks at the management cluster".to_owned()),
            (Phase::Waiting, _) => Ok("waits for the lease"),
            (Phase::Filling, Some(why)) => Err(format!("reads the objects; {why}")),
            (Phase::Filling, None) => Err("reads the objects".to_owned()),
            (Phase::Leading, Some(why)) => Err(why),
            (Phase::Leading, None) => Ok("leads"),
            (Phase::Ending(_), _) => Err("ends".to_owned()),
        }
    }

    fn alive(&self) -> ProbeResult {
        let (phase, silence, unread) = self.with(|signs| {
            let unread = signs.unread.map(|since| since.elapsed());
            (signs.phase, signs.last.elapsed(), unread)
        });
        match (phase, unread) {
            (Phase::Ending(since), _) if since.elapsed() > ENDING => Err(format!(
                "should have ended {} s ago",
                since.elapsed().as_secs()
            )),
            (Phase::Leading, _) if silence > SILENCE => Err(format!(
                "the controllers have shown nothing for {} s",
                silence.as_secs()
            )),
            (Phase::Filling, Some(unread)) if unread > UNREAD => Err(format!(
                "has not been able to read the objects for {} s",
                unread.as_secs()
            )),
            // Waiting is what the others do; it may take for ever.
            (
                Phase::Starting
                | Phase::Waiting
                | Phase::Filling
                | Phase::Leading
                | Phase::Ending(_),
                _,
            ) => Ok("ok"),
        }
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let result = match (method, path) {
            (&Method::GET | &Method::HEAD, "/readyz") => self.ready(),
            (&Method::GET | &Method::HEAD, "/healthz") => self.alive(),
            _ => return text(StatusCode::NOT_FOUND, "there are /healthz and /readyz"),
        };
        match result {
            Ok(word) => text(StatusCode::OK, word),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, &why),
        }
    }
}

fn text(code: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{body}\n")));
    *response.status_mut() = code;
    response
}

/// Opens the port. All addresses are those of IPv6 and IPv4, or of IPv4 where there is no other.
pub(super) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Answers until it is dropped.
pub(super) async fn serve(listener: TcpListener, health: Arc<Health>) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, Arc::clone(&health)));
            }
            // Out of descriptors, mostly: the client tries again.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a probe");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, health: Arc<Health>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = health.answer(request.method(), request.uri().path());
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A client that goes away, or says nothing, is its own problem.
    let _ = tokio::time::timeout(CONNECTION, served).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn code(health: &Health, path: &str) -> u16 {
        health.answer(&Method::GET, path).status().as_u16()
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_is_ready_when_it_may_act_or_take_over() {
        let health = Health::new();
        assert_eq!(code(&health, "/readyz"), 503);
        for (phase, ready) in [
            (Phase::Waiting, 200),
            (Phase::Filling, 503),
            (Phase::Leading, 200),
            (Phase::Ending(Instant::now()), 503),
        ] {
            health.enters(phase);
            assert_eq!(code(&health, "/readyz"), ready, "{phase:?}");
            assert_eq!(code(&health, "/healthz"), 200, "{phase:?}");
        }
        assert_eq!(code(&health, "/metrics"), 404);
        let post = health.answer(&Method::POST, "/healthz").status();
        assert_eq!(post, StatusCode::NOT_FOUND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_whose_controllers_are_silent_is_restarted() {
        let health = Health::new();
        health.enters(Phase::Leading);
        tokio::time::advance(SILENCE).await;
        assert_eq!(code(&health, "/healthz"), 200);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(code(&health, "/healthz"), 503);
        health.beat();
        assert_eq!(code(&health, "/healthz"), 200);
        // One that waits for the lease has no controllers.
        health.enters(Phase::Waiting);
        tokio::time::advance(SILENCE * 2).await;
        assert_eq!(code(&health, "/healthz"), 200);
        health.enters(Phase::Ending(Instant::now()));
        tokio::time::advance(ENDING + Duration::from_secs(1)).await;
        assert_eq!(code(&health, "/healthz"), 503);
    }

    /// Also when it gave the lease back in between, and got it again.
    #[tokio::test(start_paused = true)]
    async fn a_process_that_cannot_read_the_objects_is_started_again() {
        let health = Health::new();
        for _ in 0..4 {
            health.enters(Phase::Waiting);
            health.enters(Phase::Filling);
            tokio::time::advance(UNREAD / 4).await;
            assert_eq!(code(&health, "/healthz"), 200);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(code(&health, "/healthz"), 503);
        health.enters(Phase::Leading);
        health.enters(Phase::Filling);
        assert_eq!(code(&health, "/healthz"), 200, "it has read them");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_fails_takes_readiness_away_within_a_minute() {
        let health = Health::new();
        health.enters(Phase::Leading);
        for _ in 0..4 {
            health.cannot_read("clusters", "500");
            tokio::time::advance(BLIND / 3).await;
        }
        assert!(BLIND < Duration::from_secs(60));
        assert_eq!(health.ready(), Err("cannot read clusters: 500".to_owned()));
        assert_eq!(code(&health, "/readyz"), 503);
        assert_eq!(code(&health, "/healthz"), 200, "a restart is no cure");
        health.reads("clusters");
        assert_eq!(code(&health, "/readyz"), 200);
        // While they are read for the first time the cause is there at once.
        health.enters(Phase::Filling);
        health.cannot_read("secrets", "403");
        let why = "reads the objects; cannot read secrets: 403";
        assert_eq!(health.ready(), Err(why.to_owned()));
    }

    #[tokio::test]
    async fn answers_over_http() {
        let health = Health::new();
        health.enters(Phase::Waiting);
        let listener = listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = tokio::select! {
            answer = asked => answer,
            never = serve(listener, health) => match never {},
        };
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(
            answer.ends_with("\r\n\r\nwaits for the lease\n"),
            "{answer}"
        );
    }
}

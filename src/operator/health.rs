//! What a kubelet asks: `/readyz` (may this process act, or take over?) and `/healthz` (should it
//! be started anew?), over plain HTTP on a port of their own. Both answer with a reason.

use std::{
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

/// With Clusters there, a pass begins, ends or says something more often than this: those that are
/// well are looked at each minute, and every wait of a pass is bounded and reported.
const SILENCE: Duration = Duration::from_secs(15 * 60);

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
    /// Was told to end, or lost its lease, at that time.
    Ending(Instant),
}

/// How the operator is.
#[derive(Debug)]
pub(super) struct Health(Mutex<Signs>);

#[derive(Debug)]
struct Signs {
    phase: Phase,
    /// A pass began, ended or said something.
    last: Instant,
    /// Clusters that are known.
    clusters: usize,
}

/// An answer: in order or not, and why.
type Verdict = Result<&'static str, String>;

impl Health {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Signs {
            phase: Phase::Starting,
            last: Instant::now(),
            clusters: 0,
        })))
    }

    fn with<T>(&self, with: impl FnOnce(&mut Signs) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn enters(&self, phase: Phase) {
        self.with(|signs| {
            signs.phase = phase;
            signs.last = Instant::now();
        });
    }

    /// A controller shows that it goes on; so many Clusters are known.
    pub(super) fn beat(&self, clusters: usize) {
        self.with(|signs| {
            signs.last = Instant::now();
            signs.clusters = clusters;
        });
    }

    fn ready(&self) -> Verdict {
        match self.with(|signs| signs.phase) {
            Phase::Starting => Err("looks at the management cluster".to_owned()),
            Phase::Waiting => Ok("waits for the lease"),
            Phase::Filling => Err("reads the objects".to_owned()),
            Phase::Leading => Ok("leads"),
            Phase::Ending(_) => Err("ends".to_owned()),
        }
    }

    fn alive(&self) -> Verdict {
        let (phase, silence, clusters) =
            self.with(|signs| (signs.phase, signs.last.elapsed(), signs.clusters));
        match phase {
            Phase::Ending(since) if since.elapsed() > ENDING => Err(format!(
                "should have ended {} s ago",
                since.elapsed().as_secs()
            )),
            Phase::Leading if clusters > 0 && silence > SILENCE => Err(format!(
                "{clusters} Clusters, and nothing was heard of any for {} s",
                silence.as_secs()
            )),
            // Waiting is what the others do; it may take for ever.
            Phase::Starting
            | Phase::Waiting
            | Phase::Filling
            | Phase::Leading
            | Phase::Ending(_) => Ok("ok"),
        }
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let verdict = match (method, path) {
            (&Method::GET | &Method::HEAD, "/readyz") => self.ready(),
            (&Method::GET | &Method::HEAD, "/healthz") => self.alive(),
            _ => return text(StatusCode::NOT_FOUND, "there are /healthz and /readyz"),
        };
        match verdict {
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
            // Out of descriptors, mostly: whoever asked asks again.
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
    async fn a_process_whose_controllers_are_silent_is_started_anew() {
        let health = Health::new();
        health.enters(Phase::Leading);
        tokio::time::advance(SILENCE * 2).await;
        assert_eq!(code(&health, "/healthz"), 200, "there is nothing to do");
        health.beat(1);
        tokio::time::advance(SILENCE).await;
        assert_eq!(code(&health, "/healthz"), 200);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(code(&health, "/healthz"), 503);
        health.beat(1);
        assert_eq!(code(&health, "/healthz"), 200);
        // One that waits for the lease has no controllers.
        health.enters(Phase::Waiting);
        tokio::time::advance(SILENCE * 2).await;
        assert_eq!(code(&health, "/healthz"), 200);
        health.enters(Phase::Ending(Instant::now()));
        tokio::time::advance(ENDING + Duration::from_secs(1)).await;
        assert_eq!(code(&health, "/healthz"), 503);
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

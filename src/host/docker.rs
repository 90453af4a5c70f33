//! The node's Docker Engine API through the SSH connection.
//!
//! bollard makes and reads the requests; the bytes go through channels to Docker's socket, which
//! hyper keeps and uses again. What bollard 0.21.1 gets wrong is put right in [`address`].

use std::{
    error::Error as StdError,
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bollard::{BollardRequest, Docker, errors::Error as DockerError};
use bytes::Bytes;
use futures::{FutureExt, Stream, future::BoxFuture};
use http::{HeaderValue, Request, Response, Uri, header::CONTENT_TYPE, uri::PathAndQuery};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioTimer},
};
use russh::ChannelOpenFailure;
use tokio::sync::OnceCell;

use super::{
    bounded::Bounded,
    carrier::{self, Rights},
    error::HostError,
    exec,
    guard::Guarded,
    log::Sending,
    pipe::Pipe,
    ssh::{OpenError, Session},
};
use crate::model::printable;

/// Until the head of a response. Uploads count, so it must cover the largest archive.
const RESPONSE: u64 = 120;

/// How many channels to Docker stay open for what comes next, and for how long at least: each has buffers,
/// and a run has a node's SSH connection open for every node of the cluster. Another channel is one round
/// trip, and so on a long line they stay for as long as some of those.
const IDLE: usize = 8;
const IDLE_FOR: Duration = Duration::from_millis(250);
const IDLE_TRIPS: u32 = 4;

/// The newest API that our requests were written against.
const NEWEST: ApiVersion = ApiVersion(1, 47);

/// bollard's body type, which it does not export.
type Body = Either<
    Full<Bytes>,
    StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, io::Error>> + Send>>>,
>;

/// A version of Docker's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ApiVersion(u16, u16);

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A client of a node's Docker.
pub(super) struct Client {
    pub(super) docker: Docker,
    /// The newest API version, once Docker has reported it.
    pub(super) api: Arc<OnceCell<ApiVersion>>,
    /// How it is reached, once it was.
    pub(super) way: Arc<OnceCell<Way>>,
}

/// A client whose requests go to a socket of the node. Opens nothing yet.
pub(super) fn client(session: Arc<Session>, socket: &str) -> Result<Client, DockerError> {
    let way = Arc::new(OnceCell::new());
    let idle_for = IDLE_FOR.max(session.trip() * IDLE_TRIPS);
    let connector = Connector {
        session,
        socket: Arc::from(socket),
        way: Arc::clone(&way),
    };
    let to = format!("Docker on {}", connector.session.place());
    let client: legacy::Client<Connector, Body> = legacy::Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(IDLE)
        .pool_idle_timeout(idle_for)
        .pool_timer(TokioTimer::new())
        .build(connector);
    let api = Arc::new(OnceCell::new());
    let newest = Arc::clone(&api);
    let docker = Docker::connect_with_custom_transport(
        move |request: BollardRequest| {
            let client = client.clone();
            let api = Arc::clone(&api);
            let to = to.clone();
            async move {
                let theirs = *api.get_or_try_init(|| newest_of(&client)).await?;
                let request = address(request, theirs.min(NEWEST))?;
                let sending = Sending::of(&request);
                let answer = client.request(request).await;
                sending.ended(to, &answer);
                told(answer?).await
            }
        },
        Some("http://docker"),
        RESPONSE,
        bollard::API_DEFAULT_VERSION,
    )?;
    Ok(Client {
        docker,
        api: newest,
        way,
    })
}

/// The newest API version that it speaks, as far as it says.
async fn newest_of(client: &legacy::Client<Connector, Body>) -> Result<ApiVersion, DockerError> {
    let request = Request::builder()
        .uri("http://docker/_ping")
        .body(Either::Left(Full::default()))?;
    let (response, body) = told(client.request(request).await?).await?.into_parts();
    // Read to its end, or the connection could not be used again.
    body.collect().await?;
    let theirs = response
        .headers
        .get("api-version")
        .and_then(|value| value.to_str().ok())
        .and_then(parse_version);
    Ok(theirs.unwrap_or(NEWEST))
}

/// How much of the words of a refusal is read.
const WORDS: usize = 64 << 10;

/// An answer, or Docker's words for why not: bollard would read them to their end, wherever that is.
async fn told(answer: Response<Incoming>) -> Result<Response<Incoming>, DockerError> {
    let status = answer.status();
    if !status.is_client_error() && !status.is_server_error() {
        return Ok(answer);
    }
    let mut body = Vec::new();
    let mut stream = answer.into_body();
    while let Some(frame) = stream.frame().await {
        if let Ok(data) = frame?.into_data() {
            body.extend_from_slice(&data);
        }
        if body.len() > WORDS {
            break;
        }
    }
    let words = serde_json::from_slice::<Refusal>(&body).map_or_else(
        |_| String::from_utf8_lossy(&body).into_owned(),
        |refusal| refusal.message,
    );
    let words: String = words.trim().chars().take(WORDS).collect();
    Err(DockerError::DockerResponseServerError {
        status_code: status.as_u16(),
        message: printable(&words).into_owned(),
    })
}

/// How Docker says no.
#[derive(serde::Deserialize)]
struct Refusal {
    message: String,
}

fn parse_version(text: &str) -> Option<ApiVersion> {
    let (major, minor) = text.split_once('.')?;
    Some(ApiVersion(major.parse().ok()?, minor.parse().ok()?))
}

/// Puts right what bollard leaves out: the API version in the path (0.21.1 drops it, later ones
/// do not), and one content type: bollard adds `application/json` to every request, and dockerd
/// swallows an archive of another type without a word.
fn address(
    mut request: BollardRequest,
    version: ApiVersion,
) -> Result<BollardRequest, DockerError> {
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", PathAndQuery::as_str)
        .to_owned();
    let archive = path.contains("fromSrc=")
        || path.contains("/images/load")
        || request
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|first| first == "application/x-tar");
    if archive {
        // `insert` replaces all values.
        request
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    }
    if !path.starts_with("/v1.") {
        let versioned = format!("http://docker/v{}.{}{path}", version.0, version.1);
        *request.uri_mut() = versioned.parse::<Uri>()?;
    }
    Ok(request)
}

/// How Docker is reached. Found once for a connection, with the first stream that could be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// sshd forwards to its socket.
    Forwarded,
    /// A program on the node carries the stream.
    Carried(Rights),
}

/// Opens streams to Docker's socket.
#[derive(Clone)]
struct Connector {
    session: Arc<Session>,
    socket: Arc<str>,
    way: Arc<OnceCell<Way>>,
}

impl Connector {
    async fn open(&self) -> Result<Guarded, OpenError> {
        let way = match self.way.get() {
            Some(way) => *way,
            None => match self.session.socket(&self.socket).await {
                Ok(stream) => {
                    let _ = self.way.set(Way::Forwarded);
                    return Ok(stream);
                }
                // sshd does not forward, or the user may not use it: a program on the node may all the same.
                Err(refused @ OpenError::Refused(_)) => {
                    let found = self.way.get_or_try_init(|| self.carried(refused)).await?;
                    *found
                }
                Err(error) => return Err(error),
            },
        };
        match way {
            Way::Forwarded => self.session.socket(&self.socket).await,
            Way::Carried(rights) => carrier::to_docker(&self.session, &self.socket, rights).await,
        }
    }

    async fn carried(&self, refused: OpenError) -> Result<Way, OpenError> {
        let rights = carrier::rights(&self.session, &self.socket).await;
        let rights = rights.ok_or(refused)?;
        tracing::debug!(to = %self.session.place(), ?rights, "the Docker command line carries streams");
        Ok(Way::Carried(rights))
    }
}

impl tower::Service<Uri> for Connector {
    type Response = Pipe<Bounded<Guarded>>;
    type Error = OpenError;
    type Future = BoxFuture<'static, Result<Pipe<Bounded<Guarded>>, OpenError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let this = self.clone();
        async move {
            let stream = this.open().await?;
            Ok(Pipe::new(Bounded::new(stream), false))
        }
        .boxed()
    }
}

/// Turns an error of a request into one that says which hop failed, asking the node if sshd gave
/// no reason.
pub(super) async fn explain(
    session: &Session,
    socket: &str,
    doing: String,
    error: DockerError,
) -> HostError {
    if let DockerError::DockerResponseServerError {
        status_code,
        message,
    } = error
    {
        return HostError::Docker {
            at: session.place(),
            doing,
            status: status_code,
            message,
        };
    }
    if let Some(lost) = session.lost() {
        return lost;
    }
    if let DockerError::RequestTimeoutError = error {
        return HostError::Timeout {
            at: session.place(),
            what: format!("Docker, asked to {doing}").into(),
            limit: Duration::from_secs(RESPONSE),
        };
    }
    match refusal(&error).cloned() {
        Some(OpenError::Refused(ChannelOpenFailure::AdministrativelyProhibited)) => {
            HostError::ForwardingForbidden {
                at: session.place(),
                socket: socket.to_owned(),
            }
        }
        Some(OpenError::Refused(_)) => diagnose(session, socket).await,
        Some(
            error @ (OpenError::FewSessions(_)
            | OpenError::Slow(_)
            | OpenError::Lost(_)
            | OpenError::Ssh(_)),
        ) => error.at(session.place()),
        None => HostError::DockerIo {
            at: session.place(),
            doing,
            source: Box::new(error),
        },
    }
}

/// The refusal of a channel, somewhere down in what hyper wrapped around it.
fn refusal(error: &DockerError) -> Option<&OpenError> {
    let DockerError::HyperLegacyError { err } = error else {
        return None;
    };
    let mut cause: Option<&(dyn StdError + 'static)> = Some(err);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<OpenError>() {
            return Some(refused);
        }
        cause = error.source();
    }
    None
}

/// What the node says about the socket, one `name=value` a line. sshd gives the same bare refusal
/// for a socket that is missing, forbidden, or not to be forwarded.
const QUESTIONS: &str = "echo \"user=$(id -un)\"
if [ -e \"$1\" ]; then echo socket=yes; fi
if [ -r \"$1\" ] && [ -w \"$1\" ]; then echo access=yes; fi
if command -v docker >/dev/null 2>&1; then
  echo docker=yes
  if docker -H \"unix://$1\" version >/dev/null 2>&1; then echo answers=yes; fi
fi
if sudo -n true >/dev/null 2>&1; then echo sudo=yes; fi
exit 0";

async fn diagnose(session: &Session, socket: &str) -> HostError {
    let at = session.place();
    let socket_path = socket.to_owned();
    let answers = exec::run(session, QUESTIONS, &[socket], Duration::from_secs(20)).await;
    let output = match answers {
        Ok(output) => output.stdout,
        Err(source) => {
            return HostError::TunnelRefused {
                at,
                socket: socket_path,
                source: Some(Box::new(source)),
            };
        }
    };
    let yes = |name: &str| output.lines().any(|line| line == format!("{name}=yes"));
    let socket = socket_path;
    match (yes("socket"), yes("access"), yes("docker"), yes("answers")) {
        (false, _, false, _) => HostError::NoDocker { at, socket },
        (true, false, _, _) => HostError::SocketDenied {
            at,
            socket,
            sudo: yes("sudo"),
        },
        (false, _, true, _) | (true, true, true, false) => {
            HostError::DockerNotRunning { at, socket }
        }
        (true, true, true, true) => HostError::ForwardingForbidden { at, socket },
        (true, true, false, _) => HostError::TunnelRefused {
            at,
            socket,
            source: None,
        },
    }
}

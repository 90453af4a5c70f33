//! HTTPS to a server on a node that requires a client certificate, over streams that the caller opens. Not specific to
//! any server.

use std::{
    fmt, io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Uri, uri::PathAndQuery};
use http_body::Body;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{Stream, pipe::Pipe};
use crate::model::ClientIdentity;

/// Opens a stream to the server: `host.local_port(6443)`.
pub type OpenStream =
    Arc<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync>;

/// How long opening a stream and shaking hands may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// An HTTP/2 connection with a pending request that receives nothing for this long is sent a ping.
const ASKED: Duration = Duration::from_secs(15);
/// A connection that does not answer the ping within this time is closed.
const ANSWERS: Duration = Duration::from_secs(15);

/// A part of a [`ClientIdentity`] that cannot be used. Does not show it.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct BadIdentity {
    what: &'static str,
    why: String,
}

impl BadIdentity {
    fn of(what: &'static str) -> impl Fn(&dyn fmt::Display) -> Self {
        move |why| Self {
            what,
            why: why.to_string(),
        }
    }
}

/// TLS with our certificate, and the given authorities as the only ones that are trusted.
pub fn tls(identity: &ClientIdentity) -> Result<TlsConnector, BadIdentity> {
    Ok(TlsConnector::from(Arc::new(config(identity)?)))
}

fn config(identity: &ClientIdentity) -> Result<ClientConfig, BadIdentity> {
    let (ca, cert, key) = (
        BadIdentity::of("CA"),
        BadIdentity::of("certificate"),
        BadIdentity::of("key"),
    );
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_slice_iter(identity.ca.as_bytes()) {
        let one = one.map_err(|error| ca(&error))?;
        roots.add(one).map_err(|error| ca(&error))?;
    }
    let chain = CertificateDer::pem_slice_iter(identity.cert.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| cert(&error))?;
    let private = PrivateKeyDer::from_pem_slice(identity.key.expose().as_bytes())
        .map_err(|error| key(&error))?;
    let mut config = builder()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, private)
        .map_err(|error| cert(&error))?;
    // Connections are kept. A cache of sessions would be 50 KB for each client of each cluster.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// TLS 1.2 and 1.3 with ring, whatever the process's default provider is.
pub(crate) fn builder()
-> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, BadIdentity> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| BadIdentity::of("TLS")(&error))
}

/// TLS over a stream that is open already. The server's certificate must be valid for `name`.
pub async fn handshake(
    tls: &TlsConnector,
    name: &str,
    stream: Box<dyn Stream>,
) -> io::Result<TlsStream<Box<dyn Stream>>> {
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    tls.connect(name, stream).await
}

const HTTP_2: &[u8] = b"h2";

/// An HTTP client of one server. Opens streams as it needs them and keeps them for reuse; a server
/// that has HTTP/2 gets all requests over one.
pub fn client<B>(
    open: OpenStream,
    name: Arc<str>,
    identity: &ClientIdentity,
) -> Result<Client<Connector, B>, BadIdentity>
where
    B: Body + Send,
    B::Data: Send,
{
    let mut tls = config(identity)?;
    tls.alpn_protocols = [HTTP_2, b"http/1.1"].map(<[u8]>::to_vec).into();
    let connector = Connector {
        open,
        name,
        tls: TlsConnector::from(Arc::new(tls)),
    };
    Ok(Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(ASKED)
        .http2_keep_alive_timeout(ANSWERS)
        .build(connector))
}

/// The same request with the URI that [`client`] wants: the server's name and the path.
pub fn addressed<B>(name: &str, mut request: Request<B>) -> Result<Request<B>, http::Error> {
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::builder()
        .scheme("https")
        .authority(name)
        .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
        .build()?;
    Ok(request)
}

/// Opens a stream and shakes hands.
#[derive(Clone)]
pub struct Connector {
    open: OpenStream,
    name: Arc<str>,
    tls: TlsConnector,
}

impl tower::Service<Uri> for Connector {
    type Response = Pipe<TlsStream<Box<dyn Stream>>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _to: Uri) -> Self::Future {
        let Self { open, name, tls } = self.clone();
        let opening = async move {
            let stream = handshake(&tls, &name, open().await?).await?;
            let http_2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
            Ok(Pipe::new(stream, http_2))
        };
        tokio::time::timeout(DEADLINE, opening)
            .map(|result| {
                result.unwrap_or_else(|_elapsed| {
                    Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!(
                            "the server did not answer a TLS handshake within {} s",
                            DEADLINE.as_secs()
                        ),
                    ))
                })
            })
            .boxed()
    }
}

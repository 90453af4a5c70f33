//! Asks one component on a node whether it is healthy, over a stream that is open already.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::{
    DigitallySignedStruct, Error as TlsError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio_rustls::TlsConnector;

use super::connect::SERVER_NAME;
use crate::{
    error::with_causes,
    host::{
        Stream,
        https::{self, BadIdentity},
    },
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
        }
    }

    const fn health_path(self) -> &'static str {
        match self {
            Self::Etcd => "/health",
            Self::ApiServer | Self::NginxProxy => "/readyz",
            Self::ControllerManager | Self::Scheduler | Self::Kubelet | Self::KubeProxy => {
                "/healthz"
            }
        }
    }
}

/// Asks once. The stream leads to [`Component::health_port`] on the node's loopback address.
///
/// The API server must prove who it is and is shown our certificate. The controller manager and
/// the scheduler serve certificates that they sign themselves; on the node's own loopback
/// address, through SSH, those are taken as they are, and nothing secret is sent.
///
/// The error is a fragment that says what it answered.
pub async fn probe(
    component: Component,
    stream: Box<dyn Stream>,
    engine: &ClientIdentity,
) -> Result<(), String> {
    tokio::time::timeout(DEADLINE, answer(component, stream, engine))
        .await
        .unwrap_or_else(|_elapsed| Err("no answer within 10 s".to_owned()))
}

async fn answer(
    component: Component,
    stream: Box<dyn Stream>,
    engine: &ClientIdentity,
) -> Result<(), String> {
    let tls = match component {
        Component::Etcd | Component::Kubelet | Component::KubeProxy => None,
        Component::ApiServer | Component::NginxProxy => Some(https::tls(engine)),
        Component::ControllerManager | Component::Scheduler => Some(unverified()),
    };
    let stream: Box<dyn Stream> = match tls {
        None => stream,
        Some(tls) => {
            let tls = tls.map_err(|error| with_causes(&error))?;
            let stream = https::handshake(&tls, SERVER_NAME, stream).await;
            Box::new(stream.map_err(|error| format!("TLS: {}", with_causes(&error)))?)
        }
    };
    let (status, body) = get(component.health_path(), stream)
        .await
        .map_err(|error| with_causes(&*error))?;
    if status.is_success() {
        return Ok(());
    }
    Err(explain(status, &body))
}

/// One GET. The connection is driven beside the request and ends with it.
async fn get(
    path: &str,
    stream: Box<dyn Stream>,
) -> Result<(http::StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path)
        .header(http::header::HOST, "localhost")
        .header(http::header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let exchange = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ENOUGH).collect().await?;
        Ok((status, body.to_bytes()))
    };
    tokio::pin!(exchange);
    tokio::select! {
        result = &mut exchange => result,
        // The connection ended: what it delivered is still there to be read.
        _ended = connection => exchange.await,
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

fn unverified() -> Result<TlsConnector, BadIdentity> {
    let config = https::builder()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Loopback(
            rustls::crypto::ring::default_provider(),
        )))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Takes any certificate, for self-signed ones on a node's own loopback address.
#[derive(Debug)]
struct Loopback(CryptoProvider);

impl ServerCertVerifier for Loopback {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

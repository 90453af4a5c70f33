//! TLS to a server that need not prove who it is: on a node's own loopback address, where certificates are self-signed, or
//! the certificate itself is what is looked at.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio_rustls::TlsConnector;

use super::{
    Stream,
    https::{self, BadIdentity},
};

/// How long a handshake may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// The name in the handshake. A server with one certificate serves that for every name.
const NAME: &str = "localhost";

/// Takes the certificate of any server that has its key, and keeps it.
#[derive(Debug)]
struct AnyServer {
    provider: CryptoProvider,
    served: Mutex<Option<Vec<u8>>>,
}

/// A connection to any server.
pub fn tls() -> Result<TlsConnector, BadIdentity> {
    Ok(connector()?.0)
}

fn connector() -> Result<(TlsConnector, Arc<AnyServer>), BadIdentity> {
    let server = Arc::new(AnyServer {
        provider: rustls::crypto::ring::default_provider(),
        served: Mutex::default(),
    });
    let verifier: Arc<dyn ServerCertVerifier> = Arc::<AnyServer>::clone(&server);
    let config: ClientConfig = https::builder()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), server))
}

/// The certificate that the server behind that stream serves, as DER. Sends no request after the handshake. The handshake
/// may fail once the certificate was received, for example because the server requires one of its clients.
pub async fn certificate(stream: Box<dyn Stream>) -> io::Result<Vec<u8>> {
    let (tls, server) = connector().map_err(io::Error::other)?;
    let shaken = tokio::time::timeout(DEADLINE, https::handshake(&tls, NAME, stream)).await;
    let served = server.served.lock();
    if let Some(served) = served.unwrap_or_else(PoisonError::into_inner).take() {
        return Ok(served);
    }
    let none = |_elapsed| {
        let text = format!("no TLS handshake within {} s", DEADLINE.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, text)
    };
    shaken.map_err(none)??;
    Err(io::Error::other("the server has no certificate"))
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let served = self.served.lock();
        *served.unwrap_or_else(PoisonError::into_inner) = Some(certificate.to_vec());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

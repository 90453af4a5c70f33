//! What the metrics' port proves who it is with: a certificate in two files, which are read again when they change, or
//! one that this process signs for itself at its start.

use std::{path::PathBuf, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tokio::{sync::Mutex, time::Instant};

use crate::{error::with_causes, model::Secret};

/// How often the files are looked at, at most: when a client comes.
const AGAIN: Duration = Duration::from_secs(10);

/// A mounted Secret is small.
const LARGEST: u64 = 256 * 1024;

/// How long the process' own certificate is valid: longer than any process runs.
const OWN: SignedDuration = SignedDuration::from_hours(24 * 3650);

/// A certificate with its key, as files in PEM.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate, and those that it is signed by.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What is in the files.
    #[error("`{}` and `{}` are no certificate with its key: {why}", cert.display(), key.display())]
    Unusable {
        /// One.
        cert: PathBuf,
        /// The other.
        key: PathBuf,
        /// Why; nothing of the contents.
        why: String,
    },
    /// None could be made.
    #[error("cannot make a certificate: {0}")]
    Unmade(String),
}

/// The certificate, at present.
pub(super) struct Identity {
    files: Option<CertificateFiles>,
    current: Mutex<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    /// Of the files.
    digest: [u8; 32],
    looked: Instant,
}

/// What two files hold.
struct Contents {
    cert: Vec<u8>,
    key: Secret<Vec<u8>>,
}

impl Contents {
    async fn read(files: &CertificateFiles) -> Result<Self, CertificateError> {
        Ok(Self {
            cert: bounded(&files.cert).await?,
            key: Secret::new(bounded(&files.key).await?),
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(Sha256::digest(&self.cert));
        digest.update(Sha256::digest(self.key.expose()));
        digest.finalize().into()
    }

    fn config(&self, files: &CertificateFiles) -> Result<Arc<ServerConfig>, CertificateError> {
        let unusable = |why: String| CertificateError::Unusable {
            cert: files.cert.clone(),
            key: files.key.clone(),
            why,
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.cert).collect();
        let chain = chain.map_err(|_| unusable("the certificate is not PEM".to_owned()))?;
        if chain.is_empty() {
            return Err(unusable("there is no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(self.key.expose())
            .map_err(|_| unusable("there is no private key".to_owned()))?;
        served(chain, key).map_err(|error| unusable(with_causes(&error)))
    }
}

/// A file, when it is not too large.
async fn bounded(path: &PathBuf) -> Result<Vec<u8>, CertificateError> {
    let unreadable = |source| CertificateError::Unreadable {
        path: path.clone(),
        source,
    };
    let size = tokio::fs::metadata(path).await.map_err(unreadable)?.len();
    if size > LARGEST {
        let source = std::io::Error::new(std::io::ErrorKind::FileTooLarge, "it is too large");
        return Err(unreadable(source));
    }
    tokio::fs::read(path).await.map_err(unreadable)
}

fn served(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// One that is signed with its own key, for the Service of the metrics.
fn own(namespace: &str, now: Timestamp) -> Result<Arc<ServerConfig>, CertificateError> {
    let unmade = |error: rcgen::Error| CertificateError::Unmade(error.to_string());
    let service = format!("rke-operator-metrics.{namespace}");
    let names = ["localhost", &service, &format!("{service}.svc")].map(str::to_owned);
    let mut params = CertificateParams::new(names).map_err(unmade)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let date = |at: Timestamp| {
        OffsetDateTime::from_unix_timestamp(at.as_second())
            .map_err(|error| CertificateError::Unmade(error.to_string()))
    };
    params.not_before = date(
        now.saturating_sub(SignedDuration::from_hours(1))
            .unwrap_or(now),
    )?;
    params.not_after = date(now.saturating_add(OWN).unwrap_or(Timestamp::MAX))?;
    let key = KeyPair::generate().map_err(unmade)?;
    let certificate = params.self_signed(&key).map_err(unmade)?;
    let chain = vec![certificate.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der())
        .map_err(|error| CertificateError::Unmade(error.to_owned()))?;
    served(chain, key).map_err(|error| CertificateError::Unmade(error.to_string()))
}

impl Identity {
    /// Reads the files, or makes a certificate.
    pub(super) async fn new(
        files: Option<CertificateFiles>,
        namespace: &str,
        now: Timestamp,
    ) -> Result<Self, CertificateError> {
        let (config, digest) = match &files {
            Some(files) => {
                let contents = Contents::read(files).await?;
                (contents.config(files)?, contents.digest())
            }
            None => (own(namespace, now)?, [0; 32]),
        };
        Ok(Self {
            files,
            current: Mutex::new(Current {
                config,
                digest,
                looked: Instant::now(),
            }),
        })
    }

    /// The configuration for the next client. Files that cannot be used leave the one that was.
    pub(super) async fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().await;
        if let Some(files) = &self.files
            && current.looked.elapsed() >= AGAIN
        {
            current.looked = Instant::now();
            let read = Contents::read(files).await;
            let news = read.map(|read| (read.digest(), read));
            let news = news.and_then(|(digest, read)| {
                let same = digest == current.digest;
                let config = (!same).then(|| read.config(files)).transpose()?;
                Ok((digest, config))
            });
            match news {
                Ok((_, None)) => {}
                Ok((digest, Some(config))) => {
                    tracing::info!("serves the metrics with another certificate");
                    current.digest = digest;
                    current.config = config;
                }
                Err(error) => {
                    let error = with_causes(&error);
                    tracing::warn!(error, "the metrics keep their former certificate");
                }
            }
        }
        Arc::clone(&current.config)
    }
}

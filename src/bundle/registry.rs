//! Pulls images from their registries by the OCI distribution specification: a manifest for one platform, and its blobs. An
//! interrupted download resumes at the byte where it ended.

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr, time::Duration};

use http::{StatusCode, header};
use rand::Rng as _;
use reqwest::{Certificate, Client, RequestBuilder, Response};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use super::{BundleError, BundleWriter, DOCUMENT, SavedImage, Source};
use crate::{
    catalog::canonical,
    error::{ErrorClass, Explain, with_causes},
    model::{DOCKER_HUB, ImagePlatform, Registries, RegistryLogin, printable},
};

/// Where Docker Hub is.
const HUB: &str = "registry-1.docker.io";
/// How long a connection may take.
const CONNECTS: Duration = Duration::from_secs(20);
/// How long a server may be silent.
const SILENCE: Duration = Duration::from_secs(60);
/// How often a request is tried that brought nothing.
const TRIES: u32 = 6;
/// The longest pause between two tries.
const PAUSE: Duration = Duration::from_secs(20);

/// Lists of manifests for several platforms.
const INDEXES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];
/// Manifests.
const MANIFESTS: [&str; 2] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// Why an image cannot be had from its registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry refuses, or has nothing.
    #[error(
        "cannot get image `{image}` from registry `{registry}`: it answered {status}{}",
        words(said)
    )]
    Refused {
        /// Which.
        image: String,
        /// Its host.
        registry: String,
        /// Its status.
        status: u16,
        /// Its words.
        said: String,
    },
    /// There is no usable answer.
    #[error("cannot get image `{image}` from registry `{registry}`: {why}")]
    NoAnswer {
        /// Which.
        image: String,
        /// Its host.
        registry: String,
        /// Why.
        why: String,
    },
    /// There is none for these machines.
    #[error("image `{image}` in registry `{registry}` is not made for {platform}, only for {has}")]
    Platform {
        /// Which.
        image: String,
        /// Its host.
        registry: String,
        /// The requested platform.
        platform: ImagePlatform,
        /// Those that there are.
        has: String,
    },
    /// It answers without TLS.
    #[error("cannot get image `{image}` from registry `{registry}`: it does not use TLS")]
    NoTls {
        /// Which.
        image: String,
        /// Its host.
        registry: String,
    },
    /// Its certificate is not accepted.
    #[error("cannot get image `{image}` from registry `{registry}`: {why}")]
    Certificate {
        /// Which.
        image: String,
        /// Its host.
        registry: String,
        /// Why.
        why: String,
    },
    /// It is named by a digest.
    #[error("image `{image}` is named by a digest, and Docker loads images by tag alone")]
    ByDigest {
        /// Which.
        image: String,
    },
    /// The authority of a registry in the config.
    #[error("the certificate authority of registry `{registry}` cannot be used: {why}")]
    Authority {
        /// Its host.
        registry: String,
        /// Why.
        why: String,
    },
    /// The bundle.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

fn words(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    }
}

impl Explain for RegistryError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Refused { status, .. } if *status == 429 || *status >= 500 => {
                ErrorClass::Transient
            }
            Self::Refused { .. }
            | Self::Platform { .. }
            | Self::NoTls { .. }
            | Self::Certificate { .. }
            | Self::ByDigest { .. }
            | Self::Authority { .. } => ErrorClass::User,
            Self::NoAnswer { .. } => ErrorClass::Transient,
            Self::Bundle(error) => error.class(),
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let again = "what was downloaded is kept: the same command continues".into();
        match self {
            Self::Refused { status: 401 | 403, registry, .. } => vec![
                format!("give `user` and `password` of `{registry}` in `private_registries`").into(),
            ],
            Self::Refused { status: 404, .. } => vec![
                "look at the name and the tag; `rke-operator images list` (a `Cluster` has `spec.config`) shows what the config needs"
                    .into(),
            ],
            Self::Refused { status: 429, .. } => vec![
                "the registry limits anonymous downloads: give a login in `private_registries`, or wait".into(),
                again,
            ],
            Self::Refused { .. } | Self::NoAnswer { .. } => vec![again],
            Self::Platform { .. } => {
                vec!["name a platform that there is with `--platform` (a `Cluster` has no bundles)".into()]
            }
            Self::NoTls { registry, .. } => vec![
                format!(
                    "if the network on the way is trusted, add `--insecure-registry {registry}` (a `Cluster` has no bundles); \
                     Docker on each node has `insecure-registries` for this"
                )
                .into(),
            ],
            Self::Certificate { registry, .. } => vec![
                format!(
                    "set `ca_path` of `{registry}` in `private_registries` to the certificate of the CA that signed \
                     the one of the registry"
                )
                .into(),
            ],
            Self::ByDigest { .. } => vec!["name it by a tag in the config".into()],
            Self::Authority { .. } => vec!["look at `ca` or `ca_path` in `private_registries`".into()],
            Self::Bundle(error) => error.hints(),
        }
    }
}

/// Registries, with the logins and authorities of a config.
#[derive(Debug)]
pub struct Puller {
    registries: Registries,
    /// Those that are reached without TLS, as host and port.
    insecure: Vec<String>,
    client: Client,
    platform: ImagePlatform,
    /// By registry and repository: the header that was good last.
    tokens: Mutex<BTreeMap<String, String>>,
}

/// What is reported while an image is downloaded: the bytes of it that are there, and how many it has.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

/// Where an image is.
#[derive(Clone, Debug)]
struct Place {
    image: String,
    registry: String,
    base: String,
    repository: String,
    tag: String,
}

impl Place {
    fn of(image: &str, insecure: &[String]) -> Result<Self, RegistryError> {
        let full = canonical(image);
        if full.contains('@') {
            let image = image.to_owned();
            return Err(RegistryError::ByDigest { image });
        }
        let (registry, rest) = full.split_once('/').unwrap_or((DOCKER_HUB, &full));
        let (repository, tag) = rest.rsplit_once(':').unwrap_or((rest, "latest"));
        let host = if registry == DOCKER_HUB {
            HUB
        } else {
            registry
        };
        let scheme = if is_without_tls(host, insecure) {
            "http"
        } else {
            "https"
        };
        Ok(Self {
            image: image.to_owned(),
            registry: registry.to_owned(),
            base: format!("{scheme}://{host}/v2/{repository}"),
            repository: repository.to_owned(),
            tag: tag.to_owned(),
        })
    }

    fn key(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    fn no_answer(&self, why: impl Into<String>) -> RegistryError {
        RegistryError::NoAnswer {
            image: self.image.clone(),
            registry: self.registry.clone(),
            why: printable(&why.into()).into_owned(),
        }
    }
}

fn is_without_tls(host: &str, insecure: &[String]) -> bool {
    is_loopback(host) || insecure.iter().any(|known| known == host)
}

/// As Docker has it: on this machine a registry needs no TLS.
fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    media_type: Option<String>,
    #[serde(default)]
    manifests: Vec<Listed>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Listed {
    digest: String,
    platform: Option<ListedPlatform>,
}

#[derive(Deserialize)]
struct ListedPlatform {
    os: String,
    architecture: String,
}

#[derive(Clone, Deserialize)]
struct Descriptor {
    digest: String,
    size: u64,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// A manifest, as it is.
struct Fetched {
    body: Vec<u8>,
    digest: String,
    media_type: String,
    document: Document,
}

impl Puller {
    /// For images of this platform. `insecure`: the registries, as host and port, that are reached without TLS. Nothing
    /// is connected to yet.
    pub fn new(
        registries: &Registries,
        insecure: &[String],
        platform: ImagePlatform,
    ) -> Result<Self, RegistryError> {
        let mut client = Client::builder()
            .user_agent(concat!("rke-operator/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECTS)
            .read_timeout(SILENCE);
        for (registry, authority) in &registries.authorities {
            let wrong = |error: reqwest::Error| RegistryError::Authority {
                registry: registry.clone(),
                why: with_causes(&error),
            };
            for certificate in Certificate::from_pem_bundle(authority.as_bytes()).map_err(wrong)? {
                client = client.add_root_certificate(certificate);
            }
        }
        let client = client.build().map_err(|error| RegistryError::NoAnswer {
            image: String::new(),
            registry: String::new(),
            why: with_causes(&error),
        })?;
        Ok(Self {
            registries: registries.clone(),
            insecure: insecure.to_vec(),
            client,
            platform,
            tokens: Mutex::default(),
        })
    }

    /// Downloads an image into a bundle, as far as the bundle does not have it.
    pub async fn pull(
        &self,
        image: &str,
        bundle: &mut BundleWriter,
        progress: Progress<'_>,
    ) -> Result<SavedImage, RegistryError> {
        let place = Place::of(image, &self.insecure)?;
        let manifest = self.manifest(&place).await?;
        let Some(config) = manifest.document.config.clone() else {
            return Err(place.no_answer("its manifest names no configuration"));
        };
        let parts: Vec<&Descriptor> = manifest.document.layers.iter().chain([&config]).collect();
        let total = parts.iter().map(|part| part.size).sum();
        let mut done = 0;
        let mut digests = Vec::new();
        for part in &parts {
            let digest = sha256(&place, &part.digest)?;
            if !bundle.has(digest) {
                let so_far = |have: u64| progress(done + have, total);
                self.blob(&place, digest, part.size, bundle, &so_far)
                    .await?;
            }
            done += part.size;
            progress(done, total);
            digests.push(digest.to_owned());
        }
        let config = digests.pop().unwrap_or_default();
        bundle.put(image, &manifest.body)?;
        let saved = SavedImage {
            name: image.to_owned(),
            config,
            layers: digests,
            source: Some(Source {
                digest: manifest.digest,
                media_type: manifest.media_type,
            }),
        };
        self.fits(&place, &bundle.platform(&saved)?)?;
        Ok(saved)
    }

    fn fits(&self, place: &Place, is: &ImagePlatform) -> Result<(), RegistryError> {
        if *is == self.platform {
            return Ok(());
        }
        Err(self.not_for(place, is.to_string()))
    }

    fn not_for(&self, place: &Place, has: String) -> RegistryError {
        RegistryError::Platform {
            image: place.image.clone(),
            registry: place.registry.clone(),
            platform: self.platform.clone(),
            has,
        }
    }

    async fn manifest(&self, place: &Place) -> Result<Fetched, RegistryError> {
        let fetched = self.document(place, &place.tag).await?;
        if fetched.document.manifests.is_empty() {
            return Ok(fetched);
        }
        let named = |listed: &Listed| {
            let platform = listed.platform.as_ref()?;
            Some(ImagePlatform {
                os: platform.os.clone(),
                architecture: platform.architecture.clone(),
            })
        };
        let all = &fetched.document.manifests;
        let fits = all
            .iter()
            .find(|listed| named(listed).as_ref() == Some(&self.platform));
        let Some(fits) = fits else {
            let has: Vec<String> = all
                .iter()
                .filter_map(named)
                .map(|it| it.to_string())
                .collect();
            return Err(self.not_for(place, has.join(", ")));
        };
        let one = self.document(place, &fits.digest).await?;
        if sha256(place, &fits.digest)? != one.digest {
            return Err(place.no_answer("a manifest is not what its digest says"));
        }
        Ok(one)
    }

    async fn document(&self, place: &Place, reference: &str) -> Result<Fetched, RegistryError> {
        let accepted = INDEXES
            .iter()
            .chain(&MANIFESTS)
            .copied()
            .collect::<Vec<_>>()
            .join(", ");
        let url = format!("{}/manifests/{reference}", place.base);
        let mut tries = Tries::default();
        let body = loop {
            let request = || self.client.get(&url).header(header::ACCEPT, &accepted);
            let read = async {
                let answer = self.ask(place, request).await?;
                whole(place, answer).await
            };
            match read.await {
                Ok(body) => break body,
                Err(error) => tries.again(error).await?,
            }
        };
        let document: Document = serde_json::from_slice(&body)
            .map_err(|error| place.no_answer(format!("its manifest cannot be read: {error}")))?;
        let usual = if document.manifests.is_empty() {
            MANIFESTS[1]
        } else {
            INDEXES[1]
        };
        Ok(Fetched {
            digest: hex::encode(Sha256::digest(&body)),
            media_type: document
                .media_type
                .clone()
                .unwrap_or_else(|| usual.to_owned()),
            body,
            document,
        })
    }

    async fn blob(
        &self,
        place: &Place,
        digest: &str,
        length: u64,
        bundle: &mut BundleWriter,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(), RegistryError> {
        let mut tries = Tries::default();
        loop {
            let mut blob = bundle.blob(&place.image, digest, length)?;
            let had = blob.have();
            let read = async {
                if had < length {
                    self.rest(place, digest, &mut blob, progress).await?;
                }
                Ok(())
            };
            let error = match read.await {
                Ok(()) => match blob.finish() {
                    Ok(()) => return Ok(()),
                    Err(error) => error.into(),
                },
                Err(error) => {
                    if blob.have() > had {
                        tries = Tries::default();
                    }
                    error
                }
            };
            tries.again(error).await?;
        }
    }

    /// What is missing of a blob.
    async fn rest(
        &self,
        place: &Place,
        digest: &str,
        blob: &mut super::Blob<'_>,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(), RegistryError> {
        let url = format!("{}/blobs/sha256:{digest}", place.base);
        let have = blob.have();
        let request = || {
            let request = self.client.get(&url);
            if have > 0 {
                request.header(header::RANGE, format!("bytes={have}-"))
            } else {
                request
            }
        };
        let mut answer = self.ask(place, request).await?;
        // A server need not know ranges: then all of it comes.
        let mut skip = if answer.status() == StatusCode::PARTIAL_CONTENT {
            0
        } else {
            have
        };
        progress(have);
        while let Some(piece) = answer.chunk().await.map_err(|error| lost(place, error))? {
            let known = skip.min(piece.len() as u64);
            skip -= known;
            let new = piece.slice(usize::try_from(known).unwrap_or_default()..);
            blob.write(&new)?;
            progress(blob.have());
        }
        Ok(())
    }

    /// An answer to a request, with whatever login the registry asks for.
    async fn ask(
        &self,
        place: &Place,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let known = self.tokens.lock().await.get(&place.key()).cloned();
        let with = |token: Option<&String>| match token {
            Some(token) => request().header(header::AUTHORIZATION, token),
            None => request(),
        };
        let answer = with(known.as_ref())
            .send()
            .await
            .map_err(|error| lost(place, error))?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return good(place, answer).await;
        }
        let challenge = answer.headers().get(header::WWW_AUTHENTICATE);
        let challenge = challenge
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let Some(token) = self.login(place, challenge).await? else {
            return good(place, answer).await;
        };
        self.tokens.lock().await.insert(place.key(), token.clone());
        let answer = with(Some(&token))
            .send()
            .await
            .map_err(|error| lost(place, error))?;
        good(place, answer).await
    }

    /// The header that answers a challenge; `None`: nothing does.
    async fn login(&self, place: &Place, challenge: &str) -> Result<Option<String>, RegistryError> {
        let login = self.registries.login(&place.image);
        let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Ok(login.map(basic));
        }
        let fields = fields(rest);
        let Some(realm) = fields
            .get("realm")
            .filter(|_| scheme.eq_ignore_ascii_case("bearer"))
        else {
            return Ok(None);
        };
        let host = realm.strip_prefix("https://");
        let local = realm.strip_prefix("http://").filter(|rest| {
            let host = rest.split('/').next().unwrap_or_default();
            is_without_tls(host, &self.insecure)
        });
        if host.or(local).is_none() {
            return Err(place.no_answer(format!("it asks for a login at `{realm}`, without TLS")));
        }
        let scope = format!("repository:{}:pull", place.repository);
        let mut query = vec![("scope", fields.get("scope").cloned().unwrap_or(scope))];
        query.extend(
            fields
                .get("service")
                .map(|service| ("service", service.clone())),
        );
        let url = with_query(realm, &query);
        let mut request = self.client.get(url);
        if let Some(login) = login {
            request = request.header(header::AUTHORIZATION, basic(login));
        }
        let answer = request.send().await.map_err(|error| lost(place, error))?;
        let body = whole(place, good(place, answer).await?).await?;
        let token: Token = serde_json::from_slice(&body)
            .map_err(|_| place.no_answer(format!("`{realm}` gave no token")))?;
        let token = token.token.or(token.access_token);
        Ok(token.map(|token| format!("Bearer {token}")))
    }
}

fn with_query(realm: &str, query: &[(&str, String)]) -> String {
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let query: Vec<String> = query
        .iter()
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    let between = if realm.contains('?') { '&' } else { '?' };
    format!("{realm}{between}{}", query.join("&"))
}

fn basic(login: &RegistryLogin) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let word = format!("{}:{}", login.user, login.password.expose());
    format!("Basic {}", STANDARD.encode(word))
}

/// `name="value"`, separated by commas that may be in a value, too.
fn fields(mut text: &str) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    while let Some((name, rest)) = text.split_once('=') {
        let name = name.trim_matches([',', ' ']).to_ascii_lowercase();
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        fields.insert(name, value.to_owned());
        text = rest;
    }
    fields
}

/// The digest without its algorithm; another one than SHA-256 is not used.
fn sha256<'d>(place: &Place, digest: &'d str) -> Result<&'d str, RegistryError> {
    let hex = digest.strip_prefix("sha256:");
    let hex = hex.filter(|hex| {
        let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        hex.len() == 64 && hex.bytes().all(plain)
    });
    hex.ok_or_else(|| place.no_answer(format!("`{digest}` is no SHA-256 digest")))
}

/// The answer, or the registry's refusal.
async fn good(place: &Place, answer: Response) -> Result<Response, RegistryError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let body = whole(place, answer).await.unwrap_or_default();
    Err(RegistryError::Refused {
        image: place.image.clone(),
        registry: place.registry.clone(),
        status: status.as_u16(),
        said: said(&body),
    })
}

/// The first message of a registry's errors.
fn said(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<OneError>,
    }
    #[derive(Deserialize)]
    struct OneError {
        #[serde(default)]
        message: String,
    }
    let errors = serde_json::from_slice::<Errors>(body)
        .map(|it| it.errors)
        .unwrap_or_default();
    let first = errors
        .into_iter()
        .next()
        .map(|it| it.message)
        .unwrap_or_default();
    printable(&first.chars().take(300).collect::<String>()).into_owned()
}

async fn whole(place: &Place, mut answer: Response) -> Result<Vec<u8>, RegistryError> {
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(|error| lost(place, error))? {
        body.extend_from_slice(&piece);
        if body.len() as u64 > DOCUMENT {
            return Err(place.no_answer("an answer is too large"));
        }
    }
    Ok(body)
}

fn lost(place: &Place, error: reqwest::Error) -> RegistryError {
    // Its address has the query of a redirect in it, which may contain a login.
    let error = error.without_url();
    let (image, registry) = (place.image.clone(), place.registry.clone());
    match tls(&error) {
        // The first byte of an answer to a TLS handshake is not one of TLS.
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            RegistryError::NoTls { image, registry }
        }
        Some(wrong @ rustls::Error::InvalidCertificate(_)) => RegistryError::Certificate {
            image,
            registry,
            why: printable(&wrong.to_string()).into_owned(),
        },
        Some(_) | None => place.no_answer(with_causes(&error)),
    }
}

/// The error of TLS below another one.
fn tls<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Some(tls);
        }
        let io = error.downcast_ref::<std::io::Error>();
        // What an error of I/O holds is not its source: its source is that of what it holds.
        next = match io.and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// Retries of requests that may succeed later.
#[derive(Default)]
struct Tries(u32);

impl Tries {
    /// Waits a moment; the error where it is of no use.
    async fn again(&mut self, error: RegistryError) -> Result<(), RegistryError> {
        self.0 += 1;
        if error.class() != ErrorClass::Transient || self.0 >= TRIES {
            return Err(error);
        }
        tracing::debug!(%error, tries = self.0, "another try");
        let pause = Duration::from_secs(1 << self.0.min(5)).min(PAUSE);
        let jitter = rand::rng().random_range(0.4..0.6);
        tokio::time::sleep(pause.mul_f64(jitter)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use bytes::Bytes;
    use http::{Request, Response as Answer};
    use http_body_util::Full;
    use hyper::{body::Incoming, server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::{
        super::{
            Bundle,
            read::tests::{config, sha},
        },
        *,
    };
    use crate::model::Secret;

    /// A registry that wants a token, and cuts the first download of a layer off in the middle.
    struct FakeRegistry {
        blobs: BTreeMap<String, Vec<u8>>,
        index: Vec<u8>,
        manifests: BTreeMap<String, Vec<u8>>,
        asked: Mutex<Vec<String>>,
        cut: Mutex<bool>,
        knows_ranges: bool,
    }

    const LAYER: usize = 600_000;

    impl FakeRegistry {
        fn new(knows_ranges: bool) -> Self {
            let layer: Vec<u8> = (0..LAYER)
                .map(|at| u8::try_from(at % 251).unwrap())
                .collect();
            let config = config(&[&layer]);
            let part = |content: &[u8]| json!({"digest": format!("sha256:{}", sha(content)), "size": content.len()});
            let manifest = json!({
                "schemaVersion": 2, "mediaType": MANIFESTS[0], "config": part(&config), "layers": [part(&layer)],
            });
            let manifest = manifest.to_string().into_bytes();
            let other = br#"{"schemaVersion": 2}"#.to_vec();
            let listed = |content: &[u8], architecture: &str| {
                json!({
                    "digest": format!("sha256:{}", sha(content)), "size": content.len(),
                    "platform": {"os": "linux", "architecture": architecture},
                })
            };
            let index = json!({
                "schemaVersion": 2, "mediaType": INDEXES[0],
                "manifests": [listed(&other, "arm64"), listed(&manifest, "amd64")],
            });
            Self {
                blobs: [layer, config]
                    .map(|content| (sha(&content), content))
                    .into(),
                index: index.to_string().into_bytes(),
                manifests: [manifest, other]
                    .map(|content| (sha(&content), content))
                    .into(),
                asked: Mutex::default(),
                cut: Mutex::new(true),
                knows_ranges,
            }
        }

        fn answer(&self, request: &Request<Incoming>, here: &str) -> Answer<Full<Bytes>> {
            let path = request.uri().path().to_owned();
            let word = |name| {
                request
                    .headers()
                    .get(name)
                    .and_then(|value| value.to_str().ok())
            };
            let range = word(header::RANGE)
                .map(|range| format!(" {range}"))
                .unwrap_or_default();
            self.asked.lock().unwrap().push(format!("{path}{range}"));
            let with = |status: u16, body: Vec<u8>| {
                Answer::builder()
                    .status(status)
                    .body(Full::new(Bytes::from(body)))
                    .unwrap()
            };
            let authorization = word(header::AUTHORIZATION);
            if path == "/token" {
                let me = authorization == Some("Basic bWU6aHVudGVyMg==");
                let scope = request
                    .uri()
                    .query()
                    .unwrap_or_default()
                    .contains("repository%3Aa%2Fb%3Apull");
                return if me && scope {
                    with(200, br#"{"token": "t"}"#.to_vec())
                } else {
                    with(401, vec![])
                };
            }
            if authorization != Some("Bearer t") {
                let mut answer = with(401, Vec::new());
                let challenge = format!(r#"Bearer realm="http://{here}/token",service="reg""#);
                answer
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, challenge.parse().unwrap());
                return answer;
            }
            if let Some(reference) = path.strip_prefix("/v2/a/b/manifests/") {
                let digest = reference.strip_prefix("sha256:");
                let found = match digest {
                    Some(digest) => self.manifests.get(digest).cloned(),
                    None => (reference == "1").then(|| self.index.clone()),
                };
                let missing = br#"{"errors": [{"message": "manifest unknown"}]}"#;
                return found.map_or_else(|| with(404, missing.to_vec()), |body| with(200, body));
            }
            let digest = path
                .strip_prefix("/v2/a/b/blobs/sha256:")
                .unwrap_or_default();
            let content = self.blobs[digest].clone();
            let from = word(header::RANGE).and_then(|range| {
                range
                    .strip_prefix("bytes=")?
                    .strip_suffix('-')?
                    .parse::<usize>()
                    .ok()
            });
            match from.filter(|_| self.knows_ranges) {
                Some(from) => with(206, content[from..].to_vec()),
                None => with(200, content),
            }
        }
    }

    /// Downloads `a/b:1` while the registry serves; one connection ends in the middle of the layer.
    async fn pulled(
        registry: &FakeRegistry,
        platform: &str,
        tag: &str,
    ) -> Result<Bundle, RegistryError> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().to_string();
        let registries = Registries {
            logins: vec![RegistryLogin {
                url: here.clone(),
                user: "me".to_owned(),
                password: Secret::new("hunter2".to_owned()),
            }],
            ..Registries::default()
        };
        let serving = async {
            let mut connections = futures::stream::FuturesUnordered::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let (stream, _) = accepted.unwrap();
                        let here = here.clone();
                        let cuts = Arc::new(Mutex::new(false));
                        let cutting = Arc::clone(&cuts);
                        let service = service_fn(move |request: Request<Incoming>| {
                            let answer = registry.answer(&request, &here);
                            let is_layer = http_body::Body::size_hint(answer.body()).exact() == Some(LAYER as u64);
                            let first = is_layer && std::mem::take(&mut *registry.cut.lock().unwrap());
                            *cuts.lock().unwrap() |= first;
                            async move { Ok::<_, Infallible>(answer) }
                        });
                        let (near, far) = tokio::io::duplex(16 << 10);
                        connections.push(async move {
                            let served = http1::Builder::new().serve_connection(TokioIo::new(far), service);
                            let (mut from, mut to) = tokio::io::split(near);
                            let (mut read, mut write) = stream.into_split();
                            let up = tokio::io::copy(&mut read, &mut to);
                            let down = async {
                                use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
                                let (mut sent, mut piece) = (0, vec![0; 8 << 10]);
                                while let Ok(count @ 1..) = from.read(&mut piece).await {
                                    let cuts = *cutting.lock().unwrap();
                                    sent += if cuts { count } else { 0 };
                                    if sent > LAYER / 2 || write.write_all(&piece[..count]).await.is_err() {
                                        return;
                                    }
                                }
                            };
                            tokio::select! {
                                _ = async { tokio::join!(served, up) } => {}
                                () = down => {}
                            }
                        });
                    }
                    Some(()) = futures::StreamExt::next(&mut connections) => {}
                }
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("bundle.tar");
        let platform = ImagePlatform::of_node(platform);
        let pulling = async {
            let puller = Puller::new(&registries, &[], platform)?;
            let mut writer = BundleWriter::begin(&target)?;
            let name = format!("{here}/a/b:{tag}");
            let image = puller.pull(&name, &mut writer, &|_, _| ()).await?;
            writer.finish(&[image])?;
            Ok(Bundle::open(&target)?)
        };
        tokio::select! {
            () = serving => panic!("the registry serves"),
            bundle = pulling => bundle,
        }
    }

    #[tokio::test]
    async fn a_download_that_breaks_off_goes_on_where_it_was() {
        for knows_ranges in [true, false] {
            let registry = FakeRegistry::new(knows_ranges);
            let bundle = pulled(&registry, "x86_64", "1").await.unwrap();
            let image = bundle.images().values().next().unwrap();
            assert_eq!(image.platform.to_string(), "linux/amd64");
            assert!(image.name.ends_with("/a/b:1"), "{}", image.name);
            let asked = registry.asked.lock().unwrap();
            let resumed = asked
                .iter()
                .filter(|asked| asked.contains("bytes="))
                .count();
            assert_eq!(resumed, 1, "{asked:?}");
            let tokens = asked
                .iter()
                .filter(|asked| asked.starts_with("/token"))
                .count();
            assert_eq!(tokens, 1, "{asked:?}");
        }
    }

    #[tokio::test]
    async fn what_the_registry_does_not_have_is_named() {
        let registry = FakeRegistry::new(true);
        let error = pulled(&registry, "riscv64", "1").await.unwrap_err();
        let RegistryError::Platform { has, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(has, "linux/arm64, linux/amd64");
        let error = pulled(&registry, "x86_64", "2").await.unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("answered 404: manifest unknown"),
            "{error}"
        );
        assert_eq!(error.class(), ErrorClass::User);
    }

    #[test]
    fn an_image_is_where_docker_looks_for_it() {
        for (image, base, tag) in [
            (
                "nginx",
                "https://registry-1.docker.io/v2/library/nginx",
                "latest",
            ),
            (
                "rancher/pause:3.6",
                "https://registry-1.docker.io/v2/rancher/pause",
                "3.6",
            ),
            (
                "reg.example:5000/a/b:1",
                "https://reg.example:5000/v2/a/b",
                "1",
            ),
            ("127.0.0.1:5000/a:1", "http://127.0.0.1:5000/v2/a", "1"),
            ("localhost/a:1", "http://localhost/v2/a", "1"),
            (
                "plain.example:5000/a:1",
                "http://plain.example:5000/v2/a",
                "1",
            ),
            ("plain.example/a:1", "https://plain.example/v2/a", "1"),
        ] {
            let place = Place::of(image, &["plain.example:5000".to_owned()]).unwrap();
            assert_eq!(
                (place.base.as_str(), place.tag.as_str()),
                (base, tag),
                "{image}"
            );
        }
        let digest = format!("a/b@sha256:{}", "0".repeat(64));
        assert!(matches!(
            Place::of(&digest, &[]),
            Err(RegistryError::ByDigest { .. })
        ));
    }

    /// How a request fails at a server that does this with a connection.
    async fn refused_by(serve: impl AsyncFn(tokio::net::TcpStream)) -> RegistryError {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // On this machine it would be asked without TLS: by name, it is not.
        let port = listener.local_addr().unwrap().port();
        let client = Client::builder()
            .resolve("registry.example", ([127, 0, 0, 1], port).into())
            .no_proxy()
            .build()
            .unwrap();
        let asking = client.get(format!("https://registry.example:{port}/v2/"));
        let serving = async {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream).await;
        };
        let (answer, ()) = tokio::join!(asking.send(), serving);
        let place = Place::of("registry.example/a:1", &[]).unwrap();
        lost(&place, answer.unwrap_err())
    }

    /// Both were tried six times, and the cause was a word of TLS.
    #[tokio::test]
    async fn a_registry_without_tls_is_named_at_the_first_try() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let error = refused_by(async |mut stream| {
            let _ = stream.read(&mut [0; 1024]).await.unwrap();
            let answer = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        })
        .await;
        assert_eq!(
            error.to_string(),
            "cannot get image `registry.example/a:1` from registry `registry.example`: it does not use TLS"
        );
        assert_eq!(error.class(), ErrorClass::User);
        assert!(error.hints()[0].contains("`--insecure-registry registry.example`"));
        assert!(Tries::default().again(error).await.is_err());
    }

    #[tokio::test]
    async fn a_certificate_of_an_unknown_authority_is_named_at_the_first_try() {
        let names = ["registry.example".to_owned()];
        let own = rcgen::generate_simple_self_signed(names).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der());
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.unwrap())
        .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let error =
            refused_by(async |stream| assert!(acceptor.accept(stream).await.is_err())).await;
        assert!(
            matches!(error, RegistryError::Certificate { .. }),
            "{error}"
        );
        assert!(error.hints()[0].contains("`ca_path` of `registry.example`"));
        assert!(Tries::default().again(error).await.is_err());
    }

    #[test]
    fn a_challenge_is_read() {
        let read = fields(
            r#"realm="https://auth.example/token",service="reg.example",scope="repository:a/b:pull,push""#,
        );
        assert_eq!(read["realm"], "https://auth.example/token");
        assert_eq!(read["service"], "reg.example");
        assert_eq!(read["scope"], "repository:a/b:pull,push");
        let url = with_query(
            "https://a/t",
            &[("scope", "repository:a/b:pull".to_owned())],
        );
        assert_eq!(url, "https://a/t?scope=repository%3Aa%2Fb%3Apull");
    }
}

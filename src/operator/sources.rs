//! What a `Cluster` refers to: Secrets and ConfigMaps of the credentials' namespace, and files of the
//! [`files`](super::files) folder. A reference carries a name only, so there is no way to another namespace (invariant 13).

use std::{borrow::Cow, collections::BTreeMap};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret as KubeSecret},
};
use kube::{Api, Resource, api::ObjectMeta};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{
    cluster_object::ClusterObject,
    context::{Context, explained, version},
    files::{ContentDigest, FileError},
};
use crate::{
    api::{CLUSTERS, HostKeys, TextSource, conditions::Reason},
    config::{Credential, SecretReference},
    environment::{Clock, KeyRing},
    error::{ErrorClass, Explain},
    host::{KnownHosts, Policy},
    model::Secret,
};

/// The key of a Secret with a login that a reference without one means.
pub(super) const LOGIN: &str = "ssh-privatekey";

/// The key with a config that a reference without one means.
pub(super) const CONFIG: &str = "cluster.yml";

/// How many Secrets the config of an object may refer to.
const MOST_SECRETS: usize = 64;

/// The key with host keys that a reference without one means.
const HOST_KEYS: &str = "known_hosts";

/// A source and its version as a reconcile read it. A version with other contents stops the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SourceVersion {
    /// A Secret.
    Secret {
        name: String,
        version: u64,
        digest: ContentDigest,
    },
    /// A ConfigMap.
    ConfigMap {
        name: String,
        version: u64,
        digest: ContentDigest,
    },
    /// A file.
    File { path: String, digest: ContentDigest },
    /// The operation that a run carries out: one that is paused, deleted or gone has no contents any more.
    Operation { name: String, uid: String },
}

impl SourceVersion {
    fn of_secret(secret: &KubeSecret) -> Option<Self> {
        let data = secret.data.iter().flatten();
        let digest = digest(data.map(|(key, value)| (key.as_str(), value.0.as_slice())));
        Some(Self::Secret {
            name: secret.metadata.name.clone()?,
            version: version(secret.metadata.resource_version.as_deref())?,
            digest,
        })
    }

    fn of_config_map(map: &ConfigMap) -> Option<Self> {
        let texts = map.data.iter().flatten();
        let texts = texts.map(|(key, text)| (key.as_str(), text.as_bytes()));
        let binary = map.binary_data.iter().flatten();
        let binary = binary.map(|(key, value)| (key.as_str(), value.0.as_slice()));
        Some(Self::ConfigMap {
            name: map.metadata.name.clone()?,
            version: version(map.metadata.resource_version.as_deref())?,
            digest: digest(texts.chain(binary)),
        })
    }

    const fn digest(&self) -> Option<&ContentDigest> {
        match self {
            Self::Secret { digest, .. }
            | Self::ConfigMap { digest, .. }
            | Self::File { digest, .. } => Some(digest),
            Self::Operation { .. } => None,
        }
    }
}

fn digest<'a>(contents: impl Iterator<Item = (&'a str, &'a [u8])>) -> ContentDigest {
    let mut all = Sha256::new();
    for (key, value) in contents {
        all.update(Sha256::digest(key));
        all.update(Sha256::digest(value));
    }
    all.finalize().into()
}

/// A text, and where it was read.
pub(super) struct SourceText {
    pub(super) text: Secret<String>,
    /// `None` where nothing tells whether it is a newer one.
    pub(super) version: Option<SourceVersion>,
}

/// Host keys, the field of the spec that they are from, and what is done about other ones.
#[derive(Clone, Debug)]
pub(super) struct KnownKeys {
    field: &'static str,
    text: String,
    unknown: HostKeys,
}

impl KnownKeys {
    /// Those in the object, or none.
    pub(super) fn inline(text: Option<&str>, unknown: HostKeys) -> Self {
        Self {
            field: "`spec.ssh.knownHosts`",
            text: text.unwrap_or_default().to_owned(),
            unknown,
        }
    }

    pub(super) const fn referred(text: String, unknown: HostKeys) -> Self {
        Self {
            field: "the text of `spec.ssh.knownHostsFrom`",
            text,
            unknown,
        }
    }

    /// What verifies the key that a node shows. One that a run has verified before counts more: it is in the state.
    pub(super) fn known_hosts(&self, clock: &Clock) -> KnownHosts {
        let clock = clock.clone();
        let policy = match self.unknown {
            HostKeys::Verify => Policy::Strict,
            HostKeys::AcceptNew => Policy::AcceptNew,
        };
        KnownHosts::from_text(self.field, &self.text, policy).with_certificates(move || clock.now())
    }

    /// As far as they can be read: what is done with them needs no more than the host keys in the state.
    pub(super) async fn lenient(ctx: &Context, view: &ClusterObject) -> Self {
        let ssh = view.raw_spec().and_then(|spec| spec.get("ssh"));
        let field = |name: &str| ssh.and_then(|ssh| ssh.get(name));
        let unknown = field("hostKeys").and_then(|value| HostKeys::deserialize(value).ok());
        let unknown = unknown.unwrap_or_default();
        let inline = Self::inline(field("knownHosts").and_then(Value::as_str), unknown);
        let source = field("knownHostsFrom").map(|source| serde_json::from_value(source.clone()));
        let Some(Ok(source)) = source else {
            return inline;
        };
        match Sources::new(ctx, &view.name()).host_keys(&source).await {
            Ok(found) => Self::referred(found.text.expose().clone(), unknown),
            Err(error) => {
                let error = explained(&error);
                tracing::warn!(cluster = view.name(), error, "cannot read its host keys");
                inline
            }
        }
    }
}

/// The Secret and the key in it that a source names, `secret` or `secret/key`.
pub(super) fn key_of(source: &str) -> Option<(&str, &str)> {
    let (name, key) = source.split_once('/').unwrap_or((source, LOGIN));
    is_name(name).then_some((name, key))
}

/// What one Cluster may read. Every key that the operator logs in with is read here, whatever names it: a spec, a
/// state, or the inventory of a recovery.
pub(super) struct Sources {
    secrets: Api<KubeSecret>,
    config_maps: Api<ConfigMap>,
    namespace: String,
    cluster: String,
}

impl Sources {
    pub(super) fn new(ctx: &Context, cluster: &str) -> Self {
        let namespace = &ctx.options.credentials_namespace;
        Self {
            secrets: Api::namespaced(ctx.client.clone(), namespace),
            config_maps: Api::namespaced(ctx.client.clone(), namespace),
            namespace: namespace.clone(),
            cluster: cluster.to_owned(),
        }
    }

    /// The login that a source names.
    pub(super) async fn login(&self, source: &str) -> Result<SourceText, SourceError> {
        let (name, key) = key_of(source).ok_or(SourceError::NotAName)?;
        self.secret(name, key).await
    }

    /// The config that a reference leads to.
    pub(super) async fn config(&self, source: &TextSource) -> Result<SourceText, SourceError> {
        self.text(source, CONFIG).await
    }

    /// The host keys that a reference leads to.
    pub(super) async fn host_keys(&self, source: &TextSource) -> Result<SourceText, SourceError> {
        self.text(source, HOST_KEYS).await
    }

    async fn text(
        &self,
        source: &TextSource,
        default: &'static str,
    ) -> Result<SourceText, SourceError> {
        let key = |key: &Option<String>| key.clone().unwrap_or_else(|| default.to_owned());
        match (&source.secret_key_ref, &source.config_map_key_ref) {
            (Some(of), None) => self.secret(&of.name, &key(&of.key)).await,
            (None, Some(of)) => self.config_map(&of.name, &key(&of.key)).await,
            (Some(_), Some(_)) | (None, None) => Err(SourceError::NotOne),
        }
    }

    /// Puts the texts of Secrets in the place of the references in a config, and gives the versions of the Secrets. Each is
    /// read once.
    pub(super) async fn fill(
        &self,
        config: &mut Value,
        references: &[SecretReference],
    ) -> Result<Vec<SourceVersion>, SourceError> {
        let mut secrets: BTreeMap<&str, KubeSecret> = BTreeMap::new();
        let mut read = Vec::new();
        for reference in references {
            let SecretReference { secret, key, .. } = reference;
            let at = Place::new("Secret", &self.namespace, secret, key);
            if !secrets.contains_key(secret.as_str()) {
                if secrets.len() == MOST_SECRETS {
                    return Err(SourceError::TooMany);
                }
                let granted = self.granted(&at).await?;
                read.extend(SourceVersion::of_secret(&granted));
                secrets.insert(secret, granted);
            }
            let Some(secret) = secrets.get(secret.as_str()) else {
                continue;
            };
            reference.put(config, &text_of(secret, at)?);
        }
        Ok(read)
    }

    /// The present version of a source, where it contains what it did when it was read and still grants it. Otherwise, or
    /// where it cannot be read: nothing.
    pub(super) async fn unchanged(&self, read: &SourceVersion) -> Option<SourceVersion> {
        let at = |kind, name: &str| Place::new(kind, &self.namespace, name, "");
        let now = match read {
            SourceVersion::Secret { name, .. } => {
                let secret = self.granted(&at("Secret", name)).await.ok()?;
                SourceVersion::of_secret(&secret)?
            }
            SourceVersion::ConfigMap { name, .. } => {
                let map = at("ConfigMap", name).read(&self.config_maps).await.ok()?;
                SourceVersion::of_config_map(&map)?
            }
            SourceVersion::File { .. } | SourceVersion::Operation { .. } => return None,
        };
        (now.digest() == read.digest()).then_some(now)
    }

    async fn secret(&self, name: &str, key: &str) -> Result<SourceText, SourceError> {
        let at = Place::new("Secret", &self.namespace, name, key);
        let secret = self.granted(&at).await?;
        Ok(SourceText {
            text: text_of(&secret, at)?,
            version: SourceVersion::of_secret(&secret),
        })
    }

    /// The Secret, where it names this Cluster. A ConfigMap grants nothing: what it has is no secret.
    async fn granted(&self, at: &Place) -> Result<KubeSecret, SourceError> {
        let secret = at.read(&self.secrets).await?;
        if grants(&secret.metadata, &self.cluster) {
            return Ok(secret);
        }
        Err(SourceError::NotGranted {
            at: at.clone(),
            cluster: self.cluster.clone(),
        })
    }

    async fn config_map(&self, name: &str, key: &str) -> Result<SourceText, SourceError> {
        let at = Place::new("ConfigMap", &self.namespace, name, key);
        let map = at.read(&self.config_maps).await?;
        let version = SourceVersion::of_config_map(&map);
        let is_binary = map.binary_data.is_some_and(|data| data.contains_key(key));
        let text = map.data.and_then(|mut data| data.remove(key));
        let Some(text) = text else {
            return Err(if is_binary {
                SourceError::NotText { at }
            } else {
                SourceError::NoSuchKey { at }
            });
        };
        Ok(SourceText {
            text: Secret::new(text),
            version,
        })
    }
}

impl KeyRing for Sources {
    /// A certificate that stood in the object is gone with it; sshd may do without.
    fn credential<'a>(
        &'a self,
        source: &'a str,
        _certificate: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Credential, String>> {
        self.login(source)
            .map(|result| {
                result
                    .map(|found| Credential::Key(found.text, None))
                    .map_err(|error| explained(&error))
            })
            .boxed()
    }
}

/// The text under a key of a Secret.
#[expect(
    clippy::result_large_err,
    reason = "it is an answer of the API, one for each object"
)]
fn text_of(secret: &KubeSecret, at: Place) -> Result<Secret<String>, SourceError> {
    let data = secret.data.as_ref();
    let Some(value) = data.and_then(|data| data.get(&at.key)) else {
        return Err(SourceError::NoSuchKey { at });
    };
    let Ok(text) = String::from_utf8(value.0.clone()) else {
        return Err(SourceError::NotText { at });
    };
    Ok(Secret::new(text))
}

/// True where a Secret names the Cluster as one that may use it.
fn grants(secret: &ObjectMeta, cluster: &str) -> bool {
    let annotations = secret.annotations.as_ref();
    let names = annotations.and_then(|annotations| annotations.get(CLUSTERS));
    let mut names = names.into_iter().flat_map(|names| names.split(','));
    names.any(|name| matches!(name.trim(), name if name == "*" || name == cluster))
}

/// A key of an object.
#[derive(Clone, Debug)]
pub(super) struct Place {
    kind: &'static str,
    namespace: String,
    name: String,
    key: String,
}

impl Place {
    fn new(kind: &'static str, namespace: &str, name: &str, key: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
        }
    }

    /// The object.
    async fn read<K>(&self, api: &Api<K>) -> Result<K, SourceError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        if !is_name(&self.name) {
            return Err(SourceError::NotAName);
        }
        let found = api.get_opt(&self.name).await;
        let found = found.map_err(|source| SourceError::Api {
            at: self.clone(),
            source,
        })?;
        found.ok_or_else(|| SourceError::Missing(self.clone()))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kind,
            namespace,
            name,
            key: _,
        } = self;
        write!(f, "the {kind} `{namespace}/{name}`")
    }
}

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("a reference in the spec does not have the name of an object")]
    NotAName,
    #[error("a reference in the spec has exactly one of `secretKeyRef` and `configMapKeyRef`")]
    NotOne,
    #[error("the config refers to more than {MOST_SECRETS} Secrets")]
    TooMany,
    #[error("{0} does not exist")]
    Missing(Place),
    #[error("{at} is not granted to the Cluster `{cluster}`")]
    NotGranted { at: Place, cluster: String },
    #[error("{at} has no key `{}`", .at.key)]
    NoSuchKey { at: Place },
    #[error("the key `{}` of {at} is not text", .at.key)]
    NotText { at: Place },
    #[error("cannot read {at}")]
    Api {
        at: Place,
        #[source]
        source: kube::Error,
    },
    #[error(transparent)]
    File(#[from] FileError),
}

impl SourceError {
    /// The reason in `ConfigValid`.
    pub(super) const fn invalid(&self) -> Reason {
        match self {
            Self::NotAName | Self::NotOne | Self::TooMany => Reason::InvalidConfig,
            Self::Missing(_)
            | Self::NotGranted { .. }
            | Self::NoSuchKey { .. }
            | Self::NotText { .. } => Reason::SourceMissing,
            Self::Api { .. } => Reason::SourceUnreadable,
            Self::File(error) => error.invalid(),
        }
    }

    /// The reason in `Stalled`, where a person must change something.
    pub(super) fn stalled(&self) -> Reason {
        match self {
            Self::NotAName | Self::NotOne | Self::TooMany => Reason::InvalidConfig,
            Self::Api { .. } => Reason::PermissionDenied,
            Self::NotGranted { .. } => Reason::SecretNotGranted,
            Self::Missing(at) | Self::NoSuchKey { at } | Self::NotText { at } => match at.kind {
                "Secret" => Reason::SecretMissing,
                _ => Reason::SourceMissing,
            },
            Self::File(error) => error.invalid(),
        }
    }
}

impl Explain for SourceError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotAName
            | Self::NotOne
            | Self::TooMany
            | Self::Missing(_)
            | Self::NotGranted { .. }
            | Self::NoSuchKey { .. }
            | Self::NotText { .. } => ErrorClass::User,
            // A right that is missing comes with a person, not with time.
            Self::Api {
                source: kube::Error::Api(status),
                ..
            } if status.is_forbidden() => ErrorClass::User,
            Self::Api { .. } => ErrorClass::Transient,
            Self::File(error) => error.class(),
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Missing(at) => vec![at.how_to_create().into()],
            Self::NotGranted { at, cluster } => vec![
                format!(
                    "`kubectl -n {} annotate --overwrite secret {} {CLUSTERS}={cluster}` grants it; \
                     commas separate several names",
                    at.namespace, at.name
                )
                .into(),
            ],
            Self::NoSuchKey { .. } => vec!["`key` of the reference names another key of it".into()],
            Self::NotText { .. } => {
                vec![
                    "it must be a private key as `ssh-keygen` writes it, a cluster.yml, lines of known_hosts, or the text that the config refers to".into(),
                ]
            }
            Self::TooMany => vec!["several values may be keys of one Secret".into()],
            Self::NotAName | Self::NotOne => {
                vec!["`kubectl explain cluster.spec` has the form of every field".into()]
            }
            Self::Api { .. } => Vec::new(),
            Self::File(error) => error.hints(),
        }
    }
}

impl Place {
    fn how_to_create(&self) -> String {
        let Self {
            kind,
            namespace,
            name,
            key,
        } = self;
        if *kind != "Secret" {
            return format!(
                "`kubectl -n {namespace} create configmap {name} --from-file={key}=<file>` makes one"
            );
        }
        let kind = if key == LOGIN {
            " --type=kubernetes.io/ssh-auth"
        } else {
            ""
        };
        format!(
            "`kubectl -n {namespace} create secret generic {name}{kind} --from-file={key}=<file>` makes one; its \
             annotation `{CLUSTERS}` names the Clusters that may use it"
        )
    }
}

/// A name as the API has them: nothing in it leads elsewhere.
fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(ends) && name.ends_with(ends) && name.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use crate::{
        host::{HostKeyVerdict, HostKeys as _},
        model::Endpoint,
    };

    use super::*;

    /// A key that is on record decides, wherever it is: in the spec, in the state, or taken a moment ago.
    #[tokio::test]
    async fn a_key_that_is_not_known_is_treated_as_the_spec_says() {
        const ONE: &str =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICPM8HnUY1Vab1rqzRaLTp+MeXAzLHRa0MoWJoe3mb7l";
        const OTHER: &str =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPbjz6qBWQzcqYucpOxuWcfm0Xl4i0QJk4f3Spp1UGtY";
        let at = |address: &str| Endpoint {
            address: address.to_owned(),
            port: 22,
        };
        for (unknown, accepted) in [(HostKeys::Verify, false), (HostKeys::AcceptNew, true)] {
            let known = KnownKeys::inline(Some(&format!("a {ONE}\n")), unknown)
                .known_hosts(&Clock::new(|| jiff::Timestamp::UNIX_EPOCH));
            let answer = async |address: &str, key: &str, before: &[String]| {
                let key = key.into();
                known.verify(&at(address), &key, before).await.unwrap()
            };
            assert_eq!(answer("a", ONE, &[]).await, HostKeyVerdict::Trusted);
            let changed = |answer| matches!(answer, HostKeyVerdict::Changed { .. });
            assert!(changed(answer("a", OTHER, &[]).await));
            assert!(changed(answer("b", OTHER, &[ONE.to_owned()]).await));
            let new = HostKeyVerdict::Unknown { accepted };
            assert_eq!(answer("b", ONE, &[]).await, new);
            let again = answer("b", OTHER, &[]).await;
            assert_eq!(changed(again), accepted, "the first one stays");
        }
    }
}

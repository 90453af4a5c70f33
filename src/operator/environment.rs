//! The [`Environment`] of one `Cluster`: its state, in the operator's own namespace; its kubeconfig
//! and its keys, in that of the credentials. A reference carries a name only, so there is no way to
//! another (invariant 13).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{
    api::core::v1::Secret as KubeSecret, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta},
};
use tokio::{sync::Mutex, time::Instant};

use super::{
    cluster_object::ClusterObject,
    context::{Context, SecretVersion, labels, version},
    memory,
    reasons::{self, Reasoned},
};
use crate::{
    api::{
        CLUSTERS, Changes, ClusterSpec, ConfigSource, Drift, KeySecretRef,
        conditions::{ConditionType, Reason, shorten},
    },
    config::{Credential, Intent, Resolved, RkeConfig, SecretSources},
    converge::Goal,
    desired::{self, DesiredError},
    environment::{Environment, KeyRing},
    error::{ErrorClass, Explain, on_object},
    host::{KnownHosts, Policy},
    model::{ClusterId, Secret, label, printable_lines},
    plan::Plan,
    state::kubeconfig::SecretKubeconfig,
};

/// The key of a Secret that a source without one means.
const DEFAULT_KEY: &str = "ssh-privatekey";

/// The key of a Secret with a config that a reference without one means.
const DEFAULT_CONFIG: &str = "cluster.yml";

/// Everything outside that one cluster needs. `kubeconfig_owner`: whoever the Secret goes with.
pub(super) async fn environment(
    ctx: &Context,
    view: &ClusterObject,
    kubeconfig_owner: Option<OwnerReference>,
) -> kube::Result<Environment> {
    let name = view.name();
    let credentials = &ctx.options.credentials_namespace;
    let client = ctx.client.clone();
    Ok(Environment {
        remote: Arc::clone(&ctx.dependencies.remote),
        host_keys: Arc::new(KnownHosts::from_text(
            "`spec.ssh.knownHosts`",
            view.known_hosts(),
            Policy::Strict,
        )),
        store: memory::store(ctx, view),
        kubeconfig: Arc::new(SecretKubeconfig::new(
            client.clone(),
            credentials,
            &name,
            labels(&name),
            kubeconfig_owner,
        )),
        key_ring: Arc::new(SecretKeys::new(client, credentials, &name)),
        recover: view.recover(),
        accept_etcd: view.accept_etcd(),
        held_elsewhere: held_elsewhere(ctx, view).await?,
        lose: view.lose(),
        clean: view.clean(),
        home: None,
        given: None,
        // One process acts, so whoever comes after it under this name took over from it.
        identity: format!("rke-operator for Cluster {name}, uid {}", view.uid()),
        clock: ctx.dependencies.clock.clone(),
        entropy: ctx.dependencies.entropy,
    })
}

/// The ids of every other cluster here: of objects that told theirs, and of states that are
/// kept, those of orphans included.
async fn held_elsewhere(ctx: &Context, view: &ClusterObject) -> kube::Result<BTreeSet<ClusterId>> {
    let name = view.name();
    let told = ctx
        .caches
        .clusters
        .state()
        .into_iter()
        .filter(|object| object.name_any() != name)
        .filter_map(|object| ClusterObject::new((*object).clone()).known_id());
    let kept = ctx.kept.read(ctx, view.recover().is_some()).await?;
    let others = kept
        .iter()
        .filter(|(cluster, _)| cluster.as_deref() != Some(&*name));
    Ok(told.chain(others.map(|(_, id)| id.clone())).collect())
}

/// How long a list of the states is good for. It grows with the clusters, and each of them asks for it.
const KEPT: Duration = Duration::from_secs(60);

type Ids = Arc<Vec<(Option<String>, ClusterId)>>;

/// The clusters whose states are kept: name and id.
#[derive(Default)]
pub(super) struct KeptIds(Mutex<Option<(Instant, Ids)>>);

impl KeptIds {
    /// `fresh`: an id is about to be taken, and what is held is to be known for sure.
    async fn read(&self, ctx: &Context, fresh: bool) -> kube::Result<Ids> {
        // Those that come meanwhile take what this one reads.
        let mut known = self.0.lock().await;
        if let Some((at, ids)) = &*known
            && !fresh
            && at.elapsed() < KEPT
        {
            return Ok(Arc::clone(ids));
        }
        let secrets: Api<KubeSecret> = Api::namespaced(ctx.client.clone(), &ctx.options.namespace);
        let params = ListParams::default().labels(label::CLUSTER_ID);
        let list = secrets.list_metadata(&params).await?;
        let ids = list.items.iter().filter_map(|secret| {
            let labels = secret.labels();
            let id = labels.get(label::CLUSTER_ID).cloned().map(ClusterId)?;
            Some((labels.get(label::CLUSTER_NAME).cloned(), id))
        });
        let ids: Ids = Arc::new(ids.collect());
        *known = Some((Instant::now(), Arc::clone(&ids)));
        Ok(ids)
    }
}

/// How many warnings a status holds, and how long each is.
pub(super) const WARNINGS: usize = 20;
const WARNING: usize = 1024;

/// What a `Cluster` asks for.
pub(super) struct Wanted {
    pub(super) intent: Intent,
    /// The release that the object asks for.
    pub(super) version: String,
    /// What the config is warned about.
    pub(super) warnings: Vec<String>,
    /// What it asks for and is not done yet.
    pub(super) later: Vec<String>,
    /// The config as it was written.
    pub(super) text: Secret<String>,
    /// How to log in.
    sources: SecretSources,
    /// The Secrets that it was read from: the one with the key, and the one with the config.
    pub(super) secrets: Vec<SecretVersion>,
    /// How changes of it are applied.
    pub(super) changes: Changes,
    /// What is done about drift.
    pub(super) drift: Drift,
}

impl Wanted {
    /// The config that was applied before, in the place of this one, which waits: warnings and the version asked for
    /// are those of this one.
    pub(super) fn former(&self, text: Secret<String>) -> Result<Self, SpecError> {
        let config = RkeConfig::parse(text.expose())?;
        let former = understood(&config, &self.sources)?;
        Ok(Self {
            intent: former.intent,
            version: self.version.clone(),
            warnings: self.warnings.clone(),
            later: self.later.clone(),
            text,
            sources: self.sources.clone(),
            secrets: self.secrets.clone(),
            changes: self.changes,
            drift: self.drift,
        })
    }

    /// The goal of a run that follows no change of the config.
    pub(super) const fn upkeep(&self) -> Goal<'_> {
        match self.drift {
            Drift::Heal => Goal::Heal(&self.intent),
            Drift::Report => Goal::Renew(&self.intent),
        }
    }

    /// What such a run does of all that differs.
    pub(super) fn kept_up(&self, plan: &Plan) -> Plan {
        match self.drift {
            Drift::Heal => plan.unasked(),
            Drift::Report => plan.renewals(),
        }
    }
}

/// The config of a `Cluster`, read and judged; `Err` is for its conditions.
pub(super) async fn wanted(
    ctx: &Context,
    cluster: &str,
    spec: &ClusterSpec,
) -> Result<Wanted, SpecError> {
    let KeySecretRef { name, key } = &spec.ssh.key_secret_ref;
    let source = match key.as_deref() {
        None | Some(DEFAULT_KEY) => name.clone(),
        Some(key) => format!("{name}/{key}"),
    };
    let namespace = &ctx.options.credentials_namespace;
    let keys = SecretKeys::new(ctx.client.clone(), namespace, cluster);
    let pem = keys.read(&source).await?;
    let mut secrets = vec![pem.version];
    let (text, config) = match (&spec.config, &spec.config_from) {
        (Some(config), None) => {
            let document = serde_json::Value::Object(config.clone());
            // Maps are sorted, so equal configs have equal texts.
            let text = Secret::new(document.to_string());
            (text, RkeConfig::from_json(&document)?)
        }
        (None, Some(ConfigSource { secret_key_ref })) => {
            let key = secret_key_ref.key.as_deref().unwrap_or(DEFAULT_CONFIG);
            let found = keys.read(&format!("{}/{key}", secret_key_ref.name)).await?;
            secrets.push(found.version);
            let config = RkeConfig::parse(found.text.expose())?;
            (found.text, config)
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(SpecError::NotOneConfig);
        }
    };
    let sources = SecretSources::new(source, pem.text);
    let understood = understood(&config, &sources)?;
    Ok(Wanted {
        version: understood.intent.version.to_string(),
        intent: understood.intent,
        warnings: understood.warnings.iter().map(problem).collect(),
        later: understood.later.iter().map(ToString::to_string).collect(),
        text,
        sources,
        secrets: secrets.into_iter().flatten().collect(),
        changes: spec.changes.unwrap_or_default(),
        drift: spec.drift.unwrap_or_default(),
    })
}

/// What a config asks for.
fn understood(config: &RkeConfig, sources: &SecretSources) -> Result<Resolved, SpecError> {
    let resolved = Intent::from_config(config, sources)?;
    desired::check(&resolved.intent)?;
    Ok(resolved)
}

/// A warning about a config, for the status.
fn problem(problem: &crate::config::Problem) -> String {
    let mut text = problem.to_string();
    if let Some(hint) = &problem.hint {
        text.push_str("; hint: ");
        text.push_str(hint);
    }
    shorten(&printable_lines(&on_object(&text)), WARNING)
}

/// A warning of a run, for the status.
pub(super) fn warning(warning: &crate::apply::step::Warning) -> String {
    let mut text = warning.message.clone();
    for hint in &warning.hints {
        text.push_str("; hint: ");
        text.push_str(hint);
    }
    shorten(&printable_lines(&on_object(&text)), WARNING)
}

/// Why there is no intent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpecError {
    /// A part of the object cannot be read; only where is said.
    #[error("`{0}` cannot be understood")]
    Unreadable(String),
    /// There are two configs, or none.
    #[error("there is exactly one of `spec.config` and `spec.configFrom`")]
    NotOneConfig,
    /// The config is wrong.
    #[error(transparent)]
    Problems(#[from] crate::config::Problems),
    /// The config contradicts what rke-operator adds to it.
    #[error(transparent)]
    Desired(#[from] DesiredError),
    /// The Secret is not there, or has no such key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl SpecError {
    /// The reason in `ConfigValid`.
    pub(super) const fn reason(&self) -> Reason {
        match self {
            Self::Unreadable(_)
            | Self::NotOneConfig
            | Self::Problems(_)
            | Self::Desired(_)
            | Self::Key(KeyError::NotAName) => Reason::InvalidConfig,
            Self::Key(
                KeyError::Missing { .. }
                | KeyError::NotGranted { .. }
                | KeyError::NoSuchKey { .. }
                | KeyError::NotText { .. },
            ) => Reason::SourceMissing,
            Self::Key(KeyError::Api { .. }) => Reason::SourceUnreadable,
        }
    }
}

impl Reasoned for SpecError {
    fn verdict(&self) -> (ConditionType, Reason) {
        let user = match self {
            Self::Unreadable(_)
            | Self::NotOneConfig
            | Self::Problems(_)
            | Self::Desired(_)
            | Self::Key(KeyError::NotAName) => Reason::InvalidConfig,
            Self::Key(KeyError::Api { .. }) => Reason::PermissionDenied,
            Self::Key(KeyError::NotGranted { .. }) => Reason::SecretNotGranted,
            Self::Key(
                KeyError::Missing { .. } | KeyError::NoSuchKey { .. } | KeyError::NotText { .. },
            ) => Reason::SecretMissing,
        };
        reasons::by_class(self.class(), user)
    }
}

impl Explain for SpecError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Unreadable(_) | Self::NotOneConfig => ErrorClass::User,
            Self::Problems(problems) => problems.class(),
            Self::Desired(error) => error.class(),
            Self::Key(error) => error.class(),
        }
    }

    fn hints(&self) -> Vec<std::borrow::Cow<'static, str>> {
        match self {
            Self::Unreadable(_) | Self::NotOneConfig => {
                vec!["`kubectl explain cluster.spec` has the form of every field".into()]
            }
            Self::Problems(problems) => problems.hints(),
            Self::Desired(error) => error.hints(),
            Self::Key(error) => error.hints(),
        }
    }
}

/// The Secret and the key in it that a source names, `secret` or `secret/key`.
pub(super) fn key_of(source: &str) -> Option<(&str, &str)> {
    let (name, key) = source.split_once('/').unwrap_or((source, DEFAULT_KEY));
    is_name(name).then_some((name, key))
}

/// What one key of a Secret has.
struct SecretText {
    text: Secret<String>,
    version: Option<SecretVersion>,
}

/// Secrets of the credentials' namespace, as far as they are granted to one Cluster. Every key that the operator logs in
/// with is read here, whatever names it: a spec, a state, or the inventory of a recovery.
pub(super) struct SecretKeys {
    secrets: Api<KubeSecret>,
    namespace: String,
    cluster: String,
}

impl SecretKeys {
    fn new(client: Client, namespace: &str, cluster: &str) -> Self {
        Self {
            secrets: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            cluster: cluster.to_owned(),
        }
    }

    /// What stands there.
    async fn read(&self, source: &str) -> Result<SecretText, KeyError> {
        let (name, key) = key_of(source).ok_or(KeyError::NotAName)?;
        let place = || format!("{}/{name}", self.namespace);
        let secret = self
            .secrets
            .get_opt(name)
            .await
            .map_err(|source| KeyError::Api {
                place: place(),
                source,
            })?
            .ok_or_else(|| KeyError::Missing {
                name: name.to_owned(),
                namespace: self.namespace.clone(),
                key: key.to_owned(),
            })?;
        if !grants(&secret.metadata, &self.cluster) {
            return Err(KeyError::NotGranted {
                name: name.to_owned(),
                namespace: self.namespace.clone(),
                cluster: self.cluster.clone(),
            });
        }
        let version = version(secret.metadata.resource_version.as_deref());
        let value = secret.data.and_then(|mut data| data.remove(key));
        let value = value.ok_or_else(|| KeyError::NoSuchKey {
            place: place(),
            key: key.to_owned(),
        })?;
        String::from_utf8(value.0)
            .map(|text| SecretText {
                text: Secret::new(text),
                version: version.map(|version| SecretVersion {
                    name: name.to_owned(),
                    version,
                }),
            })
            .map_err(|_| KeyError::NotText {
                place: place(),
                key: key.to_owned(),
            })
    }
}

impl KeyRing for SecretKeys {
    /// A certificate that stood in the object is gone with it; sshd may do without.
    fn credential<'a>(
        &'a self,
        source: &'a str,
        _certificate: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Credential, String>> {
        self.read(source)
            .map(|result| {
                result
                    .map(|found| Credential::Key(found.text, None))
                    .map_err(|error| super::context::explained(&error))
            })
            .boxed()
    }
}

/// True where a Secret names the Cluster as one that may use it.
fn grants(secret: &ObjectMeta, cluster: &str) -> bool {
    let annotations = secret.annotations.as_ref();
    let names = annotations.and_then(|annotations| annotations.get(CLUSTERS));
    let mut names = names.into_iter().flat_map(|names| names.split(','));
    names.any(|name| matches!(name.trim(), name if name == "*" || name == cluster))
}

/// Why there is nothing to read in a Secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    #[error("a reference in the spec does not have the name of a Secret")]
    NotAName,
    #[error("there is no Secret `{name}` in namespace `{namespace}`")]
    Missing {
        name: String,
        namespace: String,
        key: String,
    },
    #[error("the Secret `{namespace}/{name}` is not granted to the Cluster `{cluster}`")]
    NotGranted {
        name: String,
        namespace: String,
        cluster: String,
    },
    #[error("the Secret `{place}` has no key `{key}`")]
    NoSuchKey { place: String, key: String },
    #[error("the key `{key}` of the Secret `{place}` is not text")]
    NotText { place: String, key: String },
    #[error("cannot read the Secret `{place}`")]
    Api {
        place: String,
        #[source]
        source: kube::Error,
    },
}

impl Explain for KeyError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotAName
            | Self::Missing { .. }
            | Self::NotGranted { .. }
            | Self::NoSuchKey { .. }
            | Self::NotText { .. } => ErrorClass::User,
            // A right that is missing comes with a person, not with time.
            Self::Api {
                source: kube::Error::Api(status),
                ..
            } if status.is_forbidden() => ErrorClass::User,
            Self::Api { .. } => ErrorClass::Transient,
        }
    }

    fn hints(&self) -> Vec<std::borrow::Cow<'static, str>> {
        match self {
            Self::Missing {
                name,
                namespace,
                key,
            } => {
                let kind = if key == DEFAULT_KEY {
                    " --type=kubernetes.io/ssh-auth"
                } else {
                    ""
                };
                vec![
                    format!(
                        "`kubectl -n {namespace} create secret generic {name}{kind} --from-file={key}=<file>` makes \
                         one; its annotation `{CLUSTERS}` names the Clusters that may use it"
                    )
                    .into(),
                ]
            }
            Self::NotGranted {
                name,
                namespace,
                cluster,
            } => vec![
                format!(
                    "`kubectl -n {namespace} annotate --overwrite secret {name} {CLUSTERS}={cluster}` grants it; \
                     commas separate several names"
                )
                .into(),
            ],
            Self::NoSuchKey { .. } => {
                vec!["`key` of the reference names another key of the Secret".into()]
            }
            Self::NotText { .. } => {
                vec!["it must be a private key as `ssh-keygen` writes it, or a cluster.yml".into()]
            }
            Self::NotAName | Self::Api { .. } => Vec::new(),
        }
    }
}

/// A name as the API has them: nothing in it leads elsewhere.
fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(ends) && name.ends_with(ends) && name.chars().all(inner)
}

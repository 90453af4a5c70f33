//! The [`Environment`] of one `Cluster`: its state, in the operator's own namespace; its kubeconfig
//! and its keys, in that of the credentials. And what it asks for: its config, read and checked.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::Secret as KubeSecret, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, ResourceExt, api::ListParams};
use tokio::{sync::Mutex, time::Instant};

use super::{
    cluster_object::ClusterObject,
    context::{Context, labels},
    memory,
    reasons::{self, Reasoned},
    sources::{KnownKeys, LOGIN, SourceError, SourceText, SourceVersion, Sources},
};
use crate::{
    api::{
        Changes, ClusterSpec, Drift, KeyRef,
        conditions::{ConditionType, Reason, shorten},
    },
    config::{ConfigSecrets, Intent, MAX_BYTES, Problem, Resolved, RkeConfig, SecretSources},
    converge::Goal,
    desired::{self, DesiredError},
    environment::Environment,
    error::{ErrorClass, Explain, on_object},
    model::{ClusterId, Secret, label, printable_lines, quoted},
    plan::Plan,
    state::kubeconfig::SecretKubeconfig,
};

/// Everything outside that one cluster needs. `kubeconfig_owner`: what the Secret goes with.
pub(super) async fn environment(
    ctx: &Context,
    view: &ClusterObject,
    kubeconfig_owner: Option<OwnerReference>,
    host_keys: &KnownKeys,
) -> kube::Result<Environment> {
    let name = view.name();
    let credentials = &ctx.options.credentials_namespace;
    let client = ctx.client.clone();
    Ok(Environment {
        remote: Arc::clone(&ctx.dependencies.remote),
        host_keys: Arc::new(host_keys.known_hosts(&ctx.dependencies.clock)),
        store: memory::store(ctx, view),
        kubeconfig: Arc::new(SecretKubeconfig::new(
            client,
            credentials,
            &name,
            labels(&name),
            kubeconfig_owner,
        )),
        key_ring: Arc::new(Sources::new(ctx, &name)),
        recover: view.recover(),
        accept_etcd: view.accept_etcd(),
        rotate: None,
        rotate_key: false,
        service_account_key: None,
        retry: view.retry(),
        authorities: None,
        restore: None,
        held_elsewhere: held_elsewhere(ctx, view).await?,
        lose: view.lose(),
        clean: view.clean(),
        last_snapshot: view.deletion().last_snapshot,
        home: None,
        given: None,
        bundle: None,
        // One process acts, so a later one with this name took over from it.
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
    /// The paths of secrets that are in the object.
    inline: Vec<String>,
    /// The config as it was written.
    pub(super) text: Secret<String>,
    /// How to log in.
    sources: SecretSources,
    /// What it was read from: key, config and host keys.
    pub(super) read: Vec<SourceVersion>,
    /// The host keys that the spec has.
    pub(super) host_keys: KnownKeys,
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
        let agent = self.intent.agent.clone();
        Ok(Self {
            intent: Intent {
                agent,
                ..former.intent
            },
            version: self.version.clone(),
            warnings: self.warnings.clone(),
            inline: self.inline.clone(),
            text,
            sources: self.sources.clone(),
            read: self.read.clone(),
            host_keys: self.host_keys.clone(),
            changes: self.changes,
            drift: self.drift,
        })
    }

    /// Why it is refused, although it was understood: a cluster that is there is kept.
    pub(super) fn refused(&self) -> Option<SpecError> {
        let inline = Some(&self.inline).filter(|inline| !inline.is_empty());
        inline.map(|inline| SpecError::InlineSecret(inline.clone()))
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

/// The config of a `Cluster`, read and validated; `Err` is for its conditions.
pub(super) async fn wanted(
    ctx: &Context,
    cluster: &str,
    spec: &ClusterSpec,
) -> Result<Wanted, SpecError> {
    let KeyRef { name, key } = &spec.ssh.key_secret_ref;
    let source = match key.as_deref() {
        None | Some(LOGIN) => name.clone(),
        Some(key) => format!("{name}/{key}"),
    };
    let sources = Sources::new(ctx, cluster);
    let pem = sources.login(&source).await?;
    let ConfigText {
        text,
        config,
        read: config_read,
        inline,
    } = config(ctx, spec, &sources).await?;
    let (host_keys, host_keys_version) = host_keys(spec, &sources).await?;
    let read = [pem.version, host_keys_version].into_iter().flatten();
    let read = read.chain(config_read).collect();
    let sources = SecretSources::new(source, pem.text);
    let understood = understood(&config, &sources).map_err(|error| error.or_inline(&inline))?;
    Ok(Wanted {
        version: understood.intent.version.to_string(),
        intent: Intent {
            agent: ctx.options.agent.clone(),
            ..understood.intent
        },
        warnings: understood.warnings.iter().map(problem).collect(),
        inline,
        text,
        sources,
        read,
        host_keys,
        changes: spec.changes.unwrap_or_default(),
        drift: spec.drift.unwrap_or_default(),
    })
}

/// The config of a spec.
struct ConfigText {
    /// With the texts of the Secrets that it refers to.
    text: Secret<String>,
    config: RkeConfig,
    /// What it was read from.
    read: Vec<SourceVersion>,
    /// The paths of secrets that are in the object.
    inline: Vec<String>,
}

/// The config of an object, with the texts of the Secrets that it refers to.
async fn inline_config(
    config: &serde_json::Map<String, serde_json::Value>,
    sources: &Sources,
) -> Result<ConfigText, SpecError> {
    let mut document = serde_json::Value::Object(config.clone());
    let ConfigSecrets { references, inline } = ConfigSecrets::of(&document)?;
    let read = sources.fill(&mut document, &references).await?;
    // Maps are sorted, so equal configs have equal texts.
    let text = document.to_string();
    if !references.is_empty() && text.len() > MAX_BYTES {
        let problem = Problem::new("", "the config and its Secrets are larger than 1 MiB");
        return Err(SpecError::Problems(problem.into()));
    }
    Ok(ConfigText {
        text: Secret::new(text),
        config: RkeConfig::from_json(&document)?,
        read,
        inline,
    })
}

async fn config(
    ctx: &Context,
    spec: &ClusterSpec,
    sources: &Sources,
) -> Result<ConfigText, SpecError> {
    let SourceText { text, version } = match (&spec.config, &spec.config_from, &spec.config_path) {
        (Some(config), None, None) => return inline_config(config, sources).await,
        (None, Some(source), None) => sources.config(source).await?,
        (None, None, Some(path)) => {
            let (text, digest) = ctx.files.read(path).await.map_err(SourceError::File)?;
            let path = path.clone();
            let version = Some(SourceVersion::File { path, digest });
            SourceText { text, version }
        }
        _ => return Err(SpecError::NotOneConfig),
    };
    Ok(ConfigText {
        config: RkeConfig::parse(text.expose())?,
        text,
        read: version.into_iter().collect(),
        inline: Vec::new(),
    })
}

/// The host keys of a spec, and the version of what they were read from.
async fn host_keys(
    spec: &ClusterSpec,
    sources: &Sources,
) -> Result<(KnownKeys, Option<SourceVersion>), SpecError> {
    let unknown = spec.ssh.host_keys.unwrap_or_default();
    match (&spec.ssh.known_hosts, &spec.ssh.known_hosts_from) {
        (text, None) => Ok((KnownKeys::inline(text.as_deref(), unknown), None)),
        (None, Some(source)) => {
            let found = sources.host_keys(source).await?;
            let text = found.text.expose().clone();
            Ok((KnownKeys::referred(text, unknown), found.version))
        }
        (Some(_), Some(_)) => Err(SpecError::NotOneKnownHosts),
    }
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
    /// A part of the object cannot be read; the message has only its path.
    #[error("`{0}` cannot be understood")]
    Unreadable(String),
    /// The definition took this object before, and refuses it now.
    #[error("the definition of `Cluster` refuses this object, which an earlier one took")]
    Refused,
    /// There are two configs, or none.
    #[error("there is exactly one of `spec.config`, `spec.configFrom` and `spec.configPath`")]
    NotOneConfig,
    /// Host keys are in two places.
    #[error("there is at most one of `spec.ssh.knownHosts` and `spec.ssh.knownHostsFrom`")]
    NotOneKnownHosts,
    /// Secrets are in the object itself, at these paths.
    #[error("the object itself has a secret: {}", quoted(.0))]
    InlineSecret(Vec<String>),
    /// The config is wrong.
    #[error(transparent)]
    Problems(#[from] crate::config::Problems),
    /// The config contradicts what rke-operator adds to it.
    #[error(transparent)]
    Desired(#[from] DesiredError),
    /// What it refers to cannot be read.
    #[error(transparent)]
    Source(Box<SourceError>),
}

impl From<SourceError> for SpecError {
    fn from(error: SourceError) -> Self {
        Self::Source(Box::new(error))
    }
}

impl SpecError {
    /// A secret that is in the object, where nothing else is wrong: it is refused whatever it is.
    fn or_inline(self, inline: &[String]) -> Self {
        if let Self::Problems(problems) = &self
            && problems
                .iter()
                .all(|problem| inline.contains(&problem.path))
        {
            return Self::InlineSecret(inline.to_vec());
        }
        self
    }

    /// The reason in `ConfigValid`.
    pub(super) const fn reason(&self) -> Reason {
        match self {
            Self::Unreadable(_)
            | Self::Refused
            | Self::NotOneConfig
            | Self::NotOneKnownHosts
            | Self::Problems(_)
            | Self::Desired(_) => Reason::InvalidConfig,
            Self::InlineSecret(_) => Reason::InlineSecret,
            Self::Source(error) => error.invalid(),
        }
    }
}

fn inline_hints(paths: &[String]) -> Vec<std::borrow::Cow<'static, str>> {
    let is_login = |path: &String| path.ends_with("ssh_key");
    let mut hints =
        vec!["anyone who reads the object or etcd can see it: change it where it is used".into()];
    if paths.iter().any(is_login) {
        hints.push(
            "remove `ssh_key`: the key in the Secret of `spec.ssh.keySecretRef` logs in".into(),
        );
    }
    if !paths.iter().all(is_login) {
        hints.push(
            "put it into a Secret in the namespace of the credentials, and write \
             `secretKeyRef: {name: NAME, key: KEY}` in its place"
                .into(),
        );
    }
    hints
}

impl Reasoned for SpecError {
    fn condition(&self) -> (ConditionType, Reason) {
        let user = match self {
            Self::Unreadable(_)
            | Self::Refused
            | Self::NotOneConfig
            | Self::NotOneKnownHosts
            | Self::InlineSecret(_)
            | Self::Problems(_)
            | Self::Desired(_) => Reason::InvalidConfig,
            Self::Source(error) => error.stalled(),
        };
        reasons::by_class(self.class(), user)
    }
}

impl Explain for SpecError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Unreadable(_)
            | Self::Refused
            | Self::NotOneConfig
            | Self::NotOneKnownHosts
            | Self::InlineSecret(_) => ErrorClass::User,
            Self::Problems(problems) => problems.class(),
            Self::Desired(error) => error.class(),
            Self::Source(error) => error.class(),
        }
    }

    fn hints(&self) -> Vec<std::borrow::Cow<'static, str>> {
        match self {
            Self::Refused => {
                vec!["the answer to any edit says what is wrong: `kubectl edit`".into()]
            }
            Self::Unreadable(_) | Self::NotOneConfig | Self::NotOneKnownHosts => {
                vec!["`kubectl explain cluster.spec` has the form of every field".into()]
            }
            Self::InlineSecret(paths) => inline_hints(paths),
            Self::Problems(problems) => problems.hints(),
            Self::Desired(error) => error.hints(),
            Self::Source(error) => error.hints(),
        }
    }
}

//! `init`: an existing cluster as objects of a management cluster. Reads the config, the key, the known host keys and the
//! state; contacts nothing.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{self, IsTerminal as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::{
    args::Init,
    environment,
    handover::{self, Config, Handover, Manifests},
    intent, kubeconfig, print,
    report::{CliError, Failure},
    rke_state,
    session::Session,
    sources::{FileSources, read_at_most},
};
use crate::{
    config::{
        Credential, Intent, MAX_BYTES, Problems, RkeConfig, SecretSources, Sources as _,
        has_passphrase, means_the_same, portable,
    },
    error::{ErrorClass, Explain},
    host::{Policy, known_hosts_line},
    model::{Endpoint, Secret, quoted},
    operator::credentials_namespace,
    state::ClusterState,
};

/// The longest name of a `Cluster`.
const NAME: usize = 52;

/// Runs it.
pub(super) async fn init(args: &Init, session: &Session) -> Result<u8, CliError> {
    if args.output.is_none() && io::stdout().is_terminal() {
        return Err(InitError::Terminal.into());
    }
    let file = &args.config.config;
    // The operator gets the key as it is in the file, so there is no prompt for a passphrase.
    let reading = Session {
        prompt: session.prompt.without_person(),
        ..session.clone()
    };
    let intent = intent::load(file, &reading).await?;
    let environment = environment::open(file, super::status::opening(false), session)?;
    rke_state::refuse(file, &environment).await?;
    let saved = kubeconfig::state(file, &environment).await?;
    if saved.is_of_first_format() {
        return Err(InitError::FirstFormat.into());
    }
    let name = args.name.as_deref().unwrap_or(&intent.cluster_name);
    named(name)?;
    let sources = FileSources::default().next_to(file);
    let key = match &args.ssh_key {
        Some(path) => usable(path, &sources)?,
        None => the_key(&intent)?,
    };
    let config = config(file, &intent, &sources, &handover::key_secret(name), &key)?;
    let known = Known::of(&intent, &saved, session)?;
    let credentials = args.credentials_namespace.clone();
    let handover = Handover {
        name,
        namespace: &args.namespace,
        credentials: &credentials.unwrap_or_else(|| credentials_namespace(&args.namespace)),
        config,
        key: &key,
        known_hosts: &known.lines,
        saved: &saved,
    };
    let manifests = handover.manifests().map_err(not_written)?;
    if let Some(folder) = &args.output {
        write(folder, &manifests)?;
    } else {
        let all = manifests.secrets.iter().chain([&manifests.cluster]);
        print::data(handover::yaml(all).map_err(not_written)?.expose())?;
    }
    session
        .screen
        .print_unless_quiet(&next(name, args.output.as_deref(), &known));
    Ok(0)
}

/// A name that the API takes.
fn named(name: &str) -> Result<(), InitError> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = name.len() <= NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && !name.ends_with('-')
        && name.chars().all(inner);
    is_name.then_some(()).ok_or_else(|| InitError::Name {
        name: name.to_owned(),
    })
}

/// The one key with which every node and bastion host is reached.
fn the_key(intent: &Intent) -> Result<Secret<String>, InitError> {
    let nodes = intent.nodes.values().map(|node| &node.login);
    let logins = nodes.chain(intent.bastions().into_iter().map(|bastion| &bastion.login));
    let mut found: Option<&Secret<String>> = None;
    let mut from = BTreeSet::new();
    let mut same = true;
    for login in logins {
        let Credential::Key(pem, _) = &login.credential else {
            return Err(InitError::Agent);
        };
        from.insert(login.key_source.clone());
        same &= *found.get_or_insert(pem) == pem;
    }
    match found {
        Some(pem) if same => Ok(pem.clone()),
        Some(_) | None => Err(InitError::SeveralKeys { from }),
    }
}

/// A key that was named for the operator.
fn usable(path: &str, sources: &FileSources) -> Result<Secret<String>, CliError> {
    let key = sources.key_at(path).map_err(|refusal| InitError::Key {
        path: path.to_owned(),
        why: refusal.message,
    })?;
    if has_passphrase(&key.pem) {
        return Err(InitError::Passphrase {
            path: path.to_owned(),
        }
        .into());
    }
    Ok(key.pem)
}

/// The config without files, understood as the operator will understand it.
fn config(
    file: &Path,
    intent: &Intent,
    sources: &FileSources,
    secret: &str,
    key: &Secret<String>,
) -> Result<Config, CliError> {
    let text = read_at_most(MAX_BYTES, file).map_err(|source| Failure::Config {
        path: file.to_owned(),
        source,
    })?;
    let refused = |problems: Problems| InitError::Config { problems };
    let document = RkeConfig::parse(&text)
        .and_then(|config| portable(&config, intent, sources))
        .map_err(refused)?;
    let text = serde_saphyr::to_string(&document).map_err(not_written)?;
    let written = RkeConfig::parse(&text).map_err(refused)?;
    let of_operator = SecretSources::new(secret, key.clone());
    for config in [&written, &RkeConfig::from_json(&document).map_err(refused)?] {
        let there = Intent::from_config(config, &of_operator).map_err(refused)?;
        if !means_the_same(intent, &there.intent) {
            return Err(InitError::Differs.into());
        }
    }
    Ok(if written.holds_secrets() {
        Config::Secret(Secret::new(text))
    } else {
        Config::Inline(document)
    })
}

/// Host keys of the nodes.
struct Known {
    lines: String,
    /// Of these none is known.
    missing: Vec<String>,
}

impl Known {
    /// Those that the last login verified, and those on record.
    fn of(intent: &Intent, saved: &ClusterState, session: &Session) -> Result<Self, CliError> {
        let on_record = environment::on_record(Policy::Strict, session)?;
        let mut verified: Vec<(Endpoint, Vec<String>)> = Vec::new();
        let mut unknown = Vec::new();
        let of_bastion = |endpoint: &Endpoint| {
            let mut entries = saved.inventory.values();
            let entry = entries.find_map(|entry| entry.bastion(endpoint));
            entry.map(|entry| entry.host_keys.clone())
        };
        let nodes = intent.nodes.iter().map(|(name, node)| {
            let entry = saved.inventory.get(name);
            let entry = entry.filter(|entry| entry.endpoint == node.endpoint);
            (&node.endpoint, entry.map(|entry| entry.host_keys.clone()))
        });
        let bastions = intent.bastions().into_iter();
        let bastions = bastions.map(|bastion| (&bastion.endpoint, of_bastion(&bastion.endpoint)));
        for (endpoint, keys) in nodes.chain(bastions) {
            let mut keys = keys.unwrap_or_default();
            if keys.is_empty() {
                keys = on_record.keys_of(endpoint);
            }
            if keys.is_empty() {
                unknown.push(endpoint.to_string());
            }
            verified.push((endpoint.clone(), keys));
        }
        let mut lines = String::new();
        for (endpoint, keys) in &verified {
            for key in keys {
                let _ = writeln!(lines, "{}", known_hosts_line(endpoint, key));
            }
        }
        Ok(Self {
            lines,
            missing: unknown,
        })
    }
}

/// Two files, so that the one without secrets can be kept anywhere. Neither is overwritten.
fn write(folder: &Path, manifests: &Manifests) -> Result<(), CliError> {
    let failed = |path: &Path| {
        let what = format!("`{}`", path.display());
        move |source: io::Error| Failure::Write { what, source }
    };
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(folder);
    made.map_err(failed(folder))?;
    let secrets = handover::yaml(&manifests.secrets).map_err(not_written)?;
    let cluster = handover::yaml([&manifests.cluster]).map_err(not_written)?;
    let files =
        [(SECRETS, secrets), (CLUSTER, cluster)].map(|(name, text)| (folder.join(name), text));
    // Both or none.
    for (path, _) in &files {
        if path.symlink_metadata().is_ok() {
            return Err(InitError::Exists { path: path.clone() }.into());
        }
    }
    for (path, text) in &files {
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| {
            file.write_all(text.expose().as_bytes())?;
            file.sync_all()
        });
        written.map_err(failed(path))?;
    }
    Ok(())
}

/// `kubectl apply -f DIR` reads them in this order.
const SECRETS: &str = "1-secrets.yaml";
const CLUSTER: &str = "2-cluster.yaml";

/// What is done with them.
fn next(name: &str, folder: Option<&Path>, known: &Known) -> String {
    let mut text = String::new();
    for endpoint in &known.missing {
        let _ = writeln!(
            text,
            "no host key of {endpoint} is known: add its line of `known_hosts` to `spec.ssh.knownHosts`"
        );
    }
    if let Some(folder) = folder {
        let _ = write!(
            text,
            "wrote `{SECRETS}`, which has every key of the cluster, and `{CLUSTER}` to `{0}`\n\n  kubectl apply \
             --server-side -f {0}\n  kubectl wait --for=condition=Ready --timeout=15m rkec/{name}\n\nthen delete \
             `{SECRETS}`, and run `rke-operator up` for this cluster no more: the object owns it",
            folder.display()
        );
    } else {
        text.push_str(
            "once the object is Ready, run `rke-operator up` for this cluster no more: the object owns it",
        );
    }
    text
}

fn not_written(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::Write {
        what: "the manifests".to_owned(),
        source: io::Error::other(error),
    }
}

/// Why no objects are written.
#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error(
        "the manifests hold every private key of the cluster, and are not printed to a terminal"
    )]
    Terminal,
    #[error("the state file has format 1, which cannot record an owner")]
    FirstFormat,
    #[error("`{name}` cannot be the name of a `Cluster` object")]
    Name { name: String },
    #[error("the config logs in with an SSH agent, and an operator has none")]
    Agent,
    #[error("the config logs in with several keys ({}), and an operator has one for all nodes of a cluster", quoted(.from))]
    SeveralKeys { from: BTreeSet<String> },
    #[error("cannot use the key `{path}`: {why}")]
    Key { path: String, why: String },
    #[error("the key `{path}` has a passphrase, which an operator cannot type")]
    Passphrase { path: String },
    #[error("the config cannot be that of an object: {problems}")]
    Config { problems: Problems },
    #[error("an operator would understand the config otherwise than this command line does")]
    Differs,
    #[error("`{}` already exists; nothing was written", path.display())]
    Exists { path: PathBuf },
}

impl Explain for InitError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Differs => ErrorClass::Bug,
            Self::Terminal
            | Self::FirstFormat
            | Self::Name { .. }
            | Self::Agent
            | Self::SeveralKeys { .. }
            | Self::Key { .. }
            | Self::Passphrase { .. }
            | Self::Config { .. }
            | Self::Exists { .. } => ErrorClass::User,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        const KEY: &str = "make a key for the operator, `ssh-keygen -t ed25519 -N '' -f FILE`, add its public half to \
                           `authorized_keys` on each node, and name it with `--ssh-key FILE`";
        match self {
            Self::Terminal => vec![
                "`rke-operator init | kubectl apply --server-side -f -` applies them".into(),
                "`--output DIR` writes files that you alone can read".into(),
            ],
            Self::FirstFormat => {
                vec!["`rke-operator up` writes it in the present format; then run this again".into()]
            }
            Self::Name { .. } => vec![
                format!(
                    "`--name NAME` names the object: lowercase letters, digits and `-`, {NAME} characters at most"
                )
                .into(),
            ],
            Self::Agent | Self::SeveralKeys { .. } | Self::Passphrase { .. } => vec![KEY.into()],
            Self::Config { problems } => problems.hints(),
            Self::Exists { .. } => vec!["name another directory with `--output DIR`".into()],
            Self::Key { .. } | Self::Differs => Vec::new(),
        }
    }
}

//! The management cluster as the command line reads it: which one it is, lists in pages, and what a refusal means. Only
//! reads; the rights are those of the kubeconfig, not the operator's.

use std::{borrow::Cow, error::Error as _, io, path::Path, time::Duration};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, ObjectList},
    config::{InClusterError, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::Value;

use super::{
    proxy::{self, Named, ProxyError},
    report::CliError,
};
use crate::{
    api,
    error::{ErrorClass, Explain, with_causes},
    model::printable_lines,
    operator::readable,
};

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(15);
/// How many objects a page has.
const PAGE: u32 = 100;
/// How many pages are read.
const PAGES: usize = 200;
/// How often a list begins again whose pages were outrun by changes.
const BEGINNINGS: usize = 3;

/// The API server, as a pod of the cluster calls it: no proxy leads there.
const IN_CLUSTER: &str = "kubernetes.default.svc";

/// A connection to it.
pub(super) struct Management {
    pub(super) client: Client,
    /// The API server's address.
    url: String,
}

/// Why there is no client for a management cluster.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoClient {
    /// No kubeconfig leads to it.
    #[error("no kubeconfig for the management cluster: {0}")]
    Kubeconfig(String),
    /// The proxy on the way cannot be used.
    #[error("cannot use the proxy on the way to the API server")]
    Proxy(#[from] ProxyError),
}

impl Explain for NoClient {
    fn class(&self) -> ErrorClass {
        ErrorClass::User
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Kubeconfig(_) => {
                vec!["name its kubeconfig with `--kubeconfig FILE` or `KUBECONFIG`".into()]
            }
            Self::Proxy(error) => error.hints(),
        }
    }
}

/// The client of a kubeconfig, and the address of its API server.
pub(super) async fn client(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<(Client, String), NoClient> {
    let mut config = if kubeconfig.is_none() && context.is_none() {
        let inferred = kube::Config::infer().await;
        inferred.map_err(|error| not_inferred(&error))?
    } else {
        let read = kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        let read = read.map_err(|error| unusable(&error))?;
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        let config = kube::Config::from_custom_kubeconfig(read, &options).await;
        config.map_err(|error| unusable(&error))?
    };
    let own = config.proxy_url.take();
    config.proxy_url = match own.filter(proxy::is_of_kubeconfig) {
        Some(proxy) => Some(proxy::usable(&proxy.to_string(), Named::Kubeconfig)?),
        // No proxy leads from a pod to the API server of its cluster.
        None if config.cluster_url.host() == Some(IN_CLUSTER) => None,
        // kube looks for the proxy itself in `NO_PROXY`, and not for the server.
        None => proxy::of(&config.cluster_url)?,
    };
    let mut url = config.cluster_url.to_string();
    if let Some(proxy) = &config.proxy_url {
        url = format!(
            "{} through the proxy {}",
            url.trim_end_matches('/'),
            proxy::shown(proxy)
        );
    }
    let client = Client::try_from(config);
    let client = client.map_err(|error| NoClient::Kubeconfig(with_causes(&error)))?;
    Ok((client, url))
}

/// Why neither a kubeconfig nor a pod leads to a cluster.
fn not_inferred(error: &InferConfigError) -> NoClient {
    let kubeconfig = error.source();
    let kubeconfig = kubeconfig.and_then(|source| source.downcast_ref::<KubeconfigError>());
    if let Some(proxy) = kubeconfig.and_then(of_proxy) {
        return proxy.into();
    }
    // What kube met in a pod is private in its error.
    let no_pod = matches!(
        kube::Config::incluster(),
        Err(InClusterError::ReadEnvironmentVariable(_))
    );
    NoClient::Kubeconfig(match kubeconfig.and_then(missing) {
        Some(missing) if no_pod => format!("{missing}, and rke-operator does not run in a pod"),
        Some(_) | None => with_causes(error),
    })
}

/// Why a kubeconfig cannot be used.
fn unusable(error: &KubeconfigError) -> NoClient {
    match of_proxy(error) {
        Some(proxy) => proxy.into(),
        None => NoClient::Kubeconfig(missing(error).unwrap_or_else(|| with_causes(error))),
    }
}

/// What is about a proxy: kube's words may have its value.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "kube's errors: two of them are about proxies"
)]
fn of_proxy(error: &KubeconfigError) -> Option<ProxyError> {
    match error {
        KubeconfigError::ParseProxyUrl(_) => Some(proxy::unreadable()),
        KubeconfigError::ParseNoProxy(_) => Some(ProxyError::NotFor),
        _ => None,
    }
}

/// The file, where there is none.
fn missing(error: &KubeconfigError) -> Option<String> {
    let KubeconfigError::ReadConfig(source, path) = error else {
        return None;
    };
    let is_missing = source.kind() == io::ErrorKind::NotFound;
    is_missing.then(|| format!("`{}` does not exist", path.display()))
}

impl Management {
    /// Connects to nothing yet.
    pub(super) async fn open(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
    ) -> Result<Self, CliError> {
        let (client, url) = client(kubeconfig, context).await?;
        Ok(Self {
            client: readable(client),
            url: url.trim_end_matches('/').to_owned(),
        })
    }

    /// Every object of `Cluster`, by name.
    pub(super) async fn clusters(&self) -> Result<Vec<Value>, ManagementError> {
        let api = self.all::<api::Cluster>();
        for _ in 0..BEGINNINGS {
            if let Some(objects) = self.pages(&api).await? {
                return Ok(objects);
            }
        }
        Err(self.error("list", CLUSTERS, Cause::Outrun))
    }

    /// One after the other; `None`: what the pages are of is forgotten already.
    async fn pages(&self, api: &Api<DynamicObject>) -> Result<Option<Vec<Value>>, ManagementError> {
        let mut objects = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        for _ in 0..PAGES {
            let page = self.in_time("list", CLUSTERS, api.list(&params)).await;
            let ObjectList {
                metadata, items, ..
            } = match page {
                Ok(page) => page,
                Err(error) if error.is_expired() && params.continue_token.is_some() => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            objects.extend(items.into_iter().filter_map(value));
            match metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(Some(objects)),
            }
        }
        Err(self.error("list", CLUSTERS, Cause::TooMany))
    }

    /// One `Cluster`.
    pub(super) async fn cluster(&self, name: &str) -> Result<Value, ManagementError> {
        let api = self.all::<api::Cluster>();
        let found = self.in_time("get", CLUSTERS, api.get_opt(name)).await?;
        if let Some(object) = found.and_then(value) {
            return Ok(object);
        }
        // A missing definition is a 404 as well.
        let params = ListParams::default().limit(1);
        self.in_time("list", CLUSTERS, api.list(&params)).await?;
        let name = name.to_owned();
        Err(self.error("get", CLUSTERS, Cause::NoSuch { name }))
    }

    /// The `Kubeconfig` of that name, if there is one that may be read.
    pub(super) async fn kubeconfig(&self, name: &str) -> Option<Value> {
        let api = self.all::<api::Kubeconfig>();
        let found = self.in_time("get", "kubeconfigs", api.get_opt(name)).await;
        found.ok().flatten().and_then(value)
    }

    /// The Events about a `Cluster`, as they come.
    pub(super) async fn events(
        &self,
        name: &str,
        uid: &str,
    ) -> Result<Vec<Value>, ManagementError> {
        let kind = ApiResource::erase::<k8s_openapi::api::events::v1::Event>(&());
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), "default", &kind);
        let about = format!("regarding.kind=Cluster,regarding.name={name},regarding.uid={uid}");
        let params = ListParams::default().fields(&about).limit(EVENTS);
        let list = self.in_time("list", "events.events.k8s.io", api.list(&params));
        let list = list.await?;
        Ok(list.items.into_iter().filter_map(value).collect())
    }

    fn all<K>(&self) -> Api<DynamicObject>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        Api::all_with(self.client.clone(), &ApiResource::erase::<K>(&()))
    }

    async fn in_time<T>(
        &self,
        verb: &'static str,
        what: &'static str,
        answer: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ManagementError> {
        match tokio::time::timeout(ANSWER, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.error(verb, what, Cause::of(error))),
            Err(_) => Err(self.error(verb, what, Cause::NoAnswer)),
        }
    }

    fn error(&self, verb: &'static str, what: &'static str, cause: Cause) -> ManagementError {
        ManagementError {
            url: self.url.clone(),
            verb,
            what,
            cause,
        }
    }
}

/// How many Events are read; an API server keeps them for an hour.
const EVENTS: u32 = 500;

const CLUSTERS: &str = "clusters.clusterprovisioner.rke.io";

fn value(object: DynamicObject) -> Option<Value> {
    serde_json::to_value(object).ok()
}

/// Why a request to the management cluster failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} `{what}` of the management cluster at {url}")]
pub(super) struct ManagementError {
    url: String,
    verb: &'static str,
    what: &'static str,
    #[source]
    cause: Cause,
}

/// What is behind it.
#[derive(Debug, thiserror::Error)]
enum Cause {
    /// The definitions are not installed.
    #[error("it does not know this kind: {0}")]
    NoDefinition(String),
    /// No such object.
    #[error("there is no Cluster `{name}`")]
    NoSuch { name: String },
    /// The login is refused.
    #[error("it refuses the login of the kubeconfig: {0}")]
    Unauthorized(String),
    /// The user lacks a right.
    #[error("{0}")]
    Forbidden(String),
    /// Another refusal.
    #[error("it answers with an error: {0}")]
    Refused(String),
    /// The pages of a list are of a version that is forgotten.
    #[error("the objects changed faster than their list can be read")]
    Outrun,
    /// A page of a list that begins again.
    #[error("the version of the list is forgotten: {0}")]
    Expired(String),
    /// More objects than anyone reads.
    #[error("there are more than {} objects", PAGE as usize * PAGES)]
    TooMany,
    /// Nothing came.
    #[error("no answer within {} s", ANSWER.as_secs())]
    NoAnswer,
    /// No connection.
    #[error("no connection: {0}")]
    Unreachable(String),
}

impl Cause {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "kube's errors: a refusal has a code, the others are about the connection"
    )]
    fn of(error: kube::Error) -> Self {
        let text = printable_lines(&with_causes(&error));
        match error {
            kube::Error::Api(status) => match status.code {
                401 => Self::Unauthorized(text),
                403 => Self::Forbidden(text),
                404 => Self::NoDefinition(text),
                410 => Self::Expired(text),
                _ => Self::Refused(text),
            },
            _ => Self::Unreachable(text),
        }
    }
}

impl ManagementError {
    const fn is_expired(&self) -> bool {
        matches!(self.cause, Cause::Expired(_))
    }
}

impl Explain for ManagementError {
    fn class(&self) -> ErrorClass {
        match self.cause {
            Cause::NoDefinition(_)
            | Cause::NoSuch { .. }
            | Cause::Unauthorized(_)
            | Cause::Forbidden(_)
            | Cause::TooMany => ErrorClass::User,
            Cause::Refused(_)
            | Cause::Outrun
            | Cause::Expired(_)
            | Cause::NoAnswer
            | Cause::Unreachable(_) => ErrorClass::Transient,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let Self { verb, what, .. } = self;
        match &self.cause {
            Cause::NoDefinition(_) => vec![
                "is this the management cluster? `--kubeconfig` and `--context` name another"
                    .into(),
                "`rke-operator crd | kubectl apply -f -` installs the definitions".into(),
            ],
            Cause::NoSuch { .. } => vec!["`rke-operator status -A` lists every Cluster".into()],
            Cause::Unauthorized(_) => {
                vec!["does `kubectl auth whoami` answer with the same kubeconfig?".into()]
            }
            Cause::Forbidden(_) => vec![
                format!("`kubectl auth can-i {verb} {what}` must answer yes: grant this right")
                    .into(),
            ],
            Cause::Refused(_) | Cause::Outrun | Cause::Expired(_) | Cause::NoAnswer => {
                vec!["run it again; does `kubectl get --raw /readyz` answer?".into()]
            }
            Cause::TooMany => {
                vec![format!("`kubectl get {what} --chunk-size=500` lists them").into()]
            }
            Cause::Unreachable(_) => vec![
                "does `kubectl version` answer with the same kubeconfig?".into(),
                "`--kubeconfig`, `--context` or `KUBECONFIG` name another management cluster"
                    .into(),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future, io};

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    /// One that takes a connection and never answers ends no command in a hang.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_is_an_error() {
        let silent = |_: Request<Body>| future::pending::<Result<Response<Body>, io::Error>>();
        let management = Management {
            client: Client::new(tower::service_fn(silent), "default"),
            url: "https://192.0.2.1:6443".to_owned(),
        };
        let begun = tokio::time::Instant::now();
        let error = management.clusters().await.unwrap_err();
        assert_eq!(begun.elapsed(), ANSWER);
        assert_eq!(
            with_causes(&error),
            "cannot list `clusters.clusterprovisioner.rke.io` of the management cluster at \
             https://192.0.2.1:6443: no answer within 15 s"
        );
        assert_eq!(error.class(), ErrorClass::Transient);
        assert!(!error.hints().is_empty());
    }
}

//! A management cluster's API for an operator as a process: the fake of the tests on a port of loopback. Requests are
//! counted by verb and resource.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use http::{Method, Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{Fallible, fake_api::FakeApi};

/// The operator's own namespace.
pub(crate) const NAMESPACE: &str = "rke-operator";

/// Where the keys to nodes are.
pub(crate) const CREDENTIALS: &str = "rke-operator-credentials";

/// Requests by what they ask: `patch clusters/status`.
pub(crate) type Counts = BTreeMap<String, usize>;

/// The API.
#[derive(Clone)]
pub(crate) struct Management {
    pub(crate) api: FakeApi,
    counts: Arc<Mutex<Counts>>,
    port: u16,
}

impl Management {
    /// One with our definitions, the two namespaces and nothing else.
    pub(crate) async fn start() -> Fallible<Self> {
        let api = FakeApi::new(jiff::Timestamp::now);
        api.tells_the_time();
        for name in [NAMESPACE, CREDENTIALS] {
            api.plant("namespaces", &json!({"metadata": {"name": name}}));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let itself = Self {
            api,
            counts: Arc::default(),
            port: listener.local_addr()?.port(),
        };
        tokio::spawn(itself.clone().serve(listener));
        Ok(itself)
    }

    async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let itself = self.clone();
            tokio::spawn(async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let itself = itself.clone();
                    async move {
                        itself.count(request.method(), request.uri());
                        Ok::<_, Infallible>(itself.api.serve(request).await)
                    }
                });
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }

    fn count(&self, method: &Method, uri: &http::Uri) {
        let watches = uri
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let verb = if watches { "watch" } else { method.as_str() };
        let asked = format!("{} {}", verb.to_lowercase(), resource(uri.path()));
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(asked).or_default() += 1;
    }

    /// The requests so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The requests since then.
    pub(crate) fn since(&self, then: &Counts) -> Counts {
        let mut now = self.counts();
        for (asked, before) in then {
            if let Some(count) = now.get_mut(asked) {
                *count -= before;
            }
        }
        now.retain(|_, count| *count > 0);
        now
    }

    /// A kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self) -> Value {
        let server = format!(
            "http://{}",
            SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
        );
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": server}}],
            "users": [{"name": "bench", "user": {}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        })
    }
}

/// The resource of a path, without the names in it: `clusters/status`.
fn resource(path: &str) -> String {
    let words: Vec<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
    let words = match words.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        other => other,
    };
    let words = match words {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        other => other,
    };
    match words {
        [kind] | [kind, _] => (*kind).to_owned(),
        [kind, _, part] => format!("{kind}/{part}"),
        other => other.join("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_counted_by_its_resource() {
        let group = "/apis/clusterprovisioner.rke.io/v1alpha1";
        assert_eq!(resource(&format!("{group}/clusters")), "clusters");
        assert_eq!(resource(&format!("{group}/clusters/a")), "clusters");
        assert_eq!(
            resource(&format!("{group}/clusters/a/status")),
            "clusters/status"
        );
        assert_eq!(resource("/api/v1/namespaces/b/secrets/a"), "secrets");
        assert_eq!(resource("/api/v1/namespaces/kube-system"), "namespaces");
        assert_eq!(resource("/version"), "version");
    }
}

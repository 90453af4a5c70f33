//! The state in a Secret of the management cluster: `<cluster>-state` in the operator's own
//! namespace. No ownerReference: it is deleted as the last act of a removal, not by the garbage
//! collector. The revision is the resourceVersion.

use std::collections::BTreeMap;

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{ByteString, api::core::v1};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};

use super::{ClusterState, Loaded, StateError, Store, codec};
use crate::model::label;

/// The Secret's type.
const TYPE: &str = "clusterprovisioner.rke.io/state";

/// The key that holds the state.
const KEY: &str = "state.json";

/// The state in a Secret.
#[derive(Clone)]
pub struct SecretStore {
    secrets: Api<v1::Secret>,
    namespace: String,
    cluster: String,
    name: String,
}

impl SecretStore {
    /// Of the `Cluster` of that name, in the operator's namespace.
    pub fn new(client: Client, namespace: &str, cluster: &str) -> Self {
        Self {
            secrets: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            cluster: cluster.to_owned(),
            name: Self::name_of(cluster),
        }
    }

    /// The name of the Secret of a `Cluster`.
    pub fn name_of(cluster: &str) -> String {
        format!("{cluster}-state")
    }

    /// The Secret's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    async fn read(&self) -> Result<Loaded, StateError> {
        let secret = self
            .secrets
            .get_opt(&self.name)
            .await
            .map_err(|error| self.io(error))?;
        let Some(secret) = secret else {
            return Ok(Loaded::Absent);
        };
        let content = secret
            .data
            .as_ref()
            .and_then(|data| data.get(KEY))
            .filter(|content| !content.0.is_empty())
            .ok_or_else(|| self.unreadable(format!("it has no key `{KEY}`, or an empty one")))?;
        let text = std::str::from_utf8(&content.0)
            .map_err(|_| self.unreadable("its content is not text"))?;
        let saved = codec::decode(text).map_err(|why| StateError::Unreadable {
            place: self.place(),
            why,
            newer: codec::is_newer(text),
        })?;
        let revision = secret
            .metadata
            .resource_version
            .ok_or_else(|| self.unreadable("it has no resourceVersion"))?;
        Ok(Loaded::Present {
            saved: Box::new(saved),
            revision,
        })
    }

    async fn write(&self, saved: &ClusterState, revision: Option<&str>) -> Result<(), StateError> {
        let secret = Self::manifest(&self.namespace, &self.cluster, saved, revision);
        let params = PostParams::default();
        let result = if revision.is_none() {
            self.secrets.create(&params, &secret).await
        } else {
            // What others wrote on the Secret stays.
            let params = PatchParams::default();
            let patch = Patch::Merge(&secret);
            self.secrets.patch(&self.name, &params, &patch).await
        };
        match result {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status))
                if status.is_conflict()
                    || status.is_already_exists()
                    || (status.is_not_found() && revision.is_some()) =>
            {
                Err(StateError::Conflict {
                    place: self.place(),
                })
            }
            Err(error) => Err(self.io(error)),
        }
    }

    /// The Secret that holds the state of the `Cluster` of that name.
    pub fn manifest(
        namespace: &str,
        cluster: &str,
        saved: &ClusterState,
        revision: Option<&str>,
    ) -> v1::Secret {
        let content = codec::encode(saved).expose().clone().into_bytes();
        v1::Secret {
            metadata: ObjectMeta {
                name: Some(Self::name_of(cluster)),
                namespace: Some(namespace.to_owned()),
                resource_version: revision.map(str::to_owned),
                labels: Some(BTreeMap::from([
                    (label::CLUSTER_NAME.to_owned(), cluster.to_owned()),
                    (label::CLUSTER_ID.to_owned(), saved.cluster_id.0.clone()),
                ])),
                ..ObjectMeta::default()
            },
            type_: Some(TYPE.to_owned()),
            data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(content))])),
            ..v1::Secret::default()
        }
    }

    /// Deletes it as it was when this revision was read; what came meanwhile is a conflict, and
    /// nothing there is success.
    pub async fn delete_revision(&self, revision: &str) -> Result<(), StateError> {
        self.erase(Some(revision)).await
    }

    async fn erase(&self, revision: Option<&str>) -> Result<(), StateError> {
        let params = revision.map_or_else(DeleteParams::default, |revision| {
            DeleteParams::default().preconditions(Preconditions {
                uid: None,
                resource_version: Some(revision.to_owned()),
            })
        });
        match self.secrets.delete(&self.name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => Err(StateError::Conflict {
                place: self.place(),
            }),
            Err(error) => Err(self.io(error)),
        }
    }

    fn io(&self, error: kube::Error) -> StateError {
        StateError::Io {
            place: self.place(),
            source: Box::new(error),
        }
    }

    fn unreadable(&self, why: impl Into<String>) -> StateError {
        StateError::Unreadable {
            place: self.place(),
            why: why.into(),
            newer: false,
        }
    }
}

impl Store for SecretStore {
    fn load(&self) -> BoxFuture<'_, Result<Loaded, StateError>> {
        self.read().boxed()
    }

    fn save<'a>(
        &'a self,
        saved: &'a ClusterState,
        revision: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        self.write(saved, revision).boxed()
    }

    fn delete(&self) -> BoxFuture<'_, Result<(), StateError>> {
        self.erase(None).boxed()
    }

    fn place(&self) -> String {
        format!("Secret `{}/{}`", self.namespace, self.name)
    }
}

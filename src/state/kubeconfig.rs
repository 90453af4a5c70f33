//! Where the administrator's kubeconfig is kept: a file named as RKE names it, or a Secret. It
//! can be made again from the state at any time, so nothing here is compared before it is written.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{ByteString, api::core::v1, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams},
};

use super::atomic::{self, blocking};
use crate::secret::Secret;

/// Where the administrator's kubeconfig is kept.
pub trait KubeconfigStore: Send + Sync {
    /// What is there.
    fn load(&self) -> BoxFuture<'_, std::io::Result<Option<Secret<String>>>>;
    /// Writes it, 0600 or a Secret.
    fn save<'a>(&'a self, kubeconfig: &'a Secret<String>) -> BoxFuture<'a, std::io::Result<()>>;
    /// Removes it; nothing there is success.
    fn remove(&self) -> BoxFuture<'_, std::io::Result<()>>;
    /// Where, for messages.
    fn place(&self) -> String;
}

/// The key of the Secret, as Cluster API has it.
const KEY: &str = "value";

/// In a file.
#[derive(Clone, Debug)]
pub struct FileKubeconfig {
    path: PathBuf,
}

impl FileKubeconfig {
    /// In that file.
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Beside a config, named as RKE does: `cluster.yml` → `kube_config_cluster.yml`.
    pub fn beside(config: &Path) -> Self {
        let name = config.file_name().unwrap_or_default().to_string_lossy();
        Self::new(config.with_file_name(format!("kube_config_{name}")))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl KubeconfigStore for FileKubeconfig {
    fn load(&self) -> BoxFuture<'_, io::Result<Option<Secret<String>>>> {
        let path = self.path.clone();
        blocking(move || Ok(atomic::read(&path)?.map(|content| text(content.expose())))).boxed()
    }

    fn save<'a>(&'a self, kubeconfig: &'a Secret<String>) -> BoxFuture<'a, io::Result<()>> {
        let path = self.path.clone();
        let kubeconfig = kubeconfig.clone();
        blocking(move || atomic::replace(&path, kubeconfig.expose().as_bytes())).boxed()
    }

    fn remove(&self) -> BoxFuture<'_, io::Result<()>> {
        let path = self.path.clone();
        blocking(move || atomic::remove(&path)).boxed()
    }

    fn place(&self) -> String {
        format!("`{}`", self.path.display())
    }
}

/// In a Secret, in the shape that Cluster API's tools expect.
#[derive(Clone)]
pub struct SecretKubeconfig {
    secrets: Api<v1::Secret>,
    namespace: String,
    name: String,
    labels: BTreeMap<String, String>,
    owner: Option<OwnerReference>,
}

impl SecretKubeconfig {
    /// The Secret `<kubeconfig>-kubeconfig` for the `Kubeconfig` of that name.
    pub fn new(
        client: Client,
        namespace: &str,
        kubeconfig: &str,
        labels: BTreeMap<String, String>,
        owner: Option<OwnerReference>,
    ) -> Self {
        Self {
            secrets: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: format!("{kubeconfig}-kubeconfig"),
            labels,
            owner,
        }
    }

    async fn read(&self) -> io::Result<Option<Secret<String>>> {
        let secret = self.secrets.get_opt(&self.name).await.map_err(plain)?;
        Ok(secret
            .and_then(|secret| secret.data?.remove(KEY))
            .map(|content| text(&content.0)))
    }

    async fn write(&self, kubeconfig: &Secret<String>) -> io::Result<()> {
        let content = kubeconfig.expose().clone().into_bytes();
        let secret = v1::Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                labels: Some(self.labels.clone()),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(content))])),
            ..v1::Secret::default()
        };
        let params = PatchParams::apply(crate::workload::FIELD_MANAGER).force();
        self.secrets
            .patch(&self.name, &params, &Patch::Apply(&secret))
            .await
            .map(|_| ())
            .map_err(plain)
    }

    async fn erase(&self) -> io::Result<()> {
        match self
            .secrets
            .delete(&self.name, &DeleteParams::default())
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(plain(error)),
        }
    }
}

impl KubeconfigStore for SecretKubeconfig {
    fn load(&self) -> BoxFuture<'_, io::Result<Option<Secret<String>>>> {
        self.read().boxed()
    }

    fn save<'a>(&'a self, kubeconfig: &'a Secret<String>) -> BoxFuture<'a, io::Result<()>> {
        self.write(kubeconfig).boxed()
    }

    fn remove(&self) -> BoxFuture<'_, io::Result<()>> {
        self.erase().boxed()
    }

    fn place(&self) -> String {
        format!("Secret `{}/{}`", self.namespace, self.name)
    }
}

/// What is not text is not a kubeconfig of ours: it compares as different and is written anew.
fn text(content: &[u8]) -> Secret<String> {
    Secret::new(String::from_utf8_lossy(content).into_owned())
}

fn plain(error: kube::Error) -> io::Error {
    let forbidden = matches!(&error, kube::Error::Api(status) if status.is_forbidden());
    let kind = if forbidden {
        io::ErrorKind::PermissionDenied
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, error)
}

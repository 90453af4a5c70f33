//! Where the administrator's kubeconfig is kept: a file named as RKE names it, or a Secret. It
//! can be made again from the state at any time, so its content is not compared before it is
//! written. A Secret that was not made for this cluster is neither read nor written nor deleted; a file that has
//! something else in it is kept under another name first ([`KubeconfigStore::set_aside`]).

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{ByteString, api::core::v1, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};

use super::atomic::{self, blocking};
use crate::model::Secret;

/// Where the administrator's kubeconfig is kept.
pub trait KubeconfigStore: Send + Sync {
    /// What is there.
    fn load(&self) -> BoxFuture<'_, std::io::Result<Option<Secret<String>>>>;
    /// Writes it, 0600 or a Secret.
    fn save<'a>(&'a self, kubeconfig: &'a Secret<String>) -> BoxFuture<'a, std::io::Result<()>>;
    /// Removes it; nothing there is success.
    fn remove(&self) -> BoxFuture<'_, std::io::Result<()>>;
    /// Keeps a copy of what is there, and returns its place; `None` where only this cluster's is ever written and
    /// removed.
    fn set_aside(&self) -> BoxFuture<'_, std::io::Result<Option<String>>> {
        futures::future::ready(Ok(None)).boxed()
    }
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

    /// Next to a config, under RKE's name: `cluster.yml` → `kube_config_cluster.yml`.
    pub fn next_to(config: &Path) -> Self {
        let name = config.file_name().unwrap_or_default().to_string_lossy();
        Self::new(config.with_file_name(format!("kube_config_{name}")))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Copies a file to the first name with a number that is free, or has the same content.
fn copy_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    let Some(content) = atomic::read(path)? else {
        return Ok(None);
    };
    let mut number = 1_u32;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        let copy = PathBuf::from(name);
        match atomic::create(&copy, content.expose()) {
            Ok(()) => return Ok(Some(copy)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let same = atomic::read(&copy)
            .ok()
            .flatten()
            .is_some_and(|there| there.expose() == content.expose());
        if same {
            return Ok(Some(copy));
        }
        number += 1;
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

    fn set_aside(&self) -> BoxFuture<'_, io::Result<Option<String>>> {
        let path = self.path.clone();
        let copy = blocking(move || copy_aside(&path));
        copy.map(|copy| Ok(copy?.map(|copy| format!("`{}`", copy.display()))))
            .boxed()
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

    /// The Secret of that name, no matter who created it.
    async fn there(&self) -> io::Result<Option<v1::Secret>> {
        self.secrets.get_opt(&self.name).await.map_err(plain)
    }

    /// True for a Secret that was made for this cluster, by its labels, and for this owner.
    fn is_ours(&self, secret: &v1::Secret) -> bool {
        let labels = secret.labels();
        let labelled = self
            .labels
            .iter()
            .all(|(name, value)| labels.get(name) == Some(value));
        let mut owners = secret.owner_references().iter();
        labelled
            && self
                .owner
                .as_ref()
                .is_none_or(|owner| owners.any(|there| there.uid == owner.uid))
    }

    async fn read(&self) -> io::Result<Option<Secret<String>>> {
        let secret = self.there().await?.filter(|secret| self.is_ours(secret));
        Ok(secret
            .and_then(|secret| secret.data?.remove(KEY))
            .map(|content| text(&content.0)))
    }

    async fn write(&self, kubeconfig: &Secret<String>) -> io::Result<()> {
        let there = self.there().await?;
        if let Some(there) = &there
            && !self.is_ours(there)
        {
            return Err(self.taken(there));
        }
        let content = kubeconfig.expose().clone().into_bytes();
        let secret = v1::Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                labels: Some(self.labels.clone()),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                // The one that was read, or none at all: what came meanwhile is a conflict.
                uid: there.as_ref().and_then(ResourceExt::uid),
                resource_version: there.as_ref().and_then(ResourceExt::resource_version),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(content))])),
            ..v1::Secret::default()
        };
        let params = PostParams::default();
        let written = match there {
            Some(_) => self.secrets.replace(&self.name, &params, &secret).await,
            None => self.secrets.create(&params, &secret).await,
        };
        written.map(|_| ()).map_err(plain)
    }

    fn taken(&self, there: &v1::Secret) -> io::Error {
        // One of an owner that is gone goes with it, in a moment.
        let kind = if there.owner_references().is_empty() {
            io::ErrorKind::PermissionDenied
        } else {
            io::ErrorKind::ResourceBusy
        };
        let why = format!(
            "the Secret `{}/{}` was not made for this cluster",
            self.namespace, self.name
        );
        io::Error::new(kind, why)
    }

    async fn erase(&self) -> io::Result<()> {
        let Some(there) = self.there().await?.filter(|secret| self.is_ours(secret)) else {
            return Ok(());
        };
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: there.metadata.uid,
            resource_version: there.metadata.resource_version,
        });
        match self.secrets.delete(&self.name, &params).await {
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

/// Content that is not UTF-8 is no kubeconfig that rke-operator wrote: it compares as different and is overwritten.
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

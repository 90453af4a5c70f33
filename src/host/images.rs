//! Images of the node's Docker.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use bollard::{
    auth::DockerCredentials,
    errors::Error as DockerError,
    models::CreateImageInfo,
    query_parameters::{CreateImageOptionsBuilder, ListImagesOptions, RemoveImageOptionsBuilder},
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body_util::{Either, Full};
use tar::{Builder, EntryType, Header};

use super::{error::HostError, machine::Host};
use crate::{
    catalog::tagged,
    model::{FILES_IMAGE, RegistryLogin, printable, registry_host},
};

/// With more names of images than this nobody would keep them.
const IMAGES: usize = 50_000;

/// Larger images are not exported through memory.
const EXPORT_LIMIT: usize = 64 << 20;

/// Where a program, its loader and its libraries lie on every Linux.
const LINKS: [&str; 6] = ["bin", "lib", "lib32", "lib64", "sbin", "usr"];

impl Host {
    /// The image references that the node's Docker has, by tag and by digest.
    pub async fn images(&self) -> Result<BTreeSet<String>, HostError> {
        let list = self.docker().list_images(None::<ListImagesOptions>).await;
        let list = self.done("list images", list).await?;
        let names: BTreeSet<String> = list
            .into_iter()
            .flat_map(|image| image.repo_tags.into_iter().chain(image.repo_digests))
            .filter(|name| !name.contains("<none>"))
            .map(|name| printable(&name).into_owned())
            .collect();
        self.at_most(IMAGES, names.len(), "names of images")?;
        Ok(names)
    }

    /// Pulls an image with the node's Docker and reports bytes done and in total, as far as
    /// Docker knows them by then. Returns how many bytes were loaded. A pull that breaks off
    /// leaves no tag.
    pub async fn pull(
        &self,
        image: &str,
        login: Option<&RegistryLogin>,
        progress: &(dyn Fn(u64, u64) + Send + Sync),
    ) -> Result<u64, HostError> {
        let options = CreateImageOptionsBuilder::new()
            .from_image(&tagged(image))
            .build();
        let mut stream = Box::pin(self.docker().create_image(
            Some(options),
            None,
            login.map(credentials),
        ));
        let loaded = drain(&mut stream, progress).await;
        match loaded {
            Ok(bytes) => Ok(bytes),
            Err(DockerError::DockerStreamError { error: message }) => {
                Err(self.pull_failed(image, None, message).await)
            }
            Err(error) => match self
                .done::<()>(format!("pull image `{image}`"), Err(error))
                .await
            {
                Err(HostError::Docker {
                    status, message, ..
                }) => Err(self.pull_failed(image, Some(status), message).await),
                Err(error) => Err(error),
                Ok(()) => Ok(0),
            },
        }
    }

    async fn pull_failed(&self, image: &str, status: Option<u16>, message: String) -> HostError {
        let doing = format!("pull image `{image}`");
        if status != Some(404)
            && let Some(path) = self.full(&BTreeSet::from(["/var/lib/docker"])).await
        {
            return HostError::DiskFull {
                at: self.session.place(),
                doing,
                path,
            };
        }
        HostError::Pull {
            at: self.session.place(),
            image: image.to_owned(),
            status,
            message,
        }
    }

    /// Whether the node's Docker gets to know of an image in its registry, with that login; the error is the registry's or
    /// Docker's word. Nothing is pulled.
    pub async fn find_image(
        &self,
        image: &str,
        login: Option<&RegistryLogin>,
    ) -> Result<(), HostError> {
        let (image, login) = (tagged(image), login.map(credentials));
        let asked = self.docker().inspect_registry_image(&image, login).await;
        match self.done(format!("ask for image `{image}`"), asked).await {
            Ok(_) => Ok(()),
            Err(HostError::Docker {
                at,
                status,
                message,
                ..
            }) => Err(HostError::Pull {
                at,
                image,
                status: Some(status),
                message,
            }),
            Err(error) => Err(error),
        }
    }

    /// An image as `docker save` writes it. For small ones: it is held in memory.
    pub async fn export_image(&self, image: &str) -> Result<Vec<u8>, HostError> {
        let mut stream = Box::pin(self.docker().export_image(image));
        let mut archive = Vec::new();
        let mut failure = None;
        while let Some(chunk) = stream.next().await {
            match chunk {
                Ok(chunk) if archive.len() + chunk.len() > EXPORT_LIMIT => {
                    return Err(HostError::Archive {
                        at: self.session.place(),
                        source: io::Error::new(
                            io::ErrorKind::FileTooLarge,
                            format!("image `{image}` is larger than {EXPORT_LIMIT} bytes"),
                        ),
                    });
                }
                Ok(chunk) => archive.extend_from_slice(&chunk),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        let result = failure.map_or(Ok(()), Err);
        self.done(format!("export image `{image}`"), result).await?;
        Ok(archive)
    }

    /// Imports the image that the claim and the helpers are created from: no registry is needed. It
    /// holds no file, only links that lead to the node's own programs once `/host` is there.
    pub async fn import_empty_image(&self) -> Result<(), HostError> {
        let (repo, tag) = FILES_IMAGE.rsplit_once(':').unwrap_or((FILES_IMAGE, "1"));
        let options = CreateImageOptionsBuilder::new()
            .from_src("-")
            .repo(repo)
            .tag(tag)
            .build();
        let archive = links().map_err(|source| HostError::Archive {
            at: self.session.place(),
            source,
        })?;
        let body = Either::Left(Full::new(Bytes::from(archive)));
        let mut stream = Box::pin(self.docker().create_image(Some(options), Some(body), None));
        let imported = drain(&mut stream, &|_, _| ()).await;
        self.done(format!("import image `{FILES_IMAGE}`"), imported)
            .await?;
        Ok(())
    }

    /// Removes an image reference. Gone is success; `false`: something else uses it, so it stays.
    pub async fn remove_image(&self, image: &str) -> Result<bool, HostError> {
        let options = RemoveImageOptionsBuilder::new().build();
        let removed = self.docker().remove_image(image, Some(options), None).await;
        let removed = self.done(format!("remove image `{image}`"), removed).await;
        match removed {
            Ok(_) => Ok(true),
            Err(error) if error.docker_status() == Some(404) => Ok(true),
            Err(error) if error.docker_status() == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// For the one request.
fn credentials(login: &RegistryLogin) -> DockerCredentials {
    DockerCredentials {
        username: Some(login.user.clone()),
        password: Some(login.password.expose().clone()),
        serveraddress: Some(registry_host(&login.url).to_owned()),
        ..DockerCredentials::default()
    }
}

/// The image's only layer.
fn links() -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for name in LINKS {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        builder.append_link(&mut header, name, format!("host/{name}"))?;
    }
    builder.into_inner()
}

/// Reads a progress stream to its end, whatever happens: an unread one would stop everything
/// else on the connection.
async fn drain(
    stream: &mut (impl Stream<Item = Result<CreateImageInfo, DockerError>> + Unpin),
    progress: &(dyn Fn(u64, u64) + Send + Sync),
) -> Result<u64, DockerError> {
    let mut layers: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut failure = None;
    let mut done = 0;
    while let Some(message) = stream.next().await {
        let info = match message {
            Ok(info) => info,
            Err(error) => {
                failure.get_or_insert(error);
                continue;
            }
        };
        let bytes = |count: Option<i64>| count.and_then(|count| u64::try_from(count).ok());
        match (info.id, info.status.as_deref(), info.progress_detail) {
            (Some(layer), Some("Downloading"), Some(detail)) => {
                let entry = layers.entry(layer).or_default();
                *entry = (
                    bytes(detail.current).unwrap_or(entry.0),
                    bytes(detail.total).unwrap_or(entry.1),
                );
            }
            // Docker reports now and then, and the last bytes of a layer only by this word.
            (Some(layer), Some("Download complete"), _) => {
                let Some(entry) = layers.get_mut(&layer) else {
                    continue;
                };
                entry.0 = entry.1;
            }
            _ => continue,
        }
        done = layers.values().map(|(done, _)| done).sum();
        progress(done, layers.values().map(|(_, total)| total).sum());
    }
    failure.map_or(Ok(done), Err)
}

//! Images of the node's Docker.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};

use bollard::{
    auth::DockerCredentials,
    errors::Error as DockerError,
    models::CreateImageInfo,
    query_parameters::{
        CreateImageOptionsBuilder, DownloadFromContainerOptionsBuilder, ImportImageOptionsBuilder,
        ListImagesOptions, RemoveImageOptionsBuilder, UploadToContainerOptionsBuilder,
    },
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body_util::{Either, Full};
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;

use super::{error::HostError, machine::Host, one_off};
use crate::{
    catalog::tagged,
    model::{ClusterId, FILES_IMAGE, HELPER, RegistryLogin, printable, registry_host},
};

/// More image names than this on one node are an error: all of them are kept in memory.
const IMAGES: usize = 50_000;

/// Larger images are not exported through memory.
const EXPORT_LIMIT: usize = 64 << 20;

/// How long an image may be under way. The step has a bound as well; a connection that died is noticed before.
const TRANSFER: Duration = Duration::from_secs(3600);

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

    /// Hands an image to `take` as `docker save` writes it, piece by piece, until that wants no more.
    pub async fn exported(&self, image: &str, take: &mpsc::Sender<Bytes>) -> Result<(), HostError> {
        let docker = self.docker().clone().with_timeout(TRANSFER);
        let image = tagged(image);
        let mut stream = Box::pin(docker.export_image(&image));
        while let Some(piece) = stream.next().await {
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => {
                    let doing = format!("export image `{image}`");
                    return self.done(doing, Err(error)).await;
                }
            };
            if take.send(piece).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Loads an archive of one image into the node's Docker. One that breaks off leaves no tag.
    pub async fn load_image(
        &self,
        image: &str,
        archive: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), HostError> {
        let docker = self.docker().clone().with_timeout(TRANSFER);
        let options = ImportImageOptionsBuilder::new().build();
        let mut stream = Box::pin(docker.import_image_stream(options, archive, None));
        let mut failure = None;
        while let Some(message) = stream.next().await {
            if let Err(error) = message {
                failure.get_or_insert(error);
            }
        }
        let doing = || format!("load image `{image}`");
        let refused = match failure {
            None => return Ok(()),
            // Docker began to load it, and says in the middle why it cannot.
            Some(DockerError::DockerStreamError { error: message }) => HostError::Docker {
                at: self.session.place(),
                doing: doing(),
                status: 500,
                message: printable(&message).into_owned(),
            },
            Some(error) => match self.done::<()>(doing(), Err(error)).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
        };
        if refused.docker_status().is_some()
            && let Some(path) = self.full(&BTreeSet::from(["/var/lib/docker"])).await
        {
            return Err(HostError::DiskFull {
                at: self.session.place(),
                doing: doing(),
                path,
            });
        }
        Err(refused)
    }

    /// Puts a file of any size into a folder of the node, through a container that is never started. The archive has the
    /// file. As for a helper, a container that an interrupted run of the same cluster left is removed first.
    pub async fn put_large(
        &self,
        folder: &str,
        archive: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        cluster_id: &ClusterId,
    ) -> Result<(), HostError> {
        let body = one_off::carrier(folder, cluster_id);
        match self.create_helper(&body, cluster_id).await {
            Err(HostError::ImageMissing { .. }) => {
                self.import_empty_image().await?;
                self.create_helper(&body, cluster_id).await?;
            }
            created => created?,
        }
        let options = UploadToContainerOptionsBuilder::new()
            .path(one_off::CARRIED)
            .build();
        let docker = self.docker().clone().with_timeout(TRANSFER);
        let body = bollard::body_try_stream(archive);
        let put = docker
            .upload_to_container(HELPER, Some(options), body)
            .await;
        let put = self.done(format!("write to `{folder}`"), put).await;
        let removed = self.remove(HELPER, None).await;
        if let Err(error) = put {
            if error.docker_status().is_some()
                && let Some(path) = self.full(&BTreeSet::from([folder])).await
            {
                return Err(HostError::DiskFull {
                    at: self.session.place(),
                    doing: "write the archive of an image".to_owned(),
                    path,
                });
            }
            return Err(error);
        }
        removed
    }

    /// Hands a file of any size out of a folder of the node to `take`, in a separate archive, piece by piece. As
    /// [`put_large`](Self::put_large).
    pub async fn take_large(
        &self,
        folder: &str,
        file: &str,
        cluster_id: &ClusterId,
        take: &mpsc::Sender<Bytes>,
    ) -> Result<(), HostError> {
        self.create_helper(&one_off::carrier(folder, cluster_id), cluster_id)
            .await?;
        let options = DownloadFromContainerOptionsBuilder::new()
            .path(&format!("{}/{file}", one_off::CARRIED))
            .build();
        let docker = self.docker().clone().with_timeout(TRANSFER);
        let mut failure = None;
        {
            let mut stream = Box::pin(docker.download_from_container(HELPER, Some(options)));
            while let Some(piece) = stream.next().await {
                match piece {
                    Ok(piece) => {
                        if take.send(piece).await.is_err() {
                            break;
                        }
                    }
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
        }
        let result = failure.map_or(Ok(()), Err);
        let taken = self.done(format!("read `{folder}/{file}`"), result).await;
        let removed = self.remove(HELPER, None).await;
        taken?;
        removed
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

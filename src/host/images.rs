//! Images of the node's Docker.

use std::collections::{BTreeMap, BTreeSet};

use bollard::{
    errors::Error as DockerError,
    models::CreateImageInfo,
    query_parameters::{CreateImageOptionsBuilder, ListImagesOptions, RemoveImageOptionsBuilder},
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body_util::{Either, Full};

use super::{error::HostError, machine::Host};
use crate::desired::FILES_IMAGE;

/// The smallest archive: two blocks of zeros.
const EMPTY_TAR: [u8; 1024] = [0; 1024];

impl Host {
    /// The image references that the node's Docker has, by tag and by digest.
    pub async fn images(&self) -> Result<BTreeSet<String>, HostError> {
        let list = self.docker().list_images(None::<ListImagesOptions>).await;
        let list = self.done("list images", list).await?;
        Ok(list
            .into_iter()
            .flat_map(|image| image.repo_tags.into_iter().chain(image.repo_digests))
            .filter(|name| !name.contains("<none>"))
            .collect())
    }

    /// Pulls an image with the node's Docker and reports bytes done and in total, as far as
    /// Docker knows them by then. Returns how many bytes were loaded. A pull that breaks off
    /// leaves no tag.
    pub async fn pull(
        &self,
        image: &str,
        progress: &(dyn Fn(u64, u64) + Send + Sync),
    ) -> Result<u64, HostError> {
        let options = CreateImageOptionsBuilder::new()
            .from_image(&tagged(image))
            .build();
        let mut stream = Box::pin(self.docker().create_image(Some(options), None, None));
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

    /// Imports the empty image that the claim is created from: no registry is needed.
    pub async fn import_empty_image(&self) -> Result<(), HostError> {
        let (repo, tag) = FILES_IMAGE.rsplit_once(':').unwrap_or((FILES_IMAGE, "1"));
        let options = CreateImageOptionsBuilder::new()
            .from_src("-")
            .repo(repo)
            .tag(tag)
            .build();
        let body = Either::Left(Full::new(Bytes::from_static(&EMPTY_TAR)));
        let mut stream = Box::pin(self.docker().create_image(Some(options), Some(body), None));
        let imported = drain(&mut stream, &|_, _| ()).await;
        self.done(format!("import image `{FILES_IMAGE}`"), imported)
            .await?;
        Ok(())
    }

    /// An image as `docker save` writes it. For small ones: it is held in memory.
    pub async fn export_image(&self, image: &str) -> Result<Vec<u8>, HostError> {
        let mut stream = Box::pin(self.docker().export_image(image));
        let mut archive = Vec::new();
        let mut failure = None;
        while let Some(chunk) = stream.next().await {
            match chunk {
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

/// Without a tag Docker would pull every tag that there is.
fn tagged(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    if name.contains(':') || image.contains('@') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
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
        let downloading = info.status.as_deref() == Some("Downloading");
        if let (Some(layer), Some(detail)) = (info.id, info.progress_detail)
            && downloading
        {
            let bytes = |count: Option<i64>| count.and_then(|count| u64::try_from(count).ok());
            let (current, total) = (bytes(detail.current), bytes(detail.total));
            let entry = layers.entry(layer).or_default();
            *entry = (current.unwrap_or(entry.0), total.unwrap_or(entry.1));
            done = layers.values().map(|(done, _)| done).sum();
            progress(done, layers.values().map(|(_, total)| total).sum());
        }
    }
    failure.map_or(Ok(done), Err)
}

#[cfg(test)]
mod tests {
    use super::tagged;

    #[test]
    fn a_reference_without_a_tag_means_latest() {
        for (given, pulled) in [
            ("nginx", "nginx:latest"),
            ("nginx:1.27", "nginx:1.27"),
            ("registry:5000/nginx", "registry:5000/nginx:latest"),
            ("registry:5000/nginx:1", "registry:5000/nginx:1"),
            ("nginx@sha256:00", "nginx@sha256:00"),
        ] {
            assert_eq!(tagged(given), pulled);
        }
    }
}

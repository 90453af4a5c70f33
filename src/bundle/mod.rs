//! Bundles of images: one tar archive that `docker load` takes, too. What `images save` writes is an OCI image layout with
//! Docker's `manifest.json`; layers that images share are stored once. Archives that `docker save` wrote are read as well.
//!
//! May touch: the bundle's file, and the registries that images are saved from. Must not: reach nodes, or decide which
//! images a cluster needs.

mod archive;
mod error;
mod read;
pub mod registry;
mod write;

pub use archive::Archive;
pub use error::BundleError;
pub use read::{Bundle, Image};
pub use write::{Blob, BundleWriter, SavedImage, Source};

/// The folder of blobs in an archive.
const BLOBS: &str = "blobs/sha256/";
/// What lists the images of an archive to Docker.
const MANIFEST: &str = "manifest.json";
/// No manifest and no configuration of an image is larger.
const DOCUMENT: u64 = 16 << 20;

/// One image in Docker's `manifest.json`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ManifestEntry {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// What is read of the configuration of an image.
#[derive(Clone, Debug, serde::Deserialize)]
struct ImageConfig {
    architecture: String,
    os: String,
    rootfs: RootFs,
}

#[derive(Clone, Debug, serde::Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

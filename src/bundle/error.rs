//! What is wrong with a bundle, and what to do.

use std::{borrow::Cow, io, path::PathBuf};

use crate::error::{ErrorClass, Explain};

/// Why a bundle cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file.
    #[error("cannot read the bundle `{}`", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file that is written.
    #[error("cannot write the bundle `{}`", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is none.
    #[error("`{}` is not a tar archive, or is cut off", path.display())]
    NotTar {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An archive of something else.
    #[error("`{}` has no `manifest.json`: it is not a bundle of images", path.display())]
    NoManifest {
        /// Which.
        path: PathBuf,
    },
    /// A document in it is not what it must be.
    #[error("`{entry}` in the bundle `{}` cannot be read: {why}", path.display())]
    Document {
        /// Which.
        path: PathBuf,
        /// The file in the archive.
        entry: String,
        /// Why.
        why: String,
    },
    /// A file of an image is not there.
    #[error("the bundle `{}` is not complete: `{entry}` of image `{image}` is missing", path.display())]
    Missing {
        /// Which.
        path: PathBuf,
        /// The file in the archive.
        entry: String,
        /// The image.
        image: String,
    },
    /// A file of an image has another content.
    #[error("the bundle `{}` is damaged: `{entry}` of image `{image}` is not what its digest says", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// The file in the archive.
        entry: String,
        /// The image.
        image: String,
    },
    /// What came is not what its digest says.
    #[error("image `{image}`: what came as `{digest}` has another content")]
    Digest {
        /// The image.
        image: String,
        /// Of the blob.
        digest: String,
    },
    /// What a node's Docker exports is no archive of that image.
    #[error("the archive of image `{image}` cannot be read: {why}")]
    Export {
        /// The image.
        image: String,
        /// Why.
        why: String,
    },
}

impl Explain for BundleError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Read { .. }
            | Self::Write { .. }
            | Self::NotTar { .. }
            | Self::NoManifest { .. }
            | Self::Document { .. }
            | Self::Missing { .. }
            | Self::Damaged { .. } => ErrorClass::User,
            Self::Digest { .. } | Self::Export { .. } => ErrorClass::Transient,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                vec!["free space on this machine, and run the same command again: it continues".into()]
            }
            Self::NotTar { .. } | Self::Missing { .. } | Self::Damaged { .. } => {
                vec!["copy the file again, or write it again with `rke-operator images save` (a `Cluster` has no bundles)".into()]
            }
            Self::NoManifest { .. } | Self::Document { .. } => vec![
                "a bundle is what `rke-operator images save` or `docker save` writes (a `Cluster` has no bundles)".into(),
            ],
            Self::Digest { .. } | Self::Export { .. } => {
                vec!["run the same command again: it continues".into()]
            }
            Self::Read { .. } | Self::Write { .. } => Vec::new(),
        }
    }
}

//! The images of a bundle, as the planner sees them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// For which machines an image is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImagePlatform {
    /// `linux`.
    pub os: String,
    /// `amd64`, `arm64`.
    pub architecture: String,
}

impl ImagePlatform {
    /// The platform of a node whose Docker reports this architecture, which is the kernel's word for it.
    pub fn of_node(architecture: &str) -> Self {
        let architecture = match architecture {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
        }
    }
}

impl std::fmt::Display for ImagePlatform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)
    }
}

/// One image of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundledImage {
    /// Bytes of its archive.
    pub bytes: u64,
    /// For which machines it is.
    pub platform: ImagePlatform,
}

/// What a bundle has for a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundledImages {
    /// The file, for people.
    pub file: String,
    /// By the name that Docker lists.
    pub images: BTreeMap<String, BundledImage>,
    /// The names of those that pods need: each node's containerd gets them.
    pub pods: BTreeSet<String>,
    /// The names of those that pods need and the bundle does not have.
    pub lacks: BTreeSet<String>,
    /// Add-ons whose images are named in their charts alone.
    pub unlisted: BTreeSet<String>,
}

//! A chart of the release, and what it is rendered from. Pure.

use serde_json::Value;

use crate::model::{Digest, KubernetesVersion};

/// An add-on that is a chart out of the release's runtime image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// The add-on: `canal`.
    pub name: String,
    /// `rke2-canal`: `/charts/rke2-canal.yaml` in the image, and the name of helm's release.
    pub chart: String,
    /// The namespace of objects that name none.
    pub namespace: String,
    /// `rke2-traefik-crd`: a chart that is rendered with the same values and applied before.
    pub crds: Option<String>,
    /// Overrides the chart's own.
    pub values: Value,
}

/// A chart with everything that it is rendered from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedChart {
    /// Which.
    pub chart: Chart,
    /// The image that has it.
    pub runtime: String,
    /// The image that has helm.
    pub helm: String,
    /// The release that it is rendered for.
    pub version: KubernetesVersion,
    /// Keyed digest of all of this, for it is kept in the cluster and values may hold passwords. While
    /// the cluster has the same, nothing is rendered.
    pub digest: Digest,
}

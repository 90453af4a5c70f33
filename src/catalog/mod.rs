//! The catalogue: which images make up a Kubernetes release. Data compiled in. Pure.
//!
//! ```
//! use rke_operator::catalog::Catalogue;
//!
//! let catalogue = Catalogue::builtin()?;
//! let version = catalogue.default_version();
//! let images = catalogue.images(version).ok_or("not in the catalogue")?;
//! assert!(images.kubernetes.starts_with("rancher/hardened-kubernetes:v1.34.4"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod accepts;
mod value_type;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use serde::{Deserialize, Serialize};

use crate::model::{
    DOCKER_HUB, KubernetesVersion, Registries, image_version, is_docker_hub, is_registry,
};

const BUILTIN: &str = include_str!("catalog.yaml");

/// The releases that can be built, with the images of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    releases: BTreeMap<KubernetesVersion, Row>,
    proven: BTreeSet<KubernetesVersion>,
    default: KubernetesVersion,
    nginx: String,
}

/// The images of one cluster, after `system_images`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Images {
    /// Has kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy and kubelet on its PATH.
    pub kubernetes: String,
    /// etcd and etcdctl.
    pub etcd: String,
    /// `CoreDNS`.
    pub coredns: String,
    /// The cache of names on a node.
    pub nodelocal: String,
    /// flanneld.
    pub flannel: String,
    /// metrics-server.
    pub metrics_server: String,
    /// Installs the CNI plugins.
    pub cni_plugins: String,
    /// The sandbox image.
    pub pause: String,
    /// The stream proxy on nodes without a control plane (unused while a cluster has one node).
    pub nginx: String,
    /// Has the charts of the release, below `/charts`. It is never run.
    pub runtime: String,
    /// Has helm, which renders those charts.
    pub klipper_helm: String,
}

/// The images that the charts of a release name, where the catalogue has them. The charts themselves decide: these are for
/// lists and bundles of images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartImages {
    /// calico's part of canal.
    pub calico: Option<String>,
    /// The ingress controller.
    pub nginx: Option<String>,
    /// The hooks of the ingress controller's chart.
    pub webhook_certgen: Option<String>,
    /// The other ingress controller.
    pub traefik: Option<String>,
}

impl Images {
    /// Pulled from the registry that has the system images, where the config names one.
    #[must_use]
    pub fn placed(mut self, registries: &Registries) -> Self {
        let Self {
            kubernetes,
            etcd,
            coredns,
            nodelocal,
            flannel,
            metrics_server,
            cni_plugins,
            pause,
            nginx,
            runtime,
            klipper_helm,
        } = &mut self;
        for image in [
            kubernetes,
            etcd,
            coredns,
            nodelocal,
            flannel,
            metrics_server,
            cni_plugins,
            pause,
            nginx,
            runtime,
            klipper_helm,
        ] {
            *image = registries.place(image);
        }
        self
    }

    /// With others in their place, by RKE's names (`system_images`).
    #[must_use]
    pub fn with(mut self, others: &BTreeMap<String, String>) -> Self {
        for (name, image) in others {
            let place = match name.as_str() {
                "kubernetes" => &mut self.kubernetes,
                "etcd" => &mut self.etcd,
                "coredns" => &mut self.coredns,
                "nodelocal" => &mut self.nodelocal,
                "flannel" => &mut self.flannel,
                "metrics_server" => &mut self.metrics_server,
                "flannel_cni" => &mut self.cni_plugins,
                "pod_infra_container" => &mut self.pause,
                "nginx_proxy" => &mut self.nginx,
                "runtime" => &mut self.runtime,
                "klipper_helm" => &mut self.klipper_helm,
                _ => continue,
            };
            image.clone_into(place);
        }
        self
    }
}

impl Images {
    /// The image of one of RKE's names (`system_images`); `None`: it is none of these.
    pub fn named(&self, name: &str) -> Option<&str> {
        Some(match name {
            "kubernetes" => &self.kubernetes,
            "etcd" => &self.etcd,
            "coredns" => &self.coredns,
            "nodelocal" => &self.nodelocal,
            "flannel" => &self.flannel,
            "metrics_server" => &self.metrics_server,
            "flannel_cni" => &self.cni_plugins,
            "pod_infra_container" => &self.pause,
            "nginx_proxy" => &self.nginx,
            "runtime" => &self.runtime,
            "klipper_helm" => &self.klipper_helm,
            _ => return None,
        })
    }
}

/// Why a catalogue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// Not YAML, or a key is missing or unknown.
    #[error("the catalogue cannot be read")]
    Syntax(#[source] Box<serde_saphyr::Error>),
    /// A release is not called `v1.34.4`.
    #[error("`{0}` in the catalogue is not a release")]
    Version(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    proven: Vec<String>,
    default: String,
    nginx: String,
    releases: BTreeMap<String, Row>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Row {
    release: String,
    kubernetes: String,
    etcd: String,
    coredns: String,
    dns_node_cache: String,
    flannel: String,
    metrics_server: String,
    cni_plugins: String,
    pause: String,
    runtime: String,
    helm: String,
    calico: Option<String>,
    nginx_ingress_controller: Option<String>,
    kube_webhook_certgen: Option<String>,
    traefik: Option<String>,
}

/// The image that has etcdutl for the members of an image: of the same minor release, and as old as theirs at most. Those
/// of etcd 3.5 are new enough to set a revision forward.
pub fn etcd_tools(etcd: &str) -> String {
    let (minor, patch) = match image_version(etcd) {
        Some((3, 5, patch)) => (5, patch.max(26)),
        Some((3, minor, patch)) => (minor, patch.max(7)),
        Some(_) | None => (6, 7),
    };
    format!("rancher/mirrored-coreos-etcd:v3.{minor}.{patch}")
}

/// The reference with the tag that it means: `latest` where it has neither tag nor digest. Without
/// one Docker would pull every tag that there is.
pub fn tagged(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    if name.contains(':') || image.contains('@') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}

/// The reference as Docker lists it: `docker.io/library/nginx` is `nginx:latest`.
pub fn familiar(image: &str) -> String {
    let name = match image.split_once('/') {
        Some((host, rest)) if is_docker_hub(host) => rest,
        Some(_) | None => image,
    };
    tagged(name.strip_prefix("library/").unwrap_or(name))
}

/// Whether Docker has an image, among the names that it lists.
pub fn is_listed(image: &str, names: &BTreeSet<String>) -> bool {
    let name = familiar(image);
    names.iter().any(|known| familiar(known) == name)
}

/// The reference as containerd lists it: `nginx` is `docker.io/library/nginx:latest`.
pub fn canonical(image: &str) -> String {
    let familiar = familiar(image);
    match familiar.split_once('/') {
        Some((host, _)) if is_registry(host) => familiar,
        Some(_) => format!("{DOCKER_HUB}/{familiar}"),
        None => format!("{DOCKER_HUB}/library/{familiar}"),
    }
}

impl Catalogue {
    /// The one that is compiled in. It is read once.
    pub fn builtin() -> Result<&'static Self, CatalogueError> {
        static READ: OnceLock<Catalogue> = OnceLock::new();
        if let Some(read) = READ.get() {
            return Ok(read);
        }
        let read = Self::parse(BUILTIN)?;
        Ok(READ.get_or_init(|| read))
    }

    /// Reads a catalogue in the format of `catalog.yaml`.
    pub fn parse(yaml: &str) -> Result<Self, CatalogueError> {
        let options = serde_saphyr::options! { with_snippet: false };
        let Document {
            proven,
            default,
            nginx,
            releases,
        } = serde_saphyr::from_str_with_options(yaml, options)
            .map_err(|error| CatalogueError::Syntax(Box::new(error)))?;
        Ok(Self {
            releases: releases
                .into_iter()
                .map(|(name, row)| Ok((version(&name)?, row)))
                .collect::<Result<_, CatalogueError>>()?,
            proven: proven
                .iter()
                .map(|name| version(name))
                .collect::<Result<_, _>>()?,
            default: version(&default)?,
            nginx,
        })
    }

    /// The images of a release; `None` when it is not in the catalogue.
    pub fn images(&self, version: KubernetesVersion) -> Option<Images> {
        let Row {
            release: _,
            kubernetes,
            etcd,
            coredns,
            dns_node_cache,
            flannel,
            metrics_server,
            cni_plugins,
            pause,
            runtime,
            helm,
            calico: _,
            nginx_ingress_controller: _,
            kube_webhook_certgen: _,
            traefik: _,
        } = self.releases.get(&version)?.clone();
        Some(Images {
            kubernetes,
            etcd,
            coredns,
            nodelocal: dns_node_cache,
            flannel,
            metrics_server,
            cni_plugins,
            pause,
            nginx: self.nginx.clone(),
            runtime,
            klipper_helm: helm,
        })
    }

    /// The images that the charts of a release name; `None` when the release is not in the catalogue.
    pub fn chart_images(&self, version: KubernetesVersion) -> Option<ChartImages> {
        let row = self.releases.get(&version)?;
        Some(ChartImages {
            calico: row.calico.clone(),
            nginx: row.nginx_ingress_controller.clone(),
            webhook_certgen: row.kube_webhook_certgen.clone(),
            traefik: row.traefik.clone(),
        })
    }

    /// The published name, e.g. `v1.34.4+rke2r1`.
    pub fn release(&self, version: KubernetesVersion) -> Option<&str> {
        self.releases.get(&version).map(|row| row.release.as_str())
    }

    /// Every release, oldest first.
    pub fn versions(&self) -> impl Iterator<Item = KubernetesVersion> {
        self.releases.keys().copied()
    }

    /// Which etcd belongs to which release.
    pub fn etcd_images(&self) -> impl Iterator<Item = (KubernetesVersion, &str)> {
        self.releases
            .iter()
            .map(|(version, row)| (*version, row.etcd.as_str()))
    }

    /// Whether our lab brings this release up.
    pub fn is_proven(&self, version: KubernetesVersion) -> bool {
        self.proven.contains(&version)
    }

    /// The releases that our lab brings up, oldest first.
    pub fn proven(&self) -> impl Iterator<Item = KubernetesVersion> {
        self.proven.iter().copied()
    }

    /// The proven one that a config without a version gets.
    pub const fn default_version(&self) -> KubernetesVersion {
        self.default
    }
}

fn version(name: &str) -> Result<KubernetesVersion, CatalogueError> {
    let wrong = || CatalogueError::Version(name.to_owned());
    let numbers: Vec<u16> = name
        .strip_prefix('v')
        .ok_or_else(wrong)?
        .split('.')
        .map(|part| part.parse().map_err(|_| wrong()))
        .collect::<Result<_, _>>()?;
    match numbers[..] {
        [major, minor, patch] => Ok(KubernetesVersion {
            major,
            minor,
            patch,
        }),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_catalogue_is_whole() {
        let catalogue = Catalogue::builtin().expect("the catalogue");
        assert_eq!(catalogue.versions().count(), 111);
        let default = catalogue.default_version();
        assert!(catalogue.is_proven(default));
        assert_eq!(default.to_string(), "v1.34.4");
        for version in catalogue.versions().chain(catalogue.proven.iter().copied()) {
            let images = catalogue.images(version).expect("a row");
            assert!(
                images.kubernetes.contains(&version.to_string()),
                "{version}"
            );
            let release = catalogue.release(version).expect("a name");
            assert!(
                release.starts_with(&format!("{version}+rke2r")),
                "{release}"
            );
        }
    }

    #[test]
    fn a_bad_catalogue_is_an_error() {
        for (yaml, want) in [
            (
                "proven: []\ndefault: v1.2.3\nnginx: n\nreleases: {1.2: {}}",
                "the catalogue cannot be read",
            ),
            (
                "proven: [one]\ndefault: v1.2.3\nnginx: n\nreleases: {}",
                "`one` in the catalogue is not a release",
            ),
            (
                "proven: [v1.2]\ndefault: v1.2.3\nnginx: n\nreleases: {}",
                "`v1.2` in the catalogue is not a release",
            ),
            (
                "proven: []\ndefault: v1\nnginx: n\nreleases: {}",
                "`v1` in the catalogue is not a release",
            ),
            ("nginx: n", "the catalogue cannot be read"),
        ] {
            let error = Catalogue::parse(yaml).expect_err(yaml);
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn docker_and_containerd_list_an_image_under_two_names() {
        for (given, familiar_name, canonical_name) in [
            ("nginx", "nginx:latest", "docker.io/library/nginx:latest"),
            (
                "docker.io/library/nginx:1",
                "nginx:1",
                "docker.io/library/nginx:1",
            ),
            ("index.docker.io/a/b:1", "a/b:1", "docker.io/a/b:1"),
            (
                "rancher/pause:3.6",
                "rancher/pause:3.6",
                "docker.io/rancher/pause:3.6",
            ),
            (
                "reg.example:5000/a:1",
                "reg.example:5000/a:1",
                "reg.example:5000/a:1",
            ),
            ("localhost/a", "localhost/a:latest", "localhost/a:latest"),
        ] {
            assert_eq!(familiar(given), familiar_name);
            assert_eq!(canonical(given), canonical_name);
        }
    }

    /// The defaults of RKE, canal and nginx, are in bundles of every release.
    #[test]
    fn every_release_has_the_images_of_the_default_charts() {
        let catalogue = Catalogue::builtin().expect("the catalogue");
        for version in catalogue.versions() {
            let images = catalogue.chart_images(version).expect("a row");
            let all = [images.calico, images.nginx, images.webhook_certgen];
            assert!(all.iter().all(Option::is_some), "{version}: {all:?}");
        }
    }

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

//! The images that a cluster needs, by who runs them. Pure. For lists and bundles: what a node's Docker must have before
//! anything starts is in [`DesiredHost::images`](super::DesiredHost::images).

use std::collections::{BTreeMap, BTreeSet};

use super::{addons, from_intent::etcd_tools};
use crate::{
    catalog::{self, Catalogue, familiar},
    config::Intent,
    model::{BundledImage, BundledImages, NodeName, Role},
};

/// The images that a config needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeededImages {
    /// What each node's Docker runs, or reads charts out of.
    pub docker: BTreeMap<NodeName, BTreeSet<String>>,
    /// What pods run, on any node.
    pub pods: BTreeSet<String>,
    /// Add-ons whose images are named in their charts alone.
    pub unlisted: BTreeSet<String>,
    /// Those of the above that nodes do not need before someone restores or takes a snapshot.
    pub later: BTreeSet<String>,
}

impl NeededImages {
    /// Of this config.
    pub fn of(intent: &Intent) -> Self {
        let (pods, unlisted) = addons::images(intent);
        let has_charts = addons::charts::any(intent);
        let images = &intent.images;
        let docker = intent.nodes.iter().map(|(name, node)| {
            let plane = node.roles.contains(&Role::ControlPlane);
            let etcd = node.roles.contains(&Role::Etcd);
            let mut all = BTreeSet::from([images.kubernetes.clone(), images.pause.clone()]);
            if etcd {
                all.extend([images.etcd.clone(), etcd_tools(intent)]);
            }
            if !plane {
                all.insert(images.nginx.clone());
            } else if has_charts {
                all.extend([images.runtime.clone(), images.klipper_helm.clone()]);
            }
            (name.clone(), all)
        });
        let recurring = intent.services.snapshots.is_some();
        let later = (!recurring).then(|| etcd_tools(intent));
        Self {
            docker: docker.collect(),
            pods,
            unlisted,
            later: later.into_iter().collect(),
        }
    }

    /// Every name, each once.
    pub fn names(&self) -> BTreeSet<&str> {
        let docker = self.docker.values().flatten();
        docker.chain(&self.pods).map(String::as_str).collect()
    }

    /// What a bundle with these images has for the cluster. What the config does not name is for pods of the user's own,
    /// unless it is one of a component of some release: those would only take space.
    pub fn bundled(&self, file: String, images: BTreeMap<String, BundledImage>) -> BundledImages {
        let components: BTreeSet<String> = self
            .docker
            .values()
            .flatten()
            .map(|it| familiar(it))
            .collect();
        let needed: BTreeSet<String> = self.pods.iter().map(|it| familiar(it)).collect();
        let published = published();
        let is_own =
            |name: &&String| !components.contains(*name) && !is_published(name, &published);
        let own = images.keys().filter(is_own).cloned();
        let pods = needed
            .iter()
            .filter(|name| images.contains_key(*name))
            .cloned();
        let pods: BTreeSet<String> = pods.chain(own).collect();
        let lacks = needed.into_iter().filter(|name| !images.contains_key(name));
        BundledImages {
            file,
            lacks: lacks.collect(),
            unlisted: self.unlisted.clone(),
            pods,
            images,
        }
    }
}

/// The repositories that components of releases alone have.
fn published() -> BTreeSet<String> {
    let Ok(catalogue) = Catalogue::builtin() else {
        return BTreeSet::new();
    };
    let images = catalogue.versions().filter_map(|version| {
        let images = catalogue.images(version)?;
        let tools = catalog::etcd_tools(&images.etcd);
        Some([
            images.kubernetes,
            images.etcd,
            images.runtime,
            images.klipper_helm,
            tools,
        ])
    });
    let names = images.flatten();
    names.map(|name| repository(&name).to_owned()).collect()
}

/// True for an image of a component, also where a mirror has it in a folder.
fn is_published(image: &str, published: &BTreeSet<String>) -> bool {
    let repository = repository(image);
    let mirrors = |name: &String| {
        repository
            .strip_suffix(name.as_str())
            .is_some_and(|it| it.ends_with('/'))
    };
    published.contains(repository) || published.iter().any(mirrors)
}

/// `reg.example:5000/rancher/pause` of `reg.example:5000/rancher/pause:3.6`.
fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        Some(_) | None => image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Network, desired::fixture, model::ImagePlatform};

    fn image() -> BundledImage {
        BundledImage {
            bytes: 7,
            platform: ImagePlatform::of_node("x86_64"),
        }
    }

    /// What nodes get is what the components are made of: a list that lacks one is no use without a network.
    #[test]
    fn every_image_of_a_component_and_of_an_add_on_is_named() {
        let intent = fixture::intent();
        let needed = NeededImages::of(&intent);
        let desired = fixture::desired(&intent);
        for (name, host) in &desired.hosts {
            let named = &needed.docker[name];
            assert!(host.images.is_subset(named), "{name}: {named:?}");
            let runs = host.containers.values().map(|spec| &spec.image);
            assert!(runs.into_iter().all(|image| named.contains(image)));
        }
        for image in [
            &intent.images.flannel,
            &intent.images.cni_plugins,
            &intent.images.coredns,
        ] {
            assert!(needed.pods.contains(image), "{image}");
        }
        assert_eq!(needed.unlisted, [].into());
    }

    #[test]
    fn the_images_of_canal_come_from_the_registry_that_has_the_system_images() {
        let mut intent = fixture::intent();
        intent.network = Network::Canal(Box::default());
        intent.registries.default = Some("reg.example:5000".to_owned());
        let needed = NeededImages::of(&intent);
        let calico = needed
            .pods
            .iter()
            .find(|name| name.contains("hardened-calico"));
        assert!(
            calico.unwrap().starts_with("reg.example:5000/rancher/"),
            "{calico:?}"
        );
        let planes = needed
            .docker
            .values()
            .filter(|all| all.contains(&intent.images.runtime));
        assert!(planes.count() > 0);
    }

    #[test]
    fn what_is_in_a_bundle_for_another_release_is_no_image_of_pods() {
        let intent = fixture::intent();
        let needed = NeededImages::of(&intent);
        let names = [
            "example.com/my/app:1",
            "reg.example:5000/mirror/rancher/hardened-kubernetes:v1.29.0-rke2r1",
            &intent.images.coredns,
        ];
        let images = names.map(|name| (familiar(name), image())).into();
        let bundled = needed.bundled("b.tar".to_owned(), images);
        let pods: Vec<&str> = bundled.pods.iter().map(String::as_str).collect();
        assert_eq!(
            pods,
            ["example.com/my/app:1", &familiar(&intent.images.coredns)]
        );
        assert!(bundled.lacks.contains(&familiar(&intent.images.flannel)));
    }
}

//! `system_images`, with RKE's names.
//!
//! - A name of a component that runs here overrides the catalogue.
//! - RKE's own published images (a file of `rke config` lists them all) stand for "the default",
//!   and the default is now the catalogue's: hyperkube ended at 1.32, rke-tools is not needed.
//!   Said in a warning. An image of any other repository is the user's choice and is taken.
//! - A name of a component that this release does not deploy has no effect: RKE's own image may
//!   stand there, any other is said in a warning.
//! - Any other name is an error.

use std::collections::BTreeMap;

use super::{Found, values};
use crate::{
    catalog::{Catalogue, Images},
    config::{cursor::Cursor, validate},
    model::{KubernetesVersion, Registries, is_docker_hub, quoted},
};

/// RKE's name, and the repositories of RKE's own images for it when ours replaces them: those of
/// every release of RKE, for files are older than the program that reads them.
const USED: &[(&str, &[&str])] = &[
    ("kubernetes", &["rancher/hyperkube", "rancher/k8s"]),
    (
        "etcd",
        &[
            "rancher/mirrored-coreos-etcd",
            "rancher/coreos-etcd",
            "rancher/etcd",
        ],
    ),
    (
        "coredns",
        &[
            "rancher/mirrored-coredns-coredns",
            "rancher/coredns-coredns",
        ],
    ),
    (
        "nodelocal",
        &[
            "rancher/mirrored-k8s-dns-node-cache",
            "rancher/k8s-dns-node-cache",
        ],
    ),
    (
        "flannel",
        &[
            "rancher/mirrored-flannel-flannel",
            "rancher/mirrored-coreos-flannel",
            "rancher/mirrored-flannelcni-flannel",
            "rancher/coreos-flannel",
        ],
    ),
    (
        "flannel_cni",
        &["rancher/flannel-cni", "rancher/coreos-flannel-cni"],
    ),
    // `rancher/mirrored-pause` is the catalogue's own.
    (
        "pod_infra_container",
        &["rancher/pause", "rancher/pause-amd64"],
    ),
    ("nginx_proxy", &["rancher/rke-tools"]),
    (
        "metrics_server",
        &["rancher/mirrored-metrics-server", "rancher/metrics-server"],
    ),
    // Two of ours, which RKE had not.
    ("runtime", &[]),
    ("klipper_helm", &[]),
];

/// Components of RKE that are not deployed by this release.
const UNUSED: &[&str] = &[
    "alpine",
    "cert_downloader",
    "kubernetes_services_sidecar",
    "kubedns",
    "dnsmasq",
    "kubedns_sidecar",
    "kubedns_autoscaler",
    "coredns_autoscaler",
    "calico_node",
    "calico_cni",
    "calico_controllers",
    "calico_ctl",
    "calico_flexvol",
    "canal_node",
    "canal_cni",
    "canal_controllers",
    "canal_flannel",
    "canal_flexvol",
    "weave_node",
    "weave_cni",
    "windows_pod_infra_container",
    "ingress",
    "ingress_backend",
    "ingress_webhook",
    "aci_cni_deploy_container",
    "aci_host_container",
    "aci_opflex_container",
    "aci_mcast_container",
    "aci_ovs_container",
    "aci_controller_container",
    "aci_gbp_server_container",
    "aci_opflex_server_container",
    // Of releases of RKE before 1.0.
    "canal_calicoctl",
    "wave_node",
    "heapster",
    "grafana",
    "influxdb",
    "tiller",
    "dashboard",
];

/// The catalogue's images of the version with the config's own, and the latter by RKE's names.
pub(super) fn read(
    at: &Cursor<'_>,
    version: Option<KubernetesVersion>,
    catalogue: &Catalogue,
    registries: &Registries,
    found: &mut Found,
) -> Option<(Images, BTreeMap<String, String>)> {
    let before = found.problems.len();
    let mut given = BTreeMap::new();
    let mut replaced = Vec::new();
    let mut copied = Vec::new();
    let mut unused = Vec::new();
    for (name, (value, image)) in values::map(at, found) {
        if let Some((_, of_rke)) = USED.iter().find(|(used, _)| *used == name) {
            let repository = repository_of(image);
            if image.is_empty() {
                continue;
            }
            if !values::is_image(image) {
                found.problem(value.problem("is not an image reference").detail(image));
            } else if of_rke.contains(&repository) {
                replaced.push(name);
            } else {
                given.insert(name.to_owned(), image.to_owned());
                if of_rke.iter().any(|own| is_copy_of(repository, own)) {
                    copied.push((value, name));
                }
            }
        } else if UNUSED.contains(&name) {
            if !image.is_empty() && !is_published_by_rke(image) {
                unused.push(name);
            }
        } else {
            found.problem(unknown(&value, name));
        }
    }
    note(
        at,
        found,
        &replaced,
        "RKE's own images are replaced by those of the catalogue",
    );
    for (value, name) in copied {
        found.warning(
            value
                .problem("this is RKE's own image in another registry: it is taken as it is, and may not fit the release")
                .hint(format!("copy the image of the catalogue to that registry, and write it here or leave `{name}` out")),
        );
    }
    note(
        at,
        found,
        &unused,
        "these images have no effect: nothing of theirs is deployed yet",
    );
    let published = catalogue.images(version?)?;
    let images = published.placed(registries).with(&given);
    (found.problems.len() == before).then_some((images, given))
}

/// `rancher/hyperkube` of `docker.io/rancher/hyperkube:v1.30.5-rancher1`, and
/// `registry.example.com:5000/rancher/hyperkube` with that registry.
fn repository_of(image: &str) -> &str {
    let image = without_docker_hub(image);
    let image = image.split('@').next().unwrap_or(image);
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        Some(_) | None => image,
    }
}

fn without_docker_hub(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, rest)) if is_docker_hub(host) => rest,
        Some(_) | None => image,
    }
}

/// Whether a repository is RKE's own in another registry.
fn is_copy_of(repository: &str, own: &str) -> bool {
    repository
        .strip_suffix(own)
        .is_some_and(|registry| registry.ends_with('/'))
}

/// What `rke config` writes for a component that we do not deploy: a default, which may stand.
fn is_published_by_rke(image: &str) -> bool {
    let image = without_docker_hub(image);
    ["rancher/", "noiro/", "weaveworks/"]
        .iter()
        .any(|publisher| image.starts_with(publisher))
}

fn unknown(at: &Cursor<'_>, name: &str) -> crate::config::Problem {
    let problem = at.problem("unknown image name");
    let known = USED
        .iter()
        .map(|(used, _)| *used)
        .chain(UNUSED.iter().copied());
    match validate::nearest(name, known) {
        Some(nearest) => problem.hint(format!("did you mean `{nearest}`?")),
        None => problem.hint("the names are those of RKE's `system_images`"),
    }
}

fn note(at: &Cursor<'_>, found: &mut Found, names: &[&str], message: &str) {
    if !names.is_empty() {
        found.warning(at.problem(format!("{message}: {}", quoted(names))));
    }
}

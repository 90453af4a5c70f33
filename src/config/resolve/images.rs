//! `system_images`, with RKE's names.
//!
//! - A name of a component that runs here overrides the catalogue.
//! - RKE's own published images (a file of `rke config` lists them all) stand for "the default",
//!   and the default is now the catalogue's: hyperkube ended at 1.32, rke-tools is not needed.
//!   Said in a warning. An image of any other repository is the user's choice and is taken.
//! - A name of a component that this release does not deploy has no effect: RKE's own image may
//!   stand there, any other is said in a warning.
//! - Any other name is an error.

use super::{Found, values};
use crate::{
    config::{
        cursor::Cursor,
        intent::{Images, KubernetesVersion},
        judge,
    },
    desired::images::Catalogue,
};

/// RKE's name, and the repository of RKE's own image for it when ours replaces that.
const USED: &[(&str, Option<&str>)] = &[
    ("kubernetes", Some("rancher/hyperkube")),
    ("etcd", Some("rancher/mirrored-coreos-etcd")),
    ("coredns", Some("rancher/mirrored-coredns-coredns")),
    ("flannel", Some("rancher/mirrored-flannel-flannel")),
    ("flannel_cni", Some("rancher/flannel-cni")),
    ("pod_infra_container", None),
    ("nginx_proxy", Some("rancher/rke-tools")),
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
    "nodelocal",
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
    "metrics_server",
    "aci_cni_deploy_container",
    "aci_host_container",
    "aci_opflex_container",
    "aci_mcast_container",
    "aci_ovs_container",
    "aci_controller_container",
    "aci_gbp_server_container",
    "aci_opflex_server_container",
];

/// The catalogue's images of the version with the config's own.
pub(super) fn read(
    at: &Cursor<'_>,
    version: Option<KubernetesVersion>,
    catalogue: &Catalogue,
    found: &mut Found,
) -> Option<Images> {
    let before = found.problems.len();
    let mut images = version.and_then(|version| catalogue.images(version));
    let mut replaced = Vec::new();
    let mut unused = Vec::new();
    for (name, (value, image)) in values::map(at, found) {
        if let Some((_, of_rke)) = USED.iter().find(|(used, _)| *used == name) {
            if image.is_empty() {
                continue;
            }
            if !values::is_image(image) {
                found.problem(value.problem("is not an image reference").detail(image));
            } else if of_rke.is_some_and(|repository| repository_of(image) == repository) {
                replaced.push(name);
            } else if let Some(images) = &mut images {
                image.clone_into(slot(images, name)?);
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
    note(
        at,
        found,
        &unused,
        "these images have no effect: nothing of theirs is deployed yet",
    );
    images.filter(|_| found.problems.len() == before)
}

fn slot<'a>(images: &'a mut Images, name: &str) -> Option<&'a mut String> {
    match name {
        "kubernetes" => Some(&mut images.kubernetes),
        "etcd" => Some(&mut images.etcd),
        "coredns" => Some(&mut images.coredns),
        "flannel" => Some(&mut images.flannel),
        "flannel_cni" => Some(&mut images.cni_plugins),
        "pod_infra_container" => Some(&mut images.pause),
        "nginx_proxy" => Some(&mut images.nginx),
        _ => None,
    }
}

/// `rancher/hyperkube` of `docker.io/rancher/hyperkube:v1.30.5-rancher1`.
fn repository_of(image: &str) -> &str {
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
    image.split([':', '@']).next().unwrap_or(image)
}

/// What `rke config` writes for a component that we do not deploy: a default, which may stand.
fn is_published_by_rke(image: &str) -> bool {
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
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
    match judge::nearest(name, known) {
        Some(nearest) => problem.hint(format!("did you mean `{nearest}`?")),
        None => problem.hint("the names are those of RKE's `system_images`"),
    }
}

fn note(at: &Cursor<'_>, found: &mut Found, names: &[&str], message: &str) {
    if !names.is_empty() {
        let names = names.join("`, `");
        found.warning(at.problem(format!("{message}: `{names}`")));
    }
}

//! `system_images`, with RKE's names.
//!
//! - A name of a component that runs here overrides the catalogue.
//! - RKE's own published images (a file of `rke config` lists them all) stand for "the default",
//!   and the default is now the catalogue's: hyperkube ended at 1.32, rke-tools is not needed. The release in the tag of
//!   hyperkube counts (`version.rs`).
//!   A warning says so. An image of any other repository is the user's choice and is taken, except copies of those of RKE's
//!   images that cannot run here: they are errors.
//! - A name of a component that is not deployed, or comes with a chart, has no effect: RKE's own image may
//!   stand there, any other is named in a warning.
//! - Any other name is an error.

use std::collections::BTreeMap;

use super::{
    Found, values,
    version::{self, Wanted},
};
use crate::{
    catalog::{Catalogue, Images, accepts::Minor},
    config::{cursor::Cursor, validate},
    model::{KubernetesVersion, Registries, image_version, is_docker_hub, quoted},
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
    // [`PAUSE`] is the catalogue's own.
    (
        "pod_infra_container",
        &["rancher/pause", "rancher/pause-amd64"],
    ),
    ("nginx_proxy", &["rancher/rke-tools"]),
    (
        "metrics_server",
        &["rancher/mirrored-metrics-server", "rancher/metrics-server"],
    ),
    // Three that RKE had not.
    ("etcd_tools", &[]),
    ("runtime", &[]),
    ("klipper_helm", &[]),
];

/// The catalogue's own pause, which is RKE's.
const PAUSE: &str = "rancher/mirrored-pause";

/// Names of RKE's images that no component here is run from: their components are not deployed, or come with charts.
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

/// The release that the tag of an image of Kubernetes names, where the image is one whose tags do so: RKE's hyperkube and
/// what the catalogue has, wherever they are copied to. `v1.30.7-rancher1` of `rancher/hyperkube:v1.30.7-rancher1`, and
/// `v1.34.4` of `hardened-kubernetes:v1.34.4-rke2r1-build20260127`.
pub(super) fn release_of(image: &str) -> Option<&str> {
    let repository = repository_of(image);
    let tag = tag_of(image)?;
    let name = repository.rsplit('/').next().unwrap_or(repository);
    let release = match name {
        "hyperkube" => tag,
        "k8s" if repository == "rancher/k8s" || tag.contains("-rancher") => tag,
        "hardened-kubernetes" => tag.split('-').next().unwrap_or(tag),
        _ => return None,
    };
    version::numbers(release).map(|_| release)
}

/// The minor release of etcd that the tag of its image names: `3.5` of `hardened-etcd:v3.5.9-k3s1-build20230802`.
pub(super) fn etcd_release(image: &str) -> Option<Minor> {
    let tag = tag_of(image)?;
    let numbers = tag.strip_prefix('v').unwrap_or(tag);
    let mut parts = numbers.split(['.', '-', '+']);
    let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (major == 3).then_some(Minor { major, minor })
}

/// Whether an image has etcd as it is published upstream, by its name.
pub(super) fn is_known_etcd(image: &str) -> bool {
    let repository = repository_of(image);
    let name = repository.rsplit('/').next().unwrap_or(repository);
    matches!(
        name,
        "etcd" | "hardened-etcd" | "coreos-etcd" | "mirrored-coreos-etcd"
    )
}

/// The catalogue's images of the version with the config's own, and the latter by RKE's names.
pub(super) fn read(
    root: &Cursor<'_>,
    wanted: Option<Wanted>,
    catalogue: &Catalogue,
    registries: &Registries,
    found: &mut Found,
) -> Option<(Images, BTreeMap<String, String>)> {
    let at = &root.get("system_images");
    let before = found.problems.len();
    let charts = of_charts(root);
    let published = wanted.and_then(|wanted| catalogue.images(wanted.version));
    let release = wanted.filter(|_| root.get("kubernetes_version").is_empty());
    let mut sorted = Sorted::default();
    for (name, (value, image)) in values::map(at, found) {
        let of_chart = charts.iter().any(|chart| name.starts_with(chart));
        if let Some((_, of_rke)) = USED.iter().find(|(used, _)| *used == name) {
            if image.is_empty() {
                continue;
            }
            if !values::is_image(image) {
                found.problem(value.problem("is not an image reference").detail(image));
            } else if is_default(image, of_rke, registries) {
                sorted.replaced.push(name);
            } else if of_rke.iter().any(|own| is_copy_of(image, own)) {
                let instead = instead(name, published.as_ref(), release);
                match copied(name, image) {
                    Copied::Runs => {}
                    Copied::TooOld => found.warning(value.problem(TOO_OLD).hint(instead)),
                    Copied::CannotRun(why) => {
                        let message = format!("a copy of RKE's image cannot be used here: {why}");
                        found.problem(value.problem(message).hint(instead));
                        continue;
                    }
                }
                sorted.given.insert(name.to_owned(), image.to_owned());
            } else {
                sorted.given.insert(name.to_owned(), image.to_owned());
            }
            if name == "kubernetes" {
                other_release(&value, image, wanted, found);
            }
        } else if UNUSED.contains(&name) {
            match (of_chart, is_published_by_rke(image)) {
                _ if image.is_empty() => {}
                (true, true) => sorted.replaced.push(name),
                (true, false) => sorted.of_charts.push(name),
                (false, true) => {}
                (false, false) => sorted.unused.push(name),
            }
        } else {
            found.problem(unknown(&value, name));
        }
    }
    let version = wanted?.version;
    sorted.note(at, version, found);
    let images = published?.placed(registries).with(&sorted.given);
    (found.problems.len() == before).then_some((images, sorted.given))
}

/// The images of a config, by what becomes of them.
#[derive(Default)]
struct Sorted<'a> {
    /// Used as they are.
    given: BTreeMap<String, String>,
    /// RKE's own: the catalogue's are used.
    replaced: Vec<&'a str>,
    /// The charts name other images.
    of_charts: Vec<&'a str>,
    /// Of components that are not deployed.
    unused: Vec<&'a str>,
}

impl Sorted<'_> {
    fn note(&self, at: &Cursor<'_>, version: KubernetesVersion, found: &mut Found) {
        let rows = [
            (
                &self.replaced,
                format!("RKE's own images are replaced by those of the catalogue for {version}"),
                None,
            ),
            (
                &self.of_charts,
                "these images have no effect: the charts of their components name other images"
                    .to_owned(),
                Some(
                    "an entry of `private_registries` with `is_default: true` has the images of charts, too; `values` of \
                     `network` and `ingress` can name others",
                ),
            ),
            (
                &self.unused,
                "these images have no effect: their components are not deployed".to_owned(),
                None,
            ),
        ];
        for (names, message, hint) in rows {
            if !names.is_empty() {
                let warning = at.problem(format!("{message}: {}", quoted(names)));
                found.warning(match hint {
                    Some(hint) => warning.hint(hint),
                    None => warning,
                });
            }
        }
    }
}

/// Whether an image is what `rke config` writes, so that the catalogue's takes its place. The catalogue has RKE's own pause:
/// where it is pulled from is not the same with a registry that has the system images.
fn is_default(image: &str, of_rke: &[&str], registries: &Registries) -> bool {
    let repository = repository_of(image);
    of_rke.contains(&repository) || repository == PAUSE && registries.default.is_some()
}

/// What is known of RKE's own image in another registry.
enum Copied {
    /// It has what is used of the catalogue's.
    Runs,
    /// Others of it do.
    TooOld,
    /// None of it does; why.
    CannotRun(&'static str),
}

const TOO_OLD: &str =
    "this copy of RKE's image is of an old release, which was not tried with rke-operator";

/// Each image of RKE's is that of its project, but for three. The oldest releases are those with what is used here: the
/// etcd of supported releases of Kubernetes, CoreDNS's plugin `ready`, and `/livez` of metrics-server.
fn copied(name: &str, image: &str) -> Copied {
    let oldest = match name {
        "kubernetes" => {
            return Copied::CannotRun(
                "its kubelet needs the libraries of the image, but rke-operator runs kubelet with those of the node",
            );
        }
        "nginx_proxy" => {
            return Copied::CannotRun(
                "rke-tools contains RKE's own programs, but rke-operator needs only nginx",
            );
        }
        "flannel_cni" => {
            return Copied::CannotRun(
                "it never exits, but flannel's pods wait until the CNI plugins are installed",
            );
        }
        "etcd" => (3, 5, 0),
        "coredns" => (1, 5, 0),
        "metrics_server" => (0, 4, 0),
        _ => return Copied::Runs,
    };
    match image_version(image) {
        Some(version) if version >= oldest => Copied::Runs,
        Some(_) | None => Copied::TooOld,
    }
}

/// What to write in the place of a copy. `release`: the one that only the tag of the image of Kubernetes names.
fn instead(name: &str, published: Option<&Images>, release: Option<Wanted>) -> String {
    let keep = match release {
        Some(Wanted { version, .. }) if name == "kubernetes" => {
            format!("write `kubernetes_version: {version}`, and ")
        }
        Some(_) | None => String::new(),
    };
    match published.and_then(|images| images.named(name)) {
        Some(image) => format!(
            "{keep}remove `{name}` for the image of the catalogue, `{image}`, or write a copy of that image"
        ),
        None => format!("{keep}remove `{name}` for the image of the catalogue"),
    }
}

/// How the names begin of those images that the config's own plugin and ingress controller have: ours come with charts.
fn of_charts(root: &Cursor<'_>) -> Vec<&'static str> {
    let plugin = root.get("network").get("plugin");
    let provider = root.get("ingress").get("provider");
    let chart = match written_or(&plugin, "canal") {
        "canal" => Some("canal_"),
        "calico" => Some("calico_"),
        _ => None,
    };
    let ingress = (written_or(&provider, "nginx") == "nginx").then_some("ingress");
    chart.into_iter().chain(ingress).collect()
}

fn written_or<'a>(at: &Cursor<'a>, default: &'a str) -> &'a str {
    let text = at.scalar().filter(|text| !text.is_empty());
    text.unwrap_or(default)
}

/// Of another minor release than the one that is set up it can never be right.
fn other_release(at: &Cursor<'_>, image: &str, wanted: Option<Wanted>, found: &mut Found) {
    let (Some(Wanted { version, .. }), Some(release)) = (wanted, release_of(image)) else {
        return;
    };
    let Some(of_image) = version::numbers(release).filter(|of_image| *of_image != version) else {
        return;
    };
    let remove = format!(
        "remove it for the catalogue's image of {version}, or write `kubernetes_version: {of_image}`"
    );
    if (of_image.major, of_image.minor) == (version.major, version.minor) {
        let message = "this image is of another patch release than `kubernetes_version`";
        let problem = at
            .problem(message)
            .detail(format!("{of_image} and {version}"));
        found.warning(problem.hint(remove));
    } else {
        let message = "this image is of another release than `kubernetes_version`";
        let problem = at
            .problem(message)
            .detail(format!("{of_image} and {version}"));
        found.problem(problem.hint(remove));
    }
}

fn tag_of(image: &str) -> Option<&str> {
    let image = image.split('@').next().unwrap_or(image);
    let (_, tag) = image.rsplit_once(':')?;
    Some(tag).filter(|tag| !tag.contains('/'))
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

/// Whether an image is RKE's own in another registry, where its folder may have another name: then its own name tells,
/// with a tag of RKE's.
fn is_copy_of(image: &str, own: &str) -> bool {
    let repository = repository_of(image);
    let last = |name: &str| name.rsplit('/').next().map(str::to_owned);
    let whole = repository
        .strip_suffix(own)
        .is_some_and(|registry| registry.ends_with('/'));
    let named_as_rke = own.contains("/mirrored-") || own.ends_with("/rke-tools");
    let tagged_by_rke = tag_of(image).is_some_and(|tag| tag.contains("-rancher"));
    whole || last(repository) == last(own) && (named_as_rke || tagged_by_rke)
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

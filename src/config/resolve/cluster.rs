//! The top level: names, the version, and which add-ons.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    Found, access, addons, cloud, dns, etcd, images, ingress, keys::Keys, monitoring, network,
    nodes, registries, services, upgrade, values, version,
};
use crate::{
    catalog::Catalogue,
    config::{cursor::Cursor, intent::Intent, sources::Sources},
};

/// Reads everything. `None` only when a problem was found.
pub(super) fn read(
    root: &Cursor<'_>,
    sources: &dyn Sources,
    catalogue: &Catalogue,
    found: &mut Found,
) -> Option<Intent> {
    let cluster_name = cluster_name(&root.get("cluster_name"), found);
    let version_at = root.get("kubernetes_version");
    let version_given = !version_at.is_empty();
    let version = version::read(&version_at, catalogue, found);
    let registries = registries::read(&root.get("private_registries"), sources, found);
    let images_at = root.get("system_images");
    let images = images::read(&images_at, version, catalogue, &registries, found);
    let services = services::read(&root.get("services"), found);
    let etcd = etcd::read(root, found);
    let etcd_owner = etcd::owner(root, found);
    let sans = sans(&root.get("authentication").get("sans"), found);
    let webhook = access::webhook(&root.get("authentication"), found);
    let authorization = access::authorization(root, found);
    let cloud_provider = cloud::read(&root.get("cloud_provider"), found);
    let network = network::read(&root.get("network"), found);
    let ingress = ingress::read(&root.get("ingress"), found);
    let dns = dns::read(&root.get("dns"), found);
    let metrics_server = monitoring::read(&root.get("monitoring"), found);
    let manifests = addons::read(root, sources, found);
    let upgrade = upgrade::read(&root.get("upgrade_strategy"), found);
    let mut keys = Keys::new(sources, root);
    let bastion = nodes::bastion(root, &mut keys, found);
    let nodes = nodes::read(root, &mut keys, found);
    let services = services?;
    let (images, system_images) = images.unzip();
    nodes::outside_of_ranges(&nodes, &services, found);
    Some(Intent {
        cluster_name: cluster_name?,
        version: version?,
        version_given,
        nodes: nodes
            .into_iter()
            .map(|named| (named.name, named.node))
            .collect(),
        bastion: bastion.ok()?,
        registries,
        images: images?,
        system_images: system_images?,
        services,
        etcd: etcd?,
        etcd_owner,
        sans,
        webhook,
        authorization,
        cloud_provider,
        network: network?,
        ingress: ingress?,
        dns: dns?,
        metrics_server,
        manifests,
        upgrade: upgrade?,
    })
}

fn cluster_name(at: &Cursor<'_>, found: &mut Found) -> Option<String> {
    let before = found.problems.len();
    let name = values::text(at, found).unwrap_or("local");
    if name.len() > 253 || name.trim() != name || name.chars().any(char::is_control) {
        found.problem(
            at.problem("must be one line of at most 253 characters without spaces at its ends")
                .detail(name),
        );
    }
    (found.problems.len() == before).then(|| name.to_owned())
}

/// A name may begin with `*.`, as certificates have it.
fn sans(at: &Cursor<'_>, found: &mut Found) -> BTreeSet<String> {
    let mut sans = BTreeSet::new();
    for (item, text) in values::texts(at, found) {
        let name = text.to_ascii_lowercase();
        let plain = name.strip_prefix("*.").unwrap_or(&name);
        if values::is_host(plain) || name.parse::<IpAddr>().is_ok() {
            sans.insert(name);
        } else {
            let problem = item.problem("is neither a DNS name nor an address");
            found.problem(problem.detail(text));
        }
    }
    sans
}

//! The top level: names, the version, and which add-ons.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    Found, access, addons, addresses, cloud, dns, etcd, fits, images, ingress, keys::Keys,
    monitoring, network, nodes, ranges, registries, services, upgrade, values, version,
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
    let wanted = version::read(root, catalogue, found);
    let registries = registries::read(&root.get("private_registries"), sources, found);
    let images = images::read(root, wanted, catalogue, &registries, found);
    let services = services::read(&root.get("services"), found);
    let etcd = etcd::read(root, found);
    let etcd_owner = etcd::owner(root, found);
    let sans = sans(&root.get("authentication").get("sans"), found);
    let webhook = access::webhook(&root.get("authentication"), found);
    let authorization = access::authorization(root, found);
    let cloud_provider = cloud::read(&root.get("cloud_provider"), found);
    cloud::by_flag(root, found);
    let network = network::read(&root.get("network"), found);
    let ingress = ingress::read(&root.get("ingress"), found);
    let dns = dns::read(&root.get("dns"), found);
    let metrics_server = monitoring::read(&root.get("monitoring"), found);
    let release = wanted.zip(images.as_ref()).map(|(wanted, (images, own))| {
        fits::Release::new(wanted, images, own, !etcd::is_external(root))
    });
    if let Some(release) = &release {
        fits::read(root, release, found);
    }
    let serving = release.map(|release| fits::Serving::new(root, &release));
    let manifests = addons::read(root, sources, serving.as_ref(), found);
    let upgrade = upgrade::read(&root.get("upgrade_strategy"), found);
    let mut keys = Keys::new(sources, root);
    keys.check(found);
    let bastions = nodes::bastions(root, &mut keys, found);
    let nodes = nodes::read(root, bastions.as_deref(), &mut keys, found);
    let services = services?;
    let (images, system_images) = images.unzip();
    addresses::outside_of_ranges(&nodes, &services, found);
    if let Some(network) = &network {
        ranges::check(root, &nodes, &services, network, found);
    }
    Some(Intent {
        cluster_name: cluster_name?,
        version: wanted?.version,
        version_given: wanted?.given,
        nodes: nodes
            .into_iter()
            .map(|named| (named.name, named.node))
            .collect(),
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
        agent: None,
    })
}

fn cluster_name(at: &Cursor<'_>, found: &mut Found) -> Option<String> {
    let before = found.problems.len();
    let name = values::or_default(at, found);
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

//! etcd: one member on each node of that role, with an authority of its own. Pure.

use super::{
    ContainerSpec, DrawError, path,
    pki::Leaf,
    service::{Flags, Service, View, read_write},
    site::{Files, Site, TLS_CIPHERS, host_port},
};
use crate::config::Role;

/// Where RKE's container has the data: people's `extra_args` and scripts say so.
const DATA: &str = "/var/lib/rancher/etcd";

/// The container and its files.
pub(super) fn draw(site: &Site<'_>) -> Result<(ContainerSpec, Files), DrawError> {
    let mut files = Files::new();
    let ca = site.etcd_ca(&mut files);
    let (cert, key) = site.pair(Leaf::Etcd, &mut files)?;
    let own = &site.node.internal_address;
    let members: Vec<String> = site
        .intent
        .with_role(Role::Etcd)
        .map(|(name, node)| {
            let url = host_port(&node.internal_address, 2380);
            format!("etcd-{name}=https://{url}")
        })
        .collect();
    let flags = Flags::from([
        ("name", format!("etcd-{}", site.name)),
        ("data-dir", format!("{DATA}/")),
        ("listen-client-urls", listen(site, 2379, true)),
        ("listen-peer-urls", listen(site, 2380, false)),
        // Health and metrics, for this node alone, without a certificate.
        ("listen-metrics-urls", "http://127.0.0.1:2381".to_owned()),
        (
            "advertise-client-urls",
            format!("https://{}", host_port(own, 2379)),
        ),
        (
            "initial-advertise-peer-urls",
            format!("https://{}", host_port(own, 2380)),
        ),
        ("initial-cluster", members.join(",")),
        ("initial-cluster-token", "etcd-cluster-1".to_owned()),
        // Read only by a member without data.
        ("initial-cluster-state", "new".to_owned()),
        ("trusted-ca-file", ca.clone()),
        ("peer-trusted-ca-file", ca.clone()),
        ("cert-file", cert.clone()),
        ("peer-cert-file", cert.clone()),
        ("key-file", key.clone()),
        ("peer-key-file", key.clone()),
        ("client-cert-auth", "true".to_owned()),
        ("peer-client-cert-auth", "true".to_owned()),
        ("cipher-suites", TLS_CIPHERS.to_owned()),
        ("heartbeat-interval", "500".to_owned()),
        ("election-timeout", "5000".to_owned()),
    ]);
    Service {
        key: "etcd",
        image: &site.intent.images.etcd,
        extras: &site.intent.services.etcd,
        entrypoint: vec!["/usr/local/bin/etcd".to_owned()],
        flags,
        files,
        view: View::OwnFiles,
        binds: vec![read_write(path::ETCD, DATA)],
        // For `docker exec etcd etcdctl …`, as in RKE.
        env: vec![
            format!("ETCDCTL_CACERT={ca}"),
            format!("ETCDCTL_CERT={cert}"),
            "ETCDCTL_ENDPOINTS=https://127.0.0.1:2379".to_owned(),
            format!("ETCDCTL_KEY={key}"),
        ],
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
    }
    .finish(site)
}

/// The internal address when the user gave one. Else every address, as in RKE: the only one
/// that is known may be one that a router in front of the node translates.
fn listen(site: &Site<'_>, port: u16, local: bool) -> String {
    let own = &site.node.internal_address;
    let is_ip = own.parse::<std::net::IpAddr>().is_ok();
    if !site.node.has_internal_address || !is_ip {
        return format!("https://0.0.0.0:{port}");
    }
    let url = format!("https://{}", host_port(own, port));
    if local {
        format!("{url},https://127.0.0.1:{port}")
    } else {
        url
    }
}

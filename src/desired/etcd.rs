//! etcd: one member on each node of that role, with a dedicated authority. Pure.

use super::{
    DesiredError,
    host_context::{Files, HostContext, TLS_CIPHERS},
    pki::CertKind,
    service::{Flags, Service, View, read_write},
};
use crate::{
    etcd::{EtcdView, Quorum, initial_cluster, member_name},
    model::{ContainerSpec, path},
};

/// Where RKE's container has the data: people's `extra_args` and scripts say so.
const DATA: &str = "/var/lib/rancher/etcd";

/// The container and its files.
pub(super) fn container(context: &HostContext<'_>) -> Result<(ContainerSpec, Files), DesiredError> {
    let mut files = Files::new();
    let ca = context.etcd_ca(&mut files);
    let (cert, key) = context.pair(CertKind::Etcd, &mut files)?;
    let own = &context.node.internal_address;
    let saved = &context.keys.saved;
    let flags = Flags::from([
        ("name", member_name(context.name)),
        ("data-dir", format!("{DATA}/")),
        ("listen-client-urls", listen(context, 2379, true)),
        ("listen-peer-urls", listen(context, 2380, false)),
        // Health and metrics, for this node alone, without a certificate.
        ("listen-metrics-urls", "http://127.0.0.1:2381".to_owned()),
        (
            "advertise-client-urls",
            format!("https://{}", own.with_port(2379)),
        ),
        (
            "initial-advertise-peer-urls",
            format!("https://{}", own.with_port(2380)),
        ),
        ("trusted-ca-file", ca.clone()),
        ("peer-trusted-ca-file", ca.clone()),
        ("cert-file", cert.clone()),
        ("peer-cert-file", cert.clone()),
        ("key-file", key.clone()),
        ("peer-key-file", key.clone()),
        ("client-cert-auth", "true".to_owned()),
        ("peer-client-cert-auth", "true".to_owned()),
        ("cipher-suites", TLS_CIPHERS.to_owned()),
        // etcd's own values. RKE's 500 and 5000 are for slow disks, and let a lone member wait up
        // to five seconds for its own vote at every start.
        ("heartbeat-interval", "100".to_owned()),
        ("election-timeout", "1000".to_owned()),
    ]);
    // Read only by a member without data: one of those that bootstrap etcd, or one that joins,
    // which gets the current list of members. After the first quorum no member bootstraps.
    let mut bootstrap = Flags::from([("initial-cluster-token", saved.etcd_token())]);
    let first = saved.etcd_bootstrap.iter();
    let first = first.map(|(name, url)| format!("{}={url}", member_name(name)));
    let first = || first.collect::<Vec<_>>().join(",");
    match members(context.etcd) {
        // etcd holds a cluster: no member may bootstrap another one, whatever happened to its disk.
        Some(live) if saved.memory.populated => {
            bootstrap.set("initial-cluster", live);
            bootstrap.set("initial-cluster-state", "existing");
        }
        _ if saved.etcd_bootstrap.contains_key(context.name) => {
            bootstrap.set("initial-cluster", first());
            let new = !saved.memory.populated;
            bootstrap.set(
                "initial-cluster-state",
                if new { "new" } else { "existing" },
            );
        }
        _ => bootstrap.set("initial-cluster-state", "existing"),
    }
    Service {
        key: "etcd",
        image: &context.intent.images.etcd,
        extras: &context.intent.services.etcd,
        entrypoint: vec!["/usr/local/bin/etcd".to_owned()],
        flags,
        bootstrap,
        files,
        view: View::OwnFiles,
        binds: vec![read_write(path::ETCD, DATA)],
        // Docker makes no source of a mount. When the disk of `/var/lib/etcd` is not there after a
        // boot, this folder is not there either: then etcd does not start, where it would start
        // empty, and bare API servers would have the kubelets end every pod.
        mounts: vec![read_write(path::ETCD_MEMBER, &format!("{DATA}/member"))],
        // For `docker exec etcd etcdctl …`, as in RKE.
        env: [
            ("ETCDCTL_CACERT", ca),
            ("ETCDCTL_CERT", cert),
            ("ETCDCTL_ENDPOINTS", "https://127.0.0.1:2379".to_owned()),
            ("ETCDCTL_KEY", key),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
        user: context.intent.etcd_owner,
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
    }
    .finish(context)
}

/// The members of a list that a majority has confirmed, as `--initial-cluster` names them.
fn members(etcd: &EtcdView) -> Option<String> {
    let Quorum::Serving { .. } = etcd.quorum else {
        return None;
    };
    Some(initial_cluster(&etcd.members, None))
}

/// The internal address when the user gave one. Else every address, as in RKE: the only one
/// that is known may be one that a router in front of the node translates.
fn listen(context: &HostContext<'_>, port: u16, local: bool) -> String {
    let own = &context.node.internal_address;
    if !context.node.has_internal_address || own.ip().is_none() {
        return format!("https://0.0.0.0:{port}");
    }
    let url = format!("https://{}", own.with_port(port));
    if local {
        format!("{url},https://127.0.0.1:{port}")
    } else {
        url
    }
}

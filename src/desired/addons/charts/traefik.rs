//! traefik, on every worker, at the same ports as nginx.

use serde_json::{Value, json};

use super::{nginx, values};
use crate::{
    config::{IngressOptions, NetworkMode},
    desired::{Chart, addons::word},
};

/// The add-on's name.
pub(super) const NAME: &str = "traefik";

pub(super) fn chart(options: &IngressOptions) -> Chart {
    Chart {
        name: NAME.to_owned(),
        chart: "rke2-traefik".to_owned(),
        namespace: "kube-system".to_owned(),
        crds: Some("rke2-traefik-crd".to_owned()),
        values: values::with(values_of(options), options.values.as_ref()),
    }
}

fn values_of(options: &IngressOptions) -> Value {
    let IngressOptions {
        options: _,
        extra_args,
        node_selector,
        dns_policy,
        extra_envs,
        extra_volumes,
        extra_volume_mounts,
        update_strategy,
        http_port,
        https_port,
        network_mode,
        tolerations: _,
        default_backend: _,
        backend_priority_class: _,
        priority_class,
        default_class,
        values: _,
    } = options;
    let arguments: Vec<_> = extra_args
        .iter()
        .map(|(name, value)| word(name, value))
        .collect();
    let on_node = *network_mode == NetworkMode::HostNetwork;
    let port = |own: u16, node: u16| match network_mode {
        NetworkMode::HostPort => json!({"port": own, "hostPort": node}),
        // In the node's network a program listens where it is reached.
        NetworkMode::HostNetwork => json!({"port": node, "hostPort": node}),
        NetworkMode::None => json!({"port": own, "hostPort": null}),
    };
    let strategy = update_strategy.clone().unwrap_or_else(
        || json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
    );
    let mut all = json!({
        "additionalArguments": arguments,
        "additionalVolumeMounts": extra_volume_mounts,
        "affinity": nginx::on_workers(),
        "deployment": {"kind": "DaemonSet", "additionalVolumes": extra_volumes},
        "env": extra_envs.as_ref().map_or_else(|| json!([]), values::json),
        "hostNetwork": on_node,
        "ingressClass": {"enabled": true, "isDefaultClass": default_class},
        "nodeSelector": node_selector,
        "ports": {"web": port(8000, *http_port), "websecure": port(8443, *https_port)},
        "priorityClassName": priority_class.as_deref().unwrap_or_default(),
        "tolerations": nginx::every_taint(),
        "updateStrategy": strategy,
    });
    if let Some(policy) = dns_policy {
        all["deployment"]["dnsPolicy"] = policy.as_str().into();
    }
    if on_node {
        // Ports below 1024 are root's there.
        all["securityContext"] = json!({
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            "runAsNonRoot": false,
            "runAsGroup": 0,
            "runAsUser": 0,
        });
    }
    all
}

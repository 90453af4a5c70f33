//! ingress-nginx, on every worker, with RKE's namespace and RKE's names where the chart lets them be.

use serde_json::{Value, json};

use super::values;
use crate::{
    config::{IngressOptions, NetworkMode},
    desired::Chart,
};

/// The add-on's name.
pub(super) const NAME: &str = "nginx";

pub(super) fn chart(options: &IngressOptions) -> Chart {
    Chart {
        name: NAME.to_owned(),
        chart: "rke2-ingress-nginx".to_owned(),
        namespace: "ingress-nginx".to_owned(),
        crds: None,
        values: values::with(values_of(options), options.values.as_ref()),
    }
}

/// Every taint, and no more: a node that is away loses its pod all the same.
pub(super) fn every_taint() -> Value {
    json!([
        {"effect": "NoExecute", "operator": "Exists"},
        {"effect": "NoSchedule", "operator": "Exists"},
    ])
}

/// Where RKE's pods run.
pub(super) fn on_workers() -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
        "matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}],
    }]}}})
}

fn values_of(options: &IngressOptions) -> Value {
    let IngressOptions {
        options: config,
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
        tolerations,
        default_backend,
        backend_priority_class,
        priority_class,
        default_class,
        values: _,
    } = options;
    let listens = |flag: &str, port: u16| {
        let port = extra_args
            .get(flag)
            .and_then(|text| text.parse().ok())
            .unwrap_or(port);
        Value::from(port)
    };
    let strategy = update_strategy.clone().unwrap_or_else(
        || json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}),
    );
    let backend_tolerates = if tolerations.is_empty() {
        every_taint()
    } else {
        tolerations.clone().into()
    };
    json!({
        "fullnameOverride": "ingress-nginx",
        "controller": {
            "kind": "DaemonSet",
            "config": config,
            "extraArgs": extra_args,
            "nodeSelector": node_selector,
            "affinity": on_workers(),
            "tolerations": every_taint(),
            "dnsPolicy": dns_policy.as_deref().unwrap_or("ClusterFirst"),
            "extraEnvs": extra_envs.as_ref().map_or_else(|| json!([]), values::json),
            "extraVolumes": extra_volumes,
            "extraVolumeMounts": extra_volume_mounts,
            "updateStrategy": strategy,
            "containerPort": {
                "http": listens("http-port", 80),
                "https": listens("https-port", 443),
            },
            "hostNetwork": *network_mode == NetworkMode::HostNetwork,
            "hostPort": {
                "enabled": *network_mode == NetworkMode::HostPort,
                "ports": {"http": http_port, "https": https_port},
            },
            "priorityClassName": priority_class.as_deref().unwrap_or_default(),
            "ingressClassResource": {"default": default_class},
            // RKE's flag, unless the config has it among its own.
            "watchIngressWithoutClass": !extra_args.contains_key("watch-ingress-without-class"),
            "podLabels": {"app": "ingress-nginx"},
            "admissionWebhooks": {"patch": {"nodeSelector": node_selector, "tolerations": every_taint()}},
        },
        "defaultBackend": {
            "enabled": default_backend,
            "tolerations": backend_tolerates,
            "priorityClassName": backend_priority_class.as_deref().unwrap_or_default(),
        },
    })
}

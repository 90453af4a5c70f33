//! `CoreDNS` behind the Service `kube-dns`, with RKE's Corefile. No autoscaler: one replica on one
//! node, two on more. As soon as two nodes can take it, no two are on one, and no drain takes both.

use serde_json::{Value, json};

use crate::{
    config::Intent,
    desired::{
        Addon,
        addons::{account, labelled},
        node,
    },
    model::ObjectKind,
};

/// The add-on's name.
pub(super) const NAME: &str = "coredns";

pub(super) fn addon(intent: &Intent) -> Addon {
    let rules = json!([
        {
            "apiGroups": [""],
            "resources": ["endpoints", "services", "pods", "namespaces"],
            "verbs": ["list", "watch"],
        },
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        },
    ]);
    let [account, role, binding] = account("coredns", "system:coredns", &rules);
    let budget = is_spread(intent).then(budget);
    let objects = [
        account,
        role,
        binding,
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "coredns", "namespace": "kube-system"},
            "data": {"Corefile": corefile(&intent.services.cluster_domain)},
        }),
        deployment(intent),
        service(intent),
    ];
    labelled(NAME, objects.into_iter().chain(budget).collect())
}

/// True when two nodes or more take pods that tolerate nothing.
fn is_spread(intent: &Intent) -> bool {
    let mut open = intent.nodes.values().filter(|node| {
        let mut taints = node::taints(node).into_iter();
        taints.all(|taint| taint.effect == "PreferNoSchedule")
    });
    open.nth(1).is_some()
}

/// The kind of what some clusters have, and may have no longer.
pub(super) fn sometimes() -> ObjectKind {
    ObjectKind {
        api_version: BUDGET.0.to_owned(),
        kind: BUDGET.1.to_owned(),
    }
}

const BUDGET: (&str, &str) = ("policy/v1", "PodDisruptionBudget");

fn budget() -> Value {
    json!({
        "apiVersion": BUDGET.0,
        "kind": BUDGET.1,
        "metadata": {"name": "coredns", "namespace": "kube-system"},
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": {"k8s-app": "kube-dns"}},
        },
    })
}

fn corefile(domain: &str) -> String {
    format!(
        "\
.:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
    }}
    prometheus :9153
    forward . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
}}
"
    )
}

fn service(intent: &Intent) -> Value {
    let port = |name: &str, port: u16, protocol: &str| json!({"name": name, "port": port, "protocol": protocol, "targetPort": port});
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"},
            "annotations": {"prometheus.io/port": "9153", "prometheus.io/scrape": "true"},
        },
        "spec": {
            "clusterIP": intent.services.cluster_dns_server.to_string(),
            "ports": [
                port("dns", 53, "UDP"),
                port("dns-tcp", 53, "TCP"),
                port("metrics", 9153, "TCP"),
            ],
            "selector": {"k8s-app": "kube-dns"},
        },
    })
}

fn deployment(intent: &Intent) -> Value {
    let replicas = if intent.nodes.len() > 1 { 2 } else { 1 };
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "coredns",
            "namespace": "kube-system",
            "labels": {"k8s-app": "kube-dns"},
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"k8s-app": "kube-dns"}},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            },
            "template": {
                "metadata": {"labels": {"k8s-app": "kube-dns"}},
                "spec": pod(intent),
            },
        },
    })
}

fn pod(intent: &Intent) -> Value {
    let mut pod = unspread(intent);
    if is_spread(intent) {
        pod["topologySpreadConstraints"] = json!([{
            "labelSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            // Those of the rollout before do not count.
            "matchLabelKeys": ["pod-template-hash"],
            "maxSkew": 1,
            "nodeTaintsPolicy": "Honor",
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
        }]);
    }
    pod
}

fn unspread(intent: &Intent) -> Value {
    json!({
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                "topologyKey": "kubernetes.io/hostname",
            },
            "weight": 100,
        }]}},
        "containers": [container(intent)],
        // The node's own resolver: not itself.
        "dnsPolicy": "Default",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "priorityClassName": "system-cluster-critical",
        "serviceAccountName": "coredns",
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "volumes": [{
            "name": "config",
            "configMap": {
                "name": "coredns",
                "items": [{"key": "Corefile", "path": "Corefile"}],
            },
        }],
    })
}

fn container(intent: &Intent) -> Value {
    let probe = |path: &str, port: u16| json!({"path": path, "port": port, "scheme": "HTTP"});
    json!({
        "name": "coredns",
        "image": intent.images.coredns,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "livenessProbe": {
            "httpGet": probe("/health", 8080),
            "initialDelaySeconds": 60,
            "timeoutSeconds": 5,
            "failureThreshold": 5,
        },
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": probe("/ready", 8181), "periodSeconds": 1},
        "resources": {
            "limits": {"memory": "170Mi"},
            "requests": {"cpu": "100m", "memory": "70Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": true}],
    })
}

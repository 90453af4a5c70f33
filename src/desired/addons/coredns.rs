//! `CoreDNS` behind the Service `kube-dns`, with RKE's Corefile. No autoscaler: how many pods it has is
//! worked out here, by the same rule. As soon as two nodes can take it, no two are on one, and no drain takes both.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{
    config::{CoreDns, Dns, Intent},
    desired::{
        Addon,
        addons::{account, labelled},
        node,
    },
    model::{ObjectKind, ObjectRef, Role, Scaled, Taint},
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
    let dns = options(intent);
    let budget = is_spread(intent, &dns).then(budget);
    let objects = [
        account,
        role,
        binding,
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "coredns", "namespace": "kube-system"},
            "data": {"Corefile": corefile(&intent.services.cluster_domain, &dns)},
        }),
        deployment(intent, &dns),
        service(intent),
    ];
    labelled(NAME, objects.into_iter().chain(budget).collect())
}

/// What its objects are called does not depend on them.
fn options(intent: &Intent) -> CoreDns {
    match &intent.dns {
        Dns::CoreDns(dns) => (**dns).clone(),
        Dns::None => CoreDns::default(),
    }
}

/// As RKE's autoscaler counts: the nodes with the role worker, and their cores.
pub(super) fn scaled(intent: &Intent) -> Option<Scaled> {
    let Dns::CoreDns(dns) = &intent.dns else {
        return None;
    };
    let workers = intent.with_role(Role::Worker);
    Some(Scaled {
        object: ObjectRef {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: "kube-system".to_owned(),
            name: "coredns".to_owned(),
        },
        nodes: workers.map(|(name, _)| name.clone()).collect(),
        linear: dns.linear,
    })
}

/// True when two nodes or more take its pods, as far as the config tells.
fn is_spread(intent: &Intent, dns: &CoreDns) -> bool {
    let mut open = intent.nodes.values().filter(|node| {
        let meta = node::meta(node);
        let mut taints = meta.taints.iter();
        node::is_selected(&meta.labels, &dns.node_selector)
            && taints.all(|taint| {
                let mut tolerations = dns.tolerations.iter();
                taint.effect == "PreferNoSchedule" || tolerations.any(|it| tolerates(it, taint))
            })
    });
    open.nth(1).is_some()
}

/// As the scheduler compares them.
fn tolerates(toleration: &Value, taint: &Taint) -> bool {
    let text = |name: &str| toleration[name].as_str().unwrap_or_default();
    let (key, effect) = (text("key"), text("effect"));
    let value = text("operator") == "Exists" || text("value") == taint.value;
    value && (key.is_empty() || key == taint.key) && (effect.is_empty() || effect == taint.effect)
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

fn corefile(domain: &str, dns: &CoreDns) -> String {
    let list = |given: &[String], otherwise: &str| {
        if given.is_empty() {
            otherwise.to_owned()
        } else {
            given.join(" ")
        }
    };
    let reverse = list(&dns.reverse, "in-addr.arpa ip6.arpa");
    let upstreams = list(&dns.upstreams, "/etc/resolv.conf");
    let mut text = format!(
        "\
.:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    kubernetes {domain} {reverse} {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
    }}
    prometheus :9153
    forward . {upstreams}
    cache 30
    loop
    reload
    loadbalance
}}
"
    );
    for (domain, servers) in &dns.stub_domains {
        let servers = servers.join(" ");
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\
{domain}:53 {{
    errors
    cache 30
    forward . {servers}
}}
"
        );
    }
    text
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

fn deployment(intent: &Intent, dns: &CoreDns) -> Value {
    let workers = intent.with_role(Role::Worker).count();
    let workers = u32::try_from(workers).unwrap_or(u32::MAX);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "coredns",
            "namespace": "kube-system",
            "labels": {"k8s-app": "kube-dns"},
        },
        "spec": {
            "replicas": dns.linear.replicas(workers, 0),
            "selector": {"matchLabels": {"k8s-app": "kube-dns"}},
            "strategy": dns.update_strategy.clone().unwrap_or_else(|| json!({
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            })),
            "template": {
                "metadata": {"labels": {"k8s-app": "kube-dns"}},
                "spec": pod(intent, dns),
            },
        },
    })
}

fn pod(intent: &Intent, dns: &CoreDns) -> Value {
    let mut pod = unspread(intent, dns);
    if is_spread(intent, dns) {
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

fn unspread(intent: &Intent, dns: &CoreDns) -> Value {
    let addons = json!({"key": "CriticalAddonsOnly", "operator": "Exists"});
    let tolerations: Vec<_> = [addons]
        .into_iter()
        .chain(dns.tolerations.clone())
        .collect();
    let priority = dns.priority_class.as_deref();
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
        "nodeSelector": node::on_linux(&dns.node_selector),
        "priorityClassName": priority.unwrap_or("system-cluster-critical"),
        "serviceAccountName": "coredns",
        "tolerations": tolerations,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corefile_asks_where_the_config_says() {
        let servers = |servers: &[&str]| servers.iter().map(|&server| server.to_owned()).collect();
        let dns = CoreDns {
            upstreams: servers(&["192.0.2.53", "tls://192.0.2.54"]),
            reverse: servers(&["10.0.0.0/8", "168.192.in-addr.arpa"]),
            stub_domains: [("corp.example.com".to_owned(), servers(&["192.0.2.60"]))].into(),
            ..CoreDns::default()
        };
        insta::assert_snapshot!(corefile("cluster.local", &dns), @r"
        .:53 {
            errors
            health {
                lameduck 5s
            }
            ready
            kubernetes cluster.local 10.0.0.0/8 168.192.in-addr.arpa {
                pods insecure
                fallthrough in-addr.arpa ip6.arpa
            }
            prometheus :9153
            forward . 192.0.2.53 tls://192.0.2.54
            cache 30
            loop
            reload
            loadbalance
        }
        corp.example.com:53 {
            errors
            cache 30
            forward . 192.0.2.60
        }
        ");
    }

    #[test]
    fn a_taint_is_tolerated_as_the_scheduler_has_it() {
        let taint = Taint {
            key: "a".to_owned(),
            value: "b".to_owned(),
            effect: "NoSchedule".to_owned(),
        };
        for (toleration, tolerated) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "a", "operator": "Exists"}), true),
            (json!({"key": "a", "value": "b"}), true),
            (json!({"key": "a", "value": "c"}), false),
            (json!({"key": "b", "operator": "Exists"}), false),
            (
                json!({"key": "a", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
        ] {
            assert_eq!(tolerates(&toleration, &taint), tolerated, "{toleration}");
        }
    }
}

//! A cache of names on each node, at an address that each node gives itself and at that of the Service
//! `kube-dns`. It has no way to the cluster but a second Service for the same pods. Names are RKE's.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::{
    config::{Dns, Intent, NodeLocal},
    desired::{Addon, addons::labelled, node},
};

/// The add-on's name.
pub(super) const NAME: &str = "nodelocal";

const NAMESPACE: &str = "kube-system";

/// The account, the pods, and the Service for their metrics.
const OBJECTS: &str = "node-local-dns";

pub(super) fn addon(intent: &Intent) -> Addon {
    // What its objects are called does not depend on it.
    let none = NodeLocal {
        address: Ipv4Addr::UNSPECIFIED,
        node_selector: [].into(),
        update_strategy: None,
        priority_class: None,
    };
    let cache = match &intent.dns {
        Dns::CoreDns(dns) => dns.node_local.as_ref(),
        Dns::None => None,
    };
    let cache = cache.unwrap_or(&none);
    labelled(
        NAME,
        vec![
            json!({
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": OBJECTS, "namespace": NAMESPACE},
            }),
            upstream(),
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": OBJECTS, "namespace": NAMESPACE},
                "data": {"Corefile": corefile(intent, cache)},
            }),
            daemon_set(intent, cache),
            metrics(),
        ],
    )
}

/// The cluster's DNS server at another address than the one that the cache takes for itself. The program
/// finds it by the variable that kubelet sets for this name.
fn upstream() -> Value {
    let port = |name: &str, protocol: &str| json!({"name": name, "port": 53, "protocol": protocol, "targetPort": 53});
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kube-dns-upstream",
            "namespace": NAMESPACE,
            "labels": {"k8s-app": "kube-dns", "kubernetes.io/name": "KubeDNSUpstream"},
        },
        "spec": {
            "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")],
            "selector": {"k8s-app": "kube-dns"},
        },
    })
}

/// Without a virtual address: who asks gets the nodes'.
fn metrics() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": OBJECTS, "namespace": NAMESPACE, "labels": {"k8s-app": OBJECTS}},
        "spec": {
            "clusterIP": "None",
            "ports": [{"name": "metrics", "port": 9253, "targetPort": 9253}],
            "selector": {"k8s-app": OBJECTS},
        },
    })
}

/// The program puts the addresses of its two upstreams in the place of the two words.
fn corefile(intent: &Intent, cache: &NodeLocal) -> String {
    let own = cache.address;
    let bind = format!("bind {own} {}", intent.services.cluster_dns_server);
    let zone = |zone: &str, cache: &str, to: &str, more: &str| {
        format!(
            "\
{zone}:53 {{
    errors
    {cache}
    reload
    loop
    {bind}
    forward . {to}
    prometheus :9253
{more}}}
"
        )
    };
    let cluster = "__PILLAR__CLUSTER__DNS__ {\n        force_tcp\n    }";
    let long = "cache {\n        success 9984 30\n        denial 9984 5\n    }";
    let dns = match &intent.dns {
        Dns::CoreDns(dns) => Some(dns),
        Dns::None => None,
    };
    let upstreams = dns.filter(|dns| !dns.upstreams.is_empty());
    let upstreams = upstreams.map_or_else(|| UPSTREAM.to_owned(), |dns| dns.upstreams.join(" "));
    let stubs = dns.map(|dns| &dns.stub_domains).into_iter().flatten();
    let stubs = stubs.map(|(domain, servers)| zone(domain, "cache 30", &servers.join(" "), ""));
    [
        zone(
            &intent.services.cluster_domain,
            long,
            cluster,
            &format!("    health {own}:8080\n"),
        ),
        zone("in-addr.arpa", "cache 30", cluster, ""),
        zone("ip6.arpa", "cache 30", cluster, ""),
        stubs.collect(),
        zone(".", "cache 30", &upstreams, ""),
    ]
    .concat()
}

/// The node's own name servers.
const UPSTREAM: &str = "__PILLAR__UPSTREAM__SERVERS__";

fn daemon_set(intent: &Intent, cache: &NodeLocal) -> Value {
    let priority = cache.priority_class.as_deref();
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": OBJECTS, "namespace": NAMESPACE, "labels": {"k8s-app": OBJECTS}},
        "spec": {
            "selector": {"matchLabels": {"k8s-app": OBJECTS}},
            "template": {
                "metadata": {"labels": {"k8s-app": OBJECTS}},
                "spec": {
                    "containers": [container(intent, cache)],
                    // The node's own resolver: not itself.
                    "dnsPolicy": "Default",
                    "hostNetwork": true,
                    "nodeSelector": node::on_linux(&cache.node_selector),
                    "priorityClassName": priority.unwrap_or("system-node-critical"),
                    "serviceAccountName": OBJECTS,
                    "tolerations": [{"operator": "Exists"}],
                    "volumes": [
                        {
                            "name": "xtables-lock",
                            "hostPath": {"path": "/run/xtables.lock", "type": "FileOrCreate"},
                        },
                        {
                            "name": "kube-dns-config",
                            "configMap": {"name": "kube-dns", "optional": true},
                        },
                        {
                            "name": "config-volume",
                            "configMap": {
                                "name": OBJECTS,
                                "items": [{"key": "Corefile", "path": "Corefile.base"}],
                            },
                        },
                    ],
                },
            },
            "updateStrategy": cache.update_strategy.clone().unwrap_or_else(|| json!({
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 1},
            })),
        },
    })
}

fn container(intent: &Intent, cache: &NodeLocal) -> Value {
    let own = cache.address;
    json!({
        "name": "node-cache",
        "image": intent.images.nodelocal,
        "args": [
            "-localip",
            format!("{own},{}", intent.services.cluster_dns_server),
            "-conf",
            "/etc/Corefile",
            "-upstreamsvc",
            "kube-dns-upstream",
        ],
        "livenessProbe": {
            "httpGet": {"host": own.to_string(), "path": "/health", "port": 8080},
            "initialDelaySeconds": 60,
            "timeoutSeconds": 5,
        },
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9253, "protocol": "TCP"},
        ],
        "resources": {"requests": {"cpu": "25m", "memory": "5Mi"}},
        // It makes an interface, and rules that keep its packets out of connection tracking.
        "securityContext": {"privileged": true},
        "volumeMounts": [
            {"name": "xtables-lock", "mountPath": "/run/xtables.lock"},
            {"name": "config-volume", "mountPath": "/etc/coredns"},
            {"name": "kube-dns-config", "mountPath": "/etc/kube-dns"},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::CoreDns, desired::fixture, model::Role};

    #[test]
    fn a_node_with_a_cache_asks_it_and_the_cache_asks_the_server() {
        let both = [
            (
                "n1",
                "10.0.0.2",
                &[Role::Etcd, Role::ControlPlane, Role::Worker][..],
            ),
            ("n2", "10.0.0.3", &[Role::Worker]),
        ];
        let mut intent = fixture::intent_of(&both);
        intent.dns = Dns::CoreDns(Box::new(CoreDns {
            upstreams: vec!["192.0.2.53".to_owned()],
            stub_domains: [("corp.example.com".to_owned(), vec!["192.0.2.60".to_owned()])].into(),
            node_local: Some(NodeLocal {
                address: Ipv4Addr::new(169, 254, 20, 10),
                node_selector: [("cache".to_owned(), "yes".to_owned())].into(),
                update_strategy: None,
                priority_class: None,
            }),
            ..CoreDns::default()
        }));
        let cached = intent.nodes.values_mut().next().unwrap();
        cached.labels.insert("cache".to_owned(), "yes".to_owned());
        let desired = fixture::desired(&intent);
        let dns: Vec<_> = desired
            .hosts
            .values()
            .map(|host| {
                let config = host.files["/etc/kubernetes/kubelet.yaml"].content.expose();
                let config = String::from_utf8_lossy(config).into_owned();
                let line = config.split_once("clusterDNS:\n").unwrap().1;
                line.lines().next().unwrap_or_default().to_owned()
            })
            .collect();
        assert_eq!(dns, ["- \"169.254.20.10\"", "- \"10.43.0.10\""]);
        let addon = desired.addons.iter().find(|addon| addon.name == NAME);
        let objects: Vec<_> = addon.unwrap().objects.values().collect();
        insta::with_settings!({filters => [("applied: .*", "applied: <digest>")]}, {
            let (workloads, others): (Vec<_>, Vec<_>) = objects
                .into_iter()
                .partition(|object| object["spec"]["template"].is_object());
            insta::assert_yaml_snapshot!(others);
            insta::assert_yaml_snapshot!("workloads", workloads);
        });
    }
}

//! metrics-server: what `kubectl top` and autoscalers ask. Unlike RKE's it verifies the kubelets, whose
//! certificates are signed by the cluster's authority.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    config::{Intent, MetricsServer},
    desired::{
        Addon,
        addons::{account, labelled, word},
        node,
    },
};

/// The add-on's name.
pub(super) const NAME: &str = "metrics-server";

const NAMESPACE: &str = "kube-system";

pub(super) fn addon(intent: &Intent) -> Addon {
    let [account, role, binding] = account(
        NAME,
        "system:metrics-server",
        &json!([
            {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
        ]),
    );
    let mut objects = vec![account, role, binding];
    objects.extend(rights());
    objects.extend([service(), deployment(intent), api_service()]);
    labelled(NAME, objects)
}

/// It asks the API server to authenticate and authorize its clients, and the role `view` includes metrics.
fn rights() -> [Value; 3] {
    let rbac = "rbac.authorization.k8s.io";
    let api_version = format!("{rbac}/v1");
    let subjects = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]);
    [
        json!({
            "apiVersion": api_version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "metrics-server:system:auth-delegator"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:auth-delegator"},
            "subjects": subjects,
        }),
        json!({
            "apiVersion": api_version,
            "kind": "RoleBinding",
            "metadata": {"name": "metrics-server-auth-reader", "namespace": NAMESPACE},
            "roleRef": {
                "apiGroup": rbac,
                "kind": "Role",
                "name": "extension-apiserver-authentication-reader",
            },
            "subjects": subjects,
        }),
        json!({
            "apiVersion": api_version,
            "kind": "ClusterRole",
            "metadata": {
                "name": "system:aggregated-metrics-reader",
                "labels": {
                    "rbac.authorization.k8s.io/aggregate-to-admin": "true",
                    "rbac.authorization.k8s.io/aggregate-to-edit": "true",
                    "rbac.authorization.k8s.io/aggregate-to-view": "true",
                },
            },
            "rules": [{
                "apiGroups": ["metrics.k8s.io"],
                "resources": ["nodes", "pods"],
                "verbs": ["get", "list", "watch"],
            }],
        }),
    ]
}

fn service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"k8s-app": NAME}},
        "spec": {
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 10250}],
            "selector": {"k8s-app": NAME},
        },
    })
}

/// Its certificate is one that it makes for itself, as in the project's own manifest.
fn api_service() -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {
            "group": "metrics.k8s.io",
            "groupPriorityMinimum": 100,
            "insecureSkipTLSVerify": true,
            "service": {"name": NAME, "namespace": NAMESPACE, "port": 443},
            "version": "v1beta1",
            "versionPriority": 100,
        },
    })
}

fn deployment(intent: &Intent) -> Value {
    // What its objects are called does not depend on it.
    let none = MetricsServer::default();
    let server = intent.metrics_server.as_ref().unwrap_or(&none);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"k8s-app": NAME}},
        "spec": {
            "replicas": server.replicas,
            "selector": {"matchLabels": {"k8s-app": NAME}},
            "strategy": server.update_strategy.clone().unwrap_or_else(|| json!({
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
            })),
            "template": {
                "metadata": {"labels": {"k8s-app": NAME}},
                "spec": pod(intent, server),
            },
        },
    })
}

fn pod(intent: &Intent, server: &MetricsServer) -> Value {
    let priority = server.priority_class.as_deref();
    let addons = json!({"key": "CriticalAddonsOnly", "operator": "Exists"});
    let tolerations: Vec<_> = [addons]
        .into_iter()
        .chain(server.tolerations.clone())
        .collect();
    json!({
        "containers": [container(intent, server)],
        "nodeSelector": node::on_linux(&server.node_selector),
        "priorityClassName": priority.unwrap_or("system-cluster-critical"),
        "serviceAccountName": NAME,
        "tolerations": tolerations,
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    })
}

fn container(intent: &Intent, server: &MetricsServer) -> Value {
    let probe = |path: &str| json!({"path": path, "port": 10250, "scheme": "HTTPS"});
    json!({
        "name": NAME,
        "image": intent.images.metrics_server,
        "args": args(&server.options),
        "livenessProbe": {"httpGet": probe("/livez"), "periodSeconds": 10, "failureThreshold": 3},
        "ports": [{"name": "https", "containerPort": 10250, "protocol": "TCP"}],
        // Ready with the first metrics: no later than that.
        "readinessProbe": {"httpGet": probe("/readyz"), "periodSeconds": 2, "failureThreshold": 3},
        "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    })
}

fn args(options: &BTreeMap<String, String>) -> Vec<String> {
    const INSECURE: &str = "kubelet-insecure-tls";
    const AUTHORITY: &str = "kubelet-certificate-authority";
    let mut flags = BTreeMap::from([
        ("cert-dir", "/tmp"),
        (
            AUTHORITY,
            "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        ),
        (
            "kubelet-preferred-address-types",
            "InternalIP,ExternalIP,Hostname",
        ),
        ("metric-resolution", "15s"),
        ("secure-port", "10250"),
    ]);
    flags.extend(
        options
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    // It takes one of the two.
    if flags.contains_key(INSECURE) && !options.contains_key(AUTHORITY) {
        flags.remove(AUTHORITY);
    }
    let words = flags.into_iter().map(|(name, value)| word(name, value));
    words.collect()
}

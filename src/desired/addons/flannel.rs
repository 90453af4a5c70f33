//! flannel: a VXLAN between the nodes. Names, network and VXLAN's numbers are RKE's.

use serde_json::{Value, json};

use crate::{
    config::{Flannel, Intent, Network},
    desired::{
        Addon,
        addons::{account, charts::canal::interface_of, labelled},
        node,
    },
    model::CNI_NETWORK,
};

/// The add-on's name.
pub(super) const NAME: &str = "flannel";

pub(super) fn addon(intent: &Intent) -> Addon {
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]);
    // What its objects are called does not depend on its options.
    let flannel = match &intent.network {
        Network::Flannel(flannel) => (**flannel).clone(),
        Network::Canal(_) | Network::Calico(_) | Network::None => Flannel::default(),
    };
    let [account, role, binding] = account("flannel", "flannel", &rules);
    labelled(
        NAME,
        vec![
            account,
            role,
            binding,
            config_map(intent, &flannel),
            daemon_set(intent, &flannel),
        ],
    )
}

fn config_map(intent: &Intent, flannel: &Flannel) -> Value {
    let cni = json!({
        "name": CNI_NETWORK,
        "cniVersion": "0.3.1",
        "plugins": [
            {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    let net = json!({
        "Network": intent.services.cluster_cidr.to_string(),
        "EnableNFTables": false,
        "Backend": backend(flannel),
    });
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-flannel-cfg", "namespace": "kube-system"},
        "data": {
            "cni-conf.json": format!("{cni:#}\n"),
            "net-conf.json": format!("{net:#}\n"),
        },
    })
}

fn backend(flannel: &Flannel) -> Value {
    let backend = &flannel.backend;
    let mut all = json!({"Type": backend.kind});
    if backend.kind == "vxlan" {
        all["VNI"] = backend.vni.into();
        all["Port"] = backend.port.into();
    }
    all
}

fn daemon_set(intent: &Intent, flannel: &Flannel) -> Value {
    let priority = flannel.priority_class.as_deref();
    // As RKE's template has it. A node's routes stay while its flanneld is replaced.
    let fifth = || json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%"}});
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "kube-flannel", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"k8s-app": "flannel"}},
            "template": {
                "metadata": {"labels": {"k8s-app": "flannel"}},
                "spec": {
                    "hostNetwork": true,
                    "nodeSelector": node::on_linux(&flannel.node_selector),
                    "priorityClassName": priority.unwrap_or("system-node-critical"),
                    "serviceAccountName": "flannel",
                    "tolerations": [{"operator": "Exists"}],
                    "initContainers": [install_cni_plugins(intent)],
                    "containers": [flanneld(intent, flannel)],
                    "volumes": [
                        host("run", "/run/flannel", "DirectoryOrCreate"),
                        host("cni-bin", "/opt/cni/bin", "DirectoryOrCreate"),
                        host("cni-conf", "/etc/cni/net.d", "DirectoryOrCreate"),
                        host("xtables-lock", "/run/xtables.lock", "FileOrCreate"),
                        {"name": "config", "configMap": {"name": "kube-flannel-cfg"}},
                    ],
                },
            },
            "updateStrategy": flannel.update_strategy.clone().unwrap_or_else(fifth),
        },
    })
}

fn host(name: &str, path: &str, kind: &str) -> Value {
    json!({"name": name, "hostPath": {"path": path, "type": kind}})
}

/// Its entrypoint copies /opt/cni/bin, where flannel's plugin is among the others.
fn install_cni_plugins(intent: &Intent) -> Value {
    json!({
        "name": "install-cni-plugins",
        "image": intent.images.cni_plugins,
        "volumeMounts": [{"name": "cni-bin", "mountPath": "/host/opt/cni/bin"}],
    })
}

/// Runs after flanneld has started. The CNI configuration makes the node Ready, so it is written only
/// when flanneld has the node's subnet: if it is written earlier, the first pods fail, and kubelet retries
/// them only ten seconds later. If flanneld has no subnet after a minute, it is restarted.
const INSTALL_CNI_CONF: &str = "\
tries=0
until [ $tries -ge 600 ]; do
  if [ -s /run/flannel/subnet.env ]; then
    exec cp -f /etc/kube-flannel/cni-conf.json /etc/cni/net.d/10-flannel.conflist
  fi
  sleep 0.1
  tries=$((tries + 1))
done
echo 'flanneld has no subnet for this node yet' >&2
exit 1
";

/// The interface of the address that kubelet announces, as all else uses; flanneld's own choice is that
/// of the default route, which on machines with two networks may be another one.
fn iface(intent: &Intent, flannel: &Flannel, announced: bool) -> Option<String> {
    if let Some(iface) = &flannel.iface {
        return Some(format!("--iface={iface}"));
    }
    if announced {
        return Some("--iface=$(NODE_IP)".to_owned());
    }
    let networks = interface_of(intent);
    (!networks.is_empty()).then(|| format!("--iface-regex={networks}"))
}

fn flanneld(intent: &Intent, flannel: &Flannel) -> Value {
    // With a cloud kubelet announces no address until the cloud's controller runs, which may need the network of pods.
    let announced = intent.cloud_provider.is_none();
    let mut args = vec!["--ip-masq".to_owned(), "--kube-subnet-mgr".to_owned()];
    args.extend(iface(intent, flannel, announced));
    let field = |name: &str, path: &str| {
        json!({
            "name": name,
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}},
        })
    };
    let mut env = vec![
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
    ];
    if announced {
        env.push(field("NODE_IP", "status.hostIP"));
    }
    env.extend([
        json!({"name": "EVENT_QUEUE_DEPTH", "value": "5000"}),
        // Not through the Service's address: kube-proxy may not have made it work yet, and a
        // packet to it that gets no answer costs half a minute.
        json!({"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"}),
        json!({"name": "KUBERNETES_SERVICE_PORT", "value": "6443"}),
    ]);
    json!({
        "name": "kube-flannel",
        "image": intent.images.flannel,
        "command": ["/opt/bin/flanneld"],
        "args": args,
        "env": env,
        "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", INSTALL_CNI_CONF]}}},
        "resources": {"requests": {"cpu": "100m", "memory": "50Mi"}},
        "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}},
        "volumeMounts": [
            {"name": "run", "mountPath": "/run/flannel"},
            {"name": "cni-conf", "mountPath": "/etc/cni/net.d"},
            {"name": "config", "mountPath": "/etc/kube-flannel"},
            {"name": "xtables-lock", "mountPath": "/run/xtables.lock"},
        ],
    })
}

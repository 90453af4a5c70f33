//! calico, run by its own operator: addresses by calico, routes by BGP, IP in IP between the nodes, as RKE
//! has it.

use serde_json::{Value, json};

use super::values;
use crate::{
    config::{Calico, Intent},
    desired::Chart,
};

/// The add-on's name.
pub(super) const NAME: &str = "calico";

pub(super) fn chart(intent: &Intent, options: &Calico) -> Chart {
    Chart {
        name: NAME.to_owned(),
        chart: "rke2-calico".to_owned(),
        namespace: "tigera-operator".to_owned(),
        crds: Some("rke2-calico-crd".to_owned()),
        values: values::with(values_of(intent, options), options.values.as_ref()),
    }
}

fn values_of(intent: &Intent, options: &Calico) -> Value {
    let Calico {
        mtu,
        volume_plugins,
        node_selector,
        tolerations,
        update_strategy,
        values: _,
    } = options;
    let cidr = intent.services.cluster_cidr.to_string();
    let mut network = json!({
        "bgp": "Enabled",
        // Charts of older releases would have VXLAN.
        "ipPools": [{"cidr": cidr, "encapsulation": "IPIP", "natOutgoing": "Enabled"}],
        // The address that kubelet announces; a chart's own choice is taken out, for only one may be there.
        "nodeAddressAutodetectionV4": {"firstFound": null, "kubernetes": "NodeInternalIP"},
    });
    if let Some(mtu) = mtu {
        network["mtu"] = (*mtu).into();
    }
    let roles = [("controlplane", "NoSchedule"), ("etcd", "NoExecute")];
    let roles = roles.map(|(role, effect)| {
        json!({
            "key": format!("node-role.kubernetes.io/{role}"),
            "operator": "Exists",
            "effect": effect,
        })
    });
    let tolerations: Vec<_> = roles.into_iter().chain(tolerations.clone()).collect();
    let mut installation = json!({
        "calicoNetwork": network,
        "controlPlaneTolerations": tolerations,
    });
    if let Some(strategy) = update_strategy {
        installation["nodeUpdateStrategy"] = strategy.clone();
    }
    if !node_selector.is_empty() {
        let pod = json!({"nodeSelector": node_selector});
        installation["calicoNodeDaemonSet"] = json!({"spec": {"template": {"spec": pod}}});
    }
    if let Some(folder) = volume_plugins {
        installation["flexVolumePath"] = format!("{folder}/").into();
    }
    json!({
        "global": {"clusterCIDRv4": cidr},
        "installation": installation,
    })
}

//! canal: flannel between the nodes, and the network policies of calico.

use serde_json::{Value, json};

use super::values;
use crate::{
    config::{Canal, Intent},
    desired::Chart,
};

/// The add-on's name.
pub(super) const NAME: &str = "canal";

pub(super) fn chart(intent: &Intent, options: &Canal) -> Chart {
    Chart {
        name: NAME.to_owned(),
        chart: "rke2-canal".to_owned(),
        namespace: "kube-system".to_owned(),
        crds: None,
        values: values::with(values_of(intent, options), options.values.as_ref()),
    }
}

fn values_of(intent: &Intent, options: &Canal) -> Value {
    let Canal {
        iface,
        backend,
        mtu,
        volume_plugins,
        values: _,
    } = options;
    let mut all = json!({
        "podCidr": intent.services.cluster_cidr.to_string(),
        "flannel": {
            "iface": iface.as_deref().unwrap_or_default(),
            "backend": backend.kind,
        },
        "calico": {
            // As RKE has them: they take back what nodes leave behind that are gone.
            "calicoKubeControllers": true,
            "vethuMTU": mtu.unwrap_or(1450),
        },
    });
    if backend.kind == "vxlan" {
        all["flannel"]["backendPort"] = backend.port.into();
        all["flannel"]["vni"] = backend.vni.into();
    }
    if let Some(folder) = volume_plugins {
        all["calico"]["flexVolumePluginDir"] = folder.as_str().into();
    }
    all
}

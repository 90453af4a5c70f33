//! canal: flannel between the nodes, and the network policies of calico.

use std::{collections::BTreeSet, net::IpAddr};

use serde_json::{Value, json};

use super::values;
use crate::{
    config::{Canal, Intent},
    desired::{Chart, network::CANAL_MTU},
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
            "regexIface": match iface {
                Some(_) => String::new(),
                None => interface_of(intent),
            },
            "backend": backend.kind,
        },
        "calico": {
            // As RKE has them: they take back what nodes leave behind that are gone.
            "calicoKubeControllers": true,
            "vethuMTU": mtu.unwrap_or(CANAL_MTU),
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

/// A regular expression for the interface that has a node's `internal_address`: flanneld's own choice is that of
/// the default route. Networks stand in it, not nodes, so that a node that joins changes nothing. Empty where a
/// node has none: there the chosen interface must be found by the default route.
pub(in crate::desired::addons) fn interface_of(intent: &Intent) -> String {
    let networks: Option<BTreeSet<String>> = intent
        .nodes
        .values()
        .map(|node| match node.internal_address.ip() {
            Some(IpAddr::V4(ip)) if node.has_internal_address => {
                let [a, b, c, _] = ip.octets();
                Some(format!("{a}\\.{b}\\.{c}"))
            }
            Some(_) | None => None,
        })
        .collect();
    let networks: Vec<String> = networks.unwrap_or_default().into_iter().collect();
    if networks.is_empty() {
        return String::new();
    }
    format!("^({})\\.", networks.join("|"))
}

#[cfg(test)]
mod tests {
    use super::interface_of;
    use crate::{config::Intent, desired::fixture::intent_of, model::Role};

    fn with_internal(addresses: &[Option<&str>]) -> Intent {
        let names = ["n1", "n2", "n3"];
        let nodes: Vec<_> = names
            .iter()
            .zip(addresses)
            .map(|(name, _)| (*name, "192.0.2.1", &[Role::Worker][..]))
            .collect();
        let mut intent = intent_of(&nodes);
        for (node, address) in intent.nodes.values_mut().zip(addresses) {
            if let Some(address) = address {
                node.internal_address = (*address).into();
                node.has_internal_address = true;
            }
        }
        intent
    }

    #[test]
    fn the_interface_is_that_of_the_internal_addresses() {
        let found = |addresses: &[Option<&str>]| interface_of(&with_internal(addresses));
        assert_eq!(
            found(&[Some("10.0.0.2"), Some("10.0.0.3")]),
            r"^(10\.0\.0)\."
        );
        assert_eq!(
            found(&[Some("10.0.1.2"), Some("10.0.0.3")]),
            r"^(10\.0\.0|10\.0\.1)\."
        );
        // One more in a network that is known changes nothing on the others.
        let before = found(&[Some("10.0.0.2"), Some("10.0.0.3")]);
        let after = found(&[Some("10.0.0.2"), Some("10.0.0.3"), Some("10.0.0.9")]);
        assert_eq!(before, after);
        assert_eq!(found(&[Some("10.0.0.2"), None]), "");
        assert_eq!(found(&[Some("10.0.0.2"), Some("a-name")]), "");
    }
}

//! canal: flannel between the nodes, and the network policies of calico.

use serde_json::json;

use crate::{
    config::{Canal, Intent},
    desired::Chart,
};

/// The add-on's name.
pub(super) const NAME: &str = "canal";

pub(super) fn chart(intent: &Intent, options: &Canal) -> Chart {
    let Canal {} = options;
    Chart {
        name: NAME.to_owned(),
        chart: "rke2-canal".to_owned(),
        namespace: "kube-system".to_owned(),
        crds: None,
        values: json!({"podCidr": intent.services.cluster_cidr.to_string()}),
    }
}

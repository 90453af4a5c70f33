//! The add-ons that are charts of the release: which are wanted, with which values. Pure.

mod calico;
pub(in crate::desired::addons) mod canal;
mod nginx;
mod traefik;
mod values;

use serde_json::json;

use crate::{
    config::{Ingress, Intent, Network},
    desired::{Chart, WantedChart, pki::Keys},
    model::KubernetesVersion,
};

/// Every add-on of this version that is a chart. What the cluster has of these and is not wanted is pruned.
pub(in crate::desired) const KNOWN: [&str; 4] =
    [canal::NAME, calico::NAME, nginx::NAME, traefik::NAME];

/// Those that the intent asks for, the network first.
pub(in crate::desired) fn wanted(intent: &Intent, keys: &Keys) -> Vec<WantedChart> {
    let network = match &intent.network {
        Network::Canal(options) => Some(canal::chart(intent, options)),
        Network::Calico(options) => Some(calico::chart(intent, options)),
        Network::Flannel(_) | Network::None => None,
    };
    let ingress = match &intent.ingress {
        Ingress::Nginx(options) => Some(nginx::chart(options)),
        Ingress::Traefik(options) => Some(traefik::chart(options)),
        Ingress::None => None,
    };
    let charts = network.into_iter().chain(ingress);
    charts
        .map(|chart| complete(placed(chart, intent), intent, keys))
        .collect()
}

/// With its images from the registry that has the system images, unless the user's own values name another.
fn placed(mut chart: Chart, intent: &Intent) -> Chart {
    if let Some(registry) = &intent.registries.default {
        let mut all = json!({"global": {"systemDefaultRegistry": registry}});
        values::lay_over(&mut all, chart.values);
        chart.values = all;
    }
    chart
}

/// With what it is rendered from. What a rendering comes out as is no part of the digest: some charts make
/// a random value each time.
fn complete(chart: Chart, intent: &Intent, keys: &Keys) -> WantedChart {
    let version: KubernetesVersion = intent.version;
    let (runtime, helm) = (&intent.images.runtime, &intent.images.klipper_helm);
    let Chart {
        name,
        chart: file,
        namespace,
        crds,
        values,
    } = &chart;
    let all = json!([
        name,
        file,
        namespace,
        crds,
        values,
        version.to_string(),
        runtime,
        helm
    ]);
    WantedChart {
        digest: keys.digest(all.to_string().as_bytes()),
        runtime: runtime.clone(),
        helm: helm.clone(),
        version,
        chart,
    }
}

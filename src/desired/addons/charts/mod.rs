//! The add-ons that are charts of the release: which are wanted, with which values. Pure.

mod calico;
pub(in crate::desired::addons) mod canal;
mod nginx;
mod traefik;
mod values;

use std::collections::BTreeSet;

use serde_json::json;

use crate::{
    catalog::{Catalogue, ChartImages},
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

/// True where the intent asks for one.
pub(in crate::desired) const fn any(intent: &Intent) -> bool {
    let network = matches!(intent.network, Network::Canal(_) | Network::Calico(_));
    let ingress = matches!(intent.ingress, Ingress::Nginx(_) | Ingress::Traefik(_));
    network || ingress
}

/// The images that charts name, as far as the catalogue has them, and the add-ons of which it has none.
pub(super) fn images(intent: &Intent) -> (BTreeSet<String>, BTreeSet<String>) {
    let catalogue = Catalogue::builtin().ok();
    let charts = catalogue.and_then(|catalogue| catalogue.chart_images(intent.version));
    let ChartImages {
        calico,
        nginx,
        webhook_certgen,
        traefik,
    } = charts.unwrap_or_default();
    let own = catalogue.and_then(|catalogue| catalogue.images(intent.version));
    let flannel = own.map(|own| own.flannel);
    let network = match intent.network {
        Network::Canal(_) => Some((canal::NAME, calico.zip(flannel).map(|(a, b)| vec![a, b]))),
        // Its operator brings its own.
        Network::Calico(_) => Some((calico::NAME, None)),
        Network::Flannel(_) | Network::None => None,
    };
    let ingress = match intent.ingress {
        Ingress::Nginx(_) => Some((
            nginx::NAME,
            nginx.zip(webhook_certgen).map(|(a, b)| vec![a, b]),
        )),
        Ingress::Traefik(_) => Some((traefik::NAME, traefik.map(|image| vec![image]))),
        Ingress::None => None,
    };
    let (mut images, mut unlisted) = (BTreeSet::new(), BTreeSet::new());
    for (name, named) in network.into_iter().chain(ingress) {
        match named {
            Some(named) => images.extend(named.iter().map(|it| intent.registries.place(it))),
            None => drop(unlisted.insert(name.to_owned())),
        }
    }
    (images, unlisted)
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

//! When a cluster's certificates expire, and which of them `up` renews. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    desired::{
        Desired, pki,
        pki::{Certificate, InUse},
    },
    facts::{Actual, HostFacts, HostView},
    model::{ClusterId, Component, NodeName, path},
    state::ClusterState,
};

/// The expiry of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateEnd {
    /// Its name, e.g. `kube-apiserver` or `etcd's CA`.
    pub name: String,
    /// When it expires.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub not_after: Timestamp,
    /// Whole days until then; negative if it has expired.
    pub days_left: i64,
}

/// A certificate authority that signs, and its expiry. `up` does not renew it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authority {
    /// Whose.
    #[serde(flatten)]
    pub end: CertificateEnd,
}

/// A certificate of the cluster, as `cert info` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// The node that has it; null for certificates that belong to no single node.
    pub node: Option<NodeName>,
    /// Its subject.
    pub subject: String,
    /// The names and addresses that it is valid for.
    pub subject_alternative_names: Vec<String>,
    /// Which, and its end.
    #[serde(flatten)]
    pub end: CertificateEnd,
    /// The next `up` renews it.
    pub renewed_by_next_up: bool,
    /// The ports of the node that served it in a TLS handshake; empty without `--served`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub served_on: Vec<u16>,
}

/// The certificates that were served, as DER, by node and port; or why none was seen.
pub type Served = BTreeMap<(NodeName, u16), Result<Vec<u8>, String>>;

/// The ports on which components of the cluster serve certificates that are files on their node. The others sign theirs
/// themselves when they start.
pub fn serving(actual: &Actual) -> Vec<(NodeName, u16)> {
    let of_node = |name| {
        let all = Component::ALL.into_iter();
        let running = all.filter(move |component| actual.runs(*component, name));
        let ports = running.flat_map(|component| ports(component).iter().copied());
        ports.map(|port| (NodeName::clone(name), port))
    };
    actual.hosts.keys().flat_map(of_node).collect()
}

const fn ports(component: Component) -> &'static [u16] {
    match component {
        Component::Etcd => &[2379, 2380],
        Component::ApiServer => &[6443],
        Component::Kubelet => &[10250],
        Component::ControllerManager
        | Component::Scheduler
        | Component::KubeProxy
        | Component::NginxProxy
        | Component::Snapshots => &[],
    }
}

fn component_on(port: u16) -> Option<Component> {
    let mut all = Component::ALL.into_iter();
    all.find(|component| ports(*component).contains(&port))
}

fn end(certificate: &Certificate, now: Timestamp) -> CertificateEnd {
    CertificateEnd {
        name: certificate.name.clone(),
        not_after: certificate.not_after,
        days_left: certificate.days_left(now),
    }
}

/// The authorities.
pub(super) fn authorities(saved: &ClusterState, now: Timestamp) -> Vec<Authority> {
    let all = pki::authorities(saved);
    let all = all.iter().map(|one| Authority { end: end(one, now) });
    all.collect()
}

/// The certificate on a node that ends first.
pub(super) fn first_on(
    facts: &HostFacts,
    id: &ClusterId,
    now: Timestamp,
) -> Option<CertificateEnd> {
    let all = pki::on_node(facts);
    let files = all.values().map(|one| end(one, now));
    let used = pki::in_use(facts, id);
    let used = used.iter().filter_map(|one| end_in_use(one, now));
    files.chain(used).min_by_key(|end| end.not_after)
}

/// Of one that a component runs with.
fn end_in_use(used: &InUse, now: Timestamp) -> Option<CertificateEnd> {
    let file = used.path.rsplit('/').next()?.strip_suffix(".pem")?;
    let not_after = used.not_after()?;
    let seconds = not_after.as_second().saturating_sub(now.as_second());
    Some(CertificateEnd {
        name: format!("{file} (in use by {})", used.component),
        not_after,
        days_left: seconds.div_euclid(86_400),
    })
}

/// Every certificate of a cluster that is known: the authorities' of the state, the
/// administrator's of the kubeconfig, and those of the nodes that were read.
///
/// One that is served and is in no file of its node has a row for each port. What could not be asked has none.
pub fn certificates(
    actual: &Actual,
    desired: Option<&Desired>,
    served: &Served,
    now: Timestamp,
) -> Vec<CertificateStatus> {
    let Some(saved) = &actual.saved else {
        return Vec::new();
    };
    let status = |one: &Certificate, node: Option<&NodeName>, renewed| CertificateStatus {
        node: node.cloned(),
        subject: one.subject.clone(),
        subject_alternative_names: one.sans.clone(),
        end: end(one, now),
        renewed_by_next_up: renewed,
        served_on: Vec::new(),
    };
    let authorities = pki::authorities(saved);
    let authorities = authorities.iter().map(|one| status(one, None, false));
    let kubeconfig = actual.kubeconfig.as_ref();
    let administrator = kubeconfig.and_then(|text| pki::administrator(text, &saved.cluster_name));
    let administrator = administrator.iter().map(|one| {
        let differs = desired.is_some_and(|want| Some(&want.kubeconfig) != kubeconfig);
        let ours = saved.given.api.is_none();
        status(one, None, differs || ours && one.ends_soon(now))
    });
    let on_nodes = actual.hosts.iter().flat_map(|(name, view)| {
        let facts = match view {
            HostView::Reachable(facts) => Some(facts),
            HostView::Unreachable(_) => None,
        };
        let files = facts.map(|facts| pki::on_node(facts)).unwrap_or_default();
        let served = served_by(name, served);
        let in_no_file = served
            .iter()
            .filter(|(_, one)| !files.values().any(|file| file.is(one)));
        let in_no_file: Vec<_> = in_no_file
            .map(|(port, one)| CertificateStatus {
                served_on: vec![*port],
                ..status(one, Some(name), false)
            })
            .collect();
        let all = files.into_iter().map(|(path, one)| {
            let ports = served.iter().filter(|(_, it)| it.is(&one));
            let served_on = ports.map(|(port, _)| *port).collect();
            let differs = desired.is_some_and(|want| is_replaced(want, actual, name, path));
            let given = format!("{name}/{}", one.name);
            let theirs = path == path::EXTERNAL_ETCD_CERTIFICATE;
            let ours = !theirs && !saved.given.leaves.contains(&given);
            CertificateStatus {
                served_on,
                ..status(&one, Some(name), differs || ours && one.ends_soon(now))
            }
        });
        let used = facts.map(|facts| pki::in_use(facts, &saved.cluster_id));
        let used = used.unwrap_or_default().into_iter().filter_map(|one| {
            Some(CertificateStatus {
                node: Some(name.clone()),
                end: end_in_use(&one, now)?,
                subject: one.record.subject,
                subject_alternative_names: one.record.names,
                renewed_by_next_up: true,
                served_on: Vec::new(),
            })
        });
        all.chain(used).chain(in_no_file).collect::<Vec<_>>()
    });
    authorities.chain(administrator).chain(on_nodes).collect()
}

/// What a node serves, by port.
fn served_by(node: &NodeName, served: &Served) -> BTreeMap<u16, Certificate> {
    let of_node = served.iter().filter(|((name, _), _)| name == node);
    of_node
        .filter_map(|((_, port), der)| {
            let by = component_on(*port)?;
            let name = format!("served by {by}, in no file");
            Some((*port, Certificate::of_der(&name, der.as_ref().ok()?)?))
        })
        .collect()
}

/// Another content is wanted in a file of a node.
fn is_replaced(want: &Desired, actual: &Actual, node: &NodeName, path: &str) -> bool {
    let wanted = want.hosts.get(node).and_then(|host| host.files.get(path));
    let files = actual.up(node).and_then(|facts| facts.files.as_ref());
    let there = files.and_then(|files| files.get(path));
    match (wanted, there) {
        (Some(wanted), Some(there)) => wanted.content != *there.content,
        (_, _) => false,
    }
}

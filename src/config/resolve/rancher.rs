//! What Rancher's exports call by another name than RKE's files.

use crate::config::{
    problem::Problem,
    tree::{Entry, Node, Value},
};

/// Rancher's name, and RKE's, wherever they stand.
const NAMES: &[(&str, &str)] = &[
    ("kube_api", "kube-api"),
    ("kube_controller", "kube-controller"),
    ("ignore_daemon_sets", "ignore_daemonsets"),
    ("vsphere_cloud_provider", "vsphereCloudProvider"),
    ("aws_cloud_provider", "awsCloudProvider"),
    ("azure_cloud_provider", "azureCloudProvider"),
    ("openstack_cloud_provider", "openstackCloudProvider"),
    ("harvester_cloud_provider", "harvesterCloudProvider"),
    ("custom_cloud_provider", "customCloudProvider"),
    ("s3_backup_config", "s3backupconfig"),
    ("upstream_nameservers", "upstreamnameservers"),
    ("reverse_cidrs", "reversecidrs"),
    ("stub_domains", "stubdomains"),
    (
        "use_instance_metadata_hostname",
        "useInstanceMetadataHostname",
    ),
];

/// The same with RKE's names, and where others stood.
pub(super) fn as_rke(node: &Node) -> (Node, Vec<Problem>) {
    let mut problems = Vec::new();
    let node = renamed(node, "", &mut problems);
    (node, problems)
}

fn renamed(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Node {
    let value = match &node.value {
        Value::Map(entries) => Value::Map(
            entries
                .iter()
                .map(|entry| {
                    let known = NAMES.iter().find(|(rancher, _)| *rancher == entry.key);
                    let key = known.map_or(entry.key.as_str(), |(_, rke)| rke);
                    let path = if path.is_empty() {
                        key.to_owned()
                    } else {
                        format!("{path}.{key}")
                    };
                    if let Some((rancher, rke)) = known {
                        let problem = Problem {
                            place: entry.key_place.clone(),
                            ..Problem::new(path.clone(), format!("Rancher calls this `{rancher}`"))
                        };
                        problems.push(problem.hint(format!("write it as `{rke}`")));
                    }
                    Entry {
                        key: key.to_owned(),
                        key_place: entry.key_place.clone(),
                        node: renamed(&entry.node, &path, problems),
                    }
                })
                .collect(),
        ),
        other @ (Value::Null | Value::Scalar(_) | Value::List(_)) => other.clone(),
    };
    Node {
        value,
        ..node.clone()
    }
}

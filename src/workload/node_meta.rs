//! Writes our labels, annotations and taints of a Node object:
//! [`crate::facts::node_changes`] says which.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};

use super::{
    WorkloadError,
    objects::{patiently, within},
    read::fact,
};
use crate::{
    facts::node_patch,
    model::{NodeMeta, NodeName},
};

/// How often a conflicting write is tried again: kubelet writes its Node object, too.
const TRIES: usize = 5;

/// Sets a node's labels, annotations and taints. The node has registered itself: see
/// [`super::await_registered`].
pub async fn set_node_meta(
    client: &Client,
    name: &NodeName,
    meta: &NodeMeta,
) -> Result<(), WorkloadError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let doing = format!("set labels and taints of node `{name}`");
    let mut tries = 0;
    loop {
        let node = patiently(&doing, || nodes.get(&name.0)).await?;
        let version = node.metadata.resource_version.as_deref();
        let Some(patch) = node_patch(&fact(&node), meta, version) else {
            return Ok(());
        };
        let params = PatchParams {
            field_manager: Some(super::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        tries += 1;
        let patch = Patch::Merge(&patch);
        match within(nodes.patch(&name.0, &params, &patch)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() && tries < TRIES => {}
            Err(error) => return Err(WorkloadError::api(doing, error)),
        }
    }
}

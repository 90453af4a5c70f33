//! The address of a Service that was asked for by number. The API server takes note of the address
//! before it stores the Service. When the request is cut off in between (this process was killed,
//! the connection was lost), the note stays, and the same Service is refused, until the server's
//! own repair finds that no Service belongs to it: about a minute.

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde_json::Value;

use super::{WorkloadError, objects::within, pages};
use crate::model::ObjectRef;

/// Why a Service is refused: another Service has its address, or none has it and it is soon free. Every other
/// error stays as it is.
pub(super) async fn explain(
    client: &Client,
    object: &ObjectRef,
    wanted: &Value,
    error: WorkloadError,
) -> WorkloadError {
    let addresses = addresses(wanted);
    if addresses.is_empty() || !refuses_address(&error) {
        return error;
    }
    let services = Api::<Service>::all(client.clone());
    let mut holder = None;
    let everything = ListParams::default();
    let listed = pages::each(&services, &everything, |service| {
        let at = (service.namespace(), service.name_any());
        let another = at != (Some(object.namespace.clone()), object.name.clone());
        let holds = another && held(&service).any(|address| addresses.contains(&address));
        if holds && holder.is_none() {
            holder = Some(service);
        }
    });
    if let Err(source) = within(listed).await {
        return WorkloadError::api("list the Services", source);
    }
    WorkloadError::Address {
        service: object.to_string(),
        address: addresses.join(", "),
        holder: holder.map(|holder| {
            let namespace = holder.namespace().unwrap_or_default();
            format!("{namespace}/{}", holder.name_any())
        }),
        source: Box::new(error),
    }
}

/// True if the server refuses the address: the error names its field.
fn refuses_address(error: &WorkloadError) -> bool {
    let WorkloadError::Api { source, .. } = error else {
        return false;
    };
    let Some(kube::Error::Api(status)) = source.downcast_ref::<kube::Error>() else {
        return false;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422
        && causes
            .into_iter()
            .any(|cause| cause.field == "spec.clusterIPs")
}

/// The addresses that a Service asks for by number.
fn addresses(wanted: &Value) -> Vec<&str> {
    let spec = &wanted["spec"];
    let several = spec["clusterIPs"].as_array().into_iter().flatten();
    let mut addresses: Vec<_> = several
        .chain([&spec["clusterIP"]])
        .filter_map(Value::as_str)
        .filter(|address| !matches!(*address, "" | "None"))
        .collect();
    addresses.dedup();
    addresses
}

/// The addresses that a Service has.
fn held(service: &Service) -> impl Iterator<Item = &str> {
    let spec = service.spec.iter();
    spec.flat_map(|spec| spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip))
        .map(String::as_str)
}

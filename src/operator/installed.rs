//! The definitions that the management cluster has: whether it serves what this release writes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Definition;
use kube::{Api, Client, ResourceExt};

use super::OperatorError;
use crate::{
    api::{self, SCHEMA, SCHEMA_VERSION},
    model::version,
};

/// What is wrong with an installed definition.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsuited {
    /// Fields that this release writes would be thrown away.
    #[error(
        "is older than this operator: its schema is number {there}, and this one writes number {SCHEMA}"
    )]
    Older {
        /// What is installed; 0 where it has no number.
        there: u32,
    },
    /// The API server does not serve it.
    #[error("is not served in the version {}", api::VERSION)]
    NotServed,
}

/// The oldest minor release of Kubernetes for a management cluster: the first that has admission policies, and that takes
/// an edit of an object which another part of the schema would refuse now.
pub const OLDEST: u32 = 30;

/// Looks at the release of the management cluster.
pub(super) async fn check_release(client: &Client) -> Result<(), OperatorError> {
    let told = client.apiserver_version().await;
    let told = told.map_err(OperatorError::Unreachable)?.git_version;
    match version(&told) {
        Some(release) if (release.0, release.1) < (1, OLDEST) => {
            Err(OperatorError::TooOld { version: told })
        }
        // A name that is not known may be a later one.
        Some(_) | None => Ok(()),
    }
}

/// Looks at the definitions, and says at once what would otherwise be a retry for ever.
pub(super) async fn check(client: &Client) -> Result<(), OperatorError> {
    let definitions: Api<Definition> = Api::all(client.clone());
    for (_, ours) in api::definitions() {
        let what = ours.name_any();
        let there = definitions
            .get(&what)
            .await
            .map_err(|source| OperatorError::reading("get", &what, source))?;
        suits(&there).map_err(|why| OperatorError::Definition { what, why })?;
    }
    Ok(())
}

/// Whether the definition of `Cluster` is being deleted, or is gone: then every object is deleted with it, and
/// no user has asked for any cluster to be removed. Read from the API, because a cache may be outdated.
pub(super) async fn goes_away(client: &Client) -> kube::Result<bool> {
    let definitions: Api<Definition> = Api::all(client.clone());
    let there = definitions.get_metadata_opt(CLUSTERS).await?;
    Ok(there.is_none_or(|there| there.metadata.deletion_timestamp.is_some()))
}

/// The definition of `Cluster`.
const CLUSTERS: &str = "clusters.clusterprovisioner.rke.io";

/// A newer one is fine: within a version, fields are only added.
fn suits(there: &Definition) -> Result<(), Unsuited> {
    let number = there.annotations().get(SCHEMA_VERSION);
    let number = number.and_then(|text| text.parse().ok()).unwrap_or(0);
    if number < SCHEMA {
        return Err(Unsuited::Older { there: number });
    }
    let mut versions = there.spec.versions.iter();
    let served = versions.any(|version| version.name == api::VERSION && version.served);
    let status = there.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_deref())
        .into_iter()
        .flatten();
    let established =
        conditions.any(|condition| condition.type_ == "Established" && condition.status == "True");
    if served && established {
        Ok(())
    } else {
        Err(Unsuited::NotServed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn established(mut definition: Definition) -> Definition {
        let status = json!({
            "conditions": [{"type": "Established", "status": "True"}],
            "acceptedNames": {"kind": "a", "plural": "a"}, "storedVersions": [],
        });
        definition.status = Some(serde_json::from_value(status).unwrap());
        definition
    }

    #[test]
    fn an_older_definition_is_refused_and_a_newer_one_is_not() {
        for (_, ours) in api::definitions() {
            let mut there = established(ours);
            assert_eq!(suits(&there), Ok(()));
            let number = |number: u32| (SCHEMA_VERSION.to_owned(), number.to_string());
            there.annotations_mut().extend([number(SCHEMA + 1)]);
            assert_eq!(suits(&there), Ok(()));
            there.annotations_mut().extend([number(SCHEMA - 1)]);
            assert_eq!(suits(&there), Err(Unsuited::Older { there: SCHEMA - 1 }));
            there.annotations_mut().clear();
            assert_eq!(suits(&there), Err(Unsuited::Older { there: 0 }));
        }
    }

    #[test]
    fn a_definition_must_be_served() {
        for (_, ours) in api::definitions() {
            assert_eq!(suits(&ours), Err(Unsuited::NotServed), "not established");
            let mut there = established(ours);
            there.spec.versions[0].served = false;
            assert_eq!(suits(&there), Err(Unsuited::NotServed));
        }
    }
}

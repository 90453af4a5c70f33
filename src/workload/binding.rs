//! A user bound to a `ClusterRole` in the cluster: by one `ClusterRoleBinding`, which names what it was made for in a
//! label.
//! One of that name without the label is another's, and stays.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};

use super::{WorkloadError, objects::patiently};
use crate::model::label;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Who is bound to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserBinding {
    /// What it is made for: its name and its label are made of this.
    pub made_for: String,
    /// The user.
    pub user: String,
    /// The `ClusterRole`.
    pub role: String,
}

/// The result of ensuring a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// It was as it must be.
    Already,
    /// It was created, or created again.
    Now,
    /// Another object has the name.
    NotOurs,
}

impl UserBinding {
    /// The name of the `ClusterRoleBinding`.
    pub fn name(made_for: &str) -> String {
        format!("rke-operator-kubeconfig-{made_for}")
    }

    fn object(&self) -> ClusterRoleBinding {
        ClusterRoleBinding {
            metadata: ObjectMeta {
                name: Some(Self::name(&self.made_for)),
                labels: Some(BTreeMap::from([(
                    label::KUBECONFIG.to_owned(),
                    self.made_for.clone(),
                )])),
                ..ObjectMeta::default()
            },
            role_ref: RoleRef {
                api_group: Some(RBAC.to_owned()),
                kind: "ClusterRole".to_owned(),
                name: self.role.clone(),
            },
            subjects: Some(vec![Subject {
                api_group: Some(RBAC.to_owned()),
                kind: "User".to_owned(),
                name: self.user.clone(),
                namespace: None,
            }]),
        }
    }
}

fn is_for(there: &ClusterRoleBinding, made_for: &str) -> bool {
    let label = there.labels().get(label::KUBECONFIG);
    label.is_some_and(|label| label == made_for)
}

async fn read(
    bindings: &Api<ClusterRoleBinding>,
    name: &str,
) -> Result<Option<ClusterRoleBinding>, WorkloadError> {
    let doing = format!("read ClusterRoleBinding `{name}`");
    patiently(&doing, || bindings.get_opt(name)).await
}

/// Binds the user. To what a binding leads cannot be edited: one to another role is deleted, and made again.
pub async fn bind_user(client: &Client, wanted: &UserBinding) -> Result<Bound, WorkloadError> {
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let name = UserBinding::name(&wanted.made_for);
    let object = wanted.object();
    if let Some(there) = read(&bindings, &name).await? {
        if !is_for(&there, &wanted.made_for) {
            return Ok(Bound::NotOurs);
        }
        if there.role_ref == object.role_ref && there.subjects == object.subjects {
            return Ok(Bound::Already);
        }
        delete(&bindings, &there).await?;
    }
    let doing = format!("create ClusterRoleBinding `{name}`");
    let params = PostParams::default();
    patiently(&doing, || async {
        match bindings.create(&params, &object).await {
            Ok(_) => Ok(()),
            // A try whose answer was lost made it.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = bindings.get_opt(&name).await?;
                let ours = there.filter(|there| is_for(there, &wanted.made_for));
                ours.map(drop).ok_or(kube::Error::Api(status))
            }
            Err(error) => Err(error),
        }
    })
    .await?;
    Ok(Bound::Now)
}

/// Unbinds. Nothing there, or another's object under the name, is success: no user is bound by this.
pub async fn unbind_user(client: &Client, made_for: &str) -> Result<(), WorkloadError> {
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let there = read(&bindings, &UserBinding::name(made_for)).await?;
    match there.filter(|there| is_for(there, made_for)) {
        Some(there) => delete(&bindings, &there).await,
        None => Ok(()),
    }
}

async fn delete(
    bindings: &Api<ClusterRoleBinding>,
    there: &ClusterRoleBinding,
) -> Result<(), WorkloadError> {
    let name = there.name_any();
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: there.uid(),
        resource_version: None,
    });
    let doing = format!("delete ClusterRoleBinding `{name}`");
    patiently(&doing, || async {
        match bindings.delete(&name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    })
    .await
}

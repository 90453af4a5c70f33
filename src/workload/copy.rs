//! The copy of the state in the cluster's own `kube-system`: one of the places from which a lost
//! store can be recovered.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret as KubeSecret};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams},
};

use super::{WorkloadError, objects};
use crate::{
    facts::StateCopy,
    model::label,
    state::{ClusterState, codec},
};

/// Where.
pub(super) const NAMESPACE: &str = "kube-system";

/// The Secret's name.
pub(super) const NAME: &str = "rke-operator-state";

const KEY: &str = "state.json";

/// Its namespace, its name, and the key of the document in it.
pub(crate) const STATE_COPY: (&str, &str, &str) = (NAMESPACE, NAME, KEY);

/// Writes the copy, whatever is there.
pub async fn save_state_copy(client: &Client, saved: &ClusterState) -> Result<(), WorkloadError> {
    let content = codec::encode(&saved.copy()).expose().clone().into_bytes();
    let secret = KubeSecret {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            labels: Some(BTreeMap::from([(
                label::CLUSTER_ID.to_owned(),
                saved.cluster_id.0.clone(),
            )])),
            ..ObjectMeta::default()
        },
        type_: Some("clusterprovisioner.rke.io/state".to_owned()),
        data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(content))])),
        ..KubeSecret::default()
    };
    let secrets: Api<KubeSecret> = Api::namespaced(client.clone(), NAMESPACE);
    let params = PatchParams::apply(super::FIELD_MANAGER).force();
    let patch = Patch::Apply(&secret);
    objects::patiently("save the copy of the state", || {
        secrets.patch(NAME, &params, &patch)
    })
    .await
    .map(|_| ())
}

/// What the copy says.
pub(super) fn read(secret: Option<&KubeSecret>) -> StateCopy {
    let Some(secret) = secret else {
        return StateCopy::Absent;
    };
    let content = secret.data.as_ref().and_then(|data| data.get(KEY));
    let text = content.and_then(|content| std::str::from_utf8(&content.0).ok());
    // Without a whole document it says nothing, and is written again.
    match text.filter(|text| codec::is_whole(text)).map(codec::decode) {
        None => StateCopy::Absent,
        Some(Ok(state)) => StateCopy::Is(Box::new(state)),
        Some(Err(why)) => StateCopy::Unreadable(why),
    }
}

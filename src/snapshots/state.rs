//! The state of a cluster out of a snapshot: it is kept in the cluster, too, so that a snapshot has it. Where Secrets are
//! encrypted it cannot be read: the key is in it.

use std::{collections::HashMap, fs, path::Path};

use k8s_openapi::api::core::v1::Secret as KubeSecret;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::{
    asked::AskedError,
    folder::{ASKED, Folder},
    prove::value,
    run::Programs,
    save::{private, room},
};
use crate::{
    etcd::snapshot::SnapshotName,
    model::{ClusterId, Secret},
    workload::STATE_COPY,
};

/// Where the document is written in the container: keys are in no log.
pub const DOCUMENT: &str = "/rke-operator-state.json";

/// What a snapshot has of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum HeldState {
    /// It was written to the file.
    Is,
    /// It is encrypted.
    Encrypted,
    /// There is none.
    Absent,
    /// The snapshot cannot be read.
    Unreadable {
        /// Why.
        why: String,
    },
}

/// Reads the state out of a plain snapshot in the folder, by restoring it for trial, and writes it to a new file.
pub async fn state(
    programs: &Programs,
    name: &SnapshotName,
    document: &Path,
) -> Result<HeldState, AskedError> {
    let _ = rustix::process::nice(10);
    // Whose the snapshot is, the state says.
    let nobodys = ClusterId(String::new());
    let folder = Folder::open(programs.folder.clone(), nobodys, ASKED)?;
    let database = folder.path().join(name.as_str());
    room(&folder, fs::metadata(&database)?.len())?;
    let work = folder.work()?;
    let held = value(programs, &work, &database, &key()).await;
    folder.clear()?;
    let held = match held {
        Ok(held) => held,
        Err(why) => return Ok(HeldState::Unreadable { why }),
    };
    match held
        .as_ref()
        .map_or(Stored::Absent, |value| stored(value.expose()))
    {
        Stored::Is(text) => {
            let mut file = private(document)?;
            std::io::Write::write_all(&mut file, text.expose())?;
            Ok(HeldState::Is)
        }
        Stored::Encrypted => Ok(HeldState::Encrypted),
        Stored::Absent => Ok(HeldState::Absent),
    }
}

/// Where API servers keep the Secret.
fn key() -> String {
    let (namespace, name, _) = STATE_COPY;
    format!("/registry/secrets/{namespace}/{name}")
}

#[derive(Debug, PartialEq)]
enum Stored {
    Is(Secret<Vec<u8>>),
    Encrypted,
    Absent,
}

/// What comes before an object that is encrypted.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// What comes before a protobuf message.
const PROTOBUF: &[u8] = b"k8s\0";

/// The field that we read, of Kubernetes' message of this name.
#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

/// The field that we read, of Kubernetes' message `Secret`.
#[derive(Clone, PartialEq, Message)]
struct StoredSecret {
    #[prost(map = "string, bytes", tag = "2")]
    data: HashMap<String, Vec<u8>>,
}

/// The document in what an API server has stored: as protobuf, or as JSON where a flag asks for it.
fn stored(value: &[u8]) -> Stored {
    let (_, _, key) = STATE_COPY;
    if value.starts_with(ENCRYPTED) {
        return Stored::Encrypted;
    }
    let document = match value.strip_prefix(PROTOBUF) {
        Some(message) => Unknown::decode(message)
            .and_then(|unknown| StoredSecret::decode(unknown.raw.as_slice()))
            .ok()
            .and_then(|mut secret| secret.data.remove(key)),
        None => serde_json::from_slice::<KubeSecret>(value)
            .ok()
            .and_then(|secret| secret.data?.remove(key))
            .map(|content| content.0),
    };
    document.map_or(Stored::Absent, |document| Stored::Is(document.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_read_in_each_form_in_which_api_servers_store_a_secret() {
        let (_, _, key) = STATE_COPY;
        let data = HashMap::from([
            ("another".to_owned(), b"no".to_vec()),
            (key.to_owned(), b"{}".to_vec()),
        ]);
        let raw = StoredSecret { data }.encode_to_vec();
        let protobuf = [PROTOBUF, &Unknown { raw }.encode_to_vec()].concat();
        let json = format!(r#"{{"kind": "Secret", "data": {{"{key}": "e30="}}}}"#);
        for value in [protobuf.as_slice(), json.as_bytes()] {
            assert_eq!(stored(value), Stored::Is(b"{}".to_vec().into()));
        }
        assert_eq!(stored(b"k8s:enc:secretbox:v1:k:"), Stored::Encrypted);
        for value in [b"".as_slice(), b"{}", b"k8s\0\xff", PROTOBUF] {
            assert_eq!(stored(value), Stored::Absent);
        }
    }
}

//! What a backup asks of one member: how it is, how many keys there are, and all of its data.

use std::collections::BTreeSet;

use bytes::{Buf, BytesMut};
use http::{
    Request,
    header::{CONTENT_TYPE, TE},
};
use http_body_util::{BodyExt, Full};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::{
    Answer, Client, EtcdError,
    client::{grpc_status, no_answer},
    grpc,
    view::AlarmKind,
    wire,
};
use crate::model::Secret;

/// etcd's range of all keys.
const ALL: &[u8] = &[0];

/// A member, as a backup needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// What it says about itself.
    pub answer: Answer,
    /// So many entries of the log it has not applied yet.
    pub behind: u64,
    /// etcd found that its members have different data.
    pub corrupt: bool,
}

/// Keys at a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// etcd's revision.
    pub revision: i64,
    /// How many keys there are.
    pub keys: u64,
}

/// A range of keys, or one.
#[derive(Serialize)]
struct RangeRequest<'a> {
    #[serde(serialize_with = "base64")]
    key: &'a [u8],
    #[serde(serialize_with = "base64")]
    range_end: &'a [u8],
    count_only: bool,
    /// The member answers by what it has itself.
    serializable: bool,
}

fn base64<S: serde::Serializer>(bytes: &&[u8], to: S) -> Result<S::Ok, S::Error> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    to.serialize_str(&STANDARD.encode(bytes))
}

#[derive(Deserialize)]
struct CountResponse {
    header: CountHeader,
    #[serde(default, deserialize_with = "wire::number")]
    count: u64,
}

#[derive(Deserialize)]
struct ValueResponse {
    #[serde(default)]
    kvs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Pair {
    #[serde(deserialize_with = "unbase64")]
    value: Secret<Vec<u8>>,
}

fn unbase64<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Secret<Vec<u8>>, D::Error> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let text = Secret::<String>::deserialize(from)?;
    let bytes = STANDARD.decode(text.expose());
    bytes.map(Secret::new).map_err(serde::de::Error::custom)
}

#[derive(Deserialize)]
struct CountHeader {
    #[serde(default, deserialize_with = "wire::number")]
    revision: i64,
}

impl Client {
    /// How the member is.
    pub async fn describe(&self) -> Result<Described, EtcdError> {
        let status = self.status().await?;
        let alarms = if status.errors.is_empty() {
            BTreeSet::new()
        } else {
            self.alarms().await?.set()
        };
        Ok(Described {
            behind: status.behind(),
            answer: status.answer(None),
            corrupt: alarms.iter().any(|alarm| alarm.kind == AlarmKind::Corrupt),
        })
    }

    /// How many keys the member has, at which revision.
    pub async fn count(&self) -> Result<Count, EtcdError> {
        self.count_within(ALL, ALL).await
    }

    /// True where the member has that key.
    pub async fn has(&self, key: &str) -> Result<bool, EtcdError> {
        let Count { keys, .. } = self.count_within(key.as_bytes(), &[]).await?;
        Ok(keys > 0)
    }

    /// What the member has under a key.
    pub async fn value(&self, key: &str) -> Result<Option<Secret<Vec<u8>>>, EtcdError> {
        let request = RangeRequest {
            key: key.as_bytes(),
            range_end: &[],
            count_only: false,
            serializable: true,
        };
        let answer: ValueResponse = self
            .ask("read a key in etcd", "/v3/kv/range", &request)
            .await?;
        let first = answer.kvs.into_iter().next();
        Ok(first.map(|pair| pair.value))
    }

    async fn count_within(&self, key: &[u8], range_end: &[u8]) -> Result<Count, EtcdError> {
        let request = RangeRequest {
            key,
            range_end,
            count_only: true,
            serializable: true,
        };
        let answer: CountResponse = self
            .ask("count the keys in etcd", "/v3/kv/range", &request)
            .await?;
        Ok(Count {
            revision: answer.header.revision,
            keys: answer.count,
        })
    }

    /// Writes all of the member's data, and behind them their SHA-256, byte for byte as `etcdctl snapshot save` does.
    /// The caller bounds the time. Nothing says that all has come but the hash.
    pub async fn snapshot(
        &self,
        to: &mut (impl AsyncWrite + Send + Unpin),
    ) -> Result<u64, EtcdError> {
        let doing = "read a snapshot of etcd";
        let request = Request::post(grpc::SNAPSHOT)
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .body(Full::new(grpc::nothing()));
        let (head, mut body) = self.sent(doing, request).await?.into_parts();
        let (mut bytes, mut pending, mut trailers) = (0_u64, BytesMut::new(), None);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|source| no_answer(doing, source))?;
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(other) => {
                    trailers = other.into_trailers().ok();
                    continue;
                }
            };
            pending.extend_from_slice(&data);
            while let Some((length, blob)) = grpc::blob(&pending).map_err(|()| strange(doing))? {
                to.write_all(&blob)
                    .await
                    .map_err(|source| EtcdError::Written { source })?;
                bytes += blob.len() as u64;
                pending.advance(length);
            }
        }
        grpc_status(&trailers.unwrap_or(head.headers)).map_or_else(
            || Err(strange(doing)),
            |status| match status {
                (0, _) => Ok(bytes),
                (code, message) => Err(EtcdError::Refused {
                    doing,
                    code,
                    message,
                }),
            },
        )
    }
}

fn strange(doing: &'static str) -> EtcdError {
    EtcdError::Refused {
        doing,
        code: -1,
        message: "its answer is none of etcd's".to_owned(),
    }
}

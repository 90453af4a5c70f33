//! The requests that etcd gets in gRPC. One finds out whether a range has a key: in gRPC etcd applies the users and roles
//! of our client certificate, which its JSON gateway replaces with another one. One reads all of a member's data, which
//! would be a third larger in JSON. Pure.

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use prost::Message;

/// The path of etcd's `Range`.
pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";

/// The path of etcd's `Snapshot`.
pub(super) const SNAPSHOT: &str = "/etcdserverpb.Maintenance/Snapshot";

/// A part of a snapshot is no larger, by far.
const LARGEST: u32 = 16 << 20;

/// etcd's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranged {
    /// etcd's id of its cluster.
    pub(super) cluster: u64,
    /// There is a key.
    pub(super) any: bool,
}

/// The fields that we set, of etcd's message of this name.
#[derive(Clone, PartialEq, Message)]
struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    limit: i64,
    #[prost(bool, tag = "8")]
    keys_only: bool,
}

/// The fields that we read, of etcd's message of this name.
#[derive(Clone, PartialEq, Message)]
struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    kvs: Vec<Vec<u8>>,
    #[prost(int64, tag = "4")]
    count: i64,
}

/// The field that we read, of etcd's message of this name.
#[derive(Clone, PartialEq, Message)]
struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    cluster_id: u64,
}

/// The field that we read, of etcd's message of this name.
#[derive(Clone, PartialEq, Message)]
struct SnapshotResponse {
    #[prost(bytes = "bytes", tag = "3")]
    blob: Bytes,
}

/// The gRPC message of a request without fields.
pub(super) fn nothing() -> Bytes {
    Bytes::from(framed(&[]))
}

/// The part of a snapshot in the first gRPC message, and the length of that message; `None` until all of it has come.
/// The error: it is something else.
pub(super) fn blob(pending: &[u8]) -> Result<Option<(usize, Bytes)>, ()> {
    let Some((head, rest)) = pending.split_at_checked(5) else {
        return Ok(None);
    };
    let [0, length @ ..] = head else {
        return Err(());
    };
    let length = u32::from_be_bytes(length.try_into().map_err(|_| ())?);
    if length > LARGEST {
        return Err(());
    }
    let length = usize::try_from(length).map_err(|_| ())?;
    let Some(message) = rest.get(..length) else {
        return Ok(None);
    };
    let response = SnapshotResponse::decode(message).map_err(|_| ())?;
    Ok(Some((5 + length, response.blob)))
}

/// Requests the first key of a range, without its value, as a gRPC message.
pub(super) fn first_key((from, to): &(Vec<u8>, Vec<u8>)) -> Vec<u8> {
    let request = RangeRequest {
        key: from.clone(),
        range_end: to.clone(),
        limit: 1,
        keys_only: true,
    };
    framed(&request.encode_to_vec())
}

/// An uncompressed gRPC message.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat()
}

/// Reads the answer out of a gRPC message; `None` if it is something else.
pub(super) fn ranged(body: &[u8]) -> Option<Ranged> {
    let (head, rest) = body.split_at_checked(5)?;
    let [0, length @ ..] = head else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    let message = rest.get(..usize::try_from(length).ok()?)?;
    let response = RangeResponse::decode(message).ok()?;
    // No cluster has the id 0, which is what a message without a header gives.
    let cluster = response.header?.cluster_id;
    (cluster != 0).then_some(Ranged {
        cluster,
        any: !response.kvs.is_empty() || response.count > 0,
    })
}

/// The text of the trailer `grpc-message`, which is percent-encoded.
pub(super) fn message(encoded: &str) -> String {
    let decoded = percent_decode_str(encoded);
    decoded.decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_a_range_request() {
        let asked = first_key(&(b"/a/".to_vec(), b"/a0".to_vec()));
        let wanted = b"\x00\x00\x00\x00\x0e\x0a\x03/a/\x12\x03/a0\x18\x01\x40\x01";
        assert_eq!(asked, wanted);
        let long = first_key(&(vec![b'x'; 300], Vec::new()));
        assert_eq!(long[5..8], [0x0a, 0xac, 0x02]);
    }

    #[test]
    fn the_answer_tells_the_cluster_and_whether_there_is_a_key() {
        // header { cluster_id: 300, member_id: 1, revision: 2, raft_term: 3 }
        let header = b"\x0a\x09\x08\xac\x02\x10\x01\x18\x02\x20\x03";
        let answer = |more: &[u8]| ranged(&framed(&[header, more].concat()));
        let (cluster, none) = (300, false);
        assert_eq!(answer(b""), Some(Ranged { cluster, any: none }));
        // kvs { key: "/a/b" }, more: true, count: 7
        let found = answer(b"\x12\x06\x0a\x04/a/b\x18\x01\x20\x07");
        assert_eq!(found, Some(Ranged { cluster, any: true }));
        assert_eq!(answer(b"\x20\x07"), Some(Ranged { cluster, any: true }));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for body in [
            &b""[..],
            b"\x00\x00\x00\x00\x00",
            b"\x01\x00\x00\x00\x02\x0a\x00",
            b"\x00\x00\x00\x00\xff\x0a\x00",
            b"\x00\x00\x00\x00\x02\x0a\x7f",
            b"\x00\x00\x00\x00\x02\x0f\x00",
            b"\x00\x00\x00\x00\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"HTTP/1.1 400 Bad Request",
        ] {
            assert_eq!(ranged(body), None, "{body:?}");
        }
    }

    #[test]
    fn a_part_of_a_snapshot_is_taken_when_all_of_it_has_come() {
        // remaining_bytes: 300, blob: "abc"
        let part = framed(b"\x10\xac\x02\x1a\x03abc");
        for cut in 0..part.len() {
            assert_eq!(blob(&part[..cut]), Ok(None), "{cut}");
        }
        let more = [&part[..], b"\x00\x00"].concat();
        assert_eq!(
            blob(&more),
            Ok(Some((part.len(), Bytes::from_static(b"abc"))))
        );
        for other in [
            &b"\x01\x00\x00\x00\x00"[..],
            b"\x00\xff\x00\x00\x00",
            b"\x00\x00\x00\x00\x02\x1a\x09",
            b"HTTP/1.1 400 Bad Request",
        ] {
            assert_eq!(blob(other), Err(()), "{other:?}");
        }
    }

    #[test]
    fn a_message_is_decoded() {
        assert_eq!(
            message("etcdserver: permission denied"),
            "etcdserver: permission denied"
        );
        assert_eq!(message("100%25 %E2%82%AC %zz %4"), "100% € %zz %4");
    }
}

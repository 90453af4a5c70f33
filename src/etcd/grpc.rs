//! One question to etcd in gRPC, which its users and roles apply to (they do not know who asks the JSON gateway): is there a
//! key in a range? As much of gRPC and of protocol buffers as that needs. Pure.

/// etcd's `Range`.
pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";

/// An answer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranged {
    /// etcd's id of its cluster.
    pub(super) cluster: u64,
    /// There is a key.
    pub(super) any: bool,
}

/// Asks for the first key of a range, without its value: a `RangeRequest` as a gRPC message.
pub(super) fn first_key((from, to): &(Vec<u8>, Vec<u8>)) -> Vec<u8> {
    let mut message = Vec::new();
    for (field, bytes) in [(1, from), (2, to)] {
        message.push(field << 3 | BYTES);
        varint(bytes.len() as u64, &mut message);
        message.extend(bytes);
    }
    // limit: 1, keys_only: true
    message.extend([3 << 3, 1, 8 << 3, 1]);
    framed(&message)
}

/// One that is not compressed.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat()
}

/// Reads a `RangeResponse` out of a gRPC message; `None` when it is none.
pub(super) fn ranged(body: &[u8]) -> Option<Ranged> {
    let (head, rest) = body.split_at_checked(5)?;
    let [0, length @ ..] = head else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    let message = rest.get(..usize::try_from(length).ok()?)?;
    let mut found = Ranged::default();
    for field in fields(message)? {
        match field {
            (1, Value::Bytes(header)) => {
                for field in fields(header)? {
                    if let (1, Value::Number(cluster)) = field {
                        found.cluster = cluster;
                    }
                }
            }
            (2, Value::Bytes(_)) => found.any = true,
            // count
            (4, Value::Number(count)) => found.any |= count > 0,
            (_, Value::Bytes(_) | Value::Number(_) | Value::Fixed) => {}
        }
    }
    // No cluster has the id 0: then it was another answer.
    (found.cluster != 0).then_some(found)
}

const NUMBER: u8 = 0;
const FIXED_64: u8 = 1;
const BYTES: u8 = 2;
const FIXED_32: u8 = 5;

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// The fields of a message, in their order.
fn fields(mut message: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = take_varint(&mut message)?;
        let value = match u8::try_from(tag & 7).ok()? {
            NUMBER => Value::Number(take_varint(&mut message)?),
            BYTES => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                Value::Bytes(bytes)
            }
            FIXED_64 => {
                message = message.get(8..)?;
                Value::Fixed
            }
            FIXED_32 => {
                message = message.get(4..)?;
                Value::Fixed
            }
            _ => return None,
        };
        fields.push((tag >> 3, value));
    }
    Some(fields)
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// What `grpc-message` says: its text is percent-encoded.
pub(super) fn message(encoded: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = encoded.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%');
        let hex = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        if let Some(byte) = hex {
            bytes.push(byte);
            rest = tail.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
    fn a_message_is_decoded() {
        assert_eq!(
            message("etcdserver: permission denied"),
            "etcdserver: permission denied"
        );
        assert_eq!(message("100%25 %E2%82%AC %zz %4"), "100% € %zz %4");
    }
}

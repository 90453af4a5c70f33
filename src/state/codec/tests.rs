//! Formats: what is written is read back, what an earlier release wrote too, and nothing else.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{super::tests::saved, *};
use crate::{
    model::{Component, Digest, EtcdKeyspace, NodeName},
    state::{
        Applied, BastionEntry, BegunOperation, CaPair, DigestKey, EtcdEpoch, Membership,
        OperatorMemory, Reached, Refused, RemovalSnapshot, SnapshotPlace, SnapshotRef,
    },
};

const SECOND: &str = include_str!("second.json");
const THIRD: &str = include_str!("third.json");
const FIRST: &str = include_str!("../../../tests/fixtures/d459bc7/state.json");

#[test]
fn what_is_written_is_read_back() {
    let mut state = saved("local");
    state.memory = OperatorMemory {
        uid: Some("0a1b".to_owned()),
        applied: Some(Applied {
            digest: Digest("ab".repeat(16)),
            generation: 7,
        }),
        populated: true,
        refused: vec![Refused {
            component: Component::KubeProxy,
            node: "n1".into(),
            digest: Digest("cd".repeat(16)),
            at: Timestamp::UNIX_EPOCH,
            why: "it keeps exiting".to_owned(),
        }],
        operations: BTreeMap::from([(
            "reboot-1".to_owned(),
            BegunOperation {
                uid: "2c3d".to_owned(),
                at: Timestamp::UNIX_EPOCH,
                ended: Some(Timestamp::UNIX_EPOCH),
                restore: Some(1),
                has_left: true,
            },
        )]),
        last_snapshot: Some(RemovalSnapshot {
            name: "before-removal".to_owned(),
            node: "n1".into(),
            begun_at: Timestamp::UNIX_EPOCH,
            failed: true,
            saved: Some(SnapshotPlace {
                path: "/opt/rke/etcd-snapshots/before-removal".to_owned(),
                bucket: Some("s3.example.com/backups".to_owned()),
            }),
        }),
    };
    let text = encode(&state);
    assert_eq!(decode(text.expose()), Ok(state.clone()));
    assert_eq!(encode(&state), text);
    // What the operator remembers is no part of a copy.
    assert_eq!(state.copy(), saved("local"));
}

/// What a rotation, a restore and an adoption put there.
#[test]
fn whatever_a_state_may_hold_is_read_back() {
    let mut state = saved("local");
    state.digest_key = DigestKey::new([9; 32]);
    state.cluster_ca.next = Some(CaPair {
        cert: "the next cert".to_owned(),
        key: Some(Secret::new("the next key".to_owned())),
    });
    state.etcd_ca.next = Some(CaPair {
        cert: "a person's next cert".to_owned(),
        key: None,
    });
    let accounts = &mut state.service_accounts;
    accounts.issuers = ["b", "a", "c"].map(str::to_owned).into();
    accounts.audiences = ["rke", "b", "a"].map(str::to_owned).into();
    state.external_etcd = Some(EtcdKeyspace {
        etcd_cluster: "cafe".to_owned(),
        prefix: "/production".to_owned(),
    });
    let entry = state.inventory.get_mut(&NodeName::from("n1")).unwrap();
    entry.bastions.push(BastionEntry {
        address: "203.0.113.1".to_owned(),
        port: 22,
        user: "jump".to_owned(),
        key_source: "~/.ssh/jump".to_owned(),
        certificate_source: None,
        host_keys: vec!["ssh-ed25519 BBBB".to_owned()],
    });
    let inner = BastionEntry {
        address: "10.0.0.1".to_owned(),
        ..entry.bastions[0].clone()
    };
    entry.bastions.push(inner);
    for reached in [
        Reached::Chosen,
        Reached::Stopped,
        Reached::Restored,
        Reached::Cleaned,
        Reached::Serving,
        Reached::Done,
        Reached::TakenBack,
    ] {
        let snapshot = SnapshotRef {
            name: "2026-11-25T12:00:00Z_etcd".to_owned(),
            sha256: "ab".repeat(32),
            revision: 7,
        };
        for from in [Some(snapshot), None] {
            state.etcd_epoch = Some(EtcdEpoch {
                number: 2,
                from,
                begins: 1_000_000_007,
                first: "n1".into(),
                reached,
            });
            let text = encode(&state);
            assert_eq!(decode(text.expose()), Ok(state.clone()));
            assert_eq!(state.copy(), state, "a copy has all of it");
        }
    }
    assert!(!format!("{state:?}").contains("next key"));
}

/// The key of digests is today's derivation, taken over once: no label changes by an upgrade, nor with a new CA.
#[test]
fn no_digest_changes_with_the_format_or_the_authority() {
    let first = decode(FIRST).unwrap();
    let mut second = decode(SECOND).unwrap();
    // As the releases of those formats have worked it out.
    let digest = second.digest_key.digest(b"a content");
    assert_eq!(
        digest,
        Digest("1f31633f918005329dc9a56768f5f796".to_owned())
    );
    second.cluster_ca = first.cluster_ca.clone();
    second.service_accounts = first.service_accounts.clone();
    let again = decode(encode(&second).expose()).unwrap();
    assert_eq!(again, second);
    assert_eq!(again.digest_key.digest(b"a content"), digest);
    let own = DigestKey::of_former(&first.cluster_ca, &first.service_accounts);
    assert_eq!(first.digest_key, own);
    // A person keeps the key of that CA.
    let mut theirs = decode(SECOND).unwrap();
    theirs.cluster_ca.signing.key = None;
    let (ca, accounts) = (&theirs.cluster_ca, &theirs.service_accounts);
    assert_ne!(DigestKey::of_former(ca, accounts), theirs.digest_key);
}

#[test]
fn a_state_of_the_first_format_is_read() {
    let state = decode(FIRST).unwrap();
    let first: serde_json::Value = serde_json::from_str(FIRST).unwrap();
    assert_eq!(first["version"], 1);
    assert!(state.is_of_first_format());
    assert_eq!(state.cluster_id.0, first["clusterId"]);
    for (authority, name) in [
        (&state.cluster_ca, "clusterCa"),
        (&state.etcd_ca, "etcdCa"),
        (&state.front_proxy_ca, "frontProxyCa"),
    ] {
        assert_eq!(authority.signing.cert, first[name]["cert"]);
        assert_eq!(
            *authority.signing.key.as_ref().unwrap().expose(),
            first[name]["key"]
        );
        assert_eq!(
            authority.trusted,
            std::slice::from_ref(&authority.signing.cert)
        );
    }
    let accounts = &state.service_accounts;
    assert_eq!(*accounts.signing.expose(), first["serviceAccountKey"]);
    assert_eq!(state.signer_ca, None);
    let entry = &state.inventory[&NodeName::from("192.0.2.10")];
    assert_eq!(entry.user, "ubuntu");
    assert_eq!(entry.membership, Membership::Active);
    // And what is written next is the newest format.
    let mut next = state;
    next.serial = 1;
    let text = encode(&next);
    assert!(text.expose().starts_with("{\n  \"version\": 6,"));
    assert_eq!(decode(text.expose()), Ok(next));
}

/// Each earlier format is read, and written as the newest.
#[test]
fn earlier_formats_are_read() {
    let mut lost = saved("local");
    let entry = lost.inventory.get_mut(&NodeName::from("n1")).unwrap();
    entry.membership = Membership::Lost;
    entry.lost_at = Some("2026-11-23T12:00:00Z".parse().unwrap());
    let fourth = SECOND.replace("\"version\": 2", "\"version\": 4");
    let fourth = fourth.replace("    \"key\": \"key of etcd\",\n", "");
    let mut without = saved("local");
    without.etcd_ca.signing.key = None;
    let keyspace =
        "\"externalEtcd\": {\"etcdCluster\": \"cafe\", \"prefix\": \"/a\"}, \"inventory\"";
    let fifth = SECOND.replace("\"version\": 2", "\"version\": 5");
    let fifth = fifth.replace("\"inventory\"", keyspace);
    let mut external = saved("local");
    external.external_etcd = Some(EtcdKeyspace {
        etcd_cluster: "cafe".to_owned(),
        prefix: "/a".to_owned(),
    });
    for (text, state) in [
        (SECOND, saved("local")),
        (THIRD, lost),
        (fourth.as_str(), without),
        (fifth.as_str(), external),
    ] {
        assert_eq!(decode(text), Ok(state.clone()));
        let newest = encode(&state);
        assert!(newest.expose().starts_with("{\n  \"version\": 6,"));
        assert_eq!(decode(newest.expose()), Ok(state));
    }
}

#[test]
fn a_newer_format_is_an_error_that_names_who_can_read_it() {
    let text = encode(&saved("local")).expose().clone();
    let newer = text.replace("\"version\": 6", "\"version\": 7");
    let told = newer.replace(
        "\"readableSince\": \"0.1.0\"",
        "\"readableSince\": \"0.9.0\"",
    );
    insta::assert_snapshot!(
        decode(&told).unwrap_err(),
        @"it has format 7, and this release reads 1 to 6: rke-operator 0.9.0 and later read it"
    );
    insta::assert_snapshot!(
        decode("{\"version\": 8}").unwrap_err(),
        @"it has format 8, and this release reads 1 to 6: a newer release of rke-operator wrote it"
    );
    let rude = "{\"version\": 8, \"readableSince\": \"\\u001b[31m\"}";
    assert!(!decode(rude).unwrap_err().contains('\u{1b}'));
}

#[test]
fn what_is_not_understood_is_an_error_that_quotes_nothing() {
    let text = encode(&saved("local")).expose().clone();
    for (broken, why) in [
        (
            text.replace("\"etcdCa\"", "\"EtcdCa\""),
            "it is not an rke-operator state",
        ),
        (
            text.replace("\"key of cluster\"", "7"),
            "it is not an rke-operator state",
        ),
        (
            text.replace("0123456789abcdef", "secret"),
            "its cluster id is not 32 hex digits",
        ),
        (
            text.replace("\"digestKey\": \"", "\"digestKey\": \"secret"),
            "its digest key is not 64 hex digits",
        ),
        (
            text[..text.len() / 2].to_owned(),
            "it is not an rke-operator state",
        ),
        (
            FIRST.replace("\"etcdCa\"", "\"EtcdCa\""),
            "it is not an rke-operator state",
        ),
        (String::new(), "it is not an rke-operator state"),
    ] {
        let error = decode(&broken).unwrap_err();
        assert!(error.starts_with(why), "{error}");
        assert!(
            !error.contains("secret") && !error.contains("key of"),
            "{error}"
        );
    }
}

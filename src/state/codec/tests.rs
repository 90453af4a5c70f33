//! Formats: what is written is read back, what an earlier release wrote too, and nothing else.

use super::{super::tests::saved, *};
use crate::{
    model::{Digest, EtcdKeyspace, NodeName},
    state::{Applied, Membership, OperatorMemory},
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
    };
    let text = encode(&state);
    assert_eq!(decode(text.expose()), Ok(state.clone()));
    assert_eq!(encode(&state), text);
    // What the operator remembers is no part of a copy.
    assert_eq!(state.copy(), saved("local"));
}

#[test]
fn a_state_of_the_first_format_is_read() {
    let state = decode(FIRST).unwrap();
    let first: serde_json::Value = serde_json::from_str(FIRST).unwrap();
    assert_eq!(first["version"], 1);
    assert_eq!((state.serial, state.format()), (0, 1));
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
    // And what is written next is the second format.
    let mut next = state;
    next.serial = 1;
    let text = encode(&next);
    assert!(text.expose().starts_with("{\n  \"version\": 2,"));
    assert_eq!(decode(text.expose()), Ok(next));
}

/// What an earlier release reads is written as it was; only when a node was given up is more to be said.
#[test]
fn the_third_format_is_the_second_with_the_time_of_a_loss() {
    let mut state = saved("local");
    let second = encode(&state);
    assert_eq!((state.format(), second.expose().as_str()), (2, SECOND));
    let entry = state.inventory.get_mut(&NodeName::from("n1")).unwrap();
    entry.membership = Membership::Lost;
    entry.lost_at = Some("2026-11-23T12:00:00Z".parse().unwrap());
    let third = encode(&state);
    assert_eq!((state.format(), third.expose().as_str()), (3, THIRD));
    assert_eq!(decode(THIRD), Ok(state));
    assert_eq!(decode(SECOND), Ok(saved("local")));
}

/// An earlier release would make members of etcd for it: it must not read it.
#[test]
fn the_fifth_format_has_the_place_in_an_external_etcd() {
    let mut state = saved("local");
    state.external_etcd = Some(EtcdKeyspace {
        etcd_cluster: "cafe".to_owned(),
        prefix: "/production".to_owned(),
    });
    let text = encode(&state);
    assert_eq!(state.format(), 5);
    assert!(text.expose().starts_with("{\n  \"version\": 5,"));
    assert_eq!(decode(text.expose()), Ok(state.clone()));
    assert_eq!(state.copy().external_etcd, state.external_etcd);
}

#[test]
fn a_newer_format_is_an_error_that_names_who_can_read_it() {
    let text = encode(&saved("local")).expose().clone();
    let newer = text.replace("\"version\": 2", "\"version\": 6");
    let told = newer.replace(
        "\"readableSince\": \"0.1.0\"",
        "\"readableSince\": \"0.9.0\"",
    );
    insta::assert_snapshot!(
        decode(&told).unwrap_err(),
        @"it has format 6, and this release reads 1 to 5: rke-operator 0.9.0 and later read it"
    );
    insta::assert_snapshot!(
        decode("{\"version\": 7}").unwrap_err(),
        @"it has format 7, and this release reads 1 to 5: a newer release of rke-operator wrote it"
    );
    let rude = "{\"version\": 7, \"readableSince\": \"\\u001b[31m\"}";
    assert!(!decode(rude).unwrap_err().contains('\u{1b}'));
}

#[test]
fn what_is_not_understood_is_an_error_that_quotes_nothing() {
    let text = encode(&saved("local")).expose().clone();
    for (broken, why) in [
        (
            text.replace("\"etcdCa\"", "\"EtcdCa\""),
            "it is not a state of this program",
        ),
        (
            text.replace("\"key of cluster\"", "7"),
            "it is not a state of this program",
        ),
        (
            text.replace("0123456789abcdef", "secret"),
            "its cluster id is not 32 hex digits",
        ),
        (
            text[..text.len() / 2].to_owned(),
            "it is not a state of this program",
        ),
        (
            FIRST.replace("\"etcdCa\"", "\"EtcdCa\""),
            "it is not a state of this program",
        ),
        (String::new(), "it is not a state of this program"),
    ] {
        let error = decode(&broken).unwrap_err();
        assert!(error.starts_with(why), "{error}");
        assert!(
            !error.contains("secret") && !error.contains("key of"),
            "{error}"
        );
    }
}

//! The members of etcd of a fleet, as far as the product asks them: who is a member, who leads, and
//! whether a majority runs. A bootstrap is all that they know; nobody joins or leaves.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde_json::{Value, json};

use crate::node::{Node, flag};

const CLUSTER: &str = "18054747538060931932";

/// The members, by name: their peer URL and whether they run. As the containers were told.
pub(crate) fn members(central: &[Node]) -> BTreeMap<String, (String, bool)> {
    let mut members = BTreeMap::new();
    for node in central {
        for pair in flag(&node.host, "etcd", "initial-cluster")
            .unwrap_or_default()
            .split(',')
        {
            if let Some((name, url)) = pair.split_once('=') {
                let member = members.entry(name.to_owned());
                member.or_insert_with(|| (url.to_owned(), false));
            }
        }
    }
    for node in central.iter().filter(|node| node.host.runs("etcd")) {
        let name = flag(&node.host, "etcd", "name").unwrap_or_default();
        if let Some(member) = members.get_mut(&name) {
            member.1 = true;
        }
    }
    members
}

/// True when more than half of them run.
pub(crate) fn has_quorum(members: &BTreeMap<String, (String, bool)>) -> bool {
    members.values().filter(|(_, runs)| *runs).count() * 2 > members.len()
}

fn id(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish().to_string()
}

/// What the member on a node answers to a request: status and body.
pub(crate) fn answer(central: &[Node], on: &Node, path: &str) -> (u16, Value) {
    let members = members(central);
    let quorum = has_quorum(&members);
    let own = flag(&on.host, "etcd", "name").unwrap_or_default();
    let image = on
        .host
        .docker()
        .containers
        .get("etcd")
        .map(|one| one.image().to_owned());
    let version = image.and_then(|image| rke_operator::model::image_version(&image));
    let (major, minor, patch) = version.unwrap_or_default();
    let header =
        json!({ "cluster_id": CLUSTER, "member_id": id(&own), "revision": "1", "raft_term": "2" });
    match path {
        "/v3/maintenance/status" => {
            let leads = members.iter().find(|(_, (_, runs))| *runs && quorum);
            let status = json!({
                "header": header, "version": format!("{major}.{minor}.{patch}"),
                "dbSize": "20480", "dbSizeInUse": "16384",
                "leader": leads.map_or("0".to_owned(), |(name, _)| id(name)),
                "raftIndex": "10", "raftTerm": "2", "raftAppliedIndex": "10",
            });
            (200, status)
        }
        "/v3/cluster/member/list" if quorum => {
            let list: Vec<Value> = members
                .iter()
                .map(|(name, (url, _))| json!({ "ID": id(name), "name": name, "peerURLs": [url] }))
                .collect();
            (200, json!({ "header": header, "members": list }))
        }
        "/v3/cluster/member/list" => (
            503,
            json!({ "code": 14, "message": "etcdserver: request timed out" }),
        ),
        _ => (404, json!({ "code": 5, "message": "Not Found" })),
    }
}

//! `nodes`: where they are, how to log in, what they are for.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    Found, etcd,
    keys::{Keys, Refused},
    values,
};
use crate::{
    config::{
        cursor::Cursor,
        intent::{Bastion, Login, NodeIntent, Services},
    },
    model::{Endpoint, NodeName, Role, Taint},
};

/// A node, its name, and where it stands in the document.
pub(super) struct Named<'a> {
    pub(super) name: NodeName,
    pub(super) node: NodeIntent,
    pub(super) at: Cursor<'a>,
}

/// Every node that is whole. When one is missing here, a problem says why.
pub(super) fn read<'a>(
    root: &Cursor<'a>,
    keys: &mut Keys<'_>,
    found: &mut Found,
) -> Vec<Named<'a>> {
    let at = root.get("nodes");
    let items = at.items();
    if items.is_empty() {
        if at.is_empty() {
            found.problem(
                at.problem("there is no node")
                    .hint("each node needs an `address` and a `role`"),
            );
        }
        return Vec::new();
    }
    // The only node of a cluster is everything where nothing is said.
    let alone = (items.len() == 1).then(|| needed_roles(root));
    let nodes = items
        .iter()
        .filter_map(|item| node(item, alone.as_ref(), keys, found))
        .collect();
    unique(&items, found);
    every_role(root, &items, found);
    odd_etcd(&at, &items, found);
    nodes
}

fn node<'a>(
    at: &Cursor<'a>,
    alone: Option<&BTreeSet<Role>>,
    keys: &mut Keys<'_>,
    found: &mut Found,
) -> Option<Named<'a>> {
    let before = found.problems.len();
    let address = required(&at.get("address"), "a node needs an address", found);
    if let Some(address) = address {
        check_address(&at.get("address"), address, found);
    }
    let internal = values::text(&at.get("internal_address"), found);
    if let Some(internal) = internal {
        check_internal(&at.get("internal_address"), internal, found);
    }
    let port = port(&at.get("port"), found);
    let user = user(&at.get("user"), "a node", keys, found);
    let docker_socket = docker_socket(&at.get("docker_socket"), found);
    let roles = roles(&at.get("role"), alone, found);
    let name = name(&at.get("hostname_override"), address, found);
    let labels = labels(&at.get("labels"), found);
    let taints = taints(&at.get("taints"), found);
    let proof = keys.of_node(at, found);
    if found.problems.len() > before {
        return None;
    }
    let (address, proof) = (address?.to_owned(), proof?);
    Some(Named {
        name: name?,
        at: at.clone(),
        node: NodeIntent {
            login: Login {
                user: user?,
                credential: proof.credential,
                key_source: proof.source,
                docker_socket,
            },
            has_internal_address: internal.is_some_and(|internal| internal != address),
            internal_address: internal.unwrap_or(&address).into(),
            endpoint: Endpoint { address, port },
            roles,
            labels,
            taints,
        },
    })
}

/// `bastion_host`, if there is one.
pub(super) fn bastion(
    root: &Cursor<'_>,
    keys: &mut Keys<'_>,
    found: &mut Found,
) -> Result<Option<Bastion>, Refused> {
    let at = &root.get("bastion_host");
    // As in RKE, whose own files have empty keys here: without an address there is none.
    if at.get("address").is_empty() {
        let says = |key: &&str| !at.get(key).is_empty();
        let keys = [
            "user",
            "ssh_key",
            "ssh_key_path",
            "ssh_cert",
            "ssh_cert_path",
        ];
        if keys.iter().any(says) {
            let problem = at.get("address").problem("a bastion host needs an address");
            found.problem(problem);
            return Err(Refused);
        }
        return Ok(None);
    }
    let before = found.problems.len();
    let address = values::text(&at.get("address"), found).unwrap_or_default();
    if found.problems.len() == before {
        check_address(&at.get("address"), address, found);
    }
    let port = port(&at.get("port"), found);
    let user = user(&at.get("user"), "the bastion host", keys, found);
    let proof = keys.of_bastion(at, found);
    if found.problems.len() > before {
        return Err(Refused);
    }
    let proof = proof.ok_or(Refused)?;
    Ok(Some(Bastion {
        endpoint: Endpoint {
            address: address.to_owned(),
            port,
        },
        login: Login {
            user: user.ok_or(Refused)?,
            credential: proof.credential,
            key_source: proof.source,
            docker_socket: String::new(),
        },
    }))
}

/// As written, else as ssh: who runs this.
fn user(at: &Cursor<'_>, whom: &str, keys: &Keys<'_>, found: &mut Found) -> Option<String> {
    let before = found.problems.len();
    let Some(user) = values::text(at, found) else {
        return (found.problems.len() == before)
            .then(|| keys.default_user(at, whom, found))
            .flatten();
    };
    if user.chars().any(char::is_whitespace) {
        let problem = at.problem("a user has no spaces in its name");
        found.problem(problem.detail(user));
    }
    Some(user.to_owned())
}

fn required<'a>(at: &Cursor<'a>, message: &str, found: &mut Found) -> Option<&'a str> {
    let before = found.problems.len();
    let text = values::text(at, found);
    if text.is_none() && found.problems.len() == before {
        found.problem(at.problem(message));
    }
    text
}

fn check_address(at: &Cursor<'_>, address: &str, found: &mut Found) {
    if values::is_host(address) {
        return;
    }
    let problem = at
        .problem("is neither a host name nor an IPv4 address")
        .detail(address);
    found.problem(if address.parse::<IpAddr>().is_ok() {
        at.problem("IPv6 is not supported yet").detail(address)
    } else if address.contains('@') {
        problem.hint("write the user in `user`")
    } else if address.contains(':') {
        problem.hint("write the port in `port`")
    } else {
        problem
    });
}

fn check_internal(at: &Cursor<'_>, internal: &str, found: &mut Found) {
    match internal.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => {}
        Ok(IpAddr::V6(_)) => {
            found.problem(at.problem("IPv6 is not supported yet").detail(internal));
        }
        Err(_) => found.problem(
            at.problem("must be an IPv4 address")
                .detail(internal)
                .hint("kubelet, etcd and the API server announce it; a name will not do"),
        ),
    }
}

fn port(at: &Cursor<'_>, found: &mut Found) -> u16 {
    let Some(text) = values::text(at, found) else {
        return 22;
    };
    match text.parse::<u16>() {
        Ok(port) if port > 0 => port,
        Ok(_) | Err(_) => {
            found.problem(at.problem("must be a port, 1 to 65535").detail(text));
            22
        }
    }
}

fn docker_socket(at: &Cursor<'_>, found: &mut Found) -> String {
    let socket = values::text(at, found).unwrap_or("/var/run/docker.sock");
    if !socket.starts_with('/') {
        let problem = at
            .problem("must be an absolute path on the node")
            .detail(socket);
        found.problem(if socket.starts_with("unix:") {
            problem.hint("leave the `unix://` out")
        } else {
            problem
        });
    }
    socket.to_owned()
}

/// `alone`: those of the only node of a cluster, where nothing is said.
fn roles(at: &Cursor<'_>, alone: Option<&BTreeSet<Role>>, found: &mut Found) -> BTreeSet<Role> {
    let before = found.problems.len();
    if let Some(alone) = alone.filter(|_| at.is_empty()) {
        return alone.clone();
    }
    let written = values::texts(at, found);
    if written.is_empty() && found.problems.len() == before {
        found.problem(
            at.problem("a node needs a role")
                .hint("write `role: [controlplane, etcd, worker]`"),
        );
    }
    let mut roles = BTreeSet::new();
    for (item, text) in written {
        match role(text) {
            Some(role) => {
                roles.insert(role);
            }
            None => found.problem(
                item.problem("unknown role")
                    .detail(text)
                    .hint("the roles are `controlplane`, `etcd` and `worker`"),
            ),
        }
    }
    roles
}

fn role(text: &str) -> Option<Role> {
    match text {
        "controlplane" => Some(Role::ControlPlane),
        "etcd" => Some(Role::Etcd),
        "worker" => Some(Role::Worker),
        _ => None,
    }
}

fn name(at: &Cursor<'_>, address: Option<&str>, found: &mut Found) -> Option<NodeName> {
    let Some(text) = values::text(at, found) else {
        return address.map(|address| NodeName(address.to_lowercase()));
    };
    let name = text.to_lowercase();
    if !values::is_dns_name(&name) {
        found.problem(
            at.problem("is not a name that Kubernetes takes for a node")
                .detail(text)
                .hint("letters, digits, `-` and `.` only, beginning and ending with a letter or digit"),
        );
    }
    Some(NodeName(name))
}

fn labels(at: &Cursor<'_>, found: &mut Found) -> BTreeMap<String, String> {
    for (key, value) in at.entries() {
        let of_role = key.strip_prefix(ROLE_PREFIX);
        if of_role.is_some_and(|name| role(name).is_some()) && value.scalar() != Some("true") {
            let problem = value.problem("this label is set by `role`");
            found.problem(problem.hint("remove it"));
        }
    }
    values::labels(at, found)
}

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

fn taints(at: &Cursor<'_>, found: &mut Found) -> Vec<Taint> {
    let mut taints: Vec<Taint> = Vec::new();
    for item in at.items() {
        let before = found.problems.len();
        let key = required(&item.get("key"), "a taint needs a key", found).unwrap_or_default();
        let value = values::text(&item.get("value"), found).unwrap_or_default();
        let effect =
            required(&item.get("effect"), "a taint needs an effect", found).unwrap_or_default();
        if !key.is_empty() && !values::is_label_key(key) {
            let problem = item.get("key").problem("is not the key of a taint");
            found.problem(problem.detail(key).hint(values::LABEL_KEY));
        }
        if !values::is_label_value(value) {
            let problem = item.get("value").problem("is not the value of a taint");
            found.problem(problem.detail(value).hint(values::LABEL_VALUE));
        }
        if !effect.is_empty() {
            values::effect(&item.get("effect"), effect, found);
        }
        if found.problems.len() > before {
            continue;
        }
        if is_role_taint(key, effect) {
            found.warning(item.problem("left out: this taint is set by `role`"));
        } else if taints
            .iter()
            .any(|taint| taint.key == key && taint.effect == effect)
        {
            found.warning(item.problem("left out: a taint with this key and effect stands above"));
        } else {
            let (key, value, effect) = (key.to_owned(), value.to_owned(), effect.to_owned());
            taints.push(Taint { key, value, effect });
        }
    }
    taints
}

fn is_role_taint(key: &str, effect: &str) -> bool {
    matches!(
        (key.strip_prefix(ROLE_PREFIX), effect),
        (Some("etcd"), "NoExecute") | (Some("controlplane"), "NoSchedule")
    )
}

/// Two entries with one address or one name would configure the same machine twice.
fn unique(items: &[Cursor<'_>], found: &mut Found) {
    let mut addresses = BTreeSet::new();
    let mut names = BTreeSet::new();
    for item in items {
        let at = item.get("address");
        let address = at.scalar().unwrap_or_default().to_lowercase();
        if !address.is_empty() && !addresses.insert(address.clone()) {
            found.problem(at.problem("another node has this address").detail(address));
            continue;
        }
        let at = item.get("internal_address");
        let internal = at.scalar().unwrap_or_default().to_lowercase();
        if !internal.is_empty() && internal != address && !addresses.insert(internal.clone()) {
            found.problem(at.problem("another node has this address").detail(internal));
            continue;
        }
        let at = item.get("hostname_override");
        let written = at.scalar().unwrap_or_default().to_lowercase();
        let name = if written.is_empty() { address } else { written };
        if !name.is_empty() && !names.insert(name.clone()) {
            found.problem(at.problem("another node has this name").detail(name));
        }
    }
}

/// An even number of members survives no more failures than one member fewer.
fn odd_etcd(at: &Cursor<'_>, items: &[Cursor<'_>], found: &mut Found) {
    let is_member = |item: &&Cursor<'_>| {
        let roles = item.get("role").items();
        roles.iter().any(|role| role.scalar() == Some("etcd"))
    };
    let members = items.iter().filter(is_member).count();
    if members > 0 && members % 2 == 0 {
        found.warning(
            at.problem(format!(
                "{members} nodes have the role `etcd`, an even number"
            ))
            .hint("it survives no more failures than one member fewer: use 1, 3 or 5"),
        );
    }
}

/// The roles that a cluster needs: an external etcd is nobody's.
fn needed_roles(root: &Cursor<'_>) -> BTreeSet<Role> {
    let mut roles = BTreeSet::from([Role::Etcd, Role::ControlPlane, Role::Worker]);
    if etcd::is_external(root) {
        roles.remove(&Role::Etcd);
    }
    roles
}

/// A cluster needs each role somewhere, and beside an external etcd none of its own. Validated on what is
/// written, so that a node that is wrong in another way does not add "no etcd" to its own problem.
fn every_role(root: &Cursor<'_>, items: &[Cursor<'_>], found: &mut Found) {
    let at = root.get("nodes");
    let mut written: BTreeSet<&str> = items
        .iter()
        .flat_map(|item| item.get("role").items())
        .filter_map(|role| role.scalar())
        .collect();
    if written.is_empty() {
        return;
    }
    if etcd::is_external(root) {
        for role in items.iter().flat_map(|item| item.get("role").items()) {
            if role.scalar() == Some("etcd") {
                let problem =
                    role.problem("there is an external etcd (`services.etcd.external_urls`)");
                found.problem(problem.hint("remove this role from the node, or the external etcd"));
            }
        }
    } else if !written.contains("etcd") && etcd::is_half_external(root) {
        found.problem(etcd::no_urls(root));
        written.insert("etcd");
    }
    let needed = needed_roles(root);
    for (name, role) in [
        ("etcd", Role::Etcd),
        ("controlplane", Role::ControlPlane),
        ("worker", Role::Worker),
    ] {
        let role = Some(name).filter(|name| needed.contains(&role) && !written.contains(name));
        if let Some(role) = role {
            found.problem(
                at.problem(format!("no node has the role `{role}`"))
                    .hint(format!("add `{role}` to the `role` of a node")),
            );
        }
    }
}

/// A node whose address lies among those of pods or services could not be reached from either.
pub(super) fn outside_of_ranges(nodes: &[Named<'_>], services: &Services, found: &mut Found) {
    for Named { node, at, name: _ } in nodes {
        let own = node
            .has_internal_address
            .then(|| node.internal_address.ip())
            .flatten();
        let addresses = [
            ("address", node.endpoint.address.parse().ok()),
            ("internal_address", own),
        ];
        for (key, address) in addresses {
            let Some(address) = address else {
                continue;
            };
            for (range, owner) in [
                (
                    services.cluster_cidr,
                    "services.kube-controller.cluster_cidr",
                ),
                (
                    services.service_cluster_ip_range,
                    "service_cluster_ip_range",
                ),
            ] {
                if range.contains(&address) {
                    found.problem(
                        at.get(key)
                            .problem(format!("lies inside of `{owner}`"))
                            .detail(format!("{address} in {range}"))
                            .hint("pods, services and nodes need ranges of their own"),
                    );
                }
            }
        }
    }
}

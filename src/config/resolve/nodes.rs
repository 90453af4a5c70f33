//! `nodes`: where they are, how to log in, what they are for.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Found, addresses,
    keys::{Keys, Refused},
    roles, values,
};
use crate::{
    config::{
        cursor::Cursor,
        intent::{Bastion, Login, NodeIntent},
        tree::Value,
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
    let alone = (items.len() == 1).then(|| roles::needed(root));
    let nodes = items
        .iter()
        .filter_map(|item| node(item, alone.as_ref(), keys, found))
        .collect();
    addresses::unique(&items, found);
    roles::every(root, &items, found);
    roles::odd_etcd(&at, &items, found);
    nodes
}

fn node<'a>(
    at: &Cursor<'a>,
    alone: Option<&BTreeSet<Role>>,
    keys: &mut Keys<'_>,
    found: &mut Found,
) -> Option<Named<'a>> {
    let before = found.problems.len();
    if !matches!(at.value(), Some(Value::Map(_))) {
        not_a_node(at, found);
        return None;
    }
    let address = required(&at.get("address"), "a node needs an address", found);
    if let Some(address) = address {
        addresses::check(&at.get("address"), address, found);
    }
    let internal = values::text(&at.get("internal_address"), found);
    if let Some(internal) = internal {
        addresses::check_internal(&at.get("internal_address"), internal, found);
    }
    let port = port(&at.get("port"), found);
    let user = user(&at.get("user"), "a node", keys, found);
    let docker_socket = docker_socket(&at.get("docker_socket"), found);
    let roles = roles::read(&at.get("role"), alone, found);
    let name = name(&at.get("hostname_override"), at, address, found);
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

/// That it is no mapping is told by the schema.
fn not_a_node(at: &Cursor<'_>, found: &mut Found) {
    if at.value().is_none() {
        let problem = at.problem("this node is empty");
        found.problem(problem.hint("each node needs an `address` and a `role`, or remove the `-`"));
    }
}

/// The machines on the way to the nodes, the one that is dialled from here first: what `bastion_host` is reached
/// through, and itself.
pub(super) fn bastions(
    root: &Cursor<'_>,
    keys: &mut Keys<'_>,
    found: &mut Found,
) -> Result<Vec<Bastion>, Refused> {
    let at = &root.get("bastion_host");
    // As in RKE, whose own files have empty keys here: without an address there is none.
    if at.get("address").is_empty() {
        let keys = [
            "ssh_key",
            "ssh_key_path",
            "ssh_cert",
            "ssh_cert_path",
            "user",
        ];
        let has_way = !at.get("through").items().is_empty();
        if has_way || keys.iter().any(|key| !at.get(key).is_empty()) {
            let problem = at.problem(
                "has no effect without an `address`, as in RKE: the nodes are dialled directly",
            );
            found.warning(problem.hint("write its `address`, or remove `bastion_host`"));
        }
        return Ok(Vec::new());
    }
    let through = at.get("through").items();
    let way = through.iter().map(|at| bastion(at, keys, found));
    // Each of them is looked at, whatever is wrong with another.
    let way: Vec<_> = way.collect();
    let last = bastion(at, keys, found);
    way.into_iter().chain([last]).collect()
}

fn bastion(at: &Cursor<'_>, keys: &mut Keys<'_>, found: &mut Found) -> Result<Bastion, Refused> {
    if !matches!(at.value(), Some(Value::Map(_))) {
        if at.value().is_none() {
            let problem = at.problem("this bastion host is empty");
            found.problem(problem.hint("each needs an `address`, or remove the `-`"));
        }
        return Err(Refused);
    }
    let before = found.problems.len();
    let address = at.get("address");
    let written = required(&address, "each bastion host needs an `address`", found);
    if let Some(text) = written {
        addresses::check(&address, text, found);
    }
    let port = port(&at.get("port"), found);
    let user = user(&at.get("user"), "the bastion host", keys, found);
    let proof = keys.of_bastion(at, found);
    if found.problems.len() > before {
        return Err(Refused);
    }
    let proof = proof.ok_or(Refused)?;
    Ok(Bastion {
        endpoint: Endpoint {
            address: written.ok_or(Refused)?.to_owned(),
            port,
        },
        login: Login {
            user: user.ok_or(Refused)?,
            credential: proof.credential,
            key_source: proof.source,
            docker_socket: String::new(),
        },
    })
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

fn port(at: &Cursor<'_>, found: &mut Found) -> u16 {
    let text = values::or_default(at, found);
    let port = text.parse::<u16>().ok().filter(|port| *port > 0);
    port.unwrap_or_else(|| {
        found.problem(at.problem("must be a port, 1 to 65535").detail(text));
        0
    })
}

fn docker_socket(at: &Cursor<'_>, found: &mut Found) -> String {
    let socket = values::or_default(at, found);
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

/// kubelet has the name in a label of its node.
const LONGEST_NAME: usize = 63;

fn name(
    at: &Cursor<'_>,
    node: &Cursor<'_>,
    address: Option<&str>,
    found: &mut Found,
) -> Option<NodeName> {
    let Some(text) = values::text(at, found) else {
        let name = address?.to_lowercase();
        if name.len() > LONGEST_NAME {
            let at = node.get("address");
            let problem = at.problem(
                "is also the node's name, and longer than 63 characters, which kubelet does not take",
            );
            found.problem(problem.hint("write a shorter name in `hostname_override`"));
        }
        return Some(NodeName(name));
    };
    let name = text.to_lowercase();
    if name.len() > LONGEST_NAME || !values::is_dns_name(&name) {
        found.problem(
            at.problem("is not a name that Kubernetes takes for a node")
                .detail(text)
                .hint("at most 63 letters, digits, `-` and `.`, beginning and ending with a letter or digit"),
        );
    }
    Some(NodeName(name))
}

fn labels(at: &Cursor<'_>, found: &mut Found) -> BTreeMap<String, String> {
    for (key, value) in at.entries() {
        let of_role = key.strip_prefix(ROLE_PREFIX);
        if of_role.is_some_and(|name| roles::role(name).is_some()) && value.scalar() != Some("true")
        {
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

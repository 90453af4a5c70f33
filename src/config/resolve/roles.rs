//! What nodes are for, and whether a cluster has all that it needs.

use std::collections::BTreeSet;

use super::{Found, etcd, values};
use crate::{config::cursor::Cursor, model::Role};

/// `alone`: the roles of the only node of a cluster if it names none.
pub(super) fn read(
    at: &Cursor<'_>,
    alone: Option<&BTreeSet<Role>>,
    found: &mut Found,
) -> BTreeSet<Role> {
    let before = found.problems.len();
    if let Some(alone) = alone.filter(|_| at.is_empty()) {
        return alone.clone();
    }
    if at.scalar().is_some_and(|text| !text.is_empty()) {
        let problem = at.problem("must be a list, not a single value");
        found.problem(problem.hint("write it in brackets, as in `role: [worker]`"));
        return BTreeSet::new();
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
        if let Some(role) = role(text) {
            roles.insert(role);
        } else {
            let plain = text.to_ascii_lowercase().replace(['-', '_', ' '], "");
            let hint = match plain.as_str() {
                "master" | "controller" | "server" | "controlplane" => {
                    "this is `controlplane` here; the roles are `controlplane`, `etcd` and `worker`"
                }
                "node" | "agent" | "workers" | "slave" | "minion" => {
                    "this is `worker` here; the roles are `controlplane`, `etcd` and `worker`"
                }
                _ => "the roles are `controlplane`, `etcd` and `worker`",
            };
            found.problem(item.problem("unknown role").detail(text).hint(hint));
        }
    }
    roles
}

pub(super) fn role(text: &str) -> Option<Role> {
    match text {
        "controlplane" => Some(Role::ControlPlane),
        "etcd" => Some(Role::Etcd),
        "worker" => Some(Role::Worker),
        _ => None,
    }
}

/// An even number of members survives no more failures than one member fewer.
pub(super) fn odd_etcd(at: &Cursor<'_>, items: &[Cursor<'_>], found: &mut Found) {
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
            .hint("one member fewer survives as many failures: use 1, 3 or 5"),
        );
    }
}

/// The roles that a cluster needs: an external etcd is nobody's.
pub(super) fn needed(root: &Cursor<'_>) -> BTreeSet<Role> {
    let mut roles = BTreeSet::from([Role::Etcd, Role::ControlPlane, Role::Worker]);
    if etcd::is_external(root) {
        roles.remove(&Role::Etcd);
    }
    roles
}

/// A cluster needs a node for each role, and no etcd node when etcd is external. Checks the document as written, so
/// that a node that is invalid in another way does not add "no etcd" to its own problem.
pub(super) fn every(root: &Cursor<'_>, items: &[Cursor<'_>], found: &mut Found) {
    let at = root.get("nodes");
    let roles: Vec<Cursor<'_>> = items.iter().map(|item| item.get("role")).collect();
    let mut written: BTreeSet<&str> = roles
        .iter()
        .flat_map(Cursor::items)
        .filter_map(|role| role.scalar())
        .collect();
    // A role that is misspelt may be the one that is missing: its own problem is enough.
    let is_unclear = roles
        .iter()
        .any(|at| at.scalar().is_some_and(|text| !text.is_empty()))
        || written.iter().any(|text| role(text).is_none());
    if written.is_empty() || is_unclear {
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
    let needed = needed(root);
    for (name, role) in [
        ("etcd", Role::Etcd),
        ("controlplane", Role::ControlPlane),
        ("worker", Role::Worker),
    ] {
        let role = Some(name).filter(|name| needed.contains(&role) && !written.contains(name));
        let Some(role) = role else {
            continue;
        };
        let problem = at.problem(format!("no node has the role `{role}`"));
        if role == "worker" {
            // As in RKE: they may come later, and from elsewhere.
            found.warning(problem.hint(
                "add `worker` to the `role` of a node: until one has it no pods run but those that tolerate the taints of \
                 control planes, and `up` waits for CoreDNS in vain",
            ));
        } else {
            found.problem(problem.hint(format!("add `{role}` to the `role` of a node")));
        }
    }
}

//! `nodes`: where they are, how to log in, what they are for.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Found, addresses,
    keys::{Keys, Proof, Refused},
    roles, values,
};
use crate::{
    config::{
        cursor::Cursor,
        intent::{Bastion, Login, NodeIntent},
        ssh_config::{SshHost, SshJump, written_way},
        ssh_names::{ipv6, plain},
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

/// Every node that is whole. When one is missing here, a problem says why. `bastions`: of the whole cluster.
pub(super) fn read<'a>(
    root: &Cursor<'a>,
    bastions: Result<&[Bastion], &Refused>,
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
    // The only node of a cluster has every role if it names none.
    let alone = (items.len() == 1).then(|| roles::needed(root));
    let mut nodes = Vec::new();
    for item in &items {
        let whole = node(item, alone.as_ref(), keys, found);
        let way = way(item, bastions, keys, found);
        if let (Some(mut named), Ok((bastions, jumps))) = (whole, way) {
            named.node.bastions = bastions;
            if let Some(jumps) = jumps {
                named.node.ssh_config.insert("ProxyJump", jumps);
            }
            nodes.push(named);
        }
    }
    addresses::unique(&items, found);
    addresses::apart(&nodes, found);
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
    let ssh = keys.ssh_host(at);
    let address = required(&at.get("address"), "a node needs an address", found);
    let dialled = address
        .and_then(|address| addresses::dialled(&at.get("address"), address, ssh.as_ref(), found));
    let internal = values::text(&at.get("internal_address"), found);
    if let Some(internal) = internal {
        addresses::check_internal(&at.get("internal_address"), internal, found);
    }
    let port = port(&at.get("port"), ssh.as_ref(), found);
    let user = user(&at.get("user"), "a node", ssh.as_ref(), keys, found);
    let docker_socket = docker_socket(&at.get("docker_socket"), found);
    let roles = roles::read(&at.get("role"), alone, found);
    if let Some(dialled) = &dialled {
        addresses::check_family(at, dialled, internal, &roles, found);
    }
    let address = address.filter(|_| dialled.is_some());
    let name = name(&at.get("hostname_override"), at, address, found);
    let labels = labels(&at.get("labels"), found);
    let taints = taints(&at.get("taints"), found);
    let proof = keys.of_node(at, ssh.as_ref(), found);
    if found.problems.len() > before {
        return None;
    }
    let (address, proof) = (dialled?, proof?);
    let ssh_config = used(at, &ssh.unwrap_or_default(), &proof);
    // A name in a certificate or a URL has no dot at its end, which only a resolver takes.
    let inner = address.strip_suffix('.').unwrap_or(&address);
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
            internal_address: internal.unwrap_or(inner).into(),
            endpoint: Endpoint { address, port },
            roles,
            labels,
            taints,
            bastions: Vec::new(),
            ssh_config,
        },
    })
}

/// What counts of the SSH config, by its keyword. Where the config names a user or a port, the SSH config has none.
fn used(at: &Cursor<'_>, ssh: &SshHost, proof: &Proof) -> BTreeMap<&'static str, String> {
    let mut used = BTreeMap::new();
    let mut say = |keyword, value: Option<String>| {
        if let Some(value) = value {
            used.insert(keyword, value);
        }
    };
    let unwritten = |key: &str| at.get(key).is_empty();
    say("HostName", ssh.host_name.clone());
    say("User", ssh.user.clone().filter(|_| unwritten("user")));
    let port = ssh.port.map(|port| port.to_string());
    say("Port", port.filter(|_| unwritten("port")));
    for (keyword, value) in &proof.ssh_config {
        say(*keyword, Some(value.clone()));
    }
    say("HostKeyAlias", ssh.host_key_alias.clone());
    let files = |files: &Option<Vec<String>>| {
        let files = files.as_ref().map(|files| files.join(" "));
        files.map(|files| {
            if files.is_empty() {
                "none".to_owned()
            } else {
                files
            }
        })
    };
    say("UserKnownHostsFile", files(&ssh.user_known_hosts));
    say("GlobalKnownHostsFile", files(&ssh.global_known_hosts));
    used
}

/// An entry that is not a mapping is a problem that the schema reports.
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
    if !at.is_list() && at.get("address").is_empty() {
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
    let machines = written_way(root);
    // Each of them is looked at, whatever is wrong with another.
    let written: Vec<_> = machines.iter().map(|at| bastion(at, keys, found)).collect();
    let written = written.into_iter().collect::<Result<Vec<_>, _>>()?;
    // Where nothing says how the only one is reached, its own `ProxyJump` does.
    let [only] = &machines[..] else {
        return Ok(written);
    };
    let jumps = own_jumps(only, keys, found)?;
    let mut way = jumped(only, &jumps, keys, found)?;
    way.extend(written);
    Ok(way)
}

/// The machines on the way to a node, and `ProxyJump`, where that names them.
fn way(
    at: &Cursor<'_>,
    bastions: Result<&[Bastion], &Refused>,
    keys: &mut Keys<'_>,
    found: &mut Found,
) -> Result<(Vec<Bastion>, Option<String>), Refused> {
    let bastions = bastions.map_err(|refused| *refused)?;
    if !bastions.is_empty() {
        return Ok((bastions.to_vec(), None));
    }
    let jumps = own_jumps(at, keys, found)?;
    let way = jumped(at, &jumps, keys, found)?;
    let names: Vec<String> = way.iter().map(|one| one.endpoint.to_string()).collect();
    Ok((way, (!names.is_empty()).then(|| names.join(","))))
}

/// `ProxyJump` of a machine of the config.
fn own_jumps(at: &Cursor<'_>, keys: &Keys<'_>, found: &mut Found) -> Result<Vec<SshJump>, Refused> {
    let address = at.get("address");
    let host = keys.ssh_host(at).unwrap_or_default();
    let own = plain(address.scalar().unwrap_or_default());
    let is_own = |jump: &SshJump| jump.address.eq_ignore_ascii_case(&own);
    let whole = jumps_of(&address, None, &host, found)?;
    // `Host *` often means the machine on the way, too: it is reached through those before it.
    Ok(whole.into_iter().take_while(|jump| !is_own(jump)).collect())
}

/// How a machine is reached that nothing of the config leads to: `ProxyJump` of the SSH config. What cannot be used of
/// it is a problem, because a machine behind a bastion host must not be dialled directly. `jump`: the name of a machine
/// that only `ProxyJump` names.
fn jumps_of(
    address: &Cursor<'_>,
    jump: Option<&str>,
    host: &SshHost,
    found: &mut Found,
) -> Result<Vec<SshJump>, Refused> {
    let of = |why: &str| jump.map_or(why.to_owned(), |jump| format!("of `{jump}`: {why}"));
    if let Some(why) = &host.no_way {
        let problem = address.problem(
            "the SSH config has no usable `ProxyJump` for it, and it is not dialled directly",
        );
        found.problem(problem.detail(of(why)).hint(
            "correct it in the SSH config, write `bastion_host`, or use `--no-ssh-config` (a `Cluster` has no SSH config)",
        ));
        return Err(Refused);
    }
    if let Some(command) = host
        .proxy_command
        .as_ref()
        .filter(|_| host.jumps.is_empty())
    {
        if is_ssh(command) {
            let problem = address.problem(
                "`ProxyCommand` of the SSH config leads through another machine and is not used: it is not dialled directly",
            );
            found.problem(problem.detail(of(command)).hint(
                "write `ProxyJump HOST` in its place in the SSH config, or `bastion_host` here; `ProxyCommand none` dials \
                 directly",
            ));
            return Err(Refused);
        }
        let problem = address.problem(
            "`ProxyCommand` of the SSH config is not used: this machine is dialled directly",
        );
        found.warning(problem.detail(of(command)).hint(
            "write `ProxyJump HOST` in the SSH config, or `bastion_host` here, if it is behind another machine",
        ));
    }
    Ok(host.jumps.clone())
}

/// True for a command that runs `ssh`: a bastion host, as it was written before there was `ProxyJump`.
fn is_ssh(command: &str) -> bool {
    let mut words = command.split_whitespace();
    words.any(|word| word.rsplit('/').next() == Some("ssh"))
}

/// `ProxyJump` as machines, the one that is dialled from here first.
fn jumped(
    at: &Cursor<'_>,
    jumps: &[SshJump],
    keys: &mut Keys<'_>,
    found: &mut Found,
) -> Result<Vec<Bastion>, Refused> {
    if let Some(known) = keys.known_way(jumps) {
        return known;
    }
    let way = jumps_to(at, jumps, keys, found).and_then(|all| {
        // Each of them is looked at, whatever is wrong with another.
        let way: Vec<_> = all.iter().map(|one| jump(at, one, keys, found)).collect();
        way.into_iter().collect()
    });
    keys.learn_way(jumps, way.clone());
    way
}

/// How the first is reached is in its own part of the SSH config; the others are reached through it.
fn jumps_to(
    at: &Cursor<'_>,
    jumps: &[SshJump],
    keys: &Keys<'_>,
    found: &mut Found,
) -> Result<Vec<SshJump>, Refused> {
    let mut all = jumps.to_vec();
    while let Some(first) = all.first().cloned() {
        let host = keys.ssh_host_of(&first.query()).unwrap_or_default();
        let address = at.get("address");
        let whole = jumps_of(&address, Some(&first.address), &host, found)?;
        let number = whole.len();
        let before: Vec<_> = whole
            .into_iter()
            .take_while(|jump| !all.contains(jump))
            .collect();
        if before.len() < number {
            let message = if before.is_empty() {
                "`ProxyJump` of the SSH config leads back to a machine on the way, which is dialled directly"
            } else {
                "`ProxyJump` of the SSH config leads back to a machine on the way, and ends there"
            };
            let problem = address.problem(message).detail(first.address.clone());
            found.warning(problem.hint(
                "exclude that machine from the part of the SSH config that sets it: `Host * !HOST`",
            ));
        }
        if before.is_empty() {
            break;
        }
        all.splice(0..0, before);
    }
    Ok(all)
}

fn jump(
    at: &Cursor<'_>,
    jump: &SshJump,
    keys: &mut Keys<'_>,
    found: &mut Found,
) -> Result<Bastion, Refused> {
    let address = at.get("address");
    let host = keys.ssh_host_of(&jump.query()).unwrap_or_default();
    for why in &host.unusable {
        found.warning(address.problem(format!("of `{}`: {why}", jump.address)));
    }
    let place = addresses::of_jump(&address, jump, &host, found);
    let named = jump.user.clone().or_else(|| host.user.clone());
    let user = named.or_else(|| keys.default_user(&address, "the bastion host", found));
    let proof = keys.of_jump(at, &host, found).ok_or(Refused)?;
    // Nothing is written about it.
    let ssh_config = used(&at.get("bastion_host"), &host, &proof);
    Ok(Bastion {
        endpoint: Endpoint {
            address: place.ok_or(Refused)?,
            port: jump.port.or(host.port).unwrap_or(22),
        },
        login: Login {
            user: user.ok_or(Refused)?,
            credential: proof.credential,
            key_source: proof.source,
            docker_socket: String::new(),
        },
        ssh_config,
    })
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
    let ssh = keys.ssh_host(at);
    let dialled = written.and_then(|text| addresses::dialled(&address, text, ssh.as_ref(), found));
    let port = port(&at.get("port"), ssh.as_ref(), found);
    let user = user(
        &at.get("user"),
        "the bastion host",
        ssh.as_ref(),
        keys,
        found,
    );
    let proof = keys.of_bastion(at, ssh.as_ref(), found);
    if found.problems.len() > before {
        return Err(Refused);
    }
    let proof = proof.ok_or(Refused)?;
    let ssh_config = used(at, &ssh.unwrap_or_default(), &proof);
    Ok(Bastion {
        endpoint: Endpoint {
            address: dialled.ok_or(Refused)?,
            port,
        },
        login: Login {
            user: user.ok_or(Refused)?,
            credential: proof.credential,
            key_source: proof.source,
            docker_socket: String::new(),
        },
        ssh_config,
    })
}

/// As written, else as ssh: `User` of its configuration, or who runs this.
fn user(
    at: &Cursor<'_>,
    whom: &str,
    ssh: Option<&SshHost>,
    keys: &Keys<'_>,
    found: &mut Found,
) -> Option<String> {
    let before = found.problems.len();
    let Some(user) = values::text(at, found) else {
        let of_ssh = ssh.and_then(|ssh| ssh.user.clone());
        return (found.problems.len() == before)
            .then(|| of_ssh.or_else(|| keys.default_user(at, whom, found)))
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

/// As written, else as ssh.
fn port(at: &Cursor<'_>, ssh: Option<&SshHost>, found: &mut Found) -> u16 {
    if let Some(port) = ssh.and_then(|ssh| ssh.port).filter(|_| at.is_empty()) {
        return port;
    }
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
        return Some(NodeName(address_as_name(
            &node.get("address"),
            address?,
            found,
        )));
    };
    let name = text.to_lowercase();
    if name.len() > LONGEST_NAME || !values::is_dns_name(&name) {
        found.problem(at.problem("is not a valid node name").detail(text).hint(
            "at most 63 letters, digits, `-` and `.`, beginning and ending with a letter or digit",
        ));
    }
    Some(NodeName(name))
}

/// A node that is named nowhere has the name that its address is.
fn address_as_name(at: &Cursor<'_>, address: &str, found: &mut Found) -> String {
    let name = address.strip_suffix('.').unwrap_or(address).to_lowercase();
    if name.len() > LONGEST_NAME {
        let problem = at.problem(
            "is also the node's name, and longer than 63 characters, which kubelet does not take",
        );
        found.problem(problem.hint("write a shorter name in `hostname_override`"));
    } else if ipv6(address).is_some() {
        let problem = at.problem("is an IPv6 address, which cannot be the node's name as well");
        found.problem(
            problem
                .detail(address)
                .hint("write a name in `hostname_override`, such as `node-1`"),
        );
    } else if !values::is_dns_name(&name) {
        let problem = at.problem("is not a valid node name");
        found.problem(problem.detail(address).hint(
            "write a name in `hostname_override`: at most 63 letters, digits, `-` and `.`, as `prod-node-1` for `prod_node_1`",
        ));
    }
    name
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

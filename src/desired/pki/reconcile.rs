//! Settles every key: invariant 2. Pure.
//!
//! 1. The store has keys: they are kept.
//! 2. It definitely has none, and recovery was not asked for: new ones, if *every* etcd and
//!    control-plane host of the intent answered and bears no claim, no certificates and no data of
//!    etcd. Else a refusal that says what was found where.
//! 3. Recovery was asked for: the copies on the control planes, if every etcd and control-plane host
//!    bears one and the same cluster id, the name and the inventory in the copies are those of the
//!    intent, and nobody else here holds that id.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    EngineClient, Keys, Leaf, PkiContext, PkiError, Seed,
    cert::{Authority, Pair, new_authority},
    key::{Key, prf},
    kubeconfig,
    leaf::{Signer, client},
};
use crate::{
    actual::{Actual, HostView},
    config::{Intent, NodeIntent, NodeName, Role},
    desired::{label, path},
    secret::Secret,
    state::{CaPair, ClusterId, InventoryEntry, Saved, codec},
};

/// Settles every key of the cluster, or says why there are none. Makes nothing that was there.
pub fn reconcile(intent: &Intent, have: &Actual, ctx: &PkiContext<'_>) -> Result<Keys, PkiError> {
    let saved = match &have.saved {
        Some(saved) => (**saved).clone(),
        None if ctx.recover => recovered(intent, have, ctx)?,
        None => {
            refuse_unless_new(intent, have)?;
            minted(intent, ctx)?
        }
    };
    let saved = Saved {
        cluster_name: intent.cluster_name.clone(),
        inventory: inventory(&saved.inventory, intent),
        ..saved
    };
    let authorities = Authorities::read(&saved)?;
    let mut leaves = BTreeMap::new();
    for (name, node) in &intent.nodes {
        for leaf in Leaf::ALL {
            if leaf.role().is_none_or(|role| node.roles.contains(&role)) {
                let pair = settle(intent, have, ctx, &authorities, name, node, leaf)?;
                leaves.insert((name.clone(), leaf), pair);
            }
        }
    }
    Ok(Keys {
        kubeconfig: administrator(intent, have, ctx, &authorities.cluster)?,
        leaves,
        engine: engine(&authorities.cluster, ctx.now, &ctx.seed)?,
        service_account_public: service_account_public(&saved)?,
        digest_key: Secret::new(*prf(
            saved.cluster_ca.key.expose().as_bytes(),
            b"rke-operator: digests of contents",
        )),
        saved,
    })
}

fn service_account_public(saved: &Saved) -> Result<String, PkiError> {
    let what = "the service-account key";
    Key::from_pem(saved.service_account_key.expose())
        .ok_or_else(|| PkiError::internal(what, "it cannot be read"))?
        .public_pem(what)
}

/// How this program reaches the API of a cluster, out of its saved state alone.
pub fn engine_client(saved: &Saved, now: Timestamp, seed: &Seed) -> Result<EngineClient, PkiError> {
    engine(&Authority::read(&saved.cluster_ca, CLUSTER_CA)?, now, seed)
}

const CLUSTER_CA: &str = "the cluster's CA";
const ETCD_CA: &str = "etcd's CA";
const FRONT_PROXY_CA: &str = "the front proxy's CA";

struct Authorities {
    cluster: Authority,
    etcd: Authority,
    front_proxy: Authority,
}

impl Authorities {
    fn read(saved: &Saved) -> Result<Self, PkiError> {
        if Key::from_pem(saved.service_account_key.expose()).is_none() {
            return Err(PkiError::Damaged {
                what: "the service-account key",
                why: "it is not an ECDSA P-256 key in PKCS#8 PEM".to_owned(),
            });
        }
        Ok(Self {
            cluster: Authority::read(&saved.cluster_ca, CLUSTER_CA)?,
            etcd: Authority::read(&saved.etcd_ca, ETCD_CA)?,
            front_proxy: Authority::read(&saved.front_proxy_ca, FRONT_PROXY_CA)?,
        })
    }

    const fn signer(&self, signer: Signer) -> &Authority {
        match signer {
            Signer::Cluster => &self.cluster,
            Signer::Etcd => &self.etcd,
            Signer::FrontProxy => &self.front_proxy,
        }
    }
}

/// The hosts whose word counts: those that have keys or data.
fn keepers(intent: &Intent) -> impl Iterator<Item = &NodeName> {
    intent
        .nodes
        .iter()
        .filter(|(_, node)| {
            node.roles.contains(&Role::Etcd) || node.roles.contains(&Role::ControlPlane)
        })
        .map(|(name, _)| name)
}

/// `Ok` when the world is sure to have nothing of a cluster.
fn refuse_unless_new(intent: &Intent, have: &Actual) -> Result<(), PkiError> {
    // What was found is said before what is unknown: it is the better reason.
    for name in keepers(intent) {
        let Some(facts) = have.up(name) else { continue };
        let node = name.clone();
        if let Some(claim) = facts.claim() {
            let of = |key| claim.labels.get(key).cloned().unwrap_or_default();
            return Err(PkiError::NewButClaimed {
                node,
                id: ClusterId(of(label::CLUSTER_ID)),
                name: of(label::CLUSTER_NAME),
            });
        }
        let pki = facts
            .files
            .iter()
            .flatten()
            .find(|(file, fact)| {
                !fact.is_dir && (file.starts_with(path::SSL) || file.as_str() == path::STATE)
            })
            .map(|(file, _)| file.clone());
        // A folder that was seen to be empty has nothing; one that could not be looked into may.
        let filled =
            |path: &str| facts.system.paths.contains(path) && !facts.system.empty.contains(path);
        if let Some(path) = pki.or_else(|| filled(path::SSL).then(|| path::SSL.to_owned())) {
            return Err(PkiError::NewButPki { node, path });
        }
        if filled(path::ETCD) {
            let path = path::ETCD.to_owned();
            return Err(PkiError::NewButEtcd { node, path });
        }
    }
    for name in keepers(intent) {
        match have.hosts.get(name) {
            Some(HostView::Up(_)) => {}
            Some(HostView::Down(down)) => {
                return Err(PkiError::NewButDown {
                    node: name.clone(),
                    down: down.clone(),
                });
            }
            None => return Err(PkiError::NewButUnseen { node: name.clone() }),
        }
    }
    Ok(())
}

/// The keys of a new cluster.
fn minted(intent: &Intent, ctx: &PkiContext<'_>) -> Result<Saved, PkiError> {
    let authority =
        |cn: &str| -> Result<CaPair, PkiError> { new_authority(cn, cn, &ctx.seed, ctx.now) };
    let slot = "kube-service-account-token";
    Ok(Saved {
        cluster_id: ClusterId(
            ctx.seed
                .derive("cluster id")
                .first_chunk::<16>()
                .map(hex::encode)
                .unwrap_or_default(),
        ),
        cluster_name: intent.cluster_name.clone(),
        cluster_ca: authority("kube-ca")?,
        etcd_ca: authority("kube-etcd-ca")?,
        front_proxy_ca: authority("kube-apiserver-requestheader-ca")?,
        service_account_key: Key::derive(&ctx.seed, slot)?.to_pem(slot)?,
        inventory: BTreeMap::new(),
    })
}

/// The keys that the control planes keep, if every rule of a recovery holds.
fn recovered(intent: &Intent, have: &Actual, ctx: &PkiContext<'_>) -> Result<Saved, PkiError> {
    let id = one_cluster(intent, have)?;
    if ctx.held_elsewhere.contains(&id) {
        return Err(PkiError::RecoverHeld { id });
    }
    let mut found: Option<Saved> = None;
    for (name, _) in intent.with_role(Role::ControlPlane) {
        let copy = copy_of(name, have)?;
        let bad = |why: &str| PkiError::RecoverBadCopy {
            node: name.clone(),
            path: path::STATE,
            why: why.to_owned(),
        };
        if copy.cluster_id != id {
            return Err(bad("it is another cluster's than the node's mark says"));
        }
        if copy.cluster_name != intent.cluster_name {
            return Err(PkiError::RecoverName {
                node: name.clone(),
                owner: copy.cluster_name.clone(),
                name: intent.cluster_name.clone(),
            });
        }
        if let Some(difference) = difference(&copy.inventory, &inventory(&BTreeMap::new(), intent))
        {
            return Err(PkiError::RecoverInventory {
                node: name.clone(),
                difference,
            });
        }
        if found.as_ref().is_some_and(|first| !same_keys(first, &copy)) {
            return Err(bad("its keys differ from those on another control plane"));
        }
        found.get_or_insert(copy);
    }
    found.ok_or(PkiError::RecoverNowhere)
}

/// The one id that every keeper's claim bears.
fn one_cluster(intent: &Intent, have: &Actual) -> Result<ClusterId, PkiError> {
    let mut found: Option<(&NodeName, ClusterId)> = None;
    for name in keepers(intent) {
        if let Some(HostView::Down(down)) = have.hosts.get(name) {
            return Err(PkiError::RecoverDown {
                node: name.clone(),
                down: down.clone(),
            });
        }
        let id = have
            .claimed_by(name)
            .ok_or_else(|| PkiError::RecoverUnclaimed { node: name.clone() })?;
        match &found {
            Some((other, other_id)) if *other_id != id => {
                return Err(PkiError::RecoverMixed {
                    node: name.clone(),
                    id,
                    other: (*other).clone(),
                    other_id: other_id.clone(),
                });
            }
            Some(_) => {}
            None => found = Some((name, id)),
        }
    }
    found.map(|(_, id)| id).ok_or(PkiError::RecoverNowhere)
}

fn copy_of(name: &NodeName, have: &Actual) -> Result<Saved, PkiError> {
    let none = || PkiError::RecoverNoCopy {
        node: name.clone(),
        path: path::STATE,
    };
    let bad = |why: String| PkiError::RecoverBadCopy {
        node: name.clone(),
        path: path::STATE,
        why,
    };
    let file = have
        .up(name)
        .and_then(|facts| facts.files.as_ref())
        .and_then(|files| files.get(path::STATE))
        .ok_or_else(none)?;
    let text =
        std::str::from_utf8(file.content.expose()).map_err(|_| bad("it is not text".to_owned()))?;
    codec::decode(text).map_err(bad)
}

fn same_keys(one: &Saved, other: &Saved) -> bool {
    one.cluster_ca == other.cluster_ca
        && one.etcd_ca == other.etcd_ca
        && one.front_proxy_ca == other.front_proxy_ca
        && one.service_account_key == other.service_account_key
}

/// How two inventories differ in what makes a cluster: names, addresses and roles. How *we* log in
/// may differ: the keys may lie elsewhere on the machine that recovers.
fn difference(
    copy: &BTreeMap<NodeName, InventoryEntry>,
    wanted: &BTreeMap<NodeName, InventoryEntry>,
) -> Option<String> {
    let names: BTreeSet<&NodeName> = copy.keys().chain(wanted.keys()).collect();
    names
        .into_iter()
        .find_map(|name| match (copy.get(name), wanted.get(name)) {
            (Some(_), None) => Some(format!("the config does not name `{name}`")),
            (None, _) => Some(format!("the copy does not name `{name}`")),
            (Some(copy), Some(wanted)) if copy.endpoint != wanted.endpoint => Some(format!(
                "`{name}` is at {} in the copy and at {} in the config",
                copy.endpoint, wanted.endpoint
            )),
            (Some(copy), Some(wanted)) if copy.roles != wanted.roles => {
                Some(format!("the roles of `{name}` differ"))
            }
            (Some(_), Some(_)) => None,
        })
}

/// The inventory with every node of the intent as the intent has it. Nodes that the intent no
/// longer names stay until they were removed.
fn inventory(
    saved: &BTreeMap<NodeName, InventoryEntry>,
    intent: &Intent,
) -> BTreeMap<NodeName, InventoryEntry> {
    let mut inventory = saved.clone();
    inventory.extend(intent.nodes.iter().map(|(name, node)| {
        let entry = InventoryEntry {
            endpoint: node.endpoint.clone(),
            user: node.login.user.clone(),
            key_source: node.login.key_source.clone(),
            docker_socket: node.login.docker_socket.clone(),
            roles: node.roles.iter().copied().collect(),
        };
        (name.clone(), entry)
    }));
    inventory
}

/// The pair that a node has, when it says what it must; else a new one.
fn settle(
    intent: &Intent,
    have: &Actual,
    ctx: &PkiContext<'_>,
    authorities: &Authorities,
    name: &NodeName,
    node: &NodeIntent,
    leaf: Leaf,
) -> Result<Pair, PkiError> {
    let spec = leaf.spec(intent, name, node);
    let authority = authorities.signer(leaf.signer());
    let stem = leaf.stem(node);
    let kept = on_node(have, name, &stem)
        .filter(|pair| authority.satisfies(&spec, &pair.cert, pair.key.expose(), ctx.now));
    match kept {
        Some(pair) => Ok(pair),
        None => authority.issue(&spec, &format!("{name}/{stem}"), &ctx.seed, ctx.now),
    }
}

fn on_node(have: &Actual, name: &NodeName, stem: &str) -> Option<Pair> {
    let files = have.up(name)?.files.as_ref()?;
    let text = |file: String| {
        let fact = files.get(&file)?;
        String::from_utf8(fact.content.expose().clone()).ok()
    };
    Some(Pair {
        cert: text(format!("{}/{stem}.pem", path::SSL))?,
        key: Secret::new(text(format!("{}/{stem}-key.pem", path::SSL))?),
    })
}

fn administrator(
    intent: &Intent,
    have: &Actual,
    ctx: &PkiContext<'_>,
    authority: &Authority,
) -> Result<Secret<String>, PkiError> {
    let spec = client("kube-admin", Some("system:masters"));
    let server = intent
        .with_role(Role::ControlPlane)
        .next()
        .map_or_else(String::new, |(_, node)| api_url(&node.endpoint.address));
    let cluster = &intent.cluster_name;
    if let Some(text) = &have.kubeconfig
        && kubeconfig::satisfies(text.expose(), cluster, &server, authority, &spec, ctx.now)
    {
        return Ok(text.clone());
    }
    let pair = authority.issue(&spec, "kube-admin", &ctx.seed, ctx.now)?;
    Ok(kubeconfig::administrator(
        cluster,
        &server,
        authority.cert(),
        &pair,
    ))
}

/// The API server at an address, an IPv6 one in brackets.
fn api_url(address: &str) -> String {
    if address.contains(':') {
        format!("https://[{address}]:6443")
    } else {
        format!("https://{address}:6443")
    }
}

fn engine(authority: &Authority, now: Timestamp, seed: &Seed) -> Result<EngineClient, PkiError> {
    let spec = client("rke-operator", Some("system:masters"));
    Ok(EngineClient {
        ca: authority.cert().to_owned(),
        pair: authority.issue(&spec, "rke-operator", seed, now)?,
    })
}

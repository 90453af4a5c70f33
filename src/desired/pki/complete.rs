//! What the store must hold: a new cluster's keys, and what a known state lacks. Pure.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    super::encryption::{self, KeyRotation},
    PkiContext, PkiError,
    authorities::{Handover, Succession},
    cert::new_authority,
    given::Given,
    key::Key,
    restore::{self, RestoreRequest},
    service_accounts::{self, RenewedTokens, Rotating, RotationStage},
};
use crate::{
    config::{Bastion, Intent, NodeIntent},
    etcd::{ExternalView, Quorum},
    facts::{Actual, ApiView, HostFacts},
    model::{ClusterId, Component, EtcdKeyspace, NodeName, Role, Secret, label},
    state::{
        Authority, BastionEntry, ClusterState, DigestKey, EncryptionKey, GivenCertificates,
        InventoryEntry, Membership, OperatorMemory, ServiceAccounts,
    },
};

pub(super) const SERVICE_ACCOUNTS: &str = "the service-account key";

/// The keys of a new cluster.
pub(super) fn generate(
    intent: &Intent,
    have: &Actual,
    ctx: &PkiContext<'_>,
    given: Option<&Given>,
) -> Result<ClusterState, PkiError> {
    let authority = |cn: &str, given: Option<&Option<Authority>>| {
        let given = given.and_then(Option::clone);
        given.map_or_else(|| new_authority(cn, cn, &ctx.seed, ctx.now), Ok)
    };
    let slot = "kube-service-account-token";
    let digests = ctx.seed.derive("digests of contents");
    Ok(ClusterState {
        serial: 0,
        digest_key: DigestKey::new(*digests),
        cluster_id: ClusterId(
            ctx.seed
                .derive("cluster id")
                .first_chunk::<16>()
                .map(hex::encode)
                .unwrap_or_default(),
        ),
        cluster_name: intent.cluster_name.clone(),
        kubernetes_version: Some(intent.version),
        cluster_ca: authority("kube-ca", given.map(|given| &given.cluster))?,
        etcd_ca: authority("kube-etcd-ca", given.map(|given| &given.etcd))?,
        front_proxy_ca: authority(
            "kube-apiserver-requestheader-ca",
            given.map(|given| &given.front_proxy),
        )?,
        signer_ca: None,
        service_accounts: ServiceAccounts {
            signing: match given.and_then(|given| given.service_account.clone()) {
                Some(key) => key,
                None => Key::derive(&ctx.seed, slot)?.to_pem(slot)?,
            },
            verifying: Vec::new(),
            next: None,
            issuers: Vec::new(),
            audiences: Vec::new(),
        },
        encryption: Vec::new(),
        etcd_bootstrap: peers(intent, |_| true),
        etcd_epoch: None,
        external_etcd: keyspace(intent, have),
        inventory: BTreeMap::new(),
        given: GivenCertificates::default(),
        memory: OperatorMemory::default(),
    })
}

/// The state that the store must hold: what is known, what the intent says, and what an older
/// format did not have. Its serial grows exactly when something differs.
pub(super) fn completed(
    known: &ClusterState,
    intent: &Intent,
    have: &Actual,
    ctx: &PkiContext<'_>,
    given: Option<&Given>,
) -> Result<ClusterState, PkiError> {
    // The first format did not have them: they are the members of its inventory.
    let was_member = |name: &NodeName| {
        let entry = known.inventory.get(name);
        entry.is_some_and(|entry| entry.roles.contains(&Role::Etcd))
    };
    let mut etcd_bootstrap = if known.is_of_first_format() && known.etcd_bootstrap.is_empty() {
        peers(intent, was_member)
    } else {
        known.etcd_bootstrap.clone()
    };
    let inventory = inventory(known, intent, have, ctx);
    // A node that comes back under such a name, or becomes a member again, joins as a new member does.
    etcd_bootstrap.retain(|name, _| {
        let entry = inventory.get(name);
        let stays = entry.is_some_and(|entry| entry.membership != Membership::Lost);
        stays && !is_no_member(name, have)
    });
    let mut next = ClusterState {
        etcd_bootstrap,
        external_etcd: accepted(known, intent, have, ctx),
        cluster_name: intent.cluster_name.clone(),
        kubernetes_version: Some(intent.version),
        inventory,
        ..known.clone()
    };
    match ctx.restore {
        Some(RestoreRequest::Begin(restore)) => {
            let peer = peers(intent, |name| *name == restore.first).remove(&restore.first);
            restore.begin(&mut next, peer);
            restore::end(&mut next, intent, have);
        }
        Some(RestoreRequest::TakeBack) => restore::take_back(&mut next, peers(intent, |_| true)),
        None => {}
    }
    if next.signer_ca.is_none() {
        let cn = "kube-signer-ca";
        next.signer_ca = Some(new_authority(cn, cn, &ctx.seed, ctx.now)?);
    }
    let new_key = || encryption_key(ctx, known.encryption.len());
    next.encryption = encryption::kept(intent, known, have, new_key)
        .map_err(|count| PkiError::TooManyEncryptions { count })?;
    if ctx.rotate_key {
        let rotation = encryption::rotation(intent, known, have).map_err(PkiError::KeyRotation)?;
        if rotation == KeyRotation::Begins {
            next.encryption.insert(0, new_key());
        }
    }
    let accounts = &mut next.service_accounts;
    let public = public_key(&accounts.signing)?;
    if !accounts.verifying.contains(&public) {
        accounts.verifying.insert(0, public);
    }
    let domain = &intent.services.cluster_domain;
    let issuer = format!("https://kubernetes.default.svc.{domain}");
    if accounts.issuers.first() != Some(&issuer) {
        accounts.issuers.retain(|known| *known != issuer);
        accounts.issuers.insert(0, issuer);
    }
    // What is wrong with a folder of certificates is reported as a whole.
    let is_usable = given.is_none_or(|given| given.problems.is_empty());
    if let Some(stage) = ctx.service_account_key.filter(|_| is_usable) {
        next.service_accounts = rotating(&next, intent, have, ctx, given).after(stage)?;
    }
    if let Some(stage) = ctx.authorities {
        next = succession(&next, intent, have, ctx).after(stage)?;
    }
    if let Some(given) = given {
        next.given = given.kept(&next, intent);
    }
    if next != *known || known.serial == 0 {
        next.serial = known.serial.saturating_add(1);
    }
    Ok(next)
}

/// What the rotation of the service-account key is decided by.
fn rotating<'a>(
    state: &'a ClusterState,
    intent: &'a Intent,
    have: &'a Actual,
    ctx: &'a PkiContext<'a>,
    given: Option<&'a Given>,
) -> Rotating<'a> {
    Rotating {
        intent,
        state,
        have,
        ctx,
        given: given.and_then(|given| given.service_account.as_ref()),
    }
}

/// What the rotation of the authorities is decided by.
const fn succession<'a>(
    state: &'a ClusterState,
    intent: &'a Intent,
    have: &'a Actual,
    ctx: &'a PkiContext<'a>,
) -> Succession<'a> {
    Succession {
        intent,
        state,
        have,
        ctx,
    }
}

impl PkiContext<'_> {
    /// What a request for new authorities has come to, and what else is to be done about them.
    pub(super) fn rotates_authorities(
        &self,
        known: &ClusterState,
        next: &ClusterState,
        intent: &Intent,
        have: &Actual,
    ) -> Result<(Vec<String>, Handover), PkiError> {
        let Some(stage) = self.authorities else {
            return Ok((Vec::new(), Handover::default()));
        };
        let succession = succession(next, intent, have, self);
        Ok((succession.notes(stage, known)?, succession.handover(stage)))
    }

    /// What a request for a new service-account key has come to, and the tokens that are signed again before a former key
    /// is dropped.
    pub(super) fn rotates_service_accounts(
        &self,
        known: &ClusterState,
        next: &ClusterState,
        intent: &Intent,
        have: &Actual,
    ) -> Result<(Option<&'static str>, Option<RenewedTokens>), PkiError> {
        let Some(stage) = self.service_account_key else {
            return Ok((None, None));
        };
        let drops = stage == RotationStage::Complete
            && known.service_accounts.verifying != next.service_accounts.verifying;
        let renewed = rotating(next, intent, have, self, None).renewed(&next.service_accounts)?;
        let renewed = renewed.filter(|tokens| drops && !tokens.secrets.is_empty());
        Ok((service_accounts::note(stage, known, next), renewed))
    }

    /// What a request for a new key has come to. `known` is the state before, `next` the one after.
    pub(super) fn rotates_key(&self, known: &ClusterState, next: &ClusterState) -> Option<String> {
        let note = || encryption::rotation_note(known, next);
        self.rotate_key.then(note)
    }
}

/// A new key for what the API servers store; `before`: how many entries the state has.
fn encryption_key(ctx: &PkiContext<'_>, before: usize) -> EncryptionKey {
    // One run never generates the same key twice.
    let slot = |what: &str| match before {
        0 => what.to_owned(),
        _ => format!("{what} {before}"),
    };
    let bytes = ctx.seed.derive(&slot("encryption key"));
    let name = hex::encode(&ctx.seed.derive(&slot("encryption key's name"))[..4]);
    EncryptionKey {
        name: format!("key-{name}"),
        secret: Secret::new(STANDARD.encode(bytes.as_slice())),
    }
}

/// What verifies what the signing key signs.
pub(super) fn public_key(signing: &Secret<String>) -> Result<String, PkiError> {
    let key = Key::from_pem(signing.expose());
    let key = key.ok_or_else(|| PkiError::Damaged {
        what: SERVICE_ACCOUNTS,
        why: "it is not a P-256 or RSA key in PEM".to_owned(),
    })?;
    key.public_pem(SERVICE_ACCOUNTS)
}

/// Where a new cluster's keys will be, in the external etcd that answered. A cluster never changes it: its data would
/// not move.
fn keyspace(intent: &Intent, have: &Actual) -> Option<EtcdKeyspace> {
    let wanted = intent.etcd.external()?;
    match have.etcd.external()? {
        ExternalView::Answered { cluster, .. } => Some(EtcdKeyspace {
            etcd_cluster: cluster.clone(),
            prefix: wanted.prefix.clone(),
        }),
        ExternalView::NotAsked | ExternalView::Faulty(_) => None,
    }
}

/// Where a cluster's keys are: where they were, or in the etcd that a person accepts by its id. It has keys there; that
/// they are this cluster's tells the copy of the state, once the API is read.
fn accepted(
    known: &ClusterState,
    intent: &Intent,
    have: &Actual,
    ctx: &PkiContext<'_>,
) -> Option<EtcdKeyspace> {
    let has = known.external_etcd.as_ref()?;
    let same_place = intent
        .etcd
        .external()
        .is_some_and(|etcd| etcd.prefix == has.prefix);
    let seen = match have.etcd.external() {
        Some(ExternalView::Answered {
            cluster,
            holds_keys: true,
            ..
        }) => Some(cluster.clone()),
        Some(ExternalView::Answered { .. } | ExternalView::NotAsked | ExternalView::Faulty(_))
        | None => None,
    };
    let accepted = seen.filter(|id| same_place && ctx.accept_etcd == Some(id.as_str()));
    Some(EtcdKeyspace {
        etcd_cluster: accepted.unwrap_or_else(|| has.etcd_cluster.clone()),
        prefix: has.prefix.clone(),
    })
}

/// The members of the intent and their peer addresses.
fn peers(intent: &Intent, of: impl Fn(&NodeName) -> bool) -> BTreeMap<NodeName, String> {
    let members = intent.with_role(Role::Etcd).filter(|(name, _)| of(name));
    let peers = members.map(|(name, node)| {
        let address = node.internal_address.with_port(2380);
        (name.clone(), format!("https://{address}"))
    });
    peers.collect()
}

/// True when nothing of the cluster is on a node that leaves, and nothing of the node is in the
/// cluster: each was looked at.
fn is_gone(known: &ClusterState, name: &NodeName, have: &Actual, ctx: &PkiContext<'_>) -> bool {
    // What is on a machine that no run ever saw is not this cluster's, unless a person says that it goes.
    let may_be_ours = have.is_known_machine(name) || ctx.clean.contains(name);
    let clean = have.up(name).is_some_and(|facts| {
        let data = facts.has_data() && may_be_ours;
        !facts.is_of(&known.cluster_id) && !data
    });
    let is_no_node = match have.api() {
        ApiView::Up(api) => !api.nodes.contains_key(name),
        ApiView::Unknown | ApiView::Unreachable(_) => false,
    };
    clean && is_no_member(name, have) && is_no_node
}

/// True when etcd's own list, confirmed by a majority, has no member of the node. No node is one of an etcd outside
/// of the cluster.
fn is_no_member(name: &NodeName, have: &Actual) -> bool {
    match have.etcd.quorum {
        Quorum::Serving { .. } => {
            have.etcd.of_node(name).next().is_none() && have.unnamed_member(name).is_none()
        }
        Quorum::External(_) => true,
        Quorum::Lost | Quorum::Disagree | Quorum::Unknown => false,
    }
}

/// The roles of a node of the intent: those that it shall have, and former ones until it is seen without
/// them. They determine which nodes are queried for etcd, and through which nodes.
fn roles(
    known: &ClusterState,
    name: &NodeName,
    node: &NodeIntent,
    have: &Actual,
    was: Option<&InventoryEntry>,
) -> Vec<Role> {
    let runs = |components: &[Component]| {
        have.up(name).is_none_or(|facts| {
            let mut facts = components
                .iter()
                .filter_map(|component| facts.container(*component));
            facts.any(|fact| fact.labels.get(label::CLUSTER_ID) == Some(&known.cluster_id.0))
        })
    };
    let keeps = |role: &Role| match role {
        Role::Etcd => runs(&[Component::Etcd]) || !is_no_member(name, have),
        Role::ControlPlane => runs(&[
            Component::ApiServer,
            Component::ControllerManager,
            Component::Scheduler,
        ]),
        Role::Worker => false,
    };
    let had = was.into_iter().flat_map(|was| was.roles.iter().copied());
    let all: BTreeSet<Role> = had
        .filter(keeps)
        .chain(node.roles.iter().copied())
        .collect();
    all.into_iter().collect()
}

/// The inventory with every node of the intent as the intent has it. Nodes that the intent no
/// longer names stay, as leaving, until they were removed; those that are lost stay as tombstones. A
/// name that was lost is a node again when nothing of the old one is left anywhere.
fn inventory(
    known: &ClusterState,
    intent: &Intent,
    have: &Actual,
    ctx: &PkiContext<'_>,
) -> BTreeMap<NodeName, InventoryEntry> {
    let saved = &known.inventory;
    let restores = known.restoring().is_some() || begins_a_restore(known, ctx);
    let mut inventory = saved.clone();
    inventory.retain(|name, _| intent.nodes.contains_key(name) || !is_gone(known, name, have, ctx));
    for (name, entry) in &mut inventory {
        if entry.membership == Membership::Active {
            entry.membership = Membership::Leaving;
        }
        // Nothing of a machine of before counts after a restore: another one takes its place at once.
        let takes_its_place = restores && intent.nodes.contains_key(name);
        if entry.membership == Membership::Leaving
            && !takes_its_place
            && is_given_up(name, intent, have, ctx)
        {
            entry.membership = Membership::Lost;
            entry.lost_at = Some(ctx.now);
        }
    }
    for (name, node) in &intent.nodes {
        let was = inventory.get(name);
        let lost = was.filter(|was| was.membership == Membership::Lost);
        let tombstone = lost.filter(|_| !is_gone(known, name, have, ctx));
        let replaced = restores && have.replaced(name).is_some();
        let was = was.filter(|_| lost.is_none() && !replaced);
        let as_wanted = || InventoryEntry {
            roles: roles(known, name, node, have, was),
            ..entry(node, have.up(name), was)
        };
        let entry = tombstone.cloned().unwrap_or_else(as_wanted);
        inventory.insert(name.clone(), entry);
    }
    inventory
}

fn begins_a_restore(known: &ClusterState, ctx: &PkiContext<'_>) -> bool {
    matches!(ctx.restore, Some(RestoreRequest::Begin(restore)) if known.restores() < restore.number)
}

/// True when a person gives the node up, and it does not answer or another machine does in its
/// place. Whether it may be given up is for the plan to tell.
fn is_given_up(name: &NodeName, intent: &Intent, have: &Actual, ctx: &PkiContext<'_>) -> bool {
    let left = !intent.nodes.contains_key(name);
    let away = left && (have.up(name).is_none() || have.is_taken_by_others(name));
    ctx.lose.contains(name) && (away || have.replaced(name).is_some())
}

/// A node of the intent; `was`: as the state has the same machine.
fn entry(
    node: &NodeIntent,
    facts: Option<&HostFacts>,
    was: Option<&InventoryEntry>,
) -> InventoryEntry {
    let system = facts.map(|facts| &facts.system);
    let seen = system.map(|system| system.machine_id.clone());
    // What was verified just now; of one that does not answer, what was verified before.
    let host_keys = |key: Option<&String>, before: Option<&Vec<String>>| {
        let now = key.map(|key| vec![key.clone()]);
        now.or_else(|| before.cloned()).unwrap_or_default()
    };
    let bastion_entry = |(index, bastion): (usize, &Bastion)| {
        let before = was.and_then(|was| was.bastion(&bastion.endpoint));
        let key = system.and_then(|system| system.bastion_keys.get(index));
        BastionEntry::of(
            bastion,
            host_keys(key, before.map(|before| &before.host_keys)),
        )
    };
    InventoryEntry {
        endpoint: node.endpoint.clone(),
        user: node.login.user.clone(),
        key_source: node.login.key_source.clone(),
        certificate_source: node.login.credential.certificate_source(),
        bastions: node
            .bastions
            .iter()
            .enumerate()
            .map(bastion_entry)
            .collect(),
        docker_socket: node.login.docker_socket.clone(),
        roles: node.roles.iter().copied().collect(),
        machine_id: seen
            .filter(|id| !id.is_empty())
            .or_else(|| was.and_then(|was| was.machine_id.clone())),
        host_keys: host_keys(
            system.and_then(|system| system.host_key.as_ref()),
            was.map(|was| &was.host_keys),
        ),
        membership: Membership::Active,
        lost_at: None,
    }
}

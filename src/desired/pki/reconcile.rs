//! Settles every key: invariant 2. Pure.
//!
//! 1. The store has keys: they are kept, unless a copy is newer ([`newest`]).
//! 2. It definitely has none, and recovery was not asked for: new ones, if *every* etcd and
//!    control-plane host of the intent answered and has no claim, no certificates and no data of
//!    etcd. Otherwise the run is refused with what was found, and where.
//! 3. Recovery was asked for, by the cluster's id: the copies on the control planes ([`recover`]).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{
    CertKind, Certificates, EngineClients, Expiry, Keys, PkiContext, PkiError, RotationStage, Seed,
    authorities::{Trusted, refuse_ended},
    cert::{Authority, LeafSpec, Pair, ends, first, issuer},
    cert_kind::{Signer, client},
    certificate,
    certificate::in_use,
    clock,
    complete::{completed, generate, public_key},
    given::{self, ADMIN, Given},
    kubeconfig::{self, Servers},
    newest::{self, Newer},
    recover,
};
use crate::{
    config::{Intent, NodeIntent},
    desired::Rotated,
    facts::{Actual, ApiHealth, HostView},
    model::{ClientIdentity, ClusterId, Endpoint, NodeName, Role, Secret, label, path},
    state::{self, ClusterState, Membership},
};

/// What ends so soon waits for nothing.
const URGENT: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Settles every key of the cluster, or says why there are none. Makes nothing that was there.
pub fn reconcile(intent: &Intent, have: &Actual, ctx: &PkiContext<'_>) -> Result<Keys, PkiError> {
    clock::agrees(intent, have, ctx.now)?;
    let mut notes = Vec::new();
    let known = match (&have.saved, ctx.recover) {
        (Some(saved), recover) => {
            let (saved, note) = newest(saved, intent, have, recover, ctx)?;
            notes.extend(note);
            Some(saved)
        }
        (None, Some(id)) => {
            let (saved, note) = recover::read_back(intent, have, id, ctx.held_elsewhere)?;
            notes.push(note);
            Some(saved)
        }
        (None, None) => {
            refuse_unless_new(intent, have)?;
            None
        }
    };
    let given = Given::read(intent, have, ctx, known.as_ref());
    // Nothing can be said about what is to be signed by an authority that is not there.
    if given.as_ref().is_some_and(|given| given.cluster.is_none()) {
        usable(given.as_ref(), Vec::new(), ctx)?;
    }
    let known = match known {
        Some(known) => known,
        None => generate(intent, have, ctx, given.as_ref())?,
    };
    let saved = next_state(&known, intent, have, ctx, given.as_ref())?;
    refuse_ended(&saved, ctx.now)?;
    notes.extend(ctx.rotates_key(&known, &saved));
    let (note, renewed_tokens) = ctx.rotates_service_accounts(&known, &saved, intent, have)?;
    notes.extend(note.map(str::to_owned));
    let (said, handover) = ctx.rotates_authorities(&known, &saved, intent, have)?;
    notes.extend(said);
    let (authorities, trusted) = (Authorities::read(&saved)?, Trusted::by(&saved));
    let mut settling = Settling {
        intent,
        have,
        ctx,
        authorities: &authorities,
        saved: &saved,
        trusted: &trusted,
        given: given.as_ref(),
        certificates: Certificates {
            earliest: have.saved.as_deref().and_then(authorities_end),
            ..Certificates::default()
        },
        notes: Vec::new(),
        missing: Vec::new(),
    };
    let leaves = settling.leaves()?;
    let external = intent.etcd.external();
    if let Some(at) = external.and_then(|etcd| ends(&etcd.identity.cert)) {
        let what = "the client certificate for the external etcd, `services.etcd.cert`";
        settling.certificates.sees(at, what.to_owned());
    }
    let kubeconfig = settling.administrator()?;
    settling.sees_certificates_in_use();
    let Settling {
        certificates,
        notes: said,
        missing,
        ..
    } = settling;
    usable(given.as_ref(), missing, ctx)?;
    notes.extend(given.into_iter().flat_map(|given| given.notes));
    notes.extend(said);
    notes.extend(sentences(&certificates, ctx.now));
    Ok(Keys {
        kubeconfig,
        leaves,
        certificates,
        notes,
        service_account_public: saved.service_accounts.verifying.concat(),
        rolls: ctx.rolls(&saved),
        renewed_tokens,
        handover,
        saved,
    })
}

impl PkiContext<'_> {
    /// What is replaced once more when its new key or authority is known everywhere.
    fn rolls(&self, saved: &ClusterState) -> Option<Rotated> {
        let start = Some(RotationStage::Start);
        if self.authorities == start && saved.cluster_ca.next.is_some() {
            Some(Rotated::Authorities)
        } else if self.service_account_key == start && saved.service_accounts.next.is_some() {
            Some(Rotated::ServiceAccountKey)
        } else {
            None
        }
    }
}

/// The state that the store must hold. With one that was read back, its former owner has an older one from now on. That
/// counts once and no more: a copy that was not seen may say something else with the next serial.
fn next_state(
    known: &ClusterState,
    intent: &Intent,
    have: &Actual,
    ctx: &PkiContext<'_>,
    given: Option<&Given>,
) -> Result<ClusterState, PkiError> {
    let mut next = completed(known, intent, have, ctx, given)?;
    let is_read_back = have.saved.is_none() && ctx.recover.is_some();
    if is_read_back && next == *known {
        next.serial = next.serial.saturating_add(1);
    }
    Ok(next)
}

/// The store's state, where no copy is newer; else, where a person asked for it, the newest of all.
fn newest(
    saved: &ClusterState,
    intent: &Intent,
    have: &Actual,
    recover: Option<&ClusterId>,
    ctx: &PkiContext<'_>,
) -> Result<(ClusterState, Option<String>), PkiError> {
    let others = newest::others(saved, have);
    if others.is_empty() {
        return Ok((saved.clone(), None));
    }
    // Damage is reported first.
    Authorities::read(saved)?;
    public_key(&saved.service_accounts.signing)?;
    let mut whys = others.iter().map(|other| &other.why);
    let understood = whys.all(|why| match why {
        Newer::Serial(_) | Newer::Content | Newer::Key(_) => true,
        Newer::Unreadable(_) | Newer::Another(_) => false,
    });
    match recover {
        Some(id) if understood && *id == saved.cluster_id => {
            let (saved, note) = recover::over(saved, intent, have, ctx.held_elsewhere)?;
            Ok((saved, Some(note)))
        }
        Some(_) | None => Err(PkiError::Outdated {
            id: saved.cluster_id.clone(),
            serial: saved.serial,
            copies: others,
        }),
    }
}

/// Everything that is wrong with what a person made, or missing of it, at once.
fn usable(
    given: Option<&Given>,
    missing: Vec<String>,
    ctx: &PkiContext<'_>,
) -> Result<(), PkiError> {
    let mut problems = given
        .map(|given| given.problems.clone())
        .unwrap_or_default();
    problems.extend(missing);
    if problems.is_empty() {
        return Ok(());
    }
    Err(match ctx.given {
        Some(files) => PkiError::Given {
            place: files.place.clone(),
            problems,
        },
        None => PkiError::NotGiven { problems },
    })
}

/// What the plan says about the time of certificates.
fn sentences(certificates: &Certificates, now: Timestamp) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(earliest) = &certificates.earliest {
        sentences.push(earliest.sentence(now));
    }
    for (node, paths) in &certificates.renewed {
        let mut by_reason: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
        for path in paths {
            let why = certificates.why(node, path);
            by_reason.entry(why).or_default().push(path);
        }
        for (why, paths) in by_reason {
            let names: Vec<&str> = paths
                .iter()
                .filter_map(|path| path.rsplit('/').next())
                .filter(|name| !name.ends_with("-key.pem"))
                .collect();
            if !names.is_empty() {
                sentences.push(format!(
                    "certificates of node `{node}` are renewed, because {why}: {}",
                    names.join(", ")
                ));
            }
        }
    }
    sentences
}

/// The authority of a living cluster that ends first.
fn authorities_end(saved: &ClusterState) -> Option<Expiry> {
    certificate::authorities(saved)
        .into_iter()
        .map(|authority| Expiry {
            at: authority.not_after,
            what: authority.name,
        })
        .min()
}

/// How this program reaches the servers of a cluster, out of its saved state alone.
pub fn engine_clients(
    saved: &ClusterState,
    now: Timestamp,
    seed: &Seed,
) -> Result<EngineClients, PkiError> {
    let identity = |authority: &Authority,
                    given: Option<&ClientIdentity>,
                    org,
                    slot|
     -> Result<ClientIdentity, PkiError> {
        if let Some(given) = given.filter(|_| !authority.can_sign()) {
            return Ok(given.clone());
        }
        let Pair { cert, key } = authority.issue(&client(ENGINE, org), slot, seed, now)?;
        let ca = authority.bundle().to_owned();
        Ok(ClientIdentity { ca, cert, key })
    };
    let cluster = Authority::read(&saved.cluster_ca, CLUSTER_CA)?;
    let etcd = Authority::read(&saved.etcd_ca, ETCD_CA)?;
    Ok(EngineClients {
        api: identity(
            &cluster,
            saved.given.api.as_ref(),
            Some("system:masters"),
            "rke-operator",
        )?,
        etcd: identity(&etcd, saved.given.etcd.as_ref(), None, "rke-operator etcd")?,
    })
}

/// Who this program is in its own certificates.
const ENGINE: &str = "rke-operator";

pub(super) const CLUSTER_CA: &str = "the cluster's CA";
pub(super) const ETCD_CA: &str = "etcd's CA";
pub(super) const FRONT_PROXY_CA: &str = "the front proxy's CA";
pub(super) const SIGNER_CA: &str = "the CA of certificate requests";

struct Authorities {
    cluster: Authority,
    etcd: Authority,
    front_proxy: Authority,
}

impl Authorities {
    fn read(saved: &ClusterState) -> Result<Self, PkiError> {
        if let Some(signer) = &saved.signer_ca {
            Authority::read(signer, SIGNER_CA)?;
        }
        for (authority, what) in [
            (&saved.cluster_ca, CLUSTER_CA),
            (&saved.etcd_ca, ETCD_CA),
            (&saved.front_proxy_ca, FRONT_PROXY_CA),
        ] {
            if let Some(next) = &authority.next {
                Authority::read(&state::Authority::of(next.clone()), what)?;
            }
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
fn pki_nodes(intent: &Intent) -> impl Iterator<Item = &NodeName> {
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
    // What was found is reported before what is unknown: it is the better reason.
    for name in pki_nodes(intent) {
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
        let found =
            |path: &str| facts.system.paths.contains(path) && !facts.system.empty.contains(path);
        let unreadable = |path: &str| found(path) && facts.system.unreadable.contains(path);
        let certificates = || {
            let seen = found(path::SSL) && !unreadable(path::SSL);
            seen.then(|| path::SSL.to_owned())
        };
        if let Some(path) = pki.or_else(certificates) {
            return Err(PkiError::NewButPki { node, path });
        }
        if let Some(path) = [path::SSL, path::ETCD]
            .into_iter()
            .find(|path| unreadable(path))
        {
            let path = path.to_owned();
            return Err(PkiError::NewButUnreadable { node, path });
        }
        if found(path::ETCD) {
            let path = path::ETCD.to_owned();
            return Err(PkiError::NewButEtcd { node, path });
        }
    }
    for name in pki_nodes(intent) {
        match have.hosts.get(name) {
            Some(HostView::Reachable(_)) => {}
            Some(HostView::Unreachable(down)) => {
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

/// A certificate of a node.
struct Leaf<'a> {
    name: &'a NodeName,
    node: &'a NodeIntent,
    kind: CertKind,
}

/// What all certificates are settled with, and what is found on the way.
struct Settling<'a> {
    intent: &'a Intent,
    have: &'a Actual,
    ctx: &'a PkiContext<'a>,
    authorities: &'a Authorities,
    saved: &'a ClusterState,
    trusted: &'a Trusted,
    given: Option<&'a Given>,
    certificates: Certificates,
    /// What a person has to renew.
    notes: Vec<String>,
    /// What a person has to make.
    missing: Vec<String>,
}

impl Settling<'_> {
    /// Every certificate of every node.
    fn leaves(&mut self) -> Result<BTreeMap<(NodeName, CertKind), Pair>, PkiError> {
        let intent = self.intent;
        let mut leaves = BTreeMap::new();
        for (name, node) in &intent.nodes {
            for kind in CertKind::ALL {
                if kind.is_for(intent, node) {
                    let leaf = Leaf { name, node, kind };
                    if let Some(pair) = self.pair(&leaf)? {
                        leaves.insert((name.clone(), kind), pair);
                    }
                }
            }
        }
        Ok(leaves)
    }

    /// A user's certificate has priority, and is never replaced by one of rke-operator. `None`: it is missing.
    fn pair(&mut self, leaf: &Leaf<'_>) -> Result<Option<Pair>, PkiError> {
        let Leaf { name, node, kind } = *leaf;
        let stem = kind.stem(node);
        let pairs = self.given.map(|given| &given.leaves);
        if let Some(pair) = pairs.and_then(|pairs| pairs.get(&(name.clone(), kind))) {
            if let Some(at) = ends(&pair.cert) {
                let what = format!("`{}/{stem}.pem` of node `{name}`", path::SSL);
                self.certificates.sees(at, what);
            }
            return Ok(Some(pair.clone()));
        }
        // The fault is reported already.
        let id = (name.clone(), kind);
        if self.given.is_some_and(|given| given.faulty.contains(&id)) {
            return Ok(None);
        }
        let theirs =
            self.given.is_none() && self.saved.given.leaves.contains(&format!("{name}/{stem}"));
        let authority = self.authorities.signer(kind.signer());
        if theirs || !authority.can_sign() {
            return Ok(self.kept(leaf, authority));
        }
        self.reuse_or_issue(leaf).map(Some)
    }

    /// The pair of a person's that a node has; else what there has to be is noted.
    fn kept(&mut self, leaf: &Leaf<'_>, authority: &Authority) -> Option<Pair> {
        let Leaf { name, node, kind } = *leaf;
        let (intent, have, now) = (self.intent, self.have, self.ctx.now);
        let spec = kind.spec(intent, name, node, have.up(name));
        let stem = kind.stem(node);
        let Some(pair) = on_node(have, name, &stem) else {
            if !kind.is_required() {
                return None;
            }
            if have.up(name).is_some() {
                let wanted = kind.wanted_name(intent, node);
                self.misses(given::described(&wanted, &spec));
                return None;
            }
            // What a node has that does not answer is not known, and nothing is done to it.
            return Some(Pair {
                cert: String::new(),
                key: Secret::new(String::new()),
            });
        };
        let what = format!("`{}/{stem}.pem` of node `{name}`", path::SSL);
        let found = given::on_node(&pair, &spec, authority, now);
        if !found.problems.is_empty() {
            for problem in found.problems {
                self.misses(format!("{what} {problem}"));
            }
            return None;
        }
        if let Some(validity) = found.validity {
            self.notes.extend(given::to_renew(&what, validity, now));
            self.certificates.sees(validity.until, what);
        }
        Some(pair)
    }

    fn misses(&mut self, problem: String) {
        if !self.missing.contains(&problem) {
            self.missing.push(problem);
        }
    }

    /// Certificates that components still use although their files are new: an interrupted renewal continues.
    fn sees_certificates_in_use(&mut self) {
        let now = self.ctx.now;
        for (name, view) in &self.have.hosts {
            let HostView::Reachable(facts) = view else {
                continue;
            };
            for used in in_use(facts, &self.saved.cluster_id) {
                let Some(ends) = used.not_after() else {
                    continue;
                };
                let signer = used.record.issuer.as_deref();
                let is_former = signer.is_some_and(|signer| self.trusted.is_former(signer));
                let ends = if is_former { ends.min(now) } else { ends };
                let (path, component) = (used.path, used.component);
                let what = format!("`{path}` with which `{component}` of node `{name}` runs");
                self.certificates.sees(ends, what);
                let key = path.replace(".pem", "-key.pem");
                self.certificates.renews(name, [path, key], ends, now);
            }
        }
    }

    /// The pair that a node has, when it says what it must and does not end soon; else a new one.
    fn reuse_or_issue(&mut self, leaf: &Leaf<'_>) -> Result<Pair, PkiError> {
        let Leaf { name, node, kind } = *leaf;
        let (have, ctx) = (self.have, self.ctx);
        let spec = kind.spec(self.intent, name, node, have.up(name));
        let authority = self.authorities.signer(kind.signer());
        let stem = kind.stem(node);
        let path = |end: &str| format!("{}/{stem}{end}.pem", path::SSL);
        let both = [path(""), path("-key")];
        let there = on_node(have, name, &stem);
        let signer = there.as_ref().and_then(|pair| issuer(&pair.cert));
        if signer.is_some_and(|signer| self.trusted.is_former(&signer)) {
            // Nothing trusts it, however long it is valid.
            self.certificates.renews(name, both, ctx.now, ctx.now);
        } else if let Some(pair) = there
            && let Some(validity) =
                authority.validity(&spec, &pair.cert, pair.key.expose(), ctx.now)
        {
            let what = format!("`{}` of node `{name}`", path(""));
            self.certificates.sees(validity.until, what);
            let pair = self.served(kind, pair);
            let asked = ctx.rotate.is_some_and(|ask| ask.takes(kind, &validity));
            if !validity.ends_soon(ctx.now) && !asked {
                return Ok(pair);
            }
            if !validity.ends_soon(ctx.now) {
                let rotated = self.certificates.rotated.entry(name.clone()).or_default();
                rotated.extend(both.iter().cloned());
            }
            self.certificates
                .renews(name, both, validity.until, ctx.now);
        }
        let pair = authority.issue(&spec, &format!("{name}/{stem}"), &ctx.seed, ctx.now)?;
        Ok(self.served(kind, pair))
    }

    /// An API server presents what the former authority has signed as well: for clients that know that one alone.
    fn served(&self, kind: CertKind, pair: Pair) -> Pair {
        if kind != CertKind::ApiServer {
            return pair;
        }
        let cross = self.saved.cluster_ca.cross.as_deref();
        Pair {
            cert: first(&pair.cert).to_owned() + cross.unwrap_or_default(),
            ..pair
        }
    }

    /// The administrator's kubeconfig; empty where its certificate is missing.
    fn administrator(&mut self) -> Result<Secret<String>, PkiError> {
        let (intent, have, ctx) = (self.intent, self.have, self.ctx);
        let authority = &self.authorities.cluster;
        let cluster = &intent.cluster_name;
        let planes = intent.with_role(Role::ControlPlane);
        let planes = planes.map(|(name, node)| (name, &node.endpoint));
        let before = have.kubeconfig.as_ref();
        let servers = servers(cluster, planes, before, &have.apis);
        if let Some(ClientIdentity { ca: _, cert, key }) = &self.saved.given.api {
            let pair = Pair {
                cert: cert.clone(),
                key: key.clone(),
            };
            let ca = authority.bundle();
            return Ok(kubeconfig::administrator(cluster, &servers, ca, &pair));
        }
        if !authority.can_sign() {
            if self.given.is_none_or(|given| !given.faulty_admin) {
                self.misses(given::described(ADMIN, &admin()));
            }
            return Ok(Secret::new(String::new()));
        }
        if let Some(text) = before
            && kubeconfig::satisfies(
                text.expose(),
                cluster,
                &servers,
                authority,
                &admin(),
                ctx.now,
                ctx.rotate,
            )
        {
            return Ok(text.clone());
        }
        let pair = authority.issue(&admin(), ADMIN, &ctx.seed, ctx.now)?;
        let ca = authority.bundle();
        Ok(kubeconfig::administrator(cluster, &servers, ca, &pair))
    }
}

impl Certificates {
    /// Why the certificate or key at this path is re-created.
    fn why(&self, node: &NodeName, path: &str) -> &'static str {
        let is_in = |all: &BTreeMap<NodeName, BTreeSet<String>>| {
            all.get(node).is_some_and(|paths| paths.contains(path))
        };
        if is_in(&self.ended) {
            "they have ended"
        } else if is_in(&self.rotated) {
            "you ask for it"
        } else {
            "less than a third of their time is left"
        }
    }

    /// Notes what is re-created, and when the present one expires or has expired.
    fn renews<const N: usize>(
        &mut self,
        name: &NodeName,
        paths: [String; N],
        ends: Timestamp,
        now: Timestamp,
    ) {
        if ends.duration_since(now) < URGENT {
            let urgent = self.urgent.entry(name.clone()).or_default();
            urgent.extend(paths.iter().cloned());
        }
        if ends <= now {
            let ended = self.ended.entry(name.clone()).or_default();
            ended.extend(paths.iter().cloned());
        }
        self.renewed.entry(name.clone()).or_default().extend(paths);
    }

    /// One that ends then.
    fn sees(&mut self, at: Timestamp, what: String) {
        let ends = Expiry { at, what };
        self.earliest = self.earliest.take().into_iter().chain([ends]).min();
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

/// The administrator's kubeconfig, created again from the saved state alone. It points to the server that the
/// one `before` it pointed to, as long as that is a control plane.
pub fn admin_kubeconfig(
    saved: &ClusterState,
    before: Option<&Secret<String>>,
    now: Timestamp,
    seed: &Seed,
) -> Result<Secret<String>, PkiError> {
    let authority = Authority::read(&saved.cluster_ca, CLUSTER_CA)?;
    let planes = saved
        .inventory
        .iter()
        .filter(|(_, entry)| {
            entry.membership == Membership::Active && entry.roles.contains(&Role::ControlPlane)
        })
        .map(|(name, entry)| (name, &entry.endpoint));
    let servers = servers(&saved.cluster_name, planes, before, &BTreeMap::new());
    let pair = match &saved.given.api {
        Some(ClientIdentity { ca: _, cert, key }) => Pair {
            cert: cert.clone(),
            key: key.clone(),
        },
        None => authority.issue(&admin(), ADMIN, seed, now)?,
    };
    Ok(kubeconfig::administrator(
        &saved.cluster_name,
        &servers,
        authority.bundle(),
        &pair,
    ))
}

/// True when a kubeconfig has nothing but what was written for this cluster, so that nothing is lost with it.
pub fn is_ours_alone(kubeconfig: &Secret<String>, saved: &ClusterState) -> bool {
    let bundle = saved.cluster_ca.bundle();
    kubeconfig::is_of(kubeconfig.expose(), &saved.cluster_name, &bundle)
}

pub(super) fn admin() -> LeafSpec {
    client(ADMIN, Some("system:masters"))
}

/// Where the administrator's kubeconfig leads: where it led before, as long as that is a control
/// plane and no other serves in its place.
fn servers<'a>(
    cluster: &str,
    planes: impl Iterator<Item = (&'a NodeName, &'a Endpoint)>,
    before: Option<&Secret<String>>,
    apis: &BTreeMap<NodeName, ApiHealth>,
) -> Servers {
    let planes: Vec<(&NodeName, String)> = planes
        .map(|(name, endpoint)| (name, api_url(&endpoint.address)))
        .collect();
    let before = before.and_then(|text| kubeconfig::server(text.expose(), cluster));
    let serves = |name: &NodeName| apis.get(name) == Some(&ApiHealth::Serving);
    let some_serve = planes.iter().any(|(name, _)| serves(name));
    let mut kept = planes
        .iter()
        .filter(|(_, url)| Some(url) == before.as_ref());
    let kept = kept.find(|(name, _)| serves(name) || !some_serve);
    let mut serving = planes.iter().filter(|(name, _)| serves(name));
    let first = kept.or_else(|| serving.next()).or_else(|| planes.first());
    let each = planes.iter().filter(|_| planes.len() > 1);
    Servers {
        first: first.map(|(_, url)| url.clone()).unwrap_or_default(),
        each: each
            .map(|(name, url)| (format!("{cluster}-{name}"), url.clone()))
            .collect(),
    }
}

/// The API server at an address, an IPv6 one in brackets. A dot at the end of a name is for resolvers alone.
pub(super) fn api_url(address: &str) -> String {
    let address = address.strip_suffix('.').unwrap_or(address);
    if address.contains(':') {
        format!("https://[{address}]:6443")
    } else {
        format!("https://{address}:6443")
    }
}

//! A user's certificates (`--custom-certs`): read from a folder under RKE's names, and validated against what the
//! cluster needs; all that is wrong with them is reported at once. They are used as they are. Pure.
//!
//! Without the key of an authority the folder must have every certificate that it has to sign. With the key, missing
//! certificates are signed with it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    CertKind, Pair, PkiContext, PkiError, Seed,
    cert::{Authority, Compared, LeafSpec, San, Usage, Validity, blocks, compare, request},
    cert_kind::Signer,
    key::Key,
    reconcile::admin,
};
use crate::{
    config::{Intent, NodeIntent},
    facts::Actual,
    model::{ClientIdentity, NodeName, Secret, quoted},
    state::{self, CaPair, ClusterState, GivenCertificates},
};

/// A folder of certificates and keys, by their names without `.pem` and `-key.pem`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenFiles {
    /// Where they are.
    pub place: String,
    certs: BTreeMap<String, String>,
    keys: BTreeMap<String, Secret<String>>,
}

pub(super) const KUBE_CA: &str = "kube-ca";
const ETCD_CA: &str = "kube-etcd-ca";
const FRONT_PROXY_CA: &str = "kube-apiserver-requestheader-ca";
const TOKENS: &str = "kube-service-account-token";
pub(super) const ADMIN: &str = "kube-admin";
/// RKE's, of an external etcd.
const EXTERNAL_ETCD: &str = "kube-etcd-client";

impl GivenFiles {
    /// Of files by name; those that are neither a certificate nor a key are left out, requests too.
    pub fn new(
        place: impl Into<String>,
        files: impl IntoIterator<Item = (String, Secret<String>)>,
    ) -> Self {
        let mut given = Self {
            place: place.into(),
            ..Self::default()
        };
        for (name, text) in files {
            let Some(stem) = name.strip_suffix(".pem") else {
                continue;
            };
            if let Some(stem) = stem.strip_suffix("-key") {
                given.keys.insert(stem.to_owned(), text);
            } else if !stem.ends_with("-csr") {
                given.certs.insert(stem.to_owned(), text.expose().clone());
            }
        }
        given
    }

    /// The names under which a certificate of a node may be, the first that is there counts.
    fn find(&self, kind: CertKind, node: &NodeIntent) -> Option<String> {
        let mut names = kind.given_names(node).into_iter();
        names.find(|name| self.certs.contains_key(name))
    }
}

/// A certificate signing request, for the user's authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The name of its files, without `-csr.pem` and `-key.pem`.
    pub stem: String,
    /// The request, PEM.
    pub csr: String,
    /// Its key, where the folder has none.
    pub key: Option<Secret<String>>,
}

/// Requests for all that the authority of a cluster has to sign when its key is not given, with the keys that the folder
/// has, or new ones. etcd and the front proxy have separate authorities, which rke-operator creates.
pub fn requests(
    intent: &Intent,
    files: &GivenFiles,
    seed: &Seed,
) -> Result<Vec<Request>, PkiError> {
    let mut wanted = BTreeMap::from([(ADMIN.to_owned(), admin())]);
    for (name, node) in &intent.nodes {
        for kind in CertKind::ALL {
            if kind.is_for(intent, node) && kind.signer() == Signer::Cluster {
                let stem = kind.wanted_name(intent, node);
                wanted.insert(stem, kind.spec(intent, name, node, None));
            }
        }
    }
    let mut problems = Vec::new();
    let mut requests = Vec::new();
    for (stem, spec) in wanted {
        let (key, new) = if let Some(pem) = files.keys.get(&stem) {
            (Key::from_pem(pem.expose()), None)
        } else {
            let key = Key::derive(seed, &stem)?;
            let pem = key.to_pem(&stem)?;
            (Some(key), Some(pem))
        };
        let Some(key) = key else {
            problems.push(format!("`{stem}-key.pem` {NO_KEY}"));
            continue;
        };
        let csr = request(&spec, &key, &stem)?;
        requests.push(Request {
            stem,
            csr,
            key: new,
        });
    }
    if problems.is_empty() {
        return Ok(requests);
    }
    Err(PkiError::Given {
        place: files.place.clone(),
        problems,
    })
}

/// What was given, where it is as it must be.
#[derive(Default)]
pub(super) struct Given {
    pub(super) cluster: Option<state::Authority>,
    pub(super) etcd: Option<state::Authority>,
    pub(super) front_proxy: Option<state::Authority>,
    pub(super) service_account: Option<Secret<String>>,
    pub(super) leaves: BTreeMap<(NodeName, CertKind), Pair>,
    pub(super) admin: Option<Pair>,
    /// Those that are there and wrong.
    pub(super) faulty: BTreeSet<(NodeName, CertKind)>,
    /// And the administrator's.
    pub(super) faulty_admin: bool,
    /// What is wrong.
    pub(super) problems: Vec<String>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

impl Given {
    /// Reads all of it for a cluster, of which `known` is the state if it has one.
    pub(super) fn read(
        intent: &Intent,
        have: &Actual,
        ctx: &PkiContext<'_>,
        known: Option<&ClusterState>,
    ) -> Option<Self> {
        let reader = Reader {
            files: ctx.given?,
            now: ctx.now,
        };
        let mut given = Self::default();
        reader.authorities(&mut given);
        if let Some(known) = known {
            given.same_as(known, ctx);
        }
        reader.leaves(&mut given, intent, have, known);
        reader.unused(&mut given, intent);
        Some(given)
    }

    /// A cluster that lives keeps the authorities that it has.
    fn same_as(&mut self, known: &ClusterState, ctx: &PkiContext<'_>) {
        let of = |authority: &state::Authority| blocks(&authority.signing.cert).into_iter().next();
        for (stem, given, has) in [
            (KUBE_CA, &self.cluster, &known.cluster_ca),
            (ETCD_CA, &self.etcd, &known.etcd_ca),
            (FRONT_PROXY_CA, &self.front_proxy, &known.front_proxy_ca),
        ] {
            if given.as_ref().is_some_and(|given| of(given) != of(has)) {
                self.problems.push(format!(
                    "`{stem}.pem` is another authority than the one that the cluster has: it cannot be exchanged"
                ));
            }
        }
        let accounts = &known.service_accounts;
        let is_known = |given: &Secret<String>| {
            *given == accounts.signing || Some(given) == accounts.next.as_ref()
        };
        let given = self.service_account.as_ref();
        if ctx.service_account_key.is_none() && given.is_some_and(|given| !is_known(given)) {
            self.problems.push(format!(
                "`{TOKENS}-key.pem` is another key than the one that signs the cluster's tokens: `rke-operator cert rotate \
                 --service-account-key` exchanges it"
            ));
        }
    }

    /// For the state: what was given, and the client certificates that rke-operator itself uses where it has no key to
    /// make one.
    pub(super) fn kept(&self, state: &ClusterState, intent: &Intent) -> GivenCertificates {
        let identity = |authority: &state::Authority, pair: &Pair| ClientIdentity {
            ca: authority.bundle(),
            cert: pair.cert.clone(),
            key: pair.key.clone(),
        };
        let leaves = self.leaves.keys().filter_map(|(name, kind)| {
            let node = intent.nodes.get(name)?;
            Some(format!("{name}/{}", kind.stem(node)))
        });
        let mut clients = self.leaves.iter();
        let etcd = clients.find(|((_, kind), _)| *kind == CertKind::ApiServerEtcdClient);
        let etcd = etcd.filter(|_| state.etcd_ca.signing.key.is_none());
        GivenCertificates {
            leaves: leaves.collect(),
            api: self
                .admin
                .as_ref()
                .map(|pair| identity(&state.cluster_ca, pair)),
            etcd: etcd.map(|(_, pair)| identity(&state.etcd_ca, pair)),
        }
    }
}

struct Reader<'a> {
    files: &'a GivenFiles,
    now: Timestamp,
}

impl Reader<'_> {
    fn authorities(&self, given: &mut Given) {
        if !self.files.certs.contains_key(KUBE_CA) {
            let problem = format!("`{KUBE_CA}.pem` is missing: the authority of the cluster");
            given.problems.push(problem);
        }
        given.cluster = self.authority(KUBE_CA, &mut given.problems);
        given.etcd = self.authority(ETCD_CA, &mut given.problems);
        given.front_proxy = self.authority(FRONT_PROXY_CA, &mut given.problems);
        // As in RKE: a user whose one authority signs etcd's certificates, too, supplies those certificates.
        let etcd = |stem: &String| {
            stem.starts_with("kube-etcd-") && stem != ETCD_CA && !stem.starts_with(EXTERNAL_ETCD)
        };
        let stems = || self.files.certs.keys();
        if !self.files.certs.contains_key(ETCD_CA) && stems().any(etcd) {
            given.etcd.clone_from(&given.cluster);
        }
        let front = |stem: &String| stem == "kube-apiserver-proxy-client";
        if !self.files.certs.contains_key(FRONT_PROXY_CA) && stems().any(front) {
            given.front_proxy.clone_from(&given.cluster);
        }
        if let Some(key) = self.files.keys.get(TOKENS) {
            if Key::from_pem(key.expose()).is_none() {
                given.problems.push(format!("`{TOKENS}-key.pem` {NO_KEY}"));
            }
            given.service_account = Some(key.clone());
        }
    }

    fn authority(&self, stem: &str, problems: &mut Vec<String>) -> Option<state::Authority> {
        let cert = self.files.certs.get(stem)?;
        if blocks(cert).len() > 1 {
            problems.push(format!(
                "`{stem}.pem` has several certificates: write the one that signs alone, for whatever is in it is trusted"
            ));
            return None;
        }
        let pair = CaPair {
            cert: cert.clone(),
            key: self.files.keys.get(stem).cloned(),
        };
        let authority = state::Authority::of(pair);
        let read = match Authority::parse(&authority, "") {
            Ok(read) => read,
            Err(why) => {
                problems.push(format!("`{stem}.pem`: {why}"));
                return None;
            }
        };
        if let Some(why) = read.untimely(self.now) {
            problems.push(format!("`{stem}.pem` {why}"));
        }
        Some(authority)
    }

    fn leaves(
        &self,
        given: &mut Given,
        intent: &Intent,
        have: &Actual,
        known: Option<&ClusterState>,
    ) {
        let read = |authority: Option<&state::Authority>| Authority::read(authority?, "").ok();
        // One that was not given may be our own, made before.
        let of = |given: &Option<state::Authority>, known: Option<&state::Authority>| {
            read(given.as_ref().or(known))
        };
        let cluster = of(&given.cluster, known.map(|known| &known.cluster_ca));
        let etcd = of(&given.etcd, known.map(|known| &known.etcd_ca));
        let front = of(&given.front_proxy, known.map(|known| &known.front_proxy_ca));
        let mut told = BTreeSet::new();
        let mut tell = |problems: Vec<String>, given: &mut Given| {
            for problem in problems {
                if told.insert(problem.clone()) {
                    given.problems.push(problem);
                }
            }
        };
        for (name, node) in &intent.nodes {
            for kind in CertKind::ALL {
                let has_it = kind.is_for(intent, node);
                let Some(stem) = self.files.find(kind, node).filter(|_| has_it) else {
                    continue;
                };
                let authority = match kind.signer() {
                    Signer::Cluster => &cluster,
                    Signer::Etcd => &etcd,
                    Signer::FrontProxy => &front,
                };
                let spec = kind.spec(intent, name, node, have.up(name));
                match self.leaf(&stem, &spec, authority.as_ref(), &mut given.notes) {
                    Ok(pair) => {
                        given.leaves.insert((name.clone(), kind), pair);
                    }
                    Err(problems) => {
                        given.faulty.insert((name.clone(), kind));
                        tell(problems, given);
                    }
                }
            }
        }
        if self.files.certs.contains_key(ADMIN) {
            match self.leaf(ADMIN, &admin(), cluster.as_ref(), &mut given.notes) {
                Ok(pair) => given.admin = Some(pair),
                Err(problems) => {
                    given.faulty_admin = true;
                    tell(problems, given);
                }
            }
        }
    }

    /// A pair, or all that is wrong with it.
    fn leaf(
        &self,
        stem: &str,
        spec: &LeafSpec,
        authority: Option<&Authority>,
        notes: &mut Vec<String>,
    ) -> Result<Pair, Vec<String>> {
        let cert = self.files.certs.get(stem).cloned().unwrap_or_default();
        let mut problems = Vec::new();
        let key = self.files.keys.get(stem);
        let read = key.map(|key| Key::from_pem(key.expose()));
        match &read {
            None => problems.push(format!(
                "`{stem}-key.pem` is missing: the key of `{stem}.pem`"
            )),
            Some(None) => problems.push(format!("`{stem}-key.pem` {NO_KEY}")),
            Some(Some(_)) => {}
        }
        let found = compare(&cert, read.flatten().as_ref(), spec, authority, self.now);
        problems.extend(
            found
                .problems
                .iter()
                .map(|why| format!("`{stem}.pem` {why}")),
        );
        match key {
            Some(key) if problems.is_empty() => {
                let what = format!("`{stem}.pem` of `{}`", self.files.place);
                let note = found
                    .validity
                    .and_then(|validity| to_renew(&what, validity, self.now));
                if let Some(note) = note.filter(|note| !notes.contains(note)) {
                    notes.push(note);
                }
                Ok(Pair {
                    cert,
                    key: key.clone(),
                })
            }
            Some(_) | None => Err(problems),
        }
    }

    /// A name with a mistake in it would otherwise not be seen.
    fn unused(&self, given: &mut Given, intent: &Intent) {
        let mut known: BTreeSet<String> = [KUBE_CA, ETCD_CA, FRONT_PROXY_CA, TOKENS, ADMIN]
            .map(str::to_owned)
            .into();
        for node in intent.nodes.values() {
            for kind in CertKind::ALL {
                if kind.is_for(intent, node) {
                    known.extend(kind.given_names(node));
                }
            }
        }
        let all = self.files.certs.keys().chain(self.files.keys.keys());
        let unused: BTreeSet<&String> = all.filter(|stem| !known.contains(*stem)).collect();
        if !unused.is_empty() {
            given.notes.push(format!(
                "of the certificates in `{}` these are not used: {}",
                self.files.place,
                quoted(unused)
            ));
        }
    }
}

/// Compares a pair of a person's that a node has with what it must be.
pub(super) fn on_node(
    pair: &Pair,
    spec: &LeafSpec,
    authority: &Authority,
    now: Timestamp,
) -> Compared {
    let key = Key::from_pem(pair.key.expose());
    let mut found = compare(&pair.cert, key.as_ref(), spec, Some(authority), now);
    if key.is_none() {
        found
            .problems
            .push("has no key that can be read".to_owned());
    }
    found
}

/// Said of one that a person made and that ends soon.
pub(super) fn to_renew(what: &str, validity: Validity, now: Timestamp) -> Option<String> {
    let days = validity.until.as_second().saturating_sub(now.as_second()) / 86_400;
    let soon = validity.ends_soon(now);
    soon.then(|| {
        format!("the certificate {what} expires in {days} days; you provided it, so you have to renew it")
    })
}

const NO_KEY: &str = "is not a key that is taken: P-256, or RSA of at least 2048 bits, in PEM";

/// What a certificate must contain, for the user who has it made.
pub(super) fn described(stem: &str, spec: &LeafSpec) -> String {
    let orgs = spec.orgs.iter().flat_map(|org| [", O=", org]);
    let orgs: String = orgs.collect();
    let names: Vec<String> = spec.sans.iter().map(San::to_string).collect();
    let names = if names.is_empty() {
        String::new()
    } else {
        format!(", for {}", names.join(", "))
    };
    let usage = match spec.usage {
        Usage::Client => "a client",
        Usage::Server => "a server",
        Usage::Both => "a client and a server",
    };
    format!(
        "`{stem}.pem` and `{stem}-key.pem` are missing: of {usage}, CN={}{orgs}{names}",
        spec.cn
    )
}

//! New certificate authorities in place of those that a cluster has. Pure.
//!
//! Nothing presents a certificate to a component that does not trust it, so a rotation has three phases. Published:
//! everything that reads an authority trusts the new one as well, and so do pods. Issued: the new one signs, and every
//! certificate is re-created. Dropped, when a person says so: the former one is trusted no longer. How far a rotation is
//! follows from the state and from what the containers were made with.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;

use super::{
    CertKind, PkiContext, PkiError, RotationStage,
    cert::{self, blocks, common_name, ends, new_authority},
    cert_kind::Signer,
    reconcile::{CLUSTER_CA, ETCD_CA, FRONT_PROXY_CA, SIGNER_CA},
    service_accounts::reads,
};
use crate::{
    config::{Intent, NodeIntent},
    desired::containers::containers,
    error::{ErrorClass, Explain},
    facts::{Actual, ApiView, ClusterFacts, ContainerFact, PublishedAuthorities},
    model::{Component, Digest, NodeName, ObjectRef, path},
    state::{Authority, ClusterState},
};

/// Why authorities are not rotated, or not yet. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// A person keeps keys or certificates.
    #[error(
        "certificates and keys of this cluster are your own: rke-operator generates no other authority"
    )]
    Given,
    /// A person has made the authority and has given its key.
    #[error("the certificate of {what} is your own (`CN={name}`): rke-operator generates no other")]
    Theirs {
        /// Which.
        what: &'static str,
        /// Its common name.
        name: String,
    },
    /// It cannot be seen what a node trusts.
    #[error(
        "node `{node}` does not answer, and everything that reads an authority must trust the new one before anything is signed with it"
    )]
    Silent {
        /// The node.
        node: NodeName,
    },
    /// No certificate that it has signed is valid any more.
    #[error(
        "the certificate of {what} ended at {at}: nothing that it has signed is valid any more"
    )]
    Ended {
        /// Which.
        what: &'static str,
        /// When.
        at: Timestamp,
    },
    /// Nothing is signed with the new authorities.
    #[error("nothing is signed with the new authorities yet")]
    NotIssued,
    /// Something runs with a certificate of a former authority.
    #[error("`{component}` on node `{node}` still runs with `{file}` of a former authority")]
    StillUsed {
        /// The node.
        node: NodeName,
        /// Which.
        component: Component,
        /// The file.
        file: String,
    },
    /// Pods of an add-on may know the former authority alone.
    #[error("pods of {0} may not have read the new authority of the cluster")]
    NotRestarted(ObjectRef),
    /// What the API hands out is not known, or lacks the new authorities.
    #[error(
        "the cluster's API does not answer, or ConfigMaps `kube-root-ca.crt` lack the new authority: pods would trust no API server"
    )]
    Unseen,
}

impl Explain for AuthorityError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Given | Self::Theirs { .. } | Self::Ended { .. } | Self::NotIssued => {
                ErrorClass::User
            }
            Self::Silent { .. } | Self::StillUsed { .. } | Self::NotRestarted(_) | Self::Unseen => {
                ErrorClass::Host
            }
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let hint = match self {
            Self::Given | Self::Theirs { .. } => {
                "an authority of your own stays; have it sign the requests that `rke-operator cert generate-csr` writes"
            }
            Self::Ended { .. } => {
                "`rke-operator cert rotate --rotate-ca --now` (a `Cluster` has `rotateCA: {stage: Now}` of a ClusterOperation) puts \
                 another in its place, and replaces everything"
            }
            Self::Silent { .. } => {
                "bring it back, or remove it from the config and run `up`; then rotate the authorities"
            }
            Self::NotIssued | Self::StillUsed { .. } | Self::NotRestarted(_) => {
                "run `rke-operator cert rotate --rotate-ca` until it has nothing to do; then complete it"
            }
            Self::Unseen => "`rke-operator status` shows why; nothing was changed",
        };
        vec![hint.into()]
    }
}

/// What is true of a rotation for the rest of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handover {
    /// Pods are given the new authorities before anything is signed with them: the SHA-256 of what they are to find.
    pub awaits: Option<String>,
    /// Then pods of add-ons are restarted, unless they were for this authority: its SHA-256.
    pub restarts: Option<String>,
    /// The version of the `ConfigMap` from which extension API servers learn of former authorities that nothing trusts any
    /// more.
    pub forgets: Option<String>,
}

/// What a rotation is decided by.
pub(super) struct Succession<'a> {
    pub(super) intent: &'a Intent,
    pub(super) state: &'a ClusterState,
    pub(super) have: &'a Actual,
    pub(super) ctx: &'a PkiContext<'a>,
}

/// An authority of a state: what it is, and its name in its first generation.
struct Named {
    what: &'static str,
    name: &'static str,
}

const CLUSTER: Named = Named {
    what: CLUSTER_CA,
    name: "kube-ca",
};
const ETCD: Named = Named {
    what: ETCD_CA,
    name: "kube-etcd-ca",
};
const FRONT_PROXY: Named = Named {
    what: FRONT_PROXY_CA,
    name: "kube-apiserver-requestheader-ca",
};
const SIGNER: Named = Named {
    what: SIGNER_CA,
    name: "kube-signer-ca",
};

fn authorities(state: &ClusterState) -> impl Iterator<Item = (Named, &Authority)> {
    let signer = state.signer_ca.iter().map(|signer| (SIGNER, signer));
    [
        (CLUSTER, &state.cluster_ca),
        (ETCD, &state.etcd_ca),
        (FRONT_PROXY, &state.front_proxy_ca),
    ]
    .into_iter()
    .chain(signer)
}

fn authorities_mut(state: &mut ClusterState) -> impl Iterator<Item = (Named, &mut Authority)> {
    let signer = state.signer_ca.iter_mut().map(|signer| (SIGNER, signer));
    [
        (CLUSTER, &mut state.cluster_ca),
        (ETCD, &mut state.etcd_ca),
        (FRONT_PROXY, &mut state.front_proxy_ca),
    ]
    .into_iter()
    .chain(signer)
}

impl Named {
    /// Which generation one of this name is. RKE has one name for the authorities of the cluster and of etcd.
    fn generation(&self, name: &str) -> Option<u32> {
        let later = |first| name.strip_prefix(first)?.strip_prefix("-g")?.parse().ok();
        if [self.name, CLUSTER.name].contains(&name) {
            return Some(1);
        }
        later(self.name)
    }

    /// The name of the one after it.
    fn next(&self, authority: &Authority) -> Result<String, PkiError> {
        let name = cert::Authority::read(authority, self.what)?.common_name();
        let name = name.unwrap_or_default();
        match self.generation(&name).and_then(|is| is.checked_add(1)) {
            Some(next) => Ok(format!("{}-g{next}", self.name)),
            None => Err(AuthorityError::Theirs {
                what: self.what,
                name,
            }
            .into()),
        }
    }
}

/// Why nothing can be done with an authority of which a key is here: its time is over.
fn has_ended(named: &Named, authority: &Authority, now: Timestamp) -> Option<AuthorityError> {
    authority.signing.key.as_ref()?;
    let at = ends(&authority.signing.cert).filter(|at| *at <= now)?;
    let what = named.what;
    Some(AuthorityError::Ended { what, at })
}

/// Refuses a cluster in which no component trusts another any more, because an authority has ended.
pub(super) fn refuse_ended(state: &ClusterState, now: Timestamp) -> Result<(), AuthorityError> {
    let mut between =
        authorities(state).filter(|(named, _)| [CLUSTER_CA, ETCD_CA].contains(&named.what));
    let ended = between.find_map(|(named, authority)| has_ended(&named, authority, now));
    ended.map_or(Ok(()), Err)
}

/// The names of the authorities that are trusted.
pub(super) struct Trusted(BTreeSet<String>);

impl Trusted {
    pub(super) fn by(state: &ClusterState) -> Self {
        let read = |(_, authority): (Named, &Authority)| blocks(&authority.bundle());
        let all = authorities(state).flat_map(read);
        Self(all.filter_map(|der| common_name(&der)).collect())
    }

    /// True for the name of one that was replaced, and that nothing trusts any more.
    pub(super) fn is_former(&self, issuer: &str) -> bool {
        let is_ours = |named: Named| named.generation(issuer).is_some();
        let mut all = [CLUSTER, ETCD, FRONT_PROXY].into_iter();
        all.any(is_ours) && !self.0.contains(issuer)
    }
}

/// True for one that has replaced another.
fn is_later(named: &Named, authority: &Authority) -> bool {
    let read = cert::Authority::read(authority, named.what).ok();
    let name = read.and_then(|read| read.common_name());
    let generation = name.and_then(|name| named.generation(&name));
    generation.is_some_and(|generation| generation > 1)
}

/// True between the first phase and the second.
fn is_publishing(state: &ClusterState) -> bool {
    authorities(state).any(|(_, authority)| authority.next.is_some())
}

/// The authority of the cluster that signs, or is going to. As [`Handover::restarts`].
fn newest(state: &ClusterState) -> String {
    let authority = &state.cluster_ca;
    let pair = authority.next.as_ref().unwrap_or(&authority.signing);
    fingerprint(&pair.cert)
}

/// True from the first phase until the last.
fn trusts_former(state: &ClusterState) -> bool {
    authorities(state).any(|(_, authority)| authority.trusted.len() > 1)
}

impl Succession<'_> {
    /// The state with what signs and what is trusted from now on.
    pub(super) fn after(&self, stage: RotationStage) -> Result<ClusterState, PkiError> {
        let mut next = self.state.clone();
        match stage {
            RotationStage::Start if is_publishing(self.state) => self.issue(&mut next)?,
            // Those that were replaced before are dropped first.
            RotationStage::Start if trusts_former(self.state) => {}
            RotationStage::Start => self.publish(&mut next)?,
            RotationStage::Complete => self.drop_former(&mut next)?,
            RotationStage::Now if self.ended().is_some() => self.replace(&mut next)?,
            // One that was cut off, or all is well.
            RotationStage::Now => {}
        }
        Ok(next)
    }

    /// One that signs, and whose time is over.
    fn ended(&self) -> Option<AuthorityError> {
        authorities(self.state)
            .find_map(|(named, authority)| has_ended(&named, authority, self.ctx.now))
    }

    /// Others take their place, and are all that is trusted.
    fn replace(&self, next: &mut ClusterState) -> Result<(), PkiError> {
        self.refuse_given()?;
        for (named, authority) in authorities_mut(next) {
            *authority = self.successor(&named, authority)?;
        }
        Ok(())
    }

    /// The one after it.
    fn successor(&self, named: &Named, authority: &Authority) -> Result<Authority, PkiError> {
        let name = named.next(authority)?;
        // One seed never gives the same key twice.
        let slot = format!("{name} after {}", self.state.serial);
        new_authority(&name, &slot, &self.ctx.seed, self.ctx.now)
    }

    /// Everything is to trust new authorities.
    fn publish(&self, next: &mut ClusterState) -> Result<(), PkiError> {
        self.refuse_given()?;
        self.refuse_silent()?;
        for (named, authority) in authorities_mut(next) {
            let new = self.successor(&named, authority)?;
            for trusted in &mut authority.trusted {
                if !trusted.ends_with('\n') {
                    trusted.push('\n');
                }
            }
            authority.trusted.push(new.signing.cert.clone());
            authority.next = Some(new.signing);
        }
        Ok(())
    }

    /// The new ones sign where everything trusts them, pods included.
    fn issue(&self, next: &mut ClusterState) -> Result<(), PkiError> {
        if !(self.is_trusted() && self.is_handed_out() && self.are_restarted()) {
            return Ok(());
        }
        for (named, authority) in authorities_mut(next) {
            let former = cert::Authority::read(authority, named.what)?;
            let Some(pair) = authority.next.take() else {
                continue;
            };
            authority.signing = pair;
            // Programs outside of the nodes know this one alone.
            if named.name == CLUSTER.name {
                let new = cert::Authority::read(authority, named.what)?;
                let slot = format!("{} signed by the former", named.name);
                let (seed, now) = (&self.ctx.seed, self.ctx.now);
                authority.cross = former.cross_sign(&new, &slot, seed, now)?;
            }
        }
        Ok(())
    }

    /// Only those that sign are trusted, where nothing runs with a certificate of another one.
    fn drop_former(&self, next: &mut ClusterState) -> Result<(), PkiError> {
        if is_publishing(self.state) {
            return Err(AuthorityError::NotIssued.into());
        }
        if !trusts_former(self.state) {
            return Ok(());
        }
        self.refuse_given()?;
        self.refuse_silent()?;
        self.refuse_former()?;
        if !self.is_handed_out() {
            return Err(AuthorityError::Unseen.into());
        }
        let issued = self.first_api_server();
        let mut left = self.not_restarted();
        if let Some(workload) = left.find(|workload| self.is_older(workload, issued)) {
            return Err(AuthorityError::NotRestarted(workload).into());
        }
        for (_, authority) in authorities_mut(next) {
            authority.trusted = vec![authority.signing.cert.clone()];
            authority.cross = None;
        }
        Ok(())
    }

    fn refuse_given(&self) -> Result<(), AuthorityError> {
        if self.state.is_signed_elsewhere() || self.ctx.given.is_some() {
            return Err(AuthorityError::Given);
        }
        Ok(())
    }

    fn refuse_silent(&self) -> Result<(), AuthorityError> {
        let (_, silent) = self.containers(Component::Kubelet);
        match silent {
            Some(node) => Err(AuthorityError::Silent { node: node.clone() }),
            None => Ok(()),
        }
    }

    /// Refuses where something was not started with a certificate of the authority that signs.
    fn refuse_former(&self) -> Result<(), PkiError> {
        let read = |authority, what| cert::Authority::read(authority, what);
        let cluster = read(&self.state.cluster_ca, CLUSTER_CA)?;
        let etcd = read(&self.state.etcd_ca, ETCD_CA)?;
        let front_proxy = read(&self.state.front_proxy_ca, FRONT_PROXY_CA)?;
        let signing = |signer: Signer| match signer {
            Signer::Cluster => &cluster,
            Signer::Etcd => &etcd,
            Signer::FrontProxy => &front_proxy,
        };
        for component in Component::ALL {
            for (node, fact) in self.containers(component).0 {
                if let Some(file) = self.former(node, component, fact, signing) {
                    let node = node.clone();
                    return Err(AuthorityError::StillUsed {
                        node,
                        component,
                        file,
                    }
                    .into());
                }
            }
        }
        Ok(())
    }

    /// The first file that a container was made with and that may be of a former authority.
    fn former<'s>(
        &self,
        node: &NodeName,
        component: Component,
        fact: &ContainerFact,
        signing: impl Fn(Signer) -> &'s cert::Authority,
    ) -> Option<String> {
        let Some(wanted) = self.intent.nodes.get(node) else {
            return Some(path::SSL.to_owned());
        };
        let files = self.have.up(node).and_then(|facts| facts.files.as_ref());
        let is_new = |kind: &CertKind| {
            let file = certificate(*kind, wanted);
            let content = files.and_then(|files| files.get(&file));
            let content = content.map(|fact| fact.content.expose().as_slice());
            content.is_some_and(|content| {
                let pem = std::str::from_utf8(content);
                pem.is_ok_and(|pem| signing(kind.signer()).has_signed(pem))
                    && reads(fact, &file, &self.digest(content))
            })
        };
        let mut kinds = CertKind::ALL
            .into_iter()
            .filter(|kind| kind.reader() == component && kind.is_for(self.intent, wanted));
        let former = kinds.find(|kind| !is_new(kind));
        let former = former.map(|kind| certificate(kind, wanted));
        let signer = self.state.signer_ca.as_ref();
        let signer = signer.map(|signer| self.digest(signer.signing.cert.as_bytes()));
        let signs = signer.is_none_or(|signer| reads_no_other(fact, &[(path::SIGNER_CA, signer)]));
        former.or_else(|| (!signs).then(|| path::SIGNER_CA.to_owned()))
    }

    /// True where everything that reads authorities, on every node, was started with those of the state.
    fn is_trusted(&self) -> bool {
        let state = self.state;
        let files = [
            (path::CLUSTER_CA, state.cluster_ca.bundle()),
            (path::CLUSTER_AND_SIGNER_CA, state.cluster_and_signer()),
            (path::ETCD_CA, state.etcd_ca.bundle()),
            (path::FRONT_PROXY_CA, state.front_proxy_ca.bundle()),
        ];
        let files = files.map(|(file, bundle)| (file, self.digest(bundle.as_bytes())));
        Component::ALL.into_iter().all(|component| {
            let (containers, silent) = self.containers(component);
            let mut containers = containers.iter();
            silent.is_none() && containers.all(|(_, fact)| reads_no_other(fact, &files))
        })
    }

    /// True where every namespace and every Secret with a token holds the authorities of the cluster.
    fn is_handed_out(&self) -> bool {
        let wanted = fingerprint(&self.state.cluster_ca.bundle());
        let is_wanted = |api: &PublishedAuthorities| api.roots.values().all(|is| *is == wanted);
        self.published().is_some_and(is_wanted)
    }

    fn published(&self) -> Option<&PublishedAuthorities> {
        self.api()?.authorities.as_ref()
    }

    fn api(&self) -> Option<&ClusterFacts> {
        match self.have.api() {
            ApiView::Up(api) => Some(api),
            ApiView::Unknown | ApiView::Unreachable(_) => None,
        }
    }

    /// Workloads of add-ons whose pods may know the former authority alone.
    fn not_restarted(&self) -> impl Iterator<Item = ObjectRef> {
        let newest = newest(self.state);
        let left = self.api().map(|api| api.not_restarted_for(&newest));
        let left = left.into_iter().flat_map(BTreeMap::into_values);
        left.flat_map(BTreeMap::into_keys)
    }

    /// True where pods of add-ons have read the authority that is to sign.
    fn are_restarted(&self) -> bool {
        self.not_restarted().next().is_none()
    }

    /// What else is to be done about it.
    pub(super) fn handover(&self, stage: RotationStage) -> Handover {
        let state = self.state;
        let hands_out = match stage {
            RotationStage::Start => is_publishing(state) || trusts_former(state),
            RotationStage::Complete => false,
            RotationStage::Now => !is_publishing(state) && is_later(&CLUSTER, &state.cluster_ca),
        };
        // What signs already is handed out.
        let awaits = hands_out && !self.is_handed_out();
        let completes = stage == RotationStage::Complete && !trusts_former(state);
        Handover {
            awaits: awaits.then(|| fingerprint(&state.cluster_ca.bundle())),
            restarts: hands_out.then(|| newest(state)),
            forgets: completes.then(|| self.forgets()).flatten(),
        }
    }

    /// API servers only ever add to what extension API servers trust. It is deleted when none of them adds a former authority.
    fn forgets(&self) -> Option<String> {
        let extension = self.published()?.extension.as_ref()?;
        let state = self.state;
        let dropped = [
            (path::FRONT_PROXY_CA, state.front_proxy_ca.bundle()),
            (path::CLUSTER_AND_SIGNER_CA, state.cluster_and_signer()),
        ];
        let (servers, silent) = self.containers(Component::ApiServer);
        let has_dropped = dropped.iter().all(|(file, bundle)| {
            let digest = self.digest(bundle.as_bytes());
            servers.iter().all(|(_, fact)| reads(fact, file, &digest))
        });
        let trusted: BTreeSet<Vec<u8>> = authorities(state)
            .flat_map(|(_, authority)| blocks(&authority.bundle()))
            .collect();
        let is_former = |der: &Vec<u8>| {
            let name = common_name(der);
            let is_ours = |named: Named| {
                let name = name.as_deref();
                name.is_some_and(|name| named.generation(name).is_some())
            };
            !trusted.contains(der) && [CLUSTER, FRONT_PROXY, SIGNER].into_iter().any(is_ours)
        };
        let has_former = blocks(&extension.authorities).iter().any(is_former);
        (silent.is_none() && has_dropped && has_former).then(|| extension.version.clone())
    }

    /// Those of all nodes that answer, and the first node that does not.
    fn containers(
        &self,
        component: Component,
    ) -> (Vec<(&NodeName, &ContainerFact)>, Option<&NodeName>) {
        containers(component, None, self.intent, self.state, self.have)
    }

    fn digest(&self, content: &[u8]) -> Digest {
        self.state.digest_key.digest(content)
    }

    /// For the plan: what a rotation has come to. `known` is the state before.
    pub(super) fn notes(
        &self,
        stage: RotationStage,
        known: &ClusterState,
    ) -> Result<Vec<String>, PkiError> {
        let next = self.state;
        let notes = match stage {
            RotationStage::Start if !is_publishing(known) && is_publishing(next) => {
                let cluster = cert::Authority::read(&next.cluster_ca, CLUSTER_CA)?;
                let clients = if cluster.may_cross_sign() {
                    "certificate authorities: API servers then present a certificate that the former authority has signed, too, so \
                 programs that know that one alone go on until you run `cert rotate --rotate-ca --complete`"
                } else {
                    "certificate authorities: the former authority cannot sign the new one (its path length is 0), so programs that \
                 know that one alone fail when API servers present new certificates: pods that do not read `ca.crt` again fail \
                 until they are restarted, and copies of kubeconfigs until they are fetched again"
                };
                vec![
                    "certificate authorities: every component of every node is replaced, one after the other, and trusts the new \
                 authorities as well; then every certificate is re-created and every component is replaced once more; the \
                 former authorities stay trusted",
                    clients,
                ]
            }
            RotationStage::Start if is_publishing(next) => vec![
                "certificate authorities: nothing is signed with the new ones before every component and every ConfigMap \
             `kube-root-ca.crt` trusts them",
            ],
            RotationStage::Start if is_publishing(known) => vec![
                "certificate authorities: everything trusts the new ones, and now every certificate is re-created; the former \
             ones stay trusted",
            ],
            RotationStage::Start => vec![
                "certificate authorities: the former ones are still trusted; `rke-operator cert rotate --rotate-ca --complete` \
             ends that",
            ],
            RotationStage::Complete if trusts_former(known) && !trusts_former(next) => vec![
                "certificate authorities: the former ones are trusted no longer; copied kubeconfigs and certificates of approved \
             requests that they have signed are refused, and pods that have not read `ca.crt` again since the rotation began \
             do not trust the API servers: restart these pods first (`kubectl rollout restart`)",
            ],
            RotationStage::Complete => Vec::new(),
            RotationStage::Now if known.cluster_ca != next.cluster_ca => vec![
                "certificate authorities: their time is over, and others take their place at once: everything is replaced, and the \
             API serves again when that is done; tokens stay good; copied kubeconfigs do not, nor do certificates of approved \
             requests",
            ],
            RotationStage::Now => vec![
                "certificate authorities: none has ended; `rke-operator cert rotate --rotate-ca` replaces them without an \
             interruption",
            ],
        };
        let drops = trusts_former(known) && !trusts_former(next);
        let ends = drops || stage == RotationStage::Now;
        let pods = ends.then(|| self.former_pods()).flatten();
        let notes = notes.into_iter().map(str::to_owned);
        Ok(notes.chain(pods).collect())
    }

    /// When the first of the API servers started that run now, if all of them tell.
    fn first_api_server(&self) -> Option<i64> {
        let (servers, _) = self.containers(Component::ApiServer);
        let starts: Option<Vec<i64>> = servers.iter().map(|(_, fact)| fact.started).collect();
        starts.and_then(|starts| starts.into_iter().min())
    }

    /// True for pods that started before that, or where either is not known.
    fn is_older(&self, workload: &ObjectRef, than: Option<i64>) -> bool {
        let published = self.published();
        let start = published.and_then(|published| published.pods.get(workload));
        than.zip(start).is_none_or(|(than, start)| *start < than)
    }

    /// What may know the former authority alone: pods that rke-operator has not restarted and that started before the API
    /// servers presented new certificates.
    fn former_pods(&self) -> Option<String> {
        let api = self.api()?;
        let restarted: BTreeSet<&ObjectRef> = api
            .addon_workloads()
            .map(|(_, workload, _)| workload)
            .collect();
        let issued = self.first_api_server();
        let pods = self.published()?.pods.keys();
        let former: Vec<String> = pods
            .filter(|owner| !restarted.contains(owner) && self.is_older(owner, issued))
            .map(ToString::to_string)
            .collect();
        let more = former.len().saturating_sub(SHOWN);
        let shown = former[..former.len() - more].join(", ");
        let more = match more {
            0 => String::new(),
            _ => format!(" and {more} more"),
        };
        (!former.is_empty()).then(|| {
            format!(
                "certificate authorities: pods of these started before the API servers presented new certificates: {shown}{more}"
            )
        })
    }
}

/// How many of these are named.
const SHOWN: usize = 20;

fn certificate(kind: CertKind, node: &NodeIntent) -> String {
    format!("{}/{}.pem", path::SSL, kind.stem(node))
}

/// True for a container that was made with this content of those of these files that it reads.
fn reads_no_other(fact: &ContainerFact, files: &[(&str, Digest)]) -> bool {
    fact.applied().is_some_and(|spec| {
        let mut files = files.iter();
        files.all(|(file, wanted)| spec.files.get(*file).is_none_or(|is| is == wanted))
    })
}

/// How a text is compared with what the API holds.
fn fingerprint(text: &str) -> String {
    PublishedAuthorities::fingerprint(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa};
    use rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
        crypto::ring::default_provider,
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    };

    use super::{
        super::{
            Seed,
            cert::{LeafSpec, San, Usage},
            key::Key,
        },
        *,
    };
    use crate::state::CaPair;

    fn now() -> Timestamp {
        "2030-01-01T00:00:00Z".parse().unwrap()
    }

    fn seed() -> Seed {
        Seed::new([7; 32])
    }

    fn authority(name: &str) -> Authority {
        new_authority(name, name, &seed(), now()).unwrap()
    }

    fn read(authority: &Authority) -> cert::Authority {
        cert::Authority::read(authority, CLUSTER_CA).unwrap()
    }

    /// As releases before made them.
    fn limited() -> Authority {
        let key = Key::derive(&seed(), "limited").unwrap();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, CLUSTER.name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        Authority::of(CaPair {
            cert: params.self_signed(&key).unwrap().pem(),
            key: Some(key.to_pem("limited").unwrap()),
        })
    }

    fn is_trusted(served: &str, root: &str) -> bool {
        let certs = CertificateDer::pem_slice_iter(served.as_bytes());
        let certs: Vec<_> = certs.map(Result::unwrap).collect();
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(root.as_bytes()).unwrap();
        roots.add(root).unwrap();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::new(default_provider()));
        let verifier = verifier.build().unwrap();
        let name = ServerName::try_from("kubernetes.default").unwrap();
        let seconds = now().as_second().unsigned_abs();
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let (leaf, rest) = certs.split_first().unwrap();
        verifier
            .verify_server_cert(leaf, rest, &name, &[], at)
            .is_ok()
    }

    /// rustls takes the chain with the former authority as its only root.
    #[test]
    fn who_knows_the_former_authority_alone_trusts_what_the_new_one_has_signed() {
        let (former, new) = (authority("kube-ca"), authority("kube-ca-g2"));
        let leaf = LeafSpec {
            cn: "kube-apiserver".to_owned(),
            orgs: BTreeSet::new(),
            sans: [San::of("kubernetes.default")].into(),
            also: BTreeSet::new(),
            usage: Usage::Server,
        };
        let leaf = read(&new)
            .issue(&leaf, "leaf", &seed(), now())
            .unwrap()
            .cert;
        let cross = read(&former).cross_sign(&read(&new), "cross", &seed(), now());
        let chain = leaf.clone() + &cross.unwrap().unwrap();
        assert!(is_trusted(&chain, &former.signing.cert));
        assert!(is_trusted(&chain, &new.signing.cert));
        assert!(!is_trusted(&leaf, &former.signing.cert));
        assert_eq!(cert::first(&chain), leaf);
        assert_eq!(cert::first(&leaf), leaf);
        let late = now() + jiff::SignedDuration::from_hours(24 * 365 * 11);
        let cross = read(&former).cross_sign(&read(&new), "cross", &seed(), late);
        assert_eq!(cross, Ok(None));
        let cross = read(&limited()).cross_sign(&read(&new), "cross", &seed(), now());
        assert_eq!(cross, Ok(None));
    }

    #[test]
    fn names_count_generations_and_those_of_people_are_not_replaced() {
        let next = |named: &Named, name: &str| named.next(&authority(name));
        assert_eq!(next(&CLUSTER, "kube-ca").unwrap(), "kube-ca-g2");
        assert_eq!(next(&CLUSTER, "kube-ca-g9").unwrap(), "kube-ca-g10");
        assert_eq!(next(&ETCD, "kube-ca").unwrap(), "kube-etcd-ca-g2");
        assert_eq!(next(&ETCD, "kube-etcd-ca-g2").unwrap(), "kube-etcd-ca-g3");
        for name in ["My CA", "kube-ca-gx", "kube-signer-ca"] {
            let error = next(&CLUSTER, name).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

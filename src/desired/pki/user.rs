//! The certificate of a user: signed by the cluster's CA, kept while it is what was requested, and renewed when a third
//! of its life is left. And the kubeconfig around it. Pure.

use std::{borrow::Cow, collections::BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{
    Pair, PkiError, Seed,
    cert::{Authority, LeafSpec, San, Usage, Validity},
    cert_kind::CertKind,
    kubeconfig::{self, Servers},
    reconcile::{CLUSTER_CA, api_url},
};
use crate::{
    config::Intent,
    error::{ErrorClass, Explain},
    model::{Role, Secret},
    state::{ClusterState, Membership},
};

/// Whom a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRequest<'a> {
    /// The common name.
    pub user: &'a str,
    /// The organizations.
    pub groups: &'a BTreeSet<String>,
    /// How long it lives.
    pub life: SignedDuration,
    /// Where the kubeconfig leads; `None`: to the control planes.
    pub server: Option<&'a str>,
}

/// What was handed out before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandedOut {
    /// Where it leads.
    pub server: Option<String>,
    /// The certificate and its key.
    pub pair: Option<Pair>,
}

/// Why there is a new certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewBecause {
    /// There was none.
    None,
    /// What was there is not what is requested, or not of this authority.
    Different,
    /// Less than a third of its life was left.
    Renewal,
}

/// A user's way into a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserAccess {
    /// The user.
    pub user: String,
    /// The cluster's name in the kubeconfig.
    pub cluster: String,
    /// What is trusted there, PEM.
    pub ca: String,
    /// The certificate and its key.
    pub pair: Pair,
    /// When it was issued.
    pub issued: Timestamp,
    /// When it expires.
    pub expires: Timestamp,
    /// Why it is a new one; `None`: it is the one that was handed out.
    pub new: Option<NewBecause>,
    /// Why the one that was handed out, which is due, is not renewed.
    pub late: Option<AccessError>,
    servers: Servers,
}

/// Why a user gets no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The authority cannot be read, or has no key here.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The authority is not valid at this time.
    #[error("the certificate of {CLUSTER_CA} {0}")]
    Untimely(&'static str),
}

impl Explain for AccessError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Pki(error) => error.class(),
            Self::Untimely(_) => ErrorClass::User,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Pki(error) => error.hints(),
            Self::Untimely(_) => Vec::new(),
        }
    }
}

/// When a certificate is renewed: when two thirds of its life are over.
pub fn renew_at(issued: Timestamp, expires: Timestamp) -> Timestamp {
    let life = expires.as_second().saturating_sub(issued.as_second());
    let at = issued
        .as_second()
        .saturating_add(life.saturating_mul(2) / 3);
    Timestamp::from_second(at).unwrap_or(expires)
}

/// The way into the cluster of that state for the user: what was handed out, while it is what is requested and not due,
/// or a new certificate out of the seed.
pub fn user_access(
    saved: &ClusterState,
    request: &UserRequest<'_>,
    before: &HandedOut,
    now: Timestamp,
    seed: &Seed,
) -> Result<UserAccess, AccessError> {
    let authority = Authority::read(&saved.cluster_ca, CLUSTER_CA)?;
    let UserRequest {
        user,
        groups,
        life,
        server,
    } = request;
    let spec = LeafSpec {
        cn: (*user).to_owned(),
        orgs: (*groups).clone(),
        sans: BTreeSet::new(),
        also: BTreeSet::new(),
        usage: Usage::Client,
    };
    let servers = servers(saved, *server, before.server.as_deref());
    let access = |pair, issued, expires, new, late| UserAccess {
        user: (*user).to_owned(),
        cluster: saved.cluster_name.clone(),
        ca: authority.bundle().to_owned(),
        pair,
        issued,
        expires,
        new,
        late,
        servers,
    };
    let good = before.pair.as_ref().and_then(|pair| {
        let validity = authority.validity(&spec, &pair.cert, pair.key.expose(), now)?;
        let issued = issued(validity)?;
        (validity.until > now).then_some((pair, issued, validity.until))
    });
    let because = match good {
        None if before.pair.is_none() => NewBecause::None,
        None => NewBecause::Different,
        Some((pair, issued, expires)) => {
            if expires != end(&authority, issued, *life) {
                NewBecause::Different
            } else if now >= renew_at(issued, expires) {
                NewBecause::Renewal
            } else {
                return Ok(access(pair.clone(), issued, expires, None, None));
            }
        }
    };
    match (issue(&authority, &spec, *life, now, seed), good) {
        (Ok(pair), _) => {
            let validity = authority.validity(&spec, &pair.cert, pair.key.expose(), now);
            let made = validity.and_then(|validity| Some((issued(validity)?, validity.until)));
            let unlike = || PkiError::internal(SLOT, "it is not what was requested");
            let (issued, expires) = made.ok_or_else(unlike)?;
            Ok(access(pair, issued, expires, Some(because), None))
        }
        (Err(error), Some((pair, issued, expires))) => {
            Ok(access(pair.clone(), issued, expires, None, Some(error)))
        }
        (Err(error), None) => Err(error),
    }
}

fn issue(
    authority: &Authority,
    spec: &LeafSpec,
    life: SignedDuration,
    now: Timestamp,
    seed: &Seed,
) -> Result<Pair, AccessError> {
    if let Some(why) = authority.untimely(now) {
        return Err(AccessError::Untimely(why));
    }
    let lives = end(authority, now, life).duration_since(now);
    Ok(authority.issue_for(spec, SLOT, seed, now, lives)?)
}

/// Each is made from another seed.
const SLOT: &str = "user";

/// When one ends that is issued then: not after its authority.
fn end(authority: &Authority, issued: Timestamp, life: SignedDuration) -> Timestamp {
    let end = issued.checked_add(life).unwrap_or(Timestamp::MAX);
    let last = authority.until().unwrap_or(end);
    let end = end.min(last);
    // As a certificate tells it.
    Timestamp::from_second(end.as_second()).unwrap_or(end)
}

/// Every certificate starts an hour before it is made.
fn issued(validity: Validity) -> Option<Timestamp> {
    validity.made()
}

/// Where the kubeconfig leads: to the server that was requested alone; else where it led before, as long as that is a
/// control plane.
fn servers(saved: &ClusterState, requested: Option<&str>, before: Option<&str>) -> Servers {
    if let Some(server) = requested {
        return Servers {
            first: server.to_owned(),
            each: Vec::new(),
        };
    }
    let planes = saved.inventory.iter().filter(|(_, entry)| {
        entry.membership == Membership::Active && entry.roles.contains(&Role::ControlPlane)
    });
    let planes: Vec<(String, String)> = planes
        .map(|(name, entry)| {
            let context = format!("{}-{name}", saved.cluster_name);
            (context, api_url(&entry.endpoint.address))
        })
        .collect();
    let mut kept = planes
        .iter()
        .filter(|(_, url)| Some(url.as_str()) == before);
    let first = kept.next().or_else(|| planes.first());
    Servers {
        first: first.map(|(_, url)| url.clone()).unwrap_or_default(),
        each: if planes.len() > 1 { planes } else { Vec::new() },
    }
}

impl UserAccess {
    /// Where it leads first.
    pub fn server(&self) -> &str {
        &self.servers.first
    }

    /// When it is renewed.
    pub fn renew_at(&self) -> Timestamp {
        renew_at(self.issued, self.expires)
    }

    /// The kubeconfig.
    pub fn kubeconfig(&self) -> Secret<String> {
        kubeconfig::of(
            &self.cluster,
            &self.user,
            &self.servers,
            &self.ca,
            &self.pair,
        )
    }
}

/// What a kubeconfig hands out by its current context.
pub fn handed_out(kubeconfig: &str) -> HandedOut {
    kubeconfig::current(kubeconfig).map_or_else(HandedOut::default, |(server, pair)| HandedOut {
        server: Some(server),
        pair,
    })
}

/// What a kubeconfig says, for a status: who, where to, from when to when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The common name of its certificate.
    pub user: String,
    /// Where its current context leads.
    pub server: String,
    /// From when on its certificate is valid.
    pub issued: Timestamp,
    /// When that expires.
    pub expires: Timestamp,
}

impl Shown {
    /// When that is renewed.
    pub fn renew_at(&self) -> Timestamp {
        renew_at(self.issued, self.expires)
    }
}

/// What a kubeconfig says; `None` where it has no certificate that can be read.
pub fn shown(kubeconfig: &str) -> Option<Shown> {
    let (server, pair) = kubeconfig::current(kubeconfig)?;
    let der = super::cert::der(&pair?.cert)?;
    let (_, cert) = x509_parser::parse_x509_certificate(&der).ok()?;
    let validity = Validity::of(&cert)?;
    let user = cert.subject().iter_common_name().next()?.as_str().ok()?;
    Some(Shown {
        user: user.to_owned(),
        server,
        issued: issued(validity)?,
        expires: validity.until,
    })
}

/// True when the API servers of the intent are known by that name: all of them, or the one whose own it is.
pub fn is_api_name(intent: &Intent, host: &str) -> bool {
    let name = San::of(host.trim_start_matches('[').trim_end_matches(']'));
    intent.with_role(Role::ControlPlane).any(|(node, known)| {
        let spec = CertKind::ApiServer.spec(intent, node, known, None);
        spec.sans.contains(&name)
    })
}

//! Certificates: issued from a key and a specification, and checked against one. Pure.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyUsagePurpose, SanType, SerialNumber,
};
use time::OffsetDateTime;
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
    pem::Pem,
    time::ASN1Time,
    x509::X509Name,
};

use super::{
    PkiError,
    key::{Key, Seed},
    organizations::with_organizations,
};
use crate::{
    model::{HostAddress, Secret},
    state::{self, CaPair},
};

/// A certificate starts so long before it is made.
const HOUR: SignedDuration = SignedDuration::from_hours(1);
const YEAR: SignedDuration = SignedDuration::from_hours(24 * 365);
const JITTER: SignedDuration = SignedDuration::from_hours(24 * 30);
const TEN_YEARS: SignedDuration = SignedDuration::from_hours(24 * 3650);

/// What a certificate's holder proves with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Usage {
    /// Who it is, to a server.
    Client,
    /// Who it is, to its clients.
    Server,
    /// Both: etcd's members dial one another.
    Both,
}

impl Usage {
    const fn client(self) -> bool {
        matches!(self, Self::Client | Self::Both)
    }

    const fn server(self) -> bool {
        matches!(self, Self::Server | Self::Both)
    }
}

/// A name that a certificate is good for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum San {
    /// A host name.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

impl San {
    /// An address if it reads as one, else a name.
    pub(super) fn of(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::Dns(text.to_lowercase()), Self::Ip)
    }
}

impl std::fmt::Display for San {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(ip) => write!(f, "{ip}"),
        }
    }
}

impl From<&HostAddress> for San {
    fn from(address: &HostAddress) -> Self {
        match address {
            HostAddress::Ip(ip) => Self::Ip(*ip),
            HostAddress::Name(name) => Self::Dns(name.to_lowercase()),
        }
    }
}

/// What a leaf certificate must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeafSpec {
    /// Common name: the user or the server.
    pub(super) cn: String,
    /// Organisations: Kubernetes reads them as groups.
    pub(super) orgs: BTreeSet<String>,
    /// Names of a server.
    pub(super) sans: BTreeSet<San>,
    /// Names that are written into a new certificate. An existing one need not have them: it is not replaced
    /// for their sake, and may have others.
    pub(super) also: BTreeSet<San>,
    /// What for.
    pub(super) usage: Usage,
}

/// A certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Certificate, PEM.
    pub cert: String,
    /// Private key, PKCS#8 PEM.
    pub key: Secret<String>,
}

/// An authority, read.
pub(super) struct Authority {
    /// `None`: a person signs with it elsewhere.
    key: Option<Key>,
    what: &'static str,
    bundle: String,
    cert_der: Vec<u8>,
}

impl Authority {
    /// Reads a pair, and sees that key and certificate belong together and are an authority's.
    pub(super) fn read(authority: &state::Authority, what: &'static str) -> Result<Self, PkiError> {
        Self::parse(authority, what).map_err(|why| PkiError::Damaged {
            what,
            why: why.to_owned(),
        })
    }

    /// The same; the error says what is wrong alone.
    pub(super) fn parse(
        authority: &state::Authority,
        what: &'static str,
    ) -> Result<Self, &'static str> {
        let pair = &authority.signing;
        let key = pair.key.as_ref().map(|pem| {
            Key::from_pem(pem.expose()).ok_or("its key is not a P-256 or RSA key in PEM")
        });
        let key = key.transpose()?;
        let cert_der = der(&pair.cert).ok_or("its certificate is not PEM")?;
        let (_, cert) = x509_parser::parse_x509_certificate(&cert_der)
            .map_err(|_| "its certificate cannot be read")?;
        if !cert.is_ca() {
            return Err("its certificate is not an authority's");
        }
        let public = cert.public_key().subject_public_key.data.as_ref();
        if key.as_ref().is_some_and(|key| key.public() != public) {
            return Err("its key and its certificate do not belong together");
        }
        Ok(Self {
            key,
            what,
            bundle: authority.bundle(),
            cert_der,
        })
    }

    /// Everything that is trusted in its place, PEM.
    pub(super) fn bundle(&self) -> &str {
        &self.bundle
    }

    /// True when its key is here.
    pub(super) const fn can_sign(&self) -> bool {
        self.key.is_some()
    }

    /// What is wrong with its time.
    pub(super) fn untimely(&self, now: Timestamp) -> Option<&'static str> {
        let (_, cert) = x509_parser::parse_x509_certificate(&self.cert_der).ok()?;
        untimely(&cert, now)
    }

    /// When its certificate ends.
    pub(super) fn until(&self) -> Option<Timestamp> {
        let (_, cert) = x509_parser::parse_x509_certificate(&self.cert_der).ok()?;
        Some(Validity::of(&cert)?.until)
    }

    /// A new leaf, out of the seed.
    pub(super) fn issue(
        &self,
        spec: &LeafSpec,
        slot: &str,
        seed: &Seed,
        now: Timestamp,
    ) -> Result<Pair, PkiError> {
        self.issue_for(spec, slot, seed, now, lifetime(slot, seed))
    }

    /// A new leaf that lives so long from now on.
    pub(super) fn issue_for(
        &self,
        spec: &LeafSpec,
        slot: &str,
        seed: &Seed,
        now: Timestamp,
        lives: SignedDuration,
    ) -> Result<Pair, PkiError> {
        let internal = |error: rcgen::Error| PkiError::internal(slot, error);
        let signs = self.key.as_ref().ok_or_else(|| PkiError::NoCaKey {
            what: self.what,
            slot: slot.to_owned(),
        })?;
        let key = Key::derive(seed, slot)?;
        let mut params = params(&spec.cn, slot, seed, now, lives)?;
        say(&mut params, spec).map_err(internal)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        let issuer =
            Issuer::from_ca_cert_der(&self.cert_der.as_slice().into(), signs).map_err(internal)?;
        let cert = params.signed_by(&key, &issuer).map_err(internal)?;
        let (cn, orgs) = (&spec.cn, &spec.orgs);
        Ok(Pair {
            cert: if orgs.len() > 1 {
                with_organizations(cert.der(), cn, orgs, signs, slot)?
            } else {
                cert.pem()
            },
            key: key.to_pem(slot)?,
        })
    }

    /// The certificate of the authority that takes its place, signed by this one: by it, a client that trusts this one
    /// alone trusts what the other signs. `None` where the path of this one has a limit, or it has expired.
    pub(super) fn cross_sign(
        &self,
        next: &Self,
        slot: &str,
        seed: &Seed,
        now: Timestamp,
    ) -> Result<Option<String>, PkiError> {
        let internal = |error: rcgen::Error| PkiError::internal(slot, error);
        let until = self.until().into_iter().chain(next.until()).min();
        let left = until.map(|until| until.duration_since(now));
        let (Some(signs), Some(key), Some(left)) = (&self.key, &next.key, left) else {
            return Ok(None);
        };
        if !self.may_cross_sign() || !left.is_positive() {
            return Ok(None);
        }
        let mut params = ca_params(
            &next.common_name().unwrap_or_default(),
            slot,
            seed,
            now,
            left,
        )?;
        params.use_authority_key_identifier_extension = true;
        let issuer =
            Issuer::from_ca_cert_der(&self.cert_der.as_slice().into(), signs).map_err(internal)?;
        let cert = params.signed_by(key, &issuer).map_err(internal)?;
        Ok(Some(cert.pem()))
    }

    /// True where another authority may follow it in a chain: its path has no limit.
    pub(super) fn may_cross_sign(&self) -> bool {
        let Ok((_, cert)) = x509_parser::parse_x509_certificate(&self.cert_der) else {
            return false;
        };
        let basic = cert.basic_constraints().ok().flatten();
        basic.is_some_and(|basic| basic.value.path_len_constraint.is_none())
    }

    /// Its common name.
    pub(super) fn common_name(&self) -> Option<String> {
        common_name(&self.cert_der)
    }

    /// True for a certificate that it has signed.
    pub(super) fn has_signed(&self, pem: &str) -> bool {
        let Some(leaf) = der(pem) else { return false };
        let parsed = x509_parser::parse_x509_certificate(&leaf);
        let ca = x509_parser::parse_x509_certificate(&self.cert_der);
        let (Ok((_, leaf)), Ok((_, ca))) = (parsed, ca) else {
            return false;
        };
        is_signed_by(std::slice::from_ref(&leaf), &ca)
    }

    /// From when to when a leaf is good: `None` when it does not say what it must, is not ours,
    /// does not belong to its key or is not valid yet. It may have ended.
    pub(super) fn validity(
        &self,
        spec: &LeafSpec,
        cert: &str,
        key: &str,
        now: Timestamp,
    ) -> Option<Validity> {
        let (key, leaf_der) = (Key::from_pem(key)?, der(cert)?);
        let (_, leaf) = x509_parser::parse_x509_certificate(&leaf_der).ok()?;
        let (_, ca) = x509_parser::parse_x509_certificate(&self.cert_der).ok()?;
        let at = ASN1Time::from_timestamp(now.as_second()).ok()?;
        let fits = leaf.public_key().subject_public_key.data.as_ref() == key.public()
            && leaf.issuer().as_raw() == ca.subject().as_raw()
            && leaf.verify_signature(Some(ca.public_key())).is_ok()
            && leaf.validity().not_before <= at
            && !leaf.is_ca()
            && says(&leaf, spec);
        fits.then(|| Validity::of(&leaf)).flatten()
    }
}

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

impl Validity {
    /// When it was made: it is valid from an hour before.
    pub(super) fn made(&self) -> Option<Timestamp> {
        self.from.checked_add(HOUR).ok()
    }

    pub(super) fn of(cert: &X509Certificate<'_>) -> Option<Self> {
        let at = |time: ASN1Time| Timestamp::from_second(time.timestamp()).ok();
        Some(Self {
            from: at(cert.validity().not_before)?,
            until: at(cert.validity().not_after)?,
        })
    }

    /// True when less than a third of its lifetime is left: enough time for many attempts, and early
    /// enough that the renewal is not urgent.
    pub(super) fn ends_soon(&self, now: Timestamp) -> bool {
        let left = self.until.as_second().saturating_sub(now.as_second());
        let whole = self.until.as_second().saturating_sub(self.from.as_second());
        left.saturating_mul(3) < whole
    }
}

/// A new authority, out of the seed. Its path has no limit: the certificate of the one that takes its place may be
/// signed by it.
pub(super) fn new_authority(
    cn: &str,
    slot: &str,
    seed: &Seed,
    now: Timestamp,
) -> Result<state::Authority, PkiError> {
    let key = Key::derive(seed, slot)?;
    let cert = ca_params(cn, slot, seed, now, TEN_YEARS)?
        .self_signed(&key)
        .map_err(|error| PkiError::internal(slot, error))?;
    Ok(state::Authority::of(CaPair {
        cert: cert.pem(),
        key: Some(key.to_pem(slot)?),
    }))
}

/// What the certificate of an authority says. Its path has no limit: see [`new_authority`].
fn ca_params(
    cn: &str,
    slot: &str,
    seed: &Seed,
    now: Timestamp,
    lives: SignedDuration,
) -> Result<CertificateParams, PkiError> {
    let mut params = params(cn, slot, seed, now, lives)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    Ok(params)
}

/// What a leaf, or a request for one, says besides its name.
fn say(params: &mut CertificateParams, spec: &LeafSpec) -> Result<(), rcgen::Error> {
    for org in &spec.orgs {
        params
            .distinguished_name
            .push(DnType::OrganizationName, org.as_str());
    }
    for san in spec.sans.union(&spec.also) {
        params.subject_alt_names.push(match san {
            San::Dns(name) => SanType::DnsName(name.as_str().try_into()?),
            San::Ip(address) => SanType::IpAddress(*address),
        });
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if spec.usage.client() {
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    if spec.usage.server() {
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    Ok(())
}

/// A request for a leaf, PEM. The same key gives the same text.
pub(super) fn request(spec: &LeafSpec, key: &Key, slot: &str) -> Result<String, PkiError> {
    let internal = |error: rcgen::Error| PkiError::internal(slot, error);
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, spec.cn.as_str());
    say(&mut params, spec).map_err(internal)?;
    let request = params.serialize_request(key).map_err(internal)?;
    request.pem().map_err(internal)
}

/// A year, less up to thirty days: what was made in one second does not end in one second.
fn lifetime(slot: &str, seed: &Seed) -> SignedDuration {
    let bytes = seed.derive(&format!("lifetime {slot}"));
    let number = bytes
        .iter()
        .take(4)
        .fold(0, |sum, byte| sum << 8 | i64::from(*byte));
    YEAR.saturating_sub(SignedDuration::from_secs(number % JITTER.as_secs()))
}

/// What every certificate has: a name, a unique serial number, and explicit dates. Its validity starts
/// an hour ago, for nodes whose clocks are behind.
fn params(
    cn: &str,
    slot: &str,
    seed: &Seed,
    now: Timestamp,
    lives: SignedDuration,
) -> Result<CertificateParams, PkiError> {
    let at = |when: Result<Timestamp, jiff::Error>| {
        let when = when.map_err(|error| PkiError::internal(slot, error))?;
        OffsetDateTime::from_unix_timestamp(when.as_second())
            .map_err(|error| PkiError::internal(slot, error))
    };
    let mut params = CertificateParams::default();
    params.not_before = at(now.checked_sub(HOUR))?;
    params.not_after = at(now.checked_add(lives))?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, cn);
    params.serial_number = Some(serial(slot, seed));
    Ok(params)
}

/// 16 bytes, positive, of constant length.
fn serial(slot: &str, seed: &Seed) -> SerialNumber {
    let mut bytes: Vec<u8> = seed
        .derive(&format!("serial {slot}"))
        .iter()
        .copied()
        .take(16)
        .collect();
    if let Some(first) = bytes.first_mut() {
        *first = *first & 0x3f | 0x40;
    }
    bytes.into()
}

/// What a certificate that a person made lacks.
pub(super) struct Compared {
    /// All of it, as the rest of a sentence about the file.
    pub(super) problems: Vec<String>,
    pub(super) validity: Option<Validity>,
}

/// Compares a certificate that a person made with what it must say. It may say more. Certificates of authorities between
/// it and the cluster's may follow it in its file.
pub(super) fn compare(
    pem: &str,
    key: Option<&Key>,
    spec: &LeafSpec,
    authority: Option<&Authority>,
    now: Timestamp,
) -> Compared {
    let mut problems = Vec::new();
    let ders = blocks(pem);
    let chain: Vec<X509Certificate<'_>> = ders
        .iter()
        .filter_map(|der| Some(x509_parser::parse_x509_certificate(der).ok()?.1))
        .collect();
    let leaf = chain.first().filter(|_| chain.len() == ders.len());
    let Some(leaf) = leaf else {
        return Compared {
            problems: vec!["is not a certificate in PEM".to_owned()],
            validity: None,
        };
    };
    if key.is_some_and(|key| leaf.public_key().subject_public_key.data.as_ref() != key.public()) {
        problems.push("and its key do not belong together".to_owned());
    }
    if leaf.is_ca() {
        problems.push("is an authority's".to_owned());
    }
    if let Some(authority) = authority
        && let Ok((_, ca)) = x509_parser::parse_x509_certificate(&authority.cert_der)
        && !is_signed_by(&chain, &ca)
    {
        problems.push(format!("is not signed by `{}`", ca.subject()));
    }
    problems.extend(untimely(leaf, now).map(str::to_owned));
    problems.extend(lacks(leaf, spec));
    Compared {
        problems,
        validity: Validity::of(leaf),
    }
}

/// True when each was signed by the next one, and the last or one before it by this authority.
fn is_signed_by(chain: &[X509Certificate<'_>], ca: &X509Certificate<'_>) -> bool {
    let by = |cert: &X509Certificate<'_>, signer: &X509Certificate<'_>| {
        cert.issuer().as_raw() == signer.subject().as_raw()
            && cert.verify_signature(Some(signer.public_key())).is_ok()
    };
    let mut rest = chain;
    while let [cert, others @ ..] = rest {
        if by(cert, ca) {
            return true;
        }
        match others.first() {
            Some(next) if next.is_ca() && by(cert, next) => rest = others,
            Some(_) | None => return false,
        }
    }
    false
}

fn untimely(cert: &X509Certificate<'_>, now: Timestamp) -> Option<&'static str> {
    let now = now.as_second();
    if cert.validity().not_before.timestamp() > now {
        Some("is not valid yet")
    } else if cert.validity().not_after.timestamp() <= now {
        Some("has expired")
    } else {
        None
    }
}

/// The names and usages that it must have and has not. Who a server is its names tell alone.
fn lacks(leaf: &X509Certificate<'_>, spec: &LeafSpec) -> Vec<String> {
    let mut problems = Vec::new();
    if spec.usage == Usage::Client {
        let mut cns = leaf.subject().iter_common_name();
        if !cns.any(|cn| cn.as_str() == Ok(spec.cn.as_str())) {
            problems.push(format!("is not of CN={}", spec.cn));
        }
        let orgs = leaf.subject().iter_organization();
        let orgs: BTreeSet<&str> = orgs.filter_map(|org| org.as_str().ok()).collect();
        for org in spec.orgs.iter().filter(|org| !orgs.contains(org.as_str())) {
            problems.push(format!("is not of O={org}"));
        }
    }
    let found: BTreeSet<San> = leaf
        .subject_alternative_name()
        .ok()
        .flatten()
        .into_iter()
        .flat_map(|extension| extension.value.general_names.iter().filter_map(san))
        .collect();
    let missing: Vec<String> = spec.sans.difference(&found).map(San::to_string).collect();
    if !missing.is_empty() {
        problems.push(format!("lacks the names {}", missing.join(", ")));
    }
    // One without any may be used for all.
    let restricted = leaf.extended_key_usage().ok().flatten().is_some();
    let (client, server) = usages(leaf);
    if restricted && spec.usage.client() && !client {
        problems.push("is not for a client (extended key usage)".to_owned());
    }
    if restricted && spec.usage.server() && !server {
        problems.push("is not for a server (extended key usage)".to_owned());
    }
    problems
}

/// When the first certificate of a PEM file ends.
pub(super) fn ends(pem: &str) -> Option<Timestamp> {
    let der = der(pem)?;
    let (_, cert) = x509_parser::parse_x509_certificate(&der).ok()?;
    Some(Validity::of(&cert)?.until)
}

/// The common name of who has signed the first certificate of a PEM file.
pub(super) fn issuer(pem: &str) -> Option<String> {
    let der = der(pem)?;
    let (_, cert) = x509_parser::parse_x509_certificate(&der).ok()?;
    name_of(cert.issuer())
}

/// The common name of a certificate.
pub(super) fn common_name(der: &[u8]) -> Option<String> {
    let (_, cert) = x509_parser::parse_x509_certificate(der).ok()?;
    name_of(cert.subject())
}

pub(super) fn name_of(name: &X509Name<'_>) -> Option<String> {
    let name = name.iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

/// Every certificate of a PEM file.
pub(super) fn blocks(pem: &str) -> Vec<Vec<u8>> {
    Pem::iter_from_buffer(pem.as_bytes())
        .filter_map(Result::ok)
        .filter(|block| block.label == "CERTIFICATE")
        .map(|block| block.contents)
        .collect()
}

/// The first certificate of a PEM file, as it is there.
pub(super) fn first(pem: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----\n";
    pem.split_inclusive(END).next().unwrap_or(pem)
}

pub(super) fn der(pem: &str) -> Option<Vec<u8>> {
    let mut blocks = Pem::iter_from_buffer(pem.as_bytes());
    let block = blocks.next()?.ok()?;
    (block.label == "CERTIFICATE").then_some(block.contents)
}

fn says(leaf: &X509Certificate<'_>, spec: &LeafSpec) -> bool {
    let texts = |attributes: Vec<Option<String>>| -> Option<BTreeSet<String>> {
        attributes.into_iter().collect()
    };
    let subject = leaf.subject();
    let cn = texts(
        subject
            .iter_common_name()
            .map(|a| a.as_str().ok().map(ToOwned::to_owned))
            .collect(),
    );
    let orgs = texts(
        subject
            .iter_organization()
            .map(|a| a.as_str().ok().map(ToOwned::to_owned))
            .collect(),
    );
    cn == Some(BTreeSet::from([spec.cn.clone()]))
        && orgs.as_ref() == Some(&spec.orgs)
        && sans(leaf).is_some_and(|found| names(&found, spec))
        && usages(leaf) == (spec.usage.client(), spec.usage.server())
}

/// True when it has the names that it must have, and no others where none are spare.
fn names(found: &BTreeSet<San>, spec: &LeafSpec) -> bool {
    if spec.also.is_empty() {
        *found == spec.sans
    } else {
        found.is_superset(&spec.sans)
    }
}

/// The names; `None` when there is one of a kind that we never write.
pub(super) fn sans(leaf: &X509Certificate<'_>) -> Option<BTreeSet<San>> {
    leaf.subject_alternative_name()
        .ok()?
        .map_or(Some(BTreeSet::new()), |extension| {
            extension.value.general_names.iter().map(san).collect()
        })
}

fn san(name: &GeneralName<'_>) -> Option<San> {
    if let GeneralName::DNSName(name) = name {
        Some(San::Dns((*name).to_lowercase()))
    } else if let GeneralName::IPAddress(bytes) = name {
        ip(bytes).map(San::Ip)
    } else {
        None
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(|b| IpAddr::V4(Ipv4Addr::from(b)))
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(|b| IpAddr::V6(Ipv6Addr::from(b))))
        .ok()
}

fn usages(leaf: &X509Certificate<'_>) -> (bool, bool) {
    leaf.extensions()
        .iter()
        .find_map(|extension| {
            if let ParsedExtension::ExtendedKeyUsage(usage) = extension.parsed_extension() {
                Some((usage.client_auth, usage.server_auth))
            } else {
                None
            }
        })
        .unwrap_or_default()
}

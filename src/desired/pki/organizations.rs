//! A certificate whose subject has several organizations: the groups of a user. rcgen writes one attribute of a kind, so
//! the subject of what it made is written again, and signed again.

use std::collections::BTreeSet;

use p256::pkcs8::{LineEnding, der::Document};
use rcgen::SigningKey;
use yasna::{ASN1Error, ASN1ErrorKind, models::ObjectIdentifier, parse_der};

use super::{PkiError, key::Key};

/// Where a subject is in what is signed: after version, serial number, algorithm, issuer and validity.
const SUBJECT: usize = 5;

const COMMON_NAME: [u64; 4] = [2, 5, 4, 3];
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// The certificate with that subject in the place of the one that it has, PEM.
pub(super) fn with_organizations(
    certificate: &[u8],
    cn: &str,
    organizations: &BTreeSet<String>,
    authority: &Key,
    slot: &str,
) -> Result<String, PkiError> {
    let unreadable = |error: ASN1Error| PkiError::internal(slot, error);
    let parts = sequence(certificate).map_err(unreadable)?;
    let [signed, algorithm, _] = parts.as_slice() else {
        return Err(unreadable(ASN1Error::new(ASN1ErrorKind::Invalid)));
    };
    let mut fields = sequence(signed).map_err(unreadable)?;
    let Some(place) = fields.get_mut(SUBJECT) else {
        return Err(unreadable(ASN1Error::new(ASN1ErrorKind::Invalid)));
    };
    *place = subject(cn, organizations);
    let signed = of(&fields);
    let signature = authority
        .sign(&signed)
        .map_err(|error| PkiError::internal(slot, error))?;
    let signature = yasna::construct_der(|writer| {
        writer.write_bitvec_bytes(&signature, signature.len() * 8);
    });
    let whole = of(&[signed, algorithm.clone(), signature]);
    Document::try_from(whole.as_slice())
        .and_then(|document| document.to_pem("CERTIFICATE", LineEnding::LF))
        .map_err(|error| PkiError::internal(slot, error))
}

/// The elements of a sequence, each as it is.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method itself is for one lifetime only"
)]
fn sequence(der: &[u8]) -> Result<Vec<Vec<u8>>, ASN1Error> {
    parse_der(der, |reader| {
        reader.read_sequence(|reader| {
            let mut elements = Vec::new();
            while let Some(element) = reader.read_optional(|reader| reader.read_der())? {
                elements.push(element);
            }
            Ok(elements)
        })
    })
}

fn of(elements: &[Vec<u8>]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            for element in elements {
                writer.next().write_der(element);
            }
        });
    })
}

fn subject(cn: &str, organizations: &BTreeSet<String>) -> Vec<u8> {
    let common = std::iter::once((COMMON_NAME, cn));
    let organizations = organizations.iter().map(|name| (ORGANIZATION, &**name));
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            for (kind, text) in common.chain(organizations) {
                writer.next().write_set(|writer| {
                    writer.next().write_sequence(|writer| {
                        let kind = ObjectIdentifier::from_slice(&kind);
                        writer.next().write_oid(&kind);
                        writer.next().write_utf8_string(text);
                    });
                });
            }
        });
    })
}

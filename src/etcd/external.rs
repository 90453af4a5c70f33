//! An etcd outside of the cluster: whether it answers with the certificate that the config has, which one it is, and
//! whether keys are there already. Asks each of its members one question, through a control plane, and writes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as StdError,
    io,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{
    io::AsyncReadExt,
    time::{Instant, timeout, timeout_at},
};

use super::{Client, EtcdError, ExternalFault, ExternalView};
use crate::{
    error::{ErrorClass, Explain, distinct, with_causes},
    host::{Host, HostError, https},
    model::{EtcdUrl, ExternalEtcd, NodeName, keys_below},
};

/// gRPC's codes for who may not, and for who is not known.
const DENIED: [i64; 2] = [7, 16];
/// And for what may pass: too slow, and away (etcd has no leader).
const PASSES: [i64; 2] = [4, 14];

/// What one member answers.
pub type Told = Result<(u64, bool), EtcdError>;

/// How long the others are waited for when one has answered.
const GRACE: Duration = Duration::from_secs(3);

const DOING: &str = "look for keys in etcd";

/// Asks every member, through this node.
pub async fn look(host: &Arc<Host>, etcd: &ExternalEtcd) -> Vec<(EtcdUrl, Told)> {
    let mut left: BTreeSet<&EtcdUrl> = etcd.urls.iter().collect();
    let asked = etcd
        .urls
        .iter()
        .map(|url| async move { (url, ask(host, etcd, url).await) });
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut told = Vec::new();
    let mut end = None;
    loop {
        let next = match end {
            None => asked.next().await,
            Some(end) => timeout_at(end, asked.next()).await.ok().flatten(),
        };
        let Some((url, answer)) = next else { break };
        if answer.is_ok() {
            end.get_or_insert_with(|| Instant::now() + GRACE);
        }
        left.remove(url);
        told.push((url.clone(), answer));
    }
    let late = |url: &EtcdUrl| {
        let (doing, after) = (DOING, GRACE);
        (url.clone(), Err(EtcdError::Slow { doing, after }))
    };
    told.extend(left.into_iter().map(late));
    told
}

async fn ask(host: &Arc<Host>, etcd: &ExternalEtcd, url: &EtcdUrl) -> Told {
    let (through, to) = (Arc::clone(host), url.clone());
    let open = Arc::new(move || {
        let (host, to) = (Arc::clone(&through), to.clone());
        async move {
            let stream = host.remote_port(&to.host, to.port).await;
            stream.map_err(io::Error::other)
        }
        .boxed()
    });
    let client = Client::of_external(open, &url.host, &etcd.identity)?;
    match client.first_key(DOING, &range(&etcd.prefix)).await {
        Ok(found) => Ok((found.cluster, found.any)),
        Err(error @ EtcdError::NoAnswer { .. })
            if tls(&error).is_none() && connection(&error).is_none() =>
        {
            Err(why_ended(host, etcd, url).await.unwrap_or(error))
        }
        Err(error) => Err(error),
    }
}

/// What a server has against our certificate comes after the handshake, and HTTP/2 loses it: the same without HTTP.
async fn why_ended(host: &Host, etcd: &ExternalEtcd, url: &EtcdUrl) -> Option<EtcdError> {
    let tls = https::tls(&etcd.identity).ok()?;
    let ends = async {
        let stream = host.remote_port(&url.host, url.port).await.ok()?;
        let mut stream = https::handshake(&tls, &url.host, stream).await.ok()?;
        stream.read_u8().await.err()
    };
    let source = timeout(GRACE, ends).await.ok()??;
    let ended = EtcdError::NoAnswer {
        doing: DOING,
        source: Box::new(source),
    };
    self::tls(&ended).is_some().then_some(ended)
}

/// Puts together what the members told, who were asked through `through`.
pub fn combine(through: &NodeName, told: Vec<(EtcdUrl, Told)>) -> ExternalView {
    let mut clusters: BTreeMap<u64, EtcdUrl> = BTreeMap::new();
    let mut holds_keys = false;
    let mut silent = BTreeMap::new();
    let mut hints = Vec::new();
    let mut classes = Vec::new();
    for (url, told) in told {
        match told {
            Ok((cluster, holds)) => {
                holds_keys |= holds;
                clusters.entry(cluster).or_insert(url);
            }
            Err(error) => {
                classes.push(class(&error));
                hints.extend(cures(&error, through));
                silent.insert(url, with_causes(&error));
            }
        }
    }
    let mut found = clusters.into_iter();
    match (found.next(), found.next()) {
        (Some((cluster, _)), None) => ExternalView::Answered {
            cluster: format!("{cluster:x}"),
            holds_keys,
            silent,
        },
        (Some((_, one)), Some((_, other))) => ExternalView::Faulty(ExternalFault {
            class: ErrorClass::User,
            why: format!("`{one}` and `{other}` are members of two different etcds"),
            hints: vec!["`services.etcd.external_urls` names the members of one etcd".to_owned()],
        }),
        (None, _) => {
            let lines = silent.iter().map(|(url, why)| {
                format!(
                    "the external etcd at `{url}` cannot be used through node `{through}`: {why}"
                )
            });
            ExternalView::Faulty(ExternalFault {
                class: worst(&classes),
                why: lines.collect::<Vec<_>>().join("\n"),
                hints: distinct(hints),
            })
        }
    }
}

/// A person's turn comes first.
fn worst(classes: &[ErrorClass]) -> ErrorClass {
    let order = [ErrorClass::User, ErrorClass::Host];
    let mut order = order.into_iter().filter(|class| classes.contains(class));
    order.next().unwrap_or(ErrorClass::Transient)
}

/// A cause, wherever it is in the chain.
fn cause<'e, T: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        // What an `io::Error` carries is not its source.
        let carried = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match carried {
            Some(inner) => {
                let inner: &(dyn StdError + 'static) = inner;
                Some(inner)
            }
            None => error.source(),
        };
    }
    None
}

/// What is wrong with TLS, where that is what is wrong.
fn tls(error: &EtcdError) -> Option<&rustls::Error> {
    cause(error)
}

/// The connection that could not be made, where that is what is wrong.
fn connection(error: &EtcdError) -> Option<&HostError> {
    cause(error)
}

fn class(error: &EtcdError) -> ErrorClass {
    match error {
        EtcdError::Credentials(_) => ErrorClass::User,
        _ if tls(error).is_some() => ErrorClass::User,
        EtcdError::NoAnswer { .. } => {
            connection(error).map_or(ErrorClass::Transient, Explain::class)
        }
        EtcdError::Refused { code, .. } if DENIED.contains(code) => ErrorClass::User,
        EtcdError::Refused { code, .. } if PASSES.contains(code) => ErrorClass::Transient,
        EtcdError::Refused { .. } | EtcdError::Written { .. } => ErrorClass::Host,
        EtcdError::Slow { .. }
        | EtcdError::Answer { .. }
        | EtcdError::NoSuchMember(_)
        | EtcdError::NotTheLeader { .. } => ErrorClass::Transient,
    }
}

const REFUSED: &str = "that etcd refused the client certificate: `services.etcd.cert` must be in its time, and signed by an authority that etcd trusts (`--trusted-ca-file`)";

/// What there is to do about it.
fn cures(error: &EtcdError, through: &NodeName) -> Vec<String> {
    use rustls::CertificateError as Bad;
    if let EtcdError::Credentials(_) = error {
        return vec![
            "`ca_cert`, `cert` and `key` under `services.etcd` are PEM, and `key` is the key of `cert`".to_owned(),
        ];
    }
    match tls(error) {
        Some(rustls::Error::InvalidCertificate(
            Bad::NotValidForName | Bad::NotValidForNameContext { .. },
        )) => vec![
            "the certificate of that member has other names: write the URL with one that it has".to_owned(),
        ],
        Some(rustls::Error::InvalidCertificate(
            Bad::UnknownIssuer | Bad::BadSignature,
        )) => vec![
            "`services.etcd.ca_cert` must be the authority that signed the certificates of that etcd".to_owned(),
        ],
        Some(rustls::Error::InvalidCertificate(
            Bad::Expired | Bad::ExpiredContext { .. },
        )) => vec!["the certificate of that member has expired: it has to be renewed there".to_owned()],
        Some(rustls::Error::AlertReceived(_)) => vec![REFUSED.to_owned()],
        Some(_) => vec![format!("does etcd listen there with TLS? On `{through}`: `curl -v` tells more")],
        None => match (connection(error), error) {
            (Some(error), _) => error.hints().into_iter().map(Into::into).collect(),
            (None, EtcdError::Refused { code, .. }) if DENIED.contains(code) => vec![
                "that etcd has users and roles: the user of the client certificate (its CN) must be allowed to read and write all keys below `services.etcd.path`".to_owned(),
            ],
            (None, EtcdError::NoAnswer { .. }) => vec![
                "etcd ended the connection: does it trust the authority of the client certificate, and is that in its time?".to_owned(),
            ],
            (None, _) => vec![format!("has that etcd a leader? `etcdctl endpoint status` tells, asked from `{through}`")],
        },
    }
}

/// The first key that begins with a prefix, and the first one that no longer does, as etcd's ranges have them.
pub(super) fn range(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let from = keys_below(prefix).into_bytes();
    let mut to = from.clone();
    // `/` is never the last of all bytes.
    if let Some(last) = to.last_mut() {
        *last += 1;
    }
    (from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(host: &str) -> EtcdUrl {
        EtcdUrl {
            host: host.to_owned(),
            port: 2379,
        }
    }

    fn slow() -> EtcdError {
        EtcdError::Slow {
            doing: "look for keys in etcd",
            after: std::time::Duration::from_secs(15),
        }
    }

    #[test]
    fn a_range_has_what_begins_with_the_prefix_and_nothing_else() {
        for (prefix, key, inside) in [
            ("/registry", "/registry/pods/a", true),
            ("/registry", "/registry", false),
            ("/registry", "/registry2/pods/a", false),
            ("/registry", "/registr/pods/a", false),
            ("/a/b", "/a/b/c", true),
            ("/a/b", "/a/c", false),
            ("/", "/registry/pods/a", true),
            ("/", "compact_rev_key", false),
        ] {
            let (from, to) = range(prefix);
            let key = key.as_bytes();
            assert_eq!(
                from.as_slice() <= key && key < to.as_slice(),
                inside,
                "{prefix}"
            );
        }
    }

    #[test]
    fn one_member_that_answers_is_enough_and_the_others_are_named() {
        let told = vec![(url("a"), Err(slow())), (url("b"), Ok((0xcafe, true)))];
        let view = combine(&"n1".into(), told);
        let ExternalView::Answered {
            cluster,
            holds_keys,
            silent,
        } = &view
        else {
            panic!("{view:?}");
        };
        assert_eq!((cluster.as_str(), *holds_keys), ("cafe", true));
        assert_eq!(silent.keys().collect::<Vec<_>>(), [&url("a")]);
        assert_eq!(view.silent_members().len(), 1);
    }

    #[test]
    fn members_of_two_etcds_are_no_etcd() {
        let told = vec![(url("a"), Ok((1, false))), (url("b"), Ok((2, false)))];
        let view = combine(&"n1".into(), told);
        let ExternalView::Faulty(fault) = view else {
            panic!("{view:?}");
        };
        assert_eq!(fault.class, ErrorClass::User);
        assert!(
            fault.why.contains("`https://a:2379` and `https://b:2379`"),
            "{}",
            fault.why
        );
    }

    /// By the variant, wherever it is in the chain.
    #[test]
    fn what_is_wrong_with_tls_says_what_to_change() {
        use rustls::{AlertDescription, CertificateError, Error};
        let says = |error: Error| {
            let source = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error));
            let error = EtcdError::NoAnswer {
                doing: "look for keys in etcd",
                source: Box::new(source),
            };
            let ExternalView::Faulty(fault) = combine(&"n1".into(), vec![(url("a"), Err(error))])
            else {
                panic!("no fault");
            };
            assert_eq!(fault.class, ErrorClass::User, "{fault:?}");
            fault.hints.concat()
        };
        let invalid = Error::InvalidCertificate;
        assert!(says(invalid(CertificateError::NotValidForName)).contains("other names"));
        assert!(says(invalid(CertificateError::UnknownIssuer)).contains("`services.etcd.ca_cert`"));
        let refused = Error::AlertReceived(AlertDescription::BadCertificate);
        assert!(says(refused).contains("`services.etcd.cert`"));
    }
}

//! `services.etcd.backup_config.s3backupconfig`: the bucket that snapshots of etcd are copied to. Pure.

use super::{Found, values};
use crate::{
    config::cursor::Cursor,
    model::{AccessKeys, Bucket, Secret},
};

/// `None`: snapshots stay on their nodes. RKE's own files have the section with empty keys. As in RKE `backup_config:
/// {enabled: false}` switches it off.
pub(super) fn read(etcd: &Cursor<'_>, found: &mut Found) -> Option<Bucket> {
    let backup = etcd.get("backup_config");
    let at = backup.get("s3backupconfig");
    if at.is_empty() {
        return None;
    }
    let endpoint = required(
        &at.get("endpoint"),
        "a server",
        "endpoint: s3.amazonaws.com",
        endpoint_of,
        found,
    );
    let name = required(
        &at.get("bucket_name"),
        "a bucket",
        "bucket_name: backups",
        name_of,
        found,
    );
    let ca = at.get("custom_ca");
    let ca = values::text(&ca, found).and_then(|text| {
        let what = "the certificate of the server's authority";
        values::certificate(&ca, what, text, found)
    });
    let bucket = Bucket {
        endpoint: endpoint?,
        region: values::text(&at.get("region"), found).map(str::to_owned),
        name: name?,
        folder: folder(&at.get("folder"), found),
        ca,
        keys: keys(&at, found),
    };
    values::flag_or_default(&backup.get("enabled"), found).then_some(bucket)
}

fn required(
    at: &Cursor<'_>,
    what: &str,
    example: &str,
    read: impl Fn(&str) -> Result<String, &'static str>,
    found: &mut Found,
) -> Option<String> {
    let Some(text) = values::text(at, found) else {
        let problem = at.problem(format!("copies of snapshots need {what}"));
        found.problem(problem.hint(format!("write it, for example `{example}`")));
        return None;
    };
    match read(text) {
        Ok(value) => Some(value),
        Err(why) => {
            found.problem(at.problem(why).detail(text));
            None
        }
    }
}

/// The words of a command line about a bucket. Each takes the place of the config's.
#[derive(Clone, Debug, Default)]
pub struct BucketWords {
    /// `endpoint`; where neither has one, AWS's, as in RKE.
    pub endpoint: Option<String>,
    /// `region`.
    pub region: Option<String>,
    /// `bucket_name`.
    pub name: Option<String>,
    /// `folder`.
    pub folder: Option<String>,
    /// `custom_ca`, in PEM.
    pub ca: Option<String>,
    /// `access_key`.
    pub access: Option<Secret<String>>,
    /// `secret_key`.
    pub secret: Option<Secret<String>>,
}

impl BucketWords {
    /// The bucket that is meant; `None`: none is named. The error is a sentence about what cannot be meant.
    pub fn over(self, config: Option<&Bucket>) -> Result<Option<Bucket>, String> {
        let refused = |what: &str, why: &str, text: &str| format!("the {what} `{text}` {why}");
        let or = |word: Option<String>, config: Option<String>| word.or(config);
        let Some(name) = or(self.name, config.map(|it| it.name.clone())) else {
            return Ok(None);
        };
        name_of(&name).map_err(|why| refused("bucket", why, &name))?;
        let endpoint = or(self.endpoint, config.map(|it| it.endpoint.clone()));
        let endpoint = endpoint.unwrap_or_else(|| AWS.to_owned());
        let url = endpoint_of(&endpoint).map_err(|why| refused("endpoint", why, &endpoint))?;
        let folder = match self.folder {
            Some(text) => folder_of(&text).map_err(|why| refused("folder", why, &text))?,
            None => config.and_then(|it| it.folder.clone()),
        };
        let keys = match (self.access, self.secret) {
            (Some(access), Some(secret)) => Some(AccessKeys { access, secret }),
            (None, None) => config.and_then(|it| it.keys.clone()),
            (Some(_), None) => return Err("there is an access key and no secret key".to_owned()),
            (None, Some(_)) => return Err("there is a secret key and no access key".to_owned()),
        };
        Ok(Some(Bucket {
            endpoint: url,
            region: or(self.region, config.and_then(|it| it.region.clone())),
            name,
            folder,
            ca: or(self.ca, config.and_then(|it| it.ca.clone())),
            keys,
        }))
    }
}

/// Where no endpoint is named.
const AWS: &str = "s3.amazonaws.com";

/// As a URL: in RKE it is a host, and TLS.
fn endpoint_of(text: &str) -> Result<String, &'static str> {
    const REFUSED: &str =
        "must be `HOST[:PORT]`, or a URL without a path, as in `https://s3.example.com`";
    let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().ok().filter(|port| *port > 0)),
        None => (authority, Some(0)),
    };
    let known = matches!(scheme, "http" | "https") && values::is_host(host) && port.is_some();
    known
        .then(|| format!("{scheme}://{authority}"))
        .ok_or(REFUSED)
}

fn name_of(text: &str) -> Result<String, &'static str> {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let good = text.chars().all(known) && !text.starts_with('.');
    let refused = "is not the name of a bucket: letters, digits, `.`, `_` and `-`";
    good.then(|| text.to_owned()).ok_or(refused)
}

fn folder(at: &Cursor<'_>, found: &mut Found) -> Option<String> {
    let text = values::text(at, found)?;
    folder_of(text).unwrap_or_else(|why| {
        found.problem(at.problem(why).detail(text));
        None
    })
}

/// Without the slashes around it.
fn folder_of(text: &str) -> Result<Option<String>, &'static str> {
    let plain = text.trim_matches('/');
    let known = |c: char| c.is_ascii_alphanumeric() || "._-=+@:, ".contains(c);
    let good = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(known);
    match plain {
        "" => Ok(None),
        plain if plain.split('/').all(good) => Ok(Some(plain.to_owned())),
        _ => Err("is not a folder, as in `clusters/prod`"),
    }
}

/// Neither: the machine has a role.
fn keys(at: &Cursor<'_>, found: &mut Found) -> Option<AccessKeys> {
    let (access, secret) = (at.get("access_key"), at.get("secret_key"));
    match (values::text(&access, found), values::text(&secret, found)) {
        (Some(name), Some(word)) => Some(AccessKeys {
            access: Secret::new(name.to_owned()),
            secret: Secret::new(word.to_owned()),
        }),
        (None, None) => None,
        // Anything else that stands there is a problem already.
        (Some(_), None) if !secret.has_nothing() => None,
        (None, Some(_)) if !access.has_nothing() => None,
        (Some(_), None) => {
            found.problem(at.problem("has an `access_key` and no `secret_key`"));
            None
        }
        (None, Some(_)) => {
            found.problem(at.problem("has a `secret_key` and no `access_key`"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::resolve::tests::{and, bad, good};

    fn with(s3: &str) -> String {
        and(&format!(
            "services: {{etcd: {{backup_config: {{s3backupconfig: {s3}}}}}}}"
        ))
    }

    fn read(s3: &str) -> Option<Bucket> {
        let bucket = good(&with(s3)).intent.services.snapshot_bucket;
        bucket.map(|bucket| *bucket)
    }

    #[test]
    fn the_section_of_rke_names_a_bucket() {
        let ca = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        let bucket = read(&format!(
            "{{access_key: me, secret_key: hunter2, bucket_name: b, region: eu-1, endpoint: 's3.example.com:9000', \
             folder: /clusters/prod/, custom_ca: {ca:?}}}"
        ));
        let expected = Bucket {
            endpoint: "https://s3.example.com:9000".to_owned(),
            region: Some("eu-1".to_owned()),
            name: "b".to_owned(),
            folder: Some("clusters/prod".to_owned()),
            ca: Some(ca.to_owned()),
            keys: Some(AccessKeys {
                access: "me".to_owned().into(),
                secret: "hunter2".to_owned().into(),
            }),
        };
        assert_eq!(bucket, Some(expected));
        let bare = read("{bucket_name: b, endpoint: 'http://192.0.2.1:9000/'}").unwrap();
        assert_eq!(bare.endpoint, "http://192.0.2.1:9000");
        assert_eq!((bare.keys, bare.folder, bare.region), (None, None, None));
    }

    #[test]
    fn words_of_a_command_line_take_the_place_of_the_configs() {
        let config = read(
            "{access_key: me, secret_key: hunter2, bucket_name: b, region: eu-1, endpoint: a, folder: x}",
        );
        let config = config.as_ref();
        assert_eq!(
            BucketWords::default().over(config).unwrap().as_ref(),
            config
        );
        let other = BucketWords {
            name: Some("c".to_owned()),
            folder: Some("/".to_owned()),
            ..BucketWords::default()
        };
        let both = other.clone().over(config).unwrap().unwrap();
        assert_eq!(
            (both.name.as_str(), both.folder, both.keys),
            ("c", None, config.unwrap().keys.clone())
        );
        let alone = other.over(None).unwrap().unwrap();
        assert_eq!(alone.endpoint, "https://s3.amazonaws.com");
        assert_eq!(BucketWords::default().over(None), Ok(None));
        let half = BucketWords {
            access: Some("me".to_owned().into()),
            ..BucketWords::default()
        };
        assert_eq!(
            half.over(config).unwrap_err(),
            "there is an access key and no secret key"
        );
    }

    #[test]
    fn a_section_of_empty_keys_is_none() {
        for none in ["", "{}", "{access_key: '', bucket_name: '', endpoint: ''}"] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (s3, why) in [
            (
                "{bucket_name: b, endpoint: 'ftp://a'}",
                "must be `HOST[:PORT]`",
            ),
            (
                "{bucket_name: b, endpoint: 'https://a/b'}",
                "must be `HOST[:PORT]`",
            ),
            (
                "{bucket_name: b, endpoint: 'https://me@a'}",
                "must be `HOST[:PORT]`",
            ),
            ("{bucket_name: b, endpoint: 'a b'}", "must be `HOST[:PORT]`"),
            (
                "{bucket_name: a/b, endpoint: a}",
                "is not the name of a bucket",
            ),
            (
                "{bucket_name: .., endpoint: a}",
                "is not the name of a bucket",
            ),
            (
                "{bucket_name: b, endpoint: a, folder: a/../b}",
                "is not a folder",
            ),
            (
                "{bucket_name: b, endpoint: a, folder: 'a?b'}",
                "is not a folder",
            ),
            (
                "{bucket_name: b, endpoint: a, access_key: me}",
                "no `secret_key`",
            ),
            (
                "{bucket_name: b, endpoint: a, secret_key: hunter2}",
                "no `access_key`",
            ),
            (
                "{bucket_name: b, endpoint: a, custom_ca: x}",
                "is not the certificate",
            ),
        ] {
            let told = bad(&with(s3));
            assert!(told.contains(why), "{s3}: {told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
}

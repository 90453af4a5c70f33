//! The bucket that snapshots are copied to. The client is `object_store`'s.
//!
//! An object says what it is in its user-defined metadata: the same record that its zip has, and what the trial found. So a
//! bucket that others use, too, can be listed without reading what they wrote, and nothing of theirs is ever deleted.

use std::{
    borrow::Cow,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::TryStreamExt as _;
use object_store::{
    Attribute, AttributeValue, Attributes, Certificate, ClientOptions, GetOptions, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    buffered::BufWriter,
    path::Path as Key,
};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    record::{Listed, Meta, Proof},
    save::blocking,
};
use crate::{
    error::{ErrorClass, Explain, with_causes},
    model::Bucket,
};

/// The names of an object's metadata.
const META: &str = "rke-operator-snapshot";
const PROOF: &str = "rke-operator-proof";
/// S3 allows 2 KiB of metadata.
const METADATA: usize = 1900;
/// The end of the name of a snapshot's object.
const ZIP: &str = ".zip";
/// Objects are sent in parts of this size.
const PART: usize = 8 << 20;
/// How long a server may be silent, and how long a part may take.
const SILENCE: Duration = Duration::from_secs(120);
const CONNECTS: Duration = Duration::from_secs(10);
/// How long a request is repeated; as often as in RKE.
const REPEATS: Duration = Duration::from_secs(120);
const RETRIES: usize = 3;
/// Where the config has none, as in the clients of AWS.
const REGION: &str = "us-east-1";

/// A request of a bucket that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} the bucket {place}: {}", self.why())]
pub struct BucketError {
    doing: String,
    place: String,
    #[source]
    source: Failed,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Store(#[from] object_store::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What the server has is not what it was given.
    #[error("{0}")]
    Other(String),
}

impl BucketError {
    /// The server's own words where it had any.
    fn why(&self) -> String {
        let text = with_causes(&self.source);
        let between = |tag: &str| {
            let (_, rest) = text.split_once(&format!("<{tag}>"))?;
            Some(rest.split_once("</")?.0.trim())
        };
        match (between("Code"), between("Message")) {
            (Some(code), Some(message)) if !message.is_empty() => format!("{code}: {message}"),
            (Some(code), _) => code.to_owned(),
            (None, _) => innermost(&self.source),
        }
    }

    /// Cause and cure in one line.
    pub fn line(&self) -> String {
        match self.hints().first() {
            Some(hint) => format!("{self}; {hint}"),
            None => self.to_string(),
        }
    }
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// What the server or the connection says, and what to do about it.
const CURES: [(&str, &str); 12] = [
    ("InvalidAccessKeyId", "look at `access_key`"),
    ("SignatureDoesNotMatch", "look at `secret_key`"),
    (
        "AccessDenied",
        "the key must be allowed to list the bucket, and to read, write and delete objects in it",
    ),
    ("NoSuchBucket", "make the bucket, or mend `bucket_name`"),
    ("RequestTimeTooSkewed", "set the node's clock"),
    ("AuthorizationHeaderMalformed", "mend `region`"),
    ("PermanentRedirect", "mend `region`, or `endpoint`"),
    (
        "UnknownIssuer",
        "give the authority of the server's certificate as `custom_ca`",
    ),
    (
        "NotValidForName",
        "`endpoint` must be a name that the server's certificate has",
    ),
    (
        "No CA certificates",
        "the image has no authorities: give that of the server's certificate as `custom_ca`",
    ),
    (
        "169.254.169.254",
        "write `access_key` and `secret_key`, or give the machine a role",
    ),
    ("dns error", "mend `endpoint`, or the node's DNS"),
];

impl Explain for BucketError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Host
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let text = format!("{} {:?}", with_causes(&self.source), self.source);
        let cure = CURES.iter().find(|(sign, _)| text.contains(sign));
        cure.map(|(_, cure)| Cow::Borrowed(*cure))
            .into_iter()
            .collect()
    }
}

/// A bucket and the folder in it.
pub(super) struct Store {
    client: Arc<AmazonS3>,
    folder: Option<String>,
    place: String,
}

impl Store {
    /// Sends nothing yet.
    pub(super) fn open(bucket: &Bucket) -> Result<Self, BucketError> {
        let place = place(bucket);
        match client(bucket) {
            Ok(client) => Ok(Self {
                client: Arc::new(client),
                folder: bucket.folder.clone(),
                place,
            }),
            Err(source) => Err(BucketError {
                doing: "use".to_owned(),
                place,
                source: source.into(),
            }),
        }
    }

    /// For people.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// The objects in the folder itself.
    pub(super) async fn list(&self) -> Result<Vec<ObjectMeta>, BucketError> {
        let folder = self.folder.as_deref().map(Key::from);
        let listed = self.client.list_with_delimiter(folder.as_ref()).await;
        let listed = listed.map_err(|error| self.failed("list", error))?;
        Ok(listed.objects)
    }

    /// What an object says about itself; `None`: it is not a snapshot that rke-operator wrote, or is gone.
    pub(super) async fn record(
        &self,
        file: &str,
    ) -> Result<Option<(Meta, Option<Proof>)>, BucketError> {
        let asked = GetOptions::new().with_head(true);
        let attributes = match self.client.get_opts(&self.key(file), asked).await {
            Ok(answer) => answer.attributes,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.failed("read from", error)),
        };
        let value = |name: &'static str| attributes.get(&Attribute::Metadata(name.into()));
        let Some(meta) = value(META).and_then(|text| serde_json::from_str(text.as_ref()).ok())
        else {
            return Ok(None);
        };
        let proof = value(PROOF).and_then(|text| serde_json::from_str(text.as_ref()).ok());
        Ok(Some((meta, proof)))
    }

    /// Copies a zip, and reads the copy back. What is there under that name is never replaced; the same snapshot there
    /// is success.
    pub(super) async fn copy(&self, listed: &Listed, zip: &Path) -> Result<(), BucketError> {
        let file = &listed.file;
        if let Some(meta) = self.there(file).await? {
            if meta.as_ref() != listed.meta.as_ref() {
                let why = format!("`{file}` is there and is something else");
                return Err(self.failed("write to", Failed::Other(why)));
            }
        } else {
            let sent = self.send(listed, zip).await;
            sent.map_err(|error| self.failed("write to", error))?;
        }
        let (hash, expected) = (self.read_back(file).await?, hash(zip).await);
        let expected = expected.map_err(|error| self.failed("write to", error))?;
        if hash == expected {
            return Ok(());
        }
        // It says that it is this snapshot, and it is not.
        let deleted = self.delete(file).await;
        let why = match deleted {
            Ok(()) => format!("`{file}` came back damaged and was deleted there"),
            Err(error) => format!("`{file}` came back damaged, and is still there: {error}"),
        };
        Err(self.failed("write to", Failed::Other(why)))
    }

    /// The record of an object that is there; the inner `None`: it is none of rke-operator's.
    async fn there(&self, file: &str) -> Result<Option<Option<Meta>>, BucketError> {
        match self.client.head(&self.key(file)).await {
            Ok(_) => Ok(Some(self.record(file).await?.map(|(meta, _)| meta))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("read from", error)),
        }
    }

    async fn send(&self, listed: &Listed, zip: &Path) -> Result<(), Failed> {
        let store: Arc<dyn ObjectStore> = self.client.clone();
        let mut to = BufWriter::with_capacity(store, self.key(&listed.file), PART)
            .with_max_concurrency(1)
            .with_attributes(attributes(listed));
        let mut from = tokio::fs::File::open(zip).await?;
        let mut buffer = vec![0; 1 << 20];
        let sent = async {
            loop {
                match from.read(&mut buffer).await? {
                    0 => return to.shutdown().await,
                    read => to.write_all(buffer.get(..read).unwrap_or_default()).await?,
                }
            }
        };
        let sent = sent.await;
        if sent.is_err() {
            // Parts of an upload that was not completed take room, and no list shows them.
            let _ = to.abort().await;
        }
        Ok(sent?)
    }

    /// The SHA-256 of an object.
    async fn read_back(&self, file: &str) -> Result<[u8; 32], BucketError> {
        let failed = |error| self.failed("read from", error);
        let object = self.client.get(&self.key(file)).await.map_err(failed)?;
        let hashed = object
            .into_stream()
            .try_fold(Sha256::new(), |hasher, bytes| {
                std::future::ready(Ok(hasher.chain_update(bytes)))
            });
        Ok(hashed.await.map_err(failed)?.finalize().into())
    }

    /// Writes an object into a file.
    pub(super) async fn fetch(&self, file: &str, to: File) -> Result<(), BucketError> {
        let failed = |error: Failed| self.failed("read from", error);
        let object = self.client.get(&self.key(file)).await;
        let mut stream = object
            .map_err(|error| self.failed("read from", error))?
            .into_stream();
        let mut to = tokio::fs::File::from_std(to);
        let written = async {
            while let Some(piece) = stream.try_next().await? {
                to.write_all(&piece).await?;
            }
            to.flush().await?;
            Ok(to.sync_all().await?)
        };
        written.await.map_err(failed)
    }

    /// Deletes an object.
    pub(super) async fn delete(&self, file: &str) -> Result<(), BucketError> {
        let deleted = self.client.delete(&self.key(file)).await;
        deleted.map_err(|error| self.failed("delete from", error))
    }

    fn key(&self, file: &str) -> Key {
        match &self.folder {
            Some(folder) => Key::from(format!("{folder}/{file}")),
            None => Key::from(file),
        }
    }

    fn failed(&self, doing: &str, source: impl Into<Failed>) -> BucketError {
        BucketError {
            doing: doing.to_owned(),
            place: self.place.clone(),
            source: source.into(),
        }
    }
}

/// For people.
pub(super) fn place(bucket: &Bucket) -> String {
    let folder = bucket.folder.as_deref().map(|folder| format!("/{folder}"));
    let folder = folder.unwrap_or_default();
    format!("`{}{folder}` at {}", bucket.name, bucket.endpoint)
}

/// The name of a snapshot's object.
pub(super) fn object(name: &str) -> String {
    format!("{name}{ZIP}")
}

/// False for what cannot be a snapshot's.
pub(super) fn is_object(file: &str) -> bool {
    file.ends_with(ZIP)
}

fn client(bucket: &Bucket) -> object_store::Result<AmazonS3> {
    // The client of HTTP takes the process's.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plain = bucket.endpoint.starts_with("http:");
    let mut options = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECTS)
        .with_read_timeout(SILENCE)
        .with_allow_http(plain)
        // Without TLS no authority is needed, and an image that has none is good enough.
        .with_no_system_certificates(plain);
    if let Some(ca) = &bucket.ca {
        for authority in Certificate::from_pem_bundle(ca.as_bytes())? {
            options = options.with_root_certificate(authority);
        }
    }
    let Addressed {
        endpoint,
        region,
        virtual_hosted,
    } = addressed(bucket);
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&bucket.name)
        .with_region(region)
        .with_virtual_hosted_style_request(virtual_hosted)
        .with_retry(RetryConfig {
            max_retries: RETRIES,
            retry_timeout: REPEATS,
            ..RetryConfig::default()
        })
        // After the options: it sets them.
        .with_client_options(options)
        .with_allow_http(plain);
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(keys) = &bucket.keys {
        builder = builder
            .with_access_key_id(keys.access.expose())
            .with_secret_access_key(keys.secret.expose());
    }
    builder.build()
}

/// How requests address a bucket.
#[derive(Debug, PartialEq, Eq)]
struct Addressed {
    /// `None`: AWS's of the region.
    endpoint: Option<String>,
    region: String,
    /// The bucket is in the name of the host.
    virtual_hosted: bool,
}

/// By the path as a rule. AWS's endpoint without a region redirects what is in another one, so its regional one is
/// asked. Alibaba's answers only if the bucket is in the name of the host; a name with dots fits no certificate there.
fn addressed(bucket: &Bucket) -> Addressed {
    let (scheme, authority) = bucket.endpoint.split_once("://").unwrap_or_default();
    let host = authority.split(':').next().unwrap_or_default();
    let aws = host.strip_suffix(".amazonaws.com");
    let named = aws.and_then(|host| {
        let rest = host
            .strip_prefix("s3.")
            .or_else(|| host.strip_prefix("s3-"))?;
        Some(rest.trim_start_matches("dualstack.").to_owned())
    });
    let region = bucket.region.clone().or(named);
    let region = region.unwrap_or_else(|| REGION.to_owned());
    let virtual_hosted = host.ends_with(".aliyuncs.com") && !bucket.name.contains('.');
    let endpoint = match (aws, virtual_hosted) {
        (Some("s3"), _) => None,
        (_, true) => Some(format!("{scheme}://{}.{authority}", bucket.name)),
        (_, false) => Some(bucket.endpoint.clone()),
    };
    Addressed {
        endpoint,
        region,
        virtual_hosted,
    }
}

/// The record of a snapshot as metadata. A reason that is long or has other letters is left out: a header is ASCII.
fn attributes(listed: &Listed) -> Attributes {
    let mut attributes = Attributes::new();
    let mut room = METADATA;
    let mut add = |name: &'static str, text: Option<String>| {
        let fits =
            |text: &String| text.len() <= room && text.bytes().all(|b| (0x20..0x7f).contains(&b));
        if let Some(text) = text.filter(fits) {
            room -= text.len();
            attributes.insert(Attribute::Metadata(name.into()), AttributeValue::from(text));
        }
    };
    add(
        META,
        listed
            .meta
            .as_ref()
            .and_then(|meta| serde_json::to_string(meta).ok()),
    );
    let proof = listed
        .proof
        .clone()
        .map(|proof| Proof { why: None, ..proof });
    add(
        PROOF,
        proof.and_then(|proof| serde_json::to_string(&proof).ok()),
    );
    attributes
}

async fn hash(path: &Path) -> io::Result<[u8; 32]> {
    let path: PathBuf = path.to_owned();
    blocking(move || {
        let mut hasher = Sha256::new();
        io::copy(&mut File::open(path)?, &mut hasher)?;
        Ok(hasher.finalize().into())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::record::{Grade, tests::meta};

    fn bucket(endpoint: &str) -> Bucket {
        Bucket {
            endpoint: endpoint.to_owned(),
            region: None,
            name: "backups".to_owned(),
            folder: None,
            ca: None,
            keys: None,
        }
    }

    #[test]
    fn each_kind_of_server_is_asked_as_it_answers() {
        let told = |endpoint: &str| {
            let Addressed {
                endpoint,
                region,
                virtual_hosted,
            } = addressed(&bucket(endpoint));
            (endpoint, region, virtual_hosted)
        };
        let of = |endpoint: &str, region: &str, hosted| {
            (Some(endpoint.to_owned()), region.to_owned(), hosted)
        };
        assert_eq!(
            told("https://s3.example.com:9000"),
            of("https://s3.example.com:9000", "us-east-1", false)
        );
        assert_eq!(
            told("https://s3.amazonaws.com"),
            (None, "us-east-1".to_owned(), false)
        );
        assert_eq!(
            told("https://s3.eu-west-1.amazonaws.com"),
            of("https://s3.eu-west-1.amazonaws.com", "eu-west-1", false)
        );
        assert_eq!(
            told("https://s3.dualstack.eu-west-1.amazonaws.com").1,
            "eu-west-1"
        );
        assert_eq!(
            told("https://oss-cn-hangzhou.aliyuncs.com"),
            of(
                "https://backups.oss-cn-hangzhou.aliyuncs.com",
                "us-east-1",
                true
            )
        );
    }

    #[test]
    fn the_record_fits_into_the_headers_of_an_object() {
        let proof = |why: &str| Proof {
            grade: Grade::Checked,
            at: jiff::Timestamp::UNIX_EPOCH,
            by: meta().node,
            etcd_version: None,
            revision: None,
            keys: None,
            seconds: 1,
            why: Some(why.to_owned()),
        };
        let mut meta = meta();
        meta.sha256 = "a".repeat(64);
        meta.cluster_name = "p".repeat(63);
        let listed = Listed {
            file: "s.zip".to_owned(),
            bytes: 1,
            meta: Some(meta.clone()),
            proof: Some(proof("ünglücklich")),
        };
        let told = attributes(&listed);
        let value = |name: &'static str| told.get(&Attribute::Metadata(name.into())).unwrap();
        let read: Meta = serde_json::from_str(value(META).as_ref()).unwrap();
        assert_eq!(read, meta);
        let read: Proof = serde_json::from_str(value(PROOF).as_ref()).unwrap();
        assert_eq!((read.grade, read.why), (Grade::Checked, None));
    }

    #[test]
    fn an_error_has_the_words_of_the_server_and_a_cure() {
        let text = "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?><Error>\
                    <Code>InvalidAccessKeyId</Code><Message>The key does not exist.</Message></Error>";
        let error = BucketError {
            doing: "list".to_owned(),
            place: place(&bucket("https://s3.example.com")),
            source: object_store::Error::Generic {
                store: "S3",
                source: text.into(),
            }
            .into(),
        };
        assert_eq!(
            error.line(),
            "cannot list the bucket `backups` at https://s3.example.com: InvalidAccessKeyId: The key does not exist.; \
             look at `access_key`"
        );
    }
}

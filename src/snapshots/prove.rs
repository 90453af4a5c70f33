//! Checks a snapshot as far as possible: etcd's own program reads every page, then restores it. An etcd is started on the
//! restored data, and its keys are counted. All of that is in memory or in the work folder, and is deleted.

use std::{
    ffi::OsStr,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::Instant,
};

use super::{
    folder::Folder,
    memory,
    record::{Grade, Meta, Proof, contradiction},
    run::Programs,
    save::Saved,
    settings::Settings,
};
use crate::{
    error::with_causes,
    etcd::{Client, Described, snapshot::BEYOND},
    host::Stream,
    model::{ClientIdentity, Secret, printable},
};

/// How long reading every page may take, and restoring. Gigabytes are read from a slow disk.
const READS: Duration = Duration::from_secs(20 * 60);
/// How long the throw-away etcd may take until it answers.
const STARTS: Duration = Duration::from_secs(5 * 60);
/// The pause between two requests until then.
const ASKS: Duration = Duration::from_millis(200);
/// etcd makes its log so large in advance.
const LOG: u64 = 2 * (64 << 20);
/// Every Kubernetes has this object.
const OBJECT: &str = "/registry/namespaces/kube-system";

/// Why a snapshot came no further: of itself, or because this could not be done now.
enum Stopped {
    Bad(String),
    Not(String),
}

/// What was read.
#[derive(Default)]
struct Read {
    etcd_version: Option<String>,
    revision: Option<i64>,
    keys: Option<u64>,
}

/// Looks into a snapshot that was just saved.
pub(super) async fn prove(
    settings: &Settings,
    programs: &Programs,
    folder: &Folder,
    work: &Path,
    saved: &Saved,
    now: Timestamp,
) -> Proof {
    let begun = Instant::now();
    let mut read = Read::default();
    let (grade, why) = match checked(programs, saved, &mut read).await {
        Err(Stopped::Bad(why)) => (Grade::Failed, Some(why)),
        Err(Stopped::Not(why)) => (Grade::Saved, Some(why)),
        Ok(()) => match proven(programs, folder, work, saved, &mut read).await {
            Err(Stopped::Bad(why)) => (Grade::Failed, Some(why)),
            Err(Stopped::Not(why)) => (Grade::Checked, Some(why)),
            Ok(()) => (Grade::Proven, None),
        },
    };
    let Read {
        etcd_version,
        revision,
        keys,
    } = read;
    Proof {
        grade,
        at: now,
        by: settings.node.clone(),
        etcd_version,
        revision,
        keys,
        seconds: begun.elapsed().as_secs(),
        why,
    }
}

/// `etcdutl snapshot status`.
#[derive(Deserialize)]
struct Status {
    revision: i64,
}

async fn checked(programs: &Programs, saved: &Saved, read: &mut Read) -> Result<(), Stopped> {
    let words = [
        OsStr::new("snapshot"),
        OsStr::new("status"),
        saved.database.as_os_str(),
        OsStr::new("--write-out=json"),
    ];
    let said = ran(&programs.etcdutl, &words).await?;
    let status: Status = serde_json::from_slice(&said)
        .map_err(|error| Stopped::Not(format!("etcdutl's words cannot be read: {error}")))?;
    read.revision = Some(status.revision);
    fits(&saved.meta, status.revision, None)
}

fn fits(meta: &Meta, revision: i64, keys: Option<u64>) -> Result<(), Stopped> {
    contradiction(meta, revision, keys).map_or(Ok(()), |why| Err(Stopped::Bad(why)))
}

async fn proven(
    programs: &Programs,
    folder: &Folder,
    work: &Path,
    saved: &Saved,
    read: &mut Read,
) -> Result<(), Stopped> {
    let (free, needed) = (
        folder.free().map_err(|error| not(&error))?,
        saved.meta.bytes + LOG,
    );
    if free < needed.saturating_mul(2) {
        return Err(Stopped::Not(format!(
            "{} MiB are free, and restoring it for trial may need {}",
            free >> 20,
            needed >> 19,
        )));
    }
    let etcd = ThrowAway::new(work, needed).await;
    let etcd = etcd.map_err(|error| not(&error))?;
    let restore: Vec<String> = etcd.restore(&saved.database);
    ran(&programs.etcdutl, &restore).await?;
    let mut child = etcd.start(&programs.etcd).map_err(|error| not(&error))?;
    let found = etcd.ask(&mut child, saved, read).await;
    // It has nothing to lose.
    let _ = child.kill().await;
    etcd.clear().map_err(|error| not(&error))?;
    found
}

/// What a snapshot has under a key. `database`: the plain file.
pub(super) async fn value(
    programs: &Programs,
    work: &Path,
    database: &Path,
    key: &str,
) -> Result<Option<Secret<Vec<u8>>>, String> {
    let read = async {
        let etcd = ThrowAway::new(work, u64::MAX).await;
        let etcd = etcd.map_err(|error| not(&error))?;
        ran(&programs.etcdutl, &etcd.restore(database)).await?;
        let mut child = etcd.start(&programs.etcd).map_err(|error| not(&error))?;
        let client = etcd.client()?;
        let serves = etcd.serves(&client, &mut child).await;
        let value = match serves {
            Ok(_) => client.value(key).await.map_err(|error| not(&error)),
            Err(stopped) => Err(stopped),
        };
        let _ = child.kill().await;
        value
    };
    read.await
        .map_err(|(Stopped::Bad(why) | Stopped::Not(why))| why)
}

fn not(error: &(dyn std::error::Error + 'static)) -> Stopped {
    Stopped::Not(with_causes(error))
}

/// What a program wrote to its output. One that fails has read the snapshot and does not like it.
async fn ran(program: &Path, words: &[impl AsRef<OsStr>]) -> Result<Vec<u8>, Stopped> {
    let mut command = Command::new(program);
    let child = command
        .args(words)
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(READS, child)
        .await
        .map_err(|_| Stopped::Not(format!("etcdutl took more than {} s", READS.as_secs())))?
        .map_err(|error| Stopped::Not(format!("cannot run etcdutl: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = last_line(&output.stderr);
    Err(Stopped::Bad(format!("etcdutl refuses it: {said}")))
}

/// The end of a program's log, as people read it. etcd's logs are JSON.
fn last_line(log: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Entry {
        msg: String,
        #[serde(default)]
        error: String,
    }
    let said = String::from_utf8_lossy(log);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    let last = last.unwrap_or("it said nothing");
    let entry = serde_json::from_str(last);
    let said = match entry {
        Ok(Entry { msg, error }) if error.is_empty() => msg,
        Ok(Entry { msg, error }) => format!("{msg}: {error}"),
        Err(_) => last.to_owned(),
    };
    printable(&said).chars().take(500).collect()
}

/// An etcd with one member on the loopback address that only this program can ask.
struct ThrowAway {
    data: PathBuf,
    pem: PathBuf,
    key_pem: PathBuf,
    log: PathBuf,
    identity: ClientIdentity,
    clients: u16,
    peers: u16,
}

impl ThrowAway {
    /// Its data are in memory where there is plenty for so many bytes: on a disk, restoring them makes the member next to
    /// it wait for each of its writes.
    async fn new(work: &Path, needed: u64) -> io::Result<Self> {
        let data = memory::or_disk(work, needed).join("proof");
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()])
            .map_err(io::Error::other)?;
        let (cert, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
        let (pem, key_pem) = (work.join("cert.pem"), work.join("key.pem"));
        fs::write(&pem, &cert)?;
        fs::write(&key_pem, &key)?;
        let (clients, peers) = (free_port().await?, free_port().await?);
        let etcd = Self {
            data,
            pem,
            key_pem,
            log: work.join("log"),
            identity: ClientIdentity {
                ca: cert.clone(),
                cert,
                key: Secret::new(key),
            },
            clients: clients.1,
            peers: peers.1,
        };
        etcd.clear()?;
        Ok(etcd)
    }

    /// Deletes its data, or those of one that was cut short.
    fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.data) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn member(&self) -> String {
        format!("proof=https://127.0.0.1:{}", self.peers)
    }

    fn peer_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.peers)
    }

    /// The words for etcdutl: those of a real restore.
    fn restore(&self, database: &Path) -> Vec<String> {
        vec![
            "snapshot".to_owned(),
            "restore".to_owned(),
            database.display().to_string(),
            format!("--data-dir={}", self.data.display()),
            "--name=proof".to_owned(),
            "--initial-cluster-token=rke-operator-proof".to_owned(),
            format!("--initial-cluster={}", self.member()),
            format!("--initial-advertise-peer-urls={}", self.peer_url()),
            format!("--bump-revision={BEYOND}"),
            "--mark-compacted".to_owned(),
        ]
    }

    fn start(&self, program: &Path) -> io::Result<Child> {
        let (pem, key) = (self.pem.display(), self.key_pem.display());
        let (url, peer_url) = (
            format!("https://127.0.0.1:{}", self.clients),
            self.peer_url(),
        );
        Command::new(program)
            .args([
                "--name=proof".to_owned(),
                format!("--data-dir={}", self.data.display()),
                "--initial-cluster-token=rke-operator-proof".to_owned(),
                format!("--initial-cluster={}", self.member()),
                format!("--listen-client-urls={url}"),
                format!("--advertise-client-urls={url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--trusted-ca-file={pem}"),
                format!("--cert-file={pem}"),
                format!("--key-file={key}"),
                "--client-cert-auth=true".to_owned(),
                format!("--peer-trusted-ca-file={pem}"),
                format!("--peer-cert-file={pem}"),
                format!("--peer-key-file={key}"),
                "--peer-client-cert-auth=true".to_owned(),
                "--log-level=error".to_owned(),
            ])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&self.log)?)
            .kill_on_drop(true)
            .spawn()
    }

    fn client(&self) -> Result<Client, Stopped> {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, self.clients));
        let client = Client::connect(dial(to), &self.identity);
        client.map_err(|error| not(&error))
    }

    /// Waits until it answers. That it does not is the snapshot's fault only where it exits.
    async fn serves(&self, client: &Client, child: &mut Child) -> Result<Described, Stopped> {
        let until = Instant::now() + STARTS;
        loop {
            let why = match client.describe().await {
                Ok(described) if described.answer.status.leader.is_some() => return Ok(described),
                Ok(_) => "it has no leader".to_owned(),
                Err(error) => with_causes(&error),
            };
            if let Some(status) = child.try_wait().map_err(|error| not(&error))? {
                let said = last_line(&fs::read(&self.log).unwrap_or_default());
                return Err(Stopped::Bad(format!(
                    "an etcd with its data exits ({status}): {said}"
                )));
            }
            if Instant::now() > until {
                return Err(Stopped::Not(format!(
                    "an etcd with its data did not answer within {} s: {why}",
                    STARTS.as_secs()
                )));
            }
            tokio::time::sleep(ASKS).await;
        }
    }

    /// What it has.
    async fn ask(&self, child: &mut Child, saved: &Saved, read: &mut Read) -> Result<(), Stopped> {
        let client = self.client()?;
        let described = self.serves(&client, child).await?;
        read.etcd_version = Some(described.answer.status.version);
        let count = client.count().await;
        let keys = count.map_err(|error| not(&error))?.keys;
        read.keys = Some(keys);
        let revision = read.revision.unwrap_or(saved.meta.revision);
        fits(&saved.meta, revision, Some(keys))?;
        // An etcd without a single key is of a cluster that is just being made.
        if keys > 0 && !client.has(OBJECT).await.map_err(|error| not(&error))? {
            return Err(Stopped::Bad(format!("it has no `{OBJECT}`")));
        }
        Ok(())
    }
}

/// Streams to an address.
pub(super) fn dial(to: SocketAddr) -> crate::host::https::OpenStream {
    Arc::new(move || {
        async move {
            let stream = TcpStream::connect(to).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        }
        .boxed()
    })
}

/// A free port, and what keeps it until it is needed.
async fn free_port() -> io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

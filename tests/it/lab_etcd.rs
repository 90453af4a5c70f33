//! Real etcd, 3.5 and 3.6, on this machine's loopback addresses: what the engine reads of one
//! and of three members, and its operations on them. What `etcd_members` has on file came from
//! here.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::FutureExt;
use rke_operator::{
    desired::pki::EngineClients,
    etcd::{self, Asked, Client, EtcdError, EtcdView, MemberId, Quorum, change},
    host::Stream,
    model::{ClientIdentity, NodeName},
};
use tokio::net::TcpStream;

use crate::etcd_support::{MemberFiles, members};

const ADDRESSES: [&str; 3] = ["127.77.0.1", "127.77.0.2", "127.77.0.3"];

/// Releases of Kubernetes, and the version of etcd that each has.
const RELEASES: [(&str, &str); 2] = [("v1.32.13", "3.5."), (lab::KUBERNETES_VERSION, "3.6.")];

struct Site {
    folder: tempfile::TempDir,
    program: PathBuf,
    files: BTreeMap<NodeName, MemberFiles>,
    engine: EngineClients,
    running: BTreeMap<&'static str, Child>,
}

impl Drop for Site {
    fn drop(&mut self) {
        for member in self.running.values_mut() {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

fn peer(at: &str) -> String {
    format!("https://{at}:2380")
}

/// Asks until etcd does it: it refuses while its voters were not connected for 5 s, and to promote
/// a learner that has not caught up.
async fn accepted<T, F>(ask: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, EtcdError>>,
{
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(done) => return done,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

impl Site {
    fn new(release: &str) -> Self {
        let (files, engine) = members(&ADDRESSES);
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            program: lab::etcd(release, &mut std::io::stderr()).expect("etcd"),
            files,
            engine,
            running: BTreeMap::new(),
        }
    }

    /// Starts a member as the product does, with the members that are there.
    fn start(&mut self, at: &'static str, there: &[&str]) {
        let folder = self.folder.path().join(at);
        fs::create_dir_all(&folder).expect("a folder");
        let MemberFiles { ca, cert, key } = &self.files[&at.into()];
        let write = |name: &str, text: &str| -> PathBuf {
            let path = folder.join(name);
            fs::write(&path, text).expect("a file");
            path
        };
        let (ca, cert, key) = (write("ca", ca), write("cert", cert), write("key", key));
        let log = folder.join("log");
        let log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("a log");
        let cluster: Vec<_> = there
            .iter()
            .map(|at| format!("etcd-{at}={}", peer(at)))
            .collect();
        let state = if there.len() == 1 { "new" } else { "existing" };
        let client = format!("https://{at}:2379");
        let flag = |name: &str, value: &str| format!("--{name}={value}");
        let path = |path: &Path| path.display().to_string();
        let member = Command::new(&self.program)
            .args([
                flag("name", &format!("etcd-{at}")),
                flag("data-dir", &path(&folder.join("data"))),
                flag("listen-client-urls", &client),
                flag("advertise-client-urls", &client),
                flag("listen-peer-urls", &peer(at)),
                flag("initial-advertise-peer-urls", &peer(at)),
                flag("initial-cluster", &cluster.join(",")),
                flag("initial-cluster-state", state),
                flag("quota-backend-bytes", "104857600"),
                flag("trusted-ca-file", &path(&ca)),
                flag("peer-trusted-ca-file", &path(&ca)),
                flag("cert-file", &path(&cert)),
                flag("peer-cert-file", &path(&cert)),
                flag("key-file", &path(&key)),
                flag("peer-key-file", &path(&key)),
                flag("client-cert-auth", "true"),
                flag("peer-client-cert-auth", "true"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        self.running.insert(at, member);
    }

    fn kill(&mut self, at: &str) {
        let mut member = self.running.remove(at).expect("it runs");
        member.kill().expect("killed");
        member.wait().expect("ended");
    }

    fn client_of(at: &'static str, engine: &ClientIdentity) -> Client {
        let open = move || {
            async move {
                let stream = TcpStream::connect((at, 2379)).await?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            }
            .boxed()
        };
        Client::connect(Arc::new(open), engine).expect("a client")
    }

    fn client(&self, at: &'static str) -> Client {
        Self::client_of(at, &self.engine.etcd)
    }

    async fn view(&self) -> EtcdView {
        let asked = ADDRESSES.map(|at| Asked {
            node: at.into(),
            client: Ok(self.client(at)),
            quota: Some(104_857_600),
        });
        etcd::read(asked.into()).await
    }

    /// The view, when it is as it should be: an election and a start take their time.
    async fn until(&self, what: &str, holds: impl Fn(&EtcdView) -> bool) -> EtcdView {
        let begun = Instant::now();
        loop {
            let view = self.view().await;
            if holds(&view) {
                return view;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{what}: {view:#?}"
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Adds a member as a learner, starts it, and makes it a voter once it has caught up.
    async fn join(&mut self, at: &'static str, there: &[&str]) -> MemberId {
        let (any, address) = (self.client(ADDRESSES[0]), peer(at));
        let id = accepted(|| change::add_learner(&any, &address)).await;
        let again = change::add_learner(&any, &peer(at))
            .await
            .expect("it is there");
        assert_eq!(id, again, "a second time adds no second member");
        let before = self
            .until("a learner that never started", |view| {
                view.members.len() == there.len() + 1
            })
            .await;
        assert_eq!(before.members[&id].name, "");
        self.start(at, &[there, &[at]].concat());
        let learner = self
            .until("the learner answers", |view| {
                view.on(&at.into()) == Some(id)
            })
            .await;
        assert!(learner.members[&id].is_learner);
        assert_eq!(
            learner.silent.get(&at.into()),
            None,
            "it was asked for its status only"
        );
        accepted(|| change::promote(&any, id)).await;
        change::promote(&any, id)
            .await
            .expect("a second time is none");
        id
    }
}

async fn grows_serves_and_shrinks(release: &str, version: &str) {
    let [one, two, three] = ADDRESSES;
    let mut site = Site::new(release);
    assert_eq!(site.view().await.quorum, Quorum::Unknown, "nothing runs");

    site.start(one, &[one]);
    let serving = |view: &EtcdView| matches!(view.quorum, Quorum::Serving { .. });
    let view = site.until("one member serves", serving).await;
    let first = view.on(&one.into()).expect("it answered");
    assert_eq!(view.quorum, Quorum::Serving { leader: first });
    assert!(!view.serves_without(first));
    let (_, status) = view.members[&first].status.as_ref().expect("a status");
    assert!(status.version.starts_with(version), "{status:?}");
    assert_eq!(status.quota, Some(104_857_600));
    assert!(status.db_size > 0 && status.index > 0);

    let stranger = ClientIdentity {
        ca: site.engine.etcd.ca.clone(),
        ..site.engine.api.clone()
    };
    let asked = Asked {
        node: one.into(),
        client: Ok(Site::client_of(one, &stranger)),
        quota: None,
    };
    let refused = etcd::read(vec![asked]).await;
    assert_eq!(
        refused.quorum,
        Quorum::Unknown,
        "etcd trusts no client of the cluster's CA"
    );

    let second = site.join(two, &[one]).await;
    let third = site.join(three, &[one, two]).await;
    let view = site
        .until("three are healthy", |view| view.healthy().len() == 3)
        .await;
    assert!(
        [first, second, third]
            .iter()
            .all(|id| view.serves_without(*id))
    );

    change::move_leader(&site.client(one), second)
        .await
        .expect("handed over");
    change::move_leader(&site.client(one), second)
        .await
        .expect("a second time is none");
    let led = Quorum::Serving { leader: second };
    site.until("the second leads", |view| view.quorum == led)
        .await;
    change::move_leader(&site.client(three), first)
        .await
        .expect_err("it does not lead");

    site.kill(three);
    let view = site
        .until("one is silent", |view| {
            view.healthy().len() == 2 && serving(view)
        })
        .await;
    assert!(!view.serves_without(first) && view.serves_without(third));
    assert!(view.silent.contains_key(&three.into()));
    site.start(three, &[one, two, three]);
    site.until("it is back", |view| view.healthy().len() == 3)
        .await;

    let any = site.client(one);
    accepted(|| change::remove(&any, third)).await;
    change::remove(&site.client(one), third)
        .await
        .expect("a second time is none");
    let view = site
        .until("two are left", |view| {
            view.members.len() == 2 && serving(view)
        })
        .await;
    assert_eq!(
        view.on(&three.into()),
        None,
        "what was removed is no member"
    );

    site.kill(two);
    let view = site
        .until("no majority", |view| view.quorum == Quorum::Lost)
        .await;
    assert_eq!(view.voters().count(), 2, "as the last one remembers it");
    assert!(view.healthy().is_empty());
}

#[tokio::test]
async fn etcd_3_5_and_3_6_tell_who_is_a_member_and_whether_they_serve() {
    for (release, version) in RELEASES {
        grows_serves_and_shrinks(release, version).await;
    }
}

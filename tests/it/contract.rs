//! What the product expects of sshd and dockerd, as one list: it holds for the fake, always, and
//! for a real node when there is a lab. So the fake cannot drift from the real thing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "tests"
)]

use std::{
    collections::BTreeMap,
    fs,
    sync::Mutex,
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use lab::{Lab, LabSpec, Profile};
use rke_operator::{
    config::{Credential, Login},
    facts::{Baseline, ContainerState, NodeRecord, ReachedBy},
    host::{
        ClaimOutcome, HelperContainer, Host, HostError, KnownHosts, NewFile, Policy, Stamp, TcpDial,
    },
    model::{
        CLAIM, ClusterId, Component, ContainerSpec, Digest, Endpoint, EnvVar, FILES_IMAGE, HELPER,
        LogLimit, NodeName, Owner, label, secret::Secret,
    },
};
use serde_json::json;

use crate::fake::{Access, Carrier, FakeHost, Said};

/// An image that fake and lab can pull; it runs for ever.
const IMAGE: &str = "rancher/mirrored-pause:3.6";

/// A name, and what must hold. In order: later ones build on earlier ones.
type Expectation = (&'static str, for<'a> fn(&'a Host) -> BoxFuture<'a, ()>);

const CONTRACT: [Expectation; 15] = [
    ("docker says what it is", |host| docker_facts(host).boxed()),
    ("a script's output and status come back", |host| {
        exec(host).boxed()
    }),
    ("more commands than sessions", |host| many(host).boxed()),
    ("a closed port is refused", |host| closed_port(host).boxed()),
    ("an image that is not there", |host| {
        missing_image(host).boxed()
    }),
    ("an image that nobody has", |host| {
        unknown_image(host).boxed()
    }),
    ("a pull reports its bytes", |host| pull(host).boxed()),
    ("a claim can be had once", |host| claim(host).boxed()),
    ("files read back as written", |host| files(host).boxed()),
    ("a component's definition comes back", |host| {
        component(host).boxed()
    }),
    ("what was kept runs again", |host| kept(host).boxed()),
    ("a component that cannot start", |host| broken(host).boxed()),
    ("an image in use stays", |host| remove(host).boxed()),
    ("a job's status and log come back", |host| job(host).boxed()),
    ("nothing is left", |host| clean(host).boxed()),
];

async fn keep(host: &Host) {
    for (name, holds) in CONTRACT {
        eprintln!("expecting: {name}");
        holds(host).await;
    }
}

fn id() -> ClusterId {
    ClusterId("contract".to_owned())
}

async fn docker_facts(host: &Host) {
    let facts = host.docker_facts().await.unwrap();
    assert!(!facts.version.is_empty());
    let (major, minor) = facts.api_version.split_once('.').unwrap();
    assert_eq!(major, "1");
    assert!(minor.parse::<u16>().unwrap() >= 41);
    assert!(facts.root_dir.starts_with('/'));
    assert!(["cgroupfs", "systemd"].contains(&facts.cgroup_driver.as_str()));
    assert!([1, 2].contains(&facts.cgroup_version));
    assert_eq!(facts.log_driver, "json-file");
    assert_eq!(facts.default_runtime, "runc");
}

async fn exec(host: &Host) {
    let script = "echo out\necho err >&2\ncat\nexit 3 # it's the end";
    let output = host.exec(script, Duration::from_secs(10)).await.unwrap();
    let said = (
        output.status,
        output.stdout.as_str(),
        output.stderr.as_str(),
    );
    assert_eq!(said, (3, "out\n", "err\n"));
}

async fn many(host: &Host) {
    let commands = (0..25).map(|_| host.exec("true", Duration::from_secs(20)));
    for output in futures::future::join_all(commands).await {
        assert_eq!(output.unwrap().status, 0);
    }
}

async fn closed_port(host: &Host) {
    let refused = host.local_port(1).await.map(drop);
    assert!(matches!(
        refused,
        Err(HostError::PortClosed { port: 1, .. })
    ));
}

fn variable(name: &str, value: &str) -> EnvVar {
    let digest = Digest(format!("digest of {name}"));
    EnvVar::new(name.to_owned(), Secret::new(value.to_owned()), digest)
}

fn spec() -> ContainerSpec {
    ContainerSpec {
        image: IMAGE.to_owned(),
        entrypoint: vec!["/pause".to_owned()],
        command: vec!["-v".to_owned()],
        bootstrap_args: vec![],
        env: vec![variable("A", "1"), variable("PATH", "/bin")],
        binds: vec![
            "/etc/hostname:/etc/name:ro".to_owned().try_into().unwrap(),
            "/var/lib/docker:/var/lib/docker:rslave"
                .to_owned()
                .try_into()
                .unwrap(),
        ],
        mounts: Vec::new(),
        user: Owner::ROOT,
        privileged: true,
        host_pid: true,
        host_cgroupns: true,
        security_opts: vec![],
        tmpfs: Vec::new(),
        cap_drop: Vec::new(),
        log_limit: Some(LogLimit {
            max_size: "20m".to_owned(),
            max_file: 3,
        }),
        files: BTreeMap::new(),
        certificates: BTreeMap::new(),
    }
}

async fn missing_image(host: &Host) {
    let spec = ContainerSpec {
        image: "rancher/not-here:1".to_owned(),
        ..spec()
    };
    let refused = host
        .run_container("etcd", &spec, &Stamp::first(&id(), "contract"))
        .await;
    assert!(
        matches!(&refused, Err(HostError::ImageMissing { image, .. }) if *image == spec.image),
        "{refused:?}"
    );
}

async fn unknown_image(host: &Host) {
    let refused = host
        .pull("rancher/nobody-has-this:1", None, &|_, _| ())
        .await;
    assert!(
        matches!(refused, Err(HostError::Pull { .. })),
        "{refused:?}"
    );
    let not_found = host.find_image("rancher/nobody-has-this:1", None).await;
    assert!(
        matches!(not_found, Err(HostError::Pull { .. })),
        "{not_found:?}"
    );
    host.find_image(IMAGE, None).await.unwrap();
    assert!(
        !host.images().await.unwrap().contains(IMAGE),
        "it was only asked for"
    );
}

async fn pull(host: &Host) {
    let seen = Mutex::new(Vec::new());
    let bytes = host
        .pull(IMAGE, None, &|done, total| {
            seen.lock().unwrap().push((done, total));
        })
        .await
        .unwrap();
    let seen = seen.into_inner().unwrap();
    // Docker leaves figures out when it is told faster than it tells: of a small image, all.
    assert_eq!(seen.last().copied().unwrap_or_default(), (bytes, bytes));
    assert!(seen.is_sorted_by_key(|(done, _)| *done), "{seen:?}");
    assert!(host.images().await.unwrap().contains(IMAGE));
    assert!(!host.export_image(IMAGE).await.unwrap().is_empty());
}

async fn claim(host: &Host) {
    let before = Baseline {
        paths: ["/etc/cni".to_owned()].into(),
        ..Baseline::default()
    };
    let without = host.create_claim(labels(&id(), "contract", &before)).await;
    assert!(matches!(without, Err(HostError::ImageMissing { .. })));
    host.import_empty_image().await.unwrap();
    // Once more is harmless.
    host.import_empty_image().await.unwrap();
    let mine = host
        .create_claim(labels(&id(), "contract", &before))
        .await
        .unwrap();
    assert_eq!(mine, ClaimOutcome::Created);
    let other = ClusterId("other".to_owned());
    let ClaimOutcome::Held { by } = host
        .create_claim(labels(&other, "x", &before))
        .await
        .unwrap()
    else {
        panic!("a second claim was granted");
    };
    assert_eq!(by[label::CLUSTER_ID], id().0);
    let remembered: Baseline = serde_json::from_str(&by[label::BEFORE]).unwrap();
    assert_eq!(remembered, before);
    let found = host.containers().await.unwrap();
    assert_eq!(found[CLAIM].state, ContainerState::Created);
    assert_eq!(found[CLAIM].labels, by);
}

async fn files(host: &Host) {
    const ROOT: &str = "/etc/rke-operator-contract";
    assert!(host.read_files(&[ROOT]).await.unwrap().is_empty());
    let contents = ["one", "two"].map(|text| Secret::new(text.as_bytes().to_vec()));
    for (content, mode) in contents.iter().zip([0o600, 0o644]) {
        let file = NewFile {
            mode,
            owner: Owner::ROOT,
            content,
        };
        let files = [
            ("/etc/rke-operator-contract/a/b/key", file),
            ("/etc/rke-operator-contract/empty name", file),
        ];
        let dirs = [
            (ROOT.to_owned(), 0o711),
            (format!("{ROOT}/a"), 0o700),
            (format!("{ROOT}/a/b"), 0o750),
        ];
        host.write_files(&dirs.into(), &files.into()).await.unwrap();
        let found = host.read_files(&[ROOT]).await.unwrap();
        let seen: Vec<_> = found
            .iter()
            .map(|(path, fact)| (&path[ROOT.len()..], fact.mode, fact.is_dir))
            .collect();
        assert_eq!(
            seen,
            [
                ("", 0o711, true),
                ("/a", 0o700, true),
                ("/a/b", 0o750, true),
                ("/a/b/key", mode, false),
                ("/empty name", mode, false),
            ]
        );
        assert_eq!(
            *found["/etc/rke-operator-contract/a/b/key"].content,
            *content
        );
        assert!(found.values().all(|fact| (fact.uid, fact.gid) == (0, 0)));
        let one = host.read_files(&["/etc/rke-operator-contract/a/b/key"]);
        assert_eq!(one.await.unwrap().len(), 1);
    }
}

async fn component(host: &Host) {
    for (spec, name) in [
        (spec(), "etcd"),
        (
            ContainerSpec {
                entrypoint: vec![],
                command: vec![],
                env: vec![],
                binds: vec![],
                mounts: Vec::new(),
                user: Owner::ROOT,
                privileged: false,
                host_pid: false,
                host_cgroupns: false,
                security_opts: vec!["label=disable".to_owned()],
                tmpfs: Vec::new(),
                cap_drop: Vec::new(),
                log_limit: None,
                ..spec()
            },
            "kubelet",
        ),
    ] {
        host.run_container(name, &spec, &Stamp::first(&id(), "contract"))
            .await
            .unwrap();
        // What runs is success.
        host.start(name).await.unwrap();
        let found = host.containers().await.unwrap();
        assert_eq!(found[name].state, ContainerState::Running);
        assert_eq!(found[name].runs.as_ref(), Some(&spec));
        assert_eq!(found[name].image, IMAGE);
        let alone = host.container(name).await.unwrap().unwrap();
        assert_eq!(alone, found[name]);
        let restarts = host.restarts(name).await.unwrap();
        assert_eq!(restarts, Some((ContainerState::Running, 0)));
        host.log_tail(name, 5).await.unwrap();
        // So is what was made by a run that was killed meanwhile; another definition is not.
        host.run_container(name, &spec, &Stamp::first(&id(), "contract"))
            .await
            .unwrap();
        assert_eq!(host.container(name).await.unwrap().unwrap().id, alone.id);
        let mut other = spec.clone();
        other.env.push(variable("ANOTHER", "1"));
        let again = host
            .run_container(name, &other, &Stamp::first(&id(), "contract"))
            .await;
        assert!(
            matches!(&again, Err(HostError::NameTaken { by, .. }) if *by == found[name].labels),
            "{again:?}"
        );
    }
    host.remove("kubelet", Some(Duration::from_secs(2)))
        .await
        .unwrap();
}

/// What a change keeps: stopped, and Docker no longer starts it; then it runs again under its name.
async fn kept(host: &Host) {
    host.run_container("kubelet", &spec(), &Stamp::first(&id(), "contract"))
        .await
        .unwrap();
    let before = host.container("kubelet").await.unwrap().unwrap();
    let kept = Component::Kubelet.kept();
    host.set_restarts(&before.id, false).await.unwrap();
    host.stop(&before.id, Duration::from_secs(2)).await.unwrap();
    // Once more is success.
    host.stop(&before.id, Duration::from_secs(2)).await.unwrap();
    host.rename(&before.id, kept).await.unwrap();
    let found = host.containers().await.unwrap();
    assert!(!found.contains_key("kubelet"));
    assert_eq!(found[kept].id, before.id);
    assert_eq!(found[kept].labels, before.labels);
    assert!(found[kept].is_set_aside(), "{:?}", found[kept].state);
    let taken = host.rename("etcd", kept).await.unwrap_err();
    assert_eq!(taken.docker_status(), Some(409), "{taken:?}");
    host.rename(kept, "kubelet").await.unwrap();
    host.set_restarts("kubelet", true).await.unwrap();
    host.start("kubelet").await.unwrap();
    let after = host.container("kubelet").await.unwrap().unwrap();
    assert_eq!((after.state, after.runs), (before.state, before.runs));
    host.remove("kubelet", Some(Duration::from_secs(2)))
        .await
        .unwrap();
}

async fn broken(host: &Host) {
    let spec = ContainerSpec {
        entrypoint: vec!["/no-such-program".to_owned()],
        ..spec()
    };
    let refused = host
        .run_container("broken", &spec, &Stamp::first(&id(), "contract"))
        .await;
    assert!(
        matches!(refused, Err(HostError::Docker { .. })),
        "{refused:?}"
    );
    let found = host.containers().await.unwrap();
    assert_ne!(found["broken"].state, ContainerState::Running);
    host.remove("broken", None).await.unwrap();
}

async fn remove(host: &Host) {
    assert!(!host.remove_image(IMAGE).await.unwrap());
    host.remove("etcd", None).await.unwrap();
    for _ in 0..2 {
        host.remove("etcd", None).await.unwrap();
        host.remove("etcd", Some(Duration::from_secs(2)))
            .await
            .unwrap();
        assert!(host.remove_image(IMAGE).await.unwrap());
    }
    assert!(!host.images().await.unwrap().contains(IMAGE));
    assert_eq!(host.container("etcd").await.unwrap(), None);
    assert_eq!(host.restarts("etcd").await.unwrap(), None);
}

fn script(text: &str) -> HelperContainer {
    HelperContainer {
        arguments: Vec::new(),
        script: text.to_owned(),
        limit: Duration::from_secs(60),
    }
}

/// What the fake must be told to do, and a real node does.
const SCRIPT: &str = "echo said; echo more >&2; rm -r /etc/rke-operator-contract; exit 7";

async fn job(host: &Host) {
    let output = host.run_helper(&script(SCRIPT), &id()).await.unwrap();
    let mut lines: Vec<&str> = output.log.lines().collect();
    lines.sort_unstable();
    assert_eq!((output.status, lines), (7, vec!["more", "said"]));
    assert!(
        host.read_files(&["/etc/rke-operator-contract"])
            .await
            .unwrap()
            .is_empty()
    );
    assert!(!host.containers().await.unwrap().contains_key(HELPER));
}

async fn clean(host: &Host) {
    host.remove(CLAIM, None).await.unwrap();
    assert!(host.remove_image(FILES_IMAGE).await.unwrap());
    assert!(
        host.read_files(&["/etc"]).await.is_err(),
        "there is no claim"
    );
    assert!(!host.images().await.unwrap().contains(FILES_IMAGE));
}

/// A fake that can keep it.
fn able() -> FakeHost {
    let fake = FakeHost::new();
    fake.docker()
        .registry
        .insert(IMAGE.to_owned(), vec![700_000]);
    fake.docker().info["CgroupDriver"] = json!("cgroupfs");
    fake.faults(|faults| faults.broken.push("broken".to_owned()));
    fake.on_exec("echo out", |_| Said {
        status: 3,
        stdout: "out\n".to_owned(),
        stderr: "err\n".to_owned(),
    });
    fake.docker().work = Box::new(|script, files| {
        assert_eq!(script, SCRIPT);
        files.retain(|path, _| !path.starts_with("/etc/rke-operator-contract"));
        (7, "said\nmore\n".to_owned())
    });
    fake
}

#[tokio::test]
async fn the_fake_keeps_it() {
    let fake = able();
    keep(&fake.connect().await.unwrap()).await;
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn the_fake_keeps_it_where_programs_carry_its_streams() {
    for (access, carrier, reached) in [
        (Access::NoForwarding, Carrier::User, ReachedBy::Program),
        (Access::SudoOnly, Carrier::Sudo, ReachedBy::Sudo),
    ] {
        let fake = able();
        fake.faults(|faults| {
            faults.access = access;
            faults.carrier = carrier;
            faults.greeting = "Welcome!\n".to_owned();
        });
        let host = fake.connect().await.unwrap();
        keep(&host).await;
        assert_eq!(host.docker_facts().await.unwrap().reached, reached);
        assert_eq!(fake.connections(), 1);
    }
}

async fn real(lab: &Lab, node: &str) -> Result<Host, HostError> {
    let node = lab.node(node);
    let endpoint = Endpoint {
        address: node.address().to_string(),
        port: 22,
    };
    let login = Login {
        user: node.user().to_owned(),
        credential: Credential::Key(fs::read_to_string(lab.ssh_key()).unwrap().into(), None),
        key_source: lab.ssh_key().display().to_string(),
        docker_socket: "/var/run/docker.sock".to_owned(),
    };
    let keys = KnownHosts::from_files(&[lab.known_hosts().to_owned()], Policy::Strict).unwrap();
    let name = NodeName(node.name().to_owned());
    Host::connect(&name, &endpoint, &login, &keys, &TcpDial).await
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn lab_a_real_node_keeps_it() {
    let spec = LabSpec::own("contract").node("n1", Profile::Plain);
    let lab = Lab::up(&spec, &mut std::io::stderr()).unwrap();
    runtime().block_on(async {
        let host = real(&lab, "n1").await.unwrap();
        keep(&host).await;
        jobs_are_on_the_node(&host).await;
        silence_is_noticed(&lab, &host).await;
    });
    lab.destroy().unwrap();
}

/// What the fake cannot show: a job is root in the node's own namespaces, and ends when its time
/// is over.
async fn jobs_are_on_the_node(host: &Host) {
    host.import_empty_image().await.unwrap();
    let look = "id -u; cat /proc/1/comm; readlink /proc/self/ns/mnt /proc/self/ns/net; \
                readlink /proc/1/ns/mnt /proc/1/ns/net; \
                mkdir /run/contract && mount -t tmpfs contract /run/contract; systemctl is-active docker";
    let output = host.run_helper(&script(look), &id()).await.unwrap();
    let lines: Vec<&str> = output.log.lines().collect();
    assert_eq!(lines[..2], ["0", "systemd"], "{output:?}");
    assert_eq!(lines[2..4], lines[4..6]);
    assert_eq!(lines[6], "active");
    let mounts = host.exec("grep -c contract /proc/mounts", Duration::from_secs(5));
    assert_eq!(mounts.await.unwrap().stdout, "1\n");
    host.run_helper(&script("umount /run/contract; rmdir /run/contract"), &id())
        .await
        .unwrap();

    let forever = HelperContainer {
        script: "echo begun; sleep 1000".to_owned(),
        arguments: Vec::new(),
        limit: Duration::from_secs(2),
    };
    let started = Instant::now();
    let late = host.run_helper(&forever, &id()).await;
    assert!(
        matches!(&late, Err(HostError::JobTimeout { log, .. }) if log == "begun\n"),
        "{late:?}"
    );
    assert!(started.elapsed() < Duration::from_secs(15));
    let left = host.exec("pgrep -f 'sleep 1000' | wc -l", Duration::from_secs(5));
    assert_eq!(left.await.unwrap().stdout, "0\n");
    assert!(host.remove_image(FILES_IMAGE).await.unwrap());
}

async fn silence_is_noticed(lab: &Lab, host: &Host) {
    lab.node("n1").pause().unwrap();
    let started = Instant::now();
    let error = host.images().await.unwrap_err();
    assert!(matches!(error, HostError::Lost { .. }), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(45));
    lab.node("n1").resume().unwrap();
}

/// What sshd and sudo refuse, and what is done where programs of the node carry streams.
#[test]
fn lab_real_refusals_are_those_of_the_fake() {
    let spec = LabSpec::own("refusals")
        .node("n1", Profile::NoForwarding)
        .node("n2", Profile::SudoOnly);
    let lab = Lab::up(&spec, &mut std::io::stderr()).unwrap();
    runtime().block_on(async {
        for (node, reached) in [("n1", ReachedBy::Program), ("n2", ReachedBy::Sudo)] {
            let host = real(&lab, node).await.unwrap();
            keep(&host).await;
            assert_eq!(host.docker_facts().await.unwrap().reached, reached);
        }
        let without = "mv /usr/bin/docker /root/docker";
        for (node, access) in [("n1", Access::NoForwarding), ("n2", Access::SudoOnly)] {
            lab.node(node).sh(without).unwrap();
            let fake = FakeHost::new();
            fake.faults(|faults| faults.access = access);
            let expected = fake.connect().await.unwrap();
            let expected = kind(&expected.docker_facts().await.unwrap_err());
            let host = real(&lab, node).await.unwrap();
            assert_eq!(kind(&host.docker_facts().await.unwrap_err()), expected);
        }
    });
    lab.destroy().unwrap();
}

/// The variant, with what it found out.
fn kind(error: &HostError) -> String {
    if let HostError::SocketDenied { sudo, .. } = error {
        format!("denied, sudo: {sudo}")
    } else if let HostError::TunnelRefused { source: None, .. } = error {
        "the tunnel was refused".to_owned()
    } else {
        format!("{error:?}")
    }
}

/// Of a claim.
fn labels(id: &ClusterId, name: &str, before: &Baseline) -> BTreeMap<String, String> {
    let record = NodeRecord {
        cluster_id: id.clone(),
        cluster_name: name.to_owned(),
        node: Some("n1".into()),
        before: before.clone(),
    };
    record.labels().unwrap()
}

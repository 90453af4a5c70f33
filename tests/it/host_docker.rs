//! What a host can do, against a fake one: names, counts, edges. What must be the same on a real
//! dockerd is in `contract.rs`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use rke_operator::{
    error::{Explain, Passing},
    facts::{Baseline, ContainerState, NodeRecord},
    host::{
        ClaimOutcome, HelperContainer, Host, HostError, KnownHosts, NewFile, Policy, Stamp,
        pool::Hosts,
    },
    model::{
        CLAIM, ClusterId, ContainerSpec, Digest, EnvVar, FILES_IMAGE, HELPER, LogLimit, NodeName,
        Owner, label, secret::Secret,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};

use crate::fake::{Carrier, FakeContainer, FakeHost, NodeFile, Said, target};

fn id() -> ClusterId {
    ClusterId("c1".to_owned())
}

fn spec(image: &str) -> ContainerSpec {
    ContainerSpec {
        image: image.to_owned(),
        entrypoint: vec!["/bin/sleep".to_owned()],
        command: vec!["1000".to_owned()],
        bootstrap_args: vec![],
        env: vec![EnvVar::new(
            "A".to_owned(),
            Secret::new("1".to_owned()),
            Digest("d".to_owned()),
        )],
        binds: vec![
            "/etc/kubernetes:/etc/kubernetes:ro"
                .to_owned()
                .try_into()
                .unwrap(),
        ],
        mounts: Vec::new(),
        user: Owner::ROOT,
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
        security_opts: vec!["label=disable".to_owned()],
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

#[tokio::test]
async fn one_connection_and_versioned_paths() {
    let fake = FakeHost::new();
    let host = fake.connect().await.unwrap();
    host.docker_facts().await.unwrap();
    host.containers().await.unwrap();
    assert_eq!(fake.connections(), 1);
    let targets: Vec<String> = fake
        .requests()
        .into_iter()
        .map(|asked| format!("{} {}", asked.method, asked.target))
        .collect();
    assert_eq!(
        targets,
        [
            "GET /_ping",
            "GET /v1.45/info",
            "GET /v1.45/containers/json?all=true&size=false",
        ]
    );
}

#[tokio::test]
async fn docker_facts() {
    let fake = FakeHost::new();
    fake.docker().info["HttpProxy"] = "http://proxy:3128".into();
    let host = fake.connect().await.unwrap();
    let facts = host.docker_facts().await.unwrap();
    assert_eq!(facts.version, "26.1.5");
    assert_eq!(facts.api_version, "1.45");
    assert_eq!(facts.root_dir, "/var/lib/docker");
    assert_eq!(
        (facts.cgroup_driver.as_str(), facts.cgroup_version),
        ("systemd", 2)
    );
    assert!(!facts.logs_bounded);
    let proxy = ("http://proxy:3128".to_owned(), String::new(), String::new());
    assert_eq!(facts.proxy, Some(proxy));

    fake.docker().info["LoggingDriver"] = "local".into();
    assert!(host.docker_facts().await.unwrap().logs_bounded);
}

#[tokio::test]
async fn commands() {
    let fake = FakeHost::new();
    fake.on_exec("uname -r", |_| Said {
        status: 3,
        stdout: "6.1\n".to_owned(),
        stderr: "oh\n".to_owned(),
    });
    let host = fake.connect().await.unwrap();
    let output = host
        .exec("uname -r # it's", Duration::from_secs(7))
        .await
        .unwrap();
    assert_eq!(
        (
            output.status,
            output.stdout.as_str(),
            output.stderr.as_str()
        ),
        (3, "6.1\n", "oh\n")
    );
    assert_eq!(
        fake.executed(),
        [
            "timeout -k 5 7 sh -s\n{\nset --\necho '@@rke-operator begin'\nuname -r # it's\n} </dev/null\n"
        ]
    );
    fake.on_exec("sleep", |_| Said {
        status: 124,
        ..Said::default()
    });
    let late = host.exec("sleep 60", Duration::from_secs(1)).await;
    assert!(matches!(late, Err(HostError::Timeout { .. })), "{late:?}");
}

#[tokio::test]
async fn more_commands_at_once_than_sshd_allows() {
    let fake = FakeHost::new();
    let host = fake.connect().await.unwrap();
    let commands = (0..30).map(|_| host.exec("true", Duration::from_secs(5)));
    for output in futures::future::join_all(commands).await {
        assert_eq!(output.unwrap().status, 0);
    }
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn the_claim_is_a_lock() {
    let fake = FakeHost::new();
    let host = fake.connect().await.unwrap();
    let before = Baseline::default();
    assert!(matches!(
        host.create_claim(labels(&id(), "one", &before)).await,
        Err(HostError::ImageMissing { image, .. }) if image == FILES_IMAGE
    ));
    host.import_empty_image().await.unwrap();
    assert_eq!(
        host.create_claim(labels(&id(), "one", &before))
            .await
            .unwrap(),
        ClaimOutcome::Created
    );
    let other = ClusterId("c2".to_owned());
    let ClaimOutcome::Held { by } = host
        .create_claim(labels(&other, "two", &before))
        .await
        .unwrap()
    else {
        panic!("it is held");
    };
    assert_eq!(by[label::CLUSTER_ID], "c1");
    assert_eq!(by[label::CLUSTER_NAME], "one");
    assert_eq!(
        serde_json::from_str::<Baseline>(&by[label::BEFORE]).unwrap(),
        before
    );
    let state = fake.docker();
    assert_eq!(state.containers[CLAIM].state, "created");
}

#[tokio::test]
async fn containers_of_ours_and_of_others() {
    let fake = FakeHost::new();
    {
        let mut docker = fake.docker();
        docker.images.insert("etcd:1".to_owned(), 1);
        docker
            .containers
            .insert("web".to_owned(), FakeContainer::foreign("nginx:1"));
    }
    let host = fake.connect().await.unwrap();
    let spec = spec("etcd:1");
    host.run_container("etcd", &spec, &Stamp::first(&id(), "local"))
        .await
        .unwrap();
    let found = host.containers().await.unwrap();
    assert_eq!(found["etcd"].runs.as_ref(), Some(&spec));
    assert_eq!(found["etcd"].state, ContainerState::Running);
    assert_eq!(
        serde_json::from_str::<ContainerSpec>(&found["etcd"].labels[label::SPEC]).unwrap(),
        spec
    );
    assert_eq!(found["web"].runs, None);
    assert_eq!(found["web"].state, ContainerState::Running);

    {
        let mut docker = fake.docker();
        let etcd = docker.containers.get_mut("etcd").unwrap();
        etcd.state = "restarting".to_owned();
        etcd.exit_code = 2;
        etcd.restarts = 5;
        etcd.log = "one\ntwo\nthree\n".to_owned();
    }
    let found = host.containers().await.unwrap();
    assert_eq!(found["etcd"].state, ContainerState::Restarting(2));
    assert_eq!(
        host.restarts("etcd").await.unwrap(),
        Some((ContainerState::Restarting(2), 5))
    );
    assert_eq!(host.restarts("nobody").await.unwrap(), None);
    assert_eq!(host.log_tail("etcd", 2).await.unwrap(), "two\nthree\n");
}

#[tokio::test]
async fn a_name_that_is_taken_and_an_image_that_is_missing() {
    let fake = FakeHost::new();
    fake.docker()
        .containers
        .insert("etcd".to_owned(), FakeContainer::foreign("quay.io/etcd:3"));
    let host = fake.connect().await.unwrap();
    let missing = host
        .run_container("x", &spec("etcd:1"), &Stamp::first(&id(), "local"))
        .await;
    assert!(matches!(missing, Err(HostError::ImageMissing { .. })));
    fake.docker().images.insert("etcd:1".to_owned(), 1);
    let taken = host
        .run_container("etcd", &spec("etcd:1"), &Stamp::first(&id(), "local"))
        .await;
    assert!(
        matches!(taken, Err(HostError::NameTaken { .. })),
        "{taken:?}"
    );
    assert_eq!(fake.docker().containers["etcd"].image(), "quay.io/etcd:3");
}

#[tokio::test]
async fn removing_what_is_gone_is_success() {
    let fake = FakeHost::new();
    fake.docker().images.insert("etcd:1".to_owned(), 1);
    let host = fake.connect().await.unwrap();
    host.remove("etcd", None).await.unwrap();
    host.remove("etcd", Some(Duration::from_secs(10)))
        .await
        .unwrap();
    host.run_container("etcd", &spec("etcd:1"), &Stamp::first(&id(), "local"))
        .await
        .unwrap();
    assert!(!host.remove_image("etcd:1").await.unwrap(), "it is in use");
    host.remove("etcd", Some(Duration::from_secs(10)))
        .await
        .unwrap();
    assert!(fake.docker().containers.is_empty());
    assert!(host.remove_image("etcd:1").await.unwrap());
    assert!(host.remove_image("etcd:1").await.unwrap());
}

#[tokio::test]
async fn pulls_report_bytes() {
    let fake = FakeHost::new();
    fake.docker()
        .registry
        .insert("etcd:1".to_owned(), vec![1000, 500]);
    let host = fake.connect().await.unwrap();
    let seen = Mutex::new(Vec::new());
    let loaded = host
        .pull("etcd:1", None, &|done, total| {
            seen.lock().unwrap().push((done, total));
        })
        .await
        .unwrap();
    assert_eq!(loaded, 1500);
    assert_eq!(
        *seen.lock().unwrap(),
        [(500, 1000), (1000, 1000), (1250, 1500), (1500, 1500)]
    );
    assert!(host.images().await.unwrap().contains("etcd:1"));
    assert_eq!(
        host.export_image("etcd:1").await.unwrap(),
        b"the layers of etcd:1"
    );
}

async fn claimed(fake: &FakeHost) -> Host {
    let host = fake.connect().await.unwrap();
    host.import_empty_image().await.unwrap();
    host.create_claim(labels(&id(), "local", &Baseline::default()))
        .await
        .unwrap();
    host
}

#[tokio::test]
async fn files_are_written_with_few_requests_and_read_back() {
    let fake = FakeHost::new();
    let host = claimed(&fake).await;
    let before = fake.requests().len();
    let secret = Secret::new(b"secret".to_vec());
    let plain = Secret::new(b"plain".to_vec());
    let file = |mode, content| NewFile {
        mode,
        owner: Owner::ROOT,
        content,
    };
    let files = [
        ("/etc/kubernetes/ssl/key.pem", file(0o600, &secret)),
        ("/etc/kubernetes/config", file(0o644, &plain)),
        ("/etc/sysctl.d/99-rke-operator.conf", file(0o644, &plain)),
    ]
    .into();
    let dirs = [
        ("/etc/kubernetes/ssl".to_owned(), 0o700),
        ("/var/lib/etcd".to_owned(), 0o700),
    ]
    .into();
    host.write_files(&dirs, &files).await.unwrap();
    // One to write, one for each folder to read back.
    assert_eq!(fake.requests().len() - before, 3);
    {
        let docker = fake.docker();
        assert_eq!(
            docker.files["/etc/kubernetes/ssl/key.pem"],
            NodeFile::file(0o600, "secret")
        );
        assert_eq!(docker.files["/etc/kubernetes/ssl"], NodeFile::dir(0o700));
        assert_eq!(docker.files["/var/lib/etcd"], NodeFile::dir(0o700));
    }
    let found = host
        .read_files(&["/etc/kubernetes", "/etc/not-there"])
        .await
        .unwrap();
    let paths: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            "/etc/kubernetes",
            "/etc/kubernetes/config",
            "/etc/kubernetes/ssl",
            "/etc/kubernetes/ssl/key.pem"
        ]
    );
    assert_eq!(*found["/etc/kubernetes/ssl/key.pem"].content, secret);
}

#[tokio::test]
async fn no_claim_is_not_the_same_as_no_files() {
    let fake = FakeHost::new();
    let host = claimed(&fake).await;
    assert!(
        host.read_files(&["/etc/kubernetes"])
            .await
            .unwrap()
            .is_empty()
    );
    host.remove(CLAIM, None).await.unwrap();
    assert!(host.read_files(&["/etc/kubernetes"]).await.is_err());
}

fn job(script: &str) -> HelperContainer {
    HelperContainer {
        arguments: Vec::new(),
        script: script.to_owned(),
        limit: Duration::from_secs(30),
    }
}

#[tokio::test]
async fn jobs_end_and_leave_nothing() {
    let fake = FakeHost::new();
    fake.docker().work = Box::new(|script, files| {
        files.insert("/etc/done".to_owned(), NodeFile::file(0o644, script));
        (7, "said\n".to_owned())
    });
    let host = claimed(&fake).await;
    let output = host.run_helper(&job("do it"), &id()).await.unwrap();
    assert_eq!((output.status, output.log.as_str()), (7, "said\n"));
    let docker = fake.docker();
    assert!(!docker.containers.contains_key(HELPER));
    assert_eq!(docker.files["/etc/done"].content, b"do it");
}

#[tokio::test]
async fn a_leftover_job_of_ours_makes_room_and_another_ones_does_not() {
    let fake = FakeHost::new();
    let host = claimed(&fake).await;
    let leftover = |id: &str| {
        let mut container = FakeContainer::foreign(FILES_IMAGE);
        container.body["Labels"] = serde_json::json!({ label::CLUSTER_ID: id });
        container
    };
    fake.docker()
        .containers
        .insert(HELPER.to_owned(), leftover("c1"));
    host.run_helper(&job("true"), &id()).await.unwrap();
    fake.docker()
        .containers
        .insert(HELPER.to_owned(), leftover("c2"));
    let refused = host.run_helper(&job("true"), &id()).await;
    assert!(
        matches!(refused, Err(HostError::NameTaken { .. })),
        "{refused:?}"
    );
    host.end_left_helper(&id()).await.unwrap();
    assert!(fake.docker().containers.contains_key(HELPER));
    fake.docker()
        .containers
        .insert(HELPER.to_owned(), leftover("c1"));
    host.end_left_helper(&id()).await.unwrap();
    assert!(!fake.docker().containers.contains_key(HELPER));
    host.end_left_helper(&id()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_hangs_does_not_hang_the_job() {
    let fake = FakeHost::new();
    fake.faults(|faults| faults.wait_hangs = true);
    let host = claimed(&fake).await;
    assert_eq!(
        host.run_helper(&job("true"), &id()).await.unwrap().status,
        0
    );
}

#[tokio::test]
async fn a_program_is_tried_with_its_flags_and_leaves_nothing() {
    let fake = FakeHost::new();
    let host = claimed(&fake).await;
    {
        let mut docker = fake.docker();
        docker.images.insert("kubernetes:2".to_owned(), 1);
        docker.work = Box::new(|_, _| (1, "unknown flag: --gone\n".to_owned()));
    }
    let limit = Duration::from_secs(5);
    let tried = host.try_program(&spec("kubernetes:2"), limit, &id()).await;
    let output = tried.unwrap();
    assert_eq!(output.status, 1);
    assert_eq!(output.log.trim(), "unknown flag: --gone");
    assert!(host.container(HELPER).await.unwrap().is_none());
    let missing = host.try_program(&spec("kubernetes:3"), limit, &id()).await;
    assert!(
        matches!(missing, Err(HostError::ImageMissing { .. })),
        "{missing:?}"
    );
}

#[tokio::test]
async fn a_port_of_the_node() {
    let fake = FakeHost::new();
    fake.on_port(10248, |mut stream| {
        Box::pin(async move {
            let mut asked = [0; 4];
            stream.read_exact(&mut asked).await.unwrap();
            stream.write_all(b"pong").await.unwrap();
        })
    });
    let host = fake.connect().await.unwrap();
    let mut stream = host.local_port(10248).await.unwrap();
    stream.write_all(b"ping").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "pong");
}

/// As with a real one, whose components listen while they run.
#[tokio::test]
async fn a_port_of_a_component_that_does_not_run_takes_no_connection() {
    let fake = FakeHost::new();
    fake.on_port_of("kubelet", 10248, |mut stream| {
        Box::pin(async move { stream.write_all(b"ok").await.unwrap() })
    });
    let host = fake.connect().await.unwrap();
    assert!(host.local_port(10248).await.is_err());
    let container = FakeContainer::foreign("kubelet:1");
    let asked = fake.asked();
    fake.docker()
        .containers
        .insert("kubelet".to_owned(), container);
    assert_eq!(fake.listening(), [10248]);
    let mut stream = host.local_port(10248).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "ok");
    assert_eq!((fake.forwarded(), fake.asked() - asked), (2, 0));
}

#[tokio::test]
async fn a_stream_that_is_cut_is_no_clean_end() {
    let fake = FakeHost::new();
    fake.on_port(1, |mut stream| {
        Box::pin(async move {
            stream.write_all(b"part").await.unwrap();
            std::future::pending::<()>().await;
        })
    });
    let host = fake.connect().await.unwrap();
    let mut stream = host.local_port(1).await.unwrap();
    let mut part = [0; 4];
    stream.read_exact(&mut part).await.unwrap();
    fake.cut();
    let mut rest = String::new();
    let error = stream.read_to_string(&mut rest).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(!host.is_alive());
}

#[tokio::test]
async fn a_writer_that_waits_for_the_window_hears_of_the_end() {
    let fake = FakeHost::new();
    // Reads nothing, ever.
    fake.on_port(1, |stream| {
        Box::pin(async move {
            let _open = stream;
            std::future::pending::<()>().await;
        })
    });
    let host = fake.connect().await.unwrap();
    let mut stream = host.local_port(1).await.unwrap();
    let writing = async { stream.write_all(&vec![0; 64 << 20]).await };
    let cutting = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        fake.cut();
    };
    let (written, ()) = tokio::join!(writing, cutting);
    assert_eq!(
        written.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionReset
    );
}

#[tokio::test]
async fn a_stream_that_nobody_reads_stops_nothing_else() {
    let fake = FakeHost::new();
    let sent = Arc::new(Notify::new());
    let done = Arc::clone(&sent);
    fake.on_port(1, move |mut stream| {
        let done = Arc::clone(&done);
        Box::pin(async move {
            let chunk = vec![0; 1 << 20];
            for _ in 0..100 {
                stream.write_all(&chunk).await.unwrap();
            }
            done.notify_one();
            std::future::pending::<()>().await;
        })
    });
    let host = fake.connect().await.unwrap();
    let mut unread = host.local_port(1).await.unwrap();
    sent.notified().await;
    host.images().await.unwrap();
    // It was given up, not the connection, and not a part of it passes for the whole.
    let error = unread.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    assert!(host.is_alive());
}

#[tokio::test]
async fn a_stream_that_is_read_later_is_whole() {
    let fake = FakeHost::new();
    fake.on_port(1, |mut stream| {
        Box::pin(async move {
            for byte in 0..32 {
                stream.write_all(&vec![byte; 1 << 20]).await.unwrap();
            }
            stream.shutdown().await.unwrap();
        })
    });
    let host = fake.connect().await.unwrap();
    let mut stream = host.local_port(1).await.unwrap();
    host.images().await.unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), 32 << 20);
    assert!(all.is_sorted());
}

/// As onto a slow disk: there is more than may wait for its reader, and it comes faster than it is read.
#[tokio::test]
async fn a_stream_that_is_read_slowly_is_whole() {
    const MEBIBYTES: usize = 100;
    let fake = FakeHost::new();
    fake.on_port(1, |mut stream| {
        Box::pin(async move {
            let chunk = vec![7; 1 << 20];
            for _ in 0..MEBIBYTES {
                stream.write_all(&chunk).await.unwrap();
            }
            stream.shutdown().await.unwrap();
        })
    });
    let host = fake.connect().await.unwrap();
    let mut stream = host.local_port(1).await.unwrap();
    let (mut piece, mut all) = (vec![0; 1 << 20], 0);
    loop {
        let count = stream.read(&mut piece).await.unwrap();
        if count == 0 {
            break;
        }
        all += count;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(all, MEBIBYTES << 20);
    host.images().await.unwrap();
}

#[tokio::test]
async fn over_tcp_it_is_the_same() {
    let fake = FakeHost::new();
    let address = fake.listen().await;
    let endpoint = rke_operator::model::Endpoint {
        address: address.ip().to_string(),
        port: address.port(),
    };
    let keys = rke_operator::host::KnownHosts::from_text(
        "test",
        &fake.known_hosts(&endpoint),
        rke_operator::host::Policy::Strict,
    );
    let host = Host::connect(
        &"n1".into(),
        &endpoint,
        &fake.login(),
        &keys,
        &rke_operator::host::TcpDial,
    )
    .await
    .unwrap();
    assert_eq!(host.docker_facts().await.unwrap().version, "26.1.5");
    host.close().await;
}

/// Of a claim.
fn labels(id: &ClusterId, name: &str, before: &Baseline) -> BTreeMap<String, String> {
    let record = NodeRecord {
        cluster_id: id.clone(),
        cluster_name: name.to_owned(),
        node: None,
        before: before.clone(),
    };
    record.labels().unwrap()
}

/// T1: what does not read back as it was written is said, whatever differs.
#[tokio::test]
async fn a_file_that_reads_back_differently_is_an_error() {
    type Tamper = fn(&mut NodeFile);
    let content = Secret::new(b"secret".to_vec());
    let new = NewFile {
        mode: 0o600,
        owner: Owner::ROOT,
        content: &content,
    };
    let tampers: [(Tamper, &str); 4] = [
        (|file| file.content.push(b'x'), "the content differs"),
        (|file| file.mode = 0o644, "the mode differs"),
        (|file| file.uid = 1000, "the owner differs"),
        (|file| file.gid = 1000, "the owner differs"),
    ];
    for (tamper, expected) in tampers {
        let fake = FakeHost::new();
        let host = claimed(&fake).await;
        fake.docker().tamper = Some(tamper);
        let files = [("/etc/kubernetes/a", new)].into();
        let written = host.write_files(&[].into(), &files).await;
        assert!(
            matches!(&written, Err(HostError::ReadBack { what, .. }) if *what == expected),
            "{expected}: {written:?}"
        );
    }
}

#[tokio::test]
async fn archives_that_are_cut_or_too_large_are_errors() {
    let fake = FakeHost::new();
    let host = claimed(&fake).await;
    for number in 0..9 {
        let large = NodeFile {
            content: vec![1; 1 << 20],
            mode: 0o600,
            uid: 0,
            gid: 0,
            is_dir: false,
        };
        let path = format!("/etc/large{number}");
        fake.docker().files.insert(path, large);
    }
    let read = host.read_files(&["/etc"]).await;
    assert!(matches!(read, Err(HostError::Archive { .. })), "{read:?}");
    let is_large = |path: &String| path.starts_with("/etc/large");
    fake.docker().files.retain(|path, _| !is_large(path));
    assert!(host.read_files(&["/etc"]).await.is_ok());
    fake.docker().cut_archives = true;
    let read = host.read_files(&["/etc"]).await;
    assert!(matches!(read, Err(HostError::Archive { .. })), "{read:?}");
}

/// What could not be read may be there: only Docker's 404 says that it is not.
#[tokio::test]
async fn a_file_that_cannot_be_read_is_not_taken_as_missing() {
    let fake = FakeHost::new();
    let host = claimed(&fake).await;
    assert!(host.read_files(&["/etc", "/etc/none"]).await.is_ok());
    fake.faults(|faults| faults.unreadable = Some("none".to_owned()));
    let read = host.read_files(&["/etc", "/etc/none"]).await;
    assert!(
        matches!(read, Err(HostError::Docker { status: 500, .. })),
        "{read:?}"
    );
}

/// R28.
#[tokio::test]
async fn what_a_login_shell_prints_is_no_answer() {
    let fake = FakeHost::new();
    fake.faults(|faults| faults.greeting = "Welcome!\nyes\n".to_owned());
    fake.on_exec("echo no", |_| Said::out("no\n"));
    let host = fake.connect().await.unwrap();
    let output = host.exec("echo no", Duration::from_secs(5)).await.unwrap();
    assert_eq!(output.stdout, "no\n");
}

/// R24.
#[tokio::test]
async fn whether_sshd_forwards_to_ports_is_seen_at_once() {
    let fake = FakeHost::new();
    let host = fake.connect().await.unwrap();
    assert!(host.forwards_to_ports().await.unwrap());
    fake.faults(|faults| faults.no_ports = true);
    assert!(!host.forwards_to_ports().await.unwrap());
    assert!(
        host.docker_facts().await.is_ok(),
        "sockets are another matter"
    );
    fake.faults(|faults| faults.carrier = Carrier::User);
    let host = fake.connect().await.unwrap();
    assert!(host.forwards_to_ports().await.unwrap(), "bash carries them");
}

/// An sshd with `MaxSessions 1` says no to a second session: it is opened when the first has ended.
#[tokio::test]
async fn one_session_at_a_time_is_enough_where_sshd_forwards() {
    let fake = FakeHost::new();
    fake.faults(|faults| faults.max_sessions = Some(1));
    fake.on_exec("echo here", |_| Said::out("here\n"));
    let host = fake.connect().await.unwrap();
    let all = (0..8).map(|_| host.exec("echo here", Duration::from_secs(5)));
    for output in futures::future::join_all(all).await {
        assert_eq!(output.unwrap().stdout, "here\n");
    }
    assert!(host.docker_facts().await.is_ok());
}

/// N3, N4: a connection that is gone is made again when it is needed.
#[tokio::test]
async fn a_pool_dials_a_lost_node_again() {
    let fake = FakeHost::new();
    let endpoint = FakeHost::endpoint();
    let keys = KnownHosts::from_text("test", &fake.known_hosts(&endpoint), Policy::Strict);
    let dial = fake.dial();
    let name = NodeName::from("n1");
    let targets = [(name.clone(), Ok(target(endpoint, fake.login())))].into();
    let hosts = Hosts::new(Arc::new(dial), Arc::new(keys));
    hosts.aim(targets);
    let first = hosts.open(&name).await.unwrap();
    fake.cut();
    let lost = first.containers().await.unwrap_err();
    assert_eq!(lost.passing(), Some(Passing::Away), "{lost:?}");
    let again = hosts.open(&name).await.unwrap();
    assert!(again.containers().await.is_ok());
    assert_eq!(fake.connections(), 2);
}

/// A connection costs memory for as long as it is open: of many, the oldest idle ones are closed.
#[tokio::test]
async fn a_pool_keeps_few_connections_that_are_not_in_use() {
    let fake = FakeHost::new();
    let endpoint = FakeHost::endpoint();
    let keys = KnownHosts::from_text("test", &fake.known_hosts(&endpoint), Policy::Strict);
    let names = ["n1", "n2", "n3", "n4"].map(NodeName::from);
    let hosts = Hosts::keeping(2, Arc::new(fake.dial()), Arc::new(keys));
    let aim = |name: &NodeName| (name.clone(), Ok(target(endpoint.clone(), fake.login())));
    hosts.aim(names.iter().map(aim).collect());
    let [n1, n2, n3, n4] = &names;
    let used = hosts.open(n1).await.unwrap();
    drop(hosts.open(n2).await.unwrap());
    fake.on_port(1, |stream| {
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(stream);
        })
    });
    let stream = hosts.open(n3).await.unwrap().local_port(1).await.unwrap();
    drop(hosts.open(n4).await.unwrap());
    assert_eq!(fake.connections(), 4);
    // That of `n2` was closed, and no other one.
    for name in [n1, n3, n4] {
        drop(hosts.open(name).await.unwrap());
    }
    assert_eq!(fake.connections(), 4);
    assert!(used.is_alive(), "a step is at work with it");
    drop(stream);
    let again = hosts.open(n2).await.unwrap();
    assert_eq!(fake.connections(), 5);
    assert!(again.is_alive() && used.is_alive());
}

/// R36: another container that bears the name by now is not the one that was to go.
#[tokio::test]
async fn a_container_that_is_removed_by_its_id_is_that_one() {
    let fake = FakeHost::new();
    let host = claimed(&fake).await;
    let seen = host.container(CLAIM).await.unwrap().unwrap().id;
    host.remove(CLAIM, None).await.unwrap();
    host.create_claim(labels(&id(), "again", &Baseline::default()))
        .await
        .unwrap();
    host.remove(&seen, None).await.unwrap();
    assert!(host.container(CLAIM).await.unwrap().is_some());
}

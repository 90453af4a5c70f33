//! What a login meets on the way: a server that is busy, starts, shuts us out, or says its version and then nothing; and
//! a node whose answers have no end. Each with what a person reads, connections and bytes counted.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use rke_operator::{
    error::{Explain, Passing},
    host::{Dial, Host, HostError, KnownHosts, Policy, Stream},
    model::{Endpoint, NodeName},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::Instant,
};

use crate::fake::{FakeContainer, FakeHost};

/// A stream that is counted for as long as somebody holds it.
struct Counted {
    stream: Box<dyn Stream>,
    open: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, out)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Says something and hangs up (or does not) as often as it is told, and is a node's sshd then.
struct Before {
    host: FakeHost,
    says: &'static [u8],
    hangs_up: bool,
    times: Mutex<usize>,
    open: Arc<AtomicUsize>,
    dialled: AtomicUsize,
}

impl Before {
    fn new(says: &'static [u8], hangs_up: bool, times: usize) -> Self {
        Self {
            host: FakeHost::new(),
            says,
            hangs_up,
            times: Mutex::new(times),
            open: Arc::default(),
            dialled: AtomicUsize::new(0),
        }
    }

    async fn connect(&self) -> Result<Host, HostError> {
        let endpoint = FakeHost::endpoint();
        let known = self.host.known_hosts(&endpoint);
        let keys = KnownHosts::from_text("`known_hosts`", &known, Policy::Strict);
        let login = self.host.login();
        Host::connect(&NodeName::from("n1"), &endpoint, &login, &keys, self).await
    }
}

impl Dial for Before {
    fn dial<'a>(&'a self, to: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            self.dialled.fetch_add(1, Ordering::SeqCst);
            let busy = {
                let mut times = self.times.lock().unwrap();
                let busy = *times > 0;
                *times = times.saturating_sub(1);
                busy
            };
            let stream: Box<dyn Stream> = if busy {
                let (ours, mut theirs) = tokio::io::duplex(1024);
                theirs.write_all(self.says).await?;
                if !self.hangs_up {
                    // Open for as long as the other side is.
                    tokio::spawn(async move {
                        let mut sink = tokio::io::sink();
                        let _ = tokio::io::copy(&mut theirs, &mut sink).await;
                    });
                }
                Box::new(ours)
            } else {
                self.host.dial().dial(to).await?
            };
            self.open.fetch_add(1, Ordering::SeqCst);
            let open = Arc::clone(&self.open);
            Ok(Box::new(Counted { stream, open }) as Box<dyn Stream>)
        })
    }
}

fn shown(error: &HostError) -> String {
    let hints = error.hints().into_iter();
    let hints: Vec<String> = hints.map(|hint| format!("hint: {hint}")).collect();
    format!("{error}\n{}", hints.join("\n"))
}

/// B36: a full queue of connections, a machine whose sshd starts.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_reset_once_is_made_again() {
    for says in [&b""[..], b"Exceeded MaxStartups\r\n"] {
        let server = Before::new(says, true, 2);
        server.connect().await.unwrap();
        assert_eq!(server.dialled.load(Ordering::SeqCst), 3);
    }
}

/// sshd closes a connection on which nobody logs in (`LoginGraceTime`): after a long question it is made again.
#[tokio::test(start_paused = true)]
async fn a_person_who_is_asked_about_a_host_key_may_take_their_time() {
    for (seconds, connections) in [(2, 1), (150, 2)] {
        let server = Before::new(b"", true, 0);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let keys = Policy::Ask(Box::new(move |_, _, _| {
            count.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                true
            })
        }));
        let keys = KnownHosts::from_text("`known_hosts`", "", keys);
        let (endpoint, login) = (FakeHost::endpoint(), server.host.login());
        let node = NodeName::from("n1");
        let host = Host::connect(&node, &endpoint, &login, &keys, &server).await;
        host.unwrap();
        assert_eq!(server.dialled.load(Ordering::SeqCst), connections);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}

/// B7: sshd says so, and for how long it does is known from its defaults.
#[tokio::test(start_paused = true)]
async fn a_penalty_is_waited_for_and_its_reason_is_said() {
    let server = Before::new(b"Not allowed at this time\r\n", true, 4);
    let begun = Instant::now();
    server.connect().await.unwrap();
    assert!(
        begun.elapsed() > Duration::from_secs(19),
        "{:?}",
        begun.elapsed()
    );

    let server = Before::new(b"Not allowed at this time\r\n", true, usize::MAX);
    let begun = Instant::now();
    let error = server.connect().await.unwrap_err();
    assert!(
        begun.elapsed() < Duration::from_secs(75),
        "{:?}",
        begun.elapsed()
    );
    insta::assert_snapshot!(shown(&error), @r"
    no SSH session with node `n1` (10.0.0.2); it said: Not allowed at this time
    hint: sshd on the node blocks this address for a while after failed logins (`PerSourcePenalties`): wait, or restart sshd there
    ");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_no_sshd_is_told_at_once_with_its_own_words() {
    let server = Before::new(
        b"HTTP/1.1 400 Bad \x1b[31mRequest\r\n\r\n",
        true,
        usize::MAX,
    );
    let error = server.connect().await.unwrap_err();
    assert_eq!(server.dialled.load(Ordering::SeqCst), 1);
    insta::assert_snapshot!(shown(&error), @r"
    no SSH session with node `n1` (10.0.0.2); it said: HTTP/1.1 400 Bad \u{1b}[31mRequest
    hint: check that sshd listens on port 22
    ");
}

/// O28: russh's own task would hold the connection for ever. No time-out of ours may leave one.
#[tokio::test(start_paused = true)]
async fn a_server_that_stops_after_its_version_leaves_no_connection_behind() {
    let server = Before::new(b"SSH-2.0-OpenSSH_9.9\r\n", false, usize::MAX);
    for _ in 0..8 {
        let error = server.connect().await.unwrap_err();
        assert_eq!(error.passing(), Some(Passing::Away));
        assert_eq!(
            error.to_string(),
            "node `n1` (10.0.0.2) did not answer within 20 s: the SSH handshake"
        );
    }
    // One whose caller gives up first.
    for _ in 0..8 {
        let limit = Duration::from_secs(3);
        tokio::time::timeout(limit, server.connect())
            .await
            .unwrap_err();
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(server.dialled.load(Ordering::SeqCst), 16);
    assert_eq!(server.open.load(Ordering::SeqCst), 0);
}

/// The same of connections that were whole: dropped with their last user, whatever the server does.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_dropped_is_disconnected() {
    let server = Before::new(b"", true, 0);
    let host = server.connect().await.unwrap();
    host.images().await.unwrap();
    server.host.freeze();
    drop(host);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(server.open.load(Ordering::SeqCst), 0);
}

/// systemd's `/run/nologin` lets nobody in while the machine starts; an account that has ended is told at once.
#[tokio::test(start_paused = true)]
async fn a_machine_that_starts_is_waited_for() {
    const BOOTING: &str =
        "System is booting up. Unprivileged users are not permitted to log in yet.\r\n";
    let host = FakeHost::new();
    host.faults(|faults| faults.hang_up = Some(BOOTING));
    let ready = async {
        tokio::time::sleep(Duration::from_secs(12)).await;
        host.faults(|faults| faults.hang_up = None);
    };
    let (connected, ()) = tokio::join!(host.connect(), ready);
    connected.unwrap();
    assert!(host.connections() > 2);

    let host = FakeHost::new();
    host.faults(|faults| faults.hang_up = Some("Your account has expired\r\n"));
    let error = host.connect().await.unwrap_err();
    assert_eq!(host.connections(), 1);
    assert_eq!(
        error.to_string(),
        "the SSH connection to node `n1` (10.0.0.2) was lost: sshd closed it during the login and said: Your account \
         has expired"
    );
}

/// B12, B47: a shell that does something else tells what, and the hint is about just that.
#[tokio::test]
async fn a_shell_that_runs_no_command_is_quoted() {
    let mut texts = Vec::new();
    for (text, status) in [
        (
            "WARNING: Your password has expired.\nPassword change required but no TTY available.\n",
            1,
        ),
        (
            "Please login as the user \"ubuntu\" rather than the user \"root\".\n\n",
            142,
        ),
        ("This service allows sftp connections only.\n", 1),
        ("This account is currently not available.\n", 1),
        ("", 0),
    ] {
        let host = FakeHost::new();
        let connected = host.connect().await.unwrap();
        host.faults(|faults| faults.shell_instead = Some((text.to_owned(), status)));
        let error = connected
            .exec("echo ok", Duration::from_secs(20))
            .await
            .unwrap_err();
        texts.push(shown(&error));
    }
    insta::assert_snapshot!(texts.join("\n\n"), @r#"
    the shell of `rke` on node `n1` (10.0.0.2) ended with status 1 and did not run a command; it said: WARNING: Your password has expired. Password change required but no TTY available.
    hint: the password of `rke` must be changed before any command can run: `sudo chage -M -1 rke` on the node, or `sudo passwd rke`

    the shell of `rke` on node `n1` (10.0.0.2) ended with status 142 and did not run a command; it said: Please login as the user "ubuntu" rather than the user "root".
    hint: write `user: ubuntu` for this node

    the shell of `rke` on node `n1` (10.0.0.2) ended with status 1 and did not run a command; it said: This service allows sftp connections only.
    hint: `rke` is restricted to sftp (`ForceCommand internal-sftp` or such a shell on the node): use another user

    the shell of `rke` on node `n1` (10.0.0.2) ended with status 1 and did not run a command; it said: This account is currently not available.
    hint: `sudo usermod -s /bin/sh rke` on the node gives the account a shell

    the shell of `rke` on node `n1` (10.0.0.2) ended with status 0 and did not run a command
    hint: the startup files of the shell of `rke` (`~/.bashrc`, `~/.profile`, `~/.zshenv`) must not read standard input, `exec` or `exit` without a terminal: `ssh rke@10.0.0.2 echo ok </dev/null` must print `ok`
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_shell_that_never_begins_is_told_apart_from_a_slow_command() {
    let host = FakeHost::new();
    let connected = host.connect().await.unwrap();
    host.faults(|faults| faults.shell_hangs = true);
    let begun = Instant::now();
    let error = connected
        .exec("echo ok", Duration::from_secs(300))
        .await
        .unwrap_err();
    assert!(
        begun.elapsed() < Duration::from_secs(40),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(
        error.to_string(),
        "the shell of `rke` on node `n1` (10.0.0.2) did not begin a command within 30 s"
    );
}

/// U12: what the kernel says decides what is asked.
#[tokio::test]
async fn no_way_and_nobody_there_are_two_things() {
    struct Failing(io::ErrorKind);
    impl Dial for Failing {
        fn dial<'a>(&'a self, _: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
            let error = io::Error::from(self.0);
            Box::pin(async move { Err(error) })
        }
    }
    let host = FakeHost::new();
    let endpoint = FakeHost::endpoint();
    let keys = KnownHosts::from_text("test", "", Policy::Strict);
    let mut hints = Vec::new();
    for kind in [
        io::ErrorKind::HostUnreachable,
        io::ErrorKind::NetworkUnreachable,
        io::ErrorKind::TimedOut,
        io::ErrorKind::ConnectionRefused,
    ] {
        let name = NodeName::from("n1");
        let tried = Host::connect(&name, &endpoint, &host.login(), &keys, &Failing(kind)).await;
        hints.extend(tried.unwrap_err().hints());
    }
    assert_eq!(
        hints,
        [
            "nothing answers there: is the node up, and is that its address?",
            "this machine has no route to `10.0.0.2`: `ip route get 10.0.0.2` here shows why",
            "is the node up, and does a firewall let port 22 through?",
            "nothing listens on port 22 there: is sshd running, and on that port?",
        ]
    );
}

/// B10, and homes that sshd does not trust: nothing is claimed that is not known.
#[test]
fn a_refused_login_says_what_was_tried_and_what_was_not() {
    use rke_operator::host::{Hop, Place, Tried};
    let place = || {
        Arc::new(Place {
            node: NodeName::from("n1"),
            endpoint: FakeHost::endpoint(),
            user: "root".to_owned(),
            hop: Hop::Direct,
        })
    };
    let refused = |keys: &[&str], untried: &[&str], hung_up, said: Option<&str>| {
        let owned = |all: &[&str]| all.iter().map(|key| (*key).to_owned()).collect();
        shown(&HostError::LoginRefused {
            at: place(),
            key_source: "ssh-agent".to_owned(),
            tried: Tried {
                keys: owned(keys),
                untried: owned(untried),
            },
            hung_up,
            said: said.map(str::to_owned),
        })
    };
    let goodbye = Some("Too many authentication failures");
    insta::assert_snapshot!(
        [
            refused(&["SHA256:a"], &[], false, None),
            refused(&["SHA256:a", "SHA256:b", "SHA256:c"], &["SHA256:d", "SHA256:e"], true, goodbye),
        ]
        .join("\n\n"),
        @r"
    node `n1` (10.0.0.2) refuses the login of `root` with the SSH key from ssh-agent
    hint: tried: SHA256:a. Is `root` the right user, and is that key in `authorized_keys` of `root` on the node?
    hint: sshd writes the reason only to its log: `sudo journalctl -u ssh -u sshd -n 20` on the node. Apart from a missing key: a home or `.ssh` that others can write to, `AllowUsers`, `PermitRootLogin`

    node `n1` (10.0.0.2) refuses the login of `root` with 3 SSH keys from ssh-agent; it said: Too many authentication failures
    hint: sshd hung up after 3 keys (`MaxAuthTries`); not tried: SHA256:d, SHA256:e. Set the right one in `ssh_key_path`: with its `.pub` next to it, it is tried first
    hint: tried: SHA256:a, SHA256:b, SHA256:c. Is `root` the right user, and is one of these keys in `authorized_keys` of `root` on the node?
    hint: sshd writes the reason only to its log: `sudo journalctl -u ssh -u sshd -n 20` on the node. Apart from a missing key: a home or `.ssh` that others can write to, `AllowUsers`, `PermitRootLogin`
    "
    );
}

/// O27: whatever a node's Docker sends, a bound of it is taken, and the connection ends.
#[tokio::test]
async fn an_answer_without_an_end_is_cut_off() {
    for status in [200, 404, 500] {
        let host = FakeHost::new();
        host.faults(|faults| faults.endless = Some(status));
        let connected = host.connect().await.unwrap();
        let error = connected.containers().await.unwrap_err();
        assert!(error.to_string().contains("containers"), "{error}");
        drop(connected);
        // What is under way in the windows of SSH comes on top of the 8 MiB that are taken.
        assert!(
            host.poured() < 48 << 20,
            "{status}: {} bytes",
            host.poured()
        );
    }
}

/// O27: a backup that somebody put below `/etc/kubernetes` is no file of ours; it is not kept.
#[tokio::test]
async fn files_that_are_too_large_to_be_ours_are_not_kept() {
    use rke_operator::{
        facts::{Baseline, NodeRecord},
        host::NewFile,
        model::{ClusterId, Owner, secret::Secret},
    };
    let fake = FakeHost::new();
    let host = fake.connect().await.unwrap();
    host.import_empty_image().await.unwrap();
    let record = NodeRecord {
        cluster_id: ClusterId("c1".to_owned()),
        cluster_name: "local".to_owned(),
        node: None,
        before: Baseline::default(),
    };
    host.create_claim(record.labels().unwrap()).await.unwrap();
    let (small, large) = (
        Secret::new(vec![b's'; 1000]),
        Secret::new(vec![b'l'; 60 << 20]),
    );
    let file = |content| NewFile {
        mode: 0o600,
        owner: Owner::ROOT,
        content,
    };
    let files = [
        ("/etc/kubernetes/backup.tar", file(&large)),
        ("/etc/kubernetes/ours.yaml", file(&small)),
    ];
    // What was written is not what is read back, for it is not read.
    let written = host.write_files(&[].into(), &files.into()).await;
    assert!(
        matches!(written, Err(HostError::ReadBack { .. })),
        "{written:?}"
    );
    let found = host.read_files(&["/etc/kubernetes"]).await.unwrap();
    let sizes: Vec<usize> = found
        .values()
        .filter(|file| !file.is_dir)
        .map(|file| file.content.expose().len())
        .collect();
    assert_eq!(sizes, [0, 1000]);
}

/// O38: whoever runs a container chooses its labels and its image, and a node what its system is called.
#[tokio::test]
async fn what_a_node_says_moves_no_cursor() {
    let fake = FakeHost::new();
    let mut container = FakeContainer::foreign("web\u{1b}[2J:1");
    container.body["Labels"] = serde_json::json!({
        "com.docker.compose.project": "shop\u{1b}[31m\u{202e}",
        "json": "{\"a\": \"\u{200e}\"}",
    });
    let name = "web\u{7}";
    fake.docker().containers.insert(name.to_owned(), container);
    let host = fake.connect().await.unwrap();
    let listed = host.containers().await.unwrap();
    let (name, fact) = listed.first_key_value().unwrap();
    assert_eq!(name, "web\\u{7}");
    assert_eq!(fact.image, "web\\u{1b}[2J:1");
    let label = |key: &str| fact.labels[key].as_str();
    assert_eq!(
        label("com.docker.compose.project"),
        "shop\\u{1b}[31m\\u{202e}"
    );
    // What is read as JSON stays what it is.
    assert_eq!(label("json"), "{\"a\": \"\u{200e}\"}");
}

/// B15: what ssh connects to by default.
#[tokio::test]
async fn a_server_that_takes_nists_curves_alone_is_connected_to() {
    use russh::kex;
    for only in [
        kex::ECDH_SHA2_NISTP256,
        kex::ECDH_SHA2_NISTP521,
        kex::DH_G14_SHA256,
        kex::CURVE25519,
    ] {
        let host = FakeHost::new();
        host.faults(|faults| faults.only_kex = Some(only));
        host.connect().await.unwrap();
    }
    let host = FakeHost::new();
    host.faults(|faults| faults.only_kex = Some(kex::DH_G1_SHA1));
    let error = host.connect().await.unwrap_err();
    assert_eq!(error.passing(), None);
    assert_eq!(host.connections(), 1);
    let said = error.to_string();
    let words = [
        "offers no kex algorithm that is known here",
        "diffie-hellman-group1-sha1",
    ];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

/// B14: systemd-logind and name servers that do not answer have time-outs of 25 s, of which sshd waits for two.
#[tokio::test(start_paused = true)]
async fn a_session_that_begins_late_is_waited_for() {
    let limit = Duration::from_secs(20);
    for late in [25, 50] {
        let host = FakeHost::new();
        host.faults(|faults| faults.slow_session = Some(Duration::from_secs(late)));
        let connected = host.connect().await.unwrap();
        connected.exec("echo ok", limit).await.unwrap();
        connected.images().await.unwrap();
    }
    let host = FakeHost::new();
    host.faults(|faults| faults.slow_session = Some(Duration::from_secs(300)));
    let connected = host.connect().await.unwrap();
    let error = connected.exec("echo ok", limit).await.unwrap_err();
    insta::assert_snapshot!(shown(&error), @r"
    node `n1` (10.0.0.2) did not answer within 60 s: sshd did not begin the session
    hint: sshd may wait for systemd-logind (`systemctl status systemd-logind dbus` on the node), or for a home that is on another machine
    ");
}

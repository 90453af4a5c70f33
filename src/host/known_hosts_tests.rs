//! Every rule, and each against `ssh-keygen -F` where there is one.

use std::{collections::BTreeSet, process::Command, slice, sync::Arc};

use super::*;

const ED: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
const ED2: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA/3uGbh5SMpTcYvXNZBJwmcMwIsqPUhzKp65vV8FqHl";
const EC: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=";

fn text() -> String {
    let lines = [
        format!("plain {ED}"),
        format!("a.example,10.0.0.1\t{ED} with a comment"),
        format!("*.wild.example,!not.wild.example {ED}"),
        format!("[ported]:2222 {ED}"),
        format!("UPPER.example  {ED}"),
        format!("q?.example {ED}"),
        format!("many {ED}"),
        format!("many {EC}"),
        "# a comment".to_owned(),
        String::new(),
        "broken ssh-ed25519 not-base64!".to_owned(),
        format!("broken {ED}"),
        format!("@revoked gone {ED}"),
        format!("gone {ED}"),
        format!("@cert-authority *.ca.example {ED}"),
        format!("@strange odd {ED}"),
        format!("  indented {ED}"),
        format!("[::1]:2222,fe80::1 {ED}"),
        "short".to_owned(),
        "short ssh-ed25519".to_owned(),
        // `ssh-keygen -H` of `hashed` and of `[hashed]:2222`.
        format!("{} {ED}", hashed("hashed")),
        format!("{} {ED}", hashed("[hashed]:2222")),
        format!("|1|broken|broken {ED}"),
        format!("[both]:2222 {ED2}"),
        format!("both\t {ED} a comment"),
    ];
    lines.join("\n") + "\n"
}

fn hashed(name: &str) -> String {
    let salt = [7; 20];
    let mut mac = Hmac::<Sha1>::new_from_slice(&salt).unwrap();
    mac.update(name.as_bytes());
    format!(
        "|1|{}|{}",
        STANDARD.encode(salt),
        STANDARD.encode(mac.finalize().into_bytes())
    )
}

/// A name, and the lines that are for it.
const TABLE: [(&str, &[usize]); 22] = [
    ("plain", &[1]),
    ("a.example", &[2]),
    ("10.0.0.1", &[2]),
    ("b.example", &[]),
    ("x.wild.example", &[3]),
    ("not.wild.example", &[]),
    ("wild.example", &[]),
    ("[ported]:2222", &[4]),
    ("ported", &[]),
    ("[ported]:22", &[]),
    ("upper.example", &[5]),
    ("q1.example", &[6]),
    ("q.example", &[]),
    ("many", &[7, 8]),
    ("broken", &[12]),
    ("gone", &[13, 14]),
    ("n.ca.example", &[15]),
    ("odd", &[]),
    ("indented", &[17]),
    ("[::1]:2222", &[18]),
    ("hashed", &[21]),
    ("[hashed]:2222", &[22]),
];

fn lines(name: &str) -> Vec<usize> {
    let index = Index::of(&text());
    index.matching(name).map(|(line, _)| line).collect()
}

#[test]
fn names_match_as_in_openssh() {
    for (name, expected) in TABLE {
        assert_eq!(lines(name), expected, "{name}");
    }
}

#[test]
fn ssh_keygen_finds_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("known_hosts");
    fs::write(&file, text()).unwrap();
    for (name, expected) in TABLE {
        if name == "broken" {
            // It shows lines for the name whose key cannot be read; `ssh` skips them.
            continue;
        }
        let output = Command::new("ssh-keygen")
            .args(["-F", name, "-f"])
            .arg(&file)
            .output()
            .expect("this test compares with ssh-keygen of the package openssh-client");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let found: BTreeSet<usize> = said
            .lines()
            .filter(|line| line.starts_with("# Host "))
            .filter_map(|line| line.split("found: line ").nth(1))
            .filter_map(|rest| rest.split(' ').next()?.parse().ok())
            .collect();
        assert_eq!(found, expected.iter().copied().collect(), "{name}: {said}");
    }
}

#[test]
fn a_fingerprint_is_that_of_ssh_keygen() {
    let ours = fingerprint(ED).unwrap();
    assert_eq!(ours, "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU");
    assert_eq!(fingerprint(&format!("{ED} comment")), Some(ours));
    assert_eq!(fingerprint("ssh-ed25519 AAAA"), None);
}

fn at(address: &str, port: u16) -> Endpoint {
    Endpoint {
        address: address.to_owned(),
        port,
    }
}

async fn verify(address: &str, port: u16, key: &str, policy: Policy) -> HostKeyVerdict {
    KnownHosts::from_text("known_hosts", &text(), policy)
        .verify(&at(address, port), &key.into(), &[])
        .await
        .unwrap()
}

fn changed(place: &str) -> HostKeyVerdict {
    HostKeyVerdict::Changed {
        place: place.to_owned(),
    }
}

const UNKNOWN: HostKeyVerdict = HostKeyVerdict::Unknown { accepted: false };
const TAKEN: HostKeyVerdict = HostKeyVerdict::Unknown { accepted: true };

#[tokio::test]
async fn verdicts() {
    use HostKeyVerdict::Trusted;
    for (address, port, key, expected) in [
        ("plain", 22, ED, Trusted),
        ("PLAIN", 22, ED, Trusted),
        ("plain", 22, ED2, changed("known_hosts line 1")),
        // An impostor may have a key of another type.
        ("plain", 22, EC, changed("known_hosts line 1")),
        ("many", 22, ED, Trusted),
        ("many", 22, EC, Trusted),
        ("many", 22, ED2, changed("known_hosts line 7")),
        ("ported", 2222, ED, Trusted),
        ("ported", 2222, ED2, changed("known_hosts line 4")),
        ("ported", 22, ED, UNKNOWN),
        // The right key under the bare name is good for any port, a wrong one is merely unknown.
        ("plain", 2222, ED, Trusted),
        ("plain", 2222, ED2, UNKNOWN),
        // The bare name does not make a changed key of `[host]:port` a right one.
        ("both", 2222, ED2, Trusted),
        ("both", 2222, ED, changed("known_hosts line 24")),
        ("both", 22, ED, Trusted),
        (
            "gone",
            22,
            ED,
            changed("known_hosts line 13, marked as revoked"),
        ),
        ("hashed", 2222, ED, Trusted),
        ("unlisted", 22, ED, UNKNOWN),
    ] {
        let result = verify(address, port, key, Policy::Strict).await;
        assert_eq!(result, expected, "{address}:{port}");
    }
}

#[tokio::test]
async fn accepting_new_keys_never_accepts_changed_ones() {
    for (address, key, expected) in [
        ("unlisted", ED, TAKEN),
        ("plain", EC, changed("known_hosts line 1")),
        (
            "gone",
            ED,
            changed("known_hosts line 13, marked as revoked"),
        ),
    ] {
        assert_eq!(verify(address, 22, key, Policy::AcceptNew).await, expected);
    }
}

#[tokio::test]
async fn a_host_that_only_an_authority_covers_needs_a_certificate() {
    let known = KnownHosts::from_text("known_hosts", &text(), Policy::Strict);
    let error = known
        .verify(&at("n.ca.example", 22), &ED.into(), &[])
        .await
        .unwrap_err();
    insta::assert_snapshot!(error, @"it is on record only through `@cert-authority` in known_hosts line 15, and it shows no certificate of that authority; let the authority sign its key (`ssh-keygen -s CA -h -n NAME KEY`), or add its own key to the known hosts");
    // Its key is not a host key.
    assert_eq!(
        verify("n.ca.example", 22, ED, Policy::AcceptNew).await,
        TAKEN
    );
}

/// An authority, and what `ssh-keygen` signs with it for `n1.example`.
struct Signed {
    authority: String,
    key: String,
    shown: ShownKey,
}

impl Signed {
    fn new(options: &[&str]) -> Self {
        let folder = host_certificate::tests::folder("ed25519");
        let certificate = host_certificate::tests::signed(folder.path(), options);
        let read = |name: &str| {
            let bytes = fs::read(folder.path().join(name)).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            text.split(' ').take(2).collect::<Vec<_>>().join(" ")
        };
        let key = read("host.pub");
        Self {
            authority: read("ca.pub"),
            shown: ShownKey {
                key: key.clone(),
                certificate: Some(Box::new(certificate)),
            },
            key,
        }
    }

    async fn by(
        &self,
        lines: &[String],
        (address, port): (&str, u16),
        policy: Policy,
    ) -> io::Result<HostKeyVerdict> {
        let known = KnownHosts::from_text("known_hosts", &lines.join("\n"), policy)
            .with_certificates(|| "2026-11-30T12:00:00Z".parse().unwrap());
        known.verify(&at(address, port), &self.shown, &[]).await
    }
}

const GOOD: [&str; 5] = [
    "-h",
    "-n",
    "n1.example",
    "-V",
    "20261130000000:20261201000000",
];
const EXPIRED: [&str; 5] = [
    "-h",
    "-n",
    "n1.example",
    "-V",
    "20261129000000:20261130000000",
];

#[tokio::test]
async fn an_authority_vouches_for_a_host() {
    use HostKeyVerdict::Trusted;
    let one = Signed::new(&GOOD);
    let (authority, key) = (&one.authority, &one.key);
    let by_name = format!("@cert-authority *.example {authority}");
    let revoked = changed("known_hosts line 2, which revokes the authority of its certificate");
    for (lines, place, expected) in [
        (vec![by_name.clone()], ("n1.example", 22), Trusted),
        (vec![by_name.clone()], ("N1.example", 22), Trusted),
        // Another host has the certificate, or another authority signed it: its key is a plain one.
        (
            vec![format!("@cert-authority *.example {ED}")],
            ("n1.example", 2222),
            UNKNOWN,
        ),
        (vec![], ("n1.example", 22), UNKNOWN),
        // On record is another key, of before: the authority has signed the new one.
        (
            vec![by_name.clone(), format!("n1.example {ED}")],
            ("n1.example", 22),
            Trusted,
        ),
        // The port is no part of a certificate.
        (vec![by_name.clone()], ("n1.example", 2222), Trusted),
        (
            vec![format!("@cert-authority [*.example]:2222 {authority}")],
            ("n1.example", 2222),
            Trusted,
        ),
        // Revoked are the authority, and the key, also where that is only for the bare name.
        (
            vec![by_name.clone(), format!("@revoked * {authority}")],
            ("n1.example", 22),
            revoked.clone(),
        ),
        (
            vec![by_name.clone(), format!("@revoked n1.example {authority}")],
            ("n1.example", 2222),
            revoked,
        ),
        (
            vec![by_name.clone(), format!("@revoked * {key}")],
            ("n1.example", 22),
            changed("known_hosts line 2, marked as revoked"),
        ),
    ] {
        let policy = if expected == UNKNOWN {
            Policy::AcceptNew
        } else {
            Policy::Strict
        };
        let expected = if expected == UNKNOWN { TAKEN } else { expected };
        let seen = one.by(&lines, place, policy).await.unwrap();
        assert_eq!(seen, expected, "{lines:?} {place:?}");
    }
    // A clock is needed.
    let known = KnownHosts::from_text("known_hosts", &by_name, Policy::Strict);
    let endpoint = at("n1.example", 22);
    assert!(!known.has_authority(&endpoint));
    assert!(known.verify(&endpoint, &one.shown, &[]).await.is_err());
    let known = known.with_certificates(|| jiff::Timestamp::UNIX_EPOCH);
    assert!(known.has_authority(&endpoint));
    assert!(!known.has_authority(&at("n1.other", 22)));
}

/// As in OpenSSH the key in it counts as a plain one.
#[tokio::test]
async fn a_certificate_that_is_refused_says_why() {
    let one = Signed::new(&EXPIRED);
    let authority = format!("@cert-authority *.example {}", one.authority);
    let place = ("n1.example", 22);
    let refused = one
        .by(slice::from_ref(&authority), place, Policy::Strict)
        .await;
    insta::assert_snapshot!(refused.unwrap_err(), @"its certificate `a key id`, of the authority in known_hosts line 1, is refused: it expired on 2026-11-30T00:00:00Z; let the authority sign its key (`ssh-keygen -s CA -h -n NAME KEY`), or add its own key to the known hosts");
    let taken = one
        .by(slice::from_ref(&authority), place, Policy::AcceptNew)
        .await;
    assert_eq!(taken.unwrap(), TAKEN);
    let on_record = [authority, format!("n1.example {}", one.key)];
    let trusted = one.by(&on_record, place, Policy::Strict).await;
    assert_eq!(trusted.unwrap(), HostKeyVerdict::Trusted);
    let impostor = [on_record[0].clone(), format!("n1.example {ED}")];
    let refused = one.by(&impostor, place, Policy::AcceptNew).await;
    assert_eq!(refused.unwrap(), changed("known_hosts line 2"));
    let elsewhere = Signed::new(&GOOD);
    let lines = [format!("@cert-authority * {}", elsewhere.authority)];
    let refused = elsewhere.by(&lines, ("10.0.0.1", 22), Policy::Strict).await;
    insta::assert_snapshot!(refused.unwrap_err(), @"its certificate `a key id`, of the authority in known_hosts line 1, is refused: it is for `n1.example`, not for `10.0.0.1`; let the authority sign its key (`ssh-keygen -s CA -h -n NAME KEY`), or add its own key to the known hosts");
}

#[tokio::test]
async fn a_revoked_key_is_refused_at_any_port() {
    let policies: [fn() -> Policy; 2] = [|| Policy::Strict, || Policy::AcceptNew];
    for policy in policies {
        assert_eq!(
            verify("gone", 2222, ED, policy()).await,
            changed("known_hosts line 13, marked as revoked")
        );
    }
}

/// `HostKeyAlias`, `UserKnownHostsFile` and `GlobalKnownHostsFile` of OpenSSH.
#[tokio::test]
async fn keys_may_be_on_record_elsewhere() {
    use HostKeyVerdict::Trusted;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let one = Signed::new(&["-h", "-n", "alias", "-V", GOOD[4]]);
    fs::write(file("usual"), format!("plain {ED}\nalias {ED}\n")).unwrap();
    fs::write(file("global"), format!("shared {ED}\n")).unwrap();
    let text = format!(
        "other {ED2}\nalias {ED2}\n@cert-authority alias {}\n",
        one.authority
    );
    fs::write(file("other"), text).unwrap();
    let alias = || Some("Alias".to_owned());
    let other = || Some(vec![file("other"), file("missing")]);
    let lookup = |alias, user_files, global_files| Lookup {
        alias,
        user_files,
        global_files,
    };
    let lookups = BTreeMap::from([
        (at("aliased", 2222), lookup(alias(), None, None)),
        (at("other", 22), lookup(None, other(), None)),
        (at("both", 22), lookup(alias(), other(), Some(Vec::new()))),
        (at("none", 22), lookup(None, Some(Vec::new()), None)),
    ]);
    let known = KnownHosts::from_files(&[file("usual"), file("global")], Policy::AcceptNew);
    let known = known.unwrap().with_lookups(&lookups).unwrap();
    let known = known.with_certificates(|| "2026-11-30T12:00:00Z".parse().unwrap());
    let verify = async |name: &str, port: u16, shown: ShownKey| {
        known.verify(&at(name, port), &shown, &[]).await.unwrap()
    };
    assert_eq!(
        verify("aliased", 2222, ED.into()).await,
        Trusted,
        "without the port"
    );
    assert_eq!(verify("other", 22, ED2.into()).await, Trusted);
    assert_eq!(verify("both", 22, ED2.into()).await, Trusted);
    // A certificate must be for the alias.
    assert_eq!(verify("both", 22, one.shown.clone()).await, Trusted);
    // The machine's file still counts where only the user's is another one.
    let shared = lookup(Some("shared".to_owned()), other(), None);
    let of_machine = KnownHosts::from_files(&[file("usual"), file("global")], Policy::Strict)
        .unwrap()
        .with_lookups(&BTreeMap::from([(at("x", 22), shared)]))
        .unwrap();
    let seen = of_machine.verify(&at("x", 22), &ED.into(), &[]).await;
    assert_eq!(seen.unwrap(), Trusted);
    // Taken keys are recorded in the first of the host's own files, under its name there; without one, nowhere.
    let usual = fs::read(file("usual")).unwrap();
    assert_eq!(verify("none", 22, EC.into()).await, TAKEN);
    assert_eq!(verify("none", 22, EC.into()).await, Trusted, "in this run");
    assert_eq!(fs::read(file("usual")).unwrap(), usual);
    fs::write(file("other"), "").unwrap();
    let again = KnownHosts::from_files(&[file("usual")], Policy::AcceptNew).unwrap();
    let again = again.with_lookups(&lookups).unwrap();
    let taken = again.verify(&at("both", 22), &EC.into(), &[]).await;
    assert_eq!(taken.unwrap(), TAKEN);
    assert_eq!(
        fs::read(file("other")).unwrap(),
        format!("alias {EC}\n").as_bytes()
    );
}

#[tokio::test]
async fn a_person_is_asked_once() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let questions = Arc::clone(&asked);
    let policy = Policy::Ask(Box::new(move |endpoint, kind, shown| {
        questions
            .lock()
            .unwrap()
            .push((endpoint.address, kind, shown));
        async { true }.boxed()
    }));
    let known = KnownHosts::from_text("known_hosts", "", policy);
    let endpoint = at("unlisted", 22);
    let key = ED.into();
    let both = tokio::join!(
        known.verify(&endpoint, &key, &[]),
        known.verify(&endpoint, &key, &[])
    );
    assert_eq!(both.0.unwrap(), TAKEN);
    assert_eq!(both.1.unwrap(), HostKeyVerdict::Trusted);
    assert_eq!(
        known.verify(&endpoint, &ED2.into(), &[]).await.unwrap(),
        changed("this run line 1")
    );
    let shown = fingerprint(ED).unwrap();
    assert_eq!(
        *asked.lock().unwrap(),
        [("unlisted".to_owned(), "ssh-ed25519".to_owned(), shown)]
    );
    let no = Policy::Ask(Box::new(|_, _, _| async { false }.boxed()));
    assert_eq!(verify("unlisted", 22, ED, no).await, UNKNOWN);
}

#[tokio::test]
async fn keys_that_are_taken_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(".ssh/known_hosts");
    let other = folder.path().join("ssh_known_hosts");
    fs::write(&other, format!("global {ED}\n")).unwrap();
    let files = [file.clone(), other.clone()];
    let load = |policy| KnownHosts::from_files(&files, policy).unwrap();

    let known = load(Policy::AcceptNew);
    let port = at("N.example", 2222);
    assert_eq!(known.verify(&port, &ED.into(), &[]).await.unwrap(), TAKEN);
    let global = known
        .verify(&at("global", 22), &ED.into(), &[])
        .await
        .unwrap();
    assert_eq!(global, HostKeyVerdict::Trusted);
    let expected = format!("[n.example]:2222 {ED}\n");
    assert_eq!(
        String::from_utf8(fs::read(&file).unwrap()).unwrap(),
        expected
    );
    assert_eq!(known.known_algorithms(&port), ["ssh-ed25519"]);

    // A last line without a line break stays a separate line.
    fs::write(&file, format!("first {ED2}")).unwrap();
    let known = load(Policy::AcceptNew);
    assert_eq!(
        known
            .verify(&at("second", 22), &ED.into(), &[])
            .await
            .unwrap(),
        TAKEN
    );
    let expected = format!("first {ED2}\nsecond {ED}\n");
    assert_eq!(
        String::from_utf8(fs::read(&file).unwrap()).unwrap(),
        expected
    );
    assert_eq!(
        load(Policy::Strict)
            .verify(&at("first", 22), &ED.into(), &[])
            .await
            .unwrap(),
        changed(&format!("{} line 1", file.display()))
    );
}

#[tokio::test]
async fn a_key_that_a_person_accepts_is_asked_about_once() {
    let folder = tempfile::tempdir().unwrap();
    let files = [folder.path().join("known_hosts")];
    let load = |answer: bool| {
        let ask: Ask = Box::new(move |_, _, _| async move { answer }.boxed());
        KnownHosts::from_files(&files, Policy::Ask(ask)).unwrap()
    };
    let verify =
        async |known: KnownHosts| known.verify(&at("n", 22), &ED.into(), &[]).await.unwrap();
    assert_eq!(verify(load(false)).await, UNKNOWN);
    assert!(!files[0].exists(), "refused, and recorded");
    assert_eq!(verify(load(true)).await, TAKEN);
    assert_eq!(verify(load(false)).await, HostKeyVerdict::Trusted);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let files = [folder.path().to_owned()];
    let error = KnownHosts::from_files(&files, Policy::Strict).unwrap_err();
    assert!(error.to_string().starts_with("cannot read "));
}

#[test]
fn algorithms_on_record() {
    let known = KnownHosts::from_text("known_hosts", &text(), Policy::Strict);
    for (address, port, expected) in [
        ("many", 22, &["ssh-ed25519", "ecdsa-sha2-nistp256"][..]),
        ("plain", 2222, &["ssh-ed25519"]),
        ("n.ca.example", 22, &[]),
        ("unlisted", 22, &[]),
    ] {
        assert_eq!(known.known_algorithms(&at(address, port)), expected);
    }
}

/// O39: a thousand nodes look for their lines among thousands, again and again.
#[test]
fn a_lookup_does_not_read_every_line() {
    use std::fmt::Write as _;
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
    let mut text = String::new();
    for at in 0..20_000 {
        writeln!(
            text,
            "node{at}.example.com,10.0.{}.{} {key}",
            at / 256,
            at % 256
        )
        .unwrap();
    }
    let known = KnownHosts::from_text("test", &text, Policy::Strict);
    let begun = std::time::Instant::now();
    for at in 0..20_000 {
        let endpoint = Endpoint {
            address: format!("10.0.{}.{}", at / 256, at % 256),
            port: 22,
        };
        assert_eq!(known.known_algorithms(&endpoint), ["ssh-ed25519"]);
    }
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
}

/// O31: what was verified before counts where nothing is on record; then another key is a changed one, whatever the policy.
/// What a person recorded wins.
#[tokio::test]
async fn what_was_verified_before_is_trusted_where_nothing_is_on_record() {
    let before = [ED.to_owned()];
    let place = "the state of the cluster";
    for policy in [|| Policy::Strict, || Policy::AcceptNew] {
        let known = KnownHosts::from_text("known_hosts", &text(), policy());
        let verify = async |name: &str, key| {
            known
                .verify(&at(name, 22), &ShownKey::from(key), &before)
                .await
                .unwrap()
        };
        assert_eq!(verify("nowhere", ED).await, HostKeyVerdict::Trusted);
        assert_eq!(verify("nowhere", ED2).await, changed(place));
        assert_eq!(verify("x.ca.example", ED).await, HostKeyVerdict::Trusted);
        assert_eq!(verify("many", EC).await, HostKeyVerdict::Trusted);
        assert_eq!(verify("both", ED).await, HostKeyVerdict::Trusted);
        let revoked = verify("gone", ED).await;
        assert!(
            matches!(revoked, HostKeyVerdict::Changed { .. }),
            "{revoked:?}"
        );
    }
    let other = [ED2.to_owned()];
    let known = KnownHosts::from_text("known_hosts", &text(), Policy::Strict);
    let plain = at("plain", 22);
    assert_eq!(
        known.verify(&plain, &ED.into(), &other).await.unwrap(),
        HostKeyVerdict::Trusted
    );
    assert_eq!(
        known.verify(&plain, &ED2.into(), &other).await.unwrap(),
        changed("known_hosts line 1")
    );
}

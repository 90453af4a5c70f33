//! No secret of a cluster is where others can see it.
//!
//! Every secret of a run is collected, and searched for in every place where other people than
//! root and the cluster's owner may look. A place is data ([`Place`]), so what is planted in one is
//! found by the same search that found nothing before. Objects of kind Secret are left out: the
//! copy of the state is one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use lab::Profile;
use serde_json::Value;

use crate::real::Site;

/// Somewhere to look, and what is there.
struct Place {
    name: String,
    content: String,
}

impl Place {
    fn new(name: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            content: content.into(),
        }
    }
}

/// A secret of the run.
struct Kept {
    /// Where it was found first.
    name: String,
    /// As it is written there.
    text: String,
    /// Any of these in a place means that the secret is there.
    marks: BTreeSet<String>,
}

/// How long a piece of a secret must be to be its mark: 24 characters are 18 bytes of a key.
const MARK: usize = 24;

/// The pieces of a text as it is and as it looks inside of any base64, wherever that wraps.
fn marks(text: &str) -> BTreeSet<String> {
    let mut marks = BTreeSet::new();
    let mut add = |form: &str| {
        let pieces = form.as_bytes().chunks_exact(MARK);
        marks.extend(pieces.map(|piece| String::from_utf8_lossy(piece).into_owned()));
    };
    for line in text.lines().map(str::trim) {
        add(line);
        for shift in 0..3 {
            // Whole groups only: the first and the last depend on what is beside the line.
            let shifted = [&b"   "[3 - shift..], line.as_bytes()].concat();
            let whole = &shifted[..shifted.len() / 3 * 3];
            let form = BASE64.encode(whole);
            add(form.get(shift.min(1) * 4..).unwrap_or_default());
        }
    }
    marks
}

/// The private keys in PEM in a text, whatever the text escapes its ends of lines with.
fn private_keys(text: &str) -> Vec<String> {
    let text = text.replace("\\n", "\n");
    let mut keys = Vec::new();
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        rest = after;
        let Some((kind, body)) = after.split_once("-----") else {
            break;
        };
        if let Some((body, _)) = body.split_once("-----END ")
            && kind.ends_with("PRIVATE KEY")
        {
            let lines: Vec<&str> = body.split_whitespace().collect();
            let body = lines.join("\n");
            keys.push(format!(
                "-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n"
            ));
        }
    }
    keys
}

/// Everything in base64 of a text, decoded: how kubeconfigs and Secrets carry what they carry.
fn decoded(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || c == '"' || c == '\'');
    words
        .filter(|word| word.len() >= MARK)
        .filter_map(|word| BASE64.decode(word).ok())
        .filter_map(|bytes| String::from_utf8(bytes).ok())
        .collect()
}

/// Secrets by what they are, each once.
#[derive(Default)]
struct Keyring(BTreeMap<String, Kept>);

impl Keyring {
    fn add(&mut self, name: &str, text: &str, body: &str) {
        assert!(body.len() >= MARK, "{name} is too short to be searched for");
        let kept = || Kept {
            name: name.to_owned(),
            text: text.to_owned(),
            marks: marks(body),
        };
        self.0.entry(body.to_owned()).or_insert_with(kept);
    }

    /// Every private key in a text, as it is or in base64.
    fn add_keys(&mut self, name: &str, text: &str) {
        for text in decoded(text).iter().map(String::as_str).chain([text]) {
            for pem in private_keys(text) {
                let body = pem.lines().filter(|line| !line.starts_with('-'));
                let body: Vec<&str> = body.collect();
                self.add(name, &pem, &body.join("\n"));
            }
        }
    }

    /// What remains of the marks when those go that are not secret: what two keys have in common
    /// is their format's, and the public half of a key is in its certificate too.
    fn settled(self, public: &str) -> Vec<Kept> {
        let mut kept: Vec<Kept> = self.0.into_values().collect();
        let mut seen = BTreeMap::<String, usize>::new();
        for mark in kept.iter().flat_map(|kept| &kept.marks) {
            *seen.entry(mark.clone()).or_default() += 1;
        }
        for kept in &mut kept {
            kept.marks
                .retain(|mark| seen[mark] == 1 && !public.contains(mark.as_str()));
            assert!(!kept.marks.is_empty(), "nothing marks {}", kept.name);
        }
        kept
    }
}

/// Which secret is where.
fn search(places: &[Place], secrets: &[Kept]) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for place in places {
        for kept in secrets {
            if kept.marks.iter().any(|mark| place.content.contains(mark)) {
                found.insert((place.name.clone(), kept.name.clone()));
            }
        }
    }
    found
}

/// A run with the most that the binary can be brought to say, and what it said.
fn said(site: &Site, what: &str, command: &mut Command, status: i32) -> [Place; 2] {
    let scratch = site.path("scratch");
    fs::create_dir_all(&scratch).expect("a folder for what is temporary");
    let output = command
        .env("TMPDIR", scratch)
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "full")
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{stdout}\n{stderr}");
    [
        Place::new(format!("stdout of {what}"), stdout),
        Place::new(format!("stderr of {what}"), stderr),
    ]
}

fn ran(site: &Site, args: &[&str], status: i32) -> [Place; 2] {
    let mut command = site.command(args);
    let places = said(site, &args.join(" "), command.arg("--debug"), status);
    let said: usize = places.iter().map(|place| place.content.len()).sum();
    assert!(said > 0, "{args:?} said nothing");
    places
}

/// Everything that the node's root and the cluster's owner alone may know.
fn secrets(site: &Site) -> Vec<Kept> {
    let mut keyring = Keyring::default();
    for file in ["cluster.rke-operator.json", "kube_config_cluster.yml"] {
        let text = fs::read_to_string(site.path(file)).expect("the client's file");
        let known = keyring.0.len();
        keyring.add_keys(file, &text);
        assert!(keyring.0.len() > known, "no key in {file}");
    }
    let ssh = fs::read_to_string(site.lab.ssh_key()).expect("the lab's key");
    keyring.add_keys("the SSH key", &ssh);
    let on_node = "find /etc /root /home /opt /var/lib/kubelet /var/lib/rancher -type f -size -1024k \
                   -exec grep -lI -e 'PRIVATE KEY' -e '-key-data' {} + 2>/dev/null | \
                   while read -r file; do echo \"@@@ $file\"; cat \"$file\"; echo; done";
    let files = sections(&site.node().sh(on_node).expect("the node's keys"));
    assert!(
        files
            .iter()
            .any(|file| file.name.starts_with("/etc/kubernetes/ssl/")),
        "no keys on the node"
    );
    for file in &files {
        keyring.add_keys(&file.name, &file.content);
    }
    // What pods know the API by.
    let tokens = "find /var/lib/kubelet/pods -path '*/..*/token' -type f | \
                  while read -r file; do echo \"@@@ $file\"; cat \"$file\"; echo; done";
    let tokens = sections(&site.node().sh(tokens).expect("the pods' tokens"));
    assert!(!tokens.is_empty(), "no pod has a token");
    for token in &tokens {
        let signature = token.content.trim().rsplit('.').next().unwrap_or_default();
        keyring.add(&token.name, token.content.trim(), signature);
    }
    let held = site.kubectl(&["get", "secrets", "-A", "-o", "json"]).well();
    for text in decoded(&held.stdout) {
        keyring.add_keys("a Secret", &text);
    }
    let certificates = site
        .node()
        .sh("cat /etc/kubernetes/ssl/*.pem | sed '/PRIVATE/,/PRIVATE/d'; cat /home/lab/.ssh/* /etc/ssh/*.pub")
        .expect("what is public");
    keyring.settled(&certificates)
}

/// `@@@ name` and lines, again and again.
fn sections(text: &str) -> Vec<Place> {
    let parts = text.split("@@@ ").skip(1);
    parts
        .map(|part| {
            let (name, content) = part.split_once('\n').unwrap_or((part, ""));
            Place::new(name, content)
        })
        .collect()
}

/// Every object of the cluster that is not a Secret, by kind: events, status and all.
fn objects(site: &Site) -> Vec<Place> {
    let listed = site
        .kubectl(&["api-resources", "--verbs=list", "-o", "name"])
        .well();
    let kinds: Vec<&str> = listed
        .stdout
        .lines()
        .filter(|kind| *kind != "secrets")
        .collect();
    let all = [
        "get",
        &kinds.join(","),
        "-A",
        "-o",
        "json",
        "--show-managed-fields",
    ];
    let listed: Value = serde_json::from_str(&site.kubectl(&all).well().stdout).expect("JSON");
    let mut places = BTreeMap::<String, String>::new();
    for object in listed["items"].as_array().into_iter().flatten() {
        let kind = object["kind"].as_str().expect("a kind");
        assert_ne!(kind, "Secret");
        places
            .entry(format!("objects of kind {kind}"))
            .or_default()
            .push_str(&object.to_string());
    }
    for wanted in ["Event", "Node", "Pod", "ConfigMap"] {
        let there = places.contains_key(&format!("objects of kind {wanted}"));
        assert!(there, "no {wanted} in {:?}", places.keys());
    }
    places
        .into_iter()
        .map(|(name, content)| Place::new(name, content))
        .collect()
}

/// What Docker and the kernel tell of containers, images and processes; every log; and every file
/// that somebody without a right may read, as that somebody.
const ON_NODE: &str = r#"
for id in $(docker ps -aq); do
  name=$(docker inspect -f '{{.Name}}' $id)
  echo "@@@ docker inspect of $name"; docker inspect $id
  echo "@@@ docker logs of $name"; docker logs $id 2>&1
done
for id in $(docker images -aq --no-trunc | sort -u); do
  echo "@@@ image $id"; docker image inspect $id
  echo "@@@ image history $id"; docker history --no-trunc --format '{{json .}}' $id
done
for process in /proc/[0-9]*; do
  for what in cmdline environ; do
    echo "@@@ $what of $process"; tr '\0' '\n' 2>/dev/null < $process/$what
  done
done
echo "@@@ journal"; journalctl --no-pager --output cat
find /var/log -type f ! -path '/var/log/journal/*' | while read -r file; do
  echo "@@@ log $file"; cat "$file"
done
cat > /run/lab-readable.sh <<'IN'
find / \( -path /proc -o -path /sys -o -path /dev -o -path /usr -o -path /opt/cni/bin \
  -o -path /var/lib/dpkg -o -path /var/log/journal \) -prune -o -type f -readable -print 2>/dev/null |
  while read -r file; do echo "@@@ file $file"; cat "$file"; done
IN
chmod 0755 /run/lab-readable.sh
setpriv --reuid nobody --regid nogroup --clear-groups sh /run/lab-readable.sh
"#;

fn on_node(site: &Site) -> Vec<Place> {
    let places = sections(&site.node().sh(ON_NODE).expect("the node is looked at"));
    for wanted in [
        "docker inspect of /kube-apiserver",
        "docker logs of /etcd",
        "image history ",
        "cmdline of /proc/1",
        "environ of /proc/1",
        "journal",
        "log /var/log/kube-audit/",
        "log /var/log/pods/",
        "file /etc/passwd",
    ] {
        let there = |place: &Place| place.name.starts_with(wanted) && !place.content.is_empty();
        assert!(places.iter().any(there), "nothing in {wanted}");
    }
    places
}

/// What processes were called with and told while something went on, which may have been short.
fn watched<T>(site: &Site, what: &str, deed: impl FnOnce() -> T) -> (T, Place) {
    let watch = "umask 077; touch /run/lab-watch; setsid sh -c '
        while [ -e /run/lab-watch ]; do
          cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr \"\\0\" \"\\n\"
          sleep 0.05
        done | awk \"!seen[\\$0]++\" > /run/lab-watched; mv /run/lab-watched /run/lab-watch-ended
        ' > /dev/null 2>&1 &";
    site.node().sh(watch).expect("somebody watches");
    let done = deed();
    let seen = "rm /run/lab-watch; until [ -e /run/lab-watch-ended ]; do sleep 0.05; done; \
                cat /run/lab-watch-ended; rm /run/lab-watch-ended";
    let seen = site.node().sh(seen).expect("what was seen");
    (done, Place::new(format!("processes during {what}"), seen))
}

/// The client's files that others may read, were their folder open.
fn on_client(folder: &Path, places: &mut Vec<Place>) {
    for entry in fs::read_dir(folder).expect("the folder") {
        let entry = entry.expect("an entry");
        let (path, metadata) = (entry.path(), entry.metadata().expect("its mode"));
        let mode = metadata.permissions().mode();
        if metadata.is_dir() {
            on_client(&path, places);
        } else if mode & 0o004 != 0 {
            let content = fs::read(&path).expect("the file");
            let content = String::from_utf8_lossy(&content).into_owned();
            places.push(Place::new(format!("client's {}", path.display()), content));
        }
    }
}

/// Everywhere but in what the runs said.
fn looked_at(site: &Site) -> Vec<Place> {
    let mut places = objects(site);
    places.extend(on_node(site));
    on_client(site.folder(), &mut places);
    places
}

#[test]
fn no_secret_is_where_others_look() {
    let site = Site::new("secrets", Profile::Plain);
    let mut runs = Vec::new();
    for args in [&["plan"][..], &["plan", "-o", "json"]] {
        runs.extend(ran(&site, args, 0));
    }
    let (said, seen) = watched(&site, "up", || ran(&site, &["up", "--yes"], 0));
    assert!(seen.content.contains("kube-apiserver"), "{}", seen.content);
    runs.extend(said);
    runs.push(seen);
    for args in [&["up"][..], &["plan", "-o", "json"], &["up", "-o", "json"]] {
        runs.extend(ran(&site, args, 0));
    }
    // A change shows differences, and its run has events.
    let config = site.node().cluster_yml("lab").expect("a config");
    let change = "services:\n  kube-api:\n    extra_args:\n      v: 3\n  kube-controller:\n    \
                  extra_args:\n      v: 3\n";
    let changed = lab::merge(&config, change).expect("a config");
    site.write_config("cluster.yml", &changed);
    for args in [
        &["plan"][..],
        &["plan", "-o", "json"],
        &["up", "--yes", "-o", "json"],
    ] {
        runs.extend(ran(&site, args, 0));
    }
    let events = &runs[runs.len() - 2].content;
    assert!(events.contains("stepFinished"), "{events}");
    // What is refused is said at length.
    fs::rename(site.path("cluster.rke-operator.json"), site.path("kept")).expect("it is away");
    runs.extend(ran(&site, &["up"], 1));
    fs::rename(site.path("kept"), site.path("cluster.rke-operator.json")).expect("it is back");

    let secrets = secrets(&site);
    let mut places = looked_at(&site);
    places.append(&mut runs);
    assert_eq!(search(&places, &secrets), BTreeSet::new());

    planted_secrets_are_found(&site, &secrets);

    removal_tells_nothing(&site, &secrets);
}

/// The processes that were planted still run: they are not the removal's.
fn removal_tells_nothing(site: &Site, secrets: &[Kept]) {
    site.node()
        .sh("kill $(cat /run/lab-planted)")
        .expect("they are ended");
    let run = || ran(site, &["remove", "--force", "-o", "json"], 0);
    let (said, seen) = watched(site, "remove", run);
    assert_eq!(search(&said, secrets), BTreeSet::new());
    assert_eq!(search(&[seen], secrets), BTreeSet::new());
}

/// A secret in the forms in which it may come to light.
fn form(kept: &Kept, row: usize) -> String {
    match row % 3 {
        0 => BASE64.encode(&kept.text),
        1 => kept.text.trim_end().replace('\n', "\\n"),
        _ => kept.text.clone(),
    }
}

/// A place by the start of its name, and how a secret gets there.
type Row = (&'static str, fn(&Site, &str) -> Vec<Place>);

fn sh(site: &Site, script: &str) -> Vec<Place> {
    site.node().sh(script).expect("it is planted");
    Vec::new()
}

fn object(site: &Site, object: &Value) -> Vec<Place> {
    site.write_config("planted.json", &object.to_string());
    let file = site.path("planted.json").to_string_lossy().into_owned();
    site.kubectl(&["create", "-f", &file]).well();
    fs::remove_file(file).expect("it is not planted here");
    Vec::new()
}

fn says(site: &Site, script: &str, secret: &str) -> Vec<Place> {
    let mut command = Command::new("sh");
    said(
        site,
        "a run that tells",
        command.args(["-c", script, "sh", secret]),
        0,
    )
    .into()
}

fn one_line(secret: &str) -> String {
    secret.replace('\n', "\\n")
}

const TABLE: &[Row] = &[
    ("stdout of a run that tells", |site, secret| {
        says(site, "printf %s \"$1\"", secret)
    }),
    ("stderr of a run that tells", |site, secret| {
        says(site, "printf %s \"$1\" >&2", secret)
    }),
    ("objects of kind Event", |site, secret| {
        object(
            site,
            &serde_json::json!({
                "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "Planted",
                "metadata": {"name": "planted", "namespace": "default"},
                "involvedObject": {"kind": "Node", "name": "n1", "namespace": "default"},
                "message": secret,
            }),
        )
    }),
    ("objects of kind ConfigMap", |site, secret| {
        object(
            site,
            &serde_json::json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"planted": secret},
                "metadata": {"name": "planted", "namespace": "default"},
            }),
        )
    }),
    ("objects of kind Node", |site, secret| {
        let annotation = format!("planted={secret}");
        site.kubectl(&["annotate", "node", "n1", &annotation])
            .well();
        Vec::new()
    }),
    ("objects of kind Pod", |site, secret| {
        object(
            site,
            &serde_json::json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "planted", "namespace": "default"},
                "spec": {"nodeName": "nowhere", "containers": [{
                    "name": "planted", "image": "planted",
                    "env": [{"name": "PLANTED", "value": secret}],
                }]},
            }),
        )
    }),
    ("docker inspect of /planted-label", |site, secret| {
        let image = "$(docker inspect -f '{{.Image}}' kubelet)";
        sh(
            site,
            &format!("docker create --name planted-label --label planted='{secret}' {image} true"),
        )
    }),
    ("docker logs of /planted-log", |site, secret| {
        let image = "$(docker inspect -f '{{.Image}}' kubelet)";
        sh(
            site,
            &format!(
                "docker run --name planted-log --entrypoint bash {image} -c 'printf %s \"$0\"' '{secret}'"
            ),
        )
    }),
    ("image sha256:", |site, secret| {
        let label = one_line(secret);
        sh(
            site,
            &format!(
                "tar -cf - -T /dev/null | docker import --change 'LABEL planted=\"{label}\"' - planted:1"
            ),
        )
    }),
    ("image history sha256:", |site, secret| {
        sh(
            site,
            &format!("tar -cf - -T /dev/null | docker import --message '{secret}' - planted:2"),
        )
    }),
    ("cmdline of /proc/", |site, secret| {
        sh(
            site,
            &format!(
                "setsid sh -c 'sleep 900; :' planted '{secret}' > /dev/null 2>&1 & \
                 echo $! >> /run/lab-planted"
            ),
        )
    }),
    ("environ of /proc/", |site, secret| {
        sh(
            site,
            &format!(
                "PLANTED='{secret}' setsid sleep 900 > /dev/null 2>&1 & echo $! >> /run/lab-planted"
            ),
        )
    }),
    ("processes during a short deed", |site, secret| {
        let deed = format!("sh -c 'sleep 0.5; :' planted '{secret}'");
        let ((), seen) = watched(site, "a short deed", || drop(sh(site, &deed)));
        vec![seen]
    }),
    ("journal", |site, secret| {
        sh(
            site,
            &format!("printf '%s\\n' '{secret}' | systemd-cat -t planted && journalctl --sync"),
        )
    }),
    ("log /var/log/pods/", |site, secret| {
        sh(
            site,
            // In the folder of a pod that lives: the kubelet removes every minute what belongs to
            // none.
            &format!(
                "umask 077; set -- /var/log/pods/kube-system_coredns-*/; [ -d \"$1\" ]; \
                 printf %s '{secret}' > \"${{1}}planted.log\""
            ),
        )
    }),
    ("log /var/log/kube-audit/", |site, secret| {
        sh(
            site,
            &format!("umask 077; printf %s '{secret}' > /var/log/kube-audit/planted.log"),
        )
    }),
    ("file /etc/kubernetes.planted", |site, secret| {
        sh(
            site,
            &format!("umask 022; printf %s '{secret}' > /etc/kubernetes.planted"),
        )
    }),
    ("file /tmp/planted/", |site, secret| {
        sh(
            site,
            &format!("umask 022; mkdir /tmp/planted; printf %s '{secret}' > /tmp/planted/file"),
        )
    }),
    ("client's ", |site, secret| {
        let file = site.path("scratch/planted");
        fs::write(&file, secret).expect("it is planted");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("a mode");
        Vec::new()
    }),
];

/// A secret in each place, each in another form: the search finds every one, and not those that
/// only root can get at.
fn planted_secrets_are_found(site: &Site, secrets: &[Kept]) {
    let mut planted = Vec::new();
    let mut wanted = Vec::new();
    for (row, (place, plant)) in TABLE.iter().enumerate() {
        let kept = &secrets[row % secrets.len()];
        planted.extend(plant(site, &form(kept, row)));
        wanted.push((*place, &kept.name));
    }
    let hidden = &secrets[0].text;
    sh(
        site,
        &format!(
            "umask 022; mkdir -m 0700 /srv/hidden; printf %s '{hidden}' > /srv/hidden/file; \
             umask 077; printf %s '{hidden}' > /srv/file"
        ),
    );
    planted.extend(looked_at(site));
    let found = search(&planted, secrets);
    let missed: Vec<_> = wanted
        .iter()
        .filter(|(place, name)| {
            !found
                .iter()
                .any(|(where_, which)| where_.starts_with(place) && which == *name)
        })
        .collect();
    assert!(
        missed.is_empty(),
        "planted and not found: {missed:?} in {found:?}"
    );
    let hidden: Vec<_> = found
        .iter()
        .filter(|(place, _)| place.contains("/srv/"))
        .collect();
    assert!(hidden.is_empty(), "out of anybody's reach: {hidden:?}");
}

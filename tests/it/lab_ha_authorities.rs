//! The certificate authorities are rotated on real nodes. A program that knows the former authority alone reaches the API
//! until that is dropped.

use std::{
    fs, io,
    time::{Duration, Instant},
};

use lab::{LabSpec, Profile};
use rke_operator::state::codec;

use crate::{
    lab_ha_ended::{in_folder, pods, write_pair},
    lab_many::{ALL, CENTRAL, WORKER},
    real::{Run, Site, beside::ran, publish, reader::Reader, tell},
};

type Nodes<'a> = &'a [(&'a str, &'a [&'a str])];

const MINUTES: Duration = Duration::from_secs(120);

const ONE: Nodes<'_> = &[("n1", ALL)];
const MANY: Nodes<'_> = &[
    ("n1", ALL),
    ("n2", CENTRAL),
    ("n3", CENTRAL),
    ("n4", WORKER),
    ("n5", WORKER),
];

/// Asks the API of a node's own address, and trusts this file alone. The API answers clients without a certificate, too.
fn asks(file: &str) -> String {
    format!("curl -sS -o /dev/null -m 2 --cacert {file} https://127.0.0.1:6443/readyz")
}

/// How many certificates the API hands out to extension API servers and to pods.
fn handed_out(site: &Site) -> [usize; 2] {
    [
        ("kube-system", "extension-apiserver-authentication"),
        ("default", "kube-root-ca.crt"),
    ]
    .map(|(namespace, name)| {
        let map = ["-n", namespace, "get", "configmap", name, "-o", "json"];
        let text = site.kubectl(&map).well().stdout;
        text.matches("BEGIN CERTIFICATE").count()
    })
}

fn timed(site: &Site, what: &str, args: &[&str]) -> f64 {
    let begun = Instant::now();
    let ran = site.run(args).well();
    let took = begun.elapsed().as_secs_f64();
    tell(&format!("{what} took {took:.1} s\n{}", ran.stderr));
    took
}

/// An API server of a busy machine may be slow to answer at first.
fn nothing_is_left(site: &Site) {
    Site::eventually("nothing to do", MINUTES, || {
        let plan = site.run(&["plan"]).well().stdout;
        plan.contains("nothing to do")
    });
}

/// A Service that is made now has an address by its name: CoreDNS trusts the API servers.
fn names_are_resolved(site: &Site) {
    const SERVICE: &str = r"
apiVersion: v1
kind: Service
metadata: {name: late}
spec: {selector: {app: hello}, ports: [{port: 80, targetPort: 8080}]}
";
    let manifests = format!("{}---\n{SERVICE}", include_str!("../demo-pod.yaml"));
    site.write_config("late.yml", &manifests);
    let late = site.path("late.yml").to_string_lossy().into_owned();
    site.kubectl(&["apply", "-f", &late]).well();
    let page = "exec 3<>/dev/tcp/late.default.svc.cluster.local/80; \
                printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    Site::eventually("a new Service has a name", MINUTES, || {
        let asked = site.kubectl(&["exec", "hello", "--", "bash", "-c", page]);
        asked.stdout.contains("200 OK")
    });
}

fn authorities_are_rotated(name: &str, nodes: Nodes<'_>) {
    let spec = nodes.iter().fold(LabSpec::own(name), |spec, (name, _)| {
        spec.node(name, Profile::Plain)
    });
    let site = Site::of(&spec);
    site.names(nodes);
    site.run(&["up", "--yes"]).well();
    let last = nodes.last().expect("a node").0;
    let node = site.lab.node(last);
    node.sh("cp /etc/kubernetes/ssl/kube-ca.pem /tmp/former.pem")
        .expect("a copy");
    let before = fs::read_to_string(site.path("kube_config_cluster.yml")).expect("a file");
    assert_eq!(handed_out(&site), [3, 1]);
    let before_pods = pods(&site);
    assert!(!before_pods.is_empty());

    let reader = Reader::asking(&site, node, &asks("/tmp/former.pem"));
    let rotate = ["cert", "rotate", "--rotate-ca", "--yes"];
    let start = timed(&site, "the rotation", &rotate);
    let answers = reader.answers();
    drop(reader);
    tell(&format!(
        "who knows the former authority alone: {answers:?}"
    ));
    assert_eq!(handed_out(&site), [6, 2]);
    let issuer = node
        .sh("openssl x509 -noout -issuer -in /etc/kubernetes/ssl/kube-node.pem")
        .expect("a certificate");
    assert!(issuer.contains("kube-ca-g2"), "{issuer}");
    node.sh(&asks("/tmp/former.pem"))
        .expect("it is trusted by the former authority");
    let after = fs::read_to_string(site.path("kube_config_cluster.yml")).expect("a file");
    assert_ne!(after, before);
    let restarted = pods(&site);
    assert!(
        restarted.is_disjoint(&before_pods),
        "{restarted:?} {before_pods:?}"
    );
    assert_eq!(site.run(&rotate).well().status, 0, "there is nothing to do");
    nothing_is_left(&site);

    let complete = ["cert", "rotate", "--rotate-ca", "--complete", "--yes"];
    let end = timed(&site, "the end of the former authorities", &complete);
    Site::eventually(
        "extensions trust the new ones alone",
        Duration::from_secs(60),
        || handed_out(&site) == [3, 1],
    );
    assert!(node.sh(&asks("/tmp/former.pem")).is_err());
    node.sh(&asks("/etc/kubernetes/ssl/kube-ca.pem"))
        .expect("it is trusted by the new one");
    site.kubectl(&["get", "nodes"]).well();
    assert_eq!(pods(&site), restarted, "restarted once");
    names_are_resolved(&site);
    nothing_is_left(&site);
    let failed = answers.failed;
    if nodes.len() > 1 {
        assert_eq!(failed, 0, "{answers:?}");
    }
    publish(
        "HA_TABLE",
        &format!(
            "authorities of {} nodes rotated in {start:.1} s and dropped in {end:.1} s; of {} requests of a program that \
             knows the former one alone {failed} failed twice",
            nodes.len(),
            answers.requests
        ),
    );
}

#[test]
fn authorities_of_one_node_are_rotated() {
    authorities_are_rotated("ha-authority", ONE);
}

#[test]
fn authorities_of_five_nodes_are_rotated() {
    authorities_are_rotated("ha-authorities", MANY);
}

/// A pod of people's own whose program reads `ca.crt` once.
const OLD_CLIENT: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: old-client}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: old-client
      image: lab/old-client:v1
      imagePullPolicy: Never
";

/// How requests of the program ended.
#[derive(Debug, Default)]
struct Asked {
    answered: usize,
    /// It does not trust the API server.
    distrusted: usize,
    /// No API server was there.
    unanswered: usize,
}

/// All that the pod has asked so far. kubelet may be about to be replaced.
fn asked(site: &Site) -> Asked {
    let mut asked = Asked::default();
    let logs = ["logs", "old-client"];
    Site::eventually("the log of a pod", MINUTES, || {
        let logs = site.kubectl(&logs);
        asked = Asked::default();
        for line in logs.stdout.lines() {
            if line == "ok" {
                asked.answered += 1;
            } else if line.contains("x509: certificate signed by unknown authority") {
                asked.distrusted += 1;
            } else {
                asked.unanswered += 1;
            }
        }
        logs.status == 0
    });
    asked
}

fn runs_a_pod(site: &Site) {
    site.write_config("pod.yml", OLD_CLIENT);
    let pod = site.path("pod.yml").to_string_lossy().into_owned();
    site.kubectl(&["apply", "-f", &pod]).well();
    Site::eventually("a pod asks", MINUTES, || asked(site).answered > 20);
}

/// The same key has an authority that may sign no other one, as early releases made them.
const LIMIT: &str = "set -e
    printf '%s\n' basicConstraints=critical,CA:TRUE,pathlen:0 keyUsage=critical,digitalSignature,keyCertSign,cRLSign \\
        subjectKeyIdentifier=none authorityKeyIdentifier=none > limit.cnf
    openssl x509 -x509toreq -in cluster.pem -signkey cluster.key -out csr.pem
    openssl x509 -req -in csr.pem -signkey cluster.key -days 3650 -extfile limit.cnf -out limited.pem";

fn limits(site: &Site) {
    let path = site.path("cluster.rke-operator.json");
    let text = fs::read_to_string(&path).expect("a state");
    let mut state = codec::decode(&text).expect("a state");
    write_pair(site, "cluster", &state.cluster_ca);
    ran("sh", &["-c", &in_folder(site, LIMIT)]);
    let limited = fs::read_to_string(site.path("limited.pem")).expect("a certificate");
    state.serial += 1;
    state.cluster_ca.trusted = vec![limited.clone()];
    state.cluster_ca.signing.cert = limited;
    fs::write(&path, codec::encode(&state).expose()).expect("a state");
}

/// Wherever its lines are broken.
fn says(run: &Run, text: &str) -> bool {
    let [said, text] = [&(run.stdout.clone() + &run.stderr), text]
        .map(|text| text.split_whitespace().collect::<String>());
    said.contains(&text)
}

/// A program that knows the former authority alone, on a cluster of one node, through its Service.
fn an_old_program_asks(name: &str, is_limited: bool) {
    let site = Site::of(&LabSpec::own(name).node("n1", Profile::Plain));
    site.names(ONE);
    site.run(&["up", "--yes"]).well();
    if is_limited {
        limits(&site);
        site.run(&["up", "--yes"]).well();
    }
    let image = lab::old_client(&mut io::stderr()).expect("an image");
    let node = site.node();
    let loaded = node.load_for_pods(&image, "docker.io/lab/old-client:v1");
    loaded.expect("the node has it");
    runs_a_pod(&site);

    let rotate = ["cert", "rotate", "--rotate-ca", "--yes"];
    let rotated = site.run(&rotate).well();
    let foretold = "pods that do not read `ca.crt` again fail until they are restarted";
    assert_eq!(says(&rotated, foretold), is_limited, "{rotated:?}");
    let began = asked(&site);
    // After the last API server was replaced, too.
    Site::eventually("the pod asks again", MINUTES, || {
        let now = asked(&site);
        now.answered + now.distrusted > began.answered + began.distrusted + 20
    });
    let first = asked(&site);
    assert_eq!(first.distrusted > 0, is_limited, "{first:?}");
    if is_limited {
        site.kubectl(&["delete", "pod", "old-client"]).well();
        runs_a_pod(&site);
        let restarted = asked(&site);
        assert_eq!(restarted.distrusted, 0, "{restarted:?}");
    }

    let complete = ["cert", "rotate", "--rotate-ca", "--complete", "--yes"];
    let unasked = site.run(&complete[..4]);
    assert_eq!(unasked.status, 1, "{unasked:?}");
    assert!(says(&unasked, "needs your consent"), "{unasked:?}");
    let completed = site.run(&complete).well();
    let is_named = says(&completed, "Pod `default/old-client`");
    assert_eq!(is_named, !is_limited, "{completed:?}");
    let patience = Duration::from_secs(20);
    let distrusts = || asked(&site).distrusted > 0;
    if is_limited {
        let before = asked(&site).answered;
        Site::eventually("the pod goes on", MINUTES, || {
            asked(&site).answered > before + 20
        });
        assert!(!distrusts());
    } else {
        Site::eventually("the pod is where it was foretold", patience, distrusts);
    }
    publish(
        "HA_TABLE",
        &format!(
            "a pod with client-go 0.20, new authority {}: {first:?} until the end of `cert rotate --rotate-ca`",
            if is_limited {
                "not cross-signed"
            } else {
                "cross-signed"
            },
        ),
    );
}

#[test]
fn a_program_that_reads_the_authority_once_goes_on_until_it_is_dropped() {
    an_old_program_asks("ha-old-client", false);
}

#[test]
fn a_program_that_reads_the_authority_once_fails_as_foretold() {
    an_old_program_asks("ha-limited", true);
}

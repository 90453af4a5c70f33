//! Every document in `rkespec/` gives the intent, the containers and the plan for a fresh node that
//! are on file, and every object in `samples/` is one of those documents.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use rke_operator::{
    actual::{Actual, HostView},
    config::{Intent, Resolved, RkeConfig, SecretSources},
    desired::{
        Chart, Desired, DesiredFile,
        pki::{self, PkiContext, Seed},
    },
    etcd::{EtcdView, ExternalView},
    plan,
};

pub(crate) use crate::any_file::AnyFile;
use crate::sim::bare_host;

fn resolve(path: &Path) -> Resolved {
    let yaml = fs::read_to_string(path).expect("a document");
    let resolved =
        RkeConfig::parse(&yaml).and_then(|config| Intent::from_config(&config, &AnyFile::new()));
    match resolved {
        Ok(resolved) => resolved,
        Err(problems) => panic!(
            "{}",
            problems.render(&path.display().to_string(), &yaml, false)
        ),
    }
}

#[test]
fn every_document_gives_its_intent() {
    insta::glob!("../../rkespec", "*.yml", |path| {
        let Resolved {
            intent,
            warnings,
            later,
        } = resolve(path);
        let warnings = warnings.iter().chain(&later);
        let warnings: Vec<_> = warnings.map(ToString::to_string).collect();
        insta::assert_debug_snapshot!((intent, warnings));
    });
}

/// What there is before the first `up`: nodes that nobody has touched, and an external etcd, where there is one, that
/// has nothing of this cluster.
fn fresh(intent: &Intent) -> Actual {
    let hosts = intent.nodes.keys().map(|name| {
        let facts = bare_host(name);
        (name.clone(), HostView::Reachable(Box::new(facts)))
    });
    let answers = ExternalView::Answered {
        cluster: "cafe".to_owned(),
        holds_keys: false,
        silent: BTreeMap::new(),
    };
    let external = intent.etcd.external();
    Actual {
        hosts: hosts.collect(),
        etcd: external.map_or_else(EtcdView::default, |_| EtcdView::of_external(answers)),
        ..Actual::default()
    }
}

/// Certificates are signed with fresh nonces, so the digests of what holds one differ from run to
/// run; all others follow from the document.
pub(crate) fn digests_of_certificates(want: &Desired) -> BTreeSet<String> {
    // As it is, and in base64.
    let marks = ["-----BEGIN CERTIFICATE", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FUR"];
    let files = want.hosts.values().flat_map(|host| host.files.values());
    let holds_one = |file: &&DesiredFile| {
        let text = String::from_utf8_lossy(file.content.expose());
        marks.iter().any(|mark| text.contains(mark))
    };
    let differ = files.filter(holds_one);
    differ.map(|file| file.digest.0.clone()).collect()
}

/// The filters that hide these digests.
pub(crate) fn hidden(digests: &BTreeSet<String>) -> Vec<(&str, &str)> {
    let digests = digests.iter();
    digests.map(|digest| (&**digest, "<digest>")).collect()
}

/// What an intent asks for on nodes that nobody has touched, and those nodes.
pub(crate) fn drawn(intent: &Intent) -> (Desired, Actual) {
    let context = PkiContext {
        now: "2026-11-21T12:00:00Z".parse().expect("a time"),
        seed: Seed::new([7; 32]),
        recover: None,
        held_elsewhere: &[].into(),
        lose: &[].into(),
        clean: &[].into(),
        given: None,
    };
    let have = fresh(intent);
    let keys = pki::reconcile(intent, &have, &context).expect("keys");
    let want = Desired::from_intent(intent, &keys, &have).expect("a desired world");
    (want, have)
}

#[test]
fn every_document_gives_its_containers_and_its_plan() {
    insta::glob!("../../rkespec", "*.yml", |path| {
        let intent = resolve(path).intent;
        let (want, have) = drawn(&intent);
        let containers: BTreeMap<_, _> = want
            .hosts
            .iter()
            .map(|(name, host)| (name, &host.containers))
            .collect();
        let differ = digests_of_certificates(&want);
        insta::with_settings!({filters => hidden(&differ)}, {
            insta::assert_yaml_snapshot!("containers", containers);
            // `tests/charts/render.py` renders the real charts with these.
            let charts = want.charts.iter().map(|want| {
                let Chart { name, chart, namespace, crds, values } = &want.chart;
                serde_json::json!({"name": name, "chart": chart, "namespace": namespace, "crds": crds, "values": values})
            });
            let charts: Vec<_> = charts.collect();
            if !charts.is_empty() {
                insta::assert_json_snapshot!("charts", charts);
            }
            let plan = plan::up(&want, &have).expect("a plan");
            assert_eq!(plan::check(&plan, &have, &want.cluster_id), vec![]);
            insta::assert_snapshot!("plan", plan::render(&plan));
        });
    });
}

#[test]
fn no_document_holds_a_key() {
    for folder in ["rkespec", "rkespec/users", "samples"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a document");
            assert!(!text.contains("PRIVATE KEY"), "{}", path.display());
        }
    }
}

#[test]
fn every_sample_is_a_document_of_rkespec() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for entry in fs::read_dir(root.join("samples")).expect("a folder") {
        let sample = entry.expect("an entry").path();
        let name = sample
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("a name");
        let is_object = sample.extension().is_some_and(|ending| ending == "yaml");
        let Some(name) = name.strip_prefix("cluster-").filter(|_| is_object) else {
            continue;
        };
        let text = fs::read_to_string(&sample).expect("a sample");
        let object: serde_json::Value = serde_saphyr::from_str(&text).expect("an object");
        let spec = &object["spec"];
        let key = AnyFile::new();
        let secret = spec["ssh"]["keySecretRef"]["name"]
            .as_str()
            .expect("a Secret's name");
        let sources = SecretSources::new(secret, key.pem().into());
        let config = RkeConfig::from_json(&spec["config"]).expect("a config");
        let of_object = Intent::from_config(&config, &sources)
            .expect("an intent")
            .intent;

        let mut of_document = resolve(&root.join("rkespec").join(format!("{name}.yml"))).intent;
        // The one thing that differs: where the key comes from.
        for (name, node) in &mut of_document.nodes {
            node.login = of_object.nodes[name].login.clone();
        }
        assert_eq!(of_object, of_document, "{}", sample.display());
        seen += 1;
    }
    assert!(seen > 0, "there is a sample");
    // For the command line.
    for (sample, name) in [("cluster", "minimal"), ("cluster-ha", "ha")] {
        let [sample, document] = ["samples", "rkespec"]
            .map(|folder| root.join(folder))
            .map(|folder| {
                folder.join(if folder.ends_with("samples") {
                    sample
                } else {
                    name
                })
            })
            .map(|path| fs::read_to_string(path.with_extension("yml")).expect("a document"))
            .map(|text| serde_saphyr::from_str::<serde_json::Value>(&text).expect("YAML"));
        assert_eq!(sample, document, "{name}");
    }
}

//! What every document in `rkespec/` asks for, as differences to the smallest one: the intent, the containers and the
//! plan for fresh nodes. The smallest one, `minimal.yml`, is on file as a whole. And every object in `samples/` is one
//! of those documents.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use rke_operator::{
    catalog::Catalogue,
    config::{Intent, Resolved, RkeConfig, SecretSources},
    desired::{
        Chart, Desired,
        pki::{self, PkiContext, Seed},
    },
    etcd::{EtcdView, ExternalView},
    facts::{Actual, HostView},
    model::ContainerSpec,
    plan::{self, Plan, title},
};

pub(crate) use crate::any_file::AnyFile;
use crate::{differences, sim::bare_host};

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

/// What an intent asks for on nodes that nobody has touched, and those nodes.
pub(crate) fn drawn(intent: &Intent) -> (Desired, Actual) {
    let context = PkiContext {
        now: "2026-11-21T12:00:00Z".parse().expect("a time"),
        seed: Seed::new([7; 32]),
        recover: None,
        accept_etcd: None,
        rotate: None,
        rotate_key: false,
        service_account_key: None,
        authorities: None,
        restore: None,
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

/// What a document asks for.
struct Asked {
    intent: BTreeSet<String>,
    warnings: Vec<String>,
    /// By node, and by container.
    containers: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// Stage and title of each step.
    steps: BTreeSet<String>,
    plan: Plan,
    charts: Vec<serde_json::Value>,
}

impl Asked {
    fn of(path: &Path) -> Self {
        let Resolved { intent, warnings } = resolve(path);
        let (want, have) = drawn(&intent);
        let plan = plan::up(&want, &have).expect("a plan");
        assert_eq!(plan::check(&plan, &have, &want.cluster_id), vec![]);
        let steps = plan.stages.iter().flat_map(|stage| {
            stage
                .steps()
                .map(|step| released(&format!("{}: {}", stage.name, title(step)), &intent))
        });
        // `tests/charts/render.py` renders the real charts with these.
        let charts = want.charts.iter().map(|want| {
            let Chart { name, chart, namespace, crds, values } = &want.chart;
            serde_json::json!({"name": name, "chart": chart, "namespace": namespace, "crds": crds, "values": values})
        });
        let containers = want.hosts.iter().map(|(node, host)| {
            let of_node = host.containers.iter();
            let of_node = of_node.map(|(name, spec)| (name.to_string(), lines(spec, &intent)));
            (node.to_string(), of_node.collect())
        });
        Self {
            intent: fields(&intent),
            warnings: warnings.iter().map(ToString::to_string).collect(),
            containers: containers.collect(),
            steps: steps.collect(),
            charts: charts.collect(),
            plan,
        }
    }
}

/// The fields of an intent, its nodes' together. Its images are in the plan.
fn fields(intent: &Intent) -> BTreeSet<String> {
    let found = differences::of_debug(intent).into_iter();
    let default = |line: &str| !intent.version_given && line.starts_with("version.");
    let found = found.filter(|line| !line.starts_with("images.") && !default(line));
    found
        .map(|line| without_names(&line, intent).replacen("nodes.NODE.", "nodes.", 1))
        .collect()
}

/// `NODE` for the names and addresses of the nodes, which differ in each document.
fn without_names(line: &str, intent: &Intent) -> String {
    let nodes = intent.nodes.iter().flat_map(|(name, node)| {
        let address = node.endpoint.address.clone();
        [name.0.clone(), address, node.internal_address.to_string()]
    });
    let mut names: Vec<_> = nodes
        .flat_map(|name| [name.replace('.', "-"), name])
        .collect();
    // A name may be the beginning of another.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names.into_iter().fold(line.to_owned(), |line, name| {
        let mut parts = line.split(&name);
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let whole = !part.starts_with(|c: char| c.is_ascii_alphanumeric());
            text.push_str(if whole { "NODE" } else { &name });
            text.push_str(part);
        }
        text
    })
}

/// The lines of a container. Digests, of files and of variables, tell a reader nothing.
fn lines(spec: &ContainerSpec, intent: &Intent) -> BTreeSet<String> {
    let found = differences::of_json(&serde_json::to_value(spec).expect("a container"));
    let found = found
        .iter()
        .filter(|line| !(line.starts_with("files.") || line.starts_with("certificates.")));
    let plain = |line: &String| match line.split_once('#') {
        Some((variable, _)) if line.starts_with("env ") => format!("{variable}\""),
        Some(_) | None => line.clone(),
    };
    found
        .map(|line| released(&without_names(&plain(line), intent), intent))
        .collect()
}

/// How the containers differ from those of the smallest document; nodes that do not differ from one another are named
/// together.
fn of_containers(base: &Asked, asked: &Asked) -> String {
    let all = base.containers.values().next().expect("a node");
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (node, containers) in &asked.containers {
        let names: Vec<_> = containers.keys().map(String::as_str).collect();
        let mut text = format!("{}\n", names.join(", "));
        for (name, now) in containers {
            let before = all.get(name).cloned().unwrap_or_default();
            for line in differences::between(&before, now) {
                let (sign, line) = line.split_at(1);
                let _ = writeln!(text, "  {sign} {name}:{line}");
            }
        }
        found.entry(text).or_default().push(node);
    }
    let mut found: Vec<_> = found
        .into_iter()
        .map(|(text, nodes)| (nodes, text))
        .collect();
    found.sort();
    let found = found
        .iter()
        .map(|(nodes, text)| format!("{}: {text}", nodes.join(", ")));
    found.collect()
}

/// Images of the document's release by what they are: another release changes `minimal.yml`'s plan only.
pub(crate) fn released(text: &str, intent: &Intent) -> String {
    let catalogue = Catalogue::builtin().expect("a catalogue");
    let images = catalogue.images(intent.version);
    let images = serde_json::to_value(images.expect("its images")).expect("JSON");
    let images = images.as_object().expect("by name").iter();
    let images = images.filter_map(|(name, image)| Some((name, image.as_str()?)));
    let text = images.fold(text.to_owned(), |text, (name, image)| {
        text.replace(image, &format!("<{name}>"))
    });
    if intent.version_given {
        return text;
    }
    text.replace(&intent.version.to_string(), "<version>")
}

#[test]
fn every_document_asks_for_what_is_on_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rkespec");
    let base = Asked::of(&folder.join("minimal.yml"));
    let defaults = Asked::of(&folder.join("rke-defaults.yml"));
    insta::glob!("../../rkespec", "*.yml", |path| {
        let asked = Asked::of(path);
        let of_defaults = asked.charts == defaults.charts && !path.ends_with("rke-defaults.yml");
        if !asked.charts.is_empty() && !of_defaults {
            insta::assert_json_snapshot!("charts", asked.charts);
        }
        if path.ends_with("minimal.yml") {
            let intent: Vec<_> = asked.intent.iter().map(String::as_str).collect();
            let warnings = asked.warnings.join("\n");
            insta::assert_snapshot!("intent", format!("{}\n\n{warnings}", intent.join("\n")));
            insta::assert_snapshot!("plan", plan::render(&asked.plan));
            return;
        }
        let intent = differences::between(&base.intent, &asked.intent).join("\n");
        let warnings = asked
            .warnings
            .iter()
            .filter(|text| !base.warnings.contains(text));
        let warnings: Vec<_> = warnings.map(|text| format!("warning: {text}")).collect();
        let steps = differences::between(&base.steps, &asked.steps).join("\n");
        let text = format!(
            "intent\n{intent}\n{}\n\ncontainers\n{}\nplan\n{steps}",
            warnings.join("\n"),
            of_containers(&base, &asked),
        );
        insta::with_settings!({filters => [(r"\b(custom-)[0-9a-f]{32}\b", "$1<digest>")]}, {
            insta::assert_snapshot!("document", text);
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

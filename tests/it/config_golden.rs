//! Every document in `rkespec/` gives the intent that is on file, and every object in `samples/`
//! is one of those documents.

use std::{fs, path::Path};

use rke_operator::config::{Intent, Refusal, Resolved, RkeConfig, SecretSources, Sources, SshKey};

/// Every path leads to one key, made for this run.
struct AnyFile(String);

impl AnyFile {
    fn new() -> Self {
        Self(
            rcgen::KeyPair::generate()
                .expect("a key pair")
                .serialize_pem(),
        )
    }
}

impl Sources for AnyFile {
    fn key_at(&self, path: &str) -> Result<SshKey, Refusal> {
        Ok(SshKey {
            pem: self.0.clone().into(),
            source: path.to_owned(),
        })
    }

    fn default_key_path(&self) -> &'static str {
        "ssh_key_path"
    }

    fn default_key(&self) -> Result<SshKey, Refusal> {
        self.key_at("~/.ssh/id_rsa")
    }

    fn allows_inline_key(&self) -> Result<(), Refusal> {
        Ok(())
    }
}

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
        let Resolved { intent, warnings } = resolve(path);
        let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        insta::assert_debug_snapshot!((intent, warnings));
    });
}

#[test]
fn no_document_holds_a_key() {
    for folder in ["rkespec", "samples"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
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
        let Some(name) = name.strip_prefix("cluster-") else {
            continue;
        };
        let text = fs::read_to_string(&sample).expect("a sample");
        let object: serde_json::Value = serde_saphyr::from_str(&text).expect("an object");
        let spec = &object["spec"];
        let key = AnyFile::new();
        let secret = spec["ssh"]["keySecretRef"]["name"]
            .as_str()
            .expect("a Secret's name");
        let sources = SecretSources::new(secret, key.0.clone().into());
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
}

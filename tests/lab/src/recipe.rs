//! A recipe: how one image is made, and what decides that it is made anew.
//!
//! It is a folder of `images/` with `recipe.yml` and a script. Another version of a program is made
//! by the same recipe with files of its own laid over it (`images/releases/`). It knows nothing of
//! which images there have to be.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read, Write},
    iter,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Instant,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    Image, LABEL, LabError, Suite,
    cache::{self, make_dir},
    command::Run,
    image::Archive,
};

/// Part of every key: raised when the packing below changes.
const FORMAT: &str = "1";

/// The time of every file in a layer (2026-01-01), so that the same input gives the same image.
const TIME: &str = "@1767225600";

/// What scripts of several recipes source.
const SHARED: [&str; 3] = ["busybox.sh", "debian.sh", "ldflags.sh"];

/// How a container of an image is started, as far as a recipe says.
type Config = BTreeMap<String, serde_json::Value>;

/// An image of a recipe's files that has names of its own and is started in another way.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    names: Vec<String>,
    #[serde(default)]
    config: Config,
}

/// What a folder of `images/` says about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    pub(crate) program: String,
    pub(crate) version: String,
    pub(crate) names: Vec<String>,
    #[serde(default)]
    config: Config,
    /// Other images of the same files.
    #[serde(default)]
    variants: Vec<Variant>,
    /// A folder whose files take the place of the recipe's own.
    #[serde(skip)]
    over: Option<PathBuf>,
    /// The release of Debian that it stands on, where the recipe is not for that one.
    #[serde(skip)]
    suite: Option<Suite>,
}

/// The folder of the recipes: beside this crate's source.
pub(crate) fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("images")
}

impl Recipe {
    /// The recipe of a program.
    pub(crate) fn of(program: &str) -> Result<Self, LabError> {
        let path = recipes().join(program).join("recipe.yml");
        serde_saphyr::from_str(&cache::read(&path)?).map_err(|e| LabError::Content {
            path,
            why: e.to_string(),
        })
    }

    /// The same program in another version, which has a published name of its own; its files are
    /// laid over the recipe's.
    pub(crate) fn versioned(self, version: String, name: String, over: Option<PathBuf>) -> Self {
        Self {
            version,
            names: vec![name],
            over,
            ..self
        }
    }

    /// The same on another release of Debian: an image of its own.
    pub(crate) fn on(self, suite: Suite) -> Self {
        if suite == Suite::default() {
            return self;
        }
        Self {
            version: suite.version().to_owned(),
            suite: Some(suite),
            ..self
        }
    }

    /// The names of its image and of the variants of it.
    #[cfg(test)]
    pub(crate) fn all_names(&self) -> Vec<String> {
        let variants = self.variants.iter().flat_map(|variant| &variant.names);
        self.names.iter().chain(variants).cloned().collect()
    }

    /// The image from the cache, or made now.
    pub(crate) fn image(
        &self,
        store: &Path,
        registry: Option<&str>,
        place: &str,
        log: &mut dyn Write,
    ) -> Result<Image, LabError> {
        let key = match registry {
            Some(host) => hash(&[FORMAT, host, &self.names.join(" ")]),
            None => self.key()?,
        };
        make_dir(store)?;
        let dir = store.join(format!("{}-{key}", self.program));
        // Two labs may want the same image: the second waits here and then finds it made.
        let _lock = cache::lock_in(store, &self.program)?;
        if let Ok(kept) = Self::kept(&dir) {
            return Ok(kept);
        }
        let verb = if registry.is_some() { "pulls " } else { "" };
        let told = |e| LabError::File {
            what: "cannot write",
            path: "the log".into(),
            source: e,
        };
        write!(log, "{place} {verb}{} {} …", self.program, self.version).map_err(told)?;
        log.flush().map_err(told)?;
        let begun = Instant::now();

        let work = store.join(format!(".{}-making", self.program));
        cache::remove_dir(&work)?;
        make_dir(&work.join("image"))?;
        match registry {
            Some(host) => self.pull(host, &key, &work)?,
            None => self.build(&key, &work, &store.join(format!("{}.log", self.program)))?,
        }
        fs::rename(work.join("image"), &dir).map_err(LabError::file("cannot rename to", &dir))?;
        cache::remove_dir(&work)?;
        writeln!(log, " {} s", begun.elapsed().as_secs()).map_err(told)?;
        Self::kept(&dir)
    }

    /// What the cache has there.
    fn kept(dir: &Path) -> Result<Image, LabError> {
        let path = dir.join("image.json");
        let mut image: Image =
            serde_json::from_str(&cache::read(&path)?).map_err(|e| LabError::Content {
                path,
                why: e.to_string(),
            })?;
        dir.clone_into(&mut image.dir);
        Ok(image)
    }

    /// The hash of everything that goes into the image: the recipe's files, with those that its
    /// script sources and those that are laid over it.
    pub(crate) fn key(&self) -> Result<String, LabError> {
        let dir = recipes().join(&self.program);
        let mut files = Vec::new();
        collect(&dir, &mut files)?;
        if let Some(over) = &self.over {
            collect(over, &mut files)?;
        }
        let script = cache::read(&dir.join("build.sh"))?;
        files.extend(
            SHARED
                .into_iter()
                .filter(|name| script.contains(name))
                .map(|name| recipes().join(name)),
        );
        files.sort();
        let mut parts = vec![FORMAT.to_owned(), TIME.to_owned()];
        for file in files {
            let mut content = Vec::new();
            let mut reader = File::open(&file).map_err(LabError::file("cannot read", &file))?;
            let mode = reader
                .metadata()
                .map_err(LabError::file("cannot read", &file))?;
            reader
                .read_to_end(&mut content)
                .map_err(LabError::file("cannot read", &file))?;
            let name = file
                .strip_prefix(recipes())
                .unwrap_or(&file)
                .display()
                .to_string();
            let executable = mode.permissions().mode() & 0o100 != 0;
            parts.push(format!(
                "{name} {executable} {}",
                hex::encode(Sha256::digest(&content))
            ));
        }
        if self.over.is_some() {
            parts.push(format!("{} {}", self.version, self.names.join(" ")));
        }
        if let Some(suite) = self.suite {
            parts.push(suite.name().to_owned());
        }
        Ok(hash(&parts))
    }

    /// Runs the recipe's script and packs what it made.
    fn build(&self, key: &str, work: &Path, log: &Path) -> Result<(), LabError> {
        let (rootfs, image) = (work.join("rootfs"), work.join("image"));
        let source = match &self.over {
            Some(over) => self.laid_over(over, work)?,
            None => recipes().join(&self.program),
        };
        Run::new(
            format!(
                "cannot build {} (all of it in {})",
                self.program,
                log.display()
            ),
            "sh",
        )
        .arg("build.sh")
        .arg(&rootfs)
        .dir(&source)
        .env("VERSION", &self.version)
        .env("GOFLAGS", "-mod=readonly -trimpath -buildvcs=false")
        .env("GOWORK", "off")
        .env("SUITE", self.suite.unwrap_or_default().name())
        .logged(log)?;
        let layer = image.join("layer.tar");
        Run::new(format!("cannot pack {}", self.program), "tar")
            .args(["--sort=name", "--numeric-owner", "--format=gnu"])
            .arg(format!("--mtime={TIME}"))
            .arg("-cf")
            .arg(&layer)
            .arg("-C")
            .arg(&rootfs)
            .arg(".")
            .done()?;
        let digest = digest(&layer)?;
        let tags = if self.names.is_empty() {
            vec![format!("rke-lab-{}:{key}", self.program)]
        } else {
            self.names.clone()
        };
        let mut entries = Vec::new();
        let variants = self
            .variants
            .iter()
            .map(|variant| (&variant.config, variant.names.clone()));
        for (config, repo_tags) in iter::once((&self.config, tags)).chain(variants) {
            let text = self.image_config(config, key, &digest).to_string();
            let config = format!("{}.json", hex::encode(Sha256::digest(&text)));
            cache::write(&image.join(&config), text)?;
            entries.push(Archive {
                config,
                repo_tags,
                layers: vec!["layer.tar".to_owned()],
            });
        }
        self.finish(key, &entries, &image)
    }

    /// A copy of the recipe with other files in the place of its own, beside what its script sources.
    fn laid_over(&self, over: &Path, work: &Path) -> Result<PathBuf, LabError> {
        let (all, source) = (work.join("source"), work.join("source").join(&self.program));
        make_dir(&all)?;
        for shared in SHARED {
            let (from, to) = (recipes().join(shared), all.join(shared));
            fs::copy(from, &to).map_err(LabError::file("cannot copy to", &to))?;
        }
        for from in [&recipes().join(&self.program), over] {
            Run::new("cannot copy the recipe", "cp")
                .args(["--recursive", "--preserve=mode"])
                .arg("--no-target-directory")
                .args([from, &source])
                .done()?;
        }
        Ok(source)
    }

    /// An image's configuration, as Docker and OCI have it.
    fn image_config(&self, own: &Config, key: &str, layer_digest: &str) -> serde_json::Value {
        let mut config = serde_json::Map::new();
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        config.insert(
            "Env".to_owned(),
            serde_json::json!([format!("PATH={path}")]),
        );
        for (name, value) in own {
            let mut value = value.clone();
            if let (Some(all), Some(more)) = (
                config.get_mut(name).and_then(|v| v.as_array_mut()),
                value.as_array_mut(),
            ) {
                all.append(more);
            } else {
                config.insert(name.clone(), value);
            }
        }
        let mut labels = serde_json::Map::new();
        labels.insert(format!("{LABEL}.program"), self.program.clone().into());
        labels.insert(format!("{LABEL}.version"), self.version.clone().into());
        labels.insert(format!("{LABEL}.key"), key.into());
        config.insert("Labels".to_owned(), labels.into());
        serde_json::json!({
            "architecture": architecture(),
            "os": "linux",
            "created": "2026-01-01T00:00:00Z",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
            "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "rke-operator lab"}],
        })
    }

    /// Takes the image from a registry instead, by the machine's Docker. What that has under the
    /// published names stays as it is.
    fn pull(&self, host: &str, key: &str, work: &Path) -> Result<(), LabError> {
        let (archive, image) = (work.join("archive.tar"), work.join("image"));
        let there = format!("{host}/{}", self.names[0]);
        Run::docker(format!("cannot pull {there} (LAB_REGISTRY is {host})"))
            .args(["pull", "--quiet", &there])
            .done()?;
        Run::docker("cannot save the image")
            .args(["save", "--output"])
            .arg(&archive)
            .arg(&there)
            .done()?;
        Run::docker("cannot forget the image")
            .args(["rmi", &there])
            .done()?;
        Run::new("cannot unpack the image", "tar")
            .arg("-xf")
            .arg(&archive)
            .arg("-C")
            .arg(&image)
            .done()?;
        let unfinished = Image {
            dir: image.clone(),
            ..self.described(key)
        };
        let entry = Archive {
            repo_tags: self.names.clone(),
            ..unfinished.archive()?
        };
        let version = unfinished.config()?["Labels"][format!("{LABEL}.version")]
            .as_str()
            .unwrap_or("as published")
            .to_owned();
        Self {
            version,
            ..self.clone()
        }
        .finish(key, &[entry], &image)
    }

    fn described(&self, key: &str) -> Image {
        Image {
            program: self.program.clone(),
            version: self.version.clone(),
            names: self.names.clone(),
            key: key.to_owned(),
            dir: PathBuf::new(),
        }
    }

    /// Writes what makes a folder an image of the lab.
    fn finish(&self, key: &str, entries: &[Archive], image: &Path) -> Result<(), LabError> {
        cache::write(
            &image.join("manifest.json"),
            serde_json::json!(entries).to_string(),
        )?;
        let described = serde_json::json!(self.described(key)).to_string();
        cache::write(&image.join("image.json"), described)
    }
}

/// The machine's architecture in the words of container images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// All files below a folder.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), LabError> {
    for entry in fs::read_dir(dir).map_err(LabError::file("cannot list", dir))? {
        let path = entry.map_err(LabError::file("cannot list", dir))?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// A short hash of some texts.
fn hash<S: AsRef<str>>(parts: &[S]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_ref());
        hash.update([0]);
    }
    hex::encode(hash.finalize())[..12].to_owned()
}

/// The SHA-256 of a file, in hexadecimal.
pub(crate) fn digest(path: &Path) -> Result<String, LabError> {
    let mut file = File::open(path).map_err(LabError::file("cannot read", path))?;
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash).map_err(LabError::file("cannot read", path))?;
    Ok(hex::encode(hash.finalize()))
}

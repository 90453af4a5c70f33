//! The images: built from source under the names of the published ones, and kept.
//!
//! A recipe is a folder of `images/` with `recipe.yml` and a script that makes a root file system;
//! the lab packs that as one layer with fixed owners, order and times. What is kept has the hash of
//! the recipe in its name, so an edit builds anew and a cut build is never taken as whole. With
//! `LAB_REGISTRY` set the published images are pulled instead, and only the lab's own are built.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Instant,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    LABEL, LabError,
    cache::{self, make_dir},
    command::Run,
};

/// Recipes in the order in which they are built: what a first node needs comes first.
const RECIPES: [&str; 9] = [
    "node",
    "registry",
    "pause",
    "etcd",
    "cni-plugins",
    "nginx",
    "kubernetes",
    "coredns",
    "flannel",
];

/// A recipe that is built when it is asked for: only the benchmark does.
const KUBEADM: &str = "kubeadm";

/// Part of every key: raised when the packing below changes.
const FORMAT: &str = "1";

/// The time of every file in a layer (2026-01-01), so that the same input gives the same image.
const TIME: &str = "@1767225600";

/// What a folder of `images/` says about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    program: String,
    version: String,
    names: Vec<String>,
    #[serde(default)]
    config: BTreeMap<String, serde_json::Value>,
}

/// An image in the cache: a folder with what `docker save` would write into an archive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Image {
    /// The program it carries, which is its folder's name in `images/`.
    pub program: String,
    /// The version that is really in it, whatever its names say.
    pub version: String,
    /// The published names it bears; none for the lab's own images.
    pub names: Vec<String>,
    /// The hash of what it was made from.
    pub key: String,
    /// Its folder in the cache.
    #[serde(skip)]
    pub dir: PathBuf,
}

/// All images of the lab.
#[derive(Debug, Clone)]
pub struct Images(Vec<Image>);

/// Where images come from and where they are kept.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    registry: Option<String>,
}

/// One entry of an archive's `manifest.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Archive {
    pub(crate) config: String,
    pub(crate) repo_tags: Vec<String>,
    pub(crate) layers: Vec<String>,
}

impl Images {
    /// The images of the product: those with published names.
    pub fn published(&self) -> impl Iterator<Item = &Image> {
        self.0.iter().filter(|image| !image.names.is_empty())
    }

    /// All images, the lab's own too.
    pub fn all(&self) -> &[Image] {
        &self.0
    }

    /// Removes every other image from the folder that these are kept in, and what no node uses of
    /// the lab's own images from the machine's Docker; gives the folders' names.
    pub fn prune(&self) -> Result<Vec<String>, LabError> {
        let mut gone = Vec::new();
        let Some(store) = self.0.first().and_then(|image| image.dir.parent()) else {
            return Ok(gone);
        };
        for entry in fs::read_dir(store).map_err(LabError::file("cannot list", store))? {
            let path = entry.map_err(LabError::file("cannot list", store))?.path();
            let is_one = path.join("image.json").exists();
            let kubeadm = Recipe::read(&recipes().join(KUBEADM))?;
            let rare = store.join(format!("{KUBEADM}-{}", kubeadm.key()?));
            if is_one && path != rare && self.0.iter().all(|image| image.dir != path) {
                cache::remove_dir(&path)?;
                gone.push(
                    path.file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned(),
                );
            }
        }
        for image in self.0.iter().filter(|image| image.names.is_empty()) {
            let loaded = Run::docker("cannot list images")
                .args(["image", "ls", "--format", "{{.Repository}}:{{.Tag}}"])
                .arg(format!("rke-lab-{}", image.program))
                .text()?;
            for name in loaded.lines().filter(|name| *name != image.own_name()) {
                // One that a node of another checkout uses stays.
                Run::docker("cannot remove an image")
                    .args(["image", "rm", name])
                    .output()?;
            }
        }
        Ok(gone)
    }

    /// The image of that program.
    pub fn program(&self, program: &str) -> Result<&Image, LabError> {
        self.0
            .iter()
            .find(|image| image.program == program)
            .ok_or_else(|| LabError::Refused(format!("the lab has no image of {program:?}")))
    }
}

impl Image {
    /// The name it has in the machine's Docker if it is one of the lab's own.
    pub(crate) fn own_name(&self) -> String {
        format!("rke-lab-{}:{}", self.program, self.key)
    }

    /// The archive's only entry.
    pub(crate) fn archive(&self) -> Result<Archive, LabError> {
        let path = self.dir.join("manifest.json");
        let understood = |why: String| LabError::Content {
            path: path.clone(),
            why,
        };
        let entries: Vec<Archive> =
            serde_json::from_str(&cache::read(&path)?).map_err(|e| understood(e.to_string()))?;
        entries
            .into_iter()
            .next()
            .ok_or_else(|| understood("it has no image".to_owned()))
    }

    /// A command that writes the image as an archive, as `docker load` and `ctr import` take it.
    /// tar ends with 1 when a file's times change under it: another lab's registry links to these
    /// files, which never change in content.
    pub(crate) fn archived(&self) -> Run {
        Run::new(format!("cannot read the image of {}", self.program), "sh")
            .arg("-c")
            .arg(r#"tar -c -C "$0" --exclude=./image.json --exclude='*.sha256' . || [ $? -eq 1 ]"#)
            .arg(&self.dir)
    }

    /// Every file in the image with its path, folders excluded, sorted.
    pub fn files(&self) -> Result<Vec<String>, LabError> {
        let mut files = Vec::new();
        for layer in self.archive()?.layers {
            let list = Run::new("cannot list the image's files", "tar")
                .arg("-tf")
                .arg(self.dir.join(layer))
                .text()?;
            files.extend(
                list.lines()
                    .filter(|line| !line.ends_with('/'))
                    .map(|line| line.trim_start_matches('.').to_owned()),
            );
        }
        files.sort();
        Ok(files)
    }

    /// What the image's configuration says, as `docker image inspect` shows it under `Config`.
    pub fn config(&self) -> Result<serde_json::Value, LabError> {
        let path = self.dir.join(self.archive()?.config);
        let config: serde_json::Value =
            serde_json::from_str(&cache::read(&path)?).map_err(|e| LabError::Content {
                path,
                why: e.to_string(),
            })?;
        Ok(config["config"].clone())
    }

    /// Puts one of the lab's own images into the machine's Docker, if it is not there.
    pub(crate) fn load_here(&self) -> Result<(), LabError> {
        let _lock = cache::lock(&format!("load-{}", self.program))?;
        let name = self.own_name();
        let there = Run::docker("cannot look for the image").args(["image", "inspect", &name]);
        if there.output()?.ok() {
            return Ok(());
        }
        Run::docker(format!("cannot load the image of {}", self.program))
            .args(["load", "--quiet"])
            .fed_by(self.archived())
            .map(drop)
    }
}

/// The folder of the recipes: beside this crate's source.
fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("images")
}

/// Gives all images, as the environment says: see [`Store::images`].
pub fn images(log: &mut dyn Write) -> Result<Images, LabError> {
    Store::from_environment().images(log)
}

impl Store {
    /// The lab's cache, and the registry that `LAB_REGISTRY` names if it does.
    pub fn from_environment() -> Self {
        Self {
            root: cache::root(),
            registry: cache::source_registry(),
        }
    }

    /// A store of one's own. The published images come from that registry, or are built.
    pub fn new(root: &Path, registry: Option<&str>) -> Self {
        Self {
            root: root.to_owned(),
            registry: registry.map(str::to_owned),
        }
    }

    /// Gives all images, building or pulling those that the store does not have; tells `log` which,
    /// how many of how many, and how long each took.
    pub fn images(&self, log: &mut dyn Write) -> Result<Images, LabError> {
        let place = |index: usize| format!("[{}/{}]", index + 1, RECIPES.len());
        RECIPES
            .iter()
            .enumerate()
            .map(|(index, program)| self.numbered(program, &place(index), log))
            .collect::<Result<_, _>>()
            .map(Images)
    }

    /// Gives the image of one program in the same way.
    pub fn image(&self, program: &str, log: &mut dyn Write) -> Result<Image, LabError> {
        self.numbered(program, "[1/1]", log)
    }

    fn numbered(&self, program: &str, place: &str, log: &mut dyn Write) -> Result<Image, LabError> {
        let recipe = Recipe::read(&recipes().join(program))?;
        let registry = self
            .registry
            .as_deref()
            .filter(|_| !recipe.names.is_empty());
        recipe.image(&self.root.join("images"), registry, place, log)
    }
}

/// The path of a `kubectl` that runs on this machine: the one in the Kubernetes image.
pub fn kubectl() -> Result<PathBuf, LabError> {
    let images = images(&mut std::io::sink())?;
    program_of(images.program("kubernetes")?, "kubectl")
}

/// The path of a `kubeadm` that runs on this machine, built from the modules of the same Kubernetes
/// if the cache has none.
pub fn kubeadm(log: &mut dyn Write) -> Result<PathBuf, LabError> {
    let image = Store::from_environment().image(KUBEADM, log)?;
    program_of(&image, KUBEADM)
}

/// The path of an `etcd` that runs on this machine: of the image `etcd`, which nodes run, or of
/// `etcd-3.5`, which is made when a test asks for it.
pub fn etcd(program: &str, log: &mut dyn Write) -> Result<PathBuf, LabError> {
    let image = Store::from_environment().image(program, log)?;
    program_of(&image, "etcd")
}

/// A program of an image's `/usr/local/bin`, taken out of it.
fn program_of(image: &Image, name: &str) -> Result<PathBuf, LabError> {
    let dir = cache::root().join("bin").join(&image.key);
    let path = dir.join(name);
    let _lock = cache::lock(name)?;
    if path.exists() {
        return Ok(path);
    }
    // Of Kubernetes all six names are one file, and which of them is the file and which are links to
    // it is the archive's business; so the folder is taken out as a whole.
    let work = dir.join("work");
    cache::remove_dir(&work)?;
    make_dir(&work)?;
    for layer in image.archive()?.layers {
        let take = Run::new("cannot take a program out of its image", "tar")
            .args(["--wildcards", "-C"])
            .arg(&work)
            .arg("-xf")
            .arg(image.dir.join(layer))
            .arg("*usr/local/bin/*");
        let found = work.join("usr/local/bin").join(name);
        if take.output()?.ok() && found.exists() {
            fs::rename(&found, &path).map_err(LabError::file("cannot rename to", &path))?;
            cache::remove_dir(&work)?;
            return Ok(path);
        }
    }
    Err(LabError::Refused(format!(
        "the image of {} has no /usr/local/bin/{name}",
        image.program
    )))
}

impl Recipe {
    fn read(dir: &Path) -> Result<Self, LabError> {
        let path = dir.join("recipe.yml");
        serde_saphyr::from_str(&cache::read(&path)?).map_err(|e| LabError::Content {
            path,
            why: e.to_string(),
        })
    }

    /// The image from the cache, or made now.
    fn image(
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
    /// script sources.
    fn key(&self) -> Result<String, LabError> {
        let dir = recipes().join(&self.program);
        let mut files = Vec::new();
        collect(&dir, &mut files)?;
        let script = cache::read(&dir.join("build.sh"))?;
        let shared = ["busybox.sh", "debian.sh"].into_iter();
        files.extend(
            shared
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
        Ok(hash(&parts))
    }

    /// Runs the recipe's script and packs what it made.
    fn build(&self, key: &str, work: &Path, log: &Path) -> Result<(), LabError> {
        let (rootfs, image) = (work.join("rootfs"), work.join("image"));
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
        .dir(&recipes().join(&self.program))
        .env("VERSION", &self.version)
        .env("GOFLAGS", "-mod=readonly -trimpath -buildvcs=false")
        .env("GOWORK", "off")
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
        let config = self.image_config(key, &digest);
        let text = config.to_string();
        let config_name = format!("{}.json", hex::encode(Sha256::digest(&text)));
        cache::write(&image.join(&config_name), text)?;
        let tags = if self.names.is_empty() {
            vec![format!("rke-lab-{}:{key}", self.program)]
        } else {
            self.names.clone()
        };
        let entry = Archive {
            config: config_name,
            repo_tags: tags,
            layers: vec!["layer.tar".to_owned()],
        };
        self.finish(key, &entry, &image)
    }

    /// The image's configuration, as Docker and OCI have it.
    fn image_config(&self, key: &str, layer_digest: &str) -> serde_json::Value {
        let mut config = serde_json::Map::new();
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        config.insert(
            "Env".to_owned(),
            serde_json::json!([format!("PATH={path}")]),
        );
        for (name, value) in &self.config {
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
        .finish(key, &entry, &image)
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
    fn finish(&self, key: &str, entry: &Archive, image: &Path) -> Result<(), LabError> {
        cache::write(
            &image.join("manifest.json"),
            serde_json::json!([entry]).to_string(),
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

//! The images: built from source under the names of the published ones, and kept.
//!
//! A recipe's script makes a root file system, and the lab packs that as one layer with fixed
//! owners, order and times. What is kept has the hash of the recipe in its name, so an edit builds
//! anew and a cut build is never taken as whole. With `LAB_REGISTRY` set the published images are
//! pulled instead, and only the lab's own are built.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    LabError, Suite,
    cache::{self, make_dir},
    command::Run,
    e2e,
    recipe::Recipe,
    release,
};

/// Recipes in the order in which they are built: what a first node needs comes first.
const RECIPES: [&str; 13] = [
    "node",
    "registry",
    "pause",
    "etcd",
    "etcd-tools",
    "cni-plugins",
    "nginx",
    "kubernetes",
    "coredns",
    "flannel",
    "metrics-server",
    "helm",
    "runtime",
];

/// Recipes that are built on demand: for the benchmark, for nodes with their own containerd, for a bucket, and for a pod of
/// people's own. Those of Kubernetes' own tests are in [`e2e`].
const KUBEADM: &str = "kubeadm";
pub(crate) const CONTAINERD: &str = "containerd";
pub(crate) const S3: &str = "s3";
const OLD_CLIENT: &str = "old-client";

/// The recipe of nodes, of which there is an image for each release of Debian.
pub(crate) const NODE: &str = "node";

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
pub struct Images(pub(crate) Vec<Image>);

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
        let rare = rare()?;
        for entry in fs::read_dir(store).map_err(LabError::file("cannot list", store))? {
            let path = entry.map_err(LabError::file("cannot list", store))?.path();
            let is_one = path.join("image.json").exists();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_rare = rare.iter().any(|rare| *rare == name);
            if is_one && !is_rare && self.0.iter().all(|image| image.dir != path) {
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

    /// The archive's entries: the image, and others of the same files.
    fn archives(&self) -> Result<Vec<Archive>, LabError> {
        let path = self.dir.join("manifest.json");
        serde_json::from_str(&cache::read(&path)?).map_err(|e| LabError::Content {
            path,
            why: e.to_string(),
        })
    }

    /// The archive's first entry.
    pub(crate) fn archive(&self) -> Result<Archive, LabError> {
        let first = self.archives()?.into_iter().next();
        first.ok_or_else(|| LabError::Content {
            path: self.dir.join("manifest.json"),
            why: "it has no image".to_owned(),
        })
    }

    /// Its entries under the names that a registry shall have. A release may give the image other
    /// names than its recipe; those of the others are the recipe's.
    pub(crate) fn named(&self) -> Result<Vec<Archive>, LabError> {
        let mut entries = self.archives()?;
        if let Some(first) = entries.first_mut() {
            first.repo_tags.clone_from(&self.names);
        }
        Ok(entries)
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

    /// Gives the image of nodes that run that release of Debian in the same way.
    pub(crate) fn node(&self, suite: Suite, log: &mut dyn Write) -> Result<Image, LabError> {
        self.made(&Recipe::of(NODE)?.on(suite), suite.name(), log)
    }

    fn numbered(&self, program: &str, place: &str, log: &mut dyn Write) -> Result<Image, LabError> {
        self.made(&Recipe::of(program)?, place, log)
    }

    /// The image of a recipe, from the cache, the registry or the recipe's script.
    pub(crate) fn made(
        &self,
        recipe: &Recipe,
        place: &str,
        log: &mut dyn Write,
    ) -> Result<Image, LabError> {
        let registry = self
            .registry
            .as_deref()
            .filter(|_| !recipe.names.is_empty());
        recipe.image(&self.root.join("images"), registry, place, log)
    }

    /// The same store, whose images are built wherever others come from.
    pub(crate) fn that_builds(&self) -> Self {
        Self {
            registry: None,
            ..self.clone()
        }
    }

    /// Whether published images are pulled, and not built.
    pub(crate) fn pulls(&self) -> bool {
        self.registry.is_some()
    }
}

/// The path of a `kubectl` that runs on this machine: the one in the Kubernetes image.
pub fn kubectl() -> Result<PathBuf, LabError> {
    let images = images(&mut std::io::sink())?;
    program_of(images.program("kubernetes")?, "kubectl")
}

/// The path of a `kube-apiserver` that runs on this machine: the one in the Kubernetes image.
pub fn apiserver() -> Result<PathBuf, LabError> {
    let images = images(&mut std::io::sink())?;
    program_of(images.program("kubernetes")?, "kube-apiserver")
}

/// The path of a `kubeadm` that runs on this machine, built from the modules of the same Kubernetes
/// if the cache has none.
pub fn kubeadm(log: &mut dyn Write) -> Result<PathBuf, LabError> {
    let image = Store::from_environment().image(KUBEADM, log)?;
    program_of(&image, KUBEADM)
}

/// The path of an `etcd` that runs on this machine: the one of a release of Kubernetes, which is
/// made if the cache has none.
pub fn etcd(release: &str, log: &mut dyn Write) -> Result<PathBuf, LabError> {
    let image = Store::from_environment().image_of_release("etcd", release, log)?;
    program_of(&image, "etcd")
}

/// The path of a program of the image that has etcdutl, which runs on this machine.
pub fn etcd_tool(name: &str, log: &mut dyn Write) -> Result<PathBuf, LabError> {
    let image = Store::from_environment().image("etcd-tools", log)?;
    program_of(&image, name)
}

/// The path of a `helm` that runs on this machine: the one in the lab's image of it, which is built if the cache has
/// none.
pub fn helm(log: &mut dyn Write) -> Result<PathBuf, LabError> {
    let image = Store::from_environment().that_builds().image("helm", log)?;
    program_in(&image, "usr/bin", "helm")
}

/// The image of a program with an old client-go: in a pod, it asks the cluster's API all the while. It is built if the cache has
/// none.
pub fn old_client(log: &mut dyn Write) -> Result<Image, LabError> {
    Store::from_environment()
        .that_builds()
        .image(OLD_CLIENT, log)
}

/// The folders in the cache of images that are made when they are asked for.
fn rare() -> Result<Vec<String>, LabError> {
    let asked_for = [KUBEADM, CONTAINERD, S3, OLD_CLIENT]
        .into_iter()
        .chain(e2e::recipes());
    let nodes = Suite::ALL.map(|suite| Ok(Recipe::of(NODE)?.on(suite)));
    asked_for
        .map(Recipe::of)
        .chain(nodes)
        .chain(release::recipes()?.into_iter().map(Ok))
        .map(|recipe| {
            let recipe = recipe?;
            Ok(format!("{}-{}", recipe.program, recipe.key()?))
        })
        .collect()
}

/// A program of an image's `/usr/local/bin`, taken out of it.
pub(crate) fn program_of(image: &Image, name: &str) -> Result<PathBuf, LabError> {
    program_in(image, "usr/local/bin", name)
}

/// A program of that folder of an image, taken out of it.
fn program_in(image: &Image, folder: &str, name: &str) -> Result<PathBuf, LabError> {
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
            .arg(format!("*{folder}/*"));
        let found = work.join(folder).join(name);
        if take.output()?.ok() && found.exists() {
            fs::rename(&found, &path).map_err(LabError::file("cannot rename to", &path))?;
            cache::remove_dir(&work)?;
            return Ok(path);
        }
    }
    Err(LabError::Refused(format!(
        "the image of {} has no /{folder}/{name}",
        image.program
    )))
}

//! What the fake node remembers: containers, images, files.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeFile {
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) content: Vec<u8>,
    pub(crate) is_dir: bool,
}

impl NodeFile {
    /// A directory of root's.
    pub(crate) fn dir(mode: u32) -> Self {
        Self {
            mode,
            uid: 0,
            gid: 0,
            content: Vec::new(),
            is_dir: true,
        }
    }

    /// A file of root's.
    pub(crate) fn file(mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self {
            content: content.into(),
            is_dir: false,
            ..Self::dir(mode)
        }
    }
}

/// A container.
#[derive(Clone, Debug)]
pub(crate) struct FakeContainer {
    pub(crate) id: String,
    /// The request that made it.
    pub(crate) body: Value,
    /// Docker's word for its state.
    pub(crate) state: String,
    pub(crate) exit_code: i64,
    pub(crate) restarts: i64,
    pub(crate) log: String,
    /// Its own files, where no bind leads to the node's.
    pub(crate) files: BTreeMap<String, NodeFile>,
}

impl FakeContainer {
    /// A running container of somebody else.
    pub(crate) fn foreign(image: &str) -> Self {
        Self {
            id: format!("{:064x}", 0xf),
            body: json!({ "Image": image, "HostConfig": {} }),
            state: "running".to_owned(),
            exit_code: 0,
            restarts: 0,
            log: String::new(),
            files: BTreeMap::new(),
        }
    }

    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        serde_json::from_value(self.body["Labels"].clone()).unwrap_or_default()
    }

    pub(crate) fn image(&self) -> &str {
        self.body["Image"].as_str().unwrap_or_default()
    }

    pub(crate) fn binds(&self) -> Vec<(String, String)> {
        let binds: Vec<String> =
            serde_json::from_value(self.body["HostConfig"]["Binds"].clone()).unwrap_or_default();
        binds
            .iter()
            .filter_map(|bind| {
                let mut parts = bind.split(':');
                Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
            })
            .collect()
    }

    /// Where a path of the container is on the node, if a bind leads there.
    pub(crate) fn on_node(&self, path: &str) -> Option<String> {
        self.binds()
            .into_iter()
            .filter(|(_, target)| below(path, target))
            .max_by_key(|(_, target)| target.len())
            .map(|(source, target)| {
                let rest = &path[target.len()..];
                let source = source.trim_end_matches('/');
                format!("{source}{rest}")
            })
            .map(|path| {
                if path.is_empty() {
                    "/".to_owned()
                } else {
                    path
                }
            })
    }
}

/// True for the folder itself and everything in it.
pub(crate) fn below(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

type Work = Box<dyn FnMut(&str, &mut BTreeMap<String, NodeFile>) -> (i64, String) + Send>;

/// Docker and the node's files.
pub(crate) struct DockerState {
    pub(crate) containers: BTreeMap<String, FakeContainer>,
    /// Reference → size.
    pub(crate) images: BTreeMap<String, u64>,
    /// What `docker save` writes of an image, where that matters.
    pub(crate) archives: BTreeMap<String, Vec<u8>>,
    /// What can be pulled: reference → sizes of the layers.
    pub(crate) registry: BTreeMap<String, Vec<u64>>,
    /// The size of every other image, where the registry has all there are.
    pub(crate) has_every_image: Option<u64>,
    /// The node's files by absolute path.
    pub(crate) files: BTreeMap<String, NodeFile>,
    /// Merged into the answer of `/info`.
    pub(crate) info: Value,
    /// Does what the script of a one-off container does: exit code and log.
    pub(crate) work: Work,
    /// What happens to a file between our write and the disk.
    pub(crate) tamper: Option<fn(&mut NodeFile)>,
    /// Archives of the node's files end too early.
    pub(crate) cut_archives: bool,
    next_id: u64,
}

impl Default for DockerState {
    fn default() -> Self {
        let dirs = [
            "/etc", "/opt", "/var", "/var/lib", "/var/log", "/usr", "/run",
        ];
        Self {
            containers: BTreeMap::new(),
            images: BTreeMap::new(),
            archives: BTreeMap::new(),
            registry: BTreeMap::new(),
            has_every_image: None,
            files: dirs
                .into_iter()
                .map(|dir| (dir.to_owned(), NodeFile::dir(0o755)))
                .collect(),
            info: json!({
                "ServerVersion": super::docker::VERSION,
                "DockerRootDir": "/var/lib/docker",
                "CgroupDriver": "systemd",
                "CgroupVersion": "2",
                "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
                "LoggingDriver": "json-file",
                "DefaultRuntime": "runc",
                "Architecture": "x86_64",
                "HttpProxy": "", "HttpsProxy": "", "NoProxy": "",
            }),
            work: Box::new(|_, _| (0, String::new())),
            tamper: None,
            cut_archives: false,
            next_id: 0,
        }
    }
}

impl DockerState {
    pub(crate) fn new_id(&mut self) -> String {
        self.next_id += 1;
        format!("{:064x}", self.next_id)
    }

    /// By name, id or the beginning of an id.
    pub(crate) fn name_of(&self, key: &str) -> Option<String> {
        if self.containers.contains_key(key) {
            return Some(key.to_owned());
        }
        self.containers
            .iter()
            .find(|(_, container)| key.len() >= 12 && container.id.starts_with(key))
            .map(|(name, _)| name.clone())
    }

    /// What dockerd does when it mounts a container's binds: a source that is missing is made.
    pub(crate) fn mount(&mut self, name: &str) {
        let Some(container) = self.containers.get(name) else {
            return;
        };
        for (source, _) in container.binds() {
            make_dirs(&mut self.files, &source);
        }
    }

    /// The paths of the node's files and folders.
    pub(crate) fn paths(&self) -> BTreeSet<&str> {
        self.files.keys().map(String::as_str).collect()
    }
}

/// `mkdir -p`, root's, 0755.
pub(crate) fn make_dirs(files: &mut BTreeMap<String, NodeFile>, path: &str) {
    let mut at = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = format!("{at}/{part}");
        files
            .entry(at.clone())
            .or_insert_with(|| NodeFile::dir(0o755));
    }
}

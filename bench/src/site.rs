//! Nodes that have every image and nothing else, and a folder with a config for them.

#![expect(
    clippy::disallowed_methods,
    reason = "it writes the config of the nodes that it measures"
)]

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::{Images, Lab, LabSpec, Line, Node, Profile};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Fallible, shape::Shape};

/// Takes what makes a cluster off a node, and puts back what the node had in its place. What only a
/// restart ends (pods, links, rules, mounts) ends between the two parts.
const CLEAN: [&str; 2] = [
    "systemctl disable --quiet --now kubelet 2> /dev/null || true
     docker ps --all --quiet | xargs --no-run-if-empty docker rm --force --volumes > /dev/null",
    "for kind in tasks containers; do
         ctr --namespace k8s.io $kind list --quiet | xargs --no-run-if-empty ctr --namespace k8s.io $kind rm
     done
     rm -rf /etc/kubernetes /etc/cni /etc/containerd /etc/systemd/system /etc/modules-load.d \
         /etc/sysctl.d /opt/* /root/* /var/lib/cni /var/lib/etcd /var/lib/kubelet /var/log/pods \
         /var/log/containers /var/log/kube-audit
     tar xf /lab/clean.tar -C /
     systemctl daemon-reload && systemctl restart containerd",
];
/// What of it a node has before.
const KEEP: &str = "tar cf /lab/clean.tar -C / etc/containerd etc/systemd/system etc/modules-load.d \
                    etc/sysctl.d";
const START: Duration = Duration::from_mins(2);

pub(crate) struct Site {
    pub(crate) lab: Lab,
    pub(crate) shape: Shape,
    folder: TempDir,
}

impl Site {
    /// Makes the nodes and gives them the images.
    pub(crate) fn new(shape: Shape, images: &Images) -> Fallible<Self> {
        let nodes = shape.0.iter();
        let spec = nodes.fold(LabSpec::new("bench"), |spec, (name, _)| {
            spec.node(name, Profile::Plain)
        });
        let site = Self {
            lab: Lab::up(&spec, &mut io::sink())?,
            shape,
            folder: tempfile::tempdir()?,
        };
        site.each(|node| {
            node.sh(KEEP)?;
            Ok(node.load_images(images)?)
        })?;
        site.begin_folder()?;
        Ok(site)
    }

    /// Makes the nodes what they were after [`Self::new`].
    pub(crate) fn clean(&mut self) -> Fallible<()> {
        let [before, after] = CLEAN;
        self.each(|node| {
            node.sh(before)?;
            node.reboot()?;
            node.wait_started(START)?;
            node.sh(after)?;
            Ok(node.wait_ssh(START)?)
        })?;
        self.folder = tempfile::tempdir()?;
        self.begin_folder()
    }

    fn begin_folder(&self) -> Fallible<()> {
        let home = self.folder.path().join(".ssh");
        std::fs::create_dir_all(&home)?;
        std::fs::copy(self.lab.known_hosts(), home.join("known_hosts"))?;
        let nodes = self.shape.0.iter();
        let nodes = nodes.map(|(name, roles)| (*name, self.lab.node(name), roles.to_vec()));
        let config = Node::common_yml("bench", &nodes.collect::<Vec<_>>())?;
        std::fs::write(self.folder.path().join("cluster.yml"), config)?;
        Ok(())
    }

    /// From now on sshd of every node is reached by a line of that length.
    pub(crate) fn lead_through(&self, round_trip: Duration) -> Fallible<()> {
        let nodes = self.lab.nodes().iter();
        let line = Line::to(
            nodes.map(|node| (node.name(), node.address().into())),
            round_trip,
        )?;
        let at = |name: &str| self.folder.path().join(name);
        let config = std::fs::read_to_string(at("cluster.yml"))?;
        let mut config: Value = serde_saphyr::from_str(&config)?;
        let mut known = std::fs::read_to_string(at(".ssh/known_hosts"))?;
        for node in config["nodes"].as_array_mut().into_iter().flatten() {
            let name = node["hostname_override"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let port = line.0.get(&name).ok_or("a node without a line")?;
            let address = node["address"].as_str().unwrap_or_default().to_owned();
            let keys = known.lines().filter_map(|line| {
                let (host, key) = line.split_once(' ')?;
                (host == address).then(|| format!("[127.0.0.1]:{port} {key}\n"))
            });
            let keys: String = keys.collect();
            known.push_str(&keys);
            node["internal_address"] = address.into();
            node["address"] = "127.0.0.1".into();
            node["port"] = (*port).into();
        }
        std::fs::write(at("cluster.yml"), serde_saphyr::to_string(&config)?)?;
        std::fs::write(at(".ssh/known_hosts"), known)?;
        Ok(())
    }

    /// The node that the cluster begins with.
    pub(crate) fn first(&self) -> &Node {
        self.lab.node("n1")
    }

    /// Does something on all nodes at once; the first error counts.
    pub(crate) fn each<T: Send>(
        &self,
        act: impl Fn(&Node) -> Fallible<T> + Sync,
    ) -> Fallible<Vec<T>> {
        let act = |node: &Node| act(node).map_err(|error| format!("{}: {error}", node.name()));
        thread::scope(|scope| {
            let nodes = self.lab.nodes().iter();
            let threads: Vec<_> = nodes.map(|node| scope.spawn(|| act(node))).collect();
            threads
                .into_iter()
                .map(|thread| Ok(thread.join().map_err(|_| "a thread failed")??))
                .collect()
        })
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kube_config_cluster.yml")
    }

    /// How long `up` takes, from start to exit.
    pub(crate) fn up(&self, binary: &Path) -> Fallible<Duration> {
        self.run(binary, &["up", "--yes"])
    }

    /// How long `remove` takes.
    pub(crate) fn remove(&self, binary: &Path) -> Fallible<Duration> {
        self.run(binary, &["remove", "--force"])
    }

    fn run(&self, binary: &Path, words: &[&str]) -> Fallible<Duration> {
        let begun = Instant::now();
        let output = Command::new(binary)
            .args(words)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env_remove("RKE_CONFIG")
            .stdin(Stdio::null())
            .output()?;
        let took = begun.elapsed();
        if output.status.success() {
            Ok(took)
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("`{}` failed:\n{said}", words.join(" ")).into())
        }
    }

    /// The first node's root folder as this machine sees it: reading there costs the node nothing.
    pub(crate) fn root(&self) -> Fallible<PathBuf> {
        let inspect = ["inspect", "--format", "{{.State.Pid}}"];
        let pid = docker(&[&inspect[..], &[self.first().container()]].concat())?;
        Ok(Path::new("/proc").join(pid.trim()).join("root"))
    }
}

/// Puts a folder's contents into a new folder of a node.
pub(crate) fn put(node: &Node, folder: &Path, to: &str) -> Fallible<()> {
    let target = format!("{}:{to}", node.container());
    docker(&["cp", &folder.display().to_string(), &target]).map(drop)
}

/// Takes folders of a node, those of them that are there, as an archive.
pub(crate) fn take(node: &Node, folders: &str, to: &Path) -> Fallible<()> {
    node.sh(&format!(
        "tar cf /root/files.tar --ignore-failed-read {folders} 2>/dev/null; test -s /root/files.tar"
    ))?;
    let from = format!("{}:/root/files.tar", node.container());
    docker(&["cp", &from, &to.display().to_string()]).map(drop)
}

/// A command of the machine's Docker; what it prints.
fn docker(args: &[&str]) -> Fallible<String> {
    let output = Command::new("docker").args(args).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("docker {}: {said}", args.join(" ")).into())
}

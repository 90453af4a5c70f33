//! One node: what can be done to a server, done to a container that behaves as one.

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    Image, Images, KUBERNETES_VERSION, LABEL, LabError, Output, Profile, Suite,
    cache::{self, make_dir},
    command::Run,
    host::Host,
    labs::NodeSpec,
    overlay, registry,
};

/// The document that a user begins with.
const MINIMAL: &str = include_str!("../../../rkespec/minimal.yml");
const RKE_DEFAULTS: &str = include_str!("../../../rkespec/rke-defaults.yml");
/// The user of every node.
const USER: &str = "lab";

/// Its number, as the image's recipe gives it.
const UID: u32 = 1000;

/// What a program that runs for the host on a plain machine is not allowed here, for want of one
/// capability: everything else, then.
const UNPRIVILEGED: [&str; 13] = [
    "--cap-add",
    "ALL",
    "--cap-drop",
    "SYS_RESOURCE",
    "--security-opt",
    "seccomp=unconfined",
    "--security-opt",
    "apparmor=unconfined",
    "--security-opt",
    "systempaths=unconfined",
    "--device-cgroup-rule",
    "a *:* rwm",
    "--init=false",
];

/// In containerd's place: works until CRI is switched on, and then ends at once.
const CONTAINERD_WITHOUT_CRI: &str = r#"#!/bin/sh
for word; do
    case $word in
    config | --version | -v | --help | -h) exec /usr/bin/containerd.real "$@" ;;
    esac
done
if /usr/bin/containerd.real "$@" config dump | grep -q '^disabled_plugins = .*cri'; then
    exec /usr/bin/containerd.real "$@"
fi
echo 'containerd: failed to load plugin io.containerd.grpc.v1.cri: broken by the lab' >&2
exit 1
"#;

/// Whether a node is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// It is on.
    Running,
    /// It hangs.
    Paused,
    /// It is switched off.
    Stopped,
    /// Its container is gone.
    Missing,
}

impl NodeState {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Missing => "missing",
        }
    }
}

/// A node of a lab.
#[derive(Debug, Clone)]
pub struct Node {
    pub(crate) spec: NodeSpec,
    pub(crate) address: Ipv4Addr,
    pub(crate) container: String,
    pub(crate) dir: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) known_hosts: PathBuf,
    pub(crate) overlay: String,
}

impl Node {
    /// Its name, which is its host name too.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its profile.
    pub fn profile(&self) -> Profile {
        self.spec.profile
    }

    /// The release of Debian that it runs.
    pub fn suite(&self) -> Suite {
        self.spec.suite
    }

    /// Its address, the same for its whole life.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The user to log in as.
    pub fn user(&self) -> &'static str {
        USER
    }

    /// The name of its container in the machine's Docker.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// Runs a shell script on it as root, past SSH: for what a test wants to see or do.
    pub fn exec(&self, script: &str) -> Result<Output, LabError> {
        Run::docker(format!("cannot run a command on {}", self.name()))
            .args(["exec", &self.container, "sh", "-c", script])
            .output()
    }

    /// As [`Self::exec`], but a script that ends with an error is an error, and what it wrote to
    /// stdout is the result.
    pub fn sh(&self, script: &str) -> Result<String, LabError> {
        self.exec(script)?
            .success(&format!("on {}", self.name()), script)
    }

    /// Runs a command on it as its user by OpenSSH.
    pub fn ssh(&self, command: &str) -> Result<Output, LabError> {
        self.ssh_client(&format!("cannot log in to {}", self.name()))
            .args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"])
            .arg(format!("{USER}@{}", self.address))
            .args(["--", command])
            .output()
    }

    /// Runs OpenSSH with the terminal of whoever called: a shell, or a command.
    pub fn ssh_attached(&self, command: &[String]) -> Result<i32, LabError> {
        self.ssh_client(&format!("cannot log in to {}", self.name()))
            .arg(format!("{USER}@{}", self.address))
            .args(command)
            .attached()
    }

    fn ssh_client(&self, what: &str) -> Run {
        Run::new(what, "ssh")
            .args([
                "-F",
                "none",
                "-o",
                "IdentitiesOnly=yes",
                "-o",
                "StrictHostKeyChecking=yes",
            ])
            .arg("-o")
            .arg(format!("UserKnownHostsFile={}", self.known_hosts.display()))
            .arg("-i")
            .arg(&self.key)
    }

    /// Whether it is on.
    pub fn state(&self) -> Result<NodeState, LabError> {
        let output = Run::docker("cannot look at a node")
            .args([
                "container",
                "inspect",
                "--format",
                "{{.State.Status}}",
                &self.container,
            ])
            .output()?;
        Ok(match output.stdout.trim() {
            "" => NodeState::Missing,
            "running" => NodeState::Running,
            "paused" => NodeState::Paused,
            _ => NodeState::Stopped,
        })
    }

    pub(crate) fn machine(&self, verb: &str, args: &[&str]) -> Result<(), LabError> {
        Run::docker(format!("cannot {verb} {}", self.name()))
            .args(args)
            .arg(&self.container)
            .done()
    }

    /// Reboots it in good order. It is back as soon as [`Self::wait_ssh`] says so.
    pub fn reboot(&self) -> Result<(), LabError> {
        self.machine("reboot", &["restart", "--time", "60"])
    }

    /// Waits until its user can log in by SSH.
    pub fn wait_ssh(&self, limit: Duration) -> Result<(), LabError> {
        self.wait(limit, "login by SSH", || {
            let output = self.ssh("true")?;
            Ok(if output.ok() {
                None
            } else {
                Some(output.stderr)
            })
        })
    }

    /// Waits until everything that starts with it has started; gives the units that failed.
    pub fn wait_started(&self, limit: Duration) -> Result<Vec<String>, LabError> {
        self.wait(limit, "the end of its start", || {
            let state = self.exec("systemctl is-system-running")?.stdout;
            let done = matches!(state.trim(), "running" | "degraded");
            Ok(if done { None } else { Some(state) })
        })?;
        let failed = self.sh("systemctl list-units --failed --plain --no-legend")?;
        Ok(failed
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned)
            .collect())
    }

    /// Polls until there is nothing left to wait for.
    fn wait(
        &self,
        limit: Duration,
        what: &str,
        mut missing: impl FnMut() -> Result<Option<String>, LabError>,
    ) -> Result<(), LabError> {
        let begun = Instant::now();
        loop {
            let Some(seen) = missing()? else {
                return Ok(());
            };
            if begun.elapsed() >= limit {
                return Err(LabError::Timeout {
                    what: format!("{}: {what}", self.name()),
                    limit,
                    detail: format!(": {}", seen.trim()),
                });
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Collects its journal and the logs of its containers and pods in a folder.
    pub fn logs(&self, dir: &Path) -> Result<(), LabError> {
        let dir = dir.join(self.name());
        make_dir(&dir)?;
        let parts = [
            ("journal.log", "journalctl --no-pager --boot".to_owned()),
            ("docker-ps.txt", "docker ps --all --no-trunc".to_owned()),
            ("mounts.txt", "cat /proc/self/mountinfo".to_owned()),
            ("processes.txt", "ps -ef --forest".to_owned()),
            (
                "disk.txt",
                "timeout 10 df -h; cat /run/lab/workarounds".to_owned(),
            ),
            (
                "pods.log",
                "tail -n 1000 -v $(find /var/log/pods -name '*.log') 2>&1".to_owned(),
            ),
        ];
        for (file, script) in parts {
            let output = self.exec(&script)?;
            cache::write(&dir.join(file), output.stdout + &output.stderr)?;
        }
        for name in self
            .exec("docker ps --all --format '{{.Names}}'")?
            .stdout
            .lines()
        {
            let output = self.exec(&format!("docker logs --timestamps {name} 2>&1"))?;
            cache::write(&dir.join(format!("container-{name}.log")), output.stdout)?;
        }
        Ok(())
    }

    /// Puts every image of the product onto the node, so that nothing has to be pulled: all of them
    /// into Docker, and what pods use into containerd too. For the benchmark.
    pub fn load_images(&self, images: &Images) -> Result<(), LabError> {
        for image in images.published() {
            self.load_into(image, &["docker", "load", "--quiet"])?;
            if matches!(
                image.program.as_str(),
                "pause" | "coredns" | "flannel" | "cni-plugins" | "metrics-server"
            ) {
                self.load_into(
                    image,
                    &["ctr", "--namespace", "k8s.io", "images", "import", "-"],
                )?;
            }
        }
        Ok(())
    }

    /// Puts an image into containerd for pods, under another name.
    pub fn load_for_pods(&self, image: &Image, name: &str) -> Result<(), LabError> {
        let ctr = ["ctr", "--namespace", "k8s.io", "images"];
        self.load_into(image, &[&ctr[..], &["import", "-"]].concat())?;
        let own = image.names.first().cloned();
        let own = own.unwrap_or_else(|| format!("library/{}", image.own_name()));
        self.sh(&format!(
            "{} tag --force docker.io/{own} {name}",
            ctr.join(" ")
        ))
        .map(drop)
    }

    fn load_into(&self, image: &Image, command: &[&str]) -> Result<(), LabError> {
        Run::docker(format!(
            "cannot load {} onto {}",
            image.program,
            self.name()
        ))
        .args(["exec", "--interactive", &self.container])
        .args(command)
        .fed_by(image.archived())
        .map(drop)
    }

    /// From now on containerd ends as soon as it is started with CRI switched on.
    pub fn break_cri(&self) -> Result<(), LabError> {
        self.sh("mv /usr/bin/containerd /usr/bin/containerd.real")?;
        self.place(&[(
            "usr/bin/containerd".to_owned(),
            0o755,
            0,
            CONTAINERD_WITHOUT_CRI.to_owned(),
        )])
    }

    /// Mounts a file system there that never answers, as that of a dead server: whoever touches it
    /// waits until [`Self::end_hang`].
    pub fn hang_mount(&self, folder: &str) -> Result<(), LabError> {
        let program = self.dir.join("hang");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/hang.c");
        Run::new("cannot build the file system that hangs", "cc")
            .args(["-static", "-Os", "-Wall", "-o"])
            .args([&program, &source])
            .done()?;
        Run::docker("cannot put the file system that hangs")
            .arg("cp")
            .arg(&program)
            .arg(format!("{}:/lab/hang", self.container))
            .done()?;
        self.sh(&format!(
            "[ -e /dev/fuse ] || mknod /dev/fuse c 10 229; mkdir -p {folder}"
        ))?;
        self.machine_exec(&["/lab/hang", folder])?;
        self.wait(Duration::from_secs(10), "the mount", || {
            let found = self.exec(&format!("grep -q ' {folder} fuse' /proc/self/mounts"))?;
            Ok((!found.ok()).then(String::new))
        })
    }

    /// Gives the servers of all mounts that hang up: what waits for them gets an error.
    pub fn end_hang(&self) -> Result<(), LabError> {
        self.sh("pkill -KILL -x hang || true").map(drop)
    }

    /// Starts a program on it that goes on.
    fn machine_exec(&self, command: &[&str]) -> Result<(), LabError> {
        Run::docker(format!("cannot start a program on {}", self.name()))
            .args(["exec", "--detach", &self.container])
            .args(command)
            .done()
    }

    /// The smallest `cluster.yml` there is, `rkespec/minimal.yml`, for this node, with the lab's
    /// overlay.
    pub fn cluster_yml(&self, cluster_name: &str) -> Result<String, LabError> {
        let document = overlay::parsed("rkespec/minimal.yml", MINIMAL)?;
        self.filled_in(document, cluster_name)
    }

    /// A `cluster.yml` for several nodes: under which name, on which machine, with which roles. The
    /// overlay is the first one's.
    pub fn common_yml(
        cluster_name: &str,
        nodes: &[(&str, &Self, Vec<&str>)],
    ) -> Result<String, LabError> {
        let Some((_, first, _)) = nodes.first() else {
            return Err(LabError::Refused("a cluster has a node".to_owned()));
        };
        on_nodes(&first.cluster_yml(cluster_name)?, nodes)
    }

    /// The same with all that RKE takes when a file says no more than where the nodes are,
    /// `rkespec/rke-defaults.yml`.
    pub fn rke_defaults_yml(
        cluster_name: &str,
        nodes: &[(&str, &Self, Vec<&str>)],
    ) -> Result<String, LabError> {
        let Some((_, first, _)) = nodes.first() else {
            return Err(LabError::Refused("a cluster has a node".to_owned()));
        };
        let document = overlay::parsed("rkespec/rke-defaults.yml", RKE_DEFAULTS)?;
        on_nodes(&first.filled_in(document, cluster_name)?, nodes)
    }

    /// A document for this node, with what machines of the lab need.
    fn filled_in(&self, mut document: Value, cluster_name: &str) -> Result<String, LabError> {
        document["cluster_name"] = cluster_name.into();
        document["kubernetes_version"] = KUBERNETES_VERSION.into();
        let node = &mut document["nodes"][0];
        node["address"] = self.address.to_string().into();
        node["user"] = USER.into();
        node["hostname_override"] = self.name().into();
        node["ssh_key_path"] = self.key.display().to_string().into();
        overlay::merge(&overlay::written(&document)?, &self.overlay)
    }

    /// Makes the node's container with its disk, its keys and its profile, and starts it. The first
    /// image is the node's; the files of others are laid over it.
    pub(crate) fn make(
        &self,
        lab: &str,
        host: Host,
        images: &[&Image],
        registry: &crate::Registry,
    ) -> Result<(), LabError> {
        make_dir(&self.dir)?;
        self.make_disk()?;
        Run::docker("cannot make a volume")
            .args([
                "volume",
                "create",
                "--label",
                &format!("{LABEL}={lab}"),
                &self.container,
            ])
            .done()?;
        let bind = |from: &Path, to: &str| format!("{}:{to}", from.display());
        let modules = Path::new("/lib/modules");
        let mut run = Run::docker(format!("cannot make {}", self.name()))
            .args([
                "create",
                "--name",
                &self.container,
                "--hostname",
                self.name(),
            ])
            .args([
                "--label",
                &format!("{LABEL}={lab}"),
                "--network",
                &format!("rke-lab-{lab}"),
            ])
            .args([
                "--ip",
                &self.address.to_string(),
                "--tty",
                "--cgroupns",
                "private",
            ])
            .args([
                "--add-host",
                &format!("{}:{}", registry::NAME, registry.address),
            ])
            .args(["--tmpfs", "/run", "--tmpfs", "/run/lock"])
            .args(["--volume", &bind(&self.dir.join("host"), "/lab/host")])
            .args(["--volume", &format!("{}:/lab/data", self.container)]);
        if modules.is_dir() {
            run = run.args(["--volume", &format!("{}:ro", bind(modules, "/lib/modules"))]);
        }
        run = if host.privileged {
            run.arg("--privileged")
        } else {
            run.args(UNPRIVILEGED)
        };
        let (image, over) = images
            .split_first()
            .ok_or_else(|| LabError::Refused(format!("there is no image for {}", self.name())))?;
        run.arg(image.own_name()).done()?;
        for image in over {
            for layer in image.archive()?.layers {
                Run::docker(format!("cannot put {} into {}", image.program, self.name()))
                    .args(["cp", "-", &format!("{}:/", self.container)])
                    .fed_by(Run::new("cannot read a layer", "cat").arg(image.dir.join(layer)))?;
            }
        }
        self.place(&self.files(registry)?)?;
        self.start()
    }

    /// A sparse file with a file system, of the size that the specification says. No journal: the
    /// file outlives whatever happens to the node, and writes are halved.
    fn make_disk(&self) -> Result<(), LabError> {
        let dir = self.dir.join("host");
        make_dir(&dir)?;
        let path = dir.join("disk.img");
        let file = fs::File::create(&path).map_err(LabError::file("cannot write", &path))?;
        file.set_len(self.spec.disk)
            .map_err(LabError::file("cannot size", &path))?;
        Run::new("cannot make a disk", "mkfs.ext4")
            .args([
                "-q",
                "-F",
                "-m",
                "0",
                "-O",
                "^has_journal",
                "-E",
                "lazy_itable_init=1",
            ])
            .arg(&path)
            .done()
    }

    /// What is different on this node from the image: path, mode, owner, content.
    fn files(&self, registry: &crate::Registry) -> Result<Vec<NodeFile>, LabError> {
        let (ca, mirror) = (cache::read(&registry.ca())?, registry.name());
        let mut public = self.key.clone();
        public.set_extension("pub");
        let authority = format!("etc/docker/certs.d/{mirror}/ca.crt");
        let hosts = format!(
            "server = \"https://{mirror}\"\n\n[host.\"https://{mirror}\"]\n  \
             capabilities = [\"pull\", \"resolve\"]\n  ca = \"/{authority}\"\n"
        );
        let mut daemon = self.spec.profile.daemon();
        daemon["registry-mirrors"] = serde_json::json!([format!("https://{mirror}")]);
        let resolver = self.spec.profile.resolver().map_or_else(
            || format!("nameserver {}\n", registry.address),
            str::to_owned,
        );
        let mut files = vec![
            (authority, 0o644, 0, ca),
            (
                "etc/docker/daemon.json".to_owned(),
                0o644,
                0,
                format!("{daemon:#}\n"),
            ),
            (
                "etc/containerd/certs.d/docker.io/hosts.toml".to_owned(),
                0o644,
                0,
                hosts.clone(),
            ),
            (
                format!("etc/containerd/certs.d/{mirror}/hosts.toml"),
                0o644,
                0,
                hosts,
            ),
            (
                "home/lab/.ssh/authorized_keys".to_owned(),
                0o600,
                UID,
                cache::read(&public)?,
            ),
            (
                "lab/groups".to_owned(),
                0o644,
                0,
                self.spec.profile.groups().to_owned(),
            ),
            ("lab/resolver".to_owned(), 0o644, 0, resolver),
        ];
        if !self.spec.profile.containerd_has_mirror() {
            files.retain(|(name, ..)| !name.starts_with("etc/containerd/certs.d/"));
        }
        for kind in ["ed25519", "ecdsa"] {
            let key = self.dir.join(format!("ssh_host_{kind}_key"));
            let name = format!("etc/ssh/ssh_host_{kind}_key");
            files.push((
                format!("{name}.pub"),
                0o644,
                0,
                cache::read(&key.with_extension("pub"))?,
            ));
            files.push((name, 0o600, 0, cache::read(&key)?));
        }
        for (path, mode, content) in self.spec.profile.files() {
            files.push((path.to_owned(), mode, 0, content.to_owned()));
        }
        Ok(files)
    }

    /// Makes the node's host keys, and gives the line for `known_hosts`: only that of one key, as
    /// after a first login, though the server has two.
    pub(crate) fn make_host_keys(&self) -> Result<(), LabError> {
        make_dir(&self.dir)?;
        for kind in ["ed25519", "ecdsa"] {
            Run::new("cannot make a host key", "ssh-keygen")
                .args(["-q", "-t", kind, "-N", "", "-C", self.name(), "-f"])
                .arg(self.dir.join(format!("ssh_host_{kind}_key")))
                .done()?;
        }
        Ok(())
    }

    /// Its host key, as a line of OpenSSH's known hosts.
    pub(crate) fn host_key(&self) -> Result<String, LabError> {
        let public = cache::read(&self.dir.join("ssh_host_ed25519_key.pub"))?;
        let key: Vec<&str> = public.split_whitespace().take(2).collect();
        Ok(format!("{} {}\n", self.address, key.join(" ")))
    }

    /// Puts files into the node, whether it is on or off.
    fn place(&self, files: &[NodeFile]) -> Result<(), LabError> {
        let stage = tempfile::tempdir_in(&self.dir)
            .map_err(LabError::file("cannot make a folder in", &self.dir))?;
        let mut names = Vec::new();
        for (name, mode, owner, content) in files {
            let path = stage.path().join(name);
            make_dir(path.parent().unwrap_or(stage.path()))?;
            fs::write(&path, content).map_err(LabError::file("cannot write", &path))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode))
                .and_then(|()| chown(&path, Some(*owner), Some(*owner)))
                .map_err(LabError::file("cannot set the owner of", &path))?;
            names.push(name);
        }
        // Files only: folders that are there keep their owner and mode.
        let source = Run::new("cannot pack files", "tar")
            .arg("-c")
            .arg("-C")
            .arg(stage.path())
            .arg("--")
            .args(names);
        Run::docker(format!("cannot put files into {}", self.name()))
            .args(["cp", "--archive", "-", &format!("{}:/", self.container)])
            .fed_by(source)
            .map(drop)
    }
}

/// A file for a node: path, mode, owner, content.
type NodeFile = (String, u32, u32, String);

/// The document's only node as often as there are nodes, with the name, address and roles of each.
fn on_nodes(yaml: &str, nodes: &[(&str, &Node, Vec<&str>)]) -> Result<String, LabError> {
    let mut document = overlay::parsed("cluster.yml", yaml)?;
    let common = document["nodes"][0].take();
    let nodes = nodes.iter().map(|(name, machine, roles)| {
        let mut node = common.clone();
        node["address"] = machine.address.to_string().into();
        node["hostname_override"] = (*name).into();
        node["role"] = roles.clone().into();
        node
    });
    document["nodes"] = nodes.collect();
    overlay::written(&document)
}

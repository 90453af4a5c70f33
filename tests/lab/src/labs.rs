//! A lab as a whole: made, found again, looked at and taken down.
//!
//! What a lab made bears its name in a label, so it is found even if the lab's folder is gone. A lab
//! that a test made belongs to that test's process; once the process is gone, the next lab that is
//! made takes it down.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    Host, Image, Images, KUBERNETES_VERSION, LABEL, LabError, Node, Profile, Registry, Store,
    Suite,
    cache::{self, make_dir},
    command::Run,
    image, overlay,
    subnet::Subnet,
};

/// The size of a node's disk if nothing is said: sparse, so it takes what is written.
const DISK: u64 = 40 << 30;

/// How long a node may take to start.
const START: Duration = Duration::from_mins(2);

/// What a lab shall consist of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LabSpec {
    /// Its name: part of the names of all it makes.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<NodeSpec>,
    /// Releases of Kubernetes whose images its registry has beside those of the default one.
    #[serde(default)]
    pub releases: Vec<String>,
    /// Whether its registry has the images of Kubernetes' own tests too.
    #[serde(default)]
    pub e2e: bool,
}

/// What a node shall be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its name and host name.
    pub name: String,
    /// How it is set up.
    pub profile: Profile,
    /// The release of Debian that it runs.
    #[serde(default)]
    pub suite: Suite,
    /// The size of its disk in bytes.
    pub disk: u64,
}

impl LabSpec {
    /// A lab without nodes.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            nodes: Vec::new(),
            releases: Vec::new(),
            e2e: false,
        }
    }

    /// A lab without nodes for this process alone: its name ends with the process's number, so that
    /// two runs of one test on a machine do not take each other's lab down.
    pub fn own(name: &str) -> Self {
        Self::new(&format!("{name}-{}", std::process::id()))
    }

    /// Adds the images of another release of Kubernetes, as in `v1.33.13`.
    #[must_use]
    pub fn release(mut self, release: &str) -> Self {
        if release != KUBERNETES_VERSION {
            self.releases.push(release.to_owned());
        }
        self
    }

    /// Adds the images of Kubernetes' own tests.
    #[must_use]
    pub fn e2e(mut self) -> Self {
        self.e2e = true;
        self
    }

    /// Adds a node with a disk of the usual size.
    #[must_use]
    pub fn node(self, name: &str, profile: Profile) -> Self {
        self.node_of(Suite::default(), name, profile)
    }

    /// Adds a node that runs that release of Debian, with a disk of the usual size.
    #[must_use]
    pub fn node_of(mut self, suite: Suite, name: &str, profile: Profile) -> Self {
        self.nodes.push(NodeSpec {
            name: name.to_owned(),
            profile,
            suite,
            disk: DISK,
        });
        self
    }
}

impl LabSpec {
    /// The images of other releases and of Kubernetes' tests, those of nodes with another Debian, and those whose
    /// programs replace a node's own; built if the cache lacks them.
    fn rare_images(&self, log: &mut dyn Write) -> Result<Rare, LabError> {
        let store = Store::from_environment();
        let programs: BTreeSet<&str> = self
            .nodes
            .iter()
            .filter_map(|node| node.profile.programs())
            .collect();
        let suites: BTreeSet<Suite> = self.nodes.iter().map(|node| node.suite).collect();
        let mut stocked = Vec::new();
        for release in &self.releases {
            stocked.push(store.release(release, log)?);
        }
        if self.e2e {
            stocked.push(store.e2e(log)?);
        }
        Ok(Rare {
            stocked,
            nodes: suites
                .into_iter()
                .map(|suite| Ok((suite, store.node(suite, log)?)))
                .collect::<Result<_, LabError>>()?,
            programs: programs
                .into_iter()
                .map(|program| store.image(program, log))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// Images that only some labs need.
struct Rare {
    /// For the registry.
    stocked: Vec<Images>,
    /// Of nodes, by the release of Debian that they run.
    nodes: BTreeMap<Suite, Image>,
    /// For nodes.
    programs: Vec<Image>,
}

impl Rare {
    /// What a node is made of.
    fn parts_of(&self, node: &Node) -> Vec<&Image> {
        let programs = self.programs.iter();
        let own = programs.filter(|image| node.profile().programs() == Some(&image.program));
        self.nodes
            .get(&node.suite())
            .into_iter()
            .chain(own)
            .collect()
    }
}

/// What the lab's folder keeps about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    spec: LabSpec,
    third_number: u8,
    owner: Option<Owner>,
    overlay: String,
}

/// A process: its number, and when it started, for numbers are used again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    pid: u32,
    started: String,
}

impl Owner {
    fn us() -> Option<Self> {
        Self::of(process::id())
    }

    fn of(pid: u32) -> Option<Self> {
        let stat = cache::read(Path::new(&format!("/proc/{pid}/stat"))).ok()?;
        // The name in parentheses may have spaces; the time is the 20th field after it.
        let started = stat
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(19)?
            .to_owned();
        Some(Self { pid, started })
    }

    fn is_gone(&self) -> bool {
        Self::of(self.pid).as_ref() != Some(self)
    }
}

/// A lab that stands. Made by [`Lab::up`] it takes itself down when dropped, unless [`Lab::keep`] was
/// called; found by [`Lab::open`] it stays.
#[derive(Debug)]
pub struct Lab {
    name: String,
    dir: PathBuf,
    nodes: Vec<Node>,
    registry: Registry,
    overlay: String,
    key: PathBuf,
    known_hosts: PathBuf,
    ours: bool,
}

/// What [`Lab::sweep`] takes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// Labs whose process is gone.
    Abandoned,
    /// All labs, and the lab's own images in the machine's Docker.
    All,
}

impl Lab {
    /// Makes a lab: builds what the cache lacks, takes down what is left of an earlier one, and
    /// returns when every node has started.
    pub fn up(spec: &LabSpec, log: &mut dyn Write) -> Result<Self, LabError> {
        check_names(spec)?;
        for node in &spec.nodes {
            node.suite.check()?;
        }
        let host = Host::prepare(log)?;
        let images = image::images(log)?;
        let rare = spec.rare_images(log)?;
        Self::sweep(Sweep::Abandoned)?;
        take_down(&spec.name)?;

        for image in rare.nodes.values().chain([images.program("registry")?]) {
            image.load_here()?;
        }
        // From here on the folder says whose it is, so that an interruption leaves nothing unknown.
        let dir = folder(&spec.name);
        make_dir(&dir)?;
        let mut state = State {
            spec: spec.clone(),
            third_number: 0,
            owner: Owner::us(),
            overlay: String::new(),
        };
        state.write(&dir)?;
        let subnet = make_network(&spec.name)?;
        state.third_number = subnet.address(0).octets()[2];
        state.write(&dir)?;

        let mut lab = Self::from(state.clone(), true);
        lab.make_keys()?;
        lab.registry.make_certificates()?;
        lab.registry.stock(images.published())?;
        for images in &rare.stocked {
            lab.registry.stock(images.published())?;
        }
        lab.start_registry(images.program("registry")?)?;
        for node in &lab.nodes {
            let parts = rare.parts_of(node);
            node.make(&lab.name, host, &parts, &lab.registry)?;
        }
        for node in &lab.nodes {
            let failed = node.wait_started(START)?;
            node.wait_ssh(START)?;
            let told = |e| LabError::File {
                what: "cannot write",
                path: "the log".into(),
                source: e,
            };
            let note = if failed.is_empty() {
                String::new()
            } else {
                format!(", but these units failed: {}", failed.join(" "))
            };
            writeln!(log, "{} is up at {}{note}", node.name(), node.address()).map_err(told)?;
        }
        if let Some(first) = lab.nodes.first() {
            state.overlay = overlay::overlay(&first.sh(overlay::PROBE)?)?;
            state.write(&dir)?;
            lab.overlay.clone_from(&state.overlay);
            for node in &mut lab.nodes {
                node.overlay.clone_from(&state.overlay);
            }
        }
        Ok(lab)
    }

    /// Installs a node's machine anew: its name and address stay, its disk is empty, and it has other
    /// host keys, which nobody knows before [`Self::learn_host_keys`].
    pub fn reinstall(&self, name: &str, log: &mut dyn Write) -> Result<(), LabError> {
        let node = self.find(name)?;
        let host = Host::prepare(log)?;
        let rare = State::read(&self.dir)?.spec.rare_images(log)?;
        remove_container(node.container())?;
        remove_volume(node.container())?;
        cache::remove_dir(&node.dir)?;
        node.make_host_keys()?;
        let parts = rare.parts_of(node);
        node.make(&self.name, host, &parts, &self.registry)?;
        node.wait_started(START).map(drop)
    }

    /// Writes the host keys that the nodes have by now where who logs in looks for them.
    pub fn learn_host_keys(&self) -> Result<(), LabError> {
        let lines: Result<String, LabError> = self.nodes.iter().map(Node::host_key).collect();
        cache::write(&self.known_hosts, lines?)
    }

    /// Finds a lab that stands.
    pub fn open(name: &str) -> Result<Self, LabError> {
        let state = State::read(&folder(name)).map_err(|_| LabError::NoLab(name.to_owned()))?;
        Ok(Self::from(state, false))
    }

    /// The names of the labs that stand, or of which something is left.
    pub fn names() -> Result<Vec<String>, LabError> {
        let mut names = Vec::new();
        if let Ok(entries) = fs::read_dir(cache::root().join("labs")) {
            names.extend(
                entries
                    .filter_map(Result::ok)
                    .filter_map(|entry| entry.file_name().into_string().ok()),
            );
        }
        for kind in ["container", "network", "volume"] {
            names.extend(
                labelled(kind, None, &format!("{{{{.Label \"{LABEL}\"}}}}"))?
                    .into_iter()
                    .filter(|name| !name.is_empty()),
            );
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Takes down what belongs to nobody any more, or everything; gives the labs' names.
    pub fn sweep(what: Sweep) -> Result<Vec<String>, LabError> {
        let mut swept = Vec::new();
        for name in Self::names()? {
            let abandoned = || {
                State::read(&folder(&name))
                    .is_ok_and(|state| state.owner.is_some_and(|owner| owner.is_gone()))
            };
            if what == Sweep::All || abandoned() {
                take_down(&name)?;
                swept.push(name);
            }
        }
        if what == Sweep::All {
            for own in ["node", "registry"] {
                let found = Run::docker("cannot list images")
                    .args(["image", "ls", "--quiet", "--filter"])
                    .arg(format!("reference=rke-lab-{own}"))
                    .text()?;
                for id in found.lines() {
                    Run::docker("cannot remove an image")
                        .args(["image", "rm", "-f", id])
                        .done()?;
                }
            }
        }
        Ok(swept)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node of that name.
    ///
    /// # Panics
    ///
    /// If there is none: the lab's nodes are the test's own words. [`Lab::find`] does not.
    #[expect(
        clippy::panic,
        reason = "for tests, which name the nodes that they asked for"
    )]
    pub fn node(&self, name: &str) -> &Node {
        match self.find(name) {
            Ok(node) => node,
            Err(error) => panic!("{error}"),
        }
    }

    /// The node of that name, or an error that lists those there are.
    pub fn find(&self, name: &str) -> Result<&Node, LabError> {
        self.nodes
            .iter()
            .find(|node| node.name() == name)
            .ok_or_else(|| LabError::NoNode {
                lab: self.name.clone(),
                node: name.to_owned(),
                known: self
                    .nodes
                    .iter()
                    .map(Node::name)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// Its nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The private key that opens every node.
    pub fn ssh_key(&self) -> &Path {
        &self.key
    }

    /// The host keys of its nodes, as OpenSSH keeps them.
    pub fn known_hosts(&self) -> &Path {
        &self.known_hosts
    }

    /// Its folder, where a test may put files of its own.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its registry.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What a `cluster.yml` needs only on this machine; empty where nothing is.
    pub fn overlay(&self) -> String {
        self.overlay.clone()
    }

    /// Lets it stand when the value is dropped, and when this process ends.
    pub fn keep(&mut self) -> Result<(), LabError> {
        self.ours = false;
        let mut state = State::read(&self.dir)?;
        state.owner = None;
        state.write(&self.dir)
    }

    /// Takes it down: everything it made is gone afterwards.
    pub fn destroy(mut self) -> Result<(), LabError> {
        self.ours = false;
        take_down(&self.name)
    }

    /// Takes down what bears that name, whether or not it is a whole lab.
    pub fn destroy_named(name: &str) -> Result<(), LabError> {
        take_down(name)
    }

    fn from(state: State, ours: bool) -> Self {
        let (dir, name) = (folder(&state.spec.name), state.spec.name);
        let (key, known_hosts) = (dir.join("id_ed25519"), dir.join("known_hosts"));
        let subnet = Subnet::of(state.third_number);
        let nodes = state
            .spec
            .nodes
            .into_iter()
            .zip(11..)
            .map(|(spec, host)| Node {
                address: subnet.address(host),
                container: format!("rke-lab-{name}-{}", spec.name),
                dir: dir.join("nodes").join(&spec.name),
                key: key.clone(),
                known_hosts: known_hosts.clone(),
                overlay: state.overlay.clone(),
                spec,
            })
            .collect();
        let registry = Registry {
            container: format!("rke-lab-{name}-registry"),
            address: subnet.address(2),
            dir: dir.join("registry"),
        };
        Self {
            name,
            dir,
            nodes,
            registry,
            overlay: state.overlay,
            ours,
            key,
            known_hosts,
        }
    }

    fn make_keys(&self) -> Result<(), LabError> {
        Run::new("cannot make the lab's key", "ssh-keygen")
            .args([
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                &format!("lab {}", self.name),
                "-f",
            ])
            .arg(self.ssh_key())
            .done()?;
        self.nodes.iter().try_for_each(Node::make_host_keys)?;
        self.learn_host_keys()
    }

    fn start_registry(&self, image: &Image) -> Result<(), LabError> {
        let mut run = Run::docker("cannot start the registry")
            .args(["run", "--detach", "--name", &self.registry.container])
            .args(["--label", &format!("{LABEL}={}", self.name)])
            .args(["--network", &format!("rke-lab-{}", self.name)])
            .args([
                "--ip",
                &self.registry.address.to_string(),
                "--restart",
                "unless-stopped",
                // The nodes' resolver is at this address, and nothing answers there. It says so each time: Linux says it once a
                // second, and who asks for two records waits for 5 s.
                "--sysctl",
                "net.ipv4.icmp_ratelimit=0",
                // Docker trusts what is on the loopback: `docker push` from this machine.
                "--publish",
                &format!("127.0.0.1::{}", crate::registry::PORT),
            ]);
        for bind in self.registry.binds() {
            run = run.args(["--volume", &bind]);
        }
        run.arg(image.own_name()).done()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        if std::thread::panicking() {
            let logs = cache::root().join("logs").join(&self.name);
            let _ = cache::remove_dir(&logs);
            for node in &self.nodes {
                let _ = node.logs(&logs);
            }
            let _ = writeln!(
                std::io::stderr(),
                "the nodes' logs are in {}",
                logs.display()
            );
        }
        // Whatever is left now is found by its label and taken down by the next lab.
        let _ = take_down(&self.name);
    }
}

impl State {
    fn read(dir: &Path) -> Result<Self, LabError> {
        let path = dir.join("lab.json");
        serde_json::from_str(&cache::read(&path)?).map_err(|e| LabError::Content {
            path,
            why: e.to_string(),
        })
    }

    fn write(&self, dir: &Path) -> Result<(), LabError> {
        cache::write(&dir.join("lab.json"), serde_json::json!(self).to_string())
    }
}

/// The lab's folder. It has the disks too, which are sparse and as large as what is on them.
fn folder(name: &str) -> PathBuf {
    cache::root().join("labs").join(name)
}

/// Names become names of containers, folders and hosts.
fn check_names(spec: &LabSpec) -> Result<(), LabError> {
    let fits = |name: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        (1..=40).contains(&name.len())
            && name.chars().all(inner)
            && !name.starts_with('-')
            && !name.ends_with('-')
    };
    let names = || std::iter::once(&spec.name).chain(spec.nodes.iter().map(|node| &node.name));
    if let Some(name) = names().find(|name| !fits(name)) {
        return Err(LabError::Refused(format!(
            "{name:?} cannot be a name: lower-case letters, digits and \"-\" between them, up to 40"
        )));
    }
    if spec.nodes.len() > 200 || spec.nodes.iter().any(|node| node.name == "registry") {
        return Err(LabError::Refused(
            "a lab has up to 200 nodes, and none is called \"registry\"".to_owned(),
        ));
    }
    Ok(())
}

/// Makes the lab's network at the first addresses that are free.
fn make_network(name: &str) -> Result<Subnet, LabError> {
    let routes = cache::read(Path::new("/proc/net/route"))?;
    let mut last = None;
    for subnet in Subnet::candidates(name, &routes) {
        let output = Run::docker("cannot make the lab's network")
            .args(["network", "create", "--label", &format!("{LABEL}={name}")])
            .args([
                "--subnet",
                &subnet.cidr(),
                "--gateway",
                &subnet.address(1).to_string(),
            ])
            .arg(format!("rke-lab-{name}"))
            .output()?;
        if output.ok() {
            keep_in(&output.stdout)?;
            may_watch()?;
            return Ok(subnet);
        }
        // Another lab may have taken these addresses since we looked at the routes.
        let taken = output.stderr.contains("overlaps");
        last = Some(output.success("cannot make the lab's network", "docker network create"));
        if !taken {
            break;
        }
    }
    match last {
        Some(Err(error)) => Err(error),
        _ => Err(LabError::Host(
            "it has a route to every network in 10.77.0.0/16".to_owned(),
        )),
    }
}

/// Keeps what the nodes send in the lab's network: the machine does not forward what comes in by the
/// network's bridge. The nodes have their default route as servers do, and it leads no further than
/// this machine. The switch is the bridge's own, and goes with it.
fn keep_in(network: &str) -> Result<(), LabError> {
    let id = network.trim();
    let bridge = format!("br-{}", id.get(..12).unwrap_or(id));
    let path = Path::new("/proc/sys/net/ipv4/conf").join(bridge);
    // Not by a rename, as `cache::write` does it: this is the kernel's file.
    let path = path.join("forwarding");
    fs::write(&path, "0").map_err(LabError::file("cannot keep traffic in by", &path))
}

/// Every kubelet and every containerd watches files, and root has few watchers on most machines: six nodes
/// use them up. Raised and left so, for others may rely on it by the time the lab goes.
fn may_watch() -> Result<(), LabError> {
    let path = Path::new("/proc/sys/fs/inotify/max_user_instances");
    let few = cache::read(path)?;
    if few.trim().parse().is_ok_and(|few: u32| few >= WATCHERS) {
        return Ok(());
    }
    fs::write(path, WATCHERS.to_string()).map_err(LabError::file("cannot raise", path))
}

/// What in the machine's Docker bears the label, formatted; of one lab or of all.
fn labelled(kind: &str, name: Option<&str>, format: &str) -> Result<Vec<String>, LabError> {
    let label = name.map_or_else(|| LABEL.to_owned(), |name| format!("{LABEL}={name}"));
    let mut run = Run::docker(format!("cannot list {kind}s")).args([kind, "ls"]);
    if kind == "container" {
        run = run.arg("--all");
    }
    let list = run
        .args(["--filter", &format!("label={label}"), "--format", format])
        .text()?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// Enough for some labs at once.
const WATCHERS: u32 = 1024;

/// Resumes what is paused in a node's own Docker.
const RESUME: &str = "timeout 20 docker ps --quiet --filter status=paused | xargs --no-run-if-empty \
                      timeout 20 docker unpause";

/// Removes a node or a registry with all that runs on it.
fn remove_container(container: &str) -> Result<(), LabError> {
    // What hangs cannot be killed, nor a node on which a container is paused; that nothing hangs is
    // no error.
    Run::docker("cannot resume")
        .args(["unpause", container])
        .output()?;
    Run::docker("cannot resume what is on a node")
        .args(["exec", container, "sh", "-c", RESUME])
        .output()?;
    Run::docker(format!("cannot remove {container}"))
        .args(["rm", "--force", "--volumes", container])
        .done()
}

fn remove_volume(volume: &str) -> Result<(), LabError> {
    Run::docker(format!("cannot remove {volume}"))
        .args(["volume", "rm", volume])
        .done()
}

/// Removes everything that bears the lab's name. What is not there is fine.
fn take_down(name: &str) -> Result<(), LabError> {
    let _lock = cache::lock(&format!("lab-{name}"))?;
    for container in labelled("container", Some(name), "{{.Names}}")? {
        remove_container(&container)?;
    }
    for network in labelled("network", Some(name), "{{.Name}}")? {
        Run::docker(format!("cannot remove {network}"))
            .args(["network", "rm", &network])
            .done()?;
    }
    for volume in labelled("volume", Some(name), "{{.Name}}")? {
        remove_volume(&volume)?;
    }
    cache::remove_dir(&folder(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_when_its_number_belongs_to_another() {
        let us = Owner::us().unwrap();
        assert!(!us.is_gone());
        assert!(
            Owner {
                started: "1".to_owned(),
                ..us
            }
            .is_gone()
        );
    }

    #[test]
    fn a_name_that_docker_or_a_host_would_refuse_is_refused() {
        for name in ["", "A", "a_b", "-a", "a-", "ä"] {
            assert!(check_names(&LabSpec::new(name)).is_err(), "{name:?}");
        }
        assert!(check_names(&LabSpec::new("a-1").node("n1", Profile::Plain)).is_ok());
        assert!(check_names(&LabSpec::new("a").node("registry", Profile::Plain)).is_err());
    }
}

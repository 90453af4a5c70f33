//! containerd's configuration: from the node's effective one to the one that Kubernetes needs. Pure.
//!
//! What someone set (a runtime, a mirror, a proxy plugin) stays: the file is the whole effective
//! configuration with our few settings, in the format of the dump. That is 2 for containerd 1.x,
//! and 2.x takes it too; 3 comes only from a 2.x, and 4 from 2.3 on, where what serves has moved and
//! CRI has not. Its own output as input gives the same file.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use toml::{Table, Value};

use crate::{
    error::{ErrorClass, Explain},
    facts::{ContainerdCommand, DockerFacts},
    model::{ContainerdWants, path},
};

/// Stands at the head of our file.
const HEAD: &str = "\
# Written by rke-operator from this node's own configuration: CRI on, sandbox image, folders of
# CNI and registries. `rke-operator remove` takes it away; edits are overwritten.
";

/// The first line of each registry's file: `remove` recognises rke-operator's files by it.
pub(crate) const REGISTRY_HEAD: &str =
    "# Written by rke-operator from this node's Docker configuration.\n";

/// The runtime whose options have `SystemdCgroup`.
const RUNC: &str = "io.containerd.runc.v2";

const CRI: &str = "io.containerd.grpc.v1.cri";
const CRI_IMAGES: &str = "io.containerd.cri.v1.images";
const CRI_RUNTIME: &str = "io.containerd.cri.v1.runtime";

/// Snapshotters by the short names that format 1 lets one disable; newer formats want the whole name.
const SNAPSHOTTERS: [&str; 8] = [
    "aufs",
    "blockfile",
    "btrfs",
    "devmapper",
    "erofs",
    "native",
    "overlayfs",
    "zfs",
];

/// Why there is no configuration to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContainerdConfigError {
    /// Not TOML.
    #[error("containerd's configuration cannot be read: {why}")]
    Unreadable {
        /// What the parser says.
        why: String,
    },
    /// A format that we do not know.
    #[error("containerd's configuration has format {version}, and this program knows 1 to 4")]
    Version {
        /// The format.
        version: i64,
    },
    /// Something is where a section should be.
    #[error("containerd's configuration: `{key}` is not a section")]
    NotASection {
        /// The key.
        key: String,
    },
    /// A short name that only format 1 knows.
    #[error("containerd's configuration disables `{name}`, a short name that cannot be translated")]
    ShortName {
        /// The name.
        name: String,
    },
}

impl Explain for ContainerdConfigError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Host
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Unreadable { .. } | Self::NotASection { .. } | Self::Version { .. } => {
                vec!["look at what `containerd config dump` prints on the node".into()]
            }
            Self::ShortName { name } => vec![
                format!("write the whole name (`io.containerd.….{name}`) in `disabled_plugins` in /etc/containerd/config.toml, with `version = 2` at its head").into(),
            ],
        }
    }
}

/// Who manages the cgroups of pods. kubelet's must be containerd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// containerd's default.
    Cgroupfs,
    /// `SystemdCgroup = true` in its default runtime.
    Systemd,
}

impl CgroupDriver {
    /// As kubelet takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }
}

/// The driver of containerd's default runtime. An empty dump has the default.
pub fn cgroup_driver(dump: &str) -> Result<CgroupDriver, ContainerdConfigError> {
    let config = read(dump)?;
    let plugin = match Format::of(&config)? {
        Format::Two => CRI,
        Format::Three | Format::Four => CRI_RUNTIME,
    };
    let containerd = config
        .get("plugins")
        .and_then(|plugins| plugins.get(plugin))
        .and_then(|cri| cri.get("containerd"));
    let runtime = containerd
        .and_then(|containerd| containerd.get("default_runtime_name"))
        .and_then(Value::as_str)
        .unwrap_or("runc");
    let systemd = containerd
        .and_then(|containerd| containerd.get("runtimes"))
        .and_then(|runtimes| runtimes.get(runtime))
        .and_then(|runtime| runtime.get("options"))
        .and_then(|options| options.get("SystemdCgroup"))
        .and_then(Value::as_bool)
        .unwrap_or(false);
    Ok(if systemd {
        CgroupDriver::Systemd
    } else {
        CgroupDriver::Cgroupfs
    })
}

/// True where containerd is set to label the containers of pods for SELinux. A dump that cannot be read, or one without
/// CRI, has the default, which is not to.
pub fn labels_containers(dump: &str) -> bool {
    let config = read(dump).unwrap_or_default();
    let plugins = config.get("plugins");
    let mut plugins = [CRI, CRI_RUNTIME]
        .iter()
        .filter_map(|name| plugins?.get(name)?.get("enable_selinux")?.as_bool());
    plugins.any(|enabled| enabled)
}

/// The driver that a node's pods get. A node that has our file keeps what it says: another driver
/// ends every pod. A new node whose systemd manages cgroups of version 2 lets it: two managers of
/// one tree get in each other's way. Otherwise it is what containerd says.
pub fn choose_driver(
    dump: &str,
    own: Option<&str>,
    systemd_v2: bool,
) -> Result<CgroupDriver, ContainerdConfigError> {
    match own {
        Some(own) => cgroup_driver(own),
        None if systemd_v2 && is_runc(&read(dump)?) => Ok(CgroupDriver::Systemd),
        None => cgroup_driver(dump),
    }
}

/// True when the default runtime accepts `SystemdCgroup`: others have different options.
fn is_runc(config: &Table) -> bool {
    let plugins = config.get("plugins");
    let containerd = [CRI, CRI_RUNTIME]
        .iter()
        .filter_map(|plugin| plugins?.get(plugin)?.get("containerd"))
        .find(|containerd| containerd.get("runtimes").is_some());
    let Some(containerd) = containerd else {
        return true;
    };
    let name = containerd
        .get("default_runtime_name")
        .and_then(Value::as_str)
        .unwrap_or("runc");
    containerd
        .get("runtimes")
        .and_then(|runtimes| runtimes.get(name)?.get("runtime_type")?.as_str())
        .is_none_or(|kind| kind == RUNC || kind.is_empty())
}

/// Tells the default runtime, and writes nothing that containerd assumes anyway.
fn set_driver(plugin: &mut Table, systemd: bool) -> Result<(), ContainerdConfigError> {
    let containerd = section(plugin, "containerd")?;
    let name = containerd
        .get("default_runtime_name")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
        .unwrap_or("runc")
        .to_owned();
    let runtime = section(section(containerd, "runtimes")?, &name)?;
    // A section that we open must be whole.
    runtime
        .entry("runtime_type")
        .or_insert_with(|| Value::String(RUNC.to_owned()));
    let options = section(runtime, "options")?;
    options.insert("SystemdCgroup".to_owned(), Value::Boolean(systemd));
    Ok(())
}

/// The drop-in that points the unit at our file: its own words stay, and Docker's proxies are
/// containerd's too.
pub fn drop_in(command: &ContainerdCommand, environment: &BTreeMap<String, String>) -> String {
    let program = match command.program.as_str() {
        "" => "/usr/bin/containerd",
        program => program,
    };
    let words = command
        .words
        .iter()
        .fold(String::new(), |words, word| words + " " + word);
    let environment = environment
        .iter()
        .fold(String::new(), |lines, (name, value)| {
            let value = value.replace('%', "%%");
            lines + &format!("Environment=\"{name}={value}\"\n")
        });
    format!(
        "# Written by rke-operator; `rke-operator remove` takes it away.\n[Service]\n{environment}\
         ExecStart=\nExecStart={program}{words} --config {}\n",
        path::CONTAINERD_CONFIG
    )
}

/// The proxies of Docker for containerd's unit. Docker masks a login in what it tells: such a proxy
/// cannot be carried over.
pub fn proxies(docker: &DockerFacts) -> BTreeMap<String, String> {
    let Some((http, https, without)) = &docker.proxy else {
        return BTreeMap::new();
    };
    [
        ("HTTP_PROXY", http),
        ("HTTPS_PROXY", https),
        ("NO_PROXY", without),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty() && !masked(value) && !value.contains(['"', '\\']))
    .map(|(name, value)| (name.to_owned(), value.clone()))
    .collect()
}

/// A proxy whose login Docker does not tell.
pub fn masked(proxy: &str) -> bool {
    proxy.contains("xxxxx:xxxxx@")
}

/// What containerd reads before it pulls from a registry: Docker's mirrors of Docker Hub, the
/// registries that Docker may reach without TLS, and the authorities by which it knows others (`certs`:
/// the files in its folders for registries). File by path.
pub fn registries(
    docker: &DockerFacts,
    certs: &BTreeSet<String>,
    folder: &str,
) -> BTreeMap<String, String> {
    let known: Vec<(&str, &str)> = certs
        .iter()
        .filter_map(|file| {
            let name = file.strip_prefix(path::DOCKER_CERTS_D)?.strip_prefix('/')?;
            Some((name.split_once('/')?.0, file.as_str()))
        })
        .collect();
    let authorities = |url: &str| {
        let name = url.split_once("://").map_or(url, |(_, rest)| rest);
        let name = name.split('/').next();
        let files = known.iter().filter(|(found, _)| Some(*found) == name);
        let files: Vec<Value> = files.map(|(_, file)| Value::from(*file)).collect();
        if files.is_empty() {
            String::new()
        } else {
            format!("  ca = {}\n", Value::Array(files))
        }
    };
    let host = |url: &str, more: &str| {
        let url = url.trim_end_matches('/');
        format!(
            "\n[host.{}]\n  capabilities = [\"pull\", \"resolve\"]\n{more}",
            Value::from(url)
        )
    };
    let mirrors = docker.mirrors.iter();
    let mirrors: String = mirrors.map(|url| host(url, &authorities(url))).collect();
    let hub = (!mirrors.is_empty()).then(|| {
        let text = format!("{REGISTRY_HEAD}server = \"https://registry-1.docker.io\"\n{mirrors}");
        (format!("{folder}/docker.io/hosts.toml"), text)
    });
    let plain = |name: &str| {
        !name.starts_with('.')
            && !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || ".-:_[]".contains(c))
    };
    let insecure = docker.insecure_registries.iter().filter(|name| plain(name));
    let others = known
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| plain(name))
        .map(|name| {
            let url = format!("https://{name}");
            let secure = host(&url, &authorities(&url));
            let text = format!("{REGISTRY_HEAD}server = {}\n{secure}", Value::from(url));
            (format!("{folder}/{name}/hosts.toml"), text)
        });
    let insecure = insecure.map(|name| {
        let secure = host(&format!("https://{name}"), "  skip_verify = true\n");
        let open = host(&format!("http://{name}"), "");
        let text = format!("{REGISTRY_HEAD}server = \"https://{name}\"\n{secure}{open}");
        (format!("{folder}/{name}/hosts.toml"), text)
    });
    others.chain(insecure).chain(hub).collect()
}

/// The file that a node needs, computed from the output of `containerd config dump`.
///
/// ```
/// use rke_operator::{desired::containerd::containerd_config, model::ContainerdWants};
///
/// let wants = ContainerdWants {
///     sandbox_image: "rancher/mirrored-pause:3.6".into(),
///     cni_bin_dir: "/opt/cni/bin".into(),
///     cni_conf_dir: "/etc/cni/net.d".into(),
///     registry_config_path: "/etc/containerd/certs.d".into(),
///     systemd_cgroup: true,
///     environment: [].into(),
/// };
/// let file = containerd_config("version = 2\ndisabled_plugins = [\"cri\"]", &wants)?;
/// assert!(file.contains("disabled_plugins = []"));
/// assert_eq!(containerd_config(&file, &wants)?, file);
/// # Ok::<(), rke_operator::desired::containerd::ContainerdConfigError>(())
/// ```
pub fn containerd_config(
    dump: &str,
    wants: &ContainerdWants,
) -> Result<String, ContainerdConfigError> {
    let mut config = read(dump)?;
    let format = Format::of(&config)?;
    let runc = is_runc(&config);
    // A dump already has in it what these files say; imported again, they would win.
    config.remove("imports");
    config.insert("version".to_owned(), Value::Integer(format.number()));
    enable_cri(&mut config)?;
    let plugins = section(&mut config, "plugins")?;
    match format {
        Format::Two => {
            let cri = section(plugins, CRI)?;
            set(cri, "sandbox_image", &wants.sandbox_image);
            if runc {
                set_driver(cri, wants.systemd_cgroup)?;
            }
            network(section(cri, "cni")?, wants);
            registry(section(cri, "registry")?, wants);
        }
        Format::Three | Format::Four => {
            let images = section(plugins, CRI_IMAGES)?;
            let pinned = section(images, "pinned_images")?;
            set(pinned, "sandbox", &wants.sandbox_image);
            registry(section(images, "registry")?, wants);
            let runtime = section(plugins, CRI_RUNTIME)?;
            if runc {
                set_driver(runtime, wants.systemd_cgroup)?;
            }
            network(section(runtime, "cni")?, wants);
        }
    }
    toml::to_string(&config)
        .map(|text| format!("{HEAD}{text}"))
        .map_err(|error| ContainerdConfigError::Unreadable {
            why: error.to_string(),
        })
}

#[derive(Clone, Copy)]
enum Format {
    Two,
    Three,
    Four,
}

impl Format {
    /// A dump of an old file without a version has the sections of format 2.
    fn of(config: &Table) -> Result<Self, ContainerdConfigError> {
        match config.get("version").and_then(Value::as_integer) {
            None | Some(0..=2) => Ok(Self::Two),
            Some(3) => Ok(Self::Three),
            Some(4) => Ok(Self::Four),
            Some(version) => Err(ContainerdConfigError::Version { version }),
        }
    }

    const fn number(self) -> i64 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
            Self::Four => 4,
        }
    }
}

fn read(dump: &str) -> Result<Table, ContainerdConfigError> {
    dump.parse()
        .map_err(|error: toml::de::Error| ContainerdConfigError::Unreadable {
            why: error.message().to_owned(),
        })
}

/// Takes CRI out of what is disabled, and writes whole names for what stays.
fn enable_cri(config: &mut Table) -> Result<(), ContainerdConfigError> {
    let disabled = config
        .get("disabled_plugins")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|name| !["cri", CRI, CRI_IMAGES, CRI_RUNTIME].contains(name))
        .map(whole_name)
        .collect::<Result<Vec<_>, _>>()?;
    config.insert("disabled_plugins".to_owned(), Value::Array(disabled));
    Ok(())
}

fn whole_name(name: &str) -> Result<Value, ContainerdConfigError> {
    if name.contains('.') {
        Ok(Value::String(name.to_owned()))
    } else if SNAPSHOTTERS.contains(&name) {
        Ok(Value::String(format!(
            "io.containerd.snapshotter.v1.{name}"
        )))
    } else {
        Err(ContainerdConfigError::ShortName {
            name: name.to_owned(),
        })
    }
}

fn network(cni: &mut Table, wants: &ContainerdWants) {
    // containerd 2.1 accepts a list, and refuses both keys together. Folders that others added are kept.
    if let Some(Value::Array(folders)) = cni.get_mut("bin_dirs") {
        let ours = Value::String(wants.cni_bin_dir.clone());
        if !folders.contains(&ours) {
            folders.insert(0, ours);
        }
        cni.remove("bin_dir");
    } else {
        set(cni, "bin_dir", &wants.cni_bin_dir);
    }
    set(cni, "conf_dir", &wants.cni_conf_dir);
}

/// A folder that someone chose stays, and so do mirrors in the old form, which containerd
/// refuses together with a folder.
fn registry(registry: &mut Table, wants: &ContainerdWants) {
    let chosen = registry
        .get("config_path")
        .and_then(Value::as_str)
        .is_some_and(|path| !path.is_empty());
    let filled = |key: &str| {
        registry
            .get(key)
            .and_then(Value::as_table)
            .is_some_and(|table| !table.is_empty())
    };
    if !chosen && !filled("mirrors") && !filled("configs") {
        set(registry, "config_path", &wants.registry_config_path);
    }
}

fn section<'a>(table: &'a mut Table, key: &str) -> Result<&'a mut Table, ContainerdConfigError> {
    table
        .entry(key)
        .or_insert_with(|| Value::Table(Table::new()))
        .as_table_mut()
        .ok_or_else(|| ContainerdConfigError::NotASection {
            key: key.to_owned(),
        })
}

fn set(table: &mut Table, key: &str, value: &str) {
    table.insert(key.to_owned(), Value::String(value.to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_labelled_where_either_format_says_so() {
        let two = "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nenable_selinux = true\n";
        let three = two
            .replace("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
            .replace('2', "3");
        assert!(labels_containers(two) && labels_containers(&three));
        assert!(!labels_containers(&two.replace("true", "false")));
        for other in [
            "",
            "version = 2\ndisabled_plugins = ['cri']\n",
            "no = toml =",
        ] {
            assert!(!labels_containers(other), "{other}");
        }
    }

    fn wants() -> ContainerdWants {
        ContainerdWants {
            sandbox_image: "rancher/mirrored-pause:3.6".to_owned(),
            cni_bin_dir: "/opt/cni/bin".to_owned(),
            cni_conf_dir: "/etc/cni/net.d".to_owned(),
            registry_config_path: "/etc/containerd/certs.d".to_owned(),
            systemd_cgroup: true,
            environment: BTreeMap::new(),
        }
    }

    /// What is written, without its head, and that it is its own fixed point.
    fn written(dump: &str) -> String {
        let file = containerd_config(dump, &wants()).unwrap();
        assert_eq!(containerd_config(&file, &wants()).unwrap(), file);
        assert_eq!(cgroup_driver(&file), Ok(CgroupDriver::Systemd));
        file.strip_prefix(HEAD).unwrap().to_owned()
    }

    #[test]
    fn dockers_own_packages_have_cri_off_in_a_file_without_a_version() {
        insta::assert_snapshot!(written("disabled_plugins = [\"cri\"]\n"), @r#"
        disabled_plugins = []
        version = 2

        [plugins."io.containerd.grpc.v1.cri"]
        sandbox_image = "rancher/mirrored-pause:3.6"

        [plugins."io.containerd.grpc.v1.cri".cni]
        bin_dir = "/opt/cni/bin"
        conf_dir = "/etc/cni/net.d"

        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"

        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = true

        [plugins."io.containerd.grpc.v1.cri".registry]
        config_path = "/etc/containerd/certs.d"
        "#);
        // No dump at all: containerd's defaults, with CRI as kubelet needs it.
        assert_eq!(written(""), written("disabled_plugins = [\"cri\"]\n"));
    }

    #[test]
    fn what_someone_set_stays() {
        let file = written(
            r#"
version = 2
imports = ["/etc/containerd/config.toml"]
disabled_plugins = ["io.containerd.grpc.v1.cri", "btrfs", "io.containerd.snapshotter.v1.zfs"]
[proxy_plugins.stargz]
type = "snapshot"
address = "/run/stargz.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "registry.k8s.io/pause:3.6"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
max_conf_num = 1
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
SystemdCgroup = true
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/srv/certs.d"
"#,
        );
        let config: Table = file.parse().unwrap();
        let disabled = config["disabled_plugins"].as_array().unwrap();
        let disabled: Vec<&str> = disabled.iter().filter_map(Value::as_str).collect();
        assert_eq!(
            disabled,
            [
                "io.containerd.snapshotter.v1.btrfs",
                "io.containerd.snapshotter.v1.zfs",
            ],
        );
        assert!(!config.contains_key("imports"));
        assert_eq!(
            config["proxy_plugins"]["stargz"]["address"].as_str(),
            Some("/run/stargz.sock")
        );
        let cri = &config["plugins"][CRI];
        assert_eq!(cri["restrict_oom_score_adj"].as_bool(), Some(true));
        assert_eq!(cri["cni"]["bin_dir"].as_str(), Some("/opt/cni/bin"));
        assert_eq!(cri["cni"]["max_conf_num"].as_integer(), Some(1));
        assert_eq!(
            cri["registry"]["config_path"].as_str(),
            Some("/srv/certs.d")
        );
        assert_eq!(cgroup_driver(&file), Ok(CgroupDriver::Systemd));
    }

    #[test]
    fn mirrors_of_the_old_kind_stay_and_no_folder_is_added() {
        let file = written(
            r#"
version = 2
[plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]
endpoint = ["https://mirror.example"]
"#,
        );
        assert!(file.contains("https://mirror.example"));
        assert!(!file.contains("config_path"));
    }

    #[test]
    fn containerd_2_keeps_its_format() {
        for format in [3, 4] {
            let dump = r#"
disabled_plugins = ["io.containerd.cri.v1.images"]
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dir = ""
bin_dirs = ["/usr/lib/cni"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = true
"#;
            let file = written(&format!("version = {format}{dump}"));
            let config: Table = file.parse().unwrap();
            assert_eq!(config["version"].as_integer(), Some(format));
            assert_eq!(config["disabled_plugins"].as_array().map(Vec::len), Some(0));
            let plugins = &config["plugins"];
            let images = &plugins[CRI_IMAGES];
            assert_eq!(
                images["pinned_images"]["sandbox"].as_str(),
                Some("rancher/mirrored-pause:3.6")
            );
            assert_eq!(
                images["registry"]["config_path"].as_str(),
                Some("/etc/containerd/certs.d")
            );
            let folders = plugins[CRI_RUNTIME]["cni"]["bin_dirs"].as_array().unwrap();
            let folders: Vec<&str> = folders.iter().filter_map(Value::as_str).collect();
            assert_eq!(folders, ["/opt/cni/bin", "/usr/lib/cni"]);
            assert_eq!(cgroup_driver(&file), Ok(CgroupDriver::Systemd));
            assert_eq!(cgroup_driver(""), Ok(CgroupDriver::Cgroupfs));
        }
    }

    /// R16, R17: systemd's driver from the first day on, and never another one later.
    #[test]
    fn the_driver_of_a_node_never_changes() {
        use CgroupDriver::{Cgroupfs, Systemd};
        let ours = |systemd: &str| {
            format!(
                "version = 2\n[plugins.\"{CRI}\".containerd.runtimes.runc.options]\n\
                 SystemdCgroup = {systemd}\n"
            )
        };
        let fresh = "version = 2\n";
        assert_eq!(choose_driver(fresh, None, true), Ok(Systemd));
        assert_eq!(choose_driver(fresh, None, false), Ok(Cgroupfs));
        // Our own file is what pods run under, whatever the dump says or does not say.
        for dump in ["", fresh, &ours("true"), "not toml"] {
            assert_eq!(
                choose_driver(dump, Some(&ours("false")), true),
                Ok(Cgroupfs)
            );
            assert_eq!(choose_driver(dump, Some(&ours("true")), false), Ok(Systemd));
        }
        // A runtime whose options we do not know says it itself.
        let kata = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n\
                    default_runtime_name = \"kata\"\n\
                    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.kata]\n\
                    runtime_type = \"io.containerd.kata.v2\"\n";
        assert_eq!(choose_driver(kata, None, true), Ok(Cgroupfs));
        assert!(
            !containerd_config(kata, &wants())
                .unwrap()
                .contains("SystemdCgroup")
        );
        // Told, it is written, both ways.
        let off = ContainerdWants {
            systemd_cgroup: false,
            ..wants()
        };
        let file = containerd_config(&ours("true"), &off).unwrap();
        assert_eq!(cgroup_driver(&file), Ok(Cgroupfs));
    }

    /// R2: the arguments of the existing unit are kept.
    #[test]
    fn the_drop_in_starts_containerd_as_before() {
        let command = ContainerdCommand {
            program: "/opt/bin/containerd".to_owned(),
            words: ["--root", "/data/containerd"].map(str::to_owned).into(),
            odd: None,
        };
        let proxies = [("HTTP_PROXY".to_owned(), "http://p:1/%41".to_owned())].into();
        insta::assert_snapshot!(drop_in(&command, &proxies), @r#"
        # Written by rke-operator; `rke-operator remove` takes it away.
        [Service]
        Environment="HTTP_PROXY=http://p:1/%%41"
        ExecStart=
        ExecStart=/opt/bin/containerd --root /data/containerd --config /etc/containerd/rke-operator.toml
        "#);
    }

    /// R25: pods pull as Docker does.
    #[test]
    fn what_docker_knows_of_registries_containerd_knows_too() {
        let mut docker = crate::desired::fixture::facts().docker;
        assert!(
            registries(&docker, &BTreeSet::new(), "/certs").is_empty()
                && proxies(&docker).is_empty()
        );
        docker.mirrors = vec!["https://mirror.example/".to_owned()];
        docker.insecure_registries = vec!["reg.local:5000".to_owned(), "../etc".to_owned()];
        docker.proxy = Some((
            "http://proxy:3128".to_owned(),
            "http://xxxxx:xxxxx@proxy:3128".to_owned(),
            String::new(),
        ));
        let certs = [
            "/etc/docker/certs.d/mirror.example/ca.crt",
            "/etc/docker/certs.d/private.example:5000/a.crt",
            "/etc/docker/certs.d/private.example:5000/b.crt",
            "/etc/docker/certs.d/not a name/ca.crt",
        ];
        let certs = certs.map(str::to_owned).into();
        let files = registries(&docker, &certs, "/certs");
        assert_eq!(
            files.keys().collect::<Vec<_>>(),
            [
                "/certs/docker.io/hosts.toml",
                "/certs/mirror.example/hosts.toml",
                "/certs/private.example:5000/hosts.toml",
                "/certs/reg.local:5000/hosts.toml"
            ]
        );
        insta::assert_snapshot!(files.values().cloned().collect::<String>(), @r#"
        # Written by rke-operator from this node's Docker configuration.
        server = "https://registry-1.docker.io"

        [host."https://mirror.example"]
          capabilities = ["pull", "resolve"]
          ca = ["/etc/docker/certs.d/mirror.example/ca.crt"]
        # Written by rke-operator from this node's Docker configuration.
        server = "https://mirror.example"

        [host."https://mirror.example"]
          capabilities = ["pull", "resolve"]
          ca = ["/etc/docker/certs.d/mirror.example/ca.crt"]
        # Written by rke-operator from this node's Docker configuration.
        server = "https://private.example:5000"

        [host."https://private.example:5000"]
          capabilities = ["pull", "resolve"]
          ca = ["/etc/docker/certs.d/private.example:5000/a.crt", "/etc/docker/certs.d/private.example:5000/b.crt"]
        # Written by rke-operator from this node's Docker configuration.
        server = "https://reg.local:5000"

        [host."https://reg.local:5000"]
          capabilities = ["pull", "resolve"]
          skip_verify = true

        [host."http://reg.local:5000"]
          capabilities = ["pull", "resolve"]
        "#);
        for text in files.values() {
            assert!(text.parse::<Table>().is_ok());
        }
        let proxies = proxies(&docker);
        assert_eq!(
            proxies.keys().collect::<Vec<_>>(),
            ["HTTP_PROXY"],
            "a masked login"
        );
    }

    #[test]
    fn an_error_says_what_is_not_understood() {
        let error = |dump: &str| containerd_config(dump, &wants()).unwrap_err();
        insta::assert_snapshot!(
            error("version = 5"),
            @"containerd's configuration has format 5, and this program knows 1 to 4"
        );
        insta::assert_snapshot!(
            error("plugins = 1"),
            @"containerd's configuration: `plugins` is not a section"
        );
        insta::assert_snapshot!(
            error("disabled_plugins = [\"restart\"]"),
            @"containerd's configuration disables `restart`, a short name that cannot be translated"
        );
        assert!(matches!(
            error("containerd: not found"),
            ContainerdConfigError::Unreadable { .. }
        ));
    }
}

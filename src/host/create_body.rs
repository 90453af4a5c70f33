//! Converts a [`ContainerSpec`] to Docker's request, and the output of inspect back to a specification. Pure.
//!
//! The way back must give the same specification, or every survey would see drift. Docker adds the image's
//! environment, `label=disable` for privileged containers and the daemon's log settings. The specification in the
//! container's label distinguishes these from what rke-operator requested.

use std::collections::{BTreeMap, HashMap};

use bollard::models::{
    ContainerConfig, ContainerCreateBody, HostConfig, HostConfigCgroupnsModeEnum,
    HostConfigLogConfig, Mount, MountType, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};

use crate::model::{Bind, ClusterId, ContainerSpec, EnvVar, LogLimit, label};

/// Open files: what systemd units of Kubernetes components are commonly given.
const NOFILE: i64 = 1_048_576;

/// A confined process could not read the node's files. Docker adds this automatically for
/// privileged containers and those that share process ids.
const LABEL_DISABLE: &str = "label=disable";

/// Whose a component is.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// The cluster.
    pub id: &'a ClusterId,
    /// Its name, for people.
    pub name: &'a str,
    /// Which life of etcd's data: see [`label::ETCD_EPOCH`].
    pub epoch: u32,
}

impl<'a> Stamp<'a> {
    /// Of a cluster whose etcd was never restored.
    pub const fn first(id: &'a ClusterId, name: &'a str) -> Self {
        Self { id, name, epoch: 0 }
    }
}

/// The labels of every component and every helper container.
pub(super) fn labels(cluster_id: &ClusterId, cluster_name: &str) -> HashMap<String, String> {
    HashMap::from([
        (label::CLUSTER_ID.to_owned(), cluster_id.0.clone()),
        (label::CLUSTER_NAME.to_owned(), cluster_name.to_owned()),
    ])
}

/// The request that creates a component.
pub(super) fn component(
    spec: &ContainerSpec,
    stamp: &Stamp<'_>,
) -> Result<ContainerCreateBody, serde_json::Error> {
    let mut labels = labels(stamp.id, stamp.name);
    if stamp.epoch > 0 {
        labels.insert(label::ETCD_EPOCH.to_owned(), stamp.epoch.to_string());
    }
    labels.insert(label::SPEC.to_owned(), serde_json::to_string(spec)?);
    let ContainerSpec {
        image,
        entrypoint,
        command: _,
        bootstrap_args: _,
        env,
        binds,
        mounts,
        tmpfs,
        user,
        privileged,
        host_pid,
        host_cgroupns,
        security_opts,
        cap_drop,
        log_limit,
        files: _,        // in the label only
        certificates: _, // likewise
    } = spec.clone();
    let words = spec.words();
    Ok(ContainerCreateBody {
        image: Some(image),
        entrypoint: (!entrypoint.is_empty()).then_some(entrypoint),
        cmd: (!words.is_empty()).then_some(words),
        env: Some(assignments(&env)?),
        labels: Some(labels),
        user: (!user.is_root()).then(|| user.to_string()),
        host_config: Some(HostConfig {
            network_mode: Some("host".to_owned()),
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::ALWAYS),
                maximum_retry_count: None,
            }),
            binds: Some(binds.into_iter().map(String::from).collect()),
            mounts: (!mounts.is_empty()).then(|| mounts.into_iter().map(mount).collect()),
            tmpfs: (!tmpfs.is_empty()).then(|| in_memory(&tmpfs)),
            privileged: Some(privileged),
            pid_mode: Some(if host_pid { "host" } else { "" }.to_owned()),
            cgroupns_mode: Some(if host_cgroupns {
                HostConfigCgroupnsModeEnum::HOST
            } else {
                HostConfigCgroupnsModeEnum::PRIVATE
            }),
            security_opt: Some(security_opts),
            cap_drop: (!cap_drop.is_empty()).then_some(cap_drop),
            log_config: log_limit.map(|limit| HostConfigLogConfig {
                typ: Some("json-file".to_owned()),
                config: Some(HashMap::from([
                    ("max-size".to_owned(), limit.max_size),
                    ("max-file".to_owned(), limit.max_file.to_string()),
                ])),
            }),
            ulimits: Some(vec![ResourcesUlimits {
                name: Some("nofile".to_owned()),
                soft: Some(NOFILE),
                hard: Some(NOFILE),
            }]),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    })
}

/// What a container runs, in the shape of a specification. `None`: something that no
/// specification says, such as another network or restart policy.
pub(super) fn runs(config: &ContainerConfig, host: &HostConfig) -> Option<ContainerSpec> {
    let label = config
        .labels
        .as_ref()
        .and_then(|labels| labels.get(label::SPEC))
        .and_then(|text| serde_json::from_str::<ContainerSpec>(text).ok());
    let always = host
        .restart_policy
        .as_ref()
        .is_some_and(|policy| policy.name == Some(RestartPolicyNameEnum::ALWAYS));
    if host.network_mode.as_deref() != Some("host") || !always {
        return None;
    }
    // If the specification names no user, the user that inspect shows is the image's.
    let named = label.as_ref().is_none_or(|spec| !spec.user.is_root());
    let user = config.user.as_deref().filter(|_| named);
    let user = user.and_then(|user| user.parse().ok()).unwrap_or_default();
    let privileged = host.privileged.unwrap_or(false);
    let host_pid = host.pid_mode.as_deref() == Some("host");
    Some(ContainerSpec {
        image: config.image.clone().unwrap_or_default(),
        entrypoint: told(
            config.entrypoint.as_ref(),
            label.as_ref().map(|spec| &spec.entrypoint),
        ),
        command: told(
            config.cmd.as_ref(),
            label.as_ref().map(ContainerSpec::words).as_ref(),
        ),
        bootstrap_args: Vec::new(),
        env: env(config, label.as_ref()),
        binds: binds(host)?,
        mounts: mounts(host),
        tmpfs: tmpfs(host),
        user,
        privileged,
        host_pid,
        host_cgroupns: host.cgroupns_mode == Some(HostConfigCgroupnsModeEnum::HOST),
        security_opts: security_opts(host, privileged || host_pid, label.as_ref()),
        cap_drop: host.cap_drop.clone().unwrap_or_default(),
        log_limit: log_limit(host, label.as_ref()),
        certificates: label
            .as_ref()
            .map_or_else(BTreeMap::new, |spec| spec.certificates.clone()),
        files: label.map_or_else(BTreeMap::new, |spec| spec.files),
    })
}

/// Words that we did not give come from the image.
fn told(words: Option<&Vec<String>>, label: Option<&Vec<String>>) -> Vec<String> {
    if label.is_some_and(Vec::is_empty) {
        return Vec::new();
    }
    words.cloned().unwrap_or_default()
}

/// A plan that was read back has no values, and makes no container.
fn assignments(env: &[EnvVar]) -> Result<Vec<String>, serde_json::Error> {
    let missing = |var: &EnvVar| {
        let why = format!("the value of the variable `{}` is not known", var.name);
        <serde_json::Error as serde::ser::Error>::custom(why)
    };
    env.iter()
        .map(|var| var.assignment().ok_or_else(|| missing(var)))
        .collect()
}

/// The image's variables are in the container's; those that we gave are in the label. A
/// container's variables cannot change, so one that is there is the one that was given.
fn env(config: &ContainerConfig, label: Option<&ContainerSpec>) -> Vec<EnvVar> {
    let there = config.env.clone().unwrap_or_default();
    let Some(label) = label else {
        return there.into_iter().map(EnvVar::from).collect();
    };
    let given = label.env.iter().filter_map(|var| {
        let entry = there.iter().find(|entry| var.is(entry))?;
        Some(var.clone().with_value_of(entry))
    });
    given.collect()
}

/// Unlike a bind, it makes no folder in the place of a source that is missing.
fn mount(bind: Bind) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(bind.source),
        target: Some(bind.target),
        ..Mount::default()
    }
}

fn mounts(host: &HostConfig) -> Vec<Bind> {
    let mut mounts: Vec<Bind> = host
        .mounts
        .iter()
        .flatten()
        .map(|mount| Bind {
            source: mount.source.clone().unwrap_or_default(),
            target: mount.target.clone().unwrap_or_default(),
            options: String::new(),
        })
        .collect();
    mounts.sort_by(|a, b| a.target.cmp(&b.target));
    mounts
}

/// With Docker's own options: half of the memory at most.
pub(super) fn in_memory(folders: &[String]) -> HashMap<String, String> {
    let folders = folders.iter().cloned();
    folders.map(|folder| (folder, String::new())).collect()
}

fn tmpfs(host: &HostConfig) -> Vec<String> {
    let mut folders: Vec<String> = host.tmpfs.iter().flat_map(HashMap::keys).cloned().collect();
    folders.sort();
    folders
}

fn binds(host: &HostConfig) -> Option<Vec<Bind>> {
    let texts = host.binds.clone().unwrap_or_default();
    let mut binds = texts
        .into_iter()
        .map(Bind::try_from)
        .collect::<Result<Vec<_>, _>>()
        .ok()?;
    binds.sort_by(|a, b| a.target.cmp(&b.target));
    Some(binds)
}

fn security_opts(host: &HostConfig, opens: bool, label: Option<&ContainerSpec>) -> Vec<String> {
    let mut opts = host.security_opt.clone().unwrap_or_default();
    let asked = label.is_some_and(|spec| spec.security_opts.iter().any(|opt| opt == LABEL_DISABLE));
    if opens && !asked {
        opts.retain(|opt| opt != LABEL_DISABLE);
    }
    opts
}

fn log_limit(host: &HostConfig, label: Option<&ContainerSpec>) -> Option<LogLimit> {
    if label.is_some_and(|spec| spec.log_limit.is_none()) {
        return None;
    }
    let log = host.log_config.as_ref()?;
    let config = log.config.as_ref()?;
    Some(LogLimit {
        max_size: config.get("max-size")?.clone(),
        max_file: config.get("max-file")?.parse().ok()?,
    })
    .filter(|_| log.typ.as_deref() == Some("json-file"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Digest, Owner, Secret};

    fn var(name: &str, value: &str) -> EnvVar {
        let digest = Digest(format!("digest {}", value.len()));
        EnvVar::new(name.to_owned(), Secret::new(value.to_owned()), digest)
    }

    fn spec() -> ContainerSpec {
        ContainerSpec {
            image: "rancher/hardened-kubernetes:v1.34.4".to_owned(),
            entrypoint: vec!["kube-apiserver".to_owned()],
            command: vec!["--v=2".to_owned()],
            bootstrap_args: Vec::new(),
            env: vec![var("A", "1"), var("B", "22")],
            binds: vec![
                "/etc/kubernetes:/etc/kubernetes:ro"
                    .to_owned()
                    .try_into()
                    .unwrap(),
                "/lib/modules:/lib/modules".to_owned().try_into().unwrap(),
            ],
            mounts: vec!["/data/member:/member".to_owned().try_into().unwrap()],
            user: Owner {
                uid: 52034,
                gid: 52035,
            },
            privileged: true,
            host_pid: true,
            host_cgroupns: true,
            tmpfs: Vec::new(),
            cap_drop: vec!["ALL".to_owned()],
            security_opts: vec![],
            log_limit: Some(LogLimit {
                max_size: "20m".to_owned(),
                max_file: 3,
            }),
            files: BTreeMap::from([("/etc/x".to_owned(), Digest("d".to_owned()))]),
            certificates: BTreeMap::new(),
        }
    }

    /// What dockerd makes of a request, as far as it adds things.
    fn inspected(body: ContainerCreateBody) -> (ContainerConfig, HostConfig) {
        let mut host = body.host_config.unwrap();
        let opens = host.privileged == Some(true) || host.pid_mode.as_deref() == Some("host");
        let opts = host.security_opt.get_or_insert_default();
        if opens && !opts.iter().any(|opt| opt.starts_with("label=")) {
            opts.push(LABEL_DISABLE.to_owned());
        }
        host.log_config.get_or_insert_with(|| HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(HashMap::from([
                ("max-size".to_owned(), "9m".to_owned()),
                ("max-file".to_owned(), "9".to_owned()),
            ])),
        });
        let mut env = body.env.unwrap();
        env.insert(0, "PATH=/bin".to_owned());
        let config = ContainerConfig {
            image: body.image,
            entrypoint: body.entrypoint.or(Some(vec!["/image".to_owned()])),
            cmd: body.cmd.or(Some(vec!["image-command".to_owned()])),
            env: Some(env),
            labels: body.labels,
            user: body.user.or(Some("nonroot:65535".to_owned())),
            ..ContainerConfig::default()
        };
        (config, host)
    }

    fn round_trip(spec: &ContainerSpec) -> Option<ContainerSpec> {
        let body = component(spec, &Stamp::first(&ClusterId("c".to_owned()), "local")).unwrap();
        let (config, host) = inspected(body);
        runs(&config, &host)
    }

    #[test]
    fn a_specification_comes_back_as_it_was() {
        let full = spec();
        let plain = ContainerSpec {
            entrypoint: vec![],
            command: vec![],
            env: vec![],
            binds: vec![],
            mounts: vec![],
            user: Owner::ROOT,
            privileged: false,
            host_pid: false,
            host_cgroupns: false,
            security_opts: vec![LABEL_DISABLE.to_owned()],
            log_limit: None,
            files: BTreeMap::new(),
            certificates: BTreeMap::new(),
            ..spec()
        };
        let asked = ContainerSpec {
            security_opts: vec![LABEL_DISABLE.to_owned()],
            ..spec()
        };
        for spec in [full, plain, asked] {
            assert_eq!(round_trip(&spec), Some(spec));
        }
    }

    /// Metrics and log shippers export labels.
    #[test]
    fn the_value_of_a_variable_is_in_no_label() {
        let mut spec = spec();
        spec.env = vec![var("HTTPS_PROXY", "http://user:hunter2@proxy")];
        let body = component(&spec, &Stamp::first(&ClusterId("c".to_owned()), "local")).unwrap();
        assert_eq!(body.env.unwrap(), ["HTTPS_PROXY=http://user:hunter2@proxy"]);
        for (name, value) in body.labels.unwrap() {
            assert!(!value.contains("hunter2"), "{name}");
        }
        // What was read from a label has no value, and makes no container.
        let text = serde_json::to_string(&spec).unwrap();
        let read: ContainerSpec = serde_json::from_str(&text).unwrap();
        component(&read, &Stamp::first(&ClusterId("c".to_owned()), "local")).unwrap_err();
    }

    /// All its flags are one list there; which of them are compared is not Docker's to know.
    #[test]
    fn flags_of_the_first_start_come_after_the_others() {
        let spec = ContainerSpec {
            bootstrap_args: vec!["--initial-cluster-state=new".to_owned()],
            ..spec()
        };
        let runs = round_trip(&spec).unwrap();
        assert_eq!(runs.command, ["--v=2", "--initial-cluster-state=new"]);
    }

    #[test]
    fn drift_is_seen() {
        let spec = spec();
        let body = component(&spec, &Stamp::first(&ClusterId("c".to_owned()), "local")).unwrap();
        let (config, host) = inspected(body);

        let mut other = config.clone();
        other.env.as_mut().unwrap().retain(|entry| entry != "A=1");
        other.image = Some("other".to_owned());
        let seen = runs(&other, &host).unwrap();
        assert_eq!(seen.env, [var("B", "22")]);
        assert_eq!(seen.image, "other");

        let mut lost = host.clone();
        lost.restart_policy = None;
        assert_eq!(runs(&config, &lost), None);
        let mut bridged = host;
        bridged.network_mode = Some("default".to_owned());
        assert_eq!(runs(&config, &bridged), None);
    }
}

//! The floor: what a script on each node needs to start the cluster that `up` made, with the flags
//! and in the order that are known to be quickest.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use lab::Node;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    Fallible,
    site::{Site, put, take},
};

/// On a node: certificates, configurations, what is loaded at boot.
pub(crate) const FILES: &str = "/etc/kubernetes /etc/containerd \
                                /etc/systemd/system/containerd.service.d \
                                /etc/modules-load.d /etc/sysctl.d";
/// Makes what is in those folders hold without a reboot.
pub(crate) const LOAD: &str = "
    for module in $(cat /etc/modules-load.d/*.conf | grep -v '^#'); do modprobe $module || true; done
    sysctl --system > /dev/null 2>&1 || true
    systemctl daemon-reload && systemctl restart containerd && sleep 2";
const SCRIPT: &str = include_str!("floor.sh");
/// What may run on a node.
const COMPONENTS: [&str; 7] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "nginx-proxy",
];
/// The quickest known flags, whatever `up` has: etcd's own defaults, for a lone member waits for an
/// election first; and a controller-manager that does not start a controller every 150 ms only.
const BEST: [(&str, &str, &str); 4] = [
    ("etcd", "heartbeat-interval", "100"),
    ("etcd", "election-timeout", "1000"),
    ("kube-controller-manager", "kube-api-qps", "200"),
    ("kube-controller-manager", "kube-api-burst", "400"),
];
const LABEL: &str = "clusterprovisioner.rke.io/addon";
const KINDS: &str = "serviceaccounts,configmaps,services,daemonsets,deployments,clusterroles,\
                     clusterrolebindings,roles,rolebindings";

/// Everything that the floor needs, in a folder of this machine with one for each node.
pub(crate) struct Floor(TempDir);

impl Floor {
    /// From nodes on which `up` has just ended.
    pub(crate) fn take(site: &Site) -> Fallible<Self> {
        let floor = Self(tempfile::tempdir()?);
        site.each(|node| {
            let folder = floor.of(node);
            std::fs::create_dir(&folder)?;
            take(node, FILES, &folder.join("files.tar"))?;
            std::fs::write(folder.join("floor.sh"), SCRIPT)?;
            let running = node.sh("docker ps --format '{{.Names}}'")?;
            for name in COMPONENTS
                .into_iter()
                .filter(|name| running.lines().any(|one| one == *name))
            {
                let inspected = node.sh(&format!("docker inspect {name}"))?;
                let inspected: Value = serde_json::from_str(&inspected)?;
                let container = inspected.get(0).ok_or("docker inspect gave nothing")?;
                std::fs::write(
                    folder.join(format!("run-{name}.sh")),
                    start(name, container),
                )?;
            }
            Ok(())
        })?;
        // Objects are applied from one node.
        let folder = floor.of(site.first());
        std::fs::write(
            folder.join("manifests.json"),
            manifests(&site.kubeconfig(), LABEL)?,
        )?;
        std::fs::copy(site.kubeconfig(), folder.join("admin.kubeconfig"))?;
        std::fs::copy(lab::kubectl()?, folder.join("kubectl"))?;
        Ok(floor)
    }

    fn of(&self, node: &Node) -> PathBuf {
        self.0.path().join(node.name())
    }

    /// The kubeconfig of its clusters, which all have the same certificates.
    pub(crate) fn kubeconfig(&self, site: &Site) -> PathBuf {
        self.of(site.first()).join("admin.kubeconfig")
    }

    /// Puts the files onto the nodes.
    pub(crate) fn prepare(&self, site: &Site) -> Fallible<()> {
        site.each(|node| {
            put(node, &self.of(node), "/root/floor")?;
            node.sh(&format!(
                "tar xf /root/floor/files.tar -C /
                 mkdir -p /var/lib/etcd /var/lib/kubelet && chmod 0700 /var/lib/etcd
                 {LOAD}"
            ))?;
            Ok(())
        })?;
        Ok(())
    }

    /// Starts everything on all nodes at once, and ends when every object is applied.
    pub(crate) fn run(site: &Site) -> Fallible<()> {
        site.each(|node| Ok(node.sh("sh /root/floor/floor.sh").map(drop)?))?;
        Ok(())
    }
}

/// `docker run` for a container as it is, with the quickest flags.
fn start(name: &str, container: &Value) -> String {
    let mut words: Vec<String> = [
        "docker",
        "run",
        "--detach",
        "--network",
        "host",
        "--restart",
        "always",
        "--name",
        name,
    ]
    .map(str::to_owned)
    .to_vec();
    let host = &container["HostConfig"];
    let config = &container["Config"];
    if host["Privileged"] == true {
        words.push("--privileged".to_owned());
    }
    for (flag, value) in [("--pid", "PidMode"), ("--cgroupns", "CgroupnsMode")] {
        if host[value] == "host" {
            words.extend([flag.to_owned(), "host".to_owned()]);
        }
    }
    for (flag, values) in [
        ("--volume", &host["Binds"]),
        ("--security-opt", &host["SecurityOpt"]),
        ("--env", &config["Env"]),
    ] {
        for value in strings(values) {
            words.extend([flag.to_owned(), value]);
        }
    }
    let mut command = strings(&config["Entrypoint"]).into_iter();
    if let Some(program) = command.next() {
        words.extend(["--entrypoint".to_owned(), program]);
    }
    words.push(config["Image"].as_str().unwrap_or_default().to_owned());
    let arguments = command.chain(strings(&config["Cmd"])).collect();
    words.extend(with_best_flags(name, arguments));
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    format!("exec {}\n", quoted.join(" "))
}

fn with_best_flags(name: &str, mut arguments: Vec<String>) -> Vec<String> {
    for (_, flag, value) in BEST.iter().filter(|(of, _, _)| *of == name) {
        arguments.retain(|argument| !argument.starts_with(&format!("--{flag}=")));
        arguments.push(format!("--{flag}={value}"));
    }
    arguments
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The add-ons' objects that a selector finds, as they are, without what the API server keeps about
/// them.
pub(crate) fn manifests(kubeconfig: &Path, selector: &str) -> Fallible<String> {
    let output = Command::new(lab::kubectl()?)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args([
            "get",
            KINDS,
            "--all-namespaces",
            "--selector",
            selector,
            "--output",
            "json",
        ])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let mut list: Value = serde_json::from_slice(&output.stdout)?;
    for item in list["items"].as_array_mut().into_iter().flatten() {
        if let Some(item) = item.as_object_mut() {
            item.remove("status");
        }
        if let Some(metadata) = item["metadata"].as_object_mut() {
            for kept in [
                "managedFields",
                "resourceVersion",
                "uid",
                "creationTimestamp",
                "generation",
            ] {
                metadata.remove(kept);
            }
        }
    }
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": list["items"] }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_flags_stand_in_place_of_others() {
        let have = ["--name=a", "--election-timeout=5000"].map(str::to_owned);
        assert_eq!(
            with_best_flags("etcd", have.to_vec()),
            [
                "--name=a",
                "--heartbeat-interval=100",
                "--election-timeout=1000"
            ]
        );
        let have = ["--v=2"].map(str::to_owned);
        assert_eq!(with_best_flags("kubelet", have.to_vec()), ["--v=2"]);
    }
}

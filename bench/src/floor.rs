//! The floor: what a script on the node needs to start the cluster that `up` made, taken from it.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use lab::{Lab, Node};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Fallible;

/// On a node: certificates, configurations, what is loaded at boot.
const FILES: &str = "/etc/kubernetes /etc/containerd /etc/systemd/system/containerd.service.d \
                     /etc/modules-load.d /etc/sysctl.d";
const SCRIPT: &str = include_str!("floor.sh");
const COMPONENTS: [&str; 6] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
];
const LABEL: &str = "clusterprovisioner.rke.io/addon";
const KINDS: &str = "serviceaccounts,configmaps,services,daemonsets,deployments,clusterroles,\
                     clusterrolebindings,roles,rolebindings";

/// Everything that the floor needs, in a folder of this machine.
pub(crate) struct Floor {
    folder: TempDir,
    address: Ipv4Addr,
}

impl Floor {
    /// From a node on which `up` has just ended.
    pub(crate) fn take(lab: &Lab, kubeconfig: &Path) -> Fallible<Self> {
        let node = lab.node("n1");
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        node.sh(&format!("tar cf /root/files.tar --ignore-failed-read {FILES} 2>/dev/null; test -s /root/files.tar"))?;
        docker(&[
            "cp",
            &format!("{}:/root/files.tar", node.container()),
            &shown(&path("files.tar")),
        ])?;
        for (index, name) in COMPONENTS.iter().enumerate() {
            let inspected = node.sh(&format!("docker inspect {name}"))?;
            let inspected: Value = serde_json::from_str(&inspected)?;
            let container = inspected.get(0).ok_or("docker inspect gave nothing")?;
            std::fs::write(
                path(&format!("run-{index}-{name}.sh")),
                start(name, container),
            )?;
        }
        std::fs::write(path("manifests.json"), manifests(kubeconfig)?)?;
        std::fs::write(path("floor.sh"), SCRIPT)?;
        std::fs::copy(kubeconfig, path("admin.kubeconfig"))?;
        std::fs::copy(lab::kubectl()?, path("kubectl"))?;
        Ok(Self {
            folder,
            address: node.address(),
        })
    }

    /// How long the script takes on a fresh node that has the files.
    pub(crate) fn run(&self, node: &Node) -> Fallible<Duration> {
        if node.address() != self.address {
            // The certificates would not fit.
            return Err(
                format!("the node is at {}, not at {}", node.address(), self.address).into(),
            );
        }
        let target = format!("{}:/root/floor", node.container());
        docker(&["cp", &shown(self.folder.path()), &target])?;
        node.sh(
            "install -m 0755 /root/floor/kubectl /usr/local/bin/kubectl
             tar xf /root/floor/files.tar -C /
             mkdir -p /var/lib/etcd /var/lib/kubelet && chmod 0700 /var/lib/etcd
             for module in $(cat /etc/modules-load.d/*.conf | grep -v '^#'); do modprobe $module || true; done
             sysctl --system > /dev/null 2>&1 || true
             systemctl daemon-reload && systemctl restart containerd && sleep 2",
        )?;
        let took = node.sh("sh /root/floor/floor.sh")?;
        Ok(Duration::from_millis(took.trim().parse()?))
    }
}

/// `docker run` for a container as it is.
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
    words.extend(command);
    words.extend(strings(&config["Cmd"]));
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    format!("exec {}\n", quoted.join(" "))
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The add-ons' objects as they are, without what the API server keeps about them.
fn manifests(kubeconfig: &Path) -> Fallible<String> {
    let output = Command::new(lab::kubectl()?)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args([
            "get",
            KINDS,
            "--all-namespaces",
            "--selector",
            LABEL,
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

fn docker(args: &[&str]) -> Fallible<()> {
    let output = Command::new("docker").args(args).output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!(
            "docker {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        )
        .into())
    }
}

fn shown(path: &Path) -> String {
    PathBuf::from(path).display().to_string()
}

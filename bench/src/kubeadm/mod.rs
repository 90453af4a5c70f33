//! The peer: `kubeadm init` and flannel on a node that has kubelet, kubeadm, kubectl and every image
//! already, as kubeadm's own guide has it prepared. The programs are those that `up` starts, flannel's
//! objects and containerd's configuration those that `up` made.

use std::{io, path::Path, process::Command};

use lab::Images;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    Fallible,
    floor::{LOAD, manifests, take_files},
    site::Site,
};

/// What a guide has people prepare: containerd's configuration, modules and sysctls.
const FILES: &str = "/etc/containerd /etc/systemd/system/containerd.service.d \
                     /etc/modules-load.d /etc/sysctl.d";
const SCRIPT: &str = include_str!("init.sh");
const CONFIG: &str = include_str!("config.yml");
const UNIT: &str = include_str!("kubelet.service");
const FLANNEL: &str = "clusterprovisioner.rke.io/addon=flannel";
const FLANNEL_AND_DNS: &str = "clusterprovisioner.rke.io/addon in (flannel,coredns)";

/// Everything that kubeadm needs, in a folder of this machine.
pub(crate) struct Kubeadm {
    folder: TempDir,
    /// The names under which kubeadm wants its images.
    names: Vec<String>,
}

/// What differs between kubeadm as users run it and at its best.
struct Variant {
    name: &'static str,
    encryption: &'static str,
    /// A node that takes pods as soon as it is there, as that of `up` does.
    taints: &'static str,
    controller_manager: &'static str,
    /// flannel, as `up` has it, reaches the API at an address that kubeadm's certificate lacks.
    api_server: &'static str,
}

const VARIANTS: [Variant; 2] = [
    Variant {
        name: "users",
        encryption: "RSA-2048",
        taints: "",
        controller_manager: "",
        api_server: "",
    },
    Variant {
        name: "best",
        encryption: "ECDSA-P256",
        taints: "  taints: []\n",
        controller_manager: "controllerManager:\n  extraArgs:\n  \
                             - {name: kube-api-qps, value: '200'}\n  \
                             - {name: kube-api-burst, value: '400'}\n",
        api_server: "apiServer:\n  certSANs: [127.0.0.1]\n",
    },
];

impl Kubeadm {
    /// From a node on which `up` has just ended.
    pub(crate) fn take(site: &Site) -> Fallible<Self> {
        let node = site.node();
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        take_files(site, FILES, &path("files.tar"))?;
        let driver = node.sh("sed -n 's/^cgroupDriver: *//p' /etc/kubernetes/kubelet.yaml")?;
        let values = [
            ("ADDRESS", node.address().to_string()),
            ("NODE", node.name().to_owned()),
            ("VERSION", lab::KUBERNETES_VERSION.to_owned()),
            ("CGROUP_DRIVER", driver.trim().trim_matches('"').to_owned()),
        ];
        for variant in &VARIANTS {
            let file = format!("{}.yml", variant.name);
            std::fs::write(path(&file), config(variant, &values))?;
        }
        let flannel = manifests(&site.kubeconfig(), FLANNEL)?;
        std::fs::write(path("users.json"), through_the_service(&flannel)?)?;
        std::fs::write(
            path("best.json"),
            manifests(&site.kubeconfig(), FLANNEL_AND_DNS)?,
        )?;
        std::fs::write(path("init.sh"), SCRIPT)?;
        std::fs::write(path("kubelet.service"), UNIT)?;
        std::fs::copy(lab::kubectl()?, path("kubectl"))?;
        let kubeadm = lab::kubeadm(&mut io::stderr())?;
        std::fs::copy(&kubeadm, path("kubeadm"))?;
        Ok(Self {
            folder,
            names: image_names(&kubeadm)?,
        })
    }

    /// Prepares a fresh node.
    pub(crate) fn prepare(&self, site: &Site, images: &Images) -> Fallible<()> {
        let node = site.node();
        site.put(self.folder.path(), "/root/kubeadm")?;
        for name in &self.names {
            node.load_for_pods(images.program(program(name)?)?, name)?;
        }
        let kubernetes = images.program("kubernetes")?;
        let image = kubernetes.names.first().ok_or("an image without a name")?;
        node.sh(&format!(
            "set -eu; cd /root/kubeadm; install -m 0755 kubeadm kubectl /usr/bin/
             docker create --name kubelet-source {image} kubelet > /dev/null
             docker cp --follow-link kubelet-source:/usr/local/bin/kubelet - | tar x -C /usr/bin
             docker rm kubelet-source > /dev/null
             test -x /usr/bin/kubelet
             install -m 0644 kubelet.service /etc/systemd/system/kubelet.service
             tar xf files.tar -C /
             {LOAD}
             systemctl enable --quiet kubelet"
        ))?;
        Ok(())
    }

    /// Makes the cluster; ends when the commands that a user types have ended.
    pub(crate) fn run(site: &Site, variant: &str) -> Fallible<()> {
        site.node()
            .sh(&format!("sh /root/kubeadm/init.sh {variant}"))?;
        Ok(())
    }
}

/// flannel's objects as its own manifest has them: it reaches the API at the Service's address.
fn through_the_service(objects: &str) -> Fallible<String> {
    let mut list: Value = serde_json::from_str(objects)?;
    for item in list["items"].as_array_mut().into_iter().flatten() {
        let containers = item.pointer_mut("/spec/template/spec/containers");
        let containers = containers.and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(variables) = container.pointer_mut("/env").and_then(Value::as_array_mut) {
                let at_the_node = |name: &str| name.starts_with("KUBERNETES_SERVICE_");
                variables.retain(|variable| !variable["name"].as_str().is_some_and(at_the_node));
            }
        }
    }
    Ok(list.to_string())
}

fn config(variant: &Variant, values: &[(&str, String)]) -> String {
    let parts = [
        ("ENCRYPTION", variant.encryption),
        ("TAINTS\n", variant.taints),
        ("CONTROLLER_MANAGER\n", variant.controller_manager),
        ("API_SERVER\n", variant.api_server),
    ];
    let text = parts.iter().fold(CONFIG.to_owned(), |text, (word, part)| {
        text.replace(word, part)
    });
    values
        .iter()
        .fold(text, |text, (word, value)| text.replace(word, value))
}

fn image_names(kubeadm: &Path) -> Fallible<Vec<String>> {
    let output = Command::new(kubeadm)
        .args(["config", "images", "list", "--kubernetes-version"])
        .arg(lab::KUBERNETES_VERSION)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(names.lines().map(str::to_owned).collect())
}

/// The lab's image that stands in for one of kubeadm's.
fn program(name: &str) -> Fallible<&'static str> {
    let repository = name
        .rsplit_once(':')
        .map_or(name, |(repository, _)| repository);
    match repository.rsplit('/').next() {
        Some("etcd") => Ok("etcd"),
        Some("coredns") => Ok("coredns"),
        Some("pause") => Ok("pause"),
        Some(name) if name.starts_with("kube-") => Ok("kubernetes"),
        _ => Err(format!("the lab has no image for {name}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_of_kubeadm_has_a_stand_in() {
        assert_eq!(
            program("registry.k8s.io/kube-proxy:v1.34.4").unwrap(),
            "kubernetes"
        );
        assert_eq!(
            program("registry.k8s.io/coredns/coredns:v1.12.1").unwrap(),
            "coredns"
        );
        assert_eq!(program("registry.k8s.io/etcd:3.6.5-0").unwrap(), "etcd");
        assert!(program("registry.k8s.io/conformance:v1").is_err());
    }

    #[test]
    fn configurations_are_yaml_without_a_word_left() {
        let values = [
            ("ADDRESS", "10.0.0.1".to_owned()),
            ("NODE", "n1".to_owned()),
            ("VERSION", "v1.34.4".to_owned()),
            ("CGROUP_DRIVER", "systemd".to_owned()),
        ];
        for variant in &VARIANTS {
            let text = config(variant, &values);
            for document in text.split("---\n") {
                let parsed: serde_json::Value = serde_saphyr::from_str(document).unwrap();
                assert!(parsed["kind"].is_string(), "{document}");
            }
            assert!(
                !text.contains("TAINTS") && !text.contains("_DRIVER"),
                "{text}"
            );
        }
    }
}

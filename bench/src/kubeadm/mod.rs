//! The peer: `kubeadm init`, flannel and `kubeadm join` on nodes that have kubelet, kubeadm, kubectl and
//! every image already, as kubeadm's own guide has them prepared. The programs are those that `up`
//! starts, flannel's objects and containerd's configuration those that `up` made.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

use lab::Images;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    Fallible,
    floor::{LOAD, manifests},
    shape::Shape,
    site::{Site, put, take},
};

/// What a guide has people prepare: containerd's configuration, modules and sysctls.
const FILES: &str = "/etc/containerd /etc/systemd/system/containerd.service.d \
                     /etc/modules-load.d /etc/sysctl.d";
const INIT: &str = include_str!("init.sh");
const JOIN: &str = include_str!("join.sh");
const CONFIG: &str = include_str!("config.yml");
const JOINING: &str = include_str!("join.yml");
const UNIT: &str = include_str!("kubelet.service");
const FLANNEL: &str = "clusterprovisioner.rke.io/addon=flannel";
const FLANNEL_AND_DNS: &str = "clusterprovisioner.rke.io/addon in (flannel,coredns)";

/// What makes a node that joins a control plane: RKE's control planes and their etcd in one.
const CONTROL_PLANE: &str = "controlPlane:\n  localAPIEndpoint: {advertiseAddress: ADDRESS}\n  \
                             certificateKey: CERTIFICATE_KEY\n";
/// Chosen beforehand, so that nodes can be about to join before the first one has told them.
const TOKEN: &str = "bench0.0123456789abcdef";
const CERTIFICATE_KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Everything that kubeadm needs, in a folder of this machine.
pub(crate) struct Kubeadm(TempDir);

/// What differs between kubeadm as users run it and at its best.
struct Variant {
    name: &'static str,
    encryption: &'static str,
    /// A node that is all there is takes pods as soon as it is there, as that of `up` does.
    taints_of_one: &'static str,
    controller_manager: &'static str,
}

const VARIANTS: [Variant; 2] = [
    Variant {
        name: "users",
        encryption: "RSA-2048",
        taints_of_one: "",
        controller_manager: "",
    },
    Variant {
        name: "best",
        encryption: "ECDSA-P256",
        taints_of_one: "  taints: []\n",
        controller_manager: "controllerManager:\n  extraArgs:\n  \
                             - {name: kube-api-qps, value: '200'}\n  \
                             - {name: kube-api-burst, value: '400'}\n",
    },
];

impl Kubeadm {
    /// From nodes on which `up` has just ended; they get the images under kubeadm's names.
    pub(crate) fn take(site: &Site, images: &Images) -> Fallible<Self> {
        let first = site.first();
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        take(first, FILES, &path("files.tar"))?;
        let driver = first.sh("sed -n 's/^cgroupDriver: *//p' /etc/kubernetes/kubelet.yaml")?;
        let address = first.address().to_string();
        let values = [
            ("FIRST", address.as_str()),
            ("VERSION", lab::KUBERNETES_VERSION),
            ("CGROUP_DRIVER", driver.trim().trim_matches('"')),
            ("BOOTSTRAP_TOKEN", TOKEN),
            ("CERTIFICATE_KEY", CERTIFICATE_KEY),
        ];
        for (name, text) in configs(site.shape) {
            std::fs::write(path(&name), filled(text, &values))?;
        }
        let flannel = manifests(&site.kubeconfig(), FLANNEL)?;
        std::fs::write(path("users.json"), through(&flannel, None)?)?;
        let both = manifests(&site.kubeconfig(), FLANNEL_AND_DNS)?;
        std::fs::write(path("best.json"), through(&both, Some(&address))?)?;
        std::fs::write(path("init.sh"), INIT)?;
        std::fs::write(path("join.sh"), JOIN)?;
        std::fs::write(path("kubelet.service"), UNIT)?;
        std::fs::copy(lab::kubectl()?, path("kubectl"))?;
        let kubeadm = lab::kubeadm(&mut io::stderr())?;
        std::fs::copy(&kubeadm, path("kubeadm"))?;
        let names = image_names(&kubeadm)?;
        site.each(|node| {
            for name in &names {
                node.load_for_pods(images.program(program(name)?)?, name)?;
            }
            Ok(())
        })?;
        Ok(Self(folder))
    }

    /// Prepares the nodes.
    pub(crate) fn prepare(&self, site: &Site, images: &Images) -> Fallible<()> {
        let kubernetes = images.program("kubernetes")?;
        let image = kubernetes.names.first().ok_or("an image without a name")?;
        site.each(|node| {
            put(node, self.0.path(), "/root/kubeadm")?;
            let joining = if site.shape.is_control_plane(node.name()) {
                "control-plane.yml"
            } else {
                "worker.yml"
            };
            node.sh(&format!(
                "set -eu; cd /root/kubeadm; install -m 0755 kubeadm kubectl /usr/bin/
                 sed -i 's/NODE/{}/; s/ADDRESS/{}/' *.yml; cp {joining} join.yml
                 docker create --name kubelet-source {image} kubelet > /dev/null
                 docker cp --follow-link kubelet-source:/usr/local/bin/kubelet - | tar x -C /usr/bin
                 docker rm kubelet-source > /dev/null
                 test -x /usr/bin/kubelet
                 install -m 0644 kubelet.service /etc/systemd/system/kubelet.service
                 tar xf files.tar -C /
                 {LOAD}
                 systemctl enable --quiet kubelet",
                node.name(),
                node.address(),
            ))?;
            Ok(())
        })?;
        Ok(())
    }

    /// Makes the cluster; ends when the commands that a user types have ended. All other nodes join
    /// together as soon as the first lets them in.
    pub(crate) fn run(site: &Site, variant: &str) -> Fallible<()> {
        let upload = if site.shape.is_one() {
            ""
        } else {
            "--upload-certs"
        };
        site.each(|node| {
            let script = if node.name() == site.first().name() {
                format!("sh /root/kubeadm/init.sh {variant} {upload}")
            } else {
                "sh /root/kubeadm/join.sh".to_owned()
            };
            Ok(node.sh(&script).map(drop)?)
        })?;
        Ok(())
    }

    /// The kubeconfig that it has just written.
    pub(crate) fn kubeconfig(site: &Site) -> Fallible<PathBuf> {
        Ok(site.root()?.join("etc/kubernetes/admin.conf"))
    }
}

/// The add-ons' objects with flannel reaching the API at an address, or at the Service's, as its own
/// manifest has it. `up` has something on each node that leads there; kubeadm has not.
fn through(objects: &str, address: Option<&str>) -> Fallible<String> {
    let mut list: Value = serde_json::from_str(objects)?;
    for item in list["items"].as_array_mut().into_iter().flatten() {
        let containers = item.pointer_mut("/spec/template/spec/containers");
        let containers = containers.and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(variables) = container.pointer_mut("/env").and_then(Value::as_array_mut) {
                let of_the_api = |name: &str| name.starts_with("KUBERNETES_SERVICE_");
                variables.retain(|variable| {
                    address.is_some() || !variable["name"].as_str().is_some_and(of_the_api)
                });
                for variable in variables {
                    if variable["name"] == "KUBERNETES_SERVICE_HOST" {
                        variable["value"] = address.into();
                    }
                }
            }
        }
    }
    Ok(list.to_string())
}

/// kubeadm's files by name: those of each variant, and those of nodes that join.
fn configs(shape: Shape) -> Vec<(String, String)> {
    let of_variant = |variant: &Variant| {
        let taints = if shape.is_one() {
            variant.taints_of_one
        } else {
            ""
        };
        let parts = [
            ("ENCRYPTION", variant.encryption),
            ("TAINTS\n", taints),
            ("CONTROLLER_MANAGER\n", variant.controller_manager),
        ];
        (
            format!("{}.yml", variant.name),
            filled(CONFIG.to_owned(), &parts),
        )
    };
    let joining = [("control-plane.yml", CONTROL_PLANE), ("worker.yml", "")];
    let joining = joining.map(|(name, part)| {
        let text = filled(JOINING.to_owned(), &[("CONTROL_PLANE\n", part)]);
        (name.to_owned(), text)
    });
    VARIANTS.iter().map(of_variant).chain(joining).collect()
}

fn filled(text: String, values: &[(&str, &str)]) -> String {
    let values = values.iter();
    values.fold(text, |text, (word, value)| text.replace(word, value))
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
            ("FIRST", "10.0.0.1"),
            ("ADDRESS", "10.0.0.2"),
            ("NODE", "n2"),
            ("VERSION", "v1.34.4"),
            ("CGROUP_DRIVER", "systemd"),
            ("BOOTSTRAP_TOKEN", TOKEN),
            ("CERTIFICATE_KEY", CERTIFICATE_KEY),
        ];
        for (name, text) in ["1", "5"]
            .into_iter()
            .filter_map(Shape::of)
            .flat_map(configs)
        {
            let text = filled(text, &values);
            for document in text.split("---\n") {
                let parsed: serde_json::Value = serde_saphyr::from_str(document).unwrap();
                assert!(parsed["kind"].is_string(), "{name}: {document}");
            }
            for word in ["TAINTS", "_DRIVER", "CONTROL_", "CONTROLLER_", "ENCRYPTION"] {
                assert!(!text.contains(word), "{name}: {text}");
            }
        }
    }

    #[test]
    fn flannel_goes_where_there_is_an_api() {
        let with = |variables: &Value| serde_json::json!({"items": [{"spec": {"template": {"spec": {"containers": [{"env": variables}]}}}}]});
        let of_up = with(&serde_json::json!([
            {"name": "A", "value": "b"},
            {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
        ]));
        let of_users = with(&serde_json::json!([{"name": "A", "value": "b"}]));
        let at_best = with(&serde_json::json!([
            {"name": "A", "value": "b"},
            {"name": "KUBERNETES_SERVICE_HOST", "value": "10.0.0.1"},
        ]));
        let parsed = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        assert_eq!(parsed(through(&of_up.to_string(), None).unwrap()), of_users);
        assert_eq!(
            parsed(through(&of_up.to_string(), Some("10.0.0.1")).unwrap()),
            at_best
        );
    }
}

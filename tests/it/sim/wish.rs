//! What a user may write: configs that are generated, read and resolved by the product.

use std::sync::OnceLock;

use proptest::prelude::*;
use rke_operator::{
    config::{Intent, RkeConfig, SecretSources},
    model::secret::Secret,
};
use serde_json::{Value, json};

/// The lines of a `cluster.yml` that differ between two wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) cluster: &'static str,
    /// Roles of every node but the first, which has all: bit 0 is etcd, bit 1 the control plane,
    /// and every node without bit 2 is a worker.
    pub(crate) masks: Vec<u8>,
    /// Nodes that the config does not name, by their places from 0.
    pub(crate) without: Vec<usize>,
    pub(crate) build: u8,
    pub(crate) verbosity: u8,
    pub(crate) pause: u8,
    pub(crate) labelled: bool,
    pub(crate) tainted: bool,
    pub(crate) coredns: bool,
}

/// Any wish for these roles.
pub(crate) fn wish(masks: Vec<u8>) -> impl Strategy<Value = Wish> {
    (0..2u8, 2..4u8, 0..2u8, any::<[bool; 3]>()).prop_map(
        move |(build, verbosity, pause, [labelled, tainted, no_coredns])| Wish {
            cluster: "a",
            masks: masks.clone(),
            without: Vec::new(),
            build,
            verbosity,
            pause,
            labelled,
            tainted,
            coredns: !no_coredns,
        },
    )
}

fn key() -> Secret<String> {
    static KEY: OnceLock<String> = OnceLock::new();
    let pem = KEY.get_or_init(|| rcgen::KeyPair::generate().unwrap().serialize_pem());
    Secret::new(pem.clone())
}

fn resolved(config: &Value) -> Intent {
    checked(config).unwrap()
}

fn checked(config: &Value) -> Option<Intent> {
    let config = RkeConfig::from_json(config).unwrap();
    let sources = SecretSources::new("the key", key());
    Some(Intent::from_config(&config, &sources).ok()?.intent)
}

impl Wish {
    /// One node with every role, and nothing out of the ordinary.
    pub(crate) const fn plain() -> Self {
        Self {
            cluster: "a",
            masks: vec![],
            without: vec![],
            build: 0,
            verbosity: 2,
            pause: 0,
            labelled: false,
            tainted: false,
            coredns: true,
        }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.masks.len() + 1
    }

    /// As the product reads it.
    pub(crate) fn intent(&self) -> Intent {
        resolved(&self.config())
    }

    /// The same with some more in the config.
    pub(crate) fn intent_with(&self, more: impl FnOnce(&mut Value)) -> Intent {
        let mut config = self.config();
        more(&mut config);
        resolved(&config)
    }

    /// The same, where it is a config: some node has each role.
    pub(crate) fn checked(&self) -> Option<Intent> {
        checked(&self.config())
    }

    /// The same, where it is a config, with another release.
    pub(crate) fn checked_of(&self, release: &str) -> Option<Intent> {
        let mut config = self.config();
        config["kubernetes_version"] = json!(release);
        config["system_images"] = json!({});
        checked(&config)
    }

    /// The same with another release, or with none, and with the images that go with it.
    pub(crate) fn intent_of(&self, release: Option<&str>) -> Intent {
        let mut config = self.config();
        config["kubernetes_version"] = json!(release);
        config["system_images"] = json!({});
        resolved(&config)
    }

    fn config(&self) -> Value {
        let masks = [3].iter().chain(&self.masks);
        let named = masks
            .enumerate()
            .filter(|(at, _)| !self.without.contains(at));
        let nodes = named.map(|(at, mask)| {
            let mut roles = Vec::new();
            roles.extend((mask & 4 == 0).then_some("worker"));
            roles.extend((mask & 1 == 1).then_some("etcd"));
            roles.extend((mask & 2 == 2).then_some("controlplane"));
            json!({
                "address": format!("192.0.2.{}", at + 1),
                "hostname_override": format!("n{}", at + 1),
                "user": "core",
                "role": roles,
                "labels": if self.labelled { json!({"example.com/zone": "a"}) } else { json!({}) },
                "taints": if self.tainted {
                    json!([{"key": "only", "value": "us", "effect": "NoSchedule"}])
                } else {
                    json!([])
                },
            })
        });
        let verbose = json!({"extra_args": {"v": self.verbosity.to_string()}});
        json!({
            "cluster_name": self.cluster,
            "kubernetes_version": "v1.34.4",
            "nodes": nodes.collect::<Vec<_>>(),
            "network": {"plugin": "flannel"},
            "dns": {"provider": if self.coredns { "coredns" } else { "none" }},
            "ingress": {"provider": "none"},
            "monitoring": {"provider": "none"},
            "system_images": {
                "kubernetes": format!("registry.example.com/kubernetes:v1.34.4-build{}", self.build),
                "pod_infra_container": format!("registry.example.com/pause:3.{}", self.pause),
            },
            "services": {"kube-api": verbose, "kubelet": verbose, "scheduler": verbose},
        })
    }
}

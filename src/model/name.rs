//! Who and where: nodes, their roles and endpoints, clusters, releases. Pure.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A node's Kubernetes name (`hostname_override`, else the address), lower case.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct NodeName(pub String);

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

/// What a node is for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs an etcd member.
    Etcd,
    /// Runs kube-apiserver, kube-controller-manager and kube-scheduler.
    ControlPlane,
    /// Takes workloads.
    Worker,
}

impl Role {
    /// Its name in a config and in labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ControlPlane => "controlplane",
            Self::Worker => "worker",
        }
    }
}

/// Where sshd listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// Host name or address, as the user wrote it.
    pub address: String,
    /// TCP port of sshd.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.port == 22 {
            f.write_str(&self.address)
        } else {
            write!(f, "[{}]:{}", self.address, self.port)
        }
    }
}

/// A random identity that ties state, nodes and labels together (32 hex digits).
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct ClusterId(pub String);

/// A text that is no cluster id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cluster id has 32 hexadecimal digits in lower case")]
pub struct NotAClusterId;

impl std::str::FromStr for ClusterId {
    type Err = NotAClusterId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 32 && text.bytes().all(is_digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAClusterId)
        }
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A supported Kubernetes release, e.g. `1.34.4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KubernetesVersion {
    /// 1.
    pub major: u16,
    /// 34.
    pub minor: u16,
    /// 4.
    pub patch: u16,
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids come from annotations and command lines: whatever is no id is no cluster.
    #[test]
    fn a_cluster_id_has_32_hexadecimal_digits_in_lower_case() {
        let id = "0123456789abcdef".repeat(2);
        assert_eq!(id.parse(), Ok(ClusterId(id.clone())));
        let (short, long) = (&id[1..], format!("{id}0"));
        let no_digit = id.replacen('f', "g", 1);
        let upper = id.to_uppercase();
        let spaced = format!("{short} ");
        // 32 bytes, and fewer characters.
        let wide = format!("{}é", &id[2..]);
        for text in ["", short, &long, &no_digit, &upper, &spaced, &wide] {
            assert_eq!(text.parse::<ClusterId>(), Err(NotAClusterId), "{text:?}");
        }
    }
}

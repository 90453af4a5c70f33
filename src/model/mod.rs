//! The types that all modules share: names, labels, paths, components, specifications. Pure; imports
//! no other module of this crate.

mod address;
mod bundle;
mod change;
mod chart;
mod component;
mod duration;
mod env_var;
mod external_etcd;
mod host_network;
mod identity;
mod image;
pub mod label;
mod linear;
mod log_cause;
mod name;
mod named;
mod names;
mod nearest;
mod objects;
mod owner;
pub mod path;
mod printable;
mod registry;
mod sample;
pub mod secret;
mod shell;
mod size;
mod snapshots;
mod spec;
mod upgrade;
mod wrapped;

pub use address::HostAddress;
pub use bundle::{BundledImage, BundledImages, ImagePlatform};
pub use change::{Field, FieldChange};
pub use chart::{AppliedObject, ChartRecord};
pub use component::*;
pub use duration::go_duration;
pub use env_var::EnvVar;
pub use external_etcd::{EtcdKeyspace, EtcdLook, EtcdPlace, EtcdUrl, ExternalEtcd, keys_below};
pub use host_network::{
    Firewall, HostNetwork, OpenPort, PeerPort, Plugin, PodPackets, Protocol, Range, RangeOf, Reach,
};
pub use identity::*;
pub use image::*;
pub use linear::Linear;
pub use log_cause::{LOG_CAUSE_LINES, log_cause, names_a_flag};
pub use name::*;
pub use named::Named;
pub use names::{ranges, some_ranges};
pub use nearest::{known_names, nearest};
pub use objects::*;
pub use owner::Owner;
pub use printable::{is_printable, printable, printable_lines, quoted, quoted_first};
pub use registry::{
    DOCKER_HUB, Registries, RegistryLogin, is_docker_hub, is_registry, registry_host, registry_of,
};
pub use sample::{Sample, samples};
pub use secret::Secret;
pub use shell::shell_word;
pub use size::megabytes;
pub use snapshots::{AccessKeys, AgentProgram, Bucket, Retention, SnapshotPolicy};
pub use spec::*;
pub use upgrade::*;
pub use wrapped::{wrapped, wrapped_lines};

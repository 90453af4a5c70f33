//! The lab: real nodes, a real Kubernetes and a registry on one machine.
//!
//! A node is a container that behaves as a server: systemd as process 1, OpenSSH, Docker and
//! containerd as services, a disk of its own with a fixed size, a fixed address. The images that
//! the product runs are built from source under their published names, kept in a cache outside the
//! repository, and served by a registry that the nodes use as their mirror, so pulls are pulls.
//!
//! Nodes run Debian 13; others run the release that their lab asks for ([`LabSpec::node_of`]).
//!
//! A lab's registry has the images of one release of Kubernetes; others are built when a lab asks for
//! them ([`LabSpec::release`]). What goes wrong with servers and networks can be done to nodes, and
//! undone ([`Fault`], [`Node::cut_from`], [`Lab::heal`]). Kubernetes' own tests can be run against a
//! cluster of the lab's nodes ([`LabSpec::e2e`], [`Store::e2e_programs`], [`Conformance`]).
//!
//! It may use the machine's Docker, its loop devices and its cache folder, and nothing else. The
//! product knows nothing of it: what Kubernetes needs only on such machines is in [`Lab::overlay`],
//! which [`merge`] puts into a `cluster.yml`.
//!
//! ```no_run
//! use lab::{Lab, LabSpec, Profile};
//!
//! # fn main() -> Result<(), lab::LabError> {
//! let spec = LabSpec::new("example").node("n1", Profile::Plain);
//! let lab = Lab::up(&spec, &mut std::io::stderr())?;
//! assert!(lab.node("n1").ssh("docker ps")?.ok());
//! lab.destroy()
//! # }
//! ```

mod cache;
mod certificates;
mod command;
mod conformance;
mod debian;
mod e2e;
mod error;
mod fault;
mod host;
mod image;
mod labs;
mod line;
mod node;
mod overlay;
mod profile;
mod recipe;
mod registry;
mod release;
mod s3;
mod subnet;
mod suite;

pub use command::Output;
pub use conformance::Conformance;
pub use debian::prometheus;
pub use error::LabError;
pub use fault::Fault;
pub use host::Host;
pub use image::{
    Image, Images, Store, apiserver, etcd, etcd_tool, helm, images, kubeadm, kubectl, old_client,
};
pub use labs::{Lab, LabSpec, NodeSpec, Sweep};
pub use line::Line;
pub use node::{Node, NodeState};
pub use overlay::merge;
pub use profile::Profile;
pub use registry::Registry;
pub use s3::S3;
pub use suite::Suite;

/// The label that everything a lab makes in the machine's Docker bears; its value is the lab's name.
pub const LABEL: &str = "io.rke.lab";

/// The Kubernetes that nodes run if nothing is said: the one whose images are always there.
pub const KUBERNETES_VERSION: &str = "v1.34.4";

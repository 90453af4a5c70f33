//! How the facts are read: hosts in parallel, then the API servers and etcd's members. Reads only; creates nothing on a
//! node, not even for a moment. The measurements of `doctor` (`measure`) may write, and remove what they created.
//!
//! May touch: nodes, API servers, etcd. Must not: decide anything about a cluster.

pub(crate) mod measure;
pub(crate) mod members;
pub mod read;
mod same;
mod traffic;

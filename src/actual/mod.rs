//! What is. [`facts`] are types and [`system`] understands a node's own words (pure); `read` is
//! how they are read (I/O, hosts in parallel).

pub mod facts;
pub mod read;
pub mod system;

pub use facts::*;

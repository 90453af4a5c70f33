//! What is. [`facts`] are types (pure); `read` is how they are read (I/O, hosts in parallel).

pub mod facts;

pub use facts::*;

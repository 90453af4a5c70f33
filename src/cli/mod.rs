//! The command line.

pub mod sources;

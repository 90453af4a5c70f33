//! The command line: arguments in, [`converge`](crate::converge) called, lines or JSON out.
//!
//! May read and write the terminal, the config's folder and `known_hosts`. Must not decide
//! anything about a cluster: that is `plan`.
//!
//! [`args`] declares, [`dispatch`] picks the command, one file a command does it.

pub mod args;
pub mod ask;
pub mod log;
pub mod output;
pub mod report;
pub mod signals;

//! The command line: arguments in, [`converge`](crate::converge) called, lines or JSON out.
//!
//! May read and write the terminal, the config's folder and `known_hosts`. Must not decide
//! anything about a cluster: that is `plan`.
//!
//! [`args`] declares, [`dispatch`](mod@dispatch) picks the command, one file a command does it.

pub mod args;
mod cert;
mod cert_rotate;
mod complete;
mod completion;
mod config;
mod crd;
mod custom_certs;
mod defrag;
mod describe;
pub mod dispatch;
mod doctor;
mod environment;
mod go_flags;
mod handover;
mod images;
mod init;
mod intent;
mod kubeconfig;
pub mod log;
mod man;
mod management;
mod manifests;
mod members;
mod node;
pub mod output;
mod owner;
mod passphrase;
mod plan;
mod print;
pub mod prompt;
mod proxy;
mod recover;
pub mod reference;
mod remove;
pub mod report;
mod rke_state;
mod rotate_key;
mod run;
pub mod run_log;
pub mod session;
mod signals;
mod snapshot;
mod snapshot_agent;
pub mod snapshot_list;
mod snapshot_named;
mod snapshot_restore;
mod snapshot_state;
pub mod sources;
mod ssh_config;
mod state_file;
mod status;
mod status_all;
mod stream;
mod up;
pub mod usage;
mod validate;
mod version;

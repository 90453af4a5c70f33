//! Executor on one node: through its Docker, and as root through one-off helpers whose scripts are
//! next to this file. Helpers run the node's own programs in the node's own namespaces; their
//! container is created from rke-operator's empty image, so they need no registry.

mod chart;
mod claim;
mod clean;
mod containerd;
mod containers;
mod files;
mod helper;
mod images;
mod member;
mod pods;
mod program;
mod reboot;
mod restore;
mod snapshot;
mod system;

pub(super) use chart::render;
pub(super) use claim::{claim, release_claim};
pub(super) use clean::clean;
pub(super) use containerd::{configure_containerd, restore_containerd};
pub(super) use containers::{
    await_age, await_healthy, cause_in_log, keep_container, put_container_back, remove_container,
    remove_kept, run_container, run_missing, stamp, start_again, try_flags,
};
pub(super) use files::{reload_proxy, remove_files, write_files};
pub(super) use helper::node_error;
pub(super) use images::{export, import, import_pause, load, pod_images, pull, remove_images};
pub(super) use member::{join_etcd, remove_member};
pub(super) use pods::pods;
pub(super) use program::prepare;
pub(super) use reboot::reboot;
pub(super) use restore::{put_back, restore, set_aside};
pub(super) use snapshot::save_snapshot;
pub(super) use system::prepare_kernel;

//! The program on each node with etcd that takes recurring snapshots of its member, proves them and prunes them: the
//! container `etcd-rolling-snapshots`, whose program is this one.
//!
//! It needs its own member alone: it goes on when the API, rke-operator and every other node are gone.
//! [`schedule`], [`prune`], [`copies`] and [`record`] decide (pure); [`save`](self), [`prove`](self) and
//! [`copier`](self) act; [`run`] is the loop, and [`take`], [`verify`] and [`delete`] are what a person asks for.
//!
//! May touch: its member's client port, files in its folder and objects in the bucket that say that they are this
//! cluster's. Must not: touch any other file or object there, decide about members, or need other secrets than its
//! certificate's key and the bucket's keys.

mod archive;
mod asked;
mod bucket;
mod client;
mod copier;
pub mod copies;
mod fetch;
mod folder;
mod health;
mod memory;
mod once;
mod program;
mod prove;
pub mod prune;
pub mod record;
mod remote;
mod run;
mod save;
pub mod schedule;
pub mod seek;
pub mod settings;
mod state;

pub use self::{
    asked::{Answer, AskedError, Doing, Taken, delete, take, verify},
    client::{report, reports},
    fetch::{FetchError, fetch},
    health::PORT,
    once::{OnceError, SavedOnce, SnapshotTools, WantedSnapshot, recurring_image, save_once},
    program::own as own_program,
    remote::{OnNode, RemoteError, TAKES},
    run::{Programs, RunError, run},
    state::{DOCUMENT, HeldState, state},
};

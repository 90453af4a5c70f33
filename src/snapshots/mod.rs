//! The program on each node with etcd that takes recurring snapshots of its member, proves them and prunes them: the
//! container `etcd-rolling-snapshots`, whose program is this one.
//!
//! It needs its own member alone: it goes on when the API, rke-operator and every other node are gone.
//! [`schedule`], [`prune`] and [`record`] decide (pure); [`save`](self) and [`prove`](self) act; [`run`] is the loop.
//!
//! May touch: its member's client port, and files in its folder that say that they are this cluster's. Must not: touch
//! any other file there, decide about members, or need another secret than its
//! certificate's key.

mod archive;
mod client;
mod folder;
mod health;
mod program;
mod prove;
pub mod prune;
pub mod record;
mod run;
mod save;
pub mod schedule;
pub mod settings;

pub use self::{
    client::{report, reports},
    health::PORT,
    program::own as own_program,
    run::{Programs, RunError, run},
};

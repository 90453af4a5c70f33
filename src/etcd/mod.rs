//! etcd, as its own members report it: the members, the leader, whether they serve.
//!
//! [`view`] has the facts and what follows from them (pure). [`Client`] speaks to one member through
//! its node's SSH connection and etcd's JSON gateway; [`read()`] asks all of them; [`change`] has
//! the operations on members, each harmless to repeat; [`defrag`] reclaims their unused space;
//! [`snapshot`] saves what one has, and [`Since`] counts what is newer; `backup` is what the program next to a member asks of it;
//! [`external`] looks at an etcd outside of the cluster.
//!
//! May touch: a member's client port. Must not: decide which member comes or goes.

mod backup;
pub mod change;
mod client;
pub mod defrag;
mod error;
pub mod external;
mod external_view;
mod grpc;
mod read;
pub(crate) mod room;
mod since;
pub mod snapshot;
pub mod view;
mod wire;
mod zip;

#[cfg(test)]
mod tests;

pub use backup::{Count, Described};
pub use client::Client;
pub(crate) use client::PORT;
pub use error::EtcdError;
pub use external_view::{ExternalFault, ExternalView};
pub(crate) use read::read_and_tell;
pub use read::{Asked, read};
pub use since::Since;
pub use view::{
    Alarm, AlarmKind, Answer, EtcdView, Member, MemberId, MemberStatus, Quorum, Roster, combine,
    initial_cluster, member_name,
};

//! What the user wrote: `cluster.yml` → [`Intent`]. Pure.

mod intent;

pub use intent::*;

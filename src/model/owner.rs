//! Users and groups, by number. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The owner of a file, or the user that a process runs as. Root by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Owner {
    /// Both are 0.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };

    /// True for root.
    pub fn is_root(&self) -> bool {
        *self == Self::ROOT
    }
}

/// `uid:gid`, as Docker and chown take it.
impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.uid, self.gid)
    }
}

/// What Docker says of a container's user.
impl std::str::FromStr for Owner {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (uid, gid) = text.split_once(':').unwrap_or((text, "0"));
        Ok(Self {
            uid: uid.parse()?,
            gid: gid.parse()?,
        })
    }
}

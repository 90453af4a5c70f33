//! What a key of RKE's schema is: a name, and what may stand under it. Pure data.

/// A key and what may stand under it.
pub(in crate::config) struct Key {
    pub(in crate::config) name: &'static str,
    pub(in crate::config) shape: Shape,
}

/// What may stand under a key.
pub(in crate::config) enum Shape {
    /// `resolve` reads and judges it.
    Read,
    /// A mapping with these keys.
    Map(&'static [Key]),
    /// A list of mappings with these keys.
    Each(&'static [Key]),
    /// Not read yet: passes when empty or written as one of these.
    Later(&'static [&'static str]),
    /// Not read yet: passes only when null, because its mere presence is an order to RKE.
    Never,
    /// A mapping that is not read yet: one problem for the whole of it.
    LaterMap(&'static [Key]),
}

pub(super) const fn read(name: &'static str) -> Key {
    Key {
        name,
        shape: Shape::Read,
    }
}

pub(super) const fn later(name: &'static str, passes: &'static [&'static str]) -> Key {
    Key {
        name,
        shape: Shape::Later(passes),
    }
}

pub(super) const fn map(name: &'static str, keys: &'static [Key]) -> Key {
    Key {
        name,
        shape: Shape::Map(keys),
    }
}

pub(super) const fn later_map(name: &'static str, keys: &'static [Key]) -> Key {
    Key {
        name,
        shape: Shape::LaterMap(keys),
    }
}

/// The values that mean "off" or "not set" for a flag or a number whose default that is.
pub(super) const OFF: &[&str] = &["false"];
pub(super) const ZERO: &[&str] = &["0"];

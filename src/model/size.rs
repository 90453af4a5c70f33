//! Sizes as people read them. Pure.

/// Decimal megabytes, rounded up, as registries count: `45 MB`.
pub fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

//! The instants at which a round of `make soak` kills, and what a pair of `make soak-ha` does: out of
//! `SOAK_SEED`, so that each round is another one and every round can be run again.

use std::time::Duration;

/// A small generator of its own: the same seed gives the same round with any release of any crate.
pub(crate) struct Chance(u64);

impl Chance {
    /// Of this seed.
    pub(crate) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Of the round that `make soak` asks for; `None` outside of it.
    pub(crate) fn of_round() -> Option<Self> {
        let seed = std::env::var("SOAK_SEED").ok()?;
        let seed = seed.parse().expect("SOAK_SEED is a number");
        super::tell(&format!("SOAK_SEED={seed}"));
        Some(Self::of(seed))
    }

    /// A number below `end` (splitmix64; the bias does not matter here).
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }

    /// How long after the start of a step: within it, or within one that follows.
    pub(crate) fn instant(&mut self) -> Duration {
        Duration::from_millis(self.below(1500))
    }
}

//! The ways to make a cluster that are put beside each other.

/// A way to make a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// `rke-operator up`.
    Up,
    /// `kubeadm init`, flannel and `kubeadm join`, as kubeadm's own guide says.
    Kubeadm,
    /// The same with the flags and the order that are known to be quickest.
    KubeadmBest,
    /// A script on each node that has all files already, with the same flags and order.
    Floor,
}

impl Candidate {
    pub(crate) const ALL: [Self; 4] = [Self::Up, Self::Kubeadm, Self::KubeadmBest, Self::Floor];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Up => "`up`",
            Self::Kubeadm => "kubeadm, as users run it",
            Self::KubeadmBest => "kubeadm, at its best",
            Self::Floor => "floor",
        }
    }

    /// What the time of `up` beside it is to be at most.
    pub(crate) fn aim(self) -> Option<f64> {
        match self {
            Self::Up => None,
            Self::Kubeadm | Self::KubeadmBest => Some(0.6),
            Self::Floor => Some(1.2),
        }
    }

    /// The order of a round: who goes first takes turns.
    pub(crate) fn round(number: usize) -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .cycle()
            .skip(number % Self::ALL.len())
            .take(Self::ALL.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_each_once_and_another_one_first() {
        let first: Vec<Candidate> = (1..=4)
            .filter_map(|round| Candidate::round(round).next())
            .collect();
        for candidate in Candidate::ALL {
            assert!(first.contains(&candidate));
            assert_eq!(
                Candidate::round(3)
                    .filter(|other| *other == candidate)
                    .count(),
                1
            );
        }
    }
}

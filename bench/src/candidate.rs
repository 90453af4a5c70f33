//! The ways to make a cluster that are put beside each other.

use crate::shape::Shape;

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
    /// Of several nodes kubeadm is run at its best only: three times five nodes take long enough.
    pub(crate) fn of(shape: Shape) -> &'static [Self] {
        if shape.is_one() {
            &[Self::Up, Self::Kubeadm, Self::KubeadmBest, Self::Floor]
        } else {
            &[Self::Up, Self::KubeadmBest, Self::Floor]
        }
    }

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
    pub(crate) fn round(shape: Shape, number: usize) -> impl Iterator<Item = Self> {
        let all = Self::of(shape);
        let from = number % all.len();
        all.iter().copied().cycle().skip(from).take(all.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_each_once_and_another_one_first() {
        for shape in ["1", "5"].into_iter().filter_map(Shape::of) {
            let all = Candidate::of(shape);
            let first: Vec<Candidate> = (1..=all.len())
                .filter_map(|round| Candidate::round(shape, round).next())
                .collect();
            for candidate in all {
                assert!(first.contains(candidate));
                let third = Candidate::round(shape, 3);
                assert_eq!(third.filter(|other| other == candidate).count(), 1);
            }
        }
    }
}

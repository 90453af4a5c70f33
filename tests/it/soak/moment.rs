//! When a fault strikes, and whom: out of a seed and the steps of a plan. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Pair, Wanted, config::THROUGH, pairs};
use crate::real::{chance::Chance, watch::kind};

/// A step: its title, and the node that it is on if it is on one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) title: String,
    pub(crate) node: Option<String>,
}

/// So long after this step's start this node is struck, and healed when the run has ended or so much later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) place: Place,
    pub(crate) after: Duration,
    pub(crate) victim: String,
    pub(crate) lasts: Duration,
}

/// Shorter than a run waits for a node that is away, about as long, and longer.
const LASTS: [Duration; 3] = [
    Duration::from_secs(20),
    Duration::from_secs(60),
    Duration::from_secs(200),
];

/// The generator of a pair: the same seed gives the same moments, in whatever order pairs are done.
pub(crate) fn chance(seed: u64, pair: Pair) -> Chance {
    let number = pairs().position(|it| it == pair).unwrap_or_default();
    Chance::of(seed.wrapping_mul(1000).wrapping_add(number as u64))
}

/// A kind of step first, then one of that kind: there are far more pulls than joins. Most often the node
/// that the step is on is struck.
pub(crate) fn moment(
    mut chance: Chance,
    steps: &BTreeSet<Place>,
    before: &Wanted,
    after: &Wanted,
) -> Option<Moment> {
    let mut kinds: BTreeMap<String, Vec<&Place>> = BTreeMap::new();
    for place in steps {
        kinds.entry(kind(&place.title)).or_default().push(place);
    }
    let kinds: Vec<Vec<&Place>> = kinds.into_values().collect();
    let of_kind = one_of(&mut chance, &kinds)?;
    let place = *one_of(&mut chance, of_kind)?;
    let nodes = before.nodes().into_iter().chain(after.nodes());
    let nodes: BTreeSet<&str> = nodes.map(|(name, _)| name).collect();
    let nodes: Vec<&str> = nodes.into_iter().filter(|name| *name != THROUGH).collect();
    let own = place.node.as_deref().filter(|name| nodes.contains(name));
    let other = *one_of(&mut chance, &nodes)?;
    let victim = own.filter(|_| chance.below(3) > 0).unwrap_or(other);
    Some(Moment {
        place: place.clone(),
        after: chance.instant(),
        victim: victim.to_owned(),
        lasts: *one_of(&mut chance, &LASTS)?,
    })
}

fn one_of<'a, T>(chance: &mut Chance, all: &'a [T]) -> Option<&'a T> {
    all.get(usize::try_from(chance.below(all.len() as u64)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::{Fault, Operation};

    const PAIR: Pair = Pair {
        operation: Operation::AddMember,
        fault: Fault::Off,
    };

    fn steps() -> BTreeSet<Place> {
        let place = |title: &str, node: Option<&str>| Place {
            title: title.to_owned(),
            node: node.map(str::to_owned),
        };
        let pulls = (0..50).map(|image| place(&format!("pull image-{image}"), Some("n6")));
        let others = [
            place("join etcd", Some("n6")),
            place("replace nginx-proxy", Some(THROUGH)),
            place("save the state", None),
        ];
        pulls.chain(others).collect()
    }

    fn moments() -> Vec<Moment> {
        let (before, after) = (Wanted::default(), PAIR.operation.after(Wanted::default()));
        let of = |seed| moment(chance(seed, PAIR), &steps(), &before, &after).unwrap();
        (0..200).map(of).collect()
    }

    #[test]
    fn every_kind_of_step_is_met_and_every_node_struck_but_the_one_that_is_written_through() {
        let moments = moments();
        let kinds: BTreeSet<String> = moments.iter().map(|it| kind(&it.place.title)).collect();
        assert_eq!(kinds.len(), 4, "{kinds:?}");
        let struck: BTreeSet<&str> = moments.iter().map(|it| it.victim.as_str()).collect();
        assert_eq!(struck, BTreeSet::from(["n1", "n2", "n3", "n6"]));
        let lasts: BTreeSet<Duration> = moments.iter().map(|it| it.lasts).collect();
        assert_eq!(lasts, LASTS.into());
        let own = |it: &&Moment| it.place.node.as_ref() == Some(&it.victim);
        let on_six = |it: &&Moment| it.place.node.as_deref() == Some("n6");
        let (own, all) = (
            moments.iter().filter(own).count(),
            moments.iter().filter(on_six).count(),
        );
        assert!(own * 2 > all && own < all, "{own} of {all}");
    }

    #[test]
    fn a_seed_gives_the_same_moment_again() {
        assert_eq!(moments(), moments());
        let none = Wanted::default();
        assert_eq!(
            moment(chance(1, PAIR), &BTreeSet::new(), &none, &none),
            None
        );
    }
}

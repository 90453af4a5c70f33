//! Which name was probably meant, and which names there are. Pure.

use super::quoted_first;

/// How many names a hint has.
const NAMED: usize = 10;

/// For one who wrote a name that is not known: the one that was probably meant, if only one is most like it, and the names
/// that there are, behind `head` (as `its nodes are`). If there are many, those most like it come first. Empty: there are none.
pub fn known_names<'a>(
    written: &str,
    head: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Vec<String> {
    let least = names
        .clone()
        .filter_map(|name| distance(written, name))
        .min();
    let is_nearest = |name: &&str| least.is_some() && distance(written, name) == least;
    let mut nearest = names.clone().filter(is_nearest);
    let near = nearest.next().filter(|_| nearest.next().is_none());
    let near = near.map(|near| format!("did you mean `{near}`?"));
    let mut all: Vec<&str> = names.collect();
    if all.len() > NAMED {
        all.sort_by_cached_key(|name| strsim::damerau_levenshtein(written, name));
    }
    let all = (!all.is_empty()).then(|| format!("{head} {}", quoted_first(NAMED, all)));
    near.into_iter().chain(all).collect()
}

/// The name that was probably meant.
pub fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .filter_map(|name| Some((distance(written, name)?, name)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How far a name is from what was written; `None`: too far to be meant.
fn distance(written: &str, name: &str) -> Option<usize> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_', '.'], "");
    let (written, plain, most) = (plain(written), plain(name), (name.len() / 3).max(1));
    // No distance is less than that of the lengths, and a long text takes long to compare.
    let may_be = plain.chars().count().abs_diff(written.chars().count()) <= most;
    let distance = may_be.then(|| strsim::damerau_levenshtein(&written, &plain))?;
    (distance <= most).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_known_is_answered_with_those_that_are() {
        let few = ["n1", "n2"];
        assert_eq!(
            known_names("n9", "its nodes are", few.into_iter()),
            ["its nodes are `n1`, `n2`"]
        );
        let different = ["worker-2", "worker-1"];
        assert_eq!(
            known_names("worker1", "its nodes are", different.into_iter()),
            [
                "did you mean `worker-1`?",
                "its nodes are `worker-2`, `worker-1`"
            ]
        );
        assert_eq!(known_names("n9", "its nodes are", [].into_iter()), [""; 0]);
        let many: Vec<String> = (1..=30).map(|n| format!("worker-{n}")).collect();
        let said = known_names(
            "master-27",
            "its nodes are",
            many.iter().map(String::as_str),
        );
        let [all] = said.as_slice() else {
            panic!("{said:?}");
        };
        assert!(all.starts_with("its nodes are `worker-27`, "), "{all}");
        assert!(all.ends_with(" and 20 more"), "{all}");
    }

    #[test]
    fn a_typo_finds_the_name_that_was_meant_and_another_name_none() {
        let names = ["worker-1", "worker-2", "db"];
        for (written, meant) in [
            ("worker1", Some("worker-1")),
            ("Worker-2", Some("worker-2")),
            ("controlplane", None),
        ] {
            assert_eq!(nearest(written, names.into_iter()), meant, "{written}");
        }
    }
}

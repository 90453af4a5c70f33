//! Which name was probably meant. Pure.

/// The name that was probably meant.
pub fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_', '.'], "");
    let written = plain(written);
    let length = written.chars().count();
    names
        .filter_map(|name| {
            let (plain, most) = (plain(name), (name.len() / 3).max(1));
            // No distance is less than that of the lengths, and a long text takes long to compare.
            let may_be = plain.chars().count().abs_diff(length) <= most;
            let distance = may_be.then(|| strsim::damerau_levenshtein(&written, &plain))?;
            (distance <= most).then_some((distance, name))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Durations as Go writes them, which is how Kubernetes' flags and objects have them: `12h`, `1.5s`, `1h30m`. Pure.
//!
//! `kube::core::Duration` reads the same, but panics for what is too long, and people write durations.

use std::time::Duration;

/// Reads a duration that is not negative; `None` for what Go refuses, which is also what does not fit its 292 years.
pub fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, after) = after.split_at(unit.unwrap_or(after.len()));
        total = total.checked_add(nanoseconds(number, unit)?)?;
        rest = after;
    }
    let total = u64::try_from(total).ok()?;
    (total <= i64::MAX.cast_unsigned()).then(|| Duration::from_nanos(total))
}

fn nanoseconds(number: &str, unit: &str) -> Option<u128> {
    let unit: u128 = match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3_600 * 1_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = |text: &str| match text {
        "" => Some(0_u128),
        text => text.parse::<u64>().ok().map(u128::from),
    };
    // More digits than an hour has of nanoseconds say nothing.
    let fraction = fraction.get(..fraction.len().min(13))?;
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let parts = digits(fraction)?.checked_mul(unit)? / scale;
    digits(whole)?.checked_mul(unit)?.checked_add(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("1.5s", Some(1_500)),
            (".5s", Some(500)),
            ("1.s", Some(1_000)),
            ("1h30m", Some(5_400_000)),
            ("72h0m0s", Some(259_200_000)),
            ("+5m", Some(300_000)),
            ("250ms", Some(250)),
            ("5", None),
            ("", None),
            ("-1s", None),
            ("1d", None),
            ("1.2.3s", None),
            (".s", None),
            ("s", None),
            ("1 h", None),
            // Longer than 292 years.
            ("2562048h", None),
            ("99999999999999999999h", None),
            ("9999999999999999999999999999999999h", None),
        ] {
            let wanted = wanted.map(Duration::from_millis);
            assert_eq!(go_duration(text), wanted, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_kube(parts in proptest::collection::vec((0..10_000_u32, 0..6_usize), 1..4)) {
            let units = ["ns", "us", "ms", "s", "m", "h"];
            let parts = parts.iter().map(|(count, unit)| format!("{count}{}", units[*unit]));
            let text = parts.collect::<Vec<_>>().concat();
            let theirs: kube::core::Duration = text.parse().unwrap();
            prop_assert_eq!(go_duration(&text), Some(Duration::from(theirs)));
        }

        #[test]
        fn no_text_is_too_much(text in "[0-9.hmsnu+-]{0,60}") {
            go_duration(&text);
        }
    }
}

#![expect(clippy::disallowed_methods, reason = "it reads the machine's counters")]
//! Looks at the machine before a run: beside other work a figure is worth nothing.

use std::{fs, thread, time::Duration};

use crate::Fallible;

/// How long the processors are watched.
const LOOK: Duration = Duration::from_secs(2);
/// How often, until the machine is quiet.
const TRIES: usize = 15;
/// The share of processor time beyond which the machine is not quiet.
const QUIET: f64 = 0.10;

/// Waits until the machine is quiet, half a minute at most, and gives how busy it was at last.
pub(crate) fn wait_until_quiet() -> Fallible<f64> {
    let mut busy = 1.0;
    for _ in 0..TRIES {
        let before = processors()?;
        thread::sleep(LOOK);
        busy = share(before, processors()?);
        if busy <= QUIET {
            break;
        }
    }
    Ok(busy)
}

pub(crate) fn is_quiet(busy: f64) -> bool {
    busy <= QUIET
}

/// Ticks that were worked and ticks that passed, of all processors together.
fn processors() -> Fallible<(u64, u64)> {
    parsed(&fs::read_to_string("/proc/stat")?).ok_or_else(|| "/proc/stat is not understood".into())
}

fn parsed(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .take(8)
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    let [_, _, _, idle, waiting, ..] = ticks.as_slice() else {
        return None;
    };
    let all: u64 = ticks.iter().sum();
    Some((all - idle - waiting, all))
}

#[expect(clippy::cast_precision_loss, reason = "ticks of two seconds")]
fn share(before: (u64, u64), after: (u64, u64)) -> f64 {
    let worked = after.0.saturating_sub(before.0);
    let all = after.1.saturating_sub(before.1).max(1);
    worked as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_waiting_is_work() {
        let before = parsed("cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 1 1 1\n").unwrap();
        let after = parsed("cpu  30 0 20 130 20 0 0 0 5 0\n").unwrap();
        assert_eq!((before, after), ((20, 100), (50, 200)));
        assert!((share(before, after) - 0.3).abs() < 1e-9);
        assert!(parsed("cpu x").is_none());
    }
}

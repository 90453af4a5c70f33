//! The tables: medians, spreads, and ratios of what was measured beside each other.

use std::{fmt::Write as _, time::Duration};

use crate::{
    candidate::Candidate,
    probe::{Phase, Phases},
};

/// One cluster that was made.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) round: usize,
    pub(crate) candidate: Candidate,
    pub(crate) took: Duration,
    pub(crate) phases: Phases,
    /// How long it took then until each pod reached each.
    pub(crate) reached: Duration,
    /// `up` again, where the candidate has such.
    pub(crate) again: Vec<Duration>,
    /// How busy the machine was before.
    pub(crate) busy: f64,
}

/// What `up` with nothing to do is to take at most, in seconds.
const AIM_AGAIN: f64 = 1.0;

pub(crate) fn tables(candidates: &[Candidate], runs: &[Run]) -> String {
    let of = |candidate: Candidate| -> Vec<&Run> {
        runs.iter()
            .filter(|run| run.candidate == candidate)
            .collect()
    };
    let mut out = String::new();
    let joined = |cell: &dyn Fn(Candidate) -> String| {
        let cells = candidates.iter().copied().map(cell);
        cells.collect::<Vec<_>>().join(" | ")
    };
    let _ = writeln!(
        out,
        "| | {} |",
        joined(&|candidate| candidate.name().to_owned())
    );
    let _ = writeln!(out, "|---|{}", "---|".repeat(candidates.len()));
    let mut row = |name: &str, cell: &dyn Fn(Candidate) -> String| {
        let _ = writeln!(out, "| {name} | {} |", joined(cell));
    };
    for phase in Phase::ALL {
        row(phase.name(), &|candidate| {
            let times = of(candidate)
                .into_iter()
                .filter_map(|run| reached(run, phase));
            shown(median(times.map(seconds).collect()))
        });
    }
    let took = |candidate| {
        of(candidate)
            .into_iter()
            .map(|run| seconds(run.took))
            .collect()
    };
    row("all of it", &|candidate| shown(median(took(candidate))));
    row("spread", &|candidate| spread(&took(candidate)));
    row("`up` compared with it", &|candidate| {
        let ratio = median(ratios(runs, candidate));
        let told = |ratio| format!("{ratio:.2}{}", beside_aim(ratio, candidate.aim()));
        ratio.map_or_else(|| "–".to_owned(), told)
    });
    row("each pod reaches each, from then", &|candidate| {
        let times = of(candidate).into_iter().map(|run| seconds(run.reached));
        shown(median(times.collect()))
    });
    let again = runs.iter().flat_map(|run| &run.again);
    let again: Vec<f64> = again.copied().map(seconds).collect();
    let middle = median(again.clone());
    let _ = writeln!(
        out,
        "\n`up` again, with nothing to do: {} ({}, {} times){}",
        shown(middle),
        spread(&again),
        again.len(),
        middle.map_or_else(String::new, |middle| beside_aim(middle, Some(AIM_AGAIN)))
    );
    out
}

/// What is over its aim is told.
fn beside_aim(value: f64, aim: Option<f64>) -> String {
    aim.filter(|aim| value > *aim)
        .map_or_else(String::new, |aim| format!(", over the aim of {aim:.2}"))
}

fn reached(run: &Run, phase: Phase) -> Option<Duration> {
    run.phases
        .iter()
        .find(|(which, _)| *which == phase)
        .map(|(_, took)| *took)
}

/// The time of `up` by that of another of the same round.
fn ratios(runs: &[Run], candidate: Candidate) -> Vec<f64> {
    let took = |round, candidate| {
        let run = runs
            .iter()
            .find(|run| run.round == round && run.candidate == candidate)?;
        Some(seconds(run.took))
    };
    let rounds = runs.iter().filter(|run| run.candidate == candidate);
    rounds
        .filter_map(|run| Some(took(run.round, Candidate::Up)? / seconds(run.took)))
        .collect()
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn shown(time: Option<f64>) -> String {
    time.map_or_else(|| "–".to_owned(), |time| format!("{time:.2} s"))
}

/// The middle one, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    values
        .get(middle - 1)
        .map(|lower| f64::midpoint(*lower, upper))
}

fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().reduce(f64::min);
    let most = values.iter().copied().reduce(f64::max);
    match (least, most) {
        (Some(least), Some(most)) => format!("{least:.2}–{most:.2} s"),
        _ => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: usize, candidate: Candidate, took: u64) -> Run {
        Run {
            round,
            candidate,
            took: Duration::from_secs(took),
            phases: vec![(Phase::Api, Duration::from_secs(took / 2))],
            reached: Duration::from_secs(1),
            again: vec![],
            busy: 0.0,
        }
    }

    #[test]
    fn ratios_are_of_one_round_and_their_median_counts() {
        // A slow second round slows both: the ratio of medians would be 1.0 here.
        let runs = [
            run(1, Candidate::Up, 10),
            run(1, Candidate::Kubeadm, 20),
            run(2, Candidate::Kubeadm, 80),
            run(2, Candidate::Up, 40),
            run(3, Candidate::Up, 12),
            run(3, Candidate::Kubeadm, 10),
        ];
        assert_eq!(ratios(&runs, Candidate::Kubeadm), [0.5, 0.5, 1.2]);
        assert_eq!(median(ratios(&runs, Candidate::Kubeadm)), Some(0.5));
    }

    #[test]
    fn of_an_even_number_the_median_is_between_the_two_in_the_middle() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn a_table_has_a_row_for_each_phase() {
        let runs = [run(1, Candidate::Up, 10), run(1, Candidate::Floor, 8)];
        let table = tables(
            &[Candidate::Up, Candidate::Kubeadm, Candidate::Floor],
            &runs,
        );
        assert!(
            table.contains("| API ready | 5.00 s | – | 4.00 s |"),
            "{table}"
        );
        assert!(
            table.contains("| `up` compared with it | 1.00 | – | 1.25, over the aim of 1.20 |"),
            "{table}"
        );
    }
}

//! Runs on lines to the nodes that are long. What a run takes longer on one is its round trips one after the other,
//! those that hide behind programs that start left out.

use std::{fmt, time::Duration};

/// How long lines are: none, one to another country, and one to another continent.
pub(crate) const ROUND_TRIPS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(300),
];

/// What one run after the other took on a line of that length.
pub(crate) struct OnLine {
    pub(crate) round_trip: Duration,
    /// A fresh `up`, one with nothing to do, and `remove`.
    pub(crate) took: [Duration; 3],
}

/// The rows of the table: seconds, and round trips beside no delay.
pub(crate) struct Rows<'r>(pub(crate) &'r [OnLine]);

impl fmt::Display for Rows<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            to,
            "| round trip at sshd | fresh `up` | nothing to do | `remove` |"
        )?;
        writeln!(to, "|---|---|---|---|")?;
        let near = self.0.iter().find(|run| run.round_trip.is_zero());
        for OnLine { round_trip, took } in self.0 {
            write!(to, "| {} ms |", round_trip.as_millis())?;
            for (number, time) in took.iter().enumerate() {
                write!(to, " {:.1} s", time.as_secs_f64())?;
                if let Some(near) = near
                    && !round_trip.is_zero()
                {
                    let more = time.as_secs_f64() - near.took[number].as_secs_f64();
                    write!(to, " = {:.0} trips", more / round_trip.as_secs_f64())?;
                }
                write!(to, " |")?;
            }
            writeln!(to)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trips_are_what_a_run_takes_longer() {
        let run = |round_trip, fresh, idle, removed| OnLine {
            round_trip: Duration::from_millis(round_trip),
            took: [fresh, idle, removed].map(Duration::from_millis),
        };
        let rows = Rows(&[run(0, 10_000, 500, 8_000), run(300, 25_000, 4_100, 20_000)]).to_string();
        assert!(rows.contains("| 0 ms | 10.0 s | 0.5 s | 8.0 s |"), "{rows}");
        let far = "| 300 ms | 25.0 s = 50 trips | 4.1 s = 12 trips | 20.0 s = 40 trips |";
        assert!(rows.contains(far), "{rows}");
    }
}

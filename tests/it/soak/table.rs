//! What became of all pairs, for docs/measurements.md. Pure.

use std::fmt::Write as _;

use super::{FAULTS, OPERATIONS, Operation, Pair, Row, name, outcome, pairs};

/// A line for each operation and a column for each fault: runs that it took after the fault, and seconds in
/// all, and whether the fault came when the run had ended already.
pub(crate) fn table(rows: &[Row]) -> String {
    let said: Vec<&Row> = pairs().filter_map(|pair| outcome(rows, pair)).collect();
    let well = said.iter().filter(|row| row.failed.is_none());
    let mut commits: Vec<&str> = rows.iter().map(|row| row.commit.as_str()).collect();
    commits.dedup();
    let mut text = format!(
        "commit {}: {} of {} pairs, {} converged, {} acknowledged writes, {} s\n\n| |",
        commits.join(", "),
        said.len(),
        pairs().count(),
        well.count(),
        said.iter().map(|row| row.writes).sum::<usize>(),
        said.iter().map(|row| row.seconds).sum::<u64>(),
    );
    for fault in FAULTS {
        let _ = write!(text, " {} |", name(&fault));
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(FAULTS.len()));
    for operation in OPERATIONS.into_iter().chain([Operation::Upgrade]) {
        let _ = write!(text, "\n| {} |", name(&operation));
        for fault in FAULTS {
            let row = outcome(rows, Pair { operation, fault });
            let _ = write!(text, " {} |", row.map_or_else(|| "–".to_owned(), cell));
        }
    }
    text
}

fn cell(row: &Row) -> String {
    let Row {
        runs,
        seconds,
        late,
        failed,
        ..
    } = row;
    if failed.is_some() {
        "**FAILED**".to_owned()
    } else {
        let late = if *late { ", late" } else { "" };
        format!("{runs}, {seconds} s{late}")
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::row, *};

    #[test]
    fn each_pair_has_its_cell() {
        let all: Vec<Pair> = pairs().collect();
        let mut other = row(all[7], None);
        other.commit = "def".to_owned();
        other.late = true;
        let rows = [
            row(all[0], Some("a member is missing")),
            row(all[0], None),
            row(all[1], Some("a member is missing")),
            other,
        ];
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[0],
            "commit abc, def: 3 of 50 pairs, 2 converged, 1200 acknowledged writes, 183 s"
        );
        assert_eq!(
            lines[2],
            "| | off | hang | cut-off | docker-restart | reboot | disk-full | kill |"
        );
        assert_eq!(lines[3].matches("---").count(), 8);
        assert_eq!(
            lines[4],
            "| add-worker | 2, 61 s | 2, 61 s, late | – | – | – | – | – |"
        );
        assert_eq!(
            lines[5],
            "| remove-worker | **FAILED** | – | – | – | – | – | – |"
        );
        assert_eq!(lines.len(), 4 + 8);
    }
}

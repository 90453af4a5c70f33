//! What the reports of Kubernetes' conformance tests say, as a table for a document.
//!
//! The tests may run in parts: each run of `e2e.test` leaves a report (ginkgo's JSON) that names all
//! tests, and says of most that it skipped them. What a later report says of a test counts, but for a
//! test that has passed once.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{LabError, cache};

/// The conformance tests by name, with what became of each.
#[derive(Debug, Default)]
pub struct Conformance {
    tests: BTreeMap<String, Test>,
}

/// What became of one test.
#[derive(Debug, Default)]
struct Test {
    passed: bool,
    /// Why it did not pass, each time.
    reasons: Vec<String>,
}

/// The columns of the table.
#[derive(Debug, Default)]
struct Count {
    passed: usize,
    again: usize,
    failed: usize,
    left: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    special_suite_failure_reasons: Option<Vec<String>>,
    spec_reports: Option<Vec<Spec>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    state: String,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

impl Spec {
    fn name(&self) -> String {
        let mut texts = self.container_hierarchy_texts.clone().unwrap_or_default();
        texts.push(self.leaf_node_text.clone());
        texts.join(" ")
    }

    /// In one line why it did not pass, as it says itself.
    fn reason(&self) -> Option<String> {
        let message = &self.failure.as_ref()?.message;
        let line = message
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty())?;
        Some(line.chars().take(200).collect())
    }
}

impl Conformance {
    /// Reads reports, the oldest first.
    pub fn read(paths: &[PathBuf]) -> Result<Self, LabError> {
        let mut all = Self::default();
        for path in paths {
            all.add(path, &cache::read(path)?)?;
        }
        Ok(all)
    }

    fn add(&mut self, path: &Path, text: &str) -> Result<(), LabError> {
        let reports: Vec<Report> = serde_json::from_str(text).map_err(|e| LabError::Content {
            path: path.to_owned(),
            why: e.to_string(),
        })?;
        for report in reports {
            // The run came to its limit: what ran at that moment has not failed.
            let cut = report
                .special_suite_failure_reasons
                .is_some_and(|reasons| reasons.iter().any(|reason| reason.contains("Timeout")));
            for spec in report.spec_reports.unwrap_or_default() {
                let name = spec.name();
                if name.contains("[Conformance]") {
                    self.tests.entry(name).or_default().learn(&spec, cut);
                }
            }
        }
        Ok(())
    }

    /// A regular expression for the tests that have passed; empty if none has.
    pub fn passed(&self) -> String {
        let passed = self.tests.iter().filter(|(_, test)| test.passed);
        let escaped: Vec<String> = passed.map(|(name, _)| escaped(name) + "$").collect();
        escaped.join("|")
    }

    /// The tests that have failed and that no line of a document explains: `` - `name`: why ``.
    pub fn unexplained(&self, document: &Path) -> Result<Vec<&str>, LabError> {
        Ok(self.unexplained_in(&cache::read(document)?))
    }

    fn unexplained_in(&self, document: &str) -> Vec<&str> {
        let failed = self.tests.iter().filter(|(_, test)| test.has_failed());
        failed
            .map(|(name, _)| name.as_str())
            .filter(|name| {
                let start = format!("- `{name}`: ");
                !document.lines().any(|line| line.starts_with(&start))
            })
            .collect()
    }

    /// How many have neither passed nor failed.
    pub fn left(&self) -> usize {
        self.tests.values().filter(|test| test.is_left()).count()
    }

    /// How many have passed or failed.
    pub fn ran(&self) -> usize {
        self.tests.len() - self.left()
    }

    /// The table, and a second one of what has failed at least once.
    pub fn table(&self) -> String {
        let (mut areas, mut all) = (BTreeMap::<&str, Count>::new(), Count::default());
        for (name, test) in &self.tests {
            let area = name.split([' ', ']']).next().unwrap_or(name);
            areas
                .entry(area.trim_start_matches('['))
                .or_default()
                .add(test);
            all.add(test);
        }
        let mut text = String::from(HEAD);
        for (area, count) in areas.into_iter().chain([("**all**", all)]) {
            let Count {
                passed,
                again,
                failed,
                left,
            } = count;
            let tests = passed + failed + left;
            // Writing to a text does not fail.
            let _ = writeln!(
                text,
                "| {area} | {tests} | {passed} | {again} | {failed} | {left} |"
            );
        }
        let reasons = self
            .tests
            .iter()
            .filter(|(_, test)| !test.reasons.is_empty());
        for (place, (name, test)) in reasons.enumerate() {
            if place == 0 {
                text.push_str(REASONS);
            }
            let then = if test.passed { "then passed" } else { "failed" };
            let [name, reasons] =
                [name, &test.reasons.join("; ")].map(|one| one.replace('|', "\\|"));
            let _ = writeln!(text, "| `{name}` | {then} | {reasons} |");
        }
        text
    }
}

const HEAD: &str = "| Area | Tests | Passed | of these not at once | Failed | Not run |\n\
                    |---|---|---|---|---|---|\n";

const REASONS: &str = "\n| What failed | | Why, in the test's own words |\n|---|---|---|\n";

impl Test {
    fn learn(&mut self, spec: &Spec, cut: bool) {
        match spec.state.as_str() {
            "passed" => self.passed = true,
            "timedout" if cut => {}
            "failed" | "panicked" | "timedout" => {
                let reason = spec.reason().unwrap_or_else(|| spec.state.clone());
                self.reasons.push(reason);
            }
            // A test that skips itself gives a reason; one that the filters left out gives none.
            "skipped" => self
                .reasons
                .extend(spec.reason().map(|why| format!("skipped: {why}"))),
            _ => {}
        }
    }

    fn has_failed(&self) -> bool {
        !self.passed && !self.reasons.is_empty()
    }

    fn is_left(&self) -> bool {
        !self.passed && self.reasons.is_empty()
    }
}

impl Count {
    fn add(&mut self, test: &Test) {
        self.passed += usize::from(test.passed);
        self.again += usize::from(test.passed && !test.reasons.is_empty());
        self.failed += usize::from(test.has_failed());
        self.left += usize::from(test.is_left());
    }
}

/// A text as a regular expression that fits nothing else.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(specs: &[(&str, &str, &str)], ends: &str) -> String {
        let specs: Vec<_> = specs
            .iter()
            .map(|(name, state, message)| {
                let failure =
                    (!message.is_empty()).then(|| serde_json::json!({"Message": message}));
                serde_json::json!({
                    "ContainerHierarchyTexts": ["[sig-a] Some", "thing"],
                    "LeafNodeText": name,
                    "State": state,
                    "Failure": failure,
                })
            })
            .collect();
        let ends = (!ends.is_empty()).then(|| vec![ends]);
        serde_json::json!([{"SpecialSuiteFailureReasons": ends, "SpecReports": specs}]).to_string()
    }

    fn read(reports: &[String]) -> Conformance {
        let mut all = Conformance::default();
        for text in reports {
            all.add(Path::new("report.json"), text).unwrap();
        }
        all
    }

    const A: &str = "runs (once) [Conformance]";
    const B: &str = "stops [Conformance]";
    const C: &str = "waits [Conformance]";

    fn two_runs() -> Conformance {
        let first = [
            (A, "failed", "\n  no a|b\nmore"),
            (B, "failed", "no"),
            (C, "skipped", ""),
            ("other", "failed", "not a conformance test"),
        ];
        let second = [
            (A, "passed", ""),
            (B, "failed", "again no"),
            (C, "timedout", "cut"),
        ];
        read(&[report(&first, ""), report(&second, "Suite Timeout Elapsed")])
    }

    #[test]
    fn what_a_later_run_says_is_added() {
        assert_eq!(
            two_runs().table(),
            "| Area | Tests | Passed | of these not at once | Failed | Not run |\n\
             |---|---|---|---|---|---|\n\
             | sig-a | 3 | 1 | 1 | 1 | 1 |\n\
             | **all** | 3 | 1 | 1 | 1 | 1 |\n\
             \n| What failed | | Why, in the test's own words |\n|---|---|---|\n\
             | `[sig-a] Some thing runs (once) [Conformance]` | then passed | no a\\|b |\n\
             | `[sig-a] Some thing stops [Conformance]` | failed | no; again no |\n"
        );
        assert_eq!(two_runs().left(), 1);
    }

    #[test]
    fn what_has_passed_is_not_run_again() {
        assert_eq!(read(&[]).passed(), "");
        assert_eq!(
            two_runs().passed(),
            r"\[sig-a\] Some thing runs \(once\) \[Conformance\]$"
        );
    }

    #[test]
    fn a_line_of_the_document_explains_a_failure_and_the_table_does_not() {
        let runs = two_runs();
        let name = "[sig-a] Some thing stops [Conformance]";
        assert_eq!(runs.unexplained_in(&runs.table()), [name]);
        assert!(
            runs.unexplained_in(&format!("- `{name}`: a reason\n"))
                .is_empty()
        );
    }

    #[test]
    fn a_test_that_skips_itself_has_to_be_explained() {
        let runs = read(&[report(&[(A, "skipped", "one node is too few")], "")]);
        assert_eq!(runs.unexplained_in("").len(), 1);
        assert!(runs.table().contains("skipped: one node is too few"));
    }
}

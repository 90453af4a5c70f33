//! Watches a run of the binary by its events: kills it on its way and tells a killed run from one that had
//! ended by itself, or notes what it takes away meanwhile.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    ops::Range,
    os::unix::process::ExitStatusExt,
    process::{Child, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::Site;

/// A kill that met a living run.
#[derive(Debug)]
pub(crate) struct Kill {
    /// The step that the kill was aimed at.
    pub(crate) title: String,
    /// Whether that step was still under way.
    pub(crate) within: bool,
}

/// What became of a run that was watched, and when it replaced or removed something of a node.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) status: i32,
    /// The last lines that it printed.
    pub(crate) last: Vec<String>,
    pub(crate) replaced: BTreeMap<String, Vec<Range<Instant>>>,
}

/// A step that has a kill coming.
struct Doomed {
    title: String,
    id: Value,
    at: Instant,
    over: bool,
}

impl Site {
    /// Starts `args` with `-o json` and kills it (SIGKILL) as long after a step's start as `fatal`
    /// says of its title, if it says so. `None` when the run got to its end before that, which must
    /// be a good one.
    pub(crate) fn kill_when(
        &self,
        args: &[&str],
        fatal: impl FnMut(&str) -> Option<Duration>,
    ) -> Option<Kill> {
        let mut args = args.to_vec();
        args.extend(["-o", "json"]);
        let mut child = self
            .command(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let lines = lines_of(&mut child);
        watch(&mut child, &lines, fatal)
    }

    /// Runs `args` with `-o json` to the end, and says of each node from when to when something of it was
    /// taken away: until it was healthy again.
    pub(crate) fn watched(&self, args: &[&str]) -> Watched {
        let mut args = args.to_vec();
        args.extend(["-o", "json"]);
        let mut child = self
            .command(&args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let lines = lines_of(&mut child);
        let mut watched = Watched {
            status: -1,
            last: Vec::new(),
            replaced: BTreeMap::new(),
        };
        for line in lines {
            watched.heed(&line);
            watched.last.push(line);
            let more = watched.last.len().saturating_sub(20);
            watched.last.drain(..more);
        }
        let status = child.wait().expect("the run is gone");
        watched.status = status.code().unwrap_or(-1);
        watched
    }
}

impl Watched {
    fn heed(&mut self, line: &str) {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let (Some(node), Some(title)) = (event["target"]["Host"].as_str(), event["title"].as_str())
        else {
            return;
        };
        let takes_away = ["replace ", "remove "]
            .iter()
            .any(|word| title.starts_with(word));
        let gives_back = title.ends_with(" to be healthy");
        let spans = self.replaced.entry(node.to_owned()).or_default();
        let now = Instant::now();
        match event["event"].as_str() {
            Some("stepStarted") if takes_away => spans.push(now..now),
            Some("stepFinished") if takes_away || gives_back => {
                if let Some(span) = spans.last_mut() {
                    span.end = now;
                }
            }
            _ => {}
        }
    }
}

/// What the run prints, read on even while nobody listens, so that the run never waits for us.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let stdout = child.stdout.take().expect("stdout is piped");
    let (say, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if say.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

fn watch(
    child: &mut Child,
    lines: &Receiver<String>,
    mut fatal: impl FnMut(&str) -> Option<Duration>,
) -> Option<Kill> {
    let mut doomed: Option<Doomed> = None;
    let mut last = String::new();
    let far = Duration::from_secs(3600);
    loop {
        let left = doomed.as_ref().map_or(far, |doomed| {
            doomed.at.saturating_duration_since(Instant::now())
        });
        let killed = match lines.recv_timeout(left) {
            Ok(line) => {
                heed(&line, &mut doomed, &mut fatal);
                last = line;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {
                child.kill().expect("the signal is sent");
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
        };
        let status = child.wait().expect("the run is gone");
        if killed && status.signal() == Some(9) {
            // What it said before it died may not have been read yet.
            for line in lines {
                heed(&line, &mut doomed, &mut |_: &str| None);
            }
            return doomed.map(|doomed| Kill {
                title: doomed.title,
                within: !doomed.over,
            });
        }
        assert!(
            status.success(),
            "a run after a kill ended with {status}: {last}"
        );
        return None;
    }
}

/// Notes the start of a step that is to be the last, and its end.
fn heed(line: &str, doomed: &mut Option<Doomed>, fatal: &mut impl FnMut(&str) -> Option<Duration>) {
    let Ok(event) = serde_json::from_str::<Value>(line) else {
        return;
    };
    match (event["event"].as_str(), &mut *doomed) {
        (Some("stepStarted"), None) => {
            let title = event["title"].as_str().expect("a title");
            *doomed = fatal(title).map(|instant| Doomed {
                title: title.to_owned(),
                id: event["id"].clone(),
                at: Instant::now() + instant,
                over: false,
            });
        }
        (Some("stepFinished"), Some(doomed)) if doomed.id == event["id"] => doomed.over = true,
        _ => {}
    }
}

/// A process that prints as `up -o json` does, for what is tested without a lab.
#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const STEP: &str = r#"
        echo '{"event":"stepStarted","id":{"stage":0,"step":0},"title":"first"}'
        sleep 0.1
        echo '{"event":"stepFinished","id":{"stage":0,"step":0},"title":"first"}'
    "#;

    fn killed(script: &str, after: Duration) -> Option<Kill> {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines_of(&mut child);
        watch(&mut child, &lines, |_| Some(after))
    }

    #[test]
    fn a_run_that_had_ended_is_not_taken_for_a_killed_one() {
        assert!(killed(STEP, Duration::from_secs(5)).is_none());
    }

    #[test]
    fn a_kill_within_a_step_is_told_from_one_after_it() {
        let script = format!("{STEP} exec sleep 60");
        let kill = killed(&script, Duration::ZERO).unwrap();
        assert_eq!((kill.title.as_str(), kill.within), ("first", true));
        assert!(!killed(&script, Duration::from_secs(1)).unwrap().within);
    }

    #[test]
    #[should_panic(expected = "ended with exit status: 3")]
    fn a_run_that_fails_fails_the_test() {
        killed("exit 3", Duration::ZERO);
    }
}

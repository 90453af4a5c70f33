//! Kills a run of the binary on its way, and tells a killed run from one that had ended by itself.

use std::{
    io::{BufRead, BufReader},
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

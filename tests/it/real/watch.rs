//! Watches a run of the binary by its events: kills it on its way and tells a killed run from one that had
//! ended by itself, does something else on its way, or notes what it takes away meanwhile.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Write as _},
    ops::Range,
    os::unix::process::ExitStatusExt,
    path::Path,
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
    /// The steps that began between the start of that one and the kill.
    pub(crate) begun: Vec<String>,
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
    begun: Vec<String>,
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

    /// Runs `args` with `-o json` to its end, with what it says in files of this folder; gives its exit code
    /// unless a signal ended it. As long after a step's start as `when` says of its title and its node,
    /// `acts` is called, and again each time that it asks for.
    pub(crate) fn disturbed(
        &self,
        args: &[&str],
        folder: &Path,
        mut when: impl FnMut(&str, Option<&str>) -> Option<Duration>,
        mut acts: impl FnMut(&mut Child) -> Option<Instant>,
    ) -> Option<i32> {
        let file = |name: &str| File::create(folder.join(name)).expect("a file");
        let mut events = file("events.jsonl");
        let mut args = args.to_vec();
        args.extend(["-o", "json"]);
        let mut child = self
            .command(&args)
            .stdout(Stdio::piped())
            .stderr(file("stderr"))
            .spawn()
            .expect("the binary starts");
        let (mut met, mut alarm) = (false, None::<Instant>);
        follow(&lines_of(&mut child), |line| {
            if let Some(line) = line {
                writeln!(events, "{line}").expect("the event is written");
                if !met && let Some(after) = started(line, &mut when) {
                    met = true;
                    alarm = Some(Instant::now() + after);
                }
            } else if alarm.is_some() {
                alarm = acts(&mut child);
            }
            alarm
        });
        child.wait().expect("the run is gone").code()
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

/// What is done on several images, nodes or members is one kind of step.
pub(crate) fn kind(title: &str) -> String {
    let mut words = title.split(' ');
    match words.next() {
        Some(first @ ("pull" | "import")) => first.to_owned(),
        _ => title
            .chars()
            .filter(|letter| !letter.is_ascii_digit())
            .collect(),
    }
}

/// What is said of a step that begins: of its title, and of the node that it is on if it is on one.
fn started<T>(line: &str, say: impl FnOnce(&str, Option<&str>) -> Option<T>) -> Option<T> {
    let event: Value = serde_json::from_str(line).ok()?;
    let begins = event["event"] == "stepStarted";
    let title = event["title"].as_str().filter(|_| begins)?;
    say(title, event["target"]["Host"].as_str())
}

/// Reads what a run prints until it ends. `hears` is given each line, and nothing at the time that it
/// asked for last.
fn follow(lines: &Receiver<String>, mut hears: impl FnMut(Option<&str>) -> Option<Instant>) {
    let far = Duration::from_secs(3600);
    let mut alarm: Option<Instant> = None;
    loop {
        let left = alarm.map_or(far, |at| at.saturating_duration_since(Instant::now()));
        alarm = match lines.recv_timeout(left) {
            Ok(line) => hears(Some(&line)),
            Err(RecvTimeoutError::Timeout) => hears(None),
            Err(RecvTimeoutError::Disconnected) => return,
        };
    }
}

fn watch(
    child: &mut Child,
    lines: &Receiver<String>,
    mut fatal: impl FnMut(&str) -> Option<Duration>,
) -> Option<Kill> {
    let mut doomed: Option<Doomed> = None;
    let (mut last, mut killed) = (String::new(), false);
    // What it said before it died is read after that, too.
    follow(lines, |line| {
        if let Some(line) = line {
            heed(line, &mut doomed, &mut fatal);
            line.clone_into(&mut last);
        } else if doomed.is_some() {
            child.kill().expect("the signal is sent");
            killed = true;
        }
        let doomed = doomed.as_ref().filter(|_| !killed);
        doomed.map(|doomed| doomed.at)
    });
    let status = child.wait().expect("the run is gone");
    if killed && status.signal() == Some(9) {
        return doomed.map(|doomed| Kill {
            title: doomed.title,
            within: !doomed.over,
            begun: doomed.begun,
        });
    }
    assert!(
        status.success(),
        "a run after a kill ended with {status}: {last}"
    );
    None
}

/// Notes the start of a step that is to be the last, its end, and which others begin meanwhile.
fn heed(line: &str, doomed: &mut Option<Doomed>, fatal: &mut impl FnMut(&str) -> Option<Duration>) {
    let Ok(event) = serde_json::from_str::<Value>(line) else {
        return;
    };
    let title = || event["title"].as_str().expect("a title");
    match (event["event"].as_str(), &mut *doomed) {
        (Some("stepStarted"), None) => {
            let title = title();
            *doomed = fatal(title).map(|instant| Doomed {
                title: title.to_owned(),
                id: event["id"].clone(),
                at: Instant::now() + instant,
                over: false,
                begun: Vec::new(),
            });
        }
        (Some("stepStarted"), Some(doomed)) => doomed.begun.push(title().to_owned()),
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
    fn what_begins_before_the_kill_is_told_too() {
        let script = format!("{STEP} {} exec sleep 60", STEP.replace("first", "second"));
        let kill = killed(&script, Duration::from_secs(1)).unwrap();
        assert_eq!(
            (kill.title.as_str(), kill.begun),
            ("first", vec!["second".to_owned()])
        );
    }

    #[test]
    fn of_a_step_that_begins_title_and_node_are_told() {
        let say =
            |title: &str, node: Option<&str>| Some((title.to_owned(), node.map(str::to_owned)));
        let line = r#"{"event":"stepStarted","target":{"Host":"n1"},"title":"run etcd"}"#;
        let told = Some(("run etcd".to_owned(), Some("n1".to_owned())));
        assert_eq!(started(line, say), told);
        let line = r#"{"event":"stepStarted","target":"Cluster","title":"drain n1"}"#;
        assert_eq!(started(line, say), Some(("drain n1".to_owned(), None)));
        assert_eq!(started(&line.replace("Started", "Finished"), say), None);
    }

    #[test]
    fn of_several_images_or_nodes_there_is_one_kind() {
        assert_eq!(kind("pull nginx:1.26"), kind("pull etcd"));
        assert_eq!(kind("join etcd-n2"), kind("join etcd-n13"));
        assert_ne!(kind("run kubelet"), kind("run kube-proxy"));
    }

    #[test]
    #[should_panic(expected = "ended with exit status: 3")]
    fn a_run_that_fails_fails_the_test() {
        killed("exit 3", Duration::ZERO);
    }
}

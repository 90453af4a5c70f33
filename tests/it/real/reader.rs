//! Whoever asks a Service all the while, from a node, over a new connection each time.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

use lab::Node;

use super::{Site, tell};

/// How requests ended, one more try allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) requests: usize,
    /// Answered by the second try only.
    pub(crate) again: usize,
    pub(crate) failed: usize,
}

impl Answers {
    fn count(&mut self, line: &str, node: &str) {
        self.requests += 1;
        match line {
            "ok" => {}
            "again" => self.again += 1,
            _ => {
                tell(&format!("a request from {node} failed twice: {line}"));
                self.failed += 1;
            }
        }
    }
}

/// Asks from one node until it is dropped.
pub(crate) struct Reader {
    ssh: Child,
    counts: Option<JoinHandle<()>>,
    answers: Arc<Mutex<Answers>>,
}

impl Reader {
    /// Asks `http://{address}/`.
    pub(crate) fn start(site: &Site, node: &Node, address: &str) -> Self {
        let ask = format!("curl -sSf -o /dev/null -m 2 http://{address}/");
        Self::asking(site, node, &ask)
    }

    /// Asks by a command, which says why it fails.
    pub(crate) fn asking(site: &Site, node: &Node, ask: &str) -> Self {
        let script = format!(
            "while :; do if {ask} 2>/dev/null; then echo ok; \
             elif said=$({ask} 2>&1); then echo again; else echo \"$said\"; fi; sleep 0.3; done"
        );
        let mut ssh = site
            .ssh(node)
            .arg(script)
            .stdout(Stdio::piped())
            .spawn()
            .expect("ssh starts");
        let said = BufReader::new(ssh.stdout.take().expect("it is piped"));
        let answers = Arc::<Mutex<Answers>>::default();
        let (counted, name) = (Arc::clone(&answers), node.name().to_owned());
        let counts = thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                counted.lock().expect("nobody fails").count(&line, &name);
            }
        });
        Self {
            ssh,
            counts: Some(counts),
            answers,
        }
    }

    /// How the requests ended since this was asked last.
    pub(crate) fn answers(&self) -> Answers {
        std::mem::take(&mut *self.answers.lock().expect("nobody fails"))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
        if let Some(counts) = self.counts.take() {
            let _ = counts.join();
        }
    }
}

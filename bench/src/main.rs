#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
//! `make bench`: how long a fresh `up` of one node takes, beside kubeadm (as users run it, and at
//! its best) and beside a floor: the same programs started by a script on the node itself. Each on a
//! node that was made a moment ago and has every image; interleaved, so that a slow minute hits all.

mod candidate;
mod count;
mod floor;
mod kubeadm;
mod load;
mod probe;
mod report;
mod site;

use std::{
    env,
    error::Error,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use candidate::Candidate;
use floor::Floor;
use kubeadm::Kubeadm;
use lab::Images;
use probe::Probe;
use report::Run;
use site::Site;

type Fallible<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Fallible<()> {
    let binary = env::args()
        .nth(1)
        .ok_or("usage: bench PATH-OF-RKE-OPERATOR [ROUNDS]")?;
    let binary = PathBuf::from(binary).canonicalize()?;
    let rounds: usize = env::args().nth(2).map_or(Ok(5), |rounds| rounds.parse())?;
    let images = lab::images(&mut io::stderr())?;

    println!("warming up: one run to take files from, and to count requests");
    let (others, counts) = first(&binary, &images)?;
    println!("{counts}");

    let mut runs = Vec::new();
    for round in 1..=rounds {
        for candidate in Candidate::round(round) {
            let run = others.measure(&binary, &images, round, candidate)?;
            let busy = if load::is_quiet(run.busy) {
                ""
            } else {
                "; the machine was busy before"
            };
            println!(
                "round {round}  {:<26} {:>6.2} s{busy} ({:.0} %)",
                candidate.name(),
                run.took.as_secs_f64(),
                run.busy * 100.0
            );
            runs.push(run);
        }
    }
    println!("\n{}\n{counts}", report::tables(&runs));
    let busy = runs.iter().filter(|run| !load::is_quiet(run.busy)).count();
    if busy > 0 {
        println!(
            "{busy} of {} runs began on a busy machine: measure again",
            runs.len()
        );
    }
    Ok(())
}

/// What the ways beside `up` need, taken from a cluster that `up` made.
struct Others {
    floor: Floor,
    kubeadm: Kubeadm,
}

impl Others {
    /// Makes a cluster on a fresh node in one way, and takes the node down.
    fn measure(
        &self,
        binary: &Path,
        images: &Images,
        round: usize,
        candidate: Candidate,
    ) -> Fallible<Run> {
        let site = Site::new(images)?;
        match candidate {
            Candidate::Up => {}
            Candidate::Kubeadm | Candidate::KubeadmBest => self.kubeadm.prepare(&site, images)?,
            Candidate::Floor => self.floor.prepare(&site)?,
        }
        let busy = load::wait_until_quiet()?;
        let begun = Instant::now();
        let probe = Probe::start(begun, site.root()?, site.node().address());
        match candidate {
            Candidate::Up => site.up(binary).map(drop)?,
            Candidate::Kubeadm => Kubeadm::run(&site, "users")?,
            Candidate::KubeadmBest => Kubeadm::run(&site, "best")?,
            Candidate::Floor => Floor::run(&site)?,
        }
        let ended = begun.elapsed();
        let phases = probe.end()?;
        let took = phases.iter().map(|(_, at)| *at).fold(ended, Duration::max);
        let again = match candidate {
            Candidate::Up => Some(site.up(binary)?),
            Candidate::Kubeadm | Candidate::KubeadmBest | Candidate::Floor => None,
        };
        site.lab.destroy()?;
        Ok(Run {
            round,
            candidate,
            // `up` waits for more than is looked at from outside: its end is its exit.
            took: if candidate == Candidate::Up {
                ended
            } else {
                took
            },
            phases,
            again,
            busy,
        })
    }
}

/// The run that is not timed: what it asks of the node is counted there, and the other ways' files
/// are taken from what it made.
fn first(binary: &Path, images: &Images) -> Fallible<(Others, String)> {
    let site = Site::new(images)?;
    let node = site.node();
    let counts = count::around(node, "a fresh `up`", || site.up(binary).map(drop))?
        + &count::around(node, "`up` with nothing to do", || {
            site.up(binary).map(drop)
        })?;
    let others = Others {
        floor: Floor::take(&site)?,
        kubeadm: Kubeadm::take(&site)?,
    };
    site.lab.destroy()?;
    Ok((others, counts))
}

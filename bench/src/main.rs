#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
//! `make bench` and `make bench-ha`: how long a fresh `up` of one node and of five takes, beside kubeadm
//! (as users run it, and at its best) and beside a floor: the same programs started by a script on the
//! nodes themselves. Each on nodes that have every image and nothing else; interleaved, so that a slow
//! minute hits all.

mod candidate;
mod count;
mod floor;
mod kubeadm;
mod line;
mod load;
mod probe;
mod reach;
mod report;
mod shape;
mod site;

use std::{
    env,
    error::Error,
    io,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use candidate::Candidate;
use floor::Floor;
use kubeadm::Kubeadm;
use lab::Images;
use line::{OnLine, ROUND_TRIPS, Rows};
use probe::Probe;
use report::Run;
use shape::Shape;
use site::Site;

/// How often `up` has nothing to do in each round.
const AGAIN: usize = 5;

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
    let words: Vec<String> = env::args().skip(1).collect();
    let [binary, nodes, rounds] = words.as_slice() else {
        return Err("usage: bench PATH-OF-RKE-OPERATOR 1|5 ROUNDS".into());
    };
    let shape = Shape::of(nodes).ok_or("a cluster of one node or of five")?;
    let rounds: usize = rounds.parse()?;
    let images = lab::images(&mut io::stderr())?;
    lab::kubeadm(&mut io::stderr())?;

    println!("{shape}\nwarming up: one run to take files from, and to count requests");
    let (mut bench, counts) = Bench::new(PathBuf::from(binary).canonicalize()?, shape, images)?;
    println!("{counts}");

    let mut runs = Vec::new();
    for round in 1..=rounds {
        for candidate in Candidate::round(shape, round) {
            let run = bench.measure(round, candidate)?;
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
    println!("on lines of some length");
    let lines = ROUND_TRIPS.map(|round_trip| bench.on_a_line(round_trip));
    let lines: Vec<OnLine> = lines.into_iter().collect::<Fallible<_>>()?;
    bench.site.lab.destroy()?;
    println!(
        "\n{}\n{counts}\n{}",
        report::tables(Candidate::of(shape), &runs),
        Rows(&lines)
    );
    let busy = runs.iter().filter(|run| !load::is_quiet(run.busy)).count();
    if busy > 0 {
        println!(
            "{busy} of {} runs began on a busy machine: measure again",
            runs.len()
        );
    }
    Ok(())
}

/// The nodes, and what the ways to make a cluster need.
struct Bench {
    binary: PathBuf,
    images: Images,
    site: Site,
    floor: Floor,
    kubeadm: Kubeadm,
}

impl Bench {
    /// Makes the nodes, and one cluster that is not timed: what a run asks of the nodes is counted
    /// there, and the other ways' files are taken from what it made.
    fn new(binary: PathBuf, shape: Shape, images: Images) -> Fallible<(Self, String)> {
        let site = Site::new(shape, &images)?;
        let up = || site.up(&binary).map(drop);
        let counts = count::around(&site, "a fresh `up`", up)?
            + &count::around(&site, "`up` with nothing to do", up)?;
        let floor = Floor::take(&site)?;
        let kubeadm = Kubeadm::take(&site, &images)?;
        let bench = Self {
            binary,
            images,
            site,
            floor,
            kubeadm,
        };
        Ok((bench, counts))
    }

    /// What `up` and `remove` take where sshd is that far away.
    fn on_a_line(&mut self, round_trip: Duration) -> Fallible<OnLine> {
        self.site.clean()?;
        self.site.lead_through(round_trip)?;
        load::wait_until_quiet()?;
        let fresh = self.site.up(&self.binary)?;
        let idle = self.site.up(&self.binary)?;
        let removed = self.site.remove(&self.binary)?;
        Ok(OnLine {
            round_trip,
            took: [fresh, idle, removed],
        })
    }

    /// Makes a cluster in one way on nodes that were cleaned.
    fn measure(&mut self, round: usize, candidate: Candidate) -> Fallible<Run> {
        self.site.clean()?;
        let site = &self.site;
        match candidate {
            Candidate::Up => {}
            Candidate::Kubeadm | Candidate::KubeadmBest => {
                self.kubeadm.prepare(site, &self.images)?;
            }
            Candidate::Floor => self.floor.prepare(site)?,
        }
        let busy = load::wait_until_quiet()?;
        let nodes = site.lab.nodes().len();
        let begun = Instant::now();
        let probe = Probe::start(begun, site.root()?, site.first().address(), nodes);
        match candidate {
            Candidate::Up => site.up(&self.binary).map(drop)?,
            Candidate::Kubeadm => Kubeadm::run(site, "users")?,
            Candidate::KubeadmBest => Kubeadm::run(site, "best")?,
            Candidate::Floor => Floor::run(site)?,
        }
        let ended = begun.elapsed();
        let phases = probe.end()?;
        let took = phases.iter().map(|(_, at)| *at).fold(ended, Duration::max);
        let kubeconfig = match candidate {
            Candidate::Up => site.kubeconfig(),
            Candidate::Kubeadm | Candidate::KubeadmBest => Kubeadm::kubeconfig(site)?,
            Candidate::Floor => self.floor.kubeconfig(site),
        };
        let reached = reach::each_to_each(&kubeconfig, &self.images, nodes)?;
        let again = match candidate {
            Candidate::Up => (0..AGAIN)
                .map(|_| site.up(&self.binary))
                .collect::<Fallible<_>>()?,
            Candidate::Kubeadm | Candidate::KubeadmBest | Candidate::Floor => vec![],
        };
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
            reached,
            again,
            busy,
        })
    }
}

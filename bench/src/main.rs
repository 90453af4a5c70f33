#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
//! `make bench`: how long a fresh `up` of one node takes, beside the floor: the same containers
//! and manifests started by a script on the node itself. Both on a node that was made a moment
//! ago and has every image; in pairs, interleaved, so that a slow minute hits both.

mod floor;

use std::{
    env,
    error::Error,
    io,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use floor::Floor;
use lab::{Images, Lab, LabSpec, Node, Profile};
use tempfile::TempDir;

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
        .ok_or("usage: bench PATH-OF-RKE-OPERATOR")?;
    let binary = PathBuf::from(binary).canonicalize()?;
    let pairs: usize = env::args().nth(2).map_or(Ok(5), |pairs| pairs.parse())?;
    let images = lab::images(&mut io::stderr())?;

    println!("warming up: one run to take the floor's files from, and to count requests");
    let (floor, counts) = first(&binary, &images)?;
    println!("  {counts}");

    let (mut ups, mut floors, mut no_ops) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=pairs {
        // Who goes first takes turns.
        for floor_now in [pair % 2 == 0, pair % 2 != 0] {
            let site = Site::new(&images)?;
            if floor_now {
                let took = floor.run(site.node())?;
                println!("pair {pair}  floor {:.2} s", took.as_secs_f64());
                floors.push(took);
            } else {
                let took = site.up(&binary)?;
                let no_op = site.up(&binary)?;
                let (up, again) = (took.as_secs_f64(), no_op.as_secs_f64());
                println!("pair {pair}  up    {up:.2} s, again {again:.2} s");
                ups.push(took);
                no_ops.push(no_op);
            }
            site.lab.destroy()?;
        }
    }
    let ratio = median(&ups).as_secs_f64() / median(&floors).as_secs_f64();
    println!("\n| | median | spread |\n|---|---|---|");
    for (name, times) in [
        ("fresh `up`", &ups),
        ("floor", &floors),
        ("`up` again", &no_ops),
    ] {
        println!(
            "| {name} | {:.2} s | {} |",
            median(times).as_secs_f64(),
            spread(times)
        );
    }
    println!("| ratio | {ratio:.2} | |\n\n{counts}");
    Ok(())
}

/// A node that was made a moment ago, and a folder with a config for it.
struct Site {
    lab: Lab,
    folder: TempDir,
}

impl Site {
    fn new(images: &Images) -> Fallible<Self> {
        let lab = Lab::up(
            &LabSpec::new("bench").node("n1", Profile::Plain),
            &mut io::sink(),
        )?;
        let site = Self {
            lab,
            folder: tempfile::tempdir()?,
        };
        site.node().load_images(images)?;
        let home = site.folder.path().join(".ssh");
        std::fs::create_dir_all(&home)?;
        std::fs::copy(site.lab.known_hosts(), home.join("known_hosts"))?;
        let config = site.node().cluster_yml("bench")?;
        std::fs::write(site.folder.path().join("cluster.yml"), config)?;
        Ok(site)
    }

    fn node(&self) -> &Node {
        self.lab.node("n1")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kube_config_cluster.yml")
    }

    /// How long `up` takes, from start to exit.
    fn up(&self, binary: &PathBuf) -> Fallible<Duration> {
        let begun = Instant::now();
        let output = Command::new(binary)
            .args(["up", "--yes"])
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env_remove("RKE_CONFIG")
            .stdin(Stdio::null())
            .output()?;
        let took = begun.elapsed();
        if output.status.success() {
            Ok(took)
        } else {
            Err(format!("`up` failed:\n{}", String::from_utf8_lossy(&output.stderr)).into())
        }
    }
}

/// The run that is not timed: what it asks of the node is counted there, and the floor's files
/// are taken from what it made.
fn first(binary: &PathBuf, images: &Images) -> Fallible<(Floor, String)> {
    let site = Site::new(images)?;
    let node = site.node();
    // dockerd logs its requests at level debug; a reload switches that on.
    node.sh(
        "test -s /etc/docker/daemon.json || echo '{}' > /etc/docker/daemon.json
         jq '.debug = true' /etc/docker/daemon.json > /tmp/daemon.json
         cat /tmp/daemon.json > /etc/docker/daemon.json
         systemctl reload docker; sleep 1",
    )?;
    let since = node.sh("date '+%Y-%m-%d %H:%M:%S'")?;
    let since = since.trim();
    // A whole second, so that what came before is not counted.
    node.sh("sleep 1.1")?;
    site.up(binary)?;
    let count = |unit: &str, pattern: &str| {
        node.sh(&format!(
            "journalctl --unit {unit} --since '{since}' --output cat | grep -cE '{pattern}' || true"
        ))
    };
    let requests = count("docker", "Calling (HEAD|GET|POST|PUT|DELETE) ")?;
    let connections = count("ssh", "Accepted publickey")?;
    let floor = Floor::take(&site.lab, &site.kubeconfig())?;
    let counts = format!(
        "{} SSH connections, {} Docker API requests for a fresh node",
        connections.trim(),
        requests.trim()
    );
    site.lab.destroy()?;
    Ok((floor, counts))
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn spread(times: &[Duration]) -> String {
    let (least, most) = (times.iter().min(), times.iter().max());
    let seconds = |time: Option<&Duration>| time.copied().unwrap_or_default().as_secs_f64();
    format!("{:.2}–{:.2} s", seconds(least), seconds(most))
}

//! The lab's command: `lab up`, `lab status`, `lab ssh`, `lab down`.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use lab::{
    Conformance, Fault, Host, Lab, LabError, LabSpec, Node, Profile, S3, Store, Suite, Sweep,
};

/// What a node is by default.
const ALL_ROLES: &str = "controlplane,etcd,worker";

/// Real nodes, a real Kubernetes and a registry on this machine.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a lab, after taking down the one of that name; it stands until `lab down`.
    Up {
        /// The lab's name.
        #[arg(long, default_value = "lab")]
        name: String,
        /// How many nodes it has: n1, n2 and so on.
        #[arg(long, default_value_t = 1)]
        nodes: u8,
        /// How they are set up.
        #[arg(long, default_value = "plain")]
        profile: Profile,
        /// Set one node up in another way, as in n2=cri-off.
        #[arg(long = "node", value_name = "NODE=PROFILE", value_parser = assignment)]
        exceptions: Vec<(String, Profile)>,
        /// Which release of Debian they run.
        #[arg(long, default_value = "trixie", value_name = "RELEASE")]
        debian: Suite,
        /// Have the images of another release of Kubernetes too, as in v1.33.13.
        #[arg(long = "release", value_name = "VERSION")]
        releases: Vec<String>,
        /// Have the images of Kubernetes' own tests too.
        #[arg(long)]
        e2e: bool,
    },
    /// Show the labs with their nodes and images.
    Status,
    /// Log in to a node, or run a command on it.
    Ssh {
        /// The lab's name.
        #[arg(long, default_value = "lab")]
        name: String,
        /// The node.
        node: String,
        /// The command.
        #[arg(trailing_var_arg = true)]
        command: Vec<String>,
    },
    /// Show a cluster.yml for a cluster on these nodes.
    Config {
        /// The lab's name.
        #[arg(long, default_value = "lab")]
        name: String,
        /// With RKE's defaults, canal, nginx and metrics-server, instead of the least that gives a cluster.
        #[arg(long)]
        rke_defaults: bool,
        /// The nodes, each as `n1`, which gives it every role, or as `n1=controlplane,etcd`.
        #[arg(required = true, value_name = "NODE[=ROLES]")]
        nodes: Vec<String>,
    },
    /// Serve a bucket of S3 to the nodes of a lab until standard input ends. Prints its `s3backupconfig`.
    S3 {
        /// The lab's name.
        #[arg(long, default_value = "lab")]
        name: String,
        /// The bucket.
        bucket: String,
        /// The folder that keeps its objects.
        folder: PathBuf,
    },
    /// Let something go wrong with a node; `lab heal` ends it.
    Fault {
        /// The lab's name.
        #[arg(long, default_value = "lab")]
        name: String,
        /// The node.
        node: String,
        /// What goes wrong.
        fault: Fault,
    },
    /// Cut two nodes from each other; `lab heal` ends it.
    Cut {
        /// The lab's name.
        #[arg(long, default_value = "lab")]
        name: String,
        /// One node.
        node: String,
        /// The other.
        other: String,
    },
    /// End everything that goes wrong with a node, or with all of them.
    Heal {
        /// The lab's name.
        #[arg(long, default_value = "lab")]
        name: String,
        /// The node; all if none is named.
        node: Option<String>,
    },
    /// Take a lab down.
    Down {
        /// The lab's name.
        #[arg(long, default_value = "lab")]
        name: String,
        /// Take all labs down, and remove the nodes' image from this machine's Docker.
        #[arg(long)]
        all: bool,
        /// Take down what interrupted runs left and, if no lab stands then, remove the nodes' image.
        #[arg(long, conflicts_with = "all")]
        abandoned: bool,
    },
    /// Build the images that the cache lacks, and list all with their true versions.
    Images {
        /// Remove from the cache what earlier recipes made.
        #[arg(long)]
        prune: bool,
        /// Build those of another release of Kubernetes too, as in v1.33.13.
        #[arg(long = "release", value_name = "VERSION")]
        releases: Vec<String>,
    },
    /// List the Debian packages that the lab would install on this machine.
    Missing {
        /// Install them.
        #[arg(long)]
        install: bool,
    },
    /// Print the path of a kubectl that runs on this machine.
    Kubectl,
    /// Kubernetes' own tests: the programs that run them, and what their reports say.
    #[command(subcommand)]
    E2e(E2e),
}

#[derive(Subcommand)]
enum E2e {
    /// Build `e2e.test` and `ginkgo` if the cache lacks them, and print the folder that has them.
    Programs,
    /// Print a regular expression for the conformance tests that have passed.
    Passed {
        /// Reports of earlier runs, the oldest first.
        reports: Vec<PathBuf>,
    },
    /// Print a table of the conformance tests; fails if one failed or, but for a part, was not run.
    Table {
        /// A document that may explain failures, each in a line that begins with: - `NAME`:
        #[arg(long)]
        explained: PathBuf,
        /// Only some tests were to run.
        #[arg(long)]
        part: bool,
        /// Reports of all runs, the oldest first.
        reports: Vec<PathBuf>,
    },
}

fn assignment(text: &str) -> Result<(String, Profile), String> {
    let (node, profile) = text.split_once('=').ok_or("expected NODE=PROFILE")?;
    Ok((
        node.to_owned(),
        <Profile as clap::ValueEnum>::from_str(profile, false)?,
    ))
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            // Where even this cannot be written, nothing can be.
            let _ = writeln!(io::stderr(), "lab: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A line of the command's result. Whoever reads it may have read enough.
fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn run(command: Command) -> Result<ExitCode, LabError> {
    let log = &mut io::stderr();
    match command {
        Command::Up {
            name,
            nodes,
            profile,
            exceptions,
            debian,
            releases,
            e2e,
        } => {
            let spec = stocked(&name, &releases, e2e);
            up(spec, nodes, profile, debian, &exceptions)?;
        }
        Command::Status => status()?,
        Command::Ssh {
            name,
            node,
            command,
        } => {
            let code = Lab::open(&name)?.find(&node)?.ssh_attached(&command)?;
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
        Command::Fault { name, node, fault } => Lab::open(&name)?.find(&node)?.suffer(fault)?,
        Command::Cut { name, node, other } => {
            let lab = Lab::open(&name)?;
            lab.find(&node)?.cut_from(lab.find(&other)?)?;
        }
        Command::Heal { name, node } => {
            let lab = Lab::open(&name)?;
            match node {
                Some(node) => lab.find(&node)?.heal()?,
                None => lab.heal()?,
            }
        }
        Command::Config {
            name,
            rke_defaults,
            nodes,
        } => {
            say(config(&name, rke_defaults, &nodes)?.trim_end());
        }
        Command::S3 {
            name,
            bucket,
            folder,
        } => {
            serve_bucket(&name, &bucket, &folder)?;
        }
        Command::Down { all: true, .. } => {
            for name in Lab::sweep(Sweep::All)? {
                say(format_args!("{name} is gone"));
            }
        }
        Command::Down {
            abandoned: true, ..
        } => {
            for name in Lab::sweep(Sweep::Abandoned)? {
                say(format_args!("{name} is gone"));
            }
            if Lab::names()?.is_empty() {
                Lab::sweep(Sweep::All)?;
            }
        }
        Command::Down { name, .. } => Lab::destroy_named(&name)?,
        Command::Images { prune, releases } => all_images(prune, &releases)?,
        Command::Missing { install: true } => Host::install(log)?,
        Command::Missing { install: false } => {
            for package in Host::missing()? {
                say(format_args!("{package}"));
            }
        }
        Command::Kubectl => say(format_args!("{}", lab::kubectl()?.display())),
        Command::E2e(command) => return e2e(command),
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves it until standard input ends.
fn serve_bucket(name: &str, bucket: &str, folder: &Path) -> Result<(), LabError> {
    let server = S3::for_lab(&Lab::open(name)?, folder, &mut io::stderr())?;
    server.bucket(bucket)?;
    say(server.config(bucket)?.trim_end());
    // Whatever is written there, only its end counts.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    Ok(())
}

/// Builds what the cache lacks, and lists all.
fn all_images(prune: bool, releases: &[String]) -> Result<(), LabError> {
    let log = &mut io::stderr();
    Host::prepare(log)?;
    let images = lab::images(log)?;
    list_images("images", &images);
    for release in releases {
        let images = Store::from_environment().release(release, log)?;
        list_images(&format!("images of {release}"), &images);
    }
    if prune {
        for gone in images.prune()? {
            say(format_args!("removed {gone}"));
        }
    }
    Ok(())
}

fn e2e(command: E2e) -> Result<ExitCode, LabError> {
    match command {
        E2e::Programs => {
            let store = Store::from_environment();
            say(store.e2e_programs(&mut io::stderr())?.display());
        }
        E2e::Passed { reports } => say(Conformance::read(&reports)?.passed()),
        E2e::Table {
            explained,
            part,
            reports,
        } => return table(&explained, part, &reports),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what became of the conformance tests, and whether that is as it shall be.
fn table(explained: &Path, part: bool, reports: &[PathBuf]) -> Result<ExitCode, LabError> {
    let tests = Conformance::read(reports)?;
    say(tests.table().trim_end());
    let failed = tests.unexplained(explained)?;
    let log = &mut io::stderr();
    for name in &failed {
        let _ = writeln!(log, "{} does not explain: {name}", explained.display());
    }
    let enough = tests.ran() > 0 && (part || tests.left() == 0);
    if !enough {
        let _ = writeln!(
            log,
            "{} tests were run, {} were not",
            tests.ran(),
            tests.left()
        );
    }
    Ok(if failed.is_empty() && enough {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A `cluster.yml` for nodes of a lab, each with its roles behind `=`, or with all.
fn config(name: &str, rke_defaults: bool, nodes: &[String]) -> Result<String, LabError> {
    let lab = Lab::open(name)?;
    let nodes = nodes.iter().map(|node| {
        let (node, roles) = node.split_once('=').unwrap_or((node, ALL_ROLES));
        Ok((node, lab.find(node)?, roles.split(',').collect()))
    });
    let nodes = nodes.collect::<Result<Vec<_>, LabError>>()?;
    if rke_defaults {
        Node::rke_defaults_yml(name, &nodes)
    } else {
        Node::common_yml(name, &nodes)
    }
}

/// A lab without nodes, with these images.
fn stocked(name: &str, releases: &[String], e2e: bool) -> LabSpec {
    let spec = LabSpec::new(name);
    let spec = if e2e { spec.e2e() } else { spec };
    let releases = releases.iter();
    releases.fold(spec, |spec, release| spec.release(release))
}

fn up(
    mut spec: LabSpec,
    nodes: u8,
    profile: Profile,
    debian: Suite,
    exceptions: &[(String, Profile)],
) -> Result<(), LabError> {
    for node in (1..=nodes).map(|number| format!("n{number}")) {
        let exception = exceptions.iter().find(|(name, _)| *name == node);
        let profile = exception.map_or(profile, |(_, profile)| *profile);
        spec = spec.node_of(debian, &node, profile);
    }
    if let Some((node, _)) = exceptions
        .iter()
        .find(|(name, _)| spec.nodes.iter().all(|n| n.name != *name))
    {
        return Err(LabError::Refused(format!(
            "--node {node}: there are n1 to n{nodes}"
        )));
    }
    let mut lab = Lab::up(&spec, &mut io::stderr())?;
    lab.keep()?;
    show(&lab)
}

fn status() -> Result<(), LabError> {
    for name in Lab::names()? {
        match Lab::open(&name) {
            Ok(lab) => show(&lab)?,
            Err(_) => say(format_args!(
                "{name}: left over; `lab down --name {name}` removes it"
            )),
        }
    }
    list_images("images", &lab::images(&mut io::sink())?);
    Ok(())
}

fn show(lab: &Lab) -> Result<(), LabError> {
    say(format_args!(
        "lab {}: registry {}",
        lab.name(),
        lab.registry().address()
    ));
    say(format_args!("  push {}", lab.registry().push_address()?));
    say(format_args!("  key {}", lab.ssh_key().display()));
    say(format_args!(
        "  known hosts {}",
        lab.known_hosts().display()
    ));
    for node in lab.nodes() {
        let (state, profile) = (node.state()?.name(), node.profile().name());
        let debian = node.suite().name();
        say(format_args!(
            "  {:<8} {:<15} {profile:<14} {debian:<8} {state}",
            node.name(),
            node.address()
        ));
        for line in node.exec("cat /run/lab/workarounds")?.stdout.lines() {
            say(format_args!("           ({line})"));
        }
    }
    Ok(())
}

fn list_images(title: &str, images: &lab::Images) {
    say(format_args!("{title}:"));
    for image in images.all() {
        say(format_args!("  {} {}", image.program, image.version));
        for name in &image.names {
            say(format_args!("    {name}"));
        }
    }
}

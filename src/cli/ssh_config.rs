//! Asks OpenSSH's own client what its configuration says about the machines of a config: `ssh -G`. Nothing is dialled.
//! What comes of it is [`SshConfig`]'s; whatever fails here is a warning, and the config counts alone.
#![expect(
    clippy::disallowed_methods,
    reason = "the command line is where the environment comes in"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, io,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use tokio::{
    process::Command,
    time::{Instant, timeout},
};

use super::sources::read_at_most;
use crate::{
    config::{
        HostClass, HostPatterns, Problem, SshConfig, SshHost, SshHostKeys, SshPerson, SshQuery,
        files_read, output_for,
    },
    host::Lookup,
    model::{Endpoint, printable},
};

/// How many `ssh` run at once: each is a process of some milliseconds.
const AT_ONCE: usize = 8;
/// One of them: the configuration may run programs (`Match exec`) and look up names (`CanonicalizeHostname`).
const ONE: Duration = Duration::from_secs(5);
/// All of them.
const ALL: Duration = Duration::from_secs(30);
/// Up to this many machines are queried one by one, without parsing the configuration files.
const FEW: usize = 16;
/// No file of the configuration is that long.
const MAX_BYTES: usize = 1 << 20;
/// Ways that are longer are a mistake.
const LONGEST_WAY: usize = 8;

/// Whether the SSH config counts, and where host keys are on record by it.
#[derive(Debug, Default)]
pub struct SshSettings {
    is_off: bool,
    lookups: Mutex<BTreeMap<Endpoint, Lookup>>,
}

impl SshSettings {
    /// `is_off`: as `--no-ssh-config` says.
    pub fn new(is_off: bool) -> Self {
        Self {
            is_off,
            lookups: Mutex::default(),
        }
    }

    /// Where host keys are on record that are not at the usual place, as the config that was read last has it.
    pub(super) fn lookups(&self) -> BTreeMap<Endpoint, Lookup> {
        let lookups = self.lookups.lock();
        lookups.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the SSH config says about these machines and those on the way to them, and what cannot be read of it.
    pub(super) async fn of(&self, machines: &BTreeSet<SshQuery>) -> (SshConfig, Vec<Problem>) {
        let found = match program() {
            Some(program) if !self.is_off && !machines.is_empty() => {
                asked(&program, machines).await
            }
            Some(_) | None => (SshConfig::default(), Vec::new()),
        };
        let lookups = found.0.host_keys().into_iter();
        let lookups = lookups.map(|(endpoint, keys)| (endpoint, lookup(keys)));
        *self.lookups.lock().unwrap_or_else(PoisonError::into_inner) = lookups.collect();
        found
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

/// `ssh`, where it is installed.
fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut files = env::split_paths(&path).map(|folder| folder.join("ssh"));
    files.find(|file| file.is_file())
}

fn lookup(keys: SshHostKeys) -> Lookup {
    let SshHostKeys {
        alias,
        user_files,
        global_files,
    } = keys;
    let home = variable("HOME").map(PathBuf::from);
    let file = |file: String| match (file.strip_prefix("~/"), &home) {
        (Some(rest), Some(home)) => home.join(rest),
        (Some(_), None) | (None, _) => PathBuf::from(file),
    };
    let files = |files: Option<Vec<String>>| {
        files.map(|files| files.into_iter().map(file).collect::<Vec<_>>())
    };
    Lookup {
        alias,
        user_files: files(user_files),
        global_files: files(global_files),
    }
}

/// In rounds: the machines of the config, then those on the way to them.
async fn asked(program: &Path, machines: &BTreeSet<SshQuery>) -> (SshConfig, Vec<Problem>) {
    let mut config = SshConfig::default();
    let deadline = Instant::now() + ALL;
    // Of what is used only the name of the host depends on the machine, so one answer is enough.
    let usual = ["-F", "/dev/null"].map(str::to_owned);
    let usual = match output(program, &usual, "localhost", deadline).await {
        Ok(usual) => usual,
        Err(why) => return (config, vec![unread(&why)]),
    };
    let mut failures: Vec<(SshQuery, String)> = Vec::new();
    let (home, user) = (
        variable("HOME"),
        variable("USER").or_else(|| variable("LOGNAME")),
    );
    let person = SshPerson {
        home: home.as_deref(),
        user: user.as_deref(),
        variable: &variable,
    };
    let patterns = match machines.first() {
        Some(one) if machines.len() > FEW => patterns(program, one, deadline).await,
        Some(_) | None => None,
    };
    for _ in 0..LONGEST_WAY {
        let wanted = config.wanted(machines);
        if wanted.is_empty() {
            break;
        }
        let answers = stream::iter(classes(wanted, patterns.as_ref())).map(|queries| async move {
            let Some(first) = queries.first() else {
                return (queries, Ok(String::new()));
            };
            let answer = output(program, &options(first), &first.address, deadline).await;
            (queries, answer)
        });
        let mut answers = answers.buffer_unordered(AT_ONCE);
        while let Some((queries, answer)) = answers.next().await {
            for query in &queries {
                let host = match &answer {
                    Ok(output) => {
                        let first = queries.first().unwrap_or(query);
                        let output = output_for(query, first, output);
                        SshHost::parse(query, &output, &usual, &person)
                    }
                    Err(why) => {
                        failures.push((query.clone(), why.clone()));
                        SshHost::default()
                    }
                };
                tracing::debug!(address = query.address, ?host, "SSH config");
                config.insert(query.clone(), host);
            }
        }
    }
    let problem = failed(&mut config, failures);
    config.refuse_the_rest(machines);
    (config, problem.into_iter().collect())
}

/// The patterns of the files that `ssh` reads; `None` where each machine must be asked about.
async fn patterns(program: &Path, one: &SshQuery, deadline: Instant) -> Option<HostPatterns> {
    let mut options = options(one);
    options.push("-v".to_owned());
    let output = ran(program, &options, &one.address, deadline).await.ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let files = files_read(&said).into_iter();
    let texts = files.map(|file| read_at_most(MAX_BYTES, Path::new(file)));
    let texts = texts.collect::<io::Result<Vec<_>>>().ok()?;
    let is_whole = texts.iter().all(|text| text.len() < MAX_BYTES);
    output.status.success().then_some(())?;
    is_whole.then(|| HostPatterns::of(&texts)).flatten()
}

/// Those that one answer is enough for.
fn classes(wanted: BTreeSet<SshQuery>, patterns: Option<&HostPatterns>) -> Vec<Vec<SshQuery>> {
    let Some(patterns) = patterns else {
        return wanted.into_iter().map(|query| vec![query]).collect();
    };
    let mut classes: BTreeMap<HostClass, Vec<SshQuery>> = BTreeMap::new();
    for query in wanted {
        classes
            .entry(patterns.class(&query))
            .or_default()
            .push(query);
    }
    classes.into_values().collect()
}

/// As a rule it is the file that is wrong: then nothing of it is known, and all say the same. Where it is known for
/// others, machines without an answer may be behind a bastion host: they are not dialled.
fn failed(config: &mut SshConfig, failures: Vec<(SshQuery, String)>) -> Option<Problem> {
    let is_whole = failures.len() == config.number();
    let first = failures.iter().map(|(_, why)| why).min().cloned();
    if !is_whole {
        for (query, why) in failures {
            let no_place = Some(format!("`ssh -G` failed: {why}"));
            let host = SshHost {
                no_place,
                ..SshHost::default()
            };
            config.insert(query, host);
        }
        return None;
    }
    first.map(|why| unread(&why))
}

fn unread(why: &str) -> Problem {
    Problem::new("", "the SSH config is not used: `ssh -G` failed")
        .detail(why)
        .hint("`ssh -G HOST` shows why; `--no-ssh-config` does without it")
}

fn options(query: &SshQuery) -> Vec<String> {
    let SshQuery {
        address: _,
        user,
        port,
    } = query;
    let user = user.iter().flat_map(|user| ["-l".to_owned(), user.clone()]);
    let port = port
        .iter()
        .flat_map(|port| ["-p".to_owned(), port.to_string()]);
    user.chain(port).collect()
}

/// What `ssh -G` prints; the error is what it says about its failure.
async fn output(
    program: &Path,
    options: &[String],
    address: &str,
    deadline: Instant,
) -> Result<String, String> {
    let output = ran(program, options, address, deadline).await?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().map(str::trim).find(|line| !line.is_empty());
    let why = said.map_or_else(
        || output.status.to_string(),
        |line| printable(line).into_owned(),
    );
    Err(why)
}

async fn ran(
    program: &Path,
    options: &[String],
    address: &str,
    deadline: Instant,
) -> Result<Output, String> {
    let limit = ONE.min(deadline.saturating_duration_since(Instant::now()));
    let mut command = Command::new(program);
    command
        .args(options)
        .args(["-T", "-G", "--", address])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let told = |error: io::Error| format!("{}: {error}", program.display());
    timeout(limit, command.output())
        .await
        .map_err(|_| format!("{address}: no answer in time"))?
        .map_err(told)
}

//! The machine: what the lab needs of it, and how to get that.
//!
//! It installs Debian packages and starts Docker where there is no service manager to do so. Nothing
//! is assumed to be there, and nothing that is there is changed.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{LabError, cache, command::Run};

/// A program that the lab or a script of this repository runs, and the Debian packages that bring
/// it. Where a release of Debian or Ubuntu lacks the first package of an [`Either`](Package::Either),
/// the second one brings the program there.
const NEEDED: [(&str, &[Package]); 21] = [
    ("apt-get", &[]),
    ("awk", &[Package::One("mawk")]),
    ("cc", &[Package::One("gcc"), Package::One("libc6-dev")]),
    ("curl", &[Package::One("curl")]),
    ("diff", &[Package::One("diffutils")]),
    ("docker", &[Package::Either("docker-cli", "docker.io")]),
    ("dockerd", &[Package::One("docker.io")]),
    ("find", &[Package::One("findutils")]),
    ("git", &[Package::One("git")]),
    ("go", &[]),
    ("ip", &[Package::One("iproute2")]),
    ("iptables", &[Package::One("iptables")]),
    ("losetup", &[Package::One("mount")]),
    ("mkfs.ext4", &[Package::One("e2fsprogs")]),
    (
        "mmdebstrap",
        &[
            Package::One("mmdebstrap"),
            Package::One("debian-archive-keyring"),
        ],
    ),
    ("openssl", &[Package::One("openssl")]),
    ("ps", &[Package::One("procps")]),
    ("ssh", &[Package::One("openssh-client")]),
    ("ssh-keygen", &[Package::One("openssh-client")]),
    ("tar", &[Package::One("tar")]),
    ("tc", &[Package::One("iproute2")]),
];

/// Where programs of the system are. `sudo` and a user's shell leave the folders for the
/// administrator's programs (`dockerd`, `mkfs.ext4`) out of `PATH`.
const SYSTEM_FOLDERS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// The Debian package that brings a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Package {
    /// The same in every release.
    One(&'static str),
    /// The first where the release has it, else the second.
    Either(&'static str, &'static str),
}

/// The capability without which nobody may raise a limit.
const CAP_SYS_RESOURCE: u32 = 24;

/// The machine that the lab is on.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// Whether containers can be given every capability.
    pub(crate) privileged: bool,
}

impl Host {
    /// The Debian packages that the lab would install: those of the programs that are not there.
    pub fn missing() -> Result<Vec<&'static str>, LabError> {
        let missing = missing_of(is_there)?;
        let mut packages = Vec::new();
        for package in missing {
            packages.push(match package {
                Package::One(name) => name,
                Package::Either(name, other)
                    if is_in_the_archive(name)? || !is_in_the_archive(other)? =>
                {
                    name
                }
                Package::Either(_, other) => other,
            });
        }
        packages.sort_unstable();
        packages.dedup();
        Ok(packages)
    }

    /// Installs what is missing, and tells `log` of it.
    pub fn install(log: &mut dyn Write) -> Result<(), LabError> {
        if Self::missing()?.is_empty() {
            return Ok(());
        }
        apt("cannot read the list of packages")
            .arg("update")
            .done()
            .map_err(|e| by_hand(&Self::missing().unwrap_or_default(), &e))?;
        // Which package brings a program is known only with the list of packages.
        install(&Self::missing()?, log)
    }

    /// Installs what is missing, starts Docker if it does not answer, and tells `log` of both.
    pub fn prepare(log: &mut dyn Write) -> Result<Self, LabError> {
        let _lock = cache::lock("host")?;
        if Run::new("cannot ask who I am", "id").arg("-u").text()? != "0" {
            return Err(LabError::Host(
                "it mounts disks and makes networks, which needs root; run it with sudo".to_owned(),
            ));
        }
        Self::install(log)?;
        let builds = cache::source_registry().is_none();
        if builds
            && !Run::new("cannot look for Go", "go")
                .arg("version")
                .output()
                .is_ok_and(|go| go.ok())
        {
            return Err(LabError::Host(
                "images are built with Go 1.24 or later, and `go` is not on the PATH".to_owned(),
            ));
        }
        if !docker_answers()? {
            start_docker(log)?;
        }
        let status = cache::read(Path::new("/proc/self/status"))?;
        Ok(Self {
            privileged: may_have(&status, CAP_SYS_RESOURCE),
        })
    }
}

/// Whether `/proc/self/status` leaves a capability in the bounding set.
fn may_have(status: &str, capability: u32) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapBnd:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_some_and(|bits| bits >> capability & 1 == 1)
}

/// `PATH` for what the lab runs: the caller's, and the system's folders that it lacks.
pub(crate) fn path(of_the_caller: &str) -> String {
    let mut folders: Vec<&str> = of_the_caller
        .split(':')
        .filter(|folder| !folder.is_empty())
        .collect();
    for folder in SYSTEM_FOLDERS {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders.join(":")
}

/// The packages of the programs that are not there; an error where nothing can be installed.
fn missing_of(
    mut is_there: impl FnMut(&str) -> Result<bool, LabError>,
) -> Result<Vec<Package>, LabError> {
    let mut packages = Vec::new();
    for (program, needs) in NEEDED {
        if !needs.is_empty() && !is_there(program)? {
            packages.extend(needs);
        }
    }
    Ok(packages)
}

fn is_there(program: &str) -> Result<bool, LabError> {
    let look = Run::new("cannot look for programs", "sh");
    let look = look.args(["-c", "command -v \"$1\"", "sh", program]);
    Ok(look.output()?.ok())
}

/// Whether apt knows the package. It knows none before its first `update`.
fn is_in_the_archive(package: &str) -> Result<bool, LabError> {
    if !is_there("apt-cache")? {
        return Ok(false);
    }
    let shown = Run::new("cannot ask apt for a package", "apt-cache")
        .args(["show", "--no-all-versions", package])
        .output()?;
    Ok(shown.ok() && !shown.stdout.trim().is_empty())
}

/// Reads apt's list of packages where it does not know one of them.
pub(crate) fn update_unless_known(package: &str) -> Result<(), LabError> {
    if is_in_the_archive(package)? {
        return Ok(());
    }
    apt("cannot read the list of packages").arg("update").done()
}

fn apt(what: &str) -> Run {
    Run::new(what, "apt-get")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["-qq", "-y"])
}

fn by_hand(packages: &[&str], error: &LabError) -> LabError {
    LabError::Host(format!(
        "it lacks {}, and installing them failed: {error}",
        packages.join(", ")
    ))
}

fn install(packages: &[&str], log: &mut dyn Write) -> Result<(), LabError> {
    let told = |e| LabError::File {
        what: "cannot write",
        path: "the log".into(),
        source: e,
    };
    writeln!(log, "installing {}", packages.join(", ")).map_err(told)?;
    apt("cannot install")
        .args(["install", "--no-install-recommends"])
        .args(packages)
        .done()
        .map_err(|e| by_hand(packages, &e))?;
    // A package that did not bring its program is told here, and not by what needs the program.
    let left = missing_of(is_there)?;
    if left.is_empty() {
        return Ok(());
    }
    Err(LabError::Host(format!(
        "{} did not bring a program that the lab needs: still missing {left:?}",
        packages.join(", ")
    )))
}

/// Runs its arguments with stdin, stdout and stderr only. What outlives us must not keep what our
/// caller opened: the lock of `flock`, the pipe of a test runner. (`dash` knows one digit only.)
const WITHOUT_DESCRIPTORS: &str = r#"
for descriptor in /proc/$$/fd/*; do
  descriptor=${descriptor##*/}
  [ "$descriptor" -le 2 ] || eval "exec $descriptor>&-"
done
exec "$@"
"#;

fn docker_answers() -> Result<bool, LabError> {
    Ok(Run::docker("cannot ask Docker")
        .args(["info", "--format", "{{.ID}}"])
        .output()?
        .ok())
}

/// Starts Docker: by the service manager, or by hand where there is none.
fn start_docker(log: &mut dyn Write) -> Result<(), LabError> {
    let told = |e| LabError::File {
        what: "cannot write",
        path: "the log".into(),
        source: e,
    };
    writeln!(log, "starting Docker").map_err(told)?;
    let out = cache::root().join("dockerd.log");
    if Path::new("/run/systemd/system").exists() {
        Run::new("cannot start Docker", "systemctl")
            .args(["start", "docker"])
            .done()?;
    } else {
        let file = std::fs::File::create(&out).map_err(LabError::file("cannot write", &out))?;
        let copy = file
            .try_clone()
            .map_err(LabError::file("cannot write", &out))?;
        // It outlives us: its own process group, so that an interrupt of ours is none of its.
        Command::new("bash")
            .args(["-c", WITHOUT_DESCRIPTORS, "bash", "dockerd"])
            .env("PATH", cache::path())
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy)
            .process_group(0)
            .spawn()
            .map_err(|source| LabError::Start {
                what: "cannot start Docker".to_owned(),
                program: "dockerd".to_owned(),
                source,
            })?;
    }
    let (begun, limit) = (Instant::now(), Duration::from_mins(1));
    while begun.elapsed() < limit {
        if docker_answers()? {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(500));
    }
    let detail = format!("; what it says is in {}", out.display());
    Err(LabError::Timeout {
        what: "Docker's answer".to_owned(),
        limit,
        detail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last argument of a call, if it is a literal. The text begins after the call's `(`.
    fn last_literal(call: &str) -> Option<&str> {
        let (mut depth, mut in_text, mut opened) = (0, false, 0);
        let mut literal = None;
        for (at, character) in call.char_indices() {
            match character {
                '"' if in_text => (literal, in_text) = (call.get(opened..at), false),
                '"' => (in_text, opened) = (true, at + 1),
                _ if in_text => {}
                '(' => depth += 1,
                ')' if depth == 0 => return literal,
                ')' => (depth, literal) = (depth - 1, None),
                ',' => literal = None,
                _ => {}
            }
        }
        None
    }

    /// Every program that the lab starts is one that it looks for, or one without which there is
    /// no Debian.
    #[test]
    fn every_program_that_the_lab_runs_is_looked_for() {
        let always = [
            "bash",
            "sh",
            "cat",
            "cp",
            "id",
            "nsenter",
            "systemctl",
            "apt-cache",
        ];
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut seen = 0;
        for entry in source.read_dir().unwrap() {
            let text = cache::read(&entry.unwrap().path()).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap();
            let calls = ["Run::new(", "Command::new("];
            for call in calls.iter().flat_map(|call| text.split(call).skip(1)) {
                let Some(program) = last_literal(call) else {
                    continue;
                };
                seen += 1;
                let known = NEEDED.iter().any(|(name, _)| *name == program);
                assert!(known || always.contains(&program), "{program}");
            }
        }
        assert!(seen > 10, "{seen}");
    }

    #[test]
    fn each_missing_program_brings_its_packages() {
        let lacks = |absent: &'static [&str]| missing_of(|program| Ok(!absent.contains(&program)));
        assert_eq!(lacks(&[]).unwrap(), vec![]);
        let client = Package::Either("docker-cli", "docker.io");
        assert_eq!(lacks(&["docker"]).unwrap(), vec![client]);
        // A machine with Docker's client only.
        assert_eq!(
            lacks(&["dockerd"]).unwrap(),
            vec![Package::One("docker.io")]
        );
        assert_eq!(lacks(&["docker", "dockerd"]).unwrap().len(), 2);
        // Without Go nothing is installed: Debian's is older than Kubernetes wants.
        assert_eq!(lacks(&["go"]).unwrap(), vec![]);
    }

    /// dockerd outlives us: with a descriptor of `flock` it would hold that lock for ever.
    #[test]
    fn what_outlives_us_keeps_no_descriptor_of_our_caller() {
        let look = ["sh", "-c", "readlink /proc/$$/fd/* || true"];
        let opened = |with: &[&str]| {
            let script = "exec 7</etc/hosts 12</etc/hosts; exec \"$@\"";
            let caller = Run::new("cannot look", "bash").args(["-c", script, "bash"]);
            caller.args(with).args(look).text().unwrap()
        };
        assert_eq!(opened(&[]).matches("/etc/hosts").count(), 2);
        let closed = opened(&["bash", "-c", WITHOUT_DESCRIPTORS, "bash"]);
        assert!(!closed.contains("/etc/hosts"), "{closed}");
    }

    #[test]
    fn the_systems_folders_are_on_the_path_of_what_is_run() {
        let path = path("/usr/local/go/bin:/usr/bin");
        assert!(path.starts_with("/usr/local/go/bin:/usr/bin:"));
        assert_eq!(path.matches("/usr/sbin").count(), 1);
        assert_eq!(path.split(':').filter(|f| *f == "/usr/bin").count(), 1);
    }

    #[test]
    fn a_capability_is_read_off_the_bounding_set() {
        let without = "Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t000001fffeffffff\n";
        let with = "CapBnd:\t000001ffffffffff\n";
        assert!(!may_have(without, CAP_SYS_RESOURCE));
        assert!(may_have(with, CAP_SYS_RESOURCE));
        assert!(!may_have("", CAP_SYS_RESOURCE));
    }
}

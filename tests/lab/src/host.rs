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

/// A program that the lab uses, and the Debian packages that bring it.
const NEEDED: [(&str, &[&str]); 9] = [
    ("docker", &["docker.io"]),
    ("mmdebstrap", &["mmdebstrap", "debian-archive-keyring"]),
    ("cc", &["gcc", "libc6-dev"]),
    ("ssh", &["openssh-client"]),
    ("openssl", &["openssl"]),
    ("mkfs.ext4", &["e2fsprogs"]),
    ("ip", &["iproute2"]),
    ("tar", &["tar"]),
    ("iptables", &["iptables"]),
];

/// The capability without which nobody may raise a limit.
const CAP_SYS_RESOURCE: u32 = 24;

/// The machine that the lab is on.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// Whether containers can be given every capability.
    pub(crate) privileged: bool,
}

impl Host {
    /// The Debian packages that the lab would install.
    pub fn missing() -> Result<Vec<&'static str>, LabError> {
        let mut packages = Vec::new();
        for (program, needs) in NEEDED {
            let look = Run::new("cannot look for programs", "sh").args([
                "-c",
                "PATH=$PATH:/usr/sbin:/sbin; command -v \"$1\"",
                "sh",
                program,
            ]);
            if !look.output()?.ok() {
                packages.extend(needs);
            }
        }
        Ok(packages)
    }

    /// Installs what is missing, starts Docker if it does not answer, and tells `log` of both.
    pub fn prepare(log: &mut dyn Write) -> Result<Self, LabError> {
        let _lock = cache::lock("host")?;
        if Run::new("cannot ask who I am", "id").arg("-u").text()? != "0" {
            return Err(LabError::Host(
                "it mounts disks and makes networks, which needs root; run it with sudo".to_owned(),
            ));
        }
        let missing = Self::missing()?;
        if !missing.is_empty() {
            install(&missing, log)?;
        }
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

fn install(packages: &[&str], log: &mut dyn Write) -> Result<(), LabError> {
    let told = |e| LabError::File {
        what: "cannot write",
        path: "the log".into(),
        source: e,
    };
    writeln!(log, "installing {}", packages.join(", ")).map_err(told)?;
    let apt = |what: &str| {
        Run::new(what, "apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["-qq", "-y"])
    };
    let by_hand = |e: &LabError| {
        LabError::Host(format!(
            "it lacks {}, and installing them failed: {e}",
            packages.join(", ")
        ))
    };
    apt("cannot read the list of packages")
        .arg("update")
        .done()
        .map_err(|e| by_hand(&e))?;
    apt("cannot install")
        .args(["install", "--no-install-recommends"])
        .args(packages)
        .done()
        .map_err(|e| by_hand(&e))
}

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
        Command::new("dockerd")
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

    #[test]
    fn a_capability_is_read_off_the_bounding_set() {
        let without = "Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t000001fffeffffff\n";
        let with = "CapBnd:\t000001ffffffffff\n";
        assert!(!may_have(without, CAP_SYS_RESOURCE));
        assert!(may_have(with, CAP_SYS_RESOURCE));
        assert!(!may_have("", CAP_SYS_RESOURCE));
    }
}

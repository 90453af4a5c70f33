//! A node that was made a moment ago and has every image, and a folder with a config for it.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use lab::{Images, Lab, LabSpec, Node, Profile};
use tempfile::TempDir;

use crate::Fallible;

pub(crate) struct Site {
    pub(crate) lab: Lab,
    folder: TempDir,
}

impl Site {
    pub(crate) fn new(images: &Images) -> Fallible<Self> {
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

    pub(crate) fn node(&self) -> &Node {
        self.lab.node("n1")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kube_config_cluster.yml")
    }

    /// How long `up` takes, from start to exit.
    pub(crate) fn up(&self, binary: &Path) -> Fallible<Duration> {
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

    /// The node's root folder as this machine sees it: reading there costs the node nothing.
    pub(crate) fn root(&self) -> Fallible<PathBuf> {
        let inspect = ["inspect", "--format", "{{.State.Pid}}"];
        let pid = docker(&[&inspect[..], &[self.node().container()]].concat())?;
        Ok(Path::new("/proc").join(pid.trim()).join("root"))
    }

    /// Puts a folder's contents into a new folder of the node.
    pub(crate) fn put(&self, folder: &Path, to: &str) -> Fallible<()> {
        let target = format!("{}:{to}", self.node().container());
        docker(&["cp", &folder.display().to_string(), &target]).map(drop)
    }
}

/// A command of the machine's Docker; what it prints.
pub(crate) fn docker(args: &[&str]) -> Fallible<String> {
    let output = Command::new("docker").args(args).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("docker {}: {said}", args.join(" ")).into())
}

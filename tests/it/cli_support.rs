//! Runs the binary as a user would: in a folder of its own, with a home of its own, piped.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// A folder with a config, and a home.
pub(crate) struct Context {
    dir: tempfile::TempDir,
}

/// What a command did.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The file with the log of the run, where it was named.
    pub(crate) log: Option<String>,
}

impl Context {
    /// An empty folder; the home in it has no key and no `known_hosts`.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("home/.ssh")).unwrap();
        Self { dir }
    }

    /// With this `cluster.yml`, and a key at `~/.ssh/id_rsa`.
    pub(crate) fn with(cluster_yml: &str) -> Self {
        let context = Self::new();
        context.write("cluster.yml", cluster_yml);
        context.write("home/.ssh/id_rsa", &private_key());
        context
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Files with keys are for their owner only, as rke-operator and ssh-keygen write them.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
        if name.ends_with("rke-operator.json")
            || name.starts_with("kube_config_")
            || name.starts_with("home/.ssh/")
        {
            self.mode(name, 0o600);
        }
    }

    pub(crate) fn mode(&self, name: &str, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.path(name), mode).unwrap();
    }

    /// The command, ready for more arguments; nobody is at its terminal.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rke-operator"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("HOME", self.path("home"))
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let output = self.command(args).output().unwrap();
        Ran::from(self, output)
    }

    /// Every file but the logs of runs, to see that none came, went or changed.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(self.dir.path(), &mut files);
        files
    }
}

/// Where the logs of runs are; one comes with each run that does something.
pub(crate) const LOGS: &str = "home/.local/state/rke-operator";

fn collect(dir: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with(LOGS) {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
}

impl Ran {
    /// With the folder's name taken out, and the line that names the log of the run.
    pub(crate) fn from(context: &Context, output: Output) -> Self {
        let dir = context.dir.path().display().to_string();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(&dir, "[DIR]");
        let (stderr, mut log) = (text(output.stderr), None);
        let begin = format!("log: [DIR]/{LOGS}/");
        let lines = stderr.split_inclusive('\n');
        let stderr = lines.filter(|line| {
            let name = line.strip_prefix(&begin).map(|name| name.trim().to_owned());
            log = log.take().or(name.clone());
            name.is_none()
        });
        let stderr = stderr.collect();
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr,
            log,
        }
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let code = self
            .code
            .map_or("signal".to_owned(), |code| code.to_string());
        writeln!(f, "exit code {code}")?;
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.is_empty() {
                writeln!(f, "----- {name} -----\n{}", text.trim_end())?;
            }
        }
        Ok(())
    }
}

/// A new private key.
pub(crate) fn private_key() -> String {
    use russh::keys::{Algorithm, PrivateKey, key::safe_rng, ssh_key::LineEnding};
    let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).unwrap();
    key.to_openssh(LineEnding::LF).unwrap().to_string()
}

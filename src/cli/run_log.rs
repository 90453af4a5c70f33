//! A file for each run that connects to nodes: what it printed and what `--debug` would have logged, so that a failure can
//! be examined afterwards. Like the log itself it has no secrets; only its user can read it.
//!
//! The newest files are kept: of the commands that only read as many as of those that change something, so that a `status`
//! every minute does not remove the log of the `up` that failed.
//!
//! It comes into being with the first word of the log, which is about a node: a config that cannot be read leaves none.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use tracing_subscriber::fmt::MakeWriter;

use super::args::{Cert, CertInfo, Command, Encrypt, Etcd, Images, Status, Util, Validate};

/// How many files are kept of commands that change something, and how many of those that only read.
const KEPT: usize = 20;
/// The names of the commands that only read.
const READERS: [&str; 9] = [
    "plan",
    "validate",
    "doctor",
    "status",
    "cert-info",
    "images-save",
    "etcd-members",
    "etcd-snapshot-list",
    "util-get-state-file",
];
/// What their names end with.
const ENDING: &str = ".log";

/// The log of one run.
#[derive(Debug)]
pub struct RunLog {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Nothing was written; this was printed so far.
    Waiting(Vec<u8>),
    /// It is there.
    Open(File),
    /// It cannot be written. A full disk here must not end a run that changes servers.
    Given,
}

impl RunLog {
    /// For a command that connects to nodes, where there is a place for it.
    pub fn of(command: &Command, now: Timestamp) -> Option<Arc<Self>> {
        let name = name(command)?;
        let time = now.strftime("%Y-%m-%dT%H-%M-%SZ");
        let file = format!("{time}-{name}-{}{ENDING}", std::process::id());
        Some(Arc::new(Self::at(folder()?.join(file))))
    }

    const fn at(path: PathBuf) -> Self {
        Self {
            path,
            state: Mutex::new(State::Waiting(Vec::new())),
        }
    }

    /// The file, if anything was written to it.
    pub fn written(&self) -> Option<&Path> {
        matches!(*self.lock(), State::Open(_)).then_some(&*self.path)
    }

    /// The same was printed.
    pub fn printed(&self, text: &str) {
        let text = plain(text);
        let mut state = self.lock();
        match &mut *state {
            State::Waiting(so_far) => so_far.extend_from_slice(text.as_bytes()),
            State::Open(_) | State::Given => append(&mut state, text.as_bytes()),
        }
    }

    fn logged(&self, line: &[u8]) {
        let mut state = self.lock();
        if let State::Waiting(so_far) = &mut *state {
            let so_far = std::mem::take(so_far);
            *state = self.create().map_or(State::Given, State::Open);
            append(&mut state, &so_far);
        }
        append(&mut state, line);
    }

    fn create(&self) -> io::Result<File> {
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let name = self.path.file_name().unwrap_or_default();
        forget_oldest(folder, &name.to_string_lossy());
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(0o600);
        options.open(&self.path)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn append(state: &mut State, bytes: &[u8]) {
    if let State::Open(file) = state
        && file.write_all(bytes).is_err()
    {
        *state = State::Given;
    }
}

/// Leaves room for one more, among those of its kind. Removes only files with the name of a log.
fn forget_oldest(folder: &Path, next: &str) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let only_reads = |name: &str| command_of(name).map(|command| READERS.contains(&command));
    let kind = only_reads(next);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut ours: Vec<String> = names
        .filter(|name| kind.is_some() && only_reads(name) == kind)
        .collect();
    // Their names begin with the time.
    ours.sort_unstable();
    let over = (ours.len() + 1).saturating_sub(KEPT);
    for name in ours.iter().take(over) {
        let _ = fs::remove_file(folder.join(name));
    }
}

/// `up` in `2026-11-30T02-48-01Z-up-4242.log`; `None`: the file is no log.
fn command_of(name: &str) -> Option<&str> {
    let (time, rest) = name.split_once("Z-")?;
    let (command, process) = rest.strip_suffix(ENDING)?.rsplit_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_time = time.len() == 19
        && time
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'T'));
    (is_time && !command.is_empty() && digits(process)).then_some(command)
}

/// Where the user's programs keep what they may lose.
fn folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = variable("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.filter(|path| path.is_absolute());
    let usual = || Some(PathBuf::from(variable("HOME")?).join(".local/state"));
    Some(state.or_else(usual)?.join("rke-operator"))
}

/// Without the codes of colours.
fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// The command's name, if it connects to nodes.
fn name(command: &Command) -> Option<&'static str> {
    Some(match command {
        Command::Up(_) => "up",
        Command::Plan(_) => "plan",
        Command::Validate(Validate { connect: true, .. }) => "validate",
        Command::Doctor(_) => "doctor",
        // It has no end, and neither would its log.
        Command::Status(Status { watch: Some(_), .. }) => return None,
        Command::Status(_) => "status",
        Command::Remove(_) => "remove",
        Command::Node(_) => "node",
        Command::Images(Images::Load(_)) => "images-load",
        Command::Images(Images::Save(_)) => "images-save",
        Command::Cert(Cert::Rotate(_)) => "cert-rotate",
        Command::Cert(Cert::Info(CertInfo { nodes, served, .. })) if *nodes || *served => {
            "cert-info"
        }
        Command::Encrypt(Encrypt::RotateKey(_)) => "encrypt-rotate-key",
        Command::Util(Util::GetStateFile(_)) => "util-get-state-file",
        Command::Etcd(of_etcd) => match of_etcd {
            Etcd::SnapshotSave(_) => "etcd-snapshot-save",
            Etcd::SnapshotRestore(_) => "etcd-snapshot-restore",
            Etcd::SnapshotDelete(_) => "etcd-snapshot-delete",
            Etcd::Recover(_) => "etcd-recover",
            Etcd::Verify(_) => "etcd-verify",
            Etcd::Defrag(_) => "etcd-defrag",
            Etcd::Members(_) => "etcd-members",
            Etcd::SnapshotList(_) => "etcd-snapshot-list",
        },
        Command::Validate(_)
        | Command::Config(_)
        | Command::Describe(_)
        | Command::Kubeconfig(_)
        | Command::Util(Util::GetKubeconfig(_))
        | Command::Images(Images::List(_))
        | Command::Cert(Cert::Info(_) | Cert::GenerateCsr(_))
        | Command::Version(_)
        | Command::Crd
        | Command::Completion(_)
        | Command::Complete(_)
        | Command::Man(_)
        | Command::Init(_)
        | Command::Run(_)
        | Command::SnapshotAgent(_)
        | Command::SnapshotFetch(_)
        | Command::SnapshotTake(_)
        | Command::SnapshotVerify(_)
        | Command::SnapshotDelete(_)
        | Command::SnapshotState(_)
        | Command::Reference(_) => return None,
    })
}

/// The writer of the log.
#[derive(Clone, Debug)]
pub struct ToFile(pub Arc<RunLog>);

impl<'a> MakeWriter<'a> for ToFile {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(&self.0)
    }
}

/// One line of it.
#[derive(Debug)]
pub struct Line<'a>(&'a RunLog);

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.logged(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_begins_with_the_first_word_of_the_log_and_is_the_users_own() {
        let home = tempfile::tempdir().unwrap();
        let path = home
            .path()
            .join("state/rke-operator/2026-11-30T02-48-01Z-up-1.log");
        let log = Arc::new(RunLog::at(path.clone()));
        log.printed("\x1b[1;33mwarning:\x1b[0m before\n");
        assert_eq!(log.written(), None);
        assert!(!path.exists());
        let mut line = ToFile(Arc::clone(&log));
        let writer: &mut ToFile = &mut line;
        writer.make_writer().write_all(b"connecting\n").unwrap();
        log.printed("after\n");
        assert_eq!(log.written(), Some(&*path));
        let text = String::from_utf8(fs::read(&path).unwrap()).unwrap();
        assert_eq!(text, "warning: before\nconnecting\nafter\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn the_oldest_go_and_no_file_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let name = |number: usize| format!("2026-11-{:02}T00-00-00Z-up-{number}.log", number + 1);
        for number in 0..KEPT + 2 {
            fs::write(at(&name(number)), "").unwrap();
        }
        let others = [
            "notes.log",
            "2026-11-30T02-48-01Z-up.log",
            "2026-11-30T02-48-01Z--1.log",
            "0000-up-1.log",
            "2026-11-30T02-48-01Z-up-1.log.gz",
        ];
        for other in others {
            fs::write(at(other), "").unwrap();
        }
        let read = |number: usize| name(number).replace("-up-", "-etcd-members-");
        for number in 0..KEPT - 1 {
            fs::write(at(&read(number)), "").unwrap();
        }
        forget_oldest(folder.path(), "2026-12-01T02-48-01Z-up-1.log");
        forget_oldest(folder.path(), "2026-12-01T02-48-01Z-status-1.log");
        let is_there = |number: usize| at(&name(number)).exists();
        assert!((0..KEPT - 1).all(|number| at(&read(number)).exists()));
        fs::write(at(&read(KEPT)), "").unwrap();
        forget_oldest(folder.path(), "2026-12-01T02-48-01Z-status-1.log");
        assert!(!at(&read(0)).exists() && at(&read(1)).exists());
        assert!((0..3).all(|number| !is_there(number)));
        assert!((3..KEPT + 2).all(is_there));
        assert!(others.iter().all(|other| at(other).exists()));
    }

    /// A name that is missing here would be counted among the commands that change something.
    #[test]
    fn the_commands_that_only_read_have_these_names() {
        use clap::Parser as _;
        let named = |line: &str| {
            let words = std::iter::once("rke-operator").chain(line.split(' '));
            let cli = crate::cli::args::Cli::try_parse_from(words).expect(line);
            name(&cli.command)
        };
        let lines = [
            "plan",
            "validate --connect",
            "doctor",
            "status",
            "cert info --nodes",
            "images save -o bundle.tar",
            "etcd members",
            "etcd snapshot-list",
            "util get-state-file",
        ];
        let names = lines.map(|line| named(line).expect(line));
        assert_eq!(names, READERS);
        for line in [
            "validate",
            "status --watch",
            "cert info",
            "images list",
            "kubeconfig",
        ] {
            assert_eq!(named(line), None, "{line}");
        }
        for line in [
            "up",
            "remove",
            "node uncordon n1",
            "etcd verify --name a",
            "images load a",
        ] {
            let name = named(line).expect(line);
            assert!(!READERS.contains(&name), "{line}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_made_ends_nothing() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("file"), "").unwrap();
        let log = RunLog::at(home.path().join("file/x.log"));
        log.logged(b"a line\n");
        log.printed("more\n");
        assert_eq!(log.written(), None);
    }
}

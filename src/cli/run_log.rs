//! A file for each run that changes something: what it printed and what `--debug` would have said, so that a failure can be
//! looked into afterwards. Like the log itself it has no secrets; others than its user cannot read it.
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

use super::args::{Cert, Command, Encrypt, Etcd, Images};

/// How many files are kept.
const KEPT: usize = 20;
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
    /// For a command that changes something, where there is a place for it.
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
        forget_oldest(folder);
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

/// Leaves room for one more. Only files that are named as ours are go.
fn forget_oldest(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut ours: Vec<String> = names.filter(|name| is_ours(name)).collect();
    // Their names begin with the time.
    ours.sort_unstable();
    let over = (ours.len() + 1).saturating_sub(KEPT);
    for name in ours.iter().take(over) {
        let _ = fs::remove_file(folder.join(name));
    }
}

/// `2026-11-30T02-48-01Z-up-4242.log`.
fn is_ours(name: &str) -> bool {
    let Some((time, rest)) = name.split_once("Z-") else {
        return false;
    };
    let process = rest
        .strip_suffix(ENDING)
        .and_then(|rest| rest.rsplit_once('-'));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_time = time.len() == 19
        && time
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'T'));
    is_time && process.is_some_and(|(command, id)| !command.is_empty() && digits(id))
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

/// The command's name, if it changes something on nodes.
fn name(command: &Command) -> Option<&'static str> {
    Some(match command {
        Command::Up(_) => "up",
        Command::Remove(_) => "remove",
        Command::Node(_) => "node",
        Command::Images(Images::Load(_)) => "images-load",
        Command::Cert(Cert::Rotate(_)) => "cert-rotate",
        Command::Encrypt(Encrypt::RotateKey(_)) => "encrypt-rotate-key",
        Command::Etcd(of_etcd) => match of_etcd {
            Etcd::SnapshotSave(_) => "etcd-snapshot-save",
            Etcd::SnapshotRestore(_) => "etcd-snapshot-restore",
            Etcd::SnapshotDelete(_) => "etcd-snapshot-delete",
            Etcd::Recover(_) => "etcd-recover",
            Etcd::Verify(_) => "etcd-verify",
            Etcd::Defrag(_) => "etcd-defrag",
            Etcd::Members(_) | Etcd::SnapshotList(_) => return None,
        },
        Command::Plan(_)
        | Command::Validate(_)
        | Command::Doctor(_)
        | Command::Config(_)
        | Command::Status(_)
        | Command::Describe(_)
        | Command::Kubeconfig(_)
        | Command::Util(_)
        | Command::Images(Images::List(_) | Images::Save(_))
        | Command::Cert(Cert::Info(_) | Cert::GenerateCsr(_))
        | Command::Version(_)
        | Command::Crd
        | Command::Completion(_)
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
        forget_oldest(folder.path());
        let is_there = |number: usize| at(&name(number)).exists();
        assert!((0..3).all(|number| !is_there(number)));
        assert!((3..KEPT + 2).all(is_there));
        assert!(others.iter().all(|other| at(other).exists()));
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

//! Running programs of the machine, with errors that say what was being done and what was said.

use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
};

use crate::{LabError, cache};

/// What a command on a node wrote, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code, −1 where a signal ended it.
    pub code: i32,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Output {
    /// Whether it ended well.
    pub fn ok(&self) -> bool {
        self.code == 0
    }

    /// What it wrote to stdout without white space around it, or an error if it did not end well.
    pub fn success(self, what: &str, command: &str) -> Result<String, LabError> {
        if self.ok() {
            return Ok(self.stdout.trim().to_owned());
        }
        Err(LabError::Command {
            what: what.to_owned(),
            command: command.to_owned(),
            code: self.code,
            stderr: tail(if self.stderr.trim().is_empty() {
                &self.stdout
            } else {
                &self.stderr
            }),
        })
    }
}

/// The last lines of a text, which is where programs say what went wrong.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// One command of the machine that is about to run.
pub(crate) struct Run {
    what: String,
    command: Command,
}

impl Run {
    /// A command, and what it is for (for the error: "cannot make the network").
    pub(crate) fn new(what: impl Into<String>, program: &str) -> Self {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).env("PATH", cache::path());
        Self {
            what: what.into(),
            command,
        }
    }

    /// A command of the machine's Docker.
    pub(crate) fn docker(what: impl Into<String>) -> Self {
        Self::new(what, "docker")
    }

    /// Adds arguments.
    pub(crate) fn args<S: AsRef<std::ffi::OsStr>>(
        mut self,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        self.command.args(args);
        self
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Sets the working folder.
    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets a variable of the environment.
    pub(crate) fn env(mut self, key: &str, value: &str) -> Self {
        self.command.env(key, value);
        self
    }

    /// Reads stdin from what another command writes.
    fn stdin_of(mut self, stdout: std::process::ChildStdout) -> Self {
        self.command.stdin(stdout);
        self
    }

    fn line(&self) -> String {
        let mut line = self.command.get_program().to_string_lossy().into_owned();
        for arg in self.command.get_args() {
            line.push(' ');
            line.push_str(&arg.to_string_lossy());
        }
        line
    }

    fn start_error(&self, source: std::io::Error) -> LabError {
        LabError::Start {
            what: self.what.clone(),
            program: self.command.get_program().to_string_lossy().into_owned(),
            source,
        }
    }

    /// Runs it and gives what it wrote, however it ended.
    pub(crate) fn output(mut self) -> Result<Output, LabError> {
        let output = self.command.output().map_err(|e| self.start_error(e))?;
        Ok(Output {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs it and gives what it wrote to stdout; ending with an error is an error.
    pub(crate) fn text(self) -> Result<String, LabError> {
        let (what, line) = (self.what.clone(), self.line());
        self.output()?.success(&what, &line)
    }

    /// Runs it; ending with an error is an error.
    pub(crate) fn done(self) -> Result<(), LabError> {
        self.text().map(drop)
    }

    /// Runs it with everything it writes in a log file; the error has the file's end.
    pub(crate) fn logged(mut self, log: &Path) -> Result<(), LabError> {
        let file = File::create(log).map_err(LabError::file("cannot write", log))?;
        let copy = file
            .try_clone()
            .map_err(LabError::file("cannot write", log))?;
        self.command.stdout(file).stderr(copy);
        let status = self.command.status().map_err(|e| self.start_error(e))?;
        if status.success() {
            return Ok(());
        }
        let text = std::fs::read(log).map_err(LabError::file("cannot read", log))?;
        Err(LabError::Command {
            command: self.line(),
            what: self.what,
            code: status.code().unwrap_or(-1),
            stderr: tail(&String::from_utf8_lossy(&text)),
        })
    }

    /// Runs it as the last part of a pipe whose first part is `source`; both have to end well.
    pub(crate) fn fed_by(self, mut source: Self) -> Result<String, LabError> {
        source.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = source.command.spawn().map_err(|e| source.start_error(e))?;
        let Some(stdout) = child.stdout.take() else {
            return Err(source.start_error(std::io::Error::other("no pipe")));
        };
        let text = self.stdin_of(stdout).text();
        let fed = child
            .wait_with_output()
            .map_err(|e| source.start_error(e))?;
        let text = text?;
        Output {
            code: fed.status.code().unwrap_or(-1),
            stdout: String::new(),
            stderr: String::from_utf8_lossy(&fed.stderr).into_owned(),
        }
        .success(&source.what, &source.line())?;
        Ok(text)
    }

    /// Runs it with the terminal of whoever called, and gives its exit code.
    pub(crate) fn attached(mut self) -> Result<i32, LabError> {
        self.command.stdin(Stdio::inherit());
        let status = self.command.status().map_err(|e| self.start_error(e))?;
        Ok(status.code().unwrap_or(-1))
    }
}

//! What can go wrong in the lab. It knows no recovery: a lab that fails is taken down and made anew.

use std::{io, path::PathBuf, time::Duration};

/// Why the lab could not do something: what failed, by which command, and what that said.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A program is not there or cannot be executed.
    #[error("{what}: cannot run {program}: {source}")]
    Start {
        /// What the lab was about to do.
        what: String,
        /// The program's name.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// A command ended with an error.
    #[error("{what}: `{command}` ended with {code}: {stderr}")]
    Command {
        /// What the lab was about to do.
        what: String,
        /// The command line.
        command: String,
        /// Its exit code, −1 where a signal ended it.
        code: i32,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// A file of the lab's own cannot be read or written.
    #[error("{what} {}: {source}", path.display())]
    File {
        /// What the lab was about to do.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file of the lab's own does not say what it should.
    #[error("{} is not understood: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        why: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {limit:?}{detail}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// What was last seen, empty or with a leading ": ".
        detail: String,
    },
    /// The machine lacks what the lab needs, and the lab cannot install it.
    #[error("this machine cannot run the lab: {0}")]
    Host(String),
    /// There is no such lab.
    #[error("there is no lab {0:?}; `lab status` lists them, `lab up --name {0}` makes it")]
    NoLab(String),
    /// There is no such node in the lab.
    #[error("lab {lab:?} has no node {node:?}, only {known}")]
    NoNode {
        /// The lab.
        lab: String,
        /// What was asked for.
        node: String,
        /// What there is.
        known: String,
    },
    /// What was asked for cannot be done.
    #[error("{0}")]
    Refused(String),
}

impl LabError {
    /// Wraps an error about a file: `map_err(LabError::file("cannot read", &path))`.
    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}

//! stdout: data, and nothing else.

use std::io::{self, Write};

use serde::Serialize;

use super::report::{CliError, Failure};

/// Prints a text, with one newline at its end.
pub(super) fn data(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    written(writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush()))
}

/// Prints one JSON object.
pub(super) fn json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Write {
        what: "the result as JSON".to_owned(),
        source: error.into(),
    })?;
    data(&text)
}

/// Prints one JSON object on one line.
pub(super) fn line(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(value).map_err(|error| Failure::Write {
        what: "the result as JSON".to_owned(),
        source: error.into(),
    })?;
    data(&text)
}

fn written(result: io::Result<()>) -> Result<(), CliError> {
    match result {
        // `| head` has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result.map_err(|source| Failure::Write {
            what: "to stdout".to_owned(),
            source,
        })?),
    }
}

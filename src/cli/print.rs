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
    data(&text(serde_json::to_string_pretty(value))?)
}

/// Prints one JSON object on one line.
pub(super) fn line(value: &impl Serialize) -> Result<(), CliError> {
    data(&text(serde_json::to_string(value))?)
}

fn text(written: serde_json::Result<String>) -> Result<String, CliError> {
    let failed = |error: serde_json::Error| Failure::Write {
        what: "the result as JSON".to_owned(),
        source: error.into(),
    };
    Ok(written.map_err(failed)?)
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

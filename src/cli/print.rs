//! stdout: data, and nothing else.

use std::io::{self, Write};

use serde::Serialize;

use super::report::{CliError, Failure};

/// Prints a text, with one newline at its end.
pub(super) fn data(text: &str) -> Result<(), CliError> {
    reaches(text).map(drop)
}

/// The same, for what is printed again and again: false where the reader is gone.
pub(super) fn reaches(text: &str) -> Result<bool, CliError> {
    let mut out = io::stdout().lock();
    written(writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush()))
}

/// Prints one JSON object.
pub(super) fn json(value: &impl Serialize) -> Result<(), CliError> {
    data(&text(serde_json::to_string_pretty(value))?)
}

/// Prints one JSON object on one line. False where the reader is gone.
pub(super) fn line(value: &impl Serialize) -> Result<bool, CliError> {
    reaches(&text(serde_json::to_string(value))?)
}

fn text(written: serde_json::Result<String>) -> Result<String, CliError> {
    let failed = |error: serde_json::Error| Failure::Write {
        what: "the result as JSON".to_owned(),
        source: error.into(),
    };
    Ok(written.map_err(failed)?)
}

fn written(result: io::Result<()>) -> Result<bool, CliError> {
    match result {
        // `| head` has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(source) => Err(Failure::Write {
            what: "to stdout".to_owned(),
            source,
        })?,
        Ok(()) => Ok(true),
    }
}

//! From the config file to the intent, with every problem at its line.

use std::path::Path;

use super::{
    output::{Paint, lines::count},
    report::{CliError, Failure},
    session::Session,
    sources::{FileSources, read_at_most},
};
use crate::config::{Intent, MAX_BYTES, Problems, RkeConfig};

/// Reads, validates and resolves the config. Warnings are shown.
pub(super) fn load(file: &Path, session: &Session) -> Result<Intent, CliError> {
    let text = read_at_most(MAX_BYTES, file).map_err(|source| Failure::Config {
        path: file.to_owned(),
        source,
    })?;
    let name = file.display().to_string();
    let paint = session.screen.paint();
    let resolved = RkeConfig::parse(&text)
        .and_then(|config| Intent::from_config(&config, &FileSources::default()))
        .map_err(|problems| not_valid(&name, &text, problems, paint))?;
    for warning in &resolved.warnings {
        let shown = warning.render_warning(&name, &text, paint == Paint::ON);
        session.screen.print(&shown);
    }
    Ok(resolved.intent)
}

fn not_valid(name: &str, text: &str, problems: Problems, paint: Paint) -> CliError {
    let snippets = problems.render(name, text, paint == Paint::ON);
    let number = count(problems.iter().count(), "problem");
    let error = paint.bad("error:");
    CliError::Config {
        shown: format!("{snippets}\n\n{error} `{name}` has {number}; nothing was changed"),
        problems,
    }
}

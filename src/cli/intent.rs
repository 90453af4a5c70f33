//! From the config file to the intent, with every problem at its line.

use std::{io, path::Path, sync::Arc};

use super::{
    args::CONFIG_FILE,
    output::{Paint, lines::count},
    report::{CliError, Failure},
    session::Session,
    sources::{FileSources, read_at_most, text_at_most},
};
use crate::{
    config::{Intent, MAX_BYTES, Problem, Problems, Resolved, RkeConfig, ssh_queries},
    desired,
    model::{AgentProgram, shell_word},
    snapshots,
};

/// A config that is valid.
pub(super) struct Loaded {
    pub(super) intent: Intent,
    pub(super) warnings: Vec<Problem>,
}

/// Which warnings about the config a command shows: after what it refuses before it reads the config, as the state of
/// another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warnings {
    /// Each, with its place in the file: of commands that are about the config.
    Shown,
    /// How many there are.
    Counted,
    /// None: of a removal, for which they no longer matter.
    Hidden,
}

/// Reads, validates and resolves the config, for a command that is about something else: warnings are counted.
pub(super) async fn load(file: &Path, session: &Session) -> Result<Intent, CliError> {
    load_with(Warnings::Counted, file, session).await
}

/// As [`load`].
pub(super) async fn load_with(
    warnings: Warnings,
    file: &Path,
    session: &Session,
) -> Result<Intent, CliError> {
    let (text, loaded) = read(file, sources(file, session), session).await?;
    show(warnings, file, &text, &loaded.warnings, session);
    Ok(loaded.intent)
}

/// Reads, validates and resolves the config, and shows its warnings; one of them says where nodes are given no program
/// that the config asks for.
pub(super) async fn load_whole(file: &Path, session: &Session) -> Result<Loaded, CliError> {
    whole(Warnings::Shown, file, sources(file, session), session).await
}

/// As [`load_whole`], for a command that logs in nowhere: it needs no key and asks for no passphrase.
pub(super) async fn load_to_validate(
    warnings: Warnings,
    file: &Path,
    session: &Session,
) -> Result<Loaded, CliError> {
    let sources = sources(file, session).for_validation();
    whole(warnings, file, sources, session).await
}

async fn whole(
    warnings: Warnings,
    file: &Path,
    sources: FileSources,
    session: &Session,
) -> Result<Loaded, CliError> {
    let (text, mut loaded) = read(file, sources, session).await?;
    if loaded.intent.services.snapshots.is_some() && loaded.intent.agent.is_none() {
        loaded.warnings.push(no_program());
    }
    show(warnings, file, &text, &loaded.warnings, session);
    Ok(loaded)
}

/// Nodes are given no program that takes recurring snapshots.
fn no_program() -> Problem {
    const MESSAGE: &str = "recurring snapshots of etcd are not set up: nodes cannot run this rke-operator, \
        because it is not linked statically";
    Problem::new("services.etcd.snapshot", MESSAGE)
        .detail("nodes that already take snapshots continue")
        .hint(
            "use a program that `make dist` built, or the operator; to do without recurring snapshots, \
             set `snapshot: false` under `services.etcd`",
        )
}

/// What nodes with etcd are given.
pub(super) fn own_program() -> Result<Option<AgentProgram>, CliError> {
    snapshots::own_program().map_err(|source| Failure::OwnProgram { source }.into())
}

/// `--config -`: the config comes in through stdin. Only what keeps nothing next to it can work so.
pub(super) fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// How messages name the config.
pub(super) fn shown(file: &Path) -> String {
    if is_stdin(file) {
        "<stdin>".to_owned()
    } else {
        file.display().to_string()
    }
}

/// What the config may read.
fn sources(file: &Path, session: &Session) -> FileSources {
    FileSources::default()
        .next_to(file)
        .with_agent(session.ssh_agent)
        .with_passphrases(Arc::clone(&session.passphrases))
}

async fn read(
    file: &Path,
    sources: FileSources,
    session: &Session,
) -> Result<(String, Loaded), CliError> {
    let text = if is_stdin(file) {
        text_at_most(MAX_BYTES, io::stdin().lock())
    } else {
        read_at_most(MAX_BYTES, file)
    };
    let text = text.map_err(|source| Failure::Config {
        path: file.to_owned(),
        source,
    })?;
    let paint = session.screen.paint();
    let machines = RkeConfig::parse(&text).map(|config| ssh_queries(&config));
    let (ssh_config, unread) = session.ssh_config.of(&machines.unwrap_or_default()).await;
    let sources = sources.with_ssh_config(ssh_config);
    let Resolved {
        mut intent,
        mut warnings,
    } = loop {
        let read =
            RkeConfig::parse(&text).and_then(|config| Intent::from_config(&config, &sources));
        match read {
            Ok(resolved) => break resolved,
            Err(problems) if !session.passphrases.ask(&session.prompt).await? => {
                // What is missing may be in there.
                show(Warnings::Shown, file, &text, &unread, session);
                return Err(not_valid(&shown(file), &text, problems, paint));
            }
            Err(_) => {}
        }
    };
    warnings.extend(unread);
    for (node, from) in &intent.nodes {
        if !from.ssh_config.is_empty() {
            tracing::debug!(%node, values = ?from.ssh_config, "from the SSH config");
        }
    }
    for bastion in intent.bastions() {
        if !bastion.ssh_config.is_empty() {
            let at = &bastion.endpoint;
            tracing::debug!(bastion = %at, values = ?bastion.ssh_config, "from the SSH config");
        }
    }
    desired::check(&intent)?;
    if intent.services.snapshots.is_some() || intent.services.snapshot_bucket.is_some() {
        intent.agent = own_program()?;
    }
    let loaded = Loaded { intent, warnings };
    Ok((text, loaded))
}

fn show(how: Warnings, file: &Path, text: &str, warnings: &[Problem], session: &Session) {
    let name = shown(file);
    let in_colour = session.screen.paint() == Paint::ON;
    match how {
        Warnings::Shown => {
            for warning in warnings {
                let shown = warning.render_warning(&name, text, in_colour);
                session.screen.print(&format!("{shown}\n"));
            }
        }
        Warnings::Counted if !warnings.is_empty() => {
            let number = count(warnings.len(), "warning");
            let them = if warnings.len() == 1 { "it" } else { "them" };
            let config = if file == Path::new(CONFIG_FILE) {
                String::new()
            } else {
                format!(" --config {}", shell_word(&name))
            };
            session.screen.print_unless_quiet(&format!(
                "`{name}` has {number}: `rke-operator validate{config}` shows {them}"
            ));
        }
        Warnings::Counted | Warnings::Hidden => {}
    }
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

//! `rke-operator`: parses its arguments, starts the log, runs the command, and exits with its code.

use std::{io, process::ExitCode, sync::Arc};

use rke_operator::{
    cli::{
        dispatch::dispatch,
        log,
        output::{
            Screen,
            json::{self, Ended},
        },
        run_log::RunLog,
        usage::{Usage, wants_json},
    },
    error::ErrorClass,
};

fn main() -> ExitCode {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let arguments: Vec<_> = std::env::args_os().collect();
    let is_json = wants_json(&arguments);
    let usage = Usage::read(arguments, is_set);
    if let Some(ended) = usage.ended().filter(|_| is_json) {
        say(&ended);
    }
    let (cli, warnings) = match usage {
        Usage::Known { cli, warnings } => (*cli, warnings),
        Usage::Foreign { error, hint } => {
            let screen = Screen::stderr(true, false);
            let label = screen.paint().bad("error:");
            screen.print(&format!("{label} {error}\n\nhint: {hint}"));
            return ExitCode::from(ErrorClass::User.exit_code());
        }
        Usage::Other(usage) => return explain(&usage),
    };
    let run_log = RunLog::of(&cli.command, now());
    let screen = Screen::stderr(cli.global.no_progress, cli.global.quiet);
    let screen = Arc::new(screen.kept_in(run_log.clone()));
    log::start(&cli, &screen, run_log.as_ref());
    for warning in &warnings {
        screen.warn(warning);
    }
    // It fails only if a provider is installed already, and no other code installs one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            screen.print(&format!("error: cannot start\n  caused by: {error}"));
            if is_json {
                say(&Ended::Failed {
                    message: "cannot start".to_owned(),
                    causes: vec![error.to_string()],
                    hints: Vec::new(),
                    class: ErrorClass::Bug,
                    problems: Vec::new(),
                });
            }
            return ExitCode::from(ErrorClass::Bug.exit_code());
        }
    };
    let code = runtime.block_on(dispatch(cli, screen));
    // Behind an unanswered prompt a thread still reads stdin: do not wait for it.
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// With `--output json` the last line shows how it ended. A reader that is gone changes nothing about that.
fn say(ended: &Ended) {
    let _ = json::ended(&mut io::stdout().lock(), ended);
}

#[expect(clippy::disallowed_methods, reason = "here the process begins")]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// A wrong flag is the user's turn, so it exits as other errors of that class do. clap's own
/// code, 2, is ours for "a node or the network: worth another try".
fn explain(usage: &clap::Error) -> ExitCode {
    let _ = usage.print();
    if usage.use_stderr() {
        ExitCode::from(ErrorClass::User.exit_code())
    } else {
        ExitCode::SUCCESS
    }
}

//! The log on stderr. `RUST_LOG` is not read: at level debug bollard logs whole requests and
//! russh logs agent buffers, both of which may hold secrets, so those two are always capped.

use std::{io, sync::Arc};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use super::{
    args::{Cli, Command, Output},
    output::Screen,
};

/// Starts it.
pub fn start(cli: &Cli, screen: &Arc<Screen>) {
    let ours = match (&cli.command, cli.global.debug, cli.global.quiet) {
        (_, true, _) => "debug",
        (_, _, true) => "error",
        (Command::Run(_), false, false) => "info",
        (_, false, false) => "warn",
    };
    // What fails below us comes back to us, and is said once, as our error.
    let others = match (&cli.command, cli.global.debug) {
        (_, true) => "info",
        (Command::Run(_), false) => "warn",
        (_, false) => "off",
    };
    // After the others' level, so that these two are capped whatever it is.
    let capped = if others == "off" { "off" } else { "error" };
    let filter = EnvFilter::new(format!(
        "{others},bollard={capped},russh={capped},rke_operator={ours}"
    ));
    let color = screen.paint() == super::output::Paint::ON;
    let json = matches!(&cli.command, Command::Run(run) if run.log_format == Output::Json);
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(cli.global.debug)
        .with_writer(Writer(Arc::clone(screen)));
    // A second subscriber in one process (tests) keeps the first.
    let _ = if json {
        log.json().flatten_event(true).try_init()
    } else {
        log.with_ansi(color).try_init()
    };
}

struct Writer(Arc<Screen>);

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(&self.0)
    }
}

struct Line<'a>(&'a Screen);

impl io::Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.prompt(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

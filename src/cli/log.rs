//! The log on stderr. `RUST_LOG` is not read: at level debug bollard logs whole requests and
//! russh logs agent buffers; kube's client logs an answer that it cannot parse at level warn, whole.
//! All of these may hold secrets, so those three are always capped.

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
    let filter = filter(others, ours);
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

/// How much is logged of what others and what we say.
fn filter(others: &str, ours: &str) -> EnvFilter {
    // After the others' level, so that these three are capped whatever it is.
    let capped = if others == "off" { "off" } else { "error" };
    EnvFilter::new(format!(
        "{others},bollard={capped},russh={capped},kube_client={capped},rke_operator={ours}"
    ))
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

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            said.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// kube's client says the whole answer that it cannot parse: a list with everybody's passwords.
    #[test]
    fn no_library_says_what_it_was_answered() {
        for (others, ours) in [("info", "debug"), ("warn", "info"), ("off", "warn")] {
            let said = Said::default();
            let writer = said.clone();
            let log = tracing_subscriber::fmt()
                .with_env_filter(filter(others, ours))
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(log, || {
                tracing::warn!(target: "kube_client::client", "a list with hunter2");
                tracing::warn!(target: "bollard::docker", "a request with hunter2");
                tracing::warn!(target: "russh::client", "a buffer with hunter2");
                tracing::warn!(target: "rke_operator::operator", "ours");
            });
            let said = String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
            assert!(!said.contains("hunter2"), "{others}: {said}");
            assert!(said.contains("ours"), "{others}: {said}");
        }
    }
}

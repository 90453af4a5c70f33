//! The log on stderr. `RUST_LOG` is not read: at level debug bollard logs whole requests and
//! russh logs agent buffers; kube's client logs an answer that it cannot parse at level warn, whole.
//! All of these may hold secrets, so those three are always capped.
//!
//! A line of JSON has the fields of its event, and those of the spans that it is in, at the top level: `timestamp`,
//! `level`, `target`, `message`; `cluster` or `kubeconfig` while that object is reconciled, `node` and `step` during a
//! step.

use std::{fmt, io, sync::Arc};

use serde_json::Value;
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry,
    fmt::{
        FmtContext, FormatEvent, FormatFields, MakeWriter,
        format::{Format, Json, JsonFields, Writer as Line},
    },
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use super::{
    args::{Cli, Command, Output},
    output::Screen,
    run_log::{RunLog, ToFile},
};

/// Starts it; with a file for the run, it is written to that as `--debug` has it.
pub fn start(cli: &Cli, screen: &Arc<Screen>, run_log: Option<&Arc<RunLog>>) {
    let ours = match (&cli.command, cli.global.debug, cli.global.quiet) {
        (_, true, _) => "debug",
        (_, _, true) => "error",
        (Command::Run(_), false, false) => "info",
        (_, false, false) => "warn",
    };
    // A library returns its failures as well, and rke-operator reports each once, as its own error.
    let others = match (&cli.command, cli.global.debug) {
        (_, true) => "info",
        (Command::Run(_), false) => "warn",
        (_, false) => "off",
    };
    let shape = Shape {
        format: if let Command::Run(run) = &cli.command {
            run.log_format
        } else {
            Output::Text
        },
        color: screen.paint() == super::output::Paint::ON,
        target: cli.global.debug,
    };
    let writer = Writer(Arc::clone(screen));
    let Some(run_log) = run_log else {
        // A second subscriber in one process (tests) keeps the first.
        let _ = to(writer, filter(others, ours), shape).try_init();
        return;
    };
    let shown = tracing_subscriber::fmt::layer()
        .with_target(shape.target)
        .with_ansi(shape.color)
        .with_writer(writer)
        .with_filter(filter(others, ours));
    let kept = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(ToFile(Arc::clone(run_log)))
        .with_filter(filter("info", "debug"));
    let log = Registry::default().with(shown).with(kept);
    let _ = log.try_init();
}

/// How a line looks.
#[derive(Clone, Copy, Debug)]
struct Shape {
    format: Output,
    color: bool,
    target: bool,
}

/// A log, ready to be installed.
pub type Log = Box<dyn Subscriber + Send + Sync>;

/// The log of `run`, in that format, as `--debug` has it or not.
pub fn of_operator<W>(writer: W, format: Output, debug: bool) -> Log
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = if debug {
        filter("info", "debug")
    } else {
        filter("warn", "info")
    };
    let shape = Shape {
        format,
        color: false,
        target: debug,
    };
    to(writer, filter, shape)
}

fn to<W>(writer: W, filter: EnvFilter, shape: Shape) -> Log
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let Shape {
        format,
        color,
        target,
    } = shape;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer);
    match format {
        Output::Json => {
            let json = tracing_subscriber::fmt::format().json();
            let json = json.with_current_span(false).with_target(target);
            let flat = Flat(json.flatten_event(true));
            Box::new(
                log.fmt_fields(JsonFields::new())
                    .event_format(flat)
                    .finish(),
            )
        }
        Output::Text => Box::new(log.with_target(target).with_ansi(color).finish()),
    }
}

/// JSON with the fields of the spans next to those of the event.
struct Flat(Format<Json>);

impl<S, N> FormatEvent<S, N> for Flat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Line<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(ctx, Line::new(&mut text), event)?;
        let Ok(Value::Object(mut line)) = serde_json::from_str(&text) else {
            return writer.write_str(&text);
        };
        if let Some(Value::Array(spans)) = line.remove("spans") {
            for (field, value) in spans.into_iter().flat_map(ours) {
                line.entry(field).or_insert(value);
            }
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// The fields of a span of rke-operator's.
fn ours(span: Value) -> Vec<(String, Value)> {
    const FIELDS: [&str; 5] = ["cluster", "kubeconfig", "node", "step", "stage"];
    let Value::Object(fields) = span else {
        return Vec::new();
    };
    let all = fields.into_iter();
    all.filter(|(field, _)| FIELDS.contains(&field.as_str()))
        .collect()
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
    type Writer = OnScreen<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        OnScreen(&self.0)
    }
}

struct OnScreen<'a>(&'a Screen);

impl io::Write for OnScreen<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.log_line(&String::from_utf8_lossy(bytes));
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
            let shape = Shape {
                format: Output::Text,
                color: false,
                target: false,
            };
            let log = to(move || writer.clone(), filter(others, ours), shape);
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

    /// What a log of the operator says of a step and of a request below it, as JSON.
    #[test]
    fn a_line_of_json_has_the_fields_of_its_spans() {
        let said = Said::default();
        let writer = said.clone();
        let log = of_operator(move || writer.clone(), Output::Json, true);
        tracing::subscriber::with_default(log, || {
            tracing::info!("starts");
            let theirs =
                tracing::info_span!(target: "kube_runtime", "reconciling", object.ref = "a");
            let _theirs = theirs.entered();
            let _ours = tracing::info_span!("reconcile", cluster = "a").entered();
            let _step = tracing::info_span!("step", node = "n1", step = "run etcd").entered();
            tracing::warn!(node = "n2", status = 409, "a \"request\"\nended");
        });
        let said = String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let fields = |line: &Value| -> Vec<String> {
            let all = line.as_object().unwrap().keys();
            all.map(String::clone).collect()
        };
        assert_eq!(
            fields(&lines[0]),
            ["level", "message", "target", "timestamp"]
        );
        assert_eq!(lines.len(), 2, "{said}");
        let (_, mut line) = (&lines[0], lines[1].clone());
        assert!(line["timestamp"].take().is_string());
        assert_eq!(
            line,
            serde_json::json!({
                "timestamp": null, "level": "WARN", "target": "rke_operator::cli::log::tests",
                "message": "a \"request\"\nended", "status": 409,
                "cluster": "a", "node": "n2", "step": "run etcd",
            })
        );
    }
}

//! stderr as we use it: whole lines, and at a terminal one status line below them that is
//! redrawn in place. The only module that writes to stderr; and how wide and colourful stdout may be.

use std::{
    io::{IsTerminal, Write},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Colours, or none: `NO_COLOR`, a dumb terminal and pipes get none. They never carry meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint(bool);

impl Paint {
    /// No colour.
    pub const OFF: Self = Self(false);
    /// Colour.
    pub const ON: Self = Self(true);

    #[expect(
        clippy::disallowed_methods,
        reason = "the terminal's own variables are read where the terminal is"
    )]
    fn at(terminal: bool) -> Self {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let plain = std::env::var("NO_COLOR").is_ok_and(|value| !value.is_empty());
        Self(terminal && !dumb && !plain)
    }

    /// Something that failed.
    pub fn bad(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    /// Something to look at.
    pub fn warn(self, text: &str) -> String {
        self.wrap("1;33", text)
    }

    /// A cure.
    pub fn hint(self, text: &str) -> String {
        self.wrap("1;36", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// How data for people is laid out on stdout.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The colours.
    pub paint: Paint,
    /// How wide a line may be; `None`: as wide as it is, for pipes and files.
    pub columns: Option<usize>,
}

impl Page {
    /// As the process finds its stdout.
    pub fn stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let size = terminal_size::terminal_size_of(std::io::stdout());
        let columns = size.map_or(80, |(width, _)| usize::from(width.0));
        Self {
            paint: Paint::at(terminal),
            columns: terminal.then_some(columns),
        }
    }
}

/// stderr, shared by the sinks, the questions and the log.
#[derive(Debug)]
pub struct Screen {
    paint: Paint,
    /// Columns, when a status line may be drawn.
    live: Option<usize>,
    quiet: bool,
    status: Mutex<String>,
    /// How many questions wait for an answer.
    questions: AtomicUsize,
}

/// A question that waits for an answer.
#[derive(Debug)]
pub struct Question<'a>(&'a Screen);

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.0.questions.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Screen {
    /// As the process finds its stderr.
    #[expect(
        clippy::disallowed_methods,
        reason = "the terminal's own variables are read where the terminal is"
    )]
    pub fn stderr(no_progress: bool, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let columns = terminal_size::terminal_size_of(std::io::stderr())
            .map_or(80, |(width, _)| usize::from(width.0));
        Self {
            paint: Paint::at(terminal),
            live: (terminal && !dumb && !no_progress && !quiet).then_some(columns),
            quiet,
            status: Mutex::new(String::new()),
            questions: AtomicUsize::new(0),
        }
    }

    /// The colours.
    pub const fn paint(&self) -> Paint {
        self.paint
    }

    /// True when a status line is drawn.
    pub const fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// One or more whole lines that `--quiet` leaves out.
    pub fn print_unless_quiet(&self, text: &str) {
        if !self.quiet {
            self.print(text);
        }
    }

    /// One or more whole lines that are always printed: warnings, errors, questions.
    pub fn print(&self, text: &str) {
        self.write(text, "\n");
    }

    /// A warning of one or more lines.
    pub fn warn(&self, text: &str) {
        let warning = self.paint().warn("warning:");
        self.print(&format!("{warning} {text}"));
    }

    /// A question: the cursor stays behind it.
    pub fn prompt(&self, text: &str) {
        self.write(text, "");
    }

    /// Prints a question. No status line is drawn over it before the value is dropped.
    pub fn question(&self, text: &str) -> Question<'_> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let question = Question(self);
        self.prompt(text);
        question
    }

    fn write(&self, text: &str, end: &str) {
        let mut status = self.lock();
        erase(&mut status);
        put(&format!("{text}{end}"));
    }

    /// Redraws the status line; an empty text takes it away. Nothing when it is not drawn.
    pub fn status(&self, text: &str) {
        let Some(columns) = self.live else { return };
        let mut status = self.lock();
        if self.questions.load(Ordering::SeqCst) > 0 {
            return;
        }
        let text = clip(text, columns.saturating_sub(1));
        if *status == text {
            return;
        }
        erase(&mut status);
        put(&text);
        *status = text;
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn erase(status: &mut String) {
    if !status.is_empty() {
        put("\r\x1b[2K");
        status.clear();
    }
}

/// A stderr that is gone must not end a run that changes servers.
fn put(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

/// Cuts to a number of characters, with `…` for what is missing.
pub(super) fn clip(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(columns.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clips_to_the_width_in_characters() {
        assert_eq!(clip("grün", 4), "grün");
        assert_eq!(clip("grün und blau", 6), "grün …");
        assert_eq!(clip("abc", 0), "…");
    }

    #[test]
    fn no_status_is_drawn_over_a_question() {
        let screen = Screen {
            paint: Paint::OFF,
            live: Some(80),
            quiet: false,
            status: Mutex::default(),
            questions: AtomicUsize::new(0),
        };
        let question = screen.question("Continue? [y/n]: ");
        screen.status("waits for n1, 2 s");
        assert_eq!(*screen.lock(), "");
        drop(question);
        screen.status("waits for n1, 2 s");
        assert_eq!(*screen.lock(), "waits for n1, 2 s");
    }

    #[test]
    fn colour_is_only_around_the_words() {
        assert_eq!(Paint::OFF.bad("error"), "error");
        assert_eq!(Paint::ON.bad("error"), "\x1b[1;31merror\x1b[0m");
    }
}

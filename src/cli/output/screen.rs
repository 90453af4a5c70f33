//! stderr as we use it: whole lines, and at a terminal some lines below them that are redrawn in place and show what is
//! being done. The only module that writes to stderr; and how wide and colourful stdout may be.

use std::{
    io::{IsTerminal, Write},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{cli::run_log::RunLog, model::wrapped_lines};

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
    /// It is a terminal, so sentences are wrapped.
    terminal: bool,
    /// The lines that are redrawn, where there may be some.
    live: Option<Live>,
    quiet: bool,
    /// How many questions wait for an answer.
    questions: AtomicUsize,
    /// Has a copy of what is printed.
    copy: Option<Arc<RunLog>>,
}

/// Lines that are redrawn in place, below what is printed. The cursor stays behind the last one: what the terminal echoes
/// there, such as `^C`, wraps nothing. (indicatif fills each line to the end, and such an echo shifts all of them.)
#[derive(Debug, Default)]
struct Live(Mutex<Vec<String>>);

impl Live {
    /// Shows these in the place of those before.
    fn show(&self, lines: &[String]) {
        let mut shown = self.shown();
        if *shown != lines {
            put(&format!("{}{}", erased(&shown), lines.join("\n")));
            *shown = lines.to_vec();
        }
    }

    /// Prints a text above them; below one without an end, which is a question, there are none.
    fn print(&self, text: &str) {
        let mut shown = self.shown();
        let erased = erased(&shown);
        if !text.ends_with('\n') {
            shown.clear();
        }
        put(&format!("{erased}{text}{}", shown.join("\n")));
    }

    fn shown(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What takes these lines off the terminal, the cursor behind the last one.
fn erased(lines: &[String]) -> String {
    const LINE: &str = "\r\x1b[2K";
    const UP: &str = "\x1b[1A";
    let ups = lines.len().saturating_sub(1);
    let line = if lines.is_empty() { "" } else { LINE };
    format!("{line}{}", format!("{UP}{LINE}").repeat(ups))
}

/// How much room there is for the lines that are redrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How long a line may be.
    pub columns: usize,
    /// How many there may be.
    pub lines: usize,
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
        let live = terminal && !dumb && !no_progress && !quiet;
        Self {
            paint: Paint::at(terminal),
            terminal,
            live: live.then(Live::default),
            quiet,
            questions: AtomicUsize::new(0),
            copy: None,
        }
    }

    /// The same, and what is printed is kept in the log of the run as well.
    #[must_use]
    pub fn kept_in(self, log: Option<Arc<RunLog>>) -> Self {
        Self { copy: log, ..self }
    }

    /// The log of the run, as far as anything is in it.
    pub fn log(&self) -> Option<&Path> {
        self.copy.as_ref()?.written()
    }

    /// The colours.
    pub const fn paint(&self) -> Paint {
        self.paint
    }

    /// The room for lines that are redrawn; `None` where none are.
    pub fn room(&self) -> Option<Room> {
        self.live.as_ref()?;
        let size = terminal_size::terminal_size_of(std::io::stderr());
        let (columns, rows) = size.map_or((80, 24), |(width, height)| {
            (usize::from(width.0), usize::from(height.0))
        });
        Some(Room {
            columns: columns.saturating_sub(1),
            lines: (rows / 2).max(1),
        })
    }

    /// Only warnings and errors are wanted.
    pub const fn is_quiet(&self) -> bool {
        self.quiet
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

    /// Words of the log: in its file they are already.
    pub(in crate::cli) fn log_line(&self, text: &str) {
        self.put(text);
    }

    /// Prints a question. Nothing is drawn over it before the value is dropped.
    pub fn question(&self, text: &str) -> Question<'_> {
        self.live(&[]);
        self.questions.fetch_add(1, Ordering::SeqCst);
        let question = Question(self);
        self.prompt(text);
        question
    }

    /// True while a question waits for its answer.
    pub fn asks(&self) -> bool {
        self.questions.load(Ordering::SeqCst) > 0
    }

    fn write(&self, text: &str, end: &str) {
        let text = format!("{text}{end}");
        if let Some(copy) = &self.copy {
            copy.printed(&text);
        }
        self.put(&wrapped_lines(&text, self.columns()));
    }

    /// How wide a sentence may be; `None`: as wide as it is, for pipes and files.
    fn columns(&self) -> Option<usize> {
        let size = || terminal_size::terminal_size_of(std::io::stderr());
        self.terminal
            .then(|| size().map_or(80, |(width, _)| usize::from(width.0)))
    }

    fn put(&self, text: &str) {
        match &self.live {
            Some(live) => live.print(text),
            None => put(text),
        }
    }

    /// Redraws the lines that show what is being done. Nothing where none are drawn, or a question waits.
    pub fn live(&self, lines: &[String]) {
        if !self.asks()
            && let Some(live) = &self.live
        {
            live.show(lines);
        }
    }
}

/// A stderr that is gone must not end a run that changes servers.
fn put(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

/// Cuts to a number of characters, with `…` for what is missing.
pub(in crate::cli) fn clip(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(columns.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Cuts to a number of characters at most, with `…` in the middle: what something waits for begins with what it is, and
/// ends with how long. The end begins with a whole word, so that no number loses its first digits.
pub(in crate::cli) fn clip_middle(text: &str, columns: usize) -> String {
    let length = text.chars().count();
    if length <= columns {
        return text.to_owned();
    }
    let end: String = text.chars().skip(length - columns / 3).collect();
    let end = end.find(' ').map_or("", |at| &end[at..]);
    let start = columns.saturating_sub(1 + end.chars().count());
    let mut cut: String = text.chars().take(start).collect();
    cut.push('…');
    cut.push_str(end);
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
        assert_eq!(clip_middle("it ends in 84 s", 15), "it ends in 84 s");
        assert_eq!(
            clip_middle("the retry ends in 84 s", 16),
            "the retry … 84 s"
        );
        assert_eq!(clip_middle("the retry ends in 484 s", 14), "the retry e… s");
        assert_eq!(clip_middle("für 84 s", 6), "für… s");
        assert_eq!(clip_middle("abc", 0), "…");
    }

    #[test]
    fn nothing_is_drawn_over_a_question() {
        let screen = Screen {
            paint: Paint::OFF,
            terminal: false,
            live: Some(Live::default()),
            quiet: false,
            questions: AtomicUsize::new(0),
            copy: None,
        };
        let shown = || screen.live.as_ref().unwrap().shown().clone();
        let two = ["n1, 2 s", "n2, 1 s"].map(str::to_owned);
        screen.live(&two);
        assert_eq!(shown(), two);
        let question = screen.question("Continue? [y/n]: ");
        assert_eq!(shown(), [""; 0]);
        screen.live(&two);
        assert_eq!(shown(), [""; 0]);
        drop(question);
        screen.live(&two[..1]);
        assert_eq!(shown(), ["n1, 2 s"]);
    }

    #[test]
    fn lines_are_taken_off_from_the_last_to_the_first() {
        let lines = |count: usize| vec![String::new(); count];
        assert_eq!(erased(&lines(0)), "");
        assert_eq!(erased(&lines(1)), "\r\x1b[2K");
        assert_eq!(
            erased(&lines(3)),
            "\r\x1b[2K\x1b[1A\r\x1b[2K\x1b[1A\r\x1b[2K"
        );
    }

    #[test]
    fn colour_is_only_around_the_words() {
        assert_eq!(Paint::OFF.bad("error"), "error");
        assert_eq!(Paint::ON.bad("error"), "\x1b[1;31merror\x1b[0m");
    }
}

//! The byte stream under an SSH connection, in our hands: russh's own task holds it for as long as it likes, and a
//! server that says its version and then nothing more keeps that task for ever. Here the stream itself ends when its
//! [`Link`] is cut. Besides it listens: what a server says before its version, and whether it was the server that hung
//! up, russh does not tell.

use std::{
    io,
    pin::Pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{Stream, guard::Link};
use crate::model::printable;

/// How much of a server's words is kept.
const WORDS: usize = 4 << 10;

/// What a server said that is no part of SSH's own messages.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Up to and with its version.
    before: Mutex<Vec<u8>>,
    version: AtomicBool,
    hung_up: AtomicBool,
    banner: Mutex<String>,
    goodbye: Mutex<Option<String>>,
    /// When something came from it last.
    last: Mutex<Option<Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heard {
    fn listen(&self, bytes: &[u8]) {
        if self.version.load(Ordering::Relaxed) {
            return;
        }
        let mut before = lock(&self.before);
        let room = WORDS.saturating_sub(before.len());
        before.extend_from_slice(&bytes[..bytes.len().min(room)]);
        // What follows a whole line with the version is SSH's own.
        let mut rest = before.as_slice();
        let mut at = 0;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            if rest.starts_with(b"SSH-") {
                before.truncate(at + end + 1);
                self.version.store(true, Ordering::Relaxed);
                return;
            }
            at += end + 1;
            rest = &rest[end + 1..];
        }
    }

    /// Its version, `SSH-2.0-OpenSSH_9.2`, once it has said it.
    pub(super) fn version(&self) -> Option<String> {
        let said = self.version.load(Ordering::Relaxed);
        let before = lock(&self.before);
        let line = lines(&before).last();
        line.filter(|_| said)
    }

    /// True once the server ended the connection, or the network did.
    pub(super) fn hung_up(&self) -> bool {
        self.hung_up.load(Ordering::Relaxed)
    }

    /// When something came from it last.
    pub(super) fn last(&self) -> Option<Instant> {
        *lock(&self.last)
    }

    /// The message for people in the middle of a login: a banner, or why there is none now.
    pub(super) fn add_banner(&self, text: &str) {
        let mut banner = lock(&self.banner);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if banner.len() + line.len() > WORDS {
                return;
            }
            if !banner.is_empty() {
                banner.push(' ');
            }
            banner.push_str(&printable(line));
        }
    }

    /// The message with which it ends a connection.
    pub(super) fn add_goodbye(&self, text: &str) {
        let text: String = printable(text.trim()).chars().take(WORDS).collect();
        lock(&self.goodbye).get_or_insert(text);
    }

    /// Why it ended the connection, in its own words.
    pub(super) fn goodbye(&self) -> Option<String> {
        lock(&self.goodbye).clone()
    }

    /// All that it said to people: before its version, as a banner, and when it ended the connection.
    pub(super) fn said(&self) -> Option<String> {
        let before = lock(&self.before);
        let mut all: Vec<String> = lines(&before)
            .filter(|line| !line.starts_with("SSH-"))
            .collect();
        drop(before);
        all.push(lock(&self.banner).clone());
        all.extend(self.goodbye());
        all.retain(|words| !words.is_empty());
        (!all.is_empty()).then(|| all.join(" "))
    }
}

/// The lines as they may be shown.
fn lines(bytes: &[u8]) -> impl Iterator<Item = String> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let lines: Vec<String> = text
        .lines()
        .map(|line| printable(line.trim()).into_owned())
        .filter(|line| !line.is_empty())
        .collect();
    lines.into_iter()
}

/// The stream.
pub(super) struct Owned {
    stream: Box<dyn Stream>,
    link: Link,
    dead: Pin<Box<WaitForCancellationFutureOwned>>,
    heard: std::sync::Arc<Heard>,
}

impl Owned {
    pub(super) fn new(stream: Box<dyn Stream>, link: Link, heard: std::sync::Arc<Heard>) -> Self {
        let dead = Box::pin(link.cancelled());
        Self {
            stream,
            link,
            dead,
            heard,
        }
    }

    /// The error of a stream that was cut.
    fn cut(&mut self, cx: &mut Context<'_>) -> Option<io::Error> {
        let dead = self.dead.as_mut().poll(cx).is_ready();
        dead.then(|| self.link.error())
    }

    /// Reads what a server sent before it hung up during the handshake: as a rule, the reason.
    fn read_remainder(&mut self, cx: &mut Context<'_>) {
        self.heard.hung_up.store(true, Ordering::Relaxed);
        let mut bytes = [0; WORDS];
        for _ in 0..16 {
            let mut out = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut out) {
                Poll::Ready(Ok(())) if !out.filled().is_empty() => self.heard.listen(out.filled()),
                Poll::Ready(_) | Poll::Pending => return,
            }
        }
    }
}

impl AsyncRead for Owned {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(error) = self.cut(cx) {
            return Poll::Ready(Err(error));
        }
        let had = out.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, out);
        match &read {
            Poll::Ready(Ok(())) if out.filled().len() > had => {
                self.heard.listen(&out.filled()[had..]);
                *lock(&self.heard.last) = Some(Instant::now());
            }
            Poll::Ready(_) => self.heard.hung_up.store(true, Ordering::Relaxed),
            Poll::Pending => {}
        }
        read
    }
}

impl AsyncWrite for Owned {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.cut(cx) {
            return Poll::Ready(Err(error));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if matches!(written, Poll::Ready(Err(_))) {
            self.read_remainder(cx);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.cut(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.cut(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::Heard;

    #[test]
    fn words_before_the_version_are_kept_and_nothing_after_it() {
        let heard = Heard::default();
        for part in [
            "Not allowed ",
            "at this time\r\n",
            "\u{1b}[2J\r\nSSH-2.0-Op",
            "enSSH_9.9\r\nbinary\n",
        ] {
            heard.listen(part.as_bytes());
        }
        assert_eq!(heard.version().as_deref(), Some("SSH-2.0-OpenSSH_9.9"));
        assert_eq!(
            heard.said().as_deref(),
            Some("Not allowed at this time \\u{1b}[2J")
        );
        heard.add_banner("System is\r\n\r\nbooting up.\r\n");
        heard.add_goodbye("Bye\u{7}");
        assert_eq!(
            heard.said().as_deref(),
            Some("Not allowed at this time \\u{1b}[2J System is booting up. Bye\\u{7}")
        );
    }

    #[test]
    fn endless_words_are_not_kept() {
        let heard = Heard::default();
        for _ in 0..1000 {
            heard.listen(&[b'x'; 1000]);
            heard.add_banner(&"y".repeat(1000));
        }
        assert!(heard.said().is_some_and(|said| said.len() < 9000));
        assert_eq!(heard.version(), None);
    }
}

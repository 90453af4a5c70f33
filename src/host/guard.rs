//! A byte stream over an SSH channel that always ends.
//!
//! Three things are wrong with a bare channel: a channel that no task reads stops every other
//! channel of its connection (and the keepalive); a writer that waits for the window is never
//! woken when the connection dies; and a cut connection looks like a clean end of file. Here a
//! task drains each channel into a bounded queue, and every wait also watches the connection.
//!
//! A run has a few of these open to every node at the same time, so a waiting stream allocates no buffer: what arrives
//! is passed on as it is.

#![expect(
    clippy::disallowed_methods,
    reason = "the pump of a channel must run while its reader does something else"
)]

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, client::Msg};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{Notify, OwnedSemaphorePermit, mpsc},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::wire::Heard;

/// How many bytes may wait for their reader before the stream is given up.
const QUEUE_LIMIT: usize = 64 << 20;

/// With so many bytes that wait, no more are taken from the connection until the reader has come closer: what is read
/// more slowly than it comes, as onto a slow disk, is slowed down by TCP.
const BRAKE: usize = 32 << 20;

/// With so many, more are taken again.
const RELEASE: usize = 24 << 20;

/// So long a reader may let all others of the connection wait before its stream counts as unread.
const PAUSE: Duration = Duration::from_secs(2);

/// Whether an SSH connection lives, and if not, why.
#[derive(Clone, Default)]
pub(super) struct Link {
    dead: CancellationToken,
    why: Arc<OnceLock<String>>,
}

impl Link {
    /// Marks it dead; the first reason stays.
    pub(super) fn cut(&self, why: String) {
        let _ = self.why.set(why);
        self.dead.cancel();
    }

    /// The reason, once it is dead.
    pub(super) fn why(&self) -> Option<&str> {
        self.dead
            .is_cancelled()
            .then(|| self.why.get().map_or("closed", String::as_str))
    }

    /// Resolves when it is dead.
    pub(super) async fn died(&self) -> String {
        self.dead.cancelled().await;
        self.why().unwrap_or("closed").to_owned()
    }

    /// Resolves when it is dead; nothing is lent.
    pub(super) fn cancelled(&self) -> WaitForCancellationFutureOwned {
        self.dead.clone().cancelled_owned()
    }

    pub(super) fn error(&self) -> io::Error {
        let why = self.why().unwrap_or("closed");
        io::Error::new(
            io::ErrorKind::ConnectionReset,
            format!("the SSH connection was lost: {why}"),
        )
    }
}

/// How long an unused connection may take to close.
const GOODBYE: Duration = Duration::from_secs(5);

/// What uses a connection: its session and its streams. With the last of them the connection ends, whatever its
/// server does about it.
pub(super) struct InUse(pub(super) Link);

impl Drop for InUse {
    fn drop(&mut self) {
        let link = self.0.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    let _ = tokio::time::timeout(GOODBYE, link.died()).await;
                    link.cut("closed".to_owned());
                });
            }
            Err(_) => link.cut("closed".to_owned()),
        }
    }
}

/// Cuts a connection on which nothing has arrived for `silence`, once its session has begun. russh's own keepalive also
/// counts before that, during a login, when sshd may not answer because it waits for another service.
pub(super) fn watch(link: Link, heard: Arc<Heard>, begun: Arc<AtomicBool>, silence: Duration) {
    tokio::spawn(async move {
        loop {
            let last = heard.last().filter(|_| begun.load(Ordering::Relaxed));
            let until = last.unwrap_or_else(Instant::now) + silence;
            if Instant::now() >= until {
                link.cut("Keepalive timeout".to_owned());
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                _ = link.died() => return,
            }
        }
    });
}

/// What waits for the reader.
struct Backlog {
    bytes: AtomicUsize,
    limit: usize,
    /// Something was thrown away: nothing after it may be read as if it were whole.
    given_up: AtomicBool,
    /// Nothing was read during a whole [`PAUSE`]: there is no other until something is.
    unread: AtomicBool,
    /// Something was read.
    read: Notify,
}

impl Backlog {
    fn new(limit: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            limit,
            given_up: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            read: Notify::new(),
        }
    }

    fn take(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.unread.store(false, Ordering::Relaxed);
        self.read.notify_one();
    }

    /// Waits for a reader that falls behind, but not for one that does not read at all.
    async fn brake(&self) {
        if self.unread.load(Ordering::Relaxed) {
            return;
        }
        // Not so long that the connection would seem dead.
        let end = Instant::now() + 2 * PAUSE;
        while self.bytes.load(Ordering::Relaxed) > RELEASE && Instant::now() < end {
            if timeout(PAUSE, self.read.notified()).await.is_err() {
                self.unread.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// A channel's byte stream under the guard.
pub(super) struct Guarded {
    queue: mpsc::UnboundedReceiver<Bytes>,
    backlog: Arc<Backlog>,
    current: Bytes,
    writer: Writer,
    link: Link,
    dead: Pin<Box<WaitForCancellationFutureOwned>>,
    pump: JoinHandle<()>,
    /// Closes the channel.
    _open: Open,
    _in_use: Arc<InUse>,
    /// Of a program's stream: how many of them there may be.
    permits: Vec<OwnedSemaphorePermit>,
}

/// A channel as a sink of bytes.
type Writer = Pin<Box<dyn AsyncWrite + Send + Sync>>;

/// A channel that is closed when it is dropped.
struct Open(Option<ChannelWriteHalf<Msg>>);

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(channel) = self.0.take() {
            tokio::spawn(async move {
                let _ = channel.close().await;
            });
        }
    }
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").finish_non_exhaustive()
    }
}

impl Guarded {
    /// Takes a channel over.
    pub(super) fn new(channel: Channel<Msg>, in_use: Arc<InUse>) -> Self {
        let link = in_use.0.clone();
        let (reader, open) = channel.split();
        let writer = Box::pin(open.make_writer());
        let (tx, queue) = mpsc::unbounded_channel();
        let backlog = Arc::new(Backlog::new(QUEUE_LIMIT));
        let pump = tokio::spawn(pump(reader, tx, Arc::clone(&backlog), link.clone()));
        let dead = Box::pin(link.cancelled());
        Self {
            queue,
            backlog,
            current: Bytes::new(),
            writer,
            link,
            dead,
            pump,
            _open: Open(Some(open)),
            _in_use: in_use,
            permits: Vec::new(),
        }
    }

    /// The same, which holds these for as long as it is open.
    pub(super) fn holding(mut self, permits: Vec<OwnedSemaphorePermit>) -> Self {
        self.permits = permits;
        self
    }

    fn write_result<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match result {
            Poll::Ready(Err(_)) if self.link.why().is_some() => Poll::Ready(Err(self.link.error())),
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => {
                ready!(self.dead.as_mut().poll(cx));
                Poll::Ready(Err(self.link.error()))
            }
        }
    }
}

/// Reads the channel dry, whatever its reader does: one that is slow is waited for, and beyond the limit the bytes are
/// thrown away and the stream fails, so that the connection stays usable.
async fn pump(
    mut reader: ChannelReadHalf,
    tx: mpsc::UnboundedSender<Bytes>,
    backlog: Arc<Backlog>,
    link: Link,
) {
    loop {
        let message = tokio::select! {
            message = reader.wait() => message,
            _ = link.died() => return,
        };
        let Some(message) = message else { return };
        if matches!(message, ChannelMsg::Eof | ChannelMsg::Close) {
            return;
        }
        let ChannelMsg::Data { data } = message else {
            continue;
        };
        if data.is_empty() {
            // Nobody's end of file.
            continue;
        }
        let waiting = backlog.bytes.fetch_add(data.len(), Ordering::Relaxed) + data.len();
        if waiting > backlog.limit {
            backlog.given_up.store(true, Ordering::Release);
        }
        if !backlog.given_up.load(Ordering::Acquire) && tx.send(data).is_err() {
            return;
        }
        if waiting > BRAKE && !backlog.given_up.load(Ordering::Acquire) {
            tokio::select! {
                () = backlog.brake() => {}
                _ = link.died() => return,
            }
        }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.current.is_empty() {
            if this.backlog.given_up.load(Ordering::Acquire) {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::OutOfMemory,
                    format!(
                        "more than {} bytes were not read in time",
                        this.backlog.limit
                    ),
                )));
            }
            match ready!(this.queue.poll_recv(cx)) {
                Some(chunk) => {
                    this.backlog.take(chunk.len());
                    this.current = chunk;
                }
                None if this.link.why().is_some() => return Poll::Ready(Err(this.link.error())),
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = this.current.len().min(out.remaining());
        out.put_slice(&this.current[..count]);
        this.current.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = self.writer.as_mut().poll_write(cx, bytes);
        self.write_result(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = self.writer.as_mut().poll_flush(cx);
        self.write_result(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = self.writer.as_mut().poll_shutdown(cx);
        self.write_result(cx, result)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.pump.abort();
        self.permits.clear();
    }
}

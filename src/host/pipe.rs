//! A stream in hyper's terms: what its pooled client asks of a connection, over Docker's socket and
//! over TLS alike.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::io::{AsyncRead, AsyncWrite};

/// One connection.
pub struct Pipe<T> {
    stream: TokioIo<T>,
    http_2: bool,
}

impl<T> Pipe<T> {
    /// `http_2`: both ends agreed to speak it.
    pub(super) fn new(stream: T, http_2: bool) -> Self {
        let stream = TokioIo::new(stream);
        Self { stream, http_2 }
    }
}

impl<T> Connection for Pipe<T> {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.http_2 {
            connected.negotiated_h2()
        } else {
            connected
        }
    }
}

impl<T: AsyncRead + Unpin> hyper::rt::Read for Pipe<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> hyper::rt::Write for Pipe<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
